"""`TableImputer`, and the joint normal distribution of coordinates underneath it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from ncarl.bayes.model import ConformalScores
from ncarl.core.types import Array, cached_property
from ncarl.engines.base import Engine
from ncarl.engines.cores import limit_blas_threads
from ncarl.estimators.bayesian import BayesianNCARL
from ncarl.estimators.validation import (
    INDICATOR_PREFIX,
    check_missing_values,
    make_missing_indicator,
)
from ncarl.tables.encoding import (
    CategoryEncoder,
    ColumnSchema,
    NumberEncoder,
    encode_table,
    fit_columns,
)
from ncarl.tables.frames import (
    ColumnData,
    TableAdapter,
    all_integers,
    apply_output_config,
    read_column_as,
    validate_table,
)
from ncarl.text import MAX_LISTED, count_of, join_names
from ncarl.validation import (
    check_choice,
    check_flag,
    check_fraction,
    check_integer,
    check_number,
)

#: With fewer cells, engine="auto" does not use a GPU.
MIN_GPU_CELLS = 5_000_000
#: Number of rows whose values are left out, one by one, to calibrate intervals.
MAX_LOO_ROWS = 5_000
#: Columns with fewer scores share those of all columns.
MIN_COLUMN_SCORES = 50
#: Number of elements of a batch of small matrices.
MAX_BATCH_ELEMENTS = 4_000_000


def _has_categories(imputer: TableImputer) -> bool:
    """Whether the fitted table has a category or boolean column; True before a fit."""
    encoders = [column.encoder for column in getattr(imputer, "columns_", [])]
    if not encoders or any(isinstance(code, CategoryEncoder) for code in encoders):
        return True
    raise AttributeError(
        "predict_proba needs a column of categories or booleans; the table of the fit "
        "has none"
    )


class TableImputer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Imputer for tables of numbers, categories and booleans that keeps column types.

    It takes pandas and polars frames and arrays of numbers. `fit` learns the joint
    distribution of the columns; `transform` imputes any rows with the same columns:
    numbers by their expected value, categories and booleans by the most probable one.
    Observed entries are never changed.

    Parameters
    ----------
    missing_values : int, float, str, np.nan, None or pandas.NA, default=np.nan
        Entries that are missing besides NaN, None, ``pandas.NA`` and null, which
        always are. A number applies to columns of numbers and to categories that are
        numbers, text such as "?" to columns of text, categories and objects.
    transform_skewed : {"auto", None, "power"}, default="auto"
        Which columns of numbers are made symmetric by a power transform inside the
        model: the skewed ones, none, or all.
    add_indicator : bool, default=False
        Append an indicator column for every column that had missing entries in fit, as
        scikit-learn's imputers do.
    rounding : {"integers", "whole", None}, default="integers"
        Which columns are imputed with integers: those of an integer type, which they
        keep; also float columns whose observed values are all integers; none (integer
        columns become floats).
    clip : bool, default=True
        Clip imputed numbers to the range of their column in fit. Those of transformed
        columns always are.
    max_categories : int, default=30
        Columns of text or categories with more distinct values are taken for names or
        free text: passed through with their missing entries, with a warning.
    passthrough : sequence of column names, default=()
        Columns to pass through unchanged, such as identifiers or dates.
    keep_empty_features : bool, default=True
        Whether columns without any observed value in fit are returned, with their
        missing entries (scikit-learn's imputers put 0 there).
    shrinkage_rows : "auto" or float, default="auto"
        Number of pseudo-rows with uncorrelated columns that are added to the data,
        which shrinks correlations. "auto" is one per coordinate of the model.
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
        Model of the coordinates: one for a column of numbers or booleans, k - 1 for
        a column of k categories. None if no column varies.
    indicator_ : MissingIndicator or None
        Indicator of the columns that had missing entries in fit (``features_``). None
        if ``add_indicator=False``.
    n_iter_ : int
        Number of iterations of the fit.
    n_features_in_, feature_names_in_
        Number and names of the columns.

    See Also
    --------
    ncarl.BayesianNCARL : the model underneath, for matrices of one kind of number.

    Notes
    -----
    Rows are modeled as draws of one joint normal distribution of all coordinates, which
    is learned by EM from the observed entries. Entries should be missing at random.

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

    @limit_blas_threads(1)
    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the joint distribution of the columns of a table.

        Parameters
        ----------
        X : pandas or polars frame, or array of numbers
            A table with missing entries: NaN, None, NaT, null, ``missing_values``.
        y : ignored
            Present for API consistency with scikit-learn.
        """
        self._check_parameters()
        table = self._validate_table(X, reset=True)
        self.columns_, data = fit_columns(
            table,
            transform_skewed=self.transform_skewed,
            max_categories=self.max_categories,
            passthrough=tuple(self.passthrough),
            keep_empty_features=self.keep_empty_features,
        )
        self.indicator_ = None
        if self.add_indicator:
            had_missing = [column.had_missing for column in self.columns_]
            self.indicator_ = make_missing_indicator(had_missing, self.missing_values)
        used = [(j, values) for j, values in enumerate(data) if values is not None]
        self._integer_columns = {j for j, values in used if self._is_integer(values)}
        Z = encode_table(table.n_rows, self.columns_, data)
        self.model_ = self._fit_model(Z) if Z.shape[1] else None
        self.n_iter_ = 0 if self.model_ is None else self.model_.n_iter_
        self._gaussian = JointGaussian.from_model(self.model_)
        self._scores = _conformal_scores(self.columns_, self._gaussian, Z)
        if self.model_ is not None and not self.model_.converged_ and self.tol > 0.0:
            warnings.warn(
                f"TableImputer did not converge in max_iter={self.max_iter} iterations;"
                " raise max_iter or tol, or set tol=0 for a fixed number of iterations",
                ConvergenceWarning,
                stacklevel=3,
            )
        return self

    def _check_parameters(self) -> None:
        for name in ("add_indicator", "clip", "keep_empty_features"):
            check_flag(name, getattr(self, name))
        check_choice("transform_skewed", self.transform_skewed, ("auto", None, "power"))
        check_choice("rounding", self.rounding, ("integers", "whole", None))
        check_integer("max_categories", self.max_categories, low=1)
        check_integer("max_iter", self.max_iter, low=1)
        check_number("tol", self.tol, low=0.0)
        if not (isinstance(self.shrinkage_rows, str) and self.shrinkage_rows == "auto"):
            hint = "; 'auto' is one per coordinate"
            check_number("shrinkage_rows", self.shrinkage_rows, low=0.0, hint=hint)
        names = self.passthrough
        if isinstance(names, str) or not hasattr(names, "__iter__"):
            raise TypeError(
                f"passthrough must be a list of column names, got {names!r}"
            )

    def _is_integer(self, data: ColumnData) -> bool:
        if data.kind == "number" and self.rounding == "whole":
            return all_integers(data.observed_values)
        return data.kind == "integer" and self.rounding is not None

    def _fit_model(self, Z: Array) -> BayesianNCARL:
        m, n = int((~np.isnan(Z)).any(axis=1).sum()), Z.shape[1]
        pseudo_rows = n if isinstance(self.shrinkage_rows, str) else self.shrinkage_rows
        auto = isinstance(self.engine, str) and self.engine == "auto"
        model = BayesianNCARL(
            prior="identity",
            prior_strength=float(pseudo_rows) / max(m, n),
            center="columns",
            sides="columns",
            scale=None,
            clip=None,
            validation=0.0,
            max_iter=self.max_iter,
            tol=self.tol,
            engine="threads" if auto and Z.size < MIN_GPU_CELLS else self.engine,
        )
        with warnings.catch_warnings():
            # `fit` warns in its own name.
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(Z)
        model.training_ = None  # the rows of the fit are not needed any more
        return model

    def _validate_table(self, X: Any, *, reset: bool) -> TableAdapter:
        marker = check_missing_values(self.missing_values, allow_text=True)
        return validate_table(self, X, reset=reset, missing_values=marker)

    @limit_blas_threads(1)
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
            the imputed values. Rows without any observed value in the columns that
            the model uses stay as they are, with a warning.
        """
        table, data, posterior = self._condition_rows(X)
        empty = empty_rows(table.n_rows, data)
        if empty.any():
            places = join_names(np.flatnonzero(empty).tolist(), MAX_LISTED)
            warnings.warn(
                f"no observed value in {count_of(int(empty.sum()), 'row')} of X (at "
                f"{places}, from 0): they stay empty",
                UserWarning,
                stacklevel=3,
            )
        columns: dict[Any, Any] = {}
        for j, column in enumerate(self.columns_):
            if self._is_dropped(column):
                continue
            columns[table.names[j]] = None
            values = data[j]
            if values is not None and values.missing.any():
                imputed = self._impute_column(j, posterior, values.missing)
                dtype = column.dtype if column.library == table.library else None
                filled = table.fill_column(j, imputed, column.kind, dtype)
                columns[table.names[j]] = table.restore_rows(j, filled, empty)
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

    @limit_blas_threads(1)
    def predict_interval(self, X: Any, level: float = 0.9) -> tuple[Any, Any]:
        """Predict intervals for the missing numbers of a table.

        Parameters
        ----------
        X : frame or array
            The table of the fit, or other rows.
        level : float, default=0.9
            Nominal coverage of the intervals, between 0 and 1.

        Returns
        -------
        low, high : frames or arrays of floats
            Ends of the intervals, for the columns of numbers. Where a value is
            observed both ends are that value; in rows without any observed value they
            are NaN.
        """
        coverage = check_fraction("level", level, strict=True)
        table, data, posterior = self._condition_rows(X)
        low, high = {}, {}
        empty = empty_rows(table.n_rows, data)
        for j, (column, values) in enumerate(zip(self.columns_, data, strict=True)):
            encoder, name = column.encoder, table.names[j]
            if values is None or not isinstance(encoder, NumberEncoder):
                continue
            missing = values.missing & ~empty
            low[name], high[name] = values.values.copy(), values.values.copy()
            if encoder.n_coordinates == 0:
                low[name][missing] = high[name][missing] = encoder.low
                continue
            k = int(column.coordinate_index[0])
            down, up = self._scores[k].quantiles(coverage)
            mean = posterior.means[missing, k]
            std = posterior.deviations[missing, k]
            for end, coordinates in ((low, mean - down * std), (high, mean + up * std)):
                ends = encoder.inverse_transform(coordinates)
                end[name][missing] = self._clip_and_round(j, encoder, ends)
        return table.make_float_frame(low), table.make_float_frame(high)

    @available_if(_has_categories)  # type: ignore[untyped-decorator]
    @limit_blas_threads(1)
    def predict_proba(self, X: Any) -> dict[Any, Any]:
        """Predict probabilities of the categories, for category and boolean columns.

        Not available after a fit to a table without such columns.

        Parameters
        ----------
        X : frame or array
            As in `transform`.

        Returns
        -------
        dict of frames
            By the name of the column: a row for each row of ``X`` and a column for each
            category of the fit, in their order. An observed category has probability
            1; where it is a new one, all have 0. In rows without any observed value
            they are the frequencies of the fit.
        """
        table, data, posterior = self._condition_rows(X)
        frames = {}
        for j, (column, values) in enumerate(zip(self.columns_, data, strict=True)):
            encoder = column.encoder
            if values is None or not isinstance(encoder, CategoryEncoder):
                continue
            probabilities = posterior.probabilities[j] * values.missing[:, None]
            positions = encoder.label_positions(values)
            observed = np.flatnonzero(positions >= 0)
            probabilities[observed, positions[observed]] = 1.0
            shares = dict(zip(encoder.labels, probabilities.T, strict=True))
            frames[table.names[j]] = table.make_float_frame(shares)
        return frames

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Names of the columns of the output.

        Parameters
        ----------
        input_features : sequence of str, optional
            Names of the columns of an array.
        """
        names = super().get_feature_names_out(input_features)
        pairs = zip(names, self.columns_, strict=True)
        out = [name for name, column in pairs if not self._is_dropped(column)]
        out += [f"{INDICATOR_PREFIX}{names[j]}" for j in self._indicator_features()]
        return np.array(out, dtype=object)

    def _condition_rows(
        self, X: Any
    ) -> tuple[TableAdapter, list[ColumnData | None], RowPosterior]:
        """``X`` as a table, the data of its used columns, and their posterior."""
        check_is_fitted(self)
        table = self._validate_table(X, reset=False)
        data = [
            None if column.encoder is None else read_column_as(table, j, column.kind)
            for j, column in enumerate(self.columns_)
        ]
        Z = encode_table(table.n_rows, self.columns_, data)
        return table, data, compute_posterior(self._gaussian, self.columns_, Z)

    def _impute_column(self, j: int, posterior: RowPosterior, missing: Array) -> Array:
        encoder = self.columns_[j].encoder
        if isinstance(encoder, CategoryEncoder):
            labels = np.empty(len(encoder.labels), dtype=object)
            labels[:] = encoder.labels
            return labels[posterior.probabilities[j][missing].argmax(axis=1)]
        assert encoder is not None
        if encoder.n_coordinates == 0:
            return np.full(int(missing.sum()), encoder.low)
        k = int(self.columns_[j].coordinate_index[0])
        means, deviations = (
            posterior.means[missing, k],
            posterior.deviations[missing, k],
        )
        values = encoder.expected_value(means, deviations)
        return self._clip_and_round(j, encoder, values)

    def _clip_and_round(self, j: int, encoder: NumberEncoder, values: Array) -> Array:
        if self.clip:
            values = np.clip(values, encoder.low, encoder.high)
        return np.rint(values) if j in self._integer_columns else values

    def _is_dropped(self, column: ColumnSchema) -> bool:
        return not self.keep_empty_features and column.role == "empty"

    def _indicator_features(self) -> list[int]:
        return [] if self.indicator_ is None else self.indicator_.features_.tolist()


