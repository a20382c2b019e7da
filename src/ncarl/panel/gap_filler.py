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

from ncarl.bayes.model import ConformalScores, fit_std_factors
from ncarl.centering import fit_value_bounds, root_mean_square, to_user_units
from ncarl.containers import restore_container
from ncarl.core.types import Array
from ncarl.dataset import InMemoryDataset, power_of_two_unit
from ncarl.engines import pick_engine
from ncarl.engines.base import Engine
from ncarl.engines.cores import limit_blas_threads
from ncarl.holdout import time_shifted_split
from ncarl.io.base import is_frame, is_polars
from ncarl.observations import Observations, canonical_order
from ncarl.panel.data import labels_are_dates, table_values
from ncarl.panel.kriging import EM_STEPS_GRID, Kriging, learn_covariance
from ncarl.text import join_names
from ncarl.validation import as_list, check_fraction, check_integer

DAY = np.timedelta64(1, "D")
#: Maximum deviation of a timestamp from the grid, in steps.
STEP_TOLERANCE = 0.02
#: Maximum steps of a log per row; more are not laid out in memory.
MAX_STEPS_PER_ROW = 20
#: Origin of the days and weeks of all logs, a Monday.
CYCLE_ORIGIN = np.datetime64("1900-01-01", "us")
#: Units that the length of a step is rounded to: minute, second, millisecond.
ROUND_STEPS = tuple(np.timedelta64(k, "us") for k in (60_000_000, 1_000_000, 1_000))
#: Minimum number of cycles that a log must hold for a period.
MIN_CYCLES = 2
#: Width of the window that smooths effects of the time of day, in cycles, and the
#: minimum width in steps.
SMOOTHING_FRACTION, MIN_SMOOTHING_WIDTH = 1.0 / 48.0, 2.0


