"""Plain arrays as tables: every column holds numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ncarl.containers import held
from ncarl.core.types import Array
from ncarl.tables.given import Given


class ArrayTable:
    """A float array with NaN in the gaps."""

    library = "numpy"

    def __init__(self, values: Array) -> None:
        self.values = values
        self.names: list[Any] = [f"x{j}" for j in range(values.shape[1])]
        self.n_rows = int(values.shape[0])

    def given(self, j: int, labels: bool = False) -> Given:
        """Column ``j``, which holds numbers."""
        column = self.values[:, j].astype(np.float64)
        gaps = np.isnan(column)
        kind = "number"
        if labels:
            kind, column = "category", column.astype(object)
            column[gaps] = None
        return Given(self.names[j], kind, column, gaps, self.values.dtype)

    def reordered(self, order: Sequence[int]) -> ArrayTable:
        """The table with its columns in another order."""
        return ArrayTable(self.values[:, list(order)])

    def column(self, j: int, new: Array, kind: str, usual: Any) -> Array:
        """Column ``j`` with ``new`` in its gaps."""
        filled = self.values[:, j].copy()
        filled[np.isnan(filled)] = held(
            np.asarray(new, dtype=np.float64), self.values.dtype
        )
        return filled

    def assembled(self, columns: dict[Any, Any], flags: dict[Any, Array]) -> Array:
        """An array of some columns with flags beside them, as 0 and 1."""
        parts = [
            self.values[:, self.names.index(name)] if column is None else column
            for name, column in columns.items()
        ]
        parts += [flag.astype(self.values.dtype) for flag in flags.values()]
        if not parts:
            return np.empty((self.n_rows, 0), dtype=self.values.dtype)
        return np.column_stack(parts)

    def of_numbers(self, columns: dict[Any, Array]) -> Array:
        """An array of floats."""
        if not columns:
            return np.empty((self.n_rows, 0))
        return np.column_stack(list(columns.values()))
