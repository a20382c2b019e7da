"""Model options of the commands: their checks, the scaling, and the estimator."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

from ncarl.centering import MIN_ENTRIES_FOR_SPREAD, compare_column_units
from ncarl.cli.options import (
    BASELINE_METHODS,
    CenterChoice,
    DtypeChoice,
    FitEngineChoice,
    OrientationChoice,
    ScaleChoice,
    SidesChoice,
    WeightsChoice,
)
from ncarl.core.types import Array
from ncarl.dataset import Dataset, StreamedDataset
from ncarl.engines.threads import Threads
from ncarl.estimators.base import BaseCompleter
from ncarl.estimators.bayesian import BayesianNCARL
from ncarl.estimators.ncarl import NCARL
from ncarl.estimators.ncarl_cv import NCARLCV
from ncarl.fitting.checkpoint import Checkpoint
from ncarl.io.base import MemoryRows, float_dtype
from ncarl.io.tables import ReadOptions
from ncarl.observations import Observations
from ncarl.registry import METHODS, make, parameter_names

#: With ncarl and ncarl-cv, scaling puts the kernel on the columns; a wide table beyond
#: this is too costly.
MAX_SCALED_COLUMNS = 1000
#: Entries in a chunk of a table in memory. Several chunks are held at a time, so they
#: have to be small for memory to be saved.
CHUNK_ENTRIES = 1_000_000
PAPER_METHODS = ("ncarl", "ncarl-cv")
BAYES_METHODS = ("bayes",)
#: Options that not every method has: field of `ModelOptions`, flag, methods.
MODEL_OPTION_METHODS = (
    ("alpha", "--alpha", PAPER_METHODS),
    ("n_neighbors", "--n-neighbors", PAPER_METHODS),
    ("gamma", "--gamma", PAPER_METHODS),
    ("weights", "--weights", PAPER_METHODS),
    ("orientation", "--orientation", PAPER_METHODS),
    ("sides", "--sides", BAYES_METHODS),
    ("prior_strength", "--prior-strength", BAYES_METHODS),
    ("noise", "--noise", BAYES_METHODS),
    ("clip", "--clip", BAYES_METHODS),
    ("rounding", "--round", BAYES_METHODS),
    (
        "validation",
        "--validation",
        (*BAYES_METHODS, "ncarl-cv", "soft-impute"),
    ),
    ("settings", "--set", BASELINE_METHODS),
    (
        "center",
        "--center",
        tuple(m for m in METHODS if m != "bias"),
    ),
)
#: The same for fields of `OutputOptions`.
BAYES_OUTPUT_OPTIONS = (
    ("lower", "--lower"),
    ("upper", "--upper"),
    ("level", "--level"),
    ("n_imputations", "--imputations"),
    ("imputations_path", "--imputations-out"),
)
#: Methods that learn from a table that is never in memory as a whole.
STREAMING_METHODS = ("bayes", "ncarl")
DROP_STREAM_HINT = "leave out --stream"
#: What --stream cannot do, and what to do instead: fields of `ReadOptions` and of
#: `OutputOptions`, flags, remedies.
UNSTREAMABLE_READ_OPTIONS = (
    (
        "na",
        "--na",
        f"write missing cells as NA or leave them empty, or {DROP_STREAM_HINT}",
    ),
    ("labels", "--label", "name the columns to use with --columns, which become OUT"),
    (
        "header",
        "--header/--no-header",
        "a first line with a name in it is a header; "
        f"add or remove it, or {DROP_STREAM_HINT}",
    ),
    (
        "delimiter",
        "--delimiter",
        "commas, semicolons and tabs are found out; use one "
        f"of them in the file, or {DROP_STREAM_HINT}",
    ),
    (
        "decimal",
        "--decimal",
        f"decimals need a point; write them so in the file, or {DROP_STREAM_HINT}",
    ),
    ("array", "--array", f"write that array to an NPY file, or {DROP_STREAM_HINT}"),
)
UNSTREAMABLE_OUTPUT_OPTIONS = (
    *((name, flag, f"ask for --std, or {DROP_STREAM_HINT}")
      for name, flag in (("lower", "--lower"), ("upper", "--upper"),
                         ("level", "--level"))),
    ("n_imputations", "--imputations", DROP_STREAM_HINT),
    ("imputations_path", "--imputations-out", DROP_STREAM_HINT),
)  # fmt: skip


@dataclass(frozen=True)
class ModelOptions:
    """Options of the model; None leaves a parameter to the estimator."""

    method: str = "bayes"
    alpha: float | None = None
    n_neighbors: int | None = None
    gamma: float | str | None = None  # "none" is the exact model
    center: CenterChoice | None = None
    weights: WeightsChoice | None = None
    max_iter: int | None = None
    tol: float | None = None
    orientation: OrientationChoice | None = None
    sides: SidesChoice | None = None
    prior_strength: float | str | None = None
    noise: float | str | None = None
    clip: tuple[float, float] | str | None = None  # bounds of filled values
    rounding: bool = False  # round filled values to observed ones
    validation: float | None = None
    seed: int = 0
    checkpoint: Path | None = None
    scale: ScaleChoice = "auto"
    needs_std: bool = False  # whether standard deviations will be written
    engine: FitEngineChoice = "auto"
    dtype: DtypeChoice = "float64"
    settings: tuple[tuple[str, Any], ...] = ()  # parameters of a baseline


#: Default nominal coverage of intervals.
DEFAULT_LEVEL = 0.9


@dataclass(frozen=True)
class OutputOptions:
    """Files that ``ncarl complete`` is to write; None for those it is not."""

    target: Path  # the completed table
    std: Path | None = None  # standard deviations
    lower: Path | None = None  # ends of intervals
    upper: Path | None = None
    level: float | None = None  # nominal coverage of the intervals
    n_imputations: int | None = None  # completed tables to draw
    imputations_path: Path | None = None
    model_path: Path | None = None
    overwrite: bool = False

    @property
    def needs_intervals(self) -> bool:
        """Whether intervals are to be written."""
        return self.lower is not None or self.upper is not None

    @property
    def needs_fit(self) -> bool:
        """Whether a model is needed even if nothing is missing."""
        others = (
            self.std,
            self.lower,
            self.upper,
            self.imputations_path,
            self.model_path,
        )
        return any(path is not None for path in others)


def check_stream_options(
    model: ModelOptions, outputs: OutputOptions, reading: ReadOptions
) -> None:
    """Raise if an option was given that a stream of rows cannot honor."""
    if model.method not in STREAMING_METHODS:
        raise ValueError(
            f"--method {model.method} needs the table in memory, which --stream never "
            f"holds; give --method {' or '.join(STREAMING_METHODS)}, or "
            f"{DROP_STREAM_HINT}"
        )
    for options, unstreamable in (
        (reading, UNSTREAMABLE_READ_OPTIONS),
        (outputs, UNSTREAMABLE_OUTPUT_OPTIONS),
    ):
        for name, flag, remedy in unstreamable:
            if getattr(options, name) not in (None, (), []):
                raise ValueError(f"{flag} cannot be had with --stream; {remedy}")
    if model.orientation == "rows":
        _reject_row_kernel("--orientation rows", "--orientation columns")
    if model.sides in ("rows", "both"):
        _reject_row_kernel(f"--sides {model.sides}", "--sides columns")


def _reject_row_kernel(given: str, instead: str) -> None:
    raise ValueError(
        f"{given} needs all rows in memory, which --stream never holds; give "
        f"{instead}, or {DROP_STREAM_HINT}"
    )


def check_complete_options(model: ModelOptions, outputs: OutputOptions) -> None:
    """Raise if the options contradict each other."""
    for flag, methods in _unsupported_options(model, outputs):
        names = " or ".join(methods)
        raise ValueError(
            f"{flag} belongs to --method {names}, not to {model.method}; leave it out, "
            "or change --method"
        )
    if model.method == "bayes":
        _check_bayes_noise(model, outputs)
    elif model.method in BASELINE_METHODS:
        _check_baseline_options(model, outputs)
    elif outputs.std is not None:
        _check_gamma(model)
    if outputs.level is not None and not outputs.needs_intervals:
        raise ValueError("--level needs --lower or --upper, the ends of intervals")
    _check_imputations(model, outputs)


def _unsupported_options(
    model: ModelOptions, outputs: OutputOptions
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Flags that were given and do not apply to the method, and methods they do."""
    for name, flag, methods in MODEL_OPTION_METHODS:
        given = getattr(model, name)
        if given not in (None, False, ()) and model.method not in methods:
            yield flag, methods
    if model.dtype == "float32" and model.method in BASELINE_METHODS:
        yield "--dtype float32", (*BAYES_METHODS, *PAPER_METHODS)
    if model.engine == "dask" and model.method in BASELINE_METHODS:
        yield "--engine dask", (*BAYES_METHODS, *PAPER_METHODS)
    for name, flag in BAYES_OUTPUT_OPTIONS:
        if getattr(outputs, name) is not None and model.method not in BAYES_METHODS:
            yield flag, BAYES_METHODS


