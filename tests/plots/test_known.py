"""Patterns and samples of gaps, against plain counting."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ncarl.observed import Observed
from ncarl.plots import known
from ncarl.plots.known import pattern_of, some_gaps


@given(st.integers(0, 10_000), st.integers(1, 40), st.integers(1, 12))
def test_a_pattern_counts_what_is_known_in_whatever_chunks_it_comes(seed, m, n):
    rng = np.random.default_rng(seed)
    X = np.where(rng.random((m, n)) < 0.4, np.nan, 1.0)
    cut = int(rng.integers(0, m + 1))
    chunks = [Observed.from_dense(part) for part in (X[:cut], X[cut:]) if len(part)]
    found = pattern_of(chunks, (m, n))
    np.testing.assert_array_equal(found.image, ~np.isnan(X))
    np.testing.assert_array_equal(found.row_counts, (~np.isnan(X)).sum(axis=1))
    np.testing.assert_array_equal(found.column_counts, (~np.isnan(X)).sum(axis=0))
    assert found.missing == np.isnan(X).sum()


def test_cells_of_a_large_matrix_hold_the_part_that_is_known(monkeypatch):
    monkeypatch.setattr(known, "MOST_CELLS", 3)
    X = np.where(np.arange(42).reshape(7, 6) % 4 == 0, np.nan, 1.0)
    image = pattern_of([Observed.from_dense(X)], X.shape).image
    down, right = np.arange(7) * 3 // 7, np.arange(6) * 3 // 6
    for i in range(3):
        for j in range(3):
            part = X[down == i][:, right == j]
            assert image[i, j] == pytest.approx((~np.isnan(part)).mean())


@pytest.mark.parametrize("laid_out", [True, False])
def test_a_sample_holds_gaps_only_and_no_more_than_asked(monkeypatch, laid_out):
    if not laid_out:
        monkeypatch.setattr(known, "LAID_OUT", 0)
    rng = np.random.default_rng(0)
    X = np.where(rng.random((60, 8)) < 0.5, np.nan, 1.0)
    X[:, 3] = 1.0
    X[0, 3] = np.nan
    entries = Observed.from_dense(X)
    i, j = some_gaps(entries, 80)
    assert np.isnan(X[i, j]).all() and 40 <= len(i) <= 80
    assert len(set(zip(i.tolist(), j.tolist(), strict=True))) == len(i)
    if laid_out:  # every column has its part, however few its gaps
        assert set(j) == set(range(8))
        assert len(some_gaps(entries, 10_000)[0]) == np.isnan(X).sum()
