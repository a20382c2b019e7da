"""Patch kernels in NumPy: the results of `patches_numba`, more slowly.

Missing pixels are rows and columns of the identity in blocks of full size, so that many
patches are factorized in one batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ncarl.core.types import Array
from ncarl.images.patches import (
    MIN_VARIANCE_RATIO,
    PatchField,
    PatchGaussianMixture,
    PixelSums,
)

#: Most elements of a batch of blocks.
BATCH_ELEMENTS = 2_000_000


@dataclass(frozen=True)
class PatchBatch:
    """Some of the patches."""

    patch_slice: slice  # their places among all
    observed: Array  # 1 at observed pixels, else 0; shape (patches, n)
    values: Array  # 0 at missing pixels; shape (patches, channels, n)


@dataclass(frozen=True)
class PatchPrediction:
    """Conditional means and variances of the pixels of patches."""

    observed: Array  # 1 at observed pixels, else 0; shape (patches, n)
    means: Array  # shape (patches, channels, n)
    variance: Array  # shape (patches, n)


def assign(
    field: PatchField,
    places: Array,
    gaussians: PatchGaussianMixture,
    sums: PixelSums | None = None,
) -> tuple[Array, Array]:
    """Energies (patches, components, channels) and most likely components of patches.

    Predictions of missing pixels are added to ``sums`` if given.
    """
    shape = (len(places), gaussians.n_components)
    energies, scores = np.empty((*shape, len(field.values))), np.empty(shape)
    scales, channels = gaussians.scales, len(field.values)
    for batch in iter_batches(field, places):
        counts = batch.observed.sum(axis=1)
        for g in range(gaussians.n_components):
            inverse, log_det = observed_inverses(
                gaussians.K[g], gaussians.noise, batch.observed
            )
            energy = np.sum((batch.values @ inverse) * batch.values, axis=2)
            total = np.sum(energy / scales[g], axis=1) + channels * log_det
            total += counts * np.log(scales[g]).sum()
            energies[batch.patch_slice, g] = energy
            scores[batch.patch_slice, g] = gaussians.log_weights[g] - 0.5 * total
    labels: Array = np.argmax(scores, axis=1)
    if sums is not None:
        _accumulate_missing(field, places, labels, gaussians, sums)
    return energies, labels


def second_moments(
    field: PatchField, places: Array, labels: Array, gaussians: PatchGaussianMixture
) -> tuple[Array, Array]:
    """Sums of ``E[x x^T]`` over the patches of each component, channels averaged.

    Also the patches with their missing pixels filled in, (patches, channels, n).
    """
    S, channels = np.zeros_like(gaussians.K), len(field.values)
    patches = np.empty((len(places), channels, len(field.offsets)))
    for batch in iter_batches(field, places):
        components = labels[batch.patch_slice]
        K = gaussians.K[components]
        inverse, _ = observed_inverses(K, gaussians.noise, batch.observed)
        guess = batch.values @ inverse @ K
        z = np.where(batch.observed[:, None] > 0.0, batch.values, guess)
        patches[batch.patch_slice] = z
        scaled = z / (channels * gaussians.scales[components][:, :, None])
        missing = 1.0 - batch.observed
        covariance = (
            conditional_covariances(K, gaussians.noise, inverse)
            * missing[:, :, None]
            * missing[:, None, :]
        )
        np.add.at(S, components, covariance + np.swapaxes(scaled, 1, 2) @ z)
    return S, patches


def refine(
    field: PatchField,
    places: Array,
    labels: Array,
    gaussians: PatchGaussianMixture,
    estimate: Array,
    radius: int,
    max_patches: int,
    prior_count: float,
    sums: PixelSums,
) -> None:
    """Add predictions of missing pixels by similar patches to ``sums``."""
    channels, least = len(field.values), MIN_VARIANCE_RATIO * gaussians.noise
    for batch in iter_batches(field, places):
        K, means = [], []
        for place, label in zip(
            places[batch.patch_slice], labels[batch.patch_slice], strict=True
        ):
            close = nearest_patches(field, estimate, place, radius, max_patches)
            Z = estimate[:, close[:, None] + field.offsets].astype(np.float64)
            mean = Z.mean(axis=1)
            Z = (Z - mean[:, None]).reshape(-1, len(field.offsets))
            total = Z.T @ Z / channels + prior_count * gaussians.K[label]
            K.append(total / (len(close) + prior_count))
            means.append(mean)
        center, kernels = np.stack(means), np.stack(K)
        inverse, _ = observed_inverses(kernels, gaussians.noise, batch.observed)
        residuals = (batch.values - center) * batch.observed[:, None]
        guess = center + residuals @ inverse @ kernels
        covariance = conditional_covariances(kernels, gaussians.noise, inverse)
        variance = np.diagonal(covariance, axis1=1, axis2=2)
        prediction = PatchPrediction(batch.observed, guess, np.maximum(variance, least))
        accumulate_pixels(field, places[batch.patch_slice], prediction, sums)


def nearest_patches(
    field: PatchField, estimate: Array, place: int, radius: int, max_patches: int
) -> Array:
    """Places of the patches most similar to one, itself included."""
    _, height, width = field.size
    tall, wide = field.patch_shape
    y, x = divmod(int(place), width)
    rows = np.arange(max(0, y - radius), min(height - tall, y + radius) + 1)
    columns = np.arange(max(0, x - radius), min(width - wide, x + radius) + 1)
    around = (rows[:, None] * width + columns).ravel()
    others = estimate[:, around[:, None] + field.offsets]
    here = estimate[:, None, place + field.offsets]
    distances = np.sum((others - here).astype(np.float64) ** 2, axis=(0, 2))
    size = min(max_patches, len(distances))
    limit = np.partition(distances, size - 1)[size - 1]
    close: Array = around[np.flatnonzero(distances <= limit)[:size]]
    return close


def _accumulate_missing(
    field: PatchField,
    places: Array,
    labels: Array,
    gaussians: PatchGaussianMixture,
    sums: PixelSums,
) -> None:
    """Add predictions of missing pixels, by the component of each patch."""
    least = MIN_VARIANCE_RATIO * gaussians.noise
    for batch in iter_batches(field, places):
        K = gaussians.K[labels[batch.patch_slice]]
        inverse, _ = observed_inverses(K, gaussians.noise, batch.observed)
        guess = batch.values @ inverse @ K
        variance = np.diagonal(
            conditional_covariances(K, gaussians.noise, inverse), axis1=1, axis2=2
        )
        prediction = PatchPrediction(batch.observed, guess, np.maximum(variance, least))
        accumulate_pixels(field, places[batch.patch_slice], prediction, sums)


def accumulate_pixels(
    field: PatchField, places: Array, prediction: PatchPrediction, sums: PixelSums
) -> None:
    """Add the missing pixels of patches to the sums, weighted by their precision."""
    weight = 1.0 / prediction.variance
    patch, pixel = np.nonzero(prediction.observed == 0.0)
    at = places[patch] + field.offsets[pixel] - sums.first
    np.add.at(sums.den[0], at, weight[patch, pixel])
    np.add.at(sums.den[1], at, 1.0)
    for c, num in enumerate(sums.num):
        np.add.at(num, at, (weight * prediction.means[:, c])[patch, pixel])


def iter_batches(field: PatchField, places: Array) -> Iterator[PatchBatch]:
    """Batches of patches of at most `BATCH_ELEMENTS`."""
    size = max(1, BATCH_ELEMENTS // len(field.offsets) ** 2)
    for first in range(0, len(places), size):
        part = slice(first, first + size)
        at = places[part, None] + field.offsets
        observed = field.observed[at]
        values = np.where(observed, field.values[:, at].astype(np.float64), 0.0)
        yield PatchBatch(part, observed.astype(np.float64), values.swapaxes(0, 1))


def observed_inverses(K: Array, noise: float, observed: Array) -> tuple[Array, Array]:
    """Inverses of ``K_oo + s I``, zero elsewhere, and their log determinants.

    ``K`` is one matrix, or one for each patch.
    """
    pairs = observed[:, :, None] * observed[:, None, :]
    A = K * pairs
    diagonal = np.arange(A.shape[1])
    A[:, diagonal, diagonal] += np.where(observed > 0.0, noise, 1.0)
    factor = np.linalg.cholesky(A)
    half = np.linalg.inv(factor)
    log_det = 2.0 * np.log(factor[:, diagonal, diagonal]).sum(axis=1)
    return (np.swapaxes(half, 1, 2) @ half) * pairs, log_det


def conditional_covariances(K: Array, noise: float, inverse: Array) -> Array:
    """Covariances of all pixels, noise included, given the observed ones."""
    return K + noise * np.eye(K.shape[-1]) - K @ inverse @ K
