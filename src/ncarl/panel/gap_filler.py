"""`GapFiller`, which fills missing entries of sensor logs with error bars.

A log is read and put on a grid of equal time steps (`read_log`), means and effects of
the time of day are removed (`fit_seasonality`), and missing entries are predicted from
nearby ones by kriging (`ncarl.panel.kriging`).
"""

from __future__ import annotations

import datetime
import warnings
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from ncarl.bayes.model import ConformalScores
from ncarl.centering import (
    ValueBounds,
    fit_value_bounds,
    power_of_two_unit,
)
from ncarl.containers import clip_to_float_range, restore_container
from ncarl.core.types import Array
from ncarl.dataset import InMemoryDataset
from ncarl.engines import pick_engine
from ncarl.engines.base import Engine
from ncarl.holdout import structured_split
from ncarl.io.base import dense_values, is_frame, is_polars, library_of
from ncarl.observations import Observations
from ncarl.panel.data import format_labels, labels_are_dates
from ncarl.panel.kriging import EM_STEPS_GRID, Kriging, learn_covariance
from ncarl.validation import check_fraction, check_integer

DAY = np.timedelta64(1, "D")
HOUR = np.timedelta64(1, "h")
#: The shortest month.
MIN_MONTH = 28 * DAY
#: Most deviation of a timestamp from the grid, in steps.
STEP_TOLERANCE = 0.02
#: Most steps of a log per line; more are not laid out in memory.
MAX_STEPS_PER_LINE = 20
#: Origin of the days and weeks of all logs, a Monday.
CYCLE_ORIGIN = np.datetime64("1900-01-01", "us")
#: Units that the length of a step is rounded to: minute, second, millisecond.
ROUND_STEPS = tuple(np.timedelta64(k, "us") for k in (60_000_000, 1_000_000, 1_000))
#: Least number of cycles that a log must hold for a default period.
MIN_CYCLES = 2
#: Width of the window that smooths effects of the time of day, in cycles.
SMOOTHING_FRACTION = 1.0 / 48.0
#: Least width in steps; narrower windows are not used.
MIN_SMOOTHING_WIDTH = 2.0


