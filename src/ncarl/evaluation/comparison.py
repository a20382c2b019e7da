"""Compare completion methods on one matrix by hiding some of its observed entries.

`compare` is the Python form of ``ncarl compare``. Every fit runs in a process of its
own: its memory is measured separately, and a fit that crashes or does not end does not
affect the others.
"""

from __future__ import annotations

import contextlib
import math
import statistics
import tempfile
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from ncarl import __version__
from ncarl.containers import as_observations
from ncarl.core.types import Array
from ncarl.engines import ENGINE_NAMES, pick_engine
from ncarl.engines.base import torch_installed
from ncarl.engines.cores import available_cores
from ncarl.engines.threads import Threads
from ncarl.evaluation import measure
from ncarl.evaluation.imputers import ImputerAdapter, select_methods
from ncarl.evaluation.measure import DONE, FAILED, OVER_BUDGET
from ncarl.evaluation.pool import PoolJob, WorkerGroup, WorkerPool
from ncarl.holdout import missing_pattern_split, random_split
from ncarl.io.files import jsonable, write_npz
from ncarl.metrics import MAX_FLOAT, coverage, relative_rmse, rmse
from ncarl.observations import Observations
from ncarl.registry import (
    INTERVAL_METHODS,
    SELF_CENTERING_METHODS,
    TABLE_IMPUTERS,
    available_methods,
    make,
    parameter_names,
)
from ncarl.text import MAX_LISTED, did_you_mean, join_names
from ncarl.validation import check_choice, check_fraction, check_integer, check_number

#: Nominal coverage of the prediction intervals.
INTERVAL_LEVEL = 0.9
#: Baseline that is always shown; not a method of the registry.
MEAN_BASELINE = "mean"
#: Minimum number of scored held-out entries in a draw.
MIN_HIDDEN = 10
#: Groups of rows from which the standard error of a single draw is computed.
MAX_ROW_GROUPS = 1000
#: A smaller ratio of times is not mentioned.
MIN_SPEEDUP = 1.5
#: Function that the worker processes call, as ``module:name``.
FIT_FUNCTION = "ncarl.evaluation.comparison:fit_one"
#: A process is killed after its budget times this, and seconds to start and compile.
GRACE_FACTOR, STARTUP_SECONDS = 1.1, 30.0


