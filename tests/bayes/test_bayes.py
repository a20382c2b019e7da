"""Tests of `BayesianNCARL`: edge cases, bounds, similarity, fits, parameters."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from ncarl import BayesianNCARL
from ncarl.estimators.bayesian import N_STRONGEST, strongest_correlations

FEW = {"max_iter": 3, "tol": 0, "prior_strength": 0.1, "noise": "learn"}
NAN, INF = np.nan, np.inf


def test_masked_and_float32_arrays_keep_their_type(X):
    plain = BayesianNCARL(**FEW).fit_transform(X)
    masked = BayesianNCARL(**FEW).fit_transform(np.ma.masked_invalid(X))
    assert_array_equal(np.asarray(masked), plain)
    out = BayesianNCARL(**FEW).fit_transform(X.astype(np.float32))
    assert out.dtype == np.float32
    assert_allclose(out, plain, rtol=1e-4, atol=1e-4)


class TestExtremes:
    @pytest.mark.parametrize("sides", ["columns", "rows", "both"])
    @pytest.mark.parametrize("noise", ["learn", "per-column", 0])
    def test_empty_rows_and_columns_are_listed_and_imputed(self, X, sides, noise):
        X = np.insert(np.insert(X, 3, NAN, axis=0), [2, 8], NAN, axis=1)
        model = BayesianNCARL(**{**FEW, "sides": sides, "noise": noise}).fit(X)
        assert_array_equal(model.unidentified_rows_, [3])
        assert_array_equal(model.unidentified_columns_, [2, 9])
        assert np.isfinite(model.transform(X)).all()
        if noise != 0:
            std = model.transform(X, return_std=True)[1]
            assert np.isfinite(std).all()
            low, high = model.predict_interval(X)
            assert (low < high).all()

    def test_empty_rows_do_not_affect_other_rows(self, X):
        options = {**FEW, "sides": "columns", "validation": 0}
        more = np.insert(X, [0, 7, 7, 40], NAN, axis=0)
        one, other = (BayesianNCARL(**options).fit(Z) for Z in (X, more))
        assert_allclose(other.kernel_, one.kernel_, rtol=1e-9)
        assert other.noise_ == pytest.approx(one.noise_, rel=1e-9)
        assert other.log_evidence_ == pytest.approx(one.log_evidence_, rel=1e-9)

    def test_empty_row_is_imputed_by_the_means(self, X):
        model = BayesianNCARL(**FEW, sides="columns", validation=0).fit(X)
        mean = model.model_.scaler.inverse_transform(
            model.model_.columns.centering.column_effects
        )
        assert_allclose(model.transform(np.full((1, 8), NAN))[0], mean)
        assert_allclose(mean, np.nanmean(X, axis=0), atol=0.6)

    @pytest.mark.parametrize("value", [0.0, 3.0, -1e-9])
    @pytest.mark.parametrize("options", [{}, {"validation": 0}, {"noise": 0}])
    def test_a_constant_matrix_is_filled_with_its_value(self, value, options):
        X = np.full((12, 5), value)
        X[np.arange(5), np.arange(5)] = NAN
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = BayesianNCARL(max_iter=10, **options).fit(X)
        assert_allclose(model.transform(X), value, rtol=1e-6, atol=1e-12)

    @pytest.mark.parametrize("shape", [(1, 6), (6, 1), (1, 1), (2, 2)])
    @pytest.mark.parametrize("sides", ["auto", "both"])
    def test_small_shapes_are_filled(self, shape, sides, rng):
        X = rng.standard_normal(shape)
        if X.size > 4:
            X.flat[2] = NAN
        model = BayesianNCARL(**FEW, sides=sides).fit(X)
        assert np.isfinite(model.transform(X)).all()
        assert np.isfinite(model.sample(2)).all()
        assert model.similarity_.shape == (shape[1], shape[1])

    def test_one_entry_is_enough(self):
        X = np.full((4, 3), NAN)
        X[1, 1] = 2.0
        out = BayesianNCARL(**FEW).fit_transform(X)
        assert_allclose(out, 2.0)

    @pytest.mark.parametrize("exponent", [-660, 490, 600, 1010])
    @pytest.mark.parametrize("sides", ["columns", "both"])
    def test_results_scale_with_the_values(self, X, exponent, sides):
        # Scaling by powers of two is exact; the square of 2^600 overflows.
        unit = 2.0**exponent
        options = {**FEW, "sides": sides, "scale": None}
        one = BayesianNCARL(**options).fit(X)
        other = BayesianNCARL(**options).fit(X * unit)
        a, std_a = one.transform(X, return_std=True)
        b, std_b = other.transform(X * unit, return_std=True)
        assert np.isfinite(b).all()
        assert_allclose(b / unit, a, rtol=1e-12)
        assert_allclose(std_b / unit, std_a, rtol=1e-12)
        assert other.noise_ / unit == pytest.approx(one.noise_, rel=1e-12)
        assert_array_equal(other.similarity_.toarray(), one.similarity_.toarray())
        if abs(exponent) < 500:
            assert_allclose(other.kernel_ / unit / unit, one.kernel_, rtol=1e-12)

    def test_columns_with_very_different_units_are_scaled(self, X):
        units = 10.0 ** np.arange(-4, 4)
        model = BayesianNCARL(**FEW, sides="columns").fit(X * units)
        plain = BayesianNCARL(**FEW, sides="columns", scale="columns").fit(X)
        found = model.transform(X * units) / units
        assert_allclose(found, plain.transform(X), rtol=1e-5, atol=1e-6)
        other = BayesianNCARL(**FEW, scale=None).fit(X * units)
        assert other.model_.scaler.centering.column_scales.tolist() == [1.0] * 8

    def test_single_precision_is_close(self, X):
        options = {**FEW, "sides": "columns", "validation": 0}
        double = BayesianNCARL(**options).fit(X)
        single = BayesianNCARL(**options, dtype="float32").fit(X)
        assert single.model_.columns.kernel.K.dtype == np.float32
        gap = np.abs(single.transform(X) - double.transform(X)).max()
        assert 0 < gap < 1e-4
        assert single.transform(X).dtype == np.float64


class TestBounds:
    @pytest.fixture
    def ratings(self, rng):
        taste = rng.standard_normal((60, 2)) @ rng.standard_normal((2, 12))
        X = np.clip(np.round(3 + 2 * taste), 1, 5)
        return np.where(rng.random(X.shape) < 0.6, X, NAN)

    def test_ratings_are_clipped_to_their_range(self, ratings):
        free = BayesianNCARL(**FEW, clip=None).fit_transform(ratings)
        assert free.min() < 1.0 or free.max() > 5.0
        held = BayesianNCARL(**FEW).fit_transform(ratings)
        assert_array_equal(held, np.clip(free, 1.0, 5.0))

    def test_given_range_clips_imputed_entries(self, X):
        model = BayesianNCARL(**FEW, clip=(0, 1)).fit(X)
        out, gaps = model.transform(X), np.isnan(X)
        assert out[gaps].min() >= 0.0
        assert out[gaps].max() <= 1.0
        assert_array_equal(out[~gaps], X[~gaps])
        i, j = np.nonzero(gaps)
        assert_allclose(model.predict(i, j), out[gaps], rtol=1e-9, atol=1e-12)

    def test_rounding_gives_observed_levels(self, ratings):
        model = BayesianNCARL(**FEW, rounding="observed").fit(ratings)
        assert set(np.unique(model.transform(ratings))) == {1.0, 2.0, 3.0, 4.0, 5.0}
        plain = BayesianNCARL(**FEW).fit(ratings)
        assert_array_equal(model.predict(ratings), np.round(plain.predict(ratings)))
        i, j = np.nonzero(np.isnan(ratings))
        assert_array_equal(model.predict(i, j), model.transform(ratings)[i, j])


class TestSimilarity:
    def test_is_sparse_and_holds_the_strongest_correlations(self, rng, low_rank):
        X = low_rank(rng, m=60, n=25)
        model = BayesianNCARL(**FEW, center="columns").fit(X)
        S = model.similarity_
        assert isinstance(S, sparse.csr_array)
        assert S.shape == (25, 25)
        K = model.kernel_
        C = K / np.sqrt(np.outer(K.diagonal(), K.diagonal())) - np.eye(25)
        assert_allclose(S.toarray()[S.toarray() != 0], C[S.toarray() != 0], rtol=1e-9)
        assert (np.diff(S.indptr) <= N_STRONGEST).all()
        for j in range(25):
            kept = np.abs(C[j, S[[j]].indices])
            left = np.delete(np.abs(C[j]), S[[j]].indices)
            assert len(kept) == 0 or kept.min() >= max(left.max(), 0.05) - 1e-12
        # Entries stored in both triangles are equal.
        both = (S.toarray() != 0) & (S.toarray().T != 0)
        assert_allclose(S.toarray()[both], S.toarray().T[both], rtol=1e-9)

    def test_row_effects_are_left_out(self):
        K = np.eye(4) * 0.5 + 9.0
        K[0, 1] = K[1, 0] = K[0, 1] + 0.4
        with_effects = strongest_correlations(K, remove_common=False).toarray()
        assert with_effects[2, 3] > 0.9
        C = strongest_correlations(K, remove_common=True).toarray()
        H = np.eye(4) - 0.25
        A = H @ K @ H
        expected = A / np.sqrt(np.outer(A.diagonal(), A.diagonal()))
        np.fill_diagonal(expected, 0.0)
        expected[np.abs(expected) < 0.05] = 0.0
        assert_allclose(C, expected)
        assert C[0, 1] > 0.3

    def test_columns_without_variance_have_no_similarity(self):
        K = np.diag([1.0, 0.0, 2.0])
        assert strongest_correlations(K, remove_common=False).nnz == 0
        assert strongest_correlations(np.ones((1, 1)), remove_common=True).nnz == 0


class TestRun:
    def test_fit_stops_once_the_gain_is_below_tol(self, X):
        model = BayesianNCARL(validation=0, tol=1e-2, sides="columns").fit(X)
        assert model.converged_
        assert (model.history_["change"][:-1] >= 1e-2).all()
        assert model.history_["change"][-1] < 1e-2

    def test_search_lists_every_trial(self, X):
        model = BayesianNCARL(max_iter=3, tol=0, sides="columns").fit(X)
        named = {"side", "strength", "steps", "error"}
        assert all(named <= set(trial) for trial in model.search_)
        best = min(model.search_, key=lambda trial: trial["error"])
        gap = best["error"] / min(
            t["error"] for t in model.search_ if t["strength"] == model.prior_strength_
        )
        assert gap > 1 - 2e-3
        assert model.n_iter_ == best["steps"]

    @pytest.mark.parametrize("scale", [None, "columns"])
    def test_errors_have_the_units_of_the_values_or_of_the_columns(self, X, scale):
        one, other = (
            BayesianNCARL(**FEW, sides="both", scale=scale).fit(factor * X)
            for factor in (1.0, 1000.0)
        )
        factor = 1.0 if scale else 1000.0
        for a, b in (
            (one.held_out_error_, other.held_out_error_),
            (one.search_[0]["error"], other.search_[0]["error"]),
            (one.side_errors_["rows"], other.side_errors_["rows"]),
        ):
            assert b == pytest.approx(factor * a)

    @pytest.mark.parametrize("center", ["two-way", "columns", "mean"])
    def test_result_is_invariant_to_an_offset(self, X, center):
        usual = {"max_iter": 20, "tol": 0, "prior_strength": 0.1, "clip": None}
        plain, shifted = (
            BayesianNCARL(**usual, center=center, sides="columns").fit(X + offset)
            for offset in (0.0, 1e6)
        )
        found = shifted.transform(X + 1e6) - 1e6
        assert_allclose(found, plain.transform(X), atol=1e-3)

    def test_fit_is_determined_by_random_state(self, X):
        one, same, other = (
            BayesianNCARL(**FEW, random_state=s, sides="both").fit(X) for s in (3, 3, 4)
        )
        assert_array_equal(one.transform(X), same.transform(X))
        assert one.search_ != other.search_

    def test_no_entry_is_held_out_if_none_can_be_spared(self):
        X = np.where(np.eye(4, dtype=bool), [[1.0, 2.0, 3.0, 4.0]], NAN)
        model = BayesianNCARL(**FEW).fit(X)
        assert model.search_ == []
        assert np.isfinite(model.transform(X)).all()

    def test_interrupted_fit_keeps_the_completed_sides(self, X):
        calls = []

        def stop(info):
            calls.append(info.step)
            if info.step == 2:
                raise KeyboardInterrupt

        model = BayesianNCARL(**FEW, validation=0, sides="both", callback=stop)
        with pytest.raises(KeyboardInterrupt):
            model.fit(X)
        assert calls == [1, 2]
        assert model.sides_ == "columns"
        assert model.weight_ == 1.0
        assert np.isfinite(model.transform(X)).all()

    def test_error_on_held_out_entries_is_below_that_of_means(self, rng, low_rank):
        whole = low_rank(rng, m=80, n=20, noise=0.1, seen=1.0)
        X = np.where(rng.random(whole.shape) < 0.6, whole, NAN)
        gaps = np.isnan(X)
        model = BayesianNCARL(max_iter=30, tol=0).fit(X)
        error = np.std((model.transform(X) - whole)[gaps])
        assert error < 0.25 * np.std(whole[gaps])
        assert model.calibration_ == pytest.approx(1.0, abs=0.25)


class TestPriors:
    def test_each_kind_of_prior_changes_the_fit(self, X, rng, covariance):
        options = {**FEW, "sides": "columns", "validation": 0}
        X = X.copy()
        X[::2, :3], X[1::2, 4:7] = NAN, NAN  # correlated masks
        kinds = {
            "pattern": "co-observation",
            "identity": "identity",
            "given": covariance(rng, 8),
            "features": rng.standard_normal((8, 2)),
        }
        found = [
            BayesianNCARL(**options, prior=p).fit(X).kernel_ for p in kinds.values()
        ]
        for k, one in enumerate(found):
            for other in found[:k]:
                assert np.abs(one - other).max() > 1e-6

    def test_prior_is_invariant_to_container_and_scale(self, X, rng, covariance):
        options = {**FEW, "sides": "columns", "validation": 0}
        given = covariance(rng, 8)
        one = BayesianNCARL(**options, prior=given).fit(X).kernel_
        for form in (sparse.csr_array(given), given.tolist(), 8 * given):
            other = BayesianNCARL(**options, prior=form).fit(X).kernel_
            assert_allclose(other, one, rtol=1e-12)


BAD = {
    "prior": ["nonsense", None, 3.0, np.eye(3), np.ones(8), np.full((8, 2), NAN),
              np.triu(np.ones((8, 8))), -np.eye(8), np.zeros((8, 8)),
              [["a"] * 2] * 8],
    "prior_strength": ["strong", -1.0, NAN, INF, None, True],
    "center": ["rows", 1, True, "none"],
    "noise": ["some", -0.1, NAN, INF, None, True],
    "sides": ["cols", None, 1],
    "max_iter": [0, 1.5, -3, "many", None, True],
    "tol": [-1e-3, NAN, "small", None, True],
    "clip": ["yes", 3.0, (1.0,), (2.0, 1.0), (1.0, 1.0), (NAN, 1.0), ("a", "b"),
             (1, 2, 3)],
    "rounding": ["all", True, 2],
    "scale": ["rows", True, 2.0],
    "validation": [-0.1, 1.0, 1.5, NAN, "tenth", None, True],
    "random_state": [-1, 0.5, None, "seed", np.random.default_rng(0)],
    "engine": ["gpu", None, 3],
    "dtype": ["float16", np.float32, None],
    "progress": [1, None, "yes"],
    "callback": [3, "print"],
    "checkpoint": [3, True],
    "missing_values": ["NA", INF, True, [-1], 1j],
    "add_indicator": [1, None, "yes"],
    "keep_empty_features": [0, None, "no"],
    "components": [0, -1, 1.5, "many", None, True, NAN],
}  # fmt: skip
CASES = [(name, value) for name, values in BAD.items() for value in values]


@pytest.mark.parametrize(("name", "value"), CASES, ids=[name for name, _ in CASES])
def test_invalid_parameter_raises(name, value, X):
    with pytest.raises((TypeError, ValueError), match=name):
        BayesianNCARL(**{**FEW, name: value}).fit(X)


def test_every_parameter_has_invalid_values():
    assert set(BAD) == set(BayesianNCARL().get_params())


def test_prior_of_columns_with_row_kernel_raises(X):
    with pytest.raises(ValueError, match=r"prior.*sides='rows'"):
        BayesianNCARL(**FEW, prior=np.eye(8), sides="rows").fit(X)


@pytest.mark.parametrize(("count", "seed"), [(0, 0), (1.5, 0), (1, -1), (1, 0.5)])
def test_invalid_arguments_of_sample_raise(X, count, seed):
    model = BayesianNCARL(**FEW, validation=0).fit(X)
    with pytest.raises(ValueError, match="n_draws" if seed == 0 else "random_state"):
        model.sample(count, seed)
    with pytest.raises(ValueError, match="X has 3 features"):
        model.sample(X=X[:, :3])
