"""Tests of fitted estimators: new rows, single entries, deviations, centering."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from ncarl import NCARL
from ncarl.metrics import relative_rmse

FEW = {"max_iter": 4, "tol": 0, "alpha": 1.0, "n_neighbors": 4}


def krige(K, row, noise=0.0):
    """Conditional mean of one row given its observed entries."""
    o = ~np.isnan(row)
    return row[o] @ np.linalg.inv(K[np.ix_(o, o)] + noise * np.eye(o.sum())) @ K[o]


@pytest.mark.parametrize("gamma", [None, 0.1])
@pytest.mark.parametrize("weights", ["floor", "smooth"])
def test_new_rows_match_the_kriging_formula(X, rng, gamma, weights):
    estimator = NCARL(**FEW, gamma=gamma, weights=weights).fit(X)
    new = np.where(rng.random((5, 9)) < 0.5, rng.random((5, 9)), np.nan)
    new[:, 0] = 1.0
    noise = 0.0 if gamma is None else 1.0
    by_hand = [krige(estimator.kernel_, row, noise) for row in new]
    assert_allclose(estimator.transform(new, keep_observed=False), by_hand, rtol=1e-7)
    kept = estimator.transform(new)
    assert_array_equal(kept[~np.isnan(new)], new[~np.isnan(new)])
    assert_array_equal(kept[np.isnan(new)], estimator.predict(new)[np.isnan(new)])


def test_one_row_at_a_time_equals_all_at_once(X):
    estimator = NCARL(**FEW).fit(X)
    single = np.vstack([estimator.transform(row[None]) for row in X])
    assert_allclose(single, estimator.transform(X), rtol=1e-12)


class TestRowOrientation:
    def test_auto_takes_the_shorter_side(self, X):
        assert not NCARL(**FEW).fit(X).transposed_
        assert NCARL(**FEW).fit(X.T).transposed_
        assert NCARL(**FEW).fit(X.T).kernel_.shape == (9, 9)
        assert NCARL(**FEW, orientation="rows").fit(X).kernel_.shape == (24, 24)
        assert NCARL(**FEW, orientation="columns").fit(X.T).kernel_.shape == (24, 24)

    @pytest.mark.parametrize("center", [None, "mean", "two-way"])
    @pytest.mark.parametrize("gamma", [None, 0.1])
    def test_rows_equal_columns_on_the_transpose(self, X, center, gamma):
        options = {**FEW, "center": center, "gamma": gamma}
        rows = NCARL(**options, orientation="rows").fit(X)
        columns = NCARL(**options, orientation="columns").fit(X.T)
        assert_array_equal(rows.kernel_, columns.kernel_)
        assert_array_equal(rows.transform(X), columns.transform(X.T).T)
        i, j = [0, 3, 23], [8, 1, 4]
        assert_array_equal(rows.predict(i, j), columns.predict(j, i))
        if gamma is not None:
            left = rows.transform(X, return_std=True)[1]
            assert_array_equal(left, columns.transform(X.T, return_std=True)[1].T)

    def test_other_columns_of_the_same_rows_are_completed(self, X):
        estimator = NCARL(**FEW, orientation="rows").fit(X)
        some = estimator.transform(X[:, [7, 2, 4]])
        assert_allclose(some, estimator.transform(X)[:, [7, 2, 4]], rtol=1e-12)
        assert_allclose(
            estimator.predict([3, 5], [0, 2], X=X[:, [7, 2, 4]]),
            estimator.predict([3, 5], [7, 4]),
            rtol=1e-12,
        )

    @pytest.mark.parametrize("method", ["transform", "predict", "score"])
    def test_other_rows_raise(self, X, method):
        estimator = NCARL(**FEW, orientation="rows").fit(X)
        with pytest.raises(ValueError, match=r"24 rows.*got 23.*orientation='columns'"):
            getattr(estimator, method)(X[1:])


class TestPredict:
    @pytest.mark.parametrize("orientation", ["columns", "rows"])
    @pytest.mark.parametrize("gamma", [None, 0.1])
    @pytest.mark.parametrize("center", [None, "two-way"])
    def test_equals_transform_at_the_entries(self, X, orientation, gamma, center):
        options = {"orientation": orientation, "gamma": gamma, "center": center}
        estimator = NCARL(**FEW, **options).fit(X)
        i, j = (part.ravel() for part in np.indices(X.shape))
        order = np.random.default_rng(1).permutation(len(i))
        i, j = np.append(i[order], [0, 0]), np.append(j[order], [1, 1])
        smooth = estimator.transform(X, keep_observed=False)
        assert_allclose(estimator.predict(i, j), smooth[i, j], rtol=1e-9)
        assert_allclose(estimator.predict(X), smooth, rtol=0)
        if gamma is not None:
            for kind in (True, "latent"):
                values, std = estimator.predict(i, j, return_std=kind)
                assert_allclose(values, smooth[i, j], rtol=1e-9)
                whole = estimator.transform(X, keep_observed=False, return_std=kind)[1]
                assert_allclose(std, whole[i, j], rtol=1e-9)
                assert_array_equal(estimator.predict(X, return_std=kind)[1], whole)

    def test_of_another_matrix(self, X, rng):
        estimator = NCARL(**FEW, gamma=0.1).fit(X)
        other = np.where(rng.random((4, 9)) < 0.7, rng.random((4, 9)), np.nan)
        i, j = np.indices(other.shape).reshape(2, -1)
        smooth = estimator.transform(other, keep_observed=False)
        assert_allclose(estimator.predict(i, j, X=other), smooth.ravel(), rtol=1e-9)

    def test_scalars_and_nothing(self, X):
        estimator = NCARL(**FEW, gamma=0.1).fit(X)
        assert estimator.predict(3, 4).shape == (1,)
        assert estimator.predict([], []).shape == (0,)
        assert [part.shape for part in estimator.predict([], [], True)] == [(0,), (0,)]


class TestStandardDeviations:
    def test_match_the_direct_formula(self, X):
        estimator = NCARL(**FEW, gamma=0.1).fit(X)
        K = estimator.kernel_
        seen = ~np.isnan(X)
        fit = sum(
            X[i, o] @ np.linalg.solve(K[np.ix_(o, o)] + np.eye(o.sum()), X[i, o])
            for i, o in enumerate(seen)
        )
        sigma = np.sqrt(fit / seen.sum())
        filled, std = estimator.transform(X, keep_observed=False, return_std=True)
        _, latent = estimator.transform(X, keep_observed=False, return_std="latent")
        for i, o in enumerate(seen):
            A = np.linalg.inv(K[np.ix_(o, o)] + np.eye(o.sum()))
            variance = np.diag(K - K[:, o] @ A @ K[o])
            assert_allclose(std[i], sigma * np.sqrt(variance + 1.0), rtol=1e-7)
            assert_allclose(latent[i], sigma * np.sqrt(variance), rtol=1e-6)
        assert filled.shape == std.shape

    def test_are_zero_at_kept_observed_entries(self, X):
        estimator = NCARL(**FEW, gamma=0.1).fit(X)
        seen = ~np.isnan(X)
        for kind in (True, "latent", np.True_):
            _, std = estimator.transform(X, return_std=kind)
            assert (std[seen] == 0.0).all()
            assert (std[~seen] > 0.0).all()

    def test_are_equivariant_to_scale(self, X):
        std = NCARL(**FEW, gamma=0.1).fit(X).transform(X, return_std=True)[1]
        tall = (
            NCARL(**FEW, gamma=0.1).fit(X * 1024).transform(X * 1024, return_std=True)
        )
        assert_array_equal(tall[1], std * 1024)


class TestScore:
    def test_against_a_truth(self, X, truth):
        estimator = NCARL(**FEW).fit(X)
        gaps = np.isnan(X)
        by_hand = -relative_rmse(truth[gaps], estimator.transform(X)[gaps])
        assert estimator.score(X, truth) == pytest.approx(by_hand, rel=1e-9)
        partly = np.where(np.arange(9) < 4, truth, np.nan)
        gaps[:, 4:] = False
        by_hand = -relative_rmse(truth[gaps], estimator.transform(X)[gaps])
        assert estimator.score(X, partly) == pytest.approx(by_hand, rel=1e-9)
        turned = NCARL(**FEW, orientation="rows").fit(X.T.copy().T)
        gaps = np.isnan(X)
        by_hand = -relative_rmse(truth[gaps], turned.transform(X)[gaps])
        assert turned.score(X, truth) == pytest.approx(by_hand, rel=1e-9)

    def test_without_a_truth_holds_out_a_tenth(self, X):
        estimator = NCARL(**FEW).fit(X)
        score = estimator.score(X)
        assert -1.0 < score < -1e-4
        assert estimator.score(X) == score
        assert estimator.score(X, np.zeros(24)) == score


class TestEmptyRowsAndColumns:
    @pytest.fixture
    def partly_empty(self, X):
        X[3] = np.nan
        X[:, 5] = np.nan
        return X

    @pytest.mark.parametrize("orientation", ["columns", "rows"])
    def test_are_listed(self, partly_empty, orientation):
        estimator = NCARL(**FEW, orientation=orientation).fit(partly_empty)
        assert list(estimator.unidentified_rows_) == [3]
        assert list(estimator.unidentified_columns_) == [5]

    @pytest.mark.parametrize("orientation", ["columns", "rows"])
    @pytest.mark.parametrize("center", [None, "mean"])
    @pytest.mark.parametrize("weights", ["floor", "smooth"])
    @pytest.mark.parametrize("gamma", [None, 0.1])
    def test_get_the_mean(self, partly_empty, orientation, center, weights, gamma):
        options = {"center": center, "weights": weights, "gamma": gamma}
        estimator = NCARL(**FEW, **options, orientation=orientation).fit(partly_empty)
        filled = estimator.transform(partly_empty)
        assert_allclose(filled[3], np.nanmean(partly_empty), rtol=1e-9)
        assert_allclose(filled[:, 5], np.nanmean(partly_empty), rtol=1e-9)
        assert_allclose(estimator.predict([3, 0], [0, 5]), filled[[3, 0], [0, 5]])

    @pytest.mark.parametrize("gamma", [None, 0.1])
    def test_get_zero_in_pinv_mode(self, partly_empty, gamma):
        # As in the authors' code, where the graph imputes an empty column.
        filled = NCARL(**FEW, weights="pinv", gamma=gamma).fit_transform(partly_empty)
        assert_array_equal(filled[3], 0.0)
        assert np.isfinite(filled).all()

    @pytest.mark.parametrize("orientation", ["columns", "rows"])
    def test_get_column_means(self, partly_empty, orientation):
        options = {"center": "columns", "orientation": orientation}
        filled = NCARL(**FEW, **options).fit_transform(partly_empty)
        means = np.nanmean(np.delete(partly_empty, 5, axis=1), axis=0)
        assert_allclose(np.delete(filled[3], 5), means, rtol=1e-9)
        assert_allclose(filled[:, 5], np.nanmean(partly_empty), rtol=1e-9)

    def test_get_two_way_effects(self, partly_empty):
        estimator = NCARL(**FEW, center="two-way").fit(partly_empty)
        filled = estimator.transform(partly_empty)
        # The empty row gets the mean and the column effects.
        center = estimator.model_.centering
        expected = (center.mean + center.column_effects) * estimator.model_.unit
        assert_allclose(filled[3], expected, rtol=1e-9)
        assert_allclose(filled[3, 5], np.nanmean(partly_empty), rtol=1e-9)
        assert np.std(filled[3]) > 0.01
        # The empty column gets the mean and the row effects.
        others = np.delete(np.arange(24), 3)
        rows = np.nanmean((partly_empty - expected)[others], axis=1)
        assert np.corrcoef(filled[others, 5], rows)[0, 1] > 0.9


@pytest.mark.parametrize("center", [None, "mean", "columns", "two-way"])
def test_centering_is_inverted(X, center):
    moved = NCARL(**FEW, center=center).fit_transform(X + 50.0)
    filled = NCARL(**FEW, center=center).fit_transform(X)
    if center is None:
        assert np.abs(moved - filled - 50.0).max() > 1e-3
    else:
        assert_allclose(moved - 50.0, filled, atol=1e-8)


def test_column_scaling_equals_manual_standardization(X):
    spans = np.array([1.0, 10, 100, 0.1, 3, 7, 1e4, 1e-3, 2.0])
    wild = X * spans + 5.0 * spans
    mean, sd = np.nanmean(wild, axis=0), np.nanstd(wild, axis=0)
    by_hand = NCARL(**FEW).fit_transform((wild - mean) / sd) * sd + mean
    filled = NCARL(**FEW, scale="columns", center="columns").fit_transform(wild)
    assert_allclose(filled, by_hand, rtol=1e-7)


def test_scaling_keeps_the_kernel_on_the_columns(X):
    estimator = NCARL(**FEW, scale="columns").fit(X.T)
    assert not estimator.transposed_


class TestColumnsOfDifferentUnits:
    @pytest.fixture(name="table")
    def table_with_a_constant_column(self):
        rng = np.random.default_rng(0)
        table = np.column_stack(
            [rng.normal(1e4, 1e3, 80), np.full(80, 7.0), *rng.standard_normal((2, 80))]
        )
        table[rng.random(table.shape) < 0.2] = np.nan
        return table

    @pytest.mark.parametrize("center", ["columns", "two-way"])
    @pytest.mark.parametrize("alpha", [0.0, 100.0])
    def test_constant_column_is_imputed_by_its_constant(self, table, center, alpha):
        options = {"scale": "columns", "max_iter": 3, "tol": 0, "gamma": 0.1}
        model = NCARL(alpha=alpha, center=center, **options).fit(table)
        filled, std = model.transform(table, return_std=True)
        assert_allclose(filled[:, 1], 7.0, rtol=1e-9)
        assert_allclose(std[:, 1], 0.0, atol=1e-9)
        assert_allclose(model.predict(np.arange(80), np.full(80, 1)), 7.0, rtol=1e-9)

    def test_empty_row_gets_the_column_means(self, table):
        table[3] = np.nan
        model = NCARL(scale="columns", max_iter=3, tol=0).fit(table)
        assert_allclose(model.transform(table)[3], np.nanmean(table, axis=0))
        assert_allclose(model.predict([3], [0]), np.nanmean(table[:, 0]))


def test_kernel_is_read_only(X):
    model = NCARL(max_iter=2, tol=0).fit(X)
    with pytest.raises(ValueError, match="read-only"):
        model.kernel_[0, 0] = 1.0


def test_empty_column_has_the_variance_of_the_others(rng):
    X = rng.random((40, 3)) @ rng.random((3, 12))
    X[rng.random(X.shape) < 0.3] = np.nan
    X[:, 4] = np.nan
    model = NCARL(gamma=0.1, tol=0, max_iter=4).fit(X)
    variances = model.kernel_.diagonal()
    others = np.arange(12) != 4
    assert variances[4] == pytest.approx(variances[others].mean())
    assert not model.kernel_[4, others].any()
    _, std = model.transform(X, return_std=True)
    usual = np.sqrt((variances[4] + 1.0) / (variances[0] + 1.0))
    alone = model.transform(np.full((1, 12), np.nan), return_std=True)[1][0]
    np.testing.assert_allclose(std[:, 4], alone[4])
    assert alone[4] / alone[0] == pytest.approx(usual)
