"""`Panel`, a table of units and times, its readers, and masks of treated entries.

Panels are read from wide or long frames and from arrays; times are put in order; the
treated entries are given as units with a start, or as a boolean table.
"""

from __future__ import annotations

import contextlib
import datetime
import difflib
import re
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from ncarl.core.types import Array
from ncarl.datasets.others import YearlyPanel
from ncarl.io.base import conversion_hint, dense_values, is_frame, is_polars, library_of
from ncarl.text import join_names, quote
from ncarl.validation import check_choice

#: Minimum number of values that a treated unit needs from before its treatment.
MIN_PRE_TREATMENT = 2
NUMBER_PATTERN = re.compile(r"\d+")
#: Of several numbers in a label, the first must be a year: "2020-09", not "9/2020".
YEAR_FIRST_PATTERN = re.compile(r"\d{4}(?!\d)")
#: Text that may be a date: a year with something beside it, or three numbers and a time
#: of day. "7", "10:30" and "1.2.3" are names of rows, not times.
YEAR_REGEX = r"(?<!\d)(?:1[89]|20)\d\d"
DATE_PATTERN = re.compile(
    rf"{YEAR_REGEX}[-/. ]\w|\w[-/., ]+{YEAR_REGEX}(?!\d)|{YEAR_REGEX}\d{{4}}T\d|"
    r"\d+\D\d+\D\d+\D+\d+:\d"
)
#: Maximum number of labels that are parsed as dates, which is slow.
MAX_PARSED_LABELS = 1000


