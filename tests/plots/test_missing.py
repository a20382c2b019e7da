"""Tests of patterns and samples of missing entries."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from ncarl.observations import Observations
from ncarl.plots import missing
from ncarl.plots.missing import missing_pattern, sample_missing


@given(st.integers(0, 10_000), st.integers(1, 40), st.integers(1, 12))
def test_a_pattern_counts_what_is_known_in_whatever_chunks_it_comes(seed, m, n):
    rng = np.random.default_rng(seed)
    X = np.where(rng.random((m, n)) < 0.4, np.nan, 1.0)
    cut = int(rng.integers(0, m + 1))
    chunks = [Observations.from_dense(part) for part in (X[:cut], X[cut:]) if len(part)]
    found = missing_pattern(chunks, (m, n))
    np.testing.assert_array_equal(found.image, ~np.isnan(X))
    np.testing.assert_array_equal(found.row_counts, (~np.isnan(X)).sum(axis=1))
    np.testing.assert_array_equal(found.column_counts, (~np.isnan(X)).sum(axis=0))
    assert found.n_missing == np.isnan(X).sum()


def test_cells_of_a_large_matrix_are_observed_fractions(monkeypatch):
    monkeypatch.setattr(missing, "MAX_CELLS", 3)
    X = np.where(np.arange(42).reshape(7, 6) % 4 == 0, np.nan, 1.0)
    image = missing_pattern([Observations.from_dense(X)], X.shape).image
    down, right = np.arange(7) * 3 // 7, np.arange(6) * 3 // 6
    for i in range(3):
        for j in range(3):
            part = X[down == i][:, right == j]
            assert image[i, j] == pytest.approx((~np.isnan(part)).mean())


@pytest.mark.parametrize("laid_out", [True, False])
def test_sample_contains_missing_entries_up_to_the_limit(monkeypatch, laid_out):
    if not laid_out:
        monkeypatch.setattr(missing, "MAX_DENSE_ENTRIES", 0)
    rng = np.random.default_rng(0)
    X = np.where(rng.random((60, 8)) < 0.5, np.nan, 1.0)
    X[:, 3] = 1.0
    X[0, 3] = np.nan
    entries = Observations.from_dense(X)
    i, j = sample_missing(entries, 80)
    assert np.isnan(X[i, j]).all() and 40 <= len(i) <= 80
    assert len(set(zip(i.tolist(), j.tolist(), strict=True))) == len(i)
    if laid_out:  # every column is represented
        assert set(j) == set(range(8))
        assert len(sample_missing(entries, 10_000)[0]) == np.isnan(X).sum()
