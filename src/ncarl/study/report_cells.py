"""One cell of a report's table: ours, the paper's, and what marks it has earned."""

from __future__ import annotations

from collections.abc import Sequence

from ncarl.pages.style import safe
from ncarl.study.cells import DONE
from ncarl.study.entries import HONEST, Entry
from ncarl.study.report_style import (
    NOTHING,
    deviation,
    difference,
    number,
    reaches,
)
from ncarl.study.shown import printed_of, value_of

#: Seeds of a full study; fewer or more are written.
USUAL_SEEDS = 5
OLD = "†"

#: Group and setting.
Column = tuple[str, str]


def least_of(entries: Sequence[Entry], column: Column, measure: str) -> float | None:
    """The least value of a column among fits that came to their end."""
    values = [
        value_of(entry, measure)[0]
        for entry in entries
        if (entry.group, entry.setting) == column and entry.status == DONE
    ]
    return min((value for value in values if value is not None), default=None)


def cell(entry: Entry, measure: str, least: float | None = None) -> str:
    """What a table shows of an entry: ours, the paper's, how far apart.

    Parameters
    ----------
    entry : Entry
        What to show.
    measure : {"error", "seconds"}
        Which of its figures.
    least : float, optional
        The least value of the column, which stands out.

    Examples
    --------
    >>> entry = Entry("t", "paper", "ncarl", "NCARL", "0.5", "", 0.5, "done",
    ...               error=0.1301, seeds=5, printed=0.1309)
    >>> cell(entry, "error")[:58]
    '<span class="reached">≤ 0.1301</span><span class="small">p'
    """
    (value, _), parts = value_of(entry, measure), []
    if value is not None:
        parts.append(_ours(entry, measure, value, least))
    if entry.status != DONE or value is None:
        word = entry.status if entry.status != DONE else NOTHING
        title = f' title="{safe(entry.message)}"' if entry.message else ""
        parts.append(f'<span class="word"{title}>{safe(word)}</span>')
    lines = [_theirs(entry, measure, value), _further(entry, measure, value)]
    small = "<br>".join(line for line in lines if line)
    return " ".join(parts) + (f'<span class="small">{small}</span>' if small else "")


def _ours(entry: Entry, measure: str, value: float, least: float | None) -> str:
    """Mean and standard deviation, with the signs that it has earned."""
    theirs, _ = printed_of(entry, measure)
    _, sd = value_of(entry, measure)
    done = entry.status == DONE
    reached = done and theirs is not None and reaches(value, theirs, measure)
    shown, lowest = number(value, measure), number(least, measure)
    best = done and shown == lowest
    earned = {"best": best, "reached": reached}
    kinds = " ".join(name for name, due in earned.items() if due)
    text = f"{'≤ ' if reached else ''}{shown}{safe(deviation(sd, measure))}"
    text += OLD if entry.old else ""
    return f'<span class="{kinds}">{text}</span>' if kinds else f"<span>{text}</span>"


def _theirs(entry: Entry, measure: str, value: float | None) -> str:
    """What the paper prints, and how far ours is from it."""
    theirs, bound = printed_of(entry, measure)
    if bound or theirs is None:
        words = entry.printed_bound if measure == "seconds" else ""
        return f"paper {safe(words)}" if words else ""
    text = f"paper {number(theirs, measure)}"
    return text if value is None else f"{text}, {difference(value, theirs, measure)}"


def _further(entry: Entry, measure: str, value: float | None) -> str:
    """Seconds of picking, and the number of seeds where it is not the usual one."""
    parts = []
    if measure == "seconds" and entry.protocol == HONEST and value is not None:
        parts.append(f"picking {number(entry.picking, measure)}")
    if value is not None and entry.seeds != USUAL_SEEDS:
        parts.append(f"n={entry.seeds}")
    return ", ".join(parts)
