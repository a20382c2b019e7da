"""The loop that drives every solver, its history, and progress bars."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

I = TypeVar("I", bound="Iterate")  # noqa: E741


class Iterate(Protocol):
    """What a solver yields after each step."""

    @property
    def step(self) -> int:
        """Steps made so far, from 1."""
        ...

    @property
    def objective(self) -> float:
        """Value of the objective, which is minimized."""
        ...

    @property
    def change(self) -> float:
        """Relative change of the state in this step."""
        ...

    @property
    def may_stop(self) -> bool:
        """Whether a small change means convergence."""
        ...

    @property
    def jitter(self) -> float:
        """Largest relative jitter of this step."""
        ...

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds of this step by part."""
        ...


@dataclass(frozen=True)
class StepInfo:
    """The argument of callbacks, which are called after each step.

    Attributes
    ----------
    step, max_iter : int
        Steps made so far, and the maximum.
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
class FitResult(Generic[I]):
    """The result of a run."""

    last: I  # the last complete step
    history: dict[str, list[float]]  # one value a step in every column
    converged: bool = False  # whether the change fell below the tolerance
    interrupted: bool = False  # by Ctrl-C


@dataclass
class History:
    """Records of the steps, as columns."""

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
) -> FitResult[I]:
    """Run a solver until it converges, an observer ends it, or at ``max_iter`` steps.

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
        If interrupted before the first step is complete; later the last complete step
        is returned with ``interrupted`` set.
    """
    result: FitResult[I] | None = None
    try:
        for iterate in iterates:
            history.add(iterate, scale)
            converged = iterate.may_stop and iterate.change < tol
            result = FitResult(iterate, history.columns, converged=converged)
            stops = [observer(iterate, history) is True for observer in observers]
            if converged or any(stops) or iterate.step >= max_iter:
                break
    except KeyboardInterrupt:
        if result is None:
            raise
        result.interrupted = True
    if result is None:
        raise NoStepError("the solver made no step")
    return result
