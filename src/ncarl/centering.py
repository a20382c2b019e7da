"""The additive part of a matrix, learned from its entries."""

from __future__ import annotations

import numpy as np

from ncarl.centre import Centre, over_counts
from ncarl.core.types import Array
from ncarl.observed import Observed
from ncarl.surveys import Entries, Sums
from ncarl.two_way import two_way_columns


def fit_centre(entries: Entries, mode: str, scaled: bool) -> Centre:
    """The additive part of a matrix.

    Parameters
    ----------
    entries : Entries
        The observed entries.
    mode : {"none", "mean", "columns", "rows", "two-way"}
        Which effects to take off.
    scaled : bool
        Whether to divide each column by the spread of its residuals.
    """
    counts = entries.survey.column_counts
    nothing, ones = np.zeros(len(counts)), np.ones(len(counts))
    mean = 0.0 if mode == "none" else mean_value(entries)
    columns, spreads, row_ridge = nothing, ones, None
    if mode == "columns" or (mode == "two-way" and scaled):
        about = Centre(mean, nothing, None, ones)
        (sums,) = entries.total(column_sums, centre=about).added
        columns = over_counts(sums, counts, 0.0)
    if scaled:
        spreads = fit_spreads(entries, Centre(mean, columns, None, ones))
    if mode == "rows":
        row_ridge = 0.0
    elif mode == "two-way":
        # Effects of rows add up over columns, so columns of other units come scaled.
        found = two_way_columns(entries, Centre(mean, columns, None, spreads))
        columns, row_ridge = columns + spreads * found.columns, found.row_ridge
    return Centre(mean, columns, row_ridge, spreads)


def mean_value(entries: Entries) -> float:
    """Mean of all values."""
    (total,) = entries.total(value_sum).added
    return float(total / entries.survey.n_observed)


def value_sum(observed: Observed) -> Sums:
    """Sum of the values."""
    return Sums((observed.values.sum(),))


def column_sums(observed: Observed, *, centre: Centre) -> Sums:
    """Sum of what is left of each column's values without a centre."""
    left = centre.without_columns(observed)
    n = observed.shape[1]
    return Sums((np.bincount(observed.indices, weights=left, minlength=n),))


def square_sum(observed: Observed, *, centre: Centre) -> Sums:
    """Sum of the squares that are left without a centre, and of the values'."""
    left, values = centre.without_columns(observed), observed.values
    return Sums((float(left @ left), float(values @ values)))


def fit_spreads(entries: Entries, centre: Centre) -> Array:
    """Root mean square of each column about a centre; 0 where it does not vary."""
    found = entries.total(spread_sums, centre=centre)
    (squares,), (sizes,) = found.added, found.largest
    counts = entries.survey.column_counts
    spreads = np.sqrt(squares / np.maximum(counts, 1))
    # What a constant column leaves is the rounding of its own sums, not a spread.
    rounding = np.finfo(np.float64).eps * (counts + 16) * sizes
    return np.where(counts == 0, 1.0, np.where(spreads > rounding, spreads, 0.0))


def spread_sums(observed: Observed, *, centre: Centre) -> Sums:
    """Squares of each column about a centre, and the largest of its values."""
    left, n = centre.without_columns(observed), observed.shape[1]
    squares = np.bincount(observed.indices, weights=left**2, minlength=n)
    sizes = np.full(n, abs(centre.mean))
    np.maximum.at(sizes, observed.indices, np.abs(observed.values))
    return Sums((squares,), (sizes,))
