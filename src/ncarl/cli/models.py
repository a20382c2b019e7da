"""From options to an estimator: the scaling, the engine, the parameters."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from ncarl.centering import MIN_ENTRIES_FOR_SPREAD, compare_column_units
from ncarl.cli.options import DtypeChoice, FitEngineChoice, ScaleChoice
from ncarl.core.types import Array
from ncarl.dataset import StreamedDataset
from ncarl.engines.threads import Threads
from ncarl.estimators.base import BaseCompleter
from ncarl.estimators.ncarl_cv import NCARLCV
from ncarl.evaluation.comparison import default_parameters
from ncarl.fitting.checkpoint import Checkpoint
from ncarl.io.base import MemoryRows
from ncarl.observations import Observations
from ncarl.registry import BASELINE_METHODS, PAPER_METHODS, make, parameter_names

#: With ncarl and ncarl-cv, scaling puts the kernel on the columns; a wide table beyond
#: this is too costly.
MAX_SCALED_COLUMNS = 1000
#: Entries in a chunk of a table in memory. Several chunks are held at a time, so they
#: have to be small for memory to be saved.
CHUNK_ENTRIES = 1_000_000
#: Parameters of `NCARLCV` for a value that is given, as a grid of one.
GRIDS = {
    "alpha": "alphas",
    "n_neighbors": "n_neighbors",
    "gamma": "gammas",
    "center": "centers",
}


@dataclass(frozen=True)
class ModelOptions:
    """Options of the model."""

    method: str = "bayes"
    scale: ScaleChoice = "auto"
    seed: int = 0
    engine: FitEngineChoice = "auto"
    dtype: DtypeChoice = "float64"
    params: Mapping[str, Any] = field(default_factory=dict)  # those that were given
    settings: Sequence[tuple[str, Any]] = ()  # parameters of a baseline, by --set


def decide_scale(model: ModelOptions, table: Any) -> tuple[str | None, str]:
    """Scaling (None or "columns") of a matrix or `StreamedDataset`, and the reason."""
    if model.scale != "auto":
        return (None if model.scale == "none" else "columns"), "as requested"
    noise = model.params.get("noise")
    if model.method == "bayes" and isinstance(noise, float) and noise != 0.0:
        return None, "--noise is in the units of the values"
    if not isinstance(table, StreamedDataset):
        if model.method in PAPER_METHODS:  # scaling puts the kernel on the columns
            if model.params.get("orientation") == "rows":
                return None, "--orientation rows puts the kernel on the rows"
            m, n = table.shape
            if n > max(m, MAX_SCALED_COLUMNS):
                return None, f"{n} columns are too many for it"
        table = StreamedDataset.from_source(
            chunk_table(table), Threads(), with_fingerprint=False
        )
    # The rule of BayesianNCARL(scale="auto").
    scaled, ratio = compare_column_units(table)
    if ratio is None:
        least = MIN_ENTRIES_FOR_SPREAD
        return None, f"too few columns vary and have {least} observed entries"
    reason = f"standard deviations of columns differ by a factor of {ratio:.3g}"
    return ("columns" if scaled else None), reason


def chunk_table(values: Array) -> MemoryTrimmingRows:
    """A table in memory as a source of rows, of which no copy as a whole is made."""
    rows_per_chunk = max(1, CHUNK_ENTRIES // values.shape[1])
    return MemoryTrimmingRows.from_matrix(values, rows_per_chunk)


class MemoryTrimmingRows(MemoryRows):
    """Rows of a matrix in memory; memory used for a chunk is given back after it."""

    def __iter__(self) -> Iterator[Observations]:
        """Chunks of rows in order."""
        for chunk in super().__iter__():
            yield chunk
            # Otherwise the heaps of several threads keep freed memory in fragments
            # too small to be used again: half as much again as is in use.
            if (trim := load_malloc_trim()) is not None:
                trim(0)


@cache
def load_malloc_trim() -> Callable[[int], int] | None:
    """The C function that returns freed memory to the system; None without glibc."""
    try:
        function = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None
    function.argtypes = [ctypes.c_size_t]
    return function


@contextlib.contextmanager
def open_engine(name: FitEngineChoice) -> Iterator[Any]:
    """The engine of a name, for as long as it is needed.

    Workers of Dask are those of the scheduler that Dask is configured for
    (``DASK_SCHEDULER_ADDRESS``), or threads of this process.
    """
    if name != "dask":
        yield name
        return
    try:
        import dask

        from ncarl.engines.dask import Dask, LostWorkersError
    except ImportError as error:
        raise ImportError(
            "--engine dask needs Dask; install it with pip install 'ncarl[dask]'"
        ) from error
    with Dask(dask.config.get("scheduler-address", None)) as engine:
        try:
            _ = engine.link  # fails now if workers have another version, say
        except RuntimeError as error:
            raise ConnectionError(
                f"--engine dask (set DASK_SCHEDULER_ADDRESS, or unset it for threads "
                f"of this process): {error}"
            ) from error
        try:
            yield engine
        except LostWorkersError as error:
            raise ConnectionError(f"--engine dask: {error}") from error


def build_estimator(
    model: ModelOptions,
    *,
    scale: str | None,
    progress: bool = False,
    engine: Any = None,
    needs_std: bool = False,
) -> BaseCompleter:
    """The estimator that the options describe, with the scaling of `decide_scale`."""
    given: dict[str, Any] = {
        **default_parameters(model.method, scale=scale, seed=model.seed),
        "dtype": model.dtype,
        **{k: None if v == "none" else v for k, v in model.params.items()},
        "progress": progress,
        "engine": model.engine if engine is None else engine,
    }
    settings = dict(model.settings)
    if settings.get("nonnegative") and "center" not in model.params:
        given.pop("center", None)
    if given.pop("round", False):
        given["rounding"] = "observed"
    if model.method == "ncarl-cv":
        for name, grid in GRIDS.items():
            if name in given:
                given[grid] = (given.pop(name),)
        if needs_std:
            noisy = tuple(g for g in NCARLCV().gammas if g is not None)
            given.setdefault("gammas", noisy)
    if model.method in BASELINE_METHODS and "checkpoint" in given:
        # It is as large as the table: not after every step.
        given["checkpoint"] = Checkpoint(given["checkpoint"], every=2.0)
    known = parameter_names(model.method)
    usable = {name: value for name, value in given.items() if name in known}
    return make(model.method, **usable | settings)  # type: ignore[no-any-return]
