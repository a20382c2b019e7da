"""``ncarl reproduce``: the paper's tables and figures, run again."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ncarl.cli.choices import EngineName
from ncarl.cli.reporting import ReportOption, check_report, copy_page, say_written

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ncarl.study.plan import Plan
    from ncarl.study.publish import Published

#: Seconds a fit may take, unless told otherwise.
BUDGET = 600.0


class Protocol(StrEnum):
    """Ways to choose parameters."""

    PAPER = "paper"
    HONEST = "honest"
    BOTH = "both"


EXAMPLES = (
    "ncarl reproduce table1 --quick",
    "ncarl reproduce all",
)


def reproduce(
    studies: Annotated[
        list[str],
        typer.Argument(
            help="table1 to table4, fig1 to fig8, all, or a TOML file like theirs.",
            metavar="STUDY...",
        ),
    ],
    protocol: Annotated[
        Protocol,
        typer.Option(
            help="How parameters are chosen: 'paper' on the test error, as the "
            "authors' code does, 'honest' on held-out observed entries."
        ),
    ] = Protocol.BOTH,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Reduced sizes, made-up ratings; minutes."),
    ] = False,
    methods: Annotated[
        str | None,
        typer.Option(help="Rows to run, parted by commas (names of methods.toml)."),
    ] = None,
    engine: Annotated[
        EngineName,
        typer.Option(help="'auto' gives large matrices to a GPU, if there is one."),
    ] = EngineName.AUTO,
    budget: Annotated[
        float | None,
        typer.Option(
            help=f"Seconds a fit may take ({BUDGET:g}; 20 with --quick); a fit that "
            "takes longer is shown as over budget."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder of results (ncarl-reproduce; with --quick "
            "ncarl-reproduce-quick); a run there is gone on with. The report is on the "
            "studies of the last command."
        ),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Fits side by side; one a core.")
    ] = None,
    gpu_jobs: Annotated[
        int, typer.Option(min=1, help="Fits side by side on the GPU.")
    ] = 1,
    time_limit: Annotated[
        float | None,
        typer.Option(min=0, help="Seconds after which no further fit is begun."),
    ] = None,
    retry: Annotated[
        bool, typer.Option("--retry", help="Run again what failed or overran.")
    ] = False,
    no_run: Annotated[
        bool, typer.Option("--no-run", help="Only write the report of what is there.")
    ] = False,
    report: ReportOption = None,
) -> None:
    """Run the paper's tables and figures again, and say what holds.

    Every finished fit is kept in the folder at once; a run that was stopped or killed
    goes on where it was. The report shows our value, the printed one and by how much
    they differ.
    """
    from ncarl.study.conduct import Terms, conduct
    from ncarl.study.entries import PROTOCOLS
    from ncarl.study.plan import QUICK_BUDGET
    from ncarl.study.publish import publish
    from ncarl.study.store import Store

    check_report(report)
    protocols = PROTOCOLS if protocol is Protocol.BOTH else (str(protocol),)
    plans = chosen_plans(studies, quick=quick, methods=methods)
    if budget is not None and not 0 < budget < float("inf"):
        raise ValueError(f"--budget must be a positive number of seconds, got {budget}")
    out = out or Path("ncarl-reproduce-quick" if quick else "ncarl-reproduce")
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out must be a folder, and {str(out)!r} is a file")
    store = Store(out)
    if store.broken:
        typer.echo(f"{store.broken} damaged lines of {store.path.name} are passed over")
    if not no_run:
        from ncarl.cli.reproduce_watch import watching

        usual = QUICK_BUDGET if quick else BUDGET
        terms = Terms(
            protocols=protocols,
            engine=str(engine),
            budget=usual if budget is None else budget,
            jobs=jobs,
            gpu_jobs=gpu_jobs,
            limit=time_limit,
            retry=retry,
        )
        with watching() as watch:
            course = conduct(plans, store, terms, watch)
        if course.stopped:
            typer.echo("the time limit is up; the same command goes on from here")
    published = publish(plans, store, protocols, quick=quick)
    show(published, quick=quick)
    if report is not None:
        copy_page(published.report, report)
        say_written(report)


def chosen_plans(
    studies: Sequence[str], *, quick: bool, methods: str | None
) -> list[Plan]:
    """The plans of the studies that were named, each once."""
    from ncarl.study.plan import NAMES, load_plan

    names: list[str] = []
    for study in studies:
        names += NAMES if study == "all" else [study]
    rows = [name.strip() for name in methods.split(",")] if methods else []
    unique = dict.fromkeys(names)
    return [load_plan(name, quick=quick, methods=rows) for name in unique]


def show(published: Published, *, quick: bool) -> None:
    """Print the verdicts and what was written."""
    from rich.console import Console
    from rich.text import Text

    from ncarl.study.publish import QUICK

    console = Console(markup=False)
    colours = {"holds": "green", "holds with changes": "yellow"}
    for one in published.verdicts:
        colour = colours.get(one.state, "red" if "not hold" in one.state else "dim")
        line = Text(f"{one.state}: ", style=f"bold {colour}")
        line.append(f"{one.claim} ({one.where})", style="not bold default")
        console.print(line)
        console.print(Text(f"  {one.evidence}", style="dim"))
    for status, count in published.unfinished.items():
        console.print(f"\n{count} cells of tables: {status}", highlight=False)
    if quick:
        console.print(f"\n{QUICK}", highlight=False)
    folder = published.report.parent
    console.print(f"\nwritten to {folder}:", highlight=False, soft_wrap=True)
    for path in published.files:
        place = path.relative_to(folder).as_posix()
        console.print(f"  {place}", highlight=False, soft_wrap=True)
