"""Tests of the iteration: naive implementation, special cases, symmetries."""

from __future__ import annotations

import numpy as np
import pytest

from ncarl import NCARL, Threads

RULES = ["floor", "pinv", "smooth"]


@pytest.fixture(name="M")
def incomplete_matrix(rng, naive):
    """A tall matrix of rank 4 plus noise, 45% missing."""
    truth = naive.low_rank(rng, 30, 14, 4) + 0.1 * rng.standard_normal((30, 14))
    return naive.hide(rng, truth, 0.45)


def smooth(M, **parameters):
    """The smoothed training matrix, including observed entries."""
    options = {"max_iter": 4, "tol": 0, "n_neighbors": 4, **parameters}
    return NCARL(**options).fit(M).transform(M, keep_observed=False)


def naive_weights(sigma, rule, step, M):
    """Weights of singular vectors, largest singular value first."""
    lam = sigma / sigma.sum()
    if rule == "pinv":
        return np.array([1 / x if x > 1e-5 else 0.0 for x in lam])
    if rule == "smooth":
        return 1 / np.sqrt(lam**2 + 0.9 ** (2 * step))
    q = np.sum(~np.isnan(M)) // sum(M.shape)
    trusted = int(np.ceil(q * min(1.0, 0.5 + step / 60)))
    floor = min(0.3 / len(lam), lam[min(trusted, len(lam) - 1)])
    return 1 / np.maximum(lam, floor)


def naive_ncarl(M, naive, *, alpha, k, rule, steps, gamma=None, delta=1e-6):
    """Algorithms 1 to 3 of the paper with one explicit inverse per row."""
    X = np.where(np.isnan(M), 0.0, M)
    n = M.shape[1]
    for step in range(1, steps + 1):
        _, sigma, Vt = np.linalg.svd(X, full_matrices=False)
        D = Vt.T @ np.diag(naive_weights(sigma, rule, step, M)) @ Vt
        L = naive.graph_laplacian(X, k, shift=1e-6 if rule == "pinv" else 0.0)
        if gamma is None:
            X = naive.row_step(M, D + alpha * L + delta * np.eye(n))
        else:
            Q = gamma * (D + delta * np.eye(n)) + alpha * L
            X = naive.row_step(M, Q, noisy=True)
    return X


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("alpha", [0.0, 0.5, 100.0])
def test_exact_model_matches_the_naive_algorithm(M, naive, backend, alpha, rule):
    found = smooth(M, alpha=alpha, weights=rule, engine=Threads(kernel=backend))
    expected = naive_ncarl(M, naive, alpha=alpha, k=4, rule=rule, steps=4)
    np.testing.assert_allclose(found, expected, atol=1e-7)


def test_floor_decreases_with_the_tail_singular_values(rng, naive):
    M = naive.hide(rng, naive.low_rank(rng, 40, 20, 1), 0.2)
    found = smooth(M, alpha=0.0, max_iter=12)
    expected = naive_ncarl(M, naive, alpha=0.0, k=4, rule="floor", steps=12)
    np.testing.assert_allclose(found, expected, atol=1e-7)
    sigma = np.linalg.svd(found, compute_uv=False)
    # The tail is then below 0.3 / n, which a constant floor would prevent.
    assert naive_weights(sigma, "floor", 12, M).max() > 2 * 20 / 0.3


@pytest.mark.parametrize("rule", ["floor", "smooth"])
@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_noisy_model_matches_the_naive_algorithm(M, naive, backend, alpha, rule):
    found = smooth(
        M, alpha=alpha, weights=rule, gamma=0.05, engine=Threads(kernel=backend)
    )
    expected = naive_ncarl(M, naive, alpha=alpha, k=4, rule=rule, steps=4, gamma=0.05)
    np.testing.assert_allclose(found, expected, atol=1e-7)


