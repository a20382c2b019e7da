"""The second pass as a Numba kernel: a Gaussian of its own for every patch."""

# mypy: disallow-untyped-defs=False, disallow-untyped-decorators=False
# mypy: disallow-untyped-calls=False, check-untyped-defs=False
# Compiled functions take their types from their arguments, so they carry none here.

from __future__ import annotations

import numba as nb
import numpy as np

from ncarl.core.types import Array
from ncarl.images.field import Field, Sums
from ncarl.images.gaussians import Gaussians
from ncarl.images.one_patch_numba import (
    Solver,
    add_pixels,
    new_room,
    read,
    solve,
    solver_parts,
    variances,
)


@nb.njit(nogil=True, fastmath={"reassoc", "contract", "nsz"})
def _apart(estimate, one, other, size, side):
    """Squared distance of two patches; sums may be taken in any order."""
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
def _distances(estimate, size, side, place, reach, found, where):
    """Squared distances of a patch to all within reach; how many there are."""
    _, height, width = size
    tall, wide = side
    y, x = place // width, place % width
    count = 0
    for row in range(max(0, y - reach), min(height - tall, y + reach) + 1):
        for column in range(max(0, x - reach), min(width - wide, x + reach) + 1):
            where[count] = row * width + column
            found[count] = _apart(estimate, place, where[count], size, side)
            count += 1
    return count


@nb.njit(nogil=True)
def _group(estimate, size, side, found, where, count, most, Z, mean):
    """Patches nearest to one, less their mean, into ``Z``; how many they are."""
    layers, height, width = size
    tall, wide = side
    room = min(most, count)
    limit = np.partition(found[:count], room - 1)[room - 1]
    channels = len(estimate)
    mean[:] = 0.0
    taken = 0
    for e in range(count):
        if found[e] > limit or taken == room:
            continue
        for c in range(channels):
            row = Z[taken * channels + c]
            for line in range(layers * tall):
                start = where[e] + (line // tall * height + line % tall) * width
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


@nb.njit(nogil=True, cache=True)
def _refine(
    values, known, estimate, places, offsets, size, side, labels, prior, strength, s,
    reach, most, jitters, letters, calls, first, num, den,
):  # fmt: skip
    """Add the missing pixels of patches, by Gaussians of their nearest patches."""
    channels, n = len(values), len(offsets)
    room = new_room(n, channels, channels)
    solver = Solver(jitters, letters, calls)
    room_for = (2 * reach + 1) ** 2
    found, where = np.empty(room_for), np.empty(room_for, np.int64)
    Z, mean = np.empty((most * channels, n)), np.empty((channels, n))
    for p in range(len(places)):
        count = _distances(estimate, size, side, places[p], reach, found, where)
        taken = _group(estimate, size, side, found, where, count, most, Z, mean)
        group = Z[: taken * channels]
        K = np.dot(group.T, group) / channels + strength * prior[labels[p]]
        K /= taken + strength
        r, m = read(values, known, places[p], offsets, room)
        for c in range(channels):
            for a in range(r):
                room.V[c * r + a] -= mean[c, room.o[a]]
        # The inverse of K is not at hand, so the known side is the one to take. (A
        # constant False would have other types, and all be compiled again.)
        missing_side = m < 0
        solve(K, K, 0.0, s, r, m, missing_side, room, solver)
        variances(K, s, r, m, missing_side, room)
        for c in range(channels):
            for a in range(m):
                room.X[c * m + a] += mean[c, room.u[a]]
        add_pixels(places[p], offsets, m, room, first, num, den)


def refine(
    field: Field,
    places: Array,
    labels: Array,
    gaussians: Gaussians,
    estimate: Array,
    reach: int,
    most: int,
    strength: float,
    sums: Sums,
) -> None:
    """Add what patches say of missing pixels to ``sums``."""
    _refine(
        field.values, field.known, estimate, places, field.offsets, field.size,
        field.side, labels, gaussians.K, strength, gaussians.noise, reach, most,
        *solver_parts(), sums.first, sums.num, sums.den,
    )  # fmt: skip
