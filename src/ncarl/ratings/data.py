"""Ratings as tables: ids of users and items, columns read, results returned.

`Vocabulary` maps ids to positions, `read_columns` and its relatives take ratings from
frames, mappings and rows, and `as_table` makes tables of the results.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np

from ncarl.core.types import Array, cached_property
from ncarl.dataset import power_of_two_unit
from ncarl.datasets.movielens import Ratings
from ncarl.io.base import is_frame, is_polars, library_of
from ncarl.text import join_names, quote

#: Types of ids, by the name of their kind in saved files.
ID_TYPES: dict[str, type] = {"int": int, "str": str, "uuid": UUID}
#: One id of every kind, to give columns without rows their type.
SAMPLE_IDS = {"int": 0, "str": "", "uuid": UUID(int=0)}
#: Number of reasons that the text of an explanation lists one by one.
MAX_REASONS = 5


class UnknownIdError(LookupError, ValueError):
    """A user or an item that the fit has not seen."""


@dataclass(frozen=True)
class Vocabulary:
    """Ids of one kind, in increasing order, and their positions."""

    name: str  # for messages: "user" or "item"
    kind: str  # a key of `ID_TYPES`
    values: tuple[Any, ...]

    @classmethod
    def from_column(cls, name: str, column: Sequence[Any]) -> tuple[Vocabulary, Array]:
        """Vocabulary of a column, and the position of each of its entries."""
        entries, kind = normalize_ids(name, column)
        seen: dict[Any, int] = {}  # by first occurrence
        codes = [seen.setdefault(entry, len(seen)) for entry in entries]
        vocabulary = cls(name, kind, tuple(sorted(seen)))
        return vocabulary, vocabulary.encode(seen)[np.array(codes, dtype=np.int64)]

    def __len__(self) -> int:
        return len(self.values)

    @cached_property
    def positions(self) -> dict[Any, int]:
        """Position of each id."""
        return {value: position for position, value in enumerate(self.values)}

    def find(self, value: Any) -> int | None:
        """Position of an id, None if it is unknown."""
        try:
            # True equals 1 but is not an id.
            return None if isinstance(value, bool) else self.positions.get(value)
        except TypeError:  # it cannot be hashed
            return None

    def position_of(self, value: Any) -> int:
        """Position of an id; raise `UnknownIdError` if it is unknown."""
        position = self.find(value)
        if position is None:
            raise UnknownIdError(self.unknown_message(value))
        return position

    def encode(self, column: Iterable[Any]) -> Array:
        """Position of each entry of a column, -1 for unknown ones."""
        positions = (self.find(value) for value in column)
        return np.array([-1 if k is None else k for k in positions], dtype=np.int64)

    def unknown_message(self, value: Any) -> str:
        """Error message for an unknown id."""
        text = f"{self.name} {quote(value)} is not known"
        other = self.parse(value)
        if other is not None:
            return f"{text}; did you mean {quote(other)} ({type(other).__name__})"
        some = join_names(self.values[:3], form=repr)
        return f"{text}; there are {len(self)} {self.name}s, such as {some}"

    def parse(self, value: Any) -> Any:
        """The known id that is written like ``value``, None if there is none."""
        try:
            parsed = ID_TYPES[self.kind](str(value))
        except ValueError:
            return None
        return parsed if parsed in self.positions else None

    def to_json(self) -> dict[str, Any]:
        """Convert to a JSON-serializable dict."""
        plain = [str(v) if self.kind == "uuid" else v for v in self.values]
        return {"kind": self.kind, "values": plain}

    @classmethod
    def from_json(cls, name: str, content: dict[str, Any]) -> Vocabulary:
        """Vocabulary from the dict of `to_json`."""
        values = ids_from_json(name, content["kind"], content["values"])
        if values != sorted(values):
            raise ValueError(f"{name} ids must increase")
        return cls(name, content["kind"], tuple(values))


def ids_from_json(name: str, kind: str, values: list[Any]) -> list[Any]:
    """Ids from what JSON holds of them; ValueError unless they are valid."""
    ids = [ID_TYPES[kind](value) for value in values]
    plain = int if kind == "int" else str
    if {type(value) for value in values} - {plain} or len(set(ids)) < len(ids):
        raise ValueError(f"{name} ids must be of type {kind}, each once")
    return ids


def normalize_ids(name: str, column: Sequence[Any]) -> tuple[list[Any], str]:
    """Convert a column to plain Python ids of one kind; also return the kind."""
    entries = list(column)
    kinds = {given: _kind_of(given) for given in set(map(type, entries))}
    if None in kinds.values():
        row = next(k for k, entry in enumerate(entries) if kinds[type(entry)] is None)
        _raise_invalid_id(name, entries[row], row)
    present = sorted({str(kind) for kind in kinds.values()})
    if len(present) > 1:
        first = {kinds[type(entry)]: entry for entry in reversed(entries)}
        examples = [f"{kind} ({first[kind]!r})" for kind in present]
        listed = join_names(examples, last=" and ")
        raise ValueError(
            f"{name} ids must be of one kind, got {listed}; make them all text first"
        )
    kind = present[0] if present else "str"
    # NumPy scalars and subclasses such as enums become plain ids; UUID(UUID(...)) is an
    # error.
    plain = ID_TYPES[kind]
    if kind != "uuid" and any(given is not plain for given in kinds):
        entries = [e if type(e) is plain else plain(e) for e in entries]
    return entries, kind


def _kind_of(id_type: type) -> str | None:
    if issubclass(id_type, bool | np.bool_):
        return None
    if issubclass(id_type, int | np.integer):
        return "int"
    if issubclass(id_type, str):
        return "str"
    return "uuid" if issubclass(id_type, UUID) else None


def _raise_invalid_id(name: str, entry: Any, row: int) -> None:
    if is_missing(entry):
        raise ValueError(
            f"{name} is missing in row {row} (rows count from 0); leave such rows out"
        )
    whole = isinstance(entry, float | np.floating) and float(entry).is_integer()
    hint = "integers (int)" if whole else "text (str)"
    raise TypeError(
        f"{name} ids must be integers, text or UUIDs, got {quote(entry)} of type "
        f"{type(entry).__name__} in row {row}; make the column {hint} first"
    )


def is_missing(value: Any) -> bool:
    """Whether a cell is None, NaN, ``pandas.NA`` or ``pandas.NaT``."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, float | np.floating) and bool(np.isnan(value))


