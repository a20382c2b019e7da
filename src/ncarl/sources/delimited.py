"""Rows of CSV and TSV files, every cell a number or missing."""

from __future__ import annotations

import csv
import gzip
import io
import math
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np

from ncarl.core.types import Array
from ncarl.exceptions import BrokenFileError
from ncarl.observed import Observed
from ncarl.sources.files import Stamp
from ncarl.sources.optional import library
from ncarl.sources.protocol import observed_rows, rows_in_chunk
from ncarl.sources.tables import arrow_values, rebatched, wanted_names

#: Words for a missing cell.
MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "None", "NULL", "?", "-")
DELIMITERS = (",", ";", "\t")
#: Bytes that are taken apart together, and at least so many lines.
BLOCK, LINES = 1 << 20, 64
#: Lines at the top that tell how a file is written.
LOOKED_AT = 20


@dataclass(frozen=True)
class DelimitedRows:
    """Rows of a CSV or TSV file.

    Attributes
    ----------
    file : Stamp
        The file.
    layout : Layout
        How it is written.
    used : tuple of int
        Which of its columns are read.
    step : int
        Rows in a chunk.
    """

    file: Stamp
    layout: Layout
    used: tuple[int, ...]
    step: int

    @property
    def n_rows(self) -> None:
        """Not known: lines are not counted beforehand."""
        return None

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return len(self.used)

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the columns, if the first line has them."""
        names = self.layout.names
        return None if names is None else tuple(names[j] for j in self.used)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Float type of results."""
        return np.dtype(np.float64)

    def __iter__(self) -> Iterator[Observed]:
        """Chunks of rows in order."""
        first = 0
        with self.file.held():
            for values in rebatched(self._arrays(), self.step):
                yield observed_rows(values, first, str(self.file))
                first += len(values)
        if first == 0:
            raise ValueError(f"{self.file} has a header and no row below it")

    def parts(self) -> None:
        """Lines can only be read in turn."""
        return

    def _arrays(self) -> Iterator[Array]:
        """The numbers of the file, piece by piece."""
        used = [str(j) for j in self.used]
        try:
            with self.layout.reader(self.file.path, used) as batches:
                for batch in batches:
                    yield arrow_values(batch, used)
        except (ValueError, KeyError) as error:
            raise ValueError(self._complaint() or f"{self.file}: {error}") from error
        except OSError as error:
            raise BrokenFileError(
                f"{self.file} cannot be read to its end: {error}"
            ) from error

    def _complaint(self) -> str | None:
        """What is wrong with the first bad line, found by reading slowly."""
        layout = self.layout
        for line, cells in layout.records(self.file.path):
            if len(cells) != layout.width:
                return (
                    f"{self.file} is ragged: line {line} has {len(cells)} cells, the "
                    f"first line has {layout.width}; add or remove cells"
                )
            for j in self.used:
                cell = cells[j].strip()
                if cell not in MISSING and not is_number(cell):
                    name = layout.names[j] if layout.names else str(j)
                    return (
                        f"{self.file} must hold numbers, got {cell[:40]!r} in column "
                        f"{name!r}, line {line}; correct it (a missing cell is empty "
                        "or NA), or choose other columns with columns=[...]"
                    )
        return None


