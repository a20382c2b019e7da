"""The drawing of a comparison: errors and seconds of methods, one below the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from ncarl.plots.style import HELD, INK, MISSED
from ncarl.study.cells import DONE, OVER
from ncarl.study.compare import Comparison
from ncarl.study.compare_advice import MEAN
from ncarl.study.compare_lines import Line

GREY = "#8a8a8a"
#: Errors whose ratio is larger than this are drawn on a logarithmic axis.
WIDE = 10.0


def draw(found: Comparison) -> Figure:
    """Errors with their spread, and seconds, of all methods; the best on top.

    Parameters
    ----------
    found : Comparison
        What to draw. A hollow dot is a fit that was stopped at its budget.
    """
    lines = found.lines
    figure = Figure(figsize=(8.4, 1.55 + 0.36 * len(lines)), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(1.7, 1.0))
    _draw_errors(left, found)
    _draw_seconds(right, found)
    left.set_yticks(range(len(lines)), [line.method for line in lines])
    left.set_ylim(len(lines) - 0.5, -0.5)
    for label, line in zip(left.get_yticklabels(), lines, strict=True):
        label.set_color(_colour(line, found))
        if line.method == found.recommendation.method:
            label.set_fontweight("bold")
    for ax in (left, right):
        ax.spines[["top", "right", "left"]].set_visible(False)
        ax.tick_params(axis="y", length=0)
        ax.grid(axis="x", color="#e4e4e4", linewidth=0.8)
        ax.set_axisbelow(True)
    m, n = found.shape
    times = "once" if found.plan.repeats == 1 else f"{found.plan.repeats} times"
    title = (
        f"{_share(found)} of the {found.known} known entries of a "
        f"{m} x {n} matrix hidden, {times}"
    )
    if any(line.status == OVER and line.error is not None for line in lines):
        title += "\nhollow: stopped at the budget"
    figure.suptitle(title, fontsize=11, color=INK)
    return figure


def _share(found: Comparison) -> str:
    """What part of the known entries was hidden, over all draws."""
    least, most = min(found.hidden) / found.known, max(found.hidden) / found.known
    low, high = f"{least:.0%}", f"{most:.0%}"
    return low if low == high else f"{low} to {high}"


def _draw_errors(ax: Any, found: Comparison) -> None:
    """The errors, with one standard deviation over the draws to each side."""
    known = [line.error for line in found.lines if line.error is not None]
    wide = _is_wide(known)
    for place, line in enumerate(found.lines):
        if line.error is None:
            ax.text(0.02, place, line.status, color=MISSED, fontsize=9, va="center",
                    transform=ax.get_yaxis_transform())  # fmt: skip
            continue
        _dot(ax, line, found, line.error, place)
        _whisker(ax, line, found, place, wide)
    if wide:
        ends = [line.error + (line.spread or 0.0) for line in found.lines if line.error]
        _log_axis(ax, [*known, *ends])
    else:
        ax.xaxis.set_major_locator(MaxNLocator(6))
        ax.margins(x=0.12)
    unit = "column standard deviations" if found.plan.by_column else "units of the data"
    ax.set_xlabel(f"error on hidden entries (RMSE, {unit})")


def _whisker(ax: Any, line: Line, found: Comparison, place: int, wide: bool) -> None:
    """The spread of an error, and its figure above the dot."""
    assert line.error is not None
    if line.spread:
        low = line.error - line.spread
        if wide:  # a logarithmic axis has no room at and below 0
            low = max(low, line.error / 1000.0)
        ax.hlines(place, low, line.error + line.spread, color=_colour(line, found),
                  linewidth=2.0, alpha=0.55, zorder=2)  # fmt: skip
    ax.annotate(f"{line.error:.4g}", (line.error, place), xytext=(0, 4),
                textcoords="offset points", ha="center", va="bottom", fontsize=7.5,
                color=_colour(line, found))  # fmt: skip


def _draw_seconds(ax: Any, found: Comparison) -> None:
    """Seconds of the fits on a logarithmic axis."""
    timed = [
        (place, line, line.seconds)
        for place, line in enumerate(found.lines)
        if line.seconds is not None
    ]
    for place, line, seconds in timed:
        _dot(ax, line, found, seconds, place)
    if timed:
        _log_axis(ax, [seconds for _, _, seconds in timed])
    ax.set_xlabel("seconds of a fit")


def _dot(ax: Any, line: Line, found: Comparison, value: float, place: int) -> None:
    """A dot; hollow for a method that was not done."""
    colour = _colour(line, found)
    inside = colour if line.status == DONE else "white"
    ax.plot(value, place, "o", color=colour, markerfacecolor=inside, markersize=7,
            markeredgewidth=1.6, zorder=3)  # fmt: skip


def _colour(line: Line, found: Comparison) -> str:
    """The recommended method stands out, what was not done too."""
    if line.method == found.recommendation.method:
        return HELD
    if line.method == MEAN:
        return GREY
    return INK if line.status == DONE else MISSED


def _is_wide(errors: Sequence[float]) -> bool:
    """Whether errors differ so much that only their size can be shown."""
    return len(errors) > 1 and min(errors) > 0.0 and max(errors) > WIDE * min(errors)


def _log_axis(ax: Any, values: Sequence[float]) -> None:
    """A logarithmic axis with room at both ends, and plain numbers on it."""
    low, high = max(min(values), 1e-300), max(*values, 1e-300)
    room = max(1.5, (high / low) ** 0.08)
    ax.set_xscale("log")
    ax.set_xlim(low / room, high * room)
    short = high / low < 100.0
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if short else (1,)))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())
