"""How uncertain the filled entries of a matrix are, column by column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ncarl.core.types import Array
from ncarl.observed import Observed
from ncarl.plots.gaps import entries_asked
from ncarl.plots.known import Doubts, doubts_of, some_gaps
from ncarl.plots.learned import entries_of, is_model, names_in, spreads_of
from ncarl.plots.style import GREY, HELD, INK, MOST_NAMES, light, name_ticks, names_of


def uncertainty(
    model: Any,
    X: Any = None,
    *,
    names: Sequence[object] | None = None,
    title: str = "How uncertain filled entries are, by column",
) -> Figure:
    """How uncertain the filled entries of each column are, the most certain on top.

    A bar goes from the 5th to the 95th percentile of the standard deviations, its
    broad part over the middle half, the dot is the median; all in spreads of the
    column: 1 is no better than its mean.

    Parameters
    ----------
    model : fitted estimator with error bars, or array of shape (m, n)
        A fit; or standard deviations, NaN or 0 at entries that are known.
    X : container of shape (m, n), optional
        The matrix; by default that of the fit. Needed with an array.
    names : sequence of str, optional
        Names of the columns; those of ``X`` or of the estimator unless given.
    title : str
        Written above.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[1.0, np.nan], [2.0, 4.0], [np.nan, 6.0]])
    >>> std = np.array([[0.0, 0.8], [0.0, 0.0], [0.2, 0.0]])
    >>> figure = uncertainty(std, X, names=["a", "b"])
    >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
    ['a', 'b']
    """
    if is_model(model):
        entries = entries_asked(model, X)
        doubts = doubts_of(model, entries, X=X)
    else:
        if X is None:
            raise ValueError("X, the matrix with its gaps, is needed beside an array")
        doubts = _given(np.asarray(model, dtype=np.float64), entries_of(X))
    names = names if names is not None else names_in(X, model)
    return draw_uncertainty(doubts, names=names, title=title)


def _given(std: Array, entries: Observed) -> Doubts:
    """Doubts from standard deviations that are there already."""
    if std.shape != entries.shape:
        raise ValueError(
            f"standard deviations must have the shape of X, {entries.shape}, got "
            f"{std.shape}"
        )
    i, j = some_gaps(entries, std.size)
    values = np.full(len(i), np.nan)
    return Doubts(i, j, values, std[i, j], spreads_of(entries))


def draw_uncertainty(
    doubts: Doubts, *, names: Sequence[object] | None = None, title: str = ""
) -> Figure:
    """The figure of `uncertainty` from its numbers.

    Parameters
    ----------
    doubts : Doubts
        Gaps, and standard deviations there.
    names : sequence of str, optional
        Names of the columns.
    title : str
        Written above.

    Examples
    --------
    >>> import numpy as np
    >>> places = np.array([0, 1]), np.array([0, 0])
    >>> doubts = Doubts(*places, np.zeros(2), np.array([0.5, 0.7]), np.array([1.0]))
    >>> figure = draw_uncertainty(doubts, names=["a"])
    >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
    ['a']
    """
    relative, n = doubts.relative, len(doubts.spreads)
    some = np.isfinite(relative)
    if not some.any():
        raise ValueError(
            "there is no filled entry with a standard deviation; use BayesianNCARL, "
            "and a matrix with gaps"
        )
    owner, values = doubts.columns[some], relative[some]
    found, quantiles = _quantiles(owner, values)
    all_names = names_of(names, n)
    tall = 1.3 + 0.21 * min(len(found), MOST_NAMES)
    figure = Figure(figsize=(6.8, tall), layout="constrained")
    ax = figure.add_subplot()
    _draw_bars(ax, quantiles)
    name_ticks(ax, [all_names[j] for j in found], "y")
    ax.set_xlabel("standard deviation of a filled entry, in spreads of its column")
    ax.set_title(title, fontsize=11, color=INK)
    light(ax, grid="x")
    return figure


def _quantiles(owner: Array, values: Array) -> tuple[Array, Array]:
    """Columns that have values, and quantiles of them, the least median first."""
    order = np.lexsort((values, owner))
    found, starts = np.unique(owner[order], return_index=True)
    parts = np.split(values[order], starts[1:])
    quantiles = np.array([np.quantile(p, (0.05, 0.25, 0.5, 0.75, 0.95)) for p in parts])
    rank = np.argsort(quantiles[:, 2], kind="stable")
    return found[rank], quantiles[rank]


def _draw_bars(ax: Any, quantiles: Array) -> None:
    """A bar for each column, one below the other."""
    count = len(quantiles)
    places = np.arange(count)
    thick = 5.0 if count <= MOST_NAMES else max(0.8, 200.0 / count)
    ax.hlines(places, quantiles[:, 0], quantiles[:, 4], color="#b9cbe0", linewidth=1.5)
    ax.hlines(places, quantiles[:, 1], quantiles[:, 3], color="#8fb0d3",
              linewidth=thick)  # fmt: skip
    ax.plot(quantiles[:, 2], places, "o", color=HELD, markersize=min(4.5, thick))
    ax.axvline(1.0, color=GREY, linestyle="--", linewidth=1)
    ax.set_xlim(0.0, max(1.1, 1.05 * float(quantiles[:, 4].max())))
    ax.set_ylim(count - 0.4, -0.6)
