"""``ncarl evaluate``: measure the errors of a method on hidden entries of a table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ncarl.cli.compare import (
    add_comparison,
    compare_header_lines,
    decide_scales,
    next_command,
    print_read_warnings,
    share_read_options,
)
from ncarl.cli.complete import complete
from ncarl.cli.console import check_output_paths, is_interactive, print_fields
from ncarl.cli.options import (
    FIT_PANEL,
    HOLDOUT_PANEL,
    OUTPUT_PANEL,
    DataArgument,
    EngineChoice,
    EngineOption,
    HideOption,
    MethodChoice,
    PatternChoice,
    PatternOption,
    QuietOption,
    ReportOption,
    ScaleChoice,
    SeedOption,
    check_report_path,
    command_line,
    package_versions,
    print_report_path,
)
from ncarl.engines.base import available_cores
from ncarl.evaluation.comparison import ComparisonPlan, as_observations
from ncarl.evaluation.evaluation import (
    DEFAULT_COMPARISON_METHODS,
    ColumnScore,
    Evaluation,
    EvaluationRequest,
    run_evaluation,
)
from ncarl.evaluation.measure import DONE
from ncarl.evaluation.outputs import (
    draw_columns,
    draw_reliability,
    draw_residuals,
)
from ncarl.html import Page
from ncarl.io.files import atomic_write
from ncarl.io.tables import ReadOptions, TableFile, read_table
from ncarl.progress import progress_bar
from ncarl.text import MAX_LISTED, format_number, join_names, shorten, to_printable

if TYPE_CHECKING:
    from rich.table import Table as RichTable

EXAMPLES = (
    "ncarl evaluate table.csv",
    "ncarl evaluate table.csv --hide 0.2 --repeats 5 --report trust.html",
    "ncarl evaluate ratings.npz --method ncarl-cv --no-compare --json trust.json",
)
#: Printed columns, and characters of their names, at most.
MAX_PRINTED_COLUMNS, MAX_NAME_LENGTH = 8, 28
#: Errors that differ by more than this fraction are both printed.
MIN_RELATIVE_DIFFERENCE = 0.05
#: Least explained fraction of the squared error, and how well entries are predicted.
VERDICTS = (
    (0.9, "very well"),
    (0.7, "well"),
    (0.4, "fairly well"),
    (0.1, "a little; the column's mean is not much worse"),
    (float("-inf"), "hardly; the column's mean does as well"),
)
#: Rows of the page's table of columns, at most.
MAX_PAGE_COLUMNS = 500
COLUMN_HEADERS = (
    "column",
    "hidden",
    "RMSE",
    "standardized",
    "mean's, standardized",
    "explained",
    "in 90%",
)


@share_read_options(complete)
def evaluate(
    source: DataArgument,
    method: Annotated[
        MethodChoice,
        typer.Option(
            rich_help_panel=FIT_PANEL,
            help="The method of ncarl complete to try.",
        ),
    ] = "bayes",
    hide: HideOption = 0.1,
    repeats: Annotated[
        int,
        typer.Option(
            rich_help_panel=HOLDOUT_PANEL, help="How often, each time others."
        ),
    ] = 3,
    pattern: PatternOption = PatternChoice.ALIKE,
    seed: SeedOption = 0,
    compare_too: Annotated[
        bool,
        typer.Option(
            "--compare/--no-compare",
            rich_help_panel=FIT_PANEL,
            help="Also try bayes, soft-impute, nuclear and bias on the same "
            "entries, to say whether one of them would do better.",
        ),
    ] = True,
    budget: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            rich_help_panel=FIT_PANEL,
            help="What a fit of these others may take.",
        ),
    ] = 60.0,
    engine: EngineOption = EngineChoice.AUTO,
    scale: Annotated[
        ScaleChoice,
        typer.Option(
            rich_help_panel=FIT_PANEL,
            help="Bring columns to one scale; auto does so in tables whose "
            "columns differ much.",
        ),
    ] = ScaleChoice.AUTO,
    json_out: Annotated[
        Path | None,
        typer.Option(
            "--json",
            metavar="PATH.json",
            rich_help_panel=OUTPUT_PANEL,
            show_default=False,
            help="Write all numbers, those of every column too.",
        ),
    ] = None,
    report: ReportOption = None,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite",
            rich_help_panel=OUTPUT_PANEL,
            help="Replace a JSON file that exists.",
        ),
    ] = False,
    quiet: QuietOption = False,
    na: list[str] | None = None,
    label: list[str] | None = None,
    header: bool | None = None,
    delimiter: str | None = None,
    decimal: str | None = None,
    array: str | None = None,
) -> None:
    """Find out how far the filled values of a table can be trusted.

    Some of the observed entries are hidden, filled in as missing ones would be, and
    compared with the truth: how large errors are, in each column too, the nominal and
    actual coverage of intervals, and whether another method would do better. The
    table itself is not changed.
    """
    plan = ComparisonPlan(
        [str(method)], hide, repeats, str(pattern), seed, str(engine), budget
    )
    check_report_path(report, source)
    check_json_path(json_out, source, overwrite=overwrite)
    reading = ReadOptions(
        na or (), label or (), header, delimiter, array, decimal=decimal
    )
    table = read_table(source, reading)
    print_read_warnings(table)
    evaluation = run_evaluate(
        _evaluate_request(plan, table, scale, compare_too=compare_too),
        table,
        quiet=quiet,
    )
    command = next_command(source, reading, evaluation.comparison, scale)
    print_evaluation(evaluation, table, command, quiet=quiet)
    if json_out is not None:
        write_evaluation_json(evaluation, json_out, source, reading, command)
    if report is not None:
        write_evaluate_page(evaluation, table, source, report, command, quiet=quiet)


def check_json_path(path: Path | None, source: Path, *, overwrite: bool) -> None:
    """Raise if the JSON file cannot, or must not, be written."""
    if path is None:
        return
    if path.suffix.lower() != ".json":
        raise ValueError(f"--json must end in .json, got {str(path)!r}")
    check_output_paths(source, {"--json": path}, overwrite)


def _evaluate_request(
    plan: ComparisonPlan, table: TableFile, scale: ScaleChoice, *, compare_too: bool
) -> EvaluationRequest:
    """What to evaluate, with the scaling that ``ncarl complete`` would choose."""
    others = DEFAULT_COMPARISON_METHODS if compare_too else ()
    every = replace(plan, methods=(*plan.methods, *others))
    by_method = decide_scales(every, scale, table)
    plan = replace(plan, scale=by_method, jobs=min(2, available_cores()))
    return EvaluationRequest(plan, others, table.columns)


def run_evaluate(
    request: EvaluationRequest, table: TableFile, *, quiet: bool
) -> Evaluation:
    """Run an evaluation, with a progress bar in a terminal."""
    shown = is_interactive() and not quiet
    observed = as_observations(table.values)
    try:
        with progress_bar(shown, request.n_fits, "evaluate") as advance:
            return run_evaluation(request, observed, advance)
    except ValueError as error:  # the option of the command, not of the library
        raise ValueError(str(error).replace("hide=", "--hide ", 1)) from error


def write_evaluation_json(
    evaluation: Evaluation,
    path: Path,
    source: Path,
    reading: ReadOptions,
    command: str | None,
) -> None:
    """Write all numbers as a JSON object."""
    content = {"data": to_printable(source), "next": command, **evaluation.to_dict()}
    text = json.dumps(content, indent=2, allow_nan=False)
    with atomic_write(path.resolve()) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def print_evaluation(
    evaluation: Evaluation, table: TableFile, command: str | None, *, quiet: bool
) -> None:
    """Print an evaluation; warnings go to the error stream."""
    from rich.console import Console

    for warning in evaluation_warnings(evaluation):
        typer.echo(f"warning: {warning}", err=True)
    if quiet:
        return
    console = Console()
    print_fields(console, evaluate_header_lines(evaluation, table))
    print_fields(console, error_lines(evaluation))
    console.print()
    if evaluation.levels:
        console.print(coverage_table(evaluation), highlight=False)
        console.print()
    console.print(columns_table(evaluation), highlight=False)
    console.print()
    if len(evaluation.comparison.summaries) > 2:
        console.print(methods_table(evaluation), highlight=False)
        console.print()
    print_fields(console, advice_lines(evaluation, command))


def evaluate_header_lines(
    evaluation: Evaluation, table: TableFile
) -> Iterable[tuple[str, str]]:
    """What was read and hidden, and the engine of the method."""
    for name, text in compare_header_lines(evaluation.comparison, table):
        if name != "engine":
            yield name, text
    yield "engine", evaluation.split_predictions[0].engine


def error_lines(evaluation: Evaluation) -> Iterable[tuple[str, str]]:
    """Errors of the method, beside those of the columns' means."""
    seconds = evaluation.pooled_predictions.seconds
    yield "method", f"{evaluation.method}, {seconds:.1f} s a fit"
    if evaluation.standardized_error is not None:
        own, mean = evaluation.standardized_error
        std = evaluation.standardized_error_std
        over_draws = "" if std is None else f" (± {std:.2g})"
        unit = "of a column's standard deviation"
        yield "error", f"{own:.3g}{over_draws} {unit}; its mean: {mean:.3g}"
        weighted = evaluation.error_on_missing
        if weighted is not None and abs(weighted - own) > MIN_RELATIVE_DIFFERENCE * own:
            yield "", f"{weighted:.3g} with columns weighted by their missing entries"
    explained = evaluation.explained_fraction
    if explained is not None:
        accuracy = describe_accuracy(evaluation)
        yield "", f"{accuracy} ({explained:.0%} of the squared error explained)"
    if evaluation.comparison.plan.by_column:
        return
    rows = (
        ("RMSE", evaluation.error),
        ("MAE", evaluation.absolute_error),
        ("relative", evaluation.relative_error),
    )
    yield "", "; ".join(f"{name} {own:.4g} (mean {mean:.4g})"
                        for name, (own, mean) in rows)  # fmt: skip


