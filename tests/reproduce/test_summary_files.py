"""Tests of entries written to files: completeness, atomic writes."""

from __future__ import annotations

import csv
import json
import math
import tempfile
from dataclasses import asdict, fields, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from ncarl.reproduce.summary import Entry, Verdict, write_csv, write_json

PLAIN = Entry("table1", "paper", "ncarl", "NCARL", "20x10, 0.5", "20x10", 0.5, "done")

finite = st.floats(allow_nan=False, allow_infinity=False)
maybe = st.none() | finite
values = st.none() | st.booleans() | st.integers() | finite | st.text()
made_entries = st.builds(
    Entry,
    study=st.text(), protocol=st.text(), method=st.text(), label=st.text(),
    setting=st.text(), group=st.text(), missing=finite, status=st.text(), error=maybe,
    error_sd=maybe, seconds=maybe, seconds_sd=maybe, picking=finite,
    seeds=st.integers(), printed=maybe, printed_seconds=maybe,
    printed_bound=st.text(),
    params=st.dictionaries(st.text(), values | st.lists(values, max_size=3),
                           max_size=3),
    scores=st.dictionaries(st.text(), finite, max_size=3), steps=maybe,
    converged=st.none() | st.booleans(), old=st.booleans(), message=st.text(),
)  # fmt: skip
made_verdicts = st.builds(Verdict, st.text(), st.text(), st.text(), st.text())


def difference(entry):
    """The difference of an entry, or None if it overflows."""
    known = entry.difference is not None and math.isfinite(entry.difference)
    return entry.difference if known else None


@settings(max_examples=20)  # limited by disk access
@given(
    st.lists(made_entries, max_size=3),
    st.lists(made_verdicts, max_size=2),
    st.dictionaries(st.text(), st.text(), max_size=3),
)
def test_json_holds_what_was_given(entries, verdicts, about):
    with tempfile.TemporaryDirectory() as folder:
        path = write_json(Path(folder) / "study.json", entries, verdicts, about)
        content = json.loads(path.read_text("utf-8"))
    assert content == {
        "kind": "ncarl study",
        "version": 1,
        "about": about,
        "verdicts": [asdict(one) for one in verdicts],
        "entries": [{**asdict(e), "difference": difference(e)} for e in entries],
    }


@settings(max_examples=20)
@given(made_entries)
@example(replace(PLAIN, label='a "b", c\r\nd\re', message="=1+1"))
def test_a_line_of_the_table_holds_every_field_to_the_last_digit(entry):
    with tempfile.TemporaryDirectory() as folder:
        path = write_csv(Path(folder) / "study.csv", [entry, PLAIN])
        with path.open(encoding="utf-8", newline="") as stream:
            first, second = csv.DictReader(stream)
    assert second["label"] == "NCARL"
    assert list(first) == [*(field.name for field in fields(Entry)), "difference"]
    for name, value in {**asdict(entry), "difference": difference(entry)}.items():
        text = first[name]
        if name in ("params", "scores"):
            assert json.loads(text) == value
        elif isinstance(value, float):
            assert float(text) == value
        else:
            assert text == ("" if value is None else str(value))


def test_non_finite_values_become_null(tmp_path):
    entry = replace(
        PLAIN, error=math.nan, seconds=math.inf, picking=math.nan,
        params={"p": -math.inf, "deep": [math.nan, {"x": math.inf}]},
        scores={"psnr": math.inf, "rmse": 0.5},
    )  # fmt: skip
    path = write_json(tmp_path / "study.json", [entry], [], {})

    def refuse(word):
        raise AssertionError(f"the file holds {word}")

    content = json.loads(path.read_text("utf-8"), parse_constant=refuse)
    (back,) = content["entries"]
    assert back["params"]["deep"] == [None, {"x": None}]
    assert back["error"] is back["seconds"] is back["picking"] is None
    assert back["scores"] == {"psnr": None, "rmse": 0.5}
    assert write_csv(tmp_path / "study.csv", [entry]).exists()


def test_numpy_numbers_are_written_as_numbers(tmp_path):
    entry = replace(
        PLAIN, error=np.float64(0.1) + np.float64(0.2), old=np.bool_(True),
        seeds=np.int64(5), params={"rank": np.int64(3), "w": np.array([1.0, 2.0])},
    )  # fmt: skip
    path = write_json(tmp_path / "study.json", [entry], [], {})
    (back,) = json.loads(path.read_text("utf-8"))["entries"]
    assert (back["error"], back["old"], back["seeds"]) == (0.1 + 0.2, True, 5)
    assert back["params"] == {"rank": 3, "w": [1.0, 2.0]}
    text = write_csv(tmp_path / "study.csv", [entry]).read_text("utf-8")
    assert "0.30000000000000004" in text and "np." not in text


def failing_entries():
    yield PLAIN
    raise RuntimeError("no more")


def test_failure_keeps_the_old_files(tmp_path):
    for name, write in (
        ("a.csv", write_csv),
        ("a.json", lambda path, entries: write_json(path, entries, [], {})),
    ):
        path = tmp_path / name
        path.write_text("old", encoding="utf-8")
        with pytest.raises(RuntimeError, match="no more"):
            write(path, failing_entries())
        assert path.read_text("utf-8") == "old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.csv", "a.json"]
