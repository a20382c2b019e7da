"""The state of a fitted recommender, and how its answers are worked out."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from ncarl.core.types import Array
from ncarl.estimators.parameters import check_flag, check_number, check_whole
from ncarl.ratings.ids import Ids
from ncarl.ratings.people import People
from ncarl.ratings.predicting import Predicted, check_known, held, predicted
from ncarl.ratings.reading import read_pairs


class Fitted(BaseEstimator):
    """Model, users and items after a fit."""

    user: str
    item: str
    rating: str
    unknown: str
    model_: Any
    people_: People
    items_: Ids
    library_: str

    def _ranked(
        self, user: Any, *, exclude_seen: bool = True, careful: float = 0.0,
        popularity: float = 0.0, min_ratings: int = 1, among: Any = None,
    ) -> tuple[Array, Array]:  # fmt: skip
        """Scores of all items, minus infinity where not allowed, and predictions."""
        row, place = self.people_.look_up(user)
        off = check_number("careful", careful, low=0.0)
        if off > 0.0:
            self._check_noise("careful")
        std = "latent" if off > 0.0 else None
        values, spread = self.people_.server.all_items(row, place, std)
        scores = values.copy() if spread is None else values - off * spread
        known = check_number("popularity", popularity, low=0.0)
        scores += known * np.log10(np.maximum(self._counts, 1))
        scores[self._counts < check_whole("min_ratings", min_ratings, low=0)] = -np.inf
        if check_flag("exclude_seen", exclude_seen):
            scores[row.indices] = -np.inf
        if among is not None:
            chosen = np.zeros(len(scores), dtype=bool)
            chosen[[self.items_.place(item) for item in among]] = True
            scores[~chosen] = -np.inf
        return scores, values

    def _pairs(self, users: Any, items: Any) -> tuple[list[Any], list[Any], bool]:
        """Ids of users and items as lists of one length, if all may be asked for."""
        check_is_fitted(self)
        who, what, single = read_pairs(users, items)
        if self.unknown == "error":
            check_known(self.people_, self.items_, who, what)
        return who, what, single

    def _predicted(self, users: list[Any], items: list[Any]) -> Array:
        """Predictions within bounds."""
        found = predicted(self.people_, self.items_, users, items, None)
        return held(found, self._limits, found.values, settled=True)

    def _intervals(
        self, users: list[Any], items: list[Any], level: float
    ) -> tuple[Array, Array]:
        """Ends of intervals."""
        part = check_number("level", level, low=0.0, strict=True)
        if part >= 1.0:
            raise ValueError(f"level must be below 1, got {level!r}")
        self._check_noise("level")
        found: Predicted
        found = predicted(self.people_, self.items_, users, items, "observed")
        server = self.people_.server
        down, up = (
            np.where(found.blended, one, other)
            for one, other in zip(
                server.blended_scores.reach(part), server.scores.reach(part),
                strict=True,
            )
        )  # fmt: skip
        low = found.values - down * found.deviations
        high = found.values + up * found.deviations
        ends = (held(found, self._limits, end, settled=False) for end in (low, high))
        return next(ends), next(ends)

    def _check_noise(self, asked: str) -> None:
        """Raise if a model without noise is asked how sure it is."""
        if not self._knows_noise():
            raise ValueError(
                f"{asked} needs a model of the noise, and {self.model_._noise_hint}"
            )

    def _knows_noise(self) -> bool:
        """Whether the model can say how sure it is."""
        return float(self.model_._noise_level()) > 0.0

    @property
    def _id_kinds(self) -> dict[str, str]:
        """Kinds of ids, by the columns of tables that hold them."""
        return {self.item: self.items_.kind}

    @property
    def _limits(self) -> Any:
        """Bounds of ratings."""
        return self.people_.server.two.range

    @property
    def _counts(self) -> Array:
        """Ratings of each item in the fit."""
        return self.people_.server.training.column_counts

    @property
    def _mean(self) -> float:
        """Mean rating of the fit."""
        return float(self.people_.server.training.values.mean())
