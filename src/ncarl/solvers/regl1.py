r"""RegL1: robust low-rank factorization with absolute residuals.

``min ||P(M - U V)||_1 + lam ||V||_*`` with ``U^T U = I``, by an augmented Lagrangian
for the constraint ``E = U V``. U and V are updated together, which has a closed form:
the leading singular triplets of ``E + Y / mu``, shrunk by ``lam / mu``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from array_api_compat import array_namespace

from ncarl.core.svd import (
    asarray_like,
    frobenius_norm,
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
)

#: Maximum of ``mu`` times the largest singular value, where E equals the product.
MAX_MU = 1e20
#: The initial threshold is the largest singular value divided by this.
INITIAL_THRESHOLD_DIVISOR = 3.0


@dataclass(frozen=True, eq=False)
class RegL1State:
    """State of `RegL1Solver`."""

    E: Array  # copy (m, n) of the product that the residuals are measured at
    U: Array  # left factor (m, k), orthonormal columns
    V: Array  # right factor (k, n), without zero rows
    Y: Array  # multipliers (m, n), 0 at missing entries unless E must be nonnegative
    mu: float  # penalty parameter of the constraint E = U V


@dataclass(frozen=True)
class RegL1Solver:
    """Augmented Lagrangian solver of RegL1.

    Attributes
    ----------
    problem : DenseProblem
        The matrix to complete.
    lam : float
        Strength of the nuclear norm against the sum of absolute residuals.
    rank : int
        Maximum number of columns of U.
    growth : float
        Factor by which ``mu`` grows in each step.
    inner : int
        Number of alternating updates of the factors and E in one step.
    nonnegative : bool
        Whether E is constrained to be nonnegative.
    mu_init : float, optional
        Initial ``mu``; by default such that the threshold of singular values is a
        third of the largest one, or smaller such that the threshold of the entries is
        at least the largest of them.
    """

    problem: DenseProblem
    lam: float
    rank: int
    growth: float = 1.05
    inner: int = 1
    nonnegative: bool = False
    mu_init: float | None = None
    degree: float = 1.0

    def initial_state(self) -> RegL1State:
        """The zero-filled matrix, and empty factors."""
        M = self.problem.M
        mu = self._default_mu() if self.mu_init is None else self.mu_init
        zero = array_namespace(M).zeros_like(M)
        return RegL1State(M, M[:, :0], M[:0], zero, mu)

    def _default_mu(self) -> float:
        """Initial ``mu`` with which both thresholds are effective.

        The threshold of the entries is at least the largest of them, so that with a
        strong norm all can become residuals before a growing ``mu`` fixes them.
        """
        values = self.problem.observed.values
        largest = float(np.max(np.abs(values), initial=0.0)) or 1.0
        return min(
            INITIAL_THRESHOLD_DIVISOR * self.lam / self.problem.spectral_norm,
            1.0 / largest,
        )

    def steps(self, state: RegL1State, step: int) -> Iterator[SolverStep]:
        """Yield the augmented Lagrangian steps from ``state`` on."""
        return iterate_steps(self._step, state, step, self.problem)

    def _step(self, state: RegL1State, step: int, timer: Timer) -> SolverStep:
        """Update the factors and E in turn, then the multipliers."""
        inner = state
        for _ in range(self.inner):
            inner = self.inner_step(inner)
        E, U, V = inner.E, inner.U, inner.V
        Z = U @ V
        Y = state.Y + state.mu * (E - Z)
        size = self.problem.observed_norm
        primal = ratio(frobenius_norm(E - Z), size)
        change = max(primal, ratio(frobenius_norm(E - state.E), size))
        mu = min(state.mu * self.growth, MAX_MU / self.problem.spectral_norm)
        new = RegL1State(E, U, V, Y, mu)
        notes = {"primal": primal, "rank": float(V.shape[0]), "mu": state.mu}
        return SolverStep(step, new, self.objective(V, Z), change, notes, timer.lap())

    def inner_step(self, state: RegL1State) -> RegL1State:
        """The best factors for E, then the best E for the factors."""
        mu, Y = state.mu, state.Y
        threshold = self.lam / mu
        expected = state.V.shape[0] if state.V.shape[0] else None
        svd = svd_above(state.E + Y / mu, threshold, expected)
        s = svd.s[: self.rank] - threshold
        U = svd.U[:, : self.rank]
        V = asarray_like(U, s)[:, None] * svd.Vt[: self.rank]
        xp = array_namespace(U)
        target = U @ V - Y / mu
        residuals = self.problem.M - target
        # Soft thresholding of the residuals at 1 / mu.
        shrunk = residuals - xp.clip(residuals, -1.0 / mu, 1.0 / mu)
        E = xp.where(self.problem.mask, self.problem.M - shrunk, target)
        if self.nonnegative:
            E = xp.clip(E, 0.0, None)
        return RegL1State(E, U, V, Y, mu)

    def objective(self, V: Array, Z: Array) -> float:
        """Objective at a product ``Z = U V``."""
        xp = array_namespace(Z)
        residuals = xp.where(self.problem.mask, Z - self.problem.M, xp.zeros_like(Z))
        # The rows of V are orthogonal, so their norms are its singular values.
        s = xp.sqrt(xp.sum(V * V, axis=1))
        return float(xp.sum(xp.abs(residuals))) + self.lam * float(xp.sum(s))

    def finalize(self, last: SolverStep) -> SolverResult:
        """The factors, with U orthonormalized to machine precision."""
        state: RegL1State = last.state
        residual = self.problem.residual(state.U @ state.V)
        Q, R = array_namespace(state.U).linalg.qr(state.U)
        fetch = self.problem.compute_device.to_numpy
        rank = state.V.shape[0]
        return SolverResult(None, (fetch(Q), fetch(R @ state.V)), residual, rank)
