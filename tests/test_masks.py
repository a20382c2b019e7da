"""Tests of masks: shape, number and position of hidden entries."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from ncarl import masks

SHAPES = st.tuples(st.integers(1, 12), st.integers(1, 12))
SHARES = st.floats(0.0, 1.0)
SEEDS = st.integers(0, 1000)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), SHARES, SEEDS)
def test_random_hides_exactly_the_floor(shape, missing, seed):
    hidden = masks.random(tuple(shape), missing, rng=seed)
    assert hidden.shape == tuple(shape)
    assert hidden.dtype == bool
    assert hidden.sum() == math.floor(missing * math.prod(shape))


@given(SHAPES, SHARES, SEEDS)
def test_only_observed_entries_are_hidden_and_counted(shape, share, seed):
    # Another generator, so that the keys of the masks are independent.
    observed = np.random.default_rng([seed, 1]).random(shape) < 0.5
    hidden = masks.random(shape, share, observed=observed, rng=seed)
    assert hidden.sum() == math.floor(share * observed.sum())
    rows = masks.per_row(shape, share, observed=observed, rng=seed)
    expected = [math.floor(share * count) for count in observed.sum(axis=1)]
    assert list(rows.sum(axis=1)) == expected
    loose = masks.random(shape, share, exact=False, observed=observed, rng=seed)
    assert not ((hidden | rows | loose) & ~observed).any()


def test_entries_are_hidden_uniformly():
    rng = np.random.default_rng(0)
    draws = 4000
    for make in (
        lambda: masks.random((3, 4), 0.5, rng=rng),
        lambda: masks.random((3, 4), 0.5, exact=False, rng=rng),
        lambda: masks.per_row((3, 4), 0.5, rng=rng),
        lambda: masks.cross((3, 4), 2, 3, rng=rng),
    ):
        often = np.mean([make() for _ in range(draws)], axis=0)
        # Five standard deviations for a share of one half.
        assert often == pytest.approx(0.5, abs=5 * 0.5 / math.sqrt(draws))


def test_inexact_masks_vary_in_their_count():
    sums = {int(masks.random(100, 0.5, exact=False, rng=k).sum()) for k in range(20)}
    assert len(sums) > 5


@given(SHAPES, st.data())
def test_a_block_is_one_full_rectangle(shape, data):
    size = tuple(data.draw(st.integers(1, whole)) for whole in shape)
    hidden = masks.block(shape, size, rng=data.draw(SEEDS))
    rows, columns = np.flatnonzero(hidden.any(axis=1)), np.flatnonzero(hidden.any(0))
    assert hidden.sum() == size[0] * size[1] == len(rows) * len(columns)
    assert rows[-1] - rows[0] + 1 == size[0]
    assert columns[-1] - columns[0] + 1 == size[1]


def test_blocks_are_at_the_given_position():
    hidden = masks.block((6, 9), (2, 3), at=(4, 6))
    assert hidden[4:, 6:].all()
    assert hidden.sum() == 6
    center = masks.block((6, 9), (2, 3), at="center")
    assert center[2:4, 3:6].all()
    assert center.sum() == 6


def test_random_blocks_reach_every_position():
    rng = np.random.default_rng(0)
    corners = {
        tuple(int(k) for k in np.argwhere(masks.block((4, 3), (2, 2), rng=rng))[0])
        for _ in range(200)
    }
    assert corners == {(i, j) for i in range(3) for j in range(2)}


@given(SHAPES, st.data())
def test_a_cross_is_rows_times_columns(shape, data):
    rows, columns = (data.draw(st.integers(0, whole)) for whole in shape)
    hidden = masks.cross(shape, rows, columns, rng=data.draw(SEEDS))
    assert hidden.sum() == rows * columns
    assert np.array_equal(hidden, np.outer(hidden.any(axis=1), hidden.any(axis=0)))


def test_shares_of_a_cross_are_rounded_to_at_least_one():
    hidden = masks.cross((10, 20), 0.3, 0.01)
    assert hidden.any(axis=1).sum() == 3
    assert hidden.any(axis=0).sum() == 1


def runs(series):
    """Lengths of the runs of True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], series.astype(int), [0]])))
    return np.diff(edges)[::2]


