"""What is known of the columns of a table after a fit."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ncarl.core.types import Array
from ncarl.tables.coding import (
    CategoryCode,
    NumberCode,
    category_code,
    number_code,
)
from ncarl.tables.given import Given, Table, as_wanted, check_finite


@dataclass(frozen=True)
class Column:
    """A column of the table of the fit.

    Attributes
    ----------
    name : object
        Its label.
    kind : str
        What it holds.
    role : {"used", "ignored", "empty"}
        Whether it is filled and helps to fill others; is handed through as it is; had
        no value at all.
    dtype, library : object, str
        Its type, and the library that type is of.
    code : NumberCode, CategoryCode or None
        The way to its coordinates and back.
    places : array of int
        Which coordinates of the model are its.
    gaps : bool
        Whether it had gaps.
    """

    name: Any
    kind: str
    role: str
    dtype: Any
    library: str
    code: NumberCode | CategoryCode | None
    places: Array
    gaps: bool

    @property
    def is_number(self) -> bool:
        """Whether it holds numbers that are filled."""
        return isinstance(self.code, NumberCode)

    def usual(self, table: Table) -> Any:
        """The type of the fit, if it is one of the table's library."""
        return self.dtype if self.library == table.library else None


@dataclass(frozen=True)
class Rules:
    """How columns are to be taken."""

    normalise: str | None
    max_categories: int
    ignore: tuple[Any, ...]
    empty: str


def fit_columns(table: Table, rules: Rules) -> list[Column]:
    """The columns of a table, with their codes."""
    _check_ignored(table, rules.ignore)
    found = [table.given(j) for j in range(len(table.names))]
    _refuse_others([g for g in found if g.name not in rules.ignore])
    columns: list[Column] = []
    next_place, crowded = 0, []
    for given in found:
        role, code = _taken(given, rules)
        if role == "crowded":
            crowded.append(given.called)
            role = "ignored"
        width = 0 if code is None else code.width
        places = np.arange(next_place, next_place + width)
        next_place += width
        gaps, library = bool(given.gaps.any()), table.library
        named = given.name, given.kind, role, given.dtype, library
        columns.append(Column(*named, code, places, gaps))
    _warn(crowded, [c for c in columns if c.role == "empty"], rules)
    return columns


def _taken(given: Given, rules: Rules) -> tuple[str, Any]:
    """The role of a column and its code."""
    if given.name in rules.ignore:
        return "ignored", None
    if given.gaps.all():
        return "empty", None
    check_finite(given)
    if given.kind in ("number", "integer"):
        return "used", number_code(given, rules.normalise)
    code = category_code(given)
    if given.kind == "category" and len(code.labels) > rules.max_categories:
        return "crowded", None
    return "used", code


def _check_ignored(table: Table, ignore: Sequence[Any]) -> None:
    """Raise where a column that is to be ignored is not there."""
    absent = [name for name in ignore if name not in table.names]
    if absent:
        listed = ", ".join(repr(name) for name in absent)
        raise ValueError(f"ignore names columns that X does not have: {listed}")


def _refuse_others(found: list[Given]) -> None:
    """Raise, naming the columns that cannot be filled."""
    bad = [g for g in found if g.kind == "other"]
    if not bad:
        return
    listed = ", ".join(f"{g.name!r} ({g.dtype})" for g in bad[:5])
    names = [g.name for g in bad]
    raise ValueError(
        "columns of X must hold numbers, yes or no, or categories; neither: "
        f"{listed}{' and more' if len(bad) > 5 else ''}. Pass ignore={names!r} to hand "
        "them through as they are, or make numbers of them first"
    )


def _warn(crowded: list[str], empty: list[Column], rules: Rules) -> None:
    """Say which columns are not filled."""
    if crowded:
        warnings.warn(
            f"{', '.join(crowded)}: more than max_categories={rules.max_categories} "
            "different values, so taken for names or texts: handed through with its "
            "gaps, and of no use for other columns. List it in ignore to say that this "
            "is right, or raise max_categories to have it filled.",
            UserWarning,
            stacklevel=4,
        )
    if empty:
        listed = ", ".join(repr(c.name) for c in empty)
        warnings.warn(
            f"nothing is known of columns {listed}: "
            + (
                "they are left out"
                if rules.empty == "drop"
                else "they stay empty; empty='drop' leaves them out"
            ),
            UserWarning,
            stacklevel=4,
        )


def read_columns(table: Table, columns: Sequence[Column]) -> list[Given | None]:
    """The used columns of a table as their kinds in fit; None for the others."""
    found: list[Given | None] = []
    for j, column in enumerate(columns):
        if column.role != "used":
            found.append(None)
            continue
        given = as_wanted(table, j, column.kind)
        check_finite(given)
        found.append(given)
    return found


def coordinates(
    table: Table, columns: Sequence[Column], given: Sequence[Given | None]
) -> Array:
    """The table as rows of coordinates, NaN where nothing is known."""
    parts = [
        column.code.encode(values)
        for column, values in zip(columns, given, strict=True)
        if column.code is not None and values is not None
    ]
    return np.hstack([np.empty((table.n_rows, 0)), *parts])
