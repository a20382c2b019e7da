"""CSV and TSV files: read in chunks of rows or as a whole table, and written.

`open_rows` streams numbers through Arrow. `read_table` keeps the text of every cell,
which CSV libraries do not. Both find delimiter, header and names with `detect_dialect`;
`read_columns` reads lists, such as ratings, whose header has a rule of its own. Writers
share `_open_output`: `DelimitedTable.write` changes only the imputed cells of a table
that was read, `open_sink` streams numbers, and `write_rows` writes a header and rows.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from statistics import median
from typing import IO, Any

import numpy as np

from ncarl.core.types import Array
from ncarl.exceptions import BrokenFileError
from ncarl.io.base import (
    BaseRows,
    FileSnapshot,
    Sink,
    SinkSpec,
    check_unpacked_size,
    observations_from_dense,
    resolve_rows_per_chunk,
)
from ncarl.io.files import atomic_write, name_broken_file
from ncarl.io.tables import (
    ColumnTable,
    ReadOptions,
    TableFile,
    arrow_values,
    column_positions,
    missing_code_warnings,
    rebatch,
    select_column_names,
)
from ncarl.observations import Observations
from ncarl.progress import percent_bar
from ncarl.text import MAX_LISTED, MAX_QUOTED, join_names, quote, shorten, to_printable

BOM = "\ufeff"
LINE_BREAK = re.compile(r"\r\n|\n|\r")
DELIMITERS = (",", ";", "\t")
#: Cells that mean missing.
MISSING_TOKENS = ("", "NA", "N/A", "NaN", "nan", "null", "None", "NULL", "?", "-")
#: Cells that a person takes for numbers and `parse_number` does not: with the other
#: decimal sign, or percentages.
DECIMAL_PATTERNS = {mark: re.compile(rf"[-+]?\d+[{mark}]\d+") for mark in ".,"}
PERCENT_PATTERN = re.compile(r"[-+]?\d+([.,]\d+)?\s?%")
#: Non-numeric cells of a column that are matched against these patterns.
MAX_INSPECTED_CELLS = 1000

#: What the user is told about the first line.
HEADER_NOTE = "the first line was read as the header"
NO_HEADER_NOTE = "no line was read as the header"
#: Rows below the first line that `_is_header` looks at, and lines that are read to find
#: them.
MAX_INSPECTED_ROWS, MAX_INSPECTED_LINES = 50, 200
#: This many whole numbers in arithmetic progression are hardly ever data.
LONG_RUN = 5
#: Minimum number of cells of a first line of numbers that is a header, and of rows from
#: which the range of a column is estimated.
MIN_RUN = 3

#: Arrow parses blocks of this many bytes, and of at least this many lines as long as
#: the longest of the first ones.
BLOCK_BYTES, MIN_BLOCK_LINES = 1 << 20, 64
N_MEASURED_LINES = 20
#: Longest line of a file that is read in chunks.
MAX_LINE_CHARS = 1 << 26
#: `DelimitedText` unpacks and decodes pieces of about this many bytes.
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
    """Split text into records; cells may be quoted."""
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


def _parse_plain_records(text: str, delimiter: str, line: int) -> Iterator[TextRecord]:
    """Split text without quotes, whose first line has the number ``line``."""
    pieces = re.split(r"(\r\n|\n|\r)", text)
    if pieces[-1] == "":
        pieces.pop()
    ends = [*pieces[1::2], ""]
    for number, (cells, end) in enumerate(zip(pieces[::2], ends, strict=False), line):
        yield TextRecord(cells.split(delimiter), end, number)


def _unquote(cell: str) -> str:
    """Content of a cell without the quotes and blanks around it."""
    inner = cell.strip()
    if len(inner) >= 2 and inner[0] == inner[-1] == '"':
        inner = inner[1:-1].replace('""', '"').strip()
    return inner


def parse_number(cell: str, decimal: str = ".") -> float | None:
    """Finite number in a cell; None if it holds anything else.

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
    """Numbers of cells, NaN where empty; None if a cell is anything else."""
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


