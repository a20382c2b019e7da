"""Error of BayesianNCARL on held-out entries, with baselines and published results.

Usage: NCARL_DATA=... python benchmarks/accuracy.py [--sets ml-100k,tables,...]
       [--quick] [--only ours|baselines] [--engine auto] [--sides auto]
       [--json results/accuracy.json]

All methods run with their defaults and fixed seeds, and nothing is selected on held-out
entries. The column "protocol" says what is held out (see accuracy_sets.py). Ratings are
clipped to their scale, for all methods. "ours" is the RMSE (synthetic data: the
relative error against the clean matrix), averaged over the repetitions, for "smoking"
pooled over them. "best baseline" is from the same run; "<= baseline" says whether
"ours" is at most that. "<= target" refers to "target" or, without one, to the best
baseline. "published" are results on the same protocol. Seconds are one fit and the
prediction of the held-out entries, after a warm-up.

Results are written after each data set. An existing JSON file is updated set by set, so
that results of several machines can be combined; each set keeps its versions. Results
with ``--sides`` other than "auto" are stored as "NAME/SIDES". ``--quick`` runs one
repetition. Data sets that are not available are skipped.
"""

from __future__ import annotations

import argparse
import time
import warnings
from functools import partial

import numpy as np
from accuracy_sets import (
    SIZES,
    TABLES,
    Spec,
    is_available,
    jester,
    losloop,
    machine,
    make_estimator,
    predefined_split,
    random_fold,
    random_holdout,
    read_sets,
    select_specs,
    smoking,
    synthetic,
    table,
    warm_up,
)
from common import print_table, write_json
from contenders import BASELINES

from ncarl.metrics import relative_rmse, rmse

STARS = (1.0, 5.0)
#: Errors of a two-way bias model on such data.
BIAS_ERRORS = {
    (500, 0.8): 0.0345,
    (500, 0.9): 0.0370,
    (1500, 0.8): 0.0244,
    (1500, 0.9): 0.0251,
}


def rating_specs():
    """Ratings, with published results."""
    return [
        Spec(
            "ml-100k-5fold",
            "random 5-fold",
            partial(random_fold, "ml-100k"),
            repeats=5,
            needs="ml-100k.npz",
            scale=STARS,
            target=0.886,
            stretch=0.883,
            published="SVD++ 0.919 (Surprise)",
        ),
        Spec(
            "ml-100k-u1",
            "official u1",
            partial(predefined_split, "ml-100k", "u1_test"),
            needs="ml-100k.npz",
            scale=STARS,
            target=0.896,
            stretch=0.889,
            published="GLocal-K 0.8889 (selected on test set), GC-MC 0.905, IGMC 0.905",
        ),
        Spec(
            "ml-1m-90",
            "90/10, 3 splits",
            partial(random_holdout, "ml-1m", 0.1),
            repeats=3,
            needs="ml-1m.npz",
            scale=STARS,
            target=0.822,
            stretch=0.818,
            published="GLocal-K 0.8227 (selected on test set), GC-MC 0.832",
        ),
        Spec(
            "ml-1m-80",
            "80/20",
            partial(random_holdout, "ml-1m", 0.2),
            needs="ml-1m.npz",
            scale=STARS,
            target=0.828,
            published="SVD++ 0.862 (Surprise)",
        ),
        Spec(
            "flixster",
            "fixed split",
            partial(predefined_split, "flixster", "test"),
            needs="flixster.npz",
            scale=(0.5, 5.0),
            target=0.888,
            stretch=0.872,
            published="IGMC 0.872, GC-MC 0.917",
        ),
        Spec(
            "jester",
            "30% held out",
            jester,
            needs="jester-1.npz",
            scale=(-10.0, 10.0),
            baselines=("two-way means", "NCARL two-way", "NCARL gamma 1 two-way"),
            target=4.067,
        ),
    ]


def other_specs():
    """Tables, sensors, synthetic data and a panel, with baselines of the same run."""
    for name in TABLES:
        yield Spec(
            f"tables-{name}",
            "20% held out, 20 masks",
            partial(table, name),
            repeats=20,
            baselines=("KNNImputer", "IterativeImputer", "two-way means"),
        )
    for kind, text in (("random", "40% held out"), ("day", "one day per sensor")):
        yield Spec(
            f"losloop-{kind}",
            text,
            partial(losloop, kind),
            needs="losloop_speed.npz",
            baselines=("KNNImputer", "KNNImputer, transposed", "two-way means"),
        )
    for (size, missing), value in BIAS_ERRORS.items():
        m, n, rank, noise = SIZES[size]
        yield Spec(
            f"synthetic-{size}-{missing}",
            f"{m}x{n} rank {rank}, noise {noise}, {missing} missing",
            partial(synthetic, size, missing),
            repeats=3,
            baselines=("two-way means", f"NCARL as in quality.py ({size})", "NCARL()"),
            score="relative",
            target=value,
        )
    yield Spec(
        "smoking",
        "12 years of 8 states, 50 draws",
        smoking,
        repeats=50,
        needs="california_smoking.npz",
        baselines=(
            "two-way effects",
            "nuclear norm + effects",
            "nuclear norm after effects",
        ),
        score="pooled",
    )


def all_specs():
    """All data sets, in the order of the table."""
    return [*rating_specs(), *other_specs()]


