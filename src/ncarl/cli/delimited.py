"""CSV and TSV: cells stay as they were typed, and only gaps get new text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np

from ncarl.cli import records as text
from ncarl.cli.columns import Columns, parse_number
from ncarl.cli.files import ReadOptions, positions_of, refuse_options, shown
from ncarl.cli.heading import HEADED, HEADLESS, LOOKED_AT, names_columns
from ncarl.cli.records import Record, Text, unquoted
from ncarl.cli.sentinels import sentinels
from ncarl.core.types import Array
from ncarl.progress import hundred_steps
from ncarl.sources.delimited import MISSING
from ncarl.storage import replacing

#: Rows that are read together.
ROWS = 2000
#: Options that mean something for text.
KNOWN = ("na", "labels", "header", "delimiter", "decimal")


@dataclass(frozen=True)
class DelimitedTable:
    """A text table as it was read; see `ncarl.cli.files.Table`.

    Attributes
    ----------
    text : Text
        The file.
    header : bool
        Whether its first row names the columns.
    used : list of int
        Which cells of a row are columns of ``values``.
    decimal : {".", ","}
        What decimals follow.
    cautions : list of str
        Warnings about how it was read.
    left_gaps : int
        Missing cells in columns that turned out to be text, which stay as they are.
    progress : bool
        Whether writing shows a bar.
    """

    values: Array
    columns: list[str]
    left_out: list[str]
    path: Path
    text: Text
    delimiter: str
    header: bool
    used: list[int]
    notes: list[str] = field(default_factory=list)
    mixed_units: bool = True
    progress: bool = False
    decimal: str = "."
    cautions: list[str] = field(default_factory=list)
    left_gaps: int = 0

    def write(self, path: Path, numbers: Array, *, every: bool = False) -> None:
        """Write the file with numbers in its gaps, or with every number replaced."""
        with replacing(path) as temporary:
            text.write_text(temporary, path.name, self._lines(numbers, every))

    def _lines(self, numbers: Array, every: bool) -> Iterator[str]:
        """The lines of the file, one after the other."""
        yield self.text.prefix
        found = marked(self.text, self.delimiter, self.path)
        row, total = -1 if self.header else 0, len(self.values)
        with hundred_steps(self.progress, total, "writing") as reached:
            for record, is_row in found:
                cells = record.cells
                if is_row and row >= 0:
                    gaps = np.isnan(self.values[row])
                    for j in np.flatnonzero(gaps | every):
                        number = f"{numbers[row, j]:.10g}"
                        cells[self.used[j]] = number.replace(".", self.decimal)
                    reached(row + 1)
                row += is_row
                yield self.delimiter.join(cells) + record.end


def read(path: Path, options: ReadOptions) -> DelimitedTable:
    """The table in a CSV or TSV file."""
    kind = "TSV" if ".tsv" in path.name.lower()[-7:] else "CSV"
    refuse_options(options, kind, KNOWN)
    content = Text.of(path)
    delimiter, decimal = _signs(content, options, kind)
    missing = {*MISSING, *(token.strip() for token in options.na)}
    rows = (record for record, is_row in marked(content, delimiter, path) if is_row)
    first, top = next(rows), list(islice(rows, LOOKED_AT))
    header, notes = _heading(first, top, missing, decimal, options.header)
    names = _names(first if header else None, len(first.cells))
    kept = positions_of(options.labels, names)
    columns = Columns(names, header, missing, kept, content.most_lines, decimal)
    columns.add(top if header else [first, *top])
    with hundred_steps(options.progress, content.most_lines, "reading") as reached:
        while some := list(islice(rows, ROWS)):
            columns.add(some)
            reached(some[-1].line)
    if columns.rows == 0:
        raise ValueError(f"{str(path)!r} has a header and no row below it")
    values, used = columns.numbers(delimiter)
    others = sorted({*range(len(names))} - {*used})
    names_used = [names[j] for j in used]
    return DelimitedTable(
        values=values,
        columns=names_used,
        left_out=[names[j] for j in others],
        path=path,
        text=content,
        delimiter=delimiter,
        header=header,
        used=used,
        notes=notes,
        progress=options.progress,
        decimal=decimal,
        cautions=[*columns.cautions(delimiter), *sentinels(values, names_used)],
        left_gaps=sum(columns.gaps(j) for j in others if columns.is_text(j)),
    )


def _heading(
    first: Record,
    below: Sequence[Record],
    missing: set[str],
    decimal: str,
    given: bool | None,
) -> tuple[bool, list[str]]:
    """Whether the first line is a header, and what to say if that was found out."""
    if given is not None:
        return given, []
    if names_columns(first, below, missing, decimal):
        return True, [f"{HEADED} (else: --no-header)"]
    return False, [f"{HEADLESS} (else: --header)"]


def _signs(content: Text, options: ReadOptions, kind: str) -> tuple[str, str]:
    """What separates cells, and what decimals follow."""
    decimal = text.check_decimal(options.decimal)
    if options.delimiter is not None:
        delimiter = text.check_delimiter(options.delimiter)
    elif kind == "TSV":
        delimiter = "\t"
    else:
        top = content.top()
        delimiter = text.find_delimiter(top, decimal)
        # A line that is one number is a table of one column, however it is written.
        if delimiter == decimal and (
            decimal not in top or parse_number(unquoted(top), decimal) is not None
        ):
            delimiter = ";"
    text.check_signs(delimiter, decimal, options.delimiter)
    return delimiter, decimal


def marked(content: Text, delimiter: str, path: Path) -> Iterator[tuple[Record, bool]]:
    """Every record of a text, and whether it is a row of the table.

    Blank lines are none, but in a table of one column, where they are missing cells.
    """
    found = content.records(delimiter)
    blank, first = list[Record](), None
    for record in found:
        if record.cells != [""]:
            first = record
            break
        blank.append(record)
    if first is None:
        raise ValueError(f"{str(path)!r} is empty; it must hold at least one row")
    single = len(first.cells) == 1
    yield from ((record, single) for record in blank)
    yield first, True
    for record in found:
        is_row = single or record.cells != [""]
        if is_row:
            text.check_width(record, first, path)
        yield record, is_row


def _names(header: Record | None, width: int) -> list[str]:
    """Names of the columns; their positions, from 1, where they have none."""
    if header is None:
        return [str(j + 1) for j in range(width)]
    named = [shown(unquoted(cell)) for cell in header.cells]
    return [name or str(j + 1) for j, name in enumerate(named)]
