"""Base class of the baselines, and the choice of their regularization strength.

`MatrixEstimator` turns a solver of `ncarl.solvers` into an estimator that completes one
matrix. `make_penalized_solver` gives the solver of a strength ``lam``, which
``lam="auto"`` selects on held-out entries by a path of decreasing strengths.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol, Self

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from ncarl.containers import validate_observations
from ncarl.core.types import Array
from ncarl.dataset import InMemoryDataset
from ncarl.engines import pick_engine
from ncarl.engines.base import Engine
from ncarl.estimators.base import (
    CENTERS,
    MAX_DENSE_GB,
    BaseCompleter,
    progress_callbacks,
)
from ncarl.estimators.validation import (
    check_callback,
    check_checkpoint,
    check_local_engine,
    check_positions,
    is_matrix,
    open_checkpoint,
)
from ncarl.fitting.loop import FitResult
from ncarl.fitting.matrix_model import MatrixModel, PreprocessedData
from ncarl.holdout import random_split
from ncarl.metrics import relative_rmse, rmse
from ncarl.observations import Observations
from ncarl.progress import progress_bar
from ncarl.solvers.base import (
    CONTINUATION_TOL,
    DenseProblem,
    Solver,
    SolverResult,
    SolverStep,
    SparseEntries,
    run_solver,
)
from ncarl.solvers.penalties import SpectralPenalty
from ncarl.solvers.proximal import ProximalGradient
from ncarl.solvers.soft_impute import SoftImputeALS
from ncarl.validation import check_choice, check_flag, check_integer, check_number

#: Ratio of consecutive strengths of a path, and the maximum number of them.
PATH_DECAY, MAX_PATH_LENGTH = 0.7, 40
#: A path ends once this many strengths that raised the rank have not improved on the
#: best error, or this many of any kind, or once the rank has risen and the error is
#: larger than the best by this factor.
RANK_PATIENCE, POINT_PATIENCE, ERROR_GROWTH_LIMIT = 2, 8, 1.05
#: Fraction of the entries that is held out.
VALIDATION_SHARE = 0.1
#: Relative error on held-out entries at which a path ends.
NEGLIGIBLE_ERROR = 1e-4
#: Strength relative to the largest useful one, if no entries can be held out.
FALLBACK_LAM_RATIO = 0.1
#: Strengths in the units of a solver are clipped to this range.
MIN_LAM, MAX_LAM = 1e-100, 1e100


class MatrixEstimator(BaseCompleter):
    """Base of the estimators whose model is the completed matrix itself.

    Subclasses store their parameters, check them (``_check_params``) and make a solver
    (``_make_solver``).
    """

    center: str | None
    scale: str | None
    max_iter: int | None
    tol: float | None
    progress: bool
    callback: Any
    checkpoint: Any
    #: Strength of the penalty of a model with noise, and the strengths tried for it.
    lam_: float | None
    path_: list[dict[str, Any]]
    #: Factor that converts a strength from the solver's units to the user's.
    _lam_unit = 1.0
    _saved_scalars: tuple[str, ...] = (
        "n_iter_",
        "converged_",
        "engine_",
        "residual_",
        "rank_",
        "objective_",
        "training_fingerprint_",
    )
    #: Fitted attributes that are arrays.
    _saved_arrays: tuple[str, ...] = ()
    _noise_hint = "this model has none; BayesianNCARL learns one"
    #: Default of ``max_iter`` and ``tol``.
    _default_stopping: tuple[int, float] = (1000, 1e-6)

    def fit(self, X: Any, y: Any = None) -> Self:
        """Complete ``X``.

        Parameters
        ----------
        X : array, masked array, frame or sparse matrix of shape (m, n)
            Matrix with missing entries: NaN, masked, null, or not stored.
        y : ignored
            For scikit-learn's interface.
        """
        max_iter, tol = self._check_all_params()
        engine = pick_engine(check_local_engine(self.engine, type(self).__name__))
        observed = self._read_training_matrix(X)
        checkpoint, search_state = open_checkpoint(self, InMemoryDataset(observed)), {}
        if checkpoint is not None and (saved := checkpoint.load()) is not None:
            with checkpoint.corrupt_on_error():
                search_state = saved[0]["search_state"]
        data = self._preprocess(observed)
        for name in ("gap_", "dual_"):  # of an earlier fit; not every solver sets them
            self.__dict__.pop(name, None)
        solver = self._make_solver(data, observed, engine, search_state)
        name = type(self).__name__
        with progress_callbacks(
            self.progress, self.callback, max_iter, name
        ) as observers:
            result = run_solver(
                solver,
                max_iter=max_iter,
                tol=tol,
                scale=data.value_unit(solver.degree),
                observers=observers,
                checkpoint=checkpoint,
                device=engine.compute_device,
                search_state=search_state,
            )
        self._to_user_units(result.history, data, solver.degree)
        self._set_fitted_attributes(
            observed, data, solver.finalize(result.last), result
        )
        self.engine_ = engine.describe()
        self._engine_picked = True
        return self._check_convergence(result, max_iter, tol)

    # --- implemented or overridden by subclasses -------------------------------------

    def _check_params(self) -> None:
        """Raise if a parameter of the subclass is invalid."""

    @abstractmethod
    def _make_solver(
        self,
        data: PreprocessedData,
        observed: Observations,
        engine: Engine,
        search_state: dict[str, Any],
    ) -> Solver:
        """Make the solver for preprocessed entries.

        Results of a search that precedes the fit are stored in ``search_state`` as
        JSON values; a fit that resumes from a checkpoint finds them there.
        """

    def _new_row_ridge(self) -> float | None:
        """Ridge penalty of the factors of new rows; None if there is no such rule."""
        return None

    def _make_model(
        self, data: PreprocessedData, solution: SolverResult, observed: Observations
    ) -> MatrixModel:
        """Make the model from the result of the solver."""
        return data.model(solution.X, solution.factors, self._new_row_ridge())

    def _get_default_stopping(self) -> tuple[int, float]:
        """Default of ``max_iter`` and ``tol``."""
        return self._default_stopping

    # --- fit -------------------------------------------------------------------------

    def _check_all_params(self) -> tuple[int, float]:
        """Check all parameters; return ``max_iter`` and ``tol`` with their defaults."""
        check_choice("center", self.center, CENTERS)
        check_choice("scale", self.scale, (None, "columns"))
        check_flag("progress", self.progress)
        check_callback(self.callback)
        check_checkpoint(self.checkpoint)
        self._check_params()
        max_iter, tol = self._get_default_stopping()
        if self.max_iter is not None:
            max_iter = check_integer("max_iter", self.max_iter, low=1)
        if self.tol is not None:
            tol = check_number("tol", self.tol, low=0.0)
        return max_iter, tol

    def _preprocess(self, observed: Observations) -> PreprocessedData:
        """Center and scale the entries."""
        return PreprocessedData.from_observations(
            observed, self.center, self.scale == "columns"
        )

    def _make_dense_problem(
        self, data: PreprocessedData, engine: Engine
    ) -> DenseProblem:
        """Make a dense problem; raise if it needs too much memory."""
        m, n = data.residuals.shape
        size = m * n * 8 / 1e9
        if size > MAX_DENSE_GB:
            raise ValueError(
                f"{type(self).__name__} works on dense {m} x {n} arrays of {size:.3g} "
                f"GB each, more than {MAX_DENSE_GB:g}; SoftImpute, BiasModel and "
                "BayesianNCARL work on the observed entries alone"
            )
        return DenseProblem.from_observations(data.residuals, engine.compute_device)

    def _to_user_units(
        self, history: dict[str, list[float]], data: PreprocessedData, degree: float
    ) -> None:
        """Convert the recorded ``mu`` and ``lam`` to the user's units."""
        factors = {"mu": data.value_unit(degree - 2.0), "lam": self._lam_unit}
        for name, factor in factors.items():
            if name in history:
                history[name] = [value * factor for value in history[name]]

    def _set_fitted_attributes(
        self,
        observed: Observations,
        data: PreprocessedData,
        solution: SolverResult,
        result: FitResult[Any],
    ) -> None:
        self.model_ = self._make_model(data, solution, observed)
        for name, value in solution.extras.items():
            setattr(self, name, value)
        self.training_ = observed
        self.training_fingerprint_ = observed.fingerprint()
        self.history_ = {name: np.asarray(col) for name, col in result.history.items()}
        self.n_iter_ = int(result.last.step)
        self.converged_ = result.converged
        self.residual_ = float(solution.residual)
        self.rank_ = int(solution.rank)
        self.objective_ = float(self.history_["objective"][-1])
        self.unidentified_rows_ = np.flatnonzero(observed.row_counts == 0)
        self.unidentified_columns_ = np.flatnonzero(observed.column_counts == 0)

    def _check_convergence(
        self, result: FitResult[Any], max_iter: int, tol: float
    ) -> Self:
        """Re-raise Ctrl-C; warn if the solver did not converge."""
        if result.interrupted:
            raise KeyboardInterrupt
        if tol > 0.0 and not result.converged and result.last.step >= max_iter:
            warnings.warn(
                f"{type(self).__name__} did not converge in max_iter={max_iter} steps "
                f"(change {result.last.change:.1e}, tol {tol:.1e}); the last step is "
                "kept. Raise max_iter or tol, or set tol=0 to run a fixed number of "
                "steps.",
                ConvergenceWarning,
                stacklevel=3,
            )
        return self

    # --- prediction ------------------------------------------------------------------

    def predict(
        self, rows: Any, cols: Any = None, return_std: Any = False, *, X: Any = None
    ) -> Any:
        """Completed values at single entries, or at all entries of a matrix.

        Parameters
        ----------
        rows, cols : array-like of int, shape (entries,)
            Positions, counted from 0. Without ``cols``, ``rows`` is a matrix like
            that of ``transform`` and every entry of it is predicted.
        return_std : False
            This model has no standard deviations.
        X : container, optional
            The matrix that the positions refer to; by default that of the fit.

        Returns
        -------
        values : array of shape (entries,), or (m, n) for a matrix
            Completed values.
        """
        check_is_fitted(self)
        if cols is None or X is not None or return_std is not False:
            return super().predict(rows, cols, return_std, X=X)
        shape = (len(self.model_.effects), self.n_features_in_)
        i, j = check_positions(rows, cols, shape)
        return self.model_.predict(i, j)

    def score(self, X: Any, y: Any = None) -> float:
        """Minus the relative root mean square error; higher is better.

        Parameters
        ----------
        X : container of shape (m, n)
            The matrix of the fit (any, where there is a rule for new rows).
        y : container of shape (m, n), optional
            The truth: entries missing in ``X`` and observed in ``y`` are scored.
            Without it a fixed tenth of the observed entries of ``X`` is hidden, a copy
            of the estimator is fitted to the rest, and the hidden entries are scored.
        """
        check_is_fitted(self)
        if self.model_.supports_new_rows or (y is not None and is_matrix(y)):
            return super().score(X, y)
        observed = validate_observations(self, X, reset=False)
        kept, hidden = random_split(observed, 0.1, np.random.default_rng(0))
        if hidden.n_observed == 0:
            raise ValueError(
                "nothing to score: X has too few observed entries to hide a tenth of "
                "them"
            )
        again = clone(self).set_params(checkpoint=None, callback=None, progress=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            again.fit(kept.to_csr())
        guess = again.predict(hidden.rows, hidden.indices.astype(np.int64))
        return -relative_rmse(hidden.values, guess)

    def _read_rows(self, X: Any) -> Observations:
        """Validate ``X``: the matrix of the fit, or any if new rows are supported."""
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
        """Whether these entries are those of the fit."""
        return observed.fingerprint() == self.training_fingerprint_

    def _model_for_rows(self, observed: Observations) -> MatrixModel:
        """The model for rows that `_read_rows` has accepted."""
        model: MatrixModel = self.model_
        if not model.supports_new_rows or self._is_training(observed):
            return model
        return model.fold_in(observed)

    def _complete(
        self, observed: Observations, std: str | None, *, inductive: bool = False
    ) -> tuple[Array, Array | None]:
        return self._model_for_rows(observed).complete(), None

    def _predict_entries(
        self,
        observed: Observations,
        i: Array,
        j: Array,
        std: str | None,
        *,
        inductive: bool = False,
    ) -> tuple[Array, Array | None]:
        return self._model_for_rows(observed).predict(i, j), None

    def _model_state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Header and arrays of the model for a saved file."""
        header, arrays = self.model_.to_state()
        own = {f"own/{name}": getattr(self, name) for name in self._saved_arrays}
        return header, arrays | own

    def _set_model_state(
        self, header: dict[str, Any], arrays: dict[str, Array]
    ) -> None:
        """Restore the model from a saved file."""
        self.model_ = MatrixModel.from_state(header, arrays)
        for name in self._saved_arrays:
            setattr(self, name, arrays[f"own/{name}"])


def check_lam(lam: Any, *, exact: bool = True) -> None:
    """Raise if ``lam`` is not a strength; None is valid if there is an exact model."""
    if (lam is None and exact) or (isinstance(lam, str) and lam == "auto"):
        return
    hint = "; 'auto' chooses it on held-out entries"
    check_number("lam", lam, low=0.0, strict=True, hint=hint)


def check_factored_params(estimator: Any) -> None:
    """Raise if a parameter that the factored models share is invalid."""
    if estimator.rank is not None:
        check_integer("rank", estimator.rank, low=1)
    check_lam(estimator.lam)
    check_integer("random_state", estimator.random_state, low=0)
    if estimator.mu is None:
        return
    check_number("mu", estimator.mu, low=0.0, strict=True)
    if estimator.lam is not None:
        raise ValueError(
            f"mu belongs to lam=None, got lam={estimator.lam!r} with "
            f"mu={estimator.mu!r}; leave one of them out"
        )


class PathSolver(Solver, Protocol):
    """A solver that can start from the last state of another strength."""

    def warm_start(self, state: Any) -> Any:
        """Make the initial state from the last state of another strength."""
        ...


@dataclass(frozen=True)
class PathProblem:
    """The solvers of all strengths, for some entries."""

    max_strength: float  # the smallest strength whose result is 0
    make_solver: Callable[[float], PathSolver]  # the solver of a strength
    tol: float = CONTINUATION_TOL  # tolerance of a run on the path


#: Makes the problem of preprocessed entries.
PathFactory = Callable[[PreprocessedData], PathProblem]


def proximal_gradient_path(
    estimator: Any, penalty: SpectralPenalty, engine: Engine
) -> PathFactory:
    """Path of proximal gradient solvers of a penalty."""

    def make_problem(data: PreprocessedData) -> PathProblem:
        problem = estimator._make_dense_problem(data, engine)
        largest = penalty.strength(problem.spectral_norm)
        return PathProblem(largest, lambda lam: ProximalGradient(problem, penalty, lam))

    return make_problem


def als_path(max_rank: int | None, seed: int, engine: Engine) -> PathFactory:
    """Path of soft-impute ALS solvers with a maximum rank."""

    def make_problem(data: PreprocessedData) -> PathProblem:
        entries = SparseEntries(data.residuals, engine.compute_device)
        rank = min(entries.shape) if max_rank is None else max_rank
        return PathProblem(
            entries.spectral_norm, lambda lam: SoftImputeALS(entries, lam, rank, seed)
        )

    return make_problem


def make_penalized_solver(
    estimator: Any,
    path_factory: PathFactory,
    data: PreprocessedData,
    observed: Observations,
    degree: float,
    search_state: dict[str, Any],
    share: float = VALIDATION_SHARE,
) -> Solver:
    """Make the solver of an estimator with the strength ``lam``.

    With ``lam="auto"`` the strength is selected on held-out entries by a path of
    decreasing strengths, and the solver starts from the state of the best one: with a
    nonconvex penalty it would otherwise reach another stationary point. Sets ``lam_``
    and ``path_``; ``search_state`` is the part of them that a checkpoint keeps.
    """
    estimator.path_, start = [], None
    if not isinstance(estimator.lam, str):
        search_state["lam"] = float(estimator.lam)
    elif "lam" not in search_state:
        start = _search_lam(
            estimator, path_factory, observed, degree, search_state, share
        )
    estimator.path_ = search_state.get("path", [])
    estimator.lam_ = float(search_state["lam"])
    estimator._lam_unit = data.value_unit(2.0 - degree)
    solver = path_factory(data).make_solver(
        lam_in_solver_units(estimator.lam_, data, degree)
    )
    if start is None or start.unit != data.value_unit():
        return solver
    return WarmStartedSolver(solver, start.state)


def lam_in_solver_units(lam: float, data: PreprocessedData, degree: float) -> float:
    """Convert a strength to the units of the solver, for a penalty of some degree."""
    inner = lam / data.value_unit(2.0 - degree)
    return float(min(max(inner, MIN_LAM), MAX_LAM))


@dataclass(frozen=True)
class WarmStartedSolver:
    """A solver whose initial state is the last state of another one.

    The other one had another strength, or other entries.
    """

    solver: PathSolver
    state: Any  # last state of the other solver

    @property
    def degree(self) -> float:
        """Degree of homogeneity of the objective."""
        return self.solver.degree

    def initial_state(self) -> Any:
        """Warm start of the solver."""
        return self.solver.warm_start(self.state)

    def steps(self, state: Any, step: int) -> Iterator[SolverStep]:
        """Yield the steps of the solver."""
        return self.solver.steps(state, step)

    def finalize(self, last: SolverStep) -> SolverResult:
        """Result of the solver."""
        return self.solver.finalize(last)


@dataclass(frozen=True)
class _WarmStart:
    """The last state of the best point of a path, and the unit of its values."""

    state: Any
    unit: float


def _search_lam(
    estimator: Any,
    path_factory: PathFactory,
    observed: Observations,
    degree: float,
    search_state: dict[str, Any],
    share: float,
) -> _WarmStart | None:
    """Select the strength on held-out entries, and store it in ``search_state``."""
    rng = np.random.default_rng(int(estimator.random_state))
    kept, hidden = random_split(observed, share, rng)
    if hidden.n_observed == 0:
        warnings.warn(
            "X has too few observed entries to hide some of them; lam='auto' takes "
            f"{FALLBACK_LAM_RATIO:g} of the largest useful strength",
            UserWarning,
            stacklevel=5,
        )
        data = estimator._preprocess(observed)
        unit = data.value_unit(2.0 - degree)
        search_state["lam"] = (
            FALLBACK_LAM_RATIO * path_factory(data).max_strength * unit
        )
        return None
    data = estimator._preprocess(kept)
    problem = path_factory(data)
    score, size = _make_scorer(data, hidden)
    with progress_bar(estimator.progress, MAX_PATH_LENGTH, "search") as advance:
        points, state = fit_path(
            problem.make_solver,
            problem.max_strength,
            score,
            tol=problem.tol,
            target_error=NEGLIGIBLE_ERROR * size,
            on_point=lambda point: advance(f"error {point.error:.4g}"),
        )
    best = min(points, key=lambda point: point.error)
    unit = data.value_unit(2.0 - degree)
    # The singular values of noise grow with the square root of the number of entries,
    # so the threshold must grow when the held-out entries are added again.
    growth = (observed.n_observed / kept.n_observed) ** (1.0 - degree / 2.0)
    search_state["lam"] = best.strength * unit * growth
    search_state["path"] = [
        {
            "lam": point.strength * unit,
            "error": point.error,
            "steps": point.steps,
            "rank": point.rank,
        }
        for point in points
    ]
    return _WarmStart(state, data.value_unit())


def _make_scorer(
    data: PreprocessedData, hidden: Observations
) -> tuple[Callable[[SolverResult], float], float]:
    """Make the function that scores a result on hidden entries, and their RMS.

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


@dataclass(frozen=True)
class PathPoint:
    """One strength of a path."""

    strength: float  # in the solver's units
    error: float  # on the held-out entries
    steps: int
    rank: int  # of the result


def fit_path(
    make_solver: Callable[[float], PathSolver],
    max_strength: float,
    score: Callable[[SolverResult], float],
    *,
    max_iter: int = 200,
    tol: float,
    target_error: float = 0.0,
    on_point: Callable[[PathPoint], None] = lambda _: None,
) -> tuple[list[PathPoint], Any]:
    """Fit decreasing strengths until the error on held-out entries stops falling.

    Returns all points of the path, and the last state of the best one.

    Parameters
    ----------
    make_solver : callable
        Makes the solver of a strength.
    max_strength : float
        The smallest strength whose result is 0.
    score : callable
        Error of a result on held-out entries.
    max_iter, tol
        Stopping criteria of the run for one strength.
    target_error : float
        The path ends at an error at or below this.
    on_point : callable
        Called with each point.
    """
    points: list[PathPoint] = []
    state: Any = None
    best_state: Any = None
    for k in range(1, MAX_PATH_LENGTH + 1):
        strength = max_strength * PATH_DECAY**k
        solver = make_solver(strength)
        start = solver.initial_state() if state is None else solver.warm_start(state)
        result = run_solver(solver, max_iter=max_iter, tol=tol, state=start)
        if result.interrupted:
            raise KeyboardInterrupt
        state = result.last.state
        solution = solver.finalize(result.last)
        points.append(
            PathPoint(strength, score(solution), result.last.step, solution.rank)
        )
        on_point(points[-1])
        best = min(range(len(points)), key=lambda i: points[i].error)
        if best == len(points) - 1:
            best_state = state
        if points[best].error <= target_error or _should_stop(points[best:]):
            break
    return points, best_state


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
