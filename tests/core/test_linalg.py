"""Tests that n x n functions agree between array libraries and devices."""

from __future__ import annotations

import numpy as np
import pytest

from ncarl.core.graph import laplacian, similarity, squared_distances
from ncarl.core.kernel import QuadraticPenalty, column_kernel
from ncarl.core.linalg import (
    add_diagonal,
    congruence,
    identity_like,
    k_smallest,
    mean_diagonal,
    sandwich,
    set_diagonal,
    spd_inverse,
    symmetrize,
)
from ncarl.core.weights import (
    FloorWeights,
    PseudoInverseWeights,
    ShiftedInverseWeights,
    SmoothWeights,
    Spectrum,
    singular_value_shares,
    spectrum,
)
from ncarl.exceptions import NotPositiveDefiniteError

RULES = [
    FloorWeights(3),
    SmoothWeights(),
    PseudoInverseWeights(),
    ShiftedInverseWeights(1e-6),
]


@pytest.fixture(name="X")
def matrix_with_zero_and_equal_columns(rng):
    """A matrix of rank 6 with 9 columns, one of them zero and two of them equal."""
    X = rng.standard_normal((30, 6)) @ rng.standard_normal((6, 9))
    X[:, 4] = 0.0
    X[:, 5] = X[:, 1]
    return X


@pytest.fixture(name="A")
def positive_definite(rng):
    B = rng.standard_normal((9, 9))
    return B @ B.T + np.eye(9)


def assert_agree(lib, function, *arrays, tol=1e-12, **options):
    """Check that ``function`` gives the same result on arrays of NumPy and ``lib``."""
    found = lib.numpy(function(*map(lib.array, arrays), **options))
    expected = function(*arrays, **options)
    np.testing.assert_allclose(found, expected, rtol=tol, atol=tol)
    assert found.dtype == expected.dtype


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_basic_functions_agree(lib, A, dtype):
    A = A.astype(dtype)
    tol = 1e-12 if dtype == "float64" else 1e-4
    assert_agree(lib, identity_like, A)
    assert_agree(lib, add_diagonal, A, value=0.5)
    assert_agree(lib, symmetrize, np.tril(A), tol=tol)
    assert_agree(lib, spd_inverse, A, tol=tol)
    assert mean_diagonal(lib.array(A)) == pytest.approx(mean_diagonal(A), rel=1e-6)


def test_products_are_correct_and_exactly_symmetric(lib, A):
    B = A[::-1, ::-1].copy()
    w = np.linspace(0, 2, 9)
    found = lib.numpy(sandwich(lib.array(A), lib.array(B)))
    np.testing.assert_allclose(found, A @ B @ A, rtol=1e-12)
    np.testing.assert_array_equal(found, found.T)
    found = lib.numpy(congruence(lib.array(A), lib.array(w)))
    np.testing.assert_allclose(found, A @ np.diag(w) @ A.T, rtol=1e-12)
    np.testing.assert_array_equal(found, found.T)


@pytest.mark.parametrize("diagonal", [0.0, np.arange(9.0)], ids=["number", "array"])
def test_set_diagonal_keeps_other_entries(lib, A, diagonal):
    expected = A.copy()
    np.fill_diagonal(expected, diagonal)
    there = diagonal if isinstance(diagonal, float) else lib.array(diagonal)
    found = lib.numpy(set_diagonal(lib.array(A.copy()), there))
    np.testing.assert_array_equal(found, expected)


def test_zero_columns_have_exactly_separate_eigenvectors(lib, X):
    X[:, 7] = 0.0
    zero = ~X.any(axis=0)
    vectors = lib.numpy(spectrum(lib.array(X.T @ X)).vectors)
    assert not vectors[np.ix_(~zero, [0, 1])].any()
    assert not vectors[np.ix_(zero, np.arange(2, 9))].any()
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(9), atol=1e-12)


@pytest.mark.parametrize("count", [1, 9])
def test_k_smallest_returns_the_largest_of_them_last(lib, A, count):
    found = lib.numpy(k_smallest(lib.array(A), count))
    np.testing.assert_array_equal(np.sort(found), np.sort(A)[:, :count])
    np.testing.assert_array_equal(found[:, -1], np.sort(A)[:, count - 1])


def test_inverse_of_near_singular_matrix_is_regularized(lib):
    inverse = lib.numpy(spd_inverse(lib.array(np.ones((5, 5)))))
    assert np.isfinite(inverse).all()
    np.testing.assert_array_equal(inverse, inverse.T)


@pytest.mark.parametrize("bad", [-1.0, np.nan])
def test_inverse_of_indefinite_matrix_raises(lib, bad):
    with pytest.raises(NotPositiveDefiniteError, match="raise delta"):
        spd_inverse(lib.array(np.diag([1.0, bad])))


def test_spectrum_matches_numpy_up_to_signs(lib, X):
    G = X.T @ X
    found = spectrum(lib.array(G))
    values = lib.numpy(found.eigenvalues)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(G), atol=1e-10)
    assert values.min() >= 0.0
    rebuilt = lib.numpy(congruence(found.vectors, found.eigenvalues))
    np.testing.assert_allclose(rebuilt, G, atol=1e-10)


@pytest.mark.parametrize("eigenvalues", [[0.0, 0.0, 0.0], [0.0, 1e-12, 1.0, 9.0, 16.0]])
def test_weights_agree(lib, eigenvalues):
    eigenvalues = np.array(eigenvalues)
    assert_agree(lib, singular_value_shares, eigenvalues)
    for rule in RULES:
        assert_agree(lib, rule, eigenvalues, step=3)


def test_distances_similarity_and_laplacian_agree(lib, X):
    G = X.T @ X
    assert_agree(lib, squared_distances, G)
    distances = squared_distances(G)
    for k in (1, 3, 8):
        assert_agree(lib, similarity, distances, k=k)
        assert_agree(lib, similarity, distances, k=k, shift=1e-6)
        assert_agree(lib, laplacian, similarity(distances, k))


@pytest.mark.parametrize("missing_side", [False, True])
@pytest.mark.parametrize("with_graph", [False, True])
@pytest.mark.parametrize(("gamma", "bare"), [(None, False), (0.1, False), (0.1, True)])
def test_kernels_agree(lib, X, missing_side, with_graph, gamma, bare):
    G = X.T @ X
    basis = spectrum(G)
    w = FloorWeights(3)(basis.eigenvalues, 1)
    L = laplacian(similarity(squared_distances(G), 3)) if with_graph else None
    penalty = QuadraticPenalty(
        10.0 if with_graph else 0.0, 1e-6, gamma, unscaled_delta=bare
    )
    there = Spectrum(lib.array(basis.eigenvalues), lib.array(basis.vectors))
    found = column_kernel(
        there,
        lib.array(w),
        None if L is None else lib.array(L),
        penalty,
        needs_precision=missing_side,
    )
    expected = column_kernel(basis, w, L, penalty, needs_precision=missing_side)
    np.testing.assert_allclose(lib.numpy(found.K), expected.K, rtol=1e-9, atol=1e-12)
    assert found.s == expected.s == (0.0 if gamma is None else 1.0)
    if missing_side:
        P = lib.numpy(found.P)
        np.testing.assert_allclose(P, expected.P, rtol=1e-8, atol=1e-9)
        product = P @ (expected.K + expected.s * np.eye(9))
        np.testing.assert_allclose(product, np.eye(9), atol=1e-8)
    else:
        assert found.P is None
        assert expected.P is None
