"""``ncarl compare``: measure which method completes a table best."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args, get_type_hints

import typer

from ncarl.cli.complete import complete
from ncarl.cli.console import (
    check_output_paths,
    is_interactive,
    print_fields,
    print_text,
)
from ncarl.cli.models import PAPER_METHODS, ModelOptions, decide_scale
from ncarl.cli.options import (
    FIT_PANEL,
    HOLDOUT_PANEL,
    DataArgument,
    EngineChoice,
    EngineOption,
    HideOption,
    PatternChoice,
    PatternOption,
    ReportOption,
    ScaleChoice,
    SeedOption,
    check_report_path,
    command_line,
    package_versions,
    print_report_path,
)
from ncarl.evaluation.comparison import (
    INTERVAL_LEVEL,
    Comparison,
    ComparisonPlan,
    FitOutcome,
    MethodSummary,
    as_observations,
    run_comparison,
)
from ncarl.evaluation.measure import DONE
from ncarl.html import Page
from ncarl.io.tables import ReadOptions, TableFile, read_table, supported_suffixes
from ncarl.progress import progress_bar
from ncarl.text import MAX_LISTED, format_number, join_names, to_printable

if TYPE_CHECKING:
    from rich.table import Table as RichTable

READ_PANEL = "How to read DATA"
#: Options that `complete` declares, and that mean the same here.
READ_OPTION_NAMES = ("na", "label", "header", "delimiter", "decimal", "array")
EXAMPLES = (
    "ncarl compare table.csv",
    "ncarl compare table.csv --methods all --repeats 5 --out compared",
)
#: Columns of the printed table, after the method.
TABLE_HEADERS = (
    "error",
    "std",
    f"in {INTERVAL_LEVEL:.0%}",
    "seconds",
    "peak GB",
    "converged",
)
Command = TypeVar("Command", bound=Callable[..., None])


def share_read_options(
    source_command: Callable[..., None],
) -> Callable[[Command], Command]:
    """A decorator that gives a command the reading options of another one."""
    hints = get_type_hints(source_command, include_extras=True)

    def add_options(command: Command) -> Command:
        for name in READ_OPTION_NAMES:
            # The hints are a copy, so that the other command stays as it is.
            kind, option = get_args(hints[name])
            option.rich_help_panel = READ_PANEL
            command.__annotations__[name] = Annotated[kind, option]
        return command

    return add_options


@share_read_options(complete)
def compare(
    source: DataArgument,
    methods: Annotated[
        str,
        typer.Option(
            metavar="NAME,NAME,...|all",
            rich_help_panel=FIT_PANEL,
            help="Methods of ncarl complete. The baseline 'mean' is always "
            "shown beside them.",
        ),
    ] = "bayes,ncarl-cv,soft-impute,nuclear,bias",
    hide: HideOption = 0.1,
    repeats: Annotated[
        int,
        typer.Option(
            rich_help_panel=HOLDOUT_PANEL,
            help="How often; all methods see the same draws.",
        ),
    ] = 3,
    pattern: PatternOption = PatternChoice.ALIKE,
    seed: SeedOption = 0,
    engine: EngineOption = EngineChoice.AUTO,
    budget: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            rich_help_panel=FIT_PANEL,
            help="What a fit may take. A method that goes beyond, or fails, "
            "is not tried on the draws that are left.",
        ),
    ] = 120.0,
    jobs: Annotated[
        int,
        typer.Option(
            rich_help_panel=FIT_PANEL,
            help="Fits side by side, which share the cores. Times are fair "
            "with 1 only.",
        ),
    ] = 1,
    scale: Annotated[
        ScaleChoice,
        typer.Option(
            rich_help_panel=FIT_PANEL,
            help="Bring columns to one scale; auto does so in tables whose "
            "columns differ much. Errors are in column standard deviations "
            "then.",
        ),
    ] = ScaleChoice.AUTO,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            show_default="print only",
            help="Folder for compare.csv, compare.json and compare.png; files "
            "of these names are replaced.",
        ),
    ] = None,
    report: ReportOption = None,
    na: list[str] | None = None,
    label: list[str] | None = None,
    header: bool | None = None,
    delimiter: str | None = None,
    decimal: str | None = None,
    array: str | None = None,
) -> None:
    """Find out which method fills the missing entries of a table best.

    Some of the observed entries are hidden, methods complete the rest, and their
    predictions of the hidden entries are compared with the truth. Every fit runs in a
    process of its own; one that fails does not stop the others.
    """
    plan = ComparisonPlan(
        methods, hide, repeats, str(pattern), seed, str(engine), budget, jobs=jobs
    )
    reading = ReadOptions(
        na or (), label or (), header, delimiter, array, decimal=decimal
    )
    check_report_path(report, source)
    if out is not None:
        prepare_output_folder(source, out)
    table = read_table(source, reading)
    print_read_warnings(table)
    plan = replace(plan, scale=decide_scales(plan, scale, table))
    comparison = run_compare(plan, table)
    command = next_command(source, reading, comparison, scale)
    print_comparison(comparison, table, command)
    if out is not None:
        write_compare_outputs(comparison, out, source, reading, command)
    if report is not None:
        write_compare_page(comparison, table, source, report, command)
    if command is None:
        raise typer.Exit(1)


def print_read_warnings(table: TableFile) -> None:
    """Print what may have been read in another way than it was meant."""
    for line in table.read_warnings:
        typer.echo(f"warning: {to_printable(line)}", err=True)


def prepare_output_folder(source: Path, out: Path) -> None:
    """Raise if files cannot, or must not, be written to a folder; make it."""
    from ncarl.evaluation.outputs import OUTPUT_FILES  # which loads Matplotlib

    if out.exists() and not out.is_dir():
        raise ValueError(f"--out {str(out)!r} is a file; name a folder")
    # A file that cannot be read must not leave a folder behind.
    with source.open("rb"):
        pass
    out.mkdir(parents=True, exist_ok=True)
    targets = {f"--out ({name})": out / name for name in OUTPUT_FILES}
    check_output_paths(source, targets, overwrite=True)
    for target in targets.values():
        if target.exists() and target.samefile(source):
            raise ValueError(
                f"--out {str(out)!r} would replace the input, {target.name}; name "
                "another folder"
            )


def decide_scales(
    plan: ComparisonPlan, scale: ScaleChoice, table: TableFile
) -> dict[str, str | None]:
    """The scaling that ``ncarl complete`` would choose, by method."""

    def scale_of(method: str) -> str | None:
        options = ModelOptions(method=method, scale=scale)
        return decide_scale(options, table.values, table.mixed_units)[0]

    paper, others = scale_of("ncarl"), scale_of("bayes")
    return {name: paper if name in PAPER_METHODS else others for name in plan.methods}


def run_compare(plan: ComparisonPlan, table: TableFile) -> Comparison:
    """Run a comparison, with a progress bar in a terminal."""
    observed = as_observations(table.values)
    total = len(plan.methods) * plan.repeats
    with progress_bar(is_interactive(), total, "compare") as advance:

        def show(fit: FitOutcome) -> None:
            what = fit.status if fit.error is None else f"{fit.error:.4g}"
            advance(f"{fit.method}, draw {fit.draw + 1}: {what}")

        return run_comparison(plan, observed, show)


def next_command(
    source: Path, reading: ReadOptions, comparison: Comparison, scale: ScaleChoice
) -> str | None:
    """The command that completes the table as recommended; None without advice."""
    method = comparison.recommendation.method
    if method is None:
        return None
    name = source.name
    suffixes = supported_suffixes("read_table")
    ending = next(e for e in suffixes if name.lower().endswith(e))
    target = source.with_name(f"{name[: -len(ending)]}-filled{name[-len(ending) :]}")
    words = ["ncarl", "complete", _path_argument(source), "-o", _path_argument(target)]
    words += ["--method", method]
    if comparison.plan.random_state:
        words += ["--seed", str(comparison.plan.random_state)]
    if comparison.plan.engine != "auto":
        words += ["--engine", comparison.plan.engine]
    if scale is not ScaleChoice.AUTO:
        words += ["--scale", str(scale)]
    return shlex.join([*words, *_read_arguments(reading)])


def _path_argument(path: Path) -> str:
    """A path that no command takes for an option."""
    text = str(path)
    return f"./{text}" if text.startswith("-") else text


def _read_arguments(reading: ReadOptions) -> list[str]:
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


def print_comparison(
    comparison: Comparison, table: TableFile, command: str | None
) -> None:
    """Print a comparison; warnings go to the error stream."""
    from rich.console import Console

    console = Console()
    print_fields(console, compare_header_lines(comparison, table))
    console.print()
    console.print(results_table(comparison), highlight=False)
    console.print()
    print_text(console, comparison_footnote(comparison))
    for line in comparison.summaries:
        if line.message:
            print_text(console, f"{line.method}: {line.status}: {line.message}")
    console.print()
    advice = comparison.recommendation
    print_fields(console, [("advice", advice.reason)])
    if command is not None:
        print_fields(console, [("go on", command)])
    for warning in advice.warnings:
        typer.echo(f"warning: {warning}", err=True)


def compare_header_lines(
    comparison: Comparison, table: TableFile
) -> Iterable[tuple[str, str]]:
    """What was read, and what was hidden of it."""
    m, n = comparison.shape
    missing = m * n - comparison.n_observed
    yield "table", f"{m} x {n}, {missing} missing ({missing / (m * n):.1%})"
    for note in table.notes:
        yield "", note
    if table.unused_columns:
        yield "labels", f"not used: {join_names(table.unused_columns, MAX_LISTED)}"
    least, most = min(comparison.n_hidden), max(comparison.n_hidden)
    count = f"{least}" if least == most else f"{least} to {most}"
    plan, total = comparison.plan, comparison.n_observed
    times = "once" if plan.repeats == 1 else f"{plan.repeats} times"
    how = "one by one" if plan.pattern == "random" else "in the pattern of the missing"
    yield "hidden", f"{count} of {total} observed entries, {times}, {how}"
    engines = {
        fit.engine for line in comparison.summaries for fit in line.fits if fit.engine
    }
    if engines:
        yield "engine", "; ".join(sorted(engines))


def results_table(comparison: Comparison) -> RichTable:
    """The results of all methods, the recommended one in bold."""
    from rich import box
    from rich.table import Table as RichTable

    table = RichTable(
        box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False
    )
    table.add_column("method", no_wrap=True)
    for name in TABLE_HEADERS:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for line in comparison.summaries:
        chosen = line.method == comparison.recommendation.method
        table.add_row(*line_cells(line, comparison), style="bold" if chosen else "")
    return table


def line_cells(line: MethodSummary, comparison: Comparison) -> list[str]:
    """The cells of a method in the table of results."""
    note = "" if line.status == DONE else line.status
    if not note and line.method in comparison.recommendation.ties:
        chosen = line.method == comparison.recommendation.method
        note = "recommended" if chosen else "as good"
    converged = [fit.converged for fit in line.fits if fit.converged is not None]
    return [
        line.method,
        format_number(line.error, "#.4g"),
        format_number(line.error_std, ".2g"),
        format_number(line.coverage, ".1%"),
        format_number(line.seconds, ".2g" if (line.seconds or 0.0) < 100.0 else ".0f"),
        format_number(line.memory_gb, ".2f"),
        f"{sum(converged)} of {len(converged)}" if converged else "-",
        note,
    ]


def comparison_footnote(comparison: Comparison) -> str:
    """What the columns mean."""
    text = (
        "Errors are root mean squares over the hidden entries, in "
        f"{comparison.error_unit}; std is their standard deviation over the draws. "
        "Seconds are those of the fit, peak GB the most memory of its process, Python "
        "included."
    )
    if comparison.plan.jobs > 1:
        text += f" {comparison.plan.jobs} fits ran side by side, so times are not fair."
    return text


def write_compare_outputs(
    comparison: Comparison,
    out: Path,
    source: Path,
    reading: ReadOptions,
    command: str | None,
) -> None:
    """Write the files of a comparison, and print their names."""
    from ncarl.evaluation.outputs import write_comparison

    about: dict[str, Any] = {
        "data": to_printable(source),
        "reading": {**vars(reading), "na": [*map(to_printable, reading.na)],
                    "labels": [*map(to_printable, reading.labels)]},
        "next": command,
    }  # fmt: skip
    files = write_comparison(comparison, out, about)
    typer.echo(
        f"\nwritten to {to_printable(out)}: {', '.join(path.name for path in files)}"
    )


def write_compare_page(
    comparison: Comparison,
    table: TableFile,
    source: Path,
    path: Path,
    command: str | None,
) -> None:
    """Write the page of a comparison, and print its path."""
    build_compare_page(comparison, table, source, command).save(path.resolve())
    print_report_path(path)


def build_compare_page(
    comparison: Comparison, table: TableFile, source: Path, command: str | None
) -> Page:
    """The page of a comparison."""
    advice = comparison.recommendation
    lead = (
        f"Go on with {advice.reason}"
        if advice.method
        else f"No advice: {advice.reason}."
    )
    page = Page(f"Which method for {source.name}?", lead)
    page.warning(*(f"Warning: {line}." for line in advice.warnings))
    page.code(command or "")
    page.heading("Errors and times")
    add_comparison(page, comparison)
    page.heading("Details")
    facts = {
        name: to_printable(text)
        for name, text in compare_header_lines(comparison, table)
        if name
    }
    page.facts({**facts, **package_versions()})
    return page.code(command_line())


def add_comparison(page: Page, comparison: Comparison) -> Page:
    """Add the figure and the table of a comparison to a page."""
    from ncarl.evaluation.outputs import draw_comparison

    page.try_figure(
        lambda: draw_comparison(comparison),
        "Errors on hidden entries, with their standard deviation over the draws, and "
        "seconds of a fit; the recommended method in blue.",
    )
    page.table(
        ("method", *TABLE_HEADERS, ""),
        [line_cells(line, comparison) for line in comparison.summaries],
    )
    page.text(comparison_footnote(comparison))
    return page.notes(
        f"{line.method}: {line.status}: {line.message}"
        for line in comparison.summaries
        if line.message
    )
