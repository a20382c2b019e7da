"""CSV and TSV: cells stay as they were typed, and only gaps get new text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np

from ncarl.cli import records as text
from ncarl.cli.columns import Columns, parse_number
from ncarl.cli.files import ReadOptions, positions_of, refuse_options, shown
from ncarl.cli.records import Record, Text, unquoted
from ncarl.core.types import Array
from ncarl.progress import hundred_steps
from ncarl.sources.delimited import MISSING
from ncarl.storage import replacing

#: Rows that are read together.
ROWS = 2000


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
                        cells[self.used[j]] = f"{numbers[row, j]:.10g}"
                    reached(row + 1)
                row += is_row
                yield self.delimiter.join(cells) + record.end


def read(path: Path, options: ReadOptions) -> DelimitedTable:
    """The table in a CSV or TSV file."""
    kind = "TSV" if ".tsv" in path.name.lower()[-7:] else "CSV"
    refuse_options(options, kind, ("na", "labels", "header", "delimiter"))
    content = Text.of(path)
    if options.delimiter is not None:
        delimiter = text.check_delimiter(options.delimiter)
    else:
        delimiter = "\t" if kind == "TSV" else text.find_delimiter(content.top())
    missing = {*MISSING, *(token.strip() for token in options.na)}
    rows = (record for record, is_row in marked(content, delimiter, path) if is_row)
    first = next(rows)
    header = options.header
    if header is None:
        header = _names_columns(first, missing)
    names = _names(first if header else None, len(first.cells))
    kept = positions_of(options.labels, names)
    columns = Columns(names, header, missing, kept, content.most_lines)
    if not header:
        columns.add([first])
    with hundred_steps(options.progress, content.most_lines, "reading") as reached:
        while some := list(islice(rows, ROWS)):
            columns.add(some)
            reached(some[-1].line)
    if columns.rows == 0:
        raise ValueError(f"{str(path)!r} has a header and no row below it")
    values, used = columns.numbers(delimiter)
    notes = []
    if header and options.header is None:
        notes.append("the first line was read as the header (else: --no-header)")
    return DelimitedTable(
        values=values,
        columns=[names[j] for j in used],
        left_out=[name for j, name in enumerate(names) if j not in set(used)],
        path=path,
        text=content,
        delimiter=delimiter,
        header=header,
        used=used,
        notes=notes,
        progress=options.progress,
    )


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


def _names_columns(first: Record, missing: set[str]) -> bool:
    """Whether the first row holds a word that is no number."""
    cells = [unquoted(cell) for cell in first.cells]
    return any(c not in missing and parse_number(c) is None for c in cells)


def _names(header: Record | None, width: int) -> list[str]:
    """Names of the columns; their positions, from 1, where they have none."""
    if header is None:
        return [str(j + 1) for j in range(width)]
    named = [shown(unquoted(cell)) for cell in header.cells]
    return [name or str(j + 1) for j, name in enumerate(named)]
