"""The row step in NumPy: rows with equally many observed entries form one batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.linalg import cho_solve

from ncarl.core.linalg import batched_cholesky_or_none, cholesky_with_jitter, symmetrize
from ncarl.core.rows import (  # noqa: F401  what a backend has, for `row_backend`
    Kernel,
    allocate_rows,
    collect_likelihood_sums,
    dense_duals,
    duals_to_csr,
    entries_from_duals,
    group_sizes,
    pieces,
    shift_and_scale,
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
    sizes, counts, precision_form = group_sizes(block, kernel.P is not None)
    batches, others = _split_groups(block, sizes, counts, precision_form)
    for groups, entries in batches:
        factor, _ = _factorize_batch(block, kernel, entries)
        if factor is None:
            others += groups
        else:
            Y[entries] = _substitute(factor, block.values[entries])
    jitter = 0.0
    for g in others:
        solve = _solve_precision_form if precision_form[g] else _solve_covariance_form
        jitter = max(jitter, solve(block, kernel, g, Y, X))
    if X is not None:
        _fill_rows(block, kernel, Y, X, np.repeat(precision_form, counts))
    return Y, jitter


def _split_groups(
    block: Block, sizes: Array, counts: Array, precision_form: Array
) -> tuple[Iterator[tuple[list[int], Array]], list[int]]:
    """Batches of single rows of equal size, with their entries, and other groups."""
    single = ~precision_form & (counts == 1) & (sizes > 0) & (sizes <= BATCH_MAX_SIZE)

    def batches() -> Iterator[tuple[list[int], Array]]:
        for size in np.unique(sizes[single]):
            groups = np.flatnonzero(single & (sizes == size))
            room = max(1, MAX_BATCH_ENTRIES // int(size) ** 2)
            for first in range(0, len(groups), room):
                batch = groups[first : first + room]
                starts = block.indptr[block.groups[batch]]
                yield batch.tolist(), starts[:, None] + np.arange(size)

    return batches(), np.flatnonzero(~single & (sizes > 0)).tolist()


def _factorize_batch(
    block: Block, kernel: Kernel, entries: Array
) -> tuple[Array | None, Array]:
    """Cholesky factors, None if one needs jitter, and flat positions in ``K``."""
    o = block.indices[entries].astype(np.int64)
    places = o[:, :, None] * block.n_columns + o[:, None, :]
    A = kernel.K.ravel()[places]
    diagonal = np.arange(A.shape[1])
    A[:, diagonal, diagonal] += kernel.s
    return batched_cholesky_or_none(A), places


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
    weights: Array | None = None,
) -> LikelihoodSums:
    """Row terms of the log marginal likelihood; ``checked`` is ignored, as above."""
    start = timestamp(block)
    block = shift_and_scale(block, offsets, scales)
    if weights is None:
        weights = np.ones(block.n_rows, dtype=block.values.dtype)
    sums, precision_form = _accumulate(block, kernel, weights)
    collected = collect_likelihood_sums(
        block, sums.Y, sums.B, sums.C, precision_form, sums.log_dets, sums.jitter,
        weights, start,
    )  # fmt: skip
    C = None if sums.C is None else symmetrize(sums.C)
    return replace(collected, B=symmetrize(sums.B), missing_inverse_sum=C)


def row_log_dets(block: Block, kernel: Kernel) -> tuple[Array, Array, Array]:
    """Duals, ``log|A|`` of each row (see `LikelihoodSums.log_det`), precision form."""
    weights = np.ones(block.n_rows, dtype=block.values.dtype)
    sums, precision_form = _accumulate(block, kernel, weights)
    return sums.Y, sums.log_dets, precision_form


def _accumulate(
    block: Block, kernel: Kernel, weights: Array
) -> tuple[_LikelihoodAccumulator, Array]:
    n, dtype = block.n_columns, block.values.dtype
    sizes, counts, precision_form = group_sizes(block, kernel.P is not None)
    sums = _LikelihoodAccumulator(
        weights=weights,
        Y=np.zeros_like(block.values),
        B=np.zeros((n, n), dtype=dtype),
        C=None if kernel.P is None else np.zeros((n, n), dtype=dtype),
        log_dets=np.zeros(block.n_rows),
    )
    batches, others = _split_groups(block, sizes, counts, precision_form)
    for groups, entries in batches:
        if not _add_batch(sums, block, kernel, groups, entries):
            others += groups
    for g in others:
        add = _add_precision_form if precision_form[g] else _add_covariance_form
        add(sums, block, kernel, g)
    return sums, np.repeat(precision_form, counts)


@dataclass
class _LikelihoodAccumulator:
    weights: Array  # (rows,)
    Y: Array  # (entries,): duals
    B: Array  # (n, n): inverses of the covariance form minus outer products of duals
    C: Array | None  # (n, n): inverses of the precision form
    log_dets: Array  # (rows,): log|A|
    jitter: float = 0.0

    def add_and_invert(self, factor: Array, rows: slice, jitter: float) -> Array:
        """Set the log-determinant of rows, and return the inverse of their system."""
        self.log_dets[rows] = _log_det_from_cholesky(factor)
        self.jitter = max(self.jitter, jitter)
        eye = np.eye(len(factor), dtype=factor.dtype)
        return cho_solve((factor, True), eye, check_finite=False)


def _add_batch(
    sums: _LikelihoodAccumulator,
    block: Block,
    kernel: Kernel,
    groups: list[int],
    entries: Array,
) -> bool:
    """Add rows of one size; returns False, adding nothing, if one needs jitter."""
    factor, places = _factorize_batch(block, kernel, entries)
    if factor is None:
        return False
    half = np.linalg.inv(factor)
    inverse = np.swapaxes(half, 1, 2) @ half
    y = np.einsum("bij,bj->bi", inverse, block.values[entries])
    sums.Y[entries] = y
    rows = block.groups[groups]  # single rows
    sums.log_dets[rows] = _log_det_from_cholesky(factor)
    inverse -= y[:, :, None] * y[:, None, :]
    inverse *= sums.weights[rows, None, None]
    np.add.at(sums.B.reshape(-1), places.ravel(), inverse.ravel())
    return True


def _add_covariance_form(
    sums: _LikelihoodAccumulator, block: Block, kernel: Kernel, g: int
) -> None:
    entries, o, V = row_group(block, g)
    factor, jitter = cholesky_with_jitter(kernel.K, o, kernel.s)
    rows = block.group(g)[0]
    weights = sums.weights[rows]
    inverse = sums.add_and_invert(factor, rows, jitter)
    Y = cho_solve((factor, True), V.T, check_finite=False).T
    sums.Y[entries] = Y.ravel()
    sums.B[np.ix_(o, o)] += weights.sum() * inverse - (Y.T * weights) @ Y


def _add_precision_form(
    sums: _LikelihoodAccumulator, block: Block, kernel: Kernel, g: int
) -> None:
    """Add a group to all sums but ``B``, which `collect_likelihood_sums` completes."""
    entries, o, V = row_group(block, g)
    P: Any = kernel.P
    C: Any = sums.C
    u = np.setdiff1d(np.arange(block.n_columns), o, assume_unique=True)
    factor, jitter = cholesky_with_jitter(P, u, 0.0)
    rows = block.group(g)[0]
    inverse = sums.add_and_invert(factor, rows, jitter)
    x_u = -(V @ P[np.ix_(o, u)]) @ inverse
    sums.Y[entries] = (V @ P[np.ix_(o, o)] + x_u @ P[np.ix_(u, o)]).ravel()
    C[np.ix_(u, u)] += sums.weights[rows].sum() * inverse


def _log_det_from_cholesky(factor: Array) -> Array:
    diagonal = np.diagonal(factor, axis1=-2, axis2=-1)
    return 2.0 * np.sum(np.log(diagonal), axis=-1, dtype=np.float64)


def row_group(block: Block, g: int) -> tuple[slice, Array, Array]:
    """Entries of group ``g``, its observed columns and its values (rows, columns)."""
    rows, entries, o = block.group(g)
    return entries, o, block.values[entries].reshape(rows.stop - rows.start, len(o))
