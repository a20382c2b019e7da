"""Scores of predictors on imputed tables, with errors and times of the imputers.

In three tables of scikit-learn (breast cancer, wine, diabetes) 20% or 40% of the cells
are removed at random, in training and test rows. In every fold of a five-fold
cross-validation, repeated with other masks and folds, an imputer is fitted
to the training rows and imputes both; a linear predictor (logistic or ridge regression,
columns standardized) and a random forest are fitted to the imputed training rows and
scored on the imputed test rows (accuracy, or R2). All imputers have their defaults and
get the same masks and folds. Then some columns of the tables are converted to
categories, and the share of correctly imputed categories is measured.

    python benchmarks/table_scores.py --seeds 2 --json results/table_scores.json
    python benchmarks/table_scores.py --sets none --json results/table_scores.json \\
        --figure docs/images/tables-scores.png
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np
from common import print_table, versions, write_json
from sklearn import datasets
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ncarl.tables import TableImputer

#: Name -> whether the target is a class.
SETS = {"breast_cancer": True, "wine": True, "diabetes": False}
IMPUTERS = {
    "TableImputer": TableImputer,
    "IterativeImputer": lambda: IterativeImputer(random_state=0),
    "KNNImputer": KNNImputer,
    "SimpleImputer": SimpleImputer,
}
OURS, BASELINE = "TableImputer", "IterativeImputer"
LEVELS = (0.5, 0.8, 0.95)
FOLDS = 5


def make_predictors(classes):
    """Create a linear predictor and a random forest."""
    if classes:
        linear = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
        return {"linear": linear, "forest": RandomForestClassifier(random_state=0)}
    linear = make_pipeline(StandardScaler(), Ridge())
    return {"linear": linear, "forest": RandomForestRegressor(random_state=0)}


def make_folds(classes, seed):
    """Create the cross-validation."""
    kind = StratifiedKFold if classes else KFold
    return kind(FOLDS, shuffle=True, random_state=seed)


def measure_fold(X, values, y, hidden, train, test, classes):
    """Measure scores, seconds and errors of all imputers on one fold."""
    found = {}
    for name, make in IMPUTERS.items():
        start = time.perf_counter()
        imputer = make().fit(X[train])
        filled = {"train": imputer.transform(X[train])}
        filled["test"] = imputer.transform(X[test])
        line = {"seconds": time.perf_counter() - start}
        for kind, model in make_predictors(classes).items():
            model.fit(filled["train"], y[train])
            line[kind] = float(model.score(filled["test"], y[test]))
        for part, rows in (("train", train), ("test", test)):
            error = (filled[part] - values[rows])[hidden[rows]]
            line[f"rmse {part}"] = float(np.sqrt(np.mean(error**2)))
        if name == OURS:
            line["inside"] = coverages(imputer, X[test], values[test], hidden[test])
        found[name] = line
    return found


def coverages(imputer, X, values, hidden):
    """Coverage of held-out cells of test rows by intervals of each level."""
    shares = []
    for level in LEVELS:
        low, high = imputer.predict_interval(X, level)
        shares.append(float(((low <= values) & (values <= high))[hidden].mean()))
    return shares


def measure(name, missing, seeds):
    """Measure all folds of one table at a rate of missing cells."""
    data = getattr(datasets, f"load_{name}")()
    # Errors are in standard deviations; imputers that scale columns are unaffected.
    values = (data.data - data.data.mean(axis=0)) / data.data.std(axis=0)
    results = []
    for seed in range(seeds):
        hidden = np.random.default_rng(seed).random(values.shape) < missing
        X = np.where(hidden, np.nan, values)
        split = make_folds(SETS[name], seed).split(values, data.target)
        results += [
            measure_fold(X, values, data.target, hidden, train, test, SETS[name])
            for train, test in split
        ]
    return summarize(results, seeds)


def summarize(results, seeds):
    """Means over all folds, sd over repetitions, differences to the baseline."""
    by_run = np.arange(len(results)) // FOLDS
    found = {}
    for name in IMPUTERS:
        keys = [key for key in results[0][name] if key != "inside"]
        lines = {}
        for key in keys:
            values = np.array([line[name][key] for line in results])
            runs = [values[by_run == k].mean() for k in range(seeds)]
            baseline = np.array([line[BASELINE][key] for line in results])
            gaps = [(values - baseline)[by_run == k].mean() for k in range(seeds)]
            lines[key] = {
                "mean": float(np.mean(runs)),
                "sd": float(np.std(runs, ddof=1)) if seeds > 1 else 0.0,
                "more than baseline": float(np.mean(gaps)),
                "standard error": (
                    float(np.std(gaps, ddof=1) / np.sqrt(seeds)) if seeds > 1 else 0.0
                ),
            }
        found[name] = lines
    shares = [line[OURS]["inside"] for line in results]
    found[OURS]["inside"] = [float(x) for x in np.mean(shares, axis=0)]
    return found


def format_verdict(found):
    """Compare TableImputer with the baseline, by score and by seconds."""
    ours = found[OURS]
    words = []
    for key in ("linear", "forest"):
        gap, error = ours[key]["more than baseline"], ours[key]["standard error"]
        better = "better" if gap > error else "as good" if gap >= -error else "worse"
        words.append(f"{key} {better}")
    faster = found[BASELINE]["seconds"]["mean"] / ours["seconds"]["mean"]
    return ", ".join([*words, f"{faster:.1f}x faster"])


def table_lines(name, missing, found):
    """Yield the lines of the printed table."""
    for imputer, parts in found.items():
        line = {"table": name, "missing": f"{missing:.0%}", "imputer": imputer}
        for key in ("linear", "forest", "rmse train", "rmse test", "seconds"):
            digits = 4 if key in ("linear", "forest") else 3
            part = parts[key]
            line[key] = f"{part['mean']:.{digits}f} ± {part['sd']:.{digits}f}"
        line["verdict"] = format_verdict(found) if imputer == OURS else ""
        yield line


# --- categories ----------------------------------------------------------------------


def load_mixed_table(name):
    """Load a table with every third column in three bins, every fourth Boolean."""
    import pandas as pd

    data = getattr(datasets, f"load_{name}")()
    frame = pd.DataFrame(data.data, columns=list(map(str, data.feature_names)))
    for j, column in enumerate(list(frame)):
        if j % 3 == 0:
            low, high = frame[column].quantile([1 / 3, 2 / 3])
            bins = np.digitize(frame[column], [low, high])
            frame[column] = pd.Categorical.from_codes(
                bins, ["low", "middle", "high"], ordered=True
            )
        elif j % 4 == 0:
            frame[column] = (frame[column] > frame[column].median()).astype("boolean")
    if SETS[name]:
        frame["class"] = pd.Categorical(data.target_names[data.target])
    return frame


def encode(frame):
    """Encode columns as numbers, categories by their codes."""
    import pandas as pd

    codes = {}
    for name, column in frame.items():
        if isinstance(column.dtype, pd.CategoricalDtype):
            place = column.cat.codes.to_numpy().astype(float)
            codes[name] = np.where(place < 0, np.nan, place)
        else:
            codes[name] = column.to_numpy(dtype=float, na_value=np.nan)
    return pd.DataFrame(codes)


def check_by_codes(imputer, frame, incomplete, hidden):
    """Correctness of a numerical imputer on category codes, rounded."""
    truth, filled = encode(frame), imputer.fit_transform(encode(incomplete).to_numpy())
    return [
        (np.rint(filled[:, j]) == truth.iloc[:, j])[hidden[:, j]]
        for j, dtype in enumerate(frame.dtypes)
        if not str(dtype).startswith("float")
    ]


def measure_categories(name, missing, seeds):
    """Measure the share of held-out categories and Booleans imputed correctly."""
    frame = load_mixed_table(name)
    text = [not str(dtype).startswith("float") for dtype in frame.dtypes]
    shares = {OURS: [], f"{BASELINE} on codes": [], "most frequent": []}
    for seed in range(seeds):
        hidden = np.random.default_rng(seed).random(frame.shape) < missing
        incomplete = frame.mask(hidden)
        filled = TableImputer().fit_transform(incomplete)
        correct = [
            (filled.iloc[:, j] == frame.iloc[:, j]).to_numpy(dtype=bool)[hidden[:, j]]
            for j in np.flatnonzero(text)
        ]
        shares[OURS].append(np.mean(np.concatenate(correct)))
        baseline = check_by_codes(
            IterativeImputer(random_state=0), frame, incomplete, hidden
        )
        shares[f"{BASELINE} on codes"].append(np.mean(np.concatenate(baseline)))
        mode = SimpleImputer(strategy="most_frequent")
        usual = check_by_codes(mode, frame, incomplete, hidden)
        shares["most frequent"].append(np.mean(np.concatenate(usual)))
    return {
        k: {"mean": float(np.mean(v)), "sd": float(np.std(v))}
        for k, v in shares.items()
    }


COLORS = {"TableImputer": "#0072B2", "KNNImputer": "#E69F00"}
COLORS |= {"SimpleImputer": "#999999", "IterativeImputer": "#D55E00"}


def draw(results, path):
    """Plot score differences to the baseline with standard errors, and seconds."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 3, figsize=(9.6, 3.4), layout="constrained")
    names = [name.replace("_", " ") for name in results]
    places = np.arange(len(names))[::-1]
    for axes, key in zip(panels, ("linear", "forest", "seconds"), strict=True):
        for k, (imputer, color) in enumerate(COLORS.items()):
            parts = [found[imputer][key] for found in results.values()]
            at = places + 0.18 * (1.5 - k)
            if key == "seconds":
                axes.plot([p["mean"] for p in parts], at, "o", color=color, ms=5)
                continue
            gaps = [p["more than baseline"] for p in parts]
            errors = [p["standard error"] for p in parts]
            axes.errorbar(
                gaps, at, xerr=errors, fmt="o", color=color, ms=5, label=imputer
            )
        axes.set_yticks(places, names if axes is panels[0] else [""] * len(names))
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="x", color="#e5e5e5")
        if key != "seconds":
            axes.locator_params(axis="x", nbins=4)
    panels[0].set(title="linear predictor", xlabel=f"score minus {BASELINE}'s")
    panels[1].set(title="random forest", xlabel=f"score minus {BASELINE}'s")
    panels[2].set(title="time", xlabel="seconds, fit and impute", xscale="log")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    figure.savefig(path, dpi=110)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--json", default=None)
    parser.add_argument("--figure", default=None)
    options = parser.parse_args()
    if options.sets == "none":
        draw(json.loads(Path(options.json).read_text())["sets"], options.figure)
        return
    warnings.simplefilter("ignore")  # IterativeImputer's convergence warnings
    TableImputer().fit_transform(np.random.default_rng(0).random((30, 4)))  # compiles
    results, lines, cats = {}, [], []
    for name in options.sets.split(","):
        for missing in (0.2, 0.4):
            found = measure(name, missing, options.seeds)
            correct = measure_categories(name, missing, options.seeds)
            results[f"{name} {missing:.0%}"] = {**found, "categories": correct}
            lines += table_lines(name, missing, found)
            shares = {k: f"{v['mean']:.3f} ± {v['sd']:.3f}" for k, v in correct.items()}
            covered = ", ".join(f"{x:.3f}" for x in found[OURS]["inside"])
            rate = f"{missing:.0%}"
            cats.append({"table": name, "missing": rate, **shares, "coverage": covered})
            print(lines[-len(IMPUTERS)], cats[-1], flush=True)
            about = {"versions": versions(), "seeds": options.seeds, "levels": LEVELS}
            write_json(options.json, {**about, "sets": results})
    print_table(lines)
    print_table(cats)
    if options.figure:
        draw(results, options.figure)


if __name__ == "__main__":
    main()
