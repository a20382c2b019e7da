"""Low-rank baselines: penalties on singular values, directly or through factors.

`Nuclear`, `SchattenP` and `WNNM` work on singular values, `FactoredNuclear` and `FGSR`
on two factors, and `SoftImpute` on factors of sparse data.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

from ncarl.core.types import Array
from ncarl.engines.base import Engine
from ncarl.estimators.baselines import (
    MatrixEstimator,
    PathFactory,
    PathProblem,
    als_path,
    check_factored_params,
    check_lam,
    lam_in_solver_units,
    make_penalized_solver,
    proximal_gradient_path,
)
from ncarl.fitting.loop import StepInfo
from ncarl.fitting.matrix_model import PreprocessedData
from ncarl.observations import Observations
from ncarl.solvers.admm import (
    ADMM,
    GeometricPenalty,
    ResidualBalancing,
)
from ncarl.solvers.base import DenseProblem, Solver, SparseEntries, run_solver
from ncarl.solvers.factored import (
    FactoredADMM,
    GroupSparseADMM,
    GroupSparsePALM,
    GroupSparseRegularizer,
    default_rank,
)
from ncarl.solvers.penalties import LogNuclear, NuclearNorm, SchattenNorm
from ncarl.solvers.proximal import ProximalGradient, SingularValueThresholding
from ncarl.solvers.soft_impute import SoftImputeSVD
from ncarl.validation import check_choice, check_fraction, check_integer, check_number

#: Solvers of Nuclear, with their default ``max_iter`` and ``tol``.
NUCLEAR_SOLVERS = {
    "admm": (2000, 1e-6),
    "ialm": (1000, 1e-6),
    "svt": (500, 1e-4),
    "apg": (1000, 1e-5),
}
#: Parameters that only some of them have.
NUCLEAR_SOLVER_PARAMS = {
    "lam": ("apg",),
    "mu": ("admm", "ialm"),
    "rho": ("ialm",),
    "t": ("svt",),
}
#: Upper bounds of the first and last ``mu`` of "ialm", times the largest singular
#: value: there the two copies of the matrix agree to machine precision.
IALM_FIRST_MU, IALM_MAX_MU = 1e10, 1e20
#: Default strength of "apg", relative to the largest singular value.
APG_DEFAULT_LAM = 1e-4

#: Initial threshold of SchattenP relative to the largest singular value: rank one.
SCHATTEN_INITIAL_THRESHOLD = 0.9
#: Factor by which ``mu`` of SchattenP may grow.
SCHATTEN_MU_GROWTH = 1e10
#: ``max_iter`` and ``tol`` of the nuclear norm completion that it may start from.
SCHATTEN_START_STEPS, SCHATTEN_START_TOL = 300, 1e-3

#: Factor by which ``mu`` of WNNM may grow.
WNNM_MU_GROWTH = 1e13
#: Default ``C`` relative to the largest singular value.
WNNM_DEFAULT_C = 0.5
#: Default ``eps`` relative to the root mean square of the values.
WNNM_DEFAULT_EPS = 1e-6

#: Default ``mu`` of FactoredNuclear, times the largest singular value.
FACTORED_DEFAULT_MU = 5.0
#: Tolerance of the ``p`` of FGSR.
FGSR_P_TOL = 1e-3


class Nuclear(MatrixEstimator):
    r"""Completion of minimum nuclear norm (sum of singular values).

    Parameters
    ----------
    solver : {"admm", "ialm", "svt", "apg"}, default="admm"
        "admm" stops at a small duality gap; "ialm" is the inexact augmented Lagrangian
        as the paper ran it, whose growing ``mu`` stops it early; "svt" adds half the
        squared Frobenius norm; "apg" allows for noise.
    lam : float, "auto" or None, default=None
        Strength of the norm against half the squared residuals, for "apg". None is
        1e-4 of the largest singular value; "auto" selects it on held-out entries.
    mu : float, optional
        Initial penalty parameter of the constraint between the two copies of the
        matrix, for "admm" (default 1 / largest singular value) and "ialm" (default
        1e-5, in the units of 1 / value, as the paper ran it).
    rho : float, optional
        Factor by which ``mu`` grows in each step, for "ialm"; 1.1 by default. The
        nearer to 1, the nearer the result to the minimum norm.
    t : float, optional
        Weight of the norm for "svt"; by default 5 times the Frobenius norm of a full
        matrix of such values, the root of m n times their root mean square.
    random_state : int, default=0
        Seed of the held-out entries of ``lam="auto"``.
    center : {None, "mean", "columns", "two-way"}, default=None
        What to subtract first.
    scale : {None, "columns"}, default=None
        "columns" divides every column by its standard deviation first.
    max_iter, tol : int and float, optional
        Maximum number of steps, and tolerance on the change; the defaults depend on
        the solver.
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
        Per step: ``objective``, ``change``, ``primal`` and ``dual`` residual, ``gap``,
        ``rank``, ``mu``, seconds, as far as the solver has them.
    gap_ : float
        Relative duality gap: a bound on how far the objective is above its minimum,
        relative to it; NaN for "svt".
    dual_ : scipy.sparse.csr_array
        Multipliers of the observed entries ("admm", "ialm"); not saved.
    residual_ : float
        Relative residual of the observed entries before they are restored.
    path_ : list of dict
        The strengths that ``lam="auto"`` tried, with their errors on held-out entries.
    rank_, objective_, n_iter_, converged_, lam_
        Rank before that, last objective, number of steps, whether the fit converged,
        and the strength of the noisy form (None without one).
    unidentified_rows_, unidentified_columns_ : arrays of int
        Rows and columns without observed entries; they get the center, 0 without one.

    References
    ----------
    E. Candes, B. Recht, "Exact matrix completion via convex optimization", 2009.
    Z. Lin, M. Chen, Y. Ma, "The augmented Lagrange multiplier method", 2009.
    J.-F. Cai, E. Candes, Z. Shen, "A singular value thresholding algorithm", 2010.
    K.-C. Toh, S. Yun, "An accelerated proximal gradient algorithm", 2010.

    Examples
    --------
    >>> import numpy as np
    >>> from ncarl import Nuclear
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.standard_normal((40, 2)) @ rng.standard_normal((2, 30))
    >>> X = np.where(rng.random(truth.shape) < 0.6, truth, np.nan)
    >>> model = Nuclear().fit(X)
    >>> bool(np.abs(model.transform(X) - truth).max() < 1e-4), model.gap_ < 1e-6
    (True, True)
    """

    _saved_scalars = (*MatrixEstimator._saved_scalars, "gap_", "lam_", "path_")

    def __init__(
        self,
        solver: str = "admm",
        lam: float | str | None = None,
        mu: float | None = None,
        rho: float | None = None,
        t: float | None = None,
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
        self.solver = solver
        self.lam = lam
        self.mu = mu
        self.rho = rho
        self.t = t
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
        check_choice("solver", self.solver, NUCLEAR_SOLVERS)
        for name, solvers in NUCLEAR_SOLVER_PARAMS.items():
            if getattr(self, name) is not None and self.solver not in solvers:
                names = " or ".join(repr(s) for s in solvers)
                raise ValueError(
                    f"{name} belongs to solver={names}, got solver={self.solver!r} "
                    f"with {name}={getattr(self, name)!r}; leave {name} out"
                )
        check_lam(self.lam)
        check_integer("random_state", self.random_state, low=0)
        for name in ("mu", "t"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), low=0.0, strict=True)
        if self.rho is not None:
            check_number("rho", self.rho, low=1.0, strict=True)

    def _get_default_stopping(self) -> tuple[int, float]:
        return NUCLEAR_SOLVERS[self.solver]

    def _make_solver(
        self,
        data: PreprocessedData,
        observed: Observations,
        engine: Engine,
        search_state: dict[str, Any],
    ) -> Solver:
        norm = NuclearNorm()
        self.gap_, self.lam_, self.path_ = math.nan, None, []
        if self.lam is not None:
            path = proximal_gradient_path(self, norm, engine)
            return make_penalized_solver(self, path, data, observed, 1.0, search_state)
        problem = self._make_dense_problem(data, engine)
        if self.solver == "admm":
            mu = (
                1.0 / problem.spectral_norm
                if self.mu is None
                else self.mu * data.value_unit()
            )
            return ADMM(
                problem, norm, ResidualBalancing(mu), gap_tol=self._certificate_tol()
            )
        if self.solver == "ialm":
            mu = (1e-5 if self.mu is None else self.mu) * data.value_unit()
            mu = min(mu, IALM_FIRST_MU / problem.spectral_norm)
            rho = 1.1 if self.rho is None else float(self.rho)
            schedule = GeometricPenalty(
                mu, rho, max(IALM_MAX_MU / problem.spectral_norm, mu)
            )
            return ADMM(problem, norm, schedule, stop_on_change=True)
        if self.solver == "svt":
            t = 5.0 * math.sqrt(math.prod(problem.shape)) * problem.rms
            t = t if self.t is None else self.t / data.value_unit()
            return SingularValueThresholding(problem, t)
        self._lam_unit = data.value_unit()
        self.lam_ = APG_DEFAULT_LAM * problem.spectral_norm * self._lam_unit
        return ProximalGradient(problem, norm, APG_DEFAULT_LAM * problem.spectral_norm)

    def _certificate_tol(self) -> float:
        """Tolerance on the duality gap: that of the fit."""
        return NUCLEAR_SOLVERS["admm"][1] if self.tol is None else float(self.tol)


class SchattenP(MatrixEstimator):
    r"""Completion of minimum :math:`\sum_i \sigma_i^p`, for p up to 1.

    The problem is nonconvex for p < 1: the result is a stationary point, reached from
    rank one upwards by an augmented Lagrangian whose threshold falls.

    Parameters
    ----------
    p : float, default=0.5
        The power, above 0 and at most 1; 1 is the nuclear norm.
    lam : float, "auto" or None, default=None
        Strength of the penalty against half the squared residuals; "auto" selects it
        on held-out entries. None keeps observed entries fixed.
    rho : float, default=1.05
        Factor by which the penalty parameter of the two copies of the matrix grows in
        each step; 1.02 is more accurate and slower. Only without ``lam`` and for p < 1.
    start : {"zeros", "nuclear"}, default="zeros"
        Initial values of missing entries: zeros, or the completion of minimum nuclear
        norm.
    random_state : int, default=0
        Seed of the held-out entries of ``lam="auto"``.
    center : {None, "mean", "columns", "two-way"}, default=None
        What to subtract first.
    scale : {None, "columns"}, default=None
        "columns" divides every column by its standard deviation first.
    max_iter : int, optional
        Maximum number of steps; 1000 by default (2000 with p = 1).
    tol : float, optional
        Tolerance on the change; 1e-7 by default, 1e-6 with p = 1, 1e-5 with ``lam``.
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
        Per step: ``objective``, ``change``, ``primal`` and ``dual`` residual, ``rank``,
        ``mu`` (``lam`` in the noisy form), seconds.
    residual_ : float
        Relative residual of the observed entries before they are restored.
    rank_, objective_, n_iter_, converged_
        Rank before that, last objective, number of steps, whether the fit converged.
    lam_, path_
        Strength of the noisy form (None without one), and the strengths tried.
    unidentified_rows_, unidentified_columns_ : arrays of int
        Rows and columns without observed entries; they get the center, 0 without one.

    References
    ----------
    F. Nie, H. Wang, X. Cai, H. Huang, C. Ding, "Robust matrix completion via joint
    Schatten p-norm and lp-norm minimization", ICDM 2012.

    Examples
    --------
    >>> import numpy as np
    >>> from ncarl import SchattenP
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.standard_normal((40, 3)) @ rng.standard_normal((3, 30))
    >>> X = np.where(rng.random(truth.shape) < 0.5, truth, np.nan)
    >>> bool(np.abs(SchattenP(p=2 / 3).fit_transform(X) - truth).max() < 1e-4)
    True
    """

    _saved_scalars = (*MatrixEstimator._saved_scalars, "lam_", "path_")

    def __init__(
        self,
        p: float = 0.5,
        lam: float | str | None = None,
        rho: float = 1.05,
        start: str = "zeros",
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
        self.p = p
        self.lam = lam
        self.rho = rho
        self.start = start
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
        p = check_number("p", self.p, low=0.0, strict=True, hint=" (at most 1)")
        if p > 1.0:
            raise ValueError(f"p must be above 0 and at most 1, got {self.p!r}")
        check_lam(self.lam)
        check_number("rho", self.rho, low=1.0, strict=True)
        check_choice("start", self.start, ("zeros", "nuclear"))
        check_integer("random_state", self.random_state, low=0)
        if self.lam is not None and self.start != "zeros":
            raise ValueError(
                "start='nuclear' belongs to lam=None; with a strength the fit starts "
                f"from zeros, got lam={self.lam!r}"
            )

    def _get_default_stopping(self) -> tuple[int, float]:
        if self.lam is not None:
            return 1000, 1e-5
        return (2000, 1e-6) if float(self.p) == 1.0 else (1000, 1e-7)

    def _make_solver(
        self,
        data: PreprocessedData,
        observed: Observations,
        engine: Engine,
        search_state: dict[str, Any],
    ) -> Solver:
        p = float(self.p)
        norm = SchattenNorm(p)
        self.lam_, self.path_ = None, []
        if self.lam is not None:
            path = proximal_gradient_path(self, norm, engine)
            return make_penalized_solver(self, path, data, observed, p, search_state)
        problem = self._make_dense_problem(data, engine)
        if p == 1.0:
            tol = (
                self._get_default_stopping()[1] if self.tol is None else float(self.tol)
            )
            mu = 1.0 / problem.spectral_norm
            return ADMM(problem, NuclearNorm(), ResidualBalancing(mu), gap_tol=tol)
        mu = 1.0 / norm.strength(SCHATTEN_INITIAL_THRESHOLD * problem.spectral_norm)
        schedule = GeometricPenalty(mu, float(self.rho), SCHATTEN_MU_GROWTH * mu)
        start = self._nuclear_completion(problem) if self.start == "nuclear" else None
        return ADMM(problem, norm, schedule, degree=p, X_init=start)

    def _nuclear_completion(self, problem: DenseProblem) -> Array:
        """Completion of approximately minimum nuclear norm."""
        solver = ADMM(
            problem, NuclearNorm(), ResidualBalancing(1.0 / problem.spectral_norm)
        )
        result = run_solver(
            solver, max_iter=SCHATTEN_START_STEPS, tol=SCHATTEN_START_TOL
        )
        if result.interrupted:
            raise KeyboardInterrupt
        return result.last.state.X


class WNNM(MatrixEstimator):
    r"""Weighted nuclear norm, reweighted by :math:`C / (\sigma_i + \epsilon)`.

    Finds stationary points of :math:`C \sum_i \log(\sigma_i + \epsilon)` among the
    matrices with the observed entries. The rank is determined in early steps, and noise
    is fitted with it.

    Parameters
    ----------
    C : float, "sqrt_mn" or None, default=None
        Factor of the weights. It changes the iterates, not the stationary points. None
        is half the largest singular value of the zero-filled matrix; "sqrt_mn", the
        authors' rule, depends on the unit of the values.
    eps : float, optional
        Added to singular values, in the unit of the values; by default 1e-6 of their
        root mean square.
    lam : float, "auto" or None, default=None
        Strength of :math:`\sum_i \log(1 + \sigma_i / \epsilon)` against half the
        squared residuals; "auto" selects it on held-out entries. None keeps observed
        entries fixed.
    rho : float, default=1.05
        Factor by which the penalty parameter of the two copies of the matrix grows in
        each step; only without ``lam``.
    random_state : int, default=0
        Seed of the held-out entries of ``lam="auto"``.
    center : {None, "mean", "columns", "two-way"}, default=None
        What to subtract first.
    scale : {None, "columns"}, default=None
        "columns" divides every column by its standard deviation first.
    max_iter : int, optional
        Maximum number of steps; 1000 by default.
    tol : float, optional
        Tolerance on the change; 1e-7 by default, 1e-5 with ``lam``.
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
    C_ : float
        The factor that was used; NaN with ``lam``.
    history_ : dict of arrays
        Per step: ``objective``, ``change``, ``primal`` and ``dual`` residual, ``rank``,
        ``mu`` (``lam`` in the noisy form), seconds.
    residual_ : float
        Relative residual of the observed entries before they are restored.
    rank_, objective_, n_iter_, converged_
        Rank before that, last objective, number of steps, whether the fit converged.
    lam_, path_
        Strength of the noisy form (None without one), and the strengths tried.
    unidentified_rows_, unidentified_columns_ : arrays of int
        Rows and columns without observed entries; they get the center, 0 without one.

    References
    ----------
    S. Gu, Q. Xie, D. Meng, W. Zuo, X. Feng, L. Zhang, "Weighted nuclear norm
    minimization and its applications to low level vision", IJCV 121, 2017.

    Examples
    --------
    >>> import numpy as np
    >>> from ncarl import WNNM
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.standard_normal((40, 3)) @ rng.standard_normal((3, 30))
    >>> X = np.where(rng.random(truth.shape) < 0.5, truth, np.nan)
    >>> bool(np.abs(WNNM().fit_transform(X) - truth).max() < 1e-4)
    True
    """

    _saved_scalars = (*MatrixEstimator._saved_scalars, "C_", "lam_", "path_")

    def __init__(
        self,
        C: float | str | None = None,
        eps: float | None = None,
        lam: float | str | None = None,
        rho: float = 1.05,
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
        self.C = C
        self.eps = eps
        self.lam = lam
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
        if self.C is not None and not (isinstance(self.C, str) and self.C == "sqrt_mn"):
            check_number("C", self.C, low=0.0, strict=True, hint=" (or 'sqrt_mn')")
        if self.eps is not None:
            check_number("eps", self.eps, low=0.0, strict=True)
        check_lam(self.lam)
        check_number("rho", self.rho, low=1.0, strict=True)
        check_integer("random_state", self.random_state, low=0)
        if self.lam is not None and self.C is not None:
            raise ValueError(
                f"C={self.C!r} belongs to lam=None; with lam={self.lam!r} the strength "
                "is lam alone; leave one of them out"
            )

    def _get_default_stopping(self) -> tuple[int, float]:
        return 1000, 1e-7 if self.lam is None else 1e-5

    def _make_solver(
        self,
        data: PreprocessedData,
        observed: Observations,
        engine: Engine,
        search_state: dict[str, Any],
    ) -> Solver:
        problem = self._make_dense_problem(data, engine)
        usual = WNNM_DEFAULT_EPS * problem.rms
        norm = LogNuclear(usual if self.eps is None else self.eps / data.value_unit())
        self.C_, self.lam_, self.path_ = math.nan, None, []
        if self.lam is not None:
            path = proximal_gradient_path(self, norm, engine)
            return make_penalized_solver(self, path, data, observed, 0.0, search_state)
        C = self._c_in_solver_units(problem, data.value_unit())
        self.C_ = C * data.value_unit()
        mu = 1.0 / problem.spectral_norm
        return ADMM(
            problem,
            norm,
            GeometricPenalty(mu, float(self.rho), WNNM_MU_GROWTH * mu),
            weight=C,
            Y_init=problem.M / problem.spectral_norm,
        )

    def _c_in_solver_units(self, problem: DenseProblem, unit: float) -> float:
        if self.C is None:
            return WNNM_DEFAULT_C * problem.spectral_norm
        if isinstance(self.C, str):
            return math.sqrt(math.prod(problem.shape)) / unit
        return float(self.C) / unit


class FactoredNuclear(MatrixEstimator):
    r"""Completion ``A B`` whose factors have minimum squared norms.

    The minimum of ``(||A||^2 + ||B||^2) / 2`` over the factors of a product is its
    nuclear norm, so with enough columns this is the result of `Nuclear`, computed
    without singular value decompositions. With fewer columns it is the best of their
    rank.

    Parameters
    ----------
    rank : int, optional
        Number of columns of A. By default as many as the minimum nuclear norm can
        need: the smallest r with ``r (r + 1) / 2`` above the number of entries, at most
        the number of rows or columns. With fewer than ``entries / (m + n)`` no product
        agrees with noisy entries, and the fit cannot converge unless ``lam`` is given.
    lam : float, "auto" or None, default=None
        None keeps observed entries fixed; a number allows for noise and is the strength
        of the norm against half the squared residuals; "auto" selects it on held-out
        entries.
    mu : float, optional
        Initial penalty parameter of the constraint between the matrix and the product,
        without ``lam``; by default 5 / largest singular value.
    random_state : int, default=0
        Seed of the held-out entries of ``lam="auto"``.
    center : {None, "mean", "columns", "two-way"}, default=None
        What to subtract first.
    scale : {None, "columns"}, default=None
        "columns" divides every column by its standard deviation first.
    max_iter, tol : int and float, optional
        Maximum number of steps (2000), and tolerance on both residuals (1e-5); 500 and
        5e-3 with ``lam``.
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
        Per step: ``objective``, ``change``, ``primal`` and ``dual`` residual, ``mu``,
        seconds.
    residual_ : float
        Relative residual of the observed entries before they are restored.
    path_ : list of dict
        The strengths that ``lam="auto"`` tried, with their errors on held-out entries.
    rank_, objective_, n_iter_, converged_, lam_
        Rank before that, last objective, number of steps, whether the fit converged,
        and the strength of the noisy form (None without one).
    unidentified_rows_, unidentified_columns_ : arrays of int
        Rows and columns without observed entries; they get the center, 0 without one.

    References
    ----------
    N. Srebro, J. Rennie, T. Jaakkola, "Maximum-margin matrix factorization", 2005.
    S. Burer, R. Monteiro, "A nonlinear programming algorithm for solving semidefinite
    programs via low-rank factorization", 2003.

    Examples
    --------
    >>> import numpy as np
    >>> from ncarl import FactoredNuclear
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.standard_normal((40, 2)) @ rng.standard_normal((2, 30))
    >>> X = np.where(rng.random(truth.shape) < 0.6, truth, np.nan)
    >>> model = FactoredNuclear().fit(X)
    >>> bool(np.abs(model.transform(X) - truth).max() < 1e-3), model.rank_
    (True, 2)
    """

    _saved_scalars = (*MatrixEstimator._saved_scalars, "lam_", "path_")

    def __init__(
        self,
        rank: int | None = None,
        lam: float | str | None = None,
        mu: float | None = None,
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
        self.rank = rank
        self.lam = lam
        self.mu = mu
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
        check_factored_params(self)

    def _get_default_stopping(self) -> tuple[int, float]:
        return (2000, 1e-5) if self.lam is None else (500, 5e-3)

    def _make_solver(
        self,
        data: PreprocessedData,
        observed: Observations,
        engine: Engine,
        search_state: dict[str, Any],
    ) -> Solver:
        self.lam_, self.path_ = None, []
        if self.lam is not None:
            return self._make_noisy_solver(data, observed, engine, search_state)
        problem = self._make_dense_problem(data, engine)
        mu = (
            FACTORED_DEFAULT_MU / problem.spectral_norm
            if self.mu is None
            else self.mu * data.value_unit()
        )
        rank = default_rank(observed) if self.rank is None else int(self.rank)
        schedule = ResidualBalancing(mu, relaxation=1.0, imbalance=5.0)
        return FactoredADMM(problem, min(rank, *problem.shape), schedule)

    def _make_noisy_solver(
        self,
        data: PreprocessedData,
        observed: Observations,
        engine: Engine,
        search_state: dict[str, Any],
    ) -> Solver:
        """Soft-impute solver of the noisy form."""
        rank = default_rank(observed) if self.rank is None else int(self.rank)
        path = als_path(rank, int(self.random_state), engine)
        solver = make_penalized_solver(self, path, data, observed, 1.0, search_state)
        assert self.lam_ is not None
        self._ridge = lam_in_solver_units(self.lam_, data, 1.0)
        return solver

    def _new_row_ridge(self) -> float | None:
        return None if self.lam is None else self._ridge


class FGSR(MatrixEstimator):
    r"""Completion ``A B`` by factor group-sparse regularization.

    The minimum over the factors of a product of the sum of the norms of A's columns
    plus ``a/2 ||B||^2`` is ``3/2 a^(1/3)`` times the sum of its singular values to the
    power 2/3; with ``a`` times the sum of the norms of B's rows instead it is
    ``2 a^(1/2)`` times that to the power 1/2. Columns that reach 0 are dropped. The
    problem is nonconvex: the result is a stationary point that depends on the start.

    Parameters
    ----------
    p : {2/3, 1/2}, default=2/3
        The power.
    rank : int, optional
        Initial number of columns; by default as many as the minimum nuclear norm can
        need: the smallest r with ``r (r + 1) / 2`` above the number of entries, at most
        the number of rows or columns. With fewer than ``entries / (m + n)`` no product
        agrees with noisy entries, and the fit cannot converge unless ``lam`` is given.
    a : float, default=1
        Weight of B; without ``lam`` it rescales the factors but not the result.
    lam : float, "auto" or None, default=None
        None keeps observed entries fixed; a number allows for noise and is the strength
        of the regularizer against half the squared residuals; "auto" selects it on
        held-out entries.
    mu : float, optional
        Initial penalty parameter of the constraint between the matrix and the product,
        without ``lam``; by default such that singular values above 0.05 (p = 1/2: 0.15)
        of the largest stay. If it is too small, columns that are needed are dropped.
    random_state : int, default=0
        Seed of the held-out entries of ``lam="auto"``.
    center : {None, "mean", "columns", "two-way"}, default=None
        What to subtract first.
    scale : {None, "columns"}, default=None
        "columns" divides every column by its standard deviation first.
    max_iter, tol : int and float, optional
        Maximum number of steps (2000), and tolerance: without ``lam`` on the change and
        the distance between matrix and product (1e-6), with it on the change (1e-4).
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
        Per step: ``objective``, ``change``, ``rank`` (columns left), seconds; without
        ``lam`` also ``primal`` residual and ``mu``.
    residual_ : float
        Relative residual of the observed entries before they are restored, which is
        not done with ``lam``.
    path_ : list of dict
        The strengths that ``lam="auto"`` tried, with their errors on held-out entries.
    rank_, objective_, n_iter_, converged_, lam_
        Rank of the product, last objective, number of steps, whether the fit converged,
        and the strength of the noisy form (None without one).
    unidentified_rows_, unidentified_columns_ : arrays of int
        Rows and columns without observed entries; they get the center, 0 without one.

    References
    ----------
    J. Fan, L. Ding, Y. Chen, M. Udell, "Factor group-sparse regularization for
    efficient low-rank matrix recovery", NeurIPS 2019.

    Examples
    --------
    >>> import numpy as np
    >>> from ncarl import FGSR
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.standard_normal((40, 2)) @ rng.standard_normal((2, 30))
    >>> X = np.where(rng.random(truth.shape) < 0.6, truth, np.nan)
    >>> model = FGSR().fit(X)
    >>> bool(np.abs(model.transform(X) - truth).max() < 1e-3), model.rank_
    (True, 2)
    """

    _saved_scalars = (*MatrixEstimator._saved_scalars, "lam_", "path_")

    def __init__(
        self,
        p: float = 2 / 3,
        rank: int | None = None,
        a: float = 1.0,
        lam: float | str | None = None,
        mu: float | None = None,
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
        self.p = p
        self.rank = rank
        self.a = a
        self.lam = lam
        self.mu = mu
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
        hint = "; SchattenP takes other powers"
        p = check_number("p", self.p, low=0.0, strict=True, hint=hint)
        if min(abs(p - 0.5), abs(p - 2 / 3)) > FGSR_P_TOL:
            raise ValueError(f"p must be 1/2 or 2/3, got {self.p!r}{hint}")
        check_number("a", self.a, low=0.0, strict=True)
        check_factored_params(self)

    def _get_default_stopping(self) -> tuple[int, float]:
        return (2000, 1e-6) if self.lam is None else (2000, 1e-4)

    def _make_solver(
        self,
        data: PreprocessedData,
        observed: Observations,
        engine: Engine,
        search_state: dict[str, Any],
    ) -> Solver:
        regularizer = GroupSparseRegularizer(
            abs(self.p - 0.5) <= FGSR_P_TOL, float(self.a)
        )
        p = regularizer.penalty.degree
        self.lam_, self.path_ = None, []
        if self.lam is None:
            problem = self._make_dense_problem(data, engine)
            mu = None if self.mu is None else float(self.mu * data.value_unit(2.0 - p))
            rank = self._initial_rank(problem)
            return GroupSparseADMM(problem, regularizer, rank, mu)

        def make_problem(data: PreprocessedData) -> PathProblem:
            problem = self._make_dense_problem(data, engine)
            largest = (
                regularizer.penalty.strength(problem.spectral_norm) / regularizer.weight
            )
            rank = self._initial_rank(problem)
            return PathProblem(
                largest,
                lambda lam: GroupSparsePALM(problem, regularizer, lam, rank),
                tol=1e-3,
            )

        return make_penalized_solver(
            self, make_problem, data, observed, p, search_state
        )

    def _initial_rank(self, problem: DenseProblem) -> int:
        rank = default_rank(problem.observed) if self.rank is None else int(self.rank)
        return min(rank, *problem.shape)


class SoftImpute(MatrixEstimator):
    r"""Minimum of half the squared residuals plus ``lam`` times the nuclear norm.

    The completed matrix is kept as factors and never formed, so sparse ratings of any
    size fit in memory. New rows are completed by ridge regression on the right factor,
    which for rows of the fit agrees with the fit.

    Parameters
    ----------
    lam : "auto" or float, default="auto"
        Strength of the nuclear norm, in the unit of the values; "auto" fits a path of
        decreasing strengths with warm starts, and selects the one with the smallest
        error on held-out entries.
    solver : {"als", "svd"}, default="als"
        "als" alternates between the two factors; "svd" takes the leading singular
        triplets of the filled matrix in each step, by Lanczos where it is large.
    rank : int, optional
        Maximum rank; by default only the strength limits it.
    validation : float, default=0.1
        Fraction of the entries that is held out to select ``lam``.
    random_state : int, default=0
        Seed of the held-out entries and of the initial directions.
    center : {None, "mean", "columns", "two-way"}, default=None
        What to subtract first. For ratings "two-way" is much better than None.
    scale : {None, "columns"}, default=None
        "columns" divides every column by its standard deviation first.
    max_iter : int, optional
        Maximum number of steps; 500 by default.
    tol : float, optional
        Tolerance on the norm of a step relative to ``lam`` times the root of the rank;
        5e-3 by default.
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
    lam_ : float
        The strength that was used.
    path_ : list of dict
        The strengths that ``lam="auto"`` tried: error on held-out entries, steps, rank.
    history_ : dict of arrays
        Per step: ``objective``, ``change``, ``rank``, ``lam``, seconds.
    residual_, rank_, objective_, n_iter_, converged_
        Relative residual of the observed entries, rank, last objective, number of
        steps, whether the fit converged.
    unidentified_rows_, unidentified_columns_ : arrays of int
        Rows and columns without observed entries; they get the center, 0 without one.

    References
    ----------
    R. Mazumder, T. Hastie, R. Tibshirani, "Spectral regularization algorithms for
    learning large incomplete matrices", JMLR 11, 2010.
    T. Hastie, R. Mazumder, J. Lee, R. Zadeh, "Matrix completion and low-rank SVD via
    fast alternating least squares", JMLR 16, 2015.

    Examples
    --------
    >>> import numpy as np
    >>> from ncarl import SoftImpute
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.standard_normal((60, 2)) @ rng.standard_normal((2, 40))
    >>> noisy = truth + 0.1 * rng.standard_normal(truth.shape)
    >>> X = np.where(rng.random(truth.shape) < 0.5, noisy, np.nan)
    >>> model = SoftImpute().fit(X)
    >>> bool(abs(model.transform(X) - truth).mean() < 0.15)
    True
    >>> model.transform(X[:3]).shape  # rows need not be those of the fit
    (3, 40)
    """

    _saved_scalars = (*MatrixEstimator._saved_scalars, "lam_", "path_")
    _default_stopping = (500, 5e-3)

    def __init__(
        self,
        lam: float | str = "auto",
        solver: str = "als",
        rank: int | None = None,
        validation: float = 0.1,
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
        self.lam = lam
        self.solver = solver
        self.rank = rank
        self.validation = validation
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
        check_lam(self.lam, exact=False)
        check_choice("solver", self.solver, ("als", "svd"))
        if self.rank is not None:
            check_integer("rank", self.rank, low=1)
        check_fraction("validation", self.validation, strict=True)
        check_integer("random_state", self.random_state, low=0)

    def _make_solver(
        self,
        data: PreprocessedData,
        observed: Observations,
        engine: Engine,
        search_state: dict[str, Any],
    ) -> Solver:
        solver = make_penalized_solver(
            self,
            self._path_factory(engine),
            data,
            observed,
            1.0,
            search_state,
            share=float(self.validation),
        )
        assert self.lam_ is not None
        self._ridge = lam_in_solver_units(self.lam_, data, 1.0)
        return solver

    def _path_factory(self, engine: Engine) -> PathFactory:
        """Path of the solvers of all strengths."""
        max_rank = None if self.rank is None else int(self.rank)
        seed = int(self.random_state)
        if self.solver == "als":
            return als_path(max_rank, seed, engine)

        def make_problem(data: PreprocessedData) -> PathProblem:
            entries = SparseEntries(data.residuals, engine.compute_device)
            rank = max_rank or min(entries.shape)
            return PathProblem(
                entries.spectral_norm,
                lambda lam: SoftImputeSVD(entries, lam, rank, seed),
            )

        return make_problem

    def _new_row_ridge(self) -> float | None:
        return self._ridge
