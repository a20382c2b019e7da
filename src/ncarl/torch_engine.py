"""One GPU (or the processor) through PyTorch: blocks and kernel stay on the device."""

from __future__ import annotations

import math
import numbers
import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import torch
from scipy.sparse import csr_array

from ncarl.core import records
from ncarl.core.placed import Budget, PlacedBlock
from ncarl.core.rows_torch import moment
from ncarl.core.types import Array, Block, Kernel
from ncarl.exceptions import DeviceMemoryError
from ncarl.gpu import first_line
from ncarl.observed import Observed
from ncarl.sources import RowSource
from ncarl.streams import summed
from ncarl.torch_stream import DeviceStream

R = TypeVar("R")

#: Work arrays get this part of the free memory, and no more than so many bytes: larger
#: batches were not faster.
FREE_SHARE, MOST_BYTES = 0.25, 8 * 2**30
#: n x n arrays that a step holds at its peak, workspace of the eigensolver included.
KERNEL_ARRAYS = 8


def device_memory(device: torch.device) -> tuple[int, int]:
    """Free and total bytes of a device's memory."""
    if device.type == "cuda":
        _, total = torch.cuda.mem_get_info(device)
        with on(device):
            return records.obtainable() + records.unused(), total
    if not hasattr(os, "sysconf"):  # Windows: a guess that any machine bears out
        return 2**31, 2**32
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return total // 2, total


