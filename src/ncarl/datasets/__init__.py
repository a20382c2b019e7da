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

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

# Public name -> module that holds it; imported on first use.
_LAZY_IMPORTS = {
    "DataNotFoundError": "ncarl.exceptions",
    "DownloadError": "ncarl.exceptions",
    "LowRank": "ncarl.datasets.synthetic",
    "YearlyPanel": "ncarl.datasets.others",
    "Ratings": "ncarl.datasets.movielens",
    "TermsNotAcceptedError": "ncarl.exceptions",
    "Traffic": "ncarl.datasets.others",
    "available": "ncarl.datasets.catalog",
    "describe": "ncarl.datasets.catalog",
    "load_image_folder": "ncarl.datasets.others",
    "load_jester": "ncarl.datasets.others",
    "load_movielens": "ncarl.datasets.movielens",
    "load_movielens_split": "ncarl.datasets.movielens",
    "load_panel": "ncarl.datasets.others",
    "load_sample_image": "ncarl.datasets.others",
    "load_traffic": "ncarl.datasets.others",
    "make_low_rank": "ncarl.datasets.synthetic",
}

if TYPE_CHECKING:  # once more for type checkers, which cannot follow the dictionary
    from ncarl.datasets.catalog import available as available, describe as describe
    from ncarl.datasets.movielens import (
        Ratings as Ratings,
        load_movielens as load_movielens,
        load_movielens_split as load_movielens_split,
    )
    from ncarl.datasets.others import (
        Traffic as Traffic,
        YearlyPanel as YearlyPanel,
        load_image_folder as load_image_folder,
        load_jester as load_jester,
        load_panel as load_panel,
        load_sample_image as load_sample_image,
        load_traffic as load_traffic,
    )
    from ncarl.datasets.synthetic import (
        LowRank as LowRank,
        make_low_rank as make_low_rank,
    )
    from ncarl.exceptions import (
        DataNotFoundError as DataNotFoundError,
        DownloadError as DownloadError,
        TermsNotAcceptedError as TermsNotAcceptedError,
    )

__all__ = sorted(_LAZY_IMPORTS)


def __getattr__(name: str) -> Any:
    if name not in _LAZY_IMPORTS:
        raise AttributeError(f"module 'ncarl.datasets' has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY_IMPORTS[name]), name)


def __dir__() -> list[str]:
    return list(__all__)
