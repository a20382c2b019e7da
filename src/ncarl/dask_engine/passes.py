"""Passes over blocks that workers hold, which outlive the loss of a worker."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import cloudpickle

from ncarl.dask_engine.link import Link
from ncarl.dask_engine.placing import Placed
from ncarl.dask_engine.tasks import Part, summed, worked, worked_part

#: So many sums are added up by one task.
FAN = 8
#: So many bytes travel with each task; more are sent once, for all.
LIGHT = 20_000


def weight(value: Any) -> int:
    """Bytes of a value on its way; arrays are not copied to find out.

    Examples
    --------
    >>> import numpy as np
    >>> weight({"K": np.zeros((100, 100))}) > 80_000
    True
    """
    arrays: list[Any] = []
    rest = cloudpickle.dumps(value, protocol=5, buffer_callback=arrays.append)
    return int(len(rest) + sum(array.raw().nbytes for array in arrays))


class Together(dict[str, Any]):
    """A dictionary that is sent as a whole, not item by item."""


@contextmanager
def at_hand(link: Link, shared: dict[str, Any]) -> Iterator[Any]:
    """What all blocks share, at hand for all workers until the end of the context."""
    if weight(shared) <= LIGHT:
        yield shared
        return
    (future,) = link.send([Together(shared)], link.workers()[0])
    try:
        yield future
    finally:
        future.release()


def total(
    placed: Placed, function: Callable[..., Any], kind: str, shared: dict[str, Any]
) -> Part:
    """The sum over all blocks, added up by the workers as a tree.

    The shape of the tree depends on the number of blocks alone, so that the sum has
    the same bits whoever did what.
    """
    link = placed.link

    def attempt() -> Part:
        with at_hand(link, shared) as known:
            root = _tree(placed, function, kind, known)
            try:
                part: Part = link.result(root)
            except BaseException:  # Ctrl-C too
                _cancel(link, [root])
                raise
            return part

    return link.insist(attempt, placed.mend)


def _tree(placed: Placed, function: Callable[..., Any], kind: str, known: Any) -> Any:
    """The future of the sum; all others are let go, and freed when they have served."""
    client, name = placed.link.client, _name(function)
    level: list[Any] = client.map(
        worked_part, placed.futures, shared=known, function=function, kind=kind,
        key=[f"{name}-{k}" for k in range(len(placed))], pure=False,
    )  # fmt: skip
    depth = 0
    while len(level) > 1:
        depth += 1
        level = [
            client.submit(
                summed, level[k : k + FAN], key=f"sum_of_{name}-{depth}-{k}",
                priority=depth,  # before more blocks: sums that wait take memory
            )
            for k in range(0, len(level), FAN)
        ]  # fmt: skip
    return level[0]


def mapped(
    placed: Placed, function: Callable[..., Any], kind: str, shared: dict[str, Any]
) -> Iterator[Any]:
    """The results for all blocks in order, few of them waiting at a time."""
    done = 0
    runs: list[Generator[Any, None, None]] = []

    def begin() -> None:
        left = placed.futures[done:]
        runs[:] = [_results(placed.link, left, function, kind, shared)]

    def mend() -> None:
        placed.mend()
        begin()

    begin()
    try:
        while done < len(placed):
            yield placed.link.insist(lambda: next(runs[0]), mend)
            done += 1
    finally:
        runs[0].close()


def _results(
    link: Link,
    blocks: list[Any],
    function: Callable[..., Any],
    kind: str,
    shared: dict[str, Any],
) -> Generator[Any, None, None]:
    """The results for some blocks, until something is lost."""
    name = _name(function)
    waiting: deque[Any] = deque()
    with at_hand(link, shared) as known:
        try:
            for k, block in enumerate(blocks):
                if len(waiting) > 2 * link.threads:
                    yield link.result(waiting.popleft())
                waiting.append(
                    link.client.submit(
                        worked, block, known, function, kind, key=f"{name}-{k}"
                    )
                )
            while waiting:
                yield link.result(waiting.popleft())
        finally:
            _cancel(link, waiting)


def _name(function: Callable[..., Any]) -> str:
    """A name for the tasks of one pass; Dask learns how long a kind of task takes."""
    word = getattr(function, "__name__", type(function).__name__)
    return f"ncarl_{word}-{uuid.uuid4().hex}"


def _cancel(link: Link, futures: Iterable[Any]) -> None:
    """Give up what is under way, so that workers are free for what comes next."""
    left = list(futures)
    if left and link.client.status == "running":
        link.client.cancel(left)
