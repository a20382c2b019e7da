"""What the row kernels of this process's memory share."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
from scipy.linalg import solve_triangular

from ncarl.core.linalg import factorised, gram_matrix
from ncarl.core.plan import PIECE, duals_matrix, pieces
from ncarl.core.types import Array, Block, Kernel

__all__ = [
    "dense_duals",
    "entries_from_duals",
    "fetched",
    "mark",
    "new_rows",
    "parts_to_fetch",
    "pieces",
    "scatter_pays",
    "shifted",
    "variances",
    "variances_at",
]


def new_rows(block: Block) -> Array:
    """Zeros in the shape of the completed rows."""
    return np.zeros((block.n_rows, block.n_columns), dtype=block.values.dtype)


def dense_duals(block: Block, Y: Array) -> Array:
    """Duals with zeros between them, shape (rows, n)."""
    dense: Array = duals_matrix(block, Y).toarray()
    return dense


def parts_to_fetch(block: Block) -> list[Block]:
    """The block as a whole: its rows are where they are wanted."""
    return [block]


def fetched(array: Array) -> Array:
    """The array as it is."""
    return array


def mark(block: Block) -> float:
    """The time."""
    return time.perf_counter()


def scatter_pays(block: Block) -> bool:
    """Whether adding up pairs of duals one by one beats a product of dense rows."""
    pairs = float(np.sum(np.diff(block.indptr).astype(np.float64) ** 2))
    n = block.n_columns
    # Measured: a scattered pair costs about as much as 150 numbers of a matrix product.
    return 150 * pairs < block.n_rows * n * (n + 25)


def variances(block: Block, kernel: Kernel) -> Array:
    """Variance of every entry as it would be observed, given its row."""
    K, s, n = kernel.K, kernel.s, block.n_columns
    found = np.empty((block.n_rows, n), dtype=K.dtype)
    diagonal = K.diagonal() + s
    for g in range(len(block.groups) - 1):
        top, bottom = int(block.groups[g]), int(block.groups[g + 1])
        o = block.indices[block.indptr[top] : block.indptr[top + 1]]
        factor, _ = factorised(K, o, s)
        half = solve_triangular(factor, K[o], lower=True, check_finite=False)
        known = np.einsum("ij,ij->j", half, half)
        found[top:bottom] = np.maximum(diagonal - known, s)
    return found


def entries_from_duals(block: Block, K: Array, Y: Array, i: Array, j: Array) -> Array:
    """``y_i K_oj`` for rows ``i`` (in increasing order) and columns ``j``."""
    values = np.empty(len(i), dtype=K.dtype)
    bounds = np.searchsorted(i, np.arange(block.n_rows + 1))
    for row in np.unique(i):
        entries = slice(int(block.indptr[row]), int(block.indptr[row + 1]))
        asked = slice(int(bounds[row]), int(bounds[row + 1]))
        o = block.indices[entries]
        values[asked] = Y[entries] @ K[np.ix_(o, j[asked])]
    return values


def variances_at(block: Block, kernel: Kernel, i: Array, j: Array) -> Array:
    """Variances at rows ``i`` (in increasing order) and columns ``j`` alone."""
    K, s = kernel.K, kernel.s
    found = K[j, j] + s
    bounds = np.searchsorted(i, np.arange(block.n_rows + 1))
    for g in range(len(block.groups) - 1):
        top, bottom = int(block.groups[g]), int(block.groups[g + 1])
        asked = slice(int(bounds[top]), int(bounds[bottom]))
        if asked.start == asked.stop:
            continue
        o = block.indices[block.indptr[top] : block.indptr[top + 1]]
        factor, _ = factorised(K, o, s)
        right = K[np.ix_(o, j[asked])]
        half = solve_triangular(factor, right, lower=True, check_finite=False)
        known = found[asked] - np.einsum("ij,ij->j", half, half)
        found[asked] = np.maximum(known, s)
    return found


def shifted(block: Block, offsets: Array | None, scales: Array | None) -> Block:
    """The block with the values ``(v - offsets) * scales``, given one a column."""
    values = block.values
    if offsets is not None:
        values = values - np.asarray(offsets, dtype=values.dtype)[block.indices]
    if scales is not None:
        values = values * np.asarray(scales, dtype=values.dtype)[block.indices]
    return replace(block, values=values)


def take_outer_sum(B: Array, block: Block, Y: Array, rows: Array) -> None:
    """Subtract ``y y^T`` of some rows, which are nearly complete, from ``B``."""
    duals = duals_matrix(block, Y)
    step = max(1, PIECE // block.n_columns)
    for first in range(0, len(rows), step):
        B -= gram_matrix(duals[rows[first : first + step]].toarray())
