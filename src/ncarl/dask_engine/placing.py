"""Blocks on workers: how they get there, and how they come back when one is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import distributed
from dask.delayed import delayed as later

from ncarl.dask_engine.link import Link
from ncarl.dask_engine.tasks import loaded, prepared
from ncarl.observed import Observed
from ncarl.sources import RowSource


@dataclass(frozen=True)
class Placed:
    """Blocks that workers hold.

    Attributes
    ----------
    link : Link
        The way to the workers.
    futures : list of Future
        The blocks, in order.
    again : callable
        New futures for the blocks of some numbers, which were lost.
    """

    link: Link
    futures: list[Any]
    again: Callable[[list[int]], list[Any]]

    def __len__(self) -> int:
        return len(self.futures)

    def mend(self) -> None:
        """Put back what was lost; what Dask makes again by itself is not lost."""
        lost = [k for k, future in enumerate(self.futures) if _is_lost(future)]
        if lost:
            for k, future in zip(lost, self.again(lost), strict=True):
                self.futures[k] = future


def _is_lost(future: Any) -> bool:
    """Whether nobody will bring back the data of a future."""
    if future.status == "error":
        return isinstance(future.exception(), distributed.KilledWorker)
    return future.status in ("cancelled", "lost")


def spread(workers: list[str], count: int) -> list[tuple[str, range]]:
    """Workers and the blocks for each, of so many; neighbours go to the same one.

    Sums of neighbours are then added up where they are.

    Examples
    --------
    >>> spread(["a", "b", "b"], 7)
    [('a', range(0, 3)), ('b', range(3, 7))]
    """
    taken = [workers[k * len(workers) // count] for k in range(count)]
    firsts = [taken.index(worker) for worker in dict.fromkeys(taken)]
    ends = [*firsts[1:], count]
    return [
        (taken[first], range(first, end))
        for first, end in zip(firsts, ends, strict=True)
    ]


def place(link: Link, blocks: Iterable[Any]) -> Placed:
    """Blocks of this process, sent to the workers; the originals are kept here."""
    given = list(blocks)

    def sent(wanted: list[int]) -> list[Any]:
        futures: list[Any] = []
        for worker, some in spread(link.workers(), len(wanted)):
            futures += _sent(link, [given[wanted[k]] for k in some], worker)
        return futures

    return Placed(link, sent(list(range(len(given)))), sent)


def _sent(link: Link, data: list[Any], worker: str) -> list[Any]:
    """Futures of data on a worker, or on another where that one is gone."""
    target = [worker]

    def elsewhere() -> None:
        target[:] = link.workers()[:1]

    return link.insist(lambda: link.send(data, target[0]), elsewhere)


def stream(link: Link, source: RowSource, prepare: Callable[[Observed], Any]) -> Placed:
    """Prepared chunks of a source, kept by the workers.

    Where the source has loaders or delayed chunks each worker makes its own, and Dask
    makes again what is lost; other sources are read here, and read again for that.
    """
    delayed = getattr(source, "delayed", None)
    if delayed is not None:
        return _computed(link, list(delayed), prepare)
    parts = source.parts()
    if parts is not None:
        return _loaded(link, list(parts), prepare)
    return _read(link, source, prepare)


def _computed(
    link: Link, delayed: list[Any], prepare: Callable[[Observed], Any]
) -> Placed:
    """Chunks that are delayed."""
    task = later(partial(prepared, prepare=prepare), pure=False)
    made = [task(chunk) for chunk in delayed]

    def computed(wanted: list[int]) -> list[Any]:
        return list(link.client.compute([made[k] for k in wanted]))

    return Placed(link, computed(list(range(len(made)))), computed)


def _loaded(
    link: Link,
    parts: list[Callable[[], Observed]],
    prepare: Callable[[Observed], Any],
) -> Placed:
    """Chunks that workers load by themselves.

    Which worker loads what is left to Dask: a chunk that prefers one that has died is
    never made again if there is no other at that moment.
    """

    def made(wanted: list[int]) -> list[Any]:
        some = [parts[k] for k in wanted]
        return list(link.client.map(loaded, some, prepare=prepare, pure=False))

    return Placed(link, made(list(range(len(parts)))), made)


def _read(link: Link, source: RowSource, prepare: Callable[[Observed], Any]) -> Placed:
    """Chunks that are read here, in turn, and prepared by the worker they go to."""

    def sent(wanted: list[int] | None) -> list[Any]:
        futures: list[Any] = []
        workers = link.workers()
        ahead = 2 * len(workers)
        for k, chunk in enumerate(source):
            if wanted is not None and len(futures) == len(wanted):
                break
            if wanted is not None and k != wanted[len(futures)]:
                continue
            if len(futures) >= ahead:  # few are on their way at a time
                link.wait(futures[-ahead])
            (raw,) = _sent(link, [chunk], workers[len(futures) % len(workers)])
            futures.append(link.client.submit(prepared, raw, prepare, pure=False))
        return futures

    return Placed(link, sent(None), sent)