class GapFiller(BaseEstimator):
    """Fill missing entries of sensor logs, with an error bar on every filled entry.

    A log has times in rows, at equal steps, and sensors in columns. Each missing entry
    is predicted from the sensor's own entries around it, from those of the most
    correlated sensors, and from the same time of other days, weighted by the lagged
    covariances of the log (kriging). There is nothing to tune.

    Parameters
    ----------
    period : int or timedelta, optional
        Length of a cycle, in steps or as a time. By default a day if the log has times
        (a week if its steps are days), and none for arrays.
    lags : tuple of int, default=(1, 2)
        Distances in cycles of the entries to predict from: yesterday and tomorrow, the
        days beyond. Add 7 where weekdays matter.
    n_neighbors : int, default=12
        Number of other sensors to predict each sensor from.
    time : str, optional
        The column with the times; by default a pandas index of times, or the only
        column of times. Text is not parsed: use `pandas.to_datetime` first.
    random_state : int, default=0
        Seed of the entries that are held out to calibrate the intervals.
    engine : {"auto", "threads", "torch"} or Engine, default="auto"
        Where the correlation of the sensors is learned.

    Attributes
    ----------
    period_ : int or None
        Steps of a cycle.
    held_out_error_ : float
        Root mean square error on held-out entries, which have the pattern of the
        missing ones; the better of two models is kept by it. NaN if nothing could be
        held out.
    calibration_ : float
        Root mean square of these errors over their standard deviations; ideally 1.
    step_ : timedelta or None
        Time from one line to the next, if the log has times.
    sensors_ : tuple
        Labels of the sensors.

    Examples
    --------
    >>> import numpy as np
    >>> from ncarl.panel import GapFiller
    >>> hours = np.arange(24 * 14)
    >>> log = 10 + np.sin(2 * np.pi * hours[:, None] / 24 + [0.0, 0.3, 0.6])
    >>> log += 0.01 * np.random.default_rng(0).standard_normal(log.shape)
    >>> holes = log.copy()
    >>> holes[100:106, 0] = np.nan
    >>> filler = GapFiller(period=24).fit(holes)
    >>> filled = filler.transform(holes)
    >>> bool(np.abs(filled - log).max() < 0.1)
    True
    >>> low, high = filler.predict_interval(holes, level=0.9)
    """

    def __init__(
        self,
        period: Any = None,
        lags: tuple[int, ...] = (1, 2),
        n_neighbors: int = 12,
        time: str | None = None,
        random_state: int = 0,
        engine: str | Engine = "auto",
    ) -> None:
        self.period = period
        self.lags = lags
        self.n_neighbors = n_neighbors
        self.time = time
        self.random_state = random_state
        self.engine = engine

    def fit(self, log: Any, y: Any = None) -> Self:
        """Learn the seasonality and the space-time covariance of a log.

        Parameters
        ----------
        log : frame or array
            Times in rows, sensors in columns; NaN or null at missing entries. All
            entries of a time without a line are missing.
        y : ignored
            For scikit-learn's interface.
        """
        lags = _check_lags(self.lags)
        neighbors = check_integer("n_neighbors", self.n_neighbors, low=0)
        seed = check_integer("random_state", self.random_state, low=0)
        engine = pick_engine(self.engine)
        series = read_log(log, self.time, self.period)
        observed = ~np.isnan(series.values)
        series.check_no_empty_sensor()
        self.unit_ = power_of_two_unit(series.values)
        scaled = series.values / self.unit_
        self.seasonality_: Seasonality = fit_seasonality(
            scaled, series.period, series.phase
        )
        self.sensors_, self.period_ = series.sensors, series.period
        self.step_ = series.step
        entries = InMemoryDataset(Observations.from_dense(series.values))
        self.value_bounds_: ValueBounds = fit_value_bounds(
            entries, "auto", rounded=False, by_column=True
        )
        standardized = self.seasonality_.transform(scaled, series.phase)
        rng = np.random.default_rng(seed)
        hidden, (t, j) = structured_split(observed, rng)
        neighbors = min(neighbors, standardized.shape[1] - 1)
        if len(t) == 0:
            warnings.warn(
                "no sensor has enough numbers to hold some out, so the widths of "
                "intervals cannot be calibrated; they are a guess, and "
                "held_out_error_ is NaN. Use a longer log",
                stacklevel=2,
            )
        self.held_out_error_ = np.inf
        for steps in EM_STEPS_GRID:
            covariance = learn_covariance(standardized, series.period, steps, engine)
            kriging = Kriging(covariance, neighbors, lags)
            predictions = kriging.predict(standardized, observed & ~hidden, t, j)
            self._take_if_better(kriging, standardized, (t, j), predictions)
        return self

    def transform(self, log: Any, *, return_std: bool = False) -> Any:
        """The completed log, in its own container; observed entries are kept.

        Parameters
        ----------
        log : frame or array
            The log of the fit, or another one of the same sensors and steps. An array
            is taken to begin a cycle.
        return_std : bool, default=False
            Also return standard deviations, 0 at observed entries.
        """
        series, t, j, means, std = self._predict_missing(log)
        values = self.value_bounds_.clip_and_round(
            self._inverse_transform_entries(series, t, j, means), j
        )
        filled = to_input_container(
            log, self.time, series.fill_entries(t, j, values), keep_observed=True
        )
        if not return_std:
            return filled
        std = clip_to_float_range(std * self.seasonality_.stds[j] * self.unit_)
        table = series.fill_entries(t, j, std, observed_value=0.0)
        return filled, to_input_container(log, self.time, table, keep_observed=False)

    def fit_transform(self, log: Any, y: Any = None, **options: Any) -> Any:
        """Fit to a log and complete it; options as in `transform`."""
        return self.fit(log).transform(log, **options)

    def predict_interval(self, log: Any, *, level: float = 0.9) -> tuple[Any, Any]:
        """Lower and upper ends of intervals, each in the container of the log.

        Both are the entry itself where it is observed. Intervals hold about ``level``
        of all missing entries whose pattern is that of the fit.

        Parameters
        ----------
        log : frame or array
            As in `transform`.
        level : float, default=0.9
            Nominal coverage of the intervals.
        """
        coverage = check_fraction("level", level, strict=True)
        series, t, j, means, std = self._predict_missing(log)
        down, up = self.scores_.quantiles(coverage)
        ends = []
        for n_std in (-down, up):
            values = self._inverse_transform_entries(series, t, j, means + n_std * std)
            table = series.fill_entries(t, j, self.value_bounds_.clip(values, j))
            ends.append(to_input_container(log, self.time, table, keep_observed=True))
        return ends[0], ends[1]

    def _predict_missing(
        self, log: Any
    ) -> tuple[SensorLog, Array, Array, Array, Array]:
        """The log, its missing entries, their standardized means and deviations."""
        check_is_fitted(self)
        series = read_log(log, self.time, self.period_, self.step_)
        if series.sensors != self.sensors_:
            raise ValueError(
                f"the log must have the sensors of the fit, "
                f"{format_labels(self.sensors_, max_labels=5)}, got "
                f"{format_labels(series.sensors, max_labels=5)}; in a frame take them "
                "by name and in this order, log[list(filler.sensors_)] with the column "
                "of times if there is one"
            )
        observed = ~np.isnan(series.values)
        # Steps without a line are missing too, but have no place in the result.
        missing = np.zeros(observed.shape, dtype=bool)
        missing[series.step_index] = ~observed[series.step_index]
        t, j = np.nonzero(missing)
        standardized = self.seasonality_.transform(
            series.values / self.unit_, series.phase
        )
        means, std = self.kriging_.predict(standardized, observed, t, j)
        return series, t, j, means, std

    def _inverse_transform_entries(
        self, log: SensorLog, t: Array, j: Array, standardized: Array
    ) -> Array:
        """Entries in the units of the log."""
        season = self.seasonality_
        steps = (t + log.phase) % len(season.effects)
        baseline = season.means[j] + season.effects[steps, j]
        with np.errstate(over="ignore"):
            return clip_to_float_range(
                (baseline + standardized * season.stds[j]) * self.unit_
            )

    def _take_if_better(
        self, kriging: Kriging, standardized: Array, positions: tuple[Array, Array],
        predictions: tuple[Array, Array],
    ) -> None:  # fmt: skip
        """Keep the model with the least held-out error, and its conformal scores."""
        errors = standardized[positions] - predictions[0]
        squares = np.square(errors * self.seasonality_.stds[positions[1]])
        error = float("nan")
        if len(squares):
            error = self.unit_ * float(np.sqrt(np.mean(squares)))
        if error < self.held_out_error_ or self.held_out_error_ == np.inf:
            self.kriging_, self.held_out_error_ = kriging, error
            self.scores_ = ConformalScores.from_errors(
                errors, predictions[1], *positions
            )
            self.calibration_ = self.scores_.rms


