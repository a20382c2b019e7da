"""Tests of error and interval metrics."""

from __future__ import annotations

import numpy as np
import pytest

from ncarl.metrics import coverage, interval_width, mae, psnr, relative_rmse, rmse


def test_coverage_counts_values_within_intervals():
    truth, low, high = [1.0, 2.0, 3.0, 4.0], [1.0, 2.5, 0.0, 0.0], [1.0, 3.0, 3.0, 9.0]
    assert coverage(truth, low, high) == 0.75
    assert coverage(truth, np.full(4, -np.inf), np.full(4, np.inf)) == 1.0
    assert (
        coverage(np.reshape(truth, (2, 2)), np.zeros((2, 2)), np.ones((2, 2))) == 0.25
    )


def test_width_is_the_mean_width():
    assert interval_width([0.0, 1.0, -2.0], [1.0, 3.0, 1.0]) == 2.0
    assert interval_width([1.0], [1.0]) == 0.0


def test_errors_match_their_formulas(rng):
    t, g = rng.standard_normal((2, 50))
    assert rmse(t, g) == pytest.approx(np.sqrt(np.mean((t - g) ** 2)))
    assert mae(t, g) == pytest.approx(np.mean(np.abs(t - g)))
    expected = np.linalg.norm(t - g) / np.linalg.norm(t)
    assert relative_rmse(t, g) == pytest.approx(expected)
    assert relative_rmse(1e200 * t, 1e200 * g) == pytest.approx(expected)
    assert psnr(t, t) == np.inf
    assert psnr(t, g, 2.0) == pytest.approx(10 * np.log10(4.0 / np.mean((t - g) ** 2)))


@pytest.mark.parametrize("score", [rmse, mae, relative_rmse, interval_width])
def test_different_or_empty_shapes_raise(score):
    with pytest.raises(ValueError, match="one shape"):
        score([1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match="no entry"):
        score([], [])


def test_missing_interval_end_raises():
    for low, high in (([1.0], [1.0, 2.0]), ([1.0, 2.0], [1.0])):
        with pytest.raises(ValueError, match="one shape"):
            coverage([1.0, 2.0], low, high)


def test_errors_of_large_values_are_finite():
    assert rmse([1e200, 0.0], [0.0, 0.0]) == pytest.approx(1e200 / np.sqrt(2))
    largest = np.finfo(float).max
    assert rmse([1e308], [-1e308]) == mae([1e308], [-1e308]) == largest
    assert mae([1e308, 1e308], [0.0, 0.0]) == pytest.approx(1e308)
    assert interval_width([-1e308, 0.0], [1e308, 0.0]) == pytest.approx(1e308)
    assert relative_rmse([1.0, 1.0], [1e308, 1.0]) == pytest.approx(1e308 / np.sqrt(2))
    assert relative_rmse([1e-308], [1e308]) == largest
    assert relative_rmse([0.0], [1.0]) == largest
