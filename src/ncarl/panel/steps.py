"""Steps of a log: how far its times are apart, and what to do where they are uneven."""

from __future__ import annotations

import datetime

import numpy as np

from ncarl.core.types import Array

DAY = np.timedelta64(1, "D")
HOUR = np.timedelta64(1, "h")
#: Stamps may be off their step by this part of it.
SLACK = 0.02
#: Steps without a line are allowed for up to so many times the lines.
SPARSEST = 20
#: The shortest month.
LEAST_MONTH = 28 * DAY


def steps_of(
    stamps: Array, given: np.timedelta64 | None
) -> tuple[np.timedelta64, Array]:
    """Length of a step, and the step of each line; an error if they are uneven.

    Parameters
    ----------
    stamps : datetime array of shape (lines,)
        The times.
    given : timedelta or None
        The step that the log must have; None to find it.
    """
    if np.isnat(stamps).any():
        raise ValueError("every line of a log must have a time; some have none")
    if len(stamps) < 2:
        raise ValueError("a log must have at least two lines, got one")
    stamps = stamps.astype("datetime64[us]")
    apart = np.diff(stamps)
    _refuse_backward(stamps, apart)
    step = np.median(apart) if given is None else given
    where = (stamps - stamps[0]) / step
    lines = np.rint(where).astype(np.int64)
    if np.abs(where - lines).max() > SLACK or (np.diff(lines) == 0).any():
        line = int(np.argmax(np.abs(where - lines) > SLACK))
        raise ValueError(
            f"times of a log must lie at equal steps, and line {line} ({stamps[line]}) "
            f"is off the step of {step.astype(datetime.timedelta)}"
            f"{'' if given is None else ' of the fit'}; " + _way_to_equal_steps(stamps)
        )
    if lines[-1] > SPARSEST * len(lines):
        raise ValueError(
            f"the log has {len(lines)} lines over {lines[-1]} steps of "
            f"{step.astype(datetime.timedelta)}; fill it piece by piece"
        )
    return step, lines


def _refuse_backward(stamps: Array, apart: Array) -> None:
    """Raise where a time comes twice or before the one above it."""
    back = apart <= np.timedelta64(0)
    if not back.any():
        return
    line = int(np.argmax(back)) + 1
    what = "comes twice" if apart[line - 1] == np.timedelta64(0) else "goes back"
    clock = ""
    if -apart[line - 1] <= HOUR and np.median(apart) <= HOUR:
        clock = (
            "; if a clock was put back there, say of which place the times are, and "
            "both hours stay: log.tz_localize('Europe/Paris', ambiguous='infer') in "
            "pandas (.dt.tz_localize for a column)"
        )
    raise ValueError(
        f"times of a log must increase, and line {line} (from 0, {stamps[line]}) "
        f"{what}; sort the log by time and keep one line of each time{clock}"
    )


def _way_to_equal_steps(stamps: Array) -> str:
    """What helps where steps are uneven."""
    if not _are_months(stamps):
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


def _are_months(stamps: Array) -> bool:
    """Whether all times are at one place of their month: its first day, its last."""
    if np.diff(stamps).min() < LEAST_MONTH:
        return False
    # Last days of months are a day before first days, in universal time perhaps two.
    for first in (stamps, stamps + DAY, stamps + 2 * DAY):
        into = first - first.astype("datetime64[M]")
        # A month of local times may begin an hour earlier in summer.
        if into.max() - into.min() <= HOUR:
            return True
    return False
