"""Loaders of Jester ratings, panels, traffic speeds, and pictures."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

import numpy as np

from ncarl.core.types import Array
from ncarl.datasets.catalog import locate
from ncarl.datasets.files import (
    INTEGER_KINDS,
    NUMERIC_KINDS,
    open_member,
    raise_if_invalid,
    read_arrays,
)
from ncarl.exceptions import BrokenFileError, DataNotFoundError
from ncarl.text import MAX_LISTED, join_names
from ncarl.validation import check_choice, check_integer

#: Users and jokes.
JESTER_SHAPE = (24_983, 100)
#: Codes of "not rated" in the NPZ file and in the official table.
NO_RATING_X100, NO_RATING = -32768, 99.0
#: Largest size of the official table.
JESTER_MAX_BYTES = 100 << 20
#: Panels, and names of the first and of the other units if the file has none.
PANELS = {"smoking": ("California", "control state"), "basque": ("Spain", "region")}
#: Suffixes of picture files.
IMAGE_SUFFIXES = {".bmp", ".gif", ".pgm", ".png", ".ppm"}
IMAGE_SUFFIXES |= {".jpeg", ".jpg", ".tif", ".tiff"}
#: Modes of Pillow with at most eight bits for each channel.
PILLOW_MODES = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr")


def load_jester(*, source: str | os.PathLike[str] | None = None) -> Array:
    """Load the ratings of Jester data set 1, NaN where a joke was not rated.

    Parameters
    ----------
    source : path, optional
        ``jester-1.npz``, or the official table saved as CSV (also inside a ZIP archive
        or folder, as ``jester-data-1.csv``); by default such a file in the folder that
        the environment variable ``NCARL_DATA`` names, or in the cache folder. It cannot
        be downloaded.

    Returns
    -------
    array of shape (24983, 100)
        Users by jokes, from -10 to 10.

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
        X = _read_jester_table(path)
    expected = f"{JESTER_SHAPE[0]} x {JESTER_SHAPE[1]} ratings"
    raise_if_invalid(path, X.shape != JESTER_SHAPE, expected, X.shape)
    outside = X[np.abs(X) > 10.0]
    raise_if_invalid(path, outside.size > 0, "ratings from -10 to 10", outside[:1])
    return X


def _read_jester_table(path: Path) -> Array:
    """Ratings of the official table: a count, then one column for each joke."""
    opened: Any
    if path.is_dir() or is_zipfile(path):
        opened = open_member(path, ("jester-data-1.csv",), JESTER_MAX_BYTES)
    else:
        opened = path.open("rb")
    with opened as stream:
        try:
            # Not `ncarl.io.csv`: the file is open, maybe inside an archive.
            table = np.loadtxt(stream, delimiter=",", comments=None, ndmin=2)
        except ValueError as error:
            raise BrokenFileError(
                f"{str(path)!r} must be the table of Jester as comma-separated "
                f"numbers; save the spreadsheet as CSV: {error}"
            ) from error
    counts, ratings = table[:, 0], table[:, 1:]
    X = np.where(ratings == NO_RATING, np.nan, ratings)
    differ = (counts != np.isfinite(X).sum(axis=1)).any()
    expected = "the counts of ratings in its first column"
    raise_if_invalid(path, differ, expected, "others")
    return X


@dataclass(frozen=True, eq=False)
class YearlyPanel:
    """One value for each unit and year.

    Attributes
    ----------
    outcome : array of shape (units, years)
        Values.
    units : tuple of str
        Names of the rows.
    years : int array of shape (years,)
        Years of the columns.
    treated : boolean array of shape (units, years) or None
        Treated entries; None if the file does not say.
    name : str
        Name of the data set, as in `describe`.
    """

    outcome: Array
    units: tuple[str, ...]
    years: Array
    treated: Array | None
    name: str


