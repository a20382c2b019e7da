"""The row step under a wide kernel, and products with duals, compiled by Numba."""

# mypy: disallow-untyped-defs=False, disallow-untyped-decorators=False
# mypy: disallow-untyped-calls=False, check-untyped-defs=False
# Compiled functions take their types from their arguments, so they carry none here.

from __future__ import annotations

import numba as nb
import numpy as np

from ncarl.core.linalg import jitter_steps, not_positive_definite_error
from ncarl.core.rows_numba import (
    LAPACK_FLAGS,
    call5,
    call8,
    lapack_addresses,
    solve_with_jitter,
)
from ncarl.core.types import Array, Block
from ncarl.wide.rows import CG_MAX_ITERATIONS, CG_TOLERANCE, WideKernel


def solve_rows(block: Block, kernel: WideKernel, use_cg: Array) -> tuple[Array, float]:
    """Duals of the rows and the jitter needed; conjugate gradients where ``use_cg``."""
    Y = np.zeros_like(block.values)
    sizes = np.diff(block.indptr)[block.groups[:-1]]
    counts = np.diff(block.groups)
    if len(sizes) == 0:
        return Y, 0.0
    formed = np.where(use_cg, 0, sizes)
    worst = _solve_groups(
        block.indptr, block.indices.view(np.uint32), block.values, block.groups,
        use_cg, kernel.F, kernel.preconditioner_diagonal(), kernel.T.indptr,
        kernel.T.indices, kernel.T.data,
        Y.dtype.type(kernel.s), Y, max(1, int(sizes.max())),
        max(1, int((formed * counts).max())), max(1, int(formed.max())),
        Y.dtype.type(CG_TOLERANCE[str(Y.dtype)]),
        np.asarray(jitter_steps(Y.dtype)), LAPACK_FLAGS, lapack_addresses(str(Y.dtype)),
    )  # fmt: skip
    if worst < 0.0:
        raise not_positive_definite_error(int(-worst))
    return Y, float(worst)


@nb.njit(nogil=True, cache=True)
def _solve_groups(
    indptr, indices, values, groups, use_cg, F, preconditioner_diagonal, Tp, Ti, Td, s,
    Y, max_size, max_rhs_size, max_direct_size, tolerance, jitters, flags, routines,
):  # fmt: skip
    """Solve all groups; returns the largest jitter, or minus the size that failed."""
    n, p = F.shape
    G = np.empty((p, max_size), F.dtype)
    C = np.empty(p * p, F.dtype)
    small = np.empty(max(1, p), F.dtype)
    work = np.empty((4, max_size), F.dtype)
    diagonal = np.empty(max_size, F.dtype)
    A = np.empty((max_direct_size, max_direct_size), F.dtype)
    L = np.empty(max_direct_size * max_direct_size, F.dtype)
    B = np.empty(max_rhs_size, F.dtype)
    every = np.arange(max_size).astype(np.uint32)
    places = np.full(n, -1, np.int32)
    ints = np.empty(4, np.int32)
    worst = 0.0
    for g in range(len(groups) - 1):
        top, bottom = groups[g], groups[g + 1]
        lo, hi = indptr[top], indptr[bottom]
        r, count = indptr[top + 1] - lo, bottom - top
        if r == 0:
            continue
        o = indices[lo : lo + r]
        for a in range(r):
            places[o[a]] = a
            row = F[o[a]]
            for q in range(p):
                G[q, a] = row[q]
        done = False
        if use_cg[g]:
            for a in range(r):
                diagonal[a] = s + preconditioner_diagonal[o[a]]
            done = _factor_woodbury(
                G, p, r, diagonal, C, work[0], ints, flags, routines
            )
            for c in range(count):
                at = lo + c * r
                done = done and _conjugate_gradients(
                    G, p, r, o, s, Tp, Ti, Td, places, diagonal, C, small, ints,
                    flags, routines, values[at : at + r], Y[at : at + r], work,
                    tolerance,
                )  # fmt: skip
        if not done:
            if r > max_direct_size:
                A = np.empty((r, r), F.dtype)
                L = np.empty(r * r, F.dtype)
                max_direct_size = r
            if r * count > len(B):
                B = np.empty(r * count, F.dtype)
            _form_system(G, p, r, o, Tp, Ti, Td, places, A)
            used = solve_with_jitter(
                A, every[:r], s, L, B, values[lo:hi], count, jitters, ints,
                flags, routines,
            )  # fmt: skip
            if used < 0.0:
                return -float(r)
            worst = max(worst, used)
            Y[lo:hi] = B[: r * count]
        for a in range(r):
            places[o[a]] = -1
    return worst


@nb.njit(nogil=True, cache=True)
def _form_system(G, p, r, o, Tp, Ti, Td, places, A):
    """Write the upper half of ``T_oo + F_o F_o^T`` to ``A``."""
    for b in range(r):
        row = A[b]
        row[b:r] = 0.0
        q = 0
        while q + 4 <= p:
            g0, g1, g2, g3 = G[q], G[q + 1], G[q + 2], G[q + 3]
            f0, f1, f2, f3 = g0[b], g1[b], g2[b], g3[b]
            for a in range(b, r):
                row[a] += f0 * g0[a] + f1 * g1[a] + f2 * g2[a] + f3 * g3[a]
            q += 4
        while q < p:
            g, f = G[q], G[q][b]
            for a in range(b, r):
                row[a] += f * g[a]
            q += 1
        for e in range(Tp[o[b]], Tp[o[b] + 1]):
            a = places[Ti[e]]
            if a >= b:
                row[a] += Td[e]


