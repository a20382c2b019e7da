"""Tests of problems: observed and hidden entries, seeds, held-out entries."""

from __future__ import annotations

import dataclasses
import math
import shutil

import numpy as np
import pytest
from scipy import sparse

from ncarl.datasets import DataNotFoundError, make_low_rank
from ncarl.datasets.movielens import RELEASES
from ncarl.reproduce import plan
from ncarl.reproduce.plan import ProblemSpec, hold_out_validation, make_task

GRAY = np.arange(12 * 9, dtype=np.uint8).reshape(12, 9)
#: user, item, rating
RATINGS = [(u, i, 1 + (u * i) % 5) for u in range(1, 7) for i in range(1, 6) if u != i]

LOW = ProblemSpec("low-rank", {"m": 15, "n": 8, "rank": 2}, 0.37)
PHOTO = ProblemSpec("photo", {"name": "china", "step": 20}, 0.3)
MADE_UP = ProblemSpec("like-ratings", {"users": 12, "items": 20, "each": 7}, 0.43)
IMAGE = ProblemSpec("image", {"folder": "pictures", "name": "a.pgm"}, 0.25)
MOVIES = ProblemSpec("movielens", {"name": "100k"}, 0.5)
EVERY = [LOW, PHOTO, MADE_UP, IMAGE, MOVIES]
BY_NAME = pytest.mark.parametrize("problem", EVERY, ids=lambda p: p.data)


