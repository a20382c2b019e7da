"""Cores of this process, and how many of them BLAS uses.

BLAS threads wait for each other in busy loops. On cores that other processes use too,
even at a low priority, that makes n x n work 2 to 20 times slower, and threads that
have no work spin on for a tenth of a second, next to whatever runs then. Therefore BLAS
has one thread, except in the n x n work of a step of a fit if cores are free and steps
get faster by it.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import OpenBLASController, ThreadpoolController

from ncarl.core.linalg import symmetric_eigen

#: Smallest n from which n x n work may use several threads.
BLAS_THREADS_MIN_COLUMNS = 600
#: Where Linux tells which control groups limit this process, and what cores did.
CGROUP_OF_PROCESS, CGROUPS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")
CORE_TIMES = Path("/proc/stat")
#: Seconds over which free cores are measured. On two cores one other process leaves
#: 1.0, and none 1.9 to 2.0.
MIN_WINDOW = 0.05
#: Part of a core that others may use before it does not count as free.
BACKGROUND_LOAD = 0.3
#: More threads must shorten a step by this part; in a fit that keeps its first choice,
#: where a busy machine would cost far more, the work by `MIN_FIXED_GAIN`.
MIN_GAIN, MIN_FIXED_GAIN = 0.03, 0.35
#: Steps between two trials of another number of threads, and the part of the time that
#: trials may cost.
TRIAL_STEPS, MAX_TRIAL_COST = 10, 0.05
#: A step that takes so many times as long as the others ends the use of threads.
MAX_SLOWDOWN = 3.0
#: Largest matrix with which the first choice is made.
MAX_TIMED_COLUMNS = 1000


def usable_cores() -> set[int]:
    """Numbers of the cores on which this process may run."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


@cache
def cpu_quota() -> float:
    """Cores whose time control groups grant this process; infinite without a limit."""
    quota, names = math.inf, ("cpu.cfs_quota_us", "cpu.cfs_period_us")
    with suppress(OSError, ValueError):
        for line in CGROUP_OF_PROCESS.read_text().splitlines():
            _, controllers, group = line.split(":", 2)
            if controllers and "cpu" not in controllers.split(","):
                continue
            root = CGROUPS / "cpu" if controllers else CGROUPS  # versions 1 and 2
            folder = root / group.strip("/")
            # Outer groups limit it too. Inside a container only the root may exist.
            for place in {folder, *folder.parents} - set(root.parents):
                files = [
                    place / name for name in (names if controllers else ["cpu.max"])
                ]
                with suppress(OSError, ValueError, ZeroDivisionError):  # "max" is none
                    limit, period = " ".join(f.read_text() for f in files).split()
                    if int(limit) > 0:
                        quota = min(quota, int(limit) / int(period))
    return quota


def available_cores() -> int:
    """Number of cores that this process may use."""
    return max(1, math.ceil(min(cpu_quota(), len(usable_cores()))))


class _FreeCores:
    """Cores that other processes leave to this one, measured between two calls."""

    def __init__(self) -> None:
        self.before: tuple[float, float] | None = None
        self.free = 1.0  # until it has been measured

    def measure(self, wait: float = 0.0) -> float:
        """Free cores, those that this process uses counted; all if it is unknown."""
        if wait:
            self.before = _read_times()
            time.sleep(wait)
        now, cores = _read_times(), float(available_cores())
        if now is None:
            return cores
        if self.before is None:
            self.before = now
        seconds = now[0] - self.before[0]
        if seconds >= MIN_WINDOW:
            self.free = (now[1] - self.before[1]) / seconds
            self.before = now
        return max(0.0, min(self.free, cores, cpu_quota()))


def _read_times() -> tuple[float, float] | None:
    """Seconds so far: of time, and of cores that were idle or ran this process."""
    names, idle, total = {f"cpu{core}" for core in usable_cores()}, 0, 0
    with suppress(OSError, ValueError, IndexError):
        for line in CORE_TIMES.read_text().splitlines():
            name, *ticks = line.split()
            if name in names:
                idle += int(ticks[3]) + int(ticks[4])  # waiting for a disk is idle too
                total += sum(map(int, ticks))
            elif name == "intr":
                break
        if total:  # some sandboxes show zeros
            used = time.process_time()
            return time.perf_counter(), idle / os.sysconf("SC_CLK_TCK") + used
    return None


measure_free_cores = _FreeCores().measure


