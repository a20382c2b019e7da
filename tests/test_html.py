"""Tests of HTML pages: escaping, no external files."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given, strategies as st
from matplotlib.figure import Figure

from ncarl.html import MAX_CELL_LENGTH, Page, escape, span
from ncarl.plots import format_label, save_figure
from ncarl.text import shorten

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='x",
    "</td></table><iframe src='https://example.org'>",
    "$x$ \\frac{1}{0}",
    "n" * 10_000,
    "名前 ünï",
    "שלום עולם",
    "abc\u202edef\u2066",
    "a\x00b\x1bc\ud800",
    "&amp; &lt;",
)


class Reader(HTMLParser):
    """Parser that collects tags and cell texts; tags must be properly nested."""

    def __init__(self, html):
        super().__init__()
        self.open, self.tags, self.words, self.attributes = [], [], [], []
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def page_with(name):
    """A page with a name in every possible place."""
    figure = Figure(figsize=(1, 1))
    figure.suptitle(format_label(name))
    return (
        Page(name, name)
        .heading(name)
        .text(name, name)
        .warning(name)
        .notes([name])
        .code(name)
        .facts({name: name})
        .table((name, "b"), [(name, name)])
        .figure(figure, name)
        .html()
    )


@pytest.mark.parametrize("name", HOSTILE)
def test_names_are_escaped(name):
    html = page_with(name)
    read, expected = Reader(html), Reader(page_with("harmless"))
    assert read.tags == expected.tags
    names = [key for key, _ in read.attributes]
    assert not [key for key in names if key.startswith("on")]
    extra = {"title"} if len(name) > MAX_CELL_LENGTH else set()
    assert set(names) == {key for key, _ in expected.attributes} | extra
    html.encode("utf-8")
    for forbidden in ("\u202e", "\u2066", "\x00", "\x1b", "https://"):
        assert forbidden not in html


@given(st.text(max_size=80))
def test_a_reader_gets_back_what_was_written(text):
    read = Reader(Page("t").text(text).html())
    bad = [c for c in text if escape(c) == "\N{REPLACEMENT CHARACTER}" != c]
    expected = "".join("\N{REPLACEMENT CHARACTER}" if c in bad else c for c in text)
    # Parsers normalize line ends.
    expected = expected.replace("\r\n", "\n").replace("\r", "\n")
    words = "".join(read.words).replace("\r\n", "\n").replace("\r", "\n")
    assert expected in words


def test_long_names_are_truncated_in_tables_only():
    name = "n" * 10_000
    assert len(shorten(name, MAX_CELL_LENGTH)) == MAX_CELL_LENGTH
    assert name not in Page("t").table(("c",), [(name,)]).html()
    assert name in Page("t").text(name).html()


def test_page_has_no_external_files_and_no_scripts():
    html = page_with("x")
    assert "default-src 'none'" in html
    assert "script" not in Reader(html).tags
    sources = [value for key, value in Reader(html).attributes if key == "src"]
    assert sources and all(
        value.startswith("data:image/png;base64,") for value in sources
    )


def test_failed_figure_leaves_a_message():
    def fail():
        raise ValueError("nothing <varies>")

    html = Page("t").try_figure(fail, "The spectrum. More.").html()
    assert "Not drawn (The spectrum): nothing &lt;varies&gt;" in html
    good = Page("t").try_figure(lambda: Figure(figsize=(1, 1)), "c").html()
    assert "data:image/png" in good


def test_empty_parts_are_omitted():
    bare = Page("t").html()
    assert Page("t").notes([]).warning().code("").html() == bare


def test_images_are_embedded_and_must_be_png(tmp_path):
    path = save_figure(Figure(figsize=(1, 1)), tmp_path / "a.png")
    assert "data:image/png" in Page("t").picture(path, "c").html()
    (tmp_path / "b.png").write_bytes(b"<svg>")
    with pytest.raises(ValueError, match="must be PNG files"):
        Page("t").picture(tmp_path / "b.png", "c")


def test_page_is_written_atomically(tmp_path, monkeypatch):
    path = tmp_path / "p.html"
    path.write_text("old")
    page = Page("t")
    assert page.save(path) == path and path.read_text().startswith("<!DOCTYPE html>")
    path.write_text("old")

    def fail_replace(self):
        raise OSError("no room")

    monkeypatch.setattr(Page, "html", fail_replace)
    with pytest.raises(OSError):
        page.save(path)
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_contents_link_to_all_sections_and_cells_may_have_markup():
    page = Page("t").contents().heading("One").heading("Part", level=3)
    cell = span("<1>", span("2", css="small", title='"'), css="best")
    with page.folded("More < less"):
        page.table(("a", "b", "c"), [("x", cell, "n" * 99)], groups=[("both", 2)])
    html = page.heading("Two").table(("a",), [("n" * 99,)], prose=True).html()
    assert Reader(html).tags.count("a") == 2 and html.index("<nav") < html.index("<h2")
    for name in ('<a href="#s1">One</a>', '<a href="#s3">Two</a>', '<h3 id="s2">'):
        assert name in html
    assert '<span class="best">&lt;1&gt;<span class="small" title="&quot;">' in html
    assert 'rowspan="2"' in html and 'colspan="2">both' in html
    assert "More &lt; less</summary>" in html and html.count("n" * 99) == 1
