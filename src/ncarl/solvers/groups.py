r"""Group-sparse regularisers of two factors, and steps that lower them.

.. code-block:: text

    p = 2/3:  sum of the lengths of A's columns + a/2 ||B||^2
    p = 1/2:  sum of the lengths of A's columns + a times that of B's rows

The least value for a product ``X = A B`` is ``3/2 a^(1/3) sum s^(2/3)`` and
``2 a^(1/2) sum s^(1/2)`` of its singular values s.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from array_api_compat import array_namespace

from ncarl.core.singular import Triplets, frobenius, host
from ncarl.core.types import Array
from ncarl.penalties import SchattenNorm
from ncarl.solvers.factored import column_norms, first_of, group_shrink, spread_over

#: Columns whose squared length is below this part of the largest are dropped.
PRUNE = 1e-10
#: Triplets below this part of the largest are no start for a column.
NOTHING = 1e-10


@dataclass(frozen=True)
class Groups:
    """The regulariser.

    Attributes
    ----------
    half : bool
        Whether p is 1/2; else it is 2/3.
    a : float
        Weight of B; it moves scale from one factor to the other and no more.
    """

    half: bool
    a: float = 1.0

    @property
    def penalty(self) -> SchattenNorm:
        """What it is, but for a factor, at its least for a product."""
        return SchattenNorm(0.5 if self.half else 2.0 / 3.0)

    @property
    def weight(self) -> float:
        """That factor."""
        return float(2.0 * self.a**0.5 if self.half else 1.5 * self.a ** (1.0 / 3.0))

    def value(self, A: Array, B: Array) -> float:
        """The regulariser at two factors."""
        xp = array_namespace(A)
        left = float(xp.sum(column_norms(A)))
        if self.half:
            return left + self.a * float(xp.sum(column_norms(B.T)))
        return left + self.a / 2.0 * frobenius(B) ** 2

    def best(self, found: Triplets) -> tuple[Array, Array]:
        """The factors of least value for a product with these triplets."""
        solid = int(np.count_nonzero(found.s > NOTHING * found.s[0]))
        A, B = spread_over(first_of(found, solid), 0.5 if self.half else 2.0 / 3.0)
        shift = self.a**0.5 if self.half else self.a ** (1.0 / 3.0)
        return shift * A, B / shift


def gram_norm(G: Array) -> float:
    """Largest eigenvalue of a Gram matrix; 0 for one without rows."""
    if G.shape[0] == 0:
        return 0.0
    return max(float(array_namespace(G).linalg.eigvalsh(G)[-1]), 0.0)


def shrunk_left(A: Array, right: Array, G: Array, cut: float) -> Array:
    """A proximal step in A for ``1/2 ||A B - W||^2 + cut`` times A's group norm.

    ``right`` is ``W B^T`` and ``G`` is ``B B^T``, whose largest eigenvalue bounds the
    curvature, so that no step goes too far and the sum never rises.
    """
    bound = gram_norm(G)
    if bound == 0.0:  # the other factor is 0, and so is the best A
        return 0.0 * A
    return group_shrink(A + (right - A @ G) / bound, cut / bound)


def pruned(A: Array, B: Array) -> tuple[Array, Array]:
    """Factors without the columns that are all but 0 in either."""
    left, right = host(column_norms(A)), host(column_norms(B.T))
    if len(left) == 0:
        return A, B
    solid = (left**2 > PRUNE * left.max() ** 2) & (right**2 > PRUNE * right.max() ** 2)
    if solid.all():
        return A, B
    keep = array_namespace(A).asarray(np.flatnonzero(solid), device=A.device)
    return A[:, keep], B[keep]
