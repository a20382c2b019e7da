"""Tables of truth values that mark the treated entries of a panel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ncarl.core.types import Array
from ncarl.panel.data import Given, Panel
from ncarl.panel.naming import listed
from ncarl.sources.frames import dense_values, is_frame, is_polars


def mask_from_table(panel: Panel, table: Any, given: Given) -> Array:
    """The treated entries of a panel, shape (units, times), from a table of them.

    Frames go by their labels. Arrays lie as what the panel was read from.

    Parameters
    ----------
    panel : Panel
        The panel.
    table : frame or array
        True and False, or 1 and 0.
    given : Given
        Order of the times, and whether units are columns.
    """
    rows, columns, values = _split(table)
    if not np.isin(values, (0, 1)).all():
        raise ValueError("a table of treated entries must hold True and False only")
    mask = np.asarray(values).astype(bool)
    sides = "(units, times)"
    if given.turned:
        rows, columns, mask, sides = columns, rows, mask.T, "(times, units)"
    if mask.shape != panel.values.shape:
        shape = panel.values.shape[::-1] if given.turned else panel.values.shape
        got = mask.shape[::-1] if given.turned else mask.shape
        raise ValueError(
            "a table of treated entries must have the shape of the panel, "
            f"{shape} {sides}, got {got}"
        )
    units = _places("units", panel.units, rows, range(len(panel.units)))
    times = _places("times", panel.times, columns, given.order)
    return mask[np.ix_(units, times)]


def _split(
    table: Any,
) -> tuple[Sequence[Any] | None, Sequence[Any] | None, Array]:
    """Labels of rows and columns, None where there are none, and the values."""
    if not is_frame(table):
        return None, None, np.asarray(table)
    if not is_polars(table):
        return table.index.tolist(), list(table.columns), dense_values(table)
    first = table.columns[0]
    kind = table.schema[first]
    if kind.is_numeric() or str(kind) == "Boolean":
        numbers = table[first].to_list()
        if all(number in (0, 1) for number in numbers):
            return None, list(table.columns), dense_values(table)
    inner = table.drop(first)
    return table[first].to_list(), list(inner.columns), dense_values(inner)


def _places(
    side: str, names: Sequence[Any], labels: Sequence[Any] | None, usual: Sequence[int]
) -> list[int]:
    """Where each unit or time of the panel is in the table."""
    if labels is None:
        return list(usual)
    found = {label: k for k, label in enumerate(labels)}
    if len(found) == len(names) and all(name in found for name in names):
        return [found[name] for name in names]
    if list(labels) == list(range(len(names))):
        # Rows and columns that are only numbered have no names to go by.
        return list(usual)
    known = set(names)
    odd = [label for label in labels if label not in known]
    odd = odd or [name for name in names if name not in found]
    raise ValueError(
        f"a table of treated entries must have the {side} of the panel as labels, and "
        f"{listed(odd, most=5)} {'does' if len(odd) == 1 else 'do'} not match "
        f"{listed(names, most=5)}; give it the same labels, or pass a plain array "
        "that lies as the data"
    )
