"""Tests of structural similarity against a loop over windows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays

from ncarl.metrics import ssim


def naive(x, y, peak):
    """Wang et al. 2004, equations 13 to 16, window by window."""
    place = np.arange(-5, 6)
    weights = np.exp(-(place[:, None] ** 2 + place**2) / (2 * 1.5**2))
    weights /= weights.sum()
    c1, c2 = (0.01 * peak) ** 2, (0.03 * peak) ** 2
    values = []
    for i in range(x.shape[0] - 10):
        for j in range(x.shape[1] - 10):
            a, b = x[i : i + 11, j : j + 11], y[i : i + 11, j : j + 11]
            mean_a, mean_b = (weights * a).sum(), (weights * b).sum()
            var_a = (weights * (a - mean_a) ** 2).sum()
            var_b = (weights * (b - mean_b) ** 2).sum()
            both = (weights * (a - mean_a) * (b - mean_b)).sum()
            above = (2 * mean_a * mean_b + c1) * (2 * both + c2)
            below = (mean_a**2 + mean_b**2 + c1) * (var_a + var_b + c2)
            values.append(above / below)
    return np.mean(values)


@pytest.mark.parametrize("peak", [1.0, 255.0])
@pytest.mark.parametrize("shape", [(11, 11), (14, 19)])
def test_is_the_mean_over_all_windows(shape, peak, rng):
    x = peak * rng.random(shape)
    for y in (peak * rng.random(shape), 0.5 * x, x + 0.05 * peak * rng.random(shape)):
        assert ssim(x, y, peak) == pytest.approx(naive(x, y, peak), rel=1e-9)


def test_channels_have_equal_weight(rng):
    x, y = rng.random((2, 15, 16, 3))
    each = [ssim(x[..., k], y[..., k]) for k in range(3)]
    assert ssim(x, y) == pytest.approx(np.mean(each))


@given(arrays(float, (12, 13), elements=st.floats(0.0, 1.0)))
def test_a_picture_is_like_itself_and_no_other_is_more_so(x):
    y = np.random.default_rng(0).random(x.shape)
    assert ssim(x, x) == 1.0
    assert ssim(x, y) == ssim(y, x) <= 1.0


@pytest.mark.parametrize("shape", [(10, 20), (20, 10), (200,), (2, 12, 12, 3)])
def test_images_smaller_than_a_window_raise(shape):
    with pytest.raises(ValueError, match=r"at least 11 x 11 pixels.*got shape"):
        ssim(np.zeros(shape), np.zeros(shape))


def test_invalid_shapes_and_peak_raise():
    with pytest.raises(ValueError, match="one shape"):
        ssim(np.zeros((12, 12)), np.zeros((12, 13)))
    for peak in (0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="peak must be above 0"):
            ssim(np.zeros((12, 12)), np.zeros((12, 12)), peak)
