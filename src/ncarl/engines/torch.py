"""The `Torch` engine: one GPU (or the CPU) through PyTorch, its memory and streams."""

from __future__ import annotations

import contextlib
import itertools
import math
import weakref
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from scipy.sparse import csr_array

from ncarl.blocks import cut_blocks
from ncarl.core import cuda
from ncarl.core.rows import Kernel
from ncarl.core.rows_torch import DeviceBlock, MemoryBudget, device_timestamp
from ncarl.core.types import Array, Block, cached_property
from ncarl.engines.base import LazyBlocks, LocalEngine, first_line, in_order
from ncarl.exceptions import DeviceMemoryError
from ncarl.io import prefetch
from ncarl.io.base import host_memory, import_optional
from ncarl.observations import Observations
from ncarl.validation import check_number

with contextlib.suppress(ImportError):  # `check_device` says how to install it
    import torch

R = TypeVar("R")

#: Part of the free memory for one batch of systems, and the most bytes: larger batches
#: were not faster.
BATCH_MEMORY_FRACTION, MAX_BATCH_BYTES = 0.25, 8 * 2**30
#: Number of n x n arrays at the peak of a step, eigensolver workspace included.
KERNEL_ARRAYS = 8
#: Chunks of a source are joined until they have about this many entries: small blocks
#: leave a GPU idle, and one core prepares fewer rows than it can solve.
ENTRIES_PER_BLOCK = 2_000_000
#: Maximum number of chunks to join: the first, whose size decides, may be sparse.
MAX_CHUNKS_PER_BLOCK = 64
#: Threads that read and prepare chunks of a source with `chunk_loaders`.
N_READERS = 4


