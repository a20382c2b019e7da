"""LRFD: the nuclear norm of coefficients in a dictionary."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from ncarl.core.types import Array
from ncarl.engines import Engine
from ncarl.estimators.matrix_base import MatrixEstimator
from ncarl.estimators.parameters import check_choice, check_number, check_whole
from ncarl.loop import Result, StepInfo
from ncarl.matrix_model import Ready
from ncarl.observed import Observed
from ncarl.solvers.learned import Learned
from ncarl.solvers.lrfd import LRFDSolver
from ncarl.solvers.problem import Ending, Solver, Step

#: Dictionaries that have a name.
KINDS = ("columns", "basis", "learned")


class LRFD(MatrixEstimator):
    r"""Columns made of a dictionary, with coefficients of least nuclear norm.

    ``min ||Z||_*`` such that ``D Z`` agrees with the observed entries. A dictionary
    of low rank whose columns span those of the matrix can complete matrices that the
    nuclear norm alone cannot: those in which few columns carry a direction.

    Parameters
    ----------
    dictionary : {"columns", "basis", "learned"} or array of shape (m, k)
        "columns" completes the matrix with the least nuclear norm first, and takes
        the columns of the best approximation of its rank, scaled to length 1; "basis"
        takes an orthonormal basis of them. An array is used as it is, on values from
        which the centre has been taken off. "learned" learns D and Z together,
        ``min ||D||_* + 1/2 ||Z||^2`` with observed entries held, which is the model of
        isomeric dictionary pursuit: the published objective of a learned LRFD was not
        at hand, so that this is a relative of it. It is not convex and has no proof.
    rounds : int, default=1
        How often a dictionary is made of the last completion, for "columns" and
        "basis".
    lam : float, optional
        Asks for ``lam ||Z||_* + 1/2 ||P(D Z) - M||^2``, which allows for noise. None
        holds the observed entries; where the dictionary cannot meet them (to 1e-4 of
        their size), this form is used all the same and a warning says so; its strength
        is then 1e-4 of the least that makes Z vanish, times the geometric mean of the
        singular values of D over the largest. Not for "learned".
    rank_tol : float, default=1e-3
        Singular values of a completion below this part of the largest do not count
        for its rank.
    center : {None, "mean", "columns", "two-way"}, default=None
        What to take off first.
    scale : {None, "columns"}, default=None
        "columns" divides every column by its spread first.
    max_iter, tol : int and float, optional
        Most steps of all stages together, 3000 by default, at most 500 of them for
        the first completion; and what the change must fall below, 1e-6.
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
    dictionary_ : array of shape (m, k)
        The dictionary of the last round, or as it was learned; a column of zeros if
        the fit ended before there was one.
    penalised_ : bool
        Whether the observed entries were not held.
    history_ : dict of arrays
        Per step: ``stage`` (1 the first completion, 2 the exact form, 3 the penalised
        one), ``round``, ``objective`` (of stage 3 divided by ``lam``), ``change``,
        ``primal`` and ``dual`` residual, ``gap``, ``rank``, ``mu``, seconds.
    residual_ : float
        Relative residual of the observed entries before they are put back.
    lam_ : float or None
        Strength of the penalised form, where it was used.
    rank_, objective_, n_iter_, converged_
        Rank before that, last objective, steps made, and whether the fit settled.
    unidentified_rows_, unidentified_columns_ : arrays of int
        Rows and columns with nothing observed; the former get what the dictionary
        says, the latter the centre, 0 without one.

    References
    ----------
    G. Liu, P. Li, "Low-rank matrix completion in the presence of high coherence",
    IEEE Transactions on Signal Processing 64(21), 2016.
    G. Liu, Q. Liu, X. Yuan, "A new theory for matrix completion", 2017.

    Examples
    --------
    >>> import numpy as np
    >>> from ncarl import LRFD
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.standard_normal((40, 2)) @ rng.standard_normal((2, 30))
    >>> X = np.where(rng.random(truth.shape) < 0.6, truth, np.nan)
    >>> model = LRFD().fit(X)
    >>> bool(np.abs(model.transform(X) - truth).max() < 1e-3), model.penalised_
    (True, False)
    """

    _scalars = (*MatrixEstimator._scalars, "penalised_", "lam_")
    _own_arrays = ("dictionary_",)
    _usual = (3000, 1e-6)

    def __init__(
        self,
        dictionary: str | Array = "columns",
        rounds: int = 1,
        lam: float | None = None,
        rank_tol: float = 1e-3,
        center: str | None = None,
        scale: str | None = None,
        max_iter: int | None = None,
        tol: float | None = None,
        engine: str | Engine = "auto",
        progress: bool = False,
        callback: Callable[[StepInfo], object] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> None:
        self.dictionary = dictionary
        self.rounds = rounds
        self.lam = lam
        self.rank_tol = rank_tol
        self.center = center
        self.scale = scale
        self.max_iter = max_iter
        self.tol = tol
        self.engine = engine
        self.progress = progress
        self.callback = callback
        self.checkpoint = checkpoint

    def _check(self) -> None:
        named = isinstance(self.dictionary, str) or self.dictionary is None
        if named:
            check_choice("dictionary", self.dictionary, KINDS)
        else:
            _array(self.dictionary)
        rounds = check_whole("rounds", self.rounds, low=1)
        if rounds > 1 and (not named or self.dictionary == "learned"):
            raise ValueError(
                "rounds belongs to dictionary='columns' or 'basis', which are made of "
                f"the last completion; got rounds={rounds} with another dictionary"
            )
        if self.lam is not None:
            check_number("lam", self.lam, low=0.0, strict=True)
            if named and self.dictionary == "learned":
                raise ValueError(
                    "dictionary='learned' holds the observed entries, got "
                    f"lam={self.lam!r}; leave lam out"
                )
        if check_number("rank_tol", self.rank_tol, low=0.0) >= 1.0:
            raise ValueError(f"rank_tol must be below 1, got {self.rank_tol!r}")

    def _solver(
        self, ready: Ready, observed: Observed, engine: Engine, found: dict[str, Any]
    ) -> Solver:
        problem = self._dense(ready, engine)
        if isinstance(self.dictionary, str) and self.dictionary == "learned":
            return Learned(problem)
        given = None
        if not isinstance(self.dictionary, str):
            given = _array(self.dictionary)
            if given.shape[0] != problem.shape[0]:
                raise ValueError(
                    f"dictionary must have as many rows as X, {problem.shape[0]}, got "
                    f"shape {given.shape}"
                )
        return LRFDSolver(
            problem,
            kind=self.dictionary if given is None else "columns",
            given=given,
            rounds=int(self.rounds),
            lam=None if self.lam is None else float(self.lam) / ready.value_unit(),
            rank_tol=float(self.rank_tol),
            tol=self._usual[1] if self.tol is None else float(self.tol),
        )

    def _take_up(
        self, observed: Observed, ready: Ready, ending: Ending, result: Result[Step]
    ) -> None:
        super()._take_up(observed, ready, ending, result)
        if self.lam_ is None:
            return
        self.lam_ *= ready.value_unit()
        if self.lam is None:
            warnings.warn(
                "the dictionary cannot meet the observed entries, so that lam was set "
                f"to {self.lam_:.3g} (a residual of {self.residual_:.1e} is left). "
                "Lower rank_tol for a larger dictionary, or set lam",
                UserWarning,
                stacklevel=3,
            )


def _array(dictionary: Any) -> Any:
    """A dictionary as a matrix of finite numbers with at least one column."""
    try:
        D = np.asarray(dictionary, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise TypeError(
            f"dictionary must be one of {', '.join(map(repr, KINDS))} or a matrix of "
            f"numbers, got {type(dictionary).__name__}"
        ) from None
    if D.ndim != 2 or 0 in D.shape or not np.isfinite(D).all():
        raise ValueError(
            "dictionary must be a matrix of finite numbers with at least one column, "
            f"got shape {D.shape}"
        )
    return D
