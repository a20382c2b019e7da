"""Shared by all commands: checks of outputs, printing, and pages.

A command checks the files that it will write (`check_outputs`, `check_report_path`),
works, prints (`print_warnings`, `print_fields`, `print_table`) and writes a page
(`write_page`). Errors of the user are raised as `ValueError`; `ncarl.cli.app` prints
them. Modules that need NumPy are imported when they are used, since help must be fast.
"""

from __future__ import annotations

import platform
import shlex
import sys
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ncarl import __version__
from ncarl.text import MAX_MESSAGE, MAX_QUOTED, one_line, to_printable, to_terminal

if TYPE_CHECKING:
    from rich.console import Console

    from ncarl.html import Page

#: Names and texts, printed as lines and shown as facts of a page. An empty name
#: continues the field before it.
Fields = Iterable[tuple[str, str]]


def is_interactive(quiet: bool = False) -> bool:
    """Whether progress can be shown: output goes to a terminal and is not quiet."""
    return not quiet and sys.stdout.isatty() and sys.stderr.isatty()


def print_warnings(messages: Iterable[object]) -> None:
    """Print warnings on the error stream, each once and on one line."""
    for line in dict.fromkeys(map(one_line, messages)):
        typer.echo(f"warning: {to_terminal(line)}", err=True)


def print_fields(fields: Fields) -> None:
    """Print lines of a name in bold and a text."""
    from rich.console import Console

    console = Console()
    for name, text in fields:
        console.print(f"[bold]{name:<10}[/bold]", end="", highlight=False)
        print_text(text)


