"""The row step on a torch device: padded batches, factorised by matrix products.

Blocks keep their row pointers on the host, where batches are planned, and everything
else on the device. Nothing is read back, unless the caller wants factorisations
checked; a system that fails unchecked comes out as NaN.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import torch

from ncarl.core.factor_torch import (
    Factor,
    factorise,
    gathered,
    gpu_kernels,
    padded_kernel,
)
from ncarl.core.linalg import jitter_steps, not_factorised
from ncarl.core.placed import PlacedBlock, Systems
from ncarl.core.records import in_branches, played
from ncarl.core.types import Array, Kernel

R = TypeVar("R")


def _places(block: PlacedBlock) -> Array:
    """Where each entry stands among the numbers of the completed rows."""
    starts = torch.arange(block.n_rows, device=block.values.device) * block.n_columns
    size = len(block.values)
    starts = torch.repeat_interleave(starts, block.row_counts, output_size=size)
    return starts + block.indices


def dense_duals(block: PlacedBlock, Y: Array) -> Array:
    """Duals with zeros between them, shape (rows, n)."""
    dense = block.values.new_zeros((block.n_rows, block.n_columns))
    dense.view(-1)[_places(block)] = Y
    return dense


def pieces(block: PlacedBlock) -> list[PlacedBlock]:
    """The block in parts whose completed rows fit into the budget."""
    return block.pieces()


parts_to_fetch = pieces


def fetched(array: Array) -> Any:
    """A tensor as a NumPy array."""
    return array.cpu().numpy()


def moment(device: Any) -> Any:
    """A moment in the course of the work on a device."""
    if device.type != "cuda":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record(torch.cuda.current_stream(device))
    return event


def mark(block: PlacedBlock) -> Any:
    """A moment in the course of the work on the block's device."""
    return moment(block.values.device)


def shifted(
    block: PlacedBlock, offsets: Array | None, scales: Array | None
) -> PlacedBlock:
    """The block with the values ``(v - offsets) * scales``, given one a column."""
    padded = shifted_values(block, offsets, scales)
    # Batches are planned by the pattern alone; parts hold values, and are not taken.
    plans = {key: plan for key, plan in block.plans.items() if isinstance(key, bool)}
    return replace(
        block, values=padded[:-1], padded_values=padded, recorded=False, plans=plans
    )


def shifted_values(
    block: PlacedBlock, offsets: Array | None, scales: Array | None
) -> Array:
    """``(v - offsets) * scales`` of all entries, padded, given one a column."""
    padded = block.padded_values.clone()
    values, columns = padded[:-1], block.indices.long()
    like = {"dtype": padded.dtype, "device": padded.device}
    if offsets is not None:
        values -= torch.as_tensor(offsets, **like)[columns]
    if scales is not None:
        values *= torch.as_tensor(scales, **like)[columns]
    return padded


def solve_rows(
    block: PlacedBlock, kernel: Kernel, *, checked: bool = True
) -> tuple[Array, float]:
    """Duals of the rows and the jitter needed."""
    _, Y, jitter = _solve_rows(block, kernel, checked, rows=False)
    return Y, jitter


def complete_rows(
    block: PlacedBlock, kernel: Kernel, *, checked: bool = True
) -> tuple[Array, Array, float]:
    """Completed rows, their duals and the jitter needed.

    Unchecked rows of a recorded block are valid until the next call: the work is played
    back into the same memory.
    """
    if checked or not block.recorded or gpu_kernels() is None:
        return _solve_rows(block, kernel, checked)

    def work(given: Kernel) -> tuple[Array, Array]:
        X, Y, _ = _solve_rows(block, given, False)
        return X, Y

    # Plans are made by the host, which a record cannot hold.
    block.prepare(kernel.P is not None)
    key = (str(kernel.K.dtype), kernel.P is not None, kernel.s, block.budget.bytes)
    X, Y = played(block.plans, key, work, kernel, bytes_of_work(block, kernel))
    return X, Y, 0.0


def _solve_rows(
    block: PlacedBlock, kernel: Kernel, checked: bool, *, rows: bool = True
) -> tuple[Array, Array, float]:
    """Completed rows (if asked for), duals and jitter, batch after batch."""
    # One place more than there are entries: padding goes there.
    Y = torch.zeros_like(block.padded_values)
    completed: list[tuple[Array, Array]] = []

    def solve(A: Array, part: Systems) -> float:
        factor, jitter = sound_factor(A, part, checked)
        if part.missing:
            values = block.padded_values
            found = missing_side(block, values, kernel.P, part, factor.solve, Y)
            completed.append((part.row_places(block), found))
        else:
            entries = part.entries(block)
            Y[entries] = factor.solve(block.padded_values[entries].mT).mT
        return jitter

    jitter = max(for_all_systems(solve, block, kernel), default=0.0)
    X = _filled(block, kernel, Y[:-1], completed) if rows else None
    return X, Y[:-1], jitter


def for_all_systems(
    job: Callable[[Array, Systems], R], block: PlacedBlock, kernel: Kernel
) -> list[R]:
    """``job(A, part)`` for all systems of the block, in parts that fit into memory.

    The systems are parts of the padded matrix ``A``.
    """
    sides = {False: (kernel.K, kernel.s), True: (kernel.P, 0.0)}
    jobs, batches = [], block.batches(kernel.P is not None)
    for missing, (M, s) in sides.items():
        chosen = [batch for batch in batches if batch.missing == missing]
        if chosen:
            A = padded_kernel(M, s, max(batch.padding for batch in chosen))
            jobs += [partial(job, A, part) for part in _chunks(block, chosen)]
    fits = _bytes_of_systems(block, kernel) <= block.budget.bytes
    return in_branches(jobs, fits=fits)


