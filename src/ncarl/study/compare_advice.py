"""Which method to go on with, and why.

All methods have been scored on the same draws, so their errors are compared draw by
draw: what makes one draw harder than another is the same for both and falls out of the
differences.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ncarl.study.cells import DONE, OVER
from ncarl.study.compare_lines import Line

#: The yardstick that is always shown; no method of its own.
MEAN = "mean"
#: Row and column effects: a method, and a yardstick.
BIAS = "bias"
#: Methods that say how far off a filled entry may be.
WITH_ERROR_BARS = ("bayes",)
#: Less than this is no difference in time worth a word.
FASTER = 1.5


@dataclass(frozen=True)
class Recommendation:
    """A method to go on with.

    Attributes
    ----------
    method : str or None
        Its name; None where no method was done on all draws.
    ties : tuple of str
        Methods that are not worse than the best beyond chance, the best first.
    reason : str
        A sentence or two.
    warnings : tuple of str
        What speaks against trusting it.
    """

    method: str | None
    ties: tuple[str, ...]
    reason: str
    warnings: tuple[str, ...] = ()

    def record(self) -> dict[str, Any]:
        """The recommendation as JSON can hold it."""
        content = asdict(self)
        return {**content, "ties": list(self.ties), "warnings": list(self.warnings)}


def paired(one: Line, other: Line) -> tuple[float, float]:
    """By how much the error of one method is larger, and the standard error of that.

    Both are taken over the differences of the draws that both have; the standard error
    is 0 where there is but one.

    Examples
    --------
    >>> from ncarl.study.compare_lines import Fit
    >>> one = Line("a", tuple(Fit("a", k, error=e) for k, e in enumerate([1.0, 2.0])))
    >>> other = Line("b", tuple(Fit("b", k, error=e) for k, e in enumerate([0.5, 1.3])))
    >>> difference, standard_error = paired(one, other)
    >>> round(difference, 6), round(standard_error, 6)
    (0.6, 0.1)
    """
    theirs = other.errors
    differences = [e - theirs[draw] for draw, e in one.errors.items() if draw in theirs]
    if not differences:
        raise ValueError(f"{one.method} and {other.method} share no draw")
    mean = sum(difference / len(differences) for difference in differences)
    if len(differences) < 2:
        return mean, 0.0
    return mean, statistics.stdev(differences) / math.sqrt(len(differences))


def recommend(lines: Sequence[Line], *, by_column: bool) -> Recommendation:
    """The method to go on with.

    The method with the least mean error is the best. Those whose error is larger by no
    more than one standard error of the paired differences tie with it. Of these one
    with error bars is taken, else the fastest.

    Parameters
    ----------
    lines : sequence of Line
        What was found; the yardstick "mean" among them is never recommended.
    by_column : bool
        Whether that mean is one of each column.
    """
    whole = [line for line in lines if line.status == DONE and line.error is not None]
    able = [line for line in whole if line.method != MEAN]
    if not able:
        return Recommendation(None, (), "no method was done on all draws")
    best = min(able, key=_error)
    ties = sorted((line for line in able if _ties(line, best)), key=_error)
    chosen = min(ties, key=_preference)
    names = tuple(line.method for line in ties)
    reason = _reason(chosen, best, ties)
    # While a stopped method was ahead, nobody knows what beats what.
    warnings = _unfinished(best, lines) or _yardsticks(best, whole, by_column)
    warnings += _doubts(chosen)
    return Recommendation(chosen.method, names, reason, tuple(warnings))


def _error(line: Line) -> float:
    """The mean error of a line that has one."""
    assert line.error is not None
    return line.error


def _ties(line: Line, best: Line) -> bool:
    """Whether a method is not worse than the best beyond chance."""
    difference, chance = paired(line, best)
    return line is best or difference <= chance


def _preference(line: Line) -> tuple[bool, float]:
    """What tied methods are ranked by: error bars, then speed."""
    seconds = math.inf if line.seconds is None else line.seconds
    return line.method not in WITH_ERROR_BARS, seconds


def _reason(chosen: Line, best: Line, ties: Sequence[Line]) -> str:
    """Why a method is recommended, in a sentence or two."""
    others = [line for line in ties if line is not chosen]
    if chosen is not best:
        gain = _times_faster(chosen, best)
        virtue = "it gives error bars" if chosen.method in WITH_ERROR_BARS else "faster"
        if virtue == "faster" and gain is not None:
            virtue = f"{gain} times faster"
        return (
            f"{chosen.method}: error {_figure(chosen)}, not worse beyond chance than "
            f"{best.method} with {_figure(best)}, and {virtue}."
        )
    first = f"{chosen.method}: least error {_figure(chosen)}"
    if not others:
        return f"{first}."
    quick = [line for line in others if _times_faster(line, chosen) is not None]
    if not quick:
        verb = "is" if len(others) == 1 else "are"
        names = _listed([line.method for line in others])
        return f"{first}; {names} {verb} not worse beyond chance."
    fastest = min(quick, key=lambda line: line.seconds or 0.0)
    gain = _times_faster(fastest, chosen)
    return (
        f"{first}; {fastest.method} is not worse beyond chance and {gain} times faster."
    )


def _figure(line: Line) -> str:
    """The error of a method in words."""
    spread = "" if line.spread is None else f" (\N{PLUS-MINUS SIGN} {line.spread:.2g})"
    return f"{_error(line):.4g}{spread}"


def _times_faster(one: Line, other: Line) -> str | None:
    """How many times faster one method is; None where that is not worth a word."""
    if one.seconds is None or other.seconds is None:
        return None
    ratio = other.seconds / max(one.seconds, 1e-3)
    if ratio < FASTER:
        return None
    return f"{ratio:.1f}" if ratio < 3.0 else f"{ratio:.0f}"


def _yardsticks(best: Line, whole: Sequence[Line], by_column: bool) -> list[str]:
    """A warning if the best method does not beat what costs nothing."""
    mean = "the mean of each column" if by_column else "the mean of all entries"
    names = {MEAN: mean, BIAS: "row and column effects (bias)"}
    for name, words in names.items():
        for yardstick in (line for line in whole if line.method == name):
            difference, chance = paired(yardstick, best)
            if yardstick is best or difference <= chance:
                return [
                    f"nothing here beats {words} beyond chance; the gaps may not be "
                    "predictable from the rest"
                ]
    return []


def _unfinished(best: Line, lines: Sequence[Line]) -> list[str]:
    """A warning for methods that were stopped while they were ahead."""
    ahead = [
        line.method
        for line in lines
        if line.status == OVER and line.error is not None and line.error < _error(best)
    ]
    if not ahead:
        return []
    verb = "was" if len(ahead) == 1 else "were"
    return [
        f"{_listed(ahead)} {verb} ahead when stopped at the budget; a larger budget "
        "may change the advice"
    ]


def _doubts(chosen: Line) -> list[str]:
    """Warnings about the figures of the method itself."""
    found = []
    if len(chosen.fits) < 2:
        found.append(
            "one draw cannot tell a difference from chance; ask for 3 repeats or more"
        )
    unsettled = sum(fit.settled is False for fit in chosen.fits)
    if unsettled:
        found.append(
            f"{unsettled} of {len(chosen.fits)} fits of {chosen.method} did not settle "
            "within the steps allowed; more steps may do better"
        )
    return found


def _listed(names: Sequence[str]) -> str:
    """Names in a row."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
