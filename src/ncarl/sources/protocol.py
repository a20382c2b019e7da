"""What a source of rows is: chunks of observed entries, as often as one likes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from ncarl.core.types import Array
from ncarl.observed import Observed

#: Every chunk costs a sum of n x n numbers, however few its rows: a dense one has at
#: least this part of so many numbers, and a sparse one this part of so many entries.
DENSE_SHARE, SPARSE_SHARE = 0.5, 0.05
#: Fewest and most numbers in a chunk of a dense matrix.
DENSE_NUMBERS = (1_000_000, 32_000_000)
#: The same for the stored entries of a sparse one.
SPARSE_ENTRIES = (100_000, 4_000_000)


@runtime_checkable
class RowSource(Protocol):
    """Rows of an incomplete matrix that can be gone through again and again.

    Only a few of the rows are in memory at any time.
    """

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        ...

    @property
    def n_rows(self) -> int | None:
        """Number of rows; None if that is not known before a pass."""
        ...

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the columns; None if they have none."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """Float type of results: float32 or float64."""
        ...

    def __iter__(self) -> Iterator[Observed]:
        """Chunks of rows in order, afresh each time."""
        ...

    def parts(self) -> Sequence[Callable[[], Observed]] | None:
        """Loaders of the same chunks, which can be pickled and called anywhere.

        None where rows can only be read in turn.
        """
        ...


def rows_in_chunk(wanted: int | None, n_columns: int) -> int:
    """How many rows of a dense matrix make a chunk.

    Examples
    --------
    >>> rows_in_chunk(10, 500), rows_in_chunk(None, 500), rows_in_chunk(None, 40000)
    (10, 2000, 800)
    """
    if wanted is not None:
        return wanted
    numbers = int(np.clip(DENSE_SHARE * n_columns**2, *DENSE_NUMBERS))
    return max(1, numbers // max(1, n_columns))


def entries_in_chunk(n_columns: int) -> int:
    """How many stored entries a chunk of a sparse matrix has at most.

    Examples
    --------
    >>> entries_in_chunk(500), entries_in_chunk(3000)
    (100000, 450000)
    """
    return int(np.clip(SPARSE_SHARE * n_columns**2, *SPARSE_ENTRIES))


def row_ranges(n_rows: int, step: int) -> list[tuple[int, int]]:
    """First row and end of each chunk of so many rows.

    Examples
    --------
    >>> row_ranges(5, 2)
    [(0, 2), (2, 4), (4, 5)]
    """
    return [(first, min(n_rows, first + step)) for first in range(0, n_rows, step)]


def checked_rows_per_chunk(wanted: Any) -> int | None:
    """``rows_per_chunk`` as an int or None, or an error that names it."""
    if wanted is None:
        return None
    whole = isinstance(wanted, int | np.integer) and not isinstance(wanted, bool)
    if not whole or wanted < 1:
        raise ValueError(
            "rows_per_chunk must be a whole number of at least 1, or None for the "
            f"usual size, got {wanted!r}"
        )
    return int(wanted)


def result_dtype(*dtypes: np.dtype[Any]) -> np.dtype[Any]:
    """Float type of results for data of such types: float32 if all are as small."""
    small = all(d.kind == "f" and d.itemsize <= 4 for d in dtypes) and dtypes
    return np.dtype(np.float32 if small else np.float64)


def refuse_odd_numbers(dtype: np.dtype[Any], where: str) -> None:
    """Raise unless numbers of a type can be read as floats."""
    if dtype.kind not in "fiub":
        raise ValueError(f"{where} must hold real numbers, got dtype {dtype}")


def observed_rows(values: Array, first: int, where: str) -> Observed:
    """Observed entries of dense rows, NaN marking the gaps.

    Parameters
    ----------
    values : array of shape (rows, n_columns)
        The rows.
    first : int
        Number of the first of them in the whole matrix, for errors.
    where : str
        What errors call the matrix.
    """
    if len(values) == 0:
        return no_rows(values.shape[1])
    return finite(Observed.from_dense(values), first, where)


def no_rows(n_columns: int) -> Observed:
    """The entries of a matrix without rows."""
    empty = np.empty(0, np.int32), np.empty(0)
    return Observed(np.zeros(1, np.int64), *empty, (0, n_columns))


def finite(observed: Observed, first: int, where: str) -> Observed:
    """The entries as they are, or an error that names the first infinite one."""
    infinite = np.isinf(observed.values)
    if infinite.any():
        entry = int(np.argmax(infinite))
        row = first + int(np.searchsorted(observed.indptr, entry, side="right")) - 1
        raise ValueError(
            f"{where} must hold finite numbers, with NaN in the gaps, got "
            f"{observed.values[entry]} at row {row}, column "
            f"{int(observed.indices[entry])} (both from 0); put NaN there"
        )
    return observed
