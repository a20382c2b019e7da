"""Figures of effects: paths with bands, and the effect among placebos."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ncarl.core.types import Array
from ncarl.panel.result import Counterfactual

SEEN, EXPECTED, BAND, OTHERS = "#333333", "#2f6db3", "#c6dbef", "#c4c4c4"
#: More labels than this along the axis of time are thinned out.
MOST_LABELS = 10


def effect_figure(result: Counterfactual, unit: Any) -> Figure:
    """Observed and expected values of a treated unit, and below them the effect."""
    from ncarl.plots.style import plain

    row = result.panel.position(unit)
    figure = Figure(figsize=(7.0, 5.6), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    places = np.arange(len(result.panel.times))
    low, high = result.low[row], result.high[row]
    above.fill_between(places, low, high, color=BAND, lw=0, label=_band(result))
    above.plot(places, result.expected[row], color=EXPECTED, ls="--", lw=1.8,
               label="expected without treatment")  # fmt: skip
    above.plot(places, result.panel.values[row], color=SEEN, lw=1.8, label="observed")
    above.set_title(plain(unit), fontsize=11)
    above.legend(frameon=False, fontsize=9)
    below.fill_between(places, result.effect_low[row], result.effect_high[row],
                       color=BAND, lw=0)  # fmt: skip
    below.axhline(0.0, color="#999999", lw=1)
    below.plot(places, result.effect[row], color=SEEN, lw=1.5)
    below.set_ylabel("effect")
    for axes in (above, below):
        _mark_start(axes, result.treated[row])
        axes.spines[["top", "right"]].set_visible(False)
    _label_times(below, result.panel.times)
    return figure


def placebo_figure(result: Counterfactual, unit: Any) -> Figure:
    """The effect on a treated unit before those on control units, all in one scale."""
    from ncarl.plots.style import plain

    assert result.placebos is not None
    row = result.panel.position(unit)
    pattern = result.patterns[result.units.index(unit)]
    figure = Figure(figsize=(7.0, 4.2), layout="constrained")
    axes = figure.add_subplot()
    places, shown = np.arange(len(result.panel.times)), False
    for course in result.placebos.courses[pattern]:
        if course is not None:
            label = None if shown else "control units, taken to be treated"
            axes.plot(course.times, course.errors, color=OTHERS, lw=0.9, label=label)
            shown = True
    treated = result.treated[row]
    effect = np.where(treated, result.effect[row], np.nan)
    axes.plot(places, effect, color=EXPECTED, lw=2.2, label=plain(unit))
    axes.axhline(0.0, color="#999999", lw=1)
    _mark_start(axes, treated)
    axes.set_ylabel("observed minus expected")
    if len(result.units) == 1:
        p = result.placebo_test().p_value
        axes.set_title(f"placebo test: p = {p:.3g}", fontsize=11)
    figure.legend(frameon=False, fontsize=9, loc="outside lower center", ncols=2)
    axes.spines[["top", "right"]].set_visible(False)
    _label_times(axes, result.panel.times, np.flatnonzero(treated))
    return figure


def _band(result: Counterfactual) -> str:
    """What the band is."""
    return f"{100 * result.level:g}% interval"


def _mark_start(axes: Any, treated: Array) -> None:
    """A line where treatment begins."""
    first = int(np.argmax(treated))
    axes.axvline(first - 0.5, color="#999999", lw=1, ls=":")


def _label_times(
    axes: Any, times: tuple[Any, ...], places: Array | None = None
) -> None:
    """Names of some times below the axis."""
    every = np.arange(len(times)) if places is None else places
    some = every[:: max(1, -(-len(every) // MOST_LABELS))]
    axes.set_xticks(some, [_short(times[k]) for k in some])


def _short(time: Any) -> str:
    """A time as few letters as will do."""
    from ncarl.plots.style import plain

    return plain(str(time).removesuffix(" 00:00:00"))
