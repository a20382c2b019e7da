"""Tests of users added after the fit, explanations, evaluation and files."""

from __future__ import annotations

from itertools import compress

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st
from sklearn.base import clone

from ncarl import BayesianNCARL
from ncarl.exceptions import BrokenFileError
from ncarl.io.files import read_archive
from ncarl.metrics import mae, rmse
from ncarl.ratings import Explanation, Reason, Recommender, UnknownIdError

RATED = st.dictionaries(
    st.sampled_from([f"i{k:02d}" for k in range(14)]), st.integers(1, 5), max_size=14
)


# --- new users -----------------------------------------------------------------------


@settings(max_examples=15)
@given(RATED)
def test_a_new_user_is_predicted_as_a_new_row_of_the_matrix(single, again, rated):
    copy = again(single)
    user = copy.add_user(rated, "new")
    row = np.array([[rated.get(item, np.nan) for item in copy.items]])
    wanted = single.model_.predict(row)[0]
    np.testing.assert_allclose(copy.predict(user, copy.items), wanted, atol=1e-12)
    seen = {found.item for found in copy.recommend(user, n=20)}
    assert seen == set(copy.items) - set(rated)


def test_training_new_and_unknown_users_in_one_call(clone_both):
    model = clone_both
    model.add_user({"i00": 5, "i09": 1}, "ann")
    model.add_user({"i00": 1, "i09": 5}, "bob")
    who = ["bob", "u03", "nobody", "ann", "u41", "bob", "u03", "ann"]
    what = ["i02", "i02", "i02", "i02", "i11", "none", "none", "i11"]
    one_by_one = list(map(model.predict, who, what))
    np.testing.assert_allclose(model.predict(who, what), one_by_one, atol=1e-12)
    assert len(set(np.round(one_by_one, 6))) == len(who)
    alone = list(map(model.predict_interval, who, what))
    together = np.transpose(model.predict_interval(who, what))
    np.testing.assert_allclose(together, alone, atol=1e-12)


def test_ratings_of_a_user_can_be_added_changed_and_replaced(clone):
    clone.add_user({"i00": 5}, "new")
    clone.add_user({"i01": 4, "i00": 3}, "new")
    assert dict(clone.ratings_of("new")) == {"i00": 3.0, "i01": 4.0}
    clone.add_user({"i02": 1}, "new", replace=True)
    assert dict(clone.ratings_of("new")) == {"i02": 1.0}
    before = dict(clone.ratings_of("u00"))
    fresh = next(item for item in clone.items if item not in before)
    clone.add_user({fresh: 2}, "u00")
    assert dict(clone.ratings_of("u00")) == {**before, fresh: 2.0}
    assert clone.users.count("u00") == 1


def test_changed_training_user_is_predicted_as_a_new_user(clone_both):
    rated = dict(clone_both.ratings_of("u05"))
    clone_both.add_user({}, "u05")
    row = np.array([[rated.get(item, np.nan) for item in clone_both.items]])
    found = clone_both.predict("u05", clone_both.items)
    np.testing.assert_allclose(found, clone_both.model_.predict(row)[0], atol=1e-12)
    assert clone_both.explain("u05", "i03").similar_users == 0.0


def test_ids_are_generated_if_none_is_given(clone):
    assert clone.add_user({"i00": 5}) == "new user 1"
    assert clone.add_user({"i00": 4}) == "new user 2"
    clone.add_user({"i00": 4}, "new user 4")
    assert clone.add_user({"i00": 4}) not in ("new user 1", "new user 2", "new user 4")


def test_invalid_ratings_of_a_new_user_raise(clone):
    with pytest.warns(UserWarning, match="1 of 2 ratings are left out: item 'none'"):
        clone.add_user({"i00": 5, "none": 3}, "new")
    assert dict(clone.ratings_of("new")) == {"i00": 5.0}
    with pytest.raises(ValueError, match="rating is missing in row 0"):
        clone.add_user({"i00": None}, "new")
    with pytest.raises(ValueError, match="'i00' is rated more than once"):
        clone.add_user([("i00", 5), ("i00", 4)], "new")
    with pytest.raises(TypeError, match="of the kind of the other ids, str, got 5"):
        clone.add_user({"i00": 5}, 5)
    clone.handle_unknown = "error"
    with pytest.raises(UnknownIdError, match="item 'none'"):
        clone.add_user({"none": 3}, "new")
    assert dict(clone.ratings_of("new")) == {"i00": 5.0}


