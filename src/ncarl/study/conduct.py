"""Run what a study still needs, side by side, keeping every cell as it finishes."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from ncarl.engines import available_cores
from ncarl.gpu import gpu_trouble
from ncarl.study.agenda import Task, tasks
from ncarl.study.cells import ABSENT, DONE, FAILED, OVER, Result
from ncarl.study.entries import PROTOCOLS
from ncarl.study.plan import Plan
from ncarl.study.pool import Answer, Job, Lane, Pool
from ncarl.study.store import Store

MEASURE = "ncarl.study.measure:measure"
CPU, GPU = "cpu", "gpu"
#: Folder of completed matrices, beside the file of results.
ARRAYS = "arrays"
#: New tasks are looked for this often, in seconds, and this many times more seldom
#: than looking takes: with thousands of cells it takes a while.
LOOK, SELDOM = 2.0, 30.0


@dataclass(frozen=True)
class Terms:
    """How a study is run.

    Attributes
    ----------
    protocols : tuple of str
        How parameters are chosen.
    engine : {"auto", "threads", "torch"}
        "auto" gives large matrices to the GPU, if there is one.
    budget : float or None
        Seconds a fit may take.
    jobs : int or None
        Fits side by side on the processor; by default one a core.
    gpu_jobs : int
        Fits side by side on the GPU.
    limit : float or None
        Seconds after which no further fit is begun.
    retry : bool
        Run cells again that failed or overran.
    """

    protocols: tuple[str, ...] = PROTOCOLS
    engine: str = "auto"
    budget: float | None = None
    jobs: int | None = None
    gpu_jobs: int = 1
    limit: float | None = None
    retry: bool = False

    def lanes(self) -> list[Lane]:
        """The workers there are to be."""
        cores = available_cores()
        jobs = cores if self.jobs is None else self.jobs
        lanes = [Lane(CPU, jobs, max(1, cores // jobs))]
        trouble = "not asked for" if self.engine == "threads" else gpu_trouble()
        if self.engine == "torch" and trouble is not None:
            raise ValueError(
                f"engine 'torch' needs a GPU, and {trouble}; use 'auto' or 'threads'"
            )
        if trouble is None:
            lanes.append(Lane(GPU, self.gpu_jobs, max(1, cores // (2 * self.gpu_jobs))))
        return lanes


@dataclass
class Course:
    """How far a study is; what a watcher is shown.

    Attributes
    ----------
    total, statuses : dict
        Tasks known so far by study, and how many have which status.
    running : list of Task
        What is being done.
    latest : Result or None
        What finished last.
    ran : int
        Cells that this run has finished.
    stopped : bool
        Whether the time limit ended it.
    """

    total: dict[str, int] = field(default_factory=dict)
    statuses: dict[str, dict[str, int]] = field(default_factory=dict)
    running: list[Task] = field(default_factory=list)
    latest: Result | None = None
    ran: int = 0
    stopped: bool = False

    def count(self, known: Iterable[Task], store: Store) -> None:
        """Count anew what there is and what is done."""
        self.total, self.statuses = {}, {}
        for task in known:
            self.total[task.study] = self.total.get(task.study, 0) + 1
            result = store.results.get(task.cell.key)
            if result is not None:
                by_status = self.statuses.setdefault(task.study, {})
                by_status[result.status] = by_status.get(result.status, 0) + 1


Watcher = Callable[[Course], None]


def conduct(
    plans: Sequence[Plan],
    store: Store,
    terms: Terms,
    watch: Watcher = lambda course: None,
) -> Course:
    """Run every cell that has no result yet; how it went.

    Parameters
    ----------
    plans : sequence of Plan
        Tables and figures.
    store : Store
        Where results are found and kept.
    terms : Terms
        How to run.
    watch : callable
        Called after every change.
    """
    (store.folder / ARRAYS).mkdir(exist_ok=True)
    lanes = terms.lanes()
    with Pool(lanes) as pool:
        return _Conductor(plans, store, terms, pool, lanes).run(watch)


class _Conductor:
    """The loop: start what has room, hear what has finished."""

    def __init__(
        self,
        plans: Sequence[Plan],
        store: Store,
        terms: Terms,
        pool: Pool,
        lanes: Sequence[Lane],
    ) -> None:
        self.plans, self.store, self.terms, self.pool = plans, store, terms, pool
        self.lanes = {lane.name: lane for lane in lanes}
        self.running: dict[int, Task] = {}
        self.tried: set[str] = set()
        self.course = Course()
        self.begun = self.looked = time.monotonic()
        self.pause = LOOK
        self.open: list[Task] = []

    def run(self, watch: Watcher) -> Course:
        """Go on until nothing is left, or the time is up."""
        self._look()
        while True:
            self._start()
            watch(self.course)
            if not self.running:
                return self.course
            for answer in self.pool.wait(seconds=1.0):
                self._heard(answer)
            if time.monotonic() - self.looked > self.pause or not self.open:
                self._look()

    def _look(self) -> None:
        """Find what is to be done, with what has been chosen since."""
        begun = time.monotonic()
        known = tasks(self.plans, self.terms.protocols, self.store.results)
        self.open = [task for task in known if self._wanted(task)]
        self.course.count(known, self.store)
        self.looked = time.monotonic()
        self.pause = max(LOOK, SELDOM * (self.looked - begun))

    def _wanted(self, task: Task) -> bool:
        """Whether a task has to be run, now that others are done or under way."""
        key = task.cell.key
        if key in self.tried:
            return False
        result = self.store.results.get(key)
        if result is None or result.status == ABSENT:
            return True
        if result.status == DONE:
            return task.cell.keep == "picture" and not self._array_kept(key)
        return self.terms.retry or (result.status == OVER and self._may_now(result))

    def _array_kept(self, key: str) -> bool:
        """Whether the completed matrix of a cell is there."""
        return (self.store.folder / ARRAYS / f"{key}.npz").exists()

    def _may_now(self, result: Result) -> bool:
        """Whether a fit that overran may take longer this time."""
        had = result.facts.get("budget")
        budget = self.terms.budget
        return had is not None and (budget is None or budget > float(had))

    def _start(self) -> None:
        """Start what there is room for."""
        limit = self.terms.limit
        if limit is not None and time.monotonic() - self.begun > limit:
            self.course.stopped = bool(self.open)
            return
        for task in list(self.open):
            lane = self._lane(task)
            if not any(map(self.pool.has_room, self.lanes)):
                break
            if not self.pool.has_room(lane.name):
                continue
            self.open.remove(task)
            self.tried.add(task.cell.key)
            job = self._job(task, lane)
            self.running[id(job)] = task
            self.pool.start(job)
        self.course.running = list(self.running.values())

    def _lane(self, task: Task) -> Lane:
        """Where a task runs."""
        gpu = self.lanes.get(GPU)
        wanted = task.heavy or self.terms.engine == "torch"
        return gpu if gpu is not None and wanted else self.lanes[CPU]

    def _job(self, task: Task, lane: Lane) -> Job:
        """What a worker is told."""
        budget = self.terms.budget
        payload = {
            "cell": task.cell.record(),
            "engine": "torch" if lane.name == GPU else "threads",
            "threads": lane.threads,
            "budget": budget,
            "folder": str(self.store.folder / ARRAYS),
            "machine": machine_words(lane),
            "version": self.store.version,
        }
        # The fit stops itself after a step; this is for steps that do not end.
        limit = None if budget is None else 1.25 * budget + 60.0
        return Job(MEASURE, payload, lane.name, limit)

    def _heard(self, answer: Answer) -> None:
        """Keep what came of a task."""
        task = self.running.pop(id(answer.job))
        if answer.trouble:
            status = OVER if answer.trouble == OVER else FAILED
            result = Result(
                task.cell,
                status,
                self.store.version,
                facts={"budget": self.terms.budget} if self.terms.budget else {},
                machine=answer.job.payload["machine"],
                message=answer.message,
            )
        else:
            result = Result.from_record(answer.value)
        known = self.store.results.get(task.cell.key)
        if known is None or result.status != ABSENT or known.status != ABSENT:
            self.store.add(result)
        self.course.latest, self.course.ran = result, self.course.ran + 1
        self.course.running = list(self.running.values())


def machine_words(lane: Lane) -> str:
    """Where fits run and what runs beside them, in words."""
    beside = f"{lane.workers} side by side" if lane.workers > 1 else "one at a time"
    if lane.name == GPU:
        return f"GPU, {beside}"
    threads = f"{lane.threads} thread{'s' if lane.threads > 1 else ''} each"
    return f"{platform.machine()}, {os.cpu_count()} cores, {threads}, {beside}"
