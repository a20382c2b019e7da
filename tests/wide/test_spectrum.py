"""Tests of leading eigenpairs, tail density, weights and graph on dense matrices."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array

from ncarl.core import graph as core_graph
from ncarl.core.kernel import QuadraticPenalty, column_kernel
from ncarl.core.weights import FloorWeights, Spectrum, singular_value_shares
from ncarl.wide.kernel import ColumnGraph, wide_kernel
from ncarl.wide.solver import spectral_weights
from ncarl.wide.spectrum import (
    LANCZOS_STEPS,
    chebyshev_subspace_iteration,
    exact_gram,
    relative_change,
    subspace_size,
    summarize_gram,
    tail_spectral_density,
    wide_similarity,
)


class Matrix:
    """A dense matrix with the interface of an operator."""

    def __init__(self, G):
        self.G, self.n = G, len(G)

    def __matmul__(self, V):
        return self.G @ V


def matrix(values, seed=0):
    """A symmetric matrix with given eigenvalues."""
    A = np.random.default_rng(seed).standard_normal((len(values),) * 2)
    U = np.linalg.qr(A)[0]
    return (U * np.asarray(values)) @ U.T


def low_rank(n, seed=0):
    """A Gram matrix with four large eigenvalues and a tail."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((2 * n, 4)) @ rng.standard_normal((4, n))
    X += 0.2 * rng.standard_normal(X.shape)
    return X.T @ X


def in_short(G, rank):
    return summarize_gram(Matrix(G), np.diag(G).copy(), rank, None, "float64")


def test_leading_pairs_match_the_dense_eigenpairs():
    G = low_rank(90)
    values, V = chebyshev_subspace_iteration(
        Matrix(G), np.random.default_rng(0).standard_normal((90, 14)), 4
    )
    assert_allclose(values[:4], np.linalg.eigvalsh(G)[::-1][:4], rtol=1e-8)
    assert_allclose(G @ V[:, :4], V[:, :4] * values[:4], atol=1e-4 * values[0])
    assert_allclose(V.T @ V, np.eye(14), atol=1e-12)


def test_warm_start_needs_fewer_products():
    G = low_rank(90)
    seen = []

    class CountingMatrix(Matrix):
        def __matmul__(self, V):
            seen.append(V.shape[1])
            return super().__matmul__(V)

    start = np.random.default_rng(0).standard_normal((90, 14))
    _, V = chebyshev_subspace_iteration(CountingMatrix(G), start, 4)
    cold = len(seen)
    seen.clear()
    chebyshev_subspace_iteration(CountingMatrix(G), V, 4)
    assert len(seen) < cold


def test_low_rank_matrix_has_an_empty_tail():
    X = np.random.default_rng(0).standard_normal((50, 3)) @ np.eye(3, 40)
    gram = in_short(X.T @ X, 5)
    assert_allclose(gram.values[:3], np.linalg.svd(X)[1][:3] ** 2, rtol=1e-10)
    assert gram.nuclear_norm() == pytest.approx(np.linalg.svd(X)[1][:3].sum(), rel=1e-5)


def test_matrix_of_zeros():
    gram = in_short(np.zeros((40, 40)), 5)
    assert gram.nuclear_norm() == 0.0
    weights = spectral_weights(gram, FloorWeights(3), 1)
    assert_allclose(weights.leading, 40.0)
    assert weights.tail == pytest.approx(40.0)
    assert relative_change(gram, gram) == pytest.approx(0.0, abs=1e-14)


@given(st.integers(0, 1000), st.floats(0.0, 3.0))
def test_sum_of_singular_values_is_near(seed, decay):
    values = 1.0 / np.arange(1.0, 151.0) ** decay
    gram = in_short(matrix(values**2, seed), 12)
    assert gram.nuclear_norm() == pytest.approx(values.sum(), rel=3e-2)
    assert gram.masses.sum() == pytest.approx(150 - 12)
    trace = gram.values[:12].sum() + gram.masses @ gram.nodes
    assert trace == pytest.approx((values**2).sum())


def test_density_is_exact_if_lanczos_is_complete():
    # Fewer distinct values than steps: quadrature is exact.
    values = np.repeat([9.0, 4.0, 1.0, 0.25], 20)
    G = matrix(values)
    assert len(np.unique(values)) < LANCZOS_STEPS
    U = np.linalg.eigh(G)[1][:, -20:]
    nodes, masses = tail_spectral_density(Matrix(G), U, float(values[20:].sum()))
    heavy = nodes[masses > 1e-6]
    scale = heavy.max() / 4.0  # scaled to the trace
    nearest = np.abs(heavy[:, None] / scale - [4.0, 1.0, 0.25]).min(axis=1)
    assert nearest.max() < 1e-6
    assert scale == pytest.approx(1.0, abs=0.05)


def test_is_deterministic():
    one, other = (in_short(low_rank(70), 8) for _ in range(2))
    for name in ("values", "vectors", "nodes", "masses"):
        assert_array_equal(getattr(one, name), getattr(other, name))


