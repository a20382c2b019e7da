"""Progress bars for long work: rich where it is installed, plain text elsewhere."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

Advance = Callable[[str], None]


@contextlib.contextmanager
def progress_bar(enabled: bool, total: int, label: str) -> Iterator[Advance]:
    """Yield a function that advances the bar by one and shows a short text."""
    if not enabled:
        yield lambda note: None
        return
    try:
        import rich.console
        import rich.progress as rich_progress
    except ImportError:
        with _plain_text_bar(total, label) as advance:
            yield advance
        return
    columns = (
        rich_progress.TextColumn("{task.description}"),
        rich_progress.BarColumn(),
        rich_progress.MofNCompleteColumn(),
        rich_progress.TimeElapsedColumn(),
        rich_progress.TextColumn("{task.fields[note]}"),
    )
    # On the error stream, as output may be piped.
    console = rich.console.Console(stderr=True)
    with rich_progress.Progress(*columns, console=console) as bar:
        task = bar.add_task(label, total=total, note="")
        yield lambda note: bar.update(task, advance=1, note=note)
        # A fit may end before its last allowed step: the bar is complete then too.
        bar.update(task, total=bar.tasks[0].completed)


@contextlib.contextmanager
def percent_bar(
    enabled: bool, total: int, label: str
) -> Iterator[Callable[[int], None]]:
    """Yield a function that sets how much of ``total`` is done, shown in percent."""
    done = 0
    with progress_bar(enabled, 100, label) as advance:

        def update(count: int) -> None:
            nonlocal done
            due = 100 * count // max(1, total)
            for _ in range(done, due):
                advance("")
            done = max(done, due)

        yield update


@contextlib.contextmanager
def _plain_text_bar(total: int, label: str) -> Iterator[Advance]:
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
