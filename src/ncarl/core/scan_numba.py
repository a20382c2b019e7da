"""Observed entries of dense rows by Numba, in one look at each number."""

from __future__ import annotations

import numba as nb

from ncarl.core.types import Array


@nb.njit(nogil=True, cache=True)
def compact(rows: Array, counts: Array, columns: Array, values: Array) -> int:
    """Write what is no NaN, row by row; how many entries that is.

    Every number is written where the next entry belongs, and kept by moving on: a
    branch that is taken at random costs more.
    """
    k = 0
    for i in range(rows.shape[0]):
        start = k
        for j in range(rows.shape[1]):
            value = rows[i, j]
            columns[k] = j
            values[k] = value
            k += value == value
        counts[i] = k - start
    return k
