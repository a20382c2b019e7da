"""`BaseCompleter`: transform, predict, score, save and the end of `fit`, for all.

Below it are the functions that complete sources of rows chunk by chunk.
"""

from __future__ import annotations

import contextlib
import copy
import math
import os
import warnings
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

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
from ncarl.engines.cores import fit_context, limit_blas_threads
from ncarl.estimators.docstrings import fill_docstring
from ncarl.estimators.persistence import MODEL_KIND, estimator_state
from ncarl.estimators.validation import (
    INDICATOR_PREFIX,
    check_any_observed,
    check_dense_size,
    check_output_paths,
    check_positions,
    heldout_truth,
    is_matrix,
    resolve_return_std,
)
from ncarl.exceptions import NumericalWarning
from ncarl.fitting.loop import FitResult, History, Iterate, StepInfo
from ncarl.holdout import random_split
from ncarl.io import RowSource, open_rows, open_sink, prefetch
from ncarl.io.base import float_dtype, is_frame, is_polars, observations_from_dense
from ncarl.io.files import write_archive
from ncarl.metrics import MAX_FLOAT, relative_rmse
from ncarl.observations import Observations, check_sparse
from ncarl.progress import progress_bar
from ncarl.solvers.base import ratio
from ncarl.validation import check_flag

#: Dense results of sparse input are refused above this size by default.
MAX_DENSE_GB = 8.0
#: Bound of row positions in a source until its rows have been counted.
MAX_ROW_INDEX = 2**62
#: From ``warn`` in `BaseCompleter._end_fit` to the line that called ``fit``.
STACKLEVEL = 5
CONVERGENCE_HINT = "Raise max_iter or tol, or set tol=0 to run a fixed number of steps."
NOTHING_TO_SCORE = (
    "nothing to score: no entry is missing in X and observed in y, or X has too few "
    "observed entries to hold out a tenth of them"
)
#: Values and their standard deviations; None where these were not asked for.
Prediction = tuple[Array, Array | None]


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
        missing = observed.missing_mask()[:, self.indicators]
        if is_frame(filled):
            return self._select_of_frame(filled, missing)
        stack = np.ma.hstack if isinstance(filled, np.ma.MaskedArray) else np.hstack
        return stack([filled[:, self.kept], missing.astype(filled.dtype)])

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
    fill_empty: bool  # whether rows and columns without observed entries are filled
    max_dense_gb: float  # the largest result that is held in memory
    out: Path | None = None  # where the completed rows are written
    out_std: Path | None = None  # where their standard deviations are written
    columns: OutputColumns | None = None  # of the result, if not those of X

    def width(self, n: int) -> int:
        """Number of columns of the result of ``n`` columns."""
        if self.columns is None:
            return n
        return len(self.columns.kept) + len(self.columns.indicators)

    def select(
        self, filled: Any, deviations: Array | None, observed: Observations
    ) -> tuple[Any, Array | None]:
        """The columns of the result, and their standard deviations if there are any."""
        columns = self.columns
        if columns is not None:
            filled = columns.select(filled, observed)
        if deviations is not None and self.keep_observed:
            deviations[observed.rows, observed.indices] = 0.0
        if deviations is not None and columns is not None:
            zeros = np.zeros((len(deviations), len(columns.indicators)))
            deviations = np.hstack([deviations[:, columns.kept], zeros])
        return filled, deviations


@dataclass(eq=False, repr=False, kw_only=True)
class RunParameters:
    """Parameters that all estimators have, by keyword only."""

    engine: str | Engine = "auto"
    progress: bool = False
    callback: Callable[[StepInfo], object] | None = None
    checkpoint: str | os.PathLike[str] | None = None