@dataclass(frozen=True)
class Layout:
    """How a text table is written.

    Attributes
    ----------
    delimiter : str
        What stands between cells.
    width : int
        Cells in a line.
    names : tuple of str or None
        Names of the columns, if the first line has them.
    skipped : int
        Blank lines before the first row.
    block : int
        Bytes that are taken apart together.
    """

    delimiter: str
    width: int
    names: tuple[str, ...] | None
    skipped: int
    block: int

    @classmethod
    def of(cls, path: Path) -> Layout:
        """The layout of a file, by its first lines."""
        with text(path) as stream:
            head = list(islice(stream, LOOKED_AT))
        blank = next((k for k, line in enumerate(head) if line.strip("\r\n")), None)
        if blank is None:
            raise ValueError(f"{str(path)!r} is empty; it must begin with a row")
        lines = head[blank:]
        tabs = ".tsv" in path.name.lower()[-7:]
        delimiter = "\t" if tabs else _delimiter(lines[0])
        cells = next(csv.reader(lines, delimiter=delimiter))
        names = None
        if _is_header(cells, lines):
            names = tuple(c.strip() or str(j + 1) for j, c in enumerate(cells))
        # In a table of one column a blank line is a missing cell.
        skipped = 0 if len(cells) == 1 and names is None else blank
        longest = max(len(line.encode("utf-8", "replace")) for line in lines)
        block = max(BLOCK, LINES * longest)
        return cls(delimiter, len(cells), names, skipped, block)

    def reader(self, path: Path, used: list[str]) -> Any:
        """Batches of the columns at some positions, as Arrow reads them."""
        pa = library("pyarrow", "CSV files", "cli")
        pc = library("pyarrow.csv", "CSV files", "cli")
        # Blanks beside a number are nothing; beside a word they would be part of it.
        words = [f"{a}{word}{b}" for word in MISSING for a in " _" for b in " _"]
        return pc.open_csv(
            path,
            read_options=pc.ReadOptions(
                use_threads=False,
                block_size=self.block,
                skip_rows=self.skipped,
                # Names may come twice or be missing; positions do not.
                column_names=[str(j) for j in range(self.width)],
                skip_rows_after_names=int(self.names is not None),
            ),
            parse_options=pc.ParseOptions(
                delimiter=self.delimiter,
                newlines_in_values=True,
                ignore_empty_lines=self.width > 1,
            ),
            convert_options=pc.ConvertOptions(
                include_columns=used,
                column_types={name: pa.float64() for name in used},
                null_values=[word.replace("_", "") for word in words],
            ),
        )

    def records(self, path: Path) -> Iterator[tuple[int, list[str]]]:
        """Rows of cells, each with the number of its line (from 1)."""
        with text(path) as stream:
            found = csv.reader(stream, delimiter=self.delimiter)
            header = self.names is not None
            for cells in found:
                if cells and header:
                    header = False
                elif cells or self.width == 1:
                    yield found.line_num, cells or [""]


def text(path: Path) -> IO[str]:
    """The text of a file, unpacked if its name ends in .gz."""
    packed = path.name.lower().endswith(".gz")
    raw: Any = gzip.GzipFile(path) if packed else path.open("rb")
    return io.TextIOWrapper(
        raw, encoding="utf-8-sig", errors="surrogateescape", newline=""
    )


def is_number(cell: str) -> bool:
    """Whether a cell says a finite number.

    Examples
    --------
    >>> is_number("1e3"), is_number("1_000"), is_number("inf")
    (True, False, False)
    """
    try:
        return math.isfinite(float(cell)) and "_" not in cell
    except ValueError:
        return False


def _delimiter(line: str) -> str:
    """The separator that a line uses most; a comma where there is none."""
    bare = re.sub(r'"[^"]*"', "", line)
    return max(DELIMITERS, key=bare.count)


def _is_header(cells: Sequence[str], lines: Sequence[str]) -> bool:
    """Whether the first line has names: words, or numbers in quotes above bare ones."""
    found = [cell.strip() for cell in cells]
    if any(cell not in MISSING and not is_number(cell) for cell in found):
        return True
    return '"' in lines[0] and len(lines) > 1 and '"' not in lines[1]


def delimited_rows(
    path: str | os.PathLike[str],
    columns: Sequence[str] | None = None,
    rows_per_chunk: int | None = None,
) -> DelimitedRows:
    """A source of the rows of a CSV or TSV file, which may be packed with gzip.

    The first line names the columns if a cell of it is no number, or if its cells are
    in quotes and those below are not. Empty cells, NA and the like are missing.

    Parameters
    ----------
    path : path
        The file.
    columns : sequence of str, optional
        Which columns to read; by default all.
    rows_per_chunk : int, optional
        Rows in a chunk.
    """
    file = Stamp.of(path)
    try:
        layout = Layout.of(file.path)
    except (EOFError, OSError, zlib.error, csv.Error) as error:
        raise BrokenFileError(f"{file} cannot be read as text: {error}") from error
    if layout.names is None and columns is not None:
        raise ValueError(
            f"columns needs a first line with names, and {file} has none; add it"
        )
    used = tuple(range(layout.width))
    if layout.names is not None:
        wanted = wanted_names(layout.names, columns, str(file))
        places = {name: j for j, name in enumerate(layout.names)}
        used = tuple(places[name] for name in wanted)
    return DelimitedRows(file, layout, used, rows_in_chunk(rows_per_chunk, len(used)))
