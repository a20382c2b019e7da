"""Rows of Parquet files: one, or all those in a folder."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ncarl.exceptions import BrokenFileError
from ncarl.observed import Observed
from ncarl.sources.files import Stamp
from ncarl.sources.optional import library
from ncarl.sources.protocol import observed_rows, result_dtype, rows_in_chunk
from ncarl.sources.tables import arrow_values, listed, rebatched, wanted_names

#: Rows of a group have to be read in turn. Loaders would read each group so many times
#: on average; where that is more, there are none.
MOST_READS = 4
#: Bytes of a column that are read at once.
BUFFER = 1 << 16


@dataclass(frozen=True)
class Groups:
    """Some row groups of a file that are read together.

    Attributes
    ----------
    file : int
        Which file.
    groups : tuple of int
        Which of its row groups.
    first, rows : int
        Number of the first row in the whole table, and how many there are.
    """

    file: int
    groups: tuple[int, ...]
    first: int
    rows: int


@dataclass(frozen=True)
class ParquetRows:
    """Rows of one or several Parquet files with the same columns.

    Attributes
    ----------
    place : Stamp
        The file or folder.
    files : tuple of Path
        The files.
    groups : tuple of Groups
        Their row groups, small ones put together.
    names : tuple of str
        Names of the columns that are read.
    dtype : dtype
        Float type of results.
    step : int
        Rows in a chunk; chunks end where row groups end, too.
    """

    place: Stamp
    files: tuple[Path, ...]
    groups: tuple[Groups, ...]
    names: tuple[str, ...]
    dtype: np.dtype[Any]
    step: int

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return sum(group.rows for group in self.groups)

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return len(self.names)

    def __iter__(self) -> Iterator[Observed]:
        """Chunks of rows in order."""
        with self.place.held():
            for group in self.groups:
                yield from self._chunks(group)

    def _chunks(self, group: Groups) -> Iterator[Observed]:
        """The chunks of some row groups."""
        path, first = self.files[group.file], group.first
        with opened(path) as table:
            batches = table.iter_batches(
                batch_size=min(self.step, group.rows),
                row_groups=group.groups,
                columns=list(self.names),
                use_threads=False,
            )
            arrays = (arrow_values(batch, self.names) for batch in batches)
            for values in rebatched(arrays, self.step):
                yield observed_rows(values, first, str(self.place))
                first += len(values)

    def parts(self) -> Sequence[Callable[[], Observed]] | None:
        """Loaders of the chunks; None if row groups are much larger than those."""
        counts = [-(-group.rows // self.step) for group in self.groups]
        reads = sum(count * (count + 1) / 2 for count in counts)
        if reads > MOST_READS * len(counts):
            return None
        return [
            partial(self.load, group, number)
            for group, count in zip(self.groups, counts, strict=True)
            for number in range(count)
        ]

    def load(self, group: Groups, number: int) -> Observed:
        """One of the chunks of some row groups."""
        with self.place.held():
            for place, chunk in enumerate(self._chunks(group)):
                if place == number:
                    return chunk
        raise BrokenFileError(f"{self.place} has lost some of its rows")


def opened(path: Path) -> Any:
    """A Parquet file, open for reading piece by piece."""
    pq = library("pyarrow.parquet", "Parquet files", "cli")
    try:
        # Whole columns of a row group would be read at once without a buffer.
        return pq.ParquetFile(path, pre_buffer=False, buffer_size=BUFFER)
    except ValueError as error:
        raise BrokenFileError(f"{str(path)!r} is no Parquet file: {error}") from error


def parquet_rows(
    path: str | os.PathLike[str],
    columns: Sequence[str] | None = None,
    rows_per_chunk: int | None = None,
) -> ParquetRows:
    """A source of the rows of a Parquet file, or of all such files in a folder.

    Parameters
    ----------
    path : path
        The file, or a folder, whose files are read in the order of their names.
    columns : sequence of str, optional
        Which columns to read; by default all but the index of a pandas frame.
    rows_per_chunk : int, optional
        Most rows in a chunk; chunks end where large row groups end, too.
    """
    place = Stamp.of(path)
    files = _files(place.path)
    with opened(files[0]) as table:
        names = wanted_names(_names(table.schema_arrow, columns), columns, str(place))
    step = rows_in_chunk(rows_per_chunk, len(names))
    groups, dtypes, first = list[Groups](), set[np.dtype[Any]](), 0
    for number, file in enumerate(files):
        with opened(file) as table:
            dtypes |= _dtypes(table.schema_arrow, names, file)
            for together, rows in _together(table.metadata, step):
                groups.append(Groups(number, together, first, rows))
                first += rows
    return ParquetRows(place, files, tuple(groups), names, result_dtype(*dtypes), step)


def _files(path: Path) -> tuple[Path, ...]:
    """The Parquet files at a path."""
    if not path.is_dir():
        return (path,)
    endings = (".parquet", ".pq")
    files = sorted(p for p in path.iterdir() if p.suffix.lower() in endings)
    if not files:
        raise ValueError(
            f"the folder {str(path)!r} must hold Parquet files (.parquet, .pq) or a "
            "Zarr array, got neither"
        )
    return tuple(files)


def _names(schema: Any, columns: Sequence[str] | None) -> list[str]:
    """Names in a file; the index of a pandas frame counts only if it is asked for."""
    if columns is not None:
        return list(schema.names)
    about = schema.pandas_metadata or {}
    index = [name for name in about.get("index_columns", ()) if isinstance(name, str)]
    return [name for name in schema.names if name not in index]


def _dtypes(schema: Any, names: Sequence[str], path: Path) -> set[np.dtype[Any]]:
    """Types of the columns as far as results depend on them, if they are numbers."""
    import pyarrow as pa

    counts = Counter(schema.names)
    absent = [name for name in names if counts[name] != 1]
    if absent:
        raise ValueError(
            f"{str(path)!r} must have the columns of the other files, each once; "
            f"missing or twice: {listed(absent)}"
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


def _together(metadata: Any, step: int) -> list[tuple[tuple[int, ...], int]]:
    """Row groups that make a chunk together, and their rows."""
    found = list[tuple[tuple[int, ...], int]]()
    for number in range(metadata.num_row_groups):
        rows = metadata.row_group(number).num_rows
        if found and found[-1][1] + rows <= step:
            found[-1] = ((*found[-1][0], number), found[-1][1] + rows)
        elif rows:
            found.append(((number,), rows))
    return found
