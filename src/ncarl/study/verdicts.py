"""Whether the paper's claims hold here, decided by the results and by nothing else.

A claim *holds* if NCARL as its authors' code has it satisfies it under every protocol
that was run. It *holds with changes* if only our form of NCARL does, or only one of the
protocols. Figures that are not there leave it undecided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from ncarl.study.entries import Entry, Verdict
from ncarl.study.evidence import (
    AS_PRINTED,
    CHANGED,
    FAILS,
    HOLDS,
    OURS,
    UNDECIDED,
    Evidence,
    name_of,
)
from ncarl.study.verdicts_figures import on_figures

#: Rows that the paper does not have: they do not compete for its claims.
FURTHER = ("mean", "bias", "soft-impute", "bayes", AS_PRINTED, OURS)
#: Two errors count as equal within this share.
EQUAL = 0.01

#: Errors or seconds of one column by method.
Column = Mapping[str, float]
Test = Callable[[str, Column, Mapping[str, Entry]], bool | None]


def verdicts(evidence: Evidence) -> list[Verdict]:
    """A verdict on every claim whose table or figure was asked for."""
    judges: Sequence[tuple[str, Callable[[Evidence], Iterable[Verdict]]]] = (
        ("table1", _on_table1),
        ("table2", _on_table2),
        ("table3", _on_table3),
        ("table4", _on_table4),
        ("fig4", _on_fig4),
    )
    found = [
        verdict
        for name, judge in judges
        if name in evidence.entries
        for verdict in judge(evidence)
    ]
    return [*found, *on_figures(evidence)]


def _on_table1(evidence: Evidence) -> list[Verdict]:
    """Synthetic data."""
    entries = [e for e in evidence.entries["table1"] if _of_paper(e, "Gaussian")]
    return [
        _judged("NCARL has the least error of all methods", "table 1", entries, _least),
        _judged("NCARL reaches its printed errors", "table 1", entries, _reached),
    ]


def _on_table2(evidence: Evidence) -> list[Verdict]:
    """Photographs and ratings."""
    entries = evidence.entries["table2"]
    pictures = [e for e in entries if is_picture(e)]
    ratings = [e for e in entries if e not in pictures]
    return [
        _judged(
            "NCARL has the least or second least error", "table 2", entries, _top_two
        ),
        _judged(
            "NCARL reaches its printed errors", "table 2, ratings", ratings, _reached
        ),
        _judged(
            "NCARL's error over Nuclear's is at most the printed ratio",
            "table 2, pictures",
            pictures,
            _ratio_reached,
        ),
    ]


def _on_table3(evidence: Evidence) -> list[Verdict]:
    """Time."""
    entries = evidence.entries["table3"]
    claim = "NCARL takes the least time of all methods"
    return [_judged(claim, "table 3", entries, _least, measure="seconds")]


def _on_table4(evidence: Evidence) -> list[Verdict]:
    """What the graph is worth."""
    entries = evidence.entries["table4"]
    graph = "A graph lowers the error, an adaptive one more than a fixed one"
    return [
        _judged(graph, "table 4", entries, _ordered),
        _judged(
            "Without a graph NCARL is the nuclear norm (theorem 5)",
            "table 4",
            [e for e in entries if _has_nuclear(entries, e.setting)],
            _same_as_nuclear,
        ),
    ]


def _on_fig4(evidence: Evidence) -> list[Verdict]:
    """MovieLens-1M."""
    entries = evidence.entries["fig4"]
    claim = "NCARL has the least error at every rate"
    faster = "NCARL is faster than Nuclear"
    return [
        _judged(claim, "figure 4", entries, _least),
        _judged(faster, "figure 4", entries, _below_nuclear, measure="seconds"),
    ]


def _of_paper(entry: Entry, further: str) -> bool:
    """Whether a column is one of the paper's."""
    return further not in entry.group


def is_picture(entry: Entry) -> bool:
    """Whether a column is a picture, whose values are not those of the paper's."""
    return "image" in entry.group.lower() or "photo" in entry.group.lower()


def _has_nuclear(entries: Sequence[Entry], setting: str) -> bool:
    """Whether Nuclear was run in a column."""
    return any(e.method == "nuclear" and e.setting == setting for e in entries)


