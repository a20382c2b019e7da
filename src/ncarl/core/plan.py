"""How rows are solved: which side pays, how many at a time, in which shape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ncarl.core.types import Array, Block

#: Completed rows are formed in pieces of at most this many numbers.
PIECE = 2_000_000


def observed_cost(r: Array) -> Array:
    """Cost of the observed side of a row with ``r`` observed entries, in flops."""
    r = np.asarray(r, dtype=np.float64)
    return r**3 / 3 + 12.0 * r**2 + 200.0


def missing_cost(r: Array, n: int) -> Array:
    """Cost of the missing side of a row with ``r`` of ``n`` entries observed."""
    r = np.asarray(r, dtype=np.float64)
    u = n - r
    return u**3 / 3 + 12.0 * u**2 + 8.0 * r * u + 4.0 * r * n + 200.0


def missing_side_pays(r: Array, n: int) -> Array:
    """Whether a row with ``r`` of ``n`` entries observed is solved on its missing side.

    Examples
    --------
    >>> missing_side_pays([5, 95], 100).tolist()
    [False, True]
    """
    answer: Array = missing_cost(r, n) < observed_cost(r)
    return answer


def pieces(block: Block) -> Iterator[Block]:
    """The block in parts small enough to hold completed rows of."""
    # Each piece gives an n x n product: no smaller than a part of that itself.
    room = max(1, PIECE // max(1, block.n_columns), block.n_columns // 4)
    first, n_groups = 0, len(block.groups) - 1
    while first < n_groups:
        last = int(np.searchsorted(block.groups, block.groups[first] + room, "right"))
        last = min(max(last - 1, first + 1), n_groups)
        yield block.part(first, last)
        first = last


def duals_matrix(block: Block, Y: Array) -> Any:
    """Duals as a scipy CSR array with the pattern of the block."""
    from scipy.sparse import csr_array

    shape = (block.n_rows, block.n_columns)
    return csr_array((Y, block.indices, block.indptr), shape=shape)
