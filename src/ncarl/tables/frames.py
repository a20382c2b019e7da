"""Tables of pandas, polars and NumPy behind one interface: read columns, impute them.

`validate_table` makes a `TableAdapter` of the input of an estimator; the adapters read
columns as `ColumnData` and write imputed ones back in a type of their library.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Protocol

import numpy as np
from sklearn import get_config
from sklearn.utils.validation import validate_data

from ncarl.containers import check_dtype_kind, clip_to_float_range, validate_array
from ncarl.core.types import Array
from ncarl.estimators.validation import MissingMarker
from ncarl.io.base import dense_values, is_frame, is_pandas, is_polars
from ncarl.text import MAX_LISTED, join_names, quote

#: Kinds of columns and their names in messages. "empty" are columns of a null type,
#: "other" are dates, lists and mixtures, which cannot be imputed.
KIND_NAMES = {
    "number": "numbers",
    "integer": "whole numbers",
    "boolean": "booleans",
    "category": "categories",
    "empty": "nothing",
    "other": "neither numbers, booleans nor text",
}
NUMERIC_KINDS = ("number", "integer")
OBJECT_DTYPE = np.dtype(object)
#: Kinds of pandas' object columns, by what ``pandas.api.types.infer_dtype`` says.
OBJECT_KINDS = {
    "string": "category",
    "empty": "empty",
    "boolean": "boolean",
    "integer": "integer",
    "floating": "number",
    "mixed-integer-float": "number",
    "decimal": "number",
}


def _equals_marker(value: Any, marker: MissingMarker) -> bool:
    """Whether a cell equals the marker; text equals only text, numbers only numbers."""
    if isinstance(marker, str):
        return isinstance(value, str) and value == marker
    number = isinstance(value, int | float | Decimal | np.integer | np.floating)
    return number and not isinstance(value, bool) and bool(value == marker)


@dataclass(frozen=True)
class ColumnData:
    """Values of one column of a table."""

    name: Any
    kind: str  # one of `KIND_NAMES`
    values: Array  # floats, NaN where missing; labels of categories, None where missing
    missing: Array  # bool, shape (m,)
    dtype: Any  # type of the column in its library
    categories: tuple[Hashable, ...] | None = None  # declared by the type, in order
    ordered: bool = False  # whether the type says that their order means something

    @property
    def observed_values(self) -> Array:
        """The values that are not missing."""
        return self.values[~self.missing]

    @property
    def display_name(self) -> str:
        """The column as messages name it."""
        return f"column {quote(self.name)}"


class TableAdapter(Protocol):
    """A table of some library, with columns by position."""

    library: str
    names: list[Any]
    n_rows: int

    def read_column(self, j: int, as_labels: bool = False) -> ColumnData:
        """Column ``j``, as a category if ``as_labels``."""

    def fill_column(
        self, j: int, fill_values: Array, kind: str, fitted_dtype: Any
    ) -> Any:
        """Column ``j`` with its missing entries imputed, in a type that holds them.

        ``fitted_dtype`` is the type of the column in fit, None if that was one of
        another library.
        """

    def restore_rows(self, j: int, filled: Any, rows: Array) -> Any:
        """The imputed column ``j`` with some of its rows missing again."""

    def assemble(self, columns: dict[Any, Any], indicators: dict[Any, Array]) -> Any:
        """Frame of ``columns`` (None: unchanged) followed by indicator columns."""

    def make_float_frame(self, columns: dict[Any, Array]) -> Any:
        """Frame of float columns with the rows of this table."""


def validate_table(
    estimator: Any, X: Any, *, reset: bool, missing_values: MissingMarker = None
) -> TableAdapter:
    """Validate ``X`` and wrap it; columns of a frame get the order of the fit.

    ``reset`` sets the feature names and count of the estimator, else they are checked.
    """
    if is_frame(X):
        _check_frame(X)
        if reset:
            estimator.frame_names_ = list(X.columns)
        else:
            X = _align_columns(estimator, X)
        validate_data(estimator, X, reset=reset, skip_check_array=True)
        adapter = _PolarsAdapter if is_polars(X) else _PandasAdapter
        return adapter(X, missing_values)
    fitted = () if reset else estimator.columns_
    if categories := [column.name for column in fitted if column.kind == "category"]:
        raise ValueError(
            f"X must be a frame: columns {join_names(categories, form=repr)} held "
            "categories in fit, and an array holds numbers only"
        )
    if isinstance(X, np.ma.MaskedArray):
        X = dense_values(X)
    if isinstance(missing_values, str):
        X = _text_marker_to_nan(X, missing_values)
    _check_no_text(X)
    check_dtype_kind(X)
    values = validate_array(estimator, X, reset=reset)
    if reset:
        estimator.frame_names_ = None
    return _ArrayAdapter(values, missing_values)


def _check_frame(frame: Any) -> None:
    names = list(frame.columns)
    if 0 in frame.shape:
        what = "sample(s)" if names else "feature(s)"
        raise ValueError(
            f"Found array with 0 {what} (shape={frame.shape}) while a minimum of 1 is "
            "required."
        )
    duplicates = sorted({str(name) for name in names if names.count(name) > 1})
    if duplicates:
        raise ValueError(
            "columns of X must have different names, got "
            f"{join_names(duplicates, MAX_LISTED)} more than once; rename them"
        )


def _text_marker_to_nan(X: Any, marker: str) -> Any:
    cells = np.asarray(X, dtype=object) if isinstance(X, list | tuple) else X
    if not isinstance(cells, np.ndarray) or cells.dtype.kind not in "OU":
        return X
    marked = np.vectorize(_equals_marker, otypes=[bool])(cells, marker)
    return np.where(marked, np.nan, cells.astype(object))


def _check_no_text(X: Any) -> None:
    if not isinstance(X, np.ndarray) or X.dtype.kind not in "OU" or X.ndim != 2:
        return
    for (i, j), cell in np.ndenumerate(X):
        try:
            float(cell if isinstance(cell, str) else 0)
        except ValueError:
            raise ValueError(
                "X must be a frame of pandas or polars where columns hold text, got "
                f"an array with {str(cell)!r} in row {i}, column {j}; "
                "pandas.DataFrame(X).infer_objects() makes one of it"
            ) from None


def _align_columns(estimator: Any, frame: Any) -> Any:
    """Put the columns of a frame with the names of the fit in their order."""
    names, given = estimator.frame_names_, list(frame.columns)
    if names is None or given == names:
        return frame
    if set(given) == set(names):
        order = [given.index(name) for name in names]
        return frame[:, order] if is_polars(frame) else frame.iloc[:, order]
    if not hasattr(estimator, "feature_names_in_") and len(names) == len(given):
        # scikit-learn compares only names that are strings.
        unexpected = [name for name in given if name not in names]
        raise ValueError(
            f"columns of X must be those of fit, {names[:8]}, got "
            f"{unexpected[:8]} among them; rename them"
        )
    return frame


def apply_output_config(estimator: Any, frame: Any) -> Any:
    """Convert ``frame`` to the library that ``set_output`` asks for."""
    own = getattr(estimator, "_sklearn_output_config", {}).get("transform")
    wanted = own or get_config()["transform_output"]
    if wanted == "pandas" and is_polars(frame):
        return frame.to_pandas()
    if wanted == "polars" and is_pandas(frame):
        import polars as pl

        types = frame.dtypes.items()
        dense = {name: t.subtype for name, t in types if str(t).startswith("Sparse")}
        return pl.from_pandas(frame.astype(dense))
    return frame


def read_column_as(table: TableAdapter, j: int, kind: str) -> ColumnData:
    """Column ``j`` as the kind that it had in fit; an error if its values are not."""
    data = table.read_column(j, as_labels=kind == "category")
    if data.missing.all():
        empty = None if kind == "category" else np.nan
        return replace(data, kind=kind, values=np.full(len(data.missing), empty))
    check_finite(data)
    fits = data.kind == kind
    if data.kind in NUMERIC_KINDS and kind == "boolean":
        fits = bool(np.isin(data.observed_values, (0.0, 1.0)).all())
    if fits or (data.kind in NUMERIC_KINDS and kind in NUMERIC_KINDS):
        return replace(data, kind=kind)
    raise ValueError(
        f"{data.display_name} held {KIND_NAMES[kind]} in fit and holds "
        f"{KIND_NAMES[data.kind]} ({data.dtype}) here; convert it to the type of the "
        "fit"
    )


def check_finite(data: ColumnData) -> None:
    """Raise if a number is infinite."""
    if data.kind in NUMERIC_KINDS and np.isinf(data.observed_values).any():
        raise ValueError(
            "X contains infinity or a value too large for float64: "
            f"{data.display_name} must hold finite numbers; put NaN (missing) in their "
            "place"
        )


def _convert(values: Array, dtype: np.dtype[Any]) -> list[Any]:
    """Imputed values as what a column of a type like ``dtype`` accepts."""
    if dtype.kind == "f":
        floats = np.asarray(values, dtype=np.float64)
        return list(clip_to_float_range(floats, dtype).tolist())
    if dtype.kind in "iu":
        low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
        # Integers keep all their digits.
        whole = (x if isinstance(x, int | np.integer) else np.rint(x) for x in values)
        return [min(max(int(x), low), high) for x in whole]
    return [bool(x) for x in values] if dtype.kind == "b" else list(values)


def all_integers(values: Array) -> bool:
    """Whether all numbers are integers."""
    return bool(np.all(values == np.rint(values)))


class _ArrayAdapter:
    library = "numpy"

    def __init__(self, values: Array, missing_values: MissingMarker) -> None:
        self.values = values
        self.missing = np.isnan(values)
        if isinstance(missing_values, int | float):
            self.missing |= values == missing_values
        self.names: list[Any] = [f"x{j}" for j in range(values.shape[1])]
        self.n_rows = len(values)

    def read_column(self, j: int, as_labels: bool = False) -> ColumnData:
        missing, dtype = self.missing[:, j], self.values.dtype
        values = np.where(missing, np.nan, self.values[:, j].astype(np.float64))
        return ColumnData(self.names[j], "number", values, missing, dtype)

    def fill_column(
        self, j: int, fill_values: Array, kind: str, fitted_dtype: Any
    ) -> Array:
        filled = self.values[:, j].copy()
        filled[self.missing[:, j]] = _convert(fill_values, filled.dtype)
        return filled

    def restore_rows(self, j: int, filled: Array, rows: Array) -> Array:
        return np.where(rows, self.values[:, j], filled)

    def assemble(self, columns: dict[Any, Any], indicators: dict[Any, Array]) -> Array:
        parts = [
            self.values[:, self.names.index(name)] if column is None else column
            for name, column in columns.items()
        ]
        parts += [flag.astype(self.values.dtype) for flag in indicators.values()]
        empty = np.empty((self.n_rows, 0), dtype=self.values.dtype)
        return np.column_stack([empty, *parts])

    def make_float_frame(self, columns: dict[Any, Array]) -> Array:
        return np.column_stack([np.empty((self.n_rows, 0)), *columns.values()])


class _FrameAdapter:
    def __init__(self, frame: Any, missing_values: MissingMarker) -> None:
        self.frame, self.missing_values = frame, missing_values
        self.names: list[Any] = list(frame.columns)
        self.n_rows = len(frame)


class _PandasAdapter(_FrameAdapter):
    library = "pandas"

    def _series(self, j: int) -> tuple[Any, Array]:
        """Column ``j``, dense, and where it is missing.

        Markers in a column of objects become None, so that they do not count when its
        kind is inferred.
        """
        import pandas as pd

        series = self.frame.iloc[:, j]
        if isinstance(series.dtype, pd.SparseDtype):
            series = series.sparse.to_dense()
        missing: Array = series.isna().to_numpy(dtype=bool)
        if pd.api.types.is_float_dtype(series.dtype):
            # To pandas NaN in a nullable or Arrow column is a value.
            missing = np.isnan(series.to_numpy(dtype=np.float64, na_value=np.nan))
        if self.missing_values is None:
            return series, missing
        marked = _pandas_marked(series, self.missing_values)
        if marked.any() and series.dtype == OBJECT_DTYPE:
            values = series.to_numpy(dtype=object, copy=True)
            values[marked] = None
            series = pd.Series(values, index=series.index, dtype=object)
        return series, missing | marked

    def read_column(self, j: int, as_labels: bool = False) -> ColumnData:
        series, missing = self._series(j)
        kind = _pandas_kind(series)
        if as_labels and kind in (*NUMERIC_KINDS, "boolean"):
            kind = "category"
        declared = getattr(series.dtype, "categories", None)
        if kind == "category":
            values = series.astype(object).to_numpy(dtype=object, copy=True)
            values[missing] = None
        elif kind in ("empty", "other"):
            values = np.full(len(series), np.nan)
        else:
            boxed = series.dtype == OBJECT_DTYPE and kind == "boolean"
            plain = series.astype("boolean") if boxed else series
            floats = plain.to_numpy(dtype=np.float64, na_value=np.nan)
            values = np.where(missing, np.nan, floats)
        declared = None if declared is None else tuple(declared)
        ordered = bool(getattr(series.dtype, "ordered", False))
        return ColumnData(
            self.names[j], kind, values, missing, series.dtype, declared, ordered
        )

    def fill_column(
        self, j: int, fill_values: Array, kind: str, fitted_dtype: Any
    ) -> Any:
        import pandas as pd

        series, missing = self._series(j)
        empty = bool(missing.all())
        dtype = _pandas_fill_dtype(series, fill_values, kind, fitted_dtype, empty)
        if kind == "integer" and not all_integers(fill_values):
            dtype = _matching_float_dtype(dtype)
        if dtype == series.dtype:
            if _infer_object_type(series) == "decimal":
                fill_values = _to_decimals(fill_values, series[~missing])
            filled = series.array.copy()
            values = _convert(fill_values, _pandas_numpy_dtype(dtype))
            filled[missing] = pd.array(values, dtype=dtype)
        else:
            boxed = series.astype(object).to_numpy(dtype=object, copy=True)
            boxed[missing] = fill_values
            filled = _convert(boxed, _pandas_numpy_dtype(dtype))
        return pd.Series(filled, index=series.index, dtype=dtype)

    def restore_rows(self, j: int, filled: Any, rows: Array) -> Any:
        column = self.frame.iloc[:, j]
        # A marker such as -999 stays in a column whose type has no missing value.
        other = (column,) if column.dtype == filled.dtype else ()
        return filled.where(~rows, *other) if rows.any() else filled

    def assemble(self, columns: dict[Any, Any], indicators: dict[Any, Array]) -> Any:
        out = self.frame.iloc[:, [self.names.index(name) for name in columns]].copy()
        for position, column in enumerate(columns.values()):
            if column is not None:
                out.isetitem(position, column)
        for name, flag in indicators.items():
            out[name] = flag
        return out

    def make_float_frame(self, columns: dict[Any, Array]) -> Any:
        import pandas as pd

        return pd.DataFrame(columns, index=self.frame.index)


def _pandas_marked(series: Any, marker: MissingMarker) -> Array:
    """Where the entries of a column equal the marker."""
    import pandas as pd

    dtype, text = series.dtype, isinstance(marker, str)
    objects = dtype == OBJECT_DTYPE or isinstance(dtype, pd.CategoricalDtype)
    if objects or (text and pd.api.types.is_string_dtype(dtype)):
        cells = series.astype(object)
        return np.array([_equals_marker(cell, marker) for cell in cells], dtype=bool)
    if not text and _pandas_kind(series) in NUMERIC_KINDS:
        return (series == marker).to_numpy(dtype=bool, na_value=False)
    return np.zeros(len(series), dtype=bool)


def _pandas_kind(series: Any) -> str:
    """Kind of a pandas column, one of `KIND_NAMES`."""
    import pandas as pd

    dtype, types = series.dtype, pd.api.types
    if isinstance(dtype, pd.CategoricalDtype):
        return "category"
    if dtype == OBJECT_DTYPE:
        return OBJECT_KINDS.get(_infer_object_type(series), "other")
    if types.is_bool_dtype(dtype):
        return "boolean"
    if types.is_integer_dtype(dtype):
        return "integer"
    if types.is_float_dtype(dtype) or str(dtype).startswith("decimal"):
        return "number"
    if str(dtype) == "null[pyarrow]":
        return "empty"
    return "category" if types.is_string_dtype(dtype) else "other"


def _infer_object_type(series: Any) -> str:
    """What pandas infers of a column of objects; "" for other columns."""
    import pandas as pd

    is_object = series.dtype == OBJECT_DTYPE
    return str(pd.api.types.infer_dtype(series, skipna=True)) if is_object else ""


def _to_decimals(fill_values: Array, observed: Any) -> Array:
    """Numbers as decimals, with as many places as the longest observed one has."""
    exponents = (value.as_tuple().exponent for value in observed if value.is_finite())
    places = max(0, -min(exponents, default=0))
    values = np.empty(len(fill_values), dtype=object)
    values[:] = [Decimal(f"{x:.{places}f}") for x in fill_values]
    return values


def _pandas_fill_dtype(
    series: Any, fill_values: Array, kind: str, fitted_dtype: Any, all_missing: bool
) -> Any:
    """Type of the imputed column: its own, else that of the fit, else a wider one."""
    if kind == "category":
        return _pandas_label_dtype(series, fill_values, fitted_dtype, all_missing)
    own_kind = _pandas_kind(series)
    own_object = series.dtype == OBJECT_DTYPE
    if fitted_dtype is not None and (own_object or (all_missing and own_kind != kind)):
        return fitted_dtype
    if all_missing and own_kind in ("category", "other", "empty"):
        import pandas as pd

        plain = {"boolean": pd.BooleanDtype(), "integer": pd.Int64Dtype()}
        return plain.get(kind, np.dtype(np.float64))
    return series.dtype


def _pandas_label_dtype(
    series: Any, fill_values: Array, fitted_dtype: Any, all_missing: bool
) -> Any:
    """Type of an imputed column of labels; categories are added if necessary."""
    import pandas as pd

    dtype = series.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        if not all_missing and pd.Index(fill_values).isin(dtype.categories).all():
            return dtype
        fitted = isinstance(fitted_dtype, pd.CategoricalDtype)
        if fitted and dtype.categories.isin(fitted_dtype.categories).all():
            return fitted_dtype
        wider = list(dict.fromkeys([*dtype.categories, *fill_values]))
        return pd.CategoricalDtype(wider, ordered=dtype.ordered)
    if all_missing:
        return OBJECT_DTYPE if fitted_dtype is None else fitted_dtype
    if _pandas_kind(series) == "category":
        return dtype
    # Numbers here, but categories in fit.
    both = pd.Index([*series.dropna().unique(), *fill_values])
    fitted = isinstance(fitted_dtype, pd.CategoricalDtype)
    known = fitted and both.isin(fitted_dtype.categories).all()
    return fitted_dtype if known else OBJECT_DTYPE


def _matching_float_dtype(dtype: Any) -> Any:
    import pandas as pd

    text = str(dtype)
    if text.endswith("[pyarrow]"):
        import pyarrow as pa

        return pd.ArrowDtype(pa.float64())
    if text.startswith(("Int", "UInt")):
        return pd.Float64Dtype()
    return np.dtype(np.float64) if dtype.kind in "iu" else dtype


def _pandas_numpy_dtype(dtype: Any) -> np.dtype[Any]:
    kind = getattr(dtype, "kind", "O")
    return np.dtype(f"{kind}{dtype.itemsize}") if kind in "biuf" else OBJECT_DTYPE


class _PolarsAdapter(_FrameAdapter):
    library = "polars"

    def read_column(self, j: int, as_labels: bool = False) -> ColumnData:
        series = self.frame.to_series(j)
        dtype, kind = series.dtype, _polars_kind(series.dtype)
        missing = _polars_missing(series, self.missing_values)
        if as_labels and kind in (*NUMERIC_KINDS, "boolean"):
            kind = "category"
        if kind == "category":
            values = np.empty(len(series), dtype=object)
            values[:] = _polars_labels(series)
            values[missing] = None
        elif kind in ("empty", "other"):
            values = np.full(len(series), np.nan)
        else:
            floats = series.cast(float).fill_null(float("nan"))
            values = np.where(missing, np.nan, floats.to_numpy().astype(np.float64))
        return ColumnData(
            self.names[j], kind, values, missing, dtype, _enum_categories(dtype)
        )

    def fill_column(
        self, j: int, fill_values: Array, kind: str, fitted_dtype: Any
    ) -> Any:
        import polars as pl

        series = self.frame.to_series(j)
        missing = _polars_missing(series, self.missing_values)
        empty = bool(missing.all())
        dtype = _polars_fill_dtype(series, fill_values, kind, fitted_dtype, empty)
        if empty:
            series = pl.Series(series.name, [None] * len(series), dtype=dtype)
        elif dtype != series.dtype:
            is_label = _polars_kind(dtype) == "category"
            series = (series.cast(pl.String) if is_label else series).cast(dtype)
        filled = iter(_convert(fill_values, _polars_numpy_dtype(dtype)))
        cells = [next(filled) if is_missing else None for is_missing in missing]
        other = pl.Series(series.name, cells, dtype=dtype, strict=False)
        return series.zip_with(pl.Series(~missing), other)

    def restore_rows(self, j: int, filled: Any, rows: Array) -> Any:
        import polars as pl

        own = self.frame.to_series(j).cast(filled.dtype, strict=False)
        return filled.zip_with(pl.Series(~rows), own) if rows.any() else filled

    def assemble(self, columns: dict[Any, Any], indicators: dict[Any, Array]) -> Any:
        import polars as pl

        out = self.frame.select(list(columns))
        filled = [column for column in columns.values() if column is not None]
        flags = [pl.Series(name, flag) for name, flag in indicators.items()]
        return out.with_columns([*filled, *flags])

    def make_float_frame(self, columns: dict[Any, Array]) -> Any:
        import polars as pl

        return pl.DataFrame({str(name): values for name, values in columns.items()})


def _polars_missing(series: Any, marker: MissingMarker) -> Array:
    """Where a column has null, NaN or the marker."""
    missing = series.is_null()
    if series.dtype.is_float():
        missing = missing | series.is_nan().fill_null(value=True)
    mask: Array = missing.to_numpy().astype(bool)
    kind = _polars_kind(series.dtype)
    if isinstance(marker, str) and kind == "category":
        mask |= np.array([label == marker for label in _polars_labels(series)])
    elif isinstance(marker, int | float) and kind in NUMERIC_KINDS:
        mask |= np.asarray(series.fill_null(0).to_numpy() == marker, dtype=bool)
    return mask


def _polars_kind(dtype: Any) -> str:
    """Kind of a polars column of this type, one of `KIND_NAMES`."""
    name = str(dtype.base_type())
    if name in ("Categorical", "Enum", "String"):
        return "category"
    if name == "Boolean":
        return "boolean"
    if name == "Null":
        return "empty"
    if dtype.is_integer():
        return "integer"
    return "number" if dtype.is_numeric() else "other"


def _polars_labels(series: Any) -> Any:
    """Values of a column as labels; those of text and categories as text."""
    text = _polars_kind(series.dtype) == "category"
    return (series.cast(str) if text else series).to_list()


def _enum_categories(dtype: Any) -> tuple[str, ...] | None:
    """Labels of an Enum, None for other types."""
    is_enum = str(dtype.base_type()) == "Enum"
    return tuple(dtype.categories.to_list()) if is_enum else None


def _polars_fill_dtype(
    series: Any, fill_values: Array, kind: str, fitted_dtype: Any, all_missing: bool
) -> Any:
    """Type of the imputed column: its own, else that of the fit, else a wider one."""
    import polars as pl

    dtype, own_kind = series.dtype, _polars_kind(series.dtype)
    if kind == "category":
        return _polars_label_dtype(dtype, fill_values, fitted_dtype, all_missing)
    if kind == "integer" and not all_integers(fill_values):
        return dtype if own_kind == "number" else pl.Float64
    numeric = own_kind in ("number", "integer", "boolean")
    if numeric and (own_kind == kind or not all_missing):
        return dtype
    plain = {"boolean": pl.Boolean, "integer": pl.Int64}.get(kind, pl.Float64)
    return plain if fitted_dtype is None else fitted_dtype


def _polars_label_dtype(
    dtype: Any, fill_values: Array, fitted_dtype: Any, all_missing: bool
) -> Any:
    """Type of an imputed column of labels; those of an Enum are added if necessary."""
    import polars as pl

    if _polars_kind(dtype) != "category":
        return fitted_dtype if all_missing and fitted_dtype is not None else pl.String
    declared = _enum_categories(dtype)
    if declared is None or set(fill_values) <= set(declared):
        return dtype
    fitted = None if fitted_dtype is None else _enum_categories(fitted_dtype)
    if fitted is not None and set(declared) <= set(fitted):
        return fitted_dtype
    return pl.Enum(list(dict.fromkeys([*declared, *fill_values])))


def _polars_numpy_dtype(dtype: Any) -> np.dtype[Any]:
    kind, name = _polars_kind(dtype), str(dtype).lower()
    if kind == "integer":
        return np.dtype(name if name in np.sctypeDict else np.int64)
    if kind == "number":
        return np.dtype(np.float32 if name == "float32" else np.float64)
    return np.dtype(bool) if kind == "boolean" else OBJECT_DTYPE
