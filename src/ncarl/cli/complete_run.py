"""Run ``ncarl complete``: read a table, fit a model, write the completed table.

A table is completed in memory (`run_complete`), or in chunks of rows that are read
again in every step (`run_complete_stream`).
"""

from __future__ import annotations

import contextlib
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from ncarl.cli.console import check_outputs, check_suffix
from ncarl.cli.models import (
    ModelOptions,
    build_estimator,
    chunk_table,
    decide_scale,
    open_engine,
)
from ncarl.core.types import Array
from ncarl.dataset import StreamedDataset
from ncarl.engines.threads import Threads
from ncarl.estimators.base import MAX_DENSE_GB
from ncarl.estimators.bayesian import BayesianNCARL
from ncarl.fitting.checkpoint import CHECKPOINT_PARTS
from ncarl.io import RowSource, find_source_format, open_rows, open_sink, prefetch
from ncarl.io.base import watch_rows
from ncarl.io.csv import HEADER_NOTE, NO_HEADER_NOTE, DelimitedRows
from ncarl.io.files import atomic_write, write_npz
from ncarl.io.tables import (
    OPTION_FLAGS,
    ReadOptions,
    TableFile,
    detect_format,
    read_table,
    supported_suffixes,
)
from ncarl.observations import Observations
from ncarl.progress import percent_bar
from ncarl.registry import BASELINE_METHODS, METHODS, PAPER_METHODS, STREAMING_METHODS

#: Tables of at least so many entries and rows are fitted in chunks of rows. With so
#: many rows neither a kernel of the rows nor a search for similar rows is affordable,
#: so that nothing is lost.
MIN_CHUNKED_ENTRIES, MIN_CHUNKED_ROWS = 5_000_000, 50_000
#: Rows, and missing entries, sampled to estimate the mean standard deviation.
ROW_SAMPLE_SIZE = STD_SAMPLE_SIZE = 1000
#: Default nominal coverage of intervals.
DEFAULT_LEVEL = 0.9
#: Methods of the options that not every method has.
OPTION_METHODS = {
    **dict.fromkeys(
        ("--alpha", "--n-neighbors", "--gamma", "--weights", "--orientation"),
        PAPER_METHODS,
    ),
    **dict.fromkeys(
        [
            *("--sides", "--prior-strength", "--noise", "--clip", "--round"),
            "--components",
            *("--lower", "--upper", "--level", "--imputations", "--imputations-out"),
        ],
        ("bayes",),
    ),
    "--validation": ("bayes", "ncarl-cv", "soft-impute"),
    "--set": BASELINE_METHODS,
    "--center": tuple(m for m in METHODS if m != "bias"),
    **dict.fromkeys(("--dtype float32", "--engine dask"), ("bayes", *PAPER_METHODS)),
}
DROP_STREAM_HINT = "leave out --stream"
#: Options that --stream does not have, and what to do instead.
UNSTREAMABLE = {
    "--na": f"write missing cells as NA or leave them empty, or {DROP_STREAM_HINT}",
    "--label": "name the columns to use with --columns, which become OUT",
    "--header/--no-header": "a first line with a name in it is a header; add or "
    f"remove it, or {DROP_STREAM_HINT}",
    "--delimiter": "commas, semicolons and tabs are detected; use one of them in the "
    f"file, or {DROP_STREAM_HINT}",
    "--decimal": "decimals need a point; write them so in the file, or "
    f"{DROP_STREAM_HINT}",
    "--array": f"write that array to an NPY file, or {DROP_STREAM_HINT}",
    **dict.fromkeys(
        ("--lower", "--upper", "--level"), f"ask for --std, or {DROP_STREAM_HINT}"
    ),
    **dict.fromkeys(("--imputations", "--imputations-out"), DROP_STREAM_HINT),
}


