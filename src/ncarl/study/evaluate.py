"""How far filled values can be trusted: hide known entries, fill them, and look.

One method is looked at closely, entry by entry. A few others are tried on the same
draws, to say whether one of them would do better.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ncarl.core.types import Array
from ncarl.engines import available_cores
from ncarl.methods import make
from ncarl.observed import Observed
from ncarl.study.cells import DONE
from ncarl.study.compare import Comparison, carry_out, observed_of
from ncarl.study.compare_advice import recommend
from ncarl.study.compare_draws import draws_of, units_of
from ncarl.study.compare_fit import Draw, engine_of, mean_fit, usual
from ncarl.study.compare_lines import LEVEL, Fit, lines_of
from ncarl.study.compare_plan import Plan
from ncarl.study.evaluate_scores import LEVELS, Evaluation, Tried
from ncarl.study.measure import timed_fit

#: Methods that the one asked for is held against.
OTHERS = ("bayes", "soft-impute", "nuclear", "bias")
#: Called with a line of what has been done.
Progress = Callable[[str], object]


@dataclass(frozen=True)
class Asked:
    """What to evaluate.

    Attributes
    ----------
    plan : Plan
        The one method, and how entries are hidden.
    others : tuple of str
        Methods to hold it against; none for no comparison.
    names : sequence of str or None
        Names of the columns.
    """

    plan: Plan
    others: tuple[str, ...] = OTHERS
    names: Sequence[str] | None = None

    @property
    def method(self) -> str:
        """The method that is evaluated."""
        return str(self.plan.methods[0])

    @property
    def rivals(self) -> tuple[str, ...]:
        """The others, without the method itself."""
        return tuple(name for name in self.others if name != self.method)

    @property
    def fits(self) -> int:
        """How many fits there will be."""
        return self.plan.repeats * (1 + len(self.rivals))


def evaluate(
    X: Any,
    method: str = "bayes",
    hide: float = 0.1,
    repeats: int = 3,
    pattern: str = "alike",
    random_state: int = 0,
    engine: str = "auto",
    scale: Any = None,
    others: Iterable[str] = OTHERS,
    budget: float = 60.0,
    names: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """How well a method finds entries of a matrix that are hidden from it.

    Parameters
    ----------
    X : array, masked array, frame or sparse matrix of shape (m, n)
        Matrix, with gaps or without: NaN, masked, null, or not stored.
    method : str
        One of `ncarl.available_methods`.
    hide : float
        Share of the known entries to hide; no row or column loses its last one.
    repeats : int
        How often.
    pattern : {"alike", "random"}
        Hide entries as the gaps lie, in blocks where they do, or one by one.
    random_state : int
        Seed of what is hidden and of the methods.
    engine : {"auto", "threads", "torch"}
        Where the work is done.
    scale : {None, "columns"}, or mapping of names of methods to these
        Bring columns to one scale.
    others : iterable of str
        Methods to hold it against, each fit in a process of its own; none for no
        comparison.
    budget : float
        Seconds that a fit of these may take.
    names : sequence of str, optional
        Names of the columns; those of a frame unless given.
    progress : callable, optional
        Called with a line of text after every fit.

    Returns
    -------
    Evaluation
        Errors, intervals and columns, and a recommendation.

    Examples
    --------
    >>> import numpy as np
    >>> from ncarl.study.evaluate import evaluate
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((40, 1)) + 0.1 * rng.standard_normal((40, 5))
    >>> found = evaluate(X, method="bias", repeats=1, others=())
    >>> found.error_in_spreads[0] < 0.2 < found.error_in_spreads[1]
    True
    """
    plan = Plan([method], hide, repeats, pattern, random_state, engine, budget, scale,
                jobs=min(2, available_cores()))  # fmt: skip
    if names is None and hasattr(X, "columns"):
        names = [str(name) for name in X.columns]
    return carry_out_evaluation(
        Asked(plan, tuple(others), names), observed_of(X), progress
    )


def carry_out_evaluation(
    asked: Asked, observed: Observed, progress: Progress | None = None
) -> Evaluation:
    """What an evaluation of the observed entries of a matrix finds."""
    plan, heard = asked.plan, progress or (lambda line: None)
    spreads = units_of(observed)
    units = spreads if plan.by_column else np.ones(observed.shape[1])
    tried, fits = [], []
    for number, mask in enumerate(draws_of(plan, observed, units)):
        draw = Draw(observed.without(mask), observed.without(~mask), units)
        tried.append(try_draw(plan, draw))
        fits += [_fit(asked.method, number, draw, tried[-1])]
        fits += [mean_fit(draw, number, by_column=plan.by_column)]
        heard(f"{asked.method}, draw {number + 1}: {fits[-2].error:.4g}")
    hidden = tuple(len(part.truth) for part in tried)
    lines = lines_of(fits)
    advice = recommend(lines, by_column=plan.by_column)
    alone = Comparison(plan, observed.shape, observed.n_observed, hidden, lines, advice)
    found = _compared(asked, observed, alone, heard)
    gaps = observed.shape[0] - observed.column_counts
    return Evaluation(asked.method, tuple(tried), spreads, asked.names, found, gaps)


def try_draw(plan: Plan, draw: Draw) -> Tried:
    """What the method of a plan says of hidden entries."""
    method = str(plan.methods[0])
    params = usual(method, scale=plan.scale_of(method), seed=plan.random_state)
    engine = engine_of(plan.engine, available_cores())
    estimator = make(method, engine=engine, **params)
    seconds, _ = timed_fit(estimator, draw.kept.to_csr(), None)
    i, j = draw.places
    guess, std = np.asarray(estimator.predict(i, j), np.float64), None
    if not np.isfinite(guess).all():
        raise ValueError(f"{method} filled in values that are not finite numbers")
    ends: dict[float, tuple[Array, Array]] = {}
    if hasattr(estimator, "predict_interval") and estimator._noise_level() > 0.0:
        std = np.asarray(estimator.predict(i, j, return_std=True)[1], np.float64)
        ends = {
            level: estimator.predict_interval(i, j, level=level) for level in LEVELS
        }
    settled = getattr(estimator, "converged_", None)
    return Tried(
        i,
        j,
        draw.hidden.values,
        guess,
        _column_means(draw.kept)[j],
        std,
        ends,
        seconds,
        None if settled is None else bool(settled),
        estimator.engine_,
    )


def _column_means(kept: Observed) -> Array:
    """Mean of what is left of each column."""
    parts = kept.values / np.maximum(kept.column_counts, 1)[kept.indices]
    means: Array = np.bincount(kept.indices, parts, minlength=kept.shape[1])
    return means


def _fit(method: str, number: int, draw: Draw, tried: Tried) -> Fit:
    """A draw as a comparison counts it."""
    held = None
    if LEVEL in tried.ends:
        low, high = tried.ends[LEVEL]
        some = draw.scored()
        inside = (tried.truth >= low) & (tried.truth <= high)
        held = float(np.mean(inside[some]))
    return Fit(
        method,
        number,
        DONE,
        *draw.errors(tried.guess),
        coverage=held,
        seconds=tried.seconds,
        settled=tried.settled,
        engine=tried.engine,
    )


def _compared(
    asked: Asked, observed: Observed, alone: Comparison, heard: Progress
) -> Comparison:
    """The method among others on the same draws."""
    if not asked.rivals:
        return alone

    def show(fit: Fit) -> None:
        what = fit.status if fit.error is None else f"{fit.error:.4g}"
        heard(f"{fit.method}, draw {fit.draw + 1}: {what}")

    others = carry_out(replace(asked.plan, methods=asked.rivals), observed, show)
    own = [line for line in alone.lines if line.method == asked.method]
    fits = [fit for line in (*own, *others.lines) for fit in line.fits]
    lines = lines_of(fits)
    plan = replace(asked.plan, methods=(asked.method, *asked.rivals))
    advice = recommend(lines, by_column=asked.plan.by_column)
    return replace(others, plan=plan, lines=lines, recommendation=advice)
