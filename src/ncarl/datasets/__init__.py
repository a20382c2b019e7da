"""Data sets to try matrix completion on: made up, bundled, at hand or downloaded.

>>> from ncarl import datasets
>>> made = datasets.make_low_rank(20, 10, 2, missing=0.5)
>>> made.X.shape, int(made.hidden.sum())
((20, 10), 100)

Loaders look into the folder that the environment variable ``NCARL_DATA`` names and
then into the cache folder of the user. Only MovieLens can be downloaded, and only by
who accepts its terms; `describe` prints terms and citations of all data sets.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

# Public name -> module that holds it; imported on first use.
_HOMES = {
    "DataNotFoundError": "ncarl.datasets.errors",
    "DownloadError": "ncarl.datasets.errors",
    "LowRank": "ncarl.datasets.synthetic",
    "Panel": "ncarl.datasets.panels",
    "Ratings": "ncarl.datasets.ratings",
    "TermsNotAcceptedError": "ncarl.datasets.errors",
    "Traffic": "ncarl.datasets.panels",
    "available": "ncarl.datasets.sources",
    "describe": "ncarl.datasets.sources",
    "load_image_folder": "ncarl.datasets.pictures",
    "load_jester": "ncarl.datasets.jester",
    "load_movielens": "ncarl.datasets.movielens",
    "load_movielens_split": "ncarl.datasets.movielens",
    "load_panel": "ncarl.datasets.panels",
    "load_sample_image": "ncarl.datasets.pictures",
    "load_traffic": "ncarl.datasets.panels",
    "make_low_rank": "ncarl.datasets.synthetic",
}

if TYPE_CHECKING:
    from ncarl.datasets.errors import (
        DataNotFoundError,
        DownloadError,
        TermsNotAcceptedError,
    )
    from ncarl.datasets.jester import load_jester
    from ncarl.datasets.movielens import load_movielens, load_movielens_split
    from ncarl.datasets.panels import Panel, Traffic, load_panel, load_traffic
    from ncarl.datasets.pictures import load_image_folder, load_sample_image
    from ncarl.datasets.ratings import Ratings
    from ncarl.datasets.sources import available, describe
    from ncarl.datasets.synthetic import LowRank, make_low_rank

__all__ = [
    "DataNotFoundError",
    "DownloadError",
    "LowRank",
    "Panel",
    "Ratings",
    "TermsNotAcceptedError",
    "Traffic",
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


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ncarl.datasets' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