def _check_bayes_noise(model: ModelOptions, outputs: OutputOptions) -> None:
    """Raise if error bars are asked of a model without noise."""
    for name, flag in (("std", "--std"), ("lower", "--lower"), ("upper", "--upper")):
        if getattr(outputs, name) is not None and model.noise == 0.0:
            raise ValueError(
                f"{flag} needs a model of the noise, and --noise 0 has none; give it a "
                "positive number, or leave it out"
            )


def _check_baseline_options(model: ModelOptions, outputs: OutputOptions) -> None:
    """Raise if a baseline is asked for error bars, or `--set` for what has a flag."""
    if outputs.std is not None:
        raise ValueError(
            f"--std needs a model of the noise, and {model.method} has none; use "
            "--method bayes"
        )
    flags = ("center", "scale", "max_iter", "tol", "engine", "checkpoint", "validation")
    names = [name for name, _ in model.settings]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"--set {name}=... is given twice; give it once")
        if name in flags:
            raise ValueError(f"--set {name}=...: give --{name.replace('_', '-')}")
        if name in ("progress", "callback", "random_state"):
            raise ValueError(f"--set {name}=...: cannot be set here; see --help")


def _check_gamma(model: ModelOptions) -> None:
    """Raise if standard deviations are asked of a model without noise."""
    single = model.method == "ncarl"
    if model.gamma == "none" or (single and model.gamma is None):
        raise ValueError(
            "--std needs a model of the noise; give --gamma a positive number"
            + ("" if single else ", or leave it out")
        )


