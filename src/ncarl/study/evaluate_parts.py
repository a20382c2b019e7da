"""The parts of an evaluation: a draw and what was said of it, a level, a column."""

from __future__ import annotations

from dataclasses import dataclass

from ncarl.core.types import Array

#: What intervals are asked to hold.
LEVELS = (0.5, 0.8, 0.9, 0.95)


@dataclass(frozen=True)
class Tried:
    """One draw of hidden entries, and what a method said of them.

    Attributes
    ----------
    rows, columns : arrays of int, shape (entries,)
        Where they are.
    truth, guess, mean : arrays of shape (entries,)
        Their values; what the method said; the mean of what was left of the column.
    std : array of shape (entries,), or None
        Standard deviations; None for a method without error bars.
    ends : mapping of float to pair of arrays
        Lower and upper ends of intervals, by what they promise to hold.
    seconds : float
        Of the fit.
    settled : bool or None
        Whether the steps ended by themselves.
    engine : str
        What did the work.
    """

    rows: Array
    columns: Array
    truth: Array
    guess: Array
    mean: Array
    std: Array | None
    ends: dict[float, tuple[Array, Array]]
    seconds: float
    settled: bool | None = None
    engine: str = ""


@dataclass(frozen=True)
class LevelScore:
    """Intervals of one level.

    Attributes
    ----------
    level : float
        What they promise to hold.
    held : float
        What they held.
    width : float
        How wide they were on average, in the data's own units.
    width_in_spreads : float or None
        The same in spreads of the column.
    """

    level: float
    held: float
    width: float
    width_in_spreads: float | None


@dataclass(frozen=True)
class ColumnScore:
    """One column, over all draws.

    Attributes
    ----------
    column : int
        Which one, from 0.
    name : str
        What it is called; its number from 1 where it has no name.
    hidden : int
        Hidden entries, all draws together.
    error : float
        Root mean square error.
    error_in_spreads, mean_in_spreads : float or None
        The same, and that of the column's mean, in spreads of the column; None for a
        column that does not vary.
    explained : float or None
        Part of the column mean's squared error that the method takes away: 1 is all
        of it, 0 none, below 0 the mean is better.
    held : float or None
        Part of the entries in their 90% intervals.
    """

    column: int
    name: str
    hidden: int
    error: float
    error_in_spreads: float | None
    mean_in_spreads: float | None
    explained: float | None
    held: float | None
