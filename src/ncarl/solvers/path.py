"""Ever weaker penalties, each started from where the one before ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

from ncarl.solvers.problem import Ending, Solver, Step
from ncarl.solvers.run import run

#: Strengths that are tried: each is so much of the one before, at most so many.
FALL, MOST = 0.7, 40
#: The walk ends when so many strengths that let in more directions have brought
#: nothing better than the best, or so many of any kind, or when one that did has made
#: the error larger by this factor.
PATIENCE, LONGEST, WORSE = 2, 8, 1.05


class PathSolver(Solver, Protocol):
    """A solver that can start where one with another strength ended."""

    def resume(self, state: Any) -> Any:
        """The state to start from, from the last one of another strength."""
        ...


@dataclass(frozen=True)
class Tried:
    """One strength of a walk.

    Attributes
    ----------
    strength : float
        The strength, in the solver's units.
    error : float
        Error on the entries that were held out.
    steps, rank : int
        Steps made, and the rank of the result.
    """

    strength: float
    error: float
    steps: int
    rank: int


@dataclass(frozen=True)
class Resumed:
    """A solver that starts where one with another strength, or other entries, ended.

    Attributes
    ----------
    solver : PathSolver
        Makes the steps.
    state
        The last state of the other.
    """

    solver: PathSolver
    state: Any

    @property
    def degree(self) -> float:
        """That of the solver."""
        return self.solver.degree

    def begin(self) -> Any:
        """The state to start from."""
        return self.solver.resume(self.state)

    def steps(self, state: Any, step: int) -> Iterator[Step]:
        """Steps of the solver."""
        return self.solver.steps(state, step)

    def end(self, last: Step) -> Ending:
        """The end of the solver."""
        return self.solver.end(last)


def walk(
    make: Callable[[float], PathSolver],
    largest: float,
    score: Callable[[Ending], float],
    *,
    max_iter: int = 200,
    tol: float,
    small: float = 0.0,
    tried: Callable[[Tried], None] = lambda _: None,
) -> tuple[list[Tried], Any]:
    """Try falling strengths till the error on held-out entries falls no more.

    Gives all that were tried, and the last state of the best.

    Parameters
    ----------
    make : callable
        The solver for a strength.
    largest : float
        The least strength with which the result is 0.
    score : callable
        Error of a result on held-out entries.
    max_iter, tol
        When the run for one strength ends.
    small : float
        An error at or below which no other strength is tried.
    tried : callable
        Told of every strength tried.
    """
    table: list[Tried] = []
    state: Any = None
    best_state: Any = None
    for k in range(1, MOST + 1):
        strength = largest * FALL**k
        solver = make(strength)
        start = solver.begin() if state is None else solver.resume(state)
        result = run(solver, max_iter=max_iter, tol=tol, state=start)
        if result.interrupted:
            raise KeyboardInterrupt
        state = result.last.state
        ending = solver.end(result.last)
        table.append(Tried(strength, score(ending), result.last.step, ending.rank))
        tried(table[-1])
        best = min(range(len(table)), key=lambda i: table[i].error)
        if best == len(table) - 1:
            best_state = state
        if table[best].error <= small or _enough(table[best:]):
            break
    return table, best_state


def _enough(since: list[Tried]) -> bool:
    """Whether the strengths since the best, which comes first, have been tried enough.

    Penalties that are not convex let in a direction now and then; in between errors
    hardly change, and say nothing of what the next direction brings.
    """
    wider = sum(one.rank < other.rank for one, other in pairwise(since))
    worse = wider > 0 and since[-1].error > WORSE * since[0].error
    return worse or wider >= PATIENCE or len(since) - 1 >= LONGEST
