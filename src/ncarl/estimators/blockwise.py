"""Rows of a source completed, predicted and scored some at a time."""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from ncarl.containers import as_source, held
from ncarl.core.types import Array
from ncarl.estimators.asked import (
    Asked,
    is_matrix,
    known_rows,
    position_pair,
    refuse_large,
)
from ncarl.holdout import hold_out
from ncarl.observed import Observed
from ncarl.sources import RowSource, open_rows, prefetched
from ncarl.sources.frames import float_dtype, is_frame
from ncarl.sources.protocol import observed_rows
from ncarl.surveys import unit_of

#: Positions are checked against the number of rows once all rows have been read.
ANY_ROWS = 2**62


def take_names(estimator: Any, source: RowSource) -> None:
    """Set the estimator's count and names of columns to those of a source."""
    estimator.n_features_in_ = source.n_columns
    if source.names is not None:
        estimator.feature_names_in_ = np.asarray(source.names, dtype=object)
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_


def check_names(estimator: Any, source: RowSource) -> None:
    """Raise unless the columns of a source are those of the fit."""
    if source.n_columns != estimator.n_features_in_:
        raise ValueError(
            f"X has {source.n_columns} columns, but {type(estimator).__name__} was "
            f"fitted to {estimator.n_features_in_}"
        )
    known = getattr(estimator, "feature_names_in_", None)
    if known is None or source.names is None or list(known) == list(source.names):
        return
    pairs = zip(known, source.names, strict=True)
    j, (there, here) = next((j, p) for j, p in enumerate(pairs) if p[0] != p[1])
    raise ValueError(
        f"the columns of X must be named and ordered as those of the fit; column {j} "
        f"is {here!r}, and was {there!r}"
    )


@contextlib.contextmanager
def chunks(source: RowSource) -> Iterator[Iterator[tuple[int, Observed]]]:
    """Chunks of a source and their first rows, read ahead by a thread."""

    def numbered(found: Iterator[Observed]) -> Iterator[tuple[int, Observed]]:
        first = 0
        for chunk in found:
            yield first, chunk
            first += chunk.shape[0]

    with contextlib.closing(prefetched(source)) as found:
        yield numbered(found)


def completed(
    estimator: Any, observed: Observed, dtype: Any, asked: Asked, *, apart: bool = True
) -> tuple[Array, Array | None]:
    """Some rows completed, in the float type of results, and their deviations.

    Rows of a source are completed ``apart`` from what else is known of them if they
    are those of the fit: which rows come together must make no difference.
    """
    filled, deviations = estimator._completed(observed, asked.std, apart=apart)
    filled = held(filled, np.dtype(dtype))
    if asked.keep:
        filled[observed.rows, observed.indices] = observed.values
        if deviations is not None:
            deviations[observed.rows, observed.indices] = 0.0
    return filled, deviations


def complete_source(estimator: Any, X: Any, source: RowSource, asked: Asked) -> Any:
    """Completed rows of a source, in files, as a Dask array or in memory."""
    if asked.out is not None:
        return _completed_to_files(estimator, source, asked)
    if hasattr(X, "map_blocks"):
        return _completed_lazily(estimator, X, source, asked)
    return gathered(estimator, source, asked)


def complete_to_file(estimator: Any, X: Any, asked: Asked) -> Any:
    """A completed matrix in files, row by row where no more is known of it."""
    observed = estimator._read_rows(X)
    labels, dtype = _labels(estimator, X), float_dtype(X)
    if estimator._completes_row_by_row(observed):
        rows = Named(open_rows(observed), labels, dtype)
        return _completed_to_files(estimator, rows, asked)
    try:
        refuse_large(observed.shape, asked.max_dense_gb)
    except ValueError:
        estimator._check_row_by_row("a result larger than max_dense_gb")
        raise
    pieces = iter([completed(estimator, observed, dtype, asked, apart=False)])
    m, n = observed.shape
    return _written(pieces, asked, n_columns=n, names=labels, n_rows=m, dtype=dtype)


def _labels(estimator: Any, X: Any) -> tuple[str, ...] | None:
    """Names of the columns of a matrix: its own, or those of the fit."""
    if is_frame(X):
        return tuple(map(str, X.columns))
    names = getattr(estimator, "feature_names_in_", None)
    if names is None or len(names) != X.shape[1]:
        return None
    return tuple(map(str, names))


@dataclass(frozen=True)
class Named:
    """A source with the names and the float type of what it was made of."""

    source: RowSource
    names: tuple[str, ...] | None
    dtype: np.dtype[Any]

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return self.source.n_columns

    @property
    def n_rows(self) -> int | None:
        """Number of rows."""
        return self.source.n_rows

    def __iter__(self) -> Iterator[Observed]:
        """Chunks of rows."""
        return iter(self.source)

    def parts(self) -> Any:
        """Loaders of the chunks."""
        return self.source.parts()


def _completed_to_files(estimator: Any, source: RowSource, asked: Asked) -> Any:
    """Complete a source chunk by chunk into files; their paths."""
    with chunks(source) as found:
        pieces = (completed(estimator, c, source.dtype, asked) for _, c in found)
        return _written(
            pieces, asked, n_columns=source.n_columns, names=source.names,
            n_rows=source.n_rows, dtype=source.dtype,
        )  # fmt: skip


