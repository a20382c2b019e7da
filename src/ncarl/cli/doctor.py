"""``ncarl doctor``: what is installed, what would be used, and whether it works."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from ncarl.cli.reporting import ReportOption, check_report, say_written

if TYPE_CHECKING:
    from rich.console import Console

    from ncarl.cli.checkup import Host, Package
    from ncarl.cli.devices import EngineUse, Gpu
    from ncarl.cli.report import Report
    from ncarl.cli.selftest import Trial

#: The cells of a line of the output; words below are shown in their style.
Row = tuple[str, ...]
STYLES = {"OK": "green", "FAILED": "bold red", "skipped": "dim"}


EXAMPLES = (
    "ncarl doctor",
    "ncarl doctor --json",
)


def doctor(
    full: Annotated[
        bool,
        typer.Option("--full", help="Try PyTorch on the processor too."),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print everything as one JSON object.")
    ] = False,
    report_to: ReportOption = None,
) -> None:
    """Show versions, machine and engines, and test each engine on a small matrix.

    Paste the output into bug reports: it names no folder of yours, and not your
    computer. The exit code is 1 if a test failed; a missing GPU is no failure.

    """
    from rich.console import Console

    from ncarl.cli.report import as_text, examine

    check_report(report_to)
    with Console(stderr=True).status("testing ..."):
        report = examine(full=full)
    if as_json:
        typer.echo(as_text(report))
    else:
        print_report(report, Console())
    if report_to is not None:
        from ncarl.cli.doctor_page import write_page

        write_page(report, report_to)
        say_written(report_to, quiet=as_json)
    if not report.ok:
        raise typer.Exit(1)


def print_report(report: Report, console: Console) -> None:
    """Print all sections, and in the end whether all is well."""
    for title, rows in sections_of(report).items():
        _print_section(title, rows, console)
    verdict = "all is well" if report.ok else "a self-test FAILED"
    console.print(verdict, style="bold green" if report.ok else "bold red")


def sections_of(report: Report) -> dict[str, Iterable[Row]]:
    """All that there is to show, by the title of the section."""
    return {
        "Versions": version_rows(report.versions, report.packages),
        "Machine": host_rows(report.host),
        "GPU": gpu_rows(report.gpu),
        "Engines": engine_rows(report.engines),
        "Self-test": trial_rows(report.self_test),
    }


def _print_section(title: str, rows: Iterable[Row], console: Console) -> None:
    """Print a title and a table of its rows."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    for row in rows:
        # Text, since brackets in a string would be taken for styles.
        *labels, last = (Text(cell, style=STYLES.get(cell, "")) for cell in row)
        for label in labels:
            label.no_wrap = True
        table.add_row(*labels, last)
    console.print(Text(title, style="bold"), table, "", sep="\n")


def version_rows(
    versions: dict[str, str], packages: Iterable[Package]
) -> Iterator[Row]:
    """Names and versions, or how to get what is not there."""
    yield from versions.items()
    for package in packages:
        note = f" ({package.note})" if package.note else ""
        yield package.name, (package.version or "not installed") + note


def host_rows(host: Host) -> Iterator[Row]:
    """Cores, memory and BLAS."""
    yield "cores", str(host.cores)
    yield "memory", memory(host.memory_available, host.memory_total)
    for blas in host.blas:
        threads = f"{blas.threads} thread{'s' if blas.threads != 1 else ''}"
        yield "BLAS", f"{blas.name} {blas.version or '(version unknown)'}, {threads}"


def memory(free: int | None, total: int | None) -> str:
    """Free and total bytes in words.

    Examples
    --------
    >>> memory(1_500_000_000, 4_000_000_000)
    '1.5 of 4.0 GB free'
    >>> memory(None, 4_000_000_000)
    '4.0 GB'
    """
    if total is None:
        return "unknown"
    if free is None:
        return f"{total / 1e9:.1f} GB"
    return f"{free / 1e9:.1f} of {total / 1e9:.1f} GB free"


def gpu_rows(gpu: Gpu) -> Iterator[Row]:
    """The GPU, or the one line why there is none."""
    if gpu.trouble is not None:
        yield "not used", gpu.trouble
    else:
        more = f" (the first of {gpu.devices})" if gpu.devices > 1 else ""
        yield "name", f"{gpu.name}{more}"
        yield "memory", memory(gpu.memory_free, gpu.memory_total)
        yield "capability", str(gpu.compute_capability)
        slower = f"do not run, PyTorch's own are used: {gpu.kernels_trouble}"
        yield "kernels", "ours, in Triton, run" if gpu.kernels else slower
    if gpu.driver is not None:
        yield "driver", gpu.driver
    for line in gpu.warned:
        yield "warning", line


def engine_rows(engines: Iterable[EngineUse]) -> Iterator[Row]:
    """What each name leads to, and how large a kernel it has memory for."""
    for engine in engines:
        yield engine.name, engine.note or engine.runs or ""
        if engine.largest_kernel is not None:
            columns = round(engine.largest_kernel, -2) or engine.largest_kernel
            yield "", f"memory for a kernel of about {columns:,} columns"


def trial_rows(trials: Iterable[Trial]) -> Iterator[Row]:
    """One row a check, and the time of a step."""
    for trial in trials:
        if trial.skipped is not None:
            yield "skipped", trial.engine, trial.skipped
        for check in trial.checks:
            yield "OK" if check.passed else "FAILED", trial.engine, check.detail
        if trial.step_seconds is not None:
            time = f"{trial.step_seconds * 1e3:.1f} ms a step"
            yield "", trial.engine, f"{time}, {trial.seconds:.1f} s in all"