@dataclass(frozen=True)
class Torch(LocalEngine):
    """PyTorch on one device: rows in padded batches, nothing read back within a step.

    Parameters
    ----------
    device : str, optional
        A torch device; by default "cuda". "cpu" runs the same code on the CPU, where
        the threads engine is faster.
    memory_gb : float, optional
        Memory for one batch of rows; by default a quarter of the free memory, at most
        8.6 GB. It is reduced automatically if memory runs out.
    reason : str
        Why the engine was picked, for `describe`.
    """

    device: str = "cuda"
    memory_gb: float | None = None
    reason: str = field(default="", repr=False, compare=False)

    def __post_init__(self) -> None:
        _ = self.compute_device
        if self.memory_gb is not None:
            hint = "; None for a quarter of what is free"
            check_number("memory_gb", self.memory_gb, low=0.0, strict=True, hint=hint)

    @cached_property
    def budget(self) -> MemoryBudget:
        """Memory for one batch of rows on the device."""
        if self.memory_gb is not None:
            return MemoryBudget(int(self.memory_gb * 1e9))
        free, _ = device_memory(self.compute_device.torch_device)
        return MemoryBudget(int(min(MAX_BATCH_BYTES, BATCH_MEMORY_FRACTION * free)))

    @cached_property
    def placed_blocks(self) -> list[weakref.ref[DeviceBlock]]:
        """Blocks on the device that are still in use."""
        return []

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the parameters only: nothing on the device is copied."""
        return _unpickle_engine, (self.device, self.memory_gb, self.reason)

    @cached_property
    def compute_device(self) -> TorchDevice:
        """Memory of the device, which is checked first."""
        check_device(self.device)
        return TorchDevice(torch.device(self.device))

    def place(
        self, rows: Observations | LazyBlocks
    ) -> Sequence[DeviceBlock] | DeviceStream:
        """Copy blocks to the device; chunks of a source are copied in every pass."""
        if isinstance(rows, LazyBlocks):
            return DeviceStream(rows, self)
        # The completed rows of each block must stay within the budget.
        dense = 8.0 * math.prod(rows.shape)
        n_blocks = max(1, math.ceil(4.0 * dense / max(1, self.budget.bytes)))
        blocks = cut_blocks(rows, n_blocks)
        # CUDA graphs keep their memory, so only a single block gets one.
        single = len(blocks) == 1 and self.compute_device.torch_device.type == "cuda"
        return self.place_blocks(blocks, use_cuda_graph=single)

    def place_blocks(
        self, blocks: list[Block], *, use_cuda_graph: bool = False
    ) -> list[DeviceBlock]:
        """Copy blocks to the device."""
        device = self.compute_device.torch_device
        try:
            placed = [
                DeviceBlock.from_block(b, device, self.budget, use_cuda_graph)
                for b in blocks
            ]
        except torch.cuda.OutOfMemoryError as error:
            size = sum(b.values.nbytes + b.indices.nbytes for b in blocks)
            raise DeviceMemoryError(
                f"the {sum(len(b.values) for b in blocks)} observed entries take "
                f"{size / 1e9:.1f} GB on {device}, which has less; engine='threads' "
                "works in the memory of the host"
            ) from error
        alive = [ref for ref in self.placed_blocks if ref() is not None]
        self.placed_blocks[:] = alive
        self.placed_blocks.extend(weakref.ref(block) for block in placed)
        return placed

    def has_room(self) -> bool:
        """Whether blocks of a source may stay: on a GPU with half of its memory free.

        The other half is for the rest of the fit.
        """
        if self.compute_device.torch_device.type != "cuda":
            return False
        free, total = device_memory(self.compute_device.torch_device)
        return free > total // 2

    def map(
        self, function: Callable[..., R], blocks: Any, **shared: Any
    ) -> Iterator[R]:
        """``function(block, **shared)`` for every block, in block order."""
        for name, value in shared.items():
            if isinstance(value, Kernel):
                shared[name] = value.map_arrays(self.compute_device.from_numpy)
        if isinstance(blocks, DeviceStream):
            blocks = blocks.blocks()
        for block in blocks:
            yield self._run_within_memory(function, block, shared)

    def _run_within_memory(
        self, function: Callable[..., R], block: DeviceBlock, shared: dict[str, Any]
    ) -> R:
        """Result for a block, with a smaller budget each time memory runs out."""
        while True:
            try:
                with device_context(self.compute_device.torch_device):
                    return function(block, backend="torch", **shared)
            except torch.cuda.OutOfMemoryError as error:
                if not self.budget.halve():
                    raise rows_too_large_error(block, self.compute_device) from error
            for ref in self.placed_blocks:
                if (placed := ref()) is not None:
                    placed.plans.clear()  # they are for larger batches, and use memory
            torch.cuda.empty_cache()

    def describe(self) -> str:
        """One-line description of the engine and why it was picked."""
        device = self.compute_device.torch_device
        name = "processor"
        if device.type == "cuda":
            name = torch.cuda.get_device_name(device)
        _, total = device_memory(device)
        return (
            f"torch {torch.__version__}: {name} ({device}, {total / 1e9:.0f} GB), "
            f"batches of {self.budget.bytes / 1e9:.1f} GB{self.reason}"
        )


def _unpickle_engine(device: str, memory_gb: float | None, reason: str) -> Torch:
    """Restore an engine without a check: its device may be missing on this machine."""
    engine = object.__new__(Torch)
    vars(engine).update(device=device, memory_gb=memory_gb, reason=reason)
    return engine


@dataclass(frozen=True)
class TorchDevice:
    """Memory of a torch device; CUDA work is queued, so reading waits for it."""

    torch_device: torch.device
    # Bytes that were free when the last fit began; empty before the first.
    free_at_start: list[int] = field(default_factory=list, repr=False, compare=False)
    is_async: bool = True  # on the CPU too: nothing is read back inside a step

    @contextmanager
    def compute_context(self, n: int) -> Iterator[None]:
        """Context for n x n work that explains how to avoid running out of memory."""
        try:
            with device_context(self.torch_device):
                yield
        except torch.cuda.OutOfMemoryError as error:
            raise kernel_too_large_error(n, self) from error

    def check_memory(self, n: int, itemsize: int) -> None:
        """Raise if a fit of n columns with numbers of ``itemsize`` bytes cannot fit."""
        free, total = device_memory(self.torch_device)
        self.free_at_start[:] = [free]
        if KERNEL_ARRAYS * itemsize * n * n > total:
            raise kernel_too_large_error(n, self)

    def from_numpy(self, array: Any) -> Any:
        """Copy a NumPy array to the device; a tensor is returned as it is."""
        if isinstance(array, np.ndarray):
            with self.compute_context(array.shape[-1]):
                return torch.tensor(array, device=self.torch_device)
        return array

    def to_numpy(self, array: Any) -> Any:
        """Copy a tensor to a NumPy array; anything else is returned as it is."""
        if isinstance(array, torch.Tensor):
            return array.cpu().numpy()
        return array

    def to_scipy(self, array: Any) -> Any:
        """Copy a mostly zero tensor to a SciPy CSR array."""
        if not isinstance(array, torch.Tensor):
            return csr_array(array)
        rows, columns = array.nonzero(as_tuple=True)
        values = array[rows, columns]
        where = (rows.cpu().numpy(), columns.cpu().numpy())
        return csr_array((values.cpu().numpy(), where), shape=tuple(array.shape))

    def read_back(self, *arrays: Any) -> list[Array]:
        """Copy small tensors and numbers to NumPy arrays in one transfer."""
        tensors = [
            torch.as_tensor(a, dtype=torch.float64, device=self.torch_device)
            for a in arrays
        ]
        values = torch.cat([a.reshape(-1) for a in tensors]).cpu().numpy()
        parts = np.split(values, np.cumsum([a.numel() for a in tensors])[:-1])
        return [p.reshape(a.shape) for p, a in zip(parts, tensors, strict=True)]

    def timestamp(self) -> Any:
        """Time, or a CUDA event, at this point of the work."""
        return device_timestamp(self.torch_device)


def check_device(name: str) -> None:
    """Raise if a device does not exist (ValueError) or does not work (RuntimeError)."""
    import_optional("torch", "PyTorch engines", "gpu")
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise ValueError(
            f"device must be a torch device such as 'cuda', 'cuda:1' or 'cpu', got "
            f"{name!r}"
        ) from error
    try:
        probe = torch.eye(16, dtype=torch.float64, device=device)
        sound = float(torch.linalg.cholesky_ex(probe + probe @ probe)[0].sum()) > 0.0
    except Exception as error:  # drivers and GPUs fail in many ways
        raise RuntimeError(
            f"the device {name!r} cannot be used: {first_line(error)}. "
            "engine='threads' needs none, and engine='auto' picks what works"
        ) from error
    if not sound:
        raise RuntimeError(f"the device {name!r} gives wrong results")


def device_memory(device: torch.device) -> tuple[int, int]:
    """Free and total bytes of a device's memory."""
    if device.type == "cuda":
        _, total = torch.cuda.mem_get_info(device)
        with device_context(device):
            return cuda.available_memory() + cuda.cached_memory(), total
    total = host_memory()
    if total is None:  # Windows: a guess that any machine satisfies
        return 2**31, 2**32
    return total // 2, total


