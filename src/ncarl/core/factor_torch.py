"""Batched Cholesky solves on a torch device, made of matrix products.

The libraries' batched factorisation reaches a few percent of what a card does in
matrix products. Here a stack of matrices is halved until the diagonal blocks are
small; those are factorised and inverted one by one, and everything between them is a
batched product. Diagonal blocks keep the inverse of their factor, so that a
triangular solve is a product too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from ncarl.core.types import Array

#: Inverse factors of diagonal blocks are put together up to this size, from blocks
#: that the library or our kernel inverts; measured on an H200.
WHOLE, LIBRARY_LEAF, KERNEL_LEAF = 64, 32, 16

log = logging.getLogger("ncarl")

#: Factorises and inverts a stack of small blocks in place, marking those that fail.
LeafSolver = Callable[[Any, Any], None]


@cache
def gpu_kernels() -> Any:
    """Our Triton kernels, or None where Triton does not run."""
    try:
        from ncarl.core import kernels_triton

        probe = torch.eye(KERNEL_LEAF, device="cuda").repeat(2, 1, 1)
        kernels_triton.invert_factors(probe, probe.new_zeros(2, dtype=torch.bool))
        found = probe.diagonal(dim1=1, dim2=2).sum().item()
    except Exception as error:  # no Triton, no C compiler, a card it does not know
        log.info("Triton does not run (%s); PyTorch's own kernels are used", error)
        return None
    return kernels_triton if found == 2.0 * KERNEL_LEAF else None


def padded_kernel(K: Array, s: float, padding: int) -> Array:
    """``diag(K + s I, I)``: padding of a system is gathered like anything else."""
    n = K.shape[0]
    padded = K.new_zeros((n + padding, n + padding))
    padded[:n, :n] = K
    diagonal = padded.diagonal()
    diagonal[:n] += s
    diagonal[n:] = 1.0
    return padded


def gathered(K: Array, columns: Array) -> Array:
    """``K[columns[b]][:, columns[b]]`` for every b; above the diagonal anything."""
    if K.is_cuda and (kernels := gpu_kernels()) is not None:
        batch, p = columns.shape
        out = K.new_empty((batch, p, p))
        kernels.gather_blocks(K, columns.contiguous(), out)
        return out
    chosen = columns.long()
    return K[chosen[:, :, None], chosen[:, None, :]]


def library_leaf(A: Array, failed: Array) -> None:
    """Replace each block of the stack by the inverse of its lower Cholesky factor."""
    factor, info = torch.linalg.cholesky_ex(A)
    # NaN can pass a factorisation in silence; it always reaches the last pivot.
    failed |= (info != 0) | ~factor[:, -1, -1].isfinite()
    eye = torch.eye(A.shape[-1], dtype=A.dtype, device=A.device)
    A.copy_(torch.linalg.solve_triangular(factor, eye.expand_as(factor), upper=False))


@dataclass(frozen=True)
class Factor:
    """Cholesky factors ``L`` of a stack of matrices, as blocks.

    Attributes
    ----------
    blocks : tensor of shape (batch, p, p)
        Below the diagonal blocks ``L`` itself, in them the inverses of those of ``L``.
    failed : tensor of bool, shape (batch,)
        Matrices that are not positive definite.
    whole : int
        Size of the diagonal blocks.
    """

    blocks: Array
    failed: Array
    whole: int

    def solve(self, right: Array) -> Array:
        """``A^-1 right`` for right sides of shape (batch, p, columns); NaN if failed."""
        x = self.half_solve(right)
        F, p = self.blocks, self.blocks.shape[-1]
        for first in reversed(range(0, p, self.whole)):
            last = min(first + self.whole, p)
            part = x[:, first:last]
            if last < p:
                part.baddbmm_(F[:, last:, first:last].mT, x[:, last:], alpha=-1)
            part.copy_(F[:, first:last, first:last].mT @ part)
        return x.masked_fill_(self.failed[:, None, None], torch.nan)

    def half_solve(self, right: Array) -> Array:
        """``L^-1 right``, as a new tensor."""
        x = right.clone()
        F, p = self.blocks, self.blocks.shape[-1]
        for first in range(0, p, self.whole):
            last = min(first + self.whole, p)
            part = x[:, first:last]
            part.copy_(F[:, first:last, first:last] @ part)
            if last < p:
                x[:, last:].baddbmm_(F[:, last:, first:last], part, alpha=-1)
        return x


def factorise(A: Array, whole: int = WHOLE) -> Factor:
    """Factorise a stack of matrices, shape (batch, p, p), in its own memory.

    Only the lower half is read; ``p`` is a multiple of 16, ``whole`` a power of two.
    """
    failed = torch.zeros(A.shape[0], dtype=torch.bool, device=A.device)
    kernels = gpu_kernels() if A.is_cuda else None
    if kernels is None:
        _factorise(A, library_leaf, LIBRARY_LEAF, whole, failed)
    else:
        _factorise(A, kernels.invert_factors, KERNEL_LEAF, whole, failed)
    return Factor(A, failed, whole)


def _half(p: int, size: int, whole: int) -> int:
    """Where to halve: a whole number of diagonal blocks where there are several."""
    unit = whole if p > whole else size
    return (p // unit + 1) // 2 * unit


def _factorise(
    A: Array, leaf: LeafSolver, size: int, whole: int, failed: Array
) -> None:
    """Factorise in place; a matrix of at most ``whole`` becomes an inverse factor."""
    p = A.shape[-1]
    if p <= size:
        leaf(A, failed)
        return
    half = _half(p, size, whole)
    top, corner, low = A[:, :half, :half], A[:, half:, :half], A[:, half:, half:]
    _factorise(top, leaf, size, whole, failed)
    _solve_from_the_right(corner, top, whole)
    low.baddbmm_(corner, corner.mT, alpha=-1)
    _factorise(low, leaf, size, whole, failed)
    if p <= whole:
        corner.copy_(-(low @ (corner @ top)))
        A[:, :half, half:] = 0.0


def _solve_from_the_right(X: Array, F: Array, whole: int) -> None:
    """``X <- X L^-T`` in place, where ``F`` holds the blocks of ``L``."""
    p = F.shape[-1]
    if p <= whole:
        X.copy_(X @ F.mT)
        return
    half = _half(p, whole, whole)
    left, right = X[:, :, :half], X[:, :, half:]
    _solve_from_the_right(left, F[:, :half, :half], whole)
    right.baddbmm_(left, F[:, half:, :half].mT, alpha=-1)
    _solve_from_the_right(right, F[:, half:, half:], whole)
