"""Checkpoint files: writing, reading, and checking that they belong to a fit."""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from ncarl.core.types import Array
from ncarl.engines.cores import fit_threads
from ncarl.exceptions import CheckpointError, CheckpointMismatchError
from ncarl.io.files import broken_on_error, read_archive, write_archive
from ncarl.text import shorten
from ncarl.validation import check_integer, check_number

#: Kinds of checkpoints: steps of a solver, a grid search, stages of a fit.
KINDS = ("checkpoint", "search", "stages")
#: Parts of a fit whose files lie beside the checkpoint, by the class of the estimator.
CHECKPOINT_PARTS = {"NCARLCV": ("fit",), "BayesianNCARL": ("columns", "rows")}
#: Arrays that make up a CSR array.
CSR_PARTS = ("data", "indices", "indptr", "shape")
#: Largest number in a model or a state, whose values are of about unit size: their
#: products are finite.
MAX_NUMBER = 1e150
#: Types of arrays: indices, values, and flags.
DTYPES = ("int32", "int64", "float32", "float64", "bool")
#: Remedies for a file that cannot be written, by the error of the system.
ERRNO_HINTS = {
    errno.ENOSPC: "Make room for {size} more there",
    errno.EDQUOT: "Make room for {size} more there, or have your quota raised",
    errno.EFBIG: "Raise the limit on the size of a file (ulimit -f) above {size}",
    errno.EACCES: "Make its folder writable",
    errno.EPERM: "Make its folder writable",
    errno.EROFS: "Make its folder writable",
}

#: A header that JSON can hold, and arrays.
CheckpointContents = tuple[Mapping[str, Any], Mapping[str, Array]]


@dataclass(frozen=True)
class Checkpoint:
    """A file that keeps the state of a fit, and how often it is written.

    Estimators take one as ``checkpoint=``; a path alone is written at every step. If
    the file exists, the fit resumes from it, and gives the same numbers as a fit that
    was never stopped.

    Parameters
    ----------
    path : path
        The file. It is replaced as a whole, and readable by its owner only. Estimators
        whose fits have parts keep some of them beside it: ``path.fit`` (`NCARLCV`),
        ``path.columns`` and ``path.rows`` (`BayesianNCARL`).
    every : float, default=0.0
        Minimum number of seconds between two writes: no more than these and one step
        are lost. The state is written at the end of a fit in any case: when it has
        converged, has made its last step, was ended by a callback or by Ctrl-C.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from ncarl import NCARL, Checkpoint
    >>> X = np.array([[1.0, 2.0, np.nan], [2.0, np.nan, 6.0], [3.0, 6.0, 9.0]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     kept = Checkpoint(f"{folder}/state", every=60.0)
    ...     short = NCARL(max_iter=5, tol=0, checkpoint=kept).fit(X)
    ...     longer = NCARL(max_iter=8, tol=0, checkpoint=kept).fit(X)
    >>> whole = NCARL(max_iter=8, tol=0).fit(X)
    >>> bool((longer.kernel_ == whole.kernel_).all())
    True
    """

    path: str | os.PathLike[str]
    every: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.path, str | os.PathLike):
            raise TypeError(f"path must be a path, got {self.path!r}")
        check_number("every", self.every, low=0.0, hint=" seconds between two writes")

    def __fspath__(self) -> str:
        return os.fspath(self.path)

    @classmethod
    def coerce(cls, given: str | os.PathLike[str]) -> Checkpoint:
        """``given`` if it is a `Checkpoint`, else one that is written at every step."""
        return given if isinstance(given, cls) else cls(given)

    def for_part(self, part: str) -> Checkpoint:
        """The file for a part of the fit."""
        return Checkpoint(f"{os.fspath(self)}.{part}", self.every)


