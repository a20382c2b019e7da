"""`BaseCompleter`: transform, predict, score and save of all estimators.

Below it are the functions that complete sources of rows chunk by chunk, and what fits
have in common: progress bars, callbacks, warnings.
"""

from __future__ import annotations

import contextlib
import copy
import math
import os
import warnings
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from scipy import sparse
from sklearn import get_config
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from ncarl.containers import (
    as_source,
    clip_to_float_range,
    restore_container,
    validate_observations,
)
from ncarl.core.types import Array
from ncarl.dataset import rms_unit
from ncarl.engines import pick_engine
from ncarl.engines.base import Engine
from ncarl.estimators.persistence import save_estimator
from ncarl.estimators.validation import (
    INDICATOR_PREFIX,
    check_dense_size,
    check_output_paths,
    check_positions,
    heldout_truth,
    heldout_truth_rows,
    is_matrix,
    no_entries_message,
    resolve_return_std,
)
from ncarl.exceptions import NumericalWarning
from ncarl.fitting.loop import FitResult, History, Iterate, StepInfo
from ncarl.fitting.ncarl import KernelState, Settings
from ncarl.holdout import random_split
from ncarl.io import RowSource, open_rows, open_sink, prefetch
from ncarl.io.base import float_dtype, is_frame, is_polars, observations_from_dense
from ncarl.metrics import relative_rmse
from ncarl.observations import Observations
from ncarl.progress import progress_bar
from ncarl.validation import check_flag

#: Dense results of sparse input are refused above this size by default.
MAX_DENSE_GB = 8.0
CENTERS = (None, "mean", "columns", "two-way")
#: Bound of row positions in a source until its rows have been counted.
MAX_ROW_INDEX = 2**62
#: From ``warn`` in `warn_if_not_converged` to the line that called ``fit``.
STACKLEVEL = 4


@dataclass(frozen=True)
class OutputColumns:
    """Columns of the result of ``transform`` where they are not those of ``X``."""

    kept: Array  # columns of X in the result
    indicators: Array  # columns of X whose indicator of missing entries is appended

    def names(self, features: Any) -> list[str]:
        """Names of the columns of the result, given those of ``X``."""
        indicators = [f"{INDICATOR_PREFIX}{features[j]}" for j in self.indicators]
        return [features[j] for j in self.kept] + indicators

    def select(self, filled: Any, observed: Observations) -> Any:
        """Kept columns of a completed array or frame, then the indicators."""
        missing = np.ones(observed.shape, dtype=bool)
        missing[observed.rows, observed.indices] = False
        missing = missing[:, self.indicators]
        if is_frame(filled):
            return self._select_of_frame(filled, missing)
        stack = np.ma.hstack if isinstance(filled, np.ma.MaskedArray) else np.hstack
        return stack([filled[:, self.kept], missing.astype(filled.dtype)])

    def select_std(self, deviations: Array) -> Array:
        """Standard deviations of the same columns; 0 for the indicators."""
        zeros = np.zeros((len(deviations), len(self.indicators)))
        return np.hstack([deviations[:, self.kept], zeros])

    def _select_of_frame(self, frame: Any, missing: Array) -> Any:
        names = self.names([str(name) for name in frame.columns])[len(self.kept) :]
        columns = dict(zip(names, missing.T.astype(np.float64), strict=True))
        if not is_polars(frame):
            return frame.iloc[:, self.kept].assign(**columns)
        import polars as pl

        kept = frame[:, self.kept.tolist()]
        return kept.with_columns(pl.Series(name, x) for name, x in columns.items())


@dataclass(frozen=True)
class TransformOptions:
    """Checked options of a call of ``transform``."""

    std: str | None  # "observed", "latent" or None: which standard deviations
    keep_observed: bool  # whether observed entries are returned as they are
    max_dense_gb: float  # the largest result that is held in memory
    out: Path | None = None  # where the completed rows are written
    out_std: Path | None = None  # where their standard deviations are written
    columns: OutputColumns | None = None  # of the result, if not those of X