def _judged(
    claim: str,
    where: str,
    entries: Sequence[Entry],
    test: Test,
    measure: str = "error",
) -> Verdict:
    """The verdict on a claim that is tested column by column."""
    counts: dict[tuple[str, str], tuple[int, int]] = {}
    protocols = list(dict.fromkeys(e.protocol for e in entries))
    for form in (AS_PRINTED, OURS):
        for protocol in protocols:
            mine = [e for e in entries if e.protocol == protocol]
            counts[form, protocol] = _count(mine, form, test, measure)
    words = [
        f"{name_of(form)}, {protocol} protocol: {held} of {known} columns"
        for (form, protocol), (held, known) in counts.items()
        if known
    ]
    return Verdict(claim, where, _state(counts), "; ".join(words) or "no figures")


def _count(
    entries: Sequence[Entry], form: str, test: Test, measure: str
) -> tuple[int, int]:
    """In how many columns a claim holds, and in how many that is known."""
    answers = []
    for setting in dict.fromkeys(e.setting for e in entries):
        able = [e for e in entries if e.setting == setting and _counts(e, measure)]
        column = {e.method: v for e in able if (v := getattr(e, measure)) is not None}
        by_method = {e.method: e for e in able}
        answers.append(test(form, column, by_method))
    known = [answer for answer in answers if answer is not None]
    return sum(known), len(known)


def _counts(entry: Entry, measure: str) -> bool:
    """Whether an entry takes part.

    A rival that ran over its budget took at least so long: its time is a bound that
    speaks for the rival.
    """
    late = entry.status == "over budget" and entry.method not in (AS_PRINTED, OURS)
    return entry.status == "done" or (late and measure == "seconds")


def _state(counts: Mapping[tuple[str, str], tuple[int, int]]) -> str:
    """The verdict that counts of columns amount to."""
    full = {key: held == known for key, (held, known) in counts.items() if known}
    if not full:
        return UNDECIDED
    printed = [whole for (form, _), whole in full.items() if form == AS_PRINTED]
    if printed and all(printed):
        return HOLDS
    return CHANGED if any(full.values()) else FAILS


def _rivals(column: Column) -> dict[str, float]:
    """The paper's rivals in a column."""
    ours = (*FURTHER, "method-a", "method-b", "method-a-printed", "method-b-printed")
    return {name: value for name, value in column.items() if name not in ours}


def _least(form: str, column: Column, entries: Mapping[str, Entry]) -> bool | None:
    """Whether NCARL is at or below all rivals, to the printed digits."""
    rivals = _rivals(column)
    if form not in column or not rivals:
        return None
    return at_or_below(column[form], round(min(rivals.values()), 4))


def _top_two(form: str, column: Column, entries: Mapping[str, Entry]) -> bool | None:
    """Whether at most one rival is below NCARL."""
    rivals = _rivals(column)
    if form not in column or not rivals:
        return None
    mine = column[form]
    return sum(not at_or_below(mine, round(v, 4)) for v in rivals.values()) <= 1


def _reached(form: str, column: Column, entries: Mapping[str, Entry]) -> bool | None:
    """Whether the error, to the printed digits, is at or below the printed one."""
    entry = entries.get(form)
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


def _ratio_reached(
    form: str, column: Column, entries: Mapping[str, Entry]
) -> bool | None:
    """Whether NCARL's error over Nuclear's is at most the printed ratio."""
    entry, nuclear = entries.get(form), entries.get("nuclear")
    if entry is None or nuclear is None or not entry.printed or not nuclear.printed:
        return None
    if form not in column or "nuclear" not in column:
        return None
    ratio = column[form] / column["nuclear"]
    return at_or_below(ratio, round(entry.printed / nuclear.printed, 4))


def _below_nuclear(
    form: str, column: Column, entries: Mapping[str, Entry]
) -> bool | None:
    """Whether NCARL is below Nuclear."""
    if form not in column or "nuclear" not in column:
        return None
    return column[form] < column["nuclear"]


def _ordered(form: str, column: Column, entries: Mapping[str, Entry]) -> bool | None:
    """Whether the adaptive graph beats the fixed one, and that one none."""
    end = "-printed" if form == AS_PRINTED else ""
    names = (form, f"method-b{end}", f"method-a{end}")
    if any(name not in column for name in names):
        return None
    full, fixed, none = (column[name] for name in names)
    return full < fixed < none


def _same_as_nuclear(
    form: str, column: Column, entries: Mapping[str, Entry]
) -> bool | None:
    """Whether the form without a graph has the error of Nuclear."""
    name = "method-a-printed" if form == AS_PRINTED else "method-a"
    if name not in column or "nuclear" not in column:
        return None
    return abs(column[name] / column["nuclear"] - 1.0) <= EQUAL
