"""Tests of Rubin's rules for the estimates of several imputations."""

from __future__ import annotations

import sys
from dataclasses import FrozenInstanceError

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from ncarl.tables import pool

#: Five estimates and their squared standard errors.
ESTIMATES = [10.2, 9.8, 10.5, 10.1, 9.9]
VARIANCES = [0.25, 0.24, 0.26, 0.25, 0.25]


def barnard_rubin(within, between, m, complete=None):
    """Degrees of freedom, written as in the papers."""
    r = (1 + 1 / m) * between / within
    nu_m = (m - 1) * (1 + 1 / r) ** 2
    if complete is None:
        return nu_m
    gamma = (1 + 1 / m) * between / (within + (1 + 1 / m) * between)
    nu_obs = (complete + 1) / (complete + 3) * complete * (1 - gamma)
    return 1 / (1 / nu_m + 1 / nu_obs)


@pytest.mark.parametrize("complete", [None, 99.0, 3.0])
def test_numbers_are_pooled_by_the_formulas(complete):
    found = pool(ESTIMATES, VARIANCES, complete_dof=complete, level=0.9)
    W, B = np.mean(VARIANCES), np.var(ESTIMATES, ddof=1)
    T = W + 1.2 * B
    dof = barnard_rubin(W, B, 5, complete)
    r = 1.2 * B / W
    assert (found.estimate, found.within) == pytest.approx((10.1, W))
    assert (found.between, found.variance) == pytest.approx((B, T))
    assert found.std_error == pytest.approx(np.sqrt(T))
    assert found.dof == pytest.approx(dof)
    half = stats.t.ppf(0.95, dof) * np.sqrt(T)
    assert (found.low, found.high) == pytest.approx((10.1 - half, 10.1 + half))
    assert found.p_value == pytest.approx(2 * stats.t.sf(10.1 / np.sqrt(T), dof))
    assert found.relative_increase == pytest.approx(r)
    missing = (r + 2 / (dof + 3)) / (r + 1)
    assert found.fraction_missing_information == pytest.approx(missing)
    assert (found.n_imputations, found.level) == (5, 0.9)
    assert all(isinstance(getattr(found, name), float) for name in ("dof", "p_value"))
    with pytest.raises(FrozenInstanceError):
        found.estimate = 1.0


def test_degrees_of_freedom_are_those_of_a_published_example():
    """SAS/STAT guide: five imputations that add 10% to the variance give 484."""
    unit = np.array([-2.0, -1.0, 0.0, 1.0, 2.0]) / np.sqrt(2.5)
    found = pool(np.sqrt(0.1 / 1.2) * unit, np.ones(5))
    assert found.relative_increase == pytest.approx(0.1)
    assert found.dof == pytest.approx(484.0)


def test_several_estimates_are_pooled_one_by_one(rng):
    Q, U = rng.standard_normal((6, 3)), rng.uniform(0.5, 1.0, (6, 3))
    found = pool(Q, U, complete_dof=40)
    for j in range(3):
        alone = pool(Q[:, j], U[:, j], complete_dof=40)
        for name in ("estimate", "variance", "dof", "low", "high", "p_value"):
            assert getattr(found, name)[j] == pytest.approx(getattr(alone, name))


def test_covariances_are_pooled_as_matrices(rng):
    Q, half = rng.standard_normal((8, 3)), rng.standard_normal((8, 3, 4))
    U = half @ half.transpose(0, 2, 1)
    found = pool(Q, U)
    np.testing.assert_allclose(found.within, U.mean(axis=0))
    np.testing.assert_allclose(found.between, np.cov(Q.T))
    np.testing.assert_allclose(found.variance, U.mean(axis=0) + 1.125 * np.cov(Q.T))
    alone = pool(Q, np.diagonal(U, axis1=1, axis2=2))
    for name in ("std_error", "dof", "low", "fraction_missing_information"):
        np.testing.assert_allclose(getattr(found, name), getattr(alone, name))


@pytest.mark.parametrize(("complete", "dof"), [(None, np.inf), (20.0, 20.0)])
def test_identical_estimates_have_the_degrees_of_freedom_of_complete_data(
    complete, dof
):
    found = pool([0.1] * 3, [0.2, 0.3, 0.4], complete_dof=complete)
    assert found.dof == dof and found.between == 0.0
    assert found.relative_increase == found.fraction_missing_information == 0.0
    half = stats.t.ppf(0.975, dof) * np.sqrt(0.3)
    assert found.high - found.low == pytest.approx(2.0 * half)


def test_variances_of_zero_give_no_nan():
    found = pool(np.array([[0.0, 1.0, 1.0]] * 2), np.zeros((2, 3)), complete_dof=5)
    np.testing.assert_array_equal(found.p_value, [1.0, 0.0, 0.0])
    np.testing.assert_array_equal(found.low, found.high)
    found = pool([1.0, 2.0], [0.0, 0.0], complete_dof=5)
    assert found.dof == 1.0 and found.relative_increase == np.inf
    assert found.fraction_missing_information == 1.0


