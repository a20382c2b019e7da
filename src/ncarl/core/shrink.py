r"""Proximal operators of numbers: ``argmin_x 1/2 (x - t)^2 + tau g(x)`` for t >= 0."""

from __future__ import annotations

import numpy as np
from scipy.optimize import isotonic_regression

from ncarl.core.types import Array

#: Newton steps that any argument above the threshold needs fewer than.
NEWTON = 60


def soft(t: Array, tau: Array | float) -> Array:
    """For ``g(x) = x``: ``max(t - tau, 0)``; ``tau`` may differ from value to value.

    Examples
    --------
    >>> import numpy as np
    >>> soft(np.array([3.0, 1.0]), 2.0)
    array([1., 0.])
    """
    return np.maximum(t - tau, 0.0)


def power_threshold(p: float, tau: float) -> float:
    """Largest t that ``g(x) = x^p`` sends to 0, for p in (0, 1].

    Examples
    --------
    >>> round(power_threshold(0.5, 8.0), 12)
    6.0
    """
    if p == 1.0:
        return tau
    return (2.0 - p) / (2.0 * (1.0 - p)) * power_jump(p, tau)


def power_jump(p: float, tau: float) -> float:
    """Smallest value above 0 that ``g(x) = x^p`` can give."""
    return float((2.0 * tau * (1.0 - p)) ** (1.0 / (2.0 - p)))


def power(t: Array, p: float, tau: float) -> Array:
    r"""For ``g(x) = x^p`` with p in (0, 1].

    Above the threshold the largest root of ``x - t + tau p x^(p-1)``, a convex
    function, to which Newton's steps fall from ``x = t``.

    Examples
    --------
    >>> import numpy as np
    >>> power(np.array([5.0, 3.0, 1.0]), 0.5, 2.0).round(4)
    array([4.5302, 2.3473, 0.    ])
    """
    if p == 1.0:
        return soft(t, tau)
    out = np.zeros_like(t)
    above = t > power_threshold(p, tau)
    x = full = t[above]
    for _ in range(NEWTON):
        if len(x) == 0:
            break
        pull = tau * p * x ** (p - 1.0)
        step = (x - full + pull) / (1.0 - (1.0 - p) * pull / x)
        x = x - step
        if np.all(np.abs(step) <= 4.0 * np.finfo(np.float64).eps * full):
            break
    out[above] = x
    return out


def log_shrink(t: Array, tau: float, eps: float) -> Array:
    """Limit of reweighting with ``w = 1 / (x + eps)``, started at ``x = t``.

    A fixed point of the reweighting, not always the minimiser of ``log(x + eps)``.

    Examples
    --------
    >>> import numpy as np
    >>> log_shrink(np.array([3.0, 1.0]), 2.0, 0.0)
    array([2., 0.])
    """
    spread = (t + eps) ** 2 - 4.0 * tau
    root = np.sqrt(np.maximum(spread, 0.0))
    return np.where(spread > 0.0, np.maximum((t - eps + root) / 2.0, 0.0), 0.0)


def decreasing(values: Array) -> Array:
    """The non-increasing sequence nearest to the values (pool adjacent violators).

    Examples
    --------
    >>> import numpy as np
    >>> decreasing(np.array([3.0, 1.0, 2.0]))
    array([3. , 1.5, 1.5])
    """
    return np.asarray(isotonic_regression(values, increasing=False).x)