def empty_rows(n_rows: int, data: Sequence[ColumnData | None]) -> Array:
    """Which rows have no observed value in the columns that the model uses."""
    used = [values.missing for values in data if values is not None]
    return np.logical_and.reduce(used, axis=0) if used else np.zeros(n_rows, dtype=bool)


@dataclass(frozen=True)
class RowPosterior:
    """Conditional distribution of the missing coordinates of rows, given the others."""

    means: Array  # shape (m, n), 0 where observed
    deviations: Array  # standard deviations, shape (m, n), 0 where observed
    probabilities: dict[int, Array]  # of categories, by the position of their column


def compute_posterior(
    gaussian: JointGaussian, columns: Sequence[ColumnSchema], Z: Array
) -> RowPosterior:
    """Condition the missing coordinates of rows, NaN in ``Z``, on the observed ones."""
    means, deviations = np.zeros(Z.shape), np.zeros(Z.shape)
    categories = [
        (j, column.encoder, column.coordinate_index)
        for j, column in enumerate(columns)
        if isinstance(column.encoder, CategoryEncoder)
    ]
    probabilities = {
        j: np.full((len(Z), len(encoder.labels)), 0.0 if len(index) else 1.0)
        for j, encoder, index in categories
    }
    for rows, missing, batch_means, covariances in gaussian.condition_rows(Z):
        means[rows[:, None], missing] = batch_means
        variances = np.diagonal(covariances, axis1=1, axis2=2)
        deviations[rows[:, None], missing] = np.sqrt(variances)
        for j, encoder, index in categories:
            which, start = np.nonzero(missing == (index[0] if len(index) else -1))
            if len(which) == 0:
                continue
            # The coordinates of a category are missing together, side by side.
            span = start[:, None] + np.arange(len(index))
            prior_mean = gaussian.mean[index]
            probabilities[j][rows[which]] = category_posterior(
                batch_means[which[:, None], span] - prior_mean,
                covariances[which[:, None, None], span[:, :, None], span[:, None, :]],
                gaussian.covariance[np.ix_(index, index)],
                encoder.codes - prior_mean,
                encoder.frequencies,
            )
    return RowPosterior(means, deviations, probabilities)


