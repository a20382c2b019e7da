"""Whole fits on the CPU: against a plain loop, by part, and with their memory.

Usage: NCARL_DATA=... python benchmarks/fit.py [--json results/fit.json] [--steps N]

- MovieLens-100K, half of the ratings hidden, alpha 1000, k 50, 50 steps, pinv weights,
  against ``naive.py`` in the same run (alternated in rounds; ratio of the medians),
  once with an SVD of the matrix as the paper has it, once with the Gram shortcut;
- paper-like synthetic data, 500 x 300 and 1500 x 1000, default weights;
- MovieLens-1M, half hidden, from sparse input, 5 steps: peak memory, seconds by part.

Data sets that are not at hand are left out.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import warnings

import numpy as np
from common import data_folder, paper_like, peak_gb, print_table, versions, write_json
from naive import ncarl_loop

from ncarl import NCARL, from_triplets
from ncarl.metrics import relative_rmse

PARTS = ("eigen", "kernel", "rows", "gram")


def ratings(name, shape):
    """Half of the ratings as a sparse matrix, and the other half as triplets."""
    data = np.load(data_folder() / f"{name}.npz", allow_pickle=False)
    users, items = data["user"].astype(int) - 1, data["item"].astype(int) - 1
    values = data["rating"].astype(float)
    hidden = np.random.default_rng(0).random(len(values)) < 0.5
    X = from_triplets(users[~hidden], items[~hidden], values[~hidden], shape)
    return X, users[hidden], items[hidden], values[hidden]


def per_step(model):
    """Seconds a step by part."""
    parts = {f"{p}_s": float(np.median(model.history_[f"seconds_{p}"])) for p in PARTS}
    return {**parts, "step_s": sum(parts.values())}


def against_loop(steps):
    """MovieLens-100K: the library and the plain loop, alternated."""
    X, users, items, truth = ratings("ml-100k", (943, 1682))
    dense = X.toarray().T
    seen = dense != 0
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
            ncarl_loop(dense, seen, 1000, 50, few, by=by)
            seconds[by].append((time.perf_counter() - start) / few)
    ours, svd, gram = (float(np.median(s)) for s in seconds.values())
    five = NCARL(**settings, max_iter=5).fit(X).transform(X, keep_observed=False)
    plain = ncarl_loop(dense, seen, 1000, 50, 5).T
    return {
        "data": "ml-100k, half hidden",
        "steps": steps,
        "error": relative_rmse(truth, model.predict(users, items)),
        "ours_s_a_step": ours,
        "loop_svd_s_a_step": svd,
        "loop_gram_s_a_step": gram,
        "loop_svd_over_ours": svd / ours,
        "loop_gram_over_ours": gram / ours,
        "largest_difference_5_steps": float(np.abs(five - plain).max()),
        **per_step(model),
    }


def synthetic(m, n, rank, missing, steps):
    """One paper-like matrix with the default weights."""
    truth, X, hidden = paper_like(m, n, rank, missing)
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
        **per_step(model),
    }


def movielens_1m(steps=5):
    """MovieLens-1M from sparse input; run in a process of its own for its peak."""
    X, users, items, truth = ratings("ml-1m", (6040, 3952))
    before = peak_gb()
    model = NCARL(alpha=1000, n_neighbors=50, tol=0, max_iter=steps).fit(X)
    peak = peak_gb()
    return {
        "data": "ml-1m, half hidden, sparse",
        "steps": steps,
        "error": relative_rmse(truth, model.predict(users, items)),
        "peak_gb": peak,
        "peak_before_gb": before,
        **per_step(model),
    }


def in_own_process(call):
    """Result of one of the functions above, computed in a fresh process."""
    code = f"import json, fit; print(json.dumps(fit.{call}))"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        check=True,
        capture_output=True,
        text=True,
        cwd=sys.path[0],
    )
    import json

    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--json", default=None)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    lines = [
        synthetic(500, 300, 100, 0.8, options.steps),
        synthetic(1500, 1000, 200, 0.8, min(30, options.steps)),
    ]
    print_table(lines)
    if data_folder() is not None:
        loop = against_loop(options.steps)
        print_table([loop])
        large = in_own_process("movielens_1m()")
        print_table([large])
        lines += [loop, large]
    write_json(options.json, {"versions": versions(), "lines": lines})


if __name__ == "__main__":
    main()
