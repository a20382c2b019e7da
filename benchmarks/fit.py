"""Time and memory of fits on the CPU, by part, and in comparison with a plain loop.

Usage: NCARL_DATA=... python benchmarks/fit.py [--json results/fit.json] [--steps N]

- MovieLens-100K, half of the ratings held out, alpha 1000, k 50, 50 iterations, pinv
  weights, compared with ``naive.py`` in the same run (alternating rounds; ratio of the
  medians), with an SVD of the matrix as in the paper, and with the Gram shortcut;
- paper-like synthetic data, 500 x 300 and 1500 x 1000, default weights;
- MovieLens-1M, half held out, sparse input, 5 iterations: peak memory, seconds by part.

Data sets that are not available are skipped.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import warnings

import numpy as np
from common import (
    data_folder,
    make_paper_like,
    peak_gb,
    print_table,
    versions,
    write_json,
)
from naive import ncarl_loop

from ncarl import NCARL, from_triplets
from ncarl.metrics import relative_rmse

PARTS = ("eigen", "kernel", "rows", "gram")


def load_half(name, shape):
    """Load half of the ratings as a sparse matrix, and the other half as triplets."""
    data = np.load(data_folder() / f"{name}.npz", allow_pickle=False)
    users, items = data["user"].astype(int) - 1, data["item"].astype(int) - 1
    values = data["rating"].astype(float)
    hidden = np.random.default_rng(0).random(len(values)) < 0.5
    X = from_triplets(users[~hidden], items[~hidden], values[~hidden], shape)
    return X, users[hidden], items[hidden], values[hidden]


def step_seconds(model):
    """Median seconds per iteration, by part."""
    parts = {f"{p}_s": float(np.median(model.history_[f"seconds_{p}"])) for p in PARTS}
    return {**parts, "step_s": sum(parts.values())}


def compare_with_loop(steps):
    """MovieLens-100K: alternate between the library and the plain loop."""
    X, users, items, truth = load_half("ml-100k", (943, 1682))
    dense = X.toarray().T
    observed = dense != 0
    settings = {"alpha": 1000, "n_neighbors": 50, "weights": "pinv", "tol": 0}
    NCARL(**settings, max_iter=1).fit(X)  # compiles
    seconds = {"ours": [], "svd": [], "gram": []}
    few = max(1, steps // 5)
    for _ in range(3):
        start = time.perf_counter()
        model = NCARL(**settings, max_iter=steps).fit(X)
        seconds["ours"].append((time.perf_counter() - start) / steps)
        for by in ("svd", "gram"):
            start = time.perf_counter()
            ncarl_loop(dense, observed, 1000, 50, few, by=by)
            seconds[by].append((time.perf_counter() - start) / few)
    ours, svd, gram = (float(np.median(s)) for s in seconds.values())
    five = NCARL(**settings, max_iter=5).fit(X).transform(X, keep_observed=False)
    plain = ncarl_loop(dense, observed, 1000, 50, 5).T
    return {
        "data": "ml-100k, half held out",
        "steps": steps,
        "error": relative_rmse(truth, model.predict(users, items)),
        "ours_s_per_step": ours,
        "loop_svd_s_per_step": svd,
        "loop_gram_s_per_step": gram,
        "loop_svd_over_ours": svd / ours,
        "loop_gram_over_ours": gram / ours,
        "largest_difference_5_steps": float(np.abs(five - plain).max()),
        **step_seconds(model),
    }


def measure_synthetic(m, n, rank, missing, steps):
    """Measure one paper-like matrix with the default weights."""
    truth, X, hidden = make_paper_like(m, n, rank, missing)
    model = NCARL(alpha=1000, n_neighbors=20, tol=0, max_iter=steps)
    start = time.perf_counter()
    filled = model.fit_transform(X)
    seconds = time.perf_counter() - start
    error = relative_rmse(truth[hidden], filled[hidden])
    return {
        "data": f"synthetic {m}x{n}, {missing} missing",
        "steps": steps,
        "error": error,
        "seconds": seconds,
        **step_seconds(model),
    }


def measure_movielens_1m(steps=5):
    """MovieLens-1M from sparse input; needs its own process for the peak memory."""
    X, users, items, truth = load_half("ml-1m", (6040, 3952))
    before = peak_gb()
    model = NCARL(alpha=1000, n_neighbors=50, tol=0, max_iter=steps).fit(X)
    peak = peak_gb()
    return {
        "data": "ml-1m, half held out, sparse",
        "steps": steps,
        "error": relative_rmse(truth, model.predict(users, items)),
        "peak_gb": peak,
        "peak_before_gb": before,
        **step_seconds(model),
    }


def run_in_subprocess(call):
    """Call a function of this module in a new process and return its result."""
    code = f"import json, fit; print(json.dumps(fit.{call}))"
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, cwd=sys.path[0]
    )
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--json", default=None)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    lines = [
        measure_synthetic(500, 300, 100, 0.8, options.steps),
        measure_synthetic(1500, 1000, 200, 0.8, min(30, options.steps)),
    ]
    print_table(lines)
    if data_folder() is not None:
        loop = compare_with_loop(options.steps)
        print_table([loop])
        large = run_in_subprocess("measure_movielens_1m()")
        print_table([large])
        lines += [loop, large]
    write_json(options.json, {"versions": versions(), "lines": lines})


if __name__ == "__main__":
    main()