class _BlasThreadLimit:
    """Limits on BLAS threads, which are global to the process.

    The last limit of each thread counts, and of these the smallest. What the user had
    set is never exceeded, and restored when the last limit ends.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.limits: list[tuple[int, int, object]] = []  # thread, limit, context
        self.set_by_user: list[int | None] = []
        self.applied: int | None = None
        if hasattr(os, "register_at_fork"):
            # A child would wait forever for a lock that another thread held.
            take, free = self.lock.acquire, self.lock.release
            os.register_at_fork(before=take, after_in_parent=free, after_in_child=free)

    @contextmanager
    def limit(self, threads: int) -> Iterator[None]:
        """Limit BLAS to ``threads`` threads."""
        entry = threading.get_ident(), threads, object()
        with self.lock:
            if not self.limits:
                libraries = _blas_libraries()
                self.set_by_user = [library.num_threads for library in libraries]
            self.limits.append(entry)
            self._apply()
        try:
            yield
        finally:
            with self.lock:
                self.limits.remove(entry)
                self._apply()

    def _apply(self) -> None:
        last = {owner: limit for owner, limit, _ in self.limits}
        limit = min(last.values(), default=None)
        if limit == self.applied:
            return
        _release_blas()
        for library, before in zip(_blas_libraries(), self.set_by_user, strict=True):
            if before is not None:
                library.set_num_threads(before if limit is None else min(limit, before))
        _release_blas()
        self.applied = limit

    def count_users(self) -> int:
        """Number of threads with limits."""
        with self.lock:
            return len({owner for owner, _, _ in self.limits})


_blas_limit = _BlasThreadLimit()
limit_blas_threads = _blas_limit.limit


@cache
def _blas_libraries() -> list[Any]:
    """The BLAS libraries of this process, which are slow to find."""
    found = ThreadpoolController().select(user_api="blas")
    return list(found.lib_controllers)


def _release_blas() -> None:
    """Let any thread change the limits of OpenBLAS.

    Since threadpoolctl 3.8 only the thread that set a limit may change it, but the last
    context may end in another thread than the first began in.
    """
    release = getattr(OpenBLASController, "clear_controlling_thread", None)
    if release is not None:
        release(force=True)


def free_blas_threads(most: int, wait: float = 0.0) -> int:
    """Number of threads, at most ``most``, that would each have a core of their own."""
    if most <= 1:
        return 1
    free = math.floor(measure_free_cores(wait) + BACKGROUND_LOAD)
    return max(1, min(most, free) // max(1, _blas_limit.count_users()))


@dataclass
class BlasThreads:
    """Number of threads for the n x n work of a fit.

    Whole steps are compared, as threads of BLAS that spin slow the row work down. Steps
    begin with one thread. While cores are free, another number is tried now and then.
    """

    fixed: bool = False  # whether the number is chosen once, since bits must repeat
    chosen: int | None = None  # that number
    in_step: bool = False  # outside of steps there is always one thread
    current: int = 1
    planned: int = 1  # in this step; another number than ``current`` is a trial
    tried: int = 1  # in the last trial
    allowed: int = 1  # as many as there were free cores in the last section
    used: set[int] = field(default_factory=set)  # in this step
    n_steps: int = 0  # of this run
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=3))
    start: float = 0.0  # of this step
    next_trial: float = 0.0  # time

    def threads(self, n: int, most: int) -> int:
        """Number of threads for n x n work, at most ``most``."""
        if not self.in_step or n < BLAS_THREADS_MIN_COLUMNS or most == 1:
            return 1
        if self.fixed:
            self.chosen = self.chosen or choose_blas_threads(n, most)
            return min(self.chosen, most)
        self.allowed = free_blas_threads(most)
        self.used.add(min(self.planned, self.allowed))
        return min(self.planned, self.allowed)

    def begin_run(self, *, fixed: bool) -> None:
        """Begin a run of a solver, whose steps are compared with each other only."""
        self.fixed |= fixed
        self.n_steps, self.planned = 0, self.current
        self.recent.clear()

    def begin_step(self) -> None:
        """Begin a step."""
        self.in_step, self.start = True, time.perf_counter()
        self.used.clear()

    def end_step(self) -> None:
        """Learn from the time of a step, and plan the next one."""
        self.in_step = False
        if not self.used:  # no n x n work, or none that is large
            return
        end = time.perf_counter()
        seconds, usual = end - self.start, min(self.recent, default=math.inf)
        self.n_steps += 1
        if self.allowed == 1:  # times on a busy machine say nothing about a free one
            self.current = self.tried = 1
            self.recent.clear()
            if self.n_steps > 1:
                self.next_trial = end + TRIAL_STEPS * seconds
        elif self.n_steps > 1 and self.used == {self.planned}:  # the first one compiles
            slow = self.current > 1 and seconds > MAX_SLOWDOWN * usual
            if self.planned != self.current:
                lost = max(0.0, seconds - usual) / MAX_TRIAL_COST
                self.next_trial = end + max(lost, TRIAL_STEPS * min(seconds, usual))
                if seconds < (1.0 - MIN_GAIN) * usual:
                    self.current = self.planned
                    self.recent.clear()
            elif slow:
                self.next_trial = end + seconds / MAX_TRIAL_COST
                self.current = 1
                self.recent.clear()
            if self.planned == self.current:
                self.recent.append(seconds)
        self.planned = self.current
        if self.recent and end >= self.next_trial:
            self.planned = self.tried = self._next_trial()

    def _next_trial(self) -> int:
        """All free cores first; later in turn fewer and more threads than now."""
        if self.tried == 1 and self.current == 1:
            return self.allowed
        fewer, more = max(1, self.current // 2), min(2 * self.current, self.allowed)
        return more if self.tried < self.current or fewer == self.current else fewer


def choose_blas_threads(n: int, most: int) -> int:
    """Number of threads by the time of an eigendecomposition, if cores are free."""
    threads = free_blas_threads(most, wait=2.0 * MIN_WINDOW)
    if threads == 1:
        return 1
    A = np.random.default_rng(0).standard_normal((min(n, MAX_TIMED_COLUMNS),) * 2)
    A += A.T
    seconds = []
    for count in (1, threads):
        with limit_blas_threads(count):
            start = time.perf_counter()
            symmetric_eigen(A)
            seconds.append(time.perf_counter() - start)
    return threads if seconds[1] < (1.0 - MIN_FIXED_GAIN) * seconds[0] else 1


_fit_threads: ContextVar[BlasThreads | None]
_fit_threads = ContextVar("ncarl_blas_threads", default=None)


def fit_threads() -> BlasThreads:
    """Threads of the fit in this context."""
    if (threads := _fit_threads.get()) is None:
        _fit_threads.set(threads := BlasThreads())
    return threads


@contextmanager
def fit_context() -> Iterator[None]:
    """Context for a fit: its own choice of threads, and one outside of steps."""
    token = _fit_threads.set(BlasThreads())
    try:
        with limit_blas_threads(1):
            yield
    finally:
        _fit_threads.reset(token)
