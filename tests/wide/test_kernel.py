"""Tests of the sparse inverse of the graph term against dense inverses."""

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.testing import assert_allclose
from scipy.sparse import csr_array

from ncarl.core.graph import laplacian
from ncarl.wide.kernel import (
    ColumnGraph,
    dense_inverse,
    find_hubs,
    graph_inverse,
    inverse_with_hubs,
    neumann_inverse,
)


def similarity(n, k, seed, hub=None):
    """A random k-sparse similarity; a hub is a neighbor of every column."""
    rng = np.random.default_rng(seed)
    S = np.zeros((n, n))
    for i in range(n):
        near = rng.choice(n, k, replace=False)
        S[i, near] = rng.random(k)
        if hub is not None:
            S[i, hub] = 0.5
    return S / S.sum(axis=1, keepdims=True)


def quadratic(base, alpha, S):
    return base * np.eye(len(S)) + alpha * laplacian(S.copy())


def test_graph_matches_the_dense_laplacian():
    S = similarity(30, 4, 0)
    V = np.random.default_rng(1).standard_normal((30, 3))
    assert_allclose(
        ColumnGraph.from_similarity(csr_array(S)).apply_laplacian(V),
        laplacian(S.copy()) @ V,
        atol=1e-13,
    )


@given(
    st.integers(0, 10_000), st.floats(0.01, 5.0), st.sampled_from([1e-3, 1e-6, 1e-9])
)
def test_truncated_inverse_is_as_near_as_it_says(seed, weight, tolerance):
    graph = ColumnGraph.from_similarity(csr_array(similarity(40, 4, seed)))
    base, alpha = 7.0, 7.0 * weight
    found = neumann_inverse(
        base + alpha * graph.degrees, csr_array(alpha * graph.edges), tolerance
    )
    if found is None:
        return
    T, lacking = found
    gap = np.linalg.inv(quadratic(base, alpha, similarity(40, 4, seed))) - T.toarray()
    assert np.linalg.norm(gap, 2) <= lacking * (1 + 1e-6) + 1e-15
    assert lacking <= 10 * tolerance / base
    assert (T != T.T).nnz == 0
    assert np.linalg.eigvalsh(T.toarray()).min() > 0.0


def test_feasible_tolerance_is_met():
    graph = ColumnGraph.from_similarity(csr_array(similarity(40, 4, 0)))
    found = neumann_inverse(1e3 + graph.degrees, graph.edges, 1e-5)
    assert found is not None
    assert 0.0 < found[1] <= 1e-4 / 1e3
    # It is truncated: the exact inverse is dense.
    assert found[0].nnz < 40 * 40


@pytest.mark.parametrize("hubs", [[], [3], [3, 17]])
def test_hubs_are_eliminated_exactly(hubs):
    S = similarity(50, 4, 2, hub=hubs or None)
    graph = ColumnGraph.from_similarity(csr_array(S))
    found = inverse_with_hubs(20.0, 30.0, graph, np.array(hubs, dtype=int), 1e-9)
    assert found is not None
    assert found.E.shape == (50, len(hubs))
    assert np.diff(found.T.indptr)[hubs].sum() == 0
    wanted = np.linalg.inv(quadratic(20.0, 30.0, S))
    whole = found.T.toarray() + found.E @ found.E.T
    assert_allclose(whole, wanted, atol=20 * found.error / 20.0 + 1e-14)
    assert found.error < 1e-8
    V = np.random.default_rng(0).standard_normal((50, 2))
    assert_allclose(found @ V, whole @ V, atol=1e-14)


def test_hubs_are_the_columns_with_most_edges(monkeypatch):
    monkeypatch.setattr("ncarl.wide.kernel.HUB_MIN_EDGES", 30)
    graph = ColumnGraph.from_similarity(csr_array(similarity(60, 3, 0, hub=[5, 40])))
    assert find_hubs(graph).tolist() == [5, 40]
    monkeypatch.setattr("ncarl.wide.kernel.MAX_HUBS", 1)
    assert len(find_hubs(graph)) == 1


@pytest.mark.parametrize("alpha", [0.0, 1.0, 1000.0])
def test_few_columns_use_the_exact_inverse(alpha):
    S = similarity(30, 4, 5)
    found = graph_inverse(9.0, alpha, ColumnGraph.from_similarity(csr_array(S)), 30)
    assert_allclose(found.T.toarray(), np.linalg.inv(quadratic(9.0, alpha, S)))
    assert found.error == 0.0


def test_many_columns_use_the_most_precise_sparse_inverse(monkeypatch):
    monkeypatch.setattr("ncarl.wide.kernel.DENSE_MAX_COLUMNS", 10)
    S = similarity(60, 4, 5)
    graph = ColumnGraph.from_similarity(csr_array(S))
    found = graph_inverse(200.0, 10.0, graph, 60)
    assert 0.0 < found.error < 1e-6
    assert_allclose(found.T.toarray(), dense_inverse(200.0, 10.0, graph).T.toarray(),
                    atol=1e-6 / 200.0)  # fmt: skip


def test_too_large_graph_weight_raises(monkeypatch):
    monkeypatch.setattr("ncarl.wide.kernel.DENSE_MAX_COLUMNS", 10)
    monkeypatch.setattr("ncarl.wide.kernel.MAX_ENTRIES_PER_COLUMN", 3)
    graph = ColumnGraph.from_similarity(csr_array(similarity(60, 4, 5)))
    whole = graph_inverse(1.0, 1e4, graph, 60)  # still allowed for few columns
    assert whole.error == 0.0
    monkeypatch.setattr("ncarl.wide.kernel.DENSE_FALLBACK_MAX_COLUMNS", 10)
    with pytest.raises(ValueError, match="alpha=10000 is too large"):
        graph_inverse(1.0, 1e4, graph, 60)


def test_result_does_not_depend_on_the_chunk_size(monkeypatch):
    graph = ColumnGraph.from_similarity(csr_array(similarity(40, 4, 0)))
    parts = 10.0 + graph.degrees, csr_array(1.0 * graph.edges), 1e-6
    whole = neumann_inverse(*parts)
    monkeypatch.setattr("ncarl.wide.kernel.WORK_PER_CHUNK", 50)
    small = neumann_inverse(*parts)
    assert_allclose(small[0].toarray(), whole[0].toarray(), rtol=0, atol=0)
    monkeypatch.setattr("ncarl.wide.kernel.MAX_WORK", 10)
    assert neumann_inverse(*parts) is None