@dataclass(frozen=True)
class SplitPredictions:
    """Predictions of a method for the held-out entries of one draw.

    Attributes
    ----------
    rows, columns : arrays of int, shape (entries,)
        Positions of the held-out entries.
    truth, guess, mean : arrays of shape (entries,)
        True values, predictions, and means of the training entries of the column.
    std : array of shape (entries,), or None
        Standard deviations of the predictions; None for a method without error bars.
    intervals : mapping of float to pair of arrays
        Lower and upper bounds of the prediction intervals, by nominal coverage.
    seconds, converged, engine : float, bool or None, and str
        Time of the fit, whether it converged (None if unknown), and its engine.
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
class FitOutcome:
    """Result of one method on one draw of held-out entries.

    Attributes
    ----------
    method, draw : str and int
        Name of the method, and number of the draw from 0.
    status : {"done", "over budget", "failed"}
        Errors of a method over budget, if any, are those of its last step.
    error, relative_error : float or None
        RMSE on the held-out entries in `Comparison.error_unit`, and ``||truth -
        prediction|| / ||truth||`` over them, the metric of the paper.
    coverage : float or None
        Fraction of the held-out entries inside their 90% intervals, for methods that
        have intervals.
    seconds, memory_gb : float or None
        Time of the fit alone, and peak memory of its process, Python included.
    converged, engine, message : bool or None, str, and str
        Whether it converged (None if unknown), its engine, and its error message.
    group_sizes, group_errors : sequences of int and of float
        Number of scored held-out entries and RMSE of groups of rows, or of single rows
        if there are few.
    """

    method: str
    draw: int
    status: str = DONE
    error: float | None = None
    relative_error: float | None = None
    coverage: float | None = None
    seconds: float | None = None
    memory_gb: float | None = None
    converged: bool | None = None
    engine: str = ""
    message: str = ""
    group_sizes: Sequence[int] = field(default=(), repr=False)
    group_errors: Sequence[float] = field(default=(), repr=False)

    def progress_text(self) -> str:
        """The fit and its error, or its status, for a progress bar."""
        result = self.status if self.error is None else f"{self.error:.4g}"
        return f"{self.method}, split {self.draw + 1}: {result}"


FitCallback = Callable[[FitOutcome], object]


@dataclass(frozen=True)
class MethodSummary:
    """Results of one method over all draws.

    Attributes
    ----------
    method : str
        Name of the method.
    fits : tuple of FitOutcome
        One for each draw, in order. A method that fails or exceeds its budget is not
        tried on further draws.

    Examples
    --------
    >>> first, second = (FitOutcome("bias", k, error=0.5 + 0.2 * k) for k in (0, 1))
    >>> line = MethodSummary("bias", (first, second))
    >>> round(line.error, 6), round(line.error_std, 6)
    (0.6, 0.141421)
    """

    method: str
    fits: tuple[FitOutcome, ...]

    @property
    def status(self) -> str:
        """The worst status of its fits."""
        statuses = {fit.status for fit in self.fits}
        return next((one for one in (FAILED, OVER_BUDGET) if one in statuses), DONE)

    @property
    def errors(self) -> dict[int, float]:
        """Errors by draw."""
        return {fit.draw: fit.error for fit in self.fits if fit.error is not None}

    @property
    def error(self) -> float | None:
        """Mean error."""
        return self._mean("error")

    @property
    def error_std(self) -> float | None:
        """Standard deviation of the errors; None for a single one."""
        errors = [*self.errors.values()]
        return statistics.stdev(errors) if len(errors) > 1 else None

    @property
    def relative_error(self) -> float | None:
        """Mean relative error."""
        return self._mean("relative_error")

    @property
    def coverage(self) -> float | None:
        """Mean fraction of the held-out entries inside their intervals."""
        return self._mean("coverage")

    @property
    def seconds(self) -> float | None:
        """Mean time of a fit in seconds."""
        return self._mean("seconds")

    @property
    def memory_gb(self) -> float | None:
        """Largest peak memory of its fits."""
        peaks = [fit.memory_gb for fit in self.fits if fit.memory_gb is not None]
        return max(peaks, default=None)

    @property
    def converged_fraction(self) -> float | None:
        """Fraction of the fits that converged, of those that report it."""
        return self._mean("converged")

    @property
    def message(self) -> str:
        """The first message of its fits."""
        return next((fit.message for fit in self.fits if fit.message), "")

    def _mean(self, name: str) -> float | None:
        values = [getattr(fit, name) for fit in self.fits]
        known = [float(value) for value in values if value is not None]
        # Divide before adding up, so that the sum of large floats does not overflow.
        return sum(value / len(known) for value in known) if known else None

    def to_dict(self) -> dict[str, Any]:
        """The summary and its fits as JSON values."""
        names = ("error", "error_std", "relative_error", "coverage", "seconds")
        fits = [asdict(fit) for fit in self.fits]
        fits = [{k: fit[k] for k in fit if "group_" not in k} for fit in fits]
        return {
            "method": self.method,
            "status": self.status,
            **jsonable({name: getattr(self, name) for name in names}),
            "memory_gb": self.memory_gb,
            "converged": self.converged_fraction,
            "message": self.message,
            "fits": [jsonable(fit) for fit in fits],
        }


@dataclass(frozen=True)
class Recommendation:
    """The method to use, and why.

    Attributes
    ----------
    method : str or None
        Name of the method; None if no method finished all draws.
    ties : tuple of str
        The method with the lowest error, and those that are not distinguished from it:
        their error is larger by at most one standard error of the paired differences.
    reason, warnings : str and tuple of str
        Explanation in one or two sentences, and reasons not to rely on it.
    """

    method: str | None
    ties: tuple[str, ...]
    reason: str
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class ComparisonPlan:
    """Validated parameters of `compare`."""

    methods: Any = "auto"  # names, or "auto" or "all" until `with_methods`
    hide: float = 0.1
    repeats: int = 3
    pattern: str = "missing"
    random_state: int = 0
    engine: str = "auto"
    budget: float = 120.0
    scale: str | Mapping[str, str | None] | None = None
    jobs: int = 1
    left_out: Mapping[str, str] = field(default_factory=dict)  # methods, and why

    def __post_init__(self) -> None:
        if isinstance(self.scale, Mapping):
            parse_methods(self.scale)
        for scale in self._scales():
            check_choice("scale", scale, (None, "columns"))
        valid = {
            "methods": self._parse_methods(),
            "hide": check_fraction("hide", self.hide, strict=True),
            "repeats": check_integer("repeats", self.repeats, low=1),
            "pattern": check_choice("pattern", self.pattern, ("missing", "random")),
            "random_state": check_integer("random_state", self.random_state, low=0),
            "engine": check_choice("engine", self.engine, ENGINE_NAMES),
            "budget": check_number("budget", self.budget, low=0.0, strict=True),
            "jobs": check_integer("jobs", self.jobs, low=1),
        }
        for name, value in valid.items():
            object.__setattr__(self, name, value)

    def _parse_methods(self) -> str | tuple[str, ...]:
        if isinstance(self.methods, str):
            word = self.methods.strip().lower()
            if word in ("auto", "all"):
                return word
        return parse_methods(self.methods)

    def with_methods(self, observed: Observations) -> ComparisonPlan:
        """The plan with the names of the methods for a matrix; see `select_methods`."""
        methods, left_out = select_methods(self.methods, observed)
        return replace(self, methods=methods, left_out={**self.left_out, **left_out})

    def _scales(self) -> list[Any]:
        if isinstance(self.scale, Mapping):
            return list(self.scale.values())
        return [self.scale]

    def scale_for(self, method: str) -> str | None:
        """The scaling for one method."""
        return self.scale.get(method) if isinstance(self.scale, Mapping) else self.scale

    @property
    def by_column(self) -> bool:
        """Whether errors are given in standard deviations of the columns."""
        return "columns" in self._scales()

    def to_dict(self) -> dict[str, Any]:
        """The parameters as JSON values."""
        content = {field.name: getattr(self, field.name) for field in fields(self)}
        scales = {method: self.scale_for(method) for method in self.methods}
        lists = {"methods": list(self.methods), "left_out": dict(self.left_out)}
        return {**content, **lists, "scale": scales}


@dataclass(frozen=True)
class Comparison:
    """Result of `compare`.

    Attributes
    ----------
    plan : ComparisonPlan
        Parameters of the comparison.
    shape, n_observed : tuple of int, and int
        Shape of the matrix, and number of its observed entries.
    n_hidden : tuple of int
        Number of held-out entries of each draw.
    summaries : tuple of MethodSummary
        Methods and the baseline "mean", the lowest error first.
    recommendation : Recommendation
        The method to use.
    """

    plan: ComparisonPlan
    shape: tuple[int, int]
    n_observed: int
    n_hidden: tuple[int, ...]
    summaries: tuple[MethodSummary, ...]
    recommendation: Recommendation

    @property
    def error_unit(self) -> str:
        """Unit of the errors, in words."""
        scaled = self.plan.by_column
        return "standard deviations of the column" if scaled else "the data's own units"

    def to_dict(self) -> dict[str, Any]:
        """The comparison as JSON values."""
        return {
            "ncarl": __version__,
            "plan": self.plan.to_dict(),
            "shape": list(self.shape),
            "observed": self.n_observed,
            "hidden": list(self.n_hidden),
            "error_unit": self.error_unit,
            "interval_level": INTERVAL_LEVEL,
            "recommendation": jsonable(asdict(self.recommendation)),
            "lines": [line.to_dict() for line in self.summaries],
        }


def compare(
    X: Any,
    methods: str | Iterable[str] = "auto",
    hide: float = 0.1,
    repeats: int = 3,
    pattern: str = "missing",
    random_state: int = 0,
    engine: str = "auto",
    budget: float = 120.0,
    scale: str | Mapping[str, str | None] | None = None,
    jobs: int = 1,
    progress: FitCallback | None = None,
) -> Comparison:
    """Compare how well methods predict entries that are hidden from them.

    Parameters
    ----------
    X : array, masked array, frame or sparse matrix of shape (m, n)
        Matrix; missing entries are NaN, masked, null, or not stored.
    methods : iterable of str, "auto" or "all"
        Names of `ncarl.available_methods`, "table-imputer", "simple-imputer",
        "knn-imputer", "iterative-imputer" and "chained-forests". The latter need an
        array in memory of which a tenth is observed; "auto" includes them for tables if
        they do not take long. The baseline "mean" is always included.
    hide : float
        Fraction of the observed entries to hide; no row or column loses its last one.
    repeats : int
        Number of draws; all methods see the same ones.
    pattern : {"missing", "random"}
        Hide entries in the pattern of the missing ones (in blocks if these are), or at
        random.
    random_state : int
        Seed of the draws and of the methods.
    engine : {"auto", "threads", "torch"}
        Engine of the fits.
    budget : float
        Seconds that a fit may take. A method that exceeds it, or fails, is not tried
        on the remaining draws.
    scale : {None, "columns"}, or mapping of names of methods to these
        Divide columns by their standard deviations, in which errors are given then.
    jobs : int
        Number of fits in parallel; with more than one, times are not comparable.
    progress : callable, optional
        Called with every `FitOutcome` when it is finished.

    Returns
    -------
    Comparison
        A summary for each method, and a recommendation.

    Examples
    --------
    >>> import numpy as np
    >>> from ncarl.evaluation import compare
    >>> X = np.add.outer(np.arange(12.0), np.arange(10.0))
    >>> found = compare(X, methods=["bias"], repeats=1)
    >>> found.recommendation.method, found.n_hidden
    ('bias', (12,))
    """
    plan = ComparisonPlan(
        methods, hide, repeats, pattern, random_state, engine, budget, scale, jobs
    )
    return run_comparison(plan, as_observations(X), progress)


def run_comparison(
    plan: ComparisonPlan, observed: Observations, progress: FitCallback | None = None
) -> Comparison:
    """Carry out a validated plan on the observed entries of a matrix."""
    if plan.engine == "torch" and not torch_installed():
        raise ImportError(
            "engine='torch' needs PyTorch; install it with pip install 'ncarl[gpu]', "
            "or use engine='threads'"
        )
    plan = plan.with_methods(observed)
    units = column_units(plan, observed)
    masks = draw_holdout_masks(plan, observed, units)
    with tempfile.TemporaryDirectory(prefix="ncarl-compare-") as name:
        folder = Path(name)
        write_splits(folder, observed, units, masks)
        fits = []
        for draw, mask in enumerate(masks):
            split = HoldoutSplit.from_mask(observed, mask, units)
            fits.append(score_mean_baseline(split, draw, by_column=plan.by_column))
        payloads = make_fit_payloads(plan, folder)
        fits += run_fits(payloads, plan.jobs, progress or (lambda fit: None))
    n_hidden = [int(np.count_nonzero(mask)) for mask in masks]
    return summarize_comparison(plan, observed, n_hidden, fits)


def summarize_comparison(
    plan: ComparisonPlan,
    observed: Observations,
    n_hidden: Sequence[int],
    fits: Iterable[FitOutcome],
) -> Comparison:
    """Summaries of all fits, and a recommendation."""
    lines = summarize_fits(fits)
    advice = recommend_method(lines, by_column=plan.by_column)
    shape, n_observed = observed.shape, observed.n_observed
    return Comparison(plan, shape, n_observed, tuple(n_hidden), lines, advice)


def parse_methods(methods: str | Iterable[str]) -> tuple[str, ...]:
    """Names of methods without repetitions and without the baseline "mean"."""
    known = [*available_methods(), *TABLE_IMPUTERS]
    names = methods.split(",") if isinstance(methods, str) else list(methods)
    unique: dict[str, None] = {}
    for given in names:
        if not isinstance(given, str):
            raise TypeError(f"methods must be names, got {given!r}")
        name = given.strip().lower()
        if name == MEAN_BASELINE:
            continue
        if name not in known:
            raise ValueError(
                f"methods must be 'auto', 'all' or some of {', '.join(known)}, got "
                f"{given!r}{did_you_mean(name, known)}"
            )
        unique[name] = None
    if not unique:
        raise ValueError(
            f"methods must name at least one besides the baseline {MEAN_BASELINE!r}, "
            f"got {methods!r}"
        )
    return tuple(unique)


def column_units(plan: ComparisonPlan, observed: Observations) -> Array:
    """Unit of the errors of each column; 0 for columns that are not scored."""
    return observed.column_stds() if plan.by_column else np.ones(observed.shape[1])


def draw_holdout_masks(
    plan: ComparisonPlan, observed: Observations, units: Array
) -> list[Array]:
    """A mask of held-out entries for each draw; at least `MIN_HIDDEN` can be scored."""
    if observed.n_observed == 0:
        raise ValueError("X has no observed entry, so there is nothing to hide")
    names = observed.rows * observed.shape[1] + observed.indices
    split = random_split if plan.pattern == "random" else missing_pattern_split
    masks = []
    for draw in range(plan.repeats):
        rng = np.random.default_rng([plan.random_state, draw])
        _, hidden = split(observed, plan.hide, rng)
        mask = np.isin(names, hidden.rows * observed.shape[1] + hidden.indices)
        scored = np.count_nonzero(units[observed.indices[mask]] > 0.0)
        if scored < MIN_HIDDEN:
            remedy = "hide a larger share"
            _, most = random_split(observed, 1.0, np.random.default_rng(0))
            if np.count_nonzero(units[most.indices] > 0.0) < MIN_HIDDEN:
                remedy = (
                    "no row or column may lose its last entry, so a matrix with more "
                    "observed entries is needed"
                )
            raise ValueError(
                f"hide={plan.hide:g} hides {scored} of {observed.n_observed} observed "
                f"entries to score, and at least {MIN_HIDDEN} are needed; {remedy}"
            )
        masks.append(mask)
    return masks


@dataclass(frozen=True)
class HoldoutSplit:
    """Training entries and held-out entries of one draw."""

    kept: Observations
    hidden: Observations
    units: Array  # of the errors of each column; 0 for columns that are not scored

    @classmethod
    def from_mask(
        cls, observed: Observations, mask: Array, units: Array
    ) -> HoldoutSplit:
        """Split observed entries; the mask says which are hidden."""
        return cls(observed.drop_entries(mask), observed.drop_entries(~mask), units)

    def scored_mask(self) -> Array:
        """Which held-out entries are scored."""
        return self.units[self.hidden.indices] > 0.0

    def errors(self, guess: Array) -> tuple[float, float]:
        """RMSE of predictions in units of the columns, and relative error."""
        if not np.isfinite(guess).all():
            raise ValueError("the completed values are not finite numbers")
        truth, some = self.hidden.values, self.scored_mask()
        units = self.units[self.hidden.indices[some]]
        error = rmse(truth[some] / units, guess[some] / units)
        return error, relative_rmse(truth, guess)

    def group_scores(self, guess: Array) -> dict[str, Any]:
        """Number of scored entries and RMSE of the rows, or of groups of rows."""
        some = self.scored_mask()
        units = self.units[self.hidden.indices[some]]
        # Halved and divided by the largest, neither errors nor squares overflow.
        halves = guess[some] / units / 2.0 - self.hidden.values[some] / units / 2.0
        largest = float(np.max(np.abs(halves), initial=0.0)) or 1.0
        groups = self.hidden.rows[some] % MAX_ROW_GROUPS
        sizes = np.bincount(groups)
        squares = np.bincount(groups, (halves / largest) ** 2)[sizes > 0]
        sizes = sizes[sizes > 0]
        with np.errstate(over="ignore"):
            roots = 2.0 * (largest * np.sqrt(squares / sizes))
        errors = np.minimum(roots, MAX_FLOAT).tolist()
        return {"group_sizes": sizes.tolist(), "group_errors": errors}


def write_splits(
    folder: Path, observed: Observations, units: Array, masks: Iterable[Array]
) -> None:
    """Write the data that all fits share, and the mask of each draw."""
    arrays = {
        "indptr": observed.indptr,
        "indices": observed.indices,
        "values": observed.values,
        "shape": np.array(observed.shape),
        "units": units,
    }
    write_npz(folder / "data.npz", arrays)
    for draw, mask in enumerate(masks):
        np.save(folder / f"draw-{draw}.npy", mask, allow_pickle=False)


def read_split(folder: Path, draw: int) -> HoldoutSplit:
    """Read the split of a draw, as written by `write_splits`."""
    mask = np.load(folder / f"draw-{draw}.npy", allow_pickle=False)
    with np.load(folder / "data.npz", allow_pickle=False) as data:
        m, n = (int(size) for size in data["shape"])
        observed = Observations(data["indptr"], data["indices"], data["values"], (m, n))
        return HoldoutSplit.from_mask(observed, mask, data["units"])


def make_fit_payloads(plan: ComparisonPlan, folder: Path) -> list[dict[str, Any]]:
    """Payloads of all fits of a plan, draw by draw."""
    shared = {
        "folder": str(folder),
        "seed": plan.random_state,
        "engine": plan.engine,
        "threads": max(1, available_cores() // plan.jobs),
        "budget": plan.budget,
    }
    return [
        {**shared, "method": method, "draw": draw, "scale": plan.scale_for(method)}
        for draw in range(plan.repeats)
        for method in plan.methods
    ]


def run_fits(
    payloads: Sequence[Mapping[str, Any]], jobs: int, progress: FitCallback
) -> list[FitOutcome]:
    """Run fits, each in a process of its own.

    Once a fit of a method fails or exceeds its budget, its other fits are skipped.
    """
    waiting, outcomes, excluded = deque(payloads), list[FitOutcome](), set[str]()
    threads = max((payload["threads"] for payload in payloads), default=1)
    group = WorkerGroup("fits", jobs, threads)
    with WorkerPool([group], process_per_job=True) as pool:
        while waiting or pool.running:
            while waiting and pool.has_room(group.name):
                payload = waiting.popleft()
                if payload["method"] not in excluded:
                    limit = payload["budget"] * GRACE_FACTOR + STARTUP_SECONDS
                    pool.submit(PoolJob(FIT_FUNCTION, payload, group.name, limit))
            for answer in pool.wait():
                payload, why = answer.job.payload, answer.message
                method, draw = payload["method"], payload["draw"]
                failed = FitOutcome(method, draw, answer.failure, message=why)
                fit = failed if answer.failure else FitOutcome(**answer.value)
                outcomes.append(fit)
                if fit.status != DONE:
                    excluded.add(fit.method)
                progress(fit)
    return outcomes


def fit_one(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Fit one method on one draw; see `make_fit_payloads`."""
    split = read_split(Path(payload["folder"]), payload["draw"])
    engine = make_engine(payload["engine"], payload["threads"])
    method = payload["method"]
    params = default_parameters(method, scale=payload["scale"], seed=payload["seed"])
    warm_up(method, params, engine)
    found, late = fit_split(split, method, params, engine, budget=payload["budget"])
    fit = score_split(method, payload["draw"], split, found)
    if late:
        message = f"stopped after {found.seconds:.3g} s"
        fit = replace(fit, status=OVER_BUDGET, converged=None, message=message)
    fit = replace(fit, memory_gb=measure.peak_memory_gb())
    record: dict[str, Any] = jsonable(asdict(fit))
    return record


