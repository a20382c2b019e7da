"""Batched Cholesky factors made of matrix products, and CUDA graphs.

The batched factorization of PyTorch reaches a few percent of the speed of matrix
products on a GPU. `batched_cholesky` updates a panel of columns with all columns before
it in one product, factorizes and inverts its diagonal block (recursively, by products
again), and computes the rest of the panel by another product. Diagonal blocks hold the
inverse of their factor, so that triangular solves are products too.

`capture_or_replay` captures one pass over the rows as a CUDA graph and replays it in
later iterations.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from ncarl.core.rows import Kernel
from ncarl.core.types import Array

with contextlib.suppress(ImportError):
    import torch

log = logging.getLogger("ncarl")
R = TypeVar("R")
#: Function that replaces small blocks by their inverse factors and marks failures.
LeafSolver = Callable[[Any, Any], None]
#: Size of the diagonal blocks whose inverse factor is kept, and of the leaves of their
#: recursion, which PyTorch or a Triton kernel inverts; measured on an H200.
PANEL_SIZE, TORCH_LEAF_SIZE, TRITON_LEAF_SIZE = 64, 32, 16
#: Streams that the batches of a captured pass are spread over.
N_STREAMS = 4
#: Entries of a plan in the place of a `CudaGraph`.
NOT_CAPTURED, CAPTURE_FAILED = "not yet captured", "capture failed"
#: Keys of the work that this process has run before, which loaded and compiled it.
_warmed_up_keys: set[Any] = set()
_streams_by_device: dict[int, list[Any]] = {}


@dataclass(frozen=True)
class BatchedCholesky:
    """Cholesky factors ``L`` of a stack of matrices ``A``.

    ``blocks`` holds ``L`` below the diagonal blocks and the inverses of the diagonal
    blocks of ``L`` in them; it is arbitrary above.
    """

    blocks: Array  # (batch, p, p)
    failed: Array  # (batch,) of bool: matrices that are not positive definite

    def solve(self, right: Array) -> Array:
        """``A^-1 right`` for right-hand sides (batch, p, columns); NaN if failed."""
        x = self.solve_lower(right)
        F, p = self.blocks, self.blocks.shape[-1]
        for first in reversed(range(0, p, PANEL_SIZE)):
            last = min(first + PANEL_SIZE, p)
            part = x[:, first:last]
            if last < p:
                part.baddbmm_(F[:, last:, first:last].mT, x[:, last:], alpha=-1)
            part.copy_(F[:, first:last, first:last].mT @ part)
        return x

    def solve_lower(self, right: Array) -> Array:
        """``L^-1 right`` as a new tensor; NaN if failed."""
        x = right.clone()
        F, p = self.blocks, self.blocks.shape[-1]
        for first in range(0, p, PANEL_SIZE):
            last = min(first + PANEL_SIZE, p)
            part = x[:, first:last]
            part.copy_(F[:, first:last, first:last] @ part)
            if last < p:
                x[:, last:].baddbmm_(F[:, last:, first:last], part, alpha=-1)
        return x.masked_fill_(self.failed[:, None, None], torch.nan)

    def inverse(self) -> Array:
        """``A^-1`` as a new tensor (batch, p, p); NaN if failed.

        From the last columns to the first, by ``A^-1 L = L^-T``: the finished columns
        give those before them in one product.
        """
        F, p = self.blocks, self.blocks.shape[-1]
        X = torch.empty_like(F)
        for first in reversed(range(0, p, PANEL_SIZE)):
            last = min(first + PANEL_SIZE, p)
            leaf, corner = (A[:, first:last, first:last] for A in (F, X))
            torch.bmm(leaf.mT, leaf, out=corner)
            if last == p:
                # From here NaN spreads to all of the matrix.
                corner.masked_fill_(self.failed[:, None, None], torch.nan)
                continue
            across = F[:, last:, first:last] @ -leaf
            below = X[:, last:, first:last]
            torch.bmm(X[:, last:, last:], across, out=below)
            corner.baddbmm_(below.mT, across)
            X[:, first:last, last:] = below.mT
        return X

    def log_det(self, not_padding: Array) -> Array:
        """``log|A|`` of each matrix without its padding; NaN if failed.

        ``not_padding`` (batch, p) is the mask of rows that are not padding.
        """
        diagonal = self.blocks.diagonal(dim1=1, dim2=2)  # that of L^-1
        logs = torch.where(not_padding, diagonal.log(), 0.0)
        return (-2.0 * logs.sum(dim=1)).masked_fill_(self.failed, torch.nan)


def batched_cholesky(A: Array) -> BatchedCholesky:
    """Factorize a stack of matrices, shape (batch, p, p), overwriting it.

    Only the lower half is read; ``p`` is a multiple of 16.
    """
    batch, p, _ = A.shape
    failed = torch.zeros(batch, dtype=torch.bool, device=A.device)
    kernels = load_triton_kernels() if A.is_cuda else None
    leaf = invert_factors_torch if kernels is None else kernels.invert_factors
    size = TORCH_LEAF_SIZE if kernels is None else TRITON_LEAF_SIZE
    F = torch.empty_like(A) if p > PANEL_SIZE else A
    for first in range(0, p, PANEL_SIZE):
        last = min(first + PANEL_SIZE, p)
        if first > 0:
            A[:, first:, first:last].baddbmm_(
                F[:, first:, :first], F[:, first:last, :first].mT, alpha=-1
            )
        corner = A[:, first:last, first:last]
        _invert_factor(corner, leaf, size, failed)
        if F is not A:
            F[:, first:last, first:last] = corner
        if last < p:
            below = A[:, last:, first:last]
            torch.bmm(below, corner.mT, out=F[:, last:, first:last])
    return BatchedCholesky(F, failed)


def _invert_factor(A: Array, leaf: LeafSolver, size: int, failed: Array) -> None:
    """Replace each matrix by the inverse of its lower factor, by recursive halving."""
    p = A.shape[-1]
    if p <= size:
        leaf(A, failed)
        return
    half = (p // size + 1) // 2 * size
    top, corner, low = A[:, :half, :half], A[:, half:, :half], A[:, half:, half:]
    _invert_factor(top, leaf, size, failed)
    across = corner @ top.mT
    low.baddbmm_(across, across.mT, alpha=-1)
    _invert_factor(low, leaf, size, failed)
    torch.baddbmm(corner, low, across @ top, beta=0, alpha=-1, out=corner)
    A[:, :half, half:] = 0.0


def invert_factors_torch(A: Array, failed: Array) -> None:
    """Replace each block of the stack by the inverse of its lower Cholesky factor."""
    factor, info = torch.linalg.cholesky_ex(A)
    # A factorization does not report NaN; it always reaches the last pivot.
    failed |= (info != 0) | ~factor[:, -1, -1].isfinite()
    eye = torch.eye(A.shape[-1], dtype=A.dtype, device=A.device)
    A.copy_(torch.linalg.solve_triangular(factor, eye.expand_as(factor), upper=False))


def padded_kernel(K: Array, s: float, padding: int) -> Array:
    """``diag(K + s I, I)``, from which padded systems are gathered."""
    n = K.shape[0]
    padded = K.new_zeros((n + padding, n + padding))
    padded[:n, :n] = K
    diagonal = padded.diagonal()
    diagonal[:n] += s
    diagonal[n:] = 1.0
    return padded


def gather_submatrices(K: Array, columns: Array) -> Array:
    """``K[columns[b]][:, columns[b]]`` for every b; arbitrary above the diagonal."""
    if K.is_cuda and (kernels := load_triton_kernels()) is not None:
        batch, p = columns.shape
        out = K.new_empty((batch, p, p))
        kernels.gather_blocks(K, columns.contiguous(), out)
        return out
    chosen = columns.long()
    return K[chosen[:, :, None], chosen[:, None, :]]


def scatter_add_submatrices(blocks: Array, columns: Array, total: Array) -> None:
    """Add ``blocks[b]`` to ``total[columns[b]][:, columns[b]]`` for every b.

    Only the lower half of ``total`` is complete. Its last row and column collect the
    padding, whose columns are at least as large.
    """
    n = total.shape[0] - 1
    if total.is_cuda and (kernels := load_triton_kernels()) is not None:
        kernels.scatter_blocks(blocks, columns.contiguous(), total, n)
        return
    chosen = columns.long().clamp(max=n)
    places = chosen[:, :, None] * (n + 1) + chosen[:, None, :]
    total.view(-1).index_add_(0, places.view(-1), blocks.reshape(-1))


@cache
def load_triton_kernels() -> Any:
    """`ncarl.core.kernels_triton`, or None if Triton does not run here."""
    try:
        from ncarl.core import kernels_triton

        probe = torch.eye(TRITON_LEAF_SIZE, device="cuda").repeat(2, 1, 1)
        kernels_triton.invert_factors(probe, probe.new_zeros(2, dtype=torch.bool))
        columns = torch.arange(TRITON_LEAF_SIZE, device="cuda", dtype=torch.int32)[None]
        blocks = torch.empty_like(probe[:1])
        kernels_triton.gather_blocks(probe[0], columns, blocks)
        total = torch.zeros_like(probe[0])
        kernels_triton.scatter_blocks(blocks, columns, total, TRITON_LEAF_SIZE)
        traces = blocks.diagonal(dim1=1, dim2=2).sum() + total.sum()
        checksum = (probe.sum() + traces).item()
    except Exception as error:  # no Triton, no C compiler, an unsupported GPU
        log.info("Triton does not run (%s); PyTorch's own kernels are used", error)
        return None
    return kernels_triton if checksum == 4.0 * TRITON_LEAF_SIZE else None


class CudaGraph:
    """Function of a kernel, captured as a CUDA graph with memory of its own.

    It neither waits for the device nor reads back; all kernels have the same shape.
    """

    def __init__(
        self, work: Callable[[Kernel], Any], kernel: Kernel, required_bytes: int
    ):
        ensure_free_memory(required_bytes)
        self.static_kernel = kernel.map_arrays(
            lambda a: None if a is None else a.clone()
        )
        self.graph = torch.cuda.CUDAGraph()
        before, (beside, *_) = torch.cuda.current_stream(), _capture_streams()
        beside.wait_stream(before)
        with torch.cuda.stream(beside):
            try:
                self.graph.capture_begin(capture_error_mode="thread_local")
                self.static_result = work(self.static_kernel)
            except BaseException:
                # Report this error, not the one that ending the capture raises.
                with contextlib.suppress(RuntimeError):
                    self.graph.capture_end()
                raise
            self.graph.capture_end()
        before.wait_stream(beside)

    def replay(self, kernel: Kernel) -> Any:
        """``work(kernel)``, in memory that the next call overwrites."""
        self.static_kernel.K.copy_(kernel.K)
        if self.static_kernel.P is not None:
            self.static_kernel.P.copy_(kernel.P)
        self.graph.replay()
        return self.static_result


def capture_or_replay(
    plans: dict[Any, Any],
    key: Any,
    work: Callable[[Kernel], tuple[Array, ...]],
    kernel: Kernel,
    required_bytes: int,
) -> tuple[Array, ...]:
    """``work(kernel)`` by the CUDA graph in ``plans``, captured if there is none yet.

    The first call in a process is not captured: it loads libraries and compiles.
    """
    if key not in _warmed_up_keys:
        _warmed_up_keys.add(key)
        return work(kernel)
    if plans.setdefault(key, NOT_CAPTURED) == NOT_CAPTURED:
        try:
            plans[key] = CudaGraph(work, kernel, required_bytes)
        except RuntimeError as error:  # no memory, or a call that cannot be captured
            log.info("the row step is not captured as a CUDA graph (%s)", error)
            plans[key] = CAPTURE_FAILED
    if plans[key] == CAPTURE_FAILED:
        return work(kernel)
    replayed: tuple[Array, ...] = plans[key].replay(kernel)
    return replayed


def run_on_streams(jobs: Sequence[Callable[[], R]], *, fits: bool) -> list[R]:
    """Results of independent jobs, on several streams during a capture if they fit.

    Batches of few systems do not fill a GPU; several at a time do.
    """
    capturing = torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
    if not (capturing and fits):
        return [job() for job in jobs]
    main = torch.cuda.current_stream()
    branches = _capture_streams()[1 : 1 + len(jobs)]
    results = []
    try:
        for branch in branches:
            branch.wait_stream(main)
        for k, job in enumerate(jobs):
            with torch.cuda.stream(branches[k % len(branches)]):
                results.append(job())
    finally:
        # Even after an error: a capture with unjoined streams cannot be ended, and
        # PyTorch would consider it active forever.
        for branch in branches:
            main.wait_stream(branch)
    return results


def _capture_streams() -> list[Any]:
    """Streams for captures, made once: libraries keep memory for each."""
    device = torch.cuda.current_device()
    if device not in _streams_by_device:
        _streams_by_device[device] = [torch.cuda.Stream() for _ in range(1 + N_STREAMS)]
    return _streams_by_device[device]


def ensure_free_memory(required_bytes: int) -> None:
    """Empty PyTorch's cache if it is large or if memory is short.

    This is impossible during a capture, and the cache may hold memory of earlier CUDA
    graphs that nothing else can use. Raises a RuntimeError if memory is still short.
    """
    if cached_memory() > required_bytes or available_memory() < required_bytes:
        torch.cuda.empty_cache()
    if available_memory() < required_bytes:
        raise RuntimeError(
            f"it takes {required_bytes / 1e9:.1f} GB, "
            f"{available_memory() / 1e9:.1f} are free"
        )


def available_memory() -> int:
    """Bytes that this process can still allocate on the current GPU."""
    free, total = torch.cuda.mem_get_info()
    share = getattr(torch.cuda, "get_per_process_memory_fraction", lambda: 1.0)()
    return int(min(free, share * total - torch.cuda.memory_reserved()))


def cached_memory() -> int:
    """Bytes of the current GPU that PyTorch has cached without using them."""
    return int(torch.cuda.memory_reserved() - torch.cuda.memory_allocated())
