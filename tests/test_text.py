"""Tests of names and numbers as text."""

from __future__ import annotations

import math
import unicodedata

from hypothesis import given, strategies as st

from ncarl.text import (
    format_number,
    join_names,
    quote,
    shorten,
    to_printable,
    to_terminal,
)


def test_names_are_joined_and_the_rest_is_counted():
    assert join_names([]) == ""
    assert join_names(["a"], last=" and ") == "a"
    assert join_names(["a", "b"], last=" and ") == "a and b"
    assert join_names("abc", 3) == "a, b, c"
    assert join_names(range(2000), 1) == "0 and 1,999 more"


@given(st.text(), st.integers(4, 40))
def test_a_shortened_text_keeps_its_ends(text, length):
    short = shorten(text, length)
    assert len(short) <= length
    assert short == text or (short[0], short[-1]) == (text[0], text[-1])


def test_missing_numbers_are_a_dash():
    assert format_number(0.5) == "0.5"
    assert [format_number(x) for x in (None, math.nan, -math.inf)] == ["-"] * 3
    assert format_number(None, empty="none") == "none"


def test_surrogates_are_replaced():
    assert to_printable("a\udcffb") == "a?b"


def test_long_names_are_shortened():
    names = ["a" * 10_000, "b", "c" * 10_000]
    assert len(join_names(names)) < 500 and len(join_names(names, 2, form=repr)) < 500
    assert len(quote(names[0])) == 200 and quote("b\x1b") == r"'b\x1b'"


@given(st.text())
def test_terminals_get_no_control_characters(text):
    shown = to_terminal(text)
    assert all(c in "\t\n" or unicodedata.category(c) != "Cc" for c in shown)
    assert not set(shown) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068")
    assert to_terminal("a\tb\n\x1b[2Jä\x9b1m\r\udcff") == "a\tb\n\\x1b[2Jä\\x9b1m\\r?"
