"""Similarity of columns as heat maps, ordered by clustering, and as graphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib import patheffects
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from scipy import sparse
from scipy.cluster import hierarchy
from scipy.spatial.distance import squareform

from ncarl.core.types import Array
from ncarl.observations import check_sparse
from ncarl.plots.fit import column_affinity, is_fitted_estimator, resolve_names
from ncarl.plots.style import (
    BLUE,
    INK,
    MAX_TICK_LABELS,
    RED,
    axis_labels,
    format_label,
    new_axes,
    set_tick_labels,
)

#: Maximum number of columns for which the leaf ordering is optimal.
MAX_OPTIMAL_ORDERING = 600
#: Maximum columns of a heat map; of more, the most strongly related are shown.
MAX_COLUMNS = 1000
#: Maximum number of nodes of a graph, and edges of a node.
MAX_NODES, EDGES_PER_NODE = 60, 3
#: Weakest edge of a graph, relative to the strongest.
MIN_RELATIVE_AFFINITY = 0.15
#: Steps of the spring layout, and the farthest move of a node in the first one.
N_LAYOUT_STEPS, INITIAL_MAX_MOVE = 300, 0.15
#: Approximate width and height of one unit of the layout in the figure, in points.
POINTS_PER_UNIT = np.array([220.0, 185.0])
#: Colors of clusters of nodes; further clusters share the last one.
GROUP_COLORS = ("#2f6db3", "#3a9d8f", "#d98c2b", "#8e6bb0", "#b85c6e", "#7a8b3f",
                "#8a8a8a")  # fmt: skip


@dataclass(frozen=True)
class _Affinity:
    values: Array  # symmetric, shape (shown, shown)
    labels: list[str]  # names of the columns shown, or their numbers from 1
    named: bool  # whether there are names
    n_columns: int  # with those left out
    axis: str  # what a column is called
    label: str  # what an affinity is called


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
        correlations of the completed columns) are shown; or such a matrix.
    names : sequence of str, optional
        Names of the columns; by default those of the estimator.
    ordered : bool
        Whether to put similar columns next to each other, by hierarchical clustering
        with optimal leaf ordering.
    max_columns : int
        Maximum number of columns to show; of more, the most strongly related.
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
    shown = _select_affinity(model, names, max_columns)
    values, labels = shown.values, shown.labels
    if ordered:
        order = cluster_order(values)
        values, labels = values[np.ix_(order, order)], [labels[j] for j in order]
    if not title:
        title = f"{shown.label.capitalize()} of the {shown.axis}s"
        if len(values) < shown.n_columns:
            title += f" (the {len(values)} most strongly related)"
    vmax = 1.0 if shown.label == "correlation" else None
    figure = _heat_map(values, labels, title, shown.label, shown.axis, vmax)
    if not shown.named:
        figure.axes[0].set_xlabel(f"{shown.axis} number")
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
    label, axis : str
        Labels of the color bar and of the axes.
    vmax : float, optional
        End of the color scale if no entry is negative; by default the 98th percentile.

    Examples
    --------
    >>> import numpy as np
    >>> figure = similarity_map(np.eye(3), title="three of a kind", axis="row")
    >>> figure.axes[0].get_xlabel()
    'row'
    """
    values = np.asarray(S.toarray() if hasattr(S, "toarray") else S, dtype=np.float64)
    labels = None
    if names is not None and len(names) <= MAX_TICK_LABELS:
        labels = [format_label(name) for name in names]
    return _heat_map(values, labels, title, label, axis, vmax)


def _heat_map(
    values: Array,
    names: Sequence[str] | None,
    title: str,
    label: str,
    axis: str,
    vmax: float | None,
) -> Figure:
    count = 0 if names is None else min(len(names), MAX_TICK_LABELS)
    side = min(max(5.2, 0.26 * count), 8.6)
    figure, ax = new_axes(side + 1.2, side, title)
    colors, vmin = "Blues", 0.0
    if values.min(initial=0.0) < 0.0:  # both signs: white at zero
        vmax = float(np.abs(values).max())
        colors, vmin = "RdBu_r", -vmax
    elif vmax is None:
        # A few strong entries must not leave the rest of the map pale.
        positive = values[values > 0.0]
        vmax = float(np.quantile(positive, 0.98)) if positive.size else 1.0
    image = ax.imshow(values, colors, vmin=vmin, vmax=vmax, interpolation="nearest")
    over = "max" if vmax < values.max(initial=0.0) else "neither"
    figure.colorbar(image, ax=ax, label=label, shrink=0.75, extend=over)
    if names is not None:
        set_tick_labels(ax, names)
    else:
        ax.set(xlabel=axis, ylabel=axis)
    return figure


