"""Sensor logs: times in rows, sensors in columns, at equal steps."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Any

import numpy as np

from ncarl.containers import give_back
from ncarl.core.types import Array
from ncarl.estimators.parameters import check_whole
from ncarl.panel.naming import listed
from ncarl.panel.steps import DAY, SLACK, steps_of
from ncarl.panel.times import read_as_times
from ncarl.sources.frames import dense_values, is_frame, is_polars, library_of

#: Days and weeks of all logs are counted from here, a Monday.
MONDAY = np.datetime64("1900-01-01", "us")
#: Steps are mostly whole minutes, seconds or parts of them.
ROUND = tuple(np.timedelta64(k, "us") for k in (60_000_000, 1_000_000, 1_000))
#: A cycle shows only in a log that holds it so many times.
LEAST_CYCLES = 2


@dataclass(frozen=True)
class Log:
    """A log at equal steps.

    Attributes
    ----------
    values : array of shape (steps, sensors)
        What was recorded; NaN in gaps.
    lines : array of int, shape (lines,)
        The step of each line of what was given; steps without a line are all gaps.
    sensors : tuple
        Names of the columns.
    period : int or None
        Steps of a cycle: a day, unless the user says otherwise.
    phase : int
        Where in its cycle the first step lies.
    step : timedelta or None
        Time from one step to the next, where times are known.
    """

    values: Array
    lines: Array
    sensors: tuple[Any, ...]
    period: int | None
    phase: int
    step: np.timedelta64 | None = None

    def refuse_silent(self) -> None:
        """Raise where a sensor has nothing to go by."""
        silent = np.flatnonzero(np.isnan(self.values).all(axis=0))
        if len(silent):
            names = ", ".join(repr(self.sensors[k]) for k in silent[:5])
            raise ValueError(
                f"every sensor must have at least one number, and {names} "
                f"{'has' if len(silent) == 1 else 'have'} none; drop such columns"
            )

    def placed(
        self, t: Array, j: Array, values: Array, known: float | None = None
    ) -> Array:
        """Lines of the log with values at its gaps; ``known`` elsewhere if given."""
        table = (
            self.values.copy() if known is None else np.full(self.values.shape, known)
        )
        table[t, j] = values
        lines: Array = table[self.lines]
        return lines


def read_log(
    X: Any, time: str | None, period: Any, step: np.timedelta64 | None = None
) -> Log:
    """A log from a frame with times, or an array of equal steps.

    Parameters
    ----------
    X : frame or array
        Lines in rows, sensors in columns.
    time : str or None
        The column with the times; by default a pandas index of times, or the only
        column of times.
    period : int, timedelta or None
        Length of a cycle; None for a day where times are known.
    step : timedelta or None
        That of the log which was learned from; None to find it.
    """
    if type(X).__name__ == "Series":
        raise ValueError(
            f"a log must have lines and sensors, got a {library_of(X)} Series; make it "
            "a log of one sensor with .to_frame()"
        )
    inner, stamps, _ = _split(X, time)
    values = dense_values(inner)
    if values.ndim != 2 or 0 in values.shape:
        raise ValueError(
            f"a log must have lines and sensors, got an array of shape {values.shape}"
            f"{'; one sensor is array.reshape(-1, 1)' if values.ndim == 1 else ''}"
        )
    if np.isinf(values).any():
        raise ValueError("a log must hold finite numbers, NaN in gaps; got infinity")
    names = tuple(inner.columns) if is_frame(inner) else tuple(range(values.shape[1]))
    if stamps is None:
        lines = np.arange(len(values))
        return Log(values, lines, names, _given_period(period, None), 0)
    step, lines = steps_of(stamps, step)
    cycle = _given_period(period, step)
    if cycle is None:
        cycle = _daily(step, lines)
    grid = np.full((int(lines[-1]) + 1, values.shape[1]), np.nan)
    grid[lines] = values
    phase = 0 if cycle is None else _phase(stamps[0], step, lines)
    return Log(grid, lines, names, cycle, phase % (cycle or 1), step)


def like_given(X: Any, time: str | None, table: Array, *, keep: bool) -> Any:
    """A table of all lines and sensors in the container of the log.

    ``keep`` puts the user's own numbers where there are any.
    """
    inner, _, name = _split(X, time)
    filled = give_back(inner, table, keep_observed=keep, plain=False)
    if name is None:
        return filled
    if is_polars(X):
        return X.with_columns(filled.get_columns())
    out = X.copy()
    # By position: two sensors may have one name.
    places = [k for k, column in enumerate(X.columns) if column != name]
    for k, place in enumerate(places):
        out.isetitem(place, filled.iloc[:, k].array)
    return out


def _split(X: Any, time: str | None) -> tuple[Any, Array | None, str | None]:
    """The sensors, the times if they are known, and the column that holds them."""
    if not is_frame(X):
        if time is not None:
            raise ValueError(f"time={time!r} names a column, and X is no frame")
        return X, None, None
    if time is None and not is_polars(X) and X.index.dtype.kind == "M":
        if X.index.tz is not None:
            # Clocks that are put forward leave no hour out in universal time.
            return X, X.index.tz_convert("UTC").tz_localize(None).to_numpy(), None
        return X, X.index.to_numpy(), None
    if time is None:
        time = _only_time_column(X)
        if time is None:
            if not is_polars(X):
                _refuse_hidden_times(X.index)
            return X, None, None
    if time not in X.columns:
        raise ValueError(
            f"time must be a column of the log, got {time!r}; it has "
            f"{listed(list(X.columns), most=20)}"
        )
    column = X[time]
    if getattr(getattr(column, "dt", None), "tz", None) is not None:
        column = column.dt.tz_convert("UTC").dt.tz_localize(None)
    stamps = column.to_numpy()
    if stamps.dtype.kind != "M":
        raise ValueError(
            f"column {time!r} must hold dates and times, got {X[time].dtype}; turn it "
            "into such first (pandas.to_datetime, polars str.to_datetime)"
        )
    inner = X.drop(time) if is_polars(X) else X.drop(columns=[time])
    return inner, stamps, time


def _refuse_hidden_times(index: Any) -> None:
    """Raise where the labels of a pandas frame are times but not held as such."""
    rest = (
        "first, or drop it with log.reset_index(drop=True) so that lines count as steps"
    )
    if str(index.dtype).startswith("period"):
        raise ValueError(
            f"the index of a log must hold dates and times, got {index.dtype}; turn it "
            f"into such (log.index = log.index.to_timestamp()) {rest}"
        )
    if read_as_times(index):
        label = index.dropna()[0]
        raise ValueError(
            "the index of a log must hold dates and times, got labels such as "
            f"{label!r} ({type(label).__name__}); turn them into such "
            "(log.index = pandas.to_datetime(log.index), or parse_dates=True in "
            f"pandas.read_csv) {rest}"
        )


def _only_time_column(X: Any) -> str | None:
    """The column of times, if there is just one."""
    if is_polars(X):
        kinds = {name: str(kind).startswith("Date") for name, kind in X.schema.items()}
    else:
        kinds = {name: kind.kind == "M" for name, kind in X.dtypes.items()}
    found = [name for name, good in kinds.items() if good]
    return found[0] if len(found) == 1 else None


def _given_period(period: Any, step: np.timedelta64 | None) -> int | None:
    """Steps of a cycle as the user says."""
    if period is None:
        return None
    if isinstance(period, datetime.timedelta | np.timedelta64):
        if step is None:
            raise ValueError(
                f"period={period!r} needs a log with times; give the number of lines "
                "that make up a cycle"
            )
        parts = np.timedelta64(period) / step
        if abs(parts - round(parts)) > SLACK or round(parts) < 2:
            raise ValueError(
                f"period must be a whole number of steps of "
                f"{step.astype(datetime.timedelta)}, at least 2, got {period!r}"
            )
        return round(parts)
    return check_whole("period", period, low=2)


def _daily(step: np.timedelta64, lines: Array) -> int | None:
    """Steps of a day; of a week if a step is a day; None where neither can show."""
    for cycle in (DAY, 7 * DAY):
        parts = cycle / step
        whole = abs(parts - round(parts)) < SLACK
        if whole and round(parts) >= 4 and lines[-1] + 1 >= LEAST_CYCLES * parts:
            return round(parts)
    return None


def _phase(first: Any, step: np.timedelta64, lines: Array) -> int:
    """Steps from `MONDAY` to the first line, the same count for every log.

    Over a century a step that is off by little adds up to days, so that the roundest
    step is taken that the times allow.
    """
    step = step.astype("timedelta64[us]")
    slack = SLACK * step / max(int(lines[-1]), 1)
    for unit in ROUND:
        near = round(step / unit) * unit
        if near > np.timedelta64(0) and abs(near - step) <= slack:
            step = near
            break
    away = first.astype("datetime64[us]") - MONDAY
    # A stamp that is early by less than the slack belongs to its step.
    return int((away + SLACK * step) // step)
