"""Arrays of pixels: what they lack, how they are made ready, and put back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ncarl.core.types import Array

#: Whole numbers beyond this are not all floats.
EXACT = 2**53
#: Spread, over the largest value, below which a picture counts as one colour.
CONSTANT = 1e-12
#: Known pixels that means and colours are taken from.
SOME = 1_000_000
#: Modes of Pillow whose numbers are indices, or inks.
NO_COLOURS = ("P", "PA", "CMYK")


@dataclass(frozen=True)
class Picture:
    """Pixels and gaps, channels first.

    Attributes
    ----------
    pixels : array of shape (channels, height, width)
        As they came; anything at gaps.
    gaps : array of bool, shape (channels, height, width)
        Whether a pixel is missing in a channel.
    """

    pixels: Array
    gaps: Array

    @property
    def together(self) -> bool:
        """Whether all channels are missing at the same pixels."""
        return bool((self.gaps == self.gaps[:1]).all())

    def cut(self, rows: slice, columns: slice) -> Picture:
        """A part of the picture."""
        return Picture(self.pixels[:, rows, columns], self.gaps[:, rows, columns])


@dataclass(frozen=True)
class Units:
    """How channels are counted while gaps are filled.

    Attributes
    ----------
    peak : float
        The largest known value, or 1.
    middle : array of shape (channels,)
        Means of what is known, over the peak.
    turn : array of shape (channels, channels)
        Columns are the directions that colours are counted along.
    size : float
        Spread along the first one; 0 where all that is known is the same.
    """

    peak: float
    middle: Array
    turn: Array
    size: float

    def ready(self, picture: Picture) -> Array:
        """Pixels in these units, 0 at gaps; float32, (channels, height, width)."""
        shifted = np.zeros(picture.pixels.shape, dtype=np.float32)
        for k, (channel, gaps) in enumerate(
            zip(picture.pixels, picture.gaps, strict=True)
        ):
            # In place, and one channel at a time: photographs can be large.
            known = channel[~gaps] / self.peak - self.middle[k]
            shifted[k, ~gaps] = known / self.size
        turned: Array = np.tensordot(self.turn.T.astype(np.float32), shifted, axes=1)
        return turned

    def back(self, values: Array, gaps: Array) -> list[Array]:
        """Values of the gaps of each channel, in the units of the picture."""
        found = []
        for weights, missing, middle in zip(self.turn, gaps, self.middle, strict=True):
            one = sum(
                w * plane[missing].astype(np.float64)
                for w, plane in zip(weights, values, strict=True)
            )
            found.append((one * self.size + middle) * self.peak)
        return found

    def back_deviation(self, variance: Array) -> Array:
        """Standard deviations in the units of the picture, from variances in these."""
        summed = np.tensordot(self.turn**2, variance.astype(np.float64), axes=1)
        return np.sqrt(np.maximum(summed, 0.0)) * self.size * self.peak


def read_picture(image: Any, mask: Any) -> tuple[Array, Array]:
    """An image as an array, and its gaps in the same shape.

    Parameters
    ----------
    image : array of shape (height, width) or (height, width, channels)
        Whole numbers or floats.
    mask : array or None
        True where a pixel is missing, with or without channels; NaN and what a masked
        array hides are missing too.
    """
    if getattr(image, "mode", None) in NO_COLOURS:
        raise ValueError(
            f"image is a Pillow image of mode {image.mode!r}, whose numbers are not "
            "grey or red, green and blue; give image.convert('RGB')"
        )
    pixels = np.asarray(image)
    if pixels.ndim not in (2, 3) or pixels.size == 0:
        raise ValueError(
            "image must have shape (height, width) or (height, width, channels), none "
            f"of them 0, got {pixels.shape}"
        )
    if pixels.dtype.kind not in "uif":
        raise ValueError(
            f"image must hold whole numbers or floats, got dtype {pixels.dtype}"
        )
    if mask is None and pixels.dtype.kind != "f" and not np.ma.isMaskedArray(image):
        raise ValueError(
            "mask must be given: an image of whole numbers has no NaN that could "
            "stand for a missing pixel"
        )
    gaps = _marked(pixels.shape, mask) | absent(image)
    known = pixels[~gaps]
    if pixels.dtype.kind == "f" and not np.isfinite(known).all():
        raise ValueError(
            "image must be finite where it is known, got infinite pixels; mark them "
            "in mask"
        )
    ends = (int(known.min()), int(known.max())) if known.size else (0, 0)
    if pixels.dtype.kind != "f" and max(map(abs, ends)) > EXACT:
        raise ValueError(
            "image must hold whole numbers of at most 2**53, got larger ones; divide "
            "them, or give floats"
        )
    return pixels, gaps


def absent(image: Any) -> Array:
    """Where an image itself says that a pixel is missing: NaN, or masked."""
    pixels = np.asarray(image)
    none = np.broadcast_to(np.False_, pixels.shape)
    nan = np.isnan(pixels) if pixels.dtype.kind == "f" else none
    return nan | np.ma.getmaskarray(image) if np.ma.isMaskedArray(image) else nan


def _marked(shape: tuple[int, ...], mask: Any) -> Array:
    """What a mask says is missing, in the shape of the image."""
    if mask is None:
        return np.broadcast_to(np.False_, shape)
    marks = np.asarray(mask)
    if marks.dtype.kind not in "bui":
        raise ValueError(
            "mask must be boolean, or whole numbers that are not 0 where a pixel is "
            f"missing, got dtype {marks.dtype}"
        )
    if marks.shape not in {shape[:2], (*shape[:2], 1), shape}:
        raise ValueError(
            f"mask must have the image's shape, {shape}, or its height and width, "
            f"{shape[:2]}, got {marks.shape}"
        )
    if marks.ndim < len(shape):
        marks = marks[:, :, None]
    if marks.ndim > len(shape):
        marks = marks[:, :, 0]
    return np.broadcast_to(marks != 0, shape)


def units_of(picture: Picture, *, turned: bool) -> Units:
    """Units in which the first channel has mean 0 and variance 1.

    Parameters
    ----------
    picture : Picture
        At least one pixel of every channel is known.
    turned : bool
        Whether to count colours along their principal directions, so that the first
        one holds most of what there is to see.
    """
    channels = len(picture.pixels)
    known = [p[~g] for p, g in zip(picture.pixels, picture.gaps, strict=True)]
    ends = [(float(values.min()), float(values.max())) for values in known]
    peak = max(max(-low, high) for low, high in ends) or 1.0
    # A million pixels tell means and colours well enough.
    some = [v[:: max(1, len(v) // SOME)].astype(np.float64) / peak for v in known]
    middle = np.array([np.mean(values) for values in some])
    spread = np.array([np.var(values) for values in some])
    turn, first = np.eye(channels), float(spread.mean())
    if turned and channels > 1:
        colours = np.stack(some) - middle[:, None]
        values, vectors = np.linalg.eigh(colours @ colours.T / colours.shape[1])
        # The sign of a direction is free; fixed here, so that results are too.
        turn = vectors[:, ::-1] * np.where(vectors.sum(axis=0) < 0.0, -1.0, 1.0)[::-1]
        first = float(values[-1])
    size = float(np.sqrt(max(first, 0.0)))
    return Units(peak, middle, turn, size if size > CONSTANT else 0.0)


def put_back(pixels: Array, gaps: Array, values: list[Array]) -> Array:
    """A copy of ``pixels`` with ``values`` in the gaps, within the range of the rest.

    Parameters
    ----------
    pixels : array of shape (channels, height, width)
        The picture.
    gaps : array of bool of the same shape
        Where values go.
    values : list of arrays of float
        Of the gaps of each channel; rounded if the picture holds whole numbers.
    """
    result = pixels.copy()
    for channel, missing, guess in zip(result, gaps, values, strict=True):
        if len(guess) == 0:
            continue
        known = channel[~missing]
        inside = np.clip(guess, float(known.min()), float(known.max()))
        if result.dtype.kind != "f":
            inside = np.rint(inside)
        channel[missing] = inside.astype(result.dtype)
    return result
