"""Zarr arrays: read in chunks of rows, and written."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ncarl.core.types import Array
from ncarl.io.base import (
    FileSnapshot,
    Sink,
    SinkSpec,
    SpanRows,
    check_matrix,
    observations_from_dense,
    resolve_rows_per_chunk,
    result_dtype,
    row_ranges,
)
from ncarl.io.files import (
    name_broken_file,
    name_disk_errors,
    resolve_output,
    temporary_path,
)
from ncarl.observations import Observations

ZARR_MARKERS = ("zarr.json", ".zarray", ".zgroup")
#: Numbers in a chunk that is written.
CHUNK_SIZE = 1_000_000


def is_zarr_folder(path: Path) -> bool:
    """Whether a folder holds a Zarr array or group."""
    return any((path / mark).exists() for mark in ZARR_MARKERS)


def open_rows(path: Path, columns: None, rows_per_chunk: int | None) -> ZarrRows:
    """Open the Zarr array in a folder as a source of rows."""
    import zarr

    file = FileSnapshot.from_path(path)
    with name_broken_file(file.path, "Zarr"):
        array = zarr.open(str(file.path), mode="r")
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
    """Open a Zarr array, which may be in a folder, as a source of rows."""
    where = "the Zarr array" if file is None else str(file)
    check_matrix(array.shape, np.dtype(array.dtype), where)
    m, n = (int(size) for size in array.shape)
    step = resolve_rows_per_chunk(rows_per_chunk, n)
    if rows_per_chunk is None:
        # A Zarr chunk that is split would be decompressed twice.
        height = int(array.chunks[0])
        step = max(1, step // height) * height
    names = array.attrs.get("names")
    named = isinstance(names, list) and len(names) == n
    return ZarrRows(
        n_columns=n, n_rows=m, names=tuple(map(str, names)) if named else None,
        dtype=result_dtype(array.dtype), file=file, spans=row_ranges(m, step),
        array=array, where=where,
    )  # fmt: skip


@dataclass(frozen=True, eq=False, kw_only=True)
class ZarrRows(SpanRows):
    """Rows of a 2-D Zarr array."""

    array: Any
    where: str  # name in error messages

    def _load(self, first: int, last: int) -> Observations:
        rows = np.asarray(self.array[first:last])
        return observations_from_dense(rows, first, self.where)


def open_sink(path: Path, spec: SinkSpec) -> AbstractContextManager[Sink]:
    """Write a Zarr array, which appears when the block succeeds.

    Names of columns become its attribute ``names``.
    """
    if resolve_output(path, folder=True).exists() and not is_zarr_folder(path):
        raise ValueError(
            f"{str(path)!r} exists and is not a Zarr array, so it is not replaced; "
            "name another path, or remove it"
        )
    return _write_zarr(path, spec)


@contextmanager
def _write_zarr(path: Path, spec: SinkSpec) -> Iterator[Sink]:
    import zarr

    with _atomic_write_folder(path) as temporary:
        height = max(1, CHUNK_SIZE // spec.n_columns)
        array = zarr.create_array(
            str(temporary),
            shape=(spec.n_rows or 0, spec.n_columns),
            chunks=(height, spec.n_columns),
            dtype=spec.dtype,
            fill_value=float("nan"),
            attributes={"names": list(spec.names)} if spec.names else None,
        )
        n_stored = 0

        def append(rows: Array) -> None:  # whole chunks, each of them once
            nonlocal n_stored
            last = n_stored + len(rows)
            if last > array.shape[0]:
                array.resize((last, spec.n_columns))
            array[n_stored:last] = rows
            n_stored = last

        sink = Sink(spec, append, height)
        yield sink
        sink.finish()
        array.resize((sink.n_written, spec.n_columns))


@contextmanager
def _atomic_write_folder(path: Path) -> Iterator[Path]:
    """A temporary folder beside ``path`` that replaces it if the block succeeds.

    What was there before stays untouched until then, and for good if the block raises.
    Folders cannot be swapped atomically: if the machine stops between the two renames,
    the old folder is left under a name that begins with a dot and ends in ``.old``.
    """
    target = resolve_output(path, folder=True)
    temporary = temporary_path(target, path.suffix)
    with name_disk_errors(path, target):
        temporary.mkdir()
        try:
            if target.exists():
                temporary.chmod(target.stat().st_mode & 0o777)
            yield temporary
            for parent, _, names in os.walk(temporary):
                for name in names:
                    with (Path(parent) / name).open("rb+") as stream:
                        os.fsync(stream.fileno())
            _swap_folder(temporary, target)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def _swap_folder(temporary: Path, target: Path) -> None:
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
