"""Splits: a partition of the entries that leaves every row and column some."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_array_equal

from ncarl.holdout import (
    _count_shared_columns,
    has_block_missingness,
    missing_pattern_split,
    random_split,
)
from ncarl.observations import Observations

masks = st.tuples(st.integers(1, 8), st.integers(1, 8)).flatmap(
    lambda shape: arrays(bool, shape)
)


def numbered(seen):
    """Observed entries whose values say where they stand."""
    places = np.arange(seen.size, dtype=float).reshape(seen.shape)
    return Observations.from_dense(np.where(seen, places, np.nan))


@pytest.mark.parametrize("split", [random_split, missing_pattern_split])
@given(seen=masks, share=st.floats(0, 1), seed=st.integers(0, 99))
def test_entries_are_shared_out_and_no_row_or_column_loses_its_last(
    split, seen, share, seed
):
    observed = numbered(seen)
    if observed.n_observed == 0:
        return
    kept, hidden = split(observed, share, np.random.default_rng(seed))
    assert kept.shape == hidden.shape == observed.shape
    together = np.concatenate([kept.values, hidden.values])
    assert_array_equal(np.sort(together), observed.values)
    for part in (kept, hidden):
        assert_array_equal(part.rows * seen.shape[1] + part.indices, part.values)
    assert_array_equal(kept.row_counts > 0, observed.row_counts > 0)
    assert_array_equal(kept.column_counts > 0, observed.column_counts > 0)
    if split is random_split:
        assert hidden.n_observed <= round(share * observed.n_observed)


def test_hidden_entries_are_spread_evenly_over_the_matrix():
    observed = numbered(np.ones((12, 12), dtype=bool))
    counts = np.zeros(144)
    for seed in range(200):
        _, hidden = random_split(observed, 0.25, np.random.default_rng(seed))
        counts[hidden.values.astype(int)] += 1
    # 50 expected each, standard deviation about 6.
    assert counts.mean() == pytest.approx(50)
    assert counts.min() > 20
    assert counts.max() < 85


def sensors(rng, m=120, n=20):
    """Readings in which sensors are down for days on end."""
    seen = np.ones((m, n), dtype=bool)
    for _ in range(25):
        i, j = rng.integers(0, m - 15), rng.integers(0, n)
        seen[i : i + 15, j] = False
    return seen


def panel(rng, m=120, n=20):
    """Rows that end early: from some year on nothing is there."""
    return np.arange(n)[None, :] < rng.integers(n // 3, n + 8, m)[:, None]


class TestHoldOutAlike:
    @pytest.mark.parametrize("share", [0.3, 0.8, 1.1])
    def test_single_gaps_are_imitated_by_single_entries(self, rng, share):
        observed = numbered(rng.random((80, 30)) < share)
        assert not has_block_missingness(observed, rng)
        found = missing_pattern_split(observed, 0.1, np.random.default_rng(1))[1]
        assert found.n_observed == round(0.1 * observed.n_observed)
        assert found.row_counts.max() < 13

    def test_blocks_are_told_from_chance(self, rng):
        for seen in (sensors(rng), panel(rng)):
            one, turned = numbered(seen), numbered(seen.T)
            assert has_block_missingness(one, rng) or has_block_missingness(turned, rng)
            shuffled = rng.permuted(seen.ravel()).reshape(seen.shape)
            assert not has_block_missingness(numbered(shuffled), rng)
            assert not has_block_missingness(numbered(shuffled.T), rng)

    def test_a_panel_loses_the_ends_of_its_rows(self, rng):
        seen = panel(rng)
        observed = numbered(seen)
        kept, hidden = missing_pattern_split(observed, 0.1, rng)
        assert 0.05 < hidden.n_observed / observed.n_observed < 0.2
        left = np.zeros_like(seen)
        left[kept.rows, kept.indices] = True
        # Rows still end somewhere: little is kept after a gap, most would be if
        # single entries were hidden.
        after_a_gap = left & (np.cumsum(~left, axis=1) > 0)
        assert after_a_gap.sum() < 0.15 * left.sum()

    def test_sensors_lose_days_on_end(self, rng):
        seen = sensors(rng)
        _, hidden = missing_pattern_split(numbered(seen), 0.1, rng)
        gone = np.zeros_like(seen)
        gone[hidden.rows, hidden.indices] = True
        # Of what is hidden, most has a neighbor in time that is hidden or missing.
        out = gone | ~seen
        near = np.zeros_like(out)
        near[1:] |= out[:-1]
        near[:-1] |= out[1:]
        assert (near & gone).sum() > 0.7 * gone.sum()

    @pytest.mark.parametrize("seed", range(2))
    def test_rows_that_borrow_gaps_of_empty_ones_keep_an_entry(self, seed):
        rng = np.random.default_rng(seed)
        seen = sensors(rng)
        seen[::4], seen[:, 7] = False, False
        observed = numbered(seen)
        kept, hidden = missing_pattern_split(observed, 0.4, rng)
        assert hidden.n_observed > 0.1 * observed.n_observed
        assert_array_equal(kept.row_counts > 0, observed.row_counts > 0)
        assert_array_equal(kept.column_counts > 0, observed.column_counts > 0)

    def test_rows_of_one_mask_have_no_gaps_to_borrow(self, rng):
        seen = np.ones((40, 12), dtype=bool)
        seen[:, 3:6] = False
        kept, hidden = missing_pattern_split(numbered(seen), 0.1, rng)
        assert 0 < hidden.n_observed < kept.n_observed

    def test_it_repeats_with_the_generator(self, rng):
        observed = numbered(sensors(rng))
        one, same, other = (
            missing_pattern_split(observed, 0.1, np.random.default_rng(s))[1].values
            for s in (1, 1, 2)
        )
        assert_array_equal(one, same)
        assert not np.array_equal(one, other)

    def test_sparse_matrices_lose_single_entries_whatever_their_gaps(self, rng):
        seen = panel(rng)
        seen[:, 7:] = False
        observed = numbered(seen)
        expected = random_split(observed, 0.1, np.random.default_rng(5))[1]
        found = missing_pattern_split(observed, 0.1, np.random.default_rng(5))[1]
        assert_array_equal(found.values, expected.values)


@pytest.mark.parametrize("shape", [(6, 400), (300, 12), (90, 90)])
@pytest.mark.parametrize("room", [50, 100_000])
def test_common_columns_of_pairs_are_counted_in_pieces_as_at_once(
    shape, room, rng, monkeypatch
):
    monkeypatch.setattr("ncarl.holdout.MAX_COMPARE_SIZE", room)
    seen = rng.random(shape) < 0.6
    observed = Observations.from_dense(np.where(seen, 1.0, np.nan))
    one, other = rng.integers(0, shape[0], (2, 70))
    found = _count_shared_columns(observed, one, other)
    assert found.tolist() == (seen[one] & seen[other]).sum(axis=1).tolist()
