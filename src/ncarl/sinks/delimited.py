"""Rows written to a CSV or TSV file, numbers in full."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from ncarl.core.types import Array
from ncarl.sinks.protocol import Sink, Table
from ncarl.sources.delimited import DELIMITERS, MISSING, is_number
from ncarl.sources.optional import library
from ncarl.storage import replacing


@dataclass
class _DelimitedSink:
    """Rows that become lines."""

    stream: BinaryIO
    delimiter: str
    table: Table
    written: int = 0

    def write_names(self, names: tuple[str, ...]) -> None:
        """Write the header.

        Names are quoted where a reader could take them for numbers, or what is in them
        for a separator.
        """
        numbers = all(_like_a_cell(name) for name in names)
        marks = any(mark in name for name in names for mark in DELIMITERS)
        quoting = csv.QUOTE_ALL if numbers or marks else csv.QUOTE_MINIMAL
        text = io.StringIO()
        options: Any = {"delimiter": self.delimiter, "quoting": quoting}
        csv.writer(text, lineterminator="\n", **options).writerow(names)
        self.stream.write(text.getvalue().encode("utf-8", "surrogateescape"))

    def write(self, rows: Array) -> None:
        """Add some rows."""
        pa = library("pyarrow", "CSV files", "cli")
        pc = library("pyarrow.csv", "CSV files", "cli")
        # Twice as wide, a small float is still written in full, and is read back as
        # the same number whatever the reader's type.
        found = self.table.checked(rows).astype(np.float64, copy=False)
        columns = [
            pa.array(np.ascontiguousarray(column), from_pandas=True)
            for column in found.T
        ]
        labels = [str(j) for j in range(self.table.n_columns)]
        how = pc.WriteOptions(include_header=False, delimiter=self.delimiter)
        pc.write_csv(pa.Table.from_arrays(columns, labels), self.stream, how)
        self.written += len(found)


def _like_a_cell(name: str) -> bool:
    """Whether a name could be taken for a number or a missing cell."""
    return name.strip() in MISSING or is_number(name)


@contextmanager
def delimited_sink(path: Path, table: Table) -> Iterator[Sink]:
    """A sink that writes a CSV or TSV file; it appears when the block succeeds.

    Columns without names get no header. NaN is written as an empty cell.
    """
    name = path.name.lower()
    delimiter = "\t" if ".tsv" in name[-7:] else ","
    with replacing(path) as temporary, ExitStack() as stack:
        stream: Any = stack.enter_context(temporary.open("wb"))
        if name.endswith(".gz"):
            # Without a time stamp equal tables give equal files.
            packed = gzip.GzipFile("", "wb", fileobj=stream, mtime=0)
            stream = stack.enter_context(packed)
        sink = _DelimitedSink(cast(BinaryIO, stream), delimiter, table)
        if table.names is not None:
            sink.write_names(table.names)
        yield sink
        table.check_count(sink.written)
