"""Graphs that a user gives."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse


def given_graph(graph: Any) -> Any:
    """A given similarity as a sparse array, or an error that says what is wrong."""
    try:
        S = sparse.csr_array(graph, dtype=np.float64, copy=True)
    except (TypeError, ValueError):
        S = None
    if S is None or S.ndim != 2 or S.shape[0] != S.shape[1]:
        what = getattr(graph, "shape", type(graph).__name__)
        raise ValueError(
            "graph must be 'adaptive', 'fixed', None or a square similarity matrix, "
            f"got {what}"
        )
    if not np.isfinite(S.data).all() or (S.data < 0).any():
        raise ValueError(
            "graph must be a similarity matrix with finite entries of at least 0"
        )
    S.sum_duplicates()
    return S
