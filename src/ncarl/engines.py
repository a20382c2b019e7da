"""Where the row work runs. One abstraction: map a function over blocks, in order."""

from __future__ import annotations

import logging
import os
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol, TypeVar, runtime_checkable

from ncarl.core.rows import row_module
from ncarl.core.types import Block
from ncarl.gpu import first_line, gpu_trouble, torch_installed
from ncarl.homes import Home, HostMemory, blas_threads
from ncarl.observed import Observed
from ncarl.sources import RowSource
from ncarl.streams import Streamed, on_prepared, summed

NAMES = ("auto", "threads", "torch", "dask")
CHOICES = "'auto', 'threads', 'torch', 'dask' or an Engine object"

R = TypeVar("R")
log = logging.getLogger("ncarl")


@runtime_checkable
class Engine(Protocol):
    """Runs a function on every block and hands the results back in block order.

    The function comes first, the block is its only positional argument, and what all
    blocks share travels by name, so that an engine can upload or scatter it once.
    """

    @property
    def home(self) -> Home:
        """Where n x n arrays are worked on between two passes over the rows."""
        ...

    def blocks_wanted(self, rows: int, columns: int) -> int | None:
        """Into how many blocks to cut so large a matrix; None for the usual number."""
        ...

    def place(self, blocks: Iterable[Block]) -> Any:
        """Put the blocks where the work will be done."""
        ...

    def stream(self, source: RowSource, prepare: Callable[[Observed], Any]) -> Any:
        """Chunks of a source in the place of blocks, each prepared before its use."""
        ...

    def map(
        self, function: Callable[..., R], blocks: Any, **shared: Any
    ) -> Iterator[R]:
        """``function(block, **shared)`` for every block, in block order."""
        ...

    def total(self, function: Callable[..., R], blocks: Any, **shared: Any) -> R:
        """The sum (by ``+=``) of what `map` gives, added up in a fixed order."""
        ...

    def describe(self) -> str:
        """What the engine is and why it was picked, in one line."""
        ...


def available_cores() -> int:
    """Cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


@cache
def _pool(workers: int) -> ThreadPoolExecutor:
    """Threads that stay up between steps, which can be shorter than a start."""
    return ThreadPoolExecutor(workers, thread_name_prefix="ncarl")


if hasattr(os, "register_at_fork"):
    # A forked child has none of these threads and would wait for them for ever.
    os.register_at_fork(after_in_child=_pool.cache_clear)


@dataclass(frozen=True)
class Threads:
    """Threads of this process, with BLAS held to one thread inside each.

    Parameters
    ----------
    n_jobs : int, optional
        Threads; by default one a core. On a machine that others keep busy fewer are
        faster: threads of BLAS wait for each other at every turn.
    rows : {"auto", "numba", "numpy"}
        Which row kernel to use; "auto" takes Numba where it is installed.
    why : str
        Why it was picked, for `describe`.
    """

    n_jobs: int | None = None
    rows: str = "auto"
    why: str = field(default="", repr=False, compare=False)

    def __post_init__(self) -> None:
        whole = isinstance(self.n_jobs, int) and not isinstance(self.n_jobs, bool)
        if self.n_jobs is not None and not (whole and self.n_jobs >= 1):
            raise ValueError(
                "n_jobs must be a whole number of at least 1, or None for all cores, "
                f"got {self.n_jobs!r}"
            )
        if self.rows not in ("auto", "numba", "numpy"):
            raise ValueError(
                f"rows must be 'auto', 'numba' or 'numpy', got {self.rows!r}"
            )

    @property
    def home(self) -> HostMemory:
        """The memory of this process."""
        return HostMemory(self.n_jobs)

    def blocks_wanted(self, rows: int, columns: int) -> int | None:
        """The usual number."""
        return None

    def place(self, blocks: Iterable[Block]) -> Sequence[Block]:
        """Blocks stay in this process's memory."""
        return list(blocks)

    def stream(self, source: RowSource, prepare: Callable[[Observed], Any]) -> Streamed:
        """Chunks are read again in every pass, ahead of the work."""
        return Streamed(source, prepare)

    def map(
        self, function: Callable[..., R], blocks: Any, **shared: Any
    ) -> Iterator[R]:
        """``function(block, **shared)`` for every block, in block order."""
        row_module(self.rows)  # imported once here, not by all threads at once
        workers = self.n_jobs or available_cores()
        with blas_threads(1):
            if isinstance(blocks, Streamed):
                shared |= {"work": function, "prepare": blocks.prepare}
                with blocks.chunks() as chunks:
                    yield from self._mapped(on_prepared, chunks, workers, shared)
                return
            workers = min(workers, len(blocks))
            yield from self._mapped(function, blocks, workers, shared)

    def total(self, function: Callable[..., R], blocks: Any, **shared: Any) -> R:
        """The sum (by ``+=``) of what `map` gives, in block order."""
        return summed(self.map(function, blocks, **shared))

    def _mapped(
        self,
        function: Callable[..., R],
        blocks: Iterable[Any],
        workers: int,
        shared: dict[str, Any],
    ) -> Iterator[R]:
        """Results in order, by as many threads as there are workers."""
        if workers <= 1:
            for block in blocks:
                yield function(block, kind=self.rows, **shared)
            return
        yield from self._map_in_threads(function, blocks, workers, shared)

    def _map_in_threads(
        self,
        function: Callable[..., R],
        blocks: Iterable[Any],
        workers: int,
        shared: dict[str, Any],
    ) -> Iterator[R]:
        """Keep one block a worker in flight, so that few results wait in memory."""
        pool = _pool(workers)
        waiting: deque[Future[R]] = deque()
        try:
            for block in blocks:
                if len(waiting) > workers:
                    yield waiting.popleft().result()
                waiting.append(pool.submit(function, block, kind=self.rows, **shared))
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
            wait(waiting)

    def describe(self) -> str:
        """What the engine is and why it was picked, in one line."""
        kind = row_module(self.rows).__name__.rsplit("_", 1)[-1]
        hint = "" if kind == "numba" else " (pip install 'ncarl[fast]' for Numba rows)"
        cores = self.n_jobs or available_cores()
        return f"threads: {cores} cores, {kind} rows{hint}{self.why}"


