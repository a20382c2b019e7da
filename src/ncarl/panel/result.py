"""What a counterfactual analysis found: effects, intervals, the placebo test."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ncarl.bayes.intervals import Scores
from ncarl.core.types import Array
from ncarl.panel.average import Average
from ncarl.panel.completing import Choice, Completed
from ncarl.panel.data import Panel
from ncarl.panel.order import order_of_units
from ncarl.panel.placebo import (
    STATISTICS,
    Course,
    Placebos,
    PlaceboTest,
    assignments,
    block_deviation,
    course_of,
    entry_scores,
    group_scores,
    rank_p_value,
    statistic_of,
)
from ncarl.panel.scale import held, mean_of, root_mean_square
from ncarl.panel.treatment import patterns_of


@dataclass(frozen=True, eq=False)
class Counterfactual:
    """What would have been without treatment, and what treatment did.

    All arrays have shape (units, times), as in ``panel``; `to_frame` has labels.

    Attributes
    ----------
    panel : Panel
        What was observed.
    treated : boolean array
        The treated entries.
    expected : array
        What would have been: at treated entries from everything that is not treated,
        at others (for comparison) from everything but the entry itself.
    low, high : arrays
        Ends of the intervals of ``expected`` at treated entries; NaN elsewhere, and
        everywhere unless `calibrated`.
    level : float
        What the intervals promise.
    effect, effect_low, effect_high : arrays
        Observed minus expected, and its interval; NaN where nothing is observed.
    average : Average
        Mean effect over all treated entries, with its interval.
    error_before : float
        Root mean square of observed minus expected for treated units at times when they
        are not treated.
    choice : Choice
        How the model was chosen, and how well it did on control units.
    """

    panel: Panel
    treated: Array
    level: float
    completed: Completed
    choice: Choice
    placebos: Placebos | None
    seed: int

    @cached_property
    def units(self) -> tuple[Any, ...]:
        """The treated units."""
        return tuple(self.panel.units[k] for k in self._rows)

    @cached_property
    def expected(self) -> Array:
        """What would have been."""
        observed, left_out = self.panel.values, self.completed.left_out
        before = np.where(np.isnan(left_out), self.completed.values, observed)
        fitted = before - np.nan_to_num(left_out)
        return np.where(self.treated, self.completed.values, fitted)

    @cached_property
    def low(self) -> Array:
        """Lower ends of the intervals of ``expected``."""
        return self._end(-self._reach[0])

    @cached_property
    def high(self) -> Array:
        """Upper ends of the intervals of ``expected``."""
        return self._end(self._reach[1])

    def _end(self, far: float) -> Array:
        """One end of the intervals."""
        with np.errstate(over="ignore"):
            end = held(self.completed.values + far * self._deviations)
        return np.where(self.treated, end, np.nan)

    @cached_property
    def _deviations(self) -> Array:
        """How far off expected values may be, by what placebos say of the times."""
        deviations = self.completed.deviations.copy()
        if self.placebos is not None:
            deviations[self._rows] *= self.placebos.factors[self.patterns]
        return deviations

    @cached_property
    def effect(self) -> Array:
        """Observed minus expected."""
        return self.panel.values - self.expected

    @cached_property
    def effect_low(self) -> Array:
        """Lower ends of the intervals of ``effect``."""
        return self.panel.values - self.high

    @cached_property
    def effect_high(self) -> Array:
        """Upper ends of the intervals of ``effect``."""
        return self.panel.values - self.low

    @cached_property
    def average(self) -> Average:
        """Mean effect over all treated entries."""
        down = up = float("nan")
        if self.calibrated:
            down, up = self._block_scores.reach(self.level)
        effects = np.concatenate([course.errors for course in self._courses])
        mean, far = mean_of(effects), block_deviation(self._courses)
        return Average(mean, mean - up * far, mean + down * far, self.level)

    @cached_property
    def error_before(self) -> float:
        """Root mean square error for treated units at times without treatment."""
        return root_mean_square(self.completed.left_out[self._rows])

    def placebo_test(self, statistic: str = "ratio") -> PlaceboTest:
        """How unusual the effect is among control units taken for treated ones.

        Parameters
        ----------
        statistic : {"ratio", "average"}, default="ratio"
            Error at treated times over error before (root mean squares, as in the
            synthetic control literature); or size of the mean effect over how far off
            it may be.

        Examples
        --------
        >>> import numpy as np
        >>> from ncarl.panel import counterfactual
        >>> rng = np.random.default_rng(0)
        >>> Y = np.outer(rng.random(5), np.arange(6.0)) + 0.1 * rng.random((5, 6))
        >>> Y[0, 4:] += 9.0
        >>> counterfactual(Y, 0, start=4).placebo_test().p_value
        0.2
        """
        if statistic not in STATISTICS:
            raise ValueError(
                f"statistic must be one of {', '.join(STATISTICS)}, got {statistic!r}"
            )
        if self.placebos is None:
            raise ValueError(
                "a placebo test needs placebos: call counterfactual with placebos=True"
            )
        if not self.testable:
            raise ValueError(
                "a placebo test needs control units that can take the place of the "
                f"treated ones, and none of {len(self.placebos.units)} can: at least "
                "two must have numbers at the treated times and before; add some"
            )
        pairs = zip(self._courses, self.patterns, strict=True)
        # Like is held against like: units whose place nobody can take stay out.
        compared = [c for c, k in pairs if self.placebos.tells_of(k)]
        found = statistic_of(compared, statistic)
        others = np.array([statistic_of(group, statistic) for group in self._groups])
        names: tuple[Any, ...] = ()
        if len(self._rows) == 1:
            known = self.placebos.courses[0]
            both = zip(self.placebos.units, known, strict=True)
            names = tuple(self.panel.units[k] for k, c in both if c is not None)
        return PlaceboTest(rank_p_value(found, others), found, others, names, statistic)

    def by_unit(self) -> dict[Any, float]:
        """Mean effect of each treated unit over its treated times."""
        pairs = zip(self.units, self._courses, strict=True)
        return {unit: float(np.mean(course.errors)) for unit, course in pairs}

    def to_frame(self) -> Any:
        """The treated units as a long frame, of polars if the panel was.

        Columns: unit, time, treated, observed, expected, low, high, effect,
        effect_low, effect_high.
        """
        from ncarl.panel.telling import frame_of

        return frame_of(self)

    def summary(self) -> str:
        """A few lines that say what was found."""
        from ncarl.panel.telling import summary_of

        return summary_of(self)

    def plot(self, unit: Any = None) -> Any:
        """A figure of observed and expected values, and of the effect with its band.

        Parameters
        ----------
        unit : name, optional
            A treated unit; by default the first.

        Returns
        -------
        matplotlib.figure.Figure
        """
        from ncarl.panel.figures import effect_figure

        return effect_figure(self, self._named(unit))

    def plot_placebos(self, unit: Any = None) -> Any:
        """A figure of the effect on a unit before that on all control units.

        Parameters
        ----------
        unit : name, optional
            A treated unit; by default the first.

        Returns
        -------
        matplotlib.figure.Figure
        """
        from ncarl.panel.figures import placebo_figure

        if self.placebos is None:
            raise ValueError("there are no placebos: counterfactual(placebos=True)")
        return placebo_figure(self, self._named(unit))

    def _named(self, unit: Any) -> Any:
        """A treated unit; the first by default."""
        name = self.units[0] if unit is None else unit
        if name not in self.units:
            raise ValueError(
                f"unit must be one of the treated units {self.units}, got {unit!r}"
            )
        return name

    @property
    def calibrated(self) -> bool:
        """Whether control units could be hidden, to say how wide intervals are."""
        return not np.isnan(self.choice.error) or self.testable

    @property
    def testable(self) -> bool:
        """Whether there are placebos."""
        return len(self._groups) > 0

    @cached_property
    def patterns(self) -> list[int]:
        """The pattern of treated times of each treated unit, by its number."""
        return list(patterns_of(self.treated)[1])

    @cached_property
    def _rows(self) -> Array:
        """Rows of the treated units."""
        return np.flatnonzero(self.treated.any(axis=1))

    @cached_property
    def _courses(self) -> list[Course]:
        """Effects on the treated units."""
        values, completed = self.panel.values, self.completed
        known = replace(completed, deviations=self._deviations)
        return [course_of(values, known, int(k), self.treated[k]) for k in self._rows]

    @cached_property
    def _groups(self) -> list[list[Course]]:
        """Control units in the place of the treated ones."""
        if self.placebos is None:
            return []
        order = order_of_units(self.panel.values, self.treated)
        rng = np.random.default_rng(self.seed)
        return assignments(self.placebos, self.patterns, order, rng)

    @cached_property
    def _reach(self) -> tuple[float, float]:
        """How far intervals of entries reach down and up, in deviations."""
        if not self.calibrated:
            return float("nan"), float("nan")
        scores: Scores = self.choice.scores
        if self.placebos is not None and self.testable:
            scores = entry_scores(self.placebos)
        return scores.reach(self.level)

    @cached_property
    def _block_scores(self) -> Scores:
        """Errors of mean effects."""
        if self.placebos is None or not self.testable:
            return self.choice.block_scores
        return group_scores(self._groups, len(self.placebos.units))
