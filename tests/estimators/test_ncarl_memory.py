"""Tests that training never forms the dense matrix."""

import tracemalloc

import numpy as np
import pytest

from ncarl import NCARL, from_triplets


@pytest.fixture(scope="module", name="tall")
def tall_sparse_matrix():
    rng = np.random.default_rng(0)
    m, n = 100_000, 50
    chosen = np.unique(rng.integers(0, m * n, 5 * m))
    rows, cols = np.divmod(chosen, n)
    return from_triplets(rows, cols, rng.random(len(rows)) + 1.0, shape=(m, n))


@pytest.mark.parametrize(
    "options",
    [{}, {"gamma": 0.1, "center": "columns"}, {"weights": "pinv"}],
    ids=["floor", "noisy", "pinv"],
)
def test_fit_of_sparse_input_needs_less_than_one_dense_matrix(tall, options):
    NCARL(max_iter=1, tol=0).fit(tall[:50])  # exclude imports and compilation
    dense = tall.shape[0] * tall.shape[1] * 8
    tracemalloc.start()
    try:
        fitted = NCARL(max_iter=2, tol=0, **options).fit(tall)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < dense
    # Lower bound: the entries alone, as measured for NumPy arrays.
    assert peak > tall.nnz * 12
    assert len(fitted.predict([0, 99_999], [0, 49])) == 2
