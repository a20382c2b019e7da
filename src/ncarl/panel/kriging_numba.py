"""Gaps from their witnesses, one after the other in compiled code."""

# mypy: disallow-untyped-defs=False, disallow-untyped-decorators=False
# mypy: disallow-untyped-calls=False, check-untyped-defs=False
# Compiled functions take their types from their arguments, so they carry none here.

from __future__ import annotations

import numba as nb
import numpy as np

#: A pivot is held at this part of its variance.
LEAST_PIVOT = 1e-10


@nb.njit(nogil=True, cache=True)
def krige(values, weights, memories, t, j, steps, sensors):
    """Conditional means and variances; as `ncarl.panel.kriging_numpy.krige`."""
    gaps, most = steps.shape
    means, variances = np.empty(gaps), np.empty(gaps)
    A = np.empty((most, most))
    c, y = np.empty(most), np.empty(most)
    who, when = np.empty(most, np.int64), np.empty(most, np.int64)
    for q in range(gaps):
        m = 0
        for k in range(most):
            if steps[q, k] >= 0:
                who[m], when[m] = sensors[q, k], steps[q, k]
                m += 1
        for a in range(m):
            y[a] = values[when[a], who[a]]
            c[a] = _covariance(weights, memories, j[q], who[a], abs(t[q] - when[a]))
            for b in range(a + 1):
                lag = abs(when[a] - when[b])
                A[a, b] = _covariance(weights, memories, who[a], who[b], lag)
        _solve_lower(A, y, c, m)
        mean, explained = 0.0, 0.0
        for a in range(m):
            mean += y[a] * c[a]
            explained += c[a] * c[a]
        means[q] = mean
        variances[q] = _covariance(weights, memories, j[q], j[q], 0) - explained
    return means, variances


@nb.njit(nogil=True, cache=True)
def _covariance(weights, memories, i, j, lag):
    """Covariance of two sensors at a lag."""
    total = 0.0
    for b in range(weights.shape[2]):
        total += weights[i, j, b] * memories[lag, b]
    return total


@nb.njit(nogil=True, cache=True)
def _solve_lower(A, y, c, m):
    """Factorise ``A`` and divide both vectors by its lower factor, in place."""
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
        A[a, a] = np.sqrt(max(pivot, LEAST_PIVOT * full))
        for k in range(a):
            y[a] -= A[a, k] * y[k]
            c[a] -= A[a, k] * c[k]
        y[a] /= A[a, a]
        c[a] /= A[a, a]
