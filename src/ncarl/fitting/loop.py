"""`drive`, the loop that runs every solver: history, convergence, checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from ncarl.fitting.checkpoint import CheckpointFile

I = TypeVar("I", bound="Iterate")  # noqa: E741


class Iterate(Protocol):
    """What a solver yields after each step.

    ``step`` counts from 1, ``objective`` is minimized, ``change`` is the relative
    change of the state, and means convergence if it is small and ``may_stop`` is true.
    An attribute ``notes`` may hold further columns of the history.
    """

    step: Any
    objective: Any
    change: Any
    may_stop: Any
    jitter: Any  # largest relative jitter of the step
    seconds: Any  # of the step, by part


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

    def until(self, step: int) -> dict[str, list[float]]:
        """The records up to ``step``: an interruption may have left a partial one."""
        count = self.columns["step"].index(step) + 1
        return {name: column[:count] for name, column in self.columns.items()}


class NoStepError(ValueError):
    """An iteration ended before its first step."""


def drive(
    start: Callable[[I | None], Iterator[I]],
    *,
    max_iter: int,
    tol: float,
    observers: Sequence[Callable[[I, History], object]] = (),
    scale: float = 1.0,
    checkpoint: CheckpointFile | None = None,
    pack: Callable[[I], tuple[dict[str, Any], dict[str, Any]]] | None = None,
    unpack: Callable[[Mapping[str, Any], Mapping[str, Any], History], I] | None = None,
) -> FitResult[I]:
    """Run a solver until it converges, an observer ends it, or at ``max_iter`` steps.

    Parameters
    ----------
    start : callable
        Makes the iterator of the solver, after the step of a checkpoint if one is
        given, else (None) from the beginning.
    max_iter : int
        Most steps, counted by the iterates' own ``step``.
    tol : float
        Stop once ``change < tol``; 0 runs all steps.
    observers : sequence of callable
        Called after each step with iterate and history; one that returns True ends
        the run.
    scale : float
        Factor that brings the objective to the user's units.
    checkpoint : CheckpointFile, optional
        Where to resume from, and to save steps to.
    pack, unpack : callable
        From an iterate to a header and arrays, and from those and the history back.

    Raises
    ------
    KeyboardInterrupt
        If interrupted before the first step is complete; later the last complete step
        is returned with ``interrupted`` set.
    """
    history, resumed = History(), None
    if checkpoint is not None and (kept := checkpoint.load()) is not None:
        assert unpack is not None
        with checkpoint.corrupt_on_error():
            history = History(kept[0]["history"])
            last = unpack(*kept, history)
            checkpoint.position = f"step {last.step}"
            converged = last.may_stop and last.change < tol
        resumed = FitResult(last, history.columns, converged)
        if converged or last.step >= max_iter:
            return resumed

    def save(iterate: I, *, at_end: bool = False) -> None:
        def make_contents() -> tuple[dict[str, Any], dict[str, Any]]:
            assert pack is not None
            header, arrays = pack(iterate)
            return {**header, "history": history.until(iterate.step)}, arrays

        if checkpoint is not None:
            checkpoint.maybe_save(f"step {iterate.step}", make_contents, last=at_end)

    result: FitResult[I] | None = None
    try:
        for iterate in start(resumed.last if resumed else None):
            history.add(iterate, scale)
            converged = iterate.may_stop and iterate.change < tol
            result = FitResult(iterate, history.columns, converged=converged)
            save(iterate)
            stops = [observer(iterate, history) is True for observer in observers]
            if converged or any(stops) or iterate.step >= max_iter:
                break
    except KeyboardInterrupt:
        if result is None:
            raise
        result.interrupted = True
    if result is None:
        if resumed is None:
            raise NoStepError("the solver made no step")
        resumed.converged = True  # at the limit of floating-point resolution
        return resumed
    save(result.last, at_end=True)
    return result
