"""NPY, NPZ (dense arrays or one scipy.sparse matrix) and Matrix Market."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy import io as scipy_io
from scipy import sparse

from ncarl.cli.files import ReadOptions, format_of, refuse_options
from ncarl.core.types import Array
from ncarl.storage import replacing


@dataclass(frozen=True)
class ArrayTable:
    """A matrix file as it was read; see `ncarl.cli.files.Table`.

    Attributes
    ----------
    kind : {"NPY", "NPZ", "sparse NPZ", "Matrix Market"}
        How to write it.
    others : mapping of str to array
        The whole content of an NPZ file, in its order.
    name : str
        Which of them is ``values``.
    compressed : bool
        Whether the NPZ file was.
    """

    values: Any
    kind: str
    others: Mapping[str, Array] = field(default_factory=dict)
    name: str = ""
    compressed: bool = False
    columns: None = None
    left_out: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()
    left_gaps: int = 0
    mixed_units: bool = False

    def write(self, path: Path, numbers: Array, *, every: bool = False) -> None:
        """Write the file with numbers in its gaps, or with every number replaced."""
        if not every and not sparse.issparse(self.values):
            gaps = np.isnan(self.values)
            numbers = (
                np.where(gaps, numbers, self.values) if gaps.any() else self.values
            )
        with replacing(path) as temporary:
            if self.kind == "NPY":
                np.save(temporary, numbers, allow_pickle=False)
            elif self.kind == "NPZ":
                self._write_archive(temporary, {**self.others, self.name: numbers})
            elif self.kind == "sparse NPZ":
                sparse.save_npz(temporary, self._all_stored(numbers))
            else:
                scipy_io.mmwrite(temporary, numbers, symmetry="general")

    def _write_archive(self, path: Path, arrays: Mapping[str, Array]) -> None:
        """Write arrays of any name to an NPZ file (``np.savez`` reserves some)."""
        how = zipfile.ZIP_DEFLATED if self.compressed else zipfile.ZIP_STORED
        with zipfile.ZipFile(path, "w", how) as archive:
            for name, array in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as stream:
                    np.lib.format.write_array(stream, array, allow_pickle=False)

    def _all_stored(self, numbers: Array) -> Any:
        """A CSR matrix that stores every entry, zeros too."""
        m, n = numbers.shape
        indices = np.tile(np.arange(n, dtype=np.int32), m)
        parts = (numbers.ravel(), indices, np.arange(m + 1, dtype=np.int64) * n)
        array = isinstance(self.values, sparse.sparray)
        make = sparse.csr_array if array else sparse.csr_matrix
        return make(parts, shape=(m, n))


def read(path: Path, options: ReadOptions) -> ArrayTable:
    """The matrix in an NPY, NPZ or Matrix Market file."""
    kind = format_of(path)
    refuse_options(options, kind, ("array",) if kind == "NPZ" else ())
    try:
        if kind == "Matrix Market":
            return _read_market(path)
        if kind == "NPY":
            return ArrayTable(_matrix(np.load(path, allow_pickle=False)), kind)
        return _read_archive(path, options.array)
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        reason = str(error)
        if "pickle" in reason:
            reason = "it holds Python objects, which are not read because reading them "
            reason += "can run code; save an array of numbers"
        raise ValueError(f"{str(path)!r} cannot be read: {reason}") from error


def _matrix(array: Any) -> Any:
    """``array`` if it is a matrix of numbers."""
    if array.ndim != 2:
        raise ValueError(f"a matrix has 2 dimensions, this array {array.ndim}")
    if array.dtype.kind not in "fiub":
        raise ValueError(f"a matrix of real numbers is needed, got {array.dtype}")
    return array


def _read_market(path: Path) -> ArrayTable:
    """The matrix in a Matrix Market file; entries that are not listed are missing."""
    field_kind = scipy_io.mminfo(path)[4]
    if field_kind == "pattern":
        raise ValueError("a pattern file lists positions without values")
    return ArrayTable(_matrix(scipy_io.mmread(path)), "Matrix Market")


def _read_archive(path: Path, wanted: str | None) -> ArrayTable:
    """The matrix in an NPZ file."""
    with zipfile.ZipFile(path) as archive:
        compressed = any(part.compress_type for part in archive.infolist())
    with np.load(path, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    if wanted is None and {"format", "shape", "data"} <= arrays.keys():
        return ArrayTable(_matrix(sparse.load_npz(path)), "sparse NPZ")
    name = _chosen(arrays, wanted)
    return ArrayTable(_matrix(arrays[name]), "NPZ", arrays, name, compressed)


def _chosen(arrays: Mapping[str, Array], wanted: str | None) -> str:
    """The name of the array to complete."""
    listed = ", ".join(f"{name!r} {a.dtype}{a.shape}" for name, a in arrays.items())
    if wanted is not None:
        if wanted not in arrays:
            raise ValueError(f"--array {wanted!r} is not in it; it holds {listed}")
        return wanted
    found = [k for k, a in arrays.items() if a.ndim == 2 and a.dtype.kind == "f"]
    if len(found) != 1:
        raise ValueError(
            f"it has {len(found)} matrices of floats; choose one with --array; it "
            f"holds {listed or 'nothing'}"
        )
    return found[0]
