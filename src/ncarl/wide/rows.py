"""The row step under a wide kernel: ``(K_oo + s I) y = v`` with ``K = T + F F^T``.

Short rows form their system and factorise it. Long ones are solved by conjugate
gradients that only apply it, with ``diag(T_oo) + s I + F_o F_o^T`` as preconditioner,
inverted by Woodbury's identity; ``T`` is all but diagonal, so that few iterations do.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from ncarl.core.linalg import factorised
from ncarl.core.plan import duals_matrix, pieces
from ncarl.core.types import Array, Block
from ncarl.wide.kernel import WideKernel
from ncarl.wide.products import numba_rows, rows_of_duals

#: Conjugate gradients end when the residual has fallen by this factor, or give up.
TOLERANCE = {"float64": 1e-13, "float32": 1e-6}
MOST_ITERATIONS = 200
#: What an iteration costs beside its products, and how many are usual.
USUAL_ITERATIONS = 8


def iterations_pay(r: Array, p: int) -> Array:
    """Whether rows of ``r`` entries are solved by iteration under ``p`` factors.

    Examples
    --------
    >>> iterations_pay(np.array([50, 5000]), 64).tolist()
    [False, True]
    """
    r = np.asarray(r, dtype=np.float64)
    direct = r**2 * p + r**3 / 3
    # Gathered products run at a third of the speed of a factorisation.
    iterated = r * p**2 + p**3 / 3 + USUAL_ITERATIONS * (4 * r * p + 40 * r)
    answer: Array = 3.0 * iterated < direct
    return answer


def row_duals(
    block: Block, *, kernel: WideKernel, kind: str = "auto", iterate: bool | None = None
) -> tuple[Array, float]:
    """Duals ``y`` aligned with ``block.values``, and the jitter that was needed.

    ``iterate`` forces one way to solve a row on all of them.
    """
    sizes = np.diff(block.indptr)[block.groups[:-1]]
    chosen = iterations_pay(sizes, kernel.F.shape[1])
    if iterate is not None:
        chosen = np.full(len(sizes), iterate)
    compiled = numba_rows(kind)
    if compiled is not None:
        found: tuple[Array, float] = compiled.solve_rows(block, kernel, chosen)
        return found
    return _solve_rows(block, kernel, chosen)


def _solve_rows(block: Block, kernel: WideKernel, chosen: Array) -> tuple[Array, float]:
    """The same by NumPy, one group of rows with equal masks after the other."""
    Y = np.zeros_like(block.values)
    worst, easy = 0.0, kernel.easy_diagonal()
    for g in range(len(block.groups) - 1):
        top, bottom = block.groups[g], block.groups[g + 1]
        lo, hi = int(block.indptr[top]), int(block.indptr[bottom])
        o = block.indices[lo : int(block.indptr[top + 1])]
        if len(o) == 0:
            continue
        V = block.values[lo:hi].reshape(-1, len(o)).T
        solved = _iterated(kernel, easy, o, V) if chosen[g] else None
        if solved is None:
            A = kernel.part(o, o)
            factor, jitter = factorised(A, np.arange(len(o)), kernel.s)
            solved = cho_solve((factor, True), V, check_finite=False)
            worst = max(worst, jitter)
        Y[lo:hi] = solved.T.ravel()
    return Y, worst


def _iterated(kernel: WideKernel, easy: Array, o: Array, V: Array) -> Array | None:
    """Conjugate gradients for some right-hand sides; None if they do not settle."""
    F, T = kernel.F[o], kernel.T[o][:, o]
    diagonal = easy[o] + kernel.s
    scaled = F / diagonal[:, None]
    inner = scaled.T @ F
    inner.flat[:: len(inner) + 1] += 1.0
    factor = cho_factor(inner, check_finite=False)

    def eased(R: Array) -> Array:
        even = R / diagonal[:, None]
        return even - scaled @ cho_solve(factor, F.T @ even, check_finite=False)

    Y, R = np.zeros_like(V), V.copy()
    Z = eased(R)
    P, size = Z.copy(), np.einsum("rc,rc->c", R, Z)
    goal = TOLERANCE[str(V.dtype)] ** 2 * size
    for _ in range(MOST_ITERATIONS):
        if (size <= goal).all():
            return Y
        AP = T @ P + F @ (F.T @ P) + kernel.s * P
        curve = np.einsum("rc,rc->c", P, AP)
        step = np.divide(size, curve, out=np.zeros_like(size), where=curve > 0.0)
        Y += step * P
        R -= step * AP
        Z = eased(R)
        before, size = size, np.einsum("rc,rc->c", R, Z)
        turn = np.divide(size, before, out=np.zeros_like(size), where=before > 0.0)
        P = Z + turn * P
    return None


def duals_and_fit(
    block: Block, *, kernel: WideKernel, kind: str = "auto"
) -> tuple[Array, float, float]:
    """Duals of a block, the sum of ``v y``, and the jitter that was needed."""
    Y, jitter = row_duals(block, kernel=kernel, kind=kind)
    return Y, float(block.values @ Y), jitter


def completed_rows(block: Block, kernel: WideKernel, kind: str) -> Array:
    """Smoothed rows; equal to the observed values there in the exact model."""
    Y, _ = row_duals(block, kernel=kernel, kind=kind)
    X = rows_of_duals(_with(block, Y), kernel)
    row_of_entry = np.repeat(np.arange(block.n_rows), np.diff(block.indptr))
    X[row_of_entry, block.indices] = block.values - kernel.s * Y
    return X


def completed_block(
    block: Block, *, kernel: WideKernel, std: str | None, kind: str = "auto"
) -> tuple[Array, Array | None]:
    """Completed rows of a block, and the variances of their entries if asked for."""
    parts = list(pieces(block))
    rows = [completed_rows(part, kernel, kind) for part in parts]
    if std is None:
        return np.concatenate(rows), None
    noise = kernel.s if std == "latent" else 0.0
    every = np.arange(block.n_columns)
    found = [
        variances(part, kernel, [every] * part.n_rows).reshape(part.n_rows, -1)
        for part in parts
    ]
    return np.concatenate(rows), np.concatenate(found) - noise


def entry_terms(
    block: Block,
    *,
    kernel: WideKernel,
    columns: Array,
    bounds: Array,
    std: str | None,
    kind: str = "auto",
) -> tuple[Array, Array, Array]:
    """``y_i K_oj`` for the columns asked of each row, as `ncarl.model.entry_terms`."""
    counts = (bounds[1:] - bounds[:-1])[block.rows]
    i = np.repeat(np.arange(block.n_rows), counts)
    within = np.arange(len(i)) - np.repeat(np.cumsum(counts) - counts, counts)
    places = bounds[block.rows][i] + within
    j = columns[places]
    Y, _ = row_duals(block, kernel=kernel, kind=kind)
    matrix = duals_matrix(block, Y)
    Z = matrix @ kernel.F
    sums = np.einsum("ep,ep->e", Z[i], kernel.F[j])
    if len(j):
        sums += np.asarray((matrix @ kernel.T)[i, j]).ravel()
    if std is None:
        return places, sums, np.zeros(len(j))
    asked = np.split(j, np.cumsum(counts)[:-1])
    noise = kernel.s if std == "latent" else 0.0
    return places, sums, variances(block, kernel, asked) - noise


def variances(block: Block, kernel: WideKernel, asked: list[Array]) -> Array:
    """``k_jj - k_jo (K_oo + s I)^-1 k_oj + s`` at the columns asked of each row."""
    diagonal = kernel.diagonal() + kernel.s
    found = []
    for g in range(len(block.groups) - 1):
        top, bottom = int(block.groups[g]), int(block.groups[g + 1])
        o = block.indices[int(block.indptr[top]) : int(block.indptr[top + 1])]
        factor = None
        for j in asked[top:bottom]:
            if len(o) == 0 or len(j) == 0:
                found.append(diagonal[j])
                continue
            if factor is None:
                A = kernel.part(o, o)
                factor, _ = factorised(A, np.arange(len(o)), kernel.s)
            half = solve_triangular(
                factor, kernel.part(o, j), lower=True, check_finite=False
            )
            known = np.einsum("ij,ij->j", half, half)
            found.append(np.maximum(diagonal[j] - known, kernel.s))
    return np.concatenate(found) if found else np.zeros(0)


def _with(block: Block, Y: Array) -> Block:
    """The block with duals in the place of its values."""
    return Block(
        block.indptr, block.indices, Y, block.groups, block.rows, block.n_columns
    )
