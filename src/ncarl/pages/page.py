"""A page of text, tables and figures, built piece by piece."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Mapping, Sequence
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
        A paragraph below it; nothing if empty.

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
            self.text(lead)

    def heading(self, text: str) -> Page:
        """Begin a section."""
        self._parts.append(f"<h2>{safe(text)}</h2>")
        return self

    def text(self, *paragraphs: str) -> Page:
        """Add paragraphs."""
        self._parts.extend(f"<p>{safe(paragraph)}</p>" for paragraph in paragraphs)
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
        stream = io.BytesIO()
        # No software tag: the same figure gives the same bytes everywhere.
        figure.savefig(stream, dpi=DPI, format="png", metadata={"Software": None})
        self._parts.append(picture(stream.getvalue(), caption))
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
