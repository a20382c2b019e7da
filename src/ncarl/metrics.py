"""Metrics of predictions: errors, image quality, coverage of intervals, ranking."""

from __future__ import annotations

from typing import Any

import numpy as np

from ncarl.core.types import Array
from ncarl.validation import check_integer

#: Errors that overflow are clipped to the largest float.
MAX_FLOAT = float(np.finfo(np.float64).max)
#: Side length and standard deviation of the Gaussian window of `ssim`, in pixels.
SSIM_WINDOW, SSIM_WINDOW_STD = 11, 1.5


def relative_rmse(truth: Any, guess: Any) -> float:
    """``||truth - guess|| / ||truth||`` over the entries given.

    The paper calls this the mean-squared error. It is at most the largest float, which
    stands for a truth that is 0 everywhere.

    Examples
    --------
    >>> round(relative_rmse([3.0, 4.0], [3.0, 4.5]), 6)
    0.1
    """
    t, g = _check_pair(truth, guess)
    largest = float(max(np.max(np.abs(t)), np.max(np.abs(g)), 1e-300))
    size = float(np.linalg.norm(t / largest))
    error = float(np.linalg.norm(t / largest - g / largest))
    if size > 0.0 or not t.any():
        return error / size if size > 0.0 else MAX_FLOAT if error > 0.0 else 0.0
    # Next to the guess the truth is so small that its squares vanish.
    scale = float(np.max(np.abs(t)))
    return min(error / float(np.linalg.norm(t / scale)) * (largest / scale), MAX_FLOAT)


def rmse(truth: Any, guess: Any) -> float:
    """Root mean square error.

    Examples
    --------
    >>> rmse([1.0, 2.0], [1.0, 4.0])
    1.4142135623730951
    """
    t, g = _check_pair(truth, guess)
    with np.errstate(over="ignore"):
        error = float(np.sqrt(np.mean((t - g) ** 2)))
    if np.isfinite(error):
        return error
    halves = t / 2.0 - g / 2.0
    largest = float(np.max(np.abs(halves)))
    error = 2.0 * float(np.sqrt(np.mean((halves / largest) ** 2))) * largest
    return min(error, MAX_FLOAT)


def mae(truth: Any, guess: Any) -> float:
    """Mean absolute error.

    Examples
    --------
    >>> mae([1.0, 2.0], [1.0, 4.0])
    1.0
    """
    t, g = _check_pair(truth, guess)
    return _mean_difference(np.maximum(t, g), np.minimum(t, g))


def psnr(truth: Any, guess: Any, peak: float = 1.0) -> float:
    """Peak signal-to-noise ratio in decibels; infinite if the two are equal.

    Examples
    --------
    >>> round(psnr([0.0, 1.0], [0.1, 1.0]), 2)
    23.01
    """
    error = rmse(truth, guess)
    return float("inf") if error == 0.0 else float(20.0 * np.log10(peak / error))


def ssim(truth: Any, guess: Any, peak: float = 1.0) -> float:
    """Structural similarity of two images; 1 if they are equal.

    As in Wang, Bovik, Sheikh and Simoncelli, Image quality assessment, IEEE
    Transactions on Image Processing 13(4), 2004: a Gaussian window of 11 by 11 pixels
    with standard deviation 1.5, constants 0.01 and 0.03, the mean over all positions
    of the window and over the channels.

    Parameters
    ----------
    truth, guess : arrays of shape (height, width) or (height, width, channels)
        Two images, at least 11 pixels on each side.
    peak : float, default=1.0
        Largest possible value of a pixel.

    Examples
    --------
    >>> import numpy as np
    >>> picture = np.add.outer(np.arange(20), np.arange(30)) / 48.0
    >>> ssim(picture, picture), round(ssim(picture, 1.0 - picture), 3)
    (1.0, -0.546)
    """
    t, g = _check_pair(truth, guess)
    if t.ndim not in (2, 3) or min(t.shape[:2]) < SSIM_WINDOW:
        raise ValueError(
            f"truth must be a picture of at least {SSIM_WINDOW} x {SSIM_WINDOW} "
            f"pixels, gray or with channels last, got shape {t.shape}"
        )
    if not peak > 0.0:
        raise ValueError(f"peak must be above 0, got {peak!r}")
    # In units of the peak, so that neither constant can overflow.
    t, g = t / peak, g / peak
    mean_t, mean_g = _gaussian_filter(t), _gaussian_filter(g)
    var_t = _gaussian_filter(t * t) - mean_t**2
    var_g = _gaussian_filter(g * g) - mean_g**2
    covariance = _gaussian_filter(t * g) - mean_t * mean_g
    luminance, contrast = 0.01**2, 0.03**2
    numerator = (2.0 * mean_t * mean_g + luminance) * (2.0 * covariance + contrast)
    denominator = (mean_t**2 + mean_g**2 + luminance) * (var_t + var_g + contrast)
    return float(np.mean(numerator / denominator))


def _gaussian_filter(picture: Array) -> Array:
    """Gaussian-weighted means of an image wherever the whole window fits."""
    # Not through scikit-image: a large package for one formula.
    from scipy.ndimage import correlate1d  # needed here only

    half = SSIM_WINDOW // 2
    weights = np.exp(-0.5 * (np.arange(-half, half + 1) / SSIM_WINDOW_STD) ** 2)
    weights /= weights.sum()
    for axis in (0, 1):  # the window is separable
        picture = correlate1d(picture, weights, axis=axis)
    return picture[half:-half, half:-half]


