"""Observed entries of a matrix in CSR format, and their fingerprint."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from ncarl.core.rows import observed_entries
from ncarl.core.types import Array, cached_property

#: Rows of a dense array are scanned in pieces of about this many numbers.
SCAN_SIZE = 4_000_000
#: Largest number of columns, whose indices have 32 bits.
MAX_COLUMNS = 2**31 - 1
#: Most rows and columns for each entry of a sparse matrix, and entries from which this
#: counts: beyond, what is stored for empty rows and columns takes up the memory.
MAX_LINES_PER_ENTRY, MIN_COUNTED_ENTRIES = 1000, 10_000
#: Odd multipliers of the two words of a fingerprint. Rows are weighted with powers of
#: them, so that the order of rows matters.
HASH_MULTIPLIERS = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F)
HASH_MODULUS = 2**64


@dataclass(frozen=True)
class Observations:
    """Observed entries as compressed sparse rows; what is not stored is missing."""

    indptr: Array  # int64, shape (m + 1,): entries indptr[i]:indptr[i + 1] are in row i
    indices: Array  # int32: columns, increasing within a row, without duplicates
    values: Array  # float; zeros are observed values
    shape: tuple[int, int]

    @classmethod
    def from_dense(cls, X: Array) -> Observations:
        """Observed entries of a dense array, NaN marking missing ones."""
        m, n = X.shape
        step = max(1, SCAN_SIZE // max(1, n))
        parts = [(np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0))]
        for first in range(0, m, step):
            parts.append(observed_entries(np.asarray(X[first : first + step])))
        counts, columns, values = (
            np.concatenate(part) for part in zip(*parts, strict=True)
        )
        return cls(np.cumsum(counts), columns, values, (m, n))

    @classmethod
    def from_sparse(cls, X: Any) -> Observations:
        """Observed entries of a scipy.sparse matrix: those it stores, except NaN."""
        if max(X.shape) > MAX_COLUMNS:
            raise ValueError(
                f"X must have at most {MAX_COLUMNS} rows and columns, got shape "
                f"{X.shape}; number its rows and columns from 0 without gaps"
            )
        csr = _copy_as_csr(check_sparse(X))
        if not csr.has_sorted_indices:
            csr = csr.sorted_indices()
        _refuse_duplicates(csr)
        found = cls._from_csr(csr).with_values(csr.data.astype(np.float64, copy=False))
        missing = np.isnan(found.values)
        return found.drop_entries(missing) if missing.any() else found

    @classmethod
    def _from_csr(cls, csr: Any) -> Observations:
        return cls(
            csr.indptr.astype(np.int64, copy=False),
            csr.indices.astype(np.int32, copy=False),
            csr.data,
            (int(csr.shape[0]), int(csr.shape[1])),
        )

    @classmethod
    def vstack(cls, parts: Sequence[Observations]) -> Observations:
        """Rows of several matrices with the same columns, one below the other."""
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
        return np.repeat(np.arange(self.shape[0], dtype=np.int64), self.row_counts)

    @property
    def row_counts(self) -> Array:
        """Observed entries in each row."""
        return np.diff(self.indptr)

    @cached_property
    def column_counts(self) -> Array:
        """Observed entries in each column."""
        return np.bincount(self.indices, minlength=self.shape[1])

    def missing_mask(self) -> Array:
        """Dense boolean array, True at the missing entries."""
        missing = np.ones(self.shape, dtype=bool)
        missing[self.rows, self.indices] = False
        return missing

    def column_means(self) -> Array:
        """Mean of the observed entries of each column; 0 without any."""
        # Divided before they are added up: the sum itself could overflow.
        parts = self.values / self.column_counts[self.indices]
        return np.bincount(self.indices, parts, minlength=self.shape[1])

    def column_stds(self) -> Array:
        """Standard deviation of the observed entries of each column; 0 without any."""
        counts, n = np.maximum(self.column_counts, 1), self.shape[1]
        # Divided by the largest, squares do not overflow and equal values give 0.
        largest = np.zeros(n)
        np.maximum.at(largest, self.indices, np.abs(self.values))
        largest[largest == 0.0] = 1.0
        scaled = self.values / largest[self.indices]
        means = np.bincount(self.indices, scaled, minlength=n) / counts
        squares = (scaled - means[self.indices]) ** 2
        variances = np.bincount(self.indices, squares, minlength=n) / counts
        return np.sqrt(variances) * largest

    def row_columns(self, i: int) -> Array:
        """Observed columns of row ``i``."""
        return self.indices[self.indptr[i] : self.indptr[i + 1]]

    def with_values(self, values: Array) -> Observations:
        """The same pattern with other values."""
        return Observations(self.indptr, self.indices, values, self.shape)

    def transpose(self) -> Observations:
        """The transposed matrix."""
        return self._from_csr(self.to_csr().T.tocsr())

    def take_rows(self, rows: Array) -> Observations:
        """Some rows, in the order given."""
        small = self.n_observed <= MAX_COLUMNS  # SciPy uses one type for both
        indptr = self.indptr.astype(np.int32) if small else self.indptr
        csr = sparse.csr_array((self.values, self.indices, indptr), self.shape)
        return self._from_csr(csr[rows])

    def reorder(self, rows: Array, columns: Array) -> Observations:
        """All rows and columns in other orders."""
        return self.take_rows(rows).transpose().take_rows(columns).transpose()

    def drop_entries(self, dropped: Array) -> Observations:
        """All entries but those where the boolean array ``dropped`` is true."""
        kept = ~dropped
        before = np.concatenate([np.zeros(1, np.int64), np.cumsum(kept)])
        return Observations(
            before[self.indptr], self.indices[kept], self.values[kept], self.shape
        )

    def to_csr(self) -> Any:
        """The entries as a scipy CSR array."""
        return sparse.csr_array((self.values, self.indices, self.indptr), self.shape)

    def fingerprint(self) -> str:
        """Hash of shape, pattern and values."""
        return Fingerprint.from_observations(self).hexdigest(self.shape[1])


def check_sparse_shape(shape: Sequence[int], n_entries: int, name: str) -> None:
    """Raise for a shape that has nearly nothing but empty rows or columns."""
    if sum(shape) > MAX_LINES_PER_ENTRY * max(n_entries, MIN_COUNTED_ENTRIES):
        raise ValueError(
            f"{name} has {shape[0]} rows and {shape[1]} columns for {n_entries} "
            "entries; number those that have entries without gaps"
        )


def check_sparse(X: Any, name: str = "X") -> Any:
    """A sparse matrix whose index arrays have been checked; it shares those of ``X``.

    SciPy's constructors check sizes only, and its conversions, like compiled kernels,
    crash on indices out of range.
    """
    is_ours = isinstance(X, Observations)
    check_sparse_shape(X.shape, X.n_observed if is_ours else int(X.nnz), name)
    try:
        if is_ours:
            return check_sparse(X.to_csr(), name)
        if X.format in ("csr", "csc", "bsr"):
            X = type(X)((X.data, X.indices, X.indptr), shape=X.shape)
            X.check_format(full_check=True)
        elif X.format in ("coo", "dia"):
            places = X.coords if X.format == "coo" else X.offsets
            X = type(X)((X.data, places), shape=X.shape)
        elif X.format == "lil" and [*map(len, X.rows)] != [*map(len, X.data)]:
            raise ValueError("its lists of columns and of values differ in length")
        else:  # lists and dictionaries, which are converted without reading by index
            X = X.tocsr()
            X.check_format(full_check=True)
    except (ValueError, TypeError, IndexError, OverflowError) as error:
        raise ValueError(
            f"{name} is not a valid {type(X).__name__}: {error}. Its index arrays are "
            "damaged; build it again, for example with ncarl.from_triplets"
        ) from error
    return X


def _copy_as_csr(X: Any) -> Any:
    """CSR copy of ``X`` with all entries it stores, zeros and duplicates included."""
    if X.format == "dia":
        # SciPy drops the zeros of a diagonal matrix when it converts one.
        X = _dia_to_coo(X)
    if X.format != "coo":
        # A copy, so that later changes of X have no effect on a fitted model.
        return X.tocsr(copy=True)
    # SciPy sums the duplicates of a COO matrix when it converts one.
    rows, cols = X.coords
    order = np.lexsort((cols, rows))
    counts = np.bincount(rows, minlength=X.shape[0])
    indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    return sparse.csr_array((X.data[order], cols[order], indptr), shape=X.shape)


def _dia_to_coo(X: Any) -> Any:
    m, n = X.shape
    cols, offsets = np.meshgrid(np.arange(X.data.shape[1]), X.offsets)
    rows = cols - offsets
    inside = (cols < n) & (rows >= 0) & (rows < m)
    return sparse.coo_array((X.data[inside], (rows[inside], cols[inside])), X.shape)


def _refuse_duplicates(csr: Any) -> None:
    same = np.diff(csr.indices) == 0
    ends = csr.indptr[1:-1]
    same[ends[(ends > 0) & (ends < len(csr.indices))] - 1] = False
    if same.any():
        entry = int(np.flatnonzero(same)[0])
        row = int(np.searchsorted(csr.indptr, entry, side="right")) - 1
        raise ValueError(
            f"X stores {int(same.sum())} entries twice, the first at row {row}, column "
            f"{int(csr.indices[entry])}. Remove the duplicates, or "
            "call X.sum_duplicates() if they are meant to be added."
        )


def from_triplets(
    rows: Any, cols: Any, values: Any, shape: tuple[int, int] | None = None
) -> Any:
    """Sparse matrix of observed entries from their rows, columns and values.

    Parameters
    ----------
    rows, cols : array-like of int, shape (entries,)
        Indices, counted from 0.
    values : array-like of float, shape (entries,)
        Observed values; a zero is an observed value.
    shape : tuple of int, optional
        Shape of the matrix; by default the smallest that holds all indices.

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
    positions = [_as_int_array(rows, "rows"), _as_int_array(cols, "cols")]
    data = np.asarray(values)
    try:
        if data.dtype.kind in "cmM":
            raise TypeError
        data = data.astype(np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"values must be numbers, got dtype {data.dtype}") from None
    shapes = [array.shape for array in (*positions, data)]
    if data.ndim != 1 or len(set(shapes)) > 1:
        raise ValueError(
            "rows, cols and values must be one-dimensional and of one length, got "
            f"shapes {', '.join(map(str, shapes))}"
        )
    if not np.isfinite(data).all():
        raise ValueError(
            "values must be finite; leave out the triplets of missing entries"
        )
    size = _check_shape(
        [int(p.max(initial=-1)) + 1 for p in positions] if shape is None else shape
    )
    for name, array, bound in zip(("rows", "cols"), positions, size, strict=True):
        if array.max(initial=-1) >= bound:
            raise ValueError(
                f"{name} holds {array.max()}, which is outside shape={size}"
            )
    coo = sparse.coo_array((data, tuple(positions)), shape=size)
    return Observations.from_sparse(coo).to_csr()


