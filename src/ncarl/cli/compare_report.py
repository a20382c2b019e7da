"""What ``ncarl compare`` prints when it is done."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ncarl.cli.choices import Scale
from ncarl.cli.files import FORMATS, ReadOptions, Table, listed, shown
from ncarl.study.cells import DONE
from ncarl.study.compare import Comparison
from ncarl.study.compare_lines import LEVEL, Line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

#: Columns of figures in the printed table.
HEADS = ("error", "spread", f"in {LEVEL:.0%}", "seconds", "peak GB", "settled")


def print_report(found: Comparison, table: Table, command: str | None) -> None:
    """Print a comparison; warnings go to the error stream."""
    from rich.console import Console

    console = Console()
    for name, text in head_lines(found, table):
        console.print(f"[bold]{name:<10}[/bold]", end="", highlight=False)
        _say(console, text)
    console.print()
    console.print(results_table(found), highlight=False)
    console.print()
    _say(console, footnote(found))
    for line in found.lines:
        if line.message:
            _say(console, f"{line.method}: {line.status}: {line.message}")
    console.print()
    advice = found.recommendation
    console.print(f"[bold]{'advice':<10}[/bold]", end="", highlight=False)
    _say(console, advice.reason)
    if command is not None:
        console.print(f"[bold]{'go on':<10}[/bold]", end="", highlight=False)
        _say(console, command)
    for warning in advice.warnings:
        typer.echo(f"warning: {warning}", err=True)


def _say(console: Console, text: str) -> None:
    """Print words as they are, as far as the terminal can show them."""
    if not console.encoding.lower().startswith("utf"):
        text = text.replace("\N{PLUS-MINUS SIGN}", "+/-")
        text = text.encode(console.encoding, "replace").decode(console.encoding)
    console.print(shown(text), markup=False, highlight=False, soft_wrap=True)


def head_lines(found: Comparison, table: Table) -> Iterable[tuple[str, str]]:
    """What was read, and what was hidden of it."""
    (m, n), missing = found.shape, found.shape[0] * found.shape[1] - found.known
    yield "table", f"{m} x {n}, {missing} missing ({missing / (m * n):.1%})"
    for note in table.notes:
        yield "", note
    if table.left_out:
        yield "labels", f"not used: {listed(table.left_out)}"
    least, most = min(found.hidden), max(found.hidden)
    count = f"{least}" if least == most else f"{least} to {most}"
    times = "once" if found.plan.repeats == 1 else f"{found.plan.repeats} times"
    how = "one by one" if found.plan.pattern == "random" else "as the gaps lie"
    yield "hidden", f"{count} of {found.known} known entries, {times}, {how}"
    engines = {fit.engine for line in found.lines for fit in line.fits if fit.engine}
    if engines:
        yield "engine", "; ".join(sorted(engines))


def results_table(found: Comparison) -> RichTable:
    """The lines of a comparison, the recommended method in bold."""
    from rich import box
    from rich.table import Table as RichTable

    table = RichTable(
        box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False
    )
    table.add_column("method", no_wrap=True)
    for name in HEADS:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for line in found.lines:
        chosen = line.method == found.recommendation.method
        table.add_row(*line_cells(line, found), style="bold" if chosen else "")
    return table


def line_cells(line: Line, found: Comparison) -> list[str]:
    """The cells of a line."""
    word = "" if line.status == DONE else line.status
    if not word and line.method in found.recommendation.ties:
        chosen = line.method == found.recommendation.method
        word = "recommended" if chosen else "as good"
    settled = [fit.settled for fit in line.fits if fit.settled is not None]
    return [
        line.method,
        _figure(line.error, "#.4g"),
        _figure(line.spread, ".2g"),
        _figure(line.coverage, ".1%"),
        _figure(line.seconds, ".2g" if (line.seconds or 0.0) < 100.0 else ".0f"),
        _figure(line.memory_gb, ".2f"),
        f"{sum(settled)} of {len(settled)}" if settled else "-",
        word,
    ]


def _figure(value: float | None, form: str) -> str:
    """A figure, or a dash where there is none."""
    return "-" if value is None else format(value, form)


def footnote(found: Comparison) -> str:
    """What the columns mean."""
    text = (
        f"Errors are root mean squares over the hidden entries, in {found.unit}; "
        "spread is their standard deviation over the draws. Seconds are those of the "
        "fit, peak GB the most memory of its process, Python included."
    )
    if found.plan.jobs > 1:
        text += f" {found.plan.jobs} fits ran side by side, so times are not fair."
    return text


def next_command(
    source: Path, reading: ReadOptions, found: Comparison, scale: Scale
) -> str | None:
    """The command that completes the table as recommended; None without advice."""
    method = found.recommendation.method
    if method is None:
        return None
    name = source.name
    ending = next(e for e in FORMATS if name.lower().endswith(e))
    target = source.with_name(f"{name[: -len(ending)]}-filled{name[-len(ending) :]}")
    words = ["ncarl", "complete", _path(source), "-o", _path(target)]
    words += ["--method", method]
    if found.plan.random_state:
        words += ["--seed", str(found.plan.random_state)]
    if found.plan.engine != "auto":
        words += ["--engine", found.plan.engine]
    if scale is not Scale.AUTO:
        words += ["--scale", str(scale)]
    return shlex.join([*words, *_reading_words(reading)])


def _path(path: Path) -> str:
    """A path that no command takes for an option."""
    text = str(path)
    return f"./{text}" if text.startswith("-") else text


def _reading_words(reading: ReadOptions) -> list[str]:
    """Options that read a file in the same way."""
    words = [f"--na={token}" for token in reading.na]
    words += [f"--label={column}" for column in reading.labels]
    if reading.header is not None:
        words.append("--header" if reading.header else "--no-header")
    if reading.delimiter is not None:
        words.append(f"--delimiter={reading.delimiter}")
    if reading.decimal is not None:
        words.append(f"--decimal={reading.decimal}")
    if reading.array is not None:
        words.append(f"--array={reading.array}")
    return words
