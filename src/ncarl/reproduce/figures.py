"""Figures of a study, drawn with matplotlib but without pyplot.

`draw_study` draws the figure of a plan by its kind; the other functions draw from
entries and arrays.
"""

from __future__ import annotations

import hashlib
import math
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import (
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullFormatter,
    NullLocator,
)

from ncarl.core.types import Array
from ncarl.datasets.catalog import dataset_info
from ncarl.evaluation.measure import DONE, OVER_BUDGET
from ncarl.io.files import atomic_write
from ncarl.plots import ImagePanel, save_figure
from ncarl.plots.style import DPI, INK, MISSING_COLOR
from ncarl.reproduce.plan import StudyPlan, load_paper_values
from ncarl.reproduce.summary import (
    MEASURES,
    Entry,
    StudyData,
    check_measure,
    load_color_pictures,
    load_photographs,
    mean_and_std,
    objective_histories,
    printed_value_or_bound,
)
from ncarl.reproduce.theory import TheoremFacts
from ncarl.reproduce.verdicts import OUR_FORM, PRINTED_FORM

#: Colors of the methods of this library.
NCARL_COLOR, BAYES_COLOR = "#0b5fa5", "#d55e00"
#: Colors of their variants.
VARIANT_COLORS = ("#56a0d3", "#093c66", "#7f8fd9", "#1b9aaa")
#: Muted colors of the baselines, distinct for color-blind readers too.
BASELINE_PALETTE = (
    *("#cc6677", "#aa9c2f", "#4f9f78", "#88bbdd", "#8d4f74"),
    *("#6cb8ab", "#8f7fb8", "#c79a6b", "#b77fb0"),
)
BASELINE_COLORS = dict(
    zip(
        (
            *("nuclear", "fnuclear", "s12", "s23", "wnnm"),
            *("regl1", "fgsr", "lrfd", "s3lr"),
        ),
        BASELINE_PALETTE,
        strict=True,
    )
)
#: Grays of the simplest baselines, which every method should beat.
REFERENCE_COLORS = {"mean": "#9a9a9a", "bias": "#6e6e6e", "effects": "#6e6e6e"}
NOTE_COLOR = "#777777"
#: Range of the color map of missing rates; its bright end is hard to see on white.
FIRST_SHADE, LAST_SHADE = 0.0, 0.82
MARKERS = ("o", "s", "D", "^", "v", "P", "X", "<", ">", "h")
LINE_STYLES = ("-", "--", ":")
RULE_LABELS = {"smooth": "smoothed weights", "pinv": "printed weights (pseudo-inverse)"}
#: An axis is logarithmic if the largest value exceeds the smallest by this factor.
LOG_AXIS_RATIO = 10.0
#: The same for an objective.
LOG_OBJECTIVE_RATIO = 50.0
#: Most panels in a row.
MAX_PANELS_PER_ROW = 3
#: Fraction of the band of a method over which the dots of its rates are spread.
BAND_HEIGHT = 0.6
#: Fraction of a panel that is reserved for text, if there is some.
TEXT_SHARE = 0.32
#: Numbers of singular values for which the share of energy is given.
ENERGY_COUNTS = (10, 20, 50)
#: Least and largest width of a picture in a grid, in dots.
MIN_PICTURE_DOTS, MAX_PICTURE_DOTS = 300, 480
TITLE_SIZE, NOTE_SIZE, CREDIT_SIZE = 11.0, 9.5, 8.0
#: Upper estimate of the width of a letter over its font size.
LETTER_WIDTH = 0.6


def draw_study(study: StudyData) -> Figure | None:
    """Draw the figure of a plan; None if there is nothing to show."""
    return FIGURE_BUILDERS[study.plan.kind](study)


def save_png_and_svg(figure: Figure, stem: Path) -> list[Path]:
    """Write a figure as PNG and as SVG, each file atomically.

    The same figure gives the same bytes every time. In the SVG file text is drawn as
    paths, so that it does not depend on installed fonts.

    Parameters
    ----------
    figure : Figure
        What to write.
    stem : Path
        Path without a suffix.

    Returns
    -------
    paths : list of Path
        The PNG file, then the SVG file.
    """
    png, svg = (stem.with_name(f"{stem.name}.{kind}") for kind in ("png", "svg"))
    save_figure(figure, png, dpi=DPI)
    fixed: Any = {"svg.hashsalt": "ncarl", "svg.fonttype": "path"}
    with rc_context(fixed), atomic_write(svg) as temporary:
        figure.savefig(temporary, dpi=DPI, format="svg", metadata={"Date": None})
    return [png, svg]


def _table_figure(study: StudyData) -> Figure | None:
    entries = study.protocol_entries()
    if not any(e.error is not None for e in entries):
        return None
    title = _figure_title(study, entries)
    return draw_table(entries, measure=study.plan.measure, title=title)


def _rates_figure(study: StudyData) -> Figure | None:
    entries = study.protocol_entries()
    if not any(e.error is not None for e in entries):
        return None
    return draw_error_vs_rate(entries, title=_figure_title(study, entries))


def _figure_title(study: StudyData, entries: Sequence[Entry]) -> str:
    reduced = ", reduced" if study.quick else ""
    return f"{study.plan.title} ({entries[0].protocol} protocol{reduced})"


