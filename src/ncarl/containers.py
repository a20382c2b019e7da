"""Containers at the edges: read any of them, and give the same kind back filled."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.validation import validate_data

from ncarl.core.types import Array
from ncarl.observed import Observed


def read(estimator: Any, X: Any, *, reset: bool, same_columns: bool = True) -> Observed:
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
    """
    _refuse_complex(X)
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
        _validated(estimator, X, reset=checks["reset"], skip_check_array=True)
        X = frame_values(X)
        checks["reset"] = True
        estimator = _Witness(estimator)
    elif isinstance(X, np.ma.MaskedArray):
        X = np.ma.filled(X.astype(np.float64), np.nan)
    values = _validated(estimator, X, dtype=(np.float64, np.float32), **checks)
    return Observed.from_dense(values)


class _Witness:
    """Stands in for an estimator where only the array itself is to be checked."""

    def __init__(self, estimator: Any) -> None:
        self.name = type(estimator).__name__
        self.tags = estimator.__sklearn_tags__()

    def __sklearn_tags__(self) -> Any:
        return self.tags


def _validated(estimator: Any, X: Any, **checks: Any) -> Any:
    """scikit-learn's checks, with errors that name ``X``."""
    try:
        return validate_data(estimator, X, **checks)
    except (ValueError, TypeError) as error:
        if "X" in str(error).split("\n")[0].split():
            raise
        raise type(error)(f"X: {error}") from error


def _read_sparse(estimator: Any, X: Any, checks: dict[str, Any]) -> Observed:
    """Stored entries of a sparse matrix."""
    if not np.issubdtype(X.dtype, np.number) and X.dtype != bool:
        raise ValueError(f"X must hold numbers, got dtype {X.dtype}")
    observed = Observed.from_sparse(X)
    csr = observed.to_csr()
    _validated(estimator, csr, accept_sparse=True, **checks)
    return observed


def _refuse_complex(X: Any) -> None:
    """Raise for complex input, which would lose its imaginary part."""
    dtype = getattr(X, "dtype", None)
    if dtype is not None and getattr(dtype, "kind", "") == "c":
        raise ValueError(
            "Complex data not supported: X must be real; complete X.real and X.imag "
            "as two matrices"
        )


def is_pandas(X: Any) -> bool:
    """Whether ``X`` is a pandas frame (without importing pandas)."""
    return type(X).__module__.startswith("pandas.") and hasattr(X, "iloc")


def is_polars(X: Any) -> bool:
    """Whether ``X`` is a polars frame (without importing polars)."""
    return type(X).__module__.startswith("polars.") and hasattr(X, "get_columns")


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
    if column.dtype.kind in "mMSU" or str(column.dtype) in (
        "category",
        "str",
        "string",
    ):
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


def gaps_of(X: Any) -> Array:
    """Boolean array that is true where a dense container has a gap."""
    if isinstance(X, np.ma.MaskedArray):
        values = np.ma.filled(X.astype(np.float64), np.nan)
    elif is_frame(X):
        values = frame_values(X)
    else:
        values = np.asarray(X, dtype=np.float64)
    return np.isnan(values)


def float_dtype(X: Any) -> np.dtype[Any]:
    """The float dtype that a result for ``X`` has."""
    dtype = getattr(X, "dtype", None)
    small = isinstance(dtype, np.dtype) and dtype.kind == "f" and dtype.itemsize <= 4
    return np.dtype(np.float32 if small else np.float64)


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
    if is_frame(X) and not plain:
        return _frame_back(X, filled, keep_observed)
    dtype = float_dtype(X)
    limit = float(np.finfo(dtype).max)
    out = np.clip(filled, -limit, limit).astype(dtype)
    if keep_observed:
        gaps = gaps_of(X)
        values = frame_values(X) if is_frame(X) else np.asarray(X)
        np.copyto(out, values, where=~gaps, casting="unsafe")
    return np.ma.MaskedArray(out) if isinstance(X, np.ma.MaskedArray) else out


def _sparse_back(X: Any, filled: Array, keep_observed: bool) -> Array:
    """A dense array of the dtype of the sparse matrix, its stored entries kept."""
    out = filled.astype(float_dtype(X))
    if keep_observed:
        observed = Observed.from_sparse(X)
        out[observed.rows, observed.indices] = observed.values
    return out


def _frame_back(X: Any, filled: Array, keep_observed: bool) -> Any:
    """A frame like ``X``; columns without a gap are the user's own."""
    gaps = gaps_of(X)
    if is_polars(X):
        import polars as pl

        return X.with_columns(
            pl.Series(
                name,
                _column(X[name].to_numpy(), filled[:, j], gaps[:, j], keep_observed),
            )
            for j, name in enumerate(X.columns)
            if gaps[:, j].any() or not keep_observed
        )
    out = X.copy()
    for j in range(X.shape[1]):
        if gaps[:, j].any() or not keep_observed:
            own = X.iloc[:, j].to_numpy(dtype=np.float64, na_value=np.nan)
            if str(X.dtypes.iloc[j]).lower() == "float32":
                own = own.astype(np.float32)
            out.isetitem(j, _column(own, filled[:, j], gaps[:, j], keep_observed))
    return out


def _column(own: Array, filled: Array, gaps: Array, keep_observed: bool) -> Array:
    """One column of the result in its own float dtype."""
    dtype = float_dtype(own)
    column = filled.astype(dtype)
    if keep_observed:
        np.copyto(column, own, where=~gaps, casting="unsafe")
    return column
