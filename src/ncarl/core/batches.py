"""Which rows share a batch, and how far they are padded: planned on the host.

A batch holds systems of one size, so smaller ones are padded with the identity. Few
sizes mean few launches and much padding, many sizes the reverse; the plan is the best
split under a simple model of the time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ncarl.core.plan import missing_side_pays
from ncarl.core.types import Array, Block

#: Sizes are rounded up to multiples of this.
GRAIN = 16


def seconds_of_system(p: Array) -> Array:
    """Time of one system of size ``p`` within a batch (fitted on an H200)."""
    return 2.5e-11 * p**2 + 6e-15 * p**3


def seconds_of_batch(p: Array) -> Array:
    """Time that a batch of systems of size ``p`` takes whatever their number."""
    return 2e-4 + 2.5e-6 * p


@dataclass(frozen=True)
class Batch:
    """Groups of rows to be solved together, all padded to one size.

    Attributes
    ----------
    size : int
        Size of the padded systems.
    width : int
        Right-hand sides of each system, padding included.
    groups : array of int
        Groups of the block.
    missing : bool
        Whether they are solved for their missing entries.
    """

    size: int
    width: int
    groups: Array
    missing: bool


def padded_sizes(sizes: Array) -> Array:
    """The size that each system is padded to.

    Examples
    --------
    >>> padded_sizes([3, 5, 17])
    array([32, 32, 32])
    """
    rounded = -(-np.maximum(np.asarray(sizes), 1) // GRAIN) * GRAIN
    steps, which, counts = np.unique(rounded, return_inverse=True, return_counts=True)
    below = np.concatenate([[0], np.cumsum(counts)])
    each, fixed = seconds_of_system(steps), seconds_of_batch(steps)
    best, opened = np.zeros(len(steps) + 1), np.zeros(len(steps), dtype=np.int64)
    for last in range(len(steps)):
        # The batch that ends here may begin at any smaller size.
        batch = (below[last + 1] - below[: last + 1]) * each[last] + fixed[last]
        total = best[: last + 1] + batch
        opened[last] = int(np.argmin(total))
        best[last + 1] = total[opened[last]]
    ends, last = np.zeros(len(steps), dtype=np.int64), len(steps) - 1
    while last >= 0:
        ends[opened[last] : last + 1] = last
        last = opened[last] - 1
    padded: Array = steps[ends[which]]
    return padded


def plan_batches(block: Block, *, missing_side: bool) -> list[Batch]:
    """Batches of all groups that observed anything.

    Groups of several rows share a factorisation; their number of right-hand sides is
    padded to a power of two.
    """
    sizes = np.diff(block.indptr)[block.groups[:-1]]
    widths = 2 ** np.ceil(np.log2(np.maximum(np.diff(block.groups), 1))).astype(int)
    missing = np.zeros(len(sizes), dtype=bool)
    if missing_side:
        missing = missing_side_pays(sizes, block.n_columns)
    solved = np.where(missing, block.n_columns - sizes, sizes)
    batches = []
    for side in (False, True):
        for width in np.unique(widths):
            chosen = np.flatnonzero((missing == side) & (widths == width) & (sizes > 0))
            if len(chosen) == 0:
                continue
            padded = padded_sizes(solved[chosen])
            batches += [
                Batch(int(p), int(width), chosen[padded == p], side)
                for p in np.unique(padded)
            ]
    return batches
