"""Tests of cells and results: stable keys, JSON round trips."""

from __future__ import annotations

import json
from dataclasses import replace

from hypothesis import example, given, strategies as st

from ncarl.reproduce.plan import Cell, CellResult, ProblemSpec

WORDS = st.text(max_size=6)
NUMBERS = st.integers(-1000, 1000) | st.floats(allow_nan=False, allow_infinity=False)
LISTS = st.lists(st.integers(0, 9), max_size=3)
VALUES = st.none() | st.booleans() | NUMBERS | WORDS | LISTS
OPTIONS = st.dictionaries(WORDS, VALUES, max_size=4)


PROBLEMS = st.builds(ProblemSpec, WORDS, OPTIONS, st.floats(0, 1), WORDS)
CELLS = st.builds(
    Cell, PROBLEMS, WORDS, WORDS, OPTIONS, st.integers(0, 9), WORDS, WORDS
)
RESULTS = st.builds(
    CellResult,
    CELLS,
    status=WORDS,
    version=WORDS,
    error=st.none() | st.floats(0, 9),
    validation=st.none() | st.floats(0, 9),
    scores=st.dictionaries(WORDS, st.floats(0, 9), max_size=3),
    seconds=st.none() | st.floats(0, 9),
    steps=st.none() | st.integers(0, 9),
    converged=st.none() | st.booleans(),
    facts=OPTIONS,
    curve=st.lists(st.floats(-9, 9), max_size=4).map(tuple),
    machine=WORDS,
    message=WORDS,
)


#: A cell that tests change in one place.
CELL = Cell(
    ProblemSpec("low-rank", {"m": 20, "rank": 2}, 0.5),
    "NCARL",
    "ncarl",
    {"alpha": 1, "gamma": None, "sides": [1, 2]},
    seed=3,
)


@given(CELLS, WORDS, st.randoms(use_true_random=False))
def test_neither_the_name_of_a_method_nor_the_order_is_in_the_key(cell, name, random):
    def shuffled(mapping):
        names = list(mapping)
        random.shuffle(names)
        return {name: mapping[name] for name in names}

    problem = replace(cell.problem, options=shuffled(cell.problem.options))
    params = shuffled(cell.params)
    other = replace(cell, method=name, problem=problem, params=params)
    assert other.key == cell.key


@given(st.integers(-(2**53), 2**53))
def test_a_whole_number_has_one_key_however_it_is_written(number):
    one = replace(CELL, params={"a": number, "b": [number]})
    two = replace(CELL, params={"a": float(number), "b": (float(number),)})
    assert one.key == two.key
    sizes = [replace(CELL.problem, options={"m": n}) for n in (number, float(number))]
    keys = {replace(CELL, problem=size, seed=4).key for size in sizes}
    assert len(keys) == 1


@given(CELLS, CELLS)
@example(replace(CELL, params={"a": True}), replace(CELL, params={"a": 1}))
@example(replace(CELL, params={"a": None}), replace(CELL, params={"a": "None"}))
@example(replace(CELL, params={"a": "1"}), replace(CELL, params={"a": 1}))
@example(replace(CELL, params={"a": None}), replace(CELL, params={}))
@example(CELL, replace(CELL, seed=4))
@example(CELL, replace(CELL, role="search"))
@example(CELL, replace(CELL, problem=replace(CELL.problem, missing=0.6)))
def test_fits_that_differ_have_different_keys(one, two):
    def content(value):
        if isinstance(value, dict):
            return sorted((name, content(item)) for name, item in value.items())
        if isinstance(value, list):
            return [content(item) for item in value]
        whole = isinstance(value, int) and not isinstance(value, bool)
        return repr(float(value)) if whole else repr(value)

    def said(cell):
        fields = vars(cell.problem) | vars(cell) | {"method": "", "problem": ""}
        return content({name: item for name, item in fields.items() if name != "key"})

    assert (one.key == two.key) == (said(one) == said(two))


def test_key_is_stable_and_a_valid_file_name():
    # Identifies cells of earlier runs, so it must not change.
    assert CELL.key == "276ee2adb09cb777"
    assert {len(CELL.key), len(replace(CELL, seed=5).key)} == {16}


@given(RESULTS)
def test_a_result_survives_json(result):
    record = json.loads(json.dumps(result.to_dict()))
    again = CellResult.from_dict(record)
    assert again == result
    assert record["key"] == result.cell.key == again.cell.key
    assert isinstance(again.curve, tuple)


def test_fields_of_other_versions_are_ignored():
    cell = Cell(ProblemSpec("low-rank", {"m": 5}), "ours", "ncarl", {"alpha": 1.0})
    kept = CellResult(cell, "done", "v1", error=0.25, seconds=1.0)
    assert CellResult.from_dict({**kept.to_dict(), "memory_gb": 3.5}) == kept
    least = CellResult.from_dict({"cell": CELL.to_dict(), "status": "done"})
    assert least == CellResult(CELL, "done")
