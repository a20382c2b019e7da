"""What the solvers share: entries on a device, the iteration, and its checkpoints."""

from __future__ import annotations

import math
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Protocol

import numpy as np
from array_api_compat import array_namespace
from scipy.sparse import csr_array

from ncarl.core.svd import frobenius_norm, spectral_norm, svd_above
from ncarl.core.types import Array, cached_property
from ncarl.engines.base import Device
from ncarl.fitting.checkpoint import CheckpointContents, CheckpointFile, check_array
from ncarl.fitting.loop import FitResult, Iterate, Observer, drive
from ncarl.observations import Observations

#: A solver counts as converged at one regularization strength once its
#: `scaled_step_norm` is below this: the strength is then lowered, or the trial ends.
CONTINUATION_TOL = 1e-2
#: Factor by which a strength is lowered. A faster decay admits directions that a
#: converged matrix does not need, and nonconvex penalties never drop them.
LAM_DECAY = 0.7
#: From this density on a whole product is computed faster than its sampled entries.
DENSE_PRODUCT_DENSITY = 0.03
#: From this density on, and up to this many entries, a zero-filled dense matrix
#: multiplies faster than a sparse one.
DENSE_MATRIX_DENSITY, MAX_DENSE_ENTRIES = 0.1, 4_000_000
#: Factors in the states of solvers, whose rank changes.
FACTORS = ("A", "B", "D", "J", "U", "V", "Vt", "Y2", "Z", "basis", "dictionary", "s")
#: Numbers of a product, or of gathered factors, that are in memory at a time.
CHUNK_SIZE = 8_000_000


@dataclass(frozen=True, eq=False)
class DeviceEntries:
    """Observed entries of a matrix to complete, and the device of the solver."""

    observed: Observations  # in host memory
    compute_device: Device

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.observed.shape

    @property
    def density(self) -> float:
        """Fraction of the entries that is observed."""
        m, n = self.shape
        return self.observed.n_observed / (m * n)

    @cached_property
    def observed_norm(self) -> float:
        """Euclidean norm of the observed values."""
        return frobenius_norm(self.observed.values)

    @cached_property
    def spectral_norm(self) -> float:
        """Largest singular value of the zero-filled matrix; 1 if it is 0."""
        return spectral_norm(self.observed.to_csr()) or 1.0

    @cached_property
    def rms(self) -> float:
        """Root mean square of the observed values; 1 if they are 0."""
        return self.observed_norm / math.sqrt(self.observed.n_observed) or 1.0


@dataclass(frozen=True, eq=False)
class DenseProblem(DeviceEntries):
    """A matrix to complete, as dense arrays on a device."""

    M: Array  # (m, n), the observed values, 0 at missing entries
    mask: Array  # (m, n), True at observed entries

    @classmethod
    def from_observations(cls, observed: Observations, device: Device) -> DenseProblem:
        """Scatter observed entries into dense arrays on a device."""
        M = np.zeros(observed.shape)
        mask = np.zeros(observed.shape, dtype=bool)
        M[observed.rows, observed.indices] = observed.values
        mask[observed.rows, observed.indices] = True
        return cls(observed, device, device.from_numpy(M), device.from_numpy(mask))

    def project(self, X: Array) -> Array:
        """``P(X)``: ``X`` with 0 at missing entries."""
        xp = array_namespace(X)
        return xp.where(self.mask, X, xp.zeros_like(X))

    def fill_missing(self, X: Array) -> Array:
        """Observed values, and the values of ``X`` at missing entries."""
        return array_namespace(X).where(self.mask, self.M, X)

    def residual(self, X: Array) -> float:
        """``||P(X - M)|| / ||M||``; 0 if both are 0."""
        return ratio(frobenius_norm(self.project(X - self.M)), self.observed_norm)

    def squared_loss(self, residual: float) -> float:
        """``1/2 ||P(X - M)||^2`` for the `residual` of ``X``."""
        return (residual * self.observed_norm) ** 2 / 2.0

    def admm_update(self, Z: Array, Y: Array, mu: float) -> tuple[Array, Array]:
        """The X and Y of an ADMM step for ``X = Z`` with observed entries fixed."""
        X = self.fill_missing(Z - Y / mu)
        return X, Y + mu * (X - Z)


