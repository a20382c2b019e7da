"""Error, ranking quality and speed of the recommender.

Usage: NCARL_DATA=... python benchmarks/ratings.py [--parts u1,random,new,speed]
       [--kept PATH] [--json results/ratings.json]
       [--figure docs/images/ratings-lists.png]

u1, random: MovieLens-100K, the official split u1 and a random 80/20 (seed 0), ids as
text. RMSE of `Recommender` and of `BayesianNCARL` fitted to the same matrix. Lists: for
every user, the top 10 of all items without a rating in the training set; items that the
user rated 4 or 5 in the test set are relevant. Items that the user has not rated count
as irrelevant, but may be relevant. Lists are made by `recommend` with its defaults
and with `popularity` 1 and 2, by the number of ratings of an item, and by its mean
rating. The option and these values were selected on u1; the random split and the
new users were not used for this.

new, speed: MovieLens-1M without 300 users (seed 0), fitted with
``BayesianNCARL(sides="columns")``. Each of the 300 is then added with 80% of the
ratings (seed 1): RMSE and lists on the rest, compared with item means and popularity.
Times of `add_user` and `recommend` together, of `recommend` for users of the fit, of
`explain` and `similar_items` are medians over the users, one call at a time. CPU
times are less affected by other load. ``--kept`` stores the fitted model, to repeat the
timings alone.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from pathlib import Path

import numpy as np
from accuracy_sets import machine, read_sets, warm_up
from common import data_folder, print_table, write_json

from ncarl import (
    BayesianNCARL,
    from_triplets,
    metrics as ranking,
)
from ncarl.metrics import rmse
from ncarl.ratings import Recommender

N, GOOD = 10, 4.0
NEW_USERS = 300


def load_ratings(name):
    """Load users, items (as text) and ratings of a data set."""
    data = np.load(data_folder() / f"{name}.npz")
    ids = [data[k].astype(int).astype(str).astype(object) for k in ("user", "item")]
    return *ids, data["rating"].astype(float), data


def load_split(part):
    """Load MovieLens-100K and the mask of its test ratings."""
    users, items, stars, data = load_ratings("ml-100k")
    test = np.zeros(len(stars), dtype=bool)
    if part == "u1":
        test[data["u1_test"]] = True
    else:
        chosen = np.random.default_rng(0).permutation(len(stars))[: len(stars) // 5]
        test[chosen] = True
    return users, items, stars, test


def item_counts(model):
    """Number of ratings of each item in the fit."""
    return model.model_.training_.column_counts.astype(float)


def item_means(model):
    """Mean rating of each item in the fit."""
    training = model.model_.training_
    sums = np.bincount(training.indices, training.values, minlength=len(model.items))
    return sums / np.maximum(training.column_counts, 1)


def evaluate_scores(model, scores, test):
    """Mean NDCG, recall, precision and hit rate of lists by fixed item scores."""
    liked = {}
    for user, item, stars in zip(*test, strict=True):
        place = model.items_.find(item)
        if stars >= GOOD and place is not None and user in model.user_store_:
            liked.setdefault(user, []).append(place)
    rows = []
    for user, relevant_items in liked.items():
        seen, _ = model.user_store_.look_up(user)
        allowed, relevant = scores.copy(), np.zeros(len(scores))
        allowed[seen.indices] = -np.inf
        relevant[relevant_items] = 1.0
        measures = (ranking.ndcg, ranking.recall, ranking.precision, ranking.hit)
        rows.append([measure(relevant, allowed, N) for measure in measures])
    names = ("ndcg", "recall", "precision", "hit_rate")
    return dict(zip(names, map(float, np.mean(rows, axis=0)), strict=True))


def evaluate_lists(model, test):
    """Evaluate lists made in five ways."""
    found = {}
    for weight in (0.0, 1.0, 2.0):
        name = f"popularity={weight:g}" if weight else "recommend"
        figures = model.evaluate(
            test, n=N, relevance_threshold=GOOD, popularity=weight
        ).as_dict()
        found[name] = {
            k: figures[k] for k in ("ndcg", "recall", "precision", "hit_rate")
        }
    found["most rated"] = evaluate_scores(model, item_counts(model), test)
    found["mean rating"] = evaluate_scores(model, item_means(model), test)
    return found


def measure_split(part):
    """Measure one split of MovieLens-100K."""
    users, items, stars, test = load_split(part)
    start = time.perf_counter()
    train = tuple(column[~test] for column in (users, items, stars))
    model = Recommender().fit(train)
    seconds = time.perf_counter() - start
    held = tuple(column[test] for column in (users, items, stars))
    figures = model.evaluate(held, n=N, relevance_threshold=GOOD).as_dict()
    # The same model without `Recommender`: rows and columns in sorted order of ids.
    places = [np.unique(column, return_inverse=True)[1] for column in (users, items)]
    shape = tuple(int(place.max()) + 1 for place in places)
    X = from_triplets(*(p[~test] for p in places), stars[~test], shape=shape)
    direct = BayesianNCARL().fit(X)
    guess = direct.predict(*(p[test] for p in places))
    return {
        "protocol": f"ml-100k {part}, {int(test.sum())} ratings held out",
        "rmse": figures["rmse"],
        "rmse_direct": rmse(stars[test], guess),
        "mae": figures["mae"],
        "coverage_90": figures["coverage"],
        "unknown_items": figures["unknown_items"],
        "users": figures["n_users"],
        "lists": evaluate_lists(model, held),
        "seconds": seconds,
        "machine": machine(model.model_.engine_),
    }


def fit_movielens_1m(kept):
    """Fit MovieLens-1M without the new users; return the model and their ratings."""
    users, items, stars, _ = load_ratings("ml-1m")
    names = np.array(sorted(set(users), key=int), dtype=object)
    new = set(np.random.default_rng(0).choice(names, NEW_USERS, replace=False))
    later = np.array([user in new for user in users])
    if kept and Path(kept).exists():
        model, seconds = Recommender.load(kept), None
    else:
        start = time.perf_counter()
        train = tuple(column[~later] for column in (users, items, stars))
        model = Recommender(BayesianNCARL(sides="columns")).fit(train)
        seconds = time.perf_counter() - start
        if kept:
            model.save(kept)
    rows = {user: {} for user in sorted(new)}
    for k in np.flatnonzero(later):
        rows[users[k]][items[k]] = stars[k]
    return model, rows, seconds


def split_new_users(rows, model):
    """Split the ratings of each new user into known and test ratings."""
    rng = np.random.default_rng(1)
    shown, test = {}, []
    for user, rated in rows.items():
        known = [item for item in rated if model.items_.find(item) is not None]
        order = rng.permutation(len(known))
        first = max(1, round(0.8 * len(known)))
        shown[user] = {known[k]: rated[known[k]] for k in order[:first]}
        test += [(user, known[k], rated[known[k]]) for k in order[first:]]
    return shown, tuple(list(column) for column in zip(*test, strict=True))


def measure_new_users(model, rows):
    """Measure a model on users that it was not fitted to."""
    shown, test = split_new_users(rows, model)
    for user, rated in shown.items():
        model.add_user(rated, user)
    figures = model.evaluate(test, n=N, relevance_threshold=GOOD).as_dict()
    means, user_means = item_means(model), {}
    for user in shown:
        row, _ = model.user_store_.look_up(user)
        off = row.values - means[row.indices]
        user_means[user] = off.sum() / (len(off) + 5.0)
    plain = means[model.items_.encode(test[1])]
    levels = plain + [user_means[user] for user in test[0]]
    return {
        "protocol": f"ml-1m, {NEW_USERS} users not in the fit, 20% of theirs held out",
        "rmse": figures["rmse"],
        "rmse_item_means": rmse(test[2], plain),
        "rmse_user_and_item_means": rmse(test[2], np.clip(levels, 1.0, 5.0)),
        "coverage_90": figures["coverage"],
        "ratings": figures["n_ratings"],
        "users": figures["n_users"],
        "lists": evaluate_lists(model, test),
    }


def time_calls(work, arguments):
    """Measure wall and CPU times of single calls, in ms."""
    times, busy = [], []
    for argument in arguments:
        start, before = time.perf_counter(), time.process_time()
        work(argument)
        busy.append(1e3 * (time.process_time() - before))
        times.append(1e3 * (time.perf_counter() - start))
    return {
        "median_ms": float(np.median(times)),
        "median_cpu_ms": float(np.median(busy)),
        "p90_ms": float(np.percentile(times, 90)),
        "most_ms": float(np.max(times)),
    }


def measure_speed(model, rows):
    """Measure the times of single calls."""
    some = np.random.default_rng(2).choice(
        np.array(model.user_store_.vocabulary.values, dtype=object),
        NEW_USERS,
        replace=False,
    )
    clean = {
        user: {i: r for i, r in rated.items() if model.items_.find(i) is not None}
        for user, rated in rows.items()
    }

    def add_and_recommend(user):
        model.add_user(clean[user], user, replace=True)
        model.recommend(user)

    add_and_recommend(next(iter(rows)))  # compiles
    together = time_calls(add_and_recommend, rows)
    best = {user: model.recommend(user, 1)[0].item for user in rows}
    return {
        "items": len(model.items),
        "users": len(model.user_store_.vocabulary),
        "ratings_of_a_new_user": float(np.median([len(r) for r in clean.values()])),
        "load": os.getloadavg()[0],
        "add_user + recommend": together,
        "recommend (user of the fit)": time_calls(model.recommend, some),
        "recommend with uncertainty_penalty=1": time_calls(
            lambda u: model.recommend(u, uncertainty_penalty=1), rows
        ),
        "recommend with intervals": time_calls(
            lambda u: model.recommend(u, level=0.8), rows
        ),
        "explain": time_calls(lambda user: model.explain(user, best[user]), rows),
        "similar_items": time_calls(model.similar_items, model.items[:NEW_USERS]),
        "machine": machine(model.model_.engine_),
    }


def list_lines(name, result):
    """Lines of the table of lists."""
    return [
        {"set": name, "ranked by": how, "NDCG@10": f["ndcg"], "recall@10": f["recall"],
         "precision@10": f["precision"], "hit rate": f["hit_rate"]}
        for how, f in result["lists"].items()
    ]  # fmt: skip


def print_results(results):
    """Print the available results."""
    errors, tops = [], []
    for name in ("u1", "random", "new"):
        if name in results:
            result = results[name]
            keys = ("rmse", "rmse_direct", "rmse_user_and_item_means", "coverage_90")
            errors.append({"set": name, **{k: result.get(k) for k in keys}})
            tops += list_lines(name, result)
    for lines in (errors, tops):
        if lines:
            print_table(lines)
    times = results.get("speed", {})
    lines = [
        {"call": name, **figures}
        for name, figures in times.items()
        if isinstance(figures, dict) and "median_ms" in figures
    ]
    if lines:
        print_table(lines)


def draw(results, path):
    """Plot the NDCG of lists made in five ways, by set."""
    from matplotlib.figure import Figure

    titles = {"u1": "100K, split u1", "random": "100K, random", "new": "1M, new users"}
    sets = [name for name in titles if name in results]
    figure = Figure(figsize=(6.6, 3.0), layout="constrained")
    axes = figure.subplots()
    ways = list(results[sets[0]]["lists"])
    colors = ("#08519c", "#4292c6", "#9ecae1", "#8c8c8c", "#cccccc")
    for k, (way, color) in enumerate(zip(ways, colors, strict=True)):
        heights = [results[name]["lists"][way]["ndcg"] for name in sets]
        places = np.arange(len(sets)) + 0.17 * (k - 2.0)
        axes.bar(places, heights, 0.16, color=color, label=way)
    axes.set_xticks(range(len(sets)), [titles[name] for name in sets])
    axes.set_ylabel("NDCG@10")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside right center", frameon=False, title="ranked by")
    figure.savefig(path, dpi=120, metadata={"Software": None})


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", default="u1,random,new,speed")
    parser.add_argument("--kept", default=None)
    parser.add_argument("--json", default=None)
    parser.add_argument("--figure", default=None)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if data_folder() is None:
        raise SystemExit("NCARL_DATA must be a folder with ml-100k.npz and ml-1m.npz")
    results = read_sets(options.json)
    parts = [part for part in options.parts.split(",") if part]
    if parts:
        warm_up()
    for part in ("u1", "random"):
        if part in parts:
            results[part] = measure_split(part)
            write_json(options.json, {"sets": results})
    if {"new", "speed"} & set(parts):
        model, rows, seconds = fit_movielens_1m(options.kept)
        if "speed" in parts:
            results["speed"] = measure_speed(model, rows)
            if seconds is not None:
                results["speed"]["fit_seconds"] = seconds
            model.user_store_.added.clear()
        if "new" in parts:
            results["new"] = measure_new_users(model, rows)
        write_json(options.json, {"sets": results})
    print_results(results)
    if options.figure:
        draw(results, options.figure)


if __name__ == "__main__":
    main()
