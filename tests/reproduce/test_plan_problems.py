"""Problems: what is hidden was there, is gone from X, and repeats with its seed."""

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
    """A folder with a tiny picture and a tiny MovieLens."""
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


def seen(X):
    """Places and values of the observed entries."""
    if sparse.issparse(X):
        X = X.tocoo()
        return dict(zip(zip(X.row, X.col, strict=True), X.data, strict=True))
    rows, cols = np.nonzero(~np.isnan(X))
    return dict(zip(zip(rows, cols, strict=True), X[rows, cols], strict=True))


def hidden(posed):
    places = list(zip(posed.rows, posed.cols, strict=True))
    assert len(set(places)) == len(places) == len(posed.truth)
    return dict(zip(places, posed.truth, strict=True))


def whole(problem):
    """All known entries, by a route of our own."""
    if problem is LOW:
        made = make_low_rank(15, 8, 2, missing=0.0, random_state=3)
        return dict(np.ndenumerate(made.truth))
    if problem is IMAGE:
        return dict(np.ndenumerate(GRAY / 255.0))
    if problem is MOVIES:
        return {(u - 1, i - 1): float(r) for u, i, r in RATINGS}
    return None


@BY_NAME
def test_seen_and_hidden_entries_are_parted_and_are_the_known_ones(problem):
    posed = make_task(problem, 3)
    left, away = seen(posed.X), hidden(posed)
    assert not left.keys() & away.keys()
    total = len(left) + len(away)
    assert len(away) == math.floor(problem.missing * total)
    known = whole(problem)
    if known is not None:
        assert total == len(known)
        for place, value in (left | away).items():
            assert value == pytest.approx(known[place])
    assert posed.validation_entries is None
    assert posed.is_picture == (problem.data in ("photo", "image"))


@BY_NAME
def test_a_seed_gives_the_same_problem_again_and_another_one_another(problem):
    one, again, other = (make_task(problem, seed) for seed in (1, 1, 2))
    assert seen(one.X) == seen(again.X)
    assert hidden(one) == hidden(again)
    assert hidden(one).keys() != hidden(other).keys()


def test_the_truth_of_a_noisy_matrix_has_no_noise():
    noisy = dataclasses.replace(LOW, options={**LOW.options, "noise": 2.0})
    one, two = make_task(LOW, 3), make_task(noisy, 3)
    assert hidden(one) == hidden(two)
    assert seen(one.X).keys() == seen(two.X).keys()
    assert seen(one.X) != seen(two.X)


def test_the_photograph_is_that_of_the_data_set_and_its_colors_are_parts():
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


def test_a_block_is_one_square_in_the_middle_with_the_share_that_is_asked_for():
    block = dataclasses.replace(IMAGE, mask="block", missing=16 / GRAY.size)
    posed = make_task(block, 0)
    assert sorted(hidden(posed)) == [(r, c) for r in range(4, 8) for c in range(2, 6)]
    assert hidden(posed) == hidden(make_task(block, 5))  # the same for every seed


def test_made_up_ratings_are_whole_stars_and_each_user_has_as_many_as_told():
    posed = make_task(MADE_UP, 0)
    every = seen(posed.X) | hidden(posed)
    assert set(every.values()) <= {1.0, 2.0, 3.0, 4.0, 5.0}
    assert len(set(every.values())) > 2
    users = [row for row, _ in every]
    assert [users.count(user) for user in range(12)] == [7] * 12
    assert posed.X.shape == (12, 20)
    other = make_task(dataclasses.replace(MADE_UP, missing=0.0), 9)
    assert seen(other.X) == every  # the ratings are the same whatever the seed


@BY_NAME
def test_entries_that_are_held_out_were_observed_and_are_gone(problem):
    posed = make_task(problem, 2)
    search = hold_out_validation(posed, 2)
    before, after = seen(posed.X), seen(search.X)
    rows, cols, values = search.validation_entries
    held = dict(zip(zip(rows, cols, strict=True), values, strict=True))
    assert held
    assert held.items() <= before.items()
    assert not held.keys() & after.keys()
    assert held | after == before
    assert seen(posed.X) == before  # the problem itself is not touched
    assert len(held) <= round(0.1 * len(before))
    assert hidden(search) == hidden(posed)
    assert search.is_picture == posed.is_picture
    assert sparse.issparse(search.X) == sparse.issparse(posed.X)


def test_a_tenth_is_held_out_by_the_seed():
    large = dataclasses.replace(LOW, options={"m": 40, "n": 30, "rank": 2})
    posed = make_task(large, 0)
    one, again, other = (
        hold_out_validation(posed, seed).validation_entries for seed in (1, 1, 2)
    )
    assert len(one[2]) == round(0.1 * (1200 - 444))
    np.testing.assert_array_equal(one[0], again[0])
    assert not np.array_equal(one[0], other[0])


def test_data_that_are_not_there_are_told(data):
    (data / "pictures" / "a.pgm").unlink()
    shutil.rmtree(data / "ml-100k")
    for problem in (IMAGE, MOVIES):
        with pytest.raises(DataNotFoundError):
            make_task(problem, 0)
    (data / "pictures").rmdir()
    with pytest.raises(DataNotFoundError, match=r"looked for pictures in"):
        make_task(IMAGE, 0)
