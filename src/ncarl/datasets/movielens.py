"""MovieLens: from files at hand, files that a user names, or GroupLens itself."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from ncarl.core.types import Array
from ncarl.datasets.download import fetch, logger
from ncarl.datasets.errors import (
    DataNotFoundError,
    DownloadError,
    TermsNotAcceptedError,
)
from ncarl.datasets.movielens_files import read_ratings, read_split
from ncarl.datasets.places import VARIABLE, cache_folder, existing, find, looked_for
from ncarl.datasets.ratings import Ratings
from ncarl.datasets.releases import RELEASES, SPLITS, Release
from ncarl.datasets.sources import GROUPLENS, describe, source_of

T = TypeVar("T")


def load_movielens(
    name: str = "100k",
    *,
    source: str | os.PathLike[str] | None = None,
    download: bool = True,
    accept_terms: bool = False,
) -> Ratings:
    """The ratings of a release of MovieLens.

    They are looked for in ``source`` if given; else in the folder that the environment
    variable ``NCARL_DATA`` names, then in the cache folder of the user, then at
    GroupLens.

    Parameters
    ----------
    name : "100k", "1m", "10m", "25m" or "latest-small", default="100k"
        The release. 100K is 943 x 1682 and 1M 6040 x 3952, as their ids say; in the
        others only users and films with ratings have a row or column.
    source : path, optional
        An official archive or its folder, or an NPZ file of the arrays ``user``,
        ``item``, ``rating`` and perhaps ``timestamp``.
    download : bool, default=True
        Whether to ask GroupLens if the data are not at hand.
    accept_terms : bool, default=False
        Whether you accept the terms of the data set; nothing is downloaded otherwise.
        ``ncarl.datasets.describe("ml-100k")`` says what they are.

    Returns
    -------
    Ratings
        In the order of the file; ``matrix()`` makes a sparse matrix of them.

    Raises
    ------
    DataNotFoundError
        If the data are not at hand and were not to be downloaded.
    TermsNotAcceptedError
        If they could be downloaded.
    DownloadError
        If that failed.
    BrokenFileError
        If a file at hand is damaged or holds something else.

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
    return _obtain(release, source, download, accept_terms, read)


def load_movielens_split(
    split: str,
    *,
    source: str | os.PathLike[str] | None = None,
    download: bool = True,
    accept_terms: bool = False,
) -> tuple[Ratings, Array]:
    """MovieLens 100K and which of its ratings an official split keeps for the test.

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
        True for ratings of the test part.

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
    return _obtain(release, source, download, accept_terms, read)


def _obtain(
    release: Release,
    source: str | os.PathLike[str] | None,
    download: bool,
    accept_terms: bool,
    read: Callable[[Path], T],
) -> T:
    """What ``read`` makes of the files of a release, wherever they are."""
    if source is not None:
        return read(existing(source))
    files = source_of(release.name).files
    path = find(files)
    if path is not None:
        return read(path)
    tried, ways, terms = looked_for(files), _ways_out(release), describe(release.name)
    if not download:
        raise DataNotFoundError(f"{release.name} is not at hand: {tried}. {ways}")
    if not accept_terms:
        raise TermsNotAcceptedError(
            f"{release.name} is not at hand: {tried}. It can be downloaded if you "
            f"accept its terms: pass accept_terms=True. {ways}\n{terms}"
        )
    logger.info("terms of %s\n%s", release.name, terms)
    file = f"{release.name}.zip"
    try:
        return fetch(
            GROUPLENS + file, cache_folder() / file, release.archive_limit, read
        )
    except DownloadError as error:
        raise DownloadError(
            f"{release.name} is not at hand: {tried}; then {error}. {ways}"
        ) from error


def _ways_out(release: Release) -> str:
    """What to do without a download."""
    return (
        f"Without a download: get {GROUPLENS}{release.name}.zip in another way and "
        "pass it as source=, or put it into the folder that the environment variable "
        f"{VARIABLE} names."
    )