@given(st.tuples(st.integers(1, 40), st.integers(1, 5)), st.data(), SHARES)
def test_gaps_are_runs_and_near_the_share(shape, data, share):
    steps, series = shape
    length = data.draw(st.integers(1, min(steps, 9)))
    hidden = masks.time_gaps(shape, length=length, fraction=share, rng=data.draw(SEEDS))
    assert hidden.shape == shape
    counts = hidden.sum(axis=0)
    assert all(
        lengths % length == 0 for k in range(series) for lengths in runs(hidden[:, k])
    )
    assert counts.max() - counts.min() in (0, length)
    most = series * (steps // length) * length
    wanted = min(share * steps * series, most)
    assert abs(counts.sum() - wanted) <= length / 2 + 1e-9


def test_gaps_run_along_the_time_axis():
    down = masks.time_gaps((60, 5), length=7, fraction=0.3, rng=3)
    along = masks.time_gaps((5, 60), length=7, fraction=0.3, axis=1, rng=3)
    assert np.array_equal(down, along.T)
    assert not np.array_equal(down[:, 0], down[:, 1])


def test_gaps_start_anywhere():
    hidden = masks.time_gaps((6, 3000), length=3, fraction=0.5)
    starts = np.bincount(hidden.argmax(axis=0), minlength=4)
    assert len(starts) == 4
    assert starts == pytest.approx(750, abs=5 * math.sqrt(3000 * 0.25 * 0.75))


CALLS = {
    "random": lambda rng: masks.random((9, 9), 0.5, rng=rng),
    "block": lambda rng: masks.block((99, 99), (2, 2), rng=rng),
    "cross": lambda rng: masks.cross((9, 9), 3, 3, rng=rng),
    "per_row": lambda rng: masks.per_row((9, 9), 0.5, rng=rng),
    "time_gaps": lambda rng: masks.time_gaps((30, 9), length=4, fraction=0.4, rng=rng),
}


@pytest.mark.parametrize("make", CALLS.values(), ids=CALLS)
def test_seed_is_reproducible_and_generator_advances(make):
    assert np.array_equal(make(7), make(np.random.default_rng(7)))
    assert not np.array_equal(make(7), make(8))
    rng = np.random.default_rng(7)
    assert not np.array_equal(make(rng), make(rng))
    for wrong in (-1, 0.5, None, "a", True):
        with pytest.raises((TypeError, ValueError), match="rng must be"):
            make(wrong)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: masks.random((2, 2), 1.1), "missing must be at most 1"),
        (lambda: masks.random((2, 2), float("nan")), "missing must be"),
        (lambda: masks.random((2, 2), "half"), "missing must be"),
        (lambda: masks.random((2, 0), 0.5), "part of shape must be a whole number"),
        (lambda: masks.random((), 0.5), "shape must be some numbers"),
        (lambda: masks.random(2, 0.5, observed=np.ones(3, bool)), "observed must"),
        (lambda: masks.random(2, 0.5, observed=np.ones(2)), "observed must"),
        (lambda: masks.per_row((2, 2), -0.1), "fraction must be"),
        (lambda: masks.per_row((2, 2, 2), 0.1), "shape must be 2 numbers"),
        (lambda: masks.block((40, 60)), "size must fit into shape"),
        (lambda: masks.block((5, 5), (2, 2), at=(4, 0)), "part of at .* from 0 to 3"),
        (lambda: masks.block((5, 5), (2, 2), at="left"), "at must be two"),
        (lambda: masks.block((5, 5), (2, 2), at=3), "at must be two"),
        (lambda: masks.cross((5, 5), 6, 1), "rows must be .* from 0 to 5"),
        (lambda: masks.cross((5, 5), 1, 1.0), "columns must be a fraction"),
        (
            lambda: masks.time_gaps((5, 5), length=6, fraction=1),
            "length must .* 1 to 5",
        ),
        (lambda: masks.time_gaps((5, 5), length=1, fraction=1, axis=2), "axis must be"),
    ],
)
def test_invalid_parameters_raise(call, words):
    with pytest.raises((TypeError, ValueError), match=words):
        call()
