"""Rows written to an NPY file, whose header is completed when their number is known."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from ncarl.core.types import Array
from ncarl.sinks.protocol import Sink, Table
from ncarl.storage import replacing


@dataclass
class _NpySink:
    """Rows after a header."""

    stream: BinaryIO
    table: Table
    written: int = 0

    def write(self, rows: Array) -> None:
        """Add some rows."""
        found = self.table.checked(rows)
        self.stream.write(found.data)
        self.written += len(found)

    def header(self, rows: int) -> int:
        """Write the header for so many rows, and tell where it ends.

        NumPy leaves room in it, so that its length does not depend on the number.
        """
        about = {
            "descr": np.lib.format.dtype_to_descr(self.table.dtype),
            "fortran_order": False,
            "shape": (rows, self.table.n_columns),
        }
        self.stream.seek(0)
        np.lib.format.write_array_header_1_0(self.stream, about)
        return self.stream.tell()


@contextmanager
def npy_sink(path: Path, table: Table) -> Iterator[Sink]:
    """A sink that writes an NPY file; it appears when the block succeeds."""
    with replacing(path) as temporary, temporary.open("wb") as stream:
        sink = _NpySink(stream, table)
        start = sink.header(table.n_rows or 0)
        yield sink
        table.check_count(sink.written)
        if sink.header(sink.written) != start:
            raise RuntimeError("the header of an NPY file has outgrown its room")
