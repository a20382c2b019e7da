"""Rows of a sparse matrix in an NPZ file, as scipy.sparse.save_npz writes it.

The three arrays of the matrix are read side by side, so that none of them is ever in
memory as a whole.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from scipy import sparse

from ncarl.core.types import Array
from ncarl.exceptions import BrokenFileError
from ncarl.observed import MOST_COLUMNS, Observed
from ncarl.sources.files import Stamp
from ncarl.sources.members import Member, find_members, read_small, readable
from ncarl.sources.memory import entry_ranges
from ncarl.sources.npy import NpyRows, checked_header
from ncarl.sources.protocol import (
    entries_in_chunk,
    finite,
    refuse_odd_numbers,
    result_dtype,
    row_ranges,
)

#: Rows whose place in the file is looked up together.
PIECE = 1_000_000


@dataclass(frozen=True)
class Span:
    """A chunk: rows ``first`` to ``last - 1``, entries ``lo`` to ``hi - 1``."""

    first: int
    last: int
    lo: int
    hi: int


@dataclass(frozen=True)
class CsrRows:
    """Rows of a CSR matrix in an NPZ file.

    Attributes
    ----------
    file : Stamp
        The file.
    shape : tuple of int
        Shape of the matrix.
    indptr, indices, data : Member
        Its arrays.
    rows_per_chunk : int or None
        Rows in a chunk; None for the usual size.
    """

    file: Stamp
    shape: tuple[int, int]
    indptr: Member
    indices: Member
    data: Member
    rows_per_chunk: int | None = None

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.shape[0]

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return self.shape[1]

    @property
    def names(self) -> None:
        """Columns of a sparse matrix have no names."""
        return None

    @property
    def dtype(self) -> np.dtype[Any]:
        """Float type of results."""
        return result_dtype(self.data.header.stored)

    @cached_property
    def spans(self) -> tuple[Span, ...]:
        """The chunks, found by going through ``indptr`` once."""
        spans = list[Span]()
        for top, indptr in self._indptr():
            if self.rows_per_chunk is None:
                ranges = entry_ranges(indptr, entries_in_chunk(self.n_columns))
            else:
                ranges = row_ranges(len(indptr) - 1, self.rows_per_chunk)
            spans += [
                Span(top + first, top + last, int(indptr[first]), int(indptr[last]))
                for first, last in ranges
            ]
        return tuple(spans)

    def _indptr(self) -> Iterator[tuple[int, Array]]:
        """Where rows begin and the last one ends, with the number of the first."""
        # Pieces end where chunks end.
        step = self.rows_per_chunk or 1
        piece = max(1, PIECE // step) * step
        with self.file.held() as path, readable(path), ExitStack() as stack:
            archive = stack.enter_context(zipfile.ZipFile(path))
            stream = stack.enter_context(self.indptr.open(archive))
            last = self.indptr.next(stream, 1)
            for first, end in row_ranges(self.n_rows, piece):
                ends = self.indptr.next(stream, end - first)
                found = np.concatenate([last, ends]).astype(np.int64)
                self._check_indptr(found, first, end)
                last = ends[-1:]
                yield first, found

    def _check_indptr(self, found: Array, first: int, end: int) -> None:
        """Raise unless the entries of rows follow each other."""
        good = (np.diff(found) >= 0).all()
        good &= first > 0 or found[0] == 0
        good &= end < self.n_rows or found[-1] == len(self.data)
        if not good:
            raise BrokenFileError(
                f"{self.file} is damaged: its array 'indptr' does not say where the "
                "entries of each row begin"
            )

    def __iter__(self) -> Iterator[Observed]:
        """Chunks of rows in order."""
        members = (self.indptr, self.indices, self.data)
        spans = self.spans
        with self.file.held() as path, readable(path), ExitStack() as stack:
            archive = stack.enter_context(zipfile.ZipFile(path))
            at = [stack.enter_context(member.open(archive)) for member in members]
            last = self.indptr.next(at[0], 1)
            for span in spans:
                ends = self.indptr.next(at[0], span.last - span.first)
                indptr, last = np.concatenate([last, ends]), ends[-1:]
                indices = self.indices.next(at[1], span.hi - span.lo)
                data = self.data.next(at[2], span.hi - span.lo)
                yield self._observed(span, indptr, indices, data)

    def parts(self) -> Sequence[Callable[[], Observed]] | None:
        """Loaders of the chunks; None if the file is compressed."""
        members = (self.indptr, self.indices, self.data)
        if any(member.offset is None for member in members):
            return None
        alone = replace(self)  # without the list of all chunks
        return [partial(alone.load, span) for span in self.spans]

    def load(self, span: Span) -> Observed:
        """Observed entries of a chunk of a file that is not compressed."""
        rows, entries = span.last - span.first, span.hi - span.lo
        with self.file.held() as path, path.open("rb", buffering=0) as stream:
            indptr = self.indptr.at(stream, span.first, rows + 1)
            indices = self.indices.at(stream, span.lo, entries)
            data = self.data.at(stream, span.lo, entries)
        return self._observed(span, indptr, indices, data)

    def _observed(
        self, span: Span, indptr: Array, indices: Array, data: Array
    ) -> Observed:
        """Observed entries of a chunk, from its parts of the arrays."""
        where = f"{self.file}, rows from {span.first} on"
        if len(indices) and not 0 <= indices.min() <= indices.max() < self.n_columns:
            raise BrokenFileError(
                f"{where}: a column is not within the shape {self.shape}; the file is "
                "damaged"
            )
        shape = (span.last - span.first, self.n_columns)
        # SciPy keeps rows and columns in one type, and the smaller one mostly does.
        small = np.int32 if len(data) < MOST_COLUMNS else np.int64
        parts = (data, indices, (indptr - span.lo).astype(small))
        csr = sparse.csr_array(parts, shape=shape)
        try:
            observed = Observed.from_sparse(csr)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
        return finite(observed, span.first, str(self.file))


def npz_rows(
    path: str | os.PathLike[str], rows_per_chunk: int | None = None
) -> CsrRows | NpyRows:
    """A source of the rows of a matrix in an NPZ file.

    Parameters
    ----------
    path : path
        A CSR matrix as scipy.sparse.save_npz writes it; or one 2-D array, not
        compressed.
    rows_per_chunk : int, optional
        Rows in a chunk.
    """
    file = Stamp.of(path)
    members = find_members(file.path)
    if "format" in members and "shape" in members:
        return _sparse_rows(file, members, rows_per_chunk)
    return _dense_rows(file, members, rows_per_chunk)


def _sparse_rows(
    file: Stamp, members: Mapping[str, Member], rows_per_chunk: int | None
) -> CsrRows:
    """The rows of a sparse matrix, which must be stored by rows."""
    kind = read_small(file.path, members["format"]).item()
    kind = kind.decode("ascii", "replace") if isinstance(kind, bytes) else str(kind)
    if kind != "csr":
        raise ValueError(
            f"{file} must hold a sparse matrix by rows ('csr'), got {kind!r}; convert "
            "it with scipy.sparse.save_npz(new, scipy.sparse.load_npz(old).tocsr())"
        )
    arrays = [members.get(name) for name in ("indptr", "indices", "data")]
    indptr, indices, data = arrays
    if indptr is None or indices is None or data is None:
        raise BrokenFileError(f"{file} is damaged: an array of the matrix is missing")
    m, n = (int(size) for size in read_small(file.path, members["shape"]))
    if n > MOST_COLUMNS:
        raise ValueError(f"{file} must have at most {MOST_COLUMNS} columns, got {n}")
    refuse_odd_numbers(data.header.stored, str(file))
    wanted = ((m + 1,), data.header.shape, data.header.shape)
    kinds = [member.header.stored.kind for member in (indptr, indices)]
    if (
        tuple(member.header.shape for member in (indptr, indices, data)) != wanted
        or len(data.header.shape) != 1
        or not set(kinds) <= {"i", "u"}
    ):
        raise BrokenFileError(f"{file} is damaged: its arrays do not fit together")
    return CsrRows(file, (m, n), indptr, indices, data, rows_per_chunk)


def _dense_rows(
    file: Stamp, members: Mapping[str, Member], rows_per_chunk: int | None
) -> NpyRows:
    """The rows of the only array of a file, read where it lies."""
    if len(members) != 1:
        raise ValueError(
            f"{file} must hold a CSR matrix as scipy.sparse.save_npz writes it, or one "
            f"array, got the arrays {', '.join(members) or 'none'}; save the one to "
            "read with numpy.save"
        )
    ((name, member),) = members.items()
    header = checked_header(member.header, member.where)
    if member.offset is None:
        raise ValueError(
            f"{file} holds a compressed array, whose rows cannot be read by "
            f"themselves; save it with numpy.save('X.npy', numpy.load(...)[{name!r}])"
        )
    return NpyRows(
        file, replace(header, start=header.start + member.offset), rows_per_chunk
    )