def _check_imputations(model: ModelOptions, outputs: OutputOptions) -> None:
    """Raise if the options of draws are incomplete, or no draws can be made."""
    if (outputs.n_imputations is None) != (outputs.imputations_path is None):
        raise ValueError(
            "--imputations and --imputations-out go together: how many completed "
            "tables to draw, and the .npz file for them"
        )
    if outputs.imputations_path is None:
        return
    if not outputs.imputations_path.name.lower().endswith(".npz"):
        raise ValueError(
            "--imputations-out must end in .npz, whatever IN is, got "
            f"{str(outputs.imputations_path)!r}"
        )
    if model.sides == "rows":
        raise ValueError(
            "--imputations needs a kernel of the columns; give --sides columns or both"
        )


def decide_scale(
    options: ModelOptions, values: Any, mixed_units: bool
) -> tuple[str | None, str]:
    """The scaling of a table in memory, None or "columns", and the reason.

    Parameters
    ----------
    options : ModelOptions
        The model.
    values : array or sparse matrix
        The table, NaN in missing entries.
    mixed_units : bool
        Whether its columns may have units of their own.
    """
    decided = scale_from_options(options, mixed_units)
    if decided is not None:
        return decided
    if options.method in PAPER_METHODS:
        # There scaling puts the kernel on the columns.
        if options.orientation == "rows":
            return None, "the kernel is to sit on the rows"
        m, n = values.shape
        if n > max(m, MAX_SCALED_COLUMNS):
            return None, f"{n} columns are too many for it"
    rows = chunk_table(values)
    return scale_from_units(
        StreamedDataset.from_source(rows, Threads(), with_fingerprint=False)
    )


def scale_from_options(
    options: ModelOptions, mixed_units: bool
) -> tuple[str | None, str] | None:
    """The scaling and the reason where neither depends on the values; else None."""
    if options.scale != "auto":
        return (None if options.scale == "none" else "columns"), "as asked"
    if not mixed_units:
        return None, "a matrix file has one unit"
    known_noise = isinstance(options.noise, float) and options.noise != 0.0
    if options.method == "bayes" and known_noise:
        return None, "--noise is in the units of the values"
    return None


def scale_from_units(dataset: Dataset) -> tuple[str | None, str]:
    """The scaling that ``BayesianNCARL(scale="auto")`` chooses, and the reason."""
    scaled, ratio = compare_column_units(dataset)
    if ratio is None:
        least = MIN_ENTRIES_FOR_SPREAD
        return None, f"too few columns vary and have {least} observed entries"
    reason = f"standard deviations of columns differ by a factor of {ratio:.3g}"
    return ("columns" if scaled else None), reason


