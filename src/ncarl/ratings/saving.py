"""A recommender on disk: the model, the ids and the ratings in one file, no pickle."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any
from uuid import UUID

import numpy as np

from ncarl.core.types import Array
from ncarl.exceptions import BrokenFileError
from ncarl.observed import Observed
from ncarl.ratings.ids import KINDS, Ids
from ncarl.saving import described, restored
from ncarl.storage import read_archive, write_archive

if TYPE_CHECKING:
    from ncarl.ratings.recommender import Recommender

KIND = "recommender"
#: Parameters of a recommender that a file keeps.
PARAMETERS = ("user", "item", "rating", "duplicates", "unknown")


def save(recommender: Recommender, path: str | os.PathLike[str]) -> None:
    """Write a fitted recommender; `load` reads it back."""
    people = recommender.people_
    header, arrays = described(recommender.model_, training_data=True)
    users = list(people.added)
    rows = [people.added[user] for user in users]
    own = {
        "parameters": {name: getattr(recommender, name) for name in PARAMETERS},
        "library": recommender.library_,
        "users": people.ids.to_json(),
        "items": recommender.items_.to_json(),
        "added": [str(u) if isinstance(u, UUID) else u for u in users],
    }
    ends = np.cumsum([0, *(row.n_observed for row in rows)])
    arrays["added/ends"] = ends.astype(np.int64)
    arrays["added/items"] = _joined([row.indices for row in rows], np.int32)
    arrays["added/values"] = _joined([row.values for row in rows], np.float64)
    write_archive(path, {**header, "kind": KIND, "recommender": own}, arrays)


def _joined(parts: list[Array], dtype: Any) -> Array:
    """Arrays one after the other; an empty one of the type without any."""
    return np.concatenate([np.empty(0, dtype), *parts]).astype(dtype)


def load(cls: type[Recommender], path: str | os.PathLike[str]) -> Recommender:
    """The recommender that `save` wrote."""
    header, arrays = read_archive(path, KIND)
    try:
        own = header["recommender"]
        model = restored(header, arrays)
        users = Ids.from_json("user", own["users"])
        items = Ids.from_json("item", own["items"])
        found = cls(model, **own["parameters"])
        found._take_up(model, users, items, own["library"])
        kind = KINDS[users.kind]
        for k, user in enumerate(own["added"]):
            part = slice(int(arrays["added/ends"][k]), int(arrays["added/ends"][k + 1]))
            columns, values = arrays["added/items"][part], arrays["added/values"][part]
            row: Observed = found.people_.server.one_row(columns, values)
            found.people_.added[kind(user)] = row
    except KeyError as error:
        raise BrokenFileError(
            f"path {str(path)!r} is damaged: it lacks {error}"
        ) from error
    return found
