"""Hide some observed entries, to be predicted from the rest.

What is learned from hidden entries holds for gaps that lie as they do. Where gaps come
in blocks (a sensor down for a day, the last years of a panel) entries are hidden in
such blocks too, by giving rows the gaps of others.
"""

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


#: Gaps of two rows overlap by chance with a variance of about their mean; this many
#: times that is no chance.
MORE_THAN_CHANCE = 3.0
#: Pairs of rows whose gaps are compared.
PAIRS = 2000
#: Numbers that a comparison of rows may hold at a time.
ROOM = 5_000_000
#: One way to hide entries is taken alone if it is nearer to the gaps by this factor.
NEARER = 0.75
#: Where less than this is observed, gaps are the rule and single entries are hidden.
MOSTLY_OBSERVED = 0.5


def hold_out_alike(
    observed: Observed, share: float, rng: np.random.Generator
) -> tuple[Observed, Observed]:
    """Split observed entries into kept ones and hidden ones that lie as the gaps do.

    Entries are hidden at random, unless the gaps lie in blocks: then some rows and
    some columns get the gaps of others. No row and no column loses its last entry.
    """
    density = observed.n_observed / (observed.shape[0] * observed.shape[1])
    turned = observed.transposed()
    if density < MOSTLY_OBSERVED or not (
        gaps_in_blocks(observed, rng) or gaps_in_blocks(turned, rng)
    ):
        return hold_out(observed, share, rng)
    wanted = round(share * observed.n_observed)
    by_rows = _borrowed_gaps(observed, wanted, rng)
    there = observed.with_values(np.arange(observed.n_observed)).transposed().values
    by_columns = np.zeros_like(by_rows)
    by_columns[there[_borrowed_gaps(turned, wanted, rng)]] = True
    chosen = _nearer(observed, by_rows, by_columns, rng)
    order = rng.permutation(observed.n_observed)
    for owner in (observed.rows, observed.indices):
        chosen[order[_first_of_each(owner[order])]] = False
    if not chosen.any():
        return hold_out(observed, share, rng)
    return observed.without(chosen), observed.without(~chosen)


def _nearer(
    observed: Observed, one: Array, other: Array, rng: np.random.Generator
) -> Array:
    """The hidden entries that are placed more as gaps are; half of both if neither.

    Gaps of a panel's last years are one row's; a row that lacks another's gaps is like
    that, a column that does is not.
    """
    far_one, far_other = _unlike_gaps(observed, one), _unlike_gaps(observed, other)
    if far_one < NEARER * far_other:
        return one
    if far_other < NEARER * far_one:
        return other
    # Rows (columns) that lose their gaps lose all of them, or none.
    some_rows = rng.random(observed.shape[0]) < 0.5
    some_columns = rng.random(observed.shape[1]) < 0.5
    half: Array = one & some_rows[observed.rows]
    return half | (other & some_columns[observed.indices])


def _unlike_gaps(observed: Observed, hidden: Array) -> float:
    """How differently filled the rows and columns of hidden entries and of gaps are."""
    if not hidden.any():
        return float("inf")
    (m, n), kept = observed.shape, observed.without(hidden)
    rows = kept.row_counts[observed.rows[hidden]].mean()
    columns = kept.column_counts[observed.indices[hidden]].mean()
    gap_rows = np.average(observed.row_counts, weights=n - observed.row_counts)
    gap_columns = np.average(observed.column_counts, weights=m - observed.column_counts)
    return float(abs(rows - gap_rows) / n + abs(columns - gap_columns) / m)


def gaps_in_blocks(observed: Observed, rng: np.random.Generator) -> bool:
    """Whether the gaps of pairs of rows overlap more, and less, than chance has it."""
    n = observed.shape[1]
    gaps = n - observed.row_counts
    some = np.flatnonzero((gaps > 0) & (gaps < n))
    if len(some) < 2:
        return False
    one, other = rng.choice(some, PAIRS), rng.choice(some, PAIRS)
    apart = one != other
    one, other = one[apart], other[apart]
    shared = _shared(observed, one, other)
    overlap = n - observed.row_counts[one] - observed.row_counts[other] + shared
    expected = gaps[one] * gaps[other] / n
    surprise = np.mean((overlap - expected) ** 2 / expected)
    return bool(surprise > MORE_THAN_CHANCE)


def _shared(observed: Observed, one: Array, other: Array) -> Array:
    """How many columns each row of ``one`` has in common with its row of ``other``.

    Few rows are compared all with all, some columns at a time; of many rows, which
    are short then, only the pairs that are asked for.
    """
    rows, places = np.unique(np.concatenate([one, other]), return_inverse=True)
    if len(rows) ** 2 > ROOM // 10:
        seen = observed.with_values(np.ones(observed.n_observed)).to_csr()
        longest = max(1, int(observed.row_counts[rows].max()))
        step = max(1, ROOM // longest)
        parts = [
            seen[one[k : k + step]].multiply(seen[other[k : k + step]]).sum(axis=1)
            for k in range(0, len(one), step)
        ]
        return np.concatenate([np.asarray(part).ravel() for part in parts])
    some = observed.take_rows(rows)
    common = np.zeros((len(rows), len(rows)))
    step = max(1, ROOM // len(rows))
    for first in range(0, observed.shape[1], step):
        here = (some.indices >= first) & (some.indices < first + step)
        seen = np.zeros((len(rows), min(step, observed.shape[1] - first)))
        seen[some.rows[here], some.indices[here] - first] = 1.0
        common += seen @ seen.T
    pairs: Array = common[places[: len(one)], places[len(one) :]]
    return pairs


def _borrowed_gaps(observed: Observed, wanted: int, rng: np.random.Generator) -> Array:
    """Which entries are hidden when rows get the gaps of others, till enough are.

    All rows look equally far down for their gaps, so that a block stays a block.
    """
    m = observed.shape[0]
    away, start = (int(k) for k in rng.integers(1, max(2, m), size=2))
    hidden, count = np.zeros(observed.n_observed, dtype=bool), 0
    for k in range(m):
        if count >= wanted:
            break
        row, donor = (start + k) % m, (start + k + away) % m
        entries = slice(int(observed.indptr[row]), int(observed.indptr[row + 1]))
        there = np.isin(observed.indices[entries], observed.row_columns(donor))
        hidden[entries] = ~there
        count += int(np.count_nonzero(~there))
    return hidden


def _first_of_each(owner: Array) -> Array:
    """Position of the first entry of every owner."""
    return np.unique(owner, return_index=True)[1]
