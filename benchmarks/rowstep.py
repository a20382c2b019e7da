"""Time of the row step relative to LAPACK's dpotrf, by row size, for both kernels.

Usage: python benchmarks/rowstep.py [--sizes 20 50 ...] [--json results/rowstep.json]

The row step gathers, factorizes and solves; ``dpotrf`` only factorizes matrices that
are already in the cache. Both run on the same threads in the same run, so that the
ratio is robust to other load: each time is the best of several alternating repeats.
"""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numba as nb
import numpy as np
from common import print_table, versions, write_json
from threadpoolctl import threadpool_limits

from ncarl.blocks import cut_blocks
from ncarl.core.rows import Kernel, row_duals
from ncarl.core.rows_numba import LAPACK_FLAGS, call5, lapack_addresses
from ncarl.engines.cores import available_cores
from ncarl.observations import Observations

TARGETS = {20: 4.0, 50: 2.5, 100: 2.5, 200: 1.6, 500: 1.6, 1000: 1.6}


@nb.njit(nogil=True)
def factorize(source, work, r, count, flags, potrf, factor):
    """Copy a resident matrix and optionally factorize it, ``count`` times."""
    ints = np.zeros(2, np.int32)
    ints[0] = r
    size = ints.ctypes.data
    for _ in range(count):
        work[:] = source
        if factor:
            call5(potrf, flags.ctypes.data, size, work.ctypes.data, size, size + 4)


def time_jobs(function, jobs):
    """Measure the seconds to run the jobs on all cores."""
    start = time.perf_counter()
    with ThreadPoolExecutor(available_cores()) as pool:
        list(pool.map(function, jobs))
    return time.perf_counter() - start


def time_potrf(A, count, factor):
    """Measure the seconds to copy a matrix and optionally factorize it."""
    r = A.shape[0]
    potrf = lapack_addresses("float64")[0]
    share = -(-count // available_cores())

    def job(_):
        factorize(A.ravel(), np.empty(r * r), r, share, LAPACK_FLAGS, potrf, factor)

    return time_jobs(job, range(available_cores())) / (share * available_cores())


def time_rows(blocks, kernel, backend, rows):
    """Measure the seconds per row of the row step."""
    work = partial(row_duals, kernel=kernel, backend=backend)
    return time_jobs(work, blocks) / rows


def measure(r, n, repeats, rng):
    """Measure one row size."""
    A = rng.standard_normal((n, n))
    K = A @ A.T / n + np.eye(n)
    rows = int(np.clip(1e10 / (r**3 / 3 + 60 * r**2), 32, 40_000))
    pattern = np.argpartition(rng.random((rows, n)), r, axis=1)[:, :r]
    indices = np.sort(pattern, axis=1).astype(np.int32).ravel()
    indptr = np.arange(rows + 1, dtype=np.int64) * r
    data = Observations(indptr, indices, rng.standard_normal(rows * r), (rows, n))
    blocks = cut_blocks(data, n_blocks=4 * available_cores())
    kernel = Kernel(K, None, 0.0)
    resident = np.ascontiguousarray(K[:r, :r])
    row_duals(blocks[0], kernel=kernel, backend="numba")
    time_potrf(resident, 2, True)
    best = {"copy": np.inf, "potrf": np.inf, "numba": np.inf, "numpy": np.inf}
    for _ in range(repeats):
        best["copy"] = min(best["copy"], time_potrf(resident, rows, False))
        best["potrf"] = min(best["potrf"], time_potrf(resident, rows, True))
        for backend in ("numba", "numpy"):
            best[backend] = min(best[backend], time_rows(blocks, kernel, backend, rows))
    best["potrf"] -= best.pop("copy")
    return {
        "r": r,
        "rows": rows,
        **{f"{name}_us": seconds * 1e6 for name, seconds in best.items()},
        "numba_over_potrf": best["numba"] / best["potrf"],
        "numpy_over_potrf": best["numpy"] / best["potrf"],
        "target": TARGETS.get(r),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--sizes",
        type=int,
        nargs="+",
        default=[20, 35, 50, 70, 100, 150, 200, 400, 700, 1000],
    )
    parser.add_argument("--columns", type=int, default=1500)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--json", default=None)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    with threadpool_limits(1):
        lines = [
            measure(r, options.columns, options.repeats, rng) for r in options.sizes
        ]
    print_table(lines)
    write_json(
        options.json,
        {"versions": versions(), "columns": options.columns, "lines": lines},
    )


if __name__ == "__main__":
    main()
