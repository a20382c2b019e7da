"""How far filled values can be trusted: against the truth, where it is known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from scipy.stats import norm

from ncarl.core.types import Array
from ncarl.plots.learned import asked, entries_of, is_model, middles_of, spreads_of
from ncarl.plots.style import GAP, GREY, HELD, INK, MISSED, SOFT, light, plain, thinned

#: Levels at which the intervals of a fit are looked at.
LEVELS = np.arange(0.05, 0.96, 0.05)
#: Colours of curves.
CURVES = (HELD, GAP, "#3a9d8f", "#8e6bb0", INK)
#: More dots than this say nothing more.
MOST_DOTS = 3000


def error_bars(
    truth: Array, filled: Array, low: Array, high: Array, *, title: str, unit: str
) -> Figure:
    """Filled values against the truth, with intervals.

    Intervals that miss the truth have a colour of their own.

    Parameters
    ----------
    truth, filled, low, high : arrays of shape (entries,)
        True and filled values, and the ends of the intervals.
    title : str
        Written above.
    unit : str
        What values are counted in.

    Examples
    --------
    >>> import numpy as np
    >>> truth, filled = np.array([1.0, 2.0]), np.array([1.1, 2.5])
    >>> ends = filled - 0.2, filled + 0.2
    >>> figure = error_bars(truth, filled, *ends, title="two cells", unit="kg")
    >>> [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    ['interval holds the truth: 1', 'interval misses it: 1']
    """
    figure = Figure(figsize=(6.4, 6.0), layout="constrained")
    ax = figure.add_subplot()
    ends = [float(f(v)) for v in (truth, filled) for f in (np.min, np.max)]
    ax.axline((0, 0), slope=1, color=GREY, linewidth=1, linestyle="--", zorder=1)
    missed = (truth < low) | (truth > high)
    kinds = ((~missed, HELD, "interval holds the truth"),
             (missed, MISSED, "interval misses it"))  # fmt: skip
    for some, colour, label in kinds:
        ax.vlines(truth[some], low[some], high[some], color=colour, alpha=0.55,
                  linewidth=1.5, zorder=2)  # fmt: skip
        ax.plot(truth[some], filled[some], "o", color=colour, markersize=4.5,
                label=f"{label}: {some.sum()}", zorder=3)  # fmt: skip
    margin = 0.05 * (max(ends) - min(ends))
    ax.set_xlim(min(ends) - margin, max(ends) + margin)
    ax.set_xlabel(f"truth ({unit})")
    ax.set_ylabel(f"filled ({unit})")
    ax.set_title(title, fontsize=11)
    light(ax)
    ax.legend(frameon=False, loc="upper left")
    return figure


def reliability(
    levels: Any,
    coverage: Any = None,
    *,
    count: int | None = None,
    title: str = "",
) -> Figure:
    """What intervals hold against what they promise.

    Parameters
    ----------
    levels : fitted `BayesianNCARL`, or array of shape (levels,)
        Parts that intervals promise to hold, between 0 and 1. Of a fit its own
        held-out entries are shown, in normal intervals of its standard deviations:
        what its `predict_interval` then corrects for.
    coverage : array of shape (levels,), or mapping of str to such arrays
        Parts that they held, of one model or of several by name.
    count : int, optional
        Entries that this was counted on; draws a band in which chance alone may put
        it.
    title : str
        Written above.

    Examples
    --------
    >>> figure = reliability([0.5, 0.9], [0.52, 0.88], count=200)
    >>> figure.axes[0].get_xlabel()
    'what intervals promise'
    """
    if is_model(levels):
        levels, coverage, count = held_out_coverage(levels)
    promised = np.asarray(levels, dtype=np.float64)
    curves = coverage if isinstance(coverage, Mapping) else {"": coverage}
    figure = Figure(figsize=(4.8, 4.8), layout="constrained")
    ax = figure.add_subplot()
    ax.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle="--", zorder=1)
    if count:
        _draw_chance(ax, count)
    for place, (name, held) in enumerate(curves.items()):
        values = np.asarray(held, dtype=np.float64)
        if values.shape != promised.shape:
            raise ValueError(
                f"coverage must have one value for each of the {promised.size} levels, "
                f"got shape {values.shape}"
            )
        ax.plot(promised, values, "o-", color=CURVES[place % len(CURVES)], zorder=3,
                linewidth=1.4, markersize=5, label=plain(name, 40))  # fmt: skip
    ax.set_xlim(0.0, 1.0)
    ax.set_ylim(0.0, 1.0)
    ax.set_aspect("equal")
    ax.set_xlabel("what intervals promise")
    ax.set_ylabel("what they held")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(PercentFormatter(1.0))
    ax.set_title(title, fontsize=11, color=INK)
    light(ax)
    if isinstance(coverage, Mapping):
        ax.legend(frameon=False, loc="upper left")
    return figure


def _draw_chance(ax: Any, count: int) -> None:
    """Where shares counted on so many entries lie by chance, 19 times out of 20."""
    level = np.linspace(0.0, 1.0, 101)
    reach = 1.96 * np.sqrt(level * (1.0 - level) / count)
    ax.fill_between(level, level - reach, level + reach, color="#e9edf2", zorder=0,
                    linewidth=0)  # fmt: skip
    ax.annotate(f"band: chance, {count:,} entries", (0.97, 0.03), ha="right",
                xycoords="axes fraction", fontsize=8.5, color=SOFT)  # fmt: skip


def held_out_coverage(model: Any) -> tuple[Array, Array, int]:
    """Levels, what normal intervals of a fit hold of its held-out entries, how many."""
    scores = getattr(model, "blended_scores_", None)
    if scores is None or len(scores.ranked) == 0:
        raise ValueError(
            f"{type(model).__name__} has no held-out errors with standard deviations; "
            "fit BayesianNCARL with validation above 0, or give levels and coverage"
        )
    sizes = np.abs(scores.ranked)
    reach = norm.ppf(0.5 + LEVELS / 2.0)
    held = np.array([float(np.mean(sizes <= far)) for far in reach])
    return LEVELS, held, len(sizes)


def residuals(
    truth: Any,
    filled: Any,
    std: Any = None,
    *,
    unit: str = "",
    title: str = "",
) -> Figure:
    """Errors of filled values: against what was filled in, and how they are spread.

    Parameters
    ----------
    truth : array of shape (entries,), or a matrix
        True values; a matrix if ``filled`` is an estimator, whose entries that the
        fit did not see are looked at.
    filled : array of shape (entries,), or fitted estimator
        What was filled in.
    std : array of shape (entries,), optional
        Standard deviations given for it; errors are counted in them then, and held
        against a normal distribution.
    unit : str
        What values are counted in.
    title : str
        Written above.

    Examples
    --------
    >>> figure = residuals([1.0, 2.0, 3.0], [1.1, 1.9, 3.2], [0.1, 0.1, 0.2])
    >>> figure.axes[0].get_ylabel()
    'error, in standard deviations'
    """
    if is_model(filled):
        truth, filled, std = _unseen(truth, filled)
        unit = "spreads of its column from the mean"
    t, f = (np.asarray(v, dtype=np.float64).ravel() for v in (truth, filled))
    if t.shape != f.shape or t.size == 0:
        raise ValueError(
            f"truth and filled must be of one length and not empty, got {t.size} and "
            f"{f.size} entries"
        )
    errors, words = f - t, f"error{f' ({unit})' if unit else ''}"
    if std is not None:
        s = np.asarray(std, dtype=np.float64).ravel()
        some = s > 0.0
        f, errors = f[some], errors[some] / s[some]
        words = "error, in standard deviations"
    reach = _reach(errors)
    figure = Figure(figsize=(8.0, 4.0), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(2.2, 1.0))
    _draw_cloud(left, f, errors, reach, std is not None)
    _draw_spread(right, errors, reach, std is not None)
    left.set_xlabel(f"filled value{f' ({unit})' if unit else ''}")
    left.set_ylabel(words)
    figure.suptitle(title, fontsize=11, color=INK)
    return figure


def _unseen(truth: Any, model: Any) -> tuple[Array, Array, Array | None]:
    """Entries of a matrix that a fit did not see: truth, values, deviations."""
    whole, seen = entries_of(truth), getattr(model, "training_", None)
    if seen is None or seen.shape != whole.shape:
        raise ValueError(
            "the entries of the fit are not known, so unseen ones cannot be told; give "
            "truth and filled as arrays of the entries to look at"
        )
    n = whole.shape[1]
    new = ~np.isin(whole.rows * n + whole.indices, seen.rows * n + seen.indices)
    if not new.any():
        raise ValueError("truth has no entry that the fit did not see; hide some first")
    i, j = whole.rows[new], whole.indices[new].astype(np.int64)
    values, std = asked(model, i, j)
    # Columns of any unit are to stand on one axis.
    middle, spread = middles_of(seen)[j], spreads_of(seen)[j]
    some = spread > 0.0
    if not some.any():
        raise ValueError("no column of the fit varies, so there is no error to show")
    middle, spread = middle[some], spread[some]
    true, found = whole.values[new][some], values[some]
    return (
        (true - middle) / spread,
        (found - middle) / spread,
        None if std is None else std[some] / spread,
    )


def _reach(errors: Array) -> float:
    """How far the axis of errors goes: far enough for nearly all of them."""
    sizes = np.abs(errors)
    nearly = 1.3 * float(np.quantile(sizes, 0.99))
    return min(nearly, 1.1 * float(sizes.max())) or 1.0


def _draw_cloud(
    ax: Any, filled: Array, errors: Array, reach: float, scored: bool
) -> None:
    """Errors as dots, with lines between which 95% of them ought to lie.

    Those beyond the axis are triangles at its end.
    """
    order = np.random.default_rng(0).permutation(len(errors))
    some = order[thinned(len(order), MOST_DOTS)]
    far = np.abs(errors) > 1.96 if scored else np.zeros(len(errors), dtype=bool)
    alpha = 0.8 if len(some) < 300 else 0.35
    for kind, colour in ((some[~far[some]], HELD), (some[far[some]], MISSED)):
        ax.plot(filled[kind], errors[kind], "o", color=colour, alpha=alpha,
                markersize=3.5, markeredgewidth=0)  # fmt: skip
    for beyond, mark, end in (
        (errors > reach, "^", reach),
        (errors < -reach, "v", -reach),
    ):
        ax.plot(filled[beyond], np.full(beyond.sum(), 0.97 * end), mark, color=MISSED,
                markersize=5, markeredgewidth=0)  # fmt: skip
    ax.set_ylim(-reach, reach)
    ax.axhline(0.0, color=GREY, linewidth=1)
    if scored:
        for line in (-1.96, 1.96):
            ax.axhline(line, color=GREY, linewidth=1, linestyle="--")
    light(ax)


def _draw_spread(ax: Any, errors: Array, reach: float, scored: bool) -> None:
    """A histogram on its side, and what it ought to look like."""
    bins = min(60, max(8, round(2 * len(errors) ** (1 / 3))))
    ax.hist(errors, bins=bins, range=(-reach, reach), orientation="horizontal",
            density=True, color="#b9cbe0")  # fmt: skip
    if scored:
        grid = np.linspace(-reach, reach, 200)
        ax.plot(norm.pdf(grid), grid, color=INK, linewidth=1.2, label="normal")
        ax.legend(frameon=False, fontsize=8.5)
    ax.set_xticks([])
    ax.set_xlabel("how often")
    light(ax)
