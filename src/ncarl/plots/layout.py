"""Places for the dots of a graph: those that are tied near each other.

Springs pull tied dots together and all dots push each other away (Fruchterman and
Reingold, 1991). The start is the spectral layout, so the same graph is drawn in the
same way each time.
"""

from __future__ import annotations

import numpy as np

from ncarl.core.types import Array

#: Steps of the springs, and how far a dot may go in the first one.
STEPS, FIRST = 300, 0.15


def placed(ties: Array, pairs: Array) -> Array:
    """Places of dots, shape (n, 2); the whole fills the square from -1 to 1.

    Parameters
    ----------
    ties : array of shape (n, n)
        Strengths of ties; their sign does not matter.
    pairs : array of int, shape (lines, 2)
        Dots that are joined by a line.

    Examples
    --------
    >>> import numpy as np
    >>> T = np.zeros((3, 3))
    >>> T[0, 1] = T[1, 0] = 1.0
    >>> places = placed(T, np.array([[0, 1]]))
    >>> far = [float(np.hypot(*(places[0] - other))) for other in places[1:]]
    >>> far[0] < far[1]
    True
    """
    n = len(ties)
    if n < 3:
        return np.column_stack([np.arange(n) - (n - 1) / 2.0, np.zeros(n)])
    springs = np.zeros((n, n))
    springs[pairs[:, 0], pairs[:, 1]] = np.abs(ties)[pairs[:, 0], pairs[:, 1]]
    springs += springs.T
    springs /= springs.max(initial=0.0) or 1.0
    places = spectral_start(springs)
    length = 1.6 / np.sqrt(n)
    for step in range(STEPS):
        reach = FIRST * (1.0 - step / STEPS)
        places = _moved(places, springs, length, reach)
    places -= 0.5 * (places.max(axis=0) + places.min(axis=0))
    reach = np.abs(places).max(axis=0)
    # A graph that is a line stays one.
    scaled: Array = places / np.maximum(reach, 0.35 * (reach.max() or 1.0))
    return scaled


def spectral_start(springs: Array) -> Array:
    """Places along the two slowest directions of the graph, a little spread out."""
    n = len(springs)
    # A weak tie between all holds parts together that have none.
    weights = springs + 0.02
    np.fill_diagonal(weights, 0.0)
    root = 1.0 / np.sqrt(weights.sum(axis=1))
    laplacian = np.eye(n) - root[:, None] * weights * root[None, :]
    vectors = np.linalg.eigh(laplacian)[1][:, 1:3] * root[:, None]
    # LAPACK may give either sign: the largest coordinate is positive.
    largest = np.abs(vectors).argmax(axis=0)
    vectors = vectors * np.sign(vectors[largest, [0, 1]])
    # Dots of one place would never part: a sunflower keeps them apart.
    turns = np.arange(n) * np.pi * (3.0 - np.sqrt(5.0))
    seeds = np.sqrt((np.arange(n) + 0.5) / n)[:, None] * np.column_stack(
        [np.cos(turns), np.sin(turns)]
    )
    spread = np.abs(vectors).max(axis=0)
    return vectors / np.where(spread > 0.0, spread, 1.0) + 0.05 * seeds


def _moved(places: Array, springs: Array, length: float, reach: float) -> Array:
    """Places after a step of the springs, none moved by more than ``reach``."""
    apart = places[:, None, :] - places[None, :, :]
    distance = np.maximum(np.hypot(apart[..., 0], apart[..., 1]), 1e-3)
    push = length**2 / distance
    pull = springs * distance**2 / length
    force = ((push - pull) / distance)[..., None] * apart
    # A light pull to the middle keeps lone dots on the page.
    total = force.sum(axis=1) - 0.6 * places
    size = np.maximum(np.hypot(total[:, 0], total[:, 1]), 1e-12)
    moved: Array = places + total * (np.minimum(size, reach) / size)[:, None]
    return moved
