"""The work of ``ncarl complete --stream``: no more than some rows are in memory."""

from __future__ import annotations

import contextlib
import re
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ncarl.bayes.standard import fit_standard
from ncarl.cli.completion import Done, Job, Passed, checkpoint_files
from ncarl.cli.heading import notes_on_stream
from ncarl.cli.models import (
    build,
    engine_of,
    factor_between,
    scale_by,
    scale_without_looking,
)
from ncarl.cli.outputs import check_targets
from ncarl.cli.usage import check_stream_usage, check_usage
from ncarl.engines import Threads
from ncarl.observed import Observed
from ncarl.passing import Passing
from ncarl.progress import hundred_steps
from ncarl.sinks import open_sink
from ncarl.sinks.opening import KINDS
from ncarl.sources import RowSource, open_rows, prefetched
from ncarl.sources.opening import NAMED, NAMELESS, file_kind


def run_stream(job: Job) -> Done:
    """Complete a table in blocks of rows and write what was asked for."""
    check_stream_usage(job.model, job.outputs, job.reading)
    check_usage(job.model, job.outputs)
    check_paths(job)
    start = time.perf_counter()
    with in_flags():
        source = open_rows(job.source, columns=job.columns)
    notes = notes_on_stream(source)
    for path in _tables(job).values():
        # Nothing is written yet: this finds missing packages and folders of others.
        open_sink(path.resolve(), **_layout(source))
    with warnings.catch_warnings(record=True) as caught, engine_of(job.model) as engine:
        warnings.simplefilter("always")
        seen = look(job, source, engine)
        missing = seen.shape[0] * seen.shape[1] - seen.n_observed
        if missing == 0 and not job.outputs.needs_fit:
            _copy(source, job.outputs.target.resolve())
            return Done(job, Passed(seen.shape, source.names, notes), missing)
        glance = _glance(source, seen) if job.look else None
        estimator = _fit_and_write(job, source, seen, engine)
    return Done(
        job,
        Passed(seen.shape, source.names, notes),
        missing,
        seconds=time.perf_counter() - start,
        estimator=estimator,
        scale=seen.scale,
        reason=seen.reason,
        warned=[w.message for w in caught if isinstance(w.message, Warning)],
        glance=glance,
    )


def _glance(source: RowSource, seen: Seen) -> Any:
    """What a page shows of the table, from one more pass over it."""
    from ncarl.cli.glance import glance_along

    with contextlib.closing(prefetched(source)) as chunks:
        return glance_along(chunks, seen.shape)


@dataclass(frozen=True)
class Seen:
    """What the first passes over a table tell.

    Attributes
    ----------
    shape : tuple of int
        Rows and columns.
    n_observed : int
        Entries that are there.
    scale, reason : str or None, str
        The scaling and why.
    """

    shape: tuple[int, int]
    n_observed: int
    scale: str | None
    reason: str


def look(job: Job, source: RowSource, engine: Any) -> Seen:
    """Count the entries of a source, and decide on the scaling as for a table."""
    # A GPU has nothing to do here; workers of Dask have their part of the rows at hand.
    reader = Threads() if isinstance(engine, str) else engine
    with in_flags():
        entries = Passing.of(source, reader, named=False)
    survey = entries.survey
    mixed = file_kind(job.source) in NAMED
    decided = scale_without_looking(job.model, mixed)
    if decided is None:
        spreads = fit_standard(entries, scaled=True).centre.spreads
        decided = scale_by(factor_between(spreads[survey.column_counts >= 2]))
    return Seen(survey.shape, survey.n_observed, *decided)


def _fit_and_write(job: Job, source: RowSource, seen: Seen, engine: Any) -> Any:
    """Fit, complete block by block into files; the fitted estimator."""
    outputs = job.outputs
    estimator = build(job.model, scale=seen.scale, progress=job.progress, engine=engine)
    estimator.fit(source)
    # Links are followed, so that the file behind them is the one replaced.
    std = None if outputs.std is None else outputs.std.resolve()
    with hundred_steps(job.progress, seen.shape[0], "writing") as reached:
        estimator.transform(
            Shown(source, seen.shape[0], reached),
            return_std=std is not None,
            out=outputs.target.resolve(),
            out_std=std,
        )
    if outputs.saved is not None:
        estimator.save(outputs.saved.resolve())
    return estimator


