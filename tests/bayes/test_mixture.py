"""Tests of mixtures of normals against naive EM, scipy and scikit-learn."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn import mixture as sklearn_mixture

from ncarl.bayes.mixture import (
    MIN_RESPONSIBILITY,
    GaussianMixture,
    fit_mixture,
    initial_mixture,
    m_step,
    mixture_sums,
    needs_precision,
    prior_penalty,
    total_moments,
)
from ncarl.blocks import cut_blocks
from ncarl.engines.threads import Threads
from ncarl.observations import Observations

pytestmark = pytest.mark.usefixtures("one_blas_thread")
ENGINE = Threads(1)


@pytest.fixture
def case(rng, covariance):
    """Function that draws rows of two clusters, a start and a pooled normal."""

    def draw(m=60, n=5, count=3, seen=0.7, shrinkage=4.0):
        truth = rng.standard_normal((m, n)) @ covariance(rng, n)
        truth += 2.0 * (np.arange(m) % 2)[:, None]
        X = np.where(rng.random((m, n)) < seen, truth, np.nan)
        X[::20], X[1::20] = np.nan, truth[1::20]  # empty and complete rows
        X[6:10] = np.where(np.isnan(X[6]), np.nan, truth[6:10])  # equal masks
        means, covariances = rng.standard_normal((count, n)), covariance(rng, n)
        scale = rng.random(count) + 0.5
        start = GaussianMixture(
            rng.dirichlet(5.0 * np.ones(count)), means,
            scale[:, None, None] * covariances, shrinkage, noise=0.05,
        )  # fmt: skip
        pooled = GaussianMixture.single(rng.standard_normal(n), covariance(rng, n), 1.0)
        return X, start, pooled

    return draw


def log_densities(X, mixture):
    """Log weight plus log likelihood of rows and components, by scipy."""
    logs = np.tile(np.log(mixture.weights), (len(X), 1))
    for i, x in enumerate(X):
        o = np.flatnonzero(~np.isnan(x))
        for k, (mean, K) in enumerate(
            zip(mixture.means, mixture.covariances, strict=True)
        ):
            if len(o):
                A = K[np.ix_(o, o)] + mixture.noise * np.eye(len(o))
                logs[i, k] += multivariate_normal.logpdf(x[o], mean[o], A)
    return logs


def expectations(X, mixture, dense):
    """Responsibilities, and conditional means and covariances by row and component."""
    logs = log_densities(X, mixture)
    R = np.exp(logs - logsumexp(logs, axis=1, keepdims=True))
    R[R < MIN_RESPONSIBILITY] = 0.0
    noise = np.full(X.shape[1], mixture.noise)
    moments = [
        [
            dense.conditional(x, K, noise, mean)
            for mean, K in zip(mixture.means, mixture.covariances, strict=True)
        ]
        for x in X
    ]
    return R, moments


def penalty(mixture, pooled):
    """Minus the log density of the prior, by traces."""
    total = -np.log(mixture.weights).sum()
    for mean, K in zip(mixture.means, mixture.covariances, strict=True):
        P, away = np.linalg.inv(K), mean - pooled.means[0]
        nu, log_det = mixture.shrinkage_rows, np.linalg.slogdet(K)[1]
        total += nu * (log_det + np.trace(P @ pooled.covariances[0])) / 2
        total += away @ P @ away / 2
    return total


def expected_objective(mixture, pooled, R, moments):
    """Expected log likelihood of complete rows minus the penalty, row by row."""
    total = -penalty(mixture, pooled)
    for k, (mean, K) in enumerate(zip(mixture.means, mixture.covariances, strict=True)):
        P, log_det = np.linalg.inv(K), np.linalg.slogdet(K)[1]
        for i, given in enumerate(moments):
            x, C = given[k]
            fit = (x - mean) @ P @ (x - mean) + np.trace(P @ C)
            total += R[i, k] * (np.log(mixture.weights[k]) - (log_det + fit) / 2)
    return total


def one_step(X, start, pooled):
    """One step of EM by the row kernels."""
    observed = Observations.from_dense(X)
    fit = fit_mixture(observed, start, pooled, ENGINE, max_iter=1, tol=0.0)
    return fit.mixture


def assert_same(one, other, rtol=1e-9):
    for name in ("weights", "means", "covariances"):
        found, wanted = getattr(one, name), getattr(other, name)
        atol = rtol * max(1.0, np.abs(wanted).max())
        assert_allclose(found, wanted, rtol=rtol, atol=atol, err_msg=name)


def test_log_likelihoods_match_scipy(case):
    X, start, _ = case()
    found = start.log_likelihoods(Observations.from_dense(X), ENGINE)
    assert_allclose(found, log_densities(X, start), rtol=1e-9)


def test_step_equals_loops_over_rows(case, dense, backend):
    X, start, pooled = case()
    observed, engine = Observations.from_dense(X), Threads(1, kernel=backend)
    fit = fit_mixture(observed, start, pooled, engine, max_iter=1, tol=0.0)
    R, moments = expectations(X, start, dense)
    nu, mean_0, K_0 = start.shrinkage_rows, pooled.means[0], pooled.covariances[0]
    n = X.shape[1]
    means, covariances = np.empty((3, n)), np.empty((3, n, n))
    for k in range(3):
        N = R[:, k].sum()
        total = mean_0 + sum(R[i, k] * moments[i][k][0] for i in range(len(X)))
        means[k] = total / (N + 1)
        away = means[k] - mean_0
        spread = nu * K_0 + np.outer(away, away)
        for i in range(len(X)):
            x, C = moments[i][k]
            spread += R[i, k] * (C + np.outer(x - means[k], x - means[k]))
        covariances[k] = spread / (N + nu)
    counts = R.sum(axis=0)
    weights = (counts + 1.0) / (counts + 1.0).sum()
    expected = GaussianMixture(weights, means, covariances, nu, start.noise)
    assert_same(fit.mixture, expected)
    total = logsumexp(log_densities(X, start), axis=1).sum()
    assert fit.objective == pytest.approx([total - penalty(start, pooled)])
    assert fit.mixture.noise == start.noise


def test_penalty_matches_traces(case):
    _, start, pooled = case()
    assert prior_penalty(start, pooled) == pytest.approx(penalty(start, pooled))


def test_step_maximizes_the_expected_penalized_likelihood(case, dense, rng):
    X, start, pooled = case()
    R, moments = expectations(X, start, dense)
    best = one_step(X, start, pooled)
    n, h = X.shape[1], 1e-4

    def value(t, direction):
        weights, means, covariances = direction
        logits = np.log(best.weights) + t * weights
        moved = replace(
            best,
            weights=np.exp(logits - logsumexp(logits)),
            means=best.means + t * means,
            covariances=best.covariances + t * covariances,
        )
        return expected_objective(moved, pooled, R, moments)

    for _ in range(8):
        S = rng.standard_normal((3, n, n))
        change = rng.standard_normal(3), rng.standard_normal((3, n))
        direction = *change, (S + np.swapaxes(S, 1, 2)) / n
        low, top, high = (value(t, direction) for t in (-h, 0.0, h))
        assert low < top and high < top
        curvature = (low - 2 * top + high) / h**2
        assert abs(high - low) / (2 * h) < 1e-4 * abs(curvature)


@pytest.mark.parametrize("seed", range(5))
def test_objective_never_decreases(seed, case, rng, monkeypatch):
    monkeypatch.setattr("ncarl.bayes.mixture.MIN_RESPONSIBILITY", 0.0)
    rng.bit_generator.state = np.random.default_rng(seed).bit_generator.state
    X, start, pooled = case(count=2 + seed % 3, seen=0.4 + 0.1 * seed)
    observed = Observations.from_dense(X)
    fit = fit_mixture(observed, start, pooled, ENGINE, max_iter=40, tol=-1.0)
    assert len(fit.objective) == 40
    assert (np.diff(fit.objective) >= -1e-11 * np.abs(fit.objective[0])).all()
    assert fit.objective[-1] > fit.objective[0] + 10.0


def test_small_responsibilities_hardly_change_the_objective(case):
    X, start, pooled = case()
    observed = Observations.from_dense(X)
    fit = fit_mixture(observed, start, pooled, ENGINE, max_iter=60, tol=-1.0)
    assert (np.diff(fit.objective) >= -1e-3).all()


def test_iteration_stops_at_small_gains(case):
    X, start, pooled = case()
    observed = Observations.from_dense(X)
    fit = fit_mixture(observed, start, pooled, ENGINE, max_iter=200, tol=1e-3)
    gains = np.diff(fit.objective) / observed.n_observed
    assert 3 < len(fit.objective) < 200
    assert gains[-1] < 1e-3 and (gains[:-1] >= 1e-3).all()


def test_complete_rows_have_the_likelihood_of_scikit_learn(rng, covariance):
    m, n, repeats = 600, 3, 60
    X = rng.standard_normal((m, n)) @ covariance(rng, n)
    X[::3] += 4.0
    X[1::3, 0] -= 6.0
    pooled = GaussianMixture.single(X.mean(axis=0), np.cov(X.T), 1.0)
    start = initial_mixture(X, pooled, 3, 1e-6, seed=0)
    # Among repeated rows the pseudo-rows of the prior do not count.
    observed = Observations.from_dense(np.tile(X, (repeats, 1)))
    fit = fit_mixture(observed, start, pooled, ENGINE, max_iter=100, tol=1e-11)
    other = sklearn_mixture.GaussianMixture(
        3, tol=1e-11, max_iter=100, reg_covar=0.0, weights_init=start.weights,
        means_init=start.means, precisions_init=np.linalg.inv(start.covariances),
    ).fit(X)  # fmt: skip
    found = logsumexp(log_densities(X, fit.mixture), axis=1).mean()
    assert found == pytest.approx(other.score(X), abs=1e-6)
    assert logsumexp(log_densities(X, start), axis=1).mean() < found - 0.05
    assert_allclose(fit.mixture.means, other.means_, atol=1e-2)
    assert_allclose(fit.mixture.weights, other.weights_, atol=1e-3)


def test_large_shrinkage_gives_the_pooled_covariance(case):
    X, start, pooled = case(shrinkage=1e12)
    mixture = one_step(X, start, pooled)
    for K in mixture.covariances:
        assert_allclose(K, pooled.covariances[0], atol=1e-9)


def test_forms_of_the_rows_give_the_same_fit(case, monkeypatch):
    X, start, pooled = case(n=12, seen=0.95)
    observed = Observations.from_dense(X)
    assert needs_precision(observed)
    fits = []
    for force in (False, True):
        if force:
            never = lambda observed: False  # noqa: E731
            monkeypatch.setattr("ncarl.bayes.mixture.needs_precision", never)
        fits.append(fit_mixture(observed, start, pooled, ENGINE, max_iter=5, tol=0.0))
    assert fits[0].objective == pytest.approx(fits[1].objective, rel=1e-10)
    assert_same(fits[0].mixture, fits[1].mixture, rtol=1e-7)


def test_rows_that_are_empty_or_small_need_no_precision():
    assert not needs_precision(Observations.from_dense(np.full((2, 9), np.nan)))
    sparse = np.full((2, 9), np.nan)
    sparse[:, 0] = 1.0
    assert not needs_precision(Observations.from_dense(sparse))


def test_order_of_rows_does_not_matter(case, rng):
    X, start, pooled = case()
    order = rng.permutation(len(X))
    assert_same(one_step(X, start, pooled), one_step(X[order], start, pooled))


def test_order_of_components_is_kept(case):
    X, start, pooled = case()
    names = ("weights", "means", "covariances")
    turned = replace(start, **{name: getattr(start, name)[::-1] for name in names})
    back = one_step(X, turned, pooled)
    back = replace(back, **{name: getattr(back, name)[::-1] for name in names})
    assert_same(back, one_step(X, start, pooled))


def test_sums_of_blocks_add_up(case):
    X, start, pooled = case()
    kernels = start.kernels(with_precision=True)
    shared = {"means": start.means, "log_weights": np.log(start.weights)}
    one, two = cut_blocks(Observations.from_dense(X), 2)
    sums = mixture_sums(one, kernels=kernels, **shared)
    sums += mixture_sums(two, kernels=kernels, **shared)
    total = logsumexp(log_densities(X, start), axis=1).sum()
    assert sums.log_likelihood == pytest.approx(total)
    assert_same(m_step(start, kernels, sums, pooled), one_step(X, start, pooled))


def test_component_without_rows_becomes_the_prior(case):
    X, start, pooled = case()
    means = start.means.copy()
    means[2] = 1e3
    mixture = one_step(X[1:20], replace(start, means=means), pooled)
    assert_allclose(mixture.means[2], pooled.means[0], atol=1e-9)
    assert_allclose(mixture.covariances[2], pooled.covariances[0], atol=1e-9)


def test_normal_without_noise_gets_a_small_one():
    mean, K = np.zeros(2), np.diag([1.0, 3.0])
    assert GaussianMixture.single(mean, K, 1.0).noise == pytest.approx(2e-6)
    assert GaussianMixture.single(mean, K, 1.0, noise=0.5).noise == 0.5


def test_start_has_the_clusters_of_k_means(rng):
    centers = np.array([[0.0, 0.0], [30.0, 0.0], [0.0, 30.0]])
    label = np.arange(300) % 3
    X = centers[label] + rng.standard_normal((300, 2))
    pooled = GaussianMixture.single(X.mean(axis=0), np.cov(X.T), 1.0)
    start = initial_mixture(X, pooled, 3, 5.0, seed=0)
    assert start.noise == pooled.noise
    order = np.argmin(np.linalg.norm(centers[:, None] - start.means, axis=2), axis=1)
    assert_array_equal(np.sort(order), range(3))
    for c, k in enumerate(order):  # 0.9 of the own rows, 1/30 of all rows
        R = np.where(label == c, 0.9, 0.0) + 0.1 / 3
        mean = (R @ X + pooled.means[0]) / (R.sum() + 1)
        K = 5.0 * pooled.covariances[0]
        for r, x in zip(R, X, strict=True):
            K = K + r * np.outer(x - mean, x - mean)
        assert start.weights[k] == pytest.approx(1 / 3)
        assert_allclose(start.means[k], mean)
        assert_allclose(start.covariances[k], K / (R.sum() + 5.0))


def test_moments_of_the_mixture_are_those_of_draws(case, rng):
    _, start, _ = case()
    mean, K = total_moments(start)
    labels = rng.choice(3, size=100_000, p=start.weights)
    factors = np.linalg.cholesky(start.covariances)
    noise = rng.standard_normal((len(labels), 5, 1))
    draws = start.means[labels] + (factors[labels] @ noise)[:, :, 0]
    assert_allclose(mean, draws.mean(axis=0), atol=0.03)
    assert_allclose(K, np.cov(draws.T), atol=0.06)
