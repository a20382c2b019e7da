"""Data sets for matrix completion: synthetic, bundled, from local files or downloaded.

>>> from ncarl import datasets
>>> made = datasets.make_low_rank(20, 10, 2, missing=0.5)
>>> made.X.shape, int(made.hidden.sum())
((20, 10), 100)

Loaders search the folder that the environment variable ``NCARL_DATA`` names, then the
cache folder of the user. Only MovieLens can be downloaded, by users who accept its
terms; `describe` prints terms and citations of all data sets.

Files: `catalog` (what there is), `files` (checked reading and download), `movielens`,
`others` (Jester, panels, traffic, pictures) and `synthetic`.
"""

from ncarl.datasets.catalog import available, describe
from ncarl.datasets.movielens import Ratings, load_movielens, load_movielens_split
from ncarl.datasets.others import (
    Traffic,
    YearlyPanel,
    load_image_folder,
    load_jester,
    load_panel,
    load_sample_image,
    load_traffic,
)
from ncarl.datasets.synthetic import LowRank, make_low_rank
from ncarl.exceptions import DataNotFoundError, DownloadError, TermsNotAcceptedError

__all__ = [
    "DataNotFoundError",
    "DownloadError",
    "LowRank",
    "Ratings",
    "TermsNotAcceptedError",
    "Traffic",
    "YearlyPanel",
    "available",
    "describe",
    "load_image_folder",
    "load_jester",
    "load_movielens",
    "load_movielens_split",
    "load_panel",
    "load_sample_image",
    "load_traffic",
    "make_low_rank",
]
