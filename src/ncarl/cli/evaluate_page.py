"""The page of ``ncarl evaluate --report``: the answer, figures, then details."""

from __future__ import annotations

from pathlib import Path

from ncarl.cli.compare_page import add_lines
from ncarl.cli.evaluate_report import (
    advice_words,
    hidden_lines,
    verdict,
    warnings_of,
)
from ncarl.cli.files import Table, shown
from ncarl.cli.reporting import command_line, say_written, versions
from ncarl.pages import Page
from ncarl.study.evaluate_figure import draw_columns, draw_reliability, draw_residuals
from ncarl.study.evaluate_scores import Evaluation

#: Rows of the table of columns.
MOST_COLUMNS = 500
HEADS = ("column", "hidden", "RMSE", "in spreads", "mean's, in spreads", "explained",
         "in 90%")  # fmt: skip


def write_page(
    found: Evaluation,
    table: Table,
    source: Path,
    path: Path,
    command: str | None,
    *,
    quiet: bool,
) -> None:
    """Write the page of an evaluation, and say so."""
    page_of(found, table, source, command).save(path.resolve())
    say_written(path, quiet=quiet)


def page_of(found: Evaluation, table: Table, source: Path, command: str | None) -> Page:
    """The page of an evaluation."""
    page = Page(f"How far to trust what fills {source.name}", answer(found))
    page.warning(*(f"Warning: {line}." for line in warnings_of(found)))
    page.text(f"Advice: {advice_words(found)}").code(command or "")
    page.heading("Errors, column by column")
    page.drawn(
        lambda: draw_columns(found),
        "Errors on hidden entries. 1 is the spread of the column, so the mean of the "
        "column, the hollow dot, lies near 1; the further left a filled dot, the more "
        "of the column can be told from the rest of the table.",
    )
    _intervals(page, found)
    page.heading("Errors, entry by entry")
    page.drawn(
        lambda: draw_residuals(found),
        "Every dot is a hidden entry. Errors beyond the dashed lines ought to be one "
        "in twenty."
        if found.all.std is not None
        else "Every dot is a hidden entry.",
    )
    _columns(page, found)
    _others(page, found)
    return _details(page, found, table)


def answer(found: Evaluation) -> str:
    """How far filled values can be trusted, in two or three sentences."""
    both, words = found.error_in_spreads, verdict(found)
    if both is None:
        return "No column varies, so there is nothing that could be told from the rest."
    text = f"{words[:1].upper()}{words[1:]}. " if words else ""
    text += (
        f"Filled in by {found.method}, they were off by {both[0]:.2g} of their "
        f"column's spread (root mean square); the mean of the column was off by "
        f"{both[1]:.2g}."
    )
    for one in found.levels:
        if one.level == 0.9:
            text += f" Intervals that promise 90% held {one.held:.0%}."
    return text


def _intervals(page: Page, found: Evaluation) -> None:
    """Intervals in figures and as a drawing."""
    if not found.levels:
        return
    page.heading("Intervals")
    page.drawn(
        lambda: draw_reliability(found),
        "Part of the hidden entries that lay in their intervals, against what the "
        "intervals promise; on the dashed line they hold exactly that.",
    )
    rows = [
        (
            f"{one.level:.0%}",
            f"{one.held:.1%}",
            f"{one.width:.4g}",
            "-" if one.width_in_spreads is None else f"{one.width_in_spreads:.3g}",
        )
        for one in found.levels
    ]
    page.table(("promised", "held", "mean width", "in spreads"), rows)


def _columns(page: Page, found: Evaluation) -> None:
    """The table of columns, the largest errors first."""
    page.heading("All columns")
    some = found.columns[:MOST_COLUMNS]
    page.text(
        "Explained is the part of the squared error of the column's mean that is gone: "
        "100% is all of it, 0% none; below that the mean is better."
        + (f" These are the {len(some)} with the largest errors, of "
           f"{len(found.columns)}." if len(some) < len(found.columns) else "")
    )  # fmt: skip
    rows = [
        (
            one.name,
            f"{one.hidden}",
            f"{one.error:.4g}",
            *(
                "-" if value is None else format(value, form)
                for value, form in (
                    (one.error_in_spreads, ".3f"),
                    (one.mean_in_spreads, ".3f"),
                    (one.explained, ".0%"),
                    (one.held, ".0%"),
                )
            ),
        )
        for one in some
    ]
    page.table(HEADS, rows)


def _others(page: Page, found: Evaluation) -> None:
    """The other methods on the same entries."""
    if len(found.comparison.lines) <= 2:
        return
    page.heading("Other methods on the same entries")
    add_lines(page, found.comparison)


def _details(page: Page, found: Evaluation, table: Table) -> Page:
    """What was hidden, all errors, versions and the command."""
    page.heading("Details")
    facts = {name: shown(text) for name, text in hidden_lines(found, table) if name}
    for name, (own, mean) in (
        ("RMSE", found.error),
        ("MAE", found.absolute_error),
        ("relative error", found.relative_error),
    ):
        facts[name] = f"{own:.5g}; by the column's mean {mean:.5g}"
    if found.error_on_gaps is not None:
        facts["by gaps"] = (
            f"{found.error_on_gaps:.3g} of a column's spread (RMSE), with every column "
            "counted as often as it has gaps"
        )
    facts["fit"] = f"{found.all.seconds:.1f} s on average"
    facts["protocol"] = (
        "Known entries were hidden and the method saw the rest only, what it chooses "
        "for itself included. Errors are means over the draws, columns are over all "
        "draws together."
    )
    page.facts({**facts, **versions()})
    return page.code(command_line())
