"""Figures of a study, drawn with matplotlib but without pyplot.

`draw_study` draws the figure of a plan by its kind; the other functions draw from
entries and arrays.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, NullLocator

from ncarl.core.types import Array
from ncarl.datasets.catalog import dataset_info
from ncarl.evaluation.measure import DONE, OVER_BUDGET
from ncarl.plots import ImagePanel
from ncarl.plots.images import to_rgb_image
from ncarl.plots.style import (
    DARK_GRAY,
    DPI,
    INK,
    REFERENCE,
    TITLE,
    despine,
    dynamic_range,
    log_axis,
    spans_decade,
)
from ncarl.registry import METHODS
from ncarl.reproduce.plan import StudyPlan, load_paper_values
from ncarl.reproduce.summary import (
    MEASURES,
    Entry,
    StudyData,
    load_color_pictures,
    load_photographs,
    mean_and_std,
    objective_histories,
    printed_value_or_bound,
)
from ncarl.reproduce.theory import CERTIFICATE_TOL, TheoremFacts
from ncarl.reproduce.verdicts import OUR_FORM, PRINTED_FORM

#: Methods of this library, which are highlighted.
OURS = ("ncarl", "bayes")
NCARL_COLOR, BAYES_COLOR = METHODS["ncarl"].color, METHODS["bayes"].color
#: Colors of the rows whose names are not those of the registry.
ROW_COLORS = {
    "mean": "#9a9a9a",
    "f-nuclear": METHODS["factored-nuclear"].color,
    "s-half": METHODS["schatten"].color,
    "s-two-thirds": "#88bbdd",
    "ncarl-printed": "#093c66",
}
MARKERS = ("o", "s", "D", "^", "v", "P", "X", "<", ">", "h")
LINE_STYLES = ("-", "--", ":")
RULE_LABELS = {"smooth": "smoothed weights", "pinv": "printed weights (pseudo-inverse)"}
MAX_PANELS_PER_ROW = 3
#: Fraction of the band of a method over which the dots of its rates are spread.
BAND_HEIGHT = 0.6
#: Fraction of a panel that is reserved for text, if there is some.
TEXT_SHARE = 0.32
#: Minimum and maximum width of a picture in a grid, in dots.
MIN_PICTURE_DOTS, MAX_PICTURE_DOTS = 300, 480
#: Style of the titles of the panels on theorems, which have two lines.
THEOREM_TITLE = {**TITLE, "fontsize": 10.5}
TITLE_SIZE, NOTE_SIZE, CREDIT_SIZE = 11.0, 9.5, 8.0
#: Upper estimate of the width of a letter over its font size.
LETTER_WIDTH = 0.6


def draw_study(study: StudyData) -> Figure | None:
    """Draw the figure of a plan; None if there is nothing to show."""
    return FIGURE_BUILDERS[study.plan.kind](study)


def _table_figure(study: StudyData) -> Figure | None:
    entries = study.protocol_entries()
    if not any(e.error is not None for e in entries):
        return None
    reduced = ", reduced" if study.quick else ""
    title = f"{study.plan.title} ({entries[0].protocol} protocol{reduced})"
    if study.plan.kind == "rates":
        return draw_error_vs_rate(entries, title=title)
    return draw_table(entries, measure=study.plan.measure, title=title)


def _neighbors_figure(study: StudyData) -> Figure | None:
    curves: dict[str, list[tuple[int, float, float | None]]] = {}
    best: dict[str, int] = {}
    known = load_paper_values()["figures"]["fig7"]["best_k"]
    for e in study.protocol_entries():
        form = "as printed" if e.method.startswith(PRINTED_FORM) else "NCARL"
        name = f"{e.group}, {form}"
        if e.error is not None:
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


def _completed_figure(study: StudyData) -> Figure | None:
    """Pictures with missing pixels beside their completions.

    In a noisy plan, a row for each picture at several values of gamma.
    """
    rows: dict[str, list[ImagePanel]] = {}
    for (group, method), one in load_color_pictures(study).items():
        seen, psnr = one.stack_channels("seen"), np.mean(one.psnrs)
        if study.plan.kind == "noisy":
            row = rows.setdefault(group, [ImagePanel(seen, group, "half hidden")])
            smooth = np.clip(one.stack_channels("smooth"), 0.0, 1.0)
            title = f"gamma = {float(method.rpartition('=')[2]):g}"
            note = f"rank {np.mean(one.ranks):.0f}, {psnr:.1f} dB"
            row.append(ImagePanel(smooth, title, note))
        else:
            filled = np.clip(one.stack_channels("filled"), 0.0, 1.0)
            note = f"{psnr:.1f} dB on hidden pixels"
            row = rows.setdefault(group.split(", ")[-1], [])  # one for each mask
            row += [ImagePanel(seen, group), ImagePanel(filled, "recovered", note)]
    if not rows:
        return None
    return draw_picture_grid(list(rows.values()), credit=photo_credits(study.plan))


def photo_credits(plan: StudyPlan) -> str:
    """Attribution of the photographs of a figure."""
    return "; ".join(dataset_info(name).citation for name in plan.options["photos"])


FIGURE_BUILDERS: Mapping[str, Callable[[StudyData], Figure | None]] = {
    "table": _table_figure,
    "rates": _table_figure,
    "neighbors": _neighbors_figure,
    "curves": _curves_figure,
    "spectrum": _spectrum_figure,
    "gallery": _gallery_figure,
    "recovered": _completed_figure,
    "noisy": _completed_figure,
    "theory": lambda study: draw_theorems(study.facts) if study.facts else None,
}


def draw_table(
    entries: Sequence[Entry], *, measure: str = "error", title: str
) -> Figure:
    """Draw a table as a figure: a panel for each group, a row for each method.

    Dots are our results, with the standard deviation as a bar; open circles are
    printed values; hollow triangles exceeded their budget. A text says why a value is
    missing. The entries are of one study and one protocol.
    """
    rows = {entry.label: entry.method for entry in entries}
    rates = sorted({entry.missing for entry in entries})
    colors = dict(zip(rates, shades(len(rates)), strict=True))
    groups = list(dict.fromkeys(entry.group for entry in entries))
    height = 1.8 + (0.2 + 0.075 * len(rates)) * len(rows)
    figure = Figure(figsize=(1.6 + 3.1 * len(groups), height), layout="constrained")
    axes = figure.subplots(1, len(groups), sharey=True, squeeze=False)[0]
    for group, ax in zip(groups, axes, strict=True):
        some = [entry for entry in entries if entry.group == group]
        _draw_group(ax, some, list(rows), colors, measure)
        ax.set_title(group, fontsize=10, color=INK)
        ax.set_xlabel(MEASURES[measure], fontsize=9, color=INK)
    axes[0].set_yticks(range(len(rows)), rows)
    axes[0].set_ylim(len(rows) - 0.5, -0.5)
    for tick, method in zip(axes[0].get_yticklabels(), rows.values(), strict=True):
        if method in OURS:
            tick.set(color=method_color(method), fontweight="bold")
    figure.suptitle(title, fontsize=12, color=INK)
    handles = [
        Line2D([], [], marker="o", linestyle="", markersize=5, color=color,
               label=f"{rate:g} missing")
        for rate, color in colors.items()
    ]  # fmt: skip
    printed = [printed_value_or_bound(entry, measure) for entry in entries]
    signs = {
        ("o", "printed in the paper"): any(p is not None and not b for p, b in printed),
        (">", "printed as a lower bound"): any(bound for _, bound in printed),
    }
    # Two lines if one is too narrow.
    columns = max(2, int(figure.get_figwidth() / 1.55))
    _add_legend(figure, handles, signs, entries, [measure], columns, markersize=6)
    return figure


def _draw_group(
    ax: Any,
    entries: Sequence[Entry],
    labels: Sequence[str],
    colors: Mapping[float, str],
    measure: str,
) -> None:
    _set_style(ax)
    ax.grid(False, axis="y")
    ax.tick_params(axis="y", length=0)
    for row in range(0, len(labels), 2):
        ax.axhspan(row - 0.5, row + 0.5, color="#f5f5f5", zorder=0)
    rates = list(colors)
    for entry in entries:
        # The first rate is the upper one of its method.
        offset = (rates.index(entry.missing) + 0.5) / len(rates) - 0.5
        y = labels.index(entry.label) + BAND_HEIGHT * offset
        _draw_entry(ax, entry, y, colors[entry.missing], measure)
    values = _all_values(entries, measure)
    if spans_decade(values):
        log_axis(ax, "x", values)
    else:
        ax.xaxis.set_major_locator(MaxNLocator(nbins=4, steps=[1, 2, 5, 10]))
    texts = missing_value_labels(entries, measure, rates)
    if not values:
        ax.set_xticks([])
    elif texts:
        _leave_room(ax)
    for label, text in texts.items():
        ax.text(0.015, labels.index(label), text, fontsize=6.5, color=DARK_GRAY,
                transform=ax.get_yaxis_transform(), va="center", zorder=5)  # fmt: skip


def _draw_entry(ax: Any, entry: Entry, y: float, color: str, measure: str) -> None:
    value, sd = mean_and_std(entry, measure)
    printed, is_bound = printed_value_or_bound(entry, measure)
    if printed is not None:
        ax.plot(printed, y, ">" if is_bound else "o", markersize=5.8, mec=color,
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
    """Texts for methods of a group that have no value at some of all its rates.

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


