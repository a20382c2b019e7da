"""NPY, NPZ and Matrix Market files: read in chunks or as a whole matrix, and written.

Matrix Market files are read and written as a whole only.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy import io as scipy_io, sparse

from ncarl.core.types import Array
from ncarl.exceptions import BrokenFileError
from ncarl.io.base import (
    BaseRows,
    FileSnapshot,
    MemoryRows,
    Sink,
    SinkSpec,
    SpanRows,
    check_finite_entries,
    check_matrix,
    check_unpacked_size,
    dense_spans,
    observations_from_dense,
    result_dtype,
    sparse_spans,
)
from ncarl.io.files import atomic_write, name_broken_file, write_npz
from ncarl.io.tables import ReadOptions, TableFile
from ncarl.observations import (
    MAX_COLUMNS,
    Observations,
    check_sparse,
    check_sparse_shape,
)


def open_rows(path: Path, columns: None, rows_per_chunk: int | None) -> BaseRows:
    """Open the matrix in an NPY or NPZ file as a source of rows.

    A CSR matrix in an NPZ file is read in chunks, an array is read into memory.
    """
    file = FileSnapshot.from_path(path)
    if path.name.lower().endswith(".npz"):
        return _open_npz(file, rows_per_chunk)
    with name_broken_file(file.path, "NPY"):
        array = _load_npy(file.path, "r")
    check_matrix(array.shape, array.dtype, str(file))
    m, n = array.shape
    return NpyRows(
        n_columns=n, n_rows=m, dtype=result_dtype(array.dtype), file=file,
        spans=dense_spans(m, n, rows_per_chunk),
    )  # fmt: skip


def _load_npy(path: Path, mmap_mode: Any = None) -> Array:
    with path.open("rb") as stream:
        read_npy_header(stream, path.stat().st_size)
    return np.load(path, mmap_mode=mmap_mode, allow_pickle=False)


def read_npy_header(stream: Any, size: int) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and dtype of an array in a file of ``size`` bytes; raises if it is not."""
    try:
        version = np.lib.format.read_magic(stream)
        read = getattr(np.lib.format, f"read_array_header_{version[0]}_0")
        shape, _, dtype = read(stream)
    except Exception as error:  # any, of the parser of Python's literals
        raise ValueError("it does not begin with the header of an array") from error
    if dtype.hasobject:
        raise ValueError(
            "it holds Python objects, which are not read because reading them can run "
            "code; save an array of numbers"
        )
    claimed = math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or stream.tell() + claimed > size:
        raise ValueError("it is cut off: it ends before its last number")
    return shape, dtype


def _check_members(path: Path) -> tuple[int, int]:
    """The compression of an NPZ file, and its bytes to unpack; raises if not arrays."""
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        for info in members:
            if not info.filename.endswith(".npy"):
                raise ValueError(f"{info.filename!r} in it is no array; leave it out")
            with archive.open(info) as stream:
                read_npy_header(stream, info.file_size)
    compression = max((info.compress_type for info in members), default=0)
    return compression, compression and sum(info.file_size for info in members)


@dataclass(frozen=True, eq=False, kw_only=True)
class NpyRows(SpanRows):
    """Rows of a 2-D array in an NPY file."""

    def _load(self, first: int, last: int) -> Observations:
        assert self.file is not None
        # Mapped for one chunk only: until then pages count as memory of the process.
        rows = _load_npy(self.file.path, "r")[first:last]
        return observations_from_dense(_to_native(rows), first, str(self.file))


def _to_native(values: Array) -> Array:
    return np.ascontiguousarray(values, values.dtype.newbyteorder("="))


def _open_npz(file: FileSnapshot, rows_per_chunk: int | None) -> BaseRows:
    with name_broken_file(file.path, "NPZ"), file.path.open("rb") as stream:
        _, size = _check_members(file.path)
        archive = np.lib.npyio.NpzFile(stream)
        if "format" in archive and "shape" in archive:
            kind, shape = archive["format"].item(), archive["shape"]
            return _csr_rows(file, kind, shape, rows_per_chunk)
        if len(archive.files) != 1:
            raise ValueError(
                f"{file} must hold a CSR matrix as scipy.sparse.save_npz writes it, or "
                f"one array, got the arrays {', '.join(archive.files) or 'none'}; save "
                "the one to read with numpy.save"
            )
        check_unpacked_size(file.path, size)
        array = archive[archive.files[0]]
    check_matrix(array.shape, array.dtype, str(file))
    return MemoryRows.from_matrix(_to_native(array), rows_per_chunk)


