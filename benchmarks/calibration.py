"""Prediction intervals and standard deviations of BayesianNCARL on held-out entries.

Usage: NCARL_DATA=... python benchmarks/calibration.py [--masks 20] [--sets ...]
       [--engine auto] [--json results/calibration.json]
       [--figure docs/images/reliability.png]

For each mask, BayesianNCARL is fitted with its defaults without the held-out entries.
Coverage is the share of them inside ``predict_interval`` of each level, pooled over the
masks; for comparison, that of Gaussian intervals from the standard deviations of
``predict``. "z2" is the mean square of errors over standard deviations, "1.96 std" the
share within 1.96 of them. "draws" is the root mean square of the deviations of draws of
``sample`` from their mean, over the standard deviations of ``predict``; "z2 draws" is
the mean squared error of their mean over their variance, without the error of the mean
of few draws. Bounds are not applied to draws. Held-out values are as observed: in
synthetic data they include noise. Jester is restricted to a fixed random 5,000 of its
users; the split of ml-100k-u1 is fixed.

An existing JSON file is updated set by set; the figure shows all sets in it, and
``--sets none`` only draws the figure. Data sets that are not available are skipped.
"""

from __future__ import annotations

import argparse
import time
import warnings
from dataclasses import replace
from functools import partial

import numpy as np
from accuracy_sets import (
    TABLES,
    Spec,
    is_available,
    jester,
    losloop,
    machine,
    make_estimator,
    predefined_split,
    random_holdout,
    read_sets,
    select_specs,
    smoking,
    synthetic,
    table,
    warm_up,
)
from common import print_table, write_json
from scipy.stats import norm

LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
#: Target range of the coverage at these levels.
TARGETS = {0.5: (0.47, 0.53), 0.8: (0.77, 0.83), 0.95: (0.93, 0.97)}
#: Target ranges of the mean squared z and of the share within 1.96 std.
SQUARE_TARGET, SHARE_TARGET = (0.95, 1.05), (0.935, 0.965)
#: Draws of ``sample``.
N_DRAWS = 5
#: Colors of Okabe and Ito; line styles distinguish colors that are used twice.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
STYLES = ("-", "--")


def all_specs():
    """All data sets."""
    parts = [
        *((f"tables-{t}", "20% held out", partial(table, t)) for t in TABLES),
        ("ml-100k", "20% held out", partial(random_holdout, "ml-100k", 0.2)),
        ("ml-100k-u1", "test set u1", partial(predefined_split, "ml-100k", "u1_test")),
        ("ml-1m", "10% held out", partial(random_holdout, "ml-1m", 0.1)),
        ("jester", "5,000 users, 30% held out", partial(jester, users=5000)),
        ("flixster", "10% held out", partial(random_holdout, "flixster", 0.1)),
        ("losloop-random", "40% held out", partial(losloop, "random")),
        ("losloop-day", "one day per sensor", partial(losloop, "day")),
        ("synthetic-500", "500x300, 80% missing", noisy_synthetic),
        ("smoking", "12 years of 8 states", smoking),
    ]
    files = {
        "ml-100k": "ml-100k.npz",
        "ml-100k-u1": "ml-100k.npz",
        "ml-1m": "ml-1m.npz",
        "jester": "jester-1.npz",
        "flixster": "flixster.npz",
        "losloop-random": "losloop_speed.npz",
        "losloop-day": "losloop_speed.npz",
        "smoking": "california_smoking.npz",
    }
    fixed = {"ml-100k-u1": 1}
    return [
        Spec(*part, needs=files.get(part[0]), repeats=fixed.get(part[0], 10**6))
        for part in parts
    ]


def noisy_synthetic(seed):
    """Paper-like data; held-out values include noise."""
    return synthetic(500, 0.8, seed, noisy=True)


