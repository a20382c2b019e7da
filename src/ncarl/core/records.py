"""Work on a GPU that is recorded once and played back in later steps.

Rows of many sizes mean a thousand launches a step, which take the processor longer
than the work takes the card. Recorded as a CUDA graph they are one launch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, TypeVar

import torch

from ncarl.core.types import Array, Kernel

R = TypeVar("R")
log = logging.getLogger("ncarl")

#: Streams that recorded work spreads its batches over.
BRANCHES = 4
#: Kinds of work that this process has done before.
_done_before: set[Any] = set()
NOT_YET, NEVER = "not yet recorded", "not to be recorded"


class Record:
    """Work on a kernel as a CUDA graph.

    Parameters
    ----------
    work : callable
        From a kernel to tensors; it waits for nothing and reads nothing back.
    kernel : Kernel
        A kernel of the shape that all later ones will have.
    pool
        The memory that the work takes.
    """

    def __init__(self, work: Callable[[Kernel], Any], kernel: Kernel, pool: Any):
        self.kernel = kernel.moved(lambda a: None if a is None else a.clone())
        self.graph, self.result = _recorded(lambda: work(self.kernel), pool)

    def play(self, kernel: Kernel) -> Any:
        """What ``work(kernel)`` gives, in memory that the next call writes over."""
        self.kernel.K.copy_(kernel.K)
        if self.kernel.P is not None:
            self.kernel.P.copy_(kernel.P)
        self.graph.replay()
        return self.result


def _recorded(work: Callable[[], R], pool: Any) -> tuple[Any, R]:
    """A graph of the work, and the tensors that playing it fills."""
    graph = torch.cuda.CUDAGraph()
    before, beside = torch.cuda.current_stream(), torch.cuda.Stream()
    beside.wait_stream(before)
    with torch.cuda.stream(beside):
        graph.capture_begin(pool, capture_error_mode="thread_local")
        try:
            result = work()
        finally:
            graph.capture_end()
    before.wait_stream(beside)
    return graph, result


class Records:
    """Records that share memory, since one is played after the other.

    Parameters
    ----------
    needed : int
        Bytes that the largest of them may take.
    """

    def __init__(self, needed: int) -> None:
        self.needed = needed

    @cached_property
    def pool(self) -> Any:
        """The memory, held by a small record for as long as there may be others."""
        held = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
        if held > self.needed or torch.cuda.mem_get_info()[0] < self.needed:
            # What earlier records have left is of use to nobody else until then.
            torch.cuda.empty_cache()
        pool = torch.cuda.graph_pool_handle()
        self.keeper = _recorded(lambda: torch.zeros(1, device="cuda"), pool)
        return pool

    def played(
        self,
        plans: dict[Any, Any],
        key: Any,
        work: Callable[[Kernel], tuple[Array, ...]],
        kernel: Kernel,
    ) -> tuple[Array, ...]:
        """``work(kernel)``, from the record in ``plans`` that is made if need be.

        The first call of all is not recorded: it loads and compiles.
        """
        if key not in _done_before:
            _done_before.add(key)
            return work(kernel)
        if plans.setdefault(key, NOT_YET) == NOT_YET:
            try:
                plans[key] = Record(work, kernel, self.pool)
            except RuntimeError as error:  # no memory, or a call that has no record
                log.info("the row step is not recorded (%s)", error)
                plans[key] = NEVER
        if plans[key] == NEVER:
            return work(kernel)
        played_back: tuple[Array, ...] = plans[key].play(kernel)
        return played_back


def in_branches(jobs: Sequence[Callable[[], R]], *, fits: bool) -> list[R]:
    """Results of independent jobs, side by side if they are being recorded and fit.

    Batches of few systems do not fill a card; several at a time do.
    """
    recording = torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
    if not (recording and fits):
        return [job() for job in jobs]
    main = torch.cuda.current_stream()
    branches = [torch.cuda.Stream() for _ in range(min(BRANCHES, len(jobs)))]
    results = []
    for branch in branches:
        branch.wait_stream(main)
    for k, job in enumerate(jobs):
        with torch.cuda.stream(branches[k % len(branches)]):
            results.append(job())
    for branch in branches:
        main.wait_stream(branch)
    return results