class CheckpointFile:
    """The checkpoint file of one fit.

    ``fit_id`` has the shape and fingerprint of the data, the class of the estimator,
    and all parameters that change the result; a file of another fit is refused.
    """

    def __init__(
        self, checkpoint: Checkpoint, kind: str, fit_id: Mapping[str, Any]
    ) -> None:
        self.checkpoint = checkpoint
        self.path, self.every = Path(checkpoint), float(checkpoint.every)
        self.kind, self.fit_id = kind, dict(fit_id)
        #: Position of the fit in the file, for messages; None without a file.
        self.position: str | None = None
        self.last_saved = time.monotonic()

    def for_part(self, part: str, kind: str) -> CheckpointFile:
        """The file for a part of the fit."""
        return CheckpointFile(self.checkpoint.for_part(part), kind, self.fit_id)

    def maybe_save(
        self,
        position: str,
        make_contents: Callable[[], CheckpointContents],
        *,
        last: bool = False,
    ) -> None:
        """Write the state if that is due, or if it is the last and not in the file."""
        due = last or time.monotonic() - self.last_saved >= self.every
        if due and position != self.position:
            self.save(position, *make_contents())

    def save(
        self, position: str, header: Mapping[str, Any], arrays: Mapping[str, Array]
    ) -> None:
        """Write the state in place of the earlier one, which stays if that fails."""
        threads = fit_threads().chosen
        own = {"kind": self.kind, "fit_id": self.fit_id, "blas_threads": threads}
        try:
            write_archive(self.path, {**own, **header}, arrays)
        except OSError as error:
            size = sum(array.nbytes for array in arrays.values())
            raise self._write_error(position, error, size) from error
        self.position, self.last_saved = position, time.monotonic()

    def _write_error(self, position: str, error: OSError, size: int) -> CheckpointError:
        remedy = ERRNO_HINTS.get(error.errno or 0, "Fix this problem")
        if self.position is None:
            left = "no earlier one exists"
            then = "or name another file"
        else:
            left = f"the earlier one, of {self.position}, is kept"
            then = "and fit again to resume from it"
        failure = CheckpointError(
            f"checkpoint {str(self.path)!r} could not be written at {position} "
            f"({error.strerror or error}); {left}. "
            f"{remedy.format(size=f'{max(size / 1e6, 0.1):.1f} MB')}, {then}."
        )
        failure.errno = error.errno
        return failure

    def load(self) -> tuple[dict[str, Any], dict[str, Array]] | None:
        """Header and arrays of the file, or None where there is no file yet.

        Raises if it is damaged or belongs to another estimator, data or parameters.
        """
        if not self.path.exists():
            return None
        header, arrays = read_archive(self.path, self.kind, *KINDS)
        with self.corrupt_on_error():
            check_same_fit(self.path, header, self.kind, self.fit_id)
            if (stored := header.get("blas_threads")) is not None:
                fit_threads().chosen = check_integer("blas_threads", stored, low=1)
            for name, array in arrays.items():
                valid = str(array.dtype) in DTYPES
                if not valid or not float(np.abs(array).max(initial=0)) <= MAX_NUMBER:
                    raise ValueError(f"{name} must hold numbers up to {MAX_NUMBER:g}")
        return header, arrays

    def corrupt_on_error(self) -> contextlib.AbstractContextManager[None]:
        """Turn errors about the contents into a `BrokenFileError`."""
        return broken_on_error(self.path)


def check_same_fit(
    path: Path, header: Mapping[str, Any], kind: str, fit_id: Mapping[str, Any]
) -> None:
    """Raise if a file was written by another fit."""
    saved = header["fit_id"]
    writer, here = saved["class"], fit_id["class"]
    if writer != here or header["kind"] != kind:
        other = f"{writer}, and this is {here}"
        found = f"another part of {here}" if writer == here else other
        raise CheckpointMismatchError(
            f"checkpoint {str(path)!r} was written by {found}. Remove the file "
            "or name another one."
        )
    differences = [
        f"{name} ({_show(saved.get(name))} there, {_show(value)} here)"
        for name, value in fit_id.items()
        if name not in ("class", "shape", "data") and saved.get(name) != value
    ]
    if saved.get("data") != fit_id["data"]:
        differences.append(_describe_data_mismatch(saved["shape"], fit_id["shape"]))
    if differences:
        raise CheckpointMismatchError(
            f"checkpoint {str(path)!r} belongs to another fit; it differs in "
            f"{', '.join(differences)}. Remove the file or name another one."
        )


def _show(value: Any) -> str:
    return shorten(repr(value), 80)


def _describe_data_mismatch(saved: Any, current: Any) -> str:
    if list(saved) == list(current):
        return "the data (other values or other missing entries)"
    sizes = [" x ".join(str(length) for length in shape) for shape in (saved, current)]
    return f"the data ({sizes[0]} there, {sizes[1]} here)"


def check_array(name: str, array: Any, shape: tuple[int, ...], dtype: str) -> None:
    """Raise unless an array of a file has this shape and type."""
    if array.shape != shape or str(array.dtype) != dtype:
        raise ValueError(
            f"{name} must be {dtype} of shape {shape}, got {array.dtype} of shape "
            f"{array.shape}"
        )


def csr_to_arrays(name: str, matrix: Any) -> dict[str, Array]:
    """A CSR array as named arrays."""
    return {f"{name}/{part}": np.asarray(getattr(matrix, part)) for part in CSR_PARTS}


def csr_from_arrays(name: str, arrays: Mapping[str, Array]) -> Any:
    """The CSR array that named arrays hold; ValueError if it is not a valid one.

    Compiled code works with the result, and checks no index.
    """
    data, indices, indptr, shape = (arrays[f"{name}/{part}"] for part in CSR_PARTS)
    for part in (indices, indptr, shape):
        if part.ndim != 1 or str(part.dtype) not in DTYPES[:2]:
            raise ValueError(f"{name} has indices of {part.dtype}, shape {part.shape}")
    if str(data.dtype) not in DTYPES[2:4] or shape.min(initial=0) < 0:
        raise ValueError(f"{name} holds {data.dtype}, shape {shape}")
    if len(indptr) == 0 or indptr[-1] != len(indices) or not np.isfinite(data).all():
        raise ValueError(f"{name} holds entries that are not finite, or too many")
    try:
        matrix = csr_array((data, indices, indptr), shape=tuple(shape.tolist()))
        matrix.check_format(full_check=True)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    if not matrix.has_canonical_format:
        raise ValueError(f"{name} has rows whose indices do not increase")
    return matrix
