"""Eigenpairs, spectral density and graph of a Gram matrix too large to be formed.

The leading eigenpairs come from subspace iteration with a Chebyshev filter, the density
of the other eigenvalues from Lanczos runs on random vectors. Both start from fixed
random numbers or from the previous step, so that fits are reproducible to the last bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from scipy.linalg import eigh, qr
from scipy.sparse import csr_array

from ncarl.core.types import Array
from ncarl.core.weights import spectrum
from ncarl.engines.base import Engine
from ncarl.wide.rows import numba_backend

#: Degree of the filter, and how often it is applied at most: to the vectors of the
#: previous step, and to random ones.
FILTER_DEGREE, WARM_ROUNDS, COLD_ROUNDS = 4, 4, 6
#: Relative change of the sum of the leading singular values at which it stops.
SUBSPACE_TOL = 1e-4
#: Lanczos steps on each random vector, total entries of the vectors, and their fewest
#: and most number.
LANCZOS_STEPS, PROBE_ENTRIES, MIN_PROBES, MAX_PROBES = 24, 60_000, 6, 100
#: Columns whose neighbors are searched at a time.
COLUMNS_PER_STRIP = 256
#: More columns than this are searched in single precision.
FLOAT32_MIN_COLUMNS = 4096
#: Candidates beyond the neighbors wanted; all distances to them are in float64.
EXTRA_CANDIDATES = 8


class SymmetricOperator(Protocol):
    """Positive semi-definite matrix as a linear operator."""

    def __matmul__(self, V: Array) -> Array: ...


@dataclass(frozen=True)
class WideGram:
    """Gram matrix as leading eigenpairs, diagonal, and density of the tail."""

    rank: int  # number of leading eigenpairs
    values: Array  # (b,): eigenvalues, descending; those past rank start the next step
    vectors: Array  # (n, b): their eigenvectors
    diagonal: Array  # (n,): diagonal of the matrix
    nodes: Array  # (q,): values that represent the other eigenvalues
    masses: Array  # (q,): number of eigenvalues near each node

    @property
    def leading(self) -> tuple[Array, Array]:
        """Leading eigenvalues and eigenvectors."""
        return self.values[: self.rank], self.vectors[:, : self.rank]

    def points(self) -> Array:
        """Columns as points whose inner products are those of the leading part."""
        values, vectors = self.leading
        return vectors * np.sqrt(values)

    def residual_diagonal(self) -> Array:
        """Diagonal without the leading part."""
        values, vectors = self.leading
        return np.maximum(self.diagonal - (vectors * vectors) @ values, 0.0)

    def nuclear_norm(self) -> float:
        """Sum of all singular values of the completed rows."""
        own = float(np.sqrt(self.leading[0]).sum())
        return own + float(self.masses @ np.sqrt(self.nodes))


def exact_gram(G: Array) -> WideGram:
    """Gram matrix of few columns, with all eigenpairs leading."""
    basis = spectrum(G)
    return WideGram(
        rank=len(G),
        values=basis.eigenvalues[::-1].copy(),
        vectors=np.ascontiguousarray(basis.vectors[:, ::-1]),
        diagonal=G.diagonal().copy(),
        nodes=np.zeros(0),
        masses=np.zeros(0),
    )


def summarize_gram(
    G: SymmetricOperator, diagonal: Array, rank: int, start: Array | None, dtype: str
) -> WideGram:
    """Leading eigenpairs, ``rank`` of them, and tail density of a Gram matrix.

    ``start`` holds the eigenvectors of the previous step, if there was one.
    """
    rounds = WARM_ROUNDS
    if start is None:
        rounds, n = COLD_ROUNDS, len(diagonal)
        shape = (n, subspace_size(rank, n))
        start = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    values, V = chebyshev_subspace_iteration(G, start, rank, rounds)
    nodes, masses = tail_spectral_density(
        G, V[:, :rank], float(diagonal.sum()) - float(values[:rank].sum())
    )
    return WideGram(rank, values, V, diagonal, nodes, masses)


def subspace_size(rank: int, n: int) -> int:
    """Number of vectors to iterate with: the rank and a margin, at most ``n``."""
    return min(n, rank + max(8, rank // 8))


def chebyshev_subspace_iteration(
    G: SymmetricOperator, start: Array, rank: int, rounds: int = COLD_ROUNDS
) -> tuple[Array, Array]:
    """Leading eigenvalues, the largest first, and their eigenvectors."""
    values, V, GV = _rayleigh_ritz(G, start)
    total = float(np.sqrt(values[:rank]).sum())
    for _ in range(rounds):
        if values[0] <= 0.0:
            break  # the matrix is 0
        values, V, GV = _rayleigh_ritz(G, _chebyshev_filter(G, V, GV, values))
        before, total = total, float(np.sqrt(values[:rank]).sum())
        if abs(total - before) <= SUBSPACE_TOL * total:
            break
    return values, V


def _rayleigh_ritz(G: SymmetricOperator, V: Array) -> tuple[Array, Array, Array]:
    """Ritz values and vectors of the span of ``V``, and ``G`` times the vectors."""
    V = np.asarray(qr(V, mode="economic", check_finite=False)[0])
    GV = G @ V
    H = (V.T @ GV).astype(np.float64)
    values, rotation = eigh(0.5 * (H + H.T))
    rotation = rotation[:, ::-1].astype(V.dtype)
    return np.maximum(values[::-1], 0.0), V @ rotation, GV @ rotation


def _chebyshev_filter(
    G: SymmetricOperator, V: Array, GV: Array, values: Array
) -> Array:
    """Chebyshev polynomial of ``G`` times ``V``, which amplifies large eigenvalues.

    The polynomial is bounded up to the smallest of ``values`` and scaled to about 1 at
    the largest.
    """
    # Values below this are rounding errors and need not be resolved.
    half = 0.5 * float(max(values[-1], 1e-8 * values[0]))
    first = half / (float(values[0]) - half)
    ratio = first
    W = (GV - half * V) * (ratio / half)
    for _ in range(FILTER_DEGREE - 1):
        following = 1.0 / (2.0 / first - ratio)
        new = (G @ W - half * W) * (2.0 * following / half) - (ratio * following) * V
        V, W, ratio = W, new, following
    return W


def tail_spectral_density(
    G: SymmetricOperator, U: Array, trace: float
) -> tuple[Array, Array]:
    """Nodes and masses that represent the eigenvalues besides the leading ones.

    ``U`` has the leading eigenvectors, and ``trace`` is the sum of the other
    eigenvalues, to which the nodes are scaled.
    """
    n, p = U.shape
    count = min(MAX_PROBES, max(MIN_PROBES, -(-PROBE_ENTRIES // n)))
    probes = np.random.default_rng(1).choice([-1.0, 1.0], size=(n, count))
    diagonals, betweens = _lanczos_tridiagonals(G, U, probes.astype(U.dtype))
    small = np.zeros((count, len(diagonals), len(diagonals)))
    at = np.arange(len(diagonals))
    small[:, at, at] = diagonals.T
    small[:, at[1:], at[:-1]] = betweens[:-1].T  # eigh reads the lower half
    values, vectors = np.linalg.eigh(small)
    nodes = np.maximum(values, 0.0).ravel()
    masses = (vectors[:, 0] ** 2 * ((n - p) / count)).ravel()
    total = float(nodes @ masses)
    if trace <= 0.0 or total <= 0.0:
        return np.zeros_like(nodes), masses
    return nodes * (trace / total), masses


def _lanczos_tridiagonals(
    G: SymmetricOperator, U: Array, V: Array
) -> tuple[Array, Array]:
    """Diagonals and off-diagonals of the Lanczos matrices, one run per column of ``V``.

    The runs stay orthogonal to ``U``. A run whose Krylov space is exhausted continues
    with zeros, which have no weight.
    """
    steps = min(LANCZOS_STEPS, U.shape[0] - U.shape[1])
    main, beside = np.zeros((2, steps, V.shape[1]))
    V = V - U @ (U.T @ V)
    V /= np.linalg.norm(V, axis=0)
    before, link = np.zeros_like(V), np.zeros(V.shape[1])
    scale = np.zeros(V.shape[1])
    for k in range(steps):
        W = G @ V
        W -= U @ (U.T @ W)
        main[k] = np.einsum("js,js->s", V, W)
        W -= V * main[k].astype(V.dtype) + before * link.astype(V.dtype)
        W -= U @ (U.T @ W)
        link = np.linalg.norm(W, axis=0).astype(np.float64)
        scale = np.maximum(scale, np.abs(main[k]) + link)
        link[link <= 1e-7 * scale] = 0.0
        beside[k] = link
        alive = np.where(link > 0.0, link, 1.0).astype(V.dtype)
        before, V = V, np.where(link > 0.0, W / alive, 0.0).astype(V.dtype)
    return main, beside


def relative_change(new: WideGram, old: WideGram) -> float:
    """``||new - old||_F / ||new||_F`` of leading part and diagonal."""
    size, change = _difference_norm(new), _difference_norm(new, old)
    if size <= 0.0:
        return float("inf") if change > 0.0 else 0.0
    return change / size


def _difference_norm(new: WideGram, old: WideGram | None = None) -> float:
    """Frobenius norm of ``new - old``, a low-rank matrix plus a diagonal one.

    The difference is formed in a basis of both leading parts, in double precision:
    differences of inner products would suffer from cancellation.
    """
    signs = [(new, 1.0)] if old is None else [(new, 1.0), (old, -1.0)]
    parts = [(gram.leading, sign) for gram, sign in signs]
    weights = np.concatenate([sign * a for (a, _), sign in parts], dtype=float)
    U = np.concatenate([u.astype(np.float64) for (_, u), _ in parts], axis=1)
    R: Any = np.linalg.qr(U, mode="r")
    low_rank = (R * weights) @ R.T
    diagonal: Any = sum(sign * g.residual_diagonal().astype(float) for g, sign in signs)
    cross = 2.0 * float(((U * U) @ weights) @ diagonal)
    square = float(np.sum(low_rank**2)) + cross + float(np.sum(diagonal**2))
    return float(np.sqrt(max(square, 0.0)))


def wide_similarity(gram: WideGram, k: int, engine: Engine) -> Any:
    """k-sparse similarity of the columns, rows summing to one.

    The formula is that of `ncarl.core.graph.similarity`; ties go to the first columns.
    """
    points = ColumnPoints.from_gram(gram)
    n = len(points.Z)
    search_points = points.Z.astype(np.float32) if n > FLOAT32_MIN_COLUMNS else points.Z
    norms = points.norms.astype(search_points.dtype)
    starts = range(0, n, COLUMNS_PER_STRIP)
    strips = [slice(first, min(first + COLUMNS_PER_STRIP, n)) for first in starts]
    parts = engine.map(
        _strip_neighbors,
        strips,
        points=points,
        search_points=search_points,
        norms=norms,
        count=k + 1,
    )
    others, weights = map(np.concatenate, zip(*parts, strict=True))
    rows = np.repeat(np.arange(n), weights.shape[1])
    S = csr_array((weights.ravel(), (rows, others.ravel())), shape=(n, n))
    S.eliminate_zeros()
    S.sort_indices()
    return S


@dataclass(frozen=True)
class ColumnPoints:
    """Columns as points in the leading directions, centered, with squared norms."""

    Z: Array  # (n, p): the points
    norms: Array  # (n,): squared norms after centering, tail included
    uncentered_norms: Array  # (n,): those before, the scale of rounding errors

    @classmethod
    def from_gram(cls, gram: WideGram) -> ColumnPoints:
        """Points whose Gram matrix is the one given."""
        Z = gram.points().astype(np.float64)
        Z -= Z.mean(axis=0)
        norms = gram.residual_diagonal() + np.einsum("jp,jp->j", Z, Z)
        return cls(Z, norms, np.asarray(gram.diagonal, dtype=np.float64))

    def distances(self, rows: slice, candidates: Array) -> Array:
        """Squared distances of some columns from the candidates of each."""
        own = np.arange(len(self.Z))[rows, None]
        inner = np.einsum("ip,icp->ic", self.Z[rows], self.Z[candidates])
        squares = self.norms[rows, None] + self.norms[candidates] - 2.0 * inner
        # Differences within rounding error count as 0, as in `ncarl.core.graph`.
        largest = self.uncentered_norms[rows, None] + self.uncentered_norms[candidates]
        squares[squares <= 8.0 * np.finfo(np.float64).eps * largest] = 0.0
        squares[candidates == own] = 0.0
        return squares


def _strip_neighbors(
    rows: slice,
    *,
    points: ColumnPoints,
    search_points: Array,
    norms: Array,
    count: int,
    backend: str = "auto",
) -> tuple[Array, Array]:
    """Nearest columns of some columns, and their similarities."""
    scores = search_points[rows] @ search_points.T
    scores *= -2.0
    scores += norms
    own = np.arange(len(search_points))[rows]
    scores[np.arange(len(own)), own] = -np.inf  # a column is its own first neighbor
    wanted = min(count + EXTRA_CANDIDATES, len(search_points))
    compiled = numba_backend(backend)
    if compiled is not None:
        others = compiled.k_smallest_indices(scores, wanted)
    else:
        others = np.argpartition(scores, wanted - 1, axis=1)[:, :wanted]
    others = np.sort(others, axis=1)
    distances = points.distances(rows, others)
    # Among those at distance 0 the column itself comes first.
    keys = np.where(others == own[:, None], -1.0, distances)
    order = np.argsort(keys, axis=1, kind="stable")[:, :count]
    nearest = np.take_along_axis(distances, order, axis=1)
    slack = nearest[:, -1:] - nearest
    total = slack.sum(axis=1, keepdims=True)
    uniform = np.full_like(slack, 1.0 / slack.shape[1])
    weights = np.where(total > 0.0, slack / np.where(total > 0.0, total, 1.0), uniform)
    return np.take_along_axis(others, order, axis=1), weights
