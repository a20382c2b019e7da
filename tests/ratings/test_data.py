"""Tests of ratings input: frames, columns and rows, duplicates, ids, errors."""

from __future__ import annotations

from uuid import UUID, uuid4

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, strategies as st

from ncarl.datasets import Ratings
from ncarl.ratings import UnknownIdError
from ncarl.ratings.data import (
    Vocabulary,
    merge_duplicates,
    parse_ratings,
    read_columns,
    read_pairs,
    read_user_ratings,
)

NAMES = ("user", "item", "rating")
ROWS = [("a", "x", 5), ("b", "x", 3), ("a", "y", 1)]
COLUMNS = [["a", "b", "a"], ["x", "x", "y"], [5, 3, 1]]


@pytest.mark.parametrize(
    "table, library",
    [
        (ROWS, "plain"),
        ([list(row) for row in ROWS], "plain"),
        (tuple(COLUMNS), "plain"),
        (tuple(np.array(c) for c in COLUMNS), "plain"),
        (np.array(ROWS, dtype=object), "plain"),
        (dict(zip(NAMES, COLUMNS, strict=True)), "plain"),
        (pd.DataFrame(ROWS, columns=NAMES), "pandas"),
        (pd.DataFrame(ROWS, columns=NAMES).astype({"user": "category"}), "pandas"),
        (pd.DataFrame(ROWS, columns=NAMES).assign(t=0)[["t", *NAMES[::-1]]], "pandas"),
        (pl.DataFrame(ROWS, schema=NAMES, orient="row"), "polars"),
    ],
)
def test_all_table_types_are_equivalent(table, library):
    assert read_columns(table, NAMES) == (COLUMNS, library)


def test_data_sets_use_the_ids_of_their_source():
    ids = np.array([10, 20])
    who, what, stars = np.array([0, 1]), np.array([1, 0]), np.array([5.0, 3.0])
    few = Ratings(who, what, stars, None, (2, 2), ids, ids + 5, "few")
    assert read_columns(few, NAMES)[0] == [[10, 20], [25, 15], [5.0, 3.0]]


@pytest.mark.parametrize(
    "table, error, words",
    [
        (pd.DataFrame({"user": [1], "item": [1]}), ValueError, "no column 'rating'"),
        ({"user": [1], "item": [1]}, ValueError, "columns are 'user', 'item'"),
        (pd.DataFrame([[1, 2, 3, 4]], columns=[*NAMES, "user"]), ValueError,
         "2 columns named 'user'"),
        (pl.LazyFrame({"user": [1]}), TypeError, r"call collect\(\)"),
        ("ratings.csv", TypeError, "must be a DataFrame"),
        (5, TypeError, "must be a DataFrame"),
        ([("a", "x")], ValueError, "row 0 has 2 values"),
        ([("a", "x", 1), "abc"], TypeError, "got 'abc' as row 1"),
        (([1], [2, 3], [4]), ValueError, "user has 1, item has 2, rating has 1"),
    ],
)  # fmt: skip
def test_invalid_table_raises(table, error, words):
    with pytest.raises(error, match=words):
        read_columns(table, NAMES)


@pytest.mark.parametrize(
    "column, error, words",
    [
        ([5, None], ValueError, "rating is missing in row 1"),
        ([float("nan"), 5, None], ValueError, "missing in row 0, and in 1 more"),
        ([pd.NA, 1], ValueError, "missing in row 0"),
        ([1.0, float("inf")], ValueError, "infinite in row 1"),
        (["5", 3], TypeError, "numbers, got '5' of type str in row 0"),
        ([3, [1]], TypeError, r"got \[1\] of type list in row 1"),
    ],
)
def test_missing_or_non_numeric_ratings_raise(column, error, words):
    with pytest.raises(error, match=words):
        parse_ratings(column, "rating")


PAIR = st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(1, 5))


@given(st.lists(PAIR, min_size=1))
def test_duplicates_follow_their_rule(rows):
    u, i, v = (np.array(column) for column in zip(*rows, strict=True))
    last, all_of = {}, {}
    for a, b, c in rows:
        last[a, b] = c
        all_of.setdefault((a, b), []).append(c)
    means = {pair: np.mean(stars) for pair, stars in all_of.items()}
    for rule, wanted in (("last", last), ("mean", means)):
        a, b, c, fault = merge_duplicates(u, i, v.astype(float), 3, rule)
        assert fault is None
        found = {(x, y): z for x, y, z in zip(*map(list, (a, b, c)), strict=True)}
        assert found == pytest.approx(wanted)
    fault = merge_duplicates(u, i, v.astype(float), 3, "error")[3]
    again = [k for k, row in enumerate(rows) if len(all_of[row[:2]]) > 1]
    assert fault == (again[0] if again else None)


