"""Containers at the edges: read any of them, and give the same kind back filled."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Set
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.validation import validate_data

from ncarl.core.types import Array
from ncarl.observed import Observed
from ncarl.sources import RowSource, open_rows
from ncarl.sources.frames import (
    dense_values,
    float_dtype,
    frame_values,
    is_frame,
    is_polars,
    library_of,
)


def read(
    estimator: Any,
    X: Any,
    *,
    reset: bool,
    same_columns: bool = True,
    name: str = "X",
) -> Observed:
    """Observed entries of any supported container.

    Parameters
    ----------
    estimator : estimator
        Whose ``n_features_in_`` and ``feature_names_in_`` to set or check.
    X : container
        NumPy array with NaN, masked array, pandas or polars frame, scipy.sparse
        matrix of any format, memory-mapped array.
    reset : bool
        Set the estimator's feature names and count, or check against them.
    same_columns : bool
        Whether the columns must be those of the fit.
    name : str
        What errors call ``X``.
    """
    try:
        return _read(estimator, X, reset, same_columns)
    except (ValueError, TypeError) as error:
        words = str(error).split("\n")[0].replace(":", " ").split()
        if name == "X" and "X" in words:
            raise
        raise type(error)(f"{name}: {error}") from error


def as_source(X: Any) -> RowSource | None:
    """``X`` as a source of rows, if it is not a matrix in memory.

    Sources as they are; Dask arrays and delayed blocks; lists and other collections of
    row blocks.

    Raises
    ------
    TypeError
        If blocks come from an iterator, which can be gone through only once.
    """
    if isinstance(X, RowSource):
        return X
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
    if library_of(X) == "dask" or _are_blocks(X):
        return open_rows(X)
    return None


def _are_blocks(X: Any) -> bool:
    """Whether ``X`` is a collection of row blocks, not a matrix itself."""
    if isinstance(X, list | tuple):
        return bool(len(X)) and (
            library_of(X[0]) == "dask" or len(getattr(X[0], "shape", ())) == 2
        )
    plain = isinstance(X, str | bytes | Mapping | Set)
    matrix = hasattr(X, "shape") or hasattr(X, "__array__") or is_frame(X)
    return hasattr(X, "__iter__") and not plain and not matrix


def _read(estimator: Any, X: Any, reset: bool, same_columns: bool) -> Observed:
    """Observed entries of a container, whatever its kind."""
    _refuse_odd_kinds(X)
    checks = {
        "reset": reset,
        "ensure_all_finite": "allow-nan",
        "accept_large_sparse": True,
    }
    if not same_columns:
        checks["reset"] = True
        estimator = _Witness(estimator)
    if sparse.issparse(X):
        return _read_sparse(estimator, X, checks)
    if is_frame(X):
        # Names and count come from the frame, numbers from its checked columns.
        validate_data(estimator, X, reset=checks["reset"], skip_check_array=True)
        X = frame_values(X)
        checks["reset"] = True
        estimator = _Witness(estimator)
    elif isinstance(X, np.ma.MaskedArray):
        X = dense_values(X)
    values = _validated(estimator, X, dtype=(np.float64, np.float32), **checks)
    return Observed.from_dense(values)


class _Witness:
    """Stands in for an estimator where only the array itself is to be checked."""

    def __init__(self, estimator: Any) -> None:
        self.tags = estimator.__sklearn_tags__()

    def __sklearn_tags__(self) -> Any:
        return self.tags


def _read_sparse(estimator: Any, X: Any, checks: dict[str, Any]) -> Observed:
    """Stored entries of a sparse matrix."""
    if not np.issubdtype(X.dtype, np.number) and X.dtype != bool:
        raise ValueError(f"X must hold numbers, got dtype {X.dtype}")
    if X.ndim != 2:
        raise ValueError(f"X must have two axes, got a sparse array of {X.ndim}")
    observed = Observed.from_sparse(X)
    _validated(estimator, observed.to_csr(), accept_sparse=True, **checks)
    return observed


def _validated(estimator: Any, X: Any, **checks: Any) -> Any:
    """The checked matrix; an error about infinity says where it is."""
    try:
        return validate_data(estimator, X, **checks)
    except ValueError as error:
        if "contains infinity" not in str(error):
            raise
        raise ValueError(f"{str(error).rstrip('.')}{_first_infinity(X)}") from None


def _first_infinity(X: Any) -> str:
    """Where the first infinite entry is, and what to put there."""
    way = "put NaN where an entry is missing"
    if sparse.issparse(X):
        entry = int(np.argmax(np.isinf(X.data)))
        i, j = int(np.searchsorted(X.indptr, entry, side="right")) - 1, X.indices[entry]
        return f": {float(X.data[entry])} at row {i}, column {j} (both from 0); {way}"
    # Row by row: a mask of the whole matrix may be more than there is room for.
    for i, row in enumerate(np.asarray(X)):
        infinite = np.flatnonzero(np.isinf(np.asarray(row, dtype=np.float64)))
        if len(infinite):
            j = infinite[0]
            return f": {float(row[j])} at row {i}, column {j} (both from 0); {way}"
    return f"; {way}"


def _refuse_odd_kinds(X: Any) -> None:
    """Raise for complex numbers and dates, which floats cannot stand for."""
    kind = getattr(getattr(X, "dtype", None), "kind", "")
    if kind == "c":
        raise ValueError(
            "Complex data not supported: X must be real; complete X.real and X.imag "
            "as two matrices"
        )
    if kind in ("m", "M"):
        raise ValueError(f"X must hold numbers, got dtype {X.dtype}")


def give_back(X: Any, filled: Array, *, keep_observed: bool, plain: bool) -> Any:
    """``filled`` in the container of ``X``, observed entries bit for bit.

    Parameters
    ----------
    X : container
        What the user gave.
    filled : array of shape (m, n)
        The completed matrix.
    keep_observed : bool
        Keep the user's own values where there are any.
    plain : bool
        Give a NumPy array whatever the container (``set_output`` does the rest).
    """
    if sparse.issparse(X):
        return _sparse_back(X, filled, keep_observed)
    values = dense_values(X)
    if is_frame(X) and not plain:
        back = _polars_back if is_polars(X) else _pandas_back
        return back(X, values, filled, keep_observed)
    out = _column(values, filled, float_dtype(X), keep_observed)
    return np.ma.MaskedArray(out) if isinstance(X, np.ma.MaskedArray) else out


def _sparse_back(X: Any, filled: Array, keep_observed: bool) -> Array:
    """A dense array of the dtype of the sparse matrix, its stored entries kept."""
    out = held(filled, float_dtype(X))
    if keep_observed:
        observed = Observed.from_sparse(X)
        out[observed.rows, observed.indices] = observed.values
    return out


def _polars_back(X: Any, values: Array, filled: Array, keep_observed: bool) -> Any:
    """A polars frame like ``X``; columns without a gap are the user's own."""
    import polars as pl

    small = [np.float32 if kind == pl.Float32 else np.float64 for kind in X.dtypes]
    return X.with_columns(
        pl.Series(
            name, _column(values[:, j], filled[:, j], np.dtype(small[j]), keep_observed)
        )
        for j, name in enumerate(X.columns)
        if not keep_observed or np.isnan(values[:, j]).any()
    )


