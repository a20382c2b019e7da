"""Photographs as arrays between 0 and 1."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ncarl.core.types import Array
from ncarl.datasets.errors import DataNotFoundError
from ncarl.exceptions import BrokenFileError

#: Weights that turn red, green and blue into grey (ITU-R BT.601).
GREY = (0.299, 0.587, 0.114)
SAMPLES = ("china", "flower")
#: Ends of the names of picture files.
ENDINGS = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff")
#: Modes of Pillow with at most eight bits for each channel.
MODES = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr")


def load_sample_image(
    name: str = "china", *, grey: bool = True, step: int = 1
) -> Array:
    """A photograph that comes with scikit-learn, as numbers between 0 and 1.

    ``ncarl.datasets.describe(name)`` has the credit that its licence, CC BY 2.0, asks
    for wherever the photograph is shown.

    Parameters
    ----------
    name : "china" or "flower", default="china"
        Which one; both are 427 by 640 pixels.
    grey : bool, default=True
        In grey, by the weights of ITU-R BT.601; otherwise red, green and blue last.
    step : int, default=1
        How many times smaller; blocks of this side become their mean.

    Examples
    --------
    >>> load_sample_image("flower", step=8).shape
    (53, 80)
    """
    if name not in SAMPLES:
        raise ValueError(f"name must be one of {', '.join(SAMPLES)}, got {name!r}")
    _pillow()
    from sklearn.datasets import load_sample_image as bundled

    picture = _scaled(bundled(f"{name}.jpg"), grey)
    height, width = picture.shape[:2]
    if not isinstance(step, int | np.integer) or not 1 <= step <= min(height, width):
        raise ValueError(
            f"step must be a whole number from 1 to {min(height, width)}, got {step!r}"
        )
    height, width = height // step, width // step
    cut = picture[: height * step, : width * step]
    blocks = cut.reshape(height, step, width, step, *picture.shape[2:])
    small: Array = blocks.mean(axis=(1, 3))
    return small


def load_image_folder(
    folder: str | os.PathLike[str],
    *,
    names: Sequence[str] | None = None,
    grey: bool = True,
    size: tuple[int, int] | None = None,
) -> dict[str, Array]:
    """The pictures in a folder by file name, in order of the names.

    Pixels are as stored (no rotation by camera notes), transparency is left out.

    Parameters
    ----------
    folder : path
        Files that do not end like a picture are passed over; so are sub-folders.
    names : sequence of str, optional
        Only these, with or without the end of the file name.
    grey : bool, default=True
        In grey, by the weights of ITU-R BT.601; otherwise red, green and blue last.
    size : tuple of int, optional
        Only pictures of this height and width.

    Returns
    -------
    dict of str to array
        Numbers between 0 and 1.

    Raises
    ------
    DataNotFoundError
        If the folder, or one of ``names``, is not there.
    BrokenFileError
        If a picture cannot be read.

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
    opener = _pillow()
    read: dict[str, Array] = {}
    for path in _chosen(root, names):
        picture = _read(opener, path, size, grey)
        if picture is not None:
            read[path.name] = picture
    return read


def _chosen(root: Path, names: Sequence[str] | None) -> list[Path]:
    """Picture files of a folder, sorted; only those that are named."""
    files = sorted(
        path
        for path in root.iterdir()
        if path.is_file() and path.suffix.lower() in ENDINGS
    )
    if names is None:
        return files
    if isinstance(names, str):
        raise ValueError(f"names must be a list of file names, got the text {names!r}")
    there = {path.name for path in files} | {path.stem for path in files}
    absent = [name for name in names if name not in there]
    if absent:
        raise DataNotFoundError(f"{str(root)!r} has no picture {', '.join(absent)}")
    return [path for path in files if path.name in names or path.stem in names]


def _read(
    opener: Any, path: Path, size: tuple[int, int] | None, grey: bool
) -> Array | None:
    """One picture, or None if it has another size."""
    try:
        with opener.open(path) as image:
            if size is not None and (image.height, image.width) != tuple(size):
                return None
            if image.mode not in MODES:
                raise BrokenFileError(
                    f"{str(path)!r} must have eight bits for each channel, got mode "
                    f"{image.mode}; save it so"
                )
            pixels = np.asarray(image.convert("RGB"))
    except (OSError, SyntaxError, opener.DecompressionBombError) as error:
        raise BrokenFileError(
            f"{str(path)!r} is damaged or no picture: {error}"
        ) from error
    return _scaled(pixels, grey)


def _scaled(pixels: Array, grey: bool) -> Array:
    """Bytes of red, green and blue as numbers between 0 and 1."""
    colours = pixels / 255.0
    # The weights add up to 1 only to the last digit.
    return np.minimum(colours @ np.array(GREY), 1.0) if grey else colours


def _pillow() -> Any:
    """Pillow's module of images, or an error that says how to install it."""
    try:
        from PIL import Image
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "pictures need Pillow: pip install 'ncarl[cli]'", name=error.name
        ) from error
    return Image
