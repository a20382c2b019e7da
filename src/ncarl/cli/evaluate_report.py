"""What ``ncarl evaluate`` prints when it is done."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import typer

from ncarl.cli.compare_report import head_lines
from ncarl.cli.files import Table, shown
from ncarl.study.cells import DONE
from ncarl.study.evaluate_scores import ColumnScore, Evaluation

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

#: Columns that are printed, and letters of their names.
WORST, LETTERS = 8, 28
#: Errors that differ by more than this part are both told.
APART = 0.05
#: Parts of the squared error that are taken away, and how well entries can be told.
VERDICTS = (
    (0.9, "very well"),
    (0.7, "well"),
    (0.4, "in good part"),
    (0.1, "a little; the column's mean is not much worse"),
    (float("-inf"), "hardly; the column's mean does as well"),
)


def print_evaluation(
    found: Evaluation, table: Table, command: str | None, *, quiet: bool
) -> None:
    """Print an evaluation; warnings go to the error stream."""
    from rich.console import Console

    for warning in warnings_of(found):
        typer.echo(f"warning: {warning}", err=True)
    if quiet:
        return
    console = Console()
    _say(console, hidden_lines(found, table))
    _say(console, error_lines(found))
    console.print()
    if found.levels:
        console.print(levels_table(found), highlight=False)
        console.print()
    console.print(columns_table(found), highlight=False)
    console.print()
    if len(found.comparison.lines) > 2:
        console.print(others_table(found), highlight=False)
        console.print()
    _say(console, advice_lines(found, command))


def _say(console: Console, lines: Iterable[tuple[str, str]]) -> None:
    """Print lines of a name and what there is to say."""
    for name, text in lines:
        console.print(f"[bold]{name:<10}[/bold]", end="", highlight=False)
        if not console.encoding.lower().startswith("utf"):
            text = text.replace("\N{PLUS-MINUS SIGN}", "+/-")
        console.print(shown(text), markup=False, highlight=False, soft_wrap=True)


def hidden_lines(found: Evaluation, table: Table) -> Iterable[tuple[str, str]]:
    """What was read and hidden, and where the method ran."""
    for name, text in head_lines(found.comparison, table):
        if name != "engine":
            yield name, text
    yield "engine", found.tried[0].engine


def verdict(found: Evaluation) -> str:
    """How well hidden entries were found, in words.

    A sentence without its full stop; nothing where no column varies.
    """
    part = found.explained
    if part is None:
        return ""
    words = next(text for least, text in VERDICTS if part >= least)
    return f"hidden entries can be told from the rest {words}"


def error_lines(found: Evaluation) -> Iterable[tuple[str, str]]:
    """The errors in words, beside those of the columns' means."""
    yield "method", f"{found.method}, {found.all.seconds:.1f} s a fit"
    both = found.error_in_spreads
    if both is not None:
        spread = "" if found.variation is None else f" (± {found.variation:.2g})"
        yield (
            "error",
            f"{both[0]:.3g}{spread} of a column's spread; its mean: {both[1]:.3g}",
        )
    weighed = found.error_on_gaps
    if (
        both is not None
        and weighed is not None
        and abs(weighed - both[0]) > APART * both[0]
    ):
        yield "", f"{weighed:.3g} with every column counted as often as it has gaps"
    if found.explained is not None:
        yield "", f"{verdict(found)} ({found.explained:.0%} of the squared error gone)"
    if found.comparison.plan.by_column:
        return
    rows = (
        ("RMSE", found.error),
        ("MAE", found.absolute_error),
        ("relative", found.relative_error),
    )
    yield "", "; ".join(f"{name} {own:.4g} (mean {mean:.4g})"
                        for name, (own, mean) in rows)  # fmt: skip


def levels_table(found: Evaluation) -> RichTable:
    """Intervals: what they promise, what they held, how wide they were."""
    heads = ("intervals", *(f"{one.level:.0%}" for one in found.levels))
    table = _table(heads)
    table.add_row("held", *(f"{one.held:.1%}" for one in found.levels))
    table.add_row("width", *(f"{one.width_in_spreads:.3g}"
                             if one.width_in_spreads is not None else "-"
                             for one in found.levels))  # fmt: skip
    return table


def columns_table(found: Evaluation) -> RichTable:
    """The columns with the largest errors."""
    heads = ("worst columns", "hidden", "error", "mean's", "explained", "in 90%")
    table = _table(heads)
    for one in found.columns[:WORST]:
        table.add_row(*column_cells(one))
    return table


def others_table(found: Evaluation) -> RichTable:
    """The method among others on the same entries, the recommended one in bold."""
    scaled = found.comparison.plan.by_column
    table = _table(("method", "error in spreads" if scaled else "error", "±", "in 90%"))
    table.add_column("", no_wrap=True)
    advice = found.comparison.recommendation
    for line in found.comparison.lines:
        word = "" if line.status == DONE else line.status
        if not word and line.method in advice.ties:
            word = "recommended" if line.method == advice.method else "as good"
        table.add_row(
            line.method,
            _figure(line.error, ".4g"),
            _figure(line.spread, ".2g"),
            _figure(line.coverage, ".1%"),
            word,
            style="bold" if line.method == advice.method else "",
        )
    return table


def column_cells(one: ColumnScore) -> list[str]:
    """The cells of a column; errors are in spreads of it."""
    from rich.markup import escape

    from ncarl.pages.style import brief

    name = " ".join(shown(one.name).split())
    return [
        escape(brief(name, LETTERS)),
        f"{one.hidden}",
        _figure(one.error_in_spreads, ".3g"),
        _figure(one.mean_in_spreads, ".3g"),
        _figure(one.explained, ".0%"),
        _figure(one.held, ".0%"),
    ]


def _figure(value: float | None, form: str) -> str:
    """A figure, or a dash where there is none."""
    return "-" if value is None else format(value, form)


def _table(heads: Sequence[str]) -> RichTable:
    """An empty table of names and figures."""
    from rich import box
    from rich.table import Table as RichTable

    table = RichTable(
        box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False
    )
    table.add_column(heads[0], no_wrap=True)
    for name in heads[1:]:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def advice_lines(found: Evaluation, command: str | None) -> Iterable[tuple[str, str]]:
    """Which method to go on with, and how."""
    yield "advice", advice_words(found)
    if command is not None:
        yield "go on", command


def advice_words(found: Evaluation) -> str:
    """Whether to stay with the method, and why."""
    advice = found.comparison.recommendation
    if len(found.comparison.lines) <= 2:
        return f"only {found.method} was tried; ncarl compare tries others"
    if advice.method == found.method:
        return f"stay with {advice.reason}"
    return f"rather {advice.reason}"


def warnings_of(found: Evaluation) -> list[str]:
    """What speaks against trusting the figures or the filled values."""
    warnings = list(found.comparison.recommendation.warnings)
    worse = [one for one in found.columns if (one.explained or 0.0) < 0.0]
    if worse:
        from ncarl.cli.files import listed
        from ncarl.pages.style import brief

        names = listed(
            [brief(" ".join(shown(one.name).split()), LETTERS) for one in worse]
        )
        verb = "column is" if len(worse) == 1 else "columns are"
        warnings.append(
            f"{len(worse)} {verb} filled worse than by the column's mean: {names}"
        )
    return warnings