@pytest.mark.parametrize("rule", ["floor", "smooth"])
@pytest.mark.parametrize("gamma", [None, 0.05])
def test_one_neighbor_equals_no_graph(M, rule, gamma):
    one = smooth(M, alpha=100.0, n_neighbors=1, weights=rule, gamma=gamma)
    none = smooth(M, alpha=0.0, weights=rule, gamma=gamma)
    np.testing.assert_allclose(one, none, atol=1e-8)


def test_no_graph_equals_alpha_zero(M):
    np.testing.assert_array_equal(smooth(M, graph=None), smooth(M, alpha=0.0))


def test_fixed_graph_is_the_first_one_and_can_be_given(M):
    first = NCARL(max_iter=1, tol=0, n_neighbors=4).fit(M).similarity_
    fixed = NCARL(max_iter=3, tol=0, n_neighbors=4, graph="fixed").fit(M).similarity_
    learned = NCARL(max_iter=3, tol=0, n_neighbors=4).fit(M).similarity_
    np.testing.assert_array_equal(fixed.toarray(), first.toarray())
    assert np.abs(learned - first).max() > 1e-3
    given = smooth(M, graph=first.toarray())
    np.testing.assert_allclose(given, smooth(M, graph="fixed"), atol=1e-12)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("gamma", [None, 0.05])
def test_permuting_rows_and_columns_permutes_the_completion(M, rng, rule, gamma):
    places = np.ix_(*(rng.permutation(size) for size in M.shape))
    whole = smooth(M, weights=rule, gamma=gamma)
    permuted = smooth(M[places], weights=rule, gamma=gamma)
    np.testing.assert_allclose(permuted, whole[places], atol=1e-8)


@pytest.mark.parametrize("center", [None, "mean", "columns", "two-way"])
@pytest.mark.parametrize("gamma", [None, 0.05])
@pytest.mark.parametrize("c", [2.0**-600, 2.0**600])
def test_is_exactly_equivariant_to_powers_of_two(M, gamma, c, center):
    whole = smooth(M, gamma=gamma, center=center)
    np.testing.assert_array_equal(smooth(c * M, gamma=gamma, center=center), c * whole)


@pytest.mark.parametrize("rule", ["floor", "smooth"])
@pytest.mark.parametrize("gamma", [None, 0.05])
@pytest.mark.parametrize("c", [1e-5, 1e8, -1.0])
def test_is_equivariant_to_scale(M, gamma, c, rule):
    whole = smooth(M, gamma=gamma, weights=rule)
    scaled = smooth(c * M, gamma=gamma, weights=rule)
    np.testing.assert_allclose(scaled / c, whole, atol=1e-9)


@pytest.mark.parametrize("gamma", [None, 0.05])
def test_row_kernel_equals_column_kernel_of_the_transpose(M, gamma):
    rows = smooth(M, gamma=gamma, orientation="rows")
    columns = smooth(M.T, gamma=gamma, orientation="columns")
    np.testing.assert_array_equal(rows, columns.T)


def test_auto_uses_the_shorter_side(M):
    np.testing.assert_array_equal(smooth(M), smooth(M, orientation="columns"))
    np.testing.assert_array_equal(smooth(M.T), smooth(M).T)


def test_recorded_change_is_that_of_the_gram_matrix(M):
    first, second = (smooth(M, max_iter=t) for t in (3, 4))
    G, old = second.T @ second, first.T @ first
    expected = np.linalg.norm(G - old) / np.linalg.norm(G)
    est = NCARL(max_iter=4, tol=0, n_neighbors=4).fit(M)
    assert est.history_["change"][-1] == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("gamma", [None, 0.05])
def test_recorded_objective_is_minimized_by_the_step(M, gamma):
    est = NCARL(max_iter=3, tol=0, n_neighbors=4, gamma=gamma).fit(M)
    X = est.transform(M, keep_observed=False)
    value = np.trace(X @ np.linalg.inv(est.kernel_) @ X.T) + np.nansum((X - M) ** 2)
    assert est.history_["objective"][-1] == pytest.approx(value, rel=1e-9)
