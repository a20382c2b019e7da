"""The row step in NumPy: rows with equally many observed entries form one batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import cho_solve

from ncarl.core.linalg import batched_cholesky_or_none, cholesky_with_jitter, symmetrize
from ncarl.core.rows import (  # noqa: F401  what a backend has, for `row_backend`
    Kernel,
    allocate_rows,
    dense_duals,
    duals_to_csr,
    entries_from_duals,
    group_sizes,
    pieces,
    shift_and_scale,
    subtract_outer_sum,
    timestamp,
    to_numpy,
    transfer_pieces,
    variances,
    variances_at,
)
from ncarl.core.types import Array, Block, LikelihoodSums

#: Largest system that is solved in a batch; beyond it LAPACK calls dominate.
BATCH_MAX_SIZE = 256
#: Numbers gathered into one batch of systems.
MAX_BATCH_ENTRIES = 2_000_000


def solve_rows(
    block: Block, kernel: Kernel, X: Array | None = None, *, checked: bool = True
) -> tuple[Array, float]:
    """Duals of the rows and the jitter needed; fills ``X`` with the rows if given.

    ``checked`` is ignored: every factorization is checked.
    """
    Y = np.zeros_like(block.values)
    sizes, counts, missing = group_sizes(block, kernel.P is not None)
    single = ~missing & (counts == 1) & (sizes > 0) & (sizes <= BATCH_MAX_SIZE)
    jitter = 0.0
    for size, groups in _equal_size_batches(sizes, single):
        rows = block.groups[groups]
        jitter = max(jitter, _solve_batch(block, kernel, rows, size, Y))
    for g in np.flatnonzero(~single & (sizes > 0)):
        side = _solve_precision_form if missing[g] else _solve_covariance_form
        jitter = max(jitter, side(block, kernel, int(g), Y, X))
    if X is not None:
        _fill_rows(block, kernel, Y, X, np.repeat(missing, counts))
    return Y, jitter


def _equal_size_batches(sizes: Array, chosen: Array) -> Iterator[tuple[int, Array]]:
    """Sizes, and the chosen groups of that size in batches that fit into memory."""
    for size in np.unique(sizes[chosen]):
        groups = np.flatnonzero(chosen & (sizes == size))
        room = max(1, MAX_BATCH_ENTRIES // int(size) ** 2)
        for first in range(0, len(groups), room):
            yield int(size), groups[first : first + room]


def _solve_batch(
    block: Block, kernel: Kernel, rows: Array, size: int, Y: Array
) -> float:
    entries = block.indptr[rows][:, None] + np.arange(size)
    o = block.indices[entries]
    A = kernel.K[o[:, :, None], o[:, None, :]]
    diagonal = np.arange(size)
    A[:, diagonal, diagonal] += kernel.s
    factor = batched_cholesky_or_none(A)
    if factor is None:
        return max(_solve_one(block, kernel, int(i), Y) for i in rows)
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


def _solve_one(block: Block, kernel: Kernel, row: int, Y: Array) -> float:
    """Covariance form of one row whose batch did not factorize."""
    entries = slice(int(block.indptr[row]), int(block.indptr[row + 1]))
    factor, jitter = cholesky_with_jitter(kernel.K, block.indices[entries], kernel.s)
    Y[entries] = cho_solve((factor, True), block.values[entries], check_finite=False)
    return jitter


def _solve_covariance_form(
    block: Block, kernel: Kernel, g: int, Y: Array, X: Array | None
) -> float:
    entries, o, V = row_group(block, g)
    factor, jitter = cholesky_with_jitter(kernel.K, o, kernel.s)
    Y[entries] = cho_solve((factor, True), V.T, check_finite=False).T.ravel()
    return jitter


def _solve_precision_form(
    block: Block, kernel: Kernel, g: int, Y: Array, X: Array | None
) -> float:
    entries, o, V = row_group(block, g)
    P: Any = kernel.P
    u = np.setdiff1d(np.arange(block.n_columns), o, assume_unique=True)
    factor, jitter = cholesky_with_jitter(P, u, 0.0)
    right = -(V @ P[np.ix_(o, u)])
    x_u = cho_solve((factor, True), right.T, check_finite=False).T
    Y[entries] = (V @ P[np.ix_(o, o)] + x_u @ P[np.ix_(u, o)]).ravel()
    if X is not None:
        X[block.groups[g] : block.groups[g + 1], u] = x_u
    return jitter


def _fill_rows(
    block: Block, kernel: Kernel, Y: Array, X: Array, precision_form: Array
) -> None:
    observed = ~precision_form
    X[observed] = duals_to_csr(block, Y)[observed] @ kernel.K
    row_of_entry = np.repeat(np.arange(block.n_rows), np.diff(block.indptr))
    X[row_of_entry, block.indices] = block.values - kernel.s * Y


def likelihood_sums(
    block: Block,
    kernel: Kernel,
    offsets: Array | None,
    scales: Array | None,
    *,
    checked: bool = True,
) -> LikelihoodSums:
    """Row terms of the log marginal likelihood; ``checked`` is ignored, as above."""
    start = timestamp(block)
    block = shift_and_scale(block, offsets, scales)
    n = block.n_columns
    sizes, counts, missing = group_sizes(block, kernel.P is not None)
    B = np.zeros((n, n), dtype=block.values.dtype)
    C = None if kernel.P is None else np.zeros_like(B)
    sums = _LikelihoodAccumulator(np.zeros_like(block.values), B, C)
    _add_rows(sums, block, kernel, sizes, missing)
    middle = timestamp(block)
    rows = np.flatnonzero(np.repeat(missing, counts))
    subtract_outer_sum(B, block, sums.Y, rows)
    return LikelihoodSums(
        B=symmetrize(B),
        missing_inverse_sum=None if C is None else symmetrize(C),
        n_precision_rows=len(rows),
        sum_y=np.bincount(block.indices, sums.Y, n).astype(B.dtype),
        fit=block.values @ sums.Y,
        log_det=sums.log_det,
        jitter=sums.jitter,
        timestamps=((start, middle, timestamp(block)),),
    )


@dataclass
class _LikelihoodAccumulator:
    """Running sums over the rows; ``Y`` collects the duals."""

    Y: Array
    B: Array
    missing_inverse_sum: Array | None
    log_det: float = 0.0
    jitter: float = 0.0

    def add_and_invert(self, factor: Array, count: int, jitter: float) -> Array:
        """Add the log-determinant for ``count`` rows and return the inverse."""
        self.log_det += count * _log_det_from_cholesky(factor)
        self.jitter = max(self.jitter, jitter)
        eye = np.eye(len(factor), dtype=factor.dtype)
        return cho_solve((factor, True), eye, check_finite=False)


def _add_rows(
    sums: _LikelihoodAccumulator,
    block: Block,
    kernel: Kernel,
    sizes: Array,
    precision_form: Array,
) -> None:
    """Add all rows; those with a mask of their own in batches of equal size."""
    single = ~precision_form & (np.diff(block.groups) == 1)
    single &= (sizes > 0) & (sizes <= BATCH_MAX_SIZE)
    alone = [*np.flatnonzero(~single & (sizes > 0))]
    for size, groups in _equal_size_batches(sizes, single):
        if not _add_batch(sums, block, kernel, block.groups[groups], size):
            alone += [*groups]
    for g in alone:
        side = _add_precision_form if precision_form[g] else _add_covariance_form
        side(sums, block, kernel, int(g))


def _add_batch(
    sums: _LikelihoodAccumulator, block: Block, kernel: Kernel, rows: Array, size: int
) -> bool:
    """Add rows of one size; returns False, adding nothing, if one needs jitter."""
    entries = block.indptr[rows][:, None] + np.arange(size)
    o = block.indices[entries].astype(np.int64)
    places = o[:, :, None] * block.n_columns + o[:, None, :]
    A = kernel.K.ravel()[places]
    diagonal = np.arange(size)
    A[:, diagonal, diagonal] += kernel.s
    factor = batched_cholesky_or_none(A)
    if factor is None:
        return False
    half = np.linalg.inv(factor)
    inverse = np.swapaxes(half, 1, 2) @ half
    y = np.einsum("bij,bj->bi", inverse, block.values[entries])
    sums.Y[entries] = y
    sums.log_det += _log_det_from_cholesky(factor)
    inverse -= y[:, :, None] * y[:, None, :]
    np.add.at(sums.B.reshape(-1), places.ravel(), inverse.ravel())
    return True


def _add_covariance_form(
    sums: _LikelihoodAccumulator, block: Block, kernel: Kernel, g: int
) -> None:
    entries, o, V = row_group(block, g)
    factor, jitter = cholesky_with_jitter(kernel.K, o, kernel.s)
    inverse = sums.add_and_invert(factor, len(V), jitter)
    Y = cho_solve((factor, True), V.T, check_finite=False).T
    sums.Y[entries] = Y.ravel()
    sums.B[np.ix_(o, o)] += len(V) * inverse - Y.T @ Y


def _add_precision_form(
    sums: _LikelihoodAccumulator, block: Block, kernel: Kernel, g: int
) -> None:
    """Add a group with one inverse of ``P_uu``; `subtract_outer_sum` adds its duals."""
    entries, o, V = row_group(block, g)
    P: Any = kernel.P
    total: Any = sums.missing_inverse_sum
    u = np.setdiff1d(np.arange(block.n_columns), o, assume_unique=True)
    factor, jitter = cholesky_with_jitter(P, u, 0.0)
    inverse = sums.add_and_invert(factor, len(V), jitter)
    x_u = -(V @ P[np.ix_(o, u)]) @ inverse
    sums.Y[entries] = (V @ P[np.ix_(o, o)] + x_u @ P[np.ix_(u, o)]).ravel()
    total[np.ix_(u, u)] += len(V) * inverse


def _log_det_from_cholesky(factor: Array) -> float:
    diagonal = np.diagonal(factor, axis1=-2, axis2=-1)
    return 2.0 * float(np.sum(np.log(diagonal), dtype=np.float64))


def row_group(block: Block, g: int) -> tuple[slice, Array, Array]:
    """Entries of group ``g``, its observed columns and its values (rows, columns)."""
    top, bottom = block.groups[g], block.groups[g + 1]
    entries = slice(int(block.indptr[top]), int(block.indptr[bottom]))
    o = block.indices[block.indptr[top] : block.indptr[top + 1]]
    return entries, o, block.values[entries].reshape(bottom - top, len(o))
