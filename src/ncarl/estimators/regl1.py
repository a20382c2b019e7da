"""A low-rank fit of least absolute residuals: the robust rival."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from ncarl.engines import Engine
from ncarl.estimators.matrix_base import MatrixEstimator
from ncarl.estimators.parameters import check_flag, check_number, check_whole
from ncarl.loop import StepInfo
from ncarl.matrix_model import Ready
from ncarl.observed import Observed
from ncarl.solvers.factored import usual_rank
from ncarl.solvers.problem import Solver
from ncarl.solvers.regl1 import AbsoluteResiduals


class RegL1(MatrixEstimator):
    r"""The product ``U V`` of least absolute residuals and small nuclear norm.

    Minimises the sum of absolute residuals plus ``lam ||V||_*`` where the columns of U
    are orthonormal. Entries that are far off cost no more than what they are off, so
    that a few of them do not spoil a fit of small ``rank``.

    Parameters
    ----------
    lam : float, default=1e-3
        Strength of the nuclear norm. So small a value with a large ``rank`` fits every
        entry and gives the least nuclear norm of such fits, as `Nuclear` does. Where a
        small rank is not known, the square root of the larger side times the observed
        part leaves gross errors as residuals too.
    rank : int, optional
        Most columns of U; the rank of the truth where it is known, which makes the fit
        robust. By default as many as the least nuclear norm can need.
    rho : float, default=1.05
        Growth of the weight ``mu`` from step to step. The nearer to 1, the nearer the
        result to the minimum, and the more steps.
    inner : int, default=1
        How often the factors and the fitted entries are found in turn before the
        multipliers move.
    nonnegative : bool, default=False
        Whether values are known to be 0 or above.
    center : {None, "mean", "columns", "two-way"}, default=None
        What to take off first.
    scale : {None, "columns"}, default=None
        "columns" divides every column by its spread first.
    max_iter, tol : int and float, optional
        Most steps (1000), and what the distance between the copies and the change must
        fall below (1e-6).
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
        Per step: ``objective``, ``change``, ``primal`` residual, ``rank``, ``mu``,
        seconds.
    residual_ : float
        Relative residual of the observed entries, which are not put back.
    rank_, objective_, n_iter_, converged_
        Rank, last objective, steps made, and whether the fit settled.
    unidentified_rows_, unidentified_columns_ : arrays of int
        Rows and columns with nothing observed; they get the centre, 0 without one.

    References
    ----------
    Y. Zheng, G. Liu, S. Sugimoto, S. Yan, M. Okutomi, "Practical low-rank matrix
    approximation under robust L1-norm", CVPR 2012.

    Examples
    --------
    >>> import numpy as np
    >>> from ncarl import RegL1
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.standard_normal((40, 2)) @ rng.standard_normal((2, 30))
    >>> X = np.where(rng.random(truth.shape) < 0.05, 50.0, truth)
    >>> X[rng.random(truth.shape) < 0.2] = np.nan
    >>> completed = RegL1(rank=2).fit_transform(X)
    >>> bool(np.median(np.abs(completed - truth)) < 1e-3)
    True
    """

    def __init__(
        self,
        lam: float = 1e-3,
        rank: int | None = None,
        rho: float = 1.05,
        inner: int = 1,
        nonnegative: bool = False,
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
        self.rank = rank
        self.rho = rho
        self.inner = inner
        self.nonnegative = nonnegative
        self.center = center
        self.scale = scale
        self.max_iter = max_iter
        self.tol = tol
        self.engine = engine
        self.progress = progress
        self.callback = callback
        self.checkpoint = checkpoint

    def _check(self) -> None:
        hint = "; without it entries in the gaps are not determined"
        check_number("lam", self.lam, low=0.0, strict=True, hint=hint)
        if self.rank is not None:
            check_whole("rank", self.rank, low=1)
        check_number("rho", self.rho, low=1.0, strict=True)
        check_whole("inner", self.inner, low=1)
        check_flag("nonnegative", self.nonnegative)
        if self.nonnegative and self.center is not None:
            raise ValueError(
                f"nonnegative=True is about the values themselves, got center="
                f"{self.center!r}, which takes something off them; leave one out"
            )

    def _limits(self) -> tuple[int, float]:
        return 1000, 1e-6

    def _solver(
        self, ready: Ready, observed: Observed, engine: Engine, found: dict[str, Any]
    ) -> Solver:
        if self.nonnegative and float(observed.values.min()) < 0.0:
            raise ValueError(
                "nonnegative=True needs values of at least 0, got "
                f"{float(observed.values.min()):g} in X; leave it out"
            )
        problem = self._dense(ready, engine)
        rank = usual_rank(observed) if self.rank is None else int(self.rank)
        return AbsoluteResiduals(
            problem, float(self.lam), min(rank, *problem.shape), float(self.rho),
            int(self.inner), self.nonnegative,
        )  # fmt: skip
