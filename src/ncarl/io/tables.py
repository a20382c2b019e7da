"""File formats: their registry, reading whole tables, and what the formats share."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from ncarl.core.types import Array
from ncarl.io.base import import_optional
from ncarl.io.files import check_rereadable
from ncarl.text import MAX_LISTED, join_names

#: Numbers, of either sign, that are commonly written for a missing value.
COMMON_MISSING_CODES = (99.0, 999.0, 9999.0, 99999.0, 999999.0)
#: Such a number is an outlier if its distance to the others exceeds their range and
#: their magnitude by this factor.
OUTLIER_FACTOR = 3.0
#: Cells that have to hold it.
MIN_CODE_COUNT = 2
#: Flags of the command line for the fields of `ReadOptions`.
OPTION_FLAGS = {
    "na": "--na",
    "labels": "--label",
    "header": "--header/--no-header",
    "delimiter": "--delimiter",
    "decimal": "--decimal",
    "array": "--array",
}


@dataclass(frozen=True)
class Format:
    """A file format, and what its module can do with it.

    The module has ``open_rows(path, columns, rows_per_chunk)``, ``open_sink(path,
    spec)`` and ``read_table(path, options)``, as far as ``abilities`` say.
    """

    name: str
    suffixes: tuple[str, ...]
    module: str
    abilities: tuple[str, ...] = ("open_rows", "open_sink", "read_table")
    options: tuple[str, ...] = ()  # fields of `ReadOptions` that apply
    has_names: bool = False  # whether columns have names
    is_folder: bool = False
    package: str = ""  # an optional package that open_rows and open_sink need
    extra: str = ""  # which extra of this package installs it

    def load(self) -> Any:
        """Import the module, after checking that its package is there."""
        if self.package:
            import_optional(self.package, f"{self.name} files", self.extra)
        return importlib.import_module(self.module)


_TEXT: Any = {
    "module": "ncarl.io.csv", "has_names": True, "package": "pyarrow", "extra": "cli",
    "options": ("na", "labels", "header", "delimiter", "decimal"),
}  # fmt: skip
#: Every format; a new one is its module and a line here.
FORMATS = (
    Format("CSV", (".csv", ".csv.gz"), **_TEXT),
    Format("TSV", (".tsv", ".tsv.gz"), **_TEXT),
    Format(
        "Parquet", (".parquet", ".pq"), "ncarl.io.parquet", options=("labels",),
        has_names=True, package="pyarrow", extra="cli",
    ),
    Format("NPY", (".npy",), "ncarl.io.numpy"),
    Format(
        "NPZ", (".npz",), "ncarl.io.numpy", ("open_rows", "read_table"), ("array",)
    ),
    Format("Matrix Market", (".mtx",), "ncarl.io.numpy", ("read_table",)),
    Format(
        "Zarr", (".zarr",), "ncarl.io.zarr", ("open_rows", "open_sink"),
        is_folder=True, package="zarr", extra="zarr",
    ),
)  # fmt: skip


def supported_suffixes(ability: str) -> tuple[str, ...]:
    """Suffixes of the formats that have an ability, such as ``"open_sink"``."""
    found = [format_ for format_ in FORMATS if ability in format_.abilities]
    return tuple(suffix for format_ in found for suffix in format_.suffixes)


def find_format(path: Path, ability: str) -> Format | None:
    """Format of a file by its name, if it has an ability; else None."""
    name = path.name.lower()
    able = (format_ for format_ in FORMATS if ability in format_.abilities)
    return next((format_ for format_ in able if name.endswith(format_.suffixes)), None)


@dataclass(frozen=True)
class ReadOptions:
    """How to read a table; each option applies to some formats only."""

    na: Sequence[str] = ()  # texts that mean "missing", besides the usual ones
    labels: Sequence[str] = ()  # columns to keep, not to use: names, or from 1
    header: bool | None = None  # whether the first line names columns; None detects it
    delimiter: str | None = None  # of a text file; None detects it
    array: str | None = None  # which array of an NPZ file to complete
    progress: bool = False  # whether reading and writing text shows bars
    decimal: str | None = None  # decimal sign of a text file; None is a point

    @property
    def non_default(self) -> list[str]:
        """Names of the options that are not the defaults."""
        return [k for k in OPTION_FLAGS if getattr(self, k) not in (None, (), [])]


@dataclass(frozen=True)
class ColumnTable:
    """A table as columns of text or values, in the order of the file."""

    path: Path
    names: list[str] | None  # None for a file without a header
    cells: list[list[Any]]  # by column
    lines: list[int]  # of each row in the file, from 1


@dataclass(frozen=True, kw_only=True)
class TableFile(ABC):
    """A table that was read, with all that is needed to write it back filled."""

    values: Any  # array of shape (m, n), NaN where missing, or a sparse matrix
    columns: Sequence[str] | None = None  # names of the columns of ``values``
    unused_columns: Sequence[str] = ()  # names of those that are kept and not used
    notes: Sequence[str] = ()  # decisions made while reading, for the user to see
    read_warnings: Sequence[str] = ()  # what may have been meant in another way
    n_missing_in_text: int = 0  # missing cells in columns of text, which stay missing

    @abstractmethod
    def write(
        self, path: Path, numbers: Array, *, replace_observed: bool = False
    ) -> None:
        """Write the table with its missing, or all, numbers replaced.

        Where a number is NaN, the table stays as it is.
        """


def read_table(path: Path, options: ReadOptions) -> TableFile:
    r"""Read the table in a file.

    Raises
    ------
    OSError
        If the file cannot be read.
    ValueError
        If its content is not a table; the message says where.

    Examples
    --------
    >>> import tempfile
    >>> from ncarl.io import ReadOptions, read_table
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "table.csv"
    ...     _ = path.write_text("a,b\n1,2\n3,\n")
    ...     table = read_table(path, ReadOptions())
    >>> table.columns, table.values.tolist()
    (['a', 'b'], [[1.0, 2.0], [3.0, nan]])
    """
    format_ = detect_format(path)
    for name in options.non_default:
        if name not in format_.options:
            raise ValueError(
                f"{OPTION_FLAGS[name]} does not apply to {format_.name} files; omit it"
            )
    check_rereadable(path)
    # So that a missing file gives the same error in every format.
    with path.open("rb"):
        pass
    module = importlib.import_module(format_.module)
    table = cast(TableFile, module.read_table(path, options))
    if 0 in table.values.shape:
        shape = f"got shape {table.values.shape}"
        raise ValueError(f"{str(path)!r} must have rows and columns, {shape}")
    return table


def detect_format(path: Path) -> Format:
    """Format of a table by its name, or an error that lists the known ones."""
    format_ = find_format(path, "read_table")
    if format_ is None:
        raise ValueError(
            f"the format of {str(path)!r} is not known; the name must end in one of "
            f"{', '.join(supported_suffixes('read_table'))}"
        )
    return format_


def column_positions(labels: Sequence[str], names: Sequence[str]) -> set[int]:
    """Positions of columns given by name, or by number from 1."""
    positions: set[int] = set()
    for label in labels:
        if label in names:
            positions.update(j for j, name in enumerate(names) if name == label)
        elif label.isdecimal() and 1 <= int(label) <= len(names):
            positions.add(int(label) - 1)
        else:
            raise ValueError(
                f"--label {label!r} is not a column; the columns are "
                f"{join_names(names, 8, form=repr)}"
            )
    return positions


def select_column_names(
    available: Sequence[str], columns: Sequence[str] | None, where: str
) -> tuple[str, ...]:
    """Names of the columns to read (None: all); raises unless each is there once."""
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
    """Regroup the rows of some arrays into arrays of ``rows_per_batch`` rows."""
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

    >>> missing_code_warnings(np.array([[31.0], [-999.0], [47.0], [-999.0]]), ["age"])
    ['-999 occurs 2 times in age, far from the rest; if it means missing: --na -999']
    """
    names, counts = defaultdict[float, list[str]](list), Counter[float]()
    for j, name in enumerate(columns):
        observed = values[:, j][~np.isnan(values[:, j])]
        extremes = {observed.min(), observed.max()} if len(observed) else ()
        for value in map(float, extremes):
            if abs(value) in COMMON_MISSING_CODES and _is_outlying(observed, value):
                names[value].append(name)
                counts[value] += int(np.count_nonzero(observed == value))
    return [
        f"{value:.0f} occurs {counts[value]} times in {join_names(those, MAX_LISTED)}, "
        f"far from the rest; if it means missing: --na {value:.0f}"
        for value, those in names.items()
    ]


def _is_outlying(observed: Array, value: float) -> bool:
    rest = observed[observed != value]
    if len(rest) == 0 or len(observed) - len(rest) < MIN_CODE_COUNT:
        return False
    low, high = float(rest.min()), float(rest.max())
    if value < 0.0 <= low:  # nothing else is negative
        return True
    gap = low - value if value < low else value - high
    return gap > OUTLIER_FACTOR * max(high - low, abs(low), abs(high))