class BaseCompleter(
    OneToOneFeatureMixin, TransformerMixin, BaseEstimator, metaclass=ABCMeta
):
    """Base of all estimators.

    Subclasses store their parameters and implement ``fit``, ``_read_rows``,
    ``_complete`` and ``_predict_entries``.
    """

    engine: str | Engine
    model_: Any
    #: Fitted attributes that JSON can hold and a saved model keeps.
    _saved_scalars: tuple[str, ...] = ()
    #: Whether a fit sets ``similarity_``.
    _has_graph = False
    #: Hint of the error if a model without noise is asked for standard deviations.
    _noise_hint = ""

    def __sklearn_tags__(self) -> Any:
        """Missing entries and sparse input are allowed; float32 stays float32."""
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def fit_transform(self, X: Any, y: Any = None, **options: Any) -> Any:
        """Fit to ``X`` and complete it; options are those of ``transform``."""
        return self.fit(X, y).transform(X, **options)

    def transform(
        self,
        X: Any,
        keep_observed: bool = True,
        return_std: bool | Literal["latent"] = False,
        max_dense_gb: float = MAX_DENSE_GB,
        out: str | os.PathLike[str] | None = None,
        out_std: str | os.PathLike[str] | None = None,
    ) -> Any:
        """Complete the rows of ``X``, which need not be those of the fit.

        Parameters
        ----------
        X : array, masked array, frame, sparse matrix or source of rows
            Rows with missing entries. If the kernel is that of the rows, these must be
            the rows of the fit, and the columns may be new. Models of one matrix take
            that of the fit only. Rows of a source (`ncarl.open_rows`) are completed
            from the columns alone, as new rows are.
        keep_observed : bool
            Return observed entries bit for bit; otherwise the smoothed values of the
            model, which differ from them where it has noise.
        return_std : bool or "latent"
            Return standard deviations too: of an entry as it would be observed, or
            ("latent") of its value without noise. Needs a model of the noise.
        max_dense_gb : float
            A dense result of sparse input or of a source larger than this is refused,
            unless it is written to a file.
        out : path, optional
            File (.npy, .parquet, .csv, .tsv) or folder (.zarr) to write the completed
            rows to, block by block; an existing one is replaced when all is written.
        out_std : path, optional
            The same for the standard deviations.

        Returns
        -------
        filled : container like ``X``; a dense array if ``X`` is sparse or a source
            The completed matrix; the path if ``out`` is given; a lazy Dask array if
            ``X`` is one.
        std : array of the shape of ``filled``
            Only with ``return_std``; 0 at observed entries that were kept.
        """
        check_is_fitted(self)
        keep = check_flag("keep_observed", keep_observed)
        std = resolve_return_std(return_std, self._noise_level(), self._noise_hint)
        paths = check_output_paths(out, out_std, std)
        columns = self._output_columns()
        options = TransformOptions(std, keep, max_dense_gb, *paths, columns)
        X = self._mark_missing(X)
        source = self._as_row_source(X)
        if source is not None:
            return complete_source(self, X, source, options)
        if options.out is not None:
            return complete_to_file(self, X, options)
        if sparse.issparse(X):
            check_dense_size(X.shape, max_dense_gb)
        observed = self._read_rows(X)
        filled, deviations = self._complete(observed, std)
        result = restore_container(
            X, filled, keep_observed=keep, as_array=self._output_configured()
        )
        if columns is not None:
            result = columns.select(result, observed)
        if deviations is None:
            return result
        if keep:
            deviations[observed.rows, observed.indices] = 0.0
        if columns is not None:
            deviations = columns.select_std(deviations)
        return result, deviations

    def predict(
        self,
        rows: Any,
        cols: Any = None,
        return_std: bool | Literal["latent"] = False,
        *,
        X: Any = None,
    ) -> Any:
        """Values of the model at single entries, or at all entries of a matrix.

        Parameters
        ----------
        rows, cols : array-like of int, shape (entries,)
            Positions, counted from 0. Without ``cols``, ``rows`` is a matrix like
            that of ``transform`` and every entry of it is predicted, which is what
            scikit-learn's tools expect of ``predict``.
        return_std : bool or "latent"
            Return standard deviations too; needs a model of the noise.
        X : container or source of rows, optional
            The matrix that the positions refer to; by default that of the fit, if it
            was in memory.

        Returns
        -------
        values : array of shape (entries,), or (m, n) for a matrix
            Predictions; at observed entries the smoothed value.
        std : array of the same shape
            Only with ``return_std``.
        """
        check_is_fitted(self)
        std = resolve_return_std(return_std, self._noise_level(), self._noise_hint)
        matrix = self._mark_missing(rows if cols is None else X)
        source = self._as_row_source(matrix)
        if source is not None and cols is None:
            return complete_in_memory(
                self, source, TransformOptions(std, False, MAX_DENSE_GB)
            )
        if source is not None:
            values, deviations = predict_source(self, source, rows, cols, std)
            return values if deviations is None else (values, deviations)
        if cols is None:
            if sparse.issparse(matrix):
                check_dense_size(matrix.shape, MAX_DENSE_GB)
            values, deviations = self._complete(self._read_rows(matrix), std)
            return values if deviations is None else (values, deviations)
        observed = self._training_entries() if X is None else self._read_rows(matrix)
        i, j = check_positions(rows, cols, observed.shape)
        if len(i) == 0:
            empty = np.empty(0)
            return (empty, empty.copy()) if std else empty
        values, deviations = self._predict_entries(observed, i, j, std)
        return values if deviations is None else (values, deviations)

    def score(self, X: Any, y: Any = None) -> float:
        """Minus the relative root mean square error; higher is better.

        Parameters
        ----------
        X : container of shape (m, n), or source of rows
            Rows with missing entries.
        y : container of shape (m, n), optional
            The truth: entries missing in ``X`` and observed in ``y`` are scored.
            Without it a fixed tenth of the observed entries of ``X`` is held out (of a
            source: in every chunk), completed from the rest and scored.
        """
        check_is_fitted(self)
        X, y = self._mark_missing(X), self._mark_missing(y)
        source = self._as_row_source(X)
        if source is not None:
            return score_source(self, source, check_truth(y))
        observed = self._read_rows(X)
        if y is None or not is_matrix(y):
            kept, hidden = random_split(observed, 0.1, np.random.default_rng(0))
        else:
            kept, hidden = observed, heldout_truth(self, observed, y)
        if hidden.n_observed == 0:
            raise ValueError(
                "nothing to score: no entry is missing in X and observed in y, or X "
                "has too few observed entries to hold out a tenth of them"
            )
        i, j = hidden.rows, hidden.indices.astype(np.int64)
        guess, _ = self._predict_entries(kept, i, j, None)
        return -relative_rmse(hidden.values, guess)

    def save(
        self, path: str | os.PathLike[str], *, training_data: bool = False
    ) -> None:
        """Write the fitted model to a file that `ncarl.load` reads.

        Parameters
        ----------
        path : path
            The file; it is replaced as a whole, readable by its owner only.
        training_data : bool
            Keep the observed entries of the fit too, so that ``predict`` works after
            loading without ``X``. They are your data, and left out by default.
        """
        save_estimator(self, path, training_data=training_data)

    def _resolve_engine(self) -> Engine:
        """The engine that the parameter names."""
        fitted_here = getattr(self, "_engine_picked", False)
        return pick_engine(self.engine, quiet=fitted_here)

    def _output_configured(self) -> bool:
        """Whether ``set_output`` chose the container of results."""
        own = getattr(self, "_sklearn_output_config", {}).get("transform")
        return bool((own or get_config()["transform_output"]) != "default")

    def _noise_level(self) -> float:
        """Noise of the model; 0 if it has none, and so no standard deviations."""
        return 0.0

    def _mark_missing(self, X: Any) -> Any:
        """``X`` with its missing entries marked as all methods expect them."""
        return X

    def _output_columns(self) -> OutputColumns | None:
        """Columns of the result of ``transform``; None if they are those of ``X``."""
        return None

    def _as_row_source(self, X: Any) -> RowSource | None:
        """``X`` as a source whose rows the model can complete; None for a matrix."""
        source = as_source(X)
        if source is not None:
            check_feature_names(self, source)
            self._check_row_by_row("a source of rows")
        return source

    def _completes_row_by_row(self, observed: Observations) -> bool:
        """Whether each of these rows is completed independently of the others."""
        return False

    def _check_row_by_row(self, what: str) -> None:
        """Raise if rows cannot be completed independently; ``what`` needs that."""
        raise TypeError(
            f"{type(self).__name__} completes the matrix of its fit as a whole, which "
            f"{what} does not allow; use NCARL or BayesianNCARL"
        )

    @abstractmethod
    def _read_rows(self, X: Any) -> Observations:
        """Entries of a matrix that the fitted model can complete."""

    @abstractmethod
    def _complete(
        self, observed: Observations, std: str | None, *, inductive: bool = False
    ) -> tuple[Array, Array | None]:
        """Smoothed matrix and its standard deviations.

        ``inductive`` treats rows as new even if they are those of the fit.
        """

    @abstractmethod
    def _predict_entries(
        self, observed: Observations, i: Array, j: Array, std: str | None, *,
        inductive: bool = False,
    ) -> tuple[Array, Array | None]:  # fmt: skip
        """Smoothed values at single entries, and their standard deviations."""

    def _training_entries(self) -> Observations:
        """Observed entries of the fit."""
        if getattr(self, "training_", None) is None:
            raise ValueError(
                "the training entries were not kept with this model; pass X=... (a "
                "fit of a source keeps none, a saved model only those asked for by "
                "training_data=True)"
            )
        entries: Observations = self.training_
        return entries

    def _read_training_matrix(self, X: Any) -> Observations:
        """Entries of the matrix of a fit."""
        if as_source(X) is not None:
            raise TypeError(
                f"{type(self).__name__} needs its matrix in memory; NCARL and "
                "BayesianNCARL learn from sources of rows and from Dask arrays"
            )
        observed = validate_observations(self, X, reset=True)
        if observed.n_observed == 0:
            raise ValueError(no_entries_message(observed.shape))
        return observed


