"""Tables of pandas, polars and NumPy behind one interface: read columns, fill them.

`validate_table` makes a `TableAdapter` of the input of an estimator; the adapters read
columns as `ColumnData` and write filled ones back in a type of their library.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Protocol

import numpy as np
from sklearn import get_config
from sklearn.utils.validation import validate_data

from ncarl.containers import clip_to_float_range
from ncarl.core.types import Array
from ncarl.estimators.validation import MissingMarker
from ncarl.io.base import dense_values, is_frame, is_polars

#: Kinds of columns. "empty" are columns of a null type; "other" are dates, lists and
#: mixtures, which cannot be filled.
COLUMN_KINDS = ("number", "integer", "boolean", "category", "empty", "other")
#: Names of the kinds in messages.
KIND_NAMES = {
    "number": "numbers",
    "integer": "whole numbers",
    "boolean": "yes or no",
    "category": "categories",
    "empty": "nothing",
    "other": "neither numbers, yes or no, nor text",
}
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


def equals_marker(value: Any, marker: MissingMarker) -> bool:
    """Whether a cell equals the marker: text equals only text, a number only numbers.

    Examples
    --------
    >>> equals_marker("?", "?"), equals_marker(0.0, 0), equals_marker(False, 0)
    (True, True, False)
    """
    if isinstance(marker, str):
        return isinstance(value, str) and value == marker
    number = isinstance(value, int | float | Decimal | np.integer | np.floating)
    return number and not isinstance(value, bool) and bool(value == marker)


@dataclass(frozen=True)
class ColumnData:
    """Values of one column of a table."""

    name: Any
    kind: str  # one of `COLUMN_KINDS`
    values: Array  # floats, NaN where missing; labels of categories, None where missing
    missing: Array  # bool, shape (m,)
    dtype: Any  # type of the column in its library
    categories: tuple[Hashable, ...] | None = None  # declared by the type, in order

    @property
    def observed_values(self) -> Array:
        """The values that are not missing."""
        return self.values[~self.missing]

    @property
    def display_name(self) -> str:
        """The column as messages name it."""
        return f"column {self.name!r}"


class TableAdapter(Protocol):
    """A table of some library, with columns by position."""

    library: str
    names: list[Any]
    n_rows: int

    def read_column(self, j: int, as_labels: bool = False) -> ColumnData:
        """Column ``j``, as a category if ``as_labels``."""

    def reorder_columns(self, order: Sequence[int]) -> TableAdapter:
        """The table with its columns in another order."""

    def fill_column(
        self, j: int, fill_values: Array, kind: str, fitted_dtype: Any
    ) -> Any:
        """Column ``j`` with its missing entries filled, in a type that holds them.

        ``fitted_dtype`` is the type of the column in fit, None if that was one of
        another library.
        """

    def assemble(self, columns: dict[Any, Any], indicators: dict[Any, Array]) -> Any:
        """Frame of ``columns`` (None: unchanged) followed by indicator columns."""

    def make_float_frame(self, columns: dict[Any, Array]) -> Any:
        """Frame of float columns with the rows of this table."""


def validate_table(
    estimator: Any, X: Any, *, reset: bool, missing_values: MissingMarker = None
) -> TableAdapter:
    """Validate ``X`` and wrap it; columns of a frame get the order of the fit.

    Parameters
    ----------
    estimator : estimator
        Estimator whose feature names and count are set or checked.
    X : frame or array
        pandas or polars frame; array of numbers with NaN, masked array.
    reset : bool
        Set the estimator's feature names and count, or check against them.
    missing_values : int, float, str or None
        Entry that counts as missing besides NaN, None and null.
    """
    if not is_frame(X):
        if not reset:
            _check_array_allowed(estimator)
        if isinstance(X, np.ma.MaskedArray):
            X = dense_values(X)
        if isinstance(missing_values, str):
            X = _text_marker_to_nan(X, missing_values)
        _check_no_text(X)
        values = validate_data(
            estimator,
            X,
            reset=reset,
            dtype=(np.float64, np.float32),
            ensure_all_finite="allow-nan",
        )
        if reset:
            estimator.frame_names_ = None
        return ArrayAdapter(values, missing_values)
    adapter = PolarsAdapter if is_polars(X) else PandasAdapter
    table: TableAdapter = adapter(X, missing_values)
    _check_shape(table)
    if reset:
        estimator.frame_names_ = list(table.names)
    else:
        table = _align_columns(estimator, table)
    frame = table.frame  # type: ignore[attr-defined]
    validate_data(estimator, frame, reset=reset, skip_check_array=True)
    return table


def _check_shape(table: TableAdapter) -> None:
    """Raise for frames without rows or columns, or with duplicate names."""
    if table.n_rows == 0 or not table.names:
        what = "sample(s)" if table.names else "feature(s)"
        raise ValueError(
            f"Found array with 0 {what} (shape=({table.n_rows}, {len(table.names)})) "
            "while a minimum of 1 is required."
        )
    duplicates = sorted({str(n) for n in table.names if table.names.count(n) > 1})
    if duplicates:
        raise ValueError(
            f"columns of X must have different names, got {', '.join(duplicates)} more "
            "than once; rename them"
        )


def _text_marker_to_nan(X: Any, marker: str) -> Any:
    """Put NaN in place of a text marker in an array or a list of rows."""
    cells = np.asarray(X, dtype=object) if isinstance(X, list | tuple) else X
    if not isinstance(cells, np.ndarray) or cells.dtype.kind not in "OU":
        return X
    marked = np.vectorize(equals_marker, otypes=[bool])(cells, marker)
    return np.where(marked, np.nan, cells.astype(object))


def _check_no_text(X: Any) -> None:
    """Raise for an array with text that is not a number."""
    if not isinstance(X, np.ndarray) or X.dtype.kind not in "OU" or X.ndim != 2:
        return
    for (i, j), cell in np.ndenumerate(X):
        if isinstance(cell, str) and not _is_numeric_text(cell):
            raise ValueError(
                "X must be a frame of pandas or polars where columns hold words, got "
                f"an array with {str(cell)!r} in row {i}, column {j}; "
                "pandas.DataFrame(X).infer_objects() makes one of it"
            )


def _is_numeric_text(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _check_array_allowed(estimator: Any) -> None:
    """Raise if an array is given in place of a frame with categories."""
    categories = [repr(c.name) for c in estimator.columns_ if c.kind == "category"]
    if categories:
        raise ValueError(
            f"X must be a frame: columns {', '.join(categories)} held categories in "
            "fit, and an array holds numbers only"
        )


def _align_columns(estimator: Any, table: TableAdapter) -> TableAdapter:
    """Put the columns of a table with the names of the fit in their order."""
    names = estimator.frame_names_
    if names is None or list(table.names) == names:
        return table
    if set(table.names) == set(names):
        return table.reorder_columns([table.names.index(name) for name in names])
    if not hasattr(estimator, "feature_names_in_") and len(names) == len(table.names):
        # scikit-learn compares only names that are strings.
        unexpected = [name for name in table.names if name not in names]
        raise ValueError(
            f"columns of X must be those of fit, {names[:8]}, got "
            f"{unexpected[:8]} among them; rename them"
        )
    return table


def apply_output_config(estimator: Any, frame: Any) -> Any:
    """Convert ``frame`` to the library that ``set_output`` asks for."""
    own = getattr(estimator, "_sklearn_output_config", {}).get("transform")
    wanted = own or get_config()["transform_output"]
    if not is_frame(frame) or wanted == "default":
        return frame
    if wanted == "pandas" and is_polars(frame):
        return frame.to_pandas()
    if wanted == "polars" and not is_polars(frame):
        import polars as pl

        return pl.from_pandas(frame)
    return frame


def read_column_as(table: TableAdapter, j: int, kind: str) -> ColumnData:
    """Read column ``j`` as the kind that it had in fit.

    Raises
    ------
    ValueError
        If its values are not of that kind.
    """
    data = table.read_column(j, as_labels=kind == "category")
    if data.missing.all():
        m, empty = len(data.missing), None if kind == "category" else np.nan
        dtype = object if kind == "category" else np.float64
        return replace(data, kind=kind, values=np.full(m, empty, dtype=dtype))
    if data.kind == kind:
        return data
    numeric = ("number", "integer")
    if kind in numeric and data.kind in numeric:
        return replace(data, kind=kind)
    zero_one = data.kind in numeric and bool(
        np.isin(data.observed_values, (0.0, 1.0)).all()
    )
    if kind == "boolean" and zero_one:
        return replace(data, kind=kind)
    raise ValueError(
        f"{data.display_name} held {KIND_NAMES[kind]} in fit and holds "
        f"{KIND_NAMES[data.kind]} ({data.dtype}) here; convert it to the type of the "
        "fit"
    )


def check_finite(data: ColumnData) -> None:
    """Raise if a number is infinite."""
    if data.kind in ("number", "integer") and np.isinf(data.observed_values).any():
        raise ValueError(
            "X contains infinity or a value too large for float64: "
            f"{data.display_name} must hold finite numbers; put NaN (missing) in their "
            "place"
        )


def round_to_integers(values: Array, dtype_name: str) -> list[int]:
    """Round to integers within the range of a type ("int8").

    Examples
    --------
    >>> round_to_integers([1.6, 2**60 + 1, 300.0], "uint8")
    [2, 255, 255]
    """
    limits = np.iinfo(dtype_name if dtype_name in np.sctypeDict else "int64")
    low, high = int(limits.min), int(limits.max)
    return [min(max(_round_to_int(x), low), high) for x in values]


def _round_to_int(value: Any) -> int:
    """Round to an integer; integers keep all their digits."""
    whole = isinstance(value, int | np.integer)
    return int(value) if whole else int(np.rint(value))


class ArrayAdapter:
    """A float array."""

    library = "numpy"

    def __init__(self, values: Array, missing_values: MissingMarker = None) -> None:
        self.values = values
        self.missing_values = missing_values
        self.names: list[Any] = [f"x{j}" for j in range(values.shape[1])]
        self.n_rows = int(values.shape[0])

    def read_column(self, j: int, as_labels: bool = False) -> ColumnData:
        """Column ``j``, a number column unless ``as_labels``."""
        missing, kind = self._missing(j), "number"
        values = np.where(missing, np.nan, self.values[:, j].astype(np.float64))
        if as_labels:
            kind, values = "category", values.astype(object)
            values[missing] = None
        return ColumnData(self.names[j], kind, values, missing, self.values.dtype)

    def _missing(self, j: int) -> Array:
        column = self.values[:, j]
        missing = np.isnan(column)
        if isinstance(self.missing_values, int | float):
            missing |= column == self.missing_values
        return missing

    def reorder_columns(self, order: Sequence[int]) -> ArrayAdapter:
        """The table with its columns in another order."""
        return ArrayAdapter(self.values[:, list(order)], self.missing_values)

    def fill_column(
        self, j: int, fill_values: Array, kind: str, fitted_dtype: Any
    ) -> Array:
        """Column ``j`` with its missing entries filled."""
        filled = self.values[:, j].copy()
        filled[self._missing(j)] = clip_to_float_range(
            np.asarray(fill_values, dtype=np.float64), self.values.dtype
        )
        return filled

    def assemble(self, columns: dict[Any, Any], indicators: dict[Any, Array]) -> Array:
        """Array of ``columns`` followed by indicators as 0 and 1."""
        parts = [
            self.values[:, self.names.index(name)] if column is None else column
            for name, column in columns.items()
        ]
        parts += [flag.astype(self.values.dtype) for flag in indicators.values()]
        if not parts:
            return np.empty((self.n_rows, 0), dtype=self.values.dtype)
        return np.column_stack(parts)

    def make_float_frame(self, columns: dict[Any, Array]) -> Array:
        """Array of float columns."""
        if not columns:
            return np.empty((self.n_rows, 0))
        return np.column_stack(list(columns.values()))


class PandasAdapter:
    """A pandas frame."""

    library = "pandas"

    def __init__(self, frame: Any, missing_values: MissingMarker = None) -> None:
        self.frame = frame
        self.missing_values = missing_values
        self.names = list(frame.columns)
        self.n_rows = int(frame.shape[0])

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
        if self.missing_values is None:
            return series, missing
        marked = _pandas_marked(series, self.missing_values)
        if marked.any() and series.dtype == OBJECT_DTYPE:
            values = series.to_numpy(dtype=object, copy=True)
            values[marked] = None
            series = pd.Series(values, index=series.index, dtype=object)
        return series, missing | marked

    def read_column(self, j: int, as_labels: bool = False) -> ColumnData:
        """Column ``j``, as a category if ``as_labels``."""
        import pandas as pd

        series, missing = self._series(j)
        kind = pandas_kind(series)
        if as_labels and kind in ("number", "integer", "boolean"):
            kind = "category"
        declared = None
        if isinstance(series.dtype, pd.CategoricalDtype):
            declared = tuple(series.dtype.categories)
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
        name = self.names[j]
        return ColumnData(name, kind, values, missing, series.dtype, declared)

    def reorder_columns(self, order: Sequence[int]) -> PandasAdapter:
        """The table with its columns in another order."""
        return PandasAdapter(self.frame.iloc[:, list(order)], self.missing_values)

    def fill_column(
        self, j: int, fill_values: Array, kind: str, fitted_dtype: Any
    ) -> Any:
        """Column ``j`` with its missing entries filled, in a type that holds them."""
        import pandas as pd

        series, missing = self._series(j)
        dtype = _pandas_fill_dtype(
            series, fill_values, kind, fitted_dtype, bool(missing.all())
        )
        if kind == "integer" and not _all_integers(fill_values):
            dtype = _matching_float_dtype(dtype)
        if dtype == series.dtype:
            if infer_object_type(series) == "decimal":
                fill_values = _to_decimals(fill_values, series[~missing])
            filled = series.array.copy()
            filled[missing] = pd.array(
                _pandas_fill_values(fill_values, dtype), dtype=dtype
            )
            return pd.Series(filled, index=series.index, dtype=dtype)
        boxed = series.astype(object).to_numpy(dtype=object, copy=True)
        boxed[missing] = _pandas_fill_values(fill_values, dtype)
        return pd.Series(
            _pandas_fill_values(boxed, dtype), index=series.index, dtype=dtype
        )

    def assemble(self, columns: dict[Any, Any], indicators: dict[Any, Array]) -> Any:
        """Frame of ``columns`` (None: unchanged) followed by indicator columns."""
        positions = [self.names.index(name) for name in columns]
        out = self.frame.iloc[:, positions].copy()
        for position, column in enumerate(columns.values()):
            if column is not None:
                out.isetitem(position, column)
        for name, flag in indicators.items():
            out[name] = flag
        return out

    def make_float_frame(self, columns: dict[Any, Array]) -> Any:
        """Frame of float columns with the index of this one."""
        import pandas as pd

        return pd.DataFrame(columns, index=self.frame.index)


def _pandas_marked(series: Any, marker: MissingMarker) -> Array:
    """Where the entries of a column equal the marker."""
    import pandas as pd

    dtype, text = series.dtype, isinstance(marker, str)
    objects = dtype == OBJECT_DTYPE or isinstance(dtype, pd.CategoricalDtype)
    if objects or (text and pd.api.types.is_string_dtype(dtype)):
        cells = series.astype(object)
        return np.array([equals_marker(cell, marker) for cell in cells], dtype=bool)
    if not text and pandas_kind(series) in ("number", "integer"):
        marked: Array = (series == marker).to_numpy(dtype=bool, na_value=False)
        return marked
    return np.zeros(len(series), dtype=bool)


def pandas_kind(series: Any) -> str:
    """Kind of a pandas column, one of `COLUMN_KINDS`."""
    import pandas as pd

    dtype, types = series.dtype, pd.api.types
    if isinstance(dtype, pd.CategoricalDtype):
        return "category"
    if dtype == OBJECT_DTYPE:
        return OBJECT_KINDS.get(infer_object_type(series), "other")
    if types.is_bool_dtype(dtype):
        return "boolean"
    if types.is_integer_dtype(dtype):
        return "integer"
    if types.is_float_dtype(dtype) or str(dtype).startswith("decimal"):
        return "number"
    if str(dtype) == "null[pyarrow]":
        return "empty"
    return "category" if types.is_string_dtype(dtype) else "other"


def infer_object_type(series: Any) -> str:
    """What pandas infers of a column of objects; "" for other columns."""
    import pandas as pd

    if series.dtype != OBJECT_DTYPE:
        return ""
    return str(pd.api.types.infer_dtype(series, skipna=True))


def _to_decimals(fill_values: Array, observed: Any) -> Array:
    """Numbers as decimals, with as many places as the longest observed one has."""
    exponents = (value.as_tuple().exponent for value in observed if value.is_finite())
    places = max(0, -min(exponents, default=0))
    values = np.empty(len(fill_values), dtype=object)
    values[:] = [Decimal(f"{x:.{places}f}") for x in fill_values]
    return values


def _all_integers(fill_values: Array) -> bool:
    rounded = np.rint(np.asarray(fill_values, dtype=np.float64))
    return bool(np.all(np.asarray(fill_values) == rounded))


def _pandas_fill_dtype(
    series: Any, fill_values: Array, kind: str, fitted_dtype: Any, all_missing: bool
) -> Any:
    """Type of the filled column: its own, else that of the fit, else a wider one."""
    import pandas as pd

    dtype, own_kind = series.dtype, pandas_kind(series)
    if kind == "category":
        return _pandas_label_dtype(series, fill_values, fitted_dtype, all_missing)
    if all_missing and fitted_dtype is not None and own_kind != kind:
        return fitted_dtype
    if dtype == OBJECT_DTYPE and fitted_dtype is not None:
        return fitted_dtype
    if all_missing and own_kind in ("category", "other", "empty"):
        return {"boolean": pd.BooleanDtype(), "integer": pd.Int64Dtype()}.get(
            kind, np.dtype(np.float64)
        )
    return dtype


def _pandas_label_dtype(
    series: Any, fill_values: Array, fitted_dtype: Any, all_missing: bool
) -> Any:
    """Type of a filled column of labels; categories are added if necessary."""
    import pandas as pd

    dtype = series.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        if not all_missing and pd.Index(fill_values).isin(dtype.categories).all():
            return dtype
        fitted = isinstance(fitted_dtype, pd.CategoricalDtype)
        if fitted and dtype.categories.isin(fitted_dtype.categories).all():
            return fitted_dtype
        new = [x for x in dict.fromkeys(fill_values) if x not in dtype.categories]
        wider = [*dtype.categories, *new]
        return pd.CategoricalDtype(wider, ordered=dtype.ordered)
    if all_missing:
        return OBJECT_DTYPE if fitted_dtype is None else fitted_dtype
    if pandas_kind(series) == "category":
        return dtype
    # Numbers here, but categories in fit.
    both = [*series.dropna().unique(), *fill_values]
    if isinstance(fitted_dtype, pd.CategoricalDtype) and pd.Index(both).isin(
        fitted_dtype.categories
    ).all():  # fmt: skip
        return fitted_dtype
    return OBJECT_DTYPE


def _matching_float_dtype(dtype: Any) -> Any:
    """Float type that corresponds to an integer type."""
    import pandas as pd

    text = str(dtype)
    if text.endswith("[pyarrow]"):
        import pyarrow as pa

        return pd.ArrowDtype(pa.float64())
    if text.startswith(("Int", "UInt")):
        return pd.Float64Dtype()
    return np.dtype(np.float64) if dtype.kind in "iu" else dtype


def _pandas_fill_values(fill_values: Array, dtype: Any) -> Any:
    """Convert values to what an array of the type accepts."""
    kind = getattr(dtype, "kind", "O")
    if kind == "b":
        return np.asarray(fill_values, dtype=bool)
    if kind in "iu":
        return round_to_integers(
            fill_values, f"{'u' * (kind == 'u')}int{8 * dtype.itemsize}"
        )
    if kind == "f":
        small = np.float32 if dtype.itemsize <= 4 else np.float64
        return clip_to_float_range(
            np.asarray(fill_values, dtype=np.float64), np.dtype(small)
        )
    return list(fill_values)


class PolarsAdapter:
    """A polars frame; NaN is missing as null is."""

    library = "polars"

    def __init__(self, frame: Any, missing_values: MissingMarker = None) -> None:
        self.frame = frame
        self.missing_values = missing_values
        self.names: list[Any] = list(frame.columns)
        self.n_rows = int(frame.height)

    def read_column(self, j: int, as_labels: bool = False) -> ColumnData:
        """Column ``j``, as a category if ``as_labels``."""
        series = self.frame.to_series(j)
        dtype, kind = series.dtype, polars_kind(series.dtype)
        missing = _polars_missing(series, self.missing_values)
        if as_labels and kind in ("number", "integer", "boolean"):
            kind = "category"
        if kind == "category":
            values = np.empty(len(series), dtype=object)
            values[:] = polars_labels(series)
            values[missing] = None
        elif kind in ("empty", "other"):
            values = np.full(len(series), np.nan)
        else:
            floats = series.cast(float).fill_null(float("nan"))
            values = np.where(missing, np.nan, floats.to_numpy().astype(np.float64))
        return ColumnData(
            self.names[j], kind, values, missing, dtype, enum_categories(dtype)
        )

    def reorder_columns(self, order: Sequence[int]) -> PolarsAdapter:
        """The table with its columns in another order."""
        frame = self.frame.select([self.names[j] for j in order])
        return PolarsAdapter(frame, self.missing_values)

    def fill_column(
        self, j: int, fill_values: Array, kind: str, fitted_dtype: Any
    ) -> Any:
        """Column ``j`` with its missing entries filled, in a type that holds them."""
        import polars as pl

        series = self.frame.to_series(j)
        missing = _polars_missing(series, self.missing_values)
        dtype = _polars_fill_dtype(
            series, fill_values, kind, fitted_dtype, bool(missing.all())
        )
        if dtype != series.dtype:
            series = (
                pl.Series(series.name, [None] * len(series), dtype=dtype)
                if missing.all()
                else _polars_cast(series, dtype)
            )
        cells: list[Any] = [None] * len(series)
        filled = _polars_fill_values(fill_values, dtype)
        for i, value in zip(np.flatnonzero(missing), filled, strict=True):
            cells[i] = value
        other = pl.Series(series.name, cells, dtype=dtype, strict=False)
        return series.zip_with(pl.Series(~missing), other)

    def assemble(self, columns: dict[Any, Any], indicators: dict[Any, Array]) -> Any:
        """Frame of ``columns`` (None: unchanged) followed by indicator columns."""
        import polars as pl

        out = self.frame.select(list(columns))
        filled = [column for column in columns.values() if column is not None]
        flags = [pl.Series(name, flag) for name, flag in indicators.items()]
        return out.with_columns([*filled, *flags])

    def make_float_frame(self, columns: dict[Any, Array]) -> Any:
        """Frame of float columns."""
        import polars as pl

        return pl.DataFrame(columns)


def _polars_missing(series: Any, marker: MissingMarker) -> Array:
    """Where a column has null, NaN or the marker."""
    missing = series.is_null()
    if series.dtype.is_float():
        missing = missing | series.is_nan().fill_null(value=True)
    mask: Array = missing.to_numpy().astype(bool)
    kind = polars_kind(series.dtype)
    if isinstance(marker, str) and kind == "category":
        mask |= np.array([label == marker for label in polars_labels(series)])
    elif isinstance(marker, int | float) and kind in ("number", "integer"):
        mask |= np.asarray(series.fill_null(0).to_numpy() == marker, dtype=bool)
    return mask


def polars_kind(dtype: Any) -> str:
    """Kind of a polars column of this type, one of `COLUMN_KINDS`."""
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


def polars_labels(series: Any) -> list[Any]:
    """Values of a column as labels; those of text and categories as text."""
    text = polars_kind(series.dtype) == "category"
    labels: list[Any] = (series.cast(str) if text else series).to_list()
    return labels


def enum_categories(dtype: Any) -> tuple[str, ...] | None:
    """Labels of an Enum, None for other types."""
    if str(dtype.base_type()) != "Enum":
        return None
    return tuple(dtype.categories.to_list())


def _polars_cast(series: Any, dtype: Any) -> Any:
    import polars as pl

    if polars_kind(dtype) == "category":
        return series.cast(pl.String).cast(dtype)
    return series.cast(dtype)


def _polars_fill_dtype(
    series: Any, fill_values: Array, kind: str, fitted_dtype: Any, all_missing: bool
) -> Any:
    """Type of the filled column: its own, else that of the fit, else a wider one."""
    import polars as pl

    dtype, own_kind = series.dtype, polars_kind(series.dtype)
    if kind == "category":
        return _polars_label_dtype(dtype, fill_values, fitted_dtype, all_missing)
    if kind == "integer" and not np.all(fill_values == np.rint(fill_values)):
        return dtype if own_kind == "number" else pl.Float64
    numeric = own_kind in ("number", "integer", "boolean")
    if numeric and (own_kind == kind or not all_missing):
        return dtype
    plain = {"boolean": pl.Boolean, "integer": pl.Int64}.get(kind, pl.Float64)
    return plain if fitted_dtype is None else fitted_dtype


def _polars_label_dtype(
    dtype: Any, fill_values: Array, fitted_dtype: Any, all_missing: bool
) -> Any:
    """Type of a filled column of labels; those of an Enum are added if necessary."""
    import polars as pl

    if polars_kind(dtype) != "category":
        return fitted_dtype if all_missing and fitted_dtype is not None else pl.String
    declared = enum_categories(dtype)
    if declared is None or set(fill_values) <= set(declared):
        return dtype
    fitted = None if fitted_dtype is None else enum_categories(fitted_dtype)
    if fitted is not None and set(declared) <= set(fitted):
        return fitted_dtype
    return pl.Enum(
        [*declared, *(x for x in dict.fromkeys(fill_values) if x not in declared)]
    )


def _polars_fill_values(fill_values: Array, dtype: Any) -> list[Any]:
    """Convert values to what a column of the type accepts."""
    kind = polars_kind(dtype)
    if kind == "boolean":
        return [bool(x) for x in fill_values]
    if kind == "integer":
        return round_to_integers(fill_values, str(dtype).lower())
    if kind == "number":
        small = str(dtype) == "Float32"
        floats = clip_to_float_range(
            np.asarray(fill_values, dtype=np.float64),
            np.dtype(np.float32 if small else np.float64),
        )
        return [float(x) for x in floats]
    return list(fill_values)
