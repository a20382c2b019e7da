"""The work of ``ncarl complete``: read, fit, fill, write."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from scipy import sparse

from ncarl.cli.choices import Method
from ncarl.cli.files import ReadOptions, Table, read_table
from ncarl.cli.filling import check_size, count_missing, fill, write
from ncarl.cli.large import rows_of
from ncarl.cli.models import ModelOptions, build, decide_scale, engine_of
from ncarl.cli.outputs import Outputs, check_files
from ncarl.cli.usage import check_usage
from ncarl.core.types import Array


@dataclass(frozen=True)
class Job:
    """One run of ``ncarl complete``.

    Attributes
    ----------
    source : Path
        The input.
    reading : ReadOptions
        How to read it.
    model : ModelOptions
        Which model to fit.
    outputs : Outputs
        What to write.
    progress : bool
        Whether to show a progress bar.
    columns : sequence of str or None
        Which columns of a stream to use; None for all.
    look : bool
        Whether a page will want to know which entries of a stream were there.
    """

    source: Path
    reading: ReadOptions
    model: ModelOptions
    outputs: Outputs
    progress: bool = False
    columns: Sequence[str] | None = None
    look: bool = False


@dataclass(frozen=True)
class Passed:
    """A table that went by in blocks of rows.

    Attributes
    ----------
    shape : tuple of int
        Rows and columns.
    columns : sequence of str or None
        Names of the columns, where they have some.
    notes : sequence of str
        What was decided while reading, for the user to see.
    """

    shape: tuple[int, int]
    columns: Sequence[str] | None
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Done:
    """What a run found; ``estimator`` is None where there was nothing to fill.

    Attributes
    ----------
    table : Table or Passed
        What was read.
    missing : int
        Entries that were filled.
    scale, reason : str or None, str
        The scaling and why.
    deviation : float or None
        Mean standard deviation of filled entries, where the model has one; in spreads
        of their columns if these were scaled.
    warned : list of Warning
        Warnings of the reading and of the fit.
    glance : Glance or None
        Which entries of a stream were there, if that was asked for.
    """

    job: Job
    table: Table | Passed
    missing: int
    seconds: float = 0.0
    estimator: Any = None
    scale: str | None = None
    reason: str = ""
    deviation: float | None = None
    warned: Sequence[Warning] = ()
    glance: Any = None


def run(job: Job) -> Done:
    """Complete a table and write what was asked for."""
    if job.columns is not None:
        raise ValueError(
            "--columns goes with --stream; without it columns of text are kept, and "
            "--label names others to leave out"
        )
    check_usage(job.model, job.outputs)
    check_files(job.source, job.outputs, checkpoint_files(job.model))
    table = read_table(job.source, job.reading)
    missing = count_missing(table.values)
    done = Done(job, table, missing, warned=[*map(UserWarning, table.cautions)])
    if missing == 0 and not job.outputs.needs_fit:
        table.write(job.outputs.target.resolve(), _dense(table.values))
        return done
    check_size(table.values.shape, job.outputs)
    scale, reason = decide_scale(job.model, table.values, table.mixed_units)
    done = replace(done, scale=scale, reason=reason)
    return _fit_and_write(done, table)


def _fit_and_write(done: Done, table: Table) -> Done:
    """Fit, fill and write; the run with its results."""
    job, values = done.job, table.values
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught, engine_of(job.model) as engine:
        warnings.simplefilter("always")
        estimator = build(
            job.model, scale=done.scale, progress=job.progress, engine=engine
        )
        rows = rows_of(values, job.model, job.outputs)
        estimator.fit(rows)
        results = fill(estimator, values, rows, job.outputs, seed=job.model.seed)
    seconds = time.perf_counter() - start
    write(table, job.outputs, results)
    if job.outputs.saved is not None:
        estimator.save(job.outputs.saved.resolve())
    heard = [w.message for w in caught if isinstance(w.message, Warning)]
    return replace(
        done,
        estimator=estimator,
        seconds=seconds,
        deviation=results.deviation,
        warned=[*done.warned, *heard],
    )


def checkpoint_files(model: ModelOptions) -> dict[str, Path]:
    """The files in which a fit keeps its state, by what to call them."""
    path = model.checkpoint
    if path is None:
        return {}
    parts = ("columns", "rows") if model.method is Method.BAYES else ()
    beside = {
        f"--checkpoint (its part for the {part})": path.with_name(f"{path.name}.{part}")
        for part in parts
    }
    return {"--checkpoint": path, **beside}


def _dense(values: Any) -> Array:
    """A matrix without gaps as an array."""
    return values.toarray() if sparse.issparse(values) else values


def on_terminal() -> bool:
    """Whether a person is watching."""
    return sys.stdout.isatty() and sys.stderr.isatty()