def read_columns(
    table: Any, names: Sequence[str], what: str = "ratings"
) -> tuple[list[list[Any]], str]:
    """Read columns as lists; also return the library: pandas, polars or "plain".

    ``table`` is a pandas or polars frame or a mapping with columns of these names; a
    tuple of that many columns; `Ratings`; otherwise rows of that many values. ``what``
    is its name in error messages.
    """
    if isinstance(table, Ratings):
        ids = [table.user_ids[table.users], table.item_ids[table.items]]
        columns = [*ids, table.ratings][-len(names) :]
        return [_to_list(column) for column in columns], "plain"
    if type(table).__name__ == "LazyFrame" and library_of(table) == "polars":
        raise TypeError(f"{what} must be a DataFrame, got a LazyFrame; call collect()")
    if is_frame(table):
        _check_names(list(table.columns), names, what)
        library = "polars" if is_polars(table) else "pandas"
        return [_to_list(table[name]) for name in names], library
    if isinstance(table, Mapping):
        _check_names(list(table), names, what)
        columns = [_to_list(table[name]) for name in names]
    elif isinstance(table, tuple) and len(table) == len(names):
        columns = [_to_list(column) for column in table]
    else:
        columns = _from_rows(table, names, what)
    if len({len(column) for column in columns}) > 1:
        pairs = zip(names, columns, strict=True)
        sizes = ", ".join(f"{name} has {len(column)}" for name, column in pairs)
        raise ValueError(f"columns of {what} must have one length: {sizes}")
    return columns, "plain"


def read_user_ratings(table: Any, names: Sequence[str]) -> list[list[Any]]:
    """Read items and ratings of one user from a mapping, a frame, columns or rows."""
    if isinstance(table, Mapping) and not is_frame(table):
        return [list(table), list(table.values())]
    return read_columns(table, names)[0]


def read_pairs(users: Any, items: Any) -> tuple[list[Any], list[Any], bool]:
    """User and item ids as lists of one length, and whether both were single ids."""
    one_user, one_item = _is_single(users), _is_single(items)
    user_ids = [users] if one_user else _to_list(users)
    item_ids = [items] if one_item else _to_list(items)
    if one_user and not one_item:
        user_ids = user_ids * len(item_ids)
    elif one_item and not one_user:
        item_ids = item_ids * len(user_ids)
    if len(user_ids) != len(item_ids):
        raise ValueError(
            "users and items must have one length, got "
            f"{len(user_ids)} and {len(item_ids)}"
        )
    return user_ids, item_ids, one_user and one_item


def _is_single(value: Any) -> bool:
    if isinstance(value, str | bytes):
        return True
    return not (hasattr(value, "__len__") or hasattr(value, "__iter__"))


def _check_names(present: list[Any], names: Sequence[str], what: str) -> None:
    for name in names:
        if present.count(name) == 1:
            continue
        if name in present:
            raise ValueError(f"{what} has {present.count(name)} columns named {name!r}")
        raise ValueError(
            f"{what} has no column {name!r}; its columns are "
            f"{join_names(present, 8, form=repr)}. Name the columns: "
            "Recommender(user=..., item=..., rating=...)"
        )


