"""Files that are whole or absent: atomic writes, and archives with a checksum."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any
from zipfile import ZIP_STORED, BadZipFile, ZipFile, ZipInfo

import numpy as np

from ncarl.core.types import Array
from ncarl.exceptions import BrokenFileError
from ncarl.temporaries import new_temporary, sweep, sync_folder

MAGIC = b"ncarl archive\n"
VERSION = 1
HEADER = "__header__"
DIGEST = hashlib.sha256().digest_size
#: Bytes of an array that are copied at a time on their way to a file.
CHUNK = 1 << 20
WAY_OUT = "put a sound copy in its place, or remove it and begin again"


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str], mode: int | None = None) -> Iterator[Path]:
    """A temporary path beside ``path`` that takes its place when the block succeeds.

    Whatever stood at ``path`` stays untouched until then, and for good if the block
    raises. What a process that was killed left behind of an earlier attempt is removed
    after the next success; files that a living process writes are left alone.

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
    temporary, lock = new_temporary(target)
    try:
        yield temporary
        with temporary.open("rb+") as stream:
            os.fsync(stream.fileno())
        temporary.chmod(_usual_mode(target) if mode is None else mode)
        temporary.replace(target)
        sync_folder(target.parent)
    finally:
        # Told of is what went wrong before, not that tidying up failed too.
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if lock is not None:
            os.close(lock)
    sweep(target)


def _usual_mode(target: Path) -> int:
    """Permissions of the file being replaced, or of a new file of this process."""
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


class _Hashed:
    """A stream to write to that works out the checksum of what goes through it."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream, self.sum = stream, hashlib.sha256()

    def write(self, data: bytes, /) -> int:
        """Pass bytes on."""
        self.sum.update(data)
        self.stream.write(data)
        return len(data)

    def flush(self) -> None:
        """Do nothing; the stream is flushed when its owner closes it."""

    def close(self) -> None:
        """Do nothing; the stream is closed by its owner."""


def write_archive(
    path: str | os.PathLike[str], header: Mapping[str, Any], arrays: Mapping[str, Array]
) -> None:
    """Write arrays and a JSON header to a private file with a checksum.

    The arrays go to the file piece by piece: no second copy of them is made.
    """
    text = json.dumps({"version": VERSION, **header})
    words = np.frombuffer(text.encode(), dtype=np.uint8)
    with replacing(path, mode=0o600) as temporary, temporary.open("wb") as stream:
        stream.write(MAGIC)
        stream.write(bytes(DIGEST))
        body = _Hashed(stream)
        with ZipFile(body, "w") as parts:
            for name, array in {HEADER: words, **arrays}.items():
                entry = ZipInfo(f"{name}.npy")
                with parts.open(entry, "w", force_zip64=True) as part:
                    _write_array(part, np.asanyarray(array))
        stream.seek(len(MAGIC))
        stream.write(body.sum.digest())


def _write_array(stream: IO[bytes], array: Array) -> None:
    """Write an array in NumPy's format, a piece at a time."""
    if array.dtype.hasobject:
        raise ValueError("Object arrays cannot be written, only numbers and text")
    described = np.lib.format.header_data_from_array_1_0(array)
    np.lib.format.write_array_header_1_0(stream, described)
    pieces = np.nditer(
        array,
        flags=["external_loop", "buffered", "zerosize_ok"],
        buffersize=max(CHUNK // max(array.itemsize, 1), 1),
        order="F" if described["fortran_order"] else "C",
    )
    for piece in pieces:
        stream.write(np.asarray(piece).tobytes())


def read_archive(
    path: str | os.PathLike[str], kind: str, *others: str
) -> tuple[dict[str, Any], dict[str, Array]]:
    """Header and arrays of an archive, after checking that it is whole.

    Parameters
    ----------
    path : path
        The file.
    kind : str
        What it should hold.
    *others : str
        What else it may hold.

    Raises
    ------
    BrokenFileError
        If the file is foreign, damaged, of another kind or of a later version.
    """
    with Path(path).open("rb") as stream:
        # Nothing of it is believed, no size either, before the checksum has been seen.
        _check_whole(path, stream)
        try:
            return _content(path, stream, (kind, *others))
        except BrokenFileError:
            raise
        except (
            *(ValueError, LookupError, TypeError, ArithmeticError, RuntimeError),
            *(OSError, EOFError, BadZipFile, zlib.error),
        ) as error:
            raise BrokenFileError(
                f"path {str(path)!r} is damaged: it holds no archive of arrays; "
                f"{WAY_OUT}"
            ) from error


def _check_whole(path: str | os.PathLike[str], stream: IO[bytes]) -> None:
    """Raise if a file is not one of ours, byte for byte as it was written."""
    start = stream.read(len(MAGIC) + DIGEST)
    if not start:
        raise BrokenFileError(
            f"path {str(path)!r} is empty, not a file written by ncarl; {WAY_OUT}"
        )
    if not start.startswith(MAGIC[: len(start)]):
        raise BrokenFileError(
            f"path {str(path)!r} is not a file written by ncarl, or its beginning is "
            "damaged; name another one, or move it away"
        )
    found = hashlib.file_digest(stream, "sha256").digest()  # type: ignore[arg-type]
    if found != start[len(MAGIC) :]:
        raise BrokenFileError(
            f"path {str(path)!r} is damaged: its checksum does not match its content; "
            f"{WAY_OUT}"
        )
    stream.seek(len(start))


def _content(
    path: str | os.PathLike[str], stream: IO[bytes], kinds: tuple[str, ...]
) -> tuple[dict[str, Any], dict[str, Array]]:
    """Header and arrays of the part that the checksum covers."""
    with ZipFile(stream) as parts:
        _refuse_inflated(parts, os.fstat(stream.fileno()).st_size)
        header = json.loads(_read_array(parts, f"{HEADER}.npy").tobytes())
        version = int(header["version"])
        if version > VERSION:
            raise BrokenFileError(
                f"path {str(path)!r} was written by a later ncarl (format {version}); "
                f"this one reads up to {VERSION}"
            )
        if header.get("kind") not in kinds:
            raise BrokenFileError(
                f"path {str(path)!r} holds a {header.get('kind')}, expected a "
                f"{kinds[0]}"
            )
        names = [name for name in parts.namelist() if name != f"{HEADER}.npy"]
        arrays = {name.removesuffix(".npy"): _read_array(parts, name) for name in names}
        return {**header, "version": version}, arrays


def _refuse_inflated(parts: ZipFile, size: int) -> None:
    """Raise if the parts claim more bytes than the file has: a sum proves no intent."""
    entries = parts.infolist()
    packed = any(entry.compress_type != ZIP_STORED for entry in entries)
    if packed or sum(entry.file_size for entry in entries) > size:
        raise ValueError("parts are larger than the file that holds them")


def _read_array(parts: ZipFile, name: str) -> Array:
    """An array of an archive, if it is as long as it says."""
    with parts.open(name) as part:
        if np.lib.format.read_magic(part) != (1, 0):
            raise ValueError(f"{name} has an unknown format")
        shape, _, dtype = np.lib.format.read_array_header_1_0(part)
        claimed = part.tell() + math.prod(shape) * dtype.itemsize
    if claimed != parts.getinfo(name).file_size:
        raise ValueError(f"{name} is not as long as it says")
    with parts.open(name) as part:
        array: Array = np.lib.format.read_array(part, allow_pickle=False)
    return array
