"""Cut the rows of an incomplete matrix into blocks of about equal work."""

from __future__ import annotations

import numpy as np

from ncarl.core.plan import PIECE, missing_cost, observed_cost
from ncarl.core.types import Array, Block
from ncarl.observed import Observed

#: No more blocks than this: enough for the cores of one machine, in equal shares.
MOST_BLOCKS = 64


def mask_groups(observed: Observed) -> tuple[Array, Array]:
    """An order of the rows with equal masks adjacent, and where the groups begin.

    Rows get a random fingerprint of their observed columns, are sorted by it, and
    neighbours are then compared entry by entry: a collision can cost a shared
    factorisation, never a wrong one.

    Returns
    -------
    order : array of int64, shape (m,)
        Rows, those of equal mask side by side.
    starts : array of int64, shape (groups + 1,)
        Group ``g`` is ``order[starts[g]:starts[g + 1]]``.
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
    # Groups stay small enough for their rows to be completed at once.
    room = max(1, PIECE // max(1, n))
    places = np.arange(m)
    since = places - np.maximum.accumulate(np.where(fresh, places, 0))
    fresh |= since % room == 0
    starts = np.append(np.flatnonzero(fresh), m).astype(np.int64)
    return order, starts


def _equal_rows(observed: Observed, these: Array, those: Array) -> Array:
    """Whether rows with equally many entries have them in the same columns."""
    equal = np.ones(len(these), dtype=bool)
    widest = int(observed.row_counts[these].max(initial=1))
    step = max(1, PIECE // max(1, widest))
    for first in range(0, len(these), step):
        part = slice(first, first + step)
        one, other = observed.take_rows(these[part]), observed.take_rows(those[part])
        differing = np.flatnonzero(one.indices != other.indices)
        rows = np.searchsorted(one.indptr, differing, side="right") - 1
        equal[first + rows] = False
    return equal


def group_costs(sizes: Array, counts: Array, n: int) -> Array:
    """Work of each group in flops: one factorisation, then one solve a row."""
    factor = np.minimum(observed_cost(sizes), missing_cost(sizes, n))
    each = 4.0 * np.asarray(sizes, dtype=np.float64) ** 2 + 200.0
    return factor + counts * each


def cut(observed: Observed, n_blocks: int | None = None) -> list[Block]:
    """Blocks of about equal work; their number does not depend on the machine.

    Parameters
    ----------
    observed : Observed
        The matrix.
    n_blocks : int, optional
        Blocks wanted. By default as many as keep the cost of adding up one n x n
        matrix a block small beside the work in it.
    """
    order, starts = mask_groups(observed)
    n = observed.shape[1]
    sizes = np.diff(observed.indptr)[order[starts[:-1]]]
    costs = group_costs(sizes, np.diff(starts), n)
    if n_blocks is None:
        n_blocks = _usual_number(float(costs.sum()), n)
    n_blocks = min(n_blocks, len(costs))
    # Deal the groups out like cards, so that every block gets rows of every size.
    return [
        _block(observed, order, starts, np.arange(k, len(costs), n_blocks))
        for k in range(n_blocks)
    ]


def _usual_number(work: float, n: int) -> int:
    """Blocks for so much work: enough for all cores, few enough to add up cheaply.

    Making and adding one n x n matrix costs about as much as 50 flops an entry; a
    tenth of the work may go into that, and a few blocks are worth it all the same.
    """
    if work < 2e7:  # over before a second thread has begun
        return 1
    cheap = work / (500.0 * n * n)
    some = min(4.0, max(2.0, work / (200.0 * n * n)))
    return int(min(MOST_BLOCKS, max(cheap, some)))


def _block(observed: Observed, order: Array, starts: Array, chosen: Array) -> Block:
    """The chosen groups as one block."""
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
