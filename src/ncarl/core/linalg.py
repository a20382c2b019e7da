"""What the array standard lacks: symmetric inverses, order statistics, shortcuts.

Each function has an agnostic form that follows the array API standard; a shortcut for
NumPy arrays or torch tensors stands in front of it where a measurement asked for one.
Those for NumPy call BLAS and LAPACK through SciPy only: NumPy usually ships a BLAS of
its own, and the idle threads of one library, which spin for a while, slow the other
down threefold.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from array_api_compat import (
    array_namespace,
    device,
    is_numpy_array,
    is_torch_array,
)
from scipy.linalg import eigh, get_blas_funcs, get_lapack_funcs

from ncarl.core.types import Array
from ncarl.exceptions import NotPositiveDefiniteError

#: Jitter starts at this many machine epsilons of the mean diagonal, grows tenfold
#: and gives up past ``LAST_JITTER`` (relative to the same diagonal).
FIRST_JITTER = 64.0
LAST_JITTER = 1e-4
#: Side of the tiles in which matrices are transposed.
TILE = 256
#: Products of symmetric outcome are taken in strips of at least so many rows.
STRIP = 256


def _torch() -> Any:
    """The shortcuts for torch tensors; torch is there if a tensor is."""
    from ncarl.core import linalg_torch

    return linalg_torch


def jitter_steps(dtype: object) -> list[float]:
    """Relative jitters to try in turn, the first of them 0.

    Examples
    --------
    >>> steps = jitter_steps("float64")
    >>> steps[0], steps[-1] <= LAST_JITTER
    (0.0, True)
    """
    steps = [0.0]
    jitter = FIRST_JITTER * float(np.finfo(np.dtype(str(dtype).split(".")[-1])).eps)
    while jitter <= LAST_JITTER:
        steps.append(jitter)
        jitter *= 10.0
    return steps


def identity_like(A: Array) -> Array:
    """The identity of the size, dtype and device of the square matrix ``A``."""
    xp = array_namespace(A)
    return xp.eye(A.shape[0], dtype=A.dtype, device=device(A))


def add_diagonal(A: Array, value: float) -> Array:
    """``A + value I`` as a new array."""
    if is_numpy_array(A):
        B = A.copy()
        B.flat[:: A.shape[0] + 1] += value
        return B
    if is_torch_array(A):
        return _torch().add_diagonal(A, value)
    return A + value * identity_like(A)


def with_diagonal(A: Array, diagonal: Array | float) -> Array:
    """``A`` with another diagonal; the array given may be changed and given back."""
    if is_numpy_array(A):
        np.fill_diagonal(A, diagonal)
        return A
    if is_torch_array(A):
        return _torch().with_diagonal(A, diagonal)
    xp = array_namespace(A)
    eye = identity_like(A)
    wanted = diagonal if isinstance(diagonal, float) else diagonal[:, None]
    return xp.where(eye > 0.0, eye * wanted, A)


def mean_diagonal(A: Array) -> float:
    """Mean of the diagonal of a square matrix."""
    xp = array_namespace(A)
    trace: float = float(xp.linalg.trace(A))
    return trace / max(1, int(A.shape[0]))


def spd_inverse(A: Array, *, checked: bool = True) -> Array:
    """Inverse of a symmetric positive definite matrix, symmetric to the last bit.

    ``checked=False`` allows NaN in place of an error and of jitter, where work is
    queued and asking whether it has gone well means waiting for it.

    Raises
    ------
    NotPositiveDefiniteError
        If no jitter up to `LAST_JITTER` of the diagonal makes ``A`` factorise.

    Examples
    --------
    >>> import numpy as np
    >>> spd_inverse(np.diag([2.0, 4.0]))
    array([[0.5 , 0.  ],
           [0.  , 0.25]])
    """
    if is_torch_array(A) and not checked:
        return _torch().spd_inverse(A)
    for jitter in jitter_steps(A.dtype):
        shifted = add_diagonal(A, jitter * mean_diagonal(A)) if jitter else A
        inverse = _try_spd_inverse(shifted)
        if inverse is not None:
            return inverse
    raise NotPositiveDefiniteError(
        f"the {A.shape[0]} x {A.shape[0]} kernel matrix is not positive definite even "
        f"with {LAST_JITTER:g} of its diagonal added; raise delta, or lower alpha"
    )


def _try_spd_inverse(A: Array) -> Array | None:
    """Inverse of ``A``, or None where its Cholesky factorisation fails."""
    if is_numpy_array(A):
        factor = factor_or_none(A)
        if factor is None:
            return None
        (potri,) = get_lapack_funcs(("potri",), (factor,))
        lower, failed = potri(factor, lower=True, overwrite_c=True)
        if failed or not np.isfinite(lower.trace()):
            return None
        return mirrored(lower)
    if is_torch_array(A):
        inverse = _torch().spd_inverse(A)
        return inverse if math.isfinite(mean_diagonal(inverse)) else None
    xp = array_namespace(A)
    try:
        factor = xp.linalg.cholesky(A)
    except Exception:  # each library has its own error for a failed factorisation
        return None
    half = xp.linalg.solve(factor, identity_like(A))
    inverse = xp.linalg.matmul(half.T, half)
    # Some libraries let NaN through in silence.
    return inverse if math.isfinite(mean_diagonal(inverse)) else None


def factor_or_none(A: Array) -> Array | None:
    """Lower Cholesky factor of a NumPy array; None where it has none."""
    (potrf,) = get_lapack_funcs(("potrf",), (A,))
    factor, failed = potrf(A, lower=True)
    # NaN can pass a factorisation in silence; it always reaches the last pivot.
    return None if failed or not np.isfinite(factor[-1, -1]) else factor


def factorised(A: Array, chosen: Array, s: float) -> tuple[Array, float]:
    """Lower Cholesky factor of ``A[chosen, chosen] + s I``, and the jitter it took.

    Raises
    ------
    NotPositiveDefiniteError
        If no jitter up to `LAST_JITTER` of the diagonal makes the block factorise.
    """
    block = A[np.ix_(chosen, chosen)]
    scale = mean_diagonal(block) + s
    for jitter in jitter_steps(A.dtype):
        factor = cholesky_or_none(add_diagonal(block, s + jitter * scale))
        if factor is not None:
            return factor, jitter
    raise not_factorised(len(chosen))


def cholesky_or_none(A: Array) -> Array | None:
    """Lower Cholesky factors of a stack of matrices; None where one has none.

    LAPACK lets NaN through in silence; it always reaches the last pivot.
    """
    try:
        factor = np.linalg.cholesky(A)
    except np.linalg.LinAlgError:
        return None
    return factor if np.isfinite(factor[..., -1:, -1:]).all() else None


def not_factorised(size: int) -> NotPositiveDefiniteError:
    """The error for a row whose block cannot be factorised."""
    return NotPositiveDefiniteError(
        f"the kernel block of a row ({size} x {size}) is not positive definite even "
        f"with {LAST_JITTER:g} of its diagonal added; raise delta, set gamma to model "
        "the noise, or use weights='floor'"
    )


def smallest(A: Array, count: int) -> Array:
    """The ``count`` smallest entries of each row, the largest of them last.

    Examples
    --------
    >>> import numpy as np
    >>> smallest(np.array([[3.0, 1.0, 2.0]]), 2)
    array([[1., 2.]])
    """
    if is_numpy_array(A):
        return np.partition(A, count - 1, axis=1)[:, :count].copy()
    if is_torch_array(A):
        return _torch().smallest(A, count)
    xp = array_namespace(A)
    return xp.sort(A, axis=1)[:, :count]


def symmetric_eigen(A: Array, *, overwrite: bool = False) -> tuple[Array, Array]:
    """Eigenvalues (increasing) and eigenvectors of a symmetric matrix.

    ``overwrite`` allows the work to be done in the memory of ``A``.
    """
    if is_numpy_array(A):
        # Symmetric, so the transposed view is the same matrix in Fortran order.
        return eigh(A.T, driver="evd", check_finite=False, overwrite_a=overwrite)  # type: ignore[no-any-return]
    xp = array_namespace(A)
    values, vectors = xp.linalg.eigh(A)
    return values, vectors


def bordered_by_identity(U: Array, order: Array) -> Array:
    """``diag(I, U)`` with its row ``i`` moved to row ``order[i]``."""
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


def congruence(U: Array, weights: Array) -> Array:
    """``U diag(weights) U^T`` for weights that are not negative.

    Written as ``A A^T``, which is symmetric to the last bit and half the work.
    """
    if is_torch_array(U):
        return _torch().congruence(U, weights)
    xp = array_namespace(U)
    A = U * xp.sqrt(weights)[None, :]
    if is_numpy_array(A):
        (syrk,) = get_blas_funcs(("syrk",), (A,))
        lower = syrk(1.0, A, lower=True)
        del A  # n x n arrays are what memory is made of here
        return mirrored(lower)
    return A @ A.T


def expanded(A: Array, kept: Array, n: int, diagonal: Array | float) -> Array:
    """``A`` as the rows and columns ``kept`` of an n x n matrix that is else diagonal.

    For NumPy arrays and torch tensors; ``kept`` is a NumPy array of positions.
    """
    xp = array_namespace(A)
    whole = xp.zeros((n, n), dtype=A.dtype, device=device(A))
    whole[kept[:, None], kept[None, :]] = A
    others = np.setdiff1d(np.arange(n), kept)
    whole[others, others] = diagonal
    return whole


def gram_matrix(X: Array) -> Array:
    """``X^T X``, symmetric to the last bit (NumPy calls ``syrk`` for it)."""
    return _torch().gram(X) if is_torch_array(X) else X.T @ X


def sandwich(K: Array, B: Array) -> Array:
    """``K B K`` for symmetric ``K`` and ``B``, symmetric to the last bit."""
    if is_numpy_array(K):
        return _sandwich_in_strips(K, B)
    return symmetrised(K @ B @ K)


def _sandwich_in_strips(K: Array, B: Array) -> Array:
    """The same for NumPy arrays, without most of the half that mirrors the other."""
    (gemm,) = get_blas_funcs(("gemm",), (K, B))
    n = K.shape[0]
    whole = np.empty((n, n), dtype=K.dtype)
    # Symmetric, so the transposed views are the same matrices in Fortran order, whose
    # strips of columns BLAS takes as they are.
    half, step = gemm(1.0, B.T, K.T), max(STRIP, -(-n // 4))
    for first in range(0, n, step):
        last = min(first + step, n)
        strip = gemm(1.0, K.T[:, first:last], half[:, :last], trans_a=True)
        square = strip[:, first:last]
        whole[first:last, :first] = strip[:, :first]
        whole[:first, first:last] = strip[:, :first].T
        whole[first:last, first:last] = (square + square.T) * 0.5
    return whole


def mirrored(lower: Array) -> Array:
    """The symmetric matrix whose lower half is given, in the same memory."""
    for rows, columns in _tile_pairs(lower.shape[0]):
        if rows != columns:
            lower[columns, rows] = lower[rows, columns].T
        else:
            tile = np.tril(lower[rows, rows])
            lower[rows, rows] = tile + np.tril(tile, -1).T
    # Symmetric, so the transposed view is the same matrix in C order.
    return np.ascontiguousarray(lower.T)


def _tile_pairs(n: int) -> Iterator[tuple[slice, slice]]:
    """Tiles of the lower half of an n x n matrix.

    A transposed copy is several times faster tile by tile, in the cache.
    """
    for top in range(0, n, TILE):
        for left in range(0, top + 1, TILE):
            yield slice(top, top + TILE), slice(left, left + TILE)


def positive_part(A: Array) -> Array:
    """``max(A, 0)``; the array given may be changed and given back."""
    if is_numpy_array(A):
        return np.maximum(A, 0.0, out=A)
    xp = array_namespace(A)
    return xp.clip(A, 0.0, None)


def symmetrised(A: Array) -> Array:
    """``(A + A^T) / 2``."""
    if is_numpy_array(A):
        B = np.empty(A.shape, dtype=A.dtype)
        for rows, columns in _tile_pairs(A.shape[0]):
            tile = A[rows, columns] + A[columns, rows].T
            tile *= 0.5
            B[rows, columns] = tile
            B[columns, rows] = tile.T
        return B
    return (A + A.T) * 0.5
