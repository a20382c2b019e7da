r"""One splitting solver for every penalty on singular values, observed entries held.

``min penalty(Z)`` such that ``Z = X`` and X agrees with the observed entries:

.. code-block:: text

    Z <- prox(X + Y / mu)
    X <- observed values, Z - Y / mu in the gaps
    Y <- Y + mu (X - Z)

With a ``mu`` that is balanced early and then kept (`Balanced`) this is ADMM, which
converges for the nuclear norm and bounds its own error by duality. With a ``mu`` that
grows (`Growing`) it is the inexact augmented Lagrangian, which penalties that are not
convex need.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from array_api_compat import array_namespace
from scipy.sparse import csr_array

from ncarl.core.singular import (
    Triplets,
    frobenius,
    leading,
    nuclear_norm,
    spectral_norm,
)
from ncarl.core.types import Array
from ncarl.penalties import NuclearNorm, Penalty
from ncarl.solvers.problem import (
    Clock,
    Ending,
    Problem,
    Step,
    change_of,
    ratio,
    steps_of,
)


@dataclass(frozen=True, eq=False)
class SplitState:
    """Where the solver stands.

    Attributes
    ----------
    X : array of shape (m, n)
        The completed matrix; it has the observed values.
    Y : array of shape (m, n)
        Multipliers; 0 in the gaps.
    mu : float
        Weight of the distance between the two copies.
    rank : int
        Rank of Z in the last step; -1 before the first.
    residual : float
        ``||P(Z - M)|| / ||M||`` in the last step.
    """

    X: Array
    Y: Array
    mu: float
    rank: int = -1
    residual: float = 1.0


class Schedule(Protocol):
    """How ``mu`` goes on."""

    @property
    def relaxation(self) -> float:
        """How far past the last X the step to Z goes; 1 is Z itself."""
        ...

    def first(self) -> float:
        """The first ``mu``."""
        ...

    def after(self, mu: float, step: int, primal: float, dual: float) -> float:
        """The ``mu`` after a step with these residuals."""
        ...


@dataclass(frozen=True)
class Balanced:
    """``mu`` moves till both residuals are of one size, and stays as it is then."""

    start: float
    relaxation: float = 1.6
    steps: int = 200
    every: int = 10
    apart: float = 1.5
    factor: float = 1.5

    def first(self) -> float:
        """As told."""
        return self.start

    def after(self, mu: float, step: int, primal: float, dual: float) -> float:
        """Larger where the copies differ too much, smaller where they move too much."""
        if step > self.steps or step % self.every:
            return mu
        if primal > self.apart * dual:
            return mu * self.factor
        return mu / self.factor if dual > self.apart * primal else mu


@dataclass(frozen=True)
class Growing:
    """``mu`` grows by a factor each step, up to a largest value."""

    start: float
    factor: float
    largest: float = float("inf")
    relaxation: float = 1.0

    def first(self) -> float:
        """As told."""
        return self.start

    def after(self, mu: float, step: int, primal: float, dual: float) -> float:
        """Times the factor."""
        return min(mu * self.factor, self.largest)


@dataclass(frozen=True)
class Split:
    """The solver.

    Attributes
    ----------
    problem : Problem
        The matrix to complete.
    penalty : Penalty
        What is to be small.
    schedule : Schedule
        How ``mu`` goes on.
    weight : float
        Factor of the penalty; it changes the way, not where it leads.
    degree : float
        How the objective grows with the matrix.
    proof : float
        Change below which duality must prove it of the nuclear norm; 0 asks for none.
    by_change : bool
        Whether the change of X alone decides when to end, as in the paper's runs.
    start : array of shape (m, n), optional
        Completed matrix to start from instead of zeros in the gaps.
    multiplier : array of shape (m, n), optional
        Multipliers to start from instead of zeros.
    """

    problem: Problem
    penalty: Penalty
    schedule: Schedule
    weight: float = 1.0
    degree: float = 1.0
    proof: float = 0.0
    by_change: bool = False
    start: Array | None = None
    multiplier: Array | None = None

    def begin(self) -> SplitState:
        """Observed values with zeros in the gaps, or what was given."""
        M = self.problem.M
        X = M if self.start is None else self.problem.filled(self.start)
        zero = array_namespace(M).zeros_like(M)
        Y = zero if self.multiplier is None else self.multiplier
        return SplitState(X, Y, self.schedule.first())

    def steps(self, state: SplitState, step: int) -> Iterator[Step]:
        """Steps for ever."""
        return steps_of(self._step, state, step, self.problem)

    def _step(self, state: SplitState, step: int, clock: Clock) -> Step:
        """One step."""
        mu, X, Y = state.mu, state.X, state.Y
        found, s = self._shrunk(X + Y / mu, mu, state.rank)
        Z = found.product(s)
        past = self.schedule.relaxation
        Z_past = Z if past == 1.0 else past * Z + (1.0 - past) * X
        new = self.problem.filled(Z_past - Y / mu)
        Y = Y + mu * (new - Z_past)
        primal = change_of(new, Z)
        moved = frobenius(new - X)
        dual = ratio(mu * moved, frobenius(Y))
        value = self.weight * self.penalty.value(s)
        notes = {
            "primal": primal,
            "dual": dual,
            "rank": float(len(s)),
            "mu": mu,
        }
        change = max(primal, ratio(moved, frobenius(new)))
        if isinstance(self.penalty, NuclearNorm):
            notes["gap"] = self._gap(value, Y)
        if self.proof:
            change = max(primal, dual, notes["gap"])
            if change < self.proof:
                notes["gap"] = certificate(self.problem, new, Y)
                change = max(change, notes["gap"])
        elif self.by_change:
            change = ratio(moved, frobenius(new))
        after = self.schedule.after(mu, step, primal, dual)
        kept = SplitState(new, Y, after, len(s), self.problem.residual(Z))
        return Step(
            step, kept, value, change, notes, clock.look(),
            may_stop=len(s) > 0 or self.problem.size == 0.0,
        )  # fmt: skip

    def _shrunk(self, W: Array, mu: float, rank: int) -> tuple[Triplets, Array]:
        """Triplets of W that survive, and their shrunk values."""
        tau = self.weight / mu
        expected = None if rank < 0 else rank
        found = leading(W, self.penalty.threshold(tau), expected)
        s = self.penalty.prox(found.s, tau)
        return found, s[s > 0.0]

    def _gap(self, value: float, Y: Array) -> float:
        """How far the value of Z is above that of the multipliers, as part of it."""
        xp = array_namespace(Y)
        return abs(ratio(value - float(xp.sum(Y * self.problem.M)), value))

    def end(self, last: Step) -> Ending:
        """The matrix with its observed values."""
        state: SplitState = last.state
        fetch = self.problem.home.fetch
        extras: dict[str, Any] = {}
        if isinstance(self.penalty, NuclearNorm) and self.weight == 1.0:
            extras = {"gap_": certificate(self.problem, state.X, state.Y)}
            extras["dual_"] = self._sparse_dual(fetch(state.Y))
        return Ending(fetch(state.X), None, state.residual, state.rank, extras)

    def _sparse_dual(self, Y: Array) -> Any:
        """The multipliers of the observed entries."""
        o = self.problem.observed
        return csr_array((Y[o.rows, o.indices], o.indices, o.indptr), shape=o.shape)


def certificate(problem: Problem, X: Array, Y: Array) -> float:
    """Bound on how far the nuclear norm of a feasible X is above the least, over it.

    Any ``Y`` that is 0 in the gaps and has no singular value above 1 proves that no
    completion has a nuclear norm below ``<Y, M>``.
    """
    xp = array_namespace(Y)
    value = nuclear_norm(X)
    proven = float(xp.sum(Y * problem.M)) / max(1.0, spectral_norm(Y))
    return max(0.0, ratio(value - proven, value))
