"""What is taken off the values before the kernel sees them, and put back after.

A value is modelled as ``mean + column_j + spread_j * (row_i + residual_ij)``; the
kernel learns the residuals. The effect of a row is estimated from that row alone, so
rows never seen in a fit get theirs too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ncarl.core.types import Array
from ncarl.observed import Observed


@dataclass(frozen=True)
class Centre:
    """The additive part of a matrix.

    Attributes
    ----------
    mean : float
        Added everywhere.
    columns : array of shape (n,)
        Effect of each column.
    row_ridge : float or None
        Ridge of a row's effect; None where rows have no effect.
    spreads : array of shape (n,)
        What each column is divided by; row effects and residuals are in these units.
        0 where a column does not vary: it has no residuals and is filled as it is.
    """

    mean: float
    columns: Array
    row_ridge: float | None
    spreads: Array

    def row_effects(self, observed: Observed) -> Array:
        """Effect of each row, from its own observed entries; 0 without any."""
        if self.row_ridge is None:
            return np.zeros(observed.shape[0])
        left = self.without_columns(observed)
        return shrunk_means(left, observed.rows, observed.row_counts, self.row_ridge)

    def residuals(self, observed: Observed, row_effects: Array) -> Array:
        """Observed values without the additive part, in units of the spreads."""
        left = self.without_columns(observed)
        left -= np.repeat(row_effects, observed.row_counts)
        return left

    def without_columns(self, observed: Observed) -> Array:
        """Observed values without mean and column effects, in units of the spreads."""
        columns = observed.indices
        # Without effects nothing has to be looked up for every entry.
        effects = self.columns[columns] if self.columns.any() else 0.0
        left: Array = observed.values - (self.mean + effects)
        if bool((self.spreads == 1.0).all()):
            return left
        spreads = self.spreads[columns]
        return np.divide(left, spreads, out=np.zeros_like(left), where=spreads > 0.0)


def shrunk_means(left: Array, owner: Array, counts: Array, ridge: float) -> Array:
    """Sum of ``left`` by owner over count plus ridge; 0 without entries."""
    sums = np.bincount(owner, weights=left, minlength=len(counts))
    return over_counts(sums, counts, ridge)


def over_counts(sums: Array, counts: Array, ridge: float) -> Array:
    """Sums over counts plus ridge; 0 without entries."""
    weights = counts + ridge
    return np.divide(sums, weights, out=np.zeros(len(counts)), where=weights > 0)