def set_feature_names(estimator: Any, source: RowSource) -> None:
    """Set the estimator's count and names of columns to those of a source."""
    estimator.n_features_in_ = source.n_columns
    if source.names is not None:
        estimator.feature_names_in_ = np.asarray(source.names, dtype=object)
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_


def check_feature_names(estimator: Any, source: RowSource) -> None:
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
def iter_numbered_chunks(
    source: RowSource,
) -> Iterator[Iterator[tuple[int, Observations]]]:
    """Chunks of a source with the number of their first row, read by a thread."""

    def number_chunks(
        chunks: Iterator[Observations],
    ) -> Iterator[tuple[int, Observations]]:
        first = 0
        for chunk in chunks:
            yield first, chunk
            first += chunk.shape[0]

    with contextlib.closing(prefetch(source)) as chunks:
        yield number_chunks(chunks)


def complete_chunk(
    estimator: Any,
    observed: Observations,
    dtype: Any,
    options: TransformOptions,
    *,
    inductive: bool = True,
) -> tuple[Array, Array | None]:
    """Completed rows in the float type of results, and their standard deviations.

    Rows of a source are completed as new ones (``inductive``) even if they are those of
    the fit: the result must not depend on how a source is cut into chunks.
    """
    filled, deviations = estimator._complete(observed, options.std, inductive=inductive)
    filled = clip_to_float_range(filled, np.dtype(dtype))
    if options.keep_observed:
        filled[observed.rows, observed.indices] = observed.values
        if deviations is not None:
            deviations[observed.rows, observed.indices] = 0.0
    if options.columns is not None:
        filled = options.columns.select(filled, observed)
        if deviations is not None:
            deviations = options.columns.select_std(deviations)
    return filled, deviations


