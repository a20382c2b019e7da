"""Fits on one GPU: time by part, flop counts, and share of the card's matmul rate.

Usage: [NCARL_DATA=...] python benchmarks/gpu.py [--device cuda] [--cases NAME ...]
       [--dtypes float64 float32] [--small] [--json results/gpu.json]

Each case is first fitted for a few iterations, to load and compile, then timed:
``fit_s`` is the whole call from the user's array to the fitted model, ``steps_s`` the
iterations alone, by part from events on the device. Flops are those that the method
requires, without those added by padding and dense products. Half of the ratings, or the
share that is named, is held out; errors are relative RMSE on held-out entries. "paper"
is the error printed in the paper. MovieLens is skipped if NCARL_DATA is not set.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
import torch
from common import data_folder, make_paper_like, print_table, versions, write_json
from fit import PARTS, load_half
from scipy import sparse

from ncarl import NCARL, Torch
from ncarl.metrics import relative_rmse


def measure_matmul_rate(device, n, dtype=torch.float64):
    """Measure the flops per second of a large matrix product on the device."""
    A = torch.randn(n, n, dtype=dtype, device=device)
    B = torch.randn(n, n, dtype=dtype, device=device)
    best = np.inf
    for _ in range(4):
        synchronize(device)
        start = time.perf_counter()
        A @ B
        synchronize(device)
        best = min(best, time.perf_counter() - start)
    return 2.0 * n**3 / best


def synchronize(device):
    """Wait until the device has finished all work."""
    if device != "cpu":
        torch.cuda.synchronize()


def count_flops(counts, n):
    """Required flops of one iteration, by part, from observed counts per row."""
    r = np.asarray(counts, dtype=np.float64)
    solved = np.minimum(r, n - r)
    return {
        "eigen": 14.0 / 3.0 * n**3,
        "kernel": 2.0 * n**3,
        "rows": float(np.sum(solved**3 / 3.0 + 2.0 * r**2)),
        "gram": 2.0 * float(r.sum()) * n + len(r) * float(n) ** 2,
    }


def make_synthetic(m, n, rank, missing, paper, **settings):
    """Create a case of paper-like data with tiny noise."""

    def make():
        truth, X, hidden = make_paper_like(m, n, rank, missing)
        return X, lambda model: relative_rmse(truth[hidden], model.transform(X)[hidden])

    name = f"{m}x{n}, {missing} missing"
    return name, make, {"alpha": 1000, "n_neighbors": 20, **settings}, paper


def make_movielens(steps, **settings):
    """Create the case of MovieLens-1M with half of its ratings held out."""

    def make():
        X, users, items, truth = load_half("ml-1m", (6040, 3952))
        return X, lambda model: relative_rmse(truth, model.predict(users, items))

    name = "ml-1m, half held out"
    kept = {"alpha": 1000, "n_neighbors": 50, "max_iter": steps, **settings}
    return name, make, kept, 0.2542


def make_tall(m, n, observed):
    """Create a sparse case of rank 5 with ``observed`` entries per row."""

    def make():
        rng = np.random.default_rng(0)
        indices = rng.integers(0, n, size=(m, observed), dtype=np.int32)
        indices.sort(axis=1)
        a, b = rng.random((m, 5)), rng.random((n, 5))
        values = np.einsum("ik,ijk->ij", a, b[indices])
        indptr = np.arange(m + 1) * observed
        # Duplicate columns of a row are merged by adding their values.
        X = sparse.csr_array((values.ravel(), indices.ravel(), indptr), shape=(m, n))
        X.sum_duplicates()
        return X, None

    name = f"{m}x{n} sparse, {observed} per row"
    settings = {
        "alpha": 100,
        "n_neighbors": 10,
        "max_iter": 1,
        "orientation": "columns",
    }
    return name, make, settings, None


def measure(case, device, rate, dtype="float64"):
    """Measure one case."""
    name, make, settings, paper = case
    X, error = make()
    options = {**settings, "tol": 0, "dtype": dtype, "engine": Torch(device)}
    NCARL(**{**options, "max_iter": min(3, settings["max_iter"])}).fit(X)
    if device != "cpu":
        torch.cuda.reset_peak_memory_stats()
    synchronize(device)
    start = time.perf_counter()
    model = NCARL(**options).fit(X)
    synchronize(device)
    seconds = time.perf_counter() - start
    parts = {p: float(np.sum(model.history_[f"seconds_{p}"])) for p in PARTS}
    counts, n = model.training_.row_counts, model.kernel_.shape[0]
    if model.transposed_:
        counts = model.training_.column_counts
    flops = {p: f * model.n_iter_ for p, f in count_flops(counts, n).items()}
    used = sum(parts.values())
    return {
        "case": f"{name}, {dtype}",
        "steps": model.n_iter_,
        "fit_s": seconds,
        "steps_s": used,
        **{f"{p}_s": s for p, s in parts.items()},
        "tflop": sum(flops.values()) / 1e12,
        "share_of_matmul": sum(flops.values()) / used / rate,
        **{f"{p}_share": flops[p] / parts[p] / rate for p in PARTS},
        "error": None if error is None else error(model),
        "paper": paper,
        "peak_gb": 0.0 if device == "cpu" else torch.cuda.max_memory_allocated() / 1e9,
    }


def make_cases(small):
    """Create the cases by name."""
    if small:
        return {
            "small": make_synthetic(120, 80, 5, 0.6, None, max_iter=3),
            "tall": make_tall(2000, 60, 8),
        }
    found = {
        "1500": make_synthetic(1500, 1000, 200, 0.8, 0.0328, max_iter=30),
        "4000-0.8": make_synthetic(4000, 3000, 300, 0.8, 0.0255, max_iter=30),
        "4000-0.9": make_synthetic(4000, 3000, 300, 0.9, 0.0287, max_iter=30),
        "million": make_tall(1_000_000, 2_000, 50),
        "wide": make_tall(100_000, 20_000, 100),
    }
    return {**found, "ml-1m": make_movielens(15)} if data_folder() else found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--cases", nargs="+", default=None)
    parser.add_argument("--dtypes", nargs="+", default=["float64"])
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--json", default=None)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rate = measure_matmul_rate(options.device, 512 if options.device == "cpu" else 8192)
    chosen = make_cases(options.small)
    lines = []
    for name in options.cases or chosen:
        for dtype in options.dtypes:
            lines.append(measure(chosen[name], options.device, rate, dtype))
            print(lines[-1], flush=True)
    print_table(lines)
    card = "processor"
    if options.device != "cpu":
        card = torch.cuda.get_device_name()
    known = {**versions(), "torch": torch.__version__, "card": card}
    content = {"versions": known, "matmul_tflops": rate / 1e12, "lines": lines}
    write_json(options.json, content)


if __name__ == "__main__":
    main()
