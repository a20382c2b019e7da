"""Errors of counterfactuals on panels and of filled gaps in sensor logs.

Usage: NCARL_DATA=... python benchmarks/panels.py [--parts panels,logs,plain]
       [--json benchmarks/results/panels.json] [--figures docs/images]

``--figures`` saves the figures of the gallery's examples, without any measurement.

Panels. Units that were never treated are considered treated in turn: the values of one
unit from ``start`` on are held out, and imputed from all other entries. 38 control
states of the smoking panel from 1989 on, and 16 regions of Spain (without the Basque
Country and Spain as a whole) from 1975 on. "error" is the root mean square over all
held-out entries; "error of mean" is that of the mean of each unit's held-out entries,
which is the error of an average effect. The strength of the nuclear norm is selected on
held-out observed entries; synthetic control uses non-negative weights that sum to one
and best fit the years before. Coverage of ``counterfactual``: intervals without
placebos for each unit; with placebos, each unit against the runs of all others.

Logs. Traffic (207 sensors, 7 days of 5 minutes) and parking (30 car parks, 77 days of
18 half-hours). Held out: runs of each sensor at independent times (20% in all), all
sensors at once (10% of the times), 40% at random, one day per sensor. All with seed 0
(traffic) or seeds 0 to 2 (parking); settings were chosen with seeds from 100 on and,
for traffic, on every second sensor, except that two numbers of steps are tried, which
was decided by a result with seed 0. ``plain`` adds BayesianNCARL(), which does not use
time.
"""

from __future__ import annotations

import argparse
import json
import runpy
import time
import warnings
from pathlib import Path

import numpy as np
from accuracy_sets import hold_out
from common import data_folder, print_table, versions, write_json
from contenders import BASELINES
from scipy.optimize import nnls
from sklearn.impute import KNNImputer

from ncarl import BayesianNCARL, masks
from ncarl.metrics import coverage, rmse
from ncarl.panel import GapFiller, counterfactual
from ncarl.panel.model import Placebos, entry_scores, group_scores, mean_effect_std

LEVELS = (0.5, 0.8, 0.95)


# --- panels --------------------------------------------------------------------------


def load_panels():
    """Yield name, values of never-treated units and first held-out column."""
    folder = data_folder()
    smoking = np.load(folder / "california_smoking.npz", allow_pickle=False)
    yield "smoking", smoking["outcome"][1:], 19
    basque = np.load(folder / "basque_gdp.npz", allow_pickle=False)
    names = [str(unit) for unit in basque["unit"]]
    kept = [k for k, u in enumerate(names) if k > 0 and "Basque" not in u]
    yield "basque", basque["outcome"][kept], 20


def predict_by_differences(X, unit, start):
    """Difference in differences: mean of the others, shifted to the unit's level."""
    others = np.delete(X, unit, axis=0)
    level = X[unit, :start].mean() - others[:, :start].mean()
    return others[:, start:].mean(axis=0) + level


def predict_by_synthetic_control(X, unit, start):
    """Predict by a mean of the others with weights that fit the years before."""
    others = np.delete(X, unit, axis=0)
    heavy = 1e3 * np.abs(others).max()  # makes the weights sum to one
    ones = np.full((1, len(others)), heavy)
    weights = nnls(
        np.vstack([others[:, :start].T, ones]), np.append(X[unit, :start], heavy)
    )[0]
    return weights @ others[:, start:]


def predict_by_nuclear_norm(X, unit, start):
    """Predict by the nuclear norm with two-way effects, tuned by cross-validation."""
    hidden = np.zeros(X.shape, dtype=bool)
    hidden[unit, start:] = True
    return BASELINES["nuclear norm + effects"](hold_out(X, hidden))


def predict_by_bayes(X, unit, start):
    """Predict by BayesianNCARL with its defaults."""
    Y = X.copy()
    Y[unit, start:] = np.nan
    return BayesianNCARL().fit(Y).transform(Y)[unit, start:]


def measure_panel(name, X, start):
    """Measure errors of all methods on one panel."""
    methods = {
        "difference in differences": predict_by_differences,
        "synthetic control": predict_by_synthetic_control,
        "nuclear norm, two-way effects": predict_by_nuclear_norm,
        "BayesianNCARL()": predict_by_bayes,
    }
    truth, lines = X[:, start:], []
    for method, fill in methods.items():
        start_time = time.perf_counter()
        guess = np.array([fill(X, unit, start) for unit in range(len(X))])
        lines.append(panel_line(name, method, truth, guess, start_time, len(X)))
    start_time = time.perf_counter()
    runs = [
        counterfactual(X, unit, start=start, placebos=False) for unit in range(len(X))
    ]
    guess = np.array([run.expected[u, start:] for u, run in enumerate(runs)])
    lines.append(panel_line(name, "counterfactual()", truth, guess, start_time, len(X)))
    return lines, measure_coverage(X, start, runs)


