"""Read the files of data sets with checks, and download them.

NPZ files are read without pickle, members of archives and downloads have size limits,
and a download must match a known SHA-256 sum, or the MD5 sum of its publisher.
Libraries for downloads lack the size limit and allow redirects to HTTP, so this is our
own code.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import logging
import re
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, TypeVar
from zipfile import BadZipFile, ZipFile, is_zipfile

import numpy as np

from ncarl.core.types import Array
from ncarl.exceptions import BrokenFileError, DownloadError
from ncarl.io.files import atomic_write

logger = logging.getLogger("ncarl")
#: Kinds of NumPy dtypes, as ``dtype.kind`` has them.
INTEGER_KINDS, NUMERIC_KINDS = "iu", "iuf"
#: Bytes of a download that are read at once, and the largest size of a checksum file.
DOWNLOAD_CHUNK_BYTES, CHECKSUM_LIMIT = 1 << 16, 4096
T = TypeVar("T")


def read_arrays(
    path: Path,
    required: Mapping[str, tuple[str, int]],
    optional: Mapping[str, tuple[str, int]] | None = None,
) -> dict[str, Array]:
    """Read arrays of an NPZ file; mappings give kinds of dtypes and dimensions."""
    expected = {**required, **(optional or {})}
    try:
        # NumPy leaves a damaged file open if it opens it itself.
        with path.open("rb") as stream:
            archive = np.load(stream, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise ValueError("it is one array")
            arrays = {name: archive[name] for name in expected if name in archive.files}
    except (ValueError, LookupError, EOFError, BadZipFile, zlib.error) as error:
        raise BrokenFileError(
            f"{str(path)!r} is damaged or no NPZ file of arrays: {error}"
        ) from error
    absent, names = [k for k in required if k not in arrays], ", ".join(required)
    raise_if_invalid(path, bool(absent), f"arrays {names}", f"no {', '.join(absent)}")
    for name, array in arrays.items():
        kinds, ndim = expected[name]
        if array.dtype.kind not in kinds or array.ndim != ndim:
            raise BrokenFileError(
                f"array {name} of {str(path)!r} must have {ndim} dimensions and a "
                f"dtype of kind {kinds}, got shape {array.shape}, dtype {array.dtype}"
            )
    return arrays


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
    if not path.is_dir() and not is_zipfile(path):
        raise BrokenFileError(f"{str(path)!r} is neither a folder nor a ZIP archive")
    source: Any = contextlib.nullcontext(path) if path.is_dir() else ZipFile(path)
    try:
        with source as opened:
            root = path if path.is_dir() else zipfile.Path(opened)
            found = [name for name in members if (root / name).is_file()]
            raise_if_invalid(path, not found, " or ".join(members), "neither")
            if path.is_dir():
                size = (path / found[0]).stat().st_size
            else:
                size = opened.getinfo(found[0]).file_size
            if size > limit:
                raise BrokenFileError(
                    f"{found[0]} of {str(path)!r} takes {size} bytes, and the true one "
                    f"at most {limit}: this is another file"
                )
            with (root / found[0]).open("rb") as stream:
                yield stream
    except (BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise BrokenFileError(f"{str(path)!r} is damaged: {error}") from error


def fetch(
    url: str, target: Path, limit: int, read: Callable[[Path], T], sha256: str | None
) -> T:
    """Download a file of at most ``limit`` bytes, check it, and ``read`` it.

    Without ``sha256`` its MD5 sum is at the same address plus ``.md5``. Nothing is left
    at ``target`` if anything fails, ``read`` included.
    """
    logger.info("downloading %s to %s", url, target)
    try:
        algorithm, expected = ("sha256", sha256) if sha256 else ("md5", _fetch_md5(url))
        target.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(target) as temporary:
            found = _download_to_file(url, temporary, limit, algorithm)
            if found != expected:
                raise DownloadError(
                    f"{url} came with {algorithm.upper()} sum {found}, expected "
                    f"{expected}: the download was truncated or modified"
                )
            return read(temporary)
    except BrokenFileError as error:
        raise DownloadError(f"{url} gave an unexpected file: {error}") from error
    except DownloadError:
        raise
    except (OSError, http.client.HTTPException) as error:
        reason = str(error) or type(error).__name__
        raise DownloadError(f"could not get {url}: {reason}") from error


def _fetch_md5(url: str) -> str:
    with open_url(url + ".md5") as answer:
        check_https(answer.geturl())
        text = answer.read(CHECKSUM_LIMIT).decode("ascii", errors="replace")
    sums = re.findall(r"\b[0-9a-fA-F]{32}\b", text)
    if len(sums) != 1:
        raise DownloadError(f"{url}.md5 does not hold one MD5 sum")
    return str(sums[0]).lower()


def _download_to_file(url: str, path: Path, limit: int, algorithm: str) -> str:
    """Write a download to a file; its checksum."""
    checksum, size = hashlib.new(algorithm, usedforsecurity=False), 0
    with open_url(url) as answer, path.open("wb") as file:
        check_https(answer.geturl())
        while chunk := answer.read(DOWNLOAD_CHUNK_BYTES):
            size += len(chunk)
            if size > limit:
                raise DownloadError(f"{url} is larger than {limit} bytes")
            checksum.update(chunk)
            file.write(chunk)
    return checksum.hexdigest()


def open_url(url: str) -> Any:
    """Open an address; the only function here that uses the network."""
    check_https(url)
    request = urllib.request.Request(url, headers={"User-Agent": "ncarl"})
    opener = urllib.request.build_opener(SecureRedirects)
    return opener.open(request, timeout=30.0)


def check_https(url: str) -> None:
    """Raise if an address does not use HTTPS."""
    if not url.lower().startswith("https://"):
        raise DownloadError(f"refused an address that is not HTTPS: {url}")


class SecureRedirects(urllib.request.HTTPRedirectHandler):
    """Follow redirects to HTTPS only."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> Any:
        """The request of a redirect to the last argument."""
        check_https(args[-1])
        return super().redirect_request(*args, **kwargs)
