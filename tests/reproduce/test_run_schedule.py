"""Tests of the schedule: searches, selection by both protocols, shared fits."""

from __future__ import annotations

from dataclasses import replace

from ncarl.reproduce.plan import (
    HONEST,
    PAPER,
    PROTOCOLS,
    Cell,
    CellResult,
    MethodSpec,
    ProblemSpec,
    Setting,
    StudyPlan,
    load_plan,
)
from ncarl.reproduce.run import final_cells, schedule_cells, search_cells, select_params

PLAIN = MethodSpec("plain", "Plain", "bias", params={"tol": 1e-3})
GRID = MethodSpec("grid", "Grid", "ncarl", params={"c": 1}, grid={"alpha": [1, 2, 3]})
SETTING = Setting(
    "col", "cols", ProblemSpec("low-rank", {"m": 9}, 0.5), "", (PLAIN, GRID), seeds=3
)
PLAN = StudyPlan("mine", "table", "Mine", settings=(SETTING,), keep="curve")


def results(errors, validations, statuses=("done",) * 3):
    """Finished grid searches by key."""
    cells = search_cells(SETTING, GRID)
    figures = zip(cells, statuses, errors, validations, strict=True)
    return {c.key: CellResult(c, s, error=e, validation=v) for c, s, e, v in figures}


def next_cells(plan=PLAN, protocols=PROTOCOLS, found=()):
    return schedule_cells([plan], protocols, dict(found))


def test_only_grids_are_searched():
    assert search_cells(SETTING, PLAIN) == []
    assert search_cells(SETTING, replace(GRID, grid={"alpha": [5]})) == []
    cells = search_cells(SETTING, GRID)
    assert [cell.params for cell in cells] == [{"c": 1, "alpha": a} for a in (1, 2, 3)]
    assert {(c.seed, c.role, c.keep) for c in cells} == {(0, "search", "")}
    assert select_params(SETTING, PLAIN, PAPER, {}) == {"tol": 1e-3}
    lone = replace(GRID, grid={"alpha": [5]})
    assert select_params(SETTING, lone, HONEST, {}) == {"c": 1, "alpha": 5}


def test_final_fits_use_every_seed():
    cells = final_cells(PLAN, SETTING, PLAIN, {"tol": 2.0})
    assert [cell.seed for cell in cells] == [0, 1, 2]
    assert cells[1] == Cell(
        SETTING.problem, "plain", "bias", {"tol": 2.0}, 1, "final", "curve"
    )


def test_final_fits_follow_the_complete_search():
    full = results((0.3, 0.1, 0.2), (0.3, 0.2, 0.1))
    for missing in full:
        some = {key: result for key, result in full.items() if key != missing}
        assert select_params(SETTING, GRID, PAPER, some) is None
        cells = [t.cell for t in next_cells(found=some) if t.cell.method == "grid"]
        assert {cell.role for cell in cells} == {"search"}
        assert len(cells) == 3
    cells = [t.cell for t in next_cells(found=full) if t.cell.method == "grid"]
    assert sorted(cell.role for cell in cells) == ["final"] * 6 + ["search"] * 3


def test_each_protocol_selects_by_its_own_error():
    found = results((0.3, 0.1, 0.2), (0.3, 0.2, 0.1))
    assert select_params(SETTING, GRID, PAPER, found) == {"c": 1, "alpha": 2}
    assert select_params(SETTING, GRID, HONEST, found) == {"c": 1, "alpha": 3}
    # A fit without this error is the last choice.
    found = results((None, 0.4, 0.5), (0.1, None, 0.9))
    assert select_params(SETTING, GRID, PAPER, found) == {"c": 1, "alpha": 2}
    assert select_params(SETTING, GRID, HONEST, found) == {"c": 1, "alpha": 1}


def test_failed_fits_are_not_selected():
    errors = (0.3, 0.1, 0.2)
    some = results(errors, errors, ("done", "over budget", "done"))
    for protocol in PROTOCOLS:
        assert select_params(SETTING, GRID, protocol, some) == {"c": 1, "alpha": 3}
    none = results(errors, errors, ("failed", "over budget", "no data"))
    assert select_params(SETTING, GRID, PAPER, none) is None
    roles = [t.cell.role for t in next_cells(found=none) if t.cell.method == "grid"]
    assert roles == ["search"] * 3


def test_protocols_share_fits_of_the_same_selection():
    alike = results((0.3, 0.1, 0.2), (0.3, 0.1, 0.2))
    apart = results((0.3, 0.1, 0.2), (0.3, 0.2, 0.1))
    assert len(next_cells(found=alike)) == 3 + 3 + 3  # plain, search, final
    assert len(next_cells(found=apart)) == 3 + 3 + 6
    assert len(next_cells(found=apart, protocols=(PAPER,))) == 9
    picked = {
        t.cell.params["alpha"]
        for t in next_cells(found=apart, protocols=(HONEST,))
        if t.cell.role == "final" and t.cell.method == "grid"
    }
    assert picked == {3}


def test_first_seed_of_all_methods_precedes_the_second():
    found = results((0.3, 0.1, 0.2), (0.3, 0.2, 0.1))
    seeds = [task.cell.seed for task in next_cells(found=found)]
    assert seeds == sorted(seeds)
    assert set(seeds) == {0, 1, 2}
    first = {t.cell.method for t in next_cells(found=found) if t.cell.seed == 0}
    assert first == {"plain", "grid"}


def test_cell_names_its_study_and_setting():
    heavy = replace(SETTING, label="big", heavy=True, methods=(PLAIN,))
    plan = replace(PLAN, settings=(SETTING, heavy))
    # Equal fits belong to the first setting.
    assert {(t.study, t.setting, t.heavy) for t in next_cells(plan)} == {
        ("mine", "col", False)
    }
    other = replace(heavy, problem=replace(SETTING.problem, missing=0.6))
    found = next_cells(replace(PLAN, settings=(SETTING, other)))
    assert {(t.setting, t.heavy) for t in found} == {("col", False), ("big", True)}


def test_table_sharing_fits_adds_only_its_own():
    second, third, fourth = (load_plan(name) for name in ("table2", "table3", "table4"))
    alone = schedule_cells([second], PROTOCOLS, {})
    both = schedule_cells([second, third], iter(PROTOCOLS), {})
    assert [t.cell for t in both] == [t.cell for t in alone]
    assert {t.study for t in both} == {"table2"}
    more = schedule_cells([fourth], PROTOCOLS, {})
    both = schedule_cells([second, fourth], iter(PROTOCOLS), {})
    keys = {t.cell.key for t in (*alone, *more)}
    assert len(both) == len(keys) < len(alone) + len(more)