def test_intervals_cover_a_mean_as_often_as_stated(rng):
    """Means of normal samples, half of them missing and drawn from their posterior."""
    n, observed, m, runs = 100, 50, 10, 2000
    y = rng.standard_normal((runs, observed))
    means = y.mean(axis=1)[:, None]
    freedom = observed - 1
    variances = y.var(axis=1, ddof=1)[:, None] * freedom
    variances = variances / rng.chisquare(freedom, (runs, m))
    centers = means + np.sqrt(variances / observed) * rng.standard_normal((runs, m))
    draws = rng.standard_normal((runs, m, n - observed))
    draws = centers[..., None] + np.sqrt(variances)[..., None] * draws
    both = np.concatenate([np.repeat(y[:, None], m, axis=1), draws], axis=2)
    # Imputations come first, and runs are the estimates.
    Q, U = both.mean(axis=2).T, both.var(axis=2, ddof=1).T / n
    found = pool(Q, U, complete_dof=n - 1, level=0.9)
    covered = np.mean((found.low <= 0.0) & (found.high >= 0.0))
    assert covered == pytest.approx(0.9, abs=0.025)
    # As if the imputed values had been observed.
    half = stats.t.ppf(0.95, n - 1) * np.sqrt(U[0])
    assert np.mean(np.abs(Q[0]) <= half) < 0.8
    assert np.mean(found.fraction_missing_information) == pytest.approx(0.5, abs=0.1)


# --- pandas --------------------------------------------------------------------------


def test_series_give_the_names_of_the_summary():
    params = [pd.Series({"x": 1.0 + k, "z": 2.0}) for k in (0.0, 0.2, 0.1)]
    errors = [pd.Series({"x": 0.5, "z": 0.1}) for _ in params]
    found = pool(params, errors)
    frame = found.summary()
    assert found.names == ("x", "z") and frame.index.tolist() == ["x", "z"]
    assert frame["estimate"].tolist() == pytest.approx([1.1, 2.0])
    np.testing.assert_array_equal(frame["high"], found.high)
    matrices = [pd.DataFrame(np.diag(e), e.index, e.index) for e in errors]
    again = pool(params, matrices)
    np.testing.assert_allclose(again.std_error, found.std_error)
    alone = pool(ESTIMATES, VARIANCES).summary()
    assert alone.shape == (1, 7) and not alone.isna().any(axis=None)


def test_series_with_other_indices_raise():
    one, other = pd.Series({"x": 1.0, "z": 2.0}), pd.Series({"z": 2.0, "x": 1.0})
    with pytest.raises(ValueError, match=r"estimates\[1\] must have the same index"):
        pool([one, other], [one, one])
    with pytest.raises(ValueError, match=r"variances\[0\] must .*\['x', 'z'\], got"):
        pool([one, one], [other, other])


def test_summary_needs_pandas(monkeypatch):
    found = pool(ESTIMATES, VARIANCES)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="summary needs pandas"):
        found.summary()


def test_statsmodels_pools_the_same():
    mice = pytest.importorskip("statsmodels.imputation.mice")
    linear = pytest.importorskip("statsmodels.api")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.standard_normal((80, 2)), columns=["x", "y"])
    frame["y"] += frame["x"]
    frame.loc[rng.random(80) < 0.3, "x"] = np.nan
    model = mice.MICE("y ~ x", linear.OLS, mice.MICEData(frame))
    theirs = model.fit(2, 5)
    parts = model.results_list
    ours = pool([one.params for one in parts], [one.cov_params() for one in parts])
    np.testing.assert_allclose(theirs.params, ours.estimate)
    np.testing.assert_allclose(theirs.cov_params(), ours.variance)


# --- invalid parameters --------------------------------------------------------------


@pytest.mark.parametrize(
    ("estimates", "variances", "words"),
    [
        ([1.0], [1.0], "estimates must be of at least 2 imputations, got 1"),
        ([1.0, 2.0], [1.0], r"variances must have shape \(2,\) .* got \(1,\)"),
        ([[1.0], [2.0]], [1.0, 1.0], r"shape \(2, 1\) or \(2, 1, 1\)"),
        (np.ones((2, 2, 2)), np.ones(2), r"estimates must have shape .* \(2, 2, 2\)"),
        ([1.0, 2.0], [1.0, -0.5], "variances must not be negative, got -0.5"),
        ([1.0, np.nan], [1.0, 1.0], "estimates must be finite"),
        ([1.0, 2.0], [np.inf, 1.0], "variances must be finite"),
        ([[1.0], [2.0, 3.0]], [1.0, 1.0], "the same shape in every imputation"),
        (["a", "b"], [1.0, 1.0], "estimates must be numbers"),
        (1.0, 1.0, "estimates must be numbers"),
        (np.ones((2, 2)), [[[1, 0.9], [0.1, 1]]] * 2, "symmetric covariance"),
        (np.ones((2, 2)), [[[-1, 0], [0, 1]]] * 2, "not be negative, got -1"),
    ],
)
def test_invalid_estimates_and_variances_raise(estimates, variances, words):
    with pytest.raises(ValueError, match=words):
        pool(estimates, variances)


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"level": 0.0}, "level must be a finite number above 0"),
        ({"level": 1.0}, "level must be below 1"),
        ({"complete_dof": 0}, "complete_dof must be a finite number above 0"),
        ({"complete_dof": np.inf}, "complete_dof must be a finite number"),
    ],
)
def test_invalid_parameters_raise(params, words):
    with pytest.raises(ValueError, match=words):
        pool(ESTIMATES, VARIANCES, **params)
