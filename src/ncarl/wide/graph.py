"""The learned graph of many columns: exact nearest neighbours, block by block.

Distances are those of the leading part of the Gram matrix plus its diagonal:
``l_ij = G_ii + G_jj - 2 z_i z_j``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from ncarl.core.types import Array
from ncarl.engines import Engine
from ncarl.wide.products import numba_rows
from ncarl.wide.spectrum import WideGram

#: Columns compared with all others at a time.
STRIP = 256
#: From here on candidates are looked for in single precision.
MANY = 4096
#: More candidates than wanted, whose distances are then taken in double precision.
SPARE = 8


@dataclass(frozen=True)
class Points:
    """Columns as points, shifted by their mean, and their squared norms.

    Attributes
    ----------
    Z : array of shape (n, p)
        The points.
    norms : array of shape (n,)
        Diagonal of the Gram matrix of the columns after the shift.
    sizes : array of shape (n,)
        Diagonal before it, by which rounding is measured.
    """

    Z: Array
    norms: Array
    sizes: Array

    @classmethod
    def of(cls, gram: WideGram) -> Points:
        """The points that the columns of a Gram matrix are."""
        Z = gram.points().astype(np.float64)
        Z -= Z.mean(axis=0)
        norms = gram.remainder() + np.einsum("jp,jp->j", Z, Z)
        return cls(Z, norms, np.asarray(gram.diagonal, dtype=np.float64))

    def distances(self, rows: slice, others: Array) -> Array:
        """Squared distances of some columns from the others listed for each."""
        own = np.arange(len(self.Z))[rows, None]
        inner = np.einsum("ip,icp->ic", self.Z[rows], self.Z[others])
        found = self.norms[rows, None] + self.norms[others] - 2.0 * inner
        # Differences that are nothing but rounding count as 0, as in core.graph.
        largest = self.sizes[rows, None] + self.sizes[others]
        found[found <= 8.0 * np.finfo(np.float64).eps * largest] = 0.0
        found[others == own] = 0.0
        return found


def wide_similarity(gram: WideGram, k: int, engine: Engine) -> Any:
    """k-sparse similarity of the columns, rows summing to one.

    The rule is that of `ncarl.core.graph.similarity`; of columns that tie for the
    places, those that come first are taken.
    """
    points = Points.of(gram)
    n = len(points.Z)
    quick = points.Z.astype(np.float32) if n > MANY else points.Z
    norms = points.norms.astype(quick.dtype)
    strips = [slice(a, min(a + STRIP, n)) for a in range(0, n, STRIP)]
    parts = list(
        engine.map(_strip, strips, points=points, quick=quick, norms=norms, count=k + 1)
    )
    others = np.concatenate([part[0] for part in parts])
    weights = np.concatenate([part[1] for part in parts])
    rows = np.repeat(np.arange(n), weights.shape[1])
    S = csr_array((weights.ravel(), (rows, others.ravel())), shape=(n, n))
    S.eliminate_zeros()
    S.sort_indices()
    return S


def _strip(
    rows: slice, *, points: Points, quick: Array, norms: Array, count: int,
    kind: str = "auto",
) -> tuple[Array, Array]:  # fmt: skip
    """Nearest columns of some columns, and their similarities."""
    scores = quick[rows] @ quick.T
    scores *= -2.0
    scores += norms
    own = np.arange(len(quick))[rows]
    scores[np.arange(len(own)), own] = -np.inf  # at distance 0 of itself
    wanted = min(count + SPARE, len(quick))
    compiled = numba_rows(kind)
    if compiled is not None:
        others = compiled.smallest_places(scores, wanted)
    else:
        others = np.argpartition(scores, wanted - 1, axis=1)[:, :wanted]
    others = np.sort(others, axis=1)
    distances = points.distances(rows, others)
    # Of those at distance 0 the column itself comes first, then the first in order.
    keys = np.where(others == own[:, None], -1.0, distances)
    order = np.argsort(keys, axis=1, kind="stable")[:, :count]
    near = np.take_along_axis(others, order, axis=1)
    return near, similarities(np.take_along_axis(distances, order, axis=1))


def similarities(nearest: Array) -> Array:
    """Similarities from the k + 1 smallest distances, in increasing order.

    Examples
    --------
    >>> import numpy as np
    >>> similarities(np.array([[0.0, 1.0, 2.0], [0.0, 0.0, 0.0]])).round(2)
    array([[0.67, 0.33, 0.  ],
           [0.33, 0.33, 0.33]])
    """
    found = nearest[:, -1:] - nearest
    total = found.sum(axis=1, keepdims=True)
    even = np.full_like(found, 1.0 / found.shape[1])
    return np.where(total > 0.0, found / np.where(total > 0.0, total, 1.0), even)