@dataclass(frozen=True)
class CompleteJob:
    """What to complete, how, and what to write."""

    source: Path
    reading: ReadOptions
    model: ModelOptions
    outputs: Mapping[str, Path]  # by the option that names them; OUT is the table
    level: float | None = None  # nominal coverage of the intervals
    n_imputations: int | None = None
    overwrite: bool = False
    progress: bool = False

    @property
    def interval_level(self) -> float:
        """Nominal coverage of the intervals, by default `DEFAULT_LEVEL`."""
        return DEFAULT_LEVEL if self.level is None else self.level

    def given_flags(self) -> set[str]:
        """Options that were given and that not every method or stream has."""
        model = self.model
        others = {
            "--level": self.level is not None,
            "--imputations": self.n_imputations is not None,
            "--set": bool(model.settings),
            "--dtype float32": model.dtype == "float32",
            "--engine dask": model.engine == "dask",
        }
        return {
            *(f"--{name.replace('_', '-')}" for name in model.params),
            *self.outputs,
            *(OPTION_FLAGS[name] for name in self.reading.non_default),
            *(flag for flag, is_given in others.items() if is_given),
        }


@dataclass
class Completion:
    """What a run read, fitted and found; the report of the command describes it."""

    job: CompleteJob
    shape: tuple[int, int] = (0, 0)
    n_missing: int = 0
    columns: Sequence[str] | None = None  # names, if there are any
    notes: Sequence[str] = ()  # decisions made while reading
    table: TableFile | None = None  # None if it was read in chunks of rows
    estimator: Any = None  # None if nothing was missing
    scale: str | None = None
    scale_reason: str = ""
    mean_std: float | None = None  # of imputed entries, in `column_units`
    seconds: float = 0.0
    warnings: list[Warning] = field(default_factory=list)
    overview: Any = None  # of a stream, for its page: pattern and sample

    @contextlib.contextmanager
    def record(self) -> Iterator[None]:
        """Take down the time and the warnings of what is done inside the ``with``."""
        start = time.perf_counter()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
        self.seconds = time.perf_counter() - start
        self.warnings += [w.message for w in caught if isinstance(w.message, Warning)]

    @property
    def n_imputed(self) -> int:
        """Number of imputed entries: those missing in rows and columns with others."""
        (m, n), est = self.shape, self.estimator
        rows, columns = len(est.unidentified_rows_), len(est.unidentified_columns_)
        return self.n_missing - m * n + (m - rows) * (n - columns)

    @property
    def is_copy(self) -> bool:
        """Whether nothing is missing, and no output needs a model."""
        return self.n_missing == 0 and list(self.job.outputs) == ["OUT"]


def run_complete(job: CompleteJob) -> Completion:
    """Complete a table in memory and write the outputs."""
    check_options(job)
    check_files(job)
    table = read_table(job.source, job.reading)
    values, outputs = table.values, job.outputs
    if sparse.issparse(values):
        check_result_size(values.shape, "the completed", "use --stream on a CSR .npz")
    n_missing = int(missing_mask(values).sum())
    result = Completion(job, values.shape, n_missing, table.columns, table.notes, table)
    result.warnings += map(UserWarning, table.read_warnings)
    if result.is_copy:
        whole = values.toarray() if sparse.issparse(values) else values
        table.write(outputs["OUT"], whole)
        return result
    if job.n_imputations:
        what = f"--imputations {job.n_imputations} of a"
        check_result_size(values.shape, what, "ask for fewer", job.n_imputations)
    result.scale, result.scale_reason = decide_scale(job.model, values)
    with result.record(), open_engine(job.model.engine) as engine:
        estimator = result.estimator = build_estimator(
            job.model,
            scale=result.scale,
            progress=job.progress,
            engine=engine,
            needs_std="--std" in outputs,
        )
        rows = chunk_if_large(job, values)
        estimator.fit(rows)
        arrays, result.mean_std = predict_outputs(job, estimator, values, rows)
    for flag, array in arrays.items():
        path = outputs[flag]
        if flag == "--imputations-out":
            content = {"imputations": array}
            if table.columns is not None:
                content["columns"] = np.array(table.columns)
            with atomic_write(path) as temporary:
                write_npz(temporary, content)
        else:
            table.write(path, array, replace_observed=flag == "--std")
    if "--save-model" in outputs:
        estimator.save(outputs["--save-model"])
    return result


