"""Batched Cholesky solves on a torch device, made of matrix products.

The libraries' batched factorisation reaches a few percent of what a card does in
matrix products. Here a block of columns takes all that the columns before it have to
say in one product, its diagonal block is factorised and inverted (from small blocks,
by products again), and a last product gives the rest of the columns. Diagonal blocks
keep the inverse of their factor, so that a triangular solve is a product too.
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
        columns = torch.arange(KERNEL_LEAF, device="cuda", dtype=torch.int32)[None]
        blocks = torch.empty_like(probe[:1])
        kernels_triton.gather_blocks(probe[0], columns, blocks)
        total = torch.zeros_like(probe[0])
        kernels_triton.scatter_blocks(blocks, columns, total, KERNEL_LEAF)
        traces = blocks.diagonal(dim1=1, dim2=2).sum() + total.sum()
        found = (probe.sum() + traces).item()
    except Exception as error:  # no Triton, no C compiler, a card it does not know
        log.info("Triton does not run (%s); PyTorch's own kernels are used", error)
        return None
    return kernels_triton if found == 4.0 * KERNEL_LEAF else None


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


def scattered(blocks: Array, columns: Array, total: Array) -> None:
    """Add ``blocks[b]`` to ``total[columns[b]][:, columns[b]]`` for every b.

    Only what falls below the diagonal of ``total`` is sure to be there. Its last row
    and column are spare: they take the padding, columns from there on.
    """
    n = total.shape[0] - 1
    if total.is_cuda and (kernels := gpu_kernels()) is not None:
        kernels.scatter_blocks(blocks, columns.contiguous(), total, n)
        return
    chosen = columns.long().clamp(max=n)
    places = chosen[:, :, None] * (n + 1) + chosen[:, None, :]
    total.view(-1).index_add_(0, places.view(-1), blocks.reshape(-1))


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
        Below the diagonal blocks ``L`` itself, in them the inverses of those of ``L``;
        above them anything.
    failed : tensor of bool, shape (batch,)
        Matrices that are not positive definite.
    """

    blocks: Array
    failed: Array

    def solve(self, right: Array) -> Array:
        """``A^-1 right`` for right sides (batch, p, columns); NaN if failed."""
        x = self.half_solve(right)
        F, p = self.blocks, self.blocks.shape[-1]
        for first in reversed(range(0, p, WHOLE)):
            last = min(first + WHOLE, p)
            part = x[:, first:last]
            if last < p:
                part.baddbmm_(F[:, last:, first:last].mT, x[:, last:], alpha=-1)
            part.copy_(F[:, first:last, first:last].mT @ part)
        return x

    def half_solve(self, right: Array) -> Array:
        """``L^-1 right`` as a new tensor; NaN if failed."""
        x = right.clone()
        F, p = self.blocks, self.blocks.shape[-1]
        for first in range(0, p, WHOLE):
            last = min(first + WHOLE, p)
            part = x[:, first:last]
            part.copy_(F[:, first:last, first:last] @ part)
            if last < p:
                x[:, last:].baddbmm_(F[:, last:, first:last], part, alpha=-1)
        return x.masked_fill_(self.failed[:, None, None], torch.nan)

    def inverse(self) -> Array:
        """``A^-1`` as a new tensor (batch, p, p); NaN if failed.

        From the last columns to the first, by ``A^-1 L = L^-T``: what is known of the
        inverse gives the columns before it in one product.
        """
        F, p = self.blocks, self.blocks.shape[-1]
        X = torch.empty_like(F)
        for first in reversed(range(0, p, WHOLE)):
            last = min(first + WHOLE, p)
            leaf, corner = (A[:, first:last, first:last] for A in (F, X))
            torch.bmm(leaf.mT, leaf, out=corner)
            if last == p:
                # From here NaN spreads to all of the matrix.
                corner.masked_fill_(self.failed[:, None, None], torch.nan)
                continue
            across = F[:, last:, first:last] @ -leaf
            below = X[:, last:, first:last]
            torch.bmm(X[:, last:, last:], across, out=below)
            corner.baddbmm_(below.mT, across)
            X[:, first:last, last:] = below.mT
        return X

    def log_det(self, real: Array) -> Array:
        """``log|A|`` of each matrix without its padding; NaN if failed.

        ``real`` (batch, p) says which rows and columns are no padding.
        """
        diagonal = self.blocks.diagonal(dim1=1, dim2=2)  # that of L^-1
        logs = torch.where(real, diagonal.log(), 0.0)
        return (-2.0 * logs.sum(dim=1)).masked_fill_(self.failed, torch.nan)


def factorise(A: Array) -> Factor:
    """Factorise a stack of matrices, shape (batch, p, p), using up their memory.

    Only the lower half is read; ``p`` is a multiple of 16.
    """
    batch, p, _ = A.shape
    failed = torch.zeros(batch, dtype=torch.bool, device=A.device)
    kernels = gpu_kernels() if A.is_cuda else None
    leaf = library_leaf if kernels is None else kernels.invert_factors
    size = LIBRARY_LEAF if kernels is None else KERNEL_LEAF
    F = torch.empty_like(A) if p > WHOLE else A
    for first in range(0, p, WHOLE):
        last = min(first + WHOLE, p)
        if first > 0:
            A[:, first:, first:last].baddbmm_(
                F[:, first:, :first], F[:, first:last, :first].mT, alpha=-1
            )
        corner = A[:, first:last, first:last]
        _invert_factor(corner, leaf, size, failed)
        if F is not A:
            F[:, first:last, first:last] = corner
        if last < p:
            below = A[:, last:, first:last]
            torch.bmm(below, corner.mT, out=F[:, last:, first:last])
    return Factor(F, failed)


def _invert_factor(A: Array, leaf: LeafSolver, size: int, failed: Array) -> None:
    """Replace each matrix by the inverse of its lower factor, halving it first."""
    p = A.shape[-1]
    if p <= size:
        leaf(A, failed)
        return
    half = (p // size + 1) // 2 * size
    top, corner, low = A[:, :half, :half], A[:, half:, :half], A[:, half:, half:]
    _invert_factor(top, leaf, size, failed)
    across = corner @ top.mT
    low.baddbmm_(across, across.mT, alpha=-1)
    _invert_factor(low, leaf, size, failed)
    torch.baddbmm(corner, low, across @ top, beta=0, alpha=-1, out=corner)
    A[:, :half, half:] = 0.0
