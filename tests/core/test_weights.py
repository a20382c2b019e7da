"""Tests of weight rules at small singular values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays

from ncarl.core.weights import (
    FloorWeights,
    PseudoInverseWeights,
    ShiftedInverseWeights,
    SmoothWeights,
    singular_value_shares,
    spectrum,
)

RULES = [FloorWeights(4), SmoothWeights(), PseudoInverseWeights()]
LATE = 10**6  # a step after the end of every schedule

spectra = arrays(
    np.float64, st.integers(1, 12), elements=st.floats(0, 1e6, allow_subnormal=False)
).map(np.sort)


@given(eigenvalues=spectra)
def test_shares_sum_to_one(eigenvalues):
    lam = singular_value_shares(eigenvalues)
    assert lam.sum() == pytest.approx(1.0)
    assert (lam >= 0).all()


@pytest.mark.parametrize("rule", RULES, ids=repr)
@given(eigenvalues=spectra, exponent=st.integers(-20, 20))
def test_weights_do_not_depend_on_scale(rule, eigenvalues, exponent):
    scaled = rule(4.0**exponent * eigenvalues, 2)
    np.testing.assert_array_equal(scaled, rule(eigenvalues, 2))


@pytest.mark.parametrize("rule", [FloorWeights(4), SmoothWeights()], ids=repr)
@given(eigenvalues=spectra)
def test_smaller_directions_are_punished_no_less(rule, eigenvalues):
    weights = rule(eigenvalues, 2)
    assert (np.diff(weights) <= 0).all()
    assert (weights > 0).all()


@given(eigenvalues=spectra, q=st.integers(0, 15))
def test_floor_judges_by_their_own_size_at_most_q_directions(eigenvalues, q):
    rule = FloorWeights(identifiable_rank=q)
    lam = singular_value_shares(eigenvalues)
    n = len(lam)
    largest_first = np.sort(lam)[::-1]
    tail = largest_first[min(q, n - 1)]
    f = max(1e-10, min(0.3 / n, tail))
    expected = 1 / np.maximum(lam, f)
    np.testing.assert_allclose(rule(eigenvalues, LATE), expected, rtol=1e-14)
    above_floor = np.sum(lam > max(f, tail))
    assert above_floor <= q


@given(eigenvalues=spectra, q=st.integers(0, 15), step=st.integers(1, 60))
def test_floor_never_punishes_more_in_an_earlier_step(eigenvalues, q, step):
    rule = FloorWeights(identifiable_rank=q)
    assert (rule(eigenvalues, step) <= rule(eigenvalues, step + 1)).all()
    assert (rule(eigenvalues, step) <= rule(eigenvalues, LATE)).all()


def test_pseudo_inverse_weights_are_zero_below_the_cutoff():
    eigenvalues = np.array([0.0, (0.9e-5) ** 2, (1.1e-5) ** 2, 1.0])
    weights = PseudoInverseWeights()(eigenvalues, 1)
    assert weights[0] == weights[1] == 0.0
    assert weights[2] == pytest.approx(1 / 1.1e-5, rel=1e-4)


def test_smoothing_decreases_to_its_minimum():
    rule = SmoothWeights()
    steps = [rule.epsilon(t) for t in range(1, 400)]
    assert np.all(np.diff(steps) <= 0)
    assert steps[0] == pytest.approx(0.9)
    assert steps[-1] == rule.min_epsilon
    eigenvalues = np.array([1.0, 4.0, 9.0])
    lam = singular_value_shares(eigenvalues)
    np.testing.assert_allclose(rule(eigenvalues, 500), 1 / lam, rtol=1e-12)
    expected = 1 / np.sqrt(lam**2 + 0.9**6)
    np.testing.assert_allclose(rule(eigenvalues, 3), expected, rtol=1e-12)


def test_shifted_inverse_is_the_inverse_of_the_normalized_root(rng):
    X = rng.standard_normal((5, 8))
    basis = spectrum(X.T @ X)
    w = ShiftedInverseWeights(1e-3)(basis.eigenvalues, 1)
    values, vectors = np.linalg.eigh(X.T @ X + 1e-3 * np.eye(8))
    A = vectors @ np.diag(np.sqrt(values)) @ vectors.T
    D = basis.vectors @ np.diag(w) @ basis.vectors.T
    np.testing.assert_allclose(D @ A, np.trace(A) * np.eye(8), atol=1e-8)


def test_spectrum_of_a_rank_deficient_gram_has_no_negative_value(rng):
    X = rng.standard_normal((40, 2)) @ rng.standard_normal((2, 30))
    assert np.linalg.eigvalsh(X.T @ X).min() < 0  # rounding error
    assert spectrum(X.T @ X).eigenvalues.min() == 0.0


@pytest.mark.parametrize("rule", [*RULES, ShiftedInverseWeights(1e-6)], ids=repr)
def test_zero_matrix_gives_equal_weights(rule):
    weights = rule(np.zeros(5), 1)
    np.testing.assert_allclose(weights, weights[0])
    assert np.isfinite(weights).all()
