"""``ncarl recommend``: recommend items to users, from a file of ratings."""

from __future__ import annotations

import csv
import io
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from ncarl.cli.console import (
    check_outputs,
    check_report_path,
    is_interactive,
    print_fields,
    print_text,
)
from ncarl.cli.options import (
    EngineChoice,
    QuietOption,
    ReportOption,
    parse_columns,
    parse_level,
)
from ncarl.estimators.bayesian import BayesianNCARL
from ncarl.html import Page
from ncarl.io.csv import (
    DelimitedText,
    check_delimiter,
    check_width,
    find_delimiter,
    parse_number,
    unquote,
    write_text,
)
from ncarl.io.files import atomic_write
from ncarl.io.tables import detect_format
from ncarl.progress import percent_bar
from ncarl.ratings import Explanation, RecommendedItem, Recommender, SimilarItem
from ncarl.ratings.data import Vocabulary, format_signed, is_missing
from ncarl.ratings.recommender import RESERVED_COLUMNS
from ncarl.text import to_printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RATINGS_PANEL, USERS_PANEL = "Ratings", "For whom"
RANKING_PANEL, OUTPUT_PANEL = "How items are ranked", "Output"
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
RATINGS_FORMATS = ("CSV", "TSV", "Parquet")
#: Default nominal coverage of intervals.
DEFAULT_LEVEL = 0.8
#: The id of a user who is not in the ratings.
NEW_USER_NAME = "you"
#: Reasons listed for an item, and lists on a page, at most.
MAX_REASONS, MAX_PAGE_LISTS = 3, 20
#: Columns of the table of similar items.
SIMILAR_HEADERS = ["", "item", "similarity", "ratings"]


class DuplicatesChoice(StrEnum):
    """What to do with several ratings of one item by one user."""

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
        typer.Option(
            parser=parse_columns,
            metavar="USER,ITEM,RATING",
            rich_help_panel=RATINGS_PANEL,
            show_default="found by name",
            help="Which columns hold what: names, or positions from 1. "
            "Without a header the first three do.",
        ),
    ] = None,
    titles: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            rich_help_panel=RATINGS_PANEL,
            help="Table of item ids and titles, to show names.",
        ),
    ] = None,
    delimiter: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=RATINGS_PANEL,
            show_default="found out",
            help="What separates the cells of RATINGS, or of the only text "
            "file: one character, or 'tab'.",
        ),
    ] = None,
    duplicates: Annotated[
        DuplicatesChoice,
        typer.Option(
            rich_help_panel=RATINGS_PANEL,
            help="Which rating holds where one user rated one item again.",
        ),
    ] = DuplicatesChoice.ERROR,
    user: Annotated[
        list[str] | None,
        typer.Option(
            "--user",
            "-u",
            metavar="ID",
            rich_help_panel=USERS_PANEL,
            help="A user of RATINGS. Repeatable.",
        ),
    ] = None,
    new_user: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            rich_help_panel=USERS_PANEL,
            help="A user who is not in RATINGS: a table of items and "
            "ratings. Nothing is fitted again.",
        ),
    ] = None,
    all_users: Annotated[
        bool,
        typer.Option(
            "--all-users",
            rich_help_panel=USERS_PANEL,
            help="Everybody; the lists go to --out.",
        ),
    ] = False,
    similar_to: Annotated[
        str | None,
        typer.Option(
            metavar="ITEM",
            rich_help_panel=USERS_PANEL,
            help="Show items like this one.",
        ),
    ] = None,
    n: Annotated[
        int,
        typer.Option(
            "-n", min=1, rich_help_panel=RANKING_PANEL, help="How many items."
        ),
    ] = 10,
    uncertainty_penalty: Annotated[
        float,
        typer.Option(
            min=0.0,
            rich_help_panel=RANKING_PANEL,
            help="Standard deviations to subtract from a prediction first, so "
            "that uncertain items need higher predictions.",
        ),
    ] = 0.0,
    popularity: Annotated[
        float,
        typer.Option(
            min=0.0,
            rich_help_panel=RANKING_PANEL,
            help="Stars to add for ten times as many ratings: 1 or 2 favor "
            "popular items.",
        ),
    ] = 0.0,
    min_ratings: Annotated[
        int,
        typer.Option(
            min=0,
            rich_help_panel=RANKING_PANEL,
            help="Leave out items with fewer ratings.",
        ),
    ] = 1,
    include_seen: Annotated[
        bool,
        typer.Option(
            "--include-seen",
            rich_help_panel=RANKING_PANEL,
            help="Recommend what the user has rated too.",
        ),
    ] = False,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            rich_help_panel=OUTPUT_PANEL,
            help="Show which ratings led to each recommendation.",
        ),
    ] = False,
    level: Annotated[
        float | None,
        typer.Option(
            parser=parse_level,
            metavar="FLOAT",
            rich_help_panel=OUTPUT_PANEL,
            show_default="0.8",
            help="Nominal coverage of the intervals.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--out",
            metavar="PATH",
            rich_help_panel=OUTPUT_PANEL,
            help="Write the lists to a CSV, TSV or Parquet file.",
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            rich_help_panel=RATINGS_PANEL,
            help="What --save-model wrote, in place of RATINGS.",
        ),
    ] = None,
    save_model: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            rich_help_panel=OUTPUT_PANEL,
            help="Keep the fitted recommender; it holds the ratings.",
        ),
    ] = None,
    engine: Annotated[
        EngineChoice,
        typer.Option(
            rich_help_panel=OUTPUT_PANEL,
            help="Where the fit is done; auto takes a GPU if there is one.",
        ),
    ] = "auto",
    report: ReportOption = None,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite",
            rich_help_panel=OUTPUT_PANEL,
            help="Replace files that exist.",
        ),
    ] = False,
    quiet: QuietOption = False,
) -> None:
    """Recommend items to users, and say why.

    A model of the similarity of items is learned from all ratings; a user gets the
    items with the highest predicted ratings, with an interval for the rating. Save the
    model with --save-model: with --model answers come at once.
    """
    request = RecommendRequest(
        users=tuple(user or ()),
        new_user=new_user,
        all_users=all_users,
        similar_to=similar_to,
        n=n,
        uncertainty_penalty=uncertainty_penalty,
        popularity=popularity,
        min_ratings=min_ratings,
        include_seen=include_seen,
        explain=explain,
        requested_level=level,
    )
    job = RecommendJob(
        source=source, columns=columns, titles=titles, delimiter=delimiter,
        duplicates=str(duplicates), model=model, saved_model_path=save_model, out=out,
        report=report, overwrite=overwrite, engine=engine, quiet=quiet,
    )  # fmt: skip
    result = run_recommend(job, request)
    if not quiet:
        print_recommendations(result)
    if report is not None:
        write_recommend_page(result, report)


