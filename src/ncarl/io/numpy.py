"""NPY and NPZ files: read in chunks of rows or as a whole matrix, and written.

Chunks are read from the file rather than mapped: pages of a memory-mapped file count as
memory of the process until they are released. `read_table` also reads Matrix Market.
"""

from __future__ import annotations

import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from scipy import io as scipy_io, sparse

from ncarl.core.types import Array
from ncarl.exceptions import BrokenFileError
from ncarl.io.base import (
    FileSnapshot,
    Sink,
    SinkSpec,
    check_finite_entries,
    check_real_dtype,
    entry_ranges,
    max_entries_per_chunk,
    observations_from_dense,
    resolve_rows_per_chunk,
    result_dtype,
    row_ranges,
)
from ncarl.io.files import atomic_write
from ncarl.io.tables import (
    ReadOptions,
    detect_format,
    reject_unsupported_options,
)
from ncarl.observations import MAX_COLUMNS, Observations

#: Bytes of a local header in a ZIP file before the name, and the position in it of the
#: lengths of the name and of the extra field after it.
LOCAL_HEADER_BYTES, NAME_LENGTHS = 30, slice(26, 30)
#: Rows whose ``indptr`` is read together.
INDPTR_PIECE = 1_000_000


def npy_rows(
    path: str | os.PathLike[str], rows_per_chunk: int | None = None
) -> NpyRows:
    """Open the array in an NPY file as a source of rows.

    Parameters
    ----------
    path : path
        The file; floats, whole numbers or booleans, NaN where missing.
    rows_per_chunk : int, optional
        Rows in a chunk.
    """
    file = FileSnapshot.from_path(path)
    with Path(path).open("rb") as stream:
        header = check_matrix_header(read_npy_header(stream, str(file)), str(file))
    if header.data_end > file.state[1]:
        raise BrokenFileError(
            f"{file} should have {header.data_end} bytes and has {file.state[1]}: it "
            "was cut off"
        )
    return NpyRows(file, header, rows_per_chunk)


def check_matrix_header(header: NpyHeader, where: str) -> NpyHeader:
    """Return a header, or raise unless it describes a matrix of real numbers."""
    check_real_dtype(header.stored_dtype, where)
    if len(header.shape) != 2:
        raise ValueError(
            f"{where} must hold an array of two axes, rows and columns, got shape "
            f"{header.shape}"
        )
    return header


@dataclass(frozen=True)
class NpyHeader:
    """Header of an array in NPY format."""

    shape: tuple[int, ...]
    stored_dtype: np.dtype[Any]
    fortran_order: bool
    data_start: int  # bytes from the start of the stream to the first number

    @property
    def data_end(self) -> int:
        """Bytes from the start of the stream to the end of the numbers."""
        size = int(np.prod(self.shape, dtype=object))
        return self.data_start + size * self.stored_dtype.itemsize


def read_npy_header(stream: Any, where: str) -> NpyHeader:
    """Read the header of an array at the start of a stream.

    Parameters
    ----------
    stream : binary file
        Left at the first number of the array.
    where : str
        Name of the stream in error messages.
    """
    try:
        version = np.lib.format.read_magic(stream)
        if version == (1, 0):
            header = np.lib.format.read_array_header_1_0(stream)
        elif version == (2, 0):
            header = np.lib.format.read_array_header_2_0(stream)
        else:
            raise ValueError(f"NPY version {version}")
    except ValueError as error:
        raise BrokenFileError(f"{where} is no array as numpy.save writes it") from error
    shape, fortran_order, dtype = header
    return NpyHeader(tuple(shape), dtype, fortran_order, stream.tell())


