"""Groups of columns: found by who takes part in whom, and shrunk one by one."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from array_api_compat import array_namespace
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from ncarl.core.singular import leading
from ncarl.core.types import Array

#: Most groups that a gap between eigenvalues may speak for.
MOST_GROUPS = 10
#: Starts of k-means, which may end in a poor grouping.
STARTS = 20


def groups_of(C: Any, count: int, seed: int) -> tuple[Any, int]:
    """A group number for every column, and how many groups there are.

    Parameters
    ----------
    C : numpy array of shape (n, n)
        Coefficients with which columns make up one another.
    count : int
        Number of groups; 0 takes it from the largest gap between eigenvalues.
    seed : int
        Seed of the starts.

    Examples
    --------
    >>> import numpy as np
    >>> groups_of(np.kron(np.eye(2), np.ones((3, 3)) - np.eye(3)), 0, 0)
    (array([0, 0, 0, 1, 1, 1]), 2)
    """
    values, vectors = _spectrum(np.abs(C) + np.abs(C.T))
    k = _by_gap(values) if count == 0 else count
    if k == 1:
        return np.zeros(len(C), dtype=np.int64), 1
    points = vectors[:, :k]
    lengths = np.linalg.norm(points, axis=1, keepdims=True)
    points = points / np.where(lengths > 0.0, lengths, 1.0)
    with warnings.catch_warnings():
        # Fewer different columns than groups: some groups stay empty.
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = KMeans(k, n_init=STARTS, random_state=seed).fit(points).labels_
    return _numbered(found), k


def _spectrum(A: Array) -> tuple[Any, Any]:
    """Eigenvalues, smallest first, and vectors of the normalised Laplacian."""
    degrees = A.sum(axis=1)
    # A column without a part in any other stands alone, with the eigenvalue 0.
    alone = degrees <= np.finfo(np.float64).eps * degrees.max(initial=0.0)
    roots = np.sqrt(np.where(alone, 1.0, degrees))
    L = np.diag(1.0 - alone) - A / roots / roots[:, None]
    values, vectors = np.linalg.eigh((L + L.T) / 2.0)
    return values, vectors


def _by_gap(values: Array) -> int:
    """How many eigenvalues are below the largest gap; 1 where there is none."""
    gaps = np.diff(values[: MOST_GROUPS + 1])
    if len(gaps) == 0 or values[-1] <= 0.0:
        return 1
    return int(np.argmax(gaps)) + 1


def _numbered(labels: Array) -> Any:
    """The same groups, numbered in the order of their first columns."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse].astype(np.int64)


def apart(labels: Array) -> Array:
    """True where two columns belong to different groups."""
    return labels[:, None] != labels[None, :]


def shrunk_by_group(W: Array, labels: Any, tau: float) -> tuple[Array, Any]:
    """Columns of each group with their singular values less ``tau``, and these values.

    Without labels all columns are one group.
    """
    xp = array_namespace(W)
    parts, values, places = [], [], []
    groups = [np.flatnonzero(labels == k) for k in np.unique(labels)]
    for columns in groups if len(groups) > 1 else [np.arange(W.shape[1])]:
        own = W if len(groups) < 2 else xp.take(W, _index(W, columns), axis=1)
        found = leading(own, tau)
        s = found.s - tau
        parts.append(found.product(s))
        values.append(s)
        places.append(columns)
    if len(parts) == 1:
        return parts[0], values[0]
    back = np.argsort(np.concatenate(places))
    joined = xp.take(xp.concat(parts, axis=1), _index(W, back), axis=1)
    return joined, np.concatenate(values)


def _index(A: Array, places: Any) -> Array:
    """Whole numbers where ``A`` is."""
    return array_namespace(A).asarray(places, device=getattr(A, "device", None))
