"""Before and after: pictures, and tables as pictures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.transforms import ScaledTranslation

from ncarl.core.types import Array
from ncarl.plots.learned import (
    entries_of,
    is_model,
    knows_noise,
    middles_of,
    names_in,
    spreads_of,
)
from ncarl.plots.style import DPI, GAP, INK, name_ticks, names_of, thinned

#: Least and most dots across a picture.
NARROWEST, WIDEST = 600, 960
#: Rows and columns of a table beyond these are passed over evenly.
MOST_ROWS, MOST_COLUMNS = 400, 400
#: Where the colours of a table end, in spreads of the column.
FAR = 2.5


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

    Examples
    --------
    >>> import numpy as np
    >>> picture = np.linspace(0.0, 1.0, 12).reshape(3, 4)
    >>> holes = np.where(picture > 0.8, np.nan, picture)
    >>> figure = before_after([Panel(holes, "before"), Panel(picture, "after")])
    >>> len(figure.axes)
    2
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


def completion(
    X: Any,
    filled: Any,
    std: Any = None,
    *,
    names: Sequence[object] | None = None,
    title: str = "",
) -> Figure:
    """A table before and after, as pictures; where the filled values are uncertain.

    Every column is shown in its own spread about its own mean, so that columns of any
    unit can stand side by side.

    Parameters
    ----------
    X : container of shape (m, n)
        The table with its gaps.
    filled : fitted estimator, or array of shape (m, n)
        What fills them.
    std : array of shape (m, n), optional
        Standard deviations of the filled entries; those of the estimator, where it
        has some, unless given.
    names : sequence of str, optional
        Names of the columns; those of ``X`` or of the estimator unless given.
    title : str
        Written above.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[1.0, np.nan], [2.0, 4.0], [3.0, 6.0]])
    >>> figure = completion(X, np.array([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]]))
    >>> [ax.get_title() for ax in figure.axes[:2]]
    ['before: 16.7% missing', 'after']
    """
    entries, source = entries_of(X), filled
    dense = np.full(entries.shape, np.nan)
    dense[entries.rows, entries.indices] = entries.values
    if is_model(filled):
        after, std = _completed(filled, X, std)
    else:
        after = np.asarray(filled, dtype=np.float64)
    if after.shape != dense.shape:
        raise ValueError(
            f"filled must have the shape of X, {dense.shape}, got {after.shape}"
        )
    wide = names if names is not None else names_in(X, source)
    middle, unit = middles_of(entries), spreads_of(entries)
    safe = np.where(unit > 0.0, unit, 1.0)
    share = np.isnan(dense).mean()
    panels = [
        (f"before: {share:.1%} missing", (dense - middle) / safe),
        ("after", (after - middle) / safe),
    ]
    doubt = None if std is None else np.where(np.isnan(dense), std / safe, np.nan)
    return _drawn_table(panels, doubt, names_of(wide, dense.shape[1]), title)


def _completed(model: Any, X: Any, std: Any) -> tuple[Array, Array | None]:
    """What a model fills in, and how sure it is of it, where it can tell."""
    if std is not None or not knows_noise(model):
        given = None if std is None else np.asarray(std, dtype=np.float64)
        return np.asarray(model.transform(X)), given
    after, found = model.transform(X, return_std=True)
    return np.asarray(after), np.asarray(found)


def _drawn_table(
    panels: Sequence[tuple[str, Array]],
    doubt: Array | None,
    names: Sequence[str],
    title: str,
) -> Figure:
    """The panels of a table side by side, and the doubt beside them."""
    m, n = panels[0][1].shape
    some = np.ix_(thinned(m, MOST_ROWS), thinned(n, MOST_COLUMNS))
    shown = [names[place] for place in thinned(n, MOST_COLUMNS)]
    count = len(panels) + (doubt is not None)
    figure = Figure(figsize=(min(13.0, 4.0 * count + 1.0), 5.0), layout="constrained")
    axes = figure.subplots(1, count, sharey=True, squeeze=False)[0]
    colours = colormaps["RdBu_r"].with_extremes(bad=GAP)
    image: Any = None
    for ax, (words, values) in zip(axes, panels, strict=False):
        image = ax.imshow(values[some], cmap=colours, vmin=-FAR, vmax=FAR,
                          aspect="auto", interpolation="nearest")  # fmt: skip
        ax.set_title(words, fontsize=11, color=INK)
        name_ticks(ax, shown, "x")
    figure.colorbar(image, ax=axes[: len(panels)], extend="both", shrink=0.75,
                    label="spreads from the column's mean")  # fmt: skip
    if doubt is not None:
        colours = colormaps["Oranges"].with_extremes(bad="white")
        ax = axes[-1]
        image = ax.imshow(doubt[some], cmap=colours, vmin=0.0, vmax=1.0, aspect="auto",
                          interpolation="nearest")  # fmt: skip
        ax.set_title("how uncertain", fontsize=11, color=INK)
        name_ticks(ax, shown, "x")
        figure.colorbar(image, ax=ax, extend="max", shrink=0.75,
                        label="standard deviation, in spreads")  # fmt: skip
    axes[0].set_ylabel("row" if m <= MOST_ROWS else f"{MOST_ROWS} of {m} rows")
    figure.suptitle(title, fontsize=11, color=INK)
    return figure


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
