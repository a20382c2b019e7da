"""Tests of `BayesianNCARL` with mixtures, against formulas row by row."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import softmax
from scipy.stats import multivariate_normal
from sklearn.base import clone

import ncarl
from ncarl import BayesianNCARL, Threads
from ncarl.bayes import selection
from ncarl.bayes.mixture import GaussianMixture
from ncarl.bayes.mixture_model import MixtureModel
from ncarl.estimators import validation
from ncarl.estimators.persistence import estimator_from_state, estimator_state
from ncarl.observations import Observations
from ncarl.ratings import Recommender
from ncarl.ratings.scoring import build_scorer

pytestmark = pytest.mark.usefixtures("one_blas_thread")
NAN = np.nan
BACKENDS = ["numba", "numpy"]
FEW = {"max_iter": 15, "engine": Threads(1), "prior_strength": 0.1, "tol": 0}


def draw_clusters(rng, m=300, n=8, missing=0.3):
    """Rows of three clusters with their own means and correlations."""
    means = 3.0 * rng.standard_normal((3, n))
    factors = rng.standard_normal((3, n, 2))
    labels = rng.integers(3, size=m)
    whole = means[labels] + np.einsum(
        "mnk,mk->mn", factors[labels], rng.standard_normal((m, 2))
    )
    whole += 0.3 * rng.standard_normal((m, n))
    hidden = rng.random((m, n)) < missing
    return np.where(hidden, NAN, whole), whole, hidden


@pytest.fixture(scope="module", name="clusters")
def cluster_data():
    return draw_clusters(np.random.default_rng(0))


@pytest.fixture(scope="module", name="fitted")
def fitted_model(clusters):
    return BayesianNCARL(**FEW, components="auto", sides="columns").fit(clusters[0])


@pytest.fixture(name="mixture")
def arbitrary_mixture(rng, covariance):
    K = np.array([covariance(rng, 5) * size for size in (1.0, 3.0, 0.5)])
    means, weights = rng.standard_normal((3, 5)), np.array([0.5, 0.3, 0.2])
    inner = GaussianMixture(weights, means, K, 5.0, 1.0)
    return MixtureModel(inner, rng.uniform(0.5, 2.0, 5))


def row_moments(model, v):
    """Mean, variance with noise, log density and responsibilities of a row."""
    s, o, logs, parts = model.column_scales, ~np.isnan(v), [], []
    for w, mean, K in zip(
        model.mixture.weights, model.mixture.means, model.mixture.covariances,
        strict=True,
    ):  # fmt: skip
        mean, K, noise = s * mean, K * np.outer(s, s), np.diag(s**2)
        logs.append(np.log(w))
        if o.any():
            A = (K + noise)[np.ix_(o, o)]
            logs[-1] += multivariate_normal.logpdf(v[o], mean[o], A)
        gain = K[:, o] @ np.linalg.inv((K + noise)[np.ix_(o, o)])
        variance = (K - gain @ K[o] + noise).diagonal()
        parts.append((mean + gain @ (v - mean)[o], variance))
    r, (x, variances) = softmax(logs), map(np.array, zip(*parts, strict=True))
    variance = r @ (variances + x**2) - (r @ x) ** 2
    return r @ x, variance, np.logaddexp.reduce(logs), r


@pytest.fixture(name="rows")
def incomplete_rows(rng):
    X = 2.0 * rng.standard_normal((12, 5))
    X[rng.random(X.shape) < 0.4] = NAN
    X[0], X[1] = NAN, rng.standard_normal(5)
    return X


class TestMixtureModel:
    @pytest.mark.parametrize("backend", BACKENDS)
    def test_matches_formulas_row_by_row(self, mixture, rows, backend):
        engine, observed = Threads(1, kernel=backend), Observations.from_dense(rows)
        expected = [row_moments(mixture, v) for v in rows]
        means, variances, logs, R = map(np.array, zip(*expected, strict=True))
        x, std = mixture.complete(observed, engine, std="observed")
        assert_allclose(x, means, atol=1e-9)
        assert_allclose(std**2, variances, rtol=1e-8)
        latent = mixture.complete(observed, engine, std="latent")[1]
        assert_allclose(latent**2, variances - mixture.column_scales**2, rtol=1e-7)
        assert mixture.complete(observed, engine)[1] is None
        found = mixture.log_likelihoods(observed, engine)
        assert_allclose(np.logaddexp.reduce(found, axis=1), logs, rtol=1e-10)
        assert_allclose(mixture.responsibilities(observed, engine), R, atol=1e-10)

    @pytest.mark.parametrize("backend", BACKENDS)
    def test_entries_are_those_of_the_completed_matrix(self, mixture, rows, backend):
        engine, observed = Threads(1, kernel=backend), Observations.from_dense(rows)
        i, j = np.array([7, 0, 3, 3, 11, 7]), np.array([1, 4, 0, 2, 2, 1])
        for kind in ("observed", "latent"):
            x, std = mixture.predict(observed, i, j, engine, std=kind)
            X, deviations = mixture.complete(observed, engine, std=kind)
            assert_allclose(x, X[i, j], rtol=1e-10)
            assert_allclose(std, deviations[i, j], rtol=1e-10)

    def test_moments_of_the_whole_mixture(self, mixture, rng):
        labels = rng.choice(3, 200_000, p=mixture.mixture.weights)
        X = np.empty((len(labels), 5))
        for k in range(3):
            some = labels == k
            K, mean = mixture.mixture.covariances[k], mixture.mixture.means[k]
            X[some] = rng.multivariate_normal(mean, K, int(some.sum()))
        assert_allclose(np.cov(X.T), mixture.kernel.K, atol=0.05)
        center = mixture.centering
        assert_allclose(
            X.mean(axis=0), center.column_effects / center.column_scales, atol=0.02
        )

    def test_rows_of_huge_values_have_responsibilities(self, mixture):
        observed = Observations.from_dense(np.array([[1e200, NAN, 1.0, NAN, NAN]]))
        with np.errstate(over="ignore"):
            R = mixture.responsibilities(observed, Threads(1))
        assert_allclose(R.sum(), 1.0)


class TestFit:
    def test_mixture_lowers_the_error_of_clusters(self, clusters, fitted):
        X, whole, hidden = clusters
        one = clone(fitted).set_params(components=1, sides="auto").fit(X)
        errors = [
            np.sqrt(np.mean((model.transform(X) - whole)[hidden] ** 2))
            for model in (one, fitted)
        ]
        assert (one.components_, fitted.components_) == (1, 4)
        assert errors[1] < 0.9 * errors[0]
        assert fitted.held_out_error_ < 0.9 * one.held_out_error_
        assert fitted.log_evidence_ > one.log_evidence_ + 100.0

    def test_standard_deviations_are_calibrated(self, clusters, fitted):
        X, whole, hidden = clusters
        filled, std = fitted.transform(X, return_std=True)
        z = (filled - whole)[hidden] / std[hidden]
        assert np.mean(z**2) == pytest.approx(1.0, abs=0.2)
        i, j = np.nonzero(hidden)
        low, high = fitted.predict_interval(i, j, level=0.9)
        inside = (low <= whole[hidden]) & (whole[hidden] <= high)
        assert np.mean(inside) == pytest.approx(0.9, abs=0.05)

    def test_one_kind_of_rows_gets_one_component(self, low_rank):
        X = low_rank(np.random.default_rng(1), m=200, n=10, seen=0.7)
        one = BayesianNCARL(**FEW).fit(X)
        auto = BayesianNCARL(**FEW, components="auto").fit(X)
        assert auto.components_ == 1
        assert_array_equal(auto.mixture_weights_, [1.0])
        assert_array_equal(auto.transform(X), one.transform(X))

    def test_auto_is_limited_by_rows_and_flops(self, clusters, monkeypatch):
        X = clusters[0]
        few = BayesianNCARL(**FEW, components="auto", sides="columns")
        monkeypatch.setattr(selection, "MAX_MIXTURE_STEP_FLOPS", 1.0)
        assert clone(few).fit(X).components_ == 1
        monkeypatch.undo()
        assert clone(few).fit(X[:30]).components_ == 1
        assert not any("components" in t for t in clone(few).fit(X[:30]).search_)

    def test_auto_keeps_what_the_nearest_rows_correct_better(
        self, clusters, monkeypatch
    ):
        X = clusters[0]
        lower = lambda *args, **kwargs: True  # noqa: E731
        monkeypatch.setattr(selection, "is_improvement", lower)
        monkeypatch.setattr(selection, "COMPONENTS_GRID", (1,))
        auto = BayesianNCARL(**FEW, components="auto").fit(X)
        assert auto.neighbor_correction_ is not None
        assert auto.components_ == 1

    @pytest.mark.parametrize("options", [{}, {"validation": 0}, {"sides": "both"}])
    def test_given_number_is_taken(self, clusters, options):
        X = clusters[0]
        model = BayesianNCARL(**FEW, components=3, **options).fit(X)
        assert model.components_ == len(model.mixture_weights_) == 3
        assert model.mixture_weights_.sum() == pytest.approx(1.0)
        assert model.neighbor_correction_ is None
        tried = {t["components"] for t in model.search_ if "components" in t}
        assert tried == (set() if options == {"validation": 0} else {3})
        assert np.isfinite(model.transform(X)).all()

    def test_shrinkage_is_the_better_one(self, clusters):
        model = BayesianNCARL(**FEW, components=3, sides="columns").fit(clusters[0])
        trials = [t for t in model.search_ if "components" in t]
        best = min(trials, key=lambda t: t["error"])
        found = model.model_.columns.mixture.shrinkage_rows
        assert found == best["shrinkage_rows"] == 0.5 * 8 + 3

    def test_mixture_is_in_the_units_of_the_noise(self, clusters, fitted):
        one = clone(fitted).set_params(components=1).fit(clusters[0])
        assert_array_equal(fitted.noise_, one.noise_)
        expected = np.nanmean(clusters[0], axis=0)
        mean = fitted.model_.columns.centering.column_effects
        found = fitted.model_.scaler.inverse_transform(mean)
        assert_allclose(found, expected, atol=0.5)
        truth = np.cov(clusters[1].T)
        scale = np.sqrt(np.outer(truth.diagonal(), truth.diagonal()))
        assert np.abs((fitted.kernel_ - truth) / scale).max() < 0.3
        assert fitted.similarity_.shape == (8, 8)

    def test_evidence_is_the_density_in_data_units(self, clusters):
        X = clusters[0]
        model = BayesianNCARL(**FEW, components=2, sides="columns").fit(X)
        columns, scaler = model.model_.columns, model.model_.scaler
        inner = scaler.transform(Observations.from_dense(X)).missing_mask()
        Z = np.where(inner, NAN, X / scaler.unit)
        logs = [row_moments(columns, v)[2] for v in Z]
        expected = sum(logs) - np.log(scaler.unit) * np.sum(~inner)
        assert model.log_evidence_ == pytest.approx(expected, rel=1e-9)

    def test_backends_agree(self, clusters):
        X = clusters[0][:100]
        found = [
            BayesianNCARL(**{**FEW, "engine": Threads(1, kernel=backend)}, components=3)
            .fit(X)
            .transform(X)
            for backend in BACKENDS
        ]
        assert_allclose(*found, atol=1e-6)

    def test_permuted_matrix_gives_the_permuted_result(self, clusters, fitted, rng):
        X = clusters[0]
        some = np.ix_(rng.permutation(len(X)), rng.permutation(X.shape[1]))
        found = np.empty_like(X)
        found[some] = clone(fitted).fit(X[some]).transform(X[some])
        assert_allclose(found, fitted.transform(X), atol=1e-6 * np.nanstd(X))

    def test_repeated_and_empty_rows(self):
        X = np.repeat([[1.0, 2.0, NAN], [3.0, NAN, 1.0], [NAN] * 3], 10, axis=0)
        model = BayesianNCARL(**FEW, components=4, scale=None).fit(X)
        assert np.isfinite(model.transform(X)).all()

    @pytest.mark.parametrize(
        "options",
        [{"dtype": "float32"}, {"center": None}, {"noise": 0.3}, {"prior_strength": 0},
         {"scale": "columns"}, {"noise": "learn", "center": "columns"}],
    )  # fmt: skip
    def test_options_of_the_kernel(self, clusters, options):
        X, whole, hidden = clusters
        model = BayesianNCARL(**{**FEW, **options}, components=3).fit(X)
        error = np.sqrt(np.mean((model.transform(X) - whole)[hidden] ** 2))
        assert error < 0.35 * np.std(whole)


class TestMethods:
    def test_draws_have_the_means_and_deviations_of_transform(self, clusters, fitted):
        X = clusters[0].copy()
        X[:20, 1:] = NAN  # rows that may be of several components
        new = X[:40]
        missing = np.isnan(new)
        filled, std = fitted.transform(new, return_std=True)
        draws = fitted.sample(2000, X=new)
        error = (draws.mean(axis=0) - filled)[missing] / std[missing]
        assert np.abs(error).max() < 5.0 / np.sqrt(2000)
        assert_allclose(draws.std(axis=0)[missing] / std[missing], 1.0, atol=0.12)
        assert_array_equal(draws[:, ~missing], np.tile(new[~missing], (2000, 1)))

    def test_draws_of_a_row_are_of_one_component(self, clusters, fitted):
        new = np.full((1, 8), NAN)
        draws = fitted.sample(4000, X=new)[:, 0]
        expected = fitted.kernel_ + np.diag(np.square(fitted.noise_) * np.ones(8))
        scale = np.sqrt(expected.diagonal())
        correlation = expected / np.outer(scale, scale)
        assert_allclose(np.corrcoef(draws.T), correlation, atol=0.06)

    def test_draws_with_both_sides(self, clusters):
        X = clusters[0][:60]
        model = BayesianNCARL(**FEW, components=3, sides="both").fit(X)
        filled, std = model.transform(X, return_std=True)
        draws, missing = model.sample(500), np.isnan(X)
        spread = draws.std(axis=0)[missing] / std[missing]
        assert spread.mean() == pytest.approx(1.0, abs=0.03)
        error = (draws.mean(axis=0) - filled)[missing] / std[missing]
        assert np.abs(error).max() < 6.0 / np.sqrt(500)

    def test_new_rows_predict_score_and_latent(self, clusters, fitted):
        X = clusters[0]
        new = X[::7] + 0.01
        filled, std = fitted.transform(new, return_std=True)
        i, j = np.nonzero(np.isnan(new))
        x, deviations = fitted.predict(i, j, X=new, return_std=True)
        assert_allclose(x, filled[i, j], rtol=1e-9)
        assert_allclose(deviations, std[i, j], rtol=1e-9)
        latent = fitted.transform(new, return_std="latent")[1]
        assert (latent[i, j] < std[i, j]).all()
        low, high = fitted.predict_interval(new)
        assert (low < high)[i, j].all()
        assert np.isfinite(fitted.score(X))

    def test_saved_model_predicts_the_same(self, clusters, fitted, tmp_path):
        X = clusters[0]
        fitted.save(tmp_path / "model")
        loaded = ncarl.load(tmp_path / "model")
        for one, other in zip(
            fitted.transform(X, return_std=True),
            loaded.transform(X, return_std=True),
            strict=True,
        ):
            assert_array_equal(one, other)
        assert_array_equal(fitted.sample(2, X=X), loaded.sample(2, X=X))
        assert (loaded.components, loaded.components_) == ("auto", 4)
        assert_array_equal(loaded.kernel_, fitted.kernel_)

    @pytest.mark.parametrize(
        ("name", "change"),
        [
            ("mixture/weights", lambda x: 2.0 * x),
            ("mixture/weights", lambda x: x[:2] / x[:2].sum()),
            ("mixture/covariances", lambda x: x + np.arange(8.0)),
            ("mixture/covariances", lambda x: -x),
            ("mixture/means", lambda x: x * NAN),
            ("column_scales", lambda x: 0.0 * x),
        ],
    )
    def test_invalid_state_is_refused(self, fitted, name, change):
        header, arrays = estimator_state(fitted, training_data=False)
        header |= {"version": 1, "kind": "model"}
        estimator_from_state(header, dict(arrays))
        key = f"model_/columns/{name}"
        arrays[key] = change(arrays[key])
        with pytest.raises(ValueError, match=r"columns|GaussianMixture"):
            estimator_from_state(header, arrays)

    def test_parameters(self):
        model = BayesianNCARL(components=4)
        assert clone(model).get_params()["components"] == 4
        assert model.set_params(components="auto").components == "auto"
        assert BayesianNCARL().components == 1


class TestErrors:
    @pytest.mark.parametrize("components", [2, "auto"])
    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"sides": "rows"}, "sides='rows'; use sides='columns'"),
            ({"noise": 0.0}, "noise=0.*use noise='per-column'"),
            ({"checkpoint": "c.npz"}, "checkpoint='c.npz'; leave it out"),
            ({"engine": "fake"}, "Remote.*use engine='threads'"),
        ],
    )
    def test_conflict_names_both_and_the_way_out(
        self, X, components, options, words, monkeypatch, tmp_path
    ):
        class Remote(Threads):
            pass

        Remote.__repr__ = lambda self: "Remote()"
        if options.get("engine"):
            monkeypatch.setattr(validation, "Threads", int)
            options = {"engine": Remote(1)}
        monkeypatch.chdir(tmp_path)
        model = BayesianNCARL(components=components, **options)
        expected = f"components={components!r}, a mixture, needs .*{words}"
        with pytest.raises(ValueError, match=f"{expected}, or components=1"):
            model.fit(X)

    def test_dask_and_torch(self, X):
        pytest.importorskip("dask")
        with pytest.raises(ValueError, match=r"components=2.*engine Dask"):
            BayesianNCARL(components=2, engine=ncarl.Dask()).fit(X)
        pytest.importorskip("torch")
        with pytest.raises(ValueError, match=r"components=2.*engine Torch"):
            BayesianNCARL(components=2, engine=ncarl.Torch(device="cpu")).fit(X)

    def test_engine_that_is_set_after_the_fit(self, clusters, fitted):
        pytest.importorskip("torch")
        engine = ncarl.Torch(device="cpu")
        model = clone(fitted).set_params(components=2, validation=0).fit(clusters[0])
        with pytest.raises(ValueError, match=r"components=2.*engine Torch"):
            model.set_params(engine=engine).transform(clusters[0])

    def test_source_that_is_not_read_into_memory(self, X, tmp_path, monkeypatch):
        np.save(tmp_path / "x.npy", X)
        rows = ncarl.open_rows(tmp_path / "x.npy")
        small = BayesianNCARL(**FEW, components=2).fit(rows)
        assert small.components_ == 2
        monkeypatch.setattr(selection, "MAX_ENTRIES_IN_MEMORY", 10)
        with pytest.raises(ValueError, match=r"components=2.* in memory.*\(\d+\)"):
            BayesianNCARL(**FEW, components=2).fit(rows)
        assert BayesianNCARL(**FEW, components="auto").fit(rows).components_ == 1

    def test_recommender_needs_one_kernel(self, X):
        i, j = np.nonzero(~np.isnan(X))
        model = BayesianNCARL(**FEW, components=2, validation=0)
        ratings = pd.DataFrame({"user": i, "item": j, "rating": X[i, j]})
        with pytest.raises(ValueError, match=r"got components=2; use components=1"):
            Recommender(model).fit(ratings)
        with pytest.raises(ValueError, match="several kernels"):
            build_scorer(model.fit(X))

    def test_too_few_rows(self, X):
        expected = "components=21 needs at least 2 rows.*got 40; use components=20 or"
        with pytest.raises(ValueError, match=expected):
            BayesianNCARL(components=21).fit(X)
