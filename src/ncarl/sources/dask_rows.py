"""Rows of Dask arrays, and of blocks that Dask computes when they are wanted."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ncarl.observed import Observed
from ncarl.sources.blocks import BlockKind
from ncarl.sources.optional import library
from ncarl.sources.protocol import refuse_odd_numbers, result_dtype, rows_in_chunk


@dataclass(frozen=True, eq=False)
class DaskRows:
    """Blocks of rows that Dask computes.

    Attributes
    ----------
    blocks : list of dask.delayed
        The blocks, as their owner made them: arrays, frames, sparse matrices.
    kind : BlockKind
        What they have in common.
    n_rows : int or None
        Number of rows, if it is known.
    """

    blocks: list[Any]
    kind: BlockKind
    n_rows: int | None = None

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return self.kind.n_columns

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the columns, if blocks are frames."""
        return self.kind.names

    @property
    def dtype(self) -> np.dtype[Any]:
        """Float type of results."""
        return self.kind.dtype

    @property
    def delayed(self) -> list[Any]:
        """The chunks as dask.delayed objects that compute `Observed` entries.

        A block without rows gives entries without rows, which `__iter__` leaves out.
        """
        dask = library("dask", "Dask arrays", "dask")
        read = dask.delayed(self.kind.observed, pure=True)
        return [read(block, number) for number, block in enumerate(self.blocks)]

    def __iter__(self) -> Iterator[Observed]:
        """Chunks of rows in order, each computed when its turn comes."""
        for chunk in self.delayed:
            observed = chunk.compute()
            if observed.shape[0]:
                yield observed

    def parts(self) -> None:
        """None: who can compute Dask blocks elsewhere takes `delayed`."""
        return


def dask_rows(what: Any, rows_per_chunk: int | None = None) -> DaskRows:
    """A source of the rows of a Dask array, or of a list of delayed blocks.

    Parameters
    ----------
    what : dask.array.Array, or list of dask.delayed
        An array of two axes; or blocks of whole rows, the first of which is computed
        to see how many columns there are.
    rows_per_chunk : int, optional
        Rows in a chunk of an array; blocks of a list stay as they are.
    """
    if isinstance(what, list | tuple):
        return _delayed_rows(list(what), rows_per_chunk)
    if not hasattr(what, "rechunk"):
        raise TypeError(
            "X must be a Dask array or a list of dask.delayed blocks, got "
            f"{type(what).__name__}; a Dask frame gives such a list by to_delayed()"
        )
    refuse_odd_numbers(np.dtype(what.dtype), "the Dask array")
    if what.ndim != 2:
        raise ValueError(
            "the Dask array must have two axes, rows and columns, got shape "
            f"{what.shape}"
        )
    if math.isnan(what.shape[1]):
        raise ValueError(
            "the Dask array must know how many columns it has; see compute_chunk_sizes"
        )
    array = _whole_rows(what, rows_per_chunk)
    rows = None if math.isnan(array.shape[0]) else int(array.shape[0])
    kind = BlockKind(int(array.shape[1]), None, result_dtype(np.dtype(array.dtype)))
    return DaskRows(list(array.to_delayed().ravel()), kind, rows)


def _whole_rows(array: Any, rows_per_chunk: int | None) -> Any:
    """The array in chunks of whole rows, none of them too large."""
    known = not math.isnan(array.shape[0])
    array = array.rechunk({1: -1})
    most = rows_in_chunk(rows_per_chunk, int(array.shape[1]))
    if rows_per_chunk is not None and not known:
        raise ValueError(
            "rows_per_chunk needs an array that knows how many rows it has; call "
            "compute_chunk_sizes() on it, or leave rows_per_chunk out"
        )
    if known and (rows_per_chunk is not None or max(array.chunks[0]) > most):
        array = array.rechunk({0: most})
    return array


def _delayed_rows(blocks: list[Any], rows_per_chunk: int | None) -> DaskRows:
    """The rows of delayed blocks."""
    if rows_per_chunk is not None:
        raise ValueError(
            "rows_per_chunk must be left out where X is a list of delayed blocks, "
            "which stay as they are"
        )
    for number, block in enumerate(blocks):
        if not hasattr(block, "__dask_graph__"):
            raise TypeError(
                f"block {number} of X must be delayed like block 0, got "
                f"{type(block).__name__}"
            )
    return DaskRows(blocks, BlockKind.of(blocks[0].compute()))
