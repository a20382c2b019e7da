"""Pixels as patches are cut from them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ncarl.core.types import Array

#: Sides of patches by how many layers are stacked in one: about as many pixels each.
SIDES = {1: 8, 2: 6}
SMALLEST_SIDE = 5


@dataclass(frozen=True)
class Field:
    """Pixels of a picture, or of a part of it, laid out for patches.

    Channels that are missing together share every factorisation. Channels with gaps
    of their own are layers instead: patches go through all of them.

    Attributes
    ----------
    values : array of shape (channels, layers * height * width)
        What is known, with any finite number elsewhere.
    known : array of bool, shape (layers * height * width,)
        Whether a pixel is known, in all channels.
    size : tuple of int
        Layers, height and width.
    """

    values: Array
    known: Array
    size: tuple[int, int, int]

    @property
    def side(self) -> tuple[int, int]:
        """Height and width of a patch."""
        layers, height, width = self.size
        side = SIDES.get(layers, SMALLEST_SIDE)
        return min(side, height), min(side, width)

    @cached_property
    def offsets(self) -> Array:
        """Where the pixels of a patch lie, counted from its place."""
        layers, height, width = self.size
        tall, wide = self.side
        layer = np.arange(layers)[:, None, None] * (height * width)
        across = np.arange(tall)[:, None] * width + np.arange(wide)
        return (layer + across).ravel().astype(np.int64)

    def places(self, stride: int) -> Array:
        """Corners of patches on a grid that reaches the far edges too."""
        _, height, width = self.size
        tall, wide = self.side
        rows = _steps(height - tall, stride)
        columns = _steps(width - wide, stride)
        return (rows[:, None] * width + columns).ravel()

    def known_counts(self) -> Array:
        """How many pixels are known of the patch at every place; (height, width).

        Places too near to the far edges hold 0.
        """
        layers, height, width = self.size
        tall, wide = self.side
        known = self.known.reshape(layers, height, width).sum(axis=0)
        total = np.zeros((height + 1, width + 1), dtype=np.int64)
        total[1:, 1:] = known.cumsum(axis=0).cumsum(axis=1)
        counts = np.zeros((height, width), dtype=np.int64)
        counts[: height - tall + 1, : width - wide + 1] = (
            total[tall:, wide:] - total[:-tall, wide:]
            - total[tall:, :-wide] + total[:-tall, :-wide]
        )  # fmt: skip
        return counts

    def gaps(self, stride: int) -> Array:
        """Places on the grid whose patch lacks something."""
        places = self.places(stride)
        missing: Array = places[self.known_counts().ravel()[places] < len(self.offsets)]
        return missing


@dataclass(frozen=True)
class Sums:
    """What patches say of missing pixels, from pixel ``first`` on.

    Attributes
    ----------
    num, den : arrays of shape (channels, pixels) and (2, pixels)
        Sums of weights times values; of weights, and of ones.
    """

    first: int
    num: Array
    den: Array


def sums_for(field: Field, places: Array) -> Sums:
    """Zeros for the pixels that patches at these places reach."""
    first = int(places[0])
    length = int(places[-1]) + int(field.offsets[-1]) + 1 - first
    return Sums(first, np.zeros((len(field.values), length)), np.zeros((2, length)))


def no_sums(channels: int) -> Sums:
    """Sums that hold no pixel."""
    return Sums(0, np.zeros((channels, 0)), np.zeros((2, 0)))


def _steps(last: int, stride: int) -> Array:
    """0, ``stride``, ... and ``last``."""
    return np.unique(np.append(np.arange(0, last + 1, stride), last))


def strips(field: Field, places: Array, parts: int) -> list[Array]:
    """Increasing places cut into about equal parts, of whole rows of the picture."""
    if len(places) == 0:
        return []
    rows = places // field.size[2]
    ends = [len(places) * k // parts for k in range(1, parts)]
    cuts = sorted({int(np.searchsorted(rows, rows[end])) for end in ends})
    return [part for part in np.split(places, cuts) if len(part)]
