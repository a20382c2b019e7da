"""Columns as coordinates of the model, of about unit size, and back."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ncarl.core.types import Array
from ncarl.tables.bending import (
    Power,
    Ranks,
    is_skewed,
    power_of,
    ranks_of,
    skewness,
)
from ncarl.tables.given import Given

#: Points of the rule that takes means over a normal distribution.
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(15)
WEIGHTS = WEIGHTS / WEIGHTS.sum()
#: Nothing is further out than so many standard deviations.
FURTHEST = 1e6
#: A shorter way from the end of a column to its median, in standard deviations, is no
#: unit: the end is reached again and again.
LEAST_UNIT = 1e-2


@dataclass(frozen=True)
class NumberCode:
    """A column of numbers: one coordinate, made symmetric if it is skewed.

    Attributes
    ----------
    low, high : float
        The range of the values in fit.
    shift, scale : float
        What is taken off values, and what they are divided by; negative where the
        curve runs from the upper end down.
    bend : Power, Ranks or None
        The curve that follows.
    middle, spread : float
        Mean and standard deviation of what the curve makes of the values of the fit;
        negative as the scale is, so that coordinates grow with values.
    """

    low: float
    high: float
    shift: float = 0.0
    scale: float = 1.0
    bend: Power | Ranks | None = None
    middle: float = 0.0
    spread: float = 1.0

    @property
    def width(self) -> int:
        """Number of coordinates: none where all values are the same."""
        return int(self.low < self.high)

    def encode(self, given: Given) -> Array:
        """The coordinate, shape (m, 1), NaN in the gaps; (m, 0) if there is none."""
        if self.width == 0:
            return np.empty((len(given.values), 0))
        return self.inward(given.values)[:, None]

    def inward(self, values: Array) -> Array:
        """Values as coordinates."""
        inner = values / self.scale - self.shift / self.scale
        inner = np.clip(inner, -FURTHEST, FURTHEST)
        if self.bend is None:
            return inner
        bent = (self.bend.there(inner) - self.middle) / self.spread
        return np.clip(bent, -FURTHEST, FURTHEST)

    def outward(self, coordinates: Array) -> Array:
        """Coordinates as values; bent ones end where the values of the fit do."""
        largest = np.finfo(np.float64).max
        if self.bend is None:
            with np.errstate(over="ignore"):
                values = coordinates * self.scale + self.shift
            return np.clip(values, -largest, largest)
        ends = self.inward(np.array([self.low, self.high]))
        flat = np.clip(coordinates.ravel(), ends[0], ends[1])
        inner = self.bend.back(flat * self.spread + self.middle)
        values = np.clip(inner * self.scale + self.shift, self.low, self.high)
        found: Array = values.reshape(coordinates.shape)
        return found

    def mean(self, coordinates: Array, deviations: Array) -> Array:
        """Means of values whose coordinates have these means and deviations."""
        if self.bend is None:
            return self.outward(coordinates)
        points = coordinates[:, None] + deviations[:, None] * NODES
        found: Array = self.outward(points) @ WEIGHTS
        return found


@dataclass(frozen=True)
class CategoryCode:
    """A column of k categories: k - 1 coordinates, alike for all of them.

    A label of share ``p`` becomes its indicator over ``sqrt(p)``, in a basis of what is
    at right angles to the square roots of the shares. Coordinates have then mean 0 and
    covariance 1 over the column, and no label is singled out.

    Attributes
    ----------
    labels : tuple
        The categories that occurred in fit.
    shares : array of shape (k,)
        How often, as parts of all.
    codes : array of shape (k, k - 1)
        Their coordinates.
    """

    labels: tuple[Hashable, ...]
    shares: Array
    codes: Array

    @property
    def width(self) -> int:
        """Number of coordinates."""
        return int(self.codes.shape[1])

    def encode(self, given: Given) -> Array:
        """The coordinates, shape (m, k - 1); NaN in gaps and for new categories."""
        padded = np.vstack([self.codes, np.full((1, self.width), np.nan)])
        return padded[self.places(given)]

    def places(self, given: Given) -> Array:
        """Positions of the labels of a column; -1 in gaps and for new ones."""
        where = {label: k for k, label in enumerate(self.labels)}
        values = given.values
        if given.kind == "boolean":
            values = np.where(given.gaps, None, values == 1.0)
        return np.array([where.get(value, -1) for value in values], dtype=np.int64)


def number_code(given: Given, normalise: str | None) -> NumberCode:
    """The code of a column of numbers; ``normalise`` says how skewed ones are bent."""
    known = given.known
    low, high = float(known.min()), float(known.max())
    size = max(abs(low), abs(high))
    if low == high or np.ptp(known / size) < 1e-14:
        return NumberCode(low, low)  # digits do not tell its values apart
    scale = float((known / size).std()) * size
    plain = NumberCode(low, high, float((known / size).mean()) * size, scale)
    if normalise == "auto":
        normalise = "power" if is_skewed(known) else None
    return plain if normalise is None else _bent(known, normalise, plain)


def _bent(known: Array, how: str, plain: NumberCode) -> NumberCode:
    """A code with a curve; the plain one where digits do not suffice for it.

    Values are counted from the end with the shorter tail, in a third of the way from
    there to the median, so that the curve does not depend on the units of the column.
    """
    turned = skewness(known) < 0.0
    start, sign = (plain.high, -1.0) if turned else (plain.low, 1.0)
    unit = abs(float(np.median(known / plain.scale)) - start / plain.scale) / 3.0
    scale = sign * plain.scale * (unit if unit > LEAST_UNIT else 1.0)
    with np.errstate(all="ignore"):
        inner = known / scale - start / scale
        bend = power_of(inner) if how == "power" else ranks_of(inner)
        there = bend.there(inner)
        spread = sign * float(there.std())
        if not (0.0 < abs(spread) < np.inf):
            return plain
        middle = float(there.mean())
        code = NumberCode(plain.low, plain.high, start, scale, bend, middle, spread)
        back = code.outward(code.inward(known))
    off = np.abs(back / plain.scale - known / plain.scale).max()
    return code if off < 1e-3 else plain


def category_code(given: Given) -> CategoryCode:
    """The code of a column of categories, or of yes and no."""
    counts: dict[Hashable, int] = {}
    for value in given.known:
        label = bool(value) if given.kind == "boolean" else value
        counts[label] = counts.get(label, 0) + 1
    if given.declared is not None:
        labels = [label for label in given.declared if label in counts]
    else:
        labels = sorted(counts, key=_sorted_as)
    shares = np.array([counts[label] for label in labels], dtype=np.float64)
    shares /= shares.sum()
    return CategoryCode(tuple(labels), shares, _codes(shares))


def _sorted_as(label: Hashable) -> tuple[str, Any]:
    """A key that sorts labels of different types too."""
    number = isinstance(label, int | float | np.number)
    return ("", label) if number else (type(label).__name__, str(label))


def _codes(shares: Array) -> Array:
    """Coordinates of the categories, shape (k, k - 1)."""
    k = len(shares)
    if k == 1:
        return np.zeros((1, 0))
    root = np.sqrt(shares)
    basis = np.linalg.qr(np.column_stack([root, np.eye(k)[:, : k - 1]]))[0][:, 1:]
    return basis / root[:, None]
