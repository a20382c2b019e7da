"""Other baselines: row and column effects, robust, dictionary and subspace models."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ncarl.centering import TwoWayEffects
from ncarl.core.types import Array
from ncarl.engines.base import Engine
from ncarl.estimators.baselines import MatrixEstimator
from ncarl.fitting.loop import FitResult, StepInfo
from ncarl.fitting.matrix_model import MatrixModel, PreprocessedData
from ncarl.observations import Observations
from ncarl.solvers.base import (
    Solver,
    SolverResult,
)
from ncarl.solvers.bias import BiasSolver
from ncarl.solvers.factored import default_rank
from ncarl.solvers.lrfd import DictionaryLearningSolver, LRFDSolver
from ncarl.solvers.regl1 import RegL1Solver
from ncarl.solvers.s3lr import S3LRSolver
from ncarl.validation import (
    check_choice,
    check_flag,
    check_fraction,
    check_integer,
    check_number,
)

#: Named dictionaries of LRFD.
DICTIONARIES = ("columns", "basis", "learned")
#: Norms of the errors of S3LR.
ERROR_NORMS = ("l1", "l21", "squared")


class BiasModel(MatrixEstimator):
    r"""Two-way model with ridge penalties: ``mean + row effect + column effect``.

    Parameters
    ----------
    row_ridge, column_ridge : "auto" or float, default="auto"
        Ridge penalties: an effect is the sum of the residuals of its entries divided by
        their number plus the ridge. "auto" learns them as ratios of variances.
    scale : {None, "columns"}, default=None
        "columns" divides every column by its standard deviation first; row effects are
        then in standard deviations.
    max_iter : int, optional
        Maximum number of sweeps over both sides; 2000 by default.
    tol : float, optional
        Tolerance on the largest change of an effect relative to the root mean square
        of the values; 1e-5 by default.
    engine : {"auto", "threads", "torch"} or Engine, default="auto"
        Accepted for consistency; the computation is cheap and runs on the host.
    progress : bool, default=False
        Show a progress bar.
    callback : callable, optional
        Called with a `StepInfo` after each step; returning True ends the fit.
    checkpoint : path or Checkpoint, optional
        File that keeps the state; if it exists, the fit resumes from it.

    Attributes
    ----------
    mean_ : float
        Mean of the observed values.
    row_effects_, column_effects_ : arrays of shape (m,) and (n,)
        The effects; those of rows in standard deviations with ``scale="columns"``.
    row_ridge_, column_ridge_ : float
        The ridges that were used.
    history_ : dict of arrays
        Per step: ``objective``, ``change``, ``row_ridge``, ``column_ridge``, seconds.
    residual_, objective_, n_iter_, converged_
        Relative residual of the centered values, last objective, number of steps,
        whether the fit converged.
    unidentified_rows_, unidentified_columns_ : arrays of int
        Rows and columns without observed entries; their effects are 0.

    Examples
    --------
    >>> import numpy as np
    >>> from ncarl import BiasModel
    >>> X = np.add.outer(np.arange(4.0), 10.0 * np.arange(3.0))
    >>> X[1, 2] = np.nan
    >>> BiasModel(row_ridge=0, column_ridge=0).fit_transform(X)[1, 2].round(6)
    np.float64(21.0)
    """

    center = None
    _default_stopping = (2000, 1e-5)
    _saved_scalars = (
        *MatrixEstimator._saved_scalars,
        "mean_",
        "row_ridge_",
        "column_ridge_",
    )
    _saved_arrays = ("row_effects_", "column_effects_")

    def __init__(
        self,
        row_ridge: float | str = "auto",
        column_ridge: float | str = "auto",
        scale: str | None = None,
        max_iter: int | None = None,
        tol: float | None = None,
        engine: str | Engine = "auto",
        progress: bool = False,
        callback: Callable[[StepInfo], object] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> None:
        self.row_ridge = row_ridge
        self.column_ridge = column_ridge
        self.scale = scale
        self.max_iter = max_iter
        self.tol = tol
        self.engine = engine
        self.progress = progress
        self.callback = callback
        self.checkpoint = checkpoint

    def _check_params(self) -> None:
        for name in ("row_ridge", "column_ridge"):
            given = getattr(self, name)
            if not (isinstance(given, str) and given == "auto"):
                check_number(name, given, low=0.0, hint="; 'auto' learns it")

    def _preprocess(self, observed: Observations) -> PreprocessedData:
        scaled = self.scale == "columns"
        return PreprocessedData.from_observations(
            observed, "columns" if scaled else "mean", scaled
        )

    def _make_solver(
        self,
        data: PreprocessedData,
        observed: Observations,
        engine: Engine,
        search_state: dict[str, Any],
    ) -> Solver:
        rows, columns = (
            None if isinstance(ridge, str) else float(ridge)
            for ridge in (self.row_ridge, self.column_ridge)
        )
        return BiasSolver(data.residuals, rows, columns)

    def _make_model(
        self, data: PreprocessedData, solution: SolverResult, observed: Observations
    ) -> MatrixModel:
        """The effects as the additive part of a model with empty factors."""
        effects: TwoWayEffects = solution.extras.pop("effects_")
        scales = data.centering.column_scales
        columns = data.centering.column_effects + scales * effects.column_effects
        centering = replace(
            data.centering, column_effects=columns, row_ridge=effects.row_ridge
        )
        inner = observed.with_values(observed.values / data.unit)
        rows = centering.row_effects(inner)
        self.mean_ = centering.mean * data.unit
        self.row_effects_ = rows * (1.0 if self.scale else data.unit)
        self.column_effects_ = columns * data.unit
        self.row_ridge_, self.column_ridge_ = effects.row_ridge, effects.column_ridge
        return MatrixModel(None, solution.factors, data.unit, centering, rows, 1.0)


class RegL1(MatrixEstimator):
    r"""Product ``U V`` of minimum absolute residuals and small nuclear norm.

    Minimizes the sum of absolute residuals plus ``lam ||V||_*`` where the columns of U
    are orthonormal. The loss grows only linearly with a residual, so a few gross errors
    do not spoil a fit of small ``rank``.

    Parameters
    ----------
    lam : float, default=1e-3
        Strength of the nuclear norm. A value as small as the default with a large
        ``rank`` fits every entry and gives the minimum nuclear norm of such fits, as
        `Nuclear` does. If a small rank is not known, the square root of the larger
        dimension times the observed fraction is robust to gross errors too.
    rank : int, optional
        Maximum number of columns of U; the rank of the truth if it is known, which
        makes the fit robust. By default as many as the minimum nuclear norm can need.
    rho : float, default=1.05
        Factor by which the penalty parameter ``mu`` grows in each step. The nearer to
        1, the nearer the result to the minimum, and the more steps.
    inner : int, default=1
        Number of alternating updates of the factors and the fitted entries before the
        multipliers are updated.
    nonnegative : bool, default=False
        Whether values are nonnegative.
    center : {None, "mean", "columns", "two-way"}, default=None
        What to subtract first.
    scale : {None, "columns"}, default=None
        "columns" divides every column by its standard deviation first.
    max_iter, tol : int and float, optional
        Maximum number of steps (1000), and tolerance on the distance between the copies
        and on the change (1e-6).
    engine : {"auto", "threads", "torch"} or Engine, default="auto"
        Where the computation runs; see `NCARL`.
    progress : bool, default=False
        Show a progress bar.
    callback : callable, optional
        Called with a `StepInfo` after each step; returning True ends the fit.
    checkpoint : path or Checkpoint, optional
        File that keeps the state; if it exists, the fit resumes from it.

    Attributes
    ----------
    history_ : dict of arrays
        Per step: ``objective``, ``change``, ``primal`` residual, ``rank``, ``mu``,
        seconds.
    residual_ : float
        Relative residual of the observed entries, which are not restored.
    rank_, objective_, n_iter_, converged_
        Rank, last objective, number of steps, and whether the fit converged.
    unidentified_rows_, unidentified_columns_ : arrays of int
        Rows and columns without observed entries; they get the center, 0 without one.

    References
    ----------
    Y. Zheng, G. Liu, S. Sugimoto, S. Yan, M. Okutomi, "Practical low-rank matrix
    approximation under robust L1-norm", CVPR 2012.

    Examples
    --------
    >>> import numpy as np
    >>> from ncarl import RegL1
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.standard_normal((40, 2)) @ rng.standard_normal((2, 30))
    >>> X = np.where(rng.random(truth.shape) < 0.05, 50.0, truth)
    >>> X[rng.random(truth.shape) < 0.2] = np.nan
    >>> completed = RegL1(rank=2).fit_transform(X)
    >>> bool(np.median(np.abs(completed - truth)) < 1e-3)
    True
    """

    def __init__(
        self,
        lam: float = 1e-3,
        rank: int | None = None,
        rho: float = 1.05,
        inner: int = 1,
        nonnegative: bool = False,
        center: str | None = None,
        scale: str | None = None,
        max_iter: int | None = None,
        tol: float | None = None,
        engine: str | Engine = "auto",
        progress: bool = False,
        callback: Callable[[StepInfo], object] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> None:
        self.lam = lam
        self.rank = rank
        self.rho = rho
        self.inner = inner
        self.nonnegative = nonnegative
        self.center = center
        self.scale = scale
        self.max_iter = max_iter
        self.tol = tol
        self.engine = engine
        self.progress = progress
        self.callback = callback
        self.checkpoint = checkpoint

    def _check_params(self) -> None:
        hint = "; without it missing entries are not determined"
        check_number("lam", self.lam, low=0.0, strict=True, hint=hint)
        if self.rank is not None:
            check_integer("rank", self.rank, low=1)
        check_number("rho", self.rho, low=1.0, strict=True)
        check_integer("inner", self.inner, low=1)
        check_flag("nonnegative", self.nonnegative)
        if self.nonnegative and self.center is not None:
            raise ValueError(
                "nonnegative=True is about the values themselves, got center="
                f"{self.center!r}, which is subtracted from them; leave one out"
            )

    def _get_default_stopping(self) -> tuple[int, float]:
        return 1000, 1e-6

    def _make_solver(
        self,
        data: PreprocessedData,
        observed: Observations,
        engine: Engine,
        search_state: dict[str, Any],
    ) -> Solver:
        if self.nonnegative and float(observed.values.min()) < 0.0:
            raise ValueError(
                "nonnegative=True needs values of at least 0, got "
                f"{float(observed.values.min()):g} in X; leave it out"
            )
        problem = self._make_dense_problem(data, engine)
        rank = default_rank(observed) if self.rank is None else int(self.rank)
        return RegL1Solver(
            problem,
            lam=float(self.lam),
            rank=min(rank, *problem.shape),
            growth=float(self.rho),
            inner=int(self.inner),
            nonnegative=self.nonnegative,
        )


class LRFD(MatrixEstimator):
    r"""Low-rank factor decomposition: minimum nuclear norm in a dictionary.

    ``min ||Z||_*`` such that ``D Z`` agrees with the observed entries. A dictionary
    of low rank whose columns span those of the matrix can complete matrices that the
    nuclear norm alone cannot: those of high coherence, in which few columns carry a
    direction.

    Parameters
    ----------
    dictionary : {"columns", "basis", "learned"} or array of shape (m, k)
        "columns" completes the matrix with minimum nuclear norm first, and takes the
        normalized columns of its best approximation of numerical rank; "basis" takes
        an orthonormal basis of them. An array is used as it is, on centered values.
        "learned" learns D and Z together, ``min ||D||_* + 1/2 ||Z||^2`` with observed
        entries fixed, which is the model of isomeric dictionary pursuit: the published
        objective of a learned LRFD was not available, and this one is related to it.
        It is nonconvex and has no recovery guarantee.
    rounds : int, default=1
        Number of dictionaries, each made of the last completion, for "columns" and
        "basis".
    lam : float, optional
        Strength of ``lam ||Z||_* + 1/2 ||P(D Z) - M||^2``, which allows for noise. None
        keeps observed entries fixed; if the dictionary cannot fit them (to 1e-4 of
        their norm), the penalized form is used with a warning, and its strength is 1e-4
        of the smallest that gives Z = 0, times the geometric mean of the singular
        values of D relative to the largest. Not for "learned".
    rank_tol : float, default=1e-3
        Singular values of a completion below this fraction of the largest do not count
        for its rank.
    center : {None, "mean", "columns", "two-way"}, default=None
        What to subtract first.
    scale : {None, "columns"}, default=None
        "columns" divides every column by its standard deviation first.
    max_iter, tol : int and float, optional
        Maximum number of steps of all stages together, 3000 by default, at most 500 of
        them for the first completion; and tolerance on the change, 1e-6.
    engine : {"auto", "threads", "torch"} or Engine, default="auto"
        Where the computation runs; see `NCARL`.
    progress : bool, default=False
        Show a progress bar.
    callback : callable, optional
        Called with a `StepInfo` after each step; returning True ends the fit.
    checkpoint : path or Checkpoint, optional
        File that keeps the state; if it exists, the fit resumes from it.

    Attributes
    ----------
    dictionary_ : array of shape (m, k)
        The dictionary of the last round, or the learned one; a column of zeros if the
        fit ended before there was one.
    penalized_ : bool
        Whether the penalized form was used.
    history_ : dict of arrays
        Per step: ``stage`` (1 the first completion, 2 the exact form, 3 the penalized
        one), ``round``, ``objective`` (of stage 3 divided by ``lam``), ``change``,
        ``primal`` and ``dual`` residual, ``gap``, ``rank``, ``mu``, seconds.
    residual_ : float
        Relative residual of the observed entries before they are restored.
    lam_ : float or None
        Strength of the penalized form, if it was used.
    rank_, objective_, n_iter_, converged_
        Rank before that, last objective, number of steps, and whether the fit
        converged.
    unidentified_rows_, unidentified_columns_ : arrays of int
        Rows and columns without observed entries; the rows are predicted from the
        dictionary, the columns get the center, 0 without one.

    References
    ----------
    G. Liu, P. Li, "Low-rank matrix completion in the presence of high coherence",
    IEEE Transactions on Signal Processing 64(21), 2016.
    G. Liu, Q. Liu, X. Yuan, "A new theory for matrix completion", 2017.

    Examples
    --------
    >>> import numpy as np
    >>> from ncarl import LRFD
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.standard_normal((40, 2)) @ rng.standard_normal((2, 30))
    >>> X = np.where(rng.random(truth.shape) < 0.6, truth, np.nan)
    >>> model = LRFD().fit(X)
    >>> bool(np.abs(model.transform(X) - truth).max() < 1e-3), model.penalized_
    (True, False)
    """

    _saved_scalars = (*MatrixEstimator._saved_scalars, "penalized_", "lam_")
    _saved_arrays = ("dictionary_",)
    _default_stopping = (3000, 1e-6)

    def __init__(
        self,
        dictionary: str | Array = "columns",
        rounds: int = 1,
        lam: float | None = None,
        rank_tol: float = 1e-3,
        center: str | None = None,
        scale: str | None = None,
        max_iter: int | None = None,
        tol: float | None = None,
        engine: str | Engine = "auto",
        progress: bool = False,
        callback: Callable[[StepInfo], object] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> None:
        self.dictionary = dictionary
        self.rounds = rounds
        self.lam = lam
        self.rank_tol = rank_tol
        self.center = center
        self.scale = scale
        self.max_iter = max_iter
        self.tol = tol
        self.engine = engine
        self.progress = progress
        self.callback = callback
        self.checkpoint = checkpoint

    def _check_params(self) -> None:
        named = isinstance(self.dictionary, str) or self.dictionary is None
        if named:
            check_choice("dictionary", self.dictionary, DICTIONARIES)
        else:
            _check_dictionary(self.dictionary)
        rounds = check_integer("rounds", self.rounds, low=1)
        if rounds > 1 and (not named or self.dictionary == "learned"):
            raise ValueError(
                "rounds belongs to dictionary='columns' or 'basis', which are made of "
                f"the last completion; got rounds={rounds} with another dictionary"
            )
        if self.lam is not None:
            check_number("lam", self.lam, low=0.0, strict=True)
            if named and self.dictionary == "learned":
                raise ValueError(
                    "dictionary='learned' keeps observed entries fixed, got "
                    f"lam={self.lam!r}; leave lam out"
                )
        check_fraction("rank_tol", self.rank_tol)

    def _make_solver(
        self,
        data: PreprocessedData,
        observed: Observations,
        engine: Engine,
        search_state: dict[str, Any],
    ) -> Solver:
        problem = self._make_dense_problem(data, engine)
        if isinstance(self.dictionary, str) and self.dictionary == "learned":
            return DictionaryLearningSolver(problem)
        given = None
        if not isinstance(self.dictionary, str):
            given = _check_dictionary(self.dictionary)
            if given.shape[0] != problem.shape[0]:
                raise ValueError(
                    f"dictionary must have as many rows as X, {problem.shape[0]}, got "
                    f"shape {given.shape}"
                )
        return LRFDSolver(
            problem,
            kind=self.dictionary if given is None else "columns",
            dictionary=given,
            rounds=int(self.rounds),
            lam=None if self.lam is None else float(self.lam) / data.value_unit(),
            rank_tol=float(self.rank_tol),
            tol=self._default_stopping[1] if self.tol is None else float(self.tol),
        )

    def _set_fitted_attributes(
        self,
        observed: Observations,
        data: PreprocessedData,
        solution: SolverResult,
        result: FitResult[Any],
    ) -> None:
        super()._set_fitted_attributes(observed, data, solution, result)
        if self.lam_ is None:
            return
        self.lam_ *= data.value_unit()
        if self.lam is None:
            warnings.warn(
                "the dictionary cannot fit the observed entries, so lam was set to "
                f"{self.lam_:.3g} (the relative residual is {self.residual_:.1e}). "
                "Lower rank_tol for a larger dictionary, or set lam",
                UserWarning,
                stacklevel=3,
            )


def _check_dictionary(dictionary: Any) -> Any:
    """Validate a dictionary: a matrix of finite numbers with at least one column."""
    try:
        D = np.asarray(dictionary, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise TypeError(
            f"dictionary must be one of {', '.join(map(repr, DICTIONARIES))} or a "
            f"matrix of numbers, got {type(dictionary).__name__}"
        ) from None
    if D.ndim != 2 or 0 in D.shape or not np.isfinite(D).all():
        raise ValueError(
            "dictionary must be a matrix of finite numbers with at least one column, "
            f"got shape {D.shape}"
        )
    return D


class S3LR(MatrixEstimator):
    r"""Structured sparse plus structured low-rank: subspace clustering and completion.

    Columns are modeled as points of several subspaces: each is a combination of few
    others of its cluster, ``X = X C + E`` with 0 on the diagonal of C. Completion and
    coefficients minimize ``sum_j ||X_j||_* + g0 |C|_1 + G |T o C|_1 + lam |E|`` with
    observed entries fixed, where ``X_j`` are the columns of cluster j and T marks pairs
    of different clusters; then spectral clustering of ``|C| + |C|^T`` gives new
    clusters. The first round has one cluster. The problem is nonconvex, and ``mu``
    grows by ``rho`` in each step, so the result depends on the iterates.

    Parameters
    ----------
    n_clusters : "auto" or int, default="auto"
        Number of clusters; "auto" selects it by the largest gap between the first
        eleven eigenvalues of the normalized Laplacian after the first round.
    lam : float, default=20
        Strength of the errors E; 0 leaves the nuclear norm alone. The default nearly
        forbids errors. For "squared" it is divided by the typical norm of a column.
    g0, G : float, default=0.02
        Strength of all coefficients, and additional strength of those between clusters,
        times the typical norm of a column: the root of m times the root mean square of
        the values.
    relax : bool, default=False
        Take the nuclear norm of all columns together, regardless of the clusters.
    error_norm : {"l1", "l21", "squared"}, default="l1"
        Norm of E: the sum of its absolute values, the sum of the norms of its columns,
        or half the sum of its squares.
    max_rounds : int, default=50
        Maximum number of rounds. Fewer are made once less than 0.15% of the
        coefficients are between clusters, or once the clusters stay the same and X
        changes by less than 1%.
    rho : float, default=1.1
        Factor by which ``mu``, the penalty parameter of the constraints, grows in each
        step. The nearer to 1, the nearer the end of a round to a stationary point, and
        the more steps.
    random_state : int, default=0
        Seed of the clustering.
    center : {None, "mean", "columns", "two-way"}, default=None
        What to subtract first.
    scale : {None, "columns"}, default=None
        "columns" divides every column by its standard deviation first.
    max_iter, tol : int and float, optional
        Maximum number of steps of all rounds together, 2000 by default, at most 300 of
        them for each round but the last; and tolerance of a round on the residuals of
        both constraints and the change of X, 1e-4.
    engine : {"auto", "threads", "torch"} or Engine, default="auto"
        Where the computation runs; see `NCARL`.
    progress : bool, default=False
        Show a progress bar.
    callback : callable, optional
        Called with a `StepInfo` after each step; returning True ends the fit.
    checkpoint : path or Checkpoint, optional
        File that keeps the state; if it exists, the fit resumes from it.

    Attributes
    ----------
    labels_ : array of int, shape (n,)
        Cluster of each column.
    coefficients_ : array of shape (n, n)
        Coefficients C: its column j combines the other columns to column j.
    n_clusters_, rounds_ : int
        Number of clusters, and of rounds made.
    history_ : dict of arrays
        Per step: ``round``, ``objective``, ``change``, residuals of the observed
        entries (``observed``) and of ``X = X C + E`` (``made``), ``clusters`` (0
        before their number is selected), ``rank``, ``mu``, seconds.
    residual_ : float
        Relative residual of the observed entries before they are restored.
    rank_, objective_, n_iter_, converged_
        Rank before that, summed over the clusters, last objective, number of steps, and
        whether the last round converged.
    unidentified_rows_, unidentified_columns_ : arrays of int
        Rows and columns without observed entries; they get the center, 0 without one.

    References
    ----------
    C.-G. Li, R. Vidal, "A structured sparse plus structured low-rank framework for
    subspace clustering and completion", IEEE Transactions on Signal Processing
    64(24), 2016.

    Examples
    --------
    >>> import numpy as np
    >>> from ncarl import S3LR
    >>> rng = np.random.default_rng(0)
    >>> truth = np.zeros((20, 30))
    >>> truth[:10, :15] = rng.standard_normal((10, 2)) @ rng.standard_normal((2, 15))
    >>> truth[10:, 15:] = rng.standard_normal((10, 2)) @ rng.standard_normal((2, 15))
    >>> X = np.where(rng.random(truth.shape) < 0.8, truth, np.nan)
    >>> model = S3LR().fit(X)
    >>> model.n_clusters_, np.unique(model.labels_[:15]), np.unique(model.labels_[15:])
    (2, array([0]), array([1]))
    """

    _saved_scalars = (*MatrixEstimator._saved_scalars, "n_clusters_", "rounds_")
    _saved_arrays = ("labels_", "coefficients_")
    _default_stopping = (2000, 1e-4)

    def __init__(
        self,
        n_clusters: int | str = "auto",
        lam: float = 20.0,
        g0: float = 0.02,
        G: float = 0.02,
        relax: bool = False,
        error_norm: str = "l1",
        max_rounds: int = 50,
        rho: float = 1.1,
        random_state: int = 0,
        center: str | None = None,
        scale: str | None = None,
        max_iter: int | None = None,
        tol: float | None = None,
        engine: str | Engine = "auto",
        progress: bool = False,
        callback: Callable[[StepInfo], object] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.lam = lam
        self.g0 = g0
        self.G = G
        self.relax = relax
        self.error_norm = error_norm
        self.max_rounds = max_rounds
        self.rho = rho
        self.random_state = random_state
        self.center = center
        self.scale = scale
        self.max_iter = max_iter
        self.tol = tol
        self.engine = engine
        self.progress = progress
        self.callback = callback
        self.checkpoint = checkpoint

    def _check_params(self) -> None:
        if not (isinstance(self.n_clusters, str) and self.n_clusters == "auto"):
            hint = "; 'auto' finds one"
            check_integer("n_clusters", self.n_clusters, low=1, hint=hint)
        for name in ("lam", "g0", "G"):
            check_number(name, getattr(self, name), low=0.0)
        check_flag("relax", self.relax)
        check_choice("error_norm", self.error_norm, ERROR_NORMS)
        check_integer("max_rounds", self.max_rounds, low=1)
        check_number("rho", self.rho, low=1.0, strict=True)
        check_integer("random_state", self.random_state, low=0)

    def _make_solver(
        self,
        data: PreprocessedData,
        observed: Observations,
        engine: Engine,
        search_state: dict[str, Any],
    ) -> Solver:
        problem = self._make_dense_problem(data, engine)
        m, n = problem.shape
        clusters = 0 if isinstance(self.n_clusters, str) else int(self.n_clusters)
        if clusters > n:
            raise ValueError(
                f"n_clusters must be at most the number of columns, {n}, got "
                f"{self.n_clusters!r}; 'auto' finds one"
            )
        # Coefficients have no unit, the other terms have that of the values.
        length = math.sqrt(m) * problem.rms
        squared = self.error_norm == "squared"
        return S3LRSolver(
            problem,
            lam=float(self.lam) / (length if squared else 1.0),
            g0=float(self.g0) * length,
            G=float(self.G) * length,
            norm=self.error_norm,
            relax=bool(self.relax),
            n_clusters=clusters,
            rounds=int(self.max_rounds),
            rho=float(self.rho),
            tol=self._default_stopping[1] if self.tol is None else float(self.tol),
            seed=int(self.random_state),
        )
