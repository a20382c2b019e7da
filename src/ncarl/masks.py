"""Masks that hide entries: boolean arrays, True where an entry is hidden.

>>> from ncarl import masks
>>> int(masks.random((4, 5), 0.5).sum())
10
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from ncarl.core.types import Array

__all__ = ["block", "cross", "per_row", "random", "time_gaps"]

Seed = int | np.random.Generator


def random(
    shape: int | Sequence[int],
    missing: float,
    *,
    exact: bool = True,
    known: Any = None,
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
        Hide exactly ``floor(missing * size)`` entries, the first of a random
        permutation; otherwise each entry independently with this probability.
    known : boolean array of this shape, optional
        Only these may be hidden, and ``missing`` is a share of them.
    rng : int or numpy.random.Generator, default=0
        Seed or random generator.

    Examples
    --------
    >>> import numpy as np
    >>> hidden = random((3, 4), 0.5, known=np.eye(3, 4, dtype=bool))
    >>> int(hidden.sum()), bool(hidden[0, 1])
    (1, False)
    """
    size = _check_shape(shape)
    share, draw = _check_fraction("missing", missing), _check_rng(rng)
    pool = np.flatnonzero(_check_known(known, size))
    hidden = np.zeros(math.prod(size), dtype=bool)
    if exact:
        hidden[draw.permutation(pool)[: math.floor(share * len(pool))]] = True
    else:
        hidden[pool] = draw.random(len(pool)) < share
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
    top, left = _resolve_corner(at, room, draw)
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
        (both excluded) a share, rounded and at least one.
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
    shape: Sequence[int], share: float, *, known: Any = None, rng: Seed = 0
) -> Array:
    """Mask that hides the same share of every row.

    Parameters
    ----------
    shape : two int
        Shape of the mask.
    share : float between 0 and 1
        A row with ``k`` entries loses ``floor(share * k)`` of them.
    known : boolean array of this shape, optional
        Only these may be hidden, and only these are counted.
    rng : int or numpy.random.Generator, default=0
        Seed or random generator.

    Examples
    --------
    >>> per_row((3, 10), 0.25).sum(axis=1)
    array([2, 2, 2])
    """
    size = _check_shape(shape, 2)
    part, draw = _check_fraction("share", share), _check_rng(rng)
    free = _check_known(known, size)
    # Random keys rank the entries of a row; those that may not be hidden come last.
    order = np.argsort(np.where(free, draw.random(size), np.inf), axis=1)
    counts = np.floor(part * free.sum(axis=1))
    first = np.arange(size[1]) < counts[:, None]
    hidden = np.zeros(size, dtype=bool)
    np.put_along_axis(hidden, order, first, axis=1)
    return hidden


