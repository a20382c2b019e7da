"""Tests of the scaler and value bounds: units, bounds and levels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from ncarl.centering import compare_column_units, fit_scaler, fit_value_bounds
from ncarl.dataset import InMemoryDataset
from ncarl.observations import Observations

INF = np.inf


@pytest.fixture
def ratings(rng):
    """Whole numbers from 1 to 5, half of them missing."""
    values = rng.integers(1, 6, (60, 8)).astype(float)
    return np.where(rng.random((60, 8)) < 0.5, values, np.nan)


def in_memory(X):
    return InMemoryDataset(Observations.from_dense(X))


def make_bounds(X, clip="auto", *, rounded=False, by_column=False):
    return fit_value_bounds(in_memory(X), clip, rounded=rounded, by_column=by_column)


class TestValueBounds:
    def test_ratings_have_bounds(self, ratings):
        found = make_bounds(ratings)
        assert_array_equal(found.low, 1.0)
        assert_array_equal(found.high, 5.0)
        out = found.clip_and_round_rows(np.tile([0.0, 3.3, 7.0, 1.0], (2, 2)))
        assert_array_equal(out, np.tile([1.0, 3.3, 5.0, 1.0], (2, 2)))

    def test_continuous_values_have_no_bounds(self, rng):
        found = make_bounds(rng.standard_normal((60, 8)))
        assert_array_equal(found.low, -INF)
        assert_array_equal(found.high, INF)

    def test_bound_on_one_side(self, rng):
        found = make_bounds(np.maximum(rng.standard_normal((60, 8)), 0.0))
        assert_array_equal(found.low, 0.0)
        assert_array_equal(found.high, INF)

    def test_rarely_reached_extremum_is_not_a_bound(self, rng):
        X = rng.standard_normal((100, 50))
        X[0, :4] = 9.0  # 4 of 5000 is below 0.1%
        assert_array_equal(make_bounds(X).high, INF)
        X[0, :5] = 9.0
        assert_array_equal(make_bounds(X).high, 9.0)

    def test_constant_matrix_has_no_bounds(self):
        found = make_bounds(np.full((5, 3), 2.0))
        assert_array_equal(found.low, -INF)
        assert_array_equal(found.high, INF)

    def test_given_bounds_and_none(self, ratings):
        found = make_bounds(ratings, (0.0, 2.0))
        assert_array_equal(found.clip_and_round_rows(ratings[:0] + 0.0), ratings[:0])
        assert_array_equal(
            found.clip_and_round(np.array([-1.0, 3.0]), np.array([0, 7])), [0, 2]
        )
        assert_array_equal(make_bounds(ratings, None).low, -INF)

    def test_values_are_rounded_to_observed_levels(self, rng):
        X = rng.choice([1.0, 2.0, 4.0], (40, 3))
        found = make_bounds(X, rounded=True)
        values = np.array([0.0, 1.4, 1.6, 2.9, 3.1, 9.0])
        wanted = [1.0, 1.0, 2.0, 2.0, 4.0, 4.0]
        assert_array_equal(
            found.clip_and_round(values, np.array([0, 1, 2, 0, 1, 2])), wanted
        )
        assert_array_equal(
            found.clip_and_round_rows(np.tile(values[:, None], 3))[:, 1], wanted
        )

    def test_levels_lie_within_the_bounds(self, ratings):
        for by_column in (False, True):
            found = make_bounds(ratings, (1.5, 4.5), rounded=True, by_column=by_column)
            out = found.clip_and_round_rows(np.tile([-9.0, 1.1, 4.4, 9.0], (2, 2)))
            assert_array_equal(out[0, :4], [2.0, 2.0, 4.0, 4.0])
        none = make_bounds(ratings, (2.1, 2.9), rounded=True)
        assert_array_equal(none.clip_and_round_rows(np.full((1, 8), 2.5)), 2.5)

    def test_columns_may_have_bounds_and_levels_of_their_own(self, rng):
        X = np.column_stack(
            [
                rng.choice([0.0, 1.0], 50),
                rng.choice([10.0, 20.0, 30.0], 50),
                rng.standard_normal(50),
                np.full(50, np.nan),
            ]
        )
        bounds = make_bounds(X, by_column=True)
        assert_array_equal(bounds.low, [0.0, 10.0, -INF, -INF])
        assert_array_equal(bounds.high, [1.0, 30.0, INF, INF])
        found = make_bounds(X, rounded=True, by_column=True)
        out = found.clip_and_round_rows(np.array([[0.7, 16.0, 0.123, 0.123]]))
        assert_array_equal(out[0, [0, 1, 3]], [1.0, 20.0, 0.123])
        assert out[0, 2] in X[:, 2]
        entries = found.clip_and_round(np.array([0.2, 99.0]), np.array([0, 1]))
        assert_array_equal(entries, [0.0, 30.0])


class TestScaler:
    @given(
        scaled=st.booleans(),
        unit=st.sampled_from([1e-200, 1e-3, 1.0, 1e150]),
        seed=st.integers(0, 99),
    )
    def test_there_and_back_is_the_same(self, scaled, unit, seed):
        rng = np.random.default_rng(seed)
        X = (rng.standard_normal((9, 4)) * [1.0, 2.0, 50.0, 0.1] + 3.0) * unit
        observed = Observations.from_dense(
            np.where(rng.random((9, 4)) < 0.7, X, np.nan)
        )
        standard = fit_scaler(InMemoryDataset(observed), per_column=scaled)
        inner = standard.transform(observed)
        assert np.abs(inner.values).max() < 50.0
        back = standard.inverse_transform(inner.values, observed.indices)
        # A column with one entry is constant and restored by its mean.
        assert_allclose(back, observed.values, rtol=1e-12, atol=1e-12 * unit)

    def test_scaled_columns_have_unit_variance(self, rng):
        X = rng.standard_normal((50, 3)) * [1.0, 100.0, 1e-3] + [5.0, 0.0, 1.0]
        observed = Observations.from_dense(X)
        standard = fit_scaler(InMemoryDataset(observed), per_column=True)
        inner = standard.transform(observed).values.reshape(50, 3)
        assert_allclose(inner.mean(axis=0), 0.0, atol=1e-9)
        assert_allclose(inner.std(axis=0), 1.0, rtol=0.1)
        assert_allclose(
            standard.inverse_transform_std(np.ones(3)), X.std(axis=0), rtol=0.1
        )

    def test_constant_column_is_restored(self, rng):
        X = np.column_stack([rng.standard_normal(20), np.full(20, 7.0)])
        standard = fit_scaler(in_memory(X), per_column=True)
        assert_allclose(
            standard.inverse_transform(rng.standard_normal((3, 2)))[:, 1], 7.0
        )

    @pytest.mark.parametrize("scaled", [False, True])
    def test_log_density_is_shifted_by_log_units(self, rng, scaled):
        X = 1000.0 * rng.standard_normal((30, 3)) * [1.0, 10.0, 100.0]
        observed = Observations.from_dense(X)
        standard = fit_scaler(InMemoryDataset(observed), per_column=scaled)
        inner = standard.transform(observed).values.reshape(30, 3)
        steps = [np.ptp(X[:, j]) / np.ptp(inner[:, j]) for j in range(3)]
        shift = standard.log_density_shift(observed.column_counts)
        assert shift == pytest.approx(-30 * np.sum(np.log(steps)))

    def test_overflow_is_clipped_to_the_largest_float(self):
        standard = fit_scaler(in_memory(np.full((1, 2), 1e308)), per_column=False)
        out = standard.inverse_transform(np.array([1e9, -1e9]))
        assert_array_equal(out, [np.finfo(float).max, -np.finfo(float).max])


class TestUnitsDiffer:
    def test_different_standard_deviations(self, rng):
        X = rng.standard_normal((40, 6))
        assert not compare_column_units(in_memory(X))[0]
        assert compare_column_units(in_memory(X * [1.0, 1.0, 1.0, 9.0, 9.0, 9.0]))[0]
        assert not compare_column_units(in_memory(X * [1, 1, 1, 3, 3, 3]))[0]
        # Means are ignored.
        assert not compare_column_units(in_memory(X + np.repeat([1, 900], 3)))[0]

    def test_columns_with_few_entries_are_ignored(self, rng):
        X = rng.standard_normal((15, 6)) * [1.0, 1.0, 1.0, 9.0, 9.0, 9.0]
        assert not compare_column_units(in_memory(X))[0]

    def test_is_invariant_to_a_common_unit(self, rng):
        X = rng.standard_normal((40, 4)) * [1.0, 1.0, 9.0, 9.0]
        for unit in (1e-200, 1e150):
            assert compare_column_units(in_memory(unit * X))[0]