@dataclass(frozen=True)
class RecommendRequest:
    """Lists to make; the fields are options, see ``ncarl recommend --help``."""

    users: tuple[str, ...]
    new_user: Path | None
    all_users: bool
    similar_to: str | None
    n: int
    uncertainty_penalty: float
    popularity: float
    min_ratings: int
    include_seen: bool
    explain: bool
    requested_level: float | None

    @property
    def level(self) -> float:
        """Nominal coverage of intervals."""
        return DEFAULT_LEVEL if self.requested_level is None else self.requested_level

    @property
    def has_users(self) -> bool:
        """Whether there are to be lists for users."""
        return bool(self.users) or self.new_user is not None or self.all_users


@dataclass(frozen=True)
class RecommendJob:
    """Input, output and engine of a run."""

    source: Path | None
    columns: Sequence[str] | None
    titles: Path | None
    delimiter: str | None
    duplicates: str
    model: Path | None
    saved_model_path: Path | None
    out: Path | None
    report: Path | None
    overwrite: bool
    engine: str
    quiet: bool


def check_recommend_options(job: RecommendJob, request: RecommendRequest) -> None:
    """Raise if options contradict each other, or files cannot be written."""
    if (job.source is None) == (job.model is None):
        raise ValueError(
            "give RATINGS, a file of ratings, or --model, a recommender that "
            "--save-model wrote" + ("" if job.source is None else "; not both")
        )
    _check_applicable_options(job, request)
    if request.has_users and request.similar_to is not None and job.out is not None:
        raise ValueError(
            "--out holds one kind of list; ask for --similar-to on its own"
        )
    if request.all_users and (request.users or request.new_user is not None):
        flag = "--user" if request.users else "--new-user"
        raise ValueError(f"--all-users and {flag} do not go together; ask for one")
    if request.all_users and job.out is None and job.report is None:
        raise ValueError("--all-users makes many lists; say where to with --out")
    nothing = not request.has_users and request.similar_to is None
    if nothing and (job.saved_model_path is None or job.out is not None):
        raise ValueError(
            "say for whom: --user ID, --new-user PATH or --all-users; --similar-to "
            "ITEM shows similar items, --save-model PATH keeps the model for later"
        )
    if request.explain and not (request.users or request.new_user):
        raise ValueError("--explain explains lists of --user and --new-user")
    source = job.source or job.model
    assert source is not None
    check_recommendations_format(job.out)
    files = {"--out": job.out, "--save-model": job.saved_model_path}
    targets = {flag: path for flag, path in files.items() if path is not None}
    check_outputs(source, targets, overwrite=job.overwrite)
    inputs = {"--titles": job.titles, "--new-user": request.new_user}
    for flag, path in targets.items():
        for name, given in inputs.items():
            if given is not None and _is_same_file(path, given):
                raise ValueError(
                    f"{flag} {str(path)!r} is the file of {name}; name another file"
                )
    check_report_path(job.report, source)
    find_delimiter_file(job, request)


