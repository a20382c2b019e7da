"""Delimited text taken apart so that every byte can be put back."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

BOM = "\ufeff"
DELIMITERS = (",", ";", "\t")
#: A line break.
BREAK = re.compile(r"\r\n|\n|\r")
#: Bytes that are taken apart together, and up to the end of their line.
PIECE = 1 << 18


@dataclass(frozen=True)
class Record:
    """One line of a table (several, if a quoted cell holds line breaks).

    Attributes
    ----------
    cells : list of str
        The cells as typed, quotes included.
    end : str
        The line break after them; empty at the end of a file without one.
    line : int
        Number of its first line in the file, from 1.
    """

    cells: list[str]
    end: str
    line: int


@dataclass(frozen=True)
class Text:
    """The text of a file as its bytes, taken apart anew each time it is asked for.

    Attributes
    ----------
    prefix : str
        A byte order mark, or nothing.
    data : bytes
        What follows it.
    """

    prefix: str
    data: bytes

    @classmethod
    def of(cls, path: Path) -> Text:
        """The text of a file.

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
    def most_lines(self) -> int:
        """At least as many as there are."""
        return self.data.count(b"\n") + self.data.count(b"\r") + 1

    def top(self) -> str:
        """The beginning, as far as the end of the first line that holds anything."""
        start = len(self.data) - len(self.data.lstrip(b"\r\n"))
        ends = (self.data.find(mark, start) for mark in (b"\n", b"\r"))
        end = min((end for end in ends if end >= 0), default=len(self.data))
        return _decoded(self.data[start:end])

    def records(self, delimiter: str) -> Iterator[Record]:
        """The records of the text, one after the other."""
        if b'"' in self.data:
            yield from quoted_records(_decoded(self.data), delimiter)
            return
        line = 1
        for piece in self._pieces():
            for record in plain_records(_decoded(piece), delimiter, line):
                yield record
                line = record.line + 1

    def _pieces(self) -> Iterator[bytes]:
        """The text in parts that end where a line does."""
        first = 0
        while first < len(self.data):
            end = self.data.find(b"\n", first + PIECE)
            last = len(self.data) if end < 0 else end + 1
            yield self.data[first:last]
            first = last


def _decoded(data: bytes) -> str:
    """Bytes as text; those that are not UTF-8 survive a round trip."""
    return data.decode("utf-8", "surrogateescape")


def write_text(path: Path, name: str, text: Iterator[str]) -> None:
    """Write pieces of text to ``path``, compressed if ``name`` ends in .gz."""
    # The time stamp is left out, so that equal tables give equal files.
    with path.open("wb") as raw:
        if name.lower().endswith(".gz"):
            with gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as stream:
                stream.writelines(_encoded(text))
        else:
            raw.writelines(_encoded(text))


def _encoded(text: Iterator[str]) -> Iterator[bytes]:
    """The bytes of pieces of text."""
    return (piece.encode("utf-8", "surrogateescape") for piece in text)


def quoted_records(text: str, delimiter: str) -> Iterator[Record]:
    r"""The records of a text that may have quotes.

    Examples
    --------
    >>> [record.cells for record in quoted_records('a,"b,c"\n1,2', ",")]
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
        line += len(BREAK.findall(match[0]))
        if match[2] != delimiter:
            yield Record(cells, match[2], first)
            cells, first = [], line


def plain_records(text: str, delimiter: str, line: int = 1) -> Iterator[Record]:
    """The records of a text without quotes, its first line having this number."""
    pieces = re.split(r"(\r\n|\n|\r)", text)
    if pieces[-1] == "":
        pieces.pop()
    ends = [*pieces[1::2], ""]
    for number, (cells, end) in enumerate(zip(pieces[::2], ends, strict=False), line):
        yield Record(cells.split(delimiter), end, number)


def unquoted(cell: str) -> str:
    """What a cell says, without the quotes and the blanks around it.

    Examples
    --------
    >>> unquoted(' "a ""b"" c" ')
    'a "b" c'
    """
    inner = cell.strip()
    if len(inner) >= 2 and inner[0] == inner[-1] == '"':
        inner = inner[1:-1].replace('""', '"').strip()
    return inner


def find_delimiter(first: str, decimal: str = ".") -> str:
    """The separator that the first line uses most; a comma where there is none.

    Where decimals follow a comma, it separates cells only if nothing else does.
    """
    bare = re.sub(r'"[^"]*"', "", first)
    others = [mark for mark in DELIMITERS if mark != decimal and mark in bare]
    return max(others or DELIMITERS, key=bare.count)


def check_delimiter(given: str) -> str:
    """A separator as the user names it: one character, or "tab"."""
    found = "\t" if given.lower() in ("tab", "\\t") else given
    if len(found) != 1 or found in '"\r\n':
        raise ValueError(
            f"--delimiter must be one character or 'tab', and no quote, got {given!r}"
        )
    return found


def check_decimal(given: str | None) -> str:
    """A decimal sign as the user names it; a point if not at all."""
    if given not in (None, ".", ","):
        raise ValueError(f"--decimal must be '.' or ',', got {given!r}")
    return given or "."


def check_signs(delimiter: str, decimal: str, given: str | None) -> None:
    """Raise if cells are separated at the decimal sign."""
    if delimiter != decimal:
        return
    found = "" if given is not None else ", by its first line"
    raise ValueError(
        f"--decimal and --delimiter must differ, and both are {decimal!r} here{found}; "
        "name another --delimiter or --decimal"
    )


def check_width(record: Record, first: Record, path: Path) -> None:
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
