"""What a step has to know of a Gram matrix that is too large to be formed.

The leading eigenpairs come from subspace iteration with a Chebyshev filter, the density
of the other eigenvalues from Lanczos runs on random vectors; both start from fixed
random numbers, or from the step before, so that a fit can be repeated to the last bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from scipy.linalg import eigh, qr

from ncarl.core.types import Array
from ncarl.core.weights import spectrum

#: Degree of the filter, and how often it is applied at most: to the vectors of the
#: step before, and to random ones.
DEGREE, ROUNDS, COLD_ROUNDS = 4, 4, 6
#: The iteration ends when the sum of the leading singular values changes by less.
SETTLED = 1e-4
#: Lanczos steps on each random vector, and how many vectors: together about so many
#: random numbers, within limits.
LANCZOS_STEPS, PROBE_NUMBERS, FEWEST_PROBES, MOST_PROBES = 24, 60_000, 6, 100


class Operator(Protocol):
    """A positive semi-definite matrix that can be applied."""

    @property
    def n(self) -> int:
        """Number of columns."""
        ...

    def __matmul__(self, V: Array) -> Array:
        """The product with some vectors."""
        ...


@dataclass(frozen=True)
class WideGram:
    """A Gram matrix as its leading eigenpairs, its diagonal and the rest in short.

    Attributes
    ----------
    rank : int
        How many of the eigenpairs count as leading.
    values : array of shape (b,)
        Eigenvalues, the largest first; those past ``rank`` only serve the next step.
    vectors : array of shape (n, b)
        Their eigenvectors.
    diagonal : array of shape (n,)
        Diagonal of the matrix.
    nodes, masses : arrays of shape (nodes,)
        The other eigenvalues in short: so many (``masses``) near each of ``nodes``.
    """

    rank: int
    values: Array
    vectors: Array
    diagonal: Array
    nodes: Array
    masses: Array

    @property
    def leading(self) -> tuple[Array, Array]:
        """The eigenpairs that count."""
        return self.values[: self.rank], self.vectors[:, : self.rank]

    def points(self) -> Array:
        """Columns as points whose inner products are those of the leading part."""
        values, vectors = self.leading
        return vectors * np.sqrt(values)

    def remainder(self) -> Array:
        """What the diagonal has besides the leading part."""
        values, vectors = self.leading
        return np.maximum(self.diagonal - (vectors * vectors) @ values, 0.0)

    def singular_sum(self) -> float:
        """Sum of all singular values of the completed rows."""
        own = float(np.sqrt(self.leading[0]).sum())
        return own + float(self.masses @ np.sqrt(self.nodes))


def block_size(rank: int, n: int) -> int:
    """Vectors to iterate with, some more than are wanted; all for few columns."""
    wanted = rank + max(8, rank // 8)
    return wanted if wanted < n else n


def exact_gram(G: Array) -> WideGram:
    """The Gram matrix of few columns, all of it leading."""
    basis = spectrum(G)
    values, vectors = basis.eigenvalues[::-1], basis.vectors[:, ::-1]
    nothing = np.zeros(0)
    vectors = np.ascontiguousarray(vectors)
    return WideGram(len(G), values.copy(), vectors, G.diagonal().copy(), nothing,
                    nothing)  # fmt: skip


def summarised(
    G: Operator, diagonal: Array, rank: int, start: Array | None, dtype: str
) -> WideGram:
    """The Gram matrix in short.

    Parameters
    ----------
    G : Operator
        The matrix.
    diagonal : array of shape (n,)
        Its diagonal.
    rank : int
        Eigenpairs wanted, fewer than columns.
    start : array of shape (n, b) or None
        Vectors to begin with: eigenvectors of the step before.
    dtype : str
        Float type of the work.
    """
    n = G.n
    rounds = ROUNDS if start is not None else COLD_ROUNDS
    if start is None:
        shape = (n, block_size(rank, n))
        start = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    values, V = leading_pairs(G, start, rank, rounds)
    nodes, masses = tail_density(
        G, V[:, :rank], float(diagonal.sum()) - float(values[:rank].sum())
    )
    return WideGram(rank, values, V, diagonal, nodes, masses)


def leading_pairs(
    G: Operator, start: Array, rank: int, rounds: int = COLD_ROUNDS
) -> tuple[Array, Array]:
    """Leading eigenvalues, the largest first, and their eigenvectors.

    Examples
    --------
    >>> import numpy as np
    >>> class Diagonal:
    ...     n = 50
    ...     def __matmul__(self, V):
    ...         return V / (1.0 + np.arange(50.0))[:, None]
    >>> start = np.random.default_rng(0).standard_normal((50, 6))
    >>> leading_pairs(Diagonal(), start, 2)[0][:2].round(3).tolist()
    [1.0, 0.5]
    """
    values, V, GV = _rotated(G, start)
    total = float(np.sqrt(values[:rank]).sum())
    for _ in range(rounds):
        if values[0] <= 0.0:
            break  # there is nothing to find
        values, V, GV = _rotated(G, _filtered(G, V, GV, values))
        before, total = total, float(np.sqrt(values[:rank]).sum())
        if abs(total - before) <= SETTLED * total:
            break
    return values, V


def _rotated(G: Operator, V: Array) -> tuple[Array, Array, Array]:
    """Ritz values of the space of some vectors, Ritz vectors, and ``G`` times those."""
    V = np.asarray(qr(V, mode="economic", check_finite=False)[0])
    GV = G @ V
    H = (V.T @ GV).astype(np.float64)
    values, rotation = eigh(0.5 * (H + H.T))
    rotation = rotation[:, ::-1].astype(V.dtype)
    return np.maximum(values[::-1], 0.0), V @ rotation, GV @ rotation


def _filtered(G: Operator, V: Array, GV: Array, values: Array) -> Array:
    """A Chebyshev polynomial of ``G`` times ``V``, large where values are large.

    It stays below one up to the smallest of the values and is scaled so that it is
    near one at the largest.
    """
    # What lies this far down is nothing but rounding: no need to tell it apart.
    half = 0.5 * float(max(values[-1], 1e-8 * values[0]))
    first = half / (float(values[0]) - half)
    ratio = first
    W = (GV - half * V) * (ratio / half)
    for _ in range(DEGREE - 1):
        following = 1.0 / (2.0 / first - ratio)
        turn = (G @ W - half * W) * (2.0 * following / half) - (ratio * following) * V
        V, W, ratio = W, turn, following
    return W


def tail_density(G: Operator, U: Array, trace: float) -> tuple[Array, Array]:
    """Nodes and masses that stand for the eigenvalues besides the leading ones.

    Parameters
    ----------
    G : Operator
        The matrix.
    U : array of shape (n, p)
        Leading eigenvectors.
    trace : float
        Sum of the other eigenvalues; the nodes are scaled to add up to it.
    """
    n, p = U.shape
    count = min(MOST_PROBES, max(FEWEST_PROBES, -(-PROBE_NUMBERS // n)))
    probes = np.random.default_rng(1).choice([-1.0, 1.0], size=(n, count))
    diagonals, betweens = _lanczos(G, U, probes.astype(U.dtype))
    small = np.zeros((count, len(diagonals), len(diagonals)))
    at = np.arange(len(diagonals))
    small[:, at, at] = diagonals.T
    small[:, at[1:], at[:-1]] = betweens[:-1].T  # eigh reads the lower half
    values, vectors = np.linalg.eigh(small)
    found = np.maximum(values, 0.0).ravel()
    weights = (vectors[:, 0] ** 2 * ((n - p) / count)).ravel()
    size = float(found @ weights)
    if trace <= 0.0 or size <= 0.0:
        return np.zeros_like(found), weights
    return found * (trace / size), weights


def _lanczos(G: Operator, U: Array, V: Array) -> tuple[Array, Array]:
    """Diagonals of the tridiagonal matrices of Lanczos runs, one for each vector.

    The runs stay orthogonal to ``U``. One that has seen all there is goes on with
    zeros, which have no weight.
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
    """``||new - old||_F / ||new||_F`` of leading part and diagonal.

    The difference is formed in a basis of both leading parts, in double precision:
    inner products of the two would have to cancel.
    """
    nothing = WideDifference.of(new, None).norm
    gap = WideDifference.of(new, old).norm
    if nothing <= 0.0:
        return float("inf") if gap > 0.0 else 0.0
    return gap / nothing


