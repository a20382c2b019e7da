"""Run the cells of a study in worker processes, and store every result at once.

`run_plans` schedules the cells that have no result yet (`schedule_cells`), workers run
them (`run_cell`), and a `ResultStore` keeps the results.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED

import numpy as np

from ncarl.core.types import Array
from ncarl.engines.base import gpu_unavailable_reason
from ncarl.engines.cores import available_cores
from ncarl.engines.threads import Threads
from ncarl.evaluation.measure import DONE, OVER_BUDGET, timed_fit
from ncarl.evaluation.pool import JobResult, PoolJob, WorkerGroup, WorkerPool
from ncarl.exceptions import BrokenFileError
from ncarl.io.files import atomic_write, write_npz
from ncarl.metrics import psnr, relative_rmse, rmse
from ncarl.registry import make
from ncarl.reproduce.plan import (
    FINAL,
    NO_DATA,
    PAPER,
    PROTOCOLS,
    SEARCH,
    Cell,
    CellResult,
    CompletionTask,
    MethodSpec,
    Setting,
    StudyPlan,
    hold_out_validation,
    make_task,
)
from ncarl.text import count_of, one_line

#: Version of the results, raised by hand with every change that can alter them (data,
#: masks, solvers, estimators, scores). Stored fits of another version are run again.
RESULTS_VERSION = "2"
#: File of the finished cells in the folder of a study.
CELLS_FILE = "cells.jsonl"
#: Folder of completed matrices, beside the file of results.
ARRAYS_FOLDER = "arrays"
#: What worker processes call.
CELL_FUNCTION = "ncarl.reproduce.run:run_cell"
CPU, GPU = "cpu", "gpu"
#: Seconds between two scans for new cells, and a lower bound on this interval as a
#: multiple of the time that a scan takes, which grows with the number of cells.
SCAN_INTERVAL, SCAN_COST_FACTOR = 2.0, 30.0
#: Attributes of an estimator that are stored with a result.
RECORDED_ATTRIBUTES = (
    *("rank_", "residual_", "gap_", "lam_", "weight_", "sides_", "best_params_"),
    "engine_",
)
#: Finished cells by key.
Results = Mapping[str, CellResult]


@dataclass(frozen=True)
class RunOptions:
    """Options of `run_plans`."""

    protocols: tuple[str, ...] = PROTOCOLS  # how parameters are chosen
    engine: str = "auto"  # "auto" uses the GPU for large matrices, if there is one
    budget: float | None = None  # seconds that a fit may take
    jobs: int | None = None  # parallel fits on the processor; None: one for each core
    gpu_jobs: int = 1  # parallel fits on the GPU
    time_limit: float | None = None  # seconds after which no further fit is started
    retry: bool = False  # whether to run again what failed or exceeded its budget

    def worker_groups(self) -> list[WorkerGroup]:
        """Groups of workers: processor, and GPU if it is used."""
        cores = available_cores()
        jobs = cores if self.jobs is None else self.jobs
        groups = [WorkerGroup(CPU, jobs, max(1, cores // jobs))]
        if self.engine == "threads":
            return groups
        reason = gpu_unavailable_reason()
        if self.engine == "torch" and reason is not None:
            raise ValueError(
                f"engine 'torch' needs a GPU, and {reason}; use 'auto' or 'threads'"
            )
        if reason is None:
            threads = max(1, cores // (2 * self.gpu_jobs))
            groups.append(WorkerGroup(GPU, self.gpu_jobs, threads))
        return groups


@dataclass
class RunProgress:
    """Progress of a run, passed to the callback."""

    totals: Mapping[str, int] = field(default_factory=dict)  # scheduled cells by study
    # Finished cells by study and status.
    statuses: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    running: list[ScheduledCell] = field(default_factory=list)
    latest: CellResult | None = None  # the last finished cell
    n_finished: int = 0  # cells that this run has finished
    time_limit_reached: bool = False  # whether the run ended at its time limit


ProgressCallback = Callable[[RunProgress], None]


def run_plans(
    plans: Sequence[StudyPlan],
    store: ResultStore,
    options: RunOptions,
    callback: ProgressCallback = lambda progress: None,
) -> RunProgress:
    """Run every cell that has no result yet; the callback sees every change."""
    (store.folder / ARRAYS_FOLDER).mkdir(exist_ok=True)
    with WorkerPool(options.worker_groups()) as pool:
        return _Runner(plans, store, options, pool).run(callback)


class ResultStore:
    """Results by key, in a file that survives a kill at any moment.

    One line of JSON is appended for each finished cell. A line that was cut short is
    ignored, and the next one begins on a line of its own. `results` has those of this
    version only; `all_results` falls back on older ones.
    """

    def __init__(
        self, folder: str | os.PathLike[str], version: str = RESULTS_VERSION
    ) -> None:
        self.folder, self.version = Path(folder), version
        self.folder.mkdir(parents=True, exist_ok=True)
        self.path = self.folder / CELLS_FILE
        self.results: dict[str, CellResult] = {}
        self._older_results: dict[str, CellResult] = {}
        self.n_corrupt_lines = 0
        for result in self._read_results():
            self._index_result(result)

    def _read_results(self) -> Iterator[CellResult]:
        """Results in the file; other lines are counted as corrupt."""
        if not self.path.exists():
            return
        text = self.path.read_bytes().decode("utf-8", errors="replace")
        for line in filter(str.strip, text.split("\n")):
            try:
                result = CellResult.from_dict(json.loads(line))
                hash(result.cell.key)  # raises for a cell that has no key
            except (ValueError, TypeError, KeyError, AttributeError):
                self.n_corrupt_lines += 1
            else:
                yield result

    def _index_result(self, result: CellResult) -> None:
        by_key = self.results if result.version == self.version else self._older_results
        by_key[result.cell.key] = result

    @property
    def all_results(self) -> dict[str, CellResult]:
        """Results by key, with older versions where there is no other."""
        return self._older_results | self.results

    def add(self, result: CellResult) -> None:
        """Append a result to the file, flushed to disk."""
        text = json.dumps(result.to_dict(), allow_nan=False) + "\n"
        with self.path.open("ab+") as stream:
            if stream.tell():  # the last line may have been cut short
                stream.seek(-1, os.SEEK_END)
                text = text if stream.read() == b"\n" else f"\n{text}"
            stream.write(text.encode())
            stream.flush()
            os.fsync(stream.fileno())
        self._index_result(result)


@dataclass(frozen=True)
class ScheduledCell:
    """A cell, and the study and setting it belongs to."""

    cell: Cell
    study: str  # table or figure
    setting: str  # its column
    heavy: bool  # whether to use a GPU if there is one


def schedule_cells(
    plans: Sequence[StudyPlan], protocols: Iterable[str], results: Results
) -> list[ScheduledCell]:
    """All cells known so far, finished ones included, in the order to run.

    Searches and the first seed of every method come first, then the second seed, so
    that a study that is stopped early has results for every method.
    """
    wanted: dict[str, ScheduledCell] = {}
    protocols = tuple(protocols)
    for plan in plans:
        for setting in plan.settings:
            for one in setting.methods:
                cells = search_cells(setting, one)
                for protocol in protocols:
                    params = select_params(setting, one, protocol, results)
                    if params is not None:
                        cells += final_cells(plan, setting, one, params)
                for cell in cells:
                    task = ScheduledCell(cell, plan.name, setting.label, setting.heavy)
                    wanted.setdefault(cell.key, task)
    return sorted(wanted.values(), key=lambda task: task.cell.seed)


def search_cells(setting: Setting, spec: MethodSpec) -> list[Cell]:
    """The cells that choose the parameters of a method; none for a single choice."""
    points = spec.grid_points()
    fit = (setting.problem, spec.name, spec.estimator)
    return [Cell(*fit, p, role=SEARCH) for p in points] if len(points) > 1 else []


def final_cells(
    plan: StudyPlan, setting: Setting, spec: MethodSpec, params: Mapping[str, Any]
) -> list[Cell]:
    """The cells that are shown: one for each seed."""
    fit = (setting.problem, spec.name, spec.estimator, params)
    return [Cell(*fit, seed, FINAL, plan.keep) for seed in range(setting.seeds)]


def select_params(
    setting: Setting, spec: MethodSpec, protocol: str, results: Results
) -> dict[str, Any] | None:
    """The parameters that a protocol chooses; None while they are not known.

    ``paper`` chooses by the error on the hidden entries, ``honest`` by the error on the
    observed entries that the search held out. Only finished fits are candidates.
    """
    searched = search_cells(setting, spec)
    if not searched:
        return spec.grid_points()[0]
    if any(cell.key not in results for cell in searched):
        return None
    done = [r for r in (results[cell.key] for cell in searched) if r.status == DONE]
    if not done:
        return None

    def selection_error(result: CellResult) -> float:
        error = result.error if protocol == PAPER else result.validation
        return float("inf") if error is None else error

    return dict(min(done, key=selection_error).cell.params)


class _Runner:
    """The loop of `run_plans`: start cells, collect results."""

    def __init__(
        self,
        plans: Sequence[StudyPlan],
        store: ResultStore,
        options: RunOptions,
        pool: WorkerPool,
    ) -> None:
        self.plans, self.store, self.options, self.pool = plans, store, options, pool
        self.running: dict[int, ScheduledCell] = {}
        self.started_keys: set[str] = set()
        self.progress = RunProgress()
        self.start_time = self.next_scan = time.monotonic()
        self.pending: list[ScheduledCell] = []

    def run(self, callback: ProgressCallback) -> RunProgress:
        """Run until no cell is left, or the time limit is reached."""
        while True:
            if not self.pending or time.monotonic() > self.next_scan:
                self._scan_tasks()
            self._start()
            self.progress.running = list(self.running.values())
            callback(self.progress)
            if not self.running:
                return self.progress
            for answer in self.pool.wait(timeout=1.0):
                self._store_answer(answer)

    def _scan_tasks(self) -> None:
        """Schedule cells, with the parameters chosen since the last scan."""
        start = time.monotonic()
        tasks = schedule_cells(self.plans, self.options.protocols, self.store.results)
        self.pending = [task for task in tasks if self._needs_run(task)]
        self.progress.totals = Counter(task.study for task in tasks)
        statuses: dict[str, Counter[str]] = defaultdict(Counter)
        for task in tasks:
            if task.cell.key in self.store.results:
                status = self.store.results[task.cell.key].status
                statuses[task.study][status] += 1
        self.progress.statuses = statuses
        end = time.monotonic()
        self.next_scan = end + max(SCAN_INTERVAL, SCAN_COST_FACTOR * (end - start))

    def _needs_run(self, task: ScheduledCell) -> bool:
        key = task.cell.key
        if key in self.started_keys:
            return False
        result = self.store.results.get(key)
        if result is None or result.status == NO_DATA:
            return True
        if result.status == DONE:
            array = self.store.folder / ARRAYS_FOLDER / f"{key}.npz"
            return task.cell.keep == "picture" and not array.exists()
        previous, budget = result.facts.get("budget"), self.options.budget
        return self.options.retry or (
            result.status == OVER_BUDGET
            and previous is not None
            and (budget is None or budget > float(previous))
        )

    def _start(self) -> None:
        """Start pending cells while workers are idle."""
        limit = self.options.time_limit
        if limit is not None and time.monotonic() - self.start_time > limit:
            self.progress.time_limit_reached = bool(self.pending)
            return
        for task in list(self.pending):
            if not any(map(self.pool.has_room, self.pool.groups)):
                break
            group = self.pool.groups[CPU]
            if task.heavy or self.options.engine == "torch":
                group = self.pool.groups.get(GPU, group)
            if self.pool.has_room(group.name):
                self.pending.remove(task)
                self.started_keys.add(task.cell.key)
                job = self._job(task, group)
                self.running[id(job)] = task
                self.pool.submit(job)

    def _job(self, task: ScheduledCell, group: WorkerGroup) -> PoolJob:
        budget = self.options.budget
        payload = {
            "cell": task.cell.to_dict(),
            "engine": "torch" if group.name == GPU else "threads",
            "threads": group.threads,
            "budget": budget,
            "folder": str(self.store.folder / ARRAYS_FOLDER),
            "machine": describe_machine(group),
            "version": self.store.version,
        }
        # A fit stops itself after a step; the limit is for steps that do not end.
        limit = None if budget is None else 1.25 * budget + 60.0
        return PoolJob(CELL_FUNCTION, payload, group.name, limit)

    def _store_answer(self, answer: JobResult) -> None:
        task = self.running.pop(id(answer.job))
        if answer.failure:
            budget = self.options.budget
            result = CellResult(
                task.cell,
                answer.failure,
                self.store.version,
                facts={} if budget is None else {"budget": budget},
                machine=answer.job.payload["machine"],
                message=answer.message,
            )
        else:
            result = CellResult.from_dict(answer.value)
        stored = self.store.results.get(task.cell.key)
        if stored is None or result.status != NO_DATA or stored.status != NO_DATA:
            self.store.add(result)
        self.progress.latest = result
        self.progress.n_finished += 1


def describe_machine(group: WorkerGroup) -> str:
    """Description of the processor or GPU and of the parallel fits."""
    parallel = f"{group.workers} side by side" if group.workers > 1 else "one at a time"
    if group.name == GPU:
        return f"GPU, {parallel}"
    threads = f"{count_of(group.threads, 'thread')} each"
    return f"{platform.machine()}, {os.cpu_count()} cores, {threads}, {parallel}"


def run_cell(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Run a cell in a worker process; its `CellResult` as a dict.

    The payload is that of `_Runner._job`; without a folder, completed matrices are not
    stored.
    """
    cell = Cell.from_dict(payload["cell"])
    try:
        task = make_task(cell.problem, cell.seed)
    except (OSError, BrokenFileError, ModuleNotFoundError) as error:
        # The data, or the package that reads them, may be there next time.
        message = one_line(error)
        return CellResult(cell, NO_DATA, payload["version"], message=message).to_dict()
    if cell.role == SEARCH:
        task = hold_out_validation(task, cell.seed)
    engine, threads, budget = (payload[key] for key in ("engine", "threads", "budget"))
    warm_up(engine, threads)
    estimator = build_estimator(cell.estimator, cell.params, engine, threads)
    seconds, late = timed_fit(estimator, task.X, budget)
    guess = np.asarray(estimator.predict(task.rows, task.cols))
    hidden_error = relative_rmse(task.truth, guess)
    if not np.isfinite(hidden_error):
        raise FloatingPointError("the completed values are not finite")
    scores = {"rmse": rmse(task.truth, guess)}
    if task.is_picture:
        scores["psnr"] = psnr(task.truth, guess)
    validation = None
    if task.validation_entries is not None:
        rows, cols, truth = task.validation_entries
        validation = relative_rmse(truth, np.asarray(estimator.predict(rows, cols)))
    facts = collect_fit_facts(estimator)
    if cell.keep == "picture":
        facts |= _save_completion(cell, task, estimator, payload["folder"])
    if budget is not None:
        facts["budget"] = budget
    history = getattr(estimator, "history_", {}) if cell.keep == "curve" else {}
    steps = getattr(estimator, "n_iter_", None)
    converged = getattr(estimator, "converged_", None)
    return CellResult(
        cell,
        OVER_BUDGET if late else DONE,
        version=payload["version"],
        error=hidden_error,
        validation=validation,
        scores={name: value for name, value in scores.items() if np.isfinite(value)},
        seconds=seconds,
        steps=None if steps is None else int(steps),
        converged=None if converged is None else bool(converged),
        facts=facts,
        curve=tuple(float(value) for value in history.get("objective", ())),
        machine=payload["machine"],
        message=f"stopped after {seconds:.0f} s" if late else "",
    ).to_dict()


