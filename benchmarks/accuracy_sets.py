"""Data sets and protocols of accuracy.py, calibration.py and recommenders.py.

A set draws a `Split` for every repetition: the matrix to fit, and the hidden entries
with their true values. All randomness comes from ``default_rng`` of the repetition's
number. Real data lies in the folder of NCARL_DATA; tables come with scikit-learn.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from common import data_folder, paper_like, versions

from ncarl import from_triplets


@dataclass(frozen=True)
class Split:
    """A matrix with gaps, and entries of it that were hidden.

    ``train`` holds the other ratings (users, items, values) in the order of the file:
    methods that take one rating at a time depend on it.
    """

    X: Any
    rows: Any
    cols: Any
    truth: Any
    train: Any = None


@dataclass(frozen=True)
class Spec:
    """One line of the accuracy table.

    ``draw(k)`` gives the k-th of ``repeats`` splits. Predictions of every contender are
    clipped to ``scale`` where the data have one. ``target`` None stands for the best
    baseline of the same run. ``score`` "mean" averages the errors of the repetitions,
    "pooled" is the root of the mean square over all hidden entries, "relative" averages
    relative errors.
    """

    name: str
    protocol: str
    draw: Callable[[int], Split]
    repeats: int = 1
    needs: str | None = None
    baselines: tuple[str, ...] = ("two-way means",)
    scale: tuple[float, float] | None = None
    score: str = "mean"
    target: float | None = None
    stretch: float | None = None
    known: str = ""


def make_estimator(engine="auto", sides="auto"):
    """The estimator under test, with its defaults."""
    from ncarl import BayesianNCARL

    return BayesianNCARL(engine=engine, sides=sides, random_state=0)


def warm_up(engine="auto"):
    """Fit something tiny, so that loading and compiling are not timed."""
    X = np.random.default_rng(0).standard_normal((30, 12))
    X[X > 1.0] = np.nan
    for sides in ("columns", "both"):
        make_estimator(engine, sides).fit(X).predict([0], [0])


def at_hand(spec):
    """Whether the set's file is there."""
    folder = data_folder()
    return spec.needs is None or (folder is not None and (folder / spec.needs).exists())


def chosen(specs, names):
    """Sets by name or by the start of their names ("tables", "ml-1m"), else all."""
    if not names:
        return specs
    wanted = [name.strip() for name in names.split(",")]
    for name in wanted:
        if not any(_matches(spec, name) for spec in specs):
            known = ", ".join(spec.name for spec in specs)
            raise SystemExit(f"no set {name!r}; there are: {known}")
    return [spec for spec in specs if any(_matches(spec, name) for name in wanted)]


def _matches(spec, name):
    return spec.name == name or spec.name.startswith(f"{name}-")


def machine(engine=None):
    """Versions, the engine of the fit, and the GPU if there is one."""
    about = versions()
    if engine is not None:
        about["engine"] = str(engine)
    try:
        import torch
    except ImportError:
        return about
    about["torch"] = torch.__version__
    if torch.cuda.is_available():
        about["card"] = torch.cuda.get_device_name()
    return about


def read_sets(path):
    """The sets of a JSON file of results; empty where there is none yet."""
    if not path or not Path(path).exists():
        return {}
    return json.loads(Path(path).read_text())["sets"]


# --- ratings -------------------------------------------------------------------------


@cache
def ratings(name):
    """Users, items (both from 0) and ratings, with the shape of their matrix."""
    data = np.load(data_folder() / f"{name}.npz", allow_pickle=False)
    users, items = data["user"].astype(int) - 1, data["item"].astype(int) - 1
    shape = {"ml-100k": (943, 1682), "flixster": (3000, 3000)}.get(name)
    if shape is None:  # MovieLens-1M numbers films that nobody rated
        items = np.unique(items, return_inverse=True)[1]
        shape = (int(users.max()) + 1, int(items.max()) + 1)
    return users, items, data["rating"].astype(float), shape


