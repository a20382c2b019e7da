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

#: Alternations between row and column effects, and the change that ends them.
SWEEPS, SETTLED = 200, 1e-10


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
        return _shrunk_means(left, observed.rows, observed.row_counts, self.row_ridge)

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


def fit_centre(observed: Observed, mode: str, scaled: bool) -> Centre:
    """The additive part of a matrix.

    Parameters
    ----------
    observed : Observed
        The observed entries.
    mode : {"none", "mean", "columns", "rows", "two-way"}
        Which effects to take off.
    scaled : bool
        Whether to divide each column by the spread of its residuals.
    """
    n = observed.shape[1]
    mean = 0.0 if mode == "none" else float(observed.values.mean())
    columns, spreads, row_ridge = np.zeros(n), np.ones(n), None
    if mode == "columns" or (mode == "two-way" and scaled):
        left = observed.values - mean
        columns = _shrunk_means(left, observed.indices, observed.column_counts, 0.0)
    if scaled:
        left = Centre(mean, columns, None, spreads).without_columns(observed)
        spreads = column_spreads(observed, mean, left)
    if mode == "rows":
        row_ridge = 0.0
    elif mode == "two-way":
        # Effects of rows add up over columns, so columns of other units come scaled.
        left = Centre(mean, columns, None, spreads).without_columns(observed)
        _, further, row_ridge = two_way_effects(observed.with_values(left))
        columns = columns + spreads * further
    return Centre(mean, columns, row_ridge, spreads)


def two_way_effects(
    observed: Observed, mean: float = 0.0
) -> tuple[Array, Array, float]:
    """Row effects, column effects and the ridge of the rows, by random-effects EM.

    The ridges are ratios of variances (residual over effect), learned from the data:
    strong where rows have few entries and differ little, weak where they differ much.
    """
    rows, columns = observed.rows, observed.indices
    row_counts, column_counts = observed.row_counts, observed.column_counts
    v = observed.values - mean
    a, b = np.zeros(observed.shape[0]), np.zeros(observed.shape[1])
    ridge_a = ridge_b = 1.0
    total = float(v @ v) / len(v)
    if total <= 0.0:
        return a, b, ridge_a
    for _ in range(SWEEPS):
        before = b
        a = _shrunk_means(v - b[columns], rows, row_counts, ridge_a)
        b = _shrunk_means(v - a[rows], columns, column_counts, ridge_b)
        a, b = _balanced(a, b, ridge_a, ridge_b, row_counts > 0, column_counts > 0)
        left = v - a[rows] - b[columns]
        noise = max(float(left @ left) / len(v), 1e-12 * total)
        ridge_a = noise / _effect_variance(a, row_counts, ridge_a, noise)
        ridge_b = noise / _effect_variance(b, column_counts, ridge_b, noise)
        if float(np.max(np.abs(b - before))) <= SETTLED * total**0.5:
            break
    return a, b, ridge_a


def _balanced(
    a: Array, b: Array, ridge_a: float, ridge_b: float, seen_a: Array, seen_b: Array
) -> tuple[Array, Array]:
    """The same sums ``a_i + b_j`` with the constant where the ridges want it.

    Alternation alone moves a constant between the two sides only slowly.
    """
    pull = ridge_b * float(b[seen_b].sum()) - ridge_a * float(a[seen_a].sum())
    shift = pull / (ridge_a * int(seen_a.sum()) + ridge_b * int(seen_b.sum()))
    return a + shift * seen_a, b - shift * seen_b


def _effect_variance(
    effects: Array, counts: Array, ridge: float, noise: float
) -> float:
    """Variance of effects: mean square plus what the estimates leave uncertain."""
    seen = counts > 0
    spread = effects[seen] ** 2 + noise / (counts[seen] + ridge)
    # Floored so that the ridge stays finite where the effects vanish.
    return max(float(spread.mean()), 1e-9 * noise)


def _shrunk_means(left: Array, owner: Array, counts: Array, ridge: float) -> Array:
    """Sum of ``left`` by owner over count plus ridge; 0 without entries."""
    sums = np.bincount(owner, weights=left, minlength=len(counts))
    weights = counts + ridge
    return np.divide(sums, weights, out=np.zeros(len(counts)), where=weights > 0)


def column_spreads(observed: Observed, mean: float, left: Array) -> Array:
    """Root mean square of each column's residuals; 0 where it does not vary."""
    columns, counts = observed.indices, observed.column_counts
    squares = np.bincount(columns, weights=left**2, minlength=len(counts))
    spreads = np.sqrt(squares / np.maximum(counts, 1))
    # What a constant column leaves is the rounding of its own sums, not a spread.
    sizes = np.full(len(counts), abs(mean))
    np.maximum.at(sizes, columns, np.abs(observed.values))
    rounding = np.finfo(np.float64).eps * (counts + 16) * sizes
    return np.where(counts == 0, 1.0, np.where(spreads > rounding, spreads, 0.0))