def _pandas_back(X: Any, values: Array, filled: Array, keep_observed: bool) -> Any:
    """A pandas frame like ``X``; columns without a gap are the user's own."""
    import pandas as pd

    out = X.copy()
    for j, kind in enumerate(X.dtypes):
        if keep_observed and not np.isnan(values[:, j]).any():
            continue
        small = kind.kind == "f" and kind.itemsize <= 4
        dtype = np.dtype(np.float32 if small else np.float64)
        column = _column(values[:, j], filled[:, j], dtype, keep_observed)
        out.isetitem(j, pd.array(column, dtype=_pandas_float(kind, dtype)))
    return out


def _pandas_float(kind: Any, dtype: np.dtype[Any]) -> Any:
    """The float type of a result, nullable or Arrow if the column was."""
    text = str(kind)
    if text.endswith("[pyarrow]"):
        return kind if kind.kind == "f" else "double[pyarrow]"
    if text == "boolean" or text.startswith(("Int", "UInt", "Float")):
        return "Float32" if dtype == np.float32 else "Float64"
    return dtype


def _column(
    values: Array, filled: Array, dtype: np.dtype[Any], keep_observed: bool
) -> Array:
    """``filled`` in a float dtype, the user's values where there are any."""
    out = held(filled, dtype)
    if keep_observed:
        np.copyto(out, values, where=~np.isnan(values), casting="unsafe")
    return out


def held(filled: Array, dtype: np.dtype[Any]) -> Array:
    """A copy in another dtype, overflow held at its largest number."""
    limit = float(np.finfo(dtype).max)
    return np.clip(filled, -limit, limit).astype(dtype, copy=False)
