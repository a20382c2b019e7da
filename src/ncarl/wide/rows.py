"""`WideKernel` and its row step, ``(K_oo + s I) y = v`` with ``K = T + F F^T``.

Systems of short rows are formed and factorized. Long rows are solved by conjugate
gradients, with ``diag(T_oo) + s I + F_o F_o^T`` as preconditioner, inverted by
Woodbury's identity; ``T`` is nearly diagonal, so that few iterations are enough. The
duals of all rows make up the Gram matrix of the completed rows, `GramOperator`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from operator import iadd
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import csr_array

from ncarl.core.linalg import cholesky_with_jitter, embed_sparse
from ncarl.core.rows import (
    MAX_PIECE_ENTRIES,
    duals_to_csr,
    explained_variances,
    pieces,
    requested_entries,
    row_backend,
)
from ncarl.core.types import Array, Block
from ncarl.engines.base import Engine

#: Factor by which conjugate gradients reduce the residual, and their most iterations.
CG_TOLERANCE = {"float64": 1e-13, "float32": 1e-6}
CG_MAX_ITERATIONS = 200
#: Typical number of iterations, to estimate their cost.
CG_TYPICAL_ITERATIONS = 8


@dataclass(frozen=True)
class WideKernel:
    """Column covariance ``K = T + F F^T`` and noise variance."""

    F: Array  # (n, p): thin factor
    T: Any  # csr_array (n, n): sparse part, symmetric, sorted indices
    s: float  # noise variance in the units of K; 0 in the exact model
    error: float = 0.0  # bound on the relative error of T

    @classmethod
    def identity(cls, n: int, dtype: str) -> WideKernel:
        """Identity kernel, which completes rows with zeros."""
        ones = np.ones(n, dtype=dtype)
        places = np.arange(n + 1, dtype=np.int32)
        T = csr_array((ones, places[:-1], places), shape=(n, n))
        return cls(np.zeros((n, 0), dtype=dtype), T, 0.0)

    def __matmul__(self, V: Array) -> Array:
        product = self.T @ V
        product += self.F @ (self.F.T @ V)
        return product

    def diagonal(self) -> Array:
        """Diagonal of ``K``."""
        return self.T.diagonal() + np.einsum("jp,jp->j", self.F, self.F)

    def preconditioner_diagonal(self) -> Array:
        """Diagonal of ``T``, with a positive value for hubs, whose entry is 0."""
        diagonal = self.T.diagonal()
        mean = diagonal.mean() or 1.0
        return np.where(diagonal > 0.0, diagonal, 0.1 * mean).astype(self.F.dtype)

    def submatrix(self, rows: Array, columns: Array) -> Array:
        """``K[rows][:, columns]`` as a dense array."""
        dense = self.T[rows][:, columns].toarray()
        dense += self.F[rows] @ self.F[columns].T
        return dense

    def embed_columns(self, kept_columns: Array, n: int, variance: float) -> WideKernel:
        """Kernel of ``n`` columns; those not kept are independent of the others."""
        if len(kept_columns) == n:
            return self
        F = np.zeros((n, self.F.shape[1]), dtype=self.F.dtype)
        F[kept_columns] = self.F
        T = embed_sparse(self.T, kept_columns, n, variance)
        return WideKernel(F, T, self.s, self.error)

    def map_arrays(self, func: Callable[[Any], Any]) -> WideKernel:
        """Kernel with ``func`` applied to its arrays."""
        shape = self.T.shape
        T = csr_array((func(self.T.data), self.T.indices, self.T.indptr), shape=shape)
        return WideKernel(func(self.F), T, self.s, self.error)

    def complete(
        self, block: Block, *, variances: bool, backend: str = "auto"
    ) -> tuple[Array, Array | None]:
        """Completed rows of a block, and the variances of their entries."""
        parts = list(pieces(block))
        X = np.concatenate([complete_rows(part, self, backend) for part in parts])
        if not variances:
            return X, None
        columns = np.arange(block.n_columns)
        found = [row_variances(part, self, [columns] * part.n_rows) for part in parts]
        return X, np.concatenate(found).reshape(X.shape)

    def predict(
        self, block: Block, columns: Array, bounds: Array, *, variances: bool,
        backend: str = "auto",
    ) -> tuple[Array, Array, Array | None]:  # fmt: skip
        """Predictions ``y_i K_oj`` and variances; see `ncarl.core.rows.Kernel`."""
        i, places = requested_entries(block, bounds)
        j = columns[places]
        Y, _ = row_duals(block, kernel=self, backend=backend)
        matrix = duals_to_csr(block, Y)
        sums = np.einsum("ep,ep->e", (matrix @ self.F)[i], self.F[j])
        if len(j):
            sums += np.asarray((matrix @ self.T)[i, j]).ravel()
        if not variances:
            return places, sums, None
        counts = np.bincount(i, minlength=block.n_rows)
        columns_per_row = np.split(j, np.cumsum(counts)[:-1])
        return places, sums, row_variances(block, self, columns_per_row)


def row_duals(
    block: Block, *, kernel: WideKernel, backend: str = "auto"
) -> tuple[Array, float]:
    """Duals ``y`` aligned with ``block.values``, and the jitter that was needed."""
    sizes = np.diff(block.indptr)[block.groups[:-1]]
    chosen = use_conjugate_gradients(sizes, kernel.F.shape[1])
    compiled = numba_backend(backend)
    if compiled is not None:
        duals: tuple[Array, float] = compiled.solve_rows(block, kernel, chosen)
        return duals
    return _solve_rows(block, kernel, chosen)


def _solve_rows(block: Block, kernel: WideKernel, use_cg: Array) -> tuple[Array, float]:
    """NumPy version of `row_duals`, one group of rows after the other."""
    Y = np.zeros_like(block.values)
    worst, diagonal = 0.0, kernel.preconditioner_diagonal()
    for g in range(len(block.groups) - 1):
        _, entries, o = block.group(g)
        if len(o) == 0:
            continue
        V = block.values[entries].reshape(-1, len(o)).T
        solved = _conjugate_gradients(kernel, diagonal, o, V) if use_cg[g] else None
        if solved is None:
            A = kernel.submatrix(o, o)
            factor, jitter = cholesky_with_jitter(A, np.arange(len(o)), kernel.s)
            solved = cho_solve((factor, True), V, check_finite=False)
            worst = max(worst, jitter)
        Y[entries] = solved.T.ravel()
    return Y, worst


def _conjugate_gradients(
    kernel: WideKernel, preconditioner_diagonal: Array, o: Array, V: Array
) -> Array | None:
    """Conjugate gradients for several right-hand sides; None if not converged."""
    F, T = kernel.F[o], kernel.T[o][:, o]
    diagonal = preconditioner_diagonal[o] + kernel.s
    scaled = F / diagonal[:, None]
    inner = scaled.T @ F
    inner.flat[:: len(inner) + 1] += 1.0
    factor = cho_factor(inner, check_finite=False)

    def precondition(R: Array) -> Array:
        Z = R / diagonal[:, None]
        return Z - scaled @ cho_solve(factor, F.T @ Z, check_finite=False)

    Y, R = np.zeros_like(V), V.copy()
    Z = precondition(R)
    P, size = Z.copy(), np.einsum("rc,rc->c", R, Z)
    goal = CG_TOLERANCE[str(V.dtype)] ** 2 * size
    for _ in range(CG_MAX_ITERATIONS):
        if (size <= goal).all():
            return Y
        AP = T @ P + F @ (F.T @ P) + kernel.s * P
        curvature = np.einsum("rc,rc->c", P, AP)
        zeros = np.zeros_like(size)
        step = np.divide(size, curvature, out=zeros, where=curvature > 0.0)
        Y += step * P
        R -= step * AP
        Z = precondition(R)
        before, size = size, np.einsum("rc,rc->c", R, Z)
        beta = np.divide(size, before, out=np.zeros_like(size), where=before > 0.0)
        P = Z + beta * P
    return None


def use_conjugate_gradients(r: Array, p: int) -> Array:
    """Whether conjugate gradients are faster for ``r`` entries and ``p`` factors."""
    r = np.asarray(r, dtype=np.float64)
    direct = r**2 * p + r**3 / 3
    # Gathered products run at a third of the speed of a factorization.
    iterated = r * p**2 + p**3 / 3 + CG_TYPICAL_ITERATIONS * (4 * r * p + 40 * r)
    return 3.0 * iterated < direct


def numba_backend(backend: str) -> Any:
    """`ncarl.wide.rows_numba`, or None if the backend is NumPy."""
    if not row_backend(backend).__name__.endswith("numba"):
        return None
    return importlib.import_module("ncarl.wide.rows_numba")


def duals_and_fit(
    block: Block, *, kernel: WideKernel, backend: str = "auto"
) -> tuple[Array, float, float]:
    """Duals of a block, the sum of ``v y``, and the jitter that was needed."""
    Y, jitter = row_duals(block, kernel=kernel, backend=backend)
    return Y, float(block.values @ Y), jitter


def complete_rows(block: Block, kernel: WideKernel, backend: str) -> Array:
    """Smoothed rows; equal to the observed values there in the exact model."""
    Y, _ = row_duals(block, kernel=kernel, backend=backend)
    X = rows_from_duals(replace(block, values=Y), kernel)
    row_of_entry = np.repeat(np.arange(block.n_rows), np.diff(block.indptr))
    X[row_of_entry, block.indices] = block.values - kernel.s * Y
    return X


def row_variances(
    block: Block, kernel: WideKernel, columns_per_row: list[Array]
) -> Array:
    """``k_jj - k_jo (K_oo + s I)^-1 k_oj + s`` at the requested columns of each row."""
    diagonal = kernel.diagonal() + kernel.s
    parts = []
    for g in range(len(block.groups) - 1):
        rows, _, o = block.group(g)
        factor = None
        for j in columns_per_row[rows]:
            if len(o) == 0 or len(j) == 0:
                parts.append(diagonal[j])
                continue
            if factor is None:
                A = kernel.submatrix(o, o)
                factor, _ = cholesky_with_jitter(A, np.arange(len(o)), kernel.s)
            explained = explained_variances(factor, kernel.submatrix(o, j))
            parts.append(np.maximum(diagonal[j] - explained, kernel.s))
    return np.concatenate(parts) if parts else np.zeros(0)


def rows_from_duals(block: Block, kernel: WideKernel) -> Array:
    """Completed rows ``Y K`` of a block of duals."""
    Y = duals_to_csr(block, block.values)
    X = (Y @ kernel.T).toarray()
    X += (Y @ kernel.F) @ kernel.F.T
    return X


@dataclass(frozen=True)
class GramOperator:
    """Gram matrix ``G = K Y^T Y K`` of the completed rows, as a linear operator."""

    engine: Engine
    duals: list[Block]  # Y, in blocks
    kernel: WideKernel

    @property
    def n(self) -> int:
        """Number of columns."""
        return int(self.kernel.F.shape[0])

    def __matmul__(self, V: Array) -> Array:
        with self.engine.compute_device.compute_context(self.n):
            inner = np.ascontiguousarray(self.kernel @ V)
        middle = self.engine.total(apply_dual_gram, self.duals, V=inner)
        with self.engine.compute_device.compute_context(self.n):
            return self.kernel @ middle

    def to_dense(self) -> Array:
        """``G`` as an n x n array, from completed rows."""
        return self.engine.total(dense_gram, self.duals, kernel=self.kernel)

    def diagonal(self) -> Array:
        """Diagonal of ``G``, as the sum of the contributions of ``T`` and ``F``."""
        F, T = self.kernel.F, self.kernel.T
        diagonal = self.engine.total(sparse_gram_diagonal, self.duals, T=T)
        p = F.shape[1]
        if p == 0:
            return diagonal
        both = self.engine.total(dual_factor_products, self.duals, F=F)
        diagonal += 2.0 * np.einsum("jp,jp->j", T @ both[p:], F)
        diagonal += np.einsum("jp,jp->j", F @ both[:p], F)
        return np.maximum(diagonal, 0.0)


def apply_dual_gram(block: Block, *, V: Array, backend: str = "auto") -> Array:
    """``Y^T Y V`` of one block of duals."""
    compiled = numba_backend(backend)
    if compiled is not None:
        return compiled.apply_dual_gram(block, V)
    Y = duals_to_csr(block, block.values)
    return Y.T @ (Y @ V)


def dense_gram(block: Block, *, kernel: WideKernel, backend: str = "auto") -> Array:
    """``X^T X`` of one block of duals, for few columns."""
    rows = (rows_from_duals(part, kernel) for part in pieces(block))
    return reduce(iadd, (X.T @ X for X in rows))


def sparse_gram_diagonal(block: Block, *, T: Any, backend: str = "auto") -> Array:
    """Diagonal of ``T Y^T Y T`` of one block of duals."""
    n = block.n_columns
    total = np.zeros(n)
    row_size = len(block.values) // max(1, block.n_rows)
    step = max(1, MAX_PIECE_ENTRIES // max(1, T.nnz // n) // max(1, row_size))
    Y = duals_to_csr(block, block.values)
    for first in range(0, block.n_rows, step):
        rows = Y[first : first + step] @ T
        total += np.bincount(rows.indices, weights=rows.data**2, minlength=n)
    return total


def dual_factor_products(block: Block, *, F: Array, backend: str = "auto") -> Array:
    """``(Y F)^T (Y F)`` stacked on ``Y^T (Y F)``, of one block of duals."""
    Y = duals_to_csr(block, block.values)
    Z = Y @ F
    return np.concatenate([Z.T @ Z, Y.T @ Z])
