"""``ncarl recommend``: what to recommend to whom, from a file of ratings."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ncarl.cli.choices import EngineName, parse_columns, parse_level
from ncarl.cli.reporting import ReportOption
from ncarl.cli.shared import QuietOption

FILES, WHO, RANK, OUTPUT = "Ratings", "For whom", "How items are ranked", "Output"
EXAMPLES = (
    "ncarl recommend ratings.csv --user 42 --titles movies.csv --why",
    "ncarl recommend ratings.csv --save-model movies.ncarl",
    "ncarl recommend --model movies.ncarl --like 50 -n 5",
)


class Duplicates(StrEnum):
    """What becomes of ratings that are there more than once."""

    ERROR = "error"
    LAST = "last"
    MEAN = "mean"


def recommend(
    source: Annotated[
        Path | None,
        typer.Argument(
            metavar="RATINGS",
            help="CSV, TSV (also .gz) or Parquet with a line for every rating: user, "
            "item, rating. Not needed with --model.",
            show_default=False,
        ),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(parser=parse_columns, metavar="USER,ITEM,RATING",
                     rich_help_panel=FILES, show_default="found by name",
                     help="Which columns hold what: names, or positions from 1. "
                     "Without a header the first three do."),
    ] = None,
    titles: Annotated[
        Path | None,
        typer.Option(metavar="PATH", rich_help_panel=FILES,
                     help="Table of item ids and titles, to show names."),
    ] = None,
    delimiter: Annotated[
        str | None,
        typer.Option(rich_help_panel=FILES, show_default="found out",
                     help="What separates the cells of RATINGS, or of the only text "
                     "file: one character, or 'tab'."),
    ] = None,
    duplicates: Annotated[
        Duplicates,
        typer.Option(rich_help_panel=FILES,
                     help="Which rating holds where one user rated one item again."),
    ] = Duplicates.ERROR,
    user: Annotated[
        list[str] | None,
        typer.Option("--user", "-u", metavar="ID", rich_help_panel=WHO,
                     help="A user of RATINGS. Repeatable."),
    ] = None,
    new_user: Annotated[
        Path | None,
        typer.Option(metavar="PATH", rich_help_panel=WHO,
                     help="Somebody who is not in RATINGS: a table of items and "
                     "ratings. Nothing is fitted again."),
    ] = None,
    all_users: Annotated[
        bool,
        typer.Option("--all-users", rich_help_panel=WHO,
                     help="Everybody; the lists go to --out."),
    ] = False,
    like: Annotated[
        str | None,
        typer.Option(metavar="ITEM", rich_help_panel=WHO,
                     help="Show items like this one."),
    ] = None,
    n: Annotated[
        int, typer.Option("-n", min=1, rich_help_panel=RANK, help="How many items.")
    ] = 10,
    careful: Annotated[
        float,
        typer.Option(min=0.0, rich_help_panel=RANK,
                     help="Standard deviations to take off a prediction first, so "
                     "that items of which little is known have to promise more."),
    ] = 0.0,
    popularity: Annotated[
        float,
        typer.Option(min=0.0, rich_help_panel=RANK,
                     help="Stars to add for ten times as many ratings: 1 or 2 favour "
                     "what people know."),
    ] = 0.0,
    min_ratings: Annotated[
        int,
        typer.Option(min=0, rich_help_panel=RANK,
                     help="Leave out items with fewer ratings."),
    ] = 1,
    seen: Annotated[
        bool,
        typer.Option("--seen", rich_help_panel=RANK,
                     help="Recommend what the user has rated too."),
    ] = False,
    why: Annotated[
        bool,
        typer.Option("--why", rich_help_panel=OUTPUT,
                     help="Say of every item which ratings speak for it."),
    ] = False,
    level: Annotated[
        float | None,
        typer.Option(parser=parse_level, metavar="FLOAT", rich_help_panel=OUTPUT,
                     show_default="0.8",
                     help="Part of the ratings that intervals are to hold."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="PATH", rich_help_panel=OUTPUT,
                     help="Write the lists to a CSV, TSV or Parquet file."),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(metavar="PATH", rich_help_panel=FILES,
                     help="What --save-model wrote, in place of RATINGS."),
    ] = None,
    save_model: Annotated[
        Path | None,
        typer.Option(metavar="PATH", rich_help_panel=OUTPUT,
                     help="Keep the fitted recommender; it holds the ratings."),
    ] = None,
    engine: Annotated[
        EngineName,
        typer.Option(rich_help_panel=OUTPUT,
                     help="Where the fit is done; auto takes a GPU if there is one."),
    ] = EngineName.AUTO,
    report: ReportOption = None,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", rich_help_panel=OUTPUT,
                     help="Replace files that exist."),
    ] = False,
    quiet: QuietOption = False,
) -> None:  # fmt: skip
    """Recommend items to users, and say why.

    A model of how items go together is learned from all ratings; a user gets the items
    with the highest predicted ratings, with the interval in which the rating would
    lie. Keep the model with --save-model: with --model answers come at once.
    """
    from ncarl.cli.recommend_report import save_page, say
    from ncarl.cli.recommend_usage import Asked, Job
    from ncarl.cli.recommend_work import run

    asked = Asked(
        users=tuple(user or ()), new_user=new_user, everybody=all_users, like=like,
        n=n, careful=careful, popularity=popularity, min_ratings=min_ratings,
        seen=seen, why=why, given_level=level,
    )  # fmt: skip
    job = Job(
        source=source, columns=columns, titles=titles, delimiter=delimiter,
        duplicates=str(duplicates), model=model, saved=save_model, out=out,
        report=report, overwrite=overwrite, engine=str(engine), quiet=quiet,
    )  # fmt: skip
    done = run(job, asked)
    if not quiet:
        say(done)
    if report is not None:
        save_page(done, report)
