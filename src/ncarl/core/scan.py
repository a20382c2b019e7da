"""Observed entries of dense rows, NaN marking the gaps."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from ncarl.core.types import Array

#: Fewer numbers are scanned before Numba has even been loaded.
MANY = 200_000


def observed_entries(rows: Array) -> tuple[Array, Array, Array]:
    """Entries of each row, their columns (int32) and their values (float64).

    Examples
    --------
    >>> import numpy as np
    >>> observed_entries(np.array([[1.0, np.nan], [0.0, 2.0]]))[1]
    array([0, 0, 1], dtype=int32)
    """
    compact = _compact() if rows.size >= MANY else None
    if compact is None or rows.dtype.kind != "f" or rows.dtype.itemsize < 4:
        return by_numpy(rows)
    counts = np.empty(len(rows), dtype=np.int64)
    # One more: after the last entry every further number is tried in the same place.
    columns = np.empty(rows.size + 1, dtype=np.int32)
    values = np.empty(rows.size + 1)
    size = compact(np.ascontiguousarray(rows), counts, columns, values)
    return counts, columns[:size].copy(), values[:size].copy()


def by_numpy(rows: Array) -> tuple[Array, Array, Array]:
    """The same by NumPy."""
    seen = ~np.isnan(rows)
    # Flat positions are found several times faster than pairs of them.
    places = np.flatnonzero(seen)
    counts = np.count_nonzero(seen, axis=1)
    starts = np.repeat(np.arange(len(rows)) * rows.shape[1], counts)
    columns = (places - starts).astype(np.int32)
    return counts, columns, rows.ravel()[places].astype(np.float64, copy=False)


@cache
def _compact() -> Callable[..., Any] | None:
    """The scan by Numba, where that is installed and works."""
    if importlib.util.find_spec("numba") is None:
        return None
    try:
        found: Callable[..., Any]
        found = importlib.import_module("ncarl.core.scan_numba").compact
    except (ImportError, RuntimeError):  # the row kernels say what is wrong with it
        return None
    return found
