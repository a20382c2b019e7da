"""Rows of an array in an NPY file, read where they are wanted.

The file is read piece by piece rather than mapped: pages of a mapped file count as
memory of the process until somebody takes them away.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ncarl.core.types import Array
from ncarl.exceptions import BrokenFileError
from ncarl.observed import Observed
from ncarl.sources.files import Stamp
from ncarl.sources.protocol import (
    observed_rows,
    refuse_odd_numbers,
    result_dtype,
    row_ranges,
    rows_in_chunk,
)


@dataclass(frozen=True)
class ArrayHeader:
    """What the header of an NPY file says.

    Attributes
    ----------
    shape : tuple of int
        Shape of the array.
    stored : dtype
        Type of its numbers.
    by_columns : bool
        Whether columns, not rows, lie one after the other.
    start : int
        Bytes from the start of the stream to the first number.
    """

    shape: tuple[int, ...]
    stored: np.dtype[Any]
    by_columns: bool
    start: int

    @property
    def end(self) -> int:
        """Bytes from the start of the stream to the end of the numbers."""
        return (
            self.start + int(np.prod(self.shape, dtype=object)) * self.stored.itemsize
        )


def read_header(stream: Any, where: str) -> ArrayHeader:
    """The header of an array that begins at the start of a stream.

    Parameters
    ----------
    stream : binary file
        At its start; afterwards at the first number.
    where : str
        What errors call it.
    """
    try:
        version = np.lib.format.read_magic(stream)
        if version == (1, 0):
            found = np.lib.format.read_array_header_1_0(stream)
        elif version == (2, 0):
            found = np.lib.format.read_array_header_2_0(stream)
        else:
            raise ValueError(f"NPY version {version}")
    except ValueError as error:
        raise BrokenFileError(f"{where} is no array as numpy.save writes it") from error
    shape, by_columns, stored = found
    return ArrayHeader(tuple(shape), stored, by_columns, stream.tell())


def read_numbers(stream: Any, into: Array, where: str) -> None:
    """Fill an array with the bytes that come next in a stream."""
    view = memoryview(into.reshape(-1).view(np.uint8))
    done = 0
    while done < len(view):
        got = stream.readinto(view[done:])
        if not got:
            raise BrokenFileError(
                f"{where} ends before its last number: it was cut off"
            )
        done += got


@dataclass(frozen=True)
class NpyRows:
    """Rows of a 2-D array in a file.

    Attributes
    ----------
    file : Stamp
        The file.
    header : ArrayHeader
        What is in it.
    rows_per_chunk : int or None
        Rows in a chunk; None for the usual size.
    """

    file: Stamp
    header: ArrayHeader
    rows_per_chunk: int | None = None

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.header.shape[0]

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return self.header.shape[1]

    @property
    def names(self) -> None:
        """Columns of an array have no names."""
        return None

    @property
    def dtype(self) -> np.dtype[Any]:
        """Float type of results."""
        return result_dtype(self.header.stored)

    def _ranges(self) -> list[tuple[int, int]]:
        """First row and end of each chunk."""
        step = rows_in_chunk(self.rows_per_chunk, self.n_columns)
        return row_ranges(self.n_rows, step)

    def __iter__(self) -> Iterator[Observed]:
        """Chunks of rows in order."""
        with self.file.held() as path, path.open("rb", buffering=0) as stream:
            for first, last in self._ranges():
                yield self._rows(stream, first, last)

    def parts(self) -> Sequence[Callable[[], Observed]]:
        """Loaders of the chunks, for wherever the file can be opened."""
        return [partial(self.load, first, last) for first, last in self._ranges()]

    def load(self, first: int, last: int) -> Observed:
        """Observed entries of rows ``first`` to ``last - 1``."""
        with self.file.held() as path, path.open("rb", buffering=0) as stream:
            return self._rows(stream, first, last)

    def _rows(self, stream: Any, first: int, last: int) -> Observed:
        """Observed entries of some rows in the open file."""
        shape, header = (last - first, self.n_columns), self.header
        size = header.stored.itemsize
        if header.by_columns:
            turned = np.empty(shape[::-1], header.stored)
            for j in range(self.n_columns):
                stream.seek(header.start + (j * self.n_rows + first) * size)
                read_numbers(stream, turned[j], str(self.file))
            values = np.ascontiguousarray(turned.T)
        else:
            values = np.empty(shape, header.stored)
            stream.seek(header.start + first * self.n_columns * size)
            read_numbers(stream, values, str(self.file))
        return observed_rows(native(values), first, str(self.file))


def native(values: Array) -> Array:
    """Numbers in the byte order of this machine."""
    return values.astype(values.dtype.newbyteorder("="), copy=False)


def checked_header(header: ArrayHeader, where: str) -> ArrayHeader:
    """The header of a matrix of numbers, or an error that says what it is."""
    refuse_odd_numbers(header.stored, where)
    if len(header.shape) != 2:
        raise ValueError(
            f"{where} must hold an array of two axes, rows and columns, got shape "
            f"{header.shape}"
        )
    return header


def npy_rows(
    path: str | os.PathLike[str], rows_per_chunk: int | None = None
) -> NpyRows:
    """A source of the rows of an array in an NPY file.

    Parameters
    ----------
    path : path
        The file; floats, whole numbers or booleans, NaN marking the gaps.
    rows_per_chunk : int, optional
        Rows in a chunk.
    """
    file = Stamp.of(path)
    with Path(path).open("rb") as stream:
        header = checked_header(read_header(stream, str(file)), str(file))
    if header.end > file.state[1]:
        raise BrokenFileError(
            f"{file} should have {header.end} bytes and has {file.state[1]}: it was "
            "cut off"
        )
    return NpyRows(file, header, rows_per_chunk)