def _as_int_array(positions: Any, name: str) -> Array:
    array = np.asarray(positions)
    if array.size and not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"{name} must be whole numbers, got dtype {array.dtype}")
    array = array.astype(np.int64)
    if array.min(initial=0) < 0:
        raise ValueError(f"{name} must not be negative, got {array.min()}")
    return array


def _check_shape(shape: Any) -> tuple[int, int]:
    try:
        m, n = (operator.index(size) for size in shape)
    except (TypeError, ValueError):
        raise ValueError(f"shape must be two whole numbers, got {shape!r}") from None
    if m < 1 or n < 1:
        raise ValueError(f"shape must be at least (1, 1), got {shape!r}")
    if max(m, n) > MAX_COLUMNS:
        raise ValueError(
            f"shape must be at most {MAX_COLUMNS} on each side, got {shape!r}; number "
            "rows and columns from 0 without gaps"
        )
    return m, n


@dataclass(frozen=True)
class Fingerprint:
    """Hash of some rows in two 64-bit words; those of consecutive rows can be added."""

    n_rows: int
    words: tuple[int, int]

    @classmethod
    def from_observations(cls, observed: Observations) -> Fingerprint:
        """Fingerprint of some rows."""
        m = observed.shape[0]
        words = []
        for salt, factor in enumerate(HASH_MULTIPLIERS):
            powers = np.full(m, factor, dtype=np.uint64)
            powers[-1:] = 1
            powers = np.multiply.accumulate(powers[::-1])[::-1]
            columns = np.arange(observed.shape[1], dtype=np.uint64) + np.uint64(salt)
            hashes = row_hashes(observed, splitmix64(columns))
            words.append(int((hashes * powers).sum()))
        return cls(m, (words[0], words[1]))

    def __add__(self, other: Fingerprint) -> Fingerprint:
        first, second = (
            (mine * pow(factor, other.n_rows, HASH_MODULUS) + theirs) % HASH_MODULUS
            for mine, theirs, factor in zip(
                self.words, other.words, HASH_MULTIPLIERS, strict=True
            )
        )
        return Fingerprint(self.n_rows + other.n_rows, (first, second))

    def hexdigest(self, n_columns: int) -> str:
        """The shape and the words as text."""
        first, second = self.words
        return f"{self.n_rows}x{n_columns}-{first:016x}{second:016x}"


