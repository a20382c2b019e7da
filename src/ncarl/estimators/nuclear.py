"""The nuclear norm: the convex rival."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

from ncarl.engines import Engine
from ncarl.estimators.matrix_base import MatrixEstimator
from ncarl.estimators.parameters import check_choice, check_number, check_whole
from ncarl.estimators.strength import check_lam, gradient_ways, strength_solver
from ncarl.loop import StepInfo
from ncarl.matrix_model import Ready
from ncarl.observed import Observed
from ncarl.penalties import NuclearNorm
from ncarl.solvers.gradient import Gradient
from ncarl.solvers.problem import Solver
from ncarl.solvers.split import Balanced, Growing, Split
from ncarl.solvers.svt import Thresholding

#: Most steps and tolerance of each solver.
SOLVERS = {
    "admm": (2000, 1e-6),
    "ialm": (1000, 1e-6),
    "svt": (500, 1e-4),
    "apg": (1000, 1e-5),
}
#: Which solvers a parameter belongs to.
OWNERS = {"lam": ("apg",), "mu": ("admm", "ialm"), "rho": ("ialm",), "t": ("svt",)}
#: Largest first and last ``mu`` of "ialm" times the largest singular value: there the
#: two copies of the matrix differ by less than its digits.
FIRST_MU, MOST_MU = 1e10, 1e20
#: Strength of the noisy form over the largest singular value, where none is given.
USUAL_LAM = 1e-4


class Nuclear(MatrixEstimator):
    r"""The completion of least nuclear norm (sum of singular values).

    Parameters
    ----------
    solver : {"admm", "ialm", "svt", "apg"}, default="admm"
        "admm" ends when duality proves the result; "ialm" is the inexact augmented
        Lagrangian as the paper ran it, whose growing ``mu`` stops it early; "svt" adds
        half the squared Frobenius norm; "apg" allows for noise.
    lam : float, "auto" or None, default=None
        Strength of the norm against half the squared residuals, for "apg". None is
        1e-4 of the largest singular value; "auto" chooses it on held-out entries.
    mu : float, optional
        First weight of the distance between the two copies of the matrix, for "admm"
        (default 1 over the largest singular value) and "ialm" (default 1e-5, in the
        units of 1 / value, as the paper ran it).
    rho : float, optional
        Growth of ``mu`` from step to step, for "ialm"; 1.1 by default. The nearer to
        1, the nearer the result to the least norm.
    t : float, optional
        Weight of the norm for "svt"; by default 5 times the norm that a full matrix
        of such values has, the root of m n times their root mean square.
    random_state : int, default=0
        Seed of the held-out entries of ``lam="auto"``.
    center : {None, "mean", "columns", "two-way"}, default=None
        What to take off first.
    scale : {None, "columns"}, default=None
        "columns" divides every column by its spread first.
    max_iter, tol : int and float, optional
        Most steps, and what the change must fall below; by default those of the
        solver.
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
        Per step: ``objective``, ``change``, ``primal`` and ``dual`` residual, ``gap``,
        ``rank``, ``mu``, seconds; what of it the solver has.
    gap_ : float
        Bound, by duality, on how far the objective is above the least one, over it;
        NaN for "svt".
    dual_ : scipy.sparse.csr_array
        Multipliers of the observed entries ("admm", "ialm"); a saved model has none.
    residual_ : float
        Relative residual of the observed entries before they are put back.
    path_ : list of dict
        The strengths that ``lam="auto"`` tried, with their errors on held-out entries.
    rank_, objective_, n_iter_, converged_, lam_
        Rank before that, last objective, steps made, whether the fit settled, and the
        strength of the noisy form (None without one).
    unidentified_rows_, unidentified_columns_ : arrays of int
        Rows and columns with nothing observed; they get the centre, 0 without one.

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

    _scalars = (*MatrixEstimator._scalars, "gap_", "lam_", "path_")

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

    def _check(self) -> None:
        check_choice("solver", self.solver, SOLVERS)
        for name, solvers in OWNERS.items():
            if getattr(self, name) is not None and self.solver not in solvers:
                names = " or ".join(repr(s) for s in solvers)
                raise ValueError(
                    f"{name} belongs to solver={names}, got solver={self.solver!r} "
                    f"with {name}={getattr(self, name)!r}; leave {name} out"
                )
        check_lam(self.lam)
        check_whole("random_state", self.random_state, low=0)
        for name in ("mu", "t"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), low=0.0, strict=True)
        if self.rho is not None:
            check_number("rho", self.rho, low=1.0, strict=True)

    def _limits(self) -> tuple[int, float]:
        return SOLVERS[self.solver]

    def _solver(
        self, ready: Ready, observed: Observed, engine: Engine, found: dict[str, Any]
    ) -> Solver:
        norm = NuclearNorm()
        self.gap_, self.lam_, self.path_ = math.nan, None, []
        if self.lam is not None:
            ways = gradient_ways(self, norm, engine)
            return strength_solver(self, ways, ready, observed, 1.0, found)
        problem = self._dense(ready, engine)
        if self.solver == "admm":
            mu = 1.0 / problem.top if self.mu is None else self.mu * ready.value_unit()
            return Split(problem, norm, Balanced(mu), proof=self._proof())
        if self.solver == "ialm":
            mu = (1e-5 if self.mu is None else self.mu) * ready.value_unit()
            mu = min(mu, FIRST_MU / problem.top)
            rho = 1.1 if self.rho is None else float(self.rho)
            schedule = Growing(mu, rho, max(MOST_MU / problem.top, mu))
            return Split(problem, norm, schedule, by_change=True)
        if self.solver == "svt":
            t = 5.0 * math.sqrt(math.prod(problem.shape)) * problem.rms
            t = t if self.t is None else self.t / ready.value_unit()
            return Thresholding(problem, t)
        self._lam_unit = ready.value_unit()
        self.lam_ = USUAL_LAM * problem.top * self._lam_unit
        return Gradient(problem, norm, USUAL_LAM * problem.top)

    def _proof(self) -> float:
        """The tolerance, which the certificate is to meet too."""
        return SOLVERS["admm"][1] if self.tol is None else float(self.tol)
