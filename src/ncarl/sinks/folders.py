"""Folders that are whole or absent, as files are."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """A temporary folder beside ``path`` that takes its place if the block succeeds.

    Whatever stood at ``path`` stays untouched until then, and for good if the block
    raises. Two folders cannot change places at once: should the machine stop between
    two renames, the old one is left beside the new, under a name that begins with a
    dot and ends in ``.old``.
    """
    target = path.absolute()
    name = tempfile.mkdtemp(
        prefix=f".{target.name}.", suffix=target.suffix, dir=target.parent
    )
    temporary = Path(name)
    try:
        temporary.chmod(_usual_mode(target))
        yield temporary
        _to_disk(temporary)
        _put(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _put(temporary: Path, target: Path) -> None:
    """Move a folder to its place, and remove what was there."""
    if not target.exists():
        temporary.rename(target)
        return
    old = temporary.with_name(f"{temporary.name}.old")
    target.rename(old)
    try:
        temporary.rename(target)
    except BaseException:
        old.rename(target)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _to_disk(folder: Path) -> None:
    """Wait until all files of a folder are on the disk."""
    for place, _, names in os.walk(folder):
        for name in names:
            with (Path(place) / name).open("rb+") as stream:
                os.fsync(stream.fileno())


def _usual_mode(target: Path) -> int:
    """Permissions of the folder being replaced, or of a new one of this process."""
    if target.exists():
        return target.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o777 & ~mask
