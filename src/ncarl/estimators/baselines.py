"""Base class of the baselines, and the choice of their regularization strength.

`MatrixEstimator` turns a solver of `ncarl.solvers` into an estimator that completes one
matrix. `make_penalized_solver` gives the solver of a strength ``lam``, which
``lam="auto"`` selects on held-out entries by a path of decreasing strengths.
"""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from ncarl.centering import root_mean_square
from ncarl.containers import validate_observations
from ncarl.core.types import Array
from ncarl.dataset import InMemoryDataset
from ncarl.engines import pick_engine
from ncarl.engines.base import Engine
from ncarl.estimators.base import (
    MAX_DENSE_GB,
    NOTHING_TO_SCORE,
    BaseCompleter,
    Prediction,
    RunParameters,
)
from ncarl.estimators.validation import (
    check_local_engine,
    check_positions,
    check_run_options,
    is_matrix,
    open_checkpoint,
)
from ncarl.fitting.loop import FitResult
from ncarl.fitting.matrix_model import MatrixModel, PreprocessedData
from ncarl.holdout import random_split, random_splits
from ncarl.metrics import relative_rmse, rmse
from ncarl.observations import Observations, canonical_order
from ncarl.progress import progress_bar
from ncarl.solvers.base import (
    CONTINUATION_TOL,
    DenseProblem,
    Solver,
    SolverResult,
    SparseEntries,
    run_solver,
)
from ncarl.solvers.penalties import SpectralPenalty
from ncarl.solvers.proximal import ProximalGradient
from ncarl.solvers.soft_impute import SoftImputeALS
from ncarl.validation import check_integer, check_number

#: Ratio of consecutive strengths of a path, and the maximum number of them.
PATH_DECAY, MAX_PATH_LENGTH = 0.7, 40
#: Relative decrease of the error that makes a strength better: where the error is flat,
#: chance would choose one far too weak, with which the fit hardly converges.
MIN_ERROR_GAIN = 2e-3
#: A path ends once this many strengths that raised the rank have not improved on the
#: best error, or this many of any kind, or once the rank has risen and the error is
#: larger than the best by this factor.
RANK_PATIENCE, POINT_PATIENCE, ERROR_GROWTH_LIMIT = 2, 8, 1.05
#: Fraction of the entries that is held out.
VALIDATION_FRACTION = 0.1
#: Relative error on held-out entries at which a path ends.
NEGLIGIBLE_ERROR = 1e-4
#: Strength relative to the largest useful one, if no entries can be held out.
FALLBACK_LAM_RATIO = 0.1
#: Strengths in the units of a solver are clipped to this range.
MIN_LAM, MAX_LAM = 1e-100, 1e100
#: Checks of parameters that several baselines have; None is valid if it is the default.
SHARED_CHECKS: dict[str, Callable[..., object]] = {
    "random_state": partial(check_integer, low=0),
    "rank": partial(check_integer, low=1),
    "mu": partial(check_number, low=0.0, strict=True),
    "rho": partial(check_number, low=1.0, strict=True),
}


@dataclass
class FitInput:
    """What an estimator makes its solver of."""

    estimator: MatrixEstimator
    observed: Observations  # with their rows and columns in canonical order
    row_order: Array  # (m,): rows as they were given, in that order
    data: PreprocessedData  # the same, centered and in the units of the solver
    engine: Engine
    tol: float
    #: JSON values: results of a search that precedes the fit are stored here, and a fit
    #: that resumes from a checkpoint finds them here.
    search_state: dict[str, Any]
    initial_state: Any = None  # of the solver, if a search found a better one

    def dense_problem(self, data: PreprocessedData | None = None) -> DenseProblem:
        """Dense arrays of these or other data; raise if they need too much memory."""
        residuals = (data or self.data).residuals
        m, n = residuals.shape
        size = m * n * 8 / 1e9
        if size > MAX_DENSE_GB:
            raise ValueError(
                f"{type(self.estimator).__name__} works on dense {m} x {n} arrays of "
                f"{size:.3g} GB each, more than {MAX_DENSE_GB:g}; SoftImpute, "
                "BiasModel and BayesianNCARL work on the observed entries alone"
            )
        return DenseProblem.from_observations(residuals, self.engine.compute_device)


