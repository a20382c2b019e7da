"""Singular triplets by all routes, against LAPACK and against each other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array
from scipy.sparse.linalg import ArpackError

from ncarl.core import svd
from ncarl.core.svd import (
    frobenius_norm,
    full_svd,
    nuclear_norm,
    spectral_norm,
    svd_above,
    svd_tall,
)

pytestmark = pytest.mark.usefixtures("one_blas_thread")


def with_values(rng, m, n, s):
    """A matrix with given singular values."""
    k = len(s)
    U = np.linalg.qr(rng.standard_normal((m, k)))[0]
    V = np.linalg.qr(rng.standard_normal((n, k)))[0]
    return (U * np.asarray(s)) @ V.T


def refuse(*args, **kwargs):
    raise AssertionError("another route was expected")


def assert_triplets(found, W, cut, tol=1e-10):
    """The triplets are those of W above the cut: values, vectors and product."""
    U, s, Vt = np.linalg.svd(np.asarray(W), full_matrices=False)
    r = int((s > cut).sum())
    left, right = np.asarray(found.U), np.asarray(found.Vt)
    assert isinstance(found.s, np.ndarray)
    assert_allclose(found.s, s[:r], atol=tol * s[0])
    assert left.shape == (W.shape[0], r)
    assert right.shape == (r, W.shape[1])
    best = (U[:, :r] * s[:r]) @ Vt[:r]
    assert_allclose(np.asarray(found.reconstruct(found.s)), best, atol=tol * s[0])
    assert_allclose(left.T @ left, np.eye(r), atol=1e-7)
    assert_allclose(right @ right.T, np.eye(r), atol=1e-7)


@pytest.fixture(params=["numpy", "torch"])
def send(request):
    """To the memory of this process, or to tensors on the processor."""
    if request.param == "numpy":
        return np.asarray
    torch = pytest.importorskip("torch")
    return torch.tensor


@pytest.mark.parametrize("shape", [(12, 7), (7, 12), (1, 5), (1, 1)])
def test_all_triplets_restore_the_matrix(rng, send, shape):
    W = rng.standard_normal(shape)
    assert_triplets(full_svd(send(W)), W, -1.0)


def test_all_triplets_of_a_matrix_without_full_rank_restore_it(rng, send):
    W = with_values(rng, 12, 8, [3.0, 1.0, 1e-5])
    found = full_svd(send(W))
    assert_allclose(found.s[:4], [3.0, 1.0, 1e-5, 0.0], atol=1e-12)
    assert (found.s >= 0.0).all()
    assert_allclose(np.asarray(found.reconstruct(found.s)), W, atol=1e-12)


def test_tensors_keep_digits_that_a_gram_matrix_loses(rng):
    torch = pytest.importorskip("torch")
    W = with_values(rng, 12, 8, [1.0, 1e-6, 1e-10])
    found = full_svd(torch.tensor(W))
    assert_allclose(found.s[1:3], [1e-6, 1e-10], atol=1e-15)


def test_where_divide_and_conquer_gives_up_another_routine_goes_on(rng, monkeypatch):
    def gives_up(*args, **kwargs):
        raise np.linalg.LinAlgError

    W = rng.standard_normal((6, 4))
    expected = np.linalg.svd(W, compute_uv=False)
    monkeypatch.setattr(np.linalg, "svd", gives_up)
    found = full_svd(W)
    assert_allclose(found.s, expected, rtol=1e-12)
    assert_allclose(found.reconstruct(found.s), W, atol=1e-12)


def test_a_product_takes_other_values_for_the_first_triplets(rng, send):
    W = rng.standard_normal((6, 4))
    U, _, Vt = np.linalg.svd(W, full_matrices=False)
    found = full_svd(send(W))
    expected = U[:, :2] @ np.diag([5.0, 2.0]) @ Vt[:2]
    assert_allclose(found.reconstruct(np.array([5.0, 2.0])), expected, atol=1e-12)
    assert_array_equal(np.asarray(found.reconstruct(np.empty(0))), np.zeros((6, 4)))


class TestLeading:
    @pytest.mark.parametrize("shape", [(30, 20), (20, 30)])
    def test_the_gram_route_agrees_with_lapack(self, rng, send, shape, monkeypatch):
        s = np.array([10.0, 9.999, 3.0, 0.5, 0.1, 0.011, 0.009])
        W = with_values(rng, *shape, s)
        monkeypatch.setattr(svd, "full_svd", refuse)
        found = svd_above(send(W), 0.02)
        assert len(found.s) == 5
        assert_triplets(found, W, 0.02, tol=1e-12)

    def test_a_small_cut_is_left_to_lapack(self, rng, send, monkeypatch):
        W = with_values(rng, 15, 12, [1.0, 1e-4, 1e-9])
        monkeypatch.setattr(svd, "_svd_from_gram", refuse)
        found = svd_above(send(W), 1e-10)
        assert_allclose(found.s, [1.0, 1e-4, 1e-9], atol=1e-14)

    @pytest.mark.parametrize("cut", [1e-8, 2.0])
    def test_values_at_the_cut_are_not_wanted(self, send, cut):
        found = svd_above(send(np.diag([3.0 * cut, cut, cut / 2.0])), cut)
        assert_allclose(found.s, [3.0 * cut])

    @pytest.mark.parametrize("cut", [0.0, 5.0])
    def test_nothing_above_the_cut_gives_nothing(self, send, cut):
        found = svd_above(send(np.zeros((4, 3))), cut)
        assert len(found.s) == 0
        assert_array_equal(np.asarray(found.reconstruct(found.s)), np.zeros((4, 3)))

    @given(seed=st.integers(0, 10**6), cut=st.floats(0.0, 6.0))
    def test_it_is_the_best_matrix_with_values_above_the_cut(self, seed, cut):
        W = np.random.default_rng(seed).standard_normal((8, 6))
        assert_triplets(svd_above(W, cut), W, cut)


class TestSomeOfMany:
    """Lanczos, as on large matrices: here those with more than 20 rows and columns."""

    @pytest.fixture(autouse=True)
    def few_is_twenty(self, monkeypatch):
        monkeypatch.setattr(svd, "LANCZOS_MIN_SIZE", 20)

    @pytest.fixture
    def counts(self, monkeypatch):
        """Numbers of triplets that Lanczos was called for."""
        requested, real = [], svd.svds

        def spy(*args, k, **kwargs):
            requested.append(k)
            return real(*args, k=k, **kwargs)

        monkeypatch.setattr(svd, "svds", spy)
        return requested

    @pytest.mark.parametrize("shape", [(80, 60), (60, 80)])
    def test_as_many_as_expected(self, rng, counts, shape):
        s = np.concatenate([[9.0, 7.0, 5.0], np.linspace(1.0, 0.1, 40)])
        W = with_values(rng, *shape, s)
        assert_triplets(svd_above(W, 2.0, 3), W, 2.0)
        assert counts == [8]

    @pytest.mark.parametrize(("n", "cut", "rank"), [(70, 7.7, 10), (60, 2.0, 52)])
    def test_more_than_expected_are_found_by_lanczos_and_very_many_by_lapack(
        self, rng, counts, n, cut, rank
    ):
        W = with_values(rng, 80, n, np.linspace(9.0, 1.0, 60))
        found = svd_above(W, cut, 1)
        assert len(found.s) == rank
        assert_triplets(found, W, cut)
        assert counts == [6, 12]

    def test_many_or_a_small_matrix_ask_lanczos_for_nothing(
        self, rng, counts, monkeypatch
    ):
        W = with_values(rng, 80, 60, np.linspace(9.0, 1.0, 60))
        assert_triplets(svd_above(W, 2.0, 30), W, 2.0)
        assert_triplets(svd_above(W, 2.0), W, 2.0)
        monkeypatch.setattr(svd, "LANCZOS_MIN_SIZE", 60)
        assert_triplets(svd_above(W, 8.0, 3), W, 8.0)
        assert counts == []

    def test_the_same_matrix_gives_the_same_bits(self, rng):
        W = rng.standard_normal((80, 60))
        one, other = svd_above(W, 12.0, 3), svd_above(W, 12.0, 3)
        for a, b in zip(one, other, strict=True):
            assert_array_equal(a, b)


class TestThin:
    def test_it_has_the_triplets_of_a_tall_matrix(self, rng, send):
        F = rng.standard_normal((40, 5))
        assert_triplets(svd_tall(send(F)), F, 0.0)

    def test_values_too_small_for_a_gram_matrix_are_left_out(self, rng, send):
        F = with_values(rng, 40, 5, [1.0, 0.1, 1e-8])
        found = svd_tall(send(F))
        assert_allclose(found.s, [1.0, 0.1], rtol=1e-10)
        assert_allclose(np.asarray(found.reconstruct(found.s)), F, atol=2e-8)

    def test_zeros_are_no_trouble(self, send):
        found = svd_tall(send(np.zeros((4, 2))))
        assert_array_equal(np.asarray(found.reconstruct(found.s)), np.zeros((4, 2)))


class TestNorms:
    @pytest.mark.parametrize("shape", [(9, 6), (6, 9), (1, 4), (2, 2)])
    def test_they_are_sums_and_maxima_of_singular_values(self, rng, send, shape):
        W = rng.standard_normal(shape)
        s = np.linalg.svd(W, compute_uv=False)
        assert nuclear_norm(send(W)) == pytest.approx(s.sum())
        assert spectral_norm(send(W)) == pytest.approx(s[0])
        assert frobenius_norm(send(W)) == pytest.approx(np.sqrt((s**2).sum()))
        assert frobenius_norm(send(W[0])) == pytest.approx(np.linalg.norm(W[0]))

    @pytest.mark.parametrize("shape", [(30, 20), (20, 30), (2, 9), (9, 1), (1, 1)])
    def test_the_largest_value_of_a_sparse_matrix(self, rng, shape):
        W = rng.standard_normal(shape) * (rng.random(shape) < 0.5)
        largest = np.linalg.norm(W, 2)
        assert spectral_norm(csr_array(W)) == pytest.approx(largest)

    def test_nothing_has_norm_zero(self):
        assert spectral_norm(csr_array((5, 4))) == 0.0
        assert spectral_norm(csr_array(np.zeros((5, 4)))) == 0.0
        assert spectral_norm(np.zeros((5, 0))) == 0.0


def test_lanczos_finds_what_a_vector_of_ones_does_not_see():
    W = np.zeros((40, 30))
    W[0, :2] = 1.0, -1.0
    assert_allclose(svd._lanczos_svd(W, 0.5, 4).s[0], np.sqrt(2.0))


def test_where_lanczos_does_not_converge_all_triplets_are_taken(monkeypatch, rng):
    def fails(*_, **__):
        raise ArpackError(-9)

    W = rng.standard_normal((30, 25))
    expected = np.linalg.svd(W, compute_uv=False)
    monkeypatch.setattr(svd, "LANCZOS_MIN_SIZE", 5)
    monkeypatch.setattr(svd, "svds", fails)
    found = svd.svd_above(W, expected[3] - 1e-9, expected_rank=0)
    assert_allclose(found.s, expected[:4])
