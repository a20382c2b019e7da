"""Patch kernels in NumPy, for installations without Numba: `patches_numba`, slower.

Missing pixels are rows and columns of the identity in blocks of full size, so that many
patches are factorized in one batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ncarl.core.types import Array
from ncarl.images.patches import (
    MIN_VARIANCE_RATIO,
    PatchField,
    PatchGaussianMixture,
    PatchSearch,
    PixelSums,
)

#: Maximum number of elements of a batch of blocks.
BATCH_ELEMENTS = 2_000_000


def assign(
    field: PatchField,
    places: Array,
    gaussians: PatchGaussianMixture,
    sums: PixelSums | None = None,
) -> tuple[Array, Array]:
    """See `patches_numba.assign`."""
    shape, channels = (len(places), len(gaussians.K)), len(field.values)
    energies, scores = np.empty((*shape, channels)), np.empty(shape)
    scales, noise = gaussians.scales, gaussians.noise
    for part, observed, values in _iter_batches(field, places):
        counts = observed.sum(axis=1)
        for g in range(len(gaussians.K)):
            inverse, log_det = _observed_inverses(gaussians.K[g], noise, observed)
            energy = np.sum((values @ inverse) * values, axis=2)
            total = np.sum(energy / scales[g], axis=1) + channels * log_det
            total += counts * np.log(scales[g]).sum()
            energies[part, g] = energy
            scores[part, g] = gaussians.log_weights[g] - 0.5 * total
    labels = np.argmax(scores, axis=1)
    if sums is not None:
        for part, observed, values in _iter_batches(field, places):
            K = gaussians.K[labels[part]]
            _add_missing(field, places[part], K, noise, 0.0, observed, values, sums)
    return energies, labels


def second_moments(
    field: PatchField, places: Array, labels: Array, gaussians: PatchGaussianMixture
) -> tuple[Array, Array]:
    """See `patches_numba.second_moments`."""
    S, channels = np.zeros_like(gaussians.K), len(field.values)
    patches = np.empty((len(places), channels, len(field.offsets)))
    for part, observed, values in _iter_batches(field, places):
        components = labels[part]
        K = gaussians.K[components]
        inverse, _ = _observed_inverses(K, gaussians.noise, observed)
        z = np.where(observed[:, None] > 0.0, values, values @ inverse @ K)
        patches[part] = z
        scaled = z / (channels * gaussians.scales[components][:, :, None])
        missing = 1.0 - observed
        covariance = _conditional_covariances(K, gaussians.noise, inverse)
        covariance *= missing[:, :, None] * missing[:, None, :]
        np.add.at(S, components, covariance + np.swapaxes(scaled, 1, 2) @ z)
    return S, patches


def refine(
    field: PatchField, places: Array, labels: Array, gaussians: PatchGaussianMixture,
    estimate: Array, search: PatchSearch, sums: PixelSums,
) -> None:  # fmt: skip
    """See `patches_numba.refine`."""
    channels = len(field.values)
    for part, observed, values in _iter_batches(field, places):
        K, means = [], []
        for place, label in zip(places[part], labels[part], strict=True):
            close = _nearest_patches(field, estimate, place, search)
            Z = estimate[:, close[:, None] + field.offsets].astype(np.float64)
            mean = Z.mean(axis=1)
            Z = (Z - mean[:, None]).reshape(-1, len(field.offsets))
            total = Z.T @ Z / channels + search.prior_count * gaussians.K[label]
            K.append(total / (len(close) + search.prior_count))
            means.append(mean)
        _add_missing(
            field, places[part], np.stack(K), gaussians.noise, np.stack(means),
            observed, values, sums,
        )  # fmt: skip


def _nearest_patches(
    field: PatchField, estimate: Array, place: int, search: PatchSearch
) -> Array:
    _, height, width = field.size
    tall, wide = field.patch_shape
    (y, x), radius = divmod(int(place), width), search.radius
    rows = np.arange(max(0, y - radius), min(height - tall, y + radius) + 1)
    columns = np.arange(max(0, x - radius), min(width - wide, x + radius) + 1)
    around = (rows[:, None] * width + columns).ravel()
    others = estimate[:, around[:, None] + field.offsets]
    here = estimate[:, None, place + field.offsets]
    distances = np.sum((others - here).astype(np.float64) ** 2, axis=(0, 2))
    size = min(search.max_patches, len(distances))
    limit = np.partition(distances, size - 1)[size - 1]
    return around[np.flatnonzero(distances <= limit)[:size]]


def _add_missing(
    field: PatchField, places: Array, K: Array, noise: float, center: Any,
    observed: Array, values: Array, sums: PixelSums,
) -> None:  # fmt: skip
    """Add predictions of missing pixels to the sums, weighted by their precision."""
    inverse, _ = _observed_inverses(K, noise, observed)
    means = center + ((values - center) * observed[:, None]) @ inverse @ K
    covariance = _conditional_covariances(K, noise, inverse)
    variance = np.diagonal(covariance, axis1=1, axis2=2)
    weight = 1.0 / np.maximum(variance, MIN_VARIANCE_RATIO * noise)
    patch, pixel = np.nonzero(observed == 0.0)
    at = places[patch] + field.offsets[pixel] - sums.first
    np.add.at(sums.den[0], at, weight[patch, pixel])
    np.add.at(sums.den[1], at, 1.0)
    for c, num in enumerate(sums.num):
        np.add.at(num, at, (weight * means[:, c])[patch, pixel])


def _iter_batches(
    field: PatchField, places: Array
) -> Iterator[tuple[slice, Array, Array]]:
    """Slices, masks (patches, n) and values (patches, channels, n), 0 where missing."""
    size = max(1, BATCH_ELEMENTS // len(field.offsets) ** 2)
    for first in range(0, len(places), size):
        part = slice(first, first + size)
        at = places[part, None] + field.offsets
        observed = field.observed[at]
        values = np.where(observed, field.values[:, at].astype(np.float64), 0.0)
        yield part, observed.astype(np.float64), values.swapaxes(0, 1)


def _observed_inverses(K: Array, noise: float, observed: Array) -> tuple[Array, Array]:
    """Inverses of ``K_oo + s I`` (0 elsewhere), log determinants; one or many ``K``."""
    pairs = observed[:, :, None] * observed[:, None, :]
    A = K * pairs
    diagonal = np.arange(A.shape[1])
    A[:, diagonal, diagonal] += np.where(observed > 0.0, noise, 1.0)
    factor = np.linalg.cholesky(A)
    half = np.linalg.inv(factor)
    log_det = 2.0 * np.log(factor[:, diagonal, diagonal]).sum(axis=1)
    return (np.swapaxes(half, 1, 2) @ half) * pairs, log_det


def _conditional_covariances(K: Array, noise: float, inverse: Array) -> Array:
    """Covariances of all pixels, noise included, given the observed ones."""
    return K + noise * np.eye(K.shape[-1]) - K @ inverse @ K
