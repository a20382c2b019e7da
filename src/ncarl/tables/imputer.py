"""`TableImputer`: the estimator for tables of numbers, categories and booleans."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from ncarl.bayes.mixture import GaussianMixture
from ncarl.core.types import Array
from ncarl.engines.base import Engine
from ncarl.engines.cores import limit_blas_threads
from ncarl.estimators.bayesian import BayesianNCARL
from ncarl.estimators.validation import (
    INDICATOR_PREFIX,
    check_missing_values,
    make_missing_indicator,
)
from ncarl.observations import Observations, canonical_order
from ncarl.tables.conditionals import Target
from ncarl.tables.encoding import (
    CategoryEncoder,
    ColumnSchema,
    NumberEncoder,
    encode_table,
    fit_columns,
    without_transform,
)
from ncarl.tables.frames import (
    ColumnData,
    TableAdapter,
    all_integers,
    apply_output_config,
    read_column_as,
    validate_table,
)
from ncarl.tables.model import (
    TableModel,
    TablePredictions,
    fit_table_model,
    mean_predictions,
)
from ncarl.tables.selection import EFFORTS, Effort, MixtureChoice, select_mixture
from ncarl.text import MAX_LISTED, count_of, join_names
from ncarl.validation import (
    MAX_NUMBER,
    check_choice,
    check_flag,
    check_fraction,
    check_integer,
    check_number,
)

#: With fewer cells, engine="auto" does not use a GPU.
MIN_GPU_CELLS = 5_000_000
#: Tolerance of fits to choose the shrinkage.
TRIAL_TOL = 1e-3


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

    It takes pandas and polars frames and arrays of numbers. `fit` learns how columns
    depend on each other; `transform` imputes any rows with the same columns: numbers by
    their expected value, categories and booleans by the most probable one. Observed
    entries are never changed.

    Parameters
    ----------
    effort : {"fast", "default", "best"}, default="default"
        How much is tried and averaged. "fast" fits one joint normal distribution and
        few trees. "default" chooses its shrinkage and a number of normal components on
        held-out entries and trains more trees. "best" averages more mixtures and trees,
        which takes about five times as long.
    components : "auto" or int, default="auto"
        Number of normal distributions in the mixture; 1 is one joint normal
        distribution. "auto" is chosen on held-out entries, and 1 with
        ``effort="fast"``.
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
        which shrinks correlations. "auto" chooses a multiple of the number of
        coordinates on held-out entries, and takes that number with ``effort="fast"``.
    delta : mapping from column names to numbers, optional
        Shifts that are added to the imputed numbers of columns, in their units, to see
        how much results depend on entries that are missing because of their values
        (sensitivity analysis). It may be changed after a fit.
    random_state : int, default=0
        Seed of the held-out entries, the starts of the mixtures and the trees.
    n_jobs : int, default=-1
        Threads that train and apply trees, as in scikit-learn: -1 for all cores.
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
        The joint normal distribution of the coordinates: one for a column of numbers,
        booleans or ordered categories, k - 1 for a column of k categories. None if no
        column varies.
    table_models_ : list of TableModel
        The fitted mixtures and trees; with ``effort="best"`` also those of a table in
        which no column is transformed.
    n_components_ : int
        Number of components of the mixtures.
    shrinkage_rows_ : float
        Number of pseudo-rows of the joint normal distribution.
    held_out_error_ : float
        Root mean square error of the chosen mixture, without trees, on held-out
        entries, in standard deviations; NaN if nothing was held out.
    trials_ : list of dict
        What was tried on held-out entries, with the errors.
    blend_ : dict
        By column of numbers the weights of its mean, of the mixture corrected by trees,
        and of trees alone; by column of categories the weight of the trees.
    indicator_ : MissingIndicator or None
        Indicator of the columns that had missing entries in fit (``features_``). None
        if ``add_indicator=False``.
    n_iter_ : int
        Number of iterations of the fit of the joint normal distribution.
    n_features_in_, feature_names_in_
        Number and names of the columns.

    See Also
    --------
    ncarl.BayesianNCARL : the model underneath, for matrices of one kind of number.

    Notes
    -----
    Rows are modeled as draws of a mixture of normal distributions of all coordinates,
    whose covariances are shrunk to a common one, learned by EM from the observed
    entries. Each observed entry is then left out of its row, and trees learn to predict
    it from the completed rest. Entries should be missing at random.

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
        effort: str = "default",
        components: str | int = "auto",
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
        delta: Mapping[Any, float] | None = None,
        random_state: int = 0,
        n_jobs: int | None = -1,
        engine: str | Engine = "auto",
    ) -> None:
        self.effort = effort
        self.components = components
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
        self.delta = delta
        self.random_state = random_state
        self.n_jobs = n_jobs
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
        self.model_: BayesianNCARL | None = None
        self.table_models_: list[TableModel] = []
        if any(len(column.coordinate_index) for column in self.columns_):
            self._fit_models(table, data)
        self.n_iter_ = 0 if self.model_ is None else self.model_.n_iter_
        if self.model_ is not None and not self.model_.converged_ and self.tol > 0.0:
            warnings.warn(
                f"TableImputer did not converge in max_iter={self.max_iter} iterations;"
                " raise max_iter or tol, or set tol=0 for a fixed number of iterations",
                ConvergenceWarning,
                stacklevel=3,
            )
        return self

    def _fit_models(
        self, table: TableAdapter, data: Sequence[ColumnData | None]
    ) -> None:
        effort, encodings = EFFORTS[self.effort], [self.columns_]
        if effort.untransformed_too and self.transform_skewed == "auto":
            plain = [
                without_transform(column, values)
                for column, values in zip(self.columns_, data, strict=True)
            ]
            encodings += [plain] if plain != self.columns_ else []
        effort = effort.share(len(encodings))
        self.table_models_, choice = [], None
        for columns in encodings:
            normal, model = self._fit_stages(table, data, columns, effort, choice)
            self.table_models_.append(model)
            self.model_ = self.model_ or normal
            choice = model.choice
        model = self.table_models_[0]
        choice = model.choice
        self.n_components_ = choice.n_components
        self.shrinkage_rows_ = choice.pseudo_rows
        self.held_out_error_, self.trials_ = choice.error, list(choice.trials)
        self.blend_ = {}
        for j, column in enumerate(self.columns_):
            if j in model.numbers:
                self.blend_[column.name] = model.numbers[j].weights
            elif j in model.categories:
                self.blend_[column.name] = model.categories[j].blend.tree_weight

    def _fit_stages(
        self, table: TableAdapter, data: Sequence[ColumnData | None],
        columns: list[ColumnSchema], effort: Effort, choice: MixtureChoice | None,
    ) -> tuple[BayesianNCARL, TableModel]:  # fmt: skip
        seed = self.random_state
        Z = encode_table(table.n_rows, columns, data)
        auto = isinstance(self.shrinkage_rows, str)
        pseudo_rows = float(Z.shape[1] if auto else self.shrinkage_rows)
        count = None if isinstance(self.components, str) else int(self.components)
        cells = [
            Target(j, column.coordinate_index, column.encoder)
            for j, column in enumerate(columns)
            if column.encoder is not None and len(column.coordinate_index)
        ]
        targets = {cell.position: _targets(cell, data[cell.position]) for cell in cells}
        # In an order that depends on the contents of the columns alone.
        values = np.column_stack([targets[cell.position] for cell in cells])
        order = canonical_order(Observations.from_dense(values))[1]
        index = np.concatenate([cells[t].coordinates for t in order])
        places = np.argsort(index)
        cells = [
            replace(cells[t], coordinates=places[cells[t].coordinates]) for t in order
        ]
        given, Z = Z, Z[:, index]
        if choice is None:
            choice = select_mixture(
                cells, Z, targets, self._fit_trial, effort, pseudo_rows=pseudo_rows,
                n_components=count, fixed_pooled=not auto, seed=seed,
            )  # fmt: skip
        normal = self._fit_normal(given, choice.pseudo_rows, self.tol)
        pooled = _pooled_distribution(normal, given, choice.pseudo_rows, index)
        model = fit_table_model(
            columns, index, cells, Z, targets, pooled, choice, effort, seed=seed,
            n_jobs=self.n_jobs,
        )  # fmt: skip
        return normal, model

    def _fit_trial(self, Z: Array, pseudo_rows: float) -> GaussianMixture:
        model = self._fit_normal(Z, pseudo_rows, max(self.tol, TRIAL_TOL))
        return _pooled_distribution(model, Z, pseudo_rows, np.arange(Z.shape[1]))

    def _check_parameters(self) -> None:
        check_choice("effort", self.effort, tuple(EFFORTS))
        if not (isinstance(self.components, str) and self.components == "auto"):
            hint = "; 'auto' chooses it on held-out entries"
            check_integer("components", self.components, low=1, hint=hint)
        check_integer("random_state", self.random_state, low=0)
        self._check_delta()
        for name in ("add_indicator", "clip", "keep_empty_features"):
            check_flag(name, getattr(self, name))
        check_choice("transform_skewed", self.transform_skewed, ("auto", None, "power"))
        check_choice("rounding", self.rounding, ("integers", "whole", None))
        check_integer("max_categories", self.max_categories, low=1)
        check_integer("max_iter", self.max_iter, low=1)
        check_number("tol", self.tol, low=0.0)
        if not (isinstance(self.shrinkage_rows, str) and self.shrinkage_rows == "auto"):
            hint = "; 'auto' chooses it on held-out entries"
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

    def _check_delta(self) -> None:
        if self.delta is None:
            return
        if not isinstance(self.delta, Mapping):
            raise TypeError(
                "delta must map names of columns to shifts of their imputed numbers, "
                f"such as {{'income': -500.0}}, got {self.delta!r}"
            )
        for name, shift in self.delta.items():
            check_number(f"delta[{name!r}]", shift, low=-MAX_NUMBER)

    def _fit_normal(self, Z: Array, pseudo_rows: float, tol: float) -> BayesianNCARL:
        m, n = int((~np.isnan(Z)).any(axis=1).sum()), Z.shape[1]
        auto = isinstance(self.engine, str) and self.engine == "auto"
        model = BayesianNCARL(
            prior="identity",
            prior_strength=pseudo_rows / max(m, n),
            center="columns",
            sides="columns",
            scale=None,
            clip=None,
            validation=0.0,
            max_iter=self.max_iter,
            tol=tol,
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
        table, data = self._read_rows(X)
        predictions = self._predict(table, data)
        empty = empty_rows(table.n_rows, data)
        if empty.any():
            places = join_names(np.flatnonzero(empty).tolist(), MAX_LISTED)
            warnings.warn(
                f"no observed value in {count_of(int(empty.sum()), 'row')} of X (at "
                f"{places}, from 0): they stay empty",
                UserWarning,
                stacklevel=3,
            )
        imputed = {}
        for j, values in self._columns_to_impute(data):
            encoder = self.columns_[j].encoder
            if isinstance(encoder, CategoryEncoder):
                shares = predictions.probabilities.get(j)
                best = None if shares is None else shares.argmax(axis=1)
                imputed[j] = self._labels(encoder, best, values)
            else:
                means, _ = predictions.numbers.get(j, (None, None))
                imputed[j] = self._numbers(j, means, values)
        return self._fill_table(table, data, imputed, empty)

    @limit_blas_threads(1)
    def sample(self, X: Any, n_draws: int = 5, random_state: int = 0) -> list[Any]:
        """Draw imputed tables, for multiple imputation.

        Parameters
        ----------
        X : frame or array
            The table of the fit, or other rows.
        n_draws : int, default=5
            Number of tables.
        random_state : int, default=0
            Seed.

        Returns
        -------
        list of frames or arrays
            As from `transform`, but missing entries are drawn from their predictive
            distributions instead of their expected or most probable value. Entries of a
            row are drawn together, with the correlations of the mixture. Analyze every
            table and combine the results by `ncarl.tables.pool`.
        """
        count = check_integer("n_draws", n_draws, low=1)
        seed = check_integer("random_state", random_state, low=0)
        table, data = self._read_rows(X)
        predictions = self._predict(table, data)
        empty = empty_rows(table.n_rows, data)
        rng = np.random.default_rng(seed)
        tables = []
        for d in range(count):
            drawn: dict[int, Array] = {}
            if models := self.table_models_:
                one = models[d % len(models)]
                drawn = one.sample(table.n_rows, data, predictions, d, rng)
            imputed = {}
            for j, values in self._columns_to_impute(data):
                encoder = self.columns_[j].encoder
                if isinstance(encoder, CategoryEncoder):
                    imputed[j] = self._labels(encoder, drawn.get(j), values)
                else:
                    imputed[j] = self._numbers(j, drawn.get(j), values)
            tables.append(self._fill_table(table, data, imputed, empty))
        return tables

    def _columns_to_impute(
        self, data: Sequence[ColumnData | None]
    ) -> Iterator[tuple[int, ColumnData]]:
        for j, values in enumerate(data):
            if values is not None and values.missing.any():
                yield j, values

    def _labels(
        self, encoder: CategoryEncoder, positions: Array | None, values: ColumnData
    ) -> Array:
        """Imputed labels of a column; None stands for a constant column."""
        labels = np.empty(len(encoder.labels), dtype=object)
        labels[:] = encoder.labels
        if positions is None:
            return labels[np.zeros(int(values.missing.sum()), dtype=np.int64)]
        # Cells with a new category are predicted too, but are not missing.
        lacks = encoder.label_positions(values) < 0
        return labels[positions[values.missing[lacks]]]

    def _numbers(self, j: int, standardized: Array | None, values: ColumnData) -> Array:
        """Imputed numbers of a column; None stands for a constant column."""
        encoder = self.columns_[j].encoder
        assert isinstance(encoder, NumberEncoder)
        if standardized is None:
            numbers = np.full(int(values.missing.sum()), encoder.low)
        else:
            numbers = encoder.restore(standardized)
        return self._clip_and_round(j, encoder, numbers)

    def _fill_table(
        self, table: TableAdapter, data: Sequence[ColumnData | None],
        imputed: Mapping[int, Array], empty: Array,
    ) -> Any:  # fmt: skip
        columns: dict[Any, Any] = {}
        for j, column in enumerate(self.columns_):
            if self._is_dropped(column):
                continue
            columns[table.names[j]] = None
            if j in imputed:
                dtype = column.dtype if column.library == table.library else None
                filled = table.fill_column(j, imputed[j], column.kind, dtype)
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
        table, data = self._read_rows(X)
        predictions = self._predict(table, data)
        low, high = {}, {}
        empty = empty_rows(table.n_rows, data)
        for j, (column, values) in enumerate(zip(self.columns_, data, strict=True)):
            encoder, name = column.encoder, table.names[j]
            if values is None or not isinstance(encoder, NumberEncoder):
                continue
            missing = values.missing
            low[name], high[name] = values.values.copy(), values.values.copy()
            if j not in predictions.numbers:
                ends = self._numbers(j, None, values)
                low[name][missing] = high[name][missing] = ends
            else:
                down, up = np.mean(
                    [
                        model.numbers[j].scores.quantiles(coverage)
                        for model in self.table_models_
                    ],
                    axis=0,
                )
                mean, std = predictions.numbers[j]
                low[name][missing] = self._numbers(j, mean - down * std, values)
                high[name][missing] = self._numbers(j, mean + up * std, values)
            low[name][missing & empty] = high[name][missing & empty] = np.nan
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
        table, data = self._read_rows(X)
        predictions = self._predict(table, data)
        frames = {}
        for j, (column, values) in enumerate(zip(self.columns_, data, strict=True)):
            encoder = column.encoder
            if values is None or not isinstance(encoder, CategoryEncoder):
                continue
            probabilities = np.zeros((table.n_rows, len(encoder.labels)))
            positions = encoder.label_positions(values)
            if encoder.n_coordinates == 0:
                probabilities[values.missing] = 1.0
            else:
                lacks = positions < 0
                probabilities[lacks] = predictions.probabilities[j]
                probabilities[lacks & ~values.missing] = 0.0
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

    def _read_rows(self, X: Any) -> tuple[TableAdapter, list[ColumnData | None]]:
        """``X`` as a table, and the data of its used columns."""
        check_is_fitted(self)
        self._check_delta()
        table = self._validate_table(X, reset=False)
        if unknown := [name for name in self.delta or () if name not in table.names]:
            raise ValueError(
                "delta names columns that X does not have: "
                f"{join_names(unknown, form=repr)}"
            )
        others = [
            column.name
            for column in self.columns_
            if column.name in (self.delta or ())
            and not isinstance(column.encoder, NumberEncoder)
        ]
        if others:
            raise ValueError(
                f"delta shifts imputed numbers, and {join_names(others, form=repr)} "
                "does not hold numbers that are imputed"
            )
        data = [
            None if column.encoder is None else read_column_as(table, j, column.kind)
            for j, column in enumerate(self.columns_)
        ]
        return table, data

    def _predict(
        self, table: TableAdapter, data: Sequence[ColumnData | None]
    ) -> TablePredictions:
        return mean_predictions(
            [
                model.predict(table.n_rows, data, self.n_jobs)
                for model in self.table_models_
            ]
        )

    def _clip_and_round(self, j: int, encoder: NumberEncoder, values: Array) -> Array:
        if self.clip or encoder.exponent is not None:
            values = np.clip(values, encoder.low, encoder.high)
        values = values + (self.delta or {}).get(self.columns_[j].name, 0.0)
        return np.rint(values) if j in self._integer_columns else values

    def _is_dropped(self, column: ColumnSchema) -> bool:
        return not self.keep_empty_features and column.role == "empty"

    def _indicator_features(self) -> list[int]:
        return [] if self.indicator_ is None else self.indicator_.features_.tolist()


def empty_rows(n_rows: int, data: Sequence[ColumnData | None]) -> Array:
    """Which rows have no observed value in the columns that the model uses."""
    used = [values.missing for values in data if values is not None]
    return np.logical_and.reduce(used, axis=0) if used else np.zeros(n_rows, dtype=bool)


def _targets(cell: Target, data: ColumnData | None) -> Array:
    """Standardized numbers or positions of categories, NaN where missing."""
    assert data is not None
    if isinstance(cell.encoder, NumberEncoder):
        return cell.encoder.standardize(data.values)
    positions = cell.encoder.label_positions(data)
    return np.where(positions < 0, np.nan, positions)


def _pooled_distribution(
    model: BayesianNCARL, Z: Array, pseudo_rows: float, order: Array
) -> GaussianMixture:
    """The joint normal distribution of a fitted model, noise included.

    Coordinates get another order.
    """
    n = Z.shape[1]
    mean = model.predict(np.full((1, n), np.nan))[0]
    covariance = model.kernel_ + np.diag(np.broadcast_to(model.noise_, n) ** 2)
    covariance = covariance[np.ix_(order, order)]
    return GaussianMixture.single(mean[order], covariance, pseudo_rows)
