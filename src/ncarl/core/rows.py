"""The row step: complete rows given a kernel, and sum over them.

A row with observed columns ``o`` (values ``v``) and missing columns ``u`` is solved in

- the covariance form, ``y = (K_oo + s I)^-1 v``, ``x = y K_o:``, or
- the precision form, with ``P = (K + s I)^-1``, ``x_u = -P_uu^-1 P_uo v`` and
  ``y = (P [v; x_u])_o``.

Both give the same row ``x`` and the same dual ``y``; the cheaper one is used. On
observed columns ``x_o = v - s y``. Rows with the same observed columns form a group,
which needs one factorization. The systems are solved by ``solve_rows`` of a backend:
`rows_numba` if Numba is installed, `rows_numpy` otherwise, and `rows_torch` for blocks
on a torch device. The second half of this module holds what the host backends share.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import logging
import math
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, reduce
from operator import iadd
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular
from scipy.sparse import csr_array

from ncarl.core.linalg import cholesky_with_jitter, gram_matrix, spd_log_det
from ncarl.core.types import Array, Block, LikelihoodSums, RowSums

log = logging.getLogger("ncarl")
#: Completed rows are computed in pieces of at most this many numbers.
MAX_PIECE_ENTRIES = 2_000_000
#: Smaller arrays are scanned by NumPy before Numba would even be loaded.
NUMBA_SCAN_MIN_SIZE = 200_000


@cache
def row_backend(name: str = "auto") -> Any:
    """Module that solves rows: "numba", "numpy", "torch", or "auto" for the host.

    Every backend has ``solve_rows(block, kernel, *, checked)``,
    ``likelihood_sums(block, kernel, offsets, scales, *, checked)``,
    ``variances(block, kernel)``, ``variances_at(block, kernel, i, j)``,
    ``dense_duals(block, Y)``, ``shift_and_scale(block, offsets, scales)``,
    ``pieces(block)``, ``transfer_pieces(block)``, ``to_numpy(array)`` and
    ``timestamp(block)``. It has either ``allocate_rows(block)``, whose result
    ``solve_rows`` fills if it is the third argument, or
    ``complete_rows(block, kernel, *, checked)``. Those of the host have
    ``row_log_dets(block, kernel)``. Optional are
    ``entries_from_duals(block, K, Y, i, j)``, and ``sparse_outer_sum(block, Y)`` with
    ``use_scatter(block)``.
    """
    if name == "numba":
        try:
            return importlib.import_module("ncarl.core.rows_numba")
        except RuntimeError as error:
            if "cannot cache" not in str(error):
                raise
            _use_temporary_cache()
    if name != "auto":
        return importlib.import_module(f"ncarl.core.rows_{name}")
    if importlib.util.find_spec("numba") is None:
        return row_backend("numpy")
    try:
        return row_backend("numba")
    except (ImportError, RuntimeError, OSError) as error:
        # Numba does not support this NumPy, or no folder at all can be written.
        hint = "if it cannot cache, set NUMBA_CACHE_DIR"
        log.warning("Numba does not load (%s); NumPy solves rows; %s", error, hint)
        return row_backend("numpy")


def _use_temporary_cache() -> None:
    """Cache compiled code, which Numba runs, in a folder that only this user writes."""
    user = os.getuid() if hasattr(os, "getuid") else -1
    folder = Path(tempfile.gettempdir()) / f"ncarl-numba-{user}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    owner, mode = folder.lstat().st_uid, folder.lstat().st_mode
    if owner != user or not stat.S_ISDIR(mode) or mode & 0o077:
        folder = Path(tempfile.mkdtemp(prefix="ncarl-numba-"))
    log.info("Numba caches in %s; NUMBA_CACHE_DIR chooses another folder", folder)
    config: Any = importlib.import_module("numba.core.config")
    config.CACHE_DIR = str(folder)


@dataclass(frozen=True)
class Kernel:
    """Column covariance, noise variance, and optionally the precision matrix."""

    K: Array  # (n, n): covariance of the columns
    P: Array | None  # (n, n): (K + s I)^-1; None if no row uses the precision form
    s: float  # noise variance in the units of K; 0 in the exact model

    def map_arrays(self, func: Callable[[Any], Any]) -> Kernel:
        """Kernel with ``func`` applied to its arrays, such as a move to a device."""
        return Kernel(func(self.K), func(self.P), self.s)

    def complete(
        self, block: Block, *, variances: bool, backend: str = "auto"
    ) -> tuple[Array, Array | None]:
        """Completed rows of a block as NumPy arrays, and variances of their entries."""
        module = row_backend(backend)
        rows, row_vars = [], []
        for part in module.transfer_pieces(block):
            X, _, _ = complete_rows(part, kernel=self, backend=backend)
            rows.append(module.to_numpy(X))
            if variances:
                row_vars.append(module.to_numpy(module.variances(part, self)))
        return _concatenate(rows), _concatenate(row_vars) if variances else None

    def predict(
        self, block: Block, columns: Array, bounds: Array, *, variances: bool,
        backend: str = "auto",
    ) -> tuple[Array, Array, Array | None]:  # fmt: skip
        """Predictions ``y K_oj`` at requested columns of each row, and variances.

        Those of row ``r`` of the matrix are ``columns[bounds[r]:bounds[r + 1]]``.
        Returns their positions in ``columns``, the predictions and the variances;
        `KernelModel` makes standard deviations of these, in the user's units.
        """
        module = row_backend(backend)
        places, predictions, row_vars = [], [], []
        for part in module.pieces(block):
            i, position = requested_entries(part, bounds)
            j = columns[position]
            places.append(position)
            if self.P is None and hasattr(module, "entries_from_duals"):
                Y, _ = module.solve_rows(part, self)
                entries = module.entries_from_duals(part, self.K, Y, i, j)
            else:
                X, _, _ = complete_rows(part, kernel=self, backend=backend)
                entries = X[i, j]
            predictions.append(module.to_numpy(entries))
            if variances:
                row_vars.append(module.to_numpy(module.variances_at(part, self, i, j)))
        return (
            _concatenate(places),
            _concatenate(predictions),
            _concatenate(row_vars) if variances else None,
        )


def requested_entries(block: Block, bounds: Array) -> tuple[Array, Array]:
    """Rows of a block, and positions of the entries that are requested in them.

    Those of row ``r`` of the matrix are ``bounds[r]`` to ``bounds[r + 1] - 1``.
    """
    counts = (bounds[1:] - bounds[:-1])[block.rows]
    i = np.repeat(np.arange(block.n_rows), counts)
    within = np.arange(len(i)) - np.repeat(np.cumsum(counts) - counts, counts)
    return i, bounds[block.rows][i] + within


def _concatenate(parts: list[Array]) -> Array:
    """``np.concatenate`` without the copy of a single part."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def complete_rows(
    block: Block, *, kernel: Kernel, backend: str = "auto", checked: bool = True
) -> tuple[Array, Array, float]:
    """Completed rows (rows, n), their duals (entries,) and the largest relative jitter.

    With ``checked=False`` a row whose system does not factorize may be NaN: on an
    asynchronous device a check would wait for all work before it.
    """
    module = row_backend(backend)
    if hasattr(module, "allocate_rows"):
        X = module.allocate_rows(block)
        Y, jitter = module.solve_rows(block, kernel, X, checked=checked)
    else:
        X, Y, jitter = module.complete_rows(block, kernel, checked=checked)
    return X, Y, jitter


