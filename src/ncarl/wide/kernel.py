"""A kernel as a sparse matrix plus thin factors, and how the weights make it.

With all but ``p`` directions weighing the same, the quadratic form of a row is
``Q = S - U C U^T`` with ``S = base I + alpha L`` sparse, so that by Woodbury's identity
``K = Q^-1 = T + F F^T``, ``T = S^-1``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.sparse import csr_array

from ncarl.core.kernel import Penalty
from ncarl.core.types import Array
from ncarl.wide.inverse import Graph, graph_inverse

#: Directions whose weight is that of the rest, up to this, need no factor.
ALIKE = 1e-12


@dataclass(frozen=True)
class WideKernel:
    """``K = T + F F^T``, and the noise.

    Attributes
    ----------
    F : array of shape (n, p)
        Thin factor.
    T : csr_array of shape (n, n)
        Sparse part, symmetric, rows sorted.
    s : float
        Noise variance in the units of ``K``; 0 in the exact model.
    error : float
        Bound on the relative error of ``T``.
    """

    F: Array
    T: Any
    s: float
    error: float = 0.0

    @classmethod
    def identity(cls, n: int, dtype: str) -> WideKernel:
        """The kernel under which completed rows are those filled with zeros."""
        ones = np.ones(n, dtype=dtype)
        places = np.arange(n + 1, dtype=np.int32)
        T = csr_array((ones, places[:-1], places), shape=(n, n))
        return cls(np.zeros((n, 0), dtype=dtype), T, 0.0)

    def __matmul__(self, V: Array) -> Array:
        """``K V``.

        Examples
        --------
        >>> import numpy as np
        >>> WideKernel.identity(2, "float64") @ np.array([[1.0], [2.0]])
        array([[1.],
               [2.]])
        """
        product = self.T @ V
        product += self.F @ (self.F.T @ V)
        return product

    def diagonal(self) -> Array:
        """Diagonal of ``K``."""
        return self.T.diagonal() + np.einsum("jp,jp->j", self.F, self.F)

    def easy_diagonal(self) -> Array:
        """Diagonal of ``T``, with something in the place of a hub's nothing."""
        diagonal: Array = self.T.diagonal()
        usual = diagonal.mean() or 1.0
        return np.where(diagonal > 0.0, diagonal, 0.1 * usual).astype(self.F.dtype)

    def part(self, rows: Array, columns: Array) -> Array:
        """``K[rows][:, columns]`` as a dense array."""
        dense: Array = self.T[rows][:, columns].toarray()
        dense += self.F[rows] @ self.F[columns].T
        return dense

    def expanded(self, kept: Array, n: int, variance: float) -> WideKernel:
        """The kernel of ``n`` columns; those not kept stand alone, with a variance."""
        if len(kept) == n:
            return self
        F = np.zeros((n, self.F.shape[1]), dtype=self.F.dtype)
        F[kept] = self.F
        T = self.T.tocoo()
        alone = np.setdiff1d(np.arange(n), kept, assume_unique=True)
        rows = np.concatenate([kept[T.coords[0]], alone])
        columns = np.concatenate([kept[T.coords[1]], alone])
        data = np.concatenate([T.data, np.full(len(alone), variance, T.dtype)])
        whole = csr_array((data, (rows, columns)), shape=(n, n))
        whole.sort_indices()
        return WideKernel(F, whole, self.s, self.error)

    def moved(self, move: Callable[[Any], Any]) -> WideKernel:
        """The kernel with its arrays changed in the same way."""
        shape = self.T.shape
        T = csr_array((move(self.T.data), self.T.indices, self.T.indptr), shape=shape)
        return WideKernel(move(self.F), T, self.s, self.error)


def wide_kernel(
    vectors: Array,
    weights: Array,
    rest: float,
    graph: Graph | None,
    penalty: Penalty,
) -> WideKernel:
    """Kernel of the columns.

    Parameters
    ----------
    vectors : array of shape (n, p)
        Leading directions, orthonormal.
    weights : array of shape (p,)
        Their weights.
    rest : float
        Weight of all other directions, none below it.
    graph : Graph or None
        Graph of the columns.
    penalty : Penalty
        How weights and graph make ``Q``.
    """
    levels = penalty.spectral(np.asarray(weights, dtype=np.float64))
    base = float(penalty.spectral(np.asarray(rest)))
    inverse = graph_inverse(base, penalty.alpha, graph, len(vectors))
    own = base - levels > ALIKE * base
    U = vectors[:, own].astype(np.float64, copy=False)
    # C^-1 - U^T T U = N / base; as a difference it would lose the digits of N.
    N = np.diag(levels[own] / (base - levels[own]))
    W = inverse @ U
    if graph is not None and penalty.alpha > 0.0:
        bent = penalty.alpha * (U.T @ graph.laplacian(W))
        N += 0.5 * (bent + bent.T)
    F = W
    if U.shape[1]:
        root = cholesky(N, lower=True)
        F = solve_triangular(root, W.T, lower=True).T
    F = np.hstack([np.sqrt(base) * F, inverse.E])
    found = WideKernel(F, inverse.T, penalty.noise, inverse.error)
    return found.moved(lambda array: array.astype(vectors.dtype, copy=False))
