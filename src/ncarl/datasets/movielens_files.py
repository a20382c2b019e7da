"""Ratings of MovieLens from a file, checked against what is known of the release."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ncarl.core.types import Array
from ncarl.datasets.arrays import NUMBER, WHOLE, read_arrays, refuse
from ncarl.datasets.official import Table, opened, read_table
from ncarl.datasets.ratings import Ratings
from ncarl.datasets.releases import Release

#: No release has ids near this; beyond it a file is something else.
LARGEST_ID = 10_000_000
LOWEST, HIGHEST = 0.5, 5.0


def read_ratings(release: Release, path: Path) -> Ratings:
    """All ratings of a release from an NPZ file, an official archive or its folder.

    Raises
    ------
    BrokenFileError
        If the file is damaged, or its counts are not those of the release.
    """
    if path.suffix == ".npz":
        table = _from_arrays(path)
    else:
        table = _from_official(release, path, release.table)
    _check(release, path, table)
    users, user_ids = _positions(table.user, release.shape and release.shape[0])
    items, item_ids = _positions(table.item, release.shape and release.shape[1])
    return Ratings(
        users=users,
        items=items,
        ratings=table.rating,
        timestamps=table.timestamp,
        shape=(len(user_ids), len(item_ids)),
        user_ids=user_ids,
        item_ids=item_ids,
        name=release.name,
    )


def read_split(release: Release, split: str, path: Path) -> tuple[Ratings, Array]:
    """All ratings, and which of them belong to the test part of a split."""
    ratings = read_ratings(release, path)
    if path.suffix == ".npz":
        name = f"{split}_test"
        places = read_arrays(path, {name: (WHOLE, 1)})[name].astype(np.int64)
    else:
        part = _from_official(release, path, f"{split}.test")
        places = _places(ratings, part)
    outside = len(places) == 0 or places.min() < 0 or places.max() >= len(ratings)
    refuse(path, outside, f"a test part {split} of its own ratings", "other entries")
    test = np.zeros(len(ratings), dtype=bool)
    test[places] = True
    refuse(path, test.sum() < len(places), f"each entry of {split} once", "some twice")
    return ratings, test


def _from_arrays(path: Path) -> Table:
    """The ratings of an NPZ file."""
    arrays = read_arrays(
        path,
        {"user": (WHOLE, 1), "item": (WHOLE, 1), "rating": (NUMBER, 1)},
        {"timestamp": (WHOLE, 1)},
    )
    sizes = {name: len(array) for name, array in arrays.items()}
    refuse(path, len(set(sizes.values())) > 1, "arrays of one length", sizes)
    largest = max(int(arrays[name].max(initial=0)) for name in ("user", "item"))
    refuse(path, largest > np.iinfo(np.int32).max, "ids of 32 bits", largest)
    time = arrays.get("timestamp")
    return Table(
        user=arrays["user"].astype(np.int32),
        item=arrays["item"].astype(np.int32),
        rating=arrays["rating"].astype(np.float64),
        timestamp=None if time is None else time.astype(np.int64),
    )


def _from_official(release: Release, path: Path, file: str) -> Table:
    """The ratings of a table in an official archive or folder."""
    members = (f"{release.folder}/{file}", file)
    with opened(path, members, release.table_limit) as stream:
        name = f"{file} of {str(path)!r}"
        return read_table(stream, name, release.separator, release.header)


def _check(release: Release, path: Path, table: Table) -> None:
    """Raise if ids, ratings or counts cannot be those of the release."""
    refuse(path, len(table.rating) == 0, "ratings", "none")
    bounds = release.shape or (LARGEST_ID, LARGEST_ID)
    for name, ids, most in zip(
        ("users", "films"), (table.user, table.item), bounds, strict=True
    ):
        low, high = int(ids.min()), int(ids.max())
        wrong = low < 1 or high > most
        refuse(path, wrong, f"ids of {name} from 1 to {most}", f"{low} to {high}")
    stars = table.rating
    inside = (stars >= LOWEST) & (stars <= HIGHEST)
    refuse(
        path,
        not inside.all(),
        f"ratings from {LOWEST} to {HIGHEST}",
        stars[~inside][:1],
    )
    if release.counts is not None:
        users, items = (int(_occurs(ids).sum()) for ids in (table.user, table.item))
        counts = (users, items, len(stars))
        expected = "{} users, {} films and {} ratings".format(*release.counts)
        refuse(
            path, counts != release.counts, f"{release.name} with {expected}", counts
        )


def _occurs(ids: Array) -> Array:
    """Whether each id from 0 to the largest one occurs."""
    there = np.zeros(int(ids.max()) + 1, dtype=bool)
    there[ids] = True
    return there


def _positions(ids: Array, count: int | None) -> tuple[Array, Array]:
    """Positions from 0, and the id of each position."""
    if count is not None:
        return ids - np.int32(1), np.arange(1, count + 1, dtype=np.int32)
    there = _occurs(ids)
    position = np.cumsum(there, dtype=np.int32) - np.int32(1)
    return position[ids], np.flatnonzero(there).astype(np.int32)


def _places(ratings: Ratings, part: Table) -> Array:
    """Where the entries of a part stand among all ratings; -1 for foreign ones."""
    width = ratings.shape[1] + 1
    keys = (ratings.users + 1).astype(np.int64) * width + ratings.items + 1
    wanted = part.user.astype(np.int64) * width + part.item
    order = np.argsort(keys)
    found = order[np.searchsorted(keys[order], wanted).clip(max=len(keys) - 1)]
    same = (keys[found] == wanted) & (ratings.ratings[found] == part.rating)
    return np.where(same, found, -1)
