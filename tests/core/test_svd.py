"""Tests of all singular value routines against LAPACK and each other."""

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


def make_matrix(rng, m, n, s):
    """A random matrix with given singular values."""
    k = len(s)
    U = np.linalg.qr(rng.standard_normal((m, k)))[0]
    V = np.linalg.qr(rng.standard_normal((n, k)))[0]
    return (U * np.asarray(s)) @ V.T


def refuse(*args, **kwargs):
    raise AssertionError("another route was expected")


def assert_triplets(found, W, cut, tol=1e-10):
    """Check values, vectors and product of the triplets of W above the cut."""
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
    """Function that converts to NumPy arrays or CPU tensors."""
    if request.param == "numpy":
        return np.asarray
    torch = pytest.importorskip("torch")
    return torch.tensor


@pytest.mark.parametrize("shape", [(12, 7), (7, 12), (1, 5), (1, 1)])
def test_full_svd_reconstructs_the_matrix(rng, send, shape):
    W = rng.standard_normal(shape)
    assert_triplets(full_svd(send(W)), W, -1.0)


def test_full_svd_reconstructs_a_rank_deficient_matrix(rng, send):
    W = make_matrix(rng, 12, 8, [3.0, 1.0, 1e-5])
    found = full_svd(send(W))
    assert_allclose(found.s[:4], [3.0, 1.0, 1e-5, 0.0], atol=1e-12)
    assert (found.s >= 0.0).all()
    assert_allclose(np.asarray(found.reconstruct(found.s)), W, atol=1e-12)


def test_svd_of_tensors_is_more_accurate_than_gram_matrix(rng):
    torch = pytest.importorskip("torch")
    W = make_matrix(rng, 12, 8, [1.0, 1e-6, 1e-10])
    found = full_svd(torch.tensor(W))
    assert_allclose(found.s[1:3], [1e-6, 1e-10], atol=1e-15)


def test_fallback_if_divide_and_conquer_fails(rng, monkeypatch):
    def fail(*args, **kwargs):
        raise np.linalg.LinAlgError

    W = rng.standard_normal((6, 4))
    expected = np.linalg.svd(W, compute_uv=False)
    monkeypatch.setattr(np.linalg, "svd", fail)
    found = full_svd(W)
    assert_allclose(found.s, expected, rtol=1e-12)
    assert_allclose(found.reconstruct(found.s), W, atol=1e-12)


def test_product_replaces_the_first_values(rng, send):
    W = rng.standard_normal((6, 4))
    U, _, Vt = np.linalg.svd(W, full_matrices=False)
    found = full_svd(send(W))
    expected = U[:, :2] @ np.diag([5.0, 2.0]) @ Vt[:2]
    assert_allclose(found.reconstruct(np.array([5.0, 2.0])), expected, atol=1e-12)
    assert_array_equal(np.asarray(found.reconstruct(np.empty(0))), np.zeros((6, 4)))


class TestLeading:
    @pytest.mark.parametrize("shape", [(30, 20), (20, 30)])
    def test_gram_route_matches_lapack(self, rng, send, shape, monkeypatch):
        s = np.array([10.0, 9.999, 3.0, 0.5, 0.1, 0.011, 0.009])
        W = make_matrix(rng, *shape, s)
        monkeypatch.setattr(svd, "full_svd", refuse)
        found = svd_above(send(W), 0.02)
        assert len(found.s) == 5
        assert_triplets(found, W, 0.02, tol=1e-12)

    def test_small_cut_uses_lapack(self, rng, send, monkeypatch):
        W = make_matrix(rng, 15, 12, [1.0, 1e-4, 1e-9])
        monkeypatch.setattr(svd, "_svd_from_gram", refuse)
        found = svd_above(send(W), 1e-10)
        assert_allclose(found.s, [1.0, 1e-4, 1e-9], atol=1e-14)

    @pytest.mark.parametrize("cut", [1e-8, 2.0])
    def test_values_at_the_cut_are_excluded(self, send, cut):
        found = svd_above(send(np.diag([3.0 * cut, cut, cut / 2.0])), cut)
        assert_allclose(found.s, [3.0 * cut])

    @pytest.mark.parametrize("cut", [0.0, 5.0])
    def test_no_values_above_the_cut_give_an_empty_result(self, send, cut):
        found = svd_above(send(np.zeros((4, 3))), cut)
        assert len(found.s) == 0
        assert_array_equal(np.asarray(found.reconstruct(found.s)), np.zeros((4, 3)))

    @given(seed=st.integers(0, 10**6), cut=st.floats(0.0, 6.0))
    def test_it_is_the_best_matrix_with_values_above_the_cut(self, seed, cut):
        W = np.random.default_rng(seed).standard_normal((8, 6))
        assert_triplets(svd_above(W, cut), W, cut)


