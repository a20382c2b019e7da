"""What a model asks of singular values; solvers know nothing else of it.

A penalty gives its value, its proximal map and the threshold of that map. Anything
with these methods can be handed to `ncarl.solvers`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ncarl.core.shrink import (
    decreasing,
    log_shrink,
    power,
    power_threshold,
    soft,
)
from ncarl.core.types import Array


class Penalty(Protocol):
    """A function of singular values, largest first."""

    @property
    def degree(self) -> float:
        """How the value grows with the matrix: ``value(c s) = c^degree value(s)``."""
        ...

    def value(self, s: Array) -> float:
        """The penalty of a matrix with these singular values; others are 0."""
        ...

    def prox(self, s: Array, tau: float) -> Array:
        """``argmin 1/2 |x - s|^2 + tau value(x)``, largest first."""
        ...

    def threshold(self, tau: float) -> float:
        """Singular values at or below it become 0."""
        ...

    def strength(self, cut: float) -> float:
        """The ``tau`` whose threshold is ``cut``."""
        ...


@dataclass(frozen=True)
class NuclearNorm:
    """The sum of the singular values.

    Examples
    --------
    >>> import numpy as np
    >>> NuclearNorm().prox(np.array([3.0, 1.0]), 2.0)
    array([1., 0.])
    """

    degree: float = 1.0

    def value(self, s: Array) -> float:
        """Sum of the values."""
        return float(s.sum())

    def prox(self, s: Array, tau: float) -> Array:
        """Values less ``tau``, and 0 where that is negative."""
        return soft(s, tau)

    def threshold(self, tau: float) -> float:
        """``tau``."""
        return tau

    def strength(self, cut: float) -> float:
        """``cut``."""
        return cut


@dataclass(frozen=True)
class SchattenNorm:
    """The sum of the singular values to the power p, 0 < p <= 1.

    Examples
    --------
    >>> import numpy as np
    >>> SchattenNorm(0.5).value(np.array([4.0, 1.0]))
    3.0
    """

    p: float

    @property
    def degree(self) -> float:
        """The power."""
        return self.p

    def value(self, s: Array) -> float:
        """Sum of the powers."""
        return float((s[s > 0.0] ** self.p).sum())

    def prox(self, s: Array, tau: float) -> Array:
        """Largest root of ``x - s + tau p x^(p-1)``, 0 below the threshold."""
        return power(s, self.p, tau)

    def threshold(self, tau: float) -> float:
        """Where keeping a value begins to pay."""
        return power_threshold(self.p, tau)

    def strength(self, cut: float) -> float:
        """Inverse of the threshold, which is a power of ``tau``."""
        return float((cut / power_threshold(self.p, 1.0)) ** (2.0 - self.p))


@dataclass(frozen=True)
class LogNuclear:
    """``sum log(1 + s / eps)`` by reweighting with ``1 / (s + eps)``.

    The weights of WNNM, re-estimated till they settle; ``C`` belongs to the strength.
    """

    eps: float
    degree: float = 0.0

    def value(self, s: Array) -> float:
        """Sum of the logarithms."""
        return float(np.log1p(s / self.eps).sum())

    def prox(self, s: Array, tau: float) -> Array:
        """The limit of reweighting, from the values themselves."""
        return log_shrink(s, tau, self.eps)

    def threshold(self, tau: float) -> float:
        """Where the limit of reweighting leaves 0."""
        if tau < self.eps**2:  # small against eps the weights are all but equal
            return tau / self.eps
        return 2.0 * float(np.sqrt(tau)) - self.eps

    def strength(self, cut: float) -> float:
        """Inverse of the threshold."""
        if cut < self.eps:
            return cut * self.eps
        return ((cut + self.eps) / 2.0) ** 2


@dataclass(frozen=True, eq=False)
class WeightedNuclear:
    """``sum w_i s_i`` with given weights, the first for the largest value.

    Examples
    --------
    >>> import numpy as np
    >>> WeightedNuclear(np.array([0.0, 1.0])).prox(np.array([3.0, 2.0]), 1.0)
    array([3., 1.])
    """

    weights: Array
    degree: float = 1.0

    def value(self, s: Array) -> float:
        """Weighted sum of the values."""
        return float(self.weights[: len(s)] @ s)

    def prox(self, s: Array, tau: float) -> Array:
        """Values less their weights, made non-increasing where weights are not rising.

        Pooling first and clipping then is exact, whatever the order of the weights.
        """
        left = s - tau * self.weights[: len(s)]
        if np.any(np.diff(left) > 0.0):
            left = decreasing(left)
        return np.maximum(left, 0.0)

    def threshold(self, tau: float) -> float:
        """What the lightest weight takes off."""
        return tau * float(self.weights.min())

    def strength(self, cut: float) -> float:
        """The least ``tau`` that sends ``cut`` to 0 wherever there is a weight."""
        heavy = self.weights[self.weights > 0.0]
        return cut / float(heavy.min()) if len(heavy) else 1.0


@dataclass(frozen=True)
class TruncatedNuclear:
    """The sum of all singular values but the ``rank`` largest.

    Examples
    --------
    >>> import numpy as np
    >>> TruncatedNuclear(1).prox(np.array([3.0, 2.0]), 1.5)
    array([3. , 0.5])
    """

    rank: int
    degree: float = 1.0

    def value(self, s: Array) -> float:
        """Sum of the values past the first ``rank``."""
        return float(s[self.rank :].sum())

    def prox(self, s: Array, tau: float) -> Array:
        """The first values as they are, the others less ``tau``."""
        return np.concatenate([s[: self.rank], soft(s[self.rank :], tau)])

    def threshold(self, tau: float) -> float:
        """None of the first values ever becomes 0."""
        return tau if self.rank == 0 else 0.0

    def strength(self, cut: float) -> float:
        """The cut of the values past the first."""
        return cut
