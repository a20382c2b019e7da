"""How strong a penalty is to be: given, or chosen on held-out entries."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ncarl.engines import Engine
from ncarl.estimators.parameters import check_number, check_whole
from ncarl.holdout import hold_out
from ncarl.matrix_model import Ready
from ncarl.metrics import rmse
from ncarl.observed import Observed
from ncarl.penalties import Penalty
from ncarl.progress import progress_bar
from ncarl.solvers.als import Alternating
from ncarl.solvers.entries import Entries
from ncarl.solvers.gradient import Gradient
from ncarl.solvers.path import MOST, PathSolver, Resumed, walk
from ncarl.solvers.problem import STEADY, Ending, Solver

#: Strength over the largest useful one where nothing can be held out to choose it.
FALLBACK = 0.1
#: Strengths in a solver are held between these.
SMALLEST, LARGEST = 1e-100, 1e100
#: An error on held-out entries that is this part of them needs no smaller strength.
SMALL = 1e-4
#: Part of the entries that is held out.
SHARE = 0.1


@dataclass(frozen=True)
class Choices:
    """Strengths to choose from, for some entries.

    Attributes
    ----------
    largest : float
        The least strength with which the result is 0.
    make : callable
        The solver of a strength.
    tol : float
        Change that ends the run of a trial.
    """

    largest: float
    make: Callable[[float], PathSolver]
    tol: float = STEADY


#: From entries made ready to the choices.
Ways = Callable[[Ready], Choices]


def check_lam(lam: Any, *, exact: bool = True) -> None:
    """Raise if ``lam`` is no strength; None is one where there is an exact model."""
    if (lam is None and exact) or (isinstance(lam, str) and lam == "auto"):
        return
    hint = "; 'auto' chooses it on held-out entries"
    check_number("lam", lam, low=0.0, strict=True, hint=hint)


def check_factored(estimator: Any) -> None:
    """Raise if a parameter that factored models share is wrong."""
    if estimator.rank is not None:
        check_whole("rank", estimator.rank, low=1)
    check_lam(estimator.lam)
    check_whole("random_state", estimator.random_state, low=0)
    if estimator.mu is None:
        return
    check_number("mu", estimator.mu, low=0.0, strict=True)
    if estimator.lam is not None:
        raise ValueError(
            f"mu belongs to lam=None, got lam={estimator.lam!r} with "
            f"mu={estimator.mu!r}; leave one of them out"
        )


def inner_lam(lam: float, ready: Ready, degree: float) -> float:
    """A strength in the units of the solver, for a penalty of some degree."""
    inner = lam / ready.value_unit(2.0 - degree)
    return float(min(max(inner, SMALLEST), LARGEST))


def gradient_ways(estimator: Any, penalty: Penalty, engine: Engine) -> Ways:
    """Proximal gradient solvers of all strengths of a penalty."""

    def ways(ready: Ready) -> Choices:
        problem = estimator._dense(ready, engine)
        largest = penalty.strength(problem.top)
        return Choices(largest, lambda lam: Gradient(problem, penalty, lam))

    return ways


def alternating_ways(most: int | None, seed: int, engine: Engine) -> Ways:
    """Alternating solvers of all strengths of the nuclear norm, up to some rank."""

    def ways(ready: Ready) -> Choices:
        entries = Entries(ready.residuals, engine.home)
        rank = min(entries.shape) if most is None else most
        return Choices(entries.top, lambda lam: Alternating(entries, lam, rank, seed))

    return ways


def strength_solver(
    estimator: Any,
    ways: Ways,
    ready: Ready,
    observed: Observed,
    degree: float,
    found: dict[str, Any],
    share: float = SHARE,
) -> Solver:
    """The solver of the strength ``lam`` of an estimator, for entries made ready.

    With ``lam="auto"`` falling strengths are tried on entries that were held out, and
    the solver starts where the best trial ended: penalties that are not convex would
    else end elsewhere. Sets ``lam_`` and, for the trials, ``path_``; ``found`` is what
    a checkpoint keeps of them.
    """
    estimator.path_, start = [], None
    if not isinstance(estimator.lam, str):
        found["lam"] = float(estimator.lam)
    elif "lam" not in found:
        start = _search(estimator, ways, observed, degree, found, share)
    estimator.path_ = found.get("path", [])
    estimator.lam_ = float(found["lam"])
    estimator._lam_unit = ready.value_unit(2.0 - degree)
    solver = ways(ready).make(inner_lam(estimator.lam_, ready, degree))
    if start is None or start.unit != ready.value_unit():
        return solver
    return Resumed(solver, start.state)


@dataclass(frozen=True)
class _Start:
    """The last state of a trial, and the unit that it is in."""

    state: Any
    unit: float


def _search(
    estimator: Any,
    ways: Ways,
    observed: Observed,
    degree: float,
    found: dict[str, Any],
    share: float,
) -> _Start | None:
    """Find the best strength on held-out entries, put it into ``found``; its end."""
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
        unit = ready.value_unit(2.0 - degree)
        found["lam"] = FALLBACK * ways(ready).largest * unit
        return None
    ready = estimator._ready(kept)
    choices = ways(ready)
    score, size = _scorer(ready, hidden)
    with progress_bar(estimator.progress, MOST, "search") as advance:
        table, state = walk(
            choices.make, choices.largest, score, tol=choices.tol, small=SMALL * size,
            tried=lambda one: advance(f"error {one.error:.4g}"),
        )  # fmt: skip
    best = min(table, key=lambda one: one.error)
    unit = ready.value_unit(2.0 - degree)
    # Singular values of noise grow with the root of the number of entries, and so
    # must the threshold when those that were held out come back.
    more = (observed.n_observed / kept.n_observed) ** (1.0 - degree / 2.0)
    found["lam"] = best.strength * unit * more
    found["path"] = [
        {
            "lam": one.strength * unit,
            "error": one.error,
            "steps": one.steps,
            "rank": one.rank,
        }
        for one in table
    ]
    return _Start(state, ready.value_unit())


def _scorer(ready: Ready, hidden: Observed) -> tuple[Callable[[Ending], float], float]:
    """Error of a result on hidden entries, and their own size.

    In the user's units, or in spreads of the columns where these were scaled.
    """
    columns = hidden.indices.astype(np.int64)
    spreads = ready.centre.spreads[columns]
    units = np.where(spreads > 0.0, spreads, 1.0) * ready.unit
    unit = ready.value_unit()  # errors are measured near 1, where squares are safe
    truth = hidden.values / units

    def score(ending: Ending) -> float:
        model = ready.model(ending.X, ending.factors, None)
        return rmse(truth, model.predict(hidden.rows, columns) / units) * unit

    return score, rmse(truth, np.zeros(len(truth))) * unit
