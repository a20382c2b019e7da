r"""RegL1: robust low-rank factorization with absolute residuals.

``min ||P(M - U V)||_1 + lam ||V||_*`` with ``U^T U = I``, by an augmented Lagrangian
for the constraint ``E = U V``. U and V are updated together, which has a closed form:
the leading singular triplets of ``E + Y / mu``, shrunk by ``lam / mu``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from array_api_compat import array_namespace

from ncarl.core.svd import asarray_like, frobenius_norm, svd_above
from ncarl.core.types import Array
from ncarl.fitting.loop import Iterate
from ncarl.solvers.base import DenseProblem, SolverResult, StepSolver, ratio

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
class RegL1Solver(StepSolver):
    """Augmented Lagrangian solver of RegL1."""

    degree: ClassVar[float] = 1.0
    problem: DenseProblem
    lam: float  # strength of the nuclear norm against the sum of absolute residuals
    rank: int  # maximum number of columns of U
    growth: float = 1.05  # of mu in each step
    inner: int = 1  # alternating updates of the factors and E in one step
    nonnegative: bool = False  # whether E is constrained to be nonnegative

    def initial_state(self) -> RegL1State:
        """The zero-filled matrix, and empty factors."""
        # The threshold of the entries is at least the largest of them, so that with a
        # strong norm all can become residuals before a growing mu fixes them.
        M, top = self.problem.M, self.problem.spectral_norm
        largest = float(np.max(np.abs(self.problem.observed.values))) or 1.0
        mu = min(INITIAL_THRESHOLD_DIVISOR * self.lam / top, 1.0 / largest)
        return RegL1State(M, M[:, :0], M[:0], array_namespace(M).zeros_like(M), mu)

    def _step(self, state: RegL1State, step: int) -> Iterate[RegL1State]:
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
        notes = {"primal": primal, "rank": float(V.shape[0]), "mu": state.mu}
        return Iterate(RegL1State(E, U, V, Y, mu), self._objective(V, Z), change, notes)

    def inner_step(self, state: RegL1State) -> RegL1State:
        """The best factors for E, then the best E for the factors."""
        mu, Y = state.mu, state.Y
        threshold = self.lam / mu
        svd = svd_above(state.E + Y / mu, threshold, state.V.shape[0] or None)
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

    def _objective(self, V: Array, Z: Array) -> float:
        xp = array_namespace(Z)
        residuals = self.problem.project(Z - self.problem.M)
        # The rows of V are orthogonal, so their norms are its singular values.
        s = xp.sqrt(xp.sum(V * V, axis=1))
        return float(xp.sum(xp.abs(residuals))) + self.lam * float(xp.sum(s))

    def finalize(self, last: Iterate[Any]) -> SolverResult:
        """The factors, with U orthonormalized to machine precision."""
        U, V = last.state.U, last.state.V
        Q, R = array_namespace(U).linalg.qr(U)
        factors = self._to_numpy(Q), self._to_numpy(R @ V)
        return SolverResult(None, factors, self.problem.residual(U @ V), V.shape[0])
