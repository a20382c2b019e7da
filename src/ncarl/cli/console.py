"""What commands share in printing, and checks of output files before the work.

Modules that need NumPy are imported when they are used: options import this one, and
help must be fast.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

#: Default nominal coverage of intervals.
DEFAULT_LEVEL = 0.9


def is_interactive() -> bool:
    """Whether output goes to a terminal, where progress can be shown."""
    return sys.stdout.isatty() and sys.stderr.isatty()


def print_fields(console: Console, fields: Iterable[tuple[str, str]]) -> None:
    """Print lines of a name in bold and a text; the name may be empty."""
    for name, text in fields:
        console.print(f"[bold]{name:<10}[/bold]", end="", highlight=False)
        print_text(console, text)


def print_text(console: Console, text: str) -> None:
    """Print a text without markup, as far as the terminal can show it."""
    from ncarl.text import to_printable

    if not console.encoding.lower().startswith("utf"):
        text = text.replace("\N{PLUS-MINUS SIGN}", "+/-")
        text = text.encode(console.encoding, "replace").decode(console.encoding)
    console.print(to_printable(text), markup=False, highlight=False, soft_wrap=True)


@dataclass(frozen=True)
class OutputOptions:
    """Files that ``ncarl complete`` is to write; None for those it is not."""

    target: Path  # the completed table
    std: Path | None = None  # standard deviations
    lower: Path | None = None  # ends of intervals
    upper: Path | None = None
    level: float | None = None  # nominal coverage of the intervals
    n_imputations: int | None = None  # completed tables to draw
    imputations_path: Path | None = None
    model_path: Path | None = None
    overwrite: bool = False

    @property
    def needs_intervals(self) -> bool:
        """Whether intervals are to be written."""
        return self.lower is not None or self.upper is not None

    @property
    def needs_fit(self) -> bool:
        """Whether a model is needed even if nothing is missing."""
        others = (
            self.std,
            self.lower,
            self.upper,
            self.imputations_path,
            self.model_path,
        )
        return any(path is not None for path in others)


def check_outputs(
    source: Path, outputs: OutputOptions, checkpoint: Mapping[str, Path]
) -> None:
    """Raise before the fit if a file cannot be written.

    Parameters
    ----------
    source : Path
        The input.
    outputs : OutputOptions
        What is to be written.
    checkpoint : mapping of str to Path
        Checkpoint files, which may exist.
    """
    same_format = {
        "OUT": outputs.target,
        "--std": outputs.std,
        "--lower": outputs.lower,
        "--upper": outputs.upper,
    }
    tables = {flag: path for flag, path in same_format.items() if path is not None}
    for flag, path in tables.items():
        check_same_format(source, flag, path)
    any_format = {
        "--imputations-out": outputs.imputations_path,
        "--save-model": outputs.model_path,
    }
    targets = tables | {
        flag: path for flag, path in any_format.items() if path is not None
    }
    check_output_paths(source, targets, outputs.overwrite)
    if checkpoint:
        # An existing checkpoint is continued, not replaced.
        check_output_paths(source, {**checkpoint, **targets}, overwrite=True)


def check_same_format(source: Path, flag: str, target: Path) -> None:
    """Raise if a table would be written in another format than it was read in."""
    from ncarl.io.tables import detect_format

    read, written = detect_format(source), detect_format(target)
    if read != written:
        raise ValueError(
            f"{flag} must have the format of the input, which is {read} "
            f"({source.name}), got {written} ({target.name})"
        )


def check_output_paths(
    source: Path, targets: Mapping[str, Path], overwrite: bool
) -> None:
    """Raise if a file cannot, or must not, be written.

    Parameters
    ----------
    source : Path
        The input.
    targets : mapping of str to Path
        What is to be written, by the option that names it.
    overwrite : bool
        Whether existing files may be replaced, the input among them.
    """
    taken: dict[Path, str] = {}
    for flag, target in targets.items():
        place = target.resolve()
        if place in taken:
            raise ValueError(
                f"{taken[place]} and {flag} name one file, {str(target)!r}"
            )
        taken[place] = flag
        _check_folder(flag, place.parent)
        if target.is_dir():
            raise ValueError(f"{flag} {str(target)!r} is a folder; name a file in it")
        if overwrite or not target.exists():
            continue
        if source.exists() and target.samefile(source):
            raise ValueError(
                f"{flag} {str(target)!r} is the input itself; name another file, or "
                "give --overwrite to replace it"
            )
        raise ValueError(
            f"{flag} {str(target)!r} exists; name another file, or give --overwrite "
            "to replace it"
        )


def _check_folder(flag: str, folder: Path) -> None:
    """Raise if no file can be made in a folder."""
    if not folder.is_dir():
        raise ValueError(f"{flag}: the folder {str(folder)!r} does not exist; make it")
    # Permissions alone do not tell (read-only mounts, quotas, root): try it.
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(
            f"{flag}: no file can be written to the folder {str(folder)!r} "
            f"({error.strerror or error}); name another one"
        ) from error
