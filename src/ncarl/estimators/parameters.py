"""Checks of parameters: each error names the parameter, what came, and the way out."""

from __future__ import annotations

import numbers
from collections.abc import Iterable
from typing import Any

import numpy as np
from scipy import sparse

from ncarl.core.types import Array


def check_number(
    name: str, value: Any, *, low: float, strict: bool = False, hint: str = ""
) -> float:
    """``value`` as a float that is finite and at least (or above) ``low``."""
    wanted = f"{name} must be a finite number {'above' if strict else 'of at least'} {low:g}"
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        raise TypeError(f"{wanted}, got {value!r}{hint}")
    number = float(value)
    if not np.isfinite(number) or number < low or (strict and number == low):
        raise ValueError(f"{wanted}, got {value!r}{hint}")
    return number


def check_whole(name: str, value: Any, *, low: int, hint: str = "") -> int:
    """``value`` as a whole number of at least ``low``."""
    wanted = f"{name} must be a whole number of at least {low}"
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        raise TypeError(f"{wanted}, got {value!r}{hint}")
    if value != int(value) if np.isfinite(value) else True:
        raise ValueError(f"{wanted}, got {value!r}{hint}")
    if int(value) < low:
        raise ValueError(f"{wanted}, got {value!r}{hint}")
    return int(value)


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
        S = np.asarray(dense, dtype=np.float64)
    except (TypeError, ValueError):
        raise TypeError(
            "graph must be 'adaptive', 'fixed', None or a square similarity matrix, "
            f"got {type(graph).__name__}"
        ) from None
    if S.ndim != 2 or S.shape[0] != S.shape[1]:
        raise ValueError(f"graph must be a square similarity matrix, got shape {S.shape}")
    if not np.isfinite(S).all() or (S < 0).any():
        raise ValueError("graph must be a similarity matrix without negative, NaN or infinite entries")
    return S


def check_graph_size(S: Array, n: int) -> Array:
    """The given similarity if it fits the side that carries the kernel."""
    if S.shape[0] != n:
        raise ValueError(
            f"graph must be {n} x {n} to match the side that carries the kernel, got "
            f"{S.shape[0]} x {S.shape[1]}; set orientation='columns' or 'rows' to choose it"
        )
    return S


def check_callback(callback: Any) -> Any:
    """``callback`` if it is None or can be called."""
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be None or callable, got {callback!r}")
    return callback


def check_flag(name: str, value: Any) -> bool:
    """``value`` if it is True or False."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False, got {value!r}")
    return bool(value)
