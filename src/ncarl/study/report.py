"""A study as one page: verdicts, tables, figures, and where they come from."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ncarl.pages.markup import foot, head, picture
from ncarl.pages.style import safe
from ncarl.storage import replacing
from ncarl.study.entries import PROTOCOL_LABELS, PROTOCOLS, Entry, Verdict
from ncarl.study.report_cells import USUAL_SEEDS
from ncarl.study.report_tables import (
    OLD_NOTE,
    listed,
    parameter_table,
    result_tables,
    scrolled,
    verdict_table,
)
from ncarl.study.shown import check_measure


@dataclass(frozen=True)
class Section:
    """A table or figure of the paper, run again.

    Attributes
    ----------
    name : str
        "table1", "fig4".
    title : str
        What it is about.
    text : str
        Plain paragraphs, parted by empty lines.
    entries : sequence of Entry
        What its tables show; there may be none.
    measure : {"error", "seconds"}
        Which figure of the entries.
    figures : mapping of str to Path
        PNG files by their captions.
    notes : sequence of str
        What else there is to say; a list.
    """

    name: str
    title: str
    text: str = ""
    entries: Sequence[Entry] = ()
    measure: str = "error"
    figures: Mapping[str, Path] = field(default_factory=dict)
    notes: Sequence[str] = ()

    def __post_init__(self) -> None:
        check_measure(self.measure)


def write_report(
    path: str | os.PathLike[str],
    *,
    title: str,
    sections: Sequence[Section],
    verdicts: Sequence[Verdict],
    about: Mapping[str, str],
) -> Path:
    """Write a page that needs no other file, no script and no network.

    Parameters
    ----------
    path : path
        Where the page belongs; the file is whole or as it was.
    title : str
        Its heading.
    sections : sequence of Section
        Tables and figures in their order.
    verdicts : sequence of Verdict
        Claims and what became of them.
    about : mapping of str to str
        Machine, versions, date.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = write_report(Path(folder) / "report.html", title="A < B",
    ...                         sections=[Section("fig1", "Spectra")], verdicts=[],
    ...                         about={"seeds": "5"}).read_text("utf-8")
    >>> "<h1>A &lt; B</h1>" in page
    True
    """
    target = Path(path)
    ids = _ids(sections)
    parts = [
        head(title),
        _opening(title),
        _contents(sections, ids),
        '<h2 id="verdicts">Does it hold?</h2>',
        verdict_table(verdicts, "verdicts"),
        *(_section(section, name) for section, name in zip(sections, ids, strict=True)),
        '<h2 id="about">Where this comes from</h2>',
        _about(about),
        foot(),
    ]
    text = "\n".join(part for part in parts if part)
    with replacing(target) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return target


def _ids(sections: Sequence[Section]) -> list[str]:
    """A name for each section that links can use; no two are alike."""
    ids: list[str] = []
    for k, section in enumerate(sections):
        plain = re.sub(r"[^a-z0-9]+", "-", section.name.lower()).strip("-")
        # A prefix keeps them apart from the page's own.
        ids.append(f"s{k + 1}-{plain}" if plain else f"s{k + 1}")
    return ids


def _opening(title: str) -> str:
    """What the page is and how to read it."""
    protocols = [f"{name}: {PROTOCOL_LABELS[name]}" for name in PROTOCOLS]
    signs = [
        "A cell shows our mean ± standard deviation over seeds, below it what the "
        "paper prints and ours minus the paper's.",
        "≤ (green): ours is at or below the printed value, to the digits it prints.",
        "Bold: the least of its column among fits that came to their end.",
        f"n=2: two seeds finished instead of {USUAL_SEEDS}.",
        "over budget, failed, no data, not run: why a figure is missing or not final; "
        "the notes below each table say more.",
        f"{OLD_NOTE}.",
    ]
    return (
        f"<h1>{safe(title)}</h1>\n"
        "<p>The experiments of X. Li, H. Zhang, R. Zhang, “Matrix Completion via "
        "Non-Convex Relaxation and Adaptive Correlation Learning” (IEEE TPAMI 45(2), "
        "2023), run again and set beside the printed figures. Errors are root mean "
        "squared errors on hidden entries over the root mean square of those entries; "
        "the paper calls this MSE. Seconds depend on the machine: the paper's were "
        "measured on another one.</p>\n"
        "<p>Parameters are chosen in two ways, and every table says which:</p>\n"
        f"{listed(protocols, 'protocols')}\n"
        "<details>\n<summary>How to read the tables</summary>\n"
        f"{listed(signs, 'signs')}\n</details>"
    )


def _contents(sections: Sequence[Section], ids: Sequence[str]) -> str:
    """Links to all parts of the page."""
    links = [("verdicts", "Does it hold?")]
    links += [(name, s.title) for s, name in zip(sections, ids, strict=True)]
    links.append(("about", "Where this comes from"))
    items = "\n".join(f'<li><a href="#{n}">{safe(text)}</a></li>' for n, text in links)
    return f'<nav aria-label="Contents">\n<ul>\n{items}\n</ul>\n</nav>'


def _section(section: Section, name: str) -> str:
    """Text, tables, parameters and figures of one section."""
    blocks = (block.strip() for block in re.split(r"\n\s*\n", section.text))
    parts = [
        f'<section aria-labelledby="{name}">',
        f'<h2 id="{name}">{safe(section.title)}</h2>',
        *(f"<p>{safe(block)}</p>" for block in blocks if block),
        result_tables(name, section.entries, section.measure),
        listed(section.notes, "notes"),
        parameter_table(name, section.entries),
        *(_figure(caption, path) for caption, path in section.figures.items()),
        "</section>",
    ]
    return "\n".join(part for part in parts if part)


def _figure(caption: str, path: Path) -> str:
    """A picture inside the page."""
    return picture(Path(path).read_bytes(), caption, name=repr(str(path)))


def _about(about: Mapping[str, str]) -> str:
    """Machine, versions, date."""
    rows = "\n".join(
        f'<tr><th scope="row">{safe(name)}</th><td>{safe(text)}</td></tr>'
        for name, text in about.items()
    )
    if not rows:
        return "<p>Nothing is known of it.</p>"
    return scrolled(f"<table>\n<tbody>\n{rows}\n</tbody>\n</table>", "about")
