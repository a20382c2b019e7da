"""Whole runs: what is run, what is not run again, and what cannot take a run down.

Most runs here have a made-up fit, so that nothing but the conduct is tested. The last
ones fit in earnest, and are killed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from ncarl.evaluation.pool import WorkerGroup
from ncarl.reproduce import run as module
from ncarl.reproduce.plan import HONEST, PAPER, CellResult, load_plan
from ncarl.reproduce.run import ResultStore, RunOptions, describe_machine, run_plans
from ncarl.reproduce.summary import summarize_plan

posix = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")

#: Folder of the made-up fits.
FAKES = Path(__file__).parents[1] / "data"
BOOK = """
[plain]
label = "Plain"
estimator = "bias"
[grid]
label = "Grid"
estimator = "ncarl"
grid = { alpha = [0, 1, 2] }
"""
SLOW = '[slow]\nlabel = "S"\nestimator = "x"\nparams = {{ sleep = {} }}\n'
PLAN = """
kind = "table"
title = "Mine"
seeds = 2
methods = ["plain", "grid"]
[[group]]
label = "a"
data = "low-rank"
missing = [0.5]
"""


@pytest.fixture
def study(monkeypatch, tmp_path):
    """A function that runs a plan with made-up fits; it gives course and store."""
    monkeypatch.syspath_prepend(FAKES)
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))
    monkeypatch.setattr(module, "CELL_FUNCTION", "fake_fits:measure")

    def run(text=PLAN, version="v1", watch=None, book="", **terms):
        (tmp_path / "methods.toml").write_text(BOOK + book)
        (tmp_path / "mine.toml").write_text(text)
        (tmp_path / "log").unlink(missing_ok=True)
        store = ResultStore(tmp_path / "out", version)
        how = RunOptions(**{"engine": "threads", "jobs": 2, **terms})
        plans = [load_plan(tmp_path / "mine.toml")]
        args = () if watch is None else (watch,)
        return run_plans(plans, store, how, *args), store

    return run


@pytest.fixture
def asked(tmp_path):
    """A function that gives what the made-up fits were asked in the last run."""

    def read():
        path = tmp_path / "log"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines]

    return read


def kinds(asked):
    """How many fits there were by method, role and alpha."""
    cells = [one["cell"] for one in asked]
    return Counter((c["method"], c["role"], c["params"].get("alpha")) for c in cells)


def only(params=""):
    """A plan of one method with parameters, one seed."""
    text = PLAN.replace('"plain", "grid"', '"plain"').replace("seeds = 2", "seeds = 1")
    return text + (f"params = {{ plain = {{ {params} }} }}\n" if params else "")


def test_a_run_searches_chooses_and_shows_every_seed(study, asked):
    course, store = study()
    assert kinds(asked()) == {
        ("plain", "final", None): 2,
        **{("grid", "search", alpha): 1 for alpha in (0, 1, 2)},
        ("grid", "final", 1): 2,  # the least error
        ("grid", "final", 2): 2,  # the least validation error
    }
    assert (course.n_finished, course.running) == (9, [])
    assert not course.time_limit_reached
    assert course.totals == {"mine": 9}
    assert course.statuses == {"mine": {"done": 9}}
    assert len(store.results) == 9
    assert {r.version for r in store.results.values()} == {"v1"}


@pytest.mark.parametrize(("protocol", "alpha"), [(PAPER, 1), (HONEST, 2)])
def test_one_protocol_alone_fits_only_what_it_picks(protocol, alpha, study, asked):
    course, _ = study(protocols=(protocol,))
    assert course.n_finished == 7
    assert kinds(asked())["grid", "final", alpha] == 2
    # The other one adds its own seeds, and no search.
    course, _ = study()
    assert course.n_finished == 2
    assert {role for _, role, _ in kinds(asked())} == {"final"}


def test_a_finished_run_is_not_run_again(study, asked):
    study()
    course, store = study()
    assert (course.n_finished, asked()) == (0, [])
    assert course.statuses == {"mine": {"done": 9}}
    more, _ = study(PLAN.replace("seeds = 2", "seeds = 3"))
    assert (more.n_finished, {one["cell"]["seed"] for one in asked()}) == (3, {2})
    lines = store.path.read_text().splitlines()
    assert len({json.loads(line)["key"] for line in lines}) == len(lines) == 12


def test_other_code_runs_again_and_older_results_are_marked(study, tmp_path):
    study()
    store = ResultStore(tmp_path / "out", "v2")
    plan = load_plan(tmp_path / "mine.toml")
    before = summarize_plan(plan, (PAPER,), store.all_results, "v2")
    assert [(e.old, e.status) for e in before] == [(True, "done")] * 2
    course, store = study(version="v2", time_limit=None)
    assert course.n_finished == 9
    after = summarize_plan(plan, (PAPER,), store.all_results, "v2")
    assert [e.old for e in after] == [False, False]
    assert len(store.path.read_text().splitlines()) == 18


def test_a_method_that_fails_or_dies_does_not_take_the_run_down(study, asked):
    book = """
