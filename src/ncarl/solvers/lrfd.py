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
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

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
from ncarl.solvers.admm import (
    ADMM,
    ADMMState,
    ResidualBalancing,
)
from ncarl.solvers.base import (
    DenseProblem,
    SolverResult,
    SolverStep,
    Timer,
    iterate_steps,
    ratio,
    relative_change,
)
from ncarl.solvers.penalties import NuclearNorm

#: Maximum number of steps of the first completion.
MAX_COMPLETION_STEPS = 500
#: Relative misfit of the observed values up to which a dictionary counts as feasible:
#: the error of a dictionary from a completion that was stopped early.
FEASIBILITY_TOL = 1e-4
#: Default strength of the penalized form, relative to the smallest that gives 0.
DEFAULT_LAM_RATIO = 1e-4
#: Factor by which the strength of the penalized form falls in each step.
LAM_DECAY = 0.7
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


class LRFDStep(NamedTuple):
    """Result of a step of one stage."""

    state: LRFDState
    value: float
    change: float
    notes: dict[str, float]
    may_stop: bool


@dataclass(frozen=True)
class LRFDSolver:
    """Solver of LRFD with a given dictionary or one made of a first completion.

    Attributes
    ----------
    problem : DenseProblem
        The matrix to complete.
    kind : {"columns", "basis"}
        How a dictionary is made of a completed matrix.
    dictionary : array of shape (m, k), optional
        A dictionary to use instead.
    rounds : int
        Number of dictionaries, each made of the completion with the one before.
    lam : float, optional
        Strength of the penalized form; None for the exact one.
    rank_tol : float
        See `dictionary_from_completion`.
    tol : float
        Change below which a stage ends.
    cache : dict
        The `FeasibleCoefficients` of the last dictionary.
    """

    problem: DenseProblem
    kind: str
    dictionary: Any
    rounds: int
    lam: float | None
    rank_tol: float
    tol: float
    degree: float = 1.0
    cache: dict[str, Any] = field(default_factory=dict, repr=False)

    @cached_property
    def completion_solver(self) -> ADMM:
        """Solver of the first stage."""
        schedule = ResidualBalancing(1.0 / self.problem.spectral_norm)
        return ADMM(self.problem, NuclearNorm(), schedule, gap_tol=self.tol)

    def initial_state(self) -> LRFDState:
        """The zero-filled matrix, and no dictionary unless it is given."""
        M = self.problem.M
        zeros, row = 0.0 * M, 0.0 * M[:1]
        mu = 1.0 / self.problem.spectral_norm
        state = LRFDState(M, zeros, zeros[:, :1], zeros[:, :1], row, row, row, mu)
        if self.dictionary is None:
            return state
        with self.problem.compute_device.compute_context(min(self.problem.shape)):
            given = self.problem.compute_device.from_numpy(
                np.array(self.dictionary, dtype=np.float64)
            )
            return self._with_dictionary(state, given, 0)

    def steps(self, state: LRFDState, step: int) -> Iterator[SolverStep]:
        """Yield the steps of all stages from ``state`` on."""
        return iterate_steps(self._step, state, step, self.problem)

    def _step(self, state: LRFDState, step: int, timer: Timer) -> SolverStep:
        """One step of the stage, and a new dictionary if it ends a round."""
        if state.stage == COMPLETION_STAGE:
            done = self._completion_step(state, step)
        elif state.stage == EXACT_STAGE:
            feasible = self._feasible_set(state.basis)
            done = exact_step(self.problem, feasible, state, step, self.tol)
        else:
            done = penalized_step(self.problem, state)
        new, value, change, notes, may_stop = done
        notes = notes | {
            "stage": float(state.stage),
            "round": float(state.round),
            "rank": float(new.rank),
        }
        converged = may_stop and change < self.tol
        if state.stage == COMPLETION_STAGE:
            may_stop = False
            if converged or step - state.stage_start >= MAX_COMPLETION_STEPS:
                new = self._next_dictionary(new, step)
        elif converged and state.round < self.rounds:
            may_stop = False
            new = self._next_dictionary(replace(new, round=state.round + 1), step)
        return SolverStep(step, new, value, change, notes, timer.lap(), may_stop)

    def _completion_step(self, state: LRFDState, step: int) -> LRFDStep:
        """A step of the nuclear norm completion."""
        admm = ADMMState(state.X, state.Y, state.mu, state.rank, state.residual)
        done = self.completion_solver._step(admm, step - state.stage_start, Timer())
        admm = done.state
        new = replace(
            state,
            X=admm.X,
            Y=admm.Y,
            mu=admm.mu,
            rank=admm.rank,
            residual=admm.residual,
        )
        notes = {name: done.notes[name] for name in ("primal", "dual", "gap", "mu")}
        return LRFDStep(new, done.objective, done.change, notes, done.may_stop)

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
        squares = xp.sum(new.basis * new.basis, axis=0)
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
        xp = array_namespace(state.basis)
        product = state.basis.T @ self.problem.M
        largest = spectral_norm(product) or 1.0
        if self.lam is None:
            # The penalty of a direction of length s is lam / s for its size in the
            # matrix; the default strength is relative to the average direction.
            squares = xp.sum(state.basis * state.basis, axis=0)
            length = _geometric_mean_length(
                self.problem.compute_device.to_numpy(squares)
            )
            final = DEFAULT_LAM_RATIO * largest * length
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

    def finalize(self, last: SolverStep) -> SolverResult:
        """The completed matrix and the dictionary."""
        state: LRFDState = last.state
        penalized = state.stage == PENALIZED_STAGE
        fetch = self.problem.compute_device.to_numpy
        extras = {
            "dictionary_": fetch(state.dictionary),
            "penalized_": penalized,
            "lam_": state.final_lam * state.norm if penalized else None,
        }
        X = fetch(self._completed_matrix(state))
        return SolverResult(X, None, state.residual, max(state.rank, 0), extras)


