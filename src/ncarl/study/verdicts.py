"""Whether the paper's claims hold here, decided by the results and by nothing else.

A claim *holds* if NCARL as its authors' code has it satisfies it in every column under
every protocol that was run. It *holds with changes* if our form of NCARL does so under
one of them, or the printed form under one only. It *does not hold* if each of them
fails in some column. Rows and columns that were not run leave it undecided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ncarl.study.columns import (
    Column,
    Test,
    below_nuclear,
    is_picture,
    is_rival,
    least,
    ordered,
    ratio_reached,
    reached,
    same_as_nuclear,
    takes_part,
    top_two,
)
from ncarl.study.entries import Entry, Verdict
from ncarl.study.evidence import (
    AS_PRINTED,
    OURS,
    Count,
    Evidence,
    name_of,
    state_of,
)
from ncarl.study.verdicts_figures import on_figures


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
    entries = [e for e in evidence.entries["table1"] if not e.further]
    part = "table1" in evidence.partial
    best = "NCARL has the least error of all methods"
    return [
        _judged(best, "table 1", entries, least, part=part),
        _judged("NCARL reaches its printed errors", "table 1", entries, reached),
    ]


def _on_table2(evidence: Evidence) -> list[Verdict]:
    """Photographs and ratings."""
    entries = evidence.entries["table2"]
    pictures = [e for e in entries if is_picture(e)]
    ratings = [e for e in entries if e not in pictures]
    return [
        _judged(
            "NCARL has the least or second least error",
            "table 2",
            entries,
            top_two,
            part="table2" in evidence.partial,
        ),
        _judged(
            "NCARL reaches its printed errors", "table 2, ratings", ratings, reached
        ),
        _judged(
            "NCARL's error over Nuclear's is at most the printed ratio",
            "table 2, pictures",
            pictures,
            ratio_reached,
        ),
    ]


def _on_table3(evidence: Evidence) -> list[Verdict]:
    """Time."""
    entries = evidence.entries["table3"]
    claim = "NCARL takes the least time of all methods"
    part = "table3" in evidence.partial
    return [_judged(claim, "table 3", entries, least, measure="seconds", part=part)]


def _on_table4(evidence: Evidence) -> list[Verdict]:
    """What the graph is worth."""
    entries = evidence.entries["table4"]
    graph = "A graph lowers the error, an adaptive one more than a fixed one"
    return [
        _judged(graph, "table 4", entries, ordered),
        _judged(
            "Without a graph NCARL is the nuclear norm (theorem 5)",
            "table 4",
            [e for e in entries if _has_nuclear(entries, e.setting)],
            same_as_nuclear,
        ),
    ]


def _on_fig4(evidence: Evidence) -> list[Verdict]:
    """MovieLens-1M."""
    entries = evidence.entries["fig4"]
    claim = "NCARL has the least error at every rate"
    faster = "NCARL is faster than Nuclear"
    return [
        _judged(claim, "figure 4", entries, least, part="fig4" in evidence.partial),
        _judged(faster, "figure 4", entries, below_nuclear, measure="seconds"),
    ]


def _has_nuclear(entries: Sequence[Entry], setting: str) -> bool:
    """Whether Nuclear was run in a column."""
    return any(e.method == "nuclear" and e.setting == setting for e in entries)


def _judged(
    claim: str,
    where: str,
    entries: Sequence[Entry],
    test: Test,
    *,
    measure: str = "error",
    part: bool = False,
) -> Verdict:
    """The verdict on a claim that is tested column by column."""
    counts: dict[tuple[str, str], Count] = {}
    protocols = list(dict.fromkeys(e.protocol for e in entries))
    for form in (AS_PRINTED, OURS):
        for protocol in protocols:
            mine = [e for e in entries if e.protocol == protocol]
            if any(e.method == form for e in mine):
                counts[form, protocol] = _count(mine, form, test, measure, part)
    words = [
        f"{name_of(form)}, {protocol} protocol: {count}"
        for (form, protocol), count in counts.items()
    ]
    missing = _missing(entries, measure) if test in (least, top_two) else []
    if missing:
        words.append(f"without {', '.join(missing)} in some columns")
    if part:
        words.append("only some rows were run")
    return Verdict(claim, where, state_of(counts), "; ".join(words) or "no figures")


def _missing(entries: Sequence[Entry], measure: str) -> list[str]:
    """Rivals of the paper that some columns lack."""
    lacking = (e for e in entries if not takes_part(e, measure) and is_rival(e))
    return list(dict.fromkeys(e.label for e in lacking))


def _count(
    entries: Sequence[Entry], form: str, test: Test, measure: str, part: bool
) -> Count:
    """In how many columns a claim holds."""
    settings = list(dict.fromkeys(e.setting for e in entries))
    answers = []
    for setting in settings:
        column = [e for e in entries if e.setting == setting]
        answers.append(test(Column(column, form, measure, part)))
    known = [answer for answer in answers if answer is not None]
    return Count(sum(known), len(known), len(settings))