def describe_accuracy(evaluation: Evaluation) -> str:
    """How well hidden entries were predicted, in words; empty if no column varies."""
    explained = evaluation.explained_fraction
    if explained is None:
        return ""
    verdict = next(text for least, text in VERDICTS if explained >= least)
    return f"hidden entries can be predicted from the rest {verdict}"


def coverage_table(evaluation: Evaluation) -> RichTable:
    """Nominal and actual coverage of intervals, and their standardized width."""
    levels = evaluation.levels
    table = _make_table(("nominal coverage", *(f"{one.level:.0%}" for one in levels)))
    table.add_row("actual coverage", *(f"{one.coverage:.1%}" for one in levels))
    widths = (format_number(one.standardized_width, ".3g") for one in levels)
    table.add_row("mean width", *widths)
    return table


def columns_table(evaluation: Evaluation) -> RichTable:
    """The columns with the largest errors."""
    heads = ("worst columns", "hidden", "error", "mean's", "explained", "in 90%")
    table = _make_table(heads)
    for one in evaluation.columns[:MAX_PRINTED_COLUMNS]:
        table.add_row(*column_cells(one))
    return table


def column_cells(score: ColumnScore) -> list[str]:
    """The cells of a column; errors are in its standard deviation."""
    from rich.markup import escape

    return [
        escape(_short_name(score)),
        f"{score.hidden}",
        format_number(score.standardized_error, ".3g"),
        format_number(score.column_mean_error, ".3g"),
        format_number(score.explained, ".0%"),
        format_number(score.coverage, ".0%"),
    ]


