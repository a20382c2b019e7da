"""`Page`: reports as a single HTML file, without scripts, links or other files."""

from __future__ import annotations

import base64
import html
import io
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ncarl.io.files import atomic_write
from ncarl.text import shorten

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Characters that a page must not hold: control characters, surrogates, and those that
#: change the direction of the text after them.
FORBIDDEN_CHARACTERS = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\u202a-\u202e\u2066-\u2069]"
)
#: Longer texts are shortened in tables.
MAX_CELL_LENGTH = 60
#: Dots per inch of figures on a page.
DPI = 110
#: A page may show embedded images and styles only, and run no script.
CONTENT_SECURITY_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
#: Generator of a page: only pages with this mark may be overwritten.
GENERATOR = "ncarl"
#: First bytes of a PNG file.
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
#: Style sheet of every page.
CSS = """
:root { color-scheme: light dark; --ink: #1d2329; --soft: #5c6670; --paper: #ffffff;
  --band: #f3f5f7; --line: #d5dbe1; --link: #0b5fa5; --good: #11693a; --bad: #a4262c;
  --partly: #8a5a00; --open: #55606b; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ec; --soft: #a2adb8;
  --paper: #14181c; --band: #1e242a; --line: #38424c; --link: #7cb8ee; --good: #6fcf97;
  --bad: #ff8f8f; --partly: #e8b95a; --open: #a9b4bf; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 78rem; padding: 1rem 1.2rem 4rem; color: var(--ink);
  background: var(--paper); line-height: 1.5; overflow-wrap: break-word;
  font-family: system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.2; } h2 { font-size: 1.3rem; margin-top: 3rem;
  border-bottom: 2px solid var(--line); padding-bottom: .2rem; }
h3 { font-size: 1rem; margin: 1.6rem 0 .4rem; } a { color: var(--link); }
nav ul { display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; padding: 0;
  list-style: none; }
.scroll { overflow-x: auto; max-width: 100%; border: 1px solid var(--line);
  border-radius: 6px; }
table { border-collapse: collapse; width: 100%; font-size: .88rem; }
th, td { padding: .35rem .6rem; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--line); }
thead th { background: var(--band); white-space: nowrap; }
.figures td, .figures thead th { text-align: right; white-space: nowrap;
  font-variant-numeric: tabular-nums; }
.figures thead th.group { text-align: center; }
.figures th.row, .figures th.corner { position: sticky; left: 0; text-align: left;
  background: var(--band); white-space: nowrap; }
tbody tr:last-child > * { border-bottom: 0; }
.facts td { overflow-wrap: anywhere; white-space: pre-line; }
.facts th { white-space: nowrap; } .lead { font-size: 1.08rem; max-width: 60rem; }
pre { overflow-x: auto; background: var(--band); padding: .6rem .8rem; margin: .6rem 0;
  border: 1px solid var(--line); border-radius: 6px; font-size: .85rem; }
.warning { border-left: 4px solid var(--partly); padding: .1rem .8rem; margin: 1rem 0; }
td, th, p, li, figcaption { unicode-bidi: plaintext; }
.small, .notes, footer { font-size: .8rem; color: var(--soft); }
.small { display: block; } .notes { padding-left: 1.2rem; }
.best { font-weight: 700; } .reached { color: var(--good); }
.word, .state { font-weight: 600; } .word { color: var(--partly); }
.good { color: var(--good); } .bad { color: var(--bad); }
.partly { color: var(--partly); } .open { color: var(--open); }
.state { white-space: nowrap; }
details { margin: 1rem 0; } summary { cursor: pointer; color: var(--link); }
figure { margin: 1.6rem 0; } figcaption { font-size: .88rem; color: var(--soft); }
figure img { max-width: 100%; height: auto; background: #ffffff; padding: .4rem;
  border: 1px solid var(--line); border-radius: 6px; }
@media (max-width: 40rem) { body { padding: .6rem .7rem 3rem; }
  h1 { font-size: 1.35rem; } th, td { padding: .3rem .4rem; } }
@media print { :root { color-scheme: light; --ink: #000; --paper: #fff; --soft: #444;
  --band: #f3f5f7; --line: #bbb; --good: #11693a; --bad: #a4262c; --partly: #8a5a00;
  --open: #55606b; --link: #000; } body { max-width: none; padding: 0; }
  .scroll { overflow: visible; border: 0; } table { font-size: .68rem; }
  th, td { padding: .15rem .25rem; }
  figure, tr { break-inside: avoid; } h2, h3 { break-after: avoid; }
  .figures td, .figures thead th { white-space: normal; }
  .figures th.row, .figures th.corner { position: static; }
  details::details-content { content-visibility: visible; block-size: auto; }
  details > :not(summary) { display: block !important; } nav { display: none; } }
"""


