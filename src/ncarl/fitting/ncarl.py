"""The NCARL iteration, which learns a kernel of the columns, and its checkpoints.

`KernelProblem` prepares a dataset and runs fits; `kernel_iterates` is the iteration.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_numpy_array
from scipy.sparse import csr_array

from ncarl.centering import Centering, center_rows, fit_centering, rescale
from ncarl.core.graph import laplacian, similarity, squared_distances
from ncarl.core.kernel import QuadraticPenalty, column_kernel
from ncarl.core.linalg import dtype_name, embed_sparse, embed_submatrix, sandwich
from ncarl.core.rows import Kernel, dual_gram, observed_gram, row_gram
from ncarl.core.types import Array, RowSums, cached_property
from ncarl.core.weights import (
    FloorWeights,
    PseudoInverseWeights,
    ShiftedInverseWeights,
    SmoothWeights,
    WeightRule,
    spectrum,
)
from ncarl.dataset import Dataset
from ncarl.engines.base import Device, Engine, seconds_between
from ncarl.exceptions import BrokenFileError
from ncarl.fitting.checkpoint import CheckpointContents, CheckpointFile, check_array
from ncarl.fitting.kernel_model import KernelModel
from ncarl.fitting.loop import FitResult, Iterate, Observer, drive
from ncarl.validation import check_number

#: The Gram matrix of the duals loses about eps * cond(Q)^2 digits in the worst case
#: (far fewer in practice); past this bound completed rows are formed instead.
MAX_DUAL_GRAM_LOSS = 1e-6
#: The authors' code adds this to a squared distance and to the Gram matrix.
AUTHORS_SHIFT = 1e-6
#: Minimum floor of the weights in the noisy model.
MIN_NOISY_SHARE = 1e-5
#: Steps that a warm start counts as.
WARM_STEPS = 30


@dataclass(frozen=True)
class IterationConfig:
    """What does not change from step to step."""

    penalty: QuadraticPenalty  # the quadratic form of a row, from weights and graph
    rule: WeightRule  # weights of the directions
    n_neighbors: int  # of a column, itself counted; 0 for no graph
    graph: Any  # "adaptive", "fixed", a similarity matrix of shape (n, n), or None
    distance_shift: float = 0.0  # added to the (k+1)-th distance
    needs_precision: bool = False  # whether some row solves for its missing entries
    warm_steps: int = 0  # added to the step number that the weight rule sees
    always_form_rows: bool = False  # never use the Gram matrix of the duals

    @property
    def learns_graph(self) -> bool:
        """Whether the graph is learned anew in every step."""
        named = isinstance(self.graph, str) and self.graph == "adaptive"
        return named and self.n_neighbors > 0

    def learn_similarity(self, G: Array) -> Array:
        """Similarity of the columns whose Gram matrix is ``G``."""
        return similarity(
            squared_distances(G), self.n_neighbors, shift=self.distance_shift
        )


@dataclass(frozen=True)
class KernelState:
    """The state after a step; arrays are on the engine's device."""

    gram: Any  # Gram matrix of the completed rows
    kernel: Any  # with which they were completed
    similarity: Any  # graph of the columns; None without one


