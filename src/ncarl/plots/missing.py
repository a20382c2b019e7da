"""Figures of missing entries, from summaries that can also be computed in chunks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ncarl.containers import as_observations
from ncarl.core.types import Array
from ncarl.observations import Observations
from ncarl.plots.fit import is_fitted_estimator, predict_entries, resolve_names
from ncarl.plots.style import (
    BLUE,
    DARK_GRAY,
    GRAY,
    MAX_TICK_LABELS,
    MISSING_COLOR,
    RED,
    REFERENCE,
    TITLE,
    axis_labels,
    despine,
    new_axes,
    set_tick_labels,
)
from ncarl.text import count_of, join_names

#: Maximum rows and columns of the image of a pattern; larger matrices are binned.
MAX_CELLS = 300
#: Missing entries that are sampled.
MAX_SAMPLED_MISSING = 10_000
#: Matrices with more entries than this are never made dense.
MAX_DENSE_ENTRIES = 50_000_000
#: Rows and columns with fewer observed entries are marked.
MIN_OBSERVED = 2
#: Maximum number of marked rows that are drawn, and of marked columns.
MAX_LINES = 300
#: Observed entries light blue, missing ones white.
OBSERVED_COLORS = LinearSegmentedColormap.from_list("observed", ["#ffffff", "#b5cce4"])


@dataclass(frozen=True)
class MissingPattern:
    """Pattern of the observed entries of a matrix."""

    shape: tuple[int, int]  # of the matrix
    image: Array  # fraction of observed entries by bin, one entry each if it is small
    row_counts: Array  # observed entries of each row
    column_counts: Array

    @property
    def n_missing(self) -> int:
        """Number of missing entries."""
        return int(self.shape[0] * self.shape[1] - self.row_counts.sum())


@dataclass(frozen=True)
class ImputedEntries:
    """Missing entries with their imputed values and standard deviations."""

    rows: Array
    columns: Array
    values: Array
    std: Array | None  # None for a model without noise
    column_stds: Array  # of the observed entries of each column; 0 for none

    @property
    def relative_std(self) -> Array:
        """Standard deviations over those of the columns; NaN for a constant column."""
        scale = self.column_stds[self.columns]
        if self.std is None:
            return np.full(len(scale), np.nan)
        return self.std / np.where(scale > 0.0, scale, np.nan)


def identifiability(
    model: Any,
    X: Any = None,
    *,
    names: Sequence[object] | None = None,
    min_observed: int = MIN_OBSERVED,
    title: str = "",
) -> Figure:
    """Pattern of missing entries, with rows and columns that cannot be identified.

    Rows and columns without any observed entry are marked in red: they are imputed by
    means, whatever the model. Those with fewer observed entries than ``min_observed``
    are marked in orange. The margins show the mean standard deviation of imputed
    entries by row and by column, relative to the standard deviation of the column: 1 is
    no better than its mean. Without error bars they show the fraction observed.

    Parameters
    ----------
    model : fitted estimator, or a matrix with missing entries
        The model; of a matrix alone the pattern is shown.
    X : container of shape (m, n), optional
        The matrix; by default that of the fit.
    names : sequence of str, optional
        Names of the columns; by default those of ``X`` or of the estimator.
    min_observed : int
        Observed entries that a row or a column needs.
    title : str
        Title of the figure; by default a description of the pattern.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[1.0, np.nan], [2.0, np.nan], [3.0, np.nan]])
    >>> figure = identifiability(X)
    >>> figure.get_suptitle()
    '50.0% missing; no observed entry in 1 column, too few in 3 rows'
    """
    if is_fitted_estimator(model):
        entries, imputed = _imputed_entries_of_fit(model, X)
    else:
        entries, imputed = as_observations(model if X is None else X), None
    return draw_pattern(
        missing_pattern([entries], entries.shape),
        imputed,
        names=resolve_names(names, X, model),
        min_observed=min_observed,
        title=title,
    )


def draw_pattern(
    pattern: MissingPattern,
    imputed: ImputedEntries | None,
    *,
    names: Sequence[object] | None = None,
    min_observed: int = MIN_OBSERVED,
    title: str = "",
) -> Figure:
    """The figure of `identifiability` from its summaries.

    Parameters
    ----------
    pattern : MissingPattern
        Pattern of the observed entries.
    imputed : ImputedEntries or None
        Missing entries with standard deviations, if there are any.
    names, min_observed, title
        As in `identifiability`.

    Examples
    --------
    >>> import numpy as np
    >>> from ncarl.observations import Observations
    >>> X = Observations.from_dense(np.array([[1.0, np.nan], [2.0, 3.0]]))
    >>> draw_pattern(missing_pattern([X], (2, 2)), None, min_observed=1).get_suptitle()
    '25.0% missing; every row and every column has enough observed entries'
    """
    m, n = pattern.shape
    figure = Figure(figsize=(8.0, 6.4), layout="constrained")
    axes = figure.subplots(2, 2, width_ratios=(4, 1), height_ratios=(4, 1),
                           sharex="col", sharey="row")  # fmt: skip
    (main, right), (below, corner) = axes
    corner.set_axis_off()
    extent = (0.5, n + 0.5, m + 0.5, 0.5)
    main.imshow(pattern.image, OBSERVED_COLORS, vmin=0.0, vmax=1.0, aspect="auto",
                interpolation="nearest", extent=extent)  # fmt: skip
    marks = _mark_sparse_lines(main, pattern, min_observed)
    _draw_margins(right, below, pattern, imputed)
    main.set_ylabel("row")
    main.tick_params(labelbottom=False)
    if names is None:
        below.set_xlabel("column")
    else:
        set_tick_labels(below, axis_labels(names, n), "x", first=1)
    if marks:
        corner.legend(handles=marks, frameon=False, loc="center", fontsize=8.5)
    figure.suptitle(title or _describe_pattern(pattern, min_observed), **TITLE)
    return figure


def _describe_pattern(pattern: MissingPattern, min_observed: int) -> str:
    m, n = pattern.shape
    missing = f"{pattern.n_missing / max(m * n, 1):.1%} missing"
    counts = (pattern.row_counts, pattern.column_counts)
    empty = _count_lines([int((c == 0).sum()) for c in counts])
    sparse = _count_lines([int(((c > 0) & (c < min_observed)).sum()) for c in counts])
    if empty:
        few = f", too few in {sparse}" if sparse else ""
        return f"{missing}; no observed entry in {empty}{few}"
    if sparse:
        return f"{missing}; too few observed entries in {sparse}"
    return f"{missing}; every row and every column has enough observed entries"


def _count_lines(counts: Sequence[int]) -> str:
    pairs = zip(counts, ("row", "column"), strict=True)
    parts = [count_of(count, word) for count, word in pairs if count]
    return join_names(parts, last=" and ")


def _mark_sparse_lines(
    ax: Any, pattern: MissingPattern, min_observed: int
) -> list[Line2D]:
    legend = []
    for low, high, color, label in (
        (0, 1, RED, "none observed"),
        (1, min_observed, MISSING_COLOR, f"fewer than {min_observed} observed"),
    ):
        both = (pattern.row_counts, pattern.column_counts)
        rows, columns = (np.flatnonzero((c >= low) & (c < high)) for c in both)
        style = {"color": color, "linewidth": 1.4, "alpha": 0.75, "zorder": 2}
        for draw, places in ((ax.axhline, rows), (ax.axvline, columns)):
            for place in places[:MAX_LINES]:
                draw(place + 1, **style)
        if len(rows) or len(columns):
            legend.append(Line2D([], [], color=color, linewidth=2, label=label))
    return legend


def _draw_margins(
    right: Any, below: Any, pattern: MissingPattern, imputed: ImputedEntries | None
) -> None:
    m, n = pattern.shape
    has_std = imputed is not None and imputed.std is not None
    if imputed is not None and has_std:
        rows = group_means(imputed.rows, imputed.relative_std, m)
        columns = group_means(imputed.columns, imputed.relative_std, n)
        label = "standard deviation\n(column = 1)"
    else:
        rows = pattern.row_counts / max(n, 1)
        columns = pattern.column_counts / max(m, 1)
        label = "fraction\nobserved"
    size = 4.5 if max(m, n) <= 200 else 3.0
    right.plot(*_bin_means(rows)[::-1], ".", color=BLUE, markersize=size)
    below.plot(*_bin_means(columns), ".", color=BLUE, markersize=size)
    top = float(np.nanmax(np.concatenate([[1.0], rows, columns])))
    if has_std:
        right.axvline(1.0, **REFERENCE)
        below.axhline(1.0, **REFERENCE)
    right.set_xlim(0.0, 1.08 * top)
    below.set_ylim(0.0, 1.08 * top)
    right.xaxis.tick_top()
    right.xaxis.set_label_position("top")
    right.tick_params(labeltop=True, labelbottom=False)
    right.set_xlabel(label, fontsize=9, color=DARK_GRAY)
    below.set_ylabel(label, fontsize=9, color=DARK_GRAY)
    despine(right)
    despine(below)
    right.spines["top"].set(visible=True, color=GRAY)
    right.spines["bottom"].set_visible(False)


def _bin_means(values: Array, max_points: int = 1000) -> tuple[Array, Array]:
    """Positions and values, averaged over bins if there are too many to draw."""
    if len(values) <= max_points:
        return np.arange(1, len(values) + 1), values
    cell = np.arange(len(values)) * max_points // len(values)
    places = group_means(cell, np.arange(1.0, len(values) + 1.0), max_points)
    return places, group_means(cell, values, max_points)


def uncertainty(
    model: Any,
    X: Any = None,
    *,
    names: Sequence[object] | None = None,
    title: str = "Standard deviations of imputed entries, by column",
) -> Figure:
    """Standard deviations of imputed entries by column, the smallest on top.

    A bar goes from the 5th to the 95th percentile, its broad part over the middle half,
    the dot is the median. All are relative to the standard deviation of the column: 1
    is no better than its mean.

    Parameters
    ----------
    model : fitted estimator with error bars, or array of shape (m, n)
        A fit; or standard deviations, NaN or 0 at observed entries.
    X : container of shape (m, n), optional
        The matrix; by default that of the fit. Needed with an array.
    names : sequence of str, optional
        Names of the columns; by default those of ``X`` or of the estimator.
    title : str
        Title of the figure.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[1.0, np.nan], [2.0, 4.0], [np.nan, 6.0]])
    >>> std = np.array([[0.0, 0.8], [0.0, 0.0], [0.2, 0.0]])
    >>> figure = uncertainty(std, X, names=["a", "b"])
    >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
    ['a', 'b']
    """
    if is_fitted_estimator(model):
        _, imputed = _imputed_entries_of_fit(model, X)
    else:
        if X is None:
            raise ValueError(
                "X, the matrix with its missing entries, is needed beside an array"
            )
        entries, std = as_observations(X), np.asarray(model, dtype=np.float64)
        if std.shape != entries.shape:
            raise ValueError(
                f"standard deviations must have the shape of X, {entries.shape}, got "
                f"{std.shape}"
            )
        i, j = sample_missing(entries, std.size)
        values = np.full(len(i), np.nan)
        imputed = ImputedEntries(i, j, values, std[i, j], entries.column_stds())
    return draw_uncertainty(imputed, names=resolve_names(names, X, model), title=title)


def draw_uncertainty(
    imputed: ImputedEntries, *, names: Sequence[object] | None = None, title: str = ""
) -> Figure:
    """The figure of `uncertainty` from its summary.

    Parameters
    ----------
    imputed : ImputedEntries
        Missing entries and their standard deviations.
    names, title
        As in `uncertainty`.

    Examples
    --------
    >>> import numpy as np
    >>> rows, columns, std = np.array([0, 1]), np.array([0, 0]), np.array([0.5, 0.7])
    >>> imputed = ImputedEntries(rows, columns, np.zeros(2), std, np.array([1.0]))
    >>> figure = draw_uncertainty(imputed, names=["a"])
    >>> [label.get_text() for label in figure.axes[0].get_yticklabels()]
    ['a']
    """
    relative, n = imputed.relative_std, len(imputed.column_stds)
    valid = np.isfinite(relative)
    if not valid.any():
        raise ValueError(
            "there is no imputed entry with a standard deviation; use BayesianNCARL, "
            "and a matrix with missing entries"
        )
    columns, quantiles = _column_quantiles(imputed.columns[valid], relative[valid])
    count, places = len(columns), np.arange(len(columns))
    all_names = axis_labels(names, n)
    figure, ax = new_axes(6.8, 1.3 + 0.21 * min(count, MAX_TICK_LABELS), title)
    thick = 5.0 if count <= MAX_TICK_LABELS else max(0.8, 200.0 / count)
    low, lower, median, upper, high = quantiles.T
    ax.hlines(places, low, high, color="#b9cbe0", linewidth=1.5)
    ax.hlines(places, lower, upper, color="#8fb0d3", linewidth=thick)
    ax.plot(median, places, "o", color=BLUE, markersize=min(4.5, thick))
    ax.axvline(1.0, **REFERENCE)
    ax.set_xlim(0.0, max(1.1, 1.05 * float(high.max())))
    ax.set_ylim(count - 0.4, -0.6)
    set_tick_labels(ax, [all_names[j] for j in columns], "y")
    ax.set_xlabel("standard deviation of imputed entries / that of the column")
    despine(ax, grid="x")
    return figure


def _column_quantiles(columns: Array, values: Array) -> tuple[Array, Array]:
    order = np.lexsort((values, columns))
    distinct, starts = np.unique(columns[order], return_index=True)
    parts = np.split(values[order], starts[1:])
    quantiles = np.array([np.quantile(p, (0.05, 0.25, 0.5, 0.75, 0.95)) for p in parts])
    rank = np.argsort(quantiles[:, 2], kind="stable")
    return distinct[rank], quantiles[rank]


def missing_pattern(
    chunks: Iterable[Observations], shape: tuple[int, int]
) -> MissingPattern:
    """Pattern of a matrix whose rows come in chunks, in order."""
    m, n = shape
    height, width = max(1, min(m, MAX_CELLS)), max(1, min(n, MAX_CELLS))
    counts = np.zeros((height, width))
    row_counts, column_counts = np.zeros(m, np.int64), np.zeros(n, np.int64)
    first = 0
    for chunk in chunks:
        end = first + chunk.shape[0]
        row_counts[first:end] = chunk.row_counts
        column_counts += chunk.column_counts
        down = (chunk.rows + first) * height // m
        right = chunk.indices.astype(np.int64) * width // n
        cells = np.bincount(down * width + right, minlength=height * width)
        counts += cells.reshape(height, width)
        first = end
    tall = np.bincount(np.arange(m) * height // max(m, 1), minlength=height)
    broad = np.bincount(np.arange(n) * width // max(n, 1), minlength=width)
    return MissingPattern(
        shape, counts / np.outer(tall, broad), row_counts, column_counts
    )


def _imputed_entries_of_fit(model: Any, X: Any) -> tuple[Any, ImputedEntries]:
    """Observed entries of ``X`` or of the fit, and predictions of missing ones."""
    entries = getattr(model, "training_", None) if X is None else as_observations(X)
    if entries is None:
        raise ValueError(
            "the fit did not keep its training entries (it was streamed, or loaded "
            "from a file); pass the matrix as X"
        )
    return entries, sample_imputed_entries(model, entries, X=X)


def sample_imputed_entries(
    model: Any, entries: Observations, *, X: Any = None, skip_empty: bool = False
) -> ImputedEntries:
    """Predictions of missing entries, or of an even sample if there are many.

    ``X`` is the matrix of ``entries``, if it is not that of the fit; ``skip_empty``
    leaves out rows and columns without observed entries.
    """
    i, j = sample_missing(entries, MAX_SAMPLED_MISSING)
    if skip_empty:
        kept = (entries.row_counts[i] > 0) & ~np.isin(j, model.unidentified_columns_)
        i, j = i[kept], j[kept]
    stds = entries.column_stds()
    if len(i) == 0:
        return ImputedEntries(i, j, np.empty(0), None, stds)
    return ImputedEntries(i, j, *predict_entries(model, i, j, X), stds)


def sample_missing(entries: Observations, max_entries: int) -> tuple[Array, Array]:
    """Rows and columns of about ``max_entries`` missing entries, sorted by row."""
    (m, n), rng = entries.shape, np.random.default_rng(0)
    if m * n > MAX_DENSE_ENTRIES:
        return _sample_missing_large(entries, max_entries, rng)
    i, j = np.nonzero(entries.missing_mask())
    if len(i) > max_entries:
        # Stratified by column, so that every column is represented.
        share = max(1, max_entries // n)
        order = rng.permutation(len(i))
        order = order[np.argsort(j[order], kind="stable")]
        starts = np.searchsorted(j[order], np.arange(n))
        kept = np.sort(order[np.arange(len(order)) - starts[j[order]] < share])
        i, j = i[kept], j[kept]
    return i, j


def _sample_missing_large(
    entries: Observations, max_entries: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Missing entries among random positions, for matrices too large to be dense."""
    m, n = entries.shape
    keys = entries.rows * n + entries.indices
    share = 1.0 - len(keys) / (m * n)
    count = int(min(4 * max_entries / max(share, 1e-3), 1e6))
    drawn = np.unique(rng.integers(0, m * n, count))
    after = np.minimum(np.searchsorted(keys, drawn), max(len(keys) - 1, 0))
    missing = drawn[keys[after] != drawn] if len(keys) else drawn
    if len(missing) > max_entries:
        missing = np.sort(rng.choice(missing, max_entries, replace=False))
    return missing // n, missing % n


def group_means(groups: Array, values: Array, n_groups: int) -> Array:
    """Mean of the finite values of each group; NaN for groups without any."""
    some = np.isfinite(values)
    counts = np.bincount(groups[some], minlength=n_groups)
    sums = np.bincount(groups[some], values[some], minlength=n_groups)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
