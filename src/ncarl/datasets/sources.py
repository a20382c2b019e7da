"""Who published each data set, on what terms, and how to cite it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from ncarl.datasets.errors import DataNotFoundError
from ncarl.datasets.places import VARIABLE, existing, find, looked_for

HARPER = (
    "F. M. Harper and J. A. Konstan, The MovieLens datasets: history and context, ACM "
    "Transactions on Interactive Intelligent Systems 5(4), article 19, 2015"
)
_MOVIELENS_TERMS = (
    "For research; acknowledge the data set in publications; claim no endorsement by "
    "the University of Minnesota or GroupLens; no commercial use without permission; "
)
_KEEP = _MOVIELENS_TERMS + "no redistribution without permission."
_SHARE = _MOVIELENS_TERMS + "redistribution only under these same terms."
#: Where GroupLens keeps archives, their checksums and their terms.
GROUPLENS = "https://files.grouplens.org/datasets/movielens/"


@dataclass(frozen=True)
class Source:
    """What is to be known about a data set.

    Attributes
    ----------
    title, publisher, terms, citation : str
        For people.
    url : str
        Where the full terms, or the data, are; empty where no page is known.
    loader : str
        The call that loads it.
    files : tuple of str
        Files or folders that the loader takes, the best first; empty if the data come
        with another package.
    layout : str
        What such a file holds.
    """

    title: str
    publisher: str
    terms: str
    citation: str
    url: str
    loader: str
    files: tuple[str, ...] = ()
    layout: str = ""


def _movielens(key: str, size: str, terms: str, page: str, folder: str) -> Source:
    name = f"ml-{key}"
    return Source(
        title=f"MovieLens {size}",
        publisher="GroupLens Research, University of Minnesota",
        terms=terms,
        citation=HARPER,
        url=f"{GROUPLENS}{name}-README.{page}",
        loader=f'load_movielens("{key}")',
        files=tuple(dict.fromkeys((f"{name}.npz", f"{name}.zip", name, folder))),
        layout="the official archive or folder, or arrays user, item (ids from 1), "
        "rating and perhaps timestamp, one entry a rating",
    )


def _photograph(name: str, author: str) -> Source:
    return Source(
        title=f"{name}.jpg, a photograph bundled with scikit-learn",
        publisher="scikit-learn",
        terms="Creative Commons Attribution 2.0 (CC BY 2.0): name the author.",
        citation=f"Photograph: {name}.jpg of scikit-learn, by {author}, CC BY 2.0",
        url="https://creativecommons.org/licenses/by/2.0/",
        loader=f'load_sample_image("{name}")',
    )


_PANEL = (
    "arrays outcome (units x years) and year; perhaps treatment (0 or 1, of the shape "
    "of outcome) and unit (names)"
)

SOURCES = {
    "ml-100k": _movielens("100k", "100K", _KEEP, "txt", "ml-100k"),
    "ml-1m": _movielens("1m", "1M", _KEEP, "txt", "ml-1m"),
    "ml-10m": _movielens("10m", "10M", _KEEP, "html", "ml-10M100K"),
    "ml-25m": _movielens("25m", "25M", _KEEP, "html", "ml-25m"),
    "ml-latest-small": _movielens(
        "latest-small", "latest, small", _SHARE, "html", "ml-latest-small"
    ),
    "jester": Source(
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
    "smoking": Source(
        title="Cigarette sales of 39 states of the USA, 1970 to 2000",
        publisher="the authors cited; also in several packages on synthetic control",
        terms="Not stated with the data; cite the authors, do not pass it on.",
        citation="A. Abadie, A. Diamond and J. Hainmueller, Synthetic control methods "
        "for comparative case studies: estimating the effect of California's tobacco "
        "control program, Journal of the American Statistical Association 105, 2010",
        url="https://doi.org/10.1198/jasa.2009.ap08746",
        loader='load_panel("smoking")',
        files=("california_smoking.npz",),
        layout=_PANEL,
    ),
    "basque": Source(
        title="Product per head of Spain and 17 regions of it, 1955 to 1997",
        publisher="the authors cited; also in several packages on synthetic control",
        terms="Not stated with the data; cite the authors, do not pass it on.",
        citation="A. Abadie and J. Gardeazabal, The economic costs of conflict: a case "
        "study of the Basque Country, American Economic Review 93(1), 2003",
        url="https://doi.org/10.1257/000282803321455188",
        loader='load_panel("basque")',
        files=("basque_gdp.npz",),
        layout=_PANEL,
    ),
    "traffic": Source(
        title="Los-loop: one week of road speeds in Los Angeles, every five minutes",
        publisher="the authors cited, from METR-LA; gaps were filled by them",
        terms="Not stated with the data; cite the authors, do not pass it on.",
        citation="L. Zhao and others, T-GCN: a temporal graph convolutional network "
        "for traffic prediction, IEEE Transactions on Intelligent Transportation "
        "Systems 21(9), 2020",
        url="https://github.com/lehaifeng/T-GCN",
        loader="load_traffic()",
        files=("losloop_speed.npz",),
        layout="arrays speed (sensors x times), sensor (ids) and adjacency (sensors x "
        "sensors)",
    ),
    "china": _photograph("china", "danielbuechele"),
    # The notes of scikit-learn name danielbuechele here too, but link to this account.
    "flower": _photograph("flower", "vultilion"),
}


def describe(name: str) -> str:
    """What a data set is, its terms, how to cite it, and where its loader looks.

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
    source = source_of(name)
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
    """All data sets by name, and whether each is at hand without a download.

    Examples
    --------
    >>> "ml-100k" in available()
    True
    """
    pillow = find_spec("PIL") is not None
    return {
        name: find(source.files) is not None if source.files else pillow
        for name, source in SOURCES.items()
    }


def source_of(name: str) -> Source:
    """The entry of a data set, or an error that lists the names."""
    if name not in SOURCES:
        raise ValueError(f"name must be one of {', '.join(SOURCES)}, got {name!r}")
    return SOURCES[name]


def locate(name: str, source: str | os.PathLike[str] | None = None) -> Path:
    """The file of a data set that cannot be downloaded.

    Raises
    ------
    DataNotFoundError
        If it is not there; the text says where the data come from.
    """
    if source is not None:
        return existing(source)
    files = source_of(name).files
    path = find(files)
    if path is None:
        raise DataNotFoundError(
            f"the data set {name!r} is not at hand: {looked_for(files)}. It is not "
            f"downloaded; put {files[0]} into a folder and name that folder in the "
            f"environment variable {VARIABLE}, or pass the file as source=.\n"
            f"{describe(name)}"
        )
    return path
