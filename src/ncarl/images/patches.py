"""Inpainting by patches: a Gaussian mixture of patches, learned and applied in passes.

`fill_planes` learns the mixture from the patches of one image (`fit_mixture`, EM),
fills the missing pixels by their conditional means in a first pass, and refines them in
later passes with the covariance of similar patches nearby. Pixels far from every
observed one are taken from the image at half its size. The work on single patches is
done by `patches_numba` or `patches_numpy`, see `kernel_module`.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.linalg import eigh
from scipy.ndimage import distance_transform_cdt

from ncarl.core.rows import row_backend
from ncarl.core.types import Array, cached_property
from ncarl.engines.threads import Threads

#: Side of a patch by number of layers, which keeps its number of pixels about equal,
#: and the side for more layers.
PATCH_SIDES = {1: 8, 2: 6}
MIN_PATCH_SIDE = 5
#: Distance between neighboring patches, in pixels.
STRIDE = 2
#: Side of the tiles into which a large image is cut.
TILE_SIDE = 512
#: Pixels farther than this from every observed one are filled from a coarser image.
MAX_FILL_DISTANCE = 5
#: Passes after the first one.
N_REFINEMENT_PASSES = 3
#: Maximum number of patches of a part, the unit of work of a thread.
PATCHES_PER_PART = 2500
#: Minimum number of parts, whatever the machine, so that sums are the same on all.
MIN_PARTS = 8
#: Patches that the mixture, and the single Gaussian before it, are learned from.
N_PATCHES, N_FIRST_PATCHES = 4000, 1500
#: Minimum fraction of observed pixels of a patch to learn from.
MIN_OBSERVED_FRACTION = 0.1
#: With fewer patches than this, a single Gaussian is learned.
MIN_MIXTURE_PATCHES = 300
#: EM steps for the single Gaussian, and for the mixture.
N_FIRST_EM_STEPS, N_EM_STEPS = 4, 3
#: Patches that the single Gaussian counts as in each component of the mixture.
COVARIANCE_PRIOR_COUNT = 20.0
#: The same for the scales of the channels.
SCALE_PRIOR_COUNT = 50.0
#: Minimum variance of a channel, relative to the first channel.
MIN_SCALE = 1e-3
#: Minimum eigenvalue of a covariance, relative to the noise variance.
MIN_EIGENVALUE_RATIO = 1e-3
#: Minimum conditional variance of a missing pixel, relative to the noise variance.
MIN_VARIANCE_RATIO = 1e-3
#: Distance in pixels over which the initial correlation falls by a factor of e.
CORRELATION_LENGTH = 12.0
#: Variance of the noise, relative to the variance of the first channel.
NOISE_VARIANCE = 2e-4
#: Edge directions and contrast levels of the initial components.
N_DIRECTIONS, N_CONTRAST_LEVELS = 6, 4
#: Minimum coherence of the gradients of a patch that counts as an edge.
MIN_COHERENCE = 0.5


@dataclass(frozen=True)
class ImagePlanes:
    """An image as standardized planes: the first channel has about unit variance."""

    values: Array  # (channels, layers, height, width); anything at missing pixels
    observed: Array  # (layers, height, width), mask of the observed pixels
    layer_covariance: Array  # (layers, layers)

    def patch_field(self, rows: slice, columns: slice) -> PatchField:
        """A rectangle of the image as a `PatchField`."""
        observed = self.observed[:, rows, columns]
        part = self.values[:, :, rows, columns]
        values = np.where(observed, part, 0.0).astype(np.float32)
        # A single memory layout, so that the kernels are compiled once.
        return PatchField(
            np.ascontiguousarray(values.reshape(len(part), -1)),
            np.ascontiguousarray(observed.ravel()),
            observed.shape,
        )


@dataclass(frozen=True)
class PatchField:
    """Pixels of an image, or of a tile of it, in the layout of the patch kernels.

    Channels that share one mask share every factorization. Channels with masks of
    their own are stacked as layers instead, and a patch spans all of them.
    """

    values: Array  # (channels, pixels); any finite number at missing ones
    observed: Array  # (pixels,), mask of the pixels that are observed in all channels
    size: tuple[int, int, int]  # layers, height and width

    @property
    def patch_shape(self) -> tuple[int, int]:
        """Height and width of a patch."""
        layers, height, width = self.size
        side = PATCH_SIDES.get(layers, MIN_PATCH_SIDE)
        return min(side, height), min(side, width)

    @cached_property
    def offsets(self) -> Array:
        """Flat indices of the pixels of a patch, relative to its first pixel."""
        layers, height, width = self.size
        tall, wide = self.patch_shape
        layer = np.arange(layers)[:, None, None] * (height * width)
        across = np.arange(tall)[:, None] * width + np.arange(wide)
        return (layer + across).ravel().astype(np.int64)

    def places(self, stride: int) -> Array:
        """Flat indices of the first pixels of patches on a grid, far edges included."""
        _, height, width = self.size
        tall, wide = self.patch_shape
        rows, columns = (
            np.unique(np.append(np.arange(0, last + 1, stride), last))
            for last in (height - tall, width - wide)
        )
        return (rows[:, None] * width + columns).ravel()

    def observed_counts(self) -> Array:
        """Number of observed pixels of the patch at every place, 0 near far edges."""
        layers, height, width = self.size
        tall, wide = self.patch_shape
        per_pixel = self.observed.reshape(layers, height, width).sum(axis=0)
        total = np.zeros((height + 1, width + 1), dtype=np.int64)
        total[1:, 1:] = per_pixel.cumsum(axis=0).cumsum(axis=1)
        counts = np.zeros((height, width), dtype=np.int64)
        counts[: height - tall + 1, : width - wide + 1] = (
            total[tall:, wide:] - total[:-tall, wide:]
            - total[tall:, :-wide] + total[:-tall, :-wide]
        )  # fmt: skip
        return counts

    def incomplete_places(self, stride: int) -> Array:
        """Places on the grid whose patch has a missing pixel."""
        places = self.places(stride)
        counts = self.observed_counts().ravel()[places]
        return places[counts < len(self.offsets)]


@dataclass(frozen=True)
class PatchGaussianMixture:
    """Mixture of zero-mean Gaussians of patches, ``x ~ N(0, scale K)``, plus noise."""

    K: Array  # (components, n, n), covariances of the pixels in the first channel
    P: Array  # (components, n, n), inverses of K + noise I
    log_det: Array  # (components,), log|K + noise I|
    scales: Array  # (components, channels), variances relative to the first channel
    log_weights: Array  # (components,), logarithms of the mixture weights
    noise: float  # variance of the noise


@dataclass(frozen=True)
class PatchSearch:
    """How similar patches are searched for and weighted."""

    radius: int  # farthest distance, in pixels
    max_patches: int  # number of most similar patches to take
    prior_count: float  # patches that the Gaussian of the first pass counts as


#: Search of the passes after the first.
SEARCH = PatchSearch(radius=10, max_patches=70, prior_count=2.0)


@dataclass(frozen=True)
class PixelSums:
    """Sums over patches for a range of pixels, from which their means follow."""

    first: int  # first pixel of the range
    num: Array  # weights times values, shape (channels, pixels)
    den: Array  # weights, and number of patches, shape (2, pixels)


def fill_planes(
    planes: ImagePlanes, rng: np.random.Generator, advance: Callable[[str], None]
) -> tuple[Array, Array]:
    """Completed planes and variances of filled pixels, in the shapes of ``planes``.

    ``rng`` draws the patches to learn from, and ``advance`` is called with a text after
    each of the `count_stages` stages.
    """
    near = planes
    deep = _far_from_observed(planes.observed)
    values, variance = planes.values.copy(), np.zeros(planes.observed.shape, np.float32)
    _, height, width = planes.observed.shape
    if deep.any():
        half_size = _downsample(planes.values, planes.observed)
        small = ImagePlanes(*half_size, planes.layer_covariance)
        coarse, coarse_variance = fill_planes(small, rng, advance)
        values[:, deep] = _upsample(coarse, height, width)[:, deep]
        variance[deep] = _upsample(coarse_variance, height, width)[deep]
        near = ImagePlanes(values, planes.observed | deep, planes.layer_covariance)
    whole = planes.patch_field(slice(0, height), slice(0, width))
    model = fit_mixture(whole, planes.layer_covariance, rng)
    advance("learned")
    for inner, outer in _tiles(height, width):
        part = near.patch_field(*outer)
        guess, guess_variance = _run_passes(part, model, advance)
        sides = zip(inner, outer, strict=True)
        here = tuple(slice(i.start - o.start, i.stop - o.start) for i, o in sides)
        fresh = ~near.observed[:, *inner]
        tile = guess.reshape(-1, *part.size)[:, :, *here]
        values[:, :, *inner][:, fresh] = tile[:, fresh]
        variance[:, *inner][fresh] = guess_variance.reshape(part.size)[:, *here][fresh]
    return values, variance


def count_stages(observed: Array) -> int:
    """Number of stages that `fill_planes` reports for a mask of observed pixels."""
    _, height, width = observed.shape
    here = 1 + (1 + N_REFINEMENT_PASSES) * len(list(_tiles(height, width)))
    if not _far_from_observed(observed).any():
        return here
    return here + count_stages(_downsample(observed[None], observed)[1])


def _tiles(height: int, width: int) -> Iterator[tuple[tuple[slice, slice], ...]]:
    margin = SEARCH.radius + 8
    for top in range(0, height, TILE_SIDE):
        for left in range(0, width, TILE_SIDE):
            bottom, right = min(top + TILE_SIDE, height), min(left + TILE_SIDE, width)
            inner = (slice(top, bottom), slice(left, right))
            outer = (
                slice(max(0, top - margin), min(height, bottom + margin)),
                slice(max(0, left - margin), min(width, right + margin)),
            )
            yield inner, outer


def _far_from_observed(observed: Array) -> Array:
    """Mask of missing pixels with no observed pixel near them in any layer."""
    some = observed.any(axis=0)
    if some.all():
        return np.zeros(observed.shape, dtype=bool)
    away = distance_transform_cdt(~some, "chessboard") > MAX_FILL_DISTANCE
    return np.broadcast_to(away, observed.shape)


def _downsample(values: Array, observed: Array) -> tuple[Array, Array]:
    """Means of the observed pixels in blocks of 2 x 2, and the mask of those means."""
    height, width = observed.shape[-2:]
    odd = ((0, 0), (0, height % 2), (0, width % 2))
    there = np.pad(observed, odd)
    padded = np.pad(np.where(observed, values, 0.0), ((0, 0), *odd))

    def blocks(array: Array) -> Array:
        *front, tall, wide = array.shape
        return array.reshape(*front, tall // 2, 2, wide // 2, 2).sum(axis=(-3, -1))

    count = blocks(there.astype(np.float64))
    return blocks(padded) / np.maximum(count, 1.0), count > 0.0


def _interpolation_weights(size: int) -> tuple[Array, Array, Array]:
    """Indices of the two coarse pixels around each fine one, weight of the second."""
    half = -(-size // 2)
    at = np.clip((np.arange(size) - 0.5) / 2.0, 0.0, half - 1.0)
    first = np.minimum(np.floor(at).astype(np.int64), max(half - 2, 0))
    return first, np.minimum(first + 1, half - 1), at - first


def _upsample(array: Array, height: int, width: int) -> Array:
    top, bottom, down = _interpolation_weights(height)
    left, right, across = _interpolation_weights(width)
    down = down[:, None]
    tall = array[..., top, :] * (1 - down) + array[..., bottom, :] * down
    return tall[..., left] * (1 - across) + tall[..., right] * across


def _run_passes(
    field: PatchField, model: PatchGaussianMixture, advance: Callable[[str], None]
) -> tuple[Array, Array]:
    """Values and variances of a tile after the first pass and all refinement passes."""
    places = field.incomplete_places(STRIDE)
    n_parts = max(math.ceil(len(places) / PATCHES_PER_PART), MIN_PARTS)
    parts = cut_strips(field, places, n_parts)
    values, labels = None, [None] * len(parts)
    for k in range(1 + N_REFINEMENT_PASSES):
        work_items = list(zip(parts, labels, strict=True))
        work = Threads().map(
            _fill_part, work_items, field=field, model=model, estimate=values
        )
        values, variance, labels = _merge_parts(field, work)
        advance(f"pass {k + 1}")
    return values, variance


def cut_strips(field: PatchField, places: Array, n_strips: int) -> list[Array]:
    """Cut increasing places into about equal parts of whole image rows."""
    if len(places) == 0:
        return []
    rows = places // field.size[2]
    ends = [len(places) * k // n_strips for k in range(1, n_strips)]
    cuts = sorted({int(np.searchsorted(rows, rows[end])) for end in ends})
    return [part for part in np.split(places, cuts) if len(part)]


def _fill_part(
    part: tuple[Array, Array],
    *,
    backend: str,
    field: PatchField,
    model: PatchGaussianMixture,
    estimate: Array,
) -> tuple[PixelSums, Array]:
    """Sums of one part, and the components of its patches.

    Without an ``estimate`` (first pass) the components are the most likely ones; with
    it, the Gaussians are those of similar patches.
    """
    places, labels = part
    sums, kernels = make_sums(field, places), kernel_module(backend)
    if estimate is None:
        _, labels = kernels.assign(field, places, model, sums)
    else:
        kernels.refine(field, places, labels, model, estimate, SEARCH, sums)
    return sums, labels


def make_sums(field: PatchField, places: Array) -> PixelSums:
    """Zeros for the pixels that are covered by patches at these places."""
    first = int(places[0])
    length = int(places[-1]) + int(field.offsets[-1]) + 1 - first
    num = np.zeros((len(field.values), length))
    return PixelSums(first, num, np.zeros((2, length)))


def _merge_parts(
    field: PatchField, work: Iterable[tuple[PixelSums, Array]]
) -> tuple[Array, Array, list[Array]]:
    """Values, variances and components of patches by part.

    Parts are added up in order, so that the number of threads makes no difference.
    """
    channels, pixels = field.values.shape
    num, den = np.zeros((channels, pixels)), np.zeros((2, pixels))
    every = []
    for sums, labels in work:
        here = slice(sums.first, sums.first + sums.den.shape[1])
        num[:, here] += sums.num
        den[:, here] += sums.den
        every.append(labels)
    missing = ~field.observed
    values = field.values.copy()
    values[:, missing] = num[:, missing] / den[0, missing]
    variance = np.zeros(pixels, dtype=values.dtype)
    # Errors of overlapping patches are nearly equal, so averaging does not reduce them.
    variance[missing] = den[1, missing] / den[0, missing]
    return values, variance, every


def fit_mixture(
    field: PatchField, layer_covariance: Array, rng: np.random.Generator
) -> PatchGaussianMixture:
    """Learn a mixture of Gaussians from the patches of an image by hard EM."""
    places = sample_places(field, rng)
    model = _initial_gaussian(field, layer_covariance)
    few = places[:N_FIRST_PATCHES]
    alone = np.zeros(len(few), dtype=np.int64)
    for _ in range(N_FIRST_EM_STEPS):
        model = _em_step(field, few, alone, model, model.K)
    if len(places) < MIN_MIXTURE_PATCHES:
        return model
    labels = _initial_labels(field, places, model)
    count = int(labels.max()) + 1
    prior, scales = np.repeat(model.K, count, axis=0), model.scales
    repeated = np.repeat(scales, count, axis=0)
    model = make_mixture(prior, repeated, np.zeros(count), model.noise)
    model = _em_step(field, places, labels, model, prior)
    for _ in range(N_EM_STEPS):
        parts = _map_chunks("assign", field, model, places)
        energies, labels = (np.concatenate(part) for part in zip(*parts, strict=True))
        model = _update_scales(model, energies, labels, scales)
        model = _em_step(field, places, labels, model, prior)
    return model


def sample_places(field: PatchField, rng: np.random.Generator) -> Array:
    """Places to learn from, in random order; patches with few pixels only if needed."""
    counts = field.observed_counts().ravel()
    every = field.places(1)
    least = max(1.0, MIN_OBSERVED_FRACTION * len(field.offsets))
    enough = every[counts[every] >= least]
    pool = enough if len(enough) else every[counts[every] > 0]
    return pool[rng.permutation(len(pool))[:N_PATCHES]]


def _initial_gaussian(
    field: PatchField, layer_covariance: Array
) -> PatchGaussianMixture:
    """The initial Gaussian, whose correlation falls exponentially with distance."""
    tall, wide = field.patch_shape
    row, column = np.divmod(np.arange(tall * wide), wide)
    apart = np.hypot(row[:, None] - row, column[:, None] - column)
    K = np.kron(layer_covariance, np.exp(-apart / CORRELATION_LENGTH))
    observed = field.values[:, field.observed]
    variances = np.mean(observed.astype(np.float64) ** 2, axis=1)
    scales = np.maximum(variances / max(float(variances[0]), 1e-300), MIN_SCALE)
    return make_mixture(K[None], scales[None], np.zeros(1), NOISE_VARIANCE)


def _initial_labels(
    field: PatchField, places: Array, model: PatchGaussianMixture
) -> Array:
    """Labels of patches by contrast, and by edge direction if they have one."""
    alone = np.zeros(len(places), dtype=np.int64)
    _, completed = _moments(field, places, alone, model)
    patches = completed.reshape(len(places), -1, *field.patch_shape)
    down = np.diff(patches, axis=2)[..., :-1] + np.diff(patches, axis=2)[..., 1:]
    right = np.diff(patches, axis=3)[..., :-1, :] + np.diff(patches, axis=3)[..., 1:, :]
    rows, columns, both = (
        x.sum(axis=(1, 2, 3)) for x in (down * down, right * right, down * right)
    )
    contrast = rows + columns
    split = np.quantile(contrast, np.linspace(0, 1, N_CONTRAST_LEVELS + 1)[1:-1])
    level = np.searchsorted(split, contrast)
    directed = np.hypot(columns - rows, 2 * both) > MIN_COHERENCE * contrast
    angle = 0.5 * np.arctan2(2 * both, columns - rows) / np.pi + 0.5
    turn = np.floor(angle * N_DIRECTIONS + 0.5).astype(np.int64) % N_DIRECTIONS
    strong = level == N_CONTRAST_LEVELS - 1
    edges = N_CONTRAST_LEVELS + turn + N_DIRECTIONS * strong
    labels = np.where(directed & (level >= N_CONTRAST_LEVELS // 2), edges, level)
    return np.unique(labels, return_inverse=True)[1]


def _em_step(
    field: PatchField,
    places: Array,
    labels: Array,
    model: PatchGaussianMixture,
    prior: Array,
) -> PatchGaussianMixture:
    """The mixture after one EM step of its covariances, with fixed labels."""
    S, _ = _moments(field, places, labels, model)
    counts = np.bincount(labels, minlength=len(model.K)).astype(np.float64)
    totals = (counts + COVARIANCE_PRIOR_COUNT)[:, None, None]
    K = (S + COVARIANCE_PRIOR_COUNT * prior) / totals
    K -= model.noise * np.eye(S.shape[1])
    return make_mixture(K, model.scales, counts, model.noise)


def _update_scales(
    model: PatchGaussianMixture, energies: Array, labels: Array, scales: Array
) -> PatchGaussianMixture:
    """The mixture with channel scales estimated from the energies of its patches."""
    updated = model.scales.copy()
    for g in range(len(model.K)):
        mine = energies[labels == g, g]
        if len(mine) == 0:
            continue
        total = mine.sum(axis=0) + SCALE_PRIOR_COUNT * scales[0] * mine[:, 0].mean()
        updated[g] = np.maximum(total / max(float(total[0]), 1e-300), MIN_SCALE)
    return replace(model, scales=updated)


def _moments(
    field: PatchField, places: Array, labels: Array, model: PatchGaussianMixture
) -> tuple[Array, Array]:
    parts = _map_chunks("second_moments", field, model, places, labels)
    return sum(part[0] for part in parts), np.concatenate([part[1] for part in parts])


def _map_chunks(
    kernel: str, field: PatchField, model: PatchGaussianMixture, *columns: Array
) -> list[tuple[Array, Array]]:
    """Results of a kernel for chunks of patches: their places, perhaps their labels."""

    def work(chunk: Array, *, backend: str) -> Any:
        run = getattr(kernel_module(backend), kernel)
        return run(field, *(c[chunk] for c in columns), model)

    # The chunks, and so the sums, do not depend on the number of threads.
    count = len(columns[0])
    chunks = np.array_split(np.arange(count), min(8, max(1, count // 50)))
    return list(Threads().map(work, chunks))


def make_mixture(
    K: Array, scales: Array, counts: Array, noise: float
) -> PatchGaussianMixture:
    """Mixture with covariances made positive definite, weighted by patch counts."""
    raised, inverses, log_det = np.empty_like(K), np.empty_like(K), np.empty(len(K))
    for g, covariance in enumerate(K):
        values, vectors = eigh(0.5 * (covariance + covariance.T))
        values = np.maximum(values, MIN_EIGENVALUE_RATIO * noise)
        raised[g] = (vectors * values) @ vectors.T
        inverses[g] = (vectors / (values + noise)) @ vectors.T
        log_det[g] = np.sum(np.log(values + noise))
    return PatchGaussianMixture(
        0.5 * (raised + raised.swapaxes(1, 2)),
        0.5 * (inverses + inverses.swapaxes(1, 2)),
        log_det,
        np.ascontiguousarray(scales),
        np.log((counts + 1.0) / (counts + 1.0).sum()),
        noise,
    )


def kernel_module(backend: str = "auto") -> Any:
    """`patches_numba` or `patches_numpy`, as `row_backend` chooses."""
    name = row_backend(backend).__name__.rsplit("_", 1)[-1]
    return importlib.import_module(f"ncarl.images.patches_{name}")
