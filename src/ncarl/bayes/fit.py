"""From observed entries to a fitted two-sided model: cut, choose, fit, blend."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from ncarl.bayes.cuts import Cut, cuts_of, for_weighing
from ncarl.bayes.journal import Arrays, Journal, climb_arrays, kept_climb
from ncarl.bayes.near import COUNTS, comparable
from ncarl.bayes.search import DEAR, FIRST_STRENGTH, SideSearch, Trial, Watch
from ncarl.bayes.side import Side, Ways, step_cost
from ncarl.bayes.state import Iterate, State
from ncarl.bayes.weighing import Held, Weighed, joined, weighed
from ncarl.checkpoint import Checkpoint
from ncarl.engines import Engine
from ncarl.loop import History, NoStepError, Result
from ncarl.model import KernelModel
from ncarl.observed import Observed
from ncarl.surveys import Entries, InMemory

#: The second side is taken by itself only if a step of it stays below so many flops:
#: about a quarter of a minute on two cores.
AFFORDABLE = 5e11
#: And below so many times that of the columns: tall tables gain little by it.
DEARER = 100.0
#: Nor is it where it is dear and the nearest rows make errors smaller than so much.
ENOUGH_SHARPER = 0.98
#: Steps where nothing can be held out to tell: a matrix so small is soon overfitted.
STEPS_UNSEEN = 10


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
    """All trials, both sides after the fit, and how they are put together."""

    search: list[dict[str, Any]]
    columns: FittedSide | None
    rows: FittedSide | None
    parts: Weighed


def chosen_sides(sides: str, entries: Entries) -> tuple[bool, bool]:
    """Whether columns, and whether rows are to carry a kernel.

    Rows can only where all of them are in memory.
    """
    if sides != "auto":
        return sides in ("columns", "both"), sides in ("rows", "both")
    if not isinstance(entries, InMemory):
        return True, False
    columns, rows = step_cost(entries.survey), step_cost(_turned(entries).survey)
    if columns > AFFORDABLE and rows < columns:
        return columns <= 4.0 * AFFORDABLE, True
    return True, rows <= min(AFFORDABLE, DEARER * columns)


def _turned(entries: Entries) -> InMemory:
    """The transposed matrix."""
    assert isinstance(entries, InMemory)
    return InMemory(entries.observed.transposed())


class Fit:
    """The fit of one matrix.

    Parameters
    ----------
    raw : Entries
        Values as they were given.
    inward : callable
        Entries as the model sees them, with values of about unit size.
    plan : Plan
        What to do.
    ways : mapping
        The model of each side, by its name.
    engine : Engine
        Where to work.
    watch : callable
        Observers of a run by its label.
    checkpoint : Checkpoint or None
        Where the state is kept.
    owner : mapping
        Whose state that is.
    """

    def __init__(
        self, raw: Entries, inward: Callable[[Observed], Observed], plan: Plan,
        ways: Mapping[str, Ways], engine: Engine, *, watch: Watch,
        checkpoint: Checkpoint | None, owner: Mapping[str, Any],
    ) -> None:  # fmt: skip
        self.raw, self.inward, self.plan, self.ways = raw, inward, plan, ways
        self.entries = raw.changed(inward)
        self.engine, self.watch = engine, watch
        self.checkpoint, self.owner = checkpoint, owner
        self.journal = Journal(checkpoint, owner)

    def run(self) -> Fitted:
        """Choose on held-out entries, then fit to all of them."""
        columns, rows = chosen_sides(self.plan.sides, self.entries)
        wanted = [n for n, yes in (("columns", columns), ("rows", rows)) if yes]
        cuts = []
        if self.plan.validation > 0.0:
            share, seed = self.plan.validation, self.plan.seed
            cuts = cuts_of(self.raw, self.inward, share, seed)
        trials, parts, tried = self._tried(wanted, cuts)
        if cuts:
            wanted = list(trials)
        found = self._weighed(parts, cuts, wanted)
        if self._auto and found.weight == 1.0:
            wanted = ["columns"]
        fitted: dict[str, FittedSide] = {}
        for name in wanted:
            fitted[name] = self._fitted(name, trials.get(name))
            if fitted[name].interrupted:
                break
        weight = found.weight if "rows" in fitted else 1.0
        sides = fitted.get("columns"), fitted.get("rows")
        return Fitted(tried, *sides, replace(found, weight=weight))

    @property
    def _auto(self) -> bool:
        """Whether what does not pay is left out."""
        return self.plan.sides == "auto"

    def _tried(
        self, wanted: list[str], cuts: list[Cut]
    ) -> tuple[dict[str, Trial], dict[str, list[Held]], list[dict[str, Any]]]:
        """The best trial of each side, what it makes of the cuts, and all trials."""
        best: dict[str, Trial] = {}
        parts: dict[str, list[Held]] = {}
        tried: list[dict[str, Any]] = []
        for name in wanted if cuts else ():
            if name == "rows" and self._rows_needless(parts, cuts):
                continue
            search = self._search(name, cuts)  # one at a time: each has its own copy
            best[name] = search.choose(self.plan.strength)
            parts[name] = search.held_out(best[name])
            tried += [{"side": name, **asdict(trial)} for trial in search.trials]
        return best, parts, tried

    def _weighed(
        self, parts: Mapping[str, list[Held]], cuts: list[Cut], wanted: list[str]
    ) -> Weighed:
        """How the sides are put together, entry by entry of the cuts for that."""
        used = [cuts[k] for k in for_weighing(cuts)]
        held = {}
        for name, found in parts.items():
            if name == "rows":
                found = [h.turned_back(c) for h, c in zip(found, used, strict=True)]
            held[name] = joined(found)
        return weighed(held, used, wanted, droppable=self._auto)

    def _rows_needless(self, parts: Mapping[str, list[Held]], cuts: list[Cut]) -> bool:
        """Whether nearest rows say already what a dear kernel of the rows would."""
        if not self._auto or step_cost(_turned(self.entries).survey) < DEAR:
            return False
        near = self._weighed(parts, cuts, ["columns"]).near if parts else None
        return near is not None and near.sharper < ENOUGH_SHARPER

    def _search(self, name: str, cuts: list[Cut]) -> SideSearch:
        """Trials of a side."""
        columns = name == "columns"
        turned = cuts if columns else [cut.turned() for cut in cuts]
        heard = self._auto and columns and self._comparable()
        near = COUNTS if heard else ()
        return SideSearch(
            name, turned, self.ways[name], self.engine, max_iter=self.plan.max_iter,
            tol=self.plan.tol, journal=self.journal, watch=self.watch, near=near,
        )  # fmt: skip

    def _comparable(self) -> bool:
        """Whether rows can be compared with each other."""
        entries = self.entries
        return isinstance(entries, InMemory) and comparable(entries.observed)

    def _fitted(self, name: str, trial: Trial | None) -> FittedSide:
        """A side fitted to all entries, as far as its trial says."""
        data = self.entries if name == "columns" else _turned(self.entries)
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
            file = Journal(self.checkpoint.beside(name), self.owner)
        kept = None
        if file is not None and "climb" in file.stages:
            arrays = file.stages["climb"]
            climb, step, history, here, evidence = kept_climb(arrays, home.send)
            if step >= steps or bool(arrays["done"]):
                done = bool(arrays["done"])
                return _ended(step, history, converged=done), here, evidence
            kept = climb, step, history

        def keep(iterate: Iterate, history: History, last: bool = False) -> None:
            def work() -> Arrays:
                done = iterate.change < self.plan.tol
                return {**climb_arrays(iterate, history, home.fetch), "done": done}

            if file is not None:
                file.keep("climb", iterate.step, work, last=last)

        try:
            with self.watch(name) as seen:
                result = side.run(
                    strength, max_iter=steps, tol=self.plan.tol,
                    observers=[keep, *seen], kept=kept,
                )  # fmt: skip
        except NoStepError:
            if kept is None:
                raise
            # It had come to where digits run out.
            return _ended(step, history, converged=True), here, evidence
        keep(result.last, History(result.history), last=True)
        found = result.last.found
        return result, found.state, found.evidence


@dataclass(frozen=True)
class _Last:
    """The step that a finished climb ended with."""

    step: int


def _ended(step: int, history: History, *, converged: bool) -> Result[Any]:
    """The result of a climb that a checkpoint holds whole."""
    return Result(_Last(step), history.columns, converged=converged)


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
