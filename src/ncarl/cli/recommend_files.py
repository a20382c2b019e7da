"""Ratings and titles from files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ncarl.cli import records as text
from ncarl.cli.columns import parse_number
from ncarl.cli.files import format_of, shown
from ncarl.ratings.ids import Ids, is_missing

#: Names that the three columns go by, without case and signs.
USUAL = {
    "user": ("user", "userid", "uid", "customer", "customerid", "reviewer",
             "reviewerid", "person", "who"),
    "item": ("item", "itemid", "iid", "movie", "movieid", "film", "filmid", "product",
             "productid", "book", "bookid", "isbn", "asin", "song", "songid", "track",
             "trackid", "joke", "jokeid", "what"),
    "rating": ("rating", "ratings", "stars", "score", "overall", "value", "rate"),
}  # fmt: skip
TITLES = ("title", "name", "movietitle", "itemname", "label")
FORMATS = ("CSV", "TSV", "Parquet")


@dataclass(frozen=True)
class Columns:
    """A table as columns of text or values, in the order of the file.

    Attributes
    ----------
    names : list of str or None
        Names of the columns; None for a file without a header.
    cells : list of lists
        The columns.
    lines : list of int
        The line of each row in the file, from 1; rows for Parquet.
    """

    names: list[str] | None
    cells: list[list[Any]]
    lines: list[int]


@dataclass(frozen=True)
class Ratings:
    """Ratings of a file: ids of users and items, stars, and the columns' names."""

    users: list[Any]
    items: list[Any]
    values: list[float]
    names: tuple[str, str, str]


def read_ratings(
    path: Path, columns: Sequence[str] | None, delimiter: str | None = None
) -> Ratings:
    """The ratings in a CSV, TSV or Parquet file.

    Parameters
    ----------
    path : Path
        The file.
    columns : sequence of str or None
        The columns of users, items and ratings: names, or positions counted from 1;
        None looks for them.
    delimiter : str or None
        What separates the cells of a text file; None looks.
    """
    table = read_columns(path, delimiter)
    places = _given(table, columns, path) if columns else _found(table, path)
    users, items, stars = (table.cells[j] for j in places)
    values = [
        _stars(cell, table.lines[k], path, "ratings") for k, cell in enumerate(stars)
    ]
    names = [str(j + 1) if table.names is None else table.names[j] for j in places]
    who = typed_ids(users, names[0], table, path)
    what = typed_ids(items, names[1], table, path)
    return Ratings(who, what, values, (names[0], names[1], names[2]))


def read_own(path: Path, delimiter: str | None = None) -> list[tuple[str, float]]:
    """What somebody rated: items as text, and stars, from a file of two columns."""
    table = read_columns(path, delimiter)
    if len(table.cells) < 2:
        raise ValueError(
            f"--new-user {str(path)!r} must have a column of items and one of ratings, "
            f"got {len(table.cells)}"
        )
    first, second = 0, 1
    if table.names is not None and len(table.cells) > 2:
        plain = [_plain(name) for name in table.names]
        first = _position(plain, USUAL["item"], 0)
        second = _position(plain, USUAL["rating"], 1)
    items, stars = table.cells[first], table.cells[second]
    return [
        (_cell(item), _stars(star, line, path, "--new-user"))
        for item, star, line in zip(items, stars, table.lines, strict=True)
    ]


def read_titles(
    path: Path, item: str, known: Ids, delimiter: str | None = None
) -> dict[str, str]:
    """Titles of items, by their ids as text.

    Ids stand in the column that is named as in the ratings, or the first; titles in
    one named title or name, or the second. A file without a header begins with one of
    the items that are known.
    """

    def named(row: Sequence[str]) -> bool:
        return names_columns(row) and known.same_words(shown(row[0])) is None

    table = read_columns(path, delimiter, named)
    if len(table.cells) < 2:
        raise ValueError(
            f"--titles {str(path)!r} must have a column of ids and one of titles, got "
            f"{len(table.cells)}"
        )
    where, what = 0, 1
    if table.names is not None:
        plain = [_plain(name) for name in table.names]
        where = _position(plain, (_plain(item), *USUAL["item"]), 0)
        what = _position(plain, TITLES, 1 if where == 0 else 0)
    ids, titles = table.cells[where], table.cells[what]
    return {_cell(i): _cell(t) for i, t in zip(ids, titles, strict=True)}


def _position(names: Sequence[str], wanted: Sequence[str], otherwise: int) -> int:
    """Where the first wanted name stands."""
    return next((names.index(name) for name in wanted if name in names), otherwise)


def names_columns(row: Sequence[str]) -> bool:
    """Whether a line names columns: it holds no number, where one of ratings does."""
    return all(parse_number(cell) is None for cell in row)


