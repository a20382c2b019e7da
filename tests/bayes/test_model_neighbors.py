"""Tests of the nearest-neighbor correction of residuals."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import ncarl
from ncarl import BayesianNCARL
from ncarl.bayes import model as nearness, selection as fitting
from ncarl.bayes.model import (
    RowNeighbors,
    can_compare_rows,
    find_row_neighbors,
    leave_one_out_errors,
)
from ncarl.engines.threads import Threads
from ncarl.io.files import read_archive
from ncarl.observations import Observations

pytestmark = pytest.mark.usefixtures("one_blas_thread")
ENGINE = Threads(1)


def make_curve_data(seed=0, m=200, n=12, seen=0.7):
    """Rows on a closed curve with corners, which no low-rank plane approximates."""
    rng = np.random.default_rng(seed)
    angle = rng.uniform(0.0, 2.0 * np.pi, m)
    columns = np.linspace(0.0, 2.0 * np.pi, n, endpoint=False)
    values = np.abs(np.cos(angle[:, None] - columns))
    values = values + 0.1 * rng.standard_normal((m, n))
    return values, np.where(rng.random((m, n)) < seen, values, np.nan)


@pytest.fixture(scope="module")
def curve():
    return make_curve_data()


@pytest.fixture(scope="module")
def model(curve):
    """A model with a column kernel and row neighbors, but no row kernel."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "MAX_COST_RATIO", 0.0)
        return BayesianNCARL(engine=ENGINE, prior_strength=0.1).fit(curve[1])


@pytest.mark.parametrize("seen", [0.5, 0.95])
def test_leave_one_out_errors_match_dense_formula(low_rank, dense, seen):
    X = low_rank(np.random.default_rng(3), seen=seen)
    fitted = BayesianNCARL(max_iter=5, tol=0, sides="columns", validation=0).fit(X)
    side, standard = fitted.model_.columns, fitted.model_.scaler
    inner = standard.transform(Observations.from_dense(X))
    found = leave_one_out_errors(side, inner, ENGINE)
    assert_array_equal(found.indices, inner.indices)
    K, mean = fitted.kernel_, fitted.model_.columns.centering.mean
    mean = standard.inverse_transform(
        np.broadcast_to(mean + side.centering.column_effects, X.shape[1])
    )
    noise = np.broadcast_to(np.square(fitted.noise_), X.shape[1])
    expected = []
    for i, j in zip(inner.rows, inner.indices, strict=True):
        v = X[i].copy()
        v[j] = np.nan
        e, _ = dense.conditional(v, K, noise, mean)
        expected.append(X[i, j] - e[j])
    scale = standard.inverse_transform_std(np.ones(len(expected)), inner.indices)
    assert_allclose(found.values * scale, expected, rtol=1e-6, atol=1e-9)


def test_mean_errors_are_shrunken_means_over_nearest_rows(rng, monkeypatch):
    X = np.where(rng.random((30, 7)) < 0.6, rng.standard_normal((30, 7)), np.nan)
    rows = np.array([rng.permutation(30)[:6] for _ in range(30)])
    near = RowNeighbors(rows, Observations.from_dense(X))
    expected = np.full(X.shape, np.nan)
    for i, j in zip(*np.nonzero(np.isnan(X)), strict=True):
        known = [X[k, j] for k in rows[i, :4] if not np.isnan(X[k, j])]
        expected[i, j] = np.sum(known) / (len(known) + 1.0)
    assert_allclose(near.mean_errors(np.arange(30), 4), expected)
    some = np.array([4, 2, 29])
    assert_allclose(near.mean_errors(some, 4), expected[some])
    i, j = rng.integers(0, 30, 200), rng.integers(0, 7, 200)
    assert_allclose(near.mean_errors_at(i, j, 4), expected[i, j])
    monkeypatch.setattr(nearness, "NEIGHBOR_CHUNK_SIZE", 7 * 4)  # 4 rows per chunk
    assert_allclose(near.mean_errors_at(i, j, 4), expected[i, j])


def test_nearest_rows_are_nearest_after_completion(model):
    inner = model.model_.scaler.transform(model.training_)
    side = model.model_.columns
    X, _ = side.complete(inner, ENGINE)
    gaps = ((X[:, None, :] - X[None, :, :]) ** 2).sum(axis=2)
    np.fill_diagonal(gaps, np.inf)
    found = find_row_neighbors(side, inner, ENGINE, 5)
    assert_array_equal(found.neighbors, np.argsort(gaps, axis=1)[:, :5])


@pytest.mark.parametrize(
    ("shape", "density", "yes"),
    [
        ((8, 5), 1.0, False),
        ((11, 5), 1.0, True),
        ((6000, 3700), 0.2, True),
        ((6000, 3700), 0.05, False),
        ((1_000_000, 50), 0.5, False),
        ((300, 1_000_000), 0.5, False),
    ],
)
def test_can_compare_rows(shape, density, yes):
    m, n = shape
    observed = SimpleNamespace(
        row_counts=np.ones(m), column_counts=np.ones(n), n_observed=int(density * m * n)
    )
    assert can_compare_rows(observed) == yes


