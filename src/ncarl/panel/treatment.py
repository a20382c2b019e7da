"""Which entries of a panel are treated."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any

import numpy as np

from ncarl.core.types import Array
from ncarl.panel.data import Panel
from ncarl.sources.frames import dense_values, is_frame

#: A treated unit needs so many numbers from before.
LEAST_BEFORE = 2


def treated_entries(panel: Panel, treated: Any, start: Any) -> Array:
    """A mask of the treated entries, shape (units, times), that can be worked with.

    Parameters
    ----------
    panel : Panel
        The panel.
    treated : name, list of names, mapping or boolean table
        See `ncarl.panel.counterfactual`.
    start : label of a time or None
        When treatment began, where ``treated`` does not say.
    """
    mask = _mask(panel, treated, start)
    _refuse_hopeless(panel, mask)
    return mask


def _mask(panel: Panel, treated: Any, start: Any) -> Array:
    """The mask as it was given."""
    if isinstance(treated, Mapping):
        if start is not None:
            raise ValueError(
                "start must be None where treated gives each unit its own start, got "
                f"{start!r}"
            )
        return _from_starts(panel, treated)
    table = _boolean_table(treated)
    if table is not None:
        if start is not None:
            raise ValueError(
                f"start must be None where treated is a table, got {start!r}"
            )
        if table.shape != panel.values.shape:
            raise ValueError(
                "a table of treated entries must have the shape of the panel, "
                f"{panel.values.shape} (units, times), got {table.shape}"
            )
        return table
    if start is None:
        raise ValueError(
            "start must say when treatment began: the first treated time, such as "
            f"start={panel.times[-1]!r}; or give treated as {{unit: start}}"
        )
    several = isinstance(treated, list | tuple | set | frozenset)
    names = list(treated) if several else [treated]
    if not names:
        raise ValueError("treated must name at least one unit, got none")
    return _from_starts(panel, dict.fromkeys(names, start))


def _boolean_table(treated: Any) -> Array | None:
    """A table of truth values, or None if this is none."""
    if is_frame(treated):
        values = dense_values(treated)
    elif isinstance(treated, np.ndarray) and treated.ndim == 2:
        values = treated
    else:
        return None
    if not np.isin(values, (0, 1)).all():
        raise ValueError("a table of treated entries must hold True and False only")
    return np.asarray(values).astype(bool)


def _from_starts(panel: Panel, starts: Mapping[Any, Any]) -> Array:
    """All entries of units from their starts on."""
    mask = np.zeros(panel.values.shape, dtype=bool)
    for unit, start in starts.items():
        row = panel.position(unit)
        try:
            first = _like_times(panel, start)
            after = np.array([bool(time >= first) for time in panel.times])
        except (TypeError, ValueError):
            raise ValueError(
                f"start must be a time like those of the panel ({panel.times[0]!r} to "
                f"{panel.times[-1]!r}), got {start!r}"
            ) from None
        if not after.any():
            raise ValueError(
                f"start must lie in the panel, whose times end with "
                f"{panel.times[-1]!r}, got {start!r} for {unit!r}"
            )
        mask[row] = after
    return mask


def _like_times(panel: Panel, start: Any) -> Any:
    """The start as a date where times are dates and it is written as text."""
    kind = type(panel.times[0])
    if isinstance(start, str) and issubclass(kind, datetime.date):
        return kind.fromisoformat(start)
    return start


def _refuse_hopeless(panel: Panel, mask: Array) -> None:
    """Raise where nothing can be said of what would have been."""
    there = ~np.isnan(panel.values)
    units = np.flatnonzero(mask.any(axis=1))
    if len(units) == 0:
        raise ValueError("treated must mark at least one entry, got none")
    controls = ~mask.any(axis=1) & there.any(axis=1)
    if not controls.any():
        raise ValueError(
            "there are no control units: every unit is treated at some time. At least "
            "one must never be, to say what would have been"
        )
    before = (there & ~mask).sum(axis=1)
    for unit in units:
        if before[unit] < LEAST_BEFORE:
            raise ValueError(
                f"{panel.units[unit]!r} has {before[unit]} numbers from before its "
                f"treatment, and {LEAST_BEFORE} are needed at least; a later start, or "
                "leave this unit out"
            )
        if not (there & mask)[unit].any():
            raise ValueError(
                f"{panel.units[unit]!r} has no number from when it is treated, so that "
                "no effect can be seen; leave this unit out"
            )
    times = np.flatnonzero(mask.any(axis=0))
    silent = [panel.times[t] for t in times if not there[controls][:, t].any()]
    if silent:
        raise ValueError(
            f"no control unit has a number at {silent[0]!r}, when others are treated "
            f"({len(silent)} such times); leave these times out"
        )
