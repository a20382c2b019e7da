"""Masks that hide entries: boolean arrays, True where an entry is hidden.

They simulate missing entries, for experiments; the splits that select hyperparameters
are in `ncarl.holdout`.

>>> from ncarl import masks
>>> int(masks.random((4, 5), 0.5).sum())
10
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ncarl.core.types import Array
from ncarl.validation import check_fraction, check_integer

__all__ = ["block", "cross", "per_row", "random", "time_gaps"]

Seed = int | np.random.Generator


def random(
    shape: int | Sequence[int],
    missing: float,
    *,
    exact: bool = True,
    observed: Any = None,
    rng: Seed = 0,
) -> Array:
    """Mask that hides entries at random.

    Parameters
    ----------
    shape : int or sequence of int
        Shape of the mask, of any number of dimensions; ``(entries,)`` splits a list
        of ratings.
    missing : float between 0 and 1
        Share to hide.
    exact : bool, default=True
        Hide exactly ``floor(missing * size)`` entries; otherwise each entry
        independently with this probability.
    observed : boolean array of this shape, optional
        Only these may be hidden, and ``missing`` is a fraction of them.
    rng : int or numpy.random.Generator, default=0
        Seed or random generator.

    Examples
    --------
    >>> import numpy as np
    >>> hidden = random((3, 4), 0.5, observed=np.eye(3, 4, dtype=bool))
    >>> int(hidden.sum()), bool(hidden[0, 1])
    (1, False)
    """
    size = _check_shape(shape)
    fraction, draw = check_fraction("missing", missing, closed=True), _check_rng(rng)
    pool = np.flatnonzero(_check_observed(observed, size))
    hidden = np.zeros(math.prod(size), dtype=bool)
    if exact:
        hidden[draw.permutation(pool)[: math.floor(fraction * len(pool))]] = True
    else:
        hidden[pool] = draw.random(len(pool)) < fraction
    return hidden.reshape(size)


def block(
    shape: Sequence[int],
    size: Sequence[int] = (50, 50),
    *,
    at: Sequence[int] | str | None = None,
    rng: Seed = 0,
) -> Array:
    """Mask that hides one rectangle.

    Parameters
    ----------
    shape : two int
        Shape of the mask.
    size : two int, default=(50, 50)
        Height and width of the rectangle.
    at : two int, "center" or None, default=None
        Row and column of its top left corner; None is a random place.
    rng : int or numpy.random.Generator, default=0
        Seed or random generator.

    Examples
    --------
    >>> block((4, 5), (2, 2), at=(1, 3)).astype(int)
    array([[0, 0, 0, 0, 0],
           [0, 0, 0, 1, 1],
           [0, 0, 0, 1, 1],
           [0, 0, 0, 0, 0]])
    """
    draw = _check_rng(rng)
    outer, inner = _check_shape(shape, 2), _check_shape(size, 2, "size")
    room = tuple(whole - part for whole, part in zip(outer, inner, strict=True))
    if min(room) < 0:
        raise ValueError(f"size must fit into shape {outer}, got {inner}")
    if at is None:
        top, left = (int(draw.integers(free + 1)) for free in room)
    elif isinstance(at, str) and at == "center":
        top, left = (free // 2 for free in room)
    elif isinstance(at, str) or not np.iterable(at) or len(tuple(at)) != 2:
        raise ValueError(f"at must be two numbers, 'center' or None, got {at!r}")
    else:
        top, left = (
            check_integer("each part of at", place, low=0, high=free)
            for place, free in zip(at, room, strict=True)
        )
    hidden = np.zeros(outer, dtype=bool)
    hidden[top : top + inner[0], left : left + inner[1]] = True
    return hidden


def cross(shape: Sequence[int], rows: float, columns: float, *, rng: Seed = 0) -> Array:
    """Mask that hides the entries that random rows and random columns have in common.

    Parameters
    ----------
    shape : two int
        Shape of the mask.
    rows, columns : int or float
        How many rows and columns: a whole number is a count, a float between 0 and 1
        (both excluded) a fraction, rounded and at least one.
    rng : int or numpy.random.Generator, default=0
        Seed or random generator.

    Examples
    --------
    >>> hidden = cross((6, 8), 2, 0.5)
    >>> int(hidden.any(axis=1).sum()), int(hidden.any(axis=0).sum())
    (2, 4)
    """
    draw = _check_rng(rng)
    m, n = _check_shape(shape, 2)
    chosen_rows = draw.permutation(m)[: _resolve_count("rows", rows, m)]
    chosen_columns = draw.permutation(n)[: _resolve_count("columns", columns, n)]
    hidden = np.zeros((m, n), dtype=bool)
    hidden[np.ix_(chosen_rows, chosen_columns)] = True
    return hidden


def per_row(
    shape: Sequence[int], fraction: float, *, observed: Any = None, rng: Seed = 0
) -> Array:
    """Mask that hides the same fraction of every row.

    Parameters
    ----------
    shape : two int
        Shape of the mask.
    fraction : float between 0 and 1
        A row with ``k`` entries loses ``floor(fraction * k)`` of them.
    observed : boolean array of this shape, optional
        Only these may be hidden, and only these are counted.
    rng : int or numpy.random.Generator, default=0
        Seed or random generator.

    Examples
    --------
    >>> per_row((3, 10), 0.25).sum(axis=1)
    array([2, 2, 2])
    """
    size = _check_shape(shape, 2)
    fraction, draw = check_fraction("fraction", fraction, closed=True), _check_rng(rng)
    free = _check_observed(observed, size)
    # Random keys rank the entries of a row; those that may not be hidden come last.
    order = np.argsort(np.where(free, draw.random(size), np.inf), axis=1)
    counts = np.floor(fraction * free.sum(axis=1))
    first = np.arange(size[1]) < counts[:, None]
    hidden = np.zeros(size, dtype=bool)
    np.put_along_axis(hidden, order, first, axis=1)
    return hidden


def time_gaps(
    shape: Sequence[int], *, length: int, fraction: float, axis: int = 0, rng: Seed = 0
) -> Array:
    """Mask of gaps in time: runs of steps, at random places in each series.

    Runs are divided evenly: two series differ by one run at most. Runs of a series do
    not overlap, but may touch; it has room for ``steps // length`` of them.

    Parameters
    ----------
    shape : two int
        Shape of the mask.
    length : int
        Steps of a run.
    fraction : float between 0 and 1
        Part of the entries to hide.
    axis : 0 or 1, default=0
        Along which time runs: 0 if rows are the steps, 1 if columns are.
    rng : int or numpy.random.Generator, default=0
        Seed or random generator.

    Examples
    --------
    >>> time_gaps((6, 2), length=3, fraction=0.5).sum(axis=0)
    array([3, 3])
    """
    size = _check_shape(shape, 2)
    fraction, draw = check_fraction("fraction", fraction, closed=True), _check_rng(rng)
    if axis not in (0, 1):
        raise ValueError(f"axis must be 0 or 1, got {axis!r}")
    steps, series = size if axis == 0 else size[::-1]
    run = check_integer("length", length, low=1, high=steps)
    total = min(round(fraction * steps * series / run), series * (steps // run))
    fewest, more = divmod(total, series)
    counts = np.full(series, fewest)
    counts[draw.permutation(series)[:more]] += 1
    hidden = np.zeros((series, steps), dtype=bool)
    for one, count in zip(hidden, counts, strict=True):
        # Choose places for runs of length one, then extend them to their length: all
        # arrangements without overlap are equally likely.
        places = np.sort(draw.permutation(steps - count * (run - 1))[:count])
        starts = places + np.arange(count) * (run - 1)
        one[starts[:, None] + np.arange(run)] = True
    return hidden.T.copy() if axis == 0 else hidden


def _check_rng(rng: Any) -> np.random.Generator:
    if isinstance(rng, np.random.Generator):
        return rng
    seed = check_integer("rng", rng, low=0, hint="; or pass a numpy.random.Generator")
    return np.random.default_rng(seed)


def _check_shape(
    shape: Any, ndim: int | None = None, name: str = "shape"
) -> tuple[int, ...]:
    if hasattr(shape, "shape") and np.ndim(shape) != 1:
        raise TypeError(f"{name} must be whole numbers, got a matrix; pass X.shape")
    sizes = tuple(shape) if np.iterable(shape) else (shape,)
    if len(sizes) != (ndim or max(1, len(sizes))):
        raise ValueError(f"{name} must be {ndim or 'some'} numbers, got {shape!r}")
    return tuple(check_integer(f"each part of {name}", size, low=1) for size in sizes)


def _resolve_count(name: str, value: Any, most: int) -> int:
    """Count given as a whole number, or as a fraction of ``most``."""
    if not isinstance(value, float | np.floating):
        return check_integer(name, value, low=0, high=most)
    if not 0.0 < value < 1.0:
        raise ValueError(
            f"{name} must be a fraction between 0 and 1 (excluded) if it is a float, "
            f"got {value!r}; give a count as a whole number"
        )
    return max(1, round(float(value) * most))


def _check_observed(observed: Any, size: tuple[int, ...]) -> Array:
    if observed is None:
        return np.ones(size, dtype=bool)
    array = np.asarray(observed)
    if array.dtype != bool or array.shape != size:
        raise ValueError(
            f"observed must be a boolean array of shape {size}, got dtype "
            f"{array.dtype}, shape {array.shape}"
        )
    return array
