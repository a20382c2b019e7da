r"""Soft-impute by singular values, the matrix kept as factors.

``min 1/2 ||P(X) - M||^2 + lam ||X||_*``: a step takes the leading singular triplets of
the filled matrix, which is X plus a sparse matrix of residuals, and shrinks them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from array_api_compat import is_numpy_array
from scipy.sparse.linalg import LinearOperator

from ncarl.core.singular import (
    FEW,
    MANY,
    SPARE,
    Triplets,
    above,
    frobenius,
    lanczos,
    leading,
    like,
)
from ncarl.core.types import Array
from ncarl.penalties import NuclearNorm
from ncarl.solvers.als import FactorState, distance
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


@dataclass(frozen=True)
class SoftThresholding:
    """The solver; see `ncarl.solvers.als.Alternating` for the attributes."""

    entries: Entries
    lam: float
    most: int
    seed: int = 0
    fall: float = 0.7
    degree: float = 2.0

    def begin(self) -> FactorState:
        """Nothing, at the strength that just keeps it so."""
        m, n = self.entries.shape
        send = self.entries.home.send
        U, Vt = send(np.empty((m, 0))), send(np.empty((0, n)))
        lam = max(self.lam, self.entries.top)
        return FactorState(U, like(U, np.empty(0)), Vt, self.entries.values, lam)

    def resume(self, state: FactorState) -> FactorState:
        """The factors of another strength, to go on from with this one."""
        fitted = self.entries.product_at(state.U * state.s, state.Vt)
        return replace(state, lam=self.lam, left=self.entries.values - fitted)

    def steps(self, state: FactorState, step: int) -> Iterator[Step]:
        """Steps for ever."""
        return steps_of(self._step, state, step, self.entries)

    def _step(self, state: FactorState, step: int, clock: Clock) -> Step:
        """A weaker strength where it is time, then the leading triplets, shrunk."""
        falls = state.steady and state.lam > self.lam
        lam = max(self.lam, self.fall * state.lam) if falls else state.lam
        found = self._leading(state, lam)
        s = NuclearNorm().prox(found.s[: self.most], lam)
        r = len(s)
        U, Vt, sizes = found.U[:, :r], found.Vt[:r], like(found.U, s)
        left = self.entries.values - self.entries.product_at(U * sizes, Vt)
        new = FactorState(U, sizes, Vt, left, lam, r)
        change = step_size(distance(state, new), lam, r)
        new = replace(new, steady=change < STEADY)
        size = frobenius(left)
        objective = size * size / 2.0 + lam * float(s.sum())
        notes = {"rank": float(r), "lam": lam}
        return Step(step, new, objective, change, notes, clock.look(), lam <= self.lam)

    def _leading(self, state: FactorState, lam: float) -> Triplets:
        """Triplets of the filled matrix with values above the strength."""
        count = state.rank + SPARE
        m, n = self.entries.shape
        largest = float(state.s[0]) if state.rank else 0.0
        if largest + frobenius(state.left) <= lam:  # no value can be above it
            return Triplets(state.U[:, :0], np.empty(0), state.Vt[:0])
        if is_numpy_array(state.U) and min(m, n) > FEW and count <= MANY * min(m, n):
            found = self._some(state, lam, count)
            if found is not None:
                return found
        o, send = self.entries.observed, self.entries.home.send
        sparse = np.zeros((m, n))
        sparse[o.rows, o.indices] = self.entries.home.fetch(state.left)
        filled: Array = send(sparse) + (state.U * state.s) @ state.Vt
        return leading(filled, lam)

    def _some(self, state: FactorState, lam: float, count: int) -> Triplets | None:
        """The triplets by Lanczos, or None where they turn out to be many."""
        m, n = self.entries.shape
        A, Vt, S = state.U * state.s, state.Vt, self.entries
        operator = LinearOperator(
            (m, n),
            matvec=lambda x: S.times(state.left, x) + A @ (Vt @ x),
            rmatvec=lambda x: S.turned_times(state.left, x) + Vt.T @ (A.T @ x),
            dtype=np.float64,
        )
        found = lanczos(operator, lam, count, self.most)
        return None if found is None else above(found, lam)

    def end(self, last: Step) -> Ending:
        """Balanced factors."""
        state: FactorState = last.state
        fetch = self.entries.home.fetch
        root = np.sqrt(fetch(state.s))
        A, B = fetch(state.U) * root, root[:, None] * fetch(state.Vt)
        residual = ratio(frobenius(state.left), self.entries.size)
        return Ending(None, (A, B), residual, state.rank)