def coverage(truth: Any, low: Any, high: Any) -> float:
    """Share of the true values that lie in their intervals, ends included.

    Examples
    --------
    >>> coverage([1.0, 2.0], [0.0, 3.0], [1.0, 4.0])
    0.5
    """
    t, lower = _check_pair(truth, low)
    _, upper = _check_pair(truth, high)
    return float(np.mean((t >= lower) & (t <= upper)))


def interval_width(low: Any, high: Any) -> float:
    """Mean width of intervals.

    Examples
    --------
    >>> interval_width([0.0, 1.0], [1.0, 4.0])
    2.0
    """
    upper, lower = _check_pair(high, low)
    return _mean_difference(upper, lower)


def _mean_difference(high: Array, low: Array) -> float:
    with np.errstate(over="ignore"):
        mean = float(np.mean(high - low))
    halves = high / 2.0 - low / 2.0
    if np.isfinite(mean) or not np.isfinite(halves).all():
        return mean
    largest = float(np.max(np.abs(halves)))
    return min(2.0 * float(np.mean(halves / largest)) * largest, MAX_FLOAT)


def _check_pair(truth: Any, guess: Any) -> tuple[Array, Array]:
    t, g = np.asarray(truth, dtype=np.float64), np.asarray(guess, dtype=np.float64)
    if t.shape != g.shape:
        raise ValueError(
            f"truth and guess must have one shape, got {t.shape}, {g.shape}"
        )
    if t.size == 0:
        raise ValueError("truth holds no entry to score")
    return t, g


def top_n(scores: Any, n: int) -> Array:
    """Indices of the ``n`` highest scores, in decreasing order of score.

    Fewer if there are fewer; of equal scores the first is taken. Items with a score of
    minus infinity are never returned.

    Examples
    --------
    >>> top_n([0.1, 0.9, 0.5, 0.9], 3).tolist()
    [1, 3, 2]
    """
    values = _check_vector("scores", scores)
    n = check_integer("n", n, low=1)
    count = min(n, int(np.count_nonzero(values > -np.inf)))
    if count == 0:
        return np.empty(0, dtype=np.int64)
    threshold = np.partition(values, len(values) - count)[len(values) - count]
    # All that reach the threshold, so that the first of equal scores can be taken.
    some = np.flatnonzero(values >= threshold)
    return some[np.argsort(-values[some], kind="stable")][:count]


def ndcg(gains: Any, scores: Any, n: int = 10) -> float:
    """Normalized discounted cumulative gain of the first ``n``; 1 for the best order.

    Parameters
    ----------
    gains : array-like of shape (items,)
        Relevance of each item, at least 0 and not all 0.
    scores : array-like of shape (items,)
        Scores that rank the items.
    n : int
        Length of the list; the item at rank ``k`` has the weight ``1 / log2(k + 1)``.

    Examples
    --------
    >>> round(ndcg([0, 1, 0, 1], [0.9, 0.8, 0.1, 0.2], n=3), 4)
    0.6934
    """
    worth, values = _check_ranking(gains, scores)
    if (worth < 0.0).any() or not worth.any():
        raise ValueError("gains must be at least 0, and not all 0")
    found = worth[top_n(values, n)]
    ideal = np.sort(worth)[::-1][:n]
    discounts = 1.0 / np.log2(np.arange(2.0, len(ideal) + 2.0))
    return float(found @ discounts[: len(found)] / (ideal @ discounts))


def recall(relevant: Any, scores: Any, n: int = 10) -> float:
    """Share of the relevant items that are among the first ``n``.

    Examples
    --------
    >>> recall([True, False, True], [0.1, 0.5, 0.9], n=1)
    0.5
    """
    return _count_relevant(relevant, scores, n) / int(np.sum(relevant))


def precision(relevant: Any, scores: Any, n: int = 10) -> float:
    """Share of the first ``n`` ranks that have a relevant item.

    Examples
    --------
    >>> precision([True, False, True], [0.1, 0.5, 0.9], n=2)
    0.5
    """
    return _count_relevant(relevant, scores, n) / n


def hit(relevant: Any, scores: Any, n: int = 10) -> float:
    """1 if a relevant item is among the first ``n``, else 0.

    Examples
    --------
    >>> hit([True, False, True], [0.1, 0.5, 0.9], n=1)
    1.0
    """
    return float(_count_relevant(relevant, scores, n) > 0)


def _count_relevant(relevant: Any, scores: Any, n: int) -> int:
    worth, values = _check_ranking(relevant, scores)
    if not np.isin(worth, (0.0, 1.0)).all() or not worth.any():
        raise ValueError(
            "relevant must be True or False, and True for at least one item"
        )
    return int(worth[top_n(values, n)].sum())


def _check_ranking(worth: Any, scores: Any) -> tuple[Array, Array]:
    one = _check_vector("gains and relevant", worth)
    other = _check_vector("scores", scores)
    if len(one) != len(other) or len(one) == 0:
        raise ValueError(
            f"there must be one score for each item, got {len(other)} scores for "
            f"{len(one)} items"
        )
    return one, other


def _check_vector(name: str, values: Any) -> Array:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or np.isnan(array).any():
        raise ValueError(
            f"{name} must be a list of numbers without NaN, got shape {array.shape}"
        )
    return array
