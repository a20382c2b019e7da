"""Time and memory of an iteration by number of rows: in memory, streamed, on Dask.

Usage: python benchmarks/scaling.py [--rows 10000 20000 ...] [--folder F]
       [--json results/scaling.json]

n = 500 columns, 50 observed entries per row, low rank with noise. Each measurement has
its own process and therefore its own peak memory (VmHWM); the ways to read the same
rows alternate, so that other load affects all of them. The time of an iteration is the
median of several. Targets: at most 2.1 times the time for twice the rows; peak memory
within 10% for all numbers of rows when streaming; at most 1.3 times the time in memory;
two Dask workers at least 85% as fast as two plain processes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from common import print_table, versions, write_json

from ncarl import NCARL, BayesianNCARL, open_rows
from ncarl.bayes import selection
from ncarl.evaluation.measure import peak_memory_gb

COLUMNS, OBSERVED, RANK, NOISE = 500, 50, 5, 0.1
ROWS = [10_000 * 2**k for k in range(7)] + [1_000_000]
WAYS = ("memory", "csr.npz", "dense.npy")
MODELS = {
    "NCARL": {},
    "NCARL-noisy": {"gamma": 0.1},
    "BayesianNCARL": {"validation": 0},
}
STEPS = 4


def generate_rows(rows, seed=0):
    """Yield indices and values of the observed entries, in blocks of rows."""
    rng = np.random.default_rng(seed)
    V = rng.standard_normal((RANK, COLUMNS))
    for first in range(0, rows, 5000):
        m = min(5000, rows - first)
        keys = rng.random((m, COLUMNS), dtype=np.float32)
        columns = np.sort(np.argpartition(keys, OBSERVED)[:, :OBSERVED], axis=1)
        U = rng.standard_normal((m, RANK))
        values = np.einsum("ik,kij->ij", U, V[:, columns])
        yield columns, values + NOISE * rng.standard_normal((m, OBSERVED))


def write_files(folder, rows):
    """Write the same matrix as CSR in NPZ and as dense NPY, block by block."""
    from zipfile import ZIP_STORED, ZipFile

    entries, n = rows * OBSERVED, COLUMNS
    kinds = {"indices": np.int32, "data": np.float64}
    with ZipFile(folder / "csr.npz", "w", ZIP_STORED) as archive:
        write_member(archive, "format", [np.frombuffer(b"csr", dtype="S3")], ())
        write_member(archive, "shape", [np.array([rows, n])], (2,))
        pointers = (
            np.arange(first, min(first + 100_000, rows + 1)) * OBSERVED
            for first in range(0, rows + 1, 100_000)
        )
        write_member(archive, "indptr", pointers, (rows + 1,))
        for place, name in enumerate(("indices", "data")):
            parts = (b[place].ravel().astype(kinds[name]) for b in generate_rows(rows))
            write_member(archive, name, parts, (entries,))
    with (folder / "dense.npy").open("wb") as stream:
        stream.write(npy_header(np.float64, (rows, n)))
        for columns, values in generate_rows(rows):
            dense = np.full((len(columns), n), np.nan)
            np.put_along_axis(dense, columns, values, axis=1)
            stream.write(dense.tobytes())


def npy_header(dtype, shape):
    """Header of an NPY file."""
    import io

    stream = io.BytesIO()
    about = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, about)
    return stream.getvalue()


def write_member(archive, name, parts, shape):
    """Write one array of an NPZ file in parts."""
    parts = iter(parts)
    first = next(parts)
    with archive.open(f"{name}.npy", "w", force_zip64=True) as stream:
        stream.write(npy_header(first.dtype, shape))
        stream.write(first.tobytes())
        for part in parts:
            stream.write(part.tobytes())


def measure_fit(way, folder, model, engine):
    """Measure seconds per iteration and before it, and peak memory, in this process."""
    from scipy.sparse import load_npz

    if way == "memory":
        source = load_npz(folder / "csr.npz")
    else:
        source = open_rows(folder / way)
    marks = []
    options = {
        "max_iter": STEPS,
        "tol": 0,
        "callback": lambda info: marks.append(now()),
    }
    now = time.perf_counter
    start = now()
    options["engine"] = engine
    options |= MODELS[model]
    if model == "BayesianNCARL":
        selection.ROW_SAMPLING_THRESHOLD = 0  # stream data of every size
        BayesianNCARL(sides="columns", center="mean", **options).fit(source)
    else:
        NCARL(orientation="columns", **options).fit(source)
    steps = np.diff(marks)
    return {
        "step_seconds": float(np.median(steps)),
        "best_step_seconds": float(np.min(steps)),
        "before_seconds": float(marks[0] - start - np.median(steps)),
        "peak_gb": peak_memory_gb(),
    }


def run_in_subprocess(*args):
    """Run `measure_fit` in a new process."""
    command = [sys.executable, __file__, "--one", *map(str, args)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def measure_rows(rows, folder, engine, models):
    """Measure all models and ways for a number of rows."""
    write_files(folder, rows)
    lines = []
    for model in models:
        for way in WAYS:
            found = run_in_subprocess(way, folder, model, engine)
            lines.append({"model": model, "way": way, "rows": rows, **found})
            print(f"{model} {way} {rows}: {found}", file=sys.stderr, flush=True)
    return lines


def add_ratios(lines):
    """Add ratios of times: to half of the rows, and to the same rows in memory."""
    known = {(x["model"], x["way"], x["rows"]): x for x in lines}
    for line in lines:
        model, way, rows = line["model"], line["way"], line["rows"]
        half = known.get((model, way, rows // 2))
        memory = known.get((model, "memory", rows))
        time_of = "step_seconds"
        line["over_half_the_rows"] = half and line[time_of] / half[time_of]
        line["over_memory"] = memory and line[time_of] / memory[time_of]
    return lines


def summarize(lines):
    """Worst measured values, to compare with the targets."""
    found = {"growth": max(x["over_half_the_rows"] or 0.0 for x in lines)}
    for way in WAYS[1:]:
        here = [x for x in lines if x["way"] == way]
        peaks = [x["peak_gb"] for x in here]
        found[f"memory {way}"] = max(peaks) / min(peaks)
        found[f"over memory {way}"] = max(x["over_memory"] or 0.0 for x in here)
    return found


def main():
    """Measure, print one table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", nargs="+", type=int, default=ROWS)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--json")
    parser.add_argument("--no-dask", action="store_true")
    parser.add_argument("--engine", default="threads")
    parser.add_argument("--one", nargs=4, help="for internal use")
    args = parser.parse_args()
    if args.one:
        way, folder, model, engine = args.one
        print(json.dumps(measure_fit(way, Path(folder), model, engine)))
        return
    lines = []
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        for rows in args.rows:
            lines += measure_rows(rows, Path(folder), args.engine, args.models)
    add_ratios(lines)
    print_table(lines)
    result = {"versions": versions(), "lines": lines, "verdicts": summarize(lines)}
    print_table([{"target": k, "measured": v} for k, v in result["verdicts"].items()])
    result["engine"] = args.engine
    if not args.no_dask:
        from scaling_dask import dask_share

        result["dask"] = [dask_share(workers=workers) for workers in (1, 2)]
        print_table(result["dask"])
    write_json(args.json, result)


if __name__ == "__main__":
    main()
