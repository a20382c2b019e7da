"""Between the user's values and those that a model works with: units."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ncarl.centering import column_sums, fit_spreads
from ncarl.centre import Centre
from ncarl.core.types import Array
from ncarl.observed import Observed
from ncarl.preparing import Divided
from ncarl.surveys import Entries

#: Columns whose spreads differ by more than this factor have units of their own.
UNITS_DIFFER = 5.0
#: Columns with fewer entries say nothing of their spread.
ENOUGH_ENTRIES = 20


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

    def log_density_shift(self, counts: Array) -> float:
        """What the change of units adds to the log density of the entries.

        ``counts`` are the observed entries of each column.
        """
        spreads = self.centre.spreads
        logs = np.log(spreads, out=np.zeros_like(spreads), where=spreads > 0.0)
        return -float(counts @ logs) - int(counts.sum()) * float(np.log(self.unit))


def _held(values: Array, unit: float) -> Array:
    """``values * unit``, overflow held at the largest float."""
    largest = np.finfo(np.float64).max
    with np.errstate(over="ignore"):
        held: Array = np.clip(values * unit, -largest, largest)
    return held


def fit_standard(entries: Entries, *, scaled: bool) -> Standard:
    """Units of a matrix; ``scaled`` gives each column its own."""
    unit, counts = entries.survey.unit, entries.survey.column_counts
    n = len(counts)
    plain = Centre(0.0, np.zeros(n), None, np.ones(n))
    if not scaled:
        return Standard(unit, plain)
    inner = entries.changed(Divided(unit))
    # Not about a common mean first, which would swallow columns of tiny units.
    (sums,) = inner.total(column_sums, centre=plain).added
    usual = sums.sum() / entries.survey.n_observed
    means = np.where(counts > 0, sums / np.maximum(counts, 1), usual)
    spreads = fit_spreads(inner, replace(plain, columns=means))
    return Standard(unit, Centre(0.0, means, None, spreads))


def units_differ(entries: Entries) -> bool:
    """Whether the columns seem to have units of their own.

    Their spreads differ by a large factor, and most columns have enough entries for
    that to mean anything.
    """
    counts = entries.survey.column_counts
    spreads = fit_standard(entries, scaled=True).centre.spreads
    known = (counts >= ENOUGH_ENTRIES) & (spreads > 0.0)
    if known.sum() < max(2, len(counts) / 2):
        return False
    low, high = np.percentile(spreads[known], (10, 90))
    return bool(high > UNITS_DIFFER * low)