def _neighbors_figure(study: StudyData) -> Figure | None:
    curves: dict[str, list[tuple[int, float, float | None]]] = {}
    best: dict[str, int] = {}
    known = load_paper_values()["figures"]["fig7"]["best_k"]
    for e in study.protocol_entries():
        if e.error is None:
            continue
        form = "as printed" if e.method.startswith(PRINTED_FORM) else "NCARL"
        name = f"{e.group}, {form}"
        point = (int(e.params["n_neighbors"]), e.error, e.error_sd)
        curves.setdefault(name, []).append(point)
        if e.group in known:
            best[name] = int(known[e.group])
    return draw_error_vs_neighbors(curves, best) if curves else None


def _curves_figure(study: StudyData) -> Figure | None:
    forms = {PRINTED_FORM: "as printed", OUR_FORM: "NCARL"}
    curves = {
        f"{name}, {forms.get(method, method)}": [v for v in curve if v is not None]
        for (name, method), curve in objective_histories(study).items()
    }
    claim = int(load_paper_values()["figures"]["fig6"]["steps"])
    return draw_objectives(curves, claim=claim) if curves else None


def _spectrum_figure(study: StudyData) -> Figure | None:
    images = load_photographs(study.plan, study.quick, gray=True)
    return draw_spectra(images, credit=photo_credits(study.plan))


def _gallery_figure(study: StudyData) -> Figure | None:
    images = load_photographs(study.plan, study.quick, gray=False)
    row = [
        ImagePanel(image, name, f"{image.shape[1]} x {image.shape[0]}")
        for name, image in images.items()
    ]
    return draw_picture_grid([row], credit=photo_credits(study.plan))


def _recovered_figure(study: StudyData) -> Figure | None:
    """Pictures with missing pixels beside their completions."""
    rows: dict[str, list[ImagePanel]] = {}
    for (group, _), one in load_color_pictures(study).items():
        mask = group.split(", ")[-1]
        decibels = f"{np.mean(one.psnrs):.1f} dB on hidden pixels"
        rows.setdefault(mask, []).extend(
            [
                ImagePanel(one.stack_channels("seen"), group),
                ImagePanel(
                    np.clip(one.stack_channels("filled"), 0, 1), "recovered", decibels
                ),
            ]
        )
    if not rows:
        return None
    return draw_picture_grid(list(rows.values()), credit=photo_credits(study.plan))


def _noisy_figure(study: StudyData) -> Figure | None:
    """The noisy model at several values of gamma."""
    rows: dict[str, list[ImagePanel]] = {}
    for (group, method), one in load_color_pictures(study).items():
        row = rows.setdefault(
            group, [ImagePanel(one.stack_channels("seen"), group, "half hidden")]
        )
        gamma = float(method.rpartition("=")[2])
        smooth = np.clip(one.stack_channels("smooth"), 0.0, 1.0)
        note = f"rank {np.mean(one.ranks):.0f}, {np.mean(one.psnrs):.1f} dB"
        row.append(ImagePanel(smooth, f"gamma = {gamma:g}", note))
    if not rows:
        return None
    return draw_picture_grid(list(rows.values()), credit=photo_credits(study.plan))


def _theory_figure(study: StudyData) -> Figure | None:
    return None if study.facts is None else draw_theorems(study.facts)


def photo_credits(plan: StudyPlan) -> str:
    """Attribution of the photographs of a figure."""
    return "; ".join(dataset_info(name).citation for name in plan.options["photos"])


FIGURE_BUILDERS: Mapping[str, Callable[[StudyData], Figure | None]] = {
    "table": _table_figure,
    "rates": _rates_figure,
    "neighbors": _neighbors_figure,
    "curves": _curves_figure,
    "spectrum": _spectrum_figure,
    "gallery": _gallery_figure,
    "recovered": _recovered_figure,
    "noisy": _noisy_figure,
    "theory": _theory_figure,
}


def draw_table(
    entries: Sequence[Entry], *, measure: str = "error", title: str
) -> Figure:
    """Draw a table as a figure: a panel for each group, a row for each method.

    Parameters
    ----------
    entries : sequence of Entry
        Entries of one study and one protocol; methods are drawn in their order.
    measure : {"error", "seconds"}
        What is drawn.
    title : str
        Title.

    Returns
    -------
    figure : Figure
        Dots are our results, with the standard deviation as a bar; open circles are
        printed values; hollow triangles exceeded their budget. A text says why a value
        is missing.
    """
    check_measure(measure)
    if not entries:
        raise ValueError("entries must hold one entry or more, got none")
    methods = unique_in_order(entry.label for entry in entries)
    layout = _TableLayout(
        methods, sorted({entry.missing for entry in entries}), measure
    )
    groups = unique_in_order(entry.group for entry in entries)
    each = 0.2 + 0.075 * len(layout.rates)
    size = (1.6 + 3.1 * len(groups), 1.8 + each * len(methods))
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(1, len(groups), sharey=True, squeeze=False)[0]
    for group, ax in zip(groups, axes, strict=True):
        _panel(ax, [entry for entry in entries if entry.group == group], layout)
        ax.set_title(group, fontsize=10, color=INK)
        ax.set_xlabel(MEASURES[measure], fontsize=9, color=INK)
    _name_rows(axes[0], methods)
    figure.suptitle(title, fontsize=12, color=INK)
    _legend(figure, layout, entries)
    return figure