def check_options(job: CompleteJob, *, stream: bool = False) -> None:
    """Raise if an option does not apply, or options contradict each other."""
    model, method, params = job.model, job.model.method, job.model.params
    given = job.given_flags()
    if stream:
        _check_stream_options(model, given)
    for flag, methods in OPTION_METHODS.items():
        if flag in given and method not in methods:
            raise ValueError(
                f"{flag} belongs to --method {' or '.join(methods)}, not to {method}; "
                "leave it out, or change --method"
            )
    noisy = [flag for flag in ("--std", "--lower", "--upper") if flag in job.outputs]
    gamma = params.get("gamma")
    remedy = {
        "bayes": params.get("noise") == 0.0
        and "give --noise a positive number, or leave it out",
        "ncarl": gamma in (None, "none") and "give --gamma a positive number",
        "ncarl-cv": gamma == "none"
        and "give --gamma a positive number, or leave it out",
    }.get(method, "use --method bayes")
    if noisy and remedy:
        raise ValueError(f"{noisy[0]} needs a model of the noise; {remedy}")
    names = [name for name, _ in model.settings]
    flags = ("center", "scale", "max_iter", "tol", "engine", "checkpoint", "validation")
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"--set {name}=... is given twice; give it once")
        if name in flags:
            raise ValueError(f"--set {name}=...: give --{name.replace('_', '-')}")
        if name in ("progress", "callback", "random_state"):
            raise ValueError(f"--set {name}=...: cannot be set here; see --help")
    if job.level is not None and not {"--lower", "--upper"} & given:
        raise ValueError("--level needs --lower or --upper, the ends of intervals")
    if ("--imputations" in given) != ("--imputations-out" in given):
        raise ValueError(
            "--imputations and --imputations-out go together: how many completed "
            "tables to draw, and the .npz file for them"
        )
    check_suffix("--imputations-out", job.outputs.get("--imputations-out"), ".npz")
    if job.n_imputations is not None and params.get("sides") == "rows":
        raise ValueError(
            "--imputations needs a kernel of the columns; give --sides columns or both"
        )


def _check_stream_options(model: ModelOptions, given: set[str]) -> None:
    held = "in memory, which --stream never holds; give"
    if model.method not in STREAMING_METHODS:
        raise ValueError(
            f"--method {model.method} needs the table {held} --method "
            f"{' or '.join(STREAMING_METHODS)}, or {DROP_STREAM_HINT}"
        )
    for flag, remedy in UNSTREAMABLE.items():
        if flag in given:
            raise ValueError(f"{flag} is not available with --stream; {remedy}")
    for name in ("orientation", "sides"):
        side = model.params.get(name)
        if side in ("rows", "both"):
            raise ValueError(
                f"--{name} {side} needs all rows {held} --{name} columns, or "
                f"{DROP_STREAM_HINT}"
            )


def check_files(job: CompleteJob, *, stream: bool = False) -> None:
    """Raise before the fit if a file cannot be read or written."""
    source, outputs = job.source, job.outputs
    table_flags = ("OUT", "--std", "--lower", "--upper")
    tables = {flag: path for flag, path in outputs.items() if flag in table_flags}
    kept = checkpoint_files(job.model)
    folders = []
    if stream:
        if find_source_format(source) is None:
            raise ValueError(
                "--stream reads .npy, .npz, .parquet, .csv, .tsv and .zarr, and "
                f"folders of .parquet, got {str(source)!r}; leave out --stream, or "
                "write it as one of these"
            )
        for flag, path in tables.items():
            check_suffix(f"{flag} of --stream", path, *supported_suffixes("open_sink"))
        _reject_nested_paths({"IN": source, **kept, **outputs})
        folders = [f for f, p in tables.items() if p.suffix.lower() == ".zarr"]
    else:
        read = detect_format(source).name
        for flag, path in tables.items():
            if (written := detect_format(path).name) != read:
                raise ValueError(
                    f"{flag} must have the format of the input, which is {read} "
                    f"({source.name}), got {written} ({path.name})"
                )
    check_outputs(source, outputs, overwrite=job.overwrite, folders=folders)
    # An existing checkpoint is continued, not replaced.
    check_outputs(source, {**kept, **outputs}, overwrite=True, folders=folders)


