"""Catalog of the data sets (publisher, terms, citation), and the folders of files."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from ncarl.exceptions import DataNotFoundError
from ncarl.text import join_names
from ncarl.validation import check_choice

#: Environment variable that names a folder of data sets.
DATA_VARIABLE = "NCARL_DATA"
#: Folder of the archives, checksums and terms of GroupLens.
GROUPLENS_URL = "https://files.grouplens.org/datasets/movielens/"
MOVIELENS_CITATION = (
    "F. M. Harper and J. A. Konstan, The MovieLens datasets: history and context, ACM "
    "Transactions on Interactive Intelligent Systems 5(4), article 19, 2015"
)
_MOVIELENS_TERMS = (
    "For research; acknowledge the data set in publications; claim no endorsement by "
    "the University of Minnesota or GroupLens; no commercial use without permission; "
)
_NO_REDISTRIBUTION = _MOVIELENS_TERMS + "no redistribution without permission."
_SAME_TERMS = _MOVIELENS_TERMS + "redistribution only under these same terms."
_UNSTATED_TERMS = "Not stated with the data; cite the authors, do not pass it on."
_PANEL_LAYOUT = (
    "arrays outcome (units x years) and year; perhaps treatment (0 or 1, of the shape "
    "of outcome) and unit (names)"
)


@dataclass(frozen=True)
class DatasetInfo:
    """Entry of a data set in the catalog."""

    title: str
    publisher: str
    terms: str
    citation: str
    url: str  # page of the full terms, or of the data
    loader: str  # the call that loads it
    # Files or folders that the loader accepts, the preferred one first; empty if the
    # data come with another package.
    files: tuple[str, ...] = ()
    layout: str = ""  # content of such a file


def _movielens_info(
    key: str, size: str, terms: str, page: str, folder: str
) -> DatasetInfo:
    name = f"ml-{key}"
    return DatasetInfo(
        title=f"MovieLens {size}",
        publisher="GroupLens Research, University of Minnesota",
        terms=terms,
        citation=MOVIELENS_CITATION,
        url=f"{GROUPLENS_URL}{name}-README.{page}",
        loader=f'load_movielens("{key}")',
        files=tuple(dict.fromkeys((f"{name}.npz", f"{name}.zip", name, folder))),
        layout="the official archive or folder, or arrays user, item (ids from 1), "
        "rating and perhaps timestamp, one entry a rating",
    )


def _photograph_info(name: str, author: str) -> DatasetInfo:
    return DatasetInfo(
        title=f"{name}.jpg, a photograph bundled with scikit-learn",
        publisher="scikit-learn",
        terms="Creative Commons Attribution 2.0 (CC BY 2.0): name the author.",
        citation=f"Photograph: {name}.jpg of scikit-learn, by {author}, CC BY 2.0",
        url="https://creativecommons.org/licenses/by/2.0/",
        loader=f'load_sample_image("{name}")',
    )


#: Data sets by name.
CATALOG = {
    "ml-100k": _movielens_info("100k", "100K", _NO_REDISTRIBUTION, "txt", "ml-100k"),
    "ml-1m": _movielens_info("1m", "1M", _NO_REDISTRIBUTION, "txt", "ml-1m"),
    "ml-10m": _movielens_info("10m", "10M", _NO_REDISTRIBUTION, "html", "ml-10M100K"),
    "ml-25m": _movielens_info("25m", "25M", _NO_REDISTRIBUTION, "html", "ml-25m"),
    "ml-latest-small": _movielens_info(
        "latest-small", "latest, small", _SAME_TERMS, "html", "ml-latest-small"
    ),
    "jester": DatasetInfo(
        title="Jester data set 1: jokes rated from -10 to 10",
        publisher="Ken Goldberg, University of California, Berkeley",
        terms="For research, with citation; not to be passed on without permission.",
        citation="K. Goldberg, T. Roeder, D. Gupta and C. Perkins, Eigentaste: a "
        "constant time collaborative filtering algorithm, Information Retrieval 4(2), "
        "2001",
        url="https://eigentaste.berkeley.edu/dataset/",
        loader="load_jester()",
        files=("jester-1.npz", "jester-data-1.csv", "jester-data-1.zip"),
        layout="array rating_x100 (users x jokes, ratings times 100, -32768 where not "
        "rated), or the official table saved as CSV (a count first, 99 where not "
        "rated)",
    ),
    "smoking": DatasetInfo(
        title="Cigarette sales of 39 states of the USA, 1970 to 2000",
        publisher="the authors cited; also in several packages on synthetic control",
        terms=_UNSTATED_TERMS,
        citation="A. Abadie, A. Diamond and J. Hainmueller, Synthetic control methods "
        "for comparative case studies: estimating the effect of California's tobacco "
        "control program, Journal of the American Statistical Association 105, 2010",
        url="https://doi.org/10.1198/jasa.2009.ap08746",
        loader='load_panel("smoking")',
        files=("california_smoking.npz",),
        layout=_PANEL_LAYOUT,
    ),
    "basque": DatasetInfo(
        title="Product per head of Spain and 17 regions of it, 1955 to 1997",
        publisher="the authors cited; also in several packages on synthetic control",
        terms=_UNSTATED_TERMS,
        citation="A. Abadie and J. Gardeazabal, The economic costs of conflict: a case "
        "study of the Basque Country, American Economic Review 93(1), 2003",
        url="https://doi.org/10.1257/000282803321455188",
        loader='load_panel("basque")',
        files=("basque_gdp.npz",),
        layout=_PANEL_LAYOUT,
    ),
    "traffic": DatasetInfo(
        title="Los-loop: one week of road speeds in Los Angeles, every five minutes",
        publisher="the authors cited, from METR-LA; gaps were filled by them",
        terms=_UNSTATED_TERMS,
        citation="L. Zhao and others, T-GCN: a temporal graph convolutional network "
        "for traffic prediction, IEEE Transactions on Intelligent Transportation "
        "Systems 21(9), 2020",
        url="https://github.com/lehaifeng/T-GCN",
        loader="load_traffic()",
        files=("losloop_speed.npz",),
        layout="arrays speed (sensors x times), sensor (ids) and adjacency (sensors x "
        "sensors)",
    ),
    "china": _photograph_info("china", "danielbuechele"),
    # The notes of scikit-learn name danielbuechele here too, but link to this account.
    "flower": _photograph_info("flower", "vultilion"),
}


def describe(name: str) -> str:
    """Describe a data set: publisher, terms, citation, loader and files.

    Parameters
    ----------
    name : str
        One of the names that `available` gives.

    Examples
    --------
    >>> print(describe("china"))
    china: china.jpg, a photograph bundled with scikit-learn
    Publisher: scikit-learn
    Terms: Creative Commons Attribution 2.0 (CC BY 2.0): name the author.
    Cite: Photograph: china.jpg of scikit-learn, by danielbuechele, CC BY 2.0
    See: https://creativecommons.org/licenses/by/2.0/
    Load: ncarl.datasets.load_sample_image("china")
    """
    source = dataset_info(name)
    lines = [
        f"{name}: {source.title}",
        f"Publisher: {source.publisher}",
        f"Terms: {source.terms}",
        f"Cite: {source.citation}",
        f"See: {source.url}",
        f"Load: ncarl.datasets.{source.loader}",
    ]
    if source.files:
        lines += [f"Files: {', '.join(source.files)}", f"They hold: {source.layout}"]
    return "\n".join(lines)


def available() -> dict[str, bool]:
    """All data sets by name, and whether each can be loaded without a download.

    Examples
    --------
    >>> "ml-100k" in available()
    True
    """
    pillow = find_spec("PIL") is not None
    return {
        name: find_file(source.files) is not None if source.files else pillow
        for name, source in CATALOG.items()
    }


def dataset_info(name: str) -> DatasetInfo:
    """The catalog entry of a data set."""
    return CATALOG[check_choice("name", name, CATALOG)]


def locate(name: str, source: str | os.PathLike[str] | None = None) -> Path:
    """Path of a data set that cannot be downloaded."""
    files = dataset_info(name).files
    path = find_file(files) if source is None else check_exists(source)
    if path is None:
        raise DataNotFoundError(
            f"the data set {name!r} was not found: {describe_search(files)}. It cannot "
            f"be downloaded; put {files[0]} into the folder that the environment "
            f"variable {DATA_VARIABLE} names, or pass the file as source=.\n"
            f"{describe(name)}"
        )
    return path


def find_file(files: Sequence[str]) -> Path | None:
    """The first of some files or folders that exists in `data_folders`, or None."""
    paths = (folder / file for folder in data_folders() for file in files)
    return next((path for path in paths if path.exists()), None)


def check_exists(source: str | os.PathLike[str]) -> Path:
    """``source`` as a path; raises if nothing is there."""
    path = Path(source).expanduser()
    if not path.exists():
        raise DataNotFoundError(f"source must be a file or folder, got {str(source)!r}")
    return path


def describe_search(files: Sequence[str]) -> str:
    """A sentence on what `find_file` searched for, and where."""
    folders = join_names(list(map(str, data_folders())), form=repr, last=" and ")
    unset = "" if os.environ.get(DATA_VARIABLE) else f" ({DATA_VARIABLE} is not set)"
    return f"looked for {', '.join(files)} in {folders}{unset}"


def data_folders() -> list[Path]:
    """Folders that are searched, in this order."""
    named = os.environ.get(DATA_VARIABLE)
    if not named:
        return [cache_folder()]
    folder = Path(named).expanduser()
    if not folder.is_dir():
        raise NotADirectoryError(
            f"the environment variable {DATA_VARIABLE} must name a folder, got "
            f"{named!r}"
        )
    return [folder, cache_folder()]


def cache_folder() -> Path:
    """The folder of downloaded data sets; it need not exist."""
    # platformdirs is not used: it would be another core dependency.
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA", "")
        base = Path(local) if local else Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        # The XDG standard says that a relative path must be ignored.
        named = Path(os.environ.get("XDG_CACHE_HOME", ""))
        base = named if named.is_absolute() else Path.home() / ".cache"
    return base / "ncarl"
