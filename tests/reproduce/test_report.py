"""Tests of the HTML report: escaping, completeness, values."""

from __future__ import annotations

import base64
import re
from collections import defaultdict
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import example, given, strategies as st

from ncarl.reproduce.plan import HONEST, PAPER, PROTOCOL_LABELS, PROTOCOLS, StudyPlan
from ncarl.reproduce.report import (
    DASH,
    MINUS,
    add_study,
    format_difference,
    format_value,
    start_report,
)
from ncarl.reproduce.summary import Entry, Verdict

VOID = {"br", "img", "meta"}
HOSTILE = "</td><script>alert('x')</script>\"'& https://example.org/x"


class Reader(HTMLParser):
    """Strict parser: tags must be balanced and ids unique."""

    def __init__(self, page):
        super().__init__()
        self.page, self.open, self.tags, self.texts = page, [], [], []
        self.tables, self.cell = [], None
        self.values = defaultdict(list)  # attribute values by name
        self.feed(page)
        assert self.open == []
        ids = self.values["id"]
        assert len(set(ids)) == len(ids)
        self.targets = self.values["href"] + self.values["aria-labelledby"]
        assert {target.lstrip("#") for target in self.targets} <= set(ids)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        for name, value in attrs:
            self.values[name].append(value)
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.cell = {"text": "", "kinds": []}
            self.tables[-1][-1].append(self.cell)
        if self.cell is not None:
            self.cell["kinds"] += dict(attrs).get("class", "").split()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        if tag in ("td", "th"):
            self.cell = None

    def handle_data(self, data):
        self.texts.append(data)
        if self.cell is not None:
            self.cell["text"] += data + " "

    @property
    def text(self):
        return " ".join(self.texts)

    def row(self, label, table=0):
        """Cells of the row of a method in one of the result tables."""
        figures = [t for t in self.tables if t[0][0]["text"].strip() == "method"]
        rows = [r for r in figures[table] if r[0]["text"].strip() == label]
        assert len(rows) == 1
        return rows[0][1:]


def entry(label="NCARL", setting="Image-1, 0.5", group="Image-1", **more):
    first = Entry("table2", PAPER, label.lower(), label, setting, group, 0.5, "done",
                  seeds=5)  # fmt: skip
    return replace(first, **more)


def read(entries=(), measure="error", verdicts=(), title="A study", **more):
    """Write and parse the report of one study."""
    plan = StudyPlan("table2", "table", title, more.pop("text", ""), measure)
    page = start_report(title, verdicts, more.pop("lead", ""))
    return Reader(add_study(page, plan, entries, **more).html())


@pytest.fixture
def png(tmp_path):
    """A file with a PNG signature."""
    path = tmp_path / "dot.png"
    path.write_bytes(b"\x89PNG\r\n\x1a\n and so on")
    return path


def test_texts_are_escaped_and_the_page_is_self_contained(png):
    bad = entry(
        HOSTILE, HOSTILE, HOSTILE, protocol=HOSTILE, status=HOSTILE, message=HOSTILE,
        error=0.1, printed_bound=HOSTILE, params={HOSTILE: HOSTILE, "list": [HOSTILE]},
        scores={HOSTILE: 1.0}, old=True,
    )  # fmt: skip
    for measure in ("error", "seconds"):
        reader = read(
            [bad], measure, [Verdict(HOSTILE, HOSTILE, HOSTILE, HOSTILE)], HOSTILE,
            text=HOSTILE, lead=HOSTILE, notes=[HOSTILE], picture=png,
        )  # fmt: skip
        assert reader.text.count(HOSTILE) > 15
        assert HOSTILE in reader.values["title"]
        assert not {"script", "link", "iframe", "object", "base"} & set(reader.tags)
        assert len(reader.values["src"]) == 1
        page = re.sub(r"base64,[A-Za-z0-9+/=]*", "", reader.page)
        for words in ("<script", "//", "@import", "url("):
            assert words not in page


def test_figure_is_embedded(png):
    reader = read(title="One dot", picture=png)
    encoded = reader.values["src"][0].removeprefix("data:image/png;base64,")
    assert base64.b64decode(encoded) == png.read_bytes()
    assert reader.text.count("One dot") > 2


