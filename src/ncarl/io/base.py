"""Sources and sinks of rows: protocols, shared helpers, and sources without a file.

A `RowSource` gives the observed entries of a matrix in chunks of rows, afresh in every
pass; a `Sink` takes dense rows in order. `MemoryRows`, `BlockRows` and `DaskRows` are
the sources that need no file.
"""

from __future__ import annotations

import importlib
import math
import mmap
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import Condition, Thread
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
from scipy import sparse

from ncarl.core.types import Array
from ncarl.observations import Observations

T = TypeVar("T")

#: Every chunk costs a sum of n x n numbers, however few its rows: a chunk of a dense
#: matrix has at least this share of n * n numbers, one of a sparse matrix this share of
#: n * n entries.
DENSE_SHARE, SPARSE_SHARE = 0.5, 0.05
#: Fewest and most numbers in a chunk of a dense matrix.
DENSE_CHUNK_BOUNDS = (1_000_000, 32_000_000)
#: Fewest and most stored entries in a chunk of a sparse matrix.
SPARSE_CHUNK_BOUNDS = (100_000, 4_000_000)


@runtime_checkable
class RowSource(Protocol):
    """Rows of an incomplete matrix, which can be iterated over any number of times.

    Only a few of the rows are in memory at any time.
    """

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        ...

    @property
    def n_rows(self) -> int | None:
        """Number of rows; None if it is not known before a pass."""
        ...

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the columns; None if they have none."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """Float type of results: float32 or float64."""
        ...

    def __iter__(self) -> Iterator[Observations]:
        """Chunks of rows in order, afresh each time."""
        ...

    def chunk_loaders(self) -> Sequence[Callable[[], Observations]] | None:
        """Functions that load the same chunks; they can be pickled and called anywhere.

        None if rows can only be read in order.
        """
        ...


def resolve_rows_per_chunk(rows_per_chunk: int | None, n_columns: int) -> int:
    """Rows in a chunk of a dense matrix.

    Examples
    --------
    >>> resolve_rows_per_chunk(10, 500)
    10
    >>> resolve_rows_per_chunk(None, 500), resolve_rows_per_chunk(None, 40000)
    (2000, 800)
    """
    if rows_per_chunk is not None:
        return rows_per_chunk
    numbers = int(np.clip(DENSE_SHARE * n_columns**2, *DENSE_CHUNK_BOUNDS))
    return max(1, numbers // max(1, n_columns))


def check_rows_per_chunk(rows_per_chunk: Any) -> int | None:
    """Check ``rows_per_chunk``: a whole number of at least 1, or None."""
    if rows_per_chunk is None:
        return None
    whole = isinstance(rows_per_chunk, int | np.integer) and not isinstance(
        rows_per_chunk, bool
    )
    if not whole or rows_per_chunk < 1:
        raise ValueError(
            "rows_per_chunk must be a whole number of at least 1, or None for the "
            f"usual size, got {rows_per_chunk!r}"
        )
    return int(rows_per_chunk)


def max_entries_per_chunk(n_columns: int) -> int:
    """Maximal number of stored entries in a chunk of a sparse matrix.

    Examples
    --------
    >>> max_entries_per_chunk(500), max_entries_per_chunk(3000)
    (100000, 450000)
    """
    return int(np.clip(SPARSE_SHARE * n_columns**2, *SPARSE_CHUNK_BOUNDS))


def row_ranges(n_rows: int, rows_per_chunk: int) -> list[tuple[int, int]]:
    """First row and end of each chunk of ``rows_per_chunk`` rows.

    Examples
    --------
    >>> row_ranges(5, 2)
    [(0, 2), (2, 4), (4, 5)]
    """
    return [
        (first, min(n_rows, first + rows_per_chunk))
        for first in range(0, n_rows, rows_per_chunk)
    ]


def entry_ranges(indptr: Any, max_entries: int) -> list[tuple[int, int]]:
    """First row and end of each chunk of at most ``max_entries`` stored entries.

    A row counts as one entry more, so that empty rows do not pile up; a row with too
    many entries makes a chunk of its own.

    Examples
    --------
    >>> entry_ranges([0, 2, 4, 9, 9], max_entries=6)
    [(0, 2), (2, 3), (3, 4)]
    """
    counted = np.asarray(indptr) + np.arange(len(indptr))
    ranges, first = list[tuple[int, int]](), 0
    while first < len(counted) - 1:
        end = np.searchsorted(counted, counted[first] + max_entries, side="right")
        last = max(first + 1, int(end) - 1)
        ranges.append((first, last))
        first = last
    return ranges


def result_dtype(*dtypes: np.dtype[Any]) -> np.dtype[Any]:
    """Float type of results: float32 if no data type is larger, else float64."""
    small = all(d.kind == "f" and d.itemsize <= 4 for d in dtypes) and dtypes
    return np.dtype(np.float32 if small else np.float64)


def check_real_dtype(dtype: np.dtype[Any], where: str) -> None:
    """Raise unless a dtype holds real numbers or booleans."""
    if dtype.kind not in "fiub":
        raise ValueError(f"{where} must hold real numbers, got dtype {dtype}")


def observations_from_dense(values: Array, first: int, where: str) -> Observations:
    """Observed entries of dense rows, NaN marking missing ones.

    Parameters
    ----------
    values : array of shape (rows, n_columns)
        The rows.
    first : int
        Index of the first of them in the whole matrix, for error messages.
    where : str
        Name of the matrix in error messages.
    """
    if len(values) == 0:
        return empty_observations(values.shape[1])
    return check_finite_entries(Observations.from_dense(values), first, where)


def empty_observations(n_columns: int) -> Observations:
    """Observations of a matrix without rows."""
    empty = np.empty(0, np.int32), np.empty(0)
    return Observations(np.zeros(1, np.int64), *empty, (0, n_columns))


def check_finite_entries(
    observed: Observations, first: int, where: str
) -> Observations:
    """Return the entries, or raise an error that names the first infinite one."""
    infinite = np.isinf(observed.values)
    if infinite.any():
        entry = int(np.argmax(infinite))
        row = first + int(np.searchsorted(observed.indptr, entry, side="right")) - 1
        raise ValueError(
            f"{where} must hold finite numbers, with NaN in the gaps, got "
            f"{observed.values[entry]} at row {row}, column "
            f"{int(observed.indices[entry])} (both from 0); put NaN there"
        )
    return observed


@dataclass(frozen=True)
class FileSnapshot:
    """State of a file, or of all files of a folder, when a source was opened."""

    path: Path  # absolute
    state: tuple[int, int, int]  # number of files, bytes in them, latest change in ns

    @classmethod
    def from_path(cls, path: str | os.PathLike[str]) -> FileSnapshot:
        """Record the present state of a file or folder."""
        absolute_path = Path(path).absolute()
        if not absolute_path.exists():
            raise FileNotFoundError(f"there is no {str(path)!r}; check the name")
        return cls(absolute_path, _file_state(absolute_path))

    def __str__(self) -> str:
        return repr(str(self.path))

    @contextmanager
    def ensure_unchanged(self) -> Iterator[Path]:
        """Context of one pass; raises if the files changed before or during it."""
        self._check_unchanged()
        yield self.path
        self._check_unchanged()

    def _check_unchanged(self) -> None:
        now = _file_state(self.path) if self.path.exists() else None
        if now != self.state:
            change = "changed" if now is not None else "went away"
            raise ValueError(
                f"{self} {change} since it was opened as a source of rows, so its "
                "rows would be mixed with those read before; open it anew and start "
                "again, and let nothing write to it meanwhile"
            )


def _file_state(path: Path) -> tuple[int, int, int]:
    """Number of files at a path, bytes in them and time of the latest change in ns."""
    if not path.is_dir():
        stat = path.stat()
        return 1, stat.st_size, stat.st_mtime_ns
    stats = [
        (Path(folder) / name).stat()
        for folder, _, names in os.walk(path)
        for name in names
    ]
    size = sum(stat.st_size for stat in stats)
    return len(stats), size, max((stat.st_mtime_ns for stat in stats), default=0)


def import_optional(name: str, purpose: str, extra: str) -> Any:
    """Import a module, or raise an error that says how to install it.

    Parameters
    ----------
    name : str
        The module.
    purpose : str
        What it is needed for (plural).
    extra : str
        The extra of this package that installs it.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f"{purpose} need {name.split('.')[0]}; install it with pip install "
            f"'ncarl[{extra}]'"
        ) from error


