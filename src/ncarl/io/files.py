"""Files that are complete or absent: atomic writes, and archives with a checksum."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import math
import os
import re
import secrets
import stat
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any
from zipfile import ZIP_STORED, BadZipFile, ZipFile

import numpy as np

from ncarl.core.types import Array
from ncarl.exceptions import (
    BrokenFileError,
    CheckpointMismatchError,
    NotPositiveDefiniteError,
)
from ncarl.text import one_line

try:
    import fcntl
except ImportError:  # Windows: stale temporary files are not removed
    fcntl = None  # type: ignore[assignment]

#: Part of the names of temporary files.
TEMPORARY_MARKER = ".ncarl-"
#: Errors of file systems that cannot sync a folder.
UNSUPPORTED_SYNC_ERRNOS = (errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES)
#: What a path may lead to; anything else is a device.
FILE_KINDS = {stat.S_IFREG: "a file", stat.S_IFDIR: "a folder",
              stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket"}  # fmt: skip

#: An archive is `MAGIC`, the SHA-256 digest of the rest, and an NPZ file whose array
#: `HEADER_NAME` is a header in JSON.
MAGIC = b"ncarl archive\n"
ARCHIVE_VERSION = 2
HEADER_NAME = "__header__"
DIGEST_SIZE = hashlib.sha256().digest_size
#: Errors that say what is wrong, and those that invalid content of a file causes.
PLAIN_ERRORS = BrokenFileError, CheckpointMismatchError, NotPositiveDefiniteError
CONTENT_ERRORS: tuple[type[Exception], ...] = (
    ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError
)  # fmt: skip
DAMAGED_FILE_HINT = "restore it from a backup, or remove it and start again"


def file_kind(path: str | os.PathLike[str]) -> str | None:
    """What a path leads to, links followed; None if there is nothing."""
    try:
        mode = Path(path).stat().st_mode
    except OSError:
        return "a link that leads to no file" if Path(path).is_symlink() else None
    return FILE_KINDS.get(stat.S_IFMT(mode), "a device")


def check_rereadable(path: str | os.PathLike[str]) -> None:
    """Raise if a path is a device, FIFO or socket, which give their bytes once."""
    kind = file_kind(path)
    if kind in ("a device", "a FIFO", "a socket"):
        raise ValueError(
            f"{str(path)!r} is {kind}, which cannot be read more than once; copy its "
            "content into a file, and name that"
        )


def resolve_output(
    path: str | os.PathLike[str], name: str = "path", *, folder: bool = False
) -> Path:
    """The file, or folder, that is written for ``path``; links are followed.

    Raises if anything else is there, which a new file would replace, or if there is no
    folder for it. Errors call the path ``name``.
    """
    expected, kind = "a folder" if folder else "a file", file_kind(path)
    if kind not in (None, expected):
        raise FileExistsError(
            f"{name} {str(path)!r} is {kind}, and is not replaced; name {expected}, or "
            "remove it"
        )
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        where = f"the folder {str(Path(path).parent)!r}"
        raise FileNotFoundError(f"{name}: {where} does not exist; create it")
    return target


@contextlib.contextmanager
def atomic_write(
    path: str | os.PathLike[str], mode: int | None = None
) -> Iterator[Path]:
    """A temporary path beside ``path`` that replaces it when the block succeeds.

    A file at ``path`` stays untouched until then, and for good if the block raises;
    see `resolve_output` for what else may be there. Temporary files that a killed
    process left behind are removed after the next success; those of a running process
    are left alone.

    Permissions are ``mode``, by default those of the file it replaces, or those of a
    new file of this process.
    """
    target, suffix = resolve_output(path), Path(path).suffix
    if mode is None and target.exists():
        mode = target.stat().st_mode & 0o777
    with name_disk_errors(path, target):
        # The kernel subtracts the umask.
        new_mode = 0o666 if mode is None else 0o600
        temporary, handle = _create_temporary(target, suffix, new_mode)
        try:
            yield temporary
            with temporary.open("rb+") as stream:
                os.fsync(stream.fileno())
            if mode is not None:
                temporary.chmod(mode)
            temporary.replace(target)
            _sync_folder(target.parent)
        finally:
            # An error of the block must not be masked by one of the clean-up.
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            os.close(handle)
    _remove_stale_temporaries(target, suffix)


@contextlib.contextmanager
def name_disk_errors(path: str | os.PathLike[str], target: Path) -> Iterator[None]:
    """Errors of the disk name ``path``, not a temporary of ``target``, or nothing."""
    start = str(target.with_name(f".{target.name}{TEMPORARY_MARKER}"))
    try:
        yield
    except OSError as error:
        unnamed = error.filename is None and type(error) is OSError
        if not unnamed and not str(error.filename).startswith(start):
            raise
        reason = error.strerror or str(error)
        raise OSError(error.errno or errno.EIO, reason, str(path)) from error


def temporary_path(target: Path, suffix: str) -> Path:
    """A name beside ``target`` that is most likely free."""
    name = f".{target.name}{TEMPORARY_MARKER}{secrets.token_hex(4)}{suffix}"
    return target.with_name(name)


def _create_temporary(target: Path, suffix: str, mode: int) -> tuple[Path, int]:
    """Create a file beside ``target``; its handle holds a lock: it is in use.

    The operating system releases the lock when the process ends, in whatever way.
    """
    while True:
        path = temporary_path(target, suffix)
        try:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)
        except FileExistsError:
            continue
        try:
            if fcntl is not None:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # another process is just removing it as stale
            os.close(handle)
            continue
        except OSError:  # no locks on this file system: nobody will remove it
            return path, handle
        if path.exists():
            return path, handle
        os.close(handle)


def _remove_stale_temporaries(target: Path, end: str) -> None:
    if fcntl is None:
        return
    begin = f".{target.name}{TEMPORARY_MARKER}"
    name = re.compile(f"{re.escape(begin)}[a-z0-9_]{{8}}{re.escape(end)}")
    with contextlib.suppress(OSError):  # the target itself is written by now
        stale = [p for p in target.parent.iterdir() if name.fullmatch(p.name)]
        for path in stale:
            with contextlib.suppress(OSError):  # in use
                handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    path.unlink()
                finally:
                    os.close(handle)


def _sync_folder(folder: Path) -> None:
    """Make a rename in ``folder`` survive a power cut, where that is supported."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:  # Windows, or a folder without read permission
        return
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in UNSUPPORTED_SYNC_ERRNOS:
            raise
    finally:
        os.close(handle)


