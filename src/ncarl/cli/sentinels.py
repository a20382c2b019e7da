"""Numbers that may stand for missing cells: -999 among ages."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ncarl.cli.files import listed
from ncarl.core.types import Array

#: What people write where they know nothing, with either sign.
USUAL = (99.0, 999.0, 9999.0, 99999.0, 999999.0)
#: A value so far from the others, in their range or their size, is not one of them.
FAR = 3.0
#: So many cells have to hold it.
FEWEST = 2


def sentinels(values: Array, columns: Sequence[str]) -> list[str]:
    """What to say of columns in which a number seems to mean missing.

    Parameters
    ----------
    values : array of shape (m, n)
        The table, with NaN in its gaps.
    columns : sequence of str
        Names of its columns.

    Examples
    --------
    >>> import numpy as np
    >>> sentinels(np.array([[31.0], [-999.0], [47.0], [-999.0]]), ["age"])
    ['-999 stands 2 times in age, far from the rest; if that means missing: --na -999']
    """
    found: dict[float, list[tuple[str, int]]] = {}
    for j, name in enumerate(columns):
        known = values[:, j][~np.isnan(values[:, j])]
        for value in {float(known.min()), float(known.max())} if len(known) else ():
            if abs(value) in USUAL and _stands_apart(known, value):
                count = int(np.count_nonzero(known == value))
                found.setdefault(value, []).append((name, count))
    return [
        f"{value:.0f} stands {sum(count for _, count in those)} times in "
        f"{listed([name for name, _ in those])}, far from the rest; if that means "
        f"missing: --na {value:.0f}"
        for value, those in found.items()
    ]


def _stands_apart(known: Array, value: float) -> bool:
    """Whether a value at an end of a column, there several times, is not of it."""
    rest = known[known != value]
    if len(rest) == 0 or len(known) - len(rest) < FEWEST:
        return False
    low, high = float(rest.min()), float(rest.max())
    if value < 0.0 <= low:  # nothing else is negative
        return True
    gap = low - value if value < low else value - high
    return gap > FAR * max(high - low, abs(low), abs(high))
