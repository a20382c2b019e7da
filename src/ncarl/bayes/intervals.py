"""Intervals that cover as often as they say, by the errors on held-out entries.

Errors in units of their own standard deviations are ranked; an interval reaches from
one rank to another. Nothing is assumed of their distribution: a new entry is as likely
as any held-out one to have any rank among them. Where the errors of a row or a column
are alike, many of them say no more than a few, and intervals are wider for it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.stats import norm

from ncarl.core.types import Array

#: Scores that are kept; more would not change a quantile that anyone asks for.
MOST_SCORES = 100_000
#: What lies beyond a rank that intervals are stretched from is no more than this.
MOST_TAIL = 1.0 / 3.0
#: A rank this little below a whole one is that one.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Scores:
    """Errors on held-out entries over their standard deviations, in increasing order.

    Attributes
    ----------
    ranked : array of shape (entries,)
        The errors; none where no entry could be held out.
    count : float
        How many independent errors they are worth.
    """

    ranked: Array
    count: float

    @classmethod
    def of(
        cls, errors: Array, deviations: Array, rows: Array, columns: Array
    ) -> Scores:
        """Scores of errors; where the deviation is 0 there is nothing to score."""
        some = deviations > 0.0
        scores = errors[some] / deviations[some]
        count = independent_count(scores, rows[some], columns[some])
        ranked = np.sort(scores)
        if len(ranked) > MOST_SCORES:
            places = np.linspace(0, len(ranked) - 1, MOST_SCORES).round()
            ranked = ranked[places.astype(np.int64)]
        return cls(ranked, min(count, float(len(ranked))))

    def reach(self, level: float) -> tuple[float, float]:
        """How far an interval reaches down and up, in standard deviations.

        Each tail gets half of what is left out. Where there are too few scores for
        such a rank, the outermost ones are stretched as a normal distribution would
        be; without any it is all there is.
        """
        tail = (1.0 - level) / 2.0
        normal = float(norm.ppf(1.0 - tail))
        if len(self.ranked) < 2:
            return normal, normal
        n, count = len(self.ranked), self.count
        # The last rank that can be trusted is that of an outermost independent score.
        last = min((2.0 - count / n) / (count + 1.0), MOST_TAIL)
        used = max(tail, last)
        # (n + 1) tail - 1 scores beyond it, were they independent.
        beyond = n * (used - (1.0 - used) / count)
        rank = max(0, math.floor(beyond + ROUNDING))
        low, high = -float(self.ranked[rank]), float(self.ranked[-1 - rank])
        if used == tail:
            return low, high
        stretch = max(1.0, normal / float(norm.ppf(1.0 - last)))
        # An outermost score on the wrong side of 0 says nothing of its tail.
        return max(low, 1.0) * stretch, max(high, 1.0) * stretch

    @property
    def spread(self) -> float:
        """Root mean square of the scores: 1 if the deviations are right."""
        if len(self.ranked) == 0:
            return float("nan")
        return float(np.sqrt(np.mean(self.ranked**2)))


def independent_count(errors: Array, rows: Array, columns: Array) -> float:
    """How many independent errors these are worth.

    The sum of ``k`` independent errors has the square of ``k``; that of a row whose
    errors are all the same has ``k`` times as much. The side on which this is worse
    counts.
    """
    total = float(errors @ errors)
    if total == 0.0:
        return float(len(errors))
    inflation = 1.0
    for owner in (rows, columns):
        sums = np.bincount(owner, errors)
        inflation = max(inflation, float(sums @ sums) / total)
    return max(1.0, len(errors) / inflation)
