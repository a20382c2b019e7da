"""Centering, scaling and value bounds: what is done to values before and after a model.

A value is modeled as ``mean + column_j + scale_j * (row_i + residual_ij)``; the kernel
is fitted to the residuals. The effect of a row is estimated from that row alone, so
rows that were not in the fit get theirs too. `Centering` is this additive part,
`Scaler` the units of the Bayesian model, `ValueBounds` the range and the levels of
completed values. `compare_column_units` is the rule of ``scale="auto"``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ncarl.containers import clip_to_float_range
from ncarl.core.types import Array
from ncarl.dataset import Dataset, DataSummary, PassSums, power_of_two_unit
from ncarl.observations import Observations

#: Maximal number of sweeps over row and column effects, and the relative change of the
#: column effects that ends them.
MAX_SWEEPS, SWEEP_TOL = 200, 1e-10
#: An extreme value is a bound if this share of the entries, and at least two, equal it.
BOUND_SHARE = 1e-3
#: Maximal number of distinct values that are collected for rounding.
MAX_LEVELS = 1_000_000
#: Columns have units of their own if their standard deviations differ by more than
#: this factor.
MAX_SPREAD_RATIO = 5.0
#: Columns with fewer entries are left out of that comparison.
MIN_ENTRIES_FOR_SPREAD = 20


def fit_centering(dataset: Dataset, mode: str, scaled: bool) -> Centering:
    """Fit the additive part of a matrix.

    ``mode`` is "none", "mean", "columns", "rows" or "two-way"; ``scaled`` divides each
    column by the root mean square of its residuals.
    """
    counts = dataset.summary.column_counts
    zeros, ones = np.zeros(len(counts)), np.ones(len(counts))
    mean = 0.0 if mode == "none" else overall_mean(dataset)
    columns, scales, row_ridge = zeros, ones, None
    if mode == "columns" or (mode == "two-way" and scaled):
        centered = Centering(mean, zeros, None, ones)
        (sums,) = dataset.total(column_sums, centering=centered).sums
        columns = divide_by_counts(sums, counts, 0.0)
    if scaled:
        scales = fit_column_scales(dataset, Centering(mean, columns, None, ones))
    if mode == "rows":
        row_ridge = 0.0
    elif mode == "two-way":
        # Row effects add up over columns, so columns of other units are scaled first.
        effects = fit_two_way_effects(dataset, Centering(mean, columns, None, scales))
        columns = columns + scales * effects.column_effects
        row_ridge = effects.row_ridge
    return Centering(mean, columns, row_ridge, scales)


@dataclass(frozen=True)
class Centering:
    """Mean, column effects and column scales of a matrix, and how rows get effects."""

    mean: float  # added everywhere
    column_effects: Array  # (n,): effect of each column
    row_ridge: float | None  # ridge of a row's effect; None where rows have no effect
    #: (n,): what each column is divided by; row effects and residuals are in these
    #: units. 0 if a column is constant: it has no residuals and is filled with its
    #: value.
    column_scales: Array

    @classmethod
    def at_means(cls, means: Array) -> Centering:
        """Centering by column means alone; by zeros, nothing is changed."""
        return cls(0.0, means, None, np.ones(len(means)))

    def row_effects(self, observed: Observations) -> Array:
        """Effect of each row, from its own observed entries; 0 without any."""
        if self.row_ridge is None:
            return np.zeros(observed.shape[0])
        values = self.subtract_column_effects(observed)
        return shrunk_means(values, observed.rows, observed.row_counts, self.row_ridge)

    def residuals(self, observed: Observations, row_effects: Array) -> Array:
        """Observed values without all effects, in units of the column scales."""
        residuals = self.subtract_column_effects(observed)
        residuals -= np.repeat(row_effects, observed.row_counts)
        return residuals

    def restore(
        self, residuals: Array, row_effects: Array | float, columns: Any = slice(None)
    ) -> Array:
        """Add all effects to residuals of some columns: the inverse of `residuals`."""
        X = residuals + row_effects
        X *= self.column_scales[columns]
        X += self.mean + self.column_effects[columns]
        return X

    def subtract_column_effects(self, observed: Observations) -> Array:
        """Observed values without mean and column effects, in column scales."""
        columns = observed.indices
        # Without effects there is no need to look them up for every entry.
        effects = self.column_effects[columns] if self.column_effects.any() else 0.0
        centered: Array = observed.values - (self.mean + effects)
        if bool((self.column_scales == 1.0).all()):
            return centered
        scales = self.column_scales[columns]
        zeros = np.zeros_like(centered)
        return np.divide(centered, scales, out=zeros, where=scales > 0.0)


def overall_mean(dataset: Dataset) -> float:
    """Mean of all values."""
    (total,) = dataset.total(value_sum).sums
    return float(total / dataset.summary.n_observed)


def value_sum(observed: Observations) -> PassSums:
    """Sum of the values."""
    return PassSums((observed.values.sum(),))


def column_sums(observed: Observations, *, centering: Centering) -> PassSums:
    """Sum of the values of each column without mean and column effects."""
    v = centering.subtract_column_effects(observed)
    n = observed.shape[1]
    return PassSums((np.bincount(observed.indices, weights=v, minlength=n),))


def square_sum(observed: Observations, *, centering: Centering) -> PassSums:
    """Sums of squares: without mean and column effects, and of the values."""
    v, values = centering.subtract_column_effects(observed), observed.values
    return PassSums((float(v @ v), float(values @ values)))


def fit_column_scales(dataset: Dataset, centering: Centering) -> Array:
    """Root mean square of each column about its center; 0 if it is constant."""
    totals = dataset.total(column_scale_sums, centering=centering)
    (squares,), (sizes,) = totals.sums, totals.maxima
    counts = dataset.summary.column_counts
    scales = np.sqrt(squares / np.maximum(counts, 1))
    # A constant column leaves nothing but the rounding errors of its sums.
    rounding = np.finfo(np.float64).eps * (counts + 16) * sizes
    return np.where(counts == 0, 1.0, np.where(scales > rounding, scales, 0.0))


def column_scale_sums(observed: Observations, *, centering: Centering) -> PassSums:
    """Sum of squares of each column about its center, and its largest magnitude."""
    left, n = centering.subtract_column_effects(observed), observed.shape[1]
    squares = np.bincount(observed.indices, weights=left**2, minlength=n)
    sizes = np.full(n, abs(centering.mean))
    np.maximum.at(sizes, observed.indices, np.abs(observed.values))
    return PassSums((squares,), (sizes,))


def fit_two_way_effects(dataset: Dataset, centering: Centering) -> TwoWayColumnEffects:
    """Column effects and the ridge of the row effects, by random-effects EM.

    The ridges are ratios of variances (residual over effect), learned from the data:
    large if rows have few entries and differ little, small if they differ much. Row
    effects are computed again in every pass, so that none is stored.
    """
    summary, n = dataset.summary, len(centering.column_effects)
    effects = TwoWayColumnEffects(np.zeros(n), 1.0, 1.0, 0.0)
    for _ in range(MAX_SWEEPS):
        before = effects.column_effects
        sums = dataset.total(
            sweep_sums, centering=centering, columns=before, ridge=effects.row_ridge
        )
        total = sums.sums[0] / summary.n_observed
        if total <= 0.0:
            break
        effects = effects.update(summary, *sums.sums)
        change = float(np.max(np.abs(effects.column_effects - before)))
        if change <= SWEEP_TOL * total**0.5:
            break
    return effects


@dataclass(frozen=True)
class TwoWayColumnEffects:
    """Column effects and ridges of a two-way model; row effects are not stored."""

    column_effects: Array  # (n,): effects of the columns
    #: Ratios of variances, residual over effect: the ridges of the effects.
    row_ridge: float
    column_ridge: float
    sum_squares: float  # sum of squared residuals

    def update(
        self, summary: DataSummary, value_squares: float, residual_squares: float,
        residual_sums: Array, row_sum: float, row_squares: float, row_variances: float,
    ) -> TwoWayColumnEffects:  # fmt: skip
        """Effects and ridges after a sweep, from the `sweep_sums` of all rows."""
        counts, rows = summary.column_counts, summary.n_observed_rows
        b, seen = self.column_effects, counts > 0
        new = divide_by_counts(residual_sums + counts * b, counts, self.column_ridge)
        # Squared residuals of the new effects, from those of the old ones.
        step = new - b
        residual_squares -= 2.0 * float(step @ residual_sums)
        residual_squares += float(counts @ step**2)
        # Alternating updates move a constant between rows and columns only slowly.
        pull = self.column_ridge * float(new[seen].sum()) - self.row_ridge * row_sum
        weight = self.row_ridge * rows + self.column_ridge * int(seen.sum())
        shift = pull / weight
        new = new - shift * seen
        noise = max(residual_squares, 1e-12 * value_squares) / summary.n_observed
        row_squares = row_squares + 2.0 * shift * row_sum + shift**2 * rows
        row_variance = max((row_squares + noise * row_variances) / rows, 1e-9 * noise)
        column_ridge = noise / effect_variance(new, counts, self.column_ridge, noise)
        return TwoWayColumnEffects(
            new, noise / row_variance, column_ridge, max(residual_squares, 0.0)
        )


def sweep_sums(
    observed: Observations, *, centering: Centering, columns: Array, ridge: float
) -> PassSums:
    """Sums over some rows that `TwoWayColumnEffects.update` needs.

    In the order of its parameters: squared values; squared residuals and, by column,
    residuals, with the row effects that belong to the old column effects; row effects;
    their squares; their posterior variances over the noise variance.
    """
    v, counts = centering.subtract_column_effects(observed), observed.row_counts
    r = v - columns[observed.indices]
    a = shrunk_means(r, observed.rows, counts, ridge)
    r -= np.repeat(a, counts)
    n, nonempty = observed.shape[1], counts[counts > 0]
    residual_sums = np.bincount(observed.indices, weights=r, minlength=n)
    row_variances = float(np.sum(1.0 / (nonempty + ridge)))
    squares = float(v @ v), float(r @ r)
    return PassSums(
        (*squares, residual_sums, float(a.sum()), float(a @ a), row_variances)
    )


def effect_variance(effects: Array, counts: Array, ridge: float, noise: float) -> float:
    """Variance of effects: mean square plus mean posterior variance."""
    seen = counts > 0
    second_moments = effects[seen] ** 2 + noise / (counts[seen] + ridge)
    # Floored so that the ridge stays finite where the effects vanish.
    return max(float(second_moments.mean()), 1e-9 * noise)


def shrunk_means(values: Array, owner: Array, counts: Array, ridge: float) -> Array:
    """Sum of values by owner, divided by count plus ridge; 0 without entries."""
    sums = np.bincount(owner, weights=values, minlength=len(counts))
    return divide_by_counts(sums, counts, ridge)


def divide_by_counts(sums: Array, counts: Array, ridge: float) -> Array:
    """Sums divided by counts plus ridge; 0 without entries."""
    weights = counts + ridge
    return np.divide(sums, weights, out=np.zeros(len(counts)), where=weights > 0)


def center_rows(
    observed: Observations, *, centering: Centering, kept_columns: Array, dtype: str
) -> Observations:
    """Residuals in some columns, which include all columns with entries."""
    effects = centering.row_effects(observed)
    residuals = centering.residuals(observed, effects)
    centered = observed.with_values(residuals.astype(dtype, copy=False))
    return select_columns(centered, kept_columns)


def select_columns(observed: Observations, kept_columns: Array) -> Observations:
    """Observations in some columns only; the others must have no entries."""
    m, n = observed.shape
    if len(kept_columns) == n:
        return observed
    new_indices = np.zeros(n, dtype=observed.indices.dtype)
    new_indices[kept_columns] = np.arange(len(kept_columns))
    columns = new_indices[observed.indices]
    return Observations(
        observed.indptr, columns, observed.values, (m, len(kept_columns))
    )


def rescale(observed: Observations, unit: float) -> Observations:
    """Observations with their values divided by a unit."""
    return observed.with_values(observed.values / unit)


def fit_scaler(dataset: Dataset, *, per_column: bool) -> Scaler:
    """Fit the unit of a matrix, and mean and scale of each column if ``per_column``."""
    unit, counts = dataset.summary.unit, dataset.summary.column_counts
    plain = Centering.at_means(np.zeros(len(counts)))
    if not per_column:
        return Scaler(unit, plain)
    inner = dataset.map_values(partial(rescale, unit=unit))
    # Without subtracting a common mean first: columns of tiny units would be lost.
    (sums,) = inner.total(column_sums, centering=plain).sums
    overall = sums.sum() / dataset.summary.n_observed
    means = np.where(counts > 0, sums / np.maximum(counts, 1), overall)
    scales = fit_column_scales(inner, Centering.at_means(means))
    return Scaler(unit, Centering(0.0, means, None, scales))


@dataclass(frozen=True)
class Scaler:
    """Transforms values to and from about unit size."""

    unit: float  # what all values are divided by first
    #: Mean and scale of each column, applied after that; no row effects.
    centering: Centering

    def transform(self, observed: Observations) -> Observations:
        """Observations in the units of the model."""
        inner = rescale(observed, self.unit)
        return inner.with_values(self.centering.subtract_column_effects(inner))

    def inverse_transform(self, values: Array, columns: Any = slice(None)) -> Array:
        """Values of some columns in the units of the data."""
        center = self.centering
        means = (center.mean + center.column_effects)[columns]
        return to_user_units(values * center.column_scales[columns] + means, self.unit)

    def inverse_transform_std(self, values: Array, columns: Any = slice(None)) -> Array:
        """Standard deviations of some columns in the units of the data."""
        scales = self.centering.column_scales[columns]
        return to_user_units(values * scales, self.unit)

    @property
    def error_unit(self) -> float:
        """Factor from errors of the model to errors that are reported.

        If columns are scaled, errors are reported in units of the column scales.
        """
        return self.unit if bool(np.all(self.centering.column_scales == 1.0)) else 1.0

    def log_density_shift(self, counts: Array) -> float:
        """Log density in the units of the data, less that of the model."""
        scales = self.centering.column_scales
        logs = np.log(scales, out=np.zeros_like(scales), where=scales > 0.0)
        return -float(counts @ logs) - int(counts.sum()) * float(np.log(self.unit))


def to_user_units(values: Array, unit: float, *, out: Array | None = None) -> Array:
    """Values times a unit, clipped to the range of floats."""
    with np.errstate(over="ignore"):
        scaled = np.multiply(values, unit, out=out)
    return clip_to_float_range(scaled, out=out)


def compare_column_units(dataset: Dataset) -> tuple[bool, float | None]:
    """Whether the columns seem to have units of their own, and the ratio behind it.

    The ratio is that of the 90th to the 10th percentile of the columns' standard
    deviations; units differ if it exceeds `MAX_SPREAD_RATIO`. It is None, and units
    are taken to be the same, unless at least two columns, and half of them, vary and
    have `MIN_ENTRIES_FOR_SPREAD` observed entries.
    """
    counts = dataset.summary.column_counts
    enough, least = counts >= MIN_ENTRIES_FOR_SPREAD, max(2, len(counts) / 2)
    if enough.sum() < least:
        return False, None
    scales = fit_scaler(dataset, per_column=True).centering.column_scales
    usable = enough & (scales > 0.0)
    if usable.sum() < least:
        return False, None
    low, high = np.percentile(scales[usable], (10, 90))
    return bool(high > MAX_SPREAD_RATIO * low), float(high) / float(low)


def fit_value_bounds(
    dataset: Dataset, clip: Any, *, rounded: bool, by_column: bool
) -> ValueBounds:
    """Find the bounds and levels of a matrix in the user's units.

    ``clip`` is None, a pair of bounds, or "auto": an end of the observed range that
    several entries reach is a bound. ``rounded`` collects levels; ``by_column`` gives
    each column a range and levels of its own.
    """
    counts = dataset.summary.column_counts
    n = len(counts)
    low, high = np.full(n, -np.inf), np.full(n, np.inf)
    if clip is not None and not isinstance(clip, str):
        low[:], high[:] = clip
    elif clip == "auto":
        extremes: Extremes = dataset.total(column_extremes)
        if not by_column:
            extremes = extremes.pool_columns()
            counts = np.asarray([dataset.summary.n_observed])
        low[:], high[:] = extremes.bounds(counts)
    if not rounded:
        return ValueBounds(low, high, np.empty(0), np.zeros((n, 2), dtype=np.int64))
    levels: ObservedLevels = dataset.total(find_levels, by_column=by_column)
    parts = [
        part[(part >= least) & (part <= most)]
        for part, least, most in zip(levels.columns, low, high, strict=False)
    ]
    stops = np.cumsum([len(part) for part in parts])
    ends = np.stack([np.append(0, stops[:-1]), stops], axis=1)
    return ValueBounds(
        low, high, np.concatenate(parts), np.broadcast_to(ends, (n, 2)).copy()
    )


@dataclass(frozen=True)
class ValueBounds:
    """Range and levels of completed values."""

    low: Array  # (n,): bounds of each column, infinite for none
    high: Array
    #: Observed levels of one column after the other, or of all columns together.
    levels: Array
    #: (n, 2): column ``j`` has ``levels[ends[j, 0]:ends[j, 1]]``; empty without
    #: rounding.
    ends: Array

    def clip(self, values: Array, columns: Any = slice(None)) -> Array:
        """Clip values of some columns to the bounds."""
        return np.clip(values, self.low[columns], self.high[columns])

    def clip_and_round(self, values: Array, columns: Array) -> Array:
        """Clip values of single entries, and round them to the levels if any."""
        clipped = self.clip(values, columns)
        if len(self.levels) == 0:
            return clipped
        for j in np.unique(columns):
            levels = self.levels[slice(*self.ends[j])]
            if len(levels):
                here = columns == j
                clipped[here] = _round_to_levels(levels, clipped[here])
        return clipped

    def clip_and_round_rows(self, values: Array) -> Array:
        """Clip and round whole rows."""
        clipped = self.clip(values)
        for j in range(values.shape[1]) if len(self.levels) else ():
            levels = self.levels[slice(*self.ends[j])]
            if len(levels):
                clipped[:, j] = _round_to_levels(levels, clipped[:, j])
        return clipped


def _round_to_levels(levels: Array, values: Array) -> Array:
    middles = (levels[1:] + levels[:-1]) / 2.0
    return levels[np.searchsorted(middles, values)]


@dataclass(frozen=True)
class Extremes:
    """Smallest and largest values of columns, and how many entries equal them."""

    low: Array
    high: Array
    n_low: Array
    n_high: Array

    def __iadd__(self, other: Extremes) -> Extremes:
        low, high = np.minimum(self.low, other.low), np.maximum(self.high, other.high)
        return Extremes(
            low,
            high,
            self.n_low * (self.low == low) + other.n_low * (other.low == low),
            self.n_high * (self.high == high) + other.n_high * (other.high == high),
        )

    def pool_columns(self) -> Extremes:
        """Extremes of all columns together."""
        low, high = self.low.min(keepdims=True), self.high.max(keepdims=True)
        n_low = np.sum(self.n_low * (self.low == low), keepdims=True)
        n_high = np.sum(self.n_high * (self.high == high), keepdims=True)
        return Extremes(low, high, n_low, n_high)

    def bounds(self, counts: Array) -> tuple[Array, Array]:
        """Ends of each range that are bounds; infinite for the others."""
        least = np.maximum(2.0, BOUND_SHARE * counts)
        varied = self.low < self.high  # a constant says nothing about its range
        low = np.where(varied & (self.n_low >= least), self.low, -np.inf)
        return low, np.where(varied & (self.n_high >= least), self.high, np.inf)


def column_extremes(observed: Observations) -> Extremes:
    """Extremes of each column; infinite in columns without entries."""
    columns, values, n = observed.indices, observed.values, observed.shape[1]
    low, high = np.full(n, np.inf), np.full(n, -np.inf)
    np.minimum.at(low, columns, values)
    np.maximum.at(high, columns, values)
    counts = [
        np.bincount(columns, weights=values == end[columns], minlength=n)
        for end in (low, high)
    ]
    return Extremes(low, high, *counts)


@dataclass(frozen=True)
class ObservedLevels:
    """Distinct values in increasing order, of each column or of all together."""

    columns: tuple[Array, ...]

    def __iadd__(self, other: ObservedLevels) -> ObservedLevels:
        pairs = zip(self.columns, other.columns, strict=True)
        joined = ObservedLevels(tuple(np.union1d(*pair) for pair in pairs))
        if sum(map(len, joined.columns)) > MAX_LEVELS:
            raise ValueError(
                "rounding='observed' is for values of few levels; X has more than "
                f"{MAX_LEVELS}. Use rounding=None"
            )
        return joined


def find_levels(observed: Observations, *, by_column: bool) -> ObservedLevels:
    """Distinct values of each column, or of all entries."""
    if not by_column:
        return ObservedLevels((np.unique(observed.values),))
    order = np.argsort(observed.indices, kind="stable")
    cuts = np.cumsum(observed.column_counts)[:-1]
    parts = np.split(observed.values[order], cuts)
    return ObservedLevels(tuple(np.unique(part) for part in parts))


def root_mean_square(values: Array) -> float:
    """Root mean square of the values that are not NaN, without overflow."""
    unit = power_of_two_unit(values)
    return float(np.sqrt(np.nanmean(np.square(values / unit)))) * unit


def overflow_safe_mean(values: Array) -> float:
    """Mean of values whose sum may overflow."""
    unit = power_of_two_unit(values)
    return float(np.mean(values / unit)) * unit
