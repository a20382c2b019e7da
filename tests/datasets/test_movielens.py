"""Tests of MovieLens loaders: original archives and NPZ files."""

from __future__ import annotations

import dataclasses
import zipfile

import numpy as np
import pytest

from ncarl.datasets import (
    DataNotFoundError,
    TermsNotAcceptedError,
    load_movielens,
    load_movielens_split,
    movielens,
)
from ncarl.datasets.movielens import RELEASES
from ncarl.exceptions import BrokenFileError

#: user, item, rating, timestamp
ROWS = [(3, 2, 4, 881250949), (1, 5, 3, 891717742), (3, 5, 1, 878887116), (1, 1, 5, 7)]
HALVES = [(u, 10 * i, r - 0.5, t) for u, i, r, t in ROWS]
HEADER = "userId,movieId,rating,timestamp\n"


def join(rows, separator):
    return "".join(separator.join(map(str, row)) + "\n" for row in rows)


CSV = HEADER + join(HALVES, ",")
#: Release -> name of the table in the archive, its text and its rows.
FILES = {
    "100k": ("ml-100k/u.data", join(ROWS, "\t"), ROWS),
    "1m": ("ml-1m/ratings.dat", join(ROWS, "::"), ROWS),
    "10m": ("ml-10M100K/ratings.dat", join(HALVES, "::"), HALVES),
    "25m": ("ml-25m/ratings.csv", CSV, HALVES),
    "latest-small": ("ml-latest-small/ratings.csv", CSV, HALVES),
}
SHAPES = {"100k": (3, 5), "1m": (4, 6)}


@pytest.fixture(autouse=True)
def tiny_releases(monkeypatch):
    """Replace the counts of all releases by those of the tiny files."""
    for name, release in RELEASES.items():
        changes = {"shape": SHAPES.get(name), "counts": (2, 3, 4)}
        if name == "latest-small":
            changes["counts"] = None
        monkeypatch.setitem(RELEASES, name, dataclasses.replace(release, **changes))


