r"""Factors of which few columns are left: FGSR.

The regularisers of `ncarl.solvers.groups` are Schatten norms to the powers 2/3 and 1/2
of the product, found without a singular value decomposition a step. With observed
entries held (`GroupSplit`, linearised ADMM):

.. code-block:: text

    A <- proximal gradient step; B <- ridge solution, or such a step too
    X <- observed values, A B - Y / mu in the gaps
    Y <- Y + mu (X - A B)

and with noise (`GroupGradient`, PALM) a proximal gradient step in each factor.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from array_api_compat import array_namespace

from ncarl.core.singular import triplets
from ncarl.core.types import Array
from ncarl.solvers.factored import first_of, product_rank, ridge_right, spectral_start
from ncarl.solvers.groups import NOTHING, Groups, gram_norm, pruned, shrunk_left
from ncarl.solvers.problem import Clock, Ending, Problem, Step, change_of, steps_of

#: First threshold of singular values over the largest, for p = 2/3 and p = 1/2.
CUT, HALF_CUT = 0.05, 0.15
#: Where there are gaps the threshold is at least this part of that.
LEAST = 0.2
#: Growth of ``mu`` in a step in which X moves by less than this part of what it differs
#: from the product, and in every step after so many.
GROWTH, CALM, PATIENCE = 1.02, 0.3, 400
#: Early on ``mu`` falls by this factor, every so many steps, while X moves by more than
#: so many times that.
FALL, EVERY, EARLY, APART = 1.5, 15, 200, 10.0
#: Columns are taken up again if so many steps late on bring the product no nearer to X
#: than this part of what it was.
LATE, PROGRESS = 50, 0.8


@dataclass(frozen=True, eq=False)
class GroupState:
    """Where the exact solver stands.

    Attributes
    ----------
    A, B : arrays of shape (m, d) and (d, n)
        The factors; d falls.
    X : array of shape (m, n)
        The completed matrix; it has the observed values.
    Y : array of shape (m, n)
        Multipliers; 0 in the gaps.
    mu : float
        Weight of the distance between X and ``A B``.
    residual : float
        ``||P(A B - M)|| / ||M||``.
    mark : float
        Distance of X and ``A B`` when it was last looked at whether it falls.
    """

    A: Array
    B: Array
    X: Array
    Y: Array
    mu: float
    residual: float = 1.0
    mark: float = math.inf


@dataclass(frozen=True)
class GroupSplit:
    """The solver with observed entries held: linearised ADMM.

    Attributes
    ----------
    problem : Problem
        The matrix to complete.
    groups : Groups
        The regulariser.
    rank : int
        Columns at the start.
    mu : float, optional
        First weight of the distance between X and ``A B``. By default so large that it
        lets through singular values above 0.05 (p = 1/2: 0.15) of the largest, and
        smaller ones too if the start has such.
    growth : float
        Growth of ``mu``; the slower, the better balanced the factors.
    """

    problem: Problem
    groups: Groups
    rank: int
    mu: float | None = None
    growth: float = GROWTH

    @property
    def degree(self) -> float:
        """That of the Schatten norm."""
        return self.groups.penalty.degree

    def begin(self) -> GroupState:
        """The best factors of the zero-filled matrix.

        Not made larger for the entries that are missing: what this adds to the small
        singular values takes many steps to get rid of.
        """
        found = spectral_start(self.problem, self.rank)
        A, B = self.groups.best(found)
        Y = array_namespace(A).zeros_like(self.problem.M)
        mu = self._first(found.s) if self.mu is None else self.mu
        return GroupState(A, B, self.problem.filled(A @ B), Y, mu)

    def _first(self, s: Array) -> float:
        """The default of the first ``mu``."""
        solid = s[s > NOTHING * s[0]]
        if len(solid) == 0:
            return 1.0
        usual = (HALF_CUT if self.groups.half else CUT) * float(solid[0])
        cut = min(usual, float(solid[-1]))
        if self.problem.density < 1.0:
            # So small a value among gaps is noise; to wait for it would take for ever.
            cut = max(cut, LEAST * usual)
        return self.groups.weight / self.groups.penalty.strength(cut)

    def steps(self, state: GroupState, step: int) -> Iterator[Step]:
        """Steps for ever."""
        return steps_of(self._step, state, step, self.problem)

    def _step(self, state: GroupState, step: int, clock: Clock) -> Step:
        """One step."""
        mu, Y = state.mu, state.Y
        W = state.X + Y / mu
        A, B = self._factors(state.A, state.B, W, mu)
        Z = A @ B
        X = self.problem.filled(Z - Y / mu)
        Y = Y + mu * (X - Z)
        primal, moved = change_of(X, Z), change_of(X, state.X)
        after = self._after(mu, step, primal, moved)
        residual, mark = self.problem.residual(Z), state.mark
        value = self.groups.value(A, B)
        notes = {"primal": primal, "rank": float(A.shape[1]), "mu": mu}
        change = max(primal, moved)
        if step > PATIENCE and step % LATE == 0:
            if primal > PROGRESS * mark and A.shape[1] < self.rank:
                A, B, Y = self._anew(X)
            mark = primal
        kept = GroupState(A, B, X, Y, after, residual, mark)
        return Step(step, kept, value, change, notes, clock.look())

    def _anew(self, X: Array) -> tuple[Array, Array, Array]:
        """Factors of X with all columns, and multipliers of 0.

        For when so many columns were dropped that no product agrees with the entries.
        """
        A, B = self.groups.best(first_of(triplets(X), self.rank))
        return A, B, array_namespace(X).zeros_like(X)

    def _after(self, mu: float, step: int, primal: float, moved: float) -> float:
        """The next ``mu``.

        One that is too large moves X too little, one that is too small drops columns
        that are needed; so it begins large and falls while the product keeps up. To
        let it grow sooner would freeze the way to a small regulariser.
        """
        if step <= EARLY and step % EVERY == 0 and moved > APART * primal:
            return mu / FALL
        grows = moved < CALM * primal or step > PATIENCE
        return self.growth * mu if grows else mu

    def _factors(self, A: Array, B: Array, W: Array, mu: float) -> tuple[Array, Array]:
        """The next factors for ``W = X + Y / mu``."""
        if self.groups.half:
            # Two short steps instead of one that solves, so twice.
            for _ in range(2):
                A = shrunk_left(A, W @ B.T, B @ B.T, 1.0 / mu)
                B = shrunk_left(B.T, W.T @ A, A.T @ A, self.groups.a / mu).T
            return pruned(A, B)
        A = shrunk_left(A, W @ B.T, B @ B.T, 1.0 / mu)
        if A.shape[1]:
            B = ridge_right(A, W, self.groups.a / mu)
        return pruned(A, B)

    def end(self, last: Step) -> Ending:
        """The matrix with its observed values."""
        state: GroupState = last.state
        rank = product_rank(state.A, state.B)
        return Ending(self.problem.home.fetch(state.X), None, state.residual, rank)


@dataclass(frozen=True, eq=False)
class NoisyState:
    """Where the noisy solver stands.

    Attributes
    ----------
    A, B : arrays of shape (m, d) and (d, n)
        The factors; d falls.
    """

    A: Array
    B: Array


@dataclass(frozen=True)
class GroupGradient:
    """The solver of ``1/2 ||P(A B) - M||^2 + lam regulariser``: PALM.

    Attributes
    ----------
    problem : Problem
        The matrix to complete.
    groups : Groups
        The regulariser.
    lam : float
        Its strength.
    rank : int
        Columns at the start.
    """

    problem: Problem
    groups: Groups
    lam: float
    rank: int
    degree: float = 2.0

    def begin(self) -> NoisyState:
        """The best factors of the zero-filled matrix, as large as a full one is."""
        found = spectral_start(self.problem, self.rank, 1.0 / self.problem.density)
        return NoisyState(*self.groups.best(found))

    def resume(self, state: NoisyState) -> NoisyState:
        """The product of another strength with its gaps, to go on from.

        Columns that are dropped never return; so the start is taken anew from the
        matrix that has the observed values, and the product's in the gaps.
        """
        found = triplets(self.problem.filled(state.A @ state.B))
        return NoisyState(*self.groups.best(first_of(found, self.rank)))

    def steps(self, state: NoisyState, step: int) -> Iterator[Step]:
        """Steps for ever."""
        return steps_of(self._step, state, step, self.problem)

    def _step(self, state: NoisyState, step: int, clock: Clock) -> Step:
        """A gradient step in each factor, each with its proximal map."""
        A, B, groups = state.A, state.B, self.groups
        old = A @ B
        # With gaps filled from the product a residual is one of the full matrix.
        W = self.problem.filled(old)
        A = shrunk_left(A, W @ B.T, B @ B.T, self.lam)
        G = A.T @ A
        W = self.problem.filled(A @ B)
        if groups.half:
            B = shrunk_left(B.T, W.T @ A, G, self.lam * groups.a).T
        else:
            bound = gram_norm(G)
            ahead = bound * B + A.T @ W - G @ B
            B = ahead / (bound + self.lam * groups.a)
        A, B = pruned(A, B)
        new = A @ B
        loss = (self.problem.residual(new) * self.problem.size) ** 2 / 2.0
        value = loss + self.lam * groups.value(A, B)
        notes = {"rank": float(A.shape[1])}
        change = change_of(new, old)
        return Step(step, NoisyState(A, B), value, change, notes, clock.look())

    def end(self, last: Step) -> Ending:
        """The factors."""
        A, B = last.state.A, last.state.B
        fetch = self.problem.home.fetch
        residual = self.problem.residual(A @ B)
        return Ending(None, (fetch(A), fetch(B)), residual, product_rank(A, B))
