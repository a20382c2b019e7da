"""The row step on a torch device: padded batches of systems, solved together.

Blocks keep their row pointers on the host, where batches are planned, and everything
else on the device. Nothing is read back unless ``checked`` is true; with
``checked=False`` a system that does not factorize gives NaN.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from operator import iadd
from typing import Any, TypeVar

import numpy as np

from ncarl.core.cuda import (
    BatchedCholesky,
    batched_cholesky,
    capture_or_replay,
    gather_submatrices,
    load_triton_kernels,
    padded_kernel,
    run_on_streams,
    scatter_add_submatrices,
)
from ncarl.core.linalg import gram_matrix, jitter_steps, not_positive_definite_error
from ncarl.core.rows import Kernel, group_sizes
from ncarl.core.types import Array, Block, LikelihoodSums, cached_property

with contextlib.suppress(ImportError):
    import torch

#: Sizes of systems are padded to multiples of this.
SIZE_MULTIPLE = 16
#: Smallest memory budget to try.
MIN_BUDGET_BYTES = 2**20
R = TypeVar("R")


@dataclass
class MemoryBudget:
    """Bytes that one batch of systems may take on the device."""

    bytes: int

    def halve(self) -> bool:
        """Halve the budget; False if that would be below `MIN_BUDGET_BYTES`."""
        if self.bytes // 2 < MIN_BUDGET_BYTES:
            return False
        self.bytes //= 2
        return True


@dataclass(frozen=True)
class BatchPlan:
    """Groups of rows to be solved together, all padded to one size."""

    size: int  # size of the padded systems
    n_rhs: int  # right-hand sides of each system, padding included
    groups: Array  # indices of groups of the block
    precision_form: bool  # whether they are solved in the precision form


def plan_batches(block: Block, *, allow_precision_form: bool) -> list[BatchPlan]:
    """Batches of all groups with observed entries.

    The rows of a group share a factorization; their number of right-hand sides is
    padded to a power of two.
    """
    sizes, counts, missing = group_sizes(block, allow_precision_form)
    widths = 2 ** np.ceil(np.log2(np.maximum(counts, 1))).astype(int)
    solved = np.where(missing, block.n_columns - sizes, sizes)
    batches = []
    for side in (False, True):
        for width in np.unique(widths):
            chosen = np.flatnonzero((missing == side) & (widths == width) & (sizes > 0))
            if len(chosen) == 0:
                continue
            padded = padded_sizes(solved[chosen])
            for p in np.unique(padded):
                groups = chosen[padded == p]
                batches.append(BatchPlan(int(p), int(width), groups, side))
    return batches


def padded_sizes(sizes: Array) -> Array:
    """Size that each system is padded to, minimizing the estimated time."""
    rounded = -(-np.maximum(np.asarray(sizes), 1) // SIZE_MULTIPLE) * SIZE_MULTIPLE
    steps, which, counts = np.unique(rounded, return_inverse=True, return_counts=True)
    below = np.concatenate([[0], np.cumsum(counts)])
    each, fixed = system_seconds(steps), batch_overhead_seconds(steps)
    best, opened = np.zeros(len(steps) + 1), np.zeros(len(steps), dtype=np.int64)
    for last in range(len(steps)):
        # The batch that ends at this size may begin at any smaller one.
        batch = (below[last + 1] - below[: last + 1]) * each[last] + fixed[last]
        total = best[: last + 1] + batch
        opened[last] = int(np.argmin(total))
        best[last + 1] = total[opened[last]]
    ends, last = np.zeros(len(steps), dtype=np.int64), len(steps) - 1
    while last >= 0:
        ends[opened[last] : last + 1] = last
        last = opened[last] - 1
    return steps[ends[which]]


def system_seconds(p: Array) -> Array:
    """Time per system of size ``p`` within a batch (fitted on an H200)."""
    return 2.5e-11 * p**2 + 6e-15 * p**3


def batch_overhead_seconds(p: Array) -> Array:
    """Fixed time of a batch of systems of size ``p`` (fitted on an H200)."""
    return 2e-4 + 2.5e-6 * p


@dataclass(frozen=True)
class PaddedBatch:
    """Padded linear systems, one per group of rows; arrays have shape (groups, ...)."""

    size: int  # size of the systems, padding included
    n_rhs: int  # right-hand sides of each system, padding included
    max_padding: int  # most rows that a system was padded with
    precision_form: bool  # whether they are solved in the precision form
    max_observed: int  # most observed entries in a row
    n_columns: int  # columns of the matrix
    starts: Array  # first entry of each group
    counts: Array  # rows of each group
    sizes: Array  # observed entries per row of each group
    first_rows: Array  # first row of each group
    columns: Array  # (groups, size) of int32: unknowns; padding has columns >= n

    def __getitem__(self, groups: Any) -> PaddedBatch:
        names = ("starts", "counts", "sizes", "first_rows", "columns")
        chosen = {name: getattr(self, name)[groups] for name in names}
        return replace(self, **chosen)

    def chunks(self, budget: MemoryBudget, bytes_each: int) -> Iterator[PaddedBatch]:
        """Split the systems into chunks that stay within the budget."""
        room = max(1, budget.bytes // max(1, bytes_each))
        for first in range(0, len(self.starts), room):
            yield self[first : first + room]

    def entry_indices(self, block: DeviceBlock, length: int | None = None) -> Array:
        """Entry indices, shape (groups, n_rhs, length); the sentinel for padding."""
        j = torch.arange(length or self.size, device=self.starts.device)
        k = torch.arange(self.n_rhs, device=self.starts.device)[:, None]
        sizes, counts = self.sizes[:, None, None], self.counts[:, None, None]
        place = self.starts[:, None, None] + k * sizes + j
        return torch.where((j < sizes) & (k < counts), place, len(block.values))

    def row_indices(self, block: DeviceBlock) -> Array:
        """Row indices, shape (groups, n_rhs); one past the end for padding."""
        k = torch.arange(self.n_rhs, device=self.starts.device)
        place = self.first_rows[:, None] + k
        return torch.where(k < self.counts[:, None], place, block.n_rows)


@dataclass(frozen=True)
class DeviceBlock(Block):
    """Block whose entries are on a torch device; its pointers stay on the host."""

    padded_indices: Array  # (entries + 1,): columns, and n as a sentinel
    padded_values: Array  # (entries + 1,): values, and 0 as a sentinel
    budget: MemoryBudget
    use_cuda_graph: bool = False  # whether repeated passes are captured and replayed
    plans: dict[Any, Any] = field(default_factory=dict)  # cached plans and CUDA graphs

    @classmethod
    def from_block(
        cls,
        block: Block,
        device: Any,
        budget: MemoryBudget,
        use_cuda_graph: bool = False,
    ) -> DeviceBlock:
        """Copy a block to the device."""
        indices = _append_sentinel(block.indices, block.n_columns, device)
        values = _append_sentinel(block.values, 0, device)
        return cls(
            indptr=block.indptr,
            indices=indices[:-1],
            values=values[:-1],
            groups=block.groups,
            rows=block.rows,
            n_columns=block.n_columns,
            padded_indices=indices,
            padded_values=values,
            budget=budget,
            use_cuda_graph=use_cuda_graph,
        )

    @cached_property
    def row_counts(self) -> Array:
        """Observed entries per row, on the device."""
        counts = np.asarray(self.indptr[1:] - self.indptr[:-1], dtype=np.int64)
        return torch.as_tensor(counts).to(self.values.device)

    def slice_groups(self, start: int, stop: int) -> DeviceBlock:
        """Block of the groups ``start`` to ``stop - 1``."""
        plain = super().slice_groups(start, stop)
        return DeviceBlock.from_block(plain, self.values.device, self.budget)

    def pieces(self) -> list[DeviceBlock]:
        """Split into blocks whose completed rows take a quarter of the budget."""
        row_bytes = max(1, self.n_columns) * self.values.element_size()
        room = max(1, self.budget.bytes // (4 * row_bytes))
        if self.n_rows <= room:
            return [self]
        if ("pieces", room) not in self.plans:
            self.plans["pieces", room] = list(self.split(room))
        pieces: list[DeviceBlock] = self.plans["pieces", room]
        return pieces

    def padded_batches(self, allow_precision_form: bool) -> list[PaddedBatch]:
        """Padded systems of all rows with observed entries."""
        if allow_precision_form not in self.plans:
            plan = plan_batches(self, allow_precision_form=allow_precision_form)
            self.plans[allow_precision_form] = list(map(self._pad_batch, plan))
        batches: list[PaddedBatch] = self.plans[allow_precision_form]
        return batches

    def _pad_batch(self, batch: BatchPlan) -> PaddedBatch:
        tops = self.groups[:-1][batch.groups]
        sizes = (self.indptr[tops + 1] - self.indptr[tops]).astype(np.int64)
        solved = self.n_columns - sizes if batch.precision_form else sizes
        device = self.values.device
        numbers = (self.indptr[tops], self.groups[batch.groups + 1] - tops, sizes, tops)
        starts, counts, lengths, first_rows = (
            torch.as_tensor(np.asarray(a, dtype=np.int64)).to(device) for a in numbers
        )
        systems = PaddedBatch(
            size=batch.size,
            n_rhs=batch.n_rhs,
            max_padding=batch.size - int(solved.min()),
            precision_form=batch.precision_form,
            max_observed=int(sizes.max()),
            n_columns=self.n_columns,
            starts=starts,
            counts=counts,
            sizes=lengths,
            first_rows=first_rows,
            columns=starts[:, None],
        )
        columns = (
            self._missing_columns if batch.precision_form else self._observed_columns
        )
        return replace(systems, columns=columns(systems))

    def _observed_columns(self, batch: PaddedBatch) -> Array:
        j = torch.arange(batch.size, device=self.values.device)
        sizes = batch.sizes[:, None]
        entries = torch.where(j < sizes, batch.starts[:, None] + j, len(self.values))
        beyond = (self.n_columns + j - sizes).int()
        return torch.where(j < sizes, self.padded_indices[entries], beyond)

    def _missing_columns(self, batch: PaddedBatch) -> Array:
        n, device = self.n_columns, self.values.device
        k = torch.arange(batch.size, device=device)
        chunks = []
        for part in batch.chunks(self.budget, 40 * (n + batch.size)):
            first_row = replace(part, n_rhs=1)  # rows of a group have the same columns
            entries = first_row.entry_indices(self, part.max_observed)[:, 0]
            observed = self.padded_indices[entries].long()
            # Observed columns get large keys, so that sorting puts the others first.
            order = torch.arange(n + batch.size, device=device)
            order = order.repeat(len(observed), 1)
            order.scatter_(1, observed, 2 * (n + batch.size))
            first = order.sort(dim=1).values[:, : batch.size]
            n_missing = n - part.sizes[:, None]
            chunks.append(torch.where(k < n_missing, first, n + k - n_missing).int())
        return torch.cat(chunks)


def _append_sentinel(array: Array, end: float, device: Any) -> Array:
    source = torch.as_tensor(array)
    target = torch.empty(len(source) + 1, dtype=source.dtype, device=device)
    target[:-1].copy_(source)
    target[-1] = end
    return target


def solve_rows(
    block: DeviceBlock, kernel: Kernel, *, checked: bool = True
) -> tuple[Array, float]:
    """Duals of the rows and the jitter needed."""
    _, Y, jitter = _solve_rows(block, kernel, checked, return_rows=False)
    return Y, jitter


def complete_rows(
    block: DeviceBlock, kernel: Kernel, *, checked: bool = True
) -> tuple[Array, Array, float]:
    """Completed rows, their duals and the jitter needed.

    With ``checked=False`` and a CUDA graph the results are valid until the next call,
    which replays the graph into the same memory.
    """
    if checked or not block.use_cuda_graph or load_triton_kernels() is None:
        return _solve_rows(block, kernel, checked)

    def work(static_kernel: Kernel) -> tuple[Array, Array]:
        X, Y, _ = _solve_rows(block, static_kernel, False)
        return X, Y

    X, Y = _by_cuda_graph("rows", work, block, kernel)
    return X, Y, 0.0


def _by_cuda_graph(
    name: str, work: Callable[[Kernel], tuple[Array, ...]], block: DeviceBlock,
    kernel: Kernel,
) -> tuple[Array, ...]:  # fmt: skip
    """``work(kernel)`` by a CUDA graph; valid until the next call."""
    has_precision = kernel.P is not None
    # Plans are made on the host, which cannot be captured.
    block.padded_batches(has_precision)
    _ = block.row_counts
    key = (name, str(kernel.K.dtype), has_precision, kernel.s, block.budget.bytes)
    size = estimate_pass_bytes(block, kernel)
    return capture_or_replay(block.plans, key, work, kernel, size)


def _solve_rows(
    block: DeviceBlock, kernel: Kernel, checked: bool, *, return_rows: bool = True
) -> tuple[Array, Array, float]:
    """Completed rows (or None), duals and jitter, batch after batch."""
    # One more than there are entries, for the padding.
    Y = torch.zeros_like(block.padded_values)
    completed: list[tuple[Array, Array]] = []

    def solve(A: Array, part: PaddedBatch) -> float:
        factor, jitter = batched_cholesky_with_jitter(A, part, checked)
        if part.precision_form:
            values = block.padded_values
            rows = solve_precision_form(block, values, kernel.P, part, factor.solve, Y)
            completed.append((part.row_indices(block), rows))
        else:
            entries = part.entry_indices(block)
            Y[entries] = factor.solve(block.padded_values[entries].mT).mT
        return jitter

    jitter = max(map_batches(solve, block, kernel), default=0.0)
    X = _fill_rows(block, kernel, Y[:-1], completed) if return_rows else None
    return X, Y[:-1], jitter


def solve_precision_form(
    block: DeviceBlock,
    values: Array,
    P: Array,
    part: PaddedBatch,
    solve: Callable[[Array], Array],
    Y: Array,
) -> Array:
    """Completed rows, shape (groups, n_rhs, n); writes their duals to ``Y``.

    ``values`` are those of the entries and the sentinel, and ``solve`` multiplies by
    ``P_uu^-1``. Rows are dense, so that both sums over columns are matrix products.
    """
    n = block.n_columns
    entries = part.entry_indices(block, part.max_observed)
    observed = block.padded_indices[entries].long()
    # One more column, for the padding.
    rows = values.new_zeros((*entries.shape[:2], n + 1))
    rows.scatter_(2, observed, values[entries])
    wanted = part.columns.long()[:, None, :].expand(-1, part.n_rhs, -1)
    products = rows[..., :n] @ P
    # Values of the padding are arbitrary; they do not reach the other unknowns.
    right = products.gather(2, wanted.clamp(max=n - 1))
    rows.scatter_(2, wanted.clamp(max=n), solve(-right.mT).mT)
    duals = rows[..., :n] @ P
    Y[entries] = duals.gather(2, observed.clamp(max=n - 1))
    return rows[..., :n]


def _fill_rows(
    block: DeviceBlock, kernel: Kernel, Y: Array, completed: list[tuple[Array, Array]]
) -> Array:
    """Completed rows; ``completed`` holds those solved in the precision form."""
    X = dense_duals(block, Y) @ kernel.K
    if completed:
        spare = torch.cat([X, X[:1]])  # one more row, for the padding
        for rows, values in completed:
            spare[rows] = values
        X = spare[:-1]
    X.view(-1)[_flat_positions(block)] = block.values - kernel.s * Y
    return X


def batched_cholesky_with_jitter(
    A: Array, part: PaddedBatch, checked: bool
) -> tuple[BatchedCholesky, float]:
    """Factors of the systems and the jitter needed; no jitter if not ``checked``."""
    factor = batched_cholesky(gather_submatrices(A, part.columns))
    if not checked or not bool(factor.failed.any()):
        return factor, 0.0
    again = factor.failed.nonzero()[:, 0]
    factor.blocks[again], jitter = _retry_with_jitter(A, part[again])
    factor.failed[again] = False
    return factor, jitter


def _retry_with_jitter(A: Array, part: PaddedBatch) -> tuple[Array, float]:
    """Factor blocks, and the jitter, of systems that do not factorize without it."""
    blocks = gather_submatrices(A, part.columns)
    diagonal = blocks.diagonal(dim1=1, dim2=2)
    real = part.columns < part.n_columns
    scale = (diagonal * real).sum(dim=1) / real.sum(dim=1)
    result = torch.empty_like(blocks)
    left = torch.arange(len(blocks), device=blocks.device)
    for jitter in jitter_steps(blocks.dtype)[1:]:
        shifted = blocks[left]
        shifted.diagonal(dim1=1, dim2=2).add_(jitter * scale[left][:, None])
        factor = batched_cholesky(shifted)
        result[left] = factor.blocks
        left = left[factor.failed]
        if len(left) == 0:
            return result, jitter
    raise not_positive_definite_error(int(real[left[0]].sum()))


def map_batches(
    func: Callable[[Array, PaddedBatch], R], block: DeviceBlock, kernel: Kernel
) -> list[R]:
    """``func(A, part)`` for all systems of the block, in chunks that fit into memory.

    The systems are submatrices of the padded matrix ``A``.
    """
    sides = {False: (kernel.K, kernel.s), True: (kernel.P, 0.0)}
    jobs, batches = [], block.padded_batches(kernel.P is not None)
    for missing, (M, s) in sides.items():
        chosen = [batch for batch in batches if batch.precision_form == missing]
        if chosen:
            A = padded_kernel(M, s, max(batch.max_padding for batch in chosen))
            jobs += [partial(func, A, part) for part in _chunks(block, chosen)]
    fits = _total_system_bytes(block, kernel) <= block.budget.bytes
    return run_on_streams(jobs, fits=fits)


def _chunks(block: DeviceBlock, batches: list[PaddedBatch]) -> Iterator[PaddedBatch]:
    for batch in batches:
        yield from batch.chunks(block.budget, _bytes_per_system(block, batch))


def _bytes_per_system(block: DeviceBlock, batch: PaddedBatch) -> int:
    number, place = block.values.element_size(), 8
    sides = batch.n_rhs * batch.size * (4 * number + 3 * place)
    if batch.precision_form:
        rows = 4 * number * (block.n_columns + 1) + 3 * place * batch.max_observed
        sides += batch.n_rhs * rows
    return int(2 * number * batch.size**2 + sides)


def _total_system_bytes(block: DeviceBlock, kernel: Kernel) -> int:
    batches = block.padded_batches(kernel.P is not None)
    return sum(len(b.starts) * _bytes_per_system(block, b) for b in batches)


def estimate_pass_bytes(block: DeviceBlock, kernel: Kernel) -> int:
    """Approximate memory of a captured pass over the rows."""
    systems = min(_total_system_bytes(block, kernel), block.budget.bytes)
    arrays = 6 * block.n_rows * block.n_columns + 4 * block.n_columns**2
    return 2 * systems + arrays * int(block.values.element_size())


def variances(block: DeviceBlock, kernel: Kernel) -> Array:
    """Predictive variance of every entry, noise included."""
    K, s, n = kernel.K, kernel.s, block.n_columns
    diagonal = K.diagonal() + s
    result = diagonal.repeat(block.n_rows + 1, 1)
    batches = block.padded_batches(False)
    padding = max((batch.max_padding for batch in batches), default=0)
    A, rows = padded_kernel(K, s, padding), padded_kernel(K, 0.0, padding)[:, :n]
    number = block.values.element_size()
    for batch in batches:
        each = number * batch.size * (2 * batch.size + 3 * n)
        for part in batch.chunks(block.budget, each):
            right = rows[part.columns.long()]
            factor, _ = batched_cholesky_with_jitter(A, part, True)
            solved = factor.solve_lower(right)
            remaining = (diagonal - (solved * solved).sum(dim=1)).clamp(min=s)
            result[part.row_indices(block)] = remaining[:, None, :]
    return result[:-1]


def variances_at(block: DeviceBlock, kernel: Kernel, i: Array, j: Array) -> Array:
    """Predictive variances at rows ``i`` and columns ``j``."""
    return variances(block, kernel)[i, j]


def likelihood_sums(
    block: DeviceBlock,
    kernel: Kernel,
    offsets: Array | None,
    scales: Array | None,
    *,
    checked: bool = True,
) -> LikelihoodSums:
    """Row terms of the log marginal likelihood; NaN if an unchecked system fails."""
    given = (kernel, offsets, scales, checked)
    return reduce(iadd, (_piece_likelihood_sums(p, *given) for p in block.pieces()))


def _piece_likelihood_sums(
    block: DeviceBlock,
    kernel: Kernel,
    offsets: Array | None,
    scales: Array | None,
    checked: bool,
) -> LikelihoodSums:
    """Row terms of a block small enough for dense duals."""
    start = timestamp(block)
    values = shift_and_scale_values(block, offsets, scales)
    if checked or not block.use_cuda_graph or load_triton_kernels() is None:
        Y, B, missing, log_det, jitter = _solve_and_sum(block, kernel, values, checked)
    else:
        Y, B, missing, log_det = _solve_by_cuda_graph(block, kernel, values)
        jitter = 0.0
    middle = timestamp(block)
    duals = dense_duals(block, Y)
    _, counts, in_precision_form = group_sizes(block, kernel.P is not None)
    return LikelihoodSums(
        B=_symmetrize(B) - gram_matrix(duals),
        missing_inverse_sum=missing if missing is None else _symmetrize(missing),
        n_precision_rows=int(counts[in_precision_form].sum()),
        sum_y=duals.sum(dim=0),
        fit=values[:-1] @ Y,
        log_det=log_det.clone(),  # a CUDA graph overwrites its own
        jitter=jitter,
        timestamps=((start, middle, timestamp(block)),),
    )


def _solve_by_cuda_graph(
    block: DeviceBlock, kernel: Kernel, values: Array
) -> tuple[Array, ...]:
    # A CUDA graph reads values from the memory they had when it was captured.
    static_values: Any = block.plans.setdefault("shifted values", values)
    if static_values is not values:
        static_values.copy_(values)

    def work(static_kernel: Kernel) -> tuple[Array, ...]:
        return _solve_and_sum(block, static_kernel, static_values, False)[:-1]

    return _by_cuda_graph("likelihood", work, block, kernel)


def _solve_and_sum(
    block: DeviceBlock, kernel: Kernel, values: Array, checked: bool
) -> tuple[Array, Array, Array | None, Array, float]:
    """Duals, sums of inverses of both forms (lower half), ``log|A|`` and jitter."""
    # One more entry and one more column, for the padding.
    Y, size = torch.zeros_like(values), block.n_columns + 1
    B = values.new_zeros((size, size))
    missing = None if kernel.P is None else torch.zeros_like(B)

    def add(A: Array, part: PaddedBatch) -> tuple[Array, float]:
        factor, jitter = batched_cholesky_with_jitter(A, part, checked)
        log_dets = factor.log_det(part.columns < part.n_columns)
        inverse = factor.inverse()
        del factor  # free its memory
        if part.precision_form:
            solve_precision_form(block, values, kernel.P, part, inverse.matmul, Y)
        else:
            entries = part.entry_indices(block)
            Y[entries] = (inverse @ values[entries].mT).mT
        if part.n_rhs > 1:
            inverse *= part.counts[:, None, None]
        total = missing if part.precision_form else B
        scatter_add_submatrices(inverse, part.columns, total)
        return log_dets @ part.counts.to(log_dets.dtype), jitter

    sums = map_batches(add, block, kernel)
    log_det = sum((part for part, _ in sums), start=values.new_zeros(()))
    return Y[:-1], B, missing, log_det, max((used for _, used in sums), default=0.0)


def _symmetrize(total: Array) -> Array:
    """Symmetric matrix from a lower half with an extra row and column."""
    lower = total[:-1, :-1].tril()
    return lower + lower.tril(-1).mT


pieces = transfer_pieces = DeviceBlock.pieces


def dense_duals(block: DeviceBlock, Y: Array) -> Array:
    """Duals as a dense tensor of shape (rows, n)."""
    dense = block.values.new_zeros((block.n_rows, block.n_columns))
    dense.view(-1)[_flat_positions(block)] = Y
    return dense


def _flat_positions(block: DeviceBlock) -> Array:
    starts = torch.arange(block.n_rows, device=block.values.device) * block.n_columns
    size = len(block.values)
    starts = torch.repeat_interleave(starts, block.row_counts, output_size=size)
    return starts + block.indices


def shift_and_scale(
    block: DeviceBlock, offsets: Array | None, scales: Array | None
) -> DeviceBlock:
    """Block with the values ``(v - offsets) * scales``, each given per column."""
    padded = shift_and_scale_values(block, offsets, scales)
    # Plans of batches depend on the pattern alone; pieces hold values.
    plans = {key: plan for key, plan in block.plans.items() if isinstance(key, bool)}
    return replace(
        block,
        values=padded[:-1],
        padded_values=padded,
        use_cuda_graph=False,
        plans=plans,
    )


def shift_and_scale_values(
    block: DeviceBlock, offsets: Array | None, scales: Array | None
) -> Array:
    """``(v - offsets) * scales`` of all entries, and the sentinel."""
    padded = block.padded_values.clone()
    values, columns = padded[:-1], block.indices.long()
    like = {"dtype": padded.dtype, "device": padded.device}
    if offsets is not None:
        values -= torch.as_tensor(offsets, **like)[columns]
    if scales is not None:
        values *= torch.as_tensor(scales, **like)[columns]
    return padded


def to_numpy(array: Array) -> Any:
    """A tensor as a NumPy array."""
    return array.cpu().numpy()


def timestamp(block: DeviceBlock) -> Any:
    """Time, or a CUDA event, at this point of the work on the block's device."""
    return device_timestamp(block.values.device)


def device_timestamp(device: Any) -> Any:
    """Time, or a CUDA event, at this point of the work on a device."""
    if device.type != "cuda":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record(torch.cuda.current_stream(device))
    return event
