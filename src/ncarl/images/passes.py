"""Passes over all patches that lack something, and what they say of the gaps."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ncarl.core.rows import row_module
from ncarl.core.types import Array
from ncarl.engines import Threads
from ncarl.images.field import Field, strips
from ncarl.images.gaussians import Gaussians

#: Patches that a thread is given at a time.
PART = 2500
#: At least so many parts, whatever the machine: sums then are the same on all.
FEWEST = 8


@dataclass(frozen=True)
class Guess:
    """A picture without gaps, and how sure its filled pixels are.

    Attributes
    ----------
    values : array of shape (channels, layers * height * width)
        Known and filled pixels.
    variance : array of shape (layers * height * width,)
        Of filled pixels, by the model; 0 where a pixel is known.
    """

    values: Array
    variance: Array


@dataclass(frozen=True)
class Part:
    """What the patches of a strip say, from pixel ``first`` on.

    Attributes
    ----------
    num, den : arrays of shape (channels, pixels) and (2, pixels)
        Sums of weights times values; of weights, and of ones.
    labels : array of int
        The Gaussian of each patch.
    """

    first: int
    num: Array
    den: Array
    labels: Array


def kernels(family: str, kind: str = "auto") -> Any:
    """The module that does the work: Numba where it is installed, else NumPy."""
    name = row_module(kind).__name__.rsplit("_", 1)[-1]
    return importlib.import_module(f"ncarl.images.{family}_{name}")


def likeliest(fit: Array, volume: Array, counts: Array, gaussians: Gaussians) -> Array:
    """The Gaussian with the largest posterior probability, for each patch.

    Parameters
    ----------
    fit, volume : arrays of shape (patches, gaussians, channels), (patches, gaussians)
        Energies and log determinants.
    counts : array of shape (patches,)
        How many pixels of each patch are known.
    gaussians : Gaussians
        The model.
    """
    scales = gaussians.scales
    energy = np.sum(fit / scales, axis=2) + scales.shape[1] * volume
    energy += counts[:, None] * np.log(scales).sum(axis=1)
    found: Array = np.argmax(gaussians.log_share - 0.5 * energy, axis=1)
    return found


def labels_of(field: Field, places: Array, gaussians: Gaussians, kind: str) -> Array:
    """The likeliest Gaussian of each patch."""
    if gaussians.count == 1:
        return np.zeros(len(places), dtype=np.int64)
    fit, volume = kernels("patches", kind).evidence(field, places, gaussians)
    counts = field.known[places[:, None] + field.offsets].sum(axis=1)
    return likeliest(fit, volume, counts, gaussians)


def first_pass(
    field: Field, gaussians: Gaussians, stride: int
) -> tuple[Guess, list[Array]]:
    """The picture filled by the Gaussians, and the labels of its patches."""
    parts = _parts(field, stride)
    work = Threads().map(_fill_part, parts, field=field, gaussians=gaussians)
    return _gathered(field, work)


def second_pass(
    field: Field,
    gaussians: Gaussians,
    stride: int,
    guess: Guess,
    labels: list[Array],
    **how: Any,
) -> tuple[Guess, list[Array]]:
    """The picture filled by Gaussians of the patches most like each one.

    ``how`` has ``reach``, ``most`` and ``strength``, as for ``refine``.
    """
    parts = list(zip(_parts(field, stride), labels, strict=True))
    work = Threads().map(
        _refine_part, parts, field=field, gaussians=gaussians, guess=guess, how=how
    )
    return _gathered(field, work)


def _parts(field: Field, stride: int) -> list[Array]:
    """Places of patches that lack something, in parts for threads."""
    places = field.gaps(stride)
    number = max(math.ceil(len(places) / PART), FEWEST)
    return strips(field, places, number)


def _fill_part(places: Array, *, kind: str, field: Field, gaussians: Gaussians) -> Part:
    """One strip of the first pass."""
    labels = labels_of(field, places, gaussians, kind)
    first, num, den = _room(field, places)
    work = kernels("patches", kind)
    work.fill(field, places, labels, gaussians, first, num, den)
    return Part(first, num, den, labels)


def _refine_part(
    part: tuple[Array, Array],
    *,
    kind: str,
    field: Field,
    gaussians: Gaussians,
    guess: Guess,
    how: dict[str, Any],
) -> Part:
    """One strip of the second pass."""
    places, labels = part
    first, num, den = _room(field, places)
    kernels("similar", kind).refine(
        field, places, labels, gaussians, guess.values,
        how["reach"], how["most"], how["strength"], first, num, den,
    )  # fmt: skip
    return Part(first, num, den, labels)


def _room(field: Field, places: Array) -> tuple[int, Array, Array]:
    """Zeros for the pixels that patches at these places reach."""
    first = int(places[0])
    length = int(places[-1]) + int(field.offsets[-1]) + 1 - first
    return first, np.zeros((len(field.values), length)), np.zeros((2, length))


def _gathered(field: Field, work: Iterable[Part]) -> tuple[Guess, list[Array]]:
    """Parts added up in order, so that threads make no difference."""
    channels, pixels = field.values.shape
    num, den = np.zeros((channels, pixels)), np.zeros((2, pixels))
    labels = []
    for part in work:
        here = slice(part.first, part.first + part.den.shape[1])
        num[:, here] += part.num
        den[:, here] += part.den
        labels.append(part.labels)
    gaps = ~field.known
    values = field.values.copy()
    values[:, gaps] = num[:, gaps] / den[0, gaps]
    variance = np.zeros(pixels, dtype=values.dtype)
    # Overlapping patches tell much the same: their mean is no surer than they are.
    variance[gaps] = den[1, gaps] / den[0, gaps]
    return Guess(values, variance), labels
