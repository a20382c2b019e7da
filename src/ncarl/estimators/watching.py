"""Progress bar and callback as observers of a run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from ncarl.loop import History, Iterate, StepInfo
from ncarl.progress import progress_bar

#: Fits of every kind take these; what they yield is an `Iterate`.
Observer = Callable[[Any, History], object]


@contextlib.contextmanager
def watchers(
    progress: bool,
    callback: Callable[[StepInfo], object] | None,
    max_iter: int,
    label: str,
) -> Iterator[list[Observer]]:
    """Observers that move a bar and call back after each step.

    A callback that returns True ends the fit; the last step is kept.
    """
    with progress_bar(progress, max_iter, label) as advance:

        def show(iterate: Iterate, history: History) -> None:
            advance(f"change {iterate.change:.1e}")

        def call(iterate: Iterate, history: History) -> object:
            assert callback is not None
            return callback(
                StepInfo(
                    step=iterate.step,
                    max_iter=max_iter,
                    objective=history.columns["objective"][-1],
                    change=iterate.change,
                    seconds=sum(iterate.seconds.values()),
                )
            )

        yield [show] if callback is None else [show, call]
