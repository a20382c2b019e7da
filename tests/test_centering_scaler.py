"""Scaler and value bounds: units, bounds and levels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from ncarl.centering import fit_scaler, fit_value_bounds, units_differ
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


def ranged(X, clip="auto", *, rounded=False, by_column=False):
    return fit_value_bounds(in_memory(X), clip, rounded=rounded, by_column=by_column)


class TestRange:
    def test_ratings_have_bounds(self, ratings):
        found = ranged(ratings)
        assert_array_equal(found.low, 1.0)
        assert_array_equal(found.high, 5.0)
        out = found.clip_and_round_rows(np.tile([0.0, 3.3, 7.0, 1.0], (2, 2)))
        assert_array_equal(out, np.tile([1.0, 3.3, 5.0, 1.0], (2, 2)))

    def test_continuous_values_have_none(self, rng):
        found = ranged(rng.standard_normal((60, 8)))
        assert_array_equal(found.low, -INF)
        assert_array_equal(found.high, INF)

    def test_one_end_may_be_a_bound(self, rng):
        found = ranged(np.maximum(rng.standard_normal((60, 8)), 0.0))
        assert_array_equal(found.low, 0.0)
        assert_array_equal(found.high, INF)

    def test_an_end_reached_by_few_of_many_is_no_bound(self, rng):
        X = rng.standard_normal((100, 50))
        X[0, :4] = 9.0  # 4 of 5000 are less than a thousandth
        assert_array_equal(ranged(X).high, INF)
        X[0, :5] = 9.0
        assert_array_equal(ranged(X).high, 9.0)

    def test_a_constant_has_no_bounds(self):
        found = ranged(np.full((5, 3), 2.0))
        assert_array_equal(found.low, -INF)
        assert_array_equal(found.high, INF)

    def test_a_given_pair_holds_and_none_does_not(self, ratings):
        found = ranged(ratings, (0.0, 2.0))
        assert_array_equal(found.clip_and_round_rows(ratings[:0] + 0.0), ratings[:0])
        assert_array_equal(
            found.clip_and_round(np.array([-1.0, 3.0]), np.array([0, 7])), [0, 2]
        )
        assert_array_equal(ranged(ratings, None).low, -INF)

    def test_values_are_rounded_to_observed_levels(self, rng):
        X = rng.choice([1.0, 2.0, 4.0], (40, 3))
        found = ranged(X, rounded=True)
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
            found = ranged(ratings, (1.5, 4.5), rounded=True, by_column=by_column)
            out = found.clip_and_round_rows(np.tile([-9.0, 1.1, 4.4, 9.0], (2, 2)))
            assert_array_equal(out[0, :4], [2.0, 2.0, 4.0, 4.0])
        none = ranged(ratings, (2.1, 2.9), rounded=True)
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
        bounds = ranged(X, by_column=True)
        assert_array_equal(bounds.low, [0.0, 10.0, -INF, -INF])
        assert_array_equal(bounds.high, [1.0, 30.0, INF, INF])
        found = ranged(X, rounded=True, by_column=True)
        out = found.clip_and_round_rows(np.array([[0.7, 16.0, 0.123, 0.123]]))
        assert_array_equal(out[0, [0, 1, 3]], [1.0, 20.0, 0.123])
        assert out[0, 2] in X[:, 2]
        entries = found.clip_and_round(np.array([0.2, 99.0]), np.array([0, 1]))
        assert_array_equal(entries, [0.0, 30.0])


class TestStandard:
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
        # A column of one entry does not vary: it comes back by its mean.
        assert_allclose(back, observed.values, rtol=1e-12, atol=1e-12 * unit)

    def test_scaled_columns_have_unit_spread(self, rng):
        X = rng.standard_normal((50, 3)) * [1.0, 100.0, 1e-3] + [5.0, 0.0, 1.0]
        observed = Observations.from_dense(X)
        standard = fit_scaler(InMemoryDataset(observed), per_column=True)
        inner = standard.transform(observed).values.reshape(50, 3)
        assert_allclose(inner.mean(axis=0), 0.0, atol=1e-9)
        assert_allclose(inner.std(axis=0), 1.0, rtol=0.1)
        assert_allclose(
            standard.inverse_transform_std(np.ones(3)), X.std(axis=0), rtol=0.1
        )

    def test_a_constant_column_comes_back_constant(self, rng):
        X = np.column_stack([rng.standard_normal(20), np.full(20, 7.0)])
        standard = fit_scaler(in_memory(X), per_column=True)
        assert_allclose(
            standard.inverse_transform(rng.standard_normal((3, 2)))[:, 1], 7.0
        )

    @pytest.mark.parametrize("scaled", [False, True])
    def test_the_density_shifts_by_the_logarithms_of_the_units(self, rng, scaled):
        X = 1000.0 * rng.standard_normal((30, 3)) * [1.0, 10.0, 100.0]
        observed = Observations.from_dense(X)
        standard = fit_scaler(InMemoryDataset(observed), per_column=scaled)
        inner = standard.transform(observed).values.reshape(30, 3)
        steps = [np.ptp(X[:, j]) / np.ptp(inner[:, j]) for j in range(3)]
        shift = standard.log_density_shift(observed.column_counts)
        assert shift == pytest.approx(-30 * np.sum(np.log(steps)))

    def test_what_is_too_large_is_held_at_the_largest(self):
        standard = fit_scaler(in_memory(np.full((1, 2), 1e308)), per_column=False)
        out = standard.inverse_transform(np.array([1e9, -1e9]))
        assert_array_equal(out, [np.finfo(float).max, -np.finfo(float).max])


class TestUnitsDiffer:
    def test_spreads_of_other_sizes_do(self, rng):
        X = rng.standard_normal((40, 6))
        assert not units_differ(in_memory(X))
        assert units_differ(in_memory(X * [1.0, 1.0, 1.0, 9.0, 9.0, 9.0]))
        assert not units_differ(in_memory(X * [1, 1, 1, 3, 3, 3]))
        # Means do not count.
        assert not units_differ(in_memory(X + np.repeat([1, 900], 3)))

    def test_few_entries_say_nothing(self, rng):
        X = rng.standard_normal((15, 6)) * [1.0, 1.0, 1.0, 9.0, 9.0, 9.0]
        assert not units_differ(in_memory(X))

    def test_whatever_the_common_unit(self, rng):
        X = rng.standard_normal((40, 4)) * [1.0, 1.0, 9.0, 9.0]
        for unit in (1e-200, 1e150):
            assert units_differ(in_memory(unit * X))