def _to_list(column: Any) -> list[Any]:
    for method in ("tolist", "to_list"):
        if hasattr(column, method):
            values = getattr(column, method)()
            return values if isinstance(values, list) else [values]
    if isinstance(column, str | bytes):
        raise TypeError(f"a column must be a list of values, got {column!r}")
    return list(column)


def _from_rows(table: Any, names: Sequence[str], what: str) -> list[list[Any]]:
    forms = (
        f"{what} must be a DataFrame, a mapping or tuple of columns, or a list of rows "
        f"({', '.join(names)})"
    )
    if isinstance(table, str | bytes) or not hasattr(table, "__iter__"):
        raise TypeError(f"{forms}, got {type(table).__name__}")
    if hasattr(table, "tocoo"):
        raise TypeError(
            f"{forms}, got a {type(table).__name__}; with R = {what}.tocoo() pass "
            "(R.row, R.col, R.data)"
        )
    rows = _to_list(table)
    for k, row in enumerate(rows):
        if isinstance(row, str | bytes) or not hasattr(row, "__len__"):
            raise TypeError(f"{forms}, got {row!r} as row {k}")
        if len(row) != len(names):
            raise ValueError(f"{forms}; row {k} has {len(row)} values: {row!r}")
    return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in names]


def parse_ratings(column: Sequence[Any], name: str) -> Array:
    """Convert ratings to floats; the error for an invalid one names its row."""
    try:
        values = np.array(column, dtype=np.float64)
        if values.ndim == 1 and not {str, bytes} & set(map(type, column)):
            _check_no_invalid_rows(np.flatnonzero(np.isnan(values)), name)
            _check_no_invalid_rows(np.flatnonzero(np.isinf(values)), name, "infinite")
            return values
    except (TypeError, ValueError):
        missing = [k for k, value in enumerate(column) if is_missing(value)]
        _check_no_invalid_rows(missing, name)
        if all(isinstance(value, float | int) for value in column):
            raise
    row, value = next(
        (k, v)
        for k, v in enumerate(column)
        if isinstance(v, str | bytes) or np.ndim(v) or not hasattr(v, "__float__")
    )
    raise TypeError(
        f"{name} must be numbers, got {quote(value)} of type {type(value).__name__} in "
        f"row {row}; convert the column first"
    )


def _check_no_invalid_rows(rows: Any, name: str, problem: str = "missing") -> None:
    if len(rows):
        more = f", and in {len(rows) - 1} more" if len(rows) > 1 else ""
        raise ValueError(
            f"{name} is {problem} in row {int(rows[0])}{more} (rows count from 0); "
            "leave such rows out: items without a rating are not in the table"
        )


def merge_duplicates(
    users: Array, items: Array, values: Array, n_items: int, rule: str
) -> tuple[Array, Array, Array, int | None]:
    """Merge ratings of the same pair by a rule: "last", "mean" or "error".

    Also returns the first row of a repeated pair if the rule is "error", else None.
    """
    keys = users * n_items + items
    pairs, inverse, counts = np.unique(keys, return_inverse=True, return_counts=True)
    if len(pairs) == len(keys):
        return users, items, values, None
    if rule == "error":
        return users, items, values, int(np.flatnonzero(counts[inverse] > 1)[0])
    if rule == "mean":
        unit = power_of_two_unit(values)  # the sums of the largest could overflow
        merged = np.bincount(inverse, weights=values / unit) / counts * unit
    else:
        merged = np.empty(len(pairs))
        merged[inverse] = values  # the last assignment wins
    return pairs // n_items, pairs % n_items, merged, None


class RecommendedItem(NamedTuple):
    """A recommended item.

    ``predicted`` is the predicted rating, ``n_ratings`` the number of users who rated
    the item; ``low`` and ``high`` are the ends of the interval, if one was requested.
    """

    item: Any
    predicted: float
    n_ratings: int
    low: float | None = None
    high: float | None = None


class SimilarItem(NamedTuple):
    """An item similar to another: their correlation, and its number of ratings."""

    item: Any
    similarity: float
    n_ratings: int


class RatedItem(NamedTuple):
    """An item and a user's rating of it."""

    item: Any
    rating: float


class Reason(NamedTuple):
    """A rating of a user and its contribution to a prediction."""

    item: Any
    rating: float
    contribution: float


