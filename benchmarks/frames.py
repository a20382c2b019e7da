"""Depth of the call stack between a public call and its innermost function.

Usage: python benchmarks/frames.py [--json results/frames.json]

A profiler counts the stack frames of ncarl's own functions in the main thread when the
innermost function is entered: the row step of a fit, or the writer of the CSV file.
Frames of other libraries (scikit-learn, Typer) do not count, nor do frames of
comprehensions, which newer versions of Python do not have.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
from common import print_table, versions, write_json

import ncarl

PACKAGE = str(Path(ncarl.__file__).parent)
COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>")
#: Innermost functions: name -> prefix of their module.
ROW_KERNELS = {
    "solve_rows": "core/rows_",
    "likelihood_sums": "core/rows_",
}


def list_frames(frame) -> list[str]:
    """List the functions of ncarl on the stack, outermost first."""
    names = []
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith(PACKAGE) and code.co_name not in COMPREHENSIONS:
            file = Path(code.co_filename).relative_to(PACKAGE).as_posix()
            names.append(f"{file}:{code.co_name}")
        frame = frame.f_back
    return names[::-1]


def find_deepest(call, is_innermost) -> list[str]:
    """Find the deepest stack of ncarl's functions that ends in an innermost one."""
    found: list[str] = []

    def profile(frame, event, _):
        nonlocal found
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            file = Path(frame.f_code.co_filename).relative_to(PACKAGE).as_posix()
            if is_innermost(file, frame.f_code.co_name):
                stack = list_frames(frame)
                found = max(found, stack, key=len)

    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
    return found


def is_row_kernel(file: str, name: str) -> bool:
    return file.startswith(ROW_KERNELS.get(name, "\0"))


def complete_table(folder: Path) -> None:
    """Run ``ncarl complete`` on a table of 60 x 8."""
    from ncarl.cli import main

    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 2)) @ rng.standard_normal((2, 8))
    lines = [",".join("abcdefgh")]
    for row in X:
        cells = [f"{x:.3f}" if rng.random() < 0.8 else "" for x in row]
        lines.append(",".join(cells))
    (folder / "t.csv").write_text("\n".join(lines) + "\n")
    sys.argv = ["ncarl", "complete", str(folder / "t.csv"), "-o", str(folder / "o.csv")]
    try:
        main()
    except SystemExit as end:
        assert not end.code, end.code


def measure() -> dict[str, list[str]]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 2)) @ rng.standard_normal((2, 20))
    X[rng.random(X.shape) < 0.3] = np.nan
    one = ncarl.Threads(n_jobs=1)  # in this thread, which is profiled
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        ncarl.NCARL(max_iter=2).fit(X)  # imports and compiles
        return {
            "NCARL.fit to the row kernel": find_deepest(
                lambda: ncarl.NCARL(max_iter=2, engine=one).fit(X), is_row_kernel
            ),
            "BayesianNCARL.fit to the row kernel": find_deepest(
                lambda: ncarl.BayesianNCARL(max_iter=3, engine=one).fit(X),
                is_row_kernel,
            ),
            "ncarl complete to the CSV writer": find_deepest(
                lambda: complete_table(Path(folder)),
                lambda file, name: file == "io/csv.py" and "write" in name,
            ),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="write the stacks to this file")
    options = parser.parse_args()
    stacks = measure()
    for call, stack in stacks.items():
        print(f"\n{call}:")
        for depth, name in enumerate(stack, 1):
            print(f"  {depth:2d} {name}")
    print_table([{"call": call, "frames": len(s)} for call, s in stacks.items()])
    if options.json:
        write_json(options.json, {"versions": versions(), "stacks": stacks})


if __name__ == "__main__":
    main()
