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
from ncarl.images.field import Field, Sums, strips, sums_for
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
class Search:
    """How patches like one are found and used.

    Attributes
    ----------
    reach : int
        How far away they may lie, in pixels.
    most : int
        How many are taken.
    strength : float
        As how many patches the Gaussian of the first pass counts.
    """

    reach: int
    most: int
    strength: float


def kernels(family: str, kind: str = "auto") -> Any:
    """The module that does the work: Numba where it is installed, else NumPy."""
    name = row_module(kind).__name__.rsplit("_", 1)[-1]
    return importlib.import_module(f"ncarl.images.{family}_{name}")


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
    how: Search,
) -> tuple[Guess, list[Array]]:
    """The picture filled by Gaussians of the patches most like each one."""
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


def _fill_part(
    places: Array, *, kind: str, field: Field, gaussians: Gaussians
) -> tuple[Sums, Array]:
    """One strip of the first pass, and the labels of its patches."""
    sums = sums_for(field, places)
    _, labels = kernels("patches", kind).assign(field, places, gaussians, sums)
    return sums, labels


def _refine_part(
    part: tuple[Array, Array],
    *,
    kind: str,
    field: Field,
    gaussians: Gaussians,
    guess: Guess,
    how: Search,
) -> tuple[Sums, Array]:
    """One strip of a later pass, and the labels of its patches."""
    places, labels = part
    sums = sums_for(field, places)
    kernels("similar", kind).refine(
        field, places, labels, gaussians, guess.values, how.reach, how.most,
        how.strength, sums,
    )  # fmt: skip
    return sums, labels


def _gathered(
    field: Field, work: Iterable[tuple[Sums, Array]]
) -> tuple[Guess, list[Array]]:
    """Parts added up in order, so that threads make no difference."""
    channels, pixels = field.values.shape
    num, den = np.zeros((channels, pixels)), np.zeros((2, pixels))
    every = []
    for sums, labels in work:
        here = slice(sums.first, sums.first + sums.den.shape[1])
        num[:, here] += sums.num
        den[:, here] += sums.den
        every.append(labels)
    gaps = ~field.known
    values = field.values.copy()
    values[:, gaps] = num[:, gaps] / den[0, gaps]
    variance = np.zeros(pixels, dtype=values.dtype)
    # Overlapping patches tell much the same: their mean is no surer than they are.
    variance[gaps] = den[1, gaps] / den[0, gaps]
    return Guess(values, variance), every
