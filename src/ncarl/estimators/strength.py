"""How strong a penalty is to be: given, or chosen on held-out entries."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np

from ncarl.engines import Engine
from ncarl.estimators.parameters import check_number
from ncarl.holdout import hold_out
from ncarl.matrix_model import Ready
from ncarl.metrics import rmse
from ncarl.observed import Observed
from ncarl.penalties import Penalty
from ncarl.progress import progress_bar
from ncarl.solvers.gradient import Gradient
from ncarl.solvers.path import MOST, PathSolver, walk
from ncarl.solvers.problem import Ending

#: Strength over the largest useful one where nothing can be held out to choose it.
FALLBACK = 0.1
#: Part of the entries that is held out.
SHARE = 0.1

#: From entries made ready: the largest useful strength, and the solver of any.
Ways = Callable[[Ready], tuple[float, Callable[[float], PathSolver]]]


def check_lam(lam: Any, *, exact: bool = True) -> None:
    """Raise if ``lam`` is no strength; None is one where there is an exact model."""
    if (lam is None and exact) or (isinstance(lam, str) and lam == "auto"):
        return
    hint = "; 'auto' chooses it on held-out entries"
    check_number("lam", lam, low=0.0, strict=True, hint=hint)


def inner_lam(lam: float, ready: Ready, degree: float) -> float:
    """A strength in the units of the solver, for a penalty of some degree."""
    return float(lam / ready.unit ** (2.0 - degree))


def gradient_ways(estimator: Any, penalty: Penalty, engine: Engine) -> Ways:
    """Proximal gradient solvers of all strengths of a penalty."""

    def ways(ready: Ready) -> tuple[float, Callable[[float], PathSolver]]:
        problem = estimator._dense(ready, engine)
        largest = penalty.strength(problem.top)
        return largest, lambda strength: Gradient(problem, penalty, strength)

    return ways


def chosen_lam(
    estimator: Any,
    ways: Ways,
    observed: Observed,
    degree: float,
    found: dict[str, Any],
    share: float = SHARE,
) -> float:
    """The strength ``lam`` of an estimator, in the user's units.

    With ``lam="auto"`` falling strengths are tried on entries that were held out;
    ``path_`` then has the table, and ``found`` what a checkpoint keeps of it.
    """
    estimator.path_ = []
    if not isinstance(estimator.lam, str):
        return float(estimator.lam)
    if "lam" not in found:
        found |= _searched(estimator, ways, observed, degree, share)
    estimator.path_ = found["path"]
    return float(found["lam"])


def _searched(
    estimator: Any, ways: Ways, observed: Observed, degree: float, share: float
) -> dict[str, Any]:
    """The best strength on held-out entries, and the table of all that were tried."""
    rng = np.random.default_rng(int(estimator.random_state))
    kept, hidden = hold_out(observed, share, rng)
    if hidden.n_observed == 0:
        warnings.warn(
            "X has too few observed entries to hide some of them; lam='auto' takes "
            f"{FALLBACK:g} of the largest useful strength",
            UserWarning,
            stacklevel=5,
        )
        ready = estimator._ready(observed)
        largest, _ = ways(ready)
        unit = ready.unit ** (2.0 - degree)
        return {"lam": FALLBACK * largest * unit, "path": []}
    ready = estimator._ready(kept)
    largest, make = ways(ready)
    columns = hidden.indices.astype(np.int64)
    spreads = ready.centre.spreads[columns]
    varies = spreads > 0.0
    units = np.where(varies, spreads, 1.0) * (ready.unit if estimator.scale else 1.0)

    def score(ending: Ending) -> float:
        model = ready.model(ending.X, ending.factors, None)
        guess = model.predict(hidden.rows, columns)
        return rmse(hidden.values / units, guess / units)

    with progress_bar(estimator.progress, MOST, "search") as advance:
        table = walk(
            make, largest, score, tried=lambda one: advance(f"error {one.error:.4g}")
        )
    best = min(table, key=lambda one: one.error)
    unit = ready.unit ** (2.0 - degree)
    rows = [asdict(one) | {"strength": one.strength * unit} for one in table]
    path = [{"lam": row.pop("strength"), **row} for row in rows]
    return {"lam": best.strength * unit, "path": path}
