"""Work on a GPU that is recorded once and played back in later steps.

Rows of many sizes mean a thousand launches a step, which take the processor longer
than the work takes the card. Recorded as a CUDA graph they are one launch.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

from ncarl.core.types import Array, Kernel

R = TypeVar("R")
log = logging.getLogger("ncarl")

#: Streams that recorded work spreads its batches over.
BRANCHES = 4
#: Kinds of work that this process has done before.
_done_before: set[Any] = set()
_streams_of: dict[int, list[Any]] = {}
NOT_YET, NEVER = "not yet recorded", "not to be recorded"


def _streams() -> list[Any]:
    """Streams for records, made once: libraries keep memory for each."""
    device = torch.cuda.current_device()
    if device not in _streams_of:
        _streams_of[device] = [torch.cuda.Stream() for _ in range(1 + BRANCHES)]
    return _streams_of[device]


def make_room(needed: int) -> None:
    """Give back what is unused where that is much, or where it is wanted.

    A record cannot do so itself, and what earlier ones have left is of no use to
    anything else before this.

    Raises
    ------
    RuntimeError
        If there is not enough all the same.
    """
    if unused() > needed or obtainable() < needed:
        torch.cuda.empty_cache()
    if obtainable() < needed:
        raise RuntimeError(
            f"it takes {needed / 1e9:.1f} GB, {obtainable() / 1e9:.1f} are free"
        )


def obtainable() -> int:
    """Bytes that this process can still get from the current card."""
    free, total = torch.cuda.mem_get_info()
    share = getattr(torch.cuda, "get_per_process_memory_fraction", lambda: 1.0)()
    return int(min(free, share * total - torch.cuda.memory_reserved()))


def unused() -> int:
    """Bytes of the current card that PyTorch holds without using them."""
    return int(torch.cuda.memory_reserved() - torch.cuda.memory_allocated())


class Record:
    """Work on a kernel as a CUDA graph, with memory of its own.

    Parameters
    ----------
    work : callable
        From a kernel to tensors; it waits for nothing and reads nothing back.
    kernel : Kernel
        A kernel of the shape that all later ones will have.
    needed : int
        Bytes that the work takes, about.
    """

    def __init__(self, work: Callable[[Kernel], Any], kernel: Kernel, needed: int):
        make_room(needed)
        self.kernel = kernel.moved(lambda a: None if a is None else a.clone())
        self.graph = torch.cuda.CUDAGraph()
        before, (beside, *_) = torch.cuda.current_stream(), _streams()
        beside.wait_stream(before)
        with torch.cuda.stream(beside):
            try:
                self.graph.capture_begin(capture_error_mode="thread_local")
                self.result = work(self.kernel)
            except BaseException:
                # What went wrong counts, not what closing the record makes of it.
                with contextlib.suppress(RuntimeError):
                    self.graph.capture_end()
                raise
            self.graph.capture_end()
        before.wait_stream(beside)

    def play(self, kernel: Kernel) -> Any:
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
    needed: int,
) -> tuple[Array, ...]:
    """``work(kernel)``, from the record in ``plans``, which is made if need be.

    The first call of all in a process is not recorded: it loads and compiles.
    """
    if key not in _done_before:
        _done_before.add(key)
        return work(kernel)
    if plans.setdefault(key, NOT_YET) == NOT_YET:
        try:
            plans[key] = Record(work, kernel, needed)
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
    branches = _streams()[1 : 1 + len(jobs)]
    results = []
    try:
        for branch in branches:
            branch.wait_stream(main)
        for k, job in enumerate(jobs):
            with torch.cuda.stream(branches[k % len(branches)]):
                results.append(job())
    finally:
        # Even after an error: a record with loose ends cannot be closed, and PyTorch
        # would believe for ever after that one is being made.
        for branch in branches:
            main.wait_stream(branch)
    return results
