"""Rows made ready to be solved: in units, centred, without empty columns, in blocks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ncarl.blocks import cut
from ncarl.centre import Centre
from ncarl.core.types import Array, Block
from ncarl.observed import Observed


@dataclass(frozen=True)
class Divided:
    """Divides values by a unit."""

    unit: float

    def __call__(self, observed: Observed) -> Observed:
        """The entries in the unit."""
        return observed.with_values(observed.values / self.unit)


@dataclass(frozen=True)
class Residuals:
    """Takes an additive part off the entries of a matrix, and drops empty columns.

    Attributes
    ----------
    centre : Centre
        What is taken off.
    kept : array of int
        The columns that stay, in order.
    dtype : str
        Precision of the row work.
    """

    centre: Centre
    kept: Array
    dtype: str

    def rows(self, observed: Observed) -> Observed:
        """Residuals at the kept columns."""
        effects = self.centre.row_effects(observed)
        residuals = self.centre.residuals(observed, effects)
        left = observed.with_values(residuals.astype(self.dtype, copy=False))
        return with_columns(left, self.kept)

    def __call__(self, chunk: Observed) -> Block:
        """The residuals of a chunk as one block."""
        return as_one_block(self.rows(chunk))


def with_columns(observed: Observed, kept: Array) -> Observed:
    """The entries in a matrix of some columns, which must hold all of them."""
    m, n = observed.shape
    if len(kept) == n:
        return observed
    places = np.zeros(n, dtype=observed.indices.dtype)
    places[kept] = np.arange(len(kept))
    columns = places[observed.indices]
    return Observed(observed.indptr, columns, observed.values, (m, len(kept)))


def as_one_block(rows: Observed) -> Block:
    """Rows as one block, those of equal mask side by side."""
    (block,) = cut(rows, 1)
    return block
