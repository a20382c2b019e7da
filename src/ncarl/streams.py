"""Rows that are read anew in every pass, so that memory does not grow with them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from ncarl.observed import Observed
from ncarl.sources import RowSource, prefetched

R = TypeVar("R")


@dataclass(frozen=True)
class Streamed:
    """Chunks of a source, and what is made of each before it is worked on.

    Attributes
    ----------
    source : RowSource
        Where the rows come from.
    prepare : callable
        Turns a chunk into what the functions of a pass take, usually a block.
    """

    source: RowSource
    prepare: Callable[[Observed], Any]

    @contextlib.contextmanager
    def chunks(self) -> Iterator[Iterator[Observed]]:
        """One pass over the chunks as they are, read ahead by a thread."""
        some = (chunk for chunk in self.source if chunk.shape[0])
        with contextlib.closing(prefetched(some)) as found:
            yield found


def as_it_is(chunk: Observed) -> Observed:
    """The chunk: a pass that needs no preparation."""
    return chunk


def on_prepared(
    chunk: Observed,
    *,
    work: Callable[..., R],
    prepare: Callable[[Observed], Any],
    **shared: Any,
) -> R:
    """What a function makes of a chunk, once that has been prepared."""
    return work(prepare(chunk), **shared)


def summed(results: Iterator[R]) -> R:
    """The sum (by ``+=``) of results in order.

    Raises
    ------
    ValueError
        If there is none, for want of rows.
    """
    for total in results:
        for result in results:
            total += result  # type: ignore[operator]
        return total
    raise ValueError("X has no rows; nothing can be learned from it")