def _check_applicable_options(job: RecommendJob, request: RecommendRequest) -> None:
    """Raise if an option was given that has no effect here."""
    of_ratings = {
        "--columns": job.columns is not None,
        "--duplicates": job.duplicates != "error" and request.new_user is None,
        "--engine": job.engine != "auto",
    }
    for flag, given in of_ratings.items():
        if given and job.model is not None:
            raise ValueError(f"{flag} is for RATINGS, and --model needs none")
    of_lists = {
        "--uncertainty-penalty": request.uncertainty_penalty > 0.0,
        "--popularity": request.popularity > 0.0,
        "--include-seen": request.include_seen,
        "--level": request.requested_level is not None,
    }
    for flag, given in of_lists.items():
        if given and not request.has_users:
            raise ValueError(
                f"{flag} is for lists; say for whom: --user ID, --new-user PATH or "
                "--all-users"
            )


def check_recommendations_format(path: Path | None) -> None:
    """Raise if a list cannot be written in the format of the file."""
    if path is None:
        return
    try:
        kind = detect_format(path)
    except ValueError:  # its message names the formats of matrices, too
        kind = f"{path.suffix!r}" if path.suffix else "no ending"
    if kind not in RATINGS_FORMATS:
        raise ValueError(f"--out must be CSV, TSV or Parquet, got {kind} ({path.name})")


def _is_same_file(path: Path, other: Path) -> bool:
    return path.exists() and other.exists() and path.samefile(other)


def find_delimiter_file(job: RecommendJob, request: RecommendRequest) -> Path | None:
    """The file that ``--delimiter`` is for: RATINGS, or the only text file."""
    if job.delimiter is None:
        return None
    files = (job.source, job.titles, request.new_user)
    texts = [p for p in files if p is not None and detect_format(p) in ("CSV", "TSV")]
    if texts and (texts[0] is job.source or len(texts) == 1):
        return texts[0]
    raise ValueError(
        "--delimiter is for RATINGS in a text file, or else for the only text file; "
        f"got {len(texts)} others, so leave it out: delimiters are detected"
    )


@dataclass(frozen=True)
class UserRecommendations:
    """Recommendations for one user, and their explanations."""

    user: Any  # the id
    name: str  # as printed
    n_rated: int
    rows: Sequence[RecommendedItem]
    reasons: Sequence[Explanation] = ()


@dataclass(frozen=True)
class RecommendResult:
    """Result of a run."""

    job: RecommendJob
    request: RecommendRequest
    recommender: Recommender
    titles: dict[str, str]  # by the item's id as text
    lists: list[UserRecommendations] = field(default_factory=list)
    similar_to: Any = None  # the id of an item, and items similar to it
    similar: Sequence[SimilarItem] = ()
    seconds: float = 0.0  # of the fit; 0 for a loaded model
    level: float | None = None  # nominal coverage; None if there are no intervals

    def title(self, item: Any) -> str:
        """The title of an item, or else its id."""
        return self.titles.get(str(item), str(item))


def run_recommend(job: RecommendJob, request: RecommendRequest) -> RecommendResult:
    """Run the command, and write ``--out`` and ``--save-model``."""
    check_recommend_options(job, request)
    recommender, seconds = fit_or_load(job)
    if job.saved_model_path is not None:
        # Before a new user is added, who is not to be in the file.
        recommender.save(job.saved_model_path.resolve())
    # Results are rows here, whatever library the ratings came in.
    recommender.library_ = "plain"
    titles = _read_item_titles(recommender, job, request)
    level = _interval_level(recommender, request)
    users = _requested_users(recommender, job, request)
    bar = _shows_progress(job) and request.all_users
    with percent_bar(bar, len(users), "lists") as advance:
        lists = list[UserRecommendations]()
        for user in users:
            lists.append(_recommend_to_user(recommender, user, request, level))
            advance(len(lists))
    if request.all_users and level is not None:
        lists = _add_intervals(recommender, lists, level)
    similar: Sequence[SimilarItem] = ()
    item = None
    if request.similar_to is not None:
        item = find_item(recommender, request.similar_to, titles)
        similar = recommender.similar_items(
            item, request.n, min_ratings=request.min_ratings
        )
    result = RecommendResult(
        job, request, recommender, titles, lists, item, similar, seconds, level
    )
    if job.out is not None:
        write_recommendations(job.out.resolve(), *output_table(result))
    return result


