"""A solver run to its end, its state kept in a file on the way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from ncarl.checkpoint import Checkpoint, Keeper, Parts, records_up_to
from ncarl.core.types import Array
from ncarl.homes import Home
from ncarl.loop import History, Result, drive
from ncarl.solvers.problem import Solver, Step

KIND = "state of a solver"

Observer = Callable[[Step, History], object]


class StateFile(Keeper):
    """Where a run keeps its state, and whose state it is.

    Parameters
    ----------
    place : Checkpoint
        The file, and how often it is written.
    owner : mapping
        Whose state it is; see `Keeper`.
    home : Home
        Where the arrays of the state are.

    Attributes
    ----------
    found : dict
        What was found out before the run, such as a strength that was chosen.
    """

    def __init__(self, place: Checkpoint, owner: Mapping[str, Any], home: Home) -> None:
        super().__init__(place, KIND, owner)
        self.home = home
        self.found: dict[str, Any] = {}

    def keep(self, step: Step, history: History, *, last: bool = False) -> None:
        """Write the state after a step if it is time to, or if it is the last one."""

        def parts() -> Parts:
            numbers, arrays = _parts(step.state, self.home)
            header = {
                "found": self.found,
                "history": records_up_to(history, step.step),
                "numbers": numbers,
                "objective": step.objective,
                "may_stop": step.may_stop,
                "notes": step.notes,
            }
            return header, arrays

        self.after(f"step {step.step}", parts, last=last)

    def read(self) -> tuple[dict[str, Any], dict[str, Array]] | None:
        """What the file holds, or None where there is no file yet."""
        kept = self.get()
        if kept is not None:
            with self.sound():
                self.found = kept[0]["found"]
                self.at = f"step {int(kept[0]['history']['step'][-1])}"
        return kept


def _parts(state: Any, home: Home) -> tuple[dict[str, Any], dict[str, Array]]:
    """A state as numbers and arrays, the latter in the memory of this process."""
    numbers, arrays = {}, {}
    for item in fields(state):
        value = getattr(state, item.name)
        if hasattr(value, "shape") and len(value.shape):
            arrays[item.name] = np.asarray(home.fetch(value))
        else:
            numbers[item.name] = value
    return numbers, arrays


def _restored(
    kind: type, numbers: Mapping[str, Any], arrays: Mapping[str, Array], home: Home
) -> Any:
    """The state that numbers and arrays describe."""
    # As they lay in memory: products of arrays that lie otherwise round otherwise.
    sent = {name: home.send(array) for name, array in arrays.items()}
    return kind(**numbers, **sent)


def run(
    solver: Solver,
    *,
    max_iter: int,
    tol: float,
    scale: float = 1.0,
    observers: list[Observer] | None = None,
    file: StateFile | None = None,
    state: Any = None,
) -> Result[Step]:
    """Run a solver till it settles, from the file if there is one.

    Parameters
    ----------
    solver : Solver
        Makes the steps.
    max_iter, tol
        When to end.
    scale : float
        Factor that brings the objective to the user's units.
    observers : list of callable
        Called after each step; one that returns True ends the run.
    file : StateFile, optional
        Where the state is kept.
    state : optional
        Where to start instead of the solver's own beginning.
    """
    state, step, history = solver.begin() if state is None else state, 0, History()
    kept = file.read() if file else None
    if file and kept:
        header, arrays = kept
        with file.sound():
            state = _restored(type(state), header["numbers"], arrays, file.home)
            history = History(header["history"])
            last = _last_step(header, state, history)
        settled = last.may_stop and last.change < tol
        if settled or last.step >= max_iter:
            return Result(last, history.columns, settled)
        step = last.step
    watching: list[Observer] = [file.keep] if file else []
    result = drive(
        solver.steps(state, step),
        max_iter=max_iter,
        tol=tol,
        observers=watching + (observers or []),
        history=history,
        scale=scale,
    )
    if file:
        file.keep(result.last, history, last=True)
    return result


def _last_step(header: Mapping[str, Any], state: Any, history: History) -> Step:
    """The step after which a state was kept."""
    last = {name: column[-1] for name, column in history.columns.items()}
    return Step(
        step=int(last["step"]),
        state=state,
        objective=float(header["objective"]),
        change=float(last["change"]),
        notes=dict(header["notes"]),
        may_stop=bool(header["may_stop"]),
    )
