"""Checks of parameters and input: errors name the parameter, its value and a remedy."""

from __future__ import annotations

import hashlib
import numbers
import os
from collections.abc import Callable, Iterable
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from ncarl.bayes.selection import FitConfig
from ncarl.containers import as_source, validate_observations
from ncarl.core.types import Array
from ncarl.dataset import Dataset, InMemoryDataset
from ncarl.engines.base import Engine
from ncarl.engines.cores import fit_threads
from ncarl.engines.threads import Threads
from ncarl.fitting.checkpoint import CHECKPOINT_PARTS, Checkpoint, CheckpointFile
from ncarl.fitting.ncarl import Settings
from ncarl.io import map_rows
from ncarl.io.base import float_dtype, is_frame, is_polars
from ncarl.io.files import resolve_output
from ncarl.observations import Observations, check_sparse
from ncarl.validation import (
    as_float,
    check_choice,
    check_flag,
    check_fraction,
    check_integer,
    check_number,
    is_number,
)

CENTERS = (None, "mean", "columns", "two-way")
#: Relative asymmetry that a given correlation matrix may have.
ASYMMETRY = 1e-8
#: An entry that counts as missing besides NaN, None and null; None if there is none.
MissingMarker = int | float | str | None
#: Prefix of the names of indicator columns, as scikit-learn has it.
INDICATOR_PREFIX = "missingindicator_"
GRAPH_HINT = "; set graph=None or alpha=0 to switch the graph off"

#: Raised when states that earlier versions saved in checkpoints cannot be continued.
STATE_FORMAT = 2
#: Parameters that a fit may change when it resumes from a checkpoint: they say where
#: it runs, when it stops, and what is done with its result.
RESULT_NEUTRAL_PARAMS = (
    "engine", "max_iter", "tol", "progress", "callback", "checkpoint", "clip",
    "rounding", "missing_values", "add_indicator", "keep_empty_features",
)  # fmt: skip


def as_float_array(name: str, value: Any, wanted: str) -> Array:
    """A dense copy of an array or sparse matrix of real numbers."""
    if sparse.issparse(value):
        value = check_sparse(value, name).toarray()
    try:
        A = np.asarray(value)
        return A.astype(np.float64, casting="safe" if A.dtype.kind == "c" else "unsafe")
    except (TypeError, ValueError, OverflowError):
        got = type(value).__name__
        raise TypeError(f"{name} must be {wanted}, got {got}") from None


def check_graph(graph: Any, *, as_sparse: bool = False) -> Any:
    """``graph`` as a name, None, or a similarity matrix without negatives.

    The matrix is dense, or with ``as_sparse`` a CSR array.
    """
    if graph is None or isinstance(graph, str):
        return check_choice("graph", graph, ("adaptive", "fixed", None))
    wanted = "'adaptive', 'fixed', None or a square similarity matrix"
    if as_sparse and sparse.issparse(graph) and graph.dtype.kind in "biuf":
        S = sparse.csr_array(check_sparse(graph, "graph"), dtype=np.float64, copy=True)
        S.sum_duplicates()
    else:
        S = as_float_array("graph", graph, wanted)
    values = S.data if sparse.issparse(S) else S
    if S.ndim != 2 or S.shape[0] != S.shape[1]:
        raise ValueError(
            f"graph must be a square similarity matrix, got shape {S.shape}"
        )
    if not np.isfinite(values).all() or (values < 0).any():
        raise ValueError(
            "graph must be a similarity matrix with finite entries of at least 0"
        )
    return sparse.csr_array(S) if as_sparse else S


def check_graph_size(graph: Any, n: int) -> None:
    """Raise if a given similarity matrix has not the size of the kernel."""
    if graph is not None and not isinstance(graph, str) and graph.shape[0] != n:
        raise ValueError(
            f"graph must be {n} x {n} to match the side that carries the kernel, got "
            f"{graph.shape[0]} x {graph.shape[1]}; set orientation to choose the side"
        )


def _check_checkpoint(checkpoint: Any, class_name: str) -> None:
    """Raise early if a checkpoint could not be written after the first step."""
    if checkpoint is None:
        return
    if not isinstance(checkpoint, str | os.PathLike):
        raise TypeError(
            f"checkpoint must be None or a path, got {checkpoint!r}; an "
            "ncarl.Checkpoint says how often to write too"
        )
    for part in ("", *(f".{part}" for part in CHECKPOINT_PARTS.get(class_name, ()))):
        target = resolve_output(f"{os.fspath(checkpoint)}{part}", "checkpoint")
    if not os.access(target.parent, os.W_OK):
        folder = repr(str(target.parent))
        raise PermissionError(f"checkpoint: the folder {folder} cannot be written to")