def panel_line(name, method, truth, guess, start_time, count):
    """Line of the table."""
    return {
        "panel": name,
        "method": method,
        "error": rmse(truth, guess),
        "median of units": float(
            np.median(np.sqrt(np.square(truth - guess).mean(axis=1)))
        ),
        "error of mean": rmse(truth.mean(axis=1), guess.mean(axis=1)),
        "seconds a unit": (time.perf_counter() - start_time) / count,
    }


def measure_coverage(X, start, runs):
    """Measure the coverage of held-out values and of their means."""
    found = {"levels": list(LEVELS), "entries": [], "means": []}
    found |= {"entries with placebos": [], "means with placebos": []}
    for level in LEVELS:
        inside, means = [], []
        for unit, run in enumerate(runs):
            again = run.__class__(
                run.panel, run.treated, level, run.completed, run.selection, None, 0
            )
            low, high = again.low[unit, start:], again.high[unit, start:]
            inside.append(coverage(X[unit, start:], low, high))
            means.append(again.average.low <= 0.0 <= again.average.high)
        found["entries"].append(float(np.mean(inside)))
        found["means"].append(float(np.mean(means)))
    # A copy of the first unit is treated, so that all units have a placebo run.
    placebos = counterfactual(np.vstack([X[:1], X]), 0, start=start).placebos
    courses = placebos.trajectories[0]
    for level in LEVELS:
        inside, means = [], []
        for unit, course in enumerate(courses):
            others = [c for k, c in enumerate(courses) if k != unit]
            units = np.delete(placebos.units, unit)
            down, up = entry_scores(
                Placebos(units, [others], placebos.std_factors)
            ).quantiles(level)
            z = course.errors / course.deviations
            inside.append(np.mean((z >= -down) & (z <= up)))
            down, up = group_scores([[c] for c in others], len(others)).quantiles(level)
            z = np.mean(course.errors) / mean_effect_std([course])
            means.append(-down <= z <= up)
        found["entries with placebos"].append(float(np.mean(inside)))
        found["means with placebos"].append(float(np.mean(means)))
    return found


# --- logs ----------------------------------------------------------------------------


def load_logs():
    """Yield name, values (times x sensors), steps per day, seeds."""
    folder = data_folder()
    traffic = np.load(folder / "losloop_speed.npz", allow_pickle=False)["speed"]
    yield "traffic", traffic.T.astype(float), 288, (0,)
    parking = np.load(folder / "birmingham_parking.npz", allow_pickle=False)["tensor"]
    X = parking.astype(float).reshape(30, -1).T
    yield "parking", np.where(X == 0.0, np.nan, X), 18, (0, 1, 2)


