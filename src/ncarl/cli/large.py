"""Large tables, whose rows a fit takes some at a time to save memory."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, cast

import numpy as np
from scipy import sparse

from ncarl.cli.choices import Method, Orientation, Sides
from ncarl.cli.models import ModelOptions
from ncarl.cli.outputs import Outputs
from ncarl.core.types import Array
from ncarl.observed import Observed
from ncarl.sources.frames import float_dtype
from ncarl.sources.memory import MemoryRows

#: From so many entries on; with so many rows neither a kernel of the rows nor a search
#: for similar ones can be paid for, so that nothing is lost.
LARGE, MANY_ROWS = 5_000_000, 50_000
#: Entries that are worked on together.
PIECE = 1_000_000
#: Rows that stand for all where the mean of deviations is wanted.
SAMPLED = 1000


def rows_of(values: Any, model: ModelOptions, outputs: Outputs) -> Any:
    """A source of rows for a fit if a table is large and that is all the fit needs.

    The table itself where it is not.
    """
    if sparse.issparse(values) or outputs.ends or outputs.drawn is not None:
        return values
    m, n = values.shape
    tall = m * n >= LARGE and m >= MANY_ROWS and n <= m
    free = model.sides in (None, Sides.AUTO, Sides.COLUMNS)
    if model.method is Method.NCARL:
        free = model.orientation in (None, Orientation.AUTO, Orientation.COLUMNS)
    known = model.method in (Method.BAYES, Method.NCARL)
    if not (tall and free and known):
        return values
    # Several pieces are held at a time: small ones, or little would be saved.
    return FrugalRows(values, float_dtype(values), max(1, PIECE // n))


class FrugalRows(MemoryRows):
    """Rows of a matrix in memory; what was worked out of some is freed after them."""

    def __iter__(self) -> Iterator[Observed]:
        """Chunks of rows in order."""
        for chunk in super().__iter__():
            yield chunk
            # Else the heaps of several threads keep what was freed, in pieces that
            # fit nothing: half as much again as is in use.
            trim = trimmer()
            if trim is not None:
                trim(0)


@cache
def trimmer() -> Callable[[int], int] | None:
    """What gives freed memory back to the system; None where C has no such function."""
    try:
        found = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # no glibc
        return None
    found.argtypes = [ctypes.c_size_t]
    return cast(Callable[[int], int], found)


def some_rows(values: Array, gaps: Array) -> Array:
    """Rows with gaps that stand for all of them; all if they are few."""
    rows = np.flatnonzero(gaps.any(axis=1))
    if len(rows) > SAMPLED:
        rows = np.random.default_rng(0).choice(rows, SAMPLED, replace=False)
    return values[np.sort(rows)]
