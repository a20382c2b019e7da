"""Rows of matrices from files and other containers, and back into files.

`open_rows` opens anything that holds rows as a `RowSource`, which can be iterated over
in chunks any number of times; `open_sink` writes rows to a new file.

To read in this order: ``base`` (sources, sinks, prefetching, rows in memory and of
Dask), ``files`` (atomic writes, archives), then one module for each format: ``numpy``
(NPY and NPZ), ``tables`` (whole tables for the command line, and what formats with
named columns share), ``csv``, ``parquet``, ``zarr``.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from ncarl.io.base import (
    RowSource,
    Sink,
    SinkSpec,
    block_rows,
    check_rows_per_chunk,
    dask_rows,
    import_optional,
    is_block,
    library_of,
    make_sink_spec,
    memory_rows,
    prefetch,
)
from ncarl.io.numpy import npy_rows, npy_sink, npz_rows
from ncarl.io.zarr import (
    check_replaceable,
    is_zarr_folder,
    zarr_path_rows,
    zarr_rows,
    zarr_sink,
)

__all__ = ["RowSource", "Sink", "open_rows", "open_sink", "prefetch"]

SUPPORTED_INPUTS = (
    "a path (.npy, .npz, .parquet or .pq, a folder of these, .csv or .tsv, also with "
    ".gz, .zarr), a Zarr or Dask array, a list of dask.delayed blocks, an array with "
    "NaN in its gaps, masked array, scipy.sparse matrix, pandas or polars frame, a "
    "list of such blocks of rows, another object that gives them afresh in every "
    "loop, or a function that returns an iterator over them"
)
#: Suffixes of the formats with named columns, and readers of the others.
TABLE_SUFFIXES = (".parquet", ".csv", ".tsv")
ARRAY_READERS: dict[str, Callable[[Path, int | None], RowSource]] = {
    ".npy": npy_rows,
    ".npz": npz_rows,
    ".zarr": zarr_path_rows,
}
GZIP_TEXT_SUFFIXES = (".csv.gz", ".tsv.gz")
SINK_SUFFIXES = (
    *(".npy", ".zarr", ".parquet", ".pq"),
    *(".csv", ".tsv", *GZIP_TEXT_SUFFIXES),
)


def open_rows(
    what: Any,
    *,
    columns: Sequence[str] | None = None,
    rows_per_chunk: int | None = None,
) -> RowSource:
    """Open a file or container as a source of rows, read in chunks in every pass.

    Parameters
    ----------
    what : path, array, frame, iterable, callable or RowSource
        A file: ``.npy``; ``.npz`` with a CSR matrix of scipy.sparse.save_npz or one
        array; ``.parquet`` or a folder of such files; ``.csv`` or ``.tsv``, also with
        ``.gz``; ``.zarr``. A Zarr or Dask array, a list of dask.delayed blocks. A
        matrix in memory. A list of blocks of rows, another object that gives them
        afresh in every loop, or a function without arguments that returns an iterator
        over them. A source is returned as it is.

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
        NaN, nulls and entries that are not stored are missing; infinite values are
        refused when they are met.

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
    step = check_rows_per_chunk(rows_per_chunk)
    if isinstance(what, RowSource):
        if columns is not None or step is not None:
            raise ValueError(
                "columns and rows_per_chunk are chosen where a source is opened, and "
                f"{type(what).__name__} is open; leave them out here"
            )
        return what
    if isinstance(what, str | os.PathLike):
        source = _open_path(Path(what), columns, step)
    elif columns is not None:
        raise ValueError(
            "columns must be left out unless X is a Parquet, CSV or TSV file; choose "
            "the columns before"
        )
    else:
        source = _open_object(what, step)
    if source.n_columns == 0 or source.n_rows == 0:
        raise ValueError(
            "X must have at least one row and one column, got shape "
            f"({source.n_rows}, {source.n_columns})"
        )
    return source


def _open_path(
    path: Path, columns: Sequence[str] | None, rows_per_chunk: int | None
) -> RowSource:
    suffix = format_suffix(path)
    if suffix in TABLE_SUFFIXES:
        return _table_reader(suffix)(path, columns, rows_per_chunk)
    if suffix not in ARRAY_READERS:
        raise ValueError(
            f"X must be {SUPPORTED_INPUTS}; got a path that ends in "
            f"{suffix or 'nothing'!r}: {str(path)!r}"
        )
    if columns is not None:
        raise ValueError(
            "columns needs a file with names (.parquet, .csv or .tsv), got "
            f"{path.name!r}"
        )
    return ARRAY_READERS[suffix](path, rows_per_chunk)


