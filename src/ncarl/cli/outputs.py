"""Output files, checked before the work begins rather than after it."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from ncarl.cli.files import format_of


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
