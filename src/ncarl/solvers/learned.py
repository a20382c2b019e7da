r"""A dictionary and its coefficients, both learned from the observed entries.

``min ||D||_* + 1/2 ||Z||^2`` such that ``D Z`` agrees with the observed entries, which
over all ways to write ``X = D Z`` is 3/2 times the sum of the singular values of X to
the power 2/3. In turns, with a ``mu`` that grows:

.. code-block:: text

    Z <- (mu D^T D + I)^-1 D^T (mu X + Y)
    D <- prox(D - (D Z - X - Y / mu) Z^T / ||Z||^2)
    X <- observed values, D Z - Y / mu in the gaps
    Y <- Y + mu (X - D Z)
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from array_api_compat import array_namespace

from ncarl.core.singular import frobenius, leading, like, spectral_norm, triplets
from ncarl.core.types import Array
from ncarl.solvers.problem import (
    Clock,
    Ending,
    Problem,
    Step,
    change_of,
    ratio,
    steps_of,
)

#: First ``mu`` over what has its units, growth, and the factor it may grow by.
FIRST, GROWTH, MOST_GROWTH = 30.0, 1.01, 1e8


@dataclass(frozen=True, eq=False)
class LearnedState:
    """Where the solver stands.

    Attributes
    ----------
    X, Y : arrays of shape (m, n)
        The completed matrix, and multipliers; these are 0 in the gaps.
    D : array of shape (m, k)
        The dictionary.
    Z : array of shape (k, n)
        The coefficients.
    mu : float
        Weight of the distance between X and D Z.
    rank : int
        Rank of the dictionary.
    residual : float
        ``||P(D Z) - M|| / ||M||`` in the last step.
    """

    X: Array
    Y: Array
    D: Array
    Z: Array
    mu: float
    rank: int = 0
    residual: float = 1.0


@dataclass(frozen=True)
class Learned:
    """The solver.

    Attributes
    ----------
    problem : Problem
        The matrix to complete.
    """

    problem: Problem
    degree: float = 2.0 / 3.0

    @property
    def first_mu(self) -> float:
        """The first ``mu``, which has the units of values to the power -4/3."""
        return float(FIRST * self.problem.top ** (-4.0 / 3.0))

    def begin(self) -> LearnedState:
        """The best factors of the observed values with zeros in the gaps."""
        M = self.problem.M
        with self.problem.home.work(min(self.problem.shape)):
            found = triplets(M)
        D = found.U * like(M, found.s ** (2.0 / 3.0))
        Z = like(M, found.s ** (1.0 / 3.0))[:, None] * found.Vt
        return LearnedState(M, 0.0 * M, D, Z, self.first_mu)

    def steps(self, state: LearnedState, step: int) -> Iterator[Step]:
        """Steps for ever."""
        return steps_of(self._step, state, step, self.problem)

    def _step(self, state: LearnedState, step: int, clock: Clock) -> Step:
        """One step."""
        D, mu, Y = state.D, state.mu, state.Y
        xp = array_namespace(D)
        W = state.X + Y / mu
        # Columns of D are orthogonal, as the start and every rotation leave them.
        squares = xp.sum(D * D, axis=0)
        Z = (D.T @ W) * (mu / (mu * squares + 1.0))[:, None]
        D, Z, s = self._shrunk(D, Z, W, mu)
        DZ = D @ Z
        X = self.problem.filled(DZ - Y / mu)
        primal = change_of(DZ, X)
        value = float(s.sum()) + frobenius(Z) ** 2 / 2.0
        moved = ratio(frobenius(X - state.X), frobenius(X))
        notes = {
            "primal": primal,
            "dual": math.nan,
            "gap": math.nan,
            "mu": mu,
            "stage": 1.0,
            "round": 1.0,
            "rank": float(len(s)),
        }
        new = LearnedState(
            X, Y + mu * (X - DZ), D, Z, min(GROWTH * mu, MOST_GROWTH * self.first_mu),
            len(s), self.problem.residual(DZ),
        )  # fmt: skip
        change = max(primal, moved)
        return Step(step, new, value, change, notes, clock.look())

    def _shrunk(
        self, D: Array, Z: Array, W: Array, mu: float
    ) -> tuple[Array, Array, Any]:
        """The next dictionary, coefficients rotated to it, and its singular values."""
        length = spectral_norm(Z) ** 2 or 1.0
        found = leading(D - (D @ Z - W) @ Z.T / length, 1.0 / (mu * length))
        s = found.s - 1.0 / (mu * length)
        if len(s) == 0:  # one column of zeros, for arrays must not be empty
            return 0.0 * D[:, :1], 0.0 * Z[:1], s
        return found.U * like(D, s), found.Vt @ Z, s

    def end(self, last: Step) -> Ending:
        """The matrix with its observed values, and the dictionary."""
        state: LearnedState = last.state
        fetch = self.problem.home.fetch
        extras = {
            "dictionary_": fetch(state.D),
            "penalised_": False,
            "lam_": None,
        }
        X = fetch(self.problem.filled(state.D @ state.Z))
        return Ending(X, None, state.residual, state.rank, extras)
