"""What cannot be known: gaps, rows and columns of which too little is observed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ncarl.core.types import Array
from ncarl.plots.known import Doubts, Pattern, doubts_of, mean_by, pattern_of
from ncarl.plots.learned import entries_of, is_model, names_in
from ncarl.plots.style import (
    GAP,
    GREY,
    HELD,
    INK,
    MISSED,
    SOFT,
    light,
    name_ticks,
    names_of,
)

#: Known entries light blue, gaps white.
KNOWN = LinearSegmentedColormap.from_list("known", ["#ffffff", "#b5cce4"])
#: A row or column with fewer known entries says too little of itself.
LEAST = 2
#: More lines than this would cover the map.
MOST_LINES = 300


def identifiability(
    model: Any,
    X: Any = None,
    *,
    names: Sequence[object] | None = None,
    least: int = LEAST,
    title: str = "",
) -> Figure:
    """Which entries are known, and which rows and columns nothing can be said of.

    The map shows the pattern of the gaps. Rows and columns with nothing known are
    marked in red: they get the mean of what is around them, whatever the model. Those
    with fewer known entries than ``least`` are marked in orange. Beside the map stands
    how uncertain filled entries are, row by row and column by column: 1 is no better
    than the mean of the column. Without error bars it is how many entries are known.

    Parameters
    ----------
    model : fitted estimator, or a matrix with gaps
        What fills them; of a matrix alone the pattern is shown.
    X : container of shape (m, n), optional
        The matrix; by default that of the fit.
    names : sequence of str, optional
        Names of the columns; those of ``X`` or of the estimator unless given.
    least : int
        Known entries that a row or a column needs.
    title : str
        Written above; by default what was found.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[1.0, np.nan], [2.0, np.nan], [3.0, np.nan]])
    >>> figure = identifiability(X)
    >>> figure.get_suptitle()
    '50.0% missing; nothing known of 1 column, too little of 3 rows'
    """
    if is_model(model):
        entries = entries_asked(model, X)
        doubts = doubts_of(model, entries, X=X)
    else:
        entries, doubts = entries_of(model if X is None else X), None
    names = names if names is not None else names_in(X, model)
    pattern = pattern_of([entries], entries.shape)
    return draw_pattern(pattern, doubts, names=names, least=least, title=title)


def entries_asked(model: Any, X: Any) -> Any:
    """The entries of the matrix that is asked about."""
    if X is not None:
        return entries_of(X)
    kept = getattr(model, "training_", None)
    if kept is None:
        raise ValueError(
            "the fit kept none of its entries (it was streamed, or loaded from a "
            "file); give the matrix as X"
        )
    return kept


def draw_pattern(
    pattern: Pattern,
    doubts: Doubts | None,
    *,
    names: Sequence[object] | None = None,
    least: int = LEAST,
    title: str = "",
) -> Figure:
    """The figure of `identifiability` from its numbers.

    Parameters
    ----------
    pattern : Pattern
        Which entries are known.
    doubts : Doubts or None
        How uncertain the others are, where that is known.
    names : sequence of str, optional
        Names of the columns.
    least : int
        Known entries that a row or a column needs.
    title : str
        Written above; by default what was found.

    Examples
    --------
    >>> import numpy as np
    >>> from ncarl.observed import Observed
    >>> X = Observed.from_dense(np.array([[1.0, np.nan], [2.0, 3.0]]))
    >>> draw_pattern(pattern_of([X], (2, 2)), None, least=1).get_suptitle()
    '25.0% missing; something is known of every row and every column'
    """
    m, n = pattern.shape
    figure = Figure(figsize=(8.0, 6.4), layout="constrained")
    axes = figure.subplots(2, 2, width_ratios=(4, 1), height_ratios=(4, 1),
                           sharex="col", sharey="row")  # fmt: skip
    (main, right), (below, corner) = axes
    corner.set_axis_off()
    main.imshow(pattern.image, cmap=KNOWN, vmin=0.0, vmax=1.0, aspect="auto",
                interpolation="nearest",
                extent=(0.5, n + 0.5, m + 0.5, 0.5))  # fmt: skip
    marks = _mark(main, pattern, least)
    _draw_margins(right, below, pattern, doubts)
    main.set_ylabel("row")
    main.tick_params(labelbottom=False)
    shown = None if names is None else names_of(names, n)
    if shown is not None:
        name_ticks(below, shown, "x", first=1)
    else:
        below.set_xlabel("column")
    if marks:
        corner.legend(handles=marks, frameon=False, loc="center", fontsize=8.5)
    figure.suptitle(title or pattern_words(pattern, least), fontsize=11, color=INK)
    return figure


def pattern_words(pattern: Pattern, least: int = LEAST) -> str:
    """What is missing, and of what too little is known, in a line.

    Examples
    --------
    >>> import numpy as np
    >>> from ncarl.observed import Observed
    >>> X = Observed.from_dense(np.array([[1.0, np.nan], [2.0, 3.0]]))
    >>> pattern_words(pattern_of([X], (2, 2)))
    '25.0% missing; too little known of 1 row and 1 column'
    """
    m, n = pattern.shape
    words = f"{pattern.missing / max(m * n, 1):.1%} missing"
    counts = (pattern.row_counts, pattern.column_counts)
    nothing = _count_words([int((c == 0).sum()) for c in counts])
    little = _count_words([int(((c > 0) & (c < least)).sum()) for c in counts])
    if nothing and little:
        return f"{words}; nothing known of {nothing}, too little of {little}"
    if nothing or little:
        how = "nothing" if nothing else "too little"
        return f"{words}; {how} known of {nothing or little}"
    return f"{words}; something is known of every row and every column"


def _count_words(counts: Sequence[int]) -> str:
    """How many rows and columns, in words; nothing where there are none."""
    parts = [
        f"{count:,} {word}{'' if count == 1 else 's'}"
        for count, word in zip(counts, ("row", "column"), strict=True)
        if count
    ]
    return " and ".join(parts)


def _mark(ax: Any, pattern: Pattern, least: int) -> list[Line2D]:
    """Lines over rows and columns that too little is known of; what they mean."""
    legend = []
    kinds = ((0, 1, MISSED, "nothing known"),
             (1, least, GAP, f"fewer than {least} known"))  # fmt: skip
    for low, high, colour, words in kinds:
        found = False
        for counts, draw in ((pattern.row_counts, ax.axhline),
                             (pattern.column_counts, ax.axvline)):  # fmt: skip
            places = np.flatnonzero((counts >= low) & (counts < high))
            found |= len(places) > 0
            for place in places[:MOST_LINES]:
                draw(place + 1, color=colour, linewidth=1.4, alpha=0.75, zorder=2)
        if found:
            legend.append(Line2D([], [], color=colour, linewidth=2, label=words))
    return legend


def _draw_margins(
    right: Any, below: Any, pattern: Pattern, doubts: Doubts | None
) -> None:
    """How uncertain rows and columns are, or how much is known of them."""
    m, n = pattern.shape
    sure = doubts is not None and doubts.std is not None
    if doubts is not None and sure:
        rows = mean_by(doubts.rows, doubts.relative, m)
        columns = mean_by(doubts.columns, doubts.relative, n)
        words = "sd of filled,\nin spreads"
    else:
        rows, columns = (
            pattern.row_counts / max(n, 1),
            pattern.column_counts / max(m, 1),
        )
        words = "part known"
    size = 3.0 if max(m, n) <= 200 else 1.5
    down, across = _gathered(rows), _gathered(columns)
    right.plot(down[1], down[0], ".", color=HELD, markersize=size + 1.5)
    below.plot(*across, ".", color=HELD, markersize=size + 1.5)
    top = np.nanmax(np.concatenate([[1.0], rows, columns]))
    right.set_xlim(0.0, 1.08 * float(top))
    below.set_ylim(0.0, 1.08 * float(top))
    if sure:
        right.axvline(1.0, color=GREY, linestyle="--", linewidth=1)
        below.axhline(1.0, color=GREY, linestyle="--", linewidth=1)
    right.xaxis.tick_top()
    right.xaxis.set_label_position("top")
    right.tick_params(labeltop=True, labelbottom=False)
    right.set_xlabel(words, fontsize=9, color=SOFT)
    below.set_ylabel(words, fontsize=9, color=SOFT)
    light(right)
    light(below)
    right.spines["top"].set_visible(True)
    right.spines["top"].set_color(GREY)
    right.spines["bottom"].set_visible(False)


def _gathered(values: Array, most: int = 1000) -> tuple[Array, Array]:
    """Places and values; neighbours are averaged where they are too many to draw."""
    if len(values) <= most:
        return np.arange(1, len(values) + 1), values
    cell = np.arange(len(values)) * most // len(values)
    places = mean_by(cell, np.arange(1.0, len(values) + 1.0), most)
    return places, mean_by(cell, values, most)
