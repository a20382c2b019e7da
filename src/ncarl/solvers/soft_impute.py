r"""Soft-impute on sparse data, with the completed matrix kept as factors.

``min 1/2 ||P(X) - M||^2 + lam ||X||_*`` with ``X = U diag(s) V^T`` of bounded rank. The
matrix with missing entries filled from X is never formed: it is X plus a sparse matrix
of residuals. A step of `SoftImputeALS` solves for the right factor given the left one,
fills again, and solves for the left factor.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from array_api_compat import array_namespace

from ncarl.core.svd import asarray_like, frobenius_norm, full_svd, svd_tall, to_numpy
from ncarl.core.types import Array
from ncarl.fitting.loop import Iterate
from ncarl.solvers.base import (
    CONTINUATION_TOL,
    SolverResult,
    SparseEntries,
    StepSolver,
    next_strength,
    ratio,
    scaled_step_norm,
)
from ncarl.solvers.penalties import soft_threshold

#: Minimum number of directions kept beyond those above ``lam``, as candidates.
EXTRA_DIRECTIONS = 5
#: Squares with a smaller relative difference than this cancel when subtracted.
CANCELLATION_TOL = 1e-11
#: Initial size of a candidate direction, relative to ``lam``.
NEW_DIRECTION_SIZE = 0.3


@dataclass(frozen=True, eq=False)
class SoftImputeState:
    """State of the solver, with ``X = U diag(s) Vt``."""

    U: Array  # left factor (m, d), orthonormal columns
    s: Array  # sizes of the directions (d,), largest first
    Vt: Array  # right factor (d, n), orthonormal rows
    residuals: Array  # observed values minus those of X, one an entry
    lam: float  # strength of the penalty, lowered to its final value
    rank: int = 0  # number of directions above the strength
    converged_at_lam: bool = True  # the last step was short: the strength may fall
    tested_rank: int = -1  # rank to which candidates were last added at this strength


@dataclass(frozen=True)
class SoftImputeALS(StepSolver):
    """Soft-impute by alternating least squares."""

    degree: ClassVar[float] = 2.0
    problem: SparseEntries
    lam: float
    max_rank: int
    seed: int = 0  # of the random directions that the factors start from

    @property
    def max_directions(self) -> int:
        """Maximum number of directions: empty rows and columns add none."""
        rows, columns = self.problem.nonempty_masks
        return min(self.max_rank, int(rows.sum()), int(columns.sum()))

    def initial_state(self) -> SoftImputeState:
        """A few small directions, at the smallest strength whose solution is 0."""
        (m, n), send = self.problem.shape, self.problem.compute_device.from_numpy
        U, Vt = send(np.empty((m, 0))), send(np.empty((0, n)))
        lam = max(self.lam, self.problem.spectral_norm)
        none, values = asarray_like(U, np.empty(0)), self.problem.values
        return self._add_directions(SoftImputeState(U, none, Vt, values, lam), lam)

    def warm_start(self, state: SoftImputeState) -> SoftImputeState:
        """Start from the factors found with another strength."""
        return self._add_directions(state, self.lam)

    def _add_directions(self, state: SoftImputeState, lam: float) -> SoftImputeState:
        """Replace directions below the strength by small random ones, candidates."""
        rank = state.rank
        U, s, Vt = state.U[:, :rank], state.s[:rank], state.Vt[:rank]
        more = min(self.max_directions, rank + max(EXTRA_DIRECTIONS, rank // 2)) - rank
        if more > 0:
            xp = array_namespace(U)
            left = self._random_orthogonal(U, 0, more)
            right = self._random_orthogonal(Vt.T, 1, more)
            # Signs agree with the residuals: -X gets the opposite directions.
            residuals = self.problem.residuals(U * s, Vt)
            images = self.problem.sparse_matmul(residuals, right)
            agree = xp.sum(left * images, axis=0) >= 0.0
            right = xp.where(agree, right, -right)
            U = xp.concat([U, left], axis=1)
            Vt = xp.concat([Vt, right.T])
            s = xp.concat([s, asarray_like(U, np.full(more, NEW_DIRECTION_SIZE * lam))])
        residuals = self.problem.residuals(U * s, Vt)
        return SoftImputeState(
            U, s, Vt, residuals, lam, rank, converged_at_lam=False, tested_rank=rank
        )

    def _random_orthogonal(self, basis: Array, axis: int, count: int) -> Array:
        """Random orthonormal columns that are orthogonal to a basis."""
        rng = np.random.default_rng((self.seed, axis, basis.shape[1]))
        random = rng.standard_normal((self.problem.shape[axis], count))
        random *= self.problem.nonempty_masks[axis][:, None]
        fresh = self.problem.compute_device.from_numpy(random)
        for _ in range(2):  # Gram-Schmidt twice is orthogonal to machine precision
            fresh = fresh - basis @ (basis.T @ fresh)
            fresh = array_namespace(fresh).linalg.qr(fresh)[0]
        return fresh

    def _step(self, state: SoftImputeState, step: int) -> Iterate[SoftImputeState]:
        """Lower the strength or add directions if due, then update both factors."""
        lam, lowered = next_strength(state, self.lam)
        if lowered or self._needs_directions(state):
            state = self._add_directions(state, lam)
        new = self._update_factors(state)
        change = scaled_step_norm(factored_distance(state, new), lam, new.rank)
        new = replace(new, converged_at_lam=change < CONTINUATION_TOL)
        size = frobenius_norm(new.residuals)
        objective = size * size / 2.0 + lam * float(to_numpy(new.s).sum())
        notes = {"rank": float(new.rank), "lam": lam}
        may_stop = lam <= self.lam and not self._needs_directions(new)
        return Iterate(new, objective, change, notes, may_stop=may_stop)

    def _needs_directions(self, state: SoftImputeState) -> bool:
        """Whether all directions are above the strength, so that there may be more."""
        return state.tested_rank < state.rank == len(state.s) < self.max_directions

    def _update_factors(self, state: SoftImputeState) -> SoftImputeState:
        """State after an update of the right and the left factor.

        With the left factor fixed, the best right factor is that of the filled matrix,
        shrunk; missing entries are then filled again for the left factor.
        """
        U, s, Vt, lam = state.U, state.s, state.Vt, state.lam
        filled = self.problem.sparse_rmatmul(state.residuals, U) + Vt.T * s
        V, s_new, rotation = svd_tall(filled * (s / (s + lam)))
        U, s, Vt = U @ rotation.T, asarray_like(U, s_new), V.T
        residuals = self.problem.residuals(U * s, Vt)
        filled = self.problem.sparse_matmul(residuals, V) + U * s
        # A direction counts for the rank if its size in the filled matrix exceeds lam.
        lengths = to_numpy(array_namespace(U).linalg.vector_norm(filled, axis=0))
        rank = int(np.count_nonzero(lengths > lam))
        U, s_new, rotation = svd_tall(filled * (s / (s + lam)))
        s, Vt = asarray_like(U, s_new), rotation @ Vt
        residuals = self.problem.residuals(U * s, Vt)
        rank = min(rank, len(s_new))
        return replace(state, U=U, s=s, Vt=Vt, residuals=residuals, rank=rank)

    def finalize(self, last: Iterate[Any]) -> SolverResult:
        """Balanced factors of the directions above the strength."""
        state: SoftImputeState = last.state
        problem, lam = self.problem, state.lam
        filled = problem.sparse_matmul(state.residuals, state.Vt.T) + state.U * state.s
        svd = full_svd(filled)
        s = soft_threshold(svd.s, lam)
        # From this strength on the solution is 0, whether or not the run converged.
        s = s[s > 0.0] if lam < problem.spectral_norm else s[:0]
        r, root = len(s), np.sqrt(s)
        A = self._to_numpy(svd.U)[:, :r] * root
        B = root[:, None] * (self._to_numpy(svd.Vt)[:r] @ self._to_numpy(state.Vt))
        send = problem.compute_device.from_numpy
        norm = frobenius_norm(problem.residuals(send(A), send(B)))
        return SolverResult(None, (A, B), ratio(norm, problem.observed_norm), r)


def factored_distance(old: SoftImputeState, new: SoftImputeState) -> float:
    """Frobenius norm of the difference of two matrices, from their factors."""
    xp = array_namespace(new.U)
    overlap = (old.U.T @ new.U) * (old.Vt @ new.Vt.T)
    shared = float(xp.sum(old.s[:, None] * overlap * new.s))
    size = float(old.s @ old.s) + float(new.s @ new.s)
    squared = size - 2.0 * shared
    if squared > CANCELLATION_TOL * size or size == 0.0:
        return math.sqrt(squared)
    # The squares cancel; the triangular factors of both sides do not.
    left = xp.concat([new.U * new.s, old.U * old.s], axis=1)
    right = xp.concat([new.Vt, -old.Vt]).T
    R_left, R_right = xp.linalg.qr(left)[1], xp.linalg.qr(right)[1]
    return frobenius_norm(R_left @ R_right.T)
