"""What a sink is, and what all of them check."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ncarl.core.types import Array


class Sink(Protocol):
    """Takes rows in order."""

    def write(self, rows: Array) -> None:
        """Add some rows, an array of shape (k, n_columns)."""
        ...


@dataclass(frozen=True)
class Table:
    """The matrix that is to be written.

    Attributes
    ----------
    n_columns : int
        Number of columns.
    names : tuple of str or None
        Their names.
    dtype : dtype
        float32 or float64.
    n_rows : int or None
        Number of rows, if it is known.
    """

    n_columns: int
    names: tuple[str, ...] | None
    dtype: np.dtype[Any]
    n_rows: int | None

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the columns; their positions from 0 where they have none."""
        return self.names or tuple(str(j) for j in range(self.n_columns))

    def checked(self, rows: Array) -> Array:
        """Rows in the type of the file, or an error if they do not fit."""
        found = np.asarray(rows)
        if found.ndim != 2 or found.shape[1] != self.n_columns:
            raise ValueError(
                f"rows must have shape (k, {self.n_columns}), got {found.shape}"
            )
        return np.ascontiguousarray(found, dtype=self.dtype)

    def check_count(self, written: int) -> None:
        """Raise if another number of rows was written than was said."""
        if self.n_rows is not None and written != self.n_rows:
            raise ValueError(
                f"n_rows must be the number of rows written, got {self.n_rows}, and "
                f"{written} were written"
            )


def checked_table(
    n_columns: Any, names: Sequence[str] | None, dtype: Any, n_rows: Any
) -> Table:
    """What is to be written, or an error that names what is wrong with it."""
    for name, size, least in (("n_columns", n_columns, 1), ("n_rows", n_rows, 0)):
        if size is None and name == "n_rows":
            continue
        whole = isinstance(size, int | np.integer) and not isinstance(size, bool)
        if not whole or size < least:
            raise ValueError(
                f"{name} must be a whole number of at least {least}, got {size!r}"
            )
    kind = np.dtype(dtype)
    if kind not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise ValueError(f"dtype must be float32 or float64, got {kind}")
    labels = None if names is None else tuple(str(name) for name in names)
    if labels is not None and len(labels) != n_columns:
        raise ValueError(
            f"names must have one name for each of the {n_columns} columns, got "
            f"{len(labels)}"
        )
    return Table(int(n_columns), labels, kind, None if n_rows is None else int(n_rows))
