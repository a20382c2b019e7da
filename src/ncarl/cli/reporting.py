"""The option ``--report`` that every command has, and the file behind it."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from ncarl.cli.outputs import check_targets

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


def check_report(path: Path | None, source: Path | None = None) -> None:
    """Raise if the page cannot be written, before the time for the work is spent.

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
        from ncarl.pages.markup import MAKER  # which loads more than help needs

        with path.open("rb") as stream:
            ours = f'name="generator" content="{MAKER}"'.encode() in stream.read(400)
        if not ours:
            raise ValueError(
                f"--report {str(path)!r} exists and is no page of ncarl; name another "
                "file"
            )
    check_targets(source or path, {"--report": path}, overwrite=True)


def command_line() -> str:
    """The command as it was typed, for a page to show.

    Nothing where commands are run by another program, whose own words these are.
    """
    program, *words = sys.argv or [""]
    if Path(program).stem.lower() != "ncarl":
        return ""
    return shlex.join(["ncarl", *words])


def versions() -> dict[str, str]:
    """What a page was made with, by name."""
    import platform
    from importlib.metadata import version

    from ncarl import __version__

    packages = ("numpy", "scipy", "scikit-learn")
    parts = [f"Python {platform.python_version()}"]
    parts += [f"{name} {version(name)}" for name in packages]
    return {"made by": f"ncarl {__version__}", "with": ", ".join(parts)}


def say_written(path: Path, *, quiet: bool = False) -> None:
    """Tell where the page is."""
    from ncarl.cli.files import shown

    if not quiet:
        typer.echo(f"{'report':<10}{shown(path)}")


def copy_page(page: Path, path: Path) -> None:
    """Write a page that is there already to another place; whole or not at all."""
    from ncarl.storage import replacing

    content = page.read_bytes()
    with replacing(path.resolve()) as temporary:
        temporary.write_bytes(content)