@dataclass(frozen=True, eq=False)
class SparseEntries(DeviceEntries):
    """Sparse observed entries on a device.

    Solvers that keep the completed matrix as a product of factors need only sampled
    products (SDDMM) and products of a sparse matrix with a thin one.
    """

    @cached_property
    def values(self) -> Array:
        """The observed values on the device."""
        return self.compute_device.from_numpy(self.observed.values)

    @cached_property
    def nonempty_masks(self) -> tuple[Array, Array]:
        """Masks of the rows and of the columns with observed entries."""
        return self.observed.row_counts > 0, self.observed.column_counts > 0

    @cached_property
    def _torch_entries(self) -> _TorchEntries | None:
        """The sparsity pattern as tensors; None in host memory."""
        if isinstance(self.values, np.ndarray):
            return None
        return _TorchEntries(self.observed, self.values)

    @cached_property
    def _flat_indices(self) -> Array:
        """Positions of the entries in the flattened matrix."""
        return self.observed.rows * self.shape[1] + self.observed.indices

    def residuals(self, A: Array, B: Array) -> Array:
        """Observed values minus those of ``A @ B``."""
        return self.values - self.sampled_product(A, B)

    def sampled_product(self, A: Array, B: Array) -> Array:
        """``A @ B`` at the observed entries."""
        if self._torch_entries:
            return self._torch_entries.sampled_product(A, B)
        if self.density < DENSE_PRODUCT_DENSITY:
            return _gather_sampled_product(self.observed, A, B)
        o, (m, n) = self.observed, self.shape
        out = np.empty(o.n_observed)
        step = max(1, CHUNK_SIZE // max(1, n))
        for first in range(0, m, step):
            last = min(m, first + step)
            part = slice(int(o.indptr[first]), int(o.indptr[last]))
            block = (A[first:last] @ B).ravel()
            block.take(self._flat_indices[part] - first * n, out=out[part])
        return out

    def sparse_matmul(self, values: Array, V: Array) -> Array:
        """The sparse matrix with these values, times ``V``."""
        if self._torch_entries:
            return self._torch_entries.matrix(values) @ V
        return self._matrix(values) @ V

    def sparse_rmatmul(self, values: Array, U: Array) -> Array:
        """The transposed sparse matrix with these values, times ``U``."""
        if self._torch_entries:
            return self._torch_entries.transposed_matrix(values) @ U
        return self._matrix(values).T @ U

    def _matrix(self, values: Array) -> Any:
        """The matrix with these values: sparse, or dense where that is faster."""
        o, (m, n) = self.observed, self.shape
        if self.density < DENSE_MATRIX_DENSITY or m * n > MAX_DENSE_ENTRIES:
            return csr_array((values, o.indices, o.indptr), shape=self.shape)
        full = np.zeros(m * n)
        full[self._flat_indices] = values
        return full.reshape(m, n)


def _gather_sampled_product(o: Observations, A: Array, B: Array) -> Array:
    """``A @ B`` at the observed entries, gathered in chunks."""
    rows, Bt = o.rows, np.ascontiguousarray(B.T)
    out = np.empty(o.n_observed)
    step = max(1, CHUNK_SIZE // max(1, A.shape[1]))
    for first in range(0, o.n_observed, step):
        part = slice(first, first + step)
        out[part] = np.einsum("ek,ek->e", A[rows[part]], Bt[o.indices[part]])
    return out


class _TorchEntries:
    """The sparsity pattern of `SparseEntries` as tensors."""

    def __init__(self, observed: Observations, values: Any) -> None:
        import torch

        def send(array: Any) -> Any:
            return torch.tensor(array, device=values.device)

        self.torch, self.shape = torch, observed.shape
        transposed = observed.with_values(np.arange(observed.n_observed)).transpose()
        self.rows, self.transpose_order = send(observed.rows), send(transposed.values)
        self.pattern, self.transposed_pattern = (
            (send(o.indptr), send(o.indices).long()) for o in (observed, transposed)
        )

    def sampled_product(self, A: Any, B: Any) -> Any:
        Bt, size = B.T.contiguous(), CHUNK_SIZE // max(1, A.shape[1]) + 1
        parts = zip(self.rows.split(size), self.pattern[1].split(size), strict=True)
        return self.torch.cat([(A[i] * Bt[j]).sum(1) for i, j in parts])

    def matrix(self, values: Any) -> Any:
        return self._csr(self.pattern, values, self.shape)

    def transposed_matrix(self, values: Any) -> Any:
        values = values[self.transpose_order]
        return self._csr(self.transposed_pattern, values, self.shape[::-1])

    def _csr(self, pattern: Any, values: Any, shape: Any) -> Any:
        with warnings.catch_warnings():  # torch calls its CSR tensors a prototype
            warnings.simplefilter("ignore", UserWarning)
            return self.torch.sparse_csr_tensor(*pattern, values, size=shape)


@dataclass(frozen=True)
class SolverResult:
    """Result of a solver, as NumPy arrays."""

    X: Array | None  # the completed matrix (m, n); None if there are factors
    factors: tuple[Array, Array] | None  # A (m, d), B (d, n), the matrix is A B
    residual: float  # ||P(X - M)|| / ||M|| before observed values were restored
    rank: int  # of the completed matrix before that
    extras: dict[str, Any] = field(default_factory=dict)  # fitted attributes by name
    #: Whether the axes of an extra array are the rows, the columns, or neither (None).
    axes: Mapping[str, tuple[str | None, ...]] = field(default_factory=dict)

    def reorder(self, rows: Array, columns: Array) -> SolverResult:
        """The result for the matrix with its rows and columns in other orders."""
        orders = {"rows": rows, "columns": columns}
        extras = dict(self.extras)
        for name, axes in self.axes.items():
            for axis, kind in enumerate(axes):
                if kind is not None:
                    index = (slice(None),) * axis + (orders[kind],)
                    extras[name] = extras[name][index]
        X, factors = self.X, self.factors
        return replace(
            self,
            X=None if X is None else X[np.ix_(rows, columns)],
            factors=factors and (factors[0][rows], factors[1][:, columns]),
            extras=extras,
        )


class Solver(Protocol):
    """An endless iteration; `ncarl.fitting.loop.drive` decides when it stops."""

    @property
    def degree(self) -> float:
        """Degree of homogeneity of the objective, which gives its units."""

    def initial_state(self) -> Any:
        """State before the first step: a dataclass of arrays and numbers."""

    def steps(self, state: Any, step: int) -> Iterator[Iterate[Any]]:
        """Yield the steps that follow ``state``, which is that after ``step`` steps."""

    def finalize(self, last: Iterate[Any]) -> SolverResult:
        """Completed matrix from the last step."""


class StepSolver(ABC):
    """Base of the solvers, which define a single step.

    Subclasses are frozen dataclasses with a field ``problem``.
    """

    problem: Any  # DenseProblem or SparseEntries

    @abstractmethod
    def _step(self, state: Any, step: int) -> Iterate[Any]:
        """The step with this number, from the state of the one before."""

    def _compute_context(self) -> Any:
        device, shape = self.problem.compute_device, self.problem.shape
        return device.compute_context(min(shape))

    def steps(self, state: Any, step: int) -> Iterator[Iterate[Any]]:
        """Yield the steps that follow ``state``, which is that after ``step`` steps."""
        start = time.perf_counter()
        while True:
            step += 1
            with self._compute_context():
                done = self._step(state, step)
            end = time.perf_counter()
            yield replace(done, step=step, seconds={"step": end - start})
            state, start = done.state, end

    def _to_numpy(self, array: Array) -> Any:
        return self.problem.compute_device.to_numpy(array)


def ratio(part: float, whole: float) -> float:
    """``part / whole``; infinite if only ``whole`` is 0, and 0 if both are."""
    if whole > 0.0:
        return part / whole
    return 0.0 if part == 0.0 else math.inf


def relative_change(new: Array, old: Array) -> float:
    """``||new - old|| / ||new||``; 0 if both are 0."""
    return ratio(frobenius_norm(new - old), frobenius_norm(new))


def shrink_singular_values(W: Array, tau: float) -> tuple[Array, Any]:
    """Soft-threshold the singular values of W; the matrix and the new values."""
    svd = svd_above(W, tau)
    s = svd.s - tau
    return svd.reconstruct(s), s


def group_soft_threshold(A: Array, threshold: float) -> Array:
    """Shorten each column by ``threshold``, at most to 0.

    The proximal operator of ``threshold`` times the sum of the norms of the columns.
    """
    xp = array_namespace(A)
    norms = xp.linalg.vector_norm(A, axis=0)
    kept = norms > threshold
    safe = xp.where(kept, norms, xp.ones_like(norms))
    return A * xp.where(kept, 1.0 - threshold / safe, xp.zeros_like(norms))


def scaled_step_norm(step_norm: float, threshold: float, rank: int) -> float:
    """Norm of a step relative to the smallest matrix of this rank above a threshold.

    With a weak penalty steps get short long before the iteration has converged;
    relative to the threshold of the penalty they do not.
    """
    return ratio(step_norm, threshold * math.sqrt(max(rank, 1)))


def next_strength(state: Any, final: float) -> tuple[float, bool]:
    """Strength of the next step of a continuation, and whether it was lowered.

    It falls towards the final one each time that the state has converged.
    """
    lowered = state.converged_at_lam and state.lam > final
    return (max(final, LAM_DECAY * state.lam) if lowered else state.lam), lowered


def next_momentum(t: float) -> tuple[float, float]:
    """FISTA's next ``t``, and the extrapolation factor of the step that it follows."""
    following = (1.0 + math.sqrt(1.0 + 4.0 * t**2)) / 2.0
    return following, (t - 1.0) / following


def run_solver(
    solver: Solver,
    *,
    max_iter: int,
    tol: float,  # stop once ``change < tol``; 0 runs all steps
    scale: float = 1.0,  # converts the objective to the user's units
    observers: Sequence[Observer] = (),
    checkpoint: CheckpointFile | None = None,
    device: Device | None = None,  # of the state; needed for a checkpoint
    # Results of a search before the run, which the checkpoint keeps too.
    search_state: Mapping[str, Any] | None = None,
    state: Any = None,  # to start from instead of the solver's initial one
) -> FitResult[Any]:
    """Run a solver until it converges, from its checkpoint if there is one."""
    initial = solver.initial_state() if state is None else state

    def start(last: Iterate[Any] | None) -> Iterator[Iterate[Any]]:
        if last is None:
            return solver.steps(initial, 0)
        return solver.steps(last.state, last.step)

    def pack(state: Any) -> CheckpointContents:
        assert device is not None
        numbers, arrays = {}, {}
        for item in fields(state):
            value = getattr(state, item.name)
            if hasattr(value, "shape") and len(value.shape):
                arrays[item.name] = np.asarray(device.to_numpy(value))
            else:
                numbers[item.name] = value
        return {"numbers": numbers, "search_state": dict(search_state or {})}, arrays

    def unpack(header: Mapping[str, Any], arrays: Mapping[str, Array]) -> Any:
        assert device is not None
        # The memory layout must be kept: products in another layout round differently.
        sent = {name: device.from_numpy(array) for name, array in arrays.items()}
        state = type(initial)(**header["numbers"], **sent)
        for name, start in vars(initial).items():
            # The rank of factors changes, and numbers have any size.
            if np.ndim(start) > 0 and name not in FACTORS:
                dtype = "int64" if name == "labels" else "float64"
                check_array(name, arrays[name], tuple(start.shape), dtype)
        # Raises if the factors do not belong together.
        solver.finalize(Iterate(state, objective=0.0, change=0.0))
        return state

    return drive(
        start,
        max_iter=max_iter,
        tol=tol,
        observers=observers,
        scale=scale,
        checkpoint=checkpoint,
        pack=pack,
        unpack=unpack,
    )
