"""A progress bar for long fits: rich where it is installed, a plain line elsewhere."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

Advance = Callable[[str], None]
#: Steps of a bar for work whose size is known.
HUNDRED = 100


@contextlib.contextmanager
def progress_bar(shown: bool, total: int, label: str) -> Iterator[Advance]:
    """A function that moves the bar by one and shows a short text beside it."""
    if not shown:
        yield _silent
        return
    try:
        import rich.console
        import rich.progress as rich_progress
    except ImportError:
        with _plain_line(total, label) as advance:
            yield advance
        return
    columns = (
        rich_progress.TextColumn("{task.description}"),
        rich_progress.BarColumn(),
        rich_progress.MofNCompleteColumn(),
        rich_progress.TimeElapsedColumn(),
        rich_progress.TextColumn("{task.fields[note]}"),
    )
    # Like the plain line, on the error stream: output may be piped.
    console = rich.console.Console(stderr=True)
    with rich_progress.Progress(*columns, console=console) as bar:
        task = bar.add_task(label, total=total, note="")
        yield lambda note: bar.update(task, advance=1, note=note)
        # A fit may end sooner than its most steps: what was done is all there was.
        bar.update(task, total=bar.tasks[0].completed)


@contextlib.contextmanager
def hundred_steps(
    shown: bool, total: int, label: str
) -> Iterator[Callable[[int], None]]:
    """A function that says how much of ``total`` is done, to a bar of hundred steps."""
    done = 0
    with progress_bar(shown, HUNDRED, label) as advance:

        def reached(count: int) -> None:
            nonlocal done
            due = HUNDRED * count // max(1, total)
            for _ in range(done, due):
                advance("")
            done = max(done, due)

        yield reached


def _silent(note: str) -> None:
    """Show nothing."""


@contextlib.contextmanager
def _plain_line(total: int, label: str) -> Iterator[Advance]:
    """One line on the error stream, rewritten at each step."""
    done = 0

    def advance(note: str) -> None:
        nonlocal done
        done += 1
        sys.stderr.write(f"\r{label} {done}/{total} {note}")
        sys.stderr.flush()

    try:
        yield advance
    finally:
        sys.stderr.write("\n")
