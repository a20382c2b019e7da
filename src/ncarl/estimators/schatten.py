"""Schatten-p: powers of singular values, below the nuclear norm."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from ncarl.core.types import Array
from ncarl.engines import Engine
from ncarl.estimators.matrix_base import MatrixEstimator
from ncarl.estimators.parameters import check_choice, check_number, check_whole
from ncarl.estimators.strength import (
    check_lam,
    gradient_ways,
    strength_solver,
)
from ncarl.loop import StepInfo
from ncarl.matrix_model import Ready
from ncarl.observed import Observed
from ncarl.penalties import NuclearNorm, SchattenNorm
from ncarl.solvers.problem import Problem, Solver
from ncarl.solvers.run import run
from ncarl.solvers.split import Balanced, Growing, Split

#: The first threshold over the largest singular value, which leaves one direction.
FIRST_CUT = 0.9
#: How far ``mu`` may grow.
GROWTH = 1e10
#: Steps and tolerance of the nuclear norm where it is the start.
START_STEPS, START_TOL = 300, 1e-3


class SchattenP(MatrixEstimator):
    r"""The completion of least :math:`\sum_i \sigma_i^p`, for p up to 1.

    Not convex for p < 1: the result is a stationary point, reached from one direction
    upwards by an augmented Lagrangian whose threshold falls.

    Parameters
    ----------
    p : float, default=0.5
        The power, above 0 and at most 1; 1 is the nuclear norm.
    lam : float, "auto" or None, default=None
        Strength of the penalty against half the squared residuals; "auto" chooses it
        on held-out entries. None holds observed entries as they are.
    rho : float, default=1.05
        Growth of the weight between the two copies of the matrix; 1.02 is more
        accurate and slower. Without ``lam`` and p < 1 only.
    start : {"zeros", "nuclear"}, default="zeros"
        What the gaps hold at first: zeros, or the completion of least nuclear norm.
    random_state : int, default=0
        Seed of the held-out entries of ``lam="auto"``.
    center : {None, "mean", "columns", "two-way"}, default=None
        What to take off first.
    scale : {None, "columns"}, default=None
        "columns" divides every column by its spread first.
    max_iter : int, optional
        Most steps; 1000 by default (2000 with p = 1).
    tol : float, optional
        What the change must fall below; 1e-7 by default, 1e-6 with p = 1, 1e-5 with
        ``lam``.
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

    _scalars = (*MatrixEstimator._scalars, "lam_", "path_")

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

    def _check(self) -> None:
        p = check_number("p", self.p, low=0.0, strict=True, hint=" (at most 1)")
        if p > 1.0:
            raise ValueError(f"p must be above 0 and at most 1, got {self.p!r}")
        check_lam(self.lam)
        check_number("rho", self.rho, low=1.0, strict=True)
        check_choice("start", self.start, ("zeros", "nuclear"))
        check_whole("random_state", self.random_state, low=0)
        if self.lam is not None and self.start != "zeros":
            raise ValueError(
                "start='nuclear' belongs to lam=None; with a strength the fit starts "
                f"from zeros, got lam={self.lam!r}"
            )

    def _limits(self) -> tuple[int, float]:
        if self.lam is not None:
            return 1000, 1e-5
        return (2000, 1e-6) if float(self.p) == 1.0 else (1000, 1e-7)

    def _solver(
        self, ready: Ready, observed: Observed, engine: Engine, found: dict[str, Any]
    ) -> Solver:
        p = float(self.p)
        norm = SchattenNorm(p)
        self.lam_, self.path_ = None, []
        if self.lam is not None:
            ways = gradient_ways(self, norm, engine)
            return strength_solver(self, ways, ready, observed, p, found)
        problem = self._dense(ready, engine)
        if p == 1.0:
            tol = self._limits()[1] if self.tol is None else float(self.tol)
            mu = 1.0 / problem.top
            return Split(problem, NuclearNorm(), Balanced(mu), proof=tol)
        mu = 1.0 / norm.strength(FIRST_CUT * problem.top)
        schedule = Growing(mu, float(self.rho), GROWTH * mu)
        start = self._nuclear(problem) if self.start == "nuclear" else None
        return Split(problem, norm, schedule, degree=p, start=start)

    def _nuclear(self, problem: Problem) -> Array:
        """The completion of about the least nuclear norm."""
        solver = Split(problem, NuclearNorm(), Balanced(1.0 / problem.top))
        result = run(solver, max_iter=START_STEPS, tol=START_TOL)
        if result.interrupted:
            raise KeyboardInterrupt
        return result.last.state.X
