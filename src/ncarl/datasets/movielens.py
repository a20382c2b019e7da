"""MovieLens ratings: from local files, or downloaded from GroupLens."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ncarl.core.types import Array
from ncarl.datasets.catalog import (
    DATA_VARIABLE,
    GROUPLENS_URL,
    cache_folder,
    check_exists,
    dataset_info,
    describe,
    describe_search,
    find_file,
)
from ncarl.datasets.files import (
    INTEGER_KINDS,
    NUMERIC_KINDS,
    RawRatings,
    fetch,
    logger,
    open_member,
    raise_if_invalid,
    read_arrays,
    read_ratings_table,
)
from ncarl.exceptions import (
    DataNotFoundError,
    DownloadError,
    TermsNotAcceptedError,
)
from ncarl.observations import from_triplets

#: Official splits of the 100K release into training and test parts.
SPLITS = ("u1", "u2", "u3", "u4", "u5", "ua", "ub")
MEGABYTE = 1 << 20
#: Larger than all ids of any release.
MAX_ID = 10_000_000
#: Range of the ratings.
MIN_RATING, MAX_RATING = 0.5, 5.0
T = TypeVar("T")


@dataclass(frozen=True)
class Release:
    """A release of MovieLens.

    Attributes
    ----------
    name : str
        Name in the catalog and of the archive.
    folder : str
        Name of the folder in the archive.
    table : str
        File of the ratings in that folder.
    separator : str
        Separator of the fields of a line.
    header : bool
        Whether the first line of the table names the fields.
    shape : tuple of int or None
        Users and items if ids are positions from 1; None if only ids that occur get a
        row or column.
    counts : tuple of int or None
        Users and items that occur, and ratings; None if the release changes.
    archive_limit, table_limit : int
        Upper bounds on the sizes of the archive and the table, in bytes.
    """

    name: str
    folder: str
    table: str
    separator: str
    header: bool
    shape: tuple[int, int] | None
    counts: tuple[int, int, int] | None
    archive_limit: int
    table_limit: int


#: Releases by name.
RELEASES = {
    "100k": Release(
        name="ml-100k",
        folder="ml-100k",
        table="u.data",
        separator="\t",
        header=False,
        shape=(943, 1682),
        counts=(943, 1682, 100_000),
        archive_limit=20 * MEGABYTE,
        table_limit=10 * MEGABYTE,
    ),
    "1m": Release(
        name="ml-1m",
        folder="ml-1m",
        table="ratings.dat",
        separator="::",
        header=False,
        shape=(6040, 3952),
        counts=(6040, 3706, 1_000_209),
        archive_limit=25 * MEGABYTE,
        table_limit=100 * MEGABYTE,
    ),
    "10m": Release(
        name="ml-10m",
        folder="ml-10M100K",
        table="ratings.dat",
        separator="::",
        header=False,
        shape=None,
        counts=(69_878, 10_677, 10_000_054),
        archive_limit=200 * MEGABYTE,
        table_limit=800 * MEGABYTE,
    ),
    "25m": Release(
        name="ml-25m",
        folder="ml-25m",
        table="ratings.csv",
        separator=",",
        header=True,
        shape=None,
        counts=(162_541, 59_047, 25_000_095),
        archive_limit=600 * MEGABYTE,
        table_limit=2000 * MEGABYTE,
    ),
    "latest-small": Release(
        name="ml-latest-small",
        folder="ml-latest-small",
        table="ratings.csv",
        separator=",",
        header=True,
        shape=None,
        counts=None,
        archive_limit=25 * MEGABYTE,
        table_limit=100 * MEGABYTE,
    ),
}


@dataclass(frozen=True, eq=False)
class Ratings:
    """Ratings of items by users, in coordinate format.

    Attributes
    ----------
    users, items : int arrays of shape (entries,)
        Rows and columns, counted from 0.
    ratings : float array of shape (entries,)
        Ratings.
    timestamps : int array of shape (entries,) or None
        Seconds since 1970, if the source has them.
    shape : tuple of int
        Number of users and of items.
    user_ids, item_ids : int arrays of shape (users,), (items,)
        Ids of the rows and columns in the source.
    name : str
        Name of the data set, as in `describe`.

    Examples
    --------
    >>> import numpy as np
    >>> from ncarl.datasets import Ratings
    >>> who, what, ids = np.array([0, 1, 1]), np.array([0, 0, 1]), np.array([1, 2])
    >>> stars = np.array([5.0, 3.0, 4.0])
    >>> few = Ratings(who, what, stars, None, (2, 2), ids, ids, "few")
    >>> few.matrix().toarray()
    array([[5., 0.],
           [3., 4.]])
    >>> few.matrix([True, False, False]).nnz
    1
    """

    users: Array
    items: Array
    ratings: Array
    timestamps: Array | None
    shape: tuple[int, int]
    user_ids: Array
    item_ids: Array
    name: str

    def __len__(self) -> int:
        return len(self.ratings)

    def matrix(self, entries: Any = None) -> Any:
        """The ratings as a sparse matrix; stored entries are the observed ones.

        Parameters
        ----------
        entries : boolean array of shape (entries,) or int array, optional
            Only these entries; by default all of them.

        Returns
        -------
        scipy.sparse.csr_array
            Of the full shape, ready for ``fit``.
        """
        chosen: Any = slice(None)
        if entries is not None:
            chosen = np.asarray(entries)
            if chosen.dtype == bool and chosen.shape != self.ratings.shape:
                raise ValueError(
                    "entries must say yes or no to each of the "
                    f"{len(self.ratings)} ratings, got shape {chosen.shape}"
                )
            if chosen.dtype != bool and chosen.size and chosen.dtype.kind not in "iu":
                raise ValueError(
                    "entries must be booleans or positions in the list, got dtype "
                    f"{chosen.dtype}"
                )
            chosen = chosen if chosen.size else chosen.astype(np.intp)
        triples = (self.users[chosen], self.items[chosen], self.ratings[chosen])
        return from_triplets(*triples, shape=self.shape)


def load_movielens(
    name: str = "100k",
    *,
    source: str | os.PathLike[str] | None = None,
    download: bool = True,
    accept_terms: bool = False,
) -> Ratings:
    """Load the ratings of a release of MovieLens.

    They are read from ``source`` if given; else from the folder that the environment
    variable ``NCARL_DATA`` names, then from the cache folder of the user, then from
    GroupLens.

    Parameters
    ----------
    name : "100k", "1m", "10m", "25m" or "latest-small", default="100k"
        The release. 100K has shape (943, 1682) and 1M (6040, 3952), the range of their
        ids; in the others only users and films with ratings have a row or column.
    source : path, optional
        An official archive or its folder, or an NPZ file of the arrays ``user``,
        ``item``, ``rating`` and perhaps ``timestamp``.
    download : bool, default=True
        Whether to download from GroupLens if the data are not at hand.
    accept_terms : bool, default=False
        Whether you accept the terms of the data set, which
        ``ncarl.datasets.describe("ml-100k")`` prints; nothing is downloaded otherwise.

    Returns
    -------
    Ratings
        In the order of the file; ``matrix()`` makes a sparse matrix of them.

    Raises
    ------
    DataNotFoundError
        If the data are not at hand and ``download`` is False.
    TermsNotAcceptedError
        If they could be downloaded, but ``accept_terms`` is False.
    DownloadError
        If the download failed.
    BrokenFileError
        If a file is damaged or not the expected one.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with (Path(folder) / "ratings.csv").open("w") as file:
    ...         print("userId,movieId,rating,timestamp", file=file)
    ...         print("1,31,2.5,0", "7,10,4.0,1", sep=chr(10), file=file)
    ...     ratings = load_movielens("latest-small", source=folder)
    >>> ratings.shape, ratings.user_ids, ratings.ratings
    ((2, 2), array([1, 7], dtype=int32), array([2.5, 4. ]))
    """
    if name not in RELEASES:
        raise ValueError(f"name must be one of {', '.join(RELEASES)}, got {name!r}")
    release = RELEASES[name]
    read = partial(read_ratings, release)
    return _load_or_download(release, source, download, accept_terms, read)


def load_movielens_split(
    split: str,
    *,
    source: str | os.PathLike[str] | None = None,
    download: bool = True,
    accept_terms: bool = False,
) -> tuple[Ratings, Array]:
    """Load MovieLens 100K and the test mask of an official split.

    Parameters
    ----------
    split : "u1", "u2", "u3", "u4", "u5", "ua" or "ub"
        u1 to u5 are five parts of 20,000 ratings; ua and ub have ten of each user.
    source, download, accept_terms
        As in `load_movielens`.

    Returns
    -------
    ratings : Ratings
        All 100,000 of them.
    test : boolean array of shape (entries,)
        True for ratings of the test set.

    Examples
    --------
    >>> from ncarl.datasets import available, load_movielens_split
    >>> if available()["ml-100k"]:
    ...     ratings, test = load_movielens_split("u1")
    ...     train = ratings.matrix(~test)
    """
    if split not in SPLITS:
        raise ValueError(f"split must be one of {', '.join(SPLITS)}, got {split!r}")
    release = RELEASES["100k"]
    read = partial(read_split, release, split)
    return _load_or_download(release, source, download, accept_terms, read)


def _load_or_download(
    release: Release,
    source: str | os.PathLike[str] | None,
    download: bool,
    accept_terms: bool,
    read: Callable[[Path], T],
) -> T:
    """Read the files of a release, wherever they are."""
    if source is not None:
        return read(check_exists(source))
    files = dataset_info(release.name).files
    path = find_file(files)
    if path is not None:
        return read(path)
    tried, hint = describe_search(files), _manual_download_hint(release)
    terms = describe(release.name)
    if not download:
        raise DataNotFoundError(f"{release.name} is not at hand: {tried}. {hint}")
    if not accept_terms:
        raise TermsNotAcceptedError(
            f"{release.name} is not at hand: {tried}. It can be downloaded if you "
            f"accept its terms: pass accept_terms=True. {hint}\n{terms}"
        )
    logger.info("terms of %s\n%s", release.name, terms)
    file = f"{release.name}.zip"
    try:
        return fetch(
            GROUPLENS_URL + file, cache_folder() / file, release.archive_limit, read
        )
    except DownloadError as error:
        raise DownloadError(
            f"{release.name} is not at hand: {tried}; then {error}. {hint}"
        ) from error


def _manual_download_hint(release: Release) -> str:
    return (
        f"Without a download: get {GROUPLENS_URL}{release.name}.zip in another way and "
        "pass it as source=, or put it into the folder that the environment variable "
        f"{DATA_VARIABLE} names."
    )


def read_ratings(release: Release, path: Path) -> Ratings:
    """Read a release from an NPZ file, an official archive or its folder.

    Raises
    ------
    BrokenFileError
        If the file is damaged, or its counts are not those of the release.
    """
    if path.suffix == ".npz":
        table = _read_npz(path)
    else:
        table = _read_official(release, path, release.table)
    _check_release(release, path, table)
    users, user_ids = _encode_ids(table.user, release.shape and release.shape[0])
    items, item_ids = _encode_ids(table.item, release.shape and release.shape[1])
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
    """Read all ratings, and the test mask of a split."""
    ratings = read_ratings(release, path)
    if path.suffix == ".npz":
        name = f"{split}_test"
        places = read_arrays(path, {name: (INTEGER_KINDS, 1)})[name].astype(np.int64)
    else:
        part = _read_official(release, path, f"{split}.test")
        places = _match_entries(ratings, part)
    outside = len(places) == 0 or places.min() < 0 or places.max() >= len(ratings)
    raise_if_invalid(
        path, outside, f"a test part {split} of its own ratings", "other entries"
    )
    test = np.zeros(len(ratings), dtype=bool)
    test[places] = True
    raise_if_invalid(
        path, test.sum() < len(places), f"each entry of {split} once", "some twice"
    )
    return ratings, test


def _read_npz(path: Path) -> RawRatings:
    arrays = read_arrays(
        path,
        {
            "user": (INTEGER_KINDS, 1),
            "item": (INTEGER_KINDS, 1),
            "rating": (NUMERIC_KINDS, 1),
        },
        {"timestamp": (INTEGER_KINDS, 1)},
    )
    sizes = {name: len(array) for name, array in arrays.items()}
    raise_if_invalid(path, len(set(sizes.values())) > 1, "arrays of one length", sizes)
    largest = max(int(arrays[name].max(initial=0)) for name in ("user", "item"))
    raise_if_invalid(path, largest > np.iinfo(np.int32).max, "ids of 32 bits", largest)
    time = arrays.get("timestamp")
    return RawRatings(
        user=arrays["user"].astype(np.int32),
        item=arrays["item"].astype(np.int32),
        rating=arrays["rating"].astype(np.float64),
        timestamp=None if time is None else time.astype(np.int64),
    )


def _read_official(release: Release, path: Path, file: str) -> RawRatings:
    members = (f"{release.folder}/{file}", file)
    with open_member(path, members, release.table_limit) as stream:
        name = f"{file} of {str(path)!r}"
        return read_ratings_table(stream, name, release.separator, release.header)


def _check_release(release: Release, path: Path, table: RawRatings) -> None:
    """Raise if ids, ratings or counts cannot be those of the release."""
    raise_if_invalid(path, len(table.rating) == 0, "ratings", "none")
    bounds = release.shape or (MAX_ID, MAX_ID)
    for name, ids, most in zip(
        ("users", "films"), (table.user, table.item), bounds, strict=True
    ):
        low, high = int(ids.min()), int(ids.max())
        wrong = low < 1 or high > most
        raise_if_invalid(
            path, wrong, f"ids of {name} from 1 to {most}", f"{low} to {high}"
        )
    ratings = table.rating
    inside = (ratings >= MIN_RATING) & (ratings <= MAX_RATING)
    raise_if_invalid(
        path,
        not inside.all(),
        f"ratings from {MIN_RATING} to {MAX_RATING}",
        ratings[~inside][:1],
    )
    if release.counts is not None:
        users, items = (int(_id_mask(ids).sum()) for ids in (table.user, table.item))
        counts = (users, items, len(ratings))
        expected = "{} users, {} films and {} ratings".format(*release.counts)
        raise_if_invalid(
            path, counts != release.counts, f"{release.name} with {expected}", counts
        )


def _id_mask(ids: Array) -> Array:
    """Whether each id from 0 to the largest one occurs."""
    occurs = np.zeros(int(ids.max()) + 1, dtype=bool)
    occurs[ids] = True
    return occurs


def _encode_ids(ids: Array, count: int | None) -> tuple[Array, Array]:
    """Positions from 0, and the id of each position."""
    if count is not None:
        return ids - np.int32(1), np.arange(1, count + 1, dtype=np.int32)
    occurs = _id_mask(ids)
    position = np.cumsum(occurs, dtype=np.int32) - np.int32(1)
    return position[ids], np.flatnonzero(occurs).astype(np.int32)


def _match_entries(ratings: Ratings, part: RawRatings) -> Array:
    """Positions of the entries of a part among all ratings; -1 if not found."""
    width = ratings.shape[1] + 1
    keys = (ratings.users + 1).astype(np.int64) * width + ratings.items + 1
    wanted = part.user.astype(np.int64) * width + part.item
    order = np.argsort(keys)
    nearest = order[np.searchsorted(keys[order], wanted).clip(max=len(keys) - 1)]
    same = (keys[nearest] == wanted) & (ratings.ratings[nearest] == part.rating)
    return np.where(same, nearest, -1)
