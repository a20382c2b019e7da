"""``ncarl evaluate``: measure the errors of a method on held-out entries of a table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from ncarl.cli import console, options as opt
from ncarl.cli.compare import (
    add_comparison,
    advice_fields,
    decide_scales,
    next_command,
    print_methods,
    split_fields,
)
from ncarl.cli.console import Fields
from ncarl.cli.options import fit_option, holdout_option, output_option
from ncarl.containers import as_observations
from ncarl.engines.cores import available_cores
from ncarl.evaluation.comparison import INTERVAL_LEVEL, ComparisonPlan
from ncarl.evaluation.evaluation import (
    ColumnScore,
    Evaluation,
    run_evaluation,
    with_other_methods,
)
from ncarl.html import Page
from ncarl.io.files import write_json
from ncarl.io.tables import ReadOptions, TableFile, read_table
from ncarl.progress import progress_bar
from ncarl.registry import DEFAULT_COMPARISON_METHODS, TABLE_IMPUTERS
from ncarl.text import (
    MAX_LISTED,
    format_number,
    join_names,
    one_line,
    shorten,
    to_printable,
)

EXAMPLES = (
    "ncarl evaluate table.csv",
    "ncarl evaluate table.csv --hide 0.2 --repeats 5 --report trust.html",
    "ncarl evaluate ratings.npz --method ncarl-cv --no-compare --json trust.json",
)
#: Columns that are printed, characters of their names, and columns on the page.
MAX_PRINTED_COLUMNS, MAX_NAME_LENGTH, MAX_PAGE_COLUMNS = 8, 28, 500
#: Errors that differ by more than this fraction are both printed.
MIN_RELATIVE_DIFFERENCE = 0.05
#: Minimum explained fraction of the squared error, and how well entries are predicted.
VERDICTS = (
    (0.9, "very well"),
    (0.7, "well"),
    (0.4, "fairly well"),
    (0.1, "a little"),
    (float("-inf"), "hardly"),
)
COLUMN_HEADERS = (
    *("worst columns", "held out", "RMSE", "error", "mean's", "explained"),
    f"in {INTERVAL_LEVEL:.0%}",
)


@opt.takes_read_options
def evaluate(
    source: opt.DataArgument,
    method: Annotated[
        opt.EvaluatedMethodChoice, fit_option("The method to evaluate.")
    ] = "bayes",
    hide: opt.HideOption = 0.1,
    repeats: Annotated[int, holdout_option("Number of random splits.")] = 3,
    pattern: opt.PatternOption = "missing",
    seed: opt.SeedOption = 0,
    compare_too: Annotated[
        bool,
        fit_option(
            f"Also evaluate {', '.join(DEFAULT_COMPARISON_METHODS)} on the same "
            f"entries, and in tables those of {', '.join(TABLE_IMPUTERS)} that do not "
            "take long.",
            "--compare/--no-compare",
        ),
    ] = True,
    budget: Annotated[
        float,
        fit_option("Time limit of a fit of these other methods.", metavar="SECONDS"),
    ] = 60.0,
    engine: opt.EngineOption = "auto",
    scale: opt.ScaleOption = "auto",
    json_out: Annotated[
        Path | None,
        output_option(
            "Write all numbers, with those of every column.",
            "--json",
            metavar="PATH.json",
            show_default=False,
        ),
    ] = None,
    report: opt.ReportOption = None,
    overwrite: opt.OverwriteOption = False,
    quiet: opt.QuietOption = False,
    *,
    reading: ReadOptions,
) -> None:
    """Measure how accurate the imputed values of a table are.

    Some of the observed entries are held out, imputed like missing ones, and compared
    with the truth: errors, also by column, nominal and actual coverage of intervals,
    and whether another method is more accurate. The table itself is not changed.
    """
    plan = ComparisonPlan([method], hide, repeats, pattern, seed, engine, budget)
    console.check_report_path(report, source)
    console.check_suffix("--json", json_out, ".json")
    console.check_outputs(source, {"--json": json_out}, overwrite=overwrite)
    table = read_table(source, reading)
    console.print_warnings(table.read_warnings)
    observed = as_observations(table.values)
    others: list[str] = []
    if compare_too:
        plan, others = with_other_methods(plan, observed)
    scales = decide_scales((*plan.methods, *others), scale, table)
    plan = replace(plan, scale=scales, jobs=min(2, available_cores()))
    n_fits = repeats * (1 + len(others))
    with progress_bar(console.is_interactive(quiet), n_fits, "evaluate") as advance:
        evaluation = run_evaluation(plan, observed, others, table.columns, advance)
    command = next_command(source, reading, evaluation.comparison, scale)
    console.print_warnings(evaluation_warnings(evaluation))
    if not quiet:
        _print_evaluation(evaluation, table, command)
    if json_out is not None:
        about = {"data": to_printable(source), "next": command}
        write_json(json_out, {**about, **evaluation.to_dict()})
    if report is not None:
        page = build_evaluate_page(evaluation, source, command)
        fields = evaluation_fields(evaluation, table)
        console.write_page(page, report, fields, quiet=quiet)


def _print_evaluation(
    evaluation: Evaluation, table: TableFile, command: str | None
) -> None:
    console.print_fields(evaluation_fields(evaluation, table))
    console.print_text()
    if evaluation.levels:
        heads, *rows = coverage_rows(evaluation)
        console.print_table(heads, rows)
    worst = evaluation.columns[:MAX_PRINTED_COLUMNS]
    console.print_table(COLUMN_HEADERS, [column_cells(one) for one in worst])
    if len(evaluation.comparison.summaries) > 2:
        print_methods(evaluation.comparison)
    console.print_fields(advice_fields(describe_advice(evaluation), command))


def evaluation_fields(evaluation: Evaluation, table: TableFile) -> Fields:
    """The table and its split, and errors beside those of the columns' means."""
    for name, text in split_fields(evaluation.comparison, table):
        if name != "engine":
            yield name, text
    if engine := evaluation.split_predictions[0].engine:
        yield "engine", engine
    seconds = evaluation.pooled_predictions.seconds
    yield "method", f"{evaluation.method}, {seconds:.1f} s per fit"
    if evaluation.standardized_error is not None:
        own, mean = evaluation.standardized_error
        std = evaluation.standardized_error_std
        over_splits = "" if std is None else f" (± {std:.2g})"
        unit = "of a column's standard deviation"
        yield "error", f"{own:.3g}{over_splits} {unit}; its mean: {mean:.3g}"
        weighted = evaluation.error_on_missing
        if weighted is not None and abs(weighted - own) > MIN_RELATIVE_DIFFERENCE * own:
            yield "", f"{weighted:.3g} with columns weighted by their missing entries"
    if accuracy := describe_accuracy(evaluation):
        share = f"{evaluation.explained_fraction:.0%} of the squared error"
        yield "", f"{accuracy} ({share} explained)"
    if not evaluation.comparison.plan.by_column:
        rows = {
            "RMSE": evaluation.error,
            "MAE": evaluation.absolute_error,
            "relative": evaluation.relative_error,
        }
        texts = [f"{name} {a:.4g} (mean {b:.4g})" for name, (a, b) in rows.items()]
        yield "", "; ".join(texts)


