"""The page of ``ncarl complete --report``: the answer, figures, then details."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ncarl.cli.completion import Done, Passed
from ncarl.cli.glance import (
    ColumnFacts,
    Glance,
    column_facts,
    doubts_at,
    glance_at,
    usual_spread,
)
from ncarl.cli.reporting import command_line, say_written, versions
from ncarl.cli.summary import summary_lines, warning_lines
from ncarl.pages import Page
from ncarl.plots import (
    convergence,
    draw_pattern,
    draw_uncertainty,
    reliability,
    similarity,
    similarity_graph,
    spectrum,
)
from ncarl.plots.gaps import LEAST
from ncarl.plots.known import Doubts

#: Rows of the table of columns.
MOST_COLUMNS = 200
#: Errors above this part of those of the means are no better.
NO_BETTER = 0.97
#: So many names are listed.
MOST_LISTED = 20


def write_page(done: Done, path: Path, *, quiet: bool) -> None:
    """Write the page of a run, and say so."""
    page_of(done).save(path.resolve())
    say_written(path, quiet=quiet)


def page_of(done: Done) -> Page:
    """The page of a run."""
    name = done.job.source.name
    if done.estimator is None:
        page = Page(name, "Nothing was missing, so the table was copied as it is.")
        return _details(page, done)
    table = done.table
    glance = done.glance
    if glance is None:
        assert not isinstance(table, Passed)
        glance = glance_at(table.values)
    doubts = doubts_at(glance, done.estimator)
    page = Page(f"{name}, completed", answer(done, glance, doubts))
    page.warning(*cautions(done, glance))
    _figures(page, done, glance, doubts)
    _columns(page, column_facts(glance, doubts), table.columns, glance)
    return _details(page, done)


def answer(done: Done, glance: Glance, doubts: Doubts) -> str:
    """What was done and how far it can be trusted, in two or three sentences."""
    m, n = glance.pattern.shape
    words = (
        f"{done.missing:,} of {m * n:,} entries ({done.missing / (m * n):.1%}) were "
        f"missing and have been filled in by {done.job.model.method}."
    )
    error, scaled = held_out_error(done.estimator), done.scale is not None
    usual = 1.0 if scaled else usual_spread(glance.sample)
    if error is not None and usual > 0.0:
        unit = " of a column's spread" if scaled else ""
        words += (
            f" Known entries that were held out were found to within {error:.3g}{unit} "
            f"(root mean square); the mean of the column would have been off by "
            f"{usual:.3g}."
        )
        if error > NO_BETTER * usual:
            words += (
                " That is no better: the gaps may not be predictable from the rest."
            )
    if error is None and doubts.std is None:
        return (
            f"{words} This method does not say how far off they may be; ncarl evaluate "
            "measures it."
        )
    shares = doubts.relative
    if np.isfinite(shares).any():
        middle = float(np.nanmedian(shares))
        words += (
            f" Half of the filled entries are uncertain by less than {middle:.2g} of "
            "their column's spread."
        )
    return words


def held_out_error(estimator: Any) -> float | None:
    """Error of a fit on entries that it held out itself; None if it held out none.

    Only where it is in the units of the values, or in spreads of the columns.
    """
    error = getattr(estimator, "held_out_error_", math.nan)
    return None if math.isnan(error) else float(error)


def cautions(done: Done, glance: Glance) -> list[str]:
    """What must not be overlooked."""
    found = [f"Warning: {line}" for line in warning_lines(done)]
    pattern = glance.pattern
    names = done.table.columns
    for counts, kind in (
        (pattern.column_counts, "column"),
        (pattern.row_counts, "row"),
    ):
        nothing = np.flatnonzero(counts == 0)
        little = np.flatnonzero((counts > 0) & (counts < LEAST))
        called = names if kind == "column" else None
        if len(nothing):
            found.append(
                f"Nothing is known of {_which(nothing, kind, called)}: what stands "
                "there now is the centre of the rest, not knowledge."
            )
        if len(little):
            found.append(
                f"Only one entry is known of {_which(little, kind, called)}: take "
                "what was filled in there with care."
            )
    return found


def _which(places: Any, kind: str, names: Sequence[str] | None) -> str:
    """Rows or columns by name, or number from 1."""
    called = [names[j] if names else str(j + 1) for j in places[:MOST_LISTED]]
    more = len(places) - len(called)
    ending = f" and {more:,} more" if more else ""
    plural = "" if len(places) == 1 else "s"
    return f"{len(places):,} {kind}{plural} ({', '.join(called)}{ending})"


def _figures(page: Page, done: Done, glance: Glance, doubts: Doubts) -> None:
    """The figures, those that answer the user's questions first."""
    est, names = done.estimator, done.table.columns
    page.heading("What is missing, and how sure the filled values are")
    page.drawn(
        lambda: draw_pattern(glance.pattern, doubts, names=names),
        "Which entries are known (blue). Beside the map: how uncertain filled entries "
        "are, in spreads of their column; at 1 they are no better than its mean."
        if doubts.std is not None
        else "Which entries are known (blue), and what part of each row and column is.",
    )
    if doubts.std is not None and len(doubts.std):
        page.drawn(
            lambda: draw_uncertainty(doubts, names=names),
            "Standard deviations of filled entries by column: median, middle half, and "
            "the 5th to 95th percentile.",
        )
    if getattr(est, "blended_scores_", None) is not None and len(
        est.blended_scores_.ranked
    ):
        page.heading("Errors on held-out entries")
        page.facts(held_out_facts(done))
        page.drawn(
            lambda: reliability(est),
            "Held-out entries in normal intervals of the standard deviations, against "
            "what these promise. Intervals that ncarl writes (--lower, --upper) are "
            "widened or narrowed so that they meet the dashed line.",
        )
    page.heading("What was learned")
    side_names = None if getattr(est, "transposed_", False) else names
    page.drawn(
        lambda: similarity(est, names=side_names),
        "How columns go together; similar ones stand next to each other.",
    )
    page.drawn(
        lambda: similarity_graph(est, names=side_names),
        "The strongest ties. Broad lines are strong ties, colours are groups.",
    )
    page.drawn(lambda: spectrum(est), "Along how many directions rows vary.")
    page.drawn(lambda: convergence(est), "What each step of the fit changed.")


