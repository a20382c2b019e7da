"""S3LR: columns from several subspaces, completed and grouped in turns."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

from ncarl.engines import Engine
from ncarl.estimators.matrix_base import MatrixEstimator
from ncarl.estimators.parameters import (
    check_choice,
    check_flag,
    check_number,
    check_whole,
)
from ncarl.loop import StepInfo
from ncarl.matrix_model import Ready
from ncarl.observed import Observed
from ncarl.solvers.problem import Solver
from ncarl.solvers.s3lr import S3LRSolver

#: How the part of a column that others do not make up is measured.
NORMS = ("l1", "l21", "squared")


class S3LR(MatrixEstimator):
    r"""Columns completed from one another, and grouped by who makes up whom.

    Columns are taken for points of several subspaces: each is made up of few others
    of its group, ``X = X C + E`` with 0 on the diagonal of C. Completion and
    coefficients minimise ``sum_j ||X_j||_* + g0 |C|_1 + G |T o C|_1 + lam |E|`` with
    observed entries held, where ``X_j`` are the columns of group j and T marks pairs
    of different groups; then spectral clustering of ``|C| + |C|^T`` groups the columns
    anew. The first round has one group. The problem is not convex, and ``mu`` grows by
    ``rho`` from step to step, so that the result depends on the way to it.

    Parameters
    ----------
    n_clusters : "auto" or int, default="auto"
        Number of groups; "auto" takes it from the largest gap between the first eleven
        eigenvalues of the normalised Laplacian after the first round.
    lam : float, default=20
        Strength of what columns are not made up of; 0 leaves the nuclear norm alone.
        The default all but forbids such a part. For "squared" it is divided by the
        usual length of a column.
    g0, G : float, default=0.02
        Strength of all coefficients, and of those between groups besides, times the
        usual length of a column: the root of m times the root mean square of the
        values.
    relax : bool, default=False
        Take the nuclear norm of all columns together, whatever their groups.
    error_norm : {"l1", "l21", "squared"}, default="l1"
        How E is measured: sum of its absolute values, of the lengths of its columns,
        or half the sum of its squares.
    max_rounds : int, default=50
        Most rounds. They end before that when less than 0.15% of the coefficients are
        between groups, or when groups stay and X changes by less than 1%.
    rho : float, default=1.1
        Growth of ``mu``, the weight of the constraints. The nearer to 1, the nearer
        the end of a round to a stationary point, and the more steps.
    random_state : int, default=0
        Seed of the clustering.
    center : {None, "mean", "columns", "two-way"}, default=None
        What to take off first.
    scale : {None, "columns"}, default=None
        "columns" divides every column by its spread first.
    max_iter, tol : int and float, optional
        Most steps of all rounds together, 2000 by default, at most 300 of them for a
        round but the last; and what the residuals of both constraints and the change
        of X must fall below for a round to end, 1e-4.
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
    labels_ : array of int, shape (n,)
        Group of each column.
    coefficients_ : array of shape (n, n)
        Coefficients C: column j is made up of others with those of its column j.
    n_clusters_, rounds_ : int
        Number of groups that was used, and rounds made.
    history_ : dict of arrays
        Per step: ``round``, ``objective``, ``change``, residuals of the observed
        entries (``observed``) and of ``X = X C + E`` (``made``), ``clusters`` (0 as
        long as it is not known), ``rank``, ``mu``, seconds.
    residual_ : float
        Relative residual of the observed entries before they are put back.
    rank_, objective_, n_iter_, converged_
        Rank before that, summed over the groups, last objective, steps made, and
        whether the last round settled.
    unidentified_rows_, unidentified_columns_ : arrays of int
        Rows and columns with nothing observed; they get the centre, 0 without one.

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

    _scalars = (*MatrixEstimator._scalars, "n_clusters_", "rounds_")
    _own_arrays = ("labels_", "coefficients_")
    _usual = (2000, 1e-4)

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

    def _check(self) -> None:
        if not (isinstance(self.n_clusters, str) and self.n_clusters == "auto"):
            hint = "; 'auto' finds one"
            check_whole("n_clusters", self.n_clusters, low=1, hint=hint)
        for name in ("lam", "g0", "G"):
            check_number(name, getattr(self, name), low=0.0)
        check_flag("relax", self.relax)
        check_choice("error_norm", self.error_norm, NORMS)
        check_whole("max_rounds", self.max_rounds, low=1)
        check_number("rho", self.rho, low=1.0, strict=True)
        check_whole("random_state", self.random_state, low=0)

    def _solver(
        self, ready: Ready, observed: Observed, engine: Engine, found: dict[str, Any]
    ) -> Solver:
        problem = self._dense(ready, engine)
        m, n = problem.shape
        clusters = 0 if isinstance(self.n_clusters, str) else int(self.n_clusters)
        if clusters > n:
            raise ValueError(
                f"n_clusters must be at most the number of columns, {n}, got "
                f"{self.n_clusters!r}; 'auto' finds one"
            )
        # Coefficients have no unit and the rest of the objective that of the values.
        length = math.sqrt(m) * problem.rms
        squared = self.error_norm == "squared"
        return S3LRSolver(
            problem,
            lam=float(self.lam) / (length if squared else 1.0),
            g0=float(self.g0) * length,
            G=float(self.G) * length,
            norm=self.error_norm,
            relax=bool(self.relax),
            clusters=clusters,
            rounds=int(self.max_rounds),
            rho=float(self.rho),
            tol=self._usual[1] if self.tol is None else float(self.tol),
            seed=int(self.random_state),
        )