def pack(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return path


def unpack(folder, members):
    for name, text in members.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def rows_of(ratings):
    """The loaded rows in terms of the source ids."""
    users, items = ratings.user_ids[ratings.users], ratings.item_ids[ratings.items]
    found = zip(users, items, ratings.ratings, ratings.timestamps, strict=True)
    return [tuple(row) for row in found]


@pytest.mark.parametrize("name", FILES)
def test_archives_and_folders_are_read(name, tmp_path):
    member, text, rows = FILES[name]
    pack(tmp_path / "some.zip", {member: text, "other/u.data": "9\t9\t9\t9\n"})
    unpack(tmp_path / "whole", {member: text})
    top = tmp_path / "whole" / member.split("/")[0]
    for source in (tmp_path / "some.zip", tmp_path / "whole", top):
        ratings = load_movielens(name, source=source)
        assert rows_of(ratings) == rows
        assert ratings.ratings.dtype == np.float64
        assert ratings.name == RELEASES[name].name
        # Only old releases have rows and columns without ratings.
        assert ratings.shape == SHAPES.get(name, (2, 3))
        assert ratings.shape == (len(ratings.user_ids), len(ratings.item_ids))


def test_matrix_stores_ratings_at_their_positions(tmp_path):
    unpack(tmp_path, {"u.data": FILES["100k"][1]})
    ratings = load_movielens("100k", source=tmp_path)
    X = ratings.matrix()
    assert X.shape == (3, 5)
    assert X.nnz == len(ratings) == 4
    for user, item, stars, _ in ROWS:
        assert X[user - 1, item - 1] == stars
    some = ratings.matrix(np.array([False, True, False, True]))
    assert np.array_equal(some.toarray(), ratings.matrix([3, 1]).toarray())
    assert some.nnz == 2
    assert some.shape == X.shape
    assert ratings.matrix(np.zeros(4, dtype=bool)).nnz == 0
    assert ratings.matrix([]).nnz == 0


@pytest.mark.parametrize("entries", [[True, False], [0.0, 1.0]])
def test_invalid_entries_raise(entries, tmp_path):
    unpack(tmp_path, {"u.data": FILES["100k"][1]})
    with pytest.raises(ValueError, match="entries must"):
        load_movielens("100k", source=tmp_path).matrix(entries)


@pytest.mark.parametrize("size", [1, 20, 1000])
@pytest.mark.parametrize("end", ["", "\n\n"])
def test_chunks_may_end_anywhere(size, end, tmp_path, monkeypatch):
    monkeypatch.setattr(movielens, "PARSE_CHUNK_BYTES", size)
    for name, (member, text, rows) in FILES.items():
        unpack(tmp_path, {member: text.rstrip("\n") + end})
        assert rows_of(load_movielens(name, source=tmp_path)) == rows


def write_arrays(path, rows=ROWS, **others):
    user, item, rating, timestamp = np.array(rows).T
    columns = {"user": user, "item": item, "rating": rating, "timestamp": timestamp}
    columns = {name: column.astype(np.int32) for name, column in columns.items()}
    arrays = {**columns, **others}
    np.savez(path, **{name: a for name, a in arrays.items() if a is not None})
    return path


def test_npz_file_is_read(data):
    write_arrays(data / "ml-100k.npz")
    assert rows_of(load_movielens("100k")) == ROWS
    write_arrays(data / "ml-1m.npz", timestamp=None)
    assert load_movielens("1m").timestamps is None
    write_arrays(data / "ml-10m.npz", rating=np.float32([0.5, 3.5, 1.0, 5.0]))
    assert list(load_movielens("10m").ratings) == [0.5, 3.5, 1.0, 5.0]


def test_order_of_searched_files(data, cache, tmp_path):
    stars = {}
    for number, place in enumerate(("cache", "folder", "zip", "npz", "source"), 1):
        stars[place] = [*ROWS[:3], (1, 1, number, 7)]
    text = {place: join(rows, "\t") for place, rows in stars.items()}
    places = (
        ("cache", lambda: pack(cache / "ml-100k.zip", {"u.data": text["cache"]})),
        ("folder", lambda: unpack(data / "ml-100k", {"u.data": text["folder"]})),
        ("zip", lambda: pack(data / "ml-100k.zip", {"u.data": text["zip"]})),
        ("npz", lambda: write_arrays(data / "ml-100k.npz", stars["npz"])),
    )
    cache.mkdir(parents=True)
    for place, write in places:
        write()
        assert rows_of(load_movielens("100k", download=False)) == stars[place]
    given = pack(tmp_path / "x.zip", {"u.data": text["source"]})
    assert rows_of(load_movielens("100k", source=given)) == stars["source"]


BROKEN = {
    "too few": join(ROWS[:3], "\t"),
    "users beyond the shape": join([(u + 1, *others) for u, *others in ROWS], "\t"),
    "a foreign user": join([*ROWS[:3], (4, 1, 5, 7)], "\t"),
    "no such id": join([*ROWS[:3], (0, 1, 5, 7)], "\t"),
    "six stars": join([*ROWS[:3], (1, 1, 6, 7)], "\t"),
    "no stars": join([*ROWS[:3], (1, 1, "nan", 7)], "\t"),
    "a field too few": join([*ROWS[:3], (1, 1, 5)], "\t"),
    "words": join([*ROWS[:3], ("#", 1, 5, 7)], "\t"),
    "a huge id": join([*ROWS[:3], (2**70, 1, 5, 7)], "\t"),
    "another separator": join(ROWS, ";"),
    "nothing": "",
    "blank lines": "\n\n\n",
    "one long line": "1" * 5000,
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
def test_invalid_content_raises(text, tmp_path):
    unpack(tmp_path, {"u.data": text})
    with pytest.raises(BrokenFileError, match=r"u\.data|ml-100k|must hold") as caught:
        load_movielens("100k", source=tmp_path)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        *((CSV + line, "ids of") for line in ("0,1,3,1", "1,-2,3,1", "1,99999999,3,1")),
        (CSV + "#,1,3,1", r"ratings\.csv .* must have lines of user, item, rating"),
        (join(HALVES, ","), "begin with the line userId"),
    ],
)
def test_invalid_lines_raise_without_expected_counts(text, said, tmp_path):
    unpack(tmp_path, {"ratings.csv": text})
    with pytest.raises(BrokenFileError, match=said):
        load_movielens("latest-small", source=tmp_path)


WRONG_ARRAYS = {
    "an array is absent": {"item": None},
    "lengths differ": {"item": np.array([1, 2], np.int32)},
    "fractions for ids": {"user": np.array([1.0, 2.0, 3.0, 3.0])},
    "two dimensions": {"rating": np.ones((4, 1))},
    "no numbers": {"rating": np.array(["a", "b", "c", "d"])},
    "objects": {"rating": np.array([1, 2, 3, None], dtype=object)},
    "nothing": {name: np.zeros(0, int) for name in ("user", "item", "rating")}
    | {"timestamp": None},
}


@pytest.mark.parametrize("arrays", WRONG_ARRAYS.values(), ids=WRONG_ARRAYS)
def test_invalid_arrays_raise(arrays, data):
    write_arrays(data / "ml-100k.npz", **arrays)
    with pytest.raises(BrokenFileError, match=r"ml-100k\.npz"):
        load_movielens("100k")


