"""Evaluate one method on a matrix: errors and interval coverage on held-out entries.

`evaluate` is the Python form of ``ncarl evaluate``. The method is scored entry by
entry and column by column; a few baselines are fitted on the same draws.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from ncarl import __version__
from ncarl.containers import as_observations
from ncarl.core.types import Array, cached_property
from ncarl.engines.cores import available_cores
from ncarl.evaluation.comparison import (
    INTERVAL_LEVEL,
    MEAN_BASELINE,
    Comparison,
    ComparisonPlan,
    FitOutcome,
    HoldoutSplit,
    SplitPredictions,
    column_units,
    default_parameters,
    draw_holdout_masks,
    fit_split,
    make_engine,
    run_comparison,
    score_mean_baseline,
    score_split,
    summarize_comparison,
)
from ncarl.io.files import jsonable
from ncarl.metrics import coverage, interval_width, mae, relative_rmse, rmse
from ncarl.observations import Observations
from ncarl.registry import DEFAULT_COMPARISON_METHODS, TABLE_IMPUTERS

#: Nominal coverages of the prediction intervals.
INTERVAL_LEVELS = (0.5, 0.8, 0.9, 0.95)
#: Called with a line of text after every fit.
MessageCallback = Callable[[str], object]


@dataclass(frozen=True)
class LevelScore:
    """Nominal and actual coverage of the intervals of one level.

    Attributes
    ----------
    level, coverage : float
        Nominal coverage, and the fraction of held-out entries inside their intervals.
    width, standardized_width : float, and float or None
        Mean width in units of the data, and in standard deviations of the columns.
    """

    level: float
    coverage: float
    width: float
    standardized_width: float | None


@dataclass(frozen=True)
class ColumnScore:
    """Scores of one column over all draws.

    Attributes
    ----------
    column, name : int and str
        Index of the column, and its name (its number from 1 if it has none).
    hidden : int
        Number of held-out entries, summed over the draws.
    error, standardized_error : float, and float or None
        RMSE, and the same in standard deviations of the column (None if constant).
    column_mean_error : float or None
        Standardized error of the baseline, the mean of the column.
    explained : float or None
        Fraction of the squared error of that baseline that the method removes (R²);
        below 0 the baseline is better.
    explained_std : float or None
        Standard error of that; None for one entry or a constant column.
    coverage : float or None
        Actual coverage of the 90% intervals.
    """

    column: int
    name: str
    hidden: int
    error: float
    standardized_error: float | None
    column_mean_error: float | None
    explained: float | None
    explained_std: float | None
    coverage: float | None

    @property
    def is_worse(self) -> bool:
        """Whether the baseline is better by more than one standard error."""
        if self.explained is None or self.explained_std is None:
            return False
        return self.explained < -self.explained_std


@dataclass(frozen=True)
class Evaluation:
    """Result of `evaluate`: how well a method predicted held-out entries.

    Attributes
    ----------
    method : str
        Name of the method.
    split_predictions : tuple of SplitPredictions
        Predictions of each draw.
    column_stds, column_names : array of shape (n,), and sequence of str or None
        Standard deviations (0 for a constant column) and names of the columns.
    comparison : Comparison
        The method and the baselines on the same draws, and a recommendation.
    n_missing : array of int, shape (n,), or None
        Number of missing entries of each column of the matrix.
    """

    method: str
    split_predictions: tuple[SplitPredictions, ...]
    column_stds: Array
    column_names: Sequence[str] | None
    comparison: Comparison
    n_missing: Array | None = None

    @cached_property
    def pooled_predictions(self) -> SplitPredictions:
        """Predictions of all draws, concatenated."""
        parts = self.split_predictions
        arrays: dict[str, Any] = {
            name: np.concatenate([getattr(part, name) for part in parts])
            for name in ("rows", "columns", "truth", "guess", "mean")
        }
        stds = [part.std for part in parts if part.std is not None]
        intervals = {
            level: tuple(np.hstack([part.intervals[level] for part in parts]))
            for level in parts[0].intervals
        }
        std = np.concatenate(stds) if len(stds) == len(parts) else None
        seconds = sum(part.seconds for part in parts) / len(parts)
        return SplitPredictions(**arrays, std=std, intervals=intervals, seconds=seconds)

    @property
    def error(self) -> tuple[float, float]:
        """Root mean square error of the method and of the column means."""
        return self._score_method_and_mean(lambda part, guess: rmse(part.truth, guess))

    @property
    def absolute_error(self) -> tuple[float, float]:
        """Mean absolute error of the method and of the column means."""
        return self._score_method_and_mean(lambda part, guess: mae(part.truth, guess))

    @property
    def relative_error(self) -> tuple[float, float]:
        """Relative error as in the paper, of the method and of the column means."""
        return self._score_method_and_mean(
            lambda part, guess: relative_rmse(part.truth, guess)
        )

    @property
    def standardized_error(self) -> tuple[float, float] | None:
        """RMSE in standard deviations of the columns, of the method and of their means.

        None if all columns are constant.
        """
        if not (self.column_stds[self.pooled_predictions.columns] > 0.0).any():
            return None
        return self._score_method_and_mean(self._standardized_rmse)

    @property
    def standardized_error_std(self) -> float | None:
        """Standard deviation of `standardized_error` over the draws; None for one."""
        if len(self.split_predictions) < 2 or self.standardized_error is None:
            return None
        return statistics.stdev(
            self._standardized_rmse(p, p.guess) for p in self.split_predictions
        )

    @property
    def explained_fraction(self) -> float | None:
        """R² relative to the column means, computed on standardized entries."""
        both = self.standardized_error
        if both is None or both[1] == 0.0:
            return None
        return 1.0 - (both[0] / both[1]) ** 2

    @property
    def error_on_missing(self) -> float | None:
        """`standardized_error` with columns weighted by their missing entries, if any.

        Hidden entries are less concentrated in the columns with most missing entries.
        """
        if self.n_missing is None:
            return None
        scored = [
            (float(self.n_missing[one.column]), one.standardized_error)
            for one in self.columns
            if one.standardized_error is not None
        ]
        total = sum(count for count, _ in scored)
        if total == 0.0:
            return None
        return float(np.sqrt(sum(count / total * error**2 for count, error in scored)))

    @cached_property
    def levels(self) -> tuple[LevelScore, ...]:
        """Scores of the intervals by level; empty for a method without error bars."""
        pooled = self.pooled_predictions
        unit = self.column_stds[pooled.columns]
        varies = unit > 0.0
        # Any interval covers a constant column, which counts only if all are constant.
        some = varies if varies.any() else np.ones_like(varies)
        scores = []
        for level, bounds in pooled.intervals.items():
            low, high = (bound[some] for bound in bounds)
            actual = coverage(pooled.truth[some], low, high)
            wide = float(np.mean((high - low) / unit[some])) if varies.any() else None
            scores.append(LevelScore(level, actual, interval_width(low, high), wide))
        return tuple(scores)

    @cached_property
    def columns(self) -> tuple[ColumnScore, ...]:
        """Scores of the columns with held-out entries, the largest errors first."""
        hidden = self.pooled_predictions.columns
        order = np.argsort(hidden, kind="stable")
        indices, firsts = np.unique(hidden[order], return_index=True)
        scores = list(map(self._column, indices.tolist(), np.split(order, firsts[1:])))
        scores.sort(key=lambda one: (-(one.standardized_error or 0.0), one.column))
        return tuple(scores)

    def _column(self, j: int, some: Array) -> ColumnScore:
        pooled, std = self.pooled_predictions, float(self.column_stds[j])
        truth = pooled.truth[some]
        error = rmse(truth, pooled.guess[some])
        baseline = rmse(truth, pooled.mean[some])
        actual = None
        if INTERVAL_LEVEL in pooled.intervals:
            low, high = pooled.intervals[INTERVAL_LEVEL]
            actual = coverage(truth, low[some], high[some])
        explained = explained_std = None
        if std > 0.0 and baseline > 0.0:
            explained = 1.0 - (error / baseline) ** 2
            if len(some) > 1:
                pair = (pooled.guess[some], pooled.mean[some])
                own, mean = ((x / baseline - truth / baseline) ** 2 for x in pair)
                explained_std = float(np.std(mean - own, ddof=1) / len(some) ** 0.5)
        return ColumnScore(
            j,
            self.column_names[j] if self.column_names is not None else str(j + 1),
            len(some),
            error,
            error / std if std > 0.0 else None,
            baseline / std if std > 0.0 else None,
            explained,
            explained_std,
            actual,
        )

    def _standardized_rmse(self, part: SplitPredictions, guess: Array) -> float:
        """RMSE in standard deviations of the columns; constant columns do not count."""
        unit = self.column_stds[part.columns]
        some = unit > 0.0
        if not some.any():
            return 0.0
        return rmse(part.truth[some] / unit[some], guess[some] / unit[some])

    def _score_method_and_mean(
        self, score: Callable[[SplitPredictions, Array], float]
    ) -> tuple[float, float]:
        """A score of the method and of the column means, averaged over the draws."""
        count = len(self.split_predictions)
        # Divide before adding up, so that the sum of large floats does not overflow.
        own = sum(score(part, part.guess) / count for part in self.split_predictions)
        mean = sum(score(part, part.mean) / count for part in self.split_predictions)
        return own, mean

    def to_dict(self) -> dict[str, Any]:
        """The evaluation as JSON values."""
        both = {
            "rmse": self.error,
            "mae": self.absolute_error,
            "relative_error": self.relative_error,
            "standardized_rmse": self.standardized_error or (None, None),
        }
        figures = {k: {"method": a, "column_means": b} for k, (a, b) in both.items()}
        return {
            "ncarl": __version__,
            "method": self.method,
            "hidden": [len(part.truth) for part in self.split_predictions],
            "errors": jsonable(figures),
            "standardized_rmse_std": self.standardized_error_std,
            "explained": self.explained_fraction,
            "standardized_rmse_on_missing": self.error_on_missing,
            "intervals": [jsonable(asdict(one)) for one in self.levels],
            "seconds": self.pooled_predictions.seconds,
            "columns": [jsonable(asdict(one)) for one in self.columns],
            "comparison": self.comparison.to_dict(),
        }


def evaluate(
    X: Any,
    method: str = "bayes",
    hide: float = 0.1,
    repeats: int = 3,
    pattern: str = "missing",
    random_state: int = 0,
    engine: str = "auto",
    scale: Any = None,
    others: str | Iterable[str] = "auto",
    budget: float = 60.0,
    names: Sequence[str] | None = None,
    progress: MessageCallback | None = None,
) -> Evaluation:
    """Evaluate how well a method predicts entries that are hidden from it.

    Parameters
    ----------
    X : array, masked array, frame or sparse matrix of shape (m, n)
        Matrix; missing entries are NaN, masked, null, or not stored.
    method : str
        One of the methods of `compare`.
    hide, repeats, pattern, random_state, engine, scale
        How entries are hidden, and methods are fitted; see `compare`.
    others : iterable of str, or "auto"
        Methods to compare it with, each fit in a process of its own; empty for no
        comparison. "auto" is a selection as in `compare`, without the slow "ncarl-cv".
    budget : float
        Seconds that a fit of these may take.
    names : sequence of str, optional
        Names of the columns; those of a frame unless given.
    progress : callable, optional
        Called with a line of text after every fit.

    Returns
    -------
    Evaluation
        Errors, interval coverage, scores of columns, and a recommendation.

    Examples
    --------
    >>> import numpy as np
    >>> from ncarl.evaluation import evaluate
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((40, 1)) + 0.1 * rng.standard_normal((40, 5))
    >>> found = evaluate(X, method="bias", repeats=1, others=())
    >>> own, column_mean = found.standardized_error
    >>> own < 0.2 < column_mean
    True
    """
    jobs = min(2, available_cores())
    plan = ComparisonPlan(
        [method], hide, repeats, pattern, random_state, engine, budget, scale, jobs
    )
    if names is None and hasattr(X, "columns"):
        names = [str(name) for name in X.columns]
    observed = as_observations(X)
    if others == "auto":
        plan, others = with_other_methods(plan, observed)
    else:
        others = [name for name in others if name != plan.methods[0]]
    return run_evaluation(plan, observed, others, names, progress)


def with_other_methods(
    plan: ComparisonPlan, observed: Observations
) -> tuple[ComparisonPlan, list[str]]:
    """The plan of an evaluation, and methods to compare its method with by default."""
    auto = replace(plan, methods="auto", scale=None).with_methods(observed)
    others = [*DEFAULT_COMPARISON_METHODS]
    others += [name for name in auto.methods if name in TABLE_IMPUTERS]
    left_out = {k: why for k, why in auto.left_out.items() if k != plan.methods[0]}
    plan = replace(plan, left_out=left_out)
    return plan, [name for name in others if name != plan.methods[0]]


def run_evaluation(
    plan: ComparisonPlan,
    observed: Observations,
    others: Iterable[str] = (),
    names: Sequence[str] | None = None,
    progress: MessageCallback | None = None,
) -> Evaluation:
    """Evaluate the method of a validated plan, and compare it with ``others``."""
    plan = plan.with_methods(observed)
    (method,), others = plan.methods, tuple(others)
    scale = plan.scale_for(method)
    params = default_parameters(method, scale=scale, seed=plan.random_state)

    def show(fit: FitOutcome) -> None:
        if progress is not None:
            progress(fit.progress_text())

    units = column_units(plan, observed)
    predictions, fits = [], []
    for draw, mask in enumerate(draw_holdout_masks(plan, observed, units)):
        split = HoldoutSplit.from_mask(observed, mask, units)
        engine = make_engine(plan.engine, available_cores())
        found, _ = fit_split(split, method, params, engine, levels=INTERVAL_LEVELS)
        predictions.append(found)
        fits.append(score_split(method, draw, split, found))
        show(fits[-1])
        fits.append(score_mean_baseline(split, draw, by_column=plan.by_column))
    if others:
        comparison_plan = replace(plan, methods=others)
        for line in run_comparison(comparison_plan, observed, show).summaries:
            if line.method != MEAN_BASELINE:
                fits += line.fits
    whole = replace(plan, methods=(method, *others))
    n_hidden = [len(part.truth) for part in predictions]
    comparison = summarize_comparison(whole, observed, n_hidden, fits)
    n_missing = observed.shape[0] - observed.column_counts
    stds = observed.column_stds()
    return Evaluation(method, tuple(predictions), stds, names, comparison, n_missing)
