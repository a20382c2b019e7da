"""Splits of observed entries into training entries and held-out ones.

Errors on held-out entries are representative of missing entries that are distributed in
the same way. If these come in blocks (a sensor down for a day, the last years of a
panel), entries are held out in such blocks too:

- `missing_pattern_split`: `ncarl.evaluation`, and selection in `BayesianNCARL` for a
  matrix in memory; `hash_split` for one that is large or read in chunks;
- `random_split`: selection in `NCARLCV` and the baselines, ``score`` of all estimators;
- `time_shifted_split`: selection in `ncarl.panel.GapFiller`.

Masks for experiments are in `ncarl.masks`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ncarl.core.types import Array
from ncarl.dataset import Dataset, PassSums, Transform
from ncarl.observations import (
    Observations,
    canonical_order,
    number_ties,
    row_hashes,
    splitmix64,
    value_bits,
)

#: Matrices are split up to `MAX_SPLITS` times, until `MIN_HELD_OUT` entries have been
#: held out; tiny ones more often, until there are `MIN_TINY_HELD_OUT`.
MIN_HELD_OUT, MAX_SPLITS = 2000, 5
MIN_TINY_HELD_OUT, MAX_TINY_SPLITS = 50, 10

#: The missing entries of two rows overlap by chance with a variance of about the mean;
#: they come in blocks if the variance exceeds it by this factor.
BLOCK_OVERLAP_RATIO = 3.0
#: Pairs of rows whose missing patterns are compared.
N_ROW_PAIRS = 2000
#: Numbers that a comparison of rows may hold at a time.
MAX_COMPARE_SIZE = 5_000_000
#: `missing_pattern_split` gives rows (or columns) the missing pattern of others; one of
#: the two is used alone if it is closer to the missing pattern by this factor.
CLOSER_FACTOR = 0.75
#: Rows that are compared with all others to find out whether similar rows miss the same
#: entries, and difference between rows and columns that decides.
N_COMPARED_ROWS, MIN_EXCESS_DIFFERENCE = 200, 0.25
#: If less than this fraction is observed, single entries are held out.
MIN_DENSITY = 0.5
#: `hash_split` hides entries in rows that have about this many entries together.
SAMPLED_ENTRIES = 2_000_000
#: Makes the choice of rows independent of the choice of entries in them.
ROW_SALT = 0x5851F42D4C957F2D
#: Hidden entries that `time_shifted_split` returns to be predicted.
MAX_HELD_OUT = 20_000
#: Fraction of the entries that `time_shifted_split` hides if none is missing.
DEFAULT_HOLDOUT_FRACTION = 0.05


def count_splits(n_hidden: int) -> int:
    """Number of splits of a matrix of which one hides ``n_hidden`` entries.

    Small matrices are split several times, so that a single draw does not decide.
    """
    n_hidden = max(1, n_hidden)
    some = min(MAX_SPLITS, math.ceil(MIN_HELD_OUT / n_hidden))
    return max(some, min(MAX_TINY_SPLITS, math.ceil(MIN_TINY_HELD_OUT / n_hidden)))


def random_split(
    observed: Observations, fraction: float, rng: np.random.Generator
) -> tuple[Observations, Observations]:
    """Split observed entries at random into kept and hidden ones.

    No row and no column loses its last entry; fewer than ``fraction`` are hidden if
    that leaves no choice.
    """
    return _split_in_canonical_order(observed, fraction, rng, _draw_entries)


def random_splits(
    observed: Observations, fraction: float, seed: int
) -> list[tuple[Observations, Observations]]:
    """As many random splits as the matrix needs; empty if no entry can be spared."""
    rng = np.random.default_rng(seed)
    first = random_split(observed, fraction, rng)
    hidden = first[1].n_observed
    if hidden == 0:
        return []
    more = range(count_splits(hidden) - 1)
    return [first, *(random_split(observed, fraction, rng) for _ in more)]


def _split_in_canonical_order(
    observed: Observations,
    fraction: float,
    rng: np.random.Generator,
    draw: Callable[[Observations, float, np.random.Generator], Array],
) -> tuple[Observations, Observations]:
    """Split by a mask that is drawn for the matrix in canonical order.

    The order in which its rows and columns came then makes no difference.
    """
    numbered = observed.with_values(np.arange(observed.n_observed))
    inner = numbered.reorder(*canonical_order(observed))
    mask = draw(inner.with_values(observed.values[inner.values]), fraction, rng)
    hidden = np.zeros(observed.n_observed, dtype=bool)
    hidden[inner.values[mask]] = True
    return observed.drop_entries(hidden), observed.drop_entries(~hidden)


def _draw_entries(
    observed: Observations, fraction: float, rng: np.random.Generator
) -> Array:
    """Mask of random entries, without the last one of any row or column."""
    total = observed.n_observed
    order = rng.permutation(total)
    count = size = round(fraction * total)
    while True:
        hidden = np.zeros(total, dtype=bool)
        hidden[order[:size]] = True
        _restore_emptied_lines(observed, hidden, order)
        lost = count - int(np.count_nonzero(hidden))
        if lost <= 0 or size >= total:
            return hidden
        size += lost


def _restore_emptied_lines(observed: Observations, hidden: Array, order: Array) -> None:
    """Unhide the first entry, in the given order, of lines that have lost all.

    In others no entry is spared: the held-out entries would be too few of the rows and
    columns that have few, whose errors are larger.
    """
    for lines in (observed.rows, observed.indices):
        kept = np.bincount(lines[~hidden], minlength=int(lines.max(initial=0)) + 1)
        candidates = order[kept[lines[order]] == 0]
        _, first = np.unique(lines[candidates], return_index=True)
        hidden[candidates[first]] = False


def missing_pattern_split(
    observed: Observations, fraction: float, rng: np.random.Generator
) -> tuple[Observations, Observations]:
    """Hold out observed entries in the pattern of the missing ones.

    Entries are hidden at random, unless missing ones come in blocks: then some rows and
    columns get the missing pattern of others. No row and no column loses its last
    entry.
    """
    return _split_in_canonical_order(observed, fraction, rng, _draw_missing_pattern)


def _draw_missing_pattern(
    observed: Observations, fraction: float, rng: np.random.Generator
) -> Array:
    density = observed.n_observed / (observed.shape[0] * observed.shape[1])
    transposed = observed.transpose()
    if density < MIN_DENSITY or not (
        has_block_missingness(observed, rng) or has_block_missingness(transposed, rng)
    ):
        return _draw_entries(observed, fraction, rng)
    n_hidden = round(fraction * observed.n_observed)
    by_rows = _borrow_missing_patterns(observed, n_hidden, rng)
    positions = observed.with_values(np.arange(observed.n_observed)).transpose().values
    by_columns = np.zeros_like(by_rows)
    by_columns[positions[_borrow_missing_patterns(transposed, n_hidden, rng)]] = True
    chosen = _choose_closer_split(observed, by_rows, by_columns, rng)
    _restore_emptied_lines(observed, chosen, rng.permutation(observed.n_observed))
    return chosen if chosen.any() else _draw_entries(observed, fraction, rng)


def _choose_closer_split(
    observed: Observations, by_rows: Array, by_columns: Array, rng: np.random.Generator
) -> Array:
    # A row that gets the missing pattern of another keeps what columns miss together,
    # but rows that miss the same entries are no longer similar ones, as they are while
    # a sensor is down: then only patterns of other columns resemble the missing
    # entries.
    stds, columns = observed.column_stds(), observed.indices
    scaled = observed.values - observed.column_means()[columns]
    scaled /= np.where(stds > 0.0, stds, 1.0)[columns]
    standardized = observed.with_values(scaled)
    excess = neighbor_missingness(standardized, rng)
    excess -= neighbor_missingness(standardized.transpose(), rng)
    if abs(excess) > MIN_EXCESS_DIFFERENCE:
        return by_columns if excess > 0.0 else by_rows
    # If the last years of a panel are missing, for example, only patterns of other rows
    # resemble the missing entries.
    row_distance = _missing_pattern_distance(observed, by_rows)
    column_distance = _missing_pattern_distance(observed, by_columns)
    if row_distance < CLOSER_FACTOR * column_distance:
        return by_rows
    if column_distance < CLOSER_FACTOR * row_distance:
        return by_columns
    # A row (column) gets the whole missing pattern of another, or nothing of it.
    some_rows = rng.random(observed.shape[0]) < 0.5
    some_columns = rng.random(observed.shape[1]) < 0.5
    in_rows = by_rows & some_rows[observed.rows]
    return in_rows | (by_columns & some_columns[observed.indices])


def neighbor_missingness(observed: Observations, rng: np.random.Generator) -> float:
    """How much likelier than by chance the most similar row misses the same entries.

    The share of the missing entries of some rows that are missing in the most similar
    row too, scaled to 0 if that is by chance and 1 if it misses all of them. The values
    must have a common unit.
    """
    (m, n), counts = observed.shape, observed.row_counts
    some = np.flatnonzero((counts > 0) & (counts < n))
    if len(some) < 2 or m < 3:
        return 0.0
    some = rng.choice(some, min(N_COMPARED_ROWS, len(some)), replace=False)
    X = observed.to_csr()
    seen = observed.with_values(np.ones(observed.n_observed)).to_csr()
    Z, mask = X[some].toarray(), seen[some].toarray()
    columns = np.arange(len(some))
    nearest, least = np.zeros(len(some), dtype=np.int64), np.full(len(some), np.inf)
    step = max(1, MAX_COMPARE_SIZE // max(n, len(some)))
    for first in range(0, m, step):
        # Mean squared distances over the columns that both rows have.
        A, there = (
            X[first : first + step].toarray(),
            seen[first : first + step].toarray(),
        )
        shared = there @ mask.T
        distances = A**2 @ mask.T + there @ (Z**2).T - 2.0 * (A @ Z.T)
        distances = np.where(shared > 0.0, distances / np.maximum(shared, 1.0), np.inf)
        own = (some >= first) & (some < first + step)
        distances[some[own] - first, columns[own]] = np.inf
        closest = distances.argmin(axis=0)
        closer = distances[closest, columns] < least
        nearest[closer] = first + closest[closer]
        least[closer] = distances[closest, columns][closer]
    missing = mask == 0.0
    both = np.count_nonzero(missing & (seen[nearest].toarray() == 0.0))
    chance = float(np.sum(missing * (1.0 - observed.column_counts / m)))
    total = np.count_nonzero(missing)
    return (both - chance) / (total - chance) if total > chance else 0.0


def _missing_pattern_distance(observed: Observations, hidden: Array) -> float:
    if not hidden.any():
        return float("inf")
    (m, n), kept = observed.shape, observed.drop_entries(hidden)
    rows = kept.row_counts[observed.rows[hidden]].mean()
    columns = kept.column_counts[observed.indices[hidden]].mean()
    in_rows, in_columns = observed.row_counts, observed.column_counts
    missing_rows = np.average(in_rows, weights=n - in_rows)
    missing_columns = np.average(in_columns, weights=m - in_columns)
    return float(abs(rows - missing_rows) / n + abs(columns - missing_columns) / m)


def has_block_missingness(observed: Observations, rng: np.random.Generator) -> bool:
    """Whether the overlaps of missing entries of row pairs vary more than by chance."""
    n = observed.shape[1]
    n_missing = n - observed.row_counts
    some = np.flatnonzero((n_missing > 0) & (n_missing < n))
    if len(some) < 2:
        return False
    one, other = rng.choice(some, N_ROW_PAIRS), rng.choice(some, N_ROW_PAIRS)
    apart = one != other
    one, other = one[apart], other[apart]
    shared = _count_shared_columns(observed, one, other)
    overlap = n - observed.row_counts[one] - observed.row_counts[other] + shared
    expected = n_missing[one] * n_missing[other] / n
    ratio = np.mean((overlap - expected) ** 2 / expected)
    return bool(ratio > BLOCK_OVERLAP_RATIO)


def _count_shared_columns(
    observed: Observations, rows_a: Array, rows_b: Array
) -> Array:
    seen = observed.with_values(np.ones(observed.n_observed)).to_csr()
    longest = max(1, int(observed.row_counts[rows_a].max(initial=0)))
    step = max(1, MAX_COMPARE_SIZE // longest)
    parts = [
        seen[rows_a[k : k + step]].multiply(seen[rows_b[k : k + step]]).sum(axis=1)
        for k in range(0, len(rows_a), step)
    ]
    return np.concatenate([np.asarray(part).ravel() for part in (*parts, np.empty(0))])


def _borrow_missing_patterns(
    observed: Observations, n_hidden: int, rng: np.random.Generator
) -> Array:
    """Mask of about ``n_hidden`` entries, by giving rows the missing pattern of others.

    Rows that miss the same entries are adjacent, and every row is the same number of
    rows away from its donor, so that blocks of missing entries stay blocks.
    """
    m, n = observed.shape
    keys = rng.integers(0, 2**63, size=n, dtype=np.uint64)
    patterns = row_hashes(observed.with_values(np.zeros(observed.n_observed)), keys)
    order = np.argsort(patterns, kind="stable")
    distance, start = (int(k) for k in rng.integers(1, max(2, m), size=2))
    hidden, count = np.zeros(observed.n_observed, dtype=bool), 0
    for k in range(m):
        if count >= n_hidden:
            break
        row, donor = order[(start + k) % m], order[(start + k + distance) % m]
        entries = slice(int(observed.indptr[row]), int(observed.indptr[row + 1]))
        there = np.isin(observed.indices[entries], observed.row_columns(donor))
        hidden[entries] = ~there
        count += int(np.count_nonzero(~there))
    return hidden


def hash_split(dataset: Dataset, fraction: float, seed: int) -> HashSplit:
    """Split that hides entries in a sample of rows; no column loses its last entry."""
    summary = dataset.summary
    (hashes,) = dataset.total(column_hash_sums).sums
    rows = SAMPLED_ENTRIES / max(1, summary.n_observed)
    protected = np.zeros(len(hashes), dtype=bool)
    split = HashSplit(seed, rows, fraction, number_ties(hashes), protected)
    (hidden,) = dataset.total(hidden_counts, split=split).sums
    return replace(split, protected_columns=hidden >= summary.column_counts)


def column_hash_sums(observed: Observations) -> PassSums:
    """Sums of the hashes of each column's values."""
    hashes = np.zeros(observed.shape[1], dtype=np.uint64)
    np.add.at(hashes, observed.indices, splitmix64(value_bits(observed)))
    return PassSums((hashes,))