@pytest.mark.parametrize("n", [3, 20, 100])
def test_all_columns_are_used_if_there_are_few(n):
    assert subspace_size(64, n) == (n if n < 73 else 72)
    assert subspace_size(n, n) == n


def test_change_matches_the_dense_matrices():
    one, other = low_rank(40), low_rank(40) + low_rank(40, seed=5) / 10
    wanted = np.linalg.norm(one - other) / np.linalg.norm(one)
    assert relative_change(exact_gram(one), exact_gram(other)) == pytest.approx(wanted)
    # Also for a leading part plus a diagonal.
    short = [in_short(G, 6) for G in (one, other)]
    made = [
        g.points() @ g.points().T + np.diag(g.diagonal - (g.points() ** 2).sum(1))
        for g in short
    ]
    wanted = np.linalg.norm(made[0] - made[1]) / np.linalg.norm(made[0])
    assert relative_change(*short) == pytest.approx(wanted, rel=1e-6)
    zero = exact_gram(np.zeros((40, 40)))
    assert relative_change(zero, exact_gram(one)) == np.inf


@pytest.mark.parametrize("step", [1, 7, 30, 50])
@pytest.mark.parametrize("directions", [2, 6, 100])
@pytest.mark.parametrize("steep", [False, True])
def test_weights_of_all_directions_match_the_rule(step, directions, steep):
    G = matrix(np.arange(1.0, 41.0) ** -8) if steep else low_rank(40)
    gram, rule = exact_gram(G), FloorWeights(directions)
    found = spectral_weights(gram, rule, step)
    values = gram.values[::-1]
    assert_allclose(found.leading, rule(values, step)[::-1])
    assert found.is_stationary == bool(np.all(rule.is_stationary(values, step)))
    if steep and directions == 6:
        assert found.is_stationary == (step >= 30)


def test_tail_weight_is_that_of_its_mean_share():
    G = matrix(np.linspace(1.0, 3.0, 60) ** 2)
    gram, rule = in_short(G, 10), FloorWeights(4)
    found = spectral_weights(gram, rule, 30)
    lam = singular_value_shares(np.linalg.eigvalsh(G))
    floor = float(rule.floor(lam, 30)[0])
    assert 1.0 / found.tail == pytest.approx(
        np.maximum(lam[:50], floor).mean(), rel=2e-2
    )
    assert (found.leading <= found.tail).all()


@pytest.mark.parametrize("gamma", [None, 0.2])
@pytest.mark.parametrize("alpha", [0.0, 3.0, 300.0])
def test_kernel_inverts_the_quadratic_form(alpha, gamma):
    n, p = 40, 7
    rng = np.random.default_rng(0)
    U = np.linalg.qr(rng.standard_normal((n, n)))[0]
    weights = np.concatenate(
        [np.linspace(1.0, 50.0, p - 1), [130.0], [130.0] * (n - p)]
    )
    S = np.where(rng.random((n, n)) < 0.1, rng.random((n, n)), 0.0)
    S /= np.maximum(S.sum(axis=1, keepdims=True), 1.0)
    penalty = QuadraticPenalty(alpha, 1e-6, gamma)
    wanted = column_kernel(
        Spectrum(np.arange(n), U), weights, core_graph.laplacian(S.copy()), penalty,
        needs_precision=False,
    )  # fmt: skip
    found = wide_kernel(
        U[:, :p], weights[:p], 130.0, ColumnGraph.from_similarity(csr_array(S)), penalty
    )
    assert_allclose(found.T.toarray() + found.F @ found.F.T, wanted.K, atol=1e-12)
    assert found.F.shape[1] == p - 1  # one has the weight of the tail
    assert found.s == wanted.s


@pytest.mark.parametrize("k", [1, 2, 9, 39])
def test_graph_matches_the_core(threads, k):
    G = low_rank(40)
    found = wide_similarity(exact_gram(G), k, threads)
    wanted = core_graph.similarity(core_graph.squared_distances(G), k)
    assert_allclose(found.toarray(), wanted, atol=1e-10)


def test_graph_of_many_columns_uses_single_precision(threads, monkeypatch):
    monkeypatch.setattr("ncarl.wide.spectrum.FLOAT32_MIN_COLUMNS", 10)
    monkeypatch.setattr("ncarl.wide.spectrum.COLUMNS_PER_STRIP", 16)
    G = low_rank(60)
    G += 1e10  # a common part that exceeds single precision
    found = wide_similarity(exact_gram(G), 5, threads)
    wanted = core_graph.similarity(core_graph.squared_distances(G), 5)
    assert_allclose(found.toarray(), wanted, atol=1e-4)


def test_equal_columns_get_equal_weights(threads):
    gram = exact_gram(np.ones((6, 6)))
    found = wide_similarity(gram, 3, threads)
    assert_allclose(found.sum(axis=1), 1.0)
    assert_array_equal(np.diff(found.indptr), 4)
    assert found.diagonal().min() > 0.0