class Sink(Protocol):
    """Receives rows in order."""

    def write(self, rows: Array) -> None:
        """Append rows, an array of shape (k, n_columns)."""
        ...


@dataclass(frozen=True)
class SinkSpec:
    """Shape, column names and dtype of the matrix to be written."""

    n_columns: int
    names: tuple[str, ...] | None
    dtype: np.dtype[Any]  # float32 or float64
    n_rows: int | None  # if it is known in advance

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the columns; their positions from 0 where they have none."""
        return self.names or tuple(str(j) for j in range(self.n_columns))

    def validate_rows(self, rows: Array) -> Array:
        """Convert rows to the dtype of the file, after checking their shape."""
        values = np.asarray(rows)
        if values.ndim != 2 or values.shape[1] != self.n_columns:
            raise ValueError(
                f"rows must have shape (k, {self.n_columns}), got {values.shape}"
            )
        return np.ascontiguousarray(values, dtype=self.dtype)

    def check_row_count(self, written: int) -> None:
        """Raise unless ``written`` is the number of rows announced."""
        if self.n_rows is not None and written != self.n_rows:
            raise ValueError(
                f"n_rows must be the number of rows written, got {self.n_rows}, and "
                f"{written} were written"
            )


def make_sink_spec(
    n_columns: Any, names: Sequence[str] | None, dtype: Any, n_rows: Any
) -> SinkSpec:
    """Check the arguments of `ncarl.io.open_sink` and combine them."""
    for name, size, least in (("n_columns", n_columns, 1), ("n_rows", n_rows, 0)):
        if size is None and name == "n_rows":
            continue
        whole = isinstance(size, int | np.integer) and not isinstance(size, bool)
        if not whole or size < least:
            raise ValueError(
                f"{name} must be a whole number of at least {least}, got {size!r}"
            )
    kind = np.dtype(dtype)
    if kind not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise ValueError(f"dtype must be float32 or float64, got {kind}")
    labels = None if names is None else tuple(str(name) for name in names)
    if labels is not None and len(labels) != n_columns:
        raise ValueError(
            f"names must have one name for each of the {n_columns} columns, got "
            f"{len(labels)}"
        )
    return SinkSpec(
        int(n_columns), labels, kind, None if n_rows is None else int(n_rows)
    )


def prefetch(iterable: Iterable[T], buffer_size: int = 2) -> Generator[T]:
    """Iterate in order while a background thread fetches the next items.

    The thread starts with the first item and ends when the iterator is exhausted,
    raises, or is closed; close it (``contextlib.closing``) if a loop may end early. An
    exception of the iterable is raised here, after the items before it.

    Parameters
    ----------
    iterable : iterable
        Source of the items; only the thread uses its iterator.
    buffer_size : int
        Maximal number of items fetched in advance.

    Examples
    --------
    >>> list(prefetch("abc"))
    ['a', 'b', 'c']
    """
    if (
        isinstance(buffer_size, bool)
        or not isinstance(buffer_size, int)
        or buffer_size < 1
    ):
        raise ValueError(
            f"buffer_size must be a whole number of at least 1, got {buffer_size!r}"
        )
    return _prefetch_items(iterable, buffer_size)


def _prefetch_items(iterable: Iterable[T], buffer_size: int) -> Generator[T]:
    """The generator behind `prefetch`; it stops the thread however it ends."""
    queue: _PrefetchQueue[T] = _PrefetchQueue(buffer_size)
    # A daemon, so that an iterator left open in a global does not keep Python from
    # ending.
    thread = Thread(
        target=queue.produce, args=(iterable,), name="ncarl-prefetch", daemon=True
    )
    try:
        thread.start()
        while (item := queue.get()) is not None:
            yield item.pop()
    finally:
        queue.stop()
        # After Ctrl-C during start() the thread may not be known to run: it cannot be
        # joined then, and ends by itself.
        if thread.is_alive():
            thread.join()


@dataclass
class _PrefetchQueue(Generic[T]):
    """Bounded queue between the thread that fetches items and the one that uses them.

    An item is a list of one element, so that None can mean the end.
    """

    max_items: int
    items: deque[list[T]] = field(default_factory=deque)
    exhausted: bool = False
    stopped: bool = False
    error: BaseException | None = None
    condition: Condition = field(default_factory=Condition)

    def produce(self, iterable: Iterable[T]) -> None:
        """Fetch items until there are no more or `stop` was called."""
        try:
            iterator = iter(iterable)
            try:
                # Room first, then the item: at most ``max_items`` are in memory.
                while (
                    self._wait_for_room()
                    and (item := _next_or_none(iterator)) is not None
                ):
                    self._put(item)
            finally:
                # A generator closes its files in the thread that opened them.
                getattr(iterator, "close", _do_nothing)()
        except BaseException as error:  # raised by get()
            self.error = error
        finally:
            with self.condition:
                self.exhausted = True
                self.condition.notify_all()

    def get(self) -> list[T] | None:
        """Next item; None after the last one."""
        with self.condition:
            self.condition.wait_for(lambda: self.items or self.exhausted)
            if self.items:
                self.condition.notify_all()
                return self.items.popleft()
        if self.error is not None:
            raise self.error
        return None

    def stop(self) -> None:
        """Let the thread end, whatever it waits for, and drop the items."""
        with self.condition:
            self.stopped = True
            self.items.clear()
            self.condition.notify_all()

    def _wait_for_room(self) -> bool:
        """Wait until there is room for an item; False once `stop` was called."""
        with self.condition:
            self.condition.wait_for(
                lambda: self.stopped or len(self.items) < self.max_items
            )
            return not self.stopped

    def _put(self, item: list[T]) -> None:
        with self.condition:
            self.items.append(item)
            self.condition.notify_all()


def _next_or_none(iterator: Iterator[T]) -> list[T] | None:
    """Next element in a list of its own; None after the last one."""
    for item in iterator:
        return [item]
    return None


def _do_nothing() -> Any:
    """Stands in for ``close`` of an iterator without one."""


def library_of(X: Any) -> str:
    """Top-level package that defines the type of ``X``."""
    return type(X).__module__.split(".")[0]


def is_pandas(X: Any) -> bool:
    """Whether ``X`` is a pandas frame (without importing pandas)."""
    return library_of(X) == "pandas" and hasattr(X, "iloc")


def is_polars(X: Any) -> bool:
    """Whether ``X`` is a polars frame (without importing polars)."""
    return library_of(X) == "polars" and hasattr(X, "get_columns")


def is_frame(X: Any) -> bool:
    """Whether ``X`` is a pandas or polars frame with two axes."""
    return (is_pandas(X) and X.ndim == 2) or is_polars(X)


def frame_values(X: Any) -> Array:
    """Values of a frame as floats, NaN where missing; raises for columns of text."""
    if is_polars(X):
        is_numeric = [
            (name, dtype.is_numeric() or str(dtype) == "Boolean")
            for name, dtype in X.schema.items()
        ]
        columns = [
            X[name].cast(float, strict=False) if good else None
            for name, good in is_numeric
        ]
        _check_numeric_columns(
            [(name, X[name].dtype) for name, good in is_numeric if not good]
        )
        arrays = [
            c.fill_null(float("nan")).to_numpy() for c in columns if c is not None
        ]
    else:
        arrays, bad = [], []
        for position in range(X.shape[1]):
            column = X.iloc[:, position]
            try:
                arrays.append(_pandas_column(column))
            except (TypeError, ValueError):
                bad.append((X.columns[position], column.dtype))
        _check_numeric_columns(bad)
    if not arrays:
        return np.empty(X.shape)
    return np.column_stack(arrays)


def _pandas_column(column: Any) -> Array:
    """A pandas column as floats; raises if it does not hold numbers."""
    text = ("category", "str", "string")
    if column.dtype.kind in "mMSUc" or str(column.dtype) in text:
        raise TypeError("not numeric")
    return column.to_numpy(dtype=np.float64, na_value=np.nan)


def _check_numeric_columns(not_numeric: list[tuple[Any, Any]]) -> None:
    """Raise if there are columns that do not hold numbers."""
    if not_numeric:
        listed = ", ".join(f"{name!r} ({dtype})" for name, dtype in not_numeric[:5])
        more = " and more" if len(not_numeric) > 5 else ""
        raise ValueError(
            f"X must hold numbers only; not numeric: {listed}{more}. Drop or encode "
            "these columns, or make them the index."
        )


def dense_values(X: Any) -> Array:
    """Values of a dense container as floats, NaN where missing."""
    if is_frame(X):
        return frame_values(X)
    if isinstance(X, np.ma.MaskedArray):
        return np.ma.filled(X.astype(np.float64), np.nan)
    return np.asarray(X, dtype=np.float64)


def float_dtype(X: Any) -> np.dtype[Any]:
    """Float dtype of results for ``X``: float32 if ``X`` has no larger one."""
    dtype = getattr(X, "dtype", None)
    small = isinstance(dtype, np.dtype) and dtype.kind == "f" and dtype.itemsize <= 4
    return np.dtype(np.float32 if small else np.float64)


def is_block(block: Any) -> bool:
    """Whether ``block`` is a container of rows that can be read directly."""
    if isinstance(block, np.ndarray) or sparse.issparse(block):
        return bool(block.ndim == 2)
    return isinstance(block, Observations) or is_frame(block)


def block_names(block: Any) -> tuple[str, ...] | None:
    """Names of the columns of a frame; None for anything else."""
    return tuple(str(name) for name in block.columns) if is_frame(block) else None


def observations_from_block(block: Any, first: int, where: str) -> Observations:
    """Observed entries of rows in any container.

    Parameters
    ----------
    block : container
        Some rows.
    first : int
        Index of the first of them in the whole matrix, for error messages.
    where : str
        Name of the block in error messages.
    """
    if isinstance(block, Observations):
        return check_finite_entries(block, first, where)
    if is_frame(block):
        return observations_from_dense(dense_values(block), first, where)
    if not sparse.issparse(block) and not isinstance(block, np.ma.MaskedArray):
        block = np.asarray(block)
    check_real_dtype(block.dtype, where)
    if sparse.issparse(block):
        return check_finite_entries(Observations.from_sparse(block), first, where)
    if isinstance(block, np.ma.MaskedArray):
        block = dense_values(block)
    return observations_from_dense(block, first, where)


def slice_rows(block: Any, first: int, last: int) -> Any:
    """Rows ``first`` to ``last - 1`` of a container; sparse ones as `Observations`."""
    if is_pandas(block):
        return block.iloc[first:last]
    if sparse.issparse(block):
        # SciPy would add up duplicate entries of some formats; from_sparse raises.
        block = Observations.from_sparse(block)
    if isinstance(block, Observations):
        return slice_observations(block, first, last)
    return block[first:last]


def slice_observations(observed: Observations, first: int, last: int) -> Observations:
    """Rows ``first`` to ``last - 1``, as views of the entries."""
    lo, hi = int(observed.indptr[first]), int(observed.indptr[last])
    return Observations(
        observed.indptr[first : last + 1] - lo,
        observed.indices[lo:hi],
        observed.values[lo:hi],
        (last - first, observed.shape[1]),
    )


def memory_rows(matrix: Any, rows_per_chunk: int | None = None) -> MemoryRows:
    """Open a matrix in memory as a source of rows.

    Parameters
    ----------
    matrix : container
        Observed entries, a 2-D array, masked array, scipy.sparse matrix, pandas or
        polars frame.
    rows_per_chunk : int, optional
        Rows in a chunk.
    """
    dtype = float_dtype(matrix)
    if sparse.issparse(matrix):
        matrix = Observations.from_sparse(matrix)
    return MemoryRows(matrix, dtype, rows_per_chunk)


@dataclass(frozen=True, eq=False)
class MemoryRows:
    """Rows of a matrix in memory, or of a memory-mapped array."""

    matrix: Any  # Observations, array, masked array, pandas or polars frame
    dtype: np.dtype[Any]
    rows_per_chunk: int | None = None  # None for the default size

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return int(self.matrix.shape[1])

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.matrix.shape[0])

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the columns, if the matrix is a frame."""
        return block_names(self.matrix)

    def _chunk_ranges(self) -> list[tuple[int, int]]:
        """First row and end of each chunk."""
        if self.rows_per_chunk is None and isinstance(self.matrix, Observations):
            return entry_ranges(
                self.matrix.indptr, max_entries_per_chunk(self.n_columns)
            )
        step = resolve_rows_per_chunk(self.rows_per_chunk, self.n_columns)
        return row_ranges(self.n_rows, step)

    def __iter__(self) -> Iterator[Observations]:
        """Chunks of rows in order."""
        for first, last in self._chunk_ranges():
            yield observations_from_block(
                slice_rows(self.matrix, first, last), first, "X"
            )
            _drop_pages(self.matrix)

    def chunk_loaders(self) -> Sequence[Callable[[], Observations]]:
        """Loaders that hold their rows."""
        return [
            partial(
                observations_from_block,
                slice_rows(self.matrix, first, last),
                first,
                "X",
            )
            for first, last in self._chunk_ranges()
        ]


