"""Singular value decompositions truncated at a threshold, and matrix norms.

`svd_above` has three algorithms: all triplets by LAPACK, the Gram matrix if the
threshold is large enough for its precision, and Lanczos if the matrix is large and few
triplets are expected.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from array_api_compat import array_namespace, is_numpy_array
from scipy.sparse.linalg import ArpackError, LinearOperator, svds

from ncarl.core.types import Array

#: The Gram matrix gives singular values up to about eps s_1^2 / s. With a threshold of
#: at least this part of the largest that is 1e-12 of the largest, in half the time.
GRAM_MIN_THRESHOLD = 1e-3
#: Singular values below this part of the largest are lost in a Gram matrix.
GRAM_MIN_SINGULAR_VALUE = 1e-6
#: Up to this many rows or columns all triplets are computed.
LANCZOS_MIN_SIZE = 2000
#: Beyond this part of all triplets, a full SVD is faster than Lanczos.
LANCZOS_MAX_FRACTION = 0.2
#: Triplets requested beyond those expected.
LANCZOS_OVERSAMPLING = 5
#: Vectors and steps of the power method for a spectral norm, and its safety factor.
N_PROBES, N_POWER_STEPS, NORM_MARGIN = 4, 4, 1.05


class SVDResult(NamedTuple):
    """Singular vectors and values, the largest first."""

    U: Array  # (m, r): left singular vectors
    s: Any  # (r,): singular values, always a NumPy array
    Vt: Array  # (r, n): right singular vectors, as rows

    def reconstruct(self, s: Any) -> Array:
        """``U diag(s) Vt`` of the first ``len(s)`` triplets with new values ``s``."""
        r = len(s)
        return (self.U[:, :r] * asarray_like(self.U, s)) @ self.Vt[:r]


def svd_above(
    W: Array, threshold: float, expected_rank: int | None = None
) -> SVDResult:
    """Singular triplets with values above ``threshold``.

    ``expected_rank`` is the expected number, such as that of the previous iterate.
    """
    # The largest singular value is at most the Frobenius norm, which is cheap.
    bound = frobenius_norm(W)
    if bound <= threshold:
        return SVDResult(W[:, :0], np.empty(0), W[:0])
    if expected_rank is not None and min(W.shape) > LANCZOS_MIN_SIZE:
        count = expected_rank + LANCZOS_OVERSAMPLING
        if count <= LANCZOS_MAX_FRACTION * min(W.shape) and is_numpy_array(W):
            return _keep_above(_lanczos_svd(W, threshold, count), threshold)
    if threshold >= GRAM_MIN_THRESHOLD * bound:
        return _svd_from_gram(W, threshold)
    return _keep_above(full_svd(W), threshold)


def svd_tall(F: Array) -> SVDResult:
    """Triplets of a matrix with few columns, from its Gram matrix.

    Those below `GRAM_MIN_SINGULAR_VALUE` of the Frobenius norm are left out.
    """
    size = frobenius_norm(F)
    if size == 0.0:
        return full_svd(F)
    return _svd_from_gram(F, GRAM_MIN_SINGULAR_VALUE * size)


def _svd_from_gram(W: Array, threshold: float) -> SVDResult:
    if W.shape[0] < W.shape[1]:
        V, s, Ut = _svd_from_gram(W.T, threshold)
        return SVDResult(Ut.T, s, V.T)
    xp = array_namespace(W)
    values, vectors = xp.linalg.eigh(W.T @ W)
    squares = to_numpy(values)[::-1]
    r = int(np.count_nonzero(squares > threshold * threshold))
    n = len(squares)
    V = xp.flip(vectors[:, n - r :], axis=1)
    s = np.sqrt(squares[:r])
    return SVDResult((W @ V) / asarray_like(W, s), s, V.T)


def full_svd(W: Array) -> SVDResult:
    """All singular triplets of a matrix."""
    if not is_numpy_array(W):
        return _full_svd_on_device(W)
    try:
        U, s, Vt = np.linalg.svd(W, full_matrices=False)
    except np.linalg.LinAlgError:  # divide and conquer gives up now and then
        U, s, Vt = scipy.linalg.svd(W, full_matrices=False, lapack_driver="gesvd")
    return SVDResult(U, s, Vt)


def _full_svd_on_device(W: Array) -> SVDResult:
    """All triplets on a device, from an eigenproblem of twice the size.

    The eigenvalues of ``[[0, R], [R^T, 0]]`` are the singular values and their
    negatives, at full precision. A GPU solves it many times faster than an SVD.
    """
    xp = array_namespace(W)
    if W.shape[0] < W.shape[1]:
        V, s, Ut = _full_svd_on_device(W.T)
        return SVDResult(Ut.T, s, V.T)
    Q, R = xp.linalg.qr(W)
    n = R.shape[0]
    both = xp.zeros((2 * n, 2 * n), dtype=W.dtype, device=W.device)
    both[:n, n:] = R
    both[n:, :n] = R.T
    values, vectors = xp.linalg.eigh(both)
    order = xp.arange(2 * n - 1, n - 1, -1, device=W.device)
    s, pairs = to_numpy(values[order]), vectors[:, order]
    # Both halves of an eigenvector have the same norm, except at values near 0.
    left, right = _normalize_columns(pairs[:n]), _normalize_columns(pairs[n:])
    return SVDResult(Q @ left, np.maximum(s, 0.0), right.T)


def _lanczos_svd(W: Array, threshold: float, n_components: int) -> SVDResult:
    """Largest triplets, twice as many until one is at or below the threshold.

    All triplets by LAPACK if that is faster, or if the iteration does not converge.
    """
    operator = LinearOperator(
        W.shape, W.__matmul__, W.T.__matmul__,
        matmat=W.__matmul__, rmatmat=W.T.__matmul__, dtype=W.dtype,
    )  # fmt: skip
    start = _lanczos_start(min(W.shape))
    while n_components <= LANCZOS_MAX_FRACTION * min(W.shape):
        try:
            U, s, Vt = svds(operator, k=n_components, v0=start)
        except ArpackError:
            break
        if s.min() <= threshold:
            order = np.argsort(-s, kind="stable")
            return SVDResult(U[:, order], s[order], Vt[order])
        n_components *= 2
    return full_svd(W)


def _lanczos_start(n: int) -> Any:
    # Not a vector of ones, which is in the null space of a centered matrix.
    return np.random.default_rng(0).standard_normal(n)


def _keep_above(svd: SVDResult, threshold: float) -> SVDResult:
    r = int(np.count_nonzero(svd.s > threshold))
    return SVDResult(svd.U[:, :r], svd.s[:r], svd.Vt[:r])


def frobenius_norm(A: Array) -> float:
    """Frobenius norm of a matrix, or Euclidean norm of a vector."""
    if is_numpy_array(A):
        flat = A.ravel()
        return float(np.sqrt(flat @ flat))
    return float(array_namespace(A).linalg.vector_norm(A))


def spectral_norm(A: Any) -> float:
    """Largest singular value of a dense or sparse matrix."""
    if hasattr(A, "tocsr"):
        if min(A.shape) < 3 or not A.data.any():
            return spectral_norm(A.toarray())
        start = _lanczos_start(min(A.shape))
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
    return float(full_svd(A).s.sum())


def initial_probe(n: int) -> Any:
    """Random start vectors of the power method, shape (n, N_PROBES)."""
    return np.random.default_rng(0).standard_normal((n, N_PROBES))


def spectral_norm_bound(A: Array, probe: Array) -> tuple[float, Array]:
    """Upper estimate of the spectral norm by the power method, and its last vectors."""
    # A few steps are enough if the probe comes from a matrix close to A.
    xp = array_namespace(A)
    for _ in range(N_POWER_STEPS):
        probe = _normalize_columns(A.T @ (A @ probe))
    return NORM_MARGIN * float(xp.max(xp.linalg.vector_norm(A @ probe, axis=0))), probe


def _normalize_columns(A: Array) -> Array:
    xp = array_namespace(A)
    lengths = xp.linalg.vector_norm(A, axis=0)
    return A / xp.where(lengths > 0.0, lengths, xp.ones_like(lengths))


def asarray_like(A: Array, values: Any) -> Array:
    """A NumPy array as an array of the library, dtype and device of ``A``."""
    if is_numpy_array(A):
        return np.asarray(values, dtype=A.dtype)
    return array_namespace(A).asarray(values, dtype=A.dtype, device=A.device)


def to_numpy(values: Array) -> Any:
    """An array of any library as a NumPy array."""
    return values if is_numpy_array(values) else np.asarray(values.cpu())
