"""The chain of theorems as a figure of numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ncarl.plots.style import INK
from ncarl.study.figures_style import BAYES, OURS, SOFT, log_axis, tidy_axes
from ncarl.study.theory import Facts

RULE_NAMES = {"smooth": "smoothed weights", "pinv": "printed weights (pseudo-inverse)"}
STYLES = ("-", "--", ":")


def proof_chain(facts: Facts) -> Figure:
    """Three links of the proof: bound, step, limit.

    Parameters
    ----------
    facts : Facts
        What `ncarl.study.theory.check_chain` found.
    """
    figure = Figure(figsize=(12.6, 4.6), layout="constrained")
    bound, step, limit = figure.subplots(1, 3)
    for ax in (bound, step, limit):
        tidy_axes(ax)
    _draw_bound(bound, facts)
    _draw_step(step, facts)
    _draw_limit(limit, facts)
    return figure


def _draw_bound(ax: Any, facts: Facts) -> None:
    """Theorem 3: the surrogate is never below the squared norm."""
    ratios = np.array(facts.ratios)
    ax.plot(np.arange(1, len(ratios) + 1), ratios, color=OURS, linewidth=1.8,
            label=f"{len(ratios)} random D > 0, sorted")  # fmt: skip
    ax.axhline(1.0, color=SOFT, linewidth=1.0, linestyle="--")
    ax.plot(1, facts.at_formula, "o", color=OURS, markersize=7,
            label=f"D of the theorem: {facts.at_formula:.6f}")  # fmt: skip
    value, norm = facts.singular
    ax.plot(1, value / norm, "X", color=BAYES, markersize=9,
            label=f"singular D, X = I: {value:g} / {norm:g}")  # fmt: skip
    values = [*facts.ratios, value / norm]
    log_axis(ax, "y", values)
    ax.set_ylim(min(values) / 1.5, max(values) * 3.5)
    ax.set_xlabel("draw")
    ax.set_ylabel(r"$\mathrm{tr}(X D X^T)\ /\ \|X\|_*^2$")
    ax.set_title("Theorem 3: the surrogate bounds the norm,\nif D > 0",
                 fontsize=10.5, color=INK)  # fmt: skip
    ax.legend(frameon=False, fontsize=8.5, loc="upper left")


def _draw_step(ax: Any, facts: Facts) -> None:
    """Theorem 4: what a step leaves of the gradient falls with delta."""
    deltas = np.array(facts.deltas)
    gradients = np.array(facts.gradients)
    ax.loglog(deltas, gradients, "o-", color=OURS, linewidth=1.6,
              label=f"measured; slope {facts.slope:.3f}")  # fmt: skip
    ax.loglog(deltas, deltas * gradients[0] / deltas[0], color=SOFT, linestyle="--",
              linewidth=1.0, label="proportional to δ")  # fmt: skip
    ax.set_xlabel("δ")
    ax.set_ylabel(r"gradient at free entries / $\|M\|$")
    ax.text(0.97, 0.05, rf"equals $-2\delta X$ to {max(facts.identity):.0e}",
            transform=ax.transAxes, ha="right", fontsize=8.5, color=INK)  # fmt: skip
    ax.set_title("Theorem 4: a step solves its problem\nup to δ", fontsize=10.5,
                 color=INK)  # fmt: skip
    ax.legend(frameon=False, fontsize=8.5, loc="upper left")


def _draw_limit(ax: Any, facts: Facts) -> None:
    """Theorem 5: the steps end at the least nuclear norm."""
    colours = {"smooth": OURS, "pinv": BAYES}
    for style, (kind, rules) in zip(STYLES, facts.excess.items(), strict=False):
        for rule, excess in rules.items():
            shown = np.maximum(excess, facts.certified)
            ax.loglog(facts.steps, shown, style, marker="o", markersize=4.5,
                      color=colours.get(rule, SOFT),
                      label=f"{RULE_NAMES.get(rule, rule)}, {kind}")  # fmt: skip
    ax.axhline(facts.certified, color=SOFT, linewidth=1.0, linestyle=":")
    ax.text(facts.steps[0], facts.certified / 1.3, "tolerance of the least norm",
            va="top", fontsize=7.5, color=SOFT)  # fmt: skip
    ax.set_ylim(facts.certified / 2000, 5.0)
    ax.set_xticks(facts.steps, [str(step) for step in facts.steps])
    ax.xaxis.minorticks_off()
    ax.set_xlabel("steps")
    ax.set_ylabel("nuclear norm over the least one, minus 1")
    ax.set_title("Corollary 1, theorem 5: distance from\nthe least nuclear norm",
                 fontsize=10.5, color=INK)  # fmt: skip
    ax.legend(frameon=False, fontsize=7.5, loc="lower left", handlelength=3.4)