def build_estimator(
    name: str, params: Mapping[str, Any], engine: str, threads: int
) -> Any:
    """An estimator by name, on an engine."""
    if name == "mean":
        return MeanBaseline()
    chosen: Any = Threads(threads) if engine == "threads" else engine
    return make(name, **{**params, "engine": chosen})


class MeanBaseline:
    """Baseline: the mean of all observed entries."""

    def fit(self, X: Any) -> MeanBaseline:
        """Compute the mean."""
        values = X[~np.isnan(X)] if isinstance(X, np.ndarray) else X.data
        self.mean_ = float(np.mean(values))
        return self

    def predict(self, rows: Array, cols: Array) -> Array:
        """The mean for every entry."""
        return np.full(len(rows), self.mean_)


@cache
def warm_up(engine: str, threads: int) -> None:
    """Fit tiny data, so that imports and compilation are not timed."""
    X = np.random.default_rng(0).standard_normal((30, 12))
    X[X > 1.0] = np.nan
    for name in ("ncarl", "nuclear", "bayes", "soft-impute"):
        timed_fit(build_estimator(name, {"max_iter": 2}, engine, threads), X, None)


def collect_fit_facts(estimator: Any) -> dict[str, Any]:
    """`RECORDED_ATTRIBUTES` of an estimator as JSON values."""
    facts = {}
    for name in RECORDED_ATTRIBUTES:
        value = getattr(estimator, name, None)
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, Mapping):
            value = {str(key): item for key, item in value.items()}
        finite = not isinstance(value, float) or np.isfinite(value)
        if finite and isinstance(value, (str, int, float, dict)):
            facts[name.rstrip("_")] = value
    return facts


def _save_completion(
    cell: Cell, task: CompletionTask, estimator: Any, folder: str | None
) -> dict[str, Any]:
    """Store the completed matrix; its rank as figure 5 of the paper counts it."""
    smooth = np.asarray(estimator.transform(task.X, keep_observed=False))
    filled = np.asarray(estimator.transform(task.X))
    values = np.linalg.svd(smooth, compute_uv=False)
    if folder is not None:
        with atomic_write(Path(folder) / f"{cell.key}.npz") as temporary:
            parts = {"seen": task.X, "filled": filled, "smooth": smooth}
            write_npz(temporary, parts, ZIP_DEFLATED)
    return {"rank_above_1e-3": int(np.count_nonzero(values > 1e-3))}
