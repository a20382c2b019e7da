"""What a claim is tested on: one column of a table, and the tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ncarl.study.entries import Entry
from ncarl.study.evidence import AS_PRINTED, OURS

#: Rows that the paper does not have: they do not compete for its claims.
FURTHER = (
    *("mean", "bias", "soft-impute", "bayes", AS_PRINTED, OURS),
    *("method-a", "method-b", "method-a-printed", "method-b-printed"),
)
#: Two errors count as equal within this share.
EQUAL = 0.01


def is_picture(entry: Entry) -> bool:
    """Whether a column is a picture, whose values are not those of the paper's."""
    return "image" in entry.group.lower() or "photo" in entry.group.lower()


def takes_part(entry: Entry, measure: str) -> bool:
    """Whether an entry has a figure.

    One that ran over its budget took at least so long: its time counts, as a bound.
    """
    late = entry.status == "over budget" and measure == "seconds"
    return entry.status == "done" or late


def is_rival(entry: Entry) -> bool:
    """Whether an entry is one of the paper's rivals."""
    return entry.method not in FURTHER


@dataclass(frozen=True)
class Column:
    """What a claim is tested on.

    Attributes
    ----------
    entries : sequence of Entry
        All rows of a column under one protocol.
    form : str
        The form of NCARL.
    measure : {"error", "seconds"}
        What is compared.
    part : bool
        Whether rows were left out.
    """

    entries: Sequence[Entry]
    form: str
    measure: str
    part: bool

    def entry(self, method: str) -> Entry | None:
        """The row of a method, if it has a figure."""
        able = (e for e in self.entries if takes_part(e, self.measure))
        return next((e for e in able if e.method == method), None)

    def value(self, method: str) -> float | None:
        """The figure of a method."""
        entry = self.entry(method)
        return None if entry is None else getattr(entry, self.measure)

    def late(self) -> bool:
        """Whether NCARL itself ran over its budget."""
        return any(
            e.method == self.form and e.status == "over budget" for e in self.entries
        )

    def rivals(self) -> tuple[list[float], int]:
        """Figures of the paper's rivals, and how many rivals have none.

        Times of another machine than NCARL's are none.
        """
        mine = self.entry(self.form)
        found, open_ = [], int(self.part)
        for one in filter(is_rival, self.entries):
            value = self.value(one.method)
            timed = self.measure == "seconds"
            elsewhere = timed and mine is not None and one.machine != mine.machine
            if value is None or elsewhere:
                open_ += 1
            else:
                found.append(value)
        return found, open_


def _among_first(column: Column, ahead: int) -> bool | None:
    """Whether at most so many rivals are below NCARL, to the printed digits."""
    mine = column.value(column.form)
    if column.late():
        return False
    if mine is None:
        return None
    rivals, open_ = column.rivals()
    below = sum(not at_or_below(mine, round(value, 4)) for value in rivals)
    if below > ahead:
        return False
    return True if below + open_ <= ahead and rivals else None


def least(column: Column) -> bool | None:
    """Whether NCARL is at or below all rivals."""
    return _among_first(column, 0)


def top_two(column: Column) -> bool | None:
    """Whether at most one rival is below NCARL."""
    return _among_first(column, 1)


def reached(column: Column) -> bool | None:
    """Whether the error, to the printed digits, is at or below the printed one."""
    entry = column.entry(column.form)
    if entry is None or entry.error is None or entry.printed is None:
        return None
    return at_or_below(entry.error, entry.printed)


def at_or_below(error: float, printed: float) -> bool:
    """Whether an error, rounded as the paper rounds, is at most the printed one.

    Examples
    --------
    >>> at_or_below(0.03444, 0.0344), at_or_below(0.03446, 0.0344)
    (True, False)
    """
    return round(error, 4) <= printed


def ratio_reached(column: Column) -> bool | None:
    """Whether NCARL's error over Nuclear's is at most the printed ratio."""
    entry, nuclear = column.entry(column.form), column.entry("nuclear")
    if entry is None or nuclear is None or not entry.printed or not nuclear.printed:
        return None
    if entry.error is None or not nuclear.error:
        return None
    printed = round(entry.printed / nuclear.printed, 4)
    return at_or_below(entry.error / nuclear.error, printed)


def below_nuclear(column: Column) -> bool | None:
    """Whether NCARL is below Nuclear, where both ran on one machine."""
    entry, nuclear = column.entry(column.form), column.entry("nuclear")
    mine, other = column.value(column.form), column.value("nuclear")
    if column.late():
        return False
    if entry is None or nuclear is None or mine is None or other is None:
        return None
    return mine < other if entry.machine == nuclear.machine else None


def ordered(column: Column) -> bool | None:
    """Whether the adaptive graph beats the fixed one, and that one none."""
    end = "-printed" if column.form == AS_PRINTED else ""
    full, fixed = column.value(column.form), column.value(f"method-b{end}")
    none = column.value(f"method-a{end}")
    if full is None or fixed is None or none is None:
        return None
    return full < fixed < none


def same_as_nuclear(column: Column) -> bool | None:
    """Whether the form without a graph has the error of Nuclear."""
    end = "-printed" if column.form == AS_PRINTED else ""
    value, nuclear = column.value(f"method-a{end}"), column.value("nuclear")
    if value is None or not nuclear:
        return None
    return abs(value / nuclear - 1.0) <= EQUAL


#: Whether a claim holds in a column; None where that is not known.
Test = Callable[[Column], bool | None]
