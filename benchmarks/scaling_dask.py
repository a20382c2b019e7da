"""The row step on Dask workers compared with plain processes.

Usage: python benchmarks/scaling_dask.py [--rows 100000] [--json results/dask.json]

Plain processes hold their blocks and the kernel, and run the same function on the same
blocks in a loop, without sending data or adding up sums between them. The share is
their time over that of the Dask engine, which sends the kernel and adds up the sums in
every step. Both are measured alternately and the median of the repeats is reported, so
that the share is robust to other load.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import time
from functools import reduce
from operator import iadd

import numpy as np
from common import print_table, versions, write_json

from ncarl.blocks import cut_blocks
from ncarl.core.rows import Kernel, dual_gram
from ncarl.engines.cores import limit_blas_threads
from ncarl.engines.dask import Dask
from ncarl.engines.threads import Threads
from ncarl.observations import Observations

TARGET = 0.85


def dask_share(rows=100_000, columns=500, observed=50, workers=2, steps=3, repeats=5):
    """Measure seconds per step on Dask workers and plain processes, and the share."""
    entries = make_entries(rows, columns, observed)
    kernel = make_kernel(columns)
    plain, dask, threads = [], [], []
    here = Threads(workers)
    with Dask("processes", n_workers=workers, device="cpu") as engine:
        placed = engine.place(entries)
        blocks = cut_blocks(entries, len(placed))
        with PlainProcesses(
            [blocks[k::workers] for k in range(workers)], kernel
        ) as processes:
            _time_engine(engine, placed, kernel, 1)  # compiles
            _time_engine(here, blocks, kernel, 1)
            processes.time_steps(1)
            for _ in range(repeats):
                plain.append(processes.time_steps(steps))
                dask.append(_time_engine(engine, placed, kernel, steps))
                threads.append(_time_engine(here, blocks, kernel, steps))
    return {
        "rows": rows,
        "columns": columns,
        "observed per row": observed,
        "workers": workers,
        "blocks": len(blocks),
        "plain s": statistics.median(plain),
        "dask s": statistics.median(dask),
        "threads s": statistics.median(threads),
        "share": statistics.median(p / d for p, d in zip(plain, dask, strict=True)),
        "best share": min(plain) / min(dask),
        "over threads": min(dask) / min(threads),
        "target": TARGET,
    }


def make_entries(rows, columns, observed):
    """Normal values in ``observed`` random columns of each row."""
    rng = np.random.default_rng(0)
    parts = []
    for first in range(0, rows, 10_000):
        keys = rng.random((min(10_000, rows - first), columns))
        chosen = np.argpartition(keys, observed, axis=1)[:, :observed]
        parts.append(np.sort(chosen, axis=1).astype(np.int32).ravel())
    indptr = observed * np.arange(rows + 1, dtype=np.int64)
    values = rng.standard_normal(rows * observed)
    return Observations(indptr, np.concatenate(parts), values, (rows, columns))


def make_kernel(columns):
    """Kernel of rank 20 plus noise."""
    A = np.random.default_rng(1).standard_normal((columns, 20))
    return Kernel(A @ A.T / 20, None, 1.0)


def _time_engine(engine, placed, kernel, steps):
    """Measure the seconds per step of an engine."""
    start = time.perf_counter()
    for _ in range(steps):
        engine.total(dual_gram, placed, kernel=kernel)
    return (time.perf_counter() - start) / steps


class PlainProcesses:
    """Processes that run the row step on their own blocks on request."""

    def __init__(self, shares, kernel):
        context = multiprocessing.get_context("spawn")
        self.pipes, self.processes = [], []
        for share in shares:
            here, there = context.Pipe()
            process = context.Process(target=_serve, args=(there, share, kernel))
            process.start()
            self.pipes.append(here)
            self.processes.append(process)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for pipe, process in zip(self.pipes, self.processes, strict=True):
            pipe.send(0)
            process.join()

    def time_steps(self, steps):
        """Measure the seconds per step, until the last process has finished."""
        start = time.perf_counter()
        for pipe in self.pipes:
            pipe.send(steps)
        for pipe in self.pipes:
            pipe.recv()
        return (time.perf_counter() - start) / steps


def _serve(pipe, blocks, kernel):
    """Run as many steps on the blocks as the pipe requests; 0 ends the process."""
    with limit_blas_threads(1):
        while steps := pipe.recv():
            for _ in range(steps):
                reduce(iadd, (dual_gram(b, kernel=kernel) for b in blocks))
            pipe.send(True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--columns", type=int, default=500)
    parser.add_argument("--observed", type=int, default=50)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", help="path of the results")
    options = parser.parse_args()
    found = dask_share(options.rows, options.columns, options.observed, options.workers)
    print_table([found])
    write_json(options.json, {"versions": versions(), "dask": found})


if __name__ == "__main__":
    main()