def describe_accuracy(evaluation: Evaluation) -> str:
    """How well held-out entries were predicted; empty if no column varies."""
    explained = evaluation.explained_fraction
    if explained is None:
        return ""
    verdict = next(text for least, text in VERDICTS if explained >= least)
    return f"held-out entries can be predicted from the rest {verdict}"


def coverage_rows(evaluation: Evaluation) -> list[tuple[str, ...]]:
    """Nominal and actual coverage of intervals, and their standardized width."""
    levels = evaluation.levels
    widths = [format_number(one.standardized_width, ".3g") for one in levels]
    return [
        ("nominal coverage", *(f"{one.level:.0%}" for one in levels)),
        ("actual coverage", *(f"{one.coverage:.1%}" for one in levels)),
        ("mean width", *widths),
    ]


def column_cells(score: ColumnScore, max_length: int = MAX_NAME_LENGTH) -> list[str]:
    """The row of a column in the table of columns."""
    return [
        shorten(one_line(to_printable(score.name)), max_length),
        f"{score.hidden}",
        format_number(score.error, ".4g"),
        format_number(score.standardized_error, ".3f"),
        format_number(score.column_mean_error, ".3f"),
        format_number(score.explained, ".0%"),
        format_number(score.coverage, ".0%"),
    ]


