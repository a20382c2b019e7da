"""`Recommender`: learns from ratings, predicts ratings and recommends items."""

from __future__ import annotations

import os
import warnings
from typing import Any, Self
from uuid import UUID

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from ncarl import metrics
from ncarl.bayes.selection import select_sides
from ncarl.centering import ValueBounds, overflow_safe_mean
from ncarl.core.types import Array
from ncarl.dataset import InMemoryDataset
from ncarl.engines.cores import limit_blas_threads
from ncarl.estimators.bayesian import BayesianNCARL
from ncarl.estimators.ncarl import NCARL
from ncarl.estimators.ncarl_cv import NCARLCV
from ncarl.estimators.persistence import (
    check_keys,
    estimator_from_state,
    estimator_state,
)
from ncarl.fitting.checkpoint import CSR_PARTS, csr_from_arrays
from ncarl.io.files import broken_on_error, read_archive, write_archive
from ncarl.observations import Observations, from_triplets
from ncarl.ratings.data import (
    Explanation,
    RatedItem,
    Reason,
    RecommendedItem,
    RecommenderEvaluation,
    SimilarItem,
    UnknownIdError,
    Vocabulary,
    as_table,
    ids_from_json,
    merge_duplicates,
    normalize_ids,
    parse_ratings,
    read_columns,
    read_pairs,
    read_user_ratings,
)
from ncarl.ratings.scoring import UserStore, build_scorer, predict_pairs
from ncarl.validation import (
    check_choice,
    check_flag,
    check_fraction,
    check_integer,
    check_number,
)

#: Columns that the returned tables have besides the items.
RESERVED_COLUMNS = ("predicted", "n_ratings", "low", "high", "similarity")
#: A new rating may be at most this many times the largest one of the fit, so that sums
#: cannot overflow.
MAX_RATING_FACTOR = 1e6
#: Metrics of a list, by the names of the fields of `RecommenderEvaluation`.
RANKING_METRICS = {
    "ndcg": metrics.ndcg,
    "recall": metrics.recall,
    "precision": metrics.precision,
    "hit_rate": metrics.hit,
}
#: Kind of the archive that `Recommender.save` writes.
ARCHIVE_KIND = "recommender"
#: What its header has besides that of the model, and the models it may hold.
RECOMMENDER_KEYS = {"parameters", "library", "users", "items", "added"}
MODEL_CLASS_NAMES = ("BayesianNCARL", "NCARL", "NCARLCV")


