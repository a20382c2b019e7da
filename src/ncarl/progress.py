"""Progress bars for long work: rich where it is installed, plain text elsewhere."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator

Advance = Callable[[str], None]

#: Seconds between lines of progress that go to a log.
LOG_INTERVAL = 30.0
#: What the innermost bar would show, whether it is shown or not.
_status = [""]


def set_status(text: str) -> None:
    """Say what is being done, for `log_progress`."""
    _status[0] = text


@contextlib.contextmanager
def log_progress(enabled: bool, name: str = "") -> Iterator[None]:
    """Write a line every `LOG_INTERVAL` seconds: what runs, its step, seconds so far.

    A thread writes it, as a step may take minutes.
    """
    if not enabled:
        yield
        return
    start, ended = time.monotonic(), threading.Event()

    def write() -> None:
        while not ended.wait(LOG_INTERVAL):
            parts = name, _status[0], f"{time.monotonic() - start:.0f} s"
            with contextlib.suppress(OSError, ValueError):  # the log is closed
                sys.stderr.write(", ".join(filter(None, parts)) + "\n")
                sys.stderr.flush()

    thread = threading.Thread(target=write, name="ncarl-log", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextlib.contextmanager
def progress_bar(enabled: bool, total: int, label: str) -> Iterator[Advance]:
    """Yield a function that advances the bar by one and shows a short text."""
    done = 0

    def advance(note: str) -> None:
        nonlocal done
        done += 1
        set_status(f"{label} {done}/{total} {note}".rstrip())
        show(note)

    bar = _rich_bar(total, label) if enabled else contextlib.nullcontext(len)
    # Notebooks show bars, but have no terminal.
    logged = enabled and not sys.stderr.isatty() and "ipykernel" not in sys.modules
    with log_progress(logged), bar as show:
        yield advance
    set_status("")


@contextlib.contextmanager
def _rich_bar(total: int, label: str) -> Iterator[Callable[[str], object]]:
    try:
        import rich.console
        import rich.progress as rich_progress
    except ImportError:  # one line, rewritten at each step
        try:
            yield lambda _: sys.stderr.write(f"\r{_status[0]}") and sys.stderr.flush()
        finally:
            sys.stderr.write("\n")
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
