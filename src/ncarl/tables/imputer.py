"""The imputer of tables."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from ncarl.core.types import Array
from ncarl.engines import Engine
from ncarl.estimators.parameters import check_number
from ncarl.tables.checks import checked_rules, checked_ways
from ncarl.tables.coding import CategoryCode
from ncarl.tables.filling import Filler, fit_filler
from ncarl.tables.given import Given, Table
from ncarl.tables.opening import as_asked, open_table
from ncarl.tables.schema import (
    Column,
    coordinates,
    fit_columns,
    read_columns,
)

#: What scikit-learn calls columns that say where there were gaps.
FLAG = "missingindicator_"


class TableImputer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """A table with its gaps filled: numbers, yes/no and categories, types kept.

    For frames of pandas and polars, and for arrays of numbers, in scikit-learn's
    pipelines. How columns go together is learned once; ``transform`` fills any rows
    with the same columns. Numbers are filled with what is to be expected, categories
    and yes/no with what is most probable. What is known is never touched.

    Parameters
    ----------
    normalise : {"auto", None, "power", "quantile"}, default="auto"
        Which columns of numbers are made symmetric while the model works on them:
        the skewed ones, by a power; none; all, by a power or by their ranks.
    add_indicator : bool, default=False
        Add a column that says where the gap was for every column that had some in
        fit, as scikit-learn's imputers do.
    rounding : {"integers", "whole", None}, default="integers"
        Which columns are filled with whole numbers: those of a type of whole numbers,
        which they keep; also those of floats that only held whole numbers; none
        (columns of whole numbers come back as floats).
    clip : bool, default=True
        Fill with numbers between the least and the largest of the column in fit only.
        Columns that are made symmetric always are.
    max_categories : int, default=30
        Columns of text or categories with more different values are taken for names
        or free text: handed through with their gaps, and a warning says so.
    ignore : sequence of column names, default=()
        Columns to hand through as they are, such as identifiers or dates.
    empty : {"leave", "drop"}, default="leave"
        What becomes of columns without any value in fit: nothing can be learned of
        them.
    prior_rows : "auto" or float, default="auto"
        How many rows without any correlation are thought to be there besides, which
        shrinks correlations that chance explains. "auto" is one for each coordinate of
        the model.
    max_iter : int, default=300
        Most steps of the fit.
    tol : float, default=1e-4
        The fit ends once a step raises the log evidence by less than this for every
        known value.
    engine : {"auto", "threads", "torch", "dask"} or Engine, default="auto"
        Where the work is done; see `BayesianNCARL`. "auto" leaves small tables to
        the processor.

    Attributes
    ----------
    columns_ : list
        What is known of each column: its kind, role and code.
    model_ : BayesianNCARL or None
        The model of the coordinates: one for a column of numbers, one for yes/no, one
        less than its categories for a column of these. None if no column varies.
    indicator_features_ : list of int
        Positions of the columns that ``add_indicator`` is about.
    n_iter_ : int
        Steps that the fit made.
    n_features_in_, feature_names_in_
        As in all of scikit-learn.

    See Also
    --------
    ncarl.BayesianNCARL : the model underneath, for matrices of one kind of number.

    Notes
    -----
    Rows are taken as draws of one normal distribution of all coordinates, learned by
    EM from what is known. Gaps should be like what is known: a value that is missing
    because it is large is filled as if it were not.

    Columns are matched by name; more, fewer or other ones than in fit are an error. A
    category that was not there in fit is kept where it stands and taken as unknown when
    other columns of its row are filled.

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

    columns_: list[Column]

    def __init__(
        self,
        normalise: str | None = "auto",
        add_indicator: bool = False,
        rounding: str | None = "integers",
        clip: bool = True,
        max_categories: int = 30,
        ignore: Sequence[Any] = (),
        empty: str = "leave",
        prior_rows: str | float = "auto",
        max_iter: int = 300,
        tol: float = 1e-4,
        engine: str | Engine = "auto",
    ) -> None:
        self.normalise = normalise
        self.add_indicator = add_indicator
        self.rounding = rounding
        self.clip = clip
        self.max_categories = max_categories
        self.ignore = ignore
        self.empty = empty
        self.prior_rows = prior_rows
        self.max_iter = max_iter
        self.tol = tol
        self.engine = engine

    def __sklearn_tags__(self) -> Any:
        """Gaps and categories are welcome; float32 stays float32."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn how the columns of a table go together.

        Parameters
        ----------
        X : frame of pandas or polars, or array of numbers
            A table with gaps: NaN, None, NaT, null.
        y : ignored
            For scikit-learn's interface.
        """
        rules, ways = checked_rules(self), checked_ways(self)
        table = open_table(self, X, reset=True)
        self.columns_ = fit_columns(table, rules)
        self.indicator_features_ = [j for j, c in enumerate(self.columns_) if c.gaps]
        given = read_columns(table, self.columns_)
        Z = coordinates(table, self.columns_, given)
        self.filler_: Filler = fit_filler(self.columns_, given, Z, ways)
        self.model_ = self.filler_.model
        self.n_iter_ = 0 if self.model_ is None else self.model_.n_iter_
        if self.model_ is not None and not self.model_.converged_ and self.tol > 0.0:
            warnings.warn(
                f"TableImputer did not settle in max_iter={self.max_iter} steps; raise "
                "max_iter or tol, or set tol=0 to make a fixed number of steps",
                ConvergenceWarning,
                stacklevel=2,
            )
        return self

    def transform(self, X: Any) -> Any:
        """Fill the gaps of a table with the columns of the fit.

        Parameters
        ----------
        X : frame or array
            The table of the fit, or other rows.

        Returns
        -------
        frame or array
            As ``X``, filled; columns keep their types where these can hold what is
            filled in.
        """
        check_is_fitted(self)
        table, given, Z = self._read(X)
        new = self.filler_.fill(self.columns_, given, Z)
        parts: dict[Any, Any] = {}
        for j, (name, column) in enumerate(
            zip(table.names, self.columns_, strict=True)
        ):
            if self._dropped(column):
                continue
            parts[name] = None
            if (filled := new[j]) is not None:
                usual = column.usual(table)
                parts[name] = table.column(j, filled, column.kind, usual)
        flags = {}
        if self.add_indicator:
            for j in self.indicator_features_:
                flag = f"{FLAG}{table.names[j]}"
                if flag in table.names:
                    raise ValueError(
                        f"add_indicator would replace your column {flag!r}; rename it, "
                        "or set add_indicator=False"
                    )
                flags[flag] = table.given(j).gaps
        return as_asked(self, table.assembled(parts, flags))

    def predict_interval(self, X: Any, level: float = 0.9) -> tuple[Any, Any]:
        """Lower and upper ends of intervals for the numbers of a table.

        Parameters
        ----------
        X : frame or array
            The table of the fit, or other rows.
        level : float
            Part of the gaps whose value is to lie within, between 0 and 1.

        Returns
        -------
        low, high : frames or arrays of floats
            The columns of numbers. Where a value is known both ends are that value.
        """
        check_is_fitted(self)
        part = check_number("level", level, low=0.0, strict=True)
        if part >= 1.0:
            raise ValueError(f"level must be below 1, got {level!r}")
        table, given, Z = self._read(X)
        ends = self.filler_.intervals(self.columns_, given, Z, part)
        names = table.names
        low, high = ({names[j]: end[k] for j, end in ends.items()} for k in (0, 1))
        return table.of_numbers(low), table.of_numbers(high)

    def transform_proba(self, X: Any) -> dict[Any, Any]:
        """How probable each category is, for columns of categories and yes/no.

        Parameters
        ----------
        X : frame or array
            The table of the fit, or other rows.

        Returns
        -------
        dict of frames
            By the name of the column: a row for each row of ``X`` and a column for each
            category of the fit, in their order. Where a category is known it has
            probability 1; where it is a new one, all have 0.
        """
        check_is_fitted(self)
        table, given, Z = self._read(X)
        found = self.filler_.probabilities(self.columns_, given, Z)
        frames = {}
        for j, part in found.items():
            code = self.columns_[j].code
            assert isinstance(code, CategoryCode)
            labels = map(str, code.labels) if table.library == "polars" else code.labels
            frames[table.names[j]] = table.of_numbers(
                dict(zip(labels, part.T, strict=True))
            )
        return frames

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Names of the columns that come out.

        Parameters
        ----------
        input_features : sequence of str, optional
            Names of the columns of an array.
        """
        names = super().get_feature_names_out(input_features)
        both = zip(names, self.columns_, strict=True)
        kept = [name for name, column in both if not self._dropped(column)]
        if self.add_indicator:
            kept += [f"{FLAG}{names[j]}" for j in self.indicator_features_]
        return np.array(kept, dtype=object)

    def _read(self, X: Any) -> tuple[Table, list[Given | None], Array]:
        """Rows to be filled: as a table, column by column, and as coordinates."""
        table = open_table(self, X, reset=False)
        given = read_columns(table, self.columns_)
        return table, given, coordinates(table, self.columns_, given)

    def _dropped(self, column: Column) -> bool:
        """Whether a column does not come out."""
        return self.empty == "drop" and column.role == "empty"
