"""Ratings from whatever they come in: frames, columns, rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ncarl.core.types import Array
from ncarl.datasets.ratings import Ratings
from ncarl.ratings.ids import is_missing
from ncarl.sources.frames import is_frame, is_polars, library_of

DUPLICATES = ("error", "last", "mean")


@dataclass(frozen=True)
class Read:
    """Columns of a table of ratings.

    Attributes
    ----------
    columns : list of lists
        The columns that were asked for, as plain Python values.
    library : {"pandas", "polars", "plain"}
        What tables are given back in.
    """

    columns: list[list[Any]]
    library: str


def read_columns(table: Any, names: Sequence[str], what: str = "ratings") -> Read:
    """Some columns of a frame, a mapping, a tuple of columns, or rows.

    Parameters
    ----------
    table : frame, mapping, tuple of columns, `Ratings`, or rows
        A pandas or polars frame or a mapping with columns of these names; a tuple of
        that many columns; otherwise rows of that many values.
    names : sequence of str
        The columns.
    what : str
        What errors call the table.
    """
    if isinstance(table, Ratings):
        ids = [table.user_ids[table.users], table.item_ids[table.items]]
        columns = [*ids, table.ratings][-len(names) :]
        return Read([_listed(column) for column in columns], "plain")
    if type(table).__name__ == "LazyFrame" and library_of(table) == "polars":
        raise TypeError(f"{what} must be a DataFrame, got a LazyFrame; call collect()")
    if is_frame(table):
        _check_names(list(table.columns), names, what)
        library = "polars" if is_polars(table) else "pandas"
        return Read([_listed(table[name]) for name in names], library)
    if isinstance(table, Mapping):
        _check_names(list(table), names, what)
        columns = [_listed(table[name]) for name in names]
    elif isinstance(table, tuple) and len(table) == len(names):
        columns = [_listed(column) for column in table]
    else:
        columns = _from_rows(table, names, what)
    if len({len(column) for column in columns}) > 1:
        sizes = ", ".join(
            f"{name} has {len(column)}"
            for name, column in zip(names, columns, strict=True)
        )
        raise ValueError(f"columns of {what} must have one length: {sizes}")
    return Read(columns, "plain")


def read_rated(table: Any, names: Sequence[str]) -> list[list[Any]]:
    """Items and ratings of one user: a mapping of items, a frame, columns or rows."""
    if isinstance(table, Mapping) and not is_frame(table):
        return [list(table), list(table.values())]
    return read_columns(table, names).columns


def read_pairs(users: Any, items: Any) -> tuple[list[Any], list[Any], bool]:
    """Ids of both as lists of one length, and whether both were single ids."""
    one, other = _is_single(users), _is_single(items)
    who = [users] if one else _listed(users)
    what = [items] if other else _listed(items)
    if one and not other:
        who = who * len(what)
    elif other and not one:
        what = what * len(who)
    if len(who) != len(what):
        raise ValueError(
            f"users and items must have one length, got {len(who)} and {len(what)}"
        )
    return who, what, one and other


def _is_single(given: Any) -> bool:
    """Whether this is one id, not a list of them."""
    if isinstance(given, str | bytes):
        return True
    return not (hasattr(given, "__len__") or hasattr(given, "__iter__"))


def _check_names(found: list[Any], names: Sequence[str], what: str) -> None:
    """Raise if a column lacks, or is there twice."""
    for name in names:
        if found.count(name) == 1:
            continue
        if name in found:
            raise ValueError(f"{what} has {found.count(name)} columns named {name!r}")
        listed = ", ".join(repr(other) for other in found[:8])
        more = " and more" if len(found) > 8 else ""
        raise ValueError(
            f"{what} has no column {name!r}; its columns are {listed}{more}. Say which "
            "is which: Recommender(user=..., item=..., rating=...)"
        )


def _listed(column: Any) -> list[Any]:
    """A column as plain Python values."""
    for method in ("tolist", "to_list"):
        if hasattr(column, method):
            values = getattr(column, method)()
            return values if isinstance(values, list) else [values]
    if isinstance(column, str | bytes):
        raise TypeError(f"a column must be a list of values, got {column!r}")
    return list(column)


def _from_rows(table: Any, names: Sequence[str], what: str) -> list[list[Any]]:
    """Columns of a list of rows."""
    wanted = f"({', '.join(names)})"
    forms = (
        f"{what} must be a DataFrame, a mapping or tuple of columns, or a list of rows "
        f"{wanted}"
    )
    if isinstance(table, str | bytes) or not hasattr(table, "__iter__"):
        raise TypeError(f"{forms}, got {type(table).__name__}")
    rows = _listed(table)
    for k, row in enumerate(rows):
        if isinstance(row, str | bytes) or not hasattr(row, "__len__"):
            raise TypeError(f"{forms}, got {row!r} as row {k}")
        if len(row) != len(names):
            raise ValueError(f"{forms}; row {k} has {len(row)} values: {row!r}")
    return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in names]


def numbers(column: Sequence[Any], name: str) -> Array:
    """Ratings as floats, or an error that says which one is not a number."""
    try:
        values = np.array(column, dtype=np.float64)
        if values.ndim == 1 and not {str, bytes} & set(map(type, column)):
            _refuse_gap(np.flatnonzero(np.isnan(values)), name)
            _refuse_gap(np.flatnonzero(np.isinf(values)), name, "infinite")
            return values
    except (TypeError, ValueError):
        _refuse_gap([k for k, value in enumerate(column) if is_missing(value)], name)
        if all(isinstance(value, float | int) for value in column):
            raise
    row = next(k for k, v in enumerate(column) if not _is_number(v))
    raise TypeError(
        f"{name} must be numbers, got {column[row]!r} of type "
        f"{type(column[row]).__name__} in row {row}; convert the column first"
    )


def _is_number(value: Any) -> bool:
    """Whether a cell is a number."""
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return not isinstance(value, str | bytes)


def _refuse_gap(rows: Any, name: str, how: str = "missing") -> None:
    """Raise if some ratings are missing."""
    if len(rows):
        more = f", and in {len(rows) - 1} more" if len(rows) > 1 else ""
        raise ValueError(
            f"{name} is {how} in row {int(rows[0])}{more} (rows count from 0); leave "
            "such rows out: what is not rated is not in the table"
        )


def merged(
    owners: Array, items: Array, values: Array, n_items: int, rule: str
) -> tuple[Array, Array, Array, int | None]:
    """Ratings with each pair once; the last part is a row at fault, if any.

    Parameters
    ----------
    owners, items : int arrays
        Places of users and items.
    values : array
        Ratings.
    n_items : int
        How many items there are.
    rule : {"error", "last", "mean"}
        What becomes of a pair that is there more than once.
    """
    keys = owners * n_items + items
    pairs, inverse, counts = np.unique(keys, return_inverse=True, return_counts=True)
    if len(pairs) == len(keys):
        return owners, items, values, None
    if rule == "error":
        twice = np.flatnonzero(counts[inverse] > 1)
        return owners, items, values, int(twice[0])
    if rule == "mean":
        kept = np.bincount(inverse, weights=values) / counts
    else:
        kept = np.empty(len(pairs))
        kept[inverse] = values  # the last one assigned stays
    return pairs // n_items, pairs % n_items, kept, None
