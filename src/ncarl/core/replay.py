"""A pass over the rows of a block, recorded once and played back in later steps.

Rows of many sizes mean a thousand launches a step, which take the processor longer
than the work takes the card. As a CUDA graph they are one launch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch

from ncarl.core.types import Array, Kernel

log = logging.getLogger("ncarl")


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
    key: Any,
    work: Callable[[Kernel], tuple[Array, ...]],
    kernel: Kernel,
) -> tuple[Array, ...]:
    """``work(kernel)``, recorded at its second call and played back from then on.

    A single step is not worth recording, and the first call compiles what it needs.
    """
    known = plans.get(key)
    if isinstance(known, Replay):
        played_back: tuple[Array, ...] = known(kernel)
        return played_back
    if known == "called":
        try:
            plans[key] = Replay(work, kernel)
            return played(plans, key, work, kernel)
        except RuntimeError as error:  # out of memory, or a call that has no record
            log.info("the row step is not recorded (%s)", error)
            plans[key] = "not to be recorded"
    elif known is None:
        plans[key] = "called"
    return work(kernel)
