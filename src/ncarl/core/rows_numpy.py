"""The row step in plain NumPy: rows of equal size are solved in one batch."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import cho_solve

from ncarl.core.linalg import cholesky_or_none, factorised
from ncarl.core.plan import duals_matrix, missing_side_pays
from ncarl.core.rows_host import *  # noqa: F403
from ncarl.core.types import Array, Block, Kernel

#: Past this size LAPACK outweighs the call overhead that batching saves.
BATCH_SIZE_LIMIT = 256
#: Numbers gathered into one batch of blocks.
BATCH_ROOM = 2_000_000


def solve_rows(
    block: Block, kernel: Kernel, X: Array | None = None, *, checked: bool = True
) -> tuple[Array, float]:
    """Duals of the rows and the jitter needed; fills ``X`` with the rows if given.

    Every factorisation is checked here, whether that was asked for or not.
    """
    Y = np.zeros_like(block.values)
    starts = block.groups[:-1]
    sizes = np.diff(block.indptr)[starts]
    counts = np.diff(block.groups)
    missing = (
        missing_side_pays(sizes, block.n_columns)
        if kernel.P is not None
        else np.zeros(len(sizes), dtype=bool)
    )
    single = ~missing & (counts == 1) & (sizes > 0) & (sizes <= BATCH_SIZE_LIMIT)
    jitter = 0.0
    for size in np.unique(sizes[single]):
        rows = starts[single & (sizes == size)]
        room = max(1, BATCH_ROOM // int(size) ** 2)
        for first in range(0, len(rows), room):
            used = _batch(block, kernel, rows[first : first + room], int(size), Y)
            jitter = max(jitter, used)
    for g in np.flatnonzero(~single & (sizes > 0)):
        side = _missing_side if missing[g] else _observed_side
        jitter = max(jitter, side(block, kernel, int(g), Y, X))
    if X is not None:
        _fill(block, kernel, Y, X, np.repeat(missing, counts))
    return Y, jitter


def _batch(block: Block, kernel: Kernel, rows: Array, size: int, Y: Array) -> float:
    """Observed side of rows that all have ``size`` observed entries."""
    entries = block.indptr[rows][:, None] + np.arange(size)
    o = block.indices[entries]
    A = kernel.K[o[:, :, None], o[:, None, :]]
    diagonal = np.arange(size)
    A[:, diagonal, diagonal] += kernel.s
    factor = cholesky_or_none(A)
    if factor is None:
        used = [_solve_one(block, kernel, int(i), Y) for i in rows]
        return max(used)
    Y[entries] = _substitute(factor, block.values[entries])
    return 0.0


def _substitute(factor: Array, v: Array) -> Array:
    """Solve ``L L^T y = v`` for a batch, one column at a time."""
    y = v.copy()
    size = v.shape[1]
    for j in range(size):
        y[:, j] -= np.einsum("bi,bi->b", factor[:, j, :j], y[:, :j])
        y[:, j] /= factor[:, j, j]
    for j in range(size - 1, -1, -1):
        y[:, j] -= np.einsum("bi,bi->b", factor[:, j + 1 :, j], y[:, j + 1 :])
        y[:, j] /= factor[:, j, j]
    return y


def row_group(block: Block, g: int) -> tuple[slice, Array, Array]:
    """Entries of group ``g``, its observed columns, its values (rows, columns)."""
    top, bottom = block.groups[g], block.groups[g + 1]
    entries = slice(int(block.indptr[top]), int(block.indptr[bottom]))
    o = block.indices[block.indptr[top] : block.indptr[top + 1]]
    return entries, o, block.values[entries].reshape(bottom - top, len(o))


def _observed_side(
    block: Block, kernel: Kernel, g: int, Y: Array, X: Array | None
) -> float:
    """One factorisation of ``K_oo + s I`` for all rows of the group."""
    entries, o, V = row_group(block, g)
    factor, jitter = factorised(kernel.K, o, kernel.s)
    Y[entries] = cho_solve((factor, True), V.T, check_finite=False).T.ravel()
    return jitter


def _missing_side(
    block: Block, kernel: Kernel, g: int, Y: Array, X: Array | None
) -> float:
    """One factorisation of ``P_uu`` for all rows of the group."""
    entries, o, V = row_group(block, g)
    P: Any = kernel.P
    u = np.setdiff1d(np.arange(block.n_columns), o, assume_unique=True)
    factor, jitter = factorised(P, u, 0.0)
    right = -(V @ P[np.ix_(o, u)])
    x_u = cho_solve((factor, True), right.T, check_finite=False).T
    Y[entries] = (V @ P[np.ix_(o, o)] + x_u @ P[np.ix_(u, o)]).ravel()
    if X is not None:
        X[block.groups[g] : block.groups[g + 1], u] = x_u
    return jitter


def _solve_one(block: Block, kernel: Kernel, row: int, Y: Array) -> float:
    """Observed side of one row whose batch did not factorise."""
    entries = slice(int(block.indptr[row]), int(block.indptr[row + 1]))
    factor, jitter = factorised(kernel.K, block.indices[entries], kernel.s)
    Y[entries] = cho_solve((factor, True), block.values[entries], check_finite=False)
    return jitter


def _fill(block: Block, kernel: Kernel, Y: Array, X: Array, missing: Array) -> None:
    """Rows of the observed side, and the observed entries of all rows."""
    observed = ~missing
    X[observed] = duals_matrix(block, Y)[observed] @ kernel.K
    row_of_entry = np.repeat(np.arange(block.n_rows), np.diff(block.indptr))
    X[row_of_entry, block.indices] = block.values - kernel.s * Y