def describe_advice(evaluation: Evaluation) -> str:
    """Whether the method is the recommended one, and why."""
    advice = evaluation.comparison.recommendation
    if len(evaluation.comparison.summaries) <= 2:
        return f"only {evaluation.method} was tried; ncarl compare tries others"
    if advice.method == evaluation.method:
        return f"keep {advice.reason}"
    if evaluation.method in advice.ties:
        tied = f"{evaluation.method} is not distinguished from the best"
        return f"{tied}; recommended is {advice.reason}"
    return f"change to {advice.reason}"


def evaluation_warnings(evaluation: Evaluation) -> list[str]:
    """Reasons to distrust the results or the imputed values."""
    warnings = list(evaluation.comparison.recommendation.warnings)
    worse = [one for one in evaluation.columns if one.is_worse]
    if worse:
        names = join_names([column_cells(one)[0] for one in worse], MAX_LISTED)
        verb = "column is" if len(worse) == 1 else "columns are"
        warnings.append(
            f"{len(worse)} {verb} imputed worse than by the column's mean: {names}"
        )
    return warnings


def build_evaluate_page(
    evaluation: Evaluation, source: Path, command: str | None
) -> Page:
    """The page of an evaluation."""
    from ncarl.evaluation.outputs import draw_columns, draw_reliability, draw_residuals

    page = Page(
        f"How accurate are imputed values of {source.name}?",
        summarize_evaluation(evaluation),
    )
    page.warning(*(f"Warning: {line}." for line in evaluation_warnings(evaluation)))
    page.text(f"Advice: {describe_advice(evaluation)}").code(command or "")
    page.heading("Errors by column")
    page.text(
        "Observed entries were held out and the method saw the rest only, also to "
        "choose its parameters. Errors are means over the splits; those of columns are "
        "over all splits together."
    )
    page.try_figure(
        lambda: draw_columns(evaluation),
        "Errors on held-out entries, in standard deviations of the column, so that the "
        "mean of the column, the hollow dot, lies near 1; the further left a filled "
        "dot, the better the column can be predicted from the rest of the table.",
    )
    if evaluation.levels:
        page.heading("Intervals")
        page.try_figure(
            lambda: draw_reliability(evaluation),
            "Actual coverage of the intervals on held-out entries against the nominal "
            "one; on the dashed line they agree.",
        )
        heads, *rows = coverage_rows(evaluation)
        page.table(heads, rows)
    page.heading("Errors by entry")
    caption = "Every dot is a held-out entry."
    if evaluation.pooled_predictions.std is not None:
        caption += " One error in twenty should lie beyond the dashed lines."
    page.try_figure(lambda: draw_residuals(evaluation), caption)
    page.heading("All columns")
    some = evaluation.columns[:MAX_PAGE_COLUMNS]
    text = (
        "Explained is the fraction of the squared error of the column's mean that the "
        "method removes: 100% is all of it, 0% none; below that the mean is better."
    )
    n_columns = len(evaluation.columns)
    if len(some) < n_columns:
        text += f" These are the {len(some)} with the largest errors, of {n_columns}."
    page.text(text).table(COLUMN_HEADERS, [column_cells(one, 500) for one in some])
    if len(evaluation.comparison.summaries) > 2:
        page.heading("Other methods on the same entries")
        add_comparison(page, evaluation.comparison)
    return page


def summarize_evaluation(evaluation: Evaluation) -> str:
    """Errors and coverage in two or three sentences."""
    errors, accuracy = evaluation.standardized_error, describe_accuracy(evaluation)
    if errors is None:
        return "No column varies, so that there is nothing to predict."
    own, mean = errors
    text = f"{accuracy[:1].upper()}{accuracy[1:]}. " if accuracy else ""
    text += (
        f"Imputed by {evaluation.method}, their error was {own:.2g} of their column's "
        f"standard deviation (root mean square); that of the column's mean was "
        f"{mean:.2g}."
    )
    for one in evaluation.levels:
        if one.level == INTERVAL_LEVEL:
            text += f" {one.level:.0%} intervals covered {one.coverage:.0%}."
    return text
