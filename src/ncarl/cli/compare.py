"""``ncarl compare``: find the method that completes a table best."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from ncarl.cli import console, options as opt
from ncarl.cli.console import Fields
from ncarl.cli.models import ModelOptions, decide_scale
from ncarl.cli.options import fit_option, holdout_option, output_option
from ncarl.containers import as_observations
from ncarl.evaluation.comparison import (
    INTERVAL_LEVEL,
    Comparison,
    ComparisonPlan,
    MethodSummary,
    run_comparison,
)
from ncarl.evaluation.imputers import PYTHON_CODE
from ncarl.evaluation.measure import DONE
from ncarl.html import Page
from ncarl.io.tables import ReadOptions, TableFile, read_table, supported_suffixes
from ncarl.progress import progress_bar
from ncarl.registry import DEFAULT_METHODS, PAPER_METHODS, TABLE_IMPUTERS
from ncarl.text import MAX_LISTED, format_number, join_names, to_printable

EXAMPLES = (
    "ncarl compare table.csv",
    "ncarl compare table.csv --methods all --repeats 5 --out compared",
)
METHOD_HEADERS = (
    *("method", "error", "std", f"in {INTERVAL_LEVEL:.0%}"),
    *("seconds", "GB", "converged", ""),
)


@opt.takes_read_options
def compare(
    source: opt.DataArgument,
    methods: Annotated[
        str,
        fit_option(
            f"Methods of ncarl complete, {', '.join(TABLE_IMPUTERS)}. auto is "
            f"{', '.join(DEFAULT_METHODS)}, and in tables also those imputers that do "
            "not take long. The baseline 'mean' is always included.",
            metavar="NAME,NAME,...|auto|all",
        ),
    ] = "auto",
    hide: opt.HideOption = 0.1,
    repeats: Annotated[
        int, holdout_option("Number of random splits; all methods see the same ones.")
    ] = 3,
    pattern: opt.PatternOption = "missing",
    seed: opt.SeedOption = 0,
    engine: opt.EngineOption = "auto",
    budget: Annotated[
        float,
        fit_option(
            "Time limit of a fit. A method that exceeds it, or fails, is not "
            "tried on the remaining splits.",
            metavar="SECONDS",
        ),
    ] = 120.0,
    jobs: Annotated[
        int,
        fit_option(
            "Fits that run in parallel and share the cores. Times are comparable "
            "with 1 only."
        ),
    ] = 1,
    scale: opt.ScaleOption = "auto",
    out: Annotated[
        Path | None,
        output_option(
            "Folder for compare.csv, compare.json and compare.png; files of "
            "these names are replaced.",
            metavar="DIR",
            show_default="print only",
        ),
    ] = None,
    report: opt.ReportOption = None,
    *,
    reading: ReadOptions,
) -> None:
    """Find the method that imputes the missing entries of a table best.

    Some of the observed entries are held out, methods complete the rest, and their
    predictions of the held-out entries are compared with the truth. Every fit runs in
    a process of its own; one that fails does not stop the others.
    """
    plan = ComparisonPlan(
        methods, hide, repeats, pattern, seed, engine, budget, jobs=jobs
    )
    console.check_report_path(report, source)
    if out is not None:
        # These load Matplotlib.
        from ncarl.evaluation.outputs import OUTPUT_FILES, write_comparison

        # A file that cannot be read must not leave a folder behind.
        with source.open("rb"):
            pass
        console.prepare_folder(out, *OUTPUT_FILES, source=source)
    table = read_table(source, reading)
    console.print_warnings(table.read_warnings)
    observed = as_observations(table.values)
    plan = plan.with_methods(observed)
    plan = replace(plan, scale=decide_scales(plan.methods, scale, table))
    n_fits = len(plan.methods) * plan.repeats
    with progress_bar(console.is_interactive(), n_fits, "compare") as advance:
        comparison = run_comparison(
            plan, observed, lambda fit: advance(fit.progress_text())
        )
    command = next_command(source, reading, comparison, scale)
    print_comparison(comparison, table, command)
    if out is not None:
        about = {"data": to_printable(source), "next": command}
        files = write_comparison(comparison, out, about)
        names = ", ".join(path.name for path in files)
        console.print_text(f"\nwritten to {out}: {names}")
    if report is not None:
        page = build_compare_page(comparison, source, command)
        console.write_page(page, report, split_fields(comparison, table))
    if command is None:
        raise typer.Exit(1)


def decide_scales(
    methods: Iterable[str], scale: opt.ScaleChoice, table: TableFile
) -> dict[str, str | None]:
    """The scaling that ``ncarl complete`` would choose, by method."""
    models = (ModelOptions(method=name, scale=scale) for name in ("ncarl", "bayes"))
    paper, others = (decide_scale(model, table.values)[0] for model in models)
    return {name: paper if name in PAPER_METHODS else others for name in methods}


def next_command(
    source: Path, reading: ReadOptions, comparison: Comparison, scale: opt.ScaleChoice
) -> str | None:
    """The command that completes the table as recommended; None without advice.

    Imputers that `ncarl complete` does not have give code in Python instead.
    """
    method = comparison.recommendation.method
    if method is None:
        return None
    if method in TABLE_IMPUTERS:
        return f"in Python: {PYTHON_CODE[method]}"
    name = source.name
    suffixes = supported_suffixes("read_table")
    ending = next(e for e in suffixes if name.lower().endswith(e))
    target = source.with_name(f"{name[: -len(ending)]}-filled{name[-len(ending) :]}")
    # No command must take a path for an option.
    paths = [f"./{p}" if str(p).startswith("-") else str(p) for p in (source, target)]
    words = ["ncarl", "complete", paths[0], "-o", paths[1], "--method", method]
    if comparison.plan.random_state:
        words += ["--seed", str(comparison.plan.random_state)]
    if comparison.plan.engine != "auto":
        words += ["--engine", comparison.plan.engine]
    if scale != "auto":
        words += ["--scale", scale]
    words += [f"--na={token}" for token in reading.na]
    words += [f"--label={column}" for column in reading.labels]
    if reading.header is not None:
        words.append("--header" if reading.header else "--no-header")
    for option in ("delimiter", "decimal", "array"):
        if (value := getattr(reading, option)) is not None:
            words.append(f"--{option}={value}")
    return shlex.join(words)


def print_comparison(
    comparison: Comparison, table: TableFile, command: str | None
) -> None:
    """Print a comparison; warnings go to the error stream."""
    console.print_fields(split_fields(comparison, table))
    console.print_text()
    print_methods(comparison)
    for line in [footnote(comparison), *failure_lines(comparison), ""]:
        console.print_text(line)
    console.print_fields(advice_fields(comparison.recommendation.reason, command))
    console.print_warnings(comparison.recommendation.warnings)


def split_fields(comparison: Comparison, table: TableFile) -> Fields:
    """The table that was read, and the entries that were held out."""
    m, n = comparison.shape
    missing = m * n - comparison.n_observed
    yield "table", f"{m} x {n}, {missing} missing ({missing / (m * n):.1%})"
    for note in table.notes:
        yield "", note
    if table.unused_columns:
        yield "labels", f"not used: {join_names(table.unused_columns, MAX_LISTED)}"
    least, most = min(comparison.n_hidden), max(comparison.n_hidden)
    count = f"{least}" if least == most else f"{least} to {most}"
    plan = comparison.plan
    times = "once" if plan.repeats == 1 else f"{plan.repeats} times"
    how = "one by one" if plan.pattern == "random" else "in the missing-data pattern"
    share = f"{count} of {comparison.n_observed} observed entries"
    yield "held out", f"{share}, {times}, {how}"
    reasons = plan.left_out.values()
    for reason in dict.fromkeys(reasons):
        names = [name for name, why in plan.left_out.items() if why == reason]
        yield "left out", f"{join_names(names, last=' and ')}: {reason}"
    fits = [fit for line in comparison.summaries for fit in line.fits]
    if engines := {fit.engine for fit in fits if fit.engine}:
        yield "engine", "; ".join(sorted(engines))


def advice_fields(advice: str, command: str | None) -> Fields:
    """The recommendation, and the command that follows it."""
    yield "best", advice
    if command is not None:
        yield "next", command


def print_methods(comparison: Comparison) -> None:
    """Print the results of all methods, the recommended one in bold."""
    rows = [method_cells(line, comparison) for line in comparison.summaries]
    best = comparison.recommendation.method
    console.print_table(METHOD_HEADERS, rows, left=(0, 7), bold=[best] if best else ())


def method_cells(line: MethodSummary, comparison: Comparison) -> list[str]:
    """The row of a method in the table of methods."""
    note = "" if line.status == DONE else line.status
    if not note and line.method in comparison.recommendation.ties:
        chosen = line.method == comparison.recommendation.method
        note = "recommended" if chosen else "tied"
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


def footnote(comparison: Comparison) -> str:
    """What the columns of the table of methods mean."""
    text = (
        "Errors are root mean squared errors on the held-out entries, in "
        f"{comparison.error_unit}; std is their standard deviation over the splits. "
        "Seconds are those of the fit, GB the peak memory of its process, Python "
        "included."
    )
    if len(comparison.recommendation.ties) > 1:
        groups = "rows" if comparison.plan.repeats == 1 else "splits"
        text += (
            " Tied methods are not distinguished from the best: their error is larger "
            "by at most one standard error of the differences, computed over the "
            f"{groups}."
        )
    if comparison.plan.jobs > 1:
        text += f" {comparison.plan.jobs} fits ran in parallel: do not compare times."
    return text


def failure_lines(comparison: Comparison) -> list[str]:
    """Why methods failed or were stopped."""
    failed = (line for line in comparison.summaries if line.message)
    return [f"{line.method}: {line.status}: {line.message}" for line in failed]


def build_compare_page(
    comparison: Comparison, source: Path, command: str | None
) -> Page:
    """The page of a comparison."""
    advice = comparison.recommendation
    lead = f"Recommended: {advice.reason}"
    if advice.method is None:
        lead = f"No recommendation: {advice.reason}."
    page = Page(f"Which method for {source.name}?", lead)
    page.warning(*(f"Warning: {line}." for line in advice.warnings))
    page.code(command or "").heading("Errors and times")
    return add_comparison(page, comparison)


def add_comparison(page: Page, comparison: Comparison) -> Page:
    """Add the figure and the table of a comparison to a page."""
    from ncarl.evaluation.outputs import draw_comparison

    page.try_figure(
        lambda: draw_comparison(comparison),
        "Errors on held-out entries, with their standard deviation over the splits, "
        "and seconds of a fit; the recommended method in blue.",
    )
    rows = [method_cells(line, comparison) for line in comparison.summaries]
    page.table(METHOD_HEADERS, rows).text(footnote(comparison))
    return page.notes(failure_lines(comparison))