class Coverage:
    """Coverage and width of one kind of interval over the masks."""

    def __init__(self):
        self.hits, self.widths, self.by_mask = [], [], []

    def add(self, truth, intervals):
        """Add one mask, with intervals for each level."""
        inside = [(lo <= truth) & (truth <= hi) for lo, hi in intervals]
        self.hits.append([int(x.sum()) for x in inside])
        self.widths.append([float(np.sum(hi - lo)) for lo, hi in intervals])
        self.by_mask.append([float(x.mean()) for x in inside])

    def summary(self, count):
        """Pool the masks; "spread" is the sd of the coverage between them."""
        return {
            "coverage": [float(x) for x in np.sum(self.hits, axis=0) / count],
            "width": [float(x) for x in np.sum(self.widths, axis=0) / count],
            "spread": [float(x) for x in np.std(self.by_mask, axis=0)],
        }


class Deviations:
    """Squared errors over squared standard deviations, of predictions and draws."""

    def __init__(self):
        names = ("count", "z2", "within", "draws", "draw errors")
        self.sums = {name: [] for name in names}

    def add(self, model, split, guess, std):
        """Add one mask."""
        valid = std > 0.0  # 0 in columns that are constant without held-out entries
        z = (split.truth - guess)[valid] / std[valid]
        draws = draw_entries(model, split.rows[valid], split.cols[valid])
        mean, squares = draws.mean(axis=0), std[valid] ** 2
        self.sums["count"].append(len(z))
        self.sums["z2"].append(float(z @ z))
        self.sums["within"].append(int(np.sum(np.abs(z) <= 1.96)))
        self.sums["draws"].append(float(np.sum(draws.var(axis=0, ddof=1) / squares)))
        errors = (split.truth[valid] - mean) ** 2 / (1.0 + 1.0 / N_DRAWS)
        self.sums["draw errors"].append(float(np.sum(errors / squares)))

    def summary(self):
        """Pool the masks; "spread" is the sd of the mean squared z between them."""
        pooled = {name: float(np.sum(sums)) for name, sums in self.sums.items()}
        by_mask = np.divide(self.sums["z2"], self.sums["count"])
        return {
            "mean_squared_z": pooled["z2"] / pooled["count"],
            "spread": float(np.std(by_mask)),
            "within_1.96": pooled["within"] / pooled["count"],
            "draws_rms": float(np.sqrt(pooled["draws"] / pooled["count"])),
            "draws_mean_squared_z": pooled["draw errors"] / pooled["draws"],
        }


def draw_entries(model, rows, cols):
    """Draws of some entries of the matrix of the fit, without bounds."""
    inner = model.model_
    n = len(inner.bounds.low)
    bounds = replace(inner.bounds, low=np.full(n, -np.inf), high=np.full(n, np.inf))
    model.model_ = replace(inner, bounds=bounds)
    draws = model.sample(N_DRAWS)[:, rows, cols]
    model.model_ = inner
    return draws


def measure(spec, masks, engine):
    """Measure coverage on one data set."""
    intervals, gaussian, deviations = Coverage(), Coverage(), Deviations()
    count, seconds, model = 0, [], None
    masks = min(masks, spec.repeats)
    for k in range(masks):
        split = spec.draw(k)
        start = time.perf_counter()
        model = make_estimator(engine).fit(split.X)
        at = (split.rows, split.cols)
        intervals.add(
            split.truth, [model.predict_interval(*at, level=p) for p in LEVELS]
        )
        seconds.append(time.perf_counter() - start)
        guess, sd = model.predict(*at, return_std=True)
        reach = [norm.ppf(0.5 + p / 2.0) * sd for p in LEVELS]
        gaussian.add(split.truth, [(guess - x, guess + x) for x in reach])
        deviations.add(model, split, guess, sd)
        count += len(split.truth)
    return {
        "protocol": spec.protocol,
        "masks": masks,
        "entries": count,
        "levels": list(LEVELS),
        "intervals": intervals.summary(count),
        "gaussian": gaussian.summary(count),
        "std": deviations.summary(),
        "seconds": float(np.mean(seconds)),
        "machine": machine(getattr(model, "engine_", engine)),
    }


