"""``ncarl recommend``: recommend items to users, from a file of ratings."""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import typer

from ncarl.cli import console, options as opt
from ncarl.cli.options import output_option
from ncarl.core.types import Array
from ncarl.estimators.bayesian import BayesianNCARL
from ncarl.html import Page
from ncarl.io import csv, parquet
from ncarl.io.csv import parse_number
from ncarl.io.tables import ColumnTable, detect_format, find_format
from ncarl.progress import percent_bar
from ncarl.ratings import Explanation, RecommendedItem, Recommender, SimilarItem
from ncarl.ratings.data import Vocabulary, format_signed, is_missing
from ncarl.ratings.recommender import RESERVED_COLUMNS
from ncarl.text import format_number, join_names, quote, shorten, to_printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ratings_option = partial(opt.option, "Ratings")
users_option = partial(opt.option, "Users")
ranking_option = partial(opt.option, "Ranking")
EXAMPLES = (
    "ncarl recommend ratings.csv --user 42 --titles movies.csv --explain",
    "ncarl recommend ratings.csv --save-model movies.ncarl",
    "ncarl recommend --model movies.ncarl --similar-to 50 -n 5",
)
#: Names that the three columns go by, in lower case, without punctuation.
COLUMN_ALIASES = {
    "user": ("user", "userid", "uid", "customer", "customerid", "reviewer",
             "reviewerid", "person", "who"),
    "item": ("item", "itemid", "iid", "movie", "movieid", "film", "filmid", "product",
             "productid", "book", "bookid", "isbn", "asin", "song", "songid", "track",
             "trackid", "joke", "jokeid", "what"),
    "rating": ("rating", "ratings", "stars", "score", "overall", "value", "rate"),
}  # fmt: skip
TITLE_ALIASES = ("title", "name", "movietitle", "itemname", "label")
#: Integers as Python writes them: 7 is one, 007 is not.
INTEGER_TEXT = re.compile(r"0|-?[1-9][0-9]*")
#: Default nominal coverage of intervals.
DEFAULT_LEVEL = 0.8
#: The id of a user who is not in the ratings.
NEW_USER_NAME = "you"
#: Reasons listed for an item, and lists on a page, at most.
MAX_REASONS, MAX_PAGE_LISTS = 3, 20


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
        ratings_option(
            "Columns of users, items and ratings: names, or positions from 1. "
            "Without a header the first three.",
            parser=opt.parse_columns,
            metavar="USER,ITEM,RATING",
            show_default="found by name",
        ),
    ] = None,
    titles: Annotated[
        Path | None,
        ratings_option("Table of item ids and titles to show.", metavar="PATH"),
    ] = None,
    delimiter: Annotated[
        str | None,
        ratings_option(
            "Delimiter of RATINGS: one character, or 'tab'.", show_default="detected"
        ),
    ] = None,
    duplicates: Annotated[
        Literal["error", "last", "mean"],
        ratings_option("What to do if a user rated an item more than once."),
    ] = "error",
    model: Annotated[
        Path | None,
        ratings_option("A file of --save-model, in place of RATINGS.", metavar="PATH"),
    ] = None,
    user: Annotated[
        list[str] | None,
        users_option("A user of RATINGS. Repeatable.", "--user", "-u", metavar="ID"),
    ] = None,
    new_user: Annotated[
        Path | None,
        users_option(
            "A user who is not in RATINGS: a table of items and ratings. The model "
            "is not refitted.",
            metavar="PATH",
        ),
    ] = None,
    all_users: Annotated[
        bool, users_option("All users; the lists go to --out.", "--all-users")
    ] = False,
    similar_to: Annotated[
        str | None, users_option("Show items like this one.", metavar="ITEM")
    ] = None,
    n: Annotated[int, ranking_option("Number of items.", "-n", min=1)] = 10,
    uncertainty_penalty: Annotated[
        float,
        ranking_option(
            "Standard deviations to subtract from a prediction first, so that "
            "uncertain items need higher predictions.",
            min=0.0,
        ),
    ] = 0.0,
    popularity: Annotated[
        float,
        ranking_option(
            "Bonus for ten times as many ratings: 1 or 2 favor popular items.", min=0.0
        ),
    ] = 0.0,
    min_ratings: Annotated[
        int, ranking_option("Leave out items with fewer ratings.", min=0)
    ] = 1,
    include_seen: Annotated[
        bool, ranking_option("Recommend rated items, too.", "--include-seen")
    ] = False,
    explain: Annotated[
        bool,
        output_option("Show which ratings led to each recommendation.", "--explain"),
    ] = False,
    level: Annotated[
        float | None, opt.level_option(show_default=str(DEFAULT_LEVEL))
    ] = None,
    out: Annotated[
        Path | None,
        output_option(
            "Write the lists to a CSV, TSV or Parquet file.",
            "-o",
            "--out",
            metavar="PATH",
        ),
    ] = None,
    save_model: Annotated[
        Path | None,
        output_option(
            "Save the fitted recommender; it holds the ratings.", metavar="PATH"
        ),
    ] = None,
    engine: opt.EngineOption = "auto",
    report: opt.ReportOption = None,
    overwrite: opt.OverwriteOption = False,
    quiet: opt.QuietOption = False,
) -> None:
    """Recommend items to users, with explanations.

    A model of the similarity of items is fitted to all ratings. Each user gets the
    items with the highest predicted ratings, with prediction intervals. --save-model
    saves the fitted model, and --model uses it without another fit.
    """
    has_users = bool(user) or new_user is not None or all_users
    if (source is None) == (model is None):
        raise ValueError(
            "give RATINGS, a file of ratings, or --model, a recommender that "
            "--save-model wrote" + ("" if source is None else "; not both")
        )
    loaded, no_users = model is not None, not has_users
    of_ratings = "is for RATINGS, and --model needs none"
    of_lists = "is for lists; give --user ID, --new-user PATH or --all-users"
    of_all = "and --all-users do not go together; give one of them"
    duplicates_given = duplicates != "error" and new_user is None
    for flag, is_misused, reason in (
        ("--columns", loaded and columns is not None, of_ratings),
        ("--delimiter", loaded and delimiter is not None, of_ratings),
        ("--duplicates", loaded and duplicates_given, of_ratings),
        ("--engine", loaded and engine != "auto", of_ratings),
        ("--uncertainty-penalty", no_users and uncertainty_penalty > 0.0, of_lists),
        ("--popularity", no_users and popularity > 0.0, of_lists),
        ("--include-seen", no_users and include_seen, of_lists),
        ("--level", no_users and level is not None, of_lists),
        ("--user", all_users and user, of_all),
        ("--new-user", all_users and new_user is not None, of_all),
        ("--similar-to", all_users and similar_to is not None, of_all),
    ):
        if is_misused:
            raise ValueError(f"{flag} {reason}")
    if all_users and out is None and report is None:
        raise ValueError("--all-users writes many lists; name the file with --out")
    if has_users and similar_to is not None and out is not None:
        raise ValueError("--out holds one kind of list; use --similar-to alone")
    if not has_users and similar_to is None and (save_model is None or out is not None):
        raise ValueError(
            "choose users: --user ID, --new-user PATH or --all-users; --similar-to "
            "ITEM shows similar items, --save-model PATH keeps the model for later"
        )
    if explain and not (user or new_user):
        raise ValueError("--explain explains lists of --user and --new-user")
    if out is not None:
        format_ = find_format(out, "read_table")
        if format_ is None or not format_.has_names:
            kind = format_.name if format_ else out.suffix or "no ending"
            raise ValueError(
                f"--out must be CSV, TSV or Parquet, got {kind} ({out.name})"
            )
    given = source or model
    assert given is not None
    console.check_outputs(
        given,
        {"--out": out, "--save-model": save_model},
        overwrite=overwrite,
        inputs={"--titles": titles, "--new-user": new_user},
    )
    console.check_report_path(report, given)

    seconds = 0.0
    if source is None:
        recommender = Recommender.load(given)
    else:
        ratings = read_ratings(source, columns, delimiter)
        start = time.perf_counter()
        estimator = BayesianNCARL(engine=engine, progress=console.is_interactive(quiet))
        recommender = _fit(ratings, estimator, duplicates)
        seconds = time.perf_counter() - start
    if save_model is not None:
        # Before a new user is added, who is not to be in the file.
        recommender.save(save_model)
    # Results are rows here, whatever library the ratings came in.
    recommender.library_ = "plain"
    # If a level was requested, the model raises the error that says why it has none.
    if level is None and recommender._has_noise_model():
        level = DEFAULT_LEVEL
    names = {}
    if titles is not None:
        names = read_titles(titles, recommender.item, recommender.items_)

    def title(item: Any) -> str:
        return names.get(str(item), str(item))

    named = [find_user(recommender, text) for text in user or ()]
    targets = [(one, str(one)) for one in (recommender.users if all_users else named)]
    if new_user is not None:
        if duplicates != "error":
            recommender.duplicates = duplicates
        targets.append((_add_new_user(recommender, new_user), NEW_USER_NAME))
    lists = []
    bar = all_users and console.is_interactive(quiet)
    with percent_bar(bar, len(targets), "lists") as advance:
        for one, name in targets:
            rows = recommender.recommend(
                one,
                n,
                not include_seen,
                uncertainty_penalty=uncertainty_penalty,
                popularity=popularity,
                min_ratings=min_ratings,
                # Intervals of all users are computed together, which is much faster.
                level=None if all_users else level,
            )
            reasons = [recommender.explain(one, row.item) for row in rows if explain]
            n_rated = recommender.user_store_.look_up(one)[0].n_observed
            heading = f"For {name}, who rated {n_rated}"
            lists.append(UserRecommendations(one, heading, rows, reasons))
            advance(len(lists))
    if all_users and level is not None:
        lists = _add_intervals(recommender, lists, level)
    n_shown = MAX_PAGE_LISTS if all_users else None
    sections = [_list_section(found, title, level) for found in lists[:n_shown]]
    similar = None
    if similar_to is not None:
        item = find_item(recommender, similar_to, names)
        similar = recommender.similar_items(item, n, min_ratings=min_ratings)
        sections.append(_similar_section(f"Like {title(item)}", similar, title))

    outputs = []
    if out is not None:
        _write_table(out, *_output_table(recommender, lists, similar, names, level))
        count = f" ({len(lists)} lists)" if len(lists) > 1 else ""
        outputs.append(("written", f"{out}{count}"))
    if save_model is not None:
        outputs.append(("saved", f"{save_model} (for --model, or Recommender.load)"))
    fields = list(_model_fields(recommender, seconds))
    if not quiet:
        console.print_fields(fields)
        for section in () if all_users else sections:
            _print_section(section)
        console.print_fields(outputs)
    if report is not None:
        page = Page(
            "Recommendations", "Items with the highest predicted ratings, and why."
        )
        for section in sections:
            _add_section(page, section)
        if len(lists) > len(sections):
            page.text(f"{len(lists) - len(sections)} more lists are left out here.")
        console.write_page(page, report, fields, quiet=quiet)


