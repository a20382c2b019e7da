"""What tables with named columns have in common, whatever their files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ncarl.core.types import Array


def arrow_values(batch: Any, names: Sequence[str]) -> Array:
    """Columns of an Arrow batch as floats, NaN where there is nothing."""
    import pyarrow as pa

    # Filled a column at a time, and turned once: a stride a number is slow.
    turned = np.empty((len(names), batch.num_rows))
    places = {name: k for k, name in enumerate(batch.schema.names)}
    for j, name in enumerate(names):
        # Whole numbers beyond 2^53 are rounded, as they are everywhere else.
        column = batch.column(places[name]).cast(pa.float64(), safe=False)
        turned[j] = column.to_numpy(zero_copy_only=False)
    return np.ascontiguousarray(turned.T)


def rebatched(arrays: Iterable[Array], step: int) -> Iterator[Array]:
    """The rows of some arrays in new ones of ``step`` rows; the last may have fewer.

    Examples
    --------
    >>> [len(a) for a in rebatched([np.zeros((3, 1)), np.zeros((4, 1))], 2)]
    [2, 2, 2, 1]
    """
    waiting, count = list[Array](), 0
    for array in arrays:
        waiting.append(array)
        count += len(array)
        while count >= step:
            rows = waiting[0] if len(waiting) == 1 else np.concatenate(waiting)
            yield rows[:step]
            count -= step
            waiting = [rows[step:]]
    if count:
        yield np.concatenate(waiting)


def wanted_names(
    found: Sequence[str], columns: Sequence[str] | None, where: str
) -> tuple[str, ...]:
    """Names of the columns to read, or an error about those that are not there.

    Parameters
    ----------
    found : sequence of str
        Names in the file.
    columns : sequence of str or None
        Names asked for; None for all.
    where : str
        What errors call the file.
    """
    if isinstance(columns, str):
        raise TypeError(
            f"columns must be a list of names, got {columns!r}; write [{columns!r}]"
        )
    wanted = tuple(found if columns is None else columns)
    counts, asked = Counter(found), Counter(wanted)
    absent = [name for name in asked if name not in counts]
    if absent:
        raise ValueError(
            f"columns names {listed(absent)}, which {where} does not have; it has "
            f"{listed(found)}"
        )
    twice = [name for name in asked if counts[name] > 1 or asked[name] > 1]
    if twice:
        raise ValueError(
            f"columns must have different names in {where}, got twice: "
            f"{listed(twice)}; rename them in the file, or leave them out with columns="
        )
    if not wanted:
        raise ValueError(f"columns must name at least one column of {where}, got none")
    return wanted


def listed(names: Sequence[Any], most: int = 8) -> str:
    """Names in quotes, not too many of them.

    Examples
    --------
    >>> listed(["a", "b", "c"], most=2)
    "'a', 'b' and 1 more"
    """
    shown = ", ".join(repr(name) for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")