def check_local_engine(engine: Any, name: str) -> Any:
    """``engine`` unless it is Dask, which models of one whole matrix cannot use."""
    if engine == "dask" or type(engine).__name__ == "Dask":
        raise ValueError(
            f"engine must be 'auto', 'threads' or 'torch' for {name}, which works on "
            f"its matrix as a whole, got {engine!r}; NCARL, NCARLCV and BayesianNCARL "
            "spread their rows over workers of Dask"
        )
    return engine


def check_run_options(
    estimator: Any, scales: tuple[str | None, ...] = (None, "columns")
) -> None:
    """Check the parameters that all estimators share, as far as this one has them."""
    choices = {
        "center": CENTERS,
        "scale": scales,
        "dtype": ("float64", "float32"),
        "orientation": ("auto", "columns", "rows"),
    }
    for name, allowed in choices.items():
        if hasattr(estimator, name):
            check_choice(name, getattr(estimator, name), allowed)
    if getattr(estimator, "orientation", "") == "rows" and estimator.scale:
        raise ValueError(
            "scale='columns' needs the kernel on the columns, got orientation='rows'"
        )
    check_flag("progress", estimator.progress)
    if estimator.callback is not None and not callable(estimator.callback):
        raise TypeError(
            f"callback must be None or callable, got {estimator.callback!r}"
        )
    _check_checkpoint(estimator.checkpoint, type(estimator).__name__)


