"""One patch at a time as Numba kernels, solved without leaving the cache.

A patch is a row of the library's model whose columns are its pixels. What is known of
it differs from place to place, so every patch has a factorisation of its own, on the
side (known or missing pixels) that is the smaller one. All channels share it.

Nothing here is cached on disk, only the kernels that it becomes part of: an index of
the cache that names types of ours could not be read once these have moved.
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


def solver_parts() -> tuple[Any, Any, Any]:
    """What a `Solver` is made of: jitters, letters, and where LAPACK is."""
    jitters = np.asarray(jitter_steps("float64"))
    return jitters, LETTERS, lapack_addresses("float64")


@nb.njit(nogil=True)
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


@nb.njit(nogil=True)
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


@nb.njit(nogil=True)
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


@nb.njit(nogil=True)
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


@nb.njit(nogil=True)
def _log_det(A, r):
    """``log|L L^T|`` of a factor."""
    total = 0.0
    for a in range(r):
        total += np.log(A[a * r + a])
    return 2.0 * total


@nb.njit(nogil=True)
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


@nb.njit(nogil=True)
def add_pixels(place, offsets, m, room, first, num, den):
    """Add the missing pixels of a patch to the sums, the surer the heavier."""
    for a in range(m):
        at = place + offsets[room.u[a]] - first
        weight = 1.0 / room.variance[a]
        den[0, at] += weight
        den[1, at] += 1.0
        for c in range(len(room.energy)):
            num[c, at] += weight * room.X[c * m + a]


@nb.njit(nogil=True)
def put(r, m, room, z):
    """Known and filled pixels of a patch into ``z``, a row for each channel."""
    for c in range(len(z)):
        for a in range(r):
            z[c, room.o[a]] = room.V[c * r + a]
        for a in range(m):
            z[c, room.u[a]] = room.X[c * m + a]
