"""One GPU: whole fits by part, flop counts, and the share of the card's matmul rate.

Usage: [NCARL_DATA=...] python benchmarks/gpu.py [--device cuda] [--cases NAME ...]
       [--dtypes float64 float32] [--small] [--json results/gpu.json]

Every case is fitted once for a step to load and compile what it needs, then timed:
``fit_s`` is the whole call from the user's array to the fitted model, ``steps_s`` the
steps alone, by part from events on the device. Flops are those that the method needs,
not those that padding and dense products add. Half of the ratings, or the share that is
named, is hidden; errors are relative RMSE on hidden entries. The paper's are printed
beside them. MovieLens is left out where NCARL_DATA does not name its folder.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
import torch
from common import data_folder, paper_like, print_table, versions, write_json
from fit import PARTS, ratings
from scipy import sparse

from ncarl import NCARL, Torch
from ncarl.metrics import relative_rmse


def matmul_rate(device, n, dtype=torch.float64):
    """Flops a second that the device reaches in a large matrix product."""
    A = torch.randn(n, n, dtype=dtype, device=device)
    B = torch.randn(n, n, dtype=dtype, device=device)
    best = np.inf
    for _ in range(4):
        wait(device)
        start = time.perf_counter()
        A @ B
        wait(device)
        best = min(best, time.perf_counter() - start)
    return 2.0 * n**3 / best


def wait(device):
    """Wait until the device has done all its work."""
    if device != "cpu":
        torch.cuda.synchronize()


def flops_of_step(counts, n):
    """Flops that one step needs, by part, for rows with so many observed entries."""
    r = np.asarray(counts, dtype=np.float64)
    solved = np.minimum(r, n - r)
    return {
        "eigen": 14.0 / 3.0 * n**3,
        "kernel": 2.0 * n**3,
        "rows": float(np.sum(solved**3 / 3.0 + 2.0 * r**2)),
        "gram": 2.0 * float(r.sum()) * n + len(r) * float(n) ** 2,
    }


def synthetic(m, n, rank, missing, paper, **settings):
    """A case of paper-like data with tiny noise."""

    def make():
        truth, X, hidden = paper_like(m, n, rank, missing)
        return X, lambda model: relative_rmse(truth[hidden], model.transform(X)[hidden])

    name = f"{m}x{n}, {missing} missing"
    return name, make, {"alpha": 1000, "n_neighbors": 20, **settings}, paper


def movielens(steps, **settings):
    """MovieLens-1M with half of its ratings hidden."""

    def make():
        X, users, items, truth = ratings("ml-1m", (6040, 3952))
        return X, lambda model: relative_rmse(truth, model.predict(users, items))

    name = "ml-1m, half hidden"
    kept = {"alpha": 1000, "n_neighbors": 50, "max_iter": steps, **settings}
    return name, make, kept, 0.2542


def tall(m, n, observed):
    """A sparse matrix of rank 5 with so many observed entries in every row."""

    def make():
        rng = np.random.default_rng(0)
        indices = rng.integers(0, n, size=(m, observed), dtype=np.int32)
        indices.sort(axis=1)
        a, b = rng.random((m, 5)), rng.random((n, 5))
        values = np.einsum("ik,ijk->ij", a, b[indices])
        indptr = np.arange(m + 1) * observed
        # A column drawn twice counts once, with the sum of its values.
        X = sparse.csr_array((values.ravel(), indices.ravel(), indptr), shape=(m, n))
        X.sum_duplicates()
        return X, None

    name = f"{m}x{n} sparse, {observed} a row"
    settings = {
        "alpha": 100,
        "n_neighbors": 10,
        "max_iter": 1,
        "orientation": "columns",
    }
    return name, make, settings, None


def measure(case, device, rate, dtype="float64"):
    """One line of the table."""
    name, make, settings, paper = case
    X, error = make()
    options = {**settings, "tol": 0, "dtype": dtype, "engine": Torch(device)}
    NCARL(**{**options, "max_iter": min(3, settings["max_iter"])}).fit(X)
    if device != "cpu":
        torch.cuda.reset_peak_memory_stats()
    wait(device)
    start = time.perf_counter()
    model = NCARL(**options).fit(X)
    wait(device)
    seconds = time.perf_counter() - start
    parts = {p: float(np.sum(model.history_[f"seconds_{p}"])) for p in PARTS}
    counts, n = model.training_.row_counts, model.kernel_.shape[0]
    if model.transposed_:
        counts = model.training_.column_counts
    flops = {p: f * model.n_iter_ for p, f in flops_of_step(counts, n).items()}
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


def cases(small):
    """Cases by name."""
    if small:
        return {
            "small": synthetic(120, 80, 5, 0.6, None, max_iter=3),
            "tall": tall(2000, 60, 8),
        }
    found = {
        "1500": synthetic(1500, 1000, 200, 0.8, 0.0328, max_iter=30),
        "4000-0.8": synthetic(4000, 3000, 300, 0.8, 0.0255, max_iter=30),
        "4000-0.9": synthetic(4000, 3000, 300, 0.9, 0.0287, max_iter=30),
        "million": tall(1_000_000, 2_000, 50),
        "wide": tall(100_000, 20_000, 100),
    }
    return {**found, "ml-1m": movielens(15)} if data_folder() else found


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--cases", nargs="+", default=None)
    parser.add_argument("--dtypes", nargs="+", default=["float64"])
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--json", default=None)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rate = matmul_rate(options.device, 512 if options.device == "cpu" else 8192)
    chosen = cases(options.low_rank_core)
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
