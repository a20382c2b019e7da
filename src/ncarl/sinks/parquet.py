"""Rows written to a Parquet file, a row group a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ncarl.core.types import Array
from ncarl.sinks.protocol import Sink, Table
from ncarl.sources.optional import library
from ncarl.storage import replacing

#: Rows are collected until a row group has about this many numbers.
GROUP = 4_000_000


@dataclass
class _ParquetSink:
    """Rows that become row groups."""

    writer: Any
    table: Table
    waiting: list[Array] = field(default_factory=list)
    written: int = 0

    def write(self, rows: Array) -> None:
        """Add some rows."""
        found = self.table.checked(rows)
        self.written += len(found)
        # The caller may use its array again before the group is full.
        shared = np.may_share_memory(found, rows)
        self.waiting.append(found.copy() if shared else found)
        if sum(part.size for part in self.waiting) >= GROUP:
            self.flush()

    def flush(self) -> None:
        """Write the rows that wait as a row group."""
        pa = library("pyarrow", "Parquet files", "cli")
        if self.waiting:
            rows = np.concatenate(self.waiting)
            self.waiting.clear()
            columns = [pa.array(np.ascontiguousarray(column)) for column in rows.T]
            group = pa.Table.from_arrays(columns, schema=self.writer.schema)
            self.writer.write_table(group, row_group_size=max(1, len(rows)))


@contextmanager
def parquet_sink(path: Path, table: Table) -> Iterator[Sink]:
    """A sink that writes a Parquet file; it appears when the block succeeds."""
    pa = library("pyarrow", "Parquet files", "cli")
    pq = library("pyarrow.parquet", "Parquet files", "cli")
    kind = pa.from_numpy_dtype(table.dtype)
    schema = pa.schema([(label, kind) for label in table.labels])
    with replacing(path) as temporary, ExitStack() as stack:
        stream = stack.enter_context(temporary.open("wb"))
        writer = stack.enter_context(pq.ParquetWriter(stream, schema))
        sink = _ParquetSink(writer, table)
        yield sink
        table.check_count(sink.written)
        sink.flush()
