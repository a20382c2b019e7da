"""What has to be known of all entries before a fit, found out in passes over them.

A pass adds up what a function makes of the entries: of all at once where they are in
memory, or chunk by chunk of a source, wherever an engine reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from ncarl.blocks import cut
from ncarl.content import Content
from ncarl.core.plan import missing_side_pays
from ncarl.core.types import Array
from ncarl.engines import Engine
from ncarl.observed import Observed


@dataclass(frozen=True)
class Sums:
    """Numbers and arrays of a pass: some to be added, of others the largest counts."""

    added: tuple[Any, ...]
    largest: tuple[Any, ...] = ()

    def __iadd__(self, other: Sums) -> Sums:
        """What both passes came to."""
        added = zip(self.added, other.added, strict=True)
        largest = zip(self.largest, other.largest, strict=True)
        return Sums(
            tuple(one + another for one, another in added),
            tuple(np.maximum(one, another) for one, another in largest),
        )


class Entries(Protocol):
    """Observed entries that can be gone through again and again."""

    @property
    def survey(self) -> Survey:
        """What is known of them."""
        ...

    def fingerprint(self) -> str:
        """A name for shape, pattern and values."""
        ...

    def total(self, function: Callable[..., Any], **shared: Any) -> Any:
        """The sum of ``function(entries, **shared)`` over all of them."""
        ...

    def changed(self, change: Callable[[Observed], Observed]) -> Entries:
        """The same entries with other values; what is known of the pattern stays."""
        ...

    def reduced(self, change: Callable[[Observed], Observed]) -> Entries:
        """Fewer entries, surveyed anew."""
        ...

    def let_go(self) -> None:
        """Free what is held for further passes; they remain possible."""
        ...

    def placed(self, engine: Engine, ready: Ready) -> Any:
        """Blocks of the entries, made ready, where an engine works on them."""
        ...


class Ready(Protocol):
    """Makes rows ready to be solved, wherever they are."""

    def rows(self, observed: Observed) -> Observed:
        """The entries as the row work takes them."""
        ...

    def __call__(self, chunk: Observed) -> Any:
        """One block of them."""
        ...


@dataclass(frozen=True)
class Survey:
    """What one pass over all entries tells.

    Attributes
    ----------
    n_rows, n_observed : int
        Rows, and observed entries.
    column_counts : array of int, shape (n,)
        Observed entries of each column.
    by_size : array of int, shape (n + 1,)
        How many rows have 0, 1, ..., n observed entries.
    size : float
        A power of two not far from the largest value.
    squares : float
        Sum of the squared values, each over ``size``.
    empty : tuple of arrays
        Rows without entries.
    content : Content or None
        A name for all of it, if one was asked for.
    """

    n_rows: int
    n_observed: int
    column_counts: Array
    by_size: Array
    size: float
    squares: float
    empty: tuple[Array, ...]
    content: Content | None = None

    @classmethod
    def of(cls, observed: Observed, *, named: bool = False) -> Survey:
        """The survey of entries in memory; giving them a name takes a while."""
        size, squares = _size_and_squares(observed.values)
        empty = np.flatnonzero(observed.row_counts == 0)
        return cls(
            n_rows=observed.shape[0],
            n_observed=observed.n_observed,
            column_counts=observed.column_counts,
            by_size=np.bincount(observed.row_counts, minlength=observed.shape[1] + 1),
            size=size,
            squares=squares,
            empty=(empty,) if len(empty) else (),
            content=Content.of(observed) if named else None,
        )

    def __iadd__(self, other: Survey) -> Survey:
        """The survey of these rows and then those."""
        size, content = max(self.size, other.size), None
        if self.content is not None and other.content is not None:
            content = self.content + other.content
        return Survey(
            self.n_rows + other.n_rows,
            self.n_observed + other.n_observed,
            self.column_counts + other.column_counts,
            self.by_size + other.by_size,
            size,
            self.squares * (self.size / size) ** 2
            + other.squares * (other.size / size) ** 2,
            self.empty + tuple(rows + self.n_rows for rows in other.empty),
            content,
        )

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the matrix."""
        return self.n_rows, len(self.column_counts)

    @property
    def seen_rows(self) -> int:
        """Rows with anything observed."""
        return int(self.n_rows - self.by_size[0])

    @property
    def empty_rows(self) -> Array:
        """Rows without entries."""
        return np.concatenate([np.empty(0, dtype=np.int64), *self.empty])

    @property
    def unit(self) -> float:
        """The power of two nearest to the root mean square of the values, or 1.

        Dividing by a power of two loses no bit, so results scale exactly with the
        input.
        """
        return _unit(self.size, self.squares, self.n_observed)

    def missing_side(self, n: int) -> bool:
        """Whether any row of ``n`` columns is cheaper to solve for its gaps."""
        sizes = np.flatnonzero(self.by_size[: n + 1])
        return bool(missing_side_pays(sizes[sizes > 0], n).any())


def unit_of(values: Array) -> float:
    """The power of two nearest to the root mean square of the values; 1 if they are 0.

    Examples
    --------
    >>> import numpy as np
    >>> unit_of(np.array([3.0, 5.0])), unit_of(np.zeros(2))
    (4.0, 1.0)
    """
    return _unit(*_size_and_squares(values), len(values))


def _unit(size: float, squares: float, count: int) -> float:
    """The unit of so many values, from the sum of their squares over a size."""
    if squares == 0.0:
        return 1.0
    exponent = np.log2(size) + 0.5 * np.log2(squares / count)
    return float(np.ldexp(1.0, int(np.clip(np.round(exponent), -1000, 1000))))


def _size_and_squares(values: Array) -> tuple[float, float]:
    """A power of two near the largest value (1 for none), and squares over it."""
    largest = float(np.max(np.abs(values), initial=0.0))
    if largest == 0.0:
        return 1.0, 0.0
    size = float(np.ldexp(1.0, max(int(np.frexp(largest)[1]) - 1, -1000)))
    scaled = values / size
    return size, float(scaled @ scaled)


@dataclass(frozen=True)
class InMemory:
    """Entries that are all in memory."""

    observed: Observed
    known: Survey | None = None

    @cached_property
    def survey(self) -> Survey:
        """What is known of them."""
        return self.known or Survey.of(self.observed)

    def fingerprint(self) -> str:
        """A name for shape, pattern and values."""
        return self.observed.fingerprint()

    def total(self, function: Callable[..., Any], **shared: Any) -> Any:
        """What the function makes of all entries at once."""
        return function(self.observed, **shared)

    def changed(self, change: Callable[[Observed], Observed]) -> InMemory:
        """The same entries with other values."""
        return InMemory(change(self.observed), self.survey)

    def reduced(self, change: Callable[[Observed], Observed]) -> InMemory:
        """Fewer entries, surveyed anew."""
        return InMemory(change(self.observed))

    def let_go(self) -> None:
        """Entries in memory stay there."""

    def placed(self, engine: Engine, ready: Ready) -> Any:
        """Blocks of about equal work."""
        rows = ready.rows(self.observed)
        return engine.place(cut(rows, engine.blocks_wanted(*rows.shape)))
