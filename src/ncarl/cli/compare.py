"""``ncarl compare``: which method suits a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args, get_type_hints

import typer

from ncarl.cli.choices import EngineName, Method, Scale
from ncarl.cli.complete import complete
from ncarl.cli.reporting import ReportOption, check_report
from ncarl.cli.shared import (
    FITS,
    HIDING,
    DataArgument,
    EngineOption,
    HideOption,
    Pattern,
    PatternOption,
    SeedOption,
)

if TYPE_CHECKING:
    from ncarl.cli.files import ReadOptions, Table
    from ncarl.study.compare import Comparison
    from ncarl.study.compare_plan import Plan

TABLE = "How to read DATA"
#: Options that `complete` declares, and that mean the same here.
READING = ("na", "label", "header", "delimiter", "decimal", "array")
Command = TypeVar("Command", bound=Callable[..., None])


def reads_as(other: Callable[..., None]) -> Callable[[Command], Command]:
    """A decorator that gives a command the reading options of another one."""
    theirs = get_type_hints(other, include_extras=True)

    def declared(command: Command) -> Command:
        for name in READING:
            # The hints were worked out for us alone, so the other command stays.
            kind, option = get_args(theirs[name])
            option.rich_help_panel = TABLE
            command.__annotations__[name] = Annotated[kind, option]
        return command

    return declared


EXAMPLES = (
    "ncarl compare table.csv",
    "ncarl compare table.csv --methods all --repeats 5 --out compared",
)


@reads_as(complete)
def compare(
    source: DataArgument,
    methods: Annotated[
        str,
        typer.Option(metavar="NAME,NAME,...|all", rich_help_panel=FITS,
                     help="Methods of ncarl complete. The yardstick 'mean' is always "
                     "shown beside them."),
    ] = "bayes,ncarl-cv,soft-impute,nuclear,bias",
    hide: HideOption = 0.1,
    repeats: Annotated[
        int,
        typer.Option(rich_help_panel=HIDING,
                     help="How often; all methods see the same draws."),
    ] = 3,
    pattern: PatternOption = Pattern.ALIKE,
    seed: SeedOption = 0,
    engine: EngineOption = EngineName.AUTO,
    budget: Annotated[
        float,
        typer.Option(metavar="SECONDS", rich_help_panel=FITS,
                     help="What a fit may take. A method that goes beyond, or fails, "
                     "is not tried on the draws that are left."),
    ] = 120.0,
    jobs: Annotated[
        int,
        typer.Option(rich_help_panel=FITS,
                     help="Fits side by side, which share the cores. Times are fair "
                     "with 1 only."),
    ] = 1,
    scale: Annotated[
        Scale,
        typer.Option(rich_help_panel=FITS,
                     help="Bring columns to one scale; auto does so in tables whose "
                     "columns differ much. Errors are in column standard deviations "
                     "then."),
    ] = Scale.AUTO,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", show_default="print only",
                     help="Folder for compare.csv, compare.json and compare.png; files "
                     "of these names are replaced."),
    ] = None,
    report: ReportOption = None,
    na: list[str] | None = None,
    label: list[str] | None = None,
    header: bool | None = None,
    delimiter: str | None = None,
    decimal: str | None = None,
    array: str | None = None,
) -> None:  # fmt: skip
    """Find out which method fills the gaps of a table best.

    Some of the known entries are hidden, methods complete the rest, and what they say
    of the hidden ones is held against the truth. Every fit runs in a process of its
    own; one that fails does not stop the others.
    """
    from ncarl.cli.compare_report import next_command, print_report
    from ncarl.cli.files import ReadOptions, read_table
    from ncarl.study.compare_plan import Plan

    plan = Plan(methods, hide, repeats, str(pattern), seed, str(engine), budget,
                jobs=jobs)  # fmt: skip
    reading = ReadOptions(
        na or (), label or (), header, delimiter, array, decimal=decimal
    )
    check_report(report, source)
    if out is not None:
        check_folder(source, out)
    table = read_table(source, reading)
    print_cautions(table)
    plan = replace(plan, scale=scales(plan, scale, table))
    found = run(plan, table)
    command = next_command(source, reading, found, scale)
    print_report(found, table, command)
    if out is not None:
        write(found, out, source, reading, command)
    if report is not None:
        from ncarl.cli.compare_page import write_page

        write_page(found, table, source, report, command)
    if command is None:
        raise typer.Exit(1)


def print_cautions(table: Table) -> None:
    """Say what may have been read in another way than it was meant."""
    from ncarl.cli.files import shown

    for line in table.cautions:
        typer.echo(f"warning: {shown(line)}", err=True)


def check_folder(source: Path, out: Path) -> None:
    """Raise if files cannot, or must not, be written to a folder; make it."""
    from ncarl.cli.outputs import check_targets
    from ncarl.study.compare_files import NAMES

    if out.exists() and not out.is_dir():
        raise ValueError(f"--out {str(out)!r} is a file; name a folder")
    # A file that cannot be read must not leave a folder behind.
    with source.open("rb"):
        pass
    out.mkdir(parents=True, exist_ok=True)
    targets = {f"--out ({name})": out / name for name in NAMES}
    check_targets(source, targets, overwrite=True)
    for target in targets.values():
        if target.exists() and target.samefile(source):
            raise ValueError(
                f"--out {str(out)!r} would replace the input, {target.name}; name "
                "another folder"
            )


def scales(plan: Plan, scale: Scale, table: Table) -> dict[str, str | None]:
    """The scaling that ``ncarl complete`` would choose, by method."""
    from ncarl.cli.models import ModelOptions, decide_scale
    from ncarl.cli.usage import PAPER

    def decided(method: Method) -> str | None:
        options = ModelOptions(method=method, scale=scale)
        return decide_scale(options, table.values, table.mixed_units)[0]

    paper, others = decided(Method.NCARL), decided(Method.BAYES)
    return {name: paper if name in PAPER else others for name in plan.methods}


def run(plan: Plan, table: Table) -> Comparison:
    """Carry out a comparison, with a bar where a person is watching."""
    from ncarl.cli.completion import on_terminal
    from ncarl.progress import progress_bar
    from ncarl.study.compare import carry_out, observed_of
    from ncarl.study.compare_lines import Fit

    observed = observed_of(table.values)
    total = len(plan.methods) * plan.repeats
    with progress_bar(on_terminal(), total, "compare") as advance:

        def show(fit: Fit) -> None:
            what = fit.status if fit.error is None else f"{fit.error:.4g}"
            advance(f"{fit.method}, draw {fit.draw + 1}: {what}")

        return carry_out(plan, observed, show)


def write(
    found: Comparison,
    out: Path,
    source: Path,
    reading: ReadOptions,
    command: str | None,
) -> None:
    """Write the files of a comparison, and say so."""
    from ncarl.cli.files import shown
    from ncarl.study.compare_files import write_all

    about: dict[str, Any] = {
        "data": shown(source),
        "reading": {**vars(reading), "na": [*map(shown, reading.na)],
                    "labels": [*map(shown, reading.labels)]},
        "next": command,
    }  # fmt: skip
    files = write_all(found, out, about)
    typer.echo(f"\nwritten to {shown(out)}: {', '.join(path.name for path in files)}")
