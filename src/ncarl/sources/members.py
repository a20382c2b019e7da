"""Arrays in an NPZ file: where each lies, read without the others."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ncarl.core.types import Array
from ncarl.exceptions import BrokenFileError
from ncarl.sources.npy import ArrayHeader, native, read_header, read_numbers

#: Bytes of a local header of a zip file before the name, and where the lengths of the
#: name and of what follows it stand in them.
LOCAL_HEADER, LENGTHS = 30, slice(26, 30)


@dataclass(frozen=True)
class Member:
    """One array of an NPZ file.

    Attributes
    ----------
    name : str
        Its name in the file, ``.npy`` included.
    header : ArrayHeader
        What it holds.
    offset : int or None
        Bytes from the start of the file to the array's header; None if the array is
        compressed and has to be read from its start.
    where : str
        What errors call it.
    """

    name: str
    header: ArrayHeader
    offset: int | None
    where: str

    def __len__(self) -> int:
        return self.header.shape[0]

    def open(self, archive: zipfile.ZipFile) -> Any:
        """A stream at the first number of the array."""
        stream = archive.open(self.name)
        stream.read(self.header.start)
        return stream

    def next(self, stream: Any, count: int) -> Array:
        """The next numbers of a one-dimensional array."""
        found = np.empty(count, self.header.stored)
        read_numbers(stream, found, self.where)
        return native(found)

    def at(self, stream: Any, first: int, count: int) -> Array:
        """Numbers from anywhere in an array that is not compressed.

        Parameters
        ----------
        stream : binary file
            The whole NPZ file.
        first, count : int
            Which numbers.
        """
        assert self.offset is not None
        step = self.header.stored.itemsize
        stream.seek(self.offset + self.header.start + first * step)
        return self.next(stream, count)


def find_members(path: Path) -> dict[str, Member]:
    """The arrays of an NPZ file by their names, without ``.npy``."""
    found = {}
    with readable(path), zipfile.ZipFile(path) as archive, path.open("rb") as raw:
        for info in archive.infolist():
            where = f"{str(path)!r}, array {info.filename!r},"
            with archive.open(info) as stream:
                header = read_header(stream, where)
            offset = None
            if info.compress_type == zipfile.ZIP_STORED:
                raw.seek(info.header_offset)
                lengths = struct.unpack("<HH", raw.read(LOCAL_HEADER)[LENGTHS])
                offset = info.header_offset + LOCAL_HEADER + sum(lengths)
            member = Member(info.filename, header, offset, where)
            found[info.filename.removesuffix(".npy")] = member
    return found


def read_small(path: Path, member: Member) -> Array:
    """An array that is no more than a few numbers or letters."""
    with readable(path), zipfile.ZipFile(path) as archive:
        stream = archive.open(member.name)
        return np.lib.format.read_array(stream, allow_pickle=False)


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Errors of damaged archives by one name."""
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise BrokenFileError(
            f"{str(path)!r} is no whole NPZ file: {error}; write it anew"
        ) from error
