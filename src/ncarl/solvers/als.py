r"""Soft-impute by alternating least squares, the matrix kept as factors.

``min 1/2 ||P(X) - M||^2 + lam ||X||_*`` with ``X = U diag(s) V^T`` of a bounded rank: a
step fills the gaps from X, finds the right factor for the left one, and the other way
round. What is filled is never formed: it is X plus a sparse matrix of residuals.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from array_api_compat import array_namespace

from ncarl.core.singular import frobenius, host, like, thin, triplets
from ncarl.core.types import Array
from ncarl.penalties import NuclearNorm
from ncarl.solvers.entries import Entries
from ncarl.solvers.problem import (
    STEADY,
    Clock,
    Ending,
    Step,
    ratio,
    step_size,
    steps_of,
)

#: Directions kept beyond those that survive, so that others can come in.
SPARE = 5
#: Squares that differ by a smaller part than this are too near to be subtracted.
CANCELLED = 1e-11
#: Size of a direction that is to come in, over the strength.
FRESH = 0.3


@dataclass(frozen=True, eq=False)
class FactorState:
    """Where the solver stands: ``X = U diag(s) Vt``.

    Attributes
    ----------
    U : array of shape (m, d)
        Left factor, with orthonormal columns.
    s : array of shape (d,)
        Sizes of the directions, largest first.
    Vt : array of shape (d, n)
        Right factor, with orthonormal rows.
    left : array of shape (entries,)
        Observed values less those of X.
    lam : float
        Strength of the penalty, which falls to its final value.
    rank : int
        Directions that survive the strength.
    steady : bool
        Whether the last step changed little, so that the strength may fall.
    tested : int
        Surviving directions to which others have been added at this strength.
    """

    U: Array
    s: Array
    Vt: Array
    left: Array
    lam: float
    rank: int = 0
    steady: bool = True
    tested: int = -1


@dataclass(frozen=True)
class Alternating:
    """The solver.

    Attributes
    ----------
    entries : Entries
        The observed entries.
    lam : float
        Strength of the nuclear norm.
    most : int
        Largest rank.
    seed : int
        Of the directions that the factors start from.
    fall : float
        Factor by which the strength falls, whenever steps change little, till it is
        ``lam``.
    """

    entries: Entries
    lam: float
    most: int
    seed: int = 0
    fall: float = 0.7
    degree: float = 2.0

    @property
    def limit(self) -> int:
        """Directions that there can be: empty rows and columns have no part in any."""
        seen = self.entries.seen
        return min(self.most, int(seen[0].sum()), int(seen[1].sum()))

    def begin(self) -> FactorState:
        """A few small directions, at the strength that just keeps all at 0."""
        lam = max(self.lam, self.entries.top)
        none = self.entries.home.send(np.empty((self.entries.shape[0], 0)))
        right = self.entries.home.send(np.empty((0, self.entries.shape[1])))
        size = like(none, np.empty(0))
        return self._widened(none, size, right, lam)

    def resume(self, state: FactorState) -> FactorState:
        """The factors of another strength, to go on from with this one."""
        r = state.rank
        return self._widened(state.U[:, :r], state.s[:r], state.Vt[:r], self.lam)

    def _widened(self, U: Array, s: Array, Vt: Array, lam: float) -> FactorState:
        """The state with some small random directions beside those that survive."""
        rank = U.shape[1]
        more = min(self.limit, rank + max(SPARE, rank // 2)) - rank
        if more > 0:
            xp = array_namespace(U)
            U = xp.concat([U, self._apart(U, 0, more)], axis=1)
            Vt = xp.concat([Vt, self._apart(Vt.T, 1, more).T])
            s = xp.concat([s, like(U, np.full(more, FRESH * lam))])
        left = self.entries.values - self.entries.product_at(U * s, Vt)
        return FactorState(U, s, Vt, left, lam, rank, steady=False, tested=rank)

    def _apart(self, known: Array, side: int, count: int) -> Array:
        """Random orthonormal columns, at right angles to the known ones."""
        rng = np.random.default_rng((self.seed, side, known.shape[1]))
        random = rng.standard_normal((self.entries.shape[side], count))
        fresh = self.entries.home.send(random * self.entries.seen[side][:, None])
        for _ in range(2):  # once more for the digits that the first time lost
            fresh = fresh - known @ (known.T @ fresh)
            fresh = array_namespace(fresh).linalg.qr(fresh)[0]
        return fresh

    def steps(self, state: FactorState, step: int) -> Iterator[Step]:
        """Steps for ever."""
        return steps_of(self._step, state, step, self.entries)

    def _step(self, state: FactorState, step: int, clock: Clock) -> Step:
        """A weaker strength or more directions where it is time, then both factors."""
        falls = state.steady and state.lam > self.lam
        if falls or self._crowded(state):
            lam = max(self.lam, self.fall * state.lam) if falls else state.lam
            r = state.rank
            state = self._widened(state.U[:, :r], state.s[:r], state.Vt[:r], lam)
        new, surviving = self._both_factors(state)
        lam = state.lam
        change = step_size(distance(state, new), lam, surviving)
        new = replace(new, rank=surviving, steady=change < STEADY)
        size = frobenius(new.left)
        objective = size * size / 2.0 + lam * float(host(new.s).sum())
        notes = {"rank": float(surviving), "lam": lam}
        last = lam <= self.lam and not self._crowded(new)
        return Step(step, new, objective, change, notes, clock.look(), last)

    def _crowded(self, state: FactorState) -> bool:
        """Whether all directions survive, so that there may be more of them."""
        return state.tested < state.rank == len(state.s) < self.limit

    def _both_factors(self, state: FactorState) -> tuple[FactorState, int]:
        """The state after a new right and a new left factor; directions that survive.

        With the left factor given, the best right one is that of the filled matrix,
        shrunk; the gaps are then filled anew for the left one.
        """
        U, s, Vt, lam = state.U, state.s, state.Vt, state.lam
        filled = self.entries.turned_times(state.left, U) + Vt.T * s
        V, s_new, turn = thin(filled * (s / (s + lam)))
        U, s, Vt = U @ turn.T, like(U, s_new), V.T
        left = self.entries.values - self.entries.product_at(U * s, Vt)
        filled = self.entries.times(left, V) + U * s
        # What a direction would be in the filled matrix says whether it survives.
        lengths = host(array_namespace(U).linalg.vector_norm(filled, axis=0))
        surviving = int(np.count_nonzero(lengths > lam))
        U, s_new, turn = thin(filled * (s / (s + lam)))
        s, Vt = like(U, s_new), turn @ Vt
        left = self.entries.values - self.entries.product_at(U * s, Vt)
        new = replace(state, U=U, s=s, Vt=Vt, left=left)
        return new, min(surviving, len(s_new))

    def end(self, last: Step) -> Ending:
        """Balanced factors, directions that do not survive dropped."""
        state: FactorState = last.state
        fetch, lam = self.entries.home.fetch, state.lam
        filled = self.entries.times(state.left, state.Vt.T) + state.U * state.s
        found = triplets(filled)
        s = NuclearNorm().prox(found.s, lam)
        # So strong a penalty leaves nothing, whatever the last step was on its way to.
        s = s[s > 0.0] if lam < self.entries.top else s[:0]
        r, root = len(s), np.sqrt(s)
        A = fetch(found.U)[:, :r] * root
        B = root[:, None] * (fetch(found.Vt)[:r] @ fetch(state.Vt))
        at = self.entries.product_at(
            self.entries.home.send(A), self.entries.home.send(B)
        )
        residual = ratio(frobenius(self.entries.values - at), self.entries.size)
        return Ending(None, (A, B), residual, r)


def distance(old: FactorState, new: FactorState) -> float:
    """Frobenius norm of the difference of two matrices, from their factors alone."""
    xp = array_namespace(new.U)
    overlap = (old.U.T @ new.U) * (old.Vt @ new.Vt.T)
    shared = float(xp.sum(old.s[:, None] * overlap * new.s))
    size = float(old.s @ old.s) + float(new.s @ new.s)
    squared = size - 2.0 * shared
    if squared > CANCELLED * size or size == 0.0:
        return math.sqrt(squared)
    # So near to each other the squares cancel: triangles of both sides do not.
    left = xp.concat([new.U * new.s, old.U * old.s], axis=1)
    right = xp.concat([new.Vt, -old.Vt]).T
    R_left, R_right = xp.linalg.qr(left)[1], xp.linalg.qr(right)[1]
    return frobenius(R_left @ R_right.T)
