"""Panels: one number for each unit and time, read from frames, lists and arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from ncarl.core.types import Array
from ncarl.panel.naming import listed, unknown_unit
from ncarl.panel.times import increasing, refuse_unordered
from ncarl.sources.frames import dense_values, is_frame, is_polars


@dataclass(frozen=True)
class Given:
    """How the numbers of a panel lay where they came from.

    Attributes
    ----------
    order : tuple of int
        Where each time of the panel stood.
    turned : bool
        Whether units were columns.
    """

    order: tuple[int, ...]
    turned: bool = False


@dataclass(frozen=True, eq=False)
class Panel:
    """Numbers of units over time.

    Make one with `from_long` or `from_wide`, or from arrays.

    Attributes
    ----------
    values : array of shape (units, times)
        The numbers; NaN where there is none.
    units, times : tuples
        Names of the rows and of the columns; times in increasing order. Texts go by
        their numbers ("week 9", "week 10"); texts without any ("Jan") stay as given.
    library : {"numpy", "pandas", "polars"}
        Where the panel came from, and what frames of results are made with.

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
    given: Given = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse names that do not fit or come twice; put times in order."""
        values = np.array(dense_values(self.values), ndmin=2, dtype=np.float64)
        if np.isinf(values).any():
            raise ValueError("values must be finite, or NaN where there is none")
        expected = (len(self.units), len(self.times))
        if values.shape != expected:
            raise ValueError(
                f"values must have shape (units, times) = {expected}, got "
                f"{values.shape}"
            )
        for name in ("units", "times"):
            _refuse_twice(name, getattr(self, name))
        order = increasing(self.times)
        object.__setattr__(self, "given", Given(tuple(order)))
        object.__setattr__(self, "values", values[:, order])
        object.__setattr__(self, "units", tuple(self.units))
        object.__setattr__(self, "times", tuple(self.times[k] for k in order))

    @classmethod
    def from_long(cls, frame: Any, *, unit: str, time: str, value: str) -> Self:
        """A panel from a frame with one line for each unit and time.

        Parameters
        ----------
        frame : pandas or polars frame
            Lines in any order; what is not there, or null, is a gap.
        unit, time, value : str
            Names of its columns.

        Raises
        ------
        ValueError
            If a unit has two lines for one time, or a line names no unit or time.

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
                f"{type(frame).__name__}; make one, or pass a wide array without "
                "unit, time and value"
            )
        names = list(frame.columns)
        if len(frame) == 0:
            raise ValueError(
                "a long panel must have at least one line, got a frame without any; "
                "see whether a filter dropped them all"
            )
        for role, name in (("unit", unit), ("time", time), ("value", value)):
            if name not in names:
                raise ValueError(
                    f"{role} must be a column of the frame, got {name!r}; it has "
                    f"{listed(names, most=20)}"
                )
        units, rows = _numbered("unit", _labels(frame, unit))
        times, columns = _numbered("time", _labels(frame, time))
        refuse_unordered(time, times)
        numbers = _numbers(frame, value)
        place = rows * len(times) + columns
        first, counts = np.unique(place, return_index=True, return_counts=True)[1:]
        if (counts > 1).any():
            line = int(first[np.argmax(counts > 1)])
            raise ValueError(
                f"the panel has more than one line for {unit} {units[rows[line]]!r} at "
                f"{time} {times[columns[line]]!r} ({int((counts > 1).sum())} such "
                "pairs in all); keep one line of each, or their mean"
            )
        values = np.full((len(units), len(times)), np.nan)
        values[rows, columns] = numbers
        order = increasing(times)
        # Lines have no columns in any order, so the order given is that of the times.
        times, values = tuple(times[k] for k in order), values[:, order]
        return cls(values, units, times, "polars" if is_polars(frame) else "pandas")

    @classmethod
    def from_wide(
        cls, table: Any, *, units: str = "rows", labels: str | None = None
    ) -> Self:
        """A panel from a table with units along one side and times along the other.

        Parameters
        ----------
        table : pandas or polars frame, or array
            Labels of a pandas frame are its index and columns. Rows and columns of an
            array are numbered from 0.
        units : {"rows", "columns"}, default="rows"
            The side on which the units are.
        labels : str, optional
            The column that names the rows; the first one of a polars frame, the index
            of a pandas frame.

        Examples
        --------
        >>> import numpy as np
        >>> from ncarl.panel import Panel
        >>> Panel.from_wide(np.zeros((3, 8)), units="columns").values.shape
        (8, 3)
        """
        if units not in ("rows", "columns"):
            raise ValueError(f"units must be 'rows' or 'columns', got {units!r}")
        rows, columns, values = _sides(table, labels)
        library = "numpy"
        if is_frame(table):
            library = "polars" if is_polars(table) else "pandas"
        if units == "columns":
            rows, columns, values = columns, rows, values.T
        panel = cls(values, rows, columns, library)
        given = Given(panel.given.order, turned=units == "columns")
        object.__setattr__(panel, "given", given)
        return panel

    def position(self, unit: Any) -> int:
        """The row of a unit, or an error that names those there are."""
        for k, name in enumerate(self.units):
            if name is unit or name == unit:
                return k
        turned = self.given.turned
        raise ValueError(unknown_unit(unit, self.units, self.times, turned))

    def value(self, unit: Any, time: Any) -> float:
        """The number of one unit at one time."""
        return float(self.values[self.position(unit), self.times.index(time)])


def as_panel(
    data: Any, unit: str | None, time: str | None, value: str | None, units: str
) -> Panel:
    """A panel from whatever was given: a panel, lines with three names, or a table."""
    named = [name for name in (unit, time, value) if name is not None]
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
    if not is_frame(data) and hasattr(data, "outcome") and hasattr(data, "years"):
        # What ncarl.datasets.load_panel gives.
        return Panel(data.outcome, data.units, tuple(data.years.tolist()))
    return Panel.from_wide(data, units=units)


def _sides(
    table: Any, labels: str | None
) -> tuple[tuple[Any, ...], tuple[Any, ...], Array]:
    """Names of rows and columns, and the numbers."""
    if not is_frame(table):
        values = dense_values(table)
        if values.ndim != 2:
            raise ValueError(f"a wide panel must have two axes, got {values.ndim}")
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


def _labels(frame: Any, name: str) -> list[Any]:
    """A column of a frame as Python values."""
    column = frame[name]
    found: list[Any] = column.to_list() if is_polars(frame) else column.tolist()
    return found


def _numbers(frame: Any, name: str) -> Array:
    """A column of a frame as floats, NaN in gaps."""
    return dense_values(frame[[name]] if not is_polars(frame) else frame.select(name))[
        :, 0
    ]


def _numbered(role: str, labels: Sequence[Any]) -> tuple[tuple[Any, ...], Array]:
    """Different labels in the order in which they come, and the number of each line."""
    numbers: dict[Any, int] = {}
    found = np.empty(len(labels), dtype=np.int64)
    for line, label in enumerate(labels):
        if label is None or label != label:
            raise ValueError(
                f"every line must name a {role}, and line {line} (from 0) has none; "
                "drop such lines"
            )
        found[line] = numbers.setdefault(label, len(numbers))
    return tuple(numbers), found


def _refuse_twice(name: str, labels: Sequence[Any]) -> None:
    """Raise where a label comes twice."""
    seen = set()
    for label in labels:
        if label in seen:
            raise ValueError(
                f"{name} must all be different, got {label!r} twice; if the frame is "
                "long, name its columns unit, time and value"
            )
        seen.add(label)
