"""How a report writes numbers."""

from __future__ import annotations

import math

#: What stands where there is no value.
NOTHING = "\N{EN DASH}"
MINUS = "\N{MINUS SIGN}"


def number(value: float | None, measure: str, digits: int = 3) -> str:
    """An error with four decimals as the paper prints it; seconds with few digits.

    Parameters
    ----------
    value : float or None
        What to write; a dash where there is nothing.
    measure : {"error", "seconds"}
        What it is.
    digits : int
        Significant digits of seconds.

    Examples
    --------
    >>> number(0.13088, "error"), number(1234.5, "seconds"), number(0.0517, "seconds")
    ('0.1309', '1230', '0.0517')
    >>> number(None, "error") == NOTHING
    True
    """
    if value is None or not math.isfinite(value):
        return NOTHING
    if measure == "error":
        return _signed(f"{value:.4f}")
    rounded = float(f"{value:.{digits - 1}e}")
    if rounded == 0.0:
        return "0"
    decimals = digits - 1 - math.floor(math.log10(abs(rounded)))
    return _signed(f"{rounded:.{max(decimals, 0)}f}")


def deviation(value: float | None, measure: str) -> str:
    """A standard deviation after a plus-minus sign; nothing where there is none.

    Examples
    --------
    >>> deviation(0.00123, "error"), deviation(1e-6, "error"), deviation(None, "error")
    (' ± 0.0012', ' ± <0.0001', '')
    """
    if value is None or not math.isfinite(value):
        return ""
    if measure == "error" and 0.0 < value < 5e-5:
        return " ± <0.0001"
    return f" ± {number(value, measure, digits=2)}"


def difference(ours: float, theirs: float, measure: str) -> str:
    """Ours minus theirs with its sign; of errors, to the digits that are shown.

    Examples
    --------
    >>> difference(0.1309, 0.1209, "error"), difference(0.13091, 0.1309, "error")
    ('+0.0100', '0.0000')
    """
    if measure == "error":
        ours, theirs = round(ours, 4), round(theirs, 4)
    text = number(ours - theirs, measure)
    if float(text.replace(MINUS, "-")) == 0.0:
        return text.lstrip(MINUS)
    return text if text.startswith(MINUS) else f"+{text}"


def reaches(ours: float, theirs: float, measure: str) -> bool:
    """Whether ours is at most theirs, to the digits that the paper prints.

    Examples
    --------
    >>> reaches(0.13094, 0.1309, "error"), reaches(0.1311, 0.1309, "error")
    (True, False)
    """
    if measure == "error":
        return bool(round(ours, 4) <= round(theirs, 4))
    return bool(ours <= theirs)


def _signed(text: str) -> str:
    """A number with a minus sign that is as wide as a plus."""
    return text.replace("-", MINUS)