def pick_engine(
    engine: str | Engine, *, given: Any = None, again: bool = False
) -> Engine:
    """The engine that a name stands for.

    "auto" takes a GPU where PyTorch has one that works, and threads elsewhere; workers
    of Dask where that is what the input is ``given`` by. "torch" asks for the GPU;
    where there is none, a warning says so and threads do the work. ``again`` leaves
    out what was said when the fit picked the same engine.

    Examples
    --------
    >>> pick_engine("threads")
    Threads(n_jobs=None, rows='auto')
    """
    if isinstance(engine, str):
        if engine not in NAMES:
            raise ValueError(f"engine must be {CHOICES}, got {engine!r}")
        by_dask = engine == "auto" and _of_dask(given)
        engine = _named("dask" if by_dask else engine, again)
    elif isinstance(engine, type):
        raise TypeError(f"engine must be {CHOICES}, got the class {engine.__name__}")
    elif not isinstance(engine, Engine):
        raise TypeError(f"engine must be {CHOICES}, got {type(engine).__name__}")
    if not again:
        log.info("engine %s", engine.describe())
    return engine


def _named(name: str, again: bool) -> Engine:
    """The engine of that name, or the one that runs in its place."""
    if name == "threads":
        return Threads()
    if name == "dask":
        return _dask()
    trouble = gpu_trouble()
    if trouble is None:
        from ncarl.torch_engine import Torch

        try:
            return Torch(why="; picked for its GPU" if name == "auto" else "")
        except RuntimeError as error:  # it worked before: a forked child, a lost card
            trouble = first_line(error)
    if name == "torch" and not torch_installed():
        raise ImportError(
            "engine='torch' needs PyTorch; install it with pip install 'ncarl[gpu]', "
            "or use engine='threads'"
        )
    if name == "torch" and not again:
        warnings.warn(
            f"engine='torch' runs on threads instead: {trouble} "
            "(engine=ncarl.Torch(device='cpu') runs PyTorch on the processor)",
            UserWarning,
            stacklevel=4,
        )
    return Threads(why=f"; no GPU: {trouble}")


def _of_dask(given: Any) -> bool:
    """Whether the input is a Dask array, delayed blocks, or a source of them."""
    if hasattr(given, "delayed"):
        return True
    first = given[0] if isinstance(given, list | tuple) and given else given
    return type(first).__module__.split(".")[0] == "dask"


def _dask() -> Engine:
    """Workers of Dask, or an error that says what is missing."""
    try:
        from ncarl.dask_engine import Dask
    except ImportError as error:
        raise ImportError(
            "engine='dask' needs Dask; install it with pip install 'ncarl[dask]'"
        ) from error
    return Dask()
