"""What EM on kernel and noise passes around: states, beliefs, and steps."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ncarl.core.types import Array, Kernel
from ncarl.engines import Engine


@dataclass(frozen=True)
class State:
    """What is learned; arrays of length n or n x n, where the engine keeps them.

    Attributes
    ----------
    K : array of shape (n, n)
        Covariance of the columns.
    noise : array of shape (n,)
        Variance of the noise in each column; all 0 in a model without noise.
    mean : array of shape (n,)
        Mean of each column.
    noisy : bool
        Whether there is noise at all.
    """

    K: Array
    noise: Array
    mean: Array
    noisy: bool = True

    def moved(self, move: Callable[[Any], Any]) -> State:
        """The state with its arrays moved elsewhere."""
        return State(move(self.K), move(self.noise), move(self.mean), self.noisy)


@dataclass(frozen=True)
class Belief:
    """The prior, and which parts of the state are learned.

    Attributes
    ----------
    Psi : array of shape (n, n)
        Prior correlation of the columns.
    strength : float
        Rows that the prior counts as (``nu``).
    learn_noise : {"learn", "per-column", None}
        One noise for all columns, one for each, or as it is.
    learn_mean : bool
        Whether the means are learned.
    """

    Psi: Array
    strength: float
    learn_noise: str | None = "learn"
    learn_mean: bool = True


@dataclass(frozen=True)
class Rows:
    """The rows, placed by an engine, and how many entries they have."""

    engine: Engine
    blocks: Any
    counts: Array
    n_rows: int
    n_observed: int
    missing_side: bool
    least_noise: float


@dataclass(frozen=True)
class Assessed:
    """A state and what one pass over the rows says of it.

    Attributes
    ----------
    state, following : State
        The state, and where EM goes from there.
    evidence, penalised : float
        Log evidence of the state, and with the penalty of the prior.
    jitter : float
        Largest relative jitter of the pass.
    seconds : dict
        Seconds by part.
    kernel : Kernel or None
        The state's kernel in units of the noise; None where it is not a kernel.
    scales : array of shape (n,) or None
        What values are multiplied by to be in those units.
    """

    state: State
    following: State
    evidence: float
    penalised: float
    jitter: float
    seconds: dict[str, float]
    kernel: Kernel | None = None
    scales: Array | None = None


@dataclass(frozen=True)
class Climb:
    """Where the iteration stands: enough to go on from.

    Attributes
    ----------
    state : State
        To be assessed next.
    plain : State or None
        Where a step of ordinary length ends, if ``state`` is beyond that.
    length : float
        Length of the step that led to ``state``; 1 is EM's own.
    penalised : float
        Penalised evidence before that step.
    """

    state: State
    plain: State | None = None
    length: float = 1.0
    penalised: float = -math.inf


@dataclass(frozen=True)
class Iterate:
    """A state on the way up, for `ncarl.loop.drive`."""

    step: int
    found: Assessed
    change: float
    climb: Climb
    may_stop: bool = True
    notes: dict[str, float] = field(default_factory=dict)

    @property
    def objective(self) -> float:
        """What EM lowers: minus the penalised evidence."""
        return -self.found.penalised

    @property
    def jitter(self) -> float:
        """Largest relative jitter of this step."""
        return self.found.jitter

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds of this step by part."""
        return self.found.seconds
