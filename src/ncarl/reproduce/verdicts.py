"""Verdicts on the claims of the paper, computed from the results alone.

A claim *holds* if NCARL as in the code of its authors satisfies it in every column
under every protocol that was run. It *holds with changes* if our form of NCARL does so
under one of them, or the printed form under one only. It *does not hold* if each of
them fails in some column. Rows and columns that were not run leave it undecided.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from math import isfinite

from ncarl.evaluation.measure import DONE, OVER_BUDGET
from ncarl.reproduce.plan import PAPER, load_paper_values
from ncarl.reproduce.summary import Entry, Verdict
from ncarl.reproduce.theory import TheoremFacts

#: States of a verdict.
HOLDS, HOLDS_WITH_CHANGES, FAILS = "holds", "holds with changes", "does not hold"
UNDECIDED = "not decided"
#: The two forms of NCARL: as in the code of the authors, and ours.
PRINTED_FORM, OUR_FORM = "ncarl-printed", "ncarl"
#: Methods that are not baselines of the paper.
NON_PAPER_METHODS = (
    *("mean", "bias", "soft-impute", "bayes", PRINTED_FORM, OUR_FORM),
    *("method-a", "method-b", "method-a-printed", "method-b-printed"),
)
EQUAL_RTOL = 0.01
#: An objective has converged if its relative change afterward is below this.
CONVERGENCE_TOL = 0.01
#: A spectrum decays fast if a tenth of the values has this share of the squares.
MIN_ENERGY_SHARE = 0.95
NUCLEAR_NORM_TOL = 1e-3


@dataclass(frozen=True)
class Evidence:
    """Everything that the verdicts are computed from."""

    # Entries by table or figure.
    entries: Mapping[str, Sequence[Entry]] = field(default_factory=dict)
    # Share of the squared singular values in a tenth of them, by photograph.
    energy: Mapping[str, float] = field(default_factory=dict)
    # Mean rank by photograph and gamma.
    ranks: Mapping[str, Mapping[float, float]] = field(default_factory=dict)
    # Objective of every step, by data set and form of NCARL.
    curves: Mapping[tuple[str, str], Sequence[float | None]] = field(
        default_factory=dict
    )
    facts: TheoremFacts | None = None
    # Tables and figures of which only some rows were to be run.
    partial: frozenset[str] = frozenset()


@dataclass(frozen=True)
class ClaimCount:
    """Number of columns in which a claim holds."""

    n_holding: int
    n_decided: int
    n_columns: int

    @property
    def holds_everywhere(self) -> bool | None:
        """Whether it holds in all columns; None while that is undecided."""
        if self.n_holding < self.n_decided:
            return False
        return True if 0 < self.n_decided == self.n_columns else None

    def __str__(self) -> str:
        rest = self.n_columns - self.n_decided
        return f"{self.n_holding} of {self.n_columns} columns" + (
            f" ({rest} undecided)" if rest else ""
        )


@dataclass(frozen=True)
class ClaimColumn:
    """One column of a table, on which a claim is tested."""

    entries: Sequence[Entry]  # all rows under one protocol
    form: str  # of NCARL
    measure: str  # "error" or "seconds"
    partial: bool  # whether rows were left out

    def find_entry(self, method: str) -> Entry | None:
        """The row of a method, if it has a value."""
        rows = (e for e in self.entries if e.method == method)
        return next((e for e in rows if has_value(e, self.measure)), None)

    def value(self, method: str) -> float | None:
        """The value of a method."""
        entry = self.find_entry(method)
        return None if entry is None else getattr(entry, self.measure)

    def is_over_budget(self) -> bool:
        """Whether NCARL itself exceeded its budget."""
        return any(
            e.method == self.form and e.status == OVER_BUDGET for e in self.entries
        )

    def baseline_values(self) -> tuple[list[float], int]:
        """Values of the baselines of the paper, and how many of them have none.

        Times on another machine than that of NCARL do not count.
        """
        mine = self.find_entry(self.form) if self.measure == "seconds" else None
        values, n_missing = [], int(self.partial)
        for one in filter(is_baseline, self.entries):
            value = self.value(one.method)
            elsewhere = mine is not None and one.machine != mine.machine
            if value is None or elsewhere:
                n_missing += 1
            else:
                values.append(value)
        return values, n_missing


def _judge_claim(claim: Claim, entries: Sequence[Entry], partial: bool) -> Verdict:
    counts: dict[tuple[str, str], ClaimCount] = {}
    protocols = dict.fromkeys(e.protocol for e in entries)
    for form in (PRINTED_FORM, OUR_FORM):
        for protocol in protocols:
            mine = [e for e in entries if e.protocol == protocol]
            if any(e.method == form for e in mine):
                counts[form, protocol] = _count_columns(claim, mine, form, partial)
    words = [
        f"{form_label(form)}, {protocol} protocol: {count}"
        for (form, protocol), count in counts.items()
    ]
    if claim.test in RANKING_TESTS:
        lacking = (e for e in entries if not has_value(e, claim.measure))
        missing = dict.fromkeys(e.label for e in filter(is_baseline, lacking))
        if missing:
            words.append(f"without {', '.join(missing)} in some columns")
    if partial:
        words.append("only some rows were run")
    evidence = "; ".join(words) or "no results"
    return Verdict(claim.text, claim.where, verdict_state(counts), evidence)


def _count_columns(
    claim: Claim, entries: Sequence[Entry], form: str, partial: bool
) -> ClaimCount:
    columns: dict[str, list[Entry]] = {}
    for e in entries:
        columns.setdefault(e.setting, []).append(e)
    tested = (ClaimColumn(c, form, claim.measure, partial) for c in columns.values())
    known = [answer for answer in map(claim.test, tested) if answer is not None]
    return ClaimCount(sum(known), len(known), len(columns))


def verdict_state(counts: Mapping[tuple[str, str], ClaimCount]) -> str:
    """State of a verdict, from counts by form of NCARL and protocol."""
    whole = {key: count.holds_everywhere for key, count in counts.items()}
    printed = [answer for (form, _), answer in whole.items() if form == PRINTED_FORM]
    if printed and all(printed):
        return HOLDS
    if any(whole.values()):
        return HOLDS_WITH_CHANGES
    failed = [answer is False for answer in whole.values()]
    return FAILS if failed and all(failed) else UNDECIDED


def form_label(form: str) -> str:
    """Name of a form of NCARL in a sentence."""
    return "as printed" if form == PRINTED_FORM else "our form"


def is_picture(entry: Entry) -> bool:
    """Whether a column is a picture; those differ from the ones of the paper."""
    return "image" in entry.group.lower() or "photo" in entry.group.lower()


def has_value(entry: Entry, measure: str) -> bool:
    """Whether an entry has a value; a time over budget counts as a lower bound."""
    late = entry.status == OVER_BUDGET and measure == "seconds"
    return entry.status == DONE or late


def is_baseline(entry: Entry) -> bool:
    """Whether a method is one of the baselines of the paper."""
    return entry.method not in NON_PAPER_METHODS


def _is_among_first(column: ClaimColumn, ahead: int) -> bool | None:
    """Whether at most ``ahead`` baselines are below NCARL, to the printed digits."""
    mine = column.value(column.form)
    if column.is_over_budget():
        return False
    if mine is None:
        return None
    baselines, n_missing = column.baseline_values()
    below = sum(not at_or_below(mine, round(value, 4)) for value in baselines)
    if below > ahead:
        return False
    return True if below + n_missing <= ahead and baselines else None


def reaches_printed_error(column: ClaimColumn) -> bool | None:
    """Whether the error, to the printed digits, is at or below the printed one."""
    entry = column.find_entry(column.form)
    if entry is None or entry.error is None or entry.printed is None:
        return None
    return at_or_below(entry.error, entry.printed)


def at_or_below(error: float, printed: float) -> bool:
    """Whether an error, rounded as the paper rounds, is at most the printed one."""
    return round(error, 4) <= printed


def reaches_printed_ratio(column: ClaimColumn) -> bool | None:
    """Whether NCARL's error over Nuclear's is at most the printed ratio."""
    entry, nuclear = column.find_entry(column.form), column.find_entry("nuclear")
    if entry is None or nuclear is None or not entry.printed or not nuclear.printed:
        return None
    if entry.error is None or not nuclear.error:
        return None
    printed = round(entry.printed / nuclear.printed, 4)
    return at_or_below(entry.error / nuclear.error, printed)


def below_nuclear(column: ClaimColumn) -> bool | None:
    """Whether NCARL is below Nuclear, where both ran on one machine."""
    entry, nuclear = column.find_entry(column.form), column.find_entry("nuclear")
    mine, other = column.value(column.form), column.value("nuclear")
    if column.is_over_budget():
        return False
    if entry is None or nuclear is None or mine is None or other is None:
        return None
    return mine < other if entry.machine == nuclear.machine else None


def has_graph_ordering(column: ClaimColumn) -> bool | None:
    """Whether an adaptive graph beats a fixed one, and a fixed one none."""
    end = "-printed" if column.form == PRINTED_FORM else ""
    full, fixed = column.value(column.form), column.value(f"method-b{end}")
    none = column.value(f"method-a{end}")
    if full is None or fixed is None or none is None:
        return None
    return full < fixed < none


def same_as_nuclear(column: ClaimColumn) -> bool | None:
    """Whether the form without a graph has the error of Nuclear."""
    end = "-printed" if column.form == PRINTED_FORM else ""
    value, nuclear = column.value(f"method-a{end}"), column.value("nuclear")
    if value is None or not nuclear:
        return None
    return abs(value / nuclear - 1.0) <= EQUAL_RTOL


def _with_nuclear(entries: Sequence[Entry]) -> list[Entry]:
    settings = {e.setting for e in entries if e.method == "nuclear"}
    return [e for e in entries if e.setting in settings]


@dataclass(frozen=True)
class Claim:
    """A claim of the paper on the columns of a table or figure."""

    study: str
    text: str
    test: Callable[[ClaimColumn], bool | None]  # None if it is undecided
    measure: str = "error"
    select: Callable[[Sequence[Entry]], Sequence[Entry]] = list  # entries it is about
    part: str = ""  # what the selected entries are

    @property
    def where(self) -> str:
        """The table or figure, and the part of it: "table 2, ratings"."""
        name = self.study.replace("fig", "figure ").replace("table", "table ")
        return f"{name}, {self.part}" if self.part else name


#: Tests that compare NCARL with all baselines: none, or at most one, may be below it.
is_lowest = partial(_is_among_first, ahead=0)
is_in_top_two = partial(_is_among_first, ahead=1)
RANKING_TESTS = (is_lowest, is_in_top_two)
CLAIMS = (
    Claim(
        "table1",
        "NCARL has the least error of all methods",
        is_lowest,
        select=lambda entries: [e for e in entries if not e.further],
    ),
    Claim(
        "table1",
        "NCARL reaches its printed errors",
        reaches_printed_error,
        select=lambda entries: [e for e in entries if not e.further],
    ),
    Claim("table2", "NCARL has the least or second least error", is_in_top_two),
    Claim(
        "table2",
        "NCARL reaches its printed errors",
        reaches_printed_error,
        select=lambda entries: [e for e in entries if not is_picture(e)],
        part="ratings",
    ),
    Claim(
        "table2",
        "NCARL's error over Nuclear's is at most the printed ratio",
        reaches_printed_ratio,
        select=lambda entries: [e for e in entries if is_picture(e)],
        part="pictures",
    ),
    Claim("table3", "NCARL takes the least time of all methods", is_lowest, "seconds"),
    Claim(
        "table4",
        "A graph lowers the error, an adaptive one more than a fixed one",
        has_graph_ordering,
    ),
    Claim(
        "table4",
        "Without a graph NCARL is the nuclear norm (theorem 5)",
        same_as_nuclear,
        select=_with_nuclear,
    ),
    Claim("fig4", "NCARL has the least error at every rate", is_lowest),
    Claim("fig4", "NCARL is faster than Nuclear", below_nuclear, "seconds"),
)


def judge_claims(evidence: Evidence) -> list[Verdict]:
    """Verdicts on the claims about the tables and figures that were run."""
    found = []
    for claim in CLAIMS:
        if claim.study in evidence.entries:
            rows = claim.select(evidence.entries[claim.study])
            partial = claim.test in RANKING_TESTS and claim.study in evidence.partial
            found.append(_judge_claim(claim, rows, partial))
    if evidence.energy:
        found.append(_judge_spectra(evidence.energy))
    if evidence.ranks:
        found.append(_judge_ranks(evidence.ranks))
    if evidence.curves:
        found.append(_judge_convergence(evidence.curves))
    if "fig7" in evidence.entries:
        found.append(_judge_neighbors(evidence.entries["fig7"]))
    if evidence.facts is not None:
        found += _judge_theorems(evidence.facts)
    return found


def _judge_spectra(energy: Mapping[str, float]) -> Verdict:
    state = HOLDS if min(energy.values()) >= MIN_ENERGY_SHARE else FAILS
    words = "; ".join(f"{name}: {share:.1%}" for name, share in energy.items())
    evidence = f"share of the squares in a tenth of the singular values: {words}"
    claim = "Singular values of photographs decay fast"
    return Verdict(claim, "figure 1", state, evidence)


def _judge_ranks(ranks: Mapping[str, Mapping[float, float]]) -> Verdict:
    claim = "The noisy model's rank falls as gamma grows"
    words, falls = [], []
    for name, by_gamma in ranks.items():
        values = [by_gamma[gamma] for gamma in sorted(by_gamma)]
        never_up = all(a >= b for a, b in pairwise(values))
        falls.append(never_up and values[0] > values[-1])
        words.append(f"{name}: {', '.join(f'{value:.0f}' for value in values)}")
    state = HOLDS if all(falls) else FAILS
    if min(map(len, ranks.values())) < 2:
        state = UNDECIDED
    return Verdict(claim, "figure 5", state, "; ".join(words))


def _judge_convergence(
    curves: Mapping[tuple[str, str], Sequence[float | None]],
) -> Verdict:
    claimed = int(load_paper_values()["figures"]["fig6"]["steps"])
    later = {}
    for key, curve in curves.items():
        rest = [float("nan") if v is None else v for v in curve[claimed - 1 :]]
        # A curve with an objective that is not finite is undecided.
        if len(curve) > claimed and isfinite(sum(rest)) and rest[-1] != 0.0:
            later[key] = max(abs(value / rest[-1] - 1.0) for value in rest)
    counts = {}
    for form in dict.fromkeys(form for _, form in curves):
        changes = [change for (_, one), change in later.items() if one == form]
        holding = sum(change < CONVERGENCE_TOL for change in changes)
        planned = sum(one == form for _, one in curves)
        counts[form, ""] = ClaimCount(holding, len(changes), planned)
    evidence = f"largest difference from the last objective after step {claimed}: "
    evidence += "; ".join(
        f"{name}, {form_label(form)}: {change:.2%}"
        for (name, form), change in later.items()
    )
    claim = f"The objective converges within {claimed} steps"
    state = verdict_state(counts)
    return Verdict(claim, "figure 6", state, evidence if later else "no results")


def _judge_neighbors(entries: Sequence[Entry]) -> Verdict:
    best_printed = load_paper_values()["figures"]["fig7"]["best_k"]
    groups = [g for g in dict.fromkeys(e.group for e in entries) if g in best_printed]
    words, counts = [], {}
    for form in (PRINTED_FORM, OUR_FORM):
        best = {group: best_neighbors(entries, group, form) for group in groups}
        known = {group: k for group, k in best.items() if k is not None}
        holding = sum(k == best_printed[group] for group, k in known.items())
        counts[form, ""] = ClaimCount(holding, len(known), len(groups))
        words += [f"{group}, {form_label(form)}: {k}" for group, k in known.items()]
    claim = "The best number of neighbors is " + ", ".join(
        f"{k} on {name}" for name, k in best_printed.items()
    )
    evidence = "best here: " + "; ".join(words) if words else "no results"
    return Verdict(claim, "figure 7", verdict_state(counts), evidence)


def best_neighbors(entries: Sequence[Entry], group: str, form: str) -> int | None:
    """The number of neighbors with the lowest error."""
    errors = {
        int(e.params["n_neighbors"]): e.error
        for e in entries
        if e.group == group
        and e.method.split(" ")[0] == form
        and e.error is not None
        and "n_neighbors" in e.params
    }
    return min(errors, key=lambda k: errors[k], default=None)


def _judge_theorems(facts: TheoremFacts) -> list[Verdict]:
    least = min(facts.ratios)
    value, bound = facts.singular
    bounded = least >= 1.0 and abs(facts.ratio_at_formula - 1.0) < 1e-9
    state = FAILS if not bounded else HOLDS if value >= bound else HOLDS_WITH_CHANGES
    surrogate = Verdict(
        "The surrogate is at least the squared nuclear norm (theorems 2 and 3)",
        "figure 8",
        state,
        f"least ratio of {len(facts.ratios)} positive definite weights {least:.3f}, at "
        f"the formula {facts.ratio_at_formula:.6f}; a singular weight gives {value:g} "
        f"where the bound is {bound:g}",
    )
    growth = [g / d for g, d in zip(facts.gradients, facts.deltas, strict=True)]
    steady = max(growth) <= 10.0 * min(growth)
    step = Verdict(
        "The gradient that a step leaves is of the order of delta (theorem 4)",
        "figure 8",
        HOLDS if steady else FAILS,
        f"gradient over delta between {min(growth):.3g} and {max(growth):.3g}",
    )
    return [surrogate, step, _judge_limit(facts)]


def _judge_limit(facts: TheoremFacts) -> Verdict:
    kinds = facts.excess.values()
    last = {rule: max(x[rule][-1] for x in kinds) for rule in ("pinv", "smooth")}
    excesses = {HOLDS: last["pinv"], HOLDS_WITH_CHANGES: last["smooth"]}
    small = (state for state, excess in excesses.items() if excess < NUCLEAR_NORM_TOL)
    evidence = (
        f"excess over the least nuclear norm after {facts.steps[-1]} steps: "
        f"{last['pinv']:.2g} as printed, {last['smooth']:.2g} with smoothed weights"
    )
    claim = "Without a graph the steps lead to the least nuclear norm (corollary 1)"
    return Verdict(claim, "figure 8", next(small, FAILS), evidence)


def table_remarks(entries: Sequence[Entry], measure: str) -> list[str]:
    """Remarks below a table: NCARL against its printed errors and against Nuclear."""
    if measure != "error":
        return []
    forms = (PRINTED_FORM, OUR_FORM)
    protocols = dict.fromkeys(e.protocol for e in entries)
    found = [
        remark([e for e in entries if e.protocol == protocol], form)
        for remark in (_printed_error_remark, _nuclear_ratio_remark)
        for protocol in protocols
        for form in forms
    ]
    return [text for text in found if text]


def _printed_error_remark(entries: Sequence[Entry], form: str) -> str:
    """Columns where a form of NCARL is above its printed error, without pictures."""
    known = [
        (e.setting, e.error, e.printed)
        for e in entries
        if e.method == form
        and e.error is not None
        and e.printed is not None
        and not is_picture(e)
    ]
    if not known:
        return ""
    above = [
        f"{setting} ({error:.4f} against {printed:.4f})"
        for setting, error, printed in known
        if not at_or_below(error, printed)
    ]
    places = f"above its printed error in {', '.join(above)}"
    where = places if above else "nowhere above it"
    return (
        f"NCARL, {form_label(form)}, {entries[0].protocol} protocol: at or below its "
        f"printed error in {len(known) - len(above)} of {len(known)} columns; {where}."
    )


def _nuclear_ratio_remark(entries: Sequence[Entry], form: str) -> str:
    """Error of NCARL over that of Nuclear in pictures, and the printed ratio."""
    by_method = {(e.method, e.setting): e for e in entries if is_picture(e)}
    words = []
    for (method, setting), one in by_method.items():
        other = by_method.get(("nuclear", setting))
        if method != form or other is None or not one.error or not other.error:
            continue
        text = f"{setting}: {one.error / other.error:.3f}"
        if one.printed and other.printed:
            text += f" (paper {one.printed / other.printed:.3f})"
        words.append(text)
    if not words:
        return ""
    protocol = entries[0].protocol
    label = "picked on the test error" if protocol == PAPER else "honest protocol"
    return f"NCARL, {form_label(form)}, over Nuclear, {label}: {', '.join(words)}."