def similarity_graph(
    model: Any,
    *,
    names: Sequence[object] | None = None,
    max_nodes: int = MAX_NODES,
    title: str = "",
) -> Figure:
    """Graph of the columns, with edges between the most similar ones.

    Every node has edges to its strongest affinities: blue for positive, red for
    negative correlations. Colors of nodes are clusters.

    Parameters
    ----------
    model : fitted estimator, or array or sparse matrix of shape (n, n)
        A fit; or a similarity or correlation.
    names : sequence of str, optional
        Names of the columns; by default those of the estimator. Of overlapping names,
        the one with the strongest affinities is written.
    max_nodes : int
        Number of nodes to draw; of more columns, the most strongly related.
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
    shown = _select_affinity(model, names, max_nodes)
    affinity = shown.values.copy()
    np.fill_diagonal(affinity, 0.0)
    edges = strongest_edges(affinity, EDGES_PER_NODE)
    values = affinity[edges[:, 0], edges[:, 1]]
    if not title and len(edges):
        title = f"{shown.label.capitalize()} of the {shown.axis}s, strongest pairs."
        if (values < 0.0).any():
            title += " Red: negative."
    figure, ax = new_axes(7.6, 6.0, title or f"No {shown.axis}s are related")
    positions = spring_layout(affinity, edges)
    if len(edges):
        widths = 0.5 + 2.6 * np.abs(values) / np.abs(values).max()
        colors = np.where(values < 0.0, RED, BLUE)
        lines = LineCollection(positions[edges], linewidths=widths, colors=colors,
                               alpha=0.35, zorder=1)  # fmt: skip
        ax.add_collection(lines)
    strength = np.abs(affinity).sum(axis=1)
    sizes = 25.0 + 120.0 * strength / (strength.max(initial=0.0) or 1.0)
    groups = np.minimum(cluster_labels(affinity), len(GROUP_COLORS) - 1)
    ax.scatter(*positions.T, s=sizes, c=[GROUP_COLORS[group] for group in groups],
               zorder=3, linewidths=0.8, edgecolors="white")  # fmt: skip
    size = 9.0 if len(sizes) <= 25 else 7.5
    halo = [patheffects.withStroke(linewidth=2.5, foreground="white")]
    for place, shift in place_labels(positions, shown.labels, strength, size):
        ax.annotate(shown.labels[place], positions[place], xytext=(0, shift),
                    textcoords="offset points", ha="center", va="center", fontsize=size,
                    color=INK, zorder=4, path_effects=halo)  # fmt: skip
    ax.set_axis_off()
    ax.set(xlim=(-1.22, 1.22), ylim=(-1.12, 1.12))
    return figure


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


def _select_affinity(
    model: Any, names: Sequence[object] | None, max_columns: int
) -> _Affinity:
    affinity, axis, label = model, "column", "similarity"
    if is_fitted_estimator(model):
        affinity = column_affinity(model)
        axis = "row" if getattr(model, "transposed_", False) else "column"
        label = "similarity" if sparse.issparse(affinity) else "correlation"
        names = resolve_names(names, model)
    if sparse.issparse(affinity):
        affinity = check_sparse(affinity, "similarity")
    else:
        affinity = np.asarray(affinity, dtype=np.float64)
    n = affinity.shape[-1] if affinity.ndim else 0
    if affinity.shape != (n, n):
        raise ValueError(
            "similarity must be a fitted estimator or a square matrix, got shape "
            f"{affinity.shape}"
        )
    labels = axis_labels(names, n)
    chosen = strongest_columns(affinity, max_columns)
    if sparse.issparse(affinity):
        values = affinity.tocsr()[chosen][:, chosen].toarray().astype(np.float64)
    else:
        values = affinity[np.ix_(chosen, chosen)]
    if not np.isfinite(values).all():
        raise ValueError("similarity must be finite, got NaN or infinite entries")
    values = 0.5 * (values + values.T)
    shown = [labels[j] for j in chosen]
    return _Affinity(values, shown, names is not None, n, axis, label)


def strongest_columns(affinity: Any, max_columns: int) -> Array:
    """The columns with the largest total affinity, in increasing order."""
    n = affinity.shape[0]
    if n <= max_columns:
        return np.arange(n)
    size = abs(affinity)
    own = size.diagonal()
    sums = np.asarray(size.sum(axis=1)).ravel() - own
    return np.sort(np.argsort(-sums, kind="stable")[:max_columns])


def strongest_edges(affinity: Array, n_neighbors: int) -> Array:
    """Edges of a graph: the strongest of each column, without weak ones."""
    size = np.abs(affinity)
    n, largest = len(size), size.max(initial=0.0)
    count = min(n_neighbors, n - 1)
    if count < 1 or largest == 0.0:
        return np.empty((0, 2), dtype=np.int64)
    nearest = np.argsort(-size, axis=1, kind="stable")[:, :count]
    ends = np.column_stack([np.repeat(np.arange(n), count), nearest.ravel()])
    ends = ends[size[ends[:, 0], ends[:, 1]] >= MIN_RELATIVE_AFFINITY * largest]
    return np.unique(np.sort(ends, axis=1), axis=0)


def cluster_order(values: Array) -> Array:
    """Order of the columns by hierarchical clustering, similar ones adjacent."""
    tree = _linkage_tree(values)
    if tree is None:
        return np.arange(len(values))
    order: Array = hierarchy.leaves_list(tree).astype(np.int64)
    # An order and its reverse are equivalent: pick one of them.
    return order if order[0] <= order[-1] else order[::-1].copy()


def cluster_labels(affinity: Array) -> Array:
    """Cluster of each column, numbered by decreasing size."""
    tree = _linkage_tree(affinity)
    if tree is None:
        return np.zeros(len(affinity), dtype=np.int64)
    most = min(len(GROUP_COLORS) - 1, max(1, len(affinity) // 4))
    clusters = hierarchy.fcluster(tree, most, "maxclust")
    _, number, counts = np.unique(clusters, return_inverse=True, return_counts=True)
    rank = np.empty(len(counts), dtype=np.int64)
    rank[np.argsort(-counts, kind="stable")] = np.arange(len(counts))
    return rank[number]


def _linkage_tree(values: Array) -> Array | None:
    if len(values) < 3:
        return None
    largest = np.max(np.abs(values - np.diag(np.diag(values)))) or 1.0
    distance = 1.0 - np.clip(values / max(largest, 1e-300), -1.0, 1.0)
    distance = 0.5 * (distance + distance.T)
    np.fill_diagonal(distance, 0.0)
    distances = squareform(distance, checks=False)
    tree: Array = hierarchy.linkage(distances, method="average")
    if len(values) <= MAX_OPTIMAL_ORDERING:
        tree = hierarchy.optimal_leaf_ordering(tree, distances)
    return tree


def spring_layout(affinity: Array, edges: Array) -> Array:
    """Positions of nodes by a force-directed layout, shape (n, 2), from -1 to 1.

    Edges, pairs of nodes, are springs with the size of the affinity as strength.
    """
    # Implemented here to avoid a dependency on NetworkX.
    n = len(affinity)
    if n < 3:
        return np.column_stack([np.arange(n) - (n - 1) / 2.0, np.zeros(n)])
    springs = np.zeros((n, n))
    springs[edges[:, 0], edges[:, 1]] = np.abs(affinity)[edges[:, 0], edges[:, 1]]
    springs += springs.T
    springs /= springs.max(initial=0.0) or 1.0
    positions = _spectral_layout(springs)
    length = 1.6 / np.sqrt(n)
    for step in range(N_LAYOUT_STEPS):
        apart = positions[:, None, :] - positions[None, :, :]
        distance = np.maximum(np.hypot(apart[..., 0], apart[..., 1]), 1e-3)
        push = length**2 / distance
        pull = springs * distance**2 / length
        force = ((push - pull) / distance)[..., None] * apart
        # A weak pull to the center keeps isolated nodes in the figure.
        total = force.sum(axis=1) - 0.6 * positions
        size = np.maximum(np.hypot(total[:, 0], total[:, 1]), 1e-12)
        max_move = INITIAL_MAX_MOVE * (1.0 - step / N_LAYOUT_STEPS)
        positions = positions + total * (np.minimum(size, max_move) / size)[:, None]
    positions -= 0.5 * (positions.max(axis=0) + positions.min(axis=0))
    size = np.abs(positions).max(axis=0)
    # A graph that is a line stays one.
    return positions / np.maximum(size, 0.35 * (size.max() or 1.0))


def _spectral_layout(springs: Array) -> Array:
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
    circle = np.column_stack([np.cos(angles), np.sin(angles)])
    seeds = np.sqrt((np.arange(n) + 0.5) / n)[:, None] * circle
    size = np.abs(vectors).max(axis=0)
    return vectors / np.where(size > 0.0, size, 1.0) + 0.05 * seeds
