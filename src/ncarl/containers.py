"""Containers of the user: validate them as input, and return the same kind filled."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Set
from functools import partial
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from ncarl.core.types import Array
from ncarl.io import RowSource, open_rows
from ncarl.io.base import (
    BaseRows,
    check_chunk,
    conversion_hint,
    dense_values,
    float_dtype,
    frame_values,
    is_frame,
    is_polars,
    library_of,
    map_rows,
)
from ncarl.observations import Observations


def validate_observations(
    estimator: Any, X: Any, *, reset: bool, same_columns: bool = True, name: str = "X"
) -> Observations:
    """Validate any supported container and return its observed entries.

    ``reset`` sets ``n_features_in_`` and ``feature_names_in_`` of the estimator; else
    ``X`` is checked against them, unless ``same_columns`` is False. Errors call it
    ``name``.
    """
    try:
        return _validate_container(estimator, X, reset, same_columns)
    except (ValueError, TypeError) as error:
        words = str(error).split("\n")[0].replace(":", " ").split()
        if name == "X" and "X" in words:
            raise
        raise type(error)(f"{name}: {error}") from error


def as_observations(X: Any) -> Observations:
    """The observed entries of a matrix in any supported container."""
    if isinstance(X, Observations):
        return Observations.from_sparse(X)
    return validate_observations(MatrixCompletion(), X, reset=True)


class MatrixCompletion(BaseEstimator):
    """Accepts what all estimators accept; its name appears in scikit-learn's errors."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.sparse = True
        return tags


def as_source(X: Any) -> RowSource | None:
    """``X`` as a source of rows; None if it is a matrix in memory."""
    if isinstance(X, BaseRows):
        return X
    if isinstance(X, RowSource):  # of the user: its indices are not trusted
        return map_rows(X, partial(check_chunk, n_columns=X.n_columns))
    if isinstance(X, str | os.PathLike):
        raise TypeError(
            f"X must be a matrix or a source of rows, got the path {os.fspath(X)!r}; "
            "open it with ncarl.open_rows(path)"
        )
    if isinstance(X, Iterator):
        raise TypeError(
            f"X must be a matrix, a source of rows or a collection of row blocks, got "
            f"a {type(X).__name__}, which can be read only once and a fit reads it in "
            "every step; pass a list of blocks, or ncarl.open_rows(function) with a "
            "function that makes a new iterator"
        )
    if library_of(X) == "dask" or _is_block_collection(X):
        return open_rows(X)
    return None


def _is_block_collection(X: Any) -> bool:
    if isinstance(X, list | tuple):
        return bool(len(X)) and (
            library_of(X[0]) == "dask" or len(getattr(X[0], "shape", ())) == 2
        )
    plain = isinstance(X, str | bytes | Mapping | Set)
    matrix = hasattr(X, "shape") or hasattr(X, "__array__") or is_frame(X)
    return hasattr(X, "__iter__") and not plain and not matrix


def _validate_container(
    estimator: Any, X: Any, reset: bool, same_columns: bool
) -> Observations:
    check_dtype_kind(X)
    checks: dict[str, Any] = {"reset": reset, "accept_large_sparse": True}
    if not same_columns:
        checks["reset"] = True
        estimator = _make_stub(estimator)
    if sparse.issparse(X):
        return _validate_sparse(estimator, X, checks)
    if is_frame(X):
        # Column names and count are checked on the frame, numbers on its array.
        validate_data(estimator, X, reset=checks["reset"], skip_check_array=True)
        X = frame_values(X)
        checks["reset"] = True
        estimator = _make_stub(estimator)
    elif isinstance(X, np.ma.MaskedArray):
        X = dense_values(X)
    return Observations.from_dense(validate_array(estimator, X, **checks))


def _make_stub(estimator: Any) -> Any:
    """Object of the same name, to leave feature names and count of an estimator."""
    tags = estimator.__sklearn_tags__()
    members = {"__sklearn_tags__": lambda _: tags}
    return type(type(estimator).__name__, (), members)()


def _validate_sparse(estimator: Any, X: Any, checks: dict[str, Any]) -> Observations:
    if not np.issubdtype(X.dtype, np.number) and X.dtype != bool:
        raise ValueError(f"X must hold numbers, got dtype {X.dtype}")
    if X.ndim != 2:
        raise ValueError(f"X must have two axes, got a sparse array of {X.ndim}")
    observed = Observations.from_sparse(X)
    validate_array(estimator, observed.to_csr(), accept_sparse=True, **checks)
    return observed