def complete_source(
    estimator: Any, X: Any, source: RowSource, options: TransformOptions
) -> Any:
    """Completed rows of a source, in files, as a Dask array or in memory."""
    if options.out is not None:
        return _complete_to_files(estimator, source, options)
    if hasattr(X, "map_blocks"):
        return _complete_dask(estimator, X, source, options)
    return complete_in_memory(estimator, source, options)


def complete_to_file(estimator: Any, X: Any, options: TransformOptions) -> Any:
    """Complete a matrix into files; block by block if its rows are independent."""
    observed = estimator._read_rows(X)
    names, dtype = _column_names(estimator, X), float_dtype(X)
    if estimator._completes_row_by_row(observed):
        rows = NamedRows(open_rows(observed), names, dtype)
        return _complete_to_files(estimator, rows, options)
    try:
        check_dense_size(observed.shape, options.max_dense_gb)
    except ValueError:
        estimator._check_row_by_row("a result larger than max_dense_gb")
        raise
    pieces = iter(
        [complete_chunk(estimator, observed, dtype, options, inductive=False)]
    )
    m, n = observed.shape
    return _write_pieces(
        pieces, options, n_columns=n, names=names, n_rows=m, dtype=dtype
    )


def _column_names(estimator: Any, X: Any) -> tuple[str, ...] | None:
    """Names of the columns of a matrix: its own, or those of the fit."""
    if is_frame(X):
        return tuple(map(str, X.columns))
    names = getattr(estimator, "feature_names_in_", None)
    if names is None or len(names) != X.shape[1]:
        return None
    return tuple(map(str, names))


@dataclass(frozen=True)
class NamedRows:
    """A source with the column names and the float type of its container."""

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

    def __iter__(self) -> Iterator[Observations]:
        """Chunks of rows."""
        return iter(self.source)

    def chunk_loaders(self) -> Any:
        """Loaders of the chunks."""
        return self.source.chunk_loaders()


