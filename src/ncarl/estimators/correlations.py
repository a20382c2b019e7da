"""Which columns explain which: the strongest correlations of a kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_array

from ncarl.core.types import Array

#: Correlations kept for every column, and the least that is worth it.
STRONGEST, LEAST = 10, 0.05


def strongest_correlations(K: Array, *, shared: bool) -> Any:
    """The strongest correlations of each column with others, as a sparse graph.

    ``shared`` leaves out what all columns have in common: effects of rows.

    Examples
    --------
    >>> import numpy as np
    >>> K = np.array([[4.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    >>> strongest_correlations(K, shared=False).toarray()[0].tolist()
    [0.0, 0.5, 0.0]
    """
    n = K.shape[0]
    if shared and n > 2:
        means = K.mean(axis=0)
        K = K - means[:, None] - means[None, :] + means.mean()
    spreads = np.sqrt(np.maximum(K.diagonal(), 0.0))
    safe = np.where(spreads > 0.0, spreads, 1.0)
    C = K / safe[:, None] / safe[None, :]
    np.fill_diagonal(C, 0.0)
    count = min(STRONGEST, n - 1)
    if count < 1:
        return csr_array((n, n))
    columns = np.argpartition(-np.abs(C), count - 1, axis=1)[:, :count]
    rows = np.repeat(np.arange(n), count)
    values = C[rows, columns.ravel()]
    kept = np.abs(values) >= LEAST
    places = (rows[kept], columns.ravel()[kept])
    return csr_array((values[kept], places), shape=(n, n))
