"""Figures of curves: error against a rate or a size, objectives, the proof."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, NullLocator

from ncarl.core.types import Array
from ncarl.plots.style import INK
from ncarl.study.cells import OVER
from ncarl.study.entries import Entry
from ncarl.study.figures_style import (
    BAYES,
    MARKERS,
    OURS,
    WIDE_SPREAD,
    colour_of,
    first_seen,
    is_ours,
    log_axis,
    spread,
    tidy_axes,
)
from ncarl.study.shown import MEASURES, printed_of, value_of

#: Most panels side by side.
ACROSS = 3
#: An objective that falls by more than this is drawn on a logarithmic axis.
STEEP = 50.0


def against_rate(entries: Sequence[Entry], *, title: str) -> Figure:
    """Error and seconds against the missing rate, a line for each method.

    Parameters
    ----------
    entries : sequence of Entry
        Of one study and one protocol.
    title : str
        Written above.

    Returns
    -------
    figure : Figure
        Filled markers are ours, with standard deviations where there are several
        seeds; open circles are the paper's; hollow triangles ran out of time.
    """
    if not entries:
        raise ValueError("entries must hold one entry or more, got none")
    figure = Figure(figsize=(9.6, 4.9), layout="constrained")
    left, right = figure.subplots(1, 2)
    labels = first_seen(entry.label for entry in entries)
    for k, label in enumerate(labels):
        some = [entry for entry in entries if entry.label == label]
        for ax, measure in zip((left, right), MEASURES, strict=True):
            _rate_line(ax, some, measure, MARKERS[k % len(MARKERS)])
    rates = sorted({entry.missing for entry in entries})
    for ax, (measure, name) in zip((left, right), MEASURES.items(), strict=True):
        tidy_axes(ax)
        ax.set_xticks(rates, [f"{rate:g}" for rate in rates])
        ax.set_xlabel("missing rate")
        ax.set_ylabel(name)
        values = _all_values(entries, measure)
        if values and (measure == "seconds" or spread(values) > WIDE_SPREAD):
            log_axis(ax, "y", values)
            ax.margins(y=0.1)  # arrows need room
    figure.suptitle(title, fontsize=12, color=INK)
    _rate_legend(figure, entries, labels)
    return figure


def _rate_line(ax: Any, entries: Sequence[Entry], measure: str, marker: str) -> None:
    """One method: its line, its bars, what is printed, where it ran out of time."""
    label = entries[0].label
    colour, ours = colour_of(label), is_ours(label)
    entries = sorted(entries, key=lambda entry: entry.missing)
    known = [(e, *value_of(e, measure)) for e in entries]
    drawn = [(e, value, sd) for e, value, sd in known if value is not None]
    ended = [(e.missing, v, sd or 0.0) for e, v, sd in drawn if e.status != OVER]
    if ended:
        x, y, sd = (np.array(column) for column in zip(*ended, strict=True))
        # On a logarithmic axis a bar must not reach down to 0.
        bars = np.stack([np.minimum(sd, 0.95 * y), sd])
        ax.errorbar(x, y, yerr=bars if sd.any() else None, color=colour, marker=marker,
                    markersize=5.5, linewidth=2.2 if ours else 1.3, capsize=2.5,
                    zorder=4 if ours else 3)  # fmt: skip
    over = [(e.missing, value) for e, value, _ in drawn if e.status == OVER]
    if over:
        ax.plot(*zip(*over, strict=True), "^", linestyle=":", color=colour, mfc="white",
                markersize=9, mew=1.5, linewidth=1.3, zorder=5)  # fmt: skip
    for entry in entries:
        printed, bound = printed_of(entry, measure)
        if printed is not None:
            _printed(ax, entry.missing, printed, colour, bound=bound)


def _printed(ax: Any, x: float, y: float, colour: str, *, bound: bool) -> None:
    """What the paper prints; an arrow where it only says that there was more."""
    ax.plot(x, y, "o", markersize=8, mec=colour, mfc="none", mew=1.3, zorder=5)
    if bound:
        ax.annotate("", (x, y), (0, 20), textcoords="offset points",
                    arrowprops={"arrowstyle": "<-", "color": colour, "shrinkB": 4,
                                "shrinkA": 0})  # fmt: skip


def _all_values(entries: Sequence[Entry], measure: str) -> list[float]:
    """All values that a panel shows."""
    ours = (value_of(entry, measure)[0] for entry in entries)
    theirs = (printed_of(entry, measure)[0] for entry in entries)
    return [value for value in (*ours, *theirs) if value is not None]


def _rate_legend(figure: Figure, entries: Sequence[Entry], labels: list[str]) -> None:
    """Names of methods and meanings of markers, below the panels."""
    handles = [
        Line2D([], [], color=colour_of(label), marker=MARKERS[k % len(MARKERS)],
               linewidth=2.2 if is_ours(label) else 1.3, markersize=5.5,
               label=_named(label, entries))
        for k, label in enumerate(labels)
    ]  # fmt: skip
    printed = [printed_of(entry, measure) for entry in entries for measure in MEASURES]
    over = any(
        entry.status == OVER and value_of(entry, measure)[0] is not None
        for entry in entries
        for measure in MEASURES
    )
    signs = [
        ("o", "printed in the paper", any(p is not None for p, _ in printed)),
        ("^", "over budget: where it stood", over),
        ("o", "with an arrow: printed as a lower bound", any(b for _, b in printed)),
    ]
    handles += [
        Line2D([], [], marker=sign, linestyle="", markersize=8, mec=INK, mfc="none",
               label=label)
        for sign, label, used in signs if used
    ]  # fmt: skip
    figure.legend(handles=handles, loc="outside lower center", ncols=5, frameon=False,
                  fontsize=8.5)  # fmt: skip


def _named(label: str, entries: Sequence[Entry]) -> str:
    """A method's name, and why none of its figures is drawn."""
    some = [entry for entry in entries if entry.label == label]
    if any(value_of(entry, m)[0] is not None for entry in some for m in MEASURES):
        return label
    return f"{label} ({', '.join(first_seen(entry.status for entry in some))})"