class GapFiller(BaseEstimator):
    """Fill missing entries of sensor logs, with an error bar on every imputed entry.

    A log has times in rows, at equal steps, and sensors in columns. Each missing entry
    is predicted from the sensor's own entries around it, from those of the most
    correlated sensors, and from the same time of other days, weighted by the lagged
    covariances of the log (kriging). There is nothing to tune.

    Parameters
    ----------
    period : int or timedelta, optional
        Length of a cycle, in steps or as a time; at most half of the log. By default a
        day if the log has times (a week if its steps are days), and none for arrays.
    lags : tuple of int, default=(1, 2)
        Distances in cycles of the entries to predict from; add 7 where weekdays matter.
    n_neighbors : int, default=12
        Number of other sensors to predict each sensor from.
    time : str, optional
        The column with the times; by default a pandas index of times, or the only
        column of times. Strings are not parsed.
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
        missing ones. NaN if nothing could be held out.
    std_factor_ : float
        What the standard deviations of the model are multiplied by, so that these
        errors over them have a mean square of 1; 1 if nothing could be held out. Errors
        of other entries are a little larger, as seasonality and covariance are learned
        with the held-out ones: in logs of 10 and 40 cycles by 30% and 8%.
    calibration_ : float
        Root mean square of these errors over their standard deviations: 1, or a little
        less if few were held out and the factor allows for that; else NaN.
    held_out_coverage_ : float
        Fraction of these errors within 1.96 standard deviations, 0.95 if they are
        normal.
    step_ : timedelta or None
        Time from one row to the next, if the log has times.
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

    @limit_blas_threads(1)
    def fit(self, log: Any, y: Any = None) -> Self:
        """Learn the seasonality and the space-time covariance of a log.

        Parameters
        ----------
        log : frame or array
            Times in rows, sensors in columns; NaN or null at missing entries. All
            entries of a time without a row are missing.
        y : ignored
            Present for API consistency with scikit-learn.
        """
        given = as_list("lags", self.lags)
        lags = sorted({check_integer("each of lags", lag, low=1) for lag in given})
        n_neighbors = check_integer("n_neighbors", self.n_neighbors, low=0)
        seed = check_integer("random_state", self.random_state, low=0)
        engine = pick_engine(self.engine)
        series = read_log(log, self.time, self.period)
        n_steps = len(series.values)
        if MIN_CYCLES * (series.period or 0) > n_steps:
            raise ValueError(
                f"period must be at most {n_steps // MIN_CYCLES}, half of the steps of "
                f"the log, got {self.period!r}; a cycle is learned from repetitions: "
                "leave period out, or fit a longer log"
            )
        observed = ~np.isnan(series.values)
        empty = [series.sensors[k] for k in np.flatnonzero(~observed.any(axis=0))]
        if empty:
            raise ValueError(
                f"every sensor must have at least one number, and "
                f"{join_names(empty, 5, form=repr)} "
                f"{'has' if len(empty) == 1 else 'have'} none; drop such columns"
            )
        self.sensors_, self.period_ = series.sensors, series.period
        self.step_ = series.step
        self.unit_ = power_of_two_unit(series.values)
        scaled = series.values / self.unit_
        self.seasonality_ = fit_seasonality(scaled, series.period, series.phase)
        entries = InMemoryDataset(Observations.from_dense(series.values))
        self.value_bounds_ = fit_value_bounds(
            entries, "auto", rounded=False, by_column=True
        )
        standardized = self.seasonality_.transform(scaled, series.phase)
        # The order of the sensors makes no difference to what is held out.
        _, order = canonical_order(entries.observed)
        rng = np.random.default_rng(seed)
        hidden, (t, places) = time_shifted_split(observed[:, order], rng)
        hidden, j = hidden[:, np.argsort(order)], order[places]
        if len(t) == 0:
            warnings.warn(
                "no sensor has enough numbers to hold some out, so the widths of "
                "intervals cannot be calibrated, and held_out_error_ is NaN. Use a "
                "longer log",
                stacklevel=3,
            )
        self.held_out_error_ = np.inf
        for steps in EM_STEPS_GRID:
            weights = learn_covariance(standardized, series.period, steps, engine)
            kriging = Kriging(weights, series.period, n_neighbors, tuple(lags))
            means, stds = kriging.predict(standardized, observed & ~hidden, t, j)
            errors = standardized[t, j] - means
            in_units = errors * self.seasonality_.stds[j]
            error = self.unit_ * root_mean_square(in_units) if len(t) else float("nan")
            if error < self.held_out_error_ or self.held_out_error_ == np.inf:
                self.kriging_, self.held_out_error_ = kriging, error
                one_split = np.zeros(len(t), dtype=np.int64)
                factors = fit_std_factors(
                    errors, stds, t, j, one_split, observed.shape[1]
                )
                self.std_factor_ = 1.0 if factors is None else float(factors[0])
                stds = self.std_factor_ * stds
                self.scores_ = ConformalScores.from_errors(errors, stds, t, j)
                self.calibration_ = self.scores_.rms
                self.held_out_coverage_ = self.scores_.normal_coverage
        return self

    @limit_blas_threads(1)
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
        values = self._inverse_transform(series, t, j, means)
        filled = series.complete(t, j, self.value_bounds_.clip_and_round(values, j))
        if not return_std:
            return filled
        std = to_user_units(std * self.seasonality_.stds[j], self.unit_)
        return filled, series.complete(t, j, std, observed_value=0.0)

    def fit_transform(self, log: Any, y: Any = None, **options: Any) -> Any:
        """Fit to a log and complete it; options as in `transform`."""
        return self.fit(log).transform(log, **options)

    @limit_blas_threads(1)
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
        low, high = (
            self.value_bounds_.clip(self._inverse_transform(series, t, j, ends), j)
            for ends in (means - down * std, means + up * std)
        )
        return series.complete(t, j, low), series.complete(t, j, high)

    def _predict_missing(
        self, log: Any
    ) -> tuple[SensorLog, Array, Array, Array, Array]:
        """The log, its missing entries, their standardized means and deviations."""
        check_is_fitted(self)
        series = read_log(log, self.time, self.period_, self.step_)
        if series.sensors != self.sensors_:
            raise ValueError(
                f"the log must have the sensors of the fit, "
                f"{join_names(self.sensors_, 5, form=repr)}, got "
                f"{join_names(series.sensors, 5, form=repr)}; in a frame select them "
                "by name and in this order, log[list(filler.sensors_)] with the column "
                "of times if there is one"
            )
        observed = ~np.isnan(series.values)
        # Steps without a row are missing too, but have no place in the result.
        missing = np.zeros(observed.shape, dtype=bool)
        missing[series.step_index] = ~observed[series.step_index]
        t, j = np.nonzero(missing)
        scaled = series.values / self.unit_
        standardized = self.seasonality_.transform(scaled, series.phase)
        means, std = self.kriging_.predict(standardized, observed, t, j)
        return series, t, j, means, self.std_factor_ * std

    def _inverse_transform(
        self, log: SensorLog, t: Array, j: Array, standardized: Array
    ) -> Array:
        """Entries in the units of the log."""
        season = self.seasonality_
        effects = season.effects[(t + log.phase) % len(season.effects), j]
        values = season.means[j] + effects + standardized * season.stds[j]
        return to_user_units(values, self.unit_)


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
    period, lags, n_neighbors, time, random_state, engine
        As in `GapFiller`.
    return_std : bool, default=False
        Also return standard deviations, 0 at observed entries.

    Returns
    -------
    filled, or (filled, std) with ``return_std``
        In the container of the log; observed entries are kept.

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


@dataclass(frozen=True)
class SensorLog:
    """A log on a grid of equal time steps."""

    values: Array  # shape (steps, sensors), NaN at missing entries
    step_index: Array  # step of each row of the input; other steps are missing
    sensors: tuple[Any, ...]  # labels of the columns
    period: int | None  # steps of a cycle
    phase: int  # position of the first step in its cycle
    step: np.timedelta64 | None  # length of a step, if the log has times
    source: Any  # the input
    time_column: str | None  # the column of the input that holds the times

    def complete(
        self, t: Array, j: Array, values: Array, observed_value: float | None = None
    ) -> Any:
        """The input with ``values`` at ``(t, j)``; others kept, or a given value."""
        keep, X = observed_value is None, self.source
        table = (
            self.values.copy() if keep else np.full_like(self.values, observed_value)
        )
        table[t, j] = values
        inner, rows = _drop_column(X, self.time_column), table[self.step_index]
        filled = restore_container(inner, rows, keep_observed=keep, as_array=False)
        if self.time_column is None:
            return filled
        if is_polars(X):
            return X.with_columns(filled.get_columns())
        out = X.copy()
        # By position: two sensors may have one name.
        places = [k for k, name in enumerate(X.columns) if name != self.time_column]
        for k, place in enumerate(places):
            out.isetitem(place, filled.iloc[:, k].array)
        return out


def read_log(
    X: Any, time: str | None, period: Any, step: np.timedelta64 | None = None
) -> SensorLog:
    """Read a log from a frame or array; infer the step if it is None."""
    stamps, time = _read_timestamps(X, time)
    inner = _drop_column(X, time)
    values = table_values(inner, "a log")
    if np.isinf(values).any():
        raise ValueError("a log must hold finite numbers, or NaN where missing")
    names = tuple(inner.columns) if is_frame(inner) else tuple(range(values.shape[1]))
    if stamps is None:
        row_steps, cycle = np.arange(len(values)), _steps_per_cycle(period, None, 0)
        return SensorLog(values, row_steps, names, cycle, 0, None, X, time)
    step, row_steps = infer_time_grid(stamps, step)
    n_steps = int(row_steps[-1]) + 1
    cycle = _steps_per_cycle(period, step, n_steps)
    grid = np.full((n_steps, values.shape[1]), np.nan)
    grid[row_steps] = values
    phase = 0 if cycle is None else _phase(stamps[0], step, row_steps) % cycle
    return SensorLog(grid, row_steps, names, cycle, phase, step, X, time)


def _drop_column(X: Any, name: str | None) -> Any:
    if name is None:
        return X
    return X.drop(name) if is_polars(X) else X.drop(columns=[name])


def _read_timestamps(X: Any, time: str | None) -> tuple[Array | None, str | None]:
    """The timestamps of a log if there are any, and the column that holds them."""
    if not is_frame(X):
        if time is not None:
            raise ValueError(f"time={time!r} names a column; the log is not a frame")
        return None, None
    if time is None and not is_polars(X) and X.index.dtype.kind == "M":
        index = X.index
        # UTC has no missing or repeated hour at changes of daylight saving time.
        return (index if index.tz is None else index.tz_convert(None)).to_numpy(), None
    if time is None:
        time = _only_time_column(X)
        if time is None:
            if not is_polars(X):
                _check_index_not_dates(X.index)
            return None, None
    if time not in X.columns:
        raise ValueError(
            f"time must be a column of the log, got {time!r}; it has "
            f"{join_names(list(X.columns), 20, form=repr)}"
        )
    column = X[time]
    if getattr(getattr(column, "dt", None), "tz", None) is not None:
        column = column.dt.tz_convert(None)
    stamps = column.to_numpy()
    if stamps.dtype.kind != "M":
        raise ValueError(
            f"column {time!r} must hold dates and times, got {X[time].dtype}; convert "
            "it first (pandas.to_datetime, polars str.to_datetime)"
        )
    return stamps, time


def _check_index_not_dates(index: Any) -> None:
    rest = (
        "first, or drop it with log.reset_index(drop=True) so that rows count as steps"
    )
    if str(index.dtype).startswith("period"):
        raise ValueError(
            f"the index of a log must hold dates and times, got {index.dtype}; convert "
            f"it (log.index = log.index.to_timestamp()) {rest}"
        )
    if labels_are_dates(index):
        label = index.dropna()[0]
        raise ValueError(
            "the index of a log must hold dates and times, got labels such as "
            f"{label!r} ({type(label).__name__}); convert them "
            "(log.index = pandas.to_datetime(log.index), or parse_dates=True in "
            f"pandas.read_csv) {rest}"
        )


def _only_time_column(X: Any) -> str | None:
    if is_polars(X):
        kinds = {name: str(kind).startswith("Date") for name, kind in X.schema.items()}
    else:
        kinds = {name: kind.kind == "M" for name, kind in X.dtypes.items()}
    names = [name for name, is_time in kinds.items() if is_time]
    return names[0] if len(names) == 1 else None


def _steps_per_cycle(
    period: Any, step: np.timedelta64 | None, n_steps: int
) -> int | None:
    """Steps of a cycle; by default of a day, or of a week if a step is a day."""
    if period is None:
        for parts in () if step is None else (DAY / step, 7 * DAY / step):
            whole = abs(parts - round(parts)) < STEP_TOLERANCE
            if whole and round(parts) >= 4 and n_steps >= MIN_CYCLES * parts:
                return round(parts)
        return None
    if not isinstance(period, datetime.timedelta | np.timedelta64):
        return check_integer("period", period, low=2)
    if step is None:
        raise ValueError(
            f"period={period!r} needs a log with times; give the number of rows of a "
            "cycle"
        )
    try:
        parts = np.timedelta64(period) / step
    except TypeError:  # months and years have no fixed length
        parts = np.float64("nan")
    if not abs(parts - np.rint(parts)) <= STEP_TOLERANCE or np.rint(parts) < 2:
        raise ValueError(
            f"period must be a whole number of steps of "
            f"{step.astype(datetime.timedelta)}, at least 2, got {period!r}"
        )
    return round(parts)


def _phase(first: Any, step: np.timedelta64, step_index: Array) -> int:
    """Steps from `CYCLE_ORIGIN` to the first row, consistent across logs.

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
    """Length of a step, and the step of each row; an error if steps are uneven."""
    if np.isnat(timestamps).any():
        raise ValueError("every row of a log must have a time; some have none")
    if len(timestamps) < 2:
        raise ValueError("a log must have at least two rows, got one")
    timestamps = timestamps.astype("datetime64[us]")
    apart = np.diff(timestamps)
    if (apart <= np.timedelta64(0)).any():
        row = int(np.argmax(apart <= np.timedelta64(0))) + 1
        what = "comes twice" if apart[row - 1] == np.timedelta64(0) else "goes back"
        raise ValueError(
            f"times of a log must increase, and row {row} (from 0, "
            f"{timestamps[row]}) {what}; sort the log by time and keep one row of "
            "each time. If a clock was put back there, set the time zone to keep both "
            "hours: log.tz_localize('Europe/Paris', ambiguous='infer') in pandas "
            "(.dt.tz_localize for a column)"
        )
    step = np.median(apart) if expected_step is None else expected_step
    where = (timestamps - timestamps[0]) / step
    row_steps = np.rint(where).astype(np.int64)
    offsets = np.abs(where - row_steps)
    if offsets.max() > STEP_TOLERANCE or (np.diff(row_steps) == 0).any():
        row = int(np.argmax(offsets > STEP_TOLERANCE))
        raise ValueError(
            f"times of a log must have equal steps, and row {row} "
            f"({timestamps[row]}) is off the step of "
            f"{step.astype(datetime.timedelta)}"
            f"{'' if expected_step is None else ' of the fit'}; resample the log, for "
            "example log.resample('15min').mean() in pandas or group_by_dynamic in "
            "polars. Months, quarters and years differ in length: leave their times "
            "out, so that rows count as steps, fill_gaps(log.reset_index(drop=True), "
            "period=12)"
        )
    if row_steps[-1] > MAX_STEPS_PER_ROW * len(row_steps):
        raise ValueError(
            f"the log has {len(row_steps)} rows over {row_steps[-1]} steps of "
            f"{step.astype(datetime.timedelta)}; fill it piece by piece"
        )
    return step, row_steps