@dataclass(frozen=True)
class WideDifference:
    """A low-rank matrix plus a diagonal.

    Attributes
    ----------
    small : array of shape (k, k)
        The low-rank part in an orthonormal basis.
    its_diagonal : array of shape (n,)
        The diagonal of that part.
    diagonal : array of shape (n,)
        What is added to it.
    """

    small: Array
    its_diagonal: Array
    diagonal: Array

    @classmethod
    def of(cls, new: WideGram, old: WideGram | None) -> WideDifference:
        """``new - old``; ``new`` itself without an old one."""
        signs = [(new, 1.0)] if old is None else [(new, 1.0), (old, -1.0)]
        parts = [(gram.leading, sign) for gram, sign in signs]
        weights = np.concatenate([sign * a for (a, _), sign in parts], dtype=float)
        U = np.concatenate([u.astype(np.float64) for (_, u), _ in parts], axis=1)
        R: Any = np.linalg.qr(U, mode="r")
        diagonal = sum(sign * g.remainder().astype(np.float64) for g, sign in signs)
        return cls((R * weights) @ R.T, (U * U) @ weights, np.asarray(diagonal))

    @property
    def norm(self) -> float:
        """Frobenius norm."""
        cross = 2.0 * float(self.its_diagonal @ self.diagonal)
        square = float(np.sum(self.small**2)) + cross + float(np.sum(self.diagonal**2))
        return float(np.sqrt(max(square, 0.0)))
