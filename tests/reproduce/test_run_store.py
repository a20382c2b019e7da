"""Tests of results on disk, including files cut off by a kill."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from ncarl.reproduce.plan import Cell, CellResult, ProblemSpec
from ncarl.reproduce.run import CELLS_FILE, ResultStore

PROBLEM = ProblemSpec("low-rank", {"m": 20, "n": 10, "rank": 2})


def result(seed=0, version="v1", error=0.5, **about):
    cell = Cell(PROBLEM, "NCARL", "ncarl", {"alpha": 1.0}, seed=seed)
    return CellResult(cell, "done", version, error=error, **about)


def test_added_results_are_found_immediately_and_after_reopening(tmp_path):
    folder = tmp_path / "deep" / "down"
    store = ResultStore(folder, "v1")
    assert (store.results, store.all_results, store.n_corrupt_lines) == ({}, {}, 0)
    assert not store.path.exists()
    kept = [result(0, message="ü — \u2028 x"), result(1, curve=(1.0, 0.5))]
    for one in kept:
        store.add(one)
        again = ResultStore(folder, "v1")
        assert again.results[one.cell.key] == one
    expected = {one.cell.key: one for one in kept}
    assert store.results == again.results == again.all_results == expected
    assert again.n_corrupt_lines == 0
    lines = (folder / CELLS_FILE).read_bytes().split(b"\n")
    assert [len(line) > 0 for line in lines] == [True, True, False]
    content = json.loads(lines[1].decode("ascii"))
    assert (content["key"], content["cell"]["seed"]) == (kept[1].cell.key, 1)


@given(st.integers(1, 10_000))
def test_a_line_cut_short_anywhere_costs_that_line_only(tmp_path_factory, cut):
    folder = tmp_path_factory.mktemp("store")
    first = ResultStore(folder, "v1")
    first.add(result(0))
    whole = first.path.stat().st_size
    first.add(result(1))
    content = first.path.read_bytes()
    cut = whole + cut % (len(content) - whole - 1)  # within the last line
    first.path.write_bytes(content[:cut])
    second = ResultStore(folder, "v1")
    assert [r.cell.seed for r in second.results.values()] == [0]
    assert second.n_corrupt_lines == (0 if cut == whole else 1)
    second.add(result(2))
    third = ResultStore(folder, "v1")
    assert sorted(r.cell.seed for r in third.results.values()) == [0, 2]
    assert third.n_corrupt_lines == second.n_corrupt_lines


def test_last_line_without_newline_counts(tmp_path):
    first = ResultStore(tmp_path, "v1")
    first.add(result(0))
    first.path.write_bytes(first.path.read_bytes().rstrip(b"\n"))
    second = ResultStore(tmp_path, "v1")
    second.add(result(1))
    third = ResultStore(tmp_path, "v1")
    assert (len(third.results), third.n_corrupt_lines) == (2, 0)


@pytest.mark.parametrize(
    "line",
    [
        b"garbage", b"null", b"[1, 2]", b"{}", b'{"cell": 3}', b"\xff\xfe\x80",
        b'{"cell": {}, "status": "done"}', b'{"cell": {"problem": {}}}',
        b'{"cell": {"problem": {"data": "x"}, "unknown": 1}, "status": "done"}',
        b'{"cell": {"problem": {"data": "x"}, "method": "m", "estimator": "e", '
        b'"params": 5}, "status": "done"}',
    ],
)  # fmt: skip
def test_invalid_line_is_counted_and_skipped(line, tmp_path):
    store = ResultStore(tmp_path, "v1")
    store.add(result(0))
    with store.path.open("ab") as stream:
        stream.write(line + b"\n\n  \n")
    store.add(result(1))
    again = ResultStore(tmp_path, "v1")
    assert again.n_corrupt_lines == 1
    assert sorted(r.cell.seed for r in again.results.values()) == [0, 1]


def test_old_versions_are_used_only_without_newer_results(tmp_path):
    old = ResultStore(tmp_path, "v1")
    old.add(replace(result(0, "v1", 0.9), status="over budget"))
    old.add(result(0, "v1", 0.1))  # replaces the earlier result
    old.add(result(1, "v1", 0.2))
    new = ResultStore(tmp_path, "v2")
    assert new.results == {}
    assert sorted(r.error for r in new.all_results.values()) == [0.1, 0.2]
    new.add(result(1, "v2", 0.3))
    for store in (new, ResultStore(tmp_path, "v2")):
        assert [r.error for r in store.results.values()] == [0.3]
        assert sorted(r.error for r in store.all_results.values()) == [0.1, 0.3]
    back = ResultStore(tmp_path, "v1")
    assert sorted(r.error for r in back.results.values()) == [0.1, 0.2]
    assert sorted(r.error for r in back.all_results.values()) == [0.1, 0.2]


def test_two_stores_may_write_to_one_file(tmp_path):
    one, two = ResultStore(tmp_path, "v1"), ResultStore(tmp_path, "v1")
    for seed in range(6):
        (one, two)[seed % 2].add(result(seed, curve=(1.0 / (seed + 1),) * 2000))
    assert len(one.results) == len(two.results) == 3
    both = ResultStore(tmp_path, "v1")
    assert sorted(r.cell.seed for r in both.results.values()) == list(range(6))
    assert both.n_corrupt_lines == 0
