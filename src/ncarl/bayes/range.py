"""Where filled values may lie, and the levels that they are rounded to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ncarl.core.types import Array
from ncarl.observed import Observed
from ncarl.surveys import Entries

#: A value is a bound if this part of the entries, and more than one, reach it.
BOUND_SHARE = 1e-3
#: Levels that are gathered from chunks, at most.
MOST_LEVELS = 1_000_000


@dataclass(frozen=True)
class Range:
    """Where filled values may lie.

    Attributes
    ----------
    low, high : arrays of shape (n,)
        Bounds of each column, infinite for none.
    levels : array
        All observed levels: one column's after the other, or those of all columns.
    ends : array of int, shape (n, 2)
        Column ``j`` has ``levels[ends[j, 0]:ends[j, 1]]``; empty without rounding.
    """

    low: Array
    high: Array
    levels: Array
    ends: Array

    def clipped(self, values: Array, columns: Any = slice(None)) -> Array:
        """Values of some columns, held within the bounds."""
        return np.clip(values, self.low[columns], self.high[columns])

    def settled(self, values: Array, columns: Array) -> Array:
        """Values at single entries within the bounds, and rounded if that was asked."""
        held = self.clipped(values, columns)
        if len(self.levels) == 0:
            return held
        for j in np.unique(columns):
            levels = self.levels[slice(*self.ends[j])]
            if len(levels):
                here = columns == j
                held[here] = _nearest(levels, held[here])
        return held

    def settled_rows(self, values: Array) -> Array:
        """The same for whole rows."""
        held = self.clipped(values)
        for j in range(values.shape[1]) if len(self.levels) else ():
            levels = self.levels[slice(*self.ends[j])]
            if len(levels):
                held[:, j] = _nearest(levels, held[:, j])
        return held


def _nearest(levels: Array, values: Array) -> Array:
    """The level nearest to each value; levels increase."""
    middles = (levels[1:] + levels[:-1]) / 2.0
    return levels[np.searchsorted(middles, values)]


def fit_range(entries: Entries, clip: Any, *, rounded: bool, by_column: bool) -> Range:
    """Bounds and levels of a matrix.

    Parameters
    ----------
    entries : Entries
        Entries in the user's units.
    clip : {"auto", None} or pair of float
        "auto" holds values at an end of their range that is reached again and again.
    rounded : bool
        Whether filled values are rounded to observed levels.
    by_column : bool
        Whether each column has a range and levels of its own.
    """
    counts = entries.survey.column_counts
    n = len(counts)
    low, high = np.full(n, -np.inf), np.full(n, np.inf)
    if clip is not None and not isinstance(clip, str):
        low[:], high[:] = clip
    elif clip == "auto":
        found: Extremes = entries.total(extremes)
        if not by_column:
            found, counts = found.of_all(), np.asarray([entries.survey.n_observed])
        low[:], high[:] = found.bounds(counts)
    if not rounded:
        return Range(low, high, np.empty(0), np.zeros((n, 2), dtype=np.int64))
    known: Levels = entries.total(levels_of, by_column=by_column)
    parts = [
        _between(part, *bounds)
        for part, *bounds in zip(known.columns, low, high, strict=False)
    ]
    stops = np.cumsum([len(part) for part in parts])
    ends = np.stack([np.append(0, stops[:-1]), stops], axis=1)
    return Range(low, high, np.concatenate(parts), np.broadcast_to(ends, (n, 2)).copy())


@dataclass(frozen=True)
class Extremes:
    """Least and largest values of columns, and how many entries have them."""

    low: Array
    high: Array
    n_low: Array
    n_high: Array

    def __iadd__(self, other: Extremes) -> Extremes:
        """Those of the entries of both."""
        low, high = np.minimum(self.low, other.low), np.maximum(self.high, other.high)
        return Extremes(
            low,
            high,
            self.n_low * (self.low == low) + other.n_low * (other.low == low),
            self.n_high * (self.high == high) + other.n_high * (other.high == high),
        )

    def of_all(self) -> Extremes:
        """Those of all columns together."""
        low, high = self.low.min(keepdims=True), self.high.max(keepdims=True)
        n_low = np.sum(self.n_low * (self.low == low), keepdims=True)
        n_high = np.sum(self.n_high * (self.high == high), keepdims=True)
        return Extremes(low, high, n_low, n_high)

    def bounds(self, counts: Array) -> tuple[Array, Array]:
        """The ends of each range that are bounds; infinite where they are not."""
        least = np.maximum(2.0, BOUND_SHARE * counts)
        varied = self.low < self.high  # else nothing is known of its range
        low = np.where(varied & (self.n_low >= least), self.low, -np.inf)
        return low, np.where(varied & (self.n_high >= least), self.high, np.inf)


def extremes(observed: Observed) -> Extremes:
    """Least and largest values of each column; infinite in those without entries."""
    columns, values, n = observed.indices, observed.values, observed.shape[1]
    low, high = np.full(n, np.inf), np.full(n, -np.inf)
    np.minimum.at(low, columns, values)
    np.maximum.at(high, columns, values)
    counts = [
        np.bincount(columns, weights=values == end[columns], minlength=n)
        for end in (low, high)
    ]
    return Extremes(low, high, *counts)


@dataclass(frozen=True)
class Levels:
    """Values that occur, in increasing order: of each column, or of all as one."""

    columns: tuple[Array, ...]

    def __iadd__(self, other: Levels) -> Levels:
        """Those of the entries of both."""
        pairs = zip(self.columns, other.columns, strict=True)
        joined = Levels(tuple(np.union1d(*pair) for pair in pairs))
        if sum(map(len, joined.columns)) > MOST_LEVELS:
            raise ValueError(
                "rounding='observed' is for values of few levels; X has more than "
                f"{MOST_LEVELS}. Use rounding=None"
            )
        return joined


def levels_of(observed: Observed, *, by_column: bool) -> Levels:
    """Values that occur in each column, or anywhere."""
    if not by_column:
        return Levels((np.unique(observed.values),))
    order = np.argsort(observed.indices, kind="stable")
    cuts = np.cumsum(observed.column_counts)[:-1]
    parts = np.split(observed.values[order], cuts)
    return Levels(tuple(np.unique(part) for part in parts))


def _between(levels: Array, low: float, high: float) -> Array:
    """The levels that lie within the bounds."""
    return levels[(levels >= low) & (levels <= high)]