@pytest.fixture(autouse=True)
def data(monkeypatch, tmp_path):
    """A data folder with a tiny image and a tiny MovieLens."""
    plan._load_matrix.cache_clear()
    monkeypatch.setenv("NCARL_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "no cache"))
    (tmp_path / "pictures").mkdir()
    header = b"P5 9 12 255 "
    (tmp_path / "pictures" / "a.pgm").write_bytes(header + GRAY.tobytes())
    (tmp_path / "ml-100k").mkdir()
    lines = "".join(f"{u}\t{i}\t{r}\t{u + i}\n" for u, i, r in RATINGS)
    (tmp_path / "ml-100k" / "u.data").write_text(lines)
    tiny = dataclasses.replace(
        RELEASES["100k"], shape=(6, 5), counts=(6, 5, len(RATINGS))
    )
    monkeypatch.setitem(RELEASES, "100k", tiny)
    yield tmp_path
    plan._load_matrix.cache_clear()


def entries_of(X):
    """Positions and values of observed entries."""
    if sparse.issparse(X):
        X = X.tocoo()
        return dict(zip(zip(X.row, X.col, strict=True), X.data, strict=True))
    rows, cols = np.nonzero(~np.isnan(X))
    return dict(zip(zip(rows, cols, strict=True), X[rows, cols], strict=True))


def targets(posed):
    places = list(zip(posed.rows, posed.cols, strict=True))
    assert len(set(places)) == len(places) == len(posed.truth)
    return dict(zip(places, posed.truth, strict=True))


def all_entries(problem):
    """All known entries, computed independently."""
    if problem is LOW:
        made = make_low_rank(15, 8, 2, missing=0.0, random_state=3)
        return dict(np.ndenumerate(made.truth))
    if problem is IMAGE:
        return dict(np.ndenumerate(GRAY / 255.0))
    if problem is MOVIES:
        return {(u - 1, i - 1): float(r) for u, i, r in RATINGS}
    return None


@BY_NAME
def test_observed_and_hidden_entries_partition_the_known_ones(problem):
    posed = make_task(problem, 3)
    left, away = entries_of(posed.X), targets(posed)
    assert not left.keys() & away.keys()
    total = len(left) + len(away)
    assert len(away) == math.floor(problem.missing * total)
    known = all_entries(problem)
    if known is not None:
        assert total == len(known)
        for place, value in (left | away).items():
            assert value == pytest.approx(known[place])
    assert posed.validation_entries is None
    assert posed.is_picture == (problem.data in ("photo", "image"))


@BY_NAME
def test_problem_is_determined_by_its_seed(problem):
    one, again, other = (make_task(problem, seed) for seed in (1, 1, 2))
    assert entries_of(one.X) == entries_of(again.X)
    assert targets(one) == targets(again)
    assert targets(one).keys() != targets(other).keys()


def test_truth_of_a_noisy_matrix_has_no_noise():
    noisy = dataclasses.replace(LOW, options={**LOW.options, "noise": 2.0})
    one, two = make_task(LOW, 3), make_task(noisy, 3)
    assert targets(one) == targets(two)
    assert entries_of(one.X).keys() == entries_of(two.X).keys()
    assert entries_of(one.X) != entries_of(two.X)


def test_channels_of_a_photograph_are_parts_of_the_data_set():
    from ncarl.datasets import load_sample_image

    colors = load_sample_image("china", gray=False, step=20)
    for channel in (0, 2):
        options = {**PHOTO.options, "channel": channel}
        posed = make_task(dataclasses.replace(PHOTO, options=options), 0)
        full = np.array(posed.X)
        full[posed.rows, posed.cols] = posed.truth
        np.testing.assert_array_equal(full, colors[:, :, channel])
    gray = make_task(PHOTO, 0)
    assert (gray.X.shape, gray.X.ndim) == (colors.shape[:2], 2)


def test_block_is_a_central_square_of_the_given_share():
    block = dataclasses.replace(IMAGE, mask="block", missing=16 / GRAY.size)
    posed = make_task(block, 0)
    assert sorted(targets(posed)) == [(r, c) for r in range(4, 8) for c in range(2, 6)]
    assert targets(posed) == targets(make_task(block, 5))


def test_synthetic_ratings_are_integers_with_given_counts():
    posed = make_task(MADE_UP, 0)
    every = entries_of(posed.X) | targets(posed)
    assert set(every.values()) <= {1.0, 2.0, 3.0, 4.0, 5.0}
    assert len(set(every.values())) > 2
    users = [row for row, _ in every]
    assert [users.count(user) for user in range(12)] == [7] * 12
    assert posed.X.shape == (12, 20)
    other = make_task(dataclasses.replace(MADE_UP, missing=0.0), 9)
    assert entries_of(other.X) == every  # the ratings do not depend on the seed


@BY_NAME
def test_held_out_entries_were_observed_and_are_removed(problem):
    posed = make_task(problem, 2)
    search = hold_out_validation(posed, 2)
    before, after = entries_of(posed.X), entries_of(search.X)
    rows, cols, values = search.validation_entries
    held = dict(zip(zip(rows, cols, strict=True), values, strict=True))
    assert held
    assert held.items() <= before.items()
    assert not held.keys() & after.keys()
    assert held | after == before
    assert entries_of(posed.X) == before  # the problem is not modified
    assert len(held) <= round(0.1 * len(before))
    assert targets(search) == targets(posed)
    assert search.is_picture == posed.is_picture
    assert sparse.issparse(search.X) == sparse.issparse(posed.X)


def test_a_tenth_is_held_out_by_seed():
    large = dataclasses.replace(LOW, options={"m": 40, "n": 30, "rank": 2})
    posed = make_task(large, 0)
    one, again, other = (
        hold_out_validation(posed, seed).validation_entries for seed in (1, 1, 2)
    )
    assert len(one[2]) == round(0.1 * (1200 - 444))
    np.testing.assert_array_equal(one[0], again[0])
    assert not np.array_equal(one[0], other[0])


def test_missing_data_raises(data):
    (data / "pictures" / "a.pgm").unlink()
    shutil.rmtree(data / "ml-100k")
    for problem in (IMAGE, MOVIES):
        with pytest.raises(DataNotFoundError):
            make_task(problem, 0)
    (data / "pictures").rmdir()
    with pytest.raises(DataNotFoundError, match=r"looked for pictures in"):
        make_task(IMAGE, 0)