@dataclass(frozen=True)
class DelimitedText:
    """The bytes of a text file, split into records anew by every `iter_records`."""

    bom: str  # byte order mark, or empty
    data: bytes  # what follows it

    @classmethod
    def from_path(cls, path: Path) -> DelimitedText:
        """Read a file, which may be compressed."""
        if path.name.lower().endswith(".gz"):
            pieces, size = list[bytes](), 0
            with name_broken_file(path, "gzip"), gzip.open(path) as stream:
                while piece := stream.read(PIECE_BYTES):
                    size += len(piece)
                    check_unpacked_size(path, size)
                    pieces.append(piece)
            data = b"".join(pieces)
        else:
            data = path.read_bytes()
        if b"\0" in data:
            raise ValueError(
                f"{str(path)!r} holds zero bytes, so it is not UTF-8 text; save it as "
                "UTF-8"
            )
        bom = BOM if data.startswith(BOM.encode()) else ""
        return cls(bom, data.removeprefix(BOM.encode()))

    @property
    def max_lines(self) -> int:
        """Upper bound on the number of lines."""
        return self.data.count(b"\n") + self.data.count(b"\r") + 1

    def first_line(self) -> str:
        """The first line that is not blank."""
        found = re.search(rb"[^\r\n]+", self.data)
        return _decode(found[0]) if found else ""

    def iter_records(self, delimiter: str) -> Iterator[TextRecord]:
        """Records of the text."""
        if b'"' in self.data:
            yield from parse_quoted_records(_decode(self.data), delimiter)
            return
        line, first = 1, 0
        while first < len(self.data):  # in pieces that end at line breaks
            end = self.data.find(b"\n", first + PIECE_BYTES)
            last = len(self.data) if end < 0 else end + 1
            piece = _decode(self.data[first:last])
            for record in _parse_plain_records(piece, delimiter, line):
                yield record
                line = record.line + 1
            first = last


def _decode(data: bytes) -> str:
    """Decode UTF-8; other bytes survive a round trip."""
    return data.decode("utf-8", "surrogateescape")


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _classify_records(
    content: DelimitedText, delimiter: str, path: Path
) -> Iterator[tuple[TextRecord, bool]]:
    """Records of a text, each with whether it is a row of the table.

    Blank lines are not, except in a table of one column, where they are missing cells.
    """
    records = content.iter_records(delimiter)
    blank = list[TextRecord]()
    for record in records:
        if record.cells != [""]:
            break
        blank.append(record)
    else:
        raise ValueError(f"{str(path)!r} is empty; it must hold at least one row")
    single = len(record.cells) == 1
    yield from ((record, single) for record in blank)
    yield record, True
    yield from ((record, single or record.cells != [""]) for record in records)


def _iter_rows(
    content: DelimitedText, delimiter: str, path: Path
) -> Iterator[TextRecord]:
    """Rows of the table; raises if one has fewer or more cells than the first."""
    first = None
    for record, is_row in _classify_records(content, delimiter, path):
        if not is_row:
            continue
        first = first or record
        if len(record.cells) != len(first.cells):
            hint = ""
            if first.cells[0].lstrip().startswith("#"):
                hint = f"; line {first.line} looks like a comment: remove it"
            raise ValueError(
                f"{str(path)!r} is ragged: line {record.line} has {len(record.cells)} "
                f"cells, line {first.line} has {len(first.cells)}; add or remove "
                f"cells, or name the separator with --delimiter{hint}"
            )
        yield record


@dataclass(frozen=True)
class Dialect:
    """Layout of a text table."""

    delimiter: str
    decimal: str  # decimal sign, a point or a comma
    missing: frozenset[str]  # cells that mean missing
    header: bool  # whether the first row names the columns
    names: tuple[str, ...]  # of the columns; positions from 1 for those without a name
    first_line: int  # of the first row in the file, from 1


def detect_dialect(content: DelimitedText, path: Path, options: ReadOptions) -> Dialect:
    """Layout of a text table, from the options or its first rows."""
    delimiter, decimal = _resolve_separators(content, path, options)
    missing = frozenset((*MISSING_TOKENS, *(token.strip() for token in options.na)))
    records = _classify_records(content, delimiter, path)
    rows = (record for record, is_row in records if is_row)
    first = next(rows)
    header = options.header
    if header is None:
        alike = (row for row in rows if len(row.cells) == len(first.cells))
        header = _is_header(first, islice(alike, MAX_INSPECTED_ROWS), missing, decimal)
    given = [_unquote(cell) if header else "" for cell in first.cells]
    taken = set(given)
    names = tuple(
        name or (f"column {j}" if str(j) in taken else str(j))
        for j, name in enumerate(given, 1)
    )
    return Dialect(delimiter, decimal, missing, header, names, first.line)


