"""What ``ncarl recommend`` prints, and the page that it writes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from ncarl.cli.files import shown
from ncarl.cli.recommend_work import Done, List
from ncarl.estimators.bayesian import BayesianNCARL
from ncarl.ratings import Explanation
from ncarl.ratings.answers import signed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Reasons that are listed for an item, and lists that a page shows.
REASONS, LISTS = 3, 20
#: Columns of similar items.
SIMILAR = ["", "item", "similarity", "ratings"]


def say(done: Done) -> None:
    """Print what a run found."""
    console = Console()
    for name, text in head_lines(done):
        console.print(f"[bold]{name:<10}[/bold]", end="", highlight=False)
        console.print(shown(text), markup=False, highlight=False, soft_wrap=True)
    if not done.asked.everybody:
        for found in done.lists:
            console.print()
            _say_list(console, done, found)
    if done.like is not None:
        console.print()
        title = f"like {done.title(done.like)}"
        console.print(shown(title), style="bold", markup=False, highlight=False)
        console.print(_table(SIMILAR, similar_rows(done)))
    for name, text in written_lines(done):
        console.print(f"[bold]{name:<10}[/bold]", end="", highlight=False)
        console.print(shown(text), markup=False, highlight=False, soft_wrap=True)


def head_lines(done: Done) -> Iterable[tuple[str, str]]:
    """What was learned, from what."""
    server = done.recommender.people_.server
    m, n = server.training.shape
    yield "ratings", f"{server.training.n_observed} by {m} users of {n} items"
    model = done.recommender.model_
    both = getattr(model, "sides_", "columns") == "both"
    words = "users and items" if both else "items"
    name = "bayes" if isinstance(model, BayesianNCARL) else "ncarl"
    took = f", {done.seconds:.1f} s" if done.seconds else ", loaded"
    yield "model", f"{name}, kernel of {words}{took}"
    error = getattr(model, "held_out_error_", float("nan"))
    if error == error:
        part = f"on {model.validation:.0%} of the ratings held out"
        yield "error", f"{error:.3g} stars (root mean square), {part}"


def written_lines(done: Done) -> Iterable[tuple[str, str]]:
    """The files that were written."""
    if done.job.out is not None:
        count = len(done.lists) or 1
        yield "written", f"{done.job.out} ({count} list{'s' if count > 1 else ''})"
    if done.job.saved is not None:
        yield "kept", f"{done.job.saved} (for --model, or Recommender.load)"
    if done.job.report is not None:
        yield "report", str(done.job.report)


def _say_list(console: Console, done: Done, found: List) -> None:
    """Print the list of one user."""
    title = f"for {found.name}, who rated {found.rated}"
    console.print(shown(title), style="bold", markup=False, highlight=False)
    if not found.rows:
        console.print("nothing is left to recommend")
        return
    console.print(_table(list_heads(done), list_rows(done, found)))
    for row, reasons in zip(found.rows, found.reasons, strict=False):
        console.print()
        first = f"{done.title(row.item)}: {row.predicted:.2f}"
        console.print(shown(first), style="bold", markup=False, highlight=False)
        for amount, words in reason_lines(done, reasons):
            line = f"  {amount}  {words}"
            console.print(shown(line), markup=False, highlight=False, soft_wrap=True)


def reason_lines(done: Done, why: Explanation) -> list[tuple[str, str]]:
    """The parts of a prediction as amounts and words."""
    names = {why.item: done.title(why.item)}
    names |= {reason.item: done.title(reason.item) for reason in why.reasons}
    (level, words), *others = why.lines(names, REASONS)
    return [(f"{level:5.2f}", words), *((signed(x), text) for x, text in others)]


def list_heads(done: Done) -> list[str]:
    """Columns of a list."""
    ends = [] if done.level is None else [f"{done.level:.0%} interval"]
    return ["", "item", "predicted", *ends, "ratings"]


def list_rows(done: Done, found: List) -> list[list[str]]:
    """The list of one user as text."""
    return [
        [
            str(rank),
            done.title(row.item),
            f"{row.predicted:.2f}",
            *([] if row.low is None else [f"{row.low:.1f} to {row.high:.1f}"]),
            str(row.n_ratings),
        ]
        for rank, row in enumerate(found.rows, 1)
    ]


def similar_rows(done: Done) -> list[list[str]]:
    """Similar items as text."""
    return [
        [str(rank), done.title(row.item), f"{row.similarity:.2f}", str(row.n_ratings)]
        for rank, row in enumerate(done.similar, 1)
    ]


def _table(heads: list[str], rows: list[list[str]]) -> RichTable:
    """A plain table of a rank, a name and figures."""
    table = RichTable(box=None, pad_edge=False, header_style="bold")
    for head in heads:
        table.add_column(head, justify="left" if head == "item" else "right")
    for row in rows:
        table.add_row(*(Text(shown(cell)) for cell in row))
    return table


def save_page(done: Done, path: Path) -> None:
    """Write the page."""
    from ncarl.pages import Page

    lead = "Items with the highest predicted ratings, and why."
    page = Page("Recommendations", lead).facts(dict(head_lines(done)))
    for found in done.lists[:LISTS]:
        page.heading(f"For {found.name}, who rated {found.rated}")
        page.table(*_by_name(list_heads(done), list_rows(done, found)))
        if found.rows and found.rows[0].low is not None:
            caption = (
                "Predicted ratings (dots) and intervals that hold "
                f"{done.level:.0%} of ratings (bars)."
            )
            page.figure(interval_figure(done, found), caption)
        for why in found.reasons:
            page.table(
                [f"{done.title(why.item)}: {why.predicted:.2f}", "stars"],
                [[words, amount] for amount, words in reason_lines(done, why)],
            )
    if len(done.lists) > LISTS:
        page.text(f"{len(done.lists) - LISTS} more lists are left out here.")
    if done.like is not None:
        page.heading(f"Like {done.title(done.like)}")
        page.table(*_by_name(SIMILAR, similar_rows(done)))
    page.save(path)


def _by_name(
    heads: list[str], rows: list[list[str]]
) -> tuple[list[str], list[list[str]]]:
    """A table whose ranks stand before the names, as a page has it."""
    return heads[1:], [[f"{row[0]}. {row[1]}", *row[2:]] for row in rows]


def interval_figure(done: Done, found: List) -> Figure:
    """Predictions of a list with their intervals, the best on top."""
    from matplotlib.figure import Figure

    rows: list[Any] = list(found.rows)
    figure = Figure(figsize=(7.0, 0.8 + 0.32 * len(rows)), layout="constrained")
    axes = figure.subplots()
    places = np.arange(len(rows))[::-1]
    low, high = (np.array([getattr(r, end) for r in rows]) for end in ("low", "high"))
    axes.hlines(places, low, high, color="#9ecae1", linewidth=6)
    axes.plot([row.predicted for row in rows], places, "o", color="#08519c")
    names = [done.title(row.item) for row in rows]
    short = [name if len(name) <= 40 else f"{name[:39]}…" for name in names]
    axes.set_yticks(places, short, parse_math=False)
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.set_xlabel("predicted rating")
    axes.spines[["top", "right"]].set_visible(False)
    return figure
