"""Does ``ncarl evaluate`` tell the truth? What it says beside what is true.

Usage: python benchmarks/evaluate.py [--seeds 3] [--json results/evaluate.json]

Tables whose truth is known get gaps. ``evaluate`` with its defaults (bayes, a tenth of
what is left hidden, three times) says how large errors on the gaps will be and how many
of them intervals will hold. Then the whole table is fitted and the gaps are looked at.
Gaps lie at random, in blocks (two fifths of the rows lack half of the columns), or
where values are large, which no method can see from the table. Errors are in spreads
of the columns, means over the seeds; "by gaps" counts every column as often as it has
gaps, as the command does beside the plain error.
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


def at_random(truth, rng):
    """A fifth of the cells, one by one."""
    return rng.random(truth.shape) < 0.2


def in_blocks(truth, rng):
    """Half of the columns in two fifths of the rows, the same half for all of them."""
    m, n = truth.shape
    columns = rng.permutation(n)[: n // 2]
    rows = rng.permutation(m)[: 2 * m // 5]
    gaps = np.zeros((m, n), dtype=bool)
    gaps[np.ix_(rows, columns)] = True
    return gaps


def large_values(truth, rng):
    """Two fifths of the cells above the median of their column."""
    return (truth > np.median(truth, axis=0)) & (rng.random(truth.shape) < 0.4)


GAPS = {"at random": at_random, "in blocks": in_blocks, "large values": large_values}


def measured(truth, gaps, seed):
    """What was said and what is true, of one table."""
    X = np.where(gaps, np.nan, truth)
    found = evaluate(X, scale="columns", others=(), random_state=seed)
    held = next(one.coverage for one in found.levels if one.level == 0.9)
    i, j = np.nonzero(gaps & (found.column_stds > 0.0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = BayesianNCARL(scale="columns", random_state=seed).fit(X)
    spread = found.column_stds[j]
    guess, was = np.asarray(model.predict(i, j)), truth[i, j]
    low, high = model.predict_interval(i, j, level=0.9)
    return (
        found.standardized_error[0],
        found.error_on_missing,
        rmse(was / spread, guess / spread),
        rmse(was / spread, np.nanmean(X, axis=0)[j] / spread),
        held,
        coverage(was, low, high),
    )


def main():
    """Measure all tables and all kinds of gaps."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", default="")
    options = parser.parse_args()
    lines = []
    for name, load in TABLES.items():
        truth = load().data
        for kind, make in GAPS.items():
            runs = [
                measured(truth, make(truth, np.random.default_rng([7, seed])), seed)
                for seed in range(options.seeds)
            ]
            said, by_gaps, true, mean, held, covered = np.mean(runs, axis=0).tolist()
            lines.append(
                {
                    "table": name,
                    "gaps": kind,
                    "error said": said,
                    "by gaps": by_gaps,
                    "error true": true,
                    "column means": mean,
                    "90% said": held,
                    "90% true": covered,
                }
            )
            print_table(lines[-1:])
    print_table(lines)
    content = {"about": versions(), "seeds": options.seeds, "lines": lines}
    write_json(options.json, content)


if __name__ == "__main__":
    main()
