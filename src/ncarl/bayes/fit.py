"""From observed entries to a fitted two-sided model: cut, choose, fit, blend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ncarl.bayes.intervals import Scores
from ncarl.bayes.journal import Journal, climb_arrays, kept_climb
from ncarl.bayes.search import (
    FIRST_STRENGTH,
    Cut,
    SideSearch,
    Trial,
    Watch,
    cuts_of,
    for_weighing,
)
from ncarl.bayes.side import Side, Ways, step_cost
from ncarl.bayes.state import Iterate, State
from ncarl.core.types import Array
from ncarl.engines import Engine
from ncarl.loop import History, Result
from ncarl.model import KernelModel
from ncarl.observed import Observed

#: The second side is taken by itself only if a step of it stays below so many flops:
#: about a quarter of a minute on two cores.
AFFORDABLE = 5e11
#: And below so many times that of the columns: tall tables gain little by it.
DEARER = 100.0
#: Steps where nothing can be held out to tell: a matrix so small is soon overfitted.
STEPS_UNSEEN = 10
#: A side that counts for less than this is left out.
LEAST_WEIGHT = 0.02


@dataclass(frozen=True)
class Plan:
    """What a fit is to do.

    Attributes
    ----------
    sides : {"auto", "columns", "rows", "both"}
        Which sides carry a kernel.
    strength : float or None
        Strength of the prior; None to choose it.
    validation : float
        Part of the entries that is held out first; 0 for none.
    seed : int
        Seed of the held-out entries.
    max_iter, tol
        Most steps of a run, and the gain that ends it.
    """

    sides: str
    strength: float | None
    validation: float
    seed: int
    max_iter: int
    tol: float


@dataclass(frozen=True)
class FittedSide:
    """A side after its fit."""

    model: KernelModel
    strength: float
    evidence: float
    history: dict[str, list[float]]
    steps: int
    settled: bool
    interrupted: bool


@dataclass(frozen=True)
class Fitted:
    """Both sides after the fit; scores hold for the column side, and for the blend."""

    search: list[dict[str, Any]]
    error: float
    columns: FittedSide | None
    rows: FittedSide | None
    weight: float
    scores: Scores
    blended_scores: Scores


def chosen_sides(sides: str, observed: Observed) -> tuple[bool, bool]:
    """Whether columns, and whether rows are to carry a kernel."""
    if sides != "auto":
        return sides in ("columns", "both"), sides in ("rows", "both")
    columns, rows = step_cost(observed), step_cost(observed.transposed())
    if columns > AFFORDABLE and rows < columns:
        return columns <= 4.0 * AFFORDABLE, True
    return True, rows <= min(AFFORDABLE, DEARER * columns)


class Fit:
    """The fit of one matrix.

    Parameters
    ----------
    observed : Observed
        Values of about unit size.
    plan : Plan
        What to do.
    ways : mapping
        The model of each side, by its name.
    engine : Engine
        Where to work.
    watch : callable
        Observers of a run by its label.
    checkpoint : Path or None
        Where the state is kept.
    owner : mapping
        Whose state that is.
    """

    def __init__(
        self, observed: Observed, plan: Plan, ways: Mapping[str, Ways], engine: Engine,
        *, watch: Watch, checkpoint: Path | None, owner: Mapping[str, Any],
    ) -> None:  # fmt: skip
        self.observed, self.plan, self.ways = observed, plan, ways
        self.engine, self.watch = engine, watch
        self.checkpoint, self.owner = checkpoint, owner
        self.journal = Journal(checkpoint, owner)

    def run(self) -> Fitted:
        """Choose on held-out entries, then fit to all of them."""
        columns, rows = chosen_sides(self.plan.sides, self.observed)
        wanted = [n for n, yes in (("columns", columns), ("rows", rows)) if yes]
        cuts = []
        if self.plan.validation > 0.0:
            cuts = cuts_of(self.observed, self.plan.validation, self.plan.seed)
        trials, held, tried = {}, {}, []
        for name in wanted if cuts else ():
            search = self._search(name, cuts)  # one at a time: each has its own copy
            trials[name] = search.choose(self.plan.strength)
            held[name] = search.held_out(trials[name])
            tried += [{"side": name, **asdict(trial)} for trial in search.trials]
        errors, spreads = _aligned([cuts[k] for k in for_weighing(cuts)], held)
        weight = _weight(errors, wanted)
        wanted = self._worth_keeping(wanted, weight)
        if "rows" not in wanted:
            weight = 1.0
        scores, blended = _scores(errors, spreads, weight, wanted)
        error = _blended_error(errors, weight)
        found: dict[str, FittedSide] = {}
        for name in wanted:
            found[name] = self._fitted(name, trials.get(name))
            if found[name].interrupted:
                break
        if "rows" not in found:
            weight = 1.0
        sides = found.get("columns"), found.get("rows")
        return Fitted(tried, error, *sides, weight, scores, blended)

    def _worth_keeping(self, wanted: list[str], weight: float) -> list[str]:
        """Sides that have a say; the columns stay, for rows to come."""
        if self.plan.sides != "auto" or len(wanted) < 2:
            return wanted
        return wanted if weight <= 1.0 - LEAST_WEIGHT else ["columns"]

    def _search(self, name: str, cuts: list[Cut]) -> SideSearch:
        """Trials of a side."""
        turned = cuts if name == "columns" else [cut.turned() for cut in cuts]
        return SideSearch(
            name, turned, self.ways[name], self.engine, max_iter=self.plan.max_iter,
            tol=self.plan.tol, journal=self.journal, watch=self.watch,
        )  # fmt: skip

    def _fitted(self, name: str, trial: Trial | None) -> FittedSide:
        """A side fitted to all entries, as far as its trial says."""
        data = self.observed if name == "columns" else self.observed.transposed()
        side = Side(data, self.ways[name], self.engine)
        given, steps = self.plan.strength, self.plan.max_iter
        strength = FIRST_STRENGTH if given is None else given
        unseen = trial is None and self.plan.validation > 0.0
        if unseen:
            steps = min(steps, STEPS_UNSEEN)
        if trial is not None:
            strength, steps = trial.strength, trial.steps
        result, state, evidence = self._climbed(side, name, strength, steps)
        ended = result.converged or result.last.step < steps
        return FittedSide(
            model=side.model(state),
            strength=strength,
            evidence=evidence,
            history=result.history,
            steps=result.last.step,
            settled=trial.settled if trial else ended or unseen,
            interrupted=result.interrupted,
        )

    def _climbed(
        self, side: Side, name: str, strength: float, steps: int
    ) -> tuple[Any, State, float]:
        """Where the climb of a side ends, from where a checkpoint left it."""
        home, file = self.engine.home, None
        if self.checkpoint is not None:
            file = Journal(Path(f"{self.checkpoint}.{name}"), self.owner)
        kept = None
        if file is not None and "climb" in file.stages:
            arrays = file.stages["climb"]
            climb, step, history, here, evidence = kept_climb(arrays, home.send)
            if step >= steps or bool(arrays["done"]):
                return _ended(step, history, bool(arrays["done"])), here, evidence
            kept = climb, step, history

        def keep(iterate: Iterate, history: History) -> None:
            if file is not None:
                done = iterate.change < self.plan.tol
                arrays = climb_arrays(iterate, history, home.fetch)
                file.put("climb", {**arrays, "done": done})

        with self.watch(name) as seen:
            result = side.run(
                strength,
                max_iter=steps,
                tol=self.plan.tol,
                observers=[keep, *seen],
                kept=kept,
            )
        found = result.last.found
        return result, found.state, found.evidence


@dataclass(frozen=True)
class _Last:
    """The step that a finished climb ended with."""

    step: int


def _ended(step: int, history: History, converged: bool) -> Result[Any]:
    """The result of a climb that a checkpoint holds whole."""
    return Result(_Last(step), history.columns, converged=converged)


def _aligned(
    cuts: list[Cut], held: Mapping[str, tuple[list[Array], list[Array]]]
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Errors and deviations of all cuts, in the order of the columns' side."""
    errors, spreads = {}, {}
    for name, (found, spread) in held.items():
        if name == "rows":
            found = [_turned_back(c, e) for c, e in zip(cuts, found, strict=True)]
            spread = [_turned_back(c, e) for c, e in zip(cuts, spread, strict=True)]
        errors[name], spreads[name] = np.concatenate(found), np.concatenate(spread)
    return errors, spreads


