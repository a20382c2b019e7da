"""Tests of study plans in TOML files: full and reduced size, errors."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ncarl.registry import make
from ncarl.reproduce.plan import (
    STUDY_KINDS,
    STUDY_NAMES,
    MethodSpec,
    load_paper_values,
    load_plan,
)

METHODS = """
[one]
label = "One"
estimator = "ncarl"
params = { center = "none", rank = "@rank" }
grid = { alpha = [1, 2, 3, 4, 5], beta = ["none", 7] }
[two]
label = "Two"
printed = "TWO"
estimator = "bias"
[three]
label = "Three"
estimator = "mean"
"""
HEAD = """
kind = "table"
title = "Mine"
methods = ["one", "two"]
"""
GROUP = """
[[group]]
label = "small"
data = "low-rank"
options = { m = 20, n = 10, rank = 2 }
rank = 2
missing = [0.5]
"""


@pytest.fixture
def plan(tmp_path):
    """Function that loads a plan from text."""
    (tmp_path / "methods.toml").write_text(METHODS)

    def load(text, **how):
        (tmp_path / "mine.toml").write_text(text)
        return load_plan(tmp_path / "mine.toml", **how)

    return load


def cells(plan):
    return [(s, one) for s in plan.settings for one in s.methods]


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("name", STUDY_NAMES)
def test_every_packaged_plan_is_valid(name, quick):
    found = load_plan(name, quick=quick)
    assert found.name == name
    assert found.kind in STUDY_KINDS
    assert found.title and found.text
    assert bool(found.settings) == (found.kind not in ("spectrum", "gallery", "theory"))
    labels = [s.label for s in found.settings]
    assert len(set(labels)) == len(labels)
    for setting, one in cells(found):
        points = one.grid_points()
        assert points
        assert "@rank" not in [value for p in points for value in p.values()]
        assert 0.0 < setting.problem.missing < 1.0
        for params in (points[0], points[-1]):  # valid parameter names
            if one.estimator != "mean":
                make(one.estimator, **params)
        names = [method.name for method in setting.methods]
        assert len(set(names)) == len(names)
    assert found == load_plan(name, quick=quick)


@pytest.mark.parametrize("name", STUDY_NAMES)
def test_quick_plans_are_small_and_need_no_external_data(name):
    quick, full = load_plan(name, quick=True), load_plan(name)
    if full.keep:  # figures of single fits have no search
        assert all(len(one.grid_points()) == 1 for _, one in cells(full))
    assert not any(setting.heavy for setting in quick.settings)
    for setting in quick.settings:
        problem = setting.problem
        assert problem.data in ("low-rank", "photo", "like-ratings")
        size = problem.options
        if problem.data == "photo":
            assert size["step"] >= 8
        else:
            sides = size.get("m", size.get("users")), size.get("n", size.get("items"))
            assert max(sides) <= 200
        assert setting.seeds <= 2
        assert all(len(one.grid_points()) <= 16 for one in setting.methods)
        # Substitutes for the paper's data are not compared with printed results.
        if setting.problem.data == "like-ratings" or name in ("table2", "fig7"):
            assert setting.printed == ""
    assert len(quick.settings) <= len(full.settings)
    assert {one.name for _, one in cells(quick)} <= {one.name for _, one in cells(full)}


def test_tables_have_the_columns_and_baselines_of_the_paper():
    tables = load_paper_values()["tables"]
    for name in ("table1", "table2", "table4"):
        plan = load_plan(name)
        for group, by_rate in tables[name].items():
            mine = [s for s in plan.settings if s.printed == group]
            for rate, figures in by_rate.items():
                columns = [s for s in mine if f"{s.problem.missing:g}" == rate]
                assert columns, (name, group, rate)
                rows = {one.printed for one in columns[0].methods}
                assert set(figures["error"]) <= rows
                assert columns[0].seeds >= 3
    assert {s.seeds for s in load_plan("table2").settings} == {5}


def test_table_3_shows_the_fits_of_table_2():
    second, third = load_plan("table2"), load_plan("table3")
    assert third.settings == second.settings
    assert (third.measure, second.measure) == ("seconds", "error")
    assert third.name == "table3" and third.title != second.title
    assert third.printed == "table2"


def test_printed_results_are_numbers_or_bounds():
    tables = load_paper_values()["tables"].values()
    columns = [column for by_set in tables for column in by_set.values()]
    for figures in (one for by_rate in columns for one in by_rate.values()):
        for value in (*figures["error"].values(), *figures["seconds"].values()):
            assert type(value) is float or value.startswith("> ")


def test_custom_plan_uses_the_methods_file_in_its_folder(plan, tmp_path):
    found = plan(HEAD + GROUP)
    assert (found.name, found.kind, found.title) == ("mine", "table", "Mine")
    (setting,) = found.settings
    assert (setting.label, setting.group) == ("small", "small")
    assert (setting.seeds, setting.heavy, setting.printed) == (5, False, "")
    problem = setting.problem
    assert (problem.data, problem.missing, problem.mask) == ("low-rank", 0.5, "random")
    assert problem.options == {"m": 20, "n": 10, "rank": 2}
    one, two = setting.methods
    assert (one.name, one.label, one.printed) == ("one", "One", "")
    # Without a methods file it uses those of the package.
    path = tmp_path / "below" / "mine.toml"
    path.parent.mkdir()
    path.write_text('kind = "table"\ntitle = "x"\nmethods = ["bias"]\n' + GROUP)
    ((_, one),) = cells(load_plan(str(path)))
    assert one.label == "row + column effects"
    assert (two.estimator, two.printed) == ("bias", "TWO")


def test_grids_are_expanded_and_none_and_rank_are_substituted(plan):
    one = plan(HEAD + GROUP).settings[0].methods[0]
    points = one.grid_points()
    assert len(points) == 10
    pairs = {(p["alpha"], p["beta"]) for p in points}
    assert pairs == {(a, b) for a in (1, 2, 3, 4, 5) for b in (None, 7)}
    assert all((p["center"], p["rank"]) == (None, 2) for p in points)
    assert MethodSpec("a", "A", "bias").grid_points() == [{}]


def test_a_group_overrides_params_and_grids(plan):
    more = """
