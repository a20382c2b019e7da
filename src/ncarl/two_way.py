"""Effects of rows and columns, and how strongly each is held."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ncarl.centre import Centre, over_counts, shrunk_means
from ncarl.core.types import Array
from ncarl.observed import Observed
from ncarl.surveys import Entries, Sums, Survey

#: Alternations between row and column effects, and the change that ends them.
SWEEPS, SETTLED = 200, 1e-10


@dataclass(frozen=True)
class TwoWayColumns:
    """Column effects beside row effects, which a matrix of any length can have.

    Attributes
    ----------
    columns : array of shape (n,)
        Effects of the columns.
    row_ridge, column_ridge : float
        Ratios of variances, residual over effect: the ridges of the effects.
    squares : float
        Sum of the squares that both effects leave.
    """

    columns: Array
    row_ridge: float
    column_ridge: float
    squares: float

    def turned(
        self, survey: Survey, values: float, squares: float, by_column: Array,
        a_sum: float, a_squares: float, doubt: float,
    ) -> TwoWayColumns:  # fmt: skip
        """Effects and ridges after a turn, from the `sweep_sums` of all rows."""
        counts, rows, b = survey.column_counts, survey.seen_rows, self.columns
        seen = counts > 0
        new = over_counts(by_column + counts * b, counts, self.column_ridge)
        # Squares about the new effects, from those about the old ones.
        step = new - b
        left = squares - 2.0 * float(step @ by_column) + float(counts @ step**2)
        # Alternation alone moves a constant between the two sides only slowly.
        pull = self.column_ridge * float(new[seen].sum()) - self.row_ridge * a_sum
        weight = self.row_ridge * rows + self.column_ridge * int(seen.sum())
        shift = pull / weight
        new = new - shift * seen
        noise = max(left, 1e-12 * values) / survey.n_observed
        about = a_squares + 2.0 * shift * a_sum + shift**2 * rows
        spread = max((about + noise * doubt) / rows, 1e-9 * noise)
        columns = noise / effect_variance(new, counts, self.column_ridge, noise)
        return TwoWayColumns(new, noise / spread, columns, max(left, 0.0))


def two_way_columns(entries: Entries, centre: Centre) -> TwoWayColumns:
    """Column effects and the ridge of the rows, by random-effects EM.

    The ridges are ratios of variances (residual over effect), learned from the data:
    strong where rows have few entries and differ little, weak where they differ much.
    Effects of rows are found again in every pass, so that none is kept.
    """
    survey = entries.survey
    found = TwoWayColumns(np.zeros(len(centre.columns)), 1.0, 1.0, 0.0)
    for _ in range(SWEEPS):
        before = found.columns
        sums = entries.total(
            sweep_sums, centre=centre, columns=before, ridge=found.row_ridge
        )
        total = sums.added[0] / survey.n_observed
        if total <= 0.0:
            break
        found = found.turned(survey, *sums.added)
        if float(np.max(np.abs(found.columns - before))) <= SETTLED * total**0.5:
            break
    return found


def sweep_sums(
    observed: Observed, *, centre: Centre, columns: Array, ridge: float
) -> Sums:
    """What a turn of row and column effects needs to know of some rows.

    Sums of the squared values; with the effects of the rows given the old ones of the
    columns, of the squares that both leave, and of what they leave of each column; of
    the effects, of their squares, and of what is left uncertain of each, over the
    noise.
    """
    v, counts = centre.without_columns(observed), observed.row_counts
    left = v - columns[observed.indices]
    a = shrunk_means(left, observed.rows, counts, ridge)
    left -= np.repeat(a, counts)
    n, some = observed.shape[1], counts[counts > 0]
    by_column = np.bincount(observed.indices, weights=left, minlength=n)
    doubt = float(np.sum(1.0 / (some + ridge)))
    squares, row_squares = float(left @ left), float(a @ a)
    return Sums((float(v @ v), squares, by_column, float(a.sum()), row_squares, doubt))


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
        a = shrunk_means(v - self.b[owner_b], owner_a, counts_a, self.ridge_a)
        b = shrunk_means(v - a[owner_a], owner_b, counts_b, self.ridge_b)
        if self.ridge_a + self.ridge_b > 0.0:
            seen = (counts_a > 0, counts_b > 0)
            a, b = _balanced(a, b, self.ridge_a, self.ridge_b, *seen)
        left = v - a[owner_a] - b[owner_b]
        total = float(v @ v) / len(v)
        noise = max(float(left @ left) / len(v), 1e-12 * total)
        ridge_a, ridge_b = self.ridge_a, self.ridge_b
        if rows and noise > 0.0:
            ridge_a = noise / effect_variance(a, counts_a, ridge_a, noise)
        if columns and noise > 0.0:
            ridge_b = noise / effect_variance(b, counts_b, ridge_b, noise)
        return TwoWay(a, b, ridge_a, ridge_b)


def _balanced(
    a: Array, b: Array, ridge_a: float, ridge_b: float, seen_a: Array, seen_b: Array
) -> tuple[Array, Array]:
    """The same sums ``a_i + b_j`` with the constant where the ridges want it.

    Alternation alone moves a constant between the two sides only slowly.
    """
    pull = ridge_b * float(b[seen_b].sum()) - ridge_a * float(a[seen_a].sum())
    shift = pull / (ridge_a * int(seen_a.sum()) + ridge_b * int(seen_b.sum()))
    return a + shift * seen_a, b - shift * seen_b


def effect_variance(effects: Array, counts: Array, ridge: float, noise: float) -> float:
    """Variance of effects: mean square plus what the estimates leave uncertain."""
    seen = counts > 0
    spread = effects[seen] ** 2 + noise / (counts[seen] + ridge)
    # Floored so that the ridge stays finite where the effects vanish.
    return max(float(spread.mean()), 1e-9 * noise)
