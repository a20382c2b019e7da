"""Imputers of tables side by side: errors at hidden cells, and seconds.

Usage: NCARL_DATA=... python benchmarks/tables.py [--settings main|all|...]
       [--imputers ...] [--tables ...] [--jobs 2] [--json results/tables.json]
       [--figure docs/images/tables-errors.png]

21 tables of numbers of the UCI and KEEL repositories (``tables.npz``), their first
1,500 rows, columns standardized. Cells are hidden by a seeded generator; the error is
the root mean square over all hidden cells of a table, in standard deviations of the
columns. A setting is written ``pattern-rate-seed``: in ``random`` every cell is hidden
with the same probability; in ``given`` one column is never hidden, and the probability
in all others increases from 0 to twice the rate with the rank of its value (missing at
random). "main" is ``random-30-0``; "all" adds two seeds, 10% and 50%, and
``given-30-0``.

All imputers run on one core with the parameters of `IMPUTERS`; those of "chained
forests" and "chained extra trees" follow missForest. Rivals other than scikit-learn's
need ``pip install miceforest==6.0.5 gcimpute==0.0.4``; those that are not installed are
skipped. gcimpute needs NumPy 1 (``numpy<2 scipy<1.14``), so that it is run in an
environment of its own, which continues the same JSON file.

Every cell is written to the JSON file when it is finished, and a later run continues
from there; cells of our own imputers are measured again with ``--again``. A table of a
setting is won if our error is lower than those of all rivals; "ratio" is the geometric
mean over the tables of our error over the lowest error of the rivals.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import multiprocessing
import os
import platform
import time
import warnings
from collections import defaultdict
from contextlib import suppress
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))  # before NumPy is imported

import numpy as np  # noqa: E402
from common import print_table, write_json  # noqa: E402

MAX_ROWS = 1500
MAIN = "random-30-0"
SETTINGS = {
    "main": [MAIN],
    "all": [
        MAIN, "random-30-1", "random-30-2", "random-10-0", "random-50-0", "given-30-0",
    ],
}  # fmt: skip


def simple(M):
    """Impute column means."""
    from sklearn.impute import SimpleImputer

    return SimpleImputer().fit_transform(M)


def knn(M):
    """Impute by the five nearest rows, weighted by their distances."""
    from sklearn.impute import KNNImputer

    return KNNImputer(weights="distance").fit_transform(M)


def chained(regressor, max_iter, **options):
    """Impute by chained regressions."""
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer

    imputer = IterativeImputer(regressor, max_iter=max_iter, random_state=0, **options)
    return imputer.fit_transform


def ridge(M):
    """Impute by chained Bayesian ridge regressions."""
    return chained(None, 20)(M)


def chained_trees(M, make):
    """Impute by chained ensembles of 60 trees; fewer features of wide tables."""
    narrow = M.shape[1] < 50
    nearest = None if narrow else 30
    return chained(make(), 3 if narrow else 2, n_nearest_features=nearest)(M)


def chained_forests(M):
    """Impute by chained random forests, as missForest does."""
    from sklearn.ensemble import RandomForestRegressor

    features = 0.5 if M.shape[1] < 40 else "sqrt"
    options = {"max_features": features, "random_state": 0}
    return chained_trees(M, lambda: RandomForestRegressor(60, **options))


def chained_extra_trees(M):
    """Impute by chained extremely randomized trees."""
    from sklearn.ensemble import ExtraTreesRegressor

    return chained_trees(M, lambda: ExtraTreesRegressor(60, random_state=0))


def miceforest(M):
    """Impute by the mean of five runs of multiple imputation by LightGBM."""
    import miceforest as mf
    import pandas as pd

    frame = pd.DataFrame(M, columns=[f"c{j}" for j in range(M.shape[1])])
    kernel = mf.ImputationKernel(
        frame, num_datasets=5, random_state=0, mean_match_candidates=0
    )
    kernel.mice(4, verbose=False, num_threads=1)
    return np.mean([kernel.complete_data(k).to_numpy() for k in range(5)], axis=0)


def gcimpute(M):
    """Impute by a Gaussian copula; its test of equal values fails without rounding."""
    from gcimpute.gaussian_copula import GaussianCopula

    return GaussianCopula(verbose=0).fit_transform(M.round(6))


def bayesian(M):
    """Impute by one joint normal distribution and similar rows."""
    from ncarl import BayesianNCARL

    return BayesianNCARL(engine="threads", scale="columns").fit_transform(M)


def ours(effort):
    """Impute by `TableImputer`."""

    def impute(M):
        from ncarl import TableImputer

        return TableImputer(effort=effort, n_jobs=1).fit_transform(M)

    return impute


#: Name -> function of a matrix with NaN, and the package that it needs.
IMPUTERS = {
    "mean": (simple, "sklearn"),
    "KNNImputer": (knn, "sklearn"),
    "IterativeImputer": (ridge, "sklearn"),
    "chained forests": (chained_forests, "sklearn"),
    "chained extra trees": (chained_extra_trees, "sklearn"),
    "miceforest": (miceforest, "miceforest"),
    "gcimpute": (gcimpute, "gcimpute"),
    "BayesianNCARL": (bayesian, "ncarl"),
    "fast": (ours("fast"), "ncarl"),
    "default": (ours("default"), "ncarl"),
    "best": (ours("best"), "ncarl"),
}
RIVALS = list(IMPUTERS)[:7]
EFFORTS = list(IMPUTERS)[8:]


def load_tables():
    """Standardized tables by name."""
    folder = Path(os.environ["NCARL_DATA"])
    tables = {}
    for name, values in np.load(folder / "tables.npz").items():
        X = values[:MAX_ROWS].astype(float)
        X = X[:, X.std(axis=0) > 1e-12]
        tables[name] = (X - X.mean(axis=0)) / X.std(axis=0)
    return tables


def hide(X, setting):
    """Cells that a setting hides; a column never loses all of them."""
    pattern, rate, seed = setting.split("-")
    share, rng = int(rate) / 100, np.random.default_rng(int(seed))
    if pattern == "random":
        hidden = rng.random(X.shape) < share
    else:
        k = rng.integers(X.shape[1])
        ranks = X[:, k].argsort().argsort() / len(X)
        hidden = rng.random(X.shape) < 2.0 * share * ranks[:, None]
        hidden[:, k] = False
    return hidden & ~hidden.all(axis=0)


def measure(job):
    """Measure one cell: an imputer on a table of a setting."""
    warnings.simplefilter("ignore")
    setting, name, imputer, X = job
    hidden = hide(X, setting)
    M = np.where(hidden, np.nan, X)
    cell = {"setting": setting, "table": name, "imputer": imputer}
    start = time.perf_counter()
    try:
        filled = np.asarray(IMPUTERS[imputer][0](M), dtype=float)
        # TableImputer leaves rows without any observed cell empty.
        filled = np.where(np.isnan(filled), np.nanmean(M, axis=0), filled)
        cell["error"] = float(np.sqrt(np.mean((filled - X)[hidden] ** 2)))
    except Exception as error:  # a rival may fail on a table
        cell["failure"] = f"{type(error).__name__}: {error}"[:200]
    cell["seconds"] = time.perf_counter() - start
    return cell


def warm_up(_):
    """Compile what is compiled at the first use."""
    M = np.random.default_rng(0).random((40, 4))
    M[::5, 0] = np.nan
    for name in ("BayesianNCARL", *EFFORTS):
        if importlib.util.find_spec("ncarl"):
            IMPUTERS[name][0](M)


def key_of(cell):
    """What identifies a cell."""
    return cell["setting"], cell["table"], cell["imputer"]


def read_cells(path):
    """Cells of an earlier run, by key."""
    if not path or not Path(path).exists():
        return {}
    cells = json.loads(Path(path).read_text())["cells"]
    return {key_of(cell): cell for cell in cells}


def save(path, cells, tables):
    """Write all cells, in a fixed order."""
    order = {name: k for k, name in enumerate([*SETTINGS["all"], *tables, *IMPUTERS])}
    ordered = sorted(cells.values(), key=lambda cell: [order[k] for k in key_of(cell)])
    packages = ("ncarl", "numpy", "scikit-learn", "numba", "miceforest", "gcimpute")
    about = {"date": date.today().isoformat(), "python": platform.python_version()}
    for package in packages:
        with suppress(PackageNotFoundError):
            about[package] = version(package)
    if path:
        temporary = Path(f"{path}.tmp")
        write_json(temporary, {"versions": about, "cells": ordered})
        temporary.replace(path)


def summarize(cells, tables, setting):
    """Lines of one setting: a table each, then wins, ratios and seconds."""
    found = {
        (table, imputer): cell
        for (where, table, imputer), cell in cells.items()
        if where == setting
    }
    used = [k for k in IMPUTERS if any(imputer == k for _, imputer in found)]
    lines, wins, ratios = [], defaultdict(int), defaultdict(list)
    for table in tables:
        errors = {k: found.get((table, k), {}).get("error") for k in used}
        best = min((errors[k] for k in RIVALS if errors.get(k)), default=None)
        for k, error in errors.items():
            if best is None or error is None:
                continue
            wins[k] += error < best
            ratios[k].append(np.log(error / best))
        shown = {k: "" if e is None else f"{e:.4f}" for k, e in errors.items()}
        lines.append({"table": table, **shown})
    own = {k: k not in RIVALS for k in used}
    lines.append({"table": "wins", **{k: wins[k] if own[k] else "" for k in used}})
    ratio = {k: f"{np.exp(np.mean(ratios[k])):.4f}" if ratios[k] else "" for k in used}
    lines.append({"table": "ratio", **ratio})
    seconds = {
        k: sum(cell["seconds"] for (_, imputer), cell in found.items() if imputer == k)
        for k in used
    }
    lines.append({"table": "seconds", **{k: round(s, 1) for k, s in seconds.items()}})
    return lines


def draw(cells, tables, path):
    """Plot errors relative to the best rival, by table, for the main setting."""
    import matplotlib.pyplot as plt

    found = {
        key[1:]: cell.get("error") for key, cell in cells.items() if key[0] == MAIN
    }
    best = {
        table: min(found[table, k] for k in RIVALS if found.get((table, k)))
        for table in tables
    }
    order = sorted(tables, key=lambda t: -found[t, "default"] / best[t])
    places = np.arange(len(order))
    figure, axes = plt.subplots(figsize=(8.2, 5.6), layout="constrained")
    rivals = {
        "IterativeImputer": ("#999999", "v"),
        "chained forests": ("#E69F00", "s"),
        "chained extra trees": ("#009E73", "D"),
        "miceforest": ("#CC79A7", "^"),
        "gcimpute": ("#56B4E9", "<"),
    }
    efforts = {"fast": "#F0B8A0", "default": "#D55E00", "best": "#0072B2"}
    for k, (color, marker) in rivals.items():
        x = [(found.get((t, k)) or np.nan) / best[t] for t in order]
        axes.plot(x, places, marker, color=color, ms=4.5, label=k)
    for k, color in efforts.items():
        x = [(found.get((t, k)) or np.nan) / best[t] for t in order]
        axes.plot(x, places, "o", color=color, ms=7, label=f"TableImputer, {k}")
    axes.axvline(1.0, color="black", lw=0.8)
    axes.set(xlim=(0.55, 1.6), yticks=places, yticklabels=order)
    axes.set_xlabel("error at hidden cells / lowest error of the rivals")
    axes.grid(axis="x", color="#e5e5e5")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    figure.savefig(path, dpi=110)


def main():
    """Measure the cells that are missing, print all, draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--settings", default="main")
    parser.add_argument("--imputers", default=",".join(IMPUTERS))
    parser.add_argument("--tables", default=None)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--again", action="store_true", help="measure ours once more")
    parser.add_argument("--json", default=None)
    parser.add_argument("--figure", default=None)
    options = parser.parse_args()
    tables = load_tables()
    names = options.tables.split(",") if options.tables else list(tables)
    settings = SETTINGS.get(options.settings) or options.settings.split(",")
    cells = read_cells(options.json)
    jobs = []
    for imputer in options.imputers.split(",") if options.imputers != "none" else []:
        if importlib.util.find_spec(IMPUTERS[imputer][1]) is None:
            print(f"{imputer}: {IMPUTERS[imputer][1]} is not installed")
            continue
        for setting in settings:
            for name in names:
                known = (setting, name, imputer) in cells
                if not known or (options.again and imputer not in RIVALS):
                    jobs.append((setting, name, imputer, tables[name]))
    # Cells of one setting belong together; long ones first, so that cores finish alike.
    jobs.sort(key=lambda job: (settings.index(job[0]), -job[3].size))
    context = multiprocessing.get_context("spawn")
    with context.Pool(options.jobs, maxtasksperchild=40) as pool:
        if any(job[2] not in RIVALS for job in jobs):
            pool.map(warm_up, range(options.jobs), chunksize=1)
        for cell in pool.imap_unordered(measure, jobs):
            cells[key_of(cell)] = cell
            result = cell.get("failure") or f"{cell['error']:.4f}"
            print(*key_of(cell), result, f"{cell['seconds']:.1f} s", flush=True)
            save(options.json, cells, tables)
    save(options.json, cells, tables)
    for setting in [s for s in SETTINGS["all"] if any(key[0] == s for key in cells)]:
        print(f"\n{setting}")
        print_table(summarize(cells, names, setting))
    if options.figure:
        draw(cells, tables, options.figure)


if __name__ == "__main__":
    main()
