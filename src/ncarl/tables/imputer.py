"""`TableImputer`, and the joint normal distribution of coordinates underneath it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from ncarl.bayes.model import ConformalScores
from ncarl.core.types import Array
from ncarl.engines.base import Engine
from ncarl.estimators.bayesian import BayesianNCARL
from ncarl.estimators.validation import (
    INDICATOR_PREFIX,
    check_missing_values,
    make_missing_indicator,
)
from ncarl.tables.encoding import (
    CategoryEncoder,
    ColumnRules,
    ColumnSchema,
    NumberEncoder,
    encode_table,
    fit_columns,
    read_columns,
)
from ncarl.tables.frames import (
    ColumnData,
    TableAdapter,
    apply_output_config,
    validate_table,
)
from ncarl.validation import (
    check_choice,
    check_flag,
    check_fraction,
    check_integer,
    check_number,
)

TRANSFORM_SKEWED = ("auto", None, "power", "quantile")
ROUNDING_MODES = ("integers", "whole", None)
#: With fewer cells, engine="auto" does not use a GPU.
MIN_GPU_CELLS = 5_000_000
#: Number of rows whose values are left out, one by one, to calibrate intervals.
MAX_LOO_ROWS = 5_000
#: Columns with fewer scores share those of all columns.
MIN_COLUMN_SCORES = 50
#: Number of elements of a batch of small matrices.
MAX_BATCH_ELEMENTS = 4_000_000

ColumnSchemas = Sequence[ColumnSchema]
ColumnsData = Sequence[ColumnData | None]


def _has_categories(imputer: TableImputer) -> bool:
    """Whether the fitted table has a category or boolean column; True before a fit."""
    columns = getattr(imputer, "columns_", None)
    if columns is None or any(
        isinstance(column.encoder, CategoryEncoder) for column in columns
    ):
        return True
    raise AttributeError(
        "predict_proba needs a column of categories or yes/no; the table of the fit "
        "has none"
    )


class TableImputer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Imputer for tables of numbers, categories and yes/no, which keeps column types.

    It takes pandas and polars frames and arrays of numbers, and works in scikit-learn's
    pipelines. `fit` learns the joint distribution of the columns; `transform` imputes
    any rows with the same columns: numbers by their expected value, categories and
    yes/no by the most probable one. Observed entries are never changed.

    Parameters
    ----------
    missing_values : int, float, str, np.nan, None or pandas.NA, default=np.nan
        Entries that are missing besides NaN, None, ``pandas.NA`` and null, which
        always are. A number marks entries of columns of numbers (and categories that
        are numbers); a text such as "?" marks entries of columns of text, categories
        and objects.
    transform_skewed : {"auto", None, "power", "quantile"}, default="auto"
        Which columns of numbers are transformed to be symmetric while the model works
        on them: the skewed ones, by a power transform; none; all, by a power or a
        quantile transform.
    add_indicator : bool, default=False
        Append an indicator column for every column that had missing entries in fit, as
        scikit-learn's imputers do.
    rounding : {"integers", "whole", None}, default="integers"
        Which columns are filled with integers: those of an integer type, which they
        keep; also float columns whose observed values are all integers; none (integer
        columns come back as floats).
    clip : bool, default=True
        Clip imputed numbers to the range of their column in fit. Those of transformed
        columns always are.
    max_categories : int, default=30
        Columns of text or categories with more distinct values are taken for names or
        free text: they are passed through with their missing entries, and a warning
        says so.
    passthrough : sequence of column names, default=()
        Columns to pass through unchanged, such as identifiers or dates.
    keep_empty_features : bool, default=True
        Whether columns without any observed value in fit are returned. They are
        returned as they came, missing entries included (scikit-learn's imputers put 0
        there).
    shrinkage_rows : "auto" or float, default="auto"
        Number of pseudo-rows with uncorrelated columns that are added to the data,
        which shrinks correlations. "auto" is one for each coordinate of the model.
    max_iter : int, default=300
        Maximum number of iterations.
    tol : float, default=1e-4
        The fit has converged once an iteration raises the log evidence by less than
        this per observed entry.
    engine : {"auto", "threads", "torch", "dask"} or Engine, default="auto"
        Where the fit runs; see `BayesianNCARL`. "auto" fits small tables on the CPU.

    Attributes
    ----------
    columns_ : list
        Kind, role and encoder of each column.
    model_ : BayesianNCARL or None
        Model of the coordinates: one for a column of numbers or yes/no, k - 1 for a
        column of k categories. None if no column varies.
    indicator_ : MissingIndicator or None
        Indicator of the columns that had missing entries in fit (``features_``), as
        scikit-learn's imputers have it. None if ``add_indicator=False``.
    n_iter_ : int
        Number of iterations of the fit.
    n_features_in_, feature_names_in_
        As in all of scikit-learn.

    See Also
    --------
    ncarl.BayesianNCARL : the model underneath, for matrices of one kind of number.

    Notes
    -----
    Rows are taken as draws of one joint normal distribution of all coordinates, learned
    by EM from the observed entries. Entries should be missing at random: a value that
    is missing because it is large is imputed as if it were not.

    Columns are matched by name; additional, absent or other columns than in fit are an
    error. A category that did not occur in fit is kept, and counts as missing when
    other columns of its row are imputed.

    Examples
    --------
    >>> import pandas as pd
    >>> from ncarl.tables import TableImputer
    >>> frame = pd.DataFrame({
    ...     "height": [1.6, 1.8, None, 1.7, 1.9, 1.5] * 5,
    ...     "weight": [60, 80, 70, None, 90, 50] * 5,
    ...     "size": pd.Categorical(["S", "L", "M", "M", None, "S"] * 5),
    ... })
    >>> filled = TableImputer().fit_transform(frame)
    >>> int(filled.isna().sum().sum())
    0
    >>> filled["size"].dtype.categories.tolist(), filled["size"][4]
    (['L', 'M', 'S'], 'L')
    """

    columns_: list[ColumnSchema]

    def __init__(
        self,
        *,
        missing_values: Any = np.nan,
        transform_skewed: str | None = "auto",
        add_indicator: bool = False,
        rounding: str | None = "integers",
        clip: bool = True,
        max_categories: int = 30,
        passthrough: Sequence[Any] = (),
        keep_empty_features: bool = True,
        shrinkage_rows: str | float = "auto",
        max_iter: int = 300,
        tol: float = 1e-4,
        engine: str | Engine = "auto",
    ) -> None:
        self.missing_values = missing_values
        self.transform_skewed = transform_skewed
        self.add_indicator = add_indicator
        self.rounding = rounding
        self.clip = clip
        self.max_categories = max_categories
        self.passthrough = passthrough
        self.keep_empty_features = keep_empty_features
        self.shrinkage_rows = shrinkage_rows
        self.max_iter = max_iter
        self.tol = tol
        self.engine = engine

    def __sklearn_tags__(self) -> Any:
        """Missing entries and categories are allowed; float32 stays float32."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the joint distribution of the columns of a table.

        Parameters
        ----------
        X : pandas or polars frame, or array of numbers
            A table with missing entries: NaN, None, NaT, null, ``missing_values``.
        y : ignored
            Present for API consistency with scikit-learn.
        """
        rules, options = self._check_column_rules(), self._check_model_options()
        table = self._validate_table(X, reset=True)
        self.columns_ = fit_columns(table, rules)
        self.indicator_ = None
        if self.add_indicator:
            had_missing = [column.had_missing for column in self.columns_]
            self.indicator_ = make_missing_indicator(had_missing, self.missing_values)
        data = read_columns(table, self.columns_)
        Z = encode_table(table, self.columns_, data)
        self.gaussian_imputer_: GaussianImputer = fit_gaussian_imputer(
            self.columns_, data, Z, **options
        )
        self.model_ = self.gaussian_imputer_.model
        self.n_iter_ = 0 if self.model_ is None else self.model_.n_iter_
        if self.model_ is not None and not self.model_.converged_ and self.tol > 0.0:
            warnings.warn(
                f"TableImputer did not converge in max_iter={self.max_iter} steps; "
                "raise max_iter or tol, or set tol=0 to make a fixed number of steps",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def _check_column_rules(self) -> ColumnRules:
        check_flag("add_indicator", self.add_indicator)
        names = self.passthrough
        if isinstance(names, str) or not hasattr(names, "__iter__"):
            raise TypeError(
                f"passthrough must be a list of column names, got {names!r}"
            )
        return ColumnRules(
            transform_skewed=check_choice(
                "transform_skewed", self.transform_skewed, TRANSFORM_SKEWED
            ),
            max_categories=check_integer("max_categories", self.max_categories, low=1),
            passthrough=tuple(names),
            keep_empty_features=check_flag(
                "keep_empty_features", self.keep_empty_features
            ),
        )

    def _check_model_options(self) -> dict[str, Any]:
        """Arguments of `fit_gaussian_imputer`."""
        rows: float | None = None
        if not (isinstance(self.shrinkage_rows, str) and self.shrinkage_rows == "auto"):
            hint = "; 'auto' is one a coordinate"
            rows = check_number(
                "shrinkage_rows", self.shrinkage_rows, low=0.0, hint=hint
            )
        return {
            "engine": self.engine,
            "shrinkage_rows": rows,
            "max_iter": check_integer("max_iter", self.max_iter, low=1),
            "tol": check_number("tol", self.tol, low=0.0),
            "clip": check_flag("clip", self.clip),
            "rounding": check_choice("rounding", self.rounding, ROUNDING_MODES),
        }

    def _validate_table(self, X: Any, *, reset: bool) -> TableAdapter:
        marker = check_missing_values(self.missing_values, allow_text=True)
        return validate_table(self, X, reset=reset, missing_values=marker)

    def transform(self, X: Any) -> Any:
        """Impute the missing entries of a table with the columns of the fit.

        Parameters
        ----------
        X : frame or array
            The table of the fit, or other rows.

        Returns
        -------
        frame or array
            ``X`` with imputed entries; columns keep their types where these can hold
            the imputed values.
        """
        check_is_fitted(self)
        table, data, Z = self._encode_rows(X)
        imputed = self.gaussian_imputer_.impute(self.columns_, data, Z)
        columns: dict[Any, Any] = {}
        for j, (name, column) in enumerate(
            zip(table.names, self.columns_, strict=True)
        ):
            if self._is_dropped(column):
                continue
            columns[name] = None
            if (values := imputed[j]) is not None:
                dtype = column.dtype_for(table)
                columns[name] = table.fill_column(j, values, column.kind, dtype)
        indicators = {}
        for j in self._indicator_features():
            name = f"{INDICATOR_PREFIX}{table.names[j]}"
            if name in table.names:
                raise ValueError(
                    f"add_indicator would replace your column {name!r}; rename it, "
                    "or set add_indicator=False"
                )
            indicators[name] = table.read_column(j).missing
        return apply_output_config(self, table.assemble(columns, indicators))

    def predict_interval(self, X: Any, level: float = 0.9) -> tuple[Any, Any]:
        """Predict intervals for the missing numbers of a table.

        Parameters
        ----------
        X : frame or array
            The table of the fit, or other rows.
        level : float
            Fraction of the missing values that are to lie in their intervals, between
            0 and 1.

        Returns
        -------
        low, high : frames or arrays of floats
            Ends of the intervals, for the columns of numbers. Where a value is
            observed both ends are that value.
        """
        check_is_fitted(self)
        part = check_fraction("level", level, strict=True)
        table, data, Z = self._encode_rows(X)
        ends = self.gaussian_imputer_.intervals(self.columns_, data, Z, part)
        names = table.names
        low, high = ({names[j]: end[k] for j, end in ends.items()} for k in (0, 1))
        return table.make_float_frame(low), table.make_float_frame(high)

    @available_if(_has_categories)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> dict[Any, Any]:
        """Predict probabilities of the categories, for category and boolean columns.

        As in scikit-learn, the method is only there where it has a meaning: after a fit
        to a table without such a column there is no such attribute.

        Parameters
        ----------
        X : frame or array
            The table of the fit, or other rows.

        Returns
        -------
        dict of frames
            By the name of the column: a row for each row of ``X`` and a column for each
            category of the fit, in their order. An observed category has probability
            1; where it is a new one, all have 0.
        """
        check_is_fitted(self)
        table, data, Z = self._encode_rows(X)
        frames = {}
        probabilities = self.gaussian_imputer_.probabilities(self.columns_, data, Z)
        for j, values in probabilities.items():
            encoder = self.columns_[j].encoder
            assert isinstance(encoder, CategoryEncoder)
            labels = encoder.labels
            columns = map(str, labels) if table.library == "polars" else labels
            frames[table.names[j]] = table.make_float_frame(
                dict(zip(columns, values.T, strict=True))
            )
        return frames

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Names of the columns of the output.

        Parameters
        ----------
        input_features : sequence of str, optional
            Names of the columns of an array.
        """
        names = super().get_feature_names_out(input_features)
        out = [
            name
            for name, column in zip(names, self.columns_, strict=True)
            if not self._is_dropped(column)
        ]
        out += [f"{INDICATOR_PREFIX}{names[j]}" for j in self._indicator_features()]
        return np.array(out, dtype=object)

    def _encode_rows(
        self, X: Any
    ) -> tuple[TableAdapter, list[ColumnData | None], Array]:
        """``X`` as a table, its used columns, and its coordinates."""
        table = self._validate_table(X, reset=False)
        data = read_columns(table, self.columns_)
        return table, data, encode_table(table, self.columns_, data)

    def _is_dropped(self, column: ColumnSchema) -> bool:
        return not self.keep_empty_features and column.role == "empty"

    def _indicator_features(self) -> list[int]:
        """Positions of the columns with an indicator."""
        return [] if self.indicator_ is None else self.indicator_.features_.tolist()


@dataclass(frozen=True)
class GaussianImputer:
    """Joint normal distribution of the coordinates, fitted, and what it imputes.

    The methods take the columns of the fit, the data of some rows, and the coordinates
    ``Z`` of these rows.
    """

    model: Any  # the fitted BayesianNCARL, None if no column varies
    gaussian: JointGaussian
    scores: dict[int, ConformalScores]  # leave-one-out errors, by coordinate
    integer_columns: frozenset[int]  # columns that are filled with integers
    clip: bool  # whether numbers are clipped to the range of the fit

    def impute(
        self, columns: ColumnSchemas, data: ColumnsData, Z: Array
    ) -> list[Array | None]:
        """Values for the missing entries of each column, None where it has none."""
        posterior = self._compute_posterior(columns, Z)
        imputed: list[Array | None] = [None] * len(columns)
        for j, column, values in _iter_used_columns(columns, data):
            missing = values.missing
            if not missing.any():
                continue
            if isinstance(column.encoder, NumberEncoder):
                imputed[j] = self._impute_numbers(j, column, posterior, missing)
            else:
                assert isinstance(column.encoder, CategoryEncoder)
                labels = np.empty(len(column.encoder.labels), dtype=object)
                labels[:] = column.encoder.labels
                best = posterior.probabilities[j][missing].argmax(axis=1)
                imputed[j] = labels[best]
        return imputed

    def intervals(
        self, columns: ColumnSchemas, data: ColumnsData, Z: Array, level: float
    ) -> dict[int, tuple[Array, Array]]:
        """Ends of intervals of the number columns, by position."""
        posterior = self._compute_posterior(columns, Z)
        ends = {}
        for j, column, values in _iter_used_columns(columns, data):
            encoder, missing = column.encoder, values.missing
            if not isinstance(encoder, NumberEncoder):
                continue
            low, high = values.values.copy(), values.values.copy()
            if encoder.n_coordinates == 0:
                low[missing] = high[missing] = encoder.low
            else:
                k = int(column.coordinate_index[0])
                down, up = self.scores[k].quantiles(level)
                mean = posterior.means[missing, k]
                std = posterior.deviations[missing, k]
                low[missing] = self._clip_and_round(
                    j, encoder, encoder.inverse_transform(mean - down * std)
                )
                high[missing] = self._clip_and_round(
                    j, encoder, encoder.inverse_transform(mean + up * std)
                )
            ends[j] = low, high
        return ends

    def probabilities(
        self, columns: ColumnSchemas, data: ColumnsData, Z: Array
    ) -> dict[int, Array]:
        """Probabilities of categories, by the position of their column."""
        posterior = self._compute_posterior(columns, Z)
        probabilities = {}
        for j, column, values in _iter_used_columns(columns, data):
            if not isinstance(column.encoder, CategoryEncoder):
                continue
            probabilities[j] = posterior.probabilities[j] * values.missing[:, None]
            positions = column.encoder.label_positions(values)
            observed = np.flatnonzero(positions >= 0)
            probabilities[j][observed, positions[observed]] = 1.0
        return probabilities

    def _compute_posterior(self, columns: ColumnSchemas, Z: Array) -> RowPosterior:
        means, deviations = np.zeros(Z.shape), np.zeros(Z.shape)
        categories = [
            (j, column, column.encoder)
            for j, column in enumerate(columns)
            if isinstance(column.encoder, CategoryEncoder)
        ]
        probabilities = {
            j: np.zeros((len(Z), len(encoder.labels))) for j, _, encoder in categories
        }
        for j, _, encoder in categories:
            if encoder.n_coordinates == 0:
                probabilities[j][:] = 1.0
        for batch in self.gaussian.condition_rows(Z):
            at = batch.rows[:, None], batch.missing_index
            means[at] = batch.means
            deviations[at] = np.sqrt(np.diagonal(batch.covariances, axis1=1, axis2=2))
            for j, column, encoder in categories:
                if encoder.n_coordinates == 0:
                    continue
                first = int(column.coordinate_index[0])
                rows, mean, covariance = batch.block(first, encoder.n_coordinates)
                if len(rows):
                    probabilities[j][rows] = self._category_posterior(
                        column, mean, covariance
                    )
        return RowPosterior(means, deviations, probabilities)

    def _category_posterior(
        self, column: ColumnSchema, means: Array, covariances: Array
    ) -> Array:
        """Probabilities of the categories of a column from its coordinates."""
        encoder, index = column.encoder, column.coordinate_index
        assert isinstance(encoder, CategoryEncoder)
        prior_mean = self.gaussian.mean[index]
        return category_posterior(
            means - prior_mean,
            covariances,
            self.gaussian.covariance[np.ix_(index, index)],
            encoder.codes - prior_mean,
            encoder.frequencies,
        )

    def _impute_numbers(
        self, j: int, column: ColumnSchema, posterior: RowPosterior, missing: Array
    ) -> Array:
        encoder = column.encoder
        assert isinstance(encoder, NumberEncoder)
        if encoder.n_coordinates == 0:
            return np.full(int(missing.sum()), encoder.low)
        k = int(column.coordinate_index[0])
        values = encoder.expected_value(
            posterior.means[missing, k], posterior.deviations[missing, k]
        )
        return self._clip_and_round(j, encoder, values)

    def _clip_and_round(self, j: int, encoder: NumberEncoder, values: Array) -> Array:
        if self.clip:
            values = np.clip(values, encoder.low, encoder.high)
        return np.rint(values) if j in self.integer_columns else values


@dataclass(frozen=True)
class RowPosterior:
    """Conditional distribution of the missing coordinates of rows, given the others."""

    means: Array  # shape (m, n), 0 where observed
    deviations: Array  # standard deviations, shape (m, n), 0 where observed
    #: Probabilities of the categories of a column, shape (m, k), by its position; 0
    #: where it is observed.
    probabilities: dict[int, Array]


def fit_gaussian_imputer(
    columns: ColumnSchemas,
    data: ColumnsData,
    Z: Array,
    *,
    engine: str | Engine,
    shrinkage_rows: float | None,
    max_iter: int,
    tol: float,
    clip: bool,
    rounding: str | None,
) -> GaussianImputer:
    """Fit the distribution of the coordinates ``Z`` of a table.

    ``shrinkage_rows`` None is as many as there are coordinates.
    """
    integer_columns = frozenset(
        j
        for j, column, values in _iter_used_columns(columns, data)
        if _is_integer_column(column, values, rounding)
    )
    n = Z.shape[1]
    if n == 0:
        empty = JointGaussian(np.zeros(0), np.zeros((0, 0)))
        return GaussianImputer(None, empty, {}, integer_columns, clip)
    n_rows = int((~np.isnan(Z)).any(axis=1).sum())
    pseudo_rows = float(n) if shrinkage_rows is None else shrinkage_rows
    auto = isinstance(engine, str) and engine == "auto"
    model = BayesianNCARL(
        prior="identity",
        prior_strength=pseudo_rows / max(n_rows, n),
        center="columns",
        sides="columns",
        scale=None,
        clip=None,
        validation=0.0,
        max_iter=max_iter,
        tol=tol,
        engine="threads" if auto and Z.size < MIN_GPU_CELLS else engine,
    )
    with warnings.catch_warnings():
        # `TableImputer.fit` warns in its own name.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(Z)
    model.training_ = None  # the rows of the fit are not needed any more
    mean = model.predict(np.full((1, n), np.nan))[0]
    noise_variances = np.broadcast_to(model.noise_, n) ** 2
    gaussian = JointGaussian(mean, model.kernel_ + np.diag(noise_variances))
    scores = _conformal_scores(columns, gaussian, Z)
    return GaussianImputer(model, gaussian, scores, integer_columns, clip)


def _iter_used_columns(
    columns: ColumnSchemas, data: ColumnsData
) -> Iterator[tuple[int, ColumnSchema, ColumnData]]:
    """Positions, schemas and values of the used columns."""
    for j, (column, values) in enumerate(zip(columns, data, strict=True)):
        if values is not None:
            yield j, column, values


def _is_integer_column(
    column: ColumnSchema, values: ColumnData, rounding: str | None
) -> bool:
    """Whether a column is to be filled with integers."""
    if not column.is_number or rounding is None:
        return False
    observed = values.observed_values
    return column.kind == "integer" or (
        rounding == "whole" and bool(np.all(observed == np.rint(observed)))
    )


def _conformal_scores(
    columns: ColumnSchemas, gaussian: JointGaussian, Z: Array
) -> dict[int, ConformalScores]:
    """Leave-one-out errors of number columns, by coordinate.

    The distribution was fitted to these values, which makes their errors too small: in
    a regression of ``N`` rows on ``n`` columns by about ``1 + n / N``.
    """
    coordinates = [
        int(column.coordinate_index[0])
        for column in columns
        if column.is_number and len(column.coordinate_index)
    ]
    if not coordinates:
        return {}
    counts = (~np.isnan(Z)).sum(axis=0)
    step = -(-len(Z) // MAX_LOO_ROWS)
    errors, deviations = gaussian.leave_one_out(Z[::step])
    errors = errors * (1.0 + Z.shape[1] / np.maximum(counts, Z.shape[1]))
    errors, deviations = errors[:, coordinates], deviations[:, coordinates]
    rows, at = np.nonzero(~np.isnan(errors))
    shared = ConformalScores.from_errors(
        errors[rows, at], deviations[rows, at], rows, at
    )
    scores = {}
    for k, coordinate in enumerate(coordinates):
        own = rows[at == k]
        scores[coordinate] = shared
        if len(own) >= MIN_COLUMN_SCORES:
            # Every row has one error here: all are in groups of their own.
            groups = np.arange(len(own))
            scores[coordinate] = ConformalScores.from_errors(
                errors[own, k], deviations[own, k], groups, groups
            )
    return scores


@dataclass(frozen=True)
class JointGaussian:
    """Joint normal distribution of the coordinates of a row."""

    mean: Array  # shape (n,)
    covariance: Array  # shape (n, n), noise included

    @cached_property
    def precision(self) -> Array:
        """Inverse of the covariance."""
        P: Array = np.linalg.inv(self.covariance)
        return (P + P.T) / 2.0

    def condition_rows(self, rows: Array) -> Iterator[ConditionalBatch]:
        """Distributions of missing coordinates (NaN) given the others, in batches."""
        P = self.precision
        missing = np.isnan(rows)
        product = np.where(missing, 0.0, rows - self.mean) @ P
        for at, index in _batches(missing):
            covariances = np.linalg.inv(P[index[:, :, None], index[:, None, :]])
            shifts = covariances @ product[at[:, None], index][:, :, None]
            means = self.mean[index] - shifts[:, :, 0]
            yield ConditionalBatch(at, index, means, covariances)

    def leave_one_out(self, rows: Array) -> tuple[Array, Array]:
        """Errors and standard deviations of observed values given the others.

        Both have the shape of ``rows``, NaN where missing.
        """
        errors, deviations = np.full(rows.shape, np.nan), np.full(rows.shape, np.nan)
        for at, index in _batches(~np.isnan(rows)):
            A = self.covariance[index[:, :, None], index[:, None, :]]
            inverse = np.linalg.inv(A)
            values = rows[at[:, None], index] - self.mean[index]
            precisions = np.diagonal(inverse, axis1=1, axis2=2)
            duals = (inverse @ values[:, :, None])[:, :, 0]
            errors[at[:, None], index] = duals / precisions
            deviations[at[:, None], index] = 1.0 / np.sqrt(precisions)
        return errors, deviations


@dataclass(frozen=True)
class ConditionalBatch:
    """Distributions of the missing coordinates of rows that miss equally many."""

    rows: Array  # positions of the rows, shape (g,)
    missing_index: Array  # missing coordinates, increasing, shape (g, u)
    means: Array  # shape (g, u)
    covariances: Array  # noise included, shape (g, u, u)

    def block(self, first: int, width: int) -> tuple[Array, Array, Array]:
        """Rows that miss ``width`` coordinates from ``first``; means, covariances."""
        which, start = np.nonzero(self.missing_index == first)
        span = start[:, None] + np.arange(width)
        covariances = self.covariances[
            which[:, None, None], span[:, :, None], span[:, None, :]
        ]
        return self.rows[which], self.means[which[:, None], span], covariances


def _batches(mask: Array) -> Iterator[tuple[Array, Array]]:
    """Rows with equally many True, and their columns; rows without any are left out."""
    counts = mask.sum(axis=1)
    for count in np.unique(counts[counts > 0]):
        same = np.flatnonzero(counts == count)
        step = max(1, MAX_BATCH_ELEMENTS // int(count) ** 2)
        for first in range(0, len(same), step):
            at = same[first : first + step]
            yield at, np.nonzero(mask[at])[1].reshape(len(at), int(count))


def category_posterior(
    means: Array,
    covariances: Array,
    prior_covariance: Array,
    codes: Array,
    frequencies: Array,
) -> Array:
    """Probabilities of categories, shape (m, k), from the distribution of their codes.

    By Bayes' rule the likelihood of a row given a category is proportional to the
    density of the category's code given the row over its density alone (mean 0,
    covariance ``prior_covariance``). Times the frequencies of the categories it gives
    their probabilities, as in linear discriminant analysis.
    """
    residuals = codes[None, :, :] - means[:, None, :]
    solved = np.linalg.solve(covariances, np.swapaxes(residuals, 1, 2))
    conditional = np.einsum("mkj,mjk->mk", residuals, solved)
    alone = np.einsum("kj,jk->k", codes, np.linalg.solve(prior_covariance, codes.T))
    logits = np.log(frequencies) - 0.5 * (conditional - alone)
    logits -= logits.max(axis=1, keepdims=True)
    weights: Array = np.exp(logits)
    return weights / weights.sum(axis=1, keepdims=True)