@dataclass(frozen=True)
class UserRecommendations:
    """Recommendations for one user."""

    user: Any  # the id
    heading: str
    rows: Sequence[RecommendedItem]
    reasons: Sequence[Explanation]  # empty without --explain


def _fit(ratings: RatingsFile, model: BayesianNCARL, duplicates: str) -> Recommender:
    user, item, rating = ratings.names
    item = "item" if item in RESERVED_COLUMNS else item
    recommender = Recommender(
        model, user=user, item=item, rating=rating, duplicates=duplicates
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        recommender.fit((ratings.users, ratings.items, ratings.values))
    console.print_warnings(warning.message for warning in caught)
    return recommender


def _add_new_user(recommender: Recommender, path: Path) -> Any:
    """Add a user whose ratings are in a file; the id."""
    ratings = read_user_ratings(path)
    parsed = [(recommender.items_.parse(item), rating) for item, rating in ratings]
    known = [pair for pair in parsed if pair[0] is not None]
    unknown = [item for item, _ in ratings if recommender.items_.parse(item) is None]
    if unknown:
        message = (
            f"{len(unknown)} of {len(ratings)} ratings of {path.name} are left out: "
            f"item {unknown[0]!r} has no rating by others"
        )
        console.print_warnings([message])
    users = recommender.user_store_
    free = users.vocabulary.kind == "str" and NEW_USER_NAME not in users
    return recommender.add_user(known, NEW_USER_NAME if free else None)


def find_user(recommender: Recommender, text: str) -> Any:
    """The user that a text names."""
    users = recommender.user_store_
    added = (user for user in users.added if str(user) == text)
    user = next(added, users.vocabulary.parse(text))
    if user is None:
        raise ValueError(f"--user: {users.vocabulary.unknown_message(text)}")
    return user


def find_item(recommender: Recommender, text: str, titles: dict[str, str]) -> Any:
    """The item that a text names, by its id or else by its title."""
    ids = recommender.items_
    for key in (text, *(key for key, title in titles.items() if title == text)):
        item = ids.parse(key)
        if item is not None:
            return item
    raise ValueError(f"--similar-to: {ids.unknown_message(text)}")


def _add_intervals(
    recommender: Recommender, lists: list[UserRecommendations], level: float
) -> list[UserRecommendations]:
    pairs = [(found.user, row.item) for found in lists for row in found.rows]
    if not pairs:
        return lists
    users, items = zip(*pairs, strict=True)
    low, high = recommender.predict_interval(list(users), list(items), level)
    ends = iter(zip(low.tolist(), high.tolist(), strict=True))
    return [
        replace(
            found, rows=[RecommendedItem(*row[:3], *next(ends)) for row in found.rows]
        )
        for found in lists
    ]


def _find_column(table: ColumnTable, aliases: Sequence[str]) -> int | None:
    """Position of the first alias among the names, whatever their punctuation."""
    plain = [_normalize_name(name) for name in table.names or ()]
    return next((plain.index(name) for name in aliases if name in plain), None)


def _check_width(table: ColumnTable, flag: str, second: str) -> None:
    if len(table.cells) < 2:
        raise ValueError(
            f"{flag} {str(table.path)!r} must have a column of items and one of "
            f"{second}, got {len(table.cells)}"
        )


@dataclass(frozen=True)
class RatingsFile:
    """Ratings of a file: ids of users and items, ratings, names of the columns."""

    users: list[Any]
    items: list[Any]
    values: list[float]
    names: tuple[str, str, str]


def read_ratings(
    path: Path, columns: Sequence[str] | None, delimiter: str | None = None
) -> RatingsFile:
    """The ratings in a file; ``columns`` are names, or positions counted from 1."""
    table = read_columns(path, delimiter)
    positions = _rating_columns(table, columns)
    user, item, rating = (
        str(j + 1) if table.names is None else table.names[j] for j in positions
    )
    users, items, ratings = (table.cells[j] for j in positions)
    return RatingsFile(
        parse_ids(users, user, table),
        parse_ids(items, item, table),
        _parse_values(ratings, table, "ratings"),
        (user, item, rating),
    )


def read_user_ratings(path: Path) -> list[tuple[str, float]]:
    """Ratings of one user, items as text: columns by name, or the only two."""
    table = read_columns(path)
    _check_width(table, "--new-user", "ratings")
    first, second = 0, 1
    if len(table.cells) > 2:
        item = _find_column(table, COLUMN_ALIASES["item"])
        rating = _find_column(table, COLUMN_ALIASES["rating"])
        if item is None or rating is None:
            raise ValueError(
                f"--new-user {str(path)!r} must have columns named item and rating, or "
                f"two columns; it has {join_names(table.names or ['no names'])}"
            )
        first, second = item, rating
    values = _parse_values(table.cells[second], table, "--new-user")
    return list(zip(map(to_printable, table.cells[first]), values, strict=True))


def read_titles(path: Path, item: str, vocabulary: Vocabulary) -> dict[str, str]:
    """Titles of items, by their ids as text.

    Ids are in the column named as in the ratings, or the first; titles in one named
    title or name, or the second. A file without a header begins with an item that was
    rated.
    """

    def is_header(row: Sequence[str]) -> bool:
        return is_header_row(row) and vocabulary.parse(to_printable(row[0])) is None

    table = read_columns(path, is_header=is_header)
    _check_width(table, "--titles", "titles")
    first = _find_column(table, (_normalize_name(item), *COLUMN_ALIASES["item"])) or 0
    found = _find_column(table, TITLE_ALIASES)
    second = (0 if first else 1) if found is None else found
    rows = zip(table.cells[first], table.cells[second], strict=True)
    return {to_printable(key): to_printable(title) for key, title in rows}


def is_header_row(row: Sequence[str]) -> bool:
    """Whether a line names columns: it holds no number, as a line of ratings does."""
    return all(parse_number(cell) is None for cell in row)


def read_columns(
    path: Path,
    delimiter: str | None = None,
    is_header: Callable[[Sequence[str]], bool] = is_header_row,
) -> ColumnTable:
    """The columns of a file, cells of text files without quotes."""
    format_ = detect_format(path)
    if not format_.has_names:
        raise ValueError(
            f"{str(path)!r} must be a list of ratings in CSV, TSV or Parquet, got "
            f"{format_.name}; ncarl complete takes matrices"
        )
    if "delimiter" in format_.options:
        return csv.read_columns(path, delimiter, is_header)
    if delimiter is not None:
        raise ValueError("--delimiter does not apply to Parquet files; omit it")
    return parquet.read_columns(path)


def _rating_columns(table: ColumnTable, columns: Sequence[str] | None) -> list[int]:
    """Positions of users, items and ratings: as given, by name, or the first three."""
    path, names, width = str(table.path), table.names or [], len(table.cells)
    shown = (
        f"its columns are {join_names(names, 8)}"
        if names
        else f"it has no header, so columns are 1 to {width}"
    )
    positions = []
    if columns is not None:
        for name in columns:
            if name in names:
                positions.append(names.index(name))
            elif name.isdecimal() and 1 <= int(name) <= width:
                positions.append(int(name) - 1)
            else:
                raise ValueError(
                    f"--columns {name!r} is not a column of {path!r}; {shown}"
                )
        if len(positions) != 3 or len(set(positions)) != 3:
            raise ValueError(
                "--columns must name three columns, user,item,rating, got "
                f"{','.join(columns)!r}"
            )
    elif names:
        for what, aliases in COLUMN_ALIASES.items():
            position = _find_column(table, aliases)
            if position is None:
                raise ValueError(
                    f"{path!r} has no column that is named like {what}s; say which is "
                    f"which with --columns USER,ITEM,RATING; {shown}"
                )
            positions.append(position)
    elif width < 3:
        raise ValueError(
            f"{path!r} must have columns of users, items and ratings, got {width} "
            "columns"
        )
    return positions or [0, 1, 2]


def _normalize_name(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalnum())


def _parse_values(column: list[Any], table: ColumnTable, origin: str) -> list[float]:
    values = []
    for cell, line in zip(column, table.lines, strict=True):
        number = parse_number(str(cell))
        if number is None:
            raise ValueError(
                f"{origin}: {quote(to_printable(cell))} at line {line} of "
                f"{str(table.path)!r} is not a rating; correct it or leave the line out"
            )
        values.append(number)
    return values


def parse_ids(column: list[Any], name: str, table: ColumnTable) -> list[Any]:
    """Ids as integers if all are written as such, else as they are.

    >>> from pathlib import Path
    >>> none = ColumnTable(Path(), None, [], [])
    >>> [parse_ids(ids, "user", none) for ids in (["7", "12"], ["007"])]
    [[7, 12], ['007']]
    """
    for k, cell in enumerate(column):
        if is_missing(cell) or cell == "":
            raise ValueError(
                f"column {quote(name)} of {str(table.path)!r} is empty at line "
                f"{table.lines[k]}; leave such lines out"
            )
    if not all(isinstance(cell, str) for cell in column):
        return column
    if all(INTEGER_TEXT.fullmatch(cell) for cell in column):
        return [int(cell) for cell in column]
    return [to_printable(cell) for cell in column]


def _output_table(
    recommender: Recommender,
    lists: Sequence[UserRecommendations],
    similar: Sequence[SimilarItem] | None,
    titles: dict[str, str],
    level: float | None,
) -> tuple[list[str], list[list[Any]]]:
    """Names of columns, and rows, of the file that ``--out`` names."""
    user, item = recommender.user, recommender.item
    taken = {"1", "2", "3", "rank", "title", *RESERVED_COLUMNS}
    if user == item or not {user, item}.isdisjoint(taken):
        user, item = "user", "item"  # no header, or names that would be ambiguous

    def item_cells(item: Any) -> list[Any]:
        name = to_printable(titles.get(str(item), str(item)))
        return [item, name] if titles else [item]

    items = [item, "title"] if titles else [item]
    if similar is not None:
        rows = [[*item_cells(r.item), r.similarity, r.n_ratings] for r in similar]
        return [*items, "similarity", "n_ratings"], rows
    ends = [] if level is None else ["low", "high"]
    numbers = ["predicted", *ends, "n_ratings"]
    rows = [
        [found.user, rank, *item_cells(row.item), *(getattr(row, x) for x in numbers)]
        for found in lists
        for rank, row in enumerate(found.rows, 1)
    ]
    return [user, "rank", *items, *numbers], rows


def _write_table(path: Path, heads: list[str], rows: list[list[Any]]) -> None:
    if detect_format(path).name == "Parquet":
        parquet.write_rows(path, heads, rows)
        return
    cells = [[format_number(x) if isinstance(x, float) else x for x in r] for r in rows]
    csv.write_rows(path, heads, cells)


def _model_fields(recommender: Recommender, seconds: float) -> console.Fields:
    """The ratings, the model and its error; ``seconds`` is 0 for a loaded model."""
    training = recommender.user_store_.scorer.training
    m, n = training.shape
    yield "ratings", f"{training.n_observed} by {m} users of {n} items"
    model = recommender.model_
    both = getattr(model, "sides_", "columns") == "both"
    sides = "users and items" if both else "items"
    name = "bayes" if isinstance(model, BayesianNCARL) else "ncarl"
    origin = f"{seconds:.1f} s" if seconds else "loaded"
    yield "model", f"{name}, kernel of {sides}, {origin}"
    error = getattr(model, "held_out_error_", float("nan"))
    if error == error:
        part = f"on {model.validation:.0%} of the ratings held out"
        yield "error", f"{error:.3g} (root mean square), {part}"


@dataclass(frozen=True)
class Section:
    """A list of items as it is printed and shown on the page."""

    heading: str
    heads: list[str]
    rows: list[list[str]]
    explanations: Sequence[tuple[str, list[tuple[str, str]]]] = ()  # items and terms
    intervals: tuple[list[str], Array] | None = None  # names; predicted, low and high
    level: float | None = None


def _list_section(
    found: UserRecommendations, title: Callable[[Any], str], level: float | None
) -> Section:
    names = [title(row.item) for row in found.rows]
    rows = []
    for rank, (row, name) in enumerate(zip(found.rows, names, strict=True), 1):
        ends = [] if row.low is None else [f"{row.low:.1f} to {row.high:.1f}"]
        cells = [f"{row.predicted:.2f}", *ends, str(row.n_ratings)]
        rows.append([f"{rank}. {name}", *cells])
    explanations = []
    for why in found.reasons:
        items = [why.item, *(reason.item for reason in why.reasons)]
        terms = why.lines({item: title(item) for item in items}, MAX_REASONS)
        (base, words), *others = terms
        lines = [(f"{base:5.2f}", words), *((format_signed(x), t) for x, t in others)]
        explanations.append((f"{title(why.item)}: {why.predicted:.2f}", lines))
    ends = [] if level is None else [f"{level:.0%} interval"]
    heads = ["item", "predicted", *ends, "ratings"]
    intervals = None
    if level is not None and rows:
        numbers = [(row.predicted, row.low, row.high) for row in found.rows]
        intervals = names, np.array(numbers).T
    return Section(found.heading, heads, rows, explanations, intervals, level)


def _similar_section(
    heading: str, similar: Sequence[SimilarItem], title: Callable[[Any], str]
) -> Section:
    rows = [
        [f"{rank}. {title(row.item)}", f"{row.similarity:.2f}", str(row.n_ratings)]
        for rank, row in enumerate(similar, 1)
    ]
    return Section(heading, ["item", "similarity", "ratings"], rows)


def _print_section(section: Section) -> None:
    console.print_text()
    console.print_text(section.heading, style="bold")
    if not section.rows:
        console.print_text("nothing is left to recommend")
        return
    console.print_table(section.heads, section.rows)
    for item, lines in section.explanations:
        console.print_text(item, style="bold")
        for amount, words in lines:
            console.print_text(f"  {amount}  {words}")


def _add_section(page: Page, section: Section) -> None:
    page.heading(section.heading).table(section.heads, section.rows)
    if section.intervals is not None:
        caption = f"Predicted ratings (dots) and {section.level:.0%} intervals (bars)."
        page.figure(_draw_intervals(*section.intervals), caption)
    for item, lines in section.explanations:
        page.table([item, "contribution"], [(words, amount) for amount, words in lines])


def _draw_intervals(names: Sequence[str], numbers: Array) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 0.8 + 0.32 * len(names)), layout="constrained")
    axes = figure.subplots()
    places = np.arange(len(names))[::-1]
    predicted, low, high = numbers
    axes.hlines(places, low, high, color="#9ecae1", linewidth=6)
    axes.plot(predicted, places, "o", color="#08519c")
    axes.set_yticks(places, [shorten(name, 40) for name in names], parse_math=False)
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.set_xlabel("predicted rating")
    axes.spines[["top", "right"]].set_visible(False)
    return figure