def _all_values(entries: Sequence[Entry], measure: str) -> list[float]:
    ours = (mean_and_std(entry, measure)[0] for entry in entries)
    theirs = (printed_value_or_bound(entry, measure)[0] for entry in entries)
    return [value for value in (*ours, *theirs) if value is not None]


def _add_legend(
    figure: Figure,
    handles: list[Line2D],
    signs: Mapping[tuple[str, str], bool],
    entries: Sequence[Entry],
    measures: Iterable[str],
    columns: int,
    *,
    markersize: int,
) -> None:
    is_late = any(
        entry.status == OVER_BUDGET and mean_and_std(entry, measure)[0] is not None
        for entry in entries
        for measure in measures
    )
    signs = {**signs, ("^", "over budget: value at the last step"): is_late}
    handles += [
        Line2D([], [], marker=sign, linestyle="", markersize=markersize, mec=INK,
               mfc="none", label=label)
        for (sign, label), is_used in signs.items() if is_used
    ]  # fmt: skip
    figure.legend(handles=handles, loc="outside lower center", frameon=False,
                  ncols=min(len(handles), columns), fontsize=8.5,
                  handletextpad=0.4)  # fmt: skip


def draw_error_vs_rate(entries: Sequence[Entry], *, title: str) -> Figure:
    """Draw error and seconds against the missing rate, a line for each method.

    Filled markers are our results, with standard deviations for several seeds; open
    circles are printed values; hollow triangles exceeded their budget. The entries are
    of one study and one protocol.
    """
    figure = Figure(figsize=(9.6, 4.9), layout="constrained")
    rates = sorted({entry.missing for entry in entries})
    methods: dict[str, list[Entry]] = {}
    for entry in sorted(entries, key=lambda entry: entry.missing):
        methods.setdefault(entry.label, []).append(entry)
    axes = dict(zip(MEASURES, figure.subplots(1, 2), strict=True))
    handles = []
    for k, label in enumerate(dict.fromkeys(entry.label for entry in entries)):
        some = methods[label]
        style: dict[str, Any] = {
            "color": method_color(some[0].method, k),
            "marker": MARKERS[k % len(MARKERS)],
            "markersize": 5.5,
            "linewidth": 2.2 if some[0].method in OURS else 1.3,
        }
        for measure, ax in axes.items():
            _draw_rate_line(ax, some, measure, style)
        if all(mean_and_std(e, m)[0] is None for e in some for m in MEASURES):
            label += f" ({', '.join(dict.fromkeys(e.status for e in some))})"
        handles.append(Line2D([], [], label=label, **style))
    for measure, ax in axes.items():
        _set_style(ax)
        ax.set_xticks(rates, [f"{rate:g}" for rate in rates])
        ax.set(xlabel="missing rate", ylabel=MEASURES[measure])
        values = _all_values(entries, measure)
        if values and (measure == "seconds" or spans_decade(values)):
            log_axis(ax, "y", values)
            ax.margins(y=0.1)  # room for arrows
    figure.suptitle(title, fontsize=12, color=INK)
    printed = [printed_value_or_bound(e, m) for e in entries for m in MEASURES]
    signs = {
        ("o", "printed in the paper"): any(value is not None for value, _ in printed),
        ("o", "with an arrow: printed as a lower bound"): any(b for _, b in printed),
    }
    _add_legend(figure, handles, signs, entries, MEASURES, 5, markersize=8)
    return figure


