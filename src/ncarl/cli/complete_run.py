"""Run ``ncarl complete``: read a table, fit a model, write the completed table.

A table is completed in memory (`run_complete`), or in chunks of rows that are read
again in every step (`run_complete_stream`).
"""

from __future__ import annotations

import contextlib
import re
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from ncarl.cli.console import check_outputs, is_same_file
from ncarl.cli.models import (
    DEFAULT_LEVEL,
    STREAMING_METHODS,
    ModelOptions,
    OutputOptions,
    build_estimator,
    check_complete_options,
    check_stream_options,
    chunk_table,
    decide_scale,
    open_engine,
    scale_from_options,
    scale_from_units,
)
from ncarl.core.types import Array
from ncarl.dataset import StreamedDataset
from ncarl.engines.threads import Threads
from ncarl.estimators.base import MAX_DENSE_GB
from ncarl.estimators.bayesian import BayesianNCARL
from ncarl.io import (
    ARRAY_READERS,
    SINK_SUFFIXES,
    TABLE_SUFFIXES,
    RowSource,
    format_suffix,
    open_rows,
    open_sink,
    prefetch,
)
from ncarl.io.csv import HEADER_NOTE, NO_HEADER_NOTE, DelimitedRows
from ncarl.io.files import atomic_write
from ncarl.io.tables import (
    ReadOptions,
    TableFile,
    detect_format,
    read_table,
)
from ncarl.observations import Observations
from ncarl.progress import percent_bar

#: Tables of at least so many entries and rows are fitted in chunks of rows. With so
#: many rows neither a kernel of the rows nor a search for similar rows is affordable,
#: so that nothing is lost.
MIN_CHUNKED_ENTRIES, MIN_CHUNKED_ROWS = 5_000_000, 50_000
#: Rows, and missing entries, sampled to estimate the mean standard deviation.
ROW_SAMPLE_SIZE = 1000
STD_SAMPLE_SIZE = 1000


@dataclass(frozen=True)
class CompleteJob:
    """One run of ``ncarl complete``."""

    source: Path
    reading: ReadOptions
    model: ModelOptions
    outputs: OutputOptions
    progress: bool = False
    columns: Sequence[str] | None = None  # those of a stream to use; None for all
    needs_overview: bool = False  # whether a page will show the pattern of a stream


@dataclass(frozen=True)
class StreamedTable:
    """What is kept of a table that was read in chunks of rows."""

    shape: tuple[int, int]
    columns: Sequence[str] | None  # names, if it has any
    notes: Sequence[str] = ()  # decisions made while reading, for the user to see


@dataclass(frozen=True)
class CompleteResult:
    """Result of a run; ``estimator`` is None where nothing was missing.

    Attributes
    ----------
    table : TableFile or StreamedTable
        What was read.
    n_missing : int
        Entries that were filled.
    scale, scale_reason : str or None, str
        The scaling and the reason.
    mean_std : float or None
        Mean standard deviation of filled entries, where the model has one; in
        `column_units`.
    caught_warnings : list of Warning
        Warnings of the reading and of the fit.
    overview : TableOverview or None
        The pattern of observed entries of a stream, if requested.
    """

    job: CompleteJob
    table: TableFile | StreamedTable
    n_missing: int
    seconds: float = 0.0
    estimator: Any = None
    scale: str | None = None
    scale_reason: str = ""
    mean_std: float | None = None
    caught_warnings: Sequence[Warning] = ()
    overview: Any = None


def run_complete(job: CompleteJob) -> CompleteResult:
    """Complete a table in memory and write the outputs."""
    if job.columns is not None:
        raise ValueError(
            "--columns goes with --stream; without it columns of text are kept, and "
            "--label names others to leave out"
        )
    check_complete_options(job.model, job.outputs)
    check_complete_outputs(job)
    table = read_table(job.source, job.reading)
    missing = count_missing(table.values)
    done = CompleteResult(
        job, table, missing, caught_warnings=[*map(UserWarning, table.read_warnings)]
    )
    if missing == 0 and not job.outputs.needs_fit:
        table.write(job.outputs.target.resolve(), _to_dense(table.values))
        return done
    check_imputations_size(table.values.shape, job.outputs)
    scale, reason = decide_scale(job.model, table.values, table.mixed_units)
    done = replace(done, scale=scale, scale_reason=reason)
    return _fit_and_write_table(done, table)


