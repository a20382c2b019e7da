"""Labels in error messages: as they are, and with their type where text hides it."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

#: More labels than this are not listed.
MOST_LISTED = 10
#: So many labels are offered for one that is nearly right, and how alike they must be.
MOST_NEAR, LEAST_ALIKE = 3, 0.5


def listed(labels: Sequence[Any], most: int = MOST_LISTED) -> str:
    """The first labels as Python writes them; dots only where there are more.

    Examples
    --------
    >>> listed((2008, 2009, "later"), most=2)
    '2008, 2009 ...'
    >>> listed(("a", "b"))
    "'a', 'b'"
    """
    return ", ".join(map(written, labels[:most])) + (" ..." if labels[most:] else "")


def written(label: Any) -> str:
    """A label as Python writes it, a NumPy scalar as the number or text that it is."""
    plain = label.item() if type(label).__module__ == "numpy" else label
    return repr(plain)


def unknown_unit(
    unit: Any, units: Sequence[Any], times: Sequence[Any], turned: bool
) -> str:
    """What is wrong with the name of a unit that a panel does not have.

    Parameters
    ----------
    unit : label
        What was asked for.
    units, times : sequences of labels
        What there is.
    turned : bool
        Whether units were columns where the panel was read from.
    """
    begin = f"treated must name units of the panel, got {written(unit)}"
    alike = [name for name in units if str(name) == str(unit)]
    if alike:
        kind, other = type(unit).__name__, type(alike[0]).__name__
        return f"{begin} ({kind}); did you mean {written(alike[0])} ({other})"
    if any(name is unit or name == unit for name in times):
        side = "rows" if turned else "columns"
        return (
            f'{begin}, which is one of its times; say units="{side}" if the units are '
            f"the {side} of a wide table, or swap unit and time of a long one"
        )
    texts = [str(name) for name in units]
    near = difflib.get_close_matches(str(unit), texts, MOST_NEAR, LEAST_ALIKE)
    if near:
        return f"{begin}; did you mean {listed([units[texts.index(n)] for n in near])}"
    return f"{begin}; there are {listed(units)}"
