"""Tests of the worker pool: results, crashes, time limits, cleanup."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ncarl.evaluation.pool import THREAD_VARIABLES, PoolJob, WorkerGroup, WorkerPool

posix = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")

HELPER = """
import os, signal, sys, time

def twice(x): return 2 * x
def pid(_): return os.getpid()
def die(code): os._exit(code)
def leave(code): sys.exit(code)
def shot(_): os.kill(os.getpid(), signal.SIGKILL)
def words(text):
    print(text, file=sys.stderr, flush=True)
    os._exit(3)
def fail(text): raise ValueError(text)
def odd(_): return {1, 2}
def environment(names):
    return [os.environ.get(name) for name in names] + ["numpy" in sys.modules]
def sleep(args):
    place, seconds = args
    if place:
        with open(place, "w") as stream: stream.write(str(os.getpid()))
    time.sleep(seconds)
    return "slept"
def chatter(text):
    print(text)
    os.write(1, text.encode() + b"\\n")
    os.system("echo noise")
    return text
def fork(place):
    child = os.fork()
    if child == 0:
        time.sleep(8)
        os._exit(0)
    with open(place, "w") as stream: stream.write(str(child))
    time.sleep(30)
def session(_): return os.getsid(0)
"""


@pytest.fixture(autouse=True)
def helper(monkeypatch, tmp_path):
    """Write a module with functions that workers can import."""
    (tmp_path / "helper.py").write_text(HELPER)
    monkeypatch.syspath_prepend(tmp_path)
    paths = [str(tmp_path), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in paths if path))


def job(name, payload=None, group="cpu", limit=None):
    return PoolJob(f"helper:{name}", payload, group, limit)


def run(pool, one):
    """The result of one job."""
    pool.submit(one)
    (answer,) = pool.wait(20)
    assert answer.job is one
    return answer


def has_ended(pid, within=8.0):
    """Whether a process ends within some seconds; zombies count as ended."""
    until = time.monotonic() + within
    stat = Path(f"/proc/{pid}/stat")
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
            said = stat.read_text() if Path("/proc/self/stat").exists() else ") ?"
            # A zombie continues until its other threads have ended.
            threads = len(list(stat.parent.joinpath("task").iterdir()))
            if said.rpartition(")")[2].split()[0] == "Z" and threads == 1:
                return True
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.05)
    return False


def read_pid(path, within=8.0):
    """Wait for the process id that a worker writes to a file."""
    until = time.monotonic() + within
    while time.monotonic() < until:
        if path.exists() and path.read_text():
            return int(path.read_text())
        time.sleep(0.02)
    raise AssertionError("the worker has not begun")


def test_results_are_returned_with_their_jobs():
    with WorkerPool([WorkerGroup("cpu", 3)]) as pool:
        jobs = [job("twice", number) for number in range(7)]
        waiting, answers = list(jobs), []
        while waiting or pool.running:
            while waiting and pool.has_room("cpu"):
                pool.submit(waiting.pop())
            answers += pool.wait(20)
    assert {a.job.payload: a.value for a in answers} == {n: 2 * n for n in range(7)}
    assert {a.failure + a.message for a in answers} == {""}
    assert [a.job for a in answers if a.job not in jobs] == []


def test_capacity_and_workers_are_counted_per_group():
    with WorkerPool([WorkerGroup("cpu", 2), WorkerGroup("gpu")]) as pool:
        one = run(pool, job("pid")).value
        assert run(pool, job("pid")).value == one != os.getpid()
        assert run(pool, job("pid", group="gpu")).value != one
        pool.submit(job("sleep", (None, 20)))
        pool.submit(job("sleep", (None, 20), "gpu"))
        assert pool.has_room("cpu") and not pool.has_room("gpu")
        pool.submit(job("sleep", (None, 20)))
        assert not pool.has_room("cpu") and not pool.has_room("moon")
        assert len(pool.running) == 3
        assert pool.wait(0.1) == []
    assert pool.running == pool.wait() == []


@posix
def test_process_per_job():
    with WorkerPool([WorkerGroup("cpu")], process_per_job=True) as pool:
        ids = [run(pool, job("pid")).value for _ in range(3)]
        assert len(set(ids)) == 3
        assert all(has_ended(pid, 0.5) for pid in ids)


def test_exception_is_reported_and_the_worker_continues():
    with WorkerPool([WorkerGroup("cpu")]) as pool:
        before = run(pool, job("pid")).value
        answer = run(pool, job("fail", "too\n  bad " + 600 * "x"))
        assert (answer.failure, answer.value) == ("failed", None)
        assert answer.message.startswith("ValueError: too bad xxx")
        assert len(answer.message) == 500
        answer = run(pool, PoolJob("nowhere:at_all", 1, "cpu"))
        assert (answer.failure, "nowhere" in answer.message) == ("failed", True)
        answer = run(pool, job("not_there"))
        assert "AttributeError" in answer.message
        assert run(pool, job("pid")).value == before


@pytest.mark.parametrize(
    ("one", "how"),
    [
        (job("die", 0), "the process ended with exit code 0"),
        (job("leave", 4), "the process ended with exit code 4"),
        (job("words", "a\nlast words \n"), "exit code 3; last words"),
        pytest.param(job("shot"), "by signal 9 (out of memory?)", marks=posix),
        (job("odd"), "TypeError: Object of type set is not JSON serializable"),
    ],
)
def test_crashed_worker_fails_its_job_and_is_replaced(one, how):
    with WorkerPool([WorkerGroup("cpu")]) as pool:
        answer = run(pool, one)
        assert (answer.failure, answer.value) == ("failed", None)
        assert answer.message.endswith(how)
        assert run(pool, job("twice", 4)).value == 8


@posix
def test_worker_that_dies_idle_is_replaced():
    with WorkerPool([WorkerGroup("cpu")]) as pool:
        pid = run(pool, job("pid")).value
        os.kill(pid, signal.SIGKILL)
        assert has_ended(pid)
        answer = run(pool, job("pid"))
        assert (answer.failure, answer.value != pid) == ("", True)


@posix
def test_job_over_its_limit_is_killed_and_others_continue(tmp_path):
    with WorkerPool([WorkerGroup("cpu", 2)]) as pool:
        # Including its child processes.
        late = job("fork", str(tmp_path / "pid"), limit=2.0)
        begun = time.monotonic()
        pool.submit(late)
        child = read_pid(tmp_path / "pid")
        pool.submit(job("sleep", (None, 3.0), limit=30))
        answers = pool.wait(10)
        assert 1.9 < time.monotonic() - begun < 8
        assert [(a.job, a.failure, a.value) for a in answers] == [
            (late, "over budget", None)
        ]
        assert "ended after 2 s" in answers[0].message
        assert has_ended(child, 1.0)
        assert [a.value for a in pool.wait(20)] == ["slept"]
        assert run(pool, job("twice", 1)).value == 2


def test_printed_output_is_not_a_result():
    text = json.dumps({"value": "wrong"})
    with WorkerPool([WorkerGroup("cpu")]) as pool:
        answers = [run(pool, job("chatter", text)) for _ in range(2)]
    assert [a.value for a in answers] == [text, text]


def test_thread_limits_of_numerical_libraries_are_set_by_group(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "77")
    with WorkerPool([WorkerGroup("few", 1, 2), WorkerGroup("many", 1, 5)]) as pool:
        for name, threads in (("few", "2"), ("many", "5")):
            answer = run(pool, job("environment", THREAD_VARIABLES, name))
            assert answer.value == [threads] * 4 + [False]  # before NumPy is imported
            if os.name == "posix":  # workers ignore Ctrl-C
                assert run(pool, job("session", None, name)).value != os.getsid(0)
    assert "OMP_NUM_THREADS" in THREAD_VARIABLES
    assert os.environ["OMP_NUM_THREADS"] == "77"


@posix
@pytest.mark.parametrize("raised", [False, True])
def test_all_processes_end_with_the_context(raised, tmp_path):
    pids = []
    try:
        with WorkerPool([WorkerGroup("cpu", 2)]) as pool:
            pids.append(run(pool, job("pid")).value)
            pool.submit(job("sleep", (None, 30)))
            pool.submit(job("sleep", (str(tmp_path / "pid"), 30)))
            pids.append(read_pid(tmp_path / "pid"))
            if raised:
                raise KeyboardInterrupt
    except KeyboardInterrupt:
        assert raised
    assert len(set(pids)) == 2
    assert all(has_ended(pid, 0.5) for pid in pids)


@posix
def test_worker_ends_when_its_parent_is_killed(tmp_path):
    # A script without a ``__main__`` guard must not be run again by workers.
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\n"
        "from ncarl.evaluation.pool import PoolJob, WorkerGroup, WorkerPool\n"
        "with WorkerPool([WorkerGroup('cpu')]) as pool:\n"
        "    pool.submit(PoolJob('helper:sleep', (sys.argv[1], 30), 'cpu'))\n"
        "    pool.wait()\n"
    )
    command = [sys.executable, str(script), str(tmp_path / "pid")]
    with subprocess.Popen(command) as parent:
        pid = read_pid(tmp_path / "pid")
        assert not has_ended(pid, 0.2)
        parent.kill()
        parent.wait()
    assert has_ended(pid)