def validate_array(estimator: Any, X: Any, **checks: Any) -> Any:
    """``validate_data``, with better errors: where infinity is, and what to do."""
    checks |= {"dtype": (np.float64, np.float32), "ensure_all_finite": "allow-nan"}
    try:
        with np.errstate(invalid="ignore"):  # it adds up all values to find infinity
            return validate_data(estimator, X, **checks)
    except (ValueError, TypeError) as error:
        if "array element" in str(error) or "float() arg" in str(error):
            raise TypeError(
                f"X must be a frame or array of numbers, got a {type(X).__name__}; "
                f"{conversion_hint(X, error)}"
            ) from error
        if "contains infinity" not in str(error):
            raise
        raise ValueError(f"{str(error).rstrip('.')}{_first_infinity(X)}") from None


def _first_infinity(X: Any) -> str:
    hint = "put NaN where an entry is missing"
    if sparse.issparse(X):
        entry = int(np.argmax(np.isinf(X.data)))
        i, j = int(np.searchsorted(X.indptr, entry, side="right")) - 1, X.indices[entry]
        return f": {float(X.data[entry])} at row {i}, column {j} (both from 0); {hint}"
    # Row by row: a mask of the whole matrix may not fit into memory.
    for i, row in enumerate(np.asarray(X)):
        infinite = np.flatnonzero(np.isinf(np.asarray(row, dtype=np.float64)))
        if len(infinite):
            j = infinite[0]
            return f": {float(row[j])} at row {i}, column {j} (both from 0); {hint}"
    return f"; {hint}"


def check_dtype_kind(X: Any) -> None:
    """Raise for arrays of complex numbers, dates and times."""
    kind = getattr(getattr(X, "dtype", None), "kind", "")
    if kind == "c":
        raise ValueError(
            "Complex data not supported: X must be real; complete X.real and X.imag "
            "as two matrices"
        )
    if kind in ("m", "M"):
        raise ValueError(f"X must hold numbers, got dtype {X.dtype}")


def restore_container(
    X: Any, filled: Array, *, keep_observed: bool, as_array: bool
) -> Any:
    """The completed matrix ``filled`` in the container of ``X``.

    ``keep_observed`` keeps the observed values bit for bit; ``as_array`` returns a
    NumPy array also for a frame (``set_output`` does the rest).
    """
    if sparse.issparse(X):
        out = clip_to_float_range(filled, float_dtype(X))
        if keep_observed:
            observed = Observations.from_sparse(X)
            out[observed.rows, observed.indices] = observed.values
        return out
    values = dense_values(X)
    if is_frame(X) and not as_array:
        back = _restore_polars if is_polars(X) else _restore_pandas
        return back(X, values, filled, keep_observed)
    out = _fill_column(values, filled, float_dtype(X), keep_observed)
    return np.ma.MaskedArray(out) if isinstance(X, np.ma.MaskedArray) else out


def _restore_polars(X: Any, values: Array, filled: Array, keep_observed: bool) -> Any:
    import polars as pl

    small = [np.float32 if kind == pl.Float32 else np.float64 for kind in X.dtypes]
    return X.with_columns(
        pl.Series(
            name,
            _fill_column(values[:, j], filled[:, j], np.dtype(small[j]), keep_observed),
            nan_to_null=True,
        )
        for j, name in enumerate(X.columns)
        if not keep_observed or np.isnan(values[:, j]).any()
    )


def _restore_pandas(X: Any, values: Array, filled: Array, keep_observed: bool) -> Any:
    import pandas as pd

    out = X.copy()
    for j, kind in enumerate(X.dtypes):
        if keep_observed and not np.isnan(values[:, j]).any():
            continue
        kind = getattr(kind, "subtype", kind)  # a filled sparse column is dense
        small = kind.kind == "f" and kind.itemsize <= 4
        dtype = np.dtype(np.float32 if small else np.float64)
        column = _fill_column(values[:, j], filled[:, j], dtype, keep_observed)
        out.isetitem(j, pd.array(column, dtype=_pandas_float_dtype(kind, dtype)))
    return out


def _pandas_float_dtype(kind: Any, dtype: np.dtype[Any]) -> Any:
    text = str(kind)
    if text.endswith("[pyarrow]"):
        return kind if kind.kind == "f" else "double[pyarrow]"
    if text == "boolean" or text.startswith(("Int", "UInt", "Float")):
        return "Float32" if dtype == np.float32 else "Float64"
    return dtype


def _fill_column(
    values: Array, filled: Array, dtype: np.dtype[Any], keep_observed: bool
) -> Array:
    out = clip_to_float_range(filled, dtype)
    if keep_observed:
        np.copyto(out, values, where=~np.isnan(values), casting="unsafe")
    return out


def clip_to_float_range(
    values: Array, dtype: Any = np.float64, *, out: Array | None = None
) -> Array:
    """Values in a float dtype, overflow clipped to its largest number."""
    limit = float(np.finfo(dtype).max)
    return np.clip(values, -limit, limit, out=out).astype(dtype, copy=False)
