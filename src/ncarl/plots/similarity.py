"""Similarity of columns as heat maps, ordered by clustering, and as graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps, patheffects
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from scipy import sparse
from scipy.cluster.hierarchy import (
    fcluster,
    leaves_list,
    linkage,
    optimal_leaf_ordering,
)
from scipy.spatial.distance import squareform

from ncarl.core.types import Array
from ncarl.plots.fit import (
    check_affinity,
    column_affinity,
    find_column_names,
    is_fitted_estimator,
)
from ncarl.plots.style import (
    BLUE,
    INK,
    MAX_TICK_LABELS,
    RED,
    axis_labels,
    format_label,
    set_tick_labels,
)

#: Most columns for which the leaf ordering is optimal.
MAX_OPTIMAL_ORDERING = 600
#: Most columns of a heat map; of more, those with the strongest ties are shown.
MAX_COLUMNS = 1000
#: Most nodes of a graph, and edges of a node.
MAX_NODES, EDGES_PER_NODE = 60, 3
#: Weakest edge of a graph, relative to the strongest.
MIN_RELATIVE_AFFINITY = 0.15
#: Steps of the spring layout, and the farthest move of a node in the first one.
N_LAYOUT_STEPS, INITIAL_MAX_MOVE = 300, 0.15
#: Approximate width and height of one unit of the layout in the figure, in points.
POINTS_PER_UNIT = np.array([220.0, 185.0])
#: Colors of clusters of nodes; further clusters share the last one.
GROUP_COLORS = (
    "#2f6db3",
    "#3a9d8f",
    "#d98c2b",
    "#8e6bb0",
    "#b85c6e",
    "#7a8b3f",
    "#8a8a8a",
)


def similarity(
    model: Any,
    *,
    names: Sequence[object] | None = None,
    ordered: bool = True,
    max_columns: int = MAX_COLUMNS,
    title: str = "",
) -> Figure:
    """Similarity of the columns as learned by a fit, as a heat map.

    Parameters
    ----------
    model : fitted estimator, or array or sparse matrix of shape (n, n)
        A fit, of which the correlations of the kernel (or the similarity graph, or
        correlations of the completed columns) are shown; or a similarity or
        correlation.
    names : sequence of str, optional
        Names of the columns; by default those of the estimator. Only some of many are
        written.
    ordered : bool
        Whether to put similar columns next to each other, by hierarchical clustering
        with optimal leaf ordering. Else they are in the order of the table.
    max_columns : int
        Most columns to show; of more, those with the strongest ties.
    title : str
        Title of the figure.

    Examples
    --------
    >>> import numpy as np
    >>> S = np.array([[1.0, 0.0, 0.9], [0.0, 1.0, 0.1], [0.9, 0.1, 1.0]])
    >>> figure = similarity(S, names=["a", "b", "c"])
    >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
    ['a', 'c', 'b']
    """
    values, chosen, all_names, axis, label = select_affinity(model, names, max_columns)
    if ordered:
        order = cluster_order(values)
        values, chosen = values[np.ix_(order, order)], chosen[order]
    labels = all_names or axis_labels(None, int(chosen.max(initial=-1)) + 1)
    shown = [labels[place] for place in chosen]
    count = len(values)
    if not title:
        title = f"How the {axis}s go together"
        if count < _n_columns(model):
            title += f" (the {count} with the strongest ties)"
    signed = values.min(initial=0.0) < 0.0
    vmax = 1.0 if label == "correlation" else None
    figure = _heat_map(
        values, shown, title=title, label=label, axis=axis, vmax=vmax, signed=signed
    )
    if all_names is None:
        figure.axes[0].set_xlabel(f"{axis} number")
    return figure


def similarity_map(
    S: Any,
    *,
    title: str,
    names: Sequence[str] | None = None,
    label: str = "similarity",
    axis: str = "column",
    vmax: float | None = None,
) -> Figure:
    """A similarity (or correlation) of columns as a heat map, in their own order.

    Parameters
    ----------
    S : array or sparse matrix of shape (n, n)
        Similarity; with negative entries a color map that is white at zero is used.
    title : str
        Title of the figure.
    names : sequence of str, optional
        Names of the columns; not drawn if there are too many to read.
    label : str
        Label of the color bar.
    axis : str
        Label of the axes.
    vmax : float, optional
        End of the color scale if no entry is negative; by default the 98th percentile
        of the positive entries.

    Examples
    --------
    >>> import numpy as np
    >>> figure = similarity_map(np.eye(3), title="three of a kind", axis="row")
    >>> figure.axes[0].get_xlabel()
    'row'
    """
    values = np.asarray(S.toarray() if hasattr(S, "toarray") else S, dtype=np.float64)
    named = names is not None and len(names) <= MAX_TICK_LABELS
    shown = (
        [format_label(name) for name in names] if named and names is not None else None
    )
    return _heat_map(values, shown, title=title, label=label, axis=axis, vmax=vmax)


def _heat_map(
    values: Array,
    names: Sequence[str] | None,
    *,
    title: str,
    label: str,
    axis: str,
    vmax: float | None,
    signed: bool | None = None,
) -> Figure:
    """A heat map with names along its axes."""
    count = 0 if names is None else min(len(names), MAX_TICK_LABELS)
    side = min(max(5.2, 0.26 * count), 8.6)
    figure = Figure(figsize=(side + 1.2, side), layout="constrained")
    ax = figure.add_subplot()
    image = ax.imshow(values, interpolation="nearest",
                      **_color_scale(values, vmax, signed))  # fmt: skip
    over = "max" if image.get_clim()[1] < values.max(initial=0.0) else "neither"
    figure.colorbar(image, ax=ax, label=label, shrink=0.75, extend=over)
    ax.set_title(title, fontsize=11, color=INK)
    if names is not None:
        set_tick_labels(ax, names)
    else:
        ax.set_xlabel(axis)
        ax.set_ylabel(axis)
    return figure


def _color_scale(
    values: Array, vmax: float | None, signed: bool | None = None
) -> dict[str, Any]:
    """Color map and range: diverging, white at zero, if values have both signs."""
    if signed or (signed is None and values.min(initial=0.0) < 0.0):
        largest = float(np.abs(values).max())
        return {"cmap": colormaps["RdBu_r"], "vmin": -largest, "vmax": largest}
    if vmax is None:
        # A few strong entries must not leave the rest of the map pale.
        positive = values[values > 0.0]
        vmax = float(np.quantile(positive, 0.98)) if positive.size else 1.0
    return {"cmap": colormaps["Blues"], "vmin": 0.0, "vmax": vmax}


def similarity_graph(
    model: Any,
    *,
    names: Sequence[object] | None = None,
    max_nodes: int = MAX_NODES,
    n_neighbors: int = EDGES_PER_NODE,
    title: str = "",
) -> Figure:
    """Graph of the columns, with edges between the most similar ones.

    Every node has edges to its strongest ties: blue for positive, red for negative
    correlations. Colors of nodes are clusters.

    Parameters
    ----------
    model : fitted estimator, or array or sparse matrix of shape (n, n)
        A fit; or a similarity or correlation.
    names : sequence of str, optional
        Names of the columns; by default those of the estimator. Names that would
        overlap are left out, those with the weakest ties first.
    max_nodes : int
        Most nodes to draw; of more columns, those with the strongest ties.
    n_neighbors : int
        Number of strongest ties of a node that are drawn.
    title : str
        Title of the figure.

    Examples
    --------
    >>> import numpy as np
    >>> S = np.array([[1.0, 0.0, 0.9], [0.0, 1.0, -0.6], [0.9, -0.6, 1.0]])
    >>> figure = similarity_graph(S, names=["a", "b", "c"])
    >>> [text.get_text() for text in figure.axes[0].texts]
    ['a', 'b', 'c']
    """
    affinity, chosen, all_names, axis, _ = select_affinity(model, names, max_nodes)
    affinity = affinity.copy()
    np.fill_diagonal(affinity, 0.0)
    edges = strongest_edges(affinity, n_neighbors)
    positions = spring_layout(affinity, edges)
    figure = Figure(figsize=(7.6, 6.0), layout="constrained")
    ax = figure.add_subplot()
    _draw_edges(ax, affinity, edges, positions)
    strength = np.abs(affinity).sum(axis=1)
    sizes = 25.0 + 120.0 * strength / (strength.max(initial=0.0) or 1.0)
    colors = [
        GROUP_COLORS[min(group, len(GROUP_COLORS) - 1)]
        for group in cluster_labels(affinity)
    ]
    ax.scatter(positions[:, 0], positions[:, 1], s=sizes, c=colors, zorder=3,
               linewidths=0.8, edgecolors="white")  # fmt: skip
    labels = [str(place + 1) for place in chosen]
    if all_names is not None:
        labels = [all_names[place] for place in chosen]
    _draw_node_labels(ax, positions, labels, strength)
    ax.set_title(
        title or _graph_title(axis, affinity[edges[:, 0], edges[:, 1]]),
        fontsize=11,
        color=INK,
    )
    ax.set_axis_off()
    ax.set_xlim(-1.22, 1.22)
    ax.set_ylim(-1.12, 1.12)
    return figure


def _graph_title(axis: str, drawn: Array) -> str:
    """Default title of a graph with edges of these affinities."""
    if len(drawn) == 0:
        return f"No two {axis}s go together"
    red = " Red: one falls as the other rises." if (drawn < 0.0).any() else ""
    return f"Which {axis}s go together, by their strongest ties.{red}"


def _draw_edges(ax: Any, affinity: Array, edges: Array, positions: Array) -> None:
    """Draw edges, with widths by affinity."""
    if len(edges) == 0:
        return
    values = affinity[edges[:, 0], edges[:, 1]]
    part = np.abs(values) / np.abs(values).max()
    colors = np.where(values < 0.0, RED, BLUE)
    lines = LineCollection(positions[edges], linewidths=0.5 + 2.6 * part, colors=colors,
                           alpha=0.35, zorder=1)  # fmt: skip
    ax.add_collection(lines)


def _draw_node_labels(
    ax: Any, positions: Array, names: Sequence[str], strength: Array
) -> None:
    """Draw names above or below nodes where there is room."""
    size = 9.0 if len(names) <= 25 else 7.5
    halo = [patheffects.withStroke(linewidth=2.5, foreground="white")]
    for place, shift in place_labels(positions, names, strength, size):
        ax.annotate(names[place], positions[place], xytext=(0, shift), ha="center",
                    textcoords="offset points", va="center", fontsize=size, color=INK,
                    zorder=4, path_effects=halo)  # fmt: skip


def place_labels(
    positions: Array, names: Sequence[str], strength: Array, font_size: float
) -> list[tuple[int, float]]:
    """Nodes whose names have room, and vertical offsets of these in points.

    A name is above its node or below it; of overlapping names, that of the strongest
    node is kept.
    """
    taken: list[tuple[float, float, float]] = []
    labels = []
    for place in np.argsort(-strength, kind="stable"):
        x, y = POINTS_PER_UNIT * positions[place]
        half = 0.29 * font_size * len(names[place])
        for shift in (font_size + 2.0, -font_size - 2.0):
            at = y + shift
            if all(
                abs(x - other) > half + wide or abs(at - high) > 1.05 * font_size
                for other, high, wide in taken
            ):
                taken.append((x, at, half))
                labels.append((int(place), shift))
                break
    return sorted(labels)


def select_affinity(
    model: Any, names: Sequence[object] | None, max_columns: int
) -> tuple[Array, Array, list[str] | None, str, str]:
    """Affinity of the strongest columns, with labels for the figure.

    Returns
    -------
    affinity : array of shape (shown, shown)
        Symmetric affinity of the columns to show.
    chosen : array of int, shape (shown,)
        These columns.
    names : list of str or None
        Names of all columns.
    axis, label : str
        What a column and what an affinity is called.
    """
    axis, label = "column", "similarity"
    if is_fitted_estimator(model):
        affinity = column_affinity(model)
        axis = "row" if getattr(model, "transposed_", False) else "column"
        label = "similarity" if sparse.issparse(affinity) else "correlation"
        names = names if names is not None else find_column_names(model)
    else:
        affinity = model
    affinity = check_affinity(affinity, names)
    n = affinity.shape[0]
    chosen = strongest_columns(affinity, max_columns)
    if sparse.issparse(affinity):
        values = affinity.tocsr()[chosen][:, chosen].toarray().astype(np.float64)
    else:
        values = affinity[np.ix_(chosen, chosen)]
    if not np.isfinite(values).all():
        raise ValueError("similarity must be finite, got NaN or infinite entries")
    shown = None if names is None else axis_labels(names, n)
    return 0.5 * (values + values.T), chosen, shown, axis, label


def _n_columns(model: Any) -> int:
    """Number of columns of a fit or of a matrix."""
    graph = getattr(model, "similarity_", None)
    if graph is not None:
        return int(graph.shape[0])
    if hasattr(model, "n_features_in_"):
        return int(model.n_features_in_)
    return int(np.shape(model)[0] if not sparse.issparse(model) else model.shape[0])


def strongest_columns(affinity: Any, max_columns: int) -> Array:
    """The columns with the largest total affinity, in increasing order.

    Examples
    --------
    >>> import numpy as np
    >>> T = np.array([[1.0, 0.0, 0.9], [0.0, 1.0, 0.1], [0.9, 0.1, 1.0]])
    >>> strongest_columns(T, 2).tolist()
    [0, 2]
    """
    n = affinity.shape[0]
    if n <= max_columns:
        return np.arange(n)
    size = abs(affinity)
    own = size.diagonal()
    sums = np.asarray(size.sum(axis=1)).ravel() - own
    return np.sort(np.argsort(-sums, kind="stable")[:max_columns])


def strongest_edges(affinity: Array, n_neighbors: int) -> Array:
    """Edges of a graph: the strongest ties of each column, without weak ones.

    Examples
    --------
    >>> import numpy as np
    >>> T = np.array([[0.0, 0.9, 0.2], [0.9, 0.0, 0.5], [0.2, 0.5, 0.0]])
    >>> strongest_edges(T, 1).tolist()
    [[0, 1], [1, 2]]
    """
    size = np.abs(affinity)
    n, largest = len(size), size.max(initial=0.0)
    count = min(n_neighbors, n - 1)
    if count < 1 or largest == 0.0:
        return np.empty((0, 2), dtype=np.int64)
    nearest = np.argsort(-size, axis=1, kind="stable")[:, :count]
    ends = np.column_stack([np.repeat(np.arange(n), count), nearest.ravel()])
    ends = ends[size[ends[:, 0], ends[:, 1]] >= MIN_RELATIVE_AFFINITY * largest]
    pairs: Array = np.unique(np.sort(ends, axis=1), axis=0)
    return pairs


def cluster_order(values: Array) -> Array:
    """Order of the columns by hierarchical clustering, similar ones adjacent.

    Examples
    --------
    >>> import numpy as np
    >>> S = np.array([[1.0, 0.0, 0.9], [0.0, 1.0, 0.1], [0.9, 0.1, 1.0]])
    >>> cluster_order(S).tolist()
    [0, 2, 1]
    """
    tree = linkage_tree(values)
    if tree is None:
        return np.arange(len(values))
    order: Array = leaves_list(tree).astype(np.int64)
    # An order and its reverse are equivalent: pick one of them.
    return order if order[0] <= order[-1] else order[::-1].copy()


def cluster_labels(affinity: Array) -> Array:
    """Cluster of each column, numbered by decreasing size."""
    tree = linkage_tree(affinity)
    if tree is None:
        return np.zeros(len(affinity), dtype=np.int64)
    clusters = fcluster(
        tree, min(len(GROUP_COLORS) - 1, max(1, len(affinity) // 4)), "maxclust"
    )
    _, number, counts = np.unique(clusters, return_inverse=True, return_counts=True)
    rank = np.empty(len(counts), dtype=np.int64)
    rank[np.argsort(-counts, kind="stable")] = np.arange(len(counts))
    groups: Array = rank[number]
    return groups


def linkage_tree(values: Array) -> Array | None:
    """Linkage of the columns by their affinity; None for fewer than three."""
    if len(values) < 3:
        return None
    largest = np.max(np.abs(values - np.diag(np.diag(values)))) or 1.0
    distance = 1.0 - np.clip(values / max(largest, 1e-300), -1.0, 1.0)
    distance = 0.5 * (distance + distance.T)
    np.fill_diagonal(distance, 0.0)
    distances = squareform(distance, checks=False)
    tree: Array = linkage(distances, method="average")
    if len(values) <= MAX_OPTIMAL_ORDERING:
        tree = optimal_leaf_ordering(tree, distances)
    return tree


def spring_layout(affinity: Array, edges: Array) -> Array:
    """Positions of nodes by a force-directed layout, shape (n, 2), from -1 to 1.

    Parameters
    ----------
    affinity : array of shape (n, n)
        Strengths of the springs; their sign does not matter.
    edges : array of int, shape (edges, 2)
        Pairs of nodes that are joined.

    Examples
    --------
    >>> import numpy as np
    >>> T = np.zeros((3, 3))
    >>> T[0, 1] = T[1, 0] = 1.0
    >>> places = spring_layout(T, np.array([[0, 1]]))
    >>> far = [float(np.hypot(*(places[0] - other))) for other in places[1:]]
    >>> far[0] < far[1]
    True
    """
    n = len(affinity)
    if n < 3:
        return np.column_stack([np.arange(n) - (n - 1) / 2.0, np.zeros(n)])
    springs = np.zeros((n, n))
    springs[edges[:, 0], edges[:, 1]] = np.abs(affinity)[edges[:, 0], edges[:, 1]]
    springs += springs.T
    springs /= springs.max(initial=0.0) or 1.0
    positions = spectral_layout(springs)
    length = 1.6 / np.sqrt(n)
    for step in range(N_LAYOUT_STEPS):
        max_move = INITIAL_MAX_MOVE * (1.0 - step / N_LAYOUT_STEPS)
        positions = _spring_step(positions, springs, length, max_move)
    positions -= 0.5 * (positions.max(axis=0) + positions.min(axis=0))
    size = np.abs(positions).max(axis=0)
    # A graph that is a line stays one.
    scaled: Array = positions / np.maximum(size, 0.35 * (size.max() or 1.0))
    return scaled


def spectral_layout(springs: Array) -> Array:
    """Initial positions: two eigenvectors of the Laplacian, slightly perturbed."""
    n = len(springs)
    # A weak edge between all nodes connects the components of the graph.
    weights = springs + 0.02
    np.fill_diagonal(weights, 0.0)
    root = 1.0 / np.sqrt(weights.sum(axis=1))
    laplacian = np.eye(n) - root[:, None] * weights * root[None, :]
    vectors = np.linalg.eigh(laplacian)[1][:, 1:3] * root[:, None]
    # Fix the sign of the eigenvectors: the largest coordinate is positive.
    largest = np.abs(vectors).argmax(axis=0)
    vectors = vectors * np.sign(vectors[largest, [0, 1]])
    # Nodes at one position would never separate: add a small sunflower pattern.
    angles = np.arange(n) * np.pi * (3.0 - np.sqrt(5.0))
    seeds = np.sqrt((np.arange(n) + 0.5) / n)[:, None] * np.column_stack(
        [np.cos(angles), np.sin(angles)]
    )
    size = np.abs(vectors).max(axis=0)
    return vectors / np.where(size > 0.0, size, 1.0) + 0.05 * seeds


def _spring_step(
    positions: Array, springs: Array, length: float, max_move: float
) -> Array:
    """Positions after one step, none moved by more than ``max_move``."""
    apart = positions[:, None, :] - positions[None, :, :]
    distance = np.maximum(np.hypot(apart[..., 0], apart[..., 1]), 1e-3)
    push = length**2 / distance
    pull = springs * distance**2 / length
    force = ((push - pull) / distance)[..., None] * apart
    # A weak pull to the center keeps isolated nodes in the figure.
    total = force.sum(axis=1) - 0.6 * positions
    size = np.maximum(np.hypot(total[:, 0], total[:, 1]), 1e-12)
    moved: Array = positions + total * (np.minimum(size, max_move) / size)[:, None]
    return moved
