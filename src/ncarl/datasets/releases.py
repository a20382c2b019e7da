"""The releases of MovieLens: their files, formats and known counts."""

from __future__ import annotations

from dataclasses import dataclass

#: Official splits of the 100K release into training and test parts.
SPLITS = ("u1", "u2", "u3", "u4", "u5", "ua", "ub")
MEGABYTE = 1 << 20


@dataclass(frozen=True)
class Release:
    """One release of MovieLens.

    Attributes
    ----------
    name : str
        As `describe` knows it; the archive is called so too.
    folder : str
        Name of the folder in the archive.
    table : str
        File of the ratings in that folder.
    separator : str
        Between the fields of a line.
    header : bool
        Whether the first line of the table names the fields.
    shape : tuple of int or None
        Users and items if ids are positions from 1; None if only ids that occur get a
        row or column.
    counts : tuple of int or None
        Users and items that occur, and ratings; None if the release changes.
    archive_limit, table_limit : int
        Bytes that the archive and the table certainly do not exceed.
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