@dataclass(frozen=True, eq=False)
class Panel:
    """Values of units over time.

    Make one with `from_long` or `from_wide`, or from arrays.

    Attributes
    ----------
    values : array of shape (units, times)
        The values; NaN at missing entries.
    units, times : tuples
        Labels of the rows and of the columns; times in increasing order. Strings are
        ordered by their numbers ("week 9", "week 10"); strings without any ("Jan")
        keep the given order.
    library : {"numpy", "pandas", "polars"}
        Library of the input, also used for frames of results.

    Examples
    --------
    >>> import numpy as np
    >>> from ncarl.panel import Panel
    >>> panel = Panel(np.eye(2), units=("Aube", "Marne"), times=(2019, 2020))
    >>> panel.value("Marne", 2020)
    1.0
    """

    values: Array
    units: tuple[Any, ...]
    times: tuple[Any, ...]
    library: str = "numpy"
    #: Layout of the input: position of each time, and whether units were its columns.
    time_order: tuple[int, ...] = field(init=False, repr=False)
    units_as_columns: bool = field(init=False, repr=False, default=False)

    def __post_init__(self) -> None:
        values = np.array(table_values(self.values, "a panel"), dtype=np.float64)
        if np.isinf(values).any():
            raise ValueError("values must be finite, or NaN where missing")
        expected = (len(self.units), len(self.times))
        if values.shape != expected:
            raise ValueError(
                f"values must have shape (units, times) = {expected}, got "
                f"{values.shape}"
            )
        for name, labels in (("units", self.units), ("times", self.times)):
            repeated = [x for x, count in Counter(labels).items() if count > 1]
            if repeated:
                raise ValueError(
                    f"{name} must be unique, got {repeated[0]!r} twice or more; for a "
                    "long frame, give its columns unit, time and value"
                )
        order = argsort_times(self.times)
        object.__setattr__(self, "time_order", tuple(order))
        object.__setattr__(self, "values", values[:, order])
        object.__setattr__(self, "units", tuple(self.units))
        object.__setattr__(self, "times", tuple(self.times[k] for k in order))

    @classmethod
    def from_long(cls, frame: Any, *, unit: str, time: str, value: str) -> Self:
        """A panel from a long frame, with one row for each unit and time.

        Parameters
        ----------
        frame : pandas or polars frame
            Rows in any order; entries without a row, or null, are missing.
        unit, time, value : str
            Names of its columns.

        Raises
        ------
        ValueError
            If a unit has two rows for one time, or a row has no unit or time.

        Examples
        --------
        >>> import pandas as pd
        >>> from ncarl.panel import Panel
        >>> lines = pd.DataFrame(
        ...     {
        ...         "state": ["CA", "NV", "CA"],
        ...         "year": [1989, 1989, 1988],
        ...         "packs": [82.4, 150.0, 90.1],
        ...     }
        ... )
        >>> panel = Panel.from_long(lines, unit="state", time="year", value="packs")
        >>> panel.times, panel.values.shape
        ((1988, 1989), (2, 2))
        """
        if not is_frame(frame):
            raise TypeError(
                f"a long panel must be a pandas or polars frame, got "
                f"{type(frame).__name__}; convert it, or pass a wide array without "
                "unit, time and value"
            )
        if len(frame) == 0:
            raise ValueError(
                "a long panel must have at least one row, got an empty frame; see "
                "whether a filter dropped all rows"
            )
        names = list(frame.columns)
        for role, name in (("unit", unit), ("time", time), ("value", value)):
            if name not in names:
                raise ValueError(
                    f"{role} must be a column of the frame, got {name!r}; it has "
                    f"{join_names(names, 20, form=repr)}"
                )
        units, rows = _factorize_labels("unit", frame[unit].to_list())
        times, columns = _factorize_labels("time", frame[time].to_list())
        ordered = not all_strings(times) or numeric_sort_keys(times) is not None
        if not ordered and list(times) != sorted(times):
            raise ValueError(
                f"times must have an order, and column {time!r} holds strings such as "
                f"{times[0]!r}; convert them to numbers or dates (pandas.to_datetime, "
                "polars str.to_date) first, or give a wide table with ordered columns"
            )
        place = rows * len(times) + columns
        first, counts = np.unique(place, return_index=True, return_counts=True)[1:]
        if (counts > 1).any():
            line = int(first[np.argmax(counts > 1)])
            raise ValueError(
                f"the panel has more than one row for {unit} {units[rows[line]]!r} at "
                f"{time} {times[columns[line]]!r} ({int((counts > 1).sum())} such "
                "pairs in all); keep one row of each, or their mean"
            )
        values = np.full((len(units), len(times)), np.nan)
        values[rows, columns] = dense_values(frame[[value]])[:, 0]
        order = argsort_times(times)
        # A long frame has no order of its times, so that of the panel is the given one.
        times, values = tuple(times[k] for k in order), values[:, order]
        return cls(values, units, times, library_of(frame))

    @classmethod
    def from_wide(
        cls, table: Any, *, units: str = "rows", labels: str | None = None
    ) -> Self:
        """A panel from a wide table, with units on one axis and times on the other.

        Parameters
        ----------
        table : pandas or polars frame, or array
            Labels of a pandas frame are its index and columns. Rows and columns of an
            array are numbered from 0.
        units : {"rows", "columns"}, default="rows"
            The axis of the units.
        labels : str, optional
            The column with the labels of the rows; by default the first one of a
            polars frame, the index of a pandas frame.

        Examples
        --------
        >>> import numpy as np
        >>> from ncarl.panel import Panel
        >>> Panel.from_wide(np.zeros((3, 8)), units="columns").values.shape
        (8, 3)
        """
        check_choice("units", units, ("rows", "columns"))
        rows, columns, values = _parse_wide(table, labels)
        if units == "columns":
            rows, columns, values = columns, rows, values.T
        library = library_of(table) if is_frame(table) else "numpy"
        panel = cls(values, rows, columns, library)
        object.__setattr__(panel, "units_as_columns", units == "columns")
        return panel

    def position(self, unit: Any) -> int:
        """Row of a unit; an error with suggestions if there is no such unit."""
        for k, name in enumerate(self.units):
            if name is unit or name == unit:
                return k
        raise ValueError(_unknown_unit_message(self, unit))

    def value(self, unit: Any, time: Any) -> float:
        """Value of one unit at one time."""
        return float(self.values[self.position(unit), self.times.index(time)])


def as_panel(
    data: Any, unit: str | None, time: str | None, value: str | None, units: str
) -> Panel:
    """A panel from a `Panel`, a long frame with three column names, or a wide table."""
    named = [name for name in (unit, time, value) if name is not None]
    is_loaded = isinstance(data, YearlyPanel)
    if units != "rows" and (named or is_loaded or isinstance(data, Panel)):
        raise ValueError(f"units applies to wide tables only, got units={units!r}")
    if isinstance(data, Panel):
        if named:
            raise ValueError("unit, time and value belong to frames; this is a Panel")
        return data
    if unit is not None and time is not None and value is not None:
        return Panel.from_long(data, unit=unit, time=time, value=value)
    if named:
        raise ValueError(
            "a long panel needs the names of three columns: unit, time and value; got "
            f"unit={unit!r}, time={time!r}, value={value!r}. A wide one needs none."
        )
    if is_loaded:
        return Panel(data.outcome, data.units, tuple(data.years.tolist()))
    return Panel.from_wide(data, units=units)