def digest(value: Any) -> Any:
    """A parameter as JSON can hold it; an array is replaced by its hash."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple):
        return [digest(item) for item in value]
    if sparse.issparse(value):
        csr = sparse.csr_array(value)
        return [digest(part) for part in (csr.data, csr.indices, csr.indptr)]
    content = np.ascontiguousarray(value).tobytes()
    return f"given, sha256 {hashlib.sha256(content).hexdigest()[:16]}"


def open_checkpoint(
    estimator: Any,
    dataset: Dataset,
    kind: str = "checkpoint",
    part: str | None = None,
    **resolved: Any,
) -> CheckpointFile | None:
    """The checkpoint file of a fit, or of a part of it; None if there is none.

    A file belongs to data and parameters. ``resolved`` replaces parameters by what
    they mean for these data.
    """
    if estimator.checkpoint is None:
        return None
    fit_threads().fixed = True
    checkpoint = Checkpoint.coerce(estimator.checkpoint)
    params = {
        name: value
        for name, value in estimator.get_params(deep=False).items()
        if name not in RESULT_NEUTRAL_PARAMS
    }
    fit_id = {
        "class": type(estimator).__name__,
        "format of the state": STATE_FORMAT,
        **{name: digest(value) for name, value in {**params, **resolved}.items()},
        "shape": list(dataset.summary.shape),
        "data": dataset.fingerprint(),
    }
    if part is not None:
        checkpoint = checkpoint.for_part(part)
    return CheckpointFile(checkpoint, kind, fit_id)


def make_settings(
    estimator: Any, *, sparse_graph: bool = False, **given: Any
) -> Settings:
    """The checked parameters of a fit of a kernel; ``given`` replaces some of them."""
    values = {f.name: getattr(estimator, f.name, None) for f in fields(Settings)}
    values |= given
    check_choice("weights", values["weights"], ("floor", "pinv", "smooth"))
    checks: dict[str, Callable[..., Any]] = {
        "alpha": partial(check_number, low=0.0),
        "n_neighbors": partial(check_integer, low=1, hint=GRAPH_HINT),
        "delta": partial(check_number, low=0.0, strict=values["weights"] == "pinv"),
        "max_iter": partial(check_integer, low=1),
        "tol": partial(check_number, low=0.0),
    }
    if values["gamma"] is not None:
        hint = "; None is the exact model"
        checks["gamma"] = partial(check_number, low=0.0, strict=True, hint=hint)
    checked = {name: check(name, values[name]) for name, check in checks.items()}
    graph = check_graph(values["graph"], as_sparse=sparse_graph)
    return Settings(**{**values, **checked, "graph": graph})


def resolve_return_std(return_std: Any, noise: float, hint: str) -> str | None:
    """``return_std`` as "observed", "latent" or None.

    ``hint`` is the end of the error for a model without noise.
    """
    flag = isinstance(return_std, bool | np.bool_)
    if flag and not return_std:
        return None
    if not flag and not (isinstance(return_std, str) and return_std == "latent"):
        raise ValueError(
            f"return_std must be True, False or 'latent', got {return_std!r}"
        )
    if noise == 0.0:
        raise ValueError(f"return_std needs a model of the noise, and {hint}")
    return "observed" if flag else "latent"


def check_dense_size(shape: tuple[int, ...], max_dense_gb: Any) -> None:
    """Raise if a dense result would be larger than allowed."""
    check_number("max_dense_gb", max_dense_gb, low=0.0)
    size = float(np.prod(shape, dtype=np.float64)) * 8 / 1e9
    if size > max_dense_gb:
        raise ValueError(
            f"the completed {shape[0]} x {shape[-1]} matrix takes {size:.3g} GB, more "
            f"than max_dense_gb={max_dense_gb:g}. Use predict(rows, cols) for the "
            "entries you need, transform(X, out='filled.npy') to write it to a file "
            "block by block, or raise max_dense_gb."
        )


def check_any_observed(n_observed: int, shape: tuple[int, int]) -> None:
    """Raise for a matrix without observed entries."""
    if n_observed == 0:
        raise ValueError(
            f"X has no observed entry (all {shape[0]} x {shape[1]} are missing); "
            "nothing can be learned from it"
        )


def check_positions(
    rows: Any, cols: Any, shape: tuple[int, int]
) -> tuple[Array, Array]:
    """Row and column positions as int64 arrays of one length."""
    i = _check_axis_positions("rows", rows, shape[0])
    j = _check_axis_positions("cols", cols, shape[1])
    if len(i) != len(j):
        raise ValueError(
            f"rows and cols must have one length, got {len(i)} and {len(j)}"
        )
    return i, j


def _check_axis_positions(name: str, values: Any, bound: int) -> Array:
    array = np.atleast_1d(np.asarray(values))
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ValueError(
            f"{name} must be a list of whole numbers, got dtype {array.dtype}, shape "
            f"{array.shape}"
        )
    if array.size and (array.min() < 0 or array.max() >= bound):
        raise ValueError(
            f"{name} must lie between 0 and {bound - 1}, got {array.min()} to "
            f"{array.max()}"
        )
    return array.astype(np.int64)


def is_matrix(y: Any) -> bool:
    """Whether ``y`` is a matrix, not a target vector that is to be ignored."""
    return bool(len(getattr(y, "shape", np.shape(y))) == 2)


def heldout_truth(estimator: Any, observed: Observations, y: Any) -> Observations:
    """Entries of ``y`` that are missing in ``observed``."""
    truth = validate_observations(
        estimator, y, reset=False, same_columns=False, name="y"
    )
    if truth.shape != observed.shape:
        raise ValueError(
            f"y must have the shape of X, {observed.shape}, got {truth.shape}"
        )
    n = observed.shape[1]
    seen = observed.rows * n + observed.indices
    return truth.drop_entries(np.isin(truth.rows * n + truth.indices, seen))


def check_output_paths(
    out: Any, out_std: Any, std: str | None
) -> tuple[Path | None, Path | None]:
    """Paths of the results; raise if one of them is lacking."""
    paths: list[Path | None] = []
    for name, path in (("out", out), ("out_std", out_std)):
        if path is not None and not isinstance(path, str | os.PathLike):
            raise TypeError(f"{name} must be a path, got {path!r}")
        paths.append(None if path is None else Path(path))
    if out_std is not None and (out is None or std is None):
        raise ValueError("out_std goes with out=... and return_std=True")
    if out is not None and std is not None and out_std is None:
        raise ValueError(
            "out_std must say where to write the standard deviations that "
            "return_std asks for"
        )
    if len({path and os.path.realpath(path) for path in paths}) == 1 and paths[0]:
        raise ValueError(f"out and out_std must differ, got {out!r} for both")
    return paths[0], paths[1]


def make_fit_config(estimator: Any) -> FitConfig:
    """The checked parameters of a fit of `BayesianNCARL`."""
    check_choice("sides", estimator.sides, ("auto", "columns", "rows", "both"))
    check_run_options(estimator, scales=("auto", None, "columns"))
    check_choice("rounding", estimator.rounding, (None, "observed"))
    check_missing_values(estimator.missing_values)
    check_flag("add_indicator", estimator.add_indicator)
    check_flag("keep_empty_features", estimator.keep_empty_features)
    strength = estimator.prior_strength
    if isinstance(strength, str) and strength == "auto":
        strength = None
    else:
        hint = "; 'auto' chooses it"
        strength = check_number("prior_strength", strength, low=0.0, hint=hint)
    return FitConfig(
        sides=estimator.sides,
        strength=strength,
        validation=check_fraction("validation", estimator.validation),
        seed=check_integer("random_state", estimator.random_state, low=0),
        max_iter=check_integer("max_iter", estimator.max_iter, low=1),
        tol=check_number("tol", estimator.tol, low=0.0),
        components=_check_components(estimator),
    )


def _check_components(estimator: Any) -> int | None:
    """Number of components of a mixture of the rows; None to choose it."""
    given, count = estimator.components, None
    if not (isinstance(given, str) and given == "auto"):
        hint = "; 'auto' chooses it"
        count = check_integer("components", given, low=1, hint=hint)
    conflict = ""
    if count != 1 and estimator.sides == "rows":
        conflict = "a kernel of the columns, got sides='rows'; use sides='columns'"
    elif count != 1 and not isinstance(estimator.noise, str) and estimator.noise == 0:
        conflict = "a model with noise, got noise=0; use noise='per-column'"
    elif count != 1 and estimator.checkpoint is not None:
        conflict = (
            f"checkpoint=None, got checkpoint={estimator.checkpoint!r}; leave it out"
        )
    if conflict:
        raise ValueError(
            f"components={given!r}, a mixture, needs {conflict}, or components=1"
        )
    return count


def check_threads_engine(engine: Engine, components: Any) -> Engine:
    """``engine`` if it is one that mixtures can use."""
    if not isinstance(engine, Threads):
        raise ValueError(
            f"components={components!r}, a mixture, needs rows on threads of this "
            f"process, got the engine {engine!r}; use engine='threads', or components=1"
        )
    return engine


def check_component_rows(components: Any, dataset: Dataset) -> None:
    """Raise if a mixture of this number cannot be fitted to the rows."""
    if components in ("auto", 1):
        return
    if not isinstance(dataset, InMemoryDataset):
        raise ValueError(
            f"components={components!r}, a mixture, needs rows in memory, and this "
            f"source has too many entries ({dataset.summary.n_observed:,}) to be read "
            "into it; pass a matrix, or use components=1"
        )
    m = dataset.summary.n_observed_rows
    if m < 2 * components:
        raise ValueError(
            f"components={components!r} needs at least 2 rows with observed entries "
            f"for each component, got {m}; use components={max(1, m // 2)} or less, or "
            "'auto'"
        )


def check_noise(noise: Any) -> str | float:
    """``noise`` as the name of a way to learn it, or as a standard deviation."""
    if isinstance(noise, str):
        return str(check_choice("noise", noise, ("learn", "per-column")))
    hint = "; 'learn' and 'per-column' learn it"
    return check_number("noise", noise, low=0.0, hint=hint)


def check_clip(clip: Any) -> Any:
    """``clip`` as "auto", None or a pair of numbers."""
    if clip is None or (isinstance(clip, str) and clip == "auto"):
        return clip
    try:
        low, high = (float(end) for end in clip)
    except (TypeError, ValueError):
        raise ValueError(
            f"clip must be 'auto', None or a pair (low, high), got {clip!r}"
        ) from None
    if not low < high:
        raise ValueError(f"clip must be (low, high) with low < high, got {clip!r}")
    return low, high


def check_prior(prior: Any, n: int, *, rows_only: bool) -> Any:
    """``prior`` as a name, a correlation of n columns, or features of them."""
    if isinstance(prior, str):
        return check_choice("prior", prior, ("co-observation", "identity"))
    if rows_only:
        raise ValueError(
            "prior describes the columns, and sides='rows' has no kernel for them; "
            "use sides='columns' or 'both'"
        )
    wanted = (
        "'co-observation', 'identity', a correlation matrix of the columns or features "
        "of them"
    )
    given = as_float_array("prior", prior, wanted)
    if given.ndim != 2 or given.shape[0] != n:
        raise ValueError(
            f"prior must have one row for each of the {n} columns of X, got shape "
            f"{given.shape}"
        )
    if not np.isfinite(given).all():
        raise ValueError("prior must be finite, got NaN or infinite entries")
    return _check_correlation(given) if given.shape[1] == n else given


def _check_correlation(given: Array) -> Array:
    """A given matrix, made exactly symmetric; raise if it is no correlation."""
    size = float(np.abs(given).max())
    if float(np.abs(given - given.T).max()) > ASYMMETRY * size:
        raise ValueError(
            "prior is square but not symmetric; a correlation of the columns is, and "
            "features must not be as many as columns"
        )
    given = (given + given.T) / 2.0
    try:
        np.linalg.cholesky(given)
    except np.linalg.LinAlgError:
        raise ValueError(
            "prior must be positive definite; add a multiple of the identity to it"
        ) from None
    return given


def check_missing_values(
    missing_values: Any, *, allow_text: bool = False
) -> MissingMarker:
    """The number, or text, that marks missing entries, as a Python value.

    None for NaN, None and ``pandas.NA``, which mark missing entries anyway.
    """
    if missing_values is None or is_pandas_na(missing_values):
        return None
    if allow_text and isinstance(missing_values, str):
        return str(missing_values)
    wanted = (
        f"missing_values must be a finite number, {'text, ' * allow_text}np.nan, None "
        f"or pandas.NA, got {missing_values!r}"
    )
    if not is_number(missing_values):
        raise TypeError(wanted)
    if isinstance(missing_values, numbers.Integral):
        whole = int(missing_values)
        if -(2**63) <= whole < 2**63:
            return whole
    number = as_float(missing_values)
    if np.isinf(number):
        raise ValueError(f"{wanted}; put np.nan in place of infinite entries")
    return None if np.isnan(number) else number


def is_pandas_na(value: Any) -> bool:
    """Whether ``value`` is ``pandas.NA``."""
    return type(value).__name__ == "NAType"


def make_missing_indicator(had_missing: Iterable[bool], missing_values: Any) -> Any:
    """scikit-learn's indicator of the columns where ``had_missing`` is true."""
    from sklearn.impute import MissingIndicator  # slow to import

    marker = check_missing_values(missing_values, allow_text=True)
    missing = np.nan if marker is None else marker
    observed: Any = f"not {marker}" if isinstance(marker, str) else float(marker == 0)
    dtype = object if isinstance(marker, str) else np.float64
    row = np.array([[missing if had else observed for had in had_missing]], dtype=dtype)
    return MissingIndicator(missing_values=missing, error_on_new=False).fit(row)


