"""Sources and sinks of rows: what they share, and sources without a file.

A `RowSource` gives the observed entries of a matrix in chunks of rows, afresh in every
pass; a `Sink` takes dense rows in order. `MemoryRows`, `BlockRows` and `DaskRows` are
the sources that need no file; `map_rows` and `watch_rows` wrap another source.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import mmap
import os
import queue
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any, Protocol, Self, TypeVar, runtime_checkable

import numpy as np
from scipy import sparse

from ncarl.core.types import Array
from ncarl.io.files import check_rereadable
from ncarl.observations import Observations, check_sparse
from ncarl.text import join_names

T = TypeVar("T")
FLOAT64: np.dtype[Any] = np.dtype(np.float64)

#: Every chunk costs a sum of n x n numbers, however few its rows: a chunk of a dense
#: matrix has at least this share of n * n numbers, one of a sparse matrix this share of
#: n * n entries.
DENSE_SHARE, SPARSE_SHARE = 0.5, 0.05
#: Fewest and most numbers in a chunk of a dense matrix.
DENSE_CHUNK_BOUNDS = (1_000_000, 32_000_000)
#: Fewest and most stored entries in a chunk of a sparse matrix.
SPARSE_CHUNK_BOUNDS = (100_000, 4_000_000)
#: Files with the memory limit of a container, by cgroup version 2 and 1.
CGROUP_LIMIT_FILES = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


@runtime_checkable
class RowSource(Protocol):
    """Rows of an incomplete matrix, which can be iterated over any number of times.

    Only a few of the rows are in memory at any time. An object with these attributes
    and methods is a source; those of this package inherit from `BaseRows`.
    """

    @property
    def n_columns(self) -> int:
        """Number of columns."""

    @property
    def n_rows(self) -> int | None:
        """Number of rows; None if it is not known before a pass."""

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the columns; None if they have none."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Float type of results: float32 or float64."""

    def __iter__(self) -> Iterator[Observations]:
        """Chunks of rows in order, afresh each time."""

    def chunk_loaders(self) -> Sequence[Callable[[], Observations]] | None:
        """Functions that load the same chunks; they can be pickled and called anywhere.

        None if rows can only be read in order.
        """


@dataclass(frozen=True, eq=False, kw_only=True)
class BaseRows(ABC):
    """What the sources of this package have in common."""

    n_columns: int
    n_rows: int | None = None
    names: tuple[str, ...] | None = None
    dtype: np.dtype[Any] = FLOAT64
    file: FileSnapshot | None = None  # what is read, and must not change

    @abstractmethod
    def __iter__(self) -> Iterator[Observations]: ...

    def chunk_loaders(self) -> Sequence[Callable[[], Observations]] | None:
        """None, as chunks can only be read in order."""
        return None

    def _unchanged(self) -> contextlib.AbstractContextManager[Any]:
        """Context of one pass, during which the file must not change."""
        return self.file.ensure_unchanged() if self.file else contextlib.nullcontext()


@dataclass(frozen=True, eq=False, kw_only=True)
class SpanRows(BaseRows):
    """A source whose chunks can be read in any order."""

    spans: Sequence[Any]  # arguments of `_load` for each chunk

    @abstractmethod
    def _load(self, *span: Any) -> Observations: ...

    def __iter__(self) -> Iterator[Observations]:
        with self._unchanged():
            for span in self.spans:
                yield self._load(*span)

    def chunk_loaders(self) -> Sequence[Callable[[], Observations]] | None:
        """Loaders of the spans."""
        bare = replace(self, spans=())
        return [partial(bare._load_alone, *span) for span in self.spans]

    def _load_alone(self, *span: Any) -> Observations:
        with self._unchanged():
            return self._load(*span)


def map_rows(
    source: RowSource, function: Callable[[Observations], Observations]
) -> RowSource:
    """The source with a function applied to each of its chunks.

    Parameters
    ----------
    source : RowSource
        The rows.
    function : callable
        Maps the entries of some rows to those of as many rows. Other processes load
        chunks only if it can be pickled.

    Examples
    --------
    >>> import numpy as np
    >>> from ncarl.io import map_rows, open_rows
    >>> rows = open_rows(np.array([[1.0, -1.0], [-1.0, 2.0]]))
    >>> (known,) = map_rows(rows, lambda part: part.drop_entries(part.values < 0))
    >>> known.values
    array([1., 2.])
    """
    if isinstance(source, DaskRows):
        dask = import_optional("dask", "Dask arrays", "dask")
        apply = dask.delayed(function, pure=True)
        return replace(source, delayed_chunks=[*map(apply, source.delayed_chunks)])
    columns = _column_fields(source)
    return MappedRows(**columns, n_rows=source.n_rows, source=source, function=function)


