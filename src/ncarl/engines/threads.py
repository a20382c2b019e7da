"""The `Threads` engine: row work on threads of this process."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar

from ncarl.core.rows import row_backend
from ncarl.core.types import Block
from ncarl.engines.base import (
    HostDevice,
    LazyBlocks,
    available_cores,
    limit_blas_threads,
    prepare_and_apply,
    reduce_sum,
)
from ncarl.io import RowSource
from ncarl.observations import Observations

R = TypeVar("R")


@cache
def _thread_pool(workers: int) -> ThreadPoolExecutor:
    """Threads that stay alive between steps, which can be shorter than a start."""
    return ThreadPoolExecutor(workers, thread_name_prefix="ncarl")


if hasattr(os, "register_at_fork"):
    # A forked child has none of these threads and would wait for them forever.
    os.register_at_fork(after_in_child=_thread_pool.cache_clear)


@dataclass(frozen=True)
class Threads:
    """Threads of this process, with BLAS limited to one thread inside each.

    Parameters
    ----------
    n_jobs : int, optional
        Number of threads; by default one per core. Fewer can be faster on a busy
        machine, because BLAS threads wait for each other.
    kernel : {"auto", "numba", "numpy"}
        Backend of the row step; "auto" takes Numba if it is installed.
    reason : str
        Why the engine was picked, for `describe`.
    """

    n_jobs: int | None = None
    kernel: str = "auto"
    reason: str = field(default="", repr=False, compare=False)

    def __post_init__(self) -> None:
        whole = isinstance(self.n_jobs, int) and not isinstance(self.n_jobs, bool)
        if self.n_jobs is not None and not (whole and self.n_jobs >= 1):
            raise ValueError(
                "n_jobs must be a whole number of at least 1, or None for all cores, "
                f"got {self.n_jobs!r}"
            )
        if self.kernel not in ("auto", "numba", "numpy"):
            raise ValueError(
                f"kernel must be 'auto', 'numba' or 'numpy', got {self.kernel!r}"
            )

    @property
    def compute_device(self) -> HostDevice:
        """Memory of this process."""
        return HostDevice(self.n_jobs)

    def choose_n_blocks(self, rows: int, columns: int) -> int | None:
        """Return None: the default number."""
        return None

    def place(self, blocks: Iterable[Block]) -> Sequence[Block]:
        """Keep the blocks in the memory of this process."""
        return list(blocks)

    def stream(
        self, source: RowSource, prepare: Callable[[Observations], Any]
    ) -> LazyBlocks:
        """Chunks that every pass reads again, ahead of the work."""
        return LazyBlocks(source, prepare)

    def map(
        self, function: Callable[..., R], blocks: Any, **shared: Any
    ) -> Iterator[R]:
        """``function(block, **shared)`` for every block, in block order."""
        row_backend(self.kernel)  # import once here, not in all threads at once
        workers = self.n_jobs or available_cores()
        with limit_blas_threads(1):
            if isinstance(blocks, LazyBlocks):
                shared |= {"work": function, "prepare": blocks.prepare}
                with blocks.chunks() as chunks:
                    yield from self._map_blocks(
                        prepare_and_apply, chunks, workers, shared
                    )
                return
            workers = min(workers, len(blocks))
            yield from self._map_blocks(function, blocks, workers, shared)

    def total(self, function: Callable[..., R], blocks: Any, **shared: Any) -> R:
        """Sum (by ``+=``) of the results of `map`, in block order."""
        return reduce_sum(self.map(function, blocks, **shared))

    def _map_blocks(
        self,
        function: Callable[..., R],
        blocks: Iterable[Any],
        workers: int,
        shared: dict[str, Any],
    ) -> Iterator[R]:
        if workers <= 1:
            for block in blocks:
                yield function(block, kind=self.kernel, **shared)
            return
        yield from self._map_in_threads(function, blocks, workers, shared)

    def _map_in_threads(
        self,
        function: Callable[..., R],
        blocks: Iterable[Any],
        workers: int,
        shared: dict[str, Any],
    ) -> Iterator[R]:
        """Keep about one block per worker in flight, so that few results wait."""
        pool = _thread_pool(workers)
        waiting: deque[Future[R]] = deque()
        try:
            for block in blocks:
                if len(waiting) > workers:
                    yield waiting.popleft().result()
                waiting.append(pool.submit(function, block, kind=self.kernel, **shared))
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
            wait(waiting)

    def describe(self) -> str:
        """One-line description of the engine and why it was picked."""
        kind = row_backend(self.kernel).__name__.rsplit("_", 1)[-1]
        hint = "" if kind == "numba" else " (pip install 'ncarl[fast]' for Numba rows)"
        cores = self.n_jobs or available_cores()
        return f"threads: {cores} cores, {kind} rows{hint}{self.reason}"
