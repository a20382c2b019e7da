"""Rows written to a Zarr array, a chunk at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ncarl.core.types import Array
from ncarl.sinks.folders import replacing_folder
from ncarl.sinks.protocol import Sink, Table
from ncarl.sources.optional import library

#: Numbers in a chunk.
CHUNK = 1_000_000
MARKS = ("zarr.json", ".zarray", ".zgroup")


@dataclass
class _ZarrSink:
    """Rows that become chunks; only whole ones are written, each once."""

    array: Any
    table: Table
    waiting: list[Array] = field(default_factory=list)
    written: int = 0

    def write(self, rows: Array) -> None:
        """Add some rows."""
        found = self.table.checked(rows)
        # The caller may use its array again before the chunk is full.
        shared = np.may_share_memory(found, rows)
        self.waiting.append(found.copy() if shared else found)
        held = sum(len(part) for part in self.waiting)
        high = int(self.array.chunks[0])
        self.flush(held - held % high)

    def flush(self, count: int) -> None:
        """Write so many of the rows that wait."""
        if count == 0:
            return
        rows = np.concatenate(self.waiting)
        self.waiting = [rows[count:].copy()]
        last = self.written + count
        if last > self.array.shape[0]:
            self.array.resize((last, self.table.n_columns))
        self.array[self.written : last] = rows[:count]
        self.written = last

    def finish(self) -> None:
        """Write the rows that wait, and set the shape to what was written."""
        self.flush(sum(len(part) for part in self.waiting))
        self.table.check_count(self.written)
        self.array.resize((self.written, self.table.n_columns))


def refuse_other_folders(path: Path) -> None:
    """Raise if a folder would be replaced that is no Zarr array."""
    if not path.exists():
        return
    if not path.is_dir() or not any((path / mark).exists() for mark in MARKS):
        raise ValueError(
            f"{str(path)!r} exists and is no Zarr array, so it is not replaced; name "
            "another path, or remove it"
        )


@contextmanager
def zarr_sink(path: Path, table: Table) -> Iterator[Sink]:
    """A sink that writes a Zarr array; it appears when the block succeeds.

    Names of columns become its attribute ``names``.
    """
    zarr = library("zarr", "Zarr arrays", "zarr")
    with replacing_folder(path) as temporary:
        array = zarr.create_array(
            str(temporary),
            shape=(table.n_rows or 0, table.n_columns),
            chunks=(max(1, CHUNK // table.n_columns), table.n_columns),
            dtype=table.dtype,
            fill_value=float("nan"),
            attributes={"names": list(table.names)} if table.names else None,
        )
        sink = _ZarrSink(array, table)
        yield sink
        sink.finish()
