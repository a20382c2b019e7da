"""What a recommender gives back: rows by name, reasons, and tables of every library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np

from ncarl.core.types import Array

#: Reasons that a text lists one by one.
SHOWN = 5
#: An id of every kind.
SAMPLES = {"int": 0, "str": "", "uuid": UUID(int=0)}


class Recommended(NamedTuple):
    """An item for a user.

    ``predicted`` is the rating to expect, ``n_ratings`` how many users rated the item;
    ``low`` and ``high`` are the ends of the interval, if one was asked for.
    """

    item: Any
    predicted: float
    n_ratings: int
    low: float | None = None
    high: float | None = None


class SimilarItem(NamedTuple):
    """An item like another: the correlation of tastes, and how many rated it."""

    item: Any
    similarity: float
    n_ratings: int


class Rated(NamedTuple):
    """An item and the rating that a user gave it."""

    item: Any
    rating: float


class Reason(NamedTuple):
    """A rating of a user, and what it adds to a prediction, in stars."""

    item: Any
    rating: float
    contribution: float


@dataclass(frozen=True)
class Explanation:
    """Why a user gets a prediction; its parts add up to it.

    Attributes
    ----------
    user, item : id
        Whom and what it is about.
    predicted : float
        The prediction, within the bounds of ratings.
    item_level : float
        What the item gets from users of whom nothing is known.
    user_level : float
        How far above that the user rates, on average over all items.
    reasons : tuple of Reason
        What every rating of the user adds beyond that: how far it is from the usual
        rating of its item, times a weight. Those that count most come first.
    similar_users : float
        What users of the same taste add; 0 for users who were added after the fit.

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
        """The sum of all parts: the prediction before it is held within bounds."""
        own = sum(reason.contribution for reason in self.reasons)
        return self.item_level + self.user_level + own + self.similar_users

    def lines(
        self, names: Mapping[Any, str] | None = None, most: int = SHOWN
    ) -> list[tuple[float, str]]:
        """The parts as amounts and words; ``names`` says what items are called."""
        called = names or {}
        what = called.get(self.item, self.item)
        side = "below" if self.user_level < 0.0 else "above"
        found = [
            (self.item_level, f"what {what} gets from others"),
            (self.user_level, f"you rate {side} average"),
        ]
        # One reason takes no more room than the word that there is one.
        most = len(self.reasons) if len(self.reasons) == most + 1 else most
        for reason in self.reasons[:most]:
            name = called.get(reason.item, reason.item)
            words = f"because you gave {reason.rating:g} to {name}"
            found.append((reason.contribution, words))
        rest = self.reasons[most:]
        if rest:
            total = sum(reason.contribution for reason in rest)
            found.append((total, f"{len(rest)} other ratings of yours"))
        if self.similar_users != 0.0:
            found.append((self.similar_users, "what users like you say"))
        return found

    def __str__(self) -> str:
        first = f"{self.predicted:.2f} for {self.user} and {self.item}"
        (level, words), *others = self.lines()
        rows = [f"{level:6.2f}  {words}", *(f"{signed(x):>6}  {t}" for x, t in others)]
        return "\n".join([first, *rows])


def signed(amount: float) -> str:
    """An amount of stars with its sign.

    Examples
    --------
    >>> signed(0.25), signed(-0.001)
    ('+0.25', '+0.00')
    """
    return f"{round(amount, 2) + 0.0:+.2f}"


def as_table(
    columns: Mapping[str, Any], library: str, row: type[Any], ids: Mapping[str, str]
) -> Any:
    """Columns as a frame of the library that the ratings came in, or as rows.

    Parameters
    ----------
    columns : mapping
        Columns by their names.
    library : {"pandas", "polars", "plain"}
        What to make of them.
    row : type
        Named tuple of a row, for "plain".
    ids : mapping of str to {"int", "str", "uuid"}
        Kinds of ids, by the columns that hold them.
    """
    if library == "plain":
        names = [_plain(column) for column in columns.values()]
        return [row(*cells) for cells in zip(*names, strict=True)]
    if any(len(column) for column in columns.values()):
        return _frame(columns, library, ids)
    # Libraries tell the type of a column by its cells: without any, by a sample.
    samples = {
        name: [SAMPLES[ids[name]]] if name in ids else np.zeros(1, column.dtype)
        for name, column in columns.items()
    }
    return _frame(samples, library, ids).head(0)


def _frame(columns: Mapping[str, Any], library: str, ids: Mapping[str, str]) -> Any:
    """Columns as a frame of pandas or polars."""
    if library == "pandas":
        import pandas as pd

        return pd.DataFrame({name: _plain(col) for name, col in columns.items()})
    import polars as pl

    return pl.DataFrame(
        [
            pl.Series(name, _plain(col), dtype=_polars_type(pl, col, name in ids))
            for name, col in columns.items()
        ]
    )


def _plain(column: Array | list[Any]) -> list[Any]:
    """A column as Python values."""
    return column if isinstance(column, list) else list(column.tolist())


def _polars_type(pl: Any, column: Any, ids: bool) -> Any:
    """The type of a column; None lets polars look."""
    if not ids:
        whole = np.issubdtype(column.dtype, np.integer)
        return pl.Int64 if whole else pl.Float64
    if not isinstance(column[0], int | str):
        return pl.Object
    return None
