"""The learned graph: distances between columns, k-sparse similarity, Laplacian."""

from __future__ import annotations

import numpy as np
from array_api_compat import array_namespace, is_numpy_array

from ncarl.core.linalg import positive_part, smallest, symmetrised, with_diagonal
from ncarl.core.types import Array

#: Few enough rows of distances to stay in the cache.
ROWS_AT_A_TIME = 32


def squared_distances(G: Array) -> Array:
    """Squared distances ``l_ij = G_ii + G_jj - 2 G_ij`` between the columns.

    Differences that are nothing but rounding count as 0, so that equal columns
    are at distance 0 exactly.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[1.0, 1.0, 3.0]])
    >>> squared_distances(X.T @ X)
    array([[0., 0., 4.],
           [0., 0., 4.],
           [4., 4., 0.]])
    """
    xp = array_namespace(G)
    norms = xp.linalg.diagonal(G)
    if not is_numpy_array(G):
        return with_diagonal(_distances_from(norms, norms, G), 0.0)
    distances = np.empty_like(G)
    for first in range(0, G.shape[0], ROWS_AT_A_TIME):
        rows = slice(first, first + ROWS_AT_A_TIME)
        distances[rows] = _distances_from(norms[rows], norms, G[rows])
    return with_diagonal(distances, 0.0)


def _distances_from(some: Array, norms: Array, G: Array) -> Array:
    """Squared distances of some columns (norms and rows of ``G``) from all."""
    xp = array_namespace(G)
    largest = some[:, None] + norms[None, :]
    distances = largest - 2.0 * G
    largest *= 8.0 * float(xp.finfo(G.dtype).eps)
    return xp.where(distances > largest, distances, xp.zeros_like(distances))


def similarity(distances: Array, k: int, *, shift: float = 0.0) -> Array:
    """k-sparse similarity of the columns, rows summing to one.

    Row ``i`` is the Euclidean projection of ``-l_i / (2 mu^2)`` on the simplex with
    the largest ``mu`` that leaves ``k`` entries:
    ``S_ij = (t - l_ij)_+ / sum_v (t - l_iv)``, where ``t`` is the (k+1)-th smallest
    distance and the sum runs over the ``k`` smallest. The column itself counts among
    its ``k``.

    Parameters
    ----------
    distances : array of shape (n, n)
        Squared distances.
    k : int
        Neighbours kept in each row, ``1 <= k <= n - 1``.
    shift : float
        Added to ``t`` (the authors' code adds 1e-6). With 0, a row whose ``k + 1``
        nearest are all at distance 0 gets uniform weights on them.

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
    nearest = smallest(distances, k + 1)
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
    """Laplacian ``diag(W 1) - W`` of the symmetrised similarity ``W``.

    Examples
    --------
    >>> import numpy as np
    >>> laplacian(np.array([[0.5, 0.5], [0.5, 0.5]]))
    array([[ 0.5, -0.5],
           [-0.5,  0.5]])
    """
    xp = array_namespace(S)
    L = symmetrised(S)
    degrees = xp.sum(L, axis=1) - xp.linalg.diagonal(L)
    L *= -1.0
    return with_diagonal(L, degrees)
