"""Tests of BiasModel: dense ridge solution, learned ridges, new rows."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from ncarl import BiasModel

TIGHT = {"tol": 1e-13, "max_iter": 20_000}


def effects(m=60, n=25, row_sd=1.0, column_sd=0.7, noise=0.5, share=0.5, seed=0):
    """A mean, random row and column effects and noise, with missing entries."""
    rng = np.random.default_rng(seed)
    X = 3.0 + rng.normal(0, row_sd, (m, 1)) + rng.normal(0, column_sd, (1, n))
    X = X + rng.normal(0, noise, (m, n))
    return np.where(rng.random((m, n)) < share, X, np.nan)


def dense_ridge(X, row_ridge, column_ridge):
    """Penalized least squares with the mean fixed, by one dense solve."""
    seen = ~np.isnan(X)
    i, j = np.nonzero(seen)
    m, n = X.shape
    design = np.zeros((len(i), m + n))
    design[np.arange(len(i)), i] = 1.0
    design[np.arange(len(i)), m + j] = 1.0
    normal = design.T @ design
    normal += np.diag(np.repeat([row_ridge, column_ridge], [m, n]))
    found = np.linalg.lstsq(normal, design.T @ (X[seen] - X[seen].mean()), rcond=None)
    return found[0][:m], found[0][m:]


@pytest.mark.parametrize("ridges", [(2.0, 5.0), (0.1, 30.0), (3.0, 0.0), (0.0, 2.0)])
def test_effects_match_a_dense_ridge_regression(ridges):
    X = effects()
    a, b = dense_ridge(X, *ridges)
    model = BiasModel(*ridges, **TIGHT).fit(X)
    assert model.mean_ == pytest.approx(np.nanmean(X))
    assert_allclose(model.row_effects_, a, atol=1e-8)
    assert_allclose(model.column_effects_, b, atol=1e-8)
    expected = np.nanmean(X) + a[:, None] + b
    assert_allclose(model.transform(X, keep_observed=False), expected, atol=1e-8)
    left = (X - expected)[~np.isnan(X)]
    cost = (left @ left + ridges[0] * a @ a + ridges[1] * b @ b) / 2.0
    assert model.objective_ == pytest.approx(cost)
    rest = (X - np.nanmean(X))[~np.isnan(X)]
    assert model.residual_ == pytest.approx(np.linalg.norm(left) / np.linalg.norm(rest))
    assert (model.row_ridge_, model.column_ridge_) == ridges


def test_zero_ridges_give_least_squares():
    X = effects()
    a, b = dense_ridge(X, 0.0, 0.0)
    model = BiasModel(0, 0, **TIGHT).fit(X)
    expected = np.nanmean(X) + a[:, None] + b
    assert_allclose(model.transform(X, keep_observed=False), expected, atol=1e-7)


def test_learned_ridges_are_consistent_with_the_regression():
    X = effects()
    model = BiasModel(**TIGHT).fit(X)
    a, b = dense_ridge(X, model.row_ridge_, model.column_ridge_)
    assert_allclose(model.row_effects_, a, atol=1e-6)
    assert_allclose(model.column_effects_, b, atol=1e-6)


@pytest.mark.parametrize(
    ("row_sd", "column_sd", "noise"), [(1.0, 0.5, 1.0), (0.3, 1.0, 0.5)]
)
def test_learned_ridges_are_near_the_ratios_of_variances(row_sd, column_sd, noise):
    rng = np.random.default_rng(1)
    rows, columns = rng.normal(0, row_sd, (500, 1)), rng.normal(0, column_sd, (1, 200))
    X = 3.0 + rows + columns + rng.normal(0, noise, (500, 200))
    X[rng.random(X.shape) < 0.6] = np.nan
    model = BiasModel().fit(X)
    assert model.row_ridge_ == pytest.approx(noise**2 / rows.var(), rel=0.08)
    assert model.column_ridge_ == pytest.approx(noise**2 / columns.var(), rel=0.08)


def test_objective_never_increases_at_given_ridges():
    history = BiasModel(2.0, 5.0, max_iter=50, tol=0).fit(effects()).history_
    objective = history["objective"]
    assert (np.diff(objective) <= 1e-12 * objective[0]).all()


@pytest.mark.parametrize("ridges", [("auto", "auto"), (2.0, 5.0), (0.0, 0.0)])
def test_training_rows_as_new_rows_give_the_same_result(ridges):
    X = effects()
    model = BiasModel(*ridges).fit(X)
    for rows in ([0], [7, 3], range(20, 40)):
        part = list(rows)
        assert_allclose(model.transform(X[part]), model.transform(X)[part], atol=1e-9)


def test_new_row_is_its_shrunk_mean_plus_column_effects():
    X = effects()
    model = BiasModel(2.0, 5.0, **TIGHT).fit(X)
    new = np.full((2, 25), np.nan)
    new[0, [3, 8]] = 9.0, 7.0
    known = model.mean_ + model.column_effects_
    effect = (9.0 - known[3] + 7.0 - known[8]) / (2 + 2.0)
    found = model.transform(new, keep_observed=False)
    assert_allclose(found[0], known + effect)
    assert_allclose(found[1], known)


def test_empty_rows_and_columns_have_no_effect():
    X = effects()
    X[4], X[:, 6] = np.nan, np.nan
    model = BiasModel().fit(X)
    assert model.row_effects_[4] == 0.0
    assert model.column_effects_[6] == 0.0
    assert_allclose(model.transform(X)[4, 6], model.mean_)


def test_additive_values_are_completed_exactly():
    X = np.add.outer(np.arange(6.0), 10.0 * np.arange(4.0))
    truth = X.copy()
    X[1, 2] = X[3, 0] = X[5, 3] = np.nan
    found = BiasModel(0, 0, **TIGHT).fit_transform(X)
    assert_allclose(found, truth, atol=1e-9)
    assert_array_equal(found[~np.isnan(X)], X[~np.isnan(X)])


@pytest.mark.parametrize("params", [{"row_ridge": -1.0}, {"column_ridge": "none"}])
def test_invalid_ridges_raise(params):
    with pytest.raises((ValueError, TypeError), match="'auto' learns it"):
        BiasModel(**params).fit(effects())
