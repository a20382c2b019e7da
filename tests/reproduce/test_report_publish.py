"""Tests of published studies: report, tables and figures match the cells."""

from __future__ import annotations

import csv
import json
from dataclasses import replace

import numpy as np
import pytest

from ncarl.reproduce.figures import draw_study
from ncarl.reproduce.plan import HONEST, PAPER, PROTOCOLS, CellResult, load_plan
from ncarl.reproduce.report import QUICK_NOTE, publish
from ncarl.reproduce.run import ResultStore, final_cells, search_cells
from ncarl.reproduce.summary import (
    StudyData,
    load_color_pictures,
    mean_ranks,
    objective_histories,
    spectrum_energy,
    summarize_plan,
)

METHODS = """
[nuclear]
label = "Nuclear & co"
printed = "Nuclear"
estimator = "nuclear"
[ncarl-printed]
label = "NCARL as printed"
printed = "NCARL"
estimator = "ncarl"
grid = { alpha = [1, 2] }
[soft-impute]
label = "Wrong"
estimator = "ncarl"
params = { alpha = -1 }
[bayes]
label = "Endless"
estimator = "ncarl"
"""
TABLE = """
kind = "table"
title = "Mine <1>"
text = "About it."
notes = ["A remark."]
printed = "table1"
seeds = 2
methods = ["nuclear", "ncarl-printed", "soft-impute", "bayes"]
[[group]]
label = "500x300"
printed = "500x300"
data = "low-rank"
missing = [0.8]
"""


def result(cell, version="v1", status="done", error=0.1, machine="a computer", **about):
    return CellResult(
        cell, status, version, error=error, validation=error, seconds=1.5,
        scores={"rmse": 1.0}, machine=machine, facts={"engine": "threads: 1"}, **about,
    )  # fmt: skip


