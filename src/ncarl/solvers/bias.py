"""Row and column effects with ridge penalties, by alternating sweeps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ncarl.centering import TwoWayEffects
from ncarl.core.svd import frobenius_norm
from ncarl.core.types import Array
from ncarl.observations import Observations
from ncarl.solvers.base import (
    SolverResult,
    SolverStep,
    Timer,
    ratio,
)


@dataclass(frozen=True)
class BiasSolver:
    """Solver of the two-way effects model; its state is a `TwoWayEffects`.

    Attributes
    ----------
    observed : Observations
        The observed entries.
    row_ridge, column_ridge : float or None
        Ridge penalties of the effects; None learns them.
    """

    observed: Observations
    row_ridge: float | None
    column_ridge: float | None
    degree: float = 2.0

    def initial_state(self) -> TwoWayEffects:
        """Effects of 0, with the given ridges or 1."""
        zeros = TwoWayEffects.zeros(self.observed.shape)
        given = (self.row_ridge, self.column_ridge)
        ridges = [1.0 if ridge is None else ridge for ridge in given]
        return TwoWayEffects(zeros.row_effects, zeros.column_effects, *ridges)

    def steps(self, state: TwoWayEffects, step: int) -> Iterator[SolverStep]:
        """Yield sweeps over both sides from ``state`` on."""
        timer = Timer()
        o = self.observed
        rms = frobenius_norm(o.values) / np.sqrt(o.n_observed)
        while True:
            step += 1
            new = state.sweep(
                o,
                learn_row_ridge=self.row_ridge is None,
                learn_column_ridge=self.column_ridge is None,
            )
            largest = max(
                _max_abs(new.row_effects - state.row_effects),
                _max_abs(new.column_effects - state.column_effects),
            )
            residuals = _residuals(o, new)
            objective = float(
                residuals @ residuals
                + new.row_ridge * new.row_effects @ new.row_effects
                + new.column_ridge * new.column_effects @ new.column_effects
            )
            notes = {"row_ridge": new.row_ridge, "column_ridge": new.column_ridge}
            change = ratio(largest, float(rms))
            yield SolverStep(step, new, objective / 2.0, change, notes, timer.lap())
            state = new

    def finalize(self, last: SolverStep) -> SolverResult:
        """The effects, and empty factors."""
        effects: TwoWayEffects = last.state
        o = self.observed
        residuals = _residuals(o, effects)
        residual = ratio(frobenius_norm(residuals), frobenius_norm(o.values))
        empty = (np.zeros((o.shape[0], 0)), np.zeros((0, o.shape[1])))
        return SolverResult(None, empty, residual, 0, {"effects_": effects})


def _residuals(o: Observations, effects: TwoWayEffects) -> Array:
    """Observed values minus their row and column effects."""
    return o.values - effects.row_effects[o.rows] - effects.column_effects[o.indices]


def _max_abs(values: Array) -> float:
    return float(np.max(np.abs(values), initial=0.0))