@dataclass(frozen=True)
class Explanation:
    """Parts of a prediction; their sum is the prediction before it is clipped.

    Attributes
    ----------
    user, item : id
        The pair.
    predicted : float
        The prediction, within the bounds of ratings.
    item_level, user_level : float
        Prediction of the item for a user without ratings, and the deviation of the
        user from that, averaged over all items.
    reasons : tuple of Reason
        Contribution of each rating of the user beyond that, the largest first.
    similar_users : float
        Contribution of users with similar taste; 0 for users added after the fit.

    Examples
    --------
    >>> why = (Reason("milk", 5, 0.6),)
    >>> parts = Explanation("ann", "tea", 4.4, 3.9, -0.1, why, 0.0)
    >>> print(parts)
    4.40 for ann and tea
      3.90  what tea gets from others
     -0.10  you rate below average
     +0.60  because you gave 5 to milk
    """

    user: Any
    item: Any
    predicted: float
    item_level: float
    user_level: float
    reasons: tuple[Reason, ...]
    similar_users: float

    @property
    def value(self) -> float:
        """Sum of all parts: the prediction before it is clipped to the bounds."""
        own = sum(reason.contribution for reason in self.reasons)
        return self.item_level + self.user_level + own + self.similar_users

    def lines(
        self, names: Mapping[Any, str] | None = None, max_reasons: int = MAX_REASONS
    ) -> list[tuple[float, str]]:
        """The parts as pairs (amount, text); ``names`` are the titles of items."""
        titles = names or {}
        title = titles.get(self.item, self.item)
        side = "below" if self.user_level < 0.0 else "above"
        lines = [
            (self.item_level, f"what {title} gets from others"),
            (self.user_level, f"you rate {side} average"),
        ]
        if len(self.reasons) == max_reasons + 1:
            max_reasons += 1  # it takes no more room than the line that counts it
        for reason in self.reasons[:max_reasons]:
            name = titles.get(reason.item, reason.item)
            text = f"because you gave {reason.rating:g} to {name}"
            lines.append((reason.contribution, text))
        rest = self.reasons[max_reasons:]
        if rest:
            total = sum(reason.contribution for reason in rest)
            lines.append((total, f"{len(rest)} other ratings of yours"))
        if self.similar_users != 0.0:
            lines.append((self.similar_users, "what users like you say"))
        return lines

    def __str__(self) -> str:
        first = f"{self.predicted:.2f} for {self.user} and {self.item}"
        (level, text), *others = self.lines()
        rows = [f"{format_signed(amount):>6}  {line}" for amount, line in others]
        return "\n".join([first, f"{level:6.2f}  {text}", *rows])


def format_signed(amount: float) -> str:
    """Format a contribution with its sign; -0.001 is +0.00."""
    return f"{round(amount, 2) + 0.0:+.2f}"


def as_table(
    columns: Mapping[str, Any], library: str, row_type: type[Any], id_kind: str
) -> Any:
    """A frame, or named tuples for "plain", of a column of ids and other arrays."""
    cells = {k: c if isinstance(c, list) else c.tolist() for k, c in columns.items()}
    first, *others = cells
    if library == "plain":
        return [row_type(*row) for row in zip(*cells.values(), strict=True)]
    empty = not cells[first]
    if empty:
        # Libraries infer the type of a column from its cells: use a sample of each.
        cells = {name: np.zeros(1, columns[name].dtype).tolist() for name in others}
        cells = {first: [SAMPLE_IDS[id_kind]], **cells}
    if library == "pandas":
        import pandas as pd

        frame = pd.DataFrame(cells)
    else:
        import polars as pl

        types = {first: pl.Object} if id_kind == "uuid" else {}
        frame = pl.DataFrame(
            [pl.Series(name, c, dtype=types.get(name)) for name, c in cells.items()]
        )
    return frame.head(0) if empty else frame


@dataclass(frozen=True)
class RecommenderEvaluation:
    """Errors of predictions and intervals, and quality of recommended lists.

    Attributes
    ----------
    rmse, mae : float
        Root mean square and mean absolute error of predicted ratings.
    coverage, width, level : float
        Fraction of the ratings inside their intervals, mean width of the intervals,
        and their nominal level; coverage and width are NaN without a noise model.
    ndcg, recall, precision, hit_rate : float
        Ranking metrics of the first ``n`` recommended items, averaged over users; NaN
        if no user has a relevant item.
    n, relevance_threshold : int, float
        Length of the lists, and the lowest test rating of a relevant item.
    n_ratings, n_users : int
        Number of test ratings, and of users with a relevant item.
    unknown_users, unknown_items : int
        Number of test ratings whose user, or item, the fit has not seen.
    """

    rmse: float
    mae: float
    coverage: float
    width: float
    level: float
    ndcg: float
    recall: float
    precision: float
    hit_rate: float
    n: int
    relevance_threshold: float
    n_ratings: int
    n_users: int
    unknown_users: int
    unknown_items: int

    def as_dict(self) -> dict[str, Any]:
        """Convert to a dict."""
        return asdict(self)
