"""Figures before and after completion: images, and tables as images."""

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
from ncarl.plots.fit import (
    as_observations,
    column_means,
    column_stds,
    find_column_names,
    is_fitted_estimator,
    supports_std,
)
from ncarl.plots.style import (
    DARK_GRAY,
    DPI,
    INK,
    MISSING_COLOR,
    axis_labels,
    set_tick_labels,
    spaced_indices,
)

#: Least and most dots across an image.
MIN_WIDTH_DOTS, MAX_WIDTH_DOTS = 600, 960
#: Most rows and columns of a table; of more, an even selection is shown.
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
    height, wide = panels[0].image.shape[:2]
    dots = min(wide * math.ceil(MIN_WIDTH_DOTS / wide), MAX_WIDTH_DOTS)
    each, tall = dots / DPI, round(dots * height / wide) / DPI
    gap, above, below = 15 / DPI, 84 / DPI, (36 if credit else 9) / DPI
    width = gap + len(panels) * (each + gap)
    total = below + tall + above
    figure = Figure(figsize=(width, total))
    for k, panel in enumerate(panels):
        left = gap + k * (each + gap)
        box = (left / width, below / total, each / width, tall / total)
        ax = figure.add_axes(box)
        ax.imshow(_to_rgb(panel.image), interpolation="antialiased", aspect="auto")
        ax.set_axis_off()
        ax.set_title(panel.title, fontsize=15, fontweight="bold", color=INK, pad=27)
        ax.text(0.5, 1.0, panel.note, ha="center", va="bottom", fontsize=13, color=INK,
                transform=ax.transAxes + _shift_up(figure, 7))  # fmt: skip
    if credit:
        figure.text(gap / width, 0.09 / total, credit, fontsize=9, color=DARK_GRAY)
    return figure


def _shift_up(figure: Figure, points: float) -> ScaledTranslation:
    """Transform that shifts up by so many points."""
    return ScaledTranslation(0.0, points / 72, figure.dpi_scale_trans)


def completion(
    X: Any,
    filled: Any,
    std: Any = None,
    *,
    names: Sequence[object] | None = None,
    title: str = "",
) -> Figure:
    """A table before and after completion as images, and its standard deviations.

    Every column is standardized by its observed mean and standard deviation, so that
    columns of any unit can be compared.

    Parameters
    ----------
    X : container of shape (m, n)
        The table with missing entries.
    filled : fitted estimator, or array of shape (m, n)
        The model, or the completed table.
    std : array of shape (m, n), optional
        Standard deviations of the filled entries; by default those of the estimator if
        it has them.
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
    entries, source = as_observations(X), filled
    dense = np.full(entries.shape, np.nan)
    dense[entries.rows, entries.indices] = entries.values
    if is_fitted_estimator(filled):
        after, std = _complete_with_model(filled, X, std)
    else:
        after = np.asarray(filled, dtype=np.float64)
    if after.shape != dense.shape:
        raise ValueError(
            f"filled must have the shape of X, {dense.shape}, got {after.shape}"
        )
    names = names if names is not None else find_column_names(X, source)
    mean, scale = column_means(entries), column_stds(entries)
    safe = np.where(scale > 0.0, scale, 1.0)
    missing = np.isnan(dense)
    panels = [
        (f"before: {missing.mean():.1%} missing", (dense - mean) / safe),
        ("after", (after - mean) / safe),
    ]
    relative_std = None if std is None else np.where(missing, std / safe, np.nan)
    return _draw_table(panels, relative_std, axis_labels(names, dense.shape[1]), title)


def _complete_with_model(model: Any, X: Any, std: Any) -> tuple[Array, Array | None]:
    """The table completed by a model, and standard deviations if it has them."""
    if std is not None or not supports_std(model):
        std = None if std is None else np.asarray(std, dtype=np.float64)
        return np.asarray(model.transform(X)), std
    after, std = model.transform(X, return_std=True)
    return np.asarray(after), np.asarray(std)


def _draw_table(
    panels: Sequence[tuple[str, Array]],
    relative_std: Array | None,
    names: Sequence[str],
    title: str,
) -> Figure:
    """Draw tables side by side, and the standard deviations beside them."""
    m, n = panels[0][1].shape
    subset = np.ix_(spaced_indices(m, MAX_ROWS), spaced_indices(n, MAX_COLUMNS))
    shown = [names[place] for place in spaced_indices(n, MAX_COLUMNS)]
    count = len(panels) + (relative_std is not None)
    figure = Figure(figsize=(min(13.0, 4.0 * count + 1.0), 5.0), layout="constrained")
    axes = figure.subplots(1, count, sharey=True, squeeze=False)[0]
    colors = colormaps["RdBu_r"].with_extremes(bad=MISSING_COLOR)
    image: Any = None
    for ax, (panel_title, values) in zip(axes, panels, strict=False):
        image = ax.imshow(
            values[subset],
            cmap=colors,
            vmin=-COLOR_LIMIT,
            vmax=COLOR_LIMIT,
            aspect="auto",
            interpolation="nearest",
        )
        ax.set_title(panel_title, fontsize=11, color=INK)
        set_tick_labels(ax, shown, "x")
    figure.colorbar(image, ax=axes[: len(panels)], extend="both", shrink=0.75,
                    label="standard deviations from the column mean")  # fmt: skip
    if relative_std is not None:
        colors = colormaps["Oranges"].with_extremes(bad="white")
        ax = axes[-1]
        image = ax.imshow(
            relative_std[subset],
            cmap=colors,
            vmin=0.0,
            vmax=1.0,
            aspect="auto",
            interpolation="nearest",
        )
        ax.set_title("uncertainty", fontsize=11, color=INK)
        set_tick_labels(ax, shown, "x")
        figure.colorbar(image, ax=ax, extend="max", shrink=0.75,
                        label="standard deviation (column = 1)")  # fmt: skip
    axes[0].set_ylabel("row" if m <= MAX_ROWS else f"{MAX_ROWS} of {m} rows")
    figure.suptitle(title, fontsize=11, color=INK)
    return figure


def _to_rgb(image: Array) -> Array:
    """An image as RGB, missing pixels in a color of their own."""
    missing = np.isnan(image)
    if image.ndim == 2:
        image = np.repeat(image[:, :, None], 3, axis=2)
    else:
        missing = missing.any(axis=2)
    painted = np.clip(np.nan_to_num(image), 0.0, 1.0)
    painted[missing] = [int(MISSING_COLOR[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    return painted