class Recommender(BaseEstimator):
    """Recommender that predicts ratings, ranks items and explains predictions.

    Parameters
    ----------
    model : estimator, optional
        A `BayesianNCARL` (the default), `NCARL` or `NCARLCV`; a clone of it is fitted.
    user, item, rating : str
        Names of the columns of tables.
    duplicates : {"error", "last", "mean"}, default="error"
        What to do with several ratings of one item by one user: raise an error, keep
        the last one, or take their mean.
    handle_unknown : {"average", "error"}, default="average"
        What `predict` does with users and items that the fit has not seen: take them
        for an average user and for an item drawn at random, or raise an error.

    Attributes
    ----------
    model_ : estimator
        The fitted model; rows are users and columns are items.
    users, items : list
        Ids of the known users and items.

    Notes
    -----
    Ids are integers, text or UUIDs; all users have ids of one kind, and so have all
    items. Tables are returned in the library of the ratings that were fitted: pandas,
    polars, or else a list of named tuples.

    Examples
    --------
    >>> from ncarl.ratings import Recommender
    >>> ratings = [("ann", "tea", 5), ("ann", "coffee", 1), ("bob", "tea", 4),
    ...            ("bob", "milk", 5), ("cid", "coffee", 5), ("cid", "tea", 1),
    ...            ("dan", "coffee", 4), ("dan", "milk", 2), ("eve", "tea", 5)]
    >>> model = Recommender().fit(ratings)
    >>> [row.item for row in model.recommend("eve", n=2)]
    ['milk', 'coffee']
    >>> new = model.add_user({"coffee": 5, "tea": 1})
    >>> model.predict(new, "milk") < model.predict("eve", "milk")
    True
    """

    model_: Any
    items_: Vocabulary
    user_store_: UserStore
    library_: str

    def __init__(
        self,
        model: Any = None,
        *,
        user: str = "user",
        item: str = "item",
        rating: str = "rating",
        duplicates: str = "error",
        handle_unknown: str = "average",
    ) -> None:
        self.model = model
        self.user = user
        self.item = item
        self.rating = rating
        self.duplicates = duplicates
        self.handle_unknown = handle_unknown

    @limit_blas_threads(1)
    def fit(self, ratings: Any, y: Any = None) -> Self:
        """Fit the model to ratings.

        Parameters
        ----------
        ratings : frame, mapping or tuple of columns, `Ratings`, or rows
            A pandas or polars frame or a mapping with the columns ``user``, ``item``
            and ``rating``, a tuple of three columns, or rows (user, item, rating).
            Pairs that are not in it are missing, never zero.
        y : ignored
            Present for API consistency with scikit-learn.
        """
        rule = self._check_params()
        columns = (self.user, self.item, self.rating)
        (user_ids, item_ids, stars), library = read_columns(ratings, columns)
        values = parse_ratings(stars, self.rating)
        if len(values) == 0:
            raise ValueError("ratings holds no rating; nothing can be learned from it")
        users, u = Vocabulary.from_column("user", user_ids)
        items, i = Vocabulary.from_column("item", item_ids)
        u, i, values, duplicate = merge_duplicates(u, i, values, len(items), rule)
        if duplicate is not None:
            raise ValueError(
                f"user {user_ids[duplicate]!r} rated item {item_ids[duplicate]!r} more "
                "than once; choose a rating: duplicates='last' or 'mean'"
            )
        X = from_triplets(u, i, values, shape=(len(users), len(items)))
        model = _prepare_model(self.model, Observations.from_sparse(X)).fit(X)
        self._set_fitted_attributes(model, users, items, library)
        return self

    def _check_params(self) -> str:
        """Check all parameters but the model; return the rule for duplicates."""
        check_choice("handle_unknown", self.handle_unknown, ("average", "error"))
        for name in ("user", "item", "rating"):
            if not isinstance(getattr(self, name), str | int):
                raise TypeError(f"{name} must be the name of a column")
        if self.item in RESERVED_COLUMNS:
            raise ValueError(
                "item must not be the name of another column of the results, "
                f"{', '.join(RESERVED_COLUMNS)}, got {self.item!r}; rename the column "
                "first"
            )
        rule = check_choice("duplicates", self.duplicates, ("error", "last", "mean"))
        return str(rule)

    def _set_fitted_attributes(
        self, model: Any, users: Vocabulary, items: Vocabulary, library: str
    ) -> None:
        self.model_ = model
        self.items_ = items
        self.library_ = library
        self.user_store_ = UserStore(build_scorer(model), users)

    @property
    def users(self) -> list[Any]:
        """Ids of all users: those of the fit, then those added later."""
        check_is_fitted(self)
        return list(self.user_store_)

    @property
    def items(self) -> list[Any]:
        """Ids of all items."""
        check_is_fitted(self)
        return list(self.items_.values)

    @limit_blas_threads(1)
    def predict(self, users: Any, items: Any) -> Any:
        """Predict the ratings that users would give to items.

        Parameters
        ----------
        users, items : ids, or lists of ids of one length
            The pairs; a single id is paired with every id of the other list.

        Returns
        -------
        float, or array of shape (pairs,)
            Predictions within the bounds of ratings. For an item that the user has
            rated, the rating without its noise.
        """
        user_ids, item_ids, single = self._resolve_pairs(users, items)
        pairs = predict_pairs(self.user_store_, self.items_, user_ids, item_ids, None)
        values = pairs.clip(pairs.values, self._value_bounds, round_values=True)
        return float(values[0]) if single else values

    def _resolve_pairs(
        self, users: Any, items: Any
    ) -> tuple[list[Any], list[Any], bool]:
        check_is_fitted(self)
        user_ids, item_ids, single = read_pairs(users, items)
        if self.handle_unknown == "error":
            store = self.user_store_
            for user in user_ids:
                if user is None or user not in store:
                    raise UnknownIdError(store.vocabulary.unknown_message(user))
            for item in item_ids:
                self.items_.position_of(item)  # raises
        return user_ids, item_ids, single

    @limit_blas_threads(1)
    def recommend(
        self,
        user: Any,
        n: int = 10,
        exclude_seen: bool = True,
        *,
        uncertainty_penalty: float = 0.0,
        popularity: float = 0.0,
        min_ratings: int = 1,
        candidates: Any = None,
        level: float | None = None,
    ) -> Any:
        """Recommend the ``n`` items with the highest predicted ratings, as a table.

        Parameters
        ----------
        user : id or None
            The user; None for an anonymous user without ratings.
        n : int
            Number of items; the table is shorter if fewer items are allowed.
        exclude_seen : bool
            Leave out items that the user has rated.
        uncertainty_penalty : float
            Standard deviations subtracted from a prediction before items are ranked.
        popularity : float
            Bonus for ten times as many ratings. At 1 or 2, lists hold more of what
            users pick next, and less that they would not find by themselves.
        min_ratings : int
            Leave out items with fewer ratings in the fit.
        candidates : list of ids, optional
            Items to choose from.
        level : float, optional
            Add prediction intervals of this level.

        Returns
        -------
        frame, or list of `RecommendedItem`
            Items, the best first, with ``predicted`` rating and ``n_ratings``, the
            number of their ratings; with ``level`` also ``low`` and ``high``.
        """
        check_is_fitted(self)
        scores, values = self._score_items(
            user, uncertainty_penalty, popularity, min_ratings, exclude_seen, candidates
        )
        best = metrics.top_n(scores, check_integer("n", n, low=1))
        ids = [self.items_.values[j] for j in best]
        columns: dict[str, Any] = {
            self.item: ids,
            "predicted": self._value_bounds.clip_and_round(values[best], best),
            "n_ratings": self._item_counts[best],
        }
        if level is not None:
            low, high = self._predict_pair_intervals([user] * len(ids), ids, level)
            columns |= {"low": low, "high": high}
        return as_table(columns, self.library_, RecommendedItem, self.items_.kind)

    def _score_items(
        self,
        user: Any,
        uncertainty_penalty: float,
        popularity: float,
        min_ratings: int,
        exclude_seen: bool = True,
        candidates: Any = None,
    ) -> tuple[Array, Array]:
        """Scores of all items, minus infinity where not allowed, and predictions."""
        row, position = self.user_store_.look_up(user)
        penalty = check_number("uncertainty_penalty", uncertainty_penalty, low=0.0)
        if penalty > 0.0:
            self._check_noise("uncertainty_penalty")
        kind = "latent" if penalty > 0.0 else None
        values, std = self.user_store_.scorer.predict_all_items(row, position, kind)
        scores = values.copy() if std is None else values - penalty * std
        bonus = check_number("popularity", popularity, low=0.0)
        scores += bonus * np.log10(np.maximum(self._item_counts, 1))
        least = check_integer("min_ratings", min_ratings, low=0)
        scores[self._item_counts < least] = -np.inf
        if check_flag("exclude_seen", exclude_seen):
            scores[row.indices] = -np.inf
        if candidates is not None:
            allowed = np.zeros(len(scores), dtype=bool)
            allowed[[self.items_.position_of(item) for item in candidates]] = True
            scores[~allowed] = -np.inf
        return scores, values

    @limit_blas_threads(1)
    def similar_items(self, item: Any, n: int = 10, *, min_ratings: int = 1) -> Any:
        """List the ``n`` items most similar to an item, as a table.

        Parameters
        ----------
        item : id
            The item.
        n : int
            Number of items.
        min_ratings : int
            Leave out items with fewer ratings in the fit.

        Returns
        -------
        frame, or list of `SimilarItem`
            Items, the most similar first. ``similarity`` is the correlation of the
            ratings of both items after the users' general levels are removed.
        """
        check_is_fitted(self)
        position = self.items_.position_of(item)
        similarities = self.user_store_.scorer.similarities(position)
        allowed = self._item_counts >= check_integer("min_ratings", min_ratings, low=0)
        allowed[position] = False
        scores = np.where(allowed, similarities, -np.inf)
        best = metrics.top_n(scores, check_integer("n", n, low=1))
        columns = {
            self.item: [self.items_.values[j] for j in best],
            "similarity": similarities[best],
            "n_ratings": self._item_counts[best],
        }
        return as_table(columns, self.library_, SimilarItem, self.items_.kind)

    @limit_blas_threads(1)
    def add_user(self, ratings: Any, user: Any = None, *, replace: bool = False) -> Any:
        """Add a user, or ratings of a known user, without fitting again.

        Parameters
        ----------
        ratings : mapping, frame, tuple of two columns, or rows
            The user's ratings: ``{item: rating}``, or a table of both columns.
        user : id, optional
            By default a new id. The ratings of a known user are added to the previous
            ones, and replace those of the same items.
        replace : bool
            Discard the previous ratings.

        Returns
        -------
        id
            The user, for `predict`, `recommend` and `explain`.

        Notes
        -----
        Predictions for such a user depend on the user's own ratings and the kernel of
        the items. Items that the fit has not seen are left out with a warning, or
        refused if ``handle_unknown="error"``.
        """
        check_is_fitted(self)
        check_flag("replace", replace)
        item_ids, column = read_user_ratings(ratings, (self.item, self.rating))
        values = parse_ratings(column, self.rating)
        if user is None:
            user = self.user_store_.new_id()
        (user,), kind = normalize_ids("user", [user])
        if kind != self.user_store_.vocabulary.kind:
            raise TypeError(
                "user must be of the kind of the other ids, "
                f"{self.user_store_.vocabulary.kind}, got {user!r}"
            )
        positions = self._item_positions(item_ids)
        known = positions >= 0
        positions, values = positions[known], values[known]
        self._check_bounds(values)
        one_user, rule = np.zeros(len(positions), dtype=np.int64), str(self.duplicates)
        _, i, kept, duplicate = merge_duplicates(
            one_user, positions, values, len(self.items_), rule
        )
        if duplicate is not None:
            raise ValueError(
                f"item {self.items_.values[positions[duplicate]]!r} is rated more than "
                "once; choose a rating: duplicates='last' or 'mean'"
            )
        self.user_store_.add_ratings(user, i, kept, replace=replace)
        return user

    def _item_positions(self, items: list[Any]) -> Array:
        """Positions of items; -1, with a warning, for unknown ones."""
        positions = self.items_.encode(items)
        unknown = np.flatnonzero(positions < 0)
        if len(unknown) == 0:
            return positions
        first = items[int(unknown[0])]
        if self.handle_unknown == "error":
            self.items_.position_of(first)  # raises
        warnings.warn(
            f"{len(unknown)} of {len(items)} ratings are left out: "
            f"{self.items_.unknown_message(first)}",
            UserWarning,
            stacklevel=4,
        )
        return positions

    def _check_bounds(self, values: Array) -> None:
        largest = float(np.max(np.abs(self.user_store_.scorer.training.values)))
        beyond = values[np.abs(values) / MAX_RATING_FACTOR > (largest or 1.0)]
        if len(beyond):
            raise ValueError(
                f"{self.rating} must be on the scale of the fit, whose ratings are up "
                f"to {largest:g}, got {beyond[0]:g}"
            )
        clip = getattr(self.model_, "clip", None)
        if clip is None or isinstance(clip, str):
            return  # bounds inferred from ratings need not be the ends of the scale
        low, high = clip
        outside = values[(values < low) | (values > high)]
        if len(outside):
            raise ValueError(
                f"{self.rating} must be on the scale of the model, clip=({low:g}, "
                f"{high:g}), got {outside[0]:g}"
            )

    def ratings_of(self, user: Any) -> Any:
        """List the ratings of a user, the highest first, as a table."""
        check_is_fitted(self)
        row, _ = self.user_store_.look_up(user)
        order = np.argsort(-row.values, kind="stable")
        ids = [self.items_.values[k] for k in row.indices[order]]
        columns = {self.item: ids, self.rating: row.values[order]}
        return as_table(columns, self.library_, RatedItem, self.items_.kind)

    @limit_blas_threads(1)
    def explain(self, user: Any, item: Any) -> Explanation:
        """Decompose a prediction into parts that add up to it.

        Parameters
        ----------
        user, item : id
            The pair.
        """
        check_is_fitted(self)
        row, position = self.user_store_.look_up(user)
        j = self.items_.position_of(item)
        scorer = self.user_store_.scorer
        item_level, user_level, own, similar_users = scorer.decompose(row, position, j)
        ids = [self.items_.values[k] for k in row.indices]
        reasons = tuple(
            Reason(ids[k], float(row.values[k]), float(own[k]))
            for k in np.argsort(-np.abs(own), kind="stable")
        )
        value = item_level + user_level + float(own.sum()) + similar_users
        bounds = self._value_bounds
        predicted = float(bounds.clip_and_round(np.array([value]), np.array([j]))[0])
        return Explanation(
            user, item, predicted, item_level, user_level, reasons, similar_users
        )

    @limit_blas_threads(1)
    def predict_interval(
        self, users: Any, items: Any, level: float = 0.9
    ) -> tuple[Any, Any]:
        """Predict intervals that hold the ratings with a given probability.

        Parameters
        ----------
        users, items : ids, or lists of ids of one length
            As in `predict`.
        level : float
            Fraction of the ratings that are to lie in their intervals.

        Returns
        -------
        low, high : floats, or arrays of shape (pairs,)
            Ends of the intervals.
        """
        user_ids, item_ids, single = self._resolve_pairs(users, items)
        low, high = self._predict_pair_intervals(user_ids, item_ids, level)
        return (float(low[0]), float(high[0])) if single else (low, high)

    def _predict_pair_intervals(
        self, user_ids: list[Any], item_ids: list[Any], level: float
    ) -> tuple[Array, Array]:
        part = check_fraction("level", level, strict=True)
        self._check_noise("level")
        store = self.user_store_
        pairs = predict_pairs(store, self.items_, user_ids, item_ids, "observed")
        blended = store.scorer.blended_conformal_scores.quantiles(part)
        single_sided = store.scorer.conformal_scores.quantiles(part)
        down, up = np.where(pairs.is_blended[:, None], blended, single_sided).T
        bounds = self._value_bounds
        with np.errstate(over="ignore"):
            low = pairs.values - down * pairs.deviations
            high = pairs.values + up * pairs.deviations
        return pairs.clip(low, bounds), pairs.clip(high, bounds)

    def _check_noise(self, parameter: str) -> None:
        if not self._has_noise_model():
            raise ValueError(
                f"{parameter} needs a model of the noise, and {self.model_._noise_hint}"
            )

    def _has_noise_model(self) -> bool:
        return float(self.model_._noise_level()) > 0.0

    @limit_blas_threads(1)
    def evaluate(
        self,
        test: Any,
        n: int = 10,
        *,
        relevance_threshold: float | None = None,
        level: float = 0.9,
        uncertainty_penalty: float = 0.0,
        popularity: float = 0.0,
        min_ratings: int = 1,
    ) -> RecommenderEvaluation:
        """Evaluate predictions, intervals and lists on held-out ratings.

        Parameters
        ----------
        test : frame, mapping or tuple of columns, or rows
            Ratings as in `fit`; none of them may have been fitted or added.
        n : int
            Length of the lists.
        relevance_threshold : float, optional
            Lowest rating of a relevant item; by default the mean rating of the fit.
        level : float
            Level of the intervals.
        uncertainty_penalty, popularity, min_ratings
            How lists are ranked, as in `recommend`.
        """
        check_is_fitted(self)
        columns = (self.user, self.item, self.rating)
        (users, items, stars), _ = read_columns(test, columns, "test")
        truth = parse_ratings(stars, self.rating)
        if len(truth) == 0:
            raise ValueError("test holds no rating")
        if relevance_threshold is None:
            fitted = self.user_store_.scorer.training.values
            relevance_threshold = overflow_safe_mean(fitted)
        length = check_integer("n", n, low=1)
        self._check_not_in_training(users, items)
        predicted = np.asarray(self.predict(users, items))
        covered = width = float("nan")
        if self._has_noise_model():
            low, high = self.predict_interval(users, items, level)
            covered = metrics.coverage(truth, low, high)
            width = metrics.interval_width(low, high)
        relevant: dict[Any, list[int]] = {}  # positions of relevant items, by user
        positions = self.items_.encode(items)
        for user, position, value in zip(users, positions, truth, strict=True):
            is_known = position >= 0 and user in self.user_store_
            if is_known and value >= relevance_threshold:
                relevant.setdefault(user, []).append(int(position))
        ranking = (uncertainty_penalty, popularity, min_ratings)
        rows = [[float("nan")] * len(RANKING_METRICS)]  # if no item is relevant
        for user, good_items in relevant.items():
            scores, _ = self._score_items(user, *ranking)
            gains = np.zeros(len(scores))
            gains[good_items] = 1.0
            rows.append([m(gains, scores, length) for m in RANKING_METRICS.values()])
        means = np.mean(rows[1:] or rows, axis=0).tolist()
        return RecommenderEvaluation(
            rmse=metrics.rmse(truth, predicted),
            mae=metrics.mae(truth, predicted),
            coverage=covered,
            width=width,
            level=level,
            **dict(zip(RANKING_METRICS, means, strict=True)),
            n=length,
            relevance_threshold=float(relevance_threshold),
            n_ratings=len(truth),
            n_users=len(relevant),
            unknown_users=sum(user not in self.user_store_ for user in users),
            unknown_items=int((positions < 0).sum()),
        )

    def _check_not_in_training(self, users: list[Any], items: list[Any]) -> None:
        rated: dict[Any, set[int]] = {}
        for row, (user, item) in enumerate(zip(users, items, strict=True)):
            if user not in self.user_store_:
                continue
            if user not in rated:
                rated[user] = set(self.user_store_.look_up(user)[0].indices.tolist())
            if self.items_.find(item) in rated[user]:
                raise ValueError(
                    f"test must hold ratings that were not fitted, and row {row} (user "
                    f"{user!r}, item {item!r}) was; split first, fit on one part"
                )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the recommender to one file that `load` reads, without pickle.

        The file holds the ratings and ids: it is as private as they are, and readable
        by its owner only.
        """
        check_is_fitted(self)
        store = self.user_store_
        header, arrays = estimator_state(self.model_, training_data=True)
        users, rows = list(store.added), list(store.added.values())
        parameters = self.get_params(deep=False)
        del parameters["model"]
        own = {
            "parameters": parameters,
            "library": self.library_,
            "users": store.vocabulary.to_json(),
            "items": self.items_.to_json(),
            "added": [str(u) if isinstance(u, UUID) else u for u in users],
        }
        added = Observations.vstack([store.scorer.make_row([], []), *rows])
        arrays["added/ends"] = added.indptr[1:]
        arrays["added/items"], arrays["added/values"] = added.indices, added.values
        header = {**header, "kind": ARCHIVE_KIND, "recommender": own}
        write_archive(path, header, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a recommender that `save` wrote, with the users added to it."""
        header, arrays = read_archive(path, ARCHIVE_KIND)
        with broken_on_error(path):
            return cls._from_state(header, arrays)

    @classmethod
    def _from_state(cls, header: dict[str, Any], arrays: dict[str, Array]) -> Self:
        own = header.pop("recommender")
        check_keys("recommender", own, RECOMMENDER_KEYS)
        check_choice("class", header["class"], MODEL_CLASS_NAMES)
        ends, positions, values = (
            arrays.pop(f"added/{part}") for part in ("ends", "items", "values")
        )
        model = estimator_from_state(header, arrays)
        users = Vocabulary.from_json("user", own["users"])
        items = Vocabulary.from_json("item", own["items"])
        if model.training_.shape != (len(users), len(items)):
            raise ValueError("training_ needs a row per user and a column per item")
        names = set(cls._get_param_names()) - {"model"}
        check_keys("parameters", own["parameters"], names)
        recommender = cls(model, **own["parameters"])
        recommender._check_params()
        library = check_choice("library", own["library"], ("plain", "pandas", "polars"))
        recommender._set_fitted_attributes(model, users, items, library)
        added = ids_from_json("added", users.kind, own["added"])
        shape = np.array([len(added), len(items)])
        parts = zip(CSR_PARTS, (values, positions, ends, shape), strict=True)
        csr_from_arrays("added", {f"added/{part}": array for part, array in parts})
        recommender._check_bounds(values)
        store = recommender.user_store_
        for user, first, last in zip(added, ends, ends[1:], strict=False):
            row = store.scorer.make_row(positions[first:last], values[first:last])
            store.added[user] = row
        return recommender

    @property
    def _value_bounds(self) -> ValueBounds:
        return self.user_store_.scorer.model.bounds

    @property
    def _item_counts(self) -> Array:
        return self.user_store_.scorer.training.column_counts


