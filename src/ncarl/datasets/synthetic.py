"""Random low-rank matrices with missing entries and noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from ncarl import masks
from ncarl.core.types import Array
from ncarl.validation import check_choice, check_fraction, check_integer, check_number


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
    noisy_fraction: float = 0.2,
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
    noisy_fraction : float between 0 and 1, default=0.2
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
    m, n = check_integer("m", m, low=1), check_integer("n", n, low=1)
    rank = check_integer("rank", rank, low=1, high=min(m, n))
    check_choice("factors", factors, ("uniform", "gaussian"))
    noisy_fraction = check_fraction("noisy_fraction", noisy_fraction, closed=True)
    if noise != "tiny":
        noise = check_number("noise", noise, low=0.0)
    rng = np.random.default_rng(random_state)
    draw = rng.random if factors == "uniform" else rng.standard_normal
    truth: Array = draw((m, rank)) @ draw((rank, n))
    hidden = masks.random((m, n), missing, rng=rng)
    sd = 0.01 * float(np.mean(np.abs(truth))) if noise == "tiny" else noise
    X = np.where(hidden, np.nan, truth)
    observed = np.flatnonzero(~hidden)
    noisy = rng.permutation(observed)[: round(noisy_fraction * len(observed))]
    X.flat[noisy] += sd * rng.standard_normal(len(noisy))
    return LowRank(X=X, truth=truth, hidden=hidden)
