"""Frames and arrays as floats, NaN in the gaps."""

from __future__ import annotations

from typing import Any

import numpy as np

from ncarl.core.types import Array


def library_of(X: Any) -> str:
    """The package that the type of ``X`` comes from."""
    return type(X).__module__.split(".")[0]


def is_pandas(X: Any) -> bool:
    """Whether ``X`` is a pandas frame (without importing pandas)."""
    return library_of(X) == "pandas" and hasattr(X, "iloc")


def is_polars(X: Any) -> bool:
    """Whether ``X`` is a polars frame (without importing polars)."""
    return library_of(X) == "polars" and hasattr(X, "get_columns")


def is_frame(X: Any) -> bool:
    """Whether ``X`` is a pandas or polars frame with two axes."""
    return (is_pandas(X) and X.ndim == 2) or is_polars(X)


def frame_values(X: Any) -> Array:
    """Values of a frame as floats, NaN in the gaps; an error names a bad column."""
    if is_polars(X):
        kinds = [
            (name, dtype.is_numeric() or str(dtype) == "Boolean")
            for name, dtype in X.schema.items()
        ]
        columns = [
            X[name].cast(float, strict=False) if good else None for name, good in kinds
        ]
        _refuse_text([(name, X[name].dtype) for name, good in kinds if not good])
        arrays = [
            c.fill_null(float("nan")).to_numpy() for c in columns if c is not None
        ]
    else:
        arrays, bad = [], []
        for position in range(X.shape[1]):
            column = X.iloc[:, position]
            try:
                arrays.append(_pandas_column(column))
            except (TypeError, ValueError):
                bad.append((X.columns[position], column.dtype))
        _refuse_text(bad)
    if not arrays:
        return np.empty(X.shape)
    return np.column_stack(arrays)


def _pandas_column(column: Any) -> Array:
    """A pandas column as floats, or an error if it does not hold numbers."""
    text = ("category", "str", "string")
    if column.dtype.kind in "mMSUc" or str(column.dtype) in text:
        raise TypeError("not numeric")
    return column.to_numpy(dtype=np.float64, na_value=np.nan)


def _refuse_text(bad: list[tuple[Any, Any]]) -> None:
    """Raise, naming the columns that do not hold numbers."""
    if bad:
        listed = ", ".join(f"{name!r} ({dtype})" for name, dtype in bad[:5])
        raise ValueError(
            f"X must hold numbers only; not numeric: {listed}"
            f"{' and more' if len(bad) > 5 else ''}. Drop or encode these columns, or "
            "make them the index."
        )


def dense_values(X: Any) -> Array:
    """Values of a dense container as floats, NaN in the gaps."""
    if is_frame(X):
        return frame_values(X)
    if isinstance(X, np.ma.MaskedArray):
        return np.ma.filled(X.astype(np.float64), np.nan)
    return np.asarray(X, dtype=np.float64)


def float_dtype(X: Any) -> np.dtype[Any]:
    """The float dtype that a result for ``X`` has."""
    dtype = getattr(X, "dtype", None)
    small = isinstance(dtype, np.dtype) and dtype.kind == "f" and dtype.itemsize <= 4
    return np.dtype(np.float32 if small else np.float64)
