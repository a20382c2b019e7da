"""The iteration that learns a wide kernel: the steps of `ncarl.solver`, matrix-free."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from ncarl.core.kernel import Penalty
from ncarl.core.types import Array, Block
from ncarl.core.weights import Floor
from ncarl.engines import Engine
from ncarl.wide.graph import wide_similarity
from ncarl.wide.inverse import Graph
from ncarl.wide.kernel import WideKernel, wide_kernel
from ncarl.wide.products import GramOperator, with_duals
from ncarl.wide.rows import duals_and_fit
from ncarl.wide.spectrum import (
    WideGram,
    block_size,
    exact_gram,
    relative_change,
    summarised,
)


@dataclass(frozen=True)
class WideRecipe:
    """Everything about a fit that does not change from step to step.

    Attributes
    ----------
    penalty : Penalty
        How weights and graph make the quadratic form of a row.
    rule : Floor
        How a direction is punished.
    rank : int
        Directions with a weight of their own.
    n_neighbors : int
        Neighbours of a column, itself counted; 0 for no graph.
    graph : {"adaptive", "fixed"} or csr_array of shape (n, n) or None
        Learned each step, learned once, given, or none.
    dtype : str
        Precision of the work.
    """

    penalty: Penalty
    rule: Floor
    rank: int
    n_neighbors: int
    graph: Any
    dtype: str


@dataclass(frozen=True)
class WideIterate:
    """The state after a step, and what is worth recording of it."""

    step: int
    gram: WideGram
    kernel: WideKernel
    similarity: Any
    objective: float
    fit: float
    change: float
    jitter: float
    seconds: dict[str, float]
    may_stop: bool = True


@dataclass(frozen=True)
class Weights:
    """Weights of the directions of a Gram matrix.

    Attributes
    ----------
    leading : array of shape (p,)
        Of the leading directions.
    rest : float
        Of all others: that of their mean share, so that the trace of the kernel, as
        far as it is theirs, is kept.
    settled : bool
        Whether later steps would weigh the same spectrum in the same way.
    """

    leading: Array
    rest: float
    settled: bool


def weigh(gram: WideGram, rule: Floor, step: int) -> Weights:
    """Weights by the rule of `ncarl.core.weights.Floor`.

    Examples
    --------
    >>> import numpy as np
    >>> gram = exact_gram(np.diag([9.0, 1.0]))
    >>> weigh(gram, Floor(1), 30).leading.round(3).tolist()
    [1.333, 4.0]
    """
    n = len(gram.diagonal)
    total = gram.singular_sum()
    own, others = np.sqrt(gram.leading[0]), np.sqrt(gram.nodes)
    if total > 0.0:
        own, others = own / total, others / total
    else:
        own, others = np.full_like(own, 1.0 / n), np.full_like(others, 1.0 / n)
    # The rule looks at one place only, which is among the leading directions.
    padded = np.zeros(n)
    padded[n - len(own) :] = own[::-1]
    floor = float(rule.floor(padded, step)[0])
    settled = floor == float(rule.floor(padded, rule.trusted_after)[0])
    shares = np.maximum(own, floor)
    rest = floor
    if len(others):
        mass = float(gram.masses.sum())
        rest = float(gram.masses @ np.maximum(others, floor)) / mass
    # A tail of Ritz values may lie above the last one that counts.
    return Weights(1.0 / np.maximum(shares, rest), 1.0 / rest, settled)


def gram_of(operator: GramOperator, rank: int, start: Array | None) -> WideGram:
    """The Gram matrix of completed rows; whole for few columns, else in short."""
    n = operator.n
    if block_size(rank, n) >= n:
        G = operator.whole()
        with operator.engine.home.work(n):
            return exact_gram(G)
    return summarised(operator, operator.diagonal(), rank, start, str(operator.dtype))


def first_gram(engine: Engine, blocks: list[Block], recipe: WideRecipe) -> WideGram:
    """Gram matrix of the zero-filled matrix: where a fit begins."""
    identity = WideKernel.identity(blocks[0].n_columns, recipe.dtype)
    return gram_of(GramOperator(engine, blocks, identity), recipe.rank, None)


def wide_iterates(
    engine: Engine,
    blocks: list[Block],
    recipe: WideRecipe,
    gram: WideGram,
    similarity: Any,
    step: int = 0,
) -> Iterator[WideIterate]:
    """Yield iterates for ever: Gram matrix to kernel, kernel to rows, rows to Gram.

    ``similarity`` is the graph of the step before, which a fixed one goes on with.
    """
    turn = _Turn(engine, blocks, recipe)
    while True:
        step += 1
        iterate = turn.run(gram, similarity, step)
        yield iterate
        gram, similarity = iterate.gram, iterate.similarity


@dataclass(frozen=True)
class _Turn:
    """One step, to be run on a Gram matrix."""

    engine: Engine
    blocks: list[Block]
    recipe: WideRecipe

    def run(self, gram: WideGram, similarity: Any, step: int) -> WideIterate:
        """The state after the step."""
        engine, recipe = self.engine, self.recipe
        marks = [time.perf_counter()]
        similarity = self._similarity(gram, similarity)
        marks.append(time.perf_counter())
        weights = weigh(gram, recipe.rule, step)
        graph = None if similarity is None else Graph.of(similarity)
        with engine.home.work(len(gram.diagonal)):
            kernel = wide_kernel(
                gram.leading[1], weights.leading, weights.rest, graph, recipe.penalty
            )
        marks.append(time.perf_counter())
        found = list(engine.map(duals_and_fit, self.blocks, kernel=kernel))
        marks.append(time.perf_counter())
        duals = with_duals(self.blocks, [Y for Y, _, _ in found])
        operator = GramOperator(engine, duals, kernel)
        new = gram_of(operator, recipe.rank, gram.vectors)
        fit = reduce(add, (part for _, part, _ in found))
        marks.append(time.perf_counter())
        return WideIterate(
            step=step,
            gram=new,
            kernel=kernel,
            similarity=similarity,
            objective=fit,  # with s = 1 loss and penalty of a row add up to v.y
            fit=fit,
            change=relative_change(new, gram),
            jitter=max(jitter for _, _, jitter in found),
            seconds=_by_part(marks),
            may_stop=weights.settled,
        )

    def _similarity(self, gram: WideGram, before: Any) -> Any:
        """The graph of this step, given that of the step before."""
        graph, k = self.recipe.graph, self.recipe.n_neighbors
        if graph is None or k == 0:
            return None
        if not isinstance(graph, str):
            return graph
        if graph == "fixed" and before is not None:
            return before
        return wide_similarity(gram, k, self.engine)


def _by_part(marks: list[float]) -> dict[str, float]:
    """Seconds of a step by part."""
    parts = ("graph", "kernel", "rows", "gram")
    return dict(zip(parts, np.diff(marks).tolist(), strict=True))
