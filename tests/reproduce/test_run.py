"""Tests of whole runs: scheduled fits, reuse of results, failures.

Most runs use fake fits to test the scheduling only. The last ones make real fits,
and one is killed.
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

#: Folder of the module with fake fits.
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
    """Function that runs a plan with fake fits and returns progress and store."""
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
def payloads(tmp_path):
    """Function that returns the payloads of the fake fits of the last run."""

    def read():
        path = tmp_path / "log"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines]

    return read


def count_fits(payloads):
    """Number of fits by method, role and alpha."""
    cells = [one["cell"] for one in payloads]
    return Counter((c["method"], c["role"], c["params"].get("alpha")) for c in cells)


def one_method(params=""):
    """A plan of one method and one seed with the given parameters."""
    text = PLAN.replace('"plain", "grid"', '"plain"').replace("seeds = 2", "seeds = 1")
    return text + (f"params = {{ plain = {{ {params} }} }}\n" if params else "")


def test_run_makes_searches_and_final_fits_of_every_seed(study, payloads):
    course, store = study()
    assert count_fits(payloads()) == {
        ("plain", "final", None): 2,
        **{("grid", "search", alpha): 1 for alpha in (0, 1, 2)},
        ("grid", "final", 1): 2,  # the lowest error
        ("grid", "final", 2): 2,  # the lowest validation error
    }
    assert (course.n_finished, course.running) == (9, [])
    assert not course.time_limit_reached
    assert course.totals == {"mine": 9}
    assert course.statuses == {"mine": {"done": 9}}
    assert len(store.results) == 9
    assert {r.version for r in store.results.values()} == {"v1"}


@pytest.mark.parametrize(("protocol", "alpha"), [(PAPER, 1), (HONEST, 2)])
def test_single_protocol_fits_only_its_selection(protocol, alpha, study, payloads):
    course, _ = study(protocols=(protocol,))
    assert course.n_finished == 7
    assert count_fits(payloads())["grid", "final", alpha] == 2
    # The other protocol adds its final fits, and no search.
    course, _ = study()
    assert course.n_finished == 2
    assert {role for _, role, _ in count_fits(payloads())} == {"final"}


def test_finished_cells_are_not_repeated(study, payloads):
    study()
    course, store = study()
    assert (course.n_finished, payloads()) == (0, [])
    assert course.statuses == {"mine": {"done": 9}}
    more, _ = study(PLAN.replace("seeds = 2", "seeds = 3"))
    assert (more.n_finished, {one["cell"]["seed"] for one in payloads()}) == (3, {2})
    lines = store.path.read_text().splitlines()
    assert len({json.loads(line)["key"] for line in lines}) == len(lines) == 12


def test_new_version_repeats_fits_and_old_results_are_marked(study, tmp_path):
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


def test_failed_and_crashed_fits_do_not_stop_the_run(study, payloads):
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
    # Failures are results, which are repeated only on request.
    assert study(text, book=book, budget=90.0)[0].n_finished == 0
    assert study(text, book=book, retry=True)[0].n_finished == 4
    assert {one["cell"]["method"] for one in payloads()} == {"raises", "dies"}


def test_over_budget_is_repeated_with_a_larger_budget(study):
    text = one_method("late = 5")
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
    course, _ = study(text, budget=None, version="v2")  # without a budget
    assert (course.n_finished, course.statuses["mine"]) == (1, {"done": 1})


def test_fit_that_does_not_stop_is_killed_and_over_budget(study, monkeypatch):
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
    assert limits == [65.0, 65.0]  # includes a grace period
    late = next(r for r in store.results.values() if r.status == "over budget")
    assert late.facts == {"budget": 4.0}
    assert "ended after" in late.message
    assert study(text, book=SLOW.format(20), budget=3.0)[0].n_finished == 0


def test_cells_without_data_are_repeated(study, tmp_path):
    text = one_method(f'file = "{tmp_path / "data"}"').replace("low-rank", "image")
    for _ in range(2):
        course, store = study(text)
        assert (course.n_finished, course.statuses["mine"]) == (1, {"no data": 1})
        # An unchanged result is not stored again.
        assert len(store.path.read_text().splitlines()) == 1
    (tmp_path / "data").touch()
    course, _ = study(text)
    assert (course.n_finished, course.statuses["mine"]) == (1, {"done": 1})
    assert study(text)[0].n_finished == 0


def test_cell_with_a_missing_image_is_repeated(study, tmp_path):
    text = 'keep = "picture"\n' + one_method()
    course, store = study(text)
    assert course.n_finished == 1
    (key,) = store.results
    assert study(text)[0].n_finished == 1  # the image file does not exist
    array = tmp_path / "out" / "arrays" / f"{key}.npz"
    array.touch()
    assert study(text)[0].n_finished == 0
    # A failed fit is not repeated.
    text = 'keep = "picture"\n' + one_method('raise = "no"')
    assert [study(text)[0].n_finished for _ in range(2)] == [1, 0]


def test_time_limit_finishes_running_fits_and_can_be_resumed(study, payloads):
    text = PLAN.replace('"plain", "grid"', '"slow"').replace("seeds = 2", "seeds = 5")
    course, store = study(text, book=SLOW.format(0.5), time_limit=0.2, jobs=2)
    assert course.time_limit_reached
    assert course.n_finished == 2 == len(payloads())  # the fits already running
    course, store = study(text, book=SLOW.format(0.5), time_limit=60.0, jobs=5)
    assert (course.n_finished, course.time_limit_reached) == (3, False)
    assert len(store.results) == 5
    # Without remaining fits the limit is not reached.
    course, _ = study(text, book=SLOW.format(0.5), time_limit=0.0)
    assert (course.n_finished, course.time_limit_reached) == (0, False)
    # At most ``jobs`` fits run in parallel.
    study(text, book=SLOW.format(0.15), jobs=3, version="v3")
    spans = [one["at"] for one in payloads()]
    assert len(spans) == 5
    assert max(sum(a <= start < b for a, b in spans) for start, _ in spans) == 3


def test_fit_gets_the_run_options(study, payloads, monkeypatch, tmp_path):
    monkeypatch.setattr(module, "available_cores", lambda: 7)
    study(one_method(), budget=3.0, jobs=2, version="v9")
    (one,) = payloads()
    assert (one["engine"], one["threads"], one["budget"]) == ("threads", 3, 3.0)
    assert one["version"] == "v9"
    assert one["folder"] == str(tmp_path / "out" / "arrays")
    assert one["machine"] == describe_machine(WorkerGroup("cpu", 2, 3))
    assert "3 threads each, 2 side by side" in one["machine"]


def test_watcher_is_called_at_every_change(study):
    seen = []

    def watch(course):
        seen.append((course.n_finished, len(course.running), course.totals))

    course, _ = study(watch=watch, jobs=1)
    finished, running, totals = zip(*seen, strict=True)
    assert list(finished) == sorted(finished)
    assert (finished[0], finished[-1]) == (0, 9)
    assert (max(running), running[-1]) == (1, 0)
    # At first the selection is unknown.
    assert (totals[0], totals[-1]) == ({"mine": 5}, {"mine": 9})
    assert isinstance(course.latest, CellResult)


def test_exception_in_the_watcher_ends_all_processes(study, payloads):
    def watch(course):
        if course.n_finished:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        study(watch=watch)
    course, store = study()
    assert 0 < course.n_finished < 9  # finished fits were kept
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


def test_torch_engine_without_a_gpu_raises(study, payloads, monkeypatch):
    monkeypatch.setattr(module, "gpu_unavailable_reason", lambda: "there is none")
    with pytest.raises(ValueError, match="'torch' needs a GPU, and there is none"):
        study(engine="torch")
    assert payloads() == []


@pytest.mark.parametrize(("engine", "small"), [("auto", "threads"), ("torch", "torch")])
def test_large_matrices_go_to_the_gpu(engine, small, study, payloads, monkeypatch):
    monkeypatch.setattr(module, "gpu_unavailable_reason", lambda: None)
    large = PLAN[PLAN.index("[[group]]") :].replace('"a"', '"b"')
    study(one_method() + large.replace("[0.5]", "[0.6]\nheavy = true"), engine=engine)
    where = {one["cell"]["problem"]["missing"]: one["engine"] for one in payloads()}
    assert where == {0.5: small, 0.6: "torch"}


def test_small_fits_do_not_wait_for_a_busy_gpu(study, payloads, monkeypatch):
    monkeypatch.setattr(module, "gpu_unavailable_reason", lambda: None)
    group = PLAN[PLAN.index("[[group]]") :]
    large = group.replace("[0.5]", "[0.6, 0.7]\nheavy = true").replace('"a"', '"b"')
    head = one_method()[: one_method().index("[[group]]")]
    book = "params = { plain = { sleep = 0.4 } }\n"
    study(head + large + book + group, engine="auto", jobs=1)
    spans = {one["cell"]["problem"]["missing"]: one["at"] for one in payloads()}
    assert spans[0.5][0] < spans[0.6][1] < spans[0.7][1]


def test_describe_machine():
    assert describe_machine(WorkerGroup("gpu", 1)) == "GPU, one at a time"
    assert describe_machine(WorkerGroup("gpu", 2)) == "GPU, 2 side by side"
    words = describe_machine(WorkerGroup("cpu", 1, 1))
    assert words.endswith("1 thread each, one at a time")


# Real fits.

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
    """A folder with a plan and its results in ``out``."""
    place = tmp_path_factory.mktemp("real")
    (place / "methods.toml").write_text(METHODS)
    (place / "real.toml").write_text(REAL)
    terms = RunOptions(engine="threads", jobs=2, budget=BUDGET)
    plan = load_plan(place / "real.toml")
    run_plans([plan], ResultStore(place / "out"), terms)
    return place


def start_command(place, out):
    """Start the command on the plan in a new process."""
    script = "from ncarl.cli import main; main()"
    command = [sys.executable, "-c", script, "reproduce", str(place / "real.toml")]
    command += ["--out", str(place / out), "--jobs", "2", "--engine", "threads"]
    command += ["--budget", str(BUDGET)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def read_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def read_results(path):
    """Result of every cell, checked to be unique."""
    found = read_lines(path)
    assert len({one["key"] for one in found}) == len(found)
    names = ("error", "validation", "steps")
    return {
        one["key"]: (
            one["status"],
            {name: one[name] for name in names if one[name] is not None},
        )
        for one in found
    }


def test_real_run_has_every_cell_once(folder):
    found = read_lines(folder / "out" / "cells.jsonl")
    count = Counter((one["cell"]["method"], one["status"]) for one in found)
    searches, finals = 2 * 2, 2 * 5
    assert count["bias", "done"] == finals
    assert count["wrong", "failed"] == finals
    assert count["endless", "over budget"] == 1
    assert searches + finals <= count["nuclear", "done"] <= searches + 2 * finals
    assert sum(count.values()) == len(read_results(folder / "out" / "cells.jsonl"))
    assert len(count) == 4
    failed = [one["message"] for one in found if one["status"] == "failed"]
    assert all("nonsense" in message for message in failed)
    assert all(one["facts"]["budget"] == BUDGET for one in found)


@posix
def test_killed_run_resumes_with_the_same_results(folder):
    path = folder / "killed" / "cells.jsonl"
    with start_command(folder, "killed") as process:
        until = time.monotonic() + 60
        while not (path.exists() and path.stat().st_size):
            assert time.monotonic() < until and process.poll() is None
            time.sleep(0.005)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    assert process.returncode == -9
    whole = read_results(folder / "out" / "cells.jsonl")
    assert 0 < path.read_text().count("\n") < len(whole)
    assert not (folder / "killed" / "report.html").exists()
    with path.open("a") as stream:  # simulate a kill within a line
        stream.write('{"cell": {"problem"')
    kept = path.read_text().splitlines()[:-1]
    with start_command(folder, "killed") as process:
        said, _ = process.communicate(timeout=120)
    assert process.returncode == 0, said
    after = path.read_text().splitlines()
    assert after[: len(kept)] == kept
    path.write_text("\n".join([*kept, *after[len(kept) + 1 :]]) + "\n")
    again = read_results(path)
    assert again.keys() == whole.keys()
    for key, (status, values) in whole.items():
        assert again[key][0] == status
        if status != "over budget":
            assert again[key][1] == pytest.approx(values, rel=1e-9)
    assert (folder / "killed" / "report.html").exists()
