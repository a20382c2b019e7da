"""Observed entries cut into kept and hidden ones, to choose by."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ncarl.holdout import hold_out_alike
from ncarl.observed import Observed

#: A small matrix is cut again until so many entries have been hidden.
ENOUGH, MOST_CUTS = 2000, 5


@dataclass(frozen=True)
class Cut:
    """Entries to learn from, and entries to be predicted."""

    kept: Observed
    hidden: Observed

    def turned(self) -> Cut:
        """The same cut of the transposed matrix, hidden entries in another order."""
        return Cut(self.kept.transposed(), self.hidden.transposed())


def cuts_of(observed: Observed, share: float, seed: int) -> list[Cut]:
    """Cuts of the entries; none if nothing can be spared.

    A small matrix is cut several times, and again as often: what is chosen on some
    cuts is weighed and calibrated on others. Of many entries one cut does for both.
    """
    rng = np.random.default_rng(seed)
    first = Cut(*hold_out_alike(observed, share, rng))
    hidden = first.hidden.n_observed
    if hidden == 0 or first.kept.n_observed == 0:
        return []
    count = min(MOST_CUTS, math.ceil(ENOUGH / hidden))
    more = 0 if count == 1 else 2 * count - 1
    return [first, *(Cut(*hold_out_alike(observed, share, rng)) for _ in range(more))]


def for_choice(cuts: list[Cut]) -> int:
    """How many of the cuts serve for the choice; the others come after them."""
    return max(1, len(cuts) // 2)


def for_weighing(cuts: list[Cut]) -> range:
    """Positions of the cuts that serve for weights and intervals."""
    return range(for_choice(cuts) if len(cuts) > 1 else 0, len(cuts))
