r"""One proximal gradient solver for every penalty on singular values, with noise.

``min 1/2 ||P(X) - M||^2 + lam penalty(X)``: a step fills the gaps from the last matrix
and shrinks. Steps go past the last matrix as long as that lowers the objective.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from ncarl.core.singular import frobenius, leading, spectral_norm
from ncarl.core.types import Array
from ncarl.penalties import NuclearNorm, Penalty
from ncarl.solvers.problem import (
    STEADY,
    Clock,
    Ending,
    Problem,
    Step,
    ratio,
    step_size,
    steps_of,
)


@dataclass(frozen=True, eq=False)
class GradientState:
    """Where the solver stands.

    Attributes
    ----------
    X, before : array of shape (m, n)
        The matrix after the last step and after the one before it.
    pace : float
        How far steps go past the last matrix; 1 is not at all.
    lam : float
        Strength of the penalty, which falls to its final value.
    objective : float
        Value at X with that strength.
    rank : int
        Rank of X; -1 before the first step.
    steady : bool
        Whether the last step changed little, so that the strength may fall.
    """

    X: Array
    before: Array
    pace: float
    lam: float
    objective: float
    rank: int = -1
    steady: bool = True


@dataclass(frozen=True)
class Gradient:
    """The solver.

    Attributes
    ----------
    problem : Problem
        The matrix to complete.
    penalty : Penalty
        What is to be small beside the residuals.
    lam : float
        Its strength.
    fall : float
        Factor by which the strength falls, whenever steps change little, till it is
        ``lam``. Falling faster lets in directions that a settled matrix would not
        need, which penalties that are not convex never drop again.
    """

    problem: Problem
    penalty: Penalty
    lam: float
    fall: float = 0.7
    degree: float = 2.0

    def begin(self) -> GradientState:
        """Zeros, with a strength that just keeps them."""
        M = self.problem.M
        largest = self.penalty.strength(self.problem.top)
        zero = 0.0 * M
        return GradientState(zero, zero, 1.0, max(self.lam, largest), math.inf)

    def resume(self, state: GradientState) -> GradientState:
        """The matrix of another strength, to go on from with this one."""
        return GradientState(state.X, state.X, 1.0, self.lam, math.inf, state.rank)

    def steps(self, state: GradientState, step: int) -> Iterator[Step]:
        """Steps for ever."""
        return steps_of(self._step, state, step, self.problem)

    def _step(self, state: GradientState, step: int, clock: Clock) -> Step:
        """One step, once more without momentum if it went too far."""
        falls = state.steady and state.lam > self.lam
        lam = max(self.lam, self.fall * state.lam) if falls else state.lam
        # What went before was for another objective: no momentum from it.
        pace = 1.0 if falls else state.pace
        after = (1.0 + math.sqrt(1.0 + 4.0 * pace**2)) / 2.0
        ahead = (pace - 1.0) / after
        X, s, objective = self._shrunk(state, lam, ahead)
        if objective > state.objective and ahead > 0.0:
            after = 1.0
            X, s, objective = self._shrunk(state, lam, 0.0)
        cut = self.penalty.threshold(lam)
        change = step_size(frobenius(X - state.X), cut, len(s))
        steady = change < STEADY
        new = GradientState(X, state.X, after, lam, objective, len(s), steady)
        notes = {"rank": float(len(s)), "lam": lam}
        last = lam <= self.lam
        return Step(step, new, objective, change, notes, clock.look(), last)

    def _shrunk(
        self, state: GradientState, lam: float, ahead: float
    ) -> tuple[Array, Array, float]:
        """The next matrix, its singular values and its objective."""
        W = state.X + ahead * (state.X - state.before)
        expected = None if state.rank < 0 else state.rank
        cut = self.penalty.threshold(lam)
        found = leading(self.problem.filled(W), cut, expected)
        s = self.penalty.prox(found.s, lam)
        s = s[s > 0.0]
        X = found.product(s)
        loss = (self.problem.residual(X) * self.problem.size) ** 2 / 2.0
        return X, s, loss + lam * self.penalty.value(s)

    def end(self, last: Step) -> Ending:
        """The smoothed matrix."""
        state: GradientState = last.state
        extras: dict[str, object] = {}
        if isinstance(self.penalty, NuclearNorm):
            extras["gap_"] = noisy_gap(self.problem, state.X, self.lam, last.objective)
        residual = self.problem.residual(state.X)
        X = self.problem.home.fetch(state.X)
        return Ending(X, None, residual, state.rank, extras)


def noisy_gap(problem: Problem, X: Array, lam: float, objective: float) -> float:
    """Bound on how far the objective with a nuclear norm is above the least, over it.

    The residual, scaled so that it has no singular value above ``lam``, is a point of
    the dual problem ``max 1/2 ||M||^2 - 1/2 ||M - R||^2``.
    """
    R = problem.filled(X) - X
    scaled = R * min(1.0, ratio(lam, spectral_norm(R)))
    dual = problem.size**2 / 2.0 - frobenius(problem.M - scaled) ** 2 / 2.0
    return max(0.0, ratio(objective - dual, objective))