def _resolve_separators(
    content: DelimitedText, path: Path, options: ReadOptions
) -> tuple[str, str]:
    """Delimiter and decimal sign, from the options or the first line."""
    if options.decimal not in (None, ".", ","):
        raise ValueError(f"--decimal must be '.' or ',', got {options.decimal!r}")
    decimal = options.decimal or "."
    delimiter = _resolve_delimiter(content, path, options.delimiter, decimal)
    if options.delimiter is None and delimiter == decimal:
        top = content.first_line()
        # A line that is one number is a table of one column, however it is written.
        if decimal not in top or parse_number(_unquote(top), decimal) is not None:
            delimiter = ";"
    if delimiter == decimal:
        origin = "" if options.delimiter is not None else ", by its first line"
        raise ValueError(
            f"--decimal and --delimiter must differ, and both are {decimal!r} "
            f"here{origin}; name another --delimiter or --decimal"
        )
    return delimiter, decimal


def _resolve_delimiter(
    content: DelimitedText, path: Path, option: str | None, decimal: str = "."
) -> str:
    """The delimiter that the user gives, or the most frequent one of the first line.

    If the comma is the decimal sign, it is the delimiter only if there is no other.
    """
    if option is not None:
        delimiter = "\t" if option.lower() in ("tab", "\\t") else option
        if len(delimiter) != 1 or delimiter in '"\r\n':
            raise ValueError(
                "--delimiter must be one character or 'tab', and no quote, got "
                f"{option!r}"
            )
        return delimiter
    if _default_delimiter(path) == "\t":
        return "\t"
    bare = re.sub(r'"[^"]*"', "", content.first_line())
    others = [mark for mark in DELIMITERS if mark != decimal and mark in bare]
    return max(others or DELIMITERS, key=bare.count)


def _default_delimiter(path: Path) -> str:
    return "\t" if path.name.lower().endswith((".tsv", ".tsv.gz")) else ","


def _is_header(
    first: TextRecord,
    below: Iterable[TextRecord],
    missing: frozenset[str],
    decimal: str,
) -> bool:
    """Whether the first line of a table names its columns; see `ncarl.open_rows`.

    Rows ``below`` it, of as many cells, are consumed only if the first line leaves it
    open.
    """
    cells = [_unquote(cell) for cell in first.cells]
    numbers = [None if c in missing else parse_number(c, decimal) for c in cells]
    if any(n is None and c not in missing for n, c in zip(numbers, cells, strict=True)):
        return True
    filled = [cell.strip() for cell in first.cells if cell.strip()]
    quoted = bool(filled) and all(cell.startswith('"') for cell in filled)
    has_corner = numbers[0] is None
    if has_corner:
        steps = _integer_steps(numbers[1:])
        run = bool(steps) and (min(steps) > 0.0 or max(steps) < 0.0)
    else:  # the first number may be the corner above the names of rows
        run = _is_arithmetic(numbers) or _is_arithmetic(numbers[1:])
    rows = list(below) if quoted or run else []
    if quoted and rows and not any('"' in cell for cell in rows[0].cells):
        return True
    if not run:
        return False
    # None for a word; missing cells are left out.
    columns = [
        [
            parse_number(c, decimal)
            for row in rows
            if (c := _unquote(row.cells[j])) not in missing
        ]
        for j in range(len(cells))
    ]
    if has_corner:
        return _is_run_after_corner(numbers[1:], columns)
    return _all_outside_range(numbers, columns, min_count=MIN_RUN, margin_steps=2.0)


def _is_run_after_corner(
    numbers: Sequence[float | None], columns: Sequence[Sequence[float | None]]
) -> bool:
    """Whether a monotone run of numbers after an empty first cell is a header.

    A row of data may begin with a missing cell too, so a short run needs more evidence:
    row names or row numbers in the first column, or numbers outside of all columns.
    """
    row_names = columns[0]
    return (
        None in row_names
        or (len(numbers) >= LONG_RUN and len(_integer_steps(numbers)) == 1)
        or _integer_steps(row_names) == {1.0}
        or _all_outside_range(numbers, columns[1:], min_count=1, margin_steps=0.0)
    )


