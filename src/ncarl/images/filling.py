"""A picture filled patch by patch: from coarse to fine, tile by tile, pass by pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy.ndimage import distance_transform_cdt

from ncarl.core.types import Array
from ncarl.images.field import Field
from ncarl.images.gaussians import Gaussians
from ncarl.images.learning import learn
from ncarl.images.passes import Guess, Search, first_pass, second_pass

#: Pixels farther than this from all that is known are taken from a coarser picture.
DEEP = 5
#: Steps from patch to patch.
STRIDE = 2
#: Passes after the first, and how they look for similar patches.
PASSES = 3
SEARCH = Search(reach=10, most=70, strength=2.0)
#: Sides of the parts that a large picture is worked on in.
TILE = 512


@dataclass(frozen=True)
class Planes:
    """A picture made ready: channels in units of the first one's spread.

    Attributes
    ----------
    values : array of shape (channels, layers, height, width)
        What is known; anything elsewhere.
    known : array of bool, shape (layers, height, width)
        Whether a pixel is known.
    colours : array of shape (layers, layers)
        Covariance of the layers.
    """

    values: Array
    known: Array
    colours: Array

    def field(self, rows: slice, columns: slice) -> Field:
        """A part of the picture, laid out for patches."""
        known = self.known[:, rows, columns]
        part = self.values[:, :, rows, columns]
        values = np.where(known, part, 0.0).astype(np.float32).reshape(len(part), -1)
        # One layout in memory, so that compiled code is compiled once.
        return Field(
            np.ascontiguousarray(values),
            np.ascontiguousarray(known.ravel()),
            known.shape,
        )


def filled(
    planes: Planes, rng: np.random.Generator, heard: Callable[[str], None]
) -> tuple[Array, Array]:
    """All pixels, and variances of filled ones; shapes of ``values`` and ``known``.

    Parameters
    ----------
    planes : Planes
        The picture.
    rng : numpy.random.Generator
        Which patches to learn from.
    heard : callable
        Called after each piece of work.
    """
    near = planes
    deep = _deep(planes.known)
    values, variance = planes.values.copy(), np.zeros(planes.known.shape, np.float32)
    if deep.any():
        coarse, doubt = _from_coarser(planes, rng, heard)
        values[:, deep], variance[deep] = coarse[:, deep], doubt[deep]
        near = Planes(values, planes.known | deep, planes.colours)
    _, height, width = planes.known.shape
    whole = slice(0, height), slice(0, width)
    model = learn(planes.field(*whole), planes.colours, rng)
    heard("learned")
    for inner, outer in _tiles(height, width):
        part = near.field(*outer)
        guess = _passes(part, model, heard)
        shape = (-1, *part.size)
        here = tuple(
            slice(i.start - o.start, i.stop - o.start)
            for i, o in zip(inner, outer, strict=True)
        )
        fresh = ~near.known[:, *inner]
        target = values[:, :, *inner]
        target[:, fresh] = guess.values.reshape(shape)[:, :, *here][:, fresh]
        sure = guess.variance.reshape(part.size)[:, *here]
        variance[:, *inner][fresh] = sure[fresh]
    return values, variance


def stages(known: Array) -> int:
    """How often `filled` reports on a picture with these pixels known."""
    _, height, width = known.shape
    here = 1 + (1 + PASSES) * len(list(_tiles(height, width)))
    if not _deep(known).any():
        return here
    return here + stages(_halved(known[None], known)[1])


def _passes(field: Field, model: Gaussians, heard: Callable[[str], None]) -> Guess:
    """All passes over a part of the picture."""
    guess, labels = first_pass(field, model, STRIDE)
    heard("pass 1")
    for k in range(PASSES):
        guess, labels = second_pass(
            field, model, STRIDE, guess, labels,
            SEARCH,
        )  # fmt: skip
        heard(f"pass {k + 2}")
    return guess


def _tiles(height: int, width: int) -> Iterator[tuple[tuple[slice, slice], ...]]:
    """Parts of a picture, each with the part around it that it needs to see."""
    margin = SEARCH.reach + 8
    for top in range(0, height, TILE):
        for left in range(0, width, TILE):
            bottom, right = min(top + TILE, height), min(left + TILE, width)
            inner = (slice(top, bottom), slice(left, right))
            outer = (
                slice(max(0, top - margin), min(height, bottom + margin)),
                slice(max(0, left - margin), min(width, right + margin)),
            )
            yield inner, outer


def _deep(known: Array) -> Array:
    """Missing pixels of a layer with nothing known near them in any layer."""
    some = known.any(axis=0)
    if some.all():
        return np.zeros(known.shape, dtype=bool)
    away = distance_transform_cdt(~some, "chessboard") > DEEP
    return np.broadcast_to(away, known.shape)


def _from_coarser(
    planes: Planes, rng: np.random.Generator, heard: Callable[[str], None]
) -> tuple[Array, Array]:
    """All pixels and variances from the picture at half its size."""
    _, height, width = planes.known.shape
    small = Planes(*_halved(planes.values, planes.known), planes.colours)
    values, variance = filled(small, rng, heard)
    rows, columns = (_between(size) for size in (height, width))
    large = _stretched(values, rows, columns)
    return large, _stretched(variance, rows, columns)


def _halved(values: Array, known: Array) -> tuple[Array, Array]:
    """Means of what is known in blocks of two by two, and whether anything is."""
    height, width = known.shape[-2:]
    odd = ((0, 0), (0, height % 2), (0, width % 2))
    there = np.pad(known, odd)
    padded = np.pad(np.where(known, values, 0.0), ((0, 0), *odd))

    def blocks(array: Array) -> Array:
        *front, tall, wide = array.shape
        return array.reshape(*front, tall // 2, 2, wide // 2, 2).sum(axis=(-3, -1))

    count = blocks(there.astype(np.float64))
    return blocks(padded) / np.maximum(count, 1.0), count > 0.0


def _between(size: int) -> tuple[Array, Array, Array]:
    """Which two coarse pixels a fine one lies between, and how near to the second."""
    half = -(-size // 2)
    at = np.clip((np.arange(size) - 0.5) / 2.0, 0.0, half - 1.0)
    first = np.minimum(np.floor(at).astype(np.int64), max(half - 2, 0))
    return first, np.minimum(first + 1, half - 1), at - first


def _stretched(
    array: Array, rows: tuple[Array, ...], columns: tuple[Array, ...]
) -> Array:
    """A picture at twice its size, by straight lines between pixels."""
    top, bottom, down = rows
    left, right, across = columns
    tall = (
        array[..., top, :] * (1 - down)[:, None] + array[..., bottom, :] * down[:, None]
    )
    wide: Array = tall[..., left] * (1 - across) + tall[..., right] * across
    return wide
