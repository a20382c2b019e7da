"""The version of the code whose results are kept."""

from __future__ import annotations

import ast
import hashlib
from functools import cache
from pathlib import Path

from ncarl import __version__

#: What cannot change a figure: the command line, front doors, drawings, files, words.
ASIDE = (
    *("cli", "study", "plots", "pages", "progress.py", "__init__.py"),
    *("images", "panel", "ratings", "tables", "ranking.py"),
)
#: Parts of the rooms aside that do: how data are made, hidden and scored.
INSIDE = ("study/problems.py", "study/measure.py")


@cache
def code_version() -> str:
    """Version of the package and a digest of the code that fits.

    Trees with one digest give the same figures on one machine, so finished cells are
    looked up by it. Comments and docstrings do not count.

    Examples
    --------
    >>> from ncarl import __version__
    >>> code_version().startswith(__version__)
    True
    """
    root = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        place = path.relative_to(root)
        if place.parts[0] in ASIDE and place.as_posix() not in INSIDE:
            continue
        digest.update(place.as_posix().encode())
        digest.update(bare(path.read_text(encoding="utf-8")).encode())
    return f"{__version__}+{digest.hexdigest()[:8]}"


def bare(source: str) -> str:
    r"""Source code without docstrings, empty lines and lines of comment.

    Examples
    --------
    >>> bare("def f():\n    '''Say one.'''\n    # why\n    return 1\n")
    'def f():\n    return 1'
    """
    lines: list[str | None] = list(source.splitlines())
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, kinds) and ast.get_docstring(node, clean=False) is not None:
            first = node.body[0]
            last = first.end_lineno or first.lineno
            lines[first.lineno - 1 : last] = [None] * (last - first.lineno + 1)
    kept = [line.rstrip() for line in lines if line is not None]
    return "\n".join(
        line for line in kept if line and not line.lstrip().startswith("#")
    )
