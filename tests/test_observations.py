"""Tests of Observations: conversion, selection, stacking."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_array_equal
from scipy import sparse

import ncarl.observations
from ncarl.observations import (
    Fingerprint,
    Observations,
    canonical_order,
    from_triplets,
    number_ties,
)

gappy = arrays(
    np.float64,
    st.tuples(st.integers(1, 7), st.integers(1, 7)),
    elements=st.sampled_from([np.nan, 0.0, 1.0, -2.5]),
)


def dense(observed):
    """The matrix with NaN where missing."""
    X = np.full(observed.shape, np.nan)
    X[observed.rows, observed.indices] = observed.values
    return X


@given(X=gappy)
def test_dense_matrices_come_back(X):
    observed = Observations.from_dense(X)
    assert_array_equal(dense(observed), X)
    assert observed.n_observed == np.sum(~np.isnan(X))
    assert_array_equal(observed.row_counts, np.sum(~np.isnan(X), axis=1))
    assert_array_equal(observed.column_counts, np.sum(~np.isnan(X), axis=0))
    for i, row in enumerate(X):
        assert_array_equal(observed.row_columns(i), np.flatnonzero(~np.isnan(row)))


@given(X=gappy)
def test_transposing_transposes_and_twice_gives_the_same(X):
    observed = Observations.from_dense(X)
    turned = observed.transpose()
    assert_array_equal(dense(turned), X.T)
    assert turned.transpose().fingerprint() == observed.fingerprint()


@given(X=gappy, data=st.data())
def test_rows_are_taken_in_the_order_asked_for(X, data):
    rows = data.draw(st.lists(st.integers(0, len(X) - 1), max_size=9))
    rows = np.array(rows, dtype=np.int64)
    taken = Observations.from_dense(X).take_rows(rows)
    assert_array_equal(dense(taken), X[rows])


@given(X=gappy, seed=st.integers(0, 99))
def test_dropped_entries_become_gaps(X, seed):
    observed = Observations.from_dense(X)
    dropped = np.random.default_rng(seed).random(observed.n_observed) < 0.5
    expected = X.copy()
    expected[observed.rows[dropped], observed.indices[dropped]] = np.nan
    assert_array_equal(dense(observed.drop_entries(dropped)), expected)


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_stored_zeros_are_observed_and_absent_entries_missing(form):
    X = sparse.coo_array(([0.0, 3.0], ([0, 1], [1, 0])), shape=(2, 2)).asformat(form)
    expected = [[np.nan, 0.0], [3.0, np.nan]]
    assert_array_equal(dense(Observations.from_sparse(X)), expected)


def test_zeros_of_a_diagonal_matrix_are_observed():
    X = sparse.dia_array(([[1.0, 0.0, 3.0], [4.0, 0.0, 6.0]], [0, 1]), shape=(3, 3))
    nan = np.nan
    expected = [[1.0, 0.0, nan], [nan, 0.0, 6.0], [nan, nan, 3.0]]
    assert_array_equal(dense(Observations.from_sparse(X)), expected)


def test_unsorted_columns_are_sorted():
    X = sparse.csr_array(([1.0, 2.0], [2, 0], [0, 2]), shape=(1, 3))
    observed = Observations.from_sparse(X)
    assert_array_equal(observed.indices, [0, 2])
    assert_array_equal(observed.values, [2.0, 1.0])


def test_duplicate_entries_raise_with_their_position():
    X = sparse.csr_array(([1.0, 5.0, 6.0], [0, 1, 1], [0, 1, 3]), shape=(2, 2))
    with pytest.raises(ValueError, match=r"row 1, column 1.*sum_duplicates"):
        Observations.from_sparse(X)


def test_equal_columns_in_adjacent_rows_are_no_duplicates():
    X = sparse.csr_array(([1.0, 2.0], [1, 1], [0, 1, 1, 2]), shape=(3, 2))
    assert Observations.from_sparse(X).n_observed == 2


def test_large_matrices_are_scanned_in_pieces(monkeypatch, rng):
    X = np.where(rng.random((23, 4)) < 0.5, 1.0, np.nan)
    whole = Observations.from_dense(X)
    monkeypatch.setattr(ncarl.observations, "SCAN_SIZE", 12)
    assert Observations.from_dense(X).fingerprint() == whole.fingerprint()
    parts = [Observations.from_dense(part) for part in (X[:9], X[9:])]
    top, bottom = (Fingerprint.from_observations(part) for part in parts)
    assert top + bottom == Fingerprint.from_observations(whole)
    assert Observations.vstack(parts).fingerprint() == whole.fingerprint()


def test_fingerprints_depend_on_values_mask_and_shape():
    matrices = [
        np.array([[1.0, np.nan]]),
        np.array([[np.nan, 1.0]]),
        np.array([[2.0, np.nan]]),
        np.array([[1.0, np.nan, np.nan]]),
        np.array([[1.0], [np.nan]]),
    ]
    digests = {Observations.from_dense(X).fingerprint() for X in matrices}
    assert len(digests) == len(matrices)


def test_from_triplets_stores_zeros():
    X = from_triplets([1, 0, 0], [1, 2, 0], [3.0, 0.0, 5.0])
    assert X.shape == (2, 3)
    assert X.nnz == 3
    assert_array_equal(X.toarray(), [[5, 0, 0], [0, 3, 0]])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([0], [0, 1], [1.0]), "of one length"),
        (([0.5], [0], [1.0]), "rows must be whole numbers"),
        (([0], [-1], [1.0]), "cols must not be negative"),
        (([0], [0], [np.nan]), "values must be finite"),
        (([3], [0], [1.0], (2, 2)), r"rows holds 3, which is outside shape=\(2, 2\)"),
        (([0], [0], ["a"]), "values must be numbers"),
        (([-1], [0], [1.0]), "rows must not be negative, got -1"),
        (([[0]], [[0]], [[1.0]]), "must be one-dimensional"),
        (([0], [0], [1.0], (0, 2)), r"shape must be at least \(1, 1\)"),
        (([0], [0], [1.0], (2.5, 2)), "shape must be two whole numbers"),
        (([0], [0], [1.0], (2,)), "shape must be two whole numbers"),
        (([0], [0], [1.0], 7), "shape must be two whole numbers"),
        (([], [], []), "shape must be at least"),
        (([0, 0], [1, 1], [1.0, 2.0]), "twice, the first at row 0, column 1"),
    ],
)
def test_invalid_triplets_raise(arguments, words):
    with pytest.raises(ValueError, match=words):
        from_triplets(*arguments)


def test_positions_above_32_bits_raise():
    with pytest.raises(ValueError, match="shape must be at most"):
        from_triplets([0, 1], [0, 3_000_000_000], [1.0, 2.0])
    wide = sparse.coo_array(([1.0], ([0], [3_000_000_000])), shape=(1, 2**32))
    with pytest.raises(ValueError, match="X must have at most"):
        Observations.from_sparse(wide)


def damage(S, how):
    """The sparse matrix with one of its index arrays made invalid in place."""
    if how == "pointer":
        S.indptr[2] = 10**6
    elif how == "decreasing":
        S.indptr[2] = 0
    elif how == "negative":
        S.indices[0] = -1
    elif how == "too large":
        S.indices[0] = 10**8
    elif how == "short":
        S.data = S.data[:-1]
    elif how == "coordinate":
        S.coords[0][0] = 10**8
    elif how == "offsets":
        S.offsets = S.offsets[:-1]
    elif how == "lists":
        S.rows[1] = [0, 10**8]
    elif how == "lengths":
        S.data[1] = [1.0]
    return S


COMPRESSED = ("pointer", "decreasing", "negative", "too large", "short")
DAMAGES = [
    *((form, how) for form in ("csr", "csc", "bsr") for how in COMPRESSED[:4]),
    *((form, "short") for form in ("csr", "csc")),
    *(("coo", "coordinate"), ("dia", "offsets"), ("lil", "lists"), ("lil", "lengths")),
]


@pytest.mark.parametrize(("form", "how"), DAMAGES)
@pytest.mark.parametrize("make", [sparse.csr_array, sparse.csr_matrix])
def test_invalid_indices_raise(form, how, make):
    S = damage(make(np.eye(4) + np.eye(4, k=1)).asformat(form), how)
    with pytest.raises(ValueError, match=r"^X is not a valid .*: .*from_triplets"):
        Observations.from_sparse(S)


def test_unused_capacity_and_stale_flags_do_no_harm():
    S = sparse.csr_array(np.array([[0.0, 1.0, 2.0], [3.0, 0.0, 0.0]]))
    S.indices, S.data = np.r_[S.indices, 10**6], np.r_[S.data, np.inf]
    found = Observations.from_sparse(S)
    assert found.n_observed == 3 and len(S.data) == 4  # the matrix itself is kept
    S = sparse.csr_array(([1.0, 2.0], [2, 0], [0, 2]), shape=(1, 3))
    S.has_sorted_indices = True
    assert_array_equal(Observations.from_sparse(S).indices, [0, 2])


class TestCanonicalOrder:
    @given(X=gappy)
    def test_has_every_row_and_column_once(self, X):
        orders = canonical_order(Observations.from_dense(X))
        assert [sorted(order) for order in orders] == [[*range(s)] for s in X.shape]

    def test_names_the_same_rows_and_columns(self):
        rng = np.random.default_rng(0)
        for X in (rng.standard_normal((40, 9)), rng.integers(0, 2, (30, 12)) * 1.0):
            X[rng.random(X.shape) < 0.3] = np.nan
            rows, columns = (rng.permutation(length) for length in X.shape)
            expected = canonical_order(Observations.from_dense(X))
            found = canonical_order(Observations.from_dense(X[np.ix_(rows, columns)]))
            for one, other, order in zip(expected, found, (rows, columns), strict=True):
                assert_array_equal(order[other], one)
            negative = canonical_order(Observations.from_dense(-X))
            assert_array_equal(negative[0], expected[0])
            assert_array_equal(negative[1], expected[1])

    def test_ignores_units_and_last_bits_of_columns(self):
        rng = np.random.default_rng(1)
        X = rng.standard_normal((40, 9))
        X[rng.random(X.shape) < 0.3] = np.nan
        expected = canonical_order(Observations.from_dense(X))
        found = canonical_order(Observations.from_dense(X * np.pi ** np.arange(9) + 2))
        assert_array_equal(found[0], expected[0])
        assert_array_equal(found[1], expected[1])

    def test_is_an_order_like_any_other(self):
        # Neither the counts nor the sizes of rows show in their places.
        X = np.arange(4000.0).reshape(200, 20)
        rows, _ = canonical_order(Observations.from_dense(X))
        assert abs(np.corrcoef(rows, np.arange(200))[0, 1]) < 0.25


def test_reorder_moves_rows_and_columns(rng):
    X = np.where(rng.random((8, 5)) < 0.6, rng.random((8, 5)), np.nan)
    rows, columns = rng.permutation(8), rng.permutation(5)
    moved = Observations.from_dense(X).reorder(rows, columns)
    expected = Observations.from_dense(X[np.ix_(rows, columns)])
    assert_array_equal(moved.values, expected.values)
    assert_array_equal(moved.indices, expected.indices)
    assert_array_equal(moved.indptr, expected.indptr)


def test_ties_of_hashes_are_told_apart_by_their_count():
    hashes = np.array([7, 3, 7, 7, 3, 5], dtype=np.uint64)
    numbered = number_ties(hashes)
    assert len(np.unique(numbered)) == 6
    assert number_ties(hashes[[0, 1, 5]])[0] == numbered[0]
    moved = number_ties(hashes[::-1])
    assert {*moved} == {*numbered}
    assert moved[0] == numbered[5]