def _bytes_each(block: PlacedBlock, batch: Systems) -> int:
    """Memory that one system of a batch takes while it is solved, about."""
    number, place = block.values.element_size(), 8
    sides = batch.width * batch.size * (4 * number + 3 * place)
    if batch.missing:
        rows = 4 * number * (block.n_columns + 1) + 3 * place * batch.widest
        sides += batch.width * rows
    return int(2 * number * batch.size**2 + sides)


def _chunks(block: PlacedBlock, batches: list[Systems]) -> Iterator[Systems]:
    """Systems few enough to be solved at once."""
    for batch in batches:
        yield from batch.chunks(block.budget, _bytes_each(block, batch))


def _bytes_of_systems(block: PlacedBlock, kernel: Kernel) -> int:
    """Memory that all systems of the block take at the same time."""
    batches = block.batches(kernel.P is not None)
    return sum(len(b.starts) * _bytes_each(block, b) for b in batches)


def bytes_of_work(block: PlacedBlock, kernel: Kernel) -> int:
    """Memory that a recorded pass over the rows takes, about."""
    systems = min(_bytes_of_systems(block, kernel), block.budget.bytes)
    arrays = 6 * block.n_rows * block.n_columns + 4 * block.n_columns**2
    return 2 * systems + arrays * int(block.values.element_size())


def missing_side(
    block: PlacedBlock,
    values: Array,
    P: Array,
    part: Systems,
    solve: Callable[[Array], Array],
    Y: Array,
) -> Array:
    """Completed rows, shape (groups, width, n); duals go into ``Y``.

    ``values`` are those of the entries, padded, and ``solve`` gives ``P_uu^-1`` times
    right sides. Rows are laid out densely, so that both sums over columns are matrix
    products.
    """
    n = block.n_columns
    entries = part.entries(block, part.widest)
    observed = block.padded_indices[entries].long()
    # One column more than there are: padding goes there.
    rows = values.new_zeros((*entries.shape[:2], n + 1))
    rows.scatter_(2, observed, values[entries])
    wanted = part.columns.long()[:, None, :].expand(-1, part.width, -1)
    products = rows[..., :n] @ P
    # Padding gets anything here, which it keeps to itself.
    right = products.gather(2, wanted.clamp(max=n - 1))
    rows.scatter_(2, wanted.clamp(max=n), solve(-right.mT).mT)
    duals = rows[..., :n] @ P
    Y[entries] = duals.gather(2, observed.clamp(max=n - 1))
    return rows[..., :n]


def sound_factor(A: Array, part: Systems, checked: bool) -> tuple[Factor, float]:
    """Factors of the systems, and the jitter that it took; unchecked it takes none."""
    factor = factorise(gathered(A, part.columns))
    if not checked or not bool(factor.failed.any()):
        return factor, 0.0
    again = factor.failed.nonzero()[:, 0]
    factor.blocks[again], jitter = _repaired(A, part[again])
    factor.failed[again] = False
    return factor, jitter


def _repaired(A: Array, part: Systems) -> tuple[Array, float]:
    """Blocks of the factors of systems that do not factorise without jitter."""
    blocks = gathered(A, part.columns)
    diagonal = blocks.diagonal(dim1=1, dim2=2)
    real = part.columns < part.n_columns
    scale = (diagonal * real).sum(dim=1) / real.sum(dim=1)
    found = torch.empty_like(blocks)
    left = torch.arange(len(blocks), device=blocks.device)
    for jitter in jitter_steps(blocks.dtype)[1:]:
        shifted = blocks[left]
        shifted.diagonal(dim1=1, dim2=2).add_(jitter * scale[left][:, None])
        factor = factorise(shifted)
        found[left] = factor.blocks
        left = left[factor.failed]
        if len(left) == 0:
            return found, jitter
    raise not_factorised(int(real[left[0]].sum()))


def _filled(
    block: PlacedBlock, kernel: Kernel, Y: Array, completed: list[tuple[Array, Array]]
) -> Array:
    """Completed rows; those of the missing side are given."""
    X = dense_duals(block, Y) @ kernel.K
    if completed:
        spare = torch.cat([X, X[:1]])  # one row more than there are, for padding
        for rows, values in completed:
            spare[rows] = values
        X = spare[:-1]
    X.view(-1)[_places(block)] = block.values - kernel.s * Y
    return X


def variances(block: PlacedBlock, kernel: Kernel) -> Array:
    """Variance of every entry as it would be observed, given its row."""
    K, s, n = kernel.K, kernel.s, block.n_columns
    diagonal = K.diagonal() + s
    found = diagonal.repeat(block.n_rows + 1, 1)
    batches = block.batches(False)
    padding = max((batch.padding for batch in batches), default=0)
    A, rows = padded_kernel(K, s, padding), padded_kernel(K, 0.0, padding)[:, :n]
    number = block.values.element_size()
    for batch in batches:
        each = number * batch.size * (2 * batch.size + 3 * n)
        for part in batch.chunks(block.budget, each):
            right = rows[part.columns.long()]
            factor, _ = sound_factor(A, part, True)
            solved = factor.half_solve(right)
            known = (diagonal - (solved * solved).sum(dim=1)).clamp(min=s)
            found[part.row_places(block)] = known[:, None, :]
    return found[:-1]
