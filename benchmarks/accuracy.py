"""Error of BayesianNCARL on hidden entries, beside baselines and published figures.

Usage: NCARL_DATA=... python benchmarks/accuracy.py [--sets ml-100k,tables,...]
       [--quick] [--only ours|baselines] [--engine auto] [--sides auto]
       [--json results/accuracy.json]

Everything runs with its defaults and fixed seeds, and nothing is chosen on hidden
entries. What is hidden stands in the column "protocol" (see accuracy_sets.py); ratings
are clipped to their scale, for every contender alike. "ours" is the RMSE (synthetic
data: the relative error against the clean matrix), averaged over the repetitions, for
"smoking" pooled over them. "best baseline" was measured in the same run; "beaten" says
whether ours is below it. "met" is about "target"; without one, the best baseline
is the target. "known" are published figures on the same protocol. Seconds are one fit
and the prediction of the hidden entries, after a warm-up.

Every set is written as soon as it is done. A JSON file that exists is added to, set by
set, so that sets measured on several machines come together; each keeps its versions.
``--sides`` other than "auto" is kept beside the rest, as "NAME/SIDES". ``--quick`` does
one repetition. Data sets that are not at hand are left out.
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
    at_hand,
    chosen,
    given_split,
    jester,
    losloop,
    machine,
    make_estimator,
    random_fold,
    random_part,
    read_sets,
    smoking,
    synthetic,
    table,
    warm_up,
)
from common import print_table, write_json
from contenders import BASELINES

from ncarl.metrics import relative_rmse, rmse

STARS = (1.0, 5.0)
#: Errors of a plain two-way bias model on such data.
YARDSTICK = {
    (500, 0.8): 0.0345,
    (500, 0.9): 0.0370,
    (1500, 0.8): 0.0244,
    (1500, 0.9): 0.0251,
}


def rating_specs():
    """Ratings, against published figures."""
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
            known="SVD++ 0.919 (Surprise)",
        ),
        Spec(
            "ml-100k-u1",
            "official u1",
            partial(given_split, "ml-100k", "u1_test"),
            needs="ml-100k.npz",
            scale=STARS,
            target=0.896,
            stretch=0.889,
            known="GLocal-K 0.8889 (picked on the test set), GC-MC 0.905, IGMC 0.905",
        ),
        Spec(
            "ml-1m-90",
            "90/10, 3 splits",
            partial(random_part, "ml-1m", 0.1),
            repeats=3,
            needs="ml-1m.npz",
            scale=STARS,
            target=0.822,
            stretch=0.818,
            known="GLocal-K 0.8227 (picked on the test set), GC-MC 0.832",
        ),
        Spec(
            "ml-1m-80",
            "80/20",
            partial(random_part, "ml-1m", 0.2),
            needs="ml-1m.npz",
            scale=STARS,
            target=0.828,
            known="SVD++ 0.862 (Surprise)",
        ),
        Spec(
            "flixster",
            "fixed split",
            partial(given_split, "flixster", "test"),
            needs="flixster.npz",
            scale=(0.5, 5.0),
            target=0.888,
            stretch=0.872,
            known="IGMC 0.872, GC-MC 0.917",
        ),
        Spec(
            "jester",
            "30% hidden",
            jester,
            needs="jester-1.npz",
            scale=(-10.0, 10.0),
            baselines=("two-way means", "NCARL two-way", "NCARL gamma 1 two-way"),
            target=4.067,
        ),
    ]


def other_specs():
    """Tables, sensors, synthetic data and a panel, against baselines of one run."""
    for name in TABLES:
        yield Spec(
            f"tables-{name}",
            "20% hidden, 20 masks",
            partial(table, name),
            repeats=20,
            baselines=("KNNImputer", "IterativeImputer", "two-way means"),
        )
    for kind, text in (("random", "40% hidden"), ("day", "a day of each sensor")):
        yield Spec(
            f"losloop-{kind}",
            text,
            partial(losloop, kind),
            needs="losloop_speed.npz",
            baselines=("KNNImputer", "KNNImputer, transposed", "two-way means"),
        )
    for (size, missing), value in YARDSTICK.items():
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
    """Every line, in the order of the table."""
    return [*rating_specs(), *other_specs()]


class Errors:
    """Errors and seconds of one contender over the repetitions of a set."""

    def __init__(self, spec):
        self.spec, self.raw, self.errors, self.seconds = spec, [], [], []
        self.sum_squares, self.count = 0.0, 0

    def add(self, split, guess, seconds):
        """One repetition."""
        error = relative_rmse if self.spec.score == "relative" else rmse
        self.raw.append(error(split.truth, guess))
        if self.spec.scale is not None:
            guess = np.clip(guess, *self.spec.scale)
        self.errors.append(error(split.truth, guess))
        self.sum_squares += float(np.sum((split.truth - guess) ** 2))
        self.count += len(split.truth)
        self.seconds.append(seconds)

    def summary(self):
        """What is kept of them."""
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
    """Ours and the baselines on one set."""
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
            choices.append(choices_of(model))
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


def choices_of(model):
    """What the model settled by itself."""
    names = ("sides_", "weight_", "n_iter_", "prior_strength_")
    values = {name.rstrip("_"): getattr(model, name, None) for name in names}
    return {name: _plain(value) for name, value in values.items()}


def _plain(value):
    """A value that JSON can hold."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray | list | tuple):
        return [_plain(part) for part in value]
    known = value is None or isinstance(value, str | int | float)
    return value if known else str(value)


def table_line(spec, key, result):
    """One line of the table."""
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
        "ours": _digits(error),
        "best baseline": _digits(beaten),
        "which": best,
        "beaten": _verdict(error, beaten),
        "target": spec.target,
        "stretch": spec.stretch,
        "met": _verdict(error, target),
        "seconds": ours["seconds"] if ours else None,
        "sides": "/".join(sorted({str(c["sides"]) for c in sides})),
        "weight": float(np.mean(weights)) if weights else None,
        "known": spec.known,
    }


def _verdict(error, limit):
    """Whether an error is within a limit; None where one of them is not known."""
    if error is None or limit is None:
        return None
    return "yes" if error <= limit else "no"


def _digits(value):
    return None if value is None else f"{value:.4f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", default=None, help="names, or starts of names")
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
    for spec in chosen(all_specs(), options.sets):
        if not at_hand(spec):
            print(f"{spec.name}: left out, {spec.needs} is not in NCARL_DATA")
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
