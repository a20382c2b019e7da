"""The mean effect of a treatment."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Average:
    """Mean effect over all treated entries.

    Attributes
    ----------
    effect : float
        Observed minus expected.
    low, high : float
        Ends of its interval; NaN where there are too few control units to tell.
    level : float
        What the interval promises.
    """

    effect: float
    low: float
    high: float
    level: float
