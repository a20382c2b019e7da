"""Work on many patches as Numba kernels."""

# mypy: disallow-untyped-defs=False, disallow-untyped-decorators=False
# mypy: disallow-untyped-calls=False, check-untyped-defs=False
# Compiled functions take their types from their arguments, so they carry none here.

from __future__ import annotations

import numba as nb
import numpy as np

from ncarl.core.rows_numba import solve_with_jitter
from ncarl.core.types import Array
from ncarl.images.field import Field, Sums, no_sums
from ncarl.images.gaussians import Gaussians
from ncarl.images.one_patch_numba import (
    Solver,
    add_pixels,
    new_room,
    put,
    read,
    solve,
    solver_parts,
    variances,
)


@nb.njit(nogil=True, cache=True)
def _assign(
    values, known, places, offsets, K, P, log_det, s, scales, log_share,
    jitters, letters, calls, fit, labels, first, num, den,
):  # fmt: skip
    """Energies and the likeliest Gaussian of every patch; its pixels if asked for.

    Missing pixels are added to ``num`` and ``den`` unless these are empty.
    """
    channels, n = len(values), len(offsets)
    room = new_room(n, channels, channels)
    solver = Solver(jitters, letters, calls)
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
    values, known, places, offsets, labels, K, P, log_det, s, scales,
    jitters, letters, calls, S, completed,
):  # fmt: skip
    """Add ``E[x x^T]`` of every patch to the sum of its Gaussian; complete it."""
    channels, n = len(values), len(offsets)
    room = new_room(n, channels, max(channels, n))
    solver = Solver(jitters, letters, calls)
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


@nb.njit(nogil=True)
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
        *solver_parts(), fit, labels, into.first, into.num, into.den,
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
        gaussians.P, gaussians.log_det, gaussians.noise, gaussians.scales,
        *solver_parts(), S, patches,
    )  # fmt: skip
    return S, patches