def fill_gaps(
    log: Any,
    period: Any = None,
    *,
    lags: tuple[int, ...] = (1, 2),
    n_neighbors: int = 12,
    time: str | None = None,
    return_std: bool = False,
    random_state: int = 0,
    engine: str | Engine = "auto",
) -> Any:
    """Fill the missing entries of a sensor log with `GapFiller`.

    Parameters
    ----------
    log : frame or array
        Times in rows, at equal steps, and sensors in columns; NaN or null at missing
        entries.
    period : int or timedelta, optional
        Length of a cycle, in steps or as a time; a day if the log has times.
    lags, n_neighbors, time, random_state, engine
        As in `GapFiller`.
    return_std : bool, default=False
        Also return standard deviations, 0 at observed entries.

    Returns
    -------
    filled : same container
        The completed log; observed entries are kept.
    std : same container
        Standard deviations; only with ``return_std``.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from ncarl.panel import fill_gaps
    >>> times = pd.date_range("2024-03-01", periods=24 * 10, freq="h")
    >>> wave = np.sin(2 * np.pi * np.arange(240)[:, None] / 24 + [0.0, 1.0])
    >>> log = pd.DataFrame(wave, index=times, columns=["north", "south"])
    >>> log.iloc[50:54, 0] = np.nan
    >>> filled = fill_gaps(log)
    >>> bool(abs(filled["north"].iloc[52] - wave[52, 0]) < 0.1)
    True
    """
    filler = GapFiller(period, lags, n_neighbors, time, random_state, engine)
    return filler.fit(log).transform(log, return_std=return_std)


