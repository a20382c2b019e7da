"""Tests of ``ncarl reproduce``: output, errors and written files."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from ncarl.cli import reproduce
from ncarl.cli.reproduce import load_plans, progress_table, show_progress
from ncarl.progress import log_progress, set_status
from ncarl.reproduce import run as conduct
from ncarl.reproduce.plan import STUDY_NAMES, Cell, CellResult, ProblemSpec
from ncarl.reproduce.report import QUICK_NOTE
from ncarl.reproduce.run import RunProgress, ScheduledCell

#: Folder of the module with fake fits.
FAKES = Path(__file__).parents[1] / "data"
BOOK = """
[nuclear]
label = "Nuclear"
estimator = "nuclear"
params = { error = 0.12 }
[ncarl-printed]
label = "NCARL as printed"
printed = "NCARL"
estimator = "ncarl"
params = { error = 0.02 }
grid = { alpha = [2, 3] }
[bias]
label = "Bad"
estimator = "bias"
params = { raise = "no such luck" }
[bayes]
label = "Late"
estimator = "bias"
params = { late = 30, error = 0.12 }
[slow]
label = "Slow"
estimator = "bias"
params = { sleep = 60 }
"""
PLAN = """
kind = "table"
title = "Mine"
printed = "table1"
seeds = 2
methods = ["nuclear", "ncarl-printed", "bias", "bayes"]
[[group]]
label = "500x300"
printed = "500x300"
data = "low-rank"
missing = [0.8]
quick = { options = { m = 5 } }
"""


@pytest.fixture
def study(monkeypatch, tmp_path):
    """A plan with fake fits, named table1 so that its claims are checked."""
    (tmp_path / "log").touch()
    monkeypatch.syspath_prepend(FAKES)
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))
    monkeypatch.setattr(conduct, "CELL_FUNCTION", "fake_fits:measure")
    monkeypatch.setattr(conduct, "gpu_unavailable_reason", lambda: "not here")
    (tmp_path / "methods.toml").write_text(BOOK)
    (tmp_path / "table1.toml").write_text(PLAN)
    monkeypatch.setattr("ncarl.reproduce.plan.plan_folder", lambda: tmp_path)
    return "table1"


@pytest.fixture
def n_fits(tmp_path):
    """Function that returns the number of fits since its last call."""

    def count():
        lines = (tmp_path / "log").read_text().splitlines()
        (tmp_path / "log").write_text("")
        return len(lines)

    return count


def test_run_prints_verdicts_and_written_files(ncarl, study, tmp_path, n_fits):
    out = tmp_path / "out"
    said = ncarl("reproduce", study, "--out", out, "--jobs", 2).stdout
    assert "holds: NCARL has the least error of all methods (table 1)" in said
    assert "holds: NCARL reaches its printed errors (table 1)" in said
    assert "as printed, paper protocol: 1 of 1 columns" in said
    for name in ("report.html", "results.csv", "results.json", "figures/table1.png"):
        assert name in said
        assert (out / name).is_file()
    assert QUICK_NOTE not in " ".join(said.split())
    assert "time limit" not in said
    assert n_fits() == 10
    # A second run does no fits and prints the same.
    assert ncarl("reproduce", study, "--out", out).stdout == said
    assert n_fits() == 0
    lines = (out / "cells.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    assert {one["facts"]["budget"] for one in found} == {600.0}
    assert sum(one["status"] == "failed" for one in found) == 2


def test_quick_option_changes_budget_and_labels(ncarl, study, tmp_path):
    out = tmp_path / "out"
    said = ncarl("reproduce", study, "--quick", "--out", out, "--jobs", 2).stdout
    assert QUICK_NOTE in " ".join(said.split())
    found = [json.loads(x) for x in (out / "cells.jsonl").read_text().splitlines()]
    assert {one["facts"]["budget"] for one in found} == {20.0}
    assert {one["cell"]["problem"]["options"].get("m") for one in found} == {5}
    assert sum(one["status"] == "over budget" for one in found) == 2
    assert "run again (quick)" in (out / "report.html").read_text(encoding="utf-8")
    assert "not decided: NCARL has the least error" in said
    assert "reduced: as printed, paper protocol: 1 of 1 columns" in said
    assert "2 cells of tables: failed" in said  # one per protocol
    assert "2 cells of tables: over budget" in said


def test_quick_and_full_runs_have_different_default_folders(
    ncarl, study, tmp_path, monkeypatch
):
    here = tmp_path / "here"
    (here / "ncarl-reproduce").mkdir(parents=True)
    (here / "ncarl-reproduce" / "cells.jsonl").write_text("one\ntwo\n")
    monkeypatch.chdir(here)
    said = ncarl("reproduce", study, "--no-run").stdout
    assert "2 damaged lines of cells.jsonl are skipped" in said
    ncarl("reproduce", study, "--no-run", "--quick")
    names = sorted(path.name for path in here.iterdir())
    assert names == ["ncarl-reproduce", "ncarl-reproduce-quick"]


def test_larger_budget_and_retry_repeat_unfinished_fits(ncarl, study, tmp_path, n_fits):
    def run(*more):
        ncarl("reproduce", study, "--out", tmp_path / "out", "--jobs", 2, *more)
        return n_fits()

    assert run("--budget", 5) == 10
    assert run("--budget", 5) == 0
    assert run("--budget", 60) == 2
    assert run("--budget", 60, "--retry") == 2
    assert run("--methods", "nuclear", "--retry") == 0


@pytest.mark.parametrize("options", [("--no-run",), ("--time-limit", 0)])
def test_without_fits_only_the_report_is_written(
    ncarl, study, tmp_path, n_fits, options
):
    out = tmp_path / "[red]out"
    said = ncarl("reproduce", study, "--out", out, *options).stdout
    assert "not decided: NCARL has the least error" in said
    reached = "time limit reached; run the same command again to continue"
    assert (reached in said) == ("--time-limit" in options)
    assert f"written to {out}:" in said and (out / "report.html").is_file()
    assert n_fits() == 0


def test_methods_and_protocols_can_be_selected(ncarl, study, tmp_path, n_fits):
    out = tmp_path / "out"
    ncarl("reproduce", study, "--out", out, "--protocol", "honest",
          "--methods", "nuclear, ncarl-printed", "--engine", "threads")  # fmt: skip
    assert n_fits() == 6
    rows = (out / "results.csv").read_text(encoding="utf-8").splitlines()[1:]
    assert len(rows) == 2
    assert all(row.split(",")[1] == "honest" for row in rows)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--budget", "0"], "--budget must be a positive number of seconds, got 0"),
        (["--budget", "nan"], "--budget must be a positive number of seconds, got nan"),
        (["--methods", "magic"], "methods must be among nuclear, ncarl-printed, bias"),
        (["table7"], "a study must be one of table1"),
        (["--out", "taken"], "--out 'taken' is a file; name a folder"),
    ],
)
def test_invalid_options_fail_before_any_fit(
    more, said, fails, study, tmp_path, n_fits, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").write_text("mine")
    assert said in fails("reproduce", study, "--out", "out", *more)
    assert n_fits() == 0 and not (tmp_path / "out").exists()


def test_all_expands_to_every_study_without_duplicates():
    def names(*studies):
        plans = load_plans(studies, quick=True, methods=None)
        return [plan.name for plan in plans]

    assert names("all") == list(STUDY_NAMES)
    assert names("fig3", "table1", "fig3") == ["fig3", "table1"]
    others = [name for name in STUDY_NAMES if name != "fig2"]
    assert names("fig2", "all") == ["fig2", *others]


FGSR, WNNM = (Cell(ProblemSpec("x"), name, name, {}) for name in ("fgsr", "wnnm"))
COURSE = RunProgress(
    totals={"table1": 10, "fig4": 3},
    statuses={"table1": {"done": 4, "failed": 2, "over budget": 1, "no data": 5}},
    running=[ScheduledCell(FGSR, "fig4", "col [0]", False)],
    latest=CellResult(WNNM, "done", error=0.25, seconds=2.0),
)


def render(course):
    """The progress table as text."""
    stream = io.StringIO()
    Console(width=100, file=stream).print(progress_table(course))
    return "\n".join(line.strip() for line in stream.getvalue().splitlines())


def test_progress_table_shows_every_study():
    said = render(COURSE)
    rows = [line.split() for line in said.splitlines()]
    assert ["table1", "10", "4", "1", "2", "5"] in rows
    assert ["fig4", "3"] in rows
    assert "running: fgsr (fig4, col [0])" in said
    assert said.endswith("last: wnnm, done, error 0.2500, 2.0 s")
    assert "[bold]mine" in render(RunProgress(totals={"[bold]mine": 2}))
    failed = RunProgress(latest=CellResult(WNNM, "failed"))
    assert render(failed).endswith("last: wnnm, failed")
    assert "running" not in render(failed)
    assert "last" not in render(RunProgress())


def test_progress_without_a_terminal_goes_to_the_log(monkeypatch, capsys):
    monkeypatch.setattr("ncarl.progress.LOG_INTERVAL", 0.01)
    with log_progress(True, "reproduce"), show_progress() as watch:
        watch(COURSE)
        time.sleep(0.1)
    set_status("")
    assert "reproduce, 12 of 13 fits are finished, 0 s\n" in capsys.readouterr().err


def test_progress_in_a_terminal_is_a_live_table(monkeypatch):
    monkeypatch.setattr("ncarl.cli.console.is_interactive", lambda: True)
    updates = []
    live = nullcontext(SimpleNamespace(update=updates.append))
    monkeypatch.setattr(reproduce, "Live", lambda **options: live)
    with show_progress() as watch:
        watch(COURSE)
        watch(COURSE)
    assert [table.row_count for table in updates] == [2, 2]


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_ctrl_c_ends_the_run_and_its_workers(study, tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(PLAN.replace('"nuclear", ', '"slow", "nuclear", '))
    script = (
        f"import sys; sys.path.insert(0, {str(FAKES)!r})\n"
        "from ncarl.reproduce import run\n"
        "run.CELL_FUNCTION = 'fake_fits:measure'\n"
        "from ncarl.cli import main\n"
        "main()\n"
    )
    words = ["reproduce", path, "--out", tmp_path / "out", "--jobs", "2"]
    words += ["--engine", "threads"]
    with subprocess.Popen(
        [sys.executable, "-c", script, *map(str, words)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        until = time.monotonic() + 30
        cells = tmp_path / "out" / "cells.jsonl"
        while not (cells.exists() and cells.stat().st_size):
            assert time.monotonic() < until and process.poll() is None
            time.sleep(0.02)
        begun = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=20)
    assert process.returncode == 130
    assert time.monotonic() - begun < 10
    assert said.strip() == "stopped; no file was left half-written"
    assert all(json.loads(line) for line in cells.read_text().splitlines())


@pytest.mark.slow
def test_quick_run_of_all_studies_takes_less_than_five_minutes(tmp_path):
    out = tmp_path / "out"
    ended = subprocess.run(
        [sys.executable, "-m", "ncarl", "reproduce", "all", "--quick", "--out", out],
        timeout=300, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    for name in STUDY_NAMES:
        assert (out / "figures" / f"{name}.png").stat().st_size > 1000
    content = json.loads((out / "results.json").read_text(encoding="utf-8"))
    studies = {entry["study"] for entry in content["entries"]}
    assert studies == {n for n in STUDY_NAMES if n not in ("fig1", "fig2", "fig8")}
    assert {entry["status"] for entry in content["entries"]} == {"done"}
    assert len(content["verdicts"]) >= 17
    found = [json.loads(x) for x in (out / "cells.jsonl").read_text().splitlines()]
    assert {one["status"] for one in found} <= {"done", "over budget"}
    page = (out / "report.html").read_text(encoding="utf-8")
    assert QUICK_NOTE in page
    assert "://" not in page
    assert QUICK_NOTE in " ".join(ended.stdout.split())
    assert "Traceback" not in ended.stderr
