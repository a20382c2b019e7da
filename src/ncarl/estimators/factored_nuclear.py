"""The nuclear norm through two factors."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from ncarl.engines import Engine
from ncarl.estimators.matrix_base import MatrixEstimator
from ncarl.estimators.strength import (
    alternating_ways,
    check_factored,
    inner_lam,
    strength_solver,
)
from ncarl.loop import StepInfo
from ncarl.matrix_model import Ready
from ncarl.observed import Observed
from ncarl.solvers.factored import Factored, usual_rank
from ncarl.solvers.problem import Solver
from ncarl.solvers.split import Balanced

#: First weight of the distance between the copies times the largest singular value.
USUAL_MU = 5.0


class FactoredNuclear(MatrixEstimator):
    r"""The completion ``A B`` whose factors have the least squared norms.

    ``(||A||^2 + ||B||^2) / 2`` is the nuclear norm of the product at its least, so
    with enough columns this is the result of `Nuclear`, found without singular value
    decompositions. With fewer columns it is the best of their rank.

    Parameters
    ----------
    rank : int, optional
        Columns of A. By default as many as the least nuclear norm can need: the
        smallest r with ``r (r + 1) / 2`` above the number of entries, at most the
        number of rows or columns. With fewer than ``entries / (m + n)`` no product
        agrees with noisy entries, and the fit cannot settle unless ``lam`` is given.
    lam : float, "auto" or None, default=None
        None holds the observed entries; a number allows for noise and is the strength
        of the norm against half the squared residuals; "auto" chooses it on held-out
        entries.
    mu : float, optional
        First weight of the distance between the matrix and the product, without
        ``lam``; by default 5 over the largest singular value.
    random_state : int, default=0
        Seed of the held-out entries of ``lam="auto"``.
    center : {None, "mean", "columns", "two-way"}, default=None
        What to take off first.
    scale : {None, "columns"}, default=None
        "columns" divides every column by its spread first.
    max_iter, tol : int and float, optional
        Most steps (2000), and what both residuals must fall below (1e-5).
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
        Per step: ``objective``, ``change``, ``primal`` and ``dual`` residual, ``mu``,
        seconds.
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

    _scalars = (*MatrixEstimator._scalars, "lam_", "path_")

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

    def _check(self) -> None:
        check_factored(self)

    def _limits(self) -> tuple[int, float]:
        return (2000, 1e-5) if self.lam is None else (500, 5e-3)

    def _solver(
        self, ready: Ready, observed: Observed, engine: Engine, found: dict[str, Any]
    ) -> Solver:
        self.lam_, self.path_ = None, []
        if self.lam is not None:
            return self._noisy(ready, observed, engine, found)
        problem = self._dense(ready, engine)
        mu = USUAL_MU / problem.top if self.mu is None else self.mu * ready.value_unit()
        rank = usual_rank(observed) if self.rank is None else int(self.rank)
        schedule = Balanced(mu, relaxation=1.0, apart=5.0)
        return Factored(problem, min(rank, *problem.shape), schedule)

    def _noisy(
        self, ready: Ready, observed: Observed, engine: Engine, found: dict[str, Any]
    ) -> Solver:
        """The solver of the noisy form: one factor for the other, by turns."""
        rank = usual_rank(observed) if self.rank is None else int(self.rank)
        ways = alternating_ways(rank, int(self.random_state), engine)
        solver = strength_solver(self, ways, ready, observed, 1.0, found)
        assert self.lam_ is not None
        self._ridge = inner_lam(self.lam_, ready, 1.0)
        return solver

    def _new_row_ridge(self) -> float | None:
        return None if self.lam is None else self._ridge
