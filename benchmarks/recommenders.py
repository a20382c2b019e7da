"""Time, memory and error beside recommender libraries, on this machine, in one run.

Usage: NCARL_DATA=... python benchmarks/recommenders.py [--large] [--sets ...]
       [--contenders ...] [--json results/recommenders.json]

MovieLens-100K (official u1, and the first part of a random 5-fold split), with
``--large`` MovieLens-1M (random 90/10): Surprise's SVD++ and SVD, cmfrec's CMF (plain,
and with implicit features), and BayesianNCARL with the kernel on the columns and with
``sides="auto"``. All defaults, seeds fixed, ratings clipped to 1..5. Surprise gets the
ratings in the order of the file. Its steps are stochastic: on u1 two seeds and four
orders of the same ratings gave SVD++ from 0.925 to 0.935, the file's order the lowest.

Seconds are the fit and the prediction of the test ratings, from data that the library
takes as it is; importing, reading the file and compiling are not timed. Every contender
runs in a process of its own: its peak is the most memory that process ever held, and
"before" what it held when the clock started. "x SVD++" is SVD++'s time over its own.
Libraries that are not installed are left out. Surprise uses one core, the others all.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from accuracy_sets import (
    given_split,
    machine,
    make_estimator,
    random_fold,
    random_part,
    read_sets,
    warm_up,
)
from common import data_folder, print_table, write_json

from ncarl.metrics import rmse

SETS = {
    "ml-100k-u1": lambda: given_split("ml-100k", "u1_test"),
    "ml-100k-fold": lambda: random_fold("ml-100k", 0),
    "ml-1m-90": lambda: random_part("ml-1m", 0.1, 0),
}


def surprise(name):
    """A model of Surprise."""

    def prepare(split):
        import pandas as pd
        import surprise

        columns = dict(zip(("user", "item", "rating"), split.train, strict=True))
        reader = surprise.Reader(rating_scale=(1, 5))
        data = surprise.Dataset.load_from_df(pd.DataFrame(columns), reader)
        train = data.build_full_trainset()
        test = list(zip(split.rows, split.cols, split.truth, strict=True))
        model = getattr(surprise, name)(random_state=0)
        return lambda: np.array([x.est for x in model.fit(train).test(test)])

    return prepare


def cmf(**settings):
    """Collective matrix factorization of cmfrec."""

    def prepare(split):
        from cmfrec import CMF

        entries = split.X.tocoo()
        model = CMF(random_state=0, verbose=False, **settings)
        return lambda: model.fit(entries).predict(split.rows, split.cols)

    return prepare


def ours(sides):
    """This package."""

    def prepare(split):
        warm_up()
        model = make_estimator(sides=sides)
        return lambda: model.fit(split.X).predict(split.rows, split.cols)

    return prepare


#: Name -> what has to be installed, and what gets a contender ready for a split.
CONTENDERS = {
    "svdpp": ("surprise", surprise("SVDpp")),
    "svd": ("surprise", surprise("SVD")),
    "cmf": ("cmfrec", cmf()),
    "cmf-implicit": ("cmfrec", cmf(add_implicit_features=True)),
    "ncarl-columns": ("ncarl", ours("columns")),
    "ncarl-auto": ("ncarl", ours("auto")),
}


def own_peak_gb():
    """Largest memory of this program so far, in GB; None where Linux does not tell.

    Not ``ru_maxrss``: a process that is started inherits that from the one that starts
    it, so a small contender would be given the memory of this script.
    """
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    lines = status.read_text().splitlines()
    return next(int(x.split()[1]) for x in lines if x.startswith("VmHWM")) / 1e6


def run_one(contender, name):
    """One contender on one set, in this process."""
    split = SETS[name]()
    run = CONTENDERS[contender][1](split)
    before = own_peak_gb()
    start = time.perf_counter()
    guess = run()
    seconds = time.perf_counter() - start
    return {
        "set": name,
        "contender": contender,
        "rmse": rmse(split.truth, np.clip(guess, 1.0, 5.0)),
        "seconds": seconds,
        "peak_gb": own_peak_gb(),
        "before_gb": before,
    }


def in_own_process(contender, name):
    """The same in a fresh process, for a peak of its own."""
    command = [sys.executable, "-W", "ignore", __file__, "--one", contender, name]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{contender} on {name} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def about_baselines():
    """Versions of the other libraries."""
    about = {}
    for package in ("scikit-surprise", "cmfrec"):
        try:
            about[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            about[package] = None
    return about


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", action="store_true", help="MovieLens-1M too")
    parser.add_argument("--sets", default=None, help=", ".join(SETS))
    parser.add_argument("--contenders", default=None, help=", ".join(CONTENDERS))
    parser.add_argument("--one", nargs=2, default=None, help=argparse.SUPPRESS)
    parser.add_argument("--json", default=None)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.one:
        print(json.dumps(run_one(*options.one)))
        return
    asked = options.sets.split(",") if options.sets else list(SETS)[: 2 + options.large]
    contenders = options.methods.split(",") if options.methods else CONTENDERS
    results, table = read_sets(options.json), []
    for name in asked:
        file = f"{name[: name.rindex('-')]}.npz"
        if data_folder() is None or not (data_folder() / file).exists():
            print(f"{name}: left out, {file} is not in NCARL_DATA")
            continue
        lines = []
        for contender in contenders:
            package = CONTENDERS[contender][0]
            if importlib.util.find_spec(package) is None:
                print(f"{contender}: left out, {package} is not installed")
                continue
            lines.append(in_own_process(contender, name))
            print(lines[-1], flush=True)
        base = [line["seconds"] for line in lines if line["contender"] == "svdpp"]
        for line in lines:
            line["x SVD++"] = base[0] / line["seconds"] if base else None
        results[name] = {"machine": {**machine(), **about_baselines()}, "lines": lines}
        write_json(options.json, {"sets": results})
        table += lines
    if table:
        print_table(table)


if __name__ == "__main__":
    main()
