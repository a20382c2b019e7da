"""CSV and TSV files: read in chunks of rows or as a whole table, and written.

`delimited_rows` and `delimited_sink` stream rows of numbers through Arrow. `read_table`
keeps the text of every cell, so that `DelimitedTable.write` changes nothing but what it
fills in. Both take the first line for a header by the same rule, `is_header`.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice, pairwise
from pathlib import Path
from statistics import median
from typing import IO, Any, BinaryIO, cast

import numpy as np

from ncarl.core.types import Array
from ncarl.exceptions import BrokenFileError
from ncarl.io.base import (
    FileSnapshot,
    Sink,
    SinkSpec,
    import_optional,
    observations_from_dense,
    resolve_rows_per_chunk,
)
from ncarl.io.files import atomic_write
from ncarl.io.tables import (
    ReadOptions,
    arrow_values,
    column_positions,
    missing_code_warnings,
    rebatch,
    reject_unsupported_options,
    select_column_names,
)
from ncarl.observations import Observations
from ncarl.progress import percent_bar
from ncarl.text import MAX_LISTED, join_names, to_printable

BOM = "\ufeff"
LINE_BREAK = re.compile(r"\r\n|\n|\r")
DELIMITERS = (",", ";", "\t")
#: Cells that mean missing.
MISSING_TOKENS = ("", "NA", "N/A", "NaN", "nan", "null", "None", "NULL", "?", "-")
#: Options of `read_table` that apply to text.
TEXT_OPTIONS = ("na", "labels", "header", "delimiter", "decimal")
#: Cells that a person takes for numbers and `parse_number` does not: with the other
#: decimal sign, or percentages.
DECIMAL_PATTERNS = {mark: re.compile(rf"[-+]?\d+[{mark}]\d+") for mark in ".,"}
PERCENT_PATTERN = re.compile(r"[-+]?\d+([.,]\d+)?\s?%")
#: Non-numeric cells of a column that are matched against these patterns.
MAX_INSPECTED_CELLS = 1000

#: What the user is told about the first line.
HEADER_NOTE = "the first line was read as the header"
NO_HEADER_NOTE = "no line was read as the header"
#: Rows below the first line that `is_header` looks at.
MAX_INSPECTED_ROWS = 50
#: Lines that are read to find them.
MAX_INSPECTED_LINES = 1000
#: This many whole numbers in arithmetic progression are hardly ever data.
LONG_RUN = 5
#: Fewer numbers than this are a row of data as easily as a header, and fewer rows than
#: this say nothing about a column.
MIN_RUN = 3

#: Arrow parses blocks of this many bytes, and of at least this many lines as long as
#: the longest of the first ones.
BLOCK_BYTES, MIN_BLOCK_LINES = 1 << 20, 64
N_MEASURED_LINES = 20
#: `DelimitedText` decodes pieces of about this many bytes.
PIECE_BYTES = 1 << 18
#: Rows that `read_table` parses together.
ROWS_PER_BATCH = 2000


@dataclass(frozen=True)
class TextRecord:
    """One line of a table (several, if a quoted cell holds line breaks)."""

    cells: list[str]  # as typed, quotes included
    line_end: str  # the line break after them; empty at the end of the file
    line: int  # number of the first line in the file, from 1


def parse_quoted_records(text: str, delimiter: str) -> Iterator[TextRecord]:
    r"""Split text into records; cells may be quoted.

    Examples
    --------
    >>> [record.cells for record in parse_quoted_records('a,"b,c"\n1,2', ",")]
    [['a', '"b,c"'], ['1', '2']]
    """
    mark = re.escape(delimiter)
    # A quoted cell must be followed by a separator; otherwise its quotes are text.
    cell = re.compile(
        rf'("(?:[^"]|"")*+"|[^{mark}\r\n]*)({mark}|\r\n|\n|\r|\Z)', re.DOTALL
    )
    cells, line, first, position = list[str](), 1, 1, 0
    while position < len(text) or cells:
        match = cell.match(text, position)
        assert match is not None
        cells.append(match[1])
        position = match.end()
        line += len(LINE_BREAK.findall(match[0]))
        if match[2] != delimiter:
            yield TextRecord(cells, match[2], first)
            cells, first = [], line


def parse_plain_records(
    text: str, delimiter: str, first_line: int = 1
) -> Iterator[TextRecord]:
    """Split text without quotes into records, its first line being ``first_line``."""
    pieces = re.split(r"(\r\n|\n|\r)", text)
    if pieces[-1] == "":
        pieces.pop()
    ends = [*pieces[1::2], ""]
    for number, (cells, end) in enumerate(
        zip(pieces[::2], ends, strict=False), first_line
    ):
        yield TextRecord(cells.split(delimiter), end, number)


def _iter_records(lines: Iterable[str], delimiter: str) -> Iterator[TextRecord]:
    """Records of lines as they are read; a record ends where its quotes are balanced.

    Numbers of lines are not counted.
    """
    waiting, balanced = list[str](), True
    for line in lines:
        waiting.append(line)
        balanced ^= line.count('"') % 2 == 1
        if balanced:
            yield from _parse_records("".join(waiting), delimiter)
            waiting.clear()
    yield from _parse_records("".join(waiting), delimiter)


def _parse_records(text: str, delimiter: str) -> Iterator[TextRecord]:
    parse = parse_quoted_records if '"' in text else parse_plain_records
    return parse(text, delimiter)


def unquote(cell: str) -> str:
    """Content of a cell without the quotes and blanks around it.

    Examples
    --------
    >>> unquote(' "a ""b"" c" ')
    'a "b" c'
    """
    inner = cell.strip()
    if len(inner) >= 2 and inner[0] == inner[-1] == '"':
        inner = inner[1:-1].replace('""', '"').strip()
    return inner


def parse_number(cell: str, decimal: str = ".") -> float | None:
    """Finite number in a cell; None if it holds anything else.

    Examples
    --------
    >>> parse_number("1e3"), parse_number("1_000"), parse_number("inf")
    (1000.0, None, None)
    >>> parse_number("1,5", ","), parse_number("1.5", ","), parse_number("1.000,5", ",")
    (1.5, None, None)
    """
    if decimal != ".":
        if "." in cell:
            return None
        cell = cell.replace(decimal, ".")
    try:
        number = float(cell)
    except ValueError:
        return None
    return number if math.isfinite(number) and "_" not in cell else None


def parse_plain_numbers(cells: Sequence[str], decimal: str = ".") -> Array | None:
    """Numbers of cells, NaN where empty; None if a cell is anything else.

    Examples
    --------
    >>> parse_plain_numbers(["1", "", "2.5"])
    array([1. , nan, 2.5])
    >>> print(parse_plain_numbers(["1", "NA"]), parse_plain_numbers(["1_0"]))
    None None
    >>> parse_plain_numbers(["1", "", "2,5"], ",")
    array([1. , nan, 2.5])
    """
    joined = "".join(cells)
    if decimal != ".":
        if "." in joined:
            return None
        cells = [cell.replace(decimal, ".") for cell in cells]
    try:
        numbers = np.array([float(cell) if cell else math.nan for cell in cells])
    except ValueError:
        return None
    filled = len(cells) - cells.count("")
    if np.count_nonzero(np.isfinite(numbers)) != filled or "_" in joined:
        return None  # inf, nan and 1_000 are numbers to Python only
    return numbers


def find_delimiter(line: str, decimal: str = ".") -> str:
    """Most frequent delimiter of the first line; a comma if it has none.

    If the comma is the decimal sign, it is the delimiter only if there is no other.
    """
    bare = re.sub(r'"[^"]*"', "", line)
    others = [mark for mark in DELIMITERS if mark != decimal and mark in bare]
    return max(others or DELIMITERS, key=bare.count)


def is_header(
    first: TextRecord,
    below: Iterable[TextRecord],
    missing: set[str],
    decimal: str = ".",
) -> bool:
    """Whether the first line of a table names its columns.

    It does if one of its cells is a word; if its numbers are quoted and those of the
    next row are not; and if it is a run of whole numbers, such as years, that is unlike
    the values below.

    Parameters
    ----------
    first : TextRecord
        The first line.
    below : iterable of TextRecord
        Rows below it, of as many cells; consumed only if the first line leaves it open.
    missing : set of str
        Cells that mean missing.
    decimal : {".", ","}
        Decimal sign.
    """
    cells = [unquote(cell) for cell in first.cells]
    numbers = [None if c in missing else parse_number(c, decimal) for c in cells]
    if any(n is None and c not in missing for n, c in zip(numbers, cells, strict=True)):
        return True
    quoted, has_corner = _all_quoted(first), numbers[0] is None
    if has_corner:
        run = _is_monotone(numbers[1:])
    else:  # the first number may be the corner above the names of rows
        run = _is_arithmetic(numbers) or _is_arithmetic(numbers[1:])
    if not quoted and not run:
        return False
    rows = list(below)
    if quoted and rows and not any('"' in cell for cell in rows[0].cells):
        return True
    if not run:
        return False
    columns = [_column_values(rows, j, missing, decimal) for j in range(len(cells))]
    if has_corner:
        return _is_run_after_corner(numbers[1:], columns)
    return _all_outside_range(numbers, columns, min_count=MIN_RUN, margin_steps=2.0)


def _all_quoted(record: TextRecord) -> bool:
    """Whether all cells that hold anything are quoted."""
    filled = [cell.strip() for cell in record.cells if cell.strip()]
    return bool(filled) and all(cell.startswith('"') for cell in filled)


def _column_values(
    rows: Sequence[TextRecord], j: int, missing: set[str], decimal: str
) -> list[float | None]:
    """Numbers of some rows in column ``j``; None for a word, missing cells left out."""
    cells = [unquote(row.cells[j]) for row in rows]
    return [parse_number(cell, decimal) for cell in cells if cell not in missing]


def _is_run_after_corner(
    numbers: Sequence[float | None], columns: Sequence[Sequence[float | None]]
) -> bool:
    """Whether a monotone run of numbers after an empty first cell is a header.

    A row of data may begin with a missing cell too, so a short run needs more evidence:
    row names or row numbers in the first column, or numbers outside of all columns.
    """
    row_names = columns[0]
    if None in row_names or (
        len(numbers) >= LONG_RUN and len(_integer_differences(numbers)) == 1
    ):
        return True
    return _integer_differences(row_names) == {1.0} or _all_outside_range(
        numbers, columns[1:], min_count=1, margin_steps=0.0
    )


def _integer_differences(numbers: Sequence[float | None]) -> set[float]:
    """Steps between whole numbers; empty for other numbers and for fewer than two."""
    whole = [n for n in numbers if n is not None and n.is_integer()]
    return {b - a for a, b in pairwise(whole)} if len(whole) == len(numbers) else set()


def _is_monotone(numbers: Sequence[float | None]) -> bool:
    """Whether numbers are whole and increase, or decrease, strictly; at least two."""
    steps = _integer_differences(numbers)
    return bool(steps) and (min(steps) > 0.0 or max(steps) < 0.0)


def _is_arithmetic(numbers: Sequence[float | None]) -> bool:
    """Whether whole numbers form an arithmetic progression; at least `MIN_RUN`."""
    return (
        len(numbers) >= MIN_RUN
        and _is_monotone(numbers)
        and len(_integer_differences(numbers)) == 1
    )


def _all_outside_range(
    numbers: Sequence[float | None],
    columns: Sequence[Sequence[float | None]],
    *,
    min_count: int,
    margin_steps: float,
) -> bool:
    """Whether every number lies outside of the range of its column.

    Parameters
    ----------
    numbers : sequence of float
        The numbers of the first line.
    columns : sequence of sequences of float
        Values below each of them.
    min_count : int
        Columns with fewer values are skipped; more than half must have enough.
    margin_steps : float
        Distance to the range in median steps from row to row. Where columns increase,
        as those of a log do, a row of data lies outside by one step.
    """
    n_checked = 0
    for number, column in zip(numbers, columns, strict=True):
        values = [n for n in column if n is not None]
        if len(values) < min_count:
            continue
        steps = [abs(b - a) for a, b in pairwise(values)]
        margin = margin_steps * median(steps) if steps else 0.0
        if number is None or min(values) - margin <= number <= max(values) + margin:
            return False
        n_checked += 1
    return 2 * n_checked > len(numbers)


def delimited_rows(
    path: str | os.PathLike[str],
    columns: Sequence[str] | None = None,
    rows_per_chunk: int | None = None,
) -> DelimitedRows:
    """Open a CSV or TSV file, which may be compressed with gzip, as a source of rows.

    Whether the first line names the columns is decided by `is_header`, as for whole
    tables. Empty cells, NA and the like are missing.

    Parameters
    ----------
    path : path
        The file.
    columns : sequence of str, optional
        Which columns to read; by default all.
    rows_per_chunk : int, optional
        Rows in a chunk.
    """
    file = FileSnapshot.from_path(path)
    try:
        dialect = TextDialect.sniff(file.path)
    except (EOFError, OSError, zlib.error, csv.Error) as error:
        raise BrokenFileError(f"{file} cannot be read as text: {error}") from error
    if dialect.names is None and columns is not None:
        raise ValueError(
            f"columns needs a first line with names, and {file} has none; add it"
        )
    used = tuple(range(dialect.n_cells))
    if dialect.names is not None:
        selected = select_column_names(dialect.names, columns, str(file))
        positions = {name: j for j, name in enumerate(dialect.names)}
        used = tuple(positions[name] for name in selected)
    return DelimitedRows(
        file, dialect, used, resolve_rows_per_chunk(rows_per_chunk, len(used))
    )


@dataclass(frozen=True)
class DelimitedRows:
    """Rows of a CSV or TSV file, as a `RowSource`."""

    file: FileSnapshot
    dialect: TextDialect
    column_indices: tuple[int, ...]  # the columns that are read
    rows_per_chunk: int

    @property
    def n_rows(self) -> None:
        """None: lines are not counted beforehand."""
        return None

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return len(self.column_indices)

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the columns, if the first line has them."""
        names = self.dialect.names
        return None if names is None else tuple(names[j] for j in self.column_indices)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Float type of results."""
        return np.dtype(np.float64)

    def __iter__(self) -> Iterator[Observations]:
        """Chunks of rows in order."""
        first = 0
        with self.file.ensure_unchanged():
            for values in rebatch(self._iter_arrays(), self.rows_per_chunk):
                yield observations_from_dense(values, first, str(self.file))
                first += len(values)
        if first == 0:
            raise ValueError(f"{self.file} has a header and no row below it")

    def chunk_loaders(self) -> None:
        """None: lines can only be read in turn."""
        return

    def _iter_arrays(self) -> Iterator[Array]:
        """The numbers of the file, one batch of Arrow after the other."""
        used = [str(j) for j in self.column_indices]
        try:
            with self.dialect.open_reader(self.file.path, used) as batches:
                for batch in batches:
                    yield arrow_values(batch, used)
        except (ValueError, KeyError) as error:
            raise ValueError(
                self._describe_first_error() or f"{self.file}: {error}"
            ) from error
        except OSError as error:
            raise BrokenFileError(
                f"{self.file} cannot be read to its end: {error}"
            ) from error

    def _describe_first_error(self) -> str | None:
        """What is wrong with the first bad line, found by reading line by line."""
        dialect = self.dialect
        for line, cells in dialect.iter_cells(self.file.path):
            if len(cells) != dialect.n_cells:
                return (
                    f"{self.file} is ragged: line {line} has {len(cells)} cells, the "
                    f"first line has {dialect.n_cells}; add or remove cells"
                )
            for j in self.column_indices:
                cell = cells[j].strip()
                if cell not in MISSING_TOKENS and parse_number(cell) is None:
                    name = dialect.names[j] if dialect.names else str(j)
                    return (
                        f"{self.file} must hold numbers, got {cell[:40]!r} in column "
                        f"{name!r}, line {line}; correct it (a missing cell is empty "
                        "or NA), or choose other columns with columns=[...]"
                    )
        return None


@dataclass(frozen=True)
class TextDialect:
    """Layout of a text file, as far as Arrow has to be told."""

    delimiter: str
    n_cells: int  # cells in a line
    names: tuple[str, ...] | None  # names of the columns, if the first line is a header
    skip_rows: int  # blank lines before the first row
    block_bytes: int  # bytes that are parsed together

    @classmethod
    def sniff(cls, path: Path) -> TextDialect:
        """Find the dialect of a file from its first lines."""
        with open_text(path) as stream:
            head = list(islice(stream, N_MEASURED_LINES))
            filled = (k for k, line in enumerate(head) if line.strip("\r\n"))
            n_blank = next(filled, None)
            if n_blank is None:
                raise ValueError(f"{str(path)!r} is empty; it must begin with a row")
            lines = head[n_blank:]
            tabs = ".tsv" in path.name.lower()[-7:]
            delimiter = "\t" if tabs else find_delimiter(lines[0])
            cells = next(csv.reader(lines, delimiter=delimiter))
            # In a table of one column a blank line is a missing cell.
            skipped = 0 if len(cells) == 1 else n_blank
            top = islice(chain(head[skipped:], stream), MAX_INSPECTED_LINES)
            records = _iter_records(top, delimiter)
            first = next(records)
            alike = (r for r in records if len(r.cells) == len(first.cells))
            below = islice(alike, MAX_INSPECTED_ROWS)
            has_header = is_header(first, below, set(MISSING_TOKENS))
        names = _complete_names(cells) if has_header else None
        longest = max(len(line.encode("utf-8", "replace")) for line in lines)
        block = max(BLOCK_BYTES, MIN_BLOCK_LINES * longest)
        return cls(delimiter, len(cells), names, skipped, block)

    def open_reader(self, path: Path, columns: list[str]) -> Any:
        """Open a file as Arrow batches of the columns at some positions."""
        pa = import_optional("pyarrow", "CSV files", "cli")
        pc = import_optional("pyarrow.csv", "CSV files", "cli")
        # Arrow strips blanks beside a number, but not beside a word.
        words = [f"{a}{word}{b}" for word in MISSING_TOKENS for a in " _" for b in " _"]
        return pc.open_csv(
            path,
            read_options=pc.ReadOptions(
                use_threads=False,
                block_size=self.block_bytes,
                skip_rows=self.skip_rows,
                # Names may be repeated or empty; positions are not.
                column_names=[str(j) for j in range(self.n_cells)],
                skip_rows_after_names=int(self.names is not None),
            ),
            parse_options=pc.ParseOptions(
                delimiter=self.delimiter,
                newlines_in_values=True,
                ignore_empty_lines=self.n_cells > 1,
            ),
            convert_options=pc.ConvertOptions(
                include_columns=columns,
                column_types={name: pa.float64() for name in columns},
                null_values=[word.replace("_", "") for word in words],
            ),
        )

    def iter_cells(self, path: Path) -> Iterator[tuple[int, list[str]]]:
        """Rows below the header as (line number from 1, cells)."""
        with open_text(path) as stream:
            reader = csv.reader(stream, delimiter=self.delimiter)
            header = self.names is not None
            for cells in reader:
                if cells and header:
                    header = False
                elif cells or self.n_cells == 1:
                    yield reader.line_num, cells or [""]


def _complete_names(cells: Sequence[str]) -> tuple[str, ...]:
    """Names of a header; columns without one get their position from 1.

    Examples
    --------
    >>> _complete_names(["a", " "]), _complete_names(["", "0", "1"])
    (('a', '2'), ('column 1', '0', '1'))
    """
    names = [cell.strip() for cell in cells]
    taken = set(names)
    return tuple(
        name or (f"column {j}" if str(j) in taken else str(j))
        for j, name in enumerate(names, 1)
    )


def open_text(path: Path) -> IO[str]:
    """Open a file as text, decompressed if its name ends in .gz."""
    packed = path.name.lower().endswith(".gz")
    raw: Any = gzip.GzipFile(path) if packed else path.open("rb")
    return io.TextIOWrapper(
        raw, encoding="utf-8-sig", errors="surrogateescape", newline=""
    )


@contextmanager
def delimited_sink(path: Path, spec: SinkSpec) -> Iterator[Sink]:
    """Write a CSV or TSV file, which appears when the block succeeds.

    Columns without names get no header. NaN is written as an empty cell.
    """
    name = path.name.lower()
    delimiter = "\t" if ".tsv" in name[-7:] else ","
    with atomic_write(path) as temporary, ExitStack() as stack:
        stream: Any = stack.enter_context(temporary.open("wb"))
        if name.endswith(".gz"):
            # No time stamp, so that equal tables give equal files.
            packed = gzip.GzipFile("", "wb", fileobj=stream, mtime=0)
            stream = stack.enter_context(packed)
        sink = _DelimitedSink(cast(BinaryIO, stream), delimiter, spec)
        if spec.names is not None:
            sink.write_header(spec.names)
        yield sink
        spec.check_row_count(sink.n_written)


@dataclass
class _DelimitedSink:
    """Writes rows as lines of text."""

    stream: BinaryIO
    delimiter: str
    spec: SinkSpec
    n_written: int = 0

    def write_header(self, names: tuple[str, ...]) -> None:
        """Write the header.

        Names are quoted if all of them look like values, or one holds a delimiter.
        """
        all_values = all(_looks_like_value(name) for name in names)
        marks = any(mark in name for name in names for mark in DELIMITERS)
        quoting = csv.QUOTE_ALL if all_values or marks else csv.QUOTE_MINIMAL
        text = io.StringIO()
        options: Any = {"delimiter": self.delimiter, "quoting": quoting}
        csv.writer(text, lineterminator="\n", **options).writerow(names)
        self.stream.write(text.getvalue().encode("utf-8", "surrogateescape"))

    def write(self, rows: Array) -> None:
        """Add some rows."""
        pa = import_optional("pyarrow", "CSV files", "cli")
        pc = import_optional("pyarrow.csv", "CSV files", "cli")
        # Written as float64, a float32 is read back as the same number whatever the
        # type of the reader.
        values = self.spec.validate_rows(rows).astype(np.float64, copy=False)
        columns = [
            pa.array(np.ascontiguousarray(column), from_pandas=True)
            for column in values.T
        ]
        labels = [str(j) for j in range(self.spec.n_columns)]
        write_options = pc.WriteOptions(include_header=False, delimiter=self.delimiter)
        table = pa.Table.from_arrays(columns, labels)
        pc.write_csv(table, self.stream, write_options)
        self.n_written += len(values)


def _looks_like_value(name: str) -> bool:
    return name.strip() in MISSING_TOKENS or parse_number(name) is not None


def read_table(path: Path, options: ReadOptions) -> DelimitedTable:
    """Read a CSV or TSV file as a table."""
    kind = "TSV" if ".tsv" in path.name.lower()[-7:] else "CSV"
    reject_unsupported_options(options, kind, TEXT_OPTIONS)
    content = DelimitedText.from_path(path)
    delimiter, decimal = _resolve_separators(content, options, kind)
    missing = {*MISSING_TOKENS, *(token.strip() for token in options.na)}
    rows = (
        record
        for record, is_row in classify_records(content, delimiter, path)
        if is_row
    )
    first, top = next(rows), list(islice(rows, MAX_INSPECTED_ROWS))
    header, notes = _resolve_header(first, top, missing, decimal, options.header)
    names = _column_names(first if header else None, len(first.cells))
    kept = column_positions(options.labels, names)
    columns = ColumnParser(names, header, missing, kept, content.max_lines, decimal)
    columns.add_records(top if header else [first, *top])
    with percent_bar(options.progress, content.max_lines, "reading") as reached:
        while some := list(islice(rows, ROWS_PER_BATCH)):
            columns.add_records(some)
            reached(some[-1].line)
    if columns.n_rows == 0:
        raise ValueError(f"{str(path)!r} has a header and no row below it")
    values, used = columns.numeric_columns(delimiter)
    others = sorted({*range(len(names))} - {*used})
    names_used = [names[j] for j in used]
    return DelimitedTable(
        values=values,
        columns=names_used,
        unused_columns=[names[j] for j in others],
        path=path,
        text=content,
        delimiter=delimiter,
        header=header,
        column_indices=used,
        notes=notes,
        progress=options.progress,
        decimal=decimal,
        read_warnings=[
            *columns.warning_messages(delimiter),
            *missing_code_warnings(values, names_used),
        ],
        n_missing_in_text=sum(
            columns.n_missing(j) for j in others if columns.is_text(j)
        ),
    )


def _resolve_header(
    first: TextRecord,
    below: Sequence[TextRecord],
    missing: set[str],
    decimal: str,
    option: bool | None,
) -> tuple[bool, list[str]]:
    """Whether the first line is a header, and a note if no option says so."""
    if option is not None:
        return option, []
    if is_header(first, below, missing, decimal):
        return True, [f"{HEADER_NOTE} (else: --no-header)"]
    return False, [f"{NO_HEADER_NOTE} (else: --header)"]


def _resolve_separators(
    content: DelimitedText, options: ReadOptions, kind: str
) -> tuple[str, str]:
    """Delimiter and decimal sign, from the options or the first line."""
    decimal = check_decimal(options.decimal)
    if options.delimiter is not None:
        delimiter = check_delimiter(options.delimiter)
    elif kind == "TSV":
        delimiter = "\t"
    else:
        top = content.first_line()
        delimiter = find_delimiter(top, decimal)
        # A line that is one number is a table of one column, however it is written.
        if delimiter == decimal and (
            decimal not in top or parse_number(unquote(top), decimal) is not None
        ):
            delimiter = ";"
    check_delimiter_not_decimal(delimiter, decimal, options.delimiter)
    return delimiter, decimal


def _column_names(header: TextRecord | None, width: int) -> list[str]:
    """Names of the columns; positions from 1 for those without a name."""
    if header is None:
        return [str(j + 1) for j in range(width)]
    named = [to_printable(unquote(cell)) for cell in header.cells]
    return [name or str(j + 1) for j, name in enumerate(named)]


@dataclass(frozen=True)
class DelimitedTable:
    """A text table with the text of all its cells; a `TableFile`."""

    values: Array
    columns: list[str]
    unused_columns: list[str]
    path: Path
    text: DelimitedText
    delimiter: str
    header: bool
    column_indices: list[int]  # the cells of a row that are columns of ``values``
    notes: list[str] = field(default_factory=list)
    mixed_units: bool = True
    progress: bool = False  # whether writing shows a bar
    decimal: str = "."
    read_warnings: list[str] = field(default_factory=list)
    n_missing_in_text: int = 0

    def write(
        self, path: Path, numbers: Array, *, replace_observed: bool = False
    ) -> None:
        """Write the table with its missing, or all, numbers replaced."""
        with atomic_write(path) as temporary:
            write_text(temporary, path.name, self._lines(numbers, replace_observed))

    def _lines(self, numbers: Array, replace_observed: bool) -> Iterator[str]:
        """Lines of the file to write."""
        yield self.text.bom
        records = classify_records(self.text, self.delimiter, self.path)
        row, total = -1 if self.header else 0, len(self.values)
        with percent_bar(self.progress, total, "writing") as reached:
            for record, is_row in records:
                cells = record.cells
                if is_row and row >= 0:
                    missing = np.isnan(self.values[row])
                    for j in np.flatnonzero(missing | replace_observed):
                        number = f"{numbers[row, j]:.10g}"
                        cells[self.column_indices[j]] = number.replace(
                            ".", self.decimal
                        )
                    reached(row + 1)
                row += is_row
                yield self.delimiter.join(cells) + record.line_end


@dataclass(frozen=True)
class DelimitedText:
    """The bytes of a text file, split into records anew by every `iter_records`."""

    bom: str  # byte order mark, or empty
    data: bytes  # what follows it

    @classmethod
    def from_path(cls, path: Path) -> DelimitedText:
        """Read a file, decompressed if its name ends in .gz.

        Raises
        ------
        ValueError
            If the file is not text, or a damaged archive.
        """
        data = path.read_bytes()
        if path.name.lower().endswith(".gz"):
            try:
                data = gzip.decompress(data)
            except (EOFError, gzip.BadGzipFile, zlib.error) as error:
                raise ValueError(
                    f"{str(path)!r} is not a whole gzip file: {error}"
                ) from None
        if b"\0" in data:
            raise ValueError(
                f"{str(path)!r} holds zero bytes, so it is no UTF-8 text; save it as "
                "UTF-8"
            )
        mark = BOM.encode()
        if data.startswith(mark):
            return cls(BOM, data[len(mark) :])
        return cls("", data)

    @property
    def max_lines(self) -> int:
        """Upper bound on the number of lines."""
        return self.data.count(b"\n") + self.data.count(b"\r") + 1

    def first_line(self) -> str:
        """The first line that is not blank."""
        start = len(self.data) - len(self.data.lstrip(b"\r\n"))
        ends = (self.data.find(mark, start) for mark in (b"\n", b"\r"))
        end = min((end for end in ends if end >= 0), default=len(self.data))
        return _decode(self.data[start:end])

    def iter_records(self, delimiter: str) -> Iterator[TextRecord]:
        """Iterate over the records of the text."""
        if b'"' in self.data:
            yield from parse_quoted_records(_decode(self.data), delimiter)
            return
        line = 1
        for piece in self._pieces():
            for record in parse_plain_records(_decode(piece), delimiter, line):
                yield record
                line = record.line + 1

    def _pieces(self) -> Iterator[bytes]:
        """Parts of the text that end at line breaks."""
        first = 0
        while first < len(self.data):
            end = self.data.find(b"\n", first + PIECE_BYTES)
            last = len(self.data) if end < 0 else end + 1
            yield self.data[first:last]
            first = last


def _decode(data: bytes) -> str:
    """Decode UTF-8; other bytes survive a round trip."""
    return data.decode("utf-8", "surrogateescape")


def classify_records(
    content: DelimitedText, delimiter: str, path: Path
) -> Iterator[tuple[TextRecord, bool]]:
    """Records of a text, each with whether it is a row of the table.

    Blank lines are not, except in a table of one column, where they are missing cells.
    """
    records = content.iter_records(delimiter)
    blank, first = list[TextRecord](), None
    for record in records:
        if record.cells != [""]:
            first = record
            break
        blank.append(record)
    if first is None:
        raise ValueError(f"{str(path)!r} is empty; it must hold at least one row")
    single = len(first.cells) == 1
    yield from ((record, single) for record in blank)
    yield first, True
    for record in records:
        is_row = single or record.cells != [""]
        if is_row:
            check_width(record, first, path)
        yield record, is_row


def write_text(path: Path, name: str, text: Iterator[str]) -> None:
    """Write pieces of text to ``path``, compressed if ``name`` ends in .gz."""
    # No time stamp, so that equal tables give equal files.
    with path.open("wb") as raw:
        if name.lower().endswith(".gz"):
            with gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as stream:
                stream.writelines(_encode_pieces(text))
        else:
            raw.writelines(_encode_pieces(text))


def _encode_pieces(text: Iterator[str]) -> Iterator[bytes]:
    return (piece.encode("utf-8", "surrogateescape") for piece in text)


def check_delimiter(option: str) -> str:
    """Check a delimiter given by the user: one character, or "tab"."""
    delimiter = "\t" if option.lower() in ("tab", "\\t") else option
    if len(delimiter) != 1 or delimiter in '"\r\n':
        raise ValueError(
            f"--delimiter must be one character or 'tab', and no quote, got {option!r}"
        )
    return delimiter


def check_decimal(option: str | None) -> str:
    """Check a decimal sign given by the user; None is a point."""
    if option not in (None, ".", ","):
        raise ValueError(f"--decimal must be '.' or ',', got {option!r}")
    return option or "."


def check_delimiter_not_decimal(
    delimiter: str, decimal: str, delimiter_option: str | None
) -> None:
    """Raise if delimiter and decimal sign are the same."""
    if delimiter != decimal:
        return
    origin = "" if delimiter_option is not None else ", by its first line"
    raise ValueError(
        f"--decimal and --delimiter must differ, and both are {decimal!r} "
        f"here{origin}; name another --delimiter or --decimal"
    )


def check_width(record: TextRecord, first: TextRecord, path: Path) -> None:
    """Raise if a record has fewer or more cells than the first one."""
    if len(record.cells) != len(first.cells):
        hint = ""
        if first.cells[0].lstrip().startswith("#"):
            hint = f"; line {first.line} looks like a comment: remove it"
        raise ValueError(
            f"{str(path)!r} is ragged: line {record.line} has {len(record.cells)} "
            f"cells, line {first.line} has {len(first.cells)}; add or remove cells, or "
            f"name the separator with --delimiter{hint}"
        )


class ColumnParser:
    """Parses the cells of a text table into numbers, NaN where they are missing.

    Parameters
    ----------
    names : sequence of str
        Names of the columns.
    has_header : bool
        Whether the names come from the file.
    missing_tokens : set of str
        Cells that mean missing.
    skipped_indices : set of int
        Columns that are not parsed.
    max_rows : int
        Rows to allocate; pages that are never written take no memory.
    decimal : {".", ","}
        Decimal sign.
    """

    def __init__(
        self,
        names: Sequence[str],
        has_header: bool,
        missing_tokens: set[str],
        skipped_indices: set[int],
        max_rows: int,
        decimal: str = ".",
    ) -> None:
        self.decimal, self.other_decimal = decimal, "." if decimal == "," else ","
        self.names, self.has_header = names, has_header
        self.missing_tokens = missing_tokens
        self.parsed_indices = [j for j in range(len(names)) if j not in skipped_indices]
        self.values = np.empty((max_rows, len(names)))
        # If a number may mean missing, every cell has to be looked at.
        self.fast_path = all(
            parse_number(word, decimal) is None for word in missing_tokens
        )
        self.n_rows = 0
        self.counts = [_ColumnCounts() for _ in names]

    def add_records(self, records: Sequence[TextRecord]) -> None:
        """Parse the cells of further rows."""
        rows = slice(self.n_rows, self.n_rows + len(records))
        for j in self.parsed_indices:
            cells = [record.cells[j] for record in records]
            numbers = (
                parse_plain_numbers(cells, self.decimal) if self.fast_path else None
            )
            if numbers is None:
                self.values[rows, j] = self._parse_cells(j, cells, records)
            else:
                self.counts[j].n_numbers += int(np.count_nonzero(~np.isnan(numbers)))
                self.values[rows, j] = numbers
        self.n_rows = rows.stop

    def _parse_cells(
        self, j: int, cells: Sequence[str], records: Sequence[TextRecord]
    ) -> list[float]:
        """Numbers of some cells of column ``j``; others are counted."""
        counted, numbers = self.counts[j], [math.nan] * len(cells)
        for i, text in enumerate(cells):
            cell = unquote(text)
            if cell in self.missing_tokens:
                continue
            number = parse_number(cell, self.decimal)
            if number is not None:
                numbers[i] = number
                counted.n_numbers += 1
                continue
            if counted.n_other == 0:
                counted.first_other_line = records[i].line
                counted.first_other_cell = cell
            if counted.n_other < MAX_INSPECTED_CELLS:
                counted.n_other_decimal += (
                    DECIMAL_PATTERNS[self.other_decimal].fullmatch(cell) is not None
                )
                counted.n_percent += PERCENT_PATTERN.fullmatch(cell) is not None
            counted.n_other += 1
        return numbers

    def numeric_columns(self, delimiter: str) -> tuple[Array, list[int]]:
        """Values of the numeric columns, and their positions."""
        used = [j for j in self.parsed_indices if self._is_numeric(j)]
        if not used:
            sign = "point" if self.decimal == "." else "comma"
            comment = self.names[0].startswith("#")
            raise ValueError(
                f"no column holds numbers (cells were separated at {delimiter!r}, and "
                f"decimals need a {sign}); see --delimiter, --decimal and --label"
                + ("; remove the first line if it is a comment" if comment else "")
            )
        values = self.values[: self.n_rows]
        return (values if len(used) == len(self.names) else values[:, used]), used

    def n_missing(self, j: int) -> int:
        """Missing cells of a column that was parsed."""
        return self.n_rows - self.counts[j].n_numbers - self.counts[j].n_other

    def is_text(self, j: int) -> bool:
        """Whether most cells of a column are not numbers."""
        return self.counts[j].n_other > self.counts[j].n_numbers

    def warning_messages(self, delimiter: str) -> list[str]:
        """Warnings about text columns that look like numbers."""
        texts = [j for j in self.parsed_indices if self.is_text(j)]
        commas = [
            j
            for j in texts
            if self.counts[j].is_majority(self.counts[j].n_other_decimal)
        ]
        percents = [
            j for j in texts if self.counts[j].is_majority(self.counts[j].n_percent)
        ]
        messages = []
        if commas:
            sign = "comma" if self.other_decimal == "," else "point"
            messages.append(
                f"columns that look like numbers with a decimal {sign} are not used: "
                f"{self._format_columns(commas)}; {self._decimal_hint(delimiter)}"
            )
        if percents:
            messages.append(
                "columns that look like percentages are not used: "
                f"{self._format_columns(percents)}; write them without the sign"
            )
        ending = " to use them, or name them with --label to keep them as they are"
        return [text + ending for text in messages]

    def _decimal_hint(self, delimiter: str) -> str:
        """How to have numbers with the other decimal sign read."""
        if delimiter != self.other_decimal:
            return f"give --decimal {self.other_decimal}"
        return f"write them with {self.decimal!r}, as {delimiter!r} separates the cells"

    def _format_columns(self, columns: Sequence[int]) -> str:
        """Names of columns, each with the number of gaps left in it."""
        return join_names([
            f"{self.names[j]} ({gaps} {'gap' if gaps == 1 else 'gaps'} left)"
            if (gaps := self.n_missing(j)) else self.names[j]
            for j in columns
        ], MAX_LISTED)  # fmt: skip

    def _is_numeric(self, j: int) -> bool:
        """Whether a column holds numbers; raises if only most of its cells are."""
        counted = self.counts[j]
        if self.is_text(j):
            return False
        if counted.n_other:
            raise ValueError(self._mixed_column_message(j))
        # A delimiter at the end of every line makes an empty column without a name.
        nameless = self.has_header and self.names[j] == str(j + 1)
        return not nameless or counted.n_numbers > 0

    def _mixed_column_message(self, j: int) -> str:
        """Error message for a column in which most cells are numbers."""
        counted, name = self.counts[j], self.names[j]
        token = to_printable(counted.first_other_cell)
        other = (
            DECIMAL_PATTERNS[self.other_decimal].fullmatch(counted.first_other_cell)
            is not None
        )
        read = f"read it with --decimal {self.other_decimal}, " if other else ""
        return (
            f"column {name!r} holds {counted.n_numbers} numbers and {counted.n_other} "
            f"other cells, the first at line {counted.first_other_line}: {token!r}; "
            f"correct it, {read}call it missing with --na {token!r}, or keep the "
            f"column as it is with --label {name!r}"
        )


@dataclass
class _ColumnCounts:
    """Counts of the cells of a column by kind."""

    n_numbers: int = 0
    n_other: int = 0  # cells that are neither numbers nor missing
    first_other_line: int = 0
    first_other_cell: str = ""
    n_other_decimal: int = 0  # among the first of them: numbers with the other sign
    n_percent: int = 0  # among the first of them: percentages

    def is_majority(self, count: int) -> bool:
        """Whether ``count`` is most of the other cells that were inspected."""
        return 2 * count > min(self.n_other, MAX_INSPECTED_CELLS)