def _shows_progress(job: RecommendJob) -> bool:
    return is_interactive() and not job.quiet


def fit_or_load(job: RecommendJob) -> tuple[Recommender, float]:
    """The recommender, and the seconds that its fit took."""
    if job.model is not None:
        return Recommender.load(job.model), 0.0
    assert job.source is not None
    mark = None if detect_format(job.source) == "Parquet" else job.delimiter
    ratings = read_ratings(job.source, job.columns, mark)
    model = BayesianNCARL(engine=job.engine, progress=_shows_progress(job))
    user, item, rating = ratings.names
    item = "item" if item in RESERVED_COLUMNS else item
    recommender = Recommender(
        model, user=user, item=item, rating=rating, duplicates=job.duplicates
    )
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        recommender.fit((ratings.users, ratings.items, ratings.values))
    for warning in caught:
        typer.echo(f"warning: {' '.join(str(warning.message).split())}", err=True)
    return recommender, time.perf_counter() - start


def _interval_level(
    recommender: Recommender, request: RecommendRequest
) -> float | None:
    """Nominal coverage of intervals; None if the model has none."""
    # If a level was requested, the model raises the error that says why.
    if request.requested_level is None and not recommender._has_noise_model():
        return None
    return request.level


def _requested_users(
    recommender: Recommender, job: RecommendJob, request: RecommendRequest
) -> list[Any]:
    """Users that lists are for; a new user is added first."""
    if request.all_users:
        return recommender.users
    users = [find_user(recommender, text) for text in request.users]
    if request.new_user is not None:
        mark = (
            job.delimiter
            if find_delimiter_file(job, request) is request.new_user
            else None
        )
        if job.duplicates != "error":
            recommender.duplicates = job.duplicates
        users.append(_add_new_user(recommender, request.new_user, mark))
    return users


def _add_new_user(recommender: Recommender, path: Path, delimiter: str | None) -> Any:
    """Add a user whose ratings are in a file; the id."""
    ratings = read_user_ratings(path, delimiter)
    pairs = [(recommender.items_.parse(item), rating) for item, rating in ratings]
    known = [pair for pair in pairs if pair[0] is not None]
    unknown = [r[0] for r, pair in zip(ratings, pairs, strict=True) if pair[0] is None]
    if unknown:
        typer.echo(
            f"warning: {len(unknown)} of {len(ratings)} ratings of {path.name} are "
            f"left out: item {unknown[0]!r} has no rating by others",
            err=True,
        )
    users = recommender.user_store_
    free = users.vocabulary.kind == "str" and NEW_USER_NAME not in users
    return recommender.add_user(known, NEW_USER_NAME if free else None)


def find_user(recommender: Recommender, text: str) -> Any:
    """The user that a text names."""
    users = recommender.user_store_
    for user in users.added:
        if str(user) == text:
            return user
    user = users.vocabulary.parse(text)
    if user is None:
        raise ValueError(f"--user: {users.vocabulary.unknown_message(text)}")
    return user


def find_item(recommender: Recommender, text: str, titles: dict[str, str]) -> Any:
    """The item that a text names, by its id or else by its title."""
    ids = recommender.items_
    item = ids.parse(text)
    if item is None:
        named = [key for key, title in titles.items() if title == text]
        item = next((x for x in map(ids.parse, named) if x is not None), None)
    if item is None:
        raise ValueError(f"--similar-to: {ids.unknown_message(text)}")
    return item


def _recommend_to_user(
    recommender: Recommender, user: Any, request: RecommendRequest, level: float | None
) -> UserRecommendations:
    """Recommendations for one user."""
    # Intervals of all users are computed together, which is much faster.
    level = None if request.all_users else level
    rows = recommender.recommend(
        user,
        request.n,
        not request.include_seen,
        uncertainty_penalty=request.uncertainty_penalty,
        popularity=request.popularity,
        min_ratings=request.min_ratings,
        level=level,
    )
    rated = recommender.user_store_.look_up(user)[0].n_observed
    reasons = (
        [recommender.explain(user, row.item) for row in rows] if request.explain else []
    )
    fitted = user in recommender.user_store_.vocabulary.positions
    new = request.new_user is not None and not fitted
    name = NEW_USER_NAME if new else str(user)
    return UserRecommendations(user, name, rated, rows, reasons)


def _add_intervals(
    recommender: Recommender, lists: list[UserRecommendations], level: float
) -> list[UserRecommendations]:
    """Lists with the ends of their intervals."""
    pairs = [(found.user, row.item) for found in lists for row in found.rows]
    if not pairs:
        return lists
    users, items = ([pair[k] for pair in pairs] for k in (0, 1))
    low, high = recommender.predict_interval(users, items, level)
    ends = iter(zip(low.tolist(), high.tolist(), strict=True))
    return [
        replace(
            found, rows=[RecommendedItem(*row[:3], *next(ends)) for row in found.rows]
        )
        for found in lists
    ]