def _integer_steps(numbers: Sequence[float | None]) -> set[float]:
    """Steps between whole numbers; empty for other numbers and for fewer than two."""
    whole = [n for n in numbers if n is not None and n.is_integer()]
    return {b - a for a, b in pairwise(whole)} if len(whole) == len(numbers) else set()


def _is_arithmetic(numbers: Sequence[float | None]) -> bool:
    """Whether whole numbers form an arithmetic progression; at least `MIN_RUN`."""
    steps = _integer_steps(numbers)
    return len(numbers) >= MIN_RUN and len(steps) == 1 and 0.0 not in steps


def _all_outside_range(
    numbers: Sequence[float | None],
    columns: Sequence[Sequence[float | None]],
    *,
    min_count: int,
    margin_steps: float,
) -> bool:
    """Whether every number of the first line lies outside of the range of its column.

    Columns with fewer than ``min_count`` values are skipped; more than half must have
    enough. The margin is in median steps from row to row: where columns increase, as
    those of a log do, a row of data lies outside by one step.
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


def open_rows(
    path: Path, columns: Sequence[str] | None, rows_per_chunk: int | None
) -> DelimitedRows:
    """Open a CSV or TSV file, also compressed with gzip, as a source of rows."""
    file = FileSnapshot.from_path(path)
    with name_broken_file(file.path, "text"), _open_text(file.path) as stream:
        lines = list(islice(_iter_lines(stream, file), MAX_INSPECTED_LINES))
    head = _encode("".join(lines))
    dialect = detect_dialect(DelimitedText("", head), file.path, ReadOptions())
    used = tuple(range(len(dialect.names)))
    if dialect.header:
        selected = select_column_names(dialect.names, columns, str(file))
        used = tuple(dialect.names.index(name) for name in selected)
    elif columns is not None:
        raise ValueError(
            f"columns needs a first line with names, and {file} has none; add it"
        )
    longest = max(map(len, head.lstrip().splitlines()[:N_MEASURED_LINES]))
    return DelimitedRows(
        n_columns=len(used), file=file, dialect=dialect, column_indices=used,
        names=tuple(dialect.names[j] for j in used) if dialect.header else None,
        rows_per_chunk=resolve_rows_per_chunk(rows_per_chunk, len(used)),
        block_bytes=max(BLOCK_BYTES, MIN_BLOCK_LINES * longest),
    )  # fmt: skip


def _open_text(path: Path) -> IO[str]:
    """Open a file as text, decompressed if its name ends in .gz."""
    packed = path.name.lower().endswith(".gz")
    raw: Any = gzip.GzipFile(path) if packed else path.open("rb")
    return io.TextIOWrapper(
        raw, encoding="utf-8-sig", errors="surrogateescape", newline=""
    )


def _iter_lines(stream: IO[str], file: FileSnapshot) -> Iterator[str]:
    """Lines of a text; raises before one of them takes too much memory."""
    for line in iter(partial(stream.readline, MAX_LINE_CHARS), ""):
        if len(line) == MAX_LINE_CHARS:
            raise ValueError(
                f"{file} has a line of {MAX_LINE_CHARS} characters or more, which is "
                "no row of a table; are its line breaks missing?"
            )
        yield line


@dataclass(frozen=True, eq=False, kw_only=True)
class DelimitedRows(BaseRows):
    """Rows of a CSV or TSV file, whose lines can only be read in order."""

    dialect: Dialect
    column_indices: tuple[int, ...]  # the columns that are read
    rows_per_chunk: int
    block_bytes: int  # bytes that Arrow parses together

    def __iter__(self) -> Iterator[Observations]:
        first = 0
        with self._unchanged():
            for values in rebatch(self._iter_arrays(), self.rows_per_chunk):
                yield observations_from_dense(values, first, str(self.file))
                first += len(values)
        if first == 0:
            raise ValueError(f"{self.file} has a header and no row below it")

    def _iter_arrays(self) -> Iterator[Array]:
        used = [str(j) for j in self.column_indices]
        try:
            with self._open_batches(used) as batches:
                for batch in batches:
                    yield arrow_values(batch, used)
        except (ValueError, KeyError) as error:
            message = f"{self.file}: {shorten(error, MAX_QUOTED)}"
            with suppress(csv.Error):  # a cell is too long
                message = self._describe_first_error() or message
            raise ValueError(message) from error
        except OSError as error:
            message = f"{self.file} cannot be read to its end: {error}"
            raise BrokenFileError(message) from error

    def _open_batches(self, columns: list[str]) -> Any:
        import pyarrow as pa
        import pyarrow.csv as pc

        assert self.file is not None
        dialect, n_cells = self.dialect, len(self.dialect.names)
        # Arrow strips blanks beside a number, but not beside a word.
        words = [
            f"{a}{w}{b}" for w in MISSING_TOKENS for a in ("", " ") for b in ("", " ")
        ]
        return pc.open_csv(
            self.file.path,
            read_options=pc.ReadOptions(
                use_threads=False,
                block_size=self.block_bytes,
                skip_rows=dialect.first_line - 1,
                # Names may be repeated or empty; positions are not.
                column_names=[str(j) for j in range(n_cells)],
                skip_rows_after_names=int(dialect.header),
            ),
            parse_options=pc.ParseOptions(
                delimiter=dialect.delimiter,
                newlines_in_values=True,
                ignore_empty_lines=n_cells > 1,
            ),
            convert_options=pc.ConvertOptions(
                include_columns=columns,
                column_types={name: pa.float64() for name in columns},
                null_values=words,
            ),
        )

    def _describe_first_error(self) -> str | None:
        """What is wrong with the first bad line, found by reading line by line."""
        assert self.file is not None
        names, header = self.dialect.names, self.dialect.header
        with _open_text(self.file.path) as stream:
            lines = _iter_lines(stream, self.file)
            reader = csv.reader(lines, delimiter=self.dialect.delimiter)
            for cells in reader:
                if header and cells:
                    header = False
                    continue
                if cells and len(cells) != len(names):
                    return (
                        f"{self.file} is ragged: line {reader.line_num} has "
                        f"{len(cells)} cells, the first line has {len(names)}; add or "
                        "remove cells"
                    )
                for j in self.column_indices if cells else ():
                    cell = cells[j].strip()
                    if cell not in MISSING_TOKENS and parse_number(cell) is None:
                        return (
                            f"{self.file} must hold numbers, got {quote(cell)} in "
                            f"column {quote(names[j])}, line {reader.line_num}; "
                            "correct it (a missing cell is empty or NA), or choose "
                            "other columns with columns=[...]"
                        )
        return None


@contextmanager
def _open_output(path: Path) -> Iterator[IO[bytes]]:
    """Open a new text file, compressed if its name ends in .gz.

    The file appears when the block succeeds.
    """
    with atomic_write(path) as temporary, ExitStack() as stack:
        stream: Any = stack.enter_context(temporary.open("wb"))
        if path.name.lower().endswith(".gz"):
            # No time stamp, so that equal tables give equal files.
            packed = gzip.GzipFile("", "wb", fileobj=stream, mtime=0)
            stream = stack.enter_context(packed)
        yield stream


def _format_rows(rows: Iterable[Sequence[Any]], path: Path, **options: Any) -> bytes:
    text = io.StringIO()
    csv.writer(text, delimiter=_default_delimiter(path), **options).writerows(rows)
    return _encode(text.getvalue())


def write_rows(path: Path, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write rows of numbers and text below a header; None is an empty cell."""
    # With the standard line end, a lone CR or LF inside a text is quoted.
    with _open_output(path) as stream:
        stream.write(_format_rows([names, *rows], path))