@dataclass(frozen=True)
class _TableLayout:
    """Rows, rates and measure of all panels."""

    methods: list[str]
    rates: list[float]
    measure: str

    @property
    def rate_colors(self) -> dict[float, str]:
        """The color of each missing rate."""
        return dict(zip(self.rates, shades(len(self.rates)), strict=True))

    def y_position(self, entry: Entry) -> float:
        """Height of an entry; the first rate is the upper one of its method."""
        row, rate = self.methods.index(entry.label), self.rates.index(entry.missing)
        return row + BAND_HEIGHT * ((rate + 0.5) / len(self.rates) - 0.5)


def _name_rows(ax: Any, methods: Sequence[str]) -> None:
    ax.set_yticks(range(len(methods)), methods)
    ax.set_ylim(len(methods) - 0.5, -0.5)
    for name, tick in zip(methods, ax.get_yticklabels(), strict=True):
        tick.set_color(method_color(name) if is_ours(name) else INK)
        tick.set_fontweight("bold" if is_ours(name) else "normal")


def _panel(ax: Any, entries: Sequence[Entry], layout: _TableLayout) -> None:
    """Dots of one group, and texts for missing values."""
    tidy_axes(ax)
    ax.grid(False, axis="y")
    ax.tick_params(axis="y", length=0)
    for row in range(0, len(layout.methods), 2):
        ax.axhspan(row - 0.5, row + 0.5, color="#f5f5f5", zorder=0)
    for entry in entries:
        _dot(ax, entry, layout)
    _scale(ax, entries, layout)
    for label, text in missing_value_labels(
        entries, layout.measure, layout.rates
    ).items():
        ax.text(
            0.015,
            layout.methods.index(label),
            text,
            fontsize=6.5,
            color=NOTE_COLOR,
            transform=ax.get_yaxis_transform(),
            va="center",
            zorder=5,
        )


def _dot(ax: Any, entry: Entry, layout: _TableLayout) -> None:
    """One entry, and the printed value."""
    color, y = layout.rate_colors[entry.missing], layout.y_position(entry)
    value, sd = mean_and_std(entry, layout.measure)
    printed, bound = printed_value_or_bound(entry, layout.measure)
    if printed is not None:
        ax.plot(printed, y, ">" if bound else "o", markersize=5.8, mec=color,
                mfc="none", mew=1.1, zorder=3)  # fmt: skip
    if value is None:
        return
    if entry.status == OVER_BUDGET:
        ax.plot(value, y, "^", markersize=5, mec=color, mfc="white", zorder=4)
        return
    ax.plot(value, y, "o", markersize=3.6, color=color, zorder=5)
    if sd:
        # On a logarithmic axis a bar must not reach 0.
        ax.plot([max(value - sd, 0.05 * value), value + sd], [y, y], color=color,
                linewidth=1.3, zorder=4, solid_capstyle="butt")  # fmt: skip


def _scale(ax: Any, entries: Sequence[Entry], layout: _TableLayout) -> None:
    """A logarithmic axis if values are far apart, and room for texts."""
    ours = [mean_and_std(entry, layout.measure)[0] for entry in entries]
    theirs = [printed_value_or_bound(entry, layout.measure)[0] for entry in entries]
    values = [value for value in (*ours, *theirs) if value is not None]
    if dynamic_range(values) > LOG_AXIS_RATIO:
        log_axis(ax, "x", values)
    else:
        ax.xaxis.set_major_locator(MaxNLocator(nbins=4, steps=[1, 2, 5, 10]))
    if not values:
        ax.set_xticks([])
    elif missing_value_labels(entries, layout.measure, layout.rates):
        _leave_room(ax)


def _leave_room(ax: Any) -> None:
    """Extend an axis to the left for texts, without ticks there."""
    first, last = ax.get_xlim()  # updates the limits, which the transform needs
    transform = ax.transScale + ax.transLimits
    low, _ = transform.inverted().transform((-TEXT_SHARE / (1 - TEXT_SHARE), 0.0))
    ticks = [tick for tick in ax.get_xticks() if first <= tick <= last]
    ax.set_xlim(left=low)
    ax.set_xticks(ticks)
    ax.minorticks_off()


def missing_value_labels(
    entries: Sequence[Entry], measure: str, rates: Sequence[float]
) -> Mapping[str, str]:
    """Texts for methods that have no value at some rates.

    Parameters
    ----------
    entries : sequence of Entry
        Entries of one group.
    measure : {"error", "seconds"}
        What is drawn.
    rates : sequence of float
        All rates; they are named only if some of them have a value.

    Examples
    --------
    >>> def at(rate, status):
    ...     return Entry("t", "paper", "m", "WNNM", "", "", rate, status)
    >>> rates = [0.8, 0.9]
    >>> some = [at(0.8, "failed"), at(0.9, "no data")]
    >>> missing_value_labels(some, "error", rates)
    {'WNNM': 'failed 0.8, no data 0.9'}
    >>> some = [at(rate, "not run") for rate in rates]
    >>> missing_value_labels(some, "error", rates)
    {'WNNM': 'not run'}
    """
    found: dict[str, dict[str, list[float]]] = {}
    for entry in entries:
        if mean_and_std(entry, measure)[0] is None:
            word = "no value" if entry.status == DONE else entry.status
            found.setdefault(entry.label, {}).setdefault(word, []).append(entry.missing)
    return {
        label: ", ".join(
            word if len(at) == len(rates) else " ".join([word, *map("{:g}".format, at)])
            for word, at in states.items()
        )
        for label, states in found.items()
    }


