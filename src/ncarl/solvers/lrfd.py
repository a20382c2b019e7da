r"""The nuclear norm of coefficients in a dictionary that a first completion gives.

``min ||Z||_*`` such that ``D Z`` agrees with the observed entries. The run has stages:
the completion of least nuclear norm, from which D is made, and then ADMM,

.. code-block:: text

    J <- prox(Z + Y / mu)
    Z <- of those that meet the observed entries, the nearest to J - Y / mu
    Y <- Y + mu (Z - J)

in coordinates of the rank of D, in which J is as small as can be. The second step is a
projection in every column; giving D Z a copy of its own instead takes a hundred times
as many steps where D is ill-conditioned. Where D cannot meet the observed entries, or
noise is allowed for, the last stage is ``min lam ||Z||_* + 1/2 ||P(D Z) - M||^2`` by
accelerated proximal steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from ncarl.core.singular import spectral_norm
from ncarl.core.types import Array
from ncarl.penalties import NuclearNorm
from ncarl.solvers.coefficients import (
    COMPLETION,
    EXACT,
    PENALISED,
    Done,
    LRFDState,
    exact_step,
    penalised_step,
)
from ncarl.solvers.dictionary import Reach, from_completion, reduced
from ncarl.solvers.problem import Clock, Ending, Problem, Step, steps_of
from ncarl.solvers.split import Balanced, Split, SplitState

#: Steps after which the first completion is taken as it is.
MOST_FIRST = 500
#: Part of the observed values that a dictionary may leave out and still be said to meet
#: them: as much as it is off for being made of a completion that was ended early.
MET = 1e-4
#: Strength of the penalised form over the least with which the result is 0.
USUAL_LAM = 1e-4


@dataclass(frozen=True)
class LRFDSolver:
    """The solver.

    Attributes
    ----------
    problem : Problem
        The matrix to complete.
    kind : {"columns", "basis"}
        How the dictionary is made of a completed matrix.
    given : array of shape (m, k), optional
        A dictionary to use instead.
    rounds : int
        Dictionaries made one after the other.
    lam : float, optional
        Strength of the penalised form; None for the exact one.
    rank_tol : float
        See `ncarl.solvers.dictionary.from_completion`.
    tol : float
        What the change must fall below for a stage to end.
    found : dict
        What the last dictionary can reach.
    """

    problem: Problem
    kind: str
    given: Any
    rounds: int
    lam: float | None
    rank_tol: float
    tol: float
    degree: float = 1.0
    found: dict[str, Any] = field(default_factory=dict, repr=False)

    @cached_property
    def first(self) -> Split:
        """The solver of the first stage."""
        schedule = Balanced(1.0 / self.problem.top)
        return Split(self.problem, NuclearNorm(), schedule, proof=self.tol)

    def begin(self) -> LRFDState:
        """Zeros in the gaps, and no dictionary unless it is given."""
        M = self.problem.M
        zero, none = 0.0 * M, 0.0 * M[:1]
        state = LRFDState(
            M, zero, zero[:, :1], zero[:, :1], none, none, none,
            1.0 / self.problem.top,
        )  # fmt: skip
        if self.given is None:
            return state
        with self.problem.home.work(min(self.problem.shape)):
            given = self.problem.home.send(np.array(self.given, dtype=np.float64))
            return self._with_dictionary(state, given, 0)

    def steps(self, state: LRFDState, step: int) -> Iterator[Step]:
        """Steps for ever."""
        return steps_of(self._step, state, step, self.problem)

    def _step(self, state: LRFDState, step: int, clock: Clock) -> Step:
        """One step of the stage, and the next dictionary where it ends a round."""
        if state.stage == COMPLETION:
            done = self._complete(state, step)
        elif state.stage == EXACT:
            reach = self._reach(state.base)
            done = exact_step(self.problem, reach, state, step, self.tol)
        else:
            done = penalised_step(self.problem, state)
        new, value, change, notes, may_stop = done
        notes = notes | {
            "stage": float(state.stage),
            "round": float(state.round),
            "rank": float(new.rank),
        }
        settled = may_stop and change < self.tol
        if state.stage == COMPLETION:
            may_stop = False
            if settled or step - state.begun >= MOST_FIRST:
                new = self._next_dictionary(new, step)
        elif settled and state.round < self.rounds:
            may_stop = False
            new = self._next_dictionary(replace(new, round=state.round + 1), step)
        return Step(step, new, value, change, notes, clock.look(), may_stop)

    def _complete(self, state: LRFDState, step: int) -> Done:
        """A step of the completion of least nuclear norm."""
        before = SplitState(state.X, state.Y, state.mu, state.rank, state.residual)
        done = self.first._step(before, step - state.begun, Clock())
        own: SplitState = done.state
        new = replace(
            state, X=own.X, Y=own.Y, mu=own.mu, rank=own.rank, residual=own.residual
        )
        kept = {name: done.notes[name] for name in ("primal", "dual", "gap", "mu")}
        return Done(new, done.objective, done.change, kept, done.may_stop)

    # --- dictionaries ----------------------------------------------------------------

    def _reach(self, base: Array) -> Reach:
        """What meets the observed entries with a dictionary, found once for each."""
        if self.found.get("base") is not base:
            self.found.update(base=base, reach=Reach.of(self.problem, base))
        reach: Reach = self.found["reach"]
        return reach

    def _next_dictionary(self, state: LRFDState, step: int) -> LRFDState:
        """The state with a dictionary made of its completed matrix."""
        X = self._completed(state)
        D = from_completion(X, self.kind, self.rank_tol)
        new = self._with_dictionary(state, D, step)
        if new.stage != EXACT:
            return new
        # What is known of the solution: the matrix, and the multipliers it came with.
        xp = array_namespace(D)
        squares = xp.sum(new.base * new.base, axis=0)
        squares = xp.where(squares > 0.0, squares, xp.ones_like(squares))
        Z = self._reach(new.base).nearest((new.base.T @ X) / squares[:, None])
        Y2 = new.base.T @ state.Y if state.stage == COMPLETION else new.Y2
        return replace(new, Z=Z, J=Z, Y2=Y2)

    def _with_dictionary(self, state: LRFDState, D: Array, step: int) -> LRFDState:
        """The state before the first step with a dictionary."""
        base, norm = reduced(D)
        state = replace(state, dictionary=D, base=base, norm=norm, begun=step)
        if self.lam is not None:
            return self._allowed(state)
        reach = self._reach(base)
        if reach.left > MET:
            return self._allowed(state)
        Z = reach.shortest
        mu = 1.0 / (spectral_norm(Z) or 1.0)
        return replace(state, Z=Z, J=Z, Y2=0.0 * Z, mu=mu, stage=EXACT)

    def _allowed(self, state: LRFDState) -> LRFDState:
        """The start of the penalised form: zeros, with a strength that keeps them."""
        xp = array_namespace(state.base)
        product = state.base.T @ self.problem.M
        largest = spectral_norm(product) or 1.0
        if self.lam is None:
            # A direction of length s pays lam / s for what it gives to the matrix; the
            # strength is the usual one in the middle of all directions.
            squares = xp.sum(state.base * state.base, axis=0)
            last = USUAL_LAM * largest * _middle(self.problem.home.fetch(squares))
        else:
            last = self.lam / state.norm
        zero = 0.0 * product
        return replace(
            state, Z=zero, J=zero, Y2=zero, stage=PENALISED,
            lam=max(last, largest), last_lam=last, pace=1.0, objective=math.inf,
        )  # fmt: skip

    def _completed(self, state: LRFDState) -> Array:
        """The completed matrix: ``D Z``, with observed values put back if exact."""
        if state.stage == COMPLETION:
            return state.X
        if state.stage == EXACT:
            return self.problem.filled(state.base @ state.J)
        return state.base @ state.Z

    def end(self, last: Step) -> Ending:
        """The matrix and its dictionary."""
        state: LRFDState = last.state
        penalised = state.stage == PENALISED
        fetch = self.problem.home.fetch
        extras = {
            "dictionary_": fetch(state.dictionary),
            "penalised_": penalised,
            "lam_": state.last_lam * state.norm if penalised else None,
        }
        X = fetch(self._completed(state))
        return Ending(X, None, state.residual, max(state.rank, 0), extras)


def _middle(squares: Any) -> float:
    """Geometric mean of lengths whose squares are given; 1 if one of them is 0."""
    return float(np.exp(np.log(squares).mean() / 2.0)) if squares.all() else 1.0