def row_duals(
    block: Block, *, kernel: Kernel, backend: str = "auto", checked: bool = True
) -> tuple[Array, float]:
    """Duals ``y`` aligned with ``block.values``, and the jitter that was needed."""
    module = row_backend(backend)
    duals: tuple[Array, float] = module.solve_rows(block, kernel, checked=checked)
    return duals


def row_gram(
    block: Block, *, kernel: Kernel, backend: str = "auto", checked: bool = True
) -> RowSums:
    """Sums over a block with ``gram = X^T X``, the accurate form."""
    parts = row_backend(backend).pieces(block)
    sums = (_row_gram_of_piece(part, kernel, backend, checked) for part in parts)
    return reduce(iadd, sums)


def _row_gram_of_piece(
    block: Block, kernel: Kernel, backend: str, checked: bool
) -> RowSums:
    timestamp = row_backend(backend).timestamp
    start = timestamp(block)
    X, Y, jitter = complete_rows(block, kernel=kernel, backend=backend, checked=checked)
    middle = timestamp(block)
    gram = gram_matrix(X)
    return RowSums(gram, block.values @ Y, jitter, ((start, middle, timestamp(block)),))


def dual_gram(
    block: Block, *, kernel: Kernel, backend: str = "auto", checked: bool = True
) -> RowSums:
    """Sums over a block with ``gram = Y^T Y``; callers form ``K gram K``."""
    module = row_backend(backend)
    timestamp = module.timestamp
    start = timestamp(block)
    Y, jitter = module.solve_rows(block, kernel, checked=checked)
    middle = timestamp(block)
    gram = outer_sum(block, Y, backend)
    return RowSums(gram, block.values @ Y, jitter, ((start, middle, timestamp(block)),))