@nb.njit(nogil=True, cache=True)
def _conjugate_gradients(
    G, p, r, o, s, Tp, Ti, Td, places, diagonal, C, small, ints, flags, routines,
    v, y, work, tolerance,
):  # fmt: skip
    """Conjugate gradients for one row; False if they do not converge."""
    residual, preconditioned, direction, product = work[0], work[1], work[2], work[3]
    residual[:r] = v
    y[:r] = 0.0
    _apply_preconditioner(
        G, p, r, diagonal, C, small, ints, flags, routines, residual, preconditioned
    )
    direction[:r] = preconditioned[:r]
    size = _dot(residual[:r], preconditioned[:r])
    goal = tolerance * tolerance * size
    for _ in range(CG_MAX_ITERATIONS):
        if size <= goal:
            return True
        _apply_system(G, p, r, o, s, Tp, Ti, Td, places, direction, product)
        curvature = _dot(direction[:r], product[:r])
        if not curvature > 0.0:
            return False
        step = size / curvature
        for a in range(r):
            y[a] += step * direction[a]
            residual[a] -= step * product[a]
        _apply_preconditioner(
            G, p, r, diagonal, C, small, ints, flags, routines, residual,
            preconditioned,
        )  # fmt: skip
        before, size = size, _dot(residual[:r], preconditioned[:r])
        beta = size / before
        for a in range(r):
            direction[a] = preconditioned[a] + beta * direction[a]
    return False


@nb.njit(nogil=True, cache=True)
def _apply_system(G, p, r, o, s, Tp, Ti, Td, places, x, out):
    """Write ``(T_oo + F_o F_o^T + s I) x`` to ``out``."""
    for a in range(r):
        total = s * x[a]
        for e in range(Tp[o[a]], Tp[o[a] + 1]):
            b = places[Ti[e]]
            if b >= 0:
                total += Td[e] * x[b]
        out[a] = total
    for q in range(p):
        g = G[q]
        f = _dot(g[:r], x[:r])
        for a in range(r):
            out[a] += f * g[a]


@nb.njit(nogil=True, cache=True)
def _apply_preconditioner(G, p, r, diagonal, C, small, ints, flags, routines, x, out):
    """Write ``(diagonal + F_o F_o^T)^-1 x`` to ``out``."""
    for a in range(r):
        out[a] = x[a] / diagonal[a]
    for q in range(p):
        small[q] = _dot(G[q][:r], out[:r])
    _solve_woodbury(C, p, small, ints, flags, routines)
    for q in range(p):
        g, f = G[q], small[q]
        for a in range(r):
            out[a] -= f * g[a] / diagonal[a]


@nb.njit(nogil=True, cache=True)
def _factor_woodbury(G, p, r, diagonal, C, work, ints, flags, routines):
    """Factorize ``I + F_o^T diagonal^-1 F_o``; False if that fails."""
    for q in range(p):
        for a in range(r):
            work[a] = G[q][a] / diagonal[a]
        for k in range(q, p):
            C[q * p + k] = _dot(work[:r], G[k][:r])
        C[q * p + q] += 1.0
    ints[0], ints[2], ints[3] = p, 0, 1
    size = ints.ctypes.data
    call5(routines[0], flags.ctypes.data, size, C.ctypes.data, size, size + 8)
    return ints[2] == 0


@nb.njit(nogil=True, cache=True)
def _solve_woodbury(C, p, x, ints, flags, routines):
    """Solve with the factor of `_factor_woodbury`, in place."""
    if p == 0:
        return
    ints[0], ints[3] = p, 1
    size = ints.ctypes.data
    one, lower = size + 12, flags.ctypes.data
    c, b = C.ctypes.data, x.ctypes.data
    call8(routines[2], lower, lower + 1, lower + 1, size, c, size, b, one)
    call8(routines[2], lower, lower + 2, lower + 1, size, c, size, b, one)


@nb.njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})
def _dot(a, b):
    total = a[0] * b[0]
    for k in range(1, len(a)):
        total += a[k] * b[k]
    return total


def apply_dual_gram(block: Block, V: Array) -> Array:
    """``Y^T Y V`` of a block of duals."""
    out = np.zeros_like(V)
    _apply_dual_gram(block.indptr, block.indices.view(np.uint32), block.values, V, out)
    return out


@nb.njit(nogil=True, cache=True)
def _apply_dual_gram(indptr, indices, Y, V, out):
    """``out += Y^T Y V``, row after row."""
    width = V.shape[1]
    row = np.empty(width, V.dtype)
    for i in range(len(indptr) - 1):
        lo, hi = indptr[i], indptr[i + 1]
        row[:] = 0.0
        for e in range(lo, hi):
            source, y = V[indices[e]], Y[e]
            for c in range(width):
                row[c] += y * source[c]
        for e in range(lo, hi):
            target, y = out[indices[e]], Y[e]
            for c in range(width):
                target[c] += y * row[c]


def k_smallest_indices(scores: Array, count: int) -> Array:
    """Indices of the ``count`` smallest numbers of each row."""
    found = np.empty((len(scores), count), dtype=np.int64)
    _k_smallest_indices(scores, count, found)
    return found


@nb.njit(nogil=True, cache=True)
def _k_smallest_indices(scores, count, found):
    """Write the indices of the smallest numbers of each row to ``found``, sorted."""
    best = np.empty(count, scores.dtype)
    for i in range(scores.shape[0]):
        row, places, held = scores[i], found[i], 0
        for j in range(len(row)):
            score = row[j]
            if held == count and not score < best[count - 1]:
                continue
            at = held if held < count else count - 1
            while at > 0 and best[at - 1] > score:
                best[at] = best[at - 1]
                places[at] = places[at - 1]
                at -= 1
            best[at], places[at] = score, j
            held = min(held + 1, count)
