"""Hide some observed entries, to be predicted from the rest."""

from __future__ import annotations

import numpy as np

from ncarl.core.types import Array
from ncarl.observed import Observed


def hold_out(
    observed: Observed, share: float, rng: np.random.Generator
) -> tuple[Observed, Observed]:
    """Split observed entries at random into kept and hidden ones.

    No row and no column loses its last entry: one entry of each is set aside first
    and never hidden. Fewer than asked for are hidden where that leaves no choice.

    Returns
    -------
    kept, hidden : Observed
        Two matrices of the same shape that share the entries between them.
    """
    total = observed.n_observed
    order = rng.permutation(total)
    free = np.ones(total, dtype=bool)
    for owner in (observed.rows, observed.indices):
        free[order[_first_of_each(owner[order])]] = False
    candidates = order[free[order]]
    chosen = candidates[: round(share * total)]
    hidden = np.zeros(total, dtype=bool)
    hidden[chosen] = True
    return observed.without(hidden), observed.without(~hidden)


def _first_of_each(owner: Array) -> Array:
    """Position of the first entry of every owner."""
    return np.unique(owner, return_index=True)[1]
