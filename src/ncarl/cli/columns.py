"""Columns of text told apart into numbers and labels, some rows at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ncarl.cli.files import shown
from ncarl.cli.records import Record, unquoted
from ncarl.core.types import Array


@dataclass
class _Counted:
    """What a column has held so far: numbers, other cells, the first of those."""

    numbers: int = 0
    others: int = 0
    line: int = 0
    cell: str = ""


class Columns:
    """The numbers of a text table, with NaN in its gaps.

    Parameters
    ----------
    names : sequence of str
        Names of the columns.
    named : bool
        Whether the file names them.
    missing : set of str
        Cells that mean missing.
    kept : set of int
        Columns that are not to be read.
    most_rows : int
        Room for so many rows; what is not needed takes no memory.
    """

    def __init__(
        self, names: Sequence[str], named: bool, missing: set[str], kept: set[int],
        most_rows: int,
    ) -> None:  # fmt: skip
        self.names, self.named, self.missing = names, named, missing
        self.read = [j for j in range(len(names)) if j not in kept]
        self.values = np.empty((most_rows, len(names)))
        # Where a number means missing, every cell has to be looked at.
        self.quick = all(parse_number(word) is None for word in missing)
        self.rows = 0
        self.counted = [_Counted() for _ in names]

    def add(self, records: Sequence[Record]) -> None:
        """Read the cells of further rows."""
        rows = slice(self.rows, self.rows + len(records))
        for j in self.read:
            cells = [record.cells[j] for record in records]
            found = quick_numbers(cells) if self.quick else None
            if found is None:
                found = self._slowly(j, cells, records)
            else:
                self.counted[j].numbers += int(np.count_nonzero(~np.isnan(found)))
            self.values[rows, j] = found
        self.rows = rows.stop

    def _slowly(
        self, j: int, cells: Sequence[str], records: Sequence[Record]
    ) -> list[float]:
        """The numbers of some cells; others are counted."""
        counted, found = self.counted[j], [math.nan] * len(cells)
        for i, text in enumerate(cells):
            cell = unquoted(text)
            if cell in self.missing:
                continue
            number = parse_number(cell)
            if number is not None:
                found[i] = number
                counted.numbers += 1
                continue
            if counted.others == 0:
                counted.line, counted.cell = records[i].line, cell
            counted.others += 1
        return found

    def numbers(self, delimiter: str) -> tuple[Array, list[int]]:
        """Numbers with NaN in the gaps, and the columns they came from."""
        used = [j for j in self.read if self._is_numeric(j)]
        if not used:
            raise ValueError(
                f"no column holds numbers (cells were separated at {delimiter!r}, and "
                "decimals need a point, not a comma); see --delimiter and --label"
            )
        values = self.values[: self.rows]
        return (values if len(used) == len(self.names) else values[:, used]), used

    def _is_numeric(self, j: int) -> bool:
        """Whether a column is to be used; an error if it is mostly numeric."""
        counted = self.counted[j]
        if counted.others > counted.numbers:
            return False
        if counted.others:
            raise ValueError(self._complaint(j))
        # A separator at the end of every line makes a column of nothing.
        nameless = self.named and self.names[j] == str(j + 1)
        return not nameless or counted.numbers > 0

    def _complaint(self, j: int) -> str:
        """What is wrong with a column that is mostly numeric."""
        counted, name = self.counted[j], self.names[j]
        token = shown(counted.cell)
        return (
            f"column {name!r} holds {counted.numbers} numbers and {counted.others} "
            f"other cells, the first at line {counted.line}: {token!r}; correct it, "
            f"call it missing with --na {token!r}, or keep the column as it is with "
            f"--label {name!r}"
        )


def quick_numbers(cells: Sequence[str]) -> Array | None:
    """The numbers of cells that are plain numbers or empty, else None.

    Examples
    --------
    >>> quick_numbers(["1", "", "2.5"])
    array([1. , nan, 2.5])
    >>> quick_numbers(["1", "NA"]) is None and quick_numbers(["1_0"]) is None
    True
    """
    try:
        found = np.array([float(cell) if cell else math.nan for cell in cells])
    except ValueError:
        return None
    filled = len(cells) - cells.count("")
    if np.count_nonzero(np.isfinite(found)) != filled or "_" in "".join(cells):
        return None  # words that only mean numbers, such as inf and 1_000
    return found


def parse_number(cell: str) -> float | None:
    """The finite number that a cell says, or None.

    Examples
    --------
    >>> parse_number("1e3"), parse_number("1_000"), parse_number("inf")
    (1000.0, None, None)
    """
    try:
        number = float(cell)
    except ValueError:
        return None
    return number if math.isfinite(number) and "_" not in cell else None
