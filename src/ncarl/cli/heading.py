"""Whether the first line of a text table names its columns."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, pairwise
from statistics import median

from ncarl.cli.columns import parse_number
from ncarl.cli.records import Record, unquoted
from ncarl.sources import RowSource
from ncarl.sources.delimited import MISSING, DelimitedRows

#: Rows below the first line that are looked at.
LOOKED_AT = 50
#: What was decided about the first line.
HEADED = "the first line was read as the header"
HEADLESS = "no line was read as the header"
#: So many numbers in a row that rise, or fall, by one step are hardly ever data.
MANY = 5
#: So few numbers are a row of data as easily as a header, and so few rows tell nothing.
LEAST = 3


def names_columns(
    first: Record, below: Sequence[Record], missing: set[str], decimal: str = "."
) -> bool:
    """Whether the first line of a table is a header.

    It is one if it holds a word; if its numbers are in quotes and those below are not;
    and if it is a run of whole numbers, such as years, that is no row of the table.

    Parameters
    ----------
    first : Record
        The first line.
    below : sequence of Record
        Some rows below it.
    missing : set of str
        Cells that mean missing.
    decimal : {".", ","}
        What decimals follow.
    """
    cells = [unquoted(cell) for cell in first.cells]
    numbers = [None if c in missing else parse_number(c, decimal) for c in cells]
    if any(n is None and c not in missing for n, c in zip(numbers, cells, strict=True)):
        return True
    if _quoted(first) and below and not any('"' in cell for cell in below[0].cells):
        return True
    columns = [_column(below, j, missing, decimal) for j in range(len(cells))]
    if numbers[0] is None:
        return _begins_with_corner(numbers[1:], columns)
    return _is_apart(numbers, columns)


def notes_on_stream(source: RowSource) -> list[str]:
    """What a source of rows made of the first line of a text file.

    Raises
    ------
    ValueError
        If it reads a line as data that `names_columns` takes for a header.
    """
    if not isinstance(source, DelimitedRows):
        return []
    if source.layout.names is not None:
        return [HEADED]
    top = islice(source.layout.records(source.file.path), LOOKED_AT + 1)
    first, *below = [Record(cells, "", line) for line, cells in top]
    alike = [record for record in below if len(record.cells) == len(first.cells)]
    if names_columns(first, alike, set(MISSING)):
        raise ValueError(
            f"the first line of {source.file} looks like names of columns, but "
            "--stream takes numbers for data; write a word into one of its cells, put "
            "a line with names above it if it is data, or leave out --stream"
        )
    return [HEADLESS]


def _quoted(record: Record) -> bool:
    """Whether all cells of a line that hold anything are in quotes."""
    found = [cell.strip() for cell in record.cells if cell.strip()]
    return bool(found) and all(cell.startswith('"') for cell in found)


def _column(
    rows: Sequence[Record], j: int, missing: set[str], decimal: str
) -> list[float | None]:
    """What some rows hold in a column; None is a word, gaps are left out."""
    cells = [unquoted(row.cells[j]) for row in rows]
    return [parse_number(cell, decimal) for cell in cells if cell not in missing]


def _begins_with_corner(
    numbers: Sequence[float | None], columns: Sequence[Sequence[float | None]]
) -> bool:
    """Whether numbers after an empty first cell are names of columns.

    A row of data may begin with a gap too, so a short run needs more: names or counts
    in the column below the corner, or numbers outside of all columns.
    """
    if not _runs(numbers):
        return False
    names = columns[0]
    if None in names or (len(numbers) >= MANY and len(_steps(numbers)) == 1):
        return True
    return _steps(names) == {1.0} or _outside(numbers, columns[1:], least=1, steps=0.0)


def _steps(numbers: Sequence[float | None]) -> set[float]:
    """The steps between whole numbers; none where there are others, or only one."""
    found = [n for n in numbers if n is not None and n.is_integer()]
    return {b - a for a, b in pairwise(found)} if len(found) == len(numbers) else set()


def _runs(numbers: Sequence[float | None]) -> bool:
    """Whether numbers are whole and ever larger, or ever smaller; at least two."""
    steps = _steps(numbers)
    return bool(steps) and (min(steps) > 0.0 or max(steps) < 0.0)


def _is_apart(
    numbers: Sequence[float | None], columns: Sequence[Sequence[float | None]]
) -> bool:
    """Whether a line of numbers alone has equal steps and is unlike all below it.

    Its first cell may be outside of the run: the corner above the names of rows.
    """
    if not _equal_steps(numbers) and not _equal_steps(numbers[1:]):
        return False
    return _outside(numbers, columns, least=LEAST, steps=2.0)


def _equal_steps(numbers: Sequence[float | None]) -> bool:
    """Whether whole numbers rise, or fall, by the same step; at least three."""
    return len(numbers) >= LEAST and _runs(numbers) and len(_steps(numbers)) == 1


def _outside(
    numbers: Sequence[float | None],
    columns: Sequence[Sequence[float | None]],
    *,
    least: int,
    steps: float,
) -> bool:
    """Whether every number lies outside of its column.

    Parameters
    ----------
    numbers : sequence of float
        The numbers of the first line.
    columns : sequence of sequences of float
        What is below each of them.
    least : int
        Columns with fewer numbers say nothing; more than half must say something.
    steps : float
        How far outside: so often the usual step from row to row. Where columns rise,
        as those of a log do, a row of data lies outside by one step.
    """
    looked = 0
    for number, column in zip(numbers, columns, strict=True):
        found = [n for n in column if n is not None]
        if len(found) < least:
            continue
        usual = [abs(b - a) for a, b in pairwise(found)]
        margin = steps * median(usual) if usual else 0.0
        if number is None or min(found) - margin <= number <= max(found) + margin:
            return False
        looked += 1
    return 2 * looked > len(numbers)
