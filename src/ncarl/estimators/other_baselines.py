"""Other baselines: row and column effects, robust, dictionary and subspace models."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ncarl.centering import rescale
from ncarl.core.types import Array
from ncarl.estimators.base import STACKLEVEL
from ncarl.estimators.baselines import FitInput, MatrixEstimator
from ncarl.estimators.validation import as_float_array
from ncarl.fitting.matrix_model import MatrixModel, PreprocessedData
from ncarl.observations import Observations
from ncarl.solvers.base import Solver, SolverResult
from ncarl.solvers.bias import BiasSolver
from ncarl.solvers.factored import default_rank
from ncarl.solvers.lrfd import DictionaryLearningSolver, LRFDSolver
from ncarl.solvers.regl1 import RegL1Solver
from ncarl.solvers.s3lr import S3LRSolver, number_clusters
from ncarl.validation import (
    check_choice,
    check_flag,
    check_fraction,
    check_integer,
    check_number,
)

#: Named dictionaries of LRFD.
DICTIONARIES = ("columns", "basis", "learned")


@dataclass(eq=False, repr=False)
class BiasModel(MatrixEstimator):
    r"""Two-way model with ridge penalties: ``mean + row effect + column effect``.

    Parameters
    ----------
    row_ridge, column_ridge : "auto" or float, default="auto"
        Ridge penalties of the effects; "auto" learns them as ratios of variances.
    scale : {None, "columns"}, default=None
        "columns" divides every column by its standard deviation first; row effects are
        then in standard deviations.
    max_iter, tol : int and float, optional
        Maximum number of sweeps over both sides (2000), and tolerance on the largest
        change of an effect relative to the root mean square of the values (1e-5).
    engine : {"auto", "threads", "torch"} or Engine, default="auto"
        Accepted for consistency; the computation is cheap and runs on the host.
    %(progress callback checkpoint)s

    Attributes
    ----------
    mean_ : float
        Mean of the observed values.
    row_effects_, column_effects_ : arrays of shape (m,) and (n,)
        The effects; those of rows in standard deviations with ``scale="columns"``.
    row_ridge_, column_ridge_ : float
        The ridges that were used.
    %(history_ residual_ rank_ unidentified_rows_)s

    Examples
    --------
    >>> import numpy as np
    >>> from ncarl import BiasModel
    >>> X = np.add.outer(np.arange(4.0), 10.0 * np.arange(3.0))
    >>> X[1, 2] = np.nan
    >>> BiasModel(row_ridge=0, column_ridge=0).fit_transform(X)[1, 2].round(6)
    np.float64(21.0)
    """

    row_ridge: float | str = "auto"
    column_ridge: float | str = "auto"

    center = None

    def _default_stopping(self) -> tuple[int, float]:
        return 2000, 1e-5

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

    def _make_solver(self, fit: FitInput) -> Solver:
        rows, columns = (
            None if isinstance(ridge, str) else float(ridge)
            for ridge in (self.row_ridge, self.column_ridge)
        )
        return BiasSolver(fit.data.residuals, rows, columns)

    def _make_model(
        self, data: PreprocessedData, solution: SolverResult, observed: Observations
    ) -> MatrixModel:
        """The effects as the additive part of a model with empty factors."""
        extras, scales = solution.extras, data.centering.column_scales
        columns = data.centering.column_effects + scales * extras["column_effects_"]
        centering = replace(
            data.centering, column_effects=columns, row_ridge=extras["row_ridge_"]
        )
        rows = centering.row_effects(rescale(observed, data.unit))
        self.mean_ = centering.mean * data.unit
        self.row_effects_ = rows * (1.0 if self.scale else data.unit)
        extras["column_effects_"] = columns * data.unit
        return MatrixModel(None, solution.factors, data.unit, centering, rows, 1.0)


@dataclass(eq=False, repr=False)
class RegL1(MatrixEstimator):
    r"""Product ``U V`` of minimum absolute residuals and small nuclear norm.

    Minimizes the sum of absolute residuals plus ``lam ||V||_*`` where the columns of U
    are orthonormal. The loss grows only linearly with a residual, so a few gross errors
    do not spoil a fit of small ``rank``.

    Parameters
    ----------
    lam : float, default=1e-3
        Strength of the nuclear norm. The default with a large ``rank`` fits every entry
        with minimum nuclear norm; if a small rank is not known, the square root of the
        larger dimension times the observed fraction is robust to gross errors.
    rank : int, optional
        Maximum number of columns of U; the true rank makes the fit robust. By default
        as many as the minimum nuclear norm can need.
    rho : float, default=1.05
        Factor by which the penalty parameter ``mu`` grows in each step; nearer to 1 is
        more accurate and takes more steps.
    inner : int, default=1
        Number of updates of factors and entries for each update of the multipliers.
    nonnegative : bool, default=False
        Whether values are nonnegative.
    %(center scale)s
    max_iter, tol : int and float, optional
        Maximum number of steps (1000), and tolerance on the distance between the copies
        and on the change (1e-6).
    %(engine progress callback checkpoint)s

    Attributes
    ----------
    %(history_ residual_ rank_ unidentified_rows_)s

    References
    ----------
    Y. Zheng, G. Liu, S. Sugimoto, S. Yan, M. Okutomi, "Practical low-rank matrix
    approximation under robust L1-norm", CVPR 2012.

    Examples
    --------
    >>> import numpy as np
    >>> from ncarl import RegL1
    >>> from ncarl.datasets import make_low_rank
    >>> data = make_low_rank(40, 30, rank=2, factors="gaussian", missing=0.2)
    >>> data.X.flat[::23] = 50.0
    >>> completed = RegL1(rank=2).fit_transform(data.X)
    >>> bool(np.median(abs(completed - data.truth)) < 1e-3)
    True
    """

    lam: float = 1e-3
    rank: int | None = None
    rho: float = 1.05
    inner: int = 1
    nonnegative: bool = False
    center: str | None = None

    def _check_params(self) -> None:
        hint = "; without it missing entries are not determined"
        check_number("lam", self.lam, low=0.0, strict=True, hint=hint)
        check_integer("inner", self.inner, low=1)
        check_flag("nonnegative", self.nonnegative)
        if self.nonnegative and self.center is not None:
            raise ValueError(
                "nonnegative=True is about the values themselves, got center="
                f"{self.center!r}, which is subtracted from them; leave one out"
            )

    def _make_solver(self, fit: FitInput) -> Solver:
        smallest = float(fit.observed.values.min())
        if self.nonnegative and smallest < 0.0:
            raise ValueError(
                f"nonnegative=True needs values of at least 0, got {smallest:g} in X; "
                "leave it out"
            )
        problem = fit.dense_problem()
        rank = default_rank(fit.observed) if self.rank is None else int(self.rank)
        return RegL1Solver(
            problem,
            lam=float(self.lam),
            rank=min(rank, *problem.shape),
            growth=float(self.rho),
            inner=int(self.inner),
            nonnegative=self.nonnegative,
        )


@dataclass(eq=False, repr=False)
class LRFD(MatrixEstimator):
    r"""Low-rank factor decomposition: minimum nuclear norm in a dictionary.

    ``min ||Z||_*`` such that ``D Z`` agrees with the observed entries. A dictionary
    of low rank whose columns span those of the matrix can complete matrices that the
    nuclear norm alone cannot: those of high coherence, in which few columns carry a
    direction. ``history_`` also has the ``round`` and the ``stage`` of each step: 1 the
    first completion, 2 the exact form, 3 the penalized one (objective over ``lam``).

    Parameters
    ----------
    dictionary : {"columns", "basis", "learned"} or array of shape (m, k)
        "columns" completes the matrix with minimum nuclear norm first, and takes the
        normalized columns of its best approximation of numerical rank; "basis" takes
        an orthonormal basis of them. An array is used as it is, on centered values.
        "learned" learns D and Z together, ``min ||D||_* + 1/2 ||Z||^2`` with observed
        entries fixed (isomeric dictionary pursuit, related to the unpublished learned
        LRFD); it is nonconvex and has no recovery guarantee.
    rounds : int, default=1
        Dictionaries made of the last completion in turn, for "columns" and "basis".
    lam : float, optional
        Strength of ``lam ||Z||_* + 1/2 ||P(D Z) - M||^2``, which allows for noise; not
        for "learned". None keeps observed entries fixed; if the dictionary cannot fit
        them (to 1e-4 of their norm), a small strength is chosen, with a warning.
    rank_tol : float, default=1e-3
        Singular values of a completion below this fraction of the largest do not count
        for its rank.
    %(center scale)s
    max_iter, tol : int and float, optional
        Maximum number of steps of all stages together, 3000 by default, at most 500 of
        them for the first completion; and tolerance on the change, 1e-6.
    %(engine progress callback checkpoint)s

    Attributes
    ----------
    dictionary_ : array of shape (m, k)
        The last dictionary; a column of zeros if the fit ended before there was one.
    penalized_ : bool
        Whether the penalized form was used.
    lam_ : float or None
        Strength of the penalized form, if it was used.
    %(history_ residual_ rank_ unidentified_rows_)s

    References
    ----------
    G. Liu, P. Li, "Low-rank matrix completion in the presence of high coherence",
    IEEE Transactions on Signal Processing 64(21), 2016.
    G. Liu, Q. Liu, X. Yuan, "A new theory for matrix completion", 2017.

    Examples
    --------
    >>> from ncarl import LRFD
    >>> from ncarl.datasets import make_low_rank
    >>> data = make_low_rank(40, 30, rank=2, factors="gaussian", missing=0.4)
    >>> model = LRFD().fit(data.X)
    >>> bool(abs(model.transform(data.X) - data.truth).max() < 1e-3), model.penalized_
    (True, False)
    """

    dictionary: str | Array = "columns"
    rounds: int = 1
    lam: float | None = None
    rank_tol: float = 1e-3
    center: str | None = None

    def _default_stopping(self) -> tuple[int, float]:
        return 3000, 1e-6

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

    def _make_solver(self, fit: FitInput) -> Solver:
        problem = fit.dense_problem()
        if isinstance(self.dictionary, str) and self.dictionary == "learned":
            return DictionaryLearningSolver(problem)
        given = None
        if not isinstance(self.dictionary, str):
            given = _check_dictionary(self.dictionary)
            if given.shape[0] == problem.shape[0]:
                given = given[fit.row_order]
            else:
                raise ValueError(
                    f"dictionary must have as many rows as X, {problem.shape[0]}, got "
                    f"shape {given.shape}"
                )
        return LRFDSolver(
            problem,
            kind=self.dictionary if given is None else "columns",
            dictionary=given,
            rounds=int(self.rounds),
            lam=None if self.lam is None else float(self.lam) / fit.data.value_unit(),
            rank_tol=float(self.rank_tol),
            tol=fit.tol,
        )

    def _set_fitted_attributes(
        self, observed: Observations, data: PreprocessedData, solution: SolverResult
    ) -> None:
        super()._set_fitted_attributes(observed, data, solution)
        if self.lam_ is None:
            return
        self.lam_ *= data.value_unit()
        if self.lam is None:
            warnings.warn(
                "the dictionary cannot fit the observed entries, so lam was set to "
                f"{self.lam_:.3g} (the relative residual is {self.residual_:.1e}). "
                "Lower rank_tol for a larger dictionary, or set lam",
                UserWarning,
                stacklevel=STACKLEVEL,
            )


def _check_dictionary(dictionary: Any) -> Any:
    wanted = f"one of {', '.join(map(repr, DICTIONARIES))} or a matrix of numbers"
    D = as_float_array("dictionary", dictionary, wanted)
    if D.ndim != 2 or 0 in D.shape or not np.isfinite(D).all():
        raise ValueError(
            "dictionary must be a matrix of finite numbers with at least one column, "
            f"got shape {D.shape}"
        )
    return D


@dataclass(eq=False, repr=False)
class S3LR(MatrixEstimator):
    r"""Structured sparse plus structured low-rank: subspace clustering and completion.

    Columns are modeled as points of several subspaces: each is a combination of few
    others of its cluster, ``X = X C + E`` with 0 on the diagonal of C. Completion and
    coefficients minimize ``sum_j ||X_j||_* + g0 |C|_1 + G |T o C|_1 + lam |E|`` with
    observed entries fixed, where ``X_j`` are the columns of cluster j and T marks pairs
    of different clusters; then spectral clustering of ``|C| + |C|^T`` gives new
    clusters. The first round has one cluster. The problem is nonconvex, and ``mu``
    grows by ``rho`` in each step, so the result depends on the iterates. ``history_``
    also has the ``round``, the number of ``clusters`` (0 before it is selected), and
    the residuals of observed entries (``observed``) and ``X = X C + E`` (``made``).

    Parameters
    ----------
    n_clusters : "auto" or int, default="auto"
        Number of clusters; "auto" selects it by the largest gap between the first
        eleven eigenvalues of the normalized Laplacian after the first round.
    lam : float, default=20
        Strength of the errors E; 0 leaves the nuclear norm alone.
    g0, G : float, default=0.02
        Strength of all coefficients, and additional strength of those between clusters,
        times the typical norm of a column.
    relax : bool, default=False
        Take the nuclear norm of all columns together, regardless of the clusters.
    error_norm : {"l1", "l21", "squared"}, default="l1"
        Norm of E: sum of absolute values, of column norms, or half that of squares.
    max_rounds : int, default=50
        Maximum number of rounds; it stops once less than 0.15% of the coefficients are
        between clusters, or the clusters stay and X changes by less than 1%.
    rho : float, default=1.1
        Factor by which ``mu``, the penalty parameter of the constraints, grows in each
        step; nearer to 1 is more accurate and takes more steps.
    random_state : int, default=0
        Seed of the clustering.
    %(center scale)s
    max_iter, tol : int and float, optional
        Maximum number of steps of all rounds together, 2000 by default, at most 300 of
        them for each round but the last; and tolerance of a round on the residuals of
        both constraints and the change of X, 1e-4.
    %(engine progress callback checkpoint)s

    Attributes
    ----------
    labels_ : array of int, shape (n,)
        Cluster of each column.
    coefficients_ : array of shape (n, n)
        Coefficients C: its column j combines the other columns to column j.
    n_clusters_, rounds_ : int
        Number of clusters, and of rounds made.
    %(history_ residual_ rank_ unidentified_rows_)s

    References
    ----------
    C.-G. Li, R. Vidal, "A structured sparse plus structured low-rank framework for
    subspace clustering and completion", IEEE Transactions on Signal Processing
    64(24), 2016.

    Examples
    --------
    >>> from ncarl import S3LR
    >>> from ncarl.datasets import make_low_rank
    >>> X = make_low_rank(20, 30, rank=2, factors="gaussian", missing=0.2).X
    >>> X[10:, :15] = X[:10, 15:] = 0.0  # two clusters of columns
    >>> model = S3LR().fit(X)
    >>> model.n_clusters_, int(model.labels_[0]), int(model.labels_[-1])
    (2, 0, 1)
    """

    n_clusters: int | str = "auto"
    lam: float = 20.0
    g0: float = 0.02
    G: float = 0.02
    relax: bool = False
    error_norm: str = "l1"
    max_rounds: int = 50
    rho: float = 1.1
    random_state: int = 0
    center: str | None = None

    def _default_stopping(self) -> tuple[int, float]:
        return 2000, 1e-4

    def _check_params(self) -> None:
        if not (isinstance(self.n_clusters, str) and self.n_clusters == "auto"):
            hint = "; 'auto' finds one"
            check_integer("n_clusters", self.n_clusters, low=1, hint=hint)
        for name in ("lam", "g0", "G"):
            check_number(name, getattr(self, name), low=0.0)
        check_flag("relax", self.relax)
        check_choice("error_norm", self.error_norm, ("l1", "l21", "squared"))
        check_integer("max_rounds", self.max_rounds, low=1)

    def _make_solver(self, fit: FitInput) -> Solver:
        problem = fit.dense_problem()
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
            tol=fit.tol,
            seed=int(self.random_state),
        )

    def _set_fitted_attributes(
        self, observed: Observations, data: PreprocessedData, solution: SolverResult
    ) -> None:
        solution.extras["labels_"] = number_clusters(solution.extras["labels_"])
        super()._set_fitted_attributes(observed, data, solution)