def _fit_and_write_table(result: CompleteResult, table: TableFile) -> CompleteResult:
    """Fit, complete and write a table; the result with the fit."""
    job, values = result.job, table.values
    start = time.perf_counter()
    with (
        warnings.catch_warnings(record=True) as caught,
        open_engine(job.model) as engine,
    ):
        warnings.simplefilter("always")
        estimator = build_estimator(
            job.model, scale=result.scale, progress=job.progress, engine=engine
        )
        rows = chunk_if_large(values, job.model, job.outputs)
        estimator.fit(rows)
        results = predict_outputs(
            estimator, values, rows, job.outputs, seed=job.model.seed
        )
    seconds = time.perf_counter() - start
    write_outputs(table, job.outputs, results)
    if job.outputs.model_path is not None:
        estimator.save(job.outputs.model_path.resolve())
    messages = [w.message for w in caught if isinstance(w.message, Warning)]
    return replace(
        result,
        estimator=estimator,
        seconds=seconds,
        mean_std=results.mean_std,
        caught_warnings=[*result.caught_warnings, *messages],
    )


def chunk_if_large(values: Any, model: ModelOptions, outputs: OutputOptions) -> Any:
    """A large table as a source of rows if the fit needs no more; else the table."""
    if (
        sparse.issparse(values)
        or outputs.needs_intervals
        or outputs.imputations_path is not None
    ):
        return values
    m, n = values.shape
    tall = m * n >= MIN_CHUNKED_ENTRIES and m >= MIN_CHUNKED_ROWS and n <= m
    free = model.sides in (None, "auto", "columns")
    if model.method == "ncarl":
        free = model.orientation in (
            None,
            "auto",
            "columns",
        )
    streamable = model.method in STREAMING_METHODS
    return chunk_table(values) if tall and free and streamable else values


def check_complete_outputs(job: CompleteJob) -> None:
    """Raise before the fit if a file cannot be written."""
    source, outputs = job.source, job.outputs
    tables = {
        "OUT": outputs.target,
        "--std": outputs.std,
        "--lower": outputs.lower,
        "--upper": outputs.upper,
    }
    for flag, path in tables.items():
        if path is not None and detect_format(path) != detect_format(source):
            raise ValueError(
                f"{flag} must have the format of the input, which is "
                f"{detect_format(source)} ({source.name}), got {detect_format(path)} "
                f"({path.name})"
            )
    others = {
        "--imputations-out": outputs.imputations_path,
        "--save-model": outputs.model_path,
    }
    check_outputs(source, {**tables, **others}, overwrite=outputs.overwrite)
    # An existing checkpoint is continued, not replaced.
    kept = checkpoint_files(job.model)
    check_outputs(source, {**kept, **tables, **others}, overwrite=True)


def checkpoint_files(model: ModelOptions) -> dict[str, Path]:
    """Checkpoint files of a fit, by the option that names them."""
    path = model.checkpoint
    if path is None:
        return {}
    parts = ("columns", "rows") if model.method == "bayes" else ()
    beside = {
        f"--checkpoint (its part for the {part})": path.with_name(f"{path.name}.{part}")
        for part in parts
    }
    return {"--checkpoint": path, **beside}


def _to_dense(values: Any) -> Array:
    return values.toarray() if sparse.issparse(values) else values


def count_missing(values: Any) -> int:
    """Number of missing entries of a matrix."""
    if sparse.issparse(values):
        m, n = values.shape
        return int(m * n - Observations.from_sparse(values).n_observed)
    return int(np.isnan(values).sum())


def missing_mask(values: Any) -> Array:
    """True at the missing entries of a matrix."""
    if not sparse.issparse(values):
        return np.isnan(values)
    observed = Observations.from_sparse(values)
    missing = np.ones(observed.shape, dtype=bool)
    missing[observed.rows, observed.indices] = False
    return missing


def check_imputations_size(shape: tuple[int, int], outputs: OutputOptions) -> None:
    """Raise before the fit if the imputations would take too much memory."""
    m, n = shape
    size = (outputs.n_imputations or 0) * m * n * 8 / 1e9
    if size > MAX_DENSE_GB:
        raise ValueError(
            f"--imputations {outputs.n_imputations} of a {m} x {n} table take "
            f"{size:.3g} GB, more than {MAX_DENSE_GB:g}; ask for fewer"
        )


