"""The few data types that the numerical core passes around."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

# An array of any library that follows the array API standard. The standard has
# no static type yet, so ``Any`` is the honest annotation.
Array = Any


@dataclass(frozen=True)
class Block:
    """Some rows of an incomplete matrix, as compressed sparse rows.

    Rows that have the same observed columns are adjacent and form one group, so
    that one factorisation serves the whole group.

    Attributes
    ----------
    indptr : array of int64, shape (rows + 1,)
        Row ``i`` owns the entries ``indptr[i]:indptr[i + 1]``.
    indices : array of int32, shape (entries,)
        Observed columns of each row, increasing within a row.
    values : array of float, shape (entries,)
        Observed values, centred and scaled.
    groups : array of int64, shape (groups + 1,)
        Group ``g`` is made of the rows ``groups[g]:groups[g + 1]``.
    rows : array of int64, shape (rows,)
        Where each row stood in the matrix that the block was cut from.
    n_columns : int
        Number of columns of the matrix.
    """

    indptr: Array
    indices: Array
    values: Array
    groups: Array
    rows: Array
    n_columns: int

    @property
    def n_rows(self) -> int:
        """Number of rows in the block."""
        return int(self.rows.shape[0])

    def part(self, first: int, last: int) -> Block:
        """Groups ``first`` to ``last - 1`` as a block of their own."""
        top, bottom = int(self.groups[first]), int(self.groups[last])
        lo, hi = int(self.indptr[top]), int(self.indptr[bottom])
        return Block(
            indptr=self.indptr[top : bottom + 1] - lo,
            indices=self.indices[lo:hi],
            values=self.values[lo:hi],
            groups=self.groups[first : last + 1] - top,
            rows=self.rows[top:bottom],
            n_columns=self.n_columns,
        )


@dataclass(frozen=True)
class Kernel:
    """What a row needs to know of all the others.

    Attributes
    ----------
    K : array of shape (n, n)
        Covariance of the columns.
    P : array of shape (n, n) or None
        Inverse of ``K + s I``; None where no row solves on its missing side.
    s : float
        Noise variance in the units of ``K``; 0 in the exact model.
    """

    K: Array
    P: Array | None
    s: float

    def moved(self, move: Callable[[Any], Any]) -> Kernel:
        """The kernel with its arrays moved elsewhere."""
        return Kernel(move(self.K), move(self.P), self.s)


@dataclass(frozen=True)
class RowSums:
    """What one pass over some rows adds up to.

    Attributes
    ----------
    gram : array of shape (n, n)
        Sum of ``y y^T`` over the duals, or of ``x x^T`` over the completed rows; which
        of the two, the caller chose.
    fit : scalar
        Sum of ``v y`` over the observed entries.
    jitter : float
        Largest relative jitter added to a block.
    spans : tuple of triples
        Marks at the start, after the solves, and after the Gram matrix of each part.
    """

    gram: Array
    fit: Any
    jitter: float
    spans: tuple[tuple[Any, Any, Any], ...]

    def __iadd__(self, other: RowSums) -> RowSums:
        """Sums over the rows of both; the Gram matrix is added to in place."""
        gram = self.gram
        gram += other.gram
        return RowSums(
            gram=gram,
            fit=self.fit + other.fit,
            jitter=max(self.jitter, other.jitter),
            spans=self.spans + other.spans,
        )


@dataclass(frozen=True)
class EvidenceSums:
    """What the evidence of some rows adds up to, as far as rows know it.

    With ``A = K_oo + s I`` and ``y = A^-1 v`` on the observed columns of a row, the
    log evidence of the row is ``-(v y + log|A| + r log(2 pi)) / 2``.

    Attributes
    ----------
    B : array of shape (n, n)
        Sum of ``A^-1 - y y^T``, each at its observed columns; of rows that were solved
        on their missing side only ``-y y^T``.
    missing : array of shape (n, n) or None
        Sum of ``P_uu^-1`` over the rows of the missing side, each at its missing
        columns; they lack ``n_missing P - P missing P`` in ``B``. None without ``P``.
    n_missing : int
        Rows that were solved on their missing side.
    pull : array of shape (n,)
        Sum of ``y``.
    fit : scalar
        Sum of ``v y`` over the observed entries.
    log_det : scalar
        Sum of ``log|A|``; rows of the missing side add ``log|P_uu|``, which lacks
        ``-log|P|``.
    jitter : float
        Largest relative jitter added to a block.
    spans : tuple of triples
        Marks at the start, after the solves, and after what follows them.
    """

    B: Array
    missing: Array | None
    n_missing: int
    pull: Array
    fit: Any
    log_det: Any
    jitter: float
    spans: tuple[tuple[Any, Any, Any], ...]

    def __iadd__(self, other: EvidenceSums) -> EvidenceSums:
        """Sums over the rows of both; arrays are added to in place."""
        B, missing, pull = self.B, self.missing, self.pull
        B += other.B
        pull += other.pull
        if missing is not None:
            missing += other.missing
        return EvidenceSums(
            B=B,
            missing=missing,
            n_missing=self.n_missing + other.n_missing,
            pull=pull,
            fit=self.fit + other.fit,
            log_det=self.log_det + other.log_det,
            jitter=max(self.jitter, other.jitter),
            spans=self.spans + other.spans,
        )