def table_values(table: Any, what: str) -> Array:
    """Values of a frame or array with two axes; errors call it ``what``."""
    kind, wanted = type(table).__name__, f"{what} must be a frame or 2-D array"
    if is_frame(table):
        values = dense_values(table)
    elif getattr(getattr(table, "dtype", None), "kind", None) in ("c", "m", "M"):
        raise TypeError(f"{wanted} of real numbers, got dtype {table.dtype}")
    else:
        try:
            values = dense_values(table)
        except (TypeError, ValueError) as error:
            hint = conversion_hint(table, error)
            raise TypeError(f"{wanted} of numbers, got a {kind}; {hint}") from None
    if values.ndim == 1:
        hint = "one column is .to_frame() of a Series, .reshape(-1, 1) of an array"
        raise ValueError(f"{wanted}, got one axis; {hint}")
    if values.ndim != 2 or 0 in values.shape:
        raise ValueError(
            f"{wanted} with at least one row and one column, got shape {values.shape}"
        )
    return values


def _parse_wide(
    table: Any, labels: str | None
) -> tuple[tuple[Any, ...], tuple[Any, ...], Array]:
    """Labels of rows and columns, and the values."""
    if not is_frame(table):
        values = table_values(table, "a panel")
        return tuple(range(values.shape[0])), tuple(range(values.shape[1])), values
    if is_polars(table):
        labels = table.columns[0] if labels is None else labels
        rows = table[labels].to_list()
        inner = table.drop(labels)
    else:
        inner = table if labels is None else table.set_index(labels)
        rows = inner.index.tolist()
    try:
        return tuple(rows), tuple(inner.columns), dense_values(inner)
    except ValueError as error:
        raise ValueError(
            f"{error} If one of them names the rows: Panel.from_wide(table, labels=...)"
        ) from None


def _factorize_labels(role: str, labels: list[Any]) -> tuple[tuple[Any, ...], Array]:
    """Distinct labels in order of appearance, and the code of each row."""
    numbers: dict[Any, int] = {}
    codes = np.empty(len(labels), dtype=np.int64)
    for line, label in enumerate(labels):
        if label is None or label != label:
            raise ValueError(
                f"every row must name a {role}, and row {line} (from 0) has none; drop "
                "such rows"
            )
        codes[line] = numbers.setdefault(label, len(numbers))
    return tuple(numbers), codes


def treatment_mask(
    panel: Panel, treated: Any, start: Any, *, input_layout: bool = False
) -> Array:
    """Mask of the treated entries, shape (units, times), checked for identifiability.

    ``treated`` and ``start`` are those of `ncarl.panel.counterfactual`. A boolean array
    has the layout of the panel, or with ``input_layout`` that of the panel's input.
    """
    own_start = isinstance(treated, Mapping)
    is_array = isinstance(treated, np.ndarray) and treated.ndim == 2
    is_table = is_frame(treated) or is_array
    if (own_start or is_table) and start is not None:
        form = "a mapping of units to starts" if own_start else "a table"
        raise ValueError(f"start must be None where treated is {form}, got {start!r}")
    if own_start:
        mask = _mask_from_starts(panel, treated)
    elif is_table:
        mask = _mask_from_table(panel, treated, input_layout)
    elif start is None:
        raise ValueError(
            "start must be the first treated time, such as "
            f"start={panel.times[-1]!r}; or give treated as {{unit: start}}"
        )
    else:
        mask = _mask_from_starts(panel, dict.fromkeys(_treated_units(treated), start))
    _check_identifiable(panel, mask)
    return mask


def _treated_units(treated: Any) -> list[Any]:
    """Labels of the treated units, from a collection or a single label."""
    # An array, the index of a frame or one of its columns.
    if getattr(treated, "ndim", 0) == 1 or type(treated).__name__ == "Series":
        treated = treated.tolist() if hasattr(treated, "tolist") else list(treated)
    if not isinstance(treated, list | tuple | set | frozenset):
        return [treated]
    if treated and all(isinstance(unit, bool | np.bool_) for unit in treated):
        raise ValueError(
            "treated must name units, or be a boolean table of units and times, got a "
            "vector of booleans; give the labels where it is True"
        )
    return list(treated)


