"""Tests of calibrated standard deviations, and of draws that have them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from ncarl import BayesianNCARL, load
from ncarl.bayes import model as models
from ncarl.bayes.model import MAX_SQUARE_SHARE, fit_std_factors, limit_shares
from ncarl.fitting.kernel_model import KernelModel

pytestmark = pytest.mark.usefixtures("one_blas_thread")
FEW = {"max_iter": 20, "tol": 0, "prior_strength": 0.1, "clip": None}


def held_out(rng, n_splits=5, m=60, n=6, share=0.3):
    """Positions of random held-out entries, and the splits that they are from."""
    parts = [np.nonzero(rng.random((m, n)) < share) for _ in range(n_splits)]
    splits = np.repeat(np.arange(n_splits), [len(rows) for rows, _ in parts])
    rows, columns = np.concatenate(parts, axis=1)
    return rows, columns, splits


class TestFactors:
    @pytest.mark.parametrize("off", [0.5, 1.0, 3.0])
    def test_of_many_errors_are_their_ratio_to_the_deviations(self, rng, off):
        stds = rng.uniform(0.5, 2.0, 20_000)
        errors = off * stds * rng.standard_normal(20_000)
        rows, columns = np.divmod(np.arange(20_000), 50)
        zeros = np.zeros(20_000, dtype=int)
        found = fit_std_factors(errors, stds, rows, columns, zeros, 51)
        assert found.shape == (51,)
        assert_allclose(found, np.sqrt(np.mean((errors / stds) ** 2)), rtol=1e-3)

    def test_follow_columns_that_differ(self, rng):
        off = np.array([0.5, 1.0, 1.0, 2.0, 1.0, 1.0])
        values = off * rng.standard_normal((3000, 6))
        rows, columns, splits = held_out(rng, m=3000)
        errors, ones = values[rows, columns], np.ones(len(rows))
        found = fit_std_factors(errors, ones, rows, columns, splits, 6)
        assert_allclose(found, off, rtol=0.06)
        # Columns with few entries are shrunk toward all.
        some = rows < 40
        part = [x[some] for x in (errors, ones, rows, columns, splits)]
        fewer = fit_std_factors(*part, 7)
        own = [np.sqrt(np.mean(part[0][part[3] == j] ** 2)) for j in (0, 3)]
        assert fewer[0] < fewer[6] < fewer[3]
        assert fewer[3] / fewer[0] < 0.9 * own[1] / own[0]
        # One split cannot tell whether a column or a block of it differs.
        one = fit_std_factors(errors, ones, rows, columns, 0 * splits, 6)
        assert np.ptp(one) == 0.0

    def test_are_common_if_blocks_rather_than_columns_differ(self):
        # In every split each column has a block of its own size of errors.
        spread = []
        for seed in range(20):
            rng = np.random.default_rng(seed)
            rows = np.tile(np.repeat(np.arange(5) * 30, 8), 30).reshape(30, 40)
            rows = (rows + np.arange(30)[:, None]).ravel()
            columns = np.tile(np.arange(8), 150)
            splits = np.tile(np.repeat(np.arange(5), 8), 30)
            sizes = np.exp(rng.standard_normal((5, 8)))
            errors = sizes[splits, columns] * rng.standard_normal(len(rows))
            ones = np.ones(len(rows))
            found = fit_std_factors(errors, ones, rows, columns, splits, 8)
            spread.append(np.std(np.log(found)))
        assert np.median(spread) < 0.05
        assert np.mean(spread) < 0.15

    @pytest.mark.parametrize(("groups", "size"), [(20, 1), (25, 10), (100, 3)])
    def test_of_few_errors_give_new_ones_a_mean_square_of_one(self, groups, size):
        # Each row has one common error; the naive factor is too small on average.
        rng, rows = np.random.default_rng(1), np.repeat(np.arange(groups), size)
        columns = np.tile(np.arange(size), groups)
        ones, zeros = np.ones(len(rows)), np.zeros(len(rows), dtype=int)
        squares, naive = [], []
        for _ in range(2000):
            errors = 1.25 * rng.standard_normal(groups)[rows]
            factor = fit_std_factors(errors, ones, rows, columns, zeros, size)[0]
            squares.append(1.25**2 / factor**2)  # expected square of a new z
            naive.append(1.25**2 / np.mean(errors**2))
        assert np.mean(squares) == pytest.approx(1.0, abs=0.06)
        assert np.mean(naive) > np.mean(squares) + 0.6 * 2.0 / groups

    def test_of_a_few_errors_are_near_one(self):
        for error in (1e-9, 0.0, 1.0):
            errors = np.array([error, 1e-9])
            at = np.arange(2)
            found = fit_std_factors(errors, np.ones(2), at, at, 0 * at, 2)
            assert_allclose(found, found[0])
            assert 0.5 < found[0] < 2.5

    def test_hardly_depend_on_one_wrong_value(self, rng):
        errors, at = rng.standard_normal(1000), np.arange(1000)
        ones, columns = np.ones(1000), at % 10
        before = fit_std_factors(errors, ones, at, columns, 0 * at, 10)
        errors[17] = 1e8
        after = fit_std_factors(errors, ones, at, columns, 0 * at, 10)
        # A fifth more for the sum, and the variance of the mean.
        assert_allclose(after, before, rtol=0.3)

    @pytest.mark.parametrize("wrong", [10.0, 1e8])
    def test_of_few_errors_do_not_depend_on_one_wrong_value(self, wrong):
        # Columns 0 and 1, whose squares are nearly the same within each.
        errors = np.array([wrong, -2.2, -2.2 - 1e-15, wrong, 1.1])
        rows, columns = np.array([0, 1, 3, 0, 5]), np.array([0, 1, 1, 0, 2])
        splits = np.array([0, 1, 2, 3, 1])
        found = fit_std_factors(errors, np.ones(5), rows, columns, splits, 3)
        assert np.isfinite(found).all()
        assert 1.0 < found.min() <= found.max() < 10.0

    def test_count_an_entry_of_several_splits_once(self, rng):
        errors, at = rng.standard_normal(200), np.arange(200)
        stds, columns, splits = np.full(200, 0.7), at % 5, at % 3
        once = fit_std_factors(errors, stds, at, columns, splits, 5)
        copies = np.repeat(at, np.where(at < 20, 6, 1))
        part = (x[copies] for x in (errors, stds, at, columns, splits))
        assert_allclose(fit_std_factors(*part, 5), once, rtol=1e-9)

    def test_without_errors_there_are_none(self):
        at = np.arange(4)
        for errors, stds in ((at, 0.0 * at), (0.0 * at, 1.0 + at)):
            assert fit_std_factors(errors, stds, at, at, at, 4) is None
        none = np.empty(0, dtype=int)
        assert fit_std_factors(none, none, none, none, none, 4) is None

    @given(st.lists(st.floats(0.0, 1e6), min_size=2, max_size=60))
    def test_shares_are_limited(self, values):
        squares = np.array(values)
        limited = limit_shares(squares)
        share = max(MAX_SQUARE_SHARE, 10.0 / (10.0 + len(squares)))
        assert limited.max() <= share * limited.sum() * (1.0 + 1e-6) + 1e-12
        assert (limited <= squares).all()
        # Those that are changed are the largest, and exactly at the limit.
        changed = limited < squares
        if changed.any():
            assert np.ptp(limited[changed]) == 0.0
            assert squares[~changed].max(initial=0.0) <= limited.max()
            assert limited.max() == pytest.approx(share * limited.sum())

    @pytest.mark.parametrize(("large", "small"), [(10, 90), (3, 27), (2, 28), (10, 91)])
    def test_shares_of_equal_outliers_are_limited(self, large, small):
        squares = np.repeat([1e30, 1.0], [large, small])
        limited = limit_shares(squares)
        assert np.isfinite(limited).all()
        if large * max(MAX_SQUARE_SHARE, 10.0 / (10.0 + len(squares))) < 1.0 - 1e-9:
            assert limited.max() < 1e3
        assert (limited[large:] == 1.0).all()


@pytest.fixture(scope="module")
def data():
    """A low-rank matrix with noise, and what is observed of it."""
    rng = np.random.default_rng(0)
    m, n = 60, 50
    truth = rng.standard_normal((m, 2)) @ rng.standard_normal((2, n))
    values = truth + 0.4 * rng.standard_normal((m, n))
    return values, np.where(rng.random((m, n)) < 0.6, values, np.nan)


@pytest.fixture(scope="module", params=["columns", "rows", "both", "auto"])
def model(request, data):
    found = BayesianNCARL(**FEW, sides=request.param).fit(data[1])
    assert found.sides_ != "both" or 0.1 < found.weight_ < 0.9
    return found


def uncalibrated(model):
    """The model without its factors."""
    new = BayesianNCARL(**model.get_params())
    vars(new).update(vars(model))
    new.model_ = replace(model.model_, std_factors=None, blended_std_factors=None)
    return new


class TestEstimator:
    def test_errors_of_missing_entries_have_a_mean_square_of_one(self, data, model):
        values, X = data
        i, j = np.nonzero(np.isnan(X))
        x, std = model.predict(i, j, return_std=True)
        z = (values[i, j] - x) / std
        # The standard error is about 0.07.
        assert np.mean(z**2) == pytest.approx(1.0, abs=0.2)
        assert np.mean(np.abs(z) <= 1.96) == pytest.approx(0.95, abs=0.03)
        assert model.calibration_ == pytest.approx(1.0, abs=0.05)
        assert model.calibration_ == model.blended_scores_.rms
        share = np.mean(np.abs(model.blended_scores_.sorted_scores) < 1.959964)
        assert model.held_out_coverage_ == share

    def test_deviations_of_a_model_that_is_off_are_corrected(self, data, monkeypatch):
        X, stds = data[1], []
        to_user_std = KernelModel._to_user_std
        for off in (1.0, 0.3):
            monkeypatch.setattr(
                KernelModel,
                "_to_user_std",
                lambda self, *args, off=off: off * to_user_std(self, *args),
            )
            model = BayesianNCARL(**FEW, sides="columns").fit(X)
            stds.append(model.transform(X, return_std=True)[1])
            stds.append(model.transform(X[:9], return_std=True)[1])
            down, up = model.scores_.quantiles(0.9)
            assert 1.3 < down < 2.0 and 1.3 < up < 2.0
        assert_allclose(stds[2], stds[0], rtol=0.01)
        assert_allclose(stds[3], stds[1], rtol=0.01)

    def test_all_deviations_are_multiplied(self, data, model):
        X, before = data[1], uncalibrated(model)
        i, j = np.nonzero(np.isnan(X))
        factors = model.std_factors_
        for kind in (True, "latent"):
            filled, std = model.transform(X, keep_observed=False, return_std=kind)
            same, raw = before.transform(X, keep_observed=False, return_std=kind)
            assert_array_equal(filled, same)
            assert_allclose(std, raw * factors, rtol=1e-12)
            found = model.predict(i, j, return_std=kind)[1]
            assert_allclose(found, std[i, j], rtol=1e-9)
        assert before.std_factors_ is None

    def test_new_rows_have_the_factors_of_the_columns(self, low_rank):
        X = low_rank(np.random.default_rng(2))
        model = BayesianNCARL(**{**FEW, "max_iter": 5}, sides="both").fit(X)
        before, some = uncalibrated(model), X[:7]
        assert 0.0 < model.weight_ < 1.0
        std = model.transform(some, keep_observed=False, return_std=True)[1]
        raw = before.transform(some, keep_observed=False, return_std=True)[1]
        assert_allclose(std, raw * model.model_.std_factors, rtol=1e-12)
        assert np.abs(model.model_.std_factors - model.std_factors_).max() > 1e-3

    def test_factors_are_in_units_of_the_columns_whatever_their_scale(self, data):
        X = data[1]
        units = 10.0 ** np.arange(X.shape[1])
        scaled = [BayesianNCARL(**FEW, scale="columns").fit(x) for x in (X, units * X)]
        assert_allclose(scaled[0].std_factors_, scaled[1].std_factors_, rtol=1e-6)
        one, other = (
            fit.transform(x, return_std=True)[1]
            for fit, x in zip(scaled, (X, units * X), strict=True)
        )
        assert_allclose(one * units, other, rtol=1e-6)

    def test_without_held_out_entries_there_are_no_factors(self, data):
        model = BayesianNCARL(**FEW, validation=0).fit(data[1])
        assert model.std_factors_ is None
        assert np.isnan(model.calibration_) and np.isnan(model.held_out_coverage_)
        noiseless = BayesianNCARL(**FEW, noise=0).fit(data[1])
        assert noiseless.std_factors_ is None

    def test_saved_models_keep_them(self, data, model, tmp_path):
        model.save(tmp_path / "model.npz", training_data=True)
        again = load(tmp_path / "model.npz")
        assert_array_equal(again.std_factors_, model.std_factors_)
        assert again.held_out_coverage_ == model.held_out_coverage_
        one, other = (m.transform(data[1], return_std=True)[1] for m in (model, again))
        assert_array_equal(one, other)


class TestDraws:
    @pytest.mark.parametrize("chunk", [20_000_000, 20_000])
    def test_agree_with_completion_and_deviations(
        self, data, model, monkeypatch, chunk
    ):
        X, count = data[1], 200
        if model.sides_ == "rows":
            return
        monkeypatch.setattr(models, "SAMPLE_CHUNK_SIZE", chunk)
        some = X[:9]
        for asked, draws in ((None, model.sample(count)), (some, None)):
            rows = X if asked is None else asked
            draws = model.sample(count, X=asked) if draws is None else draws
            mean, std = model.transform(rows, return_std=True)
            gaps = np.isnan(rows)
            z = ((draws - mean)[:, gaps]) / std[gaps]
            assert_array_equal(draws[:, ~gaps], np.tile(rows[~gaps], (count, 1)))
            assert_allclose(z.mean(axis=0), 0.0, atol=5.5 / np.sqrt(count))
            assert_allclose(z.std(axis=0), 1.0, atol=5.5 / np.sqrt(2 * count))
            error = 3.0 * np.sqrt(8.0 / z.size)  # entries of a row are correlated
            assert np.mean(z) == pytest.approx(0.0, abs=error)
            assert np.mean(z**2) == pytest.approx(1.0, abs=1.5 * error)

    def test_of_a_row_have_the_correlations_of_the_posterior(self, data, model, dense):
        if model.sides_ == "rows":
            return
        X, n = data[1], data[1].shape[1]
        noise = np.broadcast_to(model.noise_, n) ** 2
        zeros = np.zeros(n)
        draws, largest = model.sample(1000), 0.0
        for i in range(30):
            free = np.isnan(X[i])
            _, latent = dense.conditional(X[i], model.kernel_, noise, zeros)
            C = (latent + np.diag(noise))[np.ix_(free, free)]
            std = np.sqrt(np.diagonal(C))
            expected = C / np.outer(std, std)
            found = np.corrcoef(draws[:, i, free].T)
            assert_allclose(found, expected, atol=0.15)
            off = np.abs(expected - np.eye(len(C)))
            largest = max(largest, float(off.max(initial=0.0)))
        assert largest > 0.2
