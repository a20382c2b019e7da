"""Arrays of an NPZ file, checked; nothing in the file is ever run."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from ncarl.core.types import Array
from ncarl.exceptions import BrokenFileError

#: Kinds of NumPy dtypes, as ``dtype.kind`` has them.
WHOLE, NUMBER, TEXT = "iu", "iuf", "U"


def read_arrays(
    path: Path,
    needed: Mapping[str, tuple[str, int]],
    optional: Mapping[str, tuple[str, int]] | None = None,
) -> dict[str, Array]:
    """The named arrays of a file, of the right kind and number of dimensions.

    Parameters
    ----------
    path : Path
        An NPZ file.
    needed, optional : mapping of str to (str, int)
        Name of an array -> letters of the dtypes it may have, and its dimensions.

    Raises
    ------
    BrokenFileError
        If the file is no NPZ file, or an array is absent or something else.
    """
    asked = {**needed, **(optional or {})}
    arrays = _load(path, tuple(asked))
    absent = [name for name in needed if name not in arrays]
    if absent:
        raise BrokenFileError(
            f"{str(path)!r} must hold the arrays {', '.join(needed)}, and has no "
            f"{', '.join(absent)}"
        )
    for name, array in arrays.items():
        kinds, ndim = asked[name]
        if array.dtype.kind not in kinds or array.ndim != ndim:
            raise BrokenFileError(
                f"array {name} of {str(path)!r} must have {ndim} dimensions and a "
                f"dtype of kind {kinds}, got shape {array.shape}, dtype {array.dtype}"
            )
    return arrays


def refuse(path: Path, wrong: bool, expected: str, got: object) -> None:
    """Raise if something is wrong with what a file holds."""
    if wrong:
        raise BrokenFileError(f"{str(path)!r} must hold {expected}, got {got}")


def _load(path: Path, names: tuple[str, ...]) -> dict[str, Array]:
    """Those of the named arrays that the file has."""
    try:
        # NumPy leaves a damaged file open if it opens it itself.
        with path.open("rb") as stream:
            archive = np.load(stream, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise ValueError("it is one array")
            return {name: archive[name] for name in names if name in archive.files}
    except (ValueError, LookupError, EOFError, BadZipFile, zlib.error) as error:
        raise BrokenFileError(
            f"{str(path)!r} is damaged or no NPZ file of arrays: {error}"
        ) from error
