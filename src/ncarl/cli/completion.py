"""The work of ``ncarl complete``: read, fit, fill, write."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from ncarl.cli.files import ReadOptions, Table, read_table
from ncarl.cli.models import ModelOptions, build, check_options, decide_scale
from ncarl.cli.outputs import check_format, check_targets
from ncarl.core.types import Array
from ncarl.observed import Observed


@dataclass(frozen=True)
class Job:
    """One run of ``ncarl complete``.

    Attributes
    ----------
    source, target : Path
        The input and the completed table.
    reading : ReadOptions
        How to read the input.
    model : ModelOptions
        Which model to fit.
    std, saved : Path or None
        Where standard deviations and the fitted model go.
    overwrite : bool
        Whether existing files may be replaced.
    progress : bool
        Whether to show a progress bar.
    """

    source: Path
    target: Path
    reading: ReadOptions
    model: ModelOptions
    std: Path | None = None
    saved: Path | None = None
    overwrite: bool = False
    progress: bool = False


@dataclass(frozen=True)
class Done:
    """What a run found; ``estimator`` is None where there was nothing to fill.

    Attributes
    ----------
    missing : int
        Entries that were filled.
    scale, reason : str or None, str
        The scaling and why.
    warned : list of Warning
        Warnings of the fit.
    """

    job: Job
    table: Table
    missing: int
    seconds: float = 0.0
    estimator: Any = None
    scale: str | None = None
    reason: str = ""
    warned: Sequence[Warning] = ()


def run(job: Job) -> Done:
    """Complete a table and write what was asked for."""
    check_options(job.model)
    _check_files(job)
    table = read_table(job.source, job.reading)
    missing = count_missing(table.values)
    done = Done(job, table, missing)
    if missing == 0 and job.std is None and job.saved is None:
        table.write(job.target.resolve(), _dense(table.values))
        return done
    scale, reason = decide_scale(job.model, table.values, table.mixed_units)
    done = replace(done, scale=scale, reason=reason)
    return _fit_and_write(done)


def _fit_and_write(done: Done) -> Done:
    """Fit, fill and write; the run with its results."""
    job, values = done.job, done.table.values
    estimator = build(job.model, scale=done.scale, progress=job.progress)
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        estimator.fit(values)
        filled = estimator.transform(values, return_std=job.std is not None)
    seconds = time.perf_counter() - start
    filled, deviations = filled if job.std is not None else (filled, None)
    # Links are followed, so that the file behind them is the one replaced.
    done.table.write(job.target.resolve(), filled)
    if job.std is not None and deviations is not None:
        done.table.write(job.std.resolve(), deviations, every=True)
    if job.saved is not None:
        estimator.save(job.saved.resolve())
    heard = [w.message for w in caught if isinstance(w.message, Warning)]
    return replace(done, estimator=estimator, seconds=seconds, warned=heard)


def _check_files(job: Job) -> None:
    """Raise if a file cannot be written, before the time for the fit is spent."""
    check_format(job.source, "OUT", job.target)
    targets = {"OUT": job.target}
    if job.std is not None:
        check_format(job.source, "--std", job.std)
        targets["--std"] = job.std
    if job.saved is not None:
        targets["--save-model"] = job.saved
    check_targets(job.source, targets, job.overwrite)
    if job.model.checkpoint is not None:
        # A checkpoint that exists is gone on from, so it is no file to replace.
        others = {"--checkpoint": job.model.checkpoint, **targets}
        check_targets(job.source, others, overwrite=True)


def count_missing(values: Any) -> int:
    """Number of gaps in a matrix."""
    if sparse.issparse(values):
        m, n = values.shape
        return int(m * n - Observed.from_sparse(values).n_observed)
    return int(np.isnan(values).sum())


def _dense(values: Any) -> Array:
    """A matrix without gaps as an array."""
    return values.toarray() if sparse.issparse(values) else values


def on_terminal() -> bool:
    """Whether a person is watching."""
    return sys.stdout.isatty() and sys.stderr.isatty()