@dataclass(frozen=True)
class NpyRows:
    """Rows of a 2-D array in an NPY or uncompressed NPZ file, as a `RowSource`."""

    file: FileSnapshot
    header: NpyHeader
    rows_per_chunk: int | None = None  # None for the default size

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
        """None: columns of an array have no names."""
        return None

    @property
    def dtype(self) -> np.dtype[Any]:
        """Float type of results."""
        return result_dtype(self.header.stored_dtype)

    def _chunk_ranges(self) -> list[tuple[int, int]]:
        """First row and end of each chunk."""
        step = resolve_rows_per_chunk(self.rows_per_chunk, self.n_columns)
        return row_ranges(self.n_rows, step)

    def __iter__(self) -> Iterator[Observations]:
        """Chunks of rows in order."""
        with (
            self.file.ensure_unchanged() as path,
            path.open("rb", buffering=0) as stream,
        ):
            for first, last in self._chunk_ranges():
                yield self._read_rows(stream, first, last)

    def chunk_loaders(self) -> Sequence[Callable[[], Observations]]:
        """Loaders of the chunks; they work wherever the file can be opened."""
        return [partial(self.load, first, last) for first, last in self._chunk_ranges()]

    def load(self, first: int, last: int) -> Observations:
        """Observed entries of rows ``first`` to ``last - 1``."""
        with (
            self.file.ensure_unchanged() as path,
            path.open("rb", buffering=0) as stream,
        ):
            return self._read_rows(stream, first, last)

    def _read_rows(self, stream: Any, first: int, last: int) -> Observations:
        """Observed entries of some rows in the open file."""
        shape, header = (last - first, self.n_columns), self.header
        size = header.stored_dtype.itemsize
        if header.fortran_order:
            transposed = np.empty(shape[::-1], header.stored_dtype)
            for j in range(self.n_columns):
                stream.seek(header.data_start + (j * self.n_rows + first) * size)
                read_into(stream, transposed[j], str(self.file))
            values = np.ascontiguousarray(transposed.T)
        else:
            values = np.empty(shape, header.stored_dtype)
            stream.seek(header.data_start + first * self.n_columns * size)
            read_into(stream, values, str(self.file))
        return observations_from_dense(
            to_native_byteorder(values), first, str(self.file)
        )


def read_into(stream: Any, out: Array, where: str) -> None:
    """Fill an array with the next bytes of a stream."""
    view = memoryview(out.reshape(-1).view(np.uint8))
    done = 0
    while done < len(view):
        got = stream.readinto(view[done:])
        if not got:
            raise BrokenFileError(
                f"{where} ends before its last number: it was cut off"
            )
        done += got


def to_native_byteorder(values: Array) -> Array:
    """Numbers in the byte order of this machine."""
    return values.astype(values.dtype.newbyteorder("="), copy=False)


@contextmanager
def npy_sink(path: Path, spec: SinkSpec) -> Iterator[Sink]:
    """Write an NPY file, which appears when the block succeeds."""
    with atomic_write(path) as temporary, temporary.open("wb") as stream:
        sink = _NpySink(stream, spec)
        start = sink.write_header(spec.n_rows or 0)
        yield sink
        spec.check_row_count(sink.n_written)
        if sink.write_header(sink.n_written) != start:
            raise RuntimeError("the header of an NPY file has outgrown its room")


@dataclass
class _NpySink:
    """Writes rows after a header, which is completed at the end."""

    stream: BinaryIO
    spec: SinkSpec
    n_written: int = 0

    def write(self, rows: Array) -> None:
        """Add some rows."""
        values = self.spec.validate_rows(rows)
        self.stream.write(values.data)
        self.n_written += len(values)

    def write_header(self, n_rows: int) -> int:
        """Write the header for ``n_rows`` rows and return its length.

        NumPy pads it, so that its length does not depend on the number of rows.
        """
        fields = {
            "descr": np.lib.format.dtype_to_descr(self.spec.dtype),
            "fortran_order": False,
            "shape": (n_rows, self.spec.n_columns),
        }
        self.stream.seek(0)
        np.lib.format.write_array_header_1_0(self.stream, fields)
        return self.stream.tell()