def _complete_to_files(
    estimator: Any, source: RowSource, options: TransformOptions
) -> Any:
    """Complete a source chunk by chunk into files; return their paths."""
    with iter_numbered_chunks(source) as chunks:
        pieces = (
            complete_chunk(estimator, chunk, source.dtype, options)
            for _, chunk in chunks
        )
        return _write_pieces(
            pieces, options, n_columns=source.n_columns, names=source.names,
            n_rows=source.n_rows, dtype=source.dtype,
        )  # fmt: skip


def _write_pieces(
    pieces: Iterator[tuple[Array, Array | None]],
    options: TransformOptions,
    *,
    n_columns: int,
    names: tuple[str, ...] | None,
    n_rows: int | None,
    dtype: Any,
) -> Any:
    """Write completed rows and their deviations piece by piece; return the paths."""
    out, out_std, columns = options.out, options.out_std, options.columns
    assert out is not None
    if columns is not None:
        n_columns = len(columns.kept) + len(columns.indicators)
        names = None if names is None else tuple(columns.names(names))
    layout: dict[str, Any] = {"n_columns": n_columns, "names": names, "n_rows": n_rows}
    with contextlib.ExitStack() as stack:
        sink = stack.enter_context(open_sink(out, dtype=dtype, **layout))
        sink_std = None
        if out_std is not None:
            sink_std = stack.enter_context(
                open_sink(out_std, dtype=np.dtype(np.float64), **layout)
            )
        for filled, deviations in pieces:
            sink.write(filled)
            if sink_std is not None:
                sink_std.write(deviations)
    return out if out_std is None else (out, out_std)


def complete_in_memory(
    estimator: Any, source: RowSource, options: TransformOptions
) -> Any:
    """The completed rows of a source as one array, if it is not too large."""
    n, columns = source.n_columns, options.columns
    width = n if columns is None else len(columns.kept) + len(columns.indicators)
    parts = [np.empty((0, width), dtype=source.dtype)]
    parts_std = [np.empty((0, width))]
    check_dense_size((source.n_rows or 0, n), options.max_dense_gb)
    with iter_numbered_chunks(source) as chunks:
        for first, chunk in chunks:
            check_dense_size((first + chunk.shape[0], n), options.max_dense_gb)
            filled, deviations = complete_chunk(estimator, chunk, source.dtype, options)
            parts.append(filled)
            parts_std.extend([] if deviations is None else [deviations])
    whole = np.concatenate(parts)
    return whole if options.std is None else (whole, np.concatenate(parts_std))


@dataclass(frozen=True)
class _DaskBlockCompleter:
    """Completes a block of a Dask array."""

    estimator: Any
    dtype: Any
    options: TransformOptions
    output_index: int  # 0 for values, 1 for standard deviations

    def __call__(self, block: Array) -> Array:
        observed = observations_from_dense(np.asarray(block), 0, "a block of X")
        return complete_chunk(self.estimator, observed, self.dtype, self.options)[
            self.output_index
        ]


def _complete_dask(
    estimator: Any, X: Any, source: RowSource, options: TransformOptions
) -> Any:
    """A Dask array of completed rows, and one of their standard deviations."""
    from ncarl.engines.dask import complete_dask_array

    # Workers complete with their own threads, whatever did the fit.
    worker = copy.copy(estimator)
    worker.set_params(engine="threads", callback=None)
    worker.training_ = None
    columns, options = options.columns, replace(options, columns=None)

    def complete(output_index: int, dtype: np.dtype[Any]) -> Any:
        completer = _DaskBlockCompleter(worker, dtype, options, output_index)
        result = complete_dask_array(X, completer, dtype)
        if columns is None:
            return result
        import dask.array as da

        indicate = partial(_missing_of_block, dtype=dtype)
        missing = complete_dask_array(X, indicate, dtype)[:, columns.indicators]
        parts = [result[:, columns.kept], missing * (output_index == 0)]
        return da.concatenate(parts, axis=1, allow_unknown_chunksizes=True)

    filled = complete(0, source.dtype)
    if options.std is None:
        return filled
    return filled, complete(1, np.dtype(np.float64))


def _missing_of_block(block: Array, dtype: Any) -> Array:
    """1 where an entry of a block of a Dask array is missing, 0 elsewhere."""
    return np.isnan(np.asarray(block, dtype=np.float64)).astype(dtype)


