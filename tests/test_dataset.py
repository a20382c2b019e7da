"""Tests of datasets: sums over chunks equal those over the matrix."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from ncarl.blocks import as_one_block
from ncarl.centering import (
    MAX_LEVELS,
    compare_column_units,
    fit_centering,
    fit_scaler,
    fit_value_bounds,
    rescale,
    select_columns,
)
from ncarl.dataset import DataSummary, InMemoryDataset, StreamedDataset, rms_unit
from ncarl.engines.threads import Threads
from ncarl.holdout import HashSplit, hash_split, hash_split_rows, hidden_counts
from ncarl.io import open_rows
from ncarl.observations import Fingerprint, Observations

matrices = st.integers(0, 10**6).map(
    lambda seed: draw_matrix(np.random.default_rng(seed))
)  # fmt: skip


def draw_matrix(rng):
    """A random matrix with any share of missing entries and any scale."""
    m, n = rng.integers(1, 30), rng.integers(1, 8)
    X = rng.standard_normal((m, n)) * 10.0 ** rng.integers(-3, 4, n) + rng.normal()
    X *= rng.choice([1.0, 1e-200, 1e200])
    X[rng.random((m, n)) < rng.random()] = np.nan
    X[rng.integers(m), rng.integers(n)] = 3.0  # at least one observed entry
    return X


def passing(X, rows=3, named=True):
    """The matrix as a dataset streamed in small chunks."""
    return StreamedDataset.from_source(
        open_rows(X, rows_per_chunk=rows), Threads(2), with_fingerprint=named
    )


@given(matrices, st.integers(1, 7))
def test_a_summary_of_chunks_is_that_of_the_matrix(X, rows):
    found = passing(X, rows).summary
    seen = ~np.isnan(X)
    assert found.shape == X.shape
    assert found.n_observed == seen.sum()
    assert_array_equal(found.column_counts, seen.sum(axis=0))
    assert_array_equal(
        found.row_count_histogram,
        np.bincount(seen.sum(axis=1), minlength=X.shape[1] + 1),
    )
    assert_array_equal(found.empty_rows, np.flatnonzero(~seen.any(axis=1)))
    assert found.n_observed_rows == seen.any(axis=1).sum()
    assert found.unit == rms_unit(X[seen])
    known = DataSummary.from_observations(
        Observations.from_dense(X), with_fingerprint=True
    )
    assert found.fingerprint == known.fingerprint


@given(matrices)
def test_the_unit_is_the_nearest_power_of_two(X):
    values = X[~np.isnan(X)]
    unit = rms_unit(values)
    rms = np.sqrt(np.mean((values / unit) ** 2))
    assert np.log2(unit) == np.round(np.log2(unit))
    assert 2**-0.5001 <= rms <= 2**0.5001


def test_unit_of_extreme_values_is_within_range():
    assert rms_unit(np.array([1e308, -1e308])) == 2.0**1000
    assert rms_unit(np.array([5e-324])) == 2.0**-1000
    assert rms_unit(np.zeros(3)) == 1.0


@given(matrices, st.integers(1, 5), st.integers(0, 10**6))
def test_a_name_tells_what_a_matrix_holds(X, rows, seed):
    name = Observations.from_dense(X).fingerprint()
    assert passing(X, rows).fingerprint() == name
    rng = np.random.default_rng(seed)
    other = X.copy()
    i, j = rng.integers(X.shape[0]), rng.integers(X.shape[1])
    other[i, j] = 7.25 if np.isnan(X[i, j]) else np.nextafter(X[i, j], np.inf)
    assert Observations.from_dense(other).fingerprint() != name
    assert Observations.from_dense(np.vstack([X, X[:1]])).fingerprint() != name
    turned = X[::-1]
    same = np.array_equal(turned, X, equal_nan=True)
    assert (Observations.from_dense(turned).fingerprint() == name) == same
    swapped = X[:, ::-1]
    same = np.array_equal(swapped, X, equal_nan=True)
    assert (Observations.from_dense(swapped).fingerprint() == name) == same


def test_fingerprints_of_similar_matrices_differ():
    names = set()
    for k in range(300):
        X = np.zeros((2, 300))
        X[k % 2, k] = 1.0
        names.add(Observations.from_dense(X).fingerprint())
    assert len(names) == 300


def test_fingerprint_ignores_signs_of_zeros_but_not_empty_rows():
    one, other = np.array([[0.0, 1.0]]), np.array([[-0.0, 1.0]])
    fingerprints = [Observations.from_dense(X).fingerprint() for X in (one, other)]
    assert fingerprints[0] == fingerprints[1]
    top = Fingerprint.from_observations(
        Observations.from_dense(np.vstack([one, one * np.nan]))
    )
    low = Fingerprint.from_observations(
        Observations.from_dense(np.vstack([one * np.nan, one]))
    )
    assert top != low


@given(
    matrices,
    st.sampled_from(["none", "mean", "columns", "rows", "two-way"]),
    st.booleans(),
)
def test_a_center_learned_from_chunks_is_that_of_the_matrix(X, mode, scaled):
    unit = rms_unit(X[~np.isnan(X)])
    whole = InMemoryDataset(Observations.from_dense(X / unit))
    known = fit_centering(whole, mode, scaled)
    rescaled = passing(X).map_values(partial(rescale, unit=unit))
    found = fit_centering(rescaled, mode, scaled)
    assert found.mean == pytest.approx(known.mean, rel=1e-9, abs=1e-12)
    assert_allclose(found.column_scales, known.column_scales, rtol=1e-9, atol=1e-12)
    if known.row_ridge is None:
        assert found.row_ridge is None
    else:
        assert found.row_ridge == pytest.approx(known.row_ridge, rel=1e-5)
    assert_allclose(found.column_effects, known.column_effects, rtol=1e-6, atol=1e-9)


@given(matrices, st.booleans(), st.booleans())
def test_units_bounds_and_levels_are_those_of_the_matrix(X, scaled, by_column):
    X = np.round(X / rms_unit(X[~np.isnan(X)]), 1)
    whole, chunks = InMemoryDataset(Observations.from_dense(X)), passing(X)
    known, found = (fit_scaler(e, per_column=scaled) for e in (whole, chunks))
    assert found.unit == known.unit
    assert_allclose(
        found.centering.column_effects, known.centering.column_effects, atol=1e-12
    )
    assert_allclose(
        found.centering.column_scales, known.centering.column_scales, atol=1e-12
    )
    assert compare_column_units(whole)[0] == compare_column_units(chunks)[0]
    for clip in (None, "auto", (-1.0, 1.0)):
        one, other = (
            fit_value_bounds(e, clip, rounded=True, by_column=by_column)
            for e in (whole, chunks)
        )
        for name in ("low", "high", "levels", "ends"):
            assert_array_equal(getattr(one, name), getattr(other, name))


def test_values_with_too_many_levels_are_not_rounded(monkeypatch, rng):
    monkeypatch.setattr("ncarl.centering.MAX_LEVELS", 20)
    assert MAX_LEVELS == 1_000_000
    with pytest.raises(ValueError, match="rounding='observed' is for values of few"):
        fit_value_bounds(
            passing(rng.random((30, 2))), None, rounded=True, by_column=False
        )  # fmt: skip


class TestHashSplit:
    @pytest.fixture
    def entries(self, rng):
        X = rng.standard_normal((400, 12))
        X[rng.random(X.shape) < 0.3] = np.nan
        X[:, 7] = np.nan
        X[5, 7] = 1.0  # only entry of its column
        X[8] = np.nan
        X[8, 3] = 1.0  # only entry of its row
        return X

    def test_hidden_entries_do_not_depend_on_chunks(self, entries):
        whole = InMemoryDataset(Observations.from_dense(entries))
        hiding = hash_split(whole, 0.2, 0)
        known = hiding.mask(whole.observed)
        for rows in (1, 7, 400):
            chunks = open_rows(entries, rows_per_chunk=rows)
            found = np.concatenate([hiding.mask(chunk) for chunk in chunks])
            assert_array_equal(found, known)
        assert_array_equal(
            hash_split(passing(entries), 0.2, 0).protected_columns,
            hiding.protected_columns,
        )

    def test_share_is_approximate_and_rows_and_columns_keep_an_entry(self, entries):
        whole = InMemoryDataset(Observations.from_dense(entries))
        for share in (0.05, 0.2, 0.5, 0.9, 1.0):
            hiding = hash_split(whole, share, 1)
            if share <= 0.5:  # else many entries must be kept
                hidden = hiding.mask(whole.observed).mean()
                assert hidden == pytest.approx(share, abs=0.04)
            kept = hiding(whole.observed)
            assert (kept.row_counts > 0).all()
            assert (kept.column_counts > 0).all()

    def test_seeds_hide_different_entries(self, entries):
        whole = Observations.from_dense(entries)
        spared = np.zeros(12, dtype=bool)
        keys = np.arange(12, dtype=np.uint64)
        masks = [HashSplit(s, 1.0, 0.3, keys, spared).mask(whole) for s in (0, 1)]
        both = np.mean(masks[0] & masks[1])
        assert both == pytest.approx(0.09, abs=0.03)

    def test_large_matrices_use_a_sample_of_rows(self, entries, monkeypatch):
        monkeypatch.setattr("ncarl.holdout.SAMPLED_ENTRIES", 800)
        whole = InMemoryDataset(Observations.from_dense(entries))
        hiding = hash_split(whole, 0.2, 0)
        found = whole.total(
            hash_split_rows, split=hiding, transform=lambda chunk: chunk
        )
        (kept,), (hidden,) = found.sums
        assert kept.n_observed + hidden.n_observed == pytest.approx(800, rel=0.25)
        assert (hidden.row_counts > 0).all()
        counts = whole.total(hidden_counts, split=hiding).sums[0]
        assert_array_equal(counts, hidden.column_counts)
        assert hidden.n_observed == hiding.mask(whole.observed).sum()

    def test_hidden_and_kept_entries_partition_the_entries(self, entries):
        whole = Observations.from_dense(entries)
        hiding = hash_split(InMemoryDataset(whole), 0.3, 0)
        kept, mask = hiding(whole), hiding.mask(whole)
        assert kept.n_observed + mask.sum() == whole.n_observed
        assert_array_equal(kept.values, whole.values[~mask])


def test_empty_columns_are_dropped(rng):
    X = rng.standard_normal((6, 5))
    X[:, [1, 4]] = np.nan
    fewer = select_columns(Observations.from_dense(X), np.array([0, 2, 3]))
    assert_array_equal(fewer.to_csr().toarray(), X[:, [0, 2, 3]])
    block = as_one_block(fewer)
    assert block.n_rows == 6
    assert block.n_columns == 3
