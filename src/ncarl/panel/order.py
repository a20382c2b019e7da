"""An order of the units of a panel that does not depend on how they were given.

Control units are hidden in groups that are drawn at random. Drawn by position, the
groups would be others as soon as somebody sorts a frame. So units are put in the order
of their numbers first: frames and arrays, long and wide, shuffled or not, give the same
draws.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ncarl.core.types import Array
from ncarl.panel.completing import Completed
from ncarl.panel.placebo import Placebos


def order_of_units(values: Array, treated: Array) -> Array:
    """Rows in increasing order of their first number, of their second if tied, ...

    What happened to the treated units must not matter, and counts as a gap. Gaps come
    after all numbers.

    Examples
    --------
    >>> import numpy as np
    >>> panel = np.array([[2.0, 7.0], [1.0, np.nan], [1.0, 5.0]])
    >>> order_of_units(panel, np.zeros((3, 2), dtype=bool)).tolist()
    [2, 1, 0]
    """
    numbers = np.where(treated | np.isnan(values), np.inf, values)
    return np.lexsort(numbers.T[::-1])


def completed_as_given(completed: Completed, order: Array) -> Completed:
    """A completed panel whose rows were put in order, in the order given."""
    back = np.argsort(order)
    tables = (completed.values, completed.deviations, completed.left_out)
    return Completed(*(table[back] for table in tables))


def placebos_as_given(placebos: Placebos, order: Array) -> Placebos:
    """Placebos of a panel whose rows were put in order, in the order given."""
    units = order[placebos.units]
    places = np.argsort(units)
    courses = [[found[k] for k in places] for found in placebos.courses]
    return replace(placebos, units=units[places], courses=courses)
