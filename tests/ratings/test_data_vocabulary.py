"""Ids of every kind: order, look-up, JSON, and what is refused."""

from __future__ import annotations

import json
from uuid import UUID, uuid4

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, strategies as st

from ncarl.ratings import UnknownIdError
from ncarl.ratings.data import Vocabulary

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


@given(COLUMN)
def test_ids_survive_json(column):
    ids, _ = Vocabulary.from_column("item", column)
    again = Vocabulary.from_json("item", json.loads(json.dumps(ids.to_json())))
    assert again == ids
    assert all(
        type(a) is type(b) for a, b in zip(again.values, ids.values, strict=True)
    )


def test_numpys_own_types_are_plain_ids():
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
def test_what_is_no_id_is_refused(column, error, words):
    with pytest.raises(error, match=words):
        Vocabulary.from_column("user", column)


def test_a_stranger_is_told_what_ids_look_like():
    numbers, _ = Vocabulary.from_column("user", [7, 12])
    with pytest.raises(UnknownIdError, match=r"user '7' is not known; did you mean 7"):
        numbers.position_of("7")
    with pytest.raises(UnknownIdError, match="there are 2 users, such as 7, 12"):
        numbers.position_of("x")
    texts, _ = Vocabulary.from_column("item", ["7"])
    with pytest.raises(LookupError, match=r"did you mean '7' \(str\)$"):
        texts.position_of(7)
    assert numbers.find([7]) is None and numbers.find(True) is None
    ones, _ = Vocabulary.from_column("user", [1])
    assert ones.find(True) is None and ones.find(1) == 0


def test_a_text_names_the_id_that_is_written_so():
    one = UUID("12345678123456781234567812345678")
    assert Vocabulary.from_column("user", [one])[0].parse(str(one)) == one
    assert Vocabulary.from_column("user", [7])[0].parse("7") == 7
    assert Vocabulary.from_column("user", [7])[0].parse("seven") is None
