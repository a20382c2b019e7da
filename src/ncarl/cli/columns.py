"""Columns of text told apart into numbers and labels, some rows at a time."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ncarl.cli.files import listed, shown
from ncarl.cli.records import Record, unquoted
from ncarl.core.types import Array

#: Cells that are numbers to a reader, though not to us: with the other decimal sign, or
#: as percentages.
COMMAS = {mark: re.compile(rf"[-+]?\d+[{mark}]\d+") for mark in ".,"}
PERCENT = re.compile(r"[-+]?\d+([.,]\d+)?\s?%")
#: So many cells of a column that are no numbers are looked at.
LOOKED_AT = 1000


@dataclass
class _Counted:
    """What a column has held so far.

    Attributes
    ----------
    numbers, others : int
        Cells that are numbers, and that are neither these nor missing.
    line, cell : int, str
        Where the first of the others stands, and what it is.
    commas, percents : int
        How many of the first others are numbers with the other decimal sign, and
        percentages.
    """

    numbers: int = 0
    others: int = 0
    line: int = 0
    cell: str = ""
    commas: int = 0
    percents: int = 0

    def most(self, found: int) -> bool:
        """Whether so many are most of the others that were looked at."""
        return 2 * found > min(self.others, LOOKED_AT)


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
    decimal : {".", ","}
        What decimals follow.
    """

    def __init__(
        self, names: Sequence[str], named: bool, missing: set[str], kept: set[int],
        most_rows: int, decimal: str = ".",
    ) -> None:  # fmt: skip
        self.decimal, self.other = decimal, "." if decimal == "," else ","
        self.names, self.named, self.missing = names, named, missing
        self.read = [j for j in range(len(names)) if j not in kept]
        self.values = np.empty((most_rows, len(names)))
        # Where a number means missing, every cell has to be looked at.
        self.quick = all(parse_number(word, decimal) is None for word in missing)
        self.rows = 0
        self.counted = [_Counted() for _ in names]

    def add(self, records: Sequence[Record]) -> None:
        """Read the cells of further rows."""
        rows = slice(self.rows, self.rows + len(records))
        for j in self.read:
            cells = [record.cells[j] for record in records]
            found = quick_numbers(cells, self.decimal) if self.quick else None
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
            number = parse_number(cell, self.decimal)
            if number is not None:
                found[i] = number
                counted.numbers += 1
                continue
            if counted.others == 0:
                counted.line, counted.cell = records[i].line, cell
            if counted.others < LOOKED_AT:
                counted.commas += COMMAS[self.other].fullmatch(cell) is not None
                counted.percents += PERCENT.fullmatch(cell) is not None
            counted.others += 1
        return found

    def numbers(self, delimiter: str) -> tuple[Array, list[int]]:
        """Numbers with NaN in the gaps, and the columns they came from."""
        used = [j for j in self.read if self._is_numeric(j)]
        if not used:
            sign = "point" if self.decimal == "." else "comma"
            comment = self.names[0].startswith("#")
            raise ValueError(
                f"no column holds numbers (cells were separated at {delimiter!r}, and "
                f"decimals need a {sign}); see --delimiter, --decimal and --label"
                + ("; remove the first line if it is a comment" if comment else "")
            )
        values = self.values[: self.rows]
        return (values if len(used) == len(self.names) else values[:, used]), used

    def gaps(self, j: int) -> int:
        """How many cells of a column that was read are missing."""
        return self.rows - self.counted[j].numbers - self.counted[j].others

    def is_text(self, j: int) -> bool:
        """Whether a column was read and turned out to be no numbers."""
        return self.counted[j].others > self.counted[j].numbers

    def cautions(self, delimiter: str) -> list[str]:
        """What to say of labels that look like numbers."""
        texts = [j for j in self.read if self.is_text(j)]
        commas = [j for j in texts if self.counted[j].most(self.counted[j].commas)]
        percents = [j for j in texts if self.counted[j].most(self.counted[j].percents)]
        found = []
        if commas:
            sign = "comma" if self.other == "," else "point"
            found.append(
                f"columns that look like numbers with a decimal {sign} are not used: "
                f"{self._with_gaps(commas)}; {self._way_out(delimiter)}"
            )
        if percents:
            found.append(
                "columns that look like percentages are not used: "
                f"{self._with_gaps(percents)}; write them without the sign"
            )
        ending = " to use them, or name them with --label to keep them as they are"
        return [text + ending for text in found]

    def _way_out(self, delimiter: str) -> str:
        """How numbers with the other decimal sign can be read."""
        if delimiter != self.other:
            return f"give --decimal {self.other}"
        return f"write them with {self.decimal!r}, as {delimiter!r} separates the cells"

    def _with_gaps(self, columns: Sequence[int]) -> str:
        """Names of columns, and how many gaps are left in each."""
        return listed([
            f"{self.names[j]} ({gaps} {'gap' if gaps == 1 else 'gaps'} left)"
            if (gaps := self.gaps(j)) else self.names[j]
            for j in columns
        ])  # fmt: skip

    def _is_numeric(self, j: int) -> bool:
        """Whether a column is to be used; an error if it is mostly numeric."""
        counted = self.counted[j]
        if self.is_text(j):
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
        other = COMMAS[self.other].fullmatch(counted.cell) is not None
        read = f"read it with --decimal {self.other}, " if other else ""
        return (
            f"column {name!r} holds {counted.numbers} numbers and {counted.others} "
            f"other cells, the first at line {counted.line}: {token!r}; correct it, "
            f"{read}call it missing with --na {token!r}, or keep the column as it is "
            f"with --label {name!r}"
        )


def quick_numbers(cells: Sequence[str], decimal: str = ".") -> Array | None:
    """The numbers of cells that are plain numbers or empty, else None.

    Examples
    --------
    >>> quick_numbers(["1", "", "2.5"])
    array([1. , nan, 2.5])
    >>> quick_numbers(["1", "NA"]) is None and quick_numbers(["1_0"]) is None
    True
    >>> quick_numbers(["1", "", "2,5"], ",")
    array([1. , nan, 2.5])
    """
    joined = "".join(cells)
    if decimal != ".":
        if "." in joined:
            return None
        cells = [cell.replace(decimal, ".") for cell in cells]
    try:
        found = np.array([float(cell) if cell else math.nan for cell in cells])
    except ValueError:
        return None
    filled = len(cells) - cells.count("")
    if np.count_nonzero(np.isfinite(found)) != filled or "_" in joined:
        return None  # words that only mean numbers, such as inf and 1_000
    return found


def parse_number(cell: str, decimal: str = ".") -> float | None:
    """The finite number that a cell says, or None.

    Examples
    --------
    >>> parse_number("1e3"), parse_number("1_000"), parse_number("inf")
    (1000.0, None, None)
    >>> parse_number("1,5", ","), parse_number("1.5", ","), parse_number("1.000,5", ",")
    (1.5, None, None)
    """
    if decimal != ".":
        if "." in cell:
            return None
        cell = cell.replace(decimal, ".")
    try:
        number = float(cell)
    except ValueError:
        return None
    return number if math.isfinite(number) and "_" not in cell else None
