"""Figures before and after completion: images, and tables as images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from ncarl.containers import as_observations
from ncarl.core.types import Array
from ncarl.plots.fit import is_fitted_estimator, resolve_names, supports_std
from ncarl.plots.style import (
    DARK_GRAY,
    DPI,
    INK,
    MISSING_COLOR,
    TITLE,
    axis_labels,
    set_tick_labels,
    spaced_indices,
)

#: Minimum and maximum number of dots across an image.
MIN_WIDTH_DOTS, MAX_WIDTH_DOTS = 600, 960
#: Maximum number of rows and columns of a table; of more, an even selection is shown.
MAX_ROWS, MAX_COLUMNS = 400, 400
#: Ends of the color scale of a table, in standard deviations of the column.
COLOR_LIMIT = 2.5


@dataclass(frozen=True)
class ImagePanel:
    """An image with a title and a note.

    Attributes
    ----------
    image : array of shape (height, width) or (height, width, 3)
        Values between 0 and 1; NaN where a pixel is missing.
    title, note : str
        A bold line above the image, and a plain one below the title.
    """

    image: Array
    title: str
    note: str = ""


def before_after(panels: Sequence[ImagePanel], *, credit: str = "") -> Figure:
    """Images side by side, each pixel a whole number of dots wide.

    Parameters
    ----------
    panels : sequence of ImagePanel
        The images, all of one shape.
    credit : str
        Credit line, in small print below the images.

    Examples
    --------
    >>> import numpy as np
    >>> picture = np.linspace(0.0, 1.0, 12).reshape(3, 4)
    >>> holes = np.where(picture > 0.8, np.nan, picture)
    >>> before, after = ImagePanel(holes, "before"), ImagePanel(picture, "after")
    >>> len(before_after([before, after]).axes)
    2
    """
    kinds = {*map(type, panels)} if isinstance(panels, list | tuple) else None
    if kinds != {ImagePanel}:
        raise TypeError("panels must be a list of ImagePanel")
    height, wide = panels[0].image.shape[:2]
    dots = min(wide * math.ceil(MIN_WIDTH_DOTS / wide), MAX_WIDTH_DOTS)
    each, tall = dots / DPI, round(dots * height / wide) / DPI
    gap, above, below = 15 / DPI, 84 / DPI, (36 if credit else 9) / DPI
    width = gap + len(panels) * (each + gap)
    total = below + tall + above
    figure = Figure(figsize=(width, total))
    for k, panel in enumerate(panels):
        left = gap + k * (each + gap)
        ax = figure.add_axes((left / width, below / total, each / width, tall / total))
        ax.imshow(to_rgb_image(panel.image), interpolation="antialiased", aspect="auto")
        ax.set_axis_off()
        ax.set_title(panel.title, fontsize=15, fontweight="bold", color=INK, pad=27)
        ax.annotate(panel.note, (0.5, 1.0), xycoords="axes fraction", xytext=(0, 7),
                    textcoords="offset points", ha="center", va="bottom", fontsize=13,
                    color=INK)  # fmt: skip
    if credit:
        figure.text(gap / width, 0.09 / total, credit, fontsize=9, color=DARK_GRAY)
    return figure


def to_rgb_image(image: Array) -> Array:
    """An image in gray or color as colors, missing pixels in a color of their own."""
    missing = np.isnan(image)
    if image.ndim == 2:
        image = np.repeat(image[:, :, None], 3, axis=2)
    else:
        missing = missing.any(axis=2)
    painted = np.clip(np.nan_to_num(image), 0.0, 1.0)
    painted[missing] = to_rgb(MISSING_COLOR)
    return painted


def completion(
    X: Any,
    filled: Any,
    std: Any = None,
    *,
    names: Sequence[object] | None = None,
    title: str = "",
) -> Figure:
    """A table before and after completion as images, and its standard deviations.

    Every column is standardized by its observed mean and standard deviation.

    Parameters
    ----------
    X : container of shape (m, n)
        The table with missing entries.
    filled : fitted estimator, or array of shape (m, n)
        The model, or the completed table.
    std : array of shape (m, n), optional
        Standard deviations of the imputed entries; by default those of the estimator
        if it has them.
    names : sequence of str, optional
        Names of the columns; by default those of ``X`` or of the estimator.
    title : str
        Title of the figure.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[1.0, np.nan], [2.0, 4.0], [3.0, 6.0]])
    >>> figure = completion(X, np.array([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]]))
    >>> [ax.get_title() for ax in figure.axes[:2]]
    ['before: 16.7% missing', 'after']
    """
    entries, after = as_observations(X), filled
    if is_fitted_estimator(filled):
        if std is None and supports_std(filled):
            after, std = filled.transform(X, return_std=True)
        else:
            after = filled.transform(X)
    after = np.asarray(after, dtype=np.float64)
    dense = np.full(entries.shape, np.nan)
    dense[entries.rows, entries.indices] = entries.values
    if after.shape != dense.shape:
        raise ValueError(
            f"filled must have the shape of X, {dense.shape}, got {after.shape}"
        )
    labels = axis_labels(resolve_names(names, X, filled), dense.shape[1])
    mean, scale = entries.column_means(), entries.column_stds()
    safe = np.where(scale > 0.0, scale, 1.0)
    missing = np.isnan(dense)
    panels = {
        f"before: {missing.mean():.1%} missing": (dense - mean) / safe,
        "after": (after - mean) / safe,
    }
    if std is not None:
        std = np.where(missing, np.asarray(std, dtype=np.float64) / safe, np.nan)
    return _draw_table(panels, std, labels, title)


def _draw_table(
    panels: dict[str, Array],
    relative_std: Array | None,
    names: Sequence[str],
    title: str,
) -> Figure:
    m, n = len(panels["after"]), len(names)
    rows, columns = spaced_indices(m, MAX_ROWS), spaced_indices(n, MAX_COLUMNS)
    shown = [names[j] for j in columns]
    count = len(panels) + (relative_std is not None)
    figure = Figure(figsize=(min(13.0, 4.0 * count + 1.0), 5.0), layout="constrained")
    axes = figure.subplots(1, count, sharey=True)

    def draw(ax: Any, heading: str, values: Array, colors: Any, *limits: float) -> Any:
        ax.set_title(heading, **TITLE)
        set_tick_labels(ax, shown, "x")
        return ax.imshow(values[np.ix_(rows, columns)], colors, vmin=limits[0],
                         vmax=limits[1], aspect="auto",
                         interpolation="nearest")  # fmt: skip

    colors = colormaps["RdBu_r"].with_extremes(bad=MISSING_COLOR)
    for ax, (heading, values) in zip(axes, panels.items(), strict=False):
        image = draw(ax, heading, values, colors, -COLOR_LIMIT, COLOR_LIMIT)
    figure.colorbar(image, ax=axes[: len(panels)], extend="both", shrink=0.75,
                    label="standard deviations from the column mean")  # fmt: skip
    if relative_std is not None:
        colors = colormaps["Oranges"].with_extremes(bad="white")
        image = draw(axes[-1], "uncertainty", relative_std, colors, 0.0, 1.0)
        figure.colorbar(image, ax=axes[-1], extend="max", shrink=0.75,
                        label="standard deviation (column = 1)")  # fmt: skip
    axes[0].set_ylabel("row" if m <= MAX_ROWS else f"{MAX_ROWS} of {m} rows")
    figure.suptitle(title, **TITLE)
    return figure
