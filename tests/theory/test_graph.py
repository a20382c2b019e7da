"""Tests of the learned graph: simplex projection, scale invariance, ties."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from ncarl.core.graph import laplacian, similarity, squared_distances

seeds = st.integers(0, 999)


@st.composite
def columns_and_k(draw):
    """Random columns with distinct distances, and a number of neighbors."""
    n = draw(st.integers(2, 9))
    X = np.random.default_rng(draw(seeds)).standard_normal((6, n))
    return X, draw(st.integers(1, n - 1))


def interval(far, k):
    """Interval of the values of mu^2 that give k entries in a row (Thm 6)."""
    order = np.sort(far)
    total = order[:k].sum()
    return (k * order[k - 1] - total) / 2, (k * order[k] - total) / 2


@given(drawn=columns_and_k())
def test_distances_are_those_between_columns(drawn):
    X, _ = drawn
    expected = np.sum((X[:, :, None] - X[:, None, :]) ** 2, axis=0)
    found = squared_distances(X.T @ X)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert not found.diagonal().any()


@given(drawn=columns_and_k())
def test_every_row_is_a_projection_on_the_simplex(naive, drawn):
    # Thm 6, at the upper end of the interval.
    X, k = drawn
    far = squared_distances(X.T @ X)
    for row, found in zip(far, similarity(far, k), strict=True):
        mu2 = interval(row, k)[1]
        expected = naive.project_on_simplex(-row / (2 * mu2))
        np.testing.assert_allclose(found, expected, atol=1e-10)


@given(drawn=columns_and_k())
def test_rows_sum_to_one_and_have_exactly_k_entries(drawn):
    X, k = drawn
    S = similarity(squared_distances(X.T @ X), k)
    np.testing.assert_allclose(S.sum(axis=1), 1.0, rtol=1e-14)
    assert (S >= 0).all()
    np.testing.assert_array_equal((S > 0).sum(axis=1), k)


@given(drawn=columns_and_k())
def test_the_ends_of_the_interval_are_where_the_count_changes(naive, drawn):
    # Thm 6: k entries inside, k + 1 just above, k - 1 just below.
    X, k = drawn
    row = squared_distances(X.T @ X)[0]
    low, high = interval(row, k)

    def entries(mu2):
        return np.sum(naive.project_on_simplex(-row / (2 * mu2)) > 1e-9)

    step = 1e-4 * (high - low)
    assert entries(low + step) == k
    assert entries(high - step) == k
    if k < len(row) - 1:
        assert entries(high + step) == k + 1
    if k > 1 and low > step:
        assert entries(low - step) == k - 1


@given(drawn=columns_and_k(), exponent=st.integers(-40, 40))
def test_similarity_does_not_depend_on_scale_bit_for_bit(drawn, exponent):
    # Cor 2.
    X, k = drawn
    c = 2.0**exponent
    S = similarity(squared_distances(X.T @ X), k)
    scaled = similarity(squared_distances((c * X).T @ (c * X)), k)
    np.testing.assert_array_equal(scaled, S)


def test_the_shift_of_the_published_code_breaks_scale_invariance(rng):
    X = rng.standard_normal((6, 5))
    S = [
        similarity(squared_distances((c * X).T @ (c * X)), 2, shift=1e-6)
        for c in (1.0, 1e-3)
    ]
    assert np.abs(S[0] - S[1]).max() > 1e-3


@given(drawn=columns_and_k(), seed=seeds)
def test_permuting_columns_permutes_the_graph(drawn, seed):
    X, k = drawn
    order = np.random.default_rng(seed).permutation(X.shape[1])
    far = squared_distances(X.T @ X)
    S = similarity(far, k)
    turned = similarity(far[np.ix_(order, order)], k)
    np.testing.assert_allclose(turned, S[np.ix_(order, order)], rtol=1e-13)


@given(n=st.integers(3, 8), copies=st.integers(2, 8), seed=seeds, data=st.data())
def test_identical_columns_share_their_weight_equally(n, copies, seed, data):
    copies = min(copies, n)  # sometimes all columns
    k = data.draw(st.integers(1, n - 1))
    X = np.random.default_rng(seed).standard_normal((6, n))
    X[:, :copies] = X[:, :1]
    S = similarity(squared_distances(X.T @ X), k)
    np.testing.assert_allclose(S.sum(axis=1), 1.0)
    same = S[:copies, :copies]
    np.testing.assert_allclose(same, same[0, 0], rtol=1e-9)
    if k < copies:
        # More equal columns than neighbors: uniform on all of them.
        np.testing.assert_allclose(same, 1 / copies)
        assert not S[:copies, copies:].any()


@pytest.mark.parametrize("slip", [-4, 4])
def test_distances_that_are_only_rounding_are_zero(rng, slip):
    X = rng.standard_normal((6, 4))
    X[:, 1] = X[:, 0]
    G = X.T @ X
    G[0, 1] *= 1 + slip * np.finfo(float).eps
    G[1, 0] = G[0, 1]
    far = squared_distances(G)
    assert far[0, 1] == far[1, 0] == 0.0
    assert (far[:2, 2:] > 0).all()


def test_ties_at_positive_distance_get_equal_weights():
    # Three columns at equal distance from the first, with k = 2.
    far = np.array(
        [
            [0.0, 1, 1, 1, 4],
            [1, 0, 2, 2, 4],
            [1, 2, 0, 2, 4],
            [1, 2, 2, 0, 4],
            [4] * 4 + [0],
        ]
    )
    S = similarity(far, 3)
    np.testing.assert_allclose(S[0], [1, 0, 0, 0, 0])
    np.testing.assert_allclose(S[4], [0, 0, 0, 0, 1])
    np.testing.assert_allclose(S.sum(axis=1), 1.0)


@given(drawn=columns_and_k())
def test_the_graph_term_is_twice_the_trace(drawn):
    # Exactly 2 for a symmetric similarity.
    X, k = drawn
    far = squared_distances(X.T @ X)
    S = similarity(far, k)
    W = (S + S.T) / 2
    trace = np.trace(X @ laplacian(W) @ X.T)
    assert np.sum(W * far) == pytest.approx(2 * trace, abs=1e-10)
    assert np.sum(S * far) == pytest.approx(2 * trace, abs=1e-10)


def test_symmetrized_graph_has_no_unit_row_sums(rng):
    # So the symmetrized graph is not feasible in the step for S.
    X = rng.standard_normal((6, 9))
    S = similarity(squared_distances(X.T @ X), 3)
    sums = ((S + S.T) / 2).sum(axis=1)
    assert sums.min() < 0.9
    assert sums.max() > 1.1
    assert sums.mean() == pytest.approx(1.0)


@given(drawn=columns_and_k())
def test_the_laplacian_is_the_one_built_loop_by_loop_and_symmetric(naive, drawn):
    X, k = drawn
    L = laplacian(similarity(squared_distances(X.T @ X), k))
    np.testing.assert_allclose(L, naive.graph_laplacian(X, k), atol=1e-10)
    np.testing.assert_array_equal(L, L.T)
    np.testing.assert_allclose(L.sum(axis=1), 0.0, atol=1e-14)
