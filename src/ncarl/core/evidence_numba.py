"""The evidence of rows as a Numba kernel: inverses of blocks, added up in place.

Blocks are factorised as for the row step, then inverted in the same memory. They lie
column after column and only below the diagonal, and so they are added to the rows of
the sums, above the diagonal, which is copied below it at the end.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-decorators=False
# mypy: disallow-untyped-calls=False, check-untyped-defs=False
# Compiled functions take their types from their arguments, so they carry none here.

from __future__ import annotations

import numba as nb
import numpy as np

from ncarl.core.lapack_calls import call5, lapack_addresses
from ncarl.core.linalg import jitter_steps, not_factorised
from ncarl.core.plan import missing_side_pays
from ncarl.core.rows_host import mark, shifted, take_outer_sum
from ncarl.core.rows_numba import (
    LETTERS,
    add_rows,
    mirror,
    missing_group,
    solve_with_jitter,
)
from ncarl.core.types import Array, Block, EvidenceSums, Kernel


@nb.njit(nogil=True, cache=True)
def _invert(A, r, numbers, letters, calls):
    """Turn the lower factor into the lower half of the inverse, in place.

    LAPACK is the faster way even for blocks of eight, unlike in the factorisation.
    """
    if r == 0:
        return
    numbers[0], numbers[2] = r, 0
    size, info = numbers.ctypes.data, numbers.ctypes.data + 8
    call5(calls[3], letters.ctypes.data, size, A.ctypes.data, size, info)


@nb.njit(nogil=True, cache=True)
def _log_det(A, r):
    """``log|L L^T|`` of a factor."""
    total = 0.0
    for a in range(r):
        total += np.log(A[a * r + a])
    return 2.0 * total


@nb.njit(nogil=True, cache=True)
def _scatter(A, o, count, Y, total):
    """Add ``count A - sum y y^T`` to the upper half of ``total`` at rows ``o``.

    ``Y`` holds the duals of ``count`` rows, one row after the other, or nothing.
    """
    r = len(o)
    for b in range(r):
        column, row = A[b * r : (b + 1) * r], total[o[b]]
        if count > 1:
            for a in range(b, r):
                column[a] *= count
        for first in range(0, len(Y), r):
            y = Y[first : first + r]
            value = y[b]
            for a in range(b, r):
                column[a] -= value * y[a]
        for a in range(b, r):
            row[o[a]] += column[a]


@nb.njit(nogil=True, cache=True)
def _missing_duals(P, o, V, u, X, full, Y):
    """Duals of the rows with observed ``V`` and missing ``X``, into ``Y``."""
    r, size = len(o), len(u)
    for c in range(len(V) // r):
        full[:] = 0.0
        add_rows(V[c * r : (c + 1) * r], o, P, full)
        add_rows(X[c * size : (c + 1) * size], u, P, full)
        for a in range(r):
            Y[c * r + a] = full[o[a]]


@nb.njit(nogil=True, cache=True)
def _evidence(
    indptr, indices, values, groups, missing, K, P, s,
    Y, B, C, widest, tallest, jitters, letters, calls,
):  # fmt: skip
    """All groups in turn; the largest jitter (or minus the size that failed), log|A|.

    Duals go into ``Y``, sums of the observed side into ``B``, of the missing into
    ``C``.
    """
    n = K.shape[0]
    A, full = np.empty(widest * widest, K.dtype), np.empty(n, K.dtype)
    X, right = np.empty(tallest, K.dtype), np.empty(tallest, K.dtype)
    every, numbers = np.empty(n, np.uint32), np.empty(4, np.int32)
    worst, log_det = 0.0, 0.0
    for g in range(len(groups) - 1):
        top, bottom = groups[g], groups[g + 1]
        lo, hi = indptr[top], indptr[bottom]
        r, count = indptr[top + 1] - lo, bottom - top
        if r == 0:
            continue
        o, V = indices[lo : lo + r], values[lo:hi]
        if missing[g]:
            used = missing_group(
                P, o, V, count, every, full, A, X, right,
                jitters, numbers, letters, calls,
            )  # fmt: skip
            solved, total, pairs = every[: n - r], C, Y[:0]
            _missing_duals(P, o, V, solved, X, full, Y[lo:hi])
        else:
            used = solve_with_jitter(
                K, o, s, A, Y[lo:hi], V, count, jitters, numbers, letters, calls
            )
            solved, total, pairs = o, B, Y[lo:hi]
        if used < 0.0:
            return -float(r), log_det
        worst = max(worst, used)
        log_det += count * _log_det(A, len(solved))
        _invert(A, len(solved), numbers, letters, calls)
        _scatter(A, solved, count, pairs, total)
    return worst, log_det


def evidence(
    block: Block,
    kernel: Kernel,
    offsets: Array | None,
    scales: Array | None,
    *,
    checked: bool = True,
) -> EvidenceSums:
    """Sums over the rows; every factorisation is checked, asked for or not."""
    start = mark(block)
    block = shifted(block, offsets, scales)
    n, Y, two_sided = block.n_columns, np.zeros_like(block.values), kernel.P is not None
    sizes = np.diff(block.indptr)[block.groups[:-1]]
    counts = np.diff(block.groups)
    missing = np.zeros(len(sizes), dtype=bool)
    if two_sided:
        missing = missing_side_pays(sizes, n) & (sizes > 0)
    solved = np.where(missing, n - sizes, sizes)
    B, C = np.zeros((n, n), Y.dtype), np.zeros((n, n) if two_sided else (1, 1), Y.dtype)
    jitter, log_det = _evidence(
        block.indptr, block.indices.view(np.uint32), block.values, block.groups,
        missing, kernel.K, kernel.P if two_sided else kernel.K, kernel.s, Y, B, C,
        int(solved.max(initial=0)), int((solved * counts).max(initial=0)),
        np.asarray(jitter_steps(Y.dtype)), LETTERS, lapack_addresses(str(Y.dtype)),
    )  # fmt: skip
    if jitter < 0.0:
        raise not_factorised(int(-jitter))
    middle = mark(block)
    for total in (B, C):
        mirror(total.T)
    rows = np.flatnonzero(np.repeat(missing, counts))
    take_outer_sum(B, block, Y, rows)
    return EvidenceSums(
        B=B,
        missing=C if two_sided else None,
        n_missing=len(rows),
        pull=np.bincount(block.indices, Y, n).astype(Y.dtype),
        fit=block.values @ Y,
        log_det=log_det,
        jitter=float(jitter),
        spans=((start, middle, mark(block)),),
    )
