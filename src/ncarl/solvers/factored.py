r"""Completion by a product of two factors: the nuclear norm and FGSR.

`FactoredADMM` solves ``min 1/2 ||A||^2 + 1/2 ||B||^2`` such that ``X = A B`` agrees
with the observed entries:

.. code-block:: text

    B <- argmin of the ridge problem given A, then A given B
    X <- observed values, and A B - Y / mu at missing entries
    Y <- Y + mu (X - A B)

The minimum over all factors of a product is its nuclear norm, so with enough columns
this is nuclear norm completion without a singular value decomposition a step.

FGSR (factor group-sparse regularization) uses other regularizers,

.. code-block:: text

    p = 2/3:  sum of the norms of A's columns + a/2 ||B||^2
    p = 1/2:  sum of the norms of A's columns + a times that of B's rows

whose minima for a product are ``3/2 a^(1/3) sum s^(2/3)`` and ``2 a^(1/2) sum s^(1/2)``
of its singular values s. `GroupSparseADMM` is a linearized ADMM with observed entries
fixed: the update of A is a proximal gradient step, that of B a ridge solution (p = 2/3)
or another such step (p = 1/2). `GroupSparsePALM` allows for noise and makes a proximal
gradient step in each factor (PALM).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from array_api_compat import array_namespace

from ncarl.core.svd import SVDResult, asarray_like, frobenius_norm, full_svd, to_numpy
from ncarl.core.types import Array
from ncarl.fitting.loop import Iterate
from ncarl.observations import Observations
from ncarl.solvers.admm import ResidualBalancing
from ncarl.solvers.base import (
    DenseProblem,
    SolverResult,
    StepSolver,
    group_soft_threshold,
    ratio,
    relative_change,
)
from ncarl.solvers.penalties import SchattenNorm

#: Singular values below this fraction of the largest do not count for a rank.
RANK_TOL = 1e-5
#: Columns whose squared norm is below this fraction of the largest are dropped.
PRUNE_TOL = 1e-10
#: Triplets below this fraction of the largest are left out of initial factors.
ZERO_TOL = 1e-10
#: `FactoredADMM`: after the balancing ``mu`` changes by this factor each time that this
#: many steps have not lowered the residuals to this fraction.
MU_FACTOR, MU_PATIENCE, MU_PROGRESS = 1.5, 50, 0.8

#: `GroupSparseADMM`: initial threshold of singular values relative to the largest, for
#: p = 2/3 and p = 1/2.
INITIAL_THRESHOLD, INITIAL_THRESHOLD_HALF = 0.05, 0.15
#: With missing entries the threshold is at least this fraction of that.
MIN_THRESHOLD_RATIO = 0.2
#: Growth of ``mu`` in a step in which X changes by less than this fraction of its
#: distance to the product, and in every step after this many.
MU_GROWTH, MU_GROWTH_RATIO, MU_GROWTH_AFTER = 1.02, 0.3, 400
#: ``mu`` falls by this factor at this interval, up to this step, while X changes by
#: more than this multiple of its distance to the product.
MU_DECAY, MU_DECAY_INTERVAL, MU_DECAY_UNTIL, MU_DECAY_RATIO = 1.5, 15, 200, 10.0
#: Dropped columns are restored if, late in the run, this many steps have not lowered
#: the distance between X and the product to this fraction.
RESTART_INTERVAL, RESTART_PROGRESS = 50, 0.8


@dataclass(frozen=True, eq=False)
class FactoredState:
    """State of `FactoredADMM`, and of `GroupSparseADMM`, where d decreases."""

    A: Array  # left factor (m, d)
    B: Array  # right factor (d, n)
    X: Array  # completed matrix (m, n), with the observed values
    Y: Array  # multipliers (m, n), 0 at missing entries
    mu: float  # penalty parameter of the constraint X = A B
    residual: float = 1.0  # ||P(A B - M)|| / ||M||
    reference_residual: float = math.inf  # residual when progress was last checked


@dataclass(frozen=True)
class _FactoredSolver(StepSolver):
    """Beginning and end of the solvers with observed entries fixed."""

    problem: DenseProblem

    def _start_from(self, A: Array, B: Array, mu: float) -> FactoredState:
        Y = array_namespace(A).zeros_like(self.problem.M)
        return FactoredState(A, B, self.problem.fill_missing(A @ B), Y, mu)

    def finalize(self, last: Iterate[Any]) -> SolverResult:
        """The completed matrix, with the observed values."""
        state: FactoredState = last.state
        rank = product_rank(state.A, state.B)
        return SolverResult(self._to_numpy(state.X), None, state.residual, rank)


@dataclass(frozen=True)
class FactoredADMM(_FactoredSolver):
    """Solver of ``min 1/2 ||A||^2 + 1/2 ||B||^2`` with observed entries fixed."""

    degree: ClassVar[float] = 1.0
    rank: int  # number of columns of A
    schedule: ResidualBalancing  # the first mu, and its update in the first steps

    def initial_state(self) -> FactoredState:
        """Balanced factors of the zero-filled matrix, rescaled by its density."""
        svd = spectral_init(self.problem, self.rank, 1.0 / self.problem.density)
        return self._start_from(*factors_from_svd(svd, 0.5), self.schedule.start)

    def _step(self, state: FactoredState, step: int) -> Iterate[FactoredState]:
        mu = state.mu
        W = state.X + state.Y / mu
        B = ridge_right(state.A, W, 1.0 / mu)
        A = ridge_right(B.T, W.T, 1.0 / mu).T
        Z = A @ B
        X, Y = self.problem.admm_update(Z, state.Y, mu)
        primal = relative_change(X, Z)
        dual = ratio(mu * frobenius_norm(X - state.X), frobenius_norm(Y))
        notes = {"primal": primal, "dual": dual, "mu": mu}
        mu, reference = self._next_mu(state, step, primal, dual)
        new = FactoredState(A, B, X, Y, mu, self.problem.residual(Z), reference)
        value = (frobenius_norm(A) ** 2 + frobenius_norm(B) ** 2) / 2.0
        return Iterate(new, value, max(primal, dual), notes)

    def _next_mu(
        self, state: FactoredState, step: int, primal: float, dual: float
    ) -> tuple[float, float]:
        """The next ``mu``, and the residual to compare later ones with.

        With fewer columns than the rank of the nuclear norm's completion the problem
        is nonconvex, and with a small ``mu`` the iteration can cycle; a larger one
        ends that.
        """
        if step <= self.schedule.max_steps:
            return self.schedule.next_mu(state.mu, step, primal, dual), math.inf
        if step % MU_PATIENCE:
            return state.mu, state.reference_residual
        now = max(primal, dual)
        if now < MU_PROGRESS * state.reference_residual:
            return state.mu, now
        # A larger mu would only slow down the dual residual.
        grows = self.schedule.imbalance * primal > dual
        return state.mu * (MU_FACTOR if grows else 1.0 / MU_FACTOR), now


@dataclass(frozen=True)
class GroupSparseRegularizer:
    """Factor group-sparse regularizer of two factors."""

    half: bool  # whether p is 1/2 instead of 2/3
    a: float = 1.0  # weight of B; it only moves scale from one factor to the other

    @property
    def penalty(self) -> SchattenNorm:
        """Its minimum for a product, up to the factor `weight`."""
        return SchattenNorm(0.5 if self.half else 2.0 / 3.0)

    @property
    def weight(self) -> float:
        """The factor between the minimum for a product and `penalty`."""
        return float(2.0 * self.a**0.5 if self.half else 1.5 * self.a ** (1.0 / 3.0))

    def value(self, A: Array, B: Array) -> float:
        """Value of the regularizer at two factors."""
        xp = array_namespace(A)
        left = float(xp.sum(xp.linalg.vector_norm(A, axis=0)))
        if self.half:
            return left + self.a * float(xp.sum(xp.linalg.vector_norm(B.T, axis=0)))
        return left + self.a / 2.0 * frobenius_norm(B) ** 2

    def best_factors(self, svd: SVDResult) -> tuple[Array, Array]:
        """The factors of a product that minimize the regularizer, from its SVD."""
        rank = int(np.count_nonzero(svd.s > ZERO_TOL * svd.s[0]))
        A, B = factors_from_svd(truncate_svd(svd, rank), self.penalty.p)
        shift = self.a**0.5 if self.half else self.a ** (1.0 / 3.0)
        return shift * A, B / shift


@dataclass(frozen=True)
class GroupSparseADMM(_FactoredSolver):
    """Solver of ``min regularizer(A, B)`` with observed entries fixed."""

    regularizer: GroupSparseRegularizer
    rank: int  # initial number of columns
    # The first penalty parameter of the constraint ``X = A B``. By default so large
    # that singular values above 0.05 (p = 1/2: 0.15) of the largest pass the threshold,
    # and smaller ones too if the initial matrix has them.
    mu: float | None = None

    @property
    def degree(self) -> float:
        """Degree of the Schatten penalty."""
        return self.regularizer.penalty.degree

    def initial_state(self) -> FactoredState:
        """The best factors of the zero-filled matrix.

        They are not rescaled by the density: what that adds to the small singular
        values takes many steps to remove.
        """
        svd = spectral_init(self.problem, self.rank)
        mu = self._default_mu(svd.s) if self.mu is None else self.mu
        return self._start_from(*self.regularizer.best_factors(svd), mu)

    def _default_mu(self, s: Array) -> float:
        s = s[s > ZERO_TOL * s[0]]
        if len(s) == 0:
            return 1.0
        share = INITIAL_THRESHOLD_HALF if self.regularizer.half else INITIAL_THRESHOLD
        usual = share * float(s[0])
        threshold = min(usual, float(s[-1]))
        if self.problem.density < 1.0:
            # With missing entries smaller values are noise, and slow to converge.
            threshold = max(threshold, MIN_THRESHOLD_RATIO * usual)
        return self.regularizer.weight / self.regularizer.penalty.strength(threshold)

    def _step(self, state: FactoredState, step: int) -> Iterate[FactoredState]:
        mu = state.mu
        A, B = self._update_factors(state.A, state.B, state.X + state.Y / mu, mu)
        Z = A @ B
        X, Y = self.problem.admm_update(Z, state.Y, mu)
        primal, x_change = relative_change(X, Z), relative_change(X, state.X)
        residual, reference = self.problem.residual(Z), state.reference_residual
        value = self.regularizer.value(A, B)
        notes = {"primal": primal, "rank": float(A.shape[1]), "mu": mu}
        if step > MU_GROWTH_AFTER and step % RESTART_INTERVAL == 0:
            if primal > RESTART_PROGRESS * reference and A.shape[1] < self.rank:
                # So many columns were dropped that no product agrees with the entries.
                svd = truncate_svd(full_svd(X), self.rank)
                A, B = self.regularizer.best_factors(svd)
                Y = array_namespace(X).zeros_like(X)
            reference = primal
        mu = self._next_mu(mu, step, primal, x_change)
        new = FactoredState(A, B, X, Y, mu, residual, reference)
        return Iterate(new, value, max(primal, x_change), notes)

    def _next_mu(self, mu: float, step: int, primal: float, x_change: float) -> float:
        """The next ``mu``.

        If it is too large X changes too little, and if it is too small columns that
        are needed are dropped; so it starts large and falls while the product keeps
        up. Earlier growth would freeze the iteration at a larger regularizer.
        """
        may_fall = step <= MU_DECAY_UNTIL and step % MU_DECAY_INTERVAL == 0
        if may_fall and x_change > MU_DECAY_RATIO * primal:
            return mu / MU_DECAY
        grows = x_change < MU_GROWTH_RATIO * primal or step > MU_GROWTH_AFTER
        return MU_GROWTH * mu if grows else mu

    def _update_factors(
        self, A: Array, B: Array, W: Array, mu: float
    ) -> tuple[Array, Array]:
        """The next factors for ``W = X + Y / mu``."""
        # Gradient steps do not solve the subproblems, so p = 1/2 makes two of them.
        for _ in range(2 if self.regularizer.half else 1):
            A = prox_step_left(A, W @ B.T, B @ B.T, 1.0 / mu)
            if self.regularizer.half:
                B = prox_step_left(B.T, W.T @ A, A.T @ A, self.regularizer.a / mu).T
            elif A.shape[1]:
                B = ridge_right(A, W, self.regularizer.a / mu)
        return prune_columns(A, B)


@dataclass(frozen=True, eq=False)
class GroupSparsePALMState:
    """State of `GroupSparsePALM`; the number of columns d decreases."""

    A: Array  # left factor (m, d)
    B: Array  # right factor (d, n)


@dataclass(frozen=True)
class GroupSparsePALM(StepSolver):
    """Solver of ``min 1/2 ||P(A B) - M||^2 + lam regularizer(A, B)`` by PALM."""

    degree: ClassVar[float] = 2.0
    problem: DenseProblem
    regularizer: GroupSparseRegularizer
    lam: float
    rank: int  # initial number of columns

    def initial_state(self) -> GroupSparsePALMState:
        """The best factors of the zero-filled matrix, rescaled by its density."""
        svd = spectral_init(self.problem, self.rank, 1.0 / self.problem.density)
        return GroupSparsePALMState(*self.regularizer.best_factors(svd))

    def warm_start(self, state: GroupSparsePALMState) -> GroupSparsePALMState:
        """Start from the product found with another strength.

        Dropped columns never return, so the factors are computed again, from the
        observed values with missing entries filled from the product.
        """
        X = self.problem.fill_missing(state.A @ state.B)
        svd = truncate_svd(full_svd(X), self.rank)
        return GroupSparsePALMState(*self.regularizer.best_factors(svd))

    def _step(self, state: GroupSparsePALMState, step: int) -> Iterate[Any]:
        """A proximal gradient step in each factor."""
        A, B, regularizer = state.A, state.B, self.regularizer
        old = A @ B
        # With missing entries filled from the product, residuals are W - A B.
        W = self.problem.fill_missing(old)
        A = prox_step_left(A, W @ B.T, B @ B.T, self.lam)
        G = A.T @ A
        W = self.problem.fill_missing(A @ B)
        if regularizer.half:
            B = prox_step_left(B.T, W.T @ A, G, self.lam * regularizer.a).T
        else:
            bound = gram_norm(G)
            target = bound * B + A.T @ W - G @ B
            B = target / (bound + self.lam * regularizer.a)
        A, B = prune_columns(A, B)
        new = A @ B
        loss = self.problem.squared_loss(self.problem.residual(new))
        value = loss + self.lam * regularizer.value(A, B)
        change, notes = relative_change(new, old), {"rank": float(A.shape[1])}
        return Iterate(GroupSparsePALMState(A, B), value, change, notes)

    def finalize(self, last: Iterate[Any]) -> SolverResult:
        """The factors and the rank of their product."""
        A, B = last.state.A, last.state.B
        factors = self._to_numpy(A), self._to_numpy(B)
        residual = self.problem.residual(A @ B)
        return SolverResult(None, factors, residual, product_rank(A, B))


def default_rank(observed: Observations) -> int:
    """Number of columns with which factors can attain the minimum nuclear norm.

    There is a minimizer whose rank r satisfies ``r (r + 1) / 2 <= entries``, and with
    one column more than that no local minimum is worse than the global one. Rows and
    columns without observed entries need none.

    >>> import numpy as np
    >>> default_rank(Observations.from_dense(np.ones((9, 4))))
    4
    >>> default_rank(Observations.from_dense(np.where(np.eye(9) > 0.0, 1.0, np.nan)))
    4
    """
    rows = int(np.count_nonzero(observed.row_counts))
    columns = int(np.count_nonzero(observed.column_counts))
    enough = (math.isqrt(8 * observed.n_observed + 1) - 1) // 2 + 1
    return max(1, min(rows, columns, enough))


def spectral_init(problem: DenseProblem, rank: int, factor: float = 1.0) -> SVDResult:
    """Leading triplets of the zero-filled matrix, with values scaled by ``factor``."""
    with problem.compute_device.compute_context(min(problem.shape)):
        svd = truncate_svd(full_svd(problem.M), rank)
    return svd._replace(s=factor * svd.s)


def truncate_svd(svd: SVDResult, rank: int) -> SVDResult:
    """The ``rank`` largest triplets."""
    return SVDResult(svd.U[:, :rank], svd.s[:rank], svd.Vt[:rank])


def factors_from_svd(svd: SVDResult, left_power: float) -> tuple[Array, Array]:
    """Factors ``U s^left_power`` and ``s^(1 - left_power) Vt`` of a matrix."""
    A = svd.U * asarray_like(svd.U, svd.s**left_power)
    return A, asarray_like(svd.Vt, svd.s ** (1.0 - left_power))[:, None] * svd.Vt


def product_rank(A: Array, B: Array) -> int:
    """Numerical rank of ``A B``, from the triangular factors of both."""
    xp = array_namespace(A)
    if A.shape[1] == 0:
        return 0
    R = xp.linalg.qr(A)[1] @ xp.linalg.qr(B.T)[1].T
    s = full_svd(R).s
    return int(np.count_nonzero(s > RANK_TOL * s[0]))


def ridge_right(A: Array, W: Array, ridge: float) -> Array:
    """``argmin_B 1/2 ||A B - W||^2 + ridge/2 ||B||^2``, for a ridge above 0."""
    xp = array_namespace(A)
    eye = xp.eye(A.shape[1], dtype=A.dtype, device=A.device)
    return xp.linalg.solve(A.T @ A + ridge * eye, A.T @ W)


def prox_step_left(A: Array, right: Array, G: Array, threshold: float) -> Array:
    """Proximal gradient step in A for ``1/2 ||A B - W||^2 + threshold sum_j |a_j|``.

    ``right`` is ``W B^T`` and ``G`` is ``B B^T``, whose largest eigenvalue bounds the
    curvature, so that the objective never increases.
    """
    bound = gram_norm(G)
    if bound == 0.0:  # the other factor is 0, and so is the best A
        return 0.0 * A
    return group_soft_threshold(A + (right - A @ G) / bound, threshold / bound)


def gram_norm(G: Array) -> float:
    """Largest eigenvalue of a Gram matrix; 0 if it is empty."""
    if G.shape[0] == 0:
        return 0.0
    return max(float(array_namespace(G).linalg.eigvalsh(G)[-1]), 0.0)


def prune_columns(A: Array, B: Array) -> tuple[Array, Array]:
    """Drop the columns that are numerically 0 in either factor."""
    if A.shape[1] == 0:
        return A, B
    norm = array_namespace(A).linalg.vector_norm
    lengths = to_numpy(norm(A, axis=0)), to_numpy(norm(B.T, axis=0))
    kept = np.all([s**2 > PRUNE_TOL * s.max() ** 2 for s in lengths], axis=0)
    if kept.all():
        return A, B
    columns = array_namespace(A).asarray(np.flatnonzero(kept), device=A.device)
    return A[:, columns], B[columns]
