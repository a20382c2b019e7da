"""Ratings at pairs of users and items, whether or not the fit has seen them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ncarl.core.types import Array
from ncarl.observed import Observed
from ncarl.ratings.ids import Ids, UnknownIdError
from ncarl.ratings.people import People


@dataclass(frozen=True)
class Predicted:
    """Predictions before they are held within bounds.

    Attributes
    ----------
    values, deviations : arrays of shape (pairs,)
        Ratings, and their standard deviations (0 if not asked for).
    items : int array
        Places of items; -1 for an item that is not known.
    blended : bool array
        Whether all that is known of the fit has spoken.
    """

    values: Array
    deviations: Array
    items: Array
    blended: Array


def predicted(
    people: People, items: Ids, users: list[Any], wanted: list[Any], std: str | None
) -> Predicted:
    """Ratings of pairs; a user or item that is not known counts as an average one."""
    server = people.server
    i, further = people.places(users)
    j = items.codes(wanted)
    found = Predicted(
        np.empty(len(j)), np.zeros(len(j)), j, (i >= 0) & (j >= 0) & server.blends
    )
    fitted, later = (i >= 0) & (j >= 0), (i < 0) & (j >= 0)
    if fitted.any():
        _put(found, fitted, *_of_fit(people, i[fitted], j[fitted], std))
    if later.any():
        rows = Observed.stacked(further)
        answer = server.entries(rows, -1 - i[later], j[later], std, both=False)
        _put(found, later, *answer)
    for place in np.unique(i[j < 0]):
        here = (i == place) & (j < 0)
        _put(found, here, *_any_item(people, int(place), further, std))
    return found


def _of_fit(
    people: People, i: Array, j: Array, std: str | None
) -> tuple[Array, Array | None]:
    """Ratings of users and items of the fit."""
    server = people.server
    if server.blends:
        return server.entries(server.training, i, j, std, both=True)
    # Nothing but their own ratings speaks of these users, so no others are read.
    wanted, position = np.unique(i, return_inverse=True)
    rows = server.training.take_rows(wanted)
    return server.entries(rows, position, j, std, both=False)


def _put(found: Predicted, where: Array, values: Any, spread: Any) -> None:
    """Write answers where they were asked for."""
    found.values[where] = values
    if spread is not None:
        found.deviations[where] = spread


def _any_item(
    people: People, place: int, further: list[Observed], std: str | None
) -> tuple[float, float | None]:
    """What a user gives an item drawn at random: a mean, and how far one is from it."""
    server = people.server
    user = None if place < 0 else place
    row = further[-1 - place] if user is None else server.row_of(place)
    values, spread = server.all_items(row, user, std)
    mean = float(np.mean(values))
    if spread is None:
        return mean, None
    # In units of the largest, whose square is 1, so that none can overflow.
    unit = max(float(np.max(np.abs(values))), float(np.max(spread))) or 1.0
    within, between = np.mean((spread / unit) ** 2), np.var(values / unit)
    return mean, unit * float(np.sqrt(within + between))


def check_known(
    people: People, items: Ids, users: list[Any], wanted: list[Any]
) -> None:
    """Raise if a user or an item is not known."""
    for user in users:
        if user is None or user not in people:
            raise UnknownIdError(people.ids.stranger(user))
    for item in wanted:
        items.place(item)


def held(found: Predicted, limits: Any, values: Array, *, settled: bool) -> Array:
    """Values within the bounds of their items, and rounded if the model does that."""
    known = found.items >= 0
    hold = limits.settled if settled else limits.clipped
    out = np.clip(values, np.min(limits.low), np.max(limits.high))
    out[known] = hold(values[known], found.items[known])
    return out
