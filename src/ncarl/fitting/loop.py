"""`drive`, the loop that runs every solver: history, convergence, checkpoints."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, Generic, TypeVar

from ncarl.core.types import Array
from ncarl.engines.cores import fit_threads
from ncarl.fitting.checkpoint import CheckpointContents, CheckpointFile

S = TypeVar("S")


@dataclass(frozen=True)
class Iterate(Generic[S]):
    """What a solver yields after each step."""

    state: S  # from which the solver continues
    objective: float  # which is minimized
    change: float  # relative change of the state, compared with the tolerance
    notes: dict[str, float] = field(default_factory=dict)  # further history columns
    may_stop: bool = True  # whether a small change means convergence
    step: int = 0  # steps made so far, from 1
    seconds: dict[str, float] = field(default_factory=dict)  # of the step, by part
    jitter: float = 0.0  # largest relative jitter of the step


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
class FitResult(Generic[S]):
    """The result of a run."""

    last: Iterate[S]  # the last complete step
    history: dict[str, list[float]]  # one value per step in every column
    converged: bool = False  # whether the change fell below the tolerance
    interrupted: bool = False  # by Ctrl-C


@dataclass
class History:
    """Records of the steps, as columns."""

    columns: dict[str, list[float]] = field(default_factory=dict)

    def add(self, iterate: Iterate[Any], scale: float) -> None:
        """Record one step; ``scale`` brings the objective to the user's units."""
        row = {
            "step": iterate.step,
            "objective": iterate.objective * scale,
            "change": iterate.change,
            "jitter": iterate.jitter,
            **iterate.notes,
            **{f"seconds_{part}": s for part, s in iterate.seconds.items()},
        }
        for name, value in row.items():
            self.columns.setdefault(name, []).append(value)

    def until(self, step: int) -> dict[str, list[float]]:
        """The records up to ``step``: an interruption may have left a partial one."""
        count = self.columns["step"].index(step) + 1
        return {name: column[:count] for name, column in self.columns.items()}


#: Called after each step; one that returns True ends the run.
Observer = Callable[[Iterate[Any], History], object]


def drive(
    # Makes the iterator of the solver, after the step of a checkpoint if there is one.
    start: Callable[[Iterate[S] | None], Iterator[Iterate[S]]],
    *,
    max_iter: int,  # counted by the iterates' own ``step``
    tol: float,  # stop once ``change < tol``; 0 runs all steps
    observers: Sequence[Observer] = (),
    scale: float = 1.0,  # brings the objective to the user's units
    checkpoint: CheckpointFile | None = None,  # to resume from, and to save to
    # From a state to a JSON header and NumPy arrays, and back.
    pack: Callable[[S], CheckpointContents] | None = None,
    unpack: Callable[[Mapping[str, Any], Mapping[str, Array]], S] | None = None,
) -> FitResult[S]:
    """Run a solver until it converges, an observer ends it, or at ``max_iter`` steps.

    The checkpoint is resumed from if its file exists. Ctrl-C ends the run with the
    last complete step, and ``interrupted`` set.
    """
    history, resumed = History(), None
    threads = fit_threads()
    threads.begin_run(fixed=checkpoint is not None)
    if checkpoint is not None and (kept := checkpoint.load()) is not None:
        header, arrays = kept
        with checkpoint.corrupt_on_error():
            assert unpack is not None
            history, steps = History(header["history"]), header["history"]["step"]
            columns = [history.columns["objective"], *history.columns.values()]
            # The sums raise unless they are of numbers.
            lengths = {len([x + 0.0 for x in column]) for column in columns}
            if lengths != {len(steps)} or steps != list(range(1, len(steps) + 1)):
                raise ValueError("its history does not list the steps")
            last = Iterate(
                unpack(header, arrays),
                objective=float(header["objective"]),
                change=float(history.columns["change"][-1]),
                notes=dict(header["notes"]),
                may_stop=bool(header["may_stop"]),
                step=len(steps),
                jitter=float(history.columns["jitter"][-1]),
            )
        checkpoint.position = f"step {last.step}"
        converged = last.may_stop and last.change < tol
        resumed = FitResult(last, history.columns, converged)
        if converged or last.step >= max_iter:
            return resumed

    def save(iterate: Iterate[S], *, at_end: bool = False) -> None:
        def make_contents() -> CheckpointContents:
            assert pack is not None
            header, arrays = pack(iterate.state)
            own = {
                "objective": iterate.objective,
                "notes": iterate.notes,
                "may_stop": iterate.may_stop,
                "history": history.until(iterate.step),
            }
            return {**header, **own}, arrays

        if checkpoint is not None:
            checkpoint.maybe_save(f"step {iterate.step}", make_contents, last=at_end)

    result: FitResult[S] | None = None
    try:
        iterates = start(resumed.last if resumed else None)
        threads.begin_step()
        if checkpoint is not None and resumed is not None:
            with checkpoint.corrupt_on_error():  # of a state that is none to start from
                first = list(islice(iterates, 1))
                if any(math.isnan(iterate.change) for iterate in first):
                    raise ValueError("its numbers give no next step")
            iterates = chain(first, iterates)
        for iterate in iterates:
            threads.end_step()
            history.add(iterate, scale)
            converged = iterate.may_stop and iterate.change < tol
            result = FitResult(iterate, history.columns, converged=converged)
            save(iterate)
            stops = [observer(iterate, history) is True for observer in observers]
            if converged or any(stops) or iterate.step >= max_iter:
                break
            threads.begin_step()
    except KeyboardInterrupt:
        if result is None:
            raise
        result.interrupted = True
    if result is None:
        if resumed is None:
            raise ValueError("the solver made no step")
        resumed.converged = True  # at the limit of floating-point resolution
        return resumed
    save(result.last, at_end=True)
    return result