def split_ratings(name, hidden):
    """Sparse matrix of the other ratings, and the hidden ones."""
    users, items, values, shape = ratings(name)
    seen = ~hidden
    train = (users[seen], items[seen], values[seen])
    X = from_triplets(*train, shape)
    return Split(X, users[hidden], items[hidden], values[hidden], train)


def given_split(name, key, seed=0):
    """The test part that came with the data: a mask or row numbers; no randomness."""
    data = np.load(data_folder() / f"{name}.npz", allow_pickle=False)
    hidden = np.zeros(len(data["rating"]), dtype=bool)
    hidden[data[key]] = True
    return split_ratings(name, hidden)


def random_fold(name, fold, folds=5):
    """One of equal parts of the ratings in a fixed random order."""
    count = len(ratings(name)[2])
    order = np.random.default_rng(0).permutation(count)
    hidden = np.zeros(count, dtype=bool)
    hidden[np.array_split(order, folds)[fold]] = True
    return split_ratings(name, hidden)


def random_part(name, share, seed):
    """Every rating hidden with the same probability."""
    count = len(ratings(name)[2])
    return split_ratings(name, np.random.default_rng(seed).random(count) < share)


# --- complete or nearly complete matrices --------------------------------------------


def hide(values, hidden):
    """The matrix with the entries of a mask hidden."""
    rows, cols = np.nonzero(hidden)
    return Split(np.where(hidden, np.nan, values), rows, cols, values[rows, cols])


def jester(seed, users=None):
    """30% of Jester's ratings hidden; ``users`` takes so many users at random."""
    path = data_folder() / "jester-1.npz"
    stored = np.load(path, allow_pickle=False)["rating_x100"]
    if users is not None:
        stored = stored[np.random.default_rng(0).choice(len(stored), users, False)]
    values = np.where(stored == -32768, np.nan, stored / 100.0)
    rated = ~np.isnan(values)
    return hide(values, rated & (np.random.default_rng(seed).random(rated.shape) < 0.3))


TABLES = ("breast_cancer", "wine", "diabetes")


def table(name, seed):
    """A table of scikit-learn, standardized by its full columns, 20% hidden."""
    from sklearn import datasets

    values = getattr(datasets, f"load_{name}")().data
    values = (values - values.mean(axis=0)) / values.std(axis=0)
    return hide(values, np.random.default_rng(seed).random(values.shape) < 0.2)


def losloop(kind, seed):
    """Traffic speed, times x sensors; hidden: 40%, or a day of every sensor."""
    path = data_folder() / "losloop_speed.npz"
    values = np.load(path, allow_pickle=False)["speed"].T.astype(float)
    rng = np.random.default_rng(seed)
    if kind == "random":
        return hide(values, rng.random(values.shape) < 0.4)
    days = rng.integers(7, size=values.shape[1])
    return hide(values, (np.arange(len(values)) // 288)[:, None] == days)


def smoking(seed):
    """38 control states: the last 12 years of 8 random ones hidden."""
    path = data_folder() / "california_smoking.npz"
    values = np.load(path, allow_pickle=False)["outcome"][1:]
    hidden = np.zeros(values.shape, dtype=bool)
    states = np.random.default_rng(seed).choice(len(values), 8, replace=False)
    hidden[states, -12:] = True
    return hide(values, hidden)


SIZES = {500: (500, 300, 100, 2.4), 1500: (1500, 1000, 200, 7.4)}


def synthetic(size, missing, seed, noisy=False):
    """Paper-like data; the truth is the clean value, or the one to be observed."""
    m, n, rank, noise = SIZES[size]
    truth, X, hidden = paper_like(m, n, rank, missing, noise, seed)
    if noisy:  # the same draw with nothing hidden
        truth = paper_like(m, n, rank, 0.0, noise, seed)[1]
    rows, cols = np.nonzero(hidden)
    return Split(X, rows, cols, truth[rows, cols])