[raises]
label = "R"
estimator = "x"
params = { raise = "no way" }
[dies]
label = "D"
estimator = "x"
params = { die = 7 }
grid = { alpha = [1, 2] }
[odd]
label = "O"
estimator = "x"
params = { nan = 1 }
"""
    text = PLAN.replace('"plain",', '"raises", "dies", "odd", "plain",')
    course, store = study(text, book=book, budget=9.0)
    assert course.statuses["mine"] == {"failed": 4, "done": 11}
    failed = [r for r in store.results.values() if r.status == "failed"]
    messages = {"ValueError: no way", "the process ended with exit code 7"}
    assert {r.message for r in failed} == messages
    assert all(r.version == "v1" and r.machine for r in failed)
    # They are results: they are not run again, unless that is asked for.
    assert study(text, book=book, budget=90.0)[0].n_finished == 0
    assert study(text, book=book, retry=True)[0].n_finished == 4
    assert {one["cell"]["method"] for one in asked()} == {"raises", "dies"}


def test_over_budget_is_a_result_until_the_budget_grows(study):
    text = only("late = 5")
    course, _ = study(text, budget=2.0)
    assert course.statuses["mine"] == {"over budget": 1}
    for again in (2.0, 1.0):
        assert study(text, budget=again)[0].n_finished == 0
    assert study(text, budget=2.0, retry=True)[0].n_finished == 1
    course, _ = study(text, budget=3.0)
    assert (course.n_finished, course.statuses["mine"]) == (1, {"over budget": 1})
    course, _ = study(text, budget=6.0)
    assert (course.n_finished, course.statuses["mine"]) == (1, {"done": 1})
    assert study(text, retry=True)[0].n_finished == 0
    study(text, budget=2.0, version="v2")
    course, _ = study(text, budget=None, version="v2")  # a budget that is lifted
    assert (course.n_finished, course.statuses["mine"]) == (1, {"done": 1})


def test_a_fit_that_does_not_stop_is_ended_and_over_budget(study, monkeypatch):
    limits = []

    class Short(module.PoolJob):
        def __new__(cls, function, payload, group, limit):
            limits.append(limit)
            return ORIGINAL(function, payload, group, 2.0)

    ORIGINAL = module.PoolJob
    monkeypatch.setattr(module, "PoolJob", Short)
    text = PLAN.replace('"grid"]', '"slow"]').replace("seeds = 2", "seeds = 1")
    begun = time.monotonic()
    course, store = study(text, book=SLOW.format(20), budget=4.0)
    assert time.monotonic() - begun < 15
    assert course.statuses["mine"] == {"done": 1, "over budget": 1}
    assert limits == [65.0, 65.0]  # time to stop by itself
    late = next(r for r in store.results.values() if r.status == "over budget")
    assert late.facts == {"budget": 4.0}
    assert "ended after" in late.message
    assert study(text, book=SLOW.format(20), budget=3.0)[0].n_finished == 0


def test_absent_data_are_tried_again_every_time(study, tmp_path):
    text = only(f'file = "{tmp_path / "data"}"').replace("low-rank", "image")
    for _ in range(2):
        course, store = study(text)
        assert (course.n_finished, course.statuses["mine"]) == (1, {"no data": 1})
        # That they are still absent is no news.
        assert len(store.path.read_text().splitlines()) == 1
    (tmp_path / "data").touch()
    course, _ = study(text)
    assert (course.n_finished, course.statuses["mine"]) == (1, {"done": 1})
    assert study(text)[0].n_finished == 0


def test_a_picture_that_is_gone_is_made_again(study, tmp_path):
    text = 'keep = "picture"\n' + only()
    course, store = study(text)
    assert course.n_finished == 1
    (key,) = store.results
    assert study(text)[0].n_finished == 1  # nothing lies under its name
    array = tmp_path / "out" / "arrays" / f"{key}.npz"
    array.touch()
    assert study(text)[0].n_finished == 0
    # One whose fit has failed is not run again.
    text = 'keep = "picture"\n' + only('raise = "no"')
    assert [study(text)[0].n_finished for _ in range(2)] == [1, 0]


def test_the_time_limit_lets_fits_end_and_the_next_run_goes_on(study, asked):
    text = PLAN.replace('"plain", "grid"', '"slow"').replace("seeds = 2", "seeds = 5")
    course, store = study(text, book=SLOW.format(0.5), time_limit=0.2, jobs=2)
    assert course.time_limit_reached
    assert course.n_finished == 2 == len(asked())  # those that had begun
    course, store = study(text, book=SLOW.format(0.5), time_limit=60.0, jobs=5)
    assert (course.n_finished, course.time_limit_reached) == (3, False)
    assert len(store.results) == 5
    # No time is enough where nothing is left to do.
    course, _ = study(text, book=SLOW.format(0.5), time_limit=0.0)
    assert (course.n_finished, course.time_limit_reached) == (0, False)
    # Never more side by side than told.
    study(text, book=SLOW.format(0.15), jobs=3, version="v3")
    spans = [one["at"] for one in asked()]
    assert len(spans) == 5
    assert max(sum(a <= start < b for a, b in spans) for start, _ in spans) == 3


def test_a_fit_is_told_how_to_run(study, asked, monkeypatch, tmp_path):
    monkeypatch.setattr(module, "available_cores", lambda: 7)
    study(only(), budget=3.0, jobs=2, version="v9")
    (one,) = asked()
    assert (one["engine"], one["threads"], one["budget"]) == ("threads", 3, 3.0)
    assert one["version"] == "v9"
    assert one["folder"] == str(tmp_path / "out" / "arrays")
    assert one["machine"] == describe_machine(WorkerGroup("cpu", 2, 3))
    assert "3 threads each, 2 side by side" in one["machine"]


def test_the_watcher_sees_every_change(study):
    seen = []

    def watch(course):
        seen.append((course.n_finished, len(course.running), course.totals))

    course, _ = study(watch=watch, jobs=1)
    finished, running, totals = zip(*seen, strict=True)
    assert list(finished) == sorted(finished)
    assert (finished[0], finished[-1]) == (0, 9)
    assert (max(running), running[-1]) == (1, 0)
    # At first it is not known what will be chosen.
    assert (totals[0], totals[-1]) == ({"mine": 5}, {"mine": 9})
    assert isinstance(course.latest, CellResult)


def test_a_watcher_that_raises_leaves_no_process(study, asked):
    def watch(course):
        if course.n_finished:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        study(watch=watch)
    course, store = study()
    assert 0 < course.n_finished < 9  # what had finished was kept
    assert len(store.results) == 9


@pytest.mark.parametrize(
    ("terms", "trouble", "groups"),
    [
        ({}, "none here", [("cpu", 8, 1)]),
        ({"jobs": 3}, "none here", [("cpu", 3, 2)]),
        ({"jobs": 30}, None, [("cpu", 30, 1), ("gpu", 1, 4)]),
        ({"gpu_jobs": 9}, None, [("cpu", 8, 1), ("gpu", 9, 1)]),
        ({"engine": "threads"}, None, [("cpu", 8, 1)]),
    ],
)
def test_worker_groups_follow_the_machine(terms, trouble, groups, monkeypatch):
    monkeypatch.setattr(module, "available_cores", lambda: 8)
    monkeypatch.setattr(module, "gpu_unavailable_reason", lambda: trouble)
    found = [
        (group.name, group.workers, group.threads)
        for group in RunOptions(**terms).worker_groups()
    ]
    assert found == groups


def test_a_gpu_that_is_not_there_is_refused(study, asked, monkeypatch):
    monkeypatch.setattr(module, "gpu_unavailable_reason", lambda: "there is none")
    with pytest.raises(ValueError, match="'torch' needs a GPU, and there is none"):
        study(engine="torch")
    assert asked() == []


@pytest.mark.parametrize(("engine", "small"), [("auto", "threads"), ("torch", "torch")])
def test_large_matrices_go_to_the_gpu(engine, small, study, asked, monkeypatch):
    monkeypatch.setattr(module, "gpu_unavailable_reason", lambda: None)
    large = PLAN[PLAN.index("[[group]]") :].replace('"a"', '"b"')
    study(only() + large.replace("[0.5]", "[0.6]\nheavy = true"), engine=engine)
    where = {one["cell"]["problem"]["missing"]: one["engine"] for one in asked()}
    assert where == {0.5: small, 0.6: "torch"}


def test_a_busy_gpu_keeps_no_small_fit_waiting(study, asked, monkeypatch):
    monkeypatch.setattr(module, "gpu_unavailable_reason", lambda: None)
    group = PLAN[PLAN.index("[[group]]") :]
    large = group.replace("[0.5]", "[0.6, 0.7]\nheavy = true").replace('"a"', '"b"')
    head = only()[: only().index("[[group]]")]
    book = "params = { plain = { sleep = 0.4 } }\n"
    study(head + large + book + group, engine="auto", jobs=1)
    spans = {one["cell"]["problem"]["missing"]: one["at"] for one in asked()}
    assert spans[0.5][0] < spans[0.6][1] < spans[0.7][1]


def test_machines_are_told_in_words():
    assert describe_machine(WorkerGroup("gpu", 1)) == "GPU, one at a time"
    assert describe_machine(WorkerGroup("gpu", 2)) == "GPU, 2 side by side"
    words = describe_machine(WorkerGroup("cpu", 1, 1))
    assert words.endswith("1 thread each, one at a time")


# In earnest.

METHODS = """
[bias]
label = "Effects"
estimator = "bias"
[nuclear]
label = "Nuclear"
estimator = "nuclear"
grid = { max_iter = [20, 40] }
[wrong]
label = "Wrong"
estimator = "ncarl"
params = { nonsense = 1 }
[endless]
label = "Endless"
estimator = "schatten"
params = { max_iter = 100000000, tol = 0.0 }
"""
REAL = """
kind = "table"
title = "Real"
seeds = 5
methods = ["bias", "nuclear", "wrong", "endless"]
[[group]]
label = "20x10"
data = "low-rank"
options = { m = 20, n = 10, rank = 2 }
missing = [0.3, 0.5]
without = ["endless"]
[[group]]
label = "late"
data = "low-rank"
options = { m = 20, n = 10, rank = 2 }
missing = [0.4]
seeds = 1
methods = ["endless"]
"""
BUDGET = 0.7


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a plan, and ``out`` with its finished results."""
    place = tmp_path_factory.mktemp("real")
    (place / "methods.toml").write_text(METHODS)
    (place / "real.toml").write_text(REAL)
    terms = RunOptions(engine="threads", jobs=2, budget=BUDGET)
    plan = load_plan(place / "real.toml")
    run_plans([plan], ResultStore(place / "out"), terms)
    return place