def format_suffix(path: Path) -> str:
    """Suffix that says how a file or folder is written, without ``.gz``.

    Examples
    --------
    >>> format_suffix(Path("X.CSV.gz")), format_suffix(Path("X.npy"))
    ('.csv', '.npy')
    """
    name = path.name.lower()
    name = name.removesuffix(".gz") if name.endswith(GZIP_TEXT_SUFFIXES) else name
    suffix = Path(name).suffix
    if suffix == ".zarr" or not path.is_dir():
        return ".parquet" if suffix == ".pq" else suffix
    return ".zarr" if is_zarr_folder(path) else ".parquet"


def _table_reader(suffix: str) -> Callable[..., RowSource]:
    """Reader of a format with named columns, imported when it is first needed."""
    if suffix == ".parquet":
        from ncarl.io.parquet import parquet_rows

        return parquet_rows
    from ncarl.io.csv import delimited_rows

    return delimited_rows


def _open_object(what: Any, rows_per_chunk: int | None) -> RowSource:
    """Open a container in memory, or an object that gives blocks of rows."""
    if is_block(what):
        return memory_rows(what, rows_per_chunk)
    if library_of(what) == "zarr" and hasattr(what, "shape"):
        return zarr_rows(what, rows_per_chunk)
    if _is_dask(what):
        return dask_rows(what, rows_per_chunk)
    if getattr(what, "ndim", None) == 2 and hasattr(what, "__getitem__"):
        return memory_rows(what, rows_per_chunk)
    if isinstance(what, list | tuple) and what and isinstance(what[0], list | tuple):
        return memory_rows(np.asarray(what, dtype=np.float64), rows_per_chunk)
    if hasattr(what, "ndim") or not (hasattr(what, "__iter__") or callable(what)):
        axes = f" of {what.ndim} axes" if hasattr(what, "ndim") else ""
        raise TypeError(
            f"X must be {SUPPORTED_INPUTS}; got {type(what).__name__}{axes}"
        )
    return block_rows(what, rows_per_chunk)


def _is_dask(what: Any) -> bool:
    """Whether ``what`` is a Dask array, or a list that begins with a delayed block."""
    first = what[0] if isinstance(what, list | tuple) and what else what
    return hasattr(first, "__dask_graph__") and hasattr(first, "compute")


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
    spec = make_sink_spec(n_columns, names, dtype, n_rows)
    suffix = next(
        (suffix for suffix in SINK_SUFFIXES if target.name.lower().endswith(suffix)),
        None,
    )
    if suffix is None:
        raise ValueError(
            f"path must end in one of {', '.join(SINK_SUFFIXES)}, got {str(path)!r}"
        )
    if not target.absolute().parent.is_dir():
        raise FileNotFoundError(
            f"path: the folder {str(target.parent)!r} does not exist; make it"
        )
    if suffix != ".zarr" and target.is_dir():
        raise IsADirectoryError(
            f"path {str(path)!r} is a folder; name a file in it, or remove it"
        )
    return _make_sink(suffix, target, spec)


def _make_sink(suffix: str, path: Path, spec: SinkSpec) -> AbstractContextManager[Sink]:
    """Sink of a format; raises if the package it needs is not installed."""
    if suffix == ".npy":
        return npy_sink(path, spec)
    if suffix == ".zarr":
        import_optional("zarr", "Zarr arrays", "zarr")
        check_replaceable(path)
        return zarr_sink(path, spec)
    if suffix in (".parquet", ".pq"):
        import_optional("pyarrow", "Parquet files", "cli")
        _check_unique_names(spec)
        from ncarl.io.parquet import parquet_sink

        return parquet_sink(path, spec)
    import_optional("pyarrow", "CSV files", "cli")
    from ncarl.io.csv import delimited_sink

    return delimited_sink(path, spec)


def _check_unique_names(spec: SinkSpec) -> None:
    repeated = [name for name, count in Counter(spec.labels).items() if count > 1]
    if repeated:
        raise ValueError(
            f"names must differ in a Parquet file, got {repeated[0]!r} more than once"
        )