def test_cell_shows_our_and_printed_result_and_difference():
    ours = entry(error=0.13012, error_sd=0.00123, printed=0.1309)
    (cell,) = read([ours]).row("NCARL")
    words = cell["text"].split()
    assert words[:4] == ["≤", "0.1301", "±", "0.0012"]
    assert words[4:] == ["paper", "0.1309,", f"{MINUS}0.0008"]
    assert "reached" in cell["kinds"]


def test_sign_is_determined_at_the_printed_digits():
    twice = [entry(error=0.2, printed=0.1309), entry(error=0.3)]
    (cell,) = read(twice).row("NCARL")
    assert "0.3000" in cell["text"]  # both values are shown
    assert "≤" not in cell["text"] and "+0.0691" in cell["text"]
    assert "reached" not in cell["kinds"]
    (cell,) = read([entry(error=0.130949, printed=0.1309)]).row("NCARL")
    assert cell["text"].split() == ["≤", "0.1309", "paper", "0.1309,", "0.0000"]


def test_result_over_budget_has_no_sign():
    late = entry(error=0.1, printed=0.2, status="over budget")
    slow = entry("LRFD", error=0.15, printed=0.2)
    even = entry("S3LR", error=0.15, status="over budget")
    reader = read([late, slow, even])
    (cell,), (other,) = reader.row("NCARL"), reader.row("LRFD")
    assert "best" not in reader.row("S3LR")[0]["kinds"]
    assert "over budget" in cell["text"]
    assert "0.1000" in cell["text"]
    assert not {"best", "reached"} & set(cell["kinds"])
    assert {"best", "reached"} <= set(other["kinds"])


def test_lowest_error_of_each_column_is_bold_including_ties():
    table = [
        entry("A", "0.4", "g", error=0.10001), entry("A", "0.5", "g", error=0.3),
        entry("B", "0.4", "g", error=0.10002), entry("B", "0.5", "g", error=0.2),
        entry("C", "0.4", "g", error=0.5), entry("C", "0.5", "g", status="failed"),
    ]  # fmt: skip
    reader = read(table)
    bold = {
        label: ["best" in cell["kinds"] for cell in reader.row(label)]
        for label in "ABC"
    }
    assert bold == {"A": [True, False], "B": [True, True], "C": [False, False]}


def test_failures_are_explained_in_cell_title_and_notes():
    about = {"status": "over budget", "message": "it broke", "printed": 0.5, "seeds": 0}
    reader = read([entry("LRFD", f"ML, {rate}", "ML", **about) for rate in (0.4, 0.5)])
    for cell in reader.row("LRFD"):
        assert cell["text"].split() == ["over", "budget", "paper", "0.5000"]
    assert reader.values["title"] == ["it broke"] * 2
    # One note for all settings.
    assert "LRFD, ML, 0.4 / ML, 0.5: over budget; it broke" in reader.text


def test_seeds_are_shown_unless_there_are_five():
    table = [
        entry("A", error=0.1, error_sd=0.01), entry("B", error=0.2, seeds=2),
        entry("C", error=0.2, error_sd=0.01, seeds=1),
    ]  # fmt: skip
    reader = read(table)
    assert "n=" not in reader.row("A")[0]["text"]
    assert "n=2" in reader.row("B")[0]["text"]
    assert reader.row("C")[0]["text"].split() == ["0.2000", "n=1"]


def test_each_protocol_has_a_table_and_old_results_are_marked():
    table = [
        entry(error=0.2, protocol=HONEST), entry(error=0.1, old=True),
        entry("B", error=0.3),
    ]  # fmt: skip
    reader = read(table)
    paper, honest = (reader.row("NCARL", k)[0]["text"] for k in (0, 1))
    assert "0.1000" in paper and "†" in paper
    assert "0.2000" in honest and "†" not in honest
    for label in (PROTOCOL_LABELS[name] for name in PROTOCOLS):
        assert f"Relative error: {label}" in reader.text
    notes = [text for text in reader.texts if text.startswith("† from an older")]
    assert len(notes) == 2  # the legend and one note