def load_panel(
    name: str, *, source: str | os.PathLike[str] | None = None
) -> YearlyPanel:
    """Load a panel of units and years.

    Parameters
    ----------
    name : "smoking" or "basque"
        Cigarette packs sold per head in 39 states, of which California (row 0) raised
        its tax in 1989; or product per head of Spain (row 0) and 17 regions.
    source : path, optional
        The NPZ file; by default ``california_smoking.npz`` or ``basque_gdp.npz`` in the
        folder that the environment variable ``NCARL_DATA`` names, or in the cache
        folder. It cannot be downloaded.

    Examples
    --------
    >>> from ncarl.datasets import available, load_panel
    >>> if available()["smoking"]:
    ...     before = load_panel("smoking").outcome[:, :19]
    """
    path = locate(check_choice("name", name, PANELS), source)
    arrays = read_arrays(
        path,
        {"outcome": (NUMERIC_KINDS, 2), "year": (INTEGER_KINDS, 1)},
        {"treatment": (INTEGER_KINDS + "b", 2), "unit": ("U", 1)},
    )
    outcome = arrays["outcome"].astype(np.float64)
    years = arrays["year"].astype(np.int64)
    m, n = outcome.shape
    raise_if_invalid(path, len(years) != n, "a year for each column", len(years))
    treatment = arrays.get("treatment")
    if treatment is not None:
        invalid = treatment.shape != (m, n) or not np.isin(treatment, (0, 1)).all()
        expected = "treatment of 0 and 1, as large as outcome"
        raise_if_invalid(path, invalid, expected, treatment.shape)
        treatment = treatment.astype(bool)
    first, others = PANELS[name]
    units = arrays.get("unit", [first, *(f"{others} {k}" for k in range(1, m))])
    raise_if_invalid(path, len(units) != m, f"{m} names of units", len(units))
    return YearlyPanel(outcome, tuple(map(str, units)), years, treatment, name)


@dataclass(frozen=True, eq=False)
class Traffic:
    """Speeds measured by sensors on roads.

    Attributes
    ----------
    speed : array of shape (times, sensors)
        Miles per hour, every five minutes.
    sensors : int array of shape (sensors,)
        Ids of the columns.
    adjacency : array of shape (sensors, sensors)
        Proximity of two sensors on the road, from 0 to 1.
    """

    speed: Array
    sensors: Array
    adjacency: Array


def load_traffic(*, source: str | os.PathLike[str] | None = None) -> Traffic:
    """Load one week of speeds on roads of Los Angeles.

    Parameters
    ----------
    source : path, optional
        The NPZ file; by default ``losloop_speed.npz`` in the folder that the
        environment variable ``NCARL_DATA`` names, or in the cache folder. It cannot be
        downloaded.

    Examples
    --------
    >>> from ncarl.datasets import available, load_traffic
    >>> if available()["traffic"]:
    ...     X = load_traffic().speed
    """
    path = locate("traffic", source)
    numbers = (NUMERIC_KINDS, 2)
    arrays = read_arrays(
        path, {"speed": numbers, "sensor": (INTEGER_KINDS, 1), "adjacency": numbers}
    )
    shapes = {name: array.shape for name, array in arrays.items()}
    n = len(arrays["sensor"])
    invalid = len(arrays["speed"]) != n or arrays["adjacency"].shape != (n, n)
    expected = "one row of speed and adjacency for each sensor"
    raise_if_invalid(path, invalid, expected, shapes)
    return Traffic(
        # The file has sensors in rows; a matrix to complete has them in columns.
        speed=arrays["speed"].T.astype(np.float64, order="C"),
        sensors=arrays["sensor"].astype(np.int64),
        adjacency=arrays["adjacency"].astype(np.float64),
    )


