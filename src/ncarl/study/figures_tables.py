"""Tables as figures: methods one below the other, a dot for each missing rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from ncarl.plots.style import INK
from ncarl.study.cells import DONE, OVER
from ncarl.study.entries import Entry
from ncarl.study.figures_style import (
    SOFT,
    WIDE_SPREAD,
    colour_of,
    first_seen,
    is_ours,
    log_axis,
    shades,
    spread,
    tidy_axes,
)
from ncarl.study.shown import MEASURES, check_measure, printed_of, value_of

#: Part of a method's band over which the dots of its rates are spread.
BAND = 0.6
#: Part of a panel that is kept free for words where there are some.
WORDS = 0.32


@dataclass(frozen=True)
class _Look:
    """What all panels share: rows, rates and their colours, the measure."""

    methods: list[str]
    rates: list[float]
    measure: str

    @property
    def colours(self) -> dict[float, str]:
        """The colour of each rate."""
        return dict(zip(self.rates, shades(len(self.rates)), strict=True))

    def height(self, entry: Entry) -> float:
        """Where an entry lies; the first rate is the upper one of its method."""
        row, rate = self.methods.index(entry.label), self.rates.index(entry.missing)
        return row + BAND * ((rate + 0.5) / len(self.rates) - 0.5)


def table_figure(
    entries: Sequence[Entry], *, measure: str = "error", title: str
) -> Figure:
    """A table as a figure: a panel for each group, a row for each method.

    Parameters
    ----------
    entries : sequence of Entry
        Of one study and one protocol; methods are drawn in their order.
    measure : {"error", "seconds"}
        What is drawn.
    title : str
        Written above.

    Returns
    -------
    figure : Figure
        Dots are ours, with the standard deviation as a bar; open circles are the
        paper's; hollow triangles ran out of time. What has no figure is written.
    """
    check_measure(measure)
    if not entries:
        raise ValueError("entries must hold one entry or more, got none")
    methods = first_seen(entry.label for entry in entries)
    look = _Look(methods, sorted({entry.missing for entry in entries}), measure)
    groups = first_seen(entry.group for entry in entries)
    each = 0.2 + 0.075 * len(look.rates)
    size = (1.6 + 3.1 * len(groups), 1.8 + each * len(methods))
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(1, len(groups), sharey=True, squeeze=False)[0]
    for group, ax in zip(groups, axes, strict=True):
        _panel(ax, [entry for entry in entries if entry.group == group], look)
        ax.set_title(group, fontsize=10, color=INK)
        ax.set_xlabel(MEASURES[measure], fontsize=9, color=INK)
    _name_rows(axes[0], methods)
    figure.suptitle(title, fontsize=12, color=INK)
    _legend(figure, look, entries)
    return figure


def _name_rows(ax: Any, methods: Sequence[str]) -> None:
    """Names of methods along the left side, the first at the top."""
    ax.set_yticks(range(len(methods)), methods)
    ax.set_ylim(len(methods) - 0.5, -0.5)
    for name, tick in zip(methods, ax.get_yticklabels(), strict=True):
        tick.set_color(colour_of(name) if is_ours(name) else INK)
        tick.set_fontweight("bold" if is_ours(name) else "normal")


def _panel(ax: Any, entries: Sequence[Entry], look: _Look) -> None:
    """Dots of one group, and words where there are none."""
    tidy_axes(ax)
    ax.grid(False, axis="y")
    ax.tick_params(axis="y", length=0)
    for row in range(0, len(look.methods), 2):
        ax.axhspan(row - 0.5, row + 0.5, color="#f5f5f5", zorder=0)
    for entry in entries:
        _dot(ax, entry, look)
    _scale(ax, entries, look)
    for label, text in words_of(entries, look.measure, look.rates).items():
        ax.text(0.015, look.methods.index(label), text, fontsize=6.5, color=SOFT,
                transform=ax.get_yaxis_transform(), va="center", zorder=5)  # fmt: skip


def _dot(ax: Any, entry: Entry, look: _Look) -> None:
    """One entry, and what the paper prints."""
    colour, y = look.colours[entry.missing], look.height(entry)
    value, sd = value_of(entry, look.measure)
    printed, bound = printed_of(entry, look.measure)
    if printed is not None:
        ax.plot(printed, y, ">" if bound else "o", markersize=5.8, mec=colour,
                mfc="none", mew=1.1, zorder=3)  # fmt: skip
    if value is None:
        return
    if entry.status == OVER:
        ax.plot(value, y, "^", markersize=5, mec=colour, mfc="white", zorder=4)
        return
    ax.plot(value, y, "o", markersize=3.6, color=colour, zorder=5)
    if sd:
        # On a logarithmic axis a bar must not reach down to 0.
        ax.plot([max(value - sd, 0.05 * value), value + sd], [y, y], color=colour,
                linewidth=1.3, zorder=4, solid_capstyle="butt")  # fmt: skip


def _scale(ax: Any, entries: Sequence[Entry], look: _Look) -> None:
    """A logarithmic axis where values are far apart, and room for words."""
    ours = [value_of(entry, look.measure)[0] for entry in entries]
    theirs = [printed_of(entry, look.measure)[0] for entry in entries]
    values = [value for value in (*ours, *theirs) if value is not None]
    if spread(values) > WIDE_SPREAD:
        log_axis(ax, "x", values)
    else:
        ax.xaxis.set_major_locator(MaxNLocator(nbins=4, steps=[1, 2, 5, 10]))
    if not values:
        ax.set_xticks([])
    elif words_of(entries, look.measure, look.rates):
        _leave_room(ax)


def _leave_room(ax: Any) -> None:
    """Widen an axis to the left for words; no ticks below them."""
    first, last = ax.get_xlim()  # settles the limits, which the transform needs
    transform = ax.transScale + ax.transLimits
    low, _ = transform.inverted().transform((-WORDS / (1 - WORDS), 0.0))
    ticks = [tick for tick in ax.get_xticks() if first <= tick <= last]
    ax.set_xlim(left=low)
    ax.set_xticks(ticks)
    ax.minorticks_off()


def words_of(
    entries: Sequence[Entry], measure: str, rates: Sequence[float]
) -> Mapping[str, str]:
    """What to write for methods that have no figure at some rates.

    Parameters
    ----------
    entries : sequence of Entry
        Of one group.
    measure : {"error", "seconds"}
        What is drawn.
    rates : sequence of float
        All rates: they are named only if some of them do have a figure.

    Examples
    --------
    >>> def at(rate, status):
    ...     return Entry("t", "paper", "m", "WNNM", "", "", rate, status)
    >>> words_of([at(0.8, "failed"), at(0.9, "no data")], "error", [0.8, 0.9])
    {'WNNM': 'failed 0.8, no data 0.9'}
    >>> words_of([at(0.8, "not run"), at(0.9, "not run")], "error", [0.8, 0.9])
    {'WNNM': 'not run'}
    """
    found: dict[str, dict[str, list[float]]] = {}
    for entry in entries:
        if value_of(entry, measure)[0] is None:
            word = "no figure" if entry.status == DONE else entry.status
            found.setdefault(entry.label, {}).setdefault(word, []).append(entry.missing)
    return {
        label: ", ".join(
            word if len(at) == len(rates) else " ".join([word, *map("{:g}".format, at)])
            for word, at in states.items()
        )
        for label, states in found.items()
    }


def _legend(figure: Figure, look: _Look, entries: Sequence[Entry]) -> None:
    """Colours of rates and meanings of markers, in one line below the title."""
    handles = [
        Line2D([], [], marker="o", linestyle="", markersize=5, color=colour,
               label=f"{rate:g} missing")
        for rate, colour in look.colours.items()
    ]  # fmt: skip
    printed = [printed_of(entry, look.measure) for entry in entries]
    signs = [
        ("o", "printed in the paper", any(p is not None and not b for p, b in printed)),
        (">", "printed as a lower bound", any(bound for _, bound in printed)),
        ("^", "over budget: where it stood", any(
            entry.status == OVER and value_of(entry, look.measure)[0] is not None
            for entry in entries)),
    ]  # fmt: skip
    handles += [
        Line2D([], [], marker=sign, linestyle="", markersize=6, mec=INK, mfc="none",
               label=label)
        for sign, label, used in signs if used
    ]  # fmt: skip
    # More than fit the width are set in two lines.
    columns = min(len(handles), max(2, int(figure.get_figwidth() / 1.55)))
    figure.legend(handles=handles, loc="outside lower center", ncols=columns,
                  frameon=False, fontsize=8.5, handletextpad=0.2)  # fmt: skip
