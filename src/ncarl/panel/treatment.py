"""Which entries of a panel are treated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ncarl.core.types import Array
from ncarl.panel.data import Given, Panel
from ncarl.panel.tables import mask_from_table
from ncarl.panel.times import from_start_on
from ncarl.sources.frames import is_frame

#: A treated unit needs so many numbers from before.
LEAST_BEFORE = 2


def treated_entries(
    panel: Panel, treated: Any, start: Any, given: Given | None = None
) -> Array:
    """A mask of the treated entries, shape (units, times), that can be worked with.

    Parameters
    ----------
    panel : Panel
        The panel.
    treated : name, list of names, mapping or boolean table
        See `ncarl.panel.counterfactual`.
    start : label of a time or None
        When treatment began, where ``treated`` does not say.
    given : Given, optional
        How an array of truth values lies; as the panel itself by default.
    """
    mask = _mask(panel, treated, start, given or Given(tuple(range(len(panel.times)))))
    _refuse_hopeless(panel, mask)
    return mask


def _mask(panel: Panel, treated: Any, start: Any, given: Given) -> Array:
    """The mask as it was given."""
    if isinstance(treated, Mapping):
        if start is not None:
            raise ValueError(
                "start must be None where treated gives each unit its own start, got "
                f"{start!r}"
            )
        return _from_starts(panel, treated)
    if is_frame(treated) or (isinstance(treated, np.ndarray) and treated.ndim == 2):
        if start is not None:
            raise ValueError(
                f"start must be None where treated is a table, got {start!r}"
            )
        return mask_from_table(panel, treated, given)
    if start is None:
        raise ValueError(
            "start must say when treatment began: the first treated time, such as "
            f"start={panel.times[-1]!r}; or give treated as {{unit: start}}"
        )
    names = _names(treated)
    if not names:
        raise ValueError("treated must name at least one unit, got none")
    return _from_starts(panel, dict.fromkeys(names, start))


def _names(treated: Any) -> list[Any]:
    """The units that are named: by a list or such, or by one name."""
    if isinstance(treated, list | tuple | set | frozenset):
        return list(treated)
    # An array, the index of a frame or one of its columns.
    if getattr(treated, "ndim", 0) == 1 or type(treated).__name__ == "Series":
        return list(treated.tolist() if hasattr(treated, "tolist") else treated)
    return [treated]


def _from_starts(panel: Panel, starts: Mapping[Any, Any]) -> Array:
    """All entries of units from their starts on."""
    mask = np.zeros(panel.values.shape, dtype=bool)
    for unit, start in starts.items():
        row = panel.position(unit)
        try:
            after = from_start_on(panel.times, start)
        except (TypeError, ValueError):
            raise ValueError(
                f"start must be a time like those of the panel ({panel.times[0]!r} to "
                f"{panel.times[-1]!r}), got {start!r}; take one of panel.times, "
                "written as it is there"
            ) from None
        if not after.any():
            raise ValueError(
                f"start must lie in the panel, whose times end with "
                f"{panel.times[-1]!r}, got {start!r} for {unit!r}"
            )
        mask[row] = after
    return mask


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


def patterns_of(treated: Array) -> tuple[list[Array], list[int]]:
    """Different sets of treated times, and which of them each treated unit has."""
    rows = treated[treated.any(axis=1)]
    different, which = np.unique(rows, axis=0, return_inverse=True)
    return list(different), [int(k) for k in np.ravel(which)]
