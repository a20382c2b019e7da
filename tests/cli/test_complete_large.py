"""Tests of large tables: chunked parsing and completion give the same cells."""

from __future__ import annotations

import platform

import numpy as np
import pytest
from hypothesis import given, strategies as st

from ncarl import BayesianNCARL, open_rows
from ncarl.cli import complete_run, models
from ncarl.cli.complete_run import CompleteJob
from ncarl.cli.models import ModelOptions
from ncarl.io import csv as records
from ncarl.io.csv import (
    ColumnParser,
    DelimitedText,
    parse_number,
    parse_plain_numbers,
    parse_quoted_records,
)
from ncarl.io.tables import ReadOptions

TEXTS = st.text(alphabet=st.sampled_from('a1,;."\n\r\té \udcff'), max_size=40)
CELLS = st.sampled_from(["", "1", "-2.5", " 3 ", "1e3", "NA", "nan", "inf", "1_0", "x"])
MISSING = {"", "NA", "nan"}


@given(TEXTS, st.integers(1, 5), st.sampled_from(",;\t"))
def test_records_put_together_are_the_text_byte_for_byte(text, piece, delimiter):
    data = text.encode("utf-8", "surrogateescape")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "PIECE_BYTES", piece)
        found = list(DelimitedText("", data).iter_records(delimiter))
    assert "".join(delimiter.join(r.cells) + r.line_end for r in found) == text
    assert found == list(parse_quoted_records(text, delimiter))


@given(TEXTS)
def test_there_are_never_more_records_than_lines(text):
    content = DelimitedText("", text.encode("utf-8", "surrogateescape"))
    assert sum(1 for _ in content.iter_records(",")) <= content.max_lines


@given(st.lists(CELLS, max_size=6))
def test_quick_numbers_are_those_found_cell_by_cell(cells):
    found = parse_plain_numbers(cells)
    plain = [np.nan if cell == "" else parse_number(cell.strip()) for cell in cells]
    assert (found is None) == (None in plain)
    if found is not None:
        np.testing.assert_array_equal(found, np.array(plain, dtype=float))


@given(st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=9), st.integers(1, 4))
def test_columns_are_the_same_however_many_rows_come_together(rows, step):
    def outcome(size):
        columns = ColumnParser(["a", "b"], True, MISSING, set(), len(rows))
        lines = [records.TextRecord(list(r), "\n", k + 2) for k, r in enumerate(rows)]
        for first in range(0, len(lines), size):
            columns.add_records(lines[first : first + size])
        try:
            values, used = columns.numeric_columns(",")
        except ValueError as error:
            return str(error)
        return used, values.tobytes()

    assert outcome(step) == outcome(len(rows))


@pytest.mark.parametrize("token", ["-999", "0"])
def test_numeric_missing_token_applies_to_every_row(ncarl, tmp_path, token):
    rows = [f"{i % 7}.5,{token if i % 5 == 0 else i % 3 + 1}" for i in range(2300)]
    (tmp_path / "x.csv").write_text("a,b\n" + "\n".join(rows) + "\n")
    out = tmp_path / "o.csv"
    ncarl("complete", tmp_path / "x.csv", "-o", out, "--na", token, "--method", "bias")
    filled = out.read_text().splitlines()[1:]
    for i, (before, after) in enumerate(zip(rows, filled, strict=True)):
        assert (before == after) == (i % 5 != 0)


@pytest.fixture
def small_size_limits(monkeypatch):
    monkeypatch.setattr(complete_run, "MIN_CHUNKED_ENTRIES", 100)
    monkeypatch.setattr(complete_run, "MIN_CHUNKED_ROWS", 20)
    monkeypatch.setattr("ncarl.bayes.selection.MAX_ENTRIES_IN_MEMORY", 0)


def test_large_table_is_fitted_as_a_row_source(small_size_limits, ncarl, tmp_path, rng):
    truth = rng.standard_normal((60, 2)) @ rng.standard_normal((2, 5))
    X = np.where(rng.random(truth.shape) < 0.8, truth.round(3), np.nan)
    cells = [["" if np.isnan(v) else f" {v!r}" for v in row.tolist()] for row in X]
    source = tmp_path / "in.csv"
    source.write_text("a,b,c,d,e\n" + "".join(",".join(r) + "\n" for r in cells))
    result = ncarl("complete", source, "-o", tmp_path / "out.csv", "--scale", "none")
    assert "noise" in result.stdout or "deviation" in result.stdout
    filled = BayesianNCARL(scale=None).fit(open_rows(X)).transform(open_rows(X))
    lines = (tmp_path / "out.csv").read_text().splitlines()[1:]
    for row, line, numbers in zip(cells, lines, filled, strict=True):
        want = [c or f"{v:.10g}" for c, v in zip(row, numbers, strict=True)]
        assert line == ",".join(want)


@pytest.mark.parametrize(
    ("options", "outputs", "shape", "in_turn"),
    [
        ({}, {}, (60, 5), True),
        ({"sides": "columns"}, {}, (60, 5), True),
        ({"sides": "both"}, {}, (60, 5), False),
        ({"method": "ncarl"}, {}, (60, 5), True),
        ({"method": "ncarl", "orientation": "rows"}, {}, (60, 5), False),
        ({"method": "nuclear"}, {}, (60, 5), False),
        ({}, {"--lower": "x"}, (60, 5), False),
        ({}, {"--imputations-out": "x"}, (60, 5), False),
        ({}, {}, (19, 10), False),
        ({}, {}, (21, 4), False),
        ({}, {}, (30, 40), False),
    ],
)
def test_large_tables_are_completed_in_chunks_where_supported(
    small_size_limits, options, outputs, shape, in_turn
):
    values, method = np.ones(shape), options.pop("method", "bayes")
    model = ModelOptions(method, params=options)
    job = CompleteJob("x", ReadOptions(), model, {"OUT": "o", **outputs})
    found = complete_run.chunk_if_large(job, values)
    assert (found is not values) == in_turn


def test_memory_is_trimmed_after_every_chunk_with_glibc(
    small_size_limits, monkeypatch, rng
):
    X = np.where(rng.random((60, 5)) < 0.8, rng.standard_normal((60, 5)), np.nan)
    monkeypatch.setattr(models, "CHUNK_ENTRIES", 100)
    rows = models.chunk_table(X)
    calls = []
    monkeypatch.setattr(models, "load_malloc_trim", lambda: calls.append)
    found = np.concatenate([piece.values for piece in rows])
    np.testing.assert_array_equal(found, X[~np.isnan(X)])
    assert calls == [0, 0, 0]
    # Without glibc, as on macOS and Windows.
    monkeypatch.setattr(models, "load_malloc_trim", lambda: None)
    assert len(list(rows)) == 3


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="memory is given back with glibc only"
)
def test_glibc_is_found():
    trim = models.load_malloc_trim()
    assert trim is not None
    assert trim(0) in (0, 1)
