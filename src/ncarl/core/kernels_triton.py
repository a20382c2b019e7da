"""Triton kernels that gather, scatter and invert batches of small matrices."""

# mypy: disallow-untyped-decorators=False

from __future__ import annotations

from collections.abc import Iterator

import torch
import triton
import triton.language as tl

from ncarl.core.types import Array

#: Side of the square tiles that one program gathers or scatters.
TILE = 16
#: Largest number of programs along the last axis of a launch.
MAX_GRID_Z = 65535


def gather_blocks(K: Array, columns: Array, out: Array) -> None:
    """Copy the lower halves of ``K[columns[b]][:, columns[b]]`` to ``out``."""
    p = columns.shape[1]
    for grid, part in _launches(columns):
        _gather[grid](
            K, K.stride(0), columns[part], out[part], p, TILE=TILE, num_warps=2
        )


def scatter_blocks(blocks: Array, columns: Array, total: Array, n: int) -> None:
    """Add ``blocks[b]`` to ``total`` at ``columns[b]``, below the diagonal.

    Columns increase within a block; those from ``n`` on are padding and ignored.
    """
    p, stride = columns.shape[1], total.stride(0)
    for grid, part in _launches(columns):
        _scatter[grid](
            blocks[part], columns[part], total, stride, n, p, TILE=TILE, num_warps=2
        )


def _launches(columns: Array) -> Iterator[tuple[tuple[int, int, int], slice]]:
    batch, p = columns.shape
    tiles = triton.cdiv(p, TILE)
    for first in range(0, batch, MAX_GRID_Z):
        last = min(first + MAX_GRID_Z, batch)
        yield (tiles, tiles, last - first), slice(first, last)


def invert_factors(A: Array, failed: Array) -> None:
    """Replace each block of a stack by the inverse of its lower Cholesky factor.

    ``A`` has shape (batch, p, p) with p a power of two of at least 16; blocks that
    are not positive definite are marked in ``failed``.
    """
    marks = failed.view(dtype=torch.uint8)  # Triton does not store booleans
    _invert_factor[(A.shape[0],)](
        A, A.stride(0), A.stride(1), marks, P=A.shape[-1], num_warps=1
    )


@triton.jit
def _gather(K, stride, columns, out, p, TILE: tl.constexpr):  # type: ignore[no-untyped-def]
    down, across, item = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    if across > down:  # the upper half is never read
        return
    b = item.to(tl.int64)
    i = down * TILE + tl.arange(0, TILE)
    j = across * TILE + tl.arange(0, TILE)
    rows = tl.load(columns + b * p + i, mask=i < p, other=0).to(tl.int64)
    cols = tl.load(columns + b * p + j, mask=j < p, other=0)
    inside = (i < p)[:, None] & (j < p)[None, :]
    tile = tl.load(K + rows[:, None] * stride + cols[None, :], mask=inside, other=0.0)
    tl.store(out + b * p * p + i[:, None] * p + j[None, :], tile, mask=inside)


@triton.jit(do_not_specialize=["stride", "n"])
def _scatter(blocks, columns, total, stride, n, p, TILE: tl.constexpr):  # type: ignore[no-untyped-def]
    down, across, item = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    if across > down:  # columns increase, so this goes above the diagonal
        return
    b = item.to(tl.int64)
    i = down * TILE + tl.arange(0, TILE)
    j = across * TILE + tl.arange(0, TILE)
    rows = tl.load(columns + b * p + i, mask=i < p, other=n)[:, None]
    cols = tl.load(columns + b * p + j, mask=j < p, other=n)[None, :]
    inside = (rows < n) & (cols <= rows)
    place = blocks + b * p * p + i[:, None] * p + j[None, :]
    tile = tl.load(place, mask=inside, other=0.0)
    target = total + rows.to(tl.int64) * stride + cols
    tl.atomic_add(target, tile, mask=inside, sem="relaxed")


@triton.jit
def _invert_factor(A, stride_b, stride_r, failed, P: tl.constexpr):  # type: ignore[no-untyped-def]
    b = tl.program_id(0).to(tl.int64)
    r = tl.arange(0, P)
    i, j = r[:, None], r[None, :]
    place = A + b * stride_b + i * stride_r + j
    # Mirror the lower half, so that row k of the remainder is its column k.
    low = tl.load(place, mask=i >= j, other=0.0)
    high = tl.load(A + b * stride_b + j * stride_r + i, mask=i < j, other=0.0)
    left = low + high
    inverse = tl.where(i == j, 1.0, 0.0).to(left.dtype)
    sound = 1
    for k in range(P):
        column = tl.sum(tl.where(j == k, left, 0.0), axis=1)
        row = tl.sum(tl.where(i == k, left, 0.0), axis=0)
        pivot = tl.sum(tl.where(r == k, column, 0.0), axis=0)
        sound = tl.where(pivot > 0.0, sound, 0)
        scale = 1.0 / tl.sqrt(pivot)
        factor = tl.where(r > k, column * scale, 0.0)
        left -= factor[:, None] * (row * scale)[None, :]
        solved = tl.sum(tl.where(i == k, inverse, 0.0), axis=0) * scale
        inverse = tl.where(
            i == k, solved[None, :], inverse - factor[:, None] * solved[None, :]
        )
    tl.store(place, inverse)
    if sound == 0:
        tl.store(failed + b, 1)