def checkpoint_files(model: ModelOptions) -> dict[str, Path]:
    """Checkpoint files of a fit, by the option that names them."""
    path = model.params.get("checkpoint")
    if path is None:
        return {}
    parts = CHECKPOINT_PARTS.get(METHODS[model.method].class_name, ())
    beside = {
        f"--checkpoint (its part for the {part})": path.with_name(f"{path.name}.{part}")
        for part in parts
    }
    return {"--checkpoint": path, **beside}


def _reject_nested_paths(paths: Mapping[str, Path]) -> None:
    # A folder that is written to changes while it is read, and takes what is in it
    # along when it is replaced.
    places = {flag: Path(os.path.realpath(path)) for flag, path in paths.items()}
    for outer, folder in paths.items():
        for inner, path in paths.items():
            if places[outer] in places[inner].parents:
                raise ValueError(
                    f"{inner} {str(path)!r} lies in {outer} {str(folder)!r}; name a "
                    "place outside of it"
                )


def missing_mask(values: Any) -> Array:
    """True at the missing entries of a matrix."""
    if not sparse.issparse(values):
        return np.isnan(values)
    return Observations.from_sparse(values).missing_mask()


def check_result_size(
    shape: tuple[int, int], what: str, hint: str, count: int = 1
) -> None:
    """Raise before the fit if dense results would take too much memory."""
    m, n = shape
    size = count * m * n * 8 / 1e9
    if size > MAX_DENSE_GB:
        raise ValueError(
            f"{what} {m} x {n} matrix would take {size:.3g} GB, more than "
            f"{MAX_DENSE_GB:g}; {hint}"
        )


def chunk_if_large(job: CompleteJob, values: Any) -> Any:
    """A large table as a source of rows if the fit needs no more; else the table."""
    m, n = values.shape
    large = m * n >= MIN_CHUNKED_ENTRIES and m >= MIN_CHUNKED_ROWS and n <= m
    name = "orientation" if job.model.method == "ncarl" else "sides"
    by_columns = job.model.params.get(name, "auto") in ("auto", "columns")
    streamable = job.model.method in STREAMING_METHODS and not sparse.issparse(values)
    # Intervals and imputations need the training data.
    plain = not {"--lower", "--upper", "--imputations-out"} & set(job.outputs)
    if large and by_columns and streamable and plain:
        return chunk_table(values)
    return values


def predict_outputs(
    job: CompleteJob, estimator: Any, values: Any, rows: Any
) -> tuple[dict[str, Array], float | None]:
    """Arrays to write, by option, and the mean standard deviation of imputed entries.

    ``rows`` is the form of the table ``values`` that was fitted.
    """
    outputs = job.outputs
    filled = estimator.transform(rows, return_std="--std" in outputs, fill_empty=False)
    arrays = {"OUT": filled}
    if "--std" in outputs:
        arrays["OUT"], arrays["--std"] = filled
    if not isinstance(estimator, BayesianNCARL):
        return arrays, None
    filled = arrays["OUT"]
    left_empty = np.isnan(filled)
    missing = missing_mask(values) & ~left_empty
    mean_std = mean_missing_std(estimator, values, missing)
    if {"--lower", "--upper"} & set(outputs):
        ends = estimator.predict_interval(values, level=job.interval_level)
        for flag, end in zip(("--lower", "--upper"), ends, strict=True):
            if flag in outputs:
                arrays[flag] = np.where(missing, end, filled).astype(filled.dtype)
    if job.n_imputations is not None:
        draws = estimator.sample(job.n_imputations, random_state=job.model.seed)
        draws[:, left_empty] = np.nan
        arrays["--imputations-out"] = draws
    return arrays, mean_std


