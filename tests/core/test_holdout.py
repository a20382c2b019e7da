"""Hiding entries: a partition that leaves every row and column something."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ncarl.holdout import hold_out
from ncarl.observed import Observed

masks = st.tuples(st.integers(1, 8), st.integers(1, 8)).flatmap(
    lambda shape: arrays(bool, shape)
)


def numbered(seen):
    """Observed entries whose values say where they stand."""
    places = np.arange(seen.size, dtype=float).reshape(seen.shape)
    return Observed.from_dense(np.where(seen, places, np.nan))


@given(seen=masks, share=st.floats(0, 1), seed=st.integers(0, 99))
def test_kept_and_hidden_entries_share_the_observed_ones_out(seen, share, seed):
    observed = numbered(seen)
    kept, hidden = hold_out(observed, share, np.random.default_rng(seed))
    assert kept.shape == hidden.shape == observed.shape
    together = np.concatenate([kept.values, hidden.values])
    np.testing.assert_array_equal(np.sort(together), observed.values)
    for part in (kept, hidden):
        places = part.rows * seen.shape[1] + part.indices
        np.testing.assert_array_equal(places, part.values)
    assert hidden.n_observed <= round(share * observed.n_observed)


@given(seen=masks, seed=st.integers(0, 99))
def test_no_row_and_no_column_loses_its_last_entry(seen, seed):
    observed = numbered(seen)
    kept, _ = hold_out(observed, 1.0, np.random.default_rng(seed))
    np.testing.assert_array_equal(kept.row_counts > 0, observed.row_counts > 0)
    np.testing.assert_array_equal(kept.column_counts > 0, observed.column_counts > 0)


def test_the_share_asked_for_is_hidden_where_there_is_room(rng):
    observed = numbered(rng.random((60, 40)) < 0.5)
    _, hidden = hold_out(observed, 0.1, rng)
    assert hidden.n_observed == round(0.1 * observed.n_observed)


def test_the_split_repeats_with_the_generator_and_differs_without(rng):
    observed = numbered(np.ones((20, 20), dtype=bool))
    first, second, other = (
        hold_out(observed, 0.3, np.random.default_rng(seed))[1].values
        for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, other)


def test_hidden_entries_are_spread_evenly_over_the_matrix():
    observed = numbered(np.ones((12, 12), dtype=bool))
    counts = np.zeros(144)
    for seed in range(200):
        _, hidden = hold_out(observed, 0.25, np.random.default_rng(seed))
        counts[hidden.values.astype(int)] += 1
    # 50 expected each, standard deviation about 6.
    assert counts.mean() == pytest.approx(50)
    assert counts.min() > 20
    assert counts.max() < 85
