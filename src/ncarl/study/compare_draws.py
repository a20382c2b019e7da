"""Which entries a comparison hides, and what errors there are counted in."""

from __future__ import annotations

import numpy as np

from ncarl.core.types import Array
from ncarl.holdout import hold_out, hold_out_alike
from ncarl.observed import Observed
from ncarl.study.compare_plan import Plan

#: Fewer hidden entries than this tell nothing.
LEAST = 10


def units_of(observed: Observed) -> Array:
    """Standard deviations of the columns, over their known entries; 0 for none."""
    counts = np.maximum(observed.column_counts, 1)
    n = observed.shape[1]
    # At most 1 each: squares keep within the range, and equal values have no spread.
    largest = np.zeros(n)
    np.maximum.at(largest, observed.indices, np.abs(observed.values))
    largest[largest == 0.0] = 1.0
    small = observed.values / largest[observed.indices]
    means = np.bincount(observed.indices, small, minlength=n) / counts
    squares = (small - means[observed.indices]) ** 2
    spreads = np.sqrt(np.bincount(observed.indices, squares, minlength=n) / counts)
    found: Array = spreads * largest
    return found


def draws_of(plan: Plan, observed: Observed, units: Array) -> list[Array]:
    """Which entries each draw hides.

    Raises
    ------
    ValueError
        If these are too few to tell anything.
    """
    if observed.n_observed == 0:
        raise ValueError("X has no known entry, so there is nothing to hide")
    numbered = observed.with_values(np.arange(observed.n_observed))
    split = hold_out if plan.pattern == "random" else hold_out_alike
    masks = []
    for draw in range(plan.repeats):
        rng = np.random.default_rng([plan.random_state, draw])
        mask = np.zeros(observed.n_observed, dtype=bool)
        mask[split(numbered, plan.hide, rng)[1].values] = True
        counted = int(np.count_nonzero(units[observed.indices[mask]] > 0.0))
        if counted < LEAST:
            raise ValueError(_too_few(plan, observed, units, counted))
        masks.append(mask)
    return masks


def _too_few(plan: Plan, observed: Observed, units: Array, counted: int) -> str:
    """What to do where too few entries are hidden."""
    _, most = hold_out(observed, 1.0, np.random.default_rng(0))
    enough = int(np.count_nonzero(units[most.indices] > 0.0)) >= LEAST
    way_out = (
        "hide a larger share"
        if enough
        else "no row or column may lose its last entry, so a matrix with more known "
        "entries is needed"
    )
    return (
        f"hide={plan.hide:g} hides {counted} of {observed.n_observed} known entries to "
        f"score, and fewer than {LEAST} tell nothing; {way_out}"
    )