def mean_missing_std(
    estimator: BayesianNCARL, values: Any, missing: Array
) -> float | None:
    """Mean standard deviation of a sample of imputed entries, in `column_units`.

    None if nothing is missing, or the model has no noise.
    """
    rows = {}
    if estimator.training_ is None:  # fitted to chunks of rows
        chosen = _sample(np.flatnonzero(missing.any(axis=1)), ROW_SAMPLE_SIZE)
        rows["X"], missing = values[chosen], missing[chosen]
    places = _sample(np.flatnonzero(missing), STD_SAMPLE_SIZE)
    if len(places) == 0 or not np.any(np.asarray(estimator.noise_) > 0.0):
        return None
    i, j = np.unravel_index(places, missing.shape)
    _, std = estimator.predict(i, j, return_std=True, **rows)
    units = column_units(estimator)[j]
    varies = units > 0.0
    return float(np.mean(std[varies] / units[varies])) if varies.any() else None


def _sample(places: Array, size: int) -> Array:
    if len(places) <= size:
        return places
    return np.sort(np.random.default_rng(0).choice(places, size, replace=False))


def column_units(estimator: BayesianNCARL) -> Array:
    """Standard deviation of each column if columns were scaled, else 1."""
    scaler = estimator.model_.scaler
    scales: Array = scaler.centering.column_scales
    scaled = estimator.scale == "columns"
    return scales * scaler.unit if scaled else np.ones(len(scales))


def run_complete_stream(
    job: CompleteJob, columns: Sequence[str] | None, *, with_overview: bool
) -> Completion:
    """Complete a table, or some of its columns, in chunks of rows; write the outputs.

    The overview of the pattern of missing entries is for the page.
    """
    check_options(job, stream=True)
    check_files(job, stream=True)
    result = Completion(job)
    with result.record():
        source = open_rows(job.source, columns=columns)
        with open_engine(job.model.engine) as engine:
            _complete_stream(result, source, engine, with_overview=with_overview)
    return result


def _complete_stream(
    result: Completion, source: RowSource, engine: Any, *, with_overview: bool
) -> None:
    job = result.job
    paths = job.outputs
    result.columns = source.names
    if isinstance(source, DelimitedRows):
        result.notes = [NO_HEADER_NOTE if source.names is None else HEADER_NOTE]
    layout = {k: getattr(source, k) for k in ("n_columns", "names", "dtype", "n_rows")}
    for flag in {"OUT", "--std"} & set(paths):
        # Nothing is written yet: this finds missing packages and folders of others.
        open_sink(paths[flag], **layout)
    # A GPU has nothing to do here; Dask workers hold their part of the rows already.
    reader = Threads() if isinstance(engine, str) else engine
    dataset = StreamedDataset.from_source(source, reader, with_fingerprint=False)
    m, n = result.shape = dataset.summary.shape
    result.n_missing = m * n - dataset.summary.n_observed
    if result.is_copy:
        with (
            contextlib.closing(prefetch(source)) as chunks,
            open_sink(paths["OUT"], **layout) as sink,
        ):
            for chunk in chunks:
                # The entries, stored row by row, are the whole array.
                sink.write(chunk.values.reshape(chunk.shape))
        return
    result.scale, result.scale_reason = decide_scale(job.model, dataset)
    if with_overview:
        from ncarl.cli.complete_report import compute_stream_overview

        with contextlib.closing(prefetch(source)) as chunks:
            result.overview = compute_stream_overview(chunks, result.shape)
    estimator = result.estimator = build_estimator(
        job.model, scale=result.scale, progress=job.progress, engine=engine
    )
    estimator.fit(source)
    with percent_bar(job.progress, m, "writing") as reached:
        estimator.transform(
            watch_rows(source, partial(_report_rows, reached), m),
            return_std="--std" in paths,
            out=paths["OUT"],
            out_std=paths.get("--std"),
            fill_empty=False,
        )
    if "--save-model" in paths:
        estimator.save(paths["--save-model"])


def _report_rows(
    reached: Callable[[int], None], chunks: Iterable[Observations]
) -> Iterator[Observations]:
    rows = 0
    for chunk in chunks:
        yield chunk
        rows += chunk.shape[0]
        reached(rows)