def _drop_pages(matrix: Any) -> None:
    """Release the pages of a memory-mapped file; they are read again when needed."""
    mapped = getattr(matrix, "_mmap", None)
    # Not of a private mapping ("c"), which would lose its changes.
    shared = getattr(matrix, "mode", None) in ("r", "r+")
    if mapped is not None and shared and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)


@dataclass(frozen=True)
class BlockSchema:
    """Columns and float type that all blocks of a source have in common."""

    n_columns: int
    names: tuple[str, ...] | None  # if blocks are frames
    dtype: np.dtype[Any]

    @classmethod
    def from_block(cls, block: Any) -> BlockSchema:
        """Schema of a block; raises if it is not a matrix of rows."""
        if not is_block(block):
            raise TypeError(
                "a block of rows must be a 2-D array (NaN marking the gaps), masked "
                "array, scipy.sparse matrix, pandas or polars frame, got "
                f"{_describe_block(block)}"
            )
        return cls(int(block.shape[1]), block_names(block), float_dtype(block))

    def to_observations(self, block: Any, number: int, first: int = 0) -> Observations:
        """Observed entries of a block, which must have this schema.

        Parameters
        ----------
        block : container
            Some rows.
        number : int
            Index of the block, for error messages.
        first : int
            Index of its first row in the whole matrix, for error messages.
        """
        where = f"block {number} of X"
        try:
            schema = BlockSchema.from_block(block)
        except TypeError as error:
            raise TypeError(f"block {number}: {error}") from None
        if schema.n_columns != self.n_columns:
            raise ValueError(
                f"{where} has {schema.n_columns} columns, block 0 has "
                f"{self.n_columns}; all blocks need the same columns"
            )
        if self.names and schema.names and schema.names != self.names:
            raise ValueError(
                f"{where} has other column names than block 0, or in another order; "
                "choose the same columns of each"
            )
        return observations_from_block(block, first, where)