def test_ratings_within_the_scale_are_accepted(quick, triples):
    narrow = [(user, item, min(max(r, 2.0), 4.0)) for user, item, r in triples]
    model = Recommender(quick).fit(narrow)
    model.add_user({"i00": 1, "i07": 5}, "new")
    assert dict(model.ratings_of("new")) == {"i00": 1.0, "i07": 5.0}
    model.add_user({"i00": 4e6, "i07": -4e6}, "huge")
    assert all(np.isfinite(model.predict("huge", model.items)))
    with pytest.raises(ValueError, match=r"ratings are up to 4, got -1\.7e\+308"):
        model.add_user({"i00": 5, "i07": -1.7e308}, "huge")
    given = Recommender(clone(quick).set_params(clip=(1, 5))).fit(narrow)
    given.add_user({"i00": 1}, "new")
    with pytest.raises(ValueError, match=r"scale of the model, clip=\(1, 5\), got 50"):
        given.add_user({"i00": 50}, "new")


# --- explanations --------------------------------------------------------------------


def test_parts_of_an_explanation_sum_to_the_prediction(model, raw, single):
    for user in ("u00", "u31"):
        values = raw(model, user)
        for j, item in enumerate(model.items):
            why = model.explain(user, item)
            assert why.value == pytest.approx(values[j], abs=1e-9)
            held = model.predict(user, item)
            assert why.predicted == pytest.approx(held, abs=1e-9)
            assert (why.similar_users == 0.0) == (model is single)
            assert {r.item for r in why.reasons} == set(dict(model.ratings_of(user)))
            sizes = [abs(r.contribution) for r in why.reasons]
            assert sizes == sorted(sizes, reverse=True)


def test_levels_are_those_of_unknown_users_and_all_items(single):
    scorer = single.user_store_.scorer
    nobody, _ = scorer.predict_all_items(scorer.make_row([], []), None)
    row, place = single.user_store_.look_up("u08")
    values, _ = scorer.predict_all_items(row, place)
    for j, item in enumerate(single.items):
        why = single.explain("u08", item)
        assert why.item_level == pytest.approx(nobody[j], abs=1e-9)
        assert why.user_level == pytest.approx((values - nobody).mean(), abs=1e-9)
    nothing = single.explain(None, "i03")
    assert nothing.reasons == () and nothing.user_level == 0.0
    assert nothing.value == pytest.approx(nobody[3])


def test_explanations_as_text():
    reasons = tuple(Reason(f"i{k}", 5.0, 0.5 / (k + 1)) for k in range(7))
    why = Explanation("ann", "x", 4.0, 3.0, 0.2, reasons, 0.1)
    said = str(why)
    assert said.startswith("4.00 for ann and x\n  3.00  what x gets from others\n")
    assert " +0.20  you rate above average" in said
    assert " +0.50  because you gave 5 to i0" in said
    assert "2 other ratings of yours" in said and "users like you" in said
    short = Explanation("ann", "x", 4.0, 3.0, -0.2, reasons[:6], 0.0)
    said = str(short)
    assert "other ratings" not in said and "because you gave 5 to i5" in said
    assert "rate below average" in said and "users like you" not in said
    lines = why.lines({"x": "A Film", "i0": "Another"}, max_reasons=1)
    assert lines[0][1] == "what A Film gets from others"
    assert lines[2][1] == "because you gave 5 to Another"
    total = sum(amount for amount, _ in why.lines(max_reasons=2))
    assert total == pytest.approx(why.value)


# --- evaluation ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def split(triples):
    """Training and test ratings."""
    hidden = np.random.default_rng(1).random(len(triples)) < 0.25
    train, test = (list(compress(triples, part)) for part in (~hidden, hidden))
    model = BayesianNCARL(sides="columns", prior_strength=0.2, engine="threads")
    return Recommender(model).fit(train), test


def test_evaluation_matches_plain_loops(split):
    model, test = split
    found = model.evaluate(test, n=3, relevance_threshold=4, level=0.8)
    users, items, truth = map(list, zip(*test, strict=True))
    guess = [model.predict(u, i) for u, i in zip(users, items, strict=True)]
    assert found.rmse == pytest.approx(rmse(truth, guess))
    assert found.mae == pytest.approx(mae(truth, guess))
    low, high = model.predict_interval(users, items, 0.8)
    assert found.coverage == np.mean((low <= truth) & (truth <= high))
    assert found.width == pytest.approx(np.mean(high - low))
    rows = []
    for user in sorted(set(users)):
        liked = {i for u, i, r in test if u == user and r >= 4}
        if not liked:
            continue
        listed = [row.item for row in model.recommend(user, n=3)]
        hits = [item in liked for item in listed]
        gain = sum(hit / np.log2(k + 2) for k, hit in enumerate(hits))
        ideal = sum(1 / np.log2(k + 2) for k in range(min(3, len(liked))))
        rows.append((gain / ideal, sum(hits) / len(liked), sum(hits) / 3, any(hits)))
    means = np.mean(rows, axis=0)
    ours = (found.ndcg, found.recall, found.precision, found.hit_rate)
    np.testing.assert_allclose(ours, means)
    assert (found.n_users, found.n_ratings) == (len(rows), len(test))
    assert (found.unknown_users, found.unknown_items) == (0, 0)
    # The tastes are distinct: better than random order and than the mean.
    assert found.ndcg > 0.5 and found.rmse < 0.8 * np.std(truth)
    assert found.as_dict()["ndcg"] == found.ndcg


