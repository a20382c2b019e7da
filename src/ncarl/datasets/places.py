"""Where data sets lie on this computer."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from ncarl.datasets.errors import DataNotFoundError

#: Environment variable that names a folder of data sets.
VARIABLE = "NCARL_DATA"


def cache_folder() -> Path:
    """The folder of downloaded data sets; it need not exist.

    Examples
    --------
    >>> cache_folder().name
    'ncarl'
    """
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA", "")
        base = Path(local) if local else Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        # The standard says that a relative path here is to be ignored.
        named = Path(os.environ.get("XDG_CACHE_HOME", ""))
        base = named if named.is_absolute() else Path.home() / ".cache"
    return base / "ncarl"


def data_folders() -> list[Path]:
    """Folders to look into, in this order.

    Raises
    ------
    NotADirectoryError
        If the environment variable names something else than a folder.
    """
    named = os.environ.get(VARIABLE)
    if not named:
        return [cache_folder()]
    folder = Path(named).expanduser()
    if not folder.is_dir():
        raise NotADirectoryError(
            f"the environment variable {VARIABLE} must name a folder of data sets, got "
            f"{named!r}, which is none"
        )
    return [folder, cache_folder()]


def find(files: Sequence[str]) -> Path | None:
    """The first of some files or folders that is there, or None."""
    for folder in data_folders():
        for file in files:
            if (folder / file).exists():
                return folder / file
    return None


def looked_for(files: Sequence[str]) -> str:
    """A sentence on what `find` looked for, and where."""
    folders = " and ".join(repr(str(folder)) for folder in data_folders())
    unset = "" if os.environ.get(VARIABLE) else f" ({VARIABLE} is not set)"
    return f"looked for {', '.join(files)} in {folders}{unset}"


def existing(source: str | os.PathLike[str]) -> Path:
    """The path that a user gave, or an error if nothing is there."""
    path = Path(source).expanduser()
    if not path.exists():
        raise DataNotFoundError(f"source must be a file or folder, got {str(source)!r}")
    return path
