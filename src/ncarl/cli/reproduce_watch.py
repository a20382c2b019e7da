"""What a person sees while a study runs."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ncarl.cli.completion import on_terminal
from ncarl.study.cells import ABSENT, DONE, FAILED, OVER
from ncarl.study.conduct import Course, Watcher

if TYPE_CHECKING:
    from rich.table import Table

#: Without a terminal a line is printed this often, in seconds.
EVERY = 30.0


@contextlib.contextmanager
def watching() -> Iterator[Watcher]:
    """A function that shows how far a study is: a live table, or a line at times."""
    from rich.console import Console
    from rich.live import Live

    if not on_terminal():
        yield _Lines()
        return
    with Live(console=Console(), refresh_per_second=4, transient=True) as live:
        yield lambda course: live.update(progress_table(course))


class _Lines:
    """Progress for logs."""

    def __init__(self) -> None:
        self.said = time.monotonic()

    def __call__(self, course: Course) -> None:
        if time.monotonic() - self.said >= EVERY:
            self.said = time.monotonic()
            print(_line(course), flush=True)


def _line(course: Course) -> str:
    """How far all studies are together."""
    finished = sum(sum(s.values()) for s in course.statuses.values())
    return f"{finished} of {sum(course.total.values())} fits are there"


def progress_table(course: Course) -> Table:
    """How far every study is, and what is being done."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("study")
    for name in ("fits", DONE, OVER, FAILED, ABSENT):
        table.add_column(name, justify="right")
    for study, total in course.total.items():
        counts = course.statuses.get(study, {})
        shown = [str(counts.get(status, "")) for status in (DONE, OVER, FAILED, ABSENT)]
        table.add_row(Text(study), str(total), *shown)
    running = [f"{t.cell.method} ({t.study}, {t.setting})" for t in course.running]
    words = Text("running: " + ", ".join(running)) if running else Text("")
    latest = course.latest
    if latest is not None:
        error = "" if latest.error is None else f", error {latest.error:.4f}"
        seconds = "" if latest.seconds is None else f", {latest.seconds:.1f} s"
        last = f"\nlast: {latest.cell.method}, {latest.status}{error}{seconds}"
        words.append(last)
    table.caption, table.caption_justify = words, "left"
    return table
