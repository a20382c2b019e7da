"""What workers do; they import these functions by name."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from ncarl.core.rows import row_module
from ncarl.core.types import Block, EvidenceSums, Kernel, RowSums
from ncarl.homes import Home, blas_threads
from ncarl.observed import Observed

R = TypeVar("R")
_importing = threading.Lock()


@dataclass(frozen=True)
class Part:
    """What a function made of some blocks, and whether it solved rows of theirs."""

    value: Any
    solved: bool


def worked(
    block: Any, shared: dict[str, Any], function: Callable[..., R], kind: str
) -> R:
    """``function(block, **shared)``, with BLAS held to one thread."""
    with _importing:  # once, not by all threads of a worker at the same time
        row_module(kind)
    with blas_threads(1):
        return function(block, kind=kind, **shared)


def worked_part(
    block: Any, shared: dict[str, Any], function: Callable[..., Any], kind: str
) -> Part:
    """The same as a part of a sum; a chunk without rows has none."""
    if block is None:
        return Part(None, False)
    return Part(worked(block, shared, function, kind), isinstance(block, Block))


def summed(parts: list[Part]) -> Part:
    """The sum (by ``+=``) of some parts, in their order.

    The first one is copied: it may have to serve again if this sum is lost.
    """
    some = [part for part in parts if part.value is not None]
    if not some:
        return Part(None, False)
    total = copy.deepcopy(some[0].value)
    for part in some[1:]:
        total += part.value
    return Part(total, some[0].solved)


def loaded(load: Callable[[], Observed], prepare: Callable[[Observed], Any]) -> Any:
    """A chunk of a source, prepared by the worker that loads it."""
    return prepared(load(), prepare)


def prepared(chunk: Observed, prepare: Callable[[Observed], Any]) -> Any:
    """A chunk that has come here, prepared; None for one without rows."""
    if isinstance(chunk, Observed) and chunk.shape[0] == 0:
        return None
    with blas_threads(1):
        return prepare(chunk)


def from_home(value: Any, home: Home) -> Any:
    """What workers can be sent: arrays of a device become NumPy arrays."""
    if isinstance(value, Kernel):
        return value.moved(home.fetch)
    return home.fetch(value)


def to_home(part: Part, home: Home) -> Any:
    """A sum with its arrays where n x n work is done; numbers stay plain.

    Only sums over solved rows are worked on there; what was learned of chunks as they
    are stays NumPy, as with any engine.
    """
    value = part.value
    if not (part.solved and home.queued):
        return value
    if isinstance(value, np.ndarray):
        return home.send(value)
    if isinstance(value, RowSums):
        return replace(value, gram=home.send(value.gram), fit=float(value.fit))
    if isinstance(value, EvidenceSums):
        return replace(
            value,
            B=home.send(value.B),
            missing=home.send(value.missing),
            pull=home.send(value.pull),
            fit=float(value.fit),
            log_det=float(value.log_det),
        )
    return value
