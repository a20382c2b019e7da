"""Zarr arrays: read in chunks of rows, and written."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ncarl.core.types import Array
from ncarl.exceptions import BrokenFileError
from ncarl.io.base import (
    FileSnapshot,
    Sink,
    SinkSpec,
    check_real_dtype,
    import_optional,
    observations_from_dense,
    resolve_rows_per_chunk,
    result_dtype,
    row_ranges,
)
from ncarl.observations import Observations

ZARR_MARKERS = ("zarr.json", ".zarray", ".zgroup")
#: Numbers in a chunk that is written.
CHUNK_SIZE = 1_000_000


def zarr_path_rows(
    path: str | os.PathLike[str], rows_per_chunk: int | None = None
) -> ZarrRows:
    """Open the Zarr array in a folder as a source of rows."""
    zarr = import_optional("zarr", "Zarr arrays", "zarr")
    file = FileSnapshot.from_path(path)
    try:
        array = zarr.open(str(file.path), mode="r")
    except (ValueError, KeyError, OSError) as error:
        raise BrokenFileError(f"{file} holds no Zarr array: {error}") from error
    if not hasattr(array, "shape"):
        arrays = ", ".join(repr(name) for name in array.array_keys()) or "none"
        raise ValueError(
            f"{file} must be a Zarr array, got a group with the arrays {arrays}; pass "
            "one of them, as in zarr.open(path)['name']"
        )
    return zarr_rows(array, rows_per_chunk, file)


def zarr_rows(
    array: Any, rows_per_chunk: int | None = None, file: FileSnapshot | None = None
) -> ZarrRows:
    """Open a Zarr array as a source of rows.

    Parameters
    ----------
    array : zarr.Array
        An array of two axes.
    rows_per_chunk : int, optional
        Rows in a chunk; by default about the usual number, in whole chunks of the
        array.
    file : FileSnapshot, optional
        The folder it lies in.
    """
    where = "the Zarr array" if file is None else str(file)
    check_real_dtype(np.dtype(array.dtype), where)
    if array.ndim != 2:
        raise ValueError(
            f"{where} must have two axes, rows and columns, got shape {array.shape}"
        )
    step = resolve_rows_per_chunk(rows_per_chunk, int(array.shape[1]))
    if rows_per_chunk is None:
        # A Zarr chunk that is split would be decompressed twice.
        height = int(array.chunks[0])
        step = max(1, step // height) * height
    return ZarrRows(array, file, step)


@dataclass(frozen=True, eq=False)
class ZarrRows:
    """Rows of a 2-D Zarr array, as a `RowSource`."""

    array: Any
    file: FileSnapshot | None  # its folder; None if the caller opened the array
    rows_per_chunk: int

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

    def __iter__(self) -> Iterator[Observations]:
        """Chunks of rows in order."""
        with self._ensure_unchanged():
            for first, last in row_ranges(self.n_rows, self.rows_per_chunk):
                yield self._read_rows(first, last)

    def chunk_loaders(self) -> Sequence[Callable[[], Observations]]:
        """Loaders of the chunks; they work wherever the array can be opened."""
        ranges = row_ranges(self.n_rows, self.rows_per_chunk)
        return [partial(self.load, first, last) for first, last in ranges]

    def load(self, first: int, last: int) -> Observations:
        """Observed entries of rows ``first`` to ``last - 1``."""
        with self._ensure_unchanged():
            return self._read_rows(first, last)

    def _ensure_unchanged(self) -> contextlib.AbstractContextManager[Any]:
        """Context of one pass, during which the files must not change."""
        if self.file is None:
            return contextlib.nullcontext()
        return self.file.ensure_unchanged()

    def _read_rows(self, first: int, last: int) -> Observations:
        return observations_from_dense(
            np.asarray(self.array[first:last]), first, self._display_name()
        )

    def _display_name(self) -> str:
        """Name of the array in error messages."""
        return "the Zarr array" if self.file is None else str(self.file)


def is_zarr_folder(path: Path) -> bool:
    """Whether a folder holds a Zarr array or group."""
    return any((path / mark).exists() for mark in ZARR_MARKERS)


@contextmanager
def zarr_sink(path: Path, spec: SinkSpec) -> Iterator[Sink]:
    """Write a Zarr array, which appears when the block succeeds.

    Names of columns become its attribute ``names``.
    """
    zarr = import_optional("zarr", "Zarr arrays", "zarr")
    with atomic_write_folder(path) as temporary:
        array = zarr.create_array(
            str(temporary),
            shape=(spec.n_rows or 0, spec.n_columns),
            chunks=(max(1, CHUNK_SIZE // spec.n_columns), spec.n_columns),
            dtype=spec.dtype,
            fill_value=float("nan"),
            attributes={"names": list(spec.names)} if spec.names else None,
        )
        sink = _ZarrSink(array, spec)
        yield sink
        sink.finish()


@dataclass
class _ZarrSink:
    """Writes rows in whole chunks, each of them once."""

    array: Any
    spec: SinkSpec
    buffer: list[Array] = field(default_factory=list)
    n_written: int = 0

    def write(self, rows: Array) -> None:
        """Add some rows."""
        values = self.spec.validate_rows(rows)
        # The caller may reuse its array before the chunk is full.
        shared = np.may_share_memory(values, rows)
        self.buffer.append(values.copy() if shared else values)
        n_buffered = sum(len(part) for part in self.buffer)
        height = int(self.array.chunks[0])
        self.flush(n_buffered - n_buffered % height)

    def flush(self, count: int) -> None:
        """Write the first ``count`` rows of the buffer."""
        if count == 0:
            return
        rows = np.concatenate(self.buffer)
        self.buffer = [rows[count:].copy()]
        last = self.n_written + count
        if last > self.array.shape[0]:
            self.array.resize((last, self.spec.n_columns))
        self.array[self.n_written : last] = rows[:count]
        self.n_written = last

    def finish(self) -> None:
        """Write the rest of the buffer, and set the shape to what was written."""
        self.flush(sum(len(part) for part in self.buffer))
        self.spec.check_row_count(self.n_written)
        self.array.resize((self.n_written, self.spec.n_columns))


def check_replaceable(path: Path) -> None:
    """Raise if ``path`` exists and is not a Zarr array."""
    if not path.exists():
        return
    if not path.is_dir() or not is_zarr_folder(path):
        raise ValueError(
            f"{str(path)!r} exists and is no Zarr array, so it is not replaced; name "
            "another path, or remove it"
        )


@contextmanager
def atomic_write_folder(path: Path) -> Iterator[Path]:
    """A temporary folder beside ``path`` that replaces it if the block succeeds.

    What was at ``path`` before stays untouched until then, and for good if the block
    raises. Folders cannot be swapped atomically: if the machine stops between the two
    renames, the old folder is left under a name that begins with a dot and ends in
    ``.old``.
    """
    target = path.absolute()
    name = tempfile.mkdtemp(
        prefix=f".{target.name}.", suffix=target.suffix, dir=target.parent
    )
    temporary = Path(name)
    try:
        temporary.chmod(_default_folder_mode(target))
        yield temporary
        _fsync_folder(temporary)
        _swap_folder(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _swap_folder(temporary: Path, target: Path) -> None:
    """Move a folder to its target, and remove what was there."""
    if not target.exists():
        temporary.rename(target)
        return
    old = temporary.with_name(f"{temporary.name}.old")
    target.rename(old)
    try:
        temporary.rename(target)
    except BaseException:
        old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _fsync_folder(folder: Path) -> None:
    """Wait until all files of a folder are on disk."""
    for parent, _, names in os.walk(folder):
        for name in names:
            with (Path(parent) / name).open("rb+") as stream:
                os.fsync(stream.fileno())


def _default_folder_mode(target: Path) -> int:
    """Permissions of the folder being replaced, or those of a new folder."""
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o777 & ~mask
