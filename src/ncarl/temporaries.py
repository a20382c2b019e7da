"""Temporary files beside the files they are to replace, and what is left of them."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import tempfile
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows has no such locks: nothing is swept there
    fcntl = None  # type: ignore[assignment]

#: What the names of temporary files have in them, and no file of a user.
MARK = ".ncarl-"
#: What file systems say that cannot sync a folder.
NO_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES)


def sync_folder(folder: Path) -> None:
    """Have the new name of a file outlive a power cut, where that can be asked for."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:  # may be written to but not read; Windows
        return
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in NO_SYNC:
            raise
    finally:
        os.close(handle)


def new_temporary(target: Path) -> tuple[Path, int | None]:
    """A new file beside ``target``, and the lock that says that it is in use.

    The kernel takes the lock back when the process ends, in whatever way.
    """
    while True:
        handle, name = tempfile.mkstemp(
            prefix=f".{target.name}{MARK}", suffix=target.suffix, dir=target.parent
        )
        temporary = Path(name)
        if fcntl is None:
            os.close(handle)
            return temporary, None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)  # it is being swept away before it could be locked
            continue
        except OSError:  # no locks in this folder, so none will sweep it
            return temporary, handle
        if temporary.exists():
            return temporary, handle
        os.close(handle)


def sweep(target: Path) -> None:
    """Remove temporary files for ``target`` whose process has ended."""
    if fcntl is None:
        return
    begin, end = f".{target.name}{MARK}", target.suffix
    name = re.compile(f"{re.escape(begin)}[a-z0-9_]{{8}}{re.escape(end)}")
    with contextlib.suppress(OSError):  # the file that matters is in its place
        for path in target.parent.iterdir():
            if name.fullmatch(path.name):
                _remove_if_left(path)


def _remove_if_left(path: Path) -> None:
    """Remove a temporary file, unless a living process has its lock."""
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
        finally:
            os.close(handle)