[group.params]
one = { alpha = 9, center = "mean" }
[group.grid]
one = { beta = [1, 2, 3] }
two = { gamma = [0, 1] }
"""
    one, two = plan(HEAD + GROUP + more).settings[0].methods
    assert [p["beta"] for p in one.grid_points()] == [1, 2, 3]
    assert {(p["alpha"], p["center"], p["rank"]) for p in one.grid_points()} == {
        (9, "mean", 2)
    }
    assert two.grid_points() == [{"gamma": 0}, {"gamma": 1}]
    # Another group uses the methods file.
    both = plan(HEAD + GROUP + more + GROUP.replace("small", "other")).settings
    assert len(both[1].methods[0].grid_points()) == 10


def test_every_rate_and_every_channel_is_a_setting(plan):
    more = GROUP.replace("[0.5]", "[0.25, 0.5]")
    rates = plan(HEAD + more).settings
    assert [s.label for s in rates] == ["small, 0.25", "small, 0.5"]
    assert [s.problem.missing for s in rates] == [0.25, 0.5]
    assert {s.group for s in rates} == {"small"}
    photo = GROUP.replace("low-rank", "photo") + 'channels = [0, 2]\nmask = "block"'
    colors = plan(HEAD + photo).settings
    assert [s.label for s in colors] == ["small, 0", "small, 2"]
    assert [s.problem.options["channel"] for s in colors] == [0, 2]
    assert {s.problem.mask for s in colors} == {"block"}


def test_sweep_makes_one_method_per_value(plan):
    text = HEAD + 'sweep = { alpha = ["none", 5, "mean", 2.50] }\n' + GROUP
    rows = plan(text).settings[0].methods
    assert [one.name for one in rows[:4]] == [
        *("one alpha=None", "one alpha=5", "one alpha=mean", "one alpha=2.5")
    ]
    assert rows[1].label == "One, alpha=5"
    assert rows[1].params["alpha"] == 5
    assert set(rows[1].grid) == {"beta"}
    assert [one.name for one in rows[4:6]] == ["two alpha=None", "two alpha=5"]
    assert len(plan(text, quick=True).settings[0].methods) == 6


def test_methods_of_a_group_can_be_skipped_or_selected(plan):
    def rows(text, **how):
        return [one.name for one in plan(HEAD + text, **how).settings[0].methods]

    assert rows(GROUP) == ["one", "two"]
    assert rows(GROUP + 'without = ["one"]') == ["two"]
    assert rows(GROUP + 'methods = ["one"]') == ["one"]
    assert rows(GROUP, methods=["two"]) == ["two"]
    assert rows(GROUP, methods=["two", "one"]) == ["one", "two"]
    assert rows(GROUP, methods=["three"]) == []  # may belong to another study


def test_quick_section_overrides_its_keys(plan):
    more = GROUP + "heavy = true\nseeds = 4\n"
    quick = 'quick = { options = { m = 8 }, missing = [0.1], label = "tiny" }'
    (setting,) = plan(HEAD + more + quick, quick=True).settings
    assert setting.problem.options == {"m": 8, "n": 10, "rank": 2}
    assert (setting.label, setting.problem.missing) == ("tiny", 0.1)
    assert (setting.heavy, setting.seeds) == (False, 2)
    one = setting.methods[0]
    assert one.grid == {"alpha": [2, 3], "beta": [None, 7]}
    (full,) = plan(HEAD + more + quick).settings
    assert (full.label, full.heavy, full.seeds) == ("small", True, 4)
    other = 'quick = { data = "photo", options = { name = "china" } }'
    (setting,) = plan(HEAD + more + other, quick=True).settings
    assert setting.problem.options == {"name": "china"}
    assert plan(HEAD + more + "quick = false", quick=True).settings == ()
    assert len(plan(HEAD + more + "quick = false").settings) == 1
    (setting,) = plan(HEAD + more, quick=True).settings
    assert (setting.heavy, setting.problem.options["m"]) == (False, 20)


@pytest.mark.parametrize(
    ("of_plan", "of_group", "quick", "found"),
    [
        ("", "", False, 5), ("seeds = 3\n", "seeds = 4", False, 4),
        ("seeds = 1\n", "", True, 1), ("", "seeds = 4", True, 2),
    ],
)  # fmt: skip
def test_seeds_of_the_group_override_those_of_the_plan(
    plan, of_plan, of_group, quick, found
):
    (setting,) = plan(HEAD + of_plan + GROUP + of_group, quick=quick).settings
    assert setting.seeds == found


def test_plan_can_extend_another(plan, tmp_path):
    base = plan(HEAD + GROUP)
    (tmp_path / "base.toml").write_text(HEAD + GROUP)
    other = plan('like = "base"\ntitle = "Other"\nmeasure = "seconds"')
    assert other == replace(base, title="Other", measure="seconds")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (HEAD.replace('"two"', '"four"') + GROUP, r"methods must be among .*'four'"),
        (HEAD.replace("table", "poem") + GROUP, r"kind must be one of .*'poem'"),
        ("kind = [", r"mine.toml is not a TOML file"),
        ('title = "no kind"', r"mine.toml is not a plan: .*kind"),
        (HEAD + 'color = "red"\n' + GROUP, r"mine.toml is not a plan: .*color"),
        (HEAD + GROUP.replace("rank = 2\nm", "m"), r"mine.toml is not a plan: .*rank"),
        (
            HEAD + GROUP.replace('data = "low-rank"', ""),
            r"mine.toml: a group needs the field 'data'",
        ),
        (HEAD + GROUP.replace("[0.5]", "0.5"), r"not a plan"),
        (HEAD + GROUP.replace("low-rank", "stars"), r"data must be one of .*'stars'"),
        (HEAD + GROUP + 'color = "red"', "a group has the fields .*'color'"),
        (HEAD + GROUP + 'mask = "block"', "mask of data 'low-rank' must be one of 'r"),
        (HEAD + GROUP + "seeds = 0", "mine.toml: seeds must be a whole number of at"),
        (HEAD + GROUP + 'without = ["five"]', "methods must be among .*'five'"),
        (HEAD + GROUP + 'methods = ["six"]', "methods must be among .*'six'"),
    ],
)
def test_invalid_plan_raises(text, said, plan):
    with pytest.raises(ValueError, match=said):
        plan(text)


PHOTOS = 'options = { photos = ["china"], step = 2 }\n'


@pytest.mark.parametrize(
    ("kind", "more", "said"),
    [
        ("spectrum", "", "photos"),
        ("recovered", PHOTOS, "keep must be 'picture'"),
        ("curves", "", "keep must be 'curve'"),
        ("neighbors", "", "sweep must"),
        ("table", "sweep = { a = [1], b = [2] }\n", "sweep must"),
        ("table", 'measure = "beauty"\n', "measure must be one of"),
        ("table", 'keep = "calm"\n', "keep must be one of"),
        # The axis of the figure has to vary.
        ("neighbors", "sweep = { alpha = [1, 2] }\n", "n_neighbors"),
        ("noisy", PHOTOS + 'keep = "picture"\nsweep = { alpha = [1, 2] }\n', "gamma"),
    ],
)
def test_incomplete_figure_plan_raises_before_any_fit(kind, more, said, plan):
    with pytest.raises(ValueError, match=said):
        plan(HEAD.replace("table", kind) + more + GROUP)


def test_packaged_and_complete_plans_are_recognized(plan):
    whole = plan(HEAD + GROUP)
    assert load_plan("table1").is_builtin and not whole.is_builtin
    assert whole.has_all_methods
    assert plan(HEAD + GROUP, methods=["one", "two"]).has_all_methods
    assert not plan(HEAD + GROUP, methods=["one"]).has_all_methods
    further = plan(HEAD + GROUP + "further = true").settings[0].further
    assert further and not whole.settings[0].further


def test_notes_on_full_results_are_dropped_in_quick_plans(plan):
    text = HEAD + 'notes = ["a remark"]\n' + GROUP
    assert plan(text).notes == ("a remark",)
    assert plan(text, quick=True).notes == ()
    with pytest.raises(ValueError, match=r"methods must be among one, two, three.*'x'"):
        plan(text, methods=["two", "x"])


@pytest.mark.parametrize("name", ["table9", "."])
def test_unknown_study_raises(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"one of table1, .*fig8 or a TOML file, got"):
        load_plan(name)
    path = tmp_path / "x.toml"
    path.write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(ValueError, match="is not a TOML file"):
        load_plan(path)