@contextmanager
def open_sink(path: Path, spec: SinkSpec) -> Iterator[Sink]:
    """Write a CSV or TSV file of numbers, which appears when the block succeeds.

    Columns without names get no header. NaN is written as an empty cell.
    """
    import pyarrow as pa
    import pyarrow.csv as pc

    with _open_output(path) as stream:
        if spec.names is not None:
            # So that the line is read as a header, and with the right delimiter.
            quoted = all(map(_looks_like_value, spec.names)) or any(
                mark in name for name in spec.names for mark in DELIMITERS
            )
            quoting = csv.QUOTE_ALL if quoted else csv.QUOTE_MINIMAL
            line = _format_rows([spec.names], path, quoting=quoting)
            stream.write(line.removesuffix(b"\r\n") + b"\n")  # as Arrow ends lines
        options = pc.WriteOptions(
            include_header=False, delimiter=_default_delimiter(path)
        )

        def append(rows: Array) -> None:
            # Written as float64, a float32 is read back as the same number whatever
            # the type of the reader.
            values = np.ascontiguousarray(rows.T, np.float64)
            columns = [pa.array(column, from_pandas=True) for column in values]
            table = pa.Table.from_arrays(columns, [str(j) for j in range(len(columns))])
            pc.write_csv(table, stream, options)

        sink = Sink(spec, append)
        yield sink
        sink.finish()