def table_line(name, result):
    """Line of the printed table: coverage and mean width at levels with targets."""
    line = {"set": name, "masks": result["masks"], "entries": result["entries"]}
    met = True
    for level, (low, high) in TARGETS.items():
        k = result["levels"].index(level)
        percent = f"{100 * level:.0f}%"
        coverage = result["intervals"]["coverage"][k]
        met = met and low <= coverage <= high
        line[percent] = f"{100 * coverage:.1f}"
        line[f"width {percent}"] = result["intervals"]["width"][k]
        line[f"Gaussian {percent}"] = f"{100 * result['gaussian']['coverage'][k]:.1f}"
    std = result["std"]
    square, share = std["mean_squared_z"], std["within_1.96"]
    right = SQUARE_TARGET[0] <= square <= SQUARE_TARGET[1]
    right = right and SHARE_TARGET[0] <= share <= SHARE_TARGET[1]
    return {
        **line,
        "in range": "yes" if met else "no",
        "z2": f"{square:.3f}",
        "1.96 std": f"{100 * share:.1f}",
        "draws": f"{std['draws_rms']:.3f}",
        "z2 draws": f"{std['draws_mean_squared_z']:.3f}",
        "std in range": "yes" if right else "no",
        "seconds": result["seconds"],
    }


def draw(results, path):
    """Plot coverage against nominal level, per data set and kind of interval."""
    import matplotlib.pyplot as plt

    figure, both = plt.subplots(1, 2, figsize=(7.2, 4.4), layout="constrained")
    panels = {"intervals": "predict_interval", "gaussian": "Gaussian, predict's sd"}
    for axes, (kind, title) in zip(both, panels.items(), strict=True):
        axes.plot([0, 100], [0, 100], color="#999999", lw=1, zorder=1)
        for level, (low, high) in TARGETS.items():
            height = 100 * (high - low)
            axes.bar(100 * level, height, 4.0, 100 * low, color="#cfcfcf", zorder=0)
        for k, (name, result) in enumerate(results.items()):
            axes.plot(
                100 * np.array(result["levels"]),
                100 * np.array(result[kind]["coverage"]),
                color=COLORS[k % len(COLORS)],
                ls=STYLES[k // len(COLORS) % len(STYLES)],
                marker="o",
                ms=3,
                lw=1.3,
                label=name.removeprefix("tables-").replace("_", " "),
            )
        axes.set(xlim=(5, 100), ylim=(5, 100), aspect="equal")
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("nominal level, %")
        axes.spines[["top", "right"]].set_visible(False)
    both[0].set_ylabel("coverage of held-out entries, %")
    handles, labels = both[0].get_legend_handles_labels()
    handles.append(plt.Rectangle((0, 0), 1, 1, color="#cfcfcf"))
    figure.legend(
        handles,
        [*labels, "target"],
        loc="outside lower center",
        ncols=4,
        fontsize=9,
        frameon=False,
    )
    figure.savefig(path, dpi=150)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--masks", type=int, default=20)
    parser.add_argument("--sets", default=None, help="names or prefixes of data sets")
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--json", default=None)
    parser.add_argument("--figure", default=None)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    results = read_sets(options.json)
    wanted = [] if options.sets == "none" else select_specs(all_specs(), options.sets)
    if wanted:
        warm_up(options.engine)
    lines = []
    for spec in wanted:
        if not is_available(spec):
            print(f"{spec.name}: skipped, {spec.needs} is not in NCARL_DATA")
            continue
        results[spec.name] = measure(spec, options.masks, options.engine)
        lines.append(table_line(spec.name, results[spec.name]))
        print(lines[-1], flush=True)
        write_json(options.json, {"sets": results})
    if lines:
        print_table(lines)
    if options.figure and results:
        order = [spec.name for spec in all_specs()]
        draw({name: results[name] for name in order if name in results}, options.figure)


if __name__ == "__main__":
    main()
