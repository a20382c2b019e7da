"""The order of times, and the place of a start among them.

Text is the trouble: as text "10" comes before "9" and "Apr" before "Jan". Texts that
are numbers, or differ in their numbers alone, go by these; others stay as given.
"""

from __future__ import annotations

import datetime
import re
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from ncarl.core.types import Array

NUMBER = re.compile(r"\d+")
#: With several numbers the first must be a year: "2020-09", not "9/2020".
YEAR_FIRST = re.compile(r"\d{4}(?!\d)")
#: Text that may be a date: a year with something beside it, or three numbers and a time
#: of day. "7", "10:30" and "1.2.3" name lines, not times.
YEAR = r"(?<!\d)(?:1[89]|20)\d\d"
DATED = re.compile(
    rf"{YEAR}[-/. ]\w|\w[-/., ]+{YEAR}(?!\d)|{YEAR}\d{{4}}T\d|"
    r"\d+\D\d+\D\d+\D+\d+:\d"
)
#: Of many labels so many are read as dates, which takes time.
MOST_READ = 1000


def are_texts(times: Sequence[Any]) -> bool:
    """Whether all times are text."""
    return len(times) > 0 and all(isinstance(time, str) for time in times)


def numbers_in(times: Sequence[str]) -> list[tuple[float, ...]] | None:
    """What texts are ordered by, or None where their numbers do not say it.

    Examples
    --------
    >>> numbers_in(["week 9", "week 10"])
    [(9.0,), (10.0,)]
    >>> numbers_in(["2020-09", "2020-10"])
    [(2020.0, 9.0), (2020.0, 10.0)]
    >>> numbers_in(["Jan", "Feb"]) is None
    True
    """
    try:
        found: list[tuple[float, ...]] = [(float(time),) for time in times]
    except ValueError:
        pass
    else:
        return found if np.isfinite(found).all() else None
    if len({NUMBER.sub("#", time) for time in times}) != 1:
        return None
    keys = [tuple(map(float, NUMBER.findall(time))) for time in times]
    several = len(keys[0]) > 1
    if not keys[0] or (several and not all(map(YEAR_FIRST.match, times))):
        return None
    return keys


def read_as_times(labels: Any) -> bool:
    """Whether the labels of a pandas frame are dates, or all text that says dates.

    Examples
    --------
    >>> import pandas as pd
    >>> read_as_times(pd.Index(["2024-03-28 00:00", "2024-03-28 01:00"]))
    True
    >>> read_as_times(pd.Index(["a", "b"])) or read_as_times(pd.RangeIndex(2))
    False
    """
    import pandas as pd

    known = labels.dropna().tolist() if labels.nlevels == 1 else []
    if known and all(isinstance(label, datetime.date) for label in known):
        return True
    if not are_texts(known) or not all(map(DATED.search, known)):
        return False
    with warnings.catch_warnings():
        # Pandas wonders about days before months; either will do to know a date.
        warnings.simplefilter("ignore")
        some = known[:: -(-len(known) // MOST_READ)]
        found = pd.to_datetime(some, errors="coerce", format="mixed", utc=True)
    return bool(found.notna().all())


def increasing(times: Sequence[Any]) -> list[int]:
    """Positions of the times in increasing order; of plain texts in that given."""
    places = range(len(times))
    if are_texts(times):
        keys = numbers_in(times)
        return list(places) if keys is None else sorted(places, key=keys.__getitem__)
    try:
        return sorted(places, key=lambda k: times[k])
    except TypeError:
        kinds = sorted({type(time).__name__ for time in times})
        raise ValueError(
            f"times must be comparable with each other, got {' and '.join(kinds)}; "
            "name a column of labels with Panel.from_wide(table, labels=...)"
        ) from None


def refuse_unordered(name: str, times: Sequence[Any]) -> None:
    """Raise where lines name times by texts of which nobody can say the order."""
    if not are_texts(times) or numbers_in(times) is not None:
        return
    if list(times) != sorted(times):
        raise ValueError(
            f"times must have an order, and column {name!r} holds texts such as "
            f"{times[0]!r}; turn them into numbers or dates (pandas.to_datetime, "
            "polars str.to_date) first, or give a wide table with its columns in order"
        )


def from_start_on(times: Sequence[Any], start: Any) -> Array:
    """Which times are not before a start, shape (times,).

    Raises
    ------
    ValueError, TypeError
        If the start cannot be compared with the times.
    """
    if not are_texts(times):
        first = _like(times[0], start)
        return np.array([bool(time >= first) for time in times])
    if start in times:
        return np.arange(len(times)) >= times.index(start)
    keys = numbers_in([*times, start]) if isinstance(start, str) else None
    if keys is None:
        raise ValueError("no such time")
    return np.array([key >= keys[-1] for key in keys[:-1]])


def _like(time: Any, start: Any) -> Any:
    """The start as a date where times are dates and it is written as text."""
    if isinstance(start, str) and isinstance(time, datetime.date):
        zone = getattr(time, "tzinfo", None)
        found = _date(type(time), start)
        if zone is not None and found.tzinfo is None:
            # A start without a zone is meant in that of the panel.
            localize = getattr(found, "tz_localize", None)
            return localize(zone) if localize else found.replace(tzinfo=zone)
        return found
    return start


def _date(kind: Any, text: str) -> Any:
    """A date from text; of a month alone the first day."""
    if re.fullmatch(r"\d{4}", text):
        text += "-01"
    if re.fullmatch(r"\d{4}-\d{2}", text):
        text += "-01"
    return kind.fromisoformat(text)
