"""Options of the commands: choices, shared declarations, parsers, and --report."""

from __future__ import annotations

import csv
import math
import platform
import shlex
import sys
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ncarl import __version__
from ncarl.cli.console import check_output_paths
from ncarl.registry import METHODS

HOLDOUT_PANEL, FIT_PANEL, OUTPUT_PANEL = "What is hidden", "Fits", "Output"


if TYPE_CHECKING:
    MethodChoice = str
else:  # which Typer turns into a list of choices
    MethodChoice = Literal[tuple(METHODS)]

#: Methods that the paper compares with, or that are in common use.
BASELINE_METHODS = tuple(m for m in METHODS if m not in ("bayes", "ncarl-cv", "ncarl"))


class CenterChoice(StrEnum):
    """Centerings by their name on the command line."""

    NONE = "none"
    MEAN = "mean"
    COLUMNS = "columns"
    TWO_WAY = "two-way"


class WeightsChoice(StrEnum):
    """Treatments of small singular values."""

    FLOOR = "floor"
    PINV = "pinv"
    SMOOTH = "smooth"


class OrientationChoice(StrEnum):
    """Which side carries the kernel."""

    AUTO = "auto"
    COLUMNS = "columns"
    ROWS = "rows"


class SidesChoice(StrEnum):
    """Which sides carry a kernel."""

    AUTO = "auto"
    COLUMNS = "columns"
    ROWS = "rows"
    BOTH = "both"


class ScaleChoice(StrEnum):
    """Whether columns are brought to one scale."""

    AUTO = "auto"
    NONE = "none"
    COLUMNS = "columns"


class EngineChoice(StrEnum):
    """Engines by their name."""

    AUTO = "auto"
    THREADS = "threads"
    TORCH = "torch"


class FitEngineChoice(StrEnum):
    """Engines that one fit can be given to."""

    AUTO = "auto"
    THREADS = "threads"
    TORCH = "torch"
    DASK = "dask"


class DtypeChoice(StrEnum):
    """Precisions of the work."""

    FLOAT64 = "float64"
    FLOAT32 = "float32"


class PatternChoice(StrEnum):
    """Patterns of the entries that are hidden."""

    ALIKE = "alike"
    RANDOM = "random"


QuietOption = Annotated[
    bool,
    typer.Option(
        "--quiet",
        "-q",
        rich_help_panel=OUTPUT_PANEL,
        help="Print warnings and errors only.",
    ),
]
#: A table on which methods are evaluated.
DataArgument = Annotated[
    Path,
    typer.Argument(
        metavar="DATA",
        help="CSV, TSV (also .gz), Parquet, NPY, NPZ or Matrix Market, with or "
        "without missing entries. Entries that a sparse file does not list are "
        "missing.",
        show_default=False,
    ),
]
HideOption = Annotated[
    float,
    typer.Option(
        rich_help_panel=HOLDOUT_PANEL,
        help="Share of the observed entries to hide. No row or column loses its last "
        "one.",
    ),
]
PatternOption = Annotated[
    PatternChoice,
    typer.Option(
        rich_help_panel=HOLDOUT_PANEL,
        help="alike hides entries in the pattern of the missing ones, in blocks "
        "where they come in blocks; random hides them one by one.",
    ),
]
SeedOption = Annotated[
    int,
    typer.Option(
        rich_help_panel=HOLDOUT_PANEL,
        help="Seed of what is hidden, and of the methods.",
    ),
]
EngineOption = Annotated[
    EngineChoice,
    typer.Option(
        rich_help_panel=FIT_PANEL,
        help="Where the work is done; auto takes a GPU if there is one.",
    ),
]
#: Type of the parameter ``report`` of a command.
ReportOption = Annotated[
    Path | None,
    typer.Option(
        "--report",
        metavar="PATH.html",
        show_default=False,
        help="Write one self-contained page with figures; an older one of ncarl's "
        "is replaced.",
    ),
]


def parse_gamma(text: str) -> float | str:
    """A noise level, or "none" for the exact model."""
    return _parse_number_or_word(text, ("none",), "a positive number or 'none'")


def parse_prior_strength(text: str) -> float | str:
    """A strength of the prior, or "auto" to choose it."""
    return _parse_number_or_word(
        text, ("auto",), "a number that is not negative, or 'auto'"
    )


def parse_noise(text: str) -> float | str:
    """A standard deviation of the noise, or how to learn it."""
    words = ("learn", "per-column")
    return _parse_number_or_word(
        text, words, "'learn', 'per-column' or a standard deviation"
    )


