"""Model of the cost of an iteration by rows, columns and observed entries.

Usage: python benchmarks/cost_model.py [--engine threads] [--json results/cost.json]
       python benchmarks/cost_model.py --draw docs/images/cost.png results/cost.json
           results/cost_h200.json results/scaling.json results/scaling_h200.json

An iteration on m rows with r observed entries each costs, for the rows,
``m (a + b r^2 + c r^3 + d n^2)`` (d only if completed rows are formed), a polynomial in
n for the kernel of n columns, and a constant. Non-negative constants are fitted to
measured times by least squares of the relative errors. Times are the best of several
iterations, to reduce the effect of other load.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from common import print_table, versions, write_json
from scipy.optimize import nnls

from ncarl import NCARL
from ncarl.observations import Observations

#: (rows, columns, observed per row): along each axis, and off them to test the model.
ALONG_ROWS = [(m, 500, 50) for m in (5_000, 10_000, 20_000, 40_000, 80_000)]
ALONG_OBSERVED = [(10_000, 500, r) for r in (5, 10, 20, 100, 200)]
ALONG_COLUMNS = [(4_000, n, 50) for n in (250, 1_000, 1_500, 2_000, 3_000)]
OFF_AXES = [(30_000, 1_000, 20), (5_000, 2_000, 100), (60_000, 300, 80)]
STEPS = 4


def make_observations(m, n, r, seed=0):
    """Generate low-rank data with noise and ``r`` entries per row."""
    rng = np.random.default_rng(seed)
    V = rng.standard_normal((5, n))
    parts = []
    for first in range(0, m, 2000):
        rows = min(2000, m - first)
        keys = rng.random((rows, n), dtype=np.float32)
        columns = np.sort(np.argpartition(keys, r)[:, :r], axis=1).astype(np.int32)
        values = np.einsum("ik,kij->ij", rng.standard_normal((rows, 5)), V[:, columns])
        values += 0.1 * rng.standard_normal(values.shape)
        indptr = np.arange(0, rows * r + 1, r)
        parts.append(Observations(indptr, columns.ravel(), values.ravel(), (rows, n)))
    return Observations.vstack(parts).to_csr()


def measure(m, n, r, engine):
    """Measure the best iteration, separately for rows and kernel."""
    model = NCARL(max_iter=STEPS, tol=0, orientation="columns", engine=engine)
    history = model.fit(make_observations(m, n, r)).history_
    rows = history["seconds_rows"] + history["seconds_gram"]
    kernel = history["seconds_eigen"] + history["seconds_kernel"]
    return {
        "rows": m,
        "columns": n,
        "observed": r,
        "row_seconds": float(rows[1:].min()),
        "kernel_seconds": float(kernel[1:].min()),
    }


def make_terms(m, n, r):
    """Factors of the constants, for the rows and for the kernel."""
    one = np.ones_like(m)
    rows = {
        "step": one,
        "m": m,
        "m r^2": m * r**2,
        "m r^3": m * r**3,
        "m n^2": m * n**2,
    }
    return rows, {"step": one, "n": n, "n^2": n**2, "n^3": n**3}


def fit_constants(lines):
    """Fit the constants; also return the largest relative errors."""
    sizes = [
        np.array([x[k] for x in lines], float) for k in ("rows", "columns", "observed")
    ]
    found = {}
    for name, parts in zip(("row", "kernel"), make_terms(*sizes), strict=True):
        A = np.stack(list(parts.values()), axis=1)
        seconds = np.array([x[f"{name}_seconds"] for x in lines])
        scales = A.max(axis=0)
        x, _ = nnls(A / scales / seconds[:, None], np.ones(len(lines)))
        constants = x / scales
        found[name] = {k: float(v) for k, v in zip(parts, constants, strict=True) if v}
        found[f"worst {name}"] = float(np.max(np.abs(A @ constants / seconds - 1)))
    return found


def predict_seconds(constants, m, n, r):
    """Predict the seconds of an iteration."""
    sizes = (np.float64(x) for x in (m, n, r))
    return sum(
        value * parts[term]
        for name, parts in zip(("row", "kernel"), make_terms(*sizes), strict=True)
        for term, value in constants[name].items()
    )


def is_on_axis(line, fixed, names):
    """Whether a measured point has the fixed sizes of an axis."""
    pairs = zip(fixed, names, strict=True)
    return all(size is None or line[name] == size for size, name in pairs)


def machine_name(result):
    """Name of a machine in the figure."""
    cores = result["versions"]["cores"]
    return "H200" if result["engine"] == "torch" else f"{cores} cores"


def draw(path, files):
    """Plot measured points and the model, with one panel per size."""
    import matplotlib.pyplot as plt
    from matplotlib.ticker import NullFormatter

    found = [json.loads(Path(file).read_text()) for file in files]
    streamed = [result for result in found if "constants" not in result]
    found = [result for result in found if "constants" in result]
    axes = {
        "rows": (None, 500, 50),
        "observed entries per row": (10_000, 500, None),
        "columns": (4_000, None, 50),
    }
    names = ("rows", "columns", "observed")
    figure, panels = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained")
    colors = ("#1b6ca8", "#c05621", "#4a7c59")
    for panel, (size, fixed) in zip(panels, axes.items(), strict=True):
        free = fixed.index(None)
        for result, color in zip(found, colors, strict=False):
            points = [x for x in result["lines"] if is_on_axis(x, fixed, names)]
            x = [p[names[free]] for p in points]
            y = [p["row_seconds"] + p["kernel_seconds"] for p in points]
            most = max(x) * (20 if free == 0 else 1.5)
            line = np.geomspace(min(x) / 1.5, most, 60)
            at = [[v if f is None else f for f in fixed] for v in line]
            curve = [predict_seconds(result["constants"], *a) for a in at]
            panel.plot(line, curve, color=color, lw=1.4)
            panel.plot(x, y, "o", color=color, ms=5, label=machine_name(result))
        for result, color in zip(streamed if free == 0 else [], colors, strict=False):
            lines = [x for x in result["lines"] if x["way"] == "csr.npz"]
            lines = [x for x in lines if x["model"] == "NCARL"]
            x, y = [[p[k] for p in lines] for k in ("rows", "best_step_seconds")]
            label = f"{machine_name(result)}, streamed from disk"
            panel.plot(x, y, "o", color=color, ms=7, mfc="none", label=label)
        panel.set(xscale="log", yscale="log", xlabel=size)
        rest = [f"{f:,} {k}" for f, k in zip(fixed, names, strict=True) if f]
        panel.set_title(", ".join(rest), fontsize=10, loc="left")
        panel.xaxis.set_minor_formatter(NullFormatter())
        panel.grid(alpha=0.25)
    panels[0].set_ylabel("seconds per iteration")
    panels[0].legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=150)


def main():
    """Measure and fit, or plot existing results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", default="threads")
    parser.add_argument("--json")
    parser.add_argument("--draw", nargs="+", metavar="PATH")
    args = parser.parse_args()
    if args.draw:
        draw(args.draw[0], args.draw[1:])
        return
    cases = [*ALONG_ROWS, *ALONG_OBSERVED, *ALONG_COLUMNS, *OFF_AXES]
    measure(1_000, 100, 10, args.engine)  # imports and compiles
    lines = [measure(*case, args.engine) for case in cases]
    constants = fit_constants(lines)
    for line in lines:
        total = line["row_seconds"] + line["kernel_seconds"]
        size = line["rows"], line["columns"], line["observed"]
        line["model_over_measured"] = predict_seconds(constants, *size) / total
    print_table(lines)
    print(json.dumps(constants, indent=1))
    result = {"versions": versions(), "engine": args.engine, "constants": constants}
    write_json(args.json, {**result, "lines": lines})


if __name__ == "__main__":
    main()