@dataclass(frozen=True)
class HashSplit:
    """Split of entries by hashes of their rows, the same in every pass.

    Hashes depend on contents, so that the order of rows and columns makes no
    difference, except between columns with the same values.
    """

    seed: int
    row_fraction: float  # of the rows: those in which entries are hidden
    entry_fraction: float  # of the entries of such a row: the hidden ones
    column_keys: Array  # (n,): a different word for each column
    protected_columns: Array  # mask of the columns that lose nothing, shape (n,)

    def mask(self, observed: Observations) -> Array:
        """Mask of hidden entries; no row loses all its entries."""
        counts, seed = observed.row_counts, np.uint64(self.seed % 2**64)
        hashes = splitmix64(row_hashes(observed, self.column_keys) ^ seed)
        chosen = _hash_below(hashes ^ np.uint64(ROW_SALT), self.row_fraction)
        words = np.repeat(hashes, counts) ^ self.column_keys[observed.indices]
        hidden = _hash_below(words, self.entry_fraction)
        hidden &= np.repeat(chosen, counts)
        some = np.flatnonzero(counts)
        if len(some):
            # The entry with the smallest word is the last that a row keeps.
            firsts = observed.indptr[some]
            lost = np.add.reduceat(hidden.astype(np.int64), firsts) == counts[some]
            least = np.repeat(np.minimum.reduceat(words, firsts), counts[some])
            hidden &= ~(np.repeat(lost, counts[some]) & (words == least))
        # Last: otherwise protecting an entry could hide the first one of its row.
        return hidden & ~self.protected_columns[observed.indices]

    def __call__(self, observed: Observations) -> Observations:
        """Entries that are kept."""
        return observed.drop_entries(self.mask(observed))