def kernel_iterates(
    engine: Engine,
    blocks: Any,
    config: IterationConfig,
    initial_gram: Array,  # of the zero-filled input; a fixed graph is learned from it
    gram: Array,  # to continue from: the initial one, or that of an earlier fit
    step: int = 0,  # steps already made
) -> Iterator[Iterate[KernelState]]:
    """Yield iterates without end: Gram matrix to kernel to rows to Gram matrix."""
    device, n = engine.compute_device, gram.shape[0]
    with device.compute_context(n):
        fixed_similarity = _fixed_similarity(config, initial_gram)
        (norms,) = device.read_back(_diagonal(gram))
    while True:
        step += 1
        # A check of each factorization would wait for a device that queues its work:
        # there the step is repeated with checks if one has failed.
        for checked in (False, True) if device.is_async else (True,):
            start = device.timestamp()
            with device.compute_context(n):
                basis = [spectrum(gram, norms <= 0.0)]
                effective_step = step + config.warm_steps
                eigenvalues = basis[0].eigenvalues
                weights = config.rule(eigenvalues, effective_step)
                stationary = config.rule.is_stationary(eigenvalues, effective_step)
                weighed = device.timestamp()
                S = fixed_similarity
                if config.learns_graph:
                    S = config.learn_similarity(gram)
                kernel = column_kernel(
                    basis.pop(),  # no reference is kept, so that it can be freed there
                    weights,
                    None if S is None else laplacian(S),
                    config.penalty,
                    needs_precision=config.needs_precision,
                    checked=checked,
                )
                forms_rows = _forms_rows(config, kernel, weights, device)
            ready = device.timestamp()
            row_sums = row_gram if forms_rows else dual_gram
            sums = engine.total(row_sums, blocks, kernel=kernel, checked=checked)
            with device.compute_context(n):
                new = sums.gram if forms_rows else sandwich(kernel.K, sums.gram)
                done = device.timestamp()
                fit, change, may_stop, norms_now = device.read_back(
                    sums.fit, relative_change(new, gram), stationary, _diagonal(new)
                )
            if math.isfinite(change):
                break
        iterate = Iterate(
            KernelState(new, kernel, S),
            step=step,
            # With s = 1 the loss and the penalty of a row add up to v.y.
            objective=float(fit),
            change=float(change),
            jitter=sums.jitter,
            seconds=_seconds_by_part((start, weighed, ready, done), sums),
            may_stop=bool(may_stop),
        )
        gram, norms = new, norms_now
        del sums, S, kernel, new  # which would take memory in the next step
        yield iterate


def _forms_rows(
    config: IterationConfig, kernel: Kernel, weights: Array, device: Device
) -> bool:
    """Whether completed rows are formed, not only their duals.

    Where work is queued they always are: reading the condition number would wait for
    it, and dense products are what such devices are good at.
    """
    if config.always_form_rows or device.is_async:
        return True
    spectral = config.penalty.spectral_eigenvalues(weights)
    # Symmetrized similarity has row sums below n / k only; 4 bounds L in practice.
    largest = float(spectral.max()) + 4.0 * config.penalty.alpha
    condition = largest / float(spectral.min())
    eps = float(np.finfo(dtype_name(kernel.K.dtype)).eps)
    # Infinite, not an error, past the range.
    return bool(eps * condition * condition > MAX_DUAL_GRAM_LOSS)


def _fixed_similarity(config: IterationConfig, initial_gram: Array) -> Array | None:
    """The similarity that is the same in all steps; None if there is none."""
    if config.graph is None or not isinstance(config.graph, str):
        return config.graph
    if config.graph == "fixed" and config.n_neighbors:
        return config.learn_similarity(initial_gram)
    return None


def _diagonal(A: Array) -> Array:
    return array_namespace(A).linalg.diagonal(A)


def relative_change(new: Array, old: Array) -> Array:
    """``||new - old||_F / ||new||_F``, infinite where only ``new`` vanishes."""
    xp, difference = array_namespace(new), new - old
    if is_numpy_array(new):
        # Not through BLAS: see ncarl.core.linalg on its idle threads.
        distance = np.sqrt(np.einsum("ij,ij->", difference, difference))
        norm = np.sqrt(np.einsum("ij,ij->", new, new))
    else:
        distance = xp.linalg.vector_norm(difference)
        norm = xp.linalg.vector_norm(new)
    safe = xp.where(norm > 0.0, norm, xp.ones_like(norm))
    at_zero = xp.where(distance > 0.0, xp.full_like(norm, math.inf), distance)
    return xp.where(norm > 0.0, distance / safe, at_zero)


def _seconds_by_part(
    marks: tuple[Any, Any, Any, Any], sums: RowSums
) -> dict[str, float]:
    """Seconds of a step by part; threads share the time of the pass over the rows."""
    start, weighed, ready, done = marks
    rows = sum(seconds_between(first, middle) for first, middle, _ in sums.timestamps)
    gram = sum(seconds_between(middle, last) for _, middle, last in sums.timestamps)
    share = rows / (rows + gram) if rows + gram > 0.0 else 1.0
    passed = seconds_between(ready, done)
    return {
        "eigen": seconds_between(start, weighed),
        "kernel": seconds_between(weighed, ready),
        "rows": passed * share,
        "gram": passed * (1.0 - share),
    }


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