def write_npz(
    file: Path | IO[bytes], arrays: Mapping[str, Array], compression: int = ZIP_STORED
) -> None:
    """Write arrays to an NPZ file; `numpy.savez` does not take all names."""
    with ZipFile(file, "w", compression) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as stream:
                np.lib.format.write_array(
                    stream, np.asanyarray(array), allow_pickle=False
                )


def write_archive(
    path: str | os.PathLike[str], header: Mapping[str, Any], arrays: Mapping[str, Array]
) -> None:
    """Write arrays and a JSON header to a file with a checksum, readable by its owner.

    Arrays are written in pieces, without a second copy in memory. ``numpy.savez``
    is not used because it has no checksum over the whole file and no format version.
    """
    text = json.dumps({"version": ARCHIVE_VERSION, **header})
    header_bytes = np.frombuffer(text.encode(), dtype=np.uint8)
    with atomic_write(path, mode=0o600) as temporary, temporary.open("wb+") as stream:
        stream.write(MAGIC + bytes(DIGEST_SIZE))
        write_npz(stream, {HEADER_NAME: header_bytes, **arrays})
        stream.seek(len(MAGIC) + DIGEST_SIZE)
        digest = _digest(stream)
        stream.seek(len(MAGIC))
        stream.write(digest)


def read_archive(
    path: str | os.PathLike[str], kind: str, *other_kinds: str
) -> tuple[dict[str, Any], dict[str, Array]]:
    """Header and arrays of an archive of one of the kinds, or a `BrokenFileError`."""
    check_rereadable(path)
    with Path(path).open("rb") as stream:
        # Nothing in the file is used before its checksum has been verified.
        _verify_checksum(path, stream)
        with broken_on_error(path, Exception):
            return _read_members(path, stream, (kind, *other_kinds))


@contextlib.contextmanager
def broken_on_error(
    path: str | os.PathLike[str], *others: type[Exception], kind: str = ""
) -> Iterator[None]:
    """Turn errors about the content of a file into a `BrokenFileError` that names it.

    A file with a valid checksum may hold anything: a checksum is no signature. ``kind``
    is that of a file which was not written by ncarl.
    """
    try:
        yield
    except (*PLAIN_ERRORS, MemoryError):
        raise
    except (*CONTENT_ERRORS, *others) as error:
        name = repr(str(path))
        if kind and name in str(error):
            raise
        problem = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        message = (
            f"path {name} is damaged, or was written by another version of ncarl: "
            f"{problem}; {DAMAGED_FILE_HINT}"
        )
        if kind:
            message = f"{name} cannot be read as {kind}: {one_line(error)}"
        raise BrokenFileError(message) from error