def watch_rows(
    source: RowSource,
    watch: Callable[[Iterable[Observations]], Iterator[Observations]],
    n_rows: int,
) -> RowSource:
    """The source, which has ``n_rows`` rows, with a generator around each pass.

    ``watch`` gets the chunks and yields them again; those that are loaded one by one do
    not pass through it.
    """
    columns = _column_fields(source)
    return WatchedRows(**columns, n_rows=n_rows, source=source, watch=watch)


def _column_fields(source: RowSource) -> dict[str, Any]:
    return {name: getattr(source, name) for name in ("n_columns", "names", "dtype")}


@dataclass(frozen=True, eq=False, kw_only=True)
class MappedRows(BaseRows):
    """Rows of another source with a function applied to each chunk."""

    source: RowSource
    function: Callable[[Observations], Observations]

    def __iter__(self) -> Iterator[Observations]:
        return map(self.function, self.source)

    def chunk_loaders(self) -> Sequence[Callable[[], Observations]] | None:
        """Loaders that apply the function."""
        loaders = self.source.chunk_loaders()
        return loaders and [partial(_load_mapped, self.function, f) for f in loaders]


def _load_mapped(
    function: Callable[[Observations], Observations], load: Callable[[], Observations]
) -> Observations:
    return function(load())


@dataclass(frozen=True, eq=False, kw_only=True)
class WatchedRows(BaseRows):
    """Rows of another source with a generator around each pass."""

    source: Any
    watch: Callable[[Iterable[Observations]], Iterator[Observations]]

    def __iter__(self) -> Iterator[Observations]:
        return self.watch(self.source)

    def chunk_loaders(self) -> Sequence[Callable[[], Observations]] | None:
        """Loaders of the source."""
        return self.source.chunk_loaders()  # type: ignore[no-any-return]

    @property
    def delayed_chunks(self) -> list[Any]:
        """Chunks that Dask computes, if the source has them."""
        return self.source.delayed_chunks  # type: ignore[no-any-return]