def _check_lags(lags: Any) -> tuple[int, ...]:
    """Sorted distinct lags, as integers of at least 1."""
    if isinstance(lags, int):
        lags = (lags,)
    return tuple(sorted({check_integer("each of lags", lag, low=1) for lag in lags}))


@dataclass(frozen=True)
class SensorLog:
    """A log on a grid of equal time steps.

    Attributes
    ----------
    values : array of shape (steps, sensors)
        Recorded values; NaN at missing entries.
    step_index : array of int, shape (lines,)
        Step of each line of the input; all entries of steps without a line are missing.
    sensors : tuple
        Labels of the columns.
    period : int or None
        Steps of a cycle, by default of a day.
    phase : int
        Position of the first step in its cycle.
    step : timedelta or None
        Length of a step, if the log has times.
    """

    values: Array
    step_index: Array
    sensors: tuple[Any, ...]
    period: int | None
    phase: int
    step: np.timedelta64 | None = None

    def check_no_empty_sensor(self) -> None:
        """Raise if a sensor has no observed entry."""
        silent = np.flatnonzero(np.isnan(self.values).all(axis=0))
        if len(silent):
            names = ", ".join(repr(self.sensors[k]) for k in silent[:5])
            raise ValueError(
                f"every sensor must have at least one number, and {names} "
                f"{'has' if len(silent) == 1 else 'have'} none; drop such columns"
            )

    def fill_entries(
        self, t: Array, j: Array, values: Array, observed_value: float | None = None
    ) -> Array:
        """Lines of the log with ``values`` at entries ``(t, j)``.

        Others keep their values, or are ``observed_value`` if given.
        """
        table = (
            self.values.copy()
            if observed_value is None
            else np.full(self.values.shape, observed_value)
        )
        table[t, j] = values
        lines: Array = table[self.step_index]
        return lines


def read_log(
    X: Any, time: str | None, period: Any, step: np.timedelta64 | None = None
) -> SensorLog:
    """Read a log from a frame with times, or an array of equal steps.

    Parameters
    ----------
    X : frame or array
        Lines in rows, sensors in columns.
    time : str or None
        The column with the times; by default a pandas index of times, or the only
        column of times.
    period : int, timedelta or None
        Length of a cycle; None for a day if the log has times.
    step : timedelta or None
        Length of a step in the fit; None to infer it.
    """
    if type(X).__name__ == "Series":
        raise ValueError(
            f"a log must have lines and sensors, got a {library_of(X)} Series; make it "
            "a log of one sensor with .to_frame()"
        )
    inner, stamps, _ = _split_timestamps(X, time)
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
        return SensorLog(values, lines, names, _parse_period(period, None), 0)
    step, lines = infer_time_grid(stamps, step)
    cycle = _parse_period(period, step)
    if cycle is None:
        cycle = _default_period(step, lines)
    grid = np.full((int(lines[-1]) + 1, values.shape[1]), np.nan)
    grid[lines] = values
    phase = 0 if cycle is None else _phase(stamps[0], step, lines)
    return SensorLog(grid, lines, names, cycle, phase % (cycle or 1), step)


