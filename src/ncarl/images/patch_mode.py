"""The way of patches, from a picture to its filled pixels and how far off they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ncarl.core.types import Array
from ncarl.images.filling import Planes, filled, stages
from ncarl.images.picture import Picture, Units, units_of

#: Pixels of a picture up to which known ones are hidden all over it, and their share.
TRIAL, HIDDEN = 192 * 192, 0.1
#: In larger ones, 2**SPLITS windows of this side are taken; patches across a seam
#: between two of them show nothing that is there.
SPLITS, WINDOW, SEAM = 3, 64, 8
#: Fewer hidden pixels than this tell nothing.
FEW = 20
#: Pixels known in all channels that are enough to see how these go together.
ENOUGH = 50


@dataclass(frozen=True)
class PatchMode:
    """A picture made ready for patches.

    Attributes
    ----------
    picture : Picture
        Every channel has a known pixel.
    units : Units
        What its planes are counted in.
    planes : Planes
        Its pixels, in those units.
    """

    picture: Picture
    units: Units
    planes: Planes

    @property
    def stages(self) -> int:
        """How often `fill` reports."""
        return stages(self.planes.known)

    def fill(
        self, rng: np.random.Generator, heard: Callable[[str], None]
    ) -> tuple[Array, Array]:
        """All pixels and variances of filled ones, in the units of the planes."""
        shape = self.picture.pixels.shape
        if self.units.size == 0.0:
            flat = np.zeros(shape)
            return flat, flat
        values, variance = filled(self.planes, rng, heard)
        return values.reshape(shape), np.broadcast_to(variance, shape)


def patch_mode(picture: Picture) -> PatchMode:
    """A picture made ready for patches."""
    units = units_of(picture, turned=picture.together)
    return PatchMode(picture, units, planes_in(units, picture))


def planes_in(units: Units, picture: Picture) -> Planes:
    """Planes of a picture: channels side by side if they are missing together."""
    known = ~picture.gaps
    if units.size == 0.0:
        empty = np.zeros(picture.pixels.shape)
        return Planes(empty[None], known, np.eye(len(known)))
    values = units.ready(picture)
    if picture.together:
        return Planes(values[:, None], known[:1], np.eye(1))
    return Planes(values[None], known, _colours(values, known))


def _colours(values: Array, known: Array) -> Array:
    """Covariance of channels where all are known; only variances if that is rare."""
    alone = np.array(
        [
            np.mean(v[k].astype(np.float64) ** 2)
            for v, k in zip(values, known, strict=True)
        ]
    )
    alone = np.diag(np.maximum(alone, 1e-3))
    full = known.all(axis=0)
    if full.sum() < ENOUGH:
        return alone
    seen = values[:, full].astype(np.float64)
    # A little of the variances keeps it sound where channels repeat each other.
    return 0.99 * (seen @ seen.T / seen.shape[1]) + 0.01 * alone


def trial(mode: PatchMode, rng: np.random.Generator) -> Array:
    """By how much variances of planes must be multiplied; (channels,).

    Some known pixels of parts of the picture are hidden and filled from the rest, and
    their errors held against the variances that the model gives.
    """
    channels = len(mode.picture.pixels)
    if mode.units.size == 0.0:
        return np.ones(channels)
    part, inside = _parts(mode.picture)
    # A stream of its own: gaps may have been drawn from the same seed.
    rng = rng.spawn(1)[0]
    hidden = (rng.random(inside.shape) < HIDDEN) & inside & ~part.gaps.any(axis=0)
    harder = Picture(part.pixels, part.gaps | hidden)
    if hidden.sum() < FEW or harder.gaps.all(axis=(1, 2)).any():
        return np.ones(channels)
    values, variance = filled(planes_in(mode.units, harder), rng, lambda note: None)
    shape = part.pixels.shape
    error = values.reshape(shape)[:, hidden] - mode.units.ready(part)[:, hidden]
    doubt = np.broadcast_to(variance, shape)[:, hidden]
    ratio: Array = np.mean(error**2, axis=1) / np.mean(doubt, axis=1)
    return ratio


def _parts(picture: Picture) -> tuple[Picture, Array]:
    """Windows on the gaps of a picture side by side, and what is not at a seam.

    One window could lie where the picture is flat and say nothing of the rest.
    """
    height, width = picture.gaps.shape[1:]
    if height * width <= TRIAL:
        return picture, np.ones((height, width), dtype=bool)
    places = _middles(np.argwhere(picture.gaps.any(axis=0)), SPLITS)
    cuts = [picture.cut(*_window(at, (height, width))) for at in places]
    inside = np.ones(cuts[0].gaps.shape[1:], dtype=bool)
    inside[:, :SEAM] = inside[:, -SEAM:] = False
    pixels = np.concatenate([cut.pixels for cut in cuts], axis=2)
    gaps = np.concatenate([cut.gaps for cut in cuts], axis=2)
    return Picture(pixels, gaps), np.tile(inside, len(cuts))


def _middles(where: Array, splits: int) -> list[Array]:
    """Middles of groups of places, halved along their longer side so many times."""
    if splits == 0 or len(where) < 2:
        return [np.median(where, axis=0).astype(np.int64)]
    longer = int(np.argmax(np.ptp(where, axis=0)))
    order = np.argsort(where[:, longer], kind="stable")
    halves = np.array_split(where[order], 2)
    return [middle for half in halves for middle in _middles(half, splits - 1)]


def _window(middle: Array, shape: tuple[int, int]) -> tuple[slice, slice]:
    """The part of a picture around a place."""
    slices = []
    for at, size in zip(middle, shape, strict=True):
        first = max(0, min(int(at) - WINDOW // 2, size - WINDOW))
        slices.append(slice(first, min(size, first + WINDOW)))
    return slices[0], slices[1]
