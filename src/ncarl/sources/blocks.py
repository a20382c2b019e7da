"""Blocks of rows that a user hands over, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy import sparse

from ncarl.observed import Observed
from ncarl.sources.frames import dense_values, float_dtype, is_frame, is_pandas
from ncarl.sources.protocol import (
    finite,
    observed_rows,
    refuse_odd_numbers,
    row_ranges,
)


@dataclass(frozen=True)
class BlockKind:
    """What all blocks of a source have in common.

    Attributes
    ----------
    n_columns : int
        Columns of every block.
    names : tuple of str or None
        Names of the columns, if blocks are frames.
    dtype : dtype
        Float type of results.
    """

    n_columns: int
    names: tuple[str, ...] | None
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, block: Any) -> BlockKind:
        """The kind of a block."""
        if not is_block(block):
            raise TypeError(
                "a block of rows must be a 2-D array (NaN marking the gaps), masked "
                "array, scipy.sparse matrix, pandas or polars frame, got "
                f"{_described(block)}"
            )
        return cls(int(block.shape[1]), block_names(block), float_dtype(block))

    def observed(self, block: Any, number: int, first: int = 0) -> Observed:
        """Observed entries of a block, which must be like the others.

        Parameters
        ----------
        block : container
            Some rows.
        number : int
            Which block it is, for errors.
        first : int
            Number of its first row in the whole matrix, for errors.
        """
        where = f"block {number} of X"
        try:
            kind = BlockKind.of(block)
        except TypeError as error:
            raise TypeError(f"block {number}: {error}") from None
        if kind.n_columns != self.n_columns:
            raise ValueError(
                f"{where} has {kind.n_columns} columns, block 0 has "
                f"{self.n_columns}; all blocks need the same columns"
            )
        if self.names and kind.names and kind.names != self.names:
            raise ValueError(
                f"{where} has other column names than block 0, or in another order; "
                "choose the same columns of each"
            )
        return entries_of(block, first, where)


def entries_of(block: Any, first: int, where: str) -> Observed:
    """Observed entries of rows in any container.

    Parameters
    ----------
    block : container
        Some rows.
    first : int
        Number of the first of them in the whole matrix, for errors.
    where : str
        What errors call it.
    """
    if isinstance(block, Observed):
        return finite(block, first, where)
    if is_frame(block):
        return observed_rows(dense_values(block), first, where)
    if not sparse.issparse(block) and not isinstance(block, np.ma.MaskedArray):
        block = np.asarray(block)
    refuse_odd_numbers(block.dtype, where)
    if sparse.issparse(block):
        return finite(Observed.from_sparse(block), first, where)
    if isinstance(block, np.ma.MaskedArray):
        block = dense_values(block)
    return observed_rows(block, first, where)


def is_block(block: Any) -> bool:
    """Whether something holds rows of a matrix and can be read as it is."""
    if isinstance(block, np.ndarray) or sparse.issparse(block):
        return bool(block.ndim == 2)
    return isinstance(block, Observed) or is_frame(block)


def block_names(block: Any) -> tuple[str, ...] | None:
    """Names of the columns of a frame; None for anything else."""
    return tuple(str(name) for name in block.columns) if is_frame(block) else None


def _described(block: Any) -> str:
    """A thing in a few words."""
    if isinstance(block, np.ndarray):
        return f"an array of {block.ndim} axes"
    return type(block).__name__


def some_rows(block: Any, first: int, last: int) -> Any:
    """Rows ``first`` to ``last - 1`` of a container, usually as one of its kind."""
    if is_pandas(block):
        return block.iloc[first:last]
    if sparse.issparse(block):
        # SciPy would add up what is stored twice in some formats; we refuse it.
        block = Observed.from_sparse(block)
    if isinstance(block, Observed):
        return cut_rows(block, first, last)
    return block[first:last]


def cut_rows(observed: Observed, first: int, last: int) -> Observed:
    """Rows ``first`` to ``last - 1``, without copying an entry."""
    lo, hi = int(observed.indptr[first]), int(observed.indptr[last])
    return Observed(
        observed.indptr[first : last + 1] - lo,
        observed.indices[lo:hi],
        observed.values[lo:hi],
        (last - first, observed.shape[1]),
    )


@dataclass(frozen=True, eq=False)
class BlockRows:
    """Blocks from a list, another object that can be gone through, or a function.

    Attributes
    ----------
    blocks : iterable, or callable without arguments
        Gives, or returns, a fresh iterator over the blocks each time.
    kind : BlockKind
        What the first block is like.
    rows_per_chunk : int or None
        Larger blocks are cut into chunks of so many rows; None leaves them as they
        are.
    """

    blocks: Any
    kind: BlockKind
    rows_per_chunk: int | None = None

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return self.kind.n_columns

    @property
    def n_rows(self) -> int | None:
        """Number of rows of the blocks in a list; else not known."""
        if not isinstance(self.blocks, list | tuple):
            return None
        return sum(int(block.shape[0]) for block in self.blocks)

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the columns, if blocks are frames."""
        return self.kind.names

    @property
    def dtype(self) -> np.dtype[Any]:
        """Float type of results."""
        return self.kind.dtype

    def __iter__(self) -> Iterator[Observed]:
        """Chunks of rows in order; blocks without rows are left out."""
        first, number = 0, -1
        for number, block in enumerate(fresh(self.blocks)):
            observed = self.kind.observed(block, number, first)
            del block
            yield from self._cut(observed)
            first += observed.shape[0]
        if number < 0:
            raise ValueError(
                "X gave no block this time; it must give all blocks afresh in every "
                "pass, so pass a list, or a function that makes a new iterator at "
                "each call"
            )

    def _cut(self, observed: Observed) -> Iterator[Observed]:
        """A block in chunks."""
        for first, last in self._ranges(observed):
            yield cut_rows(observed, first, last)

    def _ranges(self, block: Any) -> list[tuple[int, int]]:
        """First row and end of each chunk of a block."""
        rows = int(block.shape[0])
        return row_ranges(rows, self.rows_per_chunk or max(1, rows))

    def parts(self) -> Sequence[Callable[[], Observed]] | None:
        """Loaders that carry their rows of a list; None for anything else."""
        if not isinstance(self.blocks, list | tuple):
            return None
        return [
            partial(self.kind.observed, some_rows(block, first, last), number, first)
            for number, block in enumerate(self.blocks)
            for first, last in self._ranges(block)
        ]


def fresh(blocks: Any) -> Iterator[Any]:
    """A new iterator over blocks, or an error that says what gives one."""
    found = blocks() if callable(blocks) else blocks
    try:
        return iter(found)
    except TypeError:
        raise TypeError(
            "the function given as X must return an iterator over blocks of rows, got "
            f"{type(found).__name__}"
        ) from None


def block_rows(blocks: Any, rows_per_chunk: int | None = None) -> BlockRows:
    """A source of the blocks that an iterable or a function gives.

    Parameters
    ----------
    blocks : iterable, or callable without arguments
        Gives, or returns, a fresh iterator over the blocks each time.
    rows_per_chunk : int, optional
        Cut larger blocks into chunks of so many rows.
    """
    iterator = fresh(blocks)
    if iterator is blocks or iterator is fresh(blocks):
        raise TypeError(
            f"X must give its blocks in every pass, and a {type(blocks).__name__} "
            "gives them once; pass a list, or the function that makes it "
            "(X=make_blocks, without calling it)"
        )
    for block in iterator:
        return BlockRows(blocks, BlockKind.of(block), rows_per_chunk)
    raise ValueError("X must hold at least one block of rows, got none")