def device_context(device: torch.device) -> AbstractContextManager[Any]:
    """Context in which kernels are launched on the device."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def max_kernel_columns(free: int) -> int:
    """Approximate number of columns of the largest float64 kernel that fits."""
    return math.isqrt(free // (8 * KERNEL_ARRAYS))


def kernel_too_large_error(n: int, memory: TorchDevice) -> DeviceMemoryError:
    """Error for a kernel that does not fit, with the largest one that would."""
    device = memory.torch_device
    free, total = device_memory(device)
    free = max(free, *memory.free_at_start, 0)  # with what the fit has taken already
    needed = KERNEL_ARRAYS * 8 * n * n
    return DeviceMemoryError(
        f"a kernel of {n} columns takes about {needed / 1e9:.2g} GB on {device} (half "
        f"with dtype='float32'), beside the entries and the rows at work; "
        f"{free / 1e9:.3g} of {total / 1e9:.3g} GB are free for a fit, enough for "
        f"about {max_kernel_columns(free)} columns. "
        "engine='threads' works in the memory of the host; orientation='auto' puts the "
        "kernel on the shorter side"
    )


def rows_too_large_error(block: DeviceBlock, memory: TorchDevice) -> DeviceMemoryError:
    """Error for rows that do not fit, however few are taken at a time."""
    device = memory.torch_device
    free, _ = device_memory(device)
    if block.n_columns > max_kernel_columns(free):
        return kernel_too_large_error(block.n_columns, memory)
    most = int((block.groups[1:] - block.groups[:-1]).max())
    return DeviceMemoryError(
        f"{most} rows of {block.n_columns} columns with the same mask, which are "
        f"completed together, do not fit into the {free / 1e9:.3g} GB that are free on "
        f"{device}; engine='threads' works in the memory of the host"
    )


@dataclass
class DeviceStream:
    """Blocks made of chunks of a source, kept on the device while there is room."""

    lazy: LazyBlocks
    engine: Torch
    resident_blocks: list[Any] = field(default_factory=list)  # the first blocks
    chunks_per_block: int = 0  # chunks that are joined; 0 before the first pass
    all_resident: bool = False  # whether all blocks stay on the device

    def blocks(self) -> Iterator[Any]:
        """One pass over all blocks, in order."""
        yield from self.resident_blocks
        if self.all_resident:
            return
        keeping = True
        with closing(self._remaining_blocks()) as remaining:
            for block in remaining:
                if block is None:
                    continue
                if isinstance(block, Block):
                    (block,) = self.engine.place_blocks([block])
                    keeping = keeping and self.engine.has_room()
                else:
                    keeping = False
                if keeping:
                    self.resident_blocks.append(block)
                yield block
        self.all_resident = keeping

    def _remaining_blocks(self) -> Generator[Any]:
        """Prepared blocks that are not resident, made ahead by threads."""
        source = self.lazy.source
        loaders = source.chunk_loaders()
        if not self.chunks_per_block:
            # By the size of the first chunk.
            first = next(iter(source), None)
            size = 0 if first is None else first.n_observed
            joined = max(1, ENTRIES_PER_BLOCK // max(1, size))
            self.chunks_per_block = min(MAX_CHUNKS_PER_BLOCK, joined)
        if loaders is None:
            groups = self._remaining_groups(self.lazy.nonempty_chunks())
            with closing(prefetch(self._join(group) for group in groups)) as blocks:
                yield from blocks
            return
        with ThreadPoolExecutor(N_READERS, thread_name_prefix="ncarl-read") as pool:
            groups = self._remaining_groups(iter(loaders))
            tasks = (
                pool.submit(lambda some: self._join([load() for load in some]), group)
                for group in groups
            )
            with closing(in_order(tasks, N_READERS)) as blocks:
                yield from blocks

    def _remaining_groups(self, items: Iterator[Any]) -> Iterator[list[Any]]:
        """Items in lists, without those of the resident blocks."""
        size = self.chunks_per_block
        rest = itertools.islice(items, size * len(self.resident_blocks), None)
        while group := list(itertools.islice(rest, size)):
            yield group

    def _join(self, chunks: list[Observations]) -> Any:
        """Block of some chunks; None if they have no rows."""
        rows = chunks[0] if len(chunks) == 1 else Observations.vstack(chunks)
        return self.lazy.prepare(rows) if rows.shape[0] else None
