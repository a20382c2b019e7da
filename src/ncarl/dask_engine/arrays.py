"""Dask arrays in, Dask arrays out: nothing is computed before it is asked for."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ncarl.core.types import Array


def completed_dask(
    array: Any, complete: Callable[[Array], Array], dtype: Any = np.float64
) -> Any:
    """A Dask array with ``complete`` done to each block of whole rows, lazily.

    Parameters
    ----------
    array : dask.array.Array of shape (m, n)
        Rows with gaps. How many rows a block has need not be known.
    complete : callable
        Turns rows into as many rows; it is pickled and runs where the blocks are.
    dtype : dtype
        Type of the result.

    Examples
    --------
    >>> import dask.array as da, numpy as np
    >>> rows = da.from_array(np.array([[1.0, np.nan], [2.0, 4.0]]), chunks=(1, 1))
    >>> completed_dask(rows, np.nan_to_num).compute(scheduler="synchronous")
    array([[1., 0.],
           [2., 4.]])
    """
    if array.ndim != 2:
        raise ValueError(f"array must have 2 dimensions, got {array.ndim}")
    if any(math.isnan(size) for size in array.chunks[1]):
        raise ValueError(
            "array must have a known number of columns, got unknown ones; call "
            "array.compute_chunk_sizes() first"
        )
    if len(array.chunks[1]) > 1:
        array = array.rechunk({1: -1})
    meta = np.empty((0, 0), dtype=dtype)  # without it Dask would try the function
    return array.map_blocks(complete, dtype=np.dtype(dtype), meta=meta)