@dataclass(frozen=True)
class ColumnTable:
    """A table as columns of text or values, in the order of the file."""

    names: list[str] | None  # None for a file without a header
    cells: list[list[Any]]  # by column
    lines: list[int]  # of each row in the file, from 1; numbers of rows for Parquet


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
    """The ratings in a CSV, TSV or Parquet file.

    Parameters
    ----------
    path : Path
        The file.
    columns : sequence of str or None
        The columns of users, items and ratings: names, or positions counted from 1;
        None finds them by their names.
    delimiter : str or None
        What separates the cells of a text file; None detects it.
    """
    table = read_columns(path, delimiter)
    positions = (
        _positions_from_option(table, columns, path)
        if columns
        else _positions_from_header(table, path)
    )
    users, items, ratings = (table.cells[j] for j in positions)
    values = [
        _parse_rating(cell, line, path, "ratings")
        for cell, line in zip(ratings, table.lines, strict=True)
    ]
    user, item, rating = (
        str(j + 1) if table.names is None else table.names[j] for j in positions
    )
    users = parse_ids(users, user, table, path)
    items = parse_ids(items, item, table, path)
    return RatingsFile(users, items, values, (user, item, rating))


def read_user_ratings(
    path: Path, delimiter: str | None = None
) -> list[tuple[str, float]]:
    """Ratings of one user, items as text, from a file of two columns."""
    table = read_columns(path, delimiter)
    if len(table.cells) < 2:
        raise ValueError(
            f"--new-user {str(path)!r} must have a column of items and one of ratings, "
            f"got {len(table.cells)}"
        )
    first, second = 0, 1
    if table.names is not None and len(table.cells) > 2:
        plain = [_normalize_name(name) for name in table.names]
        first = _find_name(plain, COLUMN_ALIASES["item"], 0)
        second = _find_name(plain, COLUMN_ALIASES["rating"], 1)
    items, ratings = table.cells[first], table.cells[second]
    return [
        (to_printable(item), _parse_rating(rating, line, path, "--new-user"))
        for item, rating, line in zip(items, ratings, table.lines, strict=True)
    ]


def _read_item_titles(
    recommender: Recommender, job: RecommendJob, request: RecommendRequest
) -> dict[str, str]:
    """Titles of items, if there is a file of them."""
    if job.titles is None:
        return {}
    mark = job.delimiter if find_delimiter_file(job, request) is job.titles else None
    return read_titles(job.titles, recommender.item, recommender.items_, mark)


def read_titles(
    path: Path, item: str, vocabulary: Vocabulary, delimiter: str | None = None
) -> dict[str, str]:
    """Titles of items, by their ids as text.

    Ids are in the column named as in the ratings, or the first; titles in one named
    title or name, or the second. A file without a header begins with an item that was
    rated.
    """

    def is_header(row: Sequence[str]) -> bool:
        return is_header_row(row) and vocabulary.parse(to_printable(row[0])) is None

    table = read_columns(path, delimiter, is_header)
    if len(table.cells) < 2:
        raise ValueError(
            f"--titles {str(path)!r} must have a column of ids and one of titles, got "
            f"{len(table.cells)}"
        )
    first, second = 0, 1
    if table.names is not None:
        plain = [_normalize_name(name) for name in table.names]
        first = _find_name(plain, (_normalize_name(item), *COLUMN_ALIASES["item"]), 0)
        second = _find_name(plain, TITLE_ALIASES, 1 if first == 0 else 0)
    rows = zip(table.cells[first], table.cells[second], strict=True)
    return {to_printable(key): to_printable(title) for key, title in rows}


def is_header_row(row: Sequence[str]) -> bool:
    """Whether a line names columns: it holds no number, as a line of ratings does."""
    return all(parse_number(cell) is None for cell in row)


def read_columns(
    path: Path,
    delimiter: str | None,
    is_header: Callable[[Sequence[str]], bool] = is_header_row,
) -> ColumnTable:
    """The columns of a file, cells of text files without quotes."""
    kind = detect_format(path)
    if kind not in RATINGS_FORMATS:
        raise ValueError(
            f"{str(path)!r} must be a list of ratings in CSV, TSV or Parquet, got "
            f"{kind}; ncarl complete takes matrices"
        )
    if kind == "Parquet":
        return _read_parquet(path)
    content = DelimitedText.from_path(path)
    if delimiter is not None:
        mark = check_delimiter(delimiter)
    else:
        mark = "\t" if kind == "TSV" else find_delimiter(content.first_line())
    records = [r for r in content.iter_records(mark) if r.cells != [""]]
    if not records:
        raise ValueError(f"{str(path)!r} is empty")
    for record in records:
        check_width(record, records[0], path)
    rows = [[unquote(cell) for cell in record.cells] for record in records]
    lines = [record.line for record in records]
    names = None
    if is_header(rows[0]):
        names = [to_printable(cell) for cell in rows[0]]
        rows, lines = rows[1:], lines[1:]
    if not rows:
        raise ValueError(f"{str(path)!r} has a header and no row below it")
    cells = [list(column) for column in zip(*rows, strict=True)]
    return ColumnTable(names, cells, lines)