def test_pairs_are_broadcast():
    assert read_pairs("a", "x") == (["a"], ["x"], True)
    assert read_pairs("a", ["x", "y"]) == (["a", "a"], ["x", "y"], False)
    assert read_pairs(np.array([1, 2]), 7) == ([1, 2], [7, 7], False)
    assert read_pairs(pd.Series(["a"]), pl.Series(["x"])) == (["a"], ["x"], False)
    with pytest.raises(ValueError, match="one length, got 2 and 3"):
        read_pairs([1, 2], [1, 2, 3])
    who, what, single = read_pairs(1, (item for item in [100, 101]))
    assert (who, what, single) == ([1, 1], [100, 101], False)
    one = UUID(int=1)
    assert read_pairs(one, {7: "seven"}.keys()) == ([one], [7], False)
    assert read_pairs(np.int64(3), one)[2]


def test_ratings_of_one_user_have_four_forms():
    wanted = [["x", "y"], [5, 1]]
    names = ("item", "rating")
    for table in (
        {"x": 5, "y": 1},
        [("x", 5), ("y", 1)],
        (["x", "y"], [5, 1]),
        pd.DataFrame({"item": ["x", "y"], "rating": [5, 1]}),
    ):
        assert read_user_ratings(table, names) == wanted


# --- ids -----------------------------------------------------------------------------

COLUMN = st.one_of(
    st.lists(st.text(), min_size=1),
    st.lists(st.integers(-(10**30), 10**30), min_size=1),
    st.lists(st.uuids(), min_size=1),
)


@given(COLUMN)
def test_every_entry_is_found_at_its_place(column):
    ids, codes = Vocabulary.from_column("user", column)
    assert [ids.values[k] for k in codes] == column
    assert ids.values == tuple(sorted(set(column)))
    assert [ids.position_of(value) for value in column] == codes.tolist()
    assert ids.encode(column).tolist() == codes.tolist()


def test_numpy_scalars_are_converted_to_plain_ids():
    ids, codes = Vocabulary.from_column("user", [np.int64(3), 1, np.uint8(3)])
    assert ids.values == (1, 3) and codes.tolist() == [1, 0, 1]
    assert all(type(value) is int for value in ids.values)
    assert Vocabulary.from_column("user", [np.str_("b")])[0].values == ("b",)
    assert ids.find(np.int32(3)) == 1


@pytest.mark.parametrize(
    "column, error, words",
    [
        (["a", 1], ValueError, r"one kind, got int \(1\) and str \('a'\)"),
        ([uuid4(), "a"], ValueError, "one kind, got str .* and uuid"),
        ([1.0, 2.0], TypeError, r"got 1.0 of type float in row 0.*integers"),
        ([1, 2.5], TypeError, "got 2.5 of type float in row 1.*text"),
        ([True], TypeError, "got True of type bool"),
        ([("a", "b")], TypeError, "of type tuple"),
        (["a", None], ValueError, "user is missing in row 1"),
        ([1, float("nan")], ValueError, "user is missing in row 1"),
        (["a", pd.NA], ValueError, "user is missing in row 1"),
        ([pd.NaT], ValueError, "user is missing in row 0"),
    ],
)
def test_invalid_id_raises(column, error, words):
    with pytest.raises(error, match=words):
        Vocabulary.from_column("user", column)


def test_unknown_id_error_shows_example_ids():
    numbers, _ = Vocabulary.from_column("user", [7, 12])
    with pytest.raises(UnknownIdError, match=r"user '7' is not known; did you mean 7"):
        numbers.position_of("7")
    with pytest.raises(UnknownIdError, match="there are 2 users, such as 7, 12"):
        numbers.position_of("x")
    one, _ = Vocabulary.from_column("user", [UUID(int=1)])
    with pytest.raises(UnknownIdError, match=r"did you mean UUID\(.*01'\)"):
        one.position_of(str(UUID(int=1)))
    texts, _ = Vocabulary.from_column("item", ["7"])
    with pytest.raises(LookupError, match=r"did you mean '7' \(str\)$"):
        texts.position_of(7)
    assert numbers.find([7]) is None and numbers.find(True) is None
    assert numbers.parse("seven") is None and numbers.parse("12") == 12
    ones, _ = Vocabulary.from_column("user", [1])
    assert ones.find(True) is None and ones.find(1) == 0
