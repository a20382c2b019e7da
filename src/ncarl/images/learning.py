"""Gaussians of patches, learned from a picture with gaps by expectation-maximisation.

One Gaussian comes first. What it says of the missing pixels tells flat patches, edges
by their direction, and texture apart, and each kind begins with a Gaussian of its own;
from there every patch goes to the Gaussian under which what is known of it is
likeliest. Covariances are drawn towards the one Gaussian, the more the fewer patches
they have.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ncarl.core.types import Array
from ncarl.engines import Threads
from ncarl.images.field import Field
from ncarl.images.gaussians import Gaussians, make_gaussians
from ncarl.images.passes import kernels

#: Patches to learn from, and those that the one Gaussian is learned from.
SAMPLE, FIRST_SAMPLE = 4000, 1500
#: A patch to learn from has at least this part of its pixels known.
LEAST_KNOWN = 0.1
#: Steps of the one Gaussian, and of the several.
FIRST_STEPS, STEPS = 4, 3
#: Patches that the one Gaussian counts as in each of the several.
STRENGTH = 20.0
#: The same for scales of channels.
SCALE_STRENGTH = 50.0
#: Least variance of a channel, in that of the first.
LEAST_SCALE = 1e-3
#: Directions of edges, and levels of contrast.
DIRECTIONS, LEVELS = 6, 4
#: A patch whose contrast has a direction: the part of it that has.
DIRECTED = 0.5
#: Fewer patches than this are not told apart.
FEW = 300
#: Pixels over which the correlation falls by e to begin with.
RANGE = 12.0
#: Variance of the noise, in the variance of the first channel.
NOISE = 2e-4


def learn(field: Field, colours: Array, rng: np.random.Generator) -> Gaussians:
    """Gaussians for the patches of a picture.

    Parameters
    ----------
    field : Field
        The picture; its first channel has about unit variance.
    colours : array of shape (layers, layers)
        Covariance of the layers.
    rng : numpy.random.Generator
        Which patches to learn from.
    """
    places = sample(field, rng)
    model = _first(field, colours)
    few = places[:FIRST_SAMPLE]
    alone = np.zeros(len(few), dtype=np.int64)
    for _ in range(FIRST_STEPS):
        model = _step(field, few, alone, model, model.K)
    if len(places) < FEW:
        return model
    labels = _kinds(field, places, model)
    count = int(labels.max()) + 1
    prior, scales = np.repeat(model.K, count, axis=0), model.scales
    model = make_gaussians(
        prior, np.repeat(scales, count, axis=0), np.zeros(count), model.noise
    )
    model = _step(field, places, labels, model, prior)
    for _ in range(STEPS):
        fit, labels = _assigned(field, places, model)
        model = _rescaled(model, fit, labels, scales)
        model = _step(field, places, labels, model, prior)
    return model


def sample(field: Field, rng: np.random.Generator) -> Array:
    """Places to learn from, in random order; with much known if there are such."""
    counts = field.known_counts().ravel()
    every = field.places(1)
    enough = every[counts[every] >= max(1.0, LEAST_KNOWN * len(field.offsets))]
    pool = enough if len(enough) else every[counts[every] > 0]
    chosen: Array = pool[rng.permutation(len(pool))[:SAMPLE]]
    return chosen


def _first(field: Field, colours: Array) -> Gaussians:
    """The Gaussian to begin with: correlation falls with distance."""
    tall, wide = field.side
    row, column = np.divmod(np.arange(tall * wide), wide)
    apart = np.hypot(row[:, None] - row, column[:, None] - column)
    K = np.kron(colours, np.exp(-apart / RANGE))
    known = field.values[:, field.known]
    spread = np.mean(known.astype(np.float64) ** 2, axis=1)
    scales = np.maximum(spread / max(float(spread[0]), 1e-300), LEAST_SCALE)
    return make_gaussians(K[None], scales[None], np.zeros(1), NOISE)


def _chunks(count: int) -> list[Array]:
    """Numbers of patches, in parts for threads; the parts do not depend on those."""
    return np.array_split(np.arange(count), min(8, max(1, count // 50)))


def _assigned(field: Field, places: Array, model: Gaussians) -> tuple[Array, Array]:
    """Energies and likeliest Gaussians of patches."""

    def work(some: Array, *, kind: str) -> tuple[Array, Array]:
        found: tuple[Array, Array] = kernels("patches", kind).assign(
            field, places[some], model
        )
        return found

    parts = list(Threads().map(work, _chunks(len(places))))
    fit, labels = (np.concatenate([part[k] for part in parts]) for k in (0, 1))
    return fit, labels


def _moments(
    field: Field, places: Array, labels: Array, model: Gaussians
) -> tuple[Array, Array]:
    """Sums of second moments by Gaussian, and the completed patches."""

    def work(some: Array, *, kind: str) -> tuple[Array, Array]:
        found: tuple[Array, Array] = kernels("patches", kind).second_moments(
            field, places[some], labels[some], model
        )
        return found

    parts = list(Threads().map(work, _chunks(len(places))))
    return sum(part[0] for part in parts), np.concatenate([part[1] for part in parts])


def _step(
    field: Field,
    places: Array,
    labels: Array,
    model: Gaussians,
    prior: Array,
) -> Gaussians:
    """Covariances that make the patches of each Gaussian likelier."""
    S, _ = _moments(field, places, labels, model)
    counts = np.bincount(labels, minlength=model.count).astype(np.float64)
    shifted = (S + STRENGTH * prior) / (counts + STRENGTH)[:, None, None]
    K = shifted - model.noise * np.eye(S.shape[1])
    return make_gaussians(K, model.scales, counts, model.noise)


def _rescaled(model: Gaussians, fit: Array, labels: Array, scales: Array) -> Gaussians:
    """The model with variances of channels as its patches have them."""
    found = model.scales.copy()
    for g in range(model.count):
        mine = fit[labels == g, g]
        if len(mine) == 0:
            continue
        total = mine.sum(axis=0) + SCALE_STRENGTH * scales[0] * mine[:, 0].mean()
        found[g] = np.maximum(total / max(float(total[0]), 1e-300), LEAST_SCALE)
    return replace(model, scales=found)


def _kinds(field: Field, places: Array, model: Gaussians) -> Array:
    """Labels of patches by contrast, and by direction where they have one."""
    alone = np.zeros(len(places), dtype=np.int64)
    _, completed = _moments(field, places, alone, model)
    patches = completed.reshape(len(places), -1, *field.side)
    down = np.diff(patches, axis=2)[..., :-1] + np.diff(patches, axis=2)[..., 1:]
    right = np.diff(patches, axis=3)[..., :-1, :] + np.diff(patches, axis=3)[..., 1:, :]
    rows, columns, both = (
        x.sum(axis=(1, 2, 3)) for x in (down * down, right * right, down * right)
    )
    contrast = rows + columns
    split = np.quantile(contrast, np.linspace(0, 1, LEVELS + 1)[1:-1])
    level = np.searchsorted(split, contrast)
    directed = np.hypot(columns - rows, 2 * both) > DIRECTED * contrast
    angle = 0.5 * np.arctan2(2 * both, columns - rows) / np.pi + 0.5
    turn = np.floor(angle * DIRECTIONS + 0.5).astype(np.int64) % DIRECTIONS
    strong = level == LEVELS - 1
    edges = LEVELS + turn + DIRECTIONS * strong
    found: Array = np.where(directed & (level >= LEVELS // 2), edges, level)
    return np.unique(found, return_inverse=True)[1]
