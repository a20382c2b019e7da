"""Penalties on the singular values of a matrix, and their proximal operators.

The solvers take any object with the methods of `SpectralPenalty`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.optimize import isotonic_regression

from ncarl.core.types import Array


class SpectralPenalty(Protocol):
    """A penalty on singular values, which are sorted from the largest."""

    @property
    def degree(self) -> float:
        """Degree of homogeneity: ``value(c s) = c^degree value(s)``."""

    def value(self, s: Array) -> float:
        """Penalty of a matrix whose nonzero singular values are ``s``."""

    def prox(self, s: Array, tau: float) -> Array:
        """Proximal operator: minimizes ``1/2 ||x - s||^2 + tau value(x)``."""

    def threshold(self, tau: float) -> float:
        """Largest singular value that the proximal operator sets to 0."""

    def strength(self, threshold: float) -> float:
        """The ``tau`` with this threshold for the values that are penalized."""


@dataclass(frozen=True)
class SchattenNorm:
    """Schatten-p penalty: the sum of the singular values to the power p, 0 < p <= 1.

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
        """Largest root of ``x - s + tau p x^(p-1)``; 0 up to the threshold."""
        return prox_power(s, self.p, tau)

    def threshold(self, tau: float) -> float:
        """Largest value whose minimizer is 0."""
        return power_threshold(self.p, tau)

    def strength(self, threshold: float) -> float:
        """Inverse of the threshold, which is a power of ``tau``."""
        return float((threshold / power_threshold(self.p, 1.0)) ** (2.0 - self.p))


@dataclass(frozen=True)
class NuclearNorm(SchattenNorm):
    """Nuclear norm: the sum of the singular values.

    Examples
    --------
    >>> import numpy as np
    >>> NuclearNorm().prox(np.array([3.0, 1.0]), 2.0)
    array([1., 0.])
    """

    p: float = 1.0


@dataclass(frozen=True)
class LogNuclear:
    """``sum log(1 + s / eps)``, minimized by reweighting with ``1 / (s + eps)``.

    These are the weights of WNNM, iterated to convergence; its factor ``C`` is part of
    the strength.
    """

    eps: float
    degree: float = 0.0

    def value(self, s: Array) -> float:
        """Sum of the logarithms."""
        return float(np.log1p(s / self.eps).sum())

    def prox(self, s: Array, tau: float) -> Array:
        """Limit of the reweighting that starts at ``s``.

        It is a fixed point of the reweighting, but not always the minimizer.
        """
        discriminant = (s + self.eps) ** 2 - 4.0 * tau
        root = np.sqrt(np.maximum(discriminant, 0.0))
        shrunk = np.maximum((s - self.eps + root) / 2.0, 0.0)
        return np.where(discriminant > 0.0, shrunk, 0.0)

    def threshold(self, tau: float) -> float:
        """Largest value for which the reweighting ends at 0."""
        if tau < self.eps**2:  # values far below eps all have nearly the same weight
            return tau / self.eps
        return 2.0 * float(np.sqrt(tau)) - self.eps

    def strength(self, threshold: float) -> float:
        """Inverse of the threshold."""
        if threshold < self.eps:
            return threshold * self.eps
        return ((threshold + self.eps) / 2.0) ** 2


@dataclass(frozen=True, eq=False)
class WeightedNuclear:
    """Weighted nuclear norm ``sum w_i s_i``; ``w_1`` is that of the largest value.

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
        """Values minus their weights, projected onto the non-increasing sequences.

        Projecting before clipping at 0 is exact for weights in any order.
        """
        shifted = s - tau * self.weights[: len(s)]
        if np.any(np.diff(shifted) > 0.0):
            shifted = np.asarray(isotonic_regression(shifted, increasing=False).x)
        return np.maximum(shifted, 0.0)

    def threshold(self, tau: float) -> float:
        """``tau`` times the smallest weight."""
        return tau * float(self.weights.min())

    def strength(self, threshold: float) -> float:
        """Smallest ``tau`` that sets ``threshold`` to 0 for every positive weight."""
        positive = self.weights[self.weights > 0.0]
        return threshold / float(positive.min()) if len(positive) else 1.0


@dataclass(frozen=True)
class TruncatedNuclear:
    """Truncated nuclear norm: the sum of all but the ``rank`` largest values.

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
        """Soft thresholding of the values past the first ``rank``."""
        return np.concatenate([s[: self.rank], soft_threshold(s[self.rank :], tau)])

    def threshold(self, tau: float) -> float:
        """0, since the first values are never set to 0 (``tau`` if ``rank`` is 0)."""
        return tau if self.rank == 0 else 0.0

    def strength(self, threshold: float) -> float:
        """``threshold``, as for the values past the first ``rank``."""
        return threshold


def soft_threshold(t: Array, tau: float) -> Array:
    """Proximal operator of ``g(x) = x`` for t >= 0: ``max(t - tau, 0)``."""
    return np.maximum(t - tau, 0.0)


def prox_power(t: Array, p: float, tau: float) -> Array:
    r"""Proximal operator of ``g(x) = x^p`` for t >= 0 and p in (0, 1].

    Above the threshold it is the largest root of the convex function
    ``x - t + tau p x^(p-1)``, which Newton's method finds monotonically from ``x = t``.

    Examples
    --------
    >>> import numpy as np
    >>> prox_power(np.array([5.0, 3.0, 1.0]), 0.5, 2.0).round(4)
    array([4.5302, 2.3473, 0.    ])
    """
    if p == 1.0:
        return soft_threshold(t, tau)
    out = np.zeros_like(t)
    above = t > power_threshold(p, tau)
    x = full = t[above]
    for _ in range(60):  # usually a few steps are enough
        if len(x) == 0:
            break
        pull = tau * p * x ** (p - 1.0)
        step = (x - full + pull) / (1.0 - (1.0 - p) * pull / x)
        x = x - step
        if np.all(np.abs(step) <= 4.0 * np.finfo(np.float64).eps * full):
            break
    out[above] = x
    return out


def power_threshold(p: float, tau: float) -> float:
    """Largest t that the proximal operator of ``x^p`` sets to 0, for p in (0, 1]."""
    if p == 1.0:
        return tau
    # The operator jumps from 0 to this value at the threshold.
    jump = float((2.0 * tau * (1.0 - p)) ** (1.0 / (2.0 - p)))
    return (2.0 - p) / (2.0 * (1.0 - p)) * jump