def _prepare_model(model: Any, observed: Observations) -> Any:
    """Clone a model, set up so that it learns a kernel of the items."""
    if model is None:
        model = BayesianNCARL()
    if not isinstance(model, BayesianNCARL | NCARL | NCARLCV):
        given = model if isinstance(model, type) else type(model)
        raise TypeError(
            "model must be a BayesianNCARL, NCARL or NCARLCV, which learn a kernel of "
            "the items that new users and explanations need, got "
            f"{'the class ' if isinstance(model, type) else ''}{given.__name__}"
        )
    copy = clone(model)
    if not isinstance(copy, BayesianNCARL):
        if copy.orientation == "rows":
            raise ValueError(
                "model must have its kernel on the items, got orientation='rows'; use "
                "orientation='columns'"
            )
        return copy.set_params(orientation="columns")
    if copy.sides == "rows":
        raise ValueError(
            "model must have a kernel of the items, got sides='rows'; use 'auto', "
            "'columns' or 'both'"
        )
    if copy.components != 1:
        raise ValueError(
            "model must have one kernel of the items, by which they are compared, got "
            f"components={copy.components!r}; use components=1"
        )
    if copy.sides == "auto" and not select_sides("auto", InMemoryDataset(observed))[0]:
        raise ValueError(
            f"{observed.shape[1]} items are too many for a kernel of the items; leave "
            "out those with few ratings, or insist with "
            "model=BayesianNCARL(sides='columns')"
        )
    return copy
