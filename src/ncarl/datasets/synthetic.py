"""Random low-rank matrices with missing entries and noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ncarl import masks
from ncarl.core.types import Array

#: Standard deviation of "tiny" noise, relative to the mean absolute entry.
TINY_NOISE = 0.01
NUMBER_TYPES = (int, float, np.integer, np.floating)


@dataclass(frozen=True, eq=False)
class LowRank:
    """A random low-rank matrix, with and without missing entries.

    Attributes
    ----------
    X : array of shape (m, n)
        Observed matrix with noise; NaN where an entry is missing.
    truth : array of shape (m, n)
        Complete matrix without noise.
    hidden : boolean array of shape (m, n)
        Mask of the missing entries.
    """

    X: Array
    truth: Array
    hidden: Array


def make_low_rank(
    m: int,
    n: int,
    rank: int,
    *,
    factors: Literal["uniform", "gaussian"] = "uniform",
    missing: float = 0.8,
    noise: float | Literal["tiny"] = 0.0,
    noisy_share: float = 0.2,
    random_state: int | np.random.Generator = 0,
) -> LowRank:
    """Make a random matrix ``A @ B`` of given rank with missing entries.

    The same seed gives the same matrix and the same mask for any noise.

    Parameters
    ----------
    m, n : int
        Rows and columns.
    rank : int
        Columns of ``A`` and rows of ``B``.
    factors : "uniform" or "gaussian", default="uniform"
        Entries of ``A`` and ``B``: uniform between 0 and 1, or standard normal.
    missing : float between 0 and 1, default=0.8
        ``floor(missing * m * n)`` entries are hidden.
    noise : float or "tiny", default=0.0
        Standard deviation of Gaussian noise; "tiny" is 1% of the mean absolute entry.
    noisy_share : float between 0 and 1, default=0.2
        Fraction of the observed entries with noise, rounded to a count.
    random_state : int or numpy.random.Generator, default=0
        Seed or generator.

    Returns
    -------
    LowRank
        ``X``, ``truth`` and ``hidden``.

    Examples
    --------
    >>> made = make_low_rank(50, 40, 3, missing=0.6, noise=0.1)
    >>> int(made.hidden.sum()), int((made.X != made.truth).sum() - made.hidden.sum())
    (1200, 160)
    """
    for name, value in (("m", m), ("n", n), ("rank", rank)):
        if not isinstance(value, int | np.integer):
            raise ValueError(f"{name} must be a whole number, got {value!r}")
    if min(m, n) < 1 or not 1 <= rank <= min(m, n):
        raise ValueError(
            f"rank must be 1 to min(m, n), got rank={rank!r} for m={m!r}, n={n!r}"
        )
    rng = np.random.default_rng(random_state)
    A, B = _draw_factor(factors, (m, rank), rng), _draw_factor(factors, (rank, n), rng)
    truth: Array = A @ B
    hidden = masks.random((m, n), missing, rng=rng)
    sd = _noise_std(noise, truth)
    X = np.where(hidden, np.nan, truth)
    if not isinstance(noisy_share, NUMBER_TYPES) or not 0.0 <= noisy_share <= 1.0:
        raise ValueError(
            f"noisy_share must be a number between 0 and 1, got {noisy_share!r}"
        )
    observed = np.flatnonzero(~hidden)
    noisy = rng.permutation(observed)[: round(noisy_share * len(observed))]
    X.flat[noisy] += sd * rng.standard_normal(len(noisy))
    return LowRank(X=X, truth=truth, hidden=hidden)


def _draw_factor(kind: Any, shape: tuple[int, int], rng: np.random.Generator) -> Array:
    if kind == "uniform":
        return rng.random(shape)
    if kind == "gaussian":
        return rng.standard_normal(shape)
    raise ValueError(f"factors must be 'uniform' or 'gaussian', got {kind!r}")


def _noise_std(noise: Any, truth: Array) -> float:
    """The standard deviation that ``noise`` means for this matrix."""
    if isinstance(noise, str) and noise == "tiny":
        return TINY_NOISE * float(np.mean(np.abs(truth)))
    if not isinstance(noise, NUMBER_TYPES) or not 0.0 <= noise < np.inf:
        raise ValueError(f"noise must be a number from 0 or 'tiny', got {noise!r}")
    return float(noise)
