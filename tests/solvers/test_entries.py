"""Observed entries times thin matrices: the same by every route, here and elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from ncarl.homes import HostMemory
from ncarl.observed import Observed
from ncarl.solvers import entries as module
from ncarl.solvers.entries import Entries

pytestmark = pytest.mark.usefixtures("one_blas_thread")


@pytest.fixture(params=["threads", "tensors"])
def home(request):
    """The memory of this process, or tensors on the processor."""
    if request.param == "threads":
        return HostMemory(1)
    pytest.importorskip("torch")
    from ncarl import Torch

    return Torch(device="cpu").home


def matrix(rng, m=23, n=17, share=0.3):
    """A matrix with gaps, an empty row and an empty column."""
    X = np.where(rng.random((m, n)) < share, rng.standard_normal((m, n)), np.nan)
    X[4], X[:, 2] = np.nan, np.nan
    return X


def entries_of(X, home):
    return Entries(Observed.from_dense(X), home)


def test_they_know_their_values_size_and_largest_singular_value(rng, home):
    X = matrix(rng)
    M = np.nan_to_num(X)
    found = entries_of(X, home)
    assert found.shape == X.shape
    assert_allclose(np.asarray(found.values), X[~np.isnan(X)])
    assert found.size == pytest.approx(np.linalg.norm(M))
    assert found.top == pytest.approx(np.linalg.norm(M, 2))


def test_zeros_have_the_largest_value_one(home):
    assert entries_of(np.zeros((4, 5)), home).top == 1.0


@pytest.mark.parametrize("dense", [0.0, 2.0], ids=["blocks", "gathered"])
@pytest.mark.parametrize("chunk", [10**6, 7, 1])
@pytest.mark.parametrize("width", [0, 1, 3])
def test_a_product_at_the_entries_is_that_of_the_whole(
    rng, home, monkeypatch, dense, chunk, width
):
    monkeypatch.setattr(module, "DENSE", dense)
    monkeypatch.setattr(module, "CHUNK", chunk)
    X = matrix(rng)
    A, B = rng.standard_normal((23, width)), rng.standard_normal((width, 17))
    found = entries_of(X, home).product_at(home.send(A), home.send(B))
    assert_allclose(np.asarray(found), (A @ B)[~np.isnan(X)], atol=1e-12)


def test_few_entries_are_gathered_and_many_come_from_blocks(rng, monkeypatch):
    gathered, real = [], module._gathered

    def spy(*args):
        gathered.append(True)
        return real(*args)

    monkeypatch.setattr(module, "_gathered", spy)
    A, B = rng.standard_normal((60, 2)), rng.standard_normal((2, 50))
    for share, count in ((0.01, 1), (0.2, 1)):
        X = np.where(rng.random((60, 50)) < share, 1.0, np.nan)
        found = entries_of(X, HostMemory(1)).product_at(A, B)
        assert_allclose(found, (A @ B)[~np.isnan(X)], atol=1e-12)
        assert len(gathered) == count


@pytest.mark.parametrize("width", [1, 3])
def test_they_multiply_from_both_sides_with_any_values(rng, home, width):
    X = matrix(rng)
    seen = ~np.isnan(X)
    values = rng.standard_normal(seen.sum())
    dense = np.zeros(X.shape)
    dense[seen] = values
    V, U = rng.standard_normal((17, width)), rng.standard_normal((23, width))
    found = entries_of(X, home)
    there = home.send(values)
    right = found.times(there, home.send(V))
    left = found.turned_times(there, home.send(U))
    assert_allclose(np.asarray(right), dense @ V, atol=1e-12)
    assert_allclose(np.asarray(left), dense.T @ U, atol=1e-12)


def test_sparse_and_filled_products_are_the_same(rng, monkeypatch):
    X = np.where(rng.random((30, 20)) < 0.4, rng.standard_normal((30, 20)), np.nan)
    entries = Entries(Observed.from_dense(X), HostMemory(1))
    values, U, V = entries.values, rng.random((30, 4)), rng.random((20, 4))
    zeros = np.nan_to_num(X)
    for share in (0.0, 2.0):
        monkeypatch.setattr(module, "FULL", share)
        assert_allclose(entries.times(values, V), zeros @ V, atol=1e-13)
        assert_allclose(entries.turned_times(values, U), zeros.T @ U, atol=1e-13)