@dataclass(frozen=True)
class CompletedMatrix:
    """A completed matrix and the outputs that go with it.

    Attributes
    ----------
    filled : array of shape (m, n)
        The completed matrix.
    std, lower, upper : array of shape (m, n) or None
        Standard deviations, 0 at observed entries; ends of intervals, the observed
        value there.
    imputations : array of shape (count, m, n) or None
        Completed matrices drawn from the model.
    mean_std : float or None
        Mean standard deviation of filled entries, in `column_units`.
    """

    filled: Array
    std: Array | None = None
    lower: Array | None = None
    upper: Array | None = None
    imputations: Array | None = None
    mean_std: float | None = None


def predict_outputs(
    estimator: Any, values: Any, rows: Any, outputs: OutputOptions, *, seed: int
) -> CompletedMatrix:
    """The predictions of a fitted model that the outputs need.

    Parameters
    ----------
    estimator : estimator
        The model.
    values : array or sparse matrix
        The table.
    rows : array, sparse matrix or source
        The form of it that was fitted.
    outputs : OutputOptions
        What is to be written.
    seed : int
        Seed of the imputations.
    """
    std = lower = upper = imputations = mean_std = None
    filled = estimator.transform(rows, return_std=outputs.std is not None)
    if outputs.std is not None:
        filled, std = filled
    if isinstance(estimator, BayesianNCARL):
        missing = missing_mask(values)
        mean_std = mean_missing_std(estimator, values, missing, std)
        if outputs.needs_intervals:
            level = DEFAULT_LEVEL if outputs.level is None else outputs.level
            lower, upper = (
                np.where(missing, end, filled).astype(filled.dtype)
                for end in estimator.predict_interval(values, level=level)
            )
        if outputs.n_imputations is not None:
            imputations = estimator.sample(outputs.n_imputations, random_state=seed)
    return CompletedMatrix(filled, std, lower, upper, imputations, mean_std)


def mean_missing_std(
    estimator: BayesianNCARL, values: Any, missing: Array, std: Array | None
) -> float | None:
    """Mean standard deviation of filled entries, in `column_units`.

    Without ``std`` it is estimated from a sample of the missing entries. None if
    nothing is missing, or the model has no noise.
    """
    rows = {}
    if std is None and estimator.training_ is None:  # fitted to chunks of rows
        values = rows["X"] = sample_incomplete_rows(values, missing)
        missing = missing_mask(values)
    places = np.flatnonzero(missing)
    if len(places) == 0 or not np.any(np.asarray(estimator.noise_) > 0.0):
        return None
    if std is None and len(places) > STD_SAMPLE_SIZE:
        places = np.random.default_rng(0).choice(places, STD_SAMPLE_SIZE, replace=False)
    i, j = np.unravel_index(np.sort(places), missing.shape)
    if std is None:
        _, sampled = estimator.predict(i, j, return_std=True, **rows)
    else:
        sampled = std[i, j]
    units = column_units(estimator)[j]
    varies = units > 0.0
    return float(np.mean(sampled[varies] / units[varies])) if varies.any() else None


def sample_incomplete_rows(values: Array, missing: Array) -> Array:
    """A random sample of the rows with missing entries; all if they are few."""
    rows = np.flatnonzero(missing.any(axis=1))
    if len(rows) > ROW_SAMPLE_SIZE:
        rows = np.random.default_rng(0).choice(rows, ROW_SAMPLE_SIZE, replace=False)
    return values[np.sort(rows)]


def column_units(estimator: BayesianNCARL) -> Array:
    """Standard deviation of each column if columns were scaled, else 1."""
    scaler = estimator.model_.scaler
    scales: Array = scaler.centering.column_scales
    scaled = estimator.scale == "columns"
    return scales * scaler.unit if scaled else np.ones(len(scales))


def write_outputs(
    table: TableFile, outputs: OutputOptions, results: CompletedMatrix
) -> None:
    """Write the results; every file is whole or absent."""
    # Links are followed, so that the file behind them is the one replaced.
    table.write(outputs.target.resolve(), results.filled)
    if outputs.std is not None and results.std is not None:
        table.write(outputs.std.resolve(), results.std, replace_observed=True)
    if outputs.lower is not None and results.lower is not None:
        table.write(outputs.lower.resolve(), results.lower)
    if outputs.upper is not None and results.upper is not None:
        table.write(outputs.upper.resolve(), results.upper)
    if outputs.imputations_path is not None and results.imputations is not None:
        write_imputations(
            outputs.imputations_path.resolve(), results.imputations, table
        )


def write_imputations(path: Path, imputations: Array, table: TableFile) -> None:
    """Write imputations, and the names of their columns, as an NPZ file."""
    named = {} if table.columns is None else {"columns": np.array(table.columns)}
    with atomic_write(path) as temporary, temporary.open("wb") as stream:
        np.savez(stream, allow_pickle=False, imputations=imputations, **named)


