"""Output files, checked before the work begins rather than after it."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ncarl.cli.files import format_of

#: Part of the entries that intervals hold unless told otherwise.
USUAL_LEVEL = 0.9


@dataclass(frozen=True)
class Outputs:
    """What is to be written, and where; None for what is not.

    Attributes
    ----------
    target : Path
        The completed table.
    std : Path or None
        Standard deviations.
    lower, upper : Path or None
        Ends of intervals.
    level : float or None
        Part of the entries that intervals hold.
    draws, drawn : int or None, Path or None
        How many completed tables to draw, and the file for them.
    saved : Path or None
        The fitted model.
    overwrite : bool
        Whether existing files may be replaced.
    """

    target: Path
    std: Path | None = None
    lower: Path | None = None
    upper: Path | None = None
    level: float | None = None
    draws: int | None = None
    drawn: Path | None = None
    saved: Path | None = None
    overwrite: bool = False

    @property
    def ends(self) -> bool:
        """Whether intervals are asked for."""
        return self.lower is not None or self.upper is not None

    @property
    def needs_fit(self) -> bool:
        """Whether a model is needed even if nothing is missing."""
        others = (self.std, self.lower, self.upper, self.drawn, self.saved)
        return any(path is not None for path in others)


def check_files(source: Path, outputs: Outputs, checkpoint: Mapping[str, Path]) -> None:
    """Raise if a file cannot be written, before the time for the fit is spent.

    Parameters
    ----------
    source : Path
        The input.
    outputs : Outputs
        What is to be written.
    checkpoint : mapping of str to Path
        Where the state is kept; those files may exist.
    """
    alike = {
        "OUT": outputs.target,
        "--std": outputs.std,
        "--lower": outputs.lower,
        "--upper": outputs.upper,
    }
    tables = {flag: path for flag, path in alike.items() if path is not None}
    for flag, path in tables.items():
        check_format(source, flag, path)
    free = {"--draws-out": outputs.drawn, "--save-model": outputs.saved}
    targets = tables | {flag: path for flag, path in free.items() if path is not None}
    check_targets(source, targets, outputs.overwrite)
    if checkpoint:
        # A checkpoint that exists is gone on from, so it is no file to replace.
        check_targets(source, {**checkpoint, **targets}, overwrite=True)


def check_format(source: Path, flag: str, target: Path) -> None:
    """Raise if a table would be written in another format than it was read in."""
    came, goes = format_of(source), format_of(target)
    if came != goes:
        raise ValueError(
            f"{flag} must have the format of the input, which is {came} "
            f"({source.name}), got {goes} ({target.name})"
        )


def check_targets(source: Path, targets: Mapping[str, Path], overwrite: bool) -> None:
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