def _legend(figure: Figure, layout: _TableLayout, entries: Sequence[Entry]) -> None:
    """Colors of rates and meanings of markers, below the panels."""
    handles = [
        Line2D([], [], marker="o", linestyle="", markersize=5, color=color,
               label=f"{rate:g} missing")
        for rate, color in layout.rate_colors.items()
    ]  # fmt: skip
    printed = [printed_value_or_bound(entry, layout.measure) for entry in entries]
    signs = [
        ("o", "printed in the paper", any(p is not None and not b for p, b in printed)),
        (">", "printed as a lower bound", any(bound for _, bound in printed)),
        (
            "^",
            "over budget: value at the last step",
            any(
                entry.status == OVER_BUDGET
                and mean_and_std(entry, layout.measure)[0] is not None
                for entry in entries
            ),
        ),
    ]
    handles += [
        Line2D([], [], marker=sign, linestyle="", markersize=6, mec=INK, mfc="none",
               label=label)
        for sign, label, used in signs if used
    ]  # fmt: skip
    # Two lines if one is too narrow.
    columns = min(len(handles), max(2, int(figure.get_figwidth() / 1.55)))
    figure.legend(handles=handles, loc="outside lower center", ncols=columns,
                  frameon=False, fontsize=8.5, handletextpad=0.2)  # fmt: skip


def draw_error_vs_rate(entries: Sequence[Entry], *, title: str) -> Figure:
    """Draw error and seconds against the missing rate, a line for each method.

    Parameters
    ----------
    entries : sequence of Entry
        Entries of one study and one protocol.
    title : str
        Title.

    Returns
    -------
    figure : Figure
        Filled markers are our results, with standard deviations for several seeds;
        open circles are printed values; hollow triangles exceeded their budget.
    """
    if not entries:
        raise ValueError("entries must hold one entry or more, got none")
    figure = Figure(figsize=(9.6, 4.9), layout="constrained")
    left, right = figure.subplots(1, 2)
    labels = unique_in_order(entry.label for entry in entries)
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
        values = _panel_values(entries, measure)
        if values and (measure == "seconds" or dynamic_range(values) > LOG_AXIS_RATIO):
            log_axis(ax, "y", values)
            ax.margins(y=0.1)  # room for arrows
    figure.suptitle(title, fontsize=12, color=INK)
    _rate_legend(figure, entries, labels)
    return figure


def _rate_line(ax: Any, entries: Sequence[Entry], measure: str, marker: str) -> None:
    """One method: line, error bars, printed values, exceeded budgets."""
    label = entries[0].label
    color, ours = method_color(label), is_ours(label)
    entries = sorted(entries, key=lambda entry: entry.missing)
    known = [(e, *mean_and_std(e, measure)) for e in entries]
    drawn = [(e, value, sd) for e, value, sd in known if value is not None]
    ended = [(e.missing, v, sd or 0.0) for e, v, sd in drawn if e.status != OVER_BUDGET]
    if ended:
        x, y, sd = (np.array(column) for column in zip(*ended, strict=True))
        # On a logarithmic axis a bar must not reach 0.
        bars = np.stack([np.minimum(sd, 0.95 * y), sd])
        ax.errorbar(x, y, yerr=bars if sd.any() else None, color=color, marker=marker,
                    markersize=5.5, linewidth=2.2 if ours else 1.3, capsize=2.5,
                    zorder=4 if ours else 3)  # fmt: skip
    over = [(e.missing, value) for e, value, _ in drawn if e.status == OVER_BUDGET]
    if over:
        ax.plot(*zip(*over, strict=True), "^", linestyle=":", color=color, mfc="white",
                markersize=9, mew=1.5, linewidth=1.3, zorder=5)  # fmt: skip
    for entry in entries:
        printed, bound = printed_value_or_bound(entry, measure)
        if printed is not None:
            _draw_printed(ax, entry.missing, printed, color, is_bound=bound)


def _draw_printed(ax: Any, x: float, y: float, color: str, *, is_bound: bool) -> None:
    """A printed value; with an arrow if it is a lower bound."""
    ax.plot(x, y, "o", markersize=8, mec=color, mfc="none", mew=1.3, zorder=5)
    if is_bound:
        ax.annotate("", (x, y), (0, 20), textcoords="offset points",
                    arrowprops={"arrowstyle": "<-", "color": color, "shrinkB": 4,
                                "shrinkA": 0})  # fmt: skip


def _panel_values(entries: Sequence[Entry], measure: str) -> list[float]:
    ours = (mean_and_std(entry, measure)[0] for entry in entries)
    theirs = (printed_value_or_bound(entry, measure)[0] for entry in entries)
    return [value for value in (*ours, *theirs) if value is not None]