class BaseCompleter(
    RunParameters,
    OneToOneFeatureMixin,
    TransformerMixin,
    BaseEstimator,
    metaclass=ABCMeta,
):
    """Base of all estimators.

    Subclasses are dataclasses of their parameters, and implement ``fit``,
    ``_read_rows``, ``_complete`` and ``_predict_entries``.
    """

    model_: Any
    unidentified_rows_: Array
    unidentified_columns_: Array
    #: Hint of the error if a model without noise is asked for standard deviations.
    _noise_hint = ""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        fit = vars(cls).get("fit")
        for documented in (cls, fit):
            fill_docstring(documented)
        if fit is not None:
            cls.fit = fit_context()(fit)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def fit_transform(self, X: Any, y: Any = None, **options: Any) -> Any:
        """Fit to ``X`` and complete it; options are those of ``transform``."""
        if sparse.issparse(X) and options.get("out") is None:
            check_dense_size(X.shape, options.get("max_dense_gb", MAX_DENSE_GB))
        return self.fit(X, y).transform(X, **options)

    @limit_blas_threads(1)
    def transform(
        self,
        X: Any,
        keep_observed: bool = True,
        return_std: bool | Literal["latent"] = False,
        max_dense_gb: float = MAX_DENSE_GB,
        out: str | os.PathLike[str] | None = None,
        out_std: str | os.PathLike[str] | None = None,
        fill_empty: bool = True,
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
        fill_empty : bool
            Complete rows and columns without observed entries by the center of the
            model; otherwise they stay missing, as do their standard deviations.

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
        fill = check_flag("fill_empty", fill_empty)
        options = TransformOptions(
            std, keep, fill, max_dense_gb, *paths, self._output_columns()
        )
        X = self._mark_missing(X)
        source = self._as_row_source(X)
        if options.out is not None:
            if source is None:
                return _complete_to_file(self, X, options)
            names, dtype = source.names, source.dtype
            return _complete_to_files(self, source, options, names, dtype)
        if source is not None:
            if hasattr(X, "map_blocks"):
                return _complete_dask(self, X, source, options)
            return _complete_in_memory(self, source, options)
        if sparse.issparse(X):
            check_dense_size(X.shape, max_dense_gb)
        observed = self._read_rows(X)
        filled, deviations = self._complete(observed, std)
        if not fill:
            self._clear_empty(observed, filled, deviations)
        result = restore_container(
            X, filled, keep_observed=keep, as_array=self._output_configured()
        )
        filled, deviations = options.select(result, deviations, observed)
        return filled if deviations is None else (filled, deviations)

    @limit_blas_threads(1)
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
            options = TransformOptions(std, False, True, MAX_DENSE_GB)
            return _complete_in_memory(self, source, options)
        if source is not None:
            predictions = _predict_source(self, source, rows, cols, std)
        elif cols is None:
            if sparse.issparse(matrix):
                check_dense_size(matrix.shape, MAX_DENSE_GB)
            predictions = self._complete(self._read_rows(matrix), std)
        elif X is None:
            predictions = self._predict_training(rows, cols, std)
        else:
            predictions = self._predict_at(self._read_rows(matrix), rows, cols, std)
        return predictions[0] if std is None else predictions

    @limit_blas_threads(1)
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
            return _score_source(self, source, _check_truth(y))
        observed = self._read_rows(X)
        if y is None or not is_matrix(y):
            kept, hidden = random_split(observed, 0.1, np.random.default_rng(0))
        else:
            kept, hidden = observed, heldout_truth(self, observed, y)
        if hidden.n_observed == 0:
            raise ValueError(NOTHING_TO_SCORE)
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
        header, arrays = estimator_state(self, training_data=training_data)
        write_archive(path, {"kind": MODEL_KIND, **header}, arrays)

    def _resolve_engine(self) -> Engine:
        fitted_here = getattr(self, "_engine_picked", False)
        return pick_engine(self.engine, quiet=fitted_here)

    def _output_configured(self) -> bool:
        own = getattr(self, "_sklearn_output_config", {}).get("transform")
        return bool((own or get_config()["transform_output"]) != "default")

    # --- fit -------------------------------------------------------------------------

    @contextlib.contextmanager
    def _observers(self, max_iter: int, label: str) -> Iterator[list[Any]]:
        """Observers of a fit: a progress bar, and ``callback``, which may end it."""
        with progress_bar(self.progress, max_iter, label) as advance:

            def show(iterate: Iterate[Any], history: History) -> None:
                advance(f"change {iterate.change:.1e}")

            def call(iterate: Iterate[Any], history: History) -> object:
                assert self.callback is not None
                return self.callback(
                    StepInfo(
                        step=iterate.step,
                        max_iter=max_iter,
                        objective=history.columns["objective"][-1],
                        change=iterate.change,
                        seconds=sum(iterate.seconds.values()),
                    )
                )

            yield [show] if self.callback is None else [show, call]

    def _set_run_attributes(
        self, engine: Engine, history: Mapping[str, Any], n_iter: int, converged: bool
    ) -> None:
        self.history_ = {name: np.asarray(col) for name, col in history.items()}
        self.n_iter_, self.converged_ = int(n_iter), converged
        self.engine_ = engine.describe()
        self._engine_picked = True

    def _end_fit(self, result: FitResult[Any], max_iter: int, tol: float) -> Self:
        """Re-raise Ctrl-C; warn of jitter, and of a fit that did not converge."""
        if result.interrupted:
            raise KeyboardInterrupt
        jitter = max(result.history.get("jitter", ()), default=0.0)
        if jitter > 0.0:
            warnings.warn(
                f"near-singular blocks were factorized with up to {jitter:.1e} of "
                "their diagonal added; a larger delta, or gamma, avoids that",
                NumericalWarning,
                stacklevel=STACKLEVEL,
            )
        if tol > 0.0 and not result.converged and result.last.step >= max_iter:
            warnings.warn(
                f"{type(self).__name__} did not converge in max_iter={max_iter} steps "
                f"(change {result.last.change:.1e}, tol {tol:.1e}); the last step is "
                f"kept. {CONVERGENCE_HINT}",
                ConvergenceWarning,
                stacklevel=STACKLEVEL,
            )
        return self

    def _clear_empty(
        self, observed: Observations, filled: Array, deviations: Array | None
    ) -> None:
        """Set NaN in rows and columns of which no entry was observed."""
        rows, columns = observed.row_counts == 0, self.unidentified_columns_
        if getattr(self, "transposed_", False):
            rows, columns = self.unidentified_rows_, observed.column_counts == 0
        for array in (filled,) if deviations is None else (filled, deviations):
            array[rows] = np.nan
            array[:, columns] = np.nan

    # --- implemented or overridden by subclasses -------------------------------------

    def _noise_level(self) -> float:
        """Noise of the model; 0 if it has none, and so no standard deviations."""
        return 0.0

    def _mark_missing(self, X: Any) -> Any:
        """``X`` with its missing entries marked as all methods expect them."""
        return X

    def _output_columns(self) -> OutputColumns | None:
        """Columns of the result of ``transform``; None if they are those of ``X``."""
        return None

    def _restore_indicator(self) -> None:
        """Make ``indicator_`` from what a file keeps of it."""

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
    def _check_all_params(self) -> Any:
        """Check all parameters, as far as no data are needed; what ``fit`` uses."""

    @abstractmethod
    def _read_rows(self, X: Any) -> Observations:
        """Entries of a matrix that the fitted model can complete."""

    @abstractmethod
    def _complete(
        self, observed: Observations, std: str | None, *, inductive: bool = False
    ) -> Prediction:
        """Smoothed matrix and its standard deviations.

        ``inductive`` treats rows as new even if they are those of the fit.
        """

    @abstractmethod
    def _predict_entries(
        self, observed: Observations, i: Array, j: Array, std: str | None, *,
        inductive: bool = False,
    ) -> Prediction:  # fmt: skip
        """Smoothed values at single entries, and their standard deviations."""

    # --- input -----------------------------------------------------------------------

    def _predict_at(
        self, observed: Observations, rows: Any, cols: Any, std: str | None
    ) -> Prediction:
        i, j = check_positions(rows, cols, observed.shape)
        if len(i) == 0:
            return np.empty(0), np.empty(0)
        return self._predict_entries(observed, i, j, std)

    def _predict_training(self, rows: Any, cols: Any, std: str | None) -> Prediction:
        return self._predict_at(self._training_entries(), rows, cols, std)

    def _training_entries(self) -> Observations:
        if getattr(self, "training_", None) is None:
            raise ValueError(
                "the training entries were not kept with this model; pass X=... (a "
                "fit of a source keeps none, a saved model only those asked for by "
                "training_data=True)"
            )
        entries: Observations = self.training_
        return entries

    def _read_training_matrix(self, X: Any) -> Observations:
        if as_source(X) is not None:
            raise TypeError(
                f"{type(self).__name__} needs its matrix in memory; NCARL and "
                "BayesianNCARL learn from sources of rows and from Dask arrays"
            )
        observed = validate_observations(self, X, reset=True)
        check_any_observed(observed.n_observed, observed.shape)
        return observed

    def _as_row_source(self, X: Any) -> RowSource | None:
        """``X`` as a source whose rows the model can complete; None for a matrix."""
        source = as_source(X)
        if source is None:
            return None
        if source.n_columns != self.n_features_in_:
            raise ValueError(
                f"X has {source.n_columns} columns, but {type(self).__name__} was "
                f"fitted to {self.n_features_in_}"
            )
        names = getattr(self, "feature_names_in_", None)
        if names is not None and source.names is not None:
            for j, (there, here) in enumerate(zip(names, source.names, strict=True)):
                if there != here:
                    raise ValueError(
                        "the columns of X must be named and ordered as those of the "
                        f"fit; column {j} is {here!r}, and was {there!r}"
                    )
        self._check_row_by_row("a source of rows")
        return source


def _iter_chunks(source: RowSource) -> Generator[tuple[int, Observations], None, None]:
    """Chunks of a source with the number of their first row, read by a thread.

    To be closed, so that the thread ends if a chunk fails.
    """
    first = 0
    with contextlib.closing(prefetch(source)) as chunks:
        for chunk in chunks:
            yield first, chunk
            first += chunk.shape[0]


def _complete_chunk(
    estimator: Any, observed: Observations, dtype: Any, options: TransformOptions,
    *, inductive: bool = True,
) -> Prediction:  # fmt: skip
    """Completed rows in the float type of results, and their standard deviations.

    Rows of a source are completed as new ones (``inductive``) even if they are those of
    the fit: the result must not depend on how a source is cut into chunks.
    """
    filled, deviations = estimator._complete(observed, options.std, inductive=inductive)
    if not options.fill_empty:
        estimator._clear_empty(observed, filled, deviations)
    filled = clip_to_float_range(filled, np.dtype(dtype))
    if options.keep_observed:
        filled[observed.rows, observed.indices] = observed.values
    return options.select(filled, deviations, observed)


def _complete_to_file(estimator: Any, X: Any, options: TransformOptions) -> Any:
    observed = estimator._read_rows(X)
    names = X.columns if is_frame(X) else getattr(estimator, "feature_names_in_", ())
    names = tuple(map(str, names)) if len(names) == observed.shape[1] else None
    source, dtype = open_rows(observed), float_dtype(X)
    if estimator._completes_row_by_row(observed):
        return _complete_to_files(estimator, source, options, names, dtype)
    try:
        check_dense_size(observed.shape, options.max_dense_gb)
    except ValueError:
        estimator._check_row_by_row("a result larger than max_dense_gb")
        raise
    whole = _complete_chunk(estimator, observed, dtype, options, inductive=False)
    return _write_pieces(iter([whole]), source, options, names, dtype)


def _complete_to_files(
    estimator: Any, source: RowSource, options: TransformOptions,
    names: tuple[str, ...] | None, dtype: Any,
) -> Any:  # fmt: skip
    with contextlib.closing(_iter_chunks(source)) as chunks:
        pieces = (
            _complete_chunk(estimator, chunk, dtype, options) for _, chunk in chunks
        )
        return _write_pieces(pieces, source, options, names, dtype)


def _write_pieces(
    pieces: Iterator[Prediction], source: RowSource, options: TransformOptions,
    names: tuple[str, ...] | None, dtype: Any,
) -> Any:  # fmt: skip
    out, out_std, columns = options.out, options.out_std, options.columns
    assert out is not None
    if columns is not None and names is not None:
        names = tuple(columns.names(names))
    layout: dict[str, Any] = {"names": names, "n_rows": source.n_rows}
    layout["n_columns"] = options.width(source.n_columns)
    files = {out: dtype} if out_std is None else {out: dtype, out_std: np.float64}
    with contextlib.ExitStack() as stack:
        sinks = [
            stack.enter_context(open_sink(path, dtype=np.dtype(kind), **layout))
            for path, kind in files.items()
        ]
        for piece in pieces:
            for sink, values in zip(sinks, piece, strict=False):
                sink.write(values)
    return out if out_std is None else (out, out_std)


def _complete_in_memory(
    estimator: Any, source: RowSource, options: TransformOptions
) -> Any:
    n, width = source.n_columns, options.width(source.n_columns)
    parts = [np.empty((0, width), dtype=source.dtype)]
    parts_std = [np.empty((0, width))]
    check_dense_size((source.n_rows or 0, n), options.max_dense_gb)
    with contextlib.closing(_iter_chunks(source)) as chunks:
        for first, chunk in chunks:
            check_dense_size((first + chunk.shape[0], n), options.max_dense_gb)
            x, std = _complete_chunk(estimator, chunk, source.dtype, options)
            parts.append(x)
            parts_std.extend([] if std is None else [std])
    whole = np.concatenate(parts)
    return whole if options.std is None else (whole, np.concatenate(parts_std))


def _complete_dask(
    estimator: Any, X: Any, source: RowSource, options: TransformOptions
) -> Any:
    from ncarl.engines.dask import complete_dask_array

    # Workers complete with their own threads, whatever did the fit.
    worker = copy.copy(estimator)
    worker.set_params(engine="threads", callback=None)
    worker.training_ = None
    columns, options = options.columns, replace(options, columns=None)

    def complete(output: int, dtype: np.dtype[Any]) -> Any:
        completer = partial(
            _complete_dask_block,
            estimator=worker, dtype=dtype, options=options, output=output,
        )  # fmt: skip
        result = complete_dask_array(X, completer, dtype)
        if columns is None:
            return result
        import dask.array as da

        indicate = partial(_missing_of_block, dtype=dtype)
        missing = complete_dask_array(X, indicate, dtype)[:, columns.indicators]
        parts = [result[:, columns.kept], missing * (output == 0)]
        return da.concatenate(parts, axis=1, allow_unknown_chunksizes=True)

    filled = complete(0, source.dtype)
    if options.std is None:
        return filled
    return filled, complete(1, np.dtype(np.float64))


def _complete_dask_block(
    block: Array, estimator: Any, dtype: Any, options: TransformOptions, output: int
) -> Array:
    """Completed rows (output 0) or standard deviations (1) of a block."""
    observed = observations_from_dense(np.asarray(block), 0, "a block of X")
    return _complete_chunk(estimator, observed, dtype, options)[output]


def _missing_of_block(block: Array, dtype: Any) -> Array:
    """1 where an entry of a block of a Dask array is missing, 0 elsewhere."""
    return np.isnan(np.asarray(block, dtype=np.float64)).astype(dtype)


def _predict_source(
    estimator: Any, source: RowSource, rows: Any, cols: Any, std: str | None
) -> Prediction:
    i, j = check_positions(rows, cols, (MAX_ROW_INDEX, source.n_columns))
    values, deviations = np.empty(len(i)), np.empty(len(i))
    order = np.argsort(i, kind="stable")
    seen = 0
    with contextlib.closing(_iter_chunks(source)) as chunks:
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
    return values, deviations


def _check_truth(y: Any) -> Any:
    """The truth that a source is scored against: a matrix in memory, or None."""
    if y is None:
        return None
    if as_source(y) is not None:
        raise TypeError(
            "y must be a matrix in memory where X is a source of rows; score some "
            "rows of it, or pass y=None to hold out entries of X"
        )
    if not is_matrix(y):
        return None
    return check_sparse(y, "y").tocsr() if sparse.issparse(y) else y


def _score_source(estimator: Any, source: RowSource, y: Any) -> float:
    """Minus the relative error on entries held out of each chunk, or on ``y``."""
    rng = np.random.default_rng(0)
    errors: list[float] = []
    sizes: list[float] = []
    seen = 0
    with contextlib.closing(_iter_chunks(source)) as chunks:
        for first, chunk in chunks:
            seen = first + chunk.shape[0]
            if y is not None and seen > y.shape[0]:
                break
            if y is None:
                kept, hidden = random_split(chunk, 0.1, rng)
            else:
                part = slice(first, seen)
                truth = y.iloc[part] if hasattr(y, "iloc") else y[part]
                kept, hidden = chunk, heldout_truth(estimator, chunk, truth)
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
        raise ValueError(NOTHING_TO_SCORE)
    return -min(ratio(math.hypot(*errors), math.hypot(*sizes)), MAX_FLOAT)
