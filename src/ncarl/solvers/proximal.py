r"""Accelerated proximal gradient for spectral penalties, and SVT.

`ProximalGradient` solves ``min 1/2 ||P(X) - M||^2 + lam penalty(X)`` for any penalty on
singular values: a step fills the missing entries from the last matrix and applies the
proximal operator, with momentum as long as that lowers the objective.

`SingularValueThresholding` solves ``min t ||X||_* + 1/2 ||X||^2`` with observed entries
fixed, by ascent on the dual problem: ``X <- prox(Y)``, ``Y <- Y + step P(M - X)``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from ncarl.core.svd import frobenius_norm, spectral_norm, svd_above
from ncarl.core.types import Array
from ncarl.fitting.loop import Iterate
from ncarl.solvers.base import (
    CONTINUATION_TOL,
    DenseProblem,
    SolverResult,
    StepSolver,
    next_momentum,
    next_strength,
    ratio,
    scaled_step_norm,
)
from ncarl.solvers.penalties import NuclearNorm, SpectralPenalty

#: Step length of SVT that is proven to converge (below 2).
SAFE_STEP_LENGTH = 1.9
#: SVT diverges, its steps being too long, if the residual exceeds its minimum by this
#: factor, or if this many steps have not lowered it by this fraction.
DIVERGENCE_FACTOR, MAX_STALE_STEPS, MIN_DECREASE = 1.5, 40, 1e-3


@dataclass(frozen=True, eq=False)
class ProximalGradientState:
    """State of `ProximalGradient`."""

    X: Array  # matrix (m, n) after the last step
    X_previous: Array  # and after the step before it
    momentum: float  # FISTA's t; 1 for no momentum
    lam: float  # strength of the penalty, lowered to its final value
    objective: float  # value at X with this strength
    rank: int = -1  # rank of X; -1 before the first step
    converged_at_lam: bool = True  # the last step was short: the strength may fall


@dataclass(frozen=True)
class ProximalGradient(StepSolver):
    """Solver of ``1/2 ||P(X) - M||^2 + lam penalty(X)`` by continuation in ``lam``."""

    degree: ClassVar[float] = 2.0
    problem: DenseProblem
    penalty: SpectralPenalty
    lam: float

    def initial_state(self) -> ProximalGradientState:
        """Zeros, with the smallest strength whose solution they are."""
        zero = 0.0 * self.problem.M
        largest = self.penalty.strength(self.problem.spectral_norm)
        return ProximalGradientState(zero, zero, 1.0, max(self.lam, largest), math.inf)

    def warm_start(self, state: ProximalGradientState) -> ProximalGradientState:
        """Start from the matrix found with another strength."""
        X = state.X
        return ProximalGradientState(X, X, 1.0, self.lam, math.inf, state.rank)

    def _step(self, state: ProximalGradientState, step: int) -> Iterate[Any]:
        """One step, repeated without momentum if the objective rose."""
        lam, lowered = next_strength(state, self.lam)
        # Earlier steps had another objective: restart the momentum.
        momentum, extrapolation = next_momentum(1.0 if lowered else state.momentum)
        X, s, objective = self._prox_step(state, lam, extrapolation)
        if objective > state.objective and extrapolation > 0.0:
            momentum = 1.0
            X, s, objective = self._prox_step(state, lam, 0.0)
        threshold = self.penalty.threshold(lam)
        change = scaled_step_norm(frobenius_norm(X - state.X), threshold, len(s))
        done = change < CONTINUATION_TOL
        new = ProximalGradientState(X, state.X, momentum, lam, objective, len(s), done)
        notes = {"rank": float(len(s)), "lam": lam}
        return Iterate(new, objective, change, notes, may_stop=lam <= self.lam)

    def _prox_step(
        self, state: ProximalGradientState, lam: float, extrapolation: float
    ) -> tuple[Array, Array, float]:
        """The next matrix, its singular values and its objective."""
        W = state.X + extrapolation * (state.X - state.X_previous)
        expected = None if state.rank < 0 else state.rank
        threshold = self.penalty.threshold(lam)
        svd = svd_above(self.problem.fill_missing(W), threshold, expected)
        s = self.penalty.prox(svd.s, lam)
        s = s[s > 0.0]
        X = svd.reconstruct(s)
        loss = self.problem.squared_loss(self.problem.residual(X))
        return X, s, loss + lam * self.penalty.value(s)

    def finalize(self, last: Iterate[Any]) -> SolverResult:
        """The fitted matrix; observed values are smoothed, not restored."""
        problem, X, extras = self.problem, last.state.X, {}
        if isinstance(self.penalty, NuclearNorm):
            extras["gap_"] = penalized_duality_gap(problem, X, self.lam, last.objective)
        residual = problem.residual(X)
        return SolverResult(self._to_numpy(X), None, residual, last.state.rank, extras)


def penalized_duality_gap(
    problem: DenseProblem, X: Array, lam: float, objective: float
) -> float:
    """Bound on the relative suboptimality of the objective with a nuclear norm.

    The residual, scaled so that it has no singular value above ``lam``, is feasible for
    the dual problem ``max 1/2 ||M||^2 - 1/2 ||M - R||^2``.
    """
    R = problem.fill_missing(X) - X
    scaled = R * min(1.0, ratio(lam, spectral_norm(R)))
    distance = frobenius_norm(problem.M - scaled)
    dual = problem.observed_norm**2 / 2.0 - distance**2 / 2.0
    return max(0.0, ratio(objective - dual, objective))


@dataclass(frozen=True, eq=False)
class SVTState:
    """State of `SingularValueThresholding`."""

    X: Array  # matrix (m, n)
    Y: Array  # multipliers (m, n)
    step_length: float
    best_residual: float = math.inf  # smallest residual so far with this step length
    rank: int = -1  # rank of X; -1 before the first step
    stale_steps: int = 0  # steps since the best residual


@dataclass(frozen=True)
class SingularValueThresholding(StepSolver):
    """Solver of ``min t ||X||_* + 1/2 ||X||^2`` with observed entries fixed."""

    degree: ClassVar[float] = 2.0
    problem: DenseProblem
    t: float

    def initial_state(self) -> SVTState:
        """The multipliers after all the steps in which X stays 0."""
        return self._state_at_zero(1.2 / self.problem.density)

    def _state_at_zero(self, step_length: float) -> SVTState:
        count = math.ceil(self.t / (step_length * self.problem.spectral_norm))
        M = self.problem.M
        return SVTState(0.0 * M, count * step_length * M, step_length)

    def _step(self, state: SVTState, step: int) -> Iterate[SVTState]:
        svd = svd_above(state.Y, self.t, None if state.rank < 0 else state.rank)
        s = NuclearNorm().prox(svd.s, self.t)
        X = svd.reconstruct(s)
        residual = self.problem.residual(X)
        # fill_missing(X) - X is P(M - X).
        Y = state.Y + state.step_length * (self.problem.fill_missing(X) - X)
        improved = residual < (1.0 - MIN_DECREASE) * state.best_residual
        stale = 0 if improved else state.stale_steps + 1
        best = residual if improved else state.best_residual
        new = SVTState(X, Y, state.step_length, best, len(s), stale)
        diverges = residual > DIVERGENCE_FACTOR * best or stale >= MAX_STALE_STEPS
        if diverges and state.step_length > SAFE_STEP_LENGTH:
            new = self._state_at_zero(SAFE_STEP_LENGTH)
        objective = self.t * float(s.sum()) + float(s @ s) / 2.0
        notes = {"primal": residual, "rank": float(len(s)), "length": state.step_length}
        may_stop = len(s) > 0 or residual == 0.0
        return Iterate(new, objective, residual, notes, may_stop)

    def finalize(self, last: Iterate[Any]) -> SolverResult:
        """The completed matrix, with the observed values."""
        state: SVTState = last.state
        residual = self.problem.residual(state.X)
        X = self._to_numpy(self.problem.fill_missing(state.X))
        return SolverResult(X, None, residual, max(state.rank, 0))
