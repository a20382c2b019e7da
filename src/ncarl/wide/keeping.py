"""The file in which a fit of a wide kernel keeps its state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from ncarl.checkpoint import Checkpoint, Keeper, Parts, records_up_to
from ncarl.core.types import Array
from ncarl.loop import History
from ncarl.wide.kernel import WideKernel
from ncarl.wide.solver import WideIterate
from ncarl.wide.spectrum import WideGram

KIND = "checkpoint"
GRAM = ("values", "vectors", "diagonal", "nodes", "masses")


class WideFile(Keeper):
    """Where a fit of a wide kernel keeps its state.

    Parameters
    ----------
    place : Checkpoint
        The file, and how often it is written.
    owner : mapping
        Whose state it is; see `Keeper`.
    """

    def __init__(self, place: Checkpoint, owner: Mapping[str, Any]) -> None:
        super().__init__(place, KIND, owner)

    def keep(self, iterate: WideIterate, history: History, last: bool = False) -> None:
        """Write the state after a step if it is time to, or if it is the last one."""
        self.after(f"step {iterate.step}", lambda: _parts(iterate, history), last=last)

    def read(self) -> tuple[WideIterate, History] | None:
        """The state kept in the file, or None where there is no file yet."""
        return self.step(_iterate)


def sparse_parts(name: str, matrix: Any) -> dict[str, Array]:
    """A CSR array as named arrays."""
    kept = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr}
    return {f"{name}/{part}": array for part, array in kept.items()}


def sparse_from(name: str, arrays: Mapping[str, Array]) -> Any:
    """The square CSR array that named arrays hold."""
    parts = tuple(arrays[f"{name}/{part}"] for part in ("data", "indices", "indptr"))
    n = len(parts[2]) - 1
    return csr_array(parts, shape=(n, n))


def kernel_parts(kernel: WideKernel) -> Parts:
    """A kernel as what JSON can hold, and arrays."""
    header = {"noise": kernel.s, "error": kernel.error}
    return header, {"F": kernel.F, **sparse_parts("T", kernel.T)}


def kernel_from(header: Mapping[str, Any], arrays: Mapping[str, Array]) -> WideKernel:
    """The kernel that `kernel_parts` described."""
    F = np.ascontiguousarray(arrays["F"])
    s, error = float(header["noise"]), float(header["error"])
    return WideKernel(F, sparse_from("T", arrays), s, error)


def _parts(iterate: WideIterate, history: History) -> Parts:
    """A step as what JSON can hold, and arrays."""
    header, arrays = kernel_parts(iterate.kernel)
    found = {f"gram/{name}": getattr(iterate.gram, name) for name in GRAM}
    if iterate.similarity is not None:
        found |= sparse_parts("similarity", iterate.similarity)
    own = {
        "history": records_up_to(history, iterate.step),
        "rank": iterate.gram.rank,
        "fit": iterate.fit,
        "may_stop": iterate.may_stop,
    }
    return {**header, **own}, {**arrays, **found}


def _iterate(
    header: Mapping[str, Any], arrays: Mapping[str, Array], history: History
) -> WideIterate:
    """The iterate that a checkpoint holds."""
    columns = history.columns
    # In rows, as they were: sums in another order give other bits.
    kept = {name: np.ascontiguousarray(arrays[f"gram/{name}"]) for name in GRAM}
    graph = "similarity/data" in arrays
    return WideIterate(
        step=int(columns["step"][-1]),
        gram=WideGram(int(header["rank"]), **kept),
        kernel=kernel_from(header, arrays),
        similarity=sparse_from("similarity", arrays) if graph else None,
        objective=columns["objective"][-1],
        fit=float(header["fit"]),
        change=columns["change"][-1],
        jitter=columns["jitter"][-1],
        seconds={},
        may_stop=bool(header["may_stop"]),
    )