def fit_split(
    split: HoldoutSplit,
    method: str,
    params: Mapping[str, Any],
    engine: Any,
    *,
    budget: float | None = None,
    levels: Sequence[float] = (INTERVAL_LEVEL,),
) -> tuple[SplitPredictions, bool]:
    """Predictions of the held-out entries, and whether the fit exceeded its budget."""
    estimator = make_method(method, params, engine)
    seconds, late = measure.timed_fit(estimator, split.kept.to_csr(), budget)
    i, j = split.hidden.rows, split.hidden.indices.astype(np.int64)
    guess, std = np.asarray(estimator.predict(i, j), np.float64), None
    intervals: dict[float, tuple[Array, Array]] = {}
    if hasattr(estimator, "predict_interval") and estimator._noise_level() > 0.0:
        std = np.asarray(estimator.predict(i, j, return_std=True)[1], np.float64)
        intervals = {
            level: estimator.predict_interval(i, j, level=level) for level in levels
        }
    converged = getattr(estimator, "converged_", None)
    converged = None if converged is None else bool(converged)
    mean = split.kept.column_means()[j]
    found = SplitPredictions(
        i, j, split.hidden.values, guess, mean, std, intervals, seconds, converged,
        estimator.engine_,
    )  # fmt: skip
    return found, late


