"""Rows of a source on their way to a torch device, and those that stay there."""

from __future__ import annotations

import contextlib
import itertools
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from ncarl.core.types import Block
from ncarl.observed import Observed
from ncarl.sources import RowSource, prefetched

#: Chunks are put together until they have about so many entries: a GPU is idle during
#: small work, and one core makes ready less than it can solve.
ENTRIES = 2_000_000
#: But no more chunks than this: the first may be emptier than others.
MOST_TOGETHER = 64
#: Threads that read and prepare chunks which can be read in any order.
READERS = 4


@dataclass
class DeviceStream:
    """Chunks of a source for one device; blocks stay there as long as there is room.

    Attributes
    ----------
    source : RowSource
        Where the rows come from.
    prepare : callable
        Makes a block of a chunk.
    place : callable
        Copies a block to the device.
    has_room : callable
        Whether another block may stay there.
    kept : list
        Blocks that stayed, the first ones of the source.
    together : int
        Chunks that are put together; 0 before the first was seen.
    whole : bool
        Whether all blocks stayed.
    """

    source: RowSource
    prepare: Callable[[Observed], Any]
    place: Callable[[Block], Any]
    has_room: Callable[[], bool]
    kept: list[Any] = field(default_factory=list)
    together: int = 0
    whole: bool = False

    def blocks(self) -> Iterator[Any]:
        """One pass over all blocks, in order."""
        yield from self.kept
        if self.whole:
            return
        keeping = True
        with self._further() as made:
            for block in made:
                if block is None:
                    continue
                if isinstance(block, Block):
                    block = self.place(block)
                    keeping = keeping and self.has_room()
                else:
                    keeping = False
                if keeping:
                    self.kept.append(block)
                yield block
        self.whole = keeping

    @contextlib.contextmanager
    def _further(self) -> Iterator[Iterator[Any]]:
        """Prepared blocks after those that stayed, made ahead by threads."""
        parts = self.source.parts()
        if not self.together:
            self.together = self._few_chunks()
        if parts is None:
            chunks = (chunk for chunk in self.source if chunk.shape[0])
            groups = _groups(chunks, self.together)
            rest = itertools.islice(groups, len(self.kept), None)
            ahead = prefetched(self.prepare(_stacked(group)) for group in rest)
            with contextlib.closing(ahead) as made:
                yield made
            return
        groups = _groups(iter(parts), self.together)
        rest = itertools.islice(groups, len(self.kept), None)
        with contextlib.closing(in_order(self._made_of, rest, READERS)) as made:
            yield made

    def _few_chunks(self) -> int:
        """How many chunks to put together, by the size of the first one."""
        first = next(iter(self.source), None)
        size = 0 if first is None else first.n_observed
        return min(MOST_TOGETHER, max(1, ENTRIES // max(1, size)))

    def _made_of(self, loaders: list[Callable[[], Observed]]) -> Any:
        """The block of some chunks, loaded and prepared; None without any row."""
        rows = _stacked([load() for load in loaders])
        return self.prepare(rows) if rows.shape[0] else None


def _groups(items: Iterator[Any], size: int) -> Iterator[list[Any]]:
    """Items in lists of that many, the last one shorter."""
    while group := list(itertools.islice(items, size)):
        yield group


def _stacked(chunks: Sequence[Observed]) -> Observed:
    """Chunks one below the other; a single one as it is."""
    return chunks[0] if len(chunks) == 1 else Observed.stacked(chunks)


def in_order(
    work: Callable[[Any], Any], items: Iterator[Any], threads: int
) -> Generator[Any]:
    """``work(item)`` for every item, in order, some items ahead in threads."""
    with ThreadPoolExecutor(threads, thread_name_prefix="ncarl-read") as pool:
        waiting: deque[Future[Any]] = deque()
        try:
            for item in items:
                waiting.append(pool.submit(work, item))
                if len(waiting) > threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