def run_complete_stream(job: CompleteJob) -> CompleteResult:
    """Complete a table in chunks of rows and write the outputs."""
    check_stream_options(job.model, job.outputs, job.reading)
    check_complete_options(job.model, job.outputs)
    check_stream_paths(job)
    start = time.perf_counter()
    with translate_option_errors():
        source = open_rows(job.source, columns=job.columns)
    notes = []
    if isinstance(source, DelimitedRows):
        notes = [HEADER_NOTE if source.names is not None else NO_HEADER_NOTE]
    for path in _table_outputs(job).values():
        # Nothing is written yet: this finds missing packages and folders of others.
        open_sink(path.resolve(), **_sink_options(source))
    with (
        warnings.catch_warnings(record=True) as caught,
        open_engine(job.model) as engine,
    ):
        warnings.simplefilter("always")
        scan = scan_stream(job, source, engine)
        missing = scan.shape[0] * scan.shape[1] - scan.n_observed
        if missing == 0 and not job.outputs.needs_fit:
            _copy_rows(source, job.outputs.target.resolve())
            return CompleteResult(
                job, StreamedTable(scan.shape, source.names, notes), missing
            )
        overview = _stream_overview(source, scan) if job.needs_overview else None
        estimator = _fit_and_write_stream(job, source, scan, engine)
    return CompleteResult(
        job,
        StreamedTable(scan.shape, source.names, notes),
        missing,
        seconds=time.perf_counter() - start,
        estimator=estimator,
        scale=scan.scale,
        scale_reason=scan.scale_reason,
        caught_warnings=[w.message for w in caught if isinstance(w.message, Warning)],
        overview=overview,
    )


@dataclass(frozen=True)
class StreamScan:
    """What the first passes over a stream find: size and scaling."""

    shape: tuple[int, int]
    n_observed: int
    scale: str | None
    scale_reason: str


def scan_stream(job: CompleteJob, source: RowSource, engine: Any) -> StreamScan:
    """Count the observed entries of a source, and decide on the scaling."""
    # A GPU has nothing to do here; Dask workers hold their part of the rows already.
    reader = Threads() if isinstance(engine, str) else engine
    with translate_option_errors():
        dataset = StreamedDataset.from_source(source, reader, with_fingerprint=False)
    mixed_units = format_suffix(job.source) in TABLE_SUFFIXES
    decided = scale_from_options(job.model, mixed_units) or scale_from_units(dataset)
    return StreamScan(dataset.summary.shape, dataset.summary.n_observed, *decided)


def _stream_overview(source: RowSource, scan: StreamScan) -> Any:
    """The overview that a page shows, from one more pass over the table."""
    from ncarl.cli.complete_report import compute_stream_overview

    with contextlib.closing(prefetch(source)) as chunks:
        return compute_stream_overview(chunks, scan.shape)


def _fit_and_write_stream(
    job: CompleteJob, source: RowSource, scan: StreamScan, engine: Any
) -> Any:
    """Fit, complete and write chunk by chunk; the fitted estimator."""
    outputs = job.outputs
    estimator = build_estimator(
        job.model, scale=scan.scale, progress=job.progress, engine=engine
    )
    estimator.fit(source)
    # Links are followed, so that the file behind them is the one replaced.
    std = None if outputs.std is None else outputs.std.resolve()
    with percent_bar(job.progress, scan.shape[0], "writing") as advance:
        estimator.transform(
            ProgressRows(source, scan.shape[0], advance),
            return_std=std is not None,
            out=outputs.target.resolve(),
            out_std=std,
        )
    if outputs.model_path is not None:
        estimator.save(outputs.model_path.resolve())
    return estimator


def _copy_rows(source: RowSource, path: Path) -> None:
    """Write a table without missing entries as it is."""
    with (
        contextlib.closing(prefetch(source)) as chunks,
        open_sink(path, **_sink_options(source)) as sink,
    ):
        for chunk in chunks:
            # The entries, stored row by row, are the whole array.
            sink.write(chunk.values.reshape(chunk.shape))


def _sink_options(source: RowSource) -> dict[str, Any]:
    """Arguments of `open_sink` for a file that is to hold the rows of a source."""
    return {
        "n_columns": source.n_columns,
        "names": source.names,
        "dtype": source.dtype,
        "n_rows": source.n_rows,
    }


