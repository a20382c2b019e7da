"""Error, seconds, iterations and objective of all methods of the package.

Usage: python benchmarks/baselines.py [--sets 500,photo,1500] [--seeds 1]
           [--engine auto] [--only NAME] [--budget 600] [--json results/baselines.json]

Sets: "500" and "1500" are 500x300 (rank 100) and 1500x1000 (rank 200) matrices like
those of the paper's Table 1: uniform factors and noise on a fifth of the observed
entries, 80% and 90% missing; the error is against the clean matrix on the missing
entries. The paper does not state its noise: 2.4 and 7.4 are the levels at which the
nuclear norm meets the value printed for it; "tiny" is 1% of the mean entry. "photo" is
a gray-scale photograph of scikit-learn with half of its pixels missing.

Methods fit observed entries exactly, as in the paper; those that have a form for noisy
data also run with a strength selected on held-out observed entries ("noise"). Factored
models get the rank that the paper gave them (the true one; 200 for pictures). Nothing
is selected on missing entries. A fit that exceeds the budget stops at its last
iteration and is not "converged". fancyimpute's SoftImpute also runs if installed.
"""

from __future__ import annotations

import argparse
import time
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from common import make_paper_like, print_table, versions, write_json

import ncarl
import ncarl.engines.threads
from ncarl.metrics import psnr, relative_rmse

#: Table 1 of the paper: error at 80% and 90% missing.
PAPER = {
    "500": {
        "Nuclear": (0.0428, 0.0446), "F-Nuclear": (0.0515, 0.3484),
        "S_1/2": (0.0410, 0.0991), "S_2/3": (0.0347, 0.0709),
        "WNNM": (0.0958, 0.0952), "RegL1": (0.0473, 0.0492),
        "FGSR": (0.0549, 0.0556), "LRFD": (0.1921, 0.2996),
        "S3LR": (0.0387, 0.0406), "NCARL": (0.0344, 0.0397),
    },
    "1500": {
        "Nuclear": (0.0409, 0.0404), "F-Nuclear": (0.1079, 0.5451),
        "S_1/2": (0.0433, 0.0599), "S_2/3": (0.0357, 0.0450),
        "WNNM": (0.1006, 0.1028), "RegL1": (0.0584, 0.0527),
        "FGSR": (0.0377, 0.0453), "LRFD": (0.5788, 0.6978),
        "S3LR": (0.0385, 0.0389), "NCARL": (0.0328, 0.0326),
    },
}  # fmt: skip
SHAPES = {"500": (500, 300, 100), "1500": (1500, 1000, 200)}
NOISES = {"500": (2.4, None), "1500": (7.4,)}
#: Settings of NCARL in quality.py.
NCARL_SETTINGS = {
    "500": {"alpha": 100, "n_neighbors": 50, "max_iter": 50, "tol": 0},
    "1500": {"alpha": 1000, "n_neighbors": 20, "max_iter": 30, "tol": 0},
    "photo": {"alpha": 100, "n_neighbors": 10, "max_iter": 20, "tol": 0},
}


@dataclass(frozen=True)
class Case:
    """A matrix with missing entries, and its true values."""

    group: str
    name: str
    missing: float
    X: Any
    truth: Any
    hidden: Any
    rank: int


def make_cases(group, seed):
    """Generate the matrices of a set."""
    if group == "photo":
        yield load_photograph(seed)
        return
    m, n, rank = SHAPES[group]
    for noise in NOISES[group]:
        for missing in (0.8, 0.9):
            truth, X, hidden = make_paper_like(m, n, rank, missing, noise, seed)
            name = f"{m}x{n}, noise {'tiny' if noise is None else noise}"
            yield Case(group, name, missing, X, truth, hidden, rank)


def load_photograph(seed):
    """A gray-scale photograph with half of its pixels missing."""
    from sklearn.datasets import load_sample_image

    picture = load_sample_image("china.jpg").mean(axis=2) / 255.0
    hidden = np.random.default_rng(seed).random(picture.shape) < 0.5
    X = np.where(hidden, np.nan, picture)
    return Case("photo", "photograph 427x640", 0.5, X, picture, hidden, 200)