def _describe_block(block: Any) -> str:
    if isinstance(block, np.ndarray):
        return f"an array of {block.ndim} axes"
    return type(block).__name__


def block_rows(blocks: Any, rows_per_chunk: int | None = None) -> BlockRows:
    """Open an iterable of blocks, or a function that returns one, as a source of rows.

    Parameters
    ----------
    blocks : iterable, or callable without arguments
        Gives, or returns, a new iterator over the blocks each time.
    rows_per_chunk : int, optional
        Split larger blocks into chunks of this many rows.
    """
    iterator = new_iterator(blocks)
    if iterator is blocks or iterator is new_iterator(blocks):
        raise TypeError(
            f"X must give its blocks in every pass, and a {type(blocks).__name__} "
            "gives them once; pass a list, or the function that makes it "
            "(X=make_blocks, without calling it)"
        )
    for block in iterator:
        return BlockRows(blocks, BlockSchema.from_block(block), rows_per_chunk)
    raise ValueError("X must hold at least one block of rows, got none")


@dataclass(frozen=True, eq=False)
class BlockRows:
    """Blocks of an iterable, or of a function that returns an iterator over them."""

    blocks: Any  # gives, or returns, a new iterator over the blocks each time
    schema: BlockSchema  # of the first block
    rows_per_chunk: int | None = None  # larger blocks are split; None keeps them whole

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return self.schema.n_columns

    @property
    def n_rows(self) -> int | None:
        """Number of rows, if the blocks are in a list."""
        if not isinstance(self.blocks, list | tuple):
            return None
        return sum(int(block.shape[0]) for block in self.blocks)

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the columns, if the blocks are frames."""
        return self.schema.names

    @property
    def dtype(self) -> np.dtype[Any]:
        """Float type of results."""
        return self.schema.dtype

    def __iter__(self) -> Iterator[Observations]:
        """Chunks of rows in order; blocks without rows are left out."""
        first, number = 0, -1
        for number, block in enumerate(new_iterator(self.blocks)):
            observed = self.schema.to_observations(block, number, first)
            del block
            yield from self._split_block(observed)
            first += observed.shape[0]
        if number < 0:
            raise ValueError(
                "X gave no block this time; it must give all blocks afresh in every "
                "pass, so pass a list, or a function that makes a new iterator at "
                "each call"
            )

    def _split_block(self, observed: Observations) -> Iterator[Observations]:
        for first, last in self._chunk_ranges(observed):
            yield slice_observations(observed, first, last)

    def _chunk_ranges(self, block: Any) -> list[tuple[int, int]]:
        """First row and end of each chunk of a block."""
        rows = int(block.shape[0])
        return row_ranges(rows, self.rows_per_chunk or max(1, rows))

    def chunk_loaders(self) -> Sequence[Callable[[], Observations]] | None:
        """Loaders that hold their rows; None unless the blocks are in a list."""
        if not isinstance(self.blocks, list | tuple):
            return None
        return [
            partial(
                self.schema.to_observations,
                slice_rows(block, first, last),
                number,
                first,
            )
            for number, block in enumerate(self.blocks)
            for first, last in self._chunk_ranges(block)
        ]


def new_iterator(blocks: Any) -> Iterator[Any]:
    """New iterator over blocks, of an iterable or a function that returns one."""
    iterable = blocks() if callable(blocks) else blocks
    try:
        return iter(iterable)
    except TypeError:
        raise TypeError(
            "the function given as X must return an iterator over blocks of rows, got "
            f"{type(iterable).__name__}"
        ) from None


def dask_rows(what: Any, rows_per_chunk: int | None = None) -> DaskRows:
    """Open a Dask array, or a list of delayed blocks, as a source of rows.

    Parameters
    ----------
    what : dask.array.Array, or list of dask.delayed
        An array of two axes; or blocks of whole rows, the first of which is computed
        to find the number of columns.
    rows_per_chunk : int, optional
        Rows in a chunk of an array; blocks of a list are not split.
    """
    if isinstance(what, list | tuple):
        return _delayed_rows(list(what), rows_per_chunk)
    if not hasattr(what, "rechunk"):
        raise TypeError(
            "X must be a Dask array or a list of dask.delayed blocks, got "
            f"{type(what).__name__}; a Dask frame gives such a list by to_delayed()"
        )
    check_real_dtype(np.dtype(what.dtype), "the Dask array")
    if what.ndim != 2:
        raise ValueError(
            "the Dask array must have two axes, rows and columns, got shape "
            f"{what.shape}"
        )
    if math.isnan(what.shape[1]):
        raise ValueError(
            "the Dask array must know how many columns it has; see compute_chunk_sizes"
        )
    array = _rechunk_rows(what, rows_per_chunk)
    rows = None if math.isnan(array.shape[0]) else int(array.shape[0])
    schema = BlockSchema(int(array.shape[1]), None, result_dtype(np.dtype(array.dtype)))
    return DaskRows(list(array.to_delayed().ravel()), schema, rows)


def _rechunk_rows(array: Any, rows_per_chunk: int | None) -> Any:
    """Rechunk an array into whole rows, at most ``rows_per_chunk`` in a chunk."""
    n_rows_known = not math.isnan(array.shape[0])
    array = array.rechunk({1: -1})
    max_rows = resolve_rows_per_chunk(rows_per_chunk, int(array.shape[1]))
    if rows_per_chunk is not None and not n_rows_known:
        raise ValueError(
            "rows_per_chunk needs an array that knows how many rows it has; call "
            "compute_chunk_sizes() on it, or leave rows_per_chunk out"
        )
    if n_rows_known and (rows_per_chunk is not None or max(array.chunks[0]) > max_rows):
        array = array.rechunk({0: max_rows})
    return array


def _delayed_rows(blocks: list[Any], rows_per_chunk: int | None) -> DaskRows:
    if rows_per_chunk is not None:
        raise ValueError(
            "rows_per_chunk must be left out where X is a list of delayed blocks, "
            "which stay as they are"
        )
    for number, block in enumerate(blocks):
        if not hasattr(block, "__dask_graph__"):
            raise TypeError(
                f"block {number} of X must be delayed like block 0, got "
                f"{type(block).__name__}"
            )
    return DaskRows(blocks, BlockSchema.from_block(blocks[0].compute()))


@dataclass(frozen=True, eq=False)
class DaskRows:
    """Blocks of rows that Dask computes."""

    blocks: list[Any]  # dask.delayed arrays, frames or sparse matrices
    schema: BlockSchema
    n_rows: int | None = None  # if it is known

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return self.schema.n_columns

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the columns, if the blocks are frames."""
        return self.schema.names

    @property
    def dtype(self) -> np.dtype[Any]:
        """Float type of results."""
        return self.schema.dtype

    @property
    def delayed_chunks(self) -> list[Any]:
        """The chunks as dask.delayed objects that compute `Observations`.

        Blocks without rows are included; `__iter__` skips them.
        """
        dask = import_optional("dask", "Dask arrays", "dask")
        read = dask.delayed(self.schema.to_observations, pure=True)
        return [read(block, number) for number, block in enumerate(self.blocks)]

    def __iter__(self) -> Iterator[Observations]:
        """Chunks of rows in order, computed one at a time."""
        for chunk in self.delayed_chunks:
            observed = chunk.compute()
            if observed.shape[0]:
                yield observed

    def chunk_loaders(self) -> None:
        """None: an engine that computes Dask blocks uses `delayed_chunks`."""
        return
