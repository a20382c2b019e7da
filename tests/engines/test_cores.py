"""Tests of the cores that a process has, and of the choice of threads for BLAS."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from ncarl import NCARL, NCARLCV, Threads
from ncarl.engines import cores
from ncarl.engines.base import HostDevice
from ncarl.engines.cores import (
    BlasThreads,
    available_cores,
    cpu_quota,
    free_blas_threads,
    limit_blas_threads,
)
from ncarl.exceptions import BrokenFileError
from ncarl.io.files import read_archive, write_archive

LARGE = cores.BLAS_THREADS_MIN_COLUMNS


def blas_settings():
    return [library.num_threads for library in cores._blas_libraries()]


# --- quota and affinity


@pytest.fixture
def cgroups(tmp_path, monkeypatch):
    """Write control groups; takes the lines of the process, and contents of files."""

    def write(lines, **files):
        own, root = tmp_path / "cgroup", tmp_path / "fs"
        own.write_text("\n".join(lines) + "\n")
        for place, text in files.items():
            path = root / place.replace("__", "/")
            path = path.with_name(path.name.replace("-", "."))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        monkeypatch.setattr(cores, "CGROUP_OF_PROCESS", own)
        monkeypatch.setattr(cores, "CGROUPS", root)
        cpu_quota.cache_clear()
        return cpu_quota()

    yield write
    cpu_quota.cache_clear()


V1 = "4:memory:/other", "3:cpu,cpuacct:/a/b"
PERIOD = {"cpu__a__b__cpu-cfs_period_us": "100000\n"}


@pytest.mark.parametrize(
    ("lines", "files", "quota"),
    [
        (["0::/a/b"], {"a__b__cpu-max": "150000 100000\n"}, 1.5),
        (["0::/a/b"], {"a__b__cpu-max": "max 100000\n"}, np.inf),
        # The group of all containers of a pod limits each of them.
        (["0::/a/b"], {"a__cpu-max": "50000 100000", "a__b__cpu-max": "max 1"}, 0.5),
        (["0::/a/b"], {"a__cpu-max": "90000 10000", "a__b__cpu-max": "3 1"}, 3.0),
        # Inside a container the path of the host does not exist.
        (["0::/host/path"], {"cpu-max": "200000 100000"}, 2.0),
        (["0::/"], {"cpu-max": "200000 100000"}, 2.0),
        (V1, {"cpu__a__b__cpu-cfs_quota_us": "25000\n", **PERIOD}, 0.25),
        (V1, {"cpu__a__b__cpu-cfs_quota_us": "-1\n", **PERIOD}, np.inf),
        (V1, {"memory__other__cpu-max": "1 100"}, np.inf),
        (["0::/"], {"cpu-max": "nonsense"}, np.inf),
        (["0::/"], {"cpu-max": "1 0"}, np.inf),
        (["nonsense"], {}, np.inf),
        ([], {}, np.inf),
    ],
)
def test_quota_of_control_groups(cgroups, lines, files, quota):
    assert cgroups(lines, **files) == quota


def test_cores_are_those_of_the_quota(cgroups, monkeypatch):
    monkeypatch.setattr(cores, "usable_cores", lambda: set(range(8)))
    for text, expected in (("250000 100000", 3), ("1 100", 1), ("max 1", 8)):
        cgroups(["0::/"], **{"cpu-max": text})
        assert available_cores() == expected
        assert Threads().describe().startswith(f"threads: {expected} core")


def test_quota_without_control_groups(monkeypatch, tmp_path):
    monkeypatch.setattr(cores, "CGROUP_OF_PROCESS", tmp_path / "missing")
    cpu_quota.cache_clear()
    assert cpu_quota() == np.inf
    cpu_quota.cache_clear()


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs affinity")
def test_cores_respect_affinity():
    code = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "from ncarl.engines import cores\n"
        "print(cores.available_cores(), cores.free_blas_threads(8, wait=0.06),"
        " 0.0 <= cores.measure_free_cores() <= 1.0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    )
    assert done.stdout.split() == ["1", "1", "True"]


# --- free cores


class Machine:
    """A machine with a clock and counters of its own."""

    def __init__(self, monkeypatch, folder, n_cores=2):
        self.now = self.own = 0.0
        self.idle = [0.0] * n_cores
        self.file = folder / "stat"
        self.readable = True
        clock = SimpleNamespace(
            perf_counter=lambda: self.now,
            process_time=lambda: self.own,
            sleep=lambda seconds: self.run(seconds, own=0.0),
        )
        monkeypatch.setattr(cores, "time", clock)
        monkeypatch.setattr(cores, "CORE_TIMES", self.file)
        monkeypatch.setattr(cores, "usable_cores", lambda: set(range(n_cores)))
        monkeypatch.setattr(cores, "cpu_quota", lambda: np.inf)
        monkeypatch.setattr(cores.os, "sysconf", lambda name: 100)
        monkeypatch.setattr(cores, "measure_free_cores", cores._FreeCores().measure)
        self.others = 0.0
        self._write()

    def run(self, seconds, own=1.0):
        """Let time pass; the process uses ``own`` cores, and others theirs."""
        own *= min(1.0, len(self.idle) / max(own + self.others, 1e-9))
        self.now += seconds
        self.own += own * seconds
        free = max(0.0, len(self.idle) - own - self.others)
        for k in range(len(self.idle)):
            self.idle[k] += free * seconds / len(self.idle)
        self._write()

    def _write(self):
        lines = [
            f"cpu{k} {10 + round(100 * (self.now - idle))} 0 0 {round(100 * idle)} 0 0"
            for k, idle in enumerate(self.idle)
        ]
        # All cores, and one that this process may not use.
        ticks = round(100 * self.now)
        others = [f"cpu 1 0 0 {2 * ticks} 0 0", f"cpu7 5 0 0 {ticks} 0 0", "intr 5"]
        self.file.write_text("\n".join([*others[:1], *lines, *others[1:]]))


@pytest.fixture
def machine(monkeypatch, tmp_path):
    return Machine(monkeypatch, tmp_path)


@pytest.mark.parametrize(
    ("others", "free", "threads"),
    [(0.0, 2.0, 2), (0.2, 1.8, 2), (0.5, 1.5, 1), (1.0, 1.0, 1), (2.0, 2 / 3, 1)],
)
def test_threads_of_free_cores(machine, others, free, threads):
    machine.others = others
    assert free_blas_threads(2) == 1  # not yet measured
    machine.run(1.0)
    assert free_blas_threads(2) == threads
    assert cores.measure_free_cores() == pytest.approx(free, abs=0.03)
    assert free_blas_threads(1) == 1


def test_own_threads_do_not_count_as_others(machine):
    cores.measure_free_cores()
    machine.run(1.0, own=2.0)
    assert cores.measure_free_cores() == pytest.approx(2.0, abs=0.03)


def test_quota_bounds_free_cores(machine, monkeypatch):
    cores.measure_free_cores()
    machine.run(1.0)
    monkeypatch.setattr(cores, "cpu_quota", lambda: 1.5)
    assert cores.measure_free_cores() == 1.5 and free_blas_threads(2) == 1


def test_fits_in_several_threads_share_free_cores(machine):
    cores.measure_free_cores()
    machine.run(1.0)
    assert free_blas_threads(2) == 2
    entered, leave = threading.Event(), threading.Event()

    def other_fit():
        with limit_blas_threads(1):
            entered.set()
            assert leave.wait(10)

    thread = threading.Thread(target=other_fit)
    thread.start()
    assert entered.wait(10)
    with limit_blas_threads(1):
        assert free_blas_threads(2) == 1
    leave.set()
    thread.join()


@pytest.mark.parametrize("text", ["", "cpu0 0 0 0 0 0 0\n", "cpu0 x\n", "cpu0 1\n"])
def test_all_cores_count_as_free_where_nothing_is_known(machine, text):
    machine.file.write_text(text)
    assert cores.measure_free_cores() == 2.0
    machine.file.unlink()
    assert cores.measure_free_cores() == 2.0


# --- the choice


def run_steps(machine, choice, count, seconds):
    """Make steps that take ``seconds(threads)``; the numbers of threads."""
    used = []
    for _ in range(count):
        choice.begin_step()
        machine.run(0.0)
        threads = choice.threads(LARGE, len(machine.idle))
        used.append(threads)
        machine.run(seconds(threads), own=min(threads, len(machine.idle)))
        choice.end_step()
    return used


def test_threads_that_pay_are_used_from_the_third_step_on(machine):
    used = run_steps(machine, BlasThreads(), 60, lambda t: 1.0 / t)
    assert used[:3] == [1, 1, 2]
    assert used.count(1) <= 2 + 3 and set(used[3:13]) == {2}


@pytest.mark.parametrize("slower", [1.0, 1.3, 10.0])
def test_trials_of_threads_that_do_not_pay_cost_little(machine, slower):
    choice = BlasThreads()
    used = run_steps(machine, choice, 400, lambda t: slower if t == 2 else 1.0)
    assert used[:4] == [1, 1, 2, 1]
    cost = used[4:].count(2) * (slower - 1.0)
    assert cost <= cores.MAX_TRIAL_COST * 400 + slower
    assert used[4:].count(2) <= 400 / cores.TRIAL_STEPS
    if slower < 2.0:
        assert used[4:].count(2) > 3  # it is checked again


def test_busy_machine_never_gets_threads(machine):
    machine.others = 1.0
    used = run_steps(machine, BlasThreads(), 50, lambda t: 1.0 / t)
    assert set(used) == {1}


def test_threads_end_when_others_begin_and_return_when_they_end(machine):
    choice = BlasThreads()
    run_steps(machine, choice, 10, lambda t: 1.0 / t)
    machine.others = 1.0
    busy = run_steps(machine, choice, 20, lambda t: 20.0 if t == 2 else 1.5)
    assert busy[0] == 2 and set(busy[1:]) == {1}  # known after one section
    machine.others = 0.0
    free = run_steps(machine, choice, 22, lambda t: 1.0 / t)
    # Not at once, as others may begin and end all the time.
    assert set(free[: cores.TRIAL_STEPS]) == {1} and set(free[-4:]) == {2}


def test_section_of_a_step_gets_one_thread_as_soon_as_others_are_seen(machine):
    choice = BlasThreads()
    run_steps(machine, choice, 10, lambda t: 1.0 / t)
    choice.begin_step()
    assert choice.threads(LARGE, 2) == 2
    machine.others = 1.0
    machine.run(0.2)
    assert choice.threads(LARGE, 2) == 1
    choice.end_step()
    assert choice.current == 1


def test_sudden_slowdown_ends_threads_where_others_are_not_seen(machine):
    choice = BlasThreads()
    run_steps(machine, choice, 10, lambda t: 1.0 / t)
    used = run_steps(machine, choice, 20, lambda t: 5.0 if t == 2 else 1.0)
    assert used[0] == 2 and used.count(2) == 1


def test_choice_follows_work_that_stops_to_pay(machine):
    choice = BlasThreads()
    run_steps(machine, choice, 10, lambda t: 1.0 / t)
    used = run_steps(machine, choice, 40, lambda t: 1.0 if t == 2 else 0.9)
    assert set(used[20:]) <= {1, 2} and used[20:].count(1) >= 17


def test_next_run_begins_with_the_choice_of_the_last_one(machine):
    choice = BlasThreads()
    run_steps(machine, choice, 10, lambda t: 1.0 / t)
    choice.planned = 1  # a trial that was not made
    choice.begin_run(fixed=False)
    assert run_steps(machine, choice, 2, lambda t: 1.0 / t) == [2, 2]
    assert not choice.fixed
    choice.begin_run(fixed=True)
    choice.begin_run(fixed=False)
    assert choice.fixed


def test_many_cores_find_the_number_that_pays(monkeypatch, tmp_path):
    machine = Machine(monkeypatch, tmp_path, n_cores=32)
    seconds = {1: 8.0, 2: 4.5, 4: 3.0, 8: 2.0, 16: 3.0, 32: 5.0}
    choice = BlasThreads()
    used = run_steps(machine, choice, 120, seconds.__getitem__)
    assert used[2] == 32 and choice.current == 8
    choice.begin_step()
    assert choice.threads(LARGE, 4) == 4


def test_n_jobs_and_size_bound_threads(monkeypatch):
    limits = []
    monkeypatch.setattr("ncarl.engines.base.available_cores", lambda: 8)
    monkeypatch.setattr("ncarl.engines.base.limit_blas_threads", limits.append)
    threads = BlasThreads(fixed=True, chosen=64, in_step=True)
    monkeypatch.setattr("ncarl.engines.base.fit_threads", lambda: threads)
    for n_jobs in (1, 3, None, 12):
        for n in (LARGE, LARGE - 1):
            HostDevice(n_jobs).compute_context(n)
    threads.in_step = False
    HostDevice().compute_context(LARGE)
    assert limits == [1, 1, 3, 1, 8, 1, 8, 1, 1]


@pytest.mark.parametrize(("gain", "chosen"), [(1.2, 1), (2.0, 2)])
def test_choice_that_is_made_once_needs_a_larger_gain(
    machine, monkeypatch, gain, chosen
):
    limits = []

    def decompose(A):
        assert A.shape[0] <= cores.MAX_TIMED_COLUMNS
        machine.run(1.0 if limits[-1] == 1 else 1.0 / gain)

    original = cores.limit_blas_threads

    def limit(threads):
        limits.append(threads)
        return original(threads)

    monkeypatch.setattr(cores, "limit_blas_threads", limit)
    monkeypatch.setattr(cores, "symmetric_eigen", decompose)
    choice = BlasThreads(fixed=True, in_step=True)
    assert choice.threads(5000, 2) == chosen and limits == [1, 2]
    machine.others = 2.0
    machine.run(5.0)
    assert choice.threads(5000, 2) == chosen and limits == [1, 2]  # never again
    assert choice.threads(5000, 1) == 1
    assert BlasThreads(fixed=True, in_step=True).threads(5000, 2) == 1 and limits == [
        1,
        2,
    ]  # now busy


# --- limits


@pytest.mark.skipif(not cores._blas_libraries(), reason="needs a BLAS with threads")
class TestLimits:
    def test_inner_limit_of_the_same_thread_counts(self):
        with threadpool_limits(3, user_api="blas"):
            before = blas_settings()
            for inner in (1, 2):
                with limit_blas_threads(1):
                    with limit_blas_threads(inner):
                        assert blas_settings() == [inner] * len(before)
                    assert blas_settings() == [1] * len(before)
            assert blas_settings() == before == [3] * len(before)

    def test_limit_of_the_user_is_never_exceeded(self):
        with threadpool_limits(1, user_api="blas"), limit_blas_threads(2):
            assert set(blas_settings()) == {1}

    def test_smallest_limit_of_all_threads_counts(self):
        entered, leave = threading.Event(), threading.Event()

        def hold():
            with limit_blas_threads(1):
                entered.set()
                assert leave.wait(10)

        thread = threading.Thread(target=hold)
        with threadpool_limits(2, user_api="blas"):
            with limit_blas_threads(2):
                thread.start()
                assert entered.wait(10)
                assert set(blas_settings()) == {1}
                leave.set()
                thread.join()
                assert set(blas_settings()) == {2}
            assert set(blas_settings()) == {2}

    @pytest.mark.parametrize("fails", [False, True])
    def test_fit_has_one_thread_outside_of_steps(self, X, fails):
        seen = []

        def look(info):
            seen.append(blas_settings())
            if fails:
                raise RuntimeError("enough")

        with threadpool_limits(2, user_api="blas"):
            before = blas_settings()
            try:
                NCARL(max_iter=3, tol=0, callback=look).fit(X)
            except RuntimeError:
                assert fails
            assert blas_settings() == before
        assert len(seen) == (1 if fails else 3)
        assert {count for settings in seen for count in settings} == {1}


# --- checkpoints


@pytest.fixture
def used(monkeypatch):
    """Numbers of threads that n x n work used, which small kernels may have too."""
    found = []

    def limit(threads):
        found.append(threads)
        return limit_blas_threads(threads)

    monkeypatch.setattr("ncarl.engines.base.limit_blas_threads", limit)
    monkeypatch.setattr("ncarl.engines.base.available_cores", lambda: 4)
    monkeypatch.setattr(cores, "BLAS_THREADS_MIN_COLUMNS", 2)
    return found


def choose(monkeypatch, threads):
    calls = []

    def make_choice(n, most):
        calls.append((n, most))
        return threads

    monkeypatch.setattr(cores, "choose_blas_threads", make_choice)
    return calls


def test_checkpoint_keeps_the_choice(X, used, monkeypatch, tmp_path):
    path = tmp_path / "state"
    calls = choose(monkeypatch, 3)
    NCARL(max_iter=2, tol=0, checkpoint=path).fit(X)
    assert calls == [(X.shape[1], 4)] and 3 in used
    header, _ = read_archive(path, "checkpoint", "checkpoint")
    assert header["blas_threads"] == 3
    used.clear()
    calls = choose(monkeypatch, 2)
    NCARL(max_iter=3, tol=0, checkpoint=path).fit(X)
    assert not calls and 3 in used and 2 not in used
    assert read_archive(path, "checkpoint", "checkpoint")[0]["blas_threads"] == 3


def test_search_with_a_checkpoint_uses_one_choice(X, used, monkeypatch, tmp_path):
    path = tmp_path / "state"
    search = NCARLCV(
        alphas=(1.0, 10.0), gammas=(None,), centers=(None,), max_iter=2, tol=0,
        checkpoint=path,
    )  # fmt: skip
    calls = choose(monkeypatch, 3)
    search.fit(X)
    assert len(calls) == 1 and set(used) == {1, 3}
    (tmp_path / "state.fit").unlink()
    calls = choose(monkeypatch, 2)
    search.fit(X)
    assert not calls and set(used) == {1, 3}


def test_choice_of_one_fit_does_not_hold_for_the_next(X, used, monkeypatch, tmp_path):
    before, calls = cores.fit_threads(), choose(monkeypatch, 3)
    NCARL(max_iter=2, tol=0, checkpoint=tmp_path / "state").fit(X)
    assert len(calls) == 1 and cores.fit_threads() is before
    monkeypatch.setattr(cores, "free_blas_threads", lambda most: 1)
    used.clear()
    NCARL(max_iter=2, tol=0).fit(X)
    assert len(calls) == 1 and set(used) == {1}
    NCARL(max_iter=2, tol=0, checkpoint=tmp_path / "other").fit(X)
    assert len(calls) == 2


@pytest.mark.parametrize("threads", [1, 2])
def test_resumed_fit_repeats_the_bits(rng, monkeypatch, tmp_path, threads):
    X = rng.random((LARGE + 60, LARGE + 10))
    X[rng.random(X.shape) < 0.1] = np.nan
    kernels = []
    for name, lengths in (("whole", [3]), ("parts", [1, 2, 3])):
        for max_iter in lengths:
            # Only the first fit of a file chooses.
            choose(monkeypatch, threads if max_iter == lengths[0] else 3 - threads)
            state = tmp_path / name
            model = NCARL(alpha=1.0, max_iter=max_iter, tol=0, checkpoint=state).fit(X)
        kernels.append(model.kernel_)
    assert (kernels[0] == kernels[1]).all()


@pytest.mark.parametrize("stored", [0, "2", 1.5, [1]])
def test_damaged_choice_raises(X, stored, tmp_path):
    path = tmp_path / "state"
    NCARL(max_iter=2, tol=0, checkpoint=path).fit(X)
    header, arrays = read_archive(path, "checkpoint", "checkpoint")
    write_archive(path, {**header, "blas_threads": stored}, arrays)
    with pytest.raises(BrokenFileError, match="state"):
        NCARL(max_iter=4, tol=0, checkpoint=path).fit(X)


def test_file_without_a_choice_resumes(X, used, monkeypatch, tmp_path):
    path = tmp_path / "state"
    choose(monkeypatch, 1)
    NCARL(max_iter=2, tol=0, checkpoint=path).fit(X)
    header, arrays = read_archive(path, "checkpoint", "checkpoint")
    del header["blas_threads"]
    write_archive(path, header, arrays)
    calls = choose(monkeypatch, 2)
    NCARL(max_iter=3, tol=0, checkpoint=path).fit(X)
    assert len(calls) == 1


def test_doctor_shows_cores(monkeypatch, cgroups):
    doctor = pytest.importorskip("ncarl.cli.doctor")
    cgroups(["0::/"], **{"cpu-max": "150000 100000"})
    monkeypatch.setattr(doctor, "usable_cores", lambda: set(range(3)))
    monkeypatch.setattr(cores, "usable_cores", lambda: set(range(3)))
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    for free, threads in ((1.4, "1 thread"), (3.9, "2 threads")):
        for module in (doctor, cores):
            monkeypatch.setattr(
                module, "measure_free_cores", lambda wait=0.0, free=free: free
            )
        fields = dict(doctor.machine_fields())
        assert fields["cores"] == "2"
        assert fields["limits"] == "affinity to 3 of 4 cores, a quota of 1.5"
        assert fields["free"].startswith(f"{free} cores now: up to {threads} of")
    cgroups(["0::/"], **{"cpu-max": "max 100000"})
    assert dict(doctor.machine_fields())["limits"].endswith("cores, no quota")


def test_every_run_of_a_solver_begins_anew(X, monkeypatch, tmp_path):
    begun = []
    monkeypatch.setattr(
        BlasThreads, "begin_run", lambda self, *, fixed: begun.append((self, fixed))
    )
    grid = {"gammas": (None,), "centers": (None,), "max_iter": 2, "tol": 0}
    search = NCARLCV(alphas=(1.0, 10.0), **grid, checkpoint=tmp_path / "state").fit(X)
    threads = begun[0][0]
    assert begun == [*[(threads, False)] * (len(begun) - 1), (threads, True)]
    assert len(begun) >= 1 + len(search.cv_results_["params"]) and threads.fixed
