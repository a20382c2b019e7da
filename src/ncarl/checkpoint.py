"""Checkpoints: where a fit keeps its state, how often, and whose state it is."""

from __future__ import annotations

import contextlib
import errno
import numbers
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from ncarl.core.types import Array
from ncarl.exceptions import (
    BrokenFileError,
    CheckpointError,
    CheckpointMismatchError,
)
from ncarl.loop import History
from ncarl.storage import WAY_OUT, read_archive, write_archive

#: What checkpoints may hold, and whose that is where the file does not say.
WRITERS = {
    "checkpoint": "NCARL",
    "search": "NCARLCV",
    "stages": "BayesianNCARL",
    "state of a solver": "another estimator",
}
#: Of a parameter no more than this is shown in an error.
MOST_SHOWN = 80
#: What to do about a file that cannot be written, by the reason that the system gives.
WAYS_OUT = {
    errno.ENOSPC: "Make room for {size} more there",
    errno.EDQUOT: "Make room for {size} more there, or have your quota raised",
    errno.EFBIG: "Raise the limit on the size of a file (ulimit -f) above {size}",
    errno.EACCES: "Make its folder writable",
    errno.EPERM: "Make its folder writable",
    errno.EROFS: "Make its folder writable",
}

#: A step of a solver.
S = TypeVar("S", bound="_Step")
Parts = tuple[Mapping[str, Any], Mapping[str, Array]]


class _Step(Protocol):
    """A step that knows its number."""

    @property
    def step(self) -> int:
        """The number, from 1."""
        ...


@dataclass(frozen=True)
class Checkpoint:
    """A file that keeps the state of a fit, and how often it is written.

    Estimators take one as ``checkpoint=``. A path alone means every step. If the file
    exists, the fit goes on from it, to the same numbers as if it had never stopped.

    Parameters
    ----------
    path : path
        The file. It is replaced as a whole, and readable by its owner only. Estimators
        whose fits have parts keep some of them beside it: ``path.fit`` (`NCARLCV`),
        ``path.columns`` and ``path.rows`` (`BayesianNCARL`).
    every : float, default=0.0
        Seconds between two writes, at least: no more than these and one step are lost.
        The state is written at the end of a fit in any case: when it has settled, has
        made its last step, was told to stop by a callback or interrupted by Ctrl-C.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from ncarl import NCARL, Checkpoint
    >>> X = np.array([[1.0, 2.0, np.nan], [2.0, np.nan, 6.0], [3.0, 6.0, 9.0]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     kept = Checkpoint(f"{folder}/state", every=60.0)
    ...     short = NCARL(max_iter=5, tol=0, checkpoint=kept).fit(X)
    ...     longer = NCARL(max_iter=8, tol=0, checkpoint=kept).fit(X)
    >>> whole = NCARL(max_iter=8, tol=0).fit(X)
    >>> bool((longer.kernel_ == whole.kernel_).all())
    True
    """

    path: str | os.PathLike[str]
    every: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.path, str | os.PathLike):
            raise TypeError(f"path must be a path, got {self.path!r}")
        every = self.every
        wanted = "every must be a finite number of seconds, at least 0"
        if isinstance(every, bool | np.bool_) or not isinstance(every, numbers.Real):
            raise TypeError(f"{wanted}, got {every!r}")
        if not 0.0 <= every < float("inf"):
            raise ValueError(f"{wanted}, got {every!r}")

    def __fspath__(self) -> str:
        return os.fspath(self.path)

    @classmethod
    def of(cls, given: str | os.PathLike[str]) -> Checkpoint:
        """``given`` itself if it says how often to write, else that at every step."""
        return given if isinstance(given, cls) else cls(given)

    def beside(self, part: str) -> Checkpoint:
        """The file for a part of the fit."""
        return Checkpoint(f"{os.fspath(self)}.{part}", self.every)


