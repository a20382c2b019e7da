"""Checks of parameters: errors name the parameter, what was expected and the value.

`sklearn.utils.check_scalar` is not used: it rejects whole numbers given as floats, and
its errors suggest no remedy.
"""

from __future__ import annotations

import numbers
from collections.abc import Iterable
from typing import Any

import numpy as np

from ncarl.text import join_names

#: Beyond this the squares in a fit would overflow.
MAX_NUMBER = 1e100


def check_number(
    name: str, value: Any, *, low: float, strict: bool = False, hint: str = ""
) -> float:
    """``value`` as a float of at least (or above) ``low``, at most `MAX_NUMBER`."""
    wanted = (
        f"{name} must be a finite number {'above' if strict else 'of at least'} {low:g}"
    )
    if not is_number(value):
        raise TypeError(f"{wanted}, got {value!r}{hint}")
    number = as_float(value)
    if not np.isfinite(number) or number < low or (strict and number == low):
        raise ValueError(f"{wanted}, got {value!r}{hint}")
    if number > MAX_NUMBER:
        raise ValueError(f"{name} must be at most {MAX_NUMBER:g}, got {value!r}{hint}")
    return number


def check_fraction(
    name: str, value: Any, *, strict: bool = False, closed: bool = False, hint: str = ""
) -> float:
    """``value`` as a float of at least (or above) 0 and below (or up to) 1."""
    number = check_number(name, value, low=0.0, strict=strict, hint=hint)
    if number > 1.0 or (number == 1.0 and not closed):
        bound = "at most" if closed else "below"
        raise ValueError(f"{name} must be {bound} 1, got {value!r}{hint}")
    return number


def check_integer(
    name: str, value: Any, *, low: int, high: int | None = None, hint: str = ""
) -> int:
    """``value`` as a whole number of at least ``low``, and at most ``high``."""
    between = f"of at least {low}" if high is None else f"from {low} to {high}"
    wanted = f"{name} must be a whole number {between}"
    if not is_number(value):
        raise TypeError(f"{wanted}, got {value!r}{hint}")
    number = as_float(value)
    if not number.is_integer() or number < low or (high is not None and number > high):
        raise ValueError(f"{wanted}, got {value!r}{hint}")
    return int(number)


def check_choice(name: str, value: Any, choices: Iterable[Any]) -> Any:
    """``value`` if it is one of the choices."""
    allowed = tuple(choices)
    if not isinstance(value, str | None) or value not in allowed:
        listed = join_names(allowed, form=repr)
        raise ValueError(f"{name} must be one of {listed}, got {value!r}")
    return value


def check_flag(name: str, value: Any) -> bool:
    """``value`` if it is True or False."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def as_list(name: str, values: Any) -> list[Any]:
    """A parameter that may be one value or several, as a list that is not empty."""
    if values is None or isinstance(values, str) or not hasattr(values, "__iter__"):
        return [values]
    items = list(values)
    if not items:
        raise ValueError(f"{name} must hold at least one value, got {values!r}")
    return items


def is_number(value: Any) -> bool:
    """Whether ``value`` is a real number, and not a flag."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool | np.bool_)


def as_float(value: Any) -> float:
    """``value`` as a float, infinite where it is too large for one."""
    try:
        return float(value)
    except OverflowError:
        return float("inf")
