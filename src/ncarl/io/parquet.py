"""Parquet files: read in chunks of rows or as a whole table, and written."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
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
    frame_values,
    import_optional,
    observations_from_dense,
    resolve_rows_per_chunk,
    result_dtype,
)
from ncarl.io.files import atomic_write
from ncarl.io.tables import (
    ReadOptions,
    arrow_values,
    column_positions,
    rebatch,
    reject_unsupported_options,
    select_column_names,
)
from ncarl.observations import Observations
from ncarl.text import join_names

#: A chunk loader has to read its row group from the start. There are none if that would
#: mean reading each group more often than this on average.
MAX_READS_PER_GROUP = 4
#: Bytes of a column that are read at once.
READ_BUFFER_BYTES = 1 << 16
#: Rows are buffered until a row group has about this many numbers.
ROW_GROUP_SIZE = 4_000_000


def parquet_rows(
    path: str | os.PathLike[str],
    columns: Sequence[str] | None = None,
    rows_per_chunk: int | None = None,
) -> ParquetRows:
    """Open a Parquet file, or all such files in a folder, as a source of rows.

    Parameters
    ----------
    path : path
        The file, or a folder, whose files are read in the order of their names.
    columns : sequence of str, optional
        Which columns to read; by default all but the index of a pandas frame.
    rows_per_chunk : int, optional
        Maximal rows in a chunk; chunks end where large row groups end, too.
    """
    location = FileSnapshot.from_path(path)
    files = _list_files(location.path)
    with open_parquet(files[0]) as table:
        names = select_column_names(
            _column_names(table.schema_arrow, columns), columns, str(location)
        )
    step = resolve_rows_per_chunk(rows_per_chunk, len(names))
    groups, dtypes, first = list[RowGroups](), set[np.dtype[Any]](), 0
    for number, file in enumerate(files):
        with open_parquet(file) as table:
            dtypes |= _result_dtypes(table.schema_arrow, names, file)
            for together, rows in _merge_row_groups(table.metadata, step):
                groups.append(RowGroups(number, together, first, rows))
                first += rows
    return ParquetRows(
        location, files, tuple(groups), names, result_dtype(*dtypes), step
    )


def _list_files(path: Path) -> tuple[Path, ...]:
    if not path.is_dir():
        return (path,)
    suffixes = (".parquet", ".pq")
    files = sorted(p for p in path.iterdir() if p.suffix.lower() in suffixes)
    if not files:
        raise ValueError(
            f"the folder {str(path)!r} must hold Parquet files (.parquet, .pq) or a "
            "Zarr array, got neither"
        )
    return tuple(files)


def _column_names(schema: Any, columns: Sequence[str] | None) -> list[str]:
    """Names of the columns; the index of a pandas frame only if columns are given."""
    if columns is not None:
        return list(schema.names)
    metadata = schema.pandas_metadata or {}
    index = [
        name for name in metadata.get("index_columns", ()) if isinstance(name, str)
    ]
    return [name for name in schema.names if name not in index]


def _result_dtypes(schema: Any, names: Sequence[str], path: Path) -> set[np.dtype[Any]]:
    """Float types of the columns; raises if one is missing or not numeric."""
    import pyarrow as pa

    counts = Counter(schema.names)
    absent = [name for name in names if counts[name] != 1]
    if absent:
        raise ValueError(
            f"{str(path)!r} must have the columns of the other files, each once; "
            f"missing or twice: {join_names(absent, 8, form=repr)}"
        )
    types = dict(zip(schema.names, schema.types, strict=True))
    kinds = {name: types[name] for name in names}
    tests = (
        *(pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean),
        *(pa.types.is_decimal, pa.types.is_null),
    )
    bad = [
        f"{name!r} ({kind})"
        for name, kind in kinds.items()
        if not any(test(kind) for test in tests)
    ]
    if bad:
        more = f" and {len(bad) - 8} more" if len(bad) > 8 else ""
        raise ValueError(
            f"{str(path)!r} must hold numbers only; not numeric: "
            f"{', '.join(bad[:8])}{more}; choose the others with columns=[...]"
        )
    small = (pa.float16(), pa.float32())
    return {np.dtype(np.float32 if k in small else np.float64) for k in kinds.values()}


def _merge_row_groups(
    metadata: Any, rows_per_chunk: int
) -> list[tuple[tuple[int, ...], int]]:
    """Indices of row groups that fit into a chunk together, and their rows."""
    merged = list[tuple[tuple[int, ...], int]]()
    for number in range(metadata.num_row_groups):
        rows = metadata.row_group(number).num_rows
        if merged and merged[-1][1] + rows <= rows_per_chunk:
            merged[-1] = ((*merged[-1][0], number), merged[-1][1] + rows)
        elif rows:
            merged.append(((number,), rows))
    return merged


def open_parquet(path: Path) -> Any:
    """Open a Parquet file for reading in batches."""
    pq = import_optional("pyarrow.parquet", "Parquet files", "cli")
    try:
        # Without a buffer whole columns of a row group are read at once.
        return pq.ParquetFile(path, pre_buffer=False, buffer_size=READ_BUFFER_BYTES)
    except ValueError as error:
        raise BrokenFileError(f"{str(path)!r} is no Parquet file: {error}") from error


@dataclass(frozen=True)
class ParquetRows:
    """Rows of one or several Parquet files with the same columns, as a `RowSource`."""

    location: FileSnapshot  # the file or folder
    files: tuple[Path, ...]
    row_groups: tuple[RowGroups, ...]  # of all files; small ones are merged
    names: tuple[str, ...]  # columns that are read
    dtype: np.dtype[Any]
    rows_per_chunk: int  # chunks end where row groups end, too

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return sum(group.n_rows for group in self.row_groups)

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return len(self.names)

    def __iter__(self) -> Iterator[Observations]:
        """Chunks of rows in order."""
        with self.location.ensure_unchanged():
            for group in self.row_groups:
                yield from self._chunks(group)

    def _chunks(self, group: RowGroups) -> Iterator[Observations]:
        path, first = self.files[group.file_index], group.first_row
        with open_parquet(path) as table:
            batches = table.iter_batches(
                batch_size=min(self.rows_per_chunk, group.n_rows),
                row_groups=group.indices,
                columns=list(self.names),
                use_threads=False,
            )
            arrays = (arrow_values(batch, self.names) for batch in batches)
            for values in rebatch(arrays, self.rows_per_chunk):
                yield observations_from_dense(values, first, str(self.location))
                first += len(values)

    def chunk_loaders(self) -> Sequence[Callable[[], Observations]] | None:
        """Loaders of the chunks; None if row groups are much larger than chunks."""
        counts = [-(-group.n_rows // self.rows_per_chunk) for group in self.row_groups]
        reads = sum(count * (count + 1) / 2 for count in counts)
        if reads > MAX_READS_PER_GROUP * len(counts):
            return None
        return [
            partial(self.load, group, number)
            for group, count in zip(self.row_groups, counts, strict=True)
            for number in range(count)
        ]

    def load(self, group: RowGroups, number: int) -> Observations:
        """Chunk ``number`` of some row groups."""
        with self.location.ensure_unchanged():
            for k, chunk in enumerate(self._chunks(group)):
                if k == number:
                    return chunk
        raise BrokenFileError(f"{self.location} has lost some of its rows")


@dataclass(frozen=True)
class RowGroups:
    """Consecutive row groups of a file that are read together."""

    file_index: int
    indices: tuple[int, ...]  # numbers of the row groups in the file
    first_row: int  # in the whole table
    n_rows: int


@contextmanager
def parquet_sink(path: Path, spec: SinkSpec) -> Iterator[Sink]:
    """Write a Parquet file, which appears when the block succeeds."""
    pa = import_optional("pyarrow", "Parquet files", "cli")
    pq = import_optional("pyarrow.parquet", "Parquet files", "cli")
    column_type = pa.from_numpy_dtype(spec.dtype)
    schema = pa.schema([(label, column_type) for label in spec.labels])
    with atomic_write(path) as temporary, ExitStack() as stack:
        stream = stack.enter_context(temporary.open("wb"))
        writer = stack.enter_context(pq.ParquetWriter(stream, schema))
        sink = _ParquetSink(writer, spec)
        yield sink
        spec.check_row_count(sink.n_written)
        sink.flush()


@dataclass
class _ParquetSink:
    """Buffers rows and writes them as row groups."""

    writer: Any
    spec: SinkSpec
    buffer: list[Array] = field(default_factory=list)
    n_written: int = 0

    def write(self, rows: Array) -> None:
        """Add some rows."""
        values = self.spec.validate_rows(rows)
        self.n_written += len(values)
        # The caller may reuse its array before the group is full.
        shared = np.may_share_memory(values, rows)
        self.buffer.append(values.copy() if shared else values)
        if sum(part.size for part in self.buffer) >= ROW_GROUP_SIZE:
            self.flush()

    def flush(self) -> None:
        """Write the buffer as a row group."""
        pa = import_optional("pyarrow", "Parquet files", "cli")
        if self.buffer:
            rows = np.concatenate(self.buffer)
            self.buffer.clear()
            columns = [pa.array(np.ascontiguousarray(column)) for column in rows.T]
            group = pa.Table.from_arrays(columns, schema=self.writer.schema)
            self.writer.write_table(group, row_group_size=max(1, len(rows)))


def read_table(path: Path, options: ReadOptions) -> ParquetTable:
    """Read a Parquet file as a table."""
    import pandas as pd

    reject_unsupported_options(options, "Parquet", ("labels",))
    try:
        frame = pd.read_parquet(path, engine="pyarrow")
    except ValueError as error:
        raise ValueError(f"{str(path)!r} is not a Parquet table: {error}") from error
    names = [str(name) for name in frame.columns]
    kept = column_positions(options.labels, names)
    used = [
        j
        for j, dtype in enumerate(frame.dtypes)
        if j not in kept
        and pd.api.types.is_numeric_dtype(dtype)
        and not pd.api.types.is_bool_dtype(dtype)
    ]
    if not used:
        raise ValueError(
            f"{str(path)!r} has no numeric column (found: "
            f"{', '.join(sorted({str(dtype) for dtype in frame.dtypes})) or 'none'})"
        )
    others = [j for j in range(len(names)) if j not in set(used)]
    text = [j for j in others if j not in kept]
    return ParquetTable(
        values=frame_values(frame.iloc[:, used]),
        columns=[names[j] for j in used],
        unused_columns=[names[j] for j in others],
        n_missing_in_text=int(frame.iloc[:, text].isna().to_numpy().sum()),
        frame=frame,
        column_indices=used,
    )


@dataclass(frozen=True)
class ParquetTable:
    """A Parquet table with all its columns; a `TableFile`."""

    values: Array
    columns: list[str]
    unused_columns: list[str]
    frame: Any  # the whole table as a pandas frame
    column_indices: list[int]  # the columns of the frame that make ``values``
    notes: list[str] = field(default_factory=list)
    read_warnings: list[str] = field(default_factory=list)
    n_missing_in_text: int = 0
    mixed_units: bool = True

    def write(
        self, path: Path, numbers: Array, *, replace_observed: bool = False
    ) -> None:
        """Write the table with its missing, or all, numbers replaced."""
        frame = self.frame.copy()
        for j, position in enumerate(self.column_indices):
            filled = np.isnan(self.values[:, j]) | replace_observed
            if filled.any():
                # Columns of whole numbers become floats; float32 stays float32.
                small = str(frame.dtypes.iloc[position]).lower() == "float32"
                column = self.values[:, j].astype(np.float32 if small else np.float64)
                column[filled] = numbers[filled, j]
                frame.isetitem(position, column)
        with atomic_write(path) as temporary:
            frame.to_parquet(temporary, engine="pyarrow")
