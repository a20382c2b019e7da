"""Tests of centering: effects against dense solutions, new rows, column scales."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from ncarl.centering import Centering, fit_centering, fit_two_way_effects
from ncarl.dataset import InMemoryDataset
from ncarl.observations import Observations


def with_effects(rng, row_sd, noise):
    """An incomplete matrix of row and column effects and noise with an empty row."""
    a, b = rng.normal(0, row_sd, (50, 1)), rng.normal(0, 0.7, (1, 20))
    X = 3.0 + a + b + rng.normal(0, noise, (50, 20))
    seen = rng.random(X.shape) < rng.random((50, 1)) * 0.8 + 0.1
    seen[7] = False
    return np.where(seen, X, np.nan)


@pytest.fixture
def effects(rng):
    """A matrix with strong row effects and little noise."""
    return with_effects(rng, row_sd=2.0, noise=0.5)


def dense_solution(X, mean, ridge_a, ridge_b):
    """Row and column effects from the normal equations of the ridge problem."""
    Z = (~np.isnan(X)).astype(float)
    V = np.where(Z > 0, X - mean, 0.0)
    normal = np.block(
        [[np.diag(Z.sum(axis=1) + ridge_a), Z], [Z.T, np.diag(Z.sum(axis=0) + ridge_b)]]
    )
    solved = np.linalg.solve(normal, np.concatenate([V.sum(axis=1), V.sum(axis=0)]))
    return solved[: len(X)], solved[len(X) :]


def column_ridge(X, mean, a, b):
    """The column ridge, from the normal equation of each column."""
    seen = ~np.isnan(X)
    sums = np.where(seen, X - mean - a[:, None], 0.0).sum(axis=0)
    ridges = sums / b - seen.sum(axis=0)
    assert_allclose(ridges, np.median(ridges), rtol=1e-5)
    return float(np.median(ridges))


def two_way_effects(observed, mean):
    """Row effects, column effects and the row ridge."""
    n = observed.shape[1]
    about = Centering(mean, np.zeros(n), None, np.ones(n))
    found = fit_two_way_effects(InMemoryDataset(observed), about)
    whole = Centering(mean, found.column_effects, found.row_ridge, np.ones(n))
    return whole.row_effects(observed), found.column_effects, found.row_ridge


def test_two_way_effects_solve_the_ridge_problem_with_the_learned_ridges(rng):
    X = with_effects(rng, row_sd=0.7, noise=1.5)
    mean = float(np.nanmean(X))
    a, b, ridge_a = two_way_effects(Observations.from_dense(X), mean)
    a_dense, b_dense = dense_solution(X, mean, ridge_a, column_ridge(X, mean, a, b))
    assert_allclose(a, a_dense, atol=1e-7)
    assert_allclose(b, b_dense, atol=1e-7)


def test_strong_effects_solve_it_up_to_a_shift(effects):
    # With weak ridges, a constant can move between row and column effects.
    mean = float(np.nanmean(effects))
    a, b, ridge_a = two_way_effects(Observations.from_dense(effects), mean)
    ridge_b = column_ridge(effects, mean, a, b)
    a_dense, b_dense = dense_solution(effects, mean, ridge_a, ridge_b)
    seen = ~np.isnan(effects)
    assert_allclose(
        (a[:, None] + b)[seen], (a_dense[:, None] + b_dense)[seen], atol=1e-4
    )


def test_learned_ridges_are_ratios_of_variances(effects):
    observed = Observations.from_dense(effects)
    _, _, ridge_a = two_way_effects(observed, float(np.nanmean(effects)))
    assert ridge_a == pytest.approx(0.5**2 / 2.0**2, rel=0.5)


def test_training_row_effects_are_recovered_from_new_rows(effects):
    observed = Observations.from_dense(effects)
    center = fit_centering(InMemoryDataset(observed), "two-way", False)
    a, b, ridge = two_way_effects(observed, center.mean)
    assert_array_equal(center.column_effects, b)
    assert center.row_ridge == ridge
    assert_allclose(center.row_effects(observed), a, atol=1e-4)


def test_new_row_effect_is_its_shrunk_mean():
    center = Centering(1.0, np.array([0.0, 2.0, -1.0]), 0.5, np.ones(3))
    new = Observations.from_dense(np.array([[2.0, 5.0, np.nan], [np.nan] * 3]))
    # Two residuals, 1 and 2, and a ridge of one half.
    assert_allclose(center.row_effects(new), [3.0 / 2.5, 0.0])


def test_constant_matrix_has_no_effects():
    observed = Observations.from_dense(np.full((4, 3), 2.0))
    a, b, ridge = two_way_effects(observed, 2.0)
    assert not a.any()
    assert not b.any()
    assert np.isfinite(ridge)


@pytest.mark.parametrize("mode", ["none", "mean", "columns", "rows", "two-way"])
@pytest.mark.parametrize("scaled", [False, True])
def test_centering_is_invertible(effects, mode, scaled):
    observed = Observations.from_dense(effects)
    center = fit_centering(InMemoryDataset(observed), mode, scaled)
    rows = center.row_effects(observed)
    left = center.residuals(observed, rows)
    j = observed.indices
    back = center.restore(left, rows[observed.rows], j)
    assert_allclose(back, observed.values, atol=1e-12)


def test_modes_remove_their_means(effects):
    observed = Observations.from_dense(effects)

    def residuals(mode):
        center = fit_centering(InMemoryDataset(observed), mode, False)
        return observed.with_values(
            center.residuals(observed, center.row_effects(observed))
        )

    assert_array_equal(residuals("none").values, observed.values)
    assert abs(residuals("mean").values.mean()) < 1e-12
    columns = residuals("columns").to_csr().sum(axis=0)
    assert_allclose(columns, 0, atol=1e-10)
    rows = residuals("rows").to_csr().sum(axis=1)
    assert_allclose(rows, 0, atol=1e-10)
    assert np.std(residuals("two-way").values) == pytest.approx(0.5, rel=0.15)


def test_scaled_columns_have_unit_variance_unless_constant(rng):
    X = rng.standard_normal((30, 3)) * [1.0, 100.0, 0.0]
    observed = Observations.from_dense(X)
    center = fit_centering(InMemoryDataset(observed), "columns", True)
    left = center.residuals(observed, center.row_effects(observed)).reshape(30, 3)
    assert_allclose(np.sqrt(np.mean(left**2, axis=0)), [1, 1, 0], atol=1e-14)
    assert center.column_scales[2] == 0.0


@pytest.mark.parametrize("mode", ["columns", "two-way"])
def test_scaled_residuals_do_not_depend_on_column_units(effects, mode, rng):
    units = 10.0 ** rng.integers(-4, 5, effects.shape[1])

    def residuals(X):
        observed = Observations.from_dense(X)
        center = fit_centering(InMemoryDataset(observed), mode, True)
        return center.residuals(observed, center.row_effects(observed))

    assert_allclose(residuals(effects * units), residuals(effects), atol=1e-6)
