"""Evaluate one method on a matrix: errors and interval coverage on hidden entries.

`evaluate` is the Python form of ``ncarl evaluate``. The method is scored entry by
entry and column by column; a few baselines are fitted on the same draws.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ncarl import __version__
from ncarl.core.types import Array
from ncarl.engines.base import available_cores
from ncarl.evaluation.comparison import (
    INTERVAL_LEVEL,
    Comparison,
    ComparisonPlan,
    FitOutcome,
    HoldoutSplit,
    as_observations,
    column_stds,
    default_parameters,
    draw_holdout_masks,
    make_engine,
    recommend_method,
    run_comparison,
    score_mean_baseline,
    summarize_fits,
)
from ncarl.evaluation.measure import DONE, timed_fit
from ncarl.io.files import jsonable
from ncarl.metrics import coverage, interval_width, mae, relative_rmse, rmse
from ncarl.observations import Observations
from ncarl.registry import make

#: Nominal coverages of the prediction intervals.
INTERVAL_LEVELS = (0.5, 0.8, 0.9, 0.95)
#: Baselines that a method is compared with by default.
DEFAULT_COMPARISON_METHODS = ("bayes", "soft-impute", "nuclear", "bias")
#: Called with a line of text after every fit.
MessageCallback = Callable[[str], object]


@dataclass(frozen=True)
class SplitPredictions:
    """Predictions of a method for the hidden entries of one draw.

    Attributes
    ----------
    rows, columns : arrays of int, shape (entries,)
        Positions of the hidden entries.
    truth, guess, mean : arrays of shape (entries,)
        True values, predictions, and means of the training entries of the column.
    std : array of shape (entries,), or None
        Standard deviations of the predictions; None for a method without error bars.
    intervals : mapping of float to pair of arrays
        Lower and upper bounds of the prediction intervals, by nominal coverage.
    seconds : float
        Time of the fit.
    converged : bool or None
        Whether the fit converged; None if that is unknown.
    engine : str
        Description of the engine.
    """

    rows: Array
    columns: Array
    truth: Array
    guess: Array
    mean: Array
    std: Array | None
    intervals: dict[float, tuple[Array, Array]]
    seconds: float
    converged: bool | None = None
    engine: str = ""


@dataclass(frozen=True)
class LevelScore:
    """Nominal and actual coverage of the intervals of one level.

    Attributes
    ----------
    level : float
        Nominal coverage.
    coverage : float
        Actual coverage: the fraction of the hidden entries inside their intervals.
    width : float
        Mean width, in units of the data.
    standardized_width : float or None
        Mean width, in standard deviations of the columns.
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
    column : int
        Index of the column.
    name : str
        Its name, or its number from 1 if it has none.
    hidden : int
        Number of hidden entries, summed over the draws.
    error : float
        Root mean square error.
    standardized_error : float or None
        The same in standard deviations of the column; None for a constant column.
    column_mean_error : float or None
        Standardized error of the baseline, the mean of the column.
    explained : float or None
        Fraction of the squared error of that baseline that the method removes (R²);
        below 0 the baseline is better.
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
    coverage: float | None