def _read_parquet(path: Path) -> ColumnTable:
    import pandas as pd

    with path.open("rb"):  # raises if it cannot be opened
        pass
    try:
        frame = pd.read_parquet(path, engine="pyarrow")
    except ValueError as error:
        raise ValueError(f"{str(path)!r} is not a Parquet table: {error}") from error
    # An index with a name is a column of the file.
    kept = [
        k
        for k, name in enumerate(frame.index.names)
        if name is not None and name not in frame.columns
    ]
    frame = frame.reset_index(level=kept) if kept else frame
    cells = [frame.iloc[:, j].tolist() for j in range(frame.shape[1])]
    names = [str(name) for name in frame.columns]
    return ColumnTable(names, cells, list(range(1, len(frame) + 1)))


def _positions_from_option(
    table: ColumnTable, columns: Sequence[str], path: Path
) -> list[int]:
    """Positions of the columns that ``--columns`` names."""
    if len(columns) != 3:
        raise ValueError(
            "--columns must name three columns, user,item,rating, got "
            f"{','.join(columns)!r}"
        )
    names, width = table.names or [], len(table.cells)
    positions = []
    for name in columns:
        if name in names:
            positions.append(names.index(name))
        elif name.isdecimal() and 1 <= int(name) <= width:
            positions.append(int(name) - 1)
        else:
            raise ValueError(
                f"--columns {name!r} is not a column of {str(path)!r}; "
                f"{_describe_columns(table)}"
            )
    if len(set(positions)) < 3:
        raise ValueError(
            f"--columns must name three columns, got {','.join(columns)!r}"
        )
    return positions


def _positions_from_header(table: ColumnTable, path: Path) -> list[int]:
    """Positions of the columns by their usual names, or the first three."""
    if table.names is None:
        if len(table.cells) >= 3:
            return [0, 1, 2]
        raise ValueError(
            f"{str(path)!r} must have columns of users, items and ratings, got "
            f"{len(table.cells)} columns"
        )
    plain = [_normalize_name(name) for name in table.names]
    positions = []
    for what, aliases in COLUMN_ALIASES.items():
        position = _find_name(plain, aliases, -1)
        if position < 0:
            raise ValueError(
                f"{str(path)!r} has no column that is named like {what}s; say which is "
                f"which with --columns USER,ITEM,RATING; {_describe_columns(table)}"
            )
        positions.append(position)
    return positions


def _find_name(names: Sequence[str], aliases: Sequence[str], default: int) -> int:
    """Position of the first alias among names."""
    return next((names.index(name) for name in aliases if name in names), default)


def _normalize_name(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalnum())


def _describe_columns(table: ColumnTable) -> str:
    if table.names is None:
        return f"it has no header, so columns are 1 to {len(table.cells)}"
    return f"its columns are {', '.join(table.names[:8])}"


def _parse_rating(cell: Any, line: int, path: Path, origin: str) -> float:
    """A rating, or an error that names its line."""
    number = parse_number(str(cell))
    if number is None:
        raise ValueError(
            f"{origin}: {to_printable(cell)!r} at line {line} of {str(path)!r} is not "
            "a rating; correct it or leave the line out"
        )
    return number


def parse_ids(
    column: list[Any], name: str, table: ColumnTable, path: Path
) -> list[Any]:
    """Ids as whole numbers if all are written as such, else as they are.

    Examples
    --------
    >>> from pathlib import Path
    >>> none = ColumnTable(None, [], [])
    >>> [parse_ids(ids, "user", none, Path()) for ids in (["7", "12"], ["007"])]
    [[7, 12], ['007']]
    """
    for k, cell in enumerate(column):
        if is_missing(cell) or cell == "":
            raise ValueError(
                f"column {name!r} of {str(path)!r} is empty at line {table.lines[k]}; "
                "leave such lines out"
            )
    if all(isinstance(cell, str) for cell in column):
        if all(is_integer_text(cell) for cell in column):
            return [int(cell) for cell in column]
        return [to_printable(cell) for cell in column]
    return column


