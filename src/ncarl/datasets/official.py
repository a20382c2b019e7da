"""Files as their publishers made them: members of archives, and tables of ratings.

Members are read by their exact names and never unpacked to disk.
"""

from __future__ import annotations

import contextlib
import io
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from zipfile import BadZipFile, ZipFile, is_zipfile

import numpy as np

from ncarl.core.types import Array
from ncarl.exceptions import BrokenFileError

#: Bytes of a table that are parsed at a time.
CHUNK = 1 << 24
#: No line of a table is longer.
LONGEST_LINE = 1000
HEADER = b"userId,movieId,rating,timestamp"
FIELDS = {"user": "i4", "item": "i4", "rating": "f8", "timestamp": "i8"}


@dataclass(frozen=True, eq=False)
class Table:
    """Ratings as the source numbers them.

    Attributes
    ----------
    user, item : int arrays of shape (entries,)
        Ids of the source.
    rating : float array of shape (entries,)
        Stars.
    timestamp : int array of shape (entries,) or None
        Seconds since 1970.
    """

    user: Array
    item: Array
    rating: Array
    timestamp: Array | None


@contextlib.contextmanager
def opened(path: Path, members: Sequence[str], limit: int) -> Iterator[IO[bytes]]:
    """The first of some members that a folder or ZIP archive has, open for reading.

    Raises
    ------
    BrokenFileError
        If there is none of them, it is larger than ``limit`` bytes, or the archive is
        damaged.
    """
    if path.is_dir():
        with _in_folder(path, members, limit).open("rb") as stream:
            yield stream
        return
    if not is_zipfile(path):
        raise BrokenFileError(f"{str(path)!r} is neither a folder nor a ZIP archive")
    damage = (BadZipFile, zlib.error, EOFError, RuntimeError)
    try:
        with ZipFile(path) as archive:
            names = set(archive.namelist())
            member = _first(path, members, [name in names for name in members])
            _refuse_large(path, member, archive.getinfo(member).file_size, limit)
            with archive.open(member) as stream:
                yield stream
    except damage as error:
        raise BrokenFileError(f"{str(path)!r} is damaged: {error}") from error


def _in_folder(path: Path, members: Sequence[str], limit: int) -> Path:
    """The first member that a folder has."""
    there = [(path / member).is_file() for member in members]
    file = path / _first(path, members, there)
    _refuse_large(path, file.name, file.stat().st_size, limit)
    return file


def _first(path: Path, members: Sequence[str], there: Sequence[bool]) -> str:
    """The first member that is there."""
    for member, found in zip(members, there, strict=True):
        if found:
            return member
    raise BrokenFileError(f"{str(path)!r} must hold {' or '.join(members)}, has none")


def _refuse_large(path: Path, member: str, size: int, limit: int) -> None:
    if size > limit:
        raise BrokenFileError(
            f"{member} of {str(path)!r} takes {size} bytes, and the true one at most "
            f"{limit}: this is another file"
        )


def read_table(stream: IO[bytes], name: str, separator: str, header: bool) -> Table:
    """A table of users, items, ratings and times, read in chunks.

    Parameters
    ----------
    stream : file of bytes
        Lines of four fields.
    name : str
        What errors call it.
    separator : str
        Between fields; may be longer than one character.
    header : bool
        Whether the first line names the fields, as GroupLens names them.
    """
    if header and stream.readline(LONGEST_LINE).strip() != HEADER:
        raise BrokenFileError(f"{name} must begin with the line {HEADER.decode()}")
    parts: dict[str, list[Array]] = {field: [] for field in FIELDS}
    done = int(header)
    for chunk in _whole_lines(stream, name):
        records = _parsed(chunk, f"{name} (after line {done})", separator)
        done += len(records)
        for field, part in parts.items():
            part.append(records[field].copy())
    if not parts["user"]:
        raise BrokenFileError(f"{name} holds no ratings")
    # One column at a time gives up its parts, so that no more than one is there twice.
    return Table(**{field: np.concatenate(parts.pop(field)) for field in FIELDS})


def _whole_lines(stream: IO[bytes], name: str) -> Iterator[bytes]:
    """Chunks that end where lines end."""
    rest = b""
    while chunk := stream.read(CHUNK):
        end = chunk.rfind(b"\n") + 1
        if end == 0 and len(rest) + len(chunk) > LONGEST_LINE:
            raise BrokenFileError(f"{name} is no table: its lines do not end")
        lines, rest = rest + chunk[:end], chunk[end:]
        if end == 0:
            lines, rest = b"", lines + rest
        if lines.strip():
            yield lines
    if rest.strip():
        yield rest


def _parsed(chunk: bytes, name: str, separator: str) -> Array:
    """Records of some whole lines."""
    if len(separator) > 1:
        chunk = chunk.replace(separator.encode(), b"\t")
    delimiter = separator if len(separator) == 1 else "\t"
    try:
        return np.atleast_1d(
            np.loadtxt(
                io.BytesIO(chunk),
                dtype=list(FIELDS.items()),
                delimiter=delimiter,
                comments=None,
            )
        )
    except (ValueError, OverflowError) as error:
        raise BrokenFileError(
            f"{name} must have lines of user, item, rating and time between "
            f"{separator!r}: {error}"
        ) from error
