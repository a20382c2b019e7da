"""Tables in files: which format a name means, reading, and the same format out."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

from ncarl.core.types import Array

#: So many names are listed before "and more".
LISTED = 6
#: Ending of a file name -> name of the format and the module that reads it.
FORMATS = {
    ".csv": ("CSV", "ncarl.cli.delimited"),
    ".csv.gz": ("CSV", "ncarl.cli.delimited"),
    ".tsv": ("TSV", "ncarl.cli.delimited"),
    ".tsv.gz": ("TSV", "ncarl.cli.delimited"),
    ".parquet": ("Parquet", "ncarl.cli.frames"),
    ".npy": ("NPY", "ncarl.cli.arrays"),
    ".npz": ("NPZ", "ncarl.cli.arrays"),
    ".mtx": ("Matrix Market", "ncarl.cli.arrays"),
}


@dataclass(frozen=True)
class ReadOptions:
    """How to read a table.

    Attributes
    ----------
    na : sequence of str
        Texts that mean "missing", besides the usual ones.
    labels : sequence of str
        Columns to keep and not to use: names, or positions counted from 1.
    header : bool or None
        Whether the first line of a text file names the columns; None looks.
    delimiter : str or None
        What separates the cells of a text file; None looks.
    array : str or None
        Which array of an NPZ file to complete.
    progress : bool
        Whether reading and writing text shows bars.
    decimal : str or None
        What decimals of a text file follow, a point or a comma; None is a point.
    """

    na: Sequence[str] = ()
    labels: Sequence[str] = ()
    header: bool | None = None
    delimiter: str | None = None
    array: str | None = None
    progress: bool = False
    decimal: str | None = None


class Table(Protocol):
    """A file that was read: its numbers, and all that is to come out unchanged."""

    @property
    def values(self) -> Any:
        """Array of shape (m, n) with NaN in the gaps, or a sparse matrix."""
        ...

    @property
    def columns(self) -> Sequence[str] | None:
        """Names of the columns of ``values``, where they have some."""
        ...

    @property
    def left_out(self) -> Sequence[str]:
        """Names of the columns that are kept and not used."""
        ...

    @property
    def notes(self) -> Sequence[str]:
        """What was decided while reading, for the user to see."""
        ...

    @property
    def cautions(self) -> Sequence[str]:
        """What may have been read in another way than it was meant."""
        ...

    @property
    def left_gaps(self) -> int:
        """Missing cells in columns that turned out to be no numbers, which stay."""
        ...

    @property
    def mixed_units(self) -> bool:
        """Whether the columns may have units of their own."""
        ...

    def write(self, path: Path, numbers: Array, *, every: bool = False) -> None:
        """Write the file with numbers in its gaps, or with every number replaced."""
        ...


def format_of(path: Path) -> str:
    """The format that a file name means, or an error that lists the known ones."""
    return FORMATS[_ending(path)][0]


def read_table(path: Path, options: ReadOptions) -> Table:
    """The table in a file.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If its content is not a table; the message says where.
    """
    module = importlib.import_module(FORMATS[_ending(path)][1])
    # Numpy and pandas word a missing file in their own ways; this is ours.
    with path.open("rb"):
        pass
    return cast(Table, module.read(path, options))


def refuse_options(options: ReadOptions, kind: str, known: Sequence[str]) -> None:
    """Raise if an option was given that means nothing in this format."""
    defaults = ReadOptions()
    flags = {
        "na": "--na",
        "labels": "--label",
        "header": "--header/--no-header",
        "delimiter": "--delimiter",
        "decimal": "--decimal",
        "array": "--array",
    }
    for name, flag in flags.items():
        given = getattr(options, name)
        if name not in known and given != getattr(defaults, name) and given != []:
            raise ValueError(f"{flag} means nothing for a {kind} file; leave it out")


def positions_of(labels: Sequence[str], names: Sequence[str]) -> set[int]:
    """Positions of the columns that are named, or numbered from 1."""
    found: set[int] = set()
    for label in labels:
        if label in names:
            found.update(j for j, name in enumerate(names) if name == label)
        elif label.isdecimal() and 1 <= int(label) <= len(names):
            found.add(int(label) - 1)
        else:
            listed = ", ".join(repr(name) for name in names[:8])
            more = " and more" if len(names) > 8 else ""
            raise ValueError(
                f"--label {label!r} is not a column; the columns are {listed}{more}"
            )
    return found


def listed(names: Sequence[str]) -> str:
    """Some names, and how many more there are.

    Examples
    --------
    >>> listed("abcdefgh")
    'a, b, c, d, e, f and 2 more'
    """
    more = len(names) - LISTED
    return ", ".join(names[:LISTED]) + (f" and {more} more" if more > 0 else "")


def shown(text: object) -> str:
    """``text`` as any terminal can show it, whatever bytes the file had."""
    return str(text).encode("utf-8", "replace").decode()


def _ending(path: Path) -> str:
    """The known ending of a file name."""
    name = path.name.lower()
    for ending in FORMATS:
        if name.endswith(ending):
            return ending
    raise ValueError(
        f"the format of {str(path)!r} is not known; the name must end in one of "
        f"{', '.join(FORMATS)}"
    )