def resolve_rows_per_chunk(rows_per_chunk: int | None, n_columns: int) -> int:
    """Rows in a chunk of a dense matrix; None for the default size."""
    if rows_per_chunk is not None:
        return rows_per_chunk
    numbers = int(np.clip(DENSE_SHARE * n_columns**2, *DENSE_CHUNK_BOUNDS))
    return max(1, numbers // max(1, n_columns))


def max_entries_per_chunk(n_columns: int) -> int:
    """Maximal number of stored entries in a chunk of a sparse matrix."""
    return int(np.clip(SPARSE_SHARE * n_columns**2, *SPARSE_CHUNK_BOUNDS))


def row_ranges(n_rows: int, step: int) -> list[tuple[int, int]]:
    """First row and end of each chunk of ``step`` rows."""
    return [(first, min(n_rows, first + step)) for first in range(0, n_rows, step)]


def dense_spans(
    n_rows: int, n_columns: int, rows_per_chunk: int | None
) -> list[tuple[int, int]]:
    """First row and end of each chunk of a dense matrix."""
    return row_ranges(n_rows, resolve_rows_per_chunk(rows_per_chunk, n_columns))


def sparse_spans(
    indptr: Array, n_columns: int, rows_per_chunk: int | None
) -> list[tuple[int, int]]:
    """First row and end of each chunk of a sparse matrix.

    By default chunks have a number of stored entries. A row counts as one entry more,
    so that empty rows do not pile up; one with too many makes a chunk of its own.
    """
    if rows_per_chunk is not None:
        return row_ranges(len(indptr) - 1, rows_per_chunk)
    max_entries = max_entries_per_chunk(n_columns)
    counted = indptr + np.arange(len(indptr))
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


def float_dtype(X: Any) -> np.dtype[Any]:
    """Float type of results for a container; float64 if it has no NumPy dtype."""
    dtype = getattr(X, "dtype", None)
    return result_dtype(dtype) if isinstance(dtype, np.dtype) else FLOAT64


def check_matrix(shape: Sequence[int], dtype: np.dtype[Any], where: str) -> None:
    """Raise unless an array is a matrix of real numbers or booleans."""
    if dtype.kind not in "fiub":
        raise ValueError(f"{where} must hold real numbers, got dtype {dtype}")
    if len(shape) != 2:
        raise ValueError(
            f"{where} must have 2 dimensions (rows, columns), got shape {tuple(shape)}"
        )


def observations_from_dense(values: Array, first: int, where: str) -> Observations:
    """Observed entries of dense rows, NaN marking missing ones.

    Errors call the matrix ``where``, and its row ``first`` is the first of ``values``.
    """
    return check_finite_entries(Observations.from_dense(values), first, where)


def check_finite_entries(
    observed: Observations, first: int, where: str
) -> Observations:
    """Return the entries, or raise an error that names the first infinite one."""
    infinite = np.isinf(observed.values)
    if infinite.any():
        entry = int(np.argmax(infinite))
        row = first + int(np.searchsorted(observed.indptr, entry, side="right")) - 1
        raise ValueError(
            f"{where} must hold finite numbers, with NaN for missing entries, got "
            f"{observed.values[entry]} at row {row}, column "
            f"{int(observed.indices[entry])} (both from 0); put NaN there"
        )
    return observed


def check_chunk(chunk: Observations, n_columns: int) -> Observations:
    """A chunk of a source of the user in standard form; raises if it is invalid."""
    if not isinstance(chunk, Observations) or chunk.shape[1] != n_columns:
        got = getattr(chunk, "shape", type(chunk).__name__)
        raise ValueError(
            f"X must give Observations of {n_columns} columns, got {got}; make them "
            "with Observations.from_dense or Observations.from_sparse"
        )
    return Observations.from_sparse(chunk)


def host_memory() -> int | None:
    """Bytes of memory of this machine, or of its container; None if unknown."""
    # psutil is not used: it is no core dependency and ignores the limit of a container.
    sizes = []
    for path in CGROUP_LIMIT_FILES:
        with contextlib.suppress(OSError):
            text = path.read_text().strip()
            if text.isdecimal():  # not "max"
                sizes.append(int(text))
    if hasattr(os, "sysconf"):  # not on Windows
        sizes.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(sizes, default=None)


def check_unpacked_size(path: Path, size: int) -> None:
    """Raise if the content of a compressed file takes too much memory.

    A few kilobytes can hold gigabytes of zeros, which must not be unpacked first.
    """
    limit = 0.25 * (host_memory() or math.inf)
    if size > limit:
        raise MemoryError(
            f"{str(path)!r} takes more than {limit / 1e9:.3g} GB when it is unpacked, "
            "a quarter of the memory here; read it in chunks of rows (ncarl complete "
            "--stream, ncarl.open_rows), for which arrays must be NPY files"
        )


@dataclass(frozen=True)
class FileSnapshot:
    """State of a file, or of all files of a folder, when a source was opened."""

    path: Path  # absolute
    #: Number of files, bytes in them, and the latest changes: a program may put back
    #: the time stamp of the content (mtime), but not that of the file (ctime).
    state: tuple[int, int, int, int]

    @classmethod
    def from_path(cls, path: str | os.PathLike[str]) -> FileSnapshot:
        """Record the present state of a file or folder."""
        absolute = Path(path).absolute()
        if not absolute.exists():
            raise FileNotFoundError(f"{str(path)!r} does not exist; check the name")
        check_rereadable(path)
        return cls(absolute, _file_state(absolute))

    def __str__(self) -> str:
        return repr(str(self.path))

    @contextlib.contextmanager
    def ensure_unchanged(self) -> Iterator[None]:
        """Context of one pass; raises if the files changed before or during it."""
        self._check_unchanged()
        yield
        self._check_unchanged()

    def _check_unchanged(self) -> None:
        now = _file_state(self.path) if self.path.exists() else None
        if now != self.state:
            change = "changed" if now is not None else "went away"
            raise ValueError(
                f"{self} {change} since it was opened as a source of rows, so its "
                "rows would be mixed with those read before; open it again and start "
                "again, and do not write to it during a fit"
            )


def _file_state(path: Path) -> tuple[int, int, int, int]:
    paths = [path]
    if path.is_dir():
        paths = [Path(folder) / n for folder, _, names in os.walk(path) for n in names]
    stats = [path.stat() for path in paths]
    content = max((stat.st_mtime_ns for stat in stats), default=0)
    latest = max((stat.st_ctime_ns for stat in stats), default=0)
    return len(stats), sum(stat.st_size for stat in stats), content, latest


def import_optional(name: str, purpose: str, extra: str) -> Any:
    """Import a module, or raise an error that names the extra that installs it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f"{purpose} need {name.split('.')[0]}; install it with pip install "
            f"'ncarl[{extra}]'"
        ) from error


@dataclass(frozen=True)
class SinkSpec:
    """Shape, column names and dtype of the matrix to be written."""

    n_columns: int
    names: tuple[str, ...] | None
    dtype: np.dtype[Any]  # float32 or float64
    n_rows: int | None  # if it is known in advance

    def __post_init__(self) -> None:
        if self.dtype not in (np.dtype(np.float32), FLOAT64):
            raise ValueError(f"dtype must be float32 or float64, got {self.dtype}")
        if self.names is not None and len(self.names) != self.n_columns:
            raise ValueError(
                f"names must have one name for each of the {self.n_columns} columns, "
                f"got {len(self.names)}"
            )


@dataclass
class Sink:
    """Receives rows in order, and passes them to a function that stores them.

    The function gets blocks of ``block_rows`` rows, or rows as they come if that is
    None, of the right shape and dtype, C-contiguous.
    """

    spec: SinkSpec
    append: Callable[[Array], object]
    block_rows: int | None = None
    n_written: int = field(default=0, init=False)
    buffer: list[Array] = field(default_factory=list, init=False)

    def write(self, rows: Array) -> None:
        """Append rows, an array of shape (k, n_columns)."""
        values = np.asarray(rows)
        if values.ndim != 2 or values.shape[1] != self.spec.n_columns:
            raise ValueError(
                f"rows must have shape (k, {self.spec.n_columns}), got {values.shape}"
            )
        values = np.ascontiguousarray(values, dtype=self.spec.dtype)
        self.n_written += len(values)
        if self.block_rows is None:
            self.append(values)
            return
        # The caller may reuse its array before the block is full.
        shared = np.may_share_memory(values, rows)
        self.buffer.append(values.copy() if shared else values)
        n_buffered = sum(map(len, self.buffer))
        if n_buffered >= self.block_rows:
            self._flush(n_buffered - n_buffered % self.block_rows)

    def finish(self) -> None:
        """Write what is buffered; raises if ``n_rows`` was another number."""
        if self.buffer:
            self._flush(sum(map(len, self.buffer)))
        if self.spec.n_rows not in (None, self.n_written):
            raise ValueError(
                "n_rows must be the number of rows written, got "
                f"{self.spec.n_rows}, and {self.n_written} were written"
            )

    def _flush(self, count: int) -> None:
        rows = np.concatenate(self.buffer)
        self.buffer = [rows[count:].copy()]
        self.append(rows[:count])


def prefetch(iterable: Iterable[T]) -> Generator[T]:
    """Iterate in order while a background thread fetches the next two items.

    The thread starts with the first item and ends when the iterator is exhausted,
    raises, or is closed; close it (``contextlib.closing``) if a loop may end early. An
    exception of the iterable is raised here, after the items before it. Only the thread
    uses the iterator.

    Examples
    --------
    >>> list(prefetch("abc"))
    ['a', 'b', 'c']
    """
    # One item waits here and one in the thread, which cannot put it here yet.
    items: queue.Queue[list[T] | BaseException | None] = queue.Queue(maxsize=1)
    stopped = Event()

    def produce() -> None:
        # Each item as a list of one element, then None or the exception.
        ending = None
        try:
            iterator = iter(iterable)
            try:
                for item in iterator:
                    items.put([item])
                    del item  # so that the caller alone decides how long it lives
                    if stopped.is_set():
                        return
            finally:
                # A generator closes its files in the thread that opened them.
                if hasattr(iterator, "close"):
                    iterator.close()
        except BaseException as error:
            ending = error
        items.put(ending)

    # A daemon, so that an iterator left open in a global does not keep Python from
    # ending.
    thread = Thread(target=produce, name="ncarl-prefetch", daemon=True)
    try:
        thread.start()
        while isinstance(found := items.get(), list):
            yield found.pop()
        if found is not None:
            raise found
    finally:
        stopped.set()
        with contextlib.suppress(queue.Empty):
            while True:
                items.get_nowait()
        # After Ctrl-C during start() the thread may not be known to run: it cannot be
        # joined then, and ends by itself.
        if thread.is_alive():
            thread.join()


def library_of(X: Any) -> str:
    """Top-level package that defines the type of ``X``."""
    return type(X).__module__.split(".")[0]


def is_pandas(X: Any) -> bool:
    """Whether ``X`` is a frame or series of pandas, which is not imported."""
    return library_of(X) == "pandas" and hasattr(X, "iloc")


def is_polars(X: Any) -> bool:
    """Whether ``X`` is a frame of polars, which is not imported."""
    return library_of(X) == "polars" and hasattr(X, "get_columns")


def is_frame(X: Any) -> bool:
    """Whether ``X`` is a pandas or polars frame with two axes."""
    return (is_pandas(X) and X.ndim == 2) or is_polars(X)


def frame_values(X: Any) -> Array:
    """Values of a frame as floats, NaN where missing; raises for columns of text."""
    arrays, not_numeric = list[Array](), list[str]()
    for position, name in enumerate(X.columns):
        column = X[name] if is_polars(X) else X.iloc[:, position]
        try:
            arrays.append(_column_values(column))
        except (TypeError, ValueError):
            not_numeric.append(f"{name!r} ({column.dtype})")
    if not_numeric:
        raise ValueError(
            f"X must hold numbers only; not numeric: {join_names(not_numeric, 5)}. "
            "Drop or encode these columns, or make them the index."
        )
    return np.column_stack(arrays) if arrays else np.empty(X.shape)


def _column_values(column: Any) -> Array:
    dtype = column.dtype
    if library_of(column) == "polars":
        if not dtype.is_numeric() and str(dtype) != "Boolean":
            raise TypeError("not numeric")
        return column.cast(float, strict=False).fill_null(float("nan")).to_numpy()
    if dtype.kind in "mMSUc" or str(dtype) in ("category", "str", "string"):
        raise TypeError("not numeric")
    return column.to_numpy(dtype=np.float64, na_value=np.nan)


def dense_values(X: Any) -> Array:
    """Values of a dense container as floats, NaN where missing."""
    if is_frame(X):
        return frame_values(X)
    if isinstance(X, np.ma.MaskedArray):
        return np.ma.filled(X.astype(np.float64), np.nan)
    return np.asarray(X, dtype=np.float64)


def conversion_hint(X: Any, error: Exception) -> str:
    """How to make a table of something that is none, as an ``error`` of NumPy says."""
    if sparse.issparse(X):
        return ".toarray() puts 0 where nothing is stored; put NaN if missing"
    if type(X).__name__ == "LazyFrame":
        return ".collect() makes a frame of it"
    if isinstance(X, str | os.PathLike):
        return "read the file first, for example with pandas.read_csv"
    if isinstance(X, RowSource):
        return "read the table into memory, for example with pandas"
    return f"pandas.DataFrame makes a frame of columns or records ({error})"


def is_block(block: Any) -> bool:
    """Whether ``block`` is a container of rows that can be read directly."""
    if isinstance(block, np.ndarray) or sparse.issparse(block):
        return bool(block.ndim == 2)
    return isinstance(block, Observations) or is_frame(block)


def block_names(block: Any) -> tuple[str, ...] | None:
    """Names of the columns of a frame; None for anything else."""
    return tuple(str(name) for name in block.columns) if is_frame(block) else None


def observations_from_block(block: Any, first: int, where: str) -> Observations:
    """Observed entries of rows in any container; see `observations_from_dense`."""
    if isinstance(block, Observations):
        return check_finite_entries(block, first, where)
    if is_frame(block):
        return observations_from_dense(dense_values(block), first, where)
    if not sparse.issparse(block) and not isinstance(block, np.ma.MaskedArray):
        block = np.asarray(block)
    check_matrix(block.shape, block.dtype, where)
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
    if not isinstance(block, Observations):
        return block[first:last]
    lo, hi = int(block.indptr[first]), int(block.indptr[last])
    return Observations(
        block.indptr[first : last + 1] - lo,
        block.indices[lo:hi],
        block.values[lo:hi],
        (last - first, block.shape[1]),
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class MemoryRows(SpanRows):
    """Rows of a matrix in memory, or of a memory-mapped array."""

    matrix: Any  # `Observations`, or any container but a sparse matrix

    @classmethod
    def from_matrix(cls, matrix: Any, rows_per_chunk: int | None = None) -> Self:
        """Open a matrix in any container."""
        dtype = float_dtype(matrix)
        if sparse.issparse(matrix):
            matrix = Observations.from_sparse(matrix)
        elif isinstance(matrix, Observations):
            check_sparse(matrix)
        m, n = (int(size) for size in matrix.shape)
        if isinstance(matrix, Observations):
            spans = sparse_spans(matrix.indptr, n, rows_per_chunk)
        else:
            spans = dense_spans(m, n, rows_per_chunk)
        return cls(
            n_columns=n, n_rows=m, names=block_names(matrix), dtype=dtype, spans=spans,
            matrix=matrix,
        )  # fmt: skip

    def _load(self, first: int, last: int) -> Observations:
        rows = slice_rows(self.matrix, first, last)
        observed = observations_from_block(rows, first, "X")
        _drop_pages(self.matrix)
        return observed

    def chunk_loaders(self) -> Sequence[Callable[[], Observations]]:
        """Loaders that hold their rows."""
        read, X = observations_from_block, self.matrix
        return [
            partial(read, slice_rows(X, *span), span[0], "X") for span in self.spans
        ]


def _drop_pages(matrix: Any) -> None:
    """Release the pages of a memory-mapped file; they are read again when needed."""
    mapped = getattr(matrix, "_mmap", None)
    # Not of a private mapping ("c"), which would lose its changes.
    shared = getattr(matrix, "mode", None) in ("r", "r+")
    if mapped is not None and shared and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)


def _block_schema(block: Any) -> dict[str, Any]:
    """Columns and float type of a block; raises if it is not a matrix of rows."""
    if not is_block(block):
        kind = type(block).__name__
        if isinstance(block, np.ndarray):
            kind = f"an array of {block.ndim} axes"
        raise TypeError(
            "a block of rows must be a 2-D array (NaN for missing entries), masked "
            f"array, scipy.sparse matrix, pandas or polars frame, got {kind}"
        )
    n_columns, names = int(block.shape[1]), block_names(block)
    return {"n_columns": n_columns, "names": names, "dtype": float_dtype(block)}


def _read_block(
    block: Any, number: int, first: int, n_columns: int, names: Sequence[str] | None
) -> Observations:
    """Observed entries of block ``number``, whose first row is ``first`` in errors."""
    try:
        schema = _block_schema(block)
    except TypeError as error:
        raise TypeError(f"block {number}: {error}") from None
    if schema["n_columns"] != n_columns:
        raise ValueError(
            f"block {number} of X has {schema['n_columns']} columns, block 0 has "
            f"{n_columns}; all blocks need the same columns"
        )
    if names and schema["names"] and schema["names"] != names:
        raise ValueError(
            f"block {number} of X has other column names than block 0, or in another "
            "order; choose the same columns of each"
        )
    if isinstance(block, Observations):
        block = Observations.from_sparse(block)
    return observations_from_block(block, first, f"block {number} of X")


def block_rows(blocks: Any, rows_per_chunk: int | None = None) -> BlockRows:
    """Open an iterable of blocks, or a function that returns one, as a source of rows.

    It must give a new iterator each time. Blocks of more than ``rows_per_chunk`` rows
    are split.
    """
    iterator = _iter_blocks(blocks)
    if iterator is blocks or iterator is _iter_blocks(blocks):
        raise TypeError(
            f"X must give its blocks in every pass, and a {type(blocks).__name__} "
            "gives them once; pass a list, or the function that makes it "
            "(X=make_blocks, without calling it)"
        )
    for block in iterator:
        schema = _block_schema(block)
        if isinstance(blocks, list | tuple):
            schema["n_rows"] = sum(int(block.shape[0]) for block in blocks)
        return BlockRows(**schema, blocks=blocks, rows_per_chunk=rows_per_chunk)
    raise ValueError("X must hold at least one block of rows, got none")


@dataclass(frozen=True, eq=False, kw_only=True)
class BlockRows(BaseRows):
    """Blocks of an iterable, or of a function that returns an iterator over them."""

    blocks: Any  # gives, or returns, a new iterator over the blocks each time
    rows_per_chunk: int | None = None  # larger blocks are split; None keeps them whole

    def __iter__(self) -> Iterator[Observations]:
        first, number = 0, -1
        for number, block in enumerate(_iter_blocks(self.blocks)):
            observed = _read_block(block, number, first, self.n_columns, self.names)
            del block
            for span in self._split(observed):
                yield slice_rows(observed, *span)
            first += observed.shape[0]
        if number < 0:
            raise ValueError(
                "X yielded no block in this pass; it must yield all blocks in every "
                "pass, so pass a list, or a function that makes a new iterator at "
                "each call"
            )

    def _split(self, block: Any) -> list[tuple[int, int]]:
        rows = int(block.shape[0])
        return row_ranges(rows, self.rows_per_chunk or max(1, rows))

    def chunk_loaders(self) -> Sequence[Callable[[], Observations]] | None:
        """Loaders that hold their rows; None unless the blocks are in a list."""
        if not isinstance(self.blocks, list | tuple):
            return None
        columns = self.n_columns, self.names
        return [
            partial(_read_block, slice_rows(block, *span), number, span[0], *columns)
            for number, block in enumerate(self.blocks)
            for span in self._split(block)
        ]


def _iter_blocks(blocks: Any) -> Iterator[Any]:
    iterable = blocks() if callable(blocks) else blocks
    try:
        return iter(iterable)
    except TypeError:
        raise TypeError(
            "the function given as X must return an iterator over blocks of rows, got "
            f"{type(iterable).__name__}"
        ) from None


@dataclass(frozen=True, eq=False, kw_only=True)
class DaskRows(BaseRows):
    """Chunks of rows that Dask computes."""

    #: dask.delayed objects that compute `Observations`, which may be without rows.
    delayed_chunks: list[Any]

    def __iter__(self) -> Iterator[Observations]:
        for chunk in self.delayed_chunks:
            observed = chunk.compute()
            if observed.shape[0]:
                yield observed


def dask_rows(what: Any, rows_per_chunk: int | None = None) -> DaskRows:
    """Open a Dask array, or a list of delayed blocks, as a source of rows.

    Blocks of a list are whole rows and are not split; the first of them is computed to
    find the number of columns.
    """
    dask = import_optional("dask", "Dask arrays", "dask")
    if isinstance(what, list | tuple):
        blocks = list(what)
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
        schema = _block_schema(blocks[0].compute())
    else:
        array = _rechunk_rows(what, rows_per_chunk)
        blocks = list(array.to_delayed().ravel())
        m, n = (None if math.isnan(size) else int(size) for size in array.shape)
        dtype = result_dtype(np.dtype(array.dtype))
        schema = {"n_columns": n, "n_rows": m, "names": None, "dtype": dtype}
    read = dask.delayed(_read_block, pure=True)
    columns = schema["n_columns"], schema["names"]
    chunks = [read(block, number, 0, *columns) for number, block in enumerate(blocks)]
    return DaskRows(**schema, delayed_chunks=chunks)


def _rechunk_rows(array: Any, rows_per_chunk: int | None) -> Any:
    if not hasattr(array, "rechunk"):
        raise TypeError(
            "X must be a Dask array or a list of dask.delayed blocks, got "
            f"{type(array).__name__}; a Dask frame gives such a list by to_delayed()"
        )
    check_matrix(array.shape, np.dtype(array.dtype), "the Dask array")
    if math.isnan(array.shape[1]):
        raise ValueError(
            "the Dask array must know how many columns it has; see compute_chunk_sizes"
        )
    array = array.rechunk({1: -1})
    max_rows = resolve_rows_per_chunk(rows_per_chunk, int(array.shape[1]))
    unknown = math.isnan(array.shape[0])
    if unknown and rows_per_chunk is not None:
        raise ValueError(
            "rows_per_chunk needs an array that knows how many rows it has; call "
            "compute_chunk_sizes() on it, or leave rows_per_chunk out"
        )
    small = rows_per_chunk is None and (unknown or max(array.chunks[0]) <= max_rows)
    return array if small else array.rechunk({0: max_rows})
