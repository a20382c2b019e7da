"""A pass over the rows of a block, recorded once and played back in later steps.

Rows of many sizes mean a thousand launches a step, which take the processor longer
than the work takes the card. As a CUDA graph they are one launch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

from ncarl.core.types import Array, Kernel

R = TypeVar("R")
log = logging.getLogger("ncarl")

#: Streams that a recorded pass spreads its batches over.
BRANCHES = 4

#: Kinds of work that this process has done before.
_warm: set[Any] = set()


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


class Replay:
    """Work on a kernel as a CUDA graph.

    Parameters
    ----------
    work : callable
        From a kernel to a tuple of tensors; waits for nothing and reads nothing back.
    kernel : Kernel
        A kernel of the shape that all later ones will have.
    """

    def __init__(self, work: Callable[[Kernel], Any], kernel: Kernel) -> None:
        P = None if kernel.P is None else kernel.P.clone()
        self.kernel = Kernel(kernel.K.clone(), P, kernel.s)
        self.graph = torch.cuda.CUDAGraph()
        before, beside = torch.cuda.current_stream(), torch.cuda.Stream()
        beside.wait_stream(before)
        with torch.cuda.stream(beside):
            self.graph.capture_begin(capture_error_mode="thread_local")
            try:
                self.result = work(self.kernel)
            finally:
                self.graph.capture_end()
        before.wait_stream(beside)

    def __call__(self, kernel: Kernel) -> Any:
        """What ``work(kernel)`` gives, in memory that the next call writes over."""
        self.kernel.K.copy_(kernel.K)
        if self.kernel.P is not None:
            self.kernel.P.copy_(kernel.P)
        self.graph.replay()
        return self.result


def played(
    plans: dict[Any, Any],
    key: tuple[Any, ...],
    work: Callable[[Kernel], tuple[Array, ...]],
    kernel: Kernel,
) -> tuple[Array, ...]:
    """``work(kernel)``, recorded once and played back from then on.

    The first call of all in a process is not recorded: it loads and compiles.
    """
    known = plans.get(key, "to be recorded" if key[0] in _warm else None)
    if isinstance(known, Replay):
        played_back: tuple[Array, ...] = known(kernel)
        return played_back
    if known == "to be recorded":
        try:
            plans[key] = Replay(work, kernel)
            return played(plans, key, work, kernel)
        except RuntimeError as error:  # out of memory, or a call that has no record
            log.info("the row step is not recorded (%s)", error)
            plans[key] = "not to be recorded"
    elif known is None:
        plans[key] = "to be recorded"
    _warm.add(key[0])
    return work(kernel)