def objective_curves(
    curves: Mapping[str, Sequence[float]], *, claim: int = 20
) -> Figure:
    """Objectives against steps, and below each how much every step changed.

    Parameters
    ----------
    curves : mapping of str to sequence of float
        Objective of every step, by the name written above its panel.
    claim : int
        After how many steps it should be settled; a dashed line.
    """
    if not curves:
        raise ValueError("curves must hold one curve or more, got none")
    wide = max(4.6, 3.9 * len(curves))
    figure = Figure(figsize=(wide, 5.0), layout="constrained")
    axes = figure.subplots(
        2, len(curves), sharex="col", squeeze=False, height_ratios=(2.2, 1)
    )
    for k, (name, curve) in enumerate(curves.items()):
        values = np.asarray(curve, dtype=np.float64)
        steps = np.arange(1, len(values) + 1)
        upper, lower = axes[0, k], axes[1, k]
        upper.plot(steps, values, color=OURS, marker="o", markersize=3, linewidth=1.6)
        if len(values) and values.min() > 0 and spread(list(values)) > STEEP:
            log_axis(upper, "y", list(values))
        after, change = relative_changes(values)
        lower.plot(after, change, color=OURS, marker=".", linewidth=1.0)
        log_axis(lower, "y", list(change), few=True)
        for ax in (upper, lower):
            tidy_axes(ax)
            ax.axvline(claim, color=BAYES, linestyle="--", linewidth=1.2)
            ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        upper.set_title(name, fontsize=11, color=INK)
        _name_claim(upper, claim, len(values))
        lower.set_xlabel("step")
    axes[0, 0].set_ylabel("objective")
    axes[1, 0].set_ylabel("relative change")
    return figure


def relative_changes(values: Array) -> tuple[Array, Array]:
    """Steps that changed something, and how much they did, relatively.

    Examples
    --------
    >>> steps, change = relative_changes(np.array([4.0, 2.0, 2.0, 0.0, 1.0]))
    >>> steps.tolist(), change.tolist()
    ([2, 4], [0.5, 1.0])
    """
    before = np.abs(values[:-1])
    change = np.abs(np.diff(values)) / np.where(before > 0.0, before, np.nan)
    seen = np.isfinite(change) & (change > 0.0)
    return np.arange(2, len(values) + 1)[seen], change[seen]


def _name_claim(ax: Any, claim: int, steps: int) -> None:
    """Write beside the dashed line, on the side where there is room."""
    left = claim > 0.6 * steps
    ax.annotate(f"claimed: {claim} steps", (claim, 0.97), (-5 if left else 5, 0),
                xycoords=("data", "axes fraction"), textcoords="offset points",
                ha="right" if left else "left", va="top", fontsize=9,
                color=BAYES)  # fmt: skip


def against_neighbors(
    curves: Mapping[str, Sequence[tuple[int, float, float | None]]],
    best: Mapping[str, int],
) -> Figure:
    """Error against the number of neighbours, a panel for each data set.

    Parameters
    ----------
    curves : mapping of str to sequence of (k, error, sd)
        The standard deviation may be None.
    best : mapping of str to int
        The number that the paper calls best, by data set; dashed.
    """
    if not curves:
        raise ValueError("curves must hold one curve or more, got none")
    down = math.ceil(len(curves) / ACROSS)
    across = math.ceil(len(curves) / down)
    size = (max(4.8, 4.2 * across), 3.7 * down)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(down, across, squeeze=False).ravel()
    for ax, (name, points) in zip(axes, curves.items(), strict=False):
        _neighbors_panel(ax, sorted(points), best.get(name))
        ax.set_title(name, fontsize=11, color=INK)
    for ax in axes[len(curves) :]:
        ax.set_visible(False)
    for row in range(down):
        axes[row * across].set_ylabel("relative error on hidden entries")
    return figure


def _neighbors_panel(
    ax: Any, points: Sequence[tuple[int, float, float | None]], best: int | None
) -> None:
    """One data set: errors, the least of them, and the paper's choice."""
    counts = [k for k, _, _ in points]
    errors = np.array([error for _, error, _ in points])
    sds = np.array([sd or 0.0 for _, _, sd in points])
    ax.errorbar(counts, errors, yerr=sds if sds.any() else None, color=OURS,
                capsize=2.5, marker="o", markersize=4.5, linewidth=1.6)  # fmt: skip
    ax.set_xscale("log")
    ticks = sorted({*counts} | ({best} if best is not None else set()))
    ax.set_xticks(ticks, [str(k) for k in ticks])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlabel("neighbours k")
    tidy_axes(ax)
    if len(errors):
        least = int(np.argmin(errors))
        ax.plot(counts[least], errors[least], "o", markersize=12, mec=OURS, mfc="none",
                mew=1.6, label=f"least here: k = {counts[least]}")  # fmt: skip
    if best is not None:
        ax.axvline(best, color=BAYES, linestyle="--", linewidth=1.2,
                   label=f"best in the paper: k = {best}")  # fmt: skip
    low, high = ax.get_ylim()
    ax.set_ylim(low, high + 0.28 * (high - low))  # the legend has its own room
    ax.legend(fontsize=8.5, loc="upper center", framealpha=1.0, edgecolor="none")
