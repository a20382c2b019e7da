"""Results of the stages of a fit, kept on disk as they come in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ncarl.bayes.state import Climb, Iterate, State
from ncarl.checkpoint import Checkpoint, Keeper, Parts, records_up_to
from ncarl.core.types import Array
from ncarl.loop import History

KIND = "stages"
STATE = ("K", "noise", "mean")

Arrays = dict[str, Any]


class Journal:
    """Arrays by stage; a stage that the file has is not worked out again.

    Parameters
    ----------
    place : Checkpoint or None
        The file, and how often a stage under way is written; None keeps nothing.
    owner : mapping
        Whose stages they are; see `Keeper`.
    """

    def __init__(self, place: Checkpoint | None, owner: Mapping[str, Any]) -> None:
        self.file = None if place is None else Keeper(place, KIND, owner)
        self.stages: dict[str, Arrays] = {}
        kept = None if self.file is None else self.file.get()
        if self.file is not None and kept is not None:
            for name, array in kept[1].items():
                stage, _, part = name.rpartition(":")
                self.stages.setdefault(stage, {})[part] = array
            with self.file.sound():
                self.file.at = _where(self.stages)

    def __call__(self, stage: str, work: Callable[[], Arrays]) -> Arrays:
        """The arrays of a stage, from the file or from ``work``."""
        if stage not in self.stages:
            self.stages[stage] = _as_arrays(work())
            if self.file is not None:
                self.file.put(_where(self.stages), {}, _flat(self.stages))
        return self.stages[stage]

    def keep(
        self, stage: str, step: int, work: Callable[[], Arrays], *, last: bool = False
    ) -> None:
        """Write a stage under way if it is time to, or if it is the last step.

        Parameters
        ----------
        stage : str
            The stage.
        step : int
            Steps made so far.
        work : callable
            Gives the arrays, which must hold ``step``.
        last : bool
            Whether the stage ends here.
        """

        def parts() -> Parts:
            self.stages.pop(stage, None)  # what is large is not held on to
            return {}, _flat({**self.stages, stage: _as_arrays(work())})

        if self.file is not None:
            self.file.after(f"step {step}", parts, last=last)


def _as_arrays(found: Arrays) -> Arrays:
    """What was found, numbers as arrays too."""
    return {name: np.asarray(value) for name, value in found.items()}


def _flat(stages: Mapping[str, Arrays]) -> Arrays:
    """The arrays of all stages as a file holds them."""
    return {
        f"{stage}:{name}": array
        for stage, arrays in stages.items()
        for name, array in arrays.items()
    }


def _where(stages: Mapping[str, Arrays]) -> str:
    """Where a fit stands that has these stages."""
    stage = list(stages)[-1]
    step = stages[stage].get("step")
    return f"the stage {stage!r}" if step is None else f"step {int(step)}"


def climb_arrays(
    iterate: Iterate, history: History, fetch: Callable[[Any], Array]
) -> Arrays:
    """All that a climb needs to go on, as arrays."""
    climb, columns = iterate.climb, records_up_to(history, iterate.step)
    arrays: Arrays = {"step": iterate.step, "noisy": climb.state.noisy}
    arrays |= {"length": climb.length, "penalised": climb.penalised}
    states = {"next": climb.state, "plain": climb.plain, "here": iterate.found.state}
    for name, state in states.items():
        if state is not None:
            arrays |= {f"{name}/{a}": fetch(getattr(state, a)) for a in STATE}
    arrays["evidence"] = iterate.found.evidence
    return arrays | {f"history/{name}": column for name, column in columns.items()}


def kept_climb(
    arrays: Mapping[str, Any], send: Callable[[Array], Any]
) -> tuple[Climb, int, History, State, float]:
    """Climb, steps made, history, state after the last step, and its evidence."""

    def state(name: str) -> State | None:
        if f"{name}/K" not in arrays:
            return None
        K, noise, mean = (
            send(np.ascontiguousarray(arrays[f"{name}/{a}"])) for a in STATE
        )
        return State(K, noise, mean, bool(arrays["noisy"]))

    following, here = state("next"), state("here")
    assert following is not None
    assert here is not None
    length, penalised = float(arrays["length"]), float(arrays["penalised"])
    history = History(
        {
            name.removeprefix("history/"): np.asarray(column).tolist()
            for name, column in arrays.items()
            if name.startswith("history/")
        }
    )
    climb = Climb(following, state("plain"), length, penalised)
    return climb, int(arrays["step"]), history, here, float(arrays["evidence"])
