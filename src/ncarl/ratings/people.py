"""Users: those of the fit, those who came later, and nobody in particular."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import numpy as np

from ncarl.core.types import Array
from ncarl.observed import Observed
from ncarl.ratings.ids import Ids, UnknownIdError
from ncarl.ratings.serving import Server


@dataclass(frozen=True, eq=False)
class People:
    """The users that a recommender knows.

    Attributes
    ----------
    server : Server
        The model, and the ratings of its fit.
    ids : Ids
        Users of the fit.
    added : dict
        Ratings of users that came after the fit, or have changed since.
    """

    server: Server
    ids: Ids
    added: dict[Any, Observed] = field(default_factory=dict)

    def __contains__(self, user: Any) -> bool:
        return self._is_added(user) or self.ids.find(user) is not None

    def __iter__(self) -> Iterator[Any]:
        yield from self.ids.values
        yield from (user for user in self.added if user not in self.ids.places)

    def look_up(self, user: Any) -> tuple[Observed, int | None]:
        """Ratings of a user, and the place if they are those of the fit.

        None stands for a user of whom nothing is known.
        """
        if user is None:
            return self.server.one_row([], []), None
        if self._is_added(user):
            return self.added[user], None
        place = self.ids.find(user)
        if place is None:
            raise UnknownIdError(
                f"{self.ids.stranger(user)}; add_user(ratings, user) makes one known, "
                "and None asks for nobody in particular"
            )
        return self.server.row_of(place), place

    def _is_added(self, user: Any) -> bool:
        """Whether a user came, or has changed, after the fit."""
        try:
            return not isinstance(user, bool) and user in self.added
        except TypeError:  # it cannot be hashed
            return False

    def places(self, users: Iterable[Any]) -> tuple[Array, list[Observed]]:
        """Where each user is found: a row of the fit, or one of some further rows.

        The k-th further row has place ``-1 - k``. Users that are not known share one
        without ratings.
        """
        further: list[Observed] = []
        where: dict[Any, int] = {}
        found = []
        for user in users:
            known = user is not None and user in self
            key = user if known else None
            if key not in where:
                row, place = self.look_up(key)
                if place is None:
                    further.append(row)
                    place = -len(further)
                where[key] = place
            found.append(where[key])
        return np.array(found, dtype=np.int64), further

    def take(self, user: Any, items: Array, values: Array, *, replace: bool) -> None:
        """Give a user ratings; those of before stay unless they are replaced."""
        known = {}
        if not replace and user in self:
            row, _ = self.look_up(user)
            known = dict(zip(row.indices.tolist(), row.values.tolist(), strict=True))
        known |= dict(zip(items.tolist(), values.tolist(), strict=True))
        order = sorted(known)
        self.added[user] = self.server.one_row(order, [known[j] for j in order])

    def new_id(self) -> Any:
        """An id of the kind of the others that nobody has."""
        if self.ids.kind == "uuid":
            return uuid4()
        if self.ids.kind == "int":
            return max([*self.ids.values, *self.added], default=-1) + 1
        count = len(self.added) + 1
        while f"new user {count}" in self:
            count += 1
        return f"new user {count}"
