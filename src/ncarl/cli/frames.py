"""Parquet: numeric columns are completed, index and all other columns kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ncarl.cli.files import ReadOptions, positions_of, refuse_options
from ncarl.core.types import Array
from ncarl.sources.frames import frame_values
from ncarl.storage import replacing


@dataclass(frozen=True)
class FrameTable:
    """A Parquet table as it was read; see `ncarl.cli.files.Table`.

    Attributes
    ----------
    frame : pandas.DataFrame
        The whole table.
    used : list of int
        Which of its columns are columns of ``values``.
    """

    values: Array
    columns: list[str]
    left_out: list[str]
    frame: Any
    used: list[int]
    notes: list[str] = field(default_factory=list)
    cautions: list[str] = field(default_factory=list)
    left_gaps: int = 0
    mixed_units: bool = True

    def write(self, path: Path, numbers: Array, *, every: bool = False) -> None:
        """Write the file with numbers in its gaps, or with every number replaced."""
        frame = self.frame.copy()
        for j, position in enumerate(self.used):
            gaps = np.isnan(self.values[:, j]) | every
            if gaps.any():
                # Whole numbers have no gaps in them, so only floats keep their type.
                small = str(frame.dtypes.iloc[position]).lower() == "float32"
                column = self.values[:, j].astype(np.float32 if small else np.float64)
                column[gaps] = numbers[gaps, j]
                frame.isetitem(position, column)
        with replacing(path) as temporary:
            frame.to_parquet(temporary, engine="pyarrow")


def read(path: Path, options: ReadOptions) -> FrameTable:
    """The table in a Parquet file."""
    refuse_options(options, "Parquet", ("labels",))
    try:
        frame = pd.read_parquet(path, engine="pyarrow")
    except ValueError as error:
        raise ValueError(f"{str(path)!r} is not a Parquet table: {error}") from error
    names = [str(name) for name in frame.columns]
    kept = positions_of(options.labels, names)
    used = [
        j
        for j, dtype in enumerate(frame.dtypes)
        if j not in kept
        and pd.api.types.is_numeric_dtype(dtype)
        and not pd.api.types.is_bool_dtype(dtype)
    ]
    if not used:
        raise ValueError(
            f"{str(path)!r} has no numeric column (found: "
            f"{', '.join(sorted({str(dtype) for dtype in frame.dtypes})) or 'none'})"
        )
    others = [j for j in range(len(names)) if j not in set(used)]
    asked = [j for j in others if j not in kept]
    return FrameTable(
        values=frame_values(frame.iloc[:, used]),
        columns=[names[j] for j in used],
        left_out=[names[j] for j in others],
        left_gaps=int(frame.iloc[:, asked].isna().to_numpy().sum()),
        frame=frame,
        used=used,
    )
