"""Which figures of an entry tables and figures show."""

from __future__ import annotations

import math

from ncarl.study.entries import Entry

#: What can be shown, and what its axis is called.
MEASURES = {"error": "relative error on hidden entries", "seconds": "seconds"}


def check_measure(measure: str) -> None:
    """Raise if there is no such measure."""
    if measure not in MEASURES:
        raise ValueError(f"measure must be one of {list(MEASURES)}, got {measure!r}")


def value_of(entry: Entry, measure: str) -> tuple[float | None, float | None]:
    """Our mean and its standard deviation; None where there is none.

    Examples
    --------
    >>> entry = Entry("t", "paper", "ncarl", "NCARL", "0.5", "", 0.5, "done",
    ...               error=0.13, error_sd=0.0, seconds=float("nan"), seeds=1)
    >>> value_of(entry, "error"), value_of(entry, "seconds")
    ((0.13, None), (None, None))
    """
    if measure == "error":
        value, sd = entry.error, entry.error_sd
    else:
        value, sd = entry.seconds, entry.seconds_sd
    if value is None or not math.isfinite(value):
        return None, None
    # One seed has no spread, whatever was written down for it.
    known = sd is not None and math.isfinite(sd) and entry.seeds > 1
    return value, sd if known else None


def printed_of(entry: Entry, measure: str) -> tuple[float | None, bool]:
    """The paper's figure, and whether it is only a lower bound such as "> 3000".

    Examples
    --------
    >>> entry = Entry("t", "paper", "lrfd", "LRFD", "0.5", "", 0.5, "over budget",
    ...               printed=0.3, printed_bound="> 3000")
    >>> printed_of(entry, "error"), printed_of(entry, "seconds")
    ((0.3, False), (3000.0, True))
    """
    if measure == "error":
        return entry.printed, False
    if entry.printed_seconds is not None:
        return entry.printed_seconds, False
    try:
        return float(entry.printed_bound.lstrip(">≥ ").replace(",", "")), True
    except ValueError:
        return None, False
