"""Which cells a study needs, which of them come next, and what was chosen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ncarl.study.cells import DONE, FINAL, SEARCH, Cell, Result
from ncarl.study.entries import PAPER
from ncarl.study.plan import Contender, Plan, Setting

#: Seed on which grids are searched.
SEARCH_SEED = 0

Results = Mapping[str, Result]


@dataclass(frozen=True)
class Task:
    """A cell, and where it belongs.

    Attributes
    ----------
    cell : Cell
        The fit.
    study, setting : str
        Table or figure, and its column.
    heavy : bool
        Whether a GPU is worth it.
    """

    cell: Cell
    study: str
    setting: str
    heavy: bool


def search_cells(setting: Setting, one: Contender) -> list[Cell]:
    """The cells that choose a contender's parameters; none if nothing is to choose."""
    points = one.points()
    if len(points) < 2:
        return []
    return [_cell(setting, one, params, SEARCH_SEED, SEARCH) for params in points]


def final_cells(
    plan: Plan, setting: Setting, one: Contender, params: Mapping[str, Any]
) -> list[Cell]:
    """The cells that are shown: one a seed, with the parameters given."""
    seeds = range(setting.seeds)
    return [_cell(setting, one, params, seed, FINAL, plan.keep) for seed in seeds]


def _cell(
    setting: Setting,
    one: Contender,
    params: Mapping[str, Any],
    seed: int,
    role: str,
    keep: str = "",
) -> Cell:
    """One cell of a setting."""
    return Cell(setting.problem, one.name, one.estimator, params, seed, role, keep)


def chosen(
    setting: Setting, one: Contender, protocol: str, results: Results
) -> dict[str, Any] | None:
    """The parameters that a protocol picks; None while they are not known.

    ``paper`` picks by the error on the hidden entries, ``honest`` by that on observed
    entries that the search held out. Fits that failed or overran are no choice.
    """
    searched = search_cells(setting, one)
    if not searched:
        return one.points()[0]
    if any(cell.key not in results for cell in searched):
        return None
    found = [results[cell.key] for cell in searched]
    able = [result for result in found if result.status == DONE]
    if not able:
        return None
    best = min(able, key=lambda r: _grade(r, protocol))
    return dict(best.cell.params)


def _grade(result: Result, protocol: str) -> float:
    """What a protocol picks by: the lower the better."""
    grade = result.error if protocol == PAPER else result.validation
    return float("inf") if grade is None else grade


def tasks(
    plans: Sequence[Plan], protocols: Iterable[str], results: Results
) -> list[Task]:
    """All tasks known so far, finished ones too, the most wanted first.

    The first seed of everything and the searches come first, then the second seed:
    whenever a study is stopped, every method has had its turn.
    """
    wanted: dict[str, Task] = {}
    protocols = tuple(protocols)
    for plan in plans:
        for task in _tasks(plan, protocols, results):
            wanted.setdefault(task.cell.key, task)
    return sorted(wanted.values(), key=lambda task: task.cell.seed)


def _tasks(plan: Plan, protocols: Sequence[str], results: Results) -> Iterator[Task]:
    """The tasks of one plan."""
    for setting in plan.settings:
        for one in setting.contenders:
            cells = search_cells(setting, one)
            for protocol in protocols:
                params = chosen(setting, one, protocol, results)
                if params is not None:
                    cells = [*cells, *final_cells(plan, setting, one, params)]
            for cell in cells:
                yield Task(cell, plan.name, setting.label, setting.heavy)