def _conformal_scores(
    columns: Sequence[ColumnSchema], gaussian: JointGaussian, Z: Array
) -> dict[int, ConformalScores]:
    """Leave-one-out errors of number columns, by coordinate.

    The distribution was fitted to these values, which makes their errors too small: in
    a regression of ``N`` rows on ``n`` columns by about ``1 + n / N``.
    """
    coordinates = [
        int(column.coordinate_index[0])
        for column in columns
        if isinstance(column.encoder, NumberEncoder) and len(column.coordinate_index)
    ]
    if not coordinates:
        return {}
    counts = (~np.isnan(Z)).sum(axis=0)
    step = -(-len(Z) // MAX_LOO_ROWS)
    errors, deviations = gaussian.leave_one_out(Z[::step])
    errors = errors * (1.0 + Z.shape[1] / np.maximum(counts, Z.shape[1]))
    errors, deviations = errors[:, coordinates], deviations[:, coordinates]
    rows, at = np.nonzero(~np.isnan(errors))
    from_errors = ConformalScores.from_errors
    shared = from_errors(errors[rows, at], deviations[rows, at], rows, at)
    scores = dict.fromkeys(coordinates, shared)
    for k, coordinate in enumerate(coordinates):
        own = rows[at == k]
        groups = np.arange(len(own))  # one error per row: each a group of its own
        if len(own) >= MIN_COLUMN_SCORES:
            scores[coordinate] = from_errors(
                errors[own, k], deviations[own, k], groups, groups
            )
    return scores


@dataclass(frozen=True)
class JointGaussian:
    """Joint normal distribution of the coordinates of a row.

    The row functions of `ncarl.core` do not return the covariances between missing
    coordinates, which the probabilities of categories need.
    """

    mean: Array  # shape (n,)
    covariance: Array  # shape (n, n), noise included

    @classmethod
    def from_model(cls, model: BayesianNCARL | None) -> JointGaussian:
        """The distribution of a fitted model; of no coordinates without one."""
        if model is None:
            return cls(np.zeros(0), np.zeros((0, 0)))
        n = len(model.kernel_)
        mean = model.predict(np.full((1, n), np.nan))[0]
        noise_variances = np.broadcast_to(model.noise_, n) ** 2
        return cls(mean, model.kernel_ + np.diag(noise_variances))

    @cached_property
    def precision(self) -> Array:
        """Inverse of the covariance."""
        P = np.linalg.inv(self.covariance)
        return (P + P.T) / 2.0

    def condition_rows(
        self, rows: Array
    ) -> Iterator[tuple[Array, Array, Array, Array]]:
        """Distributions of missing coordinates (NaN) given the others, in batches.

        Yields positions of rows that miss equally many coordinates, shape (g,), the
        missing coordinates, (g, u), their means and covariances, (g, u, u).
        """
        P = self.precision
        missing = np.isnan(rows)
        product = np.where(missing, 0.0, rows - self.mean) @ P
        for at, index in _batches(missing):
            covariances = np.linalg.inv(P[index[:, :, None], index[:, None, :]])
            shifts = covariances @ product[at[:, None], index][:, :, None]
            yield at, index, self.mean[index] - shifts[:, :, 0], covariances

    def leave_one_out(self, rows: Array) -> tuple[Array, Array]:
        """Errors and standard deviations of observed values given the others."""
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
    means: Array, covariances: Array, prior: Array, codes: Array, frequencies: Array
) -> Array:
    """Probabilities of categories, shape (m, k), from the distribution of their codes.

    By Bayes' rule the likelihood of a row given a category is proportional to the
    density of the category's code given the row over its density alone (mean 0,
    covariance ``prior``). Times the frequencies of the categories it gives their
    probabilities, as in linear discriminant analysis.
    """
    residuals = codes[None, :, :] - means[:, None, :]
    solved = np.linalg.solve(covariances, np.swapaxes(residuals, 1, 2))
    conditional = np.einsum("mkj,mjk->mk", residuals, solved)
    alone = np.einsum("kj,jk->k", codes, np.linalg.solve(prior, codes.T))
    logits = np.log(frequencies) - 0.5 * (conditional - alone)
    logits -= logits.max(axis=1, keepdims=True)
    weights = np.exp(logits)
    return weights / weights.sum(axis=1, keepdims=True)
