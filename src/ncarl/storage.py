"""Files that are whole or absent: atomic writes, and archives with a checksum."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from ncarl.core.types import Array
from ncarl.exceptions import BrokenFileError

MAGIC = b"ncarl archive\n"
VERSION = 1
HEADER = "__header__"


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str], mode: int | None = None) -> Iterator[Path]:
    """A temporary path beside ``path`` that takes its place when the block succeeds.

    Whatever stood at ``path`` stays untouched until then, and for good if the block
    raises.

    Parameters
    ----------
    path : path
        Where the file belongs.
    mode : int, optional
        Permissions of the file; by default those of the file it replaces, or what
        the process would give a new file.
    """
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"the folder {str(target.parent)!r} does not exist")
    handle, name = tempfile.mkstemp(
        prefix=f".{target.name}.", suffix=target.suffix, dir=target.parent
    )
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb+") as stream:
            os.fsync(stream.fileno())
        temporary.chmod(_usual_mode(target) if mode is None else mode)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def _usual_mode(target: Path) -> int:
    """Permissions of the file being replaced, or of a new file of this process."""
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def write_archive(
    path: str | os.PathLike[str], header: Mapping[str, Any], arrays: Mapping[str, Array]
) -> None:
    """Write arrays and a JSON header to a private file with a checksum."""
    text = json.dumps({"version": VERSION, **header})
    payload = io.BytesIO()
    words = np.frombuffer(text.encode(), dtype=np.uint8)
    np.savez(payload, allow_pickle=False, **{HEADER: words, **arrays})
    body = payload.getbuffer()
    with replacing(path, mode=0o600) as temporary, temporary.open("wb") as stream:
        stream.write(MAGIC)
        stream.write(hashlib.sha256(body).digest())
        stream.write(body)


def read_archive(
    path: str | os.PathLike[str], kind: str
) -> tuple[dict[str, Any], dict[str, Array]]:
    """Header and arrays of an archive, after checking that it is whole.

    Raises
    ------
    BrokenFileError
        If the file is foreign, damaged, of another kind or of a later version.
    """
    data = Path(path).read_bytes()
    start = len(MAGIC) + hashlib.sha256().digest_size
    if data[: len(MAGIC)] != MAGIC:
        raise BrokenFileError(f"path {str(path)!r} is not a file written by ncarl")
    body = memoryview(data)[start:]
    if hashlib.sha256(body).digest() != data[len(MAGIC) : start]:
        raise BrokenFileError(
            f"path {str(path)!r} is damaged: its checksum does not match its content"
        )
    header, arrays = _content(path, body)
    if header["version"] > VERSION:
        raise BrokenFileError(
            f"path {str(path)!r} was written by a later ncarl (format "
            f"{header['version']}); this one reads up to {VERSION}"
        )
    if header.get("kind") != kind:
        raise BrokenFileError(
            f"path {str(path)!r} holds a {header.get('kind')}, expected a {kind}"
        )
    return header, arrays


def _content(
    path: str | os.PathLike[str], body: memoryview
) -> tuple[dict[str, Any], dict[str, Array]]:
    """Header and arrays of the part that the checksum covers."""
    try:
        with np.load(io.BytesIO(body), allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        header = json.loads(arrays.pop(HEADER).tobytes())
        header["version"] = int(header["version"])
    except (ValueError, LookupError, TypeError, OSError, EOFError, BadZipFile) as error:
        raise BrokenFileError(
            f"path {str(path)!r} is damaged: it holds no archive of arrays"
        ) from error
    return header, arrays
