"""Results of the stages of a fit, kept on disk as they come in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ncarl.bayes.state import Climb, Iterate, State
from ncarl.checkpoint import refuse_other
from ncarl.core.types import Array
from ncarl.loop import History
from ncarl.storage import read_archive, write_archive

KIND = "stages"
STATE = ("K", "noise", "mean")

Arrays = dict[str, Any]


class Journal:
    """Arrays by stage; a stage that the file has is not worked out again.

    Parameters
    ----------
    path : Path or None
        The file; None keeps nothing.
    owner : mapping
        Fingerprint of the data and all parameters that change the result.
    """

    def __init__(self, path: Path | None, owner: Mapping[str, Any]) -> None:
        self.path, self.owner = path, dict(owner)
        self.stages: dict[str, Arrays] = {}
        if path is not None and path.exists():
            header, arrays = read_archive(path, KIND)
            refuse_other(path, header["owner"], self.owner)
            for name, array in arrays.items():
                stage, _, part = name.rpartition(":")
                self.stages.setdefault(stage, {})[part] = array

    def __call__(self, stage: str, work: Callable[[], Arrays]) -> Arrays:
        """The arrays of a stage, from the file or from ``work``."""
        if stage not in self.stages:
            self.put(stage, work())
        return self.stages[stage]

    def put(self, stage: str, arrays: Arrays) -> None:
        """Keep the arrays of a stage in place of what it had."""
        self.stages[stage] = {name: np.asarray(a) for name, a in arrays.items()}
        if self.path is None:
            return
        flat = {
            f"{stage}:{name}": array
            for stage, arrays in self.stages.items()
            for name, array in arrays.items()
        }
        write_archive(self.path, {"kind": KIND, "owner": self.owner}, flat)


def climb_arrays(
    iterate: Iterate, history: History, fetch: Callable[[Any], Array]
) -> Arrays:
    """All that a climb needs to go on, as arrays."""
    climb, columns = iterate.climb, history.columns
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
