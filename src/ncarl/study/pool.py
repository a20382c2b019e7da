"""Processes that work side by side; one that dies or overruns is replaced.

Every job runs in another process, so that neither a crash nor a kill by the system
takes the study down, and a job that does not end can be ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import IO, Any

#: Variables that hold numerical libraries to a number of threads.
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)


@dataclass(frozen=True)
class Lane:
    """Workers of one kind.

    Attributes
    ----------
    name : str
        What jobs ask for.
    workers : int
        How many jobs run side by side.
    threads : int
        Threads of each.
    """

    name: str
    workers: int = 1
    threads: int = 1


@dataclass(frozen=True)
class Job:
    """Work for a process.

    Attributes
    ----------
    function : str
        ``module:name`` of a function that takes and gives what JSON can hold.
    payload : object
        What it is given.
    lane : str
        Which workers may do it.
    limit : float or None
        Seconds after which the process is ended.
    """

    function: str
    payload: Any
    lane: str
    limit: float | None = None


@dataclass(frozen=True)
class Answer:
    """What came of a job.

    Attributes
    ----------
    value : object
        What the function gave; None where it failed.
    trouble : str
        "" where all went well, "over budget", or "failed".
    message : str
        What went wrong.
    """

    job: Job
    value: Any = None
    trouble: str = ""
    message: str = ""


@dataclass(eq=False)
class Worker:
    """One process, and the job it has."""

    lane: Lane
    process: subprocess.Popen[str]
    errors: IO[bytes]
    heard: queue.Queue[tuple[Worker, str | None]]
    job: Job | None = None
    begun: float = 0.0

    @property
    def overdue(self) -> bool:
        """Whether the job has taken longer than it may."""
        limit = None if self.job is None else self.job.limit
        return limit is not None and time.monotonic() - self.begun > limit

    def last_words(self) -> str:
        """The end of what the process wrote to its error stream."""
        self.errors.seek(0)
        text = self.errors.read().decode(errors="replace").strip()
        return text.splitlines()[-1][:300] if text else ""


@dataclass
class Pool:
    """Workers in lanes; use it in a ``with`` block, which ends them.

    Parameters
    ----------
    lanes : sequence of Lane
        What workers there are.
    fresh : bool
        Start a new process for every job, so that its memory is the job's own.

    Examples
    --------
    >>> with Pool([Lane("cpu")]) as pool:
    ...     pool.start(Job("math:factorial", 5, "cpu"))
    ...     [answer.value for answer in pool.wait()]
    [120]
    """

    lanes: Sequence[Lane]
    fresh: bool = False
    _workers: list[Worker] = field(default_factory=list)
    _heard: queue.Queue[tuple[Worker, str | None]] = field(default_factory=queue.Queue)

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()

    @property
    def running(self) -> list[Job]:
        """Jobs that are being done."""
        return [worker.job for worker in self._workers if worker.job is not None]

    def has_room(self, lane: str) -> bool:
        """Whether a job of a lane could start now."""
        busy = sum(job.lane == lane for job in self.running)
        return any(one.name == lane and busy < one.workers for one in self.lanes)

    def start(self, job: Job) -> None:
        """Give a job to an idle worker of its lane."""
        worker = self._idle(job.lane)
        worker.job, worker.begun = job, time.monotonic()
        assert worker.process.stdin is not None
        line = json.dumps({"function": job.function, "payload": job.payload})
        # One that has died while idle is heard of by `wait`, and the job fails.
        with contextlib.suppress(BrokenPipeError):
            worker.process.stdin.write(line + "\n")
            worker.process.stdin.flush()

    def wait(self, seconds: float | None = None) -> list[Answer]:
        """Answers, as soon as there is one; none if that takes too long."""
        until = None if seconds is None else time.monotonic() + seconds
        while self.running:
            answers = [*self._ended(), *self._told(0.05)]
            if answers:
                return answers
            if until is not None and time.monotonic() > until:
                return []
        return []

    def close(self) -> None:
        """End all workers, whatever they are doing."""
        for worker in list(self._workers):
            self._end(worker)

    def _idle(self, name: str) -> Worker:
        """A worker of a lane with nothing to do; a new one if there is none."""
        lane = next(lane for lane in self.lanes if lane.name == name)
        for worker in self._workers:
            if worker.lane is lane and worker.job is None:
                return worker
        worker = _started(lane, self._heard)
        self._workers.append(worker)
        return worker

    def _ended(self) -> list[Answer]:
        """Answers for jobs that took too long; their workers are ended."""
        answers = []
        for worker in [one for one in self._workers if one.overdue]:
            job = worker.job
            assert job is not None
            self._end(worker)
            said = f"ended after {job.limit:.0f} s, without a step to stop at"
            answers.append(Answer(job, trouble="over budget", message=said))
        return answers

    def _told(self, seconds: float) -> list[Answer]:
        """What a worker has said, if one does within so many seconds."""
        try:
            worker, line = self._heard.get(timeout=seconds)
        except queue.Empty:
            return []
        if worker not in self._workers:
            return []  # it was ended on purpose
        job = worker.job
        if line is None:
            dead = [] if job is None else [_of_the_dead(worker, job)]
            self._end(worker)
            return dead
        worker.job = None
        if self.fresh:
            self._end(worker)
        assert job is not None
        said = json.loads(line)
        if "trouble" in said:
            return [Answer(job, trouble="failed", message=said["trouble"])]
        return [Answer(job, said["value"])]

    def _end(self, worker: Worker) -> None:
        """End a worker for good."""
        self._workers.remove(worker)
        worker.job = None
        _kill(worker.process)
        worker.process.wait()
        worker.errors.close()
        for stream in (worker.process.stdin, worker.process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


def _kill(process: subprocess.Popen[str]) -> None:
    """End a process, and those it has started."""
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # it leads a session of its own
    process.kill()


def _of_the_dead(worker: Worker, job: Job) -> Answer:
    """The answer for a job whose process has died."""
    code = worker.process.returncode
    how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
    why = " (out of memory?)" if code == -9 else ""
    said = f"the process ended {how}{why}; {worker.last_words()}"
    return Answer(job, trouble="failed", message=said.rstrip("; "))


def _started(lane: Lane, heard: queue.Queue[tuple[Worker, str | None]]) -> Worker:
    """A new process, and a thread that listens to it."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    environment |= dict.fromkeys(THREAD_VARIABLES, str(lane.threads))
    errors = tempfile.TemporaryFile()  # noqa: SIM115 (it lives as long as the worker)
    process = subprocess.Popen(
        [sys.executable, "-m", "ncarl.study.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        env=environment,
        text=True,
        encoding="utf-8",
        # Ctrl-C is for the parent, which ends its workers in order.
        start_new_session=True,
    )
    worker = Worker(lane, process, errors, heard)
    threading.Thread(target=_overhear, args=(worker,), daemon=True).start()
    return worker


def _overhear(worker: Worker) -> None:
    """Pass on what a worker says, and None when it can say no more."""
    assert worker.process.stdout is not None
    with contextlib.suppress(ValueError):  # closed when the worker is ended
        for line in worker.process.stdout:
            worker.heard.put((worker, line))
    worker.process.wait()
    worker.heard.put((worker, None))
