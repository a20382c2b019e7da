"""Tests of the rank surrogate: minimum over D, limit, empty columns."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, strategies as st

from ncarl import NCARL
from ncarl.core.linalg import congruence
from ncarl.core.weights import PseudoInverseWeights, SmoothWeights, spectrum

seeds = st.integers(0, 999)


def orthogonal(rng, n):
    return np.linalg.qr(rng.standard_normal((n, n)))[0]


def surrogate(X):
    """The D of Thm 3 as computed by the package."""
    basis = spectrum(X.T @ X)
    return congruence(basis.vectors, PseudoInverseWeights()(basis.eigenvalues, 1))


@given(rank=st.integers(1, 5), seed=seeds)
def test_the_right_singular_basis_has_as_many_rows_as_the_rank(naive, rank, seed):
    # Thm 1: X = W^T U^T.
    rng = np.random.default_rng(seed)
    X = naive.low_rank(rng, 9, 6, rank)
    scale = np.linalg.norm(X)

    def non_zero_rows(U):
        return np.sum(np.linalg.norm(U.T @ X.T, axis=1) > 1e-6 * scale)

    assert non_zero_rows(spectrum(X.T @ X).vectors) == rank
    assert non_zero_rows(orthogonal(rng, 6)) == 6


@given(rank=st.integers(1, 6), seed=seeds)
def test_no_basis_has_a_smaller_21_norm_than_the_nuclear_norm(naive, rank, seed):
    rng = np.random.default_rng(seed)
    X = naive.low_rank(rng, 9, 6, rank)

    def norm_21(U):
        return np.linalg.norm(X @ U, axis=0).sum()

    assert norm_21(orthogonal(rng, 6)) >= naive.nuclear_norm(X) * (1 - 1e-12)
    best = norm_21(spectrum(X.T @ X).vectors)
    assert best == pytest.approx(naive.nuclear_norm(X), rel=1e-6)


def test_surrogate_is_convex_in_x(rng, naive):
    # Prop 1: the Hessian is 2 I kron D.
    D = surrogate(naive.low_rank(rng, 8, 4, 2))
    X, step = rng.standard_normal((3, 4)), rng.standard_normal((3, 4))

    def f(X):
        return np.trace(X @ D @ X.T)

    second = f(X + step) - 2 * f(X) + f(X - step)
    hessian = 2 * np.kron(np.eye(3), D)
    assert second == pytest.approx(step.ravel() @ hessian @ step.ravel())
    assert np.linalg.eigvalsh(hessian).min() > -1e-9


@given(rank=st.integers(1, 5), seed=seeds)
def test_no_positive_d_beats_the_squared_nuclear_norm(naive, rank, seed):
    # Thm 3.
    rng = np.random.default_rng(seed)
    X = naive.low_rank(rng, 9, 5, rank)
    D = naive.positive_definite(rng, 5)
    D *= np.trace(np.linalg.inv(D))
    assert np.trace(np.linalg.inv(D)) == pytest.approx(1.0)
    assert np.trace(X @ D @ X.T) >= naive.nuclear_norm(X) ** 2 * (1 - 1e-10)
    best = surrogate(X)
    values = np.linalg.eigvalsh(best)
    assert np.sum(1 / values[values > 1e-3]) == pytest.approx(1.0, rel=1e-4)
    assert np.trace(X @ best @ X.T) == pytest.approx(naive.nuclear_norm(X) ** 2)


@given(seed=seeds, data=st.data())
def test_d_has_a_zero_on_its_diagonal_exactly_where_x_has_a_zero_column(seed, data):
    # Lemma 10 and Cor 3.
    zero = np.array(data.draw(st.lists(st.booleans(), min_size=5, max_size=5)))
    zero[data.draw(st.integers(0, 4))] = False
    X = np.random.default_rng(seed).standard_normal((9, 5)) * ~zero
    D = surrogate(X)
    np.testing.assert_array_equal(D.diagonal() == 0.0, zero)  # exact
    assert not D[zero].any()
    assert not D[:, zero].any()


@pytest.mark.parametrize("e", [0.3, 1e-3])
def test_each_step_lowers_the_smoothed_nuclear_norm(rng, naive, e):
    # The step that starts at X lowers sum sqrt(sigma^2 + (e ||X||_*)^2).
    M = naive.hide(rng, naive.picture(rng, 20, 14), 0.5)
    rule = SmoothWeights(initial_epsilon=e, decay=1.0)
    grams = [iterate.gram for iterate in naive.library_iterates(M, rule, 25)[1]]

    def smooth(G, size):
        return np.sum(np.sqrt(spectrum(G).eigenvalues + size**2))

    falls = []
    for before, after in itertools.pairwise(grams):
        size = e * np.sum(np.sqrt(spectrum(before).eigenvalues))
        falls.append(smooth(before, size) - smooth(after, size))
    assert min(falls) > -1e-9 * smooth(grams[-1], 0.0)
    assert falls[0] > 1e-4 * smooth(grams[-1], 0.0)


@pytest.fixture(scope="module")
def instances(naive):
    """A recoverable matrix and an image, with certified completions."""
    rng = np.random.default_rng(1)
    truths = naive.low_rank(rng, 40, 30, 2), naive.picture(rng, 32, 24)
    gappy = [naive.hide(rng, truths[0], 0.4), naive.hide(rng, truths[1], 0.5)]
    return [
        (T, M, *naive.nuclear_completion(M)) for T, M in zip(truths, gappy, strict=True)
    ]


@pytest.mark.parametrize("which", [0, 1], ids=["recoverable", "picture"])
def test_limit_of_the_surrogate_is_the_minimum_nuclear_norm(instances, naive, which):
    # Cor 1 and Thm 5.
    T, M, Z, lower, upper = instances[which]
    assert upper - lower < 1e-6 * upper
    X = NCARL(weights="smooth", alpha=0, tol=0, max_iter=250).fit_transform(M)
    seen = ~np.isnan(M)
    np.testing.assert_array_equal(X[seen], M[seen])
    assert lower * (1 - 1e-9) <= naive.nuclear_norm(X) <= lower * (1 + 1e-3)
    close = 1e-6 if which == 0 else 2e-2
    assert np.linalg.norm(X - Z) < close * np.linalg.norm(Z)
    if which == 0:
        assert np.linalg.norm(X - T) < 1e-6 * np.linalg.norm(T)


def test_unobserved_column_is_zero_in_the_nuclear_minimizer(naive):
    # Lemma 12, for the certified solution.
    rng = np.random.default_rng(2)
    M = naive.hide(rng, naive.picture(rng, 16, 12), 0.4)
    M[:, 4] = np.nan
    Z, _, upper = naive.nuclear_completion(M)
    others = np.arange(12) != 4
    R, _, upper_reduced = naive.nuclear_completion(M[:, others])
    assert np.abs(Z[:, 4]).max() < 1e-4
    assert upper == pytest.approx(upper_reduced, rel=2e-6)
    np.testing.assert_allclose(Z[:, others], R, atol=1e-2)


@pytest.mark.parametrize(
    ("weights", "gamma"), [("pinv", None), ("smooth", None), ("smooth", 0.01)]
)
def test_unobserved_column_does_not_affect_the_others(rng, naive, weights, gamma):
    # Lemma 12 for the iterates: zero (before the package adds its fallback).
    M = naive.hide(rng, naive.low_rank(rng, 25, 12, 2), 0.4)
    M[:, 4] = np.nan
    others = np.arange(12) != 4

    def smooth(M):
        est = NCARL(
            alpha=0, weights=weights, gamma=gamma, tol=0, max_iter=6,
            orientation="columns",
        ).fit(M)  # fmt: skip
        return est.transform(M, keep_observed=False), est

    X, est = smooth(M)
    reduced, _ = smooth(M[:, others])
    np.testing.assert_allclose(X[:, others], reduced, atol=1e-9)
    assert est.unidentified_columns_.tolist() == [4]
    np.testing.assert_allclose(est.kernel_[4, others], 0.0, atol=1e-12)
    fallback = 0.0 if weights == "pinv" else np.nanmean(M)
    np.testing.assert_allclose(X[:, 4], fallback, atol=1e-12)
