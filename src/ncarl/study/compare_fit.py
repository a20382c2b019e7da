"""One fit of a comparison, in a process of its own."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ncarl.core.types import Array
from ncarl.methods import make, parameters_of
from ncarl.metrics import coverage, relative_rmse, rmse
from ncarl.observed import Observed
from ncarl.study.cells import DONE, OVER
from ncarl.study.compare_advice import MEAN
from ncarl.study.compare_lines import LEVEL, Fit
from ncarl.study.measure import timed_fit
from ncarl.study.memory import own_memory_gb

#: Methods that choose their centring themselves.
OWN_CENTRE = ("bayes", "ncarl-cv")


@dataclass(frozen=True)
class Draw:
    """What a fit sees, and what was hidden from it.

    Attributes
    ----------
    kept, hidden : Observed
        Entries of both kinds.
    units : array of shape (n,)
        What errors of each column are counted in; 0 for columns without a spread, whose
        entries are not scored.
    """

    kept: Observed
    hidden: Observed
    units: Array

    @property
    def places(self) -> tuple[Array, Array]:
        """Rows and columns of the hidden entries."""
        return self.hidden.rows, self.hidden.indices.astype(np.int64)

    def scored(self) -> Array:
        """Which hidden entries count."""
        counted: Array = self.units[self.hidden.indices] > 0.0
        return counted

    def errors(self, guess: Array) -> tuple[float, float]:
        """Error of guesses of the hidden entries in its unit, and the relative one."""
        if not np.isfinite(guess).all():
            raise ValueError("the completed values are not finite numbers")
        truth, some = self.hidden.values, self.scored()
        units = self.units[self.hidden.indices[some]]
        error = rmse(truth[some] / units, guess[some] / units)
        return error, relative_rmse(truth, guess)


def write_data(folder: Path, observed: Observed, units: Array) -> None:
    """Write what all fits share."""
    np.savez(
        folder / "data.npz",
        allow_pickle=False,
        indptr=observed.indptr,
        indices=observed.indices,
        values=observed.values,
        shape=np.array(observed.shape),
        units=units,
    )


def write_mask(folder: Path, draw: int, mask: Array) -> None:
    """Write which entries a draw hides."""
    np.save(folder / f"draw-{draw}.npy", mask, allow_pickle=False)


def read_draw(folder: Path, draw: int) -> Draw:
    """A draw as `write_data` and `write_mask` have left it."""
    mask = np.load(folder / f"draw-{draw}.npy", allow_pickle=False)
    with np.load(folder / "data.npz", allow_pickle=False) as data:
        m, n = (int(size) for size in data["shape"])
        observed = Observed(data["indptr"], data["indices"], data["values"], (m, n))
        units = data["units"]
    return Draw(observed.without(mask), observed.without(~mask), units)


def fit_one(payload: Mapping[str, Any]) -> dict[str, Any]:
    """The record of a `Fit`.

    Parameters
    ----------
    payload : mapping
        "method", "draw", "folder" (where the data are), "scale", "seed", "engine" (a
        name), "threads" and "budget" (seconds).
    """
    draw = read_draw(Path(payload["folder"]), payload["draw"])
    engine = engine_of(payload["engine"], payload["threads"])
    method, params = payload["method"], usual(payload["method"], **_asked(payload))
    warm_up(method, params, engine)
    estimator = make(method, engine=engine, **params)
    seconds, late = timed_fit(estimator, draw.kept.to_csr(), payload["budget"])
    guess = np.asarray(estimator.predict(*draw.places))
    settled = getattr(estimator, "converged_", None)
    return Fit(
        method,
        payload["draw"],
        OVER if late else DONE,
        *draw.errors(guess),
        coverage=covered(estimator, draw),
        seconds=seconds,
        memory_gb=own_memory_gb(),
        settled=None if settled is None or late else bool(settled),
        engine=estimator.engine_,
        message=f"stopped after {seconds:.3g} s" if late else "",
    ).record()


def _asked(payload: Mapping[str, Any]) -> dict[str, Any]:
    """What of a payload chooses parameters."""
    return {name: payload[name] for name in ("scale", "seed")}


def usual(method: str, *, scale: str | None, seed: int) -> dict[str, Any]:
    """The parameters that ``ncarl complete`` gives a method unless told otherwise.

    Examples
    --------
    >>> usual("bias", scale="columns", seed=3)
    {'scale': 'columns'}
    """
    wanted: dict[str, Any] = {"scale": scale, "random_state": seed}
    if scale == "columns" and method not in OWN_CENTRE:
        wanted["center"] = "columns"  # one mean for columns of many units says nothing
    known = parameters_of(method)
    return {name: value for name, value in wanted.items() if name in known}


def engine_of(name: str, threads: int) -> Any:
    """The engine of a name, held to so many threads where it has threads."""
    from ncarl.engines import Threads, pick_engine

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what ran is part of the result
        engine = pick_engine(name, again=True)
    if isinstance(engine, Threads):
        return Threads(threads, why=engine.why)
    return engine


def warm_up(method: str, params: Mapping[str, Any], engine: Any) -> None:
    """Load, and compile, what a method needs, so that its seconds are its own."""
    X = np.random.default_rng(0).standard_normal((12, 6))
    X[0, 0] = X[3, 2] = np.nan
    few = {"max_iter": 2, "search_iter": 1}
    known = parameters_of(method)
    steps = {name: value for name, value in few.items() if name in known}
    # What is wrong with a method shows in its own fit.
    with warnings.catch_warnings(), contextlib.suppress(Exception):
        warnings.simplefilter("ignore")
        make(method, engine=engine, **params, **steps).fit(X).predict([0], [0])


def covered(estimator: Any, draw: Draw) -> float | None:
    """Part of the hidden entries in their intervals; None for a method without any."""
    if not hasattr(estimator, "predict_interval") or estimator._noise_level() == 0.0:
        return None
    some = draw.scored()
    low, high = estimator.predict_interval(*draw.places, level=LEVEL)
    return coverage(draw.hidden.values[some], low[some], high[some])


def mean_fit(draw: Draw, number: int, *, by_column: bool) -> Fit:
    """The yardstick: the mean of the kept entries, or of those of each column."""
    kept = draw.kept
    # Parts are added up, since a sum of the largest numbers has no room.
    if by_column:
        parts = kept.values / kept.column_counts[kept.indices]
        means = np.bincount(kept.indices, parts, minlength=kept.shape[1])
    else:
        means = np.full(kept.shape[1], np.sum(kept.values / kept.n_observed))
    return Fit(MEAN, number, DONE, *draw.errors(means[draw.hidden.indices]))