def _rate_legend(figure: Figure, entries: Sequence[Entry], labels: list[str]) -> None:
    """Names of methods and meanings of markers, below the panels."""
    handles = [
        Line2D([], [], color=method_color(label), marker=MARKERS[k % len(MARKERS)],
               linewidth=2.2 if is_ours(label) else 1.3, markersize=5.5,
               label=_legend_label(label, entries))
        for k, label in enumerate(labels)
    ]  # fmt: skip
    printed = [
        printed_value_or_bound(entry, measure)
        for entry in entries
        for measure in MEASURES
    ]
    over = any(
        entry.status == OVER_BUDGET and mean_and_std(entry, measure)[0] is not None
        for entry in entries
        for measure in MEASURES
    )
    signs = [
        ("o", "printed in the paper", any(p is not None for p, _ in printed)),
        ("^", "over budget: value at the last step", over),
        ("o", "with an arrow: printed as a lower bound", any(b for _, b in printed)),
    ]
    handles += [
        Line2D([], [], marker=sign, linestyle="", markersize=8, mec=INK, mfc="none",
               label=label)
        for sign, label, used in signs if used
    ]  # fmt: skip
    figure.legend(handles=handles, loc="outside lower center", ncols=5, frameon=False,
                  fontsize=8.5)  # fmt: skip


def _legend_label(label: str, entries: Sequence[Entry]) -> str:
    """Name of a method, and why it has no values."""
    some = [entry for entry in entries if entry.label == label]
    if any(mean_and_std(entry, m)[0] is not None for entry in some for m in MEASURES):
        return label
    return f"{label} ({', '.join(unique_in_order(entry.status for entry in some))})"


def draw_error_vs_neighbors(
    curves: Mapping[str, Sequence[tuple[int, float, float | None]]],
    best: Mapping[str, int],
) -> Figure:
    """Draw error against the number of neighbors, a panel for each data set.

    Parameters
    ----------
    curves : mapping of str to sequence of (k, error, sd)
        The standard deviation may be None.
    best : mapping of str to int
        Best number according to the paper, by data set; a dashed line.
    """
    if not curves:
        raise ValueError("curves must hold one curve or more, got none")
    down = math.ceil(len(curves) / MAX_PANELS_PER_ROW)
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
    """One data set: errors, the lowest one, and the choice of the paper."""
    counts = [k for k, _, _ in points]
    errors = np.array([error for _, error, _ in points])
    sds = np.array([sd or 0.0 for _, _, sd in points])
    ax.errorbar(counts, errors, yerr=sds if sds.any() else None, color=NCARL_COLOR,
                capsize=2.5, marker="o", markersize=4.5, linewidth=1.6)  # fmt: skip
    ax.set_xscale("log")
    ticks = sorted({*counts} | ({best} if best is not None else set()))
    ax.set_xticks(ticks, [str(k) for k in ticks])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlabel("neighbors k")
    tidy_axes(ax)
    if len(errors):
        least = int(np.argmin(errors))
        ax.plot(
            counts[least],
            errors[least],
            "o",
            markersize=12,
            mec=NCARL_COLOR,
            mfc="none",
            mew=1.6,
            label=f"least here: k = {counts[least]}",
        )
    if best is not None:
        ax.axvline(best, color=BAYES_COLOR, linestyle="--", linewidth=1.2,
                   label=f"best in the paper: k = {best}")  # fmt: skip
    low, high = ax.get_ylim()
    ax.set_ylim(low, high + 0.28 * (high - low))  # the legend has its own room
    ax.legend(fontsize=8.5, loc="upper center", framealpha=1.0, edgecolor="none")


def draw_objectives(
    curves: Mapping[str, Sequence[float]], *, claim: int = 20
) -> Figure:
    """Draw objectives against steps, and below each the relative changes.

    Parameters
    ----------
    curves : mapping of str to sequence of float
        Objective of every step, by the name written above its panel.
    claim : int
        Number of steps after which the paper says it converges; a dashed line.
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
        upper.plot(
            steps, values, color=NCARL_COLOR, marker="o", markersize=3, linewidth=1.6
        )
        if (
            len(values)
            and values.min() > 0
            and dynamic_range(list(values)) > LOG_OBJECTIVE_RATIO
        ):
            log_axis(upper, "y", list(values))
        after, change = relative_changes(values)
        lower.plot(after, change, color=NCARL_COLOR, marker=".", linewidth=1.0)
        log_axis(lower, "y", list(change), sparse_ticks=True)
        for ax in (upper, lower):
            tidy_axes(ax)
            ax.axvline(claim, color=BAYES_COLOR, linestyle="--", linewidth=1.2)
            ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        upper.set_title(name, fontsize=11, color=INK)
        _annotate_claim(upper, claim, len(values))
        lower.set_xlabel("step")
    axes[0, 0].set_ylabel("objective")
    axes[1, 0].set_ylabel("relative change")
    return figure


def relative_changes(values: Array) -> tuple[Array, Array]:
    """Steps that changed the objective, and their relative changes.

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


def _annotate_claim(ax: Any, claim: int, steps: int) -> None:
    """Label the dashed line, on the side with more room."""
    left = claim > 0.6 * steps
    ax.annotate(f"claimed: {claim} steps", (claim, 0.97), (-5 if left else 5, 0),
                xycoords=("data", "axes fraction"), textcoords="offset points",
                ha="right" if left else "left", va="top", fontsize=9,
                color=BAYES_COLOR)  # fmt: skip