@dataclass(eq=False, repr=False, kw_only=True)
class MatrixParameters(RunParameters):
    """Parameters that all baselines have, by keyword only."""

    scale: str | None = None
    max_iter: int | None = None
    tol: float | None = None


class MatrixEstimator(MatrixParameters, BaseCompleter):
    """Base of the estimators whose model is the completed matrix itself.

    Subclasses are dataclasses of their parameters, check them (``_check_params``) and
    make a solver (``_make_solver``).
    """

    center: str | None
    #: Strength of the penalty of a model with noise, and the strengths tried for it.
    lam_: Any
    path_: list[dict[str, Any]]
    #: Factor that converts a strength from the solver's units to the user's.
    _lam_unit = 1.0
    #: Ridge penalty of the factors of new rows; None if there is no rule for them.
    _new_row_ridge: float | None = None
    _noise_hint = "this model has none; BayesianNCARL learns one"

    def fit(self, X: Any, y: Any = None) -> Self:
        """Complete ``X``.

        Parameters
        ----------
        %(X y)s
        """
        max_iter, tol = self._check_all_params()
        engine = pick_engine(check_local_engine(self.engine, type(self).__name__))
        observed = self._read_training_matrix(X)
        checkpoint, search_state = open_checkpoint(self, InMemoryDataset(observed)), {}
        if checkpoint is not None and (saved := checkpoint.load()) is not None:
            with checkpoint.corrupt_on_error():
                search_state = dict(saved[0]["search_state"])
                lam, path = search_state.get("lam", 1.0), search_state.get("path", [])
                if not 0.0 < float(lam) < math.inf or not isinstance(path, list):
                    raise ValueError("its search has no valid strength")
        # In an order that depends on the contents alone: a solution that is not exact
        # would otherwise depend on the order of rows and columns.
        rows, columns = canonical_order(observed)
        ordered = observed.reorder(rows, columns)
        data = self._preprocess(ordered)
        for name in ("gap_", "dual_"):  # of an earlier fit; not every solver sets them
            self.__dict__.pop(name, None)
        fit = FitInput(self, ordered, rows, data, engine, tol, search_state)
        solver = self._make_solver(fit)
        with self._observers(max_iter, type(self).__name__) as observers:
            result = run_solver(
                solver,
                max_iter=max_iter,
                tol=tol,
                scale=data.value_unit(solver.degree),
                observers=observers,
                checkpoint=checkpoint,
                device=engine.compute_device,
                search_state=search_state,
                state=fit.initial_state,
            )
        self._set_history(fit, solver, result)
        back = np.argsort(rows), np.argsort(columns)
        self._set_fitted_attributes(
            observed, data.reorder(*back), solver.finalize(result.last).reorder(*back)
        )
        return self._end_fit(result, max_iter, tol)

    # --- implemented or overridden by subclasses -------------------------------------

    def _check_params(self) -> None: ...

    def _default_stopping(self) -> tuple[int, float]:
        """Default of ``max_iter`` and ``tol``."""
        return 1000, 1e-6

    @abstractmethod
    def _make_solver(self, fit: FitInput) -> Solver: ...

    def _preprocess(self, observed: Observations) -> PreprocessedData:
        return PreprocessedData.from_observations(
            observed, self.center, self.scale == "columns"
        )

    def _make_model(
        self, data: PreprocessedData, solution: SolverResult, observed: Observations
    ) -> MatrixModel:
        return data.model(solution.X, solution.factors, self._new_row_ridge)

    # --- fit -------------------------------------------------------------------------

    def _check_all_params(self) -> tuple[int, float]:
        """Check all parameters; return ``max_iter`` and ``tol`` with their defaults."""
        check_run_options(self)
        for name in self._get_param_names():
            value, default = getattr(self, name), getattr(type(self), name, None)
            if name in SHARED_CHECKS and not (value is None and default is None):
                SHARED_CHECKS[name](name, value)
        self._check_params()
        max_iter, tol = self._default_stopping()
        if self.max_iter is not None:
            max_iter = check_integer("max_iter", self.max_iter, low=1)
        if self.tol is not None:
            tol = check_number("tol", self.tol, low=0.0)
        return max_iter, tol

    def _set_history(
        self, fit: FitInput, solver: Solver, result: FitResult[Any]
    ) -> None:
        history = result.history
        units = {"mu": fit.data.value_unit(solver.degree - 2.0), "lam": self._lam_unit}
        for name in units.keys() & history.keys():
            history[name] = [value * units[name] for value in history[name]]
        self._set_run_attributes(
            fit.engine, history, result.last.step, result.converged
        )
        self.objective_ = float(self.history_["objective"][-1])

    def _set_fitted_attributes(
        self, observed: Observations, data: PreprocessedData, solution: SolverResult
    ) -> None:
        self.model_ = self._make_model(data, solution, observed)
        for name, value in solution.extras.items():
            setattr(self, name, value)
        self.training_ = observed
        self.training_fingerprint_ = observed.fingerprint()
        self.residual_ = float(solution.residual)
        self.rank_ = int(solution.rank)
        self.unidentified_rows_ = np.flatnonzero(observed.row_counts == 0)
        self.unidentified_columns_ = np.flatnonzero(observed.column_counts == 0)

    # --- prediction ------------------------------------------------------------------

    def score(self, X: Any, y: Any = None) -> float:
        """Minus the relative root mean square error; higher is better.

        Parameters
        ----------
        X : container of shape (m, n)
            The matrix of the fit (any, where there is a rule for new rows).
        y : container of shape (m, n), optional
            The truth: entries missing in ``X`` and observed in ``y`` are scored.
            Without it a fixed tenth of the observed entries of ``X`` is held out, a
            copy of the estimator is fitted to the rest, and scored on them.
        """
        check_is_fitted(self)
        if self.model_.supports_new_rows or (y is not None and is_matrix(y)):
            return super().score(X, y)
        observed = validate_observations(self, X, reset=False)
        kept, hidden = random_split(observed, 0.1, np.random.default_rng(0))
        if hidden.n_observed == 0:
            raise ValueError(NOTHING_TO_SCORE)
        again = clone(self).set_params(checkpoint=None, callback=None, progress=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            again.fit(kept.to_csr())
        guess = again.predict(hidden.rows, hidden.indices.astype(np.int64))
        return -relative_rmse(hidden.values, guess)

    def _predict_training(self, rows: Any, cols: Any, std: str | None) -> Prediction:
        shape = (len(self.model_.effects), self.n_features_in_)
        return self.model_.predict(*check_positions(rows, cols, shape)), None

    def _read_rows(self, X: Any) -> Observations:
        observed = validate_observations(self, X, reset=False)
        if self.model_.supports_new_rows or self._is_training(observed):
            return observed
        raise ValueError(
            f"{type(self).__name__} completes the matrix of its fit and has no rule "
            f"for others; got another X, of shape {observed.shape}. Use "
            "fit_transform(X) to complete this one, or NCARL, BayesianNCARL or "
            "SoftImpute, which complete new rows"
        )

    def _is_training(self, observed: Observations) -> bool:
        return observed.fingerprint() == self.training_fingerprint_

    def _model_for_rows(self, observed: Observations) -> MatrixModel:
        model: MatrixModel = self.model_
        if not model.supports_new_rows or self._is_training(observed):
            return model
        return model.fold_in(observed)

    def _complete(
        self, observed: Observations, std: str | None, *, inductive: bool = False
    ) -> Prediction:
        return self._model_for_rows(observed).complete(), None

    def _predict_entries(
        self, observed: Observations, i: Array, j: Array, std: str | None, *,
        inductive: bool = False,
    ) -> Prediction:  # fmt: skip
        return self._model_for_rows(observed).predict(i, j), None


def check_lam(lam: Any, *, exact: bool = True) -> None:
    """Raise if ``lam`` is not a strength; None is valid if there is an exact model."""
    if (lam is None and exact) or (isinstance(lam, str) and lam == "auto"):
        return
    hint = "; 'auto' chooses it on held-out entries"
    check_number("lam", lam, low=0.0, strict=True, hint=hint)


class PathSolver(Solver, Protocol):
    """A solver that can start from the last state of another strength."""

    def warm_start(self, state: Any) -> Any:
        """Make the initial state from the last state of another strength."""


class PathProblem(NamedTuple):
    """The solvers of all strengths, for some entries."""

    max_strength: float  # the smallest strength whose result is 0
    make_solver: Callable[[float], PathSolver]  # the solver of a strength
    tol: float = CONTINUATION_TOL  # tolerance of a run on the path


#: Makes the problem of preprocessed entries.
PathFactory = Callable[[PreprocessedData], PathProblem]


def proximal_gradient_path(fit: FitInput, penalty: SpectralPenalty) -> PathFactory:
    """Path of proximal gradient solvers of a penalty."""

    def make_problem(data: PreprocessedData) -> PathProblem:
        problem = fit.dense_problem(data)
        largest = penalty.strength(problem.spectral_norm)
        return PathProblem(largest, lambda lam: ProximalGradient(problem, penalty, lam))

    return make_problem


def soft_impute_path(max_rank: int | None, seed: int, engine: Engine) -> PathFactory:
    """Path of soft-impute solvers with a maximum rank."""

    def make_problem(data: PreprocessedData) -> PathProblem:
        entries = SparseEntries(data.residuals, engine.compute_device)
        rank = min(entries.shape) if max_rank is None else max_rank
        return PathProblem(
            entries.spectral_norm, lambda lam: SoftImputeALS(entries, lam, rank, seed)
        )

    return make_problem


def make_penalized_solver(
    fit: FitInput,
    path_factory: PathFactory,
    degree: float,
    fraction: float = VALIDATION_FRACTION,
) -> Solver:
    """Make the solver of an estimator with the strength ``lam``.

    With ``lam="auto"`` the strength is selected on held-out entries by a path of
    decreasing strengths, and the solver starts from the state of the best one: with a
    nonconvex penalty it would otherwise reach another stationary point. Sets ``lam_``
    and ``path_`` of the estimator.
    """
    estimator: Any = fit.estimator
    state, data, last_state = fit.search_state, fit.data, None
    if not isinstance(estimator.lam, str):
        state["lam"] = float(estimator.lam)
    elif "lam" not in state:
        last_state = _search_lam(fit, path_factory, degree, fraction)
    estimator.path_ = state.get("path", [])
    estimator.lam_ = float(state["lam"])
    estimator._lam_unit = data.value_unit(2.0 - degree)
    strength = lam_in_solver_units(estimator.lam_, data, degree)
    solver = path_factory(data).make_solver(strength)
    if last_state is not None:
        fit.initial_state = solver.warm_start(last_state)
    return solver


def lam_in_solver_units(lam: float, data: PreprocessedData, degree: float) -> float:
    """Convert a strength to the units of the solver, for a penalty of some degree."""
    inner = lam / data.value_unit(2.0 - degree)
    return float(min(max(inner, MIN_LAM), MAX_LAM))


def _search_lam(
    fit: FitInput, path_factory: PathFactory, degree: float, fraction: float
) -> Any:
    """Select the strength on held-out entries, and store it in ``fit.search_state``.

    Returns the last state of the best strength, if the fit can start from it.
    """
    estimator: Any = fit.estimator
    observed, search_state = fit.observed, fit.search_state
    splits = random_splits(observed, fraction, int(estimator.random_state))
    if not splits:
        warnings.warn(
            "X has too few observed entries to hold some of them out; lam='auto' takes "
            f"{FALLBACK_LAM_RATIO:g} of the largest useful strength",
            UserWarning,
            stacklevel=6,
        )
        largest = path_factory(fit.data).max_strength
        unit = fit.data.value_unit(2.0 - degree)
        search_state["lam"] = FALLBACK_LAM_RATIO * largest * unit
        return None
    data = [estimator._preprocess(kept) for kept, _ in splits]
    paths = [
        SplitPath(path_factory(d), *_make_scorer(d, hidden), d.value_unit(2.0 - degree))
        for d, (_, hidden) in zip(data, splits, strict=True)
    ]
    with progress_bar(estimator.progress, MAX_PATH_LENGTH, "search") as advance:
        points, best, state = fit_path(
            paths, on_point=lambda point: advance(f"error {point.error:.4g}")
        )
    # The singular values of noise grow with the square root of the number of entries,
    # so the threshold must grow when the held-out entries are added again.
    kept = splits[0][0].n_observed
    growth = (observed.n_observed / kept) ** (1.0 - degree / 2.0)
    search_state["lam"] = best.lam * growth
    search_state["path"] = [point._asdict() for point in points]
    return state if data[0].value_unit() == fit.data.value_unit() else None


def _make_scorer(
    data: PreprocessedData, hidden: Observations
) -> tuple[Callable[[SolverResult], float], float]:
    """Make the function that scores a result on held-out entries, and their RMS.

    Errors are in the user's units, or in standard deviations if columns were scaled.
    """
    columns = hidden.indices.astype(np.int64)
    scales = data.centering.column_scales[columns]
    units = np.where(scales > 0.0, scales, 1.0) * data.unit
    unit = data.value_unit()  # squares are taken of errors near 1, and cannot overflow
    truth = hidden.values / units

    def score(solution: SolverResult) -> float:
        model = data.model(solution.X, solution.factors, None)
        return rmse(truth, model.predict(hidden.rows, columns) / units) * unit

    return score, rmse(truth, np.zeros(len(truth))) * unit


@dataclass
class SplitPath:
    """The path of a split: its solvers, and the state at the last strength."""

    problem: PathProblem
    score: Callable[[SolverResult], float]  # error on the held-out entries
    size: float = 0.0  # root mean square of the held-out entries
    unit: float = 1.0  # of strengths, in the user's units
    state: Any = None

    def run(self, k: int, max_iter: int) -> PathPoint:
        """Solve the problem of the k-th strength, from the state of the last one."""
        strength = self.problem.max_strength * PATH_DECAY**k
        solver = self.problem.make_solver(strength)
        last, tol = self.state, self.problem.tol
        state = solver.initial_state() if last is None else solver.warm_start(last)
        result = run_solver(solver, max_iter=max_iter, tol=tol, state=state)
        if result.interrupted:
            raise KeyboardInterrupt
        self.state = result.last.state
        solution = solver.finalize(result.last)
        error, steps = self.score(solution), result.last.step
        return PathPoint(strength * self.unit, error, steps, solution.rank)


class PathPoint(NamedTuple):
    """One strength of a path: the mean of the splits', or their largest number."""

    lam: float
    error: float  # root mean square, on the held-out entries
    steps: int
    rank: int  # of the result


def fit_path(
    paths: Sequence[SplitPath],
    *,
    max_iter: int = 200,
    on_point: Callable[[PathPoint], None] = lambda _: None,
) -> tuple[list[PathPoint], PathPoint, Any]:
    """Fit decreasing strengths until the error on held-out entries stops falling.

    Returns all points, those of the splits pooled, the best one, and the last state at
    it (of the first split). The path also ends at a negligible error.
    """
    points: list[PathPoint] = []
    best, best_state = 0, None
    sizes = np.array([path.size for path in paths])
    negligible = NEGLIGIBLE_ERROR * root_mean_square(sizes)
    for k in range(1, MAX_PATH_LENGTH + 1):
        parts = [path.run(k, max_iter) for path in paths]
        lam, errors, steps, ranks = map(np.array, zip(*parts, strict=True))
        error = root_mean_square(errors)
        points.append(
            PathPoint(float(lam.mean()), error, int(steps.max()), int(ranks.max()))
        )
        on_point(points[-1])
        if k == 1 or points[-1].error < (1.0 - MIN_ERROR_GAIN) * points[best].error:
            best, best_state = k - 1, paths[0].state
        if points[best].error <= negligible or _should_stop(points[best:]):
            break
    return points, points[best], best_state


def _should_stop(points_since_best: list[PathPoint]) -> bool:
    """Whether the points since the best one, which is the first, end the path.

    With nonconvex penalties the rank rises at few of the strengths; in between, errors
    hardly change and do not predict the effect of the next rise.
    """
    best, last = points_since_best[0], points_since_best[-1]
    rises = sum(a.rank < b.rank for a, b in pairwise(points_since_best))
    if rises > 0 and last.error > ERROR_GROWTH_LIMIT * best.error:
        return True
    return rises >= RANK_PATIENCE or len(points_since_best) - 1 >= POINT_PATIENCE
