r"""ADMM for any penalty on singular values, with observed entries fixed.

``min penalty(Z)`` such that ``Z = X`` and X agrees with the observed entries:

.. code-block:: text

    Z <- prox(X + Y / mu)
    X <- observed values, and Z - Y / mu at missing entries
    Y <- Y + mu (X - Z)

With a ``mu`` that is balanced early and then constant (`ResidualBalancing`) this is
ADMM, which converges for the nuclear norm and bounds its own error by duality. With a
growing ``mu`` (`GeometricPenalty`) it is the inexact augmented Lagrangian method, which
nonconvex penalties need.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from array_api_compat import array_namespace
from scipy.sparse import csr_array

from ncarl.core.svd import frobenius_norm, nuclear_norm, spectral_norm, svd_above
from ncarl.core.types import Array
from ncarl.fitting.loop import Iterate
from ncarl.solvers.base import (
    DenseProblem,
    SolverResult,
    StepSolver,
    ratio,
    relative_change,
)
from ncarl.solvers.penalties import NuclearNorm, SpectralPenalty


@dataclass(frozen=True)
class ResidualBalancing:
    """Adjust ``mu`` until both residuals are of similar size, then keep it."""

    start: float  # the first mu
    relaxation: float = 1.6  # over-relaxation factor of Z; 1 is none
    max_steps: int = 200
    every: int = 10
    imbalance: float = 1.5
    factor: float = 1.5

    def next_mu(self, mu: float, step: int, primal: float, dual: float) -> float:
        """Increase ``mu`` if the primal residual is larger, else decrease it."""
        if step > self.max_steps or step % self.every:
            return mu
        if primal > self.imbalance * dual:
            return mu * self.factor
        return mu / self.factor if dual > self.imbalance * primal else mu


@dataclass(frozen=True)
class GeometricPenalty:
    """``mu`` grows by a factor each step, up to a largest value."""

    start: float  # the first mu
    factor: float
    max_mu: float = float("inf")
    relaxation: float = 1.0  # over-relaxation factor of Z; 1 is none

    def next_mu(self, mu: float, step: int, primal: float, dual: float) -> float:
        """Multiply ``mu`` by the factor."""
        return min(mu * self.factor, self.max_mu)


@dataclass(frozen=True, eq=False)
class ADMMState:
    """State of `ADMM`."""

    X: Array  # completed matrix (m, n), with the observed values
    Y: Array  # multipliers (m, n), 0 at missing entries
    mu: float  # penalty parameter of the constraint X = Z
    rank: int = -1  # rank of Z in the last step; -1 before the first
    residual: float = 1.0  # ||P(Z - M)|| / ||M|| in the last step


@dataclass(frozen=True)
class ADMM(StepSolver):
    """ADMM solver of ``min penalty(X)`` with observed entries fixed."""

    problem: DenseProblem
    penalty: SpectralPenalty
    schedule: ResidualBalancing | GeometricPenalty  # update rule of mu
    weight: float = 1.0  # of the penalty; changes the iterates, not the minimizers
    degree: float = 1.0
    # Below this change the duality gap of the nuclear norm must be as small too; 0 for
    # no such check.
    gap_tol: float = 0.0
    stop_on_change: bool = False  # compare the change of X alone, as in the paper
    Y_init: Array | None = None  # multipliers to start from instead of zeros

    def initial_state(self) -> ADMMState:
        """The zero-filled matrix and no multipliers, unless some are given."""
        M, Y = self.problem.M, self.Y_init
        if Y is None:
            Y = array_namespace(M).zeros_like(M)
        return ADMMState(M, Y, self.schedule.start)

    def _step(self, state: ADMMState, step: int) -> Iterate[Any]:
        problem, mu, X = self.problem, state.mu, state.X
        tau = self.weight / mu
        expected = None if state.rank < 0 else state.rank
        svd = svd_above(X + state.Y / mu, self.penalty.threshold(tau), expected)
        s = self.penalty.prox(svd.s, tau)
        s = s[s > 0.0]
        Z = svd.reconstruct(s)
        relaxation = self.schedule.relaxation
        Z_relaxed = Z if relaxation == 1.0 else relaxation * Z + (1.0 - relaxation) * X
        new, Y = problem.admm_update(Z_relaxed, state.Y, mu)
        primal = relative_change(new, Z)
        step_norm = frobenius_norm(new - X)
        dual = ratio(mu * step_norm, frobenius_norm(Y))
        value = self.weight * self.penalty.value(s)
        notes = {"primal": primal, "dual": dual, "rank": float(len(s)), "mu": mu}
        change = max(primal, ratio(step_norm, frobenius_norm(new)))
        if isinstance(self.penalty, NuclearNorm):
            # The gap between the objective at Z and the dual objective at Y.
            inner = float(array_namespace(Y).sum(Y * problem.M))
            notes["gap"] = abs(ratio(value - inner, value))
        if self.gap_tol:
            change = max(primal, dual, notes["gap"])
            if change < self.gap_tol:
                notes["gap"] = relative_duality_gap(problem, new, Y)
                change = max(change, notes["gap"])
        elif self.stop_on_change:
            change = ratio(step_norm, frobenius_norm(new))
        mu = self.schedule.next_mu(mu, step, primal, dual)
        next_state = ADMMState(new, Y, mu, len(s), problem.residual(Z))
        may_stop = len(s) > 0 or problem.observed_norm == 0.0
        return Iterate(next_state, value, change, notes, may_stop)

    def finalize(self, last: Iterate[Any]) -> SolverResult:
        """The completed matrix, with the observed values."""
        state: ADMMState = last.state
        extras: dict[str, Any] = {}
        if isinstance(self.penalty, NuclearNorm) and self.weight == 1.0:
            o, Y = self.problem.observed, self._to_numpy(state.Y)
            multipliers = Y[o.rows, o.indices], o.indices, o.indptr
            extras = {
                "gap_": relative_duality_gap(self.problem, state.X, state.Y),
                "dual_": csr_array(multipliers, shape=o.shape),
            }
        axes = {"dual_": ("rows", "columns")} if extras else {}
        X = self._to_numpy(state.X)
        return SolverResult(X, None, state.residual, state.rank, extras, axes)


def relative_duality_gap(problem: DenseProblem, X: Array, Y: Array) -> float:
    """Bound on the relative suboptimality of the nuclear norm of a feasible X.

    Any ``Y`` that is 0 at missing entries and has no singular value above 1 proves that
    no completion has a nuclear norm below ``<Y, M>``.
    """
    xp = array_namespace(Y)
    value = nuclear_norm(X)
    lower_bound = float(xp.sum(Y * problem.M)) / max(1.0, spectral_norm(Y))
    return max(0.0, ratio(value - lower_bound, value))
