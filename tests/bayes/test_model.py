"""Tests of fitted models against dense formulas: evidence, posterior, draws."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from ncarl import BayesianNCARL
from ncarl.bayes import model as models

pytestmark = pytest.mark.usefixtures("one_blas_thread")
PLAIN = {
    **{"sides": "columns", "validation": 0, "clip": None, "tol": 0, "max_iter": 6},
    **{"noise": "learn", "prior_strength": 0.1},
}
HELD_OUT = {name: PLAIN[name] for name in ("clip", "tol", "noise", "prior_strength")}
HELD_OUT["max_iter"] = 5
OPTIONS = {
    "usual": {},
    "per-column": {"noise": "per-column"},
    "given noise": {"noise": 0.4},
    "columns": {"center": "columns"},
    "mean": {"center": "mean"},
    "no center": {"center": None},
    "scaled": {"scale": "columns"},
    "scaled per-column": {"scale": "columns", "noise": "per-column"},
    "identity": {"prior": "identity"},
    "no prior": {"prior_strength": 0},
}


@pytest.fixture(params=OPTIONS)
def model(request, X):
    return BayesianNCARL(**{**PLAIN, **OPTIONS[request.param]}).fit(X)


def parameters(model):
    """Kernel, noise variances and means of a fitted model, in data units."""
    n = len(model.kernel_)
    mean = model.model_.scaler.inverse_transform(
        model.model_.columns.centering.column_effects
    )
    return model.kernel_, np.broadcast_to(model.noise_, n) ** 2, mean


def posterior(dense, X, given):
    """Posterior means and noise-free variances of all entries, row by row."""
    found = [dense.conditional(v, *given) for v in X]
    return np.array([e for e, _ in found]), np.array([C.diagonal() for _, C in found])


class TestEvidence:
    def test_is_the_density_in_data_units(self, model, X, dense):
        expected = dense.log_evidence(X, *parameters(model))
        assert model.log_evidence_ == pytest.approx(expected, rel=1e-10)
        assert model.history_["log_evidence"][-1] == model.log_evidence_

    @pytest.mark.parametrize("factor", [1000.0, 1e-7])
    @pytest.mark.parametrize("name", ["usual", "scaled"])
    def test_shifts_with_the_unit(self, X, factor, name):
        one = BayesianNCARL(**{**PLAIN, **OPTIONS[name]}).fit(X)
        other = BayesianNCARL(**{**PLAIN, **OPTIONS[name]}).fit(factor * X)
        count = np.count_nonzero(~np.isnan(X))
        shift = -count * np.log(factor)
        for column in ("log_evidence", "penalized_evidence"):
            expected = one.history_[column] + shift
            assert_allclose(other.history_[column], expected, rtol=1e-9)
        assert_allclose(
            other.history_["objective"], -other.history_["penalized_evidence"]
        )

    @pytest.mark.parametrize("strength", [0.05, 2.0])
    def test_penalized_evidence_subtracts_the_penalty(self, X, dense, strength):
        options = {"prior": "identity", "center": "columns", "prior_strength": strength}
        for steps in (1, 4):
            model = BayesianNCARL(**{**PLAIN, **options, "max_iter": steps}).fit(X)
            cost = dense.penalty(model.kernel_, np.eye(8), strength * 40)
            expected = model.log_evidence_ - cost
            assert model.history_["penalized_evidence"][-1] == pytest.approx(expected)
        assert (np.diff(model.history_["penalized_evidence"]) > 0).all()
        assert model.prior_strength_ == strength

    def test_scaled_columns_give_the_density_in_data_units(self, X, dense):
        Z = X * 3.0 ** np.arange(8)
        model = BayesianNCARL(**PLAIN).fit(Z)
        assert (model.model_.scaler.centering.column_scales != 1.0).all()
        expected = dense.log_evidence(Z, *parameters(model))
        assert model.log_evidence_ == pytest.approx(expected, rel=1e-9)


class TestPosterior:
    def test_matches_dense_formula(self, model, X, dense):
        K, noise, mean = parameters(model)
        values, latent = posterior(dense, X, (K, noise, mean))
        found, std = model.transform(X, keep_observed=False, return_std=True)
        assert_allclose(found, values, atol=1e-9)
        assert_allclose(std, np.sqrt(latent + noise), rtol=1e-9)
        _, std = model.transform(X, keep_observed=False, return_std="latent")
        assert_allclose(std, np.sqrt(latent), rtol=1e-8)
        # The same at single entries.
        i, j = np.array([3, 0, 39, 3]), np.array([1, 7, 2, 1])
        found, std = model.predict(i, j, return_std=True)
        assert_allclose(found, values[i, j], atol=1e-9)
        assert_allclose(std, np.sqrt(latent + noise)[i, j], rtol=1e-9)
        _, std = model.predict(i, j, return_std="latent")
        assert_allclose(std, np.sqrt(latent)[i, j], rtol=1e-8)

    def test_of_new_rows_matches_dense_formula(self, model, rng, low_rank, dense):
        new = low_rank(rng, m=6)
        new[2], new[3] = np.nan, 1.0
        given = parameters(model)
        values, latent = posterior(dense, new, given)
        found, std = model.transform(new, keep_observed=False, return_std=True)
        assert_allclose(found, values, atol=1e-9)
        assert_allclose(std, np.sqrt(latent + given[1]), rtol=1e-9)

    def test_observed_entries_are_bit_identical(self, model, X):
        filled, std = model.transform(X, return_std=True)
        seen = ~np.isnan(X)
        assert_array_equal(filled[seen], X[seen])
        assert (std[seen] == 0.0).all()
        assert (std[~seen] > 0.0).all()

    def test_noise_is_a_scalar_or_one_value_per_column(self, X):
        assert isinstance(BayesianNCARL(**PLAIN).fit(X).noise_, float)
        by_column = BayesianNCARL(**{**PLAIN, "noise": "per-column"}).fit(X).noise_
        assert by_column.shape == (8,)
        assert len(set(by_column)) == 8
        by_row = {**PLAIN, "noise": "per-column", "sides": "rows"}
        assert BayesianNCARL(**by_row).fit(X).noise_.shape == (40,)
        given = BayesianNCARL(**{**PLAIN, "noise": 0.4}).fit(X)
        assert given.noise_ == pytest.approx(0.4)
        # Also if it is negligible relative to the values.
        few = {**PLAIN, "noise": 0.4, "scale": None}
        assert BayesianNCARL(**few).fit(1e5 * X).noise_ == pytest.approx(0.4)

    def test_std_without_noise_raises(self, X):
        model = BayesianNCARL(**{**PLAIN, "noise": 0}).fit(X)
        assert model.noise_ == 0.0
        with pytest.raises(ValueError, match="noise='learn'"):
            model.transform(X, return_std=True)
        with pytest.raises(ValueError, match="noise='learn'"):
            model.predict_interval([0], [0])
        seen = ~np.isnan(X)
        assert_allclose(model.predict(X)[seen], X[seen], atol=1e-9)


def test_one_step_on_complete_data_is_the_sample_covariance(rng, covariance):
    X = rng.multivariate_normal(np.arange(5.0), covariance(rng, 5), 60)
    exact = {"prior_strength": 0, "noise": 0, "max_iter": 1, "tol": 0}
    for center in ("two-way", "columns"):
        model = BayesianNCARL(**exact, validation=0, center=center, sides="columns")
        found = model.fit(X).kernel_
        assert_allclose(found, np.cov(X.T, ddof=0), atol=1e-12)
        assert_allclose(parameters(model)[2], X.mean(axis=0))
    about = {"mean": X - X.mean(), None: X}
    for center, Z in about.items():
        model = BayesianNCARL(**exact, validation=0, center=center, sides="columns")
        assert_allclose(model.fit(X).kernel_, Z.T @ Z / 60, atol=1e-12)


def test_infinite_prior_fixes_the_kernel_up_to_scale(X, rng, covariance):
    Psi = covariance(rng, 8)
    options = {"prior": Psi, "center": "columns", "prior_strength": 1e9}
    K = BayesianNCARL(**{**PLAIN, **options}).fit(X).kernel_
    assert_allclose(K / K[0, 0], Psi / Psi[0, 0], atol=1e-6)
    free = BayesianNCARL(**{**PLAIN, **options, "prior_strength": 0}).fit(X).kernel_
    assert np.abs(free / free[0, 0] - Psi / Psi[0, 0]).max() > 0.1


class TestDraws:
    @pytest.fixture(params=["usual", "per-column", "scaled", "columns"])
    def tiny(self, request, X):
        model = BayesianNCARL(**{**PLAIN, **OPTIONS[request.param]}).fit(X[:, :4])
        rows = X[:3, :4].copy()
        rows[0] = [1.0, np.nan, np.nan, 0.5]
        rows[1] = np.nan
        rows[2] = [np.nan, 1.0, 2.0, -1.0]
        return model, rows

    def test_have_posterior_mean_and_covariance(self, tiny, dense):
        model, rows = tiny
        given, count = parameters(model), 6000
        draws = model.sample(count, random_state=1, X=rows)
        assert draws.shape == (count, 3, 4)
        for i, v in enumerate(rows):
            free = np.isnan(v)
            mean, latent = dense.conditional(v, *given)
            C = (latent + np.diag(given[1]))[np.ix_(free, free)]
            found = draws[:, i, free]
            sd = np.sqrt(C.diagonal())
            assert_allclose((found.mean(axis=0) - mean[free]) / sd, 0.0, atol=0.06)
            scaled = np.cov(found.T).reshape(C.shape) / np.outer(sd, sd)
            assert_allclose(scaled, C / np.outer(sd, sd), atol=0.08)

    def test_keep_observed_entries_bit_for_bit(self, tiny):
        model, rows = tiny
        draws = model.sample(5, X=rows)
        seen = ~np.isnan(rows)
        assert_array_equal(draws[:, seen], np.tile(rows[seen], (5, 1)))
        assert np.isfinite(draws).all()
        assert len(np.unique(draws[:, ~seen])) == 5 * (~seen).sum()

    def test_repeat_with_their_seed(self, X):
        model = BayesianNCARL(**PLAIN).fit(X)
        one, same, other = (model.sample(3, random_state=s) for s in (4, 4, 5))
        assert_array_equal(one, same)
        assert not np.array_equal(one, other)
        assert_array_equal(one, model.sample(3, random_state=4, X=X))

    def test_rows_are_independent_across_chunks(self, X, monkeypatch):
        model = BayesianNCARL(**PLAIN).fit(X)
        monkeypatch.setattr(
            models, "SAMPLE_CHUNK_SIZE", 200 * 8 * 3
        )  # 3 rows per chunk
        draws = model.sample(200, random_state=2)
        std = model.transform(X, return_std=True)[1]
        gaps = np.isnan(X)
        mean = model.transform(X)
        z = (draws - mean)[:, gaps] / std[gaps]
        assert_allclose(z.mean(axis=0), 0.0, atol=0.35)
        assert z.std() == pytest.approx(1.0, abs=0.02)
        # Draws of different rows are uncorrelated.
        C = np.corrcoef(draws[:, np.isnan(X[:, 0]), 0].T)
        assert np.abs(C - np.eye(len(C))).max() < 0.35

    def test_respect_bounds_and_levels(self, rng):
        X = rng.integers(1, 6, (40, 6)).astype(float)
        X[rng.random(X.shape) < 0.4] = np.nan
        model = BayesianNCARL(**{**PLAIN, "clip": "auto"}, rounding="observed").fit(X)
        assert set(np.unique(model.sample(3))) <= {1.0, 2.0, 3.0, 4.0, 5.0}

    def test_without_column_kernel_raise(self, X):
        model = BayesianNCARL(**{**PLAIN, "sides": "rows"}).fit(X)
        with pytest.raises(ValueError, match="sides='columns'"):
            model.sample()

    def test_without_noise_follow_the_exact_model(self, X, dense):
        model = BayesianNCARL(**{**PLAIN, "noise": 0}).fit(X)
        K, _, mean = parameters(model)
        i = int(np.argmax(np.isnan(X).sum(axis=1)))
        free = np.isnan(X[i])
        expected, C = dense.conditional(X[i], K, np.zeros(8), mean)
        draws = model.sample(4000, X=X[i : i + 1])[:, 0, free]
        sd = np.sqrt(C.diagonal()[free])
        assert_allclose((draws.mean(axis=0) - expected[free]) / sd, 0.0, atol=0.08)
        assert_allclose(draws.std(axis=0) / sd, 1.0, atol=0.06)


class TestTwoSides:
    @pytest.fixture(name="X")
    def incomplete_matrix(self, low_rank):
        """A matrix for which both sides have positive weight."""
        return low_rank(np.random.default_rng(2))

    @pytest.fixture
    def both(self, X):
        return BayesianNCARL(**HELD_OUT, sides="both").fit(X)

    def test_the_matrix_of_the_fit_is_filled_from_both(self, both, X):
        columns = BayesianNCARL(**HELD_OUT, sides="columns").fit(X)
        rows = BayesianNCARL(**HELD_OUT, sides="rows").fit(X)
        assert (both.sides_, columns.sides_, rows.sides_) == ("both", "columns", "rows")
        w = both.weight_
        assert 0.0 < w < 1.0
        (x, sx), (y, sy), (z, sz) = (
            m.transform(X, keep_observed=False, return_std=True)
            for m in (columns, rows, both)
        )
        assert_allclose(z, w * x + (1 - w) * y, rtol=1e-9)
        # Before their calibration.
        ux, uy, uz = (
            std / model.std_factors_
            for std, model in ((sx, columns), (sy, rows), (sz, both))
        )
        assert_allclose(uz**2, w * ux**2 + (1 - w) * uy**2, rtol=1e-9)
        i, j = [0, 5, 39], [7, 2, 2]
        assert_allclose(both.predict(i, j), z[i, j], rtol=1e-9)
        assert_allclose(both.predict(i, j, return_std=True)[1], sz[i, j], rtol=1e-9)
        assert_allclose(both.predict(i, j, X=X), z[i, j], rtol=1e-9)

    def test_new_rows_are_filled_from_the_columns(self, both, X):
        columns = BayesianNCARL(**HELD_OUT, sides="columns").fit(X)
        assert_array_equal(both.kernel_, columns.kernel_)
        assert_array_equal(both.transform(X[:5]), columns.transform(X[:5]))
        changed = X.copy()
        changed[0, 0] = 3.0
        assert_array_equal(both.transform(changed), columns.transform(changed))
        assert np.abs(both.transform(X) - columns.transform(X)).max() > 1e-3
        assert both.log_evidence_ == columns.log_evidence_
        assert both.score(X) == columns.score(X)

    def test_rows_alone_have_a_kernel_of_the_rows(self, X):
        rows = BayesianNCARL(**HELD_OUT, sides="rows").fit(X)
        assert rows.kernel_.shape == (40, 40)
        assert rows.transposed_
        assert rows.weight_ == 0.0
        turned = BayesianNCARL(**{**PLAIN, "max_iter": 5}).fit(X.T)
        alone = BayesianNCARL(**{**PLAIN, "max_iter": 5, "sides": "rows"}).fit(X)
        assert_allclose(alone.kernel_, turned.kernel_, rtol=1e-9)
        assert_allclose(alone.transform(X), turned.transform(X.T).T, rtol=1e-9)
        assert alone.log_evidence_ == pytest.approx(turned.log_evidence_)
        with pytest.raises(ValueError, match=r"40 rows of the fit.*sides='columns'"):
            rows.transform(X[:5])
        with pytest.raises(ValueError, match="X has 3 features"):
            rows.transform(X[:, :3])

    def test_without_validation_both_sides_count_alike(self, X):
        model = BayesianNCARL(max_iter=3, tol=0, validation=0, sides="both").fit(X)
        assert model.weight_ == 0.5
        assert model.search_ == []
