"""From the description of a problem to a matrix with gaps and the truth behind them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ncarl import masks
from ncarl.core.types import Array
from ncarl.datasets import (
    load_image_folder,
    load_movielens,
    load_sample_image,
    make_low_rank,
)
from ncarl.datasets.errors import DataNotFoundError
from ncarl.datasets.places import find, looked_for
from ncarl.holdout import hold_out
from ncarl.observed import Observed, from_triplets
from ncarl.study.cells import Problem

#: Kinds of data that are pictures.
PICTURES = ("image", "photo")
#: Part of the observed entries that a search holds out.
VALIDATION = 0.1


@dataclass(frozen=True)
class Posed:
    """A matrix with gaps, and entries of it whose truth is known.

    Attributes
    ----------
    X : array with NaN, or sparse matrix
        What the fit sees.
    rows, cols, truth : arrays of shape (entries,)
        Places and true values of the hidden entries.
    held : tuple of arrays or None
        Places and values of observed entries that a search holds out.
    picture : bool
        Whether the values are grey levels between 0 and 1.
    """

    X: Any
    rows: Array
    cols: Array
    truth: Array
    held: tuple[Array, Array, Array] | None = None
    picture: bool = False


@lru_cache(maxsize=2)
def _matrix(data: str, options: tuple[tuple[str, Any], ...]) -> Any:
    """A whole matrix, kept for the next seed: array, or sparse ratings."""
    return SOURCES[data](dict(options))


def pose(problem: Problem, seed: int) -> Posed:
    """The matrix with gaps that a problem and a seed describe.

    Examples
    --------
    >>> problem = Problem("low-rank", {"m": 20, "n": 10, "rank": 2}, missing=0.3)
    >>> pose(problem, 0).truth.shape
    (60,)
    """
    if problem.data not in (*SOURCES, "low-rank"):
        known = ", ".join(("low-rank", *SOURCES))
        raise ValueError(f"data must be one of {known}, got {problem.data!r}")
    masks_known = ("random", "block") if problem.data in PICTURES else ("random",)
    if problem.mask not in masks_known:
        raise ValueError(
            f"mask must be one of {', '.join(masks_known)} with data "
            f"{problem.data!r}, got {problem.mask!r}"
        )
    if problem.data == "low-rank":
        drawn = make_low_rank(
            **problem.options, missing=problem.missing, random_state=seed
        )
        rows, cols = np.nonzero(drawn.hidden)
        return Posed(drawn.X, rows, cols, drawn.truth[rows, cols])
    whole = _matrix(problem.data, tuple(sorted(problem.options.items())))
    if isinstance(whole, Observed):
        return _ratings_hidden(whole, problem.missing, seed)
    return _pixels_hidden(whole, problem, seed)


def with_held_out(posed: Posed, seed: int) -> Posed:
    """The problem with a tenth of its observed entries held out as well."""
    sparse = not isinstance(posed.X, np.ndarray)
    observed = (Observed.from_sparse if sparse else Observed.from_dense)(posed.X)
    rng = np.random.default_rng([seed, 1])
    kept, held = hold_out(observed, VALIDATION, rng)
    X = kept.to_csr() if sparse else posed.X.copy()
    if not sparse:
        X[held.rows, held.indices] = np.nan
    places = (held.rows, held.indices.astype(np.int64), held.values)
    return Posed(X, posed.rows, posed.cols, posed.truth, places, posed.picture)


def _ratings_hidden(whole: Observed, missing: float, seed: int) -> Posed:
    """A share of the known ratings hidden."""
    hidden = masks.random((whole.n_observed,), missing, rng=seed)
    away = whole.without(~hidden)
    X = whole.without(hidden).to_csr()
    return Posed(X, away.rows, away.indices.astype(np.int64), away.values)


def _pixels_hidden(picture: Array, problem: Problem, seed: int) -> Posed:
    """Pixels of a picture hidden, one by one or in a square."""
    if problem.mask == "random":
        hidden = masks.random(picture.shape, problem.missing, rng=seed)
    else:
        # A square with the share of the picture that is to be hidden.
        side = round((problem.missing * picture.size) ** 0.5)
        hidden = masks.block(picture.shape, (side, side), at="centre")
    rows, cols = np.nonzero(hidden)
    X = np.where(hidden, np.nan, picture)
    return Posed(X, rows, cols, picture[rows, cols], picture=True)


def _movielens(options: Mapping[str, Any]) -> Observed:
    """Ratings of MovieLens, users by movies."""
    ratings = load_movielens(options["name"], download=False)
    return Observed.from_sparse(ratings.matrix())


def _folder_image(options: Mapping[str, Any]) -> Array:
    """A grey picture of a folder beside the other data sets."""
    folder = find([options["folder"]])
    if folder is None:
        raise DataNotFoundError(looked_for([options["folder"]]))
    (picture,) = load_image_folder(folder, names=[options["name"]]).values()
    return picture


def _photograph(options: Mapping[str, Any]) -> Array:
    """One of scikit-learn's photographs: in grey, or one of its colours."""
    channel = options.get("channel")
    picture = load_sample_image(
        options["name"], grey=channel is None, step=options.get("step", 1)
    )
    return np.asarray(picture if channel is None else picture[:, :, int(channel)])


def _like_ratings(options: Mapping[str, Any]) -> Observed:
    """Made-up ratings from 1 to 5: tastes, users' and movies' means, popularity.

    They stand in for MovieLens where that is not at hand.
    """
    users, items, each = options["users"], options["items"], options["each"]
    rng = np.random.default_rng(0)
    tastes = rng.standard_normal((users, 3)) @ rng.standard_normal((3, items)) / 3.0
    means = 0.4 * rng.standard_normal((users, 1)) + 0.5 * rng.standard_normal(items)
    noise = 0.8 * rng.standard_normal((users, items))
    rating = np.clip(np.rint(3.6 + means + tastes + noise), 1.0, 5.0)
    popular = rng.random(items) ** 2 + 0.05
    places = [rng.choice(items, each, False, popular / popular.sum()) for _ in means]
    rows = np.repeat(np.arange(users), each)
    cols = np.concatenate(places)
    shape = (users, items)
    return Observed.from_sparse(
        from_triplets(rows, cols, rating[rows, cols], shape=shape)
    )


SOURCES: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "movielens": _movielens,
    "image": _folder_image,
    "photo": _photograph,
    "like-ratings": _like_ratings,
}
