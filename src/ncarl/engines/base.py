"""The `Engine` and `Device` protocols, the memory of the host, and GPU detection.

An engine runs the row work; its device stores and computes the n x n arrays of a fit
between two passes over the rows.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from scipy.sparse import csr_array

from ncarl.core.types import Array
from ncarl.engines.cores import available_cores, fit_threads, limit_blas_threads
from ncarl.exceptions import KernelMemoryError
from ncarl.io import RowSource, prefetch
from ncarl.io.base import host_memory
from ncarl.observations import Observations

R = TypeVar("R")

#: Backends of the row step on the host.
ROW_BACKENDS = ("auto", "numba", "numpy")
#: Number of n x n arrays that every fit holds at once.
MIN_KERNEL_ARRAYS = 3
#: Driver libraries, one of which every GPU needs: without them the import of PyTorch,
#: which takes seconds, is skipped.
GPU_DRIVERS = ("libcuda.so.1", "nvcuda.dll", "libamdhip64.so")


@runtime_checkable
class Engine(Protocol):
    """Runs a function on every block of rows.

    The block is the only positional argument of the function. Arguments that all blocks
    share are passed by name, so that an engine can upload or scatter them once, and
    ``backend``, the backend of the row step, is added by the engine.
    """

    @property
    def compute_device(self) -> Device:
        """Device that stores and computes the n x n arrays of a fit."""

    def place(self, rows: Observations | LazyBlocks) -> Any:
        """Blocks of rows, moved to where the row work runs."""

    def map(
        self, function: Callable[..., R], blocks: Any, **shared: Any
    ) -> Iterator[R]:
        """``function(block, **shared)`` for every block, in block order."""

    def total(self, function: Callable[..., R], blocks: Any, **shared: Any) -> R:
        """Sum (by ``+=``) of the results of `map`, in a fixed order."""

    def describe(self) -> str:
        """One-line description of the engine and why it was picked."""


class LocalEngine:
    """An engine of this process, which sums results in the order of the blocks."""

    map: Callable[..., Any]

    def total(self, function: Callable[..., R], blocks: Any, **shared: Any) -> R:
        """Sum (by ``+=``) of the results of `map`, in block order."""
        results = self.map(function, blocks, **shared)
        for total in results:
            for result in results:
                total += result
            return total  # type: ignore[no-any-return]
        raise ValueError("X has no rows; nothing can be learned from it")


class Device(Protocol):
    """Memory that stores the n x n arrays of a fit, and how to compute with them."""

    @property
    def is_async(self) -> bool:
        """Whether work is queued, so that reading a number waits for all of it.

        A solver then reads all results of a step at once, at its end.
        """

    def compute_context(self, n: int) -> AbstractContextManager[Any]:
        """Context for n x n work."""

    def check_memory(self, n: int, itemsize: int) -> None:
        """Raise if a fit of n columns with numbers of ``itemsize`` bytes cannot fit."""

    def from_numpy(self, array: Any) -> Any:
        """Copy a NumPy array to the device."""

    def to_numpy(self, array: Any) -> Any:
        """Copy an array of the device to a NumPy array; None stays None."""

    def to_scipy(self, array: Any) -> Any:
        """Copy a mostly zero array of the device to a SciPy CSR array."""

    def read_back(self, *arrays: Any) -> list[Any]:
        """Copy small arrays of the device to NumPy arrays in one transfer."""

    def timestamp(self) -> Any:
        """Time at this point of the work, for `seconds_between`."""


@dataclass(frozen=True)
class HostDevice:
    """Memory and cores of this process."""

    n_jobs: int | None = None  # most threads for n x n work; None for all cores
    is_async: bool = False

    def compute_context(self, n: int) -> AbstractContextManager[Any]:
        """Limit BLAS to as many threads as pay: see `ncarl.engines.cores`."""
        cores = available_cores()
        most = min(self.n_jobs or cores, cores)
        return limit_blas_threads(fit_threads().threads(n, most))

    def check_memory(self, n: int, itemsize: int) -> None:
        """Raise if not even the smallest memory need of a fit fits into the machine.

        Closer to the limit nothing is predicted, since hosts can overcommit and swap.
        """
        total = host_memory()
        if total is None or MIN_KERNEL_ARRAYS * itemsize * n * n <= total:
            return
        size = itemsize * n * n / 1e9
        raise KernelMemoryError(
            f"a kernel of {n} columns takes {size:.3g} GB and a fit holds at least "
            f"{MIN_KERNEL_ARRAYS} such arrays; {total / 1e9:.3g} GB can be used. "
            "Use ncarl.WideNCARL, which never forms it, or orientation='auto', which "
            "puts the kernel on the shorter side"
        )

    def from_numpy(self, array: Any) -> Any:
        """Return the array unchanged."""
        return array

    def to_numpy(self, array: Any) -> Any:
        """Return the array unchanged."""
        return array

    def to_scipy(self, array: Any) -> Any:
        """Convert the array to a SciPy CSR array."""
        return csr_array(array)

    def read_back(self, *arrays: Any) -> list[Array]:
        """Return the arrays, numbers as arrays."""
        return [np.asarray(array) for array in arrays]

    def timestamp(self) -> float:
        """Current time in seconds."""
        return time.perf_counter()


def seconds_between(first: Any, last: Any) -> float:
    """Seconds between two timestamps of a device, both of them in the past."""
    if isinstance(first, float):
        return float(last - first)
    return float(first.elapsed_time(last)) / 1e3


def transform_chunk(chunk: Any, transforms: Iterable[Callable[[Any], Any]]) -> Any:
    """Result of transforms, one after the other."""
    for transform in transforms:
        chunk = transform(chunk)
    return chunk


@dataclass(frozen=True)
class LazyBlocks:
    """Chunks of a row source, each transformed when a pass needs it."""

    source: RowSource
    transforms: tuple[Callable[[Any], Any], ...] = ()  # the last may make a block

    def prepare(self, chunk: Observations) -> Any:
        """Transformed chunk."""
        return transform_chunk(chunk, self.transforms)

    def nonempty_chunks(self) -> Iterator[Observations]:
        """The untransformed chunks with rows."""
        return (chunk for chunk in self.source if chunk.shape[0])

    def run(self, function: Callable[..., R], chunk: Observations, **shared: Any) -> R:
        """Result of a function for a transformed chunk."""
        return function(self.prepare(chunk), **shared)

    def chunks(self) -> AbstractContextManager[Iterator[Observations]]:
        """One pass over the untransformed chunks with rows, read ahead by a thread."""
        return closing(prefetch(self.nonempty_chunks()))


def in_order(
    futures: Iterable[Any],
    n_ahead: int,
    result: Callable[[Any], Any] = Future.result,
    cancel: Callable[[Iterable[Any]], object] | None = None,
) -> Generator[Any, None, None]:
    """Results of futures in order, of which at most ``n_ahead`` wait at a time.

    ``futures`` submits its work when it is iterated. What is still waiting at the end
    of an interrupted pass is canceled.
    """
    waiting: deque[Any] = deque()
    try:
        for future in futures:
            waiting.append(future)
            if len(waiting) > n_ahead:
                yield result(waiting.popleft())
        while waiting:
            yield result(waiting.popleft())
    finally:
        (cancel or _cancel_and_wait)(waiting)


def _cancel_and_wait(futures: Iterable[Future[Any]]) -> None:
    for future in futures:
        future.cancel()
    wait(futures)


@cache
def gpu_unavailable_reason() -> str | None:
    """Why PyTorch cannot use a GPU here, in a few words; None if it can."""
    if not torch_installed():
        return "PyTorch is not installed"
    if "torch" not in sys.modules and not _has_gpu_driver():
        return "no GPU driver is installed"
    fails = "PyTorch does not load"
    try:
        import torch

        if torch.version.cuda is None and torch.version.hip is None:
            return "this build of PyTorch has no GPU support"
        fails = "the GPU does not work"
        if not torch.cuda.is_available():
            return "PyTorch sees no GPU"
        from ncarl.engines.torch import check_device

        check_device("cuda")
    except Exception as error:  # libraries, drivers and GPUs fail in many ways
        return f"{fails} ({first_line(error)})"
    return None


if hasattr(os, "register_at_fork"):
    # A forked child cannot use the GPU of its parent.
    os.register_at_fork(after_in_child=gpu_unavailable_reason.cache_clear)


def torch_installed() -> bool:
    """Whether PyTorch is installed."""
    try:
        return importlib.util.find_spec("torch") is not None
    except ValueError:  # a module without a specification, such as a mock
        return False


def _has_gpu_driver() -> bool:
    for name in GPU_DRIVERS:
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        return True
    return False


def first_line(error: BaseException) -> str:
    """The first line of an error's message."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