def test_unknown_users_are_counted_and_threshold_has_a_default(split):
    model, test = split
    more = [*test, ("nobody", "i00", 5.0), ("u00", "new item", 5.0)]
    found = model.evaluate(more)
    assert (found.unknown_users, found.unknown_items) == (1, 1)
    assert found.n_ratings == len(more)
    assert found.relevance_threshold == pytest.approx(
        model.model_.training_.values.mean()
    )
    none = model.evaluate(test, relevance_threshold=6)
    assert none.n_users == 0 and np.isnan(none.ndcg) and none.rmse > 0


def test_ranking_option_is_used(split):
    model, test = split
    how = {"popularity": 100.0, "uncertainty_penalty": 1.0, "min_ratings": 20}
    found = model.evaluate(test, n=3, relevance_threshold=4, **how)
    liked = {}
    for user, item, rating in test:
        if rating >= 4:
            liked.setdefault(user, set()).add(item)
    shares = [
        sum(row.item in items for row in model.recommend(user, 3, **how)) / len(items)
        for user, items in liked.items()
    ]
    assert found.recall == pytest.approx(np.mean(shares))
    assert found.recall < model.evaluate(test, n=3, relevance_threshold=4).recall


def test_training_ratings_do_not_count(split, triples):
    model, test = split
    with pytest.raises(ValueError, match=r"that were not fitted.*; split first"):
        model.evaluate([*test, *triples])
    with pytest.raises(ValueError, match="test holds no rating"):
        model.evaluate([])


# --- files ---------------------------------------------------------------------------


def test_saved_recommender_is_loaded_unchanged(both, again, tmp_path):
    copy = again(both, "pandas").set_params(user="who", handle_unknown="error")
    copy.add_user({"i00": 5, "i09": 1}, "new")
    copy.add_user({}, "empty")
    path = tmp_path / "model.ncarl"
    copy.save(path)
    loaded = Recommender.load(path)
    assert loaded.users == copy.users and loaded.items == copy.items
    found = (loaded.user, loaded.handle_unknown, loaded.library_)
    assert found == ("who", "error", "pandas")
    for user in ("u00", "u44", "new", "empty"):
        one, other = (model.recommend(user, level=0.9) for model in (copy, loaded))
        pd.testing.assert_frame_equal(one, other)
        assert copy.explain(user, "i03") == loaded.explain(user, "i03")
    loaded.save(path)
    assert Recommender.load(path).users == copy.users
    assert [p.name for p in tmp_path.iterdir()] == ["model.ncarl"]
    assert path.stat().st_mode & 0o777 == 0o600
    read_archive(path, "recommender")  # no pickle


@settings(max_examples=8)
@given(
    st.sampled_from([st.text(), st.integers(), st.uuids()]).flatmap(
        lambda kind: st.lists(kind, min_size=6, max_size=6, unique=True)
    )
)
def test_ids_of_any_kind_survive_a_file(tmp_path_factory, quick, ids):
    rows = [(u, i, 1 + (3 * k + j) % 5) for k, u in enumerate(ids)
            for j, i in enumerate(ids) if (k + j) % 4]  # fmt: skip
    model = Recommender(quick).fit(rows)
    new = model.add_user({ids[0]: 3})
    path = tmp_path_factory.mktemp("ids") / "model"
    model.save(path)
    again = Recommender.load(path)
    assert again.users == model.users and again.items == model.items
    assert again.predict(new, ids[1]) == model.predict(new, ids[1])


def test_file_of_another_kind_raises(both, tmp_path):
    path = tmp_path / "model.ncarl"
    both.model_.save(path)
    with pytest.raises(BrokenFileError, match="holds a model, expected a recommender"):
        Recommender.load(path)
    path.write_bytes(b"nothing of ours")
    with pytest.raises(BrokenFileError, match="not a file written by ncarl"):
        Recommender.load(path)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        both.save(tmp_path / "none" / "model")
