"""Data types of the numerical core: blocks of rows, and sums over rows."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

# An array of any library that follows the array API standard. The standard has
# no static type yet, so ``Any`` is the honest annotation.
Array = Any
T = TypeVar("T")


class cached_property(functools.cached_property[T]):  # noqa: N801
    """Attribute that is computed once, without the lock that it has in Python 3.11.

    All fits of a process wait for the lock, and a process forked meanwhile forever.
    """

    def __init__(self, function: Callable[[Any], T]) -> None:
        super().__init__(function)
        self.lock = nullcontext()


@dataclass(frozen=True)
class Block:
    """Rows of an incomplete matrix in compressed sparse row (CSR) format.

    Rows with the same observed columns are adjacent and form one group, so that one
    factorization serves the whole group.
    """

    indptr: Array  # (rows + 1,): row ``i`` has the entries ``indptr[i]:indptr[i + 1]``
    indices: Array  # (entries,): observed columns of each row, increasing within a row
    values: Array  # (entries,): observed values, centered and scaled
    #: (groups + 1,): group ``g`` consists of the rows ``groups[g]:groups[g + 1]``.
    groups: Array
    rows: Array  # (rows,): index of each row in the matrix that the block was cut from
    n_columns: int  # number of columns of the matrix

    @property
    def n_rows(self) -> int:
        """Number of rows in the block."""
        return int(self.rows.shape[0])

    def group(self, g: int) -> tuple[slice, slice, Array]:
        """Rows of group ``g``, their entries, and their observed columns."""
        top, bottom = int(self.groups[g]), int(self.groups[g + 1])
        lo, mid, hi = (int(self.indptr[i]) for i in (top, top + 1, bottom))
        return slice(top, bottom), slice(lo, hi), self.indices[lo:mid]

    def slice_groups(self, start: int, stop: int) -> Block:
        """Block of the groups ``start`` to ``stop - 1``."""
        top, bottom = int(self.groups[start]), int(self.groups[stop])
        lo, hi = int(self.indptr[top]), int(self.indptr[bottom])
        return Block(
            indptr=self.indptr[top : bottom + 1] - lo,
            indices=self.indices[lo:hi],
            values=self.values[lo:hi],
            groups=self.groups[start : stop + 1] - top,
            rows=self.rows[top:bottom],
            n_columns=self.n_columns,
        )

    def take_rows(self, kept: Array) -> Block:
        """Block of the rows where ``kept`` is True."""
        counts = np.diff(self.indptr)
        entries = np.repeat(kept, counts)
        sizes = np.add.reduceat(kept.astype(np.int64), self.groups[:-1])
        return Block(
            indptr=np.append(0, np.cumsum(counts[kept])),
            indices=self.indices[entries],
            values=self.values[entries],
            groups=np.append(0, np.cumsum(sizes[sizes > 0])),
            rows=self.rows[kept],
            n_columns=self.n_columns,
        )

    def split(self, max_rows: int) -> Iterator[Block]:
        """Blocks of at most ``max_rows`` rows, or of a single larger group."""
        first, n_groups = 0, len(self.groups) - 1
        while first < n_groups:
            end = self.groups[first] + max_rows
            last = int(np.searchsorted(self.groups, end, "right")) - 1
            last = min(max(last, first + 1), n_groups)
            yield self.slice_groups(first, last)
            first = last


@dataclass(frozen=True)
class RowSums:
    """Gram matrix and data fit summed over some rows."""

    #: (n, n): sum of ``y y^T`` over the duals (`ncarl.core.rows.dual_gram`) or of ``x
    #: x^T`` over the completed rows (`ncarl.core.rows.row_gram`).
    gram: Array
    fit: Any  # sum of ``v y`` over the observed entries
    jitter: float  # largest relative jitter added to the system of a row
    #: Times at the start, after the solves and after the Gram matrix of each piece.
    timestamps: tuple[tuple[Any, Any, Any], ...]

    def __iadd__(self, other: RowSums) -> RowSums:
        gram = self.gram
        gram += other.gram
        return RowSums(
            gram=gram,
            fit=self.fit + other.fit,
            jitter=max(self.jitter, other.jitter),
            timestamps=self.timestamps + other.timestamps,
        )


@dataclass(frozen=True)
class LikelihoodSums:
    """Row terms of the log marginal likelihood and of its gradient.

    With ``A = K_oo + s I`` and ``y = A^-1 v`` on the ``r`` observed columns of a row,
    its log marginal likelihood is ``-(v y + log|A| + r log(2 pi)) / 2``. If rows have
    weights, all sums are weighted.
    """

    #: (n, n): sum of ``A^-1 - y y^T``, each at its observed columns; of rows solved in
    #: the precision form only ``-y y^T``.
    B: Array
    #: (n, n): sum of ``P_uu^-1`` over the rows solved in the precision form, each at
    #: its missing columns; ``B`` lacks ``n_precision_rows P - P missing_inverse_sum P``
    #: for them. None without ``P``.
    missing_inverse_sum: Array | None
    n_precision_rows: float  # number (sum of weights) of rows in the precision form
    sum_y: Array  # (n,): sum of ``y``
    fit: Any  # sum of ``v y`` over the observed entries
    #: Sum of ``log|A|``; rows solved in the precision form add ``log|P_uu|``, which
    #: lacks ``-log|P|``.
    log_det: Any
    jitter: float  # largest relative jitter added to the system of a row
    #: Times at the start, after the solves and at the end of each piece.
    timestamps: tuple[tuple[Any, Any, Any], ...]

    def __iadd__(self, other: LikelihoodSums) -> LikelihoodSums:
        B, missing, sum_y = self.B, self.missing_inverse_sum, self.sum_y
        B += other.B
        sum_y += other.sum_y
        if missing is not None:
            missing += other.missing_inverse_sum
        return LikelihoodSums(
            B=B,
            missing_inverse_sum=missing,
            n_precision_rows=self.n_precision_rows + other.n_precision_rows,
            sum_y=sum_y,
            fit=self.fit + other.fit,
            log_det=self.log_det + other.log_det,
            jitter=max(self.jitter, other.jitter),
            timestamps=self.timestamps + other.timestamps,
        )
