"""Accuracy of WideNCARL relative to NCARL, and cost of an iteration at 50,000 columns.

Usage: python benchmarks/wide.py [--near] [--large] [--json results/wide.json]

Part one (``--near``) fits NCARL and WideNCARL with the same parameters and iterations
to 3,000 x 2,000 matrices and compares their completions of missing entries, and both
with the true values. Part two (``--large``) runs a few iterations on 100,000 x 50,000
with 50 observed entries per row. By default, both run. ``--convergence`` compares the
completions after the given numbers of iterations, on one matrix.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from pathlib import Path

import numpy as np
from common import peak_gb, print_table, versions, write_json
from scipy.sparse import csr_array

from ncarl import NCARL, Threads
from ncarl.estimators.wide import WideNCARL


def make_low_rank(m, n, rng):
    """Generate a matrix of rank 5 plus noise of 5%."""
    truth = rng.standard_normal((m, 5)) @ rng.standard_normal((5, n)) / np.sqrt(5)
    return truth, truth + 0.05 * rng.standard_normal((m, n))


def make_slow_decay(m, n, rng):
    """Generate a matrix with singular values ``k^-0.7``, not of low rank."""
    k = min(m, n)
    U = np.linalg.qr(rng.standard_normal((m, k)))[0]
    V = np.linalg.qr(rng.standard_normal((n, k)))[0]
    truth = (U * (1.0 + np.arange(k)) ** -0.7) @ V.T
    truth /= truth.std()
    return truth, truth


def relative_difference(A, B, where):
    """Norm of ``A - B`` on a mask, relative to that of ``B``."""
    return float(np.linalg.norm((A - B)[where]) / np.linalg.norm(B[where]))


def compare(name, make, share, options, ranks, steps):
    """Compare WideNCARL with NCARL on one data set."""
    rng = np.random.default_rng(0)
    truth, noisy = make(3000, 2000, rng)
    X = np.where(rng.random(truth.shape) < share, noisy, np.nan)
    hidden = np.isnan(X)
    run = {"max_iter": steps, "tol": 0, "engine": Threads(), **options}
    start = time.perf_counter()
    dense = NCARL(**run, orientation="columns").fit_transform(X)
    seconds = time.perf_counter() - start
    lines = []
    for rank in ranks:
        start = time.perf_counter()
        wide = WideNCARL(**run, rank=rank).fit_transform(X)
        lines.append(
            {
                "data": name,
                "steps": steps,
                "rank": rank,
                "from_ncarl": relative_difference(wide, dense, hidden),
                "error": relative_difference(wide, truth, hidden),
                "ncarl_error": relative_difference(dense, truth, hidden),
                "seconds": time.perf_counter() - start,
                "ncarl_seconds": seconds,
            }
        )
        print_table(lines[-1:])
    return lines


def measure_convergence(steps, rank=128, noise=0.02):
    """Compare WideNCARL with NCARL after increasing numbers of iterations."""
    rng = np.random.default_rng(0)
    factors = rng.standard_normal((3000, 5)), rng.standard_normal((5, 2000))
    truth = factors[0] @ factors[1] / np.sqrt(5)
    seen = rng.random(truth.shape) < 0.1
    noisy = truth + noise * rng.standard_normal(truth.shape)
    X, hidden = np.where(seen, noisy, np.nan), ~seen
    lines = []
    for count in steps:
        run = {"max_iter": count, "tol": 0, "alpha": 0.0}
        dense = NCARL(**run, orientation="columns").fit_transform(X)
        wide = WideNCARL(**run, rank=rank).fit_transform(X)
        lines.append(
            {
                "steps": count,
                "rank": rank,
                "from_ncarl": relative_difference(wide, dense, hidden),
                "error": relative_difference(wide, truth, hidden),
                "ncarl_error": relative_difference(dense, truth, hidden),
            }
        )
        print_table(lines[-1:])
    return lines


def make_ratings(m, n, r, rng):
    """Sparse matrix of rank 8 plus noise, ``r`` entries per row; and its factors."""
    A, B = rng.standard_normal((m, 8)), rng.standard_normal((n, 8))
    columns = np.sort(rng.integers(0, n, (m, r)), axis=1)
    while True:
        duplicate = np.zeros(columns.shape, dtype=bool)
        duplicate[:, 1:] = columns[:, 1:] == columns[:, :-1]
        if not duplicate.any():
            break
        columns[duplicate] = rng.integers(0, n, int(duplicate.sum()))
        columns.sort(axis=1)
    rows, columns = np.repeat(np.arange(m), r), columns.ravel()
    values = np.einsum("ek,ek->e", A[rows], B[columns]) / np.sqrt(8)
    values += 0.1 * rng.standard_normal(len(values))
    X = csr_array((values, columns, np.arange(m + 1) * r), shape=(m, n))
    return X, A, B


def measure_large(m, n, r, steps, rank):
    """Measure each iteration and the whole fit on a large sparse matrix."""
    rng = np.random.default_rng(0)
    X, A, B = make_ratings(m, n, r, rng)
    i, j = rng.integers(0, m, 20_000), rng.integers(0, n, 20_000)
    expected = np.einsum("ek,ek->e", A[i], B[j]) / np.sqrt(8)
    del A, B
    start, used = time.perf_counter(), time.process_time()
    model = WideNCARL(max_iter=steps, tol=0, rank=rank).fit(X)
    whole, used = time.perf_counter() - start, time.process_time() - used
    history = model.history_
    parts = [name for name in history if name.startswith("seconds_")]
    lines = [
        {
            "step": k + 1,
            "seconds": float(sum(history[part][k] for part in parts)),
            **{part: float(history[part][k]) for part in parts},
            "change": float(history["change"][k]),
        }
        for k in range(model.n_iter_)
    ]
    start = time.perf_counter()
    guess = model.predict(i, j)
    summary = {
        "rows": m,
        "columns": n,
        "observed_per_row": r,
        "rank": model.rank_,
        "fit_seconds": whole,
        "fit_core_seconds": used,
        "peak_gb": peak_gb(),
        "predict_us": (time.perf_counter() - start) / len(i) * 1e6,
        "error": float(np.linalg.norm(guess - expected) / np.linalg.norm(expected)),
        "entries_of_T_a_column": model.kernel_factors_[0].nnz / n,
        "load": os.getloadavg()[0],
    }
    return lines, summary


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--near", action="store_true")
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--convergence", type=int, nargs="+", metavar="STEPS")
    parser.add_argument("--ranks", type=int, nargs="+", default=[128, 256, 512])
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--columns", type=int, default=50_000)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--large-steps", type=int, default=3)
    parser.add_argument("--json", default=None)
    options = parser.parse_args()
    both = not (options.near or options.large or options.convergence)
    warnings.simplefilter("ignore")
    content = {}
    if options.json and Path(options.json).exists():
        content = json.loads(Path(options.json).read_text())
    content["versions"] = versions()
    if options.large or both:  # first, for its own peak memory
        lines, content["large"] = measure_large(
            options.rows, options.columns, 50, options.large_steps, None
        )
        content["large"]["steps"] = lines
        print_table(lines)
        print_table([{k: v for k, v in content["large"].items() if k != "steps"}])
        write_json(options.json, content)
    if options.convergence:
        content["convergence"] = measure_convergence(options.convergence)
        write_json(options.json, content)
    if options.near or both:
        sets = [
            ("rank 5, 50 per row", make_low_rank, 0.025, {}),
            ("rank 5, 10%", make_low_rank, 0.1, {}),
            ("rank 5, 10%, alpha 0", make_low_rank, 0.1, {"alpha": 0.0}),
            ("slow decay, 10%", make_slow_decay, 0.1, {}),
        ]
        lines = []
        for name, make, share, settings in sets:
            lines += compare(name, make, share, settings, options.ranks, options.steps)
        content.pop("near_note", None)
        content["near"] = lines  # an interrupted run keeps the earlier results
        write_json(options.json, content)
        print_table(lines)


if __name__ == "__main__":
    main()
