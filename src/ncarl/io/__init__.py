"""Rows of matrices from files and other containers, and back into files.

`open_rows` opens anything that holds rows as a `RowSource`, which can be iterated over
in chunks any number of times; `open_sink` writes rows to a new file; `read_table` reads
a whole table, which can be written back with its missing numbers filled in.

To read in this order: ``base`` (sources, sinks, prefetching, rows in memory and of
Dask), ``files`` (atomic writes, archives), ``tables`` (the registry of formats and what
they share), then one module for each format, for reading and writing: ``csv``,
``parquet``, ``numpy`` (NPY, NPZ and Matrix Market), ``zarr``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, cast

import numpy as np

from ncarl.io.base import (
    MemoryRows,
    RowSource,
    Sink,
    SinkSpec,
    block_rows,
    dask_rows,
    is_block,
    library_of,
    map_rows,
    prefetch,
)
from ncarl.io.files import resolve_output
from ncarl.io.tables import (
    FORMATS,
    Format,
    ReadOptions,
    TableFile,
    find_format,
    read_table,
    supported_suffixes,
)
from ncarl.io.zarr import is_zarr_folder, zarr_rows
from ncarl.validation import check_integer

__all__ = [
    "FORMATS",
    "ReadOptions",
    "RowSource",
    "Sink",
    "TableFile",
    "map_rows",
    "open_rows",
    "open_sink",
    "prefetch",
    "read_table",
]

SUPPORTED_INPUTS = (
    f"a path ({', '.join(supported_suffixes('open_rows'))}, a folder of Parquet "
    "files), a Zarr or Dask array, a list of dask.delayed blocks, an array with NaN "
    "for missing entries, masked array, scipy.sparse matrix, pandas or polars frame, a "
    "list of such blocks of rows, another iterable that can be iterated repeatedly, "
    "or a function that returns an iterator over them"
)


def open_rows(
    X: Any,
    *,
    columns: Sequence[str] | None = None,
    rows_per_chunk: int | None = None,
) -> RowSource:
    """Open a file or container as a source of rows, read in chunks in every pass.

    Parameters
    ----------
    X : path, array, frame, iterable, callable or RowSource
        A file: ``.npy``; ``.npz`` with a CSR matrix of scipy.sparse.save_npz or one
        array; ``.parquet`` or a folder of such files; ``.csv`` or ``.tsv``, also with
        ``.gz``; ``.zarr``. A Zarr or Dask array, a list of dask.delayed blocks. A
        matrix in memory. A list of blocks of rows, another iterable of them that
        can be iterated repeatedly, or a function without arguments that returns an
        iterator over them. A source is returned as it is.

        The first line of a CSV or TSV file names the columns if one of its cells is a
        word, if its numbers are quoted and those of the next line are not, or if it is
        a run of whole numbers, such as years, unlike the values below. If this is
        wrong, put a line with names above it; ``names`` of the source is None if there
        is no header.
    columns : sequence of str, optional
        Which columns of a Parquet, CSV or TSV file to read, in this order; by default
        all, which must hold numbers.
    rows_per_chunk : int, optional
        Rows in a chunk. By default half as many as there are columns, but 1 to 32
        million numbers (8 to 256 MB) of a dense matrix; of a sparse one 0.1 to 4
        million stored entries; and blocks as they come. A chunk of a Zarr array is at
        least as high as one of its own.

    Returns
    -------
    RowSource
        NaN, nulls and entries that are not stored are missing; infinite values raise
        an error when they are read.

    Examples
    --------
    >>> import numpy as np
    >>> from ncarl.io import open_rows
    >>> blocks = [np.array([[1.0, np.nan]]), np.array([[3.0, 4.0], [np.nan, 6.0]])]
    >>> rows = open_rows(blocks)
    >>> rows.n_rows, rows.n_columns
    (3, 2)
    >>> [chunk.n_observed for chunk in rows]
    [1, 3]
    """
    if rows_per_chunk is not None:
        hint = "; leave it out for the default size"
        rows_per_chunk = check_integer(
            "rows_per_chunk", rows_per_chunk, low=1, hint=hint
        )
    if isinstance(X, RowSource):
        if columns is not None or rows_per_chunk is not None:
            raise ValueError(
                "columns and rows_per_chunk are chosen where a source is opened, and "
                f"{type(X).__name__} is open; leave them out here"
            )
        return X
    if isinstance(X, str | os.PathLike):
        path = Path(X)
        format_ = find_source_format(path)
        if format_ is None:
            raise ValueError(
                f"X must be {SUPPORTED_INPUTS}; got a path that ends in "
                f"{path.suffix or 'nothing'!r}: {str(path)!r}"
            )
        if columns is not None and not format_.has_names:
            raise ValueError(
                "columns needs a file with names (.parquet, .csv or .tsv), got "
                f"{path.name!r}"
            )
        source = format_.load().open_rows(path, columns, rows_per_chunk)
    elif columns is not None:
        raise ValueError(
            "columns must be left out unless X is a Parquet, CSV or TSV file; choose "
            "the columns before"
        )
    else:
        source = _open_object(X, rows_per_chunk)
    if source.n_columns == 0 or source.n_rows == 0:
        raise ValueError(
            "X must have at least one row and one column, got shape "
            f"({source.n_rows}, {source.n_columns})"
        )
    return cast(RowSource, source)


def find_source_format(path: Path) -> Format | None:
    """Format of a file, or of a folder: a Zarr array, or Parquet files."""
    format_ = find_format(path, "open_rows")
    if path.is_dir() and not (format_ and format_.is_folder):
        suffix = ".zarr" if is_zarr_folder(path) else ".parquet"
        return find_format(Path(suffix), "open_rows")
    return format_


def _open_object(X: Any, rows_per_chunk: int | None) -> RowSource:
    if is_block(X):
        return MemoryRows.from_matrix(X, rows_per_chunk)
    if library_of(X) == "zarr" and hasattr(X, "shape"):
        return zarr_rows(X, rows_per_chunk)
    first = X[0] if isinstance(X, list | tuple) and X else X
    if hasattr(first, "__dask_graph__") and hasattr(first, "compute"):
        return dask_rows(X, rows_per_chunk)
    if getattr(X, "ndim", None) == 2 and hasattr(X, "__getitem__"):
        return MemoryRows.from_matrix(X, rows_per_chunk)
    if first is not X and isinstance(first, list | tuple):
        return MemoryRows.from_matrix(np.asarray(X, np.float64), rows_per_chunk)
    if hasattr(X, "ndim") or not (hasattr(X, "__iter__") or callable(X)):
        axes = f" of {X.ndim} axes" if hasattr(X, "ndim") else ""
        raise TypeError(f"X must be {SUPPORTED_INPUTS}; got {type(X).__name__}{axes}")
    return block_rows(X, rows_per_chunk)


def open_sink(
    path: str | os.PathLike[str],
    *,
    n_columns: int,
    names: Sequence[str] | None = None,
    dtype: Any = np.float64,
    n_rows: int | None = None,
) -> AbstractContextManager[Sink]:
    """Open a new file as a context manager whose ``write(rows)`` appends rows.

    The file appears when the block succeeds. If the block raises, or the disk is full,
    the file that was there before stays, and nothing else is left.

    Parameters
    ----------
    path : path
        The file; its suffix says how it is written: ``.npy``, ``.zarr``, ``.parquet``,
        ``.csv`` or ``.tsv``, the last two also with ``.gz``.
    n_columns : int
        Number of columns.
    names : sequence of str, optional
        Their names. Without them a Parquet file names its columns 0, 1, ... and a CSV
        file has no header. NPY files have no names; Zarr arrays have an attribute
        ``names``.
    dtype : dtype
        float32 or float64. CSV files hold as many digits as it takes to read the
        same numbers back.
    n_rows : int, optional
        Number of rows, if known in advance; writing another number is an error.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from ncarl.io import open_sink
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "filled.npy"
    ...     with open_sink(path, n_columns=2) as sink:
    ...         sink.write(np.zeros((3, 2)))
    ...         sink.write(np.ones((1, 2)))
    ...     np.load(path).shape
    (4, 2)
    """
    target = Path(path)
    spec = SinkSpec(
        check_integer("n_columns", n_columns, low=1),
        None if names is None else tuple(map(str, names)),
        np.dtype(dtype),
        None if n_rows is None else check_integer("n_rows", n_rows, low=0),
    )
    format_ = find_format(target, "open_sink")
    if format_ is None:
        raise ValueError(
            f"path must end in one of {', '.join(supported_suffixes('open_sink'))}, "
            f"got {str(path)!r}"
        )
    resolve_output(target, folder=format_.is_folder)
    return cast(AbstractContextManager[Sink], format_.load().open_sink(target, spec))