def _looks_like_value(name: str) -> bool:
    return name.strip() in MISSING_TOKENS or parse_number(name) is not None


def read_columns(
    path: Path, delimiter: str | None, is_header: Callable[[Sequence[str]], bool]
) -> ColumnTable:
    """Read the cells of a file as text, without quotes.

    ``is_header`` decides from the cells of the first line whether they are names.
    """
    content = DelimitedText.from_path(path)
    mark = _resolve_delimiter(content, path, delimiter)
    records = [r for r in _iter_rows(content, mark, path) if r.cells != [""]]
    rows = [[_unquote(cell) for cell in record.cells] for record in records]
    lines = [record.line for record in records]
    names = None
    if is_header(rows[0]):
        names = [to_printable(cell) for cell in rows[0]]
        rows, lines = rows[1:], lines[1:]
    if not rows:
        raise ValueError(f"{str(path)!r} has a header and no row below it")
    cells = [list(column) for column in zip(*rows, strict=True)]
    return ColumnTable(path, names, cells, lines)


def read_table(path: Path, options: ReadOptions) -> DelimitedTable:
    """Read a CSV or TSV file as a table."""
    content = DelimitedText.from_path(path)
    dialect = detect_dialect(content, path, options)
    names = [to_printable(name) for name in dialect.names]
    kept = column_positions(options.labels, names)
    columns = ColumnParser(
        names, dialect.header, dialect.missing, kept, content.max_lines, dialect.decimal
    )
    rows = _iter_rows(content, dialect.delimiter, path)
    rows = islice(rows, int(dialect.header), None)
    with percent_bar(options.progress, content.max_lines, "reading") as reached:
        while some := list(islice(rows, ROWS_PER_BATCH)):
            columns.add_records(some)
            reached(some[-1].line)
    if columns.n_rows == 0:
        raise ValueError(f"{str(path)!r} has a header and no row below it")
    values, used = columns.numeric_columns(dialect.delimiter)
    others = sorted({*range(len(names))} - {*used})
    names_used = [names[j] for j in used]
    note = f"{NO_HEADER_NOTE} (else: --header)"
    if dialect.header:
        note = f"{HEADER_NOTE} (else: --no-header)"
    text_warnings = columns.warning_messages(dialect.delimiter)
    n_missing = sum(columns.n_missing(j) for j in others if columns.is_text(j))
    return DelimitedTable(
        values=values, columns=names_used, unused_columns=[names[j] for j in others],
        notes=[note] if options.header is None else [],
        read_warnings=[*text_warnings, *missing_code_warnings(values, names_used)],
        n_missing_in_text=n_missing, path=path, text=content, dialect=dialect,
        column_indices=used, progress=options.progress,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class DelimitedTable(TableFile):
    """A text table with the text of all its cells."""

    path: Path
    text: DelimitedText
    dialect: Dialect
    column_indices: list[int]  # the cells of a row that are columns of ``values``
    progress: bool = False  # whether writing shows a bar

    def write(
        self, path: Path, numbers: Array, *, replace_observed: bool = False
    ) -> None:
        """Write the table with its missing, or all, numbers replaced."""
        with _open_output(path) as stream:
            stream.writelines(map(_encode, self._lines(numbers, replace_observed)))

    def _lines(self, numbers: Array, replace_observed: bool) -> Iterator[str]:
        delimiter, decimal = self.dialect.delimiter, self.dialect.decimal
        yield self.text.bom
        row, total = -int(self.dialect.header), len(self.values)
        with percent_bar(self.progress, total, "writing") as reached:
            for record, is_row in _classify_records(self.text, delimiter, self.path):
                cells = record.cells
                if is_row and row >= 0:
                    missing = np.isnan(self.values[row])
                    replaced = (missing | replace_observed) & ~np.isnan(numbers[row])
                    for j in np.flatnonzero(replaced):
                        number = f"{numbers[row, j]:.10g}".replace(".", decimal)
                        cells[self.column_indices[j]] = number
                    reached(row + 1)
                row += is_row
                yield delimiter.join(cells) + record.line_end


@dataclass
class _ColumnCounts:
    n_numbers: int = 0
    n_other: int = 0  # cells that are neither numbers nor missing
    first_other_line: int = 0
    first_other_cell: str = ""
    n_other_decimal: int = 0  # among the first of them: numbers with the other sign
    n_percent: int = 0  # among the first of them: percentages


class ColumnParser:
    """Parses the cells of a text table into numbers, NaN where they are missing.

    Memory for ``max_rows`` rows is allocated; pages that are never written take none.
    """

    def __init__(
        self,
        names: Sequence[str],
        has_header: bool,
        missing_tokens: Set[str],
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
            plain = self.fast_path
            numbers = parse_plain_numbers(cells, self.decimal) if plain else None
            if numbers is None:
                numbers = self._parse_cells(cells, self.counts[j], records)
            self.counts[j].n_numbers += int(np.count_nonzero(~np.isnan(numbers)))
            self.values[rows, j] = numbers
        self.n_rows = rows.stop

    def _parse_cells(
        self, cells: list[str], counts: _ColumnCounts, records: Sequence[TextRecord]
    ) -> Array:
        """Numbers of some cells of a column; the others are counted."""
        numbers = np.full(len(cells), np.nan)
        for i, cell in enumerate(map(_unquote, cells)):
            if cell in self.missing_tokens:
                continue
            number = parse_number(cell, self.decimal)
            if number is not None:
                numbers[i] = number
                continue
            if counts.n_other == 0:
                counts.first_other_line = records[i].line
                counts.first_other_cell = cell
            if counts.n_other < MAX_INSPECTED_CELLS:
                counts.n_other_decimal += self._has_other_decimal(cell)
                counts.n_percent += PERCENT_PATTERN.fullmatch(cell) is not None
            counts.n_other += 1
        return numbers

    def _has_other_decimal(self, cell: str) -> bool:
        return DECIMAL_PATTERNS[self.other_decimal].fullmatch(cell) is not None

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

    def _is_numeric(self, j: int) -> bool:
        """Whether a column holds numbers; raises if only most of its cells are."""
        counts, name = self.counts[j], self.names[j]
        if self.is_text(j):
            return False
        if counts.n_other:
            cell, read = counts.first_other_cell, ""
            if self._has_other_decimal(cell):
                read = f"read it with --decimal {self.other_decimal}, "
            cell = quote(to_printable(cell))
            raise ValueError(
                f"column {quote(name)} holds {counts.n_numbers} numbers and "
                f"{counts.n_other} other cells, the first at line "
                f"{counts.first_other_line}: {cell}; correct it, {read}call it "
                f"missing with --na {cell}, or keep the column as it is with "
                f"--label {quote(name)}"
            )
        # A delimiter at the end of every line makes an empty column without a name.
        nameless = self.has_header and name in (str(j + 1), f"column {j + 1}")
        return not nameless or counts.n_numbers > 0

    def is_text(self, j: int) -> bool:
        """Whether most cells of a column are not numbers."""
        return self.counts[j].n_other > self.counts[j].n_numbers

    def n_missing(self, j: int) -> int:
        """Missing cells of a column that was parsed."""
        return self.n_rows - self.counts[j].n_numbers - self.counts[j].n_other

    def warning_messages(self, delimiter: str) -> list[str]:
        """Warnings about text columns that look like numbers."""
        sign = "comma" if self.other_decimal == "," else "point"
        remedy = f"give --decimal {self.other_decimal}"
        if delimiter == self.other_decimal:
            remedy = (
                f"write them with {self.decimal!r}, as {delimiter!r} separates cells"
            )
        kinds = (
            ("n_other_decimal", f"numbers with a decimal {sign}", remedy),
            ("n_percent", "percentages", "write them without the sign"),
        )
        messages = []
        for counter, kind, remedy in kinds:
            columns = []
            for j in filter(self.is_text, self.parsed_indices):
                n_inspected = min(self.counts[j].n_other, MAX_INSPECTED_CELLS)
                if 2 * getattr(self.counts[j], counter) > n_inspected:
                    missing = self.n_missing(j)
                    count = f" ({missing} missing)" if missing else ""
                    columns.append(self.names[j] + count)
            if columns:
                messages.append(
                    f"columns that look like {kind} are not used: "
                    f"{join_names(columns, MAX_LISTED)}; {remedy} to use them, or name "
                    "them with --label to keep them as they are"
                )
        return messages