def name_broken_file(path: Path, kind: str) -> contextlib.AbstractContextManager[None]:
    """`broken_on_error` for what a library raises that reads a file of some kind."""
    others = RuntimeError, OSError, EOFError, BadZipFile, zlib.error
    return broken_on_error(path, *others, kind=kind)


def _digest(stream: IO[bytes]) -> bytes:
    return hashlib.file_digest(stream, "sha256").digest()  # type: ignore[arg-type]


def _verify_checksum(path: str | os.PathLike[str], stream: IO[bytes]) -> None:
    start = stream.read(len(MAGIC) + DIGEST_SIZE)
    if not start:
        reason = f"is empty, not a file written by ncarl; {DAMAGED_FILE_HINT}"
    elif not start.startswith(MAGIC[: len(start)]):
        reason = "is not a file written by ncarl, or its beginning is damaged; name "
        reason += "another one, or move it away"
    elif _digest(stream) != start[len(MAGIC) :]:
        reason = "is damaged: its checksum does not match its content; "
        reason += DAMAGED_FILE_HINT
    else:
        stream.seek(len(start))
        return
    raise BrokenFileError(f"path {str(path)!r} {reason}")


def _read_members(
    path: str | os.PathLike[str], stream: IO[bytes], kinds: tuple[str, ...]
) -> tuple[dict[str, Any], dict[str, Array]]:
    """Header and arrays of the ZIP file that begins at the position of ``stream``."""
    with ZipFile(stream) as members:
        names = members.namelist()
        if len(set(names)) < len(names):
            raise ValueError("a name occurs twice in it")
        claimed = sum(info.file_size for info in members.infolist())
        if claimed > os.fstat(stream.fileno()).st_size:
            raise ValueError(
                f"its arrays have a length of {claimed} bytes, more than it"
            )
        names.remove(f"{HEADER_NAME}.npy")
        header = json.loads(_read_array(members, f"{HEADER_NAME}.npy").tobytes())
        version = int(header["version"])
        if version != ARCHIVE_VERSION:
            age, reads = "an earlier", f"{ARCHIVE_VERSION}; fit again"
            if version > ARCHIVE_VERSION:
                age, reads = "a later", f"up to {ARCHIVE_VERSION}; update ncarl"
            raise BrokenFileError(
                f"path {str(path)!r} was written by {age} ncarl (format {version}), "
                f"and this one reads {reads}"
            )
        if header.get("kind") not in kinds:
            raise BrokenFileError(
                f"path {str(path)!r} holds a {header.get('kind')}, expected a "
                f"{kinds[0]}"
            )
        return header, {n.removesuffix(".npy"): _read_array(members, n) for n in names}


def _read_array(members: ZipFile, name: str) -> Array:
    """Read a member; raises before memory is allocated for a size it does not have."""
    info = members.getinfo(name)
    if not name.endswith(".npy") or info.file_size != info.compress_size:
        raise ValueError(f"{name} is not an array of its own length")
    with members.open(name) as member:
        if np.lib.format.read_magic(member) != (1, 0):
            raise ValueError(f"{name} has an unknown format")
        shape, _, dtype = np.lib.format.read_array_header_1_0(member)
        claimed = member.tell() + math.prod(shape) * dtype.itemsize
        if info.compress_type != ZIP_STORED or claimed != info.file_size:
            raise ValueError(f"{name} has an unexpected length")
        member.seek(0)
        return np.lib.format.read_array(member, allow_pickle=False)


def write_json(path: Path, content: Any, *, indent: int = 2) -> None:
    """Write a JSON file atomically."""
    text = json.dumps(content, indent=indent, allow_nan=False, ensure_ascii=False)
    with atomic_write(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def jsonable(value: Any) -> Any:
    """Convert a value to what JSON can hold: no NaN, no array scalar, no tuple.

    >>> jsonable({"curve": (1.0, float("nan")), 3: "three"})
    {'curve': [1.0, None], '3': 'three'}
    """
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): jsonable(item) for name, item in value.items()}
    if isinstance(value, Sequence):
        return [jsonable(item) for item in value]
    if hasattr(value, "tolist"):  # NumPy's scalars and arrays
        return jsonable(value.tolist())
    return str(value)