def mark_missing(X: Any, missing_values: Any) -> Any:
    """``X`` with entries equal to ``missing_values`` missing.

    Dense containers get NaN, nulls or masks there, sparse matrices lose these entries,
    sources of rows are wrapped. Anything that is no valid input is returned as it is.
    """
    number: Any = check_missing_values(missing_values)
    if number is None:
        return X
    if hasattr(X, "map_blocks"):  # a Dask array
        dtype = float_dtype(X)
        mark = partial(mark_missing, missing_values=number)
        return X.map_blocks(mark, dtype=dtype, meta=np.empty((0, 0), dtype=dtype))
    source = as_source(X)
    if source is not None:
        # The number is rounded as values of this type are.
        marker = float(source.dtype.type(number))
        return map_rows(source, partial(_drop_number, number=marker))
    if sparse.issparse(X):
        if X.ndim != 2:
            return X
        coo = check_sparse(X).tocoo()
        kept = coo.data != number
        entries = coo.data[kept], (coo.row[kept], coo.col[kept])
        return type(coo)(entries, shape=coo.shape)
    if is_polars(X):
        return _mark_polars(X, number)
    if is_frame(X):
        return X.mask(X.eq(number))
    if isinstance(X, np.ma.MaskedArray):
        return np.ma.masked_where(np.ma.getdata(X) == number, X)
    try:
        array = np.asarray(X)
    except ValueError:  # rows of different lengths
        return X
    if array.ndim != 2 or array.dtype.kind not in "biufO":
        return X
    marked = array.astype(np.float64) if array.dtype.kind in "biu" else array.copy()
    marked[array == number] = np.nan
    return marked


def _mark_polars(X: Any, number: float) -> Any:
    import polars as pl

    columns = [pl.col(name) for name, kind in X.schema.items() if kind.is_numeric()]
    return X.with_columns(
        pl.when(column == number).then(None).otherwise(column).name.keep()
        for column in columns
    )


def _drop_number(observed: Observations, number: float) -> Observations:
    return observed.drop_entries(observed.values == number)
