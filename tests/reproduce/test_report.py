"""The report: one page, safe, whole, and true to its entries."""

from __future__ import annotations

import base64
import re
import zlib
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import example, given, strategies as st

from ncarl.html import escape
from ncarl.reproduce.plan import HONEST, PAPER, PROTOCOL_LABELS, PROTOCOLS
from ncarl.reproduce.report import (
    DASH,
    MINUS,
    ReportSection,
    format_difference,
    format_number,
    write_report,
)
from ncarl.reproduce.summary import Entry, Verdict

VOID = {"br", "img", "meta"}
HOSTILE = "</td><script>alert('x')</script>\"'& https://example.org/x"


class Reader(HTMLParser):
    """Reads a page strictly: tags must be balanced and ids unique."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.vocabulary, self.tags, self.texts = [], [], [], []
        self.targets, self.titles, self.sources = [], [], []
        self.tables, self.cell = [], None

    def handle_starttag(self, tag, attrs):
        named = dict(attrs)
        assert len(named) == len(attrs), f"<{tag}> has an attribute twice"
        self.tags.append(tag)
        for name, bag in (
            ("id", self.vocabulary), ("href", self.targets), ("title", self.titles),
            ("src", self.sources), ("aria-labelledby", self.targets),
        ):  # fmt: skip
            if name in named:
                bag.append(named[name])
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append({"text": "", "kinds": []})
            self.cell = self.tables[-1][-1][-1]
        elif self.cell is not None:
            self.cell["kinds"] += named.get("class", "").split()
        if tag in ("td", "th"):
            self.cell["kinds"] += named.get("class", "").split()
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag
        if tag in ("td", "th"):
            self.cell = None

    def handle_data(self, data):
        self.texts.append(data)
        if self.cell is not None:
            self.cell["text"] += data + " "

    @classmethod
    def of(cls, page):
        reader = cls()
        reader.feed(page)
        reader.close()
        assert reader.open == []
        assert len(set(reader.vocabulary)) == len(reader.vocabulary)
        assert {t.lstrip("#") for t in reader.targets} <= set(reader.vocabulary)
        return reader

    @property
    def text(self):
        return " ".join(self.texts)

    def row(self, label, table=0):
        """Cells of the row of a method, in one of the tables of figures."""
        figures = [t for t in self.tables if t[0][0]["text"].strip() == "method"]
        rows = [r for r in figures[table] if r[0]["text"].strip() == label]
        assert len(rows) == 1
        return rows[0][1:]


def entry(label="NCARL", setting="Image-1, 0.5", group="Image-1", **more):
    first = Entry("table2", PAPER, label.lower(), label, setting, group, 0.5, "done",
                  seeds=5)  # fmt: skip
    return replace(first, **more)


def page_of(tmp_path, sections=(), verdicts=(), about=None, title="A study"):
    path = write_report(
        tmp_path / "report.html", title=title, sections=sections, verdicts=verdicts,
        about={"machine": "two cores"} if about is None else about,
    )  # fmt: skip
    return path.read_text(encoding="utf-8")


def read(tmp_path, entries, measure="error", **more):
    section = ReportSection(
        "table2", "Table 2", entries=entries, measure=measure, **more
    )
    return Reader.of(page_of(tmp_path, [section]))


@pytest.fixture
def png(tmp_path):
    """The smallest PNG file: one black dot."""

    def chunk(kind, data):
        body = kind + data
        size = len(data).to_bytes(4, "big")
        return size + body + zlib.crc32(body).to_bytes(4, "big")

    head = b"\0\0\0\1\0\0\0\1\x08\0\0\0\0"
    path = tmp_path / "dot.png"
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(b"\0\0")) + chunk(b"IEND", b"")
    )  # fmt: skip
    return path


def hostile_page(tmp_path, png):
    bad = entry(
        HOSTILE, HOSTILE, HOSTILE, protocol=HOSTILE, status=HOSTILE, message=HOSTILE,
        error=0.1, printed_bound=HOSTILE, params={HOSTILE: HOSTILE, "list": [HOSTILE]},
        scores={HOSTILE: 1.0}, old=True,
    )  # fmt: skip
    sections = [
        ReportSection(
            HOSTILE, HOSTILE, HOSTILE, [bad], measure, {HOSTILE: png}, [HOSTILE]
        )
        for measure in ("error", "seconds")
    ]
    verdicts = [Verdict(HOSTILE, HOSTILE, HOSTILE, HOSTILE)]
    return page_of(tmp_path, sections, verdicts, {HOSTILE: HOSTILE}, HOSTILE)


def test_hostile_texts_stay_texts(tmp_path, png):
    page = hostile_page(tmp_path, png)
    reader = Reader.of(page)
    assert "script" not in reader.tags
    assert "<script" not in page
    assert reader.text.count(HOSTILE) > 20
    assert HOSTILE in reader.titles


def test_the_page_asks_nothing_of_the_world(tmp_path, png):
    page = hostile_page(tmp_path, png)
    assert not re.search(r"https?://", page)
    assert "//" not in re.sub(r"base64,[A-Za-z0-9+/=]*", "", page)
    assert "@import" not in page
    assert "url(" not in page
    reader = Reader.of(page)
    assert reader.sources
    assert all(s.startswith("data:image/png;base64,") for s in reader.sources)
    assert not {"script", "link", "iframe", "object", "base"} & set(reader.tags)


@given(st.text())
def test_safe_text_reads_as_it_was_and_holds_no_markup(text):
    reader = Reader()
    reader.feed(f'<p title="{escape(text)}">{escape(text)}</p>')
    reader.close()
    assert reader.tags == ["p"]
    shown = re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", "\ufffd", text)
    assert "".join(reader.texts) == shown
    assert reader.titles == [shown]


def test_a_lone_half_of_a_character_does_not_stop_the_page(tmp_path):
    assert "caf\ufffd" in page_of(tmp_path, title="caf\udce9")


def test_figures_are_inside_the_page(tmp_path, png):
    section = ReportSection("fig1", "Spectra", figures={"One dot": png})
    reader = Reader.of(page_of(tmp_path, [section]))
    encoded = reader.sources[0].removeprefix("data:image/png;base64,")
    assert base64.b64decode(encoded) == png.read_bytes()
    assert "One dot" in reader.text


def test_a_figure_that_is_no_png_is_refused_and_nothing_is_written(tmp_path):
    other = tmp_path / "figure.svg"
    other.write_text("<svg/>", encoding="utf-8")
    section = ReportSection("fig1", "Spectra", figures={"x": other})
    with pytest.raises(ValueError, match=r"figure\.svg"):
        page_of(tmp_path, [section])
    assert not (tmp_path / "report.html").exists()


def test_a_cell_shows_ours_the_papers_and_the_difference(tmp_path):
    ours = entry(error=0.13012, error_sd=0.00123, printed=0.1309)
    (cell,) = read(tmp_path, [ours]).row("NCARL")
    words = cell["text"].split()
    assert words[:4] == ["≤", "0.1301", "±", "0.0012"]
    assert words[4:] == ["paper", "0.1309,", f"{MINUS}0.0008"]
    assert "reached" in cell["kinds"]


def test_a_cell_above_the_paper_has_no_sign_and_no_color(tmp_path):
    (cell,) = read(tmp_path, [entry(error=0.2, printed=0.1309)]).row("NCARL")
    assert "≤" not in cell["text"]
    assert "+0.0691" in cell["text"]
    assert "reached" not in cell["kinds"]


def test_the_sign_goes_by_the_digits_that_the_paper_prints(tmp_path):
    (cell,) = read(tmp_path, [entry(error=0.130949, printed=0.1309)]).row("NCARL")
    assert cell["text"].split() == ["≤", "0.1309", "paper", "0.1309,", "0.0000"]


def test_what_ran_out_of_time_earns_no_sign(tmp_path):
    late = entry(error=0.1, printed=0.2, status="over budget")
    slow = entry("LRFD", error=0.15, printed=0.2)
    even = entry("S3LR", error=0.15, status="over budget")
    reader = read(tmp_path, [late, slow, even])
    (cell,), (other,) = reader.row("NCARL"), reader.row("LRFD")
    assert "best" not in reader.row("S3LR")[0]["kinds"]
    assert "over budget" in cell["text"]
    assert "0.1000" in cell["text"]
    assert not {"best", "reached"} & set(cell["kinds"])
    assert {"best", "reached"} <= set(other["kinds"])


def test_the_least_error_of_each_column_is_bold_ties_too(tmp_path):
    table = [
        entry("A", "0.4", "g", error=0.10001), entry("A", "0.5", "g", error=0.3),
        entry("B", "0.4", "g", error=0.10002), entry("B", "0.5", "g", error=0.2),
        entry("C", "0.4", "g", error=0.5), entry("C", "0.5", "g", status="failed"),
    ]  # fmt: skip
    reader = read(tmp_path, table)
    bold = {
        label: ["best" in cell["kinds"] for cell in reader.row(label)]
        for label in "ABC"
    }
    assert bold == {"A": [True, False], "B": [True, True], "C": [False, False]}


@pytest.mark.parametrize("status", ["over budget", "failed", "no data", "not run"])
def test_what_went_wrong_is_said_in_the_cell_its_title_and_below(tmp_path, status):
    bad = entry(status=status, message="it broke", printed=0.5, seeds=0)
    reader = read(tmp_path, [bad])
    (cell,) = reader.row("NCARL")
    assert cell["text"].split() == [*status.split(), "paper", "0.5000"]
    assert reader.titles == ["it broke"]
    assert f"NCARL, Image-1, 0.5: {status}; it broke" in reader.text


def test_one_note_serves_settings_with_one_fate(tmp_path):
    bad = [
        entry("LRFD", f"ML, {rate}", "ML", status="failed", message="it broke")
        for rate in (0.4, 0.5)
    ]
    text = read(tmp_path, bad).text
    assert "LRFD, ML, 0.4 / ML, 0.5: failed; it broke" in text


def test_seeds_are_named_where_they_are_not_five(tmp_path):
    table = [
        entry("A", error=0.1, error_sd=0.01), entry("B", error=0.2, seeds=2),
        entry("C", error=0.2, error_sd=0.01, seeds=1),
    ]  # fmt: skip
    reader = read(tmp_path, table)
    assert "n=" not in reader.row("A")[0]["text"]
    assert "n=2" in reader.row("B")[0]["text"]
    assert reader.row("C")[0]["text"].split() == ["0.2000", "n=1"]


def test_older_code_is_marked_and_explained_below_that_table_only(tmp_path):
    table = [
        entry("A", error=0.1, old=True),
        entry("A", error=0.1, protocol=HONEST),
    ]
    reader = read(tmp_path, table)
    assert "†" in reader.row("A", 0)[0]["text"]
    assert "†" not in reader.row("A", 1)[0]["text"]
    notes = [text for text in reader.texts if text.startswith("† from an older")]
    assert len(notes) == 2  # how to read the tables, and the note of one of them


def test_each_protocol_has_a_table_under_its_label(tmp_path):
    table = [
        entry(error=0.2, protocol=HONEST), entry(error=0.1), entry("B", error=0.3)
    ]  # fmt: skip
    reader = read(tmp_path, table)
    assert "0.1000" in reader.row("NCARL", 0)[0]["text"]
    assert "0.2000" in reader.row("NCARL", 1)[0]["text"]
    for label in (PROTOCOL_LABELS[name] for name in PROTOCOLS):
        assert f"Relative error: {label}" in reader.text


def test_settings_are_columns_under_their_groups(tmp_path):
    table = [
        entry("A", "Image-1, 0.4", "Image-1", error=0.1),
        entry("A", "ML, 0.4", "ML", error=0.2),
        entry("A", "Image-1, 0.5", "Image-1", error=0.3),
        entry("B", "ML, 0.4", "ML", error=0.4),
    ]
    reader = read(tmp_path, table)
    head, settings = reader.tables[0][:2]
    assert [c["text"].strip() for c in head] == ["method", "Image-1", "ML"]
    assert [c["text"].strip() for c in settings] == ["0.4", "0.5", "0.4"]
    shown = [cell["text"].split()[0] for cell in reader.row("A")]
    assert shown == ["0.1000", "0.3000", "0.2000"]
    assert [cell["text"].split()[0] for cell in reader.row("B")] == [
        DASH, DASH, "0.4000"
    ]  # fmt: skip


def test_nothing_is_lost_where_two_entries_share_a_cell(tmp_path):
    (cell,) = read(tmp_path, [entry(error=0.1), entry(error=0.2)]).row("NCARL")
    assert "0.1000" in cell["text"]
    assert "0.2000" in cell["text"]


def test_seconds_have_three_digits_picking_and_bounds(tmp_path):
    table = [
        entry("A", seconds=1234.5, seconds_sd=23.4, printed_seconds=0.7, error=0.9,
              protocol=HONEST, picking=1000.4),
        entry("B", seconds=99.94, printed_bound="> 3000", protocol=HONEST),
        entry("C", status="over budget", printed_bound="> 3000", protocol=HONEST),
    ]  # fmt: skip
    reader = read(tmp_path, table, measure="seconds")
    assert reader.row("A")[0]["text"].split() == [
        "1230", "±", "23", "paper", "0.700,", "+1230", "picking", "1000"
    ]  # fmt: skip
    assert reader.row("B")[0]["text"].split() == [
        "≤", "99.9", "paper", ">", "3000", "picking", "0"
    ]  # fmt: skip
    assert reader.row("C")[0]["text"].split() == [
        "over", "budget", "paper", ">", "3000"
    ]  # fmt: skip
    assert "best" in reader.row("B")[0]["kinds"]
    assert "Seconds:" in reader.text


def test_picking_is_no_matter_of_the_papers_protocol(tmp_path):
    table = [entry(seconds=3.0, picking=9.0)]
    cell = read(tmp_path, table, measure="seconds").row("NCARL")[0]
    assert "picking" not in cell["text"]


def test_a_tiny_spread_is_not_shown_as_none(tmp_path):
    (cell,) = read(tmp_path, [entry(error=0.1, error_sd=1e-7)]).row("NCARL")
    assert "<0.0001" in cell["text"]


def test_chosen_parameters_fold_away(tmp_path):
    made = entry(
        error=0.1, params={"alpha": 100.0, "weights": "pinv"}, steps=12.6,
        converged=False, scores={"psnr": 28.4},
    )  # fmt: skip
    section = ReportSection("table2", "Table 2", entries=[made])
    page = page_of(tmp_path, [section])
    assert "<details>" in page.split('id="s1-table2"')[1]
    reader = Reader.of(page)
    (table,) = [t for t in reader.tables if t[0][0]["text"].strip() == "protocol"]
    texts = [cell["text"].strip() for cell in table[1]]
    assert texts == [
        *("paper", "NCARL", "Image-1, 0.5", "alpha = 100, weights = pinv"),
        *("12.6", "no", "psnr = 28.4"),
    ]


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ("holds", "good"),
        ("holds with changes", "partly"),
        ("does not hold", "bad"),
        ("not decided", "open"),
    ],
)
def test_a_verdict_has_a_color_and_a_word(tmp_path, state, kind):
    verdict = Verdict("NCARL is fast", "table 3", state, "0.6 s against 1.5 s")
    reader = Reader.of(page_of(tmp_path, verdicts=[verdict]))
    claim, where, shown, evidence = reader.tables[0][1]
    assert shown["text"].strip().endswith(state)
    assert kind in shown["kinds"]
    assert claim["text"].strip() == "NCARL is fast"
    assert (where["text"].strip(), evidence["text"].strip()) == (
        "table 3", "0.6 s against 1.5 s",
    )  # fmt: skip


def test_sections_of_one_name_do_not_share_ids(tmp_path):
    section = ReportSection("table1", "Table 1", entries=[entry(error=0.1)])
    reader = Reader.of(
        page_of(tmp_path, [section, section, ReportSection("?!", "odd")])
    )
    assert len([i for i in reader.vocabulary if i.endswith("table1")]) == 2


def test_paragraphs_notes_and_origin_are_there(tmp_path):
    section = ReportSection(
        "fig1", "Spectra", "One.\n\nTwo\nlines.", notes=["Mind this."]
    )
    page = page_of(tmp_path, [section], about={"date": "today", "seeds": "5"})
    assert "<p>One.</p>\n<p>Two\nlines.</p>" in page
    reader = Reader.of(page)
    assert "Mind this." in reader.text
    assert [c["text"].strip() for c in reader.tables[-1][1]] == ["seeds", "5"]
    for label in (PROTOCOL_LABELS[name] for name in PROTOCOLS):
        assert label in reader.text


def test_an_empty_study_is_a_page_too(tmp_path):
    assert Reader.of(page_of(tmp_path, about={})).tables == []


def test_screens_and_paper_are_thought_of(tmp_path):
    page = page_of(tmp_path)
    for words in ("prefers-color-scheme: dark", "@media print", "overflow-x: auto"):
        assert words in page
    assert 'name="viewport"' in page


def test_a_measure_that_is_not_known_is_refused():
    with pytest.raises(ValueError, match="measure must be one of"):
        ReportSection("x", "x", measure="color")


@given(st.floats(1e-6, 1e7))
def test_seconds_are_rounded_to_three_digits(value):
    shown = float(format_number(value, "seconds"))
    assert shown == pytest.approx(value, rel=0.0051)
    assert len(format_number(value, "seconds").replace(".", "").strip("0")) <= 3


@given(st.floats(0, 2), st.integers(0, 20000))
@example(0.00015, 1309)  # halfway between two figures
@example(0.00025, 500)
def test_a_shown_difference_agrees_with_the_shown_figures(ours, ticks):
    theirs = ticks / 1e4
    shown = float(format_difference(ours, theirs, "error").replace(MINUS, "-"))
    assert shown == pytest.approx(
        float(format_number(ours, "error")) - theirs, abs=1e-9
    )
