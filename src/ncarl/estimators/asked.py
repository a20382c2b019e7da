"""Checks of what a fitted estimator is asked for."""

from __future__ import annotations

from typing import Any

import numpy as np

from ncarl.containers import read
from ncarl.core.types import Array
from ncarl.estimators.parameters import check_number
from ncarl.observed import Observed


def std_kind(return_std: Any, noise: float, hint: str) -> str | None:
    """Which standard deviation is asked of a model with this noise.

    ``hint`` says what to do about a model without any.
    """
    flag = isinstance(return_std, bool | np.bool_)
    if flag and not return_std:
        return None
    if not flag and not (isinstance(return_std, str) and return_std == "latent"):
        raise ValueError(
            f"return_std must be True, False or 'latent', got {return_std!r}"
        )
    if noise == 0.0:
        raise ValueError(f"return_std needs a model of the noise, and {hint}")
    return "observed" if flag else "latent"


def refuse_large(shape: tuple[int, ...], max_dense_gb: Any) -> None:
    """Raise if a dense result would be larger than allowed."""
    check_number("max_dense_gb", max_dense_gb, low=0.0)
    size = float(np.prod(shape, dtype=np.float64)) * 8 / 1e9
    if size > max_dense_gb:
        raise ValueError(
            f"the completed {shape[0]} x {shape[-1]} matrix takes {size:.3g} GB, more "
            f"than max_dense_gb={max_dense_gb:g}. Use predict(rows, cols) for the "
            "entries you need, transform(X, out='filled.npy') to write it to a file "
            "block by block, or raise max_dense_gb."
        )


def nothing_observed(shape: tuple[int, int]) -> str:
    """What is said of a matrix without entries."""
    return (
        f"X has no observed entry (all {shape[0]} x {shape[1]} are missing); nothing "
        "can be learned from it"
    )


def position_pair(rows: Any, cols: Any, shape: tuple[int, int]) -> tuple[Array, Array]:
    """Row and column positions as int64 arrays of one length."""
    i, j = _positions("rows", rows, shape[0]), _positions("cols", cols, shape[1])
    if len(i) != len(j):
        raise ValueError(
            f"rows and cols must have one length, got {len(i)} and {len(j)}"
        )
    return i, j


def _positions(name: str, values: Any, bound: int) -> Array:
    """Positions as int64 within ``0 .. bound - 1``."""
    array = np.atleast_1d(np.asarray(values))
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ValueError(
            f"{name} must be a list of whole numbers, got dtype {array.dtype}, shape "
            f"{array.shape}"
        )
    if array.size and (array.min() < 0 or array.max() >= bound):
        raise ValueError(
            f"{name} must lie between 0 and {bound - 1}, got {array.min()} to "
            f"{array.max()}"
        )
    return array.astype(np.int64)


def is_matrix(y: Any) -> bool:
    """Whether ``y`` is a matrix of truths, not a target that is to be ignored."""
    return bool(len(getattr(y, "shape", np.shape(y))) == 2)


def known_in(estimator: Any, observed: Observed, y: Any) -> Observed:
    """Entries of ``y`` that are missing in ``observed``."""
    truth = read(estimator, y, reset=False, same_columns=False, name="y")
    if truth.shape != observed.shape:
        raise ValueError(
            f"y must have the shape of X, {observed.shape}, got {truth.shape}"
        )
    n = observed.shape[1]
    seen = observed.rows * n + observed.indices
    return truth.without(np.isin(truth.rows * n + truth.indices, seen))


def known_rows(estimator: Any, observed: Observed, y: Any, first: int) -> Observed:
    """Entries of some rows of ``y``, from ``first`` on, missing in ``observed``."""
    rows = slice(first, first + observed.shape[0])
    part = y.iloc[rows] if hasattr(y, "iloc") else y[rows]
    return known_in(estimator, observed, part)