def test_empty_rows_and_columns_are_ignored(curve, model):
    _, X = curve
    wide = np.full((len(X) + 400, X.shape[1] + 30), np.nan)
    wide[200 : 200 + len(X), 5 : 5 + X.shape[1]] = X
    sparse, whole = Observations.from_dense(wide), Observations.from_dense(X)
    assert can_compare_rows(sparse)
    assert not can_compare_rows(Observations.from_dense(np.full((30, 5), np.nan)))
    inner = model.model_.scaler.transform(whole)
    alone = find_row_neighbors(model.model_.columns, inner, ENGINE, 5)
    padded = np.full((len(X) + 50, X.shape[1]), np.nan)
    padded[50:] = X
    more = model.model_.scaler.transform(Observations.from_dense(padded))
    found = find_row_neighbors(model.model_.columns, more, ENGINE, 5)
    assert_array_equal(found.neighbors[50:], alone.neighbors + 50)
    terms = found.mean_errors(np.arange(len(padded)), 5)
    assert np.isnan(terms[:50]).all()
    assert_allclose(terms[50:], alone.mean_errors(np.arange(len(X)), 5))


class TestEstimator:
    def test_correction_reduces_the_error_on_a_curve(self, curve, model):
        values, X = curve
        usual = {"engine": ENGINE, "prior_strength": 0.1}
        columns = BayesianNCARL(**usual, sides="columns").fit(X)
        assert columns.neighbor_correction_ is None
        assert model.neighbor_correction_["weight"] > 0.3
        assert model.neighbor_correction_["std_factor"] < 0.97
        gaps = np.isnan(X)
        with_them, without = (
            np.sqrt(np.mean((m.transform(X) - values)[gaps] ** 2))
            for m in (model, columns)
        )
        assert with_them < 0.97 * without
        assert model.held_out_error_ < columns.held_out_error_
        assert model.side_errors_["columns"] == columns.held_out_error_

    def test_correction_changes_missing_training_entries_only(self, curve, model):
        _, X = curve
        assert model.sides_ == "columns"
        plain = model.model_.columns
        inner = model.model_.scaler.transform(model.training_)
        x, spread = plain.complete(inner, ENGINE, std="observed")
        standard, seen = model.model_.scaler, ~np.isnan(X)
        filled, std = model.transform(X, return_std=True, keep_observed=False)
        own = standard.inverse_transform(x)
        wide = standard.inverse_transform_std(spread) * model.std_factors_
        assert_allclose(filled[seen], own[seen])
        assert_allclose(std[seen], wide[seen])
        near = find_row_neighbors(plain, inner, ENGINE, 20)
        choice = model.neighbor_correction_
        terms = near.mean_errors(np.arange(len(X)), choice["n_neighbors"])
        corrected = standard.inverse_transform(x + choice["weight"] * terms)
        assert_allclose(filled[~seen], corrected[~seen])
        assert np.abs(filled - own)[~seen].max() > 0.01
        assert_allclose(std[~seen], choice["std_factor"] * wide[~seen])
        # A subset of the rows counts as new rows.
        assert_allclose(model.transform(X[:9])[~seen[:9]], own[:9][~seen[:9]])

    def test_entries_agree_with_the_matrix(self, curve, model):
        _, X = curve
        filled, std = model.transform(X, return_std=True, keep_observed=False)
        i, j = np.random.default_rng(1).integers(0, 12, (2, 80))
        x, spread = model.predict(i, j, return_std=True)
        assert_allclose(x, filled[i, j])
        assert_allclose(spread, std[i, j])
        low, high = model.predict_interval(i, j, 0.8)
        lows, highs = model.predict_interval(X, level=0.8)
        assert_allclose(low, lows[i, j])
        assert_allclose(high, highs[i, j])

    def test_saved_model_keeps_the_correction_but_no_data(self, curve, model, tmp_path):
        _, X = curve
        model.save(tmp_path / "m")
        loaded = ncarl.load(tmp_path / "m")
        assert loaded.neighbor_correction_ == model.neighbor_correction_
        assert_allclose(loaded.transform(X), model.transform(X))
        assert loaded.scores_.effective_size == model.scores_.effective_size
        assert_allclose(
            loaded.predict_interval(X, level=0.8)[0],
            model.predict_interval(X, level=0.8)[0],
        )
        _, arrays = read_archive(tmp_path / "m", "model")
        assert max(array.size for array in arrays.values()) < np.sum(~np.isnan(X))

    def test_chunks_do_not_change_the_result(self, curve, model, monkeypatch):
        whole = model.transform(curve[1], return_std=True)
        monkeypatch.setattr(nearness, "NEIGHBOR_CHUNK_SIZE", 12 * 7)
        for one, other in zip(
            model.transform(curve[1], return_std=True), whole, strict=True
        ):
            assert_array_equal(one, other)

    def test_model_without_noise_has_no_correction(self, curve):
        model = BayesianNCARL(engine=ENGINE, noise=0.0, max_iter=5, tol=0)
        assert model.fit(curve[1][:60]).neighbor_correction_ is None

    def test_expensive_row_kernel_is_skipped_if_neighbors_suffice(
        self, curve, monkeypatch
    ):
        _, X = curve
        for name, value, tried in (
            ("MAX_COST_RATIO", 1e9, {"columns", "rows"}),
            ("EXPENSIVE_STEP_FLOPS", 1.0, {"columns"}),
            ("SUFFICIENT_STD_FACTOR", 0.0, {"columns", "rows"}),
        ):
            monkeypatch.setattr(fitting, name, value)
            model = BayesianNCARL(engine=ENGINE, prior_strength=0.1).fit(X)
            assert {trial["side"] for trial in model.search_} == tried
