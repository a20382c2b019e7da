"""Tests of synthetic matrices."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from ncarl.datasets import make_low_rank

SIZES = st.integers(3, 30)
SHARES = st.floats(0.0, 1.0)


@given(SIZES, SIZES, st.sampled_from(["uniform", "gaussian"]), SHARES, SHARES)
def test_counts_and_rank_are_exact(m, n, factors, missing, noisy_fraction):
    made = make_low_rank(
        m, n, 2, factors=factors, missing=missing, noise=0.5,
        noisy_fraction=noisy_fraction,
    )  # fmt: skip
    assert np.linalg.matrix_rank(made.truth) == 2
    assert made.hidden.sum() == math.floor(missing * m * n)
    assert np.array_equal(np.isnan(made.X), made.hidden)
    seen = ~made.hidden
    changed = made.X[seen] != made.truth[seen]
    assert changed.sum() == round(noisy_fraction * seen.sum())


def test_factors_follow_their_distributions():
    uniform = make_low_rank(400, 300, 1).truth
    gaussian = make_low_rank(400, 300, 1, factors="gaussian").truth
    assert 0.0 < uniform.min() < uniform.max() < 1.0
    assert uniform.mean() == pytest.approx(0.25, abs=0.03)
    assert gaussian.mean() == pytest.approx(0.0, abs=0.05)
    assert gaussian.std() == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("noise", [0.3, "tiny"])
def test_noise_has_the_given_standard_deviation(noise):
    made = make_low_rank(300, 300, 5, missing=0.2, noise=noise, noisy_fraction=1.0)
    seen = ~made.hidden
    expected = 0.3 if noise == 0.3 else 0.01 * np.abs(made.truth).mean()
    errors = made.X[seen] - made.truth[seen]
    assert errors.std() == pytest.approx(expected, rel=0.02)
    assert errors.mean() == pytest.approx(0.0, abs=0.02 * expected)


def test_noise_changes_neither_truth_nor_mask():
    clean, noisy = (make_low_rank(30, 20, 3, noise=sd) for sd in (0.0, 0.1))
    assert np.array_equal(clean.truth, noisy.truth)
    assert np.array_equal(clean.hidden, noisy.hidden)
    seen = ~clean.hidden
    assert np.array_equal(clean.X[seen], clean.truth[seen])
    other = make_low_rank(30, 20, 3, random_state=1)
    assert not np.array_equal(clean.truth, other.truth)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rank": 6}, "rank must be a whole number from 1 to 5"),
        ({"m": 5.5}, "m must be a whole"),
        ({"factors": "even"}, "factors must be"),
        ({"noise": -1.0}, "noise must be"),
        ({"noise": "large"}, "noise must be"),
        ({"noisy_fraction": 2.0}, "noisy_fraction must be"),
    ],
)
def test_invalid_parameters_raise(change, words):
    with pytest.raises((TypeError, ValueError), match=words):
        make_low_rank(**{"m": 5, "n": 8, "rank": 2, **change})
