"""Kriging in Numba: one missing entry at a time, by Cholesky factorization."""

# mypy: disallow-untyped-defs=False, disallow-untyped-decorators=False
# mypy: disallow-untyped-calls=False, check-untyped-defs=False
# Compiled functions take their types from their arguments, so they carry none here.

from __future__ import annotations

import numba as nb
import numpy as np

#: Minimum pivot of the factorization, relative to the variance.
MIN_PIVOT = 1e-10


@nb.njit(nogil=True, cache=True)
def krige(values, weights, basis, t, j, steps, sensors):
    """Conditional means and variances; as `ncarl.panel.kriging.krige`."""
    entries, most = steps.shape
    means, variances = np.empty(entries), np.empty(entries)
    A = np.empty((most, most))
    c, y = np.empty(most), np.empty(most)
    who, when = np.empty(most, np.int64), np.empty(most, np.int64)
    for q in range(entries):
        m = 0
        for k in range(most):
            if steps[q, k] >= 0:
                who[m], when[m] = sensors[q, k], steps[q, k]
                m += 1
        for a in range(m):
            y[a] = values[when[a], who[a]]
            c[a] = _covariance(weights, basis, j[q], who[a], abs(t[q] - when[a]))
            for b in range(a + 1):
                lag = abs(when[a] - when[b])
                A[a, b] = _covariance(weights, basis, who[a], who[b], lag)
        _solve_lower(A, y, c, m)
        mean, explained = 0.0, 0.0
        for a in range(m):
            mean += y[a] * c[a]
            explained += c[a] * c[a]
        means[q] = mean
        variances[q] = _covariance(weights, basis, j[q], j[q], 0) - explained
    return means, variances


@nb.njit(nogil=True, cache=True)
def _covariance(weights, basis, i, j, lag):
    total = 0.0
    for b in range(weights.shape[2]):
        total += weights[i, j, b] * basis[lag, b]
    return total


@nb.njit(nogil=True, cache=True)
def _solve_lower(A, y, c, m):
    """Factorize ``A = L L^T`` and replace both vectors by ``L^-1`` times them."""
    for a in range(m):
        full = A[a, a]
        for b in range(a):
            value = A[a, b]
            for k in range(b):
                value -= A[a, k] * A[b, k]
            A[a, b] = value / A[b, b]
        pivot = full
        for k in range(a):
            pivot -= A[a, k] * A[a, k]
        A[a, a] = np.sqrt(max(pivot, MIN_PIVOT * full))
        for k in range(a):
            y[a] -= A[a, k] * y[k]
            c[a] -= A[a, k] * c[k]
        y[a] /= A[a, a]
        c[a] /= A[a, a]
