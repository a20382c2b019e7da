"""Tests of conformal intervals: ranks of held-out errors, and coverage."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.testing import assert_allclose
from scipy.stats import norm

from ncarl import BayesianNCARL
from ncarl.bayes import model as intervals
from ncarl.bayes.model import ConformalScores, effective_sample_size
from ncarl.metrics import coverage

FEW = {"max_iter": 8, "tol": 0, "prior_strength": 0.1}


def scores_of(errors, deviations=None):
    """Scores of errors in distinct rows and columns."""
    places = np.arange(len(errors))
    some = np.ones(len(errors)) if deviations is None else deviations
    return ConformalScores.from_errors(errors, some, places, places)


@given(count=st.integers(2, 300), level=st.floats(0.05, 0.95), seed=st.integers(0, 99))
def test_an_interval_ends_at_the_ranks_of_its_tails(count, level, seed):
    errors = np.random.default_rng(seed).standard_normal(count)
    down, up = scores_of(errors).quantiles(level)
    # A new score has each of count + 1 ranks with equal probability; half of the
    # excluded probability lies beyond each end.
    rank = int(np.floor((count + 1) * (1 - level) / 2))
    ranked = sorted(errors)
    if rank >= 1:
        assert -down == ranked[rank - 1]
        assert up == ranked[count - rank]
        beyond = np.sum(errors < -down) + np.sum(errors > up)
        assert beyond == 2 * (rank - 1)
    else:
        assert -down <= ranked[0]
        assert up >= ranked[-1]


def test_errors_are_divided_by_their_deviations():
    scores = scores_of(np.array([2.0, -3.0, 5.0]), np.array([2.0, 1.0, 0.0]))
    assert scores.sorted_scores.tolist() == [-3.0, 1.0]
    assert scores.rms == pytest.approx(np.sqrt(5.0))


def test_quantiles_of_too_few_scores_are_widened():
    scores = scores_of(np.array([-2.0, -0.5, 0.5, 3.0]))
    down, up = scores.quantiles(0.99)
    stretch = norm.ppf(0.995) / norm.ppf(0.8)
    assert_allclose([down, up], [2.0 * stretch, 3.0 * stretch])
    wider = scores.quantiles(0.999)
    assert wider[0] > down and wider[1] > up
    # Never below the outermost score or one deviation.
    few = scores_of(np.array([0.1, 0.2]))
    assert min(few.quantiles(0.9)) >= 1.0


@pytest.mark.parametrize("count", [0, 1])
def test_without_scores_quantiles_are_normal(count):
    scores = ConformalScores(np.ones(count), float(count))
    assert scores.quantiles(0.95) == pytest.approx((1.959963985, 1.959963985))
    assert np.isnan(ConformalScores(np.empty(0), 0.0).rms)


def test_reduced_scores_have_the_same_quantiles(rng, monkeypatch):
    errors = rng.standard_normal(50_000)
    whole = scores_of(errors)
    monkeypatch.setattr(intervals, "MAX_SCORES", 5_000)
    thinned = scores_of(errors)
    assert len(thinned.sorted_scores) == 5_000
    assert thinned.sorted_scores[0] == whole.sorted_scores[0]
    assert thinned.sorted_scores[-1] == whole.sorted_scores[-1]
    assert_allclose(thinned.quantiles(0.9), whole.quantiles(0.9), rtol=1e-2)
    # Far beyond the last score both use a normal tail.
    far, further = thinned.quantiles(1 - 1e-9), thinned.quantiles(1 - 1e-12)
    assert all(a < b for a, b in zip(far, further, strict=True))


class TestCorrelatedErrors:
    """Correlated errors of a row (column) reduce the effective sample size."""

    @pytest.mark.parametrize("turned", [False, True])
    def test_errors_of_one_row_count_once(self, rng, turned):
        rows, columns = np.repeat(np.arange(40), 12), np.tile(np.arange(12), 40)
        if turned:
            rows, columns = columns, rows
        of_owner = rng.standard_normal(40)[columns if turned else rows]
        own = rng.standard_normal(480)
        same = effective_sample_size(of_owner, rows, columns)
        assert same == pytest.approx(40)
        assert effective_sample_size(own, rows, columns) > 200
        half = effective_sample_size(of_owner + own, rows, columns)
        assert 50 < half < 100
        assert effective_sample_size(np.zeros(480), rows, columns) == 480

    @pytest.mark.parametrize("level", [0.5, 0.8, 0.95])
    def test_few_independent_errors_still_cover(self, level):
        # Each row has one common error: calibrate on 25 rows, cover another.
        rng, inside = np.random.default_rng(5), []
        rows, columns = np.repeat(np.arange(25), 10), np.tile(np.arange(10), 25)
        ones = np.ones(250)
        for _ in range(400):
            errors = rng.standard_normal(25)[rows] + 0.1 * rng.standard_normal(250)
            down, up = ConformalScores.from_errors(
                errors, ones, rows, columns
            ).quantiles(level)
            new = rng.standard_normal(50) * np.hypot(1.0, 0.1)
            inside.append(np.mean((-down <= new) & (new <= up)))
        assert level - 0.015 < np.mean(inside) < level + 0.04

    def test_tail_is_normal_beyond_the_last_reliable_rank(self):
        ranked = norm.ppf((np.arange(400) + 0.5) / 400)
        scores = ConformalScores(ranked, 20.0)
        # 20 groups of 20 equal errors: the outermost 20 scores count as one.
        last = (2.0 - 1 / 20) / 21.0
        stretch = norm.ppf(0.995) / norm.ppf(1.0 - last)
        assert_allclose(scores.quantiles(0.99), -ranked[19] * stretch)
        assert_allclose(scores.quantiles(1.0 - 2.0 * last), -ranked[19], rtol=1e-9)
        # One group: the outermost score, widened from a tail of one third.
        single = ConformalScores(ranked, 1.0)
        stretch = norm.ppf(0.975) / norm.ppf(2.0 / 3.0)
        assert_allclose(single.quantiles(0.95), -ranked[0] * stretch)

    @given(
        count=st.floats(1.0, 400.0), size=st.integers(2, 300),
        level=st.floats(0.01, 0.999), seed=st.integers(0, 99),
    )  # fmt: skip
    def test_fewer_independent_ones_never_reach_less_far(
        self, count, size, level, seed
    ):
        # Only within the reliable ranks; beyond them the tail is normal.
        ranked = np.sort(np.random.default_rng(seed).standard_normal(size))
        few, all_of_them = (
            ConformalScores(ranked, min(count, size)),
            ConformalScores(ranked, size),
        )
        tail = (1.0 - level) / 2.0
        if tail * (few.effective_size + 1.0) >= 2.0:
            for one, other in zip(
                few.quantiles(level), all_of_them.quantiles(level), strict=True
            ):
                assert one >= other
        assert np.isfinite(few.quantiles(level)).all()


@pytest.fixture(scope="module")
def data():
    """A rank-one matrix with noise of infinite variance."""
    rng = np.random.default_rng(4)
    truth = rng.standard_normal((400, 1)) @ rng.standard_normal((1, 30))
    values = truth + 0.3 * rng.standard_t(2, truth.shape)
    return values, np.where(rng.random(truth.shape) < 0.6, values, np.nan)


@pytest.fixture(scope="module")
def column_fit(data):
    """A model with a column kernel fitted to the heavy-tailed data."""
    return BayesianNCARL(**FEW, sides="columns").fit(data[1])


class TestEstimator:
    @pytest.mark.parametrize("level", [0.5, 0.8, 0.9, 0.98])
    def test_coverage_is_nominal_under_heavy_tails(self, data, column_fit, level):
        (values, X), model = data, column_fit
        i, j = np.nonzero(np.isnan(X))
        low, high = model.predict_interval(i, j, level)
        assert coverage(values[i, j], low, high) == pytest.approx(level, abs=0.025)
        if level == 0.8:  # normal intervals are too wide
            x, std = model.predict(i, j, return_std=True)
            z = norm.ppf(0.9)
            assert coverage(values[i, j], x - z * std, x + z * std) > 0.85

    def test_coverage_is_nominal_with_both_sides_and_for_new_rows(self, data):
        values, X = data
        model = BayesianNCARL(**FEW, sides="both").fit(X[:150])
        i, j = np.nonzero(np.isnan(X[:150]))
        low, high = model.predict_interval(i, j, 0.9)
        assert coverage(values[i, j], low, high) == pytest.approx(0.9, abs=0.02)
        low, high = model.predict_interval(X[150:], level=0.9)
        gaps = np.isnan(X[150:])
        found = coverage(values[150:][gaps], low[gaps], high[gaps])
        assert found == pytest.approx(0.9, abs=0.03)

    def test_a_matrix_and_its_entries_have_the_same_intervals(self, X):
        model = BayesianNCARL(**FEW).fit(X)
        i, j = np.nonzero(np.isnan(X))
        for one, many in zip(
            model.predict_interval(i, j, 0.8),
            model.predict_interval(X, level=0.8),
            strict=True,
        ):
            assert_allclose(one, many[i, j], rtol=1e-9)
        low, high = model.predict_interval([], [], 0.8)
        assert len(low) == len(high) == 0

    def test_intervals_are_quantiles_times_deviations(self, X):
        model = BayesianNCARL(**FEW, clip=None, sides="both").fit(X)
        for asked, scores in ((X, model.blended_scores_), (X[:7], model.scores_)):
            x, std = model.predict(asked, return_std=True)
            down, up = scores.quantiles(0.8)
            low, high = model.predict_interval(asked, level=0.8)
            assert_allclose(low, x - down * std, atol=1e-12)
            assert_allclose(high, x + up * std, atol=1e-12)
        assert model.calibration_ == model.blended_scores_.rms

    def test_without_validation_intervals_are_normal(self, X):
        model = BayesianNCARL(max_iter=5, tol=0, validation=0, clip=None).fit(X)
        x, std = model.predict([0, 3], [1, 2], return_std=True)
        low, high = model.predict_interval([0, 3], [1, 2], level=0.95)
        assert_allclose(high, x + norm.ppf(0.975) * std)
        assert_allclose(low, x - norm.ppf(0.975) * std)
        assert np.isnan(model.calibration_)

    def test_intervals_are_clipped_to_the_bounds(self, X):
        model = BayesianNCARL(**FEW, clip=(0.0, 1.0)).fit(X)
        low, high = model.predict_interval(X, level=0.99)
        assert low.min() == 0.0
        assert high.max() == 1.0
        assert (low <= high).all()

    @pytest.mark.parametrize("level", [0.0, 1.0, -0.5, np.nan, "0.9", True])
    def test_invalid_level_raises(self, X, level):
        model = BayesianNCARL(max_iter=2, tol=0, validation=0).fit(X)
        with pytest.raises((TypeError, ValueError), match="level"):
            model.predict_interval([0], [0], level)
