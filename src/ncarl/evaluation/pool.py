"""A pool of worker processes; one that dies or exceeds its time limit is replaced.

Every job runs outside the parent, which survives crashes and out-of-memory kills, and
can kill a job that does not end.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

from ncarl.evaluation.measure import FAILED, OVER_BUDGET

#: Environment variables that limit the threads of numerical libraries.
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)


@dataclass(frozen=True)
class WorkerGroup:
    """Workers with the same number of threads.

    Attributes
    ----------
    name : str
        Name that jobs refer to.
    workers : int
        Number of processes.
    threads : int
        Threads of each process.
    """

    name: str
    workers: int = 1
    threads: int = 1


@dataclass(frozen=True)
class PoolJob:
    """A function call for a worker process.

    Attributes
    ----------
    function : str
        ``module:name`` of a function of one argument; argument and result are JSON
        values.
    payload : object
        Its argument.
    group : str
        Name of the worker group that runs it.
    timeout : float or None
        Seconds after which the process is killed.
    """

    function: str
    payload: Any
    group: str
    timeout: float | None = None


@dataclass(frozen=True)
class JobResult:
    """Result of a job.

    Attributes
    ----------
    job : PoolJob
        The job.
    value : object
        Result of the function; None if it failed.
    failure : str
        "", "over budget" or "failed".
    message : str
        Error message.
    """

    job: PoolJob
    value: Any = None
    failure: str = ""
    message: str = ""


@dataclass(eq=False)
class Worker:
    """A process and its current job."""

    group: WorkerGroup
    process: subprocess.Popen[str]
    stderr: IO[bytes]
    messages: queue.Queue[tuple[Worker, str | None]]
    job: PoolJob | None = None
    started_at: float = 0.0

    @property
    def is_overdue(self) -> bool:
        """Whether the job has exceeded its time limit."""
        limit = None if self.job is None else self.job.timeout
        return limit is not None and time.monotonic() - self.started_at > limit

    def last_stderr_line(self) -> str:
        """The last line that the process wrote to its standard error."""
        self.stderr.seek(0)
        text = self.stderr.read().decode(errors="replace").strip()
        return text.splitlines()[-1][:300] if text else ""


@dataclass
class WorkerPool:
    """Groups of worker processes; leaving the ``with`` block kills them.

    Parameters
    ----------
    groups : sequence of WorkerGroup
        Groups of workers.
    process_per_job : bool
        Start a new process for every job, so that memory can be measured by job.

    Examples
    --------
    >>> with WorkerPool([WorkerGroup("cpu")]) as pool:
    ...     pool.submit(PoolJob("math:factorial", 5, "cpu"))
    ...     [answer.value for answer in pool.wait()]
    [120]
    """

    groups: Sequence[WorkerGroup]
    process_per_job: bool = False
    _workers: list[Worker] = field(default_factory=list)
    _messages: queue.Queue[tuple[Worker, str | None]] = field(
        default_factory=queue.Queue
    )

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()

    @property
    def running(self) -> list[PoolJob]:
        """Jobs in progress."""
        return [worker.job for worker in self._workers if worker.job is not None]

    def has_room(self, group: str) -> bool:
        """Whether a job of a group could start now."""
        busy = sum(job.group == group for job in self.running)
        return any(one.name == group and busy < one.workers for one in self.groups)

    def submit(self, job: PoolJob) -> None:
        """Give a job to an idle worker of its group."""
        worker = self._idle_worker(job.group)
        worker.job, worker.started_at = job, time.monotonic()
        assert worker.process.stdin is not None
        line = json.dumps({"function": job.function, "payload": job.payload})
        # If the worker died while idle, `wait` reports the job as failed.
        with contextlib.suppress(BrokenPipeError):
            worker.process.stdin.write(line + "\n")
            worker.process.stdin.flush()

    def wait(self, timeout: float | None = None) -> list[JobResult]:
        """Wait for the next results; an empty list after ``timeout`` seconds."""
        until = None if timeout is None else time.monotonic() + timeout
        while self.running:
            answers = [*self._kill_overdue(), *self._receive_result(0.05)]
            if answers:
                return answers
            if until is not None and time.monotonic() > until:
                return []
        return []

    def close(self) -> None:
        """Kill all workers."""
        for worker in list(self._workers):
            self._end(worker)

    def _idle_worker(self, name: str) -> Worker:
        """An idle worker of a group; a new one if there is none."""
        group = next(group for group in self.groups if group.name == name)
        for worker in self._workers:
            if worker.group is group and worker.job is None:
                return worker
        worker = _start_worker(group, self._messages)
        self._workers.append(worker)
        return worker

    def _kill_overdue(self) -> list[JobResult]:
        """Kill workers over their time limit; the results of their jobs."""
        answers = []
        for worker in [one for one in self._workers if one.is_overdue]:
            job = worker.job
            assert job is not None
            self._end(worker)
            message = f"ended after {job.timeout:.0f} s, without a step to stop at"
            answers.append(JobResult(job, failure=OVER_BUDGET, message=message))
        return answers

    def _receive_result(self, timeout: float) -> list[JobResult]:
        """The next result of a worker within ``timeout`` seconds."""
        try:
            worker, line = self._messages.get(timeout=timeout)
        except queue.Empty:
            return []
        if worker not in self._workers:
            return []  # it was killed on purpose
        job = worker.job
        if line is None:
            results = [] if job is None else [_crash_result(worker, job)]
            self._end(worker)
            return results
        worker.job = None
        if self.process_per_job:
            self._end(worker)
        assert job is not None
        answer = json.loads(line)
        if "error" in answer:
            return [JobResult(job, failure=FAILED, message=answer["error"])]
        return [JobResult(job, answer["value"])]

    def _end(self, worker: Worker) -> None:
        self._workers.remove(worker)
        worker.job = None
        _kill(worker.process)
        worker.process.wait()
        worker.stderr.close()
        for stream in (worker.process.stdin, worker.process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


def _kill(process: subprocess.Popen[str]) -> None:
    """Kill a process and its children."""
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # it leads its own session
    process.kill()


def _crash_result(worker: Worker, job: PoolJob) -> JobResult:
    """Result of a job whose process died."""
    code = worker.process.returncode
    how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
    why = " (out of memory?)" if code == -9 else ""
    message = f"the process ended {how}{why}; {worker.last_stderr_line()}"
    return JobResult(job, failure=FAILED, message=message.rstrip("; "))


def _start_worker(
    group: WorkerGroup, messages: queue.Queue[tuple[Worker, str | None]]
) -> Worker:
    """Start a process, and a thread that reads its output."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    environment |= dict.fromkeys(THREAD_VARIABLES, str(group.threads))
    errors = tempfile.TemporaryFile()  # noqa: SIM115 (it lives as long as the worker)
    process = subprocess.Popen(
        [sys.executable, "-m", "ncarl.evaluation.pool"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        env=environment,
        text=True,
        encoding="utf-8",
        # Ctrl-C is handled by the parent, which ends its workers.
        start_new_session=True,
    )
    worker = Worker(group, process, errors, messages)
    threading.Thread(target=_forward_output, args=(worker,), daemon=True).start()
    return worker


def _forward_output(worker: Worker) -> None:
    """Queue the lines that a worker prints, then None."""
    assert worker.process.stdout is not None
    with contextlib.suppress(ValueError):  # closed when the worker is killed
        for line in worker.process.stdout:
            worker.messages.put((worker, line))
    worker.process.wait()
    worker.messages.put((worker, None))


def worker_main() -> None:
    """Run jobs from the standard input until it ends."""
    # Only answers go to the standard output; what libraries print goes to stderr.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    jobs: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_read_jobs, args=(jobs,), daemon=True).start()
    while True:
        _write_answer(answers, _run_job(json.loads(jobs.get())))


def _read_jobs(jobs: queue.Queue[str]) -> None:
    """Queue jobs from the standard input; end the process with it."""
    for line in sys.stdin:
        jobs.put(line)
    os._exit(0)


def _write_answer(answers: IO[str], answer: Mapping[str, Any]) -> None:
    """Write an answer as one line."""
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


def _run_job(job: Mapping[str, Any]) -> dict[str, Any]:
    """Result of a job, or its error message."""
    try:
        module, _, name = job["function"].partition(":")
        value = getattr(importlib.import_module(module), name)(job["payload"])
    except Exception as error:
        # A job that raises must not end the worker.
        text = " ".join(str(error).split())
        return {"error": f"{type(error).__name__}: {text}"[:500]}
    return {"value": value}


if __name__ == "__main__":
    worker_main()
