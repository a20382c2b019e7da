"""Intervals that cover as often as they say, by the errors on held-out entries.

Errors in units of their own standard deviations are ranked; an interval reaches from
one rank to another. Nothing is assumed of their distribution: a new entry is as likely
as any held-out one to have any rank among them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

from ncarl.core.types import Array

#: Scores that are kept; more would not change a quantile that anyone asks for.
MOST_SCORES = 100_000


@dataclass(frozen=True)
class Scores:
    """Errors on held-out entries over their standard deviations, in increasing order.

    Attributes
    ----------
    ranked : array of shape (entries,)
        The errors; none where no entry could be held out.
    """

    ranked: Array

    @classmethod
    def of(cls, errors: Array, deviations: Array) -> Scores:
        """Scores of errors; where the deviation is 0 there is nothing to score."""
        some = deviations > 0.0
        ranked = np.sort(errors[some] / deviations[some])
        if len(ranked) > MOST_SCORES:
            places = np.linspace(0, len(ranked) - 1, MOST_SCORES).round()
            ranked = ranked[places.astype(np.int64)]
        return cls(ranked)

    def reach(self, level: float) -> tuple[float, float]:
        """How far an interval reaches down and up, in standard deviations.

        Each tail gets half of what is left out. Where there are too few scores for
        such a rank, the outermost ones are stretched as a normal distribution would
        be; without any it is all there is.
        """
        tail = (1.0 - level) / 2.0
        normal = float(norm.ppf(1.0 - tail))
        count = len(self.ranked)
        if count < 2:
            return normal, normal
        rank = math.floor((count + 1) * tail)
        if rank >= 1:
            return -float(self.ranked[rank - 1]), float(self.ranked[-rank])
        stretch = normal / float(norm.ppf(count / (count + 1.0)))
        low, high = -float(self.ranked[0]), float(self.ranked[-1])
        # An outermost score on the wrong side of 0 says nothing of its tail.
        return max(low, 1.0) * max(stretch, 1.0), max(high, 1.0) * max(stretch, 1.0)

    @property
    def spread(self) -> float:
        """Root mean square of the scores: 1 if the deviations are right."""
        if len(self.ranked) == 0:
            return float("nan")
        return float(np.sqrt(np.mean(self.ranked**2)))
