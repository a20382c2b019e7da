"""Files of a comparison, and figures of a comparison and of an evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ncarl.evaluation.comparison import MEAN_BASELINE, Comparison, MethodSummary
from ncarl.evaluation.evaluation import Evaluation
from ncarl.evaluation.measure import DONE, OVER_BUDGET
from ncarl.io.csv import write_rows
from ncarl.io.files import write_json
from ncarl.plots import format_label, reliability, residuals, save_figure
from ncarl.plots.style import BLUE, GRAY, INK, RED, despine, log_axis, spans_decade

#: Names of the files of a comparison, in the order they are written.
OUTPUT_FILES = ("compare.csv", "compare.json", "compare.png")
#: Maximum number of columns that are drawn; those with the largest errors.
MAX_DRAWN_COLUMNS = 40


def write_comparison(
    comparison: Comparison, folder: Path, about: Mapping[str, Any] | None = None
) -> list[Path]:
    """Write `OUTPUT_FILES` to a folder, with the items ``about`` in JSON; the paths."""
    table, scores, drawing = (folder / name for name in OUTPUT_FILES)
    columns = (
        *("method", "recommended", "tied", "status", "error", "error_std"),
        *("relative_error", "coverage", "seconds", "memory_gb", "converged"),
        *("draws", "message"),
    )
    rows = []
    for line in comparison.summaries:
        advice = comparison.recommendation
        marks = {
            "recommended": "yes" if line.method == advice.method else "no",
            "tied": "yes" if line.method in advice.ties else "no",
        }
        record = {**line.to_dict(), **marks, "draws": len(line.fits)}
        rows.append([record[name] for name in columns])
    write_rows(table, columns, rows)
    write_json(scores, {**(about or {}), **comparison.to_dict()})
    save_figure(draw_comparison(comparison), drawing)
    return [table, scores, drawing]


def draw_comparison(comparison: Comparison) -> Figure:
    """Draw errors with standard deviations, and times, of all methods.

    A hollow dot marks a method that was stopped at its budget.
    """
    lines, plan = comparison.summaries, comparison.plan
    figure = Figure(figsize=(8.4, 1.55 + 0.36 * len(lines)), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(1.7, 1.0))
    colors = [_method_color(line, comparison) for line in lines]
    _draw_errors(left, lines, colors)
    unit = "column standard deviations" if plan.by_column else "units of the data"
    left.set_xlabel(f"error on held-out entries (RMSE, {unit})")
    for place, line in enumerate(lines):
        if line.seconds is not None:
            _dot(right, line.seconds, place, line, colors[place])
    timed = [line.seconds for line in lines if line.seconds is not None]
    if timed:
        log_axis(right, "x", timed, sparse_ticks=True, margins=True)
    right.set_xlabel("seconds of a fit")
    left.set_yticks(range(len(lines)), [line.method for line in lines])
    left.set_ylim(len(lines) - 0.5, -0.5)
    for ax in (left, right):
        despine(ax, grid="x")
        ax.spines["left"].set_visible(False)
        ax.tick_params(axis="y", length=0)
    for label, line, color in zip(left.get_yticklabels(), lines, colors, strict=True):
        label.set_color(color)
        if line.method == comparison.recommendation.method:
            label.set_fontweight("bold")
    m, n = comparison.shape
    extremes = (min(comparison.n_hidden), max(comparison.n_hidden))
    shares = [f"{count / comparison.n_observed:.0%}" for count in extremes]
    title = (
        f"{' to '.join(dict.fromkeys(shares))} of the {comparison.n_observed} observed "
        f"entries of a {m} x {n} matrix hidden, "
        f"{'once' if plan.repeats == 1 else f'{plan.repeats} times'}"
    )
    if any(line.status == OVER_BUDGET and line.error is not None for line in lines):
        title += "\nhollow: stopped at the budget"
    figure.suptitle(title, fontsize=11, color=INK)
    return figure


def _draw_errors(
    ax: Any, lines: Sequence[MethodSummary], colors: Sequence[str]
) -> None:
    known = [line.error for line in lines if line.error is not None]
    is_log = bool(known) and min(known) > 0.0 and spans_decade(known)
    for place, (line, color) in enumerate(zip(lines, colors, strict=True)):
        if line.error is None:
            ax.text(0.02, place, line.status, color=RED, fontsize=9, va="center",
                    transform=ax.get_yaxis_transform())  # fmt: skip
            continue
        _dot(ax, line.error, place, line, color)
        if line.error_std:
            low, high = line.error - line.error_std, line.error + line.error_std
            if is_log:  # a logarithmic axis has no values at and below 0
                low = max(low, line.error / 1000.0)
            known.append(high)
            ax.hlines(place, low, high, color=color, linewidth=2.0, alpha=0.55,
                      zorder=2)  # fmt: skip
        ax.annotate(f"{line.error:.4g}", (line.error, place), xytext=(0, 4),
                    textcoords="offset points", ha="center", va="bottom",
                    fontsize=7.5, color=color)  # fmt: skip
    if is_log:
        log_axis(ax, "x", known, margins=True)
    else:
        ax.xaxis.set_major_locator(MaxNLocator(6))
        ax.margins(x=0.12)


def _dot(ax: Any, value: float, place: int, line: MethodSummary, color: str) -> None:
    """Draw a dot; hollow for a method that did not finish."""
    inside = color if line.status == DONE else "white"
    ax.plot(value, place, "o", color=color, markerfacecolor=inside, markersize=7,
            markeredgewidth=1.6, zorder=3)  # fmt: skip


def _method_color(summary: MethodSummary, comparison: Comparison) -> str:
    if summary.method == comparison.recommendation.method:
        return BLUE
    if summary.method == MEAN_BASELINE:
        return GRAY
    return INK if summary.status == DONE else RED


def draw_columns(evaluation: Evaluation) -> Figure:
    """Draw errors of columns in their standard deviations, the largest on top.

    A filled dot is the method, a hollow one the mean of the column. Columns whose mean
    is better have another color.
    """
    varying = [one for one in evaluation.columns if one.standardized_error is not None]
    scores = varying[:MAX_DRAWN_COLUMNS]
    if not scores:
        raise ValueError("no column varies, so there is no error to draw")
    figure = Figure(figsize=(6.8, 1.4 + 0.22 * len(scores)), layout="constrained")
    ax = figure.add_subplot()
    for place, one in enumerate(scores):
        own, mean = one.standardized_error or 0.0, one.column_mean_error or 0.0
        color = BLUE if own <= mean else RED
        ax.hlines(place, own, mean, color=color, alpha=0.35, linewidth=2)
        ax.plot(mean, place, "o", color=GRAY, markerfacecolor="white", markersize=5)
        ax.plot(own, place, "o", color=color, markersize=5.5)
    names = [format_label(one.name) for one in scores]
    ax.set_yticks(range(len(scores)), names, fontsize=8)
    ax.set_ylim(len(scores) - 0.4, -0.6)
    ax.set_xlim(left=0.0)
    ax.set_xlabel("error on held-out entries, in standard deviations of the column")
    cut = len(scores) < len(varying)
    some = f"; the {len(scores)} largest of {len(varying)}" if cut else ""
    ax.set_title(f"{evaluation.method} (filled) and the column's mean (hollow){some}",
                 fontsize=11, color=INK)  # fmt: skip
    despine(ax, grid="x")
    return figure


def draw_reliability(evaluation: Evaluation) -> Figure:
    """Draw actual against nominal coverage of the intervals."""
    levels = [one.level for one in evaluation.levels]
    actual = [one.coverage for one in evaluation.levels]
    return reliability(levels, actual, count=len(evaluation.pooled_predictions.truth))


def draw_residuals(evaluation: Evaluation) -> Figure:
    """Draw errors of all held-out entries, in standard deviations of the columns."""
    pooled = evaluation.pooled_predictions
    scales = evaluation.column_stds[pooled.columns]
    some = scales > 0.0
    parts = (pooled.truth, pooled.guess, pooled.mean, scales)
    truth, guess, mean, scale = (part[some] for part in parts)
    std = None if pooled.std is None else pooled.std[some] / scale
    unit = "column standard deviations from the mean"
    return residuals((truth - mean) / scale, (guess - mean) / scale, std, unit=unit)
