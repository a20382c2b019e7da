"""Soft-impute: the nuclear norm with noise, on the observed entries alone."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from ncarl.engines import Engine
from ncarl.estimators.matrix_base import MatrixEstimator
from ncarl.estimators.parameters import check_choice, check_number, check_whole
from ncarl.estimators.strength import (
    Choices,
    Ways,
    alternating_ways,
    check_lam,
    inner_lam,
    strength_solver,
)
from ncarl.loop import StepInfo
from ncarl.matrix_model import Ready
from ncarl.observed import Observed
from ncarl.solvers.entries import Entries
from ncarl.solvers.problem import Solver
from ncarl.solvers.soft import SoftThresholding


class SoftImpute(MatrixEstimator):
    r"""Least half squared residuals plus ``lam`` times the nuclear norm.

    The matrix is kept as factors and what fills its gaps is never formed, so sparse
    ratings of any size fit. New rows are completed by ridge regression on the right
    factor, which for rows of the fit is what the fit found.

    Parameters
    ----------
    lam : "auto" or float, default="auto"
        Strength of the nuclear norm, in the unit of the values; "auto" tries falling
        strengths, each from where the one before ended, and takes the one with the
        least error on held-out entries.
    solver : {"als", "svd"}, default="als"
        "als" alternates between the two factors; "svd" takes the leading singular
        triplets of the filled matrix in each step, by Lanczos where it is large.
    rank : int, optional
        Largest rank; by default as many directions as the strength leaves.
    validation : float, default=0.1
        Part of the entries that is held out to choose ``lam``.
    random_state : int, default=0
        Seed of the held-out entries and of first directions.
    center : {None, "mean", "columns", "two-way"}, default=None
        What to take off first. For ratings "two-way" is much better than None.
    scale : {None, "columns"}, default=None
        "columns" divides every column by its spread first.
    max_iter : int, optional
        Most steps; 500 by default.
    tol : float, optional
        What a step, over ``lam`` times the root of the rank, must fall below; 5e-3 by
        default.
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
    lam_ : float
        The strength that was used.
    path_ : list of dict
        The strengths that ``lam="auto"`` tried: error on held-out entries, steps, rank.
    history_ : dict of arrays
        Per step: ``objective``, ``change``, ``rank``, ``lam``, seconds.
    residual_, rank_, objective_, n_iter_, converged_
        Relative residual of the observed entries, rank, last objective, steps made,
        whether the fit settled.
    unidentified_rows_, unidentified_columns_ : arrays of int
        Rows and columns with nothing observed; they get the centre, 0 without one.

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

    _scalars = (*MatrixEstimator._scalars, "lam_", "path_")
    _usual = (500, 5e-3)

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

    def _check(self) -> None:
        check_lam(self.lam, exact=False)
        check_choice("solver", self.solver, ("als", "svd"))
        if self.rank is not None:
            check_whole("rank", self.rank, low=1)
        share = check_number("validation", self.validation, low=0.0, strict=True)
        if share >= 1.0:
            raise ValueError(f"validation must be below 1, got {self.validation!r}")
        check_whole("random_state", self.random_state, low=0)

    def _solver(
        self, ready: Ready, observed: Observed, engine: Engine, found: dict[str, Any]
    ) -> Solver:
        solver = strength_solver(
            self, self._ways(engine), ready, observed, 1.0, found,
            share=float(self.validation),
        )  # fmt: skip
        assert self.lam_ is not None
        self._ridge = inner_lam(self.lam_, ready, 1.0)
        return solver

    def _ways(self, engine: Engine) -> Ways:
        """Solvers of all strengths, for entries made ready."""
        most = None if self.rank is None else int(self.rank)
        seed = int(self.random_state)
        if self.solver == "als":
            return alternating_ways(most, seed, engine)

        def ways(ready: Ready) -> Choices:
            entries = Entries(ready.residuals, engine.home)
            rank = most or min(entries.shape)
            return Choices(
                entries.top, lambda lam: SoftThresholding(entries, lam, rank, seed)
            )

        return ways

    def _new_row_ridge(self) -> float | None:
        return self._ridge
