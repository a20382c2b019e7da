"""The row step as a Numba kernel: gather, factor and solve without leaving the cache.

Small blocks get a plain Cholesky whose inner loops run along columns, so that the
compiler can use vector instructions; larger ones go to the LAPACK that SciPy ships,
called by address.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-decorators=False
# mypy: disallow-untyped-calls=False, check-untyped-defs=False
# Compiled functions take their types from their arguments, so they carry none here.

from __future__ import annotations

import numba as nb
import numpy as np

from ncarl.core.lapack_calls import call5, call8, lapack_addresses
from ncarl.core.linalg import jitter_steps, not_factorised
from ncarl.core.plan import missing_side_pays
from ncarl.core.rows_host import *  # noqa: F403
from ncarl.core.types import Array, Block, Kernel

#: Blocks up to this size are factorised here, larger ones by LAPACK.
PLAIN_LIMIT = 24
#: The letters that LAPACK is told by, one after the other.
LETTERS = np.frombuffer(b"LNT", dtype=np.uint8)


@nb.njit(nogil=True, cache=True)
def _gather(K, o, shift, A):
    """Lower half of ``K[o, o] + shift I`` into ``A``, column after column."""
    r = len(o)
    for b in range(r):
        row = K[o[b]]
        column = A[b * r : (b + 1) * r]
        for a in range(b, r):
            column[a] = row[o[a]]
        column[b] += shift


@nb.njit(nogil=True, cache=True)
def _plain_cholesky(A, r):
    """Factorise the lower half in place; False where a pivot is not positive."""
    for j in range(r):
        target = A[j * r : (j + 1) * r]
        q = 0
        while q + 4 <= j:
            c0 = A[q * r : (q + 1) * r]
            c1 = A[(q + 1) * r : (q + 2) * r]
            c2 = A[(q + 2) * r : (q + 3) * r]
            c3 = A[(q + 3) * r : (q + 4) * r]
            f0, f1, f2, f3 = c0[j], c1[j], c2[j], c3[j]
            for a in range(j, r):
                target[a] -= f0 * c0[a] + f1 * c1[a] + f2 * c2[a] + f3 * c3[a]
            q += 4
        while q < j:
            column = A[q * r : (q + 1) * r]
            factor = column[j]
            for a in range(j, r):
                target[a] -= factor * column[a]
            q += 1
        pivot = target[j]
        if not pivot > 0.0:
            return False
        scale = 1.0 / np.sqrt(pivot)
        for a in range(j, r):
            target[a] *= scale
    return True


@nb.njit(nogil=True, cache=True)
def _plain_solve(A, r, B, count):
    """Solve ``L L^T y = b`` in place for ``count`` right-hand sides of length r."""
    for c in range(count):
        y = B[c * r : (c + 1) * r]
        for j in range(r):
            column = A[j * r : (j + 1) * r]
            y[j] /= column[j]
            value = y[j]
            for a in range(j + 1, r):
                y[a] -= value * column[a]
        for j in range(r - 1, -1, -1):
            column = A[j * r : (j + 1) * r]
            total = y[j]
            for a in range(j + 1, r):
                total -= column[a] * y[a]
            y[j] = total / column[j]


@nb.njit(nogil=True, cache=True)
def _factor_and_solve(A, r, B, count, numbers, letters, calls):
    """Factorise ``A`` and solve for ``B`` in place; False where it does not factorise.

    ``numbers`` is int32 scratch: size, right-hand sides, info, one.
    """
    if r <= PLAIN_LIMIT:
        if not _plain_cholesky(A, r):
            return False
        _plain_solve(A, r, B, count)
        return True
    numbers[0], numbers[1], numbers[2], numbers[3] = r, count, 0, 1
    size = numbers.ctypes.data
    right, info, one = size + 4, size + 8, size + 12
    lower = letters.ctypes.data
    plain, turned = lower + 1, lower + 2
    a, b = A.ctypes.data, B.ctypes.data
    call5(calls[0], lower, size, a, size, info)
    if numbers[2] != 0:
        return False
    if count == 1:
        # For one right-hand side two triangular solves take half the time of potrs.
        call8(calls[2], lower, plain, plain, size, a, size, b, one)
        call8(calls[2], lower, turned, plain, size, a, size, b, one)
        return True
    call8(calls[1], lower, size, right, a, size, b, size, info)
    return numbers[2] == 0


@nb.njit(nogil=True, cache=True)
def solve_with_jitter(M, o, s, A, B, right, count, jitters, numbers, letters, calls):
    """Solve ``(M_oo + s I) y = b``, raising jitter till it factorises; -1 if never."""
    r = len(o)
    mean = s
    for a in range(r):
        mean += M[o[a], o[a]] / r
    for jitter in jitters:
        _gather(M, o, s + jitter * mean, A)
        B[: r * count] = right[: r * count]
        if _factor_and_solve(A, r, B, count, numbers, letters, calls):
            return jitter
    return -1.0


@nb.njit(nogil=True, cache=True)
def _complement(o, n, u):
    """Columns not in the increasing list ``o``, into ``u``; returns their number."""
    count, position = 0, 0
    for j in range(n):
        if position < len(o) and o[position] == j:
            position += 1
        else:
            u[count] = j
            count += 1
    return count


@nb.njit(nogil=True, cache=True)
def add_rows(weights, o, K, x):
    """``x += weights @ K[o]``, four rows of ``K`` at a time."""
    r, n = len(o), len(x)
    a = 0
    while a + 4 <= r:
        k0, k1, k2, k3 = K[o[a]], K[o[a + 1]], K[o[a + 2]], K[o[a + 3]]
        w0, w1, w2, w3 = weights[a], weights[a + 1], weights[a + 2], weights[a + 3]
        for j in range(n):
            x[j] += w0 * k0[j] + w1 * k1[j] + w2 * k2[j] + w3 * k3[j]
        a += 4
    while a < r:
        k, w = K[o[a]], weights[a]
        for j in range(n):
            x[j] += w * k[j]
        a += 1


@nb.njit(nogil=True, cache=True)
def missing_group(
    P, o, V, count, u_buffer, full, A, B, right, jitters, numbers, letters, calls
):
    """``x_u`` of ``count`` rows with one mask into ``B``; the jitter, or -1.

    ``full`` is scratch of length n that holds ``v P_o:`` of one row at a time.
    """
    n, r = len(full), len(o)
    size = _complement(o, n, u_buffer)
    u = u_buffer[:size]
    for c in range(count):
        full[:] = 0.0
        add_rows(V[c * r : (c + 1) * r], o, P, full)
        for a in range(size):
            right[c * size + a] = -full[u[a]]
    return solve_with_jitter(
        P, u, 0.0, A, B, right, count, jitters, numbers, letters, calls
    )


@nb.njit(nogil=True, cache=True)
def _solve_groups(
    indptr,
    indices,
    values,
    groups,
    missing,
    K,
    P,
    s,
    Y,
    X,
    want_rows,
    widest,
    tallest,
    jitters,
    letters,
    calls,
):
    """All groups in turn; the largest jitter, or minus the size that failed."""
    n = K.shape[0]
    A = np.empty(widest * widest, K.dtype)
    right = np.empty(tallest, K.dtype)
    B = np.empty(tallest, K.dtype)
    u_buffer = np.empty(n, np.uint32)
    full = np.empty(n, K.dtype)
    numbers = np.empty(4, np.int32)
    worst = 0.0
    for g in range(len(groups) - 1):
        top, bottom = groups[g], groups[g + 1]
        lo, hi = indptr[top], indptr[bottom]
        r, count = indptr[top + 1] - lo, bottom - top
        if r == 0:
            continue
        o = indices[lo : lo + r]
        V = values[lo:hi]
        if missing[g]:
            size = n - r
            used = missing_group(
                P,
                o,
                V,
                count,
                u_buffer,
                full,
                A,
                B,
                right,
                jitters,
                numbers,
                letters,
                calls,
            )
            for c in range(count):
                full[:] = 0.0
                add_rows(V[c * r : (c + 1) * r], o, P, full)
                add_rows(B[c * size : (c + 1) * size], u_buffer[:size], P, full)
                for a in range(r):
                    Y[lo + c * r + a] = full[o[a]]
                if want_rows:
                    for a in range(size):
                        X[top + c, u_buffer[a]] = B[c * size + a]
        else:
            used = solve_with_jitter(
                K,
                o,
                s,
                A,
                Y[lo:hi],
                V,
                count,
                jitters,
                numbers,
                letters,
                calls,
            )
            if want_rows:
                for c in range(count):
                    add_rows(Y[lo + c * r : lo + (c + 1) * r], o, K, X[top + c])
        if used < 0.0:
            return -float(r)
        worst = max(worst, used)
        if want_rows:
            for c in range(count):
                for a in range(r):
                    e = lo + c * r + a
                    X[top + c, o[a]] = values[e] - s * Y[e]
    return worst


@nb.njit(nogil=True, cache=True)
def _outer_sum(indptr, indices, Y, total):
    """Add ``y y^T`` of every row to the lower half of ``total``."""
    for i in range(len(indptr) - 1):
        lo, hi = indptr[i], indptr[i + 1]
        for a in range(lo, hi):
            row, value = total[indices[a]], Y[a]
            for b in range(lo, a + 1):
                row[indices[b]] += value * Y[b]


@nb.njit(nogil=True, cache=True)
def mirror(A):
    """Copy the lower half of ``A`` to its upper half, tile by tile."""
    n, tile = A.shape[0], 64
    for top in range(0, n, tile):
        for left in range(0, top + 1, tile):
            for i in range(top, min(top + tile, n)):
                for j in range(left, min(left + tile, i)):
                    A[j, i] = A[i, j]


def solve_rows(
    block: Block, kernel: Kernel, X: Array | None = None, *, checked: bool = True
) -> tuple[Array, float]:
    """Duals of the rows and the jitter needed; fills ``X`` with the rows if given.

    Every factorisation is checked here, whether that was asked for or not.
    """
    Y = np.zeros_like(block.values)
    sizes = np.diff(block.indptr)[block.groups[:-1]]
    counts = np.diff(block.groups)
    if len(sizes) == 0:
        return Y, 0.0
    has_missing_side = kernel.P is not None
    missing = np.zeros(len(sizes), dtype=bool)
    if has_missing_side:
        missing = missing_side_pays(sizes, block.n_columns)
    solved = np.where(missing, block.n_columns - sizes, sizes)
    worst = _solve_groups(
        block.indptr, block.indices.view(np.uint32), block.values, block.groups,
        missing,
        kernel.K, kernel.P if has_missing_side else kernel.K, kernel.s,
        Y, np.zeros((1, 1), Y.dtype) if X is None else X, X is not None,
        int(solved.max()), int((solved * counts).max()),
        np.asarray(jitter_steps(Y.dtype)), LETTERS, lapack_addresses(str(Y.dtype)),
    )  # fmt: skip
    if worst < 0.0:
        raise not_factorised(int(-worst))
    return Y, float(worst)


def sparse_outer_sum(block: Block, Y: Array) -> Array:
    """Sum of ``y y^T`` over the rows, shape (n, n), one pair of entries at a time."""
    total = np.zeros((block.n_columns, block.n_columns), dtype=Y.dtype)
    _outer_sum(block.indptr, block.indices.view(np.uint32), Y, total)
    mirror(total)
    return total