def row_likelihood(
    block: Block,
    *,
    kernel: Kernel,
    offsets: Array | None = None,
    scales: Array | None = None,
    backend: str = "auto",
    checked: bool = True,
    weights: Array | None = None,
) -> LikelihoodSums:
    """Row terms of the log marginal likelihood of a kernel and of its gradient.

    Values are ``(v - offsets) * scales``, with one offset and one scale per column.
    Weights of the rows are for blocks on the host.
    """
    work = row_backend(backend).likelihood_sums
    options = {} if weights is None else {"weights": weights}
    sums: LikelihoodSums = work(
        block, kernel, offsets, scales, checked=checked, **options
    )
    return sums


def row_log_likelihoods(
    block: Block, *, kernel: Kernel, offsets: Array, backend: str = "auto"
) -> Array:
    """Log marginal likelihood of each row of a block on the host."""
    block = shift_and_scale(block, offsets, None)
    Y, log_dets, precision_form = row_backend(backend).row_log_dets(block, kernel)
    if precision_form.any():
        log_dets = log_dets - precision_form * float(spd_log_det(kernel.P))
    counts = np.diff(block.indptr)
    rows = np.repeat(np.arange(block.n_rows), counts)
    fits = np.bincount(rows, block.values * Y, minlength=block.n_rows)
    return np.asarray(-0.5 * (fits + log_dets + counts * math.log(2.0 * math.pi)))


def observed_gram(block: Block, *, backend: str = "auto") -> Array:
    """``M^T M`` of the block with its missing entries set to 0."""
    return outer_sum(block, block.values, backend)


def outer_sum(block: Block, Y: Array, backend: str = "auto") -> Array:
    """Sum of ``y y^T`` over the rows, shape (n, n)."""
    module = row_backend(backend)
    if hasattr(module, "sparse_outer_sum") and module.use_scatter(block):
        return module.sparse_outer_sum(block, Y)
    return reduce(iadd, _piece_grams(module, block, Y))


def _piece_grams(module: Any, block: Block, Y: Array) -> Iterator[Array]:
    first = 0
    for part in module.pieces(block):
        size = len(part.values)
        yield gram_matrix(module.dense_duals(part, Y[first : first + size]))
        first += size


def covariance_form_cost(r: Array) -> Array:
    """Flops of the covariance form of a row with ``r`` observed entries."""
    r = np.asarray(r, dtype=np.float64)
    return r**3 / 3 + 12.0 * r**2 + 200.0


