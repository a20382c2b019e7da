"""From observed entries and settings to a model with a wide kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import numpy as np
from scipy.sparse import csr_array

from ncarl import model
from ncarl.core.kernel import Penalty
from ncarl.core.weights import Floor
from ncarl.engines import Engine, Threads, pick_engine
from ncarl.fitting import Settings, Workspace
from ncarl.homes import HostMemory
from ncarl.loop import History, Result, drive
from ncarl.model import KernelModel
from ncarl.wide import rows
from ncarl.wide.keeping import WideFile
from ncarl.wide.kernel import WideKernel
from ncarl.wide.solver import (
    WideIterate,
    WideRecipe,
    first_gram,
    wide_iterates,
)

#: Directions of their own at least, and how many more than the data can pin down.
FEWEST, MORE = 128, 32
#: Blocks of rows: enough for the cores of one machine; each adds up an n x p array.
BLOCKS, SMALL_WORK = 16, 20_000

R = TypeVar("R")
Observer = Callable[[Any, History], object]


@dataclass(frozen=True)
class WideMemory(HostMemory):
    """Memory of this process for work without n x n arrays."""

    def expect_fit(self, n: int, number: int) -> None:
        """Thin arrays and sparse ones fit."""


@dataclass(frozen=True)
class WideThreads(Threads):
    """Threads for a wide kernel: few blocks, and its own row functions.

    A model asks for the row functions of a dense kernel; here each has its
    counterpart.
    """

    @property
    def home(self) -> WideMemory:
        """The memory of this process, of which no n x n array is asked."""
        return WideMemory(self.n_jobs)

    def blocks_wanted(self, rows: int, columns: int) -> int | None:
        """Few, whatever the machine, so that sums are the same everywhere."""
        return BLOCKS if rows * columns > SMALL_WORK else 1

    def map(
        self, function: Callable[..., R], blocks: Any, **shared: Any
    ) -> Iterator[R]:
        """``function(block, **shared)`` for every block, in block order."""
        counterpart: Callable[..., Any] = COUNTERPARTS.get(function, function)
        return super().map(counterpart, blocks, **shared)


COUNTERPARTS: dict[Callable[..., Any], Callable[..., Any]] = {
    model.completed_block: rows.completed_block,
    model.entry_terms: rows.entry_terms,
}


def wide_threads(engine: str | Engine) -> WideThreads:
    """The threads that a name or an engine stands for.

    Examples
    --------
    >>> wide_threads("auto").n_jobs is None
    True
    """
    if isinstance(engine, str) and engine in ("auto", "threads"):
        return WideThreads()
    found = pick_engine(engine, again=True)
    if not isinstance(found, Threads):
        raise ValueError(
            "engine must be 'auto', 'threads' or a Threads object: wide kernels work "
            f"on threads only, got {engine!r}"
        )
    return WideThreads(found.n_jobs, found.rows, found.why)


def usual_rank(directions: int, n: int) -> int:
    """Directions that get a weight of their own where nobody says how many.

    Examples
    --------
    >>> usual_rank(33, 50_000), usual_rank(400, 50_000), usual_rank(5, 30)
    (128, 432, 30)
    """
    return min(n, max(FEWEST, directions + MORE))


class WideWorkspace(Workspace):
    """A matrix made ready for fits with a wide kernel."""

    def wide_recipe(self, settings: Settings, rank: int | None) -> WideRecipe:
        """What a fit with these settings does in each step."""
        rule = self._rule(settings, 0.0)
        assert isinstance(rule, Floor)
        n = len(self.kept)
        graph = settings.graph if settings.alpha > 0.0 else None
        if rank is None:
            rank = usual_rank(rule.directions, n)
        return WideRecipe(
            penalty=Penalty(settings.alpha, settings.delta, settings.gamma),
            rule=rule,
            # The rule looks at the direction after those that can be pinned down.
            rank=min(n, max(rank, rule.directions + 1)),
            n_neighbors=self.neighbors(settings),
            graph=graph,
            dtype=self.dtype,
        )

    def run_wide(
        self,
        settings: Settings,
        recipe: WideRecipe,
        *,
        checkpoint: WideFile | None,
        observers: list[Observer],
    ) -> Result[WideIterate]:
        """Learn a kernel, from the checkpoint if there is one."""
        kept = checkpoint.read() if checkpoint else None
        history, step, similarity = History(), 0, None
        if kept is not None:
            last, history = kept
            settled = last.may_stop and last.change < settings.tol
            if settled or last.step >= settings.max_iter:
                return Result(last, history.columns, settled)
            step, gram, similarity = last.step, last.gram, last.similarity
        else:
            gram = first_gram(self.engine, self.blocks, recipe)
        watching: list[Observer] = [] if checkpoint is None else [checkpoint.keep]
        result = drive(
            wide_iterates(self.engine, self.blocks, recipe, gram, similarity, step),
            max_iter=settings.max_iter,
            tol=settings.tol,
            observers=watching + observers,
            history=history,
            scale=min(self.unit * self.unit, 1e300),
        )
        if checkpoint is not None:
            checkpoint.keep(result.last, history, last=True)
        return result

    def model(
        self, settings: Settings, result: Any, *, fetched: bool = True
    ) -> KernelModel:
        """The fitted model that a run ended with; its kernel is here in any case."""
        noisy = settings.gamma is not None
        sigma = float(np.sqrt(result.last.fit / self.n_observed)) if noisy else 1.0
        n, kernel = self.shape[1], result.last.kernel
        usual = float(np.mean(kernel.diagonal()))
        return KernelModel(
            kernel=cast(Any, kernel.expanded(self.kept, n, usual)),
            centre=self.centre,
            unit=self.unit,
            sigma=sigma,
            empty=self.empty,
            fallback=np.zeros(n) if self.centred else self.middle,
            dtype=self.dtype,
        )

    def similarity(self, result: Any) -> Any:
        """The graph that a run ended with, as a SciPy array; empty without one."""
        n, S = self.shape[1], result.last.similarity
        if S is None:
            return csr_array((n, n))
        alone = WideKernel(np.zeros((len(self.kept), 0)), S, 0.0)
        return alone.expanded(self.kept, n, 1.0).T
