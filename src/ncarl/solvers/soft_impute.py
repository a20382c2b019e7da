r"""Soft-impute on sparse data, with the completed matrix kept as factors.

``min 1/2 ||P(X) - M||^2 + lam ||X||_*`` with ``X = U diag(s) V^T`` of bounded rank. The
matrix with missing entries filled from X is never formed: it is X plus a sparse matrix
of residuals. A step of `SoftImputeALS` solves for the right factor given the left one,
fills again, and solves for the left factor; a step of `SoftImputeSVD` soft-thresholds
the leading singular triplets of the filled matrix.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from array_api_compat import array_namespace, is_numpy_array
from scipy.sparse.linalg import LinearOperator

from ncarl.core.svd import (
    LANCZOS_MAX_FRACTION,
    LANCZOS_MIN_SIZE,
    LANCZOS_OVERSAMPLING,
    SVDResult,
    asarray_like,
    frobenius_norm,
    full_svd,
    keep_above,
    lanczos_svd,
    svd_above,
    svd_tall,
    to_numpy,
)
from ncarl.core.types import Array
from ncarl.solvers.base import (
    CONTINUATION_TOL,
    SolverResult,
    SolverStep,
    SparseEntries,
    Timer,
    iterate_steps,
    ratio,
    scaled_step_norm,
)
from ncarl.solvers.penalties import NuclearNorm

#: Minimum number of directions kept beyond those above ``lam``, as candidates.
EXTRA_DIRECTIONS = 5
#: Squares with a smaller relative difference than this cancel when subtracted.
CANCELLATION_TOL = 1e-11
#: Initial size of a candidate direction, relative to ``lam``.
NEW_DIRECTION_SIZE = 0.3


@dataclass(frozen=True, eq=False)
class SoftImputeState:
    """State of the soft-impute solvers, with ``X = U diag(s) Vt``."""

    U: Array  # left factor (m, d), orthonormal columns
    s: Array  # sizes of the directions (d,), largest first
    Vt: Array  # right factor (d, n), orthonormal rows
    residuals: Array  # observed values minus those of X, one an entry
    lam: float  # strength of the penalty, lowered to its final value
    rank: int = 0  # number of directions above the strength
    converged_at_lam: bool = True  # the last step was short: the strength may fall
    tested_rank: int = -1  # rank to which candidates were last added at this strength


@dataclass(frozen=True)
class SoftImputeALS:
    """Soft-impute by alternating least squares.

    Attributes
    ----------
    entries : SparseEntries
        The observed entries.
    lam : float
        Strength of the nuclear norm.
    max_rank : int
        Maximum rank.
    seed : int
        Seed of the random directions that the factors start from.
    lam_decay : float
        Factor by which the strength falls to ``lam``, each time that steps are short.
    """

    entries: SparseEntries
    lam: float
    max_rank: int
    seed: int = 0
    lam_decay: float = 0.7
    degree: float = 2.0

    @property
    def max_directions(self) -> int:
        """Maximum number of directions: empty rows and columns add none."""
        rows, columns = self.entries.nonempty_masks
        return min(self.max_rank, int(rows.sum()), int(columns.sum()))

    def initial_state(self) -> SoftImputeState:
        """A few small directions, at the smallest strength whose solution is 0."""
        m, n = self.entries.shape
        send = self.entries.compute_device.from_numpy
        U, Vt = send(np.empty((m, 0))), send(np.empty((0, n)))
        lam = max(self.lam, self.entries.spectral_norm)
        return self._add_directions(U, asarray_like(U, np.empty(0)), Vt, lam)

    def warm_start(self, state: SoftImputeState) -> SoftImputeState:
        """Start from the factors found with another strength."""
        r = state.rank
        return self._add_directions(state.U[:, :r], state.s[:r], state.Vt[:r], self.lam)

    def _add_directions(
        self, U: Array, s: Array, Vt: Array, lam: float
    ) -> SoftImputeState:
        """Extend factors by small random directions, the candidates."""
        rank = U.shape[1]
        more = min(self.max_directions, rank + max(EXTRA_DIRECTIONS, rank // 2)) - rank
        if more > 0:
            xp = array_namespace(U)
            U = xp.concat([U, self._random_orthogonal(U, 0, more)], axis=1)
            Vt = xp.concat([Vt, self._random_orthogonal(Vt.T, 1, more).T])
            s = xp.concat([s, asarray_like(U, np.full(more, NEW_DIRECTION_SIZE * lam))])
        residuals = self.entries.values - self.entries.sampled_product(U * s, Vt)
        return SoftImputeState(
            U, s, Vt, residuals, lam, rank, converged_at_lam=False, tested_rank=rank
        )

    def _random_orthogonal(self, basis: Array, axis: int, count: int) -> Array:
        """Random orthonormal columns that are orthogonal to a basis."""
        rng = np.random.default_rng((self.seed, axis, basis.shape[1]))
        random = rng.standard_normal((self.entries.shape[axis], count))
        fresh = self.entries.compute_device.from_numpy(
            random * self.entries.nonempty_masks[axis][:, None]
        )
        for _ in range(2):  # Gram-Schmidt twice is orthogonal to machine precision
            fresh = fresh - basis @ (basis.T @ fresh)
            fresh = array_namespace(fresh).linalg.qr(fresh)[0]
        return fresh

    def steps(self, state: SoftImputeState, step: int) -> Iterator[SolverStep]:
        """Yield the ALS steps from ``state`` on."""
        return iterate_steps(self._step, state, step, self.entries)

    def _step(self, state: SoftImputeState, step: int, timer: Timer) -> SolverStep:
        """Lower the strength or add directions if due, then update both factors."""
        decays = state.converged_at_lam and state.lam > self.lam
        if decays or self._needs_directions(state):
            lam = max(self.lam, self.lam_decay * state.lam) if decays else state.lam
            r = state.rank
            state = self._add_directions(state.U[:, :r], state.s[:r], state.Vt[:r], lam)
        new, rank = self._update_factors(state)
        lam = state.lam
        change = scaled_step_norm(factored_distance(state, new), lam, rank)
        new = replace(new, rank=rank, converged_at_lam=change < CONTINUATION_TOL)
        size = frobenius_norm(new.residuals)
        objective = size * size / 2.0 + lam * float(to_numpy(new.s).sum())
        notes = {"rank": float(rank), "lam": lam}
        may_stop = lam <= self.lam and not self._needs_directions(new)
        return SolverStep(step, new, objective, change, notes, timer.lap(), may_stop)

    def _needs_directions(self, state: SoftImputeState) -> bool:
        """Whether all directions are above the strength, so that there may be more."""
        return state.tested_rank < state.rank == len(state.s) < self.max_directions

    def _update_factors(self, state: SoftImputeState) -> tuple[SoftImputeState, int]:
        """State after an update of the right and the left factor, and its rank.

        With the left factor fixed, the best right factor is that of the filled matrix,
        shrunk; missing entries are then filled again for the left factor.
        """
        U, s, Vt, lam = state.U, state.s, state.Vt, state.lam
        filled = self.entries.sparse_rmatmul(state.residuals, U) + Vt.T * s
        V, s_new, rotation = svd_tall(filled * (s / (s + lam)))
        U, s, Vt = U @ rotation.T, asarray_like(U, s_new), V.T
        residuals = self.entries.values - self.entries.sampled_product(U * s, Vt)
        filled = self.entries.sparse_matmul(residuals, V) + U * s
        # A direction counts for the rank if its size in the filled matrix exceeds lam.
        lengths = to_numpy(array_namespace(U).linalg.vector_norm(filled, axis=0))
        rank = int(np.count_nonzero(lengths > lam))
        U, s_new, rotation = svd_tall(filled * (s / (s + lam)))
        s, Vt = asarray_like(U, s_new), rotation @ Vt
        residuals = self.entries.values - self.entries.sampled_product(U * s, Vt)
        new = replace(state, U=U, s=s, Vt=Vt, residuals=residuals)
        return new, min(rank, len(s_new))

    def finalize(self, last: SolverStep) -> SolverResult:
        """Balanced factors of the directions above the strength."""
        state: SoftImputeState = last.state
        fetch, lam = self.entries.compute_device.to_numpy, state.lam
        filled = (
            self.entries.sparse_matmul(state.residuals, state.Vt.T) + state.U * state.s
        )
        svd = full_svd(filled)
        s = NuclearNorm().prox(svd.s, lam)
        # From this strength on the solution is 0, whether or not the run converged.
        s = s[s > 0.0] if lam < self.entries.spectral_norm else s[:0]
        r, root = len(s), np.sqrt(s)
        A = fetch(svd.U)[:, :r] * root
        B = root[:, None] * (fetch(svd.Vt)[:r] @ fetch(state.Vt))
        send = self.entries.compute_device.from_numpy
        fitted = self.entries.sampled_product(send(A), send(B))
        residual = ratio(
            frobenius_norm(self.entries.values - fitted), self.entries.observed_norm
        )
        return SolverResult(None, (A, B), residual, r)


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


@dataclass(frozen=True)
class SoftImputeSVD:
    """Soft-impute by truncated SVD; attributes as in `SoftImputeALS`."""

    entries: SparseEntries
    lam: float
    max_rank: int
    seed: int = 0
    lam_decay: float = 0.7
    degree: float = 2.0

    def initial_state(self) -> SoftImputeState:
        """No directions, at the smallest strength whose solution is 0."""
        m, n = self.entries.shape
        send = self.entries.compute_device.from_numpy
        U, Vt = send(np.empty((m, 0))), send(np.empty((0, n)))
        lam = max(self.lam, self.entries.spectral_norm)
        return SoftImputeState(
            U, asarray_like(U, np.empty(0)), Vt, self.entries.values, lam
        )

    def warm_start(self, state: SoftImputeState) -> SoftImputeState:
        """Start from the factors found with another strength."""
        fitted = self.entries.sampled_product(state.U * state.s, state.Vt)
        return replace(state, lam=self.lam, residuals=self.entries.values - fitted)

    def steps(self, state: SoftImputeState, step: int) -> Iterator[SolverStep]:
        """Yield the SVD steps from ``state`` on."""
        return iterate_steps(self._step, state, step, self.entries)

    def _step(self, state: SoftImputeState, step: int, timer: Timer) -> SolverStep:
        """Lower the strength if due, then shrink the leading triplets."""
        decays = state.converged_at_lam and state.lam > self.lam
        lam = max(self.lam, self.lam_decay * state.lam) if decays else state.lam
        svd = self._svd_above_lam(state, lam)
        s = NuclearNorm().prox(svd.s[: self.max_rank], lam)
        r = len(s)
        U, Vt, sizes = svd.U[:, :r], svd.Vt[:r], asarray_like(svd.U, s)
        residuals = self.entries.values - self.entries.sampled_product(U * sizes, Vt)
        new = SoftImputeState(U, sizes, Vt, residuals, lam, r)
        change = scaled_step_norm(factored_distance(state, new), lam, r)
        new = replace(new, converged_at_lam=change < CONTINUATION_TOL)
        size = frobenius_norm(residuals)
        objective = size * size / 2.0 + lam * float(s.sum())
        notes = {"rank": float(r), "lam": lam}
        return SolverStep(
            step, new, objective, change, notes, timer.lap(), lam <= self.lam
        )

    def _svd_above_lam(self, state: SoftImputeState, lam: float) -> SVDResult:
        """Triplets of the filled matrix with singular values above the strength."""
        count = state.rank + LANCZOS_OVERSAMPLING
        m, n = self.entries.shape
        largest = float(state.s[0]) if state.rank else 0.0
        if largest + frobenius_norm(state.residuals) <= lam:  # a bound on all values
            return SVDResult(state.U[:, :0], np.empty(0), state.Vt[:0])
        if (
            is_numpy_array(state.U)
            and min(m, n) > LANCZOS_MIN_SIZE
            and count <= LANCZOS_MAX_FRACTION * min(m, n)
        ):
            svd = self._lanczos_svd(state, lam, count)
            if svd is not None:
                return svd
        o, send = self.entries.observed, self.entries.compute_device.from_numpy
        sparse = np.zeros((m, n))
        sparse[o.rows, o.indices] = self.entries.compute_device.to_numpy(
            state.residuals
        )
        filled: Array = send(sparse) + (state.U * state.s) @ state.Vt
        return svd_above(filled, lam)

    def _lanczos_svd(
        self, state: SoftImputeState, lam: float, count: int
    ) -> SVDResult | None:
        """The triplets by Lanczos, or None if there are too many."""
        m, n = self.entries.shape
        A, Vt, S = state.U * state.s, state.Vt, self.entries
        operator = LinearOperator(
            (m, n),
            matvec=lambda x: S.sparse_matmul(state.residuals, x) + A @ (Vt @ x),
            rmatvec=lambda x: S.sparse_rmatmul(state.residuals, x) + Vt.T @ (A.T @ x),
            dtype=np.float64,
        )
        svd = lanczos_svd(operator, lam, count, self.max_rank)
        return None if svd is None else keep_above(svd, lam)

    def finalize(self, last: SolverStep) -> SolverResult:
        """Balanced factors."""
        state: SoftImputeState = last.state
        fetch = self.entries.compute_device.to_numpy
        root = np.sqrt(fetch(state.s))
        A, B = fetch(state.U) * root, root[:, None] * fetch(state.Vt)
        residual = ratio(frobenius_norm(state.residuals), self.entries.observed_norm)
        return SolverResult(None, (A, B), residual, state.rank)
