"""The iteration that learns a kernel: a generator of iterates over any engine."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import iadd
from typing import Any

import numpy as np

from ncarl.core.graph import laplacian, similarity, squared_distances
from ncarl.core.kernel import Penalty, column_kernel
from ncarl.core.linalg import sandwich, symmetrised
from ncarl.core.rows import first_gram, gram_of_duals, gram_of_rows
from ncarl.core.types import Array, Kernel, RowSums
from ncarl.core.weights import WeightRule, spectrum
from ncarl.engines import Engine

#: The Gram matrix of the duals loses about eps * cond(Q)^2 digits in the worst case
#: (far fewer in practice); past this bound completed rows are formed instead.
DUAL_LOSS = 1e-6


@dataclass(frozen=True)
class Recipe:
    """Everything about a fit that does not change from step to step.

    Attributes
    ----------
    penalty : Penalty
        How weights and graph make the quadratic form of a row.
    rule : WeightRule
        How a direction is punished.
    n_neighbors : int
        Neighbours of a column, itself counted; 0 for no graph.
    graph : {"adaptive", "fixed"} or array of shape (n, n) or None
        Learned each step, learned once, given, or none.
    active : array of bool, shape (n,) or None
        Columns that take part in the graph.
    shift : float
        Added to the (k+1)-th distance.
    missing_side : bool
        Whether some row solves for its missing entries.
    head_start : int
        Steps of trust that the weight rule has from an earlier fit.
    keep_digits : bool
        Always form completed rows, never the Gram matrix of the duals.
    """

    penalty: Penalty
    rule: WeightRule
    n_neighbors: int
    graph: Any
    active: Array | None = None
    shift: float = 0.0
    missing_side: bool = False
    head_start: int = 0
    keep_digits: bool = False

    @property
    def learns_graph(self) -> bool:
        """Whether the graph is learned afresh in every step."""
        named = isinstance(self.graph, str) and self.graph == "adaptive"
        return named and self.n_neighbors > 0

    def learn_similarity(self, G: Array) -> Array:
        """Similarity of the columns whose Gram matrix is ``G``."""
        return similarity(
            squared_distances(G),
            self.n_neighbors,
            active=self.active,
            shift=self.shift,
        )


@dataclass(frozen=True)
class Iterate:
    """The state after a step, and what is worth recording of it."""

    step: int
    gram: Array
    kernel: Kernel
    similarity: Array | None
    objective: float
    fit: float
    change: float
    jitter: float
    seconds: dict[str, float]
    may_stop: bool = True


def zero_filled_gram(engine: Engine, blocks: Sequence[Any]) -> Array:
    """Gram matrix of the matrix with zeros in its gaps: where a fit begins."""
    return reduce(iadd, engine.map(first_gram, blocks))


def kernel_iterates(
    engine: Engine,
    blocks: Sequence[Any],
    recipe: Recipe,
    start: Array,
    gram: Array,
    step: int = 0,
) -> Iterator[Iterate]:
    """Yield iterates for ever: Gram matrix to kernel, kernel to rows, rows to Gram.

    Parameters
    ----------
    engine, blocks
        Where the rows are, placed by the engine.
    recipe : Recipe
        What to do.
    start : array of shape (n, n)
        Gram matrix of the zero-filled input; a fixed graph is learned from it.
    gram : array of shape (n, n)
        Where to go on from: ``start``, or the state of an earlier fit.
    step : int
        Steps already made.
    """
    S = _standing_similarity(recipe, start)
    while True:
        step += 1
        clock = [time.perf_counter()]
        with engine.dense_work(gram.shape[0]):
            basis = [spectrum(gram)]
            trust = step + recipe.head_start
            weights = recipe.rule(basis[0].eigenvalues, trust)
            may_stop = recipe.rule.settled(basis[0].eigenvalues, trust)
            clock.append(time.perf_counter())
            if recipe.learns_graph:
                S = recipe.learn_similarity(gram)
            kernel = column_kernel(
                basis.pop(),  # handed over, to be freed when it has served
                weights,
                None if S is None else laplacian(S),
                recipe.penalty,
                missing_side=recipe.missing_side,
            )
        clock.append(time.perf_counter())
        sums = _next_gram(engine, blocks, recipe, kernel, weights)
        clock.append(time.perf_counter())
        yield Iterate(
            step=step,
            gram=sums.gram,
            kernel=kernel,
            similarity=S,
            # With s = 1 the loss and the penalty of a row add up to v.y.
            objective=sums.fit,
            fit=sums.fit,
            change=relative_change(sums.gram, gram),
            jitter=sums.jitter,
            seconds=_by_part(clock, sums),
            may_stop=may_stop,
        )
        gram = sums.gram


def _standing_similarity(recipe: Recipe, start: Array) -> Array | None:
    """The similarity that holds for all steps, where there is one."""
    if recipe.graph is None or not isinstance(recipe.graph, str):
        return recipe.graph
    if recipe.graph == "fixed" and recipe.n_neighbors:
        return recipe.learn_similarity(start)
    return None


def _next_gram(
    engine: Engine,
    blocks: Sequence[Any],
    recipe: Recipe,
    kernel: Kernel,
    weights: Array,
) -> RowSums:
    """Sums of one pass over the rows; the Gram matrix is that of completed rows."""
    spectral = recipe.penalty.spectral(weights)
    # Symmetrised similarity has row sums below n / k only; 4 bounds L in practice.
    largest = float(spectral.max()) + 4.0 * recipe.penalty.alpha
    condition = largest / float(spectral.min())
    eps = float(np.finfo(str(kernel.K.dtype).split(".")[-1]).eps)
    loss = eps * condition * condition  # infinite, not an error, past the range
    if recipe.keep_digits or loss > DUAL_LOSS:
        sums = reduce(iadd, engine.map(gram_of_rows, blocks, kernel=kernel))
        return replace(sums, gram=symmetrised(sums.gram))
    sums = reduce(iadd, engine.map(gram_of_duals, blocks, kernel=kernel))
    with engine.dense_work(kernel.K.shape[0]):
        return replace(sums, gram=sandwich(kernel.K, sums.gram))


def relative_change(new: Array, old: Array) -> float:
    """``||new - old||_F / ||new||_F``, infinite where only ``new`` vanishes."""
    # Not through BLAS: see ncarl.core.linalg on its idle threads.
    gap = new - old
    difference = float(np.sqrt(np.einsum("ij,ij->", gap, gap)))
    size = float(np.sqrt(np.einsum("ij,ij->", new, new)))
    if size > 0.0:
        return difference / size
    return 0.0 if difference == 0.0 else float("inf")


def _by_part(clock: list[float], sums: RowSums) -> dict[str, float]:
    """Seconds of a step by part; threads share the time of the pass over the rows."""
    eigen, kernel, passed = (b - a for a, b in itertools.pairwise(clock))
    busy = sums.seconds_rows + sums.seconds_gram
    share = sums.seconds_rows / busy if busy > 0.0 else 1.0
    return {
        "eigen": eigen,
        "kernel": kernel,
        "rows": passed * share,
        "gram": passed * (1.0 - share),
    }