def npz_rows(
    path: str | os.PathLike[str], rows_per_chunk: int | None = None
) -> CsrRows | NpyRows:
    """Open the matrix in an NPZ file as a source of rows.

    Parameters
    ----------
    path : path
        A CSR matrix as scipy.sparse.save_npz writes it; or one 2-D array, not
        compressed.
    rows_per_chunk : int, optional
        Rows in a chunk.
    """
    file = FileSnapshot.from_path(path)
    members = find_members(file.path)
    if "format" in members and "shape" in members:
        return _sparse_rows(file, members, rows_per_chunk)
    return _dense_rows(file, members, rows_per_chunk)


def _sparse_rows(
    file: FileSnapshot, members: Mapping[str, NpzMember], rows_per_chunk: int | None
) -> CsrRows:
    """Rows of a sparse matrix, which must be in CSR format."""
    kind = read_member(file.path, members["format"]).item()
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
    m, n = (int(size) for size in read_member(file.path, members["shape"]))
    if n > MAX_COLUMNS:
        raise ValueError(f"{file} must have at most {MAX_COLUMNS} columns, got {n}")
    check_real_dtype(data.header.stored_dtype, str(file))
    wanted = ((m + 1,), data.header.shape, data.header.shape)
    kinds = [member.header.stored_dtype.kind for member in (indptr, indices)]
    if (
        tuple(member.header.shape for member in (indptr, indices, data)) != wanted
        or len(data.header.shape) != 1
        or not set(kinds) <= {"i", "u"}
    ):
        raise BrokenFileError(f"{file} is damaged: its arrays do not fit together")
    return CsrRows(file, (m, n), indptr, indices, data, rows_per_chunk)


def _dense_rows(
    file: FileSnapshot, members: Mapping[str, NpzMember], rows_per_chunk: int | None
) -> NpyRows:
    """Rows of the only array of a file, which must be uncompressed."""
    if len(members) != 1:
        raise ValueError(
            f"{file} must hold a CSR matrix as scipy.sparse.save_npz writes it, or one "
            f"array, got the arrays {', '.join(members) or 'none'}; save the one to "
            "read with numpy.save"
        )
    ((name, member),) = members.items()
    header = check_matrix_header(member.header, member.where)
    if member.offset is None:
        raise ValueError(
            f"{file} holds a compressed array, whose rows cannot be read by "
            f"themselves; save it with numpy.save('X.npy', numpy.load(...)[{name!r}])"
        )
    return NpyRows(
        file,
        replace(header, data_start=header.data_start + member.offset),
        rows_per_chunk,
    )


