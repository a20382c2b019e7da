"""Parquet files: read in chunks of rows or as a whole table, and written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
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
    check_unpacked_size,
    frame_values,
    observations_from_dense,
    resolve_rows_per_chunk,
    result_dtype,
)
from ncarl.io.files import atomic_write, name_broken_file
from ncarl.io.tables import (
    ColumnTable,
    ReadOptions,
    TableFile,
    arrow_values,
    column_positions,
    rebatch,
    select_column_names,
)
from ncarl.observations import Observations
from ncarl.text import join_names

#: Bytes of a column that are read at once.
READ_BUFFER_BYTES = 1 << 16
#: Rows are buffered until a row group has about this many numbers.
ROW_GROUP_SIZE = 4_000_000


def open_rows(
    path: Path, columns: Sequence[str] | None, rows_per_chunk: int | None
) -> ParquetRows:
    """Open a Parquet file, or all such files in a folder, as a source of rows.

    Files of a folder are read in the order of their names. Chunks end where large row
    groups end, too.
    """
    location = FileSnapshot.from_path(path)
    files = [location.path]
    if location.path.is_dir():
        entries = sorted(location.path.iterdir())
        files = [p for p in entries if p.suffix.lower() in (".parquet", ".pq")]
    if not files:
        raise ValueError(
            f"the folder {str(path)!r} must hold Parquet files (.parquet, .pq) or a "
            "Zarr array, got neither"
        )
    names, dtypes, spans = tuple[str, ...](), set[np.dtype[Any]](), list[Any]()
    step, first, loadable = 1, 0, True
    for number, file in enumerate(files):
        with name_broken_file(file, "Parquet"), _open_parquet(file) as table:
            schema, metadata = table.schema_arrow, table.metadata
            # The index of a pandas frame is read only where columns are given.
            pandas_metadata = {} if columns else schema.pandas_metadata or {}
            index = pandas_metadata.get("index_columns", ())
        if number == 0:
            available = [name for name in schema.names if name not in index]
            names = select_column_names(available, columns, str(location))
            step = resolve_rows_per_chunk(rows_per_chunk, len(names))
        dtypes |= _result_dtypes(schema, names, file)
        for groups, rows in _merge_row_groups(metadata, step):
            spans.append((file, groups, first))
            loadable &= rows <= step
            first += rows
    return ParquetRows(
        n_columns=len(names), n_rows=first, names=names, dtype=result_dtype(*dtypes),
        file=location, spans=spans, rows_per_chunk=step, loadable=loadable,
    )  # fmt: skip


def _open_parquet(path: Path) -> Any:
    import pyarrow.parquet as pq

    with name_broken_file(path, "Parquet"):
        # Without a buffer whole columns of a row group are read at once. Reading a file
        # of 480 MB takes 130 MB this way, and 320 MB or more with pyarrow.dataset.
        return pq.ParquetFile(path, pre_buffer=False, buffer_size=READ_BUFFER_BYTES)


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
    types = [schema.field(name).type for name in names]
    numeric = ("integer", "floating", "boolean", "decimal", "null")
    tests = [getattr(pa.types, f"is_{kind}") for kind in numeric]
    columns = zip(names, types, strict=True)
    bad = [f"{k!r} ({kind})" for k, kind in columns if not any(t(kind) for t in tests)]
    if bad:
        raise ValueError(
            f"{str(path)!r} must hold numbers only; not numeric: {join_names(bad, 8)}; "
            "choose the others with columns=[...]"
        )
    small = (pa.float16(), pa.float32())
    return {np.dtype(np.float32 if type_ in small else np.float64) for type_ in types}


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


@dataclass(frozen=True, eq=False, kw_only=True)
class ParquetRows(SpanRows):
    """Rows of one or several Parquet files with the same columns.

    A span is a file, the numbers of some of its row groups that are read together, and
    the index of their first row in the whole table.
    """

    rows_per_chunk: int
    loadable: bool  # whether no row group is larger than a chunk

    def __iter__(self) -> Iterator[Observations]:
        with self._unchanged():
            for span in self.spans:
                yield from self._chunks(*span)

    def chunk_loaders(self) -> Sequence[Callable[[], Observations]] | None:
        """Loaders of the chunks; None if a row group is larger than a chunk."""
        return super().chunk_loaders() if self.loadable else None

    def _load(self, path: Path, groups: tuple[int, ...], first: int) -> Observations:
        (chunk,) = self._chunks(path, groups, first)
        return chunk

    def _chunks(
        self, path: Path, groups: tuple[int, ...], first: int
    ) -> Iterator[Observations]:
        for values in rebatch(self._iter_arrays(path, groups), self.rows_per_chunk):
            yield observations_from_dense(values, first, str(self.file))
            first += len(values)

    def _iter_arrays(self, path: Path, groups: tuple[int, ...]) -> Iterator[Array]:
        assert self.names is not None
        with name_broken_file(path, "Parquet"), _open_parquet(path) as table:
            batches = table.iter_batches(
                batch_size=self.rows_per_chunk,
                row_groups=groups,
                columns=list(self.names),
                use_threads=False,
            )
            for batch in batches:
                yield arrow_values(batch, self.names)


def open_sink(path: Path, spec: SinkSpec) -> AbstractContextManager[Sink]:
    """Write a Parquet file, which appears when the block succeeds."""
    labels = spec.names or tuple(str(j) for j in range(spec.n_columns))
    repeated = [name for name, count in Counter(labels).items() if count > 1]
    if repeated:
        raise ValueError(
            f"names must differ in a Parquet file, got {repeated[0]!r} more than once"
        )
    return _write_parquet(path, spec, labels)


@contextmanager
def _write_parquet(
    path: Path, spec: SinkSpec, labels: tuple[str, ...]
) -> Iterator[Sink]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    column_type = pa.from_numpy_dtype(spec.dtype)
    schema = pa.schema([(label, column_type) for label in labels])
    with (
        atomic_write(path) as temporary,
        temporary.open("wb") as stream,
        pq.ParquetWriter(stream, schema) as writer,
    ):
        group_rows = -(-ROW_GROUP_SIZE // spec.n_columns)

        def append(rows: Array) -> None:
            values = np.ascontiguousarray(rows.T)
            columns = [pa.array(column, from_pandas=True) for column in values]
            table = pa.Table.from_arrays(columns, schema=schema)
            if len(rows):
                writer.write_table(table, row_group_size=group_rows)

        sink = Sink(spec, append, group_rows)
        yield sink
        sink.finish()


def _read_frame(path: Path) -> Any:
    import pandas as pd
    import pyarrow.parquet as pq

    with path.open("rb") as stream, name_broken_file(path, "Parquet"):
        found = pq.read_metadata(stream)
        check_unpacked_size(path, 8 * found.num_rows * found.num_columns)
        return pd.read_parquet(stream, engine="pyarrow")


def read_columns(path: Path) -> ColumnTable:
    """Read the columns of a Parquet file; an index with a name is one of them."""
    frame = _read_frame(path)
    levels = enumerate(frame.index.names)
    index = [k for k, name in levels if name not in (None, *frame.columns)]
    frame = frame.reset_index(level=index) if index else frame
    cells = [frame.iloc[:, j].tolist() for j in range(frame.shape[1])]
    names = [str(name) for name in frame.columns]
    return ColumnTable(path, names, cells, list(range(1, len(frame) + 1)))


def write_rows(path: Path, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Write rows of numbers and text."""
    import pandas as pd

    with atomic_write(path) as temporary:
        frame = pd.DataFrame(list(rows), columns=list(names))
        frame.to_parquet(temporary, engine="pyarrow", index=False)