def add_results(plan, store, version="v1"):
    """Add artificial results of a table: 0.1 for NCARL, 0.2 for Nuclear."""
    (setting,) = plan.settings
    nuclear, ncarl, wrong, endless = setting.methods
    for cell in search_cells(setting, ncarl):
        store.add(result(cell, version, error=cell.params["alpha"] / 10))
    for cell in final_cells(plan, setting, ncarl, {"alpha": 1}):
        store.add(result(cell, version, error=0.1 + cell.seed / 50))
    for cell in final_cells(plan, setting, nuclear, {}):
        store.add(result(cell, version, error=0.2))
    for cell in final_cells(plan, setting, wrong, {"alpha": -1}):
        store.add(CellResult(cell, "failed", version, message="no such thing"))
    for cell in final_cells(plan, setting, endless, {}):
        store.add(result(cell, version, "over budget", error=0.9))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with the plan of a table named table1."""
    folder = tmp_path_factory.mktemp("publish")
    (folder / "methods.toml").write_text(METHODS)
    (folder / "table1.toml").write_text(TABLE)
    return folder


@pytest.fixture(scope="module")
def plan(place):
    return replace(load_plan(place / "table1.toml"), is_builtin=True)


@pytest.fixture(scope="module")
def study(place, plan):
    """The published table with its results."""
    store = ResultStore(place / "out", "v1")
    add_results(plan, store)
    return publish([plan], store, PROTOCOLS)


def about(study):
    path = study.report_path.with_name("results.json")
    return json.loads(path.read_text(encoding="utf-8"))


def test_every_file_is_written_and_listed(study):
    folder = study.report_path.parent
    names = {path.relative_to(folder).as_posix() for path in study.files}
    assert names == {"report.html", "results.csv", "results.json", "figures/table1.png"}
    assert all(path.stat().st_size > 500 for path in study.files)
    assert study.report_path.name == "report.html"
    left = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
    assert left == names | {"cells.jsonl"}


def test_report_describes_its_content(study):
    page = study.report_path.read_text(encoding="utf-8")
    assert "://" not in page and "data:image/png;base64," in page
    for words in (
        *("Mine &lt;1&gt;", "About it.", "A remark.", "Nuclear &amp; co", "a computer"),
        *("over budget", "failed", "NCARL as printed", "0.0344", "holds", "v1"),
        "NCARL, run again",
    ):
        assert words in page
    assert QUICK_NOTE not in page and "(quick)" not in page


def test_tables_summarize_the_cells(study, plan):
    path = study.report_path.with_name("results.csv")
    with path.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 8
    by_method = {row["method"]: row for row in rows if row["protocol"] == PAPER}
    assert float(by_method["ncarl-printed"]["error"]) == pytest.approx(0.11)
    assert float(by_method["ncarl-printed"]["printed"]) == 0.0344
    assert by_method["soft-impute"]["status"] == "failed"
    assert by_method["bayes"]["status"] == "over budget"
    (honest,) = (
        r for r in rows if (r["protocol"], r["method"]) == (HONEST, "ncarl-printed")
    )
    assert float(honest["seconds"]) == pytest.approx(1.5 + 3.0)
    assert len(study.entries["table1"]) == 8
    assert study.unfinished_counts == {"failed": 2, "over budget": 2}


def test_verdicts_follow_the_cells(study, plan, place):
    states = {v.claim: v.state for v in study.verdicts}
    assert states["NCARL has the least error of all methods"] == "holds"
    assert states["NCARL reaches its printed errors"] == "does not hold"
    assert about(study)["verdicts"][0]["state"] == "holds"
    store = ResultStore(place / "worse", "v1")
    add_results(plan, store)
    (setting,) = plan.settings
    for cell in final_cells(plan, setting, setting.methods[0], {}):
        store.add(result(cell, error=0.01))
    worse = publish([plan], store, PROTOCOLS)
    states = {v.claim: v.state for v in worse.verdicts}
    assert states["NCARL has the least error of all methods"] == "does not hold"


def test_report_describes_machine_and_settings(study):
    said = about(study)["about"]
    assert said["size"] == "full"
    assert said["studies"] == "table1"
    assert said["fits"] == "6 done, 2 failed, 2 over budget"
    assert said["ran on"] == "a computer (8)"
    assert said["engines"] == "threads: 1"
    assert said["code"] == "v1"
    assert "paper: " in said["protocols"] and "honest: " in said["protocols"]


def test_quick_results_are_labeled_and_old_fits_counted(plan, place):
    store = ResultStore(place / "quick", "v1")
    add_results(plan, store)
    later = ResultStore(place / "quick", "v2")
    shown = publish([plan], later, (HONEST,), quick=True)
    page = shown.report_path.read_text(encoding="utf-8")
    assert QUICK_NOTE in page
    assert "NCARL, run again (quick)" in page
    assert {v.state for v in shown.verdicts} == {"not decided"}
    assert all(v.evidence.startswith("reduced: ") for v in shown.verdicts)
    said = about(shown)["about"]
    assert said["code"] == "v2; 10 fits of an older one"
    assert said["size"] == QUICK_NOTE
    assert "paper: " not in said["protocols"]
    assert {e.protocol for e in shown.entries["table1"]} == {HONEST}
    assert all(e.old for e in shown.entries["table1"])


def test_publishing_is_reproducible(study, plan):
    before = {path: path.read_bytes() for path in study.files}
    again = publish([plan], ResultStore(study.report_path.parent, "v1"), PROTOCOLS)
    assert again.files == study.files
    for path, content in before.items():
        assert path.read_bytes() == content


def test_only_packaged_plans_have_verdicts(plan, place):
    store = ResultStore(place / "out", "v1")
    assert publish([replace(plan, is_builtin=False)], store, PROTOCOLS).verdicts == []
    part = publish([replace(plan, has_all_methods=False)], store, PROTOCOLS).verdicts
    assert part[0].state == "not decided"
    assert "only some rows were run" in part[0].evidence


def test_failed_figure_does_not_prevent_the_tables(plan, place, monkeypatch):
    def fail(kept):
        raise ValueError("no paper")

    monkeypatch.setattr("ncarl.reproduce.figures.draw_study", fail)
    made = publish([plan], ResultStore(place / "out", "v1"), PROTOCOLS)
    assert len(made.files) == 3
    page = made.report_path.read_text(encoding="utf-8")
    assert "The figure could not be drawn: no paper" in page


def test_only_fits_of_the_given_studies_are_counted(plan, tmp_path):
    store = ResultStore(tmp_path, "v1")
    add_results(plan, store)
    (setting,) = plan.settings
    other = final_cells(plan, replace(setting, seeds=9), setting.methods[0], {})[8]
    store.add(result(other, machine="elsewhere"))
    more = replace(plan, settings=(replace(setting, seeds=3),))
    said = about(publish([more], store, PROTOCOLS))["about"]
    assert said["fits"] == "6 done, 2 failed, 2 over budget, 4 not run"
    assert said["ran on"] == "a computer (8)"


def test_report_without_results(plan, tmp_path):
    empty = publish([plan], ResultStore(tmp_path, "v1"), PROTOCOLS)
    assert len(empty.files) == 3  # no figure
    assert {e.status for e in empty.entries["table1"]} == {"not run"}
    assert {v.state for v in empty.verdicts} == {"not decided"}


def data_of(name, folder, results=(), **about):
    plan = load_plan(name, quick=True)
    found = {r.cell.key: r for r in results}
    rows = summarize_plan(plan, PROTOCOLS, found, "v1")
    return StudyData(plan, rows, found, folder, quick=True, **about)


def final_cells_of(name):
    """The first seed of all cells of a quick plan without searches."""
    plan = load_plan(name, quick=True)
    return [
        (setting, one, final_cells(plan, setting, one, one.grid_points()[0])[0])
        for setting in plan.settings
        for one in setting.methods
    ]


@pytest.mark.parametrize("name", ["table1", "fig4", "fig5", "fig6", "fig7", "fig8"])
def test_no_figure_without_results(name, tmp_path):
    assert draw_study(data_of(name, tmp_path)) is None


@pytest.mark.parametrize("name", ["fig1", "fig2", "fig3", "fig4", "fig7"])
def test_figure_of_results_is_drawn(name, tmp_path):
    (tmp_path / "arrays").mkdir()
    made = []
    for _, _, cell in final_cells_of(name):
        picture = np.full((4, 5), 0.5)
        path = tmp_path / "arrays" / f"{cell.key}.npz"
        np.savez(path, seen=picture, filled=picture, smooth=picture)
        made.append(result(cell))
    assert draw_study(data_of(name, tmp_path, made)) is not None


def test_curves_are_named_by_data_and_method(tmp_path):
    cells = final_cells_of("fig6")
    made = [
        result(cell, curve=(3.0, 2.0 + k)) for k, (_, _, cell) in enumerate(cells[:3])
    ]
    found = data_of("fig6", tmp_path, made)
    assert objective_histories(found) == {
        ("photograph 1", "ncarl-printed"): (3.0, 2.0),
        ("photograph 1", "ncarl"): (3.0, 3.0),
        ("made-up ratings", "ncarl-printed"): (3.0, 4.0),
    }
    assert draw_study(found) is not None


def test_channels_are_combined_and_ranks_averaged(tmp_path):
    (tmp_path / "arrays").mkdir()
    made = []
    for k, (setting, one, cell) in enumerate(final_cells_of("fig5")):
        if setting.group == "flower" and k % 2:
            continue  # some channels are missing
        channel = setting.problem.options["channel"]
        picture = np.full((4, 5), (channel + 1) / 10)
        np.savez(
            tmp_path / "arrays" / f"{cell.key}.npz",
            seen=picture, filled=picture, smooth=picture,
        )  # fmt: skip
        rank = channel + (10 if one.name.endswith("=0.1") else 40)
        made.append(replace(result(cell), facts={"rank_above_1e-3": rank}))
    found = data_of("fig5", tmp_path, made)
    pictures = load_color_pictures(found)
    assert {group for group, _ in pictures} == {"china"}
    one = next(iter(pictures.values())).stack_channels("smooth")
    assert one.shape == (4, 5, 3)
    np.testing.assert_allclose(one[0, 0], [0.1, 0.2, 0.3])
    ranks = mean_ranks(found)["china"]
    assert ranks[0.1] == 11.0
    assert {rank for gamma, rank in ranks.items() if gamma != 0.1} == {41.0}
    assert draw_study(found) is not None


def test_energy_is_that_of_a_tenth_of_the_singular_values(tmp_path):
    from ncarl.datasets import load_sample_image

    shares = spectrum_energy(data_of("fig1", tmp_path))
    assert set(shares) == {"china", "flower"}
    image = load_sample_image("flower", step=8)
    squares = np.sort(np.linalg.eigvalsh(image @ image.T))[::-1]
    tenth = len(squares) // 10
    assert shares["flower"] == pytest.approx(squares[:tenth].sum() / squares.sum())


def test_figure_uses_and_names_the_honest_protocol(plan, place, tmp_path, monkeypatch):
    titles = []

    def keep(entries, *, measure, title):
        assert len(entries) == 4
        titles.append(title)

    monkeypatch.setattr("ncarl.reproduce.figures.draw_table", keep)
    found = ResultStore(place / "out", "v1").all_results
    for protocols, quick in ((PROTOCOLS, False), (PROTOCOLS, True), ((PAPER,), False)):
        rows = summarize_plan(plan, protocols, found, "v1")
        draw_study(StudyData(plan, rows, found, tmp_path, quick=quick))
    assert titles == [
        "Mine <1> (honest protocol)",
        "Mine <1> (honest protocol, reduced)",
        "Mine <1> (paper protocol)",
    ]