def _short_name(score: ColumnScore) -> str:
    return shorten(" ".join(to_printable(score.name).split()), MAX_NAME_LENGTH)


def methods_table(evaluation: Evaluation) -> RichTable:
    """The method among others on the same entries, the recommended one in bold."""
    scaled = evaluation.comparison.plan.by_column
    table = _make_table(
        ("method", "standardized error" if scaled else "error", "±", "in 90%")
    )
    table.add_column("", no_wrap=True)
    advice = evaluation.comparison.recommendation
    for line in evaluation.comparison.summaries:
        note = "" if line.status == DONE else line.status
        if not note and line.method in advice.ties:
            note = "recommended" if line.method == advice.method else "as good"
        table.add_row(
            line.method,
            format_number(line.error, ".4g"),
            format_number(line.error_std, ".2g"),
            format_number(line.coverage, ".1%"),
            note,
            style="bold" if line.method == advice.method else "",
        )
    return table


def _make_table(heads: Sequence[str]) -> RichTable:
    """An empty table of names and numbers."""
    from rich import box
    from rich.table import Table as RichTable

    table = RichTable(
        box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False
    )
    table.add_column(heads[0], no_wrap=True)
    for name in heads[1:]:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def advice_lines(
    evaluation: Evaluation, command: str | None
) -> Iterable[tuple[str, str]]:
    """Which method to go on with, and how."""
    yield "advice", describe_advice(evaluation)
    if command is not None:
        yield "go on", command


