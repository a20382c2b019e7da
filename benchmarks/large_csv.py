"""Time and memory of ``ncarl complete`` on a large CSV file, and effects of interrupts.

Usage: python benchmarks/large_csv.py [--rows 232000] [--stops 6,20,60]
[--json results/large_csv.json]

A CSV file of 60 columns: rank 5 and noise of 0.3, five decimals, a tenth of the cells
empty; 232,000 rows are 108 MB. The command runs in a process of its own; its peak
memory is that reported by the system at exit. The error is that of the imputed cells
against the noisy true values (no method can get below 0.3), and observed cells must be
written unchanged. Before that, the command is interrupted (as by Ctrl-C) after each of
the given delays, and the files left in the folder are listed.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from common import print_table, versions, write_json

COLUMNS, RANK, NOISE, SHARE = 60, 5, 0.3, 0.1
#: Rows that are generated at a time.
PART = 2000


def write_csv(path, rows):
    """Write the file; return the true values of its empty cells, in order."""
    rng = np.random.default_rng(0)
    directions, hidden = rng.normal(size=(RANK, COLUMNS)), []
    with path.open("w") as stream:
        stream.write(",".join(f"c{j}" for j in range(COLUMNS)) + "\n")
        for first in range(0, rows, PART):
            m = min(PART, rows - first)
            truth = rng.normal(size=(m, RANK)) @ directions
            truth += NOISE * rng.normal(size=truth.shape)
            empty = rng.random(truth.shape) < SHARE
            hidden.append(truth[empty])
            for numbers, is_empty in zip(truth.tolist(), empty.tolist(), strict=True):
                cells = zip(numbers, is_empty, strict=True)
                stream.write(",".join("" if g else f"{x:.5f}" for x, g in cells) + "\n")
    return np.concatenate(hidden)


def start_command(source, target):
    """Start ``ncarl complete`` in the background."""
    program = [sys.executable, "-m", "ncarl", "complete", str(source)]
    return subprocess.Popen(
        [*program, "-o", str(target)], stdout=subprocess.DEVNULL, preexec_fn=_set_sigint
    )


def _set_sigint():
    """Restore the default SIGINT: background jobs of a shell ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def run_to_completion(source, target):
    """Run the command; return its seconds and peak memory in GB."""
    start = time.perf_counter()
    process = start_command(source, target)
    _, status, usage = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        raise SystemExit("ncarl complete failed")
    # ru_maxrss is in KiB.
    return time.perf_counter() - start, usage.ru_maxrss * 1024 / 1e9


def run_and_interrupt(source, target, seconds):
    """Interrupt a run after some seconds; return its exit status and files left."""
    process = start_command(source, target)
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    status = process.wait()
    others = (file.name for file in source.parent.iterdir() if file != source)
    return status, sorted(others)


def measure_error(source, target, hidden):
    """Error of the imputed cells; checks that observed cells are unchanged."""
    squares, place = 0.0, 0
    with source.open() as before, target.open() as after:
        for old, new in zip(before, after, strict=True):
            for was, now in zip(old.split(","), new.split(","), strict=True):
                if was.strip():
                    assert was == now, (was, now)
                else:
                    squares += (float(now) - hidden[place]) ** 2
                    place += 1
    assert place == len(hidden)
    return (squares / place) ** 0.5


def main():
    """Write the file, interrupt the command, then run it to completion."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=232_000)
    parser.add_argument("--stops", default="6,20,60", help="seconds, comma-separated")
    parser.add_argument("--json", default="")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "in.csv", Path(folder) / "out.csv"
        hidden = write_csv(source, options.rows)
        size = source.stat().st_size / 1e6
        stops = []
        for text in filter(None, options.stops.split(",")):
            status, left = run_and_interrupt(source, target, float(text))
            stops.append({"after s": float(text), "exit": status, "left": left})
        seconds, peak = run_to_completion(source, target)
        line = {
            "file MB": size, "rows": options.rows, "columns": COLUMNS,
            "seconds": seconds, "peak GB": peak,
            "error of filled cells": measure_error(source, target, hidden),
        }  # fmt: skip
    print_table([line])
    if stops:
        print_table([{**stop, "left": len(stop["left"])} for stop in stops])
    result = {"versions": versions(), "whole": line, "stops": stops}
    write_json(options.json, result)


if __name__ == "__main__":
    main()