def make_masks(X, period, seed):
    """Masks of held-out entries by name."""
    hour = 12 if period == 288 else 2
    shape, draw = X.shape, np.random.default_rng(seed)
    short, long, blackout = max(2, hour // 2), 4 * hour, (2 if hour == 12 else 3) * hour
    days = draw.integers(len(X) // period, size=shape[1])
    at_once = masks.time_gaps((len(X), 1), length=blackout, fraction=0.1, rng=seed)
    hidden = {
        f"{_format_hours(short, hour)} of a sensor": masks.time_gaps(
            shape, length=short, fraction=0.2, rng=seed
        ),
        "4 h of a sensor": masks.time_gaps(shape, length=long, fraction=0.2, rng=seed),
        f"{_format_hours(blackout, hour)} of all": np.repeat(at_once, shape[1], axis=1),
        "40% at random": np.random.default_rng(seed).random(shape) < 0.4,
        "a day of a sensor": (np.arange(len(X)) // period)[:, None] == days,
    }
    return {name: mask & ~np.isnan(X) for name, mask in hidden.items()}


def _format_hours(steps, hour):
    return f"{steps / hour:g} h"


def fill_linear(X, period):
    """Interpolate linearly between the entries around a gap."""
    filled, steps = X.copy(), np.arange(len(X))
    for column in filled.T:
        gap = np.isnan(column)
        column[gap] = np.interp(steps[gap], steps[~gap], column[~gap])
    return filled


def fill_seasonal_mean(X, period):
    """Impute by the mean of the same time on other days."""
    filled = X.copy()
    for first in range(period):
        rows = filled[first::period]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            means = np.nanmean(rows, axis=0)
        means = np.where(np.isnan(means), np.nanmean(X, axis=0), means)
        filled[first::period] = np.where(np.isnan(rows), means, rows)
    return filled


def fill_nearest_day(X, period):
    """Impute by the same time on the nearest day with a value."""
    filled = X.copy()
    for days in range(1, len(X) // period):
        for away in (days * period, -days * period):
            moved = np.full_like(X, np.nan)
            if away > 0:
                moved[away:] = X[:-away]
            else:
                moved[:away] = X[-away:]
            filled = np.where(np.isnan(filled), moved, filled)
    return fill_seasonal_mean(filled, period)


def fill_knn(X, period):
    """Impute by the mean over the most similar times (scikit-learn)."""
    return KNNImputer(keep_empty_features=True).fit_transform(X)


METHODS = {
    "linear": fill_linear,
    "same time, nearest day": fill_nearest_day,
    "mean of the time of day": fill_seasonal_mean,
    "KNNImputer": fill_knn,
}


def measure_log(name, X, period, seeds):
    """Measure errors and coverage on one log."""
    lines = {}
    for seed in seeds:
        for kind, hidden in make_masks(X, period, seed).items():
            given, truth = np.where(hidden, np.nan, X), X[hidden]
            line = lines.setdefault(kind, {"log": name, "hidden": kind, "count": 0})
            start_time = time.perf_counter()
            filler = GapFiller(period=period).fit(given)
            add_errors(line, "fill_gaps", truth, filler.transform(given)[hidden])
            line["seconds"] = time.perf_counter() - start_time
            for way, fill in METHODS.items():
                add_errors(line, way, truth, fill(given, period)[hidden])
            line["count"] += len(truth)
            for level in LEVELS:
                low, high = filler.predict_interval(given, level=level)
                inside = (low[hidden] <= truth) & (truth <= high[hidden])
                key = f"inside {level:.0%}"
                line[key] = line.get(key, 0) + int(inside.sum())
            print(f"  {name}, {kind}, seed {seed} done", flush=True)
    return [average_line(line, ("fill_gaps", *METHODS)) for line in lines.values()]


def measure_plain(name, X, period, seeds):
    """Measure errors of BayesianNCARL, which does not use time."""
    lines = {}
    for seed in seeds:
        for kind, hidden in make_masks(X, period, seed).items():
            given, truth = np.where(hidden, np.nan, X), X[hidden]
            line = lines.setdefault(kind, {"log": name, "hidden": kind, "count": 0})
            start_time = time.perf_counter()
            filled = BayesianNCARL().fit(given).transform(given)
            add_errors(line, "BayesianNCARL()", truth, filled[hidden])
            line["seconds"] = time.perf_counter() - start_time
            line["count"] += len(truth)
            print(f"  {name}, {kind}, seed {seed}: {line}", flush=True)
    return [average_line(line, ("BayesianNCARL()",)) for line in lines.values()]


def add_errors(line, way, truth, guess):
    """Add the sum of squared errors to that of earlier seeds."""
    line[way] = line.get(way, 0.0) + float(np.square(truth - guess).sum())


def average_line(line, ways):
    """Replace sums by root mean squares and shares."""
    count = line.pop("count")
    for key, value in line.items():
        if key in ways:
            line[key] = float(np.sqrt(value / count))
        elif key.startswith("inside"):
            line[key] = value / count
    return line


FIGURES = {
    "plot_panel.py": ("panel-effect.png", "panel-placebos.png"),
    "plot_sensors.py": ("panel-gaps.png",),
}


def save_figures(folder):
    """Run the examples and save their figures."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    for script, names in FIGURES.items():
        plt.close("all")
        runpy.run_path(str(Path(__file__).parents[1] / "examples" / script))
        for number, name in zip(plt.get_fignums(), names, strict=True):
            plt.figure(number).savefig(
                Path(folder) / name, dpi=100, metadata={"Software": None}
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", default="panels,logs,plain")
    parser.add_argument("--json", default=None)
    parser.add_argument("--figures", default=None)
    options = parser.parse_args()
    if options.figures:
        warnings.simplefilter("ignore")  # figures are not shown
        save_figures(options.figures)
        return
    if data_folder() is None:
        raise SystemExit("NCARL_DATA must be the folder of the data sets")
    warnings.simplefilter("ignore")
    found = {}
    if options.json and Path(options.json).exists():
        found = json.loads(Path(options.json).read_text())
    found["machine"] = versions()
    parts = options.parts.split(",")
    if "panels" in parts:
        found["panels"], found["coverage"] = [], {}
        for name, X, start in load_panels():
            lines, found["coverage"][name] = measure_panel(name, X, start)
            found["panels"] += lines
            print_table(lines)
            print(name, found["coverage"][name])
            write_json(options.json, found)
    for part, table in (("logs", measure_log), ("plain", measure_plain)):
        if part in parts:
            found[part] = []
            for name, X, period, seeds in load_logs():
                lines = table(name, X, period, seeds)
                found[part] += lines
                print_table(lines)
                write_json(options.json, found)


if __name__ == "__main__":
    main()