@dataclass(frozen=True)
class ProgressRows:
    """A source that reports how many of its rows have been read."""

    source: RowSource
    n_total_rows: int  # which the source itself need not know
    on_progress: Callable[[int], None]  # called with the number of rows read

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return self.source.n_columns

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.n_total_rows

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the columns."""
        return self.source.names

    @property
    def dtype(self) -> np.dtype[Any]:
        """Float type of results."""
        return self.source.dtype

    def __iter__(self) -> Iterator[Observations]:
        """Chunks of rows in order."""
        rows = 0
        for chunk in self.source:
            yield chunk
            rows += chunk.shape[0]
            self.on_progress(rows)

    def chunk_loaders(self) -> Sequence[Callable[[], Observations]] | None:
        """Loaders of the chunks."""
        return self.source.chunk_loaders()


@contextlib.contextmanager
def translate_option_errors() -> Iterator[None]:
    """Let errors name the option of the command, not the parameter of the library."""
    try:
        yield
    except ValueError as error:
        text = re.sub(r"with columns=(\[\.\.\.\])?", "with --columns a,b,c", str(error))
        text = re.sub(r"^columns (?=names|needs)", "--columns ", text)
        if text == str(error):
            raise
        raise ValueError(text) from error


def check_stream_paths(job: CompleteJob) -> None:
    """Raise if IN or a file to be written is not one that can be streamed.

    The rules are those of `ncarl.cli.console.check_outputs`, but formats may differ,
    and a Zarr array is a folder.
    """
    source, outputs = job.source, job.outputs
    if format_suffix(source) not in (*TABLE_SUFFIXES, *ARRAY_READERS):
        raise ValueError(
            "--stream reads .npy, .npz, .parquet, .csv, .tsv and .zarr, and folders of "
            f".parquet, got {str(source)!r}; leave out --stream, or write it as one of "
            "these"
        )
    tables, kept = _table_outputs(job), checkpoint_files(job.model)
    for flag, path in tables.items():
        if not path.resolve().name.lower().endswith(SINK_SUFFIXES):
            raise ValueError(
                f"{flag} of --stream must end in one of {', '.join(SINK_SUFFIXES)}, "
                f"got {str(path)!r}"
            )
    saved = {} if outputs.model_path is None else {"--save-model": outputs.model_path}
    _reject_nested_paths({"IN": source, **kept, **tables, **saved})
    folders = {flag: path for flag, path in tables.items() if _is_zarr(path)}
    files = {f: p for f, p in (tables | saved).items() if f not in folders}
    for flag, path in folders.items():
        _check_zarr(flag, path, source, outputs.overwrite)
    check_outputs(source, files, overwrite=outputs.overwrite)
    # An existing checkpoint is continued, not replaced.
    check_outputs(source, {**kept, **files}, overwrite=True)


def _table_outputs(job: CompleteJob) -> dict[str, Path]:
    """The tables that are to be written, by the option that names them."""
    paths = {"OUT": job.outputs.target, "--std": job.outputs.std}
    return {flag: path for flag, path in paths.items() if path is not None}


def _is_zarr(path: Path) -> bool:
    """Whether a path names a Zarr array, which is a folder."""
    return path.resolve().suffix.lower() == ".zarr"


def _reject_nested_paths(paths: dict[str, Path]) -> None:
    """Raise if one path lies in the folder that another one names.

    A folder that is written to changes while it is read, and takes what is in it along
    when it is replaced.
    """
    places = {flag: path.resolve() for flag, path in paths.items()}
    for outer, folder in places.items():
        for inner, place in places.items():
            if folder in place.parents:
                raise ValueError(
                    f"{inner} {str(paths[inner])!r} lies in {outer} "
                    f"{str(paths[outer])!r}; name a place outside of it"
                )
    if places.get("--std") == places["OUT"]:
        raise ValueError(f"OUT and --std name one file, {str(paths['OUT'])!r}")


def _check_zarr(flag: str, path: Path, source: Path, overwrite: bool) -> None:
    """Raise if a Zarr array cannot, or must not, be written."""
    place = path.resolve()
    # It is made beside the one it replaces, as any file would be.
    beside = {flag: place.with_name(f".{place.name}.new")}
    check_outputs(source, beside, overwrite=overwrite)
    if overwrite or not place.exists():
        return
    what = "is the input itself" if is_same_file(source, place) else "exists"
    raise ValueError(
        f"{flag} {str(path)!r} {what}; name another folder, or give --overwrite to "
        "replace it"
    )