def _copy(source: RowSource, path: Path) -> None:
    """Write a table without gaps as it is."""
    with (
        contextlib.closing(prefetched(source)) as chunks,
        open_sink(path, **_layout(source)) as sink,
    ):
        for chunk in chunks:
            # Without gaps the entries, stored row by row, are the whole array.
            sink.write(chunk.values.reshape(chunk.shape))


def _layout(source: RowSource) -> dict[str, Any]:
    """What a file for the rows of a source must know of them."""
    return {
        "n_columns": source.n_columns,
        "names": source.names,
        "dtype": source.dtype,
        "n_rows": source.n_rows,
    }


@dataclass(frozen=True)
class Shown:
    """A source whose reading moves a bar.

    Attributes
    ----------
    source : RowSource
        The source.
    total : int
        Its rows, which it need not know itself.
    reached : callable
        Told how many rows have been read.
    """

    source: RowSource
    total: int
    reached: Callable[[int], None]

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return self.source.n_columns

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.total

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the columns."""
        return self.source.names

    @property
    def dtype(self) -> np.dtype[Any]:
        """Float type of results."""
        return self.source.dtype

    def __iter__(self) -> Iterator[Observed]:
        """Chunks of rows in order."""
        rows = 0
        for chunk in self.source:
            yield chunk
            rows += chunk.shape[0]
            self.reached(rows)

    def parts(self) -> Sequence[Callable[[], Observed]] | None:
        """Loaders of the chunks."""
        return self.source.parts()


@contextlib.contextmanager
def in_flags() -> Iterator[None]:
    """A block whose errors name the option of the command, not that of the library."""
    try:
        yield
    except ValueError as error:
        text = re.sub(r"with columns=(\[\.\.\.\])?", "with --columns a,b,c", str(error))
        text = re.sub(r"^columns (?=names|needs)", "--columns ", text)
        if text == str(error):
            raise
        raise ValueError(text) from error


def check_paths(job: Job) -> None:
    """Raise if IN or a file to be written is not one that can be streamed.

    The rules are those of `ncarl.cli.outputs.check_files`, but formats may differ, and
    a Zarr array is a folder.
    """
    source, outputs = job.source, job.outputs
    if file_kind(source) not in (*NAMED, *NAMELESS):
        raise ValueError(
            "--stream reads .npy, .npz, .parquet, .csv, .tsv and .zarr, and folders of "
            f".parquet, got {str(source)!r}; leave out --stream, or write it as one of "
            "these"
        )
    tables, kept = _tables(job), checkpoint_files(job.model)
    for flag, path in tables.items():
        if not path.resolve().name.lower().endswith(KINDS):
            raise ValueError(
                f"{flag} of --stream must end in one of {', '.join(KINDS)}, got "
                f"{str(path)!r}"
            )
    saved = {} if outputs.saved is None else {"--save-model": outputs.saved}
    _refuse_nested({"IN": source, **kept, **tables, **saved})
    folders = {flag: path for flag, path in tables.items() if _is_zarr(path)}
    files = {f: p for f, p in (tables | saved).items() if f not in folders}
    for flag, path in folders.items():
        _check_zarr(flag, path, source, outputs.overwrite)
    check_targets(source, files, outputs.overwrite)
    if kept:
        # A checkpoint that exists is gone on from, so it is no file to replace.
        check_targets(source, {**kept, **files}, overwrite=True)


def _tables(job: Job) -> dict[str, Path]:
    """The tables that are to be written, by the option that names them."""
    found = {"OUT": job.outputs.target, "--std": job.outputs.std}
    return {flag: path for flag, path in found.items() if path is not None}


def _is_zarr(path: Path) -> bool:
    """Whether a path names a Zarr array, which is a folder."""
    return path.resolve().suffix.lower() == ".zarr"


def _refuse_nested(paths: dict[str, Path]) -> None:
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
    check_targets(source, {flag: place.with_name(f".{place.name}.new")}, overwrite)
    if overwrite or not place.exists():
        return
    what = "exists"
    if source.exists() and place.samefile(source):
        what = "is the input itself"
    raise ValueError(
        f"{flag} {str(path)!r} {what}; name another folder, or give --overwrite to "
        "replace it"
    )