def _csr_rows(
    file: FileSnapshot, kind: Any, shape: Array, rows_per_chunk: int | None
) -> CsrRows:
    kind = kind.decode("ascii", "replace") if isinstance(kind, bytes) else str(kind)
    if kind != "csr":
        raise ValueError(
            f"{file} must hold a sparse matrix by rows ('csr'), got {kind!r}; convert "
            "it with scipy.sparse.save_npz(new, scipy.sparse.load_npz(old).tocsr())"
        )
    m, n = (int(size) for size in shape)
    if n > MAX_COLUMNS:
        raise ValueError(f"{file} must have at most {MAX_COLUMNS} columns, got {n}")
    with zipfile.ZipFile(file.path) as archive:
        data = _ArrayStream(archive, "data", file)
    check_matrix((m, n), data.dtype, str(file))
    check_sparse_shape((m, n), math.prod(data.shape), str(file))
    check_unpacked_size(file.path, 8 * m)  # of indptr, which is read as a whole
    return CsrRows(
        n_columns=n, n_rows=m, dtype=result_dtype(data.dtype), file=file,
        rows_per_chunk=rows_per_chunk,
    )  # fmt: skip


class _ArrayStream:
    """Reads an array of one axis in an NPZ file from beginning to end."""

    def __init__(self, archive: zipfile.ZipFile, name: str, file: FileSnapshot) -> None:
        self.stream = archive.open(f"{name}.npy")
        size = archive.getinfo(f"{name}.npy").file_size
        self.shape, self.dtype = read_npy_header(self.stream, size)
        self.where = f"{file}, array {name!r},"

    def read(self, count: int) -> Array:
        size = count * self.dtype.itemsize
        data = self.stream.read(size)
        if len(data) < size:
            raise BrokenFileError(
                f"{self.where} ends before its last number: it is damaged"
            )
        return _to_native(np.frombuffer(data, self.dtype))


@dataclass(frozen=True, eq=False, kw_only=True)
class CsrRows(BaseRows):
    """Rows of a CSR matrix in an NPZ file, which is read from beginning to end."""

    rows_per_chunk: int | None = None  # None for the default size

    def __iter__(self) -> Iterator[Observations]:
        assert self.file is not None
        with (
            self._unchanged(),
            name_broken_file(self.file.path, "NPZ"),
            zipfile.ZipFile(self.file.path) as archive,
        ):
            streams = [_ArrayStream(archive, k, self.file) for k in ("indices", "data")]
            indptr = self._read_indptr(archive, *streams)
            spans = sparse_spans(indptr, self.n_columns, self.rows_per_chunk)
            for first, last in spans:
                starts = indptr[first : last + 1]
                indices, data = (s.read(int(starts[-1] - starts[0])) for s in streams)
                yield self._build_observations(first, starts, indices, data)

    def _read_indptr(
        self, archive: zipfile.ZipFile, indices: _ArrayStream, data: _ArrayStream
    ) -> Array:
        """The array ``indptr``; raises unless the three arrays fit together."""
        assert self.file is not None
        stored, m = _ArrayStream(archive, "indptr", self.file), self.n_rows or 0
        equal = indices.shape == data.shape and len(data.shape) == 1
        whole = {stored.dtype.kind, indices.dtype.kind} <= {"i", "u"}
        if equal and whole and stored.shape == (m + 1,):
            indptr = stored.read(m + 1).astype(np.int64)
            ends = indptr[0] == 0 and indptr[-1] == data.shape[0]
            if ends and (np.diff(indptr) >= 0).all():
                return indptr
        raise BrokenFileError(f"{self.file} is damaged: its arrays do not fit together")

    def _build_observations(
        self, first: int, indptr: Array, indices: Array, data: Array
    ) -> Observations:
        # SciPy uses one type for indptr and indices; int32 is mostly enough.
        small = np.int32 if len(data) < MAX_COLUMNS else np.int64
        parts = (data, indices, (indptr - indptr[0]).astype(small))
        csr = sparse.csr_array(parts, shape=(len(indptr) - 1, self.n_columns))
        try:
            observed = Observations.from_sparse(csr)
        except ValueError as error:
            message = f"{self.file}, rows from {first} on: {error}"
            raise BrokenFileError(message) from error
        return check_finite_entries(observed, first, str(self.file))


@contextmanager
def open_sink(path: Path, spec: SinkSpec) -> Iterator[Sink]:
    """Write an NPY file, which appears when the block succeeds."""
    with atomic_write(path) as temporary, temporary.open("wb") as stream:

        def write_header(n_rows: int) -> None:
            # NumPy pads it, so that its length does not depend on the number of rows.
            fields = {
                "descr": np.lib.format.dtype_to_descr(spec.dtype),
                "fortran_order": False,
                "shape": (n_rows, spec.n_columns),
            }
            stream.seek(0)
            np.lib.format.write_array_header_1_0(stream, fields)

        write_header(spec.n_rows or 0)
        sink = Sink(spec, lambda rows: stream.write(rows.data))
        yield sink
        sink.finish()
        write_header(sink.n_written)