def score_split(
    method: str, draw: int, split: HoldoutSplit, predictions: SplitPredictions
) -> FitOutcome:
    """Scores of the predictions of one draw."""
    actual = None
    if INTERVAL_LEVEL in predictions.intervals:
        low, high = predictions.intervals[INTERVAL_LEVEL]
        some = split.scored_mask()
        actual = coverage(predictions.truth[some], low[some], high[some])
    error, relative_error = split.errors(predictions.guess)
    return FitOutcome(
        method, draw, DONE, error, relative_error, actual, predictions.seconds,
        converged=predictions.converged, engine=predictions.engine,
        **split.group_scores(predictions.guess),
    )  # fmt: skip


def default_parameters(method: str, *, scale: str | None, seed: int) -> dict[str, Any]:
    """Parameters of a method in comparisons and, by default, in ``ncarl complete``."""
    if method in TABLE_IMPUTERS:
        return {"random_state": seed}
    wanted: dict[str, Any] = {"scale": scale, "random_state": seed}
    if scale == "columns" and method not in SELF_CENTERING_METHODS:
        wanted["center"] = "columns"  # columns with different units have no common mean
    known = parameter_names(method)
    return {name: value for name, value in wanted.items() if name in known}


def make_method(method: str, params: Mapping[str, Any], engine: Any) -> Any:
    """An estimator, or an imputer with as many threads as the engine has."""
    if method in TABLE_IMPUTERS:
        n_jobs = getattr(engine, "n_jobs", None) or available_cores()
        return ImputerAdapter(method, **params, n_jobs=n_jobs)
    return make(method, engine=engine, **params)