def _mask_from_starts(panel: Panel, starts: Mapping[Any, Any]) -> Array:
    mask = np.zeros(panel.values.shape, dtype=bool)
    for unit, start in starts.items():
        row = panel.position(unit)
        try:
            mask[row] = _post_treatment_mask(panel.times, start)
        except (TypeError, ValueError):
            raise ValueError(
                f"start must be a time like those of the panel ({panel.times[0]!r} to "
                f"{panel.times[-1]!r}), got {start!r}; use one of panel.times"
            ) from None
        if not mask[row].any():
            raise ValueError(
                f"start must lie in the panel, whose times end with "
                f"{panel.times[-1]!r}, got {start!r} for {unit!r}"
            )
    return mask


def _check_identifiable(panel: Panel, mask: Array) -> None:
    """Raise if the counterfactual of a treated unit or time cannot be estimated."""
    observed = ~np.isnan(panel.values)
    if not mask.any():
        raise ValueError("treated must name at least one unit or entry, got none")
    controls = ~mask.any(axis=1) & observed.any(axis=1)
    if not controls.any():
        raise ValueError(
            "there are no control units: every unit is treated at some time. At least "
            "one unit must never be treated"
        )
    before = (observed & ~mask).sum(axis=1)
    for unit in np.flatnonzero(mask.any(axis=1)):
        if before[unit] < MIN_PRE_TREATMENT:
            raise ValueError(
                f"{panel.units[unit]!r} has {before[unit]} values from before its "
                f"treatment, and at least {MIN_PRE_TREATMENT} are needed; set a later "
                "start, or leave this unit out"
            )
        if not (observed & mask)[unit].any():
            raise ValueError(
                f"{panel.units[unit]!r} has no value at treated times, so its effect "
                "cannot be estimated; leave this unit out"
            )
    times = np.flatnonzero(mask.any(axis=0))
    silent = [panel.times[t] for t in times if not observed[controls][:, t].any()]
    if silent:
        raise ValueError(
            f"no control unit has a value at {silent[0]!r}, when others are treated "
            f"({len(silent)} such times); leave these times out"
        )


def _mask_from_table(panel: Panel, table: Any, input_layout: bool) -> Array:
    """Mask of the treated entries from a boolean table; frames align by labels."""
    transposed = input_layout and panel.units_as_columns
    order = panel.time_order if input_layout else range(len(panel.times))
    rows = columns = None
    values = np.asarray(table)
    if is_frame(table):
        rows, columns, values = _parse_wide(table, None)
    if not np.isin(values, (0, 1)).all():
        raise ValueError("a table of treated entries must hold True and False only")
    mask = values.astype(bool)
    shape, sides = panel.values.shape, "(units, times)"
    if transposed:
        shape, sides = shape[::-1], "(times, units)"
    if mask.shape != shape:
        raise ValueError(
            "a table of treated entries must have the shape of the panel, "
            f"{shape} {sides}, got {mask.shape}"
        )
    if transposed:
        rows, columns, mask = columns, rows, mask.T
    units = _align_labels("units", panel.units, rows, range(len(panel.units)))
    times = _align_labels("times", panel.times, columns, order)
    return mask[np.ix_(units, times)]


def _align_labels(
    side: str, names: Sequence[Any], labels: Sequence[Any] | None, order: Sequence[int]
) -> Sequence[int]:
    """Position of each unit or time of the panel in the table; ``order`` by default."""
    if labels is None:
        return order
    position = {label: k for k, label in enumerate(labels)}
    if set(names) == set(labels):
        return [position[name] for name in names]
    if list(labels) == list(range(len(names))):
        # Rows and columns that are merely numbered have no labels to align by.
        return order
    odd = [label for label in labels if label not in set(names)]
    odd = odd or [name for name in names if name not in position]
    raise ValueError(
        f"a table of treated entries must have the {side} of the panel as labels, and "
        f"{join_names(odd, 5, form=repr)} {'does' if len(odd) == 1 else 'do'} not "
        f"match {join_names(names, 5, form=repr)}; use the same labels, or pass an "
        "array with the layout of the data"
    )


def treatment_patterns(treated: Array) -> tuple[list[Array], list[int]]:
    """Distinct masks of treated times, and the index of that of each treated unit."""
    rows = treated[treated.any(axis=1)]
    different, which = np.unique(rows, axis=0, return_inverse=True)
    return list(different), np.ravel(which).tolist()


