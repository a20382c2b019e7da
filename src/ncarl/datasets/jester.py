"""Jester: jokes rated by people."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import IO, Any
from zipfile import is_zipfile

import numpy as np

from ncarl.core.types import Array
from ncarl.datasets.arrays import read_arrays, refuse
from ncarl.datasets.official import opened
from ncarl.datasets.sources import locate
from ncarl.exceptions import BrokenFileError

SHAPE = (24_983, 100)
#: What stands for "not rated" in the NPZ file and in the official table.
NO_RATING_X100, NO_RATING = -32768, 99.0
LIMIT = 100 << 20


def load_jester(*, source: str | os.PathLike[str] | None = None) -> Array:
    """Ratings of Jester data set 1, NaN where a joke was not rated.

    Parameters
    ----------
    source : path, optional
        ``jester-1.npz``, or the official table saved as CSV (also inside a ZIP archive
        or folder, as ``jester-data-1.csv``); by default such a file in the folder that
        the environment variable ``NCARL_DATA`` names, or in the cache folder.

    Returns
    -------
    array of shape (24983, 100)
        Users by jokes, from -10 to 10.

    Raises
    ------
    DataNotFoundError
        If there is no such file. It cannot be downloaded from here, since the official
        one is a spreadsheet.

    Examples
    --------
    >>> from ncarl.datasets import available, load_jester
    >>> if available()["jester"]:
    ...     X = load_jester()
    """
    path = locate("jester", source)
    if path.suffix == ".npz":
        coded = read_arrays(path, {"rating_x100": ("i", 2)})["rating_x100"]
        X = np.where(coded == NO_RATING_X100, np.nan, coded / 100.0)
    else:
        X = _from_table(path)
    refuse(path, X.shape != SHAPE, f"{SHAPE[0]} x {SHAPE[1]} ratings", X.shape)
    outside = X[np.abs(X) > 10.0]
    refuse(path, outside.size > 0, "ratings from -10 to 10", outside[:1])
    return X


def _from_table(path: Path) -> Array:
    """Ratings of the official table: a count, then one column for each joke."""
    try:
        with _opened(path) as stream:
            table = np.loadtxt(stream, delimiter=",", comments=None, ndmin=2)
    except ValueError as error:
        if isinstance(error, BrokenFileError):
            raise
        raise BrokenFileError(
            f"{str(path)!r} must be the table of Jester as comma-separated numbers; "
            f"save the spreadsheet as CSV: {error}"
        ) from error
    counts, ratings = table[:, 0], table[:, 1:]
    X = np.where(ratings == NO_RATING, np.nan, ratings)
    agree = (counts == np.isfinite(X).sum(axis=1)).all()
    refuse(path, not agree, "as many ratings as its first column says", "others")
    return X


def _opened(path: Path) -> contextlib.AbstractContextManager[IO[Any]]:
    """The table in a folder or archive, or the file itself."""
    if path.is_dir() or is_zipfile(path):
        return opened(path, ("jester-data-1.csv",), LIMIT)
    return path.open("rb")
