"""The page of ``ncarl doctor --report``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ncarl.cli.doctor import Row, sections_of
from ncarl.cli.report import Report
from ncarl.pages import Page


def write_page(report: Report, path: Path) -> None:
    """Write the page of a check-up."""
    page_of(report).save(path.resolve())


def page_of(report: Report) -> Page:
    """The page of a check-up; like its output it names no folder of the user."""
    lead = (
        "All is well: every engine that can be used here gives the right answer."
        if report.ok
        else "A self-test FAILED: do not trust what is computed here before it passes."
    )
    page = Page("ncarl doctor", lead)
    for title, rows in sections_of(report).items():
        page.heading(title)
        _section(page, list(rows))
    return page


def _section(page: Page, rows: Iterable[Row]) -> None:
    """Rows of two cells as facts, of three as a table."""
    found = list(rows)
    if all(len(row) == 2 for row in found):
        facts: dict[str, str] = {}
        last = ""
        for name, text in found:
            last = name or last
            facts[last] = f"{facts[last]}\n{text}" if last in facts else text
        page.facts(facts)
    else:
        page.table(("", "engine", "check"), found)
