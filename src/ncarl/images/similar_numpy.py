"""The second pass in plain NumPy: the answers of the Numba kernel, more slowly."""

from __future__ import annotations

import numpy as np

from ncarl.core.types import Array
from ncarl.images.field import Field, Sums
from ncarl.images.gaussians import Gaussians
from ncarl.images.patches_numpy import (
    LEAST,
    Found,
    add_pixels,
    batches,
    inverses,
    spread,
)


def nearest(field: Field, estimate: Array, place: int, reach: int, most: int) -> Array:
    """Places of the patches most like one, itself among them."""
    _, height, width = field.size
    tall, wide = field.side
    y, x = divmod(int(place), width)
    rows = np.arange(max(0, y - reach), min(height - tall, y + reach) + 1)
    columns = np.arange(max(0, x - reach), min(width - wide, x + reach) + 1)
    around = (rows[:, None] * width + columns).ravel()
    others = estimate[:, around[:, None] + field.offsets]
    here = estimate[:, None, place + field.offsets]
    found = np.sum((others - here).astype(np.float64) ** 2, axis=(0, 2))
    size = min(most, len(found))
    limit = np.partition(found, size - 1)[size - 1]
    close: Array = around[np.flatnonzero(found <= limit)[:size]]
    return close


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
    channels, least = len(field.values), LEAST * gaussians.noise
    for batch in batches(field, places):
        K, means = [], []
        for place, label in zip(places[batch.some], labels[batch.some], strict=True):
            close = nearest(field, estimate, place, reach, most)
            Z = estimate[:, close[:, None] + field.offsets].astype(np.float64)
            mean = Z.mean(axis=1)
            Z = (Z - mean[:, None]).reshape(-1, len(field.offsets))
            mixed = Z.T @ Z / channels + strength * gaussians.K[label]
            K.append(mixed / (len(close) + strength))
            means.append(mean)
        middle, kernels = np.stack(means), np.stack(K)
        inverse, _ = inverses(kernels, gaussians.noise, batch.known)
        off = (batch.values - middle) * batch.known[:, None]
        guess = middle + off @ inverse @ kernels
        doubt = spread(kernels, gaussians.noise, inverse)
        variance = np.diagonal(doubt, axis1=1, axis2=2)
        found = Found(batch.known, guess, np.maximum(variance, least))
        add_pixels(field, places[batch.some], found, sums)
