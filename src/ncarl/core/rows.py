"""The row step: complete rows given a kernel, and add them up.

A row with observed columns ``o`` (values ``v``) and missing columns ``u`` is

- on its observed side ``y = (K_oo + s I)^-1 v``, ``x = y K_o:``, or
- on its missing side, with ``P = (K + s I)^-1``, ``x_u = -P_uu^-1 P_uo v`` and
  ``y = (P [v; x_u])_o``.

Both give the same row and the same dual ``y``; the cheaper one is taken. On observed
columns ``x_o = v - s y``. Two kernels do the work behind one signature: Numba where it
is installed, NumPy elsewhere.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import time
from collections.abc import Iterator
from functools import cache, reduce
from operator import iadd
from types import ModuleType

import numpy as np
from scipy.linalg import solve_triangular

from ncarl.core.linalg import factorised
from ncarl.core.plan import duals_matrix, pieces
from ncarl.core.types import Array, Block, Kernel, RowSums

log = logging.getLogger("ncarl")


@cache
def row_module(name: str = "auto") -> ModuleType:
    """The module that solves rows: "numba", "numpy", or the faster one at hand."""
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
    block: Block, *, kernel: Kernel, kind: str = "auto"
) -> tuple[Array, Array, float]:
    """Completed rows, their duals, and the jitter that was needed.

    Returns
    -------
    X : array of shape (rows, n)
        Smoothed rows; equal to the observed values there in the exact model.
    Y : array of shape (entries,)
        Duals, aligned with ``block.values``.
    jitter : float
        Largest relative jitter added to a block; 0 in a healthy fit.
    """
    X = np.zeros((block.n_rows, block.n_columns), dtype=block.values.dtype)
    Y, jitter = row_module(kind).solve_rows(block, kernel, X)
    return X, Y, jitter


def row_duals(
    block: Block, *, kernel: Kernel, kind: str = "auto"
) -> tuple[Array, float]:
    """Duals ``y`` aligned with ``block.values``, and the jitter that was needed."""
    duals: tuple[Array, float] = row_module(kind).solve_rows(block, kernel, None)
    return duals


def row_variances(block: Block, *, kernel: Kernel) -> Array:
    """Variance of every entry of every row as it would be observed, given the row.

    ``k_jj - k_jo (K_oo + s I)^-1 k_oj + s``, also at columns that are observed (where
    it is the variance of a second, independent reading).
    """
    K, s, n = kernel.K, kernel.s, block.n_columns
    variances = np.empty((block.n_rows, n), dtype=K.dtype)
    diagonal = K.diagonal() + s
    for g in range(len(block.groups) - 1):
        top, bottom = int(block.groups[g]), int(block.groups[g + 1])
        o = block.indices[block.indptr[top] : block.indptr[top + 1]]
        factor, _ = factorised(K, o, s)
        half = solve_triangular(factor, K[o], lower=True, check_finite=False)
        known = np.einsum("ij,ij->j", half, half)
        variances[top:bottom] = np.maximum(diagonal - known, s)
    return variances


def gram_of_rows(block: Block, *, kernel: Kernel, kind: str = "auto") -> RowSums:
    """Sums over a block with ``gram = X^T X`` from completed rows (keeps digits)."""
    return reduce(iadd, (_piece_of_rows(part, kernel, kind) for part in pieces(block)))


def _piece_of_rows(block: Block, kernel: Kernel, kind: str) -> RowSums:
    """Sums over a block small enough to be completed in memory."""
    start = time.perf_counter()
    X, Y, jitter = complete_rows(block, kernel=kernel, kind=kind)
    middle = time.perf_counter()
    return _sums(X.T @ X, block.values, Y, jitter, start, middle)


def gram_of_duals(block: Block, *, kernel: Kernel, kind: str = "auto") -> RowSums:
    """Sums over a block with ``gram = Y^T Y``; the caller multiplies by ``K``."""
    start = time.perf_counter()
    Y, jitter = row_duals(block, kernel=kernel, kind=kind)
    middle = time.perf_counter()
    gram = outer_sum(block, Y, kind)
    return _sums(gram, block.values, Y, jitter, start, middle)


def first_gram(block: Block, *, kind: str = "auto") -> Array:
    """``M^T M`` of the block with zeros in its gaps."""
    return outer_sum(block, block.values, kind)


def outer_sum(block: Block, Y: Array, kind: str = "auto") -> Array:
    """Sum of ``y y^T`` over the rows, shape (n, n)."""
    module, n = row_module(kind), block.n_columns
    pairs = float(np.sum(np.diff(block.indptr).astype(np.float64) ** 2))
    # Measured: a scattered pair costs about as much as 150 numbers of a matrix product.
    if hasattr(module, "sparse_outer_sum") and 150 * pairs < block.n_rows * n * (
        n + 25
    ):
        total: Array = module.sparse_outer_sum(block, Y)
        return total
    return reduce(iadd, _products(block, Y))


def _products(block: Block, Y: Array) -> Iterator[Array]:
    """``Y^T Y`` of one piece of the block after the other."""
    first = 0
    for part in pieces(block):
        size = len(part.values)
        dense = duals_matrix(part, Y[first : first + size]).toarray()
        yield dense.T @ dense
        first += size


def _sums(
    gram: Array, v: Array, Y: Array, jitter: float, start: float, middle: float
) -> RowSums:
    """Sums of one piece, with the time that its two parts took."""
    end = time.perf_counter()
    fit, squares = float(v @ Y), float(Y @ Y)
    return RowSums(gram, fit, squares, jitter, middle - start, end - middle)
