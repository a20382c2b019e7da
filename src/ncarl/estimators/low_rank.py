"""Low-rank baselines: penalties on singular values, directly or through factors.

`Nuclear`, `SchattenP` and `WNNM` work on singular values, `FactoredNuclear` and `FGSR`
on two factors, and `SoftImpute` on factors of sparse data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ncarl.estimators.baselines import (
    FitInput,
    MatrixEstimator,
    PathProblem,
    check_lam,
    lam_in_solver_units,
    make_penalized_solver,
    proximal_gradient_path,
    soft_impute_path,
)
from ncarl.fitting.matrix_model import PreprocessedData
from ncarl.solvers.admm import ADMM, GeometricPenalty, ResidualBalancing
from ncarl.solvers.base import DenseProblem, Solver
from ncarl.solvers.factored import (
    FactoredADMM,
    GroupSparseADMM,
    GroupSparsePALM,
    GroupSparseRegularizer,
    default_rank,
)
from ncarl.solvers.penalties import LogNuclear, NuclearNorm, SchattenNorm
from ncarl.solvers.proximal import ProximalGradient, SingularValueThresholding
from ncarl.validation import check_choice, check_fraction, check_number

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
#: Factors by which ``mu`` may grow.
SCHATTEN_MU_GROWTH, WNNM_MU_GROWTH = 1e10, 1e13
#: Default ``C`` relative to the largest singular value, and default ``eps`` relative to
#: the root mean square of the values.
WNNM_DEFAULT_C, WNNM_DEFAULT_EPS = 0.5, 1e-6
#: Default ``mu`` of FactoredNuclear, times the largest singular value.
FACTORED_DEFAULT_MU = 5.0
#: Tolerance of the ``p`` of FGSR.
FGSR_P_TOL = 1e-3


@dataclass(eq=False, repr=False)
class Nuclear(MatrixEstimator):
    r"""Completion of minimum nuclear norm (sum of singular values).

    Parameters
    ----------
    solver : {"admm", "ialm", "svt", "apg"}, default="admm"
        "admm" stops at a small duality gap; "ialm" is the paper's inexact augmented
        Lagrangian, whose growing ``mu`` stops it early; "svt" adds half the squared
        Frobenius norm; "apg" allows for noise.
    lam : float, "auto" or None, default=None
        Strength of the norm against half the squared residuals, for "apg". None is
        1e-4 of the largest singular value; "auto" selects it on held-out entries.
    mu : float, optional
        Initial penalty parameter of the constraint between the two copies of the
        matrix, for "admm" (1 / largest singular value) and "ialm" (1e-5 / value).
    rho : float, optional
        Factor by which ``mu`` grows in each step, for "ialm"; 1.1 by default.
    t : float, optional
        Weight of the norm for "svt"; by default 5 times the root of m n times the root
        mean square of the values.
    %(random_state center scale)s
    max_iter, tol : int and float, optional
        Maximum number of steps, and tolerance on the change; the defaults depend on
        the solver.
    %(engine progress callback checkpoint)s

    Attributes
    ----------
    gap_ : float
        Relative duality gap, a bound on the excess of the objective; NaN for "svt".
    dual_ : scipy.sparse.csr_array
        Multipliers of the observed entries ("admm", "ialm"); not saved.
    %(history_ lam_ residual_ rank_ unidentified_rows_)s

    References
    ----------
    E. Candes, B. Recht, "Exact matrix completion via convex optimization", 2009.
    Z. Lin, M. Chen, Y. Ma, "The augmented Lagrange multiplier method", 2009.
    J.-F. Cai, E. Candes, Z. Shen, "A singular value thresholding algorithm", 2010.
    K.-C. Toh, S. Yun, "An accelerated proximal gradient algorithm", 2010.

    Examples
    --------
    >>> from ncarl import Nuclear
    >>> from ncarl.datasets import make_low_rank
    >>> data = make_low_rank(40, 30, rank=2, factors="gaussian", missing=0.4)
    >>> model = Nuclear().fit(data.X)
    >>> bool(abs(model.transform(data.X) - data.truth).max() < 1e-4), model.gap_ < 1e-6
    (True, True)
    """

    solver: str = "admm"
    lam: float | str | None = None
    mu: float | None = None
    rho: float | None = None
    t: float | None = None
    random_state: int = 0
    center: str | None = None

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
        if self.t is not None:
            check_number("t", self.t, low=0.0, strict=True)

    def _default_stopping(self) -> tuple[int, float]:
        return NUCLEAR_SOLVERS[self.solver]

    def _make_solver(self, fit: FitInput) -> Solver:
        norm = NuclearNorm()
        self.gap_, self.lam_, self.path_ = math.nan, None, []
        if self.lam is not None:
            return make_penalized_solver(fit, proximal_gradient_path(fit, norm), 1.0)
        problem = fit.dense_problem()
        if self.solver == "admm":
            mu = 1.0 / problem.spectral_norm
            if self.mu is not None:
                mu = self.mu * fit.data.value_unit()
            return ADMM(problem, norm, ResidualBalancing(mu), gap_tol=fit.tol)
        if self.solver == "ialm":
            mu = (1e-5 if self.mu is None else self.mu) * fit.data.value_unit()
            mu = min(mu, IALM_FIRST_MU / problem.spectral_norm)
            rho = 1.1 if self.rho is None else float(self.rho)
            largest = max(IALM_MAX_MU / problem.spectral_norm, mu)
            schedule = GeometricPenalty(mu, rho, largest)
            return ADMM(problem, norm, schedule, stop_on_change=True)
        if self.solver == "svt":
            t = 5.0 * math.sqrt(math.prod(problem.shape)) * problem.rms
            t = t if self.t is None else self.t / fit.data.value_unit()
            return SingularValueThresholding(problem, t)
        self._lam_unit = fit.data.value_unit()
        self.lam_ = APG_DEFAULT_LAM * problem.spectral_norm * self._lam_unit
        return ProximalGradient(problem, norm, APG_DEFAULT_LAM * problem.spectral_norm)


@dataclass(eq=False, repr=False)
class SchattenP(MatrixEstimator):
    r"""Completion of minimum :math:`\sum_i \sigma_i^p`, for p up to 1.

    The problem is nonconvex for p < 1: the result is a stationary point, reached from
    rank one upwards by an augmented Lagrangian whose threshold falls.

    Parameters
    ----------
    p : float, default=0.5
        The power, above 0 and at most 1; 1 is the nuclear norm.
    %(lam)s
    rho : float, default=1.05
        Factor by which the penalty parameter of the two copies of the matrix grows in
        each step; 1.02 is more accurate and slower. Only without ``lam`` and for p < 1.
    %(random_state center scale)s
    max_iter, tol : int and float, optional
        Maximum number of steps, and tolerance on the change; 1000 and 1e-7 by default,
        2000 and 1e-6 with p = 1, 1000 and 1e-5 with ``lam``.
    %(engine progress callback checkpoint)s

    Attributes
    ----------
    %(history_ lam_ residual_ rank_ unidentified_rows_)s

    References
    ----------
    F. Nie, H. Wang, X. Cai, H. Huang, C. Ding, "Robust matrix completion via joint
    Schatten p-norm and lp-norm minimization", ICDM 2012.

    Examples
    --------
    >>> from ncarl import SchattenP
    >>> from ncarl.datasets import make_low_rank
    >>> data = make_low_rank(40, 30, rank=3, factors="gaussian", missing=0.5)
    >>> bool(abs(SchattenP(p=2 / 3).fit_transform(data.X) - data.truth).max() < 1e-4)
    True
    """

    p: float = 0.5
    lam: float | str | None = None
    rho: float = 1.05
    random_state: int = 0
    center: str | None = None

    def _check_params(self) -> None:
        p = check_number("p", self.p, low=0.0, strict=True, hint=" (at most 1)")
        if p > 1.0:
            raise ValueError(f"p must be above 0 and at most 1, got {self.p!r}")
        check_lam(self.lam)

    def _default_stopping(self) -> tuple[int, float]:
        if self.lam is not None:
            return 1000, 1e-5
        return (2000, 1e-6) if float(self.p) == 1.0 else (1000, 1e-7)

    def _make_solver(self, fit: FitInput) -> Solver:
        p = float(self.p)
        norm = SchattenNorm(p)
        self.lam_, self.path_ = None, []
        if self.lam is not None:
            return make_penalized_solver(fit, proximal_gradient_path(fit, norm), p)
        problem = fit.dense_problem()
        if p == 1.0:
            balancing = ResidualBalancing(1.0 / problem.spectral_norm)
            return ADMM(problem, NuclearNorm(), balancing, gap_tol=fit.tol)
        mu = 1.0 / norm.strength(SCHATTEN_INITIAL_THRESHOLD * problem.spectral_norm)
        schedule = GeometricPenalty(mu, float(self.rho), SCHATTEN_MU_GROWTH * mu)
        return ADMM(problem, norm, schedule, degree=p)


@dataclass(eq=False, repr=False)
class WNNM(MatrixEstimator):
    r"""Weighted nuclear norm, reweighted by :math:`C / (\sigma_i + \epsilon)`.

    Finds stationary points of :math:`C \sum_i \log(\sigma_i + \epsilon)` among the
    matrices with the observed entries. The rank is determined in early steps, and noise
    is fitted with it.

    Parameters
    ----------
    C : float, "sqrt_mn" or None, default=None
        Factor of the weights, which changes the iterates, not the stationary points.
        None is half the largest singular value; "sqrt_mn" is the authors' rule.
    eps : float, optional
        Added to singular values; by default 1e-6 of the root mean square of the values.
    lam : float, "auto" or None, default=None
        Strength of :math:`\sum_i \log(1 + \sigma_i / \epsilon)` against half the
        squared residuals; "auto" selects it on held-out entries. None keeps observed
        entries fixed.
    rho : float, default=1.05
        Factor by which the penalty parameter of the two copies of the matrix grows in
        each step; only without ``lam``.
    %(random_state center scale)s
    max_iter, tol : int and float, optional
        Maximum number of steps (1000), and tolerance on the change (1e-7; 1e-5 with
        ``lam``).
    %(engine progress callback checkpoint)s

    Attributes
    ----------
    C_ : float
        The factor that was used; NaN with ``lam``.
    %(history_ lam_ residual_ rank_ unidentified_rows_)s

    References
    ----------
    S. Gu, Q. Xie, D. Meng, W. Zuo, X. Feng, L. Zhang, "Weighted nuclear norm
    minimization and its applications to low level vision", IJCV 121, 2017.

    Examples
    --------
    >>> from ncarl import WNNM
    >>> from ncarl.datasets import make_low_rank
    >>> data = make_low_rank(40, 30, rank=3, factors="gaussian", missing=0.5)
    >>> bool(abs(WNNM().fit_transform(data.X) - data.truth).max() < 1e-4)
    True
    """

    C: float | str | None = None
    eps: float | None = None
    lam: float | str | None = None
    rho: float = 1.05
    random_state: int = 0
    center: str | None = None

    def _check_params(self) -> None:
        if self.C is not None and not (isinstance(self.C, str) and self.C == "sqrt_mn"):
            check_number("C", self.C, low=0.0, strict=True, hint=" (or 'sqrt_mn')")
        if self.eps is not None:
            check_number("eps", self.eps, low=0.0, strict=True)
        check_lam(self.lam)
        if self.lam is not None and self.C is not None:
            raise ValueError(
                f"C={self.C!r} belongs to lam=None; with lam={self.lam!r} the strength "
                "is lam alone; leave one of them out"
            )

    def _default_stopping(self) -> tuple[int, float]:
        return 1000, 1e-7 if self.lam is None else 1e-5

    def _make_solver(self, fit: FitInput) -> Solver:
        problem = fit.dense_problem()
        eps = WNNM_DEFAULT_EPS * problem.rms
        if self.eps is not None:
            eps = self.eps / fit.data.value_unit()
        norm = LogNuclear(eps)
        self.C_, self.lam_, self.path_ = math.nan, None, []
        if self.lam is not None:
            return make_penalized_solver(fit, proximal_gradient_path(fit, norm), 0.0)
        unit = fit.data.value_unit()
        C = WNNM_DEFAULT_C * problem.spectral_norm
        if isinstance(self.C, str):
            C = math.sqrt(math.prod(problem.shape)) / unit
        elif self.C is not None:
            C = float(self.C) / unit
        self.C_ = C * unit
        mu = 1.0 / problem.spectral_norm
        schedule = GeometricPenalty(mu, float(self.rho), WNNM_MU_GROWTH * mu)
        Y = problem.M / problem.spectral_norm
        return ADMM(problem, norm, schedule, weight=C, Y_init=Y)


@dataclass(eq=False, repr=False)
class FactoredNuclear(MatrixEstimator):
    r"""Completion ``A B`` whose factors have minimum squared norms.

    The minimum of ``(||A||^2 + ||B||^2) / 2`` over the factors of a product is its
    nuclear norm, so with enough columns this is the result of `Nuclear`, computed
    without singular value decompositions. With fewer columns it is the best of their
    rank.

    Parameters
    ----------
    %(rank lam)s
    mu : float, optional
        Initial penalty parameter of the constraint between the matrix and the product,
        without ``lam``; by default 5 / largest singular value.
    %(random_state center scale)s
    max_iter, tol : int and float, optional
        Maximum number of steps (2000), and tolerance on both residuals (1e-5); 500 and
        5e-3 with ``lam``.
    %(engine progress callback checkpoint)s

    Attributes
    ----------
    %(history_ lam_ residual_ rank_ unidentified_rows_)s

    References
    ----------
    N. Srebro, J. Rennie, T. Jaakkola, "Maximum-margin matrix factorization", 2005.
    S. Burer, R. Monteiro, "A nonlinear programming algorithm for solving semidefinite
    programs via low-rank factorization", 2003.

    Examples
    --------
    >>> from ncarl import FactoredNuclear
    >>> from ncarl.datasets import make_low_rank
    >>> data = make_low_rank(40, 30, rank=2, factors="gaussian", missing=0.4)
    >>> model = FactoredNuclear().fit(data.X)
    >>> bool(abs(model.transform(data.X) - data.truth).max() < 1e-3), model.rank_
    (True, 2)
    """

    rank: int | None = None
    lam: float | str | None = None
    mu: float | None = None
    random_state: int = 0
    center: str | None = None

    def _check_params(self) -> None:
        _check_lam_or_mu(self)

    def _default_stopping(self) -> tuple[int, float]:
        return (2000, 1e-5) if self.lam is None else (500, 5e-3)

    def _make_solver(self, fit: FitInput) -> Solver:
        self.lam_, self.path_, self._new_row_ridge = None, [], None
        rank = default_rank(fit.observed) if self.rank is None else int(self.rank)
        if self.lam is not None:
            seed = int(self.random_state)
            path = soft_impute_path(rank, seed, fit.engine)
            solver = make_penalized_solver(fit, path, 1.0)
            self._new_row_ridge = lam_in_solver_units(self.lam_, fit.data, 1.0)
            return solver
        problem = fit.dense_problem()
        mu = FACTORED_DEFAULT_MU / problem.spectral_norm
        if self.mu is not None:
            mu = self.mu * fit.data.value_unit()
        schedule = ResidualBalancing(mu, relaxation=1.0, imbalance=5.0)
        return FactoredADMM(problem, min(rank, *problem.shape), schedule)


@dataclass(eq=False, repr=False)
class FGSR(MatrixEstimator):
    r"""Completion ``A B`` by factor group-sparse regularization.

    The minimum over the factors of a product of the sum of the norms of A's columns
    plus ``a/2 ||B||^2`` is ``3/2 a^(1/3)`` times the sum of its singular values to the
    power 2/3; with ``a`` times the norms of B's rows it is ``2 a^(1/2)`` times that to
    the power 1/2. The problem is nonconvex: the result is a stationary point.

    Parameters
    ----------
    p : {2/3, 1/2}, default=2/3
        The power.
    %(rank)s
    a : float, default=1
        Weight of B; without ``lam`` it rescales the factors but not the result.
    %(lam)s
    mu : float, optional
        Initial penalty parameter of the constraint between the matrix and the product,
        without ``lam``; by default such that singular values above 0.05 (p = 1/2: 0.15)
        of the largest stay.
    %(random_state center scale)s
    max_iter, tol : int and float, optional
        Maximum number of steps (2000), and tolerance: without ``lam`` on the change and
        the distance between matrix and product (1e-6), with it on the change (1e-4).
    %(engine progress callback checkpoint)s

    Attributes
    ----------
    %(history_ lam_ residual_ rank_ unidentified_rows_)s

    References
    ----------
    J. Fan, L. Ding, Y. Chen, M. Udell, "Factor group-sparse regularization for
    efficient low-rank matrix recovery", NeurIPS 2019.

    Examples
    --------
    >>> from ncarl import FGSR
    >>> from ncarl.datasets import make_low_rank
    >>> data = make_low_rank(40, 30, rank=2, factors="gaussian", missing=0.4)
    >>> model = FGSR().fit(data.X)
    >>> bool(abs(model.transform(data.X) - data.truth).max() < 1e-3), model.rank_
    (True, 2)
    """

    p: float = 2 / 3
    rank: int | None = None
    a: float = 1.0
    lam: float | str | None = None
    mu: float | None = None
    random_state: int = 0
    center: str | None = None

    def _check_params(self) -> None:
        hint = "; SchattenP takes other powers"
        p = check_number("p", self.p, low=0.0, strict=True, hint=hint)
        if min(abs(p - 0.5), abs(p - 2 / 3)) > FGSR_P_TOL:
            raise ValueError(f"p must be 1/2 or 2/3, got {self.p!r}{hint}")
        check_number("a", self.a, low=0.0, strict=True)
        _check_lam_or_mu(self)

    def _default_stopping(self) -> tuple[int, float]:
        return (2000, 1e-6) if self.lam is None else (2000, 1e-4)

    def _make_solver(self, fit: FitInput) -> Solver:
        half = abs(self.p - 0.5) <= FGSR_P_TOL
        regularizer = GroupSparseRegularizer(half, float(self.a))
        p = regularizer.penalty.degree
        self.lam_, self.path_ = None, []
        if self.lam is None:
            problem = fit.dense_problem()
            unit = fit.data.value_unit(2.0 - p)
            mu = None if self.mu is None else float(self.mu * unit)
            rank = self._initial_rank(problem)
            return GroupSparseADMM(problem, regularizer, rank, mu)

        def make_problem(data: PreprocessedData) -> PathProblem:
            problem = fit.dense_problem(data)
            largest = regularizer.penalty.strength(problem.spectral_norm)
            rank = self._initial_rank(problem)
            return PathProblem(
                largest / regularizer.weight,
                lambda lam: GroupSparsePALM(problem, regularizer, lam, rank),
                tol=1e-3,
            )

        return make_penalized_solver(fit, make_problem, p)

    def _initial_rank(self, problem: DenseProblem) -> int:
        rank = default_rank(problem.observed) if self.rank is None else int(self.rank)
        return min(rank, *problem.shape)


@dataclass(eq=False, repr=False)
class SoftImpute(MatrixEstimator):
    r"""Minimum of half the squared residuals plus ``lam`` times the nuclear norm.

    The completed matrix is kept as factors and never formed, so sparse ratings of any
    size fit in memory. New rows are completed by ridge regression on the right factor,
    which for rows of the fit agrees with the fit. Ratings need ``center="two-way"``.

    Parameters
    ----------
    lam : "auto" or float, default="auto"
        Strength of the nuclear norm; "auto" selects it on held-out entries, on a path
        of decreasing strengths with warm starts.
    rank : int, optional
        Maximum rank; by default only the strength limits it.
    validation : float, default=0.1
        Fraction of the entries that is held out to select ``lam``.
    random_state : int, default=0
        Seed of the held-out entries and of the initial directions.
    %(center scale)s
    max_iter, tol : int and float, optional
        Maximum number of steps (500), and tolerance on the norm of a step relative to
        ``lam`` times the root of the rank (5e-3).
    %(engine progress callback checkpoint)s

    Attributes
    ----------
    %(history_ lam_ residual_ rank_ unidentified_rows_)s

    References
    ----------
    R. Mazumder, T. Hastie, R. Tibshirani, "Spectral regularization algorithms for
    learning large incomplete matrices", JMLR 11, 2010.
    T. Hastie, R. Mazumder, J. Lee, R. Zadeh, "Matrix completion and low-rank SVD via
    fast alternating least squares", JMLR 16, 2015.

    Examples
    --------
    >>> from ncarl import SoftImpute
    >>> from ncarl.datasets import make_low_rank
    >>> data = make_low_rank(60, 40, 2, factors="gaussian", missing=0.5, noise=0.1)
    >>> model = SoftImpute().fit(data.X)
    >>> bool(abs(model.transform(data.X) - data.truth).mean() < 0.15)
    True
    >>> model.transform(data.X[:3]).shape  # rows need not be those of the fit
    (3, 40)
    """

    lam: float | str = "auto"
    rank: int | None = None
    validation: float = 0.1
    random_state: int = 0
    center: str | None = None

    def _default_stopping(self) -> tuple[int, float]:
        return 500, 5e-3

    def _check_params(self) -> None:
        check_lam(self.lam, exact=False)
        check_fraction("validation", self.validation, strict=True)

    def _make_solver(self, fit: FitInput) -> Solver:
        rank = None if self.rank is None else int(self.rank)
        path = soft_impute_path(rank, int(self.random_state), fit.engine)
        solver = make_penalized_solver(fit, path, 1.0, float(self.validation))
        self._new_row_ridge = lam_in_solver_units(self.lam_, fit.data, 1.0)
        return solver


def _check_lam_or_mu(estimator: FactoredNuclear | FGSR) -> None:
    check_lam(estimator.lam)
    if estimator.mu is not None and estimator.lam is not None:
        raise ValueError(
            f"mu belongs to lam=None, got lam={estimator.lam!r} with "
            f"mu={estimator.mu!r}; leave one of them out"
        )
