"""The file in which a fit of a kernel keeps its n x n state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ncarl.checkpoint import Checkpoint, Keeper, Parts, records_up_to
from ncarl.core.types import Array, Kernel
from ncarl.loop import History
from ncarl.solver import Iterate

KIND = "checkpoint"


class KernelFile(Keeper):
    """Where a fit of a kernel keeps its n x n state.

    Parameters
    ----------
    place : Checkpoint
        The file, and how often it is written.
    owner : mapping
        Whose state it is; see `Keeper`.
    """

    def __init__(self, place: Checkpoint, owner: Mapping[str, Any]) -> None:
        super().__init__(place, KIND, owner)

    def keep(
        self,
        iterate: Iterate,
        history: History,
        fetched: Callable[[Iterate], Iterate],
        *,
        last: bool = False,
    ) -> None:
        """Write the state after a step if it is time to, or if it is the last one.

        Parameters
        ----------
        iterate : Iterate
            The step.
        history : History
            Records of the steps so far.
        fetched : callable
            Brings the arrays of the step into the memory of this process.
        last : bool
            Whether the fit ends here.
        """

        def parts() -> Parts:
            return _parts(fetched(iterate), history)

        self.after(f"step {iterate.step}", parts, last=last)

    def read(self) -> tuple[Iterate, History] | None:
        """The state kept in the file, or None where there is no file yet."""
        return self.step(_iterate)


def _parts(iterate: Iterate, history: History) -> Parts:
    """A step as what JSON can hold, and arrays."""
    kernel = iterate.kernel
    arrays = {"gram": iterate.gram, "K": kernel.K}
    if kernel.P is not None:
        arrays["P"] = kernel.P
    if iterate.similarity is not None:
        arrays["similarity"] = iterate.similarity
    header = {
        "history": records_up_to(history, iterate.step),
        "noise": kernel.s,
        "fit": iterate.fit,
        "may_stop": iterate.may_stop,
    }
    return header, arrays


def _iterate(
    header: Mapping[str, Any], arrays: Mapping[str, Array], history: History
) -> Iterate:
    """The iterate that a checkpoint holds."""
    columns = history.columns
    return Iterate(
        step=int(columns["step"][-1]),
        gram=np.ascontiguousarray(arrays["gram"]),
        kernel=Kernel(arrays["K"], arrays.get("P"), float(header["noise"])),
        similarity=arrays.get("similarity"),
        objective=columns["objective"][-1],
        fit=float(header["fit"]),
        change=columns["change"][-1],
        jitter=columns["jitter"][-1],
        seconds={},
        may_stop=bool(header["may_stop"]),
    )
