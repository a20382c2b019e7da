"""Read the files of data sets with checks, and download them.

NPZ files are read without pickle, members of archives and downloads have size limits,
and a download must match the MD5 sum of its publisher.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import io
import logging
import re
import urllib.request
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import IO, Any, TypeVar
from zipfile import BadZipFile, ZipFile, is_zipfile

import numpy as np

from ncarl.core.types import Array
from ncarl.exceptions import BrokenFileError, DownloadError
from ncarl.io.files import atomic_write

logger = logging.getLogger("ncarl")
#: Kinds of NumPy dtypes, as ``dtype.kind`` has them.
INTEGER_KINDS, NUMERIC_KINDS, TEXT_KINDS = "iu", "iuf", "U"
#: Bytes of a table that are parsed at once.
PARSE_CHUNK_BYTES = 1 << 24
#: Largest length of a line of a table.
LONGEST_LINE = 1000
#: First line and fields of the tables of GroupLens.
RATINGS_HEADER = b"userId,movieId,rating,timestamp"
RATINGS_FIELDS = {"user": "i4", "item": "i4", "rating": "f8", "timestamp": "i8"}
#: Seconds without an answer after which a download fails.
TIMEOUT = 30.0
#: Bytes of a download that are read at once, and the largest size of a checksum file.
DOWNLOAD_CHUNK_BYTES, CHECKSUM_LIMIT = 1 << 16, 4096
T = TypeVar("T")


def read_arrays(
    path: Path,
    required: Mapping[str, tuple[str, int]],
    optional: Mapping[str, tuple[str, int]] | None = None,
) -> dict[str, Array]:
    """Read named arrays of an NPZ file, with their kinds and dimensions checked.

    Parameters
    ----------
    path : Path
        An NPZ file.
    required, optional : mapping of str to (str, int)
        Kinds of dtypes and number of dimensions, by name of the array.

    Raises
    ------
    BrokenFileError
        If the file is not an NPZ file, or an array is missing or of another kind.
    """
    expected = {**required, **(optional or {})}
    arrays = _load_arrays(path, tuple(expected))
    absent = [name for name in required if name not in arrays]
    if absent:
        raise BrokenFileError(
            f"{str(path)!r} must hold the arrays {', '.join(required)}, and has no "
            f"{', '.join(absent)}"
        )
    for name, array in arrays.items():
        kinds, ndim = expected[name]
        if array.dtype.kind not in kinds or array.ndim != ndim:
            raise BrokenFileError(
                f"array {name} of {str(path)!r} must have {ndim} dimensions and a "
                f"dtype of kind {kinds}, got shape {array.shape}, dtype {array.dtype}"
            )
    return arrays


def _load_arrays(path: Path, names: tuple[str, ...]) -> dict[str, Array]:
    """Those of the named arrays that the file has."""
    try:
        # NumPy leaves a damaged file open if it opens it itself.
        with path.open("rb") as stream:
            archive = np.load(stream, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise ValueError("it is one array")
            return {name: archive[name] for name in names if name in archive.files}
    except (ValueError, LookupError, EOFError, BadZipFile, zlib.error) as error:
        raise BrokenFileError(
            f"{str(path)!r} is damaged or no NPZ file of arrays: {error}"
        ) from error


def raise_if_invalid(path: Path, invalid: bool, expected: str, got: object) -> None:
    """Raise `BrokenFileError` if ``invalid``."""
    if invalid:
        raise BrokenFileError(f"{str(path)!r} must hold {expected}, got {got}")


@contextlib.contextmanager
def open_member(path: Path, members: Sequence[str], limit: int) -> Iterator[IO[bytes]]:
    """Open the first of some members that a folder or ZIP archive has.

    Raises
    ------
    BrokenFileError
        If none of them exists, the member is larger than ``limit`` bytes, or the
        archive is damaged.
    """
    if path.is_dir():
        with _find_in_folder(path, members, limit).open("rb") as stream:
            yield stream
        return
    if not is_zipfile(path):
        raise BrokenFileError(f"{str(path)!r} is neither a folder nor a ZIP archive")
    damage = (BadZipFile, zlib.error, EOFError, RuntimeError)
    try:
        with ZipFile(path) as archive:
            names = set(archive.namelist())
            member = _first_present(path, members, [name in names for name in members])
            _check_member_size(path, member, archive.getinfo(member).file_size, limit)
            with archive.open(member) as stream:
                yield stream
    except damage as error:
        raise BrokenFileError(f"{str(path)!r} is damaged: {error}") from error


def _find_in_folder(path: Path, members: Sequence[str], limit: int) -> Path:
    there = [(path / member).is_file() for member in members]
    file = path / _first_present(path, members, there)
    _check_member_size(path, file.name, file.stat().st_size, limit)
    return file


def _first_present(path: Path, members: Sequence[str], present: Sequence[bool]) -> str:
    for member, found in zip(members, present, strict=True):
        if found:
            return member
    raise BrokenFileError(f"{str(path)!r} must hold {' or '.join(members)}, has none")


def _check_member_size(path: Path, member: str, size: int, limit: int) -> None:
    if size > limit:
        raise BrokenFileError(
            f"{member} of {str(path)!r} takes {size} bytes, and the true one at most "
            f"{limit}: this is another file"
        )


@dataclass(frozen=True, eq=False)
class RawRatings:
    """Ratings with the ids of their source.

    Attributes
    ----------
    user, item : int arrays of shape (entries,)
        Ids in the source.
    rating : float array of shape (entries,)
        Ratings.
    timestamp : int array of shape (entries,) or None
        Seconds since 1970.
    """

    user: Array
    item: Array
    rating: Array
    timestamp: Array | None


def read_ratings_table(
    stream: IO[bytes], name: str, separator: str, header: bool
) -> RawRatings:
    """Read a table of users, items, ratings and times in chunks.

    Parameters
    ----------
    stream : file of bytes
        Lines of four fields.
    name : str
        Name of the table in error messages.
    separator : str
        Separator of the fields; may be longer than one character.
    header : bool
        Whether the first line is `RATINGS_HEADER`.
    """
    if header and stream.readline(LONGEST_LINE).strip() != RATINGS_HEADER:
        raise BrokenFileError(
            f"{name} must begin with the line {RATINGS_HEADER.decode()}"
        )
    parts: dict[str, list[Array]] = {field: [] for field in RATINGS_FIELDS}
    n_lines = int(header)
    for chunk in _iter_line_chunks(stream, name):
        records = _parse_lines(chunk, f"{name} (after line {n_lines})", separator)
        n_lines += len(records)
        for field, part in parts.items():
            part.append(records[field].copy())
    if not parts["user"]:
        raise BrokenFileError(f"{name} holds no ratings")
    # Parts are dropped column by column: at most one column is in memory twice.
    return RawRatings(
        **{field: np.concatenate(parts.pop(field)) for field in RATINGS_FIELDS}
    )


def _iter_line_chunks(stream: IO[bytes], name: str) -> Iterator[bytes]:
    """Chunks of whole lines."""
    rest = b""
    while chunk := stream.read(PARSE_CHUNK_BYTES):
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


def _parse_lines(chunk: bytes, name: str, separator: str) -> Array:
    if len(separator) > 1:
        chunk = chunk.replace(separator.encode(), b"\t")
    delimiter = separator if len(separator) == 1 else "\t"
    try:
        return np.atleast_1d(
            np.loadtxt(
                io.BytesIO(chunk),
                dtype=list(RATINGS_FIELDS.items()),
                delimiter=delimiter,
                comments=None,
            )
        )
    except (ValueError, OverflowError) as error:
        raise BrokenFileError(
            f"{name} must have lines of user, item, rating and time between "
            f"{separator!r}: {error}"
        ) from error


def fetch(url: str, target: Path, limit: int, read: Callable[[Path], T]) -> T:
    """Download a file, check it, and return what ``read`` makes of it.

    Parameters
    ----------
    url : str
        Address of the file; its MD5 sum is at the same address plus ``.md5``.
    target : Path
        Where the file is stored. Nothing is left there if anything fails.
    limit : int
        Largest size of the file in bytes.
    read : callable
        Reads the file, and raises `BrokenFileError` if it is not the expected one.
    """
    logger.info("downloading %s to %s", url, target)
    try:
        expected = _fetch_md5(url)
        target.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(target) as temporary:
            _check_md5(url, _download_to_file(url, temporary, limit), expected)
            return read(temporary)
    except BrokenFileError as error:
        raise DownloadError(f"{url} gave an unexpected file: {error}") from error
    except DownloadError:
        raise
    except (OSError, http.client.HTTPException) as error:
        reason = str(error) or type(error).__name__
        raise DownloadError(f"could not get {url}: {reason}") from error


def _fetch_md5(url: str) -> str:
    """The MD5 sum that the publisher gives for a file."""
    with open_url(url + ".md5") as answer:
        check_https(answer.geturl())
        text = answer.read(CHECKSUM_LIMIT).decode("ascii", errors="replace")
    sums = re.findall(r"\b[0-9a-fA-F]{32}\b", text)
    if len(sums) != 1:
        raise DownloadError(f"{url}.md5 does not hold one MD5 sum")
    return str(sums[0]).lower()


def _download_to_file(url: str, path: Path, limit: int) -> str:
    """Write a download to a file; its MD5 sum."""
    md5, size = hashlib.md5(usedforsecurity=False), 0
    with open_url(url) as answer, path.open("wb") as file:
        check_https(answer.geturl())
        while chunk := answer.read(DOWNLOAD_CHUNK_BYTES):
            size += len(chunk)
            if size > limit:
                raise DownloadError(f"{url} is larger than {limit} bytes: given up")
            md5.update(chunk)
            file.write(chunk)
    return md5.hexdigest()


def _check_md5(url: str, actual: str, expected: str) -> None:
    if actual != expected:
        raise DownloadError(
            f"{url} came with MD5 sum {actual}, but its publisher says {expected}: the "
            "download was cut short or changed on its way"
        )


def open_url(url: str) -> Any:
    """Open an address; the only function here that uses the network."""
    check_https(url)
    request = urllib.request.Request(url, headers={"User-Agent": "ncarl"})
    opener = urllib.request.build_opener(SecureRedirects)
    return opener.open(request, timeout=TIMEOUT)


def check_https(url: str) -> None:
    """Raise if an address does not use HTTPS."""
    if not url.lower().startswith("https://"):
        raise DownloadError(f"refused an address that is not HTTPS: {url}")


class SecureRedirects(urllib.request.HTTPRedirectHandler):
    """Follow redirects to HTTPS only."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: Message,
        newurl: str,
    ) -> urllib.request.Request | None:
        """The redirected request; raises for other addresses."""
        check_https(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)  # type: ignore[arg-type]
