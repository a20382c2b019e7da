"""Shared by all figures: colors, labels, axes, and how figures are saved and shown."""

from __future__ import annotations

import math
import os
import unicodedata
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from ncarl.io.files import atomic_write
from ncarl.text import shorten

#: Color of missing entries; not a gray, which could be a value.
MISSING_COLOR = "#e8a33d"
INK = "#333333"
#: Reference lines and axes, and annotations.
GRAY, DARK_GRAY = "#999999", "#777777"
#: Main color, and color of what stands out, such as intervals that miss the truth.
BLUE, RED = "#2f6db3", "#d1495b"
#: Style of titles, and of dashed reference lines.
TITLE: dict[str, Any] = {"fontsize": 11, "color": INK}
REFERENCE: dict[str, Any] = {"color": GRAY, "linestyle": "--", "linewidth": 1}
#: Dots per inch of saved figures.
DPI = 120
MAX_TICK_LABELS = 40
#: Longer names are shortened in the middle.
MAX_LABEL_LENGTH = 24


def format_label(name: object, max_length: int = MAX_LABEL_LENGTH) -> str:
    r"""A name as a label of a figure: short, on one line, not parsed as a formula.

    Parameters
    ----------
    name : object
        The name.
    max_length : int
        Maximum number of characters to show.

    Examples
    --------
    >>> print(format_label("price in $, net of $"))
    price in \$, net of \$
    >>> print(format_label("a very long name of a column of a table"))
    a very long na…f a table
    """
    # Control, direction and other invisible characters become spaces.
    text = "".join(
        " " if unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Co") else letter
        for letter in str(name)[: 50 * max_length]
    )
    # Matplotlib parses text between two dollar signs as a formula.
    return shorten(" ".join(text.split()), max_length).replace("$", r"\$")


def axis_labels(names: Sequence[object] | None, count: int) -> list[str]:
    """Names as labels of a figure; numbers from 1 if there are none."""
    if names is None:
        return [str(place + 1) for place in range(count)]
    if len(names) != count:
        raise ValueError(
            f"names must have one for each of the {count} columns, got {len(names)}; "
            "leave names out to have them numbered"
        )
    return [format_label(name) for name in names]


def set_tick_labels(
    ax: Any, names: Sequence[str], which: str = "xy", first: int = 0
) -> None:
    """Write at most `MAX_TICK_LABELS` of the names along axes."""
    step = max(1, math.ceil(len(names) / MAX_TICK_LABELS))
    places = range(first, first + len(names), step)
    size = 8 if len(places) <= 30 else 7
    if "x" in which:
        ax.set_xticks(places, names[::step], rotation=90, fontsize=size)
    if "y" in which:
        ax.set_yticks(places, names[::step], fontsize=size)


def new_axes(width: float, height: float, title: str = "") -> tuple[Figure, Any]:
    """A figure of one axes with a title, and these axes."""
    figure = Figure(figsize=(width, height), layout="constrained")
    ax = figure.add_subplot()
    ax.set_title(title, **TITLE)
    return figure, ax


def despine(ax: Any, *, grid: str = "") -> None:
    """Remove the top and right spines; add a light grid along ``grid``."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(GRAY)
    ax.tick_params(color=GRAY, labelcolor=INK)
    if grid:
        ax.grid(axis=grid, color="#e8e8e8", linewidth=0.8)
        ax.set_axisbelow(True)


def dynamic_range(values: Sequence[float]) -> float:
    """Largest over smallest positive value; 1 without any."""
    positive = [value for value in values if value > 0.0]
    return max(positive) / min(positive) if positive else 1.0


def spans_decade(values: Sequence[float]) -> bool:
    """Whether the range of values calls for a logarithmic axis."""
    return dynamic_range(values) > 10.0


def log_axis(
    ax: Any,
    which: str,
    values: Sequence[float],
    *,
    sparse_ticks: bool = False,
    margins: bool = False,
) -> None:
    """Make an axis logarithmic, with plain numbers at its ticks.

    The range of ``values``, those drawn, decides how many ticks are labeled;
    ``sparse_ticks`` is for small axes. ``margins`` sets the limits, with room for
    markers around the values.
    """
    ax.set(**{f"{which}scale": "log"})
    wide = dynamic_range(values)
    if margins and max(values) > 0.0:
        largest, room = max(values), max(1.5, wide**0.08)
        ax.set(**{f"{which}lim": (largest / wide / room, largest * room)})
    if sparse_ticks:
        wide *= 30.0
    digits = (1.0,) if wide > 2e3 else (1.0, 3.0) if wide > 60 else (1.0, 2.0, 5.0)
    # Beyond five decades more numbers would overlap.
    numticks = 5 if sparse_ticks or wide > 1e5 else 12
    axis = ax.xaxis if which == "x" else ax.yaxis
    axis.set_major_locator(LogLocator(subs=digits, numticks=numticks))
    axis.set_major_formatter(FuncFormatter(lambda value, _: _plain_number(value)))
    axis.set_minor_formatter(NullFormatter())


def _plain_number(value: float) -> str:
    # No exponents between 0.0001 and 999,999, else short ones: 1e-8.
    if value == 0.0 or abs(value) >= 1e-4:
        return f"{value:.6g}"
    return f"{value:.0e}".replace("e-0", "e-")


def spaced_indices(count: int, max_count: int) -> Any:
    """Indices below ``count``, evenly spaced if there are more than ``max_count``."""
    if count <= max_count:
        return np.arange(count)
    return np.linspace(0, count - 1, max_count).round().astype(np.int64)


def write_png(figure: Figure, stream: str | Path | IO[bytes], dpi: int) -> None:
    """Write a figure as PNG, without warnings for characters that no font has."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        warnings.filterwarnings("ignore", message="Matplotlib currently does not")
        # No software tag: the same figure gives the same bytes everywhere.
        figure.savefig(stream, dpi=dpi, format="png", metadata={"Software": None})


def save_figure(
    figure: Figure, path: str | os.PathLike[str], *, dpi: int = DPI
) -> Path:
    """Write a figure to a PNG file atomically, and return its path.

    Parameters
    ----------
    figure : Figure
        The figure.
    path : path
        The file; an existing one is replaced.
    dpi : int
        Dots per inch.

    Examples
    --------
    >>> import tempfile
    >>> from ncarl import plots
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     plots.save_figure(plots.spectrum([2.0, 1.0]), f"{folder}/s.png").name
    's.png'
    """
    target = Path(path)
    with atomic_write(target) as temporary:
        write_png(figure, temporary, dpi)
    return target


def show(*figures: Figure) -> None:
    """Show figures in windows, or below the cell of a notebook, by pyplot.

    Parameters
    ----------
    *figures : Figure
        The figures.

    Examples
    --------
    >>> from ncarl import plots
    >>> figure = plots.spectrum([8.0, 1.0, 1.0])
    >>> plots.show(figure)  # doctest: +SKIP
    """
    from matplotlib import pyplot as plt

    for figure in figures:
        manager = plt.figure(figsize=figure.get_size_inches()).canvas.manager
        assert manager is not None
        manager.canvas.figure = figure
        figure.set_canvas(manager.canvas)
    plt.show()
