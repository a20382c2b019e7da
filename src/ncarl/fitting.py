"""From observed entries and settings to a fitted kernel model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from array_api_compat import array_namespace
from scipy.sparse import csr_array

from ncarl.centering import fit_centre
from ncarl.centre import Centre
from ncarl.checkpoint import Checkpoint
from ncarl.core.kernel import Penalty
from ncarl.core.linalg import expanded
from ncarl.core.types import Array, Kernel
from ncarl.core.weights import Floor, PseudoInverse, ShiftedInverse, Smooth, WeightRule
from ncarl.engines import Engine
from ncarl.kernel_file import KernelFile
from ncarl.loop import History, Result, drive
from ncarl.model import KernelModel
from ncarl.preparing import Divided, Residuals
from ncarl.solver import Iterate, Recipe, kernel_iterates, zero_filled_gram
from ncarl.surveys import Entries

#: The authors' code adds this to a squared distance and to the Gram matrix.
AUTHORS_SHIFT = 1e-6

#: No floor below this in the noisy model.
SMALLEST_NOISY_SHARE = 1e-5

#: What a fit that starts where another ended counts as having behind it.
WARM_STEPS = 30

Observer = Callable[[Iterate, History], object]


@dataclass(frozen=True)
class Settings:
    """Checked parameters of one fit; see the estimators for what they mean."""

    alpha: float
    n_neighbors: int
    gamma: float | None
    graph: Any
    weights: str
    delta: float
    max_iter: int
    tol: float


class Workspace:
    """A matrix made ready for fits: centred, scaled, cut into blocks and placed.

    Parameters
    ----------
    entries : Entries
        Observed entries, in the orientation of the kernel.
    center : {"none", "mean", "columns", "rows", "two-way"}
        Effects to take off first.
    scaled : bool
        Whether columns are divided by the spread of their residuals.
    dtype : {"float64", "float32"}
        Precision of the work.
    engine : Engine
        Where to work.
    keep_empty : bool
        Whether columns in which nothing is observed take part in the fit. They do in
        the authors' code, and where a given graph links them to others; else the
        kernel is learned without them.
    """

    def __init__(
        self,
        entries: Entries,
        center: str,
        scaled: bool,
        dtype: str,
        engine: Engine,
        *,
        keep_empty: bool,
    ) -> None:
        survey = entries.survey
        self.shape = survey.shape
        self.n_observed, self.seen_rows = survey.n_observed, survey.seen_rows
        self.unit = survey.unit
        inner = entries.changed(Divided(self.unit))
        # What an empty row gets without a centre: the mean, by column where columns
        # have units of their own.
        middle = fit_centre(inner, "columns" if scaled else "mean", scaled=False)
        self.middle = middle.mean + middle.columns
        self.centred = center != "none"
        self.centre: Centre = fit_centre(inner, center, scaled)
        self.empty = survey.column_counts == 0
        self.kept = np.flatnonzero(~self.empty | keep_empty)
        self.missing_side = survey.missing_side(len(self.kept))
        engine.home.expect_fit(len(self.kept), np.dtype(dtype).itemsize)
        self.engine = engine
        self.dtype = dtype
        ready = Residuals(self.centre, self.kept, dtype)
        entries.let_go()
        self.blocks = inner.placed(engine, ready)

    @cached_property
    def start(self) -> Array:
        """Gram matrix of the zero-filled residuals."""
        return zero_filled_gram(self.engine, self.blocks)

    def neighbors(self, settings: Settings) -> int:
        """Neighbours that the graph can have at most; 0 for no graph."""
        return min(settings.n_neighbors, len(self.kept) - 1)

    def recipe(self, settings: Settings, *, warm: bool = False) -> Recipe:
        """What a fit with these settings does in each step."""
        faithful = settings.weights == "pinv"
        # Held where it still keeps an eigenvalue of 0 away from 0.
        shift = min(max(AUTHORS_SHIFT / self.unit / self.unit, 1e-30), 1e300)
        graph = settings.graph if settings.alpha > 0.0 else None
        if graph is not None and not isinstance(graph, str):
            graph = self.engine.home.send(graph.astype(self.dtype))
        return Recipe(
            penalty=Penalty(
                settings.alpha, settings.delta, settings.gamma, bare_delta=faithful
            ),
            rule=self._rule(settings, shift),
            n_neighbors=self.neighbors(settings),
            graph=graph,
            shift=shift if faithful else 0.0,
            missing_side=self.missing_side,
            head_start=WARM_STEPS if warm else 0,
            keep_digits=faithful,
        )

    def _rule(self, settings: Settings, shift: float) -> WeightRule:
        """The weight rule that the settings name."""
        if settings.weights == "smooth":
            return Smooth()
        if settings.weights == "pinv":
            return PseudoInverse() if settings.gamma is None else ShiftedInverse(shift)
        # Empty rows and columns have no say in how much the data can pin down.
        directions = self.n_observed // (self.seen_rows + len(self.kept))
        if settings.gamma is None:
            return Floor(directions)
        # Smoothed rows are all but low-rank, and shares near the square root of the
        # machine epsilon are nothing but rounding, which would grow from step to step.
        return Floor(directions, lowest=SMALLEST_NOISY_SHARE)

    def run(
        self,
        settings: Settings,
        *,
        gram: Array | None = None,
        checkpoint: KernelFile | None = None,
        observers: list[Observer] | None = None,
    ) -> Result[Iterate]:
        """Learn a kernel, from ``gram`` or the checkpoint if there is one."""
        recipe = self.recipe(settings, warm=gram is not None)
        kept = checkpoint.read() if checkpoint else None
        history, step = History(), 0
        if kept is not None:
            last, history = kept
            settled = last.may_stop and last.change < settings.tol
            if settled or last.step >= settings.max_iter:
                return Result(last, history.columns, settled)
            step, gram = last.step, last.gram
            del last, kept  # or the rest of it would stay in memory
        gram = self.start if gram is None else self.engine.home.send(gram)
        watching: list[Observer] = []
        if checkpoint is not None:
            watching.append(lambda i, h: checkpoint.keep(i, h, self._fetched))
        iterates = kernel_iterates(
            self.engine, self.blocks, recipe, self.start, gram, step
        )
        result = drive(
            iterates,
            max_iter=settings.max_iter,
            tol=settings.tol,
            observers=watching + (observers or []),
            history=history,
            scale=min(self.unit * self.unit, 1e300),
        )
        if checkpoint is not None:
            checkpoint.keep(result.last, history, self._fetched, last=True)
        return result

    def _fetched(self, iterate: Iterate) -> Iterate:
        """The iterate with its arrays in the memory of this process."""
        fetch = self.engine.home.fetch
        return replace(
            iterate,
            gram=fetch(iterate.gram),
            kernel=iterate.kernel.moved(fetch),
            similarity=fetch(iterate.similarity),
        )

    def model(
        self, settings: Settings, result: Result[Iterate], *, fetched: bool = True
    ) -> KernelModel:
        """The fitted model that a run ended with; its kernel may stay where it is."""
        noisy = settings.gamma is not None
        sigma = float(np.sqrt(result.last.fit / self.n_observed)) if noisy else 1.0
        silent = self.centred or settings.weights == "pinv"
        home = self.engine.home
        with home.work(self.shape[1]):
            kernel = self._whole(result.last.kernel)
        return KernelModel(
            kernel=kernel.moved(home.fetch) if fetched else kernel,
            centre=self.centre,
            unit=self.unit,
            sigma=sigma,
            empty=self.empty & (settings.weights != "pinv"),
            fallback=np.zeros(self.shape[1]) if silent else self.middle,
            dtype=self.dtype,
        )

    def similarity(self, result: Result[Iterate]) -> Any:
        """The graph that a run ended with, as a SciPy array; empty without one."""
        n = self.shape[1]
        if result.last.similarity is None:
            return csr_array((n, n))
        home = self.engine.home
        with home.work(n):
            S = home.fetch_sparse(result.last.similarity)
        if len(self.kept) == n:
            return S
        alone = np.flatnonzero(self.empty)
        S, ones = S.tocoo(), np.ones(len(alone), dtype=S.dtype)
        rows = np.concatenate([self.kept[S.coords[0]], alone])
        columns = np.concatenate([self.kept[S.coords[1]], alone])
        values = np.concatenate([S.data, ones])
        return csr_array((values, (rows, columns)), shape=(n, n))

    def _whole(self, kernel: Kernel) -> Kernel:
        """The kernel of all columns; empty ones vary as much as the others do."""
        n = self.shape[1]
        if len(self.kept) == n:
            return kernel
        # Added up on the host: a kernel from a checkpoint gives the same bits.
        variances = array_namespace(kernel.K).linalg.diagonal(kernel.K)
        usual = float(np.mean(self.engine.home.fetch(variances)))
        K = expanded(kernel.K, self.kept, n, usual)
        if kernel.P is None:
            return Kernel(K, None, kernel.s)
        P = expanded(kernel.P, self.kept, n, 1.0 / (usual + kernel.s))
        return Kernel(K, P, kernel.s)


def checkpoint_for(path: Any, entries: Entries, owner: dict[str, Any]) -> KernelFile:
    """The checkpoint at ``path`` for a fit of these data with these parameters."""
    data = {"shape": list(entries.survey.shape), "data": entries.fingerprint()}
    return KernelFile(Checkpoint.of(path), {**owner, **data})
