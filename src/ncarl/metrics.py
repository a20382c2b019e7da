"""Errors on entries that were hidden."""

from __future__ import annotations

from typing import Any

import numpy as np

from ncarl.core.types import Array

#: The largest float: errors beyond it are held there.
MOST = float(np.finfo(np.float64).max)


def relative_rmse(truth: Any, guess: Any) -> float:
    """``||truth - guess|| / ||truth||`` over the entries given.

    This is what the paper calls mean-squared error.

    Examples
    --------
    >>> round(relative_rmse([3.0, 4.0], [3.0, 4.5]), 6)
    0.1
    """
    t, g = _pair(truth, guess)
    largest = float(max(np.max(np.abs(t)), np.max(np.abs(g)), 1e-300))
    size = float(np.linalg.norm(t / largest))
    error = float(np.linalg.norm(t / largest - g / largest))
    if size > 0.0:
        return error / size
    return 0.0 if error == 0.0 else float("inf")


def rmse(truth: Any, guess: Any) -> float:
    """Root mean square error.

    Examples
    --------
    >>> rmse([1.0, 2.0], [1.0, 4.0])
    1.4142135623730951
    """
    t, g = _pair(truth, guess)
    with np.errstate(over="ignore"):
        error = float(np.sqrt(np.mean((t - g) ** 2)))
    if np.isfinite(error):
        return error
    largest = float(np.max(np.abs(t / 2.0 - g / 2.0)))
    small = (t / 2.0 - g / 2.0) / largest
    return min(2.0 * float(np.sqrt(np.mean(small**2))) * largest, MOST)


def mae(truth: Any, guess: Any) -> float:
    """Mean absolute error.

    Examples
    --------
    >>> mae([1.0, 2.0], [1.0, 4.0])
    1.0
    """
    t, g = _pair(truth, guess)
    return float(np.mean(np.abs(t - g)))


def psnr(truth: Any, guess: Any, peak: float = 1.0) -> float:
    """Peak signal-to-noise ratio in decibels; infinite where the two are equal.

    Examples
    --------
    >>> round(psnr([0.0, 1.0], [0.1, 1.0]), 2)
    23.01
    """
    error = rmse(truth, guess)
    return float("inf") if error == 0.0 else float(20.0 * np.log10(peak / error))


def coverage(truth: Any, low: Any, high: Any) -> float:
    """Part of the truths that lie in their intervals, ends included.

    Examples
    --------
    >>> coverage([1.0, 2.0], [0.0, 3.0], [1.0, 4.0])
    0.5
    """
    t, lower = _pair(truth, low)
    _, upper = _pair(truth, high)
    return float(np.mean((t >= lower) & (t <= upper)))


def interval_width(low: Any, high: Any) -> float:
    """Mean width of intervals.

    Examples
    --------
    >>> interval_width([0.0, 1.0], [1.0, 4.0])
    2.0
    """
    upper, lower = _pair(high, low)
    return float(np.mean(upper - lower))


def _pair(truth: Any, guess: Any) -> tuple[Array, Array]:
    """Both as float arrays of one shape, or an error that says what differs."""
    t, g = np.asarray(truth, dtype=np.float64), np.asarray(guess, dtype=np.float64)
    if t.shape != g.shape:
        raise ValueError(
            f"truth and guess must have one shape, got {t.shape}, {g.shape}"
        )
    if t.size == 0:
        raise ValueError("truth holds no entry to score")
    return t, g
