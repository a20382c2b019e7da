"""Linear algebra that the array API standard lacks: inverses, products, diagonals.

Each function has a generic form that follows the array API standard, and a fast path
for NumPy arrays or torch tensors where measurements showed a need. The NumPy paths call
BLAS and LAPACK through SciPy only: NumPy usually ships a BLAS of its own, and the idle
threads of one library, which spin for a while, slow the other down threefold.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device, is_numpy_array, is_torch_array
from scipy.linalg import eigh, get_blas_funcs, get_lapack_funcs
from scipy.sparse import csr_array

from ncarl.core.types import Array
from ncarl.exceptions import NotPositiveDefiniteError

#: Jitter starts at this many machine epsilons of the mean diagonal, grows tenfold
#: and gives up past ``MAX_JITTER`` (relative to the same diagonal).
MIN_JITTER_EPS = 64.0
MAX_JITTER = 1e-4
#: Side of the tiles in which matrices are transposed.
TILE_SIZE = 256
#: Fewest rows of the strips in which products with a symmetric result are formed.
MIN_STRIP_ROWS = 256


def _linalg_torch() -> Any:
    """`ncarl.core.linalg_torch`, imported late because PyTorch is optional."""
    from ncarl.core import linalg_torch

    return linalg_torch


def spd_inverse(A: Array, *, checked: bool = True) -> Array:
    """Inverse of a symmetric positive definite matrix, symmetric to the last bit.

    One that does not factorize gets jitter up to `MAX_JITTER` of its diagonal. With
    ``checked=False`` a tensor gives NaN instead, so that nothing waits for the device.
    """
    if is_torch_array(A) and not checked:
        return _linalg_torch().spd_inverse(A)
    for jitter in jitter_steps(A.dtype):
        shifted = add_diagonal(A, jitter * mean_diagonal(A)) if jitter else A
        inverse = _try_spd_inverse(shifted)
        if inverse is not None:
            return inverse
    raise NotPositiveDefiniteError(
        f"the {A.shape[0]} x {A.shape[0]} kernel matrix is not positive definite even "
        f"with {MAX_JITTER:g} of its diagonal added; raise delta, or lower alpha"
    )


def _try_spd_inverse(A: Array) -> Array | None:
    if is_numpy_array(A):
        factor = lapack_cholesky_or_none(A)
        if factor is None:
            return None
        inverse = _inverse_from_cholesky(factor)
        return inverse if np.isfinite(inverse.trace()) else None
    if is_torch_array(A):
        inverse = _linalg_torch().spd_inverse(A)
        return inverse if math.isfinite(mean_diagonal(inverse)) else None
    xp = array_namespace(A)
    try:
        factor = xp.linalg.cholesky(A)
    except Exception:  # each library has its own error for a failed factorization
        return None
    half = xp.linalg.solve(factor, identity_like(A))
    inverse = xp.linalg.matmul(half.T, half)
    # Some libraries let NaN through in silence.
    return inverse if math.isfinite(mean_diagonal(inverse)) else None


def _inverse_from_cholesky(factor: Array) -> Array:
    (potri,) = get_lapack_funcs(("potri",), (factor,))
    lower, _ = potri(factor, lower=True, overwrite_c=True)
    return symmetrize_from_lower(lower)


def spd_log_det(A: Array) -> Array:
    """``log|A|`` of a symmetric matrix; NaN if it is not positive definite."""
    if is_torch_array(A):
        return _linalg_torch().spd_log_det(A)
    factor = lapack_cholesky_or_none(A)
    return np.float64(np.nan) if factor is None else _log_det_from_cholesky(factor)


def spd_log_det_and_trace(A: Array, W: Array) -> tuple[Array, Array]:
    """``log|A|`` and ``tr(W A^-1)``; NaN if ``A`` is not positive definite.

    For NumPy arrays and torch tensors; ``W`` is symmetric.
    """
    if is_torch_array(A):
        fast = _linalg_torch()
        return fast.spd_log_det(A), (fast.spd_inverse(A) * W).sum()
    factor = lapack_cholesky_or_none(A)
    if factor is None:
        return np.float64(np.nan), np.float64(np.nan)
    log_det = _log_det_from_cholesky(factor)
    return log_det, np.einsum("ij,ij->", _inverse_from_cholesky(factor), W)


def _log_det_from_cholesky(factor: Array) -> Array:
    return 2.0 * np.sum(np.log(factor.diagonal()))


def lapack_cholesky_or_none(A: Array) -> Array | None:
    """Lower Cholesky factor of a NumPy array, or None if the factorization fails."""
    (potrf,) = get_lapack_funcs(("potrf",), (A,))
    factor, failed = potrf(A, lower=True)
    # LAPACK does not report NaN; it always reaches the last pivot.
    return None if failed or not np.isfinite(factor[-1, -1]) else factor


def cholesky_with_jitter(A: Array, indices: Array, s: float) -> tuple[Array, float]:
    """Lower Cholesky factor of ``A[indices, indices] + s I``, and the jitter used."""
    block = A[np.ix_(indices, indices)]
    scale = mean_diagonal(block) + s
    for jitter in jitter_steps(A.dtype):
        factor = batched_cholesky_or_none(add_diagonal(block, s + jitter * scale))
        if factor is not None:
            return factor, jitter
    raise not_positive_definite_error(len(indices))


def batched_cholesky_or_none(A: Array) -> Array | None:
    """Lower Cholesky factors of a stack of matrices, or None if one fails."""
    try:
        factor = np.linalg.cholesky(A)
    except np.linalg.LinAlgError:
        return None
    return factor if np.isfinite(factor[..., -1:, -1:]).all() else None


def dtype_name(dtype: object) -> str:
    """Name of a dtype of any library, such as "float32"."""
    return str(dtype).split(".")[-1]


def jitter_steps(dtype: object) -> list[float]:
    """Relative jitters to try in turn, starting with 0."""
    steps = [0.0]
    jitter = MIN_JITTER_EPS * float(np.finfo(np.dtype(dtype_name(dtype))).eps)
    while jitter <= MAX_JITTER:
        steps.append(jitter)
        jitter *= 10.0
    return steps


def not_positive_definite_error(size: int) -> NotPositiveDefiniteError:
    """Error for a row whose kernel submatrix cannot be factorized."""
    return NotPositiveDefiniteError(
        f"the kernel block of a row ({size} x {size}) is not positive definite even "
        f"with {MAX_JITTER:g} of its diagonal added; raise delta, set gamma to model "
        "the noise, or use weights='floor'"
    )


def symmetric_eigen(A: Array, *, overwrite: bool = False) -> tuple[Array, Array]:
    """Eigenvalues (increasing) and eigenvectors of a symmetric matrix."""
    if is_numpy_array(A):
        # Symmetric, so the transposed view is the same matrix in Fortran order.
        return eigh(A.T, driver="evd", check_finite=False, overwrite_a=overwrite)  # type: ignore[no-any-return]
    values, vectors = array_namespace(A).linalg.eigh(A)
    return values, vectors


def gram_matrix(X: Array) -> Array:
    """``X^T X``, symmetric to the last bit (NumPy calls ``syrk`` for it)."""
    return _linalg_torch().gram_matrix(X) if is_torch_array(X) else X.T @ X


def congruence(U: Array, weights: Array) -> Array:
    """``U diag(weights) U^T`` for nonnegative weights.

    Computed as ``A A^T``, which is symmetric to the last bit and half the work.
    """
    if is_torch_array(U):
        return _linalg_torch().congruence(U, weights)
    xp = array_namespace(U)
    A = U * xp.sqrt(weights)[None, :]
    if is_numpy_array(A):
        (syrk,) = get_blas_funcs(("syrk",), (A,))
        lower = syrk(1.0, A, lower=True)
        del A  # n x n arrays dominate the memory of a fit
        return symmetrize_from_lower(lower)
    return A @ A.T


def sandwich(K: Array, B: Array) -> Array:
    """``K B K`` for symmetric ``K`` and ``B``, symmetric to the last bit."""
    if not is_numpy_array(K):
        return symmetrize(K @ B @ K)
    # In strips, to compute little more than the lower half.
    (gemm,) = get_blas_funcs(("gemm",), (K, B))
    n = K.shape[0]
    whole = np.empty((n, n), dtype=K.dtype)
    # Symmetric, so the transposed views are the same matrices in Fortran order, whose
    # strips of columns BLAS takes as they are.
    half, step = gemm(1.0, B.T, K.T), max(MIN_STRIP_ROWS, -(-n // 4))
    for first in range(0, n, step):
        last = min(first + step, n)
        strip = gemm(1.0, K.T[:, first:last], half[:, :last], trans_a=True)
        square = strip[:, first:last]
        whole[first:last, :first] = strip[:, :first]
        whole[:first, first:last] = strip[:, :first].T
        whole[first:last, first:last] = (square + square.T) * 0.5
    return whole


def symmetrize(A: Array) -> Array:
    """``(A + A^T) / 2``."""
    if is_numpy_array(A):
        B = np.empty(A.shape, dtype=A.dtype)
        for rows, columns in _lower_tiles(A.shape[0]):
            tile = A[rows, columns] + A[columns, rows].T
            tile *= 0.5
            B[rows, columns] = tile
            B[columns, rows] = tile.T
        return B
    return (A + A.T) * 0.5


def symmetrize_from_lower(lower: Array) -> Array:
    """Symmetric matrix with the given lower half, which is overwritten."""
    for rows, columns in _lower_tiles(lower.shape[0]):
        if rows != columns:
            lower[columns, rows] = lower[rows, columns].T
        else:
            tile = np.tril(lower[rows, rows])
            lower[rows, rows] = tile + np.tril(tile, -1).T
    # Symmetric, so the transposed view is the same matrix in C order.
    return np.ascontiguousarray(lower.T)


def _lower_tiles(n: int) -> Iterator[tuple[slice, slice]]:
    # Transposing tile by tile stays in the cache and is several times faster.
    for top in range(0, n, TILE_SIZE):
        for left in range(0, top + 1, TILE_SIZE):
            yield slice(top, top + TILE_SIZE), slice(left, left + TILE_SIZE)


def identity_like(A: Array) -> Array:
    """Identity matrix of the size, dtype and device of the square matrix ``A``."""
    return array_namespace(A).eye(A.shape[0], dtype=A.dtype, device=device(A))


def add_diagonal(A: Array, value: float) -> Array:
    """``A + value I`` as a new array."""
    if is_numpy_array(A):
        B = A.copy()
        B.flat[:: A.shape[0] + 1] += value
        return B
    if is_torch_array(A):
        return _linalg_torch().add_diagonal(A, value)
    return A + value * identity_like(A)


def set_diagonal(A: Array, diagonal: Array | float) -> Array:
    """``A`` with its diagonal replaced, possibly in place."""
    if is_numpy_array(A):
        np.fill_diagonal(A, diagonal)
        return A
    if is_torch_array(A):
        return _linalg_torch().set_diagonal(A, diagonal)
    xp = array_namespace(A)
    eye = identity_like(A)
    wanted = diagonal if isinstance(diagonal, float) else diagonal[:, None]
    return xp.where(eye > 0.0, eye * wanted, A)


def mean_diagonal(A: Array) -> float:
    """Mean of the diagonal of a square matrix."""
    return float(array_namespace(A).linalg.trace(A)) / max(1, int(A.shape[0]))


def embed_submatrix(A: Array, indices: Array, n: int, diagonal: Array | float) -> Array:
    """Matrix (n x n) with ``A`` at rows and columns ``indices``, diagonal elsewhere."""
    whole = array_namespace(A).zeros((n, n), dtype=A.dtype, device=device(A))
    whole[indices[:, None], indices[None, :]] = A
    others = np.setdiff1d(np.arange(n), indices)
    whole[others, others] = diagonal
    return whole


def embed_sparse(A: Any, indices: Array, n: int, diagonal: float) -> csr_array:
    """`embed_submatrix` for a SciPy sparse array."""
    A, others = A.tocoo(), np.setdiff1d(np.arange(n), indices)
    rows = np.concatenate([indices[A.coords[0]], others])
    columns = np.concatenate([indices[A.coords[1]], others])
    data = np.concatenate([A.data, np.full(len(others), diagonal, A.dtype)])
    whole = csr_array((data, (rows, columns)), shape=(n, n))
    whole.sort_indices()
    return whole


def pad_with_identity(U: Array, order: Array) -> Array:
    """``diag(I, U)`` with row ``i`` moved to row ``order[i]``."""
    n, count = order.shape[0], order.shape[0] - U.shape[0]
    if is_numpy_array(U):
        whole = np.zeros((n, n), dtype=U.dtype, order="F")
        whole[order[:count], np.arange(count)] = 1.0
        whole[order[count:], count:] = U
        return whole
    xp = array_namespace(U)
    eye = xp.eye(n, dtype=U.dtype, device=device(U))
    right = xp.concat([eye[:count, count:], U], axis=0)
    whole = xp.concat([eye[:, :count], right], axis=1)
    return xp.take(whole, xp.argsort(order), axis=0)


def positive_part(A: Array) -> Array:
    """``max(A, 0)``, possibly in place."""
    if is_numpy_array(A):
        return np.maximum(A, 0.0, out=A)
    return array_namespace(A).clip(A, 0.0, None)


def k_smallest(A: Array, k: int) -> Array:
    """The ``k`` smallest entries of each row, the k-th smallest last."""
    if is_numpy_array(A):
        return np.partition(A, k - 1, axis=1)[:, :k].copy()
    if is_torch_array(A):
        return _linalg_torch().k_smallest(A, k)
    return array_namespace(A).sort(A, axis=1)[:, :k]


def correlation_from_covariance(K: Array) -> Array:
    """Correlation of a covariance (NumPy); columns without variance have none."""
    stds = np.sqrt(np.maximum(K.diagonal(), 0.0))
    safe = np.where(stds > 0.0, stds, 1.0)
    C: Array = np.clip(K / safe[:, None] / safe[None, :], -1.0, 1.0)
    np.fill_diagonal(C, 1.0)
    return C
