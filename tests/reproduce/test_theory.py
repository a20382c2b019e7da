"""Tests of the numerical check of the theorems."""

from __future__ import annotations

import numpy as np
import pytest

from ncarl.reproduce.theory import (
    CERTIFICATE_TOL,
    best_weight,
    check_theorems,
    free_gradient,
    nuclear_norm,
    surrogate_ratio,
)


@pytest.fixture(scope="module")
def facts():
    return check_theorems(seed=5)


def test_surrogate_is_at_least_the_squared_norm(facts):
    assert len(facts.ratios) == 200
    assert list(facts.ratios) == sorted(facts.ratios)
    assert facts.ratios[0] >= 1.0 - 1e-12
    assert facts.ratios[0] < 1.01  # the bound is tight
    assert facts.ratios[-1] > 5.0
    assert facts.ratio_at_formula == pytest.approx(1.0, abs=1e-12)
    # The printed theorem fails for singular weights.
    assert facts.singular == (1.0, pytest.approx(4.0))


def test_gradient_decreases_with_delta_and_matches_the_identity(facts):
    assert facts.deltas == pytest.approx([1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8])
    assert facts.slope == pytest.approx(1.0, abs=1e-3)
    ratios = np.array(facts.gradients) / facts.deltas
    assert ratios.max() / ratios.min() < 1.01
    assert max(facts.gradient_errors) < 1e-4
    assert facts.gradient_errors[0] < 1e-10


def test_only_smoothed_steps_reach_the_minimum_norm(facts):
    assert facts.steps == (5, 15, 50, 150)
    assert len(facts.excess) == 2
    for rules in facts.excess.values():
        smooth, printed = rules["smooth"], rules["pinv"]
        assert list(smooth) == sorted(smooth, reverse=True)
        # No norm is below the minimum, up to its tolerance.
        assert -CERTIFICATE_TOL <= smooth[-1] < 5e-4
        assert printed[1] < smooth[1]  # the printed rule is better after 15 steps
        assert printed[-1] > smooth[-1]  # and worse after 150
        assert min(printed) > -CERTIFICATE_TOL


def test_results_are_determined_by_the_seed():
    one, two = (check_theorems(size=(16, 9), rank=1) for _ in range(2))
    assert one == two
    assert "rank 1, recoverable" in one.excess
    assert check_theorems(seed=1, size=(16, 9), rank=1) != one


def test_optimal_weight_has_an_inverse_of_trace_one():
    X = np.random.default_rng(0).standard_normal((9, 5))
    D = best_weight(X)
    absolute = np.linalg.inv(D)
    assert np.trace(absolute) == pytest.approx(1.0)
    scale = nuclear_norm(X)
    np.testing.assert_allclose(absolute @ absolute * scale**2, X.T @ X, atol=1e-10)
    assert surrogate_ratio(X, 2.0 * D) == pytest.approx(2.0)


def test_step_solves_the_quadratic_problem():
    rng = np.random.default_rng(1)
    X, seen = rng.standard_normal((8, 4)), rng.random((8, 4)) < 0.6
    seen[:, 0] = True
    delta = 1e-3
    known = np.where(seen, X, 0.0)
    D = best_weight(known)
    Q = D + delta * np.eye(4)
    filled = known.copy()
    for row, p in zip(filled, seen, strict=True):
        # The gradient of x Q x^T vanishes at the missing entries of a row.
        row[~p] = np.linalg.solve(Q[np.ix_(~p, ~p)], -Q[np.ix_(~p, p)] @ row[p])
    expected = np.linalg.norm((2.0 * filled @ D)[~seen]) / np.linalg.norm(known)
    norm, distance = free_gradient(X, seen, delta)
    assert norm == pytest.approx(expected, rel=1e-9)
    assert distance < 1e-10
