"""The one loop that drives every solver: stopping, history, observers, interruption."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar


class Iterate(Protocol):
    """What a solver yields after each step."""

    @property
    def step(self) -> int:
        """Steps made so far, from 1."""
        ...

    @property
    def objective(self) -> float:
        """Value of what the solver lowers."""
        ...

    @property
    def change(self) -> float:
        """Relative change of the state in this step."""
        ...

    @property
    def may_stop(self) -> bool:
        """Whether a small change means that the solver has settled."""
        ...

    @property
    def jitter(self) -> float:
        """Largest relative jitter of this step."""
        ...

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds of this step by part."""
        ...


I = TypeVar("I", bound=Iterate)  # noqa: E741


@dataclass(frozen=True)
class StepInfo:
    """What a callback is told after each step.

    Attributes
    ----------
    step, max_iter : int
        Steps made, and the most that will be made.
    objective : float
        Value of the objective.
    change : float
        Relative change of what is fitted; the fit stops below ``tol``.
    seconds : float
        Seconds that the step took.
    """

    step: int
    max_iter: int
    objective: float
    change: float
    seconds: float


@dataclass
class Result(Generic[I]):
    """Where a run ended.

    Attributes
    ----------
    last : Iterate
        The last whole step.
    history : dict of list
        One entry a step.
    converged : bool
        Whether the change fell below the tolerance.
    interrupted : bool
        Whether the run was ended from outside (Ctrl-C).
    """

    last: I
    history: dict[str, list[float]]
    converged: bool = False
    interrupted: bool = False


@dataclass
class History:
    """Records of the steps, by column."""

    columns: dict[str, list[float]] = field(default_factory=dict)

    def add(self, iterate: Iterate, scale: float) -> None:
        """Record one step; ``scale`` brings the objective to the user's units."""
        row = {
            "step": iterate.step,
            "objective": iterate.objective * scale,
            "change": iterate.change,
            "jitter": iterate.jitter,
            **getattr(iterate, "notes", {}),
            **{f"seconds_{part}": s for part, s in iterate.seconds.items()},
        }
        for name, value in row.items():
            self.columns.setdefault(name, []).append(value)


class NoStepError(ValueError):
    """An iteration ended before its first step."""


def drive(
    iterates: Iterator[I],
    *,
    max_iter: int,
    tol: float,
    observers: list[Callable[[I, History], object]],
    history: History,
    scale: float = 1.0,
) -> Result[I]:
    """Run a solver until it settles, is told to stop, or has made ``max_iter`` steps.

    Parameters
    ----------
    iterates : iterator
        The solver.
    max_iter : int
        Most steps, counted by the iterates' own ``step``.
    tol : float
        Stop once ``change < tol``; 0 runs all steps.
    observers : list of callable
        Called after each step with iterate and history; one that returns True ends
        the run.
    history : History
        Records of earlier steps, if the run goes on from a checkpoint.
    scale : float
        Factor that brings the objective to the user's units.

    Raises
    ------
    KeyboardInterrupt
        If interrupted before the first step is whole; later the last whole step is
        returned with ``interrupted`` set.
    """
    result: Result[I] | None = None
    try:
        for iterate in iterates:
            history.add(iterate, scale)
            settled = iterate.may_stop and iterate.change < tol
            result = Result(iterate, history.columns, converged=settled)
            told = [observer(iterate, history) is True for observer in observers]
            if settled or any(told) or iterate.step >= max_iter:
                break
    except KeyboardInterrupt:
        if result is None:
            raise
        result.interrupted = True
    if result is None:
        raise NoStepError("the solver made no step")
    return result
