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

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from array_api_compat import array_namespace
from scipy.sparse import csr_array

from ncarl.core.svd import (
    SVDResult,
    frobenius_norm,
    nuclear_norm,
    spectral_norm,
    svd_above,
)
from ncarl.core.types import Array
from ncarl.solvers.base import (
    DenseProblem,
    SolverResult,
    SolverStep,
    Timer,
    iterate_steps,
    ratio,
    relative_change,
)
from ncarl.solvers.penalties import NuclearNorm, SpectralPenalty


@dataclass(frozen=True, eq=False)
class ADMMState:
    """State of `ADMM`."""

    X: Array  # completed matrix (m, n), with the observed values
    Y: Array  # multipliers (m, n), 0 at missing entries
    mu: float  # penalty parameter of the constraint X = Z
    rank: int = -1  # rank of Z in the last step; -1 before the first
    residual: float = 1.0  # ||P(Z - M)|| / ||M|| in the last step


class PenaltySchedule(Protocol):
    """Update rule of the penalty parameter ``mu``."""

    @property
    def relaxation(self) -> float:
        """Over-relaxation factor of Z; 1 is none."""
        ...

    def initial_mu(self) -> float:
        """The first ``mu``."""
        ...

    def next_mu(self, mu: float, step: int, primal: float, dual: float) -> float:
        """The ``mu`` that follows a step with these residuals."""
        ...


@dataclass(frozen=True)
class ResidualBalancing:
    """Adjust ``mu`` until both residuals are of similar size, then keep it."""

    start: float
    relaxation: float = 1.6
    max_steps: int = 200
    every: int = 10
    imbalance: float = 1.5
    factor: float = 1.5

    def initial_mu(self) -> float:
        """The given start."""
        return self.start

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

    start: float
    factor: float
    max_mu: float = float("inf")
    relaxation: float = 1.0

    def initial_mu(self) -> float:
        """The given start."""
        return self.start

    def next_mu(self, mu: float, step: int, primal: float, dual: float) -> float:
        """Multiply ``mu`` by the factor."""
        return min(mu * self.factor, self.max_mu)


@dataclass(frozen=True)
class ADMM:
    """ADMM solver of ``min penalty(X)`` with observed entries fixed.

    Attributes
    ----------
    problem : DenseProblem
        The matrix to complete.
    penalty : SpectralPenalty
        The penalty to minimize.
    schedule : PenaltySchedule
        Update rule of ``mu``.
    weight : float
        Factor of the penalty; it changes the iterates but not the minimizers.
    degree : float
        Degree of homogeneity of the objective.
    gap_tol : float
        Below this change the duality gap of the nuclear norm must be as small too; 0
        for no such check.
    stop_on_change : bool
        Whether convergence depends on the change of X alone, as in the paper's runs.
    X_init : array of shape (m, n), optional
        Values of missing entries to start from instead of zeros.
    Y_init : array of shape (m, n), optional
        Multipliers to start from instead of zeros.
    """

    problem: DenseProblem
    penalty: SpectralPenalty
    schedule: PenaltySchedule
    weight: float = 1.0
    degree: float = 1.0
    gap_tol: float = 0.0
    stop_on_change: bool = False
    X_init: Array | None = None
    Y_init: Array | None = None

    def initial_state(self) -> ADMMState:
        """The zero-filled matrix and no multipliers, unless others are given."""
        M = self.problem.M
        X = M if self.X_init is None else self.problem.fill_missing(self.X_init)
        zero = array_namespace(M).zeros_like(M)
        Y = zero if self.Y_init is None else self.Y_init
        return ADMMState(X, Y, self.schedule.initial_mu())

    def steps(self, state: ADMMState, step: int) -> Iterator[SolverStep]:
        """Yield the ADMM steps from ``state`` on."""
        return iterate_steps(self._step, state, step, self.problem)

    def _step(self, state: ADMMState, step: int, timer: Timer) -> SolverStep:
        mu, X, Y = state.mu, state.X, state.Y
        svd, s = self._shrink(X + Y / mu, mu, state.rank)
        Z = svd.reconstruct(s)
        relaxation = self.schedule.relaxation
        Z_relaxed = Z if relaxation == 1.0 else relaxation * Z + (1.0 - relaxation) * X
        new = self.problem.fill_missing(Z_relaxed - Y / mu)
        Y = Y + mu * (new - Z_relaxed)
        primal = relative_change(new, Z)
        step_norm = frobenius_norm(new - X)
        dual = ratio(mu * step_norm, frobenius_norm(Y))
        value = self.weight * self.penalty.value(s)
        notes = {
            "primal": primal,
            "dual": dual,
            "rank": float(len(s)),
            "mu": mu,
        }
        change = max(primal, ratio(step_norm, frobenius_norm(new)))
        if isinstance(self.penalty, NuclearNorm):
            notes["gap"] = self._duality_gap(value, Y)
        if self.gap_tol:
            change = max(primal, dual, notes["gap"])
            if change < self.gap_tol:
                notes["gap"] = relative_duality_gap(self.problem, new, Y)
                change = max(change, notes["gap"])
        elif self.stop_on_change:
            change = ratio(step_norm, frobenius_norm(new))
        mu = self.schedule.next_mu(mu, step, primal, dual)
        next_state = ADMMState(new, Y, mu, len(s), self.problem.residual(Z))
        return SolverStep(
            step, next_state, value, change, notes, timer.lap(),
            may_stop=len(s) > 0 or self.problem.observed_norm == 0.0,
        )  # fmt: skip

    def _shrink(self, W: Array, mu: float, rank: int) -> tuple[SVDResult, Array]:
        """Singular triplets of W above the threshold, and their shrunk values."""
        tau = self.weight / mu
        expected = None if rank < 0 else rank
        svd = svd_above(W, self.penalty.threshold(tau), expected)
        s = self.penalty.prox(svd.s, tau)
        return svd, s[s > 0.0]

    def _duality_gap(self, value: float, Y: Array) -> float:
        """Relative gap between the objective at Z and the dual objective at Y."""
        xp = array_namespace(Y)
        return abs(ratio(value - float(xp.sum(Y * self.problem.M)), value))

    def finalize(self, last: SolverStep) -> SolverResult:
        """The completed matrix, with the observed values."""
        state: ADMMState = last.state
        fetch = self.problem.compute_device.to_numpy
        extras: dict[str, Any] = {}
        if isinstance(self.penalty, NuclearNorm) and self.weight == 1.0:
            extras = {"gap_": relative_duality_gap(self.problem, state.X, state.Y)}
            extras["dual_"] = self._sparse_dual(fetch(state.Y))
        return SolverResult(fetch(state.X), None, state.residual, state.rank, extras)

    def _sparse_dual(self, Y: Array) -> Any:
        """Multipliers of the observed entries."""
        o = self.problem.observed
        return csr_array((Y[o.rows, o.indices], o.indices, o.indptr), shape=o.shape)


def relative_duality_gap(problem: DenseProblem, X: Array, Y: Array) -> float:
    """Bound on the relative suboptimality of the nuclear norm of a feasible X.

    Any ``Y`` that is 0 at missing entries and has no singular value above 1 proves that
    no completion has a nuclear norm below ``<Y, M>``.
    """
    xp = array_namespace(Y)
    value = nuclear_norm(X)
    lower_bound = float(xp.sum(Y * problem.M)) / max(1.0, spectral_norm(Y))
    return max(0.0, ratio(value - lower_bound, value))
