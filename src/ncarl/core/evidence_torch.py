"""The evidence of rows on a torch device: batches of inverses, added up in place.

With the inverse of a system at hand its solution is one product. Nothing is read back,
unless the caller wants factorisations checked.
"""

from __future__ import annotations

from functools import reduce
from operator import iadd
from typing import Any

import numpy as np
import torch

from ncarl.core.factor_torch import gpu_kernels, scattered
from ncarl.core.linalg import gram_matrix
from ncarl.core.placed import PlacedBlock, Systems
from ncarl.core.plan import missing_side_pays
from ncarl.core.records import played
from ncarl.core.rows_torch import (
    bytes_of_work,
    dense_duals,
    for_all_systems,
    mark,
    missing_side,
    shifted_values,
    sound_factor,
)
from ncarl.core.types import Array, EvidenceSums, Kernel


def evidence(
    block: PlacedBlock,
    kernel: Kernel,
    offsets: Array | None,
    scales: Array | None,
    *,
    checked: bool = True,
) -> EvidenceSums:
    """Sums over the rows; with ``checked=False`` a system that fails makes them NaN."""
    parts = block.pieces()
    return reduce(
        iadd, (_of_piece(part, kernel, offsets, scales, checked) for part in parts)
    )


def _of_piece(
    block: PlacedBlock,
    kernel: Kernel,
    offsets: Array | None,
    scales: Array | None,
    checked: bool,
) -> EvidenceSums:
    """Sums over a block small enough for its duals to be laid out densely."""
    start = mark(block)
    values = shifted_values(block, offsets, scales)
    if checked or not block.recorded or gpu_kernels() is None:
        Y, B, missing, log_det, jitter = _solved(block, kernel, values, checked)
    else:
        (Y, B, missing, log_det), jitter = _replayed(block, kernel, values), 0.0
    middle = mark(block)
    duals = dense_duals(block, Y)
    return EvidenceSums(
        B=_mirrored(B) - gram_matrix(duals),
        missing=None if missing is None else _mirrored(missing),
        n_missing=_rows_on_missing_side(block) if kernel.P is not None else 0,
        pull=duals.sum(dim=0),
        fit=values[:-1] @ Y,
        log_det=log_det.clone(),  # a record writes over its own
        jitter=jitter,
        spans=((start, middle, mark(block)),),
    )


def _rows_on_missing_side(block: PlacedBlock) -> int:
    """Rows that are solved for their missing entries, counted on the host."""
    sizes = np.diff(block.indptr)
    return int(np.sum(missing_side_pays(sizes, block.n_columns) & (sizes > 0)))


def _mirrored(total: Array) -> Array:
    """The symmetric matrix whose lower half is given, with a spare row and column."""
    lower = total[:-1, :-1].tril()
    return lower + lower.tril(-1).mT


def _replayed(block: PlacedBlock, kernel: Kernel, values: Array) -> tuple[Array, ...]:
    """What `_solved` gives but for jitter, played back; valid until the next call."""
    two_sided = kernel.P is not None
    # Plans are made by the host, which a record cannot hold.
    block.prepare(two_sided)
    # A record reads its values where it found them when it was made.
    held: Any = block.plans.setdefault("shifted values", values)
    if held is not values:
        held.copy_(values)

    def work(given: Kernel) -> tuple[Array, ...]:
        return _solved(block, given, held, False)[:-1]

    dtype, size = str(kernel.K.dtype), block.budget.bytes
    key = ("evidence", dtype, two_sided, kernel.s, size)
    return played(block.plans, key, work, kernel, bytes_of_work(block, kernel))


def _solved(
    block: PlacedBlock, kernel: Kernel, values: Array, checked: bool
) -> tuple[Array, Array, Array | None, Array, float]:
    """Duals, sums of inverses on either side (lower half), log|A| and jitter."""
    # One place more than there are entries, one column more: padding goes there.
    Y, size = torch.zeros_like(values), block.n_columns + 1
    B = values.new_zeros((size, size))
    missing = None if kernel.P is None else torch.zeros_like(B)

    def add(A: Array, part: Systems) -> tuple[Array, float]:
        factor, jitter = sound_factor(A, part, checked)
        log_dets = factor.log_det(part.columns < part.n_columns)
        inverse = factor.inverse()
        del factor  # its memory is wanted
        if part.missing:
            missing_side(block, values, kernel.P, part, inverse.matmul, Y)
        else:
            entries = part.entries(block)
            Y[entries] = (inverse @ values[entries].mT).mT
        if part.width > 1:
            inverse *= part.counts[:, None, None]
        scattered(inverse, part.columns, missing if part.missing else B)
        return log_dets @ part.counts.to(log_dets.dtype), jitter

    found = for_all_systems(add, block, kernel)
    log_det = sum((part for part, _ in found), start=values.new_zeros(()))
    return Y[:-1], B, missing, log_det, max((used for _, used in found), default=0.0)