def held_out_facts(done: Done) -> dict[str, str]:
    """Errors on the entries that a Bayesian fit held out itself."""
    est = done.estimator
    unit = " of a column's spread" if done.scale else ""
    found = {
        "held out": f"{est.validation:.0%} of the known entries, to choose the "
        "strength of the prior, the steps and the sides",
        "error": f"{est.held_out_error_:.4g}{unit} (root mean square). Since choices "
        "were made by it, errors on the gaps may be a little larger: ncarl evaluate "
        "measures them on entries that nothing was chosen by.",
    }
    for side, error in est.side_errors_.items():
        found[f"by {side} alone"] = f"{error:.4g}{unit}"
    if not math.isnan(est.calibration_):
        found["calibration"] = (
            f"errors were {est.calibration_:.2f} times their standard deviations; "
            "1 is right, and intervals allow for the rest"
        )
    return found


def _columns(
    page: Page, facts: ColumnFacts, names: Sequence[str] | None, glance: Glance
) -> None:
    """The table of columns, the most uncertain first."""
    page.heading("Column by column")
    n = len(facts.missing)
    worth = np.where(np.isfinite(facts.relative), facts.relative, -1.0)
    order = np.lexsort((-facts.missing, -worth))
    shown = [j for j in order if facts.missing[j] > 0][:MOST_COLUMNS]
    gapless = int(np.count_nonzero(facts.missing == 0))
    words = "The columns with the most uncertain entries come first."
    if len(shown) < n - gapless:
        words += f" These are {len(shown)} of {n - gapless:,} columns with gaps."
    if gapless:
        words += f" {gapless:,} columns have no gap and are not shown."
    if not glance.whole:
        words += (
            f" Means are those of {glance.rows:,} rows, evenly spread over the table."
        )
    page.text(words)
    heads = ("column", "missing", "mean known", "mean filled", "spread", "mean sd",
             "sd in spreads")  # fmt: skip
    page.table(heads, (_row(facts, j, names) for j in shown))


def _row(facts: ColumnFacts, j: int, names: Sequence[str] | None) -> list[str]:
    """The cells of a column."""
    figures = (facts.known_mean, facts.filled_mean, facts.spread, facts.std)
    return [
        names[j] if names else str(j + 1),
        f"{int(facts.missing[j]):,}",
        *(_figure(array[j], ".5g") for array in figures),
        _figure(facts.relative[j], ".2f"),
    ]


def _figure(value: float, form: str) -> str:
    """A figure, or a dash where there is none."""
    return format(value, form) if np.isfinite(value) else "-"


def _details(page: Page, done: Done) -> Page:
    """All that the summary says, versions and the command."""
    page.heading("Details")
    facts: dict[str, str] = {}
    last = ""
    for name, text in summary_lines(done):
        if name and name not in facts:
            facts[name] = text
        else:
            facts[name or last] += f"\n{text}"
        last = name or last
    page.facts({**facts, **versions()})
    return page.code(command_line())
