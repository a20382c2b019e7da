"""Tests of ranking metrics against plain loops and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st
from sklearn.metrics import ndcg_score

from ncarl import metrics as ranking

NUMBER = st.floats(-5, 5, allow_nan=False)


def naive_order(scores, n):
    """Positions by decreasing score, ties by position."""
    return sorted(range(len(scores)), key=lambda k: (-scores[k], k))[:n]


@given(st.lists(NUMBER, min_size=1, max_size=20), st.integers(1, 25))
def test_the_best_are_those_of_a_plain_sort(scores, n):
    assert ranking.top_n(scores, n).tolist() == naive_order(scores, n)


def test_excluded_items_are_not_ranked():
    assert ranking.top_n([-np.inf, 1.0, -np.inf], 3).tolist() == [1]
    assert ranking.top_n([-np.inf], 2).tolist() == []


@pytest.mark.parametrize("n", [1, 3, 30])
def test_ndcg_matches_scikit_learn(rng, n):
    gains, scores = rng.integers(0, 6, 20), rng.standard_normal(20)
    theirs = ndcg_score([gains], [scores], k=n, ignore_ties=True)
    assert ranking.ndcg(gains, scores, n) == pytest.approx(theirs)


@given(
    st.lists(st.tuples(st.booleans(), NUMBER), min_size=1, max_size=15),
    st.integers(1, 20),
)
def test_recall_precision_and_hit_count_what_is_found(pairs, n):
    relevant, scores = zip(*pairs, strict=True)
    if not any(relevant):
        with pytest.raises(ValueError, match="at least one item"):
            ranking.recall(relevant, scores, n)
        return
    found = sum(relevant[k] for k in naive_order(scores, n))
    assert ranking.recall(relevant, scores, n) == pytest.approx(found / sum(relevant))
    assert ranking.precision(relevant, scores, n) == pytest.approx(found / n)
    assert ranking.hit(relevant, scores, n) == (found > 0)


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: ranking.top_n([1.0], 0), "n must be a whole number of at least 1"),
        (lambda: ranking.top_n([1.0], 1.5), "n must be a whole number"),
        (lambda: ranking.top_n([np.nan], 1), "without NaN"),
        (lambda: ranking.ndcg([1.0, 2.0], [1.0], 1), "1 scores for 2 items"),
        (lambda: ranking.ndcg([], [], 1), "0 scores"),
        (lambda: ranking.ndcg([0, 0], [1.0, 2.0], 1), "not all 0"),
        (lambda: ranking.ndcg([-1.0, 2.0], [1.0, 2.0], 1), "at least 0, and not all 0"),
        (lambda: ranking.recall([0.5, 1.0], [1.0, 2.0]), "True or False"),
        (lambda: ranking.hit([[True]], [1.0]), "list of numbers"),
    ],
)
def test_invalid_arguments_raise(call, words):
    with pytest.raises(ValueError, match=words):
        call()
