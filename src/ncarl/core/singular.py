"""Singular triplets of a matrix, as many as a threshold lets through.

Three ways to the same triplets: all of them (LAPACK), through the Gram matrix where
the threshold is large enough for its digits, and a few of them by Lanczos where the
matrix is large and few are wanted.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from array_api_compat import array_namespace, is_numpy_array
from scipy.sparse.linalg import ArpackError, LinearOperator, svds

from ncarl.core.types import Array

#: The Gram matrix knows singular values to about eps s_1^2 / s; with a threshold of at
#: least this part of the largest that is 1e-12 of the largest, for half the time.
GRAM_SHARE = 1e-3
#: Values so small a part of the largest cannot be had from a Gram matrix.
SMALLEST = 1e-6
#: Below this many rows and columns all triplets are quick to get.
FEW = 2000
#: Beyond this part of all triplets, all are had sooner than some.
MANY = 0.2
#: Triplets asked for beyond those expected.
SPARE = 5


class Triplets(NamedTuple):
    """Singular vectors and values, largest first; the values are a NumPy array.

    Attributes
    ----------
    U : array of shape (m, r)
        Left vectors.
    s : numpy array of shape (r,)
        Singular values.
    Vt : array of shape (r, n)
        Right vectors, as rows.
    """

    U: Array
    s: Any
    Vt: Array

    def product(self, s: Any) -> Array:
        """``U diag(s) Vt`` with other values, one for each of the first triplets."""
        r = len(s)
        return (self.U[:, :r] * like(self.U, s)) @ self.Vt[:r]


def like(A: Array, values: Any) -> Array:
    """A NumPy array where ``A`` is, in its precision."""
    if is_numpy_array(A):
        return np.asarray(values, dtype=A.dtype)
    xp = array_namespace(A)
    return xp.asarray(values, dtype=A.dtype, device=A.device)


def host(values: Array) -> Any:
    """A small array as a NumPy array."""
    return values if is_numpy_array(values) else np.asarray(values.cpu())


def triplets(W: Array) -> Triplets:
    """All singular triplets of a matrix."""
    if not is_numpy_array(W):
        return _all_elsewhere(W)
    try:
        U, s, Vt = np.linalg.svd(W, full_matrices=False)
    except np.linalg.LinAlgError:  # divide and conquer gives up now and then
        U, s, Vt = scipy.linalg.svd(W, full_matrices=False, lapack_driver="gesvd")
    return Triplets(U, s, Vt)


def _all_elsewhere(W: Array) -> Triplets:
    """All triplets on a device, by an eigenproblem of twice the size.

    ``[[0, R], [R^T, 0]]`` has the singular values, and their negatives, as eigenvalues
    and loses no digits. Devices solve it many times faster than they find an SVD.
    """
    xp = array_namespace(W)
    if W.shape[0] < W.shape[1]:
        V, s, Ut = _all_elsewhere(W.T)
        return Triplets(Ut.T, s, V.T)
    Q, R = xp.linalg.qr(W)
    n = R.shape[0]
    both = xp.zeros((2 * n, 2 * n), dtype=W.dtype, device=W.device)
    both[:n, n:] = R
    both[n:, :n] = R.T
    values, vectors = xp.linalg.eigh(both)
    order = xp.arange(2 * n - 1, n - 1, -1, device=W.device)
    s, pairs = host(values[order]), vectors[:, order]
    # Halves of a pair are equally long but for values near 0, which keep their own.
    left, right = _unit_columns(pairs[:n]), _unit_columns(pairs[n:])
    return Triplets(Q @ left, np.maximum(s, 0.0), right.T)


def _unit_columns(A: Array) -> Array:
    """Columns scaled to length 1."""
    xp = array_namespace(A)
    lengths = xp.linalg.vector_norm(A, axis=0)
    return A / xp.where(lengths > 0.0, lengths, xp.ones_like(lengths))


def leading(W: Array, cut: float, expected: int | None = None) -> Triplets:
    """Singular triplets with values above ``cut``.

    Parameters
    ----------
    W : array of shape (m, n)
        The matrix.
    cut : float
        Values at or below it are not wanted.
    expected : int, optional
        How many are expected, from an earlier matrix like this one.

    Examples
    --------
    >>> import numpy as np
    >>> leading(np.diag([3.0, 2.0, 1.0]), 1.5).s
    array([3., 2.])
    """
    # A bound that costs nothing: the largest value is at most the Frobenius norm.
    most = frobenius(W)
    if most <= cut:
        return nothing(W)
    shorter = min(W.shape)
    few = expected is not None and expected + SPARE <= MANY * shorter
    if few and shorter > FEW and is_numpy_array(W):
        assert expected is not None
        return above(_some(W, cut, expected + SPARE), cut)
    if cut >= GRAM_SHARE * most:
        return _from_gram(W, cut)
    return above(triplets(W), cut)


def nothing(W: Array) -> Triplets:
    """No triplets, where ``W`` is."""
    return Triplets(W[:, :0], np.empty(0), W[:0])


def above(found: Triplets, cut: float) -> Triplets:
    """The triplets with values above ``cut``."""
    r = int(np.count_nonzero(found.s > cut))
    return Triplets(found.U[:, :r], found.s[:r], found.Vt[:r])


def _from_gram(W: Array, cut: float) -> Triplets:
    """Triplets above a cut that is not small, from the Gram matrix."""
    if W.shape[0] < W.shape[1]:
        V, s, Ut = _from_gram(W.T, cut)
        return Triplets(Ut.T, s, V.T)
    xp = array_namespace(W)
    values, vectors = xp.linalg.eigh(W.T @ W)
    squares = host(values)[::-1]
    r = int(np.count_nonzero(squares > cut * cut))
    n = len(squares)
    # Nearly equal values may come in any order; vectors follow theirs.
    V = xp.flip(vectors[:, n - r :], axis=1)
    s = np.sqrt(squares[:r])
    return Triplets((W @ V) / like(W, s), s, V.T)


def thin(F: Array) -> Triplets:
    """Triplets of a matrix with few columns, from its Gram matrix.

    Values below `SMALLEST` of the largest, of which that knows too little, are left
    out with their vectors.
    """
    size = frobenius(F)
    return _from_gram(F, SMALLEST * size) if size > 0.0 else triplets(F)


def _some(W: Array, cut: float, count: int) -> Triplets:
    """The triplets above a cut by Lanczos, or all where they turn out to be many."""
    operator = LinearOperator(
        W.shape, W.__matmul__, W.T.__matmul__,
        matmat=W.__matmul__, rmatmat=W.T.__matmul__, dtype=W.dtype,
    )  # fmt: skip
    found = lanczos(operator, cut, count)
    return triplets(W) if found is None else found


def lanczos(
    operator: Any, cut: float, count: int, most: int | None = None
) -> Triplets | None:
    """The largest triplets of an operator, more and more till one is below the cut.

    Parameters
    ----------
    operator : LinearOperator of shape (m, n)
        The matrix.
    cut : float
        Values at or below it are not wanted.
    count : int
        How many to ask for first.
    most : int, optional
        More than these are not wanted.

    Returns
    -------
    Triplets or None
        None where they are so many that all of them are had sooner, or where the
        iteration does not settle.
    """
    shorter = min(operator.shape)
    # Not a vector of ones, which a centred matrix knows nothing of.
    start = np.random.default_rng(0).standard_normal(shorter)
    while count <= MANY * shorter:
        try:
            U, s, Vt = svds(operator, k=count, v0=start)
        except ArpackError:
            return None
        if s.min() <= cut or (most is not None and count >= most):
            order = np.argsort(-s, kind="stable")
            return Triplets(U[:, order], s[order], Vt[order])
        count *= 2
    return None


def frobenius(A: Array) -> float:
    """Frobenius norm of a matrix, or length of a vector."""
    if is_numpy_array(A):
        flat = A.ravel()
        return float(np.sqrt(flat @ flat))
    return float(array_namespace(A).linalg.vector_norm(A))


def spectral_norm(A: Any) -> float:
    """Largest singular value of a dense or sparse matrix."""
    if hasattr(A, "tocsr"):
        if min(A.shape) < 3 or not A.data.any():
            return spectral_norm(A.toarray())
        # Not a vector of ones, which a centred matrix knows nothing of.
        start = np.random.default_rng(0).standard_normal(min(A.shape))
        return float(svds(A, k=1, v0=start, return_singular_vectors=False)[0])
    if not is_numpy_array(A):
        xp = array_namespace(A)
        gram = A.T @ A if A.shape[0] >= A.shape[1] else A @ A.T
        return math.sqrt(max(float(xp.linalg.eigvalsh(gram)[-1]), 0.0))
    return float(np.linalg.norm(A, 2)) if min(A.shape) else 0.0


def nuclear_norm(A: Array) -> float:
    """Sum of the singular values."""
    if is_numpy_array(A):
        return float(np.linalg.svd(A, compute_uv=False).sum())
    return float(triplets(A).s.sum())
