"""Figures with pictures in them: spectra, and rows of pictures."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from ncarl.core.types import Array
from ncarl.plots import Panel
from ncarl.plots.style import DPI, GAP, INK
from ncarl.study.figures_style import OURS, SOFT, log_axis, tidy_axes

#: After how many singular values the share of energy is written.
COUNTS = (10, 20, 50)
#: Dots across a picture of a grid: at least, and at most.
NARROWEST, WIDEST = 300, 480
TITLE, NOTE, CREDIT = 11.0, 9.5, 8.0
#: Width of a letter over the size of its font, generously.
LETTER = 0.6


def spectrum(images: Mapping[str, Array], credit: str = "") -> Figure:
    """Pictures beside their singular values.

    Parameters
    ----------
    images : mapping of str to array of shape (height, width[, 3])
        Pictures without gaps, by name; of a picture in colour the mean of the
        channels is looked at.
    credit : str
        Whose pictures these are; written small below.
    """
    if not images:
        raise ValueError("images must hold one picture or more, got none")
    # Titles of pictures reach above the grid: leave them some room.
    layout = ConstrainedLayoutEngine(h_pad=0.1, rect=(0.0, 0.0, 1.0, 0.97))
    figure = Figure(figsize=(10.5, 3.4 * len(images) + 0.3), layout=layout)
    grid = figure.add_gridspec(len(images), 2)
    for row, (name, image) in enumerate(images.items()):
        _pair(figure, grid[row, 0], grid[row, 1], name, image)
    if credit:
        figure.supxlabel(credit, fontsize=8, color=SOFT, x=0.01, ha="left")
    return figure


def _pair(figure: Figure, left: Any, right: Any, name: str, image: Array) -> None:
    """A picture, and its singular values beside it."""
    values = np.asarray(image, dtype=np.float64)
    if not np.isfinite(values).all():
        raise ValueError(
            f"images must have no gaps, got some in {name!r}; fill them in first"
        )
    shown = figure.add_subplot(left)
    shown.imshow(painted(values), interpolation="antialiased")
    shown.set_axis_off()
    shown.set_title(name, fontsize=11, color=INK)
    sigma = np.linalg.svd(grey(values), compute_uv=False)
    ax = figure.add_subplot(right)
    relative = sigma / sigma[0] if sigma[0] > 0 else sigma
    seen = relative[relative > 1e-12]
    ax.plot(np.arange(1, len(seen) + 1), seen, color=OURS, linewidth=1.6)
    log_axis(ax, "y", [1e-9, 1.0] if len(seen) < 2 else list(seen))
    ax.set_xlabel("number of the singular value", fontsize=9)
    ax.set_ylabel("relative to the largest", fontsize=9)
    tidy_axes(ax)
    ax.tick_params(labelsize=9)
    ax.text(0.97, 0.95, "\n".join(energy_lines(sigma)), transform=ax.transAxes,
            ha="right", va="top", fontsize=9, color=INK,
            linespacing=1.4)  # fmt: skip


def energy_lines(sigma: Array) -> list[str]:
    """How much of the energy the first singular values hold, in words.

    Examples
    --------
    >>> energy_lines(np.array([3.0, 1.0]))
    ['energy in the first', '2: 100.00%']
    """
    energy = np.cumsum(np.square(sigma))
    counts = [count for count in COUNTS if count < len(sigma)] or [len(sigma)]
    shares = [energy[count - 1] / energy[-1] if energy[-1] else 1.0 for count in counts]
    lines = (f"{n}: {part:.2%}" for n, part in zip(counts, shares, strict=True))
    return ["energy in the first", *lines]


def picture_grid(rows: Sequence[Sequence[Panel]], credit: str = "") -> Figure:
    """Rows of pictures with a title and a note above each.

    Parameters
    ----------
    rows : sequence of sequences of Panel
        Pictures in grey or colour; gaps get a colour of their own. Rows may differ in
        length.
    credit : str
        Whose pictures these are; written small below.
    """
    if not rows or not all(rows):
        raise ValueError("rows must hold one picture or more each, got an empty one")
    each = max(_dots(panel.image) for row in rows for panel in row) / DPI
    gap, columns = 14 / DPI, max(len(row) for row in rows)
    width = gap + columns * (each + gap)
    credits = _broken(credit, width - 2 * gap, CREDIT)
    below = (8 + 22 * len(credits)) / DPI
    talls = [max(each * _aspect(panel.image) for panel in row) for row in rows]
    heads = [max(_head(panel, each) for panel in row) for row in rows]
    total = below + sum(talls) + sum(heads)
    figure = Figure(figsize=(width, total))
    top = total
    for row, tall, head in zip(rows, talls, heads, strict=True):
        top -= head
        for k, panel in enumerate(row):
            left, high = gap + k * (each + gap), each * _aspect(panel.image)
            box = (left / width, (top - high) / total, each / width, high / total)
            _place(figure, box, panel, each)
        top -= tall
    figure.text(gap / width, 8 / DPI / total, "\n".join(credits), va="bottom",
                fontsize=CREDIT, color=SOFT, linespacing=1.3)  # fmt: skip
    return figure


def _place(
    figure: Figure, box: tuple[float, float, float, float], panel: Panel, each: float
) -> None:
    """Draw a picture in a box of the figure, and write above it."""
    ax = figure.add_axes(box)
    ax.imshow(painted(panel.image), interpolation="antialiased", aspect="auto")
    ax.set_axis_off()
    title, note = _lines(panel, each)
    above = 5.0
    for lines, size, weight in ((note, NOTE, "normal"), (title, TITLE, "bold")):
        for line in reversed(lines):
            ax.annotate(line, (0.5, 1.0), (0, above), xycoords="axes fraction",
                        textcoords="offset points", ha="center", va="bottom",
                        fontsize=size, fontweight=weight, color=INK)  # fmt: skip
            above += 1.3 * size


def _lines(panel: Panel, each: float) -> tuple[list[str], list[str]]:
    """Title and note, broken so that they are no wider than the picture."""
    return _broken(panel.title, each, TITLE), _broken(panel.note, each, NOTE)


def _broken(text: str, inches: float, size: float) -> list[str]:
    """A text in lines that fit a width."""
    most = max(8, int(inches * 72 / (size * LETTER)))
    return [
        line
        for part in text.splitlines()
        for line in textwrap.wrap(part, most, break_on_hyphens=False)
    ]


def _head(panel: Panel, each: float) -> float:
    """Inches that title and note need above a picture."""
    title, note = _lines(panel, each)
    return (1.3 * (TITLE * len(title) + NOTE * len(note)) + 14.0) / 72


def _aspect(image: Array) -> float:
    """Height over width."""
    return float(image.shape[0] / image.shape[1])


def _dots(image: Array) -> int:
    """Dots across a picture: whole numbers for each pixel where that fits."""
    wide = int(image.shape[1])
    return min(wide * math.ceil(NARROWEST / wide), WIDEST)


def grey(image: Array) -> Array:
    """A picture in grey: the mean of its channels."""
    return image.mean(axis=2) if image.ndim == 3 else image


def painted(image: Array) -> Array:
    """A picture as colours between 0 and 1, gaps in a colour of their own.

    Parameters
    ----------
    image : array of shape (height, width) or (height, width, 3)
        NaN where a pixel is missing.

    Returns
    -------
    colours : array of shape (height, width, 3)

    Examples
    --------
    >>> painted(np.array([[0.25, 2.0]])).tolist()
    [[[0.25, 0.25, 0.25], [1.0, 1.0, 1.0]]]
    """
    values = np.asarray(image, dtype=np.float64)
    channels = values[:, :, None] if values.ndim == 2 else values
    gaps = np.isnan(channels).any(axis=2)
    colours: Array = np.clip(np.nan_to_num(channels), 0.0, 1.0) * np.ones(3)
    colours[gaps] = [int(GAP[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    return colours
