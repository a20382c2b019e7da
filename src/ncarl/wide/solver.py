"""The iteration that learns a wide kernel, and its checkpoints.

The steps are those of `ncarl.fitting.ncarl`, without n x n arrays.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from ncarl.blocks import cut_blocks
from ncarl.centering import center_rows
from ncarl.core.kernel import QuadraticPenalty
from ncarl.core.types import Array, Block
from ncarl.core.weights import FloorWeights
from ncarl.dataset import Dataset, InMemoryDataset
from ncarl.engines import pick_engine
from ncarl.engines.base import Engine
from ncarl.engines.threads import Threads
from ncarl.fitting.checkpoint import (
    CheckpointContents,
    CheckpointFile,
    check_array,
    csr_from_arrays,
    csr_to_arrays,
)
from ncarl.fitting.loop import FitResult, Iterate, Observer
from ncarl.fitting.ncarl import KernelProblem, KernelState, Settings
from ncarl.validation import check_integer, check_number
from ncarl.wide.kernel import ColumnGraph, wide_kernel
from ncarl.wide.rows import GramOperator, WideKernel, duals_and_fit
from ncarl.wide.spectrum import (
    WideGram,
    exact_gram,
    relative_change,
    subspace_size,
    summarize_gram,
    wide_similarity,
)

#: Smallest default rank, and its margin over the rank that the data can determine.
MIN_RANK, EXTRA_RANK = 128, 32
#: Number of blocks, each of which sums an n x p array, and the largest matrix that is a
#: single block.
N_BLOCKS, SINGLE_BLOCK_MAX_ENTRIES = 16, 20_000
GRAM_FIELDS = ("values", "vectors", "diagonal", "nodes", "masses")


class WideKernelProblem(KernelProblem):
    """Prepared matrix for fits with a wide kernel."""

    def wide_config(self, settings: Settings, rank: int | None) -> WideIterationConfig:
        """Parameters of the iteration for these settings."""
        rule = self._weight_rule(settings, 0.0)
        assert isinstance(rule, FloorWeights)
        n = len(self.kept_columns)
        graph = settings.graph if settings.alpha > 0.0 else None
        if rank is None:
            rank = max(MIN_RANK, rule.identifiable_rank + EXTRA_RANK)
        return WideIterationConfig(
            penalty=QuadraticPenalty(settings.alpha, settings.delta, settings.gamma),
            rule=rule,
            # The rule needs the first share beyond the identifiable rank.
            rank=min(n, max(rank, rule.identifiable_rank + 1)),
            n_neighbors=self.effective_n_neighbors(settings),
            graph=graph,
            dtype=self.dtype,
        )

    def _check_memory(self) -> None:
        """Accept any size: there are only thin and sparse arrays."""

    def _place(self, dataset: Dataset) -> list[Block]:
        """Few blocks, as many on every machine, so that sums are the same."""
        assert isinstance(dataset, InMemoryDataset)
        rows = center_rows(
            dataset.observed,
            centering=self.centering,
            kept_columns=self.kept_columns,
            dtype=self.dtype,
        )
        single = math.prod(rows.shape) <= SINGLE_BLOCK_MAX_ENTRIES
        return cut_blocks(rows, 1 if single else N_BLOCKS)

    def run_wide(
        self,
        settings: Settings,
        config: WideIterationConfig,
        *,
        checkpoint: CheckpointFile | None,
        observers: Sequence[Observer],
    ) -> FitResult[KernelState]:
        """Learn a kernel, from the checkpoint if there is one."""

        def start(last: Iterate[KernelState] | None) -> Iterator[Iterate[KernelState]]:
            fit = (self.engine, self.blocks, config)
            if last is None:
                return wide_iterates(*fit, initial_gram(*fit))
            state = last.state
            return wide_iterates(*fit, state.gram, state.similarity, last.step)

        return self._drive(start, settings, checkpoint, observers)

    def _pack(self, state: KernelState) -> CheckpointContents:
        kernel, gram = state.kernel, state.gram
        header = {"noise": kernel.s, "error": kernel.error, "rank": gram.rank}
        arrays = {f"gram/{name}": getattr(gram, name) for name in GRAM_FIELDS}
        arrays |= {"F": kernel.F, **csr_to_arrays("T", kernel.T)}
        if state.similarity is not None:
            arrays |= csr_to_arrays("similarity", state.similarity)
        return header, arrays

    def _unpack(
        self, header: Mapping[str, Any], arrays: Mapping[str, Array]
    ) -> KernelState:
        # In C order, as they were: sums in another order differ in the last bits.
        F = np.ascontiguousarray(arrays["F"])
        s, error = (check_number(x, header[x], low=0.0) for x in ("noise", "error"))
        gram = {n: np.ascontiguousarray(arrays[f"gram/{n}"]) for n in GRAM_FIELDS}
        n, b, q = len(self.kept_columns), len(gram["values"]), len(gram["nodes"])
        T, S = csr_from_arrays("T", arrays), None
        if "similarity/data" in arrays:
            S = csr_from_arrays("similarity", arrays)
        shapes = (b,), (n, b), (n,), (q,), (q,)
        for name, shape in zip(GRAM_FIELDS, shapes, strict=True):
            check_array(name, gram[name], shape, str(gram[name].dtype))
        check_array("F", F, (n, *F.shape[1:2]), self.dtype)
        check_array("T", T, (n, n), self.dtype)
        if S is not None:  # its type depends on the version of SciPy
            check_array("similarity", S, (n, n), str(S.dtype))
        rank = check_integer("rank", header["rank"], low=0, high=b)
        return KernelState(WideGram(rank, **gram), WideKernel(F, T, s, error), S)

    def _expand_kernel(self, kernel: WideKernel) -> WideKernel:
        mean_variance = float(np.mean(kernel.diagonal()))
        return kernel.embed_columns(self.kept_columns, self.shape[1], mean_variance)


@dataclass(frozen=True)
class WideIterationConfig:
    """Parameters of a fit, which do not change from step to step."""

    penalty: QuadraticPenalty
    rule: FloorWeights
    rank: int  # number of directions with a weight of their own
    n_neighbors: int  # neighbors of a column, itself included; 0 for no graph
    graph: Any  # "adaptive", "fixed", a similarity as a csr_array, or None
    dtype: str  # float type of the computation


def initial_gram(
    engine: Engine, blocks: list[Block], config: WideIterationConfig
) -> WideGram:
    """Gram matrix of the zero-filled matrix, where a fit begins."""
    identity = WideKernel.identity(blocks[0].n_columns, config.dtype)
    return compute_gram(GramOperator(engine, blocks, identity), config.rank, None)


def wide_iterates(
    engine: Engine,
    blocks: list[Block],
    config: WideIterationConfig,
    gram: WideGram,
    similarity: Any = None,
    step: int = 0,
) -> Iterator[Iterate[KernelState]]:
    """Yield iterates forever: from Gram matrix to kernel, to rows, to Gram matrix.

    ``similarity`` is that of the previous step, which a fixed graph keeps.
    """
    while True:
        step += 1
        times = [time.perf_counter()]
        similarity = _similarity(gram, similarity, config, engine)
        times.append(time.perf_counter())
        weights = spectral_weights(gram, config.rule, step)
        graph = None if similarity is None else ColumnGraph.from_similarity(similarity)
        with engine.compute_device.compute_context(len(gram.diagonal)):
            kernel = wide_kernel(
                gram.leading[1], weights.leading, weights.tail, graph, config.penalty
            )
        times.append(time.perf_counter())
        results = list(engine.map(duals_and_fit, blocks, kernel=kernel))
        times.append(time.perf_counter())
        pairs = zip(blocks, results, strict=True)
        duals = [replace(block, values=Y) for block, (Y, _, _) in pairs]
        operator = GramOperator(engine, duals, kernel)
        new = compute_gram(operator, config.rank, gram.vectors)
        fit = reduce(add, (part for _, part, _ in results))
        times.append(time.perf_counter())
        parts = ("graph", "kernel", "rows", "gram")
        yield Iterate(
            KernelState(new, kernel, similarity),
            step=step,
            objective=fit,  # with s = 1 the loss and penalty of a row sum to v.y
            change=relative_change(new, gram),
            jitter=max(jitter for _, _, jitter in results),
            seconds=dict(zip(parts, np.diff(times).tolist(), strict=True)),
            may_stop=weights.is_stationary,
        )
        gram = new


def _similarity(
    gram: WideGram, previous: Any, config: WideIterationConfig, engine: Engine
) -> Any:
    graph, k = config.graph, config.n_neighbors
    if graph is None or k == 0:
        return None
    if not isinstance(graph, str):
        return graph
    if graph == "fixed" and previous is not None:
        return previous
    return wide_similarity(gram, k, engine)


@dataclass(frozen=True)
class SpectralWeights:
    """Weights of the eigenvectors of a Gram matrix.

    The tail has the weight of its mean share, which keeps its part of the trace of the
    kernel.
    """

    leading: Array  # (p,): weights of the leading eigenvectors
    tail: float  # weight of all others
    is_stationary: bool  # whether later steps would give the same weights


def spectral_weights(gram: WideGram, rule: FloorWeights, step: int) -> SpectralWeights:
    """Weights of a Gram matrix by the rule of `ncarl.core.weights.FloorWeights`."""
    n = len(gram.diagonal)
    total = gram.nuclear_norm()
    own, others = np.sqrt(gram.leading[0]), np.sqrt(gram.nodes)
    if total > 0.0:
        own, others = own / total, others / total
    else:
        own, others = np.full_like(own, 1.0 / n), np.full_like(others, 1.0 / n)
    # The rule reads only one share, which is among the leading ones.
    padded = np.zeros(n)
    padded[n - len(own) :] = own[::-1]
    floor = float(rule.floor(padded, step)[0])
    is_stationary = floor == float(rule.floor(padded, rule.warmup_steps)[0])
    shares = np.maximum(own, floor)
    rest = floor
    if len(others):
        rest = float(gram.masses @ np.maximum(others, floor)) / float(gram.masses.sum())
    # The mean share of the tail may exceed the smallest leading one.
    return SpectralWeights(1.0 / np.maximum(shares, rest), 1.0 / rest, is_stationary)


def compute_gram(operator: GramOperator, rank: int, start: Array | None) -> WideGram:
    """Gram matrix of the completed rows; exact for few columns, else summarized."""
    n = operator.n
    if subspace_size(rank, n) >= n:
        G = operator.to_dense()
        with operator.engine.compute_device.compute_context(n):
            return exact_gram(G)
    dtype = str(operator.kernel.F.dtype)
    return summarize_gram(operator, operator.diagonal(), rank, start, dtype)


def pick_wide_engine(engine: str | Engine) -> Threads:
    """Threads for an engine or its name; other engines raise an error."""
    if isinstance(engine, str) and engine in ("auto", "threads"):
        return Threads()
    picked = pick_engine(engine, quiet=True)
    if not isinstance(picked, Threads):
        raise ValueError(
            "engine must be 'auto', 'threads' or a Threads object: wide kernels work "
            f"on threads only, got {engine!r}"
        )
    return picked
