"""Control units taken for treated ones: how large an effect chance alone shows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ncarl.bayes.intervals import Scores
from ncarl.core.types import Array
from ncarl.panel.completing import GROUPS, Choice, Completed, Completer
from ncarl.panel.scale import held, mean_of, root_mean_square

#: So many fits, or a few for each pattern: beyond them several control units are
#: hidden together.
MOST_FITS = 60
#: Of several treated units so many groups of control units take the place.
MOST_GROUPS = 999
#: Times of which few placebos tell are taken to be as usual.
DOUBT = 8.0
#: Numbers that are 0 but for rounding are taken for so much of the largest.
LEAST = 1e-9

STATISTICS = ("ratio", "average")


@dataclass(frozen=True)
class Course:
    """A unit that is treated, or taken to be: errors of what was expected of it.

    Attributes
    ----------
    errors, deviations : arrays of shape (entries,)
        Observed minus expected at the treated times, and how far off the expected
        value may be.
    times : array of int, shape (entries,)
        The columns of these entries.
    before : float
        Root mean square of the errors at other times, each predicted without itself.
    """

    errors: Array
    deviations: Array
    times: Array
    before: float

    def scaled(self, factors: Array) -> Course:
        """The same with deviations multiplied by the factors of their times."""
        return replace(self, deviations=self.deviations * factors[self.times])

    def in_units(self, unit: float) -> Course:
        """The same in larger units."""
        with np.errstate(over="ignore"):
            errors, deviations = held(self.errors * unit), held(self.deviations * unit)
        return Course(errors, deviations, self.times, self.before * unit)


@dataclass(frozen=True)
class Placebos:
    """All control units, each taken to be treated as each treated unit was.

    Attributes
    ----------
    units : array of int
        The control units.
    courses : list of lists of Course or None
        By pattern of treated times, then by control unit; None where a unit has too
        few numbers.
    factors : array of shape (patterns, times)
        How much larger errors are than their deviations say, time by time: what is
        expected soon after the start is surer than what is expected years later.
    """

    units: Array
    courses: list[list[Course | None]]
    factors: Array

    def in_units(self, unit: float) -> Placebos:
        """The same with errors in larger units."""
        courses = [
            [None if c is None else c.in_units(unit) for c in found]
            for found in self.courses
        ]
        return replace(self, courses=courses)

    def tells_of(self, pattern: int) -> bool:
        """Whether any control unit could be taken to be treated at those times."""
        return any(course is not None for course in self.courses[pattern])


@dataclass(frozen=True)
class PlaceboTest:
    """How unusual the treated units are among control units taken for treated ones.

    Attributes
    ----------
    p_value : float
        ``(1 + as large) / (1 + placebos)``: the part of all units, the treated one
        among them, whose statistic is at least as large as that of the treated.
    statistic : float
        That of the treated units.
    placebos : array
        Those of the control units, or of groups of them where several are treated.
    units : tuple
        The control units, in the order of ``placebos``; empty for groups.
    kind : {"ratio", "average"}
        What the statistic is.
    """

    p_value: float
    statistic: float
    placebos: Array
    units: tuple[Any, ...]
    kind: str


def rank_p_value(statistic: float, placebos: Array) -> float:
    """The part of all, the treated among them, that is at least as large.

    Examples
    --------
    >>> rank_p_value(3.0, [1.0, 2.0, 3.0, 4.0])
    0.6
    """
    found = np.asarray(placebos, dtype=np.float64)
    # What differs by rounding alone is taken for equal, which can only raise p.
    at_least = found >= statistic * (1.0 - LEAST)
    return (1 + int(np.count_nonzero(at_least))) / (1 + len(found))


def course_of(values: Array, completed: Completed, unit: int, gap: Array) -> Course:
    """What was expected of a unit, with those gaps, against what was seen."""
    there = gap & ~np.isnan(values[unit])
    errors = values[unit, there] - completed.values[unit, there]
    left_out = completed.left_out[unit]
    before = root_mean_square(left_out)
    deviations = completed.deviations[unit, there]
    return Course(errors, deviations, np.flatnonzero(there), before)


def run_placebos(
    completer: Completer, choice: Choice, patterns: list[Array], controls: Array,
    least_before: int, advance: Callable[[str], None],
) -> Placebos:  # fmt: skip
    """Every control unit with every pattern of treated times."""
    courses = []
    for pattern in patterns:
        found: dict[int, Course] = {}
        for group in _groups(controls, len(patterns)):
            hidden = np.zeros(completer.values.shape, dtype=bool)
            hidden[group] = pattern
            there = ~np.isnan(completer.values)
            enough = (there & ~hidden).sum(axis=1) >= least_before
            hidden &= enough[:, None]
            # A time of which nothing would be left cannot be asked about.
            hidden &= (there & ~hidden).any(axis=0)
            if (hidden & there).any():
                completed = completer.complete(choice, hidden)
                for unit in group:
                    if (hidden[unit] & there[unit]).any():
                        found[int(unit)] = course_of(
                            completer.values, completed, int(unit), hidden[unit]
                        )
            advance("")
        courses.append([found.get(int(unit)) for unit in controls])
    times = completer.values.shape[1]
    factors = np.array([_factors(course, times) for course in courses])
    courses = [
        [None if c is None else c.scaled(row) for c in found]
        for found, row in zip(courses, factors, strict=True)
    ]
    return Placebos(controls, courses, factors)


def _factors(courses: list[Course | None], times: int) -> Array:
    """Mean size of errors over their deviations at each time, 1 on the whole.

    A time counts as if `DOUBT` more units had errors of the usual size there.
    """
    known = [course for course in courses if course is not None]
    if not known:
        return np.ones(times)
    where = np.concatenate([course.times for course in known])
    sizes = np.concatenate([np.abs(c.errors) / c.deviations for c in known])
    usual = float(np.mean(sizes))
    if usual == 0.0:
        return np.ones(times)
    sums = np.bincount(where, sizes / usual, minlength=times)
    counts = np.bincount(where, minlength=times)
    factors: Array = (sums + DOUBT) / (counts + DOUBT)
    return factors


def fits_needed(controls: int, patterns: int) -> int:
    """How many times `run_placebos` moves its bar."""
    return patterns * len(_groups(np.arange(controls), patterns))


def _groups(controls: Array, patterns: int) -> list[Array]:
    """Control units that are hidden together: one by one, unless they are many.

    However many patterns there are, most control units must stay to go by. Those next
    to each other have like numbers, and are dealt out to different groups.
    """
    count = min(len(controls), max(GROUPS, MOST_FITS // patterns))
    return [controls[k::count] for k in range(count)]


def assignments(
    placebos: Placebos, pattern_of: list[int], order: Array, rng: np.random.Generator
) -> list[list[Course]]:
    """Courses of control units in the place of the treated ones, many times over.

    One treated unit: every control unit once. Several: groups drawn at random, from all
    units in ``order``. Treated units whose place no control unit can take are left out.
    """
    pattern_of = sorted(k for k in pattern_of if placebos.tells_of(k))
    if not pattern_of:
        return []
    if len(pattern_of) == 1:
        return [[c] for c in placebos.courses[pattern_of[0]] if c is not None]
    place = {int(unit): k for k, unit in enumerate(placebos.units)}
    ranked = [place[int(unit)] for unit in order if int(unit) in place]
    n, groups = len(ranked), []
    for _ in range(MOST_GROUPS):
        drawn = rng.choice(ranked, len(pattern_of), replace=len(pattern_of) > n)
        group = [placebos.courses[k][i] for k, i in zip(pattern_of, drawn, strict=True)]
        known = [course for course in group if course is not None]
        if len(known) == len(group):
            groups.append(known)
    return groups


def statistic_of(group: list[Course], kind: str) -> float:
    """How far a unit, or a group of them, departs from what was expected.

    "ratio": root mean square of the errors at treated times over that at others, the
    mean of it over the units. "average": size of the mean error over what it may be
    off by.
    """
    if kind == "average":
        return abs(block_score(group))
    ratios = []
    for course in group:
        size = root_mean_square(course.errors)
        least = max(course.before, LEAST * float(np.max(course.deviations)), 1e-300)
        ratios.append(size / least)
    return float(np.mean(ratios))


def block_score(group: list[Course]) -> float:
    """Mean error of all treated entries over what it may be off by."""
    errors = np.concatenate([course.errors for course in group])
    return mean_of(errors) / max(block_deviation(group), 1e-300)


def block_deviation(group: list[Course]) -> float:
    """Root mean square deviation of all treated entries.

    Errors of one unit are alike for years on end, so that the mean of them is about as
    far off as each of them is.
    """
    deviations = np.concatenate([course.deviations for course in group])
    return root_mean_square(deviations) / math.sqrt(len(group))


def entry_scores(placebos: Placebos) -> Scores:
    """Errors of the control units over their deviations, entry by entry."""
    found = [
        (c, unit)
        for courses in placebos.courses
        for c, unit in zip(courses, placebos.units, strict=True)
        if c is not None
    ]
    if not found:
        return Scores(np.empty(0), 0.0)
    return Scores.of(
        np.concatenate([c.errors for c, _ in found]),
        np.concatenate([c.deviations for c, _ in found]),
        np.concatenate([np.full(len(c.errors), unit) for c, unit in found]),
        np.concatenate([c.times for c, _ in found]),
    )


def group_scores(groups: list[list[Course]], controls: int) -> Scores:
    """Mean errors of groups over their deviations."""
    ranked = np.sort([block_score(group) for group in groups])
    return Scores(ranked, float(min(len(ranked), controls)))