class Errors:
    """Errors and seconds of one method over the repetitions of a data set."""

    def __init__(self, spec):
        self.spec, self.raw, self.errors, self.seconds = spec, [], [], []
        self.sum_squares, self.count = 0.0, 0

    def add(self, split, guess, seconds):
        """Add one repetition."""
        error = relative_rmse if self.spec.score == "relative" else rmse
        self.raw.append(error(split.truth, guess))
        if self.spec.scale is not None:
            guess = np.clip(guess, *self.spec.scale)
        self.errors.append(error(split.truth, guess))
        self.sum_squares += float(np.sum((split.truth - guess) ** 2))
        self.count += len(split.truth)
        self.seconds.append(seconds)

    def summary(self):
        """Summarize the repetitions for the JSON file."""
        mean = float(np.mean(self.errors))
        pooled = float(np.sqrt(self.sum_squares / self.count))
        return {
            "error": pooled if self.spec.score == "pooled" else mean,
            "mean_of_errors": mean,
            "pooled_rmse": pooled,
            "unclipped": float(np.mean(self.raw)),
            "errors": self.errors,
            "seconds": float(np.mean(self.seconds)),
        }


def measure(spec, options):
    """Measure BayesianNCARL and the baselines on one data set."""
    repeats = 1 if options.quick else spec.repeats
    ours, choices, engine = Errors(spec), [], None
    baselines = {name: Errors(spec) for name in spec.baselines}
    for k in range(repeats):
        split = spec.draw(k)
        if options.only != "baselines":
            model = make_estimator(options.engine, options.sides)
            start = time.perf_counter()
            guess = model.fit(split.X).predict(split.rows, split.cols)
            ours.add(split, guess, time.perf_counter() - start)
            choices.append(get_choices(model))
            engine = getattr(model, "engine_", options.engine)
        if options.only != "ours":
            for name, errors in baselines.items():
                start = time.perf_counter()
                guess = BASELINES[name](split)
                errors.add(split, guess, time.perf_counter() - start)
    result = {"protocol": spec.protocol, "score": spec.score}
    if options.only != "baselines":
        about = {"repeats": repeats, "machine": machine(engine)}
        result["ours"] = {**ours.summary(), "choices": choices, **about}
    if options.only != "ours":
        about = {"repeats": repeats, "machine": machine()}
        lines = {name: errors.summary() for name, errors in baselines.items()}
        result["baselines"] = {**about, "lines": lines}
    return result


def get_choices(model):
    """Parameters that the model selected or estimated."""
    names = ("sides_", "weight_", "n_iter_", "prior_strength_")
    values = {name.rstrip("_"): getattr(model, name, None) for name in names}
    return {name: _to_json(value) for name, value in values.items()}


def _to_json(value):
    """Convert a value to a type that JSON supports."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray | list | tuple):
        return [_to_json(part) for part in value]
    known = value is None or isinstance(value, str | int | float)
    return value if known else str(value)


def table_line(spec, key, result):
    """Line of the printed table."""
    ours, baselines = (
        result.get("ours"),
        result.get("baselines", {"lines": {}})["lines"],
    )
    best = min(baselines, key=lambda name: baselines[name]["error"], default=None)
    error = ours["error"] if ours else None
    beaten = None if best is None else baselines[best]["error"]
    target = spec.target if spec.target is not None else beaten
    sides = ours["choices"] if ours else []
    weights = [c["weight"] for c in sides if c["weight"] is not None]
    return {
        "set": key,
        "protocol": spec.protocol,
        "ours": _format_error(error),
        "best baseline": _format_error(beaten),
        "baseline": best,
        "<= baseline": _is_within(error, beaten),
        "target": spec.target,
        "stretch": spec.stretch,
        "<= target": _is_within(error, target),
        "seconds": ours["seconds"] if ours else None,
        "sides": "/".join(sorted({str(c["sides"]) for c in sides})),
        "weight": float(np.mean(weights)) if weights else None,
        "published": spec.published,
    }


def _is_within(error, limit):
    """Whether an error is within a limit; None if either is unknown."""
    if error is None or limit is None:
        return None
    return "yes" if error <= limit else "no"


def _format_error(value):
    return None if value is None else f"{value:.4f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", default=None, help="names or prefixes of data sets")
    parser.add_argument("--quick", action="store_true", help="one repetition")
    parser.add_argument("--only", choices=("ours", "baselines"), default=None)
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--sides", default="auto")
    parser.add_argument("--json", default=None)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    results, lines = read_sets(options.json), []
    if options.only != "baselines":
        warm_up(options.engine)
    for spec in select_specs(all_specs(), options.sets):
        if not is_available(spec):
            print(f"{spec.name}: skipped, {spec.needs} is not in NCARL_DATA")
            continue
        key = spec.name if options.sides == "auto" else f"{spec.name}/{options.sides}"
        results[key] = {**results.get(key, {}), **measure(spec, options)}
        line = table_line(spec, key, results[key])
        baselines = results[key].get("baselines", {"lines": {}})["lines"]
        parts = [
            f"{name} {baseline['error']:.4f}" for name, baseline in baselines.items()
        ]
        print(f"{key}: ours {line['ours']}; " + ", ".join(parts), flush=True)
        lines.append(line)
        write_json(options.json, {"sets": results})
    if lines:
        print_table(lines)


if __name__ == "__main__":
    main()
