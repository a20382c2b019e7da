"""Accuracy of the estimates of ``ncarl evaluate``.

Usage: python benchmarks/evaluate.py [--seeds 3] [--json results/evaluate.json]

Entries are removed from complete tables. ``evaluate`` with its defaults (bayes, a tenth
of the observed entries held out, three times) estimates the error on the removed
entries and the coverage of their 90% intervals ("estimated"). The removed values and a
fit to the whole table give the actual error and coverage ("actual"). Entries are
removed at random, in blocks (two fifths of the rows lack half of the columns), or where
values are large, which no method can detect from the table. Errors are in standard
deviations of the columns, means over the seeds; "weighted error" is the estimated error
with columns weighted by their number of missing entries, as the command prints it in
addition to the unweighted error.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
from common import print_table, versions, write_json
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine

from ncarl import BayesianNCARL
from ncarl.evaluation import evaluate
from ncarl.metrics import coverage, rmse

TABLES = {
    "wine": load_wine,
    "diabetes": load_diabetes,
    "breast cancer": load_breast_cancer,
}


def random_mask(truth, rng):
    """Remove a fifth of the cells independently."""
    return rng.random(truth.shape) < 0.2


def block_mask(truth, rng):
    """Remove the same half of the columns in two fifths of the rows."""
    m, n = truth.shape
    columns = rng.permutation(n)[: n // 2]
    rows = rng.permutation(m)[: 2 * m // 5]
    missing = np.zeros((m, n), dtype=bool)
    missing[np.ix_(rows, columns)] = True
    return missing


def large_mask(truth, rng):
    """Remove two fifths of the cells above the median of their column."""
    return (truth > np.median(truth, axis=0)) & (rng.random(truth.shape) < 0.4)


MASKS = {"at random": random_mask, "in blocks": block_mask, "large values": large_mask}


def measure(truth, missing, seed):
    """Measure estimated and actual errors and coverages of one table."""
    X = np.where(missing, np.nan, truth)
    found = evaluate(X, scale="columns", others=(), random_state=seed)
    expected = next(one.coverage for one in found.levels if one.level == 0.9)
    i, j = np.nonzero(missing & (found.column_stds > 0.0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = BayesianNCARL(scale="columns", random_state=seed).fit(X)
    stds, values = found.column_stds[j], truth[i, j]
    predicted = np.asarray(model.predict(i, j))
    low, high = model.predict_interval(i, j, level=0.9)
    return (
        found.standardized_error[0],
        found.error_on_missing,
        rmse(values / stds, predicted / stds),
        rmse(values / stds, np.nanmean(X, axis=0)[j] / stds),
        expected,
        coverage(values, low, high),
    )


def main():
    """Measure all tables and all patterns of missing entries."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", default="")
    options = parser.parse_args()
    lines = []
    for name, load in TABLES.items():
        truth = load().data
        for kind, make in MASKS.items():
            runs = [
                measure(truth, make(truth, np.random.default_rng([7, seed])), seed)
                for seed in range(options.seeds)
            ]
            means = np.mean(runs, axis=0).tolist()
            estimated, weighted, actual, by_means, expected, covered = means
            lines.append(
                {
                    "table": name,
                    "missing": kind,
                    "estimated error": estimated,
                    "weighted error": weighted,
                    "actual error": actual,
                    "column means": by_means,
                    "estimated 90% coverage": expected,
                    "actual 90% coverage": covered,
                }
            )
            print_table(lines[-1:])
    print_table(lines)
    content = {"about": versions(), "seeds": options.seeds, "lines": lines}
    write_json(options.json, content)


if __name__ == "__main__":
    main()
