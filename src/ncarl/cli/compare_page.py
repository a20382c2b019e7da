"""The page of ``ncarl compare --report``: the advice, a drawing, then all figures."""

from __future__ import annotations

from pathlib import Path

from ncarl.cli.compare_report import HEADS, footnote, head_lines, line_cells
from ncarl.cli.files import Table, shown
from ncarl.cli.reporting import command_line, say_written, versions
from ncarl.pages import Page
from ncarl.study.compare import Comparison


def write_page(
    found: Comparison, table: Table, source: Path, path: Path, command: str | None
) -> None:
    """Write the page of a comparison, and say so."""
    page_of(found, table, source, command).save(path.resolve())
    say_written(path)


def page_of(found: Comparison, table: Table, source: Path, command: str | None) -> Page:
    """The page of a comparison."""
    advice = found.recommendation
    lead = (
        f"Go on with {advice.reason}"
        if advice.method
        else f"No advice: {advice.reason}."
    )
    page = Page(f"Which method for {source.name}?", lead)
    page.warning(*(f"Warning: {line}." for line in advice.warnings))
    page.code(command or "")
    page.heading("Errors and times")
    add_lines(page, found)
    page.heading("Details")
    facts = {name: shown(text) for name, text in head_lines(found, table) if name}
    page.facts({**facts, **versions()})
    return page.code(command_line())


def add_lines(page: Page, found: Comparison) -> Page:
    """Add the drawing and the table of a comparison to a page."""
    from ncarl.study.compare_figure import draw

    page.drawn(
        lambda: draw(found),
        "Errors on hidden entries, with their spread over the draws, and seconds of a "
        "fit; the recommended method in blue.",
    )
    page.table(
        ("method", *HEADS, ""), [line_cells(line, found) for line in found.lines]
    )
    page.text(footnote(found))
    return page.notes(
        f"{line.method}: {line.status}: {line.message}"
        for line in found.lines
        if line.message
    )
