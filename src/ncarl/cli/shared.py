"""Options that several commands have, declared once."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ncarl.cli.choices import EngineName

HIDING, FITS, OUTPUT = "What is hidden", "Fits", "Output"


class Pattern(StrEnum):
    """How hidden entries lie."""

    ALIKE = "alike"
    RANDOM = "random"


QuietOption = Annotated[
    bool,
    typer.Option(
        "--quiet",
        "-q",
        rich_help_panel=OUTPUT,
        help="Print warnings and errors only.",
    ),
]
#: A table that methods are tried on.
DataArgument = Annotated[
    Path,
    typer.Argument(
        metavar="DATA",
        help="CSV, TSV (also .gz), Parquet, NPY, NPZ or Matrix Market, with gaps "
        "or without. Entries that a sparse file does not list are missing.",
        show_default=False,
    ),
]
HideOption = Annotated[
    float,
    typer.Option(
        rich_help_panel=HIDING,
        help="Share of the known entries to hide. No row or column loses its last one.",
    ),
]
PatternOption = Annotated[
    Pattern,
    typer.Option(
        rich_help_panel=HIDING,
        help="alike hides entries as the gaps lie, in blocks where they do; random "
        "hides them one by one.",
    ),
]
SeedOption = Annotated[
    int,
    typer.Option(
        rich_help_panel=HIDING, help="Seed of what is hidden, and of the methods."
    ),
]
EngineOption = Annotated[
    EngineName,
    typer.Option(
        rich_help_panel=FITS,
        help="Where the work is done; auto takes a GPU if there is one.",
    ),
]
