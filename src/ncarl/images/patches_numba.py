"""Work on patches as Numba kernels: each patch is solved without leaving the cache.

A patch is a row of the library's model whose columns are its pixels. What is known of
it differs from place to place, so every patch has a factorisation of its own, on the
side (known or missing pixels) that is the smaller one. All channels share it.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-decorators=False
# mypy: disallow-untyped-calls=False, check-untyped-defs=False
# Compiled functions take their types from their arguments, so they carry none here.

from __future__ import annotations

from typing import Any, NamedTuple

import numba as nb
import numpy as np

from ncarl.core.lapack_calls import lapack_addresses
from ncarl.core.linalg import jitter_steps
from ncarl.core.rows_numba import LETTERS, solve_with_jitter
from ncarl.core.types import Array
from ncarl.images.field import Field, Sums, no_sums
from ncarl.images.gaussians import Gaussians

#: A conditional variance is never taken for less than this part of the noise.
LEAST = 1e-3


class Room(NamedTuple):
    """Memory for one patch at a time: known and missing pixels, blocks, results."""

    o: Any
    u: Any
    A: Any
    right: Any
    B: Any
    line: Any
    V: Any
    X: Any
    variance: Any
    energy: Any
    numbers: Any


class Solver(NamedTuple):
    """What `solve_with_jitter` is told every time."""

    jitters: Any
    letters: Any
    calls: Any


def solver() -> Solver:
    """Jitters to try, and where LAPACK is."""
    jitters = np.asarray(jitter_steps("float64"))
    return Solver(jitters, LETTERS, lapack_addresses("float64"))


@nb.njit(nogil=True, cache=True)
def new_room(n, channels, sides):
    """Room for patches of ``n`` pixels, and ``sides`` right-hand sides."""
    return Room(
        np.empty(n, np.uint32),
        np.empty(n, np.uint32),
        np.empty(n * n),
        np.empty(sides * n),
        np.empty(sides * n),
        np.empty(n),
        np.empty(channels * n),
        np.empty(channels * n),
        np.empty(n),
        np.empty(channels),
        np.empty(4, np.int32),
    )


@nb.njit(nogil=True, cache=True)
def read(values, known, place, offsets, room):
    """Known and missing pixels of a patch, and its known values; their numbers."""
    r, m = 0, 0
    for a in range(len(offsets)):
        if known[place + offsets[a]]:
            room.o[r] = a
            r += 1
        else:
            room.u[m] = a
            m += 1
    for c in range(len(values)):
        for a in range(r):
            room.V[c * r + a] = values[c, place + offsets[room.o[a]]]
    return r, m


@nb.njit(nogil=True, cache=True)
def solve(K, P, log_det, s, r, m, missing_side, room, solver):
    """``log|K_oo + s I|``; energies ``v y`` and missing pixels go into ``room``.

    ``room.A`` keeps the factor: of ``P_uu`` if the missing side is taken, else of
    ``K_oo + s I``.
    """
    channels = len(room.energy)
    room.energy[:] = 0.0
    room.X[: channels * m] = 0.0
    if r == 0:
        return 0.0
    if missing_side:
        return _solve_missing(P, log_det, r, m, room, solver)
    o, u = room.o[:r], room.u[:m]
    solve_with_jitter(
        K, o, s, room.A, room.B, room.V, channels,
        solver.jitters, room.numbers, solver.letters, solver.calls,
    )  # fmt: skip
    for c in range(channels):
        x = room.X[c * m : (c + 1) * m]
        for a in range(r):
            y, row = room.B[c * r + a], K[o[a]]
            room.energy[c] += y * room.V[c * r + a]
            for b in range(m):
                x[b] += y * row[u[b]]
    return _log_det(room.A, r)


@nb.njit(nogil=True, cache=True)
def _solve_missing(P, log_det, r, m, room, solver):
    """The same from the missing side: ``x_u = -P_uu^-1 P_uo v``."""
    channels = len(room.energy)
    o, u = room.o[:r], room.u[:m]
    room.right[: channels * m] = 0.0
    for c in range(channels):
        v, right = room.V[c * r : (c + 1) * r], room.right[c * m : (c + 1) * m]
        for a in range(r):
            row, total = P[o[a]], 0.0
            for b in range(r):
                total += row[o[b]] * v[b]
            room.energy[c] += total * v[a]
            for b in range(m):
                right[b] -= row[u[b]] * v[a]
    if m == 0:
        return log_det
    solve_with_jitter(
        P, u, 0.0, room.A, room.B, room.right, channels,
        solver.jitters, room.numbers, solver.letters, solver.calls,
    )  # fmt: skip
    for c in range(channels):
        for a in range(c * m, (c + 1) * m):
            room.X[a] = room.B[a]
            room.energy[c] -= room.B[a] * room.right[a]
    return log_det + _log_det(room.A, m)


@nb.njit(nogil=True, cache=True)
def _log_det(A, r):
    """``log|L L^T|`` of a factor."""
    total = 0.0
    for a in range(r):
        total += np.log(A[a * r + a])
    return 2.0 * total


@nb.njit(nogil=True, cache=True)
def variances(K, s, r, m, missing_side, room):
    """Variances of the missing pixels, given the known ones, into ``room``."""
    A, line, size = room.A, room.line, m if missing_side else r
    for j in range(m):
        row = K[room.u[j]]
        first = j if missing_side else 0
        line[:size] = 0.0
        if missing_side:
            line[j] = 1.0
        else:
            for a in range(r):
                line[a] = row[room.o[a]]
        total = 0.0
        for i in range(first, size):
            column = A[i * size : (i + 1) * size]
            value = line[i] / column[i]
            total += value * value
            for k in range(i + 1, size):
                line[k] -= value * column[k]
        left = total if missing_side else row[room.u[j]] + s - total
        room.variance[j] = max(left, LEAST * s)


@nb.njit(nogil=True, cache=True)
def add_pixels(place, offsets, m, room, first, num, den):
    """Add the missing pixels of a patch to the sums, the surer the heavier."""
    for a in range(m):
        at = place + offsets[room.u[a]] - first
        weight = 1.0 / room.variance[a]
        den[0, at] += weight
        den[1, at] += 1.0
        for c in range(len(room.energy)):
            num[c, at] += weight * room.X[c * m + a]


@nb.njit(nogil=True, cache=True)
def _assign(
    values, known, places, offsets, K, P, log_det, s, scales, log_share, solver,
    fit, labels, first, num, den,
):  # fmt: skip
    """Energies and the likeliest Gaussian of every patch; its pixels if asked for.

    Missing pixels are added to ``num`` and ``den`` unless these are empty.
    """
    channels, n = len(values), len(offsets)
    room = new_room(n, channels, channels)
    for p in range(len(places)):
        r, m = read(values, known, places[p], offsets, room)
        best = -np.inf
        # The last turn is once more that of the likeliest, whose pixels are wanted.
        # (One call of `solve` in the code takes half the time to compile of two.)
        for turn in range(len(K) + 1):
            g = turn if turn < len(K) else labels[p]
            score = channels * solve(
                K[g], P[g], log_det[g], s, r, m, m < r, room, solver
            )
            if turn == len(K):
                continue
            for c in range(channels):
                score += room.energy[c] / scales[g, c] + r * np.log(scales[g, c])
                fit[p, g, c] = room.energy[c]
            score = log_share[g] - 0.5 * score
            if score > best:
                best, labels[p] = score, g
        if m > 0 and num.shape[1] > 0:
            variances(K[labels[p]], s, r, m, m < r, room)
            add_pixels(places[p], offsets, m, room, first, num, den)


@nb.njit(nogil=True, cache=True)
def _second_moments(
    values, known, places, offsets, labels, K, P, log_det, s, scales, solver, S,
    completed,
):  # fmt: skip
    """Add ``E[x x^T]`` of every patch to the sum of its Gaussian; complete it."""
    channels, n = len(values), len(offsets)
    room = new_room(n, channels, max(channels, n))
    for p in range(len(places)):
        g, z = labels[p], completed[p]
        r, m = read(values, known, places[p], offsets, room)
        solve(K[g], P[g], log_det[g], s, r, m, m < r, room, solver)
        put(r, m, room, z)
        if m > 0:
            _add_spread(P[g], m, room, solver, S[g])
        for c in range(channels):
            for a in range(n):
                row, value = S[g, a], z[c, a] / (channels * scales[g, c])
                for b in range(n):
                    row[b] += value * z[c, b]


@nb.njit(nogil=True, cache=True)
def put(r, m, room, z):
    """Known and filled pixels of a patch into ``z``, a row for each channel."""
    for c in range(len(z)):
        for a in range(r):
            z[c, room.o[a]] = room.V[c * r + a]
        for a in range(m):
            z[c, room.u[a]] = room.X[c * m + a]


@nb.njit(nogil=True, cache=True)
def _add_spread(P, m, room, solver, S):
    """Add the covariance of the missing pixels, ``P_uu^-1``, to ``S``."""
    u = room.u[:m]
    room.right[: m * m] = 0.0
    for a in range(m):
        room.right[a * m + a] = 1.0
    solve_with_jitter(
        P, u, 0.0, room.A, room.B, room.right, m,
        solver.jitters, room.numbers, solver.letters, solver.calls,
    )  # fmt: skip
    for a in range(m):
        row = S[u[a]]
        for b in range(m):
            row[u[b]] += room.B[a * m + b]


def assign(
    field: Field, places: Array, gaussians: Gaussians, sums: Sums | None = None
) -> tuple[Array, Array]:
    """Energies (patches, Gaussians, channels) and likeliest Gaussians of patches.

    What the patches say of missing pixels is added to ``sums`` if these are given.
    """
    channels = len(field.values)
    fit = np.empty((len(places), gaussians.count, channels))
    labels = np.zeros(len(places), dtype=np.int64)
    into = no_sums(channels) if sums is None else sums
    _assign(
        field.values, field.known, places, field.offsets, gaussians.K, gaussians.P,
        gaussians.log_det, gaussians.noise, gaussians.scales, gaussians.log_share,
        solver(), fit, labels, into.first, into.num, into.den,
    )  # fmt: skip
    return fit, labels


def second_moments(
    field: Field, places: Array, labels: Array, gaussians: Gaussians
) -> tuple[Array, Array]:
    """Sums of ``E[x x^T]`` over the patches of each Gaussian, channels averaged.

    Also the patches with their missing pixels filled in, (patches, channels, n).
    """
    S = np.zeros_like(gaussians.K)
    patches = np.empty((len(places), len(field.values), len(field.offsets)))
    _second_moments(
        field.values, field.known, places, field.offsets, labels, gaussians.K,
        gaussians.P, gaussians.log_det, gaussians.noise, gaussians.scales, solver(), S,
        patches,
    )  # fmt: skip
    return S, patches
