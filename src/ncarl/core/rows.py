"""The row step: complete rows given a kernel, and add them up.

A row with observed columns ``o`` (values ``v``) and missing columns ``u`` is

- on its observed side ``y = (K_oo + s I)^-1 v``, ``x = y K_o:``, or
- on its missing side, with ``P = (K + s I)^-1``, ``x_u = -P_uu^-1 P_uo v`` and
  ``y = (P [v; x_u])_o``.

Both give the same row and the same dual ``y``; the cheaper one is taken. On observed
columns ``x_o = v - s y``. Three modules do the work behind one signature: Numba where
it is installed, NumPy elsewhere, and PyTorch for blocks that an engine has placed on a
device.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
from collections.abc import Iterator
from functools import cache, reduce
from operator import iadd
from typing import Any

from ncarl.core.linalg import gram_matrix
from ncarl.core.types import Array, Block, EvidenceSums, Kernel, RowSums

log = logging.getLogger("ncarl")


@cache
def row_module(name: str = "auto") -> Any:
    """The module that solves rows: "numba", "numpy", "torch", or the one for here.

    Each has ``solve_rows(block, kernel, *, checked)``, which fills rows of
    ``new_rows(block)`` if it is given them, or else ``complete_rows`` with the same
    arguments; ``variances(block, kernel)``, ``dense_duals(block, Y)``,
    ``pieces(block)``, ``mark(block)``, ``shifted(block, offsets, scales)``, and for
    results that leave for the host ``parts_to_fetch(block)`` and ``fetched(array)``;
    it may have ``variances_at(block, kernel, i, j)``,
    ``entries_from_duals(block, K, Y, i, j)`` and ``sparse_outer_sum(block, Y)`` with
    ``scatter_pays(block)``.
    """
    if name != "auto":
        return importlib.import_module(f"ncarl.core.rows_{name}")
    if importlib.util.find_spec("numba") is None:
        return row_module("numpy")
    try:
        return row_module("numba")
    except (ImportError, RuntimeError) as error:
        # Numba of another age than NumPy, or no folder to cache compiled code in.
        log.warning("Numba does not load (%s); rows are solved by NumPy", error)
        return row_module("numpy")


def complete_rows(
    block: Block, *, kernel: Kernel, kind: str = "auto", checked: bool = True
) -> tuple[Array, Array, float]:
    """Completed rows, their duals, and the jitter that was needed.

    ``checked=False`` allows a row whose block does not factorise to come out as NaN:
    where work is queued, asking whether it has gone well means waiting for it.

    Returns
    -------
    X : array of shape (rows, n)
        Smoothed rows; equal to the observed values there in the exact model.
    Y : array of shape (entries,)
        Duals, aligned with ``block.values``.
    jitter : float
        Largest relative jitter added to a block; 0 in a healthy fit.
    """
    module = row_module(kind)
    if hasattr(module, "new_rows"):
        X = module.new_rows(block)
        Y, jitter = module.solve_rows(block, kernel, X, checked=checked)
        return X, Y, jitter
    completed: tuple[Array, Array, float]
    completed = module.complete_rows(block, kernel, checked=checked)
    return completed


def row_duals(
    block: Block, *, kernel: Kernel, kind: str = "auto", checked: bool = True
) -> tuple[Array, float]:
    """Duals ``y`` aligned with ``block.values``, and the jitter that was needed."""
    module = row_module(kind)
    duals: tuple[Array, float] = module.solve_rows(block, kernel, checked=checked)
    return duals


def row_entries(
    block: Block, i: Array, j: Array, *, kernel: Kernel, kind: str = "auto"
) -> Array:
    """Smoothed values at rows ``i`` (in increasing order) and columns ``j``."""
    module = row_module(kind)
    if kernel.P is None and hasattr(module, "entries_from_duals"):
        Y, _ = row_duals(block, kernel=kernel, kind=kind)
        return module.entries_from_duals(block, kernel.K, Y, i, j)
    X, _, _ = complete_rows(block, kernel=kernel, kind=kind)
    return X[i, j]


def row_variances(block: Block, *, kernel: Kernel, kind: str = "auto") -> Array:
    """Variance of every entry of every row as it would be observed, given the row.

    ``k_jj - k_jo (K_oo + s I)^-1 k_oj + s``, also at columns that are observed (where
    it is the variance of a second, independent reading).
    """
    return row_module(kind).variances(block, kernel)


def entry_variances(
    block: Block, i: Array, j: Array, *, kernel: Kernel, kind: str = "auto"
) -> Array:
    """The same at rows ``i`` (in increasing order) and columns ``j`` alone."""
    module = row_module(kind)
    if hasattr(module, "variances_at"):
        return module.variances_at(block, kernel, i, j)
    return module.variances(block, kernel)[i, j]


def gram_of_rows(
    block: Block, *, kernel: Kernel, kind: str = "auto", checked: bool = True
) -> RowSums:
    """Sums over a block with ``gram = X^T X`` from completed rows (keeps digits)."""
    module = row_module(kind)
    parts = module.pieces(block)
    return reduce(iadd, (_piece_of_rows(p, kernel, kind, checked) for p in parts))


def _piece_of_rows(block: Block, kernel: Kernel, kind: str, checked: bool) -> RowSums:
    """Sums over a block small enough to be completed in memory."""
    mark = row_module(kind).mark
    start = mark(block)
    X, Y, jitter = complete_rows(block, kernel=kernel, kind=kind, checked=checked)
    middle = mark(block)
    gram = gram_matrix(X)
    return RowSums(gram, block.values @ Y, jitter, ((start, middle, mark(block)),))


def gram_of_duals(
    block: Block, *, kernel: Kernel, kind: str = "auto", checked: bool = True
) -> RowSums:
    """Sums over a block with ``gram = Y^T Y``; the caller multiplies by ``K``."""
    mark = row_module(kind).mark
    start = mark(block)
    Y, jitter = row_duals(block, kernel=kernel, kind=kind, checked=checked)
    middle = mark(block)
    gram = outer_sum(block, Y, kind)
    return RowSums(gram, block.values @ Y, jitter, ((start, middle, mark(block)),))


def evidence_of_rows(
    block: Block,
    *,
    kernel: Kernel,
    offsets: Array | None = None,
    scales: Array | None = None,
    kind: str = "auto",
    checked: bool = True,
) -> EvidenceSums:
    """Sums over a block that the evidence of a kernel and its gradient are made of.

    Values count as ``(v - offsets) * scales``, with one offset and scale a column; None
    leaves them as they are.
    """
    work = _evidence_module(kind).evidence
    sums: EvidenceSums = work(block, kernel, offsets, scales, checked=checked)
    return sums


@cache
def _evidence_module(name: str) -> Any:
    """The module for ``evidence_of_rows`` that goes with a module that solves rows."""
    solver = row_module(name).__name__
    return importlib.import_module(solver.replace("rows_", "evidence_"))


def first_gram(block: Block, *, kind: str = "auto") -> Array:
    """``M^T M`` of the block with zeros in its gaps."""
    return outer_sum(block, block.values, kind)


def outer_sum(block: Block, Y: Array, kind: str = "auto") -> Array:
    """Sum of ``y y^T`` over the rows, shape (n, n)."""
    module = row_module(kind)
    if hasattr(module, "sparse_outer_sum") and module.scatter_pays(block):
        return module.sparse_outer_sum(block, Y)
    return reduce(iadd, _products(module, block, Y))


def _products(module: Any, block: Block, Y: Array) -> Iterator[Array]:
    """``Y^T Y`` of one piece of the block after the other."""
    first = 0
    for part in module.pieces(block):
        size = len(part.values)
        yield gram_matrix(module.dense_duals(part, Y[first : first + size]))
        first += size
