"""Tests of the row step with a wide kernel against the equal dense kernel."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.sparse import csr_array

from ncarl.core import rows as core_rows
from ncarl.core.rows import Kernel
from ncarl.core.types import Block
from ncarl.exceptions import NotPositiveDefiniteError
from ncarl.wide import rows
from ncarl.wide.rows import (
    GramOperator,
    WideKernel,
    apply_dual_gram,
    rows_from_duals,
)


def dense(kernel):
    return Kernel(kernel.T.toarray() + kernel.F @ kernel.F.T, None, kernel.s)


def row_duals(block, kernel, backend, *, iterate):
    """The duals with the same method for all rows, whatever their lengths."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            rows, "use_conjugate_gradients", lambda r, p: np.full(len(r), iterate)
        )
        return rows.row_duals(block, kernel=kernel, backend=backend)


@pytest.mark.parametrize("iterate", [False, True])
@pytest.mark.parametrize("s", [0.0, 1.0])
def test_duals_match_the_dense_kernel(blocks, kernel, backend, s, iterate):
    wide = replace(kernel, s=s)
    for block in blocks:
        Y, jitter = row_duals(block, wide, backend, iterate=iterate)
        wanted, _ = core_rows.row_duals(block, kernel=dense(wide), backend="numpy")
        assert_allclose(Y, wanted, rtol=0, atol=1e-10 * np.abs(wanted).max())
        assert jitter == 0.0


@pytest.mark.parametrize("iterate", [False, True])
def test_rows_with_equal_masks_and_empty_rows(kernel, backend, iterate):
    o = np.array([1, 7, 20], dtype=np.int32)
    values = np.random.default_rng(0).standard_normal(9)
    indptr = np.array([0, 0, 3, 6, 9])
    groups = np.array([0, 1, 4])
    block = Block(indptr, np.tile(o, 3), values, groups, np.arange(4), 45)
    Y, _ = row_duals(block, kernel, backend, iterate=iterate)
    A = dense(kernel).K[np.ix_(o, o)]
    assert_allclose(Y, np.linalg.solve(A, values.reshape(3, 3).T).T.ravel())


