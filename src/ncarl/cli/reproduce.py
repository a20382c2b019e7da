"""``ncarl reproduce``: run the paper's tables and figures again, and judge them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ncarl.cli import console, options as opt
from ncarl.evaluation.measure import DONE, FAILED, OVER_BUDGET
from ncarl.io.files import atomic_write
from ncarl.progress import set_status
from ncarl.reproduce.plan import NO_DATA
from ncarl.reproduce.run import ProgressCallback, RunProgress

if TYPE_CHECKING:
    from ncarl.reproduce.plan import StudyPlan
    from ncarl.reproduce.report import PublishedStudy

EXAMPLES = ("ncarl reproduce table1 --quick", "ncarl reproduce all")
#: Seconds a fit may take by default.
DEFAULT_BUDGET = 600.0
#: Columns of the table of progress.
STATUSES = (DONE, OVER_BUDGET, FAILED, NO_DATA)


def reproduce(
    studies: Annotated[
        list[str],
        typer.Argument(
            help="table1 to table4, fig1 to fig8, all, or a TOML file like theirs.",
            metavar="STUDY...",
        ),
    ],
    protocol: Annotated[
        Literal["paper", "honest", "both"],
        typer.Option(
            help="How parameters are chosen: 'paper' on the test error, as the "
            "authors' code does, 'honest' on held-out observed entries."
        ),
    ] = "both",
    quick: Annotated[
        bool, typer.Option("--quick", help="Reduced sizes and synthetic ratings.")
    ] = False,
    methods: Annotated[
        str | None,
        typer.Option(help="Rows to run, separated by commas (names of methods.toml)."),
    ] = None,
    engine: opt.EngineOption = "auto",
    budget: Annotated[
        float | None,
        typer.Option(
            help=f"Time limit of a fit in seconds ({DEFAULT_BUDGET:g}; 20 with "
            "--quick); a fit that exceeds it is shown as over budget."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder of results (ncarl-reproduce; with --quick "
            "ncarl-reproduce-quick); an unfinished run there is continued. The report "
            "covers the studies of the last command."
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Number of fits in parallel; one per core."),
    ] = None,
    gpu_jobs: Annotated[
        int, typer.Option(min=1, help="Number of fits in parallel on the GPU.")
    ] = 1,
    time_limit: Annotated[
        float | None,
        typer.Option(min=0, help="Seconds after which no new fit is started."),
    ] = None,
    retry: Annotated[
        bool, typer.Option("--retry", help="Run failed and over-budget fits again.")
    ] = False,
    no_run: Annotated[
        bool, typer.Option("--no-run", help="Only write the report of finished fits.")
    ] = False,
    report: opt.ReportOption = None,
) -> None:
    """Reproduce the paper's tables and figures, and judge each claim.

    Every finished fit is stored at once; run the same command again to continue a run
    that was stopped or killed. The report shows our value, the printed value and the
    difference.
    """
    from ncarl.reproduce.plan import PROTOCOLS, QUICK_BUDGET
    from ncarl.reproduce.report import publish
    from ncarl.reproduce.run import ResultStore, RunOptions, run_plans

    console.check_report_path(report)
    protocols = PROTOCOLS if protocol == "both" else (protocol,)
    plans = load_plans(studies, quick=quick, methods=methods)
    if budget is not None and not 0 < budget < float("inf"):
        raise ValueError(f"--budget must be a positive number of seconds, got {budget}")
    out = out or Path("ncarl-reproduce-quick" if quick else "ncarl-reproduce")
    console.prepare_folder(out, "*.jsonl", "*.html", "results.*", "figures/*.png")
    store = ResultStore(out)
    if store.n_corrupt_lines:
        console.print_text(
            f"{store.n_corrupt_lines} damaged lines of {store.path.name} are skipped"
        )
    if not no_run:
        options = RunOptions(
            protocols=protocols,
            engine=engine,
            budget=budget or (QUICK_BUDGET if quick else DEFAULT_BUDGET),
            jobs=jobs,
            gpu_jobs=gpu_jobs,
            time_limit=time_limit,
            retry=retry,
        )
        with show_progress() as callback:
            progress = run_plans(plans, store, options, callback)
        if progress.time_limit_reached:
            console.print_text(
                "time limit reached; run the same command again to continue"
            )
    published = publish(plans, store, protocols, quick=quick)
    print_verdicts(published, quick=quick)
    if report is not None:
        with atomic_write(report) as temporary:
            temporary.write_bytes(published.report_path.read_bytes())
        console.print_fields([("report", str(report))])


def load_plans(
    studies: Sequence[str], *, quick: bool, methods: str | None
) -> list[StudyPlan]:
    """The plans of the named studies, each once."""
    from ncarl.reproduce.plan import STUDY_NAMES, load_plan

    rows = [name.strip() for name in methods.split(",")] if methods else []
    names: dict[str, None] = {}
    for study in studies:
        names |= dict.fromkeys(STUDY_NAMES if study == "all" else [study])
    return [load_plan(name, quick=quick, methods=rows) for name in names]


@contextlib.contextmanager
def show_progress() -> Iterator[ProgressCallback]:
    """A callback that shows the progress of studies: a live table, or log lines."""

    def log(progress: RunProgress) -> None:
        finished = sum(sum(s.values()) for s in progress.statuses.values())
        total = sum(progress.totals.values())
        set_status(f"{finished} of {total} fits are finished")

    if not console.is_interactive():
        yield log
        return
    with Live(console=Console(), refresh_per_second=4, transient=True) as live:
        yield lambda progress: live.update(progress_table(progress))


def progress_table(progress: RunProgress) -> Table:
    """Fits of every study by status, and those that are running."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("study")
    for name in ("fits", *STATUSES):
        table.add_column(name, justify="right")
    for study, total in progress.totals.items():
        counts = progress.statuses.get(study, {})
        cells = [str(counts.get(status, "")) for status in STATUSES]
        table.add_row(Text(study), str(total), *cells)
    running = [f"{t.cell.method} ({t.study}, {t.setting})" for t in progress.running]
    caption = Text("running: " + ", ".join(running)) if running else Text("")
    latest = progress.latest
    if latest is not None:
        error = "" if latest.error is None else f", error {latest.error:.4f}"
        seconds = "" if latest.seconds is None else f", {latest.seconds:.1f} s"
        caption.append(f"\nlast: {latest.cell.method}, {latest.status}{error}{seconds}")
    table.caption, table.caption_justify = caption, "left"
    return table


def print_verdicts(published: PublishedStudy, *, quick: bool) -> None:
    """Print the verdicts and what was written."""
    from ncarl.reproduce.report import QUICK_NOTE
    from ncarl.reproduce.verdicts import FAILS, HOLDS, HOLDS_WITH_CHANGES

    terminal = Console(markup=False)
    colors = {HOLDS: "green", HOLDS_WITH_CHANGES: "yellow", FAILS: "red"}
    for one in published.verdicts:
        line = Text(f"{one.state}: ", style=f"bold {colors.get(one.state, 'dim')}")
        line.append(f"{one.claim} ({one.where})", style="not bold default")
        terminal.print(line)
        terminal.print(Text(f"  {one.evidence}", style="dim"))
    for status, count in published.unfinished_counts.items():
        console.print_text(f"\n{count} cells of tables: {status}")
    if quick:
        console.print_text(f"\n{QUICK_NOTE}")
    folder = published.report_path.parent
    console.print_text(f"\nwritten to {folder}:")
    for path in published.files:
        console.print_text(f"  {path.relative_to(folder).as_posix()}")
