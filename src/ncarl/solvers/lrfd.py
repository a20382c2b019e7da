r"""LRFD: coefficients of minimum nuclear norm in a dictionary.

`LRFDSolver` solves ``min ||Z||_*`` such that ``D Z`` agrees with the observed entries,
in stages: nuclear norm completion, whose result gives D, and then ADMM,

.. code-block:: text

    J <- prox(Z + Y / mu)
    Z <- projection of J - Y / mu onto the coefficients that fit the observed entries
    Y <- Y + mu (Z - J)

in coordinates of the rank of D, in which J is smallest. The projection is done column
by column; splitting off a copy of D Z instead takes a hundred times as many steps if D
is ill-conditioned. If D cannot fit the observed entries, or noise is allowed for, the
last stage is ``min lam ||Z||_* + 1/2 ||P(D Z) - M||^2`` by accelerated proximal
gradient.

`DictionaryLearningSolver` learns D as well: ``min ||D||_* + 1/2 ||Z||^2`` such that
``D Z`` agrees with the observed entries. For given ``X = D Z`` the minimum is 3/2 times
the sum of the singular values of X to the power 2/3. With a growing ``mu``:

.. code-block:: text

    Z <- (mu D^T D + I)^-1 D^T (mu X + Y)
    D <- prox(D - (D Z - X - Y / mu) Z^T / ||Z||^2)
    X <- observed values, and D Z - Y / mu at missing entries
    Y <- Y + mu (X - D Z)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from array_api_compat import array_namespace

from ncarl.core.svd import (
    asarray_like,
    frobenius_norm,
    full_svd,
    spectral_norm,
    svd_above,
)
from ncarl.core.types import Array
from ncarl.fitting.loop import Iterate
from ncarl.solvers.admm import ADMM, ADMMState, ResidualBalancing
from ncarl.solvers.base import (
    LAM_DECAY,
    DenseProblem,
    SolverResult,
    StepSolver,
    next_momentum,
    ratio,
    relative_change,
    shrink_singular_values,
)
from ncarl.solvers.penalties import NuclearNorm

#: Maximum number of steps of the first completion.
MAX_COMPLETION_STEPS = 500
#: Relative misfit of the observed values up to which a dictionary counts as feasible:
#: the error of a dictionary from a completion that was stopped early.
FEASIBILITY_TOL = 1e-4
#: Default strength of the penalized form, relative to the smallest that gives 0.
DEFAULT_LAM_RATIO = 1e-4
#: Update rule of ``mu``; its initial value is part of the state.
MU_SCHEDULE = ResidualBalancing(1.0, imbalance=5.0)
#: Stages of a run.
COMPLETION_STAGE, EXACT_STAGE, PENALIZED_STAGE = 1, 2, 3
#: Relative tolerance for the rank of the observed rows of a dictionary.
OBSERVED_RANK_TOL = 1e-6
#: Maximum memory of the projectors of `FeasibleCoefficients`.
MAX_PROJECTOR_GB = 8.0
#: Dictionary learning: initial ``mu`` in units of its own, growth a step and in all.
INITIAL_MU_FACTOR, MU_GROWTH, MAX_MU_GROWTH = 30.0, 1.01, 1e8


@dataclass(frozen=True, eq=False)
class LRFDState:
    """State of `LRFDSolver`."""

    X: Array  # first completion (m, n)
    Y: Array  # multipliers (m, n) of its observed entries
    dictionary: Array  # (m, k); one column of zeros before there is one
    basis: Array  # the dictionary in coordinates of its rank, of norm 1 (m, r)
    Z: Array  # coefficients (r, n) of the basis
    J: Array  # exact form: their shrunk copy; penalized form: the Z of the last step
    Y2: Array  # multipliers of the constraint Z = J
    mu: float  # penalty parameter of the constraint
    norm: float = 1.0  # norm of the dictionary
    stage: int = COMPLETION_STAGE
    round: int = 1  # number of the dictionary, from 1
    stage_start: int = 0  # step before the first of the stage
    rank: int = -1  # rank of the matrix; -1 before the first step
    residual: float = 1.0  # ||P(D Z) - M|| / ||M|| in the last step
    # Of the penalized form:
    lam: float = 0.0  # current strength
    final_lam: float = 0.0  # strength that it falls to
    momentum: float = 1.0  # FISTA's t
    objective: float = math.inf


@dataclass(frozen=True)
class LRFDSolver(StepSolver):
    """Solver of LRFD with a given dictionary or one made of a first completion."""

    degree: ClassVar[float] = 1.0
    problem: DenseProblem
    kind: str  # how a dictionary is made of a completed matrix: "columns" or "basis"
    dictionary: Any  # (m, k), to use instead; None if there is none
    rounds: int  # number of dictionaries, each made of the completion with the last
    lam: float | None  # strength of the penalized form; None for the exact one
    rank_tol: float  # see `dictionary_from_completion`
    tol: float  # change below which a stage ends
    #: The `FeasibleCoefficients` of the last dictionary.
    cache: dict[str, Any] = field(default_factory=dict, repr=False)

    def initial_state(self) -> LRFDState:
        """The zero-filled matrix, and no dictionary unless it is given."""
        M = self.problem.M
        zeros, row = 0.0 * M, 0.0 * M[:1]
        mu = 1.0 / self.problem.spectral_norm
        state = LRFDState(M, zeros, zeros[:, :1], zeros[:, :1], row, row, row, mu)
        if self.dictionary is None:
            return state
        given = np.array(self.dictionary, dtype=np.float64)
        with self._compute_context():
            sent = self.problem.compute_device.from_numpy(given)
            return self._with_dictionary(state, sent, 0)

    def _step(self, state: LRFDState, step: int) -> Iterate[Any]:
        """One step of the stage, and a new dictionary if it ends a round."""
        if state.stage == COMPLETION_STAGE:
            done = self._completion_step(state, step)
        elif state.stage == EXACT_STAGE:
            done = self._exact_step(state, step)
        else:
            done = self._penalized_step(state)
        new, may_stop = done.state, done.may_stop
        notes = done.notes | {
            "stage": float(state.stage),
            "round": float(state.round),
            "rank": float(new.rank),
        }
        converged = may_stop and done.change < self.tol
        if state.stage == COMPLETION_STAGE:
            may_stop = False
            if converged or step - state.stage_start >= MAX_COMPLETION_STEPS:
                new = self._next_dictionary(new, step)
        elif converged and state.round < self.rounds:
            may_stop = False
            new = self._next_dictionary(replace(new, round=state.round + 1), step)
        return replace(done, state=new, notes=notes, may_stop=may_stop)

    # --- stages ----------------------------------------------------------------------

    def _completion_step(self, state: LRFDState, step: int) -> Iterate[Any]:
        schedule = ResidualBalancing(state.mu)
        solver = ADMM(self.problem, NuclearNorm(), schedule, gap_tol=self.tol)
        admm = ADMMState(state.X, state.Y, state.mu, state.rank, state.residual)
        done = solver._step(admm, step - state.stage_start)
        new = replace(state, **vars(done.state))  # the fields have the same names
        notes = {name: done.notes[name] for name in ("primal", "dual", "gap", "mu")}
        return replace(done, state=new, notes=notes)

    def _exact_step(self, state: LRFDState, step: int) -> Iterate[Any]:
        """ADMM step with observed entries fixed.

        Below ``tol`` the duality gap, with multipliers made feasible, must be as small
        too.
        """
        problem, feasible = self.problem, self._feasible_set(state.basis)
        mu, Y, Z = state.mu, state.Y2, state.Z
        J, s = shrink_singular_values(Z + Y / mu, 1.0 / mu)
        relaxation = MU_SCHEDULE.relaxation
        J_relaxed = relaxation * J + (1.0 - relaxation) * Z
        new = feasible.project(J_relaxed - Y / mu)
        Y = Y + mu * (new - J_relaxed)
        primal = relative_change(J, new)
        dual = ratio(mu * frobenius_norm(new - Z), frobenius_norm(Y))
        value = float(s.sum())
        lower_bound = float(array_namespace(Y).sum(Y * feasible.min_norm_solution))
        gap = abs(ratio(value - lower_bound, value))
        change = max(primal, dual, gap)
        if change < self.tol:
            lower_bound /= max(1.0, spectral_norm(Y))
            gap = max(0.0, ratio(value - lower_bound, value))
            change = max(change, gap)
        notes = {"primal": primal, "dual": dual, "gap": gap, "mu": mu}
        mu = MU_SCHEDULE.next_mu(mu, step - state.stage_start, primal, dual)
        residual = problem.residual(state.basis @ J)
        may_stop = len(s) > 0 or problem.observed_norm == 0.0
        value /= state.norm
        state = replace(state, Z=new, J=J, Y2=Y, mu=mu, rank=len(s), residual=residual)
        return Iterate(state, value, change, notes, may_stop)

    def _penalized_step(self, state: LRFDState) -> Iterate[Any]:
        """Accelerated step of the penalized form; plain if its value would rise."""
        decays = state.lam > state.final_lam
        lam = max(state.final_lam, LAM_DECAY * state.lam)
        momentum, extrapolation = next_momentum(state.momentum)
        Z, s, residual, value = self._prox_step(state, lam, extrapolation)
        if value > state.objective and not decays and extrapolation > 0.0:
            momentum = 1.0
            Z, s, residual, value = self._prox_step(state, lam, 0.0)
        new = replace(
            state,
            Z=Z,
            J=state.Z,
            lam=lam,
            momentum=momentum,
            objective=value,
            rank=len(s),
            residual=residual,
        )
        notes = {"primal": residual, "dual": math.nan, "gap": math.nan, "mu": 1.0 / lam}
        change = relative_change(Z, state.Z)
        return Iterate(new, value / (lam * state.norm), change, notes, not decays)

    def _prox_step(
        self, state: LRFDState, lam: float, extrapolation: float
    ) -> tuple[Array, Any, float, float]:
        """The next coefficients, their singular values, the residual, the objective."""
        D = state.basis
        W = state.Z + extrapolation * (state.Z - state.J)
        residuals = self.problem.project(D @ W - self.problem.M)
        Z, s = shrink_singular_values(W - D.T @ residuals, lam)
        residual = self.problem.residual(D @ Z)
        value = self.problem.squared_loss(residual) + lam * float(s.sum())
        return Z, s, residual, value

    # --- dictionaries ----------------------------------------------------------------

    def _feasible_set(self, basis: Array) -> FeasibleCoefficients:
        """The feasible coefficients of a dictionary, computed once for each."""
        if self.cache.get("basis") is not basis:
            feasible = FeasibleCoefficients.from_basis(self.problem, basis)
            self.cache.update(basis=basis, feasible=feasible)
        cached: FeasibleCoefficients = self.cache["feasible"]
        return cached

    def _next_dictionary(self, state: LRFDState, step: int) -> LRFDState:
        """Start a round with the dictionary made of the completed matrix."""
        X = self._completed_matrix(state)
        D = dictionary_from_completion(X, self.kind, self.rank_tol)
        new = self._with_dictionary(state, D, step)
        if new.stage != EXACT_STAGE:
            return new
        # Warm start from the completed matrix and its multipliers.
        xp = array_namespace(D)
        squares = _squared_column_norms(new.basis)
        squares = xp.where(squares > 0.0, squares, xp.ones_like(squares))
        Z = self._feasible_set(new.basis).project((new.basis.T @ X) / squares[:, None])
        Y2 = new.basis.T @ state.Y if state.stage == COMPLETION_STAGE else new.Y2
        return replace(new, Z=Z, J=Z, Y2=Y2)

    def _with_dictionary(self, state: LRFDState, D: Array, step: int) -> LRFDState:
        """State before the first step with a dictionary."""
        basis, norm = reduce_dictionary(D)
        state = replace(state, dictionary=D, basis=basis, norm=norm, stage_start=step)
        if self.lam is not None:
            return self._start_penalized(state)
        feasible = self._feasible_set(basis)
        if feasible.relative_misfit > FEASIBILITY_TOL:
            return self._start_penalized(state)
        Z = feasible.min_norm_solution
        mu = 1.0 / (spectral_norm(Z) or 1.0)
        return replace(state, Z=Z, J=Z, Y2=0.0 * Z, mu=mu, stage=EXACT_STAGE)

    def _start_penalized(self, state: LRFDState) -> LRFDState:
        """Start the penalized form: zeros, at the smallest strength that gives them."""
        product = state.basis.T @ self.problem.M
        largest = spectral_norm(product) or 1.0
        if self.lam is None:
            # The penalty of a direction of length s is lam / s for its size in the
            # matrix; the default strength is relative to the geometric mean length.
            squares = self._to_numpy(_squared_column_norms(state.basis))
            length = np.exp(np.log(squares).mean() / 2.0) if squares.all() else 1.0
            final = DEFAULT_LAM_RATIO * largest * float(length)
        else:
            final = self.lam / state.norm
        zeros = 0.0 * product
        return replace(
            state,
            Z=zeros,
            J=zeros,
            Y2=zeros,
            stage=PENALIZED_STAGE,
            lam=max(final, largest),
            final_lam=final,
            momentum=1.0,
            objective=math.inf,
        )

    def _completed_matrix(self, state: LRFDState) -> Array:
        """The completed matrix: ``D Z``, with observed values restored if exact."""
        if state.stage == COMPLETION_STAGE:
            return state.X
        if state.stage == EXACT_STAGE:
            return self.problem.fill_missing(state.basis @ state.J)
        return state.basis @ state.Z

    def finalize(self, last: Iterate[Any]) -> SolverResult:
        """The completed matrix and the dictionary."""
        state: LRFDState = last.state
        penalized = state.stage == PENALIZED_STAGE
        extras = {
            "dictionary_": self._to_numpy(state.dictionary),
            "penalized_": penalized,
            "lam_": state.final_lam * state.norm if penalized else None,
        }
        # Its columns are those of the matrix, unless empty ones were left out.
        is_matrix = self.kind == "columns" and self.dictionary is None
        is_matrix &= state.dictionary.shape[1] == self.problem.shape[1]
        axes = {"dictionary_": ("rows", "columns" if is_matrix else None)}
        X = self._to_numpy(self._completed_matrix(state))
        return SolverResult(X, None, state.residual, max(state.rank, 0), extras, axes)


def _squared_column_norms(A: Array) -> Array:
    return array_namespace(A).sum(A * A, axis=0)


def reduce_dictionary(D: Array) -> tuple[Array, float]:
    """A dictionary in coordinates of its rank with norm 1, and its norm (1 if it is 0).

    The basis (m, r) has orthogonal columns, at least one, and ``D = norm * basis @ W``
    with orthonormal rows of ``W``: the coefficients of ``D`` with minimum nuclear norm
    are ``W^T z / norm`` for coefficients ``z`` of the basis.
    """
    svd = full_svd(D)
    largest = float(svd.s[0])
    if largest == 0.0:
        return 0.0 * D[:, :1], 1.0
    floor = np.finfo(np.float64).eps * max(D.shape)
    s = svd.s[svd.s > floor * largest] / largest
    return svd.U[:, : len(s)] * asarray_like(D, s), largest


def dictionary_from_completion(X: Array, kind: str, rank_tol: float) -> Array:
    """Make a dictionary from a completed matrix.

    With kind "columns" it is the normalized columns of the best approximation of
    numerical rank, with "basis" an orthonormal basis of them. Singular values below
    ``rank_tol`` times the largest do not count for the rank.
    """
    svd = full_svd(X)
    largest = float(svd.s[0])
    if largest == 0.0:
        return 0.0 * X[:, :1]
    s = svd.s[svd.s > rank_tol * largest]
    if kind == "basis":
        return svd.U[:, : len(s)]
    low_rank = svd.reconstruct(s)
    norms = array_namespace(X).linalg.vector_norm(low_rank, axis=0)
    # Columns that are 0 up to rounding cannot be normalized.
    kept = norms > 1e-12 * largest
    return low_rank[:, kept] / norms[kept]


@dataclass(frozen=True, eq=False)
class FeasibleCoefficients:
    """The coefficients that fit the observed entries: an affine set a column."""

    min_norm_solution: Array  # (r, n), least-squares solutions of minimum norm
    projectors: Array  # (n, r, r), onto the row space of the observed basis rows
    relative_misfit: float  # residual of these solutions, relative to the values

    @classmethod
    def from_basis(cls, problem: DenseProblem, basis: Array) -> FeasibleCoefficients:
        """Compute the sets by one small SVD a column."""
        rows: Any = problem.compute_device.to_numpy(basis)
        r, n = rows.shape[1], problem.shape[1]
        size = n * r * r * 8 / 1e9
        if size > MAX_PROJECTOR_GB:
            raise ValueError(
                f"LRFD with a dictionary of rank {r} needs {size:.3g} GB for {n} "
                f"columns, more than {MAX_PROJECTOR_GB:g}; raise rank_tol for a "
                "smaller rank, or set lam"
            )
        entries = problem.observed.to_csr().tocsc()
        solutions, projectors = np.zeros((r, n)), np.zeros((n, r, r))
        squared_misfit = 0.0
        for j in np.flatnonzero(np.diff(entries.indptr)):
            column = slice(int(entries.indptr[j]), int(entries.indptr[j + 1]))
            values = entries.data[column]
            U, s, Vt = full_svd(rows[entries.indices[column]])
            kept = s > OBSERVED_RANK_TOL * s[0]
            U, s, Vt = U[:, kept], s[kept], Vt[kept]
            coordinates = U.T @ values
            solutions[:, j] = Vt.T @ (coordinates / s)
            projectors[j] = Vt.T @ Vt
            squared_misfit += float(np.sum((values - U @ coordinates) ** 2))
        send = problem.compute_device.from_numpy
        misfit = ratio(math.sqrt(squared_misfit), problem.observed_norm)
        return cls(send(solutions), send(projectors), misfit)

    def project(self, Z: Array) -> Array:
        """Project ``Z`` onto the coefficients that fit the observed entries."""
        xp = array_namespace(Z)
        determined = xp.matmul(self.projectors, Z.T[:, :, None])[:, :, 0]
        return Z - determined.T + self.min_norm_solution


@dataclass(frozen=True, eq=False)
class DictionaryLearningState:
    """State of `DictionaryLearningSolver`."""

    X: Array  # completed matrix (m, n)
    Y: Array  # multipliers (m, n), 0 at missing entries
    D: Array  # dictionary (m, k), orthogonal columns
    Z: Array  # coefficients (k, n)
    mu: float  # penalty parameter of the constraint X = D Z
    rank: int = 0  # rank of the dictionary
    residual: float = 1.0  # ||P(D Z) - M|| / ||M|| in the last step


@dataclass(frozen=True)
class DictionaryLearningSolver(StepSolver):
    """Solver of LRFD with a learned dictionary."""

    degree: ClassVar[float] = 2.0 / 3.0
    problem: DenseProblem

    @property
    def initial_mu(self) -> float:
        """Initial ``mu``, in the unit of the values to the power -4/3."""
        return float(INITIAL_MU_FACTOR * self.problem.spectral_norm ** (-4.0 / 3.0))

    def initial_state(self) -> DictionaryLearningState:
        """The best factors of the zero-filled matrix."""
        M = self.problem.M
        with self._compute_context():
            svd = full_svd(M)
        D = svd.U * asarray_like(M, svd.s ** (2.0 / 3.0))
        Z = asarray_like(M, svd.s ** (1.0 / 3.0))[:, None] * svd.Vt
        return DictionaryLearningState(M, 0.0 * M, D, Z, self.initial_mu)

    def _step(self, state: DictionaryLearningState, step: int) -> Iterate[Any]:
        D, mu = state.D, state.mu
        W = state.X + state.Y / mu
        # The columns of D are orthogonal, so D^T D is diagonal.
        Z = (D.T @ W) * (mu / (mu * _squared_column_norms(D) + 1.0))[:, None]
        D, Z, s = self._update_dictionary(D, Z, W, mu)
        DZ = D @ Z
        X, Y = self.problem.admm_update(DZ, state.Y, mu)
        primal = relative_change(DZ, X)
        value = float(s.sum()) + frobenius_norm(Z) ** 2 / 2.0
        change = max(primal, relative_change(X, state.X))
        notes = {"primal": primal, "dual": math.nan, "gap": math.nan, "mu": mu}
        notes |= {"stage": 1.0, "round": 1.0, "rank": float(len(s))}
        mu = min(MU_GROWTH * mu, MAX_MU_GROWTH * self.initial_mu)
        new = DictionaryLearningState(X, Y, D, Z, mu, len(s), self.problem.residual(DZ))
        return Iterate(new, value, change, notes)

    def _update_dictionary(
        self, D: Array, Z: Array, W: Array, mu: float
    ) -> tuple[Array, Array, Any]:
        """The next dictionary, coefficients rotated to it, and its singular values."""
        bound = spectral_norm(Z) ** 2 or 1.0
        svd = svd_above(D - (D @ Z - W) @ Z.T / bound, 1.0 / (mu * bound))
        s = svd.s - 1.0 / (mu * bound)
        if len(s) == 0:  # keep one column of zeros: arrays must not be empty
            return 0.0 * D[:, :1], 0.0 * Z[:1], s
        return svd.U * asarray_like(D, s), svd.Vt @ Z, s

    def finalize(self, last: Iterate[Any]) -> SolverResult:
        """The completed matrix, with the observed values, and the dictionary."""
        state: DictionaryLearningState = last.state
        D = self._to_numpy(state.D)
        extras = {"dictionary_": D, "penalized_": False, "lam_": None}
        X = self._to_numpy(self.problem.fill_missing(state.D @ state.Z))
        axes = {"dictionary_": ("rows", None)}
        return SolverResult(X, None, state.residual, state.rank, extras, axes)
