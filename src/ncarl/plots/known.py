"""What is known of a matrix, row by row and column by column, and how sure the rest is.

Plain numbers, from which figures and tables are made.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ncarl.core.types import Array
from ncarl.observed import Observed
from ncarl.plots.learned import asked, spreads_of

#: Rows and columns of the picture of a pattern; larger matrices are shown in cells.
MOST_CELLS = 300
#: Gaps that stand for all.
MOST_GAPS = 10_000
#: Matrices with more entries than this are never laid out in full.
LAID_OUT = 50_000_000


@dataclass(frozen=True)
class Pattern:
    """Which entries of a matrix are known.

    Attributes
    ----------
    shape : tuple of int
        Of the matrix.
    image : array of shape (height, width)
        Part of the entries that is known, cell by cell; a cell is an entry where the
        matrix is small.
    row_counts, column_counts : arrays of int
        Known entries of each row and each column.
    """

    shape: tuple[int, int]
    image: Array
    row_counts: Array
    column_counts: Array

    @property
    def missing(self) -> int:
        """Number of gaps."""
        return int(self.shape[0] * self.shape[1] - self.row_counts.sum())

    def poor(self, least: int) -> tuple[Array, Array]:
        """Rows and columns with fewer known entries than ``least``."""
        return (
            np.flatnonzero(self.row_counts < least),
            np.flatnonzero(self.column_counts < least),
        )


def pattern_of(chunks: Iterable[Observed], shape: tuple[int, int]) -> Pattern:
    """The pattern of a matrix whose rows come in chunks, in order.

    Examples
    --------
    >>> import numpy as np
    >>> X = Observed.from_dense(np.array([[1.0, np.nan], [2.0, 3.0]]))
    >>> pattern_of([X], (2, 2)).image.tolist()
    [[1.0, 0.0], [1.0, 1.0]]
    """
    m, n = shape
    height, width = max(1, min(m, MOST_CELLS)), max(1, min(n, MOST_CELLS))
    counts = np.zeros((height, width))
    row_counts, column_counts = np.zeros(m, np.int64), np.zeros(n, np.int64)
    first = 0
    for chunk in chunks:
        end = first + chunk.shape[0]
        row_counts[first:end] = chunk.row_counts
        column_counts += chunk.column_counts
        down = (chunk.rows + first) * height // m
        right = chunk.indices.astype(np.int64) * width // n
        cells = np.bincount(down * width + right, minlength=height * width)
        counts += cells.reshape(height, width)
        first = end
    tall = np.bincount(np.arange(m) * height // max(m, 1), minlength=height)
    broad = np.bincount(np.arange(n) * width // max(n, 1), minlength=width)
    return Pattern(shape, counts / np.outer(tall, broad), row_counts, column_counts)


@dataclass(frozen=True)
class Doubts:
    """Some gaps, what a model fills in there, and how far off that may be.

    Attributes
    ----------
    rows, columns : arrays of int, shape (gaps,)
        Where they are.
    values : array of shape (gaps,)
        What is filled in.
    std : array of shape (gaps,), or None
        Standard deviations; None for a model without noise.
    spreads : array of shape (n,)
        Standard deviation of each column over its known entries; 0 for none.
    """

    rows: Array
    columns: Array
    values: Array
    std: Array | None
    spreads: Array

    @property
    def relative(self) -> Array:
        """Standard deviations in spreads of the column; NaN where it has none."""
        unit = self.spreads[self.columns]
        if self.std is None:
            return np.full(len(unit), np.nan)
        safe = np.where(unit > 0.0, unit, 1.0)
        shares: Array = np.where(unit > 0.0, self.std / safe, np.nan)
        return shares


def doubts_of(
    model: Any, entries: Observed, *, X: Any = None, most: int = MOST_GAPS
) -> Doubts:
    """What a model says of gaps: of all where they are few, else of some.

    Parameters
    ----------
    model : fitted estimator
        What fills them.
    entries : Observed
        The known entries.
    X : container, optional
        The matrix to be asked about, where it is not that of the fit.
    most : int
        Gaps to ask about, evenly over the columns.
    """
    i, j = some_gaps(entries, most)
    spreads = spreads_of(entries)
    if len(i) == 0:
        return Doubts(i, j, np.empty(0), None, spreads)
    return Doubts(i, j, *asked(model, i, j, X), spreads)


def some_gaps(entries: Observed, most: int) -> tuple[Array, Array]:
    """Rows and columns of gaps, no more than about ``most``, sorted by row.

    Examples
    --------
    >>> import numpy as np
    >>> X = Observed.from_dense(np.array([[1.0, np.nan], [2.0, 3.0]]))
    >>> [places.tolist() for places in some_gaps(X, 10)]
    [[0], [1]]
    """
    (m, n), rng = entries.shape, np.random.default_rng(0)
    if m * n > LAID_OUT:
        return _gaps_by_lot(entries, most, rng)
    gaps = np.ones((m, n), dtype=bool)
    gaps[entries.rows, entries.indices] = False
    i, j = np.nonzero(gaps)
    if len(i) > most:
        # Every column has its part, so that none goes without.
        share = max(1, most // n)
        order = rng.permutation(len(i))
        order = order[np.argsort(j[order], kind="stable")]
        starts = np.searchsorted(j[order], np.arange(n))
        kept = np.sort(order[np.arange(len(order)) - starts[j[order]] < share])
        i, j = i[kept], j[kept]
    return i, j


def _gaps_by_lot(
    entries: Observed, most: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Gaps among places drawn by lot, for matrices too large to be laid out."""
    m, n = entries.shape
    keys = entries.rows * n + entries.indices
    share = 1.0 - len(keys) / (m * n)
    count = int(min(4 * most / max(share, 1e-3), 1e6))
    drawn = np.unique(rng.integers(0, m * n, count))
    after = np.minimum(np.searchsorted(keys, drawn), max(len(keys) - 1, 0))
    gaps = drawn[keys[after] != drawn] if len(keys) else drawn
    if len(gaps) > most:
        gaps = np.sort(rng.choice(gaps, most, replace=False))
    return gaps // n, gaps % n


def mean_by(owner: Array, values: Array, count: int) -> Array:
    """Mean of the finite values of each owner; NaN for those without any.

    Examples
    --------
    >>> import numpy as np
    >>> mean_by(np.array([0, 0, 2]), np.array([1.0, 3.0, 5.0]), 3).tolist()
    [2.0, nan, 5.0]
    """
    some = np.isfinite(values)
    counts = np.bincount(owner[some], minlength=count)
    sums = np.bincount(owner[some], values[some], minlength=count)
    means: Array = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    return means
