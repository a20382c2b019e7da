r"""A low-rank matrix with a small sum of absolute residuals: RegL1.

``min ||P(M - U V)||_1 + lam ||V||_*`` with ``U^T U = I``, by augmented Lagrangians on
``E = U V``. The steps in U and in V are taken at once: together they keep the leading
singular triplets of ``E + Y / mu``, shrunk by ``lam / mu``, where taking them in turn
would only approach these.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from array_api_compat import array_namespace

from ncarl.core.singular import frobenius, leading, like
from ncarl.core.types import Array
from ncarl.solvers.problem import Clock, Ending, Problem, Step, ratio, steps_of

#: Largest ``mu`` times the largest singular value: by then E is the product.
MOST_MU = 1e20
#: The first threshold of singular values is the largest of them over this.
FIRST = 3.0


@dataclass(frozen=True, eq=False)
class RegL1State:
    """Where the solver stands.

    Attributes
    ----------
    E : array of shape (m, n)
        The copy that the residuals see.
    U, V : arrays of shape (m, k) and (k, n)
        The factors; as many columns as are not 0.
    Y : array of shape (m, n)
        Multipliers; 0 in the gaps unless E is held at 0 or above.
    mu : float
        Weight of the distance between E and ``U V``.
    """

    E: Array
    U: Array
    V: Array
    Y: Array
    mu: float


@dataclass(frozen=True)
class AbsoluteResiduals:
    """The solver.

    Attributes
    ----------
    problem : Problem
        The matrix to complete.
    lam : float
        Strength of the nuclear norm against the sum of absolute residuals.
    rank : int
        Most columns of U.
    growth : float
        Growth of ``mu`` from step to step.
    inner : int
        How often factors and E are found in turn in one step.
    nonnegative : bool
        Whether E is held at 0 or above.
    first : float, optional
        The first ``mu``; by default the first threshold is a third of the largest
        singular value, or what makes that of the entries their largest.
    """

    problem: Problem
    lam: float
    rank: int
    growth: float = 1.05
    inner: int = 1
    nonnegative: bool = False
    first: float | None = None
    degree: float = 1.0

    def begin(self) -> RegL1State:
        """The observed values with zeros in the gaps, and no factors."""
        M = self.problem.M
        mu = self._usual() if self.first is None else self.first
        zero = array_namespace(M).zeros_like(M)
        return RegL1State(M, M[:, :0], M[:0], zero, mu)

    def _usual(self) -> float:
        """A first ``mu`` with which both thresholds let values be moved.

        That of entries is at least the largest of them, so that with a strong norm all
        can be given up before a growing ``mu`` holds them.
        """
        values = self.problem.observed.values
        largest = float(np.max(np.abs(values), initial=0.0)) or 1.0
        return min(FIRST * self.lam / self.problem.top, 1.0 / largest)

    def steps(self, state: RegL1State, step: int) -> Iterator[Step]:
        """Steps for ever."""
        return steps_of(self._step, state, step, self.problem)

    def _step(self, state: RegL1State, step: int, clock: Clock) -> Step:
        """Factors and E in turn, then the multipliers."""
        inside = state
        for _ in range(self.inner):
            inside = self.turn(inside)
        Z = inside.U @ inside.V
        Y = state.Y + state.mu * (inside.E - Z)
        size = self.problem.size
        primal = ratio(frobenius(inside.E - Z), size)
        moved = ratio(frobenius(inside.E - state.E), size)
        value, rank = self.value(inside.V, Z), inside.V.shape[0]
        after = min(state.mu * self.growth, MOST_MU / self.problem.top)
        kept = RegL1State(inside.E, inside.U, inside.V, Y, after)
        notes = {"primal": primal, "rank": float(rank), "mu": state.mu}
        return Step(step, kept, value, max(primal, moved), notes, clock.look())

    def turn(self, state: RegL1State) -> RegL1State:
        """The best factors for E, then the best E for the factors."""
        mu, Y = state.mu, state.Y
        cut = self.lam / mu
        expected = state.V.shape[0] if state.V.shape[0] else None
        found = leading(state.E + Y / mu, cut, expected)
        s = found.s[: self.rank] - cut
        U = found.U[:, : self.rank]
        V = like(U, s)[:, None] * found.Vt[: self.rank]
        xp = array_namespace(U)
        free = U @ V - Y / mu
        off = self.problem.M - free
        # What is left of the residual once 1 / mu is taken off stays a residual.
        pulled = self.problem.M - (off - xp.clip(off, -1.0 / mu, 1.0 / mu))
        E = xp.where(self.problem.seen, pulled, free)
        if self.nonnegative:
            E = xp.clip(E, 0.0, None)
        return RegL1State(E, U, V, Y, mu)

    def value(self, V: Array, Z: Array) -> float:
        """The objective of a product ``Z = U V``."""
        xp = array_namespace(Z)
        off = xp.where(self.problem.seen, Z - self.problem.M, xp.zeros_like(Z))
        # Rows of V are orthogonal, so that their lengths are its singular values.
        lengths = xp.sqrt(xp.sum(V * V, axis=1))
        return float(xp.sum(xp.abs(off))) + self.lam * float(xp.sum(lengths))

    def end(self, last: Step) -> Ending:
        """The factors, the columns of U orthonormal to the last digit."""
        state: RegL1State = last.state
        residual = self.problem.residual(state.U @ state.V)
        Q, R = array_namespace(state.U).linalg.qr(state.U)
        fetch = self.problem.home.fetch
        rank = state.V.shape[0]
        return Ending(None, (fetch(Q), fetch(R @ state.V)), residual, rank)
