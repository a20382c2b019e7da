"""The graph's part of a wide kernel: the inverse of ``S = base I + alpha L``.

``L`` is the Laplacian of a graph with few edges. Columns with very many of them, hubs,
are taken out first (they would link everything with everything); what they add is a
thin factor. The inverse of the others has no negative entry, and how its rows add up is
known, so that what a truncated series lacks is known too: the bound on its error is no
guess.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.sparse import csr_array, diags_array, vstack

from ncarl.core.linalg import spd_inverse
from ncarl.core.types import Array

#: Up to so many columns the inverse is taken whole, and up to so many where it is not
#: sparse: a few dense megabytes.
DENSE, DENSE_AT_WORST = 256, 2000
#: Errors to try for, relative to ``1 / base``, till the inverse is sparse enough.
TOLERANCES = (1e-7, 1e-6, 1e-5, 1e-4, 1e-3)
#: Entries that a column of the inverse may have on average.
MOST_ENTRIES = 256
#: Terms of the series at most, products of two entries in one at most, and at a time.
MOST_TERMS, MOST_WORK, WORK_AT_A_TIME = 400, 4e9, 2e7
#: A column with more edges than this is a hub; so many are taken out at most.
HUB_EDGES, MOST_HUBS = 128, 64


@dataclass(frozen=True)
class Graph:
    """Edges between columns, and what leaves each of them.

    Attributes
    ----------
    edges : csr_array of shape (n, n)
        Symmetric, not negative, nothing on the diagonal.
    degrees : array of shape (n,)
        Sums of its rows.
    """

    edges: Any
    degrees: Array

    @classmethod
    def of(cls, similarity: Any) -> Graph:
        """The graph of a similarity, symmetrised.

        Examples
        --------
        >>> from scipy.sparse import csr_array
        >>> Graph.of(csr_array([[0.5, 0.5], [0.0, 1.0]])).degrees
        array([0.25, 0.25])
        """
        both = csr_array(0.5 * (similarity + similarity.T))
        edges = csr_array(both - diags_array(both.diagonal()))
        edges.eliminate_zeros()
        edges.sort_indices()
        return cls(edges, np.asarray(edges.sum(axis=1)).ravel())

    def laplacian(self, V: Array) -> Array:
        """``L V``."""
        return self.degrees[:, None] * V - self.edges @ V


@dataclass(frozen=True)
class Inverse:
    """An inverse as a sparse matrix plus a thin factor, ``T + E E^T``.

    Attributes
    ----------
    T : csr_array of shape (n, n)
        Symmetric, rows sorted; nothing in the rows of hubs.
    E : array of shape (n, hubs)
        What the hubs add.
    error : float
        Bound on the norm of what ``T`` lacks, relative to ``1 / base``.
    """

    T: Any
    E: Array
    error: float

    def __matmul__(self, V: Array) -> Array:
        """The inverse times ``V``."""
        product: Array = self.T @ V
        if self.E.shape[1]:
            product += self.E @ (self.E.T @ V)
        return product


def graph_inverse(base: float, alpha: float, graph: Graph | None, n: int) -> Inverse:
    """Inverse of ``base I + alpha L``, as precise as a sparse matrix can be.

    Raises
    ------
    ValueError
        If the graph weighs so much that no sparse matrix comes near the inverse.

    Examples
    --------
    >>> graph_inverse(2.0, 1.0, None, 3).T.diagonal()
    array([0.5, 0.5, 0.5])
    """
    if graph is None or alpha == 0.0 or graph.edges.nnz == 0:
        T = csr_array(diags_array(np.full(n, 1.0 / base)))
        return Inverse(T, np.zeros((n, 0)), 0.0)
    if n <= DENSE:
        return dense_inverse(base, alpha, graph)
    hubs = find_hubs(graph)
    for tolerance in TOLERANCES:
        found = inverse_with_hubs(base, alpha, graph, hubs, tolerance)
        if found is not None:
            return found
    if n <= DENSE_AT_WORST:
        return dense_inverse(base, alpha, graph)
    raise ValueError(
        f"alpha={alpha:g} is too large for a graph of {n} columns: the inverse of the "
        "graph term is not sparse; lower alpha or n_neighbors, or set graph=None"
    )


def dense_inverse(base: float, alpha: float, graph: Graph) -> Inverse:
    """The inverse with all its entries."""
    S = -alpha * graph.edges.toarray()
    n = len(S)
    S.flat[:: n + 1] += base + alpha * graph.degrees
    return Inverse(csr_array(spd_inverse(S)), np.zeros((n, 0)), 0.0)


def find_hubs(graph: Graph) -> Array:
    """Columns with the most edges, as far as those are too many."""
    counts = np.diff(graph.edges.indptr)
    most = np.argsort(-counts, kind="stable")[:MOST_HUBS]
    return np.sort(most[counts[most] > HUB_EDGES])


def inverse_with_hubs(
    base: float, alpha: float, graph: Graph, hubs: Array, tolerance: float
) -> Inverse | None:
    """The inverse to a tolerance, or None where that is out of reach.

    With ``R`` the columns that are no hubs and ``T`` the inverse of ``S_RR``,
    ``S^-1 = T + E E^T``, where ``E`` is ``[-T S_RH; I]`` times a root of the inverse of
    the Schur complement ``S_HH - S_HR T S_RH``.
    """
    n = len(graph.degrees)
    kept = np.setdiff1d(np.arange(n), hubs)
    diagonal = base + alpha * graph.degrees
    inner = csr_array(alpha * graph.edges[kept][:, kept])
    found = truncated_inverse(diagonal[kept], inner, tolerance)
    if found is None:
        return None
    T, lacking = found
    if len(hubs) == 0:
        return Inverse(T, np.zeros((n, 0)), base * lacking)
    links = alpha * graph.edges[hubs].toarray()
    E = np.zeros((n, len(hubs)))
    E[kept] = T @ links[:, kept].T
    E[hubs] = np.eye(len(hubs))
    schur = np.diag(diagonal[hubs]) - links @ E
    # E holds the identity at the hubs, so that this took the links between them off.
    root = cholesky(0.5 * (schur + schur.T), lower=True)
    E = np.ascontiguousarray(solve_triangular(root, E.T, lower=True).T)
    T = T.tocoo()
    places = (kept[T.coords[0]], kept[T.coords[1]])
    whole = csr_array((T.data, places), shape=(n, n))
    whole.sort_indices()
    return Inverse(whole, E, base * lacking)


def truncated_inverse(
    diagonal: Array, links: Any, tolerance: float
) -> tuple[Any, float] | None:
    """The series ``sum (D^-1 A)^k D^-1`` for the inverse of ``D - A``.

    Entries far below the tolerance are dropped on the way.

    Parameters
    ----------
    diagonal : array of shape (n,)
        ``D``; larger than the sums of the rows of ``A``.
    links : csr_array of shape (n, n)
        ``A``; symmetric, not negative.
    tolerance : float
        What may lack, relative to the norm of the inverse.

    Returns
    -------
    T : csr_array of shape (n, n)
        Symmetric, rows sorted.
    lacking : float
        Bound on the norm of what it lacks. None for both where the inverse has too
        many entries, or the tolerance is out of reach.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> A = csr_array([[0.0, 0.1], [0.1, 0.0]])
    >>> T, lacking = truncated_inverse(np.array([1.1, 1.1]), A, 1e-6)
    >>> T.toarray().round(3).tolist(), lacking < 1e-5
    ([[0.917, 0.083], [0.083, 0.917]], True)
    """
    # The inverse times these is one everywhere; the smallest bounds its norm.
    sums = diagonal - np.asarray(links.sum(axis=1)).ravel()
    start = csr_array(diags_array(1.0 / diagonal))
    turn = csr_array(diags_array(1.0 / diagonal) @ links)
    # A row holds a few hundred entries: together those dropped stay near a tenth.
    drop = 1e-3 * tolerance / float(diagonal.max())
    T = _series(start, turn, sums, tolerance, drop)
    if T is None:
        return None
    T = csr_array(0.5 * (T + T.T))
    T.sort_indices()
    gap = float(np.max(np.abs(1.0 - T @ sums)))
    # Against the smallest eigenvalue of the inverse: past it T could lose its sign.
    reach = float(sums.min()) / float(np.max(2.0 * diagonal - sums))
    if gap > min(10.0 * tolerance, 0.1 * reach):
        return None
    return T, gap / float(sums.min())


def _series(
    start: Any, turn: Any, sums: Array, tolerance: float, drop: float
) -> Any | None:
    """Terms of the series till the tolerance is met; None if that is too much."""
    T, gap = start, np.inf
    for _ in range(MOST_TERMS):
        T = _grown(start, turn, T, drop)
        if T is None or T.nnz > MOST_ENTRIES * len(sums):
            return None
        before, gap = gap, float(np.max(1.0 - T @ sums))
        if gap <= tolerance or gap > 0.999 * before:
            break
    return T


def _grown(start: Any, turn: Any, T: Any, drop: float) -> Any | None:
    """``start + turn T`` without entries below the limit; None if it is too much."""
    work = np.asarray(turn.astype(bool).astype(np.float64) @ np.diff(T.indptr))
    ends = np.cumsum(work)
    if len(ends) and ends[-1] > MOST_WORK:
        return None
    parts, first, n = [], 0, len(work)
    while first < n:
        done = ends[first - 1] if first else 0.0
        last = int(np.searchsorted(ends, done + WORK_AT_A_TIME, "right"))
        last = min(max(last, first + 1), n)
        part = csr_array(start[first:last] + turn[first:last] @ T)
        part.data[part.data < drop] = 0.0
        part.eliminate_zeros()
        parts.append(part)
        first = last
    return csr_array(vstack(parts, format="csr"))
