"""Errors on entries that were hidden."""

from __future__ import annotations

from typing import Any

import numpy as np

from ncarl.core.types import Array

#: The largest float: errors beyond it are held there.
MOST = float(np.finfo(np.float64).max)
#: Side and standard deviation of the window of `ssim`, in pixels.
WINDOW, WINDOW_SD = 11, 1.5


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


def ssim(truth: Any, guess: Any, peak: float = 1.0) -> float:
    """Structural similarity of two pictures; 1 where they are equal.

    As in Wang, Bovik, Sheikh and Simoncelli, Image quality assessment, IEEE
    Transactions on Image Processing 13(4), 2004: a Gaussian window of 11 by 11 pixels
    with standard deviation 1.5, constants 0.01 and 0.03, the mean over all places
    where the window fits into the picture and over the channels.

    Parameters
    ----------
    truth, guess : arrays of shape (height, width) or (height, width, channels)
        Two pictures, at least 11 pixels on each side.
    peak : float, default=1.0
        Largest value that a pixel can have.

    Examples
    --------
    >>> import numpy as np
    >>> picture = np.add.outer(np.arange(20), np.arange(30)) / 48.0
    >>> ssim(picture, picture), round(ssim(picture, 1.0 - picture), 3)
    (1.0, -0.546)
    """
    t, g = _pair(truth, guess)
    if t.ndim not in (2, 3) or min(t.shape[:2]) < WINDOW:
        raise ValueError(
            f"truth must be a picture of at least {WINDOW} x {WINDOW} pixels, grey or "
            f"with channels last, got shape {t.shape}"
        )
    if not peak > 0.0:
        raise ValueError(f"peak must be above 0, got {peak!r}")
    # In units of the peak, so that neither constant can overflow.
    t, g = t / peak, g / peak
    mean_t, mean_g = _windowed(t), _windowed(g)
    spread = (_windowed(t * t) - mean_t**2) + (_windowed(g * g) - mean_g**2)
    shared = _windowed(t * g) - mean_t * mean_g
    bright, contrast = 0.01**2, 0.03**2
    above = (2.0 * mean_t * mean_g + bright) * (2.0 * shared + contrast)
    below = (mean_t**2 + mean_g**2 + bright) * (spread + contrast)
    return float(np.mean(above / below))


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


def _windowed(picture: Array) -> Array:
    """Gaussian means of a picture wherever the whole window fits."""
    offsets = np.arange(WINDOW) - WINDOW // 2
    weights = np.exp(-0.5 * (offsets / WINDOW_SD) ** 2)
    weights /= weights.sum()
    # The window is a product of two, so rows and columns are smoothed in turn.
    for axis in (0, 1):
        views = np.lib.stride_tricks.sliding_window_view(picture, WINDOW, axis=axis)
        picture = views @ weights
    return picture


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