@dataclass(frozen=True)
class Seasonality:
    """Means, effects of the time in the cycle, and standard deviations of the rest."""

    means: Array  # of each sensor
    stds: Array  # of the residuals of each sensor, may be 0
    effects: Array  # shape (period, sensors); one row of zeros without a cycle

    def transform(self, values: Array, phase: int) -> Array:
        """Residuals of a log, divided by their standard deviations."""
        steps = (np.arange(len(values)) + phase) % len(self.effects)
        residuals = values - (self.means + self.effects[steps])
        return residuals / np.where(self.stds > 0, self.stds, 1.0)


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
    means = _smooth_cyclic(sums) / np.maximum(_smooth_cyclic(counts), 1e-9)
    within = np.where(observed_mask, residuals - means[where], 0.0)
    noise = np.square(within).sum(axis=0) / observed_mask.sum(axis=0)
    days = np.maximum(counts.mean(axis=0), 1e-9)
    between = np.maximum(np.square(means).mean(axis=0) - noise / days, 0.0)
    # Without any variance there is nothing to shrink.
    total = between + noise / days
    kept = np.divide(between, total, out=np.zeros_like(total), where=total > 0.0)
    return means * kept


def _smooth_cyclic(table: Array) -> Array:
    """Weighted sums over neighboring times of day; the last is next to the first."""
    width = len(table) * SMOOTHING_FRACTION
    # A window of less than two steps smooths nothing.
    reach = int(2 * width) if width >= MIN_SMOOTHING_WIDTH else 0
    shifts = range(-reach, reach + 1)
    weights = np.exp(-0.5 * np.square(np.array(shifts) / max(width, 1.0)))
    parts = (w * np.roll(table, k, 0) for w, k in zip(weights, shifts, strict=True))
    return sum(parts, np.zeros_like(table))
