"""Rows of Zarr arrays, a few of their chunks at a time."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ncarl.exceptions import BrokenFileError
from ncarl.observed import Observed
from ncarl.sources.files import Stamp
from ncarl.sources.optional import library
from ncarl.sources.protocol import (
    observed_rows,
    refuse_odd_numbers,
    result_dtype,
    row_ranges,
    rows_in_chunk,
)


@dataclass(frozen=True, eq=False)
class ZarrRows:
    """Rows of a 2-D Zarr array.

    Attributes
    ----------
    array : zarr.Array
        The array.
    file : Stamp or None
        The folder it lies in; None if it was opened by somebody else, who is to see
        that it does not change.
    step : int
        Rows in a chunk.
    """

    array: Any
    file: Stamp | None
    step: int

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.array.shape[0])

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return int(self.array.shape[1])

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the columns, if the attribute ``names`` of the array has them."""
        names = self.array.attrs.get("names")
        if not isinstance(names, list) or len(names) != self.n_columns:
            return None
        return tuple(str(name) for name in names)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Float type of results."""
        return result_dtype(self.array.dtype)

    def __iter__(self) -> Iterator[Observed]:
        """Chunks of rows in order."""
        with self._held():
            for first, last in row_ranges(self.n_rows, self.step):
                yield self._rows(first, last)

    def parts(self) -> Sequence[Callable[[], Observed]]:
        """Loaders of the chunks, for wherever the array can be opened."""
        ranges = row_ranges(self.n_rows, self.step)
        return [partial(self.load, first, last) for first, last in ranges]

    def load(self, first: int, last: int) -> Observed:
        """Observed entries of rows ``first`` to ``last - 1``."""
        with self._held():
            return self._rows(first, last)

    def _held(self) -> contextlib.AbstractContextManager[Any]:
        """A context for one pass, in which the files must not change."""
        return contextlib.nullcontext() if self.file is None else self.file.held()

    def _rows(self, first: int, last: int) -> Observed:
        """Observed entries of some rows."""
        return observed_rows(np.asarray(self.array[first:last]), first, self._where())

    def _where(self) -> str:
        """What errors call the array."""
        return "the Zarr array" if self.file is None else str(self.file)


def zarr_rows(
    array: Any, rows_per_chunk: int | None = None, file: Stamp | None = None
) -> ZarrRows:
    """A source of the rows of a Zarr array.

    Parameters
    ----------
    array : zarr.Array
        An array of two axes.
    rows_per_chunk : int, optional
        Rows in a chunk; by default about the usual number, in whole chunks of the
        array.
    file : Stamp, optional
        The folder it lies in.
    """
    where = "the Zarr array" if file is None else str(file)
    refuse_odd_numbers(np.dtype(array.dtype), where)
    if array.ndim != 2:
        raise ValueError(
            f"{where} must have two axes, rows and columns, got shape {array.shape}"
        )
    step = rows_in_chunk(rows_per_chunk, int(array.shape[1]))
    if rows_per_chunk is None:
        # A chunk that is cut is unpacked twice.
        high = int(array.chunks[0])
        step = max(1, step // high) * high
    return ZarrRows(array, file, step)


def zarr_path_rows(
    path: str | os.PathLike[str], rows_per_chunk: int | None = None
) -> ZarrRows:
    """A source of the rows of a Zarr array in a folder."""
    zarr = library("zarr", "Zarr arrays", "zarr")
    file = Stamp.of(path)
    try:
        found = zarr.open(str(file.path), mode="r")
    except (ValueError, KeyError, OSError) as error:
        raise BrokenFileError(f"{file} holds no Zarr array: {error}") from error
    if not hasattr(found, "shape"):
        arrays = ", ".join(repr(name) for name in found.array_keys()) or "none"
        raise ValueError(
            f"{file} must be a Zarr array, got a group with the arrays {arrays}; pass "
            "one of them, as in zarr.open(path)['name']"
        )
    return zarr_rows(found, rows_per_chunk, file)
