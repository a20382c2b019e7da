"""Encoding of the columns of a table as real coordinates of about unit variance.

`fit_columns` learns a `ColumnSchema` with an encoder for every column, `encode_table`
applies them; transforms of skewed columns come last.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import boxcox1p, inv_boxcox1p
from scipy.stats import norm

from ncarl.containers import clip_to_float_range
from ncarl.core.types import Array
from ncarl.tables.frames import NUMERIC_KINDS, ColumnData, TableAdapter, check_finite
from ncarl.text import MAX_LISTED, join_names

#: Skewness from which "auto" transforms a column: on breast cancer, wine and diabetes
#: 0.5 imputes better than 1 and 2, and as well as transforming all columns.
MIN_SKEWNESS = 0.5
#: With fewer values, or fewer distinct ones, skewness is not distinguished from chance.
MIN_VALUES, MIN_LEVELS = 20, 5
#: Number of values from which the exponent is estimated.
MAX_FIT_VALUES = 2_000
#: Gauss-Hermite quadrature for means over a normal distribution.
HERMITE_NODES, HERMITE_WEIGHTS = np.polynomial.hermite_e.hermegauss(15)
HERMITE_WEIGHTS = HERMITE_WEIGHTS / HERMITE_WEIGHTS.sum()
#: Coordinates are clipped to this many standard deviations.
MAX_ABS_COORDINATE = 1e6
#: Minimum distance from the end of a column to its median, in standard deviations, that
#: serves as its unit; where it is shorter, many values equal the end.
MIN_UNIT = 1e-2


@dataclass(frozen=True)
class ColumnSchema:
    """A column as it was in fit."""

    name: Any
    kind: str  # one of `KIND_NAMES`
    #: "used" columns are imputed and help to impute others, "ignored" ones are passed
    #: through, "empty" ones had no observed value.
    role: str
    dtype: Any
    library: str  # of the type
    encoder: NumberEncoder | CategoryEncoder | None  # None unless it is used
    coordinate_index: Array  # its coordinates in the model
    had_missing: bool


def fit_columns(
    table: TableAdapter,
    *,
    transform_skewed: str | None,
    max_categories: int,
    passthrough: Sequence[Any],
    keep_empty_features: bool,
) -> tuple[list[ColumnSchema], list[ColumnData | None]]:
    """Fit the encoders of a table; its columns, and the data of those that are used.

    The parameters are those of `TableImputer`.
    """
    absent = [name for name in passthrough if name not in table.names]
    if absent:
        listed = join_names(absent, form=repr)
        raise ValueError(f"passthrough names columns that X does not have: {listed}")
    data_columns = [table.read_column(j) for j in range(len(table.names))]
    _check_supported_kinds([d for d in data_columns if d.name not in passthrough])
    columns: list[ColumnSchema] = []
    start, high_cardinality = 0, []
    for data in data_columns:
        role = "used"
        encoder: NumberEncoder | CategoryEncoder | None = None
        if data.name in passthrough:
            role = "ignored"
        elif data.missing.all():
            role = "empty"
        elif data.kind in NUMERIC_KINDS:
            check_finite(data)
            encoder = fit_number_encoder(data, transform_skewed)
        else:
            encoder = fit_category_encoder(data)
            if data.kind == "category" and len(encoder.labels) > max_categories:
                high_cardinality.append(data.display_name)
                role, encoder = "ignored", None
        stop = start + (0 if encoder is None else encoder.n_coordinates)
        columns.append(
            ColumnSchema(
                name=data.name,
                kind=data.kind,
                role=role,
                dtype=data.dtype,
                library=table.library,
                encoder=encoder,
                coordinate_index=np.arange(start, stop),
                had_missing=bool(data.missing.any()),
            )
        )
        start = stop
    if high_cardinality:
        listed = join_names(high_cardinality, MAX_LISTED)
        warnings.warn(
            f"{listed}: more than max_categories={max_categories} distinct values, so "
            "taken for names or free text: passed through with missing entries, and "
            "not used to impute other columns. List it in passthrough to confirm this, "
            "or raise max_categories to impute it",
            UserWarning,
            stacklevel=4,
        )
    empty = [column.name for column in columns if column.role == "empty"]
    if empty:
        outcome = "they are dropped"
        if keep_empty_features:
            outcome = "they stay empty; keep_empty_features=False drops them"
        warnings.warn(
            f"no observed value in columns {join_names(empty, form=repr)}: {outcome}",
            UserWarning,
            stacklevel=4,
        )
    pairs = zip(data_columns, columns, strict=True)
    return columns, [data if column.encoder else None for data, column in pairs]


def _check_supported_kinds(data_columns: list[ColumnData]) -> None:
    other = [data for data in data_columns if data.kind == "other"]
    if other:
        listed = join_names(other, 5, form=lambda data: f"{data.name!r} ({data.dtype})")
        names = [data.name for data in other]
        raise ValueError(
            "columns of X must hold numbers, booleans or categories, got "
            f"{listed}. Set passthrough={names!r} to pass them through unchanged, or "
            "convert them to numbers first"
        )


def without_transform(column: ColumnSchema, data: ColumnData | None) -> ColumnSchema:
    """The column with an encoder that does not transform numbers."""
    encoder = column.encoder
    if data is None or not isinstance(encoder, NumberEncoder):
        return column
    if encoder.exponent is None:
        return column
    return replace(column, encoder=fit_number_encoder(data, None))


def encode_table(
    n_rows: int, columns: Sequence[ColumnSchema], data: Sequence[ColumnData | None]
) -> Array:
    """Coordinates of the rows of a table, NaN where missing."""
    parts = [
        column.encoder.encode(values)
        for column, values in zip(columns, data, strict=True)
        if column.encoder is not None and values is not None
    ]
    return np.hstack([np.empty((n_rows, 0)), *parts])


@dataclass(frozen=True)
class NumberEncoder:
    """Encoder of a number column: one coordinate, made symmetric if it is skewed."""

    low: float  # range of the values in fit
    high: float
    mean: float = 0.0  # of the values in fit
    std: float = 1.0
    #: Values are shifted and divided first; the scale is negative where the left tail
    #: is the longer one.
    shift: float = 0.0
    scale: float = 1.0
    exponent: float | None = None  # of the Yeo-Johnson transform, if there is one
    #: Mean and standard deviation of the transformed values of the fit; the latter has
    #: the sign of the scale, so that coordinates increase with values.
    center: float = 0.0
    spread: float = 1.0

    @property
    def n_coordinates(self) -> int:
        """Number of coordinates, 0 for a constant column."""
        return int(self.low < self.high)

    def encode(self, data: ColumnData) -> Array:
        """Coordinates of a column, shape (m, n_coordinates), NaN where missing."""
        if self.n_coordinates == 0:
            return np.empty((len(data.values), 0))
        return self.transform(data.values)[:, None]

    def transform(self, values: Array) -> Array:
        """Coordinates of values."""
        with np.errstate(over="ignore"):
            inner = values / self.scale - self.shift / self.scale
        inner = np.clip(inner, -MAX_ABS_COORDINATE, MAX_ABS_COORDINATE)
        if self.exponent is None:
            return inner
        inner = (yeo_johnson(inner, self.exponent) - self.center) / self.spread
        return np.clip(inner, -MAX_ABS_COORDINATE, MAX_ABS_COORDINATE)

    def inverse_transform(self, coordinates: Array) -> Array:
        """Values of coordinates; transformed columns stay in the range of the fit."""
        if self.exponent is None:
            with np.errstate(over="ignore"):
                values = coordinates * self.scale + self.shift
            return clip_to_float_range(values)
        ends = self.transform(np.array([self.low, self.high]))
        inside = np.clip(coordinates, ends[0], ends[1])
        inner = inverse_yeo_johnson(inside * self.spread + self.center, self.exponent)
        return np.clip(inner * self.scale + self.shift, self.low, self.high)

    def moments(self, coordinates: Array, deviations: Array) -> tuple[Array, Array]:
        """Means and variances of the values in units of their standard deviation.

        Coordinates are normal with these means and standard deviations; values are
        standardized by the mean and standard deviation of the fit.
        """
        if self.exponent is None:
            return coordinates, deviations**2
        points = coordinates[:, None] + deviations[:, None] * HERMITE_NODES
        values = self.standardize(self.inverse_transform(points))
        means = values @ HERMITE_WEIGHTS
        return means, (values - means[:, None]) ** 2 @ HERMITE_WEIGHTS

    def standardize(self, values: Array) -> Array:
        """Values minus their mean in fit, over their standard deviation."""
        return values / self.std - self.mean / self.std

    def restore(self, standardized: Array) -> Array:
        """Values from standardized ones."""
        with np.errstate(over="ignore"):
            return clip_to_float_range(standardized * self.std + self.mean)


@dataclass(frozen=True)
class CategoryEncoder:
    """Encoder of a column of k categories: k - 1 coordinates, no reference category.

    A label of frequency ``p`` becomes its indicator over ``sqrt(p)``, in a basis of the
    orthogonal complement of the square roots of the frequencies. The coordinates have
    mean 0 and covariance I over the column.
    """

    labels: tuple[Hashable, ...]  # the categories that occurred in fit
    frequencies: Array  # relative, shape (k,)
    codes: Array  # coordinates of the labels, shape (k, k - 1)

    @property
    def n_coordinates(self) -> int:
        """Number of coordinates."""
        return int(self.codes.shape[1])

    @property
    def is_ordered(self) -> bool:
        """Whether the order of the categories is used."""
        return self.n_coordinates == 1 and len(self.labels) > 2

    def encode(self, data: ColumnData) -> Array:
        """Coordinates, shape (m, k - 1), NaN for missing and for new categories."""
        padded = np.vstack([self.codes, np.full((1, self.n_coordinates), np.nan)])
        return padded[self.label_positions(data)]

    def label_positions(self, data: ColumnData) -> Array:
        """Positions of the labels of a column, -1 for missing and for new ones."""
        position = {label: k for k, label in enumerate(self.labels)}
        values = data.values
        if data.kind == "boolean":
            values = np.where(data.missing, None, values == 1.0)
        return np.array([position.get(value, -1) for value in values], dtype=np.int64)


def fit_number_encoder(data: ColumnData, transform_skewed: str | None) -> NumberEncoder:
    """Fit the encoder of a number column; ``transform_skewed`` as in `TableImputer`."""
    observed = data.observed_values
    low, high = float(observed.min()), float(observed.max())
    size = max(abs(low), abs(high))
    if low == high or np.ptp(observed / size) < 1e-14:
        return NumberEncoder(low, low)  # its values differ by rounding only
    scale = float((observed / size).std()) * size
    mean = float((observed / size).mean()) * size
    plain = NumberEncoder(low, high, mean, scale, mean, scale)
    if transform_skewed == "power" or (transform_skewed and is_skewed(observed)):
        return _fit_skewed_encoder(observed, plain)
    return plain


def _fit_skewed_encoder(observed: Array, plain: NumberEncoder) -> NumberEncoder:
    """Encoder with a transform; ``plain`` if rounding makes it too inexact.

    Values are measured from the end with the shorter tail, in a third of the distance
    from there to the median, so that the transform does not depend on their unit.
    """
    left_skewed = skewness(observed) < 0.0
    start, sign = (plain.high, -1.0) if left_skewed else (plain.low, 1.0)
    unit = abs(float(np.median(observed / plain.scale)) - start / plain.scale) / 3.0
    scale = sign * plain.scale * (unit if unit > MIN_UNIT else 1.0)
    with np.errstate(all="ignore"):
        inner = observed / scale - start / scale
        exponent = fit_yeo_johnson(inner)
        transformed = yeo_johnson(inner, exponent)
        center, spread = float(transformed.mean()), sign * float(transformed.std())
        if not (0.0 < abs(spread) < np.inf):
            return plain
        transform = start, scale, exponent, center, spread
        known = plain.low, plain.high, plain.mean, plain.std
        encoder = NumberEncoder(*known, *transform)
        back = encoder.inverse_transform(encoder.transform(observed))
    error = np.abs(back / plain.scale - observed / plain.scale).max()
    return encoder if error < 1e-3 else plain


def fit_category_encoder(data: ColumnData) -> CategoryEncoder:
    """Fit the encoder of a category or boolean column."""
    values = data.observed_values
    counts = Counter[Hashable](map(bool, values) if data.kind == "boolean" else values)
    if data.categories is not None:
        labels = [label for label in data.categories if label in counts]
    else:
        labels = sorted(counts, key=_label_sort_key)
    frequencies = np.array([counts[label] for label in labels], dtype=np.float64)
    frequencies /= frequencies.sum()
    if data.ordered and len(labels) > 2:
        return CategoryEncoder(tuple(labels), frequencies, normal_scores(frequencies))
    root, k = np.sqrt(frequencies), len(labels)
    basis = np.linalg.qr(np.column_stack([root, np.eye(k)[:, : k - 1]]))[0][:, 1:]
    return CategoryEncoder(tuple(labels), frequencies, basis / root[:, None])


def normal_scores(frequencies: Array) -> Array:
    """Scores of ordered categories, shape (k, 1), with mean 0 and variance 1."""
    bounds = norm.ppf(np.append(0.0, np.cumsum(frequencies)).clip(0.0, 1.0))
    bounds[-1] = np.inf
    scores = -np.diff(norm.pdf(bounds)) / frequencies
    scores -= frequencies @ scores
    return np.asarray(scores / np.sqrt(frequencies @ scores**2))[:, None]


def _label_sort_key(label: Hashable) -> tuple[str, Any]:
    """Sort key for labels of mixed types."""
    number = isinstance(label, int | float | np.number)
    return ("", label) if number else (type(label).__name__, str(label))


def yeo_johnson(values: Array, exponent: float) -> Array:
    """Yeo-Johnson power transform; 1 is the identity, 0 a logarithm.

    scikit-learn's `PowerTransformer` does not bound the exponent and fits it to all
    values, which gives other digits.
    """
    up = boxcox1p(np.maximum(values, 0.0), exponent)
    down = boxcox1p(np.maximum(-values, 0.0), 2.0 - exponent)
    return up - down


def inverse_yeo_johnson(transformed: Array, exponent: float) -> Array:
    """Values of at least 0 from their transform."""
    values = inv_boxcox1p(transformed, exponent)
    # Rounding may lead beyond the limit of a negative exponent.
    return np.where(np.isnan(values), np.inf, values)


def is_skewed(values: Array) -> bool:
    """Whether a column is skewed enough to be transformed."""
    if len(values) < MIN_VALUES or len(np.unique(values)) < MIN_LEVELS:
        return False
    return abs(skewness(values)) > MIN_SKEWNESS


def skewness(values: Array) -> float:
    """Sample skewness."""
    size = float(np.abs(values).max())
    centered = values / size if size > 0.0 else values
    centered = centered - centered.mean()
    std = float(np.sqrt(np.mean(centered**2)))
    return float(np.mean((centered / std) ** 3)) if std > 0.0 else 0.0


def fit_yeo_johnson(values: Array) -> float:
    """Maximum-likelihood exponent of values of at least 0."""
    step = -(-len(values) // MAX_FIT_VALUES)
    some = np.sort(values)[::step]
    logs = float(np.log1p(some).sum())

    def negative_log_likelihood(exponent: float) -> float:
        std = float(np.std(boxcox1p(some, exponent)))
        if not (0.0 < std < math.inf):
            return 1e300
        return len(some) * math.log(std) - (exponent - 1.0) * logs

    options = {"xatol": 1e-3}
    result = minimize_scalar(
        negative_log_likelihood, bounds=(-4.0, 6.0), method="bounded", options=options
    )
    return float(result.x)
