"""TableImputer and missForest on tables of numbers and categories.

Usage: NCARL_DATA=... python benchmarks/mixed_tables.py [--masks 5] [--effort default]
       [--tables ...] [--json results/mixed_tables.json]

In each table of ``mixed/*.csv`` 20% of the cells are hidden at random, with several
seeds. "wrong" is the share of hidden categories that are imputed by another one, "rmse"
the root mean square error of hidden numbers in standard deviations of their columns,
"log loss" that of the hidden categories under `predict_proba`, and under the
Laplace-smoothed votes of the forests, "calibration" the expected calibration error of
the most probable category (ten bins). "90%" is the share of hidden numbers inside
`predict_interval`. missForest is three rounds of chained random forests of 100 trees on
indicators of the categories. An existing JSON file is continued table by table.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from pathlib import Path

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))  # before NumPy is imported

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
from common import print_table, versions, write_json  # noqa: E402
from sklearn.ensemble import (  # noqa: E402
    RandomForestClassifier,
    RandomForestRegressor,
)

from ncarl.tables import TableImputer  # noqa: E402

N_TREES, ROUNDS, SHARE = 100, 3, 0.2
MAX_CATEGORIES = 60
#: A category that occurs in the table but not among the observed cells.
MIN_PROBABILITY = 1e-6


def is_number(column):
    """Whether a column holds numbers."""
    return column.dtype.kind in "if"


def missforest(gappy):
    """Imputed table, and smoothed votes for the missing categories of each column."""
    filled, missing = gappy.copy(), gappy.isna()
    for name in gappy:
        column = gappy[name]
        usual = column.mean() if is_number(column) else column.mode()[0]
        filled[name] = column.fillna(usual)
    shares = {}
    for _ in range(ROUNDS):
        for name in missing.sum().sort_values().index:
            if not missing[name].any():
                continue
            others = pd.get_dummies(filled.drop(columns=name), dtype=float).to_numpy()
            lacks = missing[name].to_numpy()
            number = is_number(gappy[name])
            make = RandomForestRegressor if number else RandomForestClassifier
            forest = make(
                N_TREES,
                random_state=0,
                n_jobs=1,
                max_features=0.5 if number else "sqrt",
            )
            forest.fit(others[~lacks], gappy.loc[~lacks, name])
            filled.loc[lacks, name] = forest.predict(others[lacks])
            if not number:
                votes = np.zeros((int(lacks.sum()), len(forest.classes_)))
                for tree in forest.estimators_:
                    chosen = tree.predict(others[lacks]).astype(int)
                    votes[np.arange(len(votes)), chosen] += 1
                smoothed = (votes + 1.0) / (N_TREES + votes.shape[1])
                shares[name] = pd.DataFrame(smoothed, columns=forest.classes_)
    return filled, shares


def ours(gappy, effort):
    """Imputed table, probabilities of missing categories, and 90% intervals."""
    imputer = TableImputer(effort=effort, max_categories=MAX_CATEGORIES, n_jobs=1)
    filled = imputer.fit(gappy).transform(gappy)
    has_categories = not all(is_number(gappy[name]) for name in gappy)
    shares = imputer.predict_proba(gappy) if has_categories else {}
    shares = {
        name: part[gappy[name].isna().to_numpy()].reset_index(drop=True)
        for name, part in shares.items()
    }
    return filled, shares, imputer.predict_interval(gappy, 0.9)


def score(truth, gappy, hidden, filled, shares):
    """Errors of one imputation."""
    numbers = [name for name in truth if is_number(truth[name])]
    wrong, squares, losses, sure, right = [], [], [], [], []
    for name in truth:
        at = hidden[name].to_numpy()
        if name in numbers:
            errors = (filled[name] - truth[name])[at] / truth[name].std()
            squares += (errors**2).tolist()
            continue
        wrong += (filled[name].astype(str) != truth[name].astype(str))[at].tolist()
        among = at[gappy[name].isna().to_numpy()]
        part = shares[name][among]
        labels = [str(label) for label in part.columns]
        actual = truth[name][at].astype(str).tolist()
        P = part.to_numpy()
        for row, label in zip(P, actual, strict=True):
            share = row[labels.index(label)] if label in labels else 0.0
            losses.append(-np.log(max(share, MIN_PROBABILITY)))
        sure += P.max(axis=1).tolist()
        right += [
            labels[k] == label for k, label in zip(P.argmax(1), actual, strict=True)
        ]
    found = {"rmse": float(np.sqrt(np.mean(squares))) if squares else None}
    if wrong:
        found |= {"wrong": float(np.mean(wrong)), "log loss": float(np.mean(losses))}
        found["calibration"] = calibration_error(np.array(sure), np.array(right))
    return found


def calibration_error(sure, right):
    """Mean difference of certainty and accuracy, over ten bins of certainty."""
    bins = np.minimum((sure * 10).astype(int), 9)
    gaps = [
        abs(sure[bins == k].mean() - right[bins == k].mean()) * np.mean(bins == k)
        for k in np.unique(bins)
    ]
    return float(sum(gaps))


def measure(path, seed, effort):
    """Both imputers on one mask of one table."""
    truth = pd.read_csv(path)
    for name in truth:
        if is_number(truth[name]):
            truth[name] = truth[name].astype(float)
    rng = np.random.default_rng(seed)
    hidden = pd.DataFrame(rng.random(truth.shape) < SHARE, columns=truth.columns)
    hidden &= truth.notna()
    gappy = truth.mask(hidden)
    start = time.perf_counter()
    filled, shares, (low, high) = ours(gappy, effort)
    mine = score(truth, gappy, hidden, filled, shares)
    mine["seconds"] = time.perf_counter() - start
    inside = [
        ((low[name] <= truth[name]) & (truth[name] <= high[name]))[hidden[name]]
        for name in low
    ]
    if inside:
        mine["90%"] = float(np.concatenate(inside).mean())
    start = time.perf_counter()
    forest = score(truth, gappy, hidden, *missforest(gappy))
    forest["seconds"] = time.perf_counter() - start
    return {"TableImputer": mine, "missForest": forest}


def mean_of(runs, imputer, key):
    """Mean over the masks; None where there is nothing to measure."""
    values = [run[imputer][key] for run in runs if run[imputer].get(key) is not None]
    return float(np.mean(values)) if values else None


def main():
    """Measure the tables that are missing, and print all."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--masks", type=int, default=5)
    parser.add_argument("--effort", default="default")
    parser.add_argument("--tables", default=None)
    parser.add_argument("--json", default=None)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    folder = Path(os.environ["NCARL_DATA"]) / "mixed"
    results = {}
    if options.json and Path(options.json).exists():
        results = json.loads(Path(options.json).read_text())["tables"]
    for path in sorted(folder.glob("*.csv")):
        if options.tables and path.stem not in options.tables.split(","):
            continue
        runs = results.setdefault(path.stem, [])
        for seed in range(len(runs), options.masks):
            runs.append(measure(path, seed, options.effort))
            about = {"versions": versions(), "effort": options.effort}
            write_json(options.json, {**about, "tables": results})
    lines = []
    for name, runs in results.items():
        for imputer in ("TableImputer", "missForest"):
            keys = ("wrong", "rmse", "log loss", "calibration", "90%", "seconds")
            line = {key: mean_of(runs, imputer, key) for key in keys}
            lines.append({"table": name, "imputer": imputer, **line})
    print_table(lines)


if __name__ == "__main__":
    main()
