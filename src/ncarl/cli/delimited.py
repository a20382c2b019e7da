"""CSV and TSV: cells stay as they were typed, and only gaps get new text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ncarl.cli import records as text
from ncarl.cli.files import ReadOptions, positions_of, refuse_options, shown
from ncarl.cli.records import Record, unquoted
from ncarl.core.types import Array
from ncarl.sources.delimited import MISSING
from ncarl.storage import replacing


@dataclass(frozen=True)
class DelimitedTable:
    """A text table as it was read; see `ncarl.cli.files.Table`.

    Attributes
    ----------
    prefix : str
        What stands before the first cell: a byte order mark, or nothing.
    records : list of Record
        All lines of the file, header and blank lines included.
    body : list of int
        Which of them are rows of ``values``.
    used : list of int
        Which of their cells are columns of ``values``.
    """

    values: Array
    columns: list[str]
    left_out: list[str]
    prefix: str
    delimiter: str
    records: list[Record]
    body: list[int]
    used: list[int]
    notes: list[str] = field(default_factory=list)
    mixed_units: bool = True

    def write(self, path: Path, numbers: Array, *, every: bool = False) -> None:
        """Write the file with numbers in its gaps, or with every number replaced."""
        with replacing(path) as temporary:
            text.write_text(temporary, path.name, self._lines(numbers, every))

    def _lines(self, numbers: Array, every: bool) -> Iterator[str]:
        """The lines of the file, one after the other."""
        yield self.prefix
        row_of = {position: i for i, position in enumerate(self.body)}
        for position, record in enumerate(self.records):
            cells = record.cells
            if position in row_of:
                i = row_of[position]
                gaps = np.isnan(self.values[i])
                changed = np.flatnonzero(gaps | every)
                cells = list(cells)
                for j in changed:
                    cells[self.used[j]] = f"{numbers[i, j]:.10g}"
            yield self.delimiter.join(cells) + record.end


def read(path: Path, options: ReadOptions) -> DelimitedTable:
    """The table in a CSV or TSV file."""
    kind = "TSV" if ".tsv" in path.name.lower()[-7:] else "CSV"
    refuse_options(options, kind, ("na", "labels", "header", "delimiter"))
    content = text.read_text(path)
    prefix = text.BOM if content.startswith(text.BOM) else ""
    content = content[len(prefix) :]
    if options.delimiter is not None:
        delimiter = text.check_delimiter(options.delimiter)
    else:
        delimiter = "\t" if kind == "TSV" else text.find_delimiter(content)
    found = text.split_records(content, delimiter)
    filled_in = [k for k, record in enumerate(found) if record.cells != [""]]
    if not filled_in:
        raise ValueError(f"{str(path)!r} is empty; it must hold at least one row")
    # In a table of one column a blank line is a missing cell, not a blank line.
    if len(found[filled_in[0]].cells) == 1:
        filled_in = list(range(len(found)))
    text.check_widths([found[k] for k in filled_in], path)
    missing = {*MISSING, *(token.strip() for token in options.na)}
    header, body = _header(found, filled_in, options.header, missing)
    if not body:
        raise ValueError(f"{str(path)!r} has a header and no row below it")
    names = _names(header, len(found[body[0]].cells))
    columns = _Columns([found[k] for k in body], names, header is not None, missing)
    values, used = columns.numbers(options.labels, delimiter)
    notes = []
    if header is not None and options.header is None:
        notes.append("the first line was read as the header (else: --no-header)")
    return DelimitedTable(
        values=values,
        columns=[names[j] for j in used],
        left_out=[name for j, name in enumerate(names) if j not in set(used)],
        prefix=prefix,
        delimiter=delimiter,
        records=found,
        body=body,
        used=used,
        notes=notes,
    )


def parse_number(cell: str) -> float | None:
    """The finite number that a cell says, or None.

    Examples
    --------
    >>> parse_number("1e3"), parse_number("1_000"), parse_number("inf")
    (1000.0, None, None)
    """
    try:
        number = float(cell)
    except ValueError:
        return None
    return number if math.isfinite(number) and "_" not in cell else None


def _header(
    found: list[Record], rows: list[int], wanted: bool | None, missing: set[str]
) -> tuple[Record | None, list[int]]:
    """The record that names the columns, if any, and the rows below it."""
    first = [unquoted(cell) for cell in found[rows[0]].cells]
    if wanted is None:
        wanted = any(c not in missing and parse_number(c) is None for c in first)
    return (found[rows[0]], rows[1:]) if wanted else (None, rows)


def _names(header: Record | None, width: int) -> list[str]:
    """Names of the columns; their positions, from 1, where they have none."""
    if header is None:
        return [str(j + 1) for j in range(width)]
    named = [shown(unquoted(cell)) for cell in header.cells]
    return [name or str(j + 1) for j, name in enumerate(named)]


@dataclass(frozen=True)
class _Columns:
    """The columns of a text table, to be told apart into numbers and labels."""

    rows: Sequence[Record]
    names: Sequence[str]
    named: bool
    missing: set[str]

    def numbers(self, labels: Sequence[str], delimiter: str) -> tuple[Array, list[int]]:
        """Numbers with NaN in the gaps, and the columns they came from."""
        kept = positions_of(labels, self.names)
        used, parts = [], []
        for j in range(len(self.names)):
            column = None if j in kept else self._column(j)
            if column is not None:
                used.append(j)
                parts.append(column)
        if not parts:
            raise ValueError(
                f"no column holds numbers (cells were separated at {delimiter!r}, and "
                "decimals need a point, not a comma); see --delimiter and --label"
            )
        return np.column_stack(parts), used

    def _column(self, j: int) -> Array | None:
        """One column as numbers; None if it holds text."""
        values = np.full(len(self.rows), np.nan)
        strange: list[tuple[int, str]] = []
        observed = 0
        for i, record in enumerate(self.rows):
            cell = unquoted(record.cells[j])
            if cell in self.missing:
                continue
            number = parse_number(cell)
            if number is None:
                strange.append((record.line, cell))
            else:
                values[i] = number
                observed += 1
        if len(strange) > observed:
            return None
        if strange:
            raise ValueError(self._complaint(j, observed, strange))
        # A separator at the end of every line makes a column of nothing.
        nameless = self.named and self.names[j] == str(j + 1)
        return None if nameless and observed == 0 else values

    def _complaint(
        self, j: int, observed: int, strange: Sequence[tuple[int, str]]
    ) -> str:
        """What is wrong with a column that is mostly numeric."""
        line, token = strange[0]
        name = self.names[j]
        return (
            f"column {name!r} holds {observed} numbers and {len(strange)} other "
            f"cells, the first at line {line}: {shown(token)!r}; correct it, call it "
            f"missing with --na {shown(token)!r}, or keep the column as it is with "
            f"--label {name!r}"
        )
