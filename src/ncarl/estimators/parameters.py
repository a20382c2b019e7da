"""Checks of parameters: each error names the parameter, what came, and the way out."""

from __future__ import annotations

import hashlib
import numbers
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from ncarl.core.types import Array
from ncarl.fitting import Settings

WEIGHTS = ("floor", "pinv", "smooth")
DTYPES = ("float64", "float32")
ORIENTATIONS = ("auto", "columns", "rows")
#: Beyond this the squares in a fit would overflow.
LARGEST = 1e100
GRAPH_HINT = "; set graph=None or alpha=0 to switch the graph off"


def check_number(
    name: str, value: Any, *, low: float, strict: bool = False, hint: str = ""
) -> float:
    """``value`` as a float of at least (or above) ``low`` that is not absurd."""
    wanted = (
        f"{name} must be a finite number {'above' if strict else 'of at least'} {low:g}"
    )
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        raise TypeError(f"{wanted}, got {value!r}{hint}")
    number = _as_float(value)
    if not np.isfinite(number) or number < low or (strict and number == low):
        raise ValueError(f"{wanted}, got {value!r}{hint}")
    if number > LARGEST:
        raise ValueError(f"{name} must be at most {LARGEST:g}, got {value!r}{hint}")
    return number


def check_whole(name: str, value: Any, *, low: int, hint: str = "") -> int:
    """``value`` as a whole number of at least ``low``."""
    wanted = f"{name} must be a whole number of at least {low}"
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        raise TypeError(f"{wanted}, got {value!r}{hint}")
    number = _as_float(value)
    if not number.is_integer() or number < low:
        raise ValueError(f"{wanted}, got {value!r}{hint}")
    return int(number)


def _as_float(value: Any) -> float:
    """``value`` as a float, infinite where it is too large for one."""
    try:
        return float(value)
    except OverflowError:
        return float("inf")


def listed(name: str, values: Any) -> list[Any]:
    """A parameter that may be one value or several, as a list with something in it."""
    if values is None or isinstance(values, str) or not hasattr(values, "__iter__"):
        return [values]
    found = list(values)
    if not found:
        raise ValueError(f"{name} must hold at least one value, got {values!r}")
    return found


def check_choice(name: str, value: Any, choices: Iterable[Any]) -> Any:
    """``value`` if it is one of the choices."""
    known = tuple(choices)
    if not isinstance(value, str | None) or value not in known:
        listed = ", ".join(repr(choice) for choice in known)
        raise ValueError(f"{name} must be one of {listed}, got {value!r}")
    return value


def check_graph(graph: Any) -> Any:
    """``graph`` as a name, None, or a dense similarity with no negative entry."""
    if graph is None or isinstance(graph, str):
        return check_choice("graph", graph, ("adaptive", "fixed", None))
    dense = graph.toarray() if sparse.issparse(graph) else graph
    try:
        S = np.asarray(dense)
        S = S.astype(np.float64, casting="safe" if S.dtype.kind == "c" else "unsafe")
    except (TypeError, ValueError):
        raise TypeError(
            "graph must be 'adaptive', 'fixed', None or a square similarity matrix, "
            f"got {type(graph).__name__}"
        ) from None
    if S.ndim != 2 or S.shape[0] != S.shape[1]:
        raise ValueError(
            f"graph must be a square similarity matrix, got shape {S.shape}"
        )
    if not np.isfinite(S).all() or (S < 0).any():
        raise ValueError(
            "graph must be a similarity matrix with finite entries of at least 0"
        )
    return S


def check_graph_size(S: Array, n: int) -> Array:
    """The given similarity if it fits the side that carries the kernel."""
    if S.shape[0] != n:
        raise ValueError(
            f"graph must be {n} x {n} to match the side that carries the kernel, got "
            f"{S.shape[0]} x {S.shape[1]}; set orientation to choose the side"
        )
    return S