def _geometric_mean_length(squares: Any) -> float:
    """Geometric mean of lengths, given their squares; 1 if one of them is 0."""
    return float(np.exp(np.log(squares).mean() / 2.0)) if squares.all() else 1.0


def exact_step(
    problem: DenseProblem,
    feasible: FeasibleCoefficients,
    state: LRFDState,
    step: int,
    tol: float,
) -> LRFDStep:
    """ADMM step with observed entries fixed.

    Below ``tol`` the duality gap, with multipliers made feasible, must be as small too.
    """
    mu, Y, Z = state.mu, state.Y2, state.Z
    J, s = _shrink_singular_values(Z + Y / mu, 1.0 / mu)
    relaxation = MU_SCHEDULE.relaxation
    J_relaxed = relaxation * J + (1.0 - relaxation) * Z
    new = feasible.project(J_relaxed - Y / mu)
    Y = Y + mu * (new - J_relaxed)
    primal = relative_change(J, new)
    dual = ratio(mu * frobenius_norm(new - Z), frobenius_norm(Y))
    xp = array_namespace(Y)
    value = float(s.sum())
    lower_bound = float(xp.sum(Y * feasible.min_norm_solution))
    gap = abs(ratio(value - lower_bound, value))
    change = max(primal, dual, gap)
    if change < tol:
        lower_bound /= max(1.0, spectral_norm(Y))
        gap = max(0.0, ratio(value - lower_bound, value))
        change = max(change, gap)
    notes = {"primal": primal, "dual": dual, "gap": gap, "mu": mu}
    mu = MU_SCHEDULE.next_mu(mu, step - state.stage_start, primal, dual)
    residual = problem.residual(state.basis @ J)
    may_stop = len(s) > 0 or problem.observed_norm == 0.0
    value /= state.norm
    state = replace(state, Z=new, J=J, Y2=Y, mu=mu, rank=len(s), residual=residual)
    return LRFDStep(state, value, change, notes, may_stop)


def penalized_step(problem: DenseProblem, state: LRFDState) -> LRFDStep:
    """Accelerated step of the penalized form, repeated plainly if its value rose."""
    decays = state.lam > state.final_lam
    lam = max(state.final_lam, LAM_DECAY * state.lam)
    momentum = (1.0 + math.sqrt(1.0 + 4.0 * state.momentum**2)) / 2.0
    extrapolation = (state.momentum - 1.0) / momentum
    Z, s, residual = _prox_gradient_step(problem, state, lam, extrapolation)
    value = _penalized_objective(problem, s, residual, lam)
    if value > state.objective and not decays and extrapolation > 0.0:
        momentum = 1.0
        Z, s, residual = _prox_gradient_step(problem, state, lam, 0.0)
        value = _penalized_objective(problem, s, residual, lam)
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
    return LRFDStep(new, value / (lam * state.norm), change, notes, not decays)


def _prox_gradient_step(
    problem: DenseProblem, state: LRFDState, lam: float, extrapolation: float
) -> tuple[Array, Any, float]:
    """The next coefficients, their singular values and the residual."""
    D = state.basis
    xp = array_namespace(D)
    W = state.Z + extrapolation * (state.Z - state.J)
    residuals = D @ W - problem.M
    residuals = xp.where(problem.mask, residuals, xp.zeros_like(residuals))
    Z, s = _shrink_singular_values(W - D.T @ residuals, lam)
    return Z, s, problem.residual(D @ Z)


def _penalized_objective(
    problem: DenseProblem, s: Any, residual: float, lam: float
) -> float:
    return (residual * problem.observed_norm) ** 2 / 2.0 + lam * float(s.sum())


def _shrink_singular_values(W: Array, tau: float) -> tuple[Array, Any]:
    """Soft-threshold the singular values of W; the matrix and the new values."""
    svd = svd_above(W, tau)
    s = svd.s - tau
    return svd.reconstruct(s), s


class ReducedDictionary(NamedTuple):
    """A dictionary in coordinates of its rank, with spectral norm 1.

    ``D = norm * basis @ W`` with orthonormal rows of ``W``: the coefficients of ``D``
    with minimum nuclear norm are ``Z = W^T z / norm`` for coefficients ``z`` of
    ``basis``.
    """

    basis: Array  # (m, r), orthogonal columns, the longest of norm 1
    norm: float  # largest singular value of the dictionary; 1 if that is 0


