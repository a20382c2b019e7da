"""Shortcuts of `ncarl.core.linalg` for torch tensors, where the agnostic form is slow.

Nothing here waits for the device. A factorisation that fails gives NaN, which the
caller finds when it reads the result.
"""

from __future__ import annotations

import torch

from ncarl.core.types import Array

#: Triangular matrices up to this size are inverted by the library.
SMALL = 512


def spd_inverse(A: Array) -> Array:
    """Inverse of a symmetric positive definite matrix, exactly symmetric; else NaN."""
    factor, info = torch.linalg.cholesky_ex(A)
    inverse = _triangular_inverse(factor)
    product = gram(inverse, lower=True)
    return product.masked_fill_(info != 0, torch.nan)


def _triangular_inverse(L: Array) -> Array:
    """Inverse of a lower triangular matrix, halved until it is small."""
    n = L.shape[0]
    if n <= SMALL:
        eye = torch.eye(n, dtype=L.dtype, device=L.device)
        return torch.linalg.solve_triangular(L, eye, upper=False)
    half = n // 2
    inverse = torch.zeros_like(L)
    inverse[:half, :half] = top = _triangular_inverse(L[:half, :half])
    inverse[half:, half:] = low = _triangular_inverse(L[half:, half:])
    torch.matmul(low, L[half:, :half] @ top, out=inverse[half:, :half]).neg_()
    return inverse


def gram(A: Array, *, lower: bool = False) -> Array:
    """``A^T A``, exactly symmetric; ``lower`` says that ``A`` is lower triangular.

    Only blocks below the diagonal are computed.
    """
    n = A.shape[1]
    product = A.new_zeros((n, n))
    step = max(SMALL, -(-n // 4))
    for first in range(0, n, step):
        last = min(first + step, n)
        rows = A[first:] if lower else A
        torch.matmul(
            rows[:, first:last].mT, rows[:, :last], out=product[first:last, :last]
        )
    return product.tril_().add_(product.tril(-1).mT)


def add_diagonal(A: Array, value: float) -> Array:
    """``A + value I`` as a new tensor."""
    shifted = A.clone()
    shifted.diagonal().add_(value)
    return shifted


def with_diagonal(A: Array, diagonal: Array | float) -> Array:
    """``A`` with another diagonal, in its own memory."""
    if isinstance(diagonal, float):
        A.fill_diagonal_(diagonal)
    else:
        A.diagonal().copy_(diagonal)
    return A


def smallest(A: Array, count: int) -> Array:
    """The ``count`` smallest entries of each row, in increasing order."""
    return torch.topk(A, count, dim=1, largest=False, sorted=True).values
