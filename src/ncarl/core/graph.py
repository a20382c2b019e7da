"""The learned graph: squared distances of columns, k-sparse similarity, Laplacian."""

from __future__ import annotations

import numpy as np
from array_api_compat import array_namespace, is_numpy_array

from ncarl.core.linalg import k_smallest, positive_part, set_diagonal, symmetrize
from ncarl.core.types import Array

#: Rows of distances computed at a time, few enough to stay in the cache.
ROWS_PER_CHUNK = 32


def squared_distances(G: Array) -> Array:
    """Squared distances ``l_ij = G_ii + G_jj - 2 G_ij`` between the columns.

    Differences within rounding error count as 0, so that equal columns have distance
    exactly 0.
    """
    norms = array_namespace(G).linalg.diagonal(G)
    if not is_numpy_array(G):
        return set_diagonal(_distances_from(norms, norms, G), 0.0)
    distances = np.empty_like(G)
    for first in range(0, G.shape[0], ROWS_PER_CHUNK):
        rows = slice(first, first + ROWS_PER_CHUNK)
        distances[rows] = _distances_from(norms[rows], norms, G[rows])
    return set_diagonal(distances, 0.0)


def _distances_from(row_norms: Array, norms: Array, G: Array) -> Array:
    xp = array_namespace(G)
    largest = row_norms[:, None] + norms[None, :]
    distances = largest - 2.0 * G
    largest *= 8.0 * float(xp.finfo(G.dtype).eps)
    return xp.where(distances > largest, distances, xp.zeros_like(distances))


def similarity(distances: Array, k: int, *, shift: float = 0.0) -> Array:
    """k-sparse similarity of the columns, rows summing to one.

    Row ``i`` is the Euclidean projection of ``-l_i / (2 mu^2)`` on the simplex with
    the largest ``mu`` that leaves ``k`` entries:
    ``S_ij = (t - l_ij)_+ / sum_v (t - l_iv)``, where ``t`` is the (k+1)-th smallest
    distance and the sum runs over the ``k`` smallest. Each column counts among its own
    ``k <= n - 1`` neighbors. ``shift`` is added to ``t`` (the authors' code adds 1e-6);
    with 0, a row whose ``k + 1`` smallest distances are 0 gets uniform weights on them.

    Examples
    --------
    >>> import numpy as np
    >>> S = similarity(np.array([[0.0, 1, 2], [1, 0, 3], [2, 3, 0]]), 2)
    >>> S.round(2)
    array([[0.67, 0.33, 0.  ],
           [0.4 , 0.6 , 0.  ],
           [0.25, 0.  , 0.75]])
    """
    xp = array_namespace(distances)
    nearest = k_smallest(distances, k + 1)
    threshold = nearest[:, k:] + shift
    total = xp.sum(threshold - nearest[:, :k], axis=1, keepdims=True)
    S = positive_part(threshold - distances)
    if is_numpy_array(total) and (total > 0.0).all():
        S /= total
        return S
    tied = xp.astype(distances <= threshold, distances.dtype)
    uniform = tied / xp.sum(tied, axis=1, keepdims=True)
    safe = xp.where(total > 0.0, total, xp.ones_like(total))
    return xp.where(total > 0.0, S / safe, uniform)


def laplacian(S: Array) -> Array:
    """Laplacian ``diag(W 1) - W`` of the symmetrized similarity ``W``."""
    xp = array_namespace(S)
    L = symmetrize(S)
    degrees = xp.sum(L, axis=1) - xp.linalg.diagonal(L)
    L *= -1.0
    return set_diagonal(L, degrees)
