"""What figures share: colours, names that can be read, and how they are saved."""

from __future__ import annotations

import os
import unicodedata
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from matplotlib.figure import Figure

from ncarl.storage import replacing

#: Where a pixel is missing; no grey, so that it is not taken for one.
GAP = "#e8a33d"
INK = "#333333"
#: What is drawn to be compared with, and words beside it.
GREY, SOFT = "#999999", "#777777"
#: Intervals that hold the truth, and those that do not.
HELD, MISSED = "#2f6db3", "#d1495b"
#: Dots per inch of saved figures.
DPI = 120
#: More names than this along an axis cannot be read.
MOST_NAMES = 40
#: Longer names are shortened in the middle.
LONGEST = 24


def plain(name: object, most: int = LONGEST) -> str:
    r"""A name as a figure can show it: short, on one line, no formula.

    Parameters
    ----------
    name : object
        What it is called.
    most : int
        Letters to show.

    Examples
    --------
    >>> print(plain("price in $, net of $"))
    price in \$, net of \$
    >>> print(plain("a very long name of a column of a table"))
    a very long na…of a table
    """
    text = "".join(_shown(letter) for letter in str(name)[: 50 * most])
    text = " ".join(text.split())
    if len(text) > most:
        ahead = max(1, round(0.6 * most))
        text = f"{text[:ahead].rstrip()}…{text[len(text) - (most - ahead) :].lstrip()}"
    # Matplotlib takes what stands between two dollars for a formula.
    return text.replace("$", r"\$")


def _shown(letter: str) -> str:
    """A letter, or a space for what is none: control characters, turns of direction."""
    return " " if unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Co") else letter


def names_of(names: Sequence[object] | None, count: int) -> list[str]:
    """Names fit to be shown; numbers from 1 where there are none.

    Examples
    --------
    >>> names_of(None, 2), names_of(["a", "b"], 2)
    (['1', '2'], ['a', 'b'])
    """
    if names is None:
        return [str(place + 1) for place in range(count)]
    if len(names) != count:
        raise ValueError(
            f"names must have one for each of the {count} columns, got {len(names)}; "
            "leave names out to have them numbered"
        )
    return [plain(name) for name in names]


def name_ticks(
    ax: Any, names: Sequence[str], which: str = "xy", first: int = 0
) -> None:
    """Write names along axes, every second or third only where they are many."""
    step = -(-len(names) // MOST_NAMES)
    shown = names[:: max(step, 1)]
    places = [first + place for place in range(0, len(names), max(step, 1))]
    size = 8 if len(places) <= 30 else 7
    if "x" in which:
        ax.set_xticks(places, shown, rotation=90, fontsize=size)
    if "y" in which:
        ax.set_yticks(places, shown, fontsize=size)


def light(ax: Any, *, grid: str = "") -> None:
    """Take off an axis what carries no news."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(color=GREY, labelcolor=INK)
    for side in ("left", "bottom"):
        ax.spines[side].set_color(GREY)
    if grid:
        ax.grid(axis=grid, color="#e8e8e8", linewidth=0.8)
        ax.set_axisbelow(True)


def thinned(count: int, most: int) -> Any:
    """Some of so many places, evenly spread; all where they are few."""
    if count <= most:
        return np.arange(count)
    return np.linspace(0, count - 1, most).round().astype(np.int64)


def write_png(figure: Figure, stream: str | Path | IO[bytes], dpi: int) -> None:
    """Write a figure as PNG; letters that no font has are boxes, not warnings."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        warnings.filterwarnings("ignore", message="Matplotlib currently does not")
        # No software tag: the same figure gives the same bytes everywhere.
        figure.savefig(stream, dpi=dpi, format="png", metadata={"Software": None})


def save_figure(
    figure: Figure, path: str | os.PathLike[str], *, dpi: int = DPI
) -> Path:
    """The file that a figure was written to as PNG; it is whole or absent.

    Parameters
    ----------
    figure : Figure
        What to write.
    path : path
        Where to; a file that is there is replaced.
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
    with replacing(target) as temporary:
        write_png(figure, temporary, dpi)
    return target
