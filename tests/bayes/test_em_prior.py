"""Tests of the prior correlation against direct sums."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose

from ncarl.bayes.em import (
    IDENTITY_SHARE,
    KERNEL_SHARE,
    ROW_RIDGE,
    EMProblem,
    ModelConfig,
    co_observation_kernel,
    feature_correlation,
    prior_correlation,
)
from ncarl.dataset import InMemoryDataset
from ncarl.engines.threads import Threads
from ncarl.observations import Observations

pytestmark = pytest.mark.usefixtures("one_blas_thread")
ENGINE = Threads(1)


def marked(seen):
    return InMemoryDataset(Observations.from_dense(np.where(seen, 1.0, np.nan)))


def make_problem(X, *config, **options):
    dataset = InMemoryDataset(Observations.from_dense(X))
    return EMProblem(dataset, ModelConfig(*config, **options), ENGINE)


def naive(seen):
    """Weighted pair counts, scaled, centered, rescaled and shrunk."""
    n = seen.shape[1]
    A = np.zeros((n, n))
    for row in seen:
        A += np.outer(row, row) / np.sqrt(row.sum() + ROW_RIDGE)
    live = np.flatnonzero(seen.any(axis=0))
    A = A[np.ix_(live, live)]
    A = A / np.sqrt(np.outer(A.diagonal(), A.diagonal()))
    H = np.eye(len(live)) - 1.0 / len(live)
    A = H @ A @ H
    d = A.diagonal().copy()
    C = np.eye(n)
    for a, j in enumerate(live):
        for b, k in enumerate(live):
            if j != k and d[a] > 1e-9 and d[b] > 1e-9:
                C[j, k] = A[a, b] / np.sqrt(d[a] * d[b])
    # Subtract the expected squares: 1 / m by chance, 1 / (n - 1)^2 by centering.
    off, others = C - np.eye(n), len(live) - 1
    squares, rows = np.sum(off**2), np.count_nonzero(seen.any(axis=1))
    if squares == 0.0:
        return C
    mean = squares / (len(live) * others)
    return np.eye(n) + off * max(0.0, 1.0 - (1 / rows + 1 / others**2) / mean)


@given(
    seen=arrays(bool, st.tuples(st.integers(1, 9), st.integers(1, 9))).filter(np.any)
)
def test_co_observation_is_the_naive_one_on_any_mask(seen):
    found = co_observation_kernel(marked(seen), ENGINE)
    assert_allclose(found, naive(seen), atol=1e-9)


def test_co_observation_matches_direct_sums(rng):
    seen = rng.random((60, 25)) < np.linspace(0.05, 0.9, 25)
    found = co_observation_kernel(marked(seen), ENGINE)
    assert_allclose(found, naive(seen), atol=1e-12)
    assert_allclose(found.diagonal(), 1.0)
    assert np.linalg.eigvalsh(found).min() > -1e-12
    several = co_observation_kernel(marked(seen), Threads(2))
    assert_allclose(several, found, atol=1e-12)


def test_random_mask_gives_nearly_the_identity(rng):
    C = co_observation_kernel(marked(rng.random((300, 20)) < 0.5), ENGINE)
    assert np.mean((C - np.eye(20)) ** 2) < 1 / 300


def test_columns_observed_together_are_correlated(rng):
    by_first = rng.random(200) < 0.5
    seen = np.repeat(
        np.where(by_first[:, None], [[True, False]], [[False, True]]), 3, 1
    )
    C = co_observation_kernel(marked(seen), ENGINE)
    assert (C[:3, :3] > 0.9).all()
    assert (C[:3, 3:] < -0.9).all()


class TestPriorCorrelation:
    @pytest.fixture
    def dataset(self, rng):
        return marked(rng.random((40, 6)) < 0.5)

    def test_identity_share_is_one_half(self, dataset):
        C = co_observation_kernel(dataset, ENGINE)
        found = prior_correlation(dataset, "co-observation", ENGINE)
        assert IDENTITY_SHARE == 0.5
        assert_allclose(found, (C + np.eye(6)) / 2)

    def test_features_and_mask_have_equal_weight(self, dataset, rng):
        F = rng.standard_normal((6, 3))
        C = (co_observation_kernel(dataset, ENGINE) + feature_correlation(F)) / 2
        found = prior_correlation(dataset, F, ENGINE)
        assert_allclose(found, (C + np.eye(6)) / 2)

    def test_given_matrix_is_scaled_to_unit_diagonal(self, dataset, rng, covariance):
        given = 7.0 * covariance(rng, 6)
        found = prior_correlation(dataset, given, ENGINE)
        assert found.diagonal().mean() == pytest.approx(1.0)
        assert_allclose(found * given[0, 0], given * found[0, 0])


def test_feature_correlation_is_scale_invariant(rng):
    F = rng.standard_normal((7, 3)) * [1.0, 100.0, 1e-3] + 5.0
    Z = (F - F.mean(axis=0)) / F.std(axis=0)
    norms = np.linalg.norm(Z, axis=1)
    assert_allclose(feature_correlation(F), Z @ Z.T / np.outer(norms, norms))
    constant = np.column_stack([F, np.full(7, 3.0)])
    assert_allclose(feature_correlation(constant), feature_correlation(F))
    assert_allclose(feature_correlation(np.ones((4, 2))), np.eye(4))


def test_row_effects_are_part_of_the_prior(rng):
    X = rng.standard_normal((50, 6)) + 3.0 * rng.standard_normal((50, 1))
    assert_allclose(make_problem(X, "identity", "columns").prior_matrix, np.eye(6))
    added = make_problem(X, "identity", "two-way").prior_matrix - np.eye(6)
    assert_allclose(added, added[0, 0])
    # The variance of the effects (9) relative to the kernel share (0.3).
    assert added[0, 0] * KERNEL_SHARE == pytest.approx(9.0, rel=0.5)


def test_initial_params_are_the_prior_and_the_means(rng):
    X = rng.standard_normal((200, 5)) + np.arange(5.0)
    start = make_problem(X, "identity", "columns").initial_params()
    assert_allclose(start.mean, X.mean(axis=0), atol=0.05)
    assert_allclose(start.K, 0.3 * np.eye(5) * start.K[0, 0] / 0.3)
    assert start.noise[0] / start.K[0, 0] == pytest.approx(0.8 / 0.3)
    flat = make_problem(X, "identity", "mean").initial_params()
    assert_allclose(flat.mean, X.mean())
    none = make_problem(X, "identity", "none", 0.5).initial_params()
    assert_allclose(none.mean, 0.0)
    assert_allclose(none.noise, 0.25)


def test_pseudo_rows_are_relative_to_the_longer_side(rng):
    wide = rng.standard_normal((5, 12))
    for X in (wide, wide.T):
        prior = make_problem(X).make_prior(0.5)
        assert prior.pseudo_rows == 6.0
        assert (prior.learn_noise, prior.learn_mean) == ("learn", True)
    fixed = make_problem(wide, center="mean", noise=0.1).make_prior(0.5)
    assert (fixed.learn_noise, fixed.learn_mean) == (None, False)
