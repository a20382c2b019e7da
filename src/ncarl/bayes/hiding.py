"""Entries hidden by what their rows hold, so that no pass has to remember which.

Of very many entries a sample of rows is enough to learn from; which rows those are,
and which of their entries are hidden, follows from the rows themselves. Rows that are
alike in every entry are chosen together, or none of them is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ncarl.content import mixed, row_codes
from ncarl.core.types import Array
from ncarl.observed import Observed
from ncarl.surveys import Entries, Sums

#: Rows with hidden entries have about so many entries together.
ASKED_ENTRIES = 2_000_000
#: Sets the rows that are chosen apart from the entries that are hidden in them.
ROWS, ENTRIES = 0x5851F42D4C957F2D, 0x14057B7EF767814F


@dataclass(frozen=True)
class Hiding:
    """Which entries are hidden.

    Attributes
    ----------
    seed : int
        Seed.
    rows : float
        Part of the rows in which entries are hidden.
    share : float
        Part of the entries of such a row that is hidden.
    spared : array of bool, shape (n,)
        Columns that lose nothing.
    """

    seed: int
    rows: float
    share: float
    spared: Array

    def mask(self, observed: Observed) -> Array:
        """Which entries are hidden; no row loses all it has."""
        counts = observed.row_counts
        codes = mixed(row_codes(observed) ^ np.uint64(self.seed % 2**64))
        chosen = _below(codes ^ np.uint64(ROWS), self.rows)
        columns = mixed(observed.indices.astype(np.uint64) ^ np.uint64(ENTRIES))
        hidden = _below(np.repeat(codes, counts) ^ columns, self.share)
        hidden &= np.repeat(chosen, counts)
        some = np.flatnonzero(counts)
        if len(some):
            firsts = observed.indptr[some]
            lost = np.add.reduceat(hidden.astype(np.int64), firsts) == counts[some]
            hidden[firsts[lost]] = False
        # Last: what is spared must not take the place of a row's first entry.
        return hidden & ~self.spared[observed.indices]

    def __call__(self, observed: Observed) -> Observed:
        """The entries that stay."""
        return observed.without(self.mask(observed))


def _below(codes: Array, share: float) -> Array:
    """Whether numbers of 64 bits, stirred once more, lie in that part of all."""
    return mixed(codes) < np.uint64(min(share, 1.0) * (2.0**64 - 2048.0))


def hidden_counts(observed: Observed, *, hiding: Hiding) -> Sums:
    """How many entries of each column are hidden."""
    columns = observed.indices[hiding.mask(observed)]
    return Sums((np.bincount(columns, minlength=observed.shape[1]),))


@dataclass(frozen=True)
class AskedRows:
    """Rows in which entries are hidden: what stays of them, and what is hidden."""

    kept: tuple[Observed, ...]
    hidden: tuple[Observed, ...]

    def __iadd__(self, other: AskedRows) -> AskedRows:
        """These rows and then those."""
        return AskedRows(self.kept + other.kept, self.hidden + other.hidden)


def asked_rows(
    observed: Observed, *, hiding: Hiding, inward: Callable[[Observed], Observed]
) -> AskedRows:
    """The rows of a chunk in which entries are hidden, as the model sees them."""
    mask = hiding.mask(observed)
    hidden = observed.without(~mask)
    rows = np.flatnonzero(hidden.row_counts)
    kept = observed.without(mask).take_rows(rows)
    return AskedRows((inward(kept),), (inward(hidden.take_rows(rows)),))


def hiding_for(entries: Entries, share: float, seed: int) -> Hiding:
    """What to hide, so that no column loses its last entry either."""
    survey = entries.survey
    n = len(survey.column_counts)
    rows = ASKED_ENTRIES / max(1, survey.n_observed)
    hiding = Hiding(seed, rows, share, np.zeros(n, dtype=bool))
    (hidden,) = entries.total(hidden_counts, hiding=hiding).added
    return replace(hiding, spared=hidden >= survey.column_counts)