def is_integer_text(cell: str) -> bool:
    """Whether a text is a whole number as Python writes it: 7 is, 007 is not."""
    digits = cell.removeprefix("-")
    return digits.isascii() and digits.isdigit() and str(int(cell)) == cell


def output_table(result: RecommendResult) -> tuple[list[str], list[list[Any]]]:
    """Names of columns, and rows, of the file that ``--out`` names."""
    user, item = result.recommender.user, result.recommender.item
    taken = {"1", "2", "3", "rank", "title", *RESERVED_COLUMNS}
    if user == item or not {user, item}.isdisjoint(taken):
        user, item = "user", "item"  # no header, or names that would be ambiguous
    named = ["title"] if result.titles else []
    if result.similar_to is not None:
        heads = [item, *named, "similarity", "n_ratings"]
        return heads, [
            [row.item, *_title_cells(result, row.item), row.similarity, row.n_ratings]
            for row in result.similar
        ]
    ends = [] if result.level is None else ["low", "high"]
    heads = [user, "rank", item, *named, "predicted", *ends, "n_ratings"]
    rows = []
    for found in result.lists:
        for rank, row in enumerate(found.rows, 1):
            cells = [getattr(row, name) for name in ("predicted", *ends, "n_ratings")]
            rows.append(
                [found.user, rank, row.item, *_title_cells(result, row.item), *cells]
            )
    return heads, rows


def _title_cells(result: RecommendResult, item: Any) -> list[str]:
    return [to_printable(result.title(item))] if result.titles else []


def write_recommendations(
    path: Path, headers: Sequence[str], rows: Sequence[Sequence[Any]]
) -> None:
    """Write a table to a CSV, TSV or Parquet file."""
    kind = detect_format(path)
    with atomic_write(path) as temporary:
        if kind == "Parquet":
            import pandas as pd

            columns = zip(*rows, strict=True) if rows else [[] for _ in headers]
            frame = pd.DataFrame(dict(zip(headers, map(list, columns), strict=True)))
            frame.to_parquet(temporary, engine="pyarrow", index=False)
            return
        stream = io.StringIO()
        mark = "\t" if kind == "TSV" else ","
        writer = csv.writer(stream, delimiter=mark, lineterminator="\n")
        writer.writerow(headers)
        writer.writerows([[_format_cell(cell) for cell in row] for row in rows])
        write_text(temporary, path.name, iter([stream.getvalue()]))


def _format_cell(cell: Any) -> Any:
    return f"{cell:.6g}" if isinstance(cell, float) else cell


def print_recommendations(result: RecommendResult) -> None:
    """Print the results of a run."""
    console = Console()
    print_fields(recommend_header_lines(result))
    if not result.request.all_users:
        for recommendations in result.lists:
            console.print()
            _print_list(console, result, recommendations)
    if result.similar_to is not None:
        console.print()
        _print_heading(console, f"like {result.title(result.similar_to)}")
        console.print(_make_table(SIMILAR_HEADERS, similar_rows(result)))
    print_fields(output_lines(result))


def _print_heading(console: Console, text: str) -> None:
    console.print(to_printable(text), style="bold", markup=False, highlight=False)


def recommend_header_lines(result: RecommendResult) -> Iterable[tuple[str, str]]:
    """The ratings, the model and its error."""
    training = result.recommender.user_store_.scorer.training
    m, n = training.shape
    yield "ratings", f"{training.n_observed} by {m} users of {n} items"
    model = result.recommender.model_
    both = getattr(model, "sides_", "columns") == "both"
    sides = "users and items" if both else "items"
    name = "bayes" if isinstance(model, BayesianNCARL) else "ncarl"
    origin = f"{result.seconds:.1f} s" if result.seconds else "loaded"
    yield "model", f"{name}, kernel of {sides}, {origin}"
    error = getattr(model, "held_out_error_", float("nan"))
    if error == error:
        part = f"on {model.validation:.0%} of the ratings held out"
        yield "error", f"{error:.3g} stars (root mean square), {part}"


def output_lines(result: RecommendResult) -> Iterable[tuple[str, str]]:
    """The files that were written."""
    if result.job.out is not None:
        count = len(result.lists) or 1
        yield "written", f"{result.job.out} ({count} list{'s' if count > 1 else ''})"
    if result.job.saved_model_path is not None:
        yield (
            "kept",
            f"{result.job.saved_model_path} (for --model, or Recommender.load)",
        )
    if result.job.report is not None:
        yield "report", str(result.job.report)