def describe_advice(evaluation: Evaluation) -> str:
    """Whether to stay with the method, and why."""
    advice = evaluation.comparison.recommendation
    if len(evaluation.comparison.summaries) <= 2:
        return f"only {evaluation.method} was tried; ncarl compare tries others"
    if advice.method == evaluation.method:
        return f"stay with {advice.reason}"
    return f"rather {advice.reason}"


def evaluation_warnings(evaluation: Evaluation) -> list[str]:
    """Reasons to distrust the results or the filled values."""
    warnings = list(evaluation.comparison.recommendation.warnings)
    worse = [one for one in evaluation.columns if (one.explained or 0.0) < 0.0]
    if worse:
        names = join_names([_short_name(one) for one in worse], MAX_LISTED)
        verb = "column is" if len(worse) == 1 else "columns are"
        warnings.append(
            f"{len(worse)} {verb} filled worse than by the column's mean: {names}"
        )
    return warnings


def write_evaluate_page(
    evaluation: Evaluation,
    table: TableFile,
    source: Path,
    path: Path,
    command: str | None,
    *,
    quiet: bool,
) -> None:
    """Write the page of an evaluation, and print its path."""
    build_evaluate_page(evaluation, table, source, command).save(path.resolve())
    print_report_path(path, quiet=quiet)


def build_evaluate_page(
    evaluation: Evaluation, table: TableFile, source: Path, command: str | None
) -> Page:
    """The page of an evaluation."""
    page = Page(
        f"How far to trust what fills {source.name}", summarize_evaluation(evaluation)
    )
    page.warning(*(f"Warning: {line}." for line in evaluation_warnings(evaluation)))
    page.text(f"Advice: {describe_advice(evaluation)}").code(command or "")
    page.heading("Errors, column by column")
    page.try_figure(
        lambda: draw_columns(evaluation),
        "Errors on hidden entries, in standard deviations of the column, so that the "
        "mean of the column, the hollow dot, lies near 1; the further left a filled "
        "dot, the better the column can be predicted from the rest of the table.",
    )
    _add_intervals(page, evaluation)
    page.heading("Errors, entry by entry")
    page.try_figure(
        lambda: draw_residuals(evaluation),
        "Every dot is a hidden entry. One error in twenty should lie beyond the "
        "dashed lines."
        if evaluation.pooled_predictions.std is not None
        else "Every dot is a hidden entry.",
    )
    _add_column_table(page, evaluation)
    _add_other_methods(page, evaluation)
    return _add_details(page, evaluation, table)


