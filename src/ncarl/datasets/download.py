"""Downloads over HTTPS: capped, checked against the publisher's checksum, atomic."""

from __future__ import annotations

import hashlib
import http.client
import logging
import re
import urllib.request
from collections.abc import Callable
from email.message import Message
from pathlib import Path
from typing import IO, Any, TypeVar

from ncarl.datasets.errors import DownloadError
from ncarl.exceptions import BrokenFileError
from ncarl.storage import replacing

T = TypeVar("T")

logger = logging.getLogger("ncarl")
#: Seconds without an answer after which to give up.
TIMEOUT = 30.0
#: Bytes that are read at a time, and the most that a checksum file may have.
CHUNK, CHECKSUM_LIMIT = 1 << 16, 4096


class SecureRedirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects to HTTPS and refuses all others."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: Message,
        newurl: str,
    ) -> urllib.request.Request | None:
        """The request to make instead, or an error."""
        refuse_insecure(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)  # type: ignore[arg-type]


def refuse_insecure(url: str) -> None:
    """Raise if an address is not one of HTTPS."""
    if not url.lower().startswith("https://"):
        raise DownloadError(f"refused an address that is not HTTPS: {url}")


def open_url(url: str) -> Any:
    """An answer to read from; the only function here that touches the network."""
    refuse_insecure(url)
    request = urllib.request.Request(url, headers={"User-Agent": "ncarl"})
    opener = urllib.request.build_opener(SecureRedirects)
    return opener.open(request, timeout=TIMEOUT)


def fetch(url: str, target: Path, limit: int, read: Callable[[Path], T]) -> T:
    """What ``read`` makes of a file, once it is downloaded; then the file is kept.

    Parameters
    ----------
    url : str
        The file; its MD5 sum is at the same address with ``.md5`` at the end.
    target : Path
        Where the file is kept. Nothing is left there if anything fails.
    limit : int
        Bytes after which the download is given up.
    read : callable
        Reads the file, and raises `BrokenFileError` if it is not the right one.
    """
    logger.info("downloading %s to %s", url, target)
    try:
        expected = _published_sum(url)
        target.parent.mkdir(parents=True, exist_ok=True)
        with replacing(target) as temporary:
            _refuse_other(url, _stream(url, temporary, limit), expected)
            return read(temporary)
    except BrokenFileError as error:
        raise DownloadError(f"{url} gave an unexpected file: {error}") from error
    except DownloadError:
        raise
    except (OSError, http.client.HTTPException) as error:
        reason = str(error) or type(error).__name__
        raise DownloadError(f"could not get {url}: {reason}") from error


def _published_sum(url: str) -> str:
    """The MD5 sum that the publisher gives for a file."""
    with open_url(url + ".md5") as answer:
        refuse_insecure(answer.geturl())
        text = answer.read(CHECKSUM_LIMIT).decode("ascii", errors="replace")
    sums = re.findall(r"\b[0-9a-fA-F]{32}\b", text)
    if len(sums) != 1:
        raise DownloadError(f"{url}.md5 does not hold one MD5 sum")
    return str(sums[0]).lower()


def _stream(url: str, path: Path, limit: int) -> str:
    """Write the answer to a file; the MD5 sum of what came."""
    seen, size = hashlib.md5(usedforsecurity=False), 0
    with open_url(url) as answer, path.open("wb") as file:
        refuse_insecure(answer.geturl())
        while chunk := answer.read(CHUNK):
            size += len(chunk)
            if size > limit:
                raise DownloadError(f"{url} is larger than {limit} bytes: given up")
            seen.update(chunk)
            file.write(chunk)
    return seen.hexdigest()


def _refuse_other(url: str, came: str, expected: str) -> None:
    if came != expected:
        raise DownloadError(
            f"{url} came with MD5 sum {came}, but its publisher says {expected}: the "
            "download was cut short or changed on its way"
        )
