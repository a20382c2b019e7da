"""What a page tells of a table: which entries are known, and how sure the rest is."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ncarl.core.types import Array
from ncarl.observed import Observed
from ncarl.plots.known import Doubts, Pattern, doubts_of, mean_by, pattern_of
from ncarl.plots.learned import entries_of, middles_of, spreads_of

#: Rows of a stream that stand for all.
SAMPLED = 2000


@dataclass(frozen=True)
class Glance:
    """A table at a glance.

    Attributes
    ----------
    pattern : Pattern
        Which entries are known.
    sample : Observed
        The known entries, or those of some rows of a stream.
    """

    pattern: Pattern
    sample: Observed

    @property
    def rows(self) -> int:
        """Rows of the sample."""
        return self.sample.shape[0]

    @property
    def whole(self) -> bool:
        """Whether the sample is the table."""
        return self.rows == self.pattern.shape[0]


def glance_at(values: Any) -> Glance:
    """A table in memory at a glance."""
    entries = entries_of(values)
    return Glance(pattern_of([entries], entries.shape), entries)


def glance_along(
    chunks: Iterable[Observed], shape: tuple[int, int], most: int = SAMPLED
) -> Glance:
    """A table whose rows come in chunks, with some of them evenly spread to look at.

    Examples
    --------
    >>> import numpy as np
    >>> X = Observed.from_dense(np.arange(12.0).reshape(6, 2))
    >>> glance_along([X], (6, 2), most=3).sample.values.tolist()
    [0.0, 1.0, 4.0, 5.0, 10.0, 11.0]
    """
    m = shape[0]
    wanted = np.unique(np.linspace(0, m - 1, min(m, most)).round().astype(np.int64))
    kept: list[Observed] = []

    def passed() -> Iterator[Observed]:
        first = 0
        for chunk in chunks:
            end = first + chunk.shape[0]
            some = wanted[(wanted >= first) & (wanted < end)] - first
            if len(some):
                kept.append(chunk.take_rows(some))
            first = end
            yield chunk

    pattern = pattern_of(passed(), shape)
    return Glance(pattern, Observed.stacked(kept))


def doubts_at(glance: Glance, estimator: Any) -> Doubts:
    """What a fitted model says of gaps of the sample."""
    kept = getattr(estimator, "training_", None)
    X = None if kept is not None and glance.whole else glance.sample.to_csr()
    with warnings.catch_warnings():
        # The columns are those of the fit; that the rows are an array is our doing.
        warnings.filterwarnings("ignore", message="X does not have valid feature")
        return doubts_of(estimator, glance.sample, X=X)


@dataclass(frozen=True)
class ColumnFacts:
    """What there is to say of each column, as arrays of shape (n,).

    Attributes
    ----------
    missing : array of int
        Its gaps.
    known_mean, spread : array of float
        Mean and standard deviation of its known entries.
    filled_mean, std : array of float
        Mean of filled entries and of their standard deviations; NaN where there are
        none.
    """

    missing: Array
    known_mean: Array
    spread: Array
    filled_mean: Array
    std: Array

    @property
    def relative(self) -> Array:
        """Standard deviations in spreads of the column; NaN where it has none."""
        safe = np.where(self.spread > 0.0, self.spread, 1.0)
        shares: Array = np.where(self.spread > 0.0, self.std / safe, np.nan)
        return shares


def column_facts(glance: Glance, doubts: Doubts) -> ColumnFacts:
    """What there is to say of each column."""
    m, n = glance.pattern.shape
    std = np.full(len(doubts.values), np.nan) if doubts.std is None else doubts.std
    known = np.where(glance.sample.column_counts > 0, middles_of(glance.sample), np.nan)
    return ColumnFacts(
        m - glance.pattern.column_counts,
        known,
        spreads_of(glance.sample),
        mean_by(doubts.columns, doubts.values, n),
        mean_by(doubts.columns, std, n),
    )


def usual_spread(sample: Observed) -> float:
    """How far known entries lie from the mean of their column, as a root mean square.

    This is what filling gaps by the column's mean is off by.
    """
    spreads, counts = spreads_of(sample), sample.column_counts
    if counts.sum() == 0:
        return 0.0
    largest = float(spreads.max(initial=0.0))
    if largest == 0.0:
        return 0.0
    parts = (spreads / largest) ** 2 * (counts / counts.sum())
    return largest * float(np.sqrt(parts.sum()))
