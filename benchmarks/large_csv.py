"""What ``ncarl complete`` takes to fill a large text file, and what a stop leaves.

Usage: python benchmarks/large_csv.py [--rows 232000] [--stops 6,20,60]
[--json results/large_csv.json]

A CSV file of 60 columns: rank 5 and noise of 0.3, five decimals, a tenth of the cells
empty; 232,000 rows make 108 MB. The command is run as a user would run it; its peak
memory is what the system says of the process when it has ended. The error is that of
the filled cells against the noisy truth (no method can get below 0.3), and cells that
were there have to come back as they were typed. Before that the command is stopped
(as Ctrl-C does) after some seconds each time: what is left in the folder is listed.
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
#: Rows that are made, and compared, together.
PART = 2000


def written(path, rows):
    """Write the file; the truth at its gaps, in order."""
    rng = np.random.default_rng(0)
    directions, hidden = rng.normal(size=(RANK, COLUMNS)), []
    with path.open("w") as stream:
        stream.write(",".join(f"c{j}" for j in range(COLUMNS)) + "\n")
        for first in range(0, rows, PART):
            m = min(PART, rows - first)
            truth = rng.normal(size=(m, RANK)) @ directions
            truth += NOISE * rng.normal(size=truth.shape)
            gaps = rng.random(truth.shape) < SHARE
            hidden.append(truth[gaps])
            for numbers, gone in zip(truth.tolist(), gaps.tolist(), strict=True):
                cells = zip(numbers, gone, strict=True)
                stream.write(",".join("" if g else f"{x:.5f}" for x, g in cells) + "\n")
    return np.concatenate(hidden)


def command(source, target):
    """The command, started."""
    program = [sys.executable, "-m", "ncarl", "complete", str(source)]
    return subprocess.Popen(
        [*program, "-o", str(target)], stdout=subprocess.DEVNULL, preexec_fn=_can_stop
    )


def _can_stop():
    """What a shell runs in the background would not hear Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def finished(source, target):
    """Seconds and peak memory, in GB, of a whole run."""
    start = time.perf_counter()
    process = command(source, target)
    _, status, usage = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        raise SystemExit("ncarl complete failed")
    # The system counts in KiB.
    return time.perf_counter() - start, usage.ru_maxrss * 1024 / 1e9


def stopped(source, target, seconds):
    """Exit status of a run that is stopped after so many seconds; what it leaves."""
    process = command(source, target)
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    status = process.wait()
    others = (file.name for file in source.parent.iterdir() if file != source)
    return status, sorted(others)


def error(source, target, hidden):
    """Error of the filled cells; the others have to be as they were."""
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
    """Make the file, stop the command some times, let it end once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=232_000)
    parser.add_argument("--stops", default="6,20,60", help="seconds, with commas")
    parser.add_argument("--json", default="")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "in.csv", Path(folder) / "out.csv"
        hidden = written(source, options.rows)
        size = source.stat().st_size / 1e6
        stops = []
        for text in filter(None, options.stops.split(",")):
            status, left = stopped(source, target, float(text))
            stops.append({"after s": float(text), "exit": status, "left": left})
        seconds, peak = finished(source, target)
        line = {
            "file MB": size, "rows": options.rows, "columns": COLUMNS,
            "seconds": seconds, "peak GB": peak,
            "error of filled cells": error(source, target, hidden),
        }  # fmt: skip
    print_table([line])
    if stops:
        print_table([{**stop, "left": len(stop["left"])} for stop in stops])
    result = {"versions": versions(), "whole": line, "stops": stops}
    write_json(options.json, result)


if __name__ == "__main__":
    main()
