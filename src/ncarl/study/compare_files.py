"""A comparison as files: a table, all figures, and a drawing."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ncarl.storage import replacing
from ncarl.study.compare import Comparison

#: Names of the files, in the order they are written.
NAMES = ("compare.csv", "compare.json", "compare.png")
#: Columns of the table that are figures of a line.
FIGURES = (
    *("error", "spread", "relative_error", "coverage"),
    *("seconds", "memory_gb", "settled"),
)


def write_all(
    found: Comparison, folder: Path, about: Mapping[str, Any] | None = None
) -> list[Path]:
    """Write a comparison into a folder; the files written.

    Parameters
    ----------
    found : Comparison
        What to write.
    folder : Path
        Where to; files of the same names are replaced.
    about : mapping, optional
        What else the JSON file is to say.
    """
    from ncarl.plots import save_figure
    from ncarl.study.compare_figure import draw

    table, figures, drawing = (folder / name for name in NAMES)
    write_csv(found, table)
    content = {**(about or {}), **found.record()}
    text = json.dumps(content, indent=2, allow_nan=False)
    with replacing(figures) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")
    save_figure(draw(found), drawing)
    return [table, figures, drawing]


def write_csv(found: Comparison, path: Path) -> None:
    """Write the lines of a comparison as a table."""
    columns = ("method", "recommended", "status", *FIGURES, "draws", "message")
    with (
        replacing(path) as temporary,
        temporary.open("w", newline="", encoding="utf-8") as stream,
    ):
        writer = csv.DictWriter(stream, columns, extrasaction="ignore")
        writer.writeheader()
        for line in found.lines:
            mark = "yes" if line.method == found.recommendation.method else "no"
            more = {"recommended": mark, "draws": len(line.fits)}
            writer.writerow({**line.record(), **more})
