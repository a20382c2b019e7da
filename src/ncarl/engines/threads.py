"""The `Threads` engine: row work on threads of this process."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, TypeVar

from ncarl.blocks import cut_blocks
from ncarl.core.rows import row_backend
from ncarl.core.types import Block
from ncarl.engines.base import (
    ROW_BACKENDS,
    HostDevice,
    LazyBlocks,
    LocalEngine,
    in_order,
)
from ncarl.engines.cores import available_cores, limit_blas_threads
from ncarl.observations import Observations
from ncarl.validation import check_choice, check_integer

R = TypeVar("R")


@cache
def _thread_pool(workers: int) -> ThreadPoolExecutor:
    """Threads that stay alive between steps, which can be shorter than a start."""
    return ThreadPoolExecutor(workers, thread_name_prefix="ncarl")


if hasattr(os, "register_at_fork"):
    # A forked child has none of these threads and would wait for them forever.
    os.register_at_fork(after_in_child=_thread_pool.cache_clear)


@dataclass(frozen=True)
class Threads(LocalEngine):
    """Threads of this process, with BLAS limited to one thread inside each.

    Rows are computed by all threads. BLAS uses several between two passes over the rows
    only, for kernels from 600 columns on, while cores are free and steps get faster by
    it. The last digits of such a fit depend on that number; it is chosen once in a fit
    with a checkpoint, and always 1 with ``n_jobs=1``.

    Parameters
    ----------
    n_jobs : int, optional
        Maximum number of threads; by default one per core that affinity and the quota
        of a container leave to this process.
    kernel : {"auto", "numba", "numpy"}
        Backend of the row step; "auto" takes Numba if it is installed.
    reason : str
        Why the engine was picked, for `describe`.
    """

    n_jobs: int | None = None
    kernel: str = "auto"
    reason: str = field(default="", repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.n_jobs is not None:
            check_integer("n_jobs", self.n_jobs, low=1, hint="; None for all cores")
        check_choice("kernel", self.kernel, ROW_BACKENDS)

    @property
    def compute_device(self) -> HostDevice:
        """Memory of this process."""
        return HostDevice(self.n_jobs)

    def place(self, rows: Observations | LazyBlocks) -> Sequence[Block] | LazyBlocks:
        """Blocks in the memory of this process, or chunks that every pass reads."""
        return rows if isinstance(rows, LazyBlocks) else cut_blocks(rows)

    def map(
        self, function: Callable[..., R], blocks: Any, **shared: Any
    ) -> Iterator[R]:
        """``function(block, **shared)`` for every block, in block order."""
        row_backend(self.kernel)  # import once here, not in all threads at once
        workers = self.n_jobs or available_cores()
        shared["backend"] = self.kernel
        with limit_blas_threads(1):
            if isinstance(blocks, LazyBlocks):
                function = partial(blocks.run, function)
                with blocks.chunks() as chunks:
                    yield from _map_in_threads(function, chunks, workers, shared)
            elif (workers := min(workers, len(blocks))) > 1:
                yield from _map_in_threads(function, blocks, workers, shared)
            else:
                for block in blocks:
                    yield function(block, **shared)

    def describe(self) -> str:
        """One-line description of the engine and why it was picked."""
        backend = row_backend(self.kernel).__name__.rsplit("_", 1)[-1]
        hint = " (pip install 'ncarl[fast]' for Numba)"
        if importlib.util.find_spec("numba") is not None:
            hint = "" if backend == "numba" else " (Numba does not load)"
        cores = self.n_jobs or available_cores()
        return f"threads: {cores} cores, {backend} rows{hint}{self.reason}"


def _map_in_threads(
    function: Callable[..., R],
    blocks: Iterable[Any],
    workers: int,
    shared: dict[str, Any],
) -> Iterator[R]:
    """Results in order, with about one block per worker in flight."""
    pool = _thread_pool(workers)
    tasks = (pool.submit(function, block, **shared) for block in blocks)
    yield from in_order(tasks, workers + 1)