def to_input_container(
    X: Any, time: str | None, table: Array, *, keep_observed: bool
) -> Any:
    """A table of all lines and sensors in the container of the log.

    ``keep_observed`` copies observed entries from the log.
    """
    inner, _, name = _split_timestamps(X, time)
    filled = restore_container(
        inner, table, keep_observed=keep_observed, as_array=False
    )
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


def _split_timestamps(X: Any, time: str | None) -> tuple[Any, Array | None, str | None]:
    """The sensors, the timestamps if there are any, and the column that holds them."""
    if not is_frame(X):
        if time is not None:
            raise ValueError(f"time={time!r} names a column, and X is no frame")
        return X, None, None
    if time is None and not is_polars(X) and X.index.dtype.kind == "M":
        if X.index.tz is not None:
            # UTC has no missing or repeated hour at changes of daylight saving time.
            return X, X.index.tz_convert("UTC").tz_localize(None).to_numpy(), None
        return X, X.index.to_numpy(), None
    if time is None:
        time = _only_time_column(X)
        if time is None:
            if not is_polars(X):
                _check_index_not_dates(X.index)
            return X, None, None
    if time not in X.columns:
        raise ValueError(
            f"time must be a column of the log, got {time!r}; it has "
            f"{format_labels(list(X.columns), max_labels=20)}"
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


def _check_index_not_dates(index: Any) -> None:
    """Raise if the index of a pandas frame holds dates that are not timestamps."""
    rest = (
        "first, or drop it with log.reset_index(drop=True) so that lines count as steps"
    )
    if str(index.dtype).startswith("period"):
        raise ValueError(
            f"the index of a log must hold dates and times, got {index.dtype}; turn it "
            f"into such (log.index = log.index.to_timestamp()) {rest}"
        )
    if labels_are_dates(index):
        label = index.dropna()[0]
        raise ValueError(
            "the index of a log must hold dates and times, got labels such as "
            f"{label!r} ({type(label).__name__}); turn them into such "
            "(log.index = pandas.to_datetime(log.index), or parse_dates=True in "
            f"pandas.read_csv) {rest}"
        )


def _only_time_column(X: Any) -> str | None:
    """The column of timestamps, if there is just one."""
    if is_polars(X):
        kinds = {name: str(kind).startswith("Date") for name, kind in X.schema.items()}
    else:
        kinds = {name: kind.kind == "M" for name, kind in X.dtypes.items()}
    names = [name for name, is_time in kinds.items() if is_time]
    return names[0] if len(names) == 1 else None


def _parse_period(period: Any, step: np.timedelta64 | None) -> int | None:
    """Steps of a cycle from the parameter ``period``."""
    if period is None:
        return None
    if isinstance(period, datetime.timedelta | np.timedelta64):
        if step is None:
            raise ValueError(
                f"period={period!r} needs a log with times; give the number of lines "
                "that make up a cycle"
            )
        parts = np.timedelta64(period) / step
        if abs(parts - round(parts)) > STEP_TOLERANCE or round(parts) < 2:
            raise ValueError(
                f"period must be a whole number of steps of "
                f"{step.astype(datetime.timedelta)}, at least 2, got {period!r}"
            )
        return round(parts)
    return check_integer("period", period, low=2)


def _default_period(step: np.timedelta64, step_index: Array) -> int | None:
    """Steps of a day, or of a week if a step is a day; None for too short a log."""
    for cycle in (DAY, 7 * DAY):
        parts = cycle / step
        whole = abs(parts - round(parts)) < STEP_TOLERANCE
        if whole and round(parts) >= 4 and step_index[-1] + 1 >= MIN_CYCLES * parts:
            return round(parts)
    return None


def _phase(first: Any, step: np.timedelta64, step_index: Array) -> int:
    """Steps from `CYCLE_ORIGIN` to the first line, consistent across logs.

    A small error of the step adds up to days over a century, so the step is rounded to
    the largest unit that the times allow.
    """
    step = step.astype("timedelta64[us]")
    slack = STEP_TOLERANCE * step / max(int(step_index[-1]), 1)
    for unit in ROUND_STEPS:
        near = round(step / unit) * unit
        if near > np.timedelta64(0) and abs(near - step) <= slack:
            step = near
            break
    away = first.astype("datetime64[us]") - CYCLE_ORIGIN
    # A timestamp that is early by less than the tolerance belongs to its step.
    return int((away + STEP_TOLERANCE * step) // step)


def infer_time_grid(
    timestamps: Array, expected_step: np.timedelta64 | None
) -> tuple[np.timedelta64, Array]:
    """Length of a step, and the step of each line; an error if steps are uneven.

    Parameters
    ----------
    timestamps : datetime array of shape (lines,)
        The times.
    expected_step : timedelta or None
        The step that the log must have; None to infer it.
    """
    if np.isnat(timestamps).any():
        raise ValueError("every line of a log must have a time; some have none")
    if len(timestamps) < 2:
        raise ValueError("a log must have at least two lines, got one")
    timestamps = timestamps.astype("datetime64[us]")
    apart = np.diff(timestamps)
    _check_increasing(timestamps, apart)
    step = np.median(apart) if expected_step is None else expected_step
    where = (timestamps - timestamps[0]) / step
    lines = np.rint(where).astype(np.int64)
    if np.abs(where - lines).max() > STEP_TOLERANCE or (np.diff(lines) == 0).any():
        line = int(np.argmax(np.abs(where - lines) > STEP_TOLERANCE))
        raise ValueError(
            f"times of a log must lie at equal steps, and line {line} "
            f"({timestamps[line]}) is off the step of "
            f"{step.astype(datetime.timedelta)}"
            f"{'' if expected_step is None else ' of the fit'}; "
            + _resampling_hint(timestamps)
        )
    if lines[-1] > MAX_STEPS_PER_LINE * len(lines):
        raise ValueError(
            f"the log has {len(lines)} lines over {lines[-1]} steps of "
            f"{step.astype(datetime.timedelta)}; fill it piece by piece"
        )
    return step, lines


def _check_increasing(timestamps: Array, deltas: Array) -> None:
    """Raise if a time is not later than the one before it."""
    back = deltas <= np.timedelta64(0)
    if not back.any():
        return
    line = int(np.argmax(back)) + 1
    what = "comes twice" if deltas[line - 1] == np.timedelta64(0) else "goes back"
    clock = ""
    if -deltas[line - 1] <= HOUR and np.median(deltas) <= HOUR:
        clock = (
            "; if a clock was put back there, say of which place the times are, and "
            "both hours stay: log.tz_localize('Europe/Paris', ambiguous='infer') in "
            "pandas (.dt.tz_localize for a column)"
        )
    raise ValueError(
        f"times of a log must increase, and line {line} (from 0, {timestamps[line]}) "
        f"{what}; sort the log by time and keep one line of each time{clock}"
    )


def _resampling_hint(timestamps: Array) -> str:
    """Advice for a log with uneven steps."""
    if not _is_monthly(timestamps):
        return (
            "bring the log to equal steps first, for example "
            "log.resample('15min').mean() in pandas or group_by_dynamic in polars"
        )
    return (
        "months, quarters and years are not of one length, so leave the times out and "
        "lines count as steps: fill_gaps(log.reset_index(drop=True), period=12) for "
        "months in the index of pandas, the log without its column of times otherwise; "
        "months without a line must be put in first (log.asfreq)"
    )


def _is_monthly(timestamps: Array) -> bool:
    """Whether all times are the first, or the last, day of a month."""
    if np.diff(timestamps).min() < MIN_MONTH:
        return False
    # Last days of months are a day before first days, in UTC perhaps two.
    for first in (timestamps, timestamps + DAY, timestamps + 2 * DAY):
        into = first - first.astype("datetime64[M]")
        # A month of local times may begin an hour earlier in UTC in summer.
        if into.max() - into.min() <= HOUR:
            return True
    return False


@dataclass(frozen=True)
class Seasonality:
    """Means, effects of the time in the cycle, and standard deviations of the rest.

    Attributes
    ----------
    means, stds : arrays of shape (sensors,)
        Mean of each sensor, and standard deviation of its residuals, which may be 0.
    effects : array of shape (period, sensors)
        Effect of each time of the cycle; one row of zeros without a cycle.
    """

    means: Array
    stds: Array
    effects: Array

    def transform(self, values: Array, phase: int) -> Array:
        """Residuals of a log, divided by their standard deviations."""
        baseline = self.baseline(np.arange(len(values)), phase)
        standardized: Array = (values - baseline) / np.where(
            self.stds > 0, self.stds, 1.0
        )
        return standardized

    def baseline(self, steps: Array, phase: int) -> Array:
        """Means and effects at some steps, shape (steps, sensors)."""
        return self.means + self.effects[(steps + phase) % len(self.effects)]


def fit_seasonality(values: Array, period: int | None, phase: int) -> Seasonality:
    """Estimate means, effects of the time of day, and residual standard deviations.

    An effect is the mean over the days, smoothed over neighboring times of day, and
    shrunk by the variance between days.
    """
    observed = ~np.isnan(values)
    counts = observed.sum(axis=0)
    means = np.where(observed, values, 0.0).sum(axis=0) / counts
    residuals = np.where(observed, values - means, 0.0)
    effects = np.zeros((1, values.shape[1]))
    if period is not None:
        effects = _effects(residuals, observed, period, phase)
        residuals -= observed * effects[(np.arange(len(residuals)) + phase) % period]
    stds = np.sqrt(np.square(residuals).sum(axis=0) / counts)
    return Seasonality(means, stds, effects)


def _effects(residuals: Array, observed_mask: Array, period: int, phase: int) -> Array:
    """Shrunken, smoothed means of the residuals by time of the cycle."""
    where = (np.arange(len(residuals)) + phase) % period
    sums, counts = (np.zeros((period, residuals.shape[1])) for _ in range(2))
    np.add.at(sums, where, residuals)
    np.add.at(counts, where, observed_mask.astype(np.float64))
    weights = _window(period)
    means = _smooth_cyclic(sums, weights) / np.maximum(
        _smooth_cyclic(counts, weights), 1e-9
    )
    within = np.where(observed_mask, residuals - means[where], 0.0)
    noise = np.square(within).sum(axis=0) / observed_mask.sum(axis=0)
    days = np.maximum(counts.mean(axis=0), 1e-9)
    between = np.maximum(np.square(means).mean(axis=0) - noise / days, 0.0)
    # Without any variance there is nothing to shrink.
    total = between + noise / days
    kept = np.divide(between, total, out=np.zeros_like(total), where=total > 0.0)
    effects: Array = means * kept
    return effects


def _window(period: int) -> Array:
    """Weights of neighboring times of day."""
    width = period * SMOOTHING_FRACTION
    # A window of less than two steps smooths nothing.
    reach = int(2 * width) if width >= MIN_SMOOTHING_WIDTH else 0
    return np.exp(-0.5 * np.square(np.arange(-reach, reach + 1) / max(width, 1.0)))


def _smooth_cyclic(table: Array, weights: Array) -> Array:
    """Weighted sums over neighboring rows; the last row is next to the first."""
    reach = len(weights) // 2
    shifts = range(-reach, reach + 1)
    parts = (w * np.roll(table, k, 0) for w, k in zip(weights, shifts, strict=True))
    total: Array = sum(parts, np.zeros_like(table))
    return total
