"""The evidence of rows in plain NumPy: rows of equal size are inverted in one batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import cho_solve

from ncarl.core.linalg import cholesky_or_none, factorised, symmetrised
from ncarl.core.plan import missing_side_pays
from ncarl.core.rows_host import mark, shifted, take_outer_sum
from ncarl.core.rows_numpy import BATCH_ROOM, BATCH_SIZE_LIMIT, row_group
from ncarl.core.types import Array, Block, EvidenceSums, Kernel


@dataclass
class _Sums:
    """Sums over the rows so far; duals go into ``Y``."""

    Y: Array
    B: Array
    missing: Array | None
    log_det: float = 0.0
    jitter: float = 0.0

    def add_factor(self, factor: Array, count: int, jitter: float) -> Array:
        """Count a factorisation for so many rows; the inverse that it gives."""
        self.log_det += count * _log_det(factor)
        self.jitter = max(self.jitter, jitter)
        eye = np.eye(len(factor), dtype=factor.dtype)
        return cho_solve((factor, True), eye, check_finite=False)


def _log_det(factor: Array) -> float:
    """``log|L L^T|`` of a factor, or of all factors in a stack."""
    diagonal = np.diagonal(factor, axis1=-2, axis2=-1)
    return 2.0 * float(np.sum(np.log(diagonal), dtype=np.float64))


def evidence(
    block: Block,
    kernel: Kernel,
    offsets: Array | None,
    scales: Array | None,
    *,
    checked: bool = True,
) -> EvidenceSums:
    """Sums over the rows; every factorisation is checked, asked for or not."""
    start = mark(block)
    block = shifted(block, offsets, scales)
    n, sizes = block.n_columns, np.diff(block.indptr)[block.groups[:-1]]
    counts = np.diff(block.groups)
    missing, C = np.zeros(len(sizes), dtype=bool), None
    if kernel.P is not None:
        missing = missing_side_pays(sizes, n) & (sizes > 0)
        C = np.zeros((n, n), dtype=block.values.dtype)
    B = np.zeros((n, n), dtype=block.values.dtype)
    sums = _Sums(np.zeros_like(block.values), B, C)
    _add_rows(sums, block, kernel, sizes, missing)
    middle = mark(block)
    rows = np.flatnonzero(np.repeat(missing, counts))
    take_outer_sum(B, block, sums.Y, rows)
    return EvidenceSums(
        B=symmetrised(B),
        missing=None if C is None else symmetrised(C),
        n_missing=len(rows),
        pull=np.bincount(block.indices, sums.Y, n).astype(B.dtype),
        fit=block.values @ sums.Y,
        log_det=sums.log_det,
        jitter=sums.jitter,
        spans=((start, middle, mark(block)),),
    )


def _add_rows(
    sums: _Sums, block: Block, kernel: Kernel, sizes: Array, missing: Array
) -> None:
    """Add all rows, those of one size and mask of their own in batches."""
    single = ~missing & (np.diff(block.groups) == 1)
    single &= (sizes > 0) & (sizes <= BATCH_SIZE_LIMIT)
    alone = [*np.flatnonzero(~single & (sizes > 0))]
    for size in np.unique(sizes[single]):
        groups = np.flatnonzero(single & (sizes == size))
        room = max(1, BATCH_ROOM // int(size) ** 2)
        for first in range(0, len(groups), room):
            some = groups[first : first + room]
            if not _add_batch(sums, block, kernel, block.groups[some], int(size)):
                alone += [*some]
    for g in alone:
        side = _add_missing_side if missing[g] else _add_observed_side
        side(sums, block, kernel, int(g))


def _add_batch(
    sums: _Sums, block: Block, kernel: Kernel, rows: Array, size: int
) -> bool:
    """Add rows of one size; False, and nothing added, where one needs jitter."""
    entries = block.indptr[rows][:, None] + np.arange(size)
    o = block.indices[entries].astype(np.int64)
    places = o[:, :, None] * block.n_columns + o[:, None, :]
    A = kernel.K.ravel()[places]
    diagonal = np.arange(size)
    A[:, diagonal, diagonal] += kernel.s
    factor = cholesky_or_none(A)
    if factor is None:
        return False
    half = np.linalg.inv(factor)
    inverse = np.swapaxes(half, 1, 2) @ half
    y = np.einsum("bij,bj->bi", inverse, block.values[entries])
    sums.Y[entries] = y
    sums.log_det += _log_det(factor)
    inverse -= y[:, :, None] * y[:, None, :]
    np.add.at(sums.B.reshape(-1), places.ravel(), inverse.ravel())
    return True


def _add_observed_side(sums: _Sums, block: Block, kernel: Kernel, g: int) -> None:
    """Add a group by one inverse of ``K_oo + s I``."""
    entries, o, V = row_group(block, g)
    factor, jitter = factorised(kernel.K, o, kernel.s)
    inverse = sums.add_factor(factor, len(V), jitter)
    Y = cho_solve((factor, True), V.T, check_finite=False).T
    sums.Y[entries] = Y.ravel()
    sums.B[np.ix_(o, o)] += len(V) * inverse - Y.T @ Y


def _add_missing_side(sums: _Sums, block: Block, kernel: Kernel, g: int) -> None:
    """Add a group by one inverse of ``P_uu``; its duals are added up later."""
    entries, o, V = row_group(block, g)
    P: Any = kernel.P
    total: Any = sums.missing
    u = np.setdiff1d(np.arange(block.n_columns), o, assume_unique=True)
    factor, jitter = factorised(P, u, 0.0)
    inverse = sums.add_factor(factor, len(V), jitter)
    x_u = -(V @ P[np.ix_(o, u)]) @ inverse
    sums.Y[entries] = (V @ P[np.ix_(o, o)] + x_u @ P[np.ix_(u, o)]).ravel()
    total[np.ix_(u, u)] += len(V) * inverse