def read_table(path: Path, options: ReadOptions) -> ParquetTable:
    """Read a Parquet file as a table."""
    import pandas as pd

    frame = _read_frame(path)
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
        found = ", ".join(sorted({str(dtype) for dtype in frame.dtypes}))
        raise ValueError(
            f"{str(path)!r} has no numeric column (found: {found or 'none'})"
        )
    others = sorted({*range(len(names))} - {*used})
    text = [j for j in others if j not in kept]
    return ParquetTable(
        values=frame_values(frame.iloc[:, used]), columns=[names[j] for j in used],
        unused_columns=[names[j] for j in others],
        n_missing_in_text=int(frame.iloc[:, text].isna().to_numpy().sum()),
        frame=frame, column_indices=used,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ParquetTable(TableFile):
    """A Parquet table with all its columns."""

    frame: Any  # the whole table as a pandas frame
    column_indices: list[int]  # the columns of the frame that make ``values``

    def write(
        self, path: Path, numbers: Array, *, replace_observed: bool = False
    ) -> None:
        """Write the table with its missing, or all, numbers replaced."""
        frame = self.frame.copy()
        for j, position in enumerate(self.column_indices):
            filled = np.isnan(self.values[:, j]) | replace_observed
            filled &= ~np.isnan(numbers[:, j])
            if filled.any():
                # Columns of whole numbers become floats; float32 stays float32.
                small = str(frame.dtypes.iloc[position]).lower() == "float32"
                column = self.values[:, j].astype(np.float32 if small else np.float64)
                column[filled] = numbers[filled, j]
                frame.isetitem(position, column)
        with atomic_write(path) as temporary:
            frame.to_parquet(temporary, engine="pyarrow")
