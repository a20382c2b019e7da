"""Tests of SparseEntries: products by all routes, on the host and as tensors."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from ncarl.engines.base import HostDevice
from ncarl.observations import Observations
from ncarl.solvers import base
from ncarl.solvers.base import SparseEntries

pytestmark = pytest.mark.usefixtures("one_blas_thread")


@pytest.fixture(params=["threads", "tensors"])
def device(request):
    """Host memory, or tensors on the CPU."""
    if request.param == "threads":
        return HostDevice(1)
    pytest.importorskip("torch")
    from ncarl import Torch

    return Torch(device="cpu").compute_device


def matrix(rng, m=23, n=17, share=0.3):
    """A matrix with missing entries, an empty row and an empty column."""
    X = np.where(rng.random((m, n)) < share, rng.standard_normal((m, n)), np.nan)
    X[4], X[:, 2] = np.nan, np.nan
    return X


def entries_of(X, device):
    return SparseEntries(Observations.from_dense(X), device)


def test_values_size_and_largest_singular_value(rng, device):
    X = matrix(rng)
    M = np.nan_to_num(X)
    found = entries_of(X, device)
    assert found.shape == X.shape
    assert_allclose(np.asarray(found.values), X[~np.isnan(X)])
    assert found.observed_norm == pytest.approx(np.linalg.norm(M))
    assert found.spectral_norm == pytest.approx(np.linalg.norm(M, 2))


def test_zeros_have_largest_value_one(device):
    assert entries_of(np.zeros((4, 5)), device).spectral_norm == 1.0


@pytest.mark.parametrize("dense", [0.0, 2.0], ids=["blocks", "gathered"])
@pytest.mark.parametrize(("chunk", "width"), [(10**6, 0), (10**6, 3), (7, 3), (1, 1)])
def test_product_at_the_entries_matches_the_dense_product(
    rng, device, monkeypatch, dense, chunk, width
):
    monkeypatch.setattr(base, "DENSE_PRODUCT_DENSITY", dense)
    monkeypatch.setattr(base, "CHUNK_SIZE", chunk)
    X = matrix(rng)
    A, B = rng.standard_normal((23, width)), rng.standard_normal((width, 17))
    found = entries_of(X, device).sampled_product(
        device.from_numpy(A), device.from_numpy(B)
    )
    assert_allclose(np.asarray(found), (A @ B)[~np.isnan(X)], atol=1e-12)


@pytest.mark.parametrize("dense", [0.0, 2.0], ids=["filled", "sparse"])
def test_products_from_both_sides_with_any_values(rng, device, monkeypatch, dense):
    monkeypatch.setattr(base, "DENSE_MATRIX_DENSITY", dense)
    width, X = 3, matrix(rng)
    seen = ~np.isnan(X)
    values = rng.standard_normal(seen.sum())
    dense = np.zeros(X.shape)
    dense[seen] = values
    V, U = rng.standard_normal((17, width)), rng.standard_normal((23, width))
    found = entries_of(X, device)
    on_device = device.from_numpy(values)
    right = found.sparse_matmul(on_device, device.from_numpy(V))
    left = found.sparse_rmatmul(on_device, device.from_numpy(U))
    assert_allclose(np.asarray(right), dense @ V, atol=1e-12)
    assert_allclose(np.asarray(left), dense.T @ U, atol=1e-12)