def _written(
    pieces: Iterator[tuple[Array, Array | None]], asked: Asked, *, dtype: Any,
    **options: Any,
) -> Any:  # fmt: skip
    """Write completed rows and their deviations piece by piece; the paths."""
    from ncarl.sinks import open_sink

    assert asked.out is not None
    with contextlib.ExitStack() as stack:
        sink = stack.enter_context(open_sink(asked.out, dtype=dtype, **options))
        spread = None
        if asked.out_std is not None:
            spread = stack.enter_context(
                open_sink(asked.out_std, dtype=np.dtype(np.float64), **options)
            )
        for filled, deviations in pieces:
            sink.write(filled)
            if spread is not None:
                spread.write(deviations)
    return asked.out if asked.out_std is None else (asked.out, asked.out_std)


def gathered(estimator: Any, source: RowSource, asked: Asked) -> Any:
    """The completed rows of a source as one array, if it is not too large."""
    n = source.n_columns
    parts = [np.empty((0, n), dtype=source.dtype)]
    spreads = [np.empty((0, n))]
    refuse_large((source.n_rows or 0, n), asked.max_dense_gb)
    with chunks(source) as found:
        for first, chunk in found:
            refuse_large((first + chunk.shape[0], n), asked.max_dense_gb)
            filled, deviations = completed(estimator, chunk, source.dtype, asked)
            parts.append(filled)
            spreads.extend([] if deviations is None else [deviations])
    whole = np.concatenate(parts)
    return whole if asked.std is None else (whole, np.concatenate(spreads))


@dataclass(frozen=True)
class _Part:
    """Completes a block of a Dask array: its values, or their deviations."""

    estimator: Any
    dtype: Any
    asked: Asked
    which: int

    def __call__(self, block: Array) -> Array:
        """The completed block."""
        observed = observed_rows(np.asarray(block), 0, "a block of X")
        return completed(self.estimator, observed, self.dtype, self.asked)[self.which]


def _completed_lazily(estimator: Any, X: Any, source: RowSource, asked: Asked) -> Any:
    """A Dask array of completed rows, and one of their deviations if asked for."""
    from ncarl.dask_engine import completed_dask

    # Workers complete with their own threads, whatever did the fit.
    worker = copy.copy(estimator)
    worker.set_params(engine="threads", callback=None)
    worker.training_ = None
    filled = completed_dask(X, _Part(worker, source.dtype, asked, 0), source.dtype)
    if asked.std is None:
        return filled
    kind = np.dtype(np.float64)
    return filled, completed_dask(X, _Part(worker, kind, asked, 1), kind)


def predict_in(
    estimator: Any, source: RowSource, rows: Any, cols: Any, std: str | None
) -> tuple[Array, Array | None]:
    """Values at single entries of a source, from the rows that they lie in."""
    i, j = position_pair(rows, cols, (ANY_ROWS, source.n_columns))
    values, deviations = np.empty(len(i)), np.empty(len(i))
    order = np.argsort(i, kind="stable")
    seen = 0
    with chunks(source) as found:
        for first, chunk in found:
            seen = first + chunk.shape[0]
            asked = order[slice(*np.searchsorted(i[order], [first, seen]))]
            if len(asked):
                here = i[asked] - first
                x, spread = estimator._predicted(chunk, here, j[asked], std, apart=True)
                values[asked] = x
                if spread is not None:
                    deviations[asked] = spread
    position_pair(i, j, (seen, source.n_columns))  # now that the rows are counted
    return values, None if std is None else deviations


def checked_truth(y: Any) -> Any:
    """The truth that a source is scored with: a matrix in memory, or None."""
    if y is None or as_source(y) is not None:
        if y is not None:
            raise TypeError(
                "y must be a matrix in memory where X is a source of rows; score some "
                "rows of it, or pass y=None to hide entries of X"
            )
        return None
    if not is_matrix(y):
        return None
    return y.tocsr() if sparse.issparse(y) else y


def score_in(estimator: Any, source: RowSource, y: Any) -> float:
    """Minus the relative error on hidden entries of a source, hidden in each chunk."""
    rng = np.random.default_rng(0)
    errors: list[float] = []
    sizes: list[float] = []
    seen = 0
    with chunks(source) as found:
        for first, chunk in found:
            seen = first + chunk.shape[0]
            if y is not None and seen > y.shape[0]:
                break
            if y is None:
                kept, hidden = hold_out(chunk, 0.1, rng)
            else:
                kept, hidden = chunk, known_rows(estimator, chunk, y, first)
            if hidden.n_observed == 0:
                continue
            i, j = hidden.rows, hidden.indices.astype(np.int64)
            guess, _ = estimator._predicted(kept, i, j, None, apart=True)
            unit = unit_of(hidden.values)
            wrong = (hidden.values - guess) / unit
            errors.append(unit * float(np.linalg.norm(wrong)))
            sizes.append(unit * float(np.linalg.norm(hidden.values / unit)))
    if y is not None and y.shape[0] != seen:
        raise ValueError(
            f"y must have the rows of X, got {y.shape[0]} rows, and X has "
            f"{seen}{' or more' if seen > y.shape[0] else ''}"
        )
    if not sizes:
        raise ValueError(
            "nothing to score: no entry is missing in X and known in y, or X has too "
            "few observed entries to hide a tenth of them"
        )
    error, size = math.hypot(*errors), math.hypot(*sizes)
    if size == 0.0:
        return 0.0 if error == 0.0 else -float("inf")
    return -error / size