def row_hashes(observed: Observations, column_keys: Array) -> Array:
    """64-bit hash of each row, from the keys of its columns and its values.

    `hashlib` has no vectorized hash of many short rows.
    """
    return _hash_rows(observed, value_bits(observed) ^ column_keys[observed.indices])


def _hash_rows(observed: Observations, words: Array) -> Array:
    """Hash of the set of words of each row, one word for each entry."""
    counts = observed.row_counts
    hashes = counts.astype(np.uint64)
    some = np.flatnonzero(counts)
    if len(some):
        hashes[some] += np.add.reduceat(splitmix64(words), observed.indptr[some])
    return splitmix64(hashes)


def value_bits(observed: Observations) -> Array:
    """The bits of the values; 0.0 and -0.0 have the same."""
    return (observed.values.astype(np.float64) + 0.0).view(np.uint64)


def number_ties(hashes: Array) -> Array:
    """Hashes that are all different: equal ones are told apart by their count."""
    order = np.argsort(hashes, kind="stable")
    _, first, places = np.unique(hashes[order], return_index=True, return_inverse=True)
    counts = np.empty(len(hashes), dtype=np.uint64)
    counts[order] = np.arange(len(hashes)) - first[places]
    return splitmix64(hashes ^ splitmix64(counts))


def canonical_order(observed: Observations) -> tuple[Array, Array]:
    """Orders of the rows and of the columns that depend on their contents alone.

    If rows or columns are permuted, the orders name the same ones; only lines that are
    equal can change places. Other units of the columns, and ``-X``, make no difference.
    What is drawn for the matrix in this order does not depend on the order it came in.
    """
    positions = observed.with_values(np.arange(observed.n_observed)).transpose()
    by_columns = positions.with_values(observed.values[positions.values])
    by_columns = by_columns.with_values(_value_ranks(by_columns))
    by_rows = observed.with_values(np.empty(observed.n_observed, dtype=np.uint64))
    by_rows.values[positions.values] = by_columns.values
    # Lines are told apart by the lines that they have entries in common with, as far as
    # these have been told apart.
    row_keys = np.zeros(observed.shape[0], dtype=np.uint64)
    for _ in range(2):
        words = by_columns.values ^ row_keys[by_columns.indices]
        column_keys = _hash_rows(by_columns, words)
        row_keys = _hash_rows(by_rows, by_rows.values ^ column_keys[by_rows.indices])
    return np.argsort(row_keys, kind="stable"), np.argsort(column_keys, kind="stable")


def _value_ranks(observed: Observations) -> Array:
    """Ranks of the values among the different ones of their row, 0 in the middle.

    Those of ``-X`` have the other sign, so the sign that is more frequent in ``X``
    becomes plus; signs are left out if none is.
    """
    rows = observed.rows
    order = np.lexsort((observed.values, rows))
    values = observed.values[order]
    first = np.ones(len(rows), dtype=bool)
    first[1:] = rows[1:] != rows[:-1]
    new = first.copy()
    new[1:] |= values[1:] != values[:-1]
    numbers = np.cumsum(new)
    lowest = numbers[first]
    highest = np.append(lowest[1:], numbers[-1:] + 1) - 1
    ranks = 2 * numbers - (lowest + highest)[np.cumsum(first) - 1]
    balance = np.sign(np.sign(ranks).sum())
    codes = np.empty(len(rows), dtype=np.uint64)
    codes[order] = (ranks * balance if balance else np.abs(ranks)).view(np.uint64)
    return codes


def splitmix64(bits: Array) -> Array:
    """Mix 64-bit words (SplitMix64): every output bit depends on all input bits."""
    bits = bits + np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))
