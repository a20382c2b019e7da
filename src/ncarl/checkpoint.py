"""Checkpoints: the n x n state of a fit, on disk after every step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ncarl.core.types import Array, Kernel
from ncarl.exceptions import CheckpointMismatchError
from ncarl.loop import History
from ncarl.solver import Iterate
from ncarl.storage import read_archive, write_archive

KIND = "checkpoint"


@dataclass(frozen=True)
class Checkpoint:
    """Where a fit keeps its state, and whose state it is.

    Attributes
    ----------
    path : Path
        The file.
    owner : mapping
        Fingerprint of the data and all parameters that change the result.
    """

    path: Path
    owner: Mapping[str, Any]

    def write(self, iterate: Iterate, history: History) -> None:
        """Put the state after a step in place of the one before."""
        kernel = iterate.kernel
        arrays = {"gram": iterate.gram, "K": kernel.K}
        if kernel.P is not None:
            arrays["P"] = kernel.P
        if iterate.similarity is not None:
            arrays["similarity"] = iterate.similarity
        header = {
            "kind": KIND,
            "owner": dict(self.owner),
            "history": history.columns,
            "noise": kernel.s,
            "fit": iterate.fit,
            "may_stop": iterate.may_stop,
        }
        write_archive(self.path, header, arrays)

    def read(self) -> tuple[Iterate, History] | None:
        """The state kept in the file, or None where there is no file yet.

        Raises
        ------
        BrokenFileError
            If the file is foreign or damaged.
        CheckpointMismatchError
            If it belongs to other data or parameters.
        """
        if not self.path.exists():
            return None
        header, arrays = read_archive(self.path, KIND)
        refuse_other(self.path, header["owner"], self.owner)
        history = History(header["history"])
        return _iterate(header, arrays, history), history


def refuse_other(
    path: Path, found: Mapping[str, Any], owner: Mapping[str, Any]
) -> None:
    """Raise if a file was written by another fit."""
    differing = [
        f"{name} ({found.get(name)!r} there, {value!r} here)"
        for name, value in owner.items()
        if found.get(name) != value and name != "data"
    ]
    if found.get("data") != owner["data"]:
        differing.append("the data")
    if differing:
        raise CheckpointMismatchError(
            f"checkpoint {str(path)!r} belongs to another fit; it differs in "
            f"{', '.join(differing)}. Remove the file or name another one."
        )


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
