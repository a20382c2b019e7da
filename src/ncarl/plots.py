"""Figures: before and after, convergence, error bars, learned similarity.

Every function gives a `matplotlib.figure.Figure` and leaves pyplot alone, so that it
works without a screen and from several threads.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import ScaledTranslation

from ncarl.core.types import Array
from ncarl.storage import replacing

#: Where a pixel is missing; no grey, so that it is not taken for one.
GAP = "#e8a33d"
INK = "#333333"
#: Intervals that hold the truth, and those that do not.
HELD, MISSED = "#2f6db3", "#d1495b"
#: Dots per inch of saved figures.
DPI = 120
#: Least and most dots across a picture.
NARROWEST, WIDEST = 600, 960
#: More names than this along an axis cannot be read.
MOST_NAMES = 40


@dataclass(frozen=True)
class Panel:
    """A picture and what to write above it.

    Attributes
    ----------
    image : array of shape (height, width) or (height, width, 3)
        Values between 0 and 1; NaN where a pixel is missing.
    title, note : str
        A bold line, and a plain one below it.
    """

    image: Array
    title: str
    note: str = ""


def before_after(panels: Sequence[Panel], *, credit: str = "") -> Figure:
    """Pictures side by side, each pixel a whole number of dots wide.

    Parameters
    ----------
    panels : sequence of Panel
        The pictures, all of one shape.
    credit : str
        Whose picture it is; written small below.
    """
    height, wide = panels[0].image.shape[:2]
    dots = min(wide * math.ceil(NARROWEST / wide), WIDEST)
    each, tall = dots / DPI, round(dots * height / wide) / DPI
    gap, above, below = 15 / DPI, 84 / DPI, (36 if credit else 9) / DPI
    width = gap + len(panels) * (each + gap)
    total = below + tall + above
    figure = Figure(figsize=(width, total))
    for k, panel in enumerate(panels):
        left = gap + k * (each + gap)
        box = (left / width, below / total, each / width, tall / total)
        ax = figure.add_axes(box)
        ax.imshow(_painted(panel.image), interpolation="antialiased", aspect="auto")
        ax.set_axis_off()
        ax.set_title(panel.title, fontsize=15, fontweight="bold", color=INK, pad=27)
        ax.text(0.5, 1.0, panel.note, ha="center", va="bottom", fontsize=13, color=INK,
                transform=ax.transAxes + _up(figure, 7))  # fmt: skip
    if credit:
        figure.text(gap / width, 0.09 / total, credit, fontsize=9, color="#777777")
    return figure


def _up(figure: Figure, points: float) -> ScaledTranslation:
    """A shift upwards by so many points."""
    return ScaledTranslation(0.0, points / 72, figure.dpi_scale_trans)


def convergence(
    curves: Mapping[str, Array],
    *,
    tol: float | None = None,
    label: str = "relative change of the Gram matrix",
    title: str = "",
) -> Figure:
    """What each step changed, on a logarithmic axis.

    Parameters
    ----------
    curves : mapping of str to array of shape (steps,)
        ``history_["change"]`` of fits, by the name that the legend shows.
    tol : float, optional
        Where the fits stop; drawn as a dashed line.
    label : str
        What is measured: ``change`` is the gain in log evidence per observed entry
        in fits of `BayesianNCARL`.
    title : str
        Written above.
    """
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    ax = figure.add_subplot()
    for name, change in curves.items():
        steps = np.arange(1, len(change) + 1)
        # The first change is measured against nothing and may be infinite.
        shown = np.isfinite(change) & (np.asarray(change) > 0)
        ax.semilogy(steps[shown], change[shown], marker="o", markersize=3.5, label=name)
    if tol:
        ax.axhline(tol, color="#999999", linestyle="--", linewidth=1)
        ax.annotate(f"tol = {tol:g}", (0.0, tol), xycoords=("axes fraction", "data"),
                    xytext=(5, -5), textcoords="offset points", va="top",
                    color="#777777", fontsize=9)  # fmt: skip
        # A curve may pass below and come back while the floor still falls: show it.
        ax.set_ylim(bottom=min(tol, ax.get_ylim()[0]) / 3)
    ax.set_xlabel("step")
    ax.set_ylabel(label)
    ax.set_title(title, fontsize=11)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False)
    return figure


def error_bars(
    truth: Array, filled: Array, low: Array, high: Array, *, title: str, unit: str
) -> Figure:
    """Filled values against the truth, with intervals.

    Intervals that miss the truth have a colour of their own.

    Parameters
    ----------
    truth, filled, low, high : arrays of shape (entries,)
        True and filled values, and the ends of the intervals.
    title : str
        Written above.
    unit : str
        What values are counted in.
    """
    figure = Figure(figsize=(6.4, 6.0), layout="constrained")
    ax = figure.add_subplot()
    ends = [float(f(v)) for v in (truth, filled) for f in (np.min, np.max)]
    ax.axline((0, 0), slope=1, color="#999999", linewidth=1, linestyle="--", zorder=1)
    missed = (truth < low) | (truth > high)
    kinds = ((~missed, HELD, "interval holds the truth"),
             (missed, MISSED, "interval misses it"))  # fmt: skip
    for some, colour, label in kinds:
        ax.vlines(truth[some], low[some], high[some], color=colour, alpha=0.55,
                  linewidth=1.5, zorder=2)  # fmt: skip
        ax.plot(truth[some], filled[some], "o", color=colour, markersize=4.5,
                label=f"{label}: {some.sum()}", zorder=3)  # fmt: skip
    margin = 0.05 * (max(ends) - min(ends))
    ax.set_xlim(min(ends) - margin, max(ends) + margin)
    ax.set_xlabel(f"truth ({unit})")
    ax.set_ylabel(f"filled ({unit})")
    ax.set_title(title, fontsize=11)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, loc="upper left")
    return figure


def similarity_map(
    S: Any,
    *,
    title: str,
    names: Sequence[str] | None = None,
    label: str = "similarity",
    axis: str = "column",
    most: float | None = None,
) -> Figure:
    """A similarity (or correlation) of columns as a heat map.

    Parameters
    ----------
    S : array or sparse matrix of shape (n, n)
        Not negative for a similarity; with negative entries a colour map that is
        white at zero is used.
    title : str
        Written above.
    names : sequence of str, optional
        Names of the columns; left out where there are too many to read.
    label : str
        What the colours mean.
    axis : str
        What rows and columns of ``S`` are.
    most : float, optional
        Where the colours end if nothing is negative; by default the strongest
        entries share the last colour.
    """
    values = np.asarray(S.toarray() if hasattr(S, "toarray") else S, dtype=np.float64)
    named = names is not None and len(names) <= MOST_NAMES
    side = max(5.2, 0.26 * len(values)) if named else 5.2
    figure = Figure(figsize=(side + 1.2, side), layout="constrained")
    ax = figure.add_subplot()
    image = ax.imshow(values, interpolation="nearest", **_colours(values, most))
    over = "max" if image.get_clim()[1] < values.max(initial=0.0) else "neither"
    figure.colorbar(image, ax=ax, label=label, shrink=0.75, extend=over)
    ax.set_title(title, fontsize=11)
    if named and names is not None:
        ax.set_xticks(range(len(names)), names, rotation=90, fontsize=8)
        ax.set_yticks(range(len(names)), names, fontsize=8)
    else:
        ax.set_xlabel(axis)
        ax.set_ylabel(axis)
    return figure


def save_figure(
    figure: Figure, path: str | os.PathLike[str], *, dpi: int = DPI
) -> Path:
    """Write a figure as a PNG file; the file is whole or absent."""
    target = Path(path)
    with replacing(target) as temporary:
        # No software tag: the same figure gives the same bytes everywhere.
        figure.savefig(temporary, dpi=dpi, format="png", metadata={"Software": None})
    return target


def _painted(image: Array) -> Array:
    """A picture as colours, gaps in a colour of their own."""
    gaps = np.isnan(image)
    if image.ndim == 2:
        image = np.repeat(image[:, :, None], 3, axis=2)
    else:
        gaps = gaps.any(axis=2)
    painted = np.clip(np.nan_to_num(image), 0.0, 1.0)
    painted[gaps] = [int(GAP[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    return painted


def _colours(values: Array, most: float | None) -> dict[str, Any]:
    """A colour map and its range: white at zero if there are two signs."""
    if values.min(initial=0.0) < 0.0:
        largest = float(np.abs(values).max())
        return {"cmap": colormaps["RdBu_r"], "vmin": -largest, "vmax": largest}
    if most is None:
        # A few strong neighbours must not leave the rest of the map empty.
        some = values[values > 0.0]
        most = float(np.quantile(some, 0.98)) if some.size else 1.0
    return {"cmap": colormaps["Blues"], "vmin": 0.0, "vmax": most}