def print_text(text: str = "", style: str = "") -> None:
    """Print a paragraph, or an empty line."""
    from rich.console import Console

    console = Console()
    text = _encodable(console, text)
    console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def print_table(
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    left: Collection[int] = (0,),
    bold: Collection[str] = (),
) -> None:
    """Print a table, and an empty line after it.

    The columns ``left`` are aligned to the left, the others to the right; rows whose
    first cell is in ``bold`` are bold.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    table = Table(
        box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False
    )
    for k, head in enumerate(heads):
        justify: Any = "left" if k in left else "right"
        name = Text(_encodable(console, head))
        table.add_column(name, justify=justify, no_wrap=k not in left)
    for row in rows:
        cells = (Text(_encodable(console, cell, MAX_QUOTED)) for cell in row)
        table.add_row(*cells, style="bold" if row[0] in bold else "")
    console.print(table, "", sep="\n")


def _encodable(console: Console, text: str, max_length: int = MAX_MESSAGE) -> str:
    """A text as far as the terminal can show it."""
    text = to_terminal(text, max_length)
    if not console.encoding.lower().startswith("utf"):
        text = text.replace("\N{PLUS-MINUS SIGN}", "+/-")
        text = text.encode(console.encoding, "replace").decode(console.encoding)
    return text


def check_suffix(flag: str, path: Path | None, *suffixes: str) -> None:
    """Raise if the name of a file does not end in one of the suffixes."""
    if path is not None and not path.name.lower().endswith(suffixes):
        expected = f"{'one of ' if suffixes[1:] else ''}{', '.join(suffixes)}"
        raise ValueError(f"{flag} must end in {expected}, got {str(path)!r}")


def check_outputs(
    source: Path,
    targets: Mapping[str, Path | None],
    *,
    overwrite: bool,
    inputs: Mapping[str, Path | None] | None = None,
    folders: Collection[str] = (),
) -> None:
    """Raise before the work if a file cannot, or must not, be written.

    ``targets`` and ``inputs`` (further inputs, which are never replaced) are by the
    option that names them, None if it was not given. Targets of the options
    ``folders`` may be folders, such as Zarr arrays.
    """
    from ncarl.io.files import resolve_output

    taken: dict[Path, str] = {}
    for flag, target in targets.items():
        if target is None:
            continue
        place = resolve_output(target, flag, folder=flag in folders)
        if place in taken:
            raise ValueError(
                f"{taken[place]} and {flag} name one file, {str(target)!r}"
            )
        taken[place] = flag
        _check_folder(flag, place.parent)
        for name, path in (inputs or {}).items():
            if path is not None and _is_same_file(path, target):
                raise ValueError(
                    f"{flag} {str(target)!r} is the file of {name}; name another file"
                )
        if overwrite or not target.exists():
            continue
        what = "is the input itself" if _is_same_file(source, target) else "exists"
        raise ValueError(
            f"{flag} {str(target)!r} {what}; name another file, or give --overwrite "
            "to replace it"
        )


def _is_same_file(path: Path, other: Path) -> bool:
    return path.exists() and other.exists() and path.samefile(other)


def _check_folder(flag: str, folder: Path) -> None:
    # Permissions alone do not tell (read-only mounts, quotas, root): try it.
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(
            f"{flag}: cannot write to the folder {str(folder)!r} "
            f"({error.strerror or error}); name another one"
        ) from error


def prepare_folder(out: Path, *names: str, source: Path | None = None) -> None:
    """Make the folder of ``--out``; raise if it cannot be written to.

    ``names`` are patterns of the files in it that will be replaced.
    """
    from ncarl.io.files import file_kind

    kind = file_kind(out)
    if kind not in (None, "a folder"):
        raise ValueError(f"--out {str(out)!r} is {kind}; name a folder")
    out.mkdir(parents=True, exist_ok=True)
    _check_folder("--out", out)
    # Names without a pattern as they are: links that lead nowhere are not found.
    found = {path for name in names for path in (out / name, *out.glob(name))}
    found = {path for path in found if path.is_symlink() or path.exists()}
    targets = {f"--out ({path.relative_to(out)})": path for path in found}
    check_outputs(source or out, targets, overwrite=True, inputs={"DATA": source})


def check_report_path(path: Path | None, source: Path | None = None) -> None:
    """Raise before the work if the page cannot be written.

    An older page of ncarl is replaced, another file is not.
    """
    if path is None:
        return
    check_suffix("--report", path, ".html")
    check_outputs(source or path, {"--report": path}, overwrite=True)
    if path.exists():
        from ncarl.html import GENERATOR

        mark = f'name="generator" content="{GENERATOR}"'.encode()
        with path.open("rb") as stream:
            if mark not in stream.read(400):
                raise ValueError(
                    f"--report {str(path)!r} exists and is not a page of ncarl; name "
                    "another file"
                )


def write_page(
    page: Page, path: Path, fields: Fields | None = None, *, quiet: bool = False
) -> None:
    """End a page with the printed fields, versions and the command, and write it."""
    if fields is not None:
        names = ("numpy", "scipy", "scikit-learn")
        packages = [f"{name} {version(name)}" for name in names]
        versions = {
            "made by": f"ncarl {__version__}",
            "with": ", ".join([f"Python {platform.python_version()}", *packages]),
        }
        page.heading("Details").facts({**merge_fields(fields), **versions})
        page.code(command_line())
    page.save(path)
    if not quiet:
        print_fields([("report", str(path))])


def merge_fields(fields: Fields) -> dict[str, str]:
    r"""Texts by name; those of the same or of no name are joined by line breaks.

    >>> merge_fields([("error", "0.1"), ("", "of the values"), ("steps", "3")])
    {'error': '0.1\nof the values', 'steps': '3'}
    """
    merged: dict[str, str] = {}
    last = ""
    for name, text in fields:
        last = name or last
        merged[last] = f"{merged[last]}\n{text}" if last in merged else text
    return {name: to_printable(text) for name, text in merged.items()}


def command_line() -> str:
    """The command as it was typed; empty if another program runs it."""
    program, *words = sys.argv or [""]
    if Path(program).stem.lower() != "ncarl":
        return ""
    return shlex.join(["ncarl", *words])