def argsort_times(times: Sequence[Any]) -> list[int]:
    """Positions of the times in order; strings without numbers keep their order."""
    places = range(len(times))
    keys: Sequence[Any] | None = times
    if all_strings(times):
        keys = numeric_sort_keys(times)
    try:
        return sorted(places, key=(keys or places).__getitem__)
    except TypeError:
        kinds = sorted({type(time).__name__ for time in times})
        raise ValueError(
            "times must be comparable with each other, got "
            f"{join_names(kinds, last=' and ')}; name a column of labels with "
            "Panel.from_wide(table, labels=...)"
        ) from None


def all_strings(times: Sequence[Any]) -> bool:
    """Whether there are times and all of them are strings."""
    return len(times) > 0 and all(isinstance(time, str) for time in times)


def numeric_sort_keys(times: Sequence[str]) -> list[tuple[float, ...]] | None:
    """Keys to sort strings by their numbers; None if these do not give an order."""
    with contextlib.suppress(ValueError):
        numbers: list[tuple[float, ...]] = [(float(time),) for time in times]
        return numbers if np.isfinite(numbers).all() else None
    if len({NUMBER_PATTERN.sub("#", time) for time in times}) != 1:
        return None
    keys = [tuple(map(float, NUMBER_PATTERN.findall(time))) for time in times]
    several = len(keys[0]) > 1
    if not keys[0] or (several and not all(map(YEAR_FIRST_PATTERN.match, times))):
        return None
    return keys


def _post_treatment_mask(times: Sequence[Any], start: Any) -> Array:
    """Mask of the times from a start on; an error if they cannot be compared."""
    if not all_strings(times):
        first = _coerce_start(times[0], start)
        return np.array([bool(time >= first) for time in times])
    if start in times:
        return np.arange(len(times)) >= times.index(start)
    keys = numeric_sort_keys([*times, start]) if isinstance(start, str) else None
    if keys is None:
        raise ValueError("no such time")
    return np.array([key >= keys[-1] for key in keys[:-1]])


def _coerce_start(time: Any, start: Any) -> Any:
    """The start as a date if it is a string and the times are dates."""
    if not (isinstance(start, str) and isinstance(time, datetime.date)):
        return start
    first_day = {4: "-01-01", 7: "-01"}.get(len(start), "")  # of a year or a month
    date: Any = type(time).fromisoformat(start + first_day)
    zone = getattr(time, "tzinfo", None)
    if zone is not None and date.tzinfo is None:
        # A start without a time zone is taken to be in that of the panel.
        localize = getattr(date, "tz_localize", None)
        return localize(zone) if localize else date.replace(tzinfo=zone)
    return date


def labels_are_dates(labels: Any) -> bool:
    """Whether the labels of a pandas index are dates, or strings that all are dates."""
    import pandas as pd

    present = labels.dropna().tolist() if labels.nlevels == 1 else []
    if present and all(isinstance(label, datetime.date) for label in present):
        return True
    if not all_strings(present) or not all(map(DATE_PATTERN.search, present)):
        return False
    with warnings.catch_warnings():
        # Pandas warns if the day may come before the month, which does not matter here.
        warnings.simplefilter("ignore")
        sample = present[:: -(-len(present) // MAX_PARSED_LABELS)]
        dates = pd.to_datetime(sample, errors="coerce", format="mixed", utc=True)
    return bool(dates.notna().all())


def _unknown_unit_message(panel: Panel, unit: Any) -> str:
    begin = f"treated must name units of the panel, got {_format_label(unit)}"
    alike = [name for name in panel.units if str(name) == str(unit)]
    if alike:
        kind, other = type(unit).__name__, type(alike[0]).__name__
        return f"{begin} ({kind}); did you mean {_format_label(alike[0])} ({other})"
    if any(name is unit or name == unit for name in panel.times):
        side = "rows" if panel.units_as_columns else "columns"
        return (
            f'{begin}, which is one of its times; set units="{side}" if the units are '
            f"the {side} of a wide table, or swap unit and time of a long one"
        )
    texts = [str(name) for name in panel.units]
    near = difflib.get_close_matches(str(unit), texts, cutoff=0.5)
    if near:
        suggestions = [panel.units[texts.index(name)] for name in near]
        return f"{begin}; did you mean {join_names(suggestions, form=_format_label)}"
    return f"{begin}; there are {join_names(panel.units, 10, form=_format_label)}"


def _format_label(label: Any) -> str:
    """``repr`` of a label, of a NumPy scalar as a Python number or string."""
    return quote(label.item() if type(label).__module__ == "numpy" else label)
