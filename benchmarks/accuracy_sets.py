"""Data sets and protocols of accuracy.py, calibration.py and recommenders.py.

Each repetition of a data set is a `Split`: the matrix to fit, and the held-out entries
with their true values. All randomness comes from ``default_rng`` of the repetition's
number. Real data is read from the folder NCARL_DATA; tables come with scikit-learn.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from common import data_folder, make_paper_like, versions

from ncarl import from_triplets


@dataclass(frozen=True)
class Split:
    """A matrix with missing entries, and the entries held out of it.

    ``train`` holds the other ratings (users, items, values) in file order, on which
    methods that process one rating at a time depend.
    """

    X: Any
    rows: Any
    cols: Any
    truth: Any
    train: Any = None


@dataclass(frozen=True)
class Spec:
    """A data set: one line of the accuracy table.

    ``draw(k)`` returns the k-th of ``repeats`` splits. Predictions of all methods are
    clipped to ``scale`` if it is given. ``target=None`` means the best baseline of the
    same run. ``score`` is the mean error of the repetitions ("mean"), the root mean
    square error over all held-out entries ("pooled"), or the mean relative error
    ("relative").
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
    published: str = ""


def make_estimator(engine="auto", sides="auto"):
    """Create the estimator under test, with default parameters."""
    from ncarl import BayesianNCARL

    return BayesianNCARL(engine=engine, sides=sides, random_state=0)


def warm_up(engine="auto"):
    """Fit a tiny matrix, so that imports and compilation are not timed."""
    X = np.random.default_rng(0).standard_normal((30, 12))
    X[X > 1.0] = np.nan
    for sides in ("columns", "both"):
        make_estimator(engine, sides).fit(X).predict([0], [0])


def is_available(spec):
    """Whether the file of the data set exists."""
    folder = data_folder()
    return spec.needs is None or (folder is not None and (folder / spec.needs).exists())


def select_specs(specs, names):
    """Select data sets by name or prefix ("tables", "ml-1m"); by default all."""
    if not names:
        return specs
    wanted = [name.strip() for name in names.split(",")]
    for name in wanted:
        if not any(_has_prefix(spec, name) for spec in specs):
            known = ", ".join(spec.name for spec in specs)
            raise SystemExit(f"unknown data set {name!r}; known: {known}")
    return [spec for spec in specs if any(_has_prefix(spec, name) for name in wanted)]


def _has_prefix(spec, name):
    return spec.name == name or spec.name.startswith(f"{name}-")


def machine(engine=None):
    """Software versions, the engine of the fit, and the GPU if available."""
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
    """Read the sets of a JSON file of results; empty if it does not exist."""
    if not path or not Path(path).exists():
        return {}
    return json.loads(Path(path).read_text())["sets"]


# --- ratings -------------------------------------------------------------------------


@cache
def load_ratings(name):
    """Load users, items (both from 0), ratings and the shape of their matrix."""
    data = np.load(data_folder() / f"{name}.npz", allow_pickle=False)
    users, items = data["user"].astype(int) - 1, data["item"].astype(int) - 1
    shape = {"ml-100k": (943, 1682), "flixster": (3000, 3000)}.get(name)
    if shape is None:  # MovieLens-1M has item ids without ratings
        items = np.unique(items, return_inverse=True)[1]
        shape = (int(users.max()) + 1, int(items.max()) + 1)
    return users, items, data["rating"].astype(float), shape


def split_ratings(name, hidden):
    """Split ratings into a sparse training matrix and the held-out ratings."""
    users, items, values, shape = load_ratings(name)
    observed = ~hidden
    train = (users[observed], items[observed], values[observed])
    X = from_triplets(*train, shape)
    return Split(X, users[hidden], items[hidden], values[hidden], train)


def predefined_split(name, key, seed=0):
    """Hold out the test set that comes with the data (a mask or row indices)."""
    data = np.load(data_folder() / f"{name}.npz", allow_pickle=False)
    hidden = np.zeros(len(data["rating"]), dtype=bool)
    hidden[data[key]] = True
    return split_ratings(name, hidden)


def random_fold(name, fold, folds=5):
    """Hold out one of equal folds of the ratings in a fixed random order."""
    count = len(load_ratings(name)[2])
    order = np.random.default_rng(0).permutation(count)
    hidden = np.zeros(count, dtype=bool)
    hidden[np.array_split(order, folds)[fold]] = True
    return split_ratings(name, hidden)


def random_holdout(name, share, seed):
    """Hold out each rating with the same probability."""
    count = len(load_ratings(name)[2])
    return split_ratings(name, np.random.default_rng(seed).random(count) < share)


# --- complete or nearly complete matrices --------------------------------------------


def hold_out(values, hidden):
    """Hold out the entries of a mask."""
    rows, cols = np.nonzero(hidden)
    return Split(np.where(hidden, np.nan, values), rows, cols, values[rows, cols])


def jester(seed, users=None):
    """30% of Jester's ratings held out; ``users`` limits the number of random users."""
    path = data_folder() / "jester-1.npz"
    stored = np.load(path, allow_pickle=False)["rating_x100"]
    if users is not None:
        stored = stored[np.random.default_rng(0).choice(len(stored), users, False)]
    values = np.where(stored == -32768, np.nan, stored / 100.0)
    held_out = np.random.default_rng(seed).random(values.shape) < 0.3
    return hold_out(values, held_out & ~np.isnan(values))


TABLES = ("breast_cancer", "wine", "diabetes")


def table(name, seed):
    """A scikit-learn table, standardized by its complete columns, 20% held out."""
    from sklearn import datasets

    values = getattr(datasets, f"load_{name}")().data
    values = (values - values.mean(axis=0)) / values.std(axis=0)
    return hold_out(values, np.random.default_rng(seed).random(values.shape) < 0.2)


def losloop(kind, seed):
    """Traffic speed, times x sensors; held out: 40%, or one day per sensor."""
    path = data_folder() / "losloop_speed.npz"
    values = np.load(path, allow_pickle=False)["speed"].T.astype(float)
    rng = np.random.default_rng(seed)
    if kind == "random":
        return hold_out(values, rng.random(values.shape) < 0.4)
    days = rng.integers(7, size=values.shape[1])
    return hold_out(values, (np.arange(len(values)) // 288)[:, None] == days)


def smoking(seed):
    """38 control states; the last 12 years of 8 random states are held out."""
    path = data_folder() / "california_smoking.npz"
    values = np.load(path, allow_pickle=False)["outcome"][1:]
    hidden = np.zeros(values.shape, dtype=bool)
    states = np.random.default_rng(seed).choice(len(values), 8, replace=False)
    hidden[states, -12:] = True
    return hold_out(values, hidden)


SIZES = {500: (500, 300, 100, 2.4), 1500: (1500, 1000, 200, 7.4)}


def synthetic(size, missing, seed, noisy=False):
    """Paper-like data; true values are clean, or with noise if ``noisy``."""
    m, n, rank, noise = SIZES[size]
    truth, X, hidden = make_paper_like(m, n, rank, missing, noise, seed)
    if noisy:  # the same draw without missing entries
        truth = make_paper_like(m, n, rank, 0.0, noise, seed)[1]
    rows, cols = np.nonzero(hidden)
    return Split(X, rows, cols, truth[rows, cols])