def on(device: torch.device) -> AbstractContextManager[Any]:
    """A context in which kernels are launched on the device."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


@dataclass(frozen=True)
class DeviceMemory:
    """Memory of a torch device; CUDA work is queued, so reading means waiting.

    Attributes
    ----------
    device : torch.device
        The device.
    begun : list of int
        Bytes that were free when the last fit began; empty before the first.
    """

    device: torch.device
    begun: list[int] = field(default_factory=list, repr=False, compare=False)

    @property
    def queued(self) -> bool:
        """Nothing is read back inside a step, on whatever device."""
        return True

    @contextmanager
    def work(self, n: int) -> Iterator[None]:
        """A context for n x n work, in which running out of memory is explained."""
        try:
            with on(self.device):
                yield
        except torch.cuda.OutOfMemoryError as error:
            raise too_large(n, self) from error

    def expect_fit(self, n: int, number: int) -> None:
        """Raise where a fit of n columns, in numbers of so many bytes, cannot fit."""
        free, total = device_memory(self.device)
        self.begun[:] = [free]
        if KERNEL_ARRAYS * number * n * n > total:
            raise too_large(n, self)

    def for_a_fit(self) -> int:
        """Bytes that a fit has: what it has taken itself is not counted as gone."""
        return max(device_memory(self.device)[0], *self.begun, 0)

    def send(self, array: Any) -> Any:
        """A NumPy array, moved to the device; a tensor as it is."""
        if isinstance(array, np.ndarray):
            with self.work(array.shape[-1]):
                return torch.tensor(array, device=self.device)
        return array

    def fetch(self, array: Any) -> Any:
        """A tensor as a NumPy array; anything else as it is."""
        if isinstance(array, torch.Tensor):
            return array.cpu().numpy()
        return array

    def fetch_sparse(self, array: Any) -> Any:
        """A tensor with few entries as a SciPy CSR array."""
        if not isinstance(array, torch.Tensor):
            return csr_array(array)
        rows, columns = array.nonzero(as_tuple=True)
        values = array[rows, columns]
        where = (rows.cpu().numpy(), columns.cpu().numpy())
        return csr_array((values.cpu().numpy(), where), shape=tuple(array.shape))

    def read(self, *arrays: Any) -> list[Array]:
        """Small tensors and numbers as NumPy arrays, in one transfer."""
        here = [
            torch.as_tensor(a, dtype=torch.float64, device=self.device) for a in arrays
        ]
        values = torch.cat([a.reshape(-1) for a in here]).cpu().numpy()
        parts = np.split(values, np.cumsum([a.numel() for a in here])[:-1])
        return [p.reshape(a.shape) for p, a in zip(parts, here, strict=True)]

    def mark(self) -> Any:
        """A moment in the course of the work."""
        return moment(self.device)


def largest_kernel(free: int) -> int:
    """Columns of the largest float64 kernel that so many bytes hold, about."""
    return math.isqrt(free // (8 * KERNEL_ARRAYS))


def too_large(n: int, memory: DeviceMemory) -> DeviceMemoryError:
    """The error for work that does not fit, with what would."""
    device, free = memory.device, memory.for_a_fit()
    _, total = device_memory(device)
    needed = KERNEL_ARRAYS * 8 * n * n
    return DeviceMemoryError(
        f"a kernel of {n} columns takes about {needed / 1e9:.2g} GB on {device} (half "
        f"with dtype='float32'), beside the entries and the rows at work; "
        f"{free / 1e9:.3g} of {total / 1e9:.3g} GB are free for a fit, enough for "
        f"about {largest_kernel(free)} columns. "
        "engine='threads' works in the memory of the host; orientation='auto' puts the "
        "kernel on the shorter side"
    )


def rows_too_large(block: PlacedBlock, memory: DeviceMemory) -> DeviceMemoryError:
    """The error for rows that do not fit, however few are taken at a time."""
    device = memory.device
    free, _ = device_memory(device)
    if block.n_columns > largest_kernel(free):
        return too_large(block.n_columns, memory)
    most = int((block.groups[1:] - block.groups[:-1]).max())
    return DeviceMemoryError(
        f"{most} rows of {block.n_columns} columns with the same mask, which are "
        f"completed together, do not fit into the {free / 1e9:.3g} GB that are free on "
        f"{device}; engine='threads' works in the memory of the host"
    )


@dataclass(frozen=True)
class Torch:
    """PyTorch on one device: all rows in padded batches, nothing read back in a step.

    Parameters
    ----------
    device : str, optional
        A torch device; by default "cuda". "cpu" runs the same code on the processor,
        where the threads engine is faster.
    memory_gb : float, optional
        Memory for one batch of rows; by default a quarter of what is free, at most
        8.6 GB. It shrinks by itself where it proves too much.
    why : str
        Why it was picked, for `describe`.
    """

    device: str = "cuda"
    memory_gb: float | None = None
    why: str = field(default="", repr=False, compare=False)

    def __post_init__(self) -> None:
        _ = self.home
        given = self.memory_gb
        number = isinstance(given, numbers.Real) and not isinstance(given, bool)
        if given is not None and not (number and 0.0 < given < float("inf")):
            raise ValueError(
                "memory_gb must be a positive number, or None for a quarter of what "
                f"is free, got {given!r}"
            )

    @cached_property
    def budget(self) -> Budget:
        """What one piece of work may take on the device."""
        if self.memory_gb is not None:
            return Budget(int(self.memory_gb * 1e9))
        free, _ = device_memory(self.home.device)
        return Budget(int(min(MOST_BYTES, FREE_SHARE * free)))

    @cached_property
    def blocks(self) -> list[weakref.ref[PlacedBlock]]:
        """Blocks that were placed and are still in use."""
        return []

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy is an engine of its own: nothing on the device goes with it."""
        return _copied, (self.device, self.memory_gb, self.why)

    @cached_property
    def home(self) -> DeviceMemory:
        """The memory of the device; an error says what is wrong with it."""
        check_device(self.device)
        return DeviceMemory(torch.device(self.device))

    def blocks_wanted(self, rows: int, columns: int) -> int | None:
        """As many as keep the completed rows of one within the budget."""
        dense = 8.0 * rows * columns
        return max(1, int(np.ceil(4.0 * dense / max(1, self.budget.bytes))))

    def place(self, blocks: Iterable[Block]) -> Sequence[PlacedBlock]:
        """Copy the blocks to the device."""
        given = list(blocks)
        # Records keep their memory, so only a block that is alone gets one.
        alone = len(given) == 1 and self.home.device.type == "cuda"
        return self._placed(given, recorded=alone)

    def _placed(self, given: list[Block], *, recorded: bool) -> list[PlacedBlock]:
        """Copies of the blocks on the device."""
        device = self.home.device
        try:
            placed = [PlacedBlock.of(b, device, self.budget, recorded) for b in given]
        except torch.cuda.OutOfMemoryError as error:
            size = sum(b.values.nbytes + b.indices.nbytes for b in given)
            raise DeviceMemoryError(
                f"the {sum(len(b.values) for b in given)} observed entries take "
                f"{size / 1e9:.1f} GB on {device}, which has less; engine='threads' "
                "works in the memory of the host"
            ) from error
        self.blocks[:] = [known for known in self.blocks if known() is not None]
        self.blocks.extend(weakref.ref(block) for block in placed)
        return placed

    def stream(
        self, source: RowSource, prepare: Callable[[Observed], Any]
    ) -> DeviceStream:
        """Chunks go to the device in every pass, but for those it has room to keep."""

        def place(block: Block) -> PlacedBlock:
            return self._placed([block], recorded=False)[0]

        return DeviceStream(source, prepare, place, self._has_room)

    def _has_room(self) -> bool:
        """Whether a GPU has memory for rows of a source to stay; no other device has.

        What a fit needs besides gets half of it.
        """
        if self.home.device.type != "cuda":
            return False
        free, total = device_memory(self.home.device)
        return free > total // 2

    def map(
        self, function: Callable[..., R], blocks: Any, **shared: Any
    ) -> Iterator[R]:
        """``function(block, **shared)`` for every block, in block order."""
        for name, value in shared.items():
            if isinstance(value, Kernel):
                shared[name] = value.moved(self.home.send)
        if isinstance(blocks, DeviceStream):
            blocks = blocks.blocks()
        for block in blocks:
            yield self._within_memory(function, block, shared)

    def total(self, function: Callable[..., R], blocks: Any, **shared: Any) -> R:
        """The sum (by ``+=``) of what `map` gives, in block order."""
        return summed(self.map(function, blocks, **shared))

    def _within_memory(
        self, function: Callable[..., R], block: PlacedBlock, shared: dict[str, Any]
    ) -> R:
        """The result for a block, in smaller and smaller batches if memory runs out."""
        while True:
            try:
                with on(self.home.device):
                    return function(block, kind="torch", **shared)
            except torch.cuda.OutOfMemoryError as error:
                if not self.budget.shrink():
                    raise rows_too_large(block, self.home) from error
            for known in self.blocks:
                if (placed := known()) is not None:
                    placed.plans.clear()  # made for larger batches, and in the way
            torch.cuda.empty_cache()

    def describe(self) -> str:
        """What the engine is and why it was picked, in one line."""
        device = self.home.device
        name = "processor"
        if device.type == "cuda":
            name = torch.cuda.get_device_name(device)
        _, total = device_memory(device)
        return (
            f"torch {torch.__version__}: {name} ({device}, {total / 1e9:.0f} GB), "
            f"batches of {self.budget.bytes / 1e9:.1f} GB{self.why}"
        )


def _copied(device: str, memory_gb: float | None, why: str) -> Torch:
    """An engine whose device may be missing here: a pickle can come from elsewhere."""
    engine = object.__new__(Torch)
    for name, value in (("device", device), ("memory_gb", memory_gb), ("why", why)):
        object.__setattr__(engine, name, value)
    return engine


def check_device(name: str) -> None:
    """Raise where a device is not there, or does not do what it is asked.

    Raises
    ------
    ValueError
        If PyTorch knows no device of that name.
    RuntimeError
        If it cannot be used, with the reason that PyTorch gives.
    """
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
    except Exception as error:  # drivers and cards fail in many ways
        raise RuntimeError(
            f"the device {name!r} cannot be used: {first_line(error)}. "
            "engine='threads' needs none, and engine='auto' picks what works"
        ) from error
    if not sound:
        raise RuntimeError(f"the device {name!r} gives wrong results")
