"""A pool of worker processes; one that dies or exceeds its time limit is replaced.

Every job runs outside the parent, which survives crashes and out-of-memory kills, and
can kill a job that does not end; the pools of `concurrent.futures` cannot.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import connection
from pathlib import Path
from types import ModuleType
from typing import Any

from ncarl.evaluation.measure import FAILED, OVER_BUDGET
from ncarl.text import one_line

#: Environment variables that limit the threads of numerical libraries.
THREAD_VARIABLES = tuple(
    f"{library}_NUM_THREADS" for library in ("OMP", "OPENBLAS", "MKL", "NUMBA")
)
SPAWN = multiprocessing.get_context("spawn")


@dataclass(frozen=True)
class WorkerGroup:
    """Workers with the same number of threads."""

    name: str  # jobs refer to it
    workers: int = 1  # number of processes
    threads: int = 1  # of each process


@dataclass(frozen=True)
class PoolJob:
    """A function call for a worker process."""

    function: str  # ``module:name``; argument and result are JSON values
    payload: Any  # its argument
    group: str  # name of the worker group that runs it
    timeout: float | None = None  # seconds after which the process is killed


@dataclass(frozen=True)
class JobResult:
    """Result of a job."""

    job: PoolJob
    value: Any = None  # result of the function; None if it failed
    failure: str = ""  # "", "over budget" or "failed"
    message: str = ""  # error message


class _Worker:
    def __init__(self, group: WorkerGroup, output: Path) -> None:
        self.group, self.output = group, output
        self.job: PoolJob | None = None
        self.deadline = math.inf
        self.connection, other_end = SPAWN.Pipe()
        self.process = SPAWN.Process(
            target=_run_jobs, args=(other_end, group.threads, output), daemon=True
        )
        with _hidden_main_module():
            self.process.start()
        other_end.close()

    def start(self, job: PoolJob) -> None:
        self.job = job
        if job.timeout is not None:
            self.deadline = time.monotonic() + job.timeout
        request = {"function": job.function, "payload": job.payload}
        # If the process has just died, `finish` reports the job as failed.
        with contextlib.suppress(BrokenPipeError):
            self.connection.send_bytes(json.dumps(request).encode())

    def finish(self) -> JobResult:
        """The result of the job, or how the process died."""
        job, self.job, self.deadline = self.job, None, math.inf
        assert job is not None
        try:
            return JobResult(job, **json.loads(self.connection.recv_bytes()))
        except (EOFError, OSError):
            self.process.join(5.0)
        code = self.process.exitcode or 0
        how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        why = " (out of memory?)" if code == -signal.SIGKILL else ""
        lines = self.output.read_text(errors="replace").strip().splitlines()
        last_line = lines[-1][:300] if lines else ""
        message = f"the process ended {how}{why}; {last_line}".rstrip("; ")
        return JobResult(job, failure=FAILED, message=message)


class WorkerPool:
    """Groups of worker processes; leaving the ``with`` block kills them.

    With a process per job, the memory of a job can be measured.

    >>> with WorkerPool([WorkerGroup("cpu")]) as pool:
    ...     pool.submit(PoolJob("math:factorial", 5, "cpu"))
    ...     [answer.value for answer in pool.wait()]
    [120]
    """

    def __init__(
        self, groups: Sequence[WorkerGroup], process_per_job: bool = False
    ) -> None:
        self.groups = {group.name: group for group in groups}
        self.process_per_job = process_per_job
        self._workers: list[_Worker] = []
        self._folder = tempfile.TemporaryDirectory(prefix="ncarl-workers-")
        self._n_started = 0

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *reason: object) -> None:
        for worker in list(self._workers):
            self._end(worker)
        self._folder.cleanup()

    @property
    def running(self) -> list[PoolJob]:
        """Jobs in progress."""
        return [worker.job for worker in self._workers if worker.job is not None]

    def has_room(self, group: str) -> bool:
        """Whether a job of a group could start now."""
        busy = sum(job.group == group for job in self.running)
        return group in self.groups and busy < self.groups[group].workers

    def submit(self, job: PoolJob) -> None:
        """Give a job to an idle worker of its group; start one if there is none."""
        for worker in [worker for worker in self._workers if worker.job is None]:
            if not worker.process.is_alive():
                self._end(worker)
            elif worker.group.name == job.group:
                worker.start(job)
                return
        self._n_started += 1
        output = Path(self._folder.name, f"output-{self._n_started}")
        self._workers.append(_Worker(self.groups[job.group], output))
        self._workers[-1].start(job)

    def wait(self, timeout: float | None = None) -> list[JobResult]:
        """Wait for the next results; an empty list after ``timeout`` seconds."""
        until = math.inf if timeout is None else time.monotonic() + timeout
        while busy := [worker for worker in self._workers if worker.job is not None]:
            pause = min(until, *(w.deadline for w in busy)) - time.monotonic()
            ready = connection.wait(
                [worker.connection for worker in busy],
                None if pause == math.inf else max(pause, 0.0),
            )
            results = []
            for worker in busy:
                if worker.connection in ready:
                    results.append(worker.finish())
                    if self.process_per_job or not worker.process.is_alive():
                        self._end(worker)
                elif time.monotonic() >= worker.deadline and worker.job is not None:
                    limit = f"{worker.job.timeout:.0f} s"
                    message = f"ended after {limit}, without a step to stop at"
                    results.append(JobResult(worker.job, None, OVER_BUDGET, message))
                    self._end(worker)
            if results or time.monotonic() >= until:
                return results
        return []

    def _end(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        worker.job = None
        if hasattr(os, "killpg"):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(worker.process.pid or 0, signal.SIGKILL)
        worker.process.kill()
        worker.process.join()
        worker.connection.close()


@contextlib.contextmanager
def _hidden_main_module() -> Iterator[None]:
    """Hide ``__main__``: a spawned process would run the script of the user again."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _run_jobs(jobs: connection.Connection, threads: int, output: Path) -> None:
    """Run the jobs of the parent until the process is killed."""
    # Numerical libraries are imported by the jobs, and read these then.
    os.environ |= dict.fromkeys(THREAD_VARIABLES, str(threads))
    if hasattr(os, "setsid"):
        os.setsid()  # Ctrl-C is for the parent, which kills its workers
    with output.open("wb") as stream:
        for descriptor in (1, 2):
            os.dup2(stream.fileno(), descriptor)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    while True:
        jobs.send_bytes(_run_job(**json.loads(jobs.recv_bytes())).encode())


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(0)


def _run_job(function: str, payload: Any) -> str:
    """Result of a job, or its error message, as JSON."""
    try:
        module, _, name = function.partition(":")
        value = getattr(importlib.import_module(module), name)(payload)
        return json.dumps({"value": value})
    except Exception as error:
        # A job that raises must not end the worker.
        text = f"{type(error).__name__}: {one_line(error)}"
        return json.dumps({"failure": FAILED, "message": text[:500]})