def draw_spectra(images: Mapping[str, Array], credit: str = "") -> Figure:
    """Draw pictures beside their singular values.

    Parameters
    ----------
    images : mapping of str to array of shape (height, width[, 3])
        Complete pictures by name; for a color picture the mean of the channels is
        used.
    credit : str
        Attribution of the pictures, in small print below.
    """
    if not images:
        raise ValueError("images must hold one picture or more, got none")
    # Leave room for the titles above the grid.
    layout = ConstrainedLayoutEngine(h_pad=0.1, rect=(0.0, 0.0, 1.0, 0.97))
    figure = Figure(figsize=(10.5, 3.4 * len(images) + 0.3), layout=layout)
    grid = figure.add_gridspec(len(images), 2)
    for row, (name, image) in enumerate(images.items()):
        _draw_picture_and_spectrum(figure, grid[row, 0], grid[row, 1], name, image)
    if credit:
        figure.supxlabel(credit, fontsize=8, color=NOTE_COLOR, x=0.01, ha="left")
    return figure


def _draw_picture_and_spectrum(
    figure: Figure, left: Any, right: Any, name: str, image: Array
) -> None:
    values = np.asarray(image, dtype=np.float64)
    if not np.isfinite(values).all():
        raise ValueError(f"images must have no missing pixels, got some in {name!r}")
    shown = figure.add_subplot(left)
    shown.imshow(to_rgb_image(values), interpolation="antialiased")
    shown.set_axis_off()
    shown.set_title(name, fontsize=11, color=INK)
    sigma = np.linalg.svd(to_gray(values), compute_uv=False)
    ax = figure.add_subplot(right)
    relative = sigma / sigma[0] if sigma[0] > 0 else sigma
    seen = relative[relative > 1e-12]
    ax.plot(np.arange(1, len(seen) + 1), seen, color=NCARL_COLOR, linewidth=1.6)
    log_axis(ax, "y", [1e-9, 1.0] if len(seen) < 2 else list(seen))
    ax.set_xlabel("number of the singular value", fontsize=9)
    ax.set_ylabel("relative to the largest", fontsize=9)
    tidy_axes(ax)
    ax.tick_params(labelsize=9)
    ax.text(0.97, 0.95, "\n".join(energy_lines(sigma)), transform=ax.transAxes,
            ha="right", va="top", fontsize=9, color=INK,
            linespacing=1.4)  # fmt: skip


def energy_lines(sigma: Array) -> list[str]:
    """Share of the energy in the first singular values, as text.

    Examples
    --------
    >>> energy_lines(np.array([3.0, 1.0]))
    ['energy in the first', '2: 100.00%']
    """
    energy = np.cumsum(np.square(sigma))
    counts = [count for count in ENERGY_COUNTS if count < len(sigma)] or [len(sigma)]
    shares = [energy[count - 1] / energy[-1] if energy[-1] else 1.0 for count in counts]
    lines = (f"{n}: {part:.2%}" for n, part in zip(counts, shares, strict=True))
    return ["energy in the first", *lines]


def draw_picture_grid(rows: Sequence[Sequence[ImagePanel]], credit: str = "") -> Figure:
    """Draw rows of pictures with a title and a note above each.

    Parameters
    ----------
    rows : sequence of sequences of ImagePanel
        Pictures in gray or color; missing pixels have a color of their own. Rows may
        differ in length.
    credit : str
        Attribution of the pictures, in small print below.
    """
    if not rows or not all(rows):
        raise ValueError("rows must hold one picture or more each, got an empty one")
    each = max(_picture_dots(panel.image) for row in rows for panel in row) / DPI
    gap, columns = 14 / DPI, max(len(row) for row in rows)
    width = gap + columns * (each + gap)
    credits = _wrap_text(credit, width - 2 * gap, CREDIT_SIZE)
    below = (8 + 22 * len(credits)) / DPI
    talls = [max(each * _aspect(panel.image) for panel in row) for row in rows]
    heads = [max(_header_height(panel, each) for panel in row) for row in rows]
    total = below + sum(talls) + sum(heads)
    figure = Figure(figsize=(width, total))
    top = total
    for row, tall, head in zip(rows, talls, heads, strict=True):
        top -= head
        for k, panel in enumerate(row):
            left, high = gap + k * (each + gap), each * _aspect(panel.image)
            box = (left / width, (top - high) / total, each / width, high / total)
            _draw_picture(figure, box, panel, each)
        top -= tall
    figure.text(gap / width, 8 / DPI / total, "\n".join(credits), va="bottom",
                fontsize=CREDIT_SIZE, color=NOTE_COLOR, linespacing=1.3)  # fmt: skip
    return figure


def _draw_picture(
    figure: Figure,
    box: tuple[float, float, float, float],
    panel: ImagePanel,
    width: float,
) -> None:
    """Draw a picture in a box of the figure, with texts above it."""
    ax = figure.add_axes(box)
    ax.imshow(to_rgb_image(panel.image), interpolation="antialiased", aspect="auto")
    ax.set_axis_off()
    title, note = _wrap_panel_text(panel, width)
    above = 5.0
    for lines, size, weight in (
        (note, NOTE_SIZE, "normal"),
        (title, TITLE_SIZE, "bold"),
    ):
        for line in reversed(lines):
            ax.annotate(line, (0.5, 1.0), (0, above), xycoords="axes fraction",
                        textcoords="offset points", ha="center", va="bottom",
                        fontsize=size, fontweight=weight, color=INK)  # fmt: skip
            above += 1.3 * size


