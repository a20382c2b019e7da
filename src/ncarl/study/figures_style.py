"""Colours, markers, axes and files that all figures of a study share."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from ncarl.plots import save_figure
from ncarl.plots.style import DPI, INK
from ncarl.storage import replacing

#: The methods this library is about stand out.
OURS, BAYES = "#0b5fa5", "#d55e00"
#: Further variants of ours.
VARIANTS = ("#56a0d3", "#093c66", "#7f8fd9", "#1b9aaa")
#: Rivals, muted; told apart by those who see no red or no green.
MUTED = (
    *("#cc6677", "#aa9c2f", "#4f9f78", "#88bbdd", "#8d4f74"),
    *("#6cb8ab", "#8f7fb8", "#c79a6b", "#b77fb0"),
)
RIVALS = dict(
    zip(
        (
            *("nuclear", "fnuclear", "s12", "s23", "wnnm"),
            *("regl1", "fgsr", "lrfd", "s3lr"),
        ),
        MUTED,
        strict=True,
    )
)
#: What any method should beat.
YARDSTICKS = {"mean": "#9a9a9a", "bias": "#6e6e6e", "effects": "#6e6e6e"}
SOFT = "#777777"
MARKERS = ("o", "s", "D", "^", "v", "P", "X", "<", ">", "h")
#: Beyond this spread an axis is logarithmic.
WIDE_SPREAD = 10.0
#: Where colours of missing rates begin and end: neither end may vanish on white.
FIRST_SHADE, LAST_SHADE = 0.0, 0.82


def colour_of(label: str) -> str:
    """The colour of a method, the same in every figure.

    Ours are strong, rivals muted, yardsticks grey. A name that is not known gets a
    colour that depends on the name alone.

    Parameters
    ----------
    label : str
        As tables call the method.

    Examples
    --------
    >>> colour_of("NCARL"), colour_of("BayesianNCARL"), colour_of("mean")
    ('#0b5fa5', '#d55e00', '#9a9a9a')
    >>> colour_of("F-Nuclear") == colour_of("f nuclear")
    True
    """
    name = "".join(c for c in label.casefold() if c.isalnum())
    if "bayes" in name:
        return BAYES
    if name == "ncarl":
        return OURS
    for word, grey in YARDSTICKS.items():
        if word in name:
            return grey
    if name in RIVALS:
        return RIVALS[name]
    others = VARIANTS if "ncarl" in name or name.startswith("method") else MUTED
    digest = hashlib.sha256(name.encode()).digest()
    return others[digest[0] % len(others)]


def is_ours(label: str) -> bool:
    """Whether a method is to stand out."""
    return colour_of(label) in (OURS, BAYES)


def shades(count: int) -> list[str]:
    """So many colours in an order that the eye sees, also without red or green."""
    steps = np.linspace(FIRST_SHADE, LAST_SHADE, max(count, 2))[:count]
    return [to_hex(colormaps["viridis"](step)) for step in steps]


def first_seen(names: Iterable[str]) -> list[str]:
    """Each name once, in the order of first appearance."""
    return list(dict.fromkeys(names))


def spread(values: Sequence[float]) -> float:
    """Largest over smallest of what is positive; 1 where there is nothing."""
    positive = [value for value in values if value > 0.0]
    return max(positive) / min(positive) if positive else 1.0


def log_axis(
    ax: Any, which: str, values: Sequence[float], *, few: bool = False
) -> None:
    """Make an axis logarithmic, with ticks (or few of them) as plain numbers."""
    if which == "x":
        ax.set_xscale("log")
        axis = ax.xaxis
    else:
        ax.set_yscale("log")
        axis = ax.yaxis
    wide = spread(values)
    if few:
        wide *= 30.0
    digits = (1.0,) if wide > 2e3 else (1.0, 3.0) if wide > 60 else (1.0, 2.0, 5.0)
    # Beyond five decades numbers along an axis would run into each other.
    some = 5 if few or wide > 1e5 else 12
    axis.set_major_locator(LogLocator(subs=digits, numticks=some))
    axis.set_major_formatter(FuncFormatter(lambda x, _: plain_number(x)))
    axis.set_minor_formatter(NullFormatter())


def plain_number(value: float) -> str:
    """A tick as one would write it: no exponent between 0.0001 and 999,999.

    Examples
    --------
    >>> plain_number(0.05), plain_number(3000.0), plain_number(1e-8)
    ('0.05', '3000', '1e-8')
    """
    if value == 0.0 or abs(value) >= 1e-4:
        return f"{value:.6g}"
    return f"{value:.0e}".replace("e-0", "e-")


def tidy_axes(ax: Any) -> None:
    """Leave out the frame's upper and right side, and draw faint lines."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(True, color="#e4e4e4", linewidth=0.6)
    ax.set_axisbelow(True)
    ax.tick_params(labelsize=9, colors=INK)


def save_both(figure: Figure, stem: Path) -> list[Path]:
    """Write a figure as PNG and as SVG; each file is whole or as it was.

    The same figure gives the same bytes every time. Letters are drawn, so that the
    SVG looks alike where its fonts are absent.

    Parameters
    ----------
    figure : Figure
        What to write.
    stem : Path
        Where to, without a suffix.

    Returns
    -------
    paths : list of Path
        The PNG file, then the SVG file.
    """
    png, svg = (stem.with_name(f"{stem.name}.{kind}") for kind in ("png", "svg"))
    save_figure(figure, png, dpi=DPI)
    fixed: Any = {"svg.hashsalt": "ncarl", "svg.fonttype": "path"}
    with rc_context(fixed), replacing(svg) as temporary:
        figure.savefig(temporary, dpi=DPI, format="svg", metadata={"Date": None})
    return [png, svg]