def read_table(path: Path, options: ReadOptions) -> MatrixTable:
    """Read the matrix in an NPY, NPZ or Matrix Market file."""
    suffix = path.suffix.lower()
    kind = {".npy": "NPY", ".npz": "NPZ"}.get(suffix, "Matrix Market")
    with name_broken_file(path, kind):
        if suffix == ".npz":
            table = _read_npz(path, options.array)
        elif suffix == ".npy":
            table = MatrixTable(values=_load_npy(path), format_name=kind)
        else:
            _check_matrix_market(path)
            table = MatrixTable(values=scipy_io.mmread(path), format_name=kind)
        check_matrix(table.values.shape, table.values.dtype, "the array")
        if sparse.issparse(table.values):
            check_sparse(table.values, "the matrix")
    return table


def _check_matrix_market(path: Path) -> None:
    """Raise for a header that promises what the file cannot hold."""
    m, n, n_entries, layout, kind, symmetry = scipy_io.mminfo(path)
    if kind == "pattern":
        raise ValueError("a pattern file lists positions without values")
    if min(m, n) < 1:  # SciPy divides by the number of rows
        raise ValueError(f"it must have rows and columns, got shape {(m, n)}")
    dense = layout == "array"
    if dense and symmetry != "general":
        n_entries = m * max(n - 1, 0) // 2
    if n_entries * (2 if dense else 6) - 1 > path.stat().st_size:
        raise ValueError(f"it has fewer than the {n_entries} entries it declares")
    if not dense:
        check_sparse_shape((m, n), n_entries, "the matrix")


def _read_npz(path: Path, array_name: str | None) -> MatrixTable:
    compression, size = _check_members(path)
    check_unpacked_size(path, size)
    with np.load(path, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    if array_name is None and {"format", "shape", "data"} <= arrays.keys():
        return MatrixTable(values=sparse.load_npz(path), format_name="sparse NPZ")
    listed = ", ".join(f"{name!r} {a.dtype}{a.shape}" for name, a in arrays.items())
    if array_name is None:
        matrices = [k for k, a in arrays.items() if a.ndim == 2 and a.dtype.kind == "f"]
        if len(matrices) != 1:
            raise ValueError(
                f"it has {len(matrices)} matrices of floats; choose one with --array; "
                f"it holds {listed or 'nothing'}"
            )
        array_name = matrices[0]
    if array_name not in arrays:
        raise ValueError(f"--array {array_name!r} is not in it; it holds {listed}")
    return MatrixTable(
        values=arrays[array_name], format_name="NPZ", arrays=arrays,
        array_name=array_name, compression=compression,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class MatrixTable(TableFile):
    """A matrix in an array file."""

    format_name: str  # "NPY", "NPZ", "sparse NPZ" or "Matrix Market"
    arrays: Mapping[str, Array] = field(default_factory=dict)  # all of an NPZ file
    array_name: str = ""  # the one that is ``values``
    compression: int = zipfile.ZIP_STORED

    def write(
        self, path: Path, numbers: Array, *, replace_observed: bool = False
    ) -> None:
        """Write the matrix with its missing, or all, numbers replaced."""
        if not replace_observed and not sparse.issparse(self.values):
            missing = np.isnan(self.values)
            filled = np.where(missing, numbers, self.values)
            # Without missing entries the dtype of the file stays, too.
            numbers = filled if missing.any() else self.values
        with atomic_write(path) as temporary:
            if self.format_name == "NPY":
                np.save(temporary, numbers, allow_pickle=False)
            elif self.format_name == "NPZ":
                arrays = {**self.arrays, self.array_name: numbers}
                write_npz(temporary, arrays, self.compression)
            elif self.format_name == "sparse NPZ":
                sparse.save_npz(temporary, self._to_csr(numbers))
            else:
                # Listed by position where some are missing. SciPy ignores a full disk
                # unless the stream is Python's.
                listed = self._to_csr(numbers) if np.isnan(numbers).any() else numbers
                with temporary.open("wb") as stream:
                    scipy_io.mmwrite(stream, listed, symmetry="general")

    def _to_csr(self, numbers: Array) -> Any:
        """CSR matrix that stores every entry, zeros included, but NaN."""
        csr = Observations.from_dense(numbers).to_csr()
        array = isinstance(self.values, sparse.sparray)
        return csr if array else sparse.csr_matrix(csr)
