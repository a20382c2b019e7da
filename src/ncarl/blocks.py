"""Cut the rows of an incomplete matrix into blocks of about equal work."""

from __future__ import annotations

import numpy as np

from ncarl.core.rows import MAX_PIECE_ENTRIES, covariance_form_cost, precision_form_cost
from ncarl.core.types import Array, Block
from ncarl.observations import Observations

#: No more blocks than this: enough for the cores of one machine, in equal shares.
MAX_BLOCKS = 64


def mask_groups(observed: Observations) -> tuple[Array, Array]:
    """Order of the rows with equal masks adjacent, and the starts of the groups.

    Rows get a random fingerprint of their observed columns, are sorted by it, and
    neighbors are then compared entry by entry: a collision can cost a shared
    factorization, never a wrong one. Group ``g`` is ``order[starts[g]:starts[g + 1]]``.
    """
    m, n = observed.shape
    keys = np.random.default_rng(0).integers(0, 2**63, size=n, dtype=np.uint64)
    sizes = np.diff(observed.indptr)
    some = np.flatnonzero(sizes)
    fingerprint = np.zeros(m, dtype=np.uint64)
    if len(some):
        starts = observed.indptr[some]
        fingerprint[some] = np.add.reduceat(keys[observed.indices], starts)
    order = np.lexsort((fingerprint, sizes)).astype(np.int64)
    fresh = np.ones(m, dtype=bool)
    alike = (np.diff(fingerprint[order]) == 0) & (np.diff(sizes[order]) == 0)
    pairs = np.flatnonzero(alike) + 1
    fresh[pairs] = ~_equal_rows(observed, order[pairs], order[pairs - 1])
    # Groups are split so that all rows of one can be completed at once.
    max_rows = max(1, MAX_PIECE_ENTRIES // max(1, n))
    positions = np.arange(m)
    since = positions - np.maximum.accumulate(np.where(fresh, positions, 0))
    fresh |= since % max_rows == 0
    starts = np.append(np.flatnonzero(fresh), m).astype(np.int64)
    return order, starts


def _equal_rows(observed: Observations, rows_a: Array, rows_b: Array) -> Array:
    equal = np.ones(len(rows_a), dtype=bool)
    widest = int(observed.row_counts[rows_a].max(initial=1))
    step = max(1, MAX_PIECE_ENTRIES // max(1, widest))
    for first in range(0, len(rows_a), step):
        part = slice(first, first + step)
        one, other = observed.take_rows(rows_a[part]), observed.take_rows(rows_b[part])
        differing = np.flatnonzero(one.indices != other.indices)
        rows = np.searchsorted(one.indptr, differing, side="right") - 1
        equal[first + rows] = False
    return equal


def group_costs(sizes: Array, counts: Array, n: int) -> Array:
    """Flops of each group: one factorization, then one solve per row."""
    factor = np.minimum(covariance_form_cost(sizes), precision_form_cost(sizes, n))
    each = 4.0 * np.asarray(sizes, dtype=np.float64) ** 2 + 200.0
    return factor + counts * each


def cut_blocks(observed: Observations, n_blocks: int | None = None) -> list[Block]:
    """Cut rows into blocks of about equal work; by default the data decide how many."""
    order, starts = mask_groups(observed)
    n = observed.shape[1]
    sizes = np.diff(observed.indptr)[order[starts[:-1]]]
    costs = group_costs(sizes, np.diff(starts), n)
    if n_blocks is None:
        n_blocks = _default_n_blocks(float(costs.sum()), n)
    n_blocks = min(n_blocks, len(costs))
    # Groups are dealt out in turn, so that every block gets rows of every size.
    return [
        _make_block(observed, order, starts, np.arange(k, len(costs), n_blocks))
        for k in range(n_blocks)
    ]


def as_one_block(rows: Observations) -> Block:
    """Rows as one block, those with equal masks adjacent."""
    (block,) = cut_blocks(rows, 1)
    return block


def _default_n_blocks(work: float, n: int) -> int:
    if work < 2e7:  # done before a second thread has started
        return 1
    # Making and adding one n x n matrix costs about as much as 50 flops an entry; a
    # tenth of the work may go into that, and a few blocks are worth it all the same.
    cheap = work / (500.0 * n * n)
    some = min(4.0, max(2.0, work / (200.0 * n * n)))
    return int(min(MAX_BLOCKS, max(cheap, some)))


def _make_block(
    observed: Observations, order: Array, starts: Array, chosen: Array
) -> Block:
    counts = np.diff(starts)[chosen]
    groups = np.concatenate([[0], np.cumsum(counts)])
    within = np.arange(groups[-1]) - np.repeat(groups[:-1], counts)
    rows = order[np.repeat(starts[chosen], counts) + within]
    taken = observed.take_rows(rows)
    return Block(
        indptr=taken.indptr,
        indices=taken.indices,
        values=taken.values,
        groups=groups.astype(np.int64),
        rows=rows,
        n_columns=observed.shape[1],
    )