def check_callback(callback: Any) -> Any:
    """``callback`` if it is None or can be called."""
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be None or callable, got {callback!r}")
    return callback


def check_checkpoint(checkpoint: Any) -> None:
    """Raise before the first step if a checkpoint could not be written after it."""
    if checkpoint is None:
        return
    if not isinstance(checkpoint, str | os.PathLike):
        raise TypeError(
            f"checkpoint must be None or a path, got {checkpoint!r}; an "
            "ncarl.Checkpoint says how often to write too"
        )
    path = Path(checkpoint)
    if path.is_dir():
        raise IsADirectoryError(
            f"checkpoint must be a file, and {str(path)!r} is a folder"
        )
    if path.exists() and not path.is_file():
        raise ValueError(f"checkpoint must be a file, and {str(path)!r} is a device")
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"checkpoint: the folder {str(path.parent)!r} does not exist"
        )
    if not os.access(path.parent, os.W_OK):
        raise PermissionError(
            f"checkpoint: the folder {str(path.parent)!r} cannot be written to"
        )


def check_one_place(engine: Any, name: str) -> Any:
    """``engine`` unless it spreads rows, which a model of one matrix has no use for."""
    if engine == "dask" or type(engine).__name__ == "Dask":
        raise ValueError(
            f"engine must be 'auto', 'threads' or 'torch' for {name}, which works on "
            f"its matrix as a whole, got {engine!r}; NCARL, NCARLCV and BayesianNCARL "
            "spread their rows over workers of Dask"
        )
    return engine


def check_flag(name: str, value: Any) -> bool:
    """``value`` if it is True or False."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def check_run_options(estimator: Any) -> None:
    """Check the parameters that every kernel estimator has."""
    check_choice("orientation", estimator.orientation, ORIENTATIONS)
    check_choice("dtype", estimator.dtype, DTYPES)
    check_choice("scale", estimator.scale, (None, "columns"))
    if estimator.scale == "columns" and estimator.orientation == "rows":
        raise ValueError(
            "scale='columns' needs the kernel on the columns, got orientation='rows'"
        )
    check_flag("progress", estimator.progress)
    check_callback(estimator.callback)
    check_checkpoint(estimator.checkpoint)


def digest(value: Any) -> Any:
    """A parameter as JSON can hold it: a short name stands for an array."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple):
        return [digest(item) for item in value]
    dense = value.toarray() if sparse.issparse(value) else value
    content = np.ascontiguousarray(dense).tobytes()
    return f"given, sha256 {hashlib.sha256(content).hexdigest()[:16]}"


def run_owner(estimator: Any) -> dict[str, Any]:
    """What a checkpoint must share of the parameters every kernel estimator has."""
    graph = check_graph(estimator.graph)
    return {
        "class": type(estimator).__name__,
        "graph": digest(graph),
        "weights": estimator.weights,
        "delta": float(estimator.delta),
        "scale": estimator.scale,
        "orientation": "rows" if estimator.transposed_ else "columns",
        "dtype": estimator.dtype,
    }


def checked_settings(
    *, alpha: Any, n_neighbors: Any, gamma: Any, graph: Any, weights: Any,
    delta: Any, max_iter: Any, tol: Any,
) -> Settings:  # fmt: skip
    """Settings of one fit, or an error that names the parameter at fault."""
    if gamma is not None:
        gamma = check_number(
            "gamma", gamma, low=0.0, strict=True, hint="; None is the exact model"
        )
    check_choice("weights", weights, WEIGHTS)
    return Settings(
        alpha=check_number("alpha", alpha, low=0.0),
        n_neighbors=check_whole("n_neighbors", n_neighbors, low=1, hint=GRAPH_HINT),
        gamma=gamma,
        graph=check_graph(graph),
        weights=weights,
        delta=check_number("delta", delta, low=0.0, strict=weights == "pinv"),
        max_iter=check_whole("max_iter", max_iter, low=1),
        tol=check_number("tol", tol, low=0.0),
    )
