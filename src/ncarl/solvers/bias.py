"""Row and column effects with ridge penalties, by alternating sweeps."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ncarl.centering import TwoWayEffects
from ncarl.core.svd import frobenius_norm
from ncarl.core.types import Array
from ncarl.fitting.loop import Iterate
from ncarl.observations import Observations
from ncarl.solvers.base import SolverResult, StepSolver, ratio


@dataclass(frozen=True)
class BiasSolver(StepSolver):
    """Solver of the two-way effects model; its state is a `TwoWayEffects`."""

    degree: ClassVar[float] = 2.0
    problem: Observations
    row_ridge: float | None  # None learns it
    column_ridge: float | None

    def _compute_context(self) -> Any:
        return nullcontext()  # sums over the entries, in host memory

    def initial_state(self) -> TwoWayEffects:
        """Effects of 0, with the given ridges or 1."""
        zeros = TwoWayEffects.zeros(self.problem.shape)
        given = (self.row_ridge, self.column_ridge)
        ridges = [1.0 if ridge is None else ridge for ridge in given]
        return TwoWayEffects(zeros.row_effects, zeros.column_effects, *ridges)

    def _step(self, state: TwoWayEffects, step: int) -> Iterate[Any]:
        """One sweep over both sides."""
        o = self.problem
        new = state.sweep(
            o,
            learn_row_ridge=self.row_ridge is None,
            learn_column_ridge=self.column_ridge is None,
        )
        row_steps = new.row_effects - state.row_effects
        column_steps = new.column_effects - state.column_effects
        largest = float(np.max(np.abs(np.concatenate([row_steps, column_steps]))))
        residuals = _residuals(o, new)
        objective = float(
            residuals @ residuals
            + new.row_ridge * new.row_effects @ new.row_effects
            + new.column_ridge * new.column_effects @ new.column_effects
        )
        rms = float(frobenius_norm(o.values) / np.sqrt(o.n_observed))
        notes = {"row_ridge": new.row_ridge, "column_ridge": new.column_ridge}
        return Iterate(new, objective / 2.0, ratio(largest, rms), notes)

    def finalize(self, last: Iterate[Any]) -> SolverResult:
        """The effects, and empty factors."""
        o, effects = self.problem, last.state
        norm = frobenius_norm(_residuals(o, effects))
        empty = (np.zeros((o.shape[0], 0)), np.zeros((0, o.shape[1])))
        residual = ratio(norm, frobenius_norm(o.values))
        return SolverResult(None, empty, residual, 0, {"effects_": effects})


def _residuals(o: Observations, effects: TwoWayEffects) -> Array:
    return o.values - effects.row_effects[o.rows] - effects.column_effects[o.indices]
