"""What a fitted recommender can be asked."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ncarl import ranking
from ncarl.estimators.parameters import check_choice, check_whole
from ncarl.ratings.answers import (
    Explanation,
    Rated,
    Reason,
    Recommended,
    SimilarItem,
    as_table,
)
from ncarl.ratings.evaluating import Evaluation, Test, errors_of, lists_of
from ncarl.ratings.fitted import Fitted
from ncarl.ratings.reading import numbers, read_columns

#: Ways to cut a prediction into parts.
CUTS = ("ratings", "kernel")


class Answering(Fitted):
    """A fitted recommender; `Recommender` says how it comes about."""

    @property
    def users(self) -> list[Any]:
        """Ids of all users: those of the fit, then those added since."""
        check_is_fitted(self)
        return list(self.people_)

    @property
    def items(self) -> list[Any]:
        """Ids of all items."""
        check_is_fitted(self)
        return list(self.items_.values)

    def predict(self, users: Any, items: Any) -> Any:
        """Ratings that users would give to items.

        Parameters
        ----------
        users, items : ids, or lists of ids of one length
            Who and what; one id stands for as many as there are of the other. What is
            not known is an average user, or an item drawn at random from all there
            are, unless ``unknown="error"``.

        Returns
        -------
        float, or array of shape (pairs,)
            Within the bounds of ratings. Of an item that the user has rated, the
            rating as the model sees it, with its noise taken off.
        """
        who, what, single = self._pairs(users, items)
        values = self._predicted(who, what)
        return float(values[0]) if single else values

    def predict_interval(
        self, users: Any, items: Any, level: float = 0.9
    ) -> tuple[Any, Any]:
        """Lower and upper ends of intervals that hold a rating.

        Parameters
        ----------
        users, items : ids, or lists of ids of one length
            As in `predict`.
        level : float
            Part of the ratings that are to lie in their intervals.
        """
        who, what, single = self._pairs(users, items)
        low, high = self._intervals(who, what, level)
        return (float(low[0]), float(high[0])) if single else (low, high)

    def recommend(
        self, user: Any, n: int = 10, exclude_seen: bool = True, *,
        careful: float = 0.0, popularity: float = 0.0, min_ratings: int = 1,
        among: Any = None, level: float | None = None,
    ) -> Any:  # fmt: skip
        """The ``n`` items that a user would rate highest, as a table.

        Parameters
        ----------
        user : id or None
            For whom; None for nobody in particular.
        n : int
            How many; fewer come back where there are fewer.
        exclude_seen : bool
            Leave out what the user has rated.
        careful : float
            So many standard deviations are taken off a prediction before items are
            ranked: at 1 or 2 an item of which little is known has to promise more.
        popularity : float
            Stars that count on top for an item with ten times as many ratings. People
            choose from what is well known: at 1 or 2 lists hold more of what they go on
            to pick, and less that they would not have found.
        min_ratings : int
            Leave out items with fewer ratings in the fit.
        among : list of ids, optional
            Only these items.
        level : float, optional
            Add the ends of intervals that hold this part of the ratings.

        Returns
        -------
        frame, or list of `Recommended`
            Items, the best first, with the rating ``predicted`` and ``n_ratings``, how
            many rated the item; ``low`` and ``high`` if asked for.
        """
        check_is_fitted(self)
        scores, values = self._ranked(
            user, exclude_seen=exclude_seen, careful=careful, popularity=popularity,
            min_ratings=min_ratings, among=among,
        )  # fmt: skip
        best = ranking.best(scores, check_whole("n", n, low=1))
        ids = [self.items_.values[j] for j in best]
        columns: dict[str, Any] = {
            self.item: ids,
            "predicted": self._limits.settled(values[best], best),
            "n_ratings": self._counts[best],
        }
        if level is not None:
            ends = self._intervals([user] * len(ids), ids, level)
            columns |= dict(zip(("low", "high"), ends, strict=True))
        return as_table(columns, self.library_, Recommended, self._id_kinds)

    def similar_items(self, item: Any, n: int = 10, *, min_ratings: int = 1) -> Any:
        """The ``n`` items that are liked by those who like an item, as a table.

        Parameters
        ----------
        item : id
            The item.
        n : int
            How many.
        min_ratings : int
            Leave out items with fewer ratings in the fit.

        Returns
        -------
        frame, or list of `SimilarItem`
            Items, the most similar first. ``similarity`` is the correlation of what
            users think of both, how generous they are taken off: 1 is the same taste,
            0 none in common.
        """
        check_is_fitted(self)
        place = self.items_.place(item)
        close = self.people_.server.similarities(place)
        allowed = self._counts >= check_whole("min_ratings", min_ratings, low=0)
        allowed[place] = False
        best = ranking.best(
            np.where(allowed, close, -np.inf), check_whole("n", n, low=1)
        )
        columns = {
            self.item: [self.items_.values[j] for j in best],
            "similarity": close[best],
            "n_ratings": self._counts[best],
        }
        return as_table(columns, self.library_, SimilarItem, self._id_kinds)

    def explain(self, user: Any, item: Any, *, cut: str = "ratings") -> Explanation:
        """Why a user gets the prediction of an item: parts that add up to it.

        Parameters
        ----------
        user, item : id
            Whom and what it is about.
        cut : {"ratings", "kernel"}, default="ratings"
            What a reason is: how far a rating is from the usual one times its weight;
            or ``y_j K_jc``, what it says beyond all other ratings of the user times
            the kernel, where parts are larger and take each other back.
        """
        check_is_fitted(self)
        by_kernel = check_choice("cut", cut, CUTS) == "kernel"
        row, place = self.people_.look_up(user)
        j = self.items_.place(item)
        parts = self.people_.server.parts(row, place, j, by_kernel=by_kernel)
        order = np.argsort(-np.abs(parts.contributions), kind="stable")
        ids = [self.items_.values[k] for k in row.indices]
        reasons = tuple(
            Reason(ids[k], float(row.values[k]), float(parts.contributions[k]))
            for k in order
        )
        shown = float(self._limits.settled(np.array([parts.value]), np.array([j]))[0])
        levels = parts.item_level, parts.user_level
        return Explanation(user, item, shown, *levels, reasons, parts.similar_users)

    def ratings_of(self, user: Any) -> Any:
        """What a user has rated, the highest first, as a table."""
        check_is_fitted(self)
        row, _ = self.people_.look_up(user)
        order = np.argsort(-row.values, kind="stable")
        ids = [self.items_.values[k] for k in row.indices[order]]
        columns = {self.item: ids, self.rating: row.values[order]}
        return as_table(columns, self.library_, Rated, self._id_kinds)

    def evaluate(
        self, test: Any, n: int = 10, *, good: float | None = None, level: float = 0.9,
        careful: float = 0.0, popularity: float = 0.0, min_ratings: int = 1,
    ) -> Evaluation:  # fmt: skip
        """How good predictions and lists are on ratings that were kept back.

        Parameters
        ----------
        test : frame, mapping or tuple of columns, or rows
            Ratings as in `fit`; none of them may be known to the recommender.
        n : int
            Length of the lists.
        good : float, optional
            Least rating that counts as good; by default the mean rating of the fit.
        level : float
            Part of the ratings that intervals are to hold.
        careful, popularity, min_ratings
            How lists are ranked, as in `recommend`.
        """
        check_is_fitted(self)
        read = read_columns(test, (self.user, self.item, self.rating), "test")
        values = numbers(read.columns[2], self.rating)
        if len(values) == 0:
            raise ValueError("test holds no rating")
        least = self._mean if good is None else float(good)
        length = check_whole("n", n, low=1)
        rule = {
            "careful": careful, "popularity": popularity, "min_ratings": min_ratings,
        }  # fmt: skip
        asked = Test(read.columns[0], read.columns[1], values)
        self._refuse_known(asked)
        figures = errors_of(self, asked, level) | lists_of(
            self, asked, length, least, rule
        )
        return Evaluation(
            **figures, level=level, n=length, good=least, n_ratings=len(values),
            unknown_users=sum(user not in self.people_ for user in asked.users),
            unknown_items=int((self.items_.codes(asked.items) < 0).sum()),
        )  # fmt: skip

    def _refuse_known(self, test: Test) -> None:
        """Raise if ratings to be predicted are known."""
        known: dict[Any, Any] = {}
        for row, (user, item) in enumerate(zip(test.users, test.items, strict=True)):
            if user not in self.people_:
                continue
            if user not in known:
                known[user] = set(self.people_.look_up(user)[0].indices.tolist())
            if self.items_.find(item) in known[user]:
                raise ValueError(
                    f"test must hold ratings that were not fitted, and row {row} (user "
                    f"{user!r}, item {item!r}) was; split first, fit on one part"
                )
