"""The observed entries of a matrix: the one form every input is turned into."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from ncarl.content import Content
from ncarl.core.scan import observed_entries
from ncarl.core.types import Array

#: Rows of a dense array are scanned in pieces of about this many numbers.
SCAN = 4_000_000
#: Columns are counted in 32 bits.
MOST_COLUMNS = 2**31 - 1


@dataclass(frozen=True)
class Observed:
    """Observed entries as compressed sparse rows; whatever is absent is missing.

    Attributes
    ----------
    indptr : array of int64, shape (m + 1,)
        Row ``i`` owns the entries ``indptr[i]:indptr[i + 1]``.
    indices : array of int32, shape (entries,)
        Columns, increasing within a row, no duplicates.
    values : array of float, shape (entries,)
        The values there; zeros are values like any other.
    shape : tuple of int
        Shape of the matrix.
    """

    indptr: Array
    indices: Array
    values: Array
    shape: tuple[int, int]

    @classmethod
    def from_dense(cls, X: Array) -> Observed:
        """Observed entries of a dense array, NaN marking the gaps.

        Examples
        --------
        >>> import numpy as np
        >>> Observed.from_dense(np.array([[1.0, np.nan], [0.0, 2.0]])).n_observed
        3
        """
        m, n = X.shape
        step = max(1, SCAN // max(1, n))
        counts = [np.zeros(1, np.int64)]
        columns, values = [np.empty(0, np.int32)], [np.empty(0)]
        for first in range(0, m, step):
            found = observed_entries(np.asarray(X[first : first + step]))
            counts.append(found[0])
            columns.append(found[1])
            values.append(found[2])
        indptr = np.cumsum(np.concatenate(counts))
        return cls(indptr, np.concatenate(columns), np.concatenate(values), (m, n))

    @classmethod
    def from_sparse(cls, X: Any) -> Observed:
        """Observed entries of a scipy.sparse matrix: those that it stores.

        Raises
        ------
        ValueError
            If an entry is stored twice.
        """
        if max(X.shape) > MOST_COLUMNS:
            raise ValueError(
                f"X must have at most {MOST_COLUMNS} rows and columns, got shape "
                f"{X.shape}; number its rows and columns from 0 without gaps"
            )
        csr = _stored_entries(X)
        if not csr.has_sorted_indices:
            csr = csr.sorted_indices()
        _refuse_duplicates(csr)
        values = csr.data.astype(np.float64, copy=False)
        found = cls(
            csr.indptr.astype(np.int64, copy=False),
            csr.indices.astype(np.int32, copy=False),
            values,
            (int(csr.shape[0]), int(csr.shape[1])),
        )
        gaps = np.isnan(values)
        return found.without(gaps) if gaps.any() else found

    @classmethod
    def stacked(cls, parts: Sequence[Observed]) -> Observed:
        """Rows of several matrices of the same columns, one below the other."""
        counts = [part.row_counts for part in parts]
        indptr = np.cumsum(np.concatenate([np.zeros(1, np.int64), *counts]))
        return cls(
            indptr,
            np.concatenate([part.indices for part in parts]),
            np.concatenate([part.values for part in parts]),
            (len(indptr) - 1, parts[0].shape[1]),
        )

    @property
    def n_observed(self) -> int:
        """Number of observed entries."""
        return len(self.values)

    @property
    def rows(self) -> Array:
        """Row of each entry."""
        counts = np.diff(self.indptr)
        return np.repeat(np.arange(self.shape[0], dtype=np.int64), counts)

    @property
    def row_counts(self) -> Array:
        """Observed entries in each row."""
        return np.diff(self.indptr)

    @cached_property
    def column_counts(self) -> Array:
        """Observed entries in each column."""
        return np.bincount(self.indices, minlength=self.shape[1])

    def row_columns(self, i: int) -> Array:
        """Observed columns of row ``i``."""
        return self.indices[self.indptr[i] : self.indptr[i + 1]]

    def with_values(self, values: Array) -> Observed:
        """The same pattern with other values."""
        return Observed(self.indptr, self.indices, values, self.shape)

    def transposed(self) -> Observed:
        """The transposed matrix."""
        turned = self.to_csr().T.tocsr()
        return Observed(
            turned.indptr.astype(np.int64, copy=False),
            turned.indices.astype(np.int32, copy=False),
            turned.data,
            (self.shape[1], self.shape[0]),
        )

    def take_rows(self, rows: Array) -> Observed:
        """Some rows, in the order asked for."""
        small = self.n_observed <= MOST_COLUMNS  # scipy keeps both in one type
        indptr = self.indptr.astype(np.int32) if small else self.indptr
        chosen = sparse.csr_array((self.values, self.indices, indptr), self.shape)[rows]
        return Observed(
            chosen.indptr.astype(np.int64, copy=False),
            chosen.indices.astype(np.int32, copy=False),
            chosen.data,
            chosen.shape,
        )

    def without(self, dropped: Array) -> Observed:
        """All entries but those where the boolean array ``dropped`` is true."""
        kept = ~dropped
        before = np.concatenate([np.zeros(1, np.int64), np.cumsum(kept)])
        return Observed(
            before[self.indptr], self.indices[kept], self.values[kept], self.shape
        )

    def to_csr(self) -> Any:
        """The entries as a scipy CSR array."""
        return sparse.csr_array(
            (self.values, self.indices, self.indptr), shape=self.shape
        )

    def fingerprint(self) -> str:
        """A name for shape, pattern and values."""
        return Content.of(self).name(self.shape[1])


def from_triplets(
    rows: Any, cols: Any, values: Any, shape: tuple[int, int] | None = None
) -> Any:
    """A sparse matrix whose stored entries are the observed ones.

    Parameters
    ----------
    rows, cols : array-like of int, shape (entries,)
        Positions, counted from 0.
    values : array-like of float, shape (entries,)
        The values observed there; a zero is a value like any other.
    shape : tuple of int, optional
        Shape of the matrix; by default the smallest that holds all positions.

    Returns
    -------
    scipy.sparse.csr_array
        Ready for ``fit``. Entries that are not stored are missing, not zero.

    Examples
    --------
    >>> from ncarl import from_triplets
    >>> from_triplets([0, 0, 1], [0, 2, 1], [5.0, 0.0, 3.0], shape=(2, 3)).nnz
    3
    """
    positions = [_whole(rows, "rows"), _whole(cols, "cols")]
    data = _numbers(values)
    for name, array in (("rows", positions[0]), ("cols", positions[1])):
        if array.ndim != 1 or data.ndim != 1 or len(array) != len(data):
            raise ValueError(
                "rows, cols and values must be one-dimensional and of one length, "
                f"got shapes {positions[0].shape}, {positions[1].shape}, {data.shape}"
            )
        if len(array) and array.min() < 0:
            raise ValueError(f"{name} must not be negative, got {array.min()}")
    if not np.isfinite(data).all():
        raise ValueError(
            "values must be finite; leave out the triplets that are missing"
        )
    if shape is None:
        shape = tuple(int(p.max()) + 1 if len(p) else 0 for p in positions)  # type: ignore[assignment]
    size = _shape(shape)
    for name, array, bound in zip(("rows", "cols"), positions, size, strict=True):
        if len(array) and array.max() >= bound:
            raise ValueError(
                f"{name} holds {array.max()}, which is outside shape={size}"
            )
    coo = sparse.coo_array((data, tuple(positions)), shape=size)
    return Observed.from_sparse(coo).to_csr()


def _whole(positions: Any, name: str) -> Array:
    """Positions as int64, or an error that names them."""
    array = np.asarray(positions)
    if array.size and not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"{name} must be whole numbers, got dtype {array.dtype}")
    return array.astype(np.int64)


def _numbers(values: Any) -> Array:
    """Values as floats, or an error that names them."""
    array = np.asarray(values)
    try:
        if array.dtype.kind not in "cmM":
            return array.astype(np.float64)
    except (TypeError, ValueError):
        pass
    raise ValueError(f"values must be numbers, got dtype {array.dtype}")


def _shape(shape: Any) -> tuple[int, int]:
    """``shape`` as two whole numbers, or an error that names it."""
    try:
        m, n = (operator.index(size) for size in shape)
    except (TypeError, ValueError):
        raise ValueError(f"shape must be two whole numbers, got {shape!r}") from None
    if m < 1 or n < 1:
        raise ValueError(f"shape must be at least (1, 1), got {shape!r}")
    if max(m, n) > MOST_COLUMNS:
        raise ValueError(
            f"shape must be at most {MOST_COLUMNS} on each side, got {shape!r}; number "
            "rows and columns from 0 without gaps"
        )
    return m, n


def _stored_entries(X: Any) -> Any:
    """A CSR copy of ``X`` with all that it stores: zeros, and entries stored twice."""
    if X.format == "dia":
        # SciPy drops the zeros of a diagonal matrix when it converts one.
        X = _diagonals(X)
    if X.format != "coo":
        # A copy, so that later changes of X do not change what was learned from it.
        return X.tocsr(copy=True)
    # SciPy adds up what a COO matrix stores twice when it converts one.
    rows, cols = X.coords
    order = np.lexsort((cols, rows))
    counts = np.bincount(rows, minlength=X.shape[0])
    indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    return sparse.csr_array((X.data[order], cols[order], indptr), shape=X.shape)


def _diagonals(X: Any) -> Any:
    """A diagonal matrix in coordinates, its stored zeros included."""
    row_parts, col_parts, parts = [], [], []
    for offset, diagonal in zip(X.offsets, X.data, strict=True):
        cols = np.arange(max(0, offset), min(X.shape[0] + offset, len(diagonal)))
        cols = cols[cols < X.shape[1]]
        row_parts.append(cols - offset)
        col_parts.append(cols)
        parts.append(diagonal[cols])
    if not parts:
        return sparse.coo_array(X.shape)
    places = (np.concatenate(row_parts), np.concatenate(col_parts))
    return sparse.coo_array((np.concatenate(parts), places), shape=X.shape)


def _refuse_duplicates(csr: Any) -> None:
    """Raise if an entry of the sorted CSR matrix is stored twice."""
    same = np.diff(csr.indices) == 0
    ends = csr.indptr[1:-1]
    same[ends[(ends > 0) & (ends < len(csr.indices))] - 1] = False
    if same.any():
        entry = int(np.flatnonzero(same)[0])
        row = int(np.searchsorted(csr.indptr, entry, side="right")) - 1
        raise ValueError(
            f"X stores {int(same.sum())} entries twice, the first at row {row}, column "
            f"{int(csr.indices[entry])}. Which value holds? Remove the duplicates, or "
            "call X.sum_duplicates() if they are meant to be added."
        )
