"""``ncarl evaluate``: how far the filled values of a table can be trusted."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ncarl.cli.choices import EngineName, Method, Scale
from ncarl.cli.compare import print_cautions, reads_as
from ncarl.cli.complete import complete
from ncarl.cli.reporting import ReportOption, check_report
from ncarl.cli.shared import (
    FITS,
    HIDING,
    OUTPUT,
    DataArgument,
    EngineOption,
    HideOption,
    Pattern,
    PatternOption,
    QuietOption,
    SeedOption,
)

if TYPE_CHECKING:
    from ncarl.cli.files import ReadOptions, Table
    from ncarl.study.evaluate import Asked
    from ncarl.study.evaluate_scores import Evaluation

#: Shown by --help.
EXAMPLES = (
    "ncarl evaluate table.csv",
    "ncarl evaluate table.csv --hide 0.2 --repeats 5 --report trust.html",
    "ncarl evaluate ratings.npz --method ncarl-cv --no-compare --json trust.json",
)


@reads_as(complete)
def evaluate(
    source: DataArgument,
    method: Annotated[
        Method,
        typer.Option(rich_help_panel=FITS, help="The method of ncarl complete to try."),
    ] = Method.BAYES,
    hide: HideOption = 0.1,
    repeats: Annotated[
        int, typer.Option(rich_help_panel=HIDING, help="How often, each time others.")
    ] = 3,
    pattern: PatternOption = Pattern.ALIKE,
    seed: SeedOption = 0,
    compare_too: Annotated[
        bool,
        typer.Option("--compare/--no-compare", rich_help_panel=FITS,
                     help="Also try bayes, soft-impute, nuclear and bias on the same "
                     "entries, to say whether one of them would do better."),
    ] = True,
    budget: Annotated[
        float,
        typer.Option(metavar="SECONDS", rich_help_panel=FITS,
                     help="What a fit of these others may take."),
    ] = 60.0,
    engine: EngineOption = EngineName.AUTO,
    scale: Annotated[
        Scale,
        typer.Option(rich_help_panel=FITS,
                     help="Bring columns to one scale; auto does so in tables whose "
                     "columns differ much."),
    ] = Scale.AUTO,
    json_out: Annotated[
        Path | None,
        typer.Option("--json", metavar="PATH.json", rich_help_panel=OUTPUT,
                     show_default=False, help="Write all figures, every column's too."),
    ] = None,
    report: ReportOption = None,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", rich_help_panel=OUTPUT,
                     help="Replace a JSON file that exists."),
    ] = False,
    quiet: QuietOption = False,
    na: list[str] | None = None,
    label: list[str] | None = None,
    header: bool | None = None,
    delimiter: str | None = None,
    decimal: str | None = None,
    array: str | None = None,
) -> None:  # fmt: skip
    """Find out how far the filled values of a table can be trusted.

    Some of the known entries are hidden, filled in as the gaps would be, and held
    against the truth: how large errors are, in each column too, how often intervals
    hold what they promise, and whether another method would do better. The table
    itself is not changed.
    """
    from ncarl.cli.compare_report import next_command
    from ncarl.cli.evaluate_report import print_evaluation
    from ncarl.cli.files import ReadOptions, read_table
    from ncarl.study.compare_plan import Plan

    plan = Plan([str(method)], hide, repeats, str(pattern), seed, str(engine), budget)
    check_report(report, source)
    check_json(json_out, source, overwrite=overwrite)
    reading = ReadOptions(
        na or (), label or (), header, delimiter, array, decimal=decimal
    )
    table = read_table(source, reading)
    print_cautions(table)
    found = run(_asked(plan, table, scale, compare_too=compare_too), table, quiet=quiet)
    command = next_command(source, reading, found.comparison, scale)
    print_evaluation(found, table, command, quiet=quiet)
    if json_out is not None:
        write_json(found, json_out, source, reading, command)
    if report is not None:
        from ncarl.cli.evaluate_page import write_page

        write_page(found, table, source, report, command, quiet=quiet)


def check_json(path: Path | None, source: Path, *, overwrite: bool) -> None:
    """Raise if the JSON file cannot, or must not, be written."""
    from ncarl.cli.outputs import check_targets

    if path is None:
        return
    if path.suffix.lower() != ".json":
        raise ValueError(f"--json must end in .json, got {str(path)!r}")
    check_targets(source, {"--json": path}, overwrite)


def _asked(plan: Any, table: Table, scale: Scale, *, compare_too: bool) -> Asked:
    """What to evaluate, with the scaling that ``ncarl complete`` would choose."""
    from dataclasses import replace

    from ncarl.cli.compare import scales
    from ncarl.engines import available_cores
    from ncarl.study.evaluate import OTHERS, Asked

    others = OTHERS if compare_too else ()
    every = replace(plan, methods=(*plan.methods, *others))
    by_method = scales(every, scale, table)
    plan = replace(plan, scale=by_method, jobs=min(2, available_cores()))
    return Asked(plan, others, table.columns)


def run(asked: Asked, table: Table, *, quiet: bool) -> Evaluation:
    """Carry out an evaluation, with a bar where a person is watching."""
    from ncarl.cli.completion import on_terminal
    from ncarl.progress import progress_bar
    from ncarl.study.compare import observed_of
    from ncarl.study.evaluate import carry_out_evaluation

    shown = on_terminal() and not quiet
    observed = observed_of(table.values)
    try:
        with progress_bar(shown, asked.fits, "evaluate") as advance:
            return carry_out_evaluation(asked, observed, advance)
    except ValueError as error:  # the option of the command, not of the library
        raise ValueError(str(error).replace("hide=", "--hide ", 1)) from error


def write_json(
    found: Evaluation,
    path: Path,
    source: Path,
    reading: ReadOptions,
    command: str | None,
) -> None:
    """Write all figures as a JSON object."""
    import json

    from ncarl.cli.files import shown
    from ncarl.storage import replacing

    content = {"data": shown(source), "next": command, **found.record()}
    text = json.dumps(content, indent=2, allow_nan=False)
    with replacing(path.resolve()) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")
