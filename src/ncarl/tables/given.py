"""One column of a table as it came, whatever library it came from."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from ncarl.core.types import Array

#: What a column may hold. "empty" is known of columns without a type; "other" are
#: dates, lists, mixtures: what cannot be filled.
KINDS = ("number", "integer", "boolean", "category", "empty", "other")
#: What kinds are called in messages.
WORDS = {
    "number": "numbers",
    "integer": "whole numbers",
    "boolean": "yes or no",
    "category": "categories",
    "empty": "nothing",
    "other": "neither numbers, yes or no, nor text",
}


@dataclass(frozen=True)
class Given:
    """A column as it came.

    Attributes
    ----------
    name : object
        Its label.
    kind : str
        One of `KINDS`.
    values : array of shape (m,)
        Floats with NaN in the gaps; of a category its labels, None in the gaps.
    gaps : array of bool, shape (m,)
        Where nothing is known.
    dtype : object
        The type of the column in its library.
    declared : tuple or None
        Labels that the type allows, in their order.
    """

    name: Any
    kind: str
    values: Array
    gaps: Array
    dtype: Any
    declared: tuple[Hashable, ...] | None = None

    @property
    def known(self) -> Array:
        """The values that are there."""
        return self.values[~self.gaps]

    @property
    def called(self) -> str:
        """The column as messages name it."""
        return f"column {self.name!r}"


class Table(Protocol):
    """A table of some library: columns by position."""

    library: str
    names: list[Any]
    n_rows: int

    def given(self, j: int, labels: bool = False) -> Given:
        """Column ``j``; ``labels`` asks for its values as labels."""

    def reordered(self, order: Sequence[int]) -> Table:
        """The table with its columns in another order."""

    def column(self, j: int, new: Array, kind: str, usual: Any) -> Any:
        """Column ``j`` with ``new`` in its gaps, as the library holds it.

        ``usual`` is the type that it had when the imputer was fitted, None if that is
        not known.
        """

    def assembled(self, columns: dict[Any, Any], flags: dict[Any, Array]) -> Any:
        """A frame of some columns (None: as it came) with flags beside them."""

    def of_numbers(self, columns: dict[Any, Array]) -> Any:
        """A frame of floats with the rows of this one."""


def as_wanted(table: Table, j: int, wanted: str) -> Given:
    """Column ``j`` read as the kind that it had when the imputer was fitted.

    Raises
    ------
    ValueError
        If what it holds cannot be taken for that.
    """
    found = table.given(j, labels=wanted == "category")
    if found.kind == wanted or found.gaps.all():
        return _as_empty(found, wanted) if found.gaps.all() else found
    numbers = ("number", "integer")
    if wanted in numbers and found.kind in numbers:
        return replace(found, kind=wanted)
    zero_one = found.kind in numbers and bool(np.isin(found.known, (0.0, 1.0)).all())
    if wanted == "boolean" and zero_one:
        return replace(found, kind=wanted)
    raise ValueError(
        f"{found.called} held {WORDS[wanted]} in fit and holds {WORDS[found.kind]} "
        f"({found.dtype}) here; convert it to the type of the fit"
    )


def _as_empty(found: Given, wanted: str) -> Given:
    """A column without any value as one of the wanted kind."""
    m = len(found.gaps)
    if wanted == "category":
        return replace(found, kind=wanted, values=np.full(m, None, dtype=object))
    return replace(found, kind=wanted, values=np.full(m, np.nan))


def check_finite(given: Given) -> None:
    """Raise where a number is infinite."""
    if given.kind in ("number", "integer") and np.isinf(given.known).any():
        raise ValueError(
            f"X contains infinity or a value too large for float64: {given.called} "
            "must hold finite numbers; put NaN (missing) in their place"
        )


def whole_numbers(new: Array, name: str) -> list[int]:
    """Whole numbers that the type of this name ("int8") can hold.

    Examples
    --------
    >>> whole_numbers([1.6, 2**60 + 1, 300.0], "uint8")
    [2, 255, 255]
    """
    size = np.iinfo(name if name in np.sctypeDict else "int64")
    low, high = int(size.min), int(size.max)
    return [min(max(_rounded(x), low), high) for x in new]


def _rounded(value: Any) -> int:
    """A number to the next whole one; whole ones keep all their digits."""
    whole = isinstance(value, int | np.integer)
    return int(value) if whole else int(np.rint(value))
