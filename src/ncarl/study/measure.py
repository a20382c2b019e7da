"""Do one cell: pose its problem, fit, and measure what was hidden."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ncarl import Threads, make
from ncarl.core.types import Array
from ncarl.exceptions import BrokenFileError
from ncarl.metrics import psnr, relative_rmse, rmse
from ncarl.study.cells import ABSENT, DONE, OVER, SEARCH, Cell, Result
from ncarl.study.problems import Posed, pose, with_held_out

#: What of an estimator is worth keeping, where it has it.
FACTS = (
    *("rank_", "residual_", "gap_", "lam_", "weight_", "sides_", "best_params_"),
    "engine_",
)
#: Singular values above this count for the rank, as in the paper's figure 5.
RANK_ABOVE = 1e-3


class Mean:
    """The mean of all observed entries everywhere: the least one should expect."""

    def fit(self, X: Any) -> Mean:
        """Take the mean."""
        values = X[~np.isnan(X)] if isinstance(X, np.ndarray) else X.data
        self.mean_ = float(np.mean(values))
        return self

    def predict(self, rows: Array, cols: Array) -> Array:
        """The mean, as often as asked for."""
        return np.full(len(rows), self.mean_)


def measure(payload: Mapping[str, Any]) -> dict[str, Any]:
    """The result of a cell, as a record.

    Parameters
    ----------
    payload : mapping
        "cell" (its record), "engine" (a name, for estimators that have one),
        "threads", "budget" (seconds, or None), "folder" (for completed matrices, or
        None), "machine" (words on where it runs) and "version" (of the code).
    """
    cell = Cell.from_record(payload["cell"])
    try:
        posed = pose(cell.problem, cell.seed)
    except (OSError, BrokenFileError, ModuleNotFoundError) as error:
        # The data, or what reads them, may be there the next time.
        said = " ".join(str(error).split())
        return Result(cell, ABSENT, payload["version"], message=said).record()
    return _measured(cell, posed, payload).record()


def _measured(cell: Cell, posed: Posed, payload: Mapping[str, Any]) -> Result:
    """Fit and measure."""
    if cell.role == SEARCH:
        posed = with_held_out(posed, cell.seed)
    warm_up(payload["engine"], payload["threads"])
    estimator = built(
        cell.estimator, cell.params, payload["engine"], payload["threads"]
    )
    seconds, late = timed_fit(estimator, posed.X, payload["budget"])
    guess = np.asarray(estimator.predict(posed.rows, posed.cols))
    validation = None
    if posed.held is not None:
        rows, cols, known = posed.held
        validation = relative_rmse(known, np.asarray(estimator.predict(rows, cols)))
    facts = facts_of(estimator)
    if cell.keep == "picture":
        facts |= _kept(cell, posed, estimator, payload["folder"])
    history = getattr(estimator, "history_", {})
    steps = getattr(estimator, "n_iter_", None)
    settled = getattr(estimator, "converged_", None)
    if payload["budget"] is not None:
        facts["budget"] = payload["budget"]
    curve = history.get("objective", ()) if cell.keep == "curve" else ()
    error = finite(relative_rmse(posed.truth, guess))
    if error is None:
        raise FloatingPointError("the completed values are not finite")
    return Result(
        cell,
        OVER if late else DONE,
        version=payload["version"],
        error=error,
        validation=finite(validation),
        scores=scores_of(posed, guess),
        seconds=seconds,
        steps=None if steps is None else int(steps),
        converged=None if settled is None else bool(settled),
        facts=facts,
        curve=tuple(float(value) for value in curve),
        machine=payload["machine"],
        message=f"stopped after {seconds:.0f} s" if late else "",
    )


def built(name: str, params: Mapping[str, Any], engine: str, threads: int) -> Any:
    """An estimator, to run where it is told to."""
    if name == "mean":
        return Mean()
    where: Any = Threads(threads) if engine == "threads" else engine
    return make(name, **{**params, "engine": where})


@cache
def warm_up(engine: str, threads: int) -> None:
    """Fit something tiny, so that loading and compiling are not timed."""
    X = np.random.default_rng(0).standard_normal((30, 12))
    X[X > 1.0] = np.nan
    for name in ("ncarl", "nuclear", "bayes", "soft-impute"):
        timed_fit(built(name, {"max_iter": 2}, engine, threads), X, None)


def finite(value: float | None) -> float | None:
    """A number that JSON can hold, or None."""
    return value if value is not None and np.isfinite(value) else None


def timed_fit(estimator: Any, X: Any, budget: float | None) -> tuple[float, bool]:
    """Seconds of a fit, and whether it was stopped for taking longer than it may."""
    late = False
    start = time.perf_counter()

    def stop(info: object) -> bool:
        nonlocal late
        late = budget is not None and time.perf_counter() - start > budget
        return late

    if hasattr(estimator, "set_params"):
        estimator.set_params(callback=stop)
    with warnings.catch_warnings():
        # Whether the steps settled is part of the result.
        warnings.simplefilter("ignore")
        estimator.fit(X)
    return time.perf_counter() - start, late


def scores_of(posed: Posed, guess: Array) -> dict[str, float]:
    """Further measures of the hidden entries."""
    scores = {"rmse": finite(rmse(posed.truth, guess))}
    if posed.picture:
        scores["psnr"] = finite(psnr(posed.truth, guess))
    return {name: value for name, value in scores.items() if value is not None}


def facts_of(estimator: Any) -> dict[str, Any]:
    """What the estimator tells of its fit, as JSON can hold it."""
    facts = {}
    for name in FACTS:
        value = getattr(estimator, name, None)
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, Mapping):
            value = {str(key): item for key, item in value.items()}
        if isinstance(value, float):
            value = finite(value)
        if isinstance(value, (str, int, float, dict)):
            facts[name.rstrip("_")] = value
    return facts


def _kept(
    cell: Cell, posed: Posed, estimator: Any, folder: str | None
) -> dict[str, Any]:
    """Write the completed matrix; its rank, as the paper counts it."""
    from ncarl.storage import replacing

    smooth = np.asarray(estimator.transform(posed.X, keep_observed=False))
    filled = np.asarray(estimator.transform(posed.X))
    values = np.linalg.svd(smooth, compute_uv=False)
    if folder is not None:
        with replacing(Path(folder) / f"{cell.key}.npz") as temporary:
            np.savez_compressed(
                temporary,
                seen=posed.X,
                filled=filled,
                smooth=smooth,
                allow_pickle=False,
            )
    return {"rank_above_1e-3": int(np.count_nonzero(values > RANK_ABOVE))}
