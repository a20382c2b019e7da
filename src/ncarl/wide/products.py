"""Products with the Gram matrix of completed rows, which is never formed.

Completed rows are ``X = Y K`` with ``Y`` as sparse as the data, so that
``X^T X V = K Y^T Y K V`` costs a pass over the observed entries.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import iadd
from typing import Any

import numpy as np

from ncarl.core.plan import PIECE, duals_matrix, pieces
from ncarl.core.rows import row_module
from ncarl.core.types import Array, Block
from ncarl.engines import Engine
from ncarl.wide.kernel import WideKernel


def numba_rows(kind: str) -> Any:
    """The compiled row functions, or None where NumPy is to do the work."""
    if not row_module(kind).__name__.endswith("numba"):
        return None
    return importlib.import_module("ncarl.wide.rows_numba")


def with_duals(blocks: Sequence[Block], duals: Sequence[Array]) -> list[Block]:
    """The blocks with duals in the place of their values."""
    pairs = zip(blocks, duals, strict=True)
    return [replace(block, values=Y) for block, Y in pairs]


def outer_product(block: Block, *, V: Array, kind: str = "auto") -> Array:
    """``Y^T Y V`` of one block of duals."""
    compiled = numba_rows(kind)
    if compiled is not None:
        product: Array = compiled.outer_product(block, V)
        return product
    Y = duals_matrix(block, block.values)
    found: Array = Y.T @ (Y @ V)
    return found


def pulled(block: Block, *, F: Array, kind: str = "auto") -> Array:
    """``Y^T (Y F)`` below ``(Y F)^T (Y F)``, of one block of duals."""
    Y = duals_matrix(block, block.values)
    Z = Y @ F
    return np.concatenate([Z.T @ Z, Y.T @ Z])


def squares(block: Block, *, T: Any, kind: str = "auto") -> Array:
    """Diagonal of ``T Y^T Y T`` of one block of duals."""
    n = block.n_columns
    total = np.zeros(n)
    step = max(1, PIECE // max(1, T.nnz // n) // max(1, _mean_size(block)))
    Y = duals_matrix(block, block.values)
    for first in range(0, block.n_rows, step):
        rows = Y[first : first + step] @ T
        total += np.bincount(rows.indices, weights=rows.data**2, minlength=n)
    return total


def _mean_size(block: Block) -> int:
    """Entries of a row on average."""
    return len(block.values) // max(1, block.n_rows)


def whole_gram(block: Block, *, kernel: WideKernel, kind: str = "auto") -> Array:
    """``X^T X`` of one block of duals, where there are few columns."""
    return reduce(iadd, (_gram(part, kernel) for part in pieces(block)))


def _gram(block: Block, kernel: WideKernel) -> Array:
    """The same of few rows."""
    X = rows_of_duals(block, kernel)
    return X.T @ X


def rows_of_duals(block: Block, kernel: WideKernel) -> Array:
    """Completed rows ``Y K`` of a block of duals."""
    Y = duals_matrix(block, block.values)
    X: Array = (Y @ kernel.T).toarray()
    X += (Y @ kernel.F) @ kernel.F.T
    return X


@dataclass(frozen=True)
class GramOperator:
    """``G = K Y^T Y K`` of all rows.

    Attributes
    ----------
    engine : Engine
        Who goes through the rows.
    duals : list of Block
        ``Y``, in blocks.
    kernel : WideKernel
        ``K``.
    """

    engine: Engine
    duals: list[Block]
    kernel: WideKernel

    @property
    def n(self) -> int:
        """Number of columns."""
        return int(self.kernel.F.shape[0])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Float type of the work."""
        kind: np.dtype[Any] = self.kernel.F.dtype
        return kind

    def __matmul__(self, V: Array) -> Array:
        """``G V``."""
        with self.engine.home.work(self.n):
            inner = np.ascontiguousarray(self.kernel @ V)
        middle = self.engine.total(outer_product, self.duals, V=inner)
        with self.engine.home.work(self.n):
            return self.kernel @ middle

    def whole(self) -> Array:
        """``G`` as an n x n array, from completed rows."""
        return self.engine.total(whole_gram, self.duals, kernel=self.kernel)

    def diagonal(self) -> Array:
        """Diagonal of ``G``, as the sum of what ``T`` and ``F`` make of it."""
        F, T = self.kernel.F, self.kernel.T
        found = self.engine.total(squares, self.duals, T=T)
        p = F.shape[1]
        if p == 0:
            return found
        both = self.engine.total(pulled, self.duals, F=F)
        found += 2.0 * np.einsum("jp,jp->j", T @ both[p:], F)
        found += np.einsum("jp,jp->j", F @ both[:p], F)
        return np.maximum(found, 0.0)
