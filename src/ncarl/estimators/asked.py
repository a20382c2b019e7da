"""Checks of what a fitted estimator is asked for."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
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


@dataclass(frozen=True)
class Asked:
    """What ``transform`` was asked for.

    Attributes
    ----------
    std : {"observed", "latent"} or None
        Which standard deviations.
    keep : bool
        Whether observed entries are given back as they are.
    max_dense_gb : float
        The largest result that is held in memory.
    out, out_std : Path or None
        Where results are to be written.
    """

    std: str | None
    keep: bool
    max_dense_gb: float
    out: Path | None = None
    out_std: Path | None = None


def checked_outputs(
    out: Any, out_std: Any, std: str | None
) -> tuple[Path | None, Path | None]:
    """Paths of results, or an error that says which one lacks."""
    for name, path in (("out", out), ("out_std", out_std)):
        if path is not None and not isinstance(path, str | os.PathLike):
            raise TypeError(f"{name} must be a path, got {path!r}")
    if out_std is not None and (out is None or std is None):
        raise ValueError("out_std goes with out=... and return_std=True")
    if out is not None and std is not None and out_std is None:
        raise ValueError(
            "out_std must say where to write the standard deviations that "
            "return_std asks for"
        )
    paths = [None if path is None else Path(path) for path in (out, out_std)]
    if paths[0] and paths[1] and paths[0].resolve() == paths[1].resolve():
        raise ValueError(f"out and out_std must differ, got {out!r} for both")
    return paths[0], paths[1]
