"""Frames of pandas as tables."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np

from ncarl.containers import held
from ncarl.core.types import Array
from ncarl.tables.given import Given, whole_numbers

OBJECT = np.dtype(object)
#: What pandas infers of columns of objects, and what that means here.
OBJECTS = {
    "string": "category",
    "empty": "empty",
    "boolean": "boolean",
    "integer": "integer",
    "floating": "number",
    "mixed-integer-float": "number",
    "decimal": "number",
}


class PandasTable:
    """A frame of pandas."""

    library = "pandas"

    def __init__(self, frame: Any) -> None:
        self.frame = frame
        self.names = list(frame.columns)
        self.n_rows = int(frame.shape[0])

    def _series(self, j: int) -> Any:
        """Column ``j``, dense."""
        import pandas as pd

        series = self.frame.iloc[:, j]
        sparse = isinstance(series.dtype, pd.SparseDtype)
        return series.sparse.to_dense() if sparse else series

    def given(self, j: int, labels: bool = False) -> Given:
        """Column ``j``; ``labels`` asks for its values as labels."""
        import pandas as pd

        series = self._series(j)
        kind, gaps = kind_of(series), series.isna().to_numpy(dtype=bool)
        if labels and kind in ("number", "integer", "boolean"):
            kind = "category"
        declared = None
        if isinstance(series.dtype, pd.CategoricalDtype):
            declared = tuple(series.dtype.categories)
        if kind == "category":
            values = series.astype(object).to_numpy(dtype=object, copy=True)
            values[gaps] = None
        elif kind in ("empty", "other"):
            values = np.full(len(series), np.nan)
        else:
            boxed = series.dtype == OBJECT and kind == "boolean"
            plain = series.astype("boolean") if boxed else series
            values = plain.to_numpy(dtype=np.float64, na_value=np.nan)
        name = self.names[j]
        return Given(name, kind, values, gaps, series.dtype, declared)

    def reordered(self, order: Sequence[int]) -> PandasTable:
        """The table with its columns in another order."""
        return PandasTable(self.frame.iloc[:, list(order)])

    def column(self, j: int, new: Array, kind: str, usual: Any) -> Any:
        """Column ``j`` with ``new`` in its gaps, in a type that can hold it."""
        import pandas as pd

        series = self._series(j)
        gaps = series.isna().to_numpy(dtype=bool)
        dtype = _able(series, new, kind, usual, bool(gaps.all()))
        if kind == "integer" and not _is_whole(new):
            dtype = _float_like(dtype)
        if dtype == series.dtype:
            if inferred(series) == "decimal":
                new = decimals(new, series[~gaps])
            filled = series.array.copy()
            filled[gaps] = pd.array(_typed(new, dtype), dtype=dtype)
            return pd.Series(filled, index=series.index, dtype=dtype)
        boxed = series.astype(object).to_numpy(dtype=object, copy=True)
        boxed[gaps] = _typed(new, dtype)
        return pd.Series(_typed(boxed, dtype), index=series.index, dtype=dtype)

    def assembled(self, columns: dict[Any, Any], flags: dict[Any, Array]) -> Any:
        """A frame of some columns with flags beside them."""
        places = [self.names.index(name) for name in columns]
        out = self.frame.iloc[:, places].copy()
        for place, column in enumerate(columns.values()):
            if column is not None:
                out.isetitem(place, column)
        for name, flag in flags.items():
            out[name] = flag
        return out

    def of_numbers(self, columns: dict[Any, Array]) -> Any:
        """A frame of floats with the index of this one."""
        import pandas as pd

        return pd.DataFrame(columns, index=self.frame.index)


def kind_of(series: Any) -> str:
    """What a column of pandas holds."""
    import pandas as pd

    dtype, types = series.dtype, pd.api.types
    if isinstance(dtype, pd.CategoricalDtype):
        return "category"
    if dtype == OBJECT:
        return OBJECTS.get(inferred(series), "other")
    if types.is_bool_dtype(dtype):
        return "boolean"
    if types.is_integer_dtype(dtype):
        return "integer"
    if types.is_float_dtype(dtype) or str(dtype).startswith("decimal"):
        return "number"
    if str(dtype) == "null[pyarrow]":
        return "empty"
    return "category" if types.is_string_dtype(dtype) else "other"


def inferred(series: Any) -> str:
    """What pandas takes a column of objects for; nothing of other columns."""
    import pandas as pd

    if series.dtype != OBJECT:
        return ""
    return str(pd.api.types.infer_dtype(series, skipna=True))


def decimals(new: Array, known: Any) -> Array:
    """Numbers as decimals, with as many places as the longest known one has."""
    exponents = (value.as_tuple().exponent for value in known if value.is_finite())
    places = max(0, -min(exponents, default=0))
    found = np.empty(len(new), dtype=object)
    found[:] = [Decimal(f"{value:.{places}f}") for value in new]
    return found


def _is_whole(new: Array) -> bool:
    """Whether all numbers are whole."""
    return bool(np.all(np.asarray(new) == np.rint(np.asarray(new, dtype=np.float64))))


def _able(series: Any, new: Array, kind: str, usual: Any, empty: bool) -> Any:
    """A type for the column that can hold what is filled in.

    Its own where it can be, else the one of the fit, else one that is wide enough.
    """
    import pandas as pd

    dtype, found = series.dtype, kind_of(series)
    if kind == "category":
        return _able_labels(series, new, usual, empty)
    if empty and usual is not None and found != kind:
        return usual
    if dtype == OBJECT and usual is not None:
        return usual
    if empty and found in ("category", "other", "empty"):
        return {"boolean": pd.BooleanDtype(), "integer": pd.Int64Dtype()}.get(
            kind, np.dtype(np.float64)
        )
    return dtype


def _able_labels(series: Any, new: Array, usual: Any, empty: bool) -> Any:
    """A type for labels: the categories are added to where they must be."""
    import pandas as pd

    dtype = series.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        if not empty and pd.Index(new).isin(dtype.categories).all():
            return dtype
        fitted = isinstance(usual, pd.CategoricalDtype)
        if fitted and dtype.categories.isin(usual.categories).all():
            return usual
        missing = [x for x in dict.fromkeys(new) if x not in dtype.categories]
        wider = [*dtype.categories, *missing]
        return pd.CategoricalDtype(wider, ordered=dtype.ordered)
    if empty:
        return OBJECT if usual is None else usual
    if kind_of(series) == "category":
        return dtype
    # Numbers here, categories in fit.
    both = [*series.dropna().unique(), *new]
    if isinstance(usual, pd.CategoricalDtype) and pd.Index(both).isin(
        usual.categories
    ).all():  # fmt: skip
        return usual
    return OBJECT


def _float_like(dtype: Any) -> Any:
    """The float type that goes with a type of whole numbers."""
    import pandas as pd

    text = str(dtype)
    if text.endswith("[pyarrow]"):
        return pd.ArrowDtype(_arrow_double())
    if text.startswith(("Int", "UInt")):
        return pd.Float64Dtype()
    return np.dtype(np.float64) if dtype.kind in "iu" else dtype


def _arrow_double() -> Any:
    """Arrow's float type."""
    import pyarrow as pa

    return pa.float64()


def _typed(new: Array, dtype: Any) -> Any:
    """Filled values as an array of the type can take them."""
    kind = getattr(dtype, "kind", "O")
    if kind == "b":
        return np.asarray(new, dtype=bool)
    if kind in "iu":
        return whole_numbers(new, f"{'u' * (kind == 'u')}int{8 * dtype.itemsize}")
    if kind == "f":
        small = np.float32 if dtype.itemsize <= 4 else np.float64
        return held(np.asarray(new, dtype=np.float64), np.dtype(small))
    return list(new)