def time_gaps(
    shape: Sequence[int], *, length: int, share: float, axis: int = 0, rng: Seed = 0
) -> Array:
    """Mask of gaps in time: runs of steps, at random places in each series.

    The number of runs that comes nearest to ``share`` is divided evenly, so that two
    series differ by one run at most. Runs of a series do not overlap, but may touch; a
    series has room for ``steps // length`` of them, even if ``share`` asks for more.

    Parameters
    ----------
    shape : two int
        Shape of the mask.
    length : int
        Steps of a run.
    share : float between 0 and 1
        Part of the entries to hide.
    axis : 0 or 1, default=0
        Along which time runs: 0 if rows are the steps, 1 if columns are.
    rng : int or numpy.random.Generator, default=0
        Seed or random generator.

    Examples
    --------
    >>> time_gaps((6, 2), length=3, share=0.5).sum(axis=0)
    array([3, 3])
    """
    size = _check_shape(shape, 2)
    part, draw = _check_fraction("share", share), _check_rng(rng)
    if axis not in (0, 1):
        raise ValueError(f"axis must be 0 or 1, got {axis!r}")
    steps, series = size if axis == 0 else size[::-1]
    run = _check_integer("length", length)
    if not 1 <= run <= steps:
        raise ValueError(f"length must be 1 to {steps} (the steps), got {length!r}")
    total = min(round(part * steps * series / run), series * (steps // run))
    fewest, more = divmod(total, series)
    counts = np.full(series, fewest)
    counts[draw.permutation(series)[:more]] += 1
    hidden = np.zeros((series, steps), dtype=bool)
    for one, count in zip(hidden, counts, strict=True):
        one[_place_runs(steps, run, int(count), draw)] = True
    return hidden.T.copy() if axis == 0 else hidden


def _place_runs(steps: int, run: int, count: int, draw: np.random.Generator) -> Array:
    """Steps of ``count`` runs without overlap, all arrangements equally likely."""
    # Choose places for runs of length one, then extend them to their length.
    places = np.sort(draw.permutation(steps - count * (run - 1))[:count])
    starts = places + np.arange(count) * (run - 1)
    return (starts[:, None] + np.arange(run)).ravel()


def _check_rng(rng: Any) -> np.random.Generator:
    """Random generator of a seed; a generator is returned as it is."""
    if isinstance(rng, np.random.Generator):
        return rng
    seed = _check_integer(
        "rng", rng, "a whole number from 0 or a numpy.random.Generator"
    )
    if seed < 0:
        raise ValueError(f"rng must be a whole number from 0, got {rng!r}")
    return np.random.default_rng(seed)


def _check_integer(name: str, value: Any, expected: str = "a whole number") -> int:
    try:
        if not isinstance(value, bool | np.bool_):
            return operator.index(value)
    except TypeError:
        pass
    raise ValueError(f"{name} must be {expected}, got {value!r}")


def _check_shape(
    shape: Any, ndim: int | None = None, name: str = "shape"
) -> tuple[int, ...]:
    """Check a shape: ``ndim`` whole numbers of at least 1."""
    sizes = shape if np.iterable(shape) else (shape,)
    whole = tuple(_check_integer(f"each part of {name}", size) for size in sizes)
    if len(whole) != (ndim or len(whole)) or min(whole, default=0) < 1:
        number = ndim or "some"
        raise ValueError(f"{name} must be {number} numbers above 0, got {shape!r}")
    return whole


def _check_fraction(name: str, value: Any) -> float:
    """Check a number between 0 and 1, both included."""
    number = isinstance(value, int | float | np.integer | np.floating)
    if not number or not 0 <= value <= 1:
        raise ValueError(f"{name} must be a number between 0 and 1, got {value!r}")
    return float(value)


def _resolve_count(name: str, value: Any, most: int) -> int:
    """Count given as a whole number, or as a share of ``most``."""
    if isinstance(value, float | np.floating):
        if 0.0 < value < 1.0:
            return max(1, round(float(value) * most))
        raise ValueError(
            f"{name} must be a share between 0 and 1 (excluded) if it is a float, got "
            f"{value!r}; give a count as a whole number"
        )
    count = _check_integer(name, value)
    if not 0 <= count <= most:
        raise ValueError(f"{name} must be 0 to {most}, got {value!r}")
    return count


def _check_known(known: Any, size: tuple[int, ...]) -> Array:
    """Mask of the entries that may be hidden; all by default."""
    if known is None:
        return np.ones(size, dtype=bool)
    array = np.asarray(known)
    if array.dtype != bool or array.shape != size:
        raise ValueError(
            f"known must be a boolean array of shape {size}, got dtype {array.dtype}, "
            f"shape {array.shape}"
        )
    return array


def _resolve_corner(
    at: Any, room: tuple[int, ...], draw: np.random.Generator
) -> tuple[int, int]:
    """Top left corner of a block that can be moved by up to ``room``."""
    if at is None:
        return int(draw.integers(room[0] + 1)), int(draw.integers(room[1] + 1))
    if isinstance(at, str) and at == "center":
        return room[0] // 2, room[1] // 2
    if isinstance(at, str) or not np.iterable(at) or len(tuple(at)) != 2:
        raise ValueError(f"at must be two numbers, 'center' or None, got {at!r}")
    corner = tuple(_check_integer("each part of at", part) for part in at)
    if any(not 0 <= place <= free for place, free in zip(corner, room, strict=True)):
        raise ValueError(f"at must be from (0, 0) to {room} for this size, got {at!r}")
    return corner[0], corner[1]