def _hash_below(hashes: Array, fraction: float) -> Array:
    return splitmix64(hashes) < np.uint64(min(fraction, 1.0) * (2.0**64 - 2048.0))


def hidden_counts(observed: Observations, *, split: HashSplit) -> PassSums:
    """Number of hidden entries in each column."""
    columns = observed.indices[split.mask(observed)]
    return PassSums((np.bincount(columns, minlength=observed.shape[1]),))


def hash_split_rows(
    observed: Observations, *, split: HashSplit, transform: Transform
) -> PassSums:
    """Kept and hidden entries, transformed, of the rows in which entries are hidden.

    Each in a tuple, as those of chunks are collected.
    """
    mask = split.mask(observed)
    hidden = observed.drop_entries(~mask)
    rows = np.flatnonzero(hidden.row_counts)
    kept = observed.drop_entries(mask).take_rows(rows)
    return PassSums(((transform(kept),), (transform(hidden.take_rows(rows)),)))


def time_shifted_split(
    observed_mask: Array, rng: np.random.Generator
) -> tuple[Array, tuple[Array, Array]]:
    """Hide observed entries at the positions of the missing ones, shifted in time.

    Returns the mask, and the indices of at most `MAX_HELD_OUT` hidden entries.
    """
    steps = len(observed_mask)
    shift = int(rng.integers(1, steps)) if steps > 1 else 0
    hidden = np.roll(~observed_mask, shift, axis=0) & observed_mask
    if not hidden.any():
        hidden = observed_mask & (
            rng.random(observed_mask.shape) < DEFAULT_HOLDOUT_FRACTION
        )
    if not hidden.any():
        # A short log without missing entries: one entry of each sensor.
        hidden[np.argmax(observed_mask, axis=0), np.arange(observed_mask.shape[1])] = (
            observed_mask.any(axis=0)
        )
    # A sensor keeps at least half of its entries.
    most = observed_mask.sum(axis=0) // 2
    for lost in np.flatnonzero(hidden.sum(axis=0) > most):
        kept = rng.permutation(np.flatnonzero(hidden[:, lost]))[most[lost] :]
        hidden[kept, lost] = False
    t, j = np.nonzero(hidden)
    if len(t) > MAX_HELD_OUT:
        some = np.sort(rng.choice(len(t), MAX_HELD_OUT, replace=False))
        t, j = t[some], j[some]
    return hidden, (t, j)