def load_sample_image(
    name: str = "china", *, gray: bool = True, step: int = 1
) -> Array:
    """Load a photograph of scikit-learn, with values between 0 and 1.

    Its license, CC BY 2.0, requires the attribution that
    ``ncarl.datasets.describe(name)`` prints wherever the photograph is shown.

    Parameters
    ----------
    name : "china" or "flower", default="china"
        Name of the photograph; both are 427 by 640 pixels.
    gray : bool, default=True
        Whether to convert to gray (ITU-R BT.601); else the last axis is red, green and
        blue.
    step : int, default=1
        Reduction factor; blocks of this side are averaged.

    Examples
    --------
    >>> load_sample_image("flower", step=8).shape
    (53, 80)
    """
    check_choice("name", name, ("china", "flower"))
    _import_pillow()
    from sklearn.datasets import load_sample_image as bundled

    picture = _to_floats(bundled(f"{name}.jpg"), gray)
    height, width = picture.shape[:2]
    step = check_integer("step", step, low=1, high=min(height, width))
    height, width = height // step, width // step
    cut = picture[: height * step, : width * step]
    blocks = cut.reshape(height, step, width, step, *picture.shape[2:])
    return blocks.mean(axis=(1, 3))


def load_image_folder(
    folder: str | os.PathLike[str],
    *,
    names: Sequence[str] | None = None,
    gray: bool = True,
    size: tuple[int, int] | None = None,
) -> dict[str, Array]:
    """Load the pictures in a folder, by file name in sorted order.

    EXIF rotation and transparency are ignored.

    Parameters
    ----------
    folder : path
        Other files than pictures are skipped; so are subfolders.
    names : sequence of str, optional
        Only these, with or without suffix.
    gray : bool, default=True
        Whether to convert to gray; else the last axis is red, green and blue.
    size : tuple of int, optional
        Only pictures of this height and width.

    Returns
    -------
    dict of str to array
        Values between 0 and 1.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "dot.pgm").write_bytes(b"P5 2 1 255 " + bytes([0, 255]))
    ...     load_image_folder(folder)
    {'dot.pgm': array([[0., 1.]])}
    """
    root = Path(folder).expanduser()
    if not root.is_dir():
        raise DataNotFoundError(f"folder must be a folder, got {str(folder)!r}")
    opener = _import_pillow()
    paths = _image_paths(root, names)
    pictures = {path.name: _read_image(opener, path, size, gray) for path in paths}
    return {name: image for name, image in pictures.items() if image is not None}


def _image_paths(root: Path, names: Sequence[str] | None) -> list[Path]:
    pictures = (p for p in root.iterdir() if p.suffix.lower() in IMAGE_SUFFIXES)
    files = sorted(path for path in pictures if path.is_file())
    if names is None:
        return files
    if isinstance(names, str):
        raise ValueError(f"names must be a list of file names, got the text {names!r}")
    existing = {path.name for path in files} | {path.stem for path in files}
    absent = [name for name in names if name not in existing]
    if absent:
        listed = join_names(absent, MAX_LISTED)
        raise DataNotFoundError(f"{str(root)!r} has no picture {listed}")
    return [path for path in files if path.name in names or path.stem in names]


def _read_image(
    opener: Any, path: Path, size: tuple[int, int] | None, gray: bool
) -> Array | None:
    """One picture, or None if it has another size."""
    try:
        with opener.open(path) as image:
            if size is not None and (image.height, image.width) != tuple(size):
                return None
            if image.mode not in PILLOW_MODES:
                raise BrokenFileError(
                    f"{str(path)!r} must have eight bits for each channel, got mode "
                    f"{image.mode}; save it so"
                )
            pixels = np.asarray(image.convert("RGB"))
    except (OSError, SyntaxError, opener.DecompressionBombError) as error:
        raise BrokenFileError(
            f"{str(path)!r} is damaged or no picture: {error}"
        ) from error
    return _to_floats(pixels, gray)


def _to_floats(pixels: Array, gray: bool) -> Array:
    colors = pixels / 255.0
    if not gray:
        return colors
    # The weights are those of ITU-R BT.601; their sum can exceed 1 by rounding.
    return np.minimum(colors @ np.array([0.299, 0.587, 0.114]), 1.0)


def _import_pillow() -> Any:
    try:
        from PIL import Image
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "pictures need Pillow: pip install 'ncarl[cli]'", name=error.name
        ) from error
    return Image
