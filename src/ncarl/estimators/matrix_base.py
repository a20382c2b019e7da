"""What estimators share that complete one matrix as a whole: the paper's rivals."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from typing import Any, Self

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from ncarl.checkpoint import Checkpoint
from ncarl.containers import read
from ncarl.core.types import Array
from ncarl.engines import Engine, pick_engine
from ncarl.estimators.asked import is_matrix, position_pair
from ncarl.estimators.base import CENTERS, MAX_DENSE_GB, Completer
from ncarl.estimators.parameters import (
    check_callback,
    check_checkpoint,
    check_choice,
    check_flag,
    check_number,
    check_one_place,
    check_whole,
    digest,
)
from ncarl.estimators.watching import watchers
from ncarl.holdout import hold_out
from ncarl.loop import Result
from ncarl.matrix_model import MatrixModel, Ready
from ncarl.metrics import relative_rmse
from ncarl.observed import Observed
from ncarl.solvers.problem import Ending, Problem, Solver, Step
from ncarl.solvers.run import StateFile, run

#: Parameters that do not change what a run finds, only how far or where it goes.
FREE = ("engine", "max_iter", "tol", "progress", "callback", "checkpoint")


class MatrixEstimator(Completer):
    """Base of the estimators whose model is the completed matrix itself.

    Subclasses store their parameters, check them (``_check``) and name a solver
    (``_solver``).
    """

    center: str | None
    scale: str | None
    max_iter: int | None
    tol: float | None
    progress: bool
    callback: Any
    checkpoint: Any
    #: Strength of a penalty with noise, and the strengths that were tried for it.
    lam_: float | None
    path_: list[dict[str, Any]]
    #: What one unit of a strength in a solver is in the user's.
    _lam_unit = 1.0
    _scalars: tuple[str, ...] = (
        "n_iter_",
        "converged_",
        "engine_",
        "residual_",
        "rank_",
        "objective_",
        "training_fingerprint_",
    )
    #: Fitted attributes besides these that are arrays.
    _own_arrays: tuple[str, ...] = ()
    _noise_hint = "this model has none; BayesianNCARL learns one"
    #: Most steps and tolerance where the user names none.
    _usual: tuple[int, float] = (1000, 1e-6)

    def fit(self, X: Any, y: Any = None) -> Self:
        """Complete ``X``.

        Parameters
        ----------
        X : array, masked array, frame or sparse matrix of shape (m, n)
            Matrix with gaps: NaN, masked, null, or not stored.
        y : ignored
            For scikit-learn's interface.
        """
        max_iter, tol = self._check_all()
        engine = pick_engine(check_one_place(self.engine, type(self).__name__))
        observed = self._read_fit(X)
        file = self._file(observed, engine)
        found = {} if file is None else file.found
        ready = self._ready(observed)
        for name in ("gap_", "dual_"):  # not every solver sets them anew
            self.__dict__.pop(name, None)
        solver = self._solver(ready, observed, engine, found)
        name = type(self).__name__
        with watchers(self.progress, self.callback, max_iter, name) as seen:
            result = run(
                solver,
                max_iter=max_iter,
                tol=tol,
                scale=ready.value_unit(solver.degree),
                observers=seen,
                file=file,
            )
        self._to_user_units(result.history, ready, solver.degree)
        self._take_up(observed, ready, solver.end(result.last), result)
        self.engine_ = engine.describe()
        self._engine_picked = True
        return self._checked_end(result, max_iter, tol)

    # --- what a subclass says --------------------------------------------------------

    def _check(self) -> None:
        """Raise if a parameter of its own is wrong."""

    @abstractmethod
    def _solver(
        self, ready: Ready, observed: Observed, engine: Engine, found: dict[str, Any]
    ) -> Solver:
        """The solver of entries made ready.

        What had to be found out first is put into ``found``, as JSON can hold it, and
        is there already when a fit goes on from a checkpoint.
        """

    def _new_row_ridge(self) -> float | None:
        """Ridge with which factors of new rows are found; None for no such rule."""
        return None

    def _model(self, ready: Ready, ending: Ending, observed: Observed) -> MatrixModel:
        """The model that the end of a run stands for."""
        return ready.model(ending.X, ending.factors, self._new_row_ridge())

    def _limits(self) -> tuple[int, float]:
        """Most steps and tolerance where the user names none."""
        return self._usual

    # --- the rest --------------------------------------------------------------------

    def _check_all(self) -> tuple[int, float]:
        """Check the parameters; most steps and tolerance."""
        check_choice("center", self.center, CENTERS)
        check_choice("scale", self.scale, (None, "columns"))
        check_flag("progress", self.progress)
        check_callback(self.callback)
        check_checkpoint(self.checkpoint)
        self._check()
        steps, tol = self._limits()
        if self.max_iter is not None:
            steps = check_whole("max_iter", self.max_iter, low=1)
        if self.tol is not None:
            tol = check_number("tol", self.tol, low=0.0)
        return steps, tol

    def _ready(self, observed: Observed) -> Ready:
        """Entries made ready for the solver."""
        return Ready.of(observed, self.center, self.scale == "columns")

    def _dense(self, ready: Ready, engine: Engine) -> Problem:
        """The entries as a dense problem, if memory allows for one."""
        m, n = ready.residuals.shape
        size = m * n * 8 / 1e9
        if size > MAX_DENSE_GB:
            raise ValueError(
                f"{type(self).__name__} works on dense {m} x {n} arrays of {size:.3g} "
                f"GB each, more than {MAX_DENSE_GB:g}; SoftImpute, BiasModel and "
                "BayesianNCARL work on the observed entries alone"
            )
        return Problem.of(ready.residuals, engine.home)

    def _file(self, observed: Observed, engine: Engine) -> StateFile | None:
        """The checkpoint of the fit, and what it holds, if there is to be one."""
        if self.checkpoint is None:
            return None
        owner = {
            "class": type(self).__name__,
            **{
                name: digest(value)
                for name, value in self.get_params(deep=False).items()
                if name not in FREE
            },
            "shape": list(observed.shape),
            "data": observed.fingerprint(),
        }
        file = StateFile(Checkpoint.of(self.checkpoint), owner, engine.home)
        file.read()
        return file

    def _to_user_units(
        self, history: dict[str, list[float]], ready: Ready, degree: float
    ) -> None:
        """Bring the recorded weights and strengths to the user's units."""
        factors = {"mu": ready.value_unit(degree - 2.0), "lam": self._lam_unit}
        for name, factor in factors.items():
            if name in history:
                history[name] = [value * factor for value in history[name]]

    def _take_up(
        self, observed: Observed, ready: Ready, ending: Ending, result: Result[Step]
    ) -> None:
        """Set the fitted attributes."""
        self.model_ = self._model(ready, ending, observed)
        for name, value in ending.extras.items():
            setattr(self, name, value)
        self.training_ = observed
        self.training_fingerprint_ = observed.fingerprint()
        self.history_ = {name: np.asarray(col) for name, col in result.history.items()}
        self.n_iter_ = int(result.last.step)
        self.converged_ = result.converged
        self.residual_ = float(ending.residual)
        self.rank_ = int(ending.rank)
        self.objective_ = float(self.history_["objective"][-1])
        self.unidentified_rows_ = np.flatnonzero(observed.row_counts == 0)
        self.unidentified_columns_ = np.flatnonzero(observed.column_counts == 0)

    def _checked_end(self, result: Result[Step], max_iter: int, tol: float) -> Self:
        """The estimator; an interruption goes on, and no settling is told of."""
        if result.interrupted:
            raise KeyboardInterrupt
        if tol > 0.0 and not result.converged and result.last.step >= max_iter:
            warnings.warn(
                f"{type(self).__name__} did not settle in max_iter={max_iter} steps "
                f"(change {result.last.change:.1e}, tol {tol:.1e}); the last step is "
                "kept. Raise max_iter or tol, or set tol=0 to run a fixed number of "
                "steps.",
                ConvergenceWarning,
                stacklevel=3,
            )
        return self

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
        i, j = position_pair(rows, cols, shape)
        return self.model_.predict(i, j)

    def score(self, X: Any, y: Any = None) -> float:
        """Minus the relative root mean square error; higher is better.

        Parameters
        ----------
        X : container of shape (m, n)
            The matrix of the fit (any, where there is a rule for new rows).
        y : container of shape (m, n), optional
            The truth: entries missing in ``X`` and known in ``y`` are scored. Without
            it a fixed tenth of the observed entries of ``X`` is hidden, a copy of the
            estimator is fitted to the rest, and the hidden entries are scored.
        """
        check_is_fitted(self)
        if self.model_.new_rows or (y is not None and is_matrix(y)):
            return super().score(X, y)
        observed = read(self, X, reset=False)
        kept, hidden = hold_out(observed, 0.1, np.random.default_rng(0))
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

    def _read_rows(self, X: Any) -> Observed:
        """Entries of a matrix that the model can complete: that of the fit, or any."""
        observed = read(self, X, reset=False)
        if self.model_.new_rows or self._is_training(observed):
            return observed
        raise ValueError(
            f"{type(self).__name__} completes the matrix of its fit and has no rule "
            f"for others; got another X, of shape {observed.shape}. Use "
            "fit_transform(X) to complete this one, or NCARL, BayesianNCARL or "
            "SoftImpute, which complete new rows"
        )

    def _is_training(self, observed: Observed) -> bool:
        """Whether these are the entries of the fit."""
        return observed.fingerprint() == self.training_fingerprint_

    def _model_of(self, observed: Observed) -> MatrixModel:
        """The model of these rows, which `_read_rows` has let pass."""
        model: MatrixModel = self.model_
        if not model.new_rows or self._is_training(observed):
            return model
        return model.for_rows(observed)

    def _completed(
        self, observed: Observed, std: str | None, *, apart: bool = False
    ) -> tuple[Array, Array | None]:
        """Completed matrix."""
        return self._model_of(observed).complete(), None

    def _predicted(
        self, observed: Observed, i: Array, j: Array, std: str | None, *,
        apart: bool = False,
    ) -> tuple[Array, Array | None]:  # fmt: skip
        """Completed values at single entries."""
        return self._model_of(observed).predict(i, j), None

    def _model_state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """The model as a saved file holds it."""
        header, arrays = self.model_.state()
        own = {f"own/{name}": getattr(self, name) for name in self._own_arrays}
        return header, arrays | own

    def _set_model_state(
        self, header: dict[str, Any], arrays: dict[str, Array]
    ) -> None:
        """Take up the model that a saved file holds."""
        self.model_ = MatrixModel.restored(header, arrays)
        for name in self._own_arrays:
            setattr(self, name, arrays[f"own/{name}"])
