"""Work on patches in plain NumPy: the answers of the Numba kernels, more slowly.

Missing pixels stand as rows and columns of the identity in blocks of full size, so
that many patches are factorised in one batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ncarl.core.types import Array
from ncarl.images.field import Field, Sums
from ncarl.images.gaussians import Gaussians

#: Numbers in a batch of blocks.
ROOM = 2_000_000
#: A conditional variance is never taken for less than this part of the noise.
LEAST = 1e-3


@dataclass(frozen=True)
class Batch:
    """Some patches: their number among all, known pixels (1 or 0), values or 0."""

    some: slice
    known: Array
    values: Array


def batches(field: Field, places: Array) -> Iterator[Batch]:
    """Patches, as many at a time as there is room for."""
    size = max(1, ROOM // len(field.offsets) ** 2)
    for first in range(0, len(places), size):
        some = slice(first, first + size)
        at = places[some, None] + field.offsets
        known = field.known[at]
        values = np.where(known, field.values[:, at].astype(np.float64), 0.0)
        yield Batch(some, known.astype(np.float64), values.swapaxes(0, 1))


def inverses(K: Array, noise: float, known: Array) -> tuple[Array, Array]:
    """Inverses of ``K_oo + s I``, zero elsewhere, and their log determinants.

    ``K`` is one matrix, or one for each patch.
    """
    pairs = known[:, :, None] * known[:, None, :]
    A = K * pairs
    diagonal = np.arange(A.shape[1])
    A[:, diagonal, diagonal] += np.where(known > 0.0, noise, 1.0)
    factor = np.linalg.cholesky(A)
    half = np.linalg.inv(factor)
    volume = 2.0 * np.log(factor[:, diagonal, diagonal]).sum(axis=1)
    return (np.swapaxes(half, 1, 2) @ half) * pairs, volume


def spread(K: Array, noise: float, inverse: Array) -> Array:
    """Covariances of all pixels as they would be seen, given the known ones."""
    return K + noise * np.eye(K.shape[-1]) - K @ inverse @ K


def assign(
    field: Field, places: Array, gaussians: Gaussians, sums: Sums | None = None
) -> tuple[Array, Array]:
    """Energies (patches, Gaussians, channels) and likeliest Gaussians of patches.

    What the patches say of missing pixels is added to ``sums`` if these are given.
    """
    shape = (len(places), gaussians.count)
    fit, score = np.empty((*shape, len(field.values))), np.empty(shape)
    scales, channels = gaussians.scales, len(field.values)
    for batch in batches(field, places):
        counts = batch.known.sum(axis=1)
        for g in range(gaussians.count):
            inverse, volume = inverses(gaussians.K[g], gaussians.noise, batch.known)
            energy = np.sum((batch.values @ inverse) * batch.values, axis=2)
            total = np.sum(energy / scales[g], axis=1) + channels * volume
            total += counts * np.log(scales[g]).sum()
            fit[batch.some, g] = energy
            score[batch.some, g] = gaussians.log_share[g] - 0.5 * total
    labels: Array = np.argmax(score, axis=1)
    if sums is not None:
        _fill(field, places, labels, gaussians, sums)
    return fit, labels


def second_moments(
    field: Field, places: Array, labels: Array, gaussians: Gaussians
) -> tuple[Array, Array]:
    """Sums of ``E[x x^T]`` over the patches of each Gaussian, channels averaged.

    Also the patches with their missing pixels filled in, (patches, channels, n).
    """
    S, channels = np.zeros_like(gaussians.K), len(field.values)
    patches = np.empty((len(places), channels, len(field.offsets)))
    for batch in batches(field, places):
        mine = labels[batch.some]
        K = gaussians.K[mine]
        inverse, _ = inverses(K, gaussians.noise, batch.known)
        guess = batch.values @ inverse @ K
        z = np.where(batch.known[:, None] > 0.0, batch.values, guess)
        patches[batch.some] = z
        scaled = z / (channels * gaussians.scales[mine][:, :, None])
        lost = 1.0 - batch.known
        both = spread(K, gaussians.noise, inverse) * lost[:, :, None] * lost[:, None, :]
        np.add.at(S, mine, both + np.swapaxes(scaled, 1, 2) @ z)
    return S, patches


def _fill(
    field: Field, places: Array, labels: Array, gaussians: Gaussians, sums: Sums
) -> None:
    """Add what patches say of missing pixels, each by its Gaussian."""
    least = LEAST * gaussians.noise
    for batch in batches(field, places):
        K = gaussians.K[labels[batch.some]]
        inverse, _ = inverses(K, gaussians.noise, batch.known)
        guess = batch.values @ inverse @ K
        variance = np.diagonal(spread(K, gaussians.noise, inverse), axis1=1, axis2=2)
        found = Found(batch.known, guess, np.maximum(variance, least))
        add_pixels(field, places[batch.some], found, sums)


@dataclass(frozen=True)
class Found:
    """What patches say: known pixels (1 or 0), values of all channels, variances."""

    known: Array
    guess: Array
    variance: Array


def add_pixels(field: Field, places: Array, found: Found, sums: Sums) -> None:
    """Add the missing pixels of patches to the sums, the surer the heavier."""
    weight = 1.0 / found.variance
    patch, pixel = np.nonzero(found.known == 0.0)
    at = places[patch] + field.offsets[pixel] - sums.first
    np.add.at(sums.den[0], at, weight[patch, pixel])
    np.add.at(sums.den[1], at, 1.0)
    for c, num in enumerate(sums.num):
        np.add.at(num, at, (weight * found.guess[:, c])[patch, pixel])