def _draw_rate_line(
    ax: Any, entries: Sequence[Entry], measure: str, style: Mapping[str, Any]
) -> None:
    done, late, color = [], [], style["color"]
    for entry in entries:
        value, sd = mean_and_std(entry, measure)
        if value is not None and entry.status == OVER_BUDGET:
            late.append((entry.missing, value))
        elif value is not None:
            # On a logarithmic axis a bar must not reach 0.
            low = min(sd or 0.0, 0.95 * value)
            done.append((entry.missing, value, low, sd or 0.0))
        printed, is_bound = printed_value_or_bound(entry, measure)
        if printed is not None:
            place = (entry.missing, printed)
            ax.plot(*place, "o", markersize=8, mec=color, mfc="none", mew=1.3, zorder=5)
            if is_bound:
                arrow = {"arrowstyle": "<-", "color": color, "shrinkA": 0, "shrinkB": 4}
                ax.annotate("", place, (0, 20), textcoords="offset points",
                            arrowprops=arrow)  # fmt: skip
    if done:
        x, y, *bars = (np.array(column) for column in zip(*done, strict=True))
        ax.errorbar(x, y, yerr=bars if bars[1].any() else None, capsize=2.5,
                    zorder=4 if entries[0].method in OURS else 3, **style)  # fmt: skip
    if late:
        ax.plot(*zip(*late, strict=True), "^", linestyle=":", color=color, mfc="white",
                markersize=9, mew=1.5, linewidth=1.3, zorder=5)  # fmt: skip