class TestLanczos:
    """Lanczos for matrices with more than 20 rows and columns."""

    @pytest.fixture(autouse=True)
    def few_is_twenty(self, monkeypatch):
        monkeypatch.setattr(svd, "LANCZOS_MIN_SIZE", 20)

    @pytest.fixture
    def counts(self, monkeypatch):
        """List that records the number of triplets of each Lanczos call."""
        requested, real = [], svd.svds

        def spy(*args, k, **kwargs):
            requested.append(k)
            return real(*args, k=k, **kwargs)

        monkeypatch.setattr(svd, "svds", spy)
        return requested

    @pytest.mark.parametrize("shape", [(80, 60), (60, 80)])
    def test_finds_the_expected_number(self, rng, counts, shape):
        s = np.concatenate([[9.0, 7.0, 5.0], np.linspace(1.0, 0.1, 40)])
        W = make_matrix(rng, *shape, s)
        assert_triplets(svd_above(W, 2.0, 3), W, 2.0)
        assert counts == [8]

    @pytest.mark.parametrize(("n", "cut", "rank"), [(70, 7.7, 10), (60, 2.0, 52)])
    def test_number_above_expectation_uses_lanczos_or_lapack(
        self, rng, counts, n, cut, rank
    ):
        W = make_matrix(rng, 80, n, np.linspace(9.0, 1.0, 60))
        found = svd_above(W, cut, 1)
        assert len(found.s) == rank
        assert_triplets(found, W, cut)
        assert counts == [6, 12]

    def test_many_triplets_or_a_small_matrix_skip_lanczos(
        self, rng, counts, monkeypatch
    ):
        W = make_matrix(rng, 80, 60, np.linspace(9.0, 1.0, 60))
        assert_triplets(svd_above(W, 2.0, 30), W, 2.0)
        assert_triplets(svd_above(W, 2.0), W, 2.0)
        monkeypatch.setattr(svd, "LANCZOS_MIN_SIZE", 60)
        assert_triplets(svd_above(W, 8.0, 3), W, 8.0)
        assert counts == []

    def test_is_deterministic(self, rng):
        W = rng.standard_normal((80, 60))
        one, other = svd_above(W, 12.0, 3), svd_above(W, 12.0, 3)
        for a, b in zip(one, other, strict=True):
            assert_array_equal(a, b)


class TestThin:
    def test_matches_triplets_of_a_tall_matrix(self, rng, send):
        F = rng.standard_normal((40, 5))
        assert_triplets(svd_tall(send(F)), F, 0.0)

    def test_values_too_small_for_a_gram_matrix_are_dropped(self, rng, send):
        F = make_matrix(rng, 40, 5, [1.0, 0.1, 1e-8])
        found = svd_tall(send(F))
        assert_allclose(found.s, [1.0, 0.1], rtol=1e-10)
        assert_allclose(np.asarray(found.reconstruct(found.s)), F, atol=2e-8)

    def test_zero_matrix(self, send):
        found = svd_tall(send(np.zeros((4, 2))))
        assert_array_equal(np.asarray(found.reconstruct(found.s)), np.zeros((4, 2)))


class TestNorms:
    @pytest.mark.parametrize("shape", [(9, 6), (6, 9), (1, 4), (2, 2)])
    def test_norms_are_sums_and_maxima_of_singular_values(self, rng, send, shape):
        W = rng.standard_normal(shape)
        s = np.linalg.svd(W, compute_uv=False)
        assert nuclear_norm(send(W)) == pytest.approx(s.sum())
        assert spectral_norm(send(W)) == pytest.approx(s[0])
        assert frobenius_norm(send(W)) == pytest.approx(np.sqrt((s**2).sum()))
        assert frobenius_norm(send(W[0])) == pytest.approx(np.linalg.norm(W[0]))

    @pytest.mark.parametrize("shape", [(30, 20), (20, 30), (2, 9), (9, 1), (1, 1)])
    def test_spectral_norm_of_a_sparse_matrix(self, rng, shape):
        W = rng.standard_normal(shape) * (rng.random(shape) < 0.5)
        largest = np.linalg.norm(W, 2)
        assert spectral_norm(csr_array(W)) == pytest.approx(largest)

    def test_norm_of_zero_matrix_is_zero(self):
        assert spectral_norm(csr_array((5, 4))) == 0.0
        assert spectral_norm(csr_array(np.zeros((5, 4)))) == 0.0
        assert spectral_norm(np.zeros((5, 0))) == 0.0


def test_lanczos_finds_values_orthogonal_to_a_vector_of_ones():
    W = np.zeros((40, 30))
    W[0, :2] = 1.0, -1.0
    assert_allclose(svd._lanczos_svd(W, 0.5, 4).s[0], np.sqrt(2.0))


def test_full_svd_is_used_if_lanczos_does_not_converge(monkeypatch, rng):
    def fail(*_, **__):
        raise ArpackError(-9)

    W = rng.standard_normal((30, 25))
    expected = np.linalg.svd(W, compute_uv=False)
    monkeypatch.setattr(svd, "LANCZOS_MIN_SIZE", 5)
    monkeypatch.setattr(svd, "svds", fail)
    found = svd.svd_above(W, expected[3] - 1e-9, expected_rank=0)
    assert_allclose(found.s, expected[:4])
