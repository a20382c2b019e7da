"""Where the row work runs. One abstraction: map a function over blocks, in order."""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, TypeVar, runtime_checkable

from threadpoolctl import OpenBLASController, ThreadpoolController

from ncarl.core.rows import row_module
from ncarl.core.types import Block

#: From here on n x n work is worth all cores.
MANY_COLUMNS = 600

R = TypeVar("R")
log = logging.getLogger("ncarl")


@runtime_checkable
class Engine(Protocol):
    """Runs a function on every block and hands the results back in block order.

    The function comes first, the block is its only positional argument, and what all
    blocks share travels by name, so that an engine can upload or scatter it once.
    """

    def place(self, blocks: Iterable[Block]) -> Sequence[Any]:
        """Put the blocks where the work will be done."""
        ...

    def map(
        self, function: Callable[..., R], blocks: Sequence[Any], **shared: Any
    ) -> Iterator[R]:
        """``function(block, **shared)`` for every block, in block order."""
        ...

    def dense_work(self, n: int) -> AbstractContextManager[Any]:
        """A context for n x n work between two passes over the rows."""
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


@cache
def _blas() -> ThreadpoolController:
    """The BLAS libraries of this process; looking for them takes a while."""
    return ThreadpoolController()


def _release_blas() -> None:
    """Let any thread change the limits on OpenBLAS.

    Since threadpoolctl 3.8 only the thread that set a limit may change it, while the
    fit that enters last may run in another thread than the one that leaves last.
    """
    release = getattr(OpenBLASController, "clear_controlling_thread", None)
    if release is not None:
        release(force=True)


class _SharedLimit:
    """The limit on BLAS threads, which belongs to the process, not to one fit.

    The first fit to ask sets it and the last one to leave takes it off; were each to
    restore what it found, fits that overlap would leave the limit of one another.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users = 0
        self.limiter: Any = None

    def enter(self, threads: int) -> None:
        with self.lock:
            if self.users == 0:
                _release_blas()
                self.limiter = _blas().limit(limits=threads, user_api="blas")
            self.users += 1

    def leave(self) -> None:
        with self.lock:
            self.users -= 1
            if self.users == 0:
                _release_blas()
                self.limiter.restore_original_limits()
                _release_blas()


_limit = _SharedLimit()


@contextmanager
def blas_threads(threads: int) -> Iterator[None]:
    """BLAS held to so many threads until the last of all such contexts ends."""
    _limit.enter(threads)
    try:
        yield
    finally:
        _limit.leave()


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
    """

    n_jobs: int | None = None
    rows: str = "auto"

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

    def place(self, blocks: Iterable[Block]) -> Sequence[Block]:
        """Blocks stay in this process's memory."""
        return list(blocks)

    def map(
        self, function: Callable[..., R], blocks: Sequence[Block], **shared: Any
    ) -> Iterator[R]:
        """``function(block, **shared)`` for every block, in block order."""
        row_module(self.rows)  # imported once here, not by all threads at once
        workers = min(self.n_jobs or available_cores(), len(blocks))
        with blas_threads(1):
            if workers <= 1:
                for block in blocks:
                    yield function(block, kind=self.rows, **shared)
                return
            yield from self._map_in_threads(function, blocks, workers, shared)

    def _map_in_threads(
        self,
        function: Callable[..., R],
        blocks: Sequence[Block],
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

    def dense_work(self, n: int) -> AbstractContextManager[Any]:
        """BLAS on all cores where that pays.

        Helper threads of BLAS go on spinning for a while after each call, beside the
        row work; below this size they cost more than they give.
        """
        if n >= MANY_COLUMNS and self.n_jobs is None:
            return nullcontext()
        return blas_threads(1 if n < MANY_COLUMNS else self.n_jobs or 1)

    def describe(self) -> str:
        """What the engine is and why it was picked, in one line."""
        kind = row_module(self.rows).__name__.rsplit("_", 1)[-1]
        why = "" if kind == "numba" else " (pip install 'ncarl[fast]' for Numba rows)"
        return f"threads: {self.n_jobs or available_cores()} cores, {kind} rows{why}"


def pick_engine(engine: str | Engine) -> Engine:
    """The engine that a name stands for.

    Examples
    --------
    >>> pick_engine("threads")
    Threads(n_jobs=None, rows='auto')
    """
    if isinstance(engine, str):
        if engine not in ("auto", "threads"):
            raise ValueError(
                "engine must be 'auto', 'threads' or an object with place, map, "
                f"dense_work and describe, got {engine!r}"
            )
        engine = Threads()
    elif not isinstance(engine, Engine):
        raise TypeError(
            "engine must be 'auto', 'threads' or an object with place, map, "
            f"dense_work and describe, got {type(engine).__name__}"
        )
    log.info("engine %s", engine.describe())
    return engine