def parse_clip(text: str) -> tuple[float, float] | str:
    """Bounds of filled values, "auto" to find them or "none".

    Examples
    --------
    >>> parse_clip("1,5"), parse_clip("none")
    ((1.0, 5.0), 'none')
    """
    if text.lower() in ("auto", "none"):
        return text.lower()
    try:
        low, high = (float(end) for end in text.split(","))
    except ValueError:
        low = high = math.nan
    if not low < high:
        raise typer.BadParameter(
            f"must be 'auto', 'none' or LOW,HIGH with LOW below HIGH, got {text!r}"
        )
    return low, high


def parse_columns(text: str) -> tuple[str, ...]:
    """Names of columns, separated by commas; double quotes protect commas in a name.

    Examples
    --------
    >>> parse_columns('height,"weight, kg"')
    ('height', 'weight, kg')
    """
    found = next(csv.reader([text], skipinitialspace=True), [])
    names = tuple(name.strip() for name in found)
    if not names or not all(names):
        raise typer.BadParameter(f"must be names separated by commas, got {text!r}")
    return names


def parse_level(text: str) -> float:
    """A part of the entries, between 0 and 1."""
    try:
        level = float(text)
    except ValueError:
        level = math.nan
    if not 0.0 < level < 1.0:
        raise typer.BadParameter(f"must lie between 0 and 1, got {text!r}")
    return level


def parse_setting(text: str) -> tuple[str, Any]:
    """A parameter of a method and its value.

    Examples
    --------
    >>> parse_setting("p=0.5"), parse_setting("lam=auto"), parse_setting("rank=none")
    (('p', 0.5), ('lam', 'auto'), ('rank', None))
    """
    name, equals, value = text.partition("=")
    if not name or not equals or not value:
        raise typer.BadParameter(f"must be NAME=VALUE, such as p=0.5, got {text!r}")
    words: dict[str, Any] = {"none": None, "true": True, "false": False}
    if value.lower() in words:
        return name, words[value.lower()]
    for kind in (int, float, _parse_fraction):
        try:
            return name, kind(value)
        except (ValueError, ZeroDivisionError):
            continue
    return name, value


def _parse_fraction(text: str) -> float:
    """A number written as a fraction, such as 2/3."""
    above, _, below = text.partition("/")
    return float(above) / float(below)


def _parse_number_or_word(
    text: str, words: tuple[str, ...], expected: str
) -> float | str:
    """One of the words, or a number; ``expected`` says so where it is neither."""
    if text.lower() in words:
        return text.lower()
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"must be {expected}, got {text!r}") from None


def check_report_path(path: Path | None, source: Path | None = None) -> None:
    """Raise before the work if the page cannot be written.

    Parameters
    ----------
    path : Path or None
        The page; nothing is checked if there is to be none.
    source : Path, optional
        The input, which must not be replaced.
    """
    if path is None:
        return
    if path.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"--report must end in .html, got {str(path)!r}")
    if path.exists() and not path.is_dir():
        from ncarl.html import GENERATOR  # which loads more than help needs

        mark = f'name="generator" content="{GENERATOR}"'.encode()
        with path.open("rb") as stream:
            ours = mark in stream.read(400)
        if not ours:
            raise ValueError(
                f"--report {str(path)!r} exists and is no page of ncarl; name another "
                "file"
            )
    check_output_paths(source or path, {"--report": path}, overwrite=True)


def print_report_path(path: Path, *, quiet: bool = False) -> None:
    """Print where the page is."""
    from ncarl.text import to_printable

    if not quiet:
        typer.echo(f"{'report':<10}{to_printable(path)}")


def copy_page(page: Path, path: Path) -> None:
    """Copy a page to another path, atomically."""
    from ncarl.io.files import atomic_write

    content = page.read_bytes()
    with atomic_write(path.resolve()) as temporary:
        temporary.write_bytes(content)


def command_line() -> str:
    """The command as it was typed, for a page to show.

    Empty if a command is run by another program, whose arguments these are.
    """
    program, *words = sys.argv or [""]
    if Path(program).stem.lower() != "ncarl":
        return ""
    return shlex.join(["ncarl", *words])


def package_versions() -> dict[str, str]:
    """Versions of ncarl and what it was run with, for a page to show."""
    packages = ("numpy", "scipy", "scikit-learn")
    parts = [f"Python {platform.python_version()}"]
    parts += [f"{name} {version(name)}" for name in packages]
    return {"made by": f"ncarl {__version__}", "with": ", ".join(parts)}
