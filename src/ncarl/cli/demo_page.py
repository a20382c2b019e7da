"""The page of ``ncarl demo --report``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ncarl.cli.demo import FOOTNOTE, METHODS
from ncarl.cli.demo_cases import CREDIT, LEVEL, Outcome
from ncarl.cli.reporting import command_line, versions
from ncarl.pages import Page

#: What the pictures of a case show, by the end of their name.
CAPTIONS = {
    ".png": "{}: before, after, and the truth.",
    "-intervals.png": "{}: hidden cells against what was filled in, with intervals.",
    "-correlation.png": "{}: how its {} go together, as learned.",
}


def write_page(outcomes: Sequence[Outcome], files: Sequence[Path], path: Path) -> None:
    """Write the page of a demonstration."""
    page_of(outcomes, files).save(path.resolve())


def page_of(outcomes: Sequence[Outcome], files: Sequence[Path]) -> Page:
    """The page of a demonstration, with the pictures that were drawn."""
    best = min(o.errors["bayes"] / o.errors["mean"] for o in outcomes)
    held = [float(o.covered.mean()) for o in outcomes]
    page = Page(
        "ncarl demo",
        "Entries of a photograph and of a table were hidden and filled in again by the "
        "default model, which left as little as "
        f"{best:.0%} of the error of a plain mean. Its {LEVEL:.0%} intervals held "
        f"{min(held):.0%} to {max(held):.0%} of the hidden entries.",
    )
    page.table(
        ("data", "hidden", *METHODS, "in 90%"),
        [
            (
                one.case.title,
                f"{one.case.hidden.mean():.1%}",
                *(f"{one.errors[name]:.3f}" for name in METHODS),
                f"{one.covered.mean():.1%}",
            )
            for one in outcomes
        ],
    )
    page.text(FOOTNOTE)
    pictures = {path.name: path for path in files if path.suffix == ".png"}
    for one in outcomes:
        page.heading(one.case.title)
        for ending, words in CAPTIONS.items():
            found = pictures.get(f"{one.case.name}{ending}")
            if found is not None:
                side = "rows" if one.bayes.transposed_ else "columns"
                page.picture(found, words.format(one.case.title, side))
    if "convergence.png" in pictures:
        page.heading("How the fits went")
        page.picture(pictures["convergence.png"], "What each step gained.")
    page.heading("Details").facts({"photograph": CREDIT, **versions()})
    return page.code(command_line())
