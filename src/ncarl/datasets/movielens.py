"""MovieLens ratings: from local files, or downloaded from GroupLens."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeVar

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
    fetch,
    logger,
    open_member,
    raise_if_invalid,
    read_arrays,
)
from ncarl.exceptions import (
    BrokenFileError,
    DataNotFoundError,
    DownloadError,
    TermsNotAcceptedError,
)
from ncarl.observations import from_triplets
from ncarl.validation import check_choice

#: Separators of fields by suffix; only CSV files have a header.
SEPARATORS = {".data": "\t", ".test": "\t", ".dat": "::", ".csv": ","}
HEADER = b"userId,movieId,rating,timestamp"
FIELDS = {"user": "i4", "item": "i4", "rating": "f8", "timestamp": "i8"}
#: Bytes of a table that are parsed at once, and its longest line.
PARSE_CHUNK_BYTES, LONGEST_LINE = 1 << 24, 1000
#: Larger than all ids of any release.
MAX_ID = 10_000_000
#: Range of the ratings.
MIN_RATING, MAX_RATING = 0.5, 5.0
T = TypeVar("T")


@dataclass(frozen=True)
class Release:
    """A release of MovieLens."""

    name: str  # in the catalog and of the archive
    table: str  # file of the ratings in the archive
    # Largest ids of users and items; None if only ids that occur get a row or column.
    shape: tuple[int, int] | None
    # Users and items that occur, and ratings; None if the release changes.
    counts: tuple[int, int, int] | None
    archive_limit: int  # upper bounds of sizes in bytes
    table_limit: int


#: Releases by name; limits here in megabytes.
RELEASES = {
    key: Release(f"ml-{key}", table, shape, counts, archive << 20, size << 20)
    for key, table, shape, counts, archive, size in (
        ("100k", "ml-100k/u.data", (943, 1682), (943, 1682, 100_000), 20, 10),
        ("1m", "ml-1m/ratings.dat", (6040, 3952), (6040, 3706, 1_000_209), 25, 100),
        ("10m", "ml-10M100K/ratings.dat", None, (69_878, 10_677, 10_000_054), 200, 800),
        ("25m", "ml-25m/ratings.csv", None, (162_541, 59_047, 25_000_095), 600, 2000),
        ("latest-small", "ml-latest-small/ratings.csv", None, None, 25, 100),
    )
}
#: SHA-256 sums of the archives that never change.
SHA256_SUMS = {
    "ml-100k": "50d2a982c66986937beb9ffb3aa76efe955bf3d5c6b761f4e3a7cd717c6a3229",
    "ml-1m": "a6898adb50b9ca05aa231689da44c217cb524e7ebd39d264c56e2832f2c54e20",
    "ml-10m": "813c411ccb6122564edfe752e7f80c4dcc5aa25fa94c93622f6877a7ba252862",
    "ml-25m": "8b21cfb7eb1706b4ec0aac894368d90acf26ebdfb6aced3ebd4ad5bd1eb9c6aa",
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
                    f"entries must have one boolean for each of the {len(self)} "
                    f"ratings, got shape {chosen.shape}"
                )
            if chosen.dtype != bool and chosen.size and chosen.dtype.kind not in "iu":
                raise ValueError(
                    f"entries must be booleans or indices, got dtype {chosen.dtype}"
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

    Without ``source`` they are searched in the folder that the environment variable
    ``NCARL_DATA`` names, then in the cache folder of the user, then at GroupLens.

    Parameters
    ----------
    name : "100k", "1m", "10m", "25m" or "latest-small", default="100k"
        The release. 100K has shape (943, 1682) and 1M (6040, 3952), the range of their
        ids; in the others only users and films with ratings have a row or column.
    source : path, optional
        An official archive or its folder, or an NPZ file of the arrays ``user``,
        ``item``, ``rating`` and perhaps ``timestamp``.
    download : bool, default=True
        Whether to download from GroupLens if no file is found.
    accept_terms : bool, default=False
        Whether you accept the terms of the data set (see `describe`); nothing is
        downloaded otherwise.

    Returns
    -------
    Ratings
        In the order of the file; ``matrix()`` makes a sparse matrix of them.

    Raises
    ------
    DataNotFoundError
        If no file is found and ``download`` is False.
    TermsNotAcceptedError
        If the data could be downloaded, but ``accept_terms`` is False.
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
    release = RELEASES[check_choice("name", name, RELEASES)]
    read = partial(_read_ratings, release)
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
    check_choice("split", split, ("u1", "u2", "u3", "u4", "u5", "ua", "ub"))
    release = RELEASES["100k"]
    read = partial(_read_split, release, split)
    return _load_or_download(release, source, download, accept_terms, read)


def _load_or_download(
    release: Release,
    source: str | os.PathLike[str] | None,
    download: bool,
    accept_terms: bool,
    read: Callable[[Path], T],
) -> T:
    files = dataset_info(release.name).files
    path = find_file(files) if source is None else check_exists(source)
    if path is not None:
        return read(path)
    archive, terms = f"{release.name}.zip", describe(release.name)
    tried = f"{release.name} was not found: {describe_search(files)}"
    hint = (
        f"Without a download: get {GROUPLENS_URL}{archive} in another way and pass it "
        "as source=, or put it into the folder that the environment variable "
        f"{DATA_VARIABLE} names."
    )
    if not download:
        raise DataNotFoundError(f"{tried}. {hint}")
    if not accept_terms:
        raise TermsNotAcceptedError(
            f"{tried}. It can be downloaded if you accept its terms: pass "
            f"accept_terms=True. {hint}\n{terms}"
        )
    logger.info("terms of %s\n%s", release.name, terms)
    target = cache_folder() / archive
    try:
        url, known_sum = GROUPLENS_URL + archive, SHA256_SUMS.get(release.name)
        return fetch(url, target, release.archive_limit, read, known_sum)
    except DownloadError as error:
        raise DownloadError(f"{tried}; then {error}. {hint}") from error


def _read_ratings(release: Release, path: Path) -> Ratings:
    """Read a release from an NPZ file, an official archive or its folder."""
    npz = path.suffix == ".npz"
    table = _read_npz(path) if npz else _read_official(release, path, release.table)
    _check_release(release, path, table)
    n_users, n_items = release.shape or (None, None)
    users, user_ids = _encode_ids(table["user"], n_users)
    items, item_ids = _encode_ids(table["item"], n_items)
    return Ratings(
        users=users,
        items=items,
        ratings=table["rating"],
        timestamps=table.get("timestamp"),
        shape=(len(user_ids), len(item_ids)),
        user_ids=user_ids,
        item_ids=item_ids,
        name=release.name,
    )


def _read_split(release: Release, split: str, path: Path) -> tuple[Ratings, Array]:
    ratings = _read_ratings(release, path)
    if path.suffix == ".npz":
        name = f"{split}_test"
        places = read_arrays(path, {name: (INTEGER_KINDS, 1)})[name].astype(np.int64)
    else:
        part = _read_official(release, path, f"ml-100k/{split}.test")
        places = _match_entries(ratings, part)
    outside = len(places) == 0 or places.min() < 0 or places.max() >= len(ratings)
    expected = f"a test part {split} of its own ratings"
    raise_if_invalid(path, outside, expected, "other entries")
    test = np.zeros(len(ratings), dtype=bool)
    test[places] = True
    expected, repeated = f"each entry of {split} once", test.sum() < len(places)
    raise_if_invalid(path, repeated, expected, "some twice")
    return ratings, test


def _read_npz(path: Path) -> dict[str, Array]:
    ids, ratings = (INTEGER_KINDS, 1), (NUMERIC_KINDS, 1)
    required = {"user": ids, "item": ids, "rating": ratings}
    arrays = read_arrays(path, required, {"timestamp": ids})
    sizes = {name: len(array) for name, array in arrays.items()}
    raise_if_invalid(path, len(set(sizes.values())) > 1, "arrays of one length", sizes)
    largest = max(int(arrays[name].max(initial=0)) for name in ("user", "item"))
    raise_if_invalid(path, largest > np.iinfo(np.int32).max, "ids of 32 bits", largest)
    return {name: array.astype(FIELDS[name]) for name, array in arrays.items()}


def _read_official(release: Release, path: Path, table: str) -> dict[str, Array]:
    """Columns of a table of users, items, ratings and times.

    It is parsed in chunks, which `ncarl.io` cannot do within a ZIP archive.
    """
    members = (table, Path(table).name)
    name, separator = f"{members[1]} of {str(path)!r}", SEPARATORS[Path(table).suffix]
    parts: dict[str, list[Array]] = {field: [] for field in FIELDS}
    with open_member(path, members, release.table_limit) as stream:
        if separator == "," and stream.readline(LONGEST_LINE).strip() != HEADER:
            raise BrokenFileError(f"{name} must begin with the line {HEADER.decode()}")
        for chunk in _iter_line_chunks(stream, name):
            try:
                records = np.loadtxt(
                    io.BytesIO(chunk.replace(b"::", b"\t")),
                    dtype=list(FIELDS.items()),
                    delimiter="," if separator == "," else "\t",
                    comments=None,
                    ndmin=1,
                )
            except (ValueError, OverflowError) as error:
                raise BrokenFileError(
                    f"{name} must have lines of user, item, rating and time between "
                    f"{separator!r}: {error}"
                ) from error
            for field, part in parts.items():
                part.append(records[field].copy())
    raise_if_invalid(path, not parts["user"], f"ratings in {members[1]}", "none")
    # Parts are dropped column by column: at most one column is in memory twice.
    return {field: np.concatenate(parts.pop(field)) for field in FIELDS}


def _iter_line_chunks(stream: IO[bytes], name: str) -> Iterator[bytes]:
    rest = b""
    while block := stream.read(PARSE_CHUNK_BYTES):
        lines, _, rest = (rest + block).rpartition(b"\n")
        if len(rest) > LONGEST_LINE:
            raise BrokenFileError(f"{name} is not a table: a line has no end")
        if lines.strip():
            yield lines
    if rest.strip():
        yield rest


def _check_release(release: Release, path: Path, table: dict[str, Array]) -> None:
    """Raise if ids, ratings or counts cannot be those of the release."""
    users, items, ratings = table["user"], table["item"], table["rating"]
    raise_if_invalid(path, len(ratings) == 0, "ratings", "none")
    bounds = release.shape or (MAX_ID, MAX_ID)
    for name, ids, most in zip(("users", "films"), (users, items), bounds, strict=True):
        low, high = int(ids.min()), int(ids.max())
        expected = f"ids of {name} from 1 to {most}"
        raise_if_invalid(path, low < 1 or high > most, expected, f"{low} to {high}")
    outside = ratings[~((ratings >= MIN_RATING) & (ratings <= MAX_RATING))]
    expected = f"ratings from {MIN_RATING} to {MAX_RATING}"
    raise_if_invalid(path, outside.size > 0, expected, outside[:1])
    if release.counts is not None:
        counts = (int(_id_mask(users).sum()), int(_id_mask(items).sum()), len(ratings))
        sizes = "{} users, {} films and {} ratings".format(*release.counts)
        expected = f"{release.name} with {sizes}"
        raise_if_invalid(path, counts != release.counts, expected, counts)


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


def _match_entries(ratings: Ratings, part: dict[str, Array]) -> Array:
    """Positions of the entries of a part among all ratings; -1 if not found."""
    width = ratings.shape[1] + 1
    keys = (ratings.users + 1).astype(np.int64) * width + ratings.items + 1
    wanted = part["user"].astype(np.int64) * width + part["item"]
    order = np.argsort(keys)
    nearest = order[np.searchsorted(keys[order], wanted).clip(max=len(keys) - 1)]
    same = (keys[nearest] == wanted) & (ratings.ratings[nearest] == part["rating"])
    return np.where(same, nearest, -1)
