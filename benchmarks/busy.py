"""Time of fits on a machine on which other processes compute too.

Usage: NCARL_DATA=... python benchmarks/busy.py [--json results/busy.json]

The default engine is compared with ``Threads(n_jobs=1)`` and ``Threads(n_jobs=2)``,
with 0, 1, 2 and 4 other busy processes (loops in Python, started and ended by this
script):

- NCARL on MovieLens-100K, half held out, alpha 1000, k 50, pinv weights, 7 steps;
- BayesianNCARL on the same data, without validation, 2 steps for each side;
- NCARL on paper-like synthetic data, 1500 x 1000, default weights, 5 steps;
- TableImputer on a table of 3,000 x 40, 30% missing, 50 iterations.

Each fit takes 1 to 3 seconds on two free cores. The engines take turns, in another
order in each of five rounds; medians of their seconds, and the ratio of the default
engine to the best of the others. Each fit is made once before it is timed, and waits
until the threads of the last one no longer spin. The whole takes about 12 minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import time
import warnings

import numpy as np
from common import data_folder, make_paper_like, print_table, versions, write_json
from fit import load_half

from ncarl import NCARL, BayesianNCARL, TableImputer, Threads

ENGINES = {"default": "auto", "n_jobs=1": Threads(1), "n_jobs=2": Threads(2)}
BUSY_PROCESSES = (0, 1, 2, 4)
ROUNDS = 5
#: Largest ratio of the default engine to the best one that is accepted.
MAX_RATIO = 1.25
#: Code of a busy process, which ends with this script however that ends.
BUSY = (
    "import os\nparent = os.getppid()\nwhile os.getppid() == parent: sum(range(10**6))"
)
#: Seconds after which threads of BLAS no longer spin, and others have begun to.
PAUSE = 0.3


@contextlib.contextmanager
def busy_processes(count):
    """Run processes that compute without end."""
    command = [sys.executable, "-c", BUSY]
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            process = subprocess.Popen(command)
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield


def make_tasks():
    """The fits, as functions of the engine."""
    _, synthetic, _ = make_paper_like(1500, 1000, 200, 0.8)
    _, table, _ = make_paper_like(3000, 40, 8, 0.3)
    tasks = {}
    if data_folder() is not None:
        ratings, *_ = load_half("ml-100k", (943, 1682))
        paper = {"alpha": 1000, "n_neighbors": 50, "weights": "pinv", "tol": 0}
        tasks["NCARL, ml-100k"] = lambda engine: NCARL(
            **paper, max_iter=7, engine=engine
        ).fit(ratings)
        tasks["BayesianNCARL, ml-100k"] = lambda engine: BayesianNCARL(
            validation=0, max_iter=2, tol=0, engine=engine
        ).fit(ratings)
    tasks["NCARL, 1500 x 1000"] = lambda engine: NCARL(
        alpha=1000, n_neighbors=20, tol=0, max_iter=5, engine=engine
    ).fit(synthetic)
    tasks["TableImputer, 3000 x 40"] = lambda engine: TableImputer(
        max_iter=50, tol=0, engine=engine
    ).fit_transform(table)
    return tasks


def time_fit(task, engine):
    """Seconds of one fit."""
    time.sleep(PAUSE)
    start = time.perf_counter()
    task(engine)
    return time.perf_counter() - start


def measure(name, task, n_busy):
    """One cell: seconds of all engines, which take turns."""
    seconds = {engine: [] for engine in ENGINES}
    with busy_processes(n_busy):
        for k in range(ROUNDS):
            for engine in np.roll(list(ENGINES), k):
                seconds[engine].append(time_fit(task, ENGINES[engine]))
    medians = {f"{engine}_s": float(np.median(s)) for engine, s in seconds.items()}
    best = min(medians["n_jobs=1_s"], medians["n_jobs=2_s"])
    ratio = medians["default_s"] / best
    line = {"task": name, "busy": n_busy, **medians, "ratio": ratio}
    print(f"{name}, {n_busy} busy: {ratio:.2f}", flush=True)
    return {**line, "within": ratio <= MAX_RATIO, "seconds": seconds}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", default=None)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    lines = []
    tasks = make_tasks()
    for task in tasks.values():
        time_fit(task, "auto")  # compiles
    content = {"versions": versions(), "max_ratio": MAX_RATIO, "lines": lines}
    for n_busy in BUSY_PROCESSES:
        for name, task in tasks.items():
            lines.append(measure(name, task, n_busy))
            write_json(options.json, content)
    print_table([{k: v for k, v in line.items() if k != "seconds"} for line in lines])


if __name__ == "__main__":
    main()
