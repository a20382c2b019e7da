"""Open anything that holds rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ncarl.sources.blocks import block_rows, is_block
from ncarl.sources.memory import memory_rows
from ncarl.sources.npy import npy_rows
from ncarl.sources.npz import npz_rows
from ncarl.sources.protocol import RowSource, checked_rows_per_chunk

POSSIBLE = (
    "a path (.npy, .npz, .parquet or .pq, a folder of these, .csv or .tsv, also with "
    ".gz, .zarr), a Zarr or Dask array, a list of dask.delayed blocks, an array with "
    "NaN in its gaps, masked array, scipy.sparse matrix, pandas or polars frame, a "
    "list of such blocks of rows, another object that gives them afresh in every "
    "loop, or a function that returns an iterator over them"
)


def open_rows(
    what: Any,
    *,
    columns: Sequence[str] | None = None,
    rows_per_chunk: int | None = None,
) -> RowSource:
    """A source of rows: something that gives them in chunks, again and again.

    Parameters
    ----------
    what : path, array, frame, iterable, callable or RowSource
        A file: ``.npy``; ``.npz`` with a CSR matrix of scipy.sparse.save_npz or one
        array; ``.parquet`` or a folder of such files; ``.csv`` or ``.tsv``, also with
        ``.gz``; ``.zarr``. A Zarr or Dask array, a list of dask.delayed blocks. A
        matrix in memory. A list of blocks of rows, another object that gives them
        afresh in every loop, or a function without arguments that returns an iterator
        over them. A source is returned as it is.
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
    >>> from ncarl.sources import open_rows
    >>> blocks = [np.array([[1.0, np.nan]]), np.array([[3.0, 4.0], [np.nan, 6.0]])]
    >>> rows = open_rows(blocks)
    >>> rows.n_rows, rows.n_columns
    (3, 2)
    >>> [chunk.n_observed for chunk in rows]
    [1, 3]
    """
    step = checked_rows_per_chunk(rows_per_chunk)
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
    path: Path, columns: Sequence[str] | None, step: int | None
) -> RowSource:
    """The rows in a file or folder."""
    suffix = file_kind(path)
    if suffix in NAMED:
        return _named_reader(suffix)(path, columns, step)
    if suffix not in NAMELESS:
        raise ValueError(
            f"X must be {POSSIBLE}; got a path that ends in {suffix or 'nothing'!r}: "
            f"{str(path)!r}"
        )
    if columns is not None:
        raise ValueError(
            "columns needs a file with names (.parquet, .csv or .tsv), got "
            f"{path.name!r}"
        )
    return NAMELESS[suffix](path, step)


def file_kind(path: Path) -> str:
    """The ending that says how a file is written; that of a folder if it is one.

    Examples
    --------
    >>> file_kind(Path("X.CSV.gz")), file_kind(Path("X.npy"))
    ('.csv', '.npy')
    """
    name = path.name.lower()
    name = name.removesuffix(".gz") if name.endswith(TEXT) else name
    suffix = Path(name).suffix
    if suffix == ".zarr" or not path.is_dir():
        return ".parquet" if suffix == ".pq" else suffix
    marks = ("zarr.json", ".zarray", ".zgroup")
    zarr = any((path / mark).exists() for mark in marks)
    return ".zarr" if zarr else ".parquet"


def _named_reader(suffix: str) -> Callable[..., RowSource]:
    """The function that opens tables of a kind; its library is loaded only now."""
    if suffix == ".parquet":
        from ncarl.sources.parquet import parquet_rows

        return parquet_rows
    from ncarl.sources.delimited import delimited_rows

    return delimited_rows


def _open_zarr(path: Path, step: int | None) -> RowSource:
    """The rows of a Zarr array in a folder."""
    from ncarl.sources.zarr_rows import zarr_path_rows

    return zarr_path_rows(path, step)


def _open_object(what: Any, step: int | None) -> RowSource:
    """The rows of a thing in memory, or of one that gives them."""
    library = type(what).__module__.split(".")[0]
    if is_block(what):
        return memory_rows(what, step)
    if library == "zarr" and hasattr(what, "shape"):
        from ncarl.sources.zarr_rows import zarr_rows

        return zarr_rows(what, step)
    if _is_dask(what):
        from ncarl.sources.dask_rows import dask_rows

        return dask_rows(what, step)
    if getattr(what, "ndim", None) == 2 and hasattr(what, "__getitem__"):
        return memory_rows(what, step)
    if isinstance(what, list | tuple) and what and isinstance(what[0], list | tuple):
        return memory_rows(np.asarray(what, dtype=np.float64), step)
    if hasattr(what, "ndim") or not (hasattr(what, "__iter__") or callable(what)):
        axes = f" of {what.ndim} axes" if hasattr(what, "ndim") else ""
        raise TypeError(f"X must be {POSSIBLE}; got {type(what).__name__}{axes}")
    return block_rows(what, step)


def _is_dask(what: Any) -> bool:
    """Whether something is a Dask array, or a list that begins with a delayed block."""
    first = what[0] if isinstance(what, list | tuple) and what else what
    return hasattr(first, "__dask_graph__") and hasattr(first, "compute")


TEXT = (".csv.gz", ".tsv.gz")
NAMED = (".parquet", ".csv", ".tsv")
NAMELESS: dict[str, Callable[[Path, int | None], RowSource]] = {
    ".npy": npy_rows,
    ".npz": npz_rows,
    ".zarr": _open_zarr,
}
