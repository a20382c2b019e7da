"""The matrix to complete as a solver sees it, and what a solver gives back."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from array_api_compat import array_namespace

from ncarl.core.singular import frobenius, spectral_norm
from ncarl.core.types import Array
from ncarl.homes import Home
from ncarl.observed import Observed


@dataclass(frozen=True, eq=False)
class Problem:
    """A matrix with gaps, dense where its home is.

    Attributes
    ----------
    M : array of shape (m, n)
        The observed values, 0 in the gaps.
    seen : array of bool, shape (m, n)
        Where entries are observed.
    observed : Observed
        The same entries, in the memory of this process.
    home : Home
        Where arrays are worked on.
    """

    M: Array
    seen: Array
    observed: Observed
    home: Home

    @classmethod
    def of(cls, observed: Observed, home: Home) -> Problem:
        """The dense form of observed entries, sent to a home."""
        M = np.zeros(observed.shape)
        seen = np.zeros(observed.shape, dtype=bool)
        M[observed.rows, observed.indices] = observed.values
        seen[observed.rows, observed.indices] = True
        return cls(home.send(M), home.send(seen), observed, home)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.observed.shape

    @cached_property
    def size(self) -> float:
        """Frobenius norm of the observed values."""
        return frobenius(self.observed.values)

    @cached_property
    def top(self) -> float:
        """Largest singular value of the zero-filled matrix; 1 if it is 0."""
        return spectral_norm(self.observed.to_csr()) or 1.0

    @cached_property
    def rms(self) -> float:
        """Root mean square of the observed values; 1 if they are 0."""
        return self.size / math.sqrt(self.observed.n_observed) or 1.0

    @property
    def density(self) -> float:
        """Part of the entries that is observed."""
        m, n = self.shape
        return self.observed.n_observed / (m * n)

    def filled(self, X: Array) -> Array:
        """Observed values, and those of ``X`` in the gaps."""
        return array_namespace(X).where(self.seen, self.M, X)

    def residual(self, X: Array) -> float:
        """``||P(X - M)|| / ||M||``; 0 where both vanish."""
        xp = array_namespace(X)
        return ratio(frobenius(xp.where(self.seen, X - self.M, xp.zeros_like(X))),
                     self.size)  # fmt: skip


@dataclass(frozen=True)
class Step:
    """The state after a step, and what is worth recording of it.

    Attributes
    ----------
    step : int
        Steps made so far, from 1.
    state : dataclass
        Arrays and numbers from which the solver goes on.
    objective : float
        Value of what the solver lowers.
    change : float
        What must fall below the tolerance.
    notes : dict of float
        What else the history records, such as residuals and the rank.
    seconds : dict of float
        Seconds of the step.
    may_stop : bool
        Whether a small change means that the solver has settled.
    """

    step: int
    state: Any
    objective: float
    change: float
    notes: dict[str, float] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    may_stop: bool = True
    jitter: float = 0.0


@dataclass(frozen=True)
class Ending:
    """What a solver has to say when it is done, in the memory of this process.

    Attributes
    ----------
    X : array of shape (m, n), or None
        The completed matrix; None where ``factors`` stand for it.
    factors : pair of arrays, or None
        ``A`` (m, d) and ``B`` (d, n) whose product completes the matrix.
    residual : float
        ``||P(X - M)|| / ||M||`` before observed entries were put back.
    rank : int
        Rank of the completed matrix before that.
    extras : dict
        Fitted attributes that only this model has, by name.
    """

    X: Array | None
    factors: tuple[Array, Array] | None
    residual: float
    rank: int
    extras: dict[str, Any] = field(default_factory=dict)


class Solver(Protocol):
    """Steps from a state to the next, for ever; `ncarl.loop.drive` says when to end."""

    @property
    def degree(self) -> float:
        """How the objective grows with the matrix, for its units."""
        ...

    def begin(self) -> Any:
        """The state before the first step: a dataclass of arrays and numbers."""
        ...

    def steps(self, state: Any, step: int) -> Iterator[Step]:
        """Steps from a state after ``step`` of them."""
        ...

    def end(self, last: Step) -> Ending:
        """The completed matrix that the last step stands for."""
        ...


def ratio(part: float, whole: float) -> float:
    """``part / whole``, infinite where only ``whole`` is 0, and 0 where both are."""
    if whole > 0.0:
        return part / whole
    return 0.0 if part == 0.0 else math.inf


def change_of(new: Array, old: Array) -> float:
    """``||new - old|| / ||new||``; no change from 0 to 0."""
    return ratio(frobenius(new - old), frobenius(new))


#: Steps shorter than this (see `step_size`) let a strength fall, and end a trial.
STEADY = 1e-2


def step_size(moved: float, cut: float, rank: int) -> float:
    """How far a step went, over the least that a matrix of this rank can be.

    With a weak penalty steps get short long before the matrix is where it belongs;
    measured by what the penalty lets through they do not.

    Parameters
    ----------
    moved : float
        Frobenius norm of the step.
    cut : float
        Singular values at or below it are sent to 0.
    rank : int
        Rank of the matrix.
    """
    return ratio(moved, cut * math.sqrt(max(rank, 1)))


class Clock:
    """Seconds since the last look."""

    def __init__(self) -> None:
        self.start = time.perf_counter()

    def look(self) -> dict[str, float]:
        """Seconds since the last look, as a step records them."""
        now = time.perf_counter()
        passed, self.start = now - self.start, now
        return {"step": passed}


class AtHome(Protocol):
    """Entries that are worked on at some home."""

    @property
    def home(self) -> Home:
        """Where arrays are worked on."""
        ...

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        ...


def steps_of(
    make: Callable[[Any, int, Clock], Step], state: Any, step: int, entries: AtHome
) -> Iterator[Step]:
    """Steps for ever, each made from the state of the one before.

    Parameters
    ----------
    make : callable
        The step after a state, by its number; the clock tells how long it took.
    state, step
        Where to begin, after so many steps.
    entries : Problem or Entries
        What is worked on; its home sets the stage for each step.
    """
    clock = Clock()
    while True:
        step += 1
        with entries.home.work(min(entries.shape)):
            done = make(state, step, clock)
        yield done
        state = done.state
