"""Tests of parameter checks: accepted values and error messages."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from ncarl.validation import (
    as_list,
    check_choice,
    check_flag,
    check_fraction,
    check_integer,
    check_number,
)


def test_numbers_of_any_type_are_accepted():
    assert check_number("x", np.float32(0.5), low=0.0) == 0.5
    assert check_number("x", Fraction(1, 2), low=0.0) == 0.5
    assert check_fraction("x", 0) == 0.0
    assert check_integer("x", np.int8(3), low=1, high=3) == 3
    assert check_integer("x", 4.0, low=1) == 4
    assert check_flag("x", np.True_) is True
    assert check_choice("x", None, ("a", None)) is None


@pytest.mark.parametrize("value", [True, "1", None, [1], 1j])
def test_other_types_raise(value):
    with pytest.raises(TypeError, match="x must be a finite number of at least 0, got"):
        check_number("x", value, low=0.0)
    with pytest.raises(TypeError, match="x must be a whole number of at least 0, got"):
        check_integer("x", value, low=0)


@pytest.mark.parametrize("value", [np.nan, np.inf, -1, 1e101, 10**400])
def test_numbers_out_of_range_raise(value):
    with pytest.raises(ValueError, match=r"x must be .*got .*; do that"):
        check_number("x", value, low=0.0, hint="; do that")


def test_error_names_the_bounds():
    with pytest.raises(ValueError, match="x must be a finite number above 0, got 0"):
        check_number("x", 0, low=0.0, strict=True)
    with pytest.raises(ValueError, match="x must be below 1, got 1"):
        check_fraction("x", 1)
    with pytest.raises(ValueError, match="x must be a whole number from 1 to 3, got 4"):
        check_integer("x", 4, low=1, high=3)
    with pytest.raises(ValueError, match=r"whole number of at least 1, got 1\.5"):
        check_integer("x", 1.5, low=1)
    with pytest.raises(ValueError, match="x must be one of 'a', None, got 'b'"):
        check_choice("x", "b", ("a", None))
    with pytest.raises(TypeError, match="x must be True or False, got 1"):
        check_flag("x", 1)


def test_scalar_or_sequence():
    assert as_list("x", "ab") == ["ab"]
    assert as_list("x", (1, 2)) == [1, 2]
    with pytest.raises(ValueError, match=r"x must hold at least one value, got \[\]"):
        as_list("x", [])
