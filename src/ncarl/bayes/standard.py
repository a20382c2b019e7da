"""Between the user's values and those that a model works with: units and bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ncarl.centering import Centre, column_spreads
from ncarl.core.types import Array
from ncarl.model import unit_of
from ncarl.observed import Observed

#: Columns whose spreads differ by more than this factor have units of their own.
UNITS_DIFFER = 5.0
#: Columns with fewer entries say nothing of their spread.
ENOUGH_ENTRIES = 20
#: A value is a bound if this part of the entries, and more than one, reach it.
BOUND_SHARE = 1e-3


@dataclass(frozen=True)
class Standard:
    """Values to and from about unit size.

    Attributes
    ----------
    unit : float
        What all values are divided by first.
    centre : Centre
        Then the middle and the spread of each column; no effects of rows.
    """

    unit: float
    centre: Centre

    def inward(self, observed: Observed) -> Observed:
        """Entries as the model sees them."""
        inner = observed.with_values(observed.values / self.unit)
        return inner.with_values(self.centre.without_columns(inner))

    def outward(self, values: Array, columns: Any = slice(None)) -> Array:
        """Values of some columns as the user sees them."""
        centre = self.centre
        inner = (
            values * centre.spreads[columns] + (centre.mean + centre.columns)[columns]
        )
        return _held(inner, self.unit)

    def deviations(self, values: Array, columns: Any = slice(None)) -> Array:
        """Standard deviations of some columns as the user sees them."""
        return _held(values * self.centre.spreads[columns], self.unit)

    @property
    def error_unit(self) -> float:
        """What errors of the model are multiplied by, to be shown to the user.

        Where columns have units of their own errors are in spreads of the columns.
        """
        return self.unit if bool(np.all(self.centre.spreads == 1.0)) else 1.0

    def log_density_shift(self, observed: Observed) -> float:
        """What the change of units adds to the log density of the entries."""
        spreads = self.centre.spreads[observed.indices]
        logs = np.log(spreads, out=np.zeros_like(spreads), where=spreads > 0.0)
        return -float(np.sum(logs)) - observed.n_observed * float(np.log(self.unit))


def _held(values: Array, unit: float) -> Array:
    """``values * unit``, overflow held at the largest float."""
    largest = np.finfo(np.float64).max
    with np.errstate(over="ignore"):
        held: Array = np.clip(values * unit, -largest, largest)
    return held


def fit_standard(observed: Observed, *, scaled: bool) -> Standard:
    """Units of a matrix; ``scaled`` gives each column its own."""
    unit, n = unit_of(observed.values), observed.shape[1]
    if not scaled:
        return Standard(unit, Centre(0.0, np.zeros(n), None, np.ones(n)))
    values, columns = observed.values / unit, observed.indices
    # Not about a common mean first, which would swallow columns of tiny units.
    sums = np.bincount(columns, weights=values, minlength=n)
    counts = observed.column_counts
    means = np.where(counts > 0, sums / np.maximum(counts, 1), values.mean())
    inner = observed.with_values(values)
    spreads = column_spreads(inner, 0.0, values - means[columns])
    return Standard(unit, Centre(0.0, means, None, spreads))


def units_differ(observed: Observed) -> bool:
    """Whether the columns seem to have units of their own.

    Their spreads differ by a large factor, and most columns have enough entries for
    that to mean anything.
    """
    n, counts = observed.shape[1], observed.column_counts
    spreads = fit_standard(observed, scaled=True).centre.spreads
    known = (counts >= ENOUGH_ENTRIES) & (spreads > 0.0)
    if known.sum() < max(2, n / 2):
        return False
    low, high = np.percentile(spreads[known], (10, 90))
    return bool(high > UNITS_DIFFER * low)


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


def fit_range(
    observed: Observed, clip: Any, *, rounded: bool, by_column: bool
) -> Range:
    """Bounds and levels of a matrix.

    Parameters
    ----------
    observed : Observed
        Entries in the user's units.
    clip : {"auto", None} or pair of float
        "auto" holds values at an end of their range that is reached again and again.
    rounded : bool
        Whether filled values are rounded to observed levels.
    by_column : bool
        Whether each column has a range and levels of its own.
    """
    n = observed.shape[1]
    low, high = np.full(n, -np.inf), np.full(n, np.inf)
    levels, ends = np.empty(0), np.zeros((n, 2), dtype=np.int64)
    if clip is not None and not isinstance(clip, str):
        low[:], high[:] = clip
    elif clip == "auto" and not by_column:
        low[:], high[:] = _ends(observed.values)
    if by_column and (clip == "auto" or rounded):
        parts = _by_column(observed)
        if clip == "auto":
            low, high = np.transpose([_ends(part) for part in parts])
        if rounded:
            found = [
                _between(np.unique(part), *bounds)
                for part, *bounds in zip(parts, low, high, strict=True)
            ]
            levels = np.concatenate(found)
            stops = np.cumsum([len(part) for part in found])
            ends = np.stack([np.append(0, stops[:-1]), stops], axis=1)
    elif rounded:
        levels = _between(np.unique(observed.values), low[0], high[0])
        ends[:, 1] = len(levels)
    return Range(low, high, levels, ends)


def _between(levels: Array, low: float, high: float) -> Array:
    """The levels that lie within the bounds."""
    return levels[(levels >= low) & (levels <= high)]


def _by_column(observed: Observed) -> list[Array]:
    """Values of each column."""
    order = np.argsort(observed.indices, kind="stable")
    cuts = np.cumsum(observed.column_counts)[:-1]
    return np.split(observed.values[order], cuts)


def _ends(values: Array) -> tuple[float, float]:
    """The ends of the range that are bounds; infinite where they are not."""
    if len(values) == 0:
        return -np.inf, np.inf
    least = max(2.0, BOUND_SHARE * len(values))
    low, high = float(values.min()), float(values.max())
    if low == high:  # nothing is known of its range
        return -np.inf, np.inf
    return (
        low if np.count_nonzero(values == low) >= least else -np.inf,
        high if np.count_nonzero(values == high) >= least else np.inf,
    )
