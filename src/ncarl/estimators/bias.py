"""Row and column effects, and nothing else: what every other model must beat."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ncarl.engines import Engine
from ncarl.estimators.matrix_base import MatrixEstimator
from ncarl.estimators.parameters import check_number
from ncarl.loop import StepInfo
from ncarl.matrix_model import MatrixModel, Ready
from ncarl.observed import Observed
from ncarl.solvers.bias import Sweeps
from ncarl.solvers.problem import Ending, Solver
from ncarl.two_way import TwoWay


class BiasModel(MatrixEstimator):
    r"""Two-way ridge means: ``mean + row effect + column effect``.

    Parameters
    ----------
    row_ridge, column_ridge : "auto" or float, default="auto"
        Ridges of the effects: an effect is the sum of what is left of its entries over
        their number plus the ridge. "auto" learns the ratio of the variances.
    scale : {None, "columns"}, default=None
        "columns" divides every column by its spread first; row effects are then in
        spreads.
    max_iter : int, optional
        Most turns of both sides; 2000 by default.
    tol : float, optional
        What the largest change of an effect, over the root mean square of the values,
        must fall below; 1e-5 by default.
    engine : {"auto", "threads", "torch"} or Engine, default="auto"
        For the interface; the work is a few sums and stays in this process.
    progress : bool, default=False
        Show a progress bar.
    callback : callable, optional
        Called with a `StepInfo` after each step; returning True ends the fit.
    checkpoint : path or Checkpoint, optional
        File that keeps the state; if it exists, the fit goes on from it.

    Attributes
    ----------
    mean_ : float
        Mean of the observed values.
    row_effects_, column_effects_ : arrays of shape (m,) and (n,)
        The effects; those of rows in spreads with ``scale="columns"``.
    row_ridge_, column_ridge_ : float
        The ridges that were used.
    history_ : dict of arrays
        Per step: ``objective``, ``change``, ``row_ridge``, ``column_ridge``, seconds.
    residual_, objective_, n_iter_, converged_
        Relative residual after the mean, last objective, steps, whether it settled.
    unidentified_rows_, unidentified_columns_ : arrays of int
        Rows and columns with nothing observed; their effects are 0.

    Examples
    --------
    >>> import numpy as np
    >>> from ncarl import BiasModel
    >>> X = np.add.outer(np.arange(4.0), 10.0 * np.arange(3.0))
    >>> X[1, 2] = np.nan
    >>> BiasModel(row_ridge=0, column_ridge=0).fit_transform(X)[1, 2].round(6)
    np.float64(21.0)
    """

    center = None
    _usual = (2000, 1e-5)
    _scalars = (*MatrixEstimator._scalars, "mean_", "row_ridge_", "column_ridge_")
    _own_arrays = ("row_effects_", "column_effects_")

    def __init__(
        self,
        row_ridge: float | str = "auto",
        column_ridge: float | str = "auto",
        scale: str | None = None,
        max_iter: int | None = None,
        tol: float | None = None,
        engine: str | Engine = "auto",
        progress: bool = False,
        callback: Callable[[StepInfo], object] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> None:
        self.row_ridge = row_ridge
        self.column_ridge = column_ridge
        self.scale = scale
        self.max_iter = max_iter
        self.tol = tol
        self.engine = engine
        self.progress = progress
        self.callback = callback
        self.checkpoint = checkpoint

    def _check(self) -> None:
        for name in ("row_ridge", "column_ridge"):
            given = getattr(self, name)
            if not (isinstance(given, str) and given == "auto"):
                check_number(name, given, low=0.0, hint="; 'auto' learns it")

    def _ready(self, observed: Observed) -> Ready:
        scaled = self.scale == "columns"
        return Ready.of(observed, "columns" if scaled else "mean", scaled)

    def _solver(
        self, ready: Ready, observed: Observed, engine: Engine, found: dict[str, Any]
    ) -> Solver:
        rows, columns = (
            None if isinstance(ridge, str) else float(ridge)
            for ridge in (self.row_ridge, self.column_ridge)
        )
        return Sweeps(ready.residuals, rows, columns)

    def _model(self, ready: Ready, ending: Ending, observed: Observed) -> MatrixModel:
        """The effects as the additive part of a model without factors."""
        found: TwoWay = ending.extras.pop("effects_")
        spreads = ready.centre.spreads
        columns = ready.centre.columns + spreads * found.b
        centre = replace(ready.centre, columns=columns, row_ridge=found.ridge_a)
        inner = observed.with_values(observed.values / ready.unit)
        effects = centre.row_effects(inner)
        self.mean_ = centre.mean * ready.unit
        self.row_effects_ = effects * (1.0 if self.scale else ready.unit)
        self.column_effects_ = columns * ready.unit
        self.row_ridge_, self.column_ridge_ = found.ridge_a, found.ridge_b
        return MatrixModel(None, ending.factors, ready.unit, centre, effects, 1.0)
