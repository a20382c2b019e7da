"""Tests of splits: partitions of entries that keep some in every row and column."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_array_equal

from ncarl.holdout import (
    _count_shared_columns,
    count_splits,
    has_block_missingness,
    missing_pattern_split,
    neighbor_missingness,
    random_split,
    random_splits,
)
from ncarl.observations import Observations

masks = st.tuples(st.integers(1, 8), st.integers(1, 8)).flatmap(
    lambda shape: arrays(bool, shape)
)


def numbered(seen):
    """Observed entries whose values are their positions."""
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


def test_hidden_entries_are_uniformly_distributed():
    observed = numbered(np.ones((12, 12), dtype=bool))
    counts = np.zeros(144)
    for seed in range(200):
        _, hidden = random_split(observed, 0.25, np.random.default_rng(seed))
        counts[hidden.values.astype(int)] += 1
    # Expected count 50, standard deviation about 6.
    assert counts.mean() == pytest.approx(50)
    assert counts.min() > 20
    assert counts.max() < 85


def test_lines_with_few_entries_lose_as_many_as_others():
    # Columns of 2 and of 60 entries.
    seen = np.zeros((60, 70), dtype=bool)
    seen[:, :10] = True
    seen[np.arange(60), 10 + np.arange(60)] = True
    seen[np.arange(60), 10 + (np.arange(60) + 1) % 60] = True
    observed = numbered(seen)
    counts = np.zeros(70)
    for seed in range(100):
        hidden = random_split(observed, 0.2, np.random.default_rng(seed))[1]
        assert hidden.n_observed == 144
        counts += hidden.column_counts
    rates = counts / 100 / observed.column_counts
    # Both entries of a short column are drawn in 4% of the draws: one is restored.
    assert rates[10:].mean() == pytest.approx(0.18, abs=0.01)
    assert rates[:10].mean() == pytest.approx(0.204, abs=0.01)


def sensors(rng, m=120, n=20):
    """Sensor data with outages of several days."""
    seen = np.ones((m, n), dtype=bool)
    for _ in range(25):
        i, j = rng.integers(0, m - 15), rng.integers(0, n)
        seen[i : i + 15, j] = False
    return seen


def panel(rng, m=120, n=20):
    """A panel in which rows end early."""
    return np.arange(n)[None, :] < rng.integers(n // 3, n + 8, m)[:, None]


class TestMissingPatternSplit:
    @pytest.mark.parametrize("share", [0.3, 0.8, 1.1])
    def test_random_missing_entries_are_imitated_by_single_entries(self, rng, share):
        observed = numbered(rng.random((80, 30)) < share)
        assert not has_block_missingness(observed, rng)
        found = missing_pattern_split(observed, 0.1, np.random.default_rng(1))[1]
        assert found.n_observed == round(0.1 * observed.n_observed)
        assert found.row_counts.max() < 13

    def test_blocks_are_distinguished_from_random_patterns(self, rng):
        for seen in (sensors(rng), panel(rng)):
            one, turned = numbered(seen), numbered(seen.T)
            assert has_block_missingness(one, rng) or has_block_missingness(turned, rng)
            shuffled = rng.permuted(seen.ravel()).reshape(seen.shape)
            assert not has_block_missingness(numbered(shuffled), rng)
            assert not has_block_missingness(numbered(shuffled.T), rng)

    def test_ends_of_panel_rows_are_hidden(self, rng):
        seen = panel(rng)
        observed = numbered(seen)
        kept, hidden = missing_pattern_split(observed, 0.1, rng)
        assert 0.05 < hidden.n_observed / observed.n_observed < 0.2
        left = np.zeros_like(seen)
        left[kept.rows, kept.indices] = True
        # Rows still end early: few entries follow a missing one, unlike if single
        # entries were hidden.
        after_a_gap = left & (np.cumsum(~left, axis=1) > 0)
        assert after_a_gap.sum() < 0.15 * left.sum()

    def test_sensor_outages_are_imitated(self, rng):
        seen = sensors(rng)
        _, hidden = missing_pattern_split(numbered(seen), 0.1, rng)
        gone = np.zeros_like(seen)
        gone[hidden.rows, hidden.indices] = True
        # Most hidden entries have a hidden or missing neighbor in time.
        out = gone | ~seen
        near = np.zeros_like(out)
        near[1:] |= out[:-1]
        near[:-1] |= out[1:]
        assert (near & gone).sum() > 0.7 * gone.sum()

    @pytest.mark.parametrize("seed", range(2))
    def test_rows_with_the_pattern_of_empty_rows_keep_an_entry(self, seed):
        rng = np.random.default_rng(seed)
        seen = sensors(rng)
        seen[::4], seen[:, 7] = False, False
        observed = numbered(seen)
        kept, hidden = missing_pattern_split(observed, 0.4, rng)
        assert hidden.n_observed > 0.1 * observed.n_observed
        assert_array_equal(kept.row_counts > 0, observed.row_counts > 0)
        assert_array_equal(kept.column_counts > 0, observed.column_counts > 0)

    def test_rows_with_equal_masks_use_single_entries(self, rng):
        seen = np.ones((40, 12), dtype=bool)
        seen[:, 3:6] = False
        kept, hidden = missing_pattern_split(numbered(seen), 0.1, rng)
        assert 0 < hidden.n_observed < kept.n_observed

    def test_is_determined_by_the_generator(self, rng):
        observed = numbered(sensors(rng))
        one, same, other = (
            missing_pattern_split(observed, 0.1, np.random.default_rng(s))[1].values
            for s in (1, 1, 2)
        )
        assert_array_equal(one, same)
        assert not np.array_equal(one, other)

    def test_sparse_matrices_use_single_entries(self, rng):
        seen = panel(rng)
        seen[:, 7:] = False
        observed = numbered(seen)
        expected = random_split(observed, 0.1, np.random.default_rng(5))[1]
        found = missing_pattern_split(observed, 0.1, np.random.default_rng(5))[1]
        assert_array_equal(found.values, expected.values)


@pytest.mark.parametrize("shape", [(6, 400), (300, 12), (90, 90)])
@pytest.mark.parametrize("room", [50, 100_000])
def test_common_columns_of_pairs_do_not_depend_on_chunks(shape, room, rng, monkeypatch):
    monkeypatch.setattr("ncarl.holdout.MAX_COMPARE_SIZE", room)
    seen = rng.random(shape) < 0.6
    observed = Observations.from_dense(np.where(seen, 1.0, np.nan))
    one, other = rng.integers(0, shape[0], (2, 70))
    found = _count_shared_columns(observed, one, other)
    assert found.tolist() == (seen[one] & seen[other]).sum(axis=1).tolist()


def entry_names(observed, hidden):
    """Held-out entries as a mask."""
    mask = np.zeros(observed.shape, dtype=bool)
    mask[hidden.rows, hidden.indices] = True
    return mask


class TestOrder:
    """What is held out depends on contents, not on the order of rows and columns."""

    @pytest.mark.parametrize("split", [random_split, missing_pattern_split])
    @pytest.mark.parametrize("pattern", ["random", "sensors", "panel"])
    def test_permuted_matrices_lose_the_same_entries(self, rng, split, pattern):
        seen = {
            "random": rng.random((120, 20)) < 0.8,
            "sensors": sensors(rng),
            "panel": panel(rng),
        }[pattern]
        walks = np.cumsum(rng.standard_normal((120, 3)), axis=0)
        X = np.where(seen, walks @ rng.standard_normal((3, 20)), np.nan)
        rows, columns = rng.permutation(120), rng.permutation(20)
        masks = []
        for matrix in (X, X[np.ix_(rows, columns)], -X, X * 3.0 ** np.arange(20)):
            observed = Observations.from_dense(matrix)
            hidden = split(observed, 0.1, np.random.default_rng(2))[1]
            masks.append(entry_names(observed, hidden))
        assert masks[0].any()
        assert_array_equal(masks[1], masks[0][np.ix_(rows, columns)])
        assert_array_equal(masks[2], masks[0])
        assert_array_equal(masks[3], masks[0])

    def test_equal_rows_do_not_lose_the_same_entries(self):
        X = np.tile(np.arange(8.0), (60, 1))
        observed = Observations.from_dense(X)
        hidden = random_split(observed, 0.25, np.random.default_rng(0))[1]
        assert hidden.column_counts.max() < 30
        assert len(np.unique(hidden.row_counts)) > 3

    def test_draws_differ(self, rng):
        observed = Observations.from_dense(rng.standard_normal((30, 10)))
        splits = random_splits(observed, 0.1, 0)
        assert len(splits) == count_splits(30)
        names = [entry_names(observed, hidden) for _, hidden in splits]
        assert not any(np.array_equal(names[0], other) for other in names[1:])
        again = random_splits(observed, 0.1, 0)
        assert_array_equal(entry_names(observed, again[1][1]), names[1])


@pytest.mark.parametrize(
    ("hidden", "count"), [(1, 10), (5, 10), (20, 5), (500, 4), (1999, 2), (2000, 1)]
)
def test_small_matrices_are_split_several_times(hidden, count, monkeypatch):
    monkeypatch.setattr("ncarl.holdout.MAX_SPLITS", 5)
    monkeypatch.setattr("ncarl.holdout.MAX_TINY_SPLITS", 10)
    assert count_splits(hidden) == count


def test_no_split_if_no_entry_can_be_spared():
    assert random_splits(numbered(np.eye(3, dtype=bool)), 0.1, 0) == []


class TestNeighborMissingness:
    def test_is_1_for_outages_and_0_at_random(self, rng):
        # Neighbors in time are similar, so that an outage hides similar rows.
        walks = np.cumsum(rng.standard_normal((300, 20)), axis=0)
        order = rng.permutation(300)
        outages = np.where(sensors(rng, m=300), walks, np.nan)[order]
        single = np.where(rng.random((300, 20)) < 0.9, walks, np.nan)
        found = [
            neighbor_missingness(Observations.from_dense(X), rng)
            for X in (outages, outages.T, single, single.T)
        ]
        assert found[0] > 0.7
        assert max(map(abs, found[1:])) < 0.2

    @pytest.mark.parametrize("room", [100, 100_000])
    def test_equals_a_naive_count(self, rng, room, monkeypatch):
        monkeypatch.setattr("ncarl.holdout.MAX_COMPARE_SIZE", room)
        X = np.where(rng.random((25, 9)) < 0.8, rng.standard_normal((25, 9)), np.nan)
        Z = (X - np.nanmean(X, axis=0)) / np.nanstd(X, axis=0)
        both = total = chance = 0.0
        for i in range(25):
            if not np.isnan(X[i]).any() or np.isnan(X[i]).all():
                continue
            squares = np.square(np.delete(Z, i, axis=0) - Z[i])
            distances = np.insert(np.nanmean(squares, axis=1), i, np.inf)
            nearest = int(np.argmin(distances))
            gaps = np.isnan(X[i])
            both += np.sum(gaps & np.isnan(X[nearest]))
            chance += np.isnan(X).mean(axis=0)[gaps].sum()
            total += gaps.sum()
        expected = (both - chance) / (total - chance)
        found = neighbor_missingness(Observations.from_dense(Z), rng)
        assert found == pytest.approx(expected)

    def test_complete_and_tiny_matrices_have_none(self, rng):
        assert neighbor_missingness(numbered(np.ones((4, 4), dtype=bool)), rng) == 0.0
        assert neighbor_missingness(numbered(np.eye(2, dtype=bool)), rng) == 0.0
