"""A page of text, tables and figures, built piece by piece."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ncarl.pages.markup import facts, foot, head, picture, table
from ncarl.pages.style import safe
from ncarl.storage import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Dots per inch of figures on a page.
DPI = 110


class Page:
    """A page that needs no other file; its parts stand in the order of the calls.

    Everything is escaped: names of columns and files may hold any character.

    Parameters
    ----------
    title : str
        Its heading.
    lead : str
        The answer in a sentence or two, below it; nothing if empty.

    Examples
    --------
    >>> page = Page("A < B").heading("Errors").text("Small.").facts({"rmse": 0.1})
    >>> "<h1>A &lt; B</h1>" in page.html()
    True
    """

    def __init__(self, title: str, lead: str = "") -> None:
        self._title = title
        self._parts = [f"<h1>{safe(title)}</h1>"]
        if lead:
            self._parts.append(f'<p class="lead">{safe(lead)}</p>')

    def heading(self, text: str) -> Page:
        """Begin a section."""
        self._parts.append(f"<h2>{safe(text)}</h2>")
        return self

    def text(self, *paragraphs: str) -> Page:
        """Add paragraphs."""
        self._parts.extend(f"<p>{safe(paragraph)}</p>" for paragraph in paragraphs)
        return self

    def warning(self, *paragraphs: str) -> Page:
        """Add paragraphs that must not be overlooked; nothing if there are none."""
        if paragraphs:
            inner = "".join(f"<p>{safe(paragraph)}</p>" for paragraph in paragraphs)
            self._parts.append(f'<div class="warning">{inner}</div>')
        return self

    def code(self, text: str) -> Page:
        """Add a command or a piece of code; nothing if it is empty."""
        if text:
            self._parts.append(f"<pre>{safe(text)}</pre>")
        return self

    def notes(self, lines: Iterable[str]) -> Page:
        """Add a list; nothing if it is empty."""
        items = "\n".join(f"<li>{safe(line)}</li>" for line in lines)
        if items:
            self._parts.append(f'<ul class="notes">\n{items}\n</ul>')
        return self

    def facts(self, pairs: Mapping[str, object]) -> Page:
        """Add names and what there is to say of each."""
        self._parts.append(facts(pairs))
        return self

    def table(self, heads: Sequence[object], rows: Iterable[Sequence[object]]) -> Page:
        """Add a table; its first column names the rows."""
        self._parts.append(table(heads, rows))
        return self

    def figure(self, figure: Figure, caption: str) -> Page:
        """Add a figure of matplotlib, as a picture inside the page."""
        from ncarl.plots.style import write_png

        stream = io.BytesIO()
        write_png(figure, stream, DPI)
        self._parts.append(picture(stream.getvalue(), caption))
        return self

    def drawn(self, draw: Callable[[], Figure], caption: str) -> Page:
        """Add the figure that a function draws, or the reason why it cannot.

        A figure that cannot be drawn must not cost the page.
        """
        try:
            figure = draw()
        except ValueError as error:
            return self.notes([f"Not drawn ({caption.split('.')[0]}): {error}"])
        return self.figure(figure, caption)

    def picture(self, path: str | os.PathLike[str], caption: str) -> Page:
        """Add a PNG file."""
        data = Path(path).read_bytes()
        self._parts.append(picture(data, caption, name=str(path)))
        return self

    def html(self) -> str:
        """The whole page."""
        return "\n".join([head(self._title), *self._parts, foot()])

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the page; the file is whole or as it was."""
        target = Path(path)
        with replacing(target) as temporary:
            temporary.write_text(self.html(), encoding="utf-8")
        return target
