"""Files that are read in several passes must not change in between."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Stamp:
    """A file, or all files of a folder, as they were when a source was opened.

    Attributes
    ----------
    path : Path
        The file or folder, from the root, so that it is found from anywhere.
    state : tuple of int
        Number of files, bytes in them, time of the latest change.
    """

    path: Path
    state: tuple[int, int, int]

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> Stamp:
        """The stamp of a file or folder as it is now."""
        place = Path(path).absolute()
        if not place.exists():
            raise FileNotFoundError(f"there is no {str(path)!r}; check the name")
        return cls(place, _state(place))

    def __str__(self) -> str:
        return repr(str(self.path))

    @contextmanager
    def held(self) -> Iterator[Path]:
        """The path for one pass, before and after which nothing may have changed."""
        self._check()
        yield self.path
        self._check()

    def _check(self) -> None:
        """Raise if the files are no longer those that the source was opened on."""
        now = _state(self.path) if self.path.exists() else None
        if now != self.state:
            change = "changed" if now is not None else "went away"
            raise ValueError(
                f"{self} {change} since it was opened as a source of rows, so its "
                "rows would be mixed with those read before; open it anew and start "
                "again, and let nothing write to it meanwhile"
            )


def _state(path: Path) -> tuple[int, int, int]:
    """Number of files at a path, bytes in them and time of the latest change."""
    if not path.is_dir():
        about = path.stat()
        return 1, about.st_size, about.st_mtime_ns
    found = [
        (Path(folder) / name).stat()
        for folder, _, names in os.walk(path)
        for name in names
    ]
    size = sum(about.st_size for about in found)
    return len(found), size, max((about.st_mtime_ns for about in found), default=0)
