"""Gaps of sensor logs, filled from neighbours, hours around and days around."""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from ncarl.bayes.intervals import Scores
from ncarl.bayes.range import Range, fit_range
from ncarl.core.types import Array
from ncarl.engines import Engine, pick_engine
from ncarl.estimators.parameters import check_number, check_whole
from ncarl.observed import Observed
from ncarl.panel.covariance import STEPS, learn_covariance
from ncarl.panel.hiding import hidden_alike
from ncarl.panel.kriging import Kriging
from ncarl.panel.logs import Log, like_given, read_log
from ncarl.panel.naming import listed
from ncarl.panel.scale import held, unit_of
from ncarl.panel.seasons import Season, fit_season
from ncarl.surveys import InMemory


class GapFiller(BaseEstimator):
    """Fills the gaps of sensor logs, with an error bar on every filled entry.

    A log has times in rows, at equal steps, and sensors in columns. Each gap is filled
    from the sensor's own entries around it, from those of the sensors most like it,
    and from the same time of other days. How much each of them counts follows from
    lagged covariances of the log. Nothing is to be tuned.

    Parameters
    ----------
    period : int or timedelta, optional
        Length of a cycle, in steps or as a time. By default a day where the log has
        times (a week if its steps are days), and none for arrays.
    lags : tuple of int, default=(1, 2)
        Cycles away that are looked at: yesterday and tomorrow, the days beyond. Add 7
        where weekdays matter.
    neighbours : int, default=12
        Other sensors that are asked for each sensor.
    time : str, optional
        The column with the times; by default a pandas index of times, or the only
        column of times. Text is not taken for times: `pandas.to_datetime` first.
    random_state : int, default=0
        Seed of the entries that are hidden to find out how wide intervals are.
    engine : {"auto", "threads", "torch"} or Engine, default="auto"
        Where the correlation of the sensors is learned.

    Attributes
    ----------
    period_ : int or None
        Steps of a cycle.
    held_out_error_ : float
        Root mean square error on known entries that were hidden as the gaps lie; the
        better of two models was kept by it. NaN where nothing could be hidden.
    calibration_ : float
        Root mean square of these errors over their standard deviations; 1 is right.
    step_ : timedelta or None
        Time from one line to the next, where the log has times.
    sensors_ : tuple
        Names of the sensors.

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
        neighbours: int = 12,
        time: str | None = None,
        random_state: int = 0,
        engine: str | Engine = "auto",
    ) -> None:
        self.period = period
        self.lags = lags
        self.neighbours = neighbours
        self.time = time
        self.random_state = random_state
        self.engine = engine

    def fit(self, log: Any, y: Any = None) -> Self:
        """Learn how the sensors of a log go together over time.

        Parameters
        ----------
        log : frame or array
            Times in rows, sensors in columns; NaN or null in gaps. Times without a line
            are gaps too.
        y : ignored
            For scikit-learn's interface.
        """
        lags = _checked_lags(self.lags)
        neighbours = check_whole("neighbours", self.neighbours, low=0)
        seed = check_whole("random_state", self.random_state, low=0)
        engine = pick_engine(self.engine)
        found = read_log(log, self.time, self.period)
        there = ~np.isnan(found.values)
        found.refuse_silent()
        self.unit_ = unit_of(found.values)
        inner = found.values / self.unit_
        self.season_: Season = fit_season(inner, found.period, found.phase)
        self.sensors_, self.period_ = found.sensors, found.period
        self.step_ = found.step
        entries = InMemory(Observed.from_dense(found.values))
        self.range_: Range = fit_range(entries, "auto", rounded=False, by_column=True)
        inner = self.season_.inward(inner, found.phase)
        rng = np.random.default_rng(seed)
        hidden, (t, j) = hidden_alike(there, rng)
        asked = min(neighbours, inner.shape[1] - 1)
        if len(t) == 0:
            warnings.warn(
                "no sensor has enough numbers to hide some and fill them in, so that "
                "nobody can say how wide intervals must be; they are a guess, and "
                "held_out_error_ is NaN. A longer log would tell",
                stacklevel=2,
            )
        self.held_out_error_ = np.inf
        for steps in STEPS:
            covariance = learn_covariance(inner, found.period, steps, engine)
            kriging = Kriging(covariance, asked, lags)
            answers = kriging.ask(inner, there & ~hidden, t, j)
            self._take_if_better(kriging, inner, (t, j), answers)
        return self

    def transform(self, log: Any, *, return_std: bool = False) -> Any:
        """The log without gaps, in its own container; known entries as they are.

        Parameters
        ----------
        log : frame or array
            The log of the fit, or another one of the same sensors and steps. An array
            is taken to begin a cycle.
        return_std : bool, default=False
            Also give standard deviations, 0 where an entry is known.
        """
        found, t, j, means, spread = self._asked(log)
        values = self.range_.settled(self._outward(found, t, j, means), j)
        filled = like_given(log, self.time, found.placed(t, j, values), keep=True)
        if not return_std:
            return filled
        spread = held(spread * self.season_.spreads[j] * self.unit_)
        table = found.placed(t, j, spread, known=0.0)
        return filled, like_given(log, self.time, table, keep=False)

    def fit_transform(self, log: Any, y: Any = None, **options: Any) -> Any:
        """Fit to a log and give it back without gaps; options as in `transform`."""
        return self.fit(log).transform(log, **options)

    def predict_interval(self, log: Any, *, level: float = 0.9) -> tuple[Any, Any]:
        """Lower and upper ends of intervals, each in the container of the log.

        Both are the entry itself where it is known. About ``level`` of all gaps that
        lie as those of the fit are held by their intervals.

        Parameters
        ----------
        log : frame or array
            As in `transform`.
        level : float, default=0.9
            Part of the entries to be covered.
        """
        part = check_number("level", level, low=0.0, strict=True)
        if part >= 1.0:
            raise ValueError(f"level must be below 1, got {level!r}")
        found, t, j, means, spread = self._asked(log)
        down, up = self.scores_.reach(part)
        ends = []
        for far in (-down, up):
            values = self._outward(found, t, j, means + far * spread)
            table = found.placed(t, j, self.range_.clipped(values, j))
            ends.append(like_given(log, self.time, table, keep=True))
        return ends[0], ends[1]

    def _asked(self, log: Any) -> tuple[Log, Array, Array, Array, Array]:
        """The log, its gaps, and their means and deviations in inner units."""
        check_is_fitted(self)
        found = read_log(log, self.time, self.period_, self.step_)
        if found.sensors != self.sensors_:
            raise ValueError(
                f"the log must have the sensors of the fit, "
                f"{listed(self.sensors_, most=5)}, got "
                f"{listed(found.sensors, most=5)}; in a frame take them by name and in "
                "this order, log[list(filler.sensors_)] with the column of times "
                "if there is one"
            )
        there = ~np.isnan(found.values)
        wanted = np.zeros(there.shape, dtype=bool)
        wanted[found.lines] = ~there[found.lines]
        t, j = np.nonzero(wanted)
        inner = self.season_.inward(found.values / self.unit_, found.phase)
        means, spread = self.kriging_.ask(inner, there, t, j)
        return found, t, j, means, spread

    def _outward(self, log: Log, t: Array, j: Array, inner: Array) -> Array:
        """Entries in the units of the log."""
        season = self.season_
        steps = (t + log.phase) % len(season.effects)
        usual = season.means[j] + season.effects[steps, j]
        with np.errstate(over="ignore"):
            return held((usual + inner * season.spreads[j]) * self.unit_)

    def _take_if_better(
        self, kriging: Kriging, inner: Array, places: tuple[Array, Array],
        answers: tuple[Array, Array],
    ) -> None:  # fmt: skip
        """Keep what fills in known entries best, and rank its errors for intervals."""
        errors = inner[places] - answers[0]
        squares = np.square(errors * self.season_.spreads[places[1]])
        error = float("nan")
        if len(squares):
            error = self.unit_ * float(np.sqrt(np.mean(squares)))
        if error < self.held_out_error_ or self.held_out_error_ == np.inf:
            self.kriging_, self.held_out_error_ = kriging, error
            self.scores_ = Scores.of(errors, answers[1], *places)
            self.calibration_ = self.scores_.spread


def fill_gaps(
    log: Any,
    period: Any = None,
    *,
    lags: tuple[int, ...] = (1, 2),
    neighbours: int = 12,
    time: str | None = None,
    return_std: bool = False,
    random_state: int = 0,
    engine: str | Engine = "auto",
) -> Any:
    """The log without gaps, filled from neighbours, hours around and days around.

    Parameters
    ----------
    log : frame or array
        Times in rows, at equal steps, and sensors in columns; NaN or null in gaps.
    period : int or timedelta, optional
        Length of a cycle, in steps or as a time; a day where the log has times.
    lags, neighbours, time, random_state, engine
        As in `GapFiller`.
    return_std : bool, default=False
        Also give standard deviations, 0 where an entry is known.

    Returns
    -------
    filled : same container
        Known entries as they are.
    std : same container
        Only with ``return_std``.

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
    filler = GapFiller(period, lags, neighbours, time, random_state, engine)
    return filler.fit(log).transform(log, return_std=return_std)


def _checked_lags(lags: Any) -> tuple[int, ...]:
    """Cycles away as whole numbers from 1."""
    if isinstance(lags, int):
        lags = (lags,)
    return tuple(sorted({check_whole("each of lags", lag, low=1) for lag in lags}))
