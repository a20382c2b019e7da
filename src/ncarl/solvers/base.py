"""Problem, step and result types of the solvers, and the function that runs them."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from array_api_compat import array_namespace
from scipy.sparse import csr_array

from ncarl.core.svd import frobenius_norm, spectral_norm
from ncarl.core.types import Array
from ncarl.engines.base import Device
from ncarl.fitting.checkpoint import CheckpointContents, CheckpointFile
from ncarl.fitting.loop import FitResult, History, Iterate, drive
from ncarl.observations import Observations

#: A solver counts as converged at one regularization strength once its
#: `scaled_step_norm` is below this: the strength is then lowered, or the trial ends.
CONTINUATION_TOL = 1e-2
#: From this density on a whole product is computed faster than its sampled entries.
DENSE_PRODUCT_DENSITY = 0.03
#: From this density on, and up to this many entries, a zero-filled dense matrix
#: multiplies faster than a sparse one.
DENSE_MATRIX_DENSITY, MAX_DENSE_ENTRIES = 0.1, 4_000_000
#: Numbers of a product, or of gathered factors, that are in memory at a time.
CHUNK_SIZE = 8_000_000


@dataclass(frozen=True, eq=False)
class DenseProblem:
    """A matrix to complete, as dense arrays on a device.

    Attributes
    ----------
    M : array of shape (m, n)
        The observed values, 0 at missing entries.
    mask : array of bool, shape (m, n)
        True at observed entries.
    observed : Observations
        The observed entries in host memory.
    compute_device : Device
        Device of the arrays.
    """

    M: Array
    mask: Array
    observed: Observations
    compute_device: Device

    @classmethod
    def from_observations(cls, observed: Observations, device: Device) -> DenseProblem:
        """Scatter observed entries into dense arrays on a device."""
        M = np.zeros(observed.shape)
        mask = np.zeros(observed.shape, dtype=bool)
        M[observed.rows, observed.indices] = observed.values
        mask[observed.rows, observed.indices] = True
        return cls(device.from_numpy(M), device.from_numpy(mask), observed, device)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.observed.shape

    @cached_property
    def observed_norm(self) -> float:
        """Frobenius norm of the observed values."""
        return frobenius_norm(self.observed.values)

    @cached_property
    def spectral_norm(self) -> float:
        """Largest singular value of the zero-filled matrix; 1 if it is 0."""
        return spectral_norm(self.observed.to_csr()) or 1.0

    @cached_property
    def rms(self) -> float:
        """Root mean square of the observed values; 1 if they are 0."""
        return self.observed_norm / math.sqrt(self.observed.n_observed) or 1.0

    @property
    def density(self) -> float:
        """Fraction of the entries that is observed."""
        m, n = self.shape
        return self.observed.n_observed / (m * n)

    def fill_missing(self, X: Array) -> Array:
        """Observed values, and the values of ``X`` at missing entries."""
        return array_namespace(X).where(self.mask, self.M, X)

    def residual(self, X: Array) -> float:
        """``||P(X - M)|| / ||M||``; 0 if both are 0."""
        xp = array_namespace(X)
        return ratio(frobenius_norm(xp.where(self.mask, X - self.M, xp.zeros_like(X))),
                     self.observed_norm)  # fmt: skip


@dataclass(frozen=True, eq=False)
class SparseEntries:
    """Sparse observed entries on a device.

    Solvers that keep the completed matrix as a product of factors need only sampled
    products (SDDMM) and products of a sparse matrix with a thin one.

    Attributes
    ----------
    observed : Observations
        The observed entries in host memory.
    compute_device : Device
        Device of the arrays.
    """

    observed: Observations
    compute_device: Device

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.observed.shape

    @cached_property
    def values(self) -> Array:
        """The observed values on the device."""
        return self.compute_device.from_numpy(self.observed.values)

    @cached_property
    def nonempty_masks(self) -> tuple[Array, Array]:
        """Masks of the rows and of the columns with observed entries."""
        return self.observed.row_counts > 0, self.observed.column_counts > 0

    @cached_property
    def observed_norm(self) -> float:
        """Euclidean norm of the observed values."""
        return frobenius_norm(self.observed.values)

    @cached_property
    def spectral_norm(self) -> float:
        """Largest singular value of the zero-filled matrix; 1 if it is 0."""
        return spectral_norm(self.observed.to_csr()) or 1.0

    @cached_property
    def _torch_entries(self) -> Any:
        """The sparsity pattern as tensors, if the device is not host memory."""
        return _TorchEntries(self.observed, self.values)

    @cached_property
    def _is_torch(self) -> bool:
        return not isinstance(self.values, np.ndarray)

    @cached_property
    def _flat_indices(self) -> Array:
        """Positions of the entries in the flattened matrix."""
        return self.observed.rows * self.shape[1] + self.observed.indices

    def sampled_product(self, A: Array, B: Array) -> Array:
        """``A @ B`` at the observed entries."""
        if self._is_torch:
            return self._torch_entries.sampled_product(A, B)
        o, (m, n) = self.observed, self.shape
        if o.n_observed < DENSE_PRODUCT_DENSITY * m * n:
            return _gather_sampled_product(o, A, B)
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
        if self._is_torch:
            return self._torch_entries.sparse_matmul(values, V)
        return self._matrix(values) @ V

    def sparse_rmatmul(self, values: Array, U: Array) -> Array:
        """The transposed sparse matrix with these values, times ``U``."""
        if self._is_torch:
            return self._torch_entries.sparse_rmatmul(values, U)
        return self._matrix(values).T @ U

    def _matrix(self, values: Array) -> Any:
        """The matrix with these values: sparse, or dense where that is faster."""
        o, (m, n) = self.observed, self.shape
        if o.n_observed < DENSE_MATRIX_DENSITY * m * n or m * n > MAX_DENSE_ENTRIES:
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
    """The products of `SparseEntries` on tensors."""

    def __init__(self, observed: Observations, values: Any) -> None:
        import torch

        def send(array: Any) -> Any:
            return torch.tensor(array, device=values.device)

        self.torch, self.shape = torch, observed.shape
        self.rows, self.indices = send(observed.rows), send(observed.indices).long()
        self.indptr = send(observed.indptr)
        transposed = observed.with_values(np.arange(observed.n_observed)).transpose()
        self.transpose_order = send(transposed.values)
        self.transposed_indptr = send(transposed.indptr)
        self.transposed_indices = send(transposed.indices).long()

    def sampled_product(self, A: Any, B: Any) -> Any:
        """``A @ B`` at the observed entries."""
        Bt, width = B.T.contiguous(), max(1, A.shape[1])
        parts = zip(
            self.rows.split(CHUNK_SIZE // width + 1),
            self.indices.split(CHUNK_SIZE // width + 1),
            strict=True,
        )
        return self.torch.cat([(A[i] * Bt[j]).sum(1) for i, j in parts])

    def sparse_matmul(self, values: Any, V: Any) -> Any:
        """The sparse matrix with these values, times ``V``."""
        return self._matrix(self.indptr, self.indices, values, self.shape) @ V

    def sparse_rmatmul(self, values: Any, U: Any) -> Any:
        """The transposed sparse matrix with these values, times ``U``."""
        transposed = self._matrix(
            self.transposed_indptr,
            self.transposed_indices,
            values[self.transpose_order],
            (self.shape[1], self.shape[0]),
        )
        return transposed @ U

    def _matrix(self, indptr: Any, indices: Any, values: Any, shape: Any) -> Any:
        with warnings.catch_warnings():  # torch calls its CSR tensors a prototype
            warnings.simplefilter("ignore", UserWarning)
            return self.torch.sparse_csr_tensor(indptr, indices, values, size=shape)


#: A step of a solver, whose state is a dataclass of arrays and numbers.
SolverStep = Iterate[Any]


@dataclass(frozen=True)
class SolverResult:
    """Result of a solver, as NumPy arrays.

    Attributes
    ----------
    X : array of shape (m, n), or None
        The completed matrix; None if ``factors`` are given.
    factors : pair of arrays, or None
        ``A`` (m, d) and ``B`` (d, n) whose product is the completed matrix.
    residual : float
        ``||P(X - M)|| / ||M||`` before observed values were restored.
    rank : int
        Rank of the completed matrix before that.
    extras : dict
        Fitted attributes specific to the model, by name.
    """

    X: Array | None
    factors: tuple[Array, Array] | None
    residual: float
    rank: int
    extras: dict[str, Any] = field(default_factory=dict)


class Solver(Protocol):
    """An endless iteration; `ncarl.fitting.loop.drive` decides when it stops."""

    @property
    def degree(self) -> float:
        """Degree of homogeneity of the objective, which gives its units."""
        ...

    def initial_state(self) -> Any:
        """State before the first step: a dataclass of arrays and numbers."""
        ...

    def steps(self, state: Any, step: int) -> Iterator[SolverStep]:
        """Yield the steps that follow ``state``, which is that after ``step`` steps."""
        ...

    def finalize(self, last: SolverStep) -> SolverResult:
        """Completed matrix from the last step."""
        ...


class HasDevice(Protocol):
    """Entries with a shape and a device."""

    @property
    def compute_device(self) -> Device:
        """Device of the arrays."""
        ...

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        ...


class Timer:
    """Stopwatch for the steps of a solver."""

    def __init__(self) -> None:
        self.start = time.perf_counter()

    def lap(self) -> dict[str, float]:
        """Seconds since the last lap, as a step records them."""
        now = time.perf_counter()
        passed, self.start = now - self.start, now
        return {"step": passed}


def iterate_steps(
    make_step: Callable[[Any, int, Timer], SolverStep],
    state: Any,
    step: int,
    data: HasDevice,
) -> Iterator[SolverStep]:
    """Yield steps without end, each made from the state of the one before.

    Parameters
    ----------
    make_step : callable
        Called with a state, the number of the next step and a `Timer`.
    state, step
        State to start from, and how many steps led to it.
    data : DenseProblem or SparseEntries
        The entries; each step runs in the compute context of their device.
    """
    timer = Timer()
    while True:
        step += 1
        with data.compute_device.compute_context(min(data.shape)):
            done = make_step(state, step, timer)
        yield done
        state = done.state


def ratio(part: float, whole: float) -> float:
    """``part / whole``; infinite if only ``whole`` is 0, and 0 if both are."""
    if whole > 0.0:
        return part / whole
    return 0.0 if part == 0.0 else math.inf


def relative_change(new: Array, old: Array) -> float:
    """``||new - old|| / ||new||``; 0 if both are 0."""
    return ratio(frobenius_norm(new - old), frobenius_norm(new))


def scaled_step_norm(step_norm: float, threshold: float, rank: int) -> float:
    """Length of a step relative to the smallest matrix of this rank.

    With a weak penalty steps get short long before the iteration has converged;
    relative to the threshold of the penalty they do not.

    Parameters
    ----------
    step_norm : float
        Frobenius norm of the step.
    threshold : float
        Singular values at or below it are set to 0.
    rank : int
        Rank of the matrix.
    """
    return ratio(step_norm, threshold * math.sqrt(max(rank, 1)))


SolverCallback = Callable[[SolverStep, History], object]


def run_solver(
    solver: Solver,
    *,
    max_iter: int,
    tol: float,
    scale: float = 1.0,
    observers: Sequence[SolverCallback] = (),
    checkpoint: CheckpointFile | None = None,
    device: Device | None = None,
    search_state: Mapping[str, Any] | None = None,
    state: Any = None,
) -> FitResult[Any]:
    """Run a solver until it converges, from its checkpoint if there is one.

    Parameters
    ----------
    solver : Solver
        Makes the steps.
    max_iter, tol
        Maximum number of steps, and the change below which the run has converged.
    scale : float
        Factor that converts the objective to the user's units.
    observers : sequence of callable
        Called after each step; one that returns True ends the run.
    checkpoint : CheckpointFile, optional
        File that keeps the state.
    device : Device, optional
        Device of the arrays of the state; needed for a checkpoint.
    search_state : mapping, optional
        Results of a search before the run, which the checkpoint keeps too.
    state : optional
        State to start from instead of the solver's initial one.
    """
    initial = solver.initial_state() if state is None else state

    def start(last: SolverStep | None) -> Iterator[SolverStep]:
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
        return type(initial)(**header["numbers"], **sent)

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
