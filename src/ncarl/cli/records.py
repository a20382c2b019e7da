"""Delimited text taken apart so that every byte can be put back."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

BOM = "\ufeff"
DELIMITERS = (",", ";", "\t")


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


def read_text(path: Path) -> str:
    """The text of a file; bytes that are not UTF-8 survive a round trip.

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
            f"{str(path)!r} holds zero bytes, so it is no UTF-8 text; save it as UTF-8"
        )
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


def split_records(text: str, delimiter: str) -> list[Record]:
    r"""The records of a text.

    Examples
    --------
    >>> [record.cells for record in split_records('a,"b,c"\n1,2', ",")]
    [['a', '"b,c"'], ['1', '2']]
    """
    if '"' not in text:
        return _split_plain(text, delimiter)
    mark = re.escape(delimiter)
    # A quoted cell must be followed by a separator; otherwise its quotes are text.
    cell = re.compile(
        rf'("(?:[^"]|"")*+"|[^{mark}\r\n]*)({mark}|\r\n|\n|\r|\Z)', re.DOTALL
    )
    records, cells, line, first, position = [], list[str](), 1, 1, 0
    while position < len(text) or cells:
        match = cell.match(text, position)
        assert match is not None
        cells.append(match[1])
        position = match.end()
        line += len(re.findall(r"\r\n|\n|\r", match[0]))
        if match[2] != delimiter:
            records.append(Record(cells, match[2], first))
            cells, first = [], line
    return records


def _split_plain(text: str, delimiter: str) -> list[Record]:
    """The records of a text without quotes."""
    pieces = re.split(r"(\r\n|\n|\r)", text)
    if pieces[-1] == "":
        pieces.pop()
    ends = [*pieces[1::2], ""]
    return [
        Record(line.split(delimiter), end, number)
        for number, (line, end) in enumerate(zip(pieces[::2], ends, strict=False), 1)
    ]


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


def find_delimiter(text: str) -> str:
    """The separator that the first line uses most; a comma where there is none."""
    first = re.split(r"\r\n|\n|\r", text.lstrip("\r\n"), maxsplit=1)[0]
    bare = re.sub(r'"[^"]*"', "", first)
    return max(DELIMITERS, key=bare.count)


def check_delimiter(given: str) -> str:
    """A separator as the user names it: one character, or "tab"."""
    found = "\t" if given.lower() in ("tab", "\\t") else given
    if len(found) != 1 or found in '"\r\n':
        raise ValueError(
            f"--delimiter must be one character or 'tab', and no quote, got {given!r}"
        )
    return found


def check_widths(records: Sequence[Record], path: Path) -> None:
    """Raise if a record has fewer or more cells than the first one."""
    width = len(records[0].cells)
    for record in records:
        if len(record.cells) != width:
            raise ValueError(
                f"{str(path)!r} is ragged: line {record.line} has "
                f"{len(record.cells)} cells, line {records[0].line} has {width}; add "
                "or remove cells, or name the separator with --delimiter"
            )