class Page:
    """A self-contained HTML page; methods append parts and return the page.

    All text is escaped: names of columns and files may hold any character.

    Parameters
    ----------
    title : str
        Heading of the page.
    lead : str
        Summary below the heading; none if empty.

    Examples
    --------
    >>> page = Page("A < B").heading("Errors").text("Small.").facts({"rmse": 0.1})
    >>> "<h1>A &lt; B</h1>" in page.html()
    True
    """

    def __init__(self, title: str, lead: str = "") -> None:
        self._title = title
        self._parts = [f"<h1>{escape(title)}</h1>"]
        if lead:
            self._parts.append(f'<p class="lead">{escape(lead)}</p>')

    def heading(self, text: str) -> Page:
        """Add the heading of a section."""
        self._parts.append(f"<h2>{escape(text)}</h2>")
        return self

    def text(self, *paragraphs: str) -> Page:
        """Add paragraphs."""
        self._parts.extend(f"<p>{escape(paragraph)}</p>" for paragraph in paragraphs)
        return self

    def warning(self, *paragraphs: str) -> Page:
        """Add highlighted paragraphs, if any."""
        if paragraphs:
            inner = "".join(f"<p>{escape(paragraph)}</p>" for paragraph in paragraphs)
            self._parts.append(f'<div class="warning">{inner}</div>')
        return self

    def code(self, text: str) -> Page:
        """Add a command or code, if not empty."""
        if text:
            self._parts.append(f"<pre>{escape(text)}</pre>")
        return self

    def notes(self, lines: Iterable[str]) -> Page:
        """Add a list, if not empty."""
        items = "\n".join(f"<li>{escape(line)}</li>" for line in lines)
        if items:
            self._parts.append(f'<ul class="notes">\n{items}\n</ul>')
        return self

    def facts(self, pairs: Mapping[str, object]) -> Page:
        """Add a table of names and values."""
        self._parts.append(facts_html(pairs))
        return self

    def table(self, heads: Sequence[object], rows: Iterable[Sequence[object]]) -> Page:
        """Add a table; its first column names the rows."""
        self._parts.append(table_html(heads, rows))
        return self

    def figure(self, figure: Figure, caption: str) -> Page:
        """Add a Matplotlib figure as an embedded image."""
        from ncarl.plots.style import write_png

        stream = io.BytesIO()
        write_png(figure, stream, DPI)
        self._parts.append(figure_html(stream.getvalue(), caption))
        return self

    def try_figure(self, draw: Callable[[], Figure], caption: str) -> Page:
        """Add the figure that a function draws, or the message of its `ValueError`."""
        try:
            figure = draw()
        except ValueError as error:
            return self.notes([f"Not drawn ({caption.split('.')[0]}): {error}"])
        return self.figure(figure, caption)

    def picture(self, path: str | os.PathLike[str], caption: str) -> Page:
        """Add a PNG file."""
        data = Path(path).read_bytes()
        self._parts.append(figure_html(data, caption, name=str(path)))
        return self

    def html(self) -> str:
        """The whole page."""
        return "\n".join([html_head(self._title), *self._parts, html_foot()])

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page atomically, and return its path."""
        target = Path(path)
        with atomic_write(target) as temporary:
            temporary.write_text(self.html(), encoding="utf-8")
        return target


def html_head(title: str) -> str:
    """The page up to the start of its body."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="generator" content="{GENERATOR}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta http-equiv="Content-Security-Policy" '
        f'content="{CONTENT_SECURITY_POLICY}">\n'
        f"<title>{escape(title)}</title>\n<style>{CSS}</style>\n</head>\n<body>"
    )


def html_foot() -> str:
    """The end of the page."""
    return "</body>\n</html>\n"


def figure_html(data: bytes, caption: str, *, name: str = "a figure") -> str:
    """An embedded image with a caption.

    Parameters
    ----------
    data : bytes
        A PNG file.
    caption : str
        Caption and alternative text.
    name : str
        Origin of the file, for the error message.
    """
    if not data.startswith(PNG_SIGNATURE):
        raise ValueError(
            f"pictures of a page must be PNG files, got {name}, which begins with "
            f"{data[:8]!r}; save it as PNG"
        )
    encoded = base64.b64encode(data).decode("ascii")
    return (
        f'<figure>\n<img alt="{escape(caption)}" '
        f'src="data:image/png;base64,{encoded}">\n'
        f"<figcaption>{escape(caption)}</figcaption>\n</figure>"
    )


def facts_html(pairs: Mapping[str, object]) -> str:
    """A table of two columns: names and values."""
    rows = "\n".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{escape(text)}</td></tr>'
        for name, text in pairs.items()
    )
    return (
        f'<div class="scroll"><table class="facts">\n<tbody>\n{rows}\n</tbody>\n'
        "</table></div>"
    )


def _shorten(cell: object) -> str:
    return shorten(cell, MAX_CELL_LENGTH)


def table_html(heads: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """A table whose first column names its rows; long texts are shortened."""
    top = "".join(f'<th scope="col">{escape(_shorten(name))}</th>' for name in heads)
    lines = []
    for first, *others in rows:
        cells = "".join(f"<td>{escape(_shorten(cell))}</td>" for cell in others)
        whole = (
            ""
            if _shorten(first) == str(first)
            else f' title="{escape(shorten(first, 500))}"'
        )
        name = f'<th scope="row" class="row"{whole}>{escape(_shorten(first))}</th>'
        lines.append(f"<tr>{name}{cells}</tr>")
    body = "\n".join(lines)
    return (
        f'<div class="scroll"><table class="figures">\n<thead><tr>{top}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody>\n</table></div>"
    )


def escape(text: object) -> str:
    """Escape text for HTML, also in attributes; addresses are not links.

    Examples
    --------
    >>> escape('<b title="x">')
    '&lt;b title=&quot;x&quot;&gt;'
    """
    escaped = html.escape(
        FORBIDDEN_CHARACTERS.sub("\N{REPLACEMENT CHARACTER}", str(text))
    )
    # No URL is left in the file, not even as text.
    return escaped.replace("://", ":&#47;&#47;")
