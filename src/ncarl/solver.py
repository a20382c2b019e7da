"""The iteration that learns a kernel: a generator of iterates over any engine."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from array_api_compat import array_namespace, is_numpy_array

from ncarl.core.graph import laplacian, similarity, squared_distances
from ncarl.core.kernel import Penalty, column_kernel
from ncarl.core.linalg import sandwich
from ncarl.core.rows import first_gram, gram_of_duals, gram_of_rows
from ncarl.core.types import Array, Kernel, RowSums
from ncarl.core.weights import WeightRule, spectrum
from ncarl.engines import Engine
from ncarl.homes import seconds_between

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
        return similarity(squared_distances(G), self.n_neighbors, shift=self.shift)


@dataclass(frozen=True)
class Iterate:
    """The state after a step, and what is worth recording of it.

    Arrays are where the engine keeps them; ``zero`` (which columns of the Gram matrix
    vanish) is a NumPy array.
    """

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
    zero: Array | None = None


def zero_filled_gram(engine: Engine, blocks: Any) -> Array:
    """Gram matrix of the matrix with zeros in its gaps: where a fit begins."""
    gram: Array = engine.total(first_gram, blocks)
    return gram


def kernel_iterates(
    engine: Engine,
    blocks: Any,
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
    home = engine.home
    with home.work(gram.shape[0]):
        standing = _standing_similarity(recipe, start)
        (norms,) = home.read(_diagonal(gram))
    zero = norms <= 0.0
    while True:
        step += 1
        turn = _Turn(engine, blocks, recipe, standing, step)
        iterate = turn.run(gram, zero, checked=not home.queued)
        if home.queued and not math.isfinite(iterate.change):
            # Something did not factorise: again, this time with a look at each.
            iterate = turn.run(gram, zero, checked=True)
        yield iterate
        gram, zero = iterate.gram, iterate.zero


@dataclass(frozen=True)
class _Turn:
    """One step, to be run on a Gram matrix."""

    engine: Engine
    blocks: Any
    recipe: Recipe
    standing: Array | None
    step: int

    def run(self, gram: Array, zero: Array, *, checked: bool) -> Iterate:
        """The state after the step; nothing is read back before the end of it."""
        home, recipe = self.engine.home, self.recipe
        start = home.mark()
        with home.work(gram.shape[0]):
            basis = [spectrum(gram, zero)]
            trust = self.step + recipe.head_start
            weights = recipe.rule(basis[0].eigenvalues, trust)
            may_stop = recipe.rule.settled(basis[0].eigenvalues, trust)
            weighed = home.mark()
            S, *laplacians = self._graph(gram)
            kernel = column_kernel(
                basis.pop(),  # handed over, to be freed when it has served
                weights,
                laplacians.pop(),
                recipe.penalty,
                missing_side=recipe.missing_side,
                checked=checked,
            )
        ready = home.mark()
        sums, new = self._next_gram(kernel, weights, checked)
        done = home.mark()
        with home.work(gram.shape[0]):
            fit, change, settled, norms = home.read(
                sums.fit, relative_change(new, gram), may_stop, _diagonal(new)
            )
        return Iterate(
            step=self.step,
            gram=new,
            kernel=kernel,
            similarity=S,
            # With s = 1 the loss and the penalty of a row add up to v.y.
            objective=float(fit),
            fit=float(fit),
            change=float(change),
            jitter=sums.jitter,
            seconds=_by_part((start, weighed, ready, done), sums),
            may_stop=bool(settled),
            zero=norms <= 0.0,
        )

    def _graph(self, gram: Array) -> tuple[Array | None, Array | None]:
        """Similarity of the columns and its Laplacian, where there is a graph."""
        S = self.standing
        if self.recipe.learns_graph:
            S = self.recipe.learn_similarity(gram)
        return S, None if S is None else laplacian(S)

    def _next_gram(
        self, kernel: Kernel, weights: Array, checked: bool
    ) -> tuple[RowSums, Array]:
        """Sums of one pass over the rows, and the Gram matrix of completed rows."""
        shared = {"kernel": kernel, "checked": checked}
        if self._keeps_rows(kernel, weights):
            sums = self.engine.total(gram_of_rows, self.blocks, **shared)
            return sums, sums.gram
        sums = self.engine.total(gram_of_duals, self.blocks, **shared)
        with self.engine.home.work(kernel.K.shape[0]):
            return sums, sandwich(kernel.K, sums.gram)

    def _keeps_rows(self, kernel: Kernel, weights: Array) -> bool:
        """Whether completed rows are formed, not only their duals.

        Where work is queued they always are: asking for the condition number would
        mean waiting, and dense products are what such devices are good at.
        """
        if self.recipe.keep_digits or self.engine.home.queued:
            return True
        spectral = self.recipe.penalty.spectral(weights)
        # Symmetrised similarity has row sums below n / k only; 4 bounds L in practice.
        largest = float(spectral.max()) + 4.0 * self.recipe.penalty.alpha
        condition = largest / float(spectral.min())
        eps = float(np.finfo(str(kernel.K.dtype).split(".")[-1]).eps)
        # Infinite, not an error, past the range.
        return bool(eps * condition * condition > DUAL_LOSS)


def _standing_similarity(recipe: Recipe, start: Array) -> Array | None:
    """The similarity that holds for all steps, where there is one."""
    if recipe.graph is None or not isinstance(recipe.graph, str):
        return recipe.graph
    if recipe.graph == "fixed" and recipe.n_neighbors:
        return recipe.learn_similarity(start)
    return None


def _diagonal(A: Array) -> Array:
    """Diagonal of a square matrix of any array library."""
    return array_namespace(A).linalg.diagonal(A)


def relative_change(new: Array, old: Array) -> Array:
    """``||new - old||_F / ||new||_F``, infinite where only ``new`` vanishes."""
    xp, gap = array_namespace(new), new - old
    if is_numpy_array(new):
        # Not through BLAS: see ncarl.core.linalg on its idle threads.
        difference = np.sqrt(np.einsum("ij,ij->", gap, gap))
        size = np.sqrt(np.einsum("ij,ij->", new, new))
    else:
        difference = xp.linalg.vector_norm(gap)
        size = xp.linalg.vector_norm(new)
    safe = xp.where(size > 0.0, size, xp.ones_like(size))
    alone = xp.where(difference > 0.0, xp.full_like(size, math.inf), difference)
    return xp.where(size > 0.0, difference / safe, alone)


def _by_part(marks: tuple[Any, Any, Any, Any], sums: RowSums) -> dict[str, float]:
    """Seconds of a step by part; threads share the time of the pass over the rows."""
    start, weighed, ready, done = marks
    rows = sum(seconds_between(first, middle) for first, middle, _ in sums.spans)
    gram = sum(seconds_between(middle, last) for _, middle, last in sums.spans)
    share = rows / (rows + gram) if rows + gram > 0.0 else 1.0
    passed = seconds_between(ready, done)
    return {
        "eigen": seconds_between(start, weighed),
        "kernel": seconds_between(weighed, ready),
        "rows": passed * share,
        "gram": passed * (1.0 - share),
    }