def reduce_dictionary(D: Array) -> ReducedDictionary:
    """Reduce a dictionary to as many columns as its rank, at least one."""
    svd = full_svd(D)
    largest = float(svd.s[0])
    if largest == 0.0:
        return ReducedDictionary(0.0 * D[:, :1], 1.0)
    floor = np.finfo(np.float64).eps * max(D.shape)
    s = svd.s[svd.s > floor * largest] / largest
    return ReducedDictionary(svd.U[:, : len(s)] * asarray_like(D, s), largest)


def dictionary_from_completion(X: Array, kind: str, rank_tol: float) -> Array:
    """Make a dictionary from a completed matrix.

    Parameters
    ----------
    X : array of shape (m, n)
        The completed matrix.
    kind : {"columns", "basis"}
        Normalized columns of its best approximation of numerical rank, or an
        orthonormal basis of them.
    rank_tol : float
        Singular values below this fraction of the largest do not count for the rank.
    """
    svd = full_svd(X)
    largest = float(svd.s[0])
    if largest == 0.0:
        return 0.0 * X[:, :1]
    s = svd.s[svd.s > rank_tol * largest]
    if kind == "basis":
        return svd.U[:, : len(s)]
    low_rank = svd.reconstruct(s)
    xp = array_namespace(X)
    norms = xp.linalg.vector_norm(low_rank, axis=0)
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
        _check_projector_memory(n, r)
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


def _check_projector_memory(n: int, r: int) -> None:
    """Raise if the projectors of all columns are too large."""
    size = n * r * r * 8 / 1e9
    if size > MAX_PROJECTOR_GB:
        raise ValueError(
            f"LRFD with a dictionary of rank {r} needs {size:.3g} GB for {n} columns, "
            f"more than {MAX_PROJECTOR_GB:g}; raise rank_tol for a smaller rank, or "
            "set lam"
        )


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
class DictionaryLearningSolver:
    """Solver of LRFD with a learned dictionary.

    Attributes
    ----------
    problem : DenseProblem
        The matrix to complete.
    """

    problem: DenseProblem
    degree: float = 2.0 / 3.0

    @property
    def initial_mu(self) -> float:
        """Initial ``mu``, in the unit of the values to the power -4/3."""
        return float(INITIAL_MU_FACTOR * self.problem.spectral_norm ** (-4.0 / 3.0))

    def initial_state(self) -> DictionaryLearningState:
        """The best factors of the zero-filled matrix."""
        M = self.problem.M
        with self.problem.compute_device.compute_context(min(self.problem.shape)):
            svd = full_svd(M)
        D = svd.U * asarray_like(M, svd.s ** (2.0 / 3.0))
        Z = asarray_like(M, svd.s ** (1.0 / 3.0))[:, None] * svd.Vt
        return DictionaryLearningState(M, 0.0 * M, D, Z, self.initial_mu)

    def steps(self, state: DictionaryLearningState, step: int) -> Iterator[SolverStep]:
        """Yield the steps from ``state`` on."""
        return iterate_steps(self._step, state, step, self.problem)

    def _step(
        self, state: DictionaryLearningState, step: int, timer: Timer
    ) -> SolverStep:
        D, mu, Y = state.D, state.mu, state.Y
        xp = array_namespace(D)
        W = state.X + Y / mu
        # The columns of D are orthogonal, so D^T D is diagonal.
        squares = xp.sum(D * D, axis=0)
        Z = (D.T @ W) * (mu / (mu * squares + 1.0))[:, None]
        D, Z, s = self._update_dictionary(D, Z, W, mu)
        DZ = D @ Z
        X = self.problem.fill_missing(DZ - Y / mu)
        primal = relative_change(DZ, X)
        value = float(s.sum()) + frobenius_norm(Z) ** 2 / 2.0
        change = max(primal, ratio(frobenius_norm(X - state.X), frobenius_norm(X)))
        notes = {
            "primal": primal,
            "dual": math.nan,
            "gap": math.nan,
            "mu": mu,
            "stage": 1.0,
            "round": 1.0,
            "rank": float(len(s)),
        }
        new = DictionaryLearningState(
            X,
            Y + mu * (X - DZ),
            D,
            Z,
            min(MU_GROWTH * mu, MAX_MU_GROWTH * self.initial_mu),
            len(s),
            self.problem.residual(DZ),
        )
        return SolverStep(step, new, value, change, notes, timer.lap())

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

    def finalize(self, last: SolverStep) -> SolverResult:
        """The completed matrix, with the observed values, and the dictionary."""
        state: DictionaryLearningState = last.state
        fetch = self.problem.compute_device.to_numpy
        extras = {
            "dictionary_": fetch(state.D),
            "penalized_": False,
            "lam_": None,
        }
        X = fetch(self.problem.fill_missing(state.D @ state.Z))
        return SolverResult(X, None, state.residual, state.rank, extras)