def _print_list(
    console: Console, result: RecommendResult, recommendations: UserRecommendations
) -> None:
    """Print the list of one user."""
    heading = f"for {recommendations.name}, who rated {recommendations.n_rated}"
    _print_heading(console, heading)
    if not recommendations.rows:
        console.print("nothing is left to recommend")
        return
    console.print(_make_table(list_headers(result), list_rows(result, recommendations)))
    for row, reasons in zip(
        recommendations.rows, recommendations.reasons, strict=False
    ):
        console.print()
        _print_heading(console, f"{result.title(row.item)}: {row.predicted:.2f}")
        for amount, words in reason_lines(result, reasons):
            print_text(f"  {amount}  {words}")


def reason_lines(
    result: RecommendResult, explanation: Explanation
) -> list[tuple[str, str]]:
    """The terms of a prediction: amounts and reasons."""
    names = {explanation.item: result.title(explanation.item)}
    names |= {reason.item: result.title(reason.item) for reason in explanation.reasons}
    (level, words), *others = explanation.lines(names, MAX_REASONS)
    return [(f"{level:5.2f}", words), *((format_signed(x), text) for x, text in others)]


def list_headers(result: RecommendResult) -> list[str]:
    """Columns of a list."""
    ends = [] if result.level is None else [f"{result.level:.0%} interval"]
    return ["", "item", "predicted", *ends, "ratings"]


def list_rows(
    result: RecommendResult, recommendations: UserRecommendations
) -> list[list[str]]:
    """The list of one user as text."""
    return [
        [
            str(rank),
            result.title(row.item),
            f"{row.predicted:.2f}",
            *([] if row.low is None else [f"{row.low:.1f} to {row.high:.1f}"]),
            str(row.n_ratings),
        ]
        for rank, row in enumerate(recommendations.rows, 1)
    ]


def similar_rows(result: RecommendResult) -> list[list[str]]:
    """Similar items as text."""
    return [
        [str(rank), result.title(row.item), f"{row.similarity:.2f}", str(row.n_ratings)]
        for rank, row in enumerate(result.similar, 1)
    ]


def _make_table(headers: list[str], rows: list[list[str]]) -> RichTable:
    """A plain table of ranks, items and numbers."""
    table = RichTable(box=None, pad_edge=False, header_style="bold")
    for head in headers:
        table.add_column(head, justify="left" if head == "item" else "right")
    for row in rows:
        table.add_row(*(Text(to_printable(cell)) for cell in row))
    return table


def write_recommend_page(result: RecommendResult, path: Path) -> None:
    """Write the page of a run."""
    lead = "Items with the highest predicted ratings, and why."
    page = Page("Recommendations", lead).facts(dict(recommend_header_lines(result)))
    for found in result.lists[:MAX_PAGE_LISTS]:
        page.heading(f"For {found.name}, who rated {found.n_rated}")
        rows = list_rows(result, found)
        page.table(*_merge_rank_and_name(list_headers(result), rows))
        if found.rows and found.rows[0].low is not None:
            caption = (
                f"Predicted ratings (dots) and {result.level:.0%} intervals (bars)."
            )
            page.figure(interval_figure(result, found), caption)
        for why in found.reasons:
            page.table(
                [f"{result.title(why.item)}: {why.predicted:.2f}", "stars"],
                [[words, amount] for amount, words in reason_lines(result, why)],
            )
    if len(result.lists) > MAX_PAGE_LISTS:
        page.text(f"{len(result.lists) - MAX_PAGE_LISTS} more lists are left out here.")
    if result.similar_to is not None:
        page.heading(f"Like {result.title(result.similar_to)}")
        page.table(*_merge_rank_and_name(SIMILAR_HEADERS, similar_rows(result)))
    page.save(path)


def _merge_rank_and_name(
    headers: list[str], rows: list[list[str]]
) -> tuple[list[str], list[list[str]]]:
    """A table with the rank before the name in one column, as a page has it."""
    return headers[1:], [[f"{row[0]}. {row[1]}", *row[2:]] for row in rows]


def interval_figure(
    result: RecommendResult, recommendations: UserRecommendations
) -> Figure:
    """Predictions of a list with their intervals, the best on top."""
    from matplotlib.figure import Figure

    rows: list[Any] = list(recommendations.rows)
    figure = Figure(figsize=(7.0, 0.8 + 0.32 * len(rows)), layout="constrained")
    axes = figure.subplots()
    places = np.arange(len(rows))[::-1]
    low, high = (np.array([getattr(r, end) for r in rows]) for end in ("low", "high"))
    axes.hlines(places, low, high, color="#9ecae1", linewidth=6)
    axes.plot([row.predicted for row in rows], places, "o", color="#08519c")
    names = [result.title(row.item) for row in rows]
    short = [name if len(name) <= 40 else f"{name[:39]}…" for name in names]
    axes.set_yticks(places, short, parse_math=False)
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.set_xlabel("predicted rating")
    axes.spines[["top", "right"]].set_visible(False)
    return figure