@dataclass(frozen=True)
class CsrRows:
    """Rows of a CSR matrix in an NPZ file, as a `RowSource`."""

    file: FileSnapshot
    shape: tuple[int, int]
    indptr: NpzMember
    indices: NpzMember
    data: NpzMember
    rows_per_chunk: int | None = None  # None for the default size

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
        """None: columns of a sparse matrix have no names."""
        return None

    @property
    def dtype(self) -> np.dtype[Any]:
        """Float type of results."""
        return result_dtype(self.data.header.stored_dtype)

    @cached_property
    def spans(self) -> tuple[ChunkSpan, ...]:
        """The chunks, from one pass over ``indptr``."""
        spans = list[ChunkSpan]()
        for top, indptr in self._iter_indptr():
            if self.rows_per_chunk is None:
                ranges = entry_ranges(indptr, max_entries_per_chunk(self.n_columns))
            else:
                ranges = row_ranges(len(indptr) - 1, self.rows_per_chunk)
            spans += [
                ChunkSpan(
                    top + first, top + last, int(indptr[first]), int(indptr[last])
                )
                for first, last in ranges
            ]
        return tuple(spans)

    def _iter_indptr(self) -> Iterator[tuple[int, Array]]:
        """Pieces of ``indptr``, each with the index of its first row."""
        # Pieces end where chunks end.
        step = self.rows_per_chunk or 1
        piece = max(1, INDPTR_PIECE // step) * step
        with (
            self.file.ensure_unchanged() as path,
            translate_zip_errors(path),
            ExitStack() as stack,
        ):
            archive = stack.enter_context(zipfile.ZipFile(path))
            stream = stack.enter_context(self.indptr.open(archive))
            last = self.indptr.read_next(stream, 1)
            for first, end in row_ranges(self.n_rows, piece):
                ends = self.indptr.read_next(stream, end - first)
                indptr = np.concatenate([last, ends]).astype(np.int64)
                self._check_indptr(indptr, first, end)
                last = ends[-1:]
                yield first, indptr

    def _check_indptr(self, indptr: Array, first: int, end: int) -> None:
        """Raise unless ``indptr`` increases from 0 to the number of entries."""
        good = (np.diff(indptr) >= 0).all()
        good &= first > 0 or indptr[0] == 0
        good &= end < self.n_rows or indptr[-1] == len(self.data)
        if not good:
            raise BrokenFileError(
                f"{self.file} is damaged: its array 'indptr' does not say where the "
                "entries of each row begin"
            )

    def __iter__(self) -> Iterator[Observations]:
        """Chunks of rows in order."""
        members = (self.indptr, self.indices, self.data)
        spans = self.spans
        with (
            self.file.ensure_unchanged() as path,
            translate_zip_errors(path),
            ExitStack() as stack,
        ):
            archive = stack.enter_context(zipfile.ZipFile(path))
            at = [stack.enter_context(member.open(archive)) for member in members]
            last = self.indptr.read_next(at[0], 1)
            for span in spans:
                ends = self.indptr.read_next(at[0], span.last - span.first)
                indptr, last = np.concatenate([last, ends]), ends[-1:]
                indices = self.indices.read_next(at[1], span.hi - span.lo)
                data = self.data.read_next(at[2], span.hi - span.lo)
                yield self._build_observations(span, indptr, indices, data)

    def chunk_loaders(self) -> Sequence[Callable[[], Observations]] | None:
        """Loaders of the chunks; None if the file is compressed."""
        members = (self.indptr, self.indices, self.data)
        if any(member.offset is None for member in members):
            return None
        copy = replace(self)  # without the cached spans of all chunks
        return [partial(copy.load, span) for span in self.spans]

    def load(self, span: ChunkSpan) -> Observations:
        """Observed entries of a chunk of an uncompressed file."""
        rows, entries = span.last - span.first, span.hi - span.lo
        with (
            self.file.ensure_unchanged() as path,
            path.open("rb", buffering=0) as stream,
        ):
            indptr = self.indptr.read_at(stream, span.first, rows + 1)
            indices = self.indices.read_at(stream, span.lo, entries)
            data = self.data.read_at(stream, span.lo, entries)
        return self._build_observations(span, indptr, indices, data)

    def _build_observations(
        self, span: ChunkSpan, indptr: Array, indices: Array, data: Array
    ) -> Observations:
        """Observed entries of a chunk from its slices of the three arrays."""
        where = f"{self.file}, rows from {span.first} on"
        if len(indices) and not 0 <= indices.min() <= indices.max() < self.n_columns:
            raise BrokenFileError(
                f"{where}: a column is not within the shape {self.shape}; the file is "
                "damaged"
            )
        shape = (span.last - span.first, self.n_columns)
        # SciPy uses one type for indptr and indices; int32 is mostly enough.
        small = np.int32 if len(data) < MAX_COLUMNS else np.int64
        parts = (data, indices, (indptr - span.lo).astype(small))
        csr = sparse.csr_array(parts, shape=shape)
        try:
            observed = Observations.from_sparse(csr)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
        return check_finite_entries(observed, span.first, str(self.file))


@dataclass(frozen=True)
class ChunkSpan:
    """A chunk: rows ``first`` to ``last - 1``, entries ``lo`` to ``hi - 1``."""

    first: int
    last: int
    lo: int
    hi: int


@dataclass(frozen=True)
class NpzMember:
    """One array of an NPZ file."""

    name: str  # in the file, ``.npy`` included
    header: NpyHeader
    offset: int | None  # bytes from the start of the file; None if it is compressed
    where: str  # name in error messages

    def __len__(self) -> int:
        return self.header.shape[0]

    def open(self, archive: zipfile.ZipFile) -> Any:
        """Open a stream at the first number of the array."""
        stream = archive.open(self.name)
        stream.read(self.header.data_start)
        return stream

    def read_next(self, stream: Any, count: int) -> Array:
        """Read the next ``count`` numbers of a one-dimensional array."""
        numbers = np.empty(count, self.header.stored_dtype)
        read_into(stream, numbers, self.where)
        return to_native_byteorder(numbers)

    def read_at(self, stream: Any, first: int, count: int) -> Array:
        """Read numbers from anywhere in a one-dimensional, uncompressed array.

        Parameters
        ----------
        stream : binary file
            The whole NPZ file.
        first, count : int
            Index of the first number, and how many to read.
        """
        assert self.offset is not None
        step = self.header.stored_dtype.itemsize
        stream.seek(self.offset + self.header.data_start + first * step)
        return self.read_next(stream, count)


def find_members(path: Path) -> dict[str, NpzMember]:
    """Arrays of an NPZ file by their names without ``.npy``."""
    members = {}
    with (
        translate_zip_errors(path),
        zipfile.ZipFile(path) as archive,
        path.open("rb") as raw,
    ):
        for info in archive.infolist():
            where = f"{str(path)!r}, array {info.filename!r},"
            with archive.open(info) as stream:
                header = read_npy_header(stream, where)
            offset = None
            if info.compress_type == zipfile.ZIP_STORED:
                raw.seek(info.header_offset)
                lengths = struct.unpack(
                    "<HH", raw.read(LOCAL_HEADER_BYTES)[NAME_LENGTHS]
                )
                offset = info.header_offset + LOCAL_HEADER_BYTES + sum(lengths)
            member = NpzMember(info.filename, header, offset, where)
            members[info.filename.removesuffix(".npy")] = member
    return members


def read_member(path: Path, member: NpzMember) -> Array:
    """Read a whole array of an NPZ file."""
    with translate_zip_errors(path), zipfile.ZipFile(path) as archive:
        stream = archive.open(member.name)
        return np.lib.format.read_array(stream, allow_pickle=False)


@contextmanager
def translate_zip_errors(path: Path) -> Iterator[None]:
    """Raise `BrokenFileError` for the errors of a damaged archive."""
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise BrokenFileError(
            f"{str(path)!r} is no whole NPZ file: {error}; write it anew"
        ) from error


def read_table(path: Path, options: ReadOptions) -> MatrixTable:
    """Read the matrix in an NPY, NPZ or Matrix Market file."""
    kind = detect_format(path)
    reject_unsupported_options(options, kind, ("array",) if kind == "NPZ" else ())
    try:
        if kind == "Matrix Market":
            return _read_matrix_market(path)
        if kind == "NPY":
            return MatrixTable(_check_matrix(np.load(path, allow_pickle=False)), kind)
        return _read_npz(path, options.array)
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        reason = str(error)
        if "pickle" in reason:
            reason = "it holds Python objects, which are not read because reading them "
            reason += "can run code; save an array of numbers"
        raise ValueError(f"{str(path)!r} cannot be read: {reason}") from error


def _check_matrix(array: Any) -> Any:
    """Return ``array``, or raise unless it is a matrix of real numbers."""
    if array.ndim != 2:
        raise ValueError(f"a matrix has 2 dimensions, this array {array.ndim}")
    if array.dtype.kind not in "fiub":
        raise ValueError(f"a matrix of real numbers is needed, got {array.dtype}")
    return array


def _read_matrix_market(path: Path) -> MatrixTable:
    """Read a Matrix Market file; entries that are not listed are missing."""
    field_kind = scipy_io.mminfo(path)[4]
    if field_kind == "pattern":
        raise ValueError("a pattern file lists positions without values")
    return MatrixTable(_check_matrix(scipy_io.mmread(path)), "Matrix Market")


def _read_npz(path: Path, array_name: str | None) -> MatrixTable:
    with zipfile.ZipFile(path) as archive:
        compressed = any(part.compress_type for part in archive.infolist())
    with np.load(path, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    if array_name is None and {"format", "shape", "data"} <= arrays.keys():
        return MatrixTable(_check_matrix(sparse.load_npz(path)), "sparse NPZ")
    name = _select_array(arrays, array_name)
    return MatrixTable(_check_matrix(arrays[name]), "NPZ", arrays, name, compressed)


def _select_array(arrays: Mapping[str, Array], array_name: str | None) -> str:
    """Name of the array to complete: the one given, or the only matrix of floats."""
    listed = ", ".join(f"{name!r} {a.dtype}{a.shape}" for name, a in arrays.items())
    if array_name is not None:
        if array_name not in arrays:
            raise ValueError(f"--array {array_name!r} is not in it; it holds {listed}")
        return array_name
    matrices = [k for k, a in arrays.items() if a.ndim == 2 and a.dtype.kind == "f"]
    if len(matrices) != 1:
        raise ValueError(
            f"it has {len(matrices)} matrices of floats; choose one with --array; it "
            f"holds {listed or 'nothing'}"
        )
    return matrices[0]


@dataclass(frozen=True)
class MatrixTable:
    """A matrix in an array file; a `TableFile`."""

    values: Any
    format_name: str  # "NPY", "NPZ", "sparse NPZ" or "Matrix Market"
    arrays: Mapping[str, Array] = field(default_factory=dict)  # all of an NPZ file
    array_name: str = ""  # the one that is ``values``
    compressed: bool = False
    columns: None = None
    unused_columns: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    read_warnings: tuple[str, ...] = ()
    n_missing_in_text: int = 0
    mixed_units: bool = False

    def write(
        self, path: Path, numbers: Array, *, replace_observed: bool = False
    ) -> None:
        """Write the matrix with its missing, or all, numbers replaced."""
        if not replace_observed and not sparse.issparse(self.values):
            missing = np.isnan(self.values)
            numbers = (
                np.where(missing, numbers, self.values)
                if missing.any()
                else self.values
            )
        with atomic_write(path) as temporary:
            if self.format_name == "NPY":
                np.save(temporary, numbers, allow_pickle=False)
            elif self.format_name == "NPZ":
                self._write_npz(temporary, {**self.arrays, self.array_name: numbers})
            elif self.format_name == "sparse NPZ":
                sparse.save_npz(temporary, self._to_full_csr(numbers))
            else:
                scipy_io.mmwrite(temporary, numbers, symmetry="general")

    def _write_npz(self, path: Path, arrays: Mapping[str, Array]) -> None:
        """Write arrays to an NPZ file; ``np.savez`` does not take all names."""
        compression = zipfile.ZIP_DEFLATED if self.compressed else zipfile.ZIP_STORED
        with zipfile.ZipFile(path, "w", compression) as archive:
            for name, array in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as stream:
                    np.lib.format.write_array(stream, array, allow_pickle=False)

    def _to_full_csr(self, numbers: Array) -> Any:
        """CSR matrix that stores every entry, zeros included."""
        m, n = numbers.shape
        indices = np.tile(np.arange(n, dtype=np.int32), m)
        parts = (numbers.ravel(), indices, np.arange(m + 1, dtype=np.int64) * n)
        array = isinstance(self.values, sparse.sparray)
        make = sparse.csr_array if array else sparse.csr_matrix
        return make(parts, shape=(m, n))
