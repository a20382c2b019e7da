"""Which columns go together, as a graph of dots and lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import patheffects
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from scipy.cluster.hierarchy import fcluster

from ncarl.core.types import Array
from ncarl.plots.layout import placed
from ncarl.plots.similarity import chosen_ties, clusters
from ncarl.plots.style import HELD, INK, MISSED

#: Dots that can be told apart, and lines of a dot.
MOST_DOTS, LINES = 60, 3
#: Ties weaker than this part of the strongest are not drawn.
WEAK = 0.15
#: Points that one unit of the layout is wide and high in the figure, about.
POINTS = np.array([220.0, 185.0])
#: Colours of groups of dots; more groups share the last one.
GROUPS = ("#2f6db3", "#3a9d8f", "#d98c2b", "#8e6bb0", "#b85c6e", "#7a8b3f", "#8a8a8a")


def similarity_graph(
    model: Any,
    *,
    names: Sequence[object] | None = None,
    most: int = MOST_DOTS,
    neighbours: int = LINES,
    title: str = "",
) -> Figure:
    """Columns as dots, and lines between those that go together.

    Every dot has lines to its strongest ties; blue where columns rise together, red
    where one falls as the other rises. Colours of dots are groups.

    Parameters
    ----------
    model : fitted estimator, or array or sparse matrix of shape (n, n)
        A fit; or a similarity or correlation.
    names : sequence of str, optional
        Names of the columns; those of the estimator unless given. Where they are
        many, those have theirs that have room, the strongest ties first.
    most : int
        Dots to draw; where there are more columns, those with the strongest ties.
    neighbours : int
        Strongest ties of a dot that are drawn.
    title : str
        Written above.

    Examples
    --------
    >>> import numpy as np
    >>> S = np.array([[1.0, 0.0, 0.9], [0.0, 1.0, -0.6], [0.9, -0.6, 1.0]])
    >>> figure = similarity_graph(S, names=["a", "b", "c"])
    >>> [text.get_text() for text in figure.axes[0].texts]
    ['a', 'b', 'c']
    """
    ties, chosen, all_names, axis, _ = chosen_ties(model, names, most)
    ties = ties.copy()
    np.fill_diagonal(ties, 0.0)
    pairs = strong_pairs(ties, neighbours)
    places = placed(ties, pairs)
    figure = Figure(figsize=(7.6, 6.0), layout="constrained")
    ax = figure.add_subplot()
    _draw_lines(ax, ties, pairs, places)
    strength = np.abs(ties).sum(axis=1)
    sizes = 25.0 + 120.0 * strength / (strength.max(initial=0.0) or 1.0)
    colours = [GROUPS[min(group, len(GROUPS) - 1)] for group in groups_of(ties)]
    ax.scatter(places[:, 0], places[:, 1], s=sizes, c=colours, zorder=3, linewidths=0.8,
               edgecolors="white")  # fmt: skip
    called = [str(place + 1) for place in chosen]
    if all_names is not None:
        called = [all_names[place] for place in chosen]
    _draw_names(ax, places, called, strength)
    ax.set_title(
        title or _words(axis, ties[pairs[:, 0], pairs[:, 1]]), fontsize=11, color=INK
    )
    ax.set_axis_off()
    ax.set_xlim(-1.22, 1.22)
    ax.set_ylim(-1.12, 1.12)
    return figure


def _words(axis: str, drawn: Array) -> str:
    """What the graph shows."""
    if len(drawn) == 0:
        return f"No two {axis}s go together"
    red = " Red: one falls as the other rises." if (drawn < 0.0).any() else ""
    return f"Which {axis}s go together, by their strongest ties.{red}"


def strong_pairs(ties: Array, neighbours: int) -> Array:
    """Pairs of columns to be joined by a line: strongest ties of either, none weak.

    Examples
    --------
    >>> import numpy as np
    >>> T = np.array([[0.0, 0.9, 0.2], [0.9, 0.0, 0.5], [0.2, 0.5, 0.0]])
    >>> strong_pairs(T, 1).tolist()
    [[0, 1], [1, 2]]
    """
    size = np.abs(ties)
    n, largest = len(size), size.max(initial=0.0)
    count = min(neighbours, n - 1)
    if count < 1 or largest == 0.0:
        return np.empty((0, 2), dtype=np.int64)
    nearest = np.argsort(-size, axis=1, kind="stable")[:, :count]
    ends = np.column_stack([np.repeat(np.arange(n), count), nearest.ravel()])
    ends = ends[size[ends[:, 0], ends[:, 1]] >= WEAK * largest]
    pairs: Array = np.unique(np.sort(ends, axis=1), axis=0)
    return pairs


def groups_of(ties: Array) -> Array:
    """Number of the group that each column belongs to, the largest group first."""
    tree = clusters(ties)
    if tree is None:
        return np.zeros(len(ties), dtype=np.int64)
    found = fcluster(tree, min(len(GROUPS) - 1, max(1, len(ties) // 4)), "maxclust")
    _, number, counts = np.unique(found, return_inverse=True, return_counts=True)
    rank = np.empty(len(counts), dtype=np.int64)
    rank[np.argsort(-counts, kind="stable")] = np.arange(len(counts))
    groups: Array = rank[number]
    return groups


def _draw_lines(ax: Any, ties: Array, pairs: Array, places: Array) -> None:
    """Lines between dots, the stronger the broader."""
    if len(pairs) == 0:
        return
    values = ties[pairs[:, 0], pairs[:, 1]]
    part = np.abs(values) / np.abs(values).max()
    colours = np.where(values < 0.0, MISSED, HELD)
    lines = LineCollection(places[pairs], linewidths=0.5 + 2.6 * part, colors=colours,
                           alpha=0.35, zorder=1)  # fmt: skip
    ax.add_collection(lines)


def _draw_names(ax: Any, places: Array, names: Sequence[str], strength: Array) -> None:
    """Names beside the dots where there is room, the strongest ties first."""
    size = 9.0 if len(names) <= 25 else 7.5
    halo = [patheffects.withStroke(linewidth=2.5, foreground="white")]
    for place, shift in free_places(places, names, strength, size):
        ax.annotate(names[place], places[place], xytext=(0, shift), ha="center",
                    textcoords="offset points", va="center", fontsize=size, color=INK,
                    zorder=4, path_effects=halo)  # fmt: skip


def free_places(
    places: Array, names: Sequence[str], strength: Array, size: float
) -> list[tuple[int, float]]:
    """Dots whose names can be read, and how many points above them these stand.

    A name stands above its dot, or below it; one that would cover another is left out.
    """
    taken: list[tuple[float, float, float]] = []
    found = []
    for place in np.argsort(-strength, kind="stable"):
        x, y = POINTS * places[place]
        half = 0.29 * size * len(names[place])
        for shift in (size + 2.0, -size - 2.0):
            at = y + shift
            if all(
                abs(x - other) > half + wide or abs(at - high) > 1.05 * size
                for other, high, wide in taken
            ):
                taken.append((x, at, half))
                found.append((int(place), shift))
                break
    return sorted(found)