def _turned_back(cut: Cut, values: Array) -> Array:
    """Values of the hidden entries of the transposed cut, in the order of the cut."""
    places = np.arange(cut.hidden.n_observed)
    there = cut.hidden.with_values(places).transposed().values
    back = np.empty_like(values)
    back[there] = values
    return back


def _weight(errors: Mapping[str, Array], wanted: list[str]) -> float:
    """Part of the columns that makes the squared error of the blend least."""
    if len(wanted) == 1:
        return 1.0 if wanted == ["columns"] else 0.0
    if not errors:
        return 0.5
    by_columns, by_rows = errors["columns"], errors["rows"]
    gap = by_columns - by_rows
    square = float(gap @ gap)
    best = -float(gap @ by_rows) / square if square > 0.0 else 1.0
    return min(1.0, max(0.0, best))


def _blended_error(errors: Mapping[str, Array], weight: float) -> float:
    """Root mean square of the held-out errors of the blend; NaN without any."""
    shares = {"columns": weight, "rows": 1.0 - weight}
    if not errors:
        return float("nan")
    blend = sum(shares[name] * found for name, found in errors.items())
    return float(np.sqrt(np.mean(np.square(blend))))


def _scores(
    errors: Mapping[str, Array], spreads: Mapping[str, Array], weight: float,
    wanted: list[str],
) -> tuple[Scores, Scores]:  # fmt: skip
    """Scores of the column side (or the only one), and of the blend."""
    if not errors:
        return Scores(np.empty(0)), Scores(np.empty(0))
    single = "columns" if "columns" in errors else "rows"
    scores = Scores.of(errors[single], spreads[single])
    if len(wanted) < 2:
        return scores, scores
    blend = weight * errors["columns"] + (1.0 - weight) * errors["rows"]
    squares = weight * spreads["columns"] ** 2 + (1.0 - weight) * spreads["rows"] ** 2
    return scores, Scores.of(blend, np.sqrt(squares))


def ways_of_sides(
    *, prior: Any, center: str, noise: Any, dtype: str
) -> dict[str, Ways]:
    """The model of each side; what is given of the columns is not known of the rows."""
    columns = Ways(prior, center, noise, dtype)
    own = prior if isinstance(prior, str) else "co-observation"
    middle = {"columns": "two-way"}.get(center, center)
    return {
        "columns": columns,
        "rows": replace(columns, prior=own, center=middle),
    }
