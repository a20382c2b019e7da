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

from dataclasses import dataclass, replace

import numpy as np

from ncarl.core.types import Array
from ncarl.dataset import Dataset, PassSums, Transform
from ncarl.observations import Observations, row_hashes, splitmix64

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
#: If less than this fraction is observed, single entries are held out.
MIN_DENSITY = 0.5
#: `hash_split` hides entries in rows that have about this many entries together.
SAMPLED_ENTRIES = 2_000_000
#: Make the choice of rows independent of the choice of entries in them.
ROW_SALT, ENTRY_SALT = 0x5851F42D4C957F2D, 0x14057B7EF767814F
#: Hidden entries that `time_shifted_split` returns to be predicted.
MAX_HELD_OUT = 20_000
#: Fraction of the entries that `time_shifted_split` hides if none is missing.
DEFAULT_HOLDOUT_FRACTION = 0.05


def random_split(
    observed: Observations, fraction: float, rng: np.random.Generator
) -> tuple[Observations, Observations]:
    """Split observed entries at random into kept and hidden ones.

    No row and no column loses its last entry; fewer than ``fraction`` are hidden if
    that leaves no choice.
    """
    total = observed.n_observed
    order = rng.permutation(total)
    free = np.ones(total, dtype=bool)
    free[_one_per_line(observed, order)] = False
    hidden = np.zeros(total, dtype=bool)
    hidden[order[free[order]][: round(fraction * total)]] = True
    return observed.drop_entries(hidden), observed.drop_entries(~hidden)


def _one_per_line(observed: Observations, order: Array) -> Array:
    """The first entry of every row and of every column in the given order."""
    firsts = [
        np.unique(lines[order], return_index=True)[1]
        for lines in (observed.rows, observed.indices)
    ]
    return order[np.concatenate(firsts)]


def missing_pattern_split(
    observed: Observations, fraction: float, rng: np.random.Generator
) -> tuple[Observations, Observations]:
    """Hold out observed entries in the pattern of the missing ones.

    Entries are hidden at random, unless missing ones come in blocks: then some rows and
    columns get the missing pattern of others. No row and no column loses its last
    entry.
    """
    density = observed.n_observed / (observed.shape[0] * observed.shape[1])
    transposed = observed.transpose()
    if density < MIN_DENSITY or not (
        has_block_missingness(observed, rng) or has_block_missingness(transposed, rng)
    ):
        return random_split(observed, fraction, rng)
    n_hidden = round(fraction * observed.n_observed)
    by_rows = _borrow_missing_patterns(observed, n_hidden, rng)
    positions = observed.with_values(np.arange(observed.n_observed)).transpose().values
    by_columns = np.zeros_like(by_rows)
    by_columns[positions[_borrow_missing_patterns(transposed, n_hidden, rng)]] = True
    chosen = _choose_closer_split(observed, by_rows, by_columns, rng)
    chosen[_one_per_line(observed, rng.permutation(observed.n_observed))] = False
    if not chosen.any():
        return random_split(observed, fraction, rng)
    return observed.drop_entries(chosen), observed.drop_entries(~chosen)


def _choose_closer_split(
    observed: Observations, by_rows: Array, by_columns: Array, rng: np.random.Generator
) -> Array:
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
    rows, places = np.unique(np.concatenate([rows_a, rows_b]), return_inverse=True)
    if len(rows) ** 2 > MAX_COMPARE_SIZE // 10:
        # Many rows, which are short then, are compared pair by pair.
        seen = observed.with_values(np.ones(observed.n_observed)).to_csr()
        longest = max(1, int(observed.row_counts[rows].max()))
        step = max(1, MAX_COMPARE_SIZE // longest)
        parts = [
            seen[rows_a[k : k + step]].multiply(seen[rows_b[k : k + step]]).sum(axis=1)
            for k in range(0, len(rows_a), step)
        ]
        return np.concatenate([np.asarray(part).ravel() for part in parts])
    # Few rows are compared all with all, some columns at a time.
    some = observed.take_rows(rows)
    common = np.zeros((len(rows), len(rows)))
    step = max(1, MAX_COMPARE_SIZE // len(rows))
    for first in range(0, observed.shape[1], step):
        here = (some.indices >= first) & (some.indices < first + step)
        seen = np.zeros((len(rows), min(step, observed.shape[1] - first)))
        seen[some.rows[here], some.indices[here] - first] = 1.0
        common += seen @ seen.T
    return common[places[: len(rows_a)], places[len(rows_a) :]]


def _borrow_missing_patterns(
    observed: Observations, n_hidden: int, rng: np.random.Generator
) -> Array:
    """Mask of about ``n_hidden`` entries, by giving rows the missing pattern of others.

    Every row is the same number of rows away from its donor, so that blocks of missing
    entries stay blocks.
    """
    m = observed.shape[0]
    distance, start = (int(k) for k in rng.integers(1, max(2, m), size=2))
    hidden, count = np.zeros(observed.n_observed, dtype=bool), 0
    for k in range(m):
        if count >= n_hidden:
            break
        row, donor = (start + k) % m, (start + k + distance) % m
        entries = slice(int(observed.indptr[row]), int(observed.indptr[row + 1]))
        there = np.isin(observed.indices[entries], observed.row_columns(donor))
        hidden[entries] = ~there
        count += int(np.count_nonzero(~there))
    return hidden


def hash_split(dataset: Dataset, fraction: float, seed: int) -> HashSplit:
    """Split that hides entries in a sample of rows; no column loses its last entry."""
    summary = dataset.summary
    n = len(summary.column_counts)
    rows = SAMPLED_ENTRIES / max(1, summary.n_observed)
    split = HashSplit(seed, rows, fraction, np.zeros(n, dtype=bool))
    (hidden,) = dataset.total(hidden_counts, split=split).sums
    return replace(split, protected_columns=hidden >= summary.column_counts)


@dataclass(frozen=True)
class HashSplit:
    """Split of entries by hashes of their rows, the same in every pass."""

    seed: int
    row_fraction: float  # of the rows: those in which entries are hidden
    entry_fraction: float  # of the entries of such a row: the hidden ones
    protected_columns: Array  # mask of the columns that lose nothing, shape (n,)

    def mask(self, observed: Observations) -> Array:
        """Mask of hidden entries; no row loses all its entries."""
        counts = observed.row_counts
        hashes = splitmix64(row_hashes(observed) ^ np.uint64(self.seed % 2**64))
        chosen = _hash_below(hashes ^ np.uint64(ROW_SALT), self.row_fraction)
        columns = splitmix64(observed.indices.astype(np.uint64) ^ np.uint64(ENTRY_SALT))
        hidden = _hash_below(np.repeat(hashes, counts) ^ columns, self.entry_fraction)
        hidden &= np.repeat(chosen, counts)
        some = np.flatnonzero(counts)
        if len(some):
            firsts = observed.indptr[some]
            lost = np.add.reduceat(hidden.astype(np.int64), firsts) == counts[some]
            hidden[firsts[lost]] = False
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
