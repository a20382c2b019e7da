"""Tests of the noisy model: gradient, limits, equivalent problems."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from ncarl import NCARL
from ncarl.blocks import cut_blocks
from ncarl.core.kernel import QuadraticPenalty, column_kernel
from ncarl.core.linalg import congruence
from ncarl.core.rows import complete_rows
from ncarl.core.weights import SmoothWeights, Spectrum
from ncarl.observations import Observations

GAMMAS = [1e-4, 1e-2, 1.0]


@pytest.fixture(name="M")
def incomplete_matrix(rng, naive):
    """A tall matrix of rank 3, half missing."""
    return naive.hide(rng, naive.low_rank(rng, 25, 10, 3), 0.5)


@pytest.fixture(name="D")
def surrogate(rng):
    """Weight matrix of a surrogate."""
    vectors = np.linalg.qr(rng.standard_normal((10, 10)))[0]
    return Spectrum(np.ones(10), vectors), np.linspace(1.0, 30.0, 10)


def complete(M, kernel):
    (block,) = cut_blocks(Observations.from_dense(M), 1)
    X, _, _ = complete_rows(block, kernel=kernel)
    return X[np.argsort(block.rows)]


@pytest.mark.parametrize("alpha", [0.0, 2.0])
@pytest.mark.parametrize("missing_side", [False, True])
@pytest.mark.parametrize("gamma", GAMMAS)
def test_gradient_vanishes_at_the_step(M, D, naive, gamma, missing_side, alpha):
    delta, L = 1e-3, naive.graph_laplacian(np.nan_to_num(M), 3)
    penalty = QuadraticPenalty(alpha, delta, gamma)
    X = complete(M, column_kernel(*D, L, penalty, needs_precision=missing_side))
    residual = np.where(np.isnan(M), 0.0, X - M)
    hat = congruence(D[0].vectors, D[1]) + delta * np.eye(10)
    gradient = residual + X @ (gamma * hat + alpha * L)
    np.testing.assert_allclose(gradient, 0.0, atol=1e-10)


def test_step_converges_to_the_exact_one_for_small_gamma(M, D):
    exact = complete(
        M, column_kernel(*D, None, QuadraticPenalty(0.0, 1e-3), needs_precision=False)
    )
    errors = []
    for gamma in (1e-2, 1e-4, 1e-6, 1e-8):
        penalty = QuadraticPenalty(0.0, 1e-3, gamma)
        X = complete(M, column_kernel(*D, None, penalty, needs_precision=False))
        errors.append(np.abs(X - exact).max())
    ratios = np.array(errors[:-1]) / errors[1:]
    assert (ratios > 50).all()  # the error is proportional to gamma
    assert errors[-1] < 1e-6


def test_step_maximizes_the_posterior_for_fixed_weights(M, D, rng):
    # Matrix-normal prior with column covariance (2 gamma D)^-1, noise variance 1/2
    # (the paper's unit variance would halve the loss).
    gamma = 0.05
    X = complete(
        M,
        column_kernel(
            *D, None, QuadraticPenalty(0.0, 0.0, gamma), needs_precision=False
        ),
    )
    covariance = congruence(D[0].vectors, 1 / (2 * gamma * D[1]))
    prior = multivariate_normal(np.zeros(10), covariance)

    def log_posterior(X):
        loss = np.nansum((X - M) ** 2)
        return np.sum(prior.logpdf(X)) - loss / (2 * 0.5)

    best = log_posterior(X)
    for size in (1e-3, 1e-1, 1.0):
        for _ in range(10):
            assert log_posterior(X + size * rng.standard_normal(X.shape)) < best
    # It is the conditional mean.
    for x, row in zip(X, M, strict=True):
        o = ~np.isnan(row)
        A = covariance[np.ix_(o, o)] + 0.5 * np.eye(o.sum())
        mean = covariance[:, o] @ np.linalg.solve(A, row[o])
        np.testing.assert_allclose(x, mean, atol=1e-10)


@pytest.fixture(params=["recoverable", "picture"])
def incomplete(request, naive):
    """An exactly recoverable incomplete matrix and an incomplete image."""
    rng = np.random.default_rng(1)
    if request.param == "picture":
        return naive.hide(rng, naive.picture(rng, 28, 20), 0.5)
    return naive.hide(rng, naive.low_rank(rng, 36, 24, 2), 0.4)


def test_limit_is_soft_impute_at_gamma_times_the_nuclear_norm(incomplete, naive):
    # min ||Pi(X) - M||^2 + gamma ||X||_*^2, the square of the nuclear norm.
    gamma = 0.02

    def value(X):
        return np.nansum((X - incomplete) ** 2) + gamma * naive.nuclear_norm(X) ** 2

    distances = []
    for decay, steps in ((0.9, 150), (0.97, 500)):
        # Limit of the smoothed surrogate with slowly decreasing smoothing.
        _, run = naive.library_iterates(
            incomplete, SmoothWeights(decay=decay), steps, gamma
        )
        X = complete(incomplete, run[-1].kernel)
        twin = naive.soft_impute(incomplete, gamma * naive.nuclear_norm(X))
        distances.append(np.linalg.norm(X - twin) / np.linalg.norm(twin))
    assert distances[1] < 4e-3
    assert distances[1] < distances[0] / 2  # closer with slower decay
    assert value(X) == pytest.approx(value(twin), rel=2e-4)
    # Another threshold gives another matrix.
    other = naive.soft_impute(incomplete, 2 * gamma * naive.nuclear_norm(X))
    assert np.linalg.norm(X - other) > 10 * distances[1] * np.linalg.norm(other)


@pytest.mark.parametrize("weights", ["floor", "pinv"])
def test_rank_does_not_increase_with_gamma(naive, weights):
    rng = np.random.default_rng(3)
    image = naive.picture(rng, 48, 36)
    M = naive.hide(rng, image, 0.5)
    ranks = []
    for gamma in (1e-6, 1e-3, 1e-1):
        est = NCARL(gamma=gamma, alpha=0, weights=weights, tol=0, max_iter=20).fit(M)
        X = est.transform(M, keep_observed=False)
        ranks.append(int(np.sum(np.linalg.svd(X, compute_uv=False) > 1e-3)))
    assert ranks == sorted(ranks, reverse=True)
    assert ranks[-1] < 10 < ranks[0]
