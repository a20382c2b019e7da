"""Tables in files: formats by suffix, reading, and what the formats have in common."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np

from ncarl.core.types import Array
from ncarl.text import MAX_LISTED, join_names

#: Suffix of a file name -> name of the format and the module that reads it.
TABLE_FORMATS = {
    ".csv": ("CSV", "ncarl.io.csv"),
    ".csv.gz": ("CSV", "ncarl.io.csv"),
    ".tsv": ("TSV", "ncarl.io.csv"),
    ".tsv.gz": ("TSV", "ncarl.io.csv"),
    ".parquet": ("Parquet", "ncarl.io.parquet"),
    ".npy": ("NPY", "ncarl.io.numpy"),
    ".npz": ("NPZ", "ncarl.io.numpy"),
    ".mtx": ("Matrix Market", "ncarl.io.numpy"),
}
#: Numbers, of either sign, that are commonly written for a missing value.
COMMON_MISSING_CODES = (99.0, 999.0, 9999.0, 99999.0, 999999.0)
#: Such a number is an outlier if its distance to the others exceeds their range and
#: their magnitude by this factor.
OUTLIER_FACTOR = 3.0
#: Cells that have to hold it.
MIN_CODE_COUNT = 2


@dataclass(frozen=True)
class ReadOptions:
    """How to read a table; each option applies to some formats only.

    Attributes
    ----------
    na : sequence of str
        Texts that mean "missing", besides the usual ones.
    labels : sequence of str
        Columns to keep and not to use: names, or positions counted from 1.
    header : bool or None
        Whether the first line of a text file names the columns; None detects it.
    delimiter : str or None
        Delimiter of a text file; None detects it.
    array : str or None
        Which array of an NPZ file to complete.
    progress : bool
        Whether reading and writing text shows bars.
    decimal : str or None
        Decimal sign of a text file, a point or a comma; None is a point.
    """

    na: Sequence[str] = ()
    labels: Sequence[str] = ()
    header: bool | None = None
    delimiter: str | None = None
    array: str | None = None
    progress: bool = False
    decimal: str | None = None


class TableFile(Protocol):
    """A table that was read, with all that is needed to write it back filled."""

    @property
    def values(self) -> Any:
        """Array of shape (m, n), NaN where a number is missing, or a sparse matrix."""
        ...

    @property
    def columns(self) -> Sequence[str] | None:
        """Names of the columns of ``values``, where they have some."""
        ...

    @property
    def unused_columns(self) -> Sequence[str]:
        """Names of the columns that are kept and not used."""
        ...

    @property
    def notes(self) -> Sequence[str]:
        """Decisions made while reading, for the user to see."""
        ...

    @property
    def read_warnings(self) -> Sequence[str]:
        """Warnings about what may have been read other than it was meant."""
        ...

    @property
    def n_missing_in_text(self) -> int:
        """Missing cells in columns of text, which stay missing."""
        ...

    @property
    def mixed_units(self) -> bool:
        """Whether the columns may have units of their own."""
        ...

    def write(
        self, path: Path, numbers: Array, *, replace_observed: bool = False
    ) -> None:
        """Write the table with its missing, or all, numbers replaced."""
        ...


def read_table(path: Path, options: ReadOptions) -> TableFile:
    """Read the table in a file.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If its content is not a table; the message says where.
    """
    module = importlib.import_module(TABLE_FORMATS[_match_suffix(path)][1])
    # So that a missing file gives the same error in every format.
    with path.open("rb"):
        pass
    return cast(TableFile, module.read_table(path, options))


def detect_format(path: Path) -> str:
    """Format of a file by its name, or an error that lists the known ones."""
    return TABLE_FORMATS[_match_suffix(path)][0]


def _match_suffix(path: Path) -> str:
    name = path.name.lower()
    for suffix in TABLE_FORMATS:
        if name.endswith(suffix):
            return suffix
    raise ValueError(
        f"the format of {str(path)!r} is not known; the name must end in one of "
        f"{', '.join(TABLE_FORMATS)}"
    )


def reject_unsupported_options(
    options: ReadOptions, format_name: str, supported: Sequence[str]
) -> None:
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
        if name not in supported and given != getattr(defaults, name) and given != []:
            raise ValueError(
                f"{flag} means nothing for a {format_name} file; leave it out"
            )


def column_positions(labels: Sequence[str], names: Sequence[str]) -> set[int]:
    """Positions of columns given by name, or by number from 1."""
    positions: set[int] = set()
    for label in labels:
        if label in names:
            positions.update(j for j, name in enumerate(names) if name == label)
        elif label.isdecimal() and 1 <= int(label) <= len(names):
            positions.add(int(label) - 1)
        else:
            listed = ", ".join(repr(name) for name in names[:8])
            more = " and more" if len(names) > 8 else ""
            raise ValueError(
                f"--label {label!r} is not a column; the columns are {listed}{more}"
            )
    return positions


def select_column_names(
    available: Sequence[str], columns: Sequence[str] | None, where: str
) -> tuple[str, ...]:
    """Names of the columns to read; raises if one is not there or not unique.

    Parameters
    ----------
    available : sequence of str
        Names in the file.
    columns : sequence of str or None
        Names given by the user; None for all.
    where : str
        What errors call the file.
    """
    if isinstance(columns, str):
        raise TypeError(
            f"columns must be a list of names, got {columns!r}; write [{columns!r}]"
        )
    selected = tuple(available if columns is None else columns)
    counts, requested = Counter(available), Counter(selected)
    absent = [name for name in requested if name not in counts]
    if absent:
        raise ValueError(
            f"columns names {join_names(absent, 8, form=repr)}, which {where} does not "
            f"have; it has {join_names(available, 8, form=repr)}"
        )
    twice = [name for name in requested if counts[name] > 1 or requested[name] > 1]
    if twice:
        raise ValueError(
            f"columns must have different names in {where}, got twice: "
            f"{join_names(twice, 8, form=repr)}; rename them in the file, or leave "
            "them out with columns="
        )
    if not selected:
        raise ValueError(f"columns must name at least one column of {where}, got none")
    return selected


def arrow_values(batch: Any, names: Sequence[str]) -> Array:
    """Columns of an Arrow batch as floats, NaN for nulls."""
    import pyarrow as pa

    # Filled by columns and transposed once: strided writes are slow.
    transposed = np.empty((len(names), batch.num_rows))
    positions = {name: k for k, name in enumerate(batch.schema.names)}
    for j, name in enumerate(names):
        # Whole numbers beyond 2^53 are rounded, as they are everywhere else.
        column = batch.column(positions[name]).cast(pa.float64(), safe=False)
        transposed[j] = column.to_numpy(zero_copy_only=False)
    return np.ascontiguousarray(transposed.T)


def rebatch(arrays: Iterable[Array], rows_per_batch: int) -> Iterator[Array]:
    """Regroup the rows of some arrays into arrays of ``rows_per_batch`` rows.

    Examples
    --------
    >>> [len(a) for a in rebatch([np.zeros((3, 1)), np.zeros((4, 1))], 2)]
    [2, 2, 2, 1]
    """
    waiting, count = list[Array](), 0
    for array in arrays:
        waiting.append(array)
        count += len(array)
        while count >= rows_per_batch:
            rows = waiting[0] if len(waiting) == 1 else np.concatenate(waiting)
            yield rows[:rows_per_batch]
            count -= rows_per_batch
            waiting = [rows[rows_per_batch:]]
    if count:
        yield np.concatenate(waiting)


def missing_code_warnings(values: Array, columns: Sequence[str]) -> list[str]:
    """Warnings about columns in which a number seems to mean missing.

    Parameters
    ----------
    values : array of shape (m, n)
        The table, NaN where a number is missing.
    columns : sequence of str
        Names of its columns.

    Examples
    --------
    >>> import numpy as np
    >>> missing_code_warnings(np.array([[31.0], [-999.0], [47.0], [-999.0]]), ["age"])
    ['-999 stands 2 times in age, far from the rest; if that means missing: --na -999']
    """
    columns_by_code: dict[float, list[tuple[str, int]]] = {}
    for j, name in enumerate(columns):
        observed = values[:, j][~np.isnan(values[:, j])]
        for value in (
            {float(observed.min()), float(observed.max())} if len(observed) else ()
        ):
            if abs(value) in COMMON_MISSING_CODES and _is_outlying_code(
                observed, value
            ):
                count = int(np.count_nonzero(observed == value))
                columns_by_code.setdefault(value, []).append((name, count))
    return [
        f"{value:.0f} stands {sum(count for _, count in those)} times in "
        f"{join_names([name for name, _ in those], MAX_LISTED)}, far from the rest; "
        f"if that means missing: --na {value:.0f}"
        for value, those in columns_by_code.items()
    ]


def _is_outlying_code(observed: Array, value: float) -> bool:
    """Whether a repeated extreme value of a column lies far from the rest of it."""
    rest = observed[observed != value]
    if len(rest) == 0 or len(observed) - len(rest) < MIN_CODE_COUNT:
        return False
    low, high = float(rest.min()), float(rest.max())
    if value < 0.0 <= low:  # nothing else is negative
        return True
    gap = low - value if value < low else value - high
    return gap > OUTLIER_FACTOR * max(high - low, abs(low), abs(high))
