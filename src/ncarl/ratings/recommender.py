"""Ratings in, recommendations out: the front door for users, items and stars."""

from __future__ import annotations

import os
import warnings
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ncarl.core.types import Array
from ncarl.estimators.parameters import check_choice, check_flag
from ncarl.observed import Observed, from_triplets
from ncarl.ratings import saving
from ncarl.ratings.asking import Answering
from ncarl.ratings.ids import Ids, plain_ids
from ncarl.ratings.models import ready, served
from ncarl.ratings.people import People
from ncarl.ratings.reading import DUPLICATES, merged, numbers, read_columns, read_rated

UNKNOWN = ("average", "error")
#: Times the largest rating of the fit that a rating may be; sums cannot overflow then.
FAR = 1e6
#: Columns that tables of answers have besides the items.
RESERVED = ("predicted", "n_ratings", "low", "high", "similarity")


class Recommender(Answering):
    """Predicts ratings, recommends items, and says why.

    Parameters
    ----------
    model : estimator, optional
        A `BayesianNCARL` (the default), `NCARL` or `NCARLCV`; it is copied, not
        changed.
    user, item, rating : str
        What the columns of tables are called.
    duplicates : {"error", "last", "mean"}, default="error"
        What becomes of ratings that one user gave to one item more than once.
    unknown : {"average", "error"}, default="average"
        What `predict` makes of users and items that it does not know: an average
        user, an item drawn at random; or an error.

    Attributes
    ----------
    model_ : estimator
        The fitted model; rows are users and columns are items.
    users, items : list
        Ids of the users and items that are known.

    Notes
    -----
    Ids are whole numbers, text or UUIDs, those of users of one kind and those of items
    of one kind. Tables come back in the library that the ratings of the fit came in:
    pandas, polars, or else a list of named tuples.

    Examples
    --------
    >>> from ncarl.ratings import Recommender
    >>> ratings = [("ann", "tea", 5), ("ann", "coffee", 1), ("bob", "tea", 4),
    ...            ("bob", "milk", 5), ("cid", "coffee", 5), ("cid", "tea", 1),
    ...            ("dan", "coffee", 4), ("dan", "milk", 2), ("eve", "tea", 5)]
    >>> model = Recommender().fit(ratings)
    >>> [found.item for found in model.recommend("eve", n=2)]
    ['milk', 'coffee']
    >>> new = model.add_user({"coffee": 5, "tea": 1})
    >>> model.predict(new, "milk") < model.predict("eve", "milk")
    True
    """

    def __init__(
        self, model: Any = None, *, user: str = "user", item: str = "item",
        rating: str = "rating", duplicates: str = "error", unknown: str = "average",
    ) -> None:  # fmt: skip
        self.model = model
        self.user = user
        self.item = item
        self.rating = rating
        self.duplicates = duplicates
        self.unknown = unknown

    def fit(self, ratings: Any, y: Any = None) -> Self:
        """Learn from ratings.

        Parameters
        ----------
        ratings : frame, mapping or tuple of columns, `Ratings`, or rows
            A pandas or polars frame, or a mapping, with the columns that ``user``,
            ``item`` and ``rating`` name; a tuple of three columns; or a list of rows
            (user, item, rating). What is not in it is not known, never zero.
        y : ignored
            For scikit-learn's interface.
        """
        rule = check_choice("duplicates", self.duplicates, DUPLICATES)
        check_choice("unknown", self.unknown, UNKNOWN)
        if self.item in RESERVED:
            raise ValueError(
                f"item must not be a name that answers have a column of, "
                f"{', '.join(RESERVED)}, got {self.item!r}; rename the column first"
            )
        read = read_columns(ratings, (self.user, self.item, self.rating))
        values = numbers(read.columns[2], self.rating)
        if len(values) == 0:
            raise ValueError("ratings holds no rating; nothing can be learned from it")
        users, u = Ids.of("user", read.columns[0])
        items, i = Ids.of("item", read.columns[1])
        u, i, values, fault = merged(u, i, values, len(items), rule)
        if fault is not None:
            raise ValueError(
                f"user {read.columns[0][fault]!r} rated item {read.columns[1][fault]!r}"
                " more than once; say which rating holds: duplicates='last' or 'mean'"
            )
        X = from_triplets(u, i, values, shape=(len(users), len(items)))
        model = ready(self.model, Observed.from_sparse(X)).fit(X)
        self._take_up(model, users, items, read.library)
        return self

    def add_user(self, ratings: Any, user: Any = None, *, replace: bool = False) -> Any:
        """The id of a user who is known from now on; nothing is fitted again.

        Parameters
        ----------
        ratings : mapping, frame, tuple of two columns, or rows
            What the user rated: ``{item: rating}``, a frame or rows of both.
        user : id, optional
            Who it is; a new id is made up otherwise. Of a user that is known already,
            ratings are added to those of before, and a rating of the same item takes
            the place of the one of before.
        replace : bool
            Forget the ratings of before.

        Returns
        -------
        id
            The user, for `predict`, `recommend` and `explain`.

        Notes
        -----
        What is said of such a user comes from the user's own ratings and the kernel of
        the items. Items that the fit has not seen say nothing: they are left out with
        a warning, or refused if ``unknown="error"``. Ratings outside the bounds that
        the model was given (``clip=(1, 5)``) are refused.
        """
        check_is_fitted(self)
        check_flag("replace", replace)
        columns = read_rated(ratings, (self.item, self.rating))
        values = numbers(columns[1], self.rating)
        if user is None:
            user = self.people_.new_id()
        (user,), kind = plain_ids("user", [user])
        if kind != self.people_.ids.kind:
            raise TypeError(
                f"user must be of the kind of the other ids, {self.people_.ids.kind}, "
                f"got {user!r}"
            )
        places = self._known_items(columns[0])
        known = places >= 0
        self._check_bounds(values[known])
        rule = str(self.duplicates)
        _, i, kept, fault = merged(
            np.zeros(int(known.sum()), dtype=np.int64), places[known], values[known],
            len(self.items_), rule,
        )  # fmt: skip
        if fault is not None:
            again = self.items_.values[places[known][fault]]
            raise ValueError(
                f"item {again!r} is rated more than once; say which rating holds: "
                "duplicates='last' or 'mean'"
            )
        self.people_.take(user, i, kept, replace=replace)
        return user

    def _known_items(self, items: list[Any]) -> Array:
        """Places of items, -1 for those that are not known, which are told of."""
        places = self.items_.codes(items)
        strange = np.flatnonzero(places < 0)
        if len(strange) == 0:
            return places
        first = self.items_.stranger(items[int(strange[0])])
        if self.unknown == "error":
            self.items_.place(items[int(strange[0])])
        warnings.warn(
            f"{len(strange)} of {len(items)} ratings are left out: {first}",
            UserWarning,
            stacklevel=3,
        )
        return places

    def _check_bounds(self, values: Array) -> None:
        """Raise if ratings lie outside a scale that was given, or of all proportion."""
        largest = float(np.max(np.abs(self.people_.server.training.values)))
        beyond = values[np.abs(values) / FAR > (largest or 1.0)]
        if len(beyond):
            raise ValueError(
                f"{self.rating} must be on the scale of the fit, whose ratings are up "
                f"to {largest:g}, got {beyond[0]:g}"
            )
        clip = getattr(self.model_, "clip", None)
        if clip is None or isinstance(clip, str):
            return  # bounds that were found in ratings do not tell where a scale ends
        low, high = clip
        outside = values[(values < low) | (values > high)]
        if len(outside):
            raise ValueError(
                f"{self.rating} must be on the scale of the model, clip=({low:g}, "
                f"{high:g}), got {outside[0]:g}"
            )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one file that `load` reads, without pickle.

        The ratings and ids are in it: it is as private as they are, and readable by
        its owner only.
        """
        check_is_fitted(self)
        saving.save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """The recommender that `save` wrote, with the users added to it."""
        return saving.load(cls, path)

    def _take_up(self, model: Any, users: Ids, items: Ids, library: str) -> None:
        """Set the fitted attributes."""
        self.model_ = model
        self.items_ = items
        self.library_ = library
        self.people_ = People(served(model), users)
