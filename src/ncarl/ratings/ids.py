"""Names of users and items as people have them, and the places they stand for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from uuid import UUID

import numpy as np

from ncarl.core.types import Array

#: What an id may be, by the name that a saved file has for it.
KINDS: dict[str, type] = {"int": int, "str": str, "uuid": UUID}


class UnknownIdError(LookupError, ValueError):
    """A user or an item that the fit has not seen."""


@dataclass(frozen=True)
class Ids:
    """Ids of one kind, in increasing order; their places count from 0.

    Attributes
    ----------
    name : str
        What errors call one of them: "user" or "item".
    kind : {"int", "str", "uuid"}
        What they are.
    values : tuple
        The ids.

    Examples
    --------
    >>> ids, codes = Ids.of("item", ["b", "a", "b"])
    >>> ids.values, codes.tolist(), ids.find("b"), ids.find("c")
    (('a', 'b'), [1, 0, 1], 1, None)
    """

    name: str
    kind: str
    values: tuple[Any, ...]

    @classmethod
    def of(cls, name: str, column: Sequence[Any]) -> tuple[Ids, Array]:
        """Ids of a column, and the place of each of its entries."""
        entries, kind = plain_ids(name, column)
        seen: dict[Any, int] = {}
        first = [seen.setdefault(entry, len(seen)) for entry in entries]
        values = tuple(sorted(seen))
        found = cls(name, kind, values)
        turned = np.array([found.places[value] for value in seen], dtype=np.int64)
        return found, turned[np.array(first, dtype=np.int64)]

    def __len__(self) -> int:
        return len(self.values)

    @cached_property
    def places(self) -> dict[Any, int]:
        """Place of each id."""
        return {value: place for place, value in enumerate(self.values)}

    def find(self, value: Any) -> int | None:
        """Place of an id; None if it is not known."""
        try:
            # True equals 1, and is no id.
            return None if isinstance(value, bool) else self.places.get(value)
        except TypeError:  # it cannot be hashed
            return None

    def place(self, value: Any) -> int:
        """Place of an id, or an error that says what ids look like."""
        found = self.find(value)
        if found is None:
            raise UnknownIdError(self.stranger(value))
        return found

    def codes(self, column: Iterable[Any]) -> Array:
        """Place of each entry of a column; -1 where it is not known."""
        found = (self.find(value) for value in column)
        return np.array([-1 if k is None else k for k in found], dtype=np.int64)

    def stranger(self, value: Any) -> str:
        """What is said of an id that is not known."""
        text = f"{self.name} {value!r} is not known"
        other = self.same_words(value)
        if other is not None:
            return f"{text}; did you mean {other!r} ({type(other).__name__})"
        some = ", ".join(repr(known) for known in self.values[:3])
        return f"{text}; there are {len(self)} {self.name}s, such as {some}"

    def same_words(self, value: Any) -> Any:
        """The id that a text says, or that is written like a value; None without."""
        try:
            given = KINDS[self.kind](str(value))
        except ValueError:
            return None
        return given if given in self.places else None

    def to_json(self) -> dict[str, Any]:
        """The ids as JSON can hold them."""
        plain = [str(v) if self.kind == "uuid" else v for v in self.values]
        return {"kind": self.kind, "values": plain}

    @classmethod
    def from_json(cls, name: str, content: dict[str, Any]) -> Ids:
        """The ids that `to_json` described."""
        kind = content["kind"]
        return cls(name, kind, tuple(KINDS[kind](v) for v in content["values"]))


def plain_ids(name: str, column: Sequence[Any]) -> tuple[list[Any], str]:
    """Entries of a column as plain ids of one kind, and that kind.

    Raises
    ------
    ValueError
        If an id is missing, or ids of several kinds are mixed.
    TypeError
        If ids are of a kind that cannot be kept.
    """
    entries = list(column)
    kinds = {kind: _kind_of(kind) for kind in set(map(type, entries))}
    if None in kinds.values():
        _refuse_kind(name, entries, kinds)
    found = sorted({kind for kind in kinds.values() if kind is not None})
    if len(found) > 1:
        some = [next(e for e in entries if kinds[type(e)] == kind) for kind in found]
        listed = " and ".join(
            f"{kind} ({e!r})" for kind, e in zip(found, some, strict=True)
        )
        raise ValueError(
            f"{name} ids must be of one kind, got {listed}; make them all text first"
        )
    kind = found[0] if found else "str"
    plain = KINDS[kind]
    if any(given is not plain for given in kinds):
        # NumPy's own whole numbers and texts, and subclasses such as enums.
        entries = [e if type(e) is plain else _as_plain(plain, e) for e in entries]
    return entries, kind


def _as_plain(plain: type, entry: Any) -> Any:
    """An id as the plain type; a UUID of a subclass as it is."""
    return entry if plain is UUID else plain(entry)


def _kind_of(given: type) -> str | None:
    """The kind of ids that a type is; None for no kind."""
    if issubclass(given, bool | np.bool_):
        return None
    if issubclass(given, int | np.integer):
        return "int"
    if issubclass(given, str):
        return "str"
    return "uuid" if issubclass(given, UUID) else None


def _refuse_kind(name: str, entries: list[Any], kinds: dict[type, str | None]) -> None:
    """Raise for an entry that is no id."""
    row = next(k for k, entry in enumerate(entries) if kinds[type(entry)] is None)
    entry = entries[row]
    if is_missing(entry):
        raise ValueError(
            f"{name} is missing in row {row} (rows count from 0); leave such rows out"
        )
    whole = isinstance(entry, float | np.floating) and float(entry).is_integer()
    hint = "whole numbers (int)" if whole else "text (str)"
    raise TypeError(
        f"{name} ids must be whole numbers, text or UUIDs, got {entry!r} of type "
        f"{type(entry).__name__} in row {row}; make the column {hint} first"
    )


def is_missing(value: Any) -> bool:
    """Whether a cell holds nothing: None, NaN, or what pandas has for it.

    Examples
    --------
    >>> is_missing(None), is_missing(float("nan")), is_missing(0.0)
    (True, True, False)
    """
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float | np.floating) and bool(np.isnan(value))
