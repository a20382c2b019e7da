"""How good a recommender is on ratings that it has not seen."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ncarl import ranking
from ncarl.core.types import Array
from ncarl.metrics import coverage, interval_width, mae, rmse

if TYPE_CHECKING:
    from ncarl.ratings.asking import Answering

#: What the top of a list is worth, by name.
MEASURES = {
    "ndcg": ranking.ndcg,
    "recall": ranking.recall,
    "precision": ranking.precision,
    "hit_rate": ranking.hit,
}


@dataclass(frozen=True)
class Evaluation:
    """Errors of predictions, and how good lists of recommendations are.

    Attributes
    ----------
    rmse, mae : float
        Root mean square and mean absolute error of predicted ratings.
    coverage, width, level : float
        Part of the ratings inside their intervals, the intervals' mean width, and the
        part that was asked for; NaN where the model knows no noise.
    ndcg, recall, precision, hit_rate : float
        Means over users of what the first ``n`` recommendations are worth: each user
        is recommended items not rated in the fit, and those that the user then rated
        ``good`` or better are to be found. NaN if there are none.
    n : int
        Length of the lists.
    good : float
        Least rating that counts as good.
    n_ratings, n_users : int
        Ratings that errors are taken over, and users that lists are.
    unknown_users, unknown_items : int
        Ratings among them whose user, or item, the fit has not seen.
    """

    rmse: float
    mae: float
    coverage: float
    width: float
    level: float
    ndcg: float
    recall: float
    precision: float
    hit_rate: float
    n: int
    good: float
    n_ratings: int
    n_users: int
    unknown_users: int
    unknown_items: int

    def as_dict(self) -> dict[str, Any]:
        """The figures by their names."""
        return asdict(self)


@dataclass(frozen=True)
class Test:
    """Ratings to be predicted: ids of users and items, and the truth."""

    users: list[Any]
    items: list[Any]
    values: Array


def lists_of(
    model: Answering, test: Test, n: int, good: float, rule: dict[str, Any]
) -> dict[str, Any]:
    """Means over users of what their first ``n`` recommendations are worth."""
    liked: dict[Any, list[int]] = {}
    places = model.items_.codes(test.items)
    for user, place, value in zip(test.users, places, test.values, strict=True):
        if value >= good and place >= 0 and user in model.people_:
            liked.setdefault(user, []).append(int(place))
    rows = []
    for user, mine in liked.items():
        scores, _ = model._ranked(user, **rule)
        relevant = np.zeros(len(scores))
        relevant[mine] = 1.0
        rows.append([measure(relevant, scores, n) for measure in MEASURES.values()])
    means = np.mean(rows, axis=0) if rows else np.full(len(MEASURES), np.nan)
    figures = {name: float(x) for name, x in zip(MEASURES, means, strict=True)}
    return {**figures, "n_users": len(rows)}


def errors_of(model: Answering, test: Test, level: float) -> dict[str, Any]:
    """Errors of predictions, and how often intervals hold."""
    guess = np.asarray(model.predict(test.users, test.items))
    found = {"rmse": rmse(test.values, guess), "mae": mae(test.values, guess)}
    if not model._knows_noise():
        return {**found, "coverage": float("nan"), "width": float("nan")}
    low, high = model.predict_interval(test.users, test.items, level)
    held = coverage(test.values, low, high)
    return {**found, "coverage": held, "width": interval_width(low, high)}
