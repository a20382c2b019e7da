"""Building a wide kernel: Woodbury's identity and the sparse graph inverse.

With equal weights for all but ``p`` directions the penalty matrix of a row is
``Q = S - U C U^T`` with ``S = base I + alpha L`` sparse, so that by Woodbury's identity
``K = Q^-1 = T + F F^T``, ``T = S^-1``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.sparse import csr_array, diags_array, vstack

from ncarl.core.kernel import QuadraticPenalty
from ncarl.core.linalg import spd_inverse
from ncarl.core.types import Array
from ncarl.wide.rows import WideKernel

#: Directions whose weight equals that of the tail up to this need no factor.
EQUAL_WEIGHT_TOL = 1e-12
#: Up to this many columns the graph inverse is always dense, and up to the second
#: number if it is not sparse: a few megabytes.
DENSE_MAX_COLUMNS, DENSE_FALLBACK_MAX_COLUMNS = 256, 2000
#: Errors to try, relative to ``1 / base``, until the inverse is sparse enough.
TOLERANCES = (1e-7, 1e-6, 1e-5, 1e-4, 1e-3)
#: Maximum number of entries per column of the inverse on average.
MAX_ENTRIES_PER_COLUMN = 256
#: Maximum terms of the Neumann series, multiplications in a term, and at a time.
MAX_TERMS, MAX_WORK, WORK_PER_CHUNK = 400, 4e9, 2e7
#: A column with more edges than this is a hub; maximum number of hubs.
HUB_MIN_EDGES, MAX_HUBS = 128, 64


def wide_kernel(
    vectors: Array,  # (n, p): leading directions, orthonormal
    weights: Array,  # (p,): their weights
    tail_weight: float,  # of all other directions, at least that of the leading ones
    graph: ColumnGraph | None,
    penalty: QuadraticPenalty,
) -> WideKernel:
    """Wide kernel ``K = Q^-1`` of the columns."""
    levels = penalty.spectral_eigenvalues(np.asarray(weights, dtype=np.float64))
    base = float(penalty.spectral_eigenvalues(np.asarray(tail_weight)))
    inverse = graph_inverse(base, penalty.alpha, graph, len(vectors))
    distinct = base - levels > EQUAL_WEIGHT_TOL * base
    U = vectors[:, distinct].astype(np.float64, copy=False)
    # C^-1 - U^T T U = N / base; as a difference it would lose the digits of N.
    N = np.diag(levels[distinct] / (base - levels[distinct]))
    W = inverse @ U
    if graph is not None and penalty.alpha > 0.0:
        product = penalty.alpha * (U.T @ graph.apply_laplacian(W))
        N += 0.5 * (product + product.T)
    F = W
    if U.shape[1]:
        root = cholesky(N, lower=True)
        F = solve_triangular(root, W.T, lower=True).T
    F = np.hstack([np.sqrt(base) * F, inverse.E])
    kernel = WideKernel(F, inverse.T, penalty.noise_variance, inverse.error)
    return kernel.map_arrays(lambda array: array.astype(vectors.dtype, copy=False))


@dataclass(frozen=True)
class ColumnGraph:
    """Weighted graph of the columns."""

    edges: Any  # csr_array (n, n): symmetric, nonnegative, zero diagonal
    degrees: Array  # (n,): row sums of the edges

    @classmethod
    def from_similarity(cls, similarity: Any) -> ColumnGraph:
        """Graph of a similarity matrix, symmetrized."""
        both = csr_array(0.5 * (similarity + similarity.T))
        edges = csr_array(both - diags_array(both.diagonal()))
        edges.eliminate_zeros()
        edges.sort_indices()
        return cls(edges, np.asarray(edges.sum(axis=1)).ravel())

    def apply_laplacian(self, V: Array) -> Array:
        """``L V``."""
        return self.degrees[:, None] * V - self.edges @ V


@dataclass(frozen=True)
class SparseLowRankInverse:
    """Inverse as a sparse matrix plus a thin factor, ``T + E E^T``."""

    T: Any  # csr_array (n, n): symmetric, sorted indices, empty rows for hubs
    E: Array  # (n, hubs): contribution of the hubs
    error: float  # bound on the norm of the error of T, relative to 1 / base

    def __matmul__(self, V: Array) -> Array:
        product = self.T @ V
        if self.E.shape[1]:
            product += self.E @ (self.E.T @ V)
        return product


def graph_inverse(
    base: float, alpha: float, graph: ColumnGraph | None, n: int
) -> SparseLowRankInverse:
    """Sparse inverse of ``base I + alpha L``, as accurate as sparsity allows.

    Raises if ``alpha`` is so large that no sparse matrix approximates the inverse.
    """
    if graph is None or alpha == 0.0 or graph.edges.nnz == 0:
        T = csr_array(diags_array(np.full(n, 1.0 / base)))
        return SparseLowRankInverse(T, np.zeros((n, 0)), 0.0)
    if n <= DENSE_MAX_COLUMNS:
        return dense_inverse(base, alpha, graph)
    hubs = find_hubs(graph)
    for tolerance in TOLERANCES:
        inverse = inverse_with_hubs(base, alpha, graph, hubs, tolerance)
        if inverse is not None:
            return inverse
    if n <= DENSE_FALLBACK_MAX_COLUMNS:
        return dense_inverse(base, alpha, graph)
    raise ValueError(
        f"alpha={alpha:g} is too large for a graph of {n} columns: the inverse of the "
        "graph term is not sparse; lower alpha or n_neighbors, or set graph=None"
    )


def dense_inverse(
    base: float, alpha: float, graph: ColumnGraph
) -> SparseLowRankInverse:
    """Inverse of ``base I + alpha L`` with all its entries."""
    S = -alpha * graph.edges.toarray()
    n = len(S)
    S.flat[:: n + 1] += base + alpha * graph.degrees
    return SparseLowRankInverse(csr_array(spd_inverse(S)), np.zeros((n, 0)), 0.0)


def find_hubs(graph: ColumnGraph) -> Array:
    """Columns with more than `HUB_MIN_EDGES` edges, at most `MAX_HUBS` of them."""
    counts = np.diff(graph.edges.indptr)
    most = np.argsort(-counts, kind="stable")[:MAX_HUBS]
    return np.sort(most[counts[most] > HUB_MIN_EDGES])


def inverse_with_hubs(
    base: float, alpha: float, graph: ColumnGraph, hubs: Array, tolerance: float
) -> SparseLowRankInverse | None:
    """Inverse up to a tolerance, or None if that cannot be reached.

    With ``H`` the hubs, ``R`` the other columns and ``T`` the inverse of ``S_RR``,
    ``S^-1 = T + E E^T``, where ``E`` is ``[-T S_RH; I]`` times a root of the inverse of
    the Schur complement ``S_HH - S_HR T S_RH``.
    """
    n = len(graph.degrees)
    kept = np.setdiff1d(np.arange(n), hubs)
    diagonal = base + alpha * graph.degrees
    inner = csr_array(alpha * graph.edges[kept][:, kept])
    inverse = neumann_inverse(diagonal[kept], inner, tolerance)
    if inverse is None:
        return None
    T, error = inverse
    if len(hubs) == 0:
        return SparseLowRankInverse(T, np.zeros((n, 0)), base * error)
    links = alpha * graph.edges[hubs].toarray()
    E = np.zeros((n, len(hubs)))
    E[kept] = T @ links[:, kept].T
    E[hubs] = np.eye(len(hubs))
    schur = np.diag(diagonal[hubs]) - links @ E
    # E is the identity at the hubs, so this has subtracted the links between them.
    root = cholesky(0.5 * (schur + schur.T), lower=True)
    E = np.ascontiguousarray(solve_triangular(root, E.T, lower=True).T)
    T = T.tocoo()
    places = (kept[T.coords[0]], kept[T.coords[1]])
    whole = csr_array((T.data, places), shape=(n, n))
    whole.sort_indices()
    return SparseLowRankInverse(whole, E, base * error)


def neumann_inverse(
    diagonal: Array, links: Any, tolerance: float
) -> tuple[Any, float] | None:
    """Neumann series ``sum (D^-1 A)^k D^-1`` for the inverse of ``D - A``.

    ``D`` is larger than the row sums of ``A`` (``links``), which is symmetric and
    nonnegative. Entries far below the tolerance, which is relative to the norm of the
    inverse, are dropped in each term. Returns the inverse and a bound on the norm of
    its error, or None if it has too many entries or cannot be as accurate.
    """
    # The inverse times these row sums is 1; the smallest of them bounds its norm.
    sums = diagonal - np.asarray(links.sum(axis=1)).ravel()
    start = csr_array(diags_array(1.0 / diagonal))
    iteration_matrix = csr_array(diags_array(1.0 / diagonal) @ links)
    # With a few hundred entries per row, those dropped sum to about a tenth of it.
    drop = 1e-3 * tolerance / float(diagonal.max())
    T, residual = start, np.inf
    for _ in range(MAX_TERMS):
        T = _neumann_step(start, iteration_matrix, T, drop)
        if T is None or T.nnz > MAX_ENTRIES_PER_COLUMN * len(sums):
            return None
        before, residual = residual, float(np.max(1.0 - T @ sums))
        if residual <= tolerance or residual > 0.999 * before:
            break
    T = csr_array(0.5 * (T + T.T))
    T.sort_indices()
    residual = float(np.max(np.abs(1.0 - T @ sums)))
    # Relative to the smallest eigenvalue of the inverse: T must stay definite.
    limit = float(sums.min()) / float(np.max(2.0 * diagonal - sums))
    if residual > min(10.0 * tolerance, 0.1 * limit):
        return None
    return T, residual / float(sums.min())


def _neumann_step(
    diagonal_inverse: Any, iteration_matrix: Any, T: Any, drop_tolerance: float
) -> Any | None:
    """``diagonal_inverse + iteration_matrix T`` without its smallest entries.

    None if it takes too many multiplications.
    """
    pattern = iteration_matrix.astype(bool).astype(np.float64)
    work = np.asarray(pattern @ np.diff(T.indptr))
    ends = np.cumsum(work)
    if len(ends) and ends[-1] > MAX_WORK:
        return None
    parts, first, n = [], 0, len(work)
    while first < n:
        done = ends[first - 1] if first else 0.0
        last = int(np.searchsorted(ends, done + WORK_PER_CHUNK, "right"))
        last = min(max(last, first + 1), n)
        rows = slice(first, last)
        part = csr_array(diagonal_inverse[rows] + iteration_matrix[rows] @ T)
        part.data[part.data < drop_tolerance] = 0.0
        part.eliminate_zeros()
        parts.append(part)
        first = last
    return csr_array(vstack(parts, format="csr"))
