"""Files of a comparison, and figures of a comparison and of an evaluation."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from ncarl.evaluation.comparison import MEAN_BASELINE, Comparison, MethodSummary
from ncarl.evaluation.evaluation import Evaluation
from ncarl.evaluation.measure import DONE, OVER_BUDGET
from ncarl.io.files import atomic_write
from ncarl.plots import format_label, reliability, residuals, save_figure
from ncarl.plots.style import BLUE, GRAY, INK, RED, despine

#: Names of the files of a comparison, in the order they are written.
OUTPUT_FILES = ("compare.csv", "compare.json", "compare.png")
#: Columns of ``compare.csv`` that hold scores.
CSV_METRICS = (
    *("error", "error_std", "relative_error", "coverage"),
    *("seconds", "memory_gb", "converged"),
)
MEAN_COLOR = "#8a8a8a"
#: Errors whose ratio is larger than this are drawn on a logarithmic axis.
LOG_AXIS_RATIO = 10.0
#: Most columns that are drawn; those with the largest errors.
MAX_DRAWN_COLUMNS = 40


def write_comparison(
    comparison: Comparison, folder: Path, about: Mapping[str, Any] | None = None
) -> list[Path]:
    """Write a comparison as CSV, JSON and PNG; the paths.

    Parameters
    ----------
    comparison : Comparison
        What to write.
    folder : Path
        Folder of the files; files of the same names are replaced.
    about : mapping, optional
        Further items of the JSON file.
    """
    table, scores, drawing = (folder / name for name in OUTPUT_FILES)
    write_comparison_csv(comparison, table)
    content = {**(about or {}), **comparison.to_dict()}
    text = json.dumps(content, indent=2, allow_nan=False)
    with atomic_write(scores) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")
    save_figure(draw_comparison(comparison), drawing)
    return [table, scores, drawing]


def write_comparison_csv(comparison: Comparison, path: Path) -> None:
    """Write one row for each method."""
    columns = ("method", "recommended", "status", *CSV_METRICS, "draws", "message")
    with (
        atomic_write(path) as temporary,
        temporary.open("w", newline="", encoding="utf-8") as stream,
    ):
        writer = csv.DictWriter(stream, columns, extrasaction="ignore")
        writer.writeheader()
        for line in comparison.summaries:
            mark = "yes" if line.method == comparison.recommendation.method else "no"
            more = {"recommended": mark, "draws": len(line.fits)}
            writer.writerow({**line.to_dict(), **more})


def draw_comparison(comparison: Comparison) -> Figure:
    """Draw errors with standard deviations, and times, of all methods.

    Parameters
    ----------
    comparison : Comparison
        What to draw. A hollow dot marks a method that was stopped at its budget.
    """
    lines = comparison.summaries
    figure = Figure(figsize=(8.4, 1.55 + 0.36 * len(lines)), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(1.7, 1.0))
    _draw_errors(left, comparison)
    _draw_seconds(right, comparison)
    left.set_yticks(range(len(lines)), [line.method for line in lines])
    left.set_ylim(len(lines) - 0.5, -0.5)
    for label, line in zip(left.get_yticklabels(), lines, strict=True):
        label.set_color(_method_color(line, comparison))
        if line.method == comparison.recommendation.method:
            label.set_fontweight("bold")
    for ax in (left, right):
        ax.spines[["top", "right", "left"]].set_visible(False)
        ax.tick_params(axis="y", length=0)
        ax.grid(axis="x", color="#e4e4e4", linewidth=0.8)
        ax.set_axisbelow(True)
    m, n = comparison.shape
    times = (
        "once" if comparison.plan.repeats == 1 else f"{comparison.plan.repeats} times"
    )
    title = (
        f"{_share(comparison)} of the {comparison.n_observed} observed entries of a "
        f"{m} x {n} matrix hidden, {times}"
    )
    if any(line.status == OVER_BUDGET and line.error is not None for line in lines):
        title += "\nhollow: stopped at the budget"
    figure.suptitle(title, fontsize=11, color=INK)
    return figure


def _share(comparison: Comparison) -> str:
    """Fraction of the observed entries that was hidden, over all draws."""
    least, most = (
        min(comparison.n_hidden) / comparison.n_observed,
        max(comparison.n_hidden) / comparison.n_observed,
    )
    low, high = f"{least:.0%}", f"{most:.0%}"
    return low if low == high else f"{low} to {high}"


def _draw_errors(ax: Any, comparison: Comparison) -> None:
    known = [line.error for line in comparison.summaries if line.error is not None]
    wide = _is_wide(known)
    for place, line in enumerate(comparison.summaries):
        if line.error is None:
            ax.text(0.02, place, line.status, color=RED, fontsize=9, va="center",
                    transform=ax.get_yaxis_transform())  # fmt: skip
            continue
        _dot(ax, line, comparison, line.error, place)
        _whisker(ax, line, comparison, place, wide)
    if wide:
        ends = [
            line.error + (line.error_std or 0.0)
            for line in comparison.summaries
            if line.error
        ]
        _log_axis(ax, [*known, *ends])
    else:
        ax.xaxis.set_major_locator(MaxNLocator(6))
        ax.margins(x=0.12)
    unit = (
        "column standard deviations"
        if comparison.plan.by_column
        else "units of the data"
    )
    ax.set_xlabel(f"error on hidden entries (RMSE, {unit})")


def _whisker(
    ax: Any, summary: MethodSummary, comparison: Comparison, place: int, wide: bool
) -> None:
    """Draw one standard deviation of an error, and write the error above the dot."""
    assert summary.error is not None
    if summary.error_std:
        low = summary.error - summary.error_std
        if wide:  # a logarithmic axis has no values at and below 0
            low = max(low, summary.error / 1000.0)
        ax.hlines(
            place,
            low,
            summary.error + summary.error_std,
            color=_method_color(summary, comparison),
            linewidth=2.0,
            alpha=0.55,
            zorder=2,
        )
    ax.annotate(f"{summary.error:.4g}", (summary.error, place), xytext=(0, 4),
                textcoords="offset points", ha="center", va="bottom", fontsize=7.5,
                color=_method_color(summary, comparison))  # fmt: skip


def _draw_seconds(ax: Any, comparison: Comparison) -> None:
    timed = [
        (place, line, line.seconds)
        for place, line in enumerate(comparison.summaries)
        if line.seconds is not None
    ]
    for place, line, seconds in timed:
        _dot(ax, line, comparison, seconds, place)
    if timed:
        _log_axis(ax, [seconds for _, _, seconds in timed])
    ax.set_xlabel("seconds of a fit")


def _dot(
    ax: Any, summary: MethodSummary, comparison: Comparison, value: float, place: int
) -> None:
    """Draw a dot; hollow for a method that did not finish."""
    color = _method_color(summary, comparison)
    inside = color if summary.status == DONE else "white"
    ax.plot(value, place, "o", color=color, markerfacecolor=inside, markersize=7,
            markeredgewidth=1.6, zorder=3)  # fmt: skip


def _method_color(summary: MethodSummary, comparison: Comparison) -> str:
    if summary.method == comparison.recommendation.method:
        return BLUE
    if summary.method == MEAN_BASELINE:
        return MEAN_COLOR
    return INK if summary.status == DONE else RED


def _is_wide(errors: Sequence[float]) -> bool:
    """Whether errors need a logarithmic axis."""
    return (
        len(errors) > 1
        and min(errors) > 0.0
        and max(errors) > LOG_AXIS_RATIO * min(errors)
    )


def _log_axis(ax: Any, values: Sequence[float]) -> None:
    """Make the x axis logarithmic, with margins and plain numbers."""
    low, high = max(min(values), 1e-300), max(*values, 1e-300)
    room = max(1.5, (high / low) ** 0.08)
    ax.set_xscale("log")
    ax.set_xlim(low / room, high * room)
    short = high / low < 100.0
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if short else (1,)))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())


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
    ax.set_yticks(
        range(len(scores)), [format_label(one.name) for one in scores], fontsize=8
    )
    ax.set_ylim(len(scores) - 0.4, -0.6)
    ax.set_xlim(left=0.0)
    ax.set_xlabel("error on hidden entries, in standard deviations of the column")
    more = len(evaluation.columns) - len(scores)
    some = (
        f"; the {len(scores)} largest of {len(evaluation.columns)}" if more > 0 else ""
    )
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
    """Draw errors of all hidden entries, in standard deviations of the columns."""
    pooled = evaluation.pooled_predictions
    unit = evaluation.column_stds[pooled.columns]
    some = unit > 0.0
    truth, guess, mean = (v[some] for v in (pooled.truth, pooled.guess, pooled.mean))
    std = None if pooled.std is None else pooled.std[some] / unit[some]
    return residuals(
        (truth - mean) / unit[some],
        (guess - mean) / unit[some],
        std,
        unit="column standard deviations from the mean",
    )