def predict_source(
    estimator: Any, source: RowSource, rows: Any, cols: Any, std: str | None
) -> tuple[Array, Array | None]:
    """Predictions at single entries of a source, from the rows that they lie in."""
    i, j = check_positions(rows, cols, (MAX_ROW_INDEX, source.n_columns))
    values, deviations = np.empty(len(i)), np.empty(len(i))
    order = np.argsort(i, kind="stable")
    seen = 0
    with iter_numbered_chunks(source) as chunks:
        for first, chunk in chunks:
            seen = first + chunk.shape[0]
            inside = order[slice(*np.searchsorted(i[order], [first, seen]))]
            if len(inside):
                x, x_std = estimator._predict_entries(
                    chunk, i[inside] - first, j[inside], std, inductive=True
                )
                values[inside] = x
                if x_std is not None:
                    deviations[inside] = x_std
    check_positions(i, j, (seen, source.n_columns))  # now that the rows are counted
    return values, None if std is None else deviations


def check_truth(y: Any) -> Any:
    """The truth that a source is scored against: a matrix in memory, or None."""
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


def score_source(estimator: Any, source: RowSource, y: Any) -> float:
    """Minus the relative error on entries held out of each chunk, or on ``y``."""
    rng = np.random.default_rng(0)
    errors: list[float] = []
    sizes: list[float] = []
    seen = 0
    with iter_numbered_chunks(source) as chunks:
        for first, chunk in chunks:
            seen = first + chunk.shape[0]
            if y is not None and seen > y.shape[0]:
                break
            if y is None:
                kept, hidden = random_split(chunk, 0.1, rng)
            else:
                kept, hidden = chunk, heldout_truth_rows(estimator, chunk, y, first)
            if hidden.n_observed == 0:
                continue
            i, j = hidden.rows, hidden.indices.astype(np.int64)
            guess, _ = estimator._predict_entries(kept, i, j, None, inductive=True)
            unit = rms_unit(hidden.values)
            residuals = (hidden.values - guess) / unit
            errors.append(unit * float(np.linalg.norm(residuals)))
            sizes.append(unit * float(np.linalg.norm(hidden.values / unit)))
    if y is not None and y.shape[0] != seen:
        raise ValueError(
            f"y must have the rows of X, got {y.shape[0]} rows, and X has "
            f"{seen}{' or more' if seen > y.shape[0] else ''}"
        )
    if not sizes:
        raise ValueError(
            "nothing to score: no entry is missing in X and observed in y, or X has "
            "too few observed entries to hold out a tenth of them"
        )
    error, size = math.hypot(*errors), math.hypot(*sizes)
    if size == 0.0:
        return 0.0 if error == 0.0 else -float("inf")
    return -error / size


@contextlib.contextmanager
def progress_callbacks(
    progress: bool,
    callback: Callable[[StepInfo], object] | None,
    max_iter: int,
    label: str,
) -> Iterator[list[Callable[[Any, History], object]]]:
    """Observers of a fit that advance a progress bar and call ``callback``.

    A callback that returns True ends the fit; the last step is kept.
    """
    with progress_bar(progress, max_iter, label) as advance:

        def show(iterate: Iterate[Any], history: History) -> None:
            advance(f"change {iterate.change:.1e}")

        def call(iterate: Iterate[Any], history: History) -> object:
            assert callback is not None
            return callback(
                StepInfo(
                    step=iterate.step,
                    max_iter=max_iter,
                    objective=history.columns["objective"][-1],
                    change=iterate.change,
                    seconds=sum(iterate.seconds.values()),
                )
            )

        yield [show] if callback is None else [show, call]


def warn_if_not_converged(
    name: str, settings: Settings, result: FitResult[KernelState]
) -> None:
    """Warn of jitter that was added, and of a fit that did not converge."""
    jitter = max(result.history["jitter"], default=0.0)
    if jitter > 0.0:
        warnings.warn(
            f"near-singular blocks were factorized with up to {jitter:.1e} of "
            "their diagonal added; a larger delta, or gamma, avoids that",
            NumericalWarning,
            stacklevel=STACKLEVEL,
        )
    steps = result.last.step
    if settings.tol > 0.0 and not result.converged and steps >= settings.max_iter:
        warnings.warn(
            f"{name} did not converge in max_iter={settings.max_iter} steps (change "
            f"{result.last.change:.1e}, tol {settings.tol:.1e}); the last step is "
            "kept. Raise max_iter or tol, or set tol=0 to run a fixed number of steps.",
            ConvergenceWarning,
            stacklevel=STACKLEVEL,
        )
