"""The row step as a Numba kernel: gather, factorize and solve within the cache.

Small systems use a simple Cholesky factorization whose inner loops run along columns,
so that the compiler can vectorize them; larger ones call the LAPACK of SciPy by
address. The log marginal likelihood and the scan for observed entries are here too.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-decorators=False
# mypy: disallow-untyped-calls=False, check-untyped-defs=False
# Compiled functions take their types from their arguments, so they carry none here.

from __future__ import annotations

from functools import cache
from typing import Any

import numba as nb
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import get_cython_function_address, intrinsic

from ncarl.core.linalg import jitter_steps, not_positive_definite_error
from ncarl.core.rows import (  # noqa: F401  what a backend has, for `row_backend`
    Kernel,
    allocate_rows,
    collect_likelihood_sums,
    dense_duals,
    entries_from_duals,
    group_sizes,
    pieces,
    shift_and_scale,
    timestamp,
    to_numpy,
    transfer_pieces,
    use_scatter,
    variances,
    variances_at,
)
from ncarl.core.types import Array, Block, LikelihoodSums

#: Systems up to this size are factorized by compiled loops, larger ones by LAPACK.
UNBLOCKED_MAX_SIZE = 24
#: The flags L (lower), N (no transpose) and T (transpose) of LAPACK, in this order.
LAPACK_FLAGS = np.frombuffer(b"LNT", dtype=np.uint8)


def solve_rows(
    block: Block, kernel: Kernel, X: Array | None = None, *, checked: bool = True
) -> tuple[Array, float]:
    """Duals of the rows and the jitter needed; fills ``X`` with the rows if given.

    ``checked`` is ignored: every factorization is checked.
    """
    Y = np.zeros_like(block.values)
    sizes, counts, precision_form = group_sizes(block, kernel.P is not None)
    solved = np.where(precision_form, block.n_columns - sizes, sizes)
    worst = _solve_groups(
        block.indptr, block.indices.view(np.uint32), block.values, block.groups,
        precision_form, kernel.K, kernel.K if kernel.P is None else kernel.P, kernel.s,
        Y, np.zeros((1, 1), Y.dtype) if X is None else X, X is not None,
        int(solved.max(initial=0)), int((solved * counts).max(initial=0)),
        np.asarray(jitter_steps(Y.dtype)), LAPACK_FLAGS, lapack_addresses(str(Y.dtype)),
    )  # fmt: skip
    if worst < 0.0:
        raise not_positive_definite_error(int(-worst))
    return Y, float(worst)


@nb.njit(nogil=True, cache=True)
def _solve_groups(
    indptr, indices, values, groups, precision_form, K, P, s,
    Y, X, want_rows, max_size, max_rhs_size, jitters, flags, routines,
):  # fmt: skip
    """Solve all groups; returns the largest jitter, or minus the size that failed."""
    n = K.shape[0]
    A, dense_row = np.empty(max_size * max_size, K.dtype), np.empty(n, K.dtype)
    B, right = np.empty(max_rhs_size, K.dtype), np.empty(max_rhs_size, K.dtype)
    u_buffer, ints = np.empty(n, np.uint32), np.empty(4, np.int32)
    worst = 0.0
    for g in range(len(groups) - 1):
        top, bottom = groups[g], groups[g + 1]
        lo, hi = indptr[top], indptr[bottom]
        r, count = indptr[top + 1] - lo, bottom - top
        if r == 0:
            continue
        o, V = indices[lo : lo + r], values[lo:hi]
        if precision_form[g]:
            used = solve_precision_group(
                P, o, V, count, u_buffer, dense_row, A, B, right,
                jitters, ints, flags, routines,
            )  # fmt: skip
            u = u_buffer[: n - r]
            _precision_form_duals(P, o, V, u, B, dense_row, Y[lo:hi])
            if want_rows:
                for c in range(count):
                    for a in range(n - r):
                        X[top + c, u[a]] = B[c * (n - r) + a]
        else:
            used = solve_with_jitter(
                K, o, s, A, Y[lo:hi], V, count, jitters, ints, flags, routines
            )
            if want_rows:
                for c in range(count):
                    add_weighted_rows(
                        Y[lo + c * r : lo + (c + 1) * r], o, K, X[top + c]
                    )
        if used < 0.0:
            return -float(n - r if precision_form[g] else r)
        worst = max(worst, used)
        if want_rows:
            for c in range(count):
                for a in range(r):
                    e = lo + c * r + a
                    X[top + c, o[a]] = values[e] - s * Y[e]
    return worst


@nb.njit(nogil=True, cache=True)
def solve_precision_group(
    P, o, V, count, u_buffer, dense_row, A, B, right, jitters, ints, flags, routines
):
    """Solve for ``x_u`` of ``count`` rows with one mask; returns the jitter, or -1.

    The solution is written to ``B``; ``dense_row`` is scratch of length n that holds
    ``v P_o:`` of one row at a time.
    """
    n, r = len(dense_row), len(o)
    size = _complement(o, n, u_buffer)
    u = u_buffer[:size]
    for c in range(count):
        dense_row[:] = 0.0
        add_weighted_rows(V[c * r : (c + 1) * r], o, P, dense_row)
        for a in range(size):
            right[c * size + a] = -dense_row[u[a]]
    return solve_with_jitter(
        P, u, 0.0, A, B, right, count, jitters, ints, flags, routines
    )


@nb.njit(nogil=True, cache=True)
def solve_with_jitter(M, o, s, A, B, right, count, jitters, ints, flags, routines):
    """Solve ``(M_oo + s I) y = b`` and return the jitter needed, -1 if it fails."""
    r = len(o)
    mean = s
    for a in range(r):
        mean += M[o[a], o[a]] / r
    for jitter in jitters:
        _gather(M, o, s + jitter * mean, A)
        B[: r * count] = right[: r * count]
        if _factor_and_solve(A, r, B, count, ints, flags, routines):
            return jitter
    return -1.0


@nb.njit(nogil=True, cache=True)
def _factor_and_solve(A, r, B, count, ints, flags, routines):
    """Factorize ``A`` and solve for ``B`` in place; False if it does not factorize.

    ``ints`` is int32 scratch: size, right-hand sides, info, one.
    """
    if r <= UNBLOCKED_MAX_SIZE:
        if not _plain_cholesky(A, r):
            return False
        _plain_solve(A, r, B, count)
        return True
    ints[0], ints[1], ints[2], ints[3] = r, count, 0, 1
    size = ints.ctypes.data
    right, info, one = size + 4, size + 8, size + 12
    lower = flags.ctypes.data
    plain, transposed = lower + 1, lower + 2
    a, b = A.ctypes.data, B.ctypes.data
    call5(routines[0], lower, size, a, size, info)
    # potrf need not report NaN, which propagates to the last pivot.
    if ints[2] != 0 or not A[r * r - 1] > 0.0:
        return False
    if count == 1:
        # For one right-hand side two triangular solves take half the time of potrs.
        call8(routines[2], lower, plain, plain, size, a, size, b, one)
        call8(routines[2], lower, transposed, plain, size, a, size, b, one)
        return True
    call8(routines[1], lower, size, right, a, size, b, size, info)
    return ints[2] == 0


@nb.njit(nogil=True, cache=True)
def _gather(K, o, shift, A):
    """Copy the lower half of ``K[o, o] + shift I`` to ``A``, column after column."""
    r = len(o)
    for b in range(r):
        row = K[o[b]]
        column = A[b * r : (b + 1) * r]
        for a in range(b, r):
            column[a] = row[o[a]]
        column[b] += shift


@nb.njit(nogil=True, cache=True)
def _plain_cholesky(A, r):
    """Factorize the lower half in place; False if a pivot is not positive."""
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
def _complement(o, n, u):
    """Write the columns not in the sorted ``o`` to ``u``; returns their number."""
    count, position = 0, 0
    for j in range(n):
        if position < len(o) and o[position] == j:
            position += 1
        else:
            u[count] = j
            count += 1
    return count


@nb.njit(nogil=True, cache=True)
def add_weighted_rows(weights, o, K, x):
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


def sparse_outer_sum(block: Block, Y: Array) -> Array:
    """Sum of ``y y^T`` over the rows, shape (n, n), one pair of entries at a time."""
    total = np.zeros((block.n_columns, block.n_columns), dtype=Y.dtype)
    _outer_sum(block.indptr, block.indices.view(np.uint32), Y, total)
    mirror_lower(total)
    return total


@nb.njit(nogil=True, cache=True)
def _outer_sum(indptr, indices, Y, total):
    for i in range(len(indptr) - 1):
        lo, hi = indptr[i], indptr[i + 1]
        for a in range(lo, hi):
            row, value = total[indices[a]], Y[a]
            for b in range(lo, a + 1):
                row[indices[b]] += value * Y[b]


@nb.njit(nogil=True, cache=True)
def mirror_lower(A):
    """Copy the lower half of ``A`` to its upper half, tile by tile."""
    n, tile = A.shape[0], 64
    for top in range(0, n, tile):
        for left in range(0, top + 1, tile):
            for i in range(top, min(top + tile, n)):
                for j in range(left, min(left + tile, i)):
                    A[j, i] = A[i, j]


def likelihood_sums(
    block: Block,
    kernel: Kernel,
    offsets: Array | None,
    scales: Array | None,
    *,
    checked: bool = True,
    weights: Array | None = None,
) -> LikelihoodSums:
    """Row terms of the log marginal likelihood; ``checked`` is ignored."""
    start = timestamp(block)
    block = shift_and_scale(block, offsets, scales)
    n, dtype = block.n_columns, block.values.dtype
    B = np.zeros((n, n), dtype)
    C = np.zeros((1, 1) if kernel.P is None else (n, n), dtype)
    if weights is None:
        weights = np.ones(block.n_rows, dtype)
    Y, log_dets, precision_form, jitter = _run_likelihood(block, kernel, weights, B, C)
    for total in (B, C):
        mirror_lower(total.T)
    return collect_likelihood_sums(
        block, Y, B, None if kernel.P is None else C, precision_form, log_dets, jitter,
        weights, start,
    )  # fmt: skip


def row_log_dets(block: Block, kernel: Kernel) -> tuple[Array, Array, Array]:
    """Duals, ``log|A|`` of each row (see `LikelihoodSums.log_det`), precision form."""
    empty = np.zeros((1, 1), block.values.dtype)
    none = np.empty(0, block.values.dtype)
    Y, log_dets, precision_form, _ = _run_likelihood(block, kernel, none, empty, empty)
    return Y, log_dets, precision_form


def _run_likelihood(block, kernel, weights, B, C):
    Y, has_precision = np.zeros_like(block.values), kernel.P is not None
    sizes, counts, precision_form = group_sizes(block, has_precision)
    solved = np.where(precision_form, block.n_columns - sizes, sizes)
    log_dets = np.zeros(len(sizes))
    jitter = _likelihood_of_groups(
        block.indptr, block.indices.view(np.uint32), block.values, block.groups,
        precision_form, kernel.K, kernel.P if has_precision else kernel.K, kernel.s,
        weights, Y, B, C, log_dets,
        int(solved.max(initial=0)), int((solved * counts).max(initial=0)),
        np.asarray(jitter_steps(Y.dtype)), LAPACK_FLAGS, lapack_addresses(str(Y.dtype)),
    )  # fmt: skip
    if jitter < 0.0:
        raise not_positive_definite_error(int(-jitter))
    of_rows = np.repeat(log_dets, counts), np.repeat(precision_form, counts)
    return Y, *of_rows, float(jitter)


@nb.njit(nogil=True, cache=True)
def _likelihood_of_groups(
    indptr, indices, values, groups, precision_form, K, P, s, weights,
    Y, B, C, log_dets, max_size, max_rhs_size, jitters, flags, routines,
):  # fmt: skip
    """Largest jitter, or minus the size that failed.

    Writes the duals to ``Y`` and ``log|A|`` to ``log_dets``, and adds the inverses of
    the covariance form to ``B``, of the precision form to ``C``, times the weights of
    the rows; without weights nothing is added.
    """
    n = K.shape[0]
    A, dense_row = np.empty(max_size * max_size, K.dtype), np.empty(n, K.dtype)
    X, right = np.empty(max_rhs_size, K.dtype), np.empty(max_rhs_size, K.dtype)
    u_buffer, ints = np.empty(n, np.uint32), np.empty(4, np.int32)
    worst = 0.0
    for g in range(len(groups) - 1):
        top, bottom = groups[g], groups[g + 1]
        lo, hi = indptr[top], indptr[bottom]
        r, count = indptr[top + 1] - lo, bottom - top
        if r == 0:
            continue
        o, V = indices[lo : lo + r], values[lo:hi]
        if precision_form[g]:
            used = solve_precision_group(
                P, o, V, count, u_buffer, dense_row, A, X, right,
                jitters, ints, flags, routines,
            )  # fmt: skip
            solved, total, pairs = u_buffer[: n - r], C, Y[:0]
            _precision_form_duals(P, o, V, solved, X, dense_row, Y[lo:hi])
        else:
            used = solve_with_jitter(
                K, o, s, A, Y[lo:hi], V, count, jitters, ints, flags, routines
            )
            solved, total, pairs = o, B, Y[lo:hi]
        if used < 0.0:
            return -float(len(solved))
        worst = max(worst, used)
        log_dets[g] = log_det_from_cholesky(A, len(solved))
        if len(weights) > 0:
            _invert_from_cholesky(A, len(solved), ints, flags, routines)
            _scatter_add(A, solved, weights[top:bottom], pairs, total)
    return worst


@nb.njit(nogil=True, cache=True)
def _precision_form_duals(P, o, V, u, X, dense_row, Y):
    r, size = len(o), len(u)
    for c in range(len(V) // r):
        dense_row[:] = 0.0
        add_weighted_rows(V[c * r : (c + 1) * r], o, P, dense_row)
        add_weighted_rows(X[c * size : (c + 1) * size], u, P, dense_row)
        for a in range(r):
            Y[c * r + a] = dense_row[o[a]]


@nb.njit(nogil=True, cache=True)
def log_det_from_cholesky(A, r):
    """``log|L L^T|`` of the Cholesky factor ``L`` in the lower half of ``A``."""
    total = 0.0
    for a in range(r):
        total += np.log(A[a * r + a])
    return 2.0 * total


@nb.njit(nogil=True, cache=True)
def _invert_from_cholesky(A, r, ints, flags, routines):
    """Replace the lower factor by the lower half of the inverse.

    Unlike for the factorization, LAPACK is faster even at a size of 8.
    """
    if r == 0:
        return
    ints[0], ints[2] = r, 0
    size, info = ints.ctypes.data, ints.ctypes.data + 8
    call5(routines[3], flags.ctypes.data, size, A.ctypes.data, size, info)


@nb.njit(nogil=True, cache=True)
def _scatter_add(A, o, weights, Y, total):
    """Add ``sum w (A - y y^T)`` to the upper half of ``total`` at rows ``o``.

    ``Y`` holds the duals of the weighted rows, one row after the other, or nothing.
    """
    r, sum_of_weights = len(o), weights.sum()
    for b in range(r):
        column, row = A[b * r : (b + 1) * r], total[o[b]]
        if sum_of_weights != 1.0:
            for a in range(b, r):
                column[a] *= sum_of_weights
        for c in range(len(Y) // r):
            y = Y[c * r : (c + 1) * r]
            value = weights[c] * y[b]
            for a in range(b, r):
                column[a] -= value * y[a]
        for a in range(b, r):
            row[o[a]] += column[a]


@nb.njit(nogil=True, cache=True)
def compact_observed_entries(
    rows: Array, counts: Array, columns: Array, values: Array
) -> int:
    """Write the columns and values of all numbers that are not NaN; their number.

    Branch-free: every number is written to the next place, which moves on only after
    an entry. Mispredicted branches would cost more.
    """
    k = 0
    for i in range(rows.shape[0]):
        start = k
        for j in range(rows.shape[1]):
            value = rows[i, j]
            columns[k] = j
            values[k] = value
            k += value == value
        counts[i] = k - start
    return k


@cache
def lapack_addresses(dtype: str) -> tuple[int, int, int, int]:
    """Addresses of potrf, potrs, trsv and potri for "float64" or "float32"."""
    letter = {"float64": "d", "float32": "s"}[dtype]
    lapack, blas = "scipy.linalg.cython_lapack", "scipy.linalg.cython_blas"
    return (
        get_cython_function_address(lapack, letter + "potrf"),
        get_cython_function_address(lapack, letter + "potrs"),
        get_cython_function_address(blas, letter + "trsv"),
        get_cython_function_address(lapack, letter + "potri"),
    )


def _pointer_call(arity: int) -> Any:
    def call(typingctx: Any, address: Any, *pointers: Any) -> Any:
        signature = types.void(types.intp, *[types.intp] * arity)

        def codegen(context: Any, builder: Any, _: Any, args: Any) -> Any:
            void_pointer = cgutils.voidptr_t
            function = ir.FunctionType(ir.VoidType(), [void_pointer] * arity)
            target = builder.inttoptr(args[0], function.as_pointer())
            builder.call(target, [builder.inttoptr(a, void_pointer) for a in args[1:]])
            return context.get_dummy_value()

        return signature, codegen

    return call


@intrinsic
def call5(typingctx, address, a, b, c, d, e):
    """Call ``void f(void *a, ..., void *e)`` at ``address``."""
    return _pointer_call(5)(typingctx, address, a, b, c, d, e)


@intrinsic
def call8(typingctx, address, a, b, c, d, e, f, g, h):
    """Call ``void f(void *a, ..., void *h)`` at ``address``."""
    return _pointer_call(8)(typingctx, address, a, b, c, d, e, f, g, h)
