"""Recommendations to a file."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ncarl.cli.files import format_of
from ncarl.cli.recommend_files import FORMATS
from ncarl.cli.records import write_text
from ncarl.storage import replacing


def write_rows(path: Path, heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Write a table to a CSV, TSV or Parquet file."""
    kind = format_of(path)
    with replacing(path) as temporary:
        if kind == "Parquet":
            import pandas as pd

            columns = zip(*rows, strict=True) if rows else [[] for _ in heads]
            frame = pd.DataFrame(dict(zip(heads, map(list, columns), strict=True)))
            frame.to_parquet(temporary, engine="pyarrow", index=False)
            return
        stream = io.StringIO()
        mark = "\t" if kind == "TSV" else ","
        writer = csv.writer(stream, delimiter=mark, lineterminator="\n")
        writer.writerow(heads)
        writer.writerows([[_written(cell) for cell in row] for row in rows])
        write_text(temporary, path.name, iter([stream.getvalue()]))


def _written(cell: Any) -> Any:
    """A cell as it is written."""
    return f"{cell:.6g}" if isinstance(cell, float) else cell


def check_out(path: Path | None) -> None:
    """Raise if a table cannot be written in the format that its name means."""
    if path is None:
        return
    try:
        kind = format_of(path)
    except ValueError:  # of formats for matrices, which lists are not
        kind = f"{path.suffix!r}" if path.suffix else "no ending"
    if kind not in FORMATS:
        raise ValueError(f"--out must be CSV, TSV or Parquet, got {kind} ({path.name})")
