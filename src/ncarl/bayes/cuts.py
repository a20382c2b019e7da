"""Observed entries cut into kept and hidden ones, to choose by."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ncarl.bayes.hiding import AskedRows, asked_rows, hiding_for
from ncarl.holdout import hold_out_alike
from ncarl.observed import Observed
from ncarl.surveys import Entries, InMemory

#: A small matrix is cut again until so many entries have been hidden.
ENOUGH, MOST_CUTS = 2000, 5
#: Of more entries a sample of rows is asked.
MANY_ENTRIES = 20_000_000
#: A source with fewer entries is read into memory.
MOST_READ = 5_000_000


@dataclass(frozen=True)
class Cut:
    """Entries to learn from, and entries to be predicted.

    Attributes
    ----------
    kept : Entries
        What is learned from.
    asked : Observed
        Rows in which entries are hidden (and maybe others), without those.
    hidden : Observed
        The hidden entries, in the same rows.
    """

    kept: Entries
    asked: Observed
    hidden: Observed

    @classmethod
    def in_memory(cls, kept: Observed, hidden: Observed) -> Cut:
        """A cut of a matrix whose rows are all at hand."""
        return cls(InMemory(kept), kept, hidden)

    def turned(self) -> Cut:
        """The same cut of the transposed matrix, hidden entries in another order."""
        return Cut.in_memory(self.asked.transposed(), self.hidden.transposed())


def cuts_of(
    raw: Entries, inward: Callable[[Observed], Observed], share: float, seed: int
) -> list[Cut]:
    """Cuts of the entries; none if nothing can be spared.

    A small matrix is cut several times, and again as often: what is chosen on some
    cuts is weighed and calibrated on others. Of many entries one cut does for both.

    Parameters
    ----------
    raw : Entries
        Values as they were given.
    inward : callable
        Entries as the model sees them.
    share : float
        Part of the entries to hide.
    seed : int
        Seed.
    """
    if raw.survey.n_observed > MANY_ENTRIES or not isinstance(raw, InMemory):
        return _cut_by_rows(raw, inward, share, seed)
    rng = np.random.default_rng(seed)
    observed = inward(raw.observed)
    first = Cut.in_memory(*hold_out_alike(observed, share, rng))
    hidden = first.hidden.n_observed
    if hidden == 0 or first.asked.n_observed == 0:
        return []
    count = min(MOST_CUTS, math.ceil(ENOUGH / hidden))
    more = 0 if count == 1 else 2 * count - 1
    further = (hold_out_alike(observed, share, rng) for _ in range(more))
    return [first, *(Cut.in_memory(*pair) for pair in further)]


def _cut_by_rows(
    raw: Entries, inward: Callable[[Observed], Observed], share: float, seed: int
) -> list[Cut]:
    """One cut, of a sample of rows."""
    hiding = hiding_for(raw, share, seed)
    found: AskedRows = raw.total(asked_rows, hiding=hiding, inward=inward)
    asked, hidden = Observed.stacked(found.kept), Observed.stacked(found.hidden)
    if hidden.n_observed == 0:
        return []
    return [Cut(raw.reduced(hiding).changed(inward), asked, hidden)]


def for_choice(cuts: list[Cut]) -> int:
    """How many of the cuts serve for the choice; the others come after them."""
    return max(1, len(cuts) // 2)


def for_weighing(cuts: list[Cut]) -> range:
    """Positions of the cuts that serve for weights and intervals."""
    return range(for_choice(cuts) if len(cuts) > 1 else 0, len(cuts))