def test_direct_solution_if_the_iteration_does_not_converge(blocks, kernel, backend):
    # This preconditioner fails since T is far from diagonal.
    rng = np.random.default_rng(0)
    A = rng.standard_normal((45, 45))
    T = A @ A.T + 1e-7 * np.eye(45)
    hard = WideKernel(kernel.F, csr_array(T), 0.0)
    Y, _ = row_duals(blocks[0], hard, backend, iterate=True)
    wanted, _ = core_rows.row_duals(blocks[0], kernel=dense(hard), backend="numpy")
    assert_allclose(Y, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


def test_preconditioner_makes_an_ill_conditioned_row_converge(backend, monkeypatch):
    # Scales from 1 to 1e6: not converged after 200 iterations otherwise.
    rng = np.random.default_rng(0)
    n, p = 300, 60
    F = rng.standard_normal((n, p)) * np.logspace(0, 3, p)
    diagonal = np.logspace(0, 4, n)[rng.permutation(n)]
    hard = WideKernel(F, csr_array(np.diag(diagonal)), 0.0)
    v = rng.standard_normal(n)
    places = np.arange(n, dtype=np.int32)
    block = Block(np.array([0, n]), places, v, np.array([0, 1]), np.zeros(1, int), n)

    def refuse(*args):
        raise AssertionError("solved directly")

    monkeypatch.setattr(rows, "cholesky_with_jitter", refuse)
    if backend == "numba":
        compiled = pytest.importorskip("ncarl.wide.rows_numba")
        monkeypatch.setattr(compiled, "jitter_steps", lambda dtype: np.zeros(0))
    Y, _ = row_duals(block, hard, backend, iterate=True)
    assert_allclose(dense(hard).K @ Y, v, atol=1e-7)


def test_single_precision(blocks, kernel, backend):
    block = replace(blocks[0], values=blocks[0].values.astype(np.float32))
    small = kernel.map_arrays(lambda a: a.astype(np.float32))
    small = replace(small, s=1.0)
    wanted, _ = core_rows.row_duals(
        blocks[0], kernel=dense(replace(kernel, s=1.0)), backend="numpy"
    )
    for iterate in (False, True):
        Y, _ = row_duals(block, small, backend, iterate=iterate)
        assert Y.dtype == np.float32
        assert_allclose(Y, wanted, rtol=0, atol=1e-4 * np.abs(wanted).max())


def test_indefinite_kernel_raises(blocks, kernel, backend):
    wrong = WideKernel(0.0 * kernel.F, csr_array(-kernel.T), 0.0)
    with pytest.raises(NotPositiveDefiniteError):
        row_duals(blocks[0], wrong, backend, iterate=False)


def test_only_long_rows_use_the_iteration():
    r = np.array([1, 20, 50, 100, 300, 1000, 10_000])
    paid = rows.use_conjugate_gradients(r, 64)
    assert not paid[:3].any() and paid[-2:].all()
    assert (np.diff(paid.astype(int)) >= 0).all()


def test_parts_and_diagonal_of_a_kernel(kernel):
    K = dense(kernel).K
    i, j = np.array([3, 7, 7]), np.array([0, 44])
    assert_allclose(kernel.submatrix(i, j), K[np.ix_(i, j)])
    assert_allclose(kernel.diagonal(), np.diag(K))
    V = np.random.default_rng(0).standard_normal((45, 3))
    assert_allclose(kernel @ V, K @ V)


def test_dropped_columns_are_independent(kernel):
    kept = np.delete(np.arange(48), [0, 20, 47])
    K = dense(kernel.embed_columns(kept, 48, 2.5)).K
    wanted = 2.5 * np.eye(48)
    wanted[np.ix_(kept, kept)] = dense(kernel).K
    assert_allclose(K, wanted)


@pytest.fixture
def operator(blocks, kernel, threads):
    rng = np.random.default_rng(0)
    duals = [
        replace(block, values=rng.standard_normal(len(block.values)))
        for block in blocks
    ]
    return GramOperator(threads, duals, kernel)


@pytest.fixture
def gram(operator, kernel):
    """``G`` by the direct formula, row by row."""
    G, K = np.zeros((45, 45)), dense(kernel).K
    for block in operator.duals:
        for i in range(block.n_rows):
            part = slice(block.indptr[i], block.indptr[i + 1])
            x = block.values[part] @ K[block.indices[part]]
            G += np.outer(x, x)
    return G


def test_products_with_the_gram_matrix(operator, gram):
    V = np.random.default_rng(1).standard_normal((45, 4))
    assert_allclose(operator @ V, gram @ V, rtol=1e-10, atol=1e-9)
    assert_allclose(operator.to_dense(), gram, rtol=1e-10, atol=1e-9)
    assert_allclose(operator.diagonal(), np.diag(gram), rtol=1e-10)


def test_diagonal_without_factors(blocks, threads):
    identity = WideKernel.identity(45, "float64")
    operator = GramOperator(threads, blocks, identity)
    assert_allclose(operator.diagonal(), np.diag(operator.to_dense()))


def test_both_kinds_of_product_agree(blocks):
    pytest.importorskip("numba")
    V = np.random.default_rng(1).standard_normal((45, 4))
    one, other = (
        apply_dual_gram(blocks[0], V=V, backend=k) for k in ("numpy", "numba")
    )
    assert_allclose(one, other, atol=1e-12)


def test_completed_rows_and_variances(blocks, kernel, backend):
    block, wide = blocks[0], replace(kernel, s=0.7)
    wanted, Y, _ = core_rows.complete_rows(block, kernel=dense(wide), backend="numpy")
    X, no_variances = wide.complete(block, variances=False, backend=backend)
    assert no_variances is None
    assert_allclose(X, wanted, atol=1e-10)
    assert_allclose(rows_from_duals(replace(block, values=Y), wide), wanted, atol=1e-10)
    again, variances = wide.complete(block, variances=True, backend=backend)
    assert_allclose(again, X)
    known = dense(wide).complete(block, variances=True, backend="numpy")[1]
    assert_allclose(variances, known, atol=1e-10)
