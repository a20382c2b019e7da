"""Which columns go together, as heat maps; similar ones next to each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure
from scipy import sparse
from scipy.cluster.hierarchy import leaves_list, linkage, optimal_leaf_ordering
from scipy.spatial.distance import squareform

from ncarl.core.types import Array
from ncarl.plots.learned import checked_square, is_model, names_in, ties_of
from ncarl.plots.style import INK, MOST_NAMES, name_ticks, names_of, plain

#: So many columns are put into the best order; more into a good one.
BEST_ORDER = 600
#: More columns than this cannot be told apart: those with the strongest ties are shown.
MOST_COLUMNS = 1000


def similarity_map(
    S: Any,
    *,
    title: str,
    names: Sequence[str] | None = None,
    label: str = "similarity",
    axis: str = "column",
    most: float | None = None,
) -> Figure:
    """A similarity (or correlation) of columns as a heat map, in their own order.

    Parameters
    ----------
    S : array or sparse matrix of shape (n, n)
        Not negative for a similarity; with negative entries a colour map that is
        white at zero is used.
    title : str
        Written above.
    names : sequence of str, optional
        Names of the columns; left out where there are too many to read.
    label : str
        What the colours mean.
    axis : str
        What rows and columns of ``S`` are.
    most : float, optional
        Where the colours end if nothing is negative; by default the strongest
        entries share the last colour.

    Examples
    --------
    >>> import numpy as np
    >>> figure = similarity_map(np.eye(3), title="three of a kind", axis="row")
    >>> figure.axes[0].get_xlabel()
    'row'
    """
    values = np.asarray(S.toarray() if hasattr(S, "toarray") else S, dtype=np.float64)
    named = names is not None and len(names) <= MOST_NAMES
    shown = [plain(name) for name in names] if named and names is not None else None
    return _heat_map(values, shown, title=title, label=label, axis=axis, most=most)


def similarity(
    model: Any,
    *,
    names: Sequence[object] | None = None,
    ordered: bool = True,
    most: int = MOST_COLUMNS,
    title: str = "",
) -> Figure:
    """Which columns go together, learned by a fit, as a heat map in a telling order.

    Parameters
    ----------
    model : fitted estimator, or array or sparse matrix of shape (n, n)
        A fit, whose kernel (or graph, or completed columns) says how columns go
        together; or a similarity or correlation.
    names : sequence of str, optional
        Names of the columns; those of the estimator unless given. Where they are
        many, some of them are written.
    ordered : bool
        Whether columns that are alike stand next to each other: hierarchical
        clustering, leaves in their best order. Else they stand as in the table.
    most : int
        Columns to show; where there are more, those with the strongest ties.
    title : str
        Written above.

    Examples
    --------
    >>> import numpy as np
    >>> S = np.array([[1.0, 0.0, 0.9], [0.0, 1.0, 0.1], [0.9, 0.1, 1.0]])
    >>> figure = similarity(S, names=["a", "b", "c"])
    >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
    ['a', 'c', 'b']
    """
    values, chosen, all_names, axis, label = chosen_ties(model, names, most)
    if ordered:
        order = similar_order(values)
        values, chosen = values[np.ix_(order, order)], chosen[order]
    known = all_names or names_of(None, int(chosen.max(initial=-1)) + 1)
    shown = [known[place] for place in chosen]
    count = len(values)
    if not title:
        title = f"How the {axis}s go together"
        if count < _size(model):
            title += f" (the {count} with the strongest ties)"
    two = values.min(initial=0.0) < 0.0
    ends = 1.0 if label == "correlation" else None
    figure = _heat_map(
        values, shown, title=title, label=label, axis=axis, most=ends, signed=two
    )
    if all_names is None:
        figure.axes[0].set_xlabel(f"{axis}, by its number")
    return figure


def _size(model: Any) -> int:
    """How many columns there are to show."""
    graph = getattr(model, "similarity_", None)
    if graph is not None:
        return int(graph.shape[0])
    if hasattr(model, "n_features_in_"):
        return int(model.n_features_in_)
    return int(np.shape(model)[0] if not sparse.issparse(model) else model.shape[0])


def chosen_ties(
    model: Any, names: Sequence[object] | None, most: int
) -> tuple[Array, Array, list[str] | None, str, str]:
    """Ties of the columns to be shown, which these are, all names, and what to say.

    The last two are what a column is called, and what a tie is.
    """
    axis, label = "column", "similarity"
    if is_model(model):
        ties = ties_of(model)
        axis = "row" if getattr(model, "transposed_", False) else "column"
        label = "similarity" if sparse.issparse(ties) else "correlation"
        names = names if names is not None else names_in(model)
    else:
        ties = model
    ties = checked_square(ties, names)
    n = ties.shape[0]
    chosen = strongest(ties, most)
    if sparse.issparse(ties):
        values = ties.tocsr()[chosen][:, chosen].toarray().astype(np.float64)
    else:
        values = ties[np.ix_(chosen, chosen)]
    if not np.isfinite(values).all():
        raise ValueError("similarity must be finite, got NaN or infinite entries")
    shown = None if names is None else names_of(names, n)
    return 0.5 * (values + values.T), chosen, shown, axis, label


def strongest(ties: Any, most: int) -> Array:
    """The columns with the strongest ties to others, in their own order.

    Examples
    --------
    >>> import numpy as np
    >>> T = np.array([[1.0, 0.0, 0.9], [0.0, 1.0, 0.1], [0.9, 0.1, 1.0]])
    >>> strongest(T, 2).tolist()
    [0, 2]
    """
    n = ties.shape[0]
    if n <= most:
        return np.arange(n)
    size = abs(ties)
    own = size.diagonal()
    sums = np.asarray(size.sum(axis=1)).ravel() - own
    return np.sort(np.argsort(-sums, kind="stable")[:most])


def similar_order(values: Array) -> Array:
    """An order in which columns that go together are neighbours.

    Examples
    --------
    >>> import numpy as np
    >>> S = np.array([[1.0, 0.0, 0.9], [0.0, 1.0, 0.1], [0.9, 0.1, 1.0]])
    >>> similar_order(S).tolist()
    [0, 2, 1]
    """
    tree = clusters(values)
    if tree is None:
        return np.arange(len(values))
    order: Array = leaves_list(tree).astype(np.int64)
    # The same order read from its other end says the same.
    return order if order[0] <= order[-1] else order[::-1].copy()


def clusters(values: Array) -> Array | None:
    """A tree of the columns by their ties; None where there are too few to part."""
    if len(values) < 3:
        return None
    largest = np.max(np.abs(values - np.diag(np.diag(values)))) or 1.0
    far = 1.0 - np.clip(values / max(largest, 1e-300), -1.0, 1.0)
    far = 0.5 * (far + far.T)
    np.fill_diagonal(far, 0.0)
    distances = squareform(far, checks=False)
    tree: Array = linkage(distances, method="average")
    if len(values) <= BEST_ORDER:
        tree = optimal_leaf_ordering(tree, distances)
    return tree


def _heat_map(
    values: Array,
    names: Sequence[str] | None,
    *,
    title: str,
    label: str,
    axis: str,
    most: float | None,
    signed: bool | None = None,
) -> Figure:
    """A square of colours with names along it."""
    count = 0 if names is None else min(len(names), MOST_NAMES)
    side = min(max(5.2, 0.26 * count), 8.6)
    figure = Figure(figsize=(side + 1.2, side), layout="constrained")
    ax = figure.add_subplot()
    image = ax.imshow(values, interpolation="nearest",
                      **_colours(values, most, signed))  # fmt: skip
    over = "max" if image.get_clim()[1] < values.max(initial=0.0) else "neither"
    figure.colorbar(image, ax=ax, label=label, shrink=0.75, extend=over)
    ax.set_title(title, fontsize=11, color=INK)
    if names is not None:
        name_ticks(ax, names)
    else:
        ax.set_xlabel(axis)
        ax.set_ylabel(axis)
    return figure


def _colours(
    values: Array, most: float | None, signed: bool | None = None
) -> dict[str, Any]:
    """A colour map and its range: white at zero if there are two signs."""
    if signed or (signed is None and values.min(initial=0.0) < 0.0):
        largest = float(np.abs(values).max())
        return {"cmap": colormaps["RdBu_r"], "vmin": -largest, "vmax": largest}
    if most is None:
        # A few strong neighbours must not leave the rest of the map empty.
        some = values[values > 0.0]
        most = float(np.quantile(some, 0.98)) if some.size else 1.0
    return {"cmap": colormaps["Blues"], "vmin": 0.0, "vmax": most}