def chunk_table(values: Array) -> MemoryTrimmingRows:
    """A table in memory as a source of rows, of which no copy as a whole is made."""
    rows_per_chunk = max(1, CHUNK_ENTRIES // values.shape[1])
    return MemoryTrimmingRows(values, float_dtype(values), rows_per_chunk)


class MemoryTrimmingRows(MemoryRows):
    """Rows of a matrix in memory; memory used for a chunk is given back after it."""

    def __iter__(self) -> Iterator[Observations]:
        """Chunks of rows in order."""
        for chunk in super().__iter__():
            yield chunk
            # Otherwise the heaps of several threads keep freed memory in fragments
            # too small to be used again: half as much again as is in use.
            trim = load_malloc_trim()
            if trim is not None:
                trim(0)


@cache
def load_malloc_trim() -> Callable[[int], int] | None:
    """The C function that returns freed memory to the system; None without glibc."""
    try:
        function = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None
    function.argtypes = [ctypes.c_size_t]
    return cast(Callable[[int], int], function)


@contextlib.contextmanager
def open_engine(options: ModelOptions) -> Iterator[Any]:
    """The engine that the options name, for as long as it is needed.

    Workers of Dask are those of the scheduler that Dask is configured for
    (``DASK_SCHEDULER_ADDRESS``), or threads of this process.
    """
    if options.engine != "dask":
        yield str(options.engine)
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
            _ = engine.link  # workers of another version, say, are found out now
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
    options: ModelOptions, *, scale: str | None, progress: bool, engine: Any = None
) -> Any:
    """The estimator that the options describe.

    Parameters
    ----------
    options : ModelOptions
        The model.
    scale : {None, "columns"}
        The scaling, as `decide_scale` chose it.
    progress : bool
        Whether to show a progress bar.
    engine : str or Engine, optional
        The engine, if it has been made already (`open_engine`).
    """
    shared: dict[str, Any] = {
        "weights": options.weights and str(options.weights),
        "max_iter": options.max_iter,
        "tol": options.tol,
        "orientation": options.orientation and str(options.orientation),
        "checkpoint": options.checkpoint,
    }
    given = {name: value for name, value in shared.items() if value is not None}
    given |= {"scale": scale, "progress": progress}
    given["engine"] = str(options.engine) if engine is None else engine
    given["dtype"] = str(options.dtype)
    builders = {
        "bayes": _build_bayesian,
        "ncarl-cv": _build_ncarl_cv,
        "ncarl": _build_ncarl,
    }
    return builders.get(options.method, _build_baseline)(options, given)


def _build_baseline(options: ModelOptions, params: dict[str, Any]) -> BaseCompleter:
    """A baseline, with the parameters that were set."""
    if "checkpoint" in params:  # as large as the table: not after every step
        params["checkpoint"] = Checkpoint(params["checkpoint"], every=2.0)

    name = str(options.method)
    accepted = parameter_names(name)
    own: dict[str, Any] = {
        "random_state": options.seed,
        "validation": options.validation,
    }
    if options.center is not None:
        own["center"] = _center_parameter(options.center)
    elif params["scale"] == "columns" and not dict(options.settings).get("nonnegative"):
        own["center"] = "columns"  # one mean of columns in many units means nothing
    params |= {name: value for name, value in own.items() if value is not None}
    usable = {key: value for key, value in params.items() if key in accepted}
    return make(name, **usable | dict(options.settings))  # type: ignore[no-any-return]


def _build_bayesian(options: ModelOptions, params: dict[str, Any]) -> BaseCompleter:
    """`BayesianNCARL`: learned noise, a prior and error bars."""
    own: dict[str, Any] = {
        "sides": options.sides and str(options.sides),
        "prior_strength": options.prior_strength,
        "noise": options.noise,
        "validation": options.validation,
        "rounding": "observed" if options.rounding else None,
    }
    params |= {name: value for name, value in own.items() if value is not None}
    if options.clip is not None:
        params["clip"] = None if options.clip == "none" else options.clip
    if options.center is not None:
        params["center"] = _center_parameter(options.center)
    return BayesianNCARL(random_state=options.seed, **params)


def _build_ncarl(options: ModelOptions, params: dict[str, Any]) -> BaseCompleter:
    """`NCARL` with given parameters."""
    if options.alpha is not None:
        params["alpha"] = options.alpha
    if options.n_neighbors is not None:
        params["n_neighbors"] = options.n_neighbors
    if options.gamma is not None:
        params["gamma"] = _gamma_parameter(options.gamma)
    if options.center is not None:
        params["center"] = _center_parameter(options.center)
    elif params["scale"] == "columns":
        params["center"] = "columns"  # one mean of columns in many units means nothing
    return NCARL(**params)


def _build_ncarl_cv(options: ModelOptions, params: dict[str, Any]) -> BaseCompleter:
    """`NCARLCV`; a parameter that the user fixed is a grid of one value."""
    if options.alpha is not None:
        params["alphas"] = (options.alpha,)
    if options.n_neighbors is not None:
        params["n_neighbors"] = (options.n_neighbors,)
    if options.gamma is not None:
        params["gammas"] = (_gamma_parameter(options.gamma),)
    elif options.needs_std:
        params["gammas"] = tuple(g for g in NCARLCV().gammas if g is not None)
    if options.center is not None:
        params["centers"] = (_center_parameter(options.center),)
    if options.validation is not None:
        params["validation"] = options.validation
    return NCARLCV(random_state=options.seed, **params)


def _gamma_parameter(gamma: float | str) -> float | None:
    return None if gamma == "none" else float(gamma)


def _center_parameter(center: CenterChoice) -> str | None:
    return None if center == "none" else str(center)
