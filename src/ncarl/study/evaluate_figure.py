"""The drawings of an evaluation: errors column by column, errors and their spread."""

from __future__ import annotations

from matplotlib.figure import Figure

from ncarl.plots import plain, reliability, residuals
from ncarl.plots.style import GREY, HELD, INK, MISSED, light
from ncarl.study.evaluate_scores import Evaluation

#: Columns that are drawn, those with the largest errors.
MOST = 40


def draw_columns(found: Evaluation) -> Figure:
    """Errors of columns in their own spread, the largest on top.

    A filled dot is the method, a hollow one the mean of the column; a column whose
    mean is better is drawn in another colour.
    """
    scores = [one for one in found.columns if one.error_in_spreads is not None][:MOST]
    if not scores:
        raise ValueError("no column varies, so there is no error to draw")
    figure = Figure(figsize=(6.8, 1.4 + 0.22 * len(scores)), layout="constrained")
    ax = figure.add_subplot()
    for place, one in enumerate(scores):
        own, usual = one.error_in_spreads or 0.0, one.mean_in_spreads or 0.0
        colour = HELD if own <= usual else MISSED
        ax.hlines(place, own, usual, color=colour, alpha=0.35, linewidth=2)
        ax.plot(usual, place, "o", color=GREY, markerfacecolor="white", markersize=5)
        ax.plot(own, place, "o", color=colour, markersize=5.5)
    ax.set_yticks(range(len(scores)), [plain(one.name) for one in scores], fontsize=8)
    ax.set_ylim(len(scores) - 0.4, -0.6)
    ax.set_xlim(left=0.0)
    ax.set_xlabel("error on hidden entries, in spreads of the column")
    more = len(found.columns) - len(scores)
    some = f"; the {len(scores)} largest of {len(found.columns)}" if more > 0 else ""
    ax.set_title(f"{found.method} (filled) and the column's mean (hollow){some}",
                 fontsize=11, color=INK)  # fmt: skip
    light(ax, grid="x")
    return figure


def draw_reliability(found: Evaluation) -> Figure:
    """What intervals held against what they promise."""
    levels = [one.level for one in found.levels]
    held = [one.held for one in found.levels]
    return reliability(levels, held, count=len(found.all.truth))


def draw_residuals(found: Evaluation) -> Figure:
    """Errors of all hidden entries, in standard deviations where there are some."""
    whole = found.all
    unit = found.spreads[whole.columns]
    some = unit > 0.0
    truth, guess, middle = (v[some] for v in (whole.truth, whole.guess, whole.mean))
    std = None if whole.std is None else whole.std[some] / unit[some]
    return residuals(
        (truth - middle) / unit[some],
        (guess - middle) / unit[some],
        std,
        unit="spreads of its column from the mean",
    )
