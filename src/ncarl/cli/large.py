"""Large tables, whose rows a fit takes some at a time to save memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from ncarl.cli.choices import Method, Orientation, Sides
from ncarl.cli.models import ModelOptions
from ncarl.cli.outputs import Outputs
from ncarl.core.types import Array
from ncarl.sources import open_rows

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
    return open_rows(values, rows_per_chunk=max(1, PIECE // n))


def some_rows(values: Array, gaps: Array) -> Array:
    """Rows with gaps that stand for all of them; all if they are few."""
    rows = np.flatnonzero(gaps.any(axis=1))
    if len(rows) > SAMPLED:
        rows = np.random.default_rng(0).choice(rows, SAMPLED, replace=False)
    return values[np.sort(rows)]
