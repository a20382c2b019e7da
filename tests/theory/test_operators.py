"""Tests of masks, the p-plus inverse, the row equation and related lemmas."""

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


@given(p=masks, seed=seeds)
def test_a_row_solves_the_missing_block(naive, p, seed):
    rng = np.random.default_rng(seed)
    Q = naive.positive_definite(rng, len(p))
    m = rng.standard_normal(len(p))
    X, _ = naive.library_row_step(np.where(p, m, np.nan)[None], Q)
    missing = -np.linalg.solve(Q[np.ix_(~p, ~p)], Q[np.ix_(~p, p)] @ m[p])
    np.testing.assert_allclose(X[0, ~p], missing, atol=1e-10)


@pytest.mark.parametrize("delta", [1e-2, 1e-8])
def test_gradient_of_the_lagrangian_is_minus_two_delta_x(rng, naive, delta):
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


@given(n=st.integers(1, 6), seed=seeds, data=st.data())
def test_the_root_of_a_padded_matrix_is_the_padded_root(n, seed, data):
    # Lemma 11, with the square root of the package: U diag(sigma) U^T.
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
