"""`Page`: reports as a single HTML file, without scripts, links or other files.

All pages are built from the same few parts. No template engine (Jinja2) is used, to
avoid a dependency.
"""

from __future__ import annotations

import base64
import contextlib
import html
import io
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
.figures th.row { position: sticky; left: 0; text-align: left;
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
  .figures th.row { position: static; }
  details::details-content { content-visibility: visible; block-size: auto; }
  details > :not(summary) { display: block !important; } nav { display: none; } }
"""


class Markup(str):
    """Text that is HTML already, such as a cell of `span`; it is not escaped again."""


class Page:
    """A self-contained HTML page; methods append parts and return the page.

    All text is escaped: names of columns and files may hold any character. ``lead`` is
    a summary below the heading.

    >>> page = Page("A < B").heading("Errors").text("Small.").facts({"rmse": 0.1})
    >>> "A &lt; B</h1>" in page.html()
    True
    """

    def __init__(self, title: str, lead: str = "") -> None:
        self._title = title
        self._parts = [f'<h1 id="s0">{escape(title)}</h1>']
        self._sections: list[str] = []  # headings that the contents link to
        self._contents_at: int | None = None  # part before which the contents go
        self._n_headings = 0
        if lead:
            self._parts.append(f'<p class="lead">{escape(lead)}</p>')

    def contents(self) -> Page:
        """Add links to all sections, also to those that are added later."""
        self._contents_at = len(self._parts)
        return self

    def heading(self, text: str, level: int = 2) -> Page:
        """Add the heading of a section, or of a part of it (level 3)."""
        self._n_headings += 1
        name = f"s{self._n_headings}"
        self._parts.append(f'<h{level} id="{name}">{escape(text)}</h{level}>')
        if level == 2:
            self._sections.append(f'<li><a href="#{name}">{escape(text)}</a></li>')
        return self

    def text(self, *paragraphs: str) -> Page:
        """Add paragraphs."""
        self._parts.extend(f"<p>{escape(paragraph)}</p>" for paragraph in paragraphs)
        return self

    def warning(self, *lines: str) -> Page:
        """Add warnings, if there are any."""
        text = "\n".join(f"<p>{escape(line)}</p>" for line in lines)
        if text:
            self._parts.append(f'<div class="warning">\n{text}\n</div>')
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

    @contextlib.contextmanager
    def folded(self, summary: str) -> Iterator[Page]:
        """Hide what is added inside the ``with`` until a reader opens it."""
        self._parts.append(f"<details>\n<summary>{escape(summary)}</summary>")
        yield self
        self._parts.append("</details>")

    def facts(self, pairs: Mapping[str, object]) -> Page:
        """Add a table of names and values."""
        rows = "\n".join(
            f'<tr><th scope="row">{escape(name)}</th><td>{escape(text)}</td></tr>'
            for name, text in pairs.items()
        )
        return self._add_table(
            f'<table class="facts">\n<tbody>\n{rows}\n</tbody>\n</table>'
        )

    def table(
        self,
        heads: Sequence[object],
        rows: Iterable[Sequence[object]],
        *,
        groups: Sequence[tuple[str, int]] = (),
        prose: bool = False,
    ) -> Page:
        """Add a table; its first column names the rows.

        ``groups`` are names and widths of groups of the other columns. Cells of
        ``prose`` are aligned to the left, and not shortened.
        """
        limit = None if prose else MAX_CELL_LENGTH
        corner, *names = [
            f'<th scope="col">{_shorten(name, limit)}</th>' for name in heads
        ]
        corner = corner.replace("<th ", '<th class="row" ')
        top = f"<tr>{corner}{''.join(names)}</tr>"
        if groups:
            corner = corner.replace("<th ", '<th rowspan="2" ')
            wide = "".join(
                f'<th scope="colgroup" class="group" colspan="{width}">'
                f"{_shorten(name, limit)}</th>"
                for name, width in groups
            )
            top = f"<tr>{corner}{wide}</tr>\n<tr>{''.join(names)}</tr>"
        lines = []
        for first, *others in rows:
            text = _shorten(first, limit)
            whole = "" if text == escape(first) else f' title="{_shorten(first, 500)}"'
            cells = "".join(f"<td>{_shorten(cell, limit)}</td>" for cell in others)
            lines.append(
                f'<tr><th scope="row" class="row"{whole}>{text}</th>{cells}</tr>'
            )
        body = "\n".join(lines)
        return self._add_table(
            f'<table class="{"prose" if prose else "figures"}">\n'
            f"<thead>\n{top}\n</thead>\n<tbody>\n{body}\n</tbody>\n</table>"
        )

    def _add_table(self, table: str) -> Page:
        # A region that scrolls sideways on narrow screens, by keyboard too, and that
        # screen readers announce by the heading above it.
        self._parts.append(
            '<div class="scroll" role="region" tabindex="0" '
            f'aria-labelledby="s{self._n_headings}">\n{table}\n</div>'
        )
        return self

    def figure(self, figure: Figure, caption: str) -> Page:
        """Add a Matplotlib figure as an embedded image."""
        from ncarl.plots.style import write_png

        stream = io.BytesIO()
        write_png(figure, stream, DPI)
        return self._add_png(stream.getvalue(), caption)

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
        if not data.startswith(b"\x89PNG\r\n\x1a\n"):
            raise ValueError(
                f"pictures of a page must be PNG files, got {str(path)!r}, which "
                f"begins with {data[:8]!r}; save it as PNG"
            )
        return self._add_png(data, caption)

    def _add_png(self, data: bytes, caption: str) -> Page:
        encoded = base64.b64encode(data).decode("ascii")
        self._parts.append(
            f'<figure>\n<img alt="{escape(caption)}" '
            f'src="data:image/png;base64,{encoded}">\n'
            f"<figcaption>{escape(caption)}</figcaption>\n</figure>"
        )
        return self

    def html(self) -> str:
        """The whole page."""
        parts = list(self._parts)
        if self._contents_at is not None:
            items = "\n".join(self._sections)
            parts.insert(
                self._contents_at,
                f'<nav aria-label="Contents">\n<ul>\n{items}\n</ul>\n</nav>',
            )
        head = (
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            f'<meta name="generator" content="{GENERATOR}">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            '<meta http-equiv="Content-Security-Policy" '
            f'content="{CONTENT_SECURITY_POLICY}">\n'
            f"<title>{escape(self._title)}</title>\n<style>{CSS}</style>\n</head>"
        )
        return "\n".join([head, "<body>", *parts, "</body>", "</html>", ""])

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page atomically, and return its path."""
        target = Path(path)
        with atomic_write(target) as temporary:
            temporary.write_text(self.html(), encoding="utf-8")
        return target


def span(*parts: object, css: str = "", title: str = "") -> Markup:
    """Text with a CSS class and a tooltip, as a cell of a table or a part of one.

    >>> span("< 1", span("paper 2", css="small"))
    '<span>&lt; 1<span class="small">paper 2</span></span>'
    """
    attributes = f' class="{escape(css)}"' if css else ""
    attributes += f' title="{escape(title)}"' if title else ""
    return Markup(f"<span{attributes}>{''.join(map(escape, parts))}</span>")


def _shorten(cell: object, max_length: int | None) -> str:
    if max_length is None or isinstance(cell, Markup):
        return escape(cell)
    return escape(shorten(cell, max_length))


def escape(text: object) -> str:
    """Escape text for HTML, also in attributes; addresses are not links.

    >>> escape('<b title="x">')
    '&lt;b title=&quot;x&quot;&gt;'
    """
    if isinstance(text, Markup):
        return text
    escaped = html.escape(
        FORBIDDEN_CHARACTERS.sub("\N{REPLACEMENT CHARACTER}", str(text))
    )
    # No URL is left in the file, not even as text.
    return escaped.replace("://", ":&#47;&#47;")