def make_methods(case):
    """Yield label, name in the paper and estimator of each method."""
    rank = case.rank
    yield "Nuclear", "Nuclear", ncarl.Nuclear()
    yield "Nuclear ialm", "Nuclear", ncarl.Nuclear(solver="ialm")
    yield "Nuclear noise", "Nuclear", ncarl.Nuclear(solver="apg", lam="auto")
    yield "FactoredNuclear", "F-Nuclear", ncarl.FactoredNuclear(rank=rank)
    yield "FactoredNuclear noise", "F-Nuclear", ncarl.FactoredNuclear(lam="auto")
    for p, name in ((0.5, "S_1/2"), (2 / 3, "S_2/3")):
        yield f"SchattenP {name[2:]}", name, ncarl.SchattenP(p=p)
        yield f"SchattenP {name[2:]} noise", name, ncarl.SchattenP(p=p, lam="auto")
    yield "WNNM", "WNNM", ncarl.WNNM()
    yield "WNNM C=sqrt(mn)", "WNNM", ncarl.WNNM(C="sqrt_mn")
    yield "WNNM noise", "WNNM", ncarl.WNNM(lam="auto")
    yield "RegL1", "RegL1", ncarl.RegL1(rank=rank)
    yield "RegL1 own rank", "RegL1", ncarl.RegL1()
    for p, name in ((0.5, "1/2"), (2 / 3, "2/3")):
        yield f"FGSR {name}", "FGSR", ncarl.FGSR(p=p, rank=rank)
        yield f"FGSR {name} noise", "FGSR", ncarl.FGSR(p=p, lam="auto")
    yield "LRFD", "LRFD", ncarl.LRFD()
    yield "S3LR", "S3LR", ncarl.S3LR()
    yield "SoftImpute", None, ncarl.SoftImpute()
    # With fancyimpute's strength, for comparison with it.
    top = np.linalg.norm(np.nan_to_num(case.X), 2)
    yield "SoftImpute top/50", None, ncarl.SoftImpute(lam=top / 50)
    yield "SoftImpute two-way", None, ncarl.SoftImpute(center="two-way")
    yield "BiasModel", None, ncarl.BiasModel()
    yield "NCARL", "NCARL", ncarl.NCARL(**NCARL_SETTINGS[case.group])
    yield "NCARLCV", "NCARL", ncarl.NCARLCV()
    yield "BayesianNCARL", "NCARL", ncarl.BayesianNCARL()
    if import_fancyimpute() is not None:
        yield "fancyimpute SoftImpute", None, FancySoftImpute()


def import_fancyimpute():
    """fancyimpute's SoftImpute, or None if it is not installed."""
    try:
        import fancyimpute
        from fancyimpute import soft_impute, solver
    except ImportError:
        return None
    # Its last release uses an option that scikit-learn has since renamed.
    for module in (solver, soft_impute):
        module.check_array = lambda X, force_all_finite=True: X
    return fancyimpute.SoftImpute


class FancySoftImpute:
    """fancyimpute's SoftImpute with its defaults and an estimator's interface."""

    def set_params(self, **options):
        return self

    def fit(self, X):
        self.filled = import_fancyimpute()(verbose=False).fit_transform(X.copy())
        return self

    def transform(self, X):
        return self.filled


def paper_value(case, column):
    """Error printed in the paper, or None."""
    known = PAPER.get(case.group, {}).get(column)
    return None if known is None else known[0 if case.missing == 0.8 else 1]


def measure(case, label, column, estimator, engine, budget):
    """Fit one method and return its line of the table."""
    start = time.perf_counter()

    def over_budget(info):
        return time.perf_counter() - start > budget

    estimator.set_params(engine=engine, callback=over_budget)
    estimator.fit(case.X)
    seconds = time.perf_counter() - start
    filled = estimator.transform(case.X)
    truth, guess = case.truth[case.hidden], filled[case.hidden]
    history = getattr(estimator, "history_", {"objective": [None]})
    objective = history["objective"][-1]
    line = {
        "set": case.name,
        "missing": case.missing,
        "method": label,
        "error": relative_rmse(truth, guess),
        "paper": paper_value(case, column),
        "psnr": psnr(truth, guess) if case.group == "photo" else None,
        "seconds": seconds,
        "steps": getattr(estimator, "n_iter_", None),
        "converged": getattr(estimator, "converged_", None),
        "rank": getattr(estimator, "rank_", None),
        "residual": getattr(estimator, "residual_", None),
        "gap": getattr(estimator, "gap_", None),
        "objective": None if objective is None else float(objective),
    }
    print({k: v for k, v in line.items() if v is not None}, flush=True)
    return line


def warm_up(engine):
    """Fit a tiny matrix, so that imports and compilation are not timed."""
    X = np.random.default_rng(0).standard_normal((30, 12))
    X[X > 1.0] = np.nan
    for name in ("ncarl", "nuclear", "bayes", "soft-impute"):
        ncarl.make(name, max_iter=2, tol=0, engine=engine).fit(X)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", default="500,photo,1500")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--only", default=None, help="part of the labels of methods")
    parser.add_argument("--budget", type=float, default=600.0, help="seconds per fit")
    parser.add_argument("--json", default=None)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    warm_up(options.engine)
    content = {
        "versions": versions(),
        "engine": ncarl.engines.pick_engine(options.engine).describe(),
        "lines": [],
    }
    for group in options.sets.split(","):
        for seed in range(options.seeds):
            for case in make_cases(group, seed):
                for label, column, estimator in make_methods(case):
                    if options.only and options.only not in label:
                        continue
                    line = measure(
                        case, label, column, estimator, options.engine, options.budget
                    )
                    content["lines"].append({"seed": seed, **line})
                    write_json(options.json, content)
    print_table(content["lines"])


if __name__ == "__main__":
    main()