def started(place, out):
    """The command on the plan, in a process of its own."""
    script = "from ncarl.cli import main; main()"
    command = [sys.executable, "-c", script, "reproduce", str(place / "real.toml")]
    command += ["--out", str(place / out), "--jobs", "2", "--engine", "threads"]
    command += ["--budget", str(BUDGET)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def figures(path):
    """What every cell came to; each may be there once."""
    found = lines(path)
    assert len({one["key"] for one in found}) == len(found)
    names = ("error", "validation", "steps")
    return {
        one["key"]: (
            one["status"],
            {name: one[name] for name in names if one[name] is not None},
        )
        for one in found
    }


def test_a_real_run_has_every_cell_once_whatever_becomes_of_it(folder):
    found = lines(folder / "out" / "cells.jsonl")
    count = Counter((one["cell"]["method"], one["status"]) for one in found)
    searches, finals = 2 * 2, 2 * 5
    assert count["bias", "done"] == finals
    assert count["wrong", "failed"] == finals
    assert count["endless", "over budget"] == 1
    assert searches + finals <= count["nuclear", "done"] <= searches + 2 * finals
    assert sum(count.values()) == len(figures(folder / "out" / "cells.jsonl"))
    assert len(count) == 4
    failed = [one["message"] for one in found if one["status"] == "failed"]
    assert all("nonsense" in message for message in failed)
    assert all(one["facts"]["budget"] == BUDGET for one in found)


@posix
def test_a_killed_run_goes_on_and_ends_with_the_same_figures(folder):
    path = folder / "killed" / "cells.jsonl"
    with started(folder, "killed") as process:
        until = time.monotonic() + 60
        while not (path.exists() and path.stat().st_size):
            assert time.monotonic() < until and process.poll() is None
            time.sleep(0.005)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    assert process.returncode == -9
    whole = figures(folder / "out" / "cells.jsonl")
    assert 0 < path.read_text().count("\n") < len(whole)
    assert not (folder / "killed" / "report.html").exists()
    with path.open("a") as stream:  # as if the kill had come in mid-line
        stream.write('{"cell": {"problem"')
    kept = path.read_text().splitlines()[:-1]
    with started(folder, "killed") as process:
        said, _ = process.communicate(timeout=120)
    assert process.returncode == 0, said
    after = path.read_text().splitlines()
    assert after[: len(kept)] == kept
    path.write_text("\n".join([*kept, *after[len(kept) + 1 :]]) + "\n")
    again = figures(path)
    assert again.keys() == whole.keys()
    for key, (status, values) in whole.items():
        assert again[key][0] == status
        if status != "over budget":
            assert again[key][1] == pytest.approx(values, rel=1e-9)
    assert (folder / "killed" / "report.html").exists()
