"""WNNM: singular values weighted by what they were."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

from ncarl.engines import Engine
from ncarl.estimators.matrix_base import MatrixEstimator
from ncarl.estimators.parameters import check_number, check_whole
from ncarl.estimators.strength import (
    check_lam,
    gradient_ways,
    strength_solver,
)
from ncarl.loop import StepInfo
from ncarl.matrix_model import Ready
from ncarl.observed import Observed
from ncarl.penalties import LogNuclear
from ncarl.solvers.problem import Problem, Solver
from ncarl.solvers.split import Growing, Split

#: How far ``mu`` may grow.
GROWTH = 1e13
#: ``C`` over the largest singular value.
USUAL_C = 0.5
#: ``eps`` over the root mean square of the values.
USUAL_EPS = 1e-6


class WNNM(MatrixEstimator):
    r"""Weighted nuclear norm, weights :math:`C / (\sigma_i + \epsilon)` re-estimated.

    Stationary points of :math:`C \sum_i \log(\sigma_i + \epsilon)` among the matrices
    with the observed entries. It commits to a low rank early and fits noise with it.

    Parameters
    ----------
    C : float, "sqrt_mn" or None, default=None
        Factor of the weights. It changes the way the fit takes, not what is
        stationary. None is half the largest singular value of the zero-filled matrix;
        "sqrt_mn", the authors' rule, depends on the unit of the values.
    eps : float, optional
        Added to singular values, in the unit of the values; by default 1e-6 of their
        root mean square.
    lam : float, "auto" or None, default=None
        Strength of :math:`\sum_i \log(1 + \sigma_i / \epsilon)` against half the
        squared residuals; "auto" chooses it on held-out entries. None holds observed
        entries as they are.
    rho : float, default=1.05
        Growth of the weight between the two copies of the matrix; without ``lam``.
    random_state : int, default=0
        Seed of the held-out entries of ``lam="auto"``.
    center : {None, "mean", "columns", "two-way"}, default=None
        What to take off first.
    scale : {None, "columns"}, default=None
        "columns" divides every column by its spread first.
    max_iter : int, optional
        Most steps; 1000 by default.
    tol : float, optional
        What the change must fall below; 1e-7 by default, 1e-5 with ``lam``.
    engine : {"auto", "threads", "torch"} or Engine, default="auto"
        Where the work is done; see `NCARL`.
    progress : bool, default=False
        Show a progress bar.
    callback : callable, optional
        Called with a `StepInfo` after each step; returning True ends the fit.
    checkpoint : path or Checkpoint, optional
        File that keeps the state; if it exists, the fit goes on from it.

    Attributes
    ----------
    C_ : float
        The factor that was used; NaN with ``lam``.
    history_ : dict of arrays
        Per step: ``objective``, ``change``, ``primal`` and ``dual`` residual, ``rank``,
        ``mu`` (``lam`` in the noisy form), seconds.
    residual_ : float
        Relative residual of the observed entries before they are put back.
    rank_, objective_, n_iter_, converged_
        Rank before that, last objective, steps made, whether the fit settled.
    lam_, path_
        Strength of the noisy form (None without one), and the strengths tried.
    unidentified_rows_, unidentified_columns_ : arrays of int
        Rows and columns with nothing observed; they get the centre, 0 without one.

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

    _scalars = (*MatrixEstimator._scalars, "C_", "lam_", "path_")

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

    def _check(self) -> None:
        if self.C is not None and not (isinstance(self.C, str) and self.C == "sqrt_mn"):
            check_number("C", self.C, low=0.0, strict=True, hint=" (or 'sqrt_mn')")
        if self.eps is not None:
            check_number("eps", self.eps, low=0.0, strict=True)
        check_lam(self.lam)
        check_number("rho", self.rho, low=1.0, strict=True)
        check_whole("random_state", self.random_state, low=0)
        if self.lam is not None and self.C is not None:
            raise ValueError(
                f"C={self.C!r} belongs to lam=None; with lam={self.lam!r} the strength "
                "is lam alone; leave one of them out"
            )

    def _limits(self) -> tuple[int, float]:
        return 1000, 1e-7 if self.lam is None else 1e-5

    def _solver(
        self, ready: Ready, observed: Observed, engine: Engine, found: dict[str, Any]
    ) -> Solver:
        problem = self._dense(ready, engine)
        usual = USUAL_EPS * problem.rms
        norm = LogNuclear(usual if self.eps is None else self.eps / ready.value_unit())
        self.C_, self.lam_, self.path_ = math.nan, None, []
        if self.lam is not None:
            ways = gradient_ways(self, norm, engine)
            return strength_solver(self, ways, ready, observed, 0.0, found)
        C = self._inner_c(problem, ready.value_unit())
        self.C_ = C * ready.value_unit()
        mu = 1.0 / problem.top
        return Split(
            problem, norm, Growing(mu, float(self.rho), GROWTH * mu), weight=C,
            multiplier=problem.M / problem.top,
        )  # fmt: skip

    def _inner_c(self, problem: Problem, unit: float) -> float:
        """The factor of the weights in the solver's units."""
        if self.C is None:
            return USUAL_C * problem.top
        if isinstance(self.C, str):
            return math.sqrt(math.prod(problem.shape)) / unit
        return float(self.C) / unit
