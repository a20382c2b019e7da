"""Group-sparse factors: Schatten norms without singular values."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from ncarl.engines import Engine
from ncarl.estimators.matrix_base import MatrixEstimator
from ncarl.estimators.parameters import check_number
from ncarl.estimators.strength import Choices, check_factored, strength_solver
from ncarl.loop import StepInfo
from ncarl.matrix_model import Ready
from ncarl.observed import Observed
from ncarl.solvers.factored import usual_rank
from ncarl.solvers.fgsr import GroupGradient, GroupSplit
from ncarl.solvers.groups import Groups
from ncarl.solvers.problem import Problem, Solver

#: How far a ``p`` may be from the two that there are.
NEAR = 1e-3


class FGSR(MatrixEstimator):
    r"""The completion ``A B`` whose factors have few columns, and short ones.

    The sum of the lengths of A's columns plus ``a/2 ||B||^2`` is, at its least for a
    product, ``3/2 a^(1/3)`` times the sum of its singular values to the power 2/3; with
    ``a`` times the lengths of B's rows it is ``2 a^(1/2)`` times that to the power 1/2.
    Columns that reach 0 are dropped. The problem is not convex: the result is a
    stationary point that the start leads to.

    Parameters
    ----------
    p : {2/3, 1/2}, default=2/3
        The power.
    rank : int, optional
        Columns at the start; by default as many as the least nuclear norm can need:
        the smallest r with ``r (r + 1) / 2`` above the number of entries, at most the
        number of rows or columns. With fewer than ``entries / (m + n)`` no product
        agrees with noisy entries, and the fit cannot settle unless ``lam`` is given.
    a : float, default=1
        Weight of B; it rescales the factors and changes no result without ``lam``.
    lam : float, "auto" or None, default=None
        None holds the observed entries; a number allows for noise and is the strength
        of the regulariser against half the squared residuals; "auto" chooses it on
        held-out entries.
    mu : float, optional
        First weight of the distance between the matrix and the product, without
        ``lam``; by default such that singular values above 0.05 (p = 1/2: 0.15) of
        the largest stay. If it is too small, columns that are needed are lost.
    random_state : int, default=0
        Seed of the held-out entries of ``lam="auto"``.
    center : {None, "mean", "columns", "two-way"}, default=None
        What to take off first.
    scale : {None, "columns"}, default=None
        "columns" divides every column by its spread first.
    max_iter, tol : int and float, optional
        Most steps (2000), and what must fall below: without ``lam`` the change and the
        distance between matrix and product (1e-6), with it the change (1e-4).
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
        Per step: ``objective``, ``change``, ``rank`` (columns left), seconds; without
        ``lam`` also ``primal`` residual and ``mu``.
    residual_ : float
        Relative residual of the observed entries before they are put back, which is
        not done with ``lam``.
    path_ : list of dict
        The strengths that ``lam="auto"`` tried, with their errors on held-out entries.
    rank_, objective_, n_iter_, converged_, lam_
        Rank of the product, last objective, steps made, whether the fit settled, and
        the strength of the noisy form (None without one).
    unidentified_rows_, unidentified_columns_ : arrays of int
        Rows and columns with nothing observed; they get the centre, 0 without one.

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

    _scalars = (*MatrixEstimator._scalars, "lam_", "path_")

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

    def _check(self) -> None:
        hint = "; SchattenP takes other powers"
        p = check_number("p", self.p, low=0.0, strict=True, hint=hint)
        if min(abs(p - 0.5), abs(p - 2 / 3)) > NEAR:
            raise ValueError(f"p must be 1/2 or 2/3, got {self.p!r}{hint}")
        check_number("a", self.a, low=0.0, strict=True)
        check_factored(self)

    def _limits(self) -> tuple[int, float]:
        return (2000, 1e-6) if self.lam is None else (2000, 1e-4)

    def _solver(
        self, ready: Ready, observed: Observed, engine: Engine, found: dict[str, Any]
    ) -> Solver:
        groups = Groups(abs(self.p - 0.5) <= NEAR, float(self.a))
        p = groups.penalty.degree
        self.lam_, self.path_ = None, []
        if self.lam is None:
            problem = self._dense(ready, engine)
            mu = None if self.mu is None else float(self.mu * ready.value_unit(2.0 - p))
            return GroupSplit(problem, groups, self._rank(problem), mu)

        def ways(some: Ready) -> Choices:
            given = self._dense(some, engine)
            largest = groups.penalty.strength(given.top) / groups.weight
            rank = self._rank(given)
            return Choices(
                largest, lambda lam: GroupGradient(given, groups, lam, rank), 1e-3
            )

        return strength_solver(self, ways, ready, observed, p, found)

    def _rank(self, problem: Problem) -> int:
        """Columns at the start."""
        rank = usual_rank(problem.observed) if self.rank is None else int(self.rank)
        return min(rank, *problem.shape)
