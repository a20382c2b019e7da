"""Names and numbers as text, for messages, tables and figures."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

#: Names of columns or rows that a message lists.
MAX_LISTED = 6
#: Longest name or cell of the data, and longest message, that are shown in full.
MAX_QUOTED, MAX_MESSAGE = 200, 5000
#: Characters that make a terminal do something (colors, the cursor, the direction of
#: the text), but for tabs and line breaks.
CONTROLS = re.compile(r"[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def join_names(
    names: Sequence[Any],
    max_names: int | None = None,
    *,
    form: Callable[[Any], str] = str,
    last: str = ", ",
) -> str:
    """Names with commas between them; beyond ``max_names`` they are counted.

    ``form`` turns a name into text, of which `MAX_QUOTED` characters are shown;
    ``last`` separates the last one.

    >>> join_names("abcdefgh", 6), join_names("abc", last=" and ")
    ('a, b, c, d, e, f and 2 more', 'a, b and c')
    >>> join_names(["a", "b", "c"], 2, form=repr)
    "'a', 'b' and 1 more"
    """
    shown = [shorten(form(name), MAX_QUOTED) for name in names[:max_names]]
    more = len(names) - len(shown)
    if more:
        return f"{', '.join(shown)} and {more:,} more"
    return last.join([", ".join(shown[:-1]), shown[-1]] if shown[1:] else shown)


def count_of(number: int, one: str, many: str = "") -> str:
    """A number and what is counted, in the singular or plural.

    >>> count_of(1, "row"), count_of(1200, "entry", "entries")
    ('1 row', '1,200 entries')
    """
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint with the known name nearest to a misspelled one; empty if none is similar.

    >>> did_you_mean("nuclaer", ["nuclear", "bias"])
    "; did you mean 'nuclear'?"
    """
    near = difflib.get_close_matches(name, known, 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def shorten(text: object, max_length: int) -> str:
    """Text of at most ``max_length`` characters, cut in the middle if it is longer.

    >>> shorten("a name that goes on and on", 11)
    'a name … on'
    """
    whole = str(text)
    if len(whole) <= max_length:
        return whole
    head = max(1, round(0.6 * max_length))
    return f"{whole[:head]}…{whole[len(whole) - (max_length - head - 1) :]}"


def quote(value: object) -> str:
    """A name or a cell of the data in quotation marks, shortened if it is long."""
    return shorten(repr(value), MAX_QUOTED)


def one_line(text: object) -> str:
    r"""Text with single spaces in place of line breaks and other white space.

    >>> one_line("the first line\n  and the second")
    'the first line and the second'
    """
    return " ".join(str(text).split())


def format_number(value: float | None, form: str = ".6g", *, empty: str = "-") -> str:
    """A number, or ``empty`` in place of None, NaN and infinities.

    >>> format_number(0.25, ".0%"), format_number(None), format_number(float("nan"))
    ('25%', '-', '-')
    """
    return format(value, form) if value is not None and math.isfinite(value) else empty


def to_printable(text: object) -> str:
    """``text`` without surrogates, as any file can hold it."""
    return str(text).encode("utf-8", "replace").decode()


def to_terminal(text: object, max_length: int = MAX_MESSAGE) -> str:
    """``text`` as any terminal can show it, without commands to the terminal."""
    short = shorten(to_printable(text), max_length)
    return CONTROLS.sub(lambda c: c[0].encode("unicode_escape").decode(), short)
