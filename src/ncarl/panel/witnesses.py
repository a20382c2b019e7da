"""Which entries of a log speak for a gap: neighbours, hours around, days around."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ncarl.core.types import Array

#: Entries of the sensor itself before and after the gap, of the nearest sensors, and of
#: the others where they have none at the time itself.
OWN, CLOSE, OTHERS = 4, 2, 1
#: So many sensors are close, and so many (with itself) are asked about other days.
CLOSE_SENSORS, DAILY_SENSORS = 3, 3
#: An entry of another day may be off by so many steps.
OFF = 2


@dataclass(frozen=True)
class Records:
    """Where a log has entries.

    Attributes
    ----------
    there : boolean array of shape (steps, sensors)
        Entries that may speak.
    before, after : arrays of int, shape (steps + 1, sensors)
        Last entry before step ``t``, and first one at ``t`` or later; -1 for none.
    """

    there: Array
    before: Array
    after: Array

    @classmethod
    def of(cls, there: Array) -> Records:
        """Tables for looking up the entries next to any step."""
        steps, n = there.shape
        places = np.arange(steps, dtype=np.int32)[:, None]
        none = np.full((1, n), -1, dtype=np.int32)
        before = np.maximum.accumulate(np.where(there, places, -1), axis=0)
        far = np.where(there, places, steps)[::-1]
        after = np.minimum.accumulate(far, axis=0)[::-1]
        return cls(
            there,
            np.concatenate([none, before]).astype(np.int32),
            np.concatenate([np.where(after == steps, -1, after), none]).astype(
                np.int32
            ),
        )


def witnesses(
    records: Records, t: Array, j: Array, near: Array, period: int | None,
    lags: tuple[int, ...],
) -> tuple[Array, Array]:  # fmt: skip
    """Steps and sensors of the entries that speak for some gaps.

    Parameters
    ----------
    records : Records
        Where entries are.
    t, j : arrays of int, shape (gaps,)
        Steps and sensors of the gaps.
    near : array of int, shape (sensors, neighbours + 1)
        Each sensor and those most like it.
    period : int or None
        Steps of a cycle.
    lags : tuple of int
        Cycles away that are looked at.

    Returns
    -------
    steps, sensors : arrays of int, shape (gaps, witnesses)
        -1 in ``steps`` where there is no such entry.
    """
    found: list[tuple[Array, Array]] = []
    for rank in range(near.shape[1]):
        i = near[j, rank]
        steps = _around(records, t, i, rank)
        if period is not None and rank < DAILY_SENSORS:
            for lag in lags:
                for away in (-lag * period, lag * period):
                    other = _close_to(records, t + away, i)
                    for known in steps:
                        other = np.where(known == other, -1, other)
                    steps.append(other)
        found += [(s, i) for s in steps]
    when = np.stack([s for s, _ in found], axis=1)
    return when, np.stack([i for _, i in found], axis=1)


def _around(records: Records, t: Array, i: Array, rank: int) -> list[Array]:
    """Entries of sensors ``i`` at the time itself, before and after."""
    here = records.there[t, i]
    steps = [np.where(here, t, -1)]
    reach = OWN if rank == 0 else CLOSE if rank <= CLOSE_SENSORS else OTHERS
    # Who speaks for the time itself need not, unless close, speak for those around it.
    silent = here & (rank > CLOSE_SENSORS)
    back, ahead = t.astype(np.int64), t.astype(np.int64)
    for _ in range(reach):
        back = np.where(back >= 0, records.before[np.maximum(back, 0), i], -1)
        ahead = np.where(ahead >= 0, records.after[np.maximum(ahead, -1) + 1, i], -1)
        steps += [np.where(silent, -1, back), np.where(silent, -1, ahead)]
    return steps


def _close_to(records: Records, t: Array, i: Array) -> Array:
    """The entry of sensors ``i`` that is nearest to steps ``t``; -1 if it is far."""
    last = len(records.there) - 1
    inside = (t >= 0) & (t <= last)
    held = np.clip(t, 0, last)
    before = records.before[held + 1, i].astype(np.int64)
    after = records.after[held, i].astype(np.int64)
    back = np.where(before >= 0, held - before, OFF + 1)
    ahead = np.where(after >= 0, after - held, OFF + 1)
    nearest = np.where(ahead < back, after, before)
    return np.where(inside & (np.minimum(back, ahead) <= OFF), nearest, -1)
