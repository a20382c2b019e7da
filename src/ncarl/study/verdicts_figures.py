"""Verdicts on what the paper's figures show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import isfinite

from ncarl.study.entries import Entry, Verdict
from ncarl.study.evidence import (
    AS_PRINTED,
    CHANGED,
    FAILS,
    HOLDS,
    OURS,
    UNDECIDED,
    Count,
    Evidence,
    name_of,
    state_of,
)
from ncarl.study.printed import printed_figures
from ncarl.study.theory import Facts

#: An objective has settled if it changes by less than this afterwards.
SETTLED = 0.01
#: A spectrum decays fast if a tenth of the values holds this share of the squares.
MOST_ENERGY = 0.95
#: A norm has reached the least one within this share.
LIMIT = 1e-3


def on_figures(evidence: Evidence) -> list[Verdict]:
    """What is judged by other things than a table."""
    found = []
    if evidence.energy:
        found.append(_on_energy(evidence.energy))
    if evidence.ranks:
        found.append(_on_ranks(evidence.ranks))
    if evidence.curves:
        found.append(_on_curves(evidence.curves))
    if "fig7" in evidence.entries:
        found.append(_on_neighbors(evidence.entries["fig7"]))
    if evidence.facts is not None:
        found += _on_proof(evidence.facts)
    return found


def _on_energy(energy: Mapping[str, float]) -> Verdict:
    """Figure 1."""
    state = HOLDS if min(energy.values()) >= MOST_ENERGY else FAILS
    words = "; ".join(f"{name}: {share:.1%}" for name, share in energy.items())
    said = f"a tenth of the singular values holds of the squares: {words}"
    return Verdict("Singular values of photographs decay fast", "figure 1", state, said)


def _on_ranks(ranks: Mapping[str, Mapping[float, float]]) -> Verdict:
    """Figure 5."""
    claim = "The noisy model's rank falls as gamma grows"
    words, falls = [], []
    for name, by_gamma in ranks.items():
        values = [by_gamma[gamma] for gamma in sorted(by_gamma)]
        never_up = all(a >= b for a, b in pairwise(values))
        falls.append(never_up and values[0] > values[-1])
        words.append(f"{name}: {', '.join(f'{value:.0f}' for value in values)}")
    state = HOLDS if all(falls) else FAILS
    if any(len(by_gamma) < 2 for by_gamma in ranks.values()):
        state = UNDECIDED
    return Verdict(claim, "figure 5", state, "; ".join(words))


def _on_curves(curves: Mapping[tuple[str, str], Sequence[float | None]]) -> Verdict:
    """Figure 6."""
    claimed = int(printed_figures()["figures"]["fig6"]["steps"])
    later = {}
    for key, curve in curves.items():
        rest = [float("nan") if v is None else v for v in curve[claimed - 1 :]]
        # A step whose objective is no number leaves its curve undecided.
        if len(curve) > claimed and isfinite(sum(rest)) and rest[-1] != 0.0:
            later[key] = max(abs(value / rest[-1] - 1.0) for value in rest)
    forms = dict.fromkeys(form for _, form in curves)
    counts = {}
    for form in forms:
        known = [change for (_, one), change in later.items() if one == form]
        held = sum(change < SETTLED for change in known)
        planned = sum(one == form for _, one in curves)
        counts[form, ""] = Count(held, len(known), planned)
    words = "; ".join(
        f"{name}, {name_of(form)}: {change:.2%}"
        for (name, form), change in later.items()
    )
    said = f"largest difference from the last objective after step {claimed}: {words}"
    claim = f"The objective settles within {claimed} steps"
    evidence = said if later else "no figures"
    return Verdict(claim, "figure 6", state_of(counts), evidence)


def _on_neighbors(entries: Sequence[Entry]) -> Verdict:
    """Figure 7."""
    best_printed = printed_figures()["figures"]["fig7"]["best_k"]
    groups = [g for g in dict.fromkeys(e.group for e in entries) if g in best_printed]
    words, counts = [], {}
    for form in (AS_PRINTED, OURS):
        best = {group: best_neighbors(entries, group, form) for group in groups}
        known = {group: k for group, k in best.items() if k is not None}
        held = sum(k == best_printed[group] for group, k in known.items())
        counts[form, ""] = Count(held, len(known), len(groups))
        words += [f"{group}, {name_of(form)}: {k}" for group, k in known.items()]
    claim = "The best number of neighbours is " + ", ".join(
        f"{k} on {name}" for name, k in best_printed.items()
    )
    said = "best here: " + "; ".join(words) if words else "no figures"
    return Verdict(claim, "figure 7", state_of(counts), said)


def best_neighbors(entries: Sequence[Entry], group: str, form: str) -> int | None:
    """The number of neighbours with the least error."""
    able = [
        e
        for e in entries
        if e.group == group
        and e.method.split(" ")[0] == form
        and e.error is not None
        and "n_neighbors" in e.params
    ]
    if not able:
        return None
    best = min(able, key=lambda e: float("inf") if e.error is None else e.error)
    return int(best.params["n_neighbors"])


def _on_proof(facts: Facts) -> list[Verdict]:
    """Figure 8."""
    least = min(facts.ratios)
    value, bound = facts.singular
    bounded = least >= 1.0 and abs(facts.at_formula - 1.0) < 1e-9
    state = FAILS if not bounded else HOLDS if value >= bound else CHANGED
    surrogate = Verdict(
        "The surrogate is at least the squared nuclear norm (theorems 2 and 3)",
        "figure 8",
        state,
        f"least ratio of {len(facts.ratios)} positive definite weights {least:.3f}, at "
        f"the formula {facts.at_formula:.6f}; a singular weight gives {value:g} where "
        f"the bound is {bound:g}",
    )
    growth = [g / d for g, d in zip(facts.gradients, facts.deltas, strict=True)]
    steady = max(growth) <= 10.0 * min(growth)
    step = Verdict(
        "The gradient that a step leaves is of the order of delta (theorem 4)",
        "figure 8",
        HOLDS if steady else FAILS,
        f"gradient over delta between {min(growth):.3g} and {max(growth):.3g}",
    )
    return [surrogate, step, _on_limit(facts)]


def _on_limit(facts: Facts) -> Verdict:
    """Whether the steps lead to the least nuclear norm."""
    last = {
        rule: max(by_rule[rule][-1] for by_rule in facts.excess.values())
        for rule in ("pinv", "smooth")
    }
    state = (
        HOLDS if last["pinv"] < LIMIT else CHANGED if last["smooth"] < LIMIT else FAILS
    )
    said = (
        f"excess over the least nuclear norm after {facts.steps[-1]} steps: "
        f"{last['pinv']:.2g} as printed, {last['smooth']:.2g} with smoothed weights"
    )
    claim = "Without a graph the steps lead to the least nuclear norm (corollary 1)"
    return Verdict(claim, "figure 8", state, said)
