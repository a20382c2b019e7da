"""Patch kernels in Numba: one patch at a time, in buffers that stay in the CPU cache.

A patch is a row of the kernel model whose columns are its pixels. Its observed pixels
differ from place to place, so every patch has its own factorization, of the block of
the observed or of the missing pixels, whichever is smaller. All channels share it.

Only the three kernels are cached on disk, not the helpers that take `PatchBuffers`: a
cache index that names this class cannot be read once it moves.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-decorators=False
# mypy: disallow-untyped-calls=False, check-untyped-defs=False
# Compiled functions take their types from their arguments, so they carry none here.

from __future__ import annotations

from typing import Any, NamedTuple

import numba as nb
import numpy as np

from ncarl.core.linalg import jitter_steps
from ncarl.core.rows_numba import (
    LAPACK_FLAGS,
    lapack_addresses,
    log_det_from_cholesky,
    solve_with_jitter,
)
from ncarl.core.types import Array
from ncarl.images.patches import (
    MIN_VARIANCE_RATIO,
    PatchField,
    PatchGaussianMixture,
    PatchSearch,
    PixelSums,
)


def assign(
    field: PatchField,
    places: Array,
    gaussians: PatchGaussianMixture,
    sums: PixelSums | None = None,
) -> tuple[Array, Array]:
    """Energies (patches, components, channels) and most likely components of patches.

    Predictions of missing pixels are added to ``sums`` if given.
    """
    channels = len(field.values)
    energies = np.empty((len(places), len(gaussians.K), channels))
    labels = np.zeros(len(places), dtype=np.int64)
    # With sums over no pixels the kernel leaves them out.
    into = sums or PixelSums(0, np.zeros((channels, 0)), np.zeros((2, 0)))
    _assign(
        field.values, field.observed, places, field.offsets, gaussians.K, gaussians.P,
        gaussians.log_det, gaussians.noise, gaussians.scales, gaussians.log_weights,
        _solver_args(), energies, labels, into.first, into.num, into.den,
    )  # fmt: skip
    return energies, labels


@nb.njit(nogil=True, cache=True)
def _assign(
    values, observed, places, offsets, K, P, log_det, s, scales, log_weights,
    solver, energies, labels, first, num, den,
):  # fmt: skip
    channels, n = len(values), len(offsets)
    buffers = make_buffers(n, channels, channels)
    for p in range(len(places)):
        r, m = gather_patch(values, observed, places[p], offsets, buffers)
        best = -np.inf
        # The last round solves the most likely component again, for its pixels. (One
        # call of `solve_patch` in the code takes half the time to compile of two.)
        for component in range(len(K) + 1):
            g = component if component < len(K) else labels[p]
            score = channels * solve_patch(
                K[g], P[g], log_det[g], s, r, m, m < r, buffers, solver
            )
            if component == len(K):
                continue
            for c in range(channels):
                score += buffers.energy[c] / scales[g, c] + r * np.log(scales[g, c])
                energies[p, g, c] = buffers.energy[c]
            score = log_weights[g] - 0.5 * score
            if score > best:
                best, labels[p] = score, g
        if m > 0 and num.shape[1] > 0:
            missing_variances(K[labels[p]], s, r, m, m < r, buffers)
            accumulate_pixels(places[p], offsets, m, buffers, first, num, den)


def second_moments(
    field: PatchField, places: Array, labels: Array, gaussians: PatchGaussianMixture
) -> tuple[Array, Array]:
    """Sums of ``E[x x^T]`` over the patches of each component, channels averaged.

    Also the patches with their missing pixels filled in, (patches, channels, n).
    """
    S = np.zeros_like(gaussians.K)
    patches = np.empty((len(places), len(field.values), len(field.offsets)))
    _second_moments(
        field.values, field.observed, places, field.offsets, labels, gaussians.K,
        gaussians.P, gaussians.log_det, gaussians.noise, gaussians.scales,
        _solver_args(), S, patches,
    )  # fmt: skip
    return S, patches


@nb.njit(nogil=True, cache=True)
def _second_moments(
    values, observed, places, offsets, labels, K, P, log_det, s, scales, solver, S,
    completed,
):  # fmt: skip
    channels, n = len(values), len(offsets)
    buffers = make_buffers(n, channels, max(channels, n))
    for p in range(len(places)):
        g, z = labels[p], completed[p]
        r, m = gather_patch(values, observed, places[p], offsets, buffers)
        solve_patch(K[g], P[g], log_det[g], s, r, m, m < r, buffers, solver)
        if m > 0:
            _add_missing_covariance(P[g], m, buffers, solver, S[g])
        for c in range(channels):
            for a in range(r):
                z[c, buffers.o[a]] = buffers.V[c * r + a]
            for a in range(m):
                z[c, buffers.u[a]] = buffers.X[c * m + a]
            for a in range(n):
                row, value = S[g, a], z[c, a] / (channels * scales[g, c])
                for b in range(n):
                    row[b] += value * z[c, b]


@nb.njit(nogil=True)
def _add_missing_covariance(P, m, buffers, solver, S):
    """Add the covariance of the missing pixels, ``P_uu^-1``, to ``S``."""
    u = buffers.u[:m]
    buffers.right[: m * m] = 0.0
    for a in range(m):
        buffers.right[a * m + a] = 1.0
    solve_with_jitter(
        P, u, 0.0, buffers.A, buffers.B, buffers.right, m,
        solver[0], buffers.ints, solver[1], solver[2],
    )  # fmt: skip
    for a in range(m):
        row = S[u[a]]
        for b in range(m):
            row[u[b]] += buffers.B[a * m + b]


def refine(
    field: PatchField, places: Array, labels: Array, gaussians: PatchGaussianMixture,
    estimate: Array, search: PatchSearch, sums: PixelSums,
) -> None:  # fmt: skip
    """Add predictions of missing pixels to ``sums``.

    Each patch has the Gaussian of its most similar patches in ``estimate``.
    """
    _refine(
        field.values, field.observed, estimate, places, field.offsets, field.size,
        field.patch_shape, labels, gaussians.K, search.prior_count, gaussians.noise,
        search.radius, search.max_patches, _solver_args(), sums.first,
        sums.num, sums.den,
    )  # fmt: skip


@nb.njit(nogil=True, cache=True)
def _refine(
    values, observed, estimate, places, offsets, size, side, labels, prior,
    prior_count, s, radius, max_patches, solver, first, num, den,
):  # fmt: skip
    channels, n = len(values), len(offsets)
    buffers = make_buffers(n, channels, channels)
    n_nearby = (2 * radius + 1) ** 2
    distances, neighbors = np.empty(n_nearby), np.empty(n_nearby, np.int64)
    Z, mean = np.empty((max_patches * channels, n)), np.empty((channels, n))
    for p in range(len(places)):
        at = places[p]
        count = _distances(estimate, size, side, at, radius, distances, neighbors)
        taken = _gather_nearest(
            estimate, size, side, distances, neighbors, count, max_patches, Z, mean
        )
        group = Z[: taken * channels]
        K = np.dot(group.T, group) / channels + prior_count * prior[labels[p]]
        K /= taken + prior_count
        r, m = gather_patch(values, observed, at, offsets, buffers)
        for c in range(channels):
            for a in range(r):
                buffers.V[c * r + a] -= mean[c, buffers.o[a]]
        # The inverse of K is not at hand, so take the observed block. (A constant
        # False is another type, for which the helpers would be compiled again.)
        missing_side = m < 0
        solve_patch(K, K, 0.0, s, r, m, missing_side, buffers, solver)
        missing_variances(K, s, r, m, missing_side, buffers)
        for c in range(channels):
            for a in range(m):
                buffers.X[c * m + a] += mean[c, buffers.u[a]]
        accumulate_pixels(at, offsets, m, buffers, first, num, den)


@nb.njit(nogil=True)
def _distances(estimate, size, side, place, radius, distances, neighbors):
    """Squared distances of a patch to all within ``radius``; returns their number."""
    _, height, width = size
    tall, wide = side
    y, x = place // width, place % width
    count = 0
    for row in range(max(0, y - radius), min(height - tall, y + radius) + 1):
        for column in range(max(0, x - radius), min(width - wide, x + radius) + 1):
            neighbors[count] = row * width + column
            distances[count] = _squared_distance(
                estimate, place, neighbors[count], size, side
            )
            count += 1
    return count


@nb.njit(nogil=True, fastmath={"reassoc", "contract", "nsz"})
def _squared_distance(estimate, one, other, size, side):
    layers, height, width = size
    tall, wide = side
    total = 0.0
    for c in range(len(estimate)):
        for k in range(layers):
            for i in range(tall):
                start = (k * height + i) * width
                a = estimate[c, one + start : one + start + wide]
                b = estimate[c, other + start : other + start + wide]
                for j in range(wide):
                    off = a[j] - b[j]
                    total += off * off
    return total


@nb.njit(nogil=True)
def _gather_nearest(
    estimate, size, side, distances, neighbors, count, max_patches, Z, mean
):
    """Write the most similar patches, centered, to ``Z``; returns their number."""
    layers, height, width = size
    tall, wide = side
    wanted = min(max_patches, count)
    limit = np.partition(distances[:count], wanted - 1)[wanted - 1]
    channels = len(estimate)
    mean[:] = 0.0
    taken = 0
    for e in range(count):
        if distances[e] > limit or taken == wanted:
            continue
        for c in range(channels):
            row = Z[taken * channels + c]
            for line in range(layers * tall):
                start = neighbors[e] + (line // tall * height + line % tall) * width
                for j in range(wide):
                    value = estimate[c, start + j]
                    row[line * wide + j] = value
                    mean[c, line * wide + j] += value
        taken += 1
    mean /= taken
    for e in range(taken * channels):
        row, middle = Z[e], mean[e % channels]
        for a in range(len(middle)):
            row[a] -= middle[a]
    return taken


class PatchBuffers(NamedTuple):
    """Work memory for one patch."""

    o: Any  # observed pixels
    u: Any  # missing pixels
    A: Any  # matrix to factorize
    right: Any  # right-hand sides
    B: Any  # solutions
    line: Any  # one column of a triangular solve
    V: Any  # observed values of all channels
    X: Any  # missing values of all channels
    variance: Any  # variances of the missing pixels
    energy: Any  # ``v^T (K_oo + s I)^-1 v`` of each channel
    ints: Any  # scratch for LAPACK


def _solver_args() -> tuple[Any, Any, Any]:
    jitters = np.asarray(jitter_steps("float64"))
    return jitters, LAPACK_FLAGS, lapack_addresses("float64")


@nb.njit(nogil=True)
def make_buffers(n, channels, n_rhs):
    """Buffers for patches of ``n`` pixels and ``n_rhs`` right-hand sides."""
    return PatchBuffers(
        np.empty(n, np.uint32), np.empty(n, np.uint32), np.empty(n * n),
        np.empty(n_rhs * n), np.empty(n_rhs * n), np.empty(n), np.empty(channels * n),
        np.empty(channels * n), np.empty(n), np.empty(channels), np.empty(4, np.int32),
    )  # fmt: skip


@nb.njit(nogil=True)
def gather_patch(values, observed, place, offsets, buffers):
    """Write observed and missing pixels and values of a patch; returns the counts."""
    r, m = 0, 0
    for a in range(len(offsets)):
        if observed[place + offsets[a]]:
            buffers.o[r] = a
            r += 1
        else:
            buffers.u[m] = a
            m += 1
    for c in range(len(values)):
        for a in range(r):
            buffers.V[c * r + a] = values[c, place + offsets[buffers.o[a]]]
    return r, m


@nb.njit(nogil=True)
def solve_patch(K, P, log_det, s, r, m, missing_side, buffers, solver):
    """``log|K_oo + s I|``; energies and missing pixels are written to ``buffers``.

    ``buffers.A`` keeps the Cholesky factor: of ``P_uu`` if ``missing_side``, else of
    ``K_oo + s I``.
    """
    channels = len(buffers.energy)
    buffers.energy[:] = 0.0
    buffers.X[: channels * m] = 0.0
    if r == 0:
        return 0.0
    if missing_side:
        return _solve_missing(P, log_det, r, m, buffers, solver)
    o, u = buffers.o[:r], buffers.u[:m]
    solve_with_jitter(
        K, o, s, buffers.A, buffers.B, buffers.V, channels,
        solver[0], buffers.ints, solver[1], solver[2],
    )  # fmt: skip
    for c in range(channels):
        x = buffers.X[c * m : (c + 1) * m]
        for a in range(r):
            y, row = buffers.B[c * r + a], K[o[a]]
            buffers.energy[c] += y * buffers.V[c * r + a]
            for b in range(m):
                x[b] += y * row[u[b]]
    return log_det_from_cholesky(buffers.A, r)


@nb.njit(nogil=True)
def _solve_missing(P, log_det, r, m, buffers, solver):
    """As `solve_patch`, by the precision: ``x_u = -P_uu^-1 P_uo v``."""
    channels = len(buffers.energy)
    o, u = buffers.o[:r], buffers.u[:m]
    buffers.right[: channels * m] = 0.0
    for c in range(channels):
        v, right = buffers.V[c * r : (c + 1) * r], buffers.right[c * m : (c + 1) * m]
        for a in range(r):
            row, total = P[o[a]], 0.0
            for b in range(r):
                total += row[o[b]] * v[b]
            buffers.energy[c] += total * v[a]
            for b in range(m):
                right[b] -= row[u[b]] * v[a]
    if m == 0:
        return log_det
    solve_with_jitter(
        P, u, 0.0, buffers.A, buffers.B, buffers.right, channels,
        solver[0], buffers.ints, solver[1], solver[2],
    )  # fmt: skip
    for c in range(channels):
        for a in range(c * m, (c + 1) * m):
            buffers.X[a] = buffers.B[a]
            buffers.energy[c] -= buffers.B[a] * buffers.right[a]
    return log_det + log_det_from_cholesky(buffers.A, m)


@nb.njit(nogil=True)
def missing_variances(K, s, r, m, missing_side, buffers):
    """Write variances of the missing pixels given the observed to ``buffers``."""
    A, line, size = buffers.A, buffers.line, m if missing_side else r
    for j in range(m):
        row = K[buffers.u[j]]
        first = j if missing_side else 0
        line[:size] = 0.0
        if missing_side:
            line[j] = 1.0
        else:
            for a in range(r):
                line[a] = row[buffers.o[a]]
        total = 0.0
        for i in range(first, size):
            column = A[i * size : (i + 1) * size]
            value = line[i] / column[i]
            total += value * value
            for k in range(i + 1, size):
                line[k] -= value * column[k]
        variance = total if missing_side else row[buffers.u[j]] + s - total
        buffers.variance[j] = max(variance, MIN_VARIANCE_RATIO * s)


@nb.njit(nogil=True)
def accumulate_pixels(place, offsets, m, buffers, first, num, den):
    """Add the missing pixels of a patch to the sums, weighted by their precision."""
    for a in range(m):
        at = place + offsets[buffers.u[a]] - first
        weight = 1.0 / buffers.variance[a]
        den[0, at] += weight
        den[1, at] += 1.0
        for c in range(len(buffers.energy)):
            num[c, at] += weight * buffers.X[c * m + a]