def draw_error_vs_neighbors(
    curves: Mapping[str, Sequence[tuple[int, float, float | None]]],
    best: Mapping[str, int],
) -> Figure:
    """Draw error against the number of neighbors, a panel for each data set.

    Curves are triples of the number, the error and its standard deviation or None;
    dashed lines mark the best numbers according to the paper.
    """
    down = math.ceil(len(curves) / MAX_PANELS_PER_ROW)
    across = math.ceil(len(curves) / down)
    figure = Figure(figsize=(max(4.8, 4.2 * across), 3.7 * down), layout="constrained")
    axes = figure.subplots(down, across, squeeze=False).ravel()
    for ax, (name, points) in zip(axes, curves.items(), strict=False):
        _neighbors_panel(ax, sorted(points), best.get(name))
        ax.set_title(name, **TITLE)
    for ax in axes[len(curves) :]:
        ax.set_visible(False)
    for row in range(down):
        axes[row * across].set_ylabel("relative error on hidden entries")
    return figure


def _neighbors_panel(
    ax: Any, points: Sequence[tuple[int, float, float | None]], best: int | None
) -> None:
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
    _set_style(ax)
    least = int(np.argmin(errors))
    ax.plot(counts[least], errors[least], "o", markersize=12, mec=NCARL_COLOR,
            mfc="none", mew=1.6, label=f"least here: k = {counts[least]}")  # fmt: skip
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

    A dashed line marks the step by which the paper claims convergence.
    """
    figure = Figure(figsize=(max(4.6, 3.9 * len(curves)), 5.0), layout="constrained")
    shape = (2, len(curves))
    axes = figure.subplots(*shape, sharex="col", squeeze=False, height_ratios=(2.2, 1))
    for (upper, lower), (name, curve) in zip(axes.T, curves.items(), strict=True):
        values = np.asarray(curve, dtype=np.float64)
        steps = np.arange(1, len(values) + 1)
        upper.plot(steps, values, color=NCARL_COLOR, marker="o", markersize=3,
                   linewidth=1.6)  # fmt: skip
        if (values > 0).all() and dynamic_range(list(values)) > 50.0:
            log_axis(upper, "y", list(values))
        after, change = relative_changes(values)
        lower.plot(after, change, color=NCARL_COLOR, marker=".", linewidth=1.0)
        log_axis(lower, "y", list(change), sparse_ticks=True)
        for ax in (upper, lower):
            _set_style(ax)
            ax.axvline(claim, color=BAYES_COLOR, linestyle="--", linewidth=1.2)
            ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        upper.set_title(name, **TITLE)
        # On the side with more room.
        ha, offset = ("right", -5) if claim > 0.6 * len(values) else ("left", 5)
        upper.annotate(f"claimed: {claim} steps", (claim, 0.97), (offset, 0),
                       xycoords=("data", "axes fraction"), textcoords="offset points",
                       ha=ha, va="top", fontsize=9, color=BAYES_COLOR)  # fmt: skip
        lower.set_xlabel("step")
    axes[0, 0].set_ylabel("objective")
    axes[1, 0].set_ylabel("relative change")
    return figure


def relative_changes(values: Array) -> tuple[Array, Array]:
    """Steps that changed the objective, and their relative changes."""
    before = np.abs(values[:-1])
    change = np.abs(np.diff(values)) / np.where(before > 0.0, before, np.nan)
    seen = np.isfinite(change) & (change > 0.0)
    return np.arange(2, len(values) + 1)[seen], change[seen]


def draw_spectra(images: Mapping[str, Array], credit: str = "") -> Figure:
    """Draw pictures in gray or color beside their singular values.

    Those of a color picture are of the mean of its channels.
    """
    if not images:
        raise ValueError("images must hold one picture or more, got none")
    # Leave room for the titles above the grid.
    layout = ConstrainedLayoutEngine(h_pad=0.1, rect=(0.0, 0.0, 1.0, 0.97))
    figure = Figure(figsize=(10.5, 3.4 * len(images) + 0.3), layout=layout)
    axes = figure.subplots(len(images), 2, squeeze=False)
    for (left, right), (name, image) in zip(axes, images.items(), strict=True):
        if not np.isfinite(image).all():
            raise ValueError(
                f"images must have no missing pixels, got some in {name!r}"
            )
        left.imshow(to_rgb_image(image), interpolation="antialiased")
        left.set_axis_off()
        left.set_title(name, **TITLE)
        _draw_spectrum(right, image.mean(axis=2) if image.ndim == 3 else image)
    if credit:
        figure.supxlabel(credit, fontsize=8, color=DARK_GRAY, x=0.01, ha="left")
    return figure


def _draw_spectrum(ax: Any, image: Array) -> None:
    sigma = np.linalg.svd(image, compute_uv=False)
    relative = sigma / sigma[0] if sigma[0] > 0 else sigma
    seen = relative[relative > 1e-12]
    ax.plot(np.arange(1, len(seen) + 1), seen, color=NCARL_COLOR, linewidth=1.6)
    log_axis(ax, "y", [1e-9, 1.0] if len(seen) < 2 else list(seen))
    ax.set_xlabel("number of the singular value", fontsize=9)
    ax.set_ylabel("relative to the largest", fontsize=9)
    _set_style(ax)
    text = "\n".join(energy_lines(sigma))
    ax.text(0.97, 0.95, text, transform=ax.transAxes, ha="right", va="top", fontsize=9,
            color=INK, linespacing=1.4)  # fmt: skip


def energy_lines(sigma: Array) -> list[str]:
    """Share of the energy in the first singular values, as text."""
    energy = np.cumsum(np.square(sigma))
    counts = [count for count in (10, 20, 50) if count < len(sigma)] or [len(sigma)]
    shares = [energy[count - 1] / energy[-1] if energy[-1] else 1.0 for count in counts]
    lines = (f"{n}: {part:.2%}" for n, part in zip(counts, shares, strict=True))
    return ["energy in the first", *lines]


def draw_picture_grid(rows: Sequence[Sequence[ImagePanel]], credit: str = "") -> Figure:
    """Draw rows of pictures with a title and a note above each.

    Rows may differ in length; the credit is in small print below.
    """
    if not rows or not all(rows):
        raise ValueError("rows must hold one picture or more each, got an empty one")
    wides = [panel.image.shape[1] for row in rows for panel in row]
    # Dots across each picture: a multiple of its pixels if that fits.
    dots = [min(w * math.ceil(MIN_PICTURE_DOTS / w), MAX_PICTURE_DOTS) for w in wides]
    each = max(dots) / DPI
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
                fontsize=CREDIT_SIZE, color=DARK_GRAY, linespacing=1.3)  # fmt: skip
    return figure


def _draw_picture(
    figure: Figure,
    box: tuple[float, float, float, float],
    panel: ImagePanel,
    width: float,
) -> None:
    ax = figure.add_axes(box)
    ax.imshow(to_rgb_image(panel.image), interpolation="antialiased", aspect="auto")
    ax.set_axis_off()
    above = 5.0
    for text, size, weight in (
        (panel.note, NOTE_SIZE, "normal"),
        (panel.title, TITLE_SIZE, "bold"),
    ):
        for line in reversed(_wrap_text(text, width, size)):
            ax.annotate(line, (0.5, 1.0), (0, above), xycoords="axes fraction",
                        textcoords="offset points", ha="center", va="bottom",
                        fontsize=size, fontweight=weight, color=INK)  # fmt: skip
            above += 1.3 * size


def _wrap_text(text: str, inches: float, size: float) -> list[str]:
    most = max(8, int(inches * 72 / (size * LETTER_WIDTH)))
    wrap = textwrap.TextWrapper(most, break_on_hyphens=False).wrap
    return [line for part in text.splitlines() for line in wrap(part)]


def _header_height(panel: ImagePanel, width: float) -> float:
    """Height of title and note above a picture, in inches."""
    title = _wrap_text(panel.title, width, TITLE_SIZE)
    note = _wrap_text(panel.note, width, NOTE_SIZE)
    return (1.3 * (TITLE_SIZE * len(title) + NOTE_SIZE * len(note)) + 14.0) / 72


def _aspect(image: Array) -> float:
    return float(image.shape[0] / image.shape[1])


def draw_theorems(facts: TheoremFacts) -> Figure:
    """Draw the numbers behind theorems 3 to 5."""
    figure = Figure(figsize=(12.6, 4.6), layout="constrained")
    panels = (_draw_bound, _draw_step, _draw_limit)
    for ax, draw in zip(figure.subplots(1, 3), panels, strict=True):
        _set_style(ax)
        draw(ax, facts)
    return figure


def _draw_bound(ax: Any, facts: TheoremFacts) -> None:
    ratios = np.array(facts.ratios)
    ax.plot(np.arange(1, len(ratios) + 1), ratios, color=NCARL_COLOR, linewidth=1.8,
            label=f"{len(ratios)} random D > 0, sorted")  # fmt: skip
    ax.axhline(1.0, **REFERENCE)
    ax.plot(1, facts.ratio_at_formula, "o", color=NCARL_COLOR, markersize=7,
            label=f"D of the theorem: {facts.ratio_at_formula:.6f}")  # fmt: skip
    value, norm = facts.singular
    ax.plot(1, value / norm, "X", color=BAYES_COLOR, markersize=9,
            label=f"singular D, X = I: {value:g} / {norm:g}")  # fmt: skip
    values = [*facts.ratios, value / norm]
    log_axis(ax, "y", values)
    ax.set_ylim(min(values) / 1.5, max(values) * 3.5)
    ax.set(xlabel="draw", ylabel=r"$\mathrm{tr}(X D X^T)\ /\ \|X\|_*^2$")
    ax.set_title("Theorem 3: the surrogate bounds the norm,\nif D > 0", **THEOREM_TITLE)
    ax.legend(frameon=False, fontsize=8.5, loc="upper left")


def _draw_step(ax: Any, facts: TheoremFacts) -> None:
    deltas, gradients = np.array(facts.deltas), np.array(facts.gradients)
    ax.loglog(deltas, gradients, "o-", color=NCARL_COLOR, linewidth=1.6,
              label=f"measured; slope {facts.slope:.3f}")  # fmt: skip
    ax.loglog(deltas, deltas * gradients[0] / deltas[0], **REFERENCE,
              label="proportional to δ")  # fmt: skip
    ax.set(xlabel="δ", ylabel=r"gradient at free entries / $\|M\|$")
    ax.text(0.97, 0.05, rf"equals $-2\delta X$ to {max(facts.gradient_errors):.0e}",
            transform=ax.transAxes, ha="right", fontsize=8.5, color=INK)  # fmt: skip
    ax.set_title("Theorem 4: a step solves its problem\nup to δ", **THEOREM_TITLE)
    ax.legend(frameon=False, fontsize=8.5, loc="upper left")


def _draw_limit(ax: Any, facts: TheoremFacts) -> None:
    colors = {"smooth": NCARL_COLOR, "pinv": BAYES_COLOR}
    for style, (kind, rules) in zip(LINE_STYLES, facts.excess.items(), strict=False):
        for rule, excess in rules.items():
            shown = np.maximum(excess, CERTIFICATE_TOL)
            ax.loglog(facts.steps, shown, style, marker="o", markersize=4.5,
                      color=colors.get(rule, DARK_GRAY),
                      label=f"{RULE_LABELS.get(rule, rule)}, {kind}")  # fmt: skip
    ax.axhline(CERTIFICATE_TOL, color=DARK_GRAY, linewidth=1.0, linestyle=":")
    ax.text(facts.steps[0], CERTIFICATE_TOL / 1.3, "tolerance of the least norm",
            va="top", fontsize=7.5, color=DARK_GRAY)  # fmt: skip
    ax.set_ylim(CERTIFICATE_TOL / 2000, 5.0)
    ax.set_xticks(facts.steps, [str(step) for step in facts.steps])
    ax.xaxis.minorticks_off()
    ax.set(xlabel="steps", ylabel="nuclear norm over the least one, minus 1")
    title = "Corollary 1, theorem 5: distance from\nthe least nuclear norm"
    ax.set_title(title, **THEOREM_TITLE)
    ax.legend(frameon=False, fontsize=7.5, loc="lower left", handlelength=3.4)


def method_color(method: str, index: int = 0) -> str:
    """The color of a row of a table; that of an unknown method depends on its place."""
    if method in METHODS:
        return METHODS[method].color
    return ROW_COLORS.get(method, f"C{index % 10}")


def shades(count: int) -> list[str]:
    """``count`` colors of increasing brightness."""
    # The bright end of the color map is hard to see on white.
    steps = np.linspace(0.0, 0.82, max(count, 2))[:count]
    return [to_hex(colormaps["viridis"](step)) for step in steps]


def _set_style(ax: Any) -> None:
    despine(ax, grid="both")
    ax.tick_params(labelsize=9)
