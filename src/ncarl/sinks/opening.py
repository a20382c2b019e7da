"""Open a file that rows are written to."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from ncarl.sinks.npy import npy_sink
from ncarl.sinks.protocol import Sink, Table, checked_table
from ncarl.sources.optional import library

KINDS = (".npy", ".zarr", ".parquet", ".pq", ".csv", ".tsv", ".csv.gz", ".tsv.gz")


def open_sink(
    path: str | os.PathLike[str],
    *,
    n_columns: int,
    names: Sequence[str] | None = None,
    dtype: Any = np.float64,
    n_rows: int | None = None,
) -> AbstractContextManager[Sink]:
    """A context manager whose ``write(rows)`` adds rows to a new file.

    The file takes its place when the block succeeds. If the block raises, or the disk
    is full, what stood there stays, and nothing else is left.

    Parameters
    ----------
    path : path
        The file; its ending says how it is written: ``.npy``, ``.zarr``, ``.parquet``,
        ``.csv`` or ``.tsv``, the last two also with ``.gz``.
    n_columns : int
        Number of columns.
    names : sequence of str, optional
        Their names. Without them a Parquet file names its columns 0, 1, ... and a CSV
        file has no header. NPY files have no names; Zarr arrays have an attribute
        ``names``.
    dtype : dtype
        float32 or float64. CSV files hold every digit that tells a number from its
        neighbours.
    n_rows : int, optional
        Number of rows, if it is known; another number is then an error.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from ncarl.sinks import open_sink
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "filled.npy"
    ...     with open_sink(path, n_columns=2) as sink:
    ...         sink.write(np.zeros((3, 2)))
    ...         sink.write(np.ones((1, 2)))
    ...     np.load(path).shape
    (4, 2)
    """
    place = Path(path)
    table = checked_table(n_columns, names, dtype, n_rows)
    kind = next((kind for kind in KINDS if place.name.lower().endswith(kind)), None)
    if kind is None:
        raise ValueError(
            f"path must end in one of {', '.join(KINDS)}, got {str(path)!r}"
        )
    if not place.absolute().parent.is_dir():
        raise FileNotFoundError(
            f"path: the folder {str(place.parent)!r} does not exist; make it"
        )
    if kind != ".zarr" and place.is_dir():
        raise IsADirectoryError(
            f"path {str(path)!r} is a folder; name a file in it, or remove it"
        )
    return _opened(kind, place, table)


def _opened(kind: str, path: Path, table: Table) -> AbstractContextManager[Sink]:
    """The sink of a kind; its library is loaded, or found missing, now."""
    if kind == ".npy":
        return npy_sink(path, table)
    if kind == ".zarr":
        library("zarr", "Zarr arrays", "zarr")
        from ncarl.sinks.zarr_sink import refuse_other_folders, zarr_sink

        refuse_other_folders(path)
        return zarr_sink(path, table)
    if kind in (".parquet", ".pq"):
        library("pyarrow", "Parquet files", "cli")
        _refuse_double_names(table)
        from ncarl.sinks.parquet import parquet_sink

        return parquet_sink(path, table)
    library("pyarrow", "CSV files", "cli")
    from ncarl.sinks.delimited import delimited_sink

    return delimited_sink(path, table)


def _refuse_double_names(table: Table) -> None:
    """Raise if two columns have one name."""
    double = [name for name, count in Counter(table.labels).items() if count > 1]
    if double:
        raise ValueError(
            f"names must differ in a Parquet file, got {double[0]!r} more than once"
        )