def test_damaged_files_raise(data, tmp_path):
    whole = write_arrays(data / "ml-100k.npz").read_bytes()
    for damage in (b"", b"nonsense", whole[: len(whole) // 2]):
        (data / "ml-100k.npz").write_bytes(damage)
        with pytest.raises(BrokenFileError, match="damaged"):
            load_movielens("100k")
    np.save(tmp_path / "one.npy", np.ones(3))
    (tmp_path / "one.npy").rename(data / "ml-100k.npz")
    with pytest.raises(BrokenFileError, match="damaged"):
        load_movielens("100k")


def test_damaged_archives_raise(tmp_path):
    path = tmp_path / "ml-100k.zip"
    for damage in (b"", b"nonsense"):
        path.write_bytes(damage)
        with pytest.raises(BrokenFileError, match="neither"):
            load_movielens("100k", source=path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("u.data", FILES["100k"][1])
    content = path.read_bytes()
    path.write_bytes(content.replace(b"881250949", b"881250948"))
    with pytest.raises(BrokenFileError, match="damaged"):
        load_movielens("100k", source=path)


def test_archive_members_need_the_exact_name(tmp_path):
    members = {"../u.data": "", "/u.data": "", "x/ml-100k/u.data": "", "U.DATA": ""}
    path = pack(tmp_path / "ml-100k.zip", dict.fromkeys(members, FILES["100k"][1]))
    with pytest.raises(BrokenFileError, match=r"ml-100k/u\.data or u\.data"):
        load_movielens("100k", source=path)
    assert list(tmp_path.iterdir()) == [path]


def test_too_large_members_raise_before_reading(tmp_path, monkeypatch):
    small = dataclasses.replace(RELEASES["100k"], table_limit=50)
    monkeypatch.setitem(RELEASES, "100k", small)
    text = FILES["100k"][1]
    assert len(text) > 50
    unpack(tmp_path / "folder", {"u.data": text})
    path = pack(tmp_path / "a.zip", {"u.data": text})
    monkeypatch.setattr(zipfile.ZipFile, "open", lambda *_: pytest.fail("was read"))
    for source in (path, tmp_path / "folder"):
        with pytest.raises(BrokenFileError, match=r"takes \d+ bytes"):
            load_movielens("100k", source=source)


def with_split(split, rows):
    member, text, _ = FILES["100k"]
    return {member: text, f"ml-100k/{split}.test": join(rows, "\t")}


@pytest.mark.parametrize("split", ["u1", "ub"])
def test_splits_mark_ratings_of_the_test_file(split, tmp_path, data):
    path = pack(tmp_path / "a.zip", with_split(split, [ROWS[3], ROWS[0]]))
    ratings, test = load_movielens_split(split, source=path)
    assert list(test) == [True, False, False, True]
    assert rows_of(ratings) == ROWS
    write_arrays(data / "ml-100k.npz", **{f"{split}_test": np.array([0, 3], np.int32)})
    ratings, test = load_movielens_split(split)
    assert list(test) == [True, False, False, True]
    assert rows_of(ratings) == ROWS


def test_splits_of_other_ratings_raise(tmp_path, data):
    for rows in ([(3, 2, 3, 1)], [(2, 2, 4, 1)], [(3, 5, 1, 0)] * 2, [(9, 9, 4, 1)]):
        path = pack(tmp_path / "a.zip", with_split("u1", rows))
        with pytest.raises(BrokenFileError, match="u1"):
            load_movielens_split("u1", source=path)
    with pytest.raises(BrokenFileError, match=r"u2\.test"):
        load_movielens_split("u2", source=path)
    for places in ([4], [-1], [0, 0], []):
        array = np.array(places, np.int32)
        write_arrays(data / "ml-100k.npz", u1_test=array)
        with pytest.raises(BrokenFileError, match="u1"):
            load_movielens_split("u1")
    write_arrays(data / "ml-100k.npz")
    with pytest.raises(BrokenFileError, match="u1_test"):
        load_movielens_split("u1")


def test_unknown_release_raises_with_known_names():
    with pytest.raises(ValueError, match="name must be one of '100k', '1m', '10m'"):
        load_movielens("20m")
    with pytest.raises(ValueError, match="split must be one of 'u1'"):
        load_movielens_split("u6")
    with pytest.raises(DataNotFoundError, match="source must be"):
        load_movielens("100k", source="none.zip")


def test_missing_data_is_not_downloaded_by_default(data, cache):
    with pytest.raises(DataNotFoundError, match=r"ml-100k\.npz") as caught:
        load_movielens("100k", download=False, accept_terms=True)
    for words in (str(data), str(cache), "source=", "NCARL_DATA"):
        assert words in str(caught.value)
    with pytest.raises(TermsNotAcceptedError, match="accept_terms=True") as caught:
        load_movielens("100k")
    assert "no redistribution" in str(caught.value)
    assert "Harper" in str(caught.value)


def test_counts_of_latest_releases_are_not_checked(tmp_path):
    member, text, _ = FILES["latest-small"]
    unpack(tmp_path, {member: text + "8,8,0.5,8\n"})
    assert len(load_movielens("latest-small", source=tmp_path)) == 5
    unpack(tmp_path, {FILES["25m"][0]: text + "8,8,0.5,8\n"})
    with pytest.raises(BrokenFileError, match="ml-25m with 2 users, 3 films and 4 rat"):
        load_movielens("25m", source=tmp_path)