def _wrap_panel_text(panel: ImagePanel, width: float) -> tuple[list[str], list[str]]:
    """Title and note, wrapped to the width of the picture."""
    return _wrap_text(panel.title, width, TITLE_SIZE), _wrap_text(
        panel.note, width, NOTE_SIZE
    )


def _wrap_text(text: str, inches: float, size: float) -> list[str]:
    """Wrap a text to a width in inches."""
    most = max(8, int(inches * 72 / (size * LETTER_WIDTH)))
    return [
        line
        for part in text.splitlines()
        for line in textwrap.wrap(part, most, break_on_hyphens=False)
    ]


def _header_height(panel: ImagePanel, width: float) -> float:
    """Height of title and note above a picture, in inches."""
    title, note = _wrap_panel_text(panel, width)
    return (1.3 * (TITLE_SIZE * len(title) + NOTE_SIZE * len(note)) + 14.0) / 72


def _aspect(image: Array) -> float:
    return float(image.shape[0] / image.shape[1])


def _picture_dots(image: Array) -> int:
    """Width of a picture in dots; a multiple of its pixels if that fits."""
    wide = int(image.shape[1])
    return min(wide * math.ceil(MIN_PICTURE_DOTS / wide), MAX_PICTURE_DOTS)


def to_gray(image: Array) -> Array:
    """A picture in gray: the mean of its channels."""
    return image.mean(axis=2) if image.ndim == 3 else image


