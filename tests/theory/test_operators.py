"""Masks, the p-plus inverse, the row equation and the lemmas behind its bound."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays

from ncarl.core.linalg import cholesky_with_jitter, congruence
from ncarl.core.weights import spectrum

masks = st.integers(1, 8).flatmap(lambda n: arrays(bool, n))
seeds = st.integers(0, 999)


@given(p=masks, seed=seeds)
def test_p_plus_inverts_what_the_mask_keeps_and_is_zero_elsewhere(naive, p, seed):
    # Lemma 4.
    Q = naive.positive_definite(np.random.default_rng(seed), len(p))
    P = np.diag(p.astype(float))
    inverse = naive.p_plus(Q, p)
    np.testing.assert_allclose(P @ Q @ P @ inverse, P, atol=1e-12)
    assert not inverse[~p].any()
    assert not inverse[:, ~p].any()


@given(p=masks, seed=seeds)
def test_every_principal_block_of_a_kernel_factorizes_without_jitter(naive, p, seed):
    # Lemma 1; with a single entry it says that diagonals are positive (Lemma 5).
    Q = naive.positive_definite(np.random.default_rng(seed), len(p), smallest=1e-6)
    factor, jitter = cholesky_with_jitter(Q, np.flatnonzero(p), 0.0)
    assert jitter == 0.0
    np.testing.assert_allclose(factor @ factor.T, Q[np.ix_(p, p)], atol=1e-12)
    assert (Q.diagonal() > 0).all()


@given(p=masks, seed=seeds)
def test_a_row_of_the_package_is_the_row_equation_of_the_paper(naive, p, seed):
    # x = m (P K P)^{p+} K, and the multipliers are -2 m (P K P)^{p+}.
    rng = np.random.default_rng(seed)
    Q = naive.positive_definite(rng, len(p))
    K, P = np.linalg.inv(Q), np.diag(p.astype(float))
    m = np.where(p, rng.standard_normal(len(p)), 0.0)
    F_plus = naive.p_plus(P @ K @ P, p)
    X, Y = naive.library_row_step(np.where(p, m, np.nan)[None], Q)
    np.testing.assert_allclose(X[0], m @ F_plus @ K, atol=1e-10)
    np.testing.assert_allclose(Y[0], m @ F_plus, atol=1e-10)


def test_the_printed_form_for_zero_columns_fails_off_and_on_the_observed_entries(
    rng, naive
):
    # x = m F^{p+} (H D H)^{p+}; the last factor must be an inverse over the columns
    # that are not zero (all of them here), not over the observed ones.
    p = np.array([True, True, True, False, False])
    Q, m = naive.positive_definite(rng, 5), np.where(p, rng.standard_normal(5), 0.0)
    F_plus = naive.p_plus(np.linalg.inv(Q), p)
    printed = m @ F_plus @ naive.p_plus(Q, p)
    assert not printed[~p].any()
    assert np.abs(printed - m)[p].max() > 0.1
    right = m @ F_plus @ naive.p_plus(Q, np.ones(5, dtype=bool))
    np.testing.assert_allclose(right[p], m[p], atol=1e-12)


@given(p=masks, seed=seeds)
def test_a_row_solves_the_missing_block(naive, p, seed):
    rng = np.random.default_rng(seed)
    Q = naive.positive_definite(rng, len(p))
    m = rng.standard_normal(len(p))
    X, _ = naive.library_row_step(np.where(p, m, np.nan)[None], Q)
    missing = -np.linalg.solve(Q[np.ix_(~p, ~p)], Q[np.ix_(~p, p)] @ m[p])
    np.testing.assert_allclose(X[0, ~p], missing, atol=1e-10)


@pytest.mark.parametrize("delta", [1e-2, 1e-8])
def test_the_gradient_of_the_lagrangian_is_minus_two_delta_x(rng, naive, delta):
    # Sharper than Thm 4, which bounds the gradient by 2 delta u ||M||.
    truth = naive.low_rank(rng, 30, 12, 3)
    M = naive.hide(rng, truth, 0.5)
    D = naive.positive_definite(rng, 12)
    X, Y = naive.library_row_step(M, D + delta * np.eye(12))
    seen = ~np.isnan(M)
    np.testing.assert_array_equal(X[seen], M[seen])
    assert not Y[~seen].any()
    gradient = 2 * X @ D - 2 * Y
    np.testing.assert_allclose(gradient, -2 * delta * X, rtol=0, atol=1e-12)
    assert np.linalg.norm(gradient) / delta < 100 * np.linalg.norm(M[seen])


@given(n=st.integers(2, 8), seed=seeds, data=st.data())
def test_the_norm_of_p_plus_times_the_matrix_is_known(naive, n, seed, data):
    # Lemma 8, as an equality; the printed bound follows, and is strict.
    k = data.draw(st.integers(0, n - 1))
    S = naive.positive_definite(np.random.default_rng(seed), n)
    B = np.linalg.inv(S)
    square = np.linalg.norm(naive.p_plus(S, np.arange(n) != k) @ S) ** 2
    others = np.delete(B[k], k)
    assert square == pytest.approx(n - 1 + np.sum(others**2) / B[k, k] ** 2)
    assert square < n - 1 + np.sum(B[k] ** 2) / B[k, k] ** 2


@given(n=st.integers(1, 8), seed=seeds, delta=st.floats(1e-8, 10))
def test_delta_does_not_raise_the_ratio_of_a_column_to_its_diagonal(
    naive, n, seed, delta
):
    # Lemma 9 holds with <=; it is printed as strict, which fails on a diagonal.
    def ratio(A):
        return np.sum(A**2, axis=0) / A.diagonal() ** 2

    D = naive.positive_definite(np.random.default_rng(seed), n)
    shift = delta * np.eye(n)
    assert (ratio(D + shift) <= ratio(D) * (1 + 1e-14)).all()
    flat = np.diag(D.diagonal())
    np.testing.assert_array_equal(ratio(flat + shift), ratio(flat))


@given(n=st.integers(1, 6), seed=seeds, data=st.data())
def test_the_root_of_a_padded_matrix_is_the_padded_root(n, seed, data):
    # Lemma 11, with the root that the package takes: U diag(sigma) U^T.
    i = data.draw(st.integers(0, n))
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((max(1, n - 1), n))
    Q = X.T @ X  # rank deficient, so only positive semi-definite
    others = np.arange(n + 1) != i
    A = np.zeros((n + 1, n + 1))
    A[np.ix_(others, others)] = Q

    def root(G):
        basis = spectrum(G)
        return congruence(basis.vectors, np.sqrt(basis.eigenvalues))

    padded = np.zeros((n + 1, n + 1))
    padded[np.ix_(others, others)] = root(Q)
    np.testing.assert_allclose(root(A), padded, atol=1e-7)
    np.testing.assert_allclose(root(A) @ root(A), A, atol=1e-12 * (1 + np.trace(A)))


@given(n=st.integers(2, 7), seed=seeds)
def test_the_chain_of_masks_bounds_the_row_map_without_delta(naive, n, seed):
    # Thm 7: ||(P S P)^{p+} S|| stays below a number that delta does not enter.
    rng = np.random.default_rng(seed)
    D = naive.positive_definite(rng, n)
    p = np.arange(n) < rng.integers(1, n)
    worst = []
    for delta in (1e-1, 1e-3, 1e-5, 1e-7):
        S = np.linalg.inv(D + delta * np.eye(n))
        worst.append(np.linalg.norm(naive.p_plus(S, p) @ S))
    # The same number in the limit, where the row map is [I, -D_ou D_uu^-1].
    limit = np.linalg.inv(D[np.ix_(~p, ~p)]) @ D[np.ix_(~p, p)]
    bound = np.sqrt(p.sum() + np.sum(limit**2))
    assert max(worst) <= bound * (1 + 1e-9)
