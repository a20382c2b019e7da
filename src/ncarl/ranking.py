"""How good a ranking is: whether the items that count stand near its top.

All functions take one list: what each item is worth, and the scores that rank them.
Ties go to the item that comes first.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ncarl.core.types import Array


def best(scores: Any, n: int) -> Array:
    """Positions of the ``n`` highest scores, the highest first.

    Fewer come back where there are fewer; of equal scores the first is taken. Scores
    of minus infinity never come back.

    Examples
    --------
    >>> best([0.1, 0.9, 0.5, 0.9], 3).tolist()
    [1, 3, 2]
    """
    values = _line("scores", scores)
    count = min(_length(n), int(np.count_nonzero(values > -np.inf)))
    if count == 0:
        return np.empty(0, dtype=np.int64)
    bar = np.partition(values, len(values) - count)[len(values) - count]
    # All that reach the bar, so that the first of equal ones can be told.
    some = np.flatnonzero(values >= bar)
    order: Array = some[np.argsort(-values[some], kind="stable")][:count]
    return order


def ndcg(gains: Any, scores: Any, n: int = 10) -> float:
    """Normalised discounted cumulative gain of the first ``n``; 1 for the best order.

    Parameters
    ----------
    gains : array-like of shape (items,)
        What each item is worth, at least 0; some must be worth something.
    scores : array-like of shape (items,)
        What ranks them.
    n : int
        How much of the list counts. The item at place ``k`` counts by
        ``1 / log2(k + 1)``.

    Examples
    --------
    >>> round(ndcg([0, 1, 0, 1], [0.9, 0.8, 0.1, 0.2], n=3), 4)
    0.6934
    """
    worth, values = _pair(gains, scores)
    if (worth < 0.0).any():
        raise ValueError("gains must be at least 0")
    ideal = np.sort(worth)[::-1][: _length(n)]
    if ideal[0] == 0.0:
        raise ValueError("gains must hold an item that is worth something")
    found = worth[best(values, n)]
    return float(found @ _discounts(len(found)) / (ideal @ _discounts(len(ideal))))


def recall(relevant: Any, scores: Any, n: int = 10) -> float:
    """Part of the relevant items that stand among the first ``n``.

    Examples
    --------
    >>> recall([True, False, True], [0.1, 0.5, 0.9], n=1)
    0.5
    """
    counts, values = _pair(relevant, scores)
    return float(counts[best(values, n)].sum() / _some(counts).sum())


def precision(relevant: Any, scores: Any, n: int = 10) -> float:
    """Part of ``n`` places that a relevant item takes.

    Examples
    --------
    >>> precision([True, False, True], [0.1, 0.5, 0.9], n=2)
    0.5
    """
    counts, values = _pair(relevant, scores)
    return float(_some(counts)[best(values, n)].sum() / _length(n))


def hit(relevant: Any, scores: Any, n: int = 10) -> float:
    """1 if a relevant item stands among the first ``n``, else 0.

    Examples
    --------
    >>> hit([True, False, True], [0.1, 0.5, 0.9], n=1)
    1.0
    """
    counts, values = _pair(relevant, scores)
    return float(_some(counts)[best(values, n)].any())


def _discounts(count: int) -> Array:
    """What a place counts, the first 1."""
    return 1.0 / np.log2(np.arange(2.0, count + 2.0))


def _some(relevant: Array) -> Array:
    """Relevances, if they are yes or no and one is yes."""
    if not np.isin(relevant, (0.0, 1.0)).all():
        raise ValueError("relevant must be True or False for each item")
    if not relevant.any():
        raise ValueError("relevant must be True for at least one item")
    return relevant


def _pair(worth: Any, scores: Any) -> tuple[Array, Array]:
    """Worth and scores as float arrays of one length."""
    one, other = _line("gains and relevant", worth), _line("scores", scores)
    if len(one) != len(other) or len(one) == 0:
        raise ValueError(
            f"there must be one score for each item, got {len(other)} scores for "
            f"{len(one)} items"
        )
    return one, other


def _line(name: str, values: Any) -> Array:
    """Numbers in one line, none of them NaN."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or np.isnan(array).any():
        raise ValueError(
            f"{name} must be a list of numbers without NaN, got shape {array.shape}"
        )
    return array


def _length(n: Any) -> int:
    """The length of a list, or an error that names it."""
    if isinstance(n, bool) or int(n) != n or n < 1:
        raise ValueError(f"n must be a whole number of at least 1, got {n!r}")
    return int(n)
