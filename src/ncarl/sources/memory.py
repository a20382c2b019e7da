"""A matrix in memory, cut into chunks of rows."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy import sparse

from ncarl.observed import Observed
from ncarl.sources.blocks import block_names, entries_of, some_rows
from ncarl.sources.frames import float_dtype
from ncarl.sources.protocol import entries_in_chunk, row_ranges, rows_in_chunk


@dataclass(frozen=True, eq=False)
class MemoryRows:
    """Rows of a matrix in memory.

    Attributes
    ----------
    matrix : Observed, array, masked array, pandas or polars frame
        The rows.
    dtype : dtype
        Float type of results.
    rows_per_chunk : int or None
        Rows in a chunk; None for the usual size.
    """

    matrix: Any
    dtype: np.dtype[Any]
    rows_per_chunk: int | None = None

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return int(self.matrix.shape[1])

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.matrix.shape[0])

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the columns, if the matrix is a frame."""
        return block_names(self.matrix)

    def _ranges(self) -> list[tuple[int, int]]:
        """First row and end of each chunk."""
        if self.rows_per_chunk is None and isinstance(self.matrix, Observed):
            return entry_ranges(self.matrix.indptr, entries_in_chunk(self.n_columns))
        step = rows_in_chunk(self.rows_per_chunk, self.n_columns)
        return row_ranges(self.n_rows, step)

    def __iter__(self) -> Iterator[Observed]:
        """Chunks of rows in order."""
        for first, last in self._ranges():
            yield entries_of(some_rows(self.matrix, first, last), first, "X")
            _drop_pages(self.matrix)

    def parts(self) -> Sequence[Callable[[], Observed]]:
        """Loaders that carry their rows with them."""
        return [
            partial(entries_of, some_rows(self.matrix, first, last), first, "X")
            for first, last in self._ranges()
        ]


def entry_ranges(indptr: Any, most: int) -> list[tuple[int, int]]:
    """First row and end of chunks that store at most so many entries.

    A row counts as an entry too, so that empty rows do not pile up; a row with more
    entries makes a chunk of its own.

    Examples
    --------
    >>> entry_ranges([0, 2, 4, 9, 9], most=6)
    [(0, 2), (2, 3), (3, 4)]
    """
    counted = np.asarray(indptr) + np.arange(len(indptr))
    ranges, first = list[tuple[int, int]](), 0
    while first < len(counted) - 1:
        last = int(np.searchsorted(counted, counted[first] + most, side="right")) - 1
        last = max(first + 1, last)
        ranges.append((first, last))
        first = last
    return ranges


def _drop_pages(matrix: Any) -> None:
    """Let go of the pages of a mapped file; they come back when they are read."""
    mapped = getattr(matrix, "_mmap", None)
    # Pages of a private mapping ("c") hold what was changed, and would lose it.
    shared = getattr(matrix, "mode", None) in ("r", "r+")
    if mapped is not None and shared and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)


def memory_rows(matrix: Any, rows_per_chunk: int | None = None) -> MemoryRows:
    """A source of the rows of a matrix in memory.

    Parameters
    ----------
    matrix : container
        Observed entries, a 2-D array, masked array, scipy.sparse matrix, pandas or
        polars frame.
    rows_per_chunk : int, optional
        Rows in a chunk.
    """
    dtype = float_dtype(matrix)
    if sparse.issparse(matrix):
        matrix = Observed.from_sparse(matrix)
    return MemoryRows(matrix, dtype, rows_per_chunk)