@dataclass(frozen=True)
class Evaluation:
    """Result of `evaluate`: how well a method predicted hidden entries.

    Attributes
    ----------
    method : str
        Name of the method.
    split_predictions : tuple of SplitPredictions
        Predictions of each draw.
    column_stds : array of shape (n,)
        Standard deviation of each column; 0 for a constant column.
    column_names : sequence of str or None
        Names of the columns.
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
        intervals = {
            level: (
                np.concatenate([part.intervals[level][0] for part in parts]),
                np.concatenate([part.intervals[level][1] for part in parts]),
            )
            for level in parts[0].intervals
        }
        stds = [part.std for part in parts if part.std is not None]

        def concatenate(name: str) -> Array:
            return np.concatenate([getattr(part, name) for part in parts])

        return SplitPredictions(
            concatenate("rows"),
            concatenate("columns"),
            concatenate("truth"),
            concatenate("guess"),
            concatenate("mean"),
            np.concatenate(stds) if len(stds) == len(parts) else None,
            intervals,
            sum(part.seconds for part in parts) / len(parts),
        )

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
        if not any(
            (self.column_stds[part.columns] > 0.0).any()
            for part in self.split_predictions
        ):
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
        """`standardized_error` with columns weighted by their missing entries.

        Hidden entries are less concentrated in the columns with most missing entries.
        None if nothing is missing, or every column with missing entries is constant.
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
        """Scores of the intervals by level; empty for a method without error bars.

        Constant columns count only if all columns are constant: any interval covers
        them.
        """
        pooled = self.pooled_predictions
        unit = self.column_stds[pooled.columns]
        varies = unit > 0.0
        some = varies if varies.any() else np.ones_like(varies)
        scores = []
        for level, bounds in pooled.intervals.items():
            low, high = (bound[some] for bound in bounds)
            scores.append(
                LevelScore(
                    level,
                    coverage(pooled.truth[some], low, high),
                    interval_width(low, high),
                    float(np.mean((high - low) / unit[some])) if varies.any() else None,
                )
            )
        return tuple(scores)

    @cached_property
    def columns(self) -> tuple[ColumnScore, ...]:
        """Scores of the columns with hidden entries, the largest errors first."""
        hidden = self.pooled_predictions.columns
        order = np.argsort(hidden, kind="stable")
        indices, firsts = np.unique(hidden[order], return_index=True)
        parts = np.split(order, firsts[1:])
        scores = [
            self._column(int(j), some) for j, some in zip(indices, parts, strict=True)
        ]
        return tuple(sorted(scores, key=_worst_first_key))

    def _column(self, j: int, some: Array) -> ColumnScore:
        pooled, std = self.pooled_predictions, float(self.column_stds[j])
        truth = pooled.truth[some]
        error = rmse(truth, pooled.guess[some])
        baseline = rmse(truth, pooled.mean[some])
        actual = None
        if INTERVAL_LEVEL in pooled.intervals:
            low, high = pooled.intervals[INTERVAL_LEVEL]
            actual = coverage(truth, low[some], high[some])
        return ColumnScore(
            j,
            self.column_names[j] if self.column_names is not None else str(j + 1),
            len(some),
            error,
            error / std if std > 0.0 else None,
            baseline / std if std > 0.0 else None,
            1.0 - (error / baseline) ** 2 if std > 0.0 and baseline > 0.0 else None,
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
        figures = {
            name: dict(zip(("method", "column_means"), both, strict=True))
            for name, both in (
                ("rmse", self.error),
                ("mae", self.absolute_error),
                ("relative_error", self.relative_error),
                ("standardized_rmse", self.standardized_error or (None, None)),
            )
        }
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


def _worst_first_key(score: ColumnScore) -> tuple[float, int]:
    error = score.standardized_error
    return (0.0 if error is None else -error), score.column


def evaluate(
    X: Any,
    method: str = "bayes",
    hide: float = 0.1,
    repeats: int = 3,
    pattern: str = "alike",
    random_state: int = 0,
    engine: str = "auto",
    scale: Any = None,
    others: Iterable[str] = DEFAULT_COMPARISON_METHODS,
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
        One of `ncarl.available_methods`.
    hide : float
        Fraction of the observed entries to hide; no row or column loses its last one.
    repeats : int
        Number of draws.
    pattern : {"alike", "random"}
        Hide entries in the pattern of the missing ones (in blocks if these are), or at
        random.
    random_state : int
        Seed of the draws and of the methods.
    engine : {"auto", "threads", "torch"}
        Engine of the fits.
    scale : {None, "columns"}, or mapping of names of methods to these
        Divide columns by their standard deviations.
    others : iterable of str
        Methods to compare it with, each fit in a process of its own; empty for no
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
    plan = ComparisonPlan(
        [method],
        hide,
        repeats,
        pattern,
        random_state,
        engine,
        budget,
        scale,
        jobs=min(2, available_cores()),
    )
    if names is None and hasattr(X, "columns"):
        names = [str(name) for name in X.columns]
    return run_evaluation(
        EvaluationRequest(plan, tuple(others), names), as_observations(X), progress
    )


@dataclass(frozen=True)
class EvaluationRequest:
    """Validated parameters of `evaluate`.

    Attributes
    ----------
    plan : ComparisonPlan
        Its first method is evaluated; the other fields say how entries are hidden.
    comparison_methods : tuple of str
        Methods to compare it with; empty for no comparison.
    column_names : sequence of str or None
        Names of the columns.
    """

    plan: ComparisonPlan
    comparison_methods: tuple[str, ...] = DEFAULT_COMPARISON_METHODS
    column_names: Sequence[str] | None = None

    @property
    def method(self) -> str:
        """The method that is evaluated."""
        return str(self.plan.methods[0])

    @property
    def baselines(self) -> tuple[str, ...]:
        """The methods to compare with, without the method itself."""
        return tuple(name for name in self.comparison_methods if name != self.method)

    @property
    def n_fits(self) -> int:
        """Total number of fits."""
        return self.plan.repeats * (1 + len(self.baselines))


def run_evaluation(
    request: EvaluationRequest,
    observed: Observations,
    progress: MessageCallback | None = None,
) -> Evaluation:
    """Carry out a validated request on the observed entries of a matrix."""
    plan, callback = request.plan, progress or (lambda line: None)
    stds = column_stds(observed)
    units = stds if plan.by_column else np.ones(observed.shape[1])
    predictions, fits = [], []
    for number, mask in enumerate(draw_holdout_masks(plan, observed, units)):
        split = HoldoutSplit(
            observed.drop_entries(mask), observed.drop_entries(~mask), units
        )
        predictions.append(evaluate_split(plan, split))
        fits += [_make_fit_outcome(request.method, number, split, predictions[-1])]
        fits += [score_mean_baseline(split, number, by_column=plan.by_column)]
        callback(f"{request.method}, draw {number + 1}: {fits[-2].error:.4g}")
    hidden = tuple(len(part.truth) for part in predictions)
    lines = summarize_fits(fits)
    advice = recommend_method(lines, by_column=plan.by_column)
    alone = Comparison(plan, observed.shape, observed.n_observed, hidden, lines, advice)
    return Evaluation(
        request.method,
        tuple(predictions),
        stds,
        request.column_names,
        comparison=_compare_with_baselines(request, observed, alone, callback),
        n_missing=observed.shape[0] - observed.column_counts,
    )


def evaluate_split(plan: ComparisonPlan, split: HoldoutSplit) -> SplitPredictions:
    """Fit the method of a plan to one split, and predict its hidden entries."""
    method = str(plan.methods[0])
    params = default_parameters(
        method, scale=plan.scale_for(method), seed=plan.random_state
    )
    engine = make_engine(plan.engine, available_cores())
    estimator = make(method, engine=engine, **params)
    seconds, _ = timed_fit(estimator, split.kept.to_csr(), None)
    i, j = split.hidden_indices
    guess, std = np.asarray(estimator.predict(i, j), np.float64), None
    if not np.isfinite(guess).all():
        raise ValueError(f"{method} filled in values that are not finite numbers")
    intervals: dict[float, tuple[Array, Array]] = {}
    if hasattr(estimator, "predict_interval") and estimator._noise_level() > 0.0:
        std = np.asarray(estimator.predict(i, j, return_std=True)[1], np.float64)
        intervals = {
            level: estimator.predict_interval(i, j, level=level)
            for level in INTERVAL_LEVELS
        }
    converged = getattr(estimator, "converged_", None)
    return SplitPredictions(
        i,
        j,
        split.hidden.values,
        guess,
        _column_means(split.kept)[j],
        std,
        intervals,
        seconds,
        None if converged is None else bool(converged),
        estimator.engine_,
    )


def _column_means(kept: Observations) -> Array:
    parts = kept.values / np.maximum(kept.column_counts, 1)[kept.indices]
    means: Array = np.bincount(kept.indices, parts, minlength=kept.shape[1])
    return means


def _make_fit_outcome(
    method: str, draw_index: int, split: HoldoutSplit, predictions: SplitPredictions
) -> FitOutcome:
    """The scores of one draw as a comparison counts them."""
    actual = None
    if INTERVAL_LEVEL in predictions.intervals:
        low, high = predictions.intervals[INTERVAL_LEVEL]
        some = split.scored_mask()
        inside = (predictions.truth >= low) & (predictions.truth <= high)
        actual = float(np.mean(inside[some]))
    return FitOutcome(
        method,
        draw_index,
        DONE,
        *split.errors(predictions.guess),
        coverage=actual,
        seconds=predictions.seconds,
        converged=predictions.converged,
        engine=predictions.engine,
    )


def _compare_with_baselines(
    request: EvaluationRequest,
    observed: Observations,
    own_comparison: Comparison,
    progress: MessageCallback,
) -> Comparison:
    """The method among the baselines on the same draws."""
    if not request.baselines:
        return own_comparison

    def show(fit: FitOutcome) -> None:
        what = fit.status if fit.error is None else f"{fit.error:.4g}"
        progress(f"{fit.method}, draw {fit.draw + 1}: {what}")

    others = run_comparison(
        replace(request.plan, methods=request.baselines), observed, show
    )
    own = [line for line in own_comparison.summaries if line.method == request.method]
    fits = [fit for line in (*own, *others.summaries) for fit in line.fits]
    lines = summarize_fits(fits)
    plan = replace(request.plan, methods=(request.method, *request.baselines))
    advice = recommend_method(lines, by_column=request.plan.by_column)
    return replace(others, plan=plan, summaries=lines, recommendation=advice)
