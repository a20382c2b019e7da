"""Finished cells on disk: one line each, appended as they finish."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from ncarl.study.cells import Result

#: Version of the results that the code gives, bumped by hand: raise it with a change
#: that can alter a figure of the study (data, masks, solvers, estimators, scores).
#: Kept fits of another version are run again.
RESULTS_VERSION = "1"
#: Name of the file in the folder of a study.
FILE = "cells.jsonl"


class Store:
    """Results by key, in a file that survives a kill at any moment.

    A line is written when its cell has finished. A line that a kill cut short is
    passed over, and the next one begins on a line of its own.

    Parameters
    ----------
    folder : path
        Made if it does not exist.
    version : str
        Version of the results. Results of this version are found again by `results`; older ones
        are only shown where there is no other.
    """

    def __init__(
        self, folder: str | os.PathLike[str], version: str = RESULTS_VERSION
    ) -> None:
        self.folder, self.version = Path(folder), version
        self.folder.mkdir(parents=True, exist_ok=True)
        self.path = self.folder / FILE
        self._current: dict[str, Result] = {}
        self._older: dict[str, Result] = {}
        self.broken = 0
        for result in self._lines():
            self._take(result)

    def _lines(self) -> Iterator[Result]:
        """What the file holds; lines that are no results are counted."""
        if not self.path.exists():
            return
        text = self.path.read_bytes().decode("utf-8", errors="replace")
        for line in text.split("\n"):
            if not line.strip():
                continue
            try:
                result = Result.from_record(json.loads(line))
                hash(result.cell.key)  # a cell that cannot be named is none
            except (ValueError, TypeError, KeyError, AttributeError):
                self.broken += 1
            else:
                yield result

    def _take(self, result: Result) -> None:
        """File a result by its version; a later one replaces an earlier one."""
        home = self._current if result.version == self.version else self._older
        home[result.cell.key] = result

    @property
    def results(self) -> Mapping[str, Result]:
        """Results of this version by key: these are not run again."""
        return self._current

    @property
    def shown(self) -> Mapping[str, Result]:
        """The same, with older ones where there is no other."""
        return {**self._older, **self._current}

    def add(self, result: Result) -> None:
        """Keep a result, on disk before anything else happens."""
        text = json.dumps(result.record(), allow_nan=False)
        with self.path.open("ab") as stream:
            # A kill may have left half a line.
            stream.write(("" if self._ends_well() else "\n").encode())
            stream.write(text.encode() + b"\n")
            stream.flush()
            os.fsync(stream.fileno())
        self._take(result)

    def _ends_well(self) -> bool:
        """Whether the file ends with a whole line."""
        if not self.path.exists() or self.path.stat().st_size == 0:
            return True
        with self.path.open("rb") as stream:
            stream.seek(-1, os.SEEK_END)
            return stream.read(1) == b"\n"