def read_columns(
    path: Path,
    delimiter: str | None,
    is_header: Callable[[Sequence[str]], bool] = names_columns,
) -> Columns:
    """The columns of a file, cells of text files without quotes."""
    kind = format_of(path)
    if kind not in FORMATS:
        raise ValueError(
            f"{str(path)!r} must be a list of ratings in CSV, TSV or Parquet, got "
            f"{kind}; ncarl complete takes matrices"
        )
    if kind == "Parquet":
        return _parquet(path)
    content = text.Text.of(path)
    if delimiter is not None:
        mark = text.check_delimiter(delimiter)
    else:
        mark = "\t" if kind == "TSV" else text.find_delimiter(content.top())
    found = [r for r in content.records(mark) if r.cells != [""]]
    if not found:
        raise ValueError(f"{str(path)!r} is empty")
    for record in found:
        text.check_width(record, found[0], path)
    rows = [[text.unquoted(cell) for cell in record.cells] for record in found]
    named = is_header(rows[0])
    names = [shown(cell) for cell in rows[0]] if named else None
    body, lines = (rows[1:], found[1:]) if named else (rows, found)
    if not body:
        raise ValueError(f"{str(path)!r} has a header and no row below it")
    cells = [list(column) for column in zip(*body, strict=True)]
    return Columns(names, cells, [record.line for record in lines])


def _parquet(path: Path) -> Columns:
    """The columns of a Parquet file."""
    import pandas as pd

    with path.open("rb"):
        pass
    try:
        frame = pd.read_parquet(path, engine="pyarrow")
    except ValueError as error:
        raise ValueError(f"{str(path)!r} is not a Parquet table: {error}") from error
    # An index with a name is a column that pandas has put aside.
    kept = [
        k
        for k, name in enumerate(frame.index.names)
        if name is not None and name not in frame.columns
    ]
    frame = frame.reset_index(level=kept) if kept else frame
    cells = [frame.iloc[:, j].tolist() for j in range(frame.shape[1])]
    names = [str(name) for name in frame.columns]
    return Columns(names, cells, list(range(1, len(frame) + 1)))


def _given(table: Columns, columns: Sequence[str], path: Path) -> list[int]:
    """Positions of the columns that ``--columns`` names."""
    if len(columns) != 3:
        raise ValueError(
            "--columns must name three columns, user,item,rating, got "
            f"{','.join(columns)!r}"
        )
    names, width = table.names or [], len(table.cells)
    found = []
    for name in columns:
        if name in names:
            found.append(names.index(name))
        elif name.isdecimal() and 1 <= int(name) <= width:
            found.append(int(name) - 1)
        else:
            raise ValueError(
                f"--columns {name!r} is not a column of {str(path)!r}; {_listed(table)}"
            )
    if len(set(found)) < 3:
        raise ValueError(
            f"--columns must name three columns, got {','.join(columns)!r}"
        )
    return found


def _found(table: Columns, path: Path) -> list[int]:
    """Positions of the columns by the names that they usually have."""
    if table.names is None:
        if len(table.cells) >= 3:
            return [0, 1, 2]
        raise ValueError(
            f"{str(path)!r} must have columns of users, items and ratings, got "
            f"{len(table.cells)} columns"
        )
    plain = [_plain(name) for name in table.names]
    found = []
    for what, usual in USUAL.items():
        place = _position(plain, usual, -1)
        if place < 0:
            raise ValueError(
                f"{str(path)!r} has no column that is named like {what}s; say which is "
                f"which with --columns USER,ITEM,RATING; {_listed(table)}"
            )
        found.append(place)
    return found


def _listed(table: Columns) -> str:
    """What the columns of a table are called."""
    if table.names is None:
        return f"it has no header, so columns are 1 to {len(table.cells)}"
    return f"its columns are {', '.join(table.names[:8])}"


def _plain(name: str) -> str:
    """A name without case and signs."""
    return "".join(c for c in name.lower() if c.isalnum())


def _cell(cell: Any) -> str:
    """A cell as text."""
    return shown(cell)


def _stars(cell: Any, line: int, path: Path, what: str) -> float:
    """A rating, or an error that says where it stands."""
    number = parse_number(str(cell))
    if number is None:
        raise ValueError(
            f"{what}: {shown(cell)!r} at line {line} of {str(path)!r} is not a rating; "
            "correct it or leave the line out"
        )
    return number


def typed_ids(column: list[Any], name: str, table: Columns, path: Path) -> list[Any]:
    """Ids as whole numbers if all are written as such, else as they are.

    Examples
    --------
    >>> from pathlib import Path
    >>> none = Columns(None, [], [])
    >>> [typed_ids(ids, "user", none, Path()) for ids in (["7", "12"], ["007"])]
    [[7, 12], ['007']]
    """
    for k, cell in enumerate(column):
        if is_missing(cell) or cell == "":
            raise ValueError(
                f"column {name!r} of {str(path)!r} is empty at line {table.lines[k]}; "
                "leave such lines out"
            )
    if all(isinstance(cell, str) for cell in column):
        if all(is_whole(cell) for cell in column):
            return [int(cell) for cell in column]
        return [shown(cell) for cell in column]
    return column


def is_whole(cell: str) -> bool:
    """Whether a text is a whole number as Python writes it: 7 is, 007 is not."""
    digits = cell.removeprefix("-")
    return digits.isascii() and digits.isdigit() and str(int(cell)) == cell
