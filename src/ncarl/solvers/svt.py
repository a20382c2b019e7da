r"""Singular value thresholding: ``min t ||X||_* + 1/2 ||X||^2`` with entries held.

Ascent on the dual problem: ``X <- prox(Y)``, ``Y <- Y + step P(M - X)``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from ncarl.core.singular import leading
from ncarl.core.types import Array
from ncarl.penalties import NuclearNorm
from ncarl.solvers.problem import Clock, Ending, Problem, Step, steps_of

#: Steps up to 2 are proven to converge.
SAFE = 1.9
#: A residual that has grown by this factor over its least tells of too long steps, and
#: so do this many of them that have not made it smaller by this part.
GROWN, STALE, LESS = 1.5, 40, 1e-3


@dataclass(frozen=True, eq=False)
class ThresholdState:
    """Where the solver stands.

    Attributes
    ----------
    X, Y : arrays of shape (m, n)
        The matrix and the multipliers.
    step : float
        Length of steps.
    least : float
        Least residual so far with this length.
    rank : int
        Rank of X; -1 before the first step.
    stale : int
        Steps since the residual was least.
    """

    X: Array
    Y: Array
    step: float
    least: float = math.inf
    rank: int = -1
    stale: int = 0


@dataclass(frozen=True)
class Thresholding:
    """The solver.

    Attributes
    ----------
    problem : Problem
        The matrix to complete.
    t : float
        Weight of the nuclear norm against half the squared Frobenius norm.
    length : float, optional
        Length of steps; by default 1.2 over the part that is observed, and `SAFE`
        from the start again if the residual should grow with that.
    """

    problem: Problem
    t: float
    length: float | None = None
    degree: float = 2.0

    def begin(self) -> ThresholdState:
        """The multipliers after the steps that leave X at 0."""
        long = 1.2 / self.problem.density if self.length is None else self.length
        return self._from_zero(long)

    def _from_zero(self, step: float) -> ThresholdState:
        """The state in which X is about to leave 0."""
        count = math.ceil(self.t / (step * self.problem.top))
        M = self.problem.M
        return ThresholdState(0.0 * M, count * step * M, step)

    def steps(self, state: ThresholdState, step: int) -> Iterator[Step]:
        """Steps for ever."""
        return steps_of(self._step, state, step, self.problem)

    def _step(self, state: ThresholdState, step: int, clock: Clock) -> Step:
        """One step."""
        found = leading(state.Y, self.t, None if state.rank < 0 else state.rank)
        s = NuclearNorm().prox(found.s, self.t)
        X = found.product(s)
        residual = self.problem.residual(X)
        # P(M - X) is what filling the gaps of X changes.
        Y = state.Y + state.step * (self.problem.filled(X) - X)
        less = residual < (1.0 - LESS) * state.least
        stale = 0 if less else state.stale + 1
        least = residual if less else state.least
        new = ThresholdState(X, Y, state.step, least, len(s), stale)
        lost = residual > GROWN * least or stale >= STALE
        if lost and state.step > SAFE and self.length is None:
            new = self._from_zero(SAFE)
        objective = self.t * float(s.sum()) + float(s @ s) / 2.0
        notes = {"primal": residual, "rank": float(len(s)), "length": state.step}
        return Step(
            step,
            new,
            objective,
            residual,
            notes,
            clock.look(),
            len(s) > 0 or residual == 0.0,
        )

    def end(self, last: Step) -> Ending:
        """The matrix with its observed values."""
        state: ThresholdState = last.state
        residual = self.problem.residual(state.X)
        X = self.problem.home.fetch(self.problem.filled(state.X))
        return Ending(X, None, residual, max(state.rank, 0))
