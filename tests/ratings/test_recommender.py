"""Tests of predictions and recommendation lists."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings, strategies as st
from sklearn.exceptions import NotFittedError

from ncarl import NCARL, BayesianNCARL, Nuclear, WideNCARL, from_triplets
from ncarl.ratings import Recommender, UnknownIdError
from ncarl.ratings.data import Vocabulary

USERS, ITEMS = 60, 14


def matrix(triples):
    """The ratings as a matrix."""
    numbered = [(int(user[1:]), int(item[1:]), value) for user, item, value in triples]
    return from_triplets(*zip(*numbered, strict=True), shape=(USERS, ITEMS))


def all_pairs(model):
    """All pairs of users and items."""
    users, items = model.users, model.items
    return np.repeat(users, len(items)), np.tile(items, len(users))


# --- predictions ---------------------------------------------------------------------


def test_predictions_equal_those_of_the_estimator(model):
    who, what = all_pairs(model)
    i, j = np.divmod(np.arange(USERS * ITEMS), ITEMS)
    direct = model.model_
    assert np.array_equal(model.predict(who, what), direct.predict(i, j))
    ours = model.predict_interval(who, what, level=0.8)
    theirs = direct.predict_interval(i, j, level=0.8)
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def test_estimator_is_fitted_to_the_rating_matrix(quick, triples):
    found = Recommender(quick).fit(triples)
    direct = BayesianNCARL(**quick.get_params()).fit(matrix(triples))
    i, j = np.divmod(np.arange(USERS * ITEMS), ITEMS)
    assert np.array_equal(found.predict(*all_pairs(found)), direct.predict(i, j))
    assert not hasattr(quick, "model_")


def test_scalar_pair_gives_a_scalar(single):
    value = single.predict("u00", "i03")
    assert isinstance(value, float)
    assert single.predict("u00", ["i03", "i04"])[0] == pytest.approx(value)
    low, high = single.predict_interval("u00", "i03")
    assert isinstance(low, float) and 1.0 <= low < value < high <= 5.0


def test_model_with_rounding_predicts_levels(quick, triples):
    model = BayesianNCARL(**{**quick.get_params(), "rounding": "observed"})
    found = Recommender(model).fit(triples)
    levels = {1.0, 2.0, 3.0, 4.0, 5.0}
    assert set(found.predict("u00", found.items)) <= levels
    assert {row.predicted for row in found.recommend("u00")} <= levels
    assert found.explain("u00", "i03").predicted in levels
    # Lists are ranked by values before rounding.
    plain = Recommender(quick).fit(triples)
    wanted = [row.item for row in plain.recommend("u00")]
    assert [row.item for row in found.recommend("u00")] == wanted


def test_unknown_users_and_items_get_average_predictions(single):
    scorer = single.user_store_.scorer
    nobody = scorer.make_row([], [])
    average, spread = scorer.predict_all_items(nobody, None, "observed")
    assert single.predict("nobody", "i03") == pytest.approx(average[3])
    row, place = single.user_store_.look_up("u07")
    values, deviations = scorer.predict_all_items(row, place, "observed")
    found = single.predict("u07", "new item")
    assert found == pytest.approx(values.mean())
    low, high = single.predict_interval("u07", "new item", 0.5)
    # A random item: variance within and between items.
    total = np.sqrt((deviations**2).mean() + values.var())
    down, up = scorer.conformal_scores.quantiles(0.5)
    assert found - low == pytest.approx(down * total)
    assert high - found == pytest.approx(up * total)
    assert single.predict("nobody", "nothing") == pytest.approx(average.mean())
    assert np.isfinite(spread).all()


def test_unknown_ids_can_raise(single, clone):
    clone.handle_unknown = "error"
    for pair in (("nobody", "i03"), ("u00", "nothing"), (None, "i03")):
        with pytest.raises(UnknownIdError, match="is not known"):
            clone.predict(*pair)
    with pytest.raises(UnknownIdError, match="add_user"):
        single.recommend("nobody")
    with pytest.raises(UnknownIdError, match="item 'nothing' is not known"):
        single.similar_items("nothing")


# --- lists ---------------------------------------------------------------------------


def test_lists_are_the_best_unrated_items(model, raw):
    values = raw(model, "u03")
    seen = {row.item for row in model.ratings_of("u03")}
    left = [k for k in range(ITEMS) if model.items[k] not in seen]
    wanted = sorted(left, key=lambda k: -values[k])
    found = model.recommend("u03", n=ITEMS)
    assert [row.item for row in found] == [model.items[k] for k in wanted]
    held = np.clip([values[k] for k in wanted], 1, 5)
    np.testing.assert_allclose([row.predicted for row in found], held, atol=1e-12)
    everything = model.recommend("u03", n=ITEMS, exclude_seen=False)
    assert len(everything) == ITEMS
    assert len(model.recommend("u03", n=2)) == 2


def test_lists_can_be_restricted(single, triples):
    counts = Counter(item for _, item, _ in triples)
    all_of = single.recommend("u03", n=ITEMS, exclude_seen=False)
    assert all(row.n_ratings == counts[row.item] for row in all_of)
    least = sorted(counts.values())[ITEMS // 2]
    many = single.recommend("u03", n=ITEMS, exclude_seen=False, min_ratings=least)
    assert {row.item for row in many} == {k for k, c in counts.items() if c >= least}
    some = single.recommend("u03", exclude_seen=False, candidates=["i01", "i02"])
    assert {row.item for row in some} == {"i01", "i02"}
    assert single.recommend("u03", min_ratings=10**6) == []
    with pytest.raises(UnknownIdError, match="'none'"):
        single.recommend("u03", candidates=["none"])


def test_intervals_of_a_list_match_those_of_its_items(model):
    found = model.recommend("u11", n=4, level=0.7)
    low, high = model.predict_interval("u11", [row.item for row in found], 0.7)
    np.testing.assert_allclose([row.low for row in found], low)
    np.testing.assert_allclose([row.high for row in found], high)
    assert model.recommend("u11", n=4)[0].low is None


@pytest.fixture(scope="module")
def one_star_item(triples, quick):
    """Ratings in which one item has a single rating, the maximum."""
    rows = [*triples, ("u00", "rare", 5.0)]
    lifted = [(u, i, 4.0 if i == "i00" else r) for u, i, r in rows]
    return Recommender(quick).fit(lifted)


def test_lists_can_be_ranked_by_lower_bound_or_popularity(one_star_item):
    scorer = one_star_item.user_store_.scorer
    row, place = one_star_item.user_store_.look_up("u09")
    values, spread = scorer.predict_all_items(row, place, "latent")
    tens = np.log10(one_star_item.model_.training_.column_counts)
    for penalty, stars in ((0.5, 0.0), (3.0, 0.0), (0.0, 2.0)):
        wanted = np.argsort(-(values - penalty * spread + stars * tens))
        how = {"uncertainty_penalty": penalty, "popularity": stars}
        found = one_star_item.recommend("u09", n=20, exclude_seen=False, **how)
        assert [r.item for r in found] == [one_star_item.items[k] for k in wanted]
    rare = one_star_item.items.index("rare")
    assert spread[rare] > np.median(spread)

    def rank(**how):
        found = one_star_item.recommend("u09", n=20, exclude_seen=False, **how)
        return [r.item for r in found].index("rare")

    assert rank(uncertainty_penalty=3.0) > rank()
    assert rank(popularity=1.0) > rank()


def test_similar_items_are_correlated_without_user_effects(single):
    K = single.model_.kernel_
    centered = K - K.mean(0) - K.mean(1)[:, None] + K.mean()
    spread = np.sqrt(np.diag(centered))
    correlation = centered / np.outer(spread, spread)
    for item in (0, 5, 13):
        found = single.similar_items(single.items[item], n=ITEMS)
        others = [k for k in np.argsort(-correlation[item]) if k != item]
        assert [r.item for r in found] == [single.items[k] for k in others]
        np.testing.assert_allclose(
            [r.similarity for r in found], correlation[item][others], atol=1e-12
        )
    nearest = {r.item for r in single.similar_items("i00", n=6)}
    assert nearest == {f"i{k:02d}" for k in range(1, 7)}


@pytest.mark.parametrize(
    "options, words",
    [
        ({"n": 0}, "n must be a whole number of at least 1"),
        ({"uncertainty_penalty": -1}, "uncertainty_penalty must be a finite number"),
        ({"popularity": -1}, "popularity must be a finite number"),
        ({"min_ratings": 0.5}, "min_ratings must be a whole number"),
        ({"level": 1.0}, "level must be below 1"),
    ],
)
def test_invalid_options_raise(single, options, words):
    with pytest.raises(ValueError, match=words):
        single.recommend("u00", **options)
    with pytest.raises(TypeError, match="exclude_seen must be True or False"):
        single.recommend("u00", 5, "yes")


# --- input and output tables ---------------------------------------------------------


@settings(max_examples=5)
@given(st.randoms(use_true_random=False))
def test_the_order_of_ratings_does_not_matter(triples, quick, random):
    few = triples[:120]
    one = Recommender(quick).fit(few)
    other = Recommender(quick).fit(random.sample(few, len(few)))
    who, what = all_pairs(one)
    assert one.users == other.users and one.items == other.items
    np.testing.assert_array_equal(one.predict(who, what), other.predict(who, what))


def test_tables_are_returned_in_the_library_of_the_input(triples, quick):
    names = {"user": "who", "item": "film", "rating": "stars"}
    for library in (pd, pl):
        frame = library.DataFrame(
            dict(zip(names.values(), zip(*triples, strict=True), strict=True))
        )
        found = Recommender(quick, **names).fit(frame)
        table = found.recommend("u00", n=3, level=0.9)
        assert isinstance(table, library.DataFrame)
        assert list(table.columns) == ["film", "predicted", "n_ratings", "low", "high"]
        similar = found.similar_items("i00", 2)
        assert list(similar.columns) == ["film", "similarity", "n_ratings"]
        assert list(found.ratings_of("u00").columns) == ["film", "stars"]
        assert len(found.recommend("u00", min_ratings=10**6)) == 0


@pytest.mark.parametrize("kind", [int, str, UUID])
@pytest.mark.parametrize("library", [pd, pl])
def test_ids_keep_their_type(triples, quick, kind, library):
    def make_id(text):
        number = int(text[1:]) + 1
        return UUID(int=number) if kind is UUID else kind(number)

    rows = [(make_id(u), make_id(i), r) for u, i, r in triples]
    names = ("user", "item", "rating")
    columns = dict(zip(names, zip(*rows, strict=True), strict=True))
    if library is pl and kind is UUID:
        for name in names[:2]:
            columns[name] = pl.Series(columns[name], dtype=pl.Object)
    found = Recommender(quick).fit(library.DataFrame(columns))
    table = found.recommend(make_id("u00"), n=3)
    assert all(type(item) is kind for item in table["item"].to_list())
    seen = found.ratings_of(make_id("u00"))["item"].to_list()
    empty = found.recommend(make_id("u00"), candidates=seen)
    assert len(empty) == 0 and list(empty.columns) == list(table.columns)
    assert list(empty.dtypes) == list(table.dtypes)
    new = found.add_user({found.items[0]: 5})
    assert type(new) is kind and new in found.users


def test_items_named_like_result_columns():
    with pytest.raises(ValueError, match="item must not be the name"):
        Recommender(item="low").fit({"user": [1], "low": [3], "rating": [5]})


def test_duplicates_raise_without_a_rule(triples, quick):
    user, item, _ = triples[0]
    twice = [*triples, (user, item, 1.0)]
    with pytest.raises(ValueError, match=f"user '{user}' rated item '{item}' more"):
        Recommender(quick).fit(twice)
    last = Recommender(quick, duplicates="last").fit(twice)
    assert dict(last.ratings_of(user))[item] == 1.0
    mean = Recommender(quick, duplicates="mean").fit(twice)
    assert dict(mean.ratings_of(user))[item] == (triples[0][2] + 1.0) / 2.0


def finite(value):
    """Whether all numbers of a result are finite."""
    if isinstance(value, float):
        return np.isfinite(value)
    return not isinstance(value, list | tuple) or all(map(finite, value))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("signs", [False, True])
@pytest.mark.parametrize("scale", [np.finfo(float).max, 5e-324])
def test_extreme_ratings_give_finite_results(triples, quick, scale, signs):
    # An interval is clipped to these bounds only after the width has been added.
    bounds = (-scale if signs else 0.0, scale)
    rows = [
        (user, item, stars / 5.0 * scale * (-1.0 if signs and stars < 3.0 else 1.0))
        for user, item, stars in triples
    ]
    model = BayesianNCARL(**{**quick.get_params(), "clip": bounds})
    found = Recommender(model, duplicates="mean").fit(rows[::2] + rows[::4])
    user, item, _ = rows[0]
    assert finite(found.recommend(user, level=0.9, uncertainty_penalty=1.0))
    assert finite(found.similar_items(item)) and np.isfinite(found.predict(user, item))
    assert np.isfinite(found.explain(user, item).value)
    new = found.add_user({item: scale})
    assert finite(found.recommend(new)) and finite(found.ratings_of(new))
    scores = found.evaluate(rows[1::2])
    assert all(map(finite, vars(scores).values()))


def test_sparse_ratings_name_the_conversion(triples, quick):
    X = matrix(triples)
    with pytest.raises(TypeError, match=r"got a csr_array; with R = ratings.tocoo\(\)"):
        Recommender(quick).fit(X)
    R = X.tocoo()
    assert len(Recommender(quick).fit((R.row, R.col, R.data)).users)


def test_invalid_input_of_fit_raises(triples):
    with pytest.raises(ValueError, match="holds no rating"):
        Recommender().fit([])
    with pytest.raises(ValueError, match="duplicates must be one of 'error'"):
        Recommender(duplicates="first").fit(triples)
    with pytest.raises(ValueError, match="unknown must be one of"):
        Recommender(handle_unknown="zero").fit(triples)
    for wrong in (Nuclear(), WideNCARL(), BayesianNCARL, "bayes"):
        with pytest.raises(TypeError, match="model must be a BayesianNCARL, NCARL or"):
            Recommender(wrong).fit(triples)
    with pytest.raises(ValueError, match="sides='rows'"):
        Recommender(BayesianNCARL(sides="rows")).fit(triples)
    with pytest.raises(ValueError, match="orientation='rows'"):
        Recommender(NCARL(orientation="rows")).fit(triples)


def test_ncarl_as_estimator(triples):
    model = NCARL(gamma=1.0, center="two-way", tol=0, max_iter=3)
    found = Recommender(model).fit(triples)
    direct = model.set_params(orientation="columns").fit(matrix(triples))
    i, j = np.divmod(np.arange(USERS * ITEMS), ITEMS)
    predicted = found.predict(*all_pairs(found))
    np.testing.assert_allclose(predicted, direct.predict(i, j), atol=1e-12)
    why = found.explain("u00", "i03")
    assert why.value == pytest.approx(found.predict("u00", "i03"), abs=1e-9)
    low, high = found.predict_interval("u00", "i03")
    assert low < found.predict("u00", "i03") < high
    exact = Recommender(NCARL(tol=0, max_iter=2)).fit(triples)
    with pytest.raises(ValueError, match="level needs a model of the noise"):
        exact.predict_interval("u00", "i03")
    with pytest.raises(ValueError, match="uncertainty_penalty needs a model"):
        exact.recommend("u00", uncertainty_penalty=1.0)


def test_too_many_items_raise_before_the_fit(triples, monkeypatch):
    select = "ncarl.ratings.recommender.select_sides"
    monkeypatch.setattr(select, lambda *_: (False, True))
    with pytest.raises(ValueError, match="14 items are too many"):
        Recommender().fit(triples)


def test_unfitted_recommender_has_no_ids():
    for ask in ("users", "items"):
        with pytest.raises(NotFittedError):
            getattr(Recommender(), ask)
    with pytest.raises(NotFittedError):
        Recommender().recommend("u00")
    assert isinstance(Vocabulary("user", "str", ()).unknown_message("x"), str)
