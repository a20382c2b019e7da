"""Tests of table entries: means, deviations, selection, failures."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from ncarl.reproduce.plan import (
    GIVEN,
    HONEST,
    PAPER,
    PROTOCOLS,
    CellResult,
    MethodSpec,
    ProblemSpec,
    Setting,
    StudyPlan,
    load_plan,
)
from ncarl.reproduce.run import final_cells, search_cells
from ncarl.reproduce.summary import summarize_plan

PLAIN = MethodSpec("nuclear", "Nuclear", "nuclear", printed="Nuclear")
GRID = MethodSpec("ncarl", "NCARL", "ncarl", "NCARL", grid={"alpha": [1, 2, 3]})
SETTING = Setting(
    "500x300, 0.8", "500x300", ProblemSpec("low-rank", {"m": 9}, 0.8), "500x300",
    (PLAIN, GRID), seeds=3,
)  # fmt: skip
PLAN = StudyPlan("table1", "table", "Mine", printed="table1", settings=(SETTING,))


def finished(one, figures, params=None, version="v1"):
    """Results of all seeds of a method with (status, error, seconds)."""
    cells = final_cells(PLAN, SETTING, one, params or {})
    return {
        cell.key: CellResult(
            cell, status, version, error=error, seconds=seconds, steps=10 * cell.seed,
            converged=cell.seed < 2, scores={"rmse": 2.0 * (error or 0.0)},
            message=f"about seed {cell.seed}",
        )
        for cell, (status, error, seconds) in zip(cells, figures, strict=False)
    }  # fmt: skip


def searches(errors, validations, status="done", version="v1", seconds=5.0):
    cells = search_cells(SETTING, GRID)
    return {
        cell.key: CellResult(
            cell, status, version, error=e, validation=v, seconds=seconds, message="why"
        )
        for cell, e, v in zip(cells, errors, validations, strict=False)
    }


def entry(found, method="nuclear", protocol=PAPER, plan=PLAN, version="v1"):
    """The entry of a method under a protocol."""
    (one,) = [
        e
        for e in summarize_plan(plan, PROTOCOLS, found, version)
        if e.method == method and e.protocol == protocol
    ]
    return one


def done(*figures):
    return [("done", error, seconds) for error, seconds in figures]


@given(
    st.lists(st.tuples(st.floats(0.01, 5), st.floats(0.01, 99)), min_size=3, max_size=3)
)
def test_means_and_spreads_are_those_of_the_seeds(figures):
    one = entry(finished(PLAIN, done(*figures)))
    errors, seconds = np.array(figures).T
    assert one.error == pytest.approx(errors.mean())
    assert one.error_sd == pytest.approx(errors.std(ddof=1), abs=1e-9)
    assert one.seconds == pytest.approx(seconds.mean())
    assert one.seconds_sd == pytest.approx(seconds.std(ddof=1), abs=1e-9)
    assert one.scores == {"rmse": pytest.approx(2 * errors.mean())}
    assert (one.seeds, one.status, one.steps) == (3, "done", 10.0)
    assert one.converged is False
    assert one.message == ""


def test_entries_are_ordered_by_protocol_setting_and_method():
    other = replace(SETTING, label="other", printed="")
    plan = replace(PLAN, settings=(SETTING, other))
    found = summarize_plan(plan, PROTOCOLS, {}, "v1")
    assert [(e.protocol, e.setting, e.method) for e in found] == [
        (protocol, setting, method)
        for protocol in (PAPER, HONEST)
        for setting in ("500x300, 0.8", "other")
        for method in ("nuclear", "ncarl")
    ]
    assert {e.status for e in found} == {"not run"}
    assert {(e.study, e.group, e.missing) for e in found} == {
        ("table1", "500x300", 0.8)
    }
    assert [e.label for e in found[:2]] == ["Nuclear", "NCARL"]
    assert len(summarize_plan(plan, (HONEST,), {}, "v1")) == 4


def test_entries_without_selection_have_no_protocol():
    further = replace(SETTING, methods=(PLAIN,), further=True)
    found = finished(PLAIN, done((0.5, 2.0)))
    plan = replace(PLAN, settings=(further,))
    (one,) = summarize_plan(plan, PROTOCOLS, found, "v1")
    assert (one.protocol, one.error, one.picking) == (GIVEN, 0.5, 0.0)
    assert one.further and not entry({}).further
    # A single seed has no standard deviation.
    assert (one.error_sd, one.seconds_sd, one.seeds) == (None, None, 1)
    assert one.converged is True


def test_seconds_refer_to_the_machine_of_the_first_seed():
    found = finished(PLAIN, done((0.5, 2.0), (0.6, 90.0), (0.7, 4.0)))
    machines = (
        "GPU, 2 side by side",
        "x86, 2 cores, one at a time",
        "GPU, one at a time",
    )
    for key, machine in zip(list(found), machines, strict=True):
        found[key] = replace(found[key], machine=machine)
    one = entry(found)
    assert (one.seconds, one.machine) == (3.0, "GPU")
    assert one.seconds_sd == pytest.approx(2**0.5)
    assert (one.error, one.seeds) == (pytest.approx(0.6), 3)


def test_search_time_counts_for_the_honest_protocol_only():
    search = searches((0.3, 0.1, 0.2), (0.3, 0.2, 0.1))
    found = {
        **search,
        **finished(GRID, done((0.1, 2.0), (0.3, 4.0)), {"alpha": 2}),
        **finished(GRID, done((0.4, 1.0), (0.6, 2.0)), {"alpha": 3}),
    }
    paper = entry(found, "ncarl")
    assert (paper.params, paper.picking) == ({"alpha": 2}, 0.0)
    assert (paper.seconds, paper.error) == (3.0, pytest.approx(0.2))
    honest = entry(found, "ncarl", HONEST)
    assert (honest.params, honest.picking) == ({"alpha": 3}, 15.0)
    assert (honest.seconds, honest.error) == (16.5, 0.5)
    assert honest.seconds_sd == pytest.approx(np.std([1, 2], ddof=1))
    plain = entry(finished(PLAIN, done((0.5, 2.0))), protocol=HONEST)
    assert (plain.picking, plain.seconds) == (0.0, 2.0)


def test_fits_over_budget_are_shown_only_if_none_finished():
    late = ("over budget", 0.9, 60.0)
    mixed = entry(finished(PLAIN, [late, *done((0.5, 2.0), (0.7, 4.0))]))
    assert (mixed.status, mixed.error, mixed.seconds) == ("done", 0.6, 3.0)
    assert mixed.seeds == 2
    assert mixed.message == "1 over budget: about seed 0"
    none = entry(finished(PLAIN, [late, ("over budget", 0.7, 80.0)]))
    assert (none.status, none.seeds) == ("over budget", 2)
    assert (none.error, none.seconds) == (pytest.approx(0.8), 70.0)
    ended = entry(finished(PLAIN, [("over budget", None, None)]))
    assert (ended.status, ended.error, ended.seconds) == ("over budget", None, None)


def test_entry_without_finished_fits_has_a_message():
    one = entry(finished(PLAIN, [("failed", None, None), ("no data", None, None)]))
    assert (one.status, one.message) == ("failed", "about seed 0")
    assert (one.error, one.seconds, one.seeds) == (None, None, 0)
    one = entry(finished(PLAIN, [("no data", None, None)]))
    assert (one.status, one.message) == ("no data", "about seed 0")
    both = entry(finished(PLAIN, [*done((0.5, 1.0)), ("failed", None, None)]))
    assert (both.status, both.error, both.seeds) == ("done", 0.5, 1)
    assert both.message == "1 failed: about seed 1"
    # A failure has priority over an overrun and is counted separately.
    found = [("over budget", 0.9, 9.0), ("failed", None, None), *done((0.5, 1.0))]
    assert entry(finished(PLAIN, found)).message == "1 failed: about seed 1"


def test_only_measures_of_all_seeds_are_shown():
    found = finished(PLAIN, done((0.5, 1.0), (0.7, 1.0)))
    first = next(iter(found))
    found[first] = replace(found[first], scores={"rmse": 1.0, "psnr": 30.0})
    assert entry(found).scores == {"rmse": pytest.approx(1.2)}


def test_entry_without_selection_has_a_message():
    for status in ("failed", "over budget", "no data"):
        one = entry(searches((None,) * 3, (None,) * 3, status), "ncarl")
        assert (one.status, one.message, one.params) == (status, "why", {})
    assert entry(searches((0.1,), (0.1,)), "ncarl").status == "not run"
    assert entry(searches((None,), (None,), "failed"), "ncarl").status == "not run"
    whole = entry(searches((0.1, 0.2, 0.3), (0.1, 0.2, 0.3)), "ncarl")
    assert (whole.status, whole.params) == ("not run", {"alpha": 1})


def test_old_results_are_marked():
    now = finished(PLAIN, done((0.5, 1.0), (0.6, 1.0)))
    assert not entry(now).old
    assert entry(now, version="v2").old
    mixed = {**now, **finished(PLAIN, done((0.5, 1.0)), version="v0")}
    assert entry(mixed).old
    assert entry(mixed).error == pytest.approx(0.55)
    search = searches((0.1, 0.2, 0.3), (0.1, 0.2, 0.3), version="v0")
    chosen = {**search, **finished(GRID, done((0.5, 1.0)), {"alpha": 1})}
    assert entry(chosen, "ncarl").old
    search = searches((0.1, 0.2, 0.3), (0.1, 0.2, 0.3))
    chosen = {**search, **finished(GRID, done((0.5, 1.0)), {"alpha": 1})}
    assert not entry(chosen, "ncarl").old


def test_printed_results_are_included():
    one = entry(finished(PLAIN, done((0.0528, 1.0))))
    assert (one.printed, one.printed_seconds, one.printed_bound) == (0.0428, 3.9667, "")
    assert one.difference == pytest.approx(0.01)
    assert entry({}).printed == 0.0428
    assert entry({}).difference is None
    lrfd = (replace(PLAIN, printed="LRFD"),)
    large = replace(SETTING, printed="1500x1000", methods=lrfd)
    one = entry({}, protocol=GIVEN, plan=replace(PLAN, settings=(large,)))
    printed = (one.printed, one.printed_seconds, one.printed_bound)
    assert printed == (0.5788, None, "> 3000")


@pytest.mark.parametrize("bare", ["plan", "method", "unknown"])
def test_entries_without_printed_results(bare):
    setting, plan = SETTING, PLAN
    if bare == "method":
        setting = replace(SETTING, methods=(replace(PLAIN, printed=""),))
    if bare == "unknown":
        setting = replace(SETTING, printed="7x7")
    if bare == "plan":
        plan = replace(PLAN, printed="")
    protocol = GIVEN if bare == "method" else PAPER
    one = entry({}, protocol=protocol, plan=replace(plan, settings=(setting,)))
    assert (one.printed, one.printed_seconds, one.printed_bound) == (None, None, "")


def test_table_columns_have_printed_results():
    for name, rows in (("table1", 9), ("table2", 9), ("table3", 9), ("table4", 2)):
        found = summarize_plan(load_plan(name), (PAPER,), {}, "v")
        with_value = {e.setting for e in found if e.printed is not None}
        wanted = {e.setting for e in found if "Gaussian" not in e.setting}
        assert with_value == wanted
        column = [e for e in found if e.setting == found[0].setting and e.printed]
        assert len({e.method for e in column}) > rows
