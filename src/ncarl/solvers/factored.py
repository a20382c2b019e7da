r"""Completion by two factors of small norm, and what factored models share.

``min 1/2 ||A||^2 + 1/2 ||B||^2`` such that ``X = A B`` agrees with the observed
entries, by ADMM:

.. code-block:: text

    B <- argmin of the ridge problem given A, then A given B
    X <- observed values, A B - Y / mu in the gaps
    Y <- Y + mu (X - A B)

The least value for a product is its nuclear norm, so enough columns make this the
nuclear norm's completion without a singular value decomposition a step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from array_api_compat import array_namespace

from ncarl.core.singular import Triplets, frobenius, like, triplets
from ncarl.core.types import Array
from ncarl.observed import Observed
from ncarl.solvers.problem import (
    Clock,
    Ending,
    Problem,
    Step,
    change_of,
    ratio,
    steps_of,
)
from ncarl.solvers.split import Balanced

#: Singular values below this part of the largest do not count for a rank.
RANK_SHARE = 1e-5
#: Once ``mu`` has been balanced it moves by this factor each time that so many steps
#: have not brought the residuals below this part of what they were.
GROWTH, PATIENCE, PROGRESS = 1.5, 50, 0.8


def usual_rank(observed: Observed) -> int:
    """Columns with which factors can reach the least nuclear norm.

    There is a minimiser whose rank r satisfies ``r (r + 1) / 2 <= entries``, and with
    one column more than that no local minimum is worse than the global one. Rows and
    columns with nothing observed need none.

    Examples
    --------
    >>> import numpy as np
    >>> usual_rank(Observed.from_dense(np.ones((9, 4))))
    4
    >>> usual_rank(Observed.from_dense(np.where(np.eye(9) > 0.0, 1.0, np.nan)))
    4
    """
    rows = int(np.count_nonzero(observed.row_counts))
    columns = int(np.count_nonzero(observed.column_counts))
    enough = (math.isqrt(8 * observed.n_observed + 1) - 1) // 2 + 1
    return max(1, min(rows, columns, enough))


def spectral_start(problem: Problem, rank: int, factor: float = 1.0) -> Triplets:
    """The leading triplets of the zero-filled matrix, the values times ``factor``."""
    with problem.home.work(min(problem.shape)):
        found = first_of(triplets(problem.M), rank)
    return found._replace(s=factor * found.s)


def first_of(found: Triplets, rank: int) -> Triplets:
    """The largest of some triplets."""
    return Triplets(found.U[:, :rank], found.s[:rank], found.Vt[:rank])


def spread_over(found: Triplets, left: float) -> tuple[Array, Array]:
    """Factors ``U s^left`` and ``s^(1 - left) Vt`` of a matrix."""
    A = found.U * like(found.U, found.s**left)
    return A, like(found.Vt, found.s ** (1.0 - left))[:, None] * found.Vt


def ridge_right(A: Array, W: Array, ridge: float) -> Array:
    """``argmin_B 1/2 ||A B - W||^2 + ridge/2 ||B||^2``, for a ridge above 0.

    Examples
    --------
    >>> import numpy as np
    >>> ridge_right(np.eye(2), np.array([[4.0], [2.0]]), 1.0)
    array([[2.],
           [1.]])
    """
    xp = array_namespace(A)
    eye = xp.eye(A.shape[1], dtype=A.dtype, device=A.device)
    return xp.linalg.solve(A.T @ A + ridge * eye, A.T @ W)


def ridge_left(W: Array, B: Array, ridge: float) -> Array:
    """``argmin_A 1/2 ||A B - W||^2 + ridge/2 ||A||^2``, for a ridge above 0."""
    return ridge_right(B.T, W.T, ridge).T


def column_norms(A: Array) -> Array:
    """Length of each column."""
    xp = array_namespace(A)
    return xp.sqrt(xp.sum(A * A, axis=0))


def group_shrink(A: Array, cut: float) -> Array:
    """``argmin 1/2 ||Z - A||^2 + cut sum_j |z_j|``: each column shortened by ``cut``.

    Examples
    --------
    >>> import numpy as np
    >>> group_shrink(np.array([[3.0, 0.5], [4.0, 0.0]]), 1.0)
    array([[2.4, 0. ],
           [3.2, 0. ]])
    """
    xp = array_namespace(A)
    lengths = column_norms(A)
    long = lengths > cut
    safe = xp.where(long, lengths, xp.ones_like(lengths))
    return A * xp.where(long, 1.0 - cut / safe, xp.zeros_like(lengths))


def product_rank(A: Array, B: Array) -> int:
    """Rank of ``A B``, small values left out, from two small triangles."""
    xp = array_namespace(A)
    if A.shape[1] == 0:
        return 0
    R = xp.linalg.qr(A)[1] @ xp.linalg.qr(B.T)[1].T
    s = triplets(R).s
    return int(np.count_nonzero(s > RANK_SHARE * s[0]))


@dataclass(frozen=True, eq=False)
class FactoredState:
    """Where the solver stands.

    Attributes
    ----------
    A, B : arrays of shape (m, d) and (d, n)
        The factors.
    X : array of shape (m, n)
        The completed matrix; it has the observed values.
    Y : array of shape (m, n)
        Multipliers; 0 in the gaps.
    mu : float
        Weight of the distance between X and ``A B``.
    residual : float
        ``||P(A B - M)|| / ||M||``.
    mark : float
        The larger residual when it was last looked at whether they fall.
    """

    A: Array
    B: Array
    X: Array
    Y: Array
    mu: float
    residual: float = 1.0
    mark: float = math.inf


@dataclass(frozen=True)
class Factored:
    """The solver.

    Attributes
    ----------
    problem : Problem
        The matrix to complete.
    rank : int
        Columns of A.
    schedule : Balanced
        The first ``mu``, and how it is balanced early.
    """

    problem: Problem
    rank: int
    schedule: Balanced
    degree: float = 1.0

    def begin(self) -> FactoredState:
        """Balanced factors of the zero-filled matrix, as large as a full one is."""
        found = spectral_start(self.problem, self.rank, 1.0 / self.problem.density)
        A, B = spread_over(found, 0.5)
        Y = array_namespace(A).zeros_like(self.problem.M)
        return FactoredState(A, B, self.problem.filled(A @ B), Y, self.schedule.first())

    def steps(self, state: FactoredState, step: int) -> Iterator[Step]:
        """Steps for ever."""
        return steps_of(self._step, state, step, self.problem)

    def _step(self, state: FactoredState, step: int, clock: Clock) -> Step:
        """One step."""
        mu, Y = state.mu, state.Y
        W = state.X + Y / mu
        B = ridge_right(state.A, W, 1.0 / mu)
        A = ridge_left(W, B, 1.0 / mu)
        Z = A @ B
        X = self.problem.filled(Z - Y / mu)
        Y = Y + mu * (X - Z)
        primal = change_of(X, Z)
        dual = ratio(mu * frobenius(X - state.X), frobenius(Y))
        change = max(primal, dual)
        after, mark = self._after(state, step, primal, dual)
        kept = FactoredState(A, B, X, Y, after, self.problem.residual(Z), mark)
        value = (frobenius(A) ** 2 + frobenius(B) ** 2) / 2.0
        notes = {"primal": primal, "dual": dual, "mu": mu}
        return Step(step, kept, value, change, notes, clock.look())

    def _after(
        self, state: FactoredState, step: int, primal: float, dual: float
    ) -> tuple[float, float]:
        """The next ``mu``, and the residual to compare later ones with.

        With fewer columns than the nuclear norm's completion has the problem is not
        convex and a small ``mu`` can circle for ever; a larger one ends that.
        """
        if step <= self.schedule.steps:
            return self.schedule.after(state.mu, step, primal, dual), math.inf
        if step % PATIENCE:
            return state.mu, state.mark
        now = max(primal, dual)
        if now < PROGRESS * state.mark:
            return state.mu, now
        # A larger one would only slow down what the other residual is waiting for.
        grows = self.schedule.apart * primal > dual
        return state.mu * (GROWTH if grows else 1.0 / GROWTH), now

    def end(self, last: Step) -> Ending:
        """The matrix with its observed values."""
        state: FactoredState = last.state
        rank = product_rank(state.A, state.B)
        X = self.problem.home.fetch(state.X)
        return Ending(X, None, state.residual, rank)