def precision_form_cost(r: Array, n: int) -> Array:
    """Flops of the precision form of a row with ``r`` of ``n`` entries observed."""
    r = np.asarray(r, dtype=np.float64)
    u = n - r
    return u**3 / 3 + 12.0 * u**2 + 8.0 * r * u + 4.0 * r * n + 200.0


def use_precision_form(r: Array, n: int) -> Array:
    """Whether the precision form is cheaper for ``r`` of ``n`` entries observed."""
    return precision_form_cost(r, n) < covariance_form_cost(r)


def group_sizes(block: Block, has_precision: bool) -> tuple[Array, Array, Array]:
    """Observed entries per row, rows, and use of the precision form, by group.

    A group without entries is not solved at all.
    """
    sizes = np.diff(block.indptr)[block.groups[:-1]]
    precision_form = np.zeros(len(sizes), dtype=bool)
    if has_precision:
        precision_form = use_precision_form(sizes, block.n_columns) & (sizes > 0)
    return sizes, np.diff(block.groups), precision_form


def pieces(block: Block) -> Iterator[Block]:
    """Split a block into pieces whose completed rows fit into memory."""
    # Each piece is reduced to an n x n matrix, so it may be about that large.
    n = block.n_columns
    return block.split(max(1, MAX_PIECE_ENTRIES // max(1, n), n // 4))


def allocate_rows(block: Block) -> Array:
    """Zero array for the completed rows."""
    return np.zeros((block.n_rows, block.n_columns), dtype=block.values.dtype)


def duals_to_csr(block: Block, Y: Array) -> Any:
    """Duals as a SciPy CSR array with the pattern of the block."""
    shape = (block.n_rows, block.n_columns)
    return csr_array((Y, block.indices, block.indptr), shape=shape)


def dense_duals(block: Block, Y: Array) -> Array:
    """Duals as a dense array of shape (rows, n)."""
    return duals_to_csr(block, Y).toarray()


def use_scatter(block: Block) -> bool:
    """Whether summing pairs of duals is faster than a product of dense rows."""
    pairs = float(np.sum(np.diff(block.indptr).astype(np.float64) ** 2))
    n = block.n_columns
    # Measured: a scattered pair costs about as much as 150 numbers of a matrix product.
    return 150 * pairs < block.n_rows * n * (n + 25)


def shift_and_scale(block: Block, offsets: Array | None, scales: Array | None) -> Block:
    """Block with the values ``(v - offsets) * scales``, each given per column."""
    values = block.values
    if offsets is not None:
        values = values - np.asarray(offsets, dtype=values.dtype)[block.indices]
    if scales is not None:
        values = values * np.asarray(scales, dtype=values.dtype)[block.indices]
    return replace(block, values=values)


def entries_from_duals(block: Block, K: Array, Y: Array, i: Array, j: Array) -> Array:
    """``y_i K_oj`` for rows ``i`` (increasing) and columns ``j``."""
    values = np.empty(len(i), dtype=K.dtype)
    bounds = np.searchsorted(i, np.arange(block.n_rows + 1))
    for row in np.unique(i):
        entries = slice(int(block.indptr[row]), int(block.indptr[row + 1]))
        queries = slice(int(bounds[row]), int(bounds[row + 1]))
        o = block.indices[entries]
        values[queries] = Y[entries] @ K[np.ix_(o, j[queries])]
    return values


def variances(block: Block, kernel: Kernel) -> Array:
    """Predictive variance of every entry, noise included, given the row.

    ``k_jj - k_jo (K_oo + s I)^-1 k_oj + s``; at observed columns it is the variance of
    a second, independent measurement.
    """
    K, s, n = kernel.K, kernel.s, block.n_columns
    result = np.empty((block.n_rows, n), dtype=K.dtype)
    diagonal = K.diagonal() + s
    for g in range(len(block.groups) - 1):
        rows, _, o = block.group(g)
        factor, _ = cholesky_with_jitter(K, o, s)
        result[rows] = np.maximum(diagonal - explained_variances(factor, K[o]), s)
    return result


def variances_at(block: Block, kernel: Kernel, i: Array, j: Array) -> Array:
    """Predictive variances at rows ``i`` (increasing) and columns ``j``."""
    K, s = kernel.K, kernel.s
    result = K[j, j] + s
    bounds = np.searchsorted(i, np.arange(block.n_rows + 1))
    for g in range(len(block.groups) - 1):
        rows, _, o = block.group(g)
        queries = slice(int(bounds[rows.start]), int(bounds[rows.stop]))
        if queries.start == queries.stop:
            continue
        factor, _ = cholesky_with_jitter(K, o, s)
        explained = explained_variances(factor, K[np.ix_(o, j[queries])])
        result[queries] = np.maximum(result[queries] - explained, s)
    return result


def explained_variances(factor: Array, covariances: Array) -> Array:
    """Diagonal of ``C^T A^-1 C`` from the Cholesky factor of ``A``."""
    half = solve_triangular(factor, covariances, lower=True, check_finite=False)
    return np.einsum("ij,ij->j", half, half)


def collect_likelihood_sums(
    block: Block,
    Y: Array,
    B: Array,
    C: Array | None,
    precision_form: Array,
    log_dets: Array,
    jitter: float,
    weights: Array,
    start: float,
) -> LikelihoodSums:
    """Sums of a solved block; subtracts ``y y^T`` of precision-form rows from ``B``.

    ``precision_form``, ``log_dets`` and ``weights`` are those of the rows.
    """
    middle = timestamp(block)
    rows, duals = np.flatnonzero(precision_form), duals_to_csr(block, Y)
    step = max(1, MAX_PIECE_ENTRIES // block.n_columns)
    for first in range(0, len(rows), step):
        part = rows[first : first + step]
        B -= gram_matrix(duals[part].toarray() * np.sqrt(weights[part])[:, None])
    weighted = Y * np.repeat(weights, np.diff(block.indptr))
    return LikelihoodSums(
        B=B,
        missing_inverse_sum=C,
        n_precision_rows=weights[rows].sum(),
        sum_y=np.bincount(block.indices, weighted, block.n_columns).astype(Y.dtype),
        fit=block.values @ weighted,
        log_det=weights @ log_dets,
        jitter=jitter,
        timestamps=((start, middle, timestamp(block)),),
    )


def transfer_pieces(block: Block) -> list[Block]:
    """The whole block: its results are in host memory already."""
    return [block]


def to_numpy(array: Array) -> Array:
    """Return the array, which is a NumPy array already."""
    return array


def timestamp(block: Block) -> float:
    """Current time in seconds."""
    return time.perf_counter()


def observed_entries(rows: Array) -> tuple[Array, Array, Array]:
    """Entries per row, their columns (int32) and their values (float64)."""
    compact = None
    if rows.size >= NUMBA_SCAN_MIN_SIZE:
        compact = getattr(row_backend(), "compact_observed_entries", None)
    if compact is None or rows.dtype.kind != "f" or rows.dtype.itemsize < 4:
        return observed_entries_numpy(rows)
    counts = np.empty(len(rows), dtype=np.int64)
    # One more: every number after the last entry is written to the same place.
    columns = np.empty(rows.size + 1, dtype=np.int32)
    values = np.empty(rows.size + 1)
    size = compact(np.ascontiguousarray(rows), counts, columns, values)
    return counts, columns[:size].copy(), values[:size].copy()


def observed_entries_numpy(rows: Array) -> tuple[Array, Array, Array]:
    """NumPy version of `observed_entries`."""
    observed = ~np.isnan(rows)
    # Flat positions are found several times faster than pairs of indices.
    places = np.flatnonzero(observed)
    counts = np.count_nonzero(observed, axis=1)
    starts = np.repeat(np.arange(len(rows)) * rows.shape[1], counts)
    columns = (places - starts).astype(np.int32)
    return counts, columns, rows.ravel()[places].astype(np.float64, copy=False)