def summarize_evaluation(evaluation: Evaluation) -> str:
    """Errors and coverage in two or three sentences."""
    errors, accuracy = evaluation.standardized_error, describe_accuracy(evaluation)
    if errors is None:
        return "No column varies, so that there is nothing to predict."
    own, mean = errors
    text = f"{accuracy[:1].upper()}{accuracy[1:]}. " if accuracy else ""
    text += (
        f"Filled in by {evaluation.method}, their error was {own:.2g} of their "
        f"column's standard deviation (root mean square); that of the column's mean "
        f"was {mean:.2g}."
    )
    for one in evaluation.levels:
        if one.level == 0.9:
            text += f" Intervals of nominal coverage 90% covered {one.coverage:.0%}."
    return text


def _add_intervals(page: Page, evaluation: Evaluation) -> None:
    """Nominal and actual coverage of intervals, as a figure and a table."""
    if not evaluation.levels:
        return
    page.heading("Intervals")
    page.try_figure(
        lambda: draw_reliability(evaluation),
        "Actual coverage of the intervals on hidden entries against the nominal one; "
        "on the dashed line they agree.",
    )
    rows = [
        (
            f"{one.level:.0%}",
            f"{one.coverage:.1%}",
            f"{one.width:.4g}",
            format_number(one.standardized_width, ".3g"),
        )
        for one in evaluation.levels
    ]
    page.table(
        ("nominal coverage", "actual coverage", "mean width", "standardized"), rows
    )


def _add_column_table(page: Page, evaluation: Evaluation) -> None:
    """The table of columns, the largest errors first."""
    page.heading("All columns")
    some = evaluation.columns[:MAX_PAGE_COLUMNS]
    page.text(
        "Explained is the fraction of the squared error of the column's mean that the "
        "method removes: 100% is all of it, 0% none; below that the mean is better."
        + (f" These are the {len(some)} with the largest errors, of "
           f"{len(evaluation.columns)}." if len(some) < len(evaluation.columns) else "")
    )  # fmt: skip
    rows = [
        (
            one.name,
            f"{one.hidden}",
            f"{one.error:.4g}",
            format_number(one.standardized_error, ".3f"),
            format_number(one.column_mean_error, ".3f"),
            format_number(one.explained, ".0%"),
            format_number(one.coverage, ".0%"),
        )
        for one in some
    ]
    page.table(COLUMN_HEADERS, rows)


def _add_other_methods(page: Page, evaluation: Evaluation) -> None:
    """The other methods on the same entries."""
    if len(evaluation.comparison.summaries) <= 2:
        return
    page.heading("Other methods on the same entries")
    add_comparison(page, evaluation.comparison)


def _add_details(page: Page, evaluation: Evaluation, table: TableFile) -> Page:
    """What was hidden, all errors, versions and the command."""
    page.heading("Details")
    facts = {
        name: to_printable(text)
        for name, text in evaluate_header_lines(evaluation, table)
        if name
    }
    for name, (own, mean) in (
        ("RMSE", evaluation.error),
        ("MAE", evaluation.absolute_error),
        ("relative error", evaluation.relative_error),
    ):
        facts[name] = f"{own:.5g}; by the column's mean {mean:.5g}"
    if evaluation.error_on_missing is not None:
        facts["weighted"] = (
            f"{evaluation.error_on_missing:.3g} of a column's standard deviation "
            "(RMSE), with columns weighted by their missing entries"
        )
    facts["fit"] = f"{evaluation.pooled_predictions.seconds:.1f} s on average"
    facts["protocol"] = (
        "Observed entries were hidden and the method saw the rest only, also to choose "
        "its parameters. Errors are means over the draws; those of columns are over "
        "all draws together."
    )
    page.facts({**facts, **package_versions()})
    return page.code(command_line())
