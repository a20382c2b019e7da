"""Time, memory and error of recommender libraries, in one run on one machine.

Usage: NCARL_DATA=... python benchmarks/recommenders.py [--large] [--sets ...]
       [--contenders ...] [--json results/recommenders.json]

MovieLens-100K (official u1, and the first part of a random 5-fold split), with
``--large`` MovieLens-1M (random 90/10): Surprise's SVD++ and SVD, cmfrec's CMF (plain,
and with implicit features), and BayesianNCARL with the kernel on the columns and with
``sides="auto"``. All defaults, fixed seeds, ratings clipped to 1..5. Surprise gets the
ratings in file order. Its steps are stochastic: on u1 two seeds and four orders of the
same ratings gave SVD++ from 0.925 to 0.935, the lowest with the file order.

Seconds are the fit and the prediction of the test ratings, from data in the library's
format; imports, reading the file and compilation are not timed. Each method runs in a
process of its own: "peak_gb" is the peak memory of that process, "before_gb" its value
when the timing starts. "x SVD++" is the time of SVD++ divided by that of the method.
Libraries that are not installed are skipped. Surprise uses one core, the others all.
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
    machine,
    make_estimator,
    predefined_split,
    random_fold,
    random_holdout,
    read_sets,
    warm_up,
)
from common import data_folder, print_table, write_json

from ncarl.metrics import rmse

SETS = {
    "ml-100k-u1": lambda: predefined_split("ml-100k", "u1_test"),
    "ml-100k-fold": lambda: random_fold("ml-100k", 0),
    "ml-1m-90": lambda: random_holdout("ml-1m", 0.1, 0),
}


def make_surprise(name):
    """Create a model of Surprise."""

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


def make_cmf(**settings):
    """Create a collective matrix factorization of cmfrec."""

    def prepare(split):
        from cmfrec import CMF

        entries = split.X.tocoo()
        model = CMF(random_state=0, verbose=False, **settings)
        return lambda: model.fit(entries).predict(split.rows, split.cols)

    return prepare


def make_ours(sides):
    """Create a model of this package."""

    def prepare(split):
        warm_up()
        model = make_estimator(sides=sides)
        return lambda: model.fit(split.X).predict(split.rows, split.cols)

    return prepare


#: Name -> required package, and a function that prepares the method for a split.
CONTENDERS = {
    "svdpp": ("surprise", make_surprise("SVDpp")),
    "svd": ("surprise", make_surprise("SVD")),
    "cmf": ("cmfrec", make_cmf()),
    "cmf-implicit": ("cmfrec", make_cmf(add_implicit_features=True)),
    "ncarl-columns": ("ncarl", make_ours("columns")),
    "ncarl-auto": ("ncarl", make_ours("auto")),
}


def own_peak_gb():
    """Peak memory of this process so far, in GB; None if Linux does not report it.

    Not ``ru_maxrss``: a child process inherits it from its parent, so that it would
    include the memory of this script.
    """
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    lines = status.read_text().splitlines()
    return next(int(x.split()[1]) for x in lines if x.startswith("VmHWM")) / 1e6


def measure(contender, name):
    """Measure one method on one data set, in this process."""
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


def run_in_subprocess(contender, name):
    """Call `measure` in a new process, for its own peak memory."""
    command = [sys.executable, "-W", "ignore", __file__, "--one", contender, name]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{contender} on {name} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def library_versions():
    """Versions of the other libraries; None if not installed."""
    about = {}
    for package in ("scikit-surprise", "cmfrec"):
        try:
            about[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            about[package] = None
    return about


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", action="store_true", help="also run MovieLens-1M")
    parser.add_argument("--sets", default=None, help=", ".join(SETS))
    parser.add_argument("--contenders", default=None, help=", ".join(CONTENDERS))
    parser.add_argument("--one", nargs=2, default=None, help=argparse.SUPPRESS)
    parser.add_argument("--json", default=None)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.one:
        print(json.dumps(measure(*options.one)))
        return
    names = options.sets.split(",") if options.sets else list(SETS)[: 2 + options.large]
    contenders = options.contenders.split(",") if options.contenders else CONTENDERS
    results, table = read_sets(options.json), []
    for name in names:
        file = f"{name[: name.rindex('-')]}.npz"
        if data_folder() is None or not (data_folder() / file).exists():
            print(f"{name}: skipped, {file} is not in NCARL_DATA")
            continue
        lines = []
        for contender in contenders:
            package = CONTENDERS[contender][0]
            if importlib.util.find_spec(package) is None:
                print(f"{contender}: skipped, {package} is not installed")
                continue
            lines.append(run_in_subprocess(contender, name))
            print(lines[-1], flush=True)
        base = [line["seconds"] for line in lines if line["contender"] == "svdpp"]
        for line in lines:
            line["x SVD++"] = base[0] / line["seconds"] if base else None
        results[name] = {"machine": {**machine(), **library_versions()}, "lines": lines}
        write_json(options.json, {"sets": results})
        table += lines
    if table:
        print_table(table)


if __name__ == "__main__":
    main()
