"""Tests that Numba and NumPy find the same observed entries of dense rows."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from ncarl.core import rows
from ncarl.observations import Observations


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
@pytest.mark.parametrize("missing", [0.0, 0.5, 0.98, 1.0])
@pytest.mark.parametrize("order", ["C", "F"])
def test_numba_and_numpy_find_the_same_entries(dtype, missing, order, rng, monkeypatch):
    monkeypatch.setattr(rows, "NUMBA_SCAN_MIN_SIZE", 0)
    X = np.asarray(rng.standard_normal((37, 23)), dtype=dtype, order=order)
    X[rng.random(X.shape) < missing] = np.nan
    X[3, 4], X[5, 5] = -0.0, np.inf
    found, known = rows.observed_entries(X), rows.observed_entries_numpy(X)
    for one, other in zip(found, known, strict=True):
        assert one.dtype == other.dtype
        assert_array_equal(one, other)
    dense = np.full(X.shape, np.nan)
    dense[np.repeat(np.arange(37), found[0]), found[1]] = found[2]
    assert_array_equal(dense, X)


def test_numpy_is_used_without_numba(monkeypatch, rng):
    X = rng.standard_normal((50, 8))
    X[rng.random(X.shape) < 0.5] = np.nan
    known = Observations.from_dense(X)
    monkeypatch.setattr(rows, "NUMBA_SCAN_MIN_SIZE", 0)
    usual = rows.importlib.import_module

    def broken(name):
        if name.endswith("numba"):
            raise ImportError(name)
        return usual(name)

    monkeypatch.setattr(rows.importlib, "import_module", broken)
    for spec in (None, object()):  # not installed, or broken
        rows.row_backend.cache_clear()
        monkeypatch.setattr(rows.importlib.util, "find_spec", {"numba": spec}.get)
        assert_array_equal(Observations.from_dense(X).values, known.values)
        assert rows.row_backend().__name__.endswith("numpy")
    rows.row_backend.cache_clear()
