"""The pieces that pages are made of; every text that goes in comes out escaped."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence

from ncarl.pages.style import STYLE, brief, safe

#: A page may show its own pictures and nothing from elsewhere, and run nothing.
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
#: Who made a page: only such a page may be replaced by another.
MAKER = "ncarl"
#: How a PNG file begins.
PNG = b"\x89PNG\r\n\x1a\n"


def head(title: str) -> str:
    """Everything before the body."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="generator" content="{MAKER}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        f"<title>{safe(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>"
    )


def foot() -> str:
    """Everything after the body."""
    return "</body>\n</html>\n"


def picture(data: bytes, caption: str, *, name: str = "a figure") -> str:
    """A picture inside the page.

    Parameters
    ----------
    data : bytes
        A PNG file.
    caption : str
        Written below it, and read out in its place.
    name : str
        Where it comes from, for the error.
    """
    if not data.startswith(PNG):
        raise ValueError(
            f"pictures of a page must be PNG files, got {name}, which begins with "
            f"{data[:8]!r}; save it as PNG"
        )
    encoded = base64.b64encode(data).decode("ascii")
    return (
        f'<figure>\n<img alt="{safe(caption)}" src="data:image/png;base64,{encoded}">\n'
        f"<figcaption>{safe(caption)}</figcaption>\n</figure>"
    )


def facts(pairs: Mapping[str, object]) -> str:
    """Names and what there is to say, as a table of two columns."""
    rows = "\n".join(
        f'<tr><th scope="row">{safe(name)}</th><td>{safe(text)}</td></tr>'
        for name, text in pairs.items()
    )
    return (
        f'<div class="scroll"><table class="facts">\n<tbody>\n{rows}\n</tbody>\n'
        "</table></div>"
    )


def table(heads: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """A table whose first column names its rows; long names are shortened."""
    top = "".join(f'<th scope="col">{safe(brief(name))}</th>' for name in heads)
    lines = []
    for first, *others in rows:
        cells = "".join(f"<td>{safe(brief(cell))}</td>" for cell in others)
        whole = (
            "" if brief(first) == str(first) else f' title="{safe(brief(first, 500))}"'
        )
        name = f'<th scope="row" class="row"{whole}>{safe(brief(first))}</th>'
        lines.append(f"<tr>{name}{cells}</tr>")
    body = "\n".join(lines)
    return (
        f'<div class="scroll"><table class="figures">\n<thead><tr>{top}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody>\n</table></div>"
    )