def test_settings_are_columns_of_their_groups():
    table = [
        entry("A", "Image-1, 0.4", "Image-1", error=0.1),
        entry("A", "ML, 0.4", "ML", error=0.2),
        entry("A", "Image-1, 0.5", "Image-1", error=0.3),
        entry("B", "ML, 0.4", "ML", error=0.4),
    ]
    reader = read(table)
    head, settings = reader.tables[0][:2]
    assert [c["text"].strip() for c in head] == ["method", "Image-1", "ML"]
    assert [c["text"].strip() for c in settings] == ["0.4", "0.5", "0.4"]
    shown = [cell["text"].split()[0] for cell in reader.row("A")]
    assert shown == ["0.1000", "0.3000", "0.2000"]
    assert [cell["text"].split()[0] for cell in reader.row("B")] == [
        DASH, DASH, "0.4000"
    ]  # fmt: skip


def test_seconds_show_three_digits_selection_and_bounds():
    table = [
        entry("A", seconds=1234.5, seconds_sd=23.4, printed_seconds=0.7, error=0.9,
              protocol=HONEST, picking=1000.4),
        entry("B", seconds=99.94, printed_bound="> 3000", protocol=HONEST),
        entry("C", status="over budget", printed_bound="> 3000", protocol=HONEST),
    ]  # fmt: skip
    reader = read(table, measure="seconds")
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


def test_selection_time_is_shown_for_the_honest_protocol_only():
    (cell,) = read([entry(seconds=3.0, picking=9.0)], "seconds").row("NCARL")
    assert "picking" not in cell["text"]
    (cell,) = read([entry(error=0.1, error_sd=1e-7)]).row("NCARL")
    assert "<0.0001" in cell["text"]


def test_selected_parameters_are_collapsible():
    made = entry(
        error=0.1, params={"alpha": 100.0, "weights": "pinv"}, steps=12.6,
        converged=False, scores={"psnr": 28.4},
    )  # fmt: skip
    reader = read([made])
    assert reader.tags.count("details") == 2  # legend and parameters
    (table,) = [t for t in reader.tables if t[0][0]["text"].strip() == "protocol"]
    texts = [cell["text"].strip() for cell in table[1]]
    chosen = "alpha = 100, weights = pinv"
    shown = ["paper", "NCARL", "Image-1, 0.5", chosen, "12.6", "no", "psnr = 28.4"]
    assert texts == shown


def test_verdict_has_a_color_and_a_label():
    kinds = {
        "holds": "good", "holds with changes": "partly", "does not hold": "bad",
        "not decided": "open",
    }  # fmt: skip
    made = [Verdict("it is fast", "table 3", state, "0.6 s") for state in kinds]
    rows = read(verdicts=made).tables[0][1:]
    for (claim, where, shown, evidence), (state, kind) in zip(
        rows, kinds.items(), strict=True
    ):
        assert shown["text"].strip().endswith(state)
        assert kind in shown["kinds"]
        texts = [cell["text"].strip() for cell in (claim, where, evidence)]
        assert texts == ["it is fast", "table 3", "0.6 s"]


def test_paragraphs_and_notes_are_present_and_ids_unique(png):
    reader = read(text="One.\n\nTwo\nlines.", notes=["Mind this."], picture=png)
    assert "<p>One.</p>\n<p>Two\nlines.</p>" in reader.page
    assert "Mind this." in reader.text
    for label in (PROTOCOL_LABELS[name] for name in PROTOCOLS):
        assert label in reader.text
    page, plan = start_report("x", []), StudyPlan("a", "table", "Table 1")
    for _ in range(2):
        add_study(page, plan, [entry(error=0.1)])
    assert len(Reader(page.html()).targets) >= 5


def test_unknown_measure_raises():
    with pytest.raises(ValueError, match="measure must be one of"):
        read([entry(error=0.1)], "color")


@given(st.floats(1e-6, 1e7))
def test_seconds_are_rounded_to_three_digits(value):
    shown = float(format_value(value, "seconds"))
    assert shown == pytest.approx(value, rel=0.0051)
    assert len(format_value(value, "seconds").replace(".", "").strip("0")) <= 3


@given(st.floats(0, 2), st.integers(0, 20000))
@example(0.00015, 1309)  # halfway between two values
@example(0.00025, 500)
def test_a_shown_difference_agrees_with_the_shown_figures(ours, ticks):
    theirs = ticks / 1e4
    shown = float(format_difference(ours, theirs, "error").replace(MINUS, "-"))
    assert shown == pytest.approx(float(format_value(ours, "error")) - theirs, abs=1e-9)