class KernelProblem:
    """A matrix prepared for fits: centered, scaled, cut into blocks and placed."""

    def __init__(
        self,
        dataset: Dataset,  # in the orientation of the kernel
        center: str,  # effects to subtract first: "none", "mean", "columns", ...
        scaled: bool,  # whether columns are divided by their standard deviations
        dtype: str,  # precision of the work
        engine: Engine,
        *,
        # Whether columns without observed entries take part in the fit, as in the
        # authors' code and where a given graph links them to others; else the kernel
        # is learned without them.
        keep_empty: bool,
    ) -> None:
        summary = dataset.summary
        self.shape = summary.shape
        self.n_observed = summary.n_observed
        self.n_observed_rows = summary.n_observed_rows
        self.unit = summary.unit
        inner = dataset.map_values(partial(rescale, unit=self.unit))
        # What an empty row gets without a center: the mean, by column where columns
        # have units of their own.
        means = fit_centering(inner, "columns" if scaled else "mean", scaled=False)
        self.fallback_values = means.mean + means.column_effects
        self.is_centered = center != "none"
        self.centering: Centering = fit_centering(inner, center, scaled)
        self.empty_columns = summary.column_counts == 0
        self.kept_columns = np.flatnonzero(~self.empty_columns | keep_empty)
        self.needs_precision = summary.needs_precision(len(self.kept_columns))
        self.engine = engine
        self.dtype = dtype
        self._check_memory()
        dataset.release()
        self.blocks = self._place(inner)

    def _check_memory(self) -> None:
        self.engine.compute_device.check_memory(
            len(self.kept_columns), np.dtype(self.dtype).itemsize
        )

    def _place(self, dataset: Dataset) -> Any:
        center = partial(
            center_rows,
            centering=self.centering,
            kept_columns=self.kept_columns,
            dtype=self.dtype,
        )
        return dataset.place_blocks(self.engine, center)

    @cached_property
    def initial_gram(self) -> Array:
        """Gram matrix of the zero-filled residuals."""
        return self.engine.total(observed_gram, self.blocks)

    def effective_n_neighbors(self, settings: Settings) -> int:
        """Neighbors that the graph can have at most; 0 for no graph."""
        return min(settings.n_neighbors, len(self.kept_columns) - 1)

    def iteration_config(
        self, settings: Settings, *, warm: bool = False
    ) -> IterationConfig:
        """What does not change between the steps of a fit with these settings."""
        faithful = settings.weights == "pinv"
        # Clipped to where it still keeps an eigenvalue of 0 away from 0.
        largest = 1e30 if self.dtype == "float32" else 1e300
        shift = min(max(AUTHORS_SHIFT / self.unit / self.unit, 1e-30), largest)
        graph = settings.graph if settings.alpha > 0.0 else None
        if graph is not None and not isinstance(graph, str):
            graph = self.engine.compute_device.from_numpy(graph.astype(self.dtype))
        return IterationConfig(
            penalty=QuadraticPenalty(
                settings.alpha, settings.delta, settings.gamma, unscaled_delta=faithful
            ),
            rule=self._weight_rule(settings, shift),
            n_neighbors=self.effective_n_neighbors(settings),
            graph=graph,
            distance_shift=shift if faithful else 0.0,
            needs_precision=self.needs_precision,
            warm_steps=WARM_STEPS if warm else 0,
            always_form_rows=faithful,
        )

    def _weight_rule(self, settings: Settings, shift: float) -> WeightRule:
        if settings.weights == "smooth":
            return SmoothWeights()
        if settings.weights == "pinv":
            return (
                PseudoInverseWeights()
                if settings.gamma is None
                else ShiftedInverseWeights(shift)
            )
        # Directions that the data can determine; empty rows and columns do not count.
        directions = self.n_observed // (self.n_observed_rows + len(self.kept_columns))
        if settings.gamma is None:
            return FloorWeights(directions)
        # Smoothed rows are nearly of low rank, and shares near the square root of the
        # machine epsilon are rounding errors, which would grow from step to step.
        return FloorWeights(directions, min_floor=MIN_NOISY_SHARE)

    def run(
        self,
        settings: Settings,
        *,
        gram: Array | None = None,
        checkpoint: CheckpointFile | None = None,
        observers: Sequence[Observer] = (),
    ) -> FitResult[KernelState]:
        """Learn a kernel; continue from ``gram`` or the checkpoint if there is one."""
        config = self.iteration_config(settings, warm=gram is not None)
        n = len(self.kept_columns)
        if gram is not None and gram.shape != (n, n):
            raise BrokenFileError(
                f"checkpoint is damaged: its Gram matrix has not {n} rows"
            )

        def start(last: Iterate[KernelState] | None) -> Iterator[Iterate[KernelState]]:
            first = self.initial_gram
            state, step = first if gram is None else gram, 0
            if last is not None:
                state, step = last.state.gram, last.step
            state = self.engine.compute_device.from_numpy(state)
            return kernel_iterates(self.engine, self.blocks, config, first, state, step)

        return self._drive(start, settings, checkpoint, observers)

    def _drive(
        self, start: Any, settings: Settings, checkpoint: CheckpointFile | None,
        observers: Sequence[Observer],
    ) -> FitResult[KernelState]:  # fmt: skip
        return drive(
            start,
            max_iter=settings.max_iter,
            tol=settings.tol,
            observers=observers,
            scale=min(self.unit * self.unit, 1e300),
            checkpoint=checkpoint,
            pack=self._pack,
            unpack=self._unpack,
        )

    def _pack(self, state: KernelState) -> CheckpointContents:
        kernel, fetch = state.kernel, self.engine.compute_device.to_numpy
        arrays = {
            "gram": state.gram,
            "K": kernel.K,
            "P": kernel.P,
            "similarity": state.similarity,
        }
        fetched = {name: fetch(a) for name, a in arrays.items() if a is not None}
        return {"noise": kernel.s}, fetched

    def _unpack(
        self, header: Mapping[str, Any], arrays: Mapping[str, Array]
    ) -> KernelState:
        n, s = len(self.kept_columns), check_number("noise", header["noise"], low=0.0)
        for name, array in arrays.items():
            check_array(name, array, (n, n), self.dtype)
        gram = np.ascontiguousarray(arrays["gram"])
        kernel = Kernel(arrays["K"], arrays.get("P"), s)
        return KernelState(gram, kernel, arrays.get("similarity"))

    def model(
        self,
        settings: Settings,
        result: FitResult[KernelState],
        *,
        to_host: bool = True,
    ) -> KernelModel:
        """The fitted model of a run; its kernel may stay on the device."""
        no_fallback = self.is_centered or settings.weights == "pinv"
        device = self.engine.compute_device
        with device.compute_context(self.shape[1]):
            kernel = self._expand_kernel(result.last.state.kernel)
        return KernelModel(
            kernel=kernel.map_arrays(device.to_numpy) if to_host else kernel,
            centering=self.centering,
            unit=self.unit,
            sigma=self._sigma(settings, result),
            empty_columns=self.empty_columns & (settings.weights != "pinv"),
            fallback=np.zeros(self.shape[1]) if no_fallback else self.fallback_values,
            dtype=self.dtype,
        )

    def _sigma(self, settings: Settings, result: FitResult[KernelState]) -> float:
        """Standard deviation of the kernel's unit: that of the residuals with noise."""
        if settings.gamma is None:
            return 1.0
        return float(np.sqrt(result.last.objective / self.n_observed))

    def similarity(self, result: FitResult[KernelState]) -> Any:
        """The last graph of a run, as a SciPy array; without entries if none."""
        n = self.shape[1]
        if result.last.state.similarity is None:
            return csr_array((n, n))
        device = self.engine.compute_device
        with device.compute_context(n):
            S = device.to_scipy(result.last.state.similarity)
        if len(self.kept_columns) == n:
            return S
        return embed_sparse(S, self.kept_columns, n, 1.0)

    def _expand_kernel(self, kernel: Any) -> Any:
        """The kernel of all columns; empty ones get the mean variance of the others."""
        n = self.shape[1]
        if len(self.kept_columns) == n:
            return kernel
        # Summed on the host, so that a kernel from a checkpoint gives the same bits.
        variances = self.engine.compute_device.to_numpy(_diagonal(kernel.K))
        mean = float(np.mean(variances))
        K = embed_submatrix(kernel.K, self.kept_columns, n, mean)
        if kernel.P is None:
            return Kernel(K, None, kernel.s)
        P = embed_submatrix(kernel.P, self.kept_columns, n, 1.0 / (mean + kernel.s))
        return Kernel(K, P, kernel.s)
