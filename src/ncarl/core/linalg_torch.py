"""Fast paths of `ncarl.core.linalg` for torch tensors.

No function waits for the device. A factorization that fails gives NaN, which callers
see when they read the result.
"""

from __future__ import annotations

import torch

from ncarl.core.types import Array

#: Triangular blocks up to this size are inverted by PyTorch.
LEAF_SIZE = 64
#: Fewest columns of the strips in which products with a symmetric result are formed.
MIN_STRIP_COLUMNS = 512


def spd_inverse(A: Array) -> Array:
    """Inverse of a symmetric matrix, exactly symmetric; NaN if not positive definite.

    The matrix is padded to ``leaf * 2^k`` with the identity, which makes triangular
    factors easy to halve.
    """
    n, doublings = A.shape[0], 0
    while n > LEAF_SIZE * 2**doublings:
        doublings += 1
    leaf = -(-n // 2**doublings)
    padded = torch.eye(leaf * 2**doublings, dtype=A.dtype, device=A.device)
    padded[:n, :n] = A
    factor, info = torch.linalg.cholesky_ex(padded)
    inverse = _triangular_inverse(factor.contiguous(), leaf)[:n, :n]
    return gram_matrix(inverse, lower=True).masked_fill_(info != 0, torch.nan)


def _triangular_inverse(L: Array, leaf: int) -> Array:
    """Inverse of a lower triangular matrix, all blocks of one size at a time.

    Diagonal blocks of size ``leaf`` are inverted in one batch, then joined in pairs:
    ``[[A, 0], [C, B]]^-1 = [[A^-1, 0], [-B^-1 C A^-1, B^-1]]``.
    """
    inverse, size = torch.zeros_like(L), leaf
    eye = torch.eye(leaf, dtype=L.dtype, device=L.device)
    blocks = _diagonal_blocks(L, size, 0, 0)
    _diagonal_blocks(inverse, size, 0, 0).copy_(
        torch.linalg.solve_triangular(blocks, eye.expand_as(blocks), upper=False)
    )
    while size < L.shape[0]:
        A, B = (_diagonal_blocks(inverse, 2 * size, k, k, size) for k in (0, size))
        C = _diagonal_blocks(L, 2 * size, size, 0, size)
        target = _diagonal_blocks(inverse, 2 * size, size, 0, size)
        torch.baddbmm(target, B, C @ A, beta=0, alpha=-1, out=target)
        size *= 2
    return inverse


def _diagonal_blocks(
    A: Array, period: int, top: int, left: int, size: int | None = None
) -> Array:
    """Views of the blocks that start at ``(top, left)`` in each diagonal block."""
    N, side = A.shape[0], size or period
    strides = (period * (N + 1), N, 1)
    return A.as_strided((N // period, side, side), strides, top * N + left)


def spd_log_det(A: Array) -> Array:
    """``log|A|`` of a symmetric matrix; NaN if it is not positive definite."""
    factor, info = torch.linalg.cholesky_ex(A)
    return (2.0 * factor.diagonal().log().sum()).masked_fill(info != 0, torch.nan)


def gram_matrix(A: Array, *, lower: bool = False) -> Array:
    """``A^T A``, exactly symmetric; ``lower`` means that ``A`` is lower triangular.

    Only blocks on and below the diagonal are computed.
    """
    n = A.shape[1]
    product = A.new_empty((n, n))
    step = max(MIN_STRIP_COLUMNS, -(-n // 4))
    for first in range(0, n, step):
        last = min(first + step, n)
        rows = A[first:] if lower else A
        strip = product[first:last]
        torch.matmul(rows[:, first:last].mT, rows[:, :last], out=strip[:, :last])
        product[:first, first:last] = strip[:, :first].mT
        square = strip[:, first:last]
        strip[:, first:last] = (square + square.mT) * 0.5
    return product


def congruence(U: Array, weights: Array) -> Array:
    """``U diag(weights) U^T`` for nonnegative weights, exactly symmetric."""
    return gram_matrix(U.mT * weights.sqrt()[:, None])


def add_diagonal(A: Array, value: float) -> Array:
    """``A + value I`` as a new tensor."""
    shifted = A.clone()
    shifted.diagonal().add_(value)
    return shifted


def set_diagonal(A: Array, diagonal: Array | float) -> Array:
    """``A`` with its diagonal replaced in place."""
    if isinstance(diagonal, float):
        A.fill_diagonal_(diagonal)
    else:
        A.diagonal().copy_(diagonal)
    return A


def k_smallest(A: Array, k: int) -> Array:
    """The ``k`` smallest entries of each row, in increasing order."""
    return torch.topk(A, k, dim=1, largest=False, sorted=True).values