class Keeper:
    """The file of one fit: knows when to write, what it holds, and whose it is.

    Parameters
    ----------
    place : Checkpoint
        Where the state is kept, and how often it is written.
    kind : str
        What the file holds; one of `WRITERS`.
    owner : mapping
        Shape and fingerprint of the data, the class of the estimator, and all
        parameters that change the result.
    """

    def __init__(self, place: Checkpoint, kind: str, owner: Mapping[str, Any]) -> None:
        self.path, self.every = Path(place), float(place.every)
        self.kind, self.owner = kind, dict(owner)
        #: Where the fit stood when the file was written; None if there is none.
        self.at: str | None = None
        self.written = time.monotonic()

    def after(self, at: str, parts: Callable[[], Parts], *, last: bool = False) -> None:
        """Write the state if it is time to, or if it is the last one."""
        if self.due(at, last=last):
            self.put(at, *parts())

    def due(self, at: str, *, last: bool = False) -> bool:
        """Whether the state at a point is to be written; not if the file holds it."""
        if at == self.at:
            return False
        return last or time.monotonic() - self.written >= self.every

    def put(
        self, at: str, header: Mapping[str, Any], arrays: Mapping[str, Array]
    ) -> None:
        """Write the state in place of the one before.

        Raises
        ------
        CheckpointError
            If that was not possible; the one before is still there.
        """
        own = {"kind": self.kind, "owner": self.owner}
        try:
            write_archive(self.path, {**own, **header}, arrays)
        except OSError as error:
            size = sum(array.nbytes for array in arrays.values())
            raise self._failure(at, error, size) from error
        self.at, self.written = at, time.monotonic()

    def _failure(self, at: str, error: OSError, size: int) -> CheckpointError:
        """What to say of a state that could not be written."""
        way = WAYS_OUT.get(error.errno or 0, "See to that")
        if self.at is None:
            left = "there was none before it"
            then = "or name another file"
        else:
            left = f"the one before it is untouched and stands at {self.at}"
            then = "and fit again to go on from there"
        failure = CheckpointError(
            f"checkpoint {str(self.path)!r} could not be written at {at} "
            f"({error.strerror or error}); {left}. "
            f"{way.format(size=f'{max(size / 1e6, 0.1):.1f} MB')}, {then}."
        )
        failure.errno = error.errno
        return failure

    def get(self) -> tuple[dict[str, Any], dict[str, Array]] | None:
        """Header and arrays of the file, or None where there is no file yet.

        Raises
        ------
        BrokenFileError
            If the file is foreign or damaged.
        CheckpointMismatchError
            If it belongs to another estimator, other data or other parameters.
        """
        if not self.path.exists():
            return None
        header, arrays = read_archive(self.path, self.kind, *WRITERS)
        with self.sound():
            refuse_other(self.path, header, self.kind, self.owner)
        return header, arrays

    def step(self, rebuilt: Callable[..., S]) -> tuple[S, History] | None:
        """The step that the file holds and the records up to it; None without a file.

        Parameters
        ----------
        rebuilt : callable
            Makes the step of header, arrays and records.
        """
        kept = self.get()
        if kept is None:
            return None
        with self.sound():
            history = History(kept[0]["history"])
            iterate = rebuilt(*kept, history)
        self.at = f"step {iterate.step}"
        return iterate, history

    @contextlib.contextmanager
    def sound(self) -> Iterator[None]:
        """A block in which something lacking means that the file is damaged."""
        try:
            yield
        except (LookupError, TypeError, AttributeError) as error:
            raise BrokenFileError(
                f"path {str(self.path)!r} is damaged: it lacks {error}; {WAY_OUT}"
            ) from error


def refuse_other(
    path: Path, header: Mapping[str, Any], kind: str, owner: Mapping[str, Any]
) -> None:
    """Raise if a file was written by another fit."""
    found = header["owner"]
    # Files of earlier versions lack the class and the shape.
    here = owner.get("class", WRITERS[kind])
    there = found.get("class", here if header["kind"] == kind else None)
    if there != here or header["kind"] != kind:
        raise CheckpointMismatchError(
            f"checkpoint {str(path)!r} belongs to another estimator: it was written by "
            f"{there or WRITERS[header['kind']]}, and this is {here}. Remove the file "
            "or name another one."
        )
    differing = [
        text
        for name, value in owner.items()
        if name not in ("class", "shape", "data") and found.get(name) != value
        for text in _differences(name, found.get(name), value)
    ]
    if found.get("data") != owner["data"]:
        differing.append(_other_data(found.get("shape"), owner.get("shape")))
    if differing:
        raise CheckpointMismatchError(
            f"checkpoint {str(path)!r} belongs to another fit; it differs in "
            f"{', '.join(differing)}. Remove the file or name another one."
        )


def _differences(name: str, there: Any, here: Any) -> list[str]:
    """How a parameter differs; of a grid, the values that are tried."""
    tables = [_columns(value) for value in (there, here)]
    if not all(tables) or tables[0] == tables[1]:
        return [f"{name} ({_shown(there)} there, {_shown(here)} here)"]
    return [
        f"{name} of {key} ({_shown(tables[0].get(key))} there, {_shown(value)} here)"
        for key, value in tables[1].items()
        if tables[0].get(key) != value
    ]


def _columns(points: Any) -> dict[str, list[Any]]:
    """The values of each parameter in a grid of points; empty if it is none."""
    if not (isinstance(points, list) and all(isinstance(p, dict) for p in points)):
        return {}
    names = dict.fromkeys(name for point in points for name in point)
    return {
        name: list(dict.fromkeys(point.get(name) for point in points)) for name in names
    }


def _shown(value: Any) -> str:
    """A value as text that is not too long."""
    text = repr(value)
    return text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN - 3]}..."


def _other_data(there: Any, here: Any) -> str:
    """How data differ, as far as their shapes say."""
    if there is None or here is None or list(there) == list(here):
        return "the data (other values or other gaps)"
    sizes = [" x ".join(str(length) for length in shape) for shape in (there, here)]
    return f"the data ({sizes[0]} there, {sizes[1]} here)"


def records_up_to(history: History, step: int) -> dict[str, list[float]]:
    """The records of whole steps: an interruption may have cut the next one short."""
    count = history.columns["step"].index(step) + 1
    return {name: column[:count] for name, column in history.columns.items()}