def to_rgb_image(image: Array) -> Array:
    """A picture as colors between 0 and 1, missing pixels in a color of their own.

    Parameters
    ----------
    image : array of shape (height, width) or (height, width, 3)
        NaN where a pixel is missing.

    Returns
    -------
    colors : array of shape (height, width, 3)

    Examples
    --------
    >>> to_rgb_image(np.array([[0.25, 2.0]])).tolist()
    [[[0.25, 0.25, 0.25], [1.0, 1.0, 1.0]]]
    """
    values = np.asarray(image, dtype=np.float64)
    channels = values[:, :, None] if values.ndim == 2 else values
    missing = np.isnan(channels).any(axis=2)
    colors: Array = np.clip(np.nan_to_num(channels), 0.0, 1.0) * np.ones(3)
    colors[missing] = [int(MISSING_COLOR[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    return colors


def draw_theorems(facts: TheoremFacts) -> Figure:
    """Draw the numbers behind theorems 3 to 5.

    Parameters
    ----------
    facts : TheoremFacts
        Result of `ncarl.reproduce.theory.check_theorems`.
    """
    figure = Figure(figsize=(12.6, 4.6), layout="constrained")
    bound, step, limit = figure.subplots(1, 3)
    for ax in (bound, step, limit):
        tidy_axes(ax)
    _draw_bound(bound, facts)
    _draw_step(step, facts)
    _draw_limit(limit, facts)
    return figure


def _draw_bound(ax: Any, facts: TheoremFacts) -> None:
    """Theorem 3: the surrogate is at least the squared norm."""
    ratios = np.array(facts.ratios)
    ax.plot(np.arange(1, len(ratios) + 1), ratios, color=NCARL_COLOR, linewidth=1.8,
            label=f"{len(ratios)} random D > 0, sorted")  # fmt: skip
    ax.axhline(1.0, color=NOTE_COLOR, linewidth=1.0, linestyle="--")
    ax.plot(1, facts.ratio_at_formula, "o", color=NCARL_COLOR, markersize=7,
            label=f"D of the theorem: {facts.ratio_at_formula:.6f}")  # fmt: skip
    value, norm = facts.singular
    ax.plot(1, value / norm, "X", color=BAYES_COLOR, markersize=9,
            label=f"singular D, X = I: {value:g} / {norm:g}")  # fmt: skip
    values = [*facts.ratios, value / norm]
    log_axis(ax, "y", values)
    ax.set_ylim(min(values) / 1.5, max(values) * 3.5)
    ax.set_xlabel("draw")
    ax.set_ylabel(r"$\mathrm{tr}(X D X^T)\ /\ \|X\|_*^2$")
    ax.set_title("Theorem 3: the surrogate bounds the norm,\nif D > 0",
                 fontsize=10.5, color=INK)  # fmt: skip
    ax.legend(frameon=False, fontsize=8.5, loc="upper left")


def _draw_step(ax: Any, facts: TheoremFacts) -> None:
    """Theorem 4: the gradient after a step is of the order of delta."""
    deltas = np.array(facts.deltas)
    gradients = np.array(facts.gradients)
    ax.loglog(deltas, gradients, "o-", color=NCARL_COLOR, linewidth=1.6,
              label=f"measured; slope {facts.slope:.3f}")  # fmt: skip
    ax.loglog(
        deltas,
        deltas * gradients[0] / deltas[0],
        color=NOTE_COLOR,
        linestyle="--",
        linewidth=1.0,
        label="proportional to δ",
    )
    ax.set_xlabel("δ")
    ax.set_ylabel(r"gradient at free entries / $\|M\|$")
    ax.text(0.97, 0.05, rf"equals $-2\delta X$ to {max(facts.gradient_errors):.0e}",
            transform=ax.transAxes, ha="right", fontsize=8.5, color=INK)  # fmt: skip
    ax.set_title("Theorem 4: a step solves its problem\nup to δ", fontsize=10.5,
                 color=INK)  # fmt: skip
    ax.legend(frameon=False, fontsize=8.5, loc="upper left")


def _draw_limit(ax: Any, facts: TheoremFacts) -> None:
    """Theorem 5: the steps converge to the least nuclear norm."""
    colors = {"smooth": NCARL_COLOR, "pinv": BAYES_COLOR}
    for style, (kind, rules) in zip(LINE_STYLES, facts.excess.items(), strict=False):
        for rule, excess in rules.items():
            shown = np.maximum(excess, facts.certificate_tol)
            ax.loglog(facts.steps, shown, style, marker="o", markersize=4.5,
                      color=colors.get(rule, NOTE_COLOR),
                      label=f"{RULE_LABELS.get(rule, rule)}, {kind}")  # fmt: skip
    ax.axhline(facts.certificate_tol, color=NOTE_COLOR, linewidth=1.0, linestyle=":")
    ax.text(facts.steps[0], facts.certificate_tol / 1.3, "tolerance of the least norm",
            va="top", fontsize=7.5, color=NOTE_COLOR)  # fmt: skip
    ax.set_ylim(facts.certificate_tol / 2000, 5.0)
    ax.set_xticks(facts.steps, [str(step) for step in facts.steps])
    ax.xaxis.minorticks_off()
    ax.set_xlabel("steps")
    ax.set_ylabel("nuclear norm over the least one, minus 1")
    ax.set_title("Corollary 1, theorem 5: distance from\nthe least nuclear norm",
                 fontsize=10.5, color=INK)  # fmt: skip
    ax.legend(frameon=False, fontsize=7.5, loc="lower left", handlelength=3.4)


def method_color(label: str) -> str:
    """The color of a method, the same in every figure.

    Strong colors for ours, muted ones for the baselines, gray for the simplest. The
    color of an unknown method depends on its name alone.

    Parameters
    ----------
    label : str
        Name of the method in tables.

    Examples
    --------
    >>> method_color("NCARL"), method_color("BayesianNCARL"), method_color("mean")
    ('#0b5fa5', '#d55e00', '#9a9a9a')
    >>> method_color("F-Nuclear") == method_color("f nuclear")
    True
    """
    name = "".join(c for c in label.casefold() if c.isalnum())
    if "bayes" in name:
        return BAYES_COLOR
    if name == "ncarl":
        return NCARL_COLOR
    for word, gray in REFERENCE_COLORS.items():
        if word in name:
            return gray
    if name in BASELINE_COLORS:
        return BASELINE_COLORS[name]
    others = (
        VARIANT_COLORS
        if "ncarl" in name or name.startswith("method")
        else BASELINE_PALETTE
    )
    digest = hashlib.sha256(name.encode()).digest()
    return others[digest[0] % len(others)]


def is_ours(label: str) -> bool:
    """Whether a method is one of this library, to be highlighted."""
    return method_color(label) in (NCARL_COLOR, BAYES_COLOR)


def shades(count: int) -> list[str]:
    """``count`` colors of increasing brightness."""
    steps = np.linspace(FIRST_SHADE, LAST_SHADE, max(count, 2))[:count]
    return [to_hex(colormaps["viridis"](step)) for step in steps]


def unique_in_order(names: Iterable[str]) -> list[str]:
    """Each name once, in the order of first appearance."""
    return list(dict.fromkeys(names))


def dynamic_range(values: Sequence[float]) -> float:
    """Largest over smallest positive value; 1 without any."""
    positive = [value for value in values if value > 0.0]
    return max(positive) / min(positive) if positive else 1.0


def log_axis(
    ax: Any, which: str, values: Sequence[float], *, sparse_ticks: bool = False
) -> None:
    """Make an axis logarithmic, with plain numbers at its ticks."""
    if which == "x":
        ax.set_xscale("log")
        axis = ax.xaxis
    else:
        ax.set_yscale("log")
        axis = ax.yaxis
    wide = dynamic_range(values)
    if sparse_ticks:
        wide *= 30.0
    digits = (1.0,) if wide > 2e3 else (1.0, 3.0) if wide > 60 else (1.0, 2.0, 5.0)
    # Beyond five decades more numbers would overlap.
    some = 5 if sparse_ticks or wide > 1e5 else 12
    axis.set_major_locator(LogLocator(subs=digits, numticks=some))
    axis.set_major_formatter(FuncFormatter(lambda x, _: plain_number(x)))
    axis.set_minor_formatter(NullFormatter())


def plain_number(value: float) -> str:
    """A number without exponent between 0.0001 and 999,999.

    Examples
    --------
    >>> plain_number(0.05), plain_number(3000.0), plain_number(1e-8)
    ('0.05', '3000', '1e-8')
    """
    if value == 0.0 or abs(value) >= 1e-4:
        return f"{value:.6g}"
    return f"{value:.0e}".replace("e-0", "e-")


def tidy_axes(ax: Any) -> None:
    """Hide the upper and right spines, and draw a faint grid."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(True, color="#e4e4e4", linewidth=0.6)
    ax.set_axisbelow(True)
    ax.tick_params(labelsize=9, colors=INK)
