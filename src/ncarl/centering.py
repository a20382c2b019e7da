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


@dataclass(frozen=True)
class TwoWay:
    """Row and column effects, and the ridges that hold them.

    Attributes
    ----------
    a : array of shape (m,)
        Effects of the rows.
    b : array of shape (n,)
        Effects of the columns.
    ridge_a, ridge_b : float
        Ratios of variances, residual over effect.
    """

    a: Array
    b: Array
    ridge_a: float = 1.0
    ridge_b: float = 1.0

    @classmethod
    def nothing(cls, shape: tuple[int, int]) -> TwoWay:
        """No effects."""
        return cls(np.zeros(shape[0]), np.zeros(shape[1]))

    def swept(self, observed: Observed, *, rows: bool, columns: bool) -> TwoWay:
        """Effects after a turn of each side; ridges are learned where asked for.

        Examples
        --------
        >>> import numpy as np
        >>> X = Observed.from_dense(np.array([[1.0, 2.0], [3.0, 4.0]]))
        >>> TwoWay.nothing((2, 2)).swept(X, rows=False, columns=False).a.shape
        (2,)
        """
        owner_a, owner_b, v = observed.rows, observed.indices, observed.values
        counts_a, counts_b = observed.row_counts, observed.column_counts
        a = _shrunk_means(v - self.b[owner_b], owner_a, counts_a, self.ridge_a)
        b = _shrunk_means(v - a[owner_a], owner_b, counts_b, self.ridge_b)
        if self.ridge_a + self.ridge_b > 0.0:
            seen = (counts_a > 0, counts_b > 0)
            a, b = _balanced(a, b, self.ridge_a, self.ridge_b, *seen)
        left = v - a[owner_a] - b[owner_b]
        total = float(v @ v) / len(v)
        noise = max(float(left @ left) / len(v), 1e-12 * total)
        ridge_a, ridge_b = self.ridge_a, self.ridge_b
        if rows and noise > 0.0:
            ridge_a = noise / _effect_variance(a, counts_a, ridge_a, noise)
        if columns and noise > 0.0:
            ridge_b = noise / _effect_variance(b, counts_b, ridge_b, noise)
        return TwoWay(a, b, ridge_a, ridge_b)


def two_way_effects(
    observed: Observed, mean: float = 0.0
) -> tuple[Array, Array, float]:
    """Row effects, column effects and the ridge of the rows, by random-effects EM.

    The ridges are ratios of variances (residual over effect), learned from the data:
    strong where rows have few entries and differ little, weak where they differ much.
    """
    if mean:
        observed = observed.with_values(observed.values - mean)
    found = TwoWay.nothing(observed.shape)
    total = float(observed.values @ observed.values) / observed.n_observed
    if total <= 0.0:
        return found.a, found.b, found.ridge_a
    for _ in range(SWEEPS):
        before = found.b
        found = found.swept(observed, rows=True, columns=True)
        if float(np.max(np.abs(found.b - before))) <= SETTLED * total**0.5:
            break
    return found.a, found.b, found.ridge_a


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