def make_engine(name: str, threads: int) -> Any:
    """An engine by name, limited to ``threads`` if it uses the processor."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the engine is part of the result
        engine = pick_engine(name, quiet=True)
    if isinstance(engine, Threads):
        return Threads(threads, reason=engine.reason)
    return engine


def warm_up(method: str, params: Mapping[str, Any], engine: Any) -> None:
    """Import and compile what a method needs, so that its fit alone is timed."""
    X = np.random.default_rng(0).standard_normal((12, 6))
    X[0, 0] = X[3, 2] = np.nan
    steps: dict[str, Any] = {}
    if method not in TABLE_IMPUTERS:
        few, known = {"max_iter": 2, "search_iter": 1}, parameter_names(method)
        steps = {name: value for name, value in few.items() if name in known}
    # A method that fails will fail in its own fit too.
    with warnings.catch_warnings(), contextlib.suppress(Exception):
        warnings.simplefilter("ignore")
        make_method(method, {**params, **steps}, engine).fit(X).predict([0], [0])


def score_mean_baseline(
    split: HoldoutSplit, draw: int, *, by_column: bool
) -> FitOutcome:
    """Score the baseline: the mean of the kept entries, of each column or of all."""
    kept = split.kept
    if by_column:
        means = kept.column_means()
    else:
        # Divide before adding up, so that the sum of large floats does not overflow.
        means = np.full(kept.shape[1], np.sum(kept.values / kept.n_observed))
    guess = means[split.hidden.indices]
    errors, groups = split.errors(guess), split.group_scores(guess)
    return FitOutcome(MEAN_BASELINE, draw, DONE, *errors, **groups)


def summarize_fits(fits: Iterable[FitOutcome]) -> tuple[MethodSummary, ...]:
    """Summaries by method, the lowest error first and methods without one last."""
    by_method: dict[str, list[FitOutcome]] = {}
    for fit in sorted(fits, key=lambda fit: fit.draw):
        by_method.setdefault(fit.method, []).append(fit)
    lines = [MethodSummary(name, tuple(some)) for name, some in by_method.items()]
    return tuple(sorted(lines, key=lambda line: (_error(line), line.method)))


def recommend_method(
    summaries: Sequence[MethodSummary], *, by_column: bool
) -> Recommendation:
    """Recommend a method.

    The best method has the lowest mean error. Methods whose error is larger by at most
    one standard error of the paired differences (`paired_difference`) are not
    distinguished from it. Among these, a method with error bars is preferred, then the
    fastest. The baseline "mean", of each column or of all entries, is never
    recommended.
    """
    done = (line for line in summaries if line.status == DONE and line.errors)
    candidates = [line for line in done if line.method != MEAN_BASELINE]
    if not candidates:
        return Recommendation(None, (), "no method was done on all draws")
    best = min(candidates, key=_error)
    ties = sorted((line for line in candidates if _ties(line, best)), key=_error)
    chosen = min(
        ties, key=lambda x: (x.method not in INTERVAL_METHODS, x.seconds or math.inf)
    )
    tied = tuple(line.method for line in ties)
    warnings = tuple(_find_warnings(chosen, best, summaries, by_column))
    return Recommendation(chosen.method, tied, _reason(chosen, best, ties), warnings)


def paired_difference(one: MethodSummary, other: MethodSummary) -> tuple[float, float]:
    """Mean difference of the errors of two methods, and its standard error.

    Both are computed from the differences on the draws that both methods have. With a
    single one, the standard error is that of its rows, by the jackknife; infinite if
    these are not known.
    """
    theirs = other.errors
    shared = {k: e - theirs[k] for k, e in one.errors.items() if k in theirs}
    if not shared:
        raise ValueError(f"{one.method} and {other.method} share no draw")
    differences = [*shared.values()]
    mean = sum(difference / len(differences) for difference in differences)
    if len(differences) < 2:
        pair = [fit for x in (one, other) for fit in x.fits if fit.draw in shared]
        return mean, _jackknife_std_error(*pair)
    return mean, statistics.stdev(differences) / math.sqrt(len(differences))


def _jackknife_std_error(one: FitOutcome, other: FitOutcome) -> float:
    """Standard error of the difference of two RMSEs, leaving out one group at a time.

    Errors in the same row are not independent, so the groups are rows.
    """
    sizes, count = np.asarray(one.group_sizes, np.float64), len(one.group_sizes)
    if count < 2 or len(other.group_sizes) != count:
        return math.inf
    roots = np.array([one.group_errors, other.group_errors], np.float64)
    scale = float(roots.max()) or 1.0
    sums = sizes * (roots / scale) ** 2
    # Rounding may leave less than nothing.
    rest = np.maximum(sums.sum(axis=1, keepdims=True) - sums, 0.0)
    own, their = np.sqrt(rest / (sizes.sum() - sizes))
    return scale * math.sqrt((count - 1) * float(np.var(own - their)))


def _error(line: MethodSummary) -> float:
    return math.inf if line.error is None else line.error


def _ties(line: MethodSummary, best: MethodSummary) -> bool:
    difference, standard_error = paired_difference(line, best)
    return difference <= standard_error


def _reason(
    chosen: MethodSummary, best: MethodSummary, ties: Sequence[MethodSummary]
) -> str:
    others = [line for line in ties if line is not chosen and line is not best]
    names = join_names([x.method for x in others], MAX_LISTED, last=" and ")
    if chosen is not best:
        gain = _times_faster(chosen, best)
        virtue = "faster" if gain is None else f"{gain} times faster"
        if chosen.method in INTERVAL_METHODS:
            virtue = "it gives error bars"
        return (
            f"{chosen.method}: error {_format_error(chosen)}, not distinguished from "
            f"the lowest, {_format_error(best)} of {best.method}, and {virtue}."
        )
    first = f"{chosen.method}: lowest error {_format_error(chosen)}"
    if not others:
        return f"{first}."
    fastest = min(others, key=lambda line: line.seconds or math.inf)
    gain = _times_faster(fastest, chosen)
    speed = "" if gain is None else f"; {fastest.method} is {gain} times faster"
    return f"{first}, not distinguished from {names}{speed}."


def _format_error(line: MethodSummary) -> str:
    std = line.error_std
    plus_minus = "" if std is None else f" (\N{PLUS-MINUS SIGN} {std:.2g})"
    return f"{_error(line):.4g}{plus_minus}"


def _times_faster(one: MethodSummary, other: MethodSummary) -> str | None:
    """How many times faster one method is; None for less than `MIN_SPEEDUP`."""
    if one.seconds is None or other.seconds is None:
        return None
    ratio = other.seconds / max(one.seconds, 1e-3)
    if ratio < MIN_SPEEDUP:
        return None
    return f"{ratio:.1f}" if ratio < 3.0 else f"{ratio:.0f}"


def _find_warnings(
    chosen: MethodSummary,
    best: MethodSummary,
    summaries: Sequence[MethodSummary],
    by_column: bool,
) -> Iterator[str]:
    stopped = [line for line in summaries if line.status == OVER_BUDGET]
    ahead = [line.method for line in stopped if line.errors and _ties(line, best)]
    if ahead:  # then the comparison with the baselines is open
        verb = "was" if len(ahead) == 1 else "were"
        yield (
            f"{join_names(ahead, last=' and ')} {verb} ahead of {best.method}, or not "
            "distinguished from it, when stopped at the budget; a larger budget may "
            "change the advice"
        )
    else:
        mean = "the mean of each column" if by_column else "the mean of all entries"
        names = {MEAN_BASELINE: mean, "bias": "row and column effects (bias)"}
        done = {line.method: line for line in summaries if line.status == DONE}
        for name, words in names.items():
            if name in done and _ties(done[name], best):
                yield (
                    f"no method is better than {words} by more than one standard "
                    "error; the missing entries may not be predictable from the rest"
                )
                break
    if len(chosen.fits) < 2:
        yield (
            "standard errors over the rows of a single split leave out how splits "
            "differ; use 3 repeats or more"
        )
    unconverged = sum(fit.converged is False for fit in chosen.fits)
    if unconverged:
        yield (
            f"{unconverged} of {len(chosen.fits)} fits of {chosen.method} did not "
            "converge within the steps allowed; more steps may do better"
        )
