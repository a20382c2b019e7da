"""Row and column effects with ridge penalties, by alternating sweeps."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ncarl.centering import effect_variance, shrunk_means
from ncarl.core.svd import frobenius_norm
from ncarl.core.types import Array
from ncarl.fitting.loop import Iterate
from ncarl.observations import Observations
from ncarl.solvers.base import SolverResult, StepSolver, ratio


@dataclass(frozen=True)
class TwoWayEffects:
    """State of `BiasSolver`."""

    row_effects: Array  # (m,)
    column_effects: Array  # (n,)
    row_ridge: float  # ratios of variances, residual over effect
    column_ridge: float


@dataclass(frozen=True)
class BiasSolver(StepSolver):
    """Solver of the two-way effects model."""

    degree: ClassVar[float] = 2.0
    problem: Observations
    row_ridge: float | None  # None learns it
    column_ridge: float | None

    def _compute_context(self) -> Any:
        return nullcontext()  # sums over the entries, in host memory

    def initial_state(self) -> TwoWayEffects:
        """Effects of 0, with the given ridges or 1."""
        rows, columns = (np.zeros(length) for length in self.problem.shape)
        given = (self.row_ridge, self.column_ridge)
        ridges = [1.0 if ridge is None else ridge for ridge in given]
        return TwoWayEffects(rows, columns, *ridges)

    def _step(self, state: TwoWayEffects, step: int) -> Iterate[Any]:
        """Update row effects, then column effects, and the ridges to be learned."""
        o, v = self.problem, self.problem.values
        rows, columns = o.rows, o.indices
        row_counts, column_counts = o.row_counts, o.column_counts
        row_ridge, column_ridge = state.row_ridge, state.column_ridge
        left = v - state.column_effects[columns]
        a = shrunk_means(left, rows, row_counts, row_ridge)
        b = shrunk_means(v - a[rows], columns, column_counts, column_ridge)
        if row_ridge + column_ridge > 0.0:
            # Alternating updates move a constant between rows and columns only slowly.
            in_rows, in_columns = row_counts > 0, column_counts > 0
            pull = column_ridge * float(b[in_columns].sum())
            pull -= row_ridge * float(a[in_rows].sum())
            weight = row_ridge * int(in_rows.sum())
            weight += column_ridge * int(in_columns.sum())
            shift = pull / weight
            a, b = a + shift * in_rows, b - shift * in_columns
        residuals = v - a[rows] - b[columns]
        squares = float(residuals @ residuals)
        noise = max(squares / len(v), 1e-12 * (float(v @ v) / len(v)))
        if self.row_ridge is None and noise > 0.0:
            row_ridge = noise / effect_variance(a, row_counts, row_ridge, noise)
        if self.column_ridge is None and noise > 0.0:
            variance = effect_variance(b, column_counts, column_ridge, noise)
            column_ridge = noise / variance
        steps = np.concatenate([a - state.row_effects, b - state.column_effects])
        rms = float(frobenius_norm(v) / np.sqrt(len(v)))
        change = ratio(float(np.max(np.abs(steps))), rms)
        objective = float(squares + row_ridge * a @ a + column_ridge * b @ b)
        notes = {"row_ridge": row_ridge, "column_ridge": column_ridge}
        new = TwoWayEffects(a, b, row_ridge, column_ridge)
        return Iterate(new, objective / 2.0, change, notes)

    def finalize(self, last: Iterate[Any]) -> SolverResult:
        """The effects, and empty factors."""
        o, effects = self.problem, last.state
        left = o.values - effects.row_effects[o.rows]
        left -= effects.column_effects[o.indices]
        empty = (np.zeros((o.shape[0], 0)), np.zeros((0, o.shape[1])))
        residual = ratio(frobenius_norm(left), frobenius_norm(o.values))
        extras = {
            "column_effects_": effects.column_effects,
            "row_ridge_": effects.row_ridge,
            "column_ridge_": effects.column_ridge,
        }
        axes = {"column_effects_": ("columns",)}
        return SolverResult(None, empty, residual, 0, extras, axes)
